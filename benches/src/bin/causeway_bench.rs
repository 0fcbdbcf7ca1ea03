//! Causeway's engine embedded in a program with custom handlers: `/` sends a short text; `/burn` computes for 50 ms on
//! the blocking pool, where such work belongs; `/hog` computes as long on the worker itself, against the engine's rule,
//! to show the effect; `/cold` sends a file. Usage: `causeway_bench PORT WORKERS [FILE]`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_message::StatusCode;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Build, Context, Fault, Handler, ListenAddress, ListenerSpec, Registry, Response, Step};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of a computation.
const BURN: Duration = Duration::from_millis(50);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next()?.parse::<u16>().ok();
    let (Some(port), Some(workers)) = (number(), number()) else { panic!("usage: causeway_bench PORT WORKERS [FILE]") };
    let file = arguments.next();

    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry.register_handler("burn", |_, _| Ok(Box::new(Burn)));
    registry.register_handler("hog", |_, _| Ok(Box::new(Hog)));
    let mut build = Build::new(&registry);
    let routes = routes(file.as_deref().map(Path::new));
    let spec = ServerSpec::new("bench", &routes);
    let server = build.server(&spec).unwrap_or_else(|error| panic!("{error}"));
    let listener = ListenerSpec::new(ListenAddress { host: Some([127, 0, 0, 1].into()), port, zone: 0 }, server);
    let engine = Engine::start(EngineSpec {
        workers: usize::from(workers),
        listeners: vec![listener],
        plan: Arc::new(build.finish()),
        blocking: BlockingSpec::default(),
        certificates: None,
    });
    let _engine = engine.unwrap_or_else(|error| panic!("{error}"));
    // Serve until a signal ends the process.
    loop {
        std::thread::park();
    }
}

fn routes(file: Option<&Path>) -> Value {
    let route =
        |path: &str, handlers: Value| json!({ "match": [{ "path": [path] }], "handle": handlers, "terminal": true });
    let mut routes = vec![route("/burn", json!([{ "handler": "burn" }])), route("/hog", json!([{ "handler": "hog" }]))];
    if let Some(file) = file {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let root = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let to_file = json!({ "handler": "rewrite", "uri": format!("/{name}") });
        routes.push(route("/cold", json!([to_file, { "handler": "file_server", "root": root }])));
    }
    routes.push(json!({ "handle": [{ "handler": "static_response", "body": answer::BODY }] }));
    Value::Array(routes)
}

/// Computes on the blocking pool; responds with 503 when its queue is full.
struct Burn;

impl Handler for Burn {
    fn enter(&self, cx: &mut Context) -> Step {
        match offload(&**cx.worker(), Work::of(WorkKind::Blocking), || burn(BURN)) {
            Ok(burning) => cx.wait(burning, |cx, burnt| match burnt {
                Some(()) => done(cx),
                None => Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
            }),
            Err(_) => Step::Fail(Fault::busy()),
        }
    }
}

/// Computes on the worker, which no handler should do.
struct Hog;

impl Handler for Hog {
    fn enter(&self, cx: &mut Context) -> Step {
        burn(BURN);
        done(cx)
    }
}

fn done(cx: &mut Context) -> Step {
    let body = cx.chunk(b"burnt");
    Step::Respond(Response::chunk(StatusCode::OK, body))
}

fn burn(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
