//! Prepares an exchange's context, reads the equivalents of the values in Caddy's context once, and recycles it.
//! Storage is reused as in the server, after an exchange that has modified all of it.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_h1::{Limits, parse_head};
use causeway_message::{FieldValue, StatusCode, names};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::context::VarId;
use causeway_pipeline::{
    Arrival, Build, BuildError, Context, Endpoints, Fault, Generation, Handler, Registry, Scheme, ServerId, Spare,
    Step, Template, Verdict, Worker, route,
};
use causeway_testkit::FakeWorker;
use serde_json::{Value, json};

use crate::{AT_ONCE, Cost, TimedCase, clock, request};

/// Returns the cases of the table.
pub fn all() -> Vec<TimedCase<'static>> {
    vec![
        case("causeway, prepared, recycled", |_, cx| {
            black_box(cx);
        }),
        case("causeway, prepared, all read once, recycled", |bench, cx| bench.read(cx)),
        case("causeway, the same with routes and groups walked", |bench, cx| {
            bench.read(cx);
            assert!(matches!(route::run(cx), Verdict::Respond(_)));
        }),
    ]
}

/// A turn recycles an exchange that has modified its storage, and prepares the next one for `used`. Parsing heads and
/// modifying the storage is not timed.
fn case(name: &'static str, mut used: impl FnMut(&mut PreparedPlan, &mut Context) + 'static) -> TimedCase<'static> {
    let bytes = request::browser("/articles/2026/11/a-page.html?page=2");
    let limits = Limits::default();
    let (mut bench, worker) = PreparedPlan::new();
    let vacant = Generation::vacant();
    let mut spares: Vec<_> = (0..AT_ONCE).map(|_| Spare::new(Rc::clone(&worker), Rc::clone(&vacant))).collect();
    let mut contexts = Vec::with_capacity(AT_ONCE);
    // Two parts are timed, so the clock's cost is subtracted twice.
    TimedCase::batches(name, clock() * 2, move || {
        for mut spare in spares.drain(..) {
            parse_head(bytes.as_bytes(), &limits, spare.head_mut()).expect("a good head");
            let mut cx = bench.prepare(spare, bench.dirtying);
            assert!(matches!(route::run(&mut cx), Verdict::Respond(_)));
            assert!(cx.fault().is_some() && cx.variable(bench.variable).is_some());
            contexts.push(cx);
        }
        let mut cost = Cost::of(|| spares.extend(contexts.drain(..).map(Context::recycle)));
        for spare in &mut spares {
            parse_head(bytes.as_bytes(), &limits, spare.head_mut()).expect("a good head");
        }
        cost.add(Cost::of(|| {
            for spare in spares.drain(..) {
                let mut cx = bench.prepare(spare, bench.plain);
                used(&mut bench, &mut cx);
                contexts.push(cx);
            }
        }));
        spares.extend(contexts.drain(..).map(Context::recycle));
        cost
    })
}

/// A plan with the parts of its exchanges.
pub struct PreparedPlan {
    generation: Rc<Generation>,
    arrival: Arrival,
    dirtying: ServerId,
    plain: ServerId,
    variable: VarId,
    placeholder: Template,
    rendered: Vec<u8>,
}

impl PreparedPlan {
    pub fn new() -> (Self, Rc<dyn Worker>) {
        let mut registry = Registry::default();
        registry.register_handler("dirty", Dirty::make);
        registry.register_handler("pass", |_, _| Ok(Box::new(Pass)));
        let mut build = Build::new(&registry);
        // The second route of the group is examined and skipped, which reads the group's mark.
        let routes = |handler: &str| {
            let route = json!({ "group": "one of these", "handle": [{ "handler": handler }] });
            json!([route, route])
        };
        let server = |build: &mut Build<'_>, name: &str, handler: &str| {
            let routes = routes(handler);
            build.server(&ServerSpec::new(name, &routes)).expect("a good plan")
        };
        let dirtying = server(&mut build, "dirtying", "dirty");
        let plain = server(&mut build, "plain", "pass");
        let variable = build.allocate_variable("note");
        let placeholder = build.template("{http.request.method}");
        let worker: Rc<dyn Worker> = FakeWorker::new();
        let generation = Generation::new(Arc::new(build.finish()), &worker, None);
        let arrival = Arrival {
            ends: Endpoints::Ip { peer: ([192, 0, 2, 1], 4711).into(), local: ([192, 0, 2, 80], 80).into() },
            scheme: Scheme::Http,
            tls: None,
            server: plain,
            at: Instant::now(),
            upgrade: false,
        };
        (Self { generation, arrival, dirtying, plain, variable, placeholder, rendered: Vec::new() }, worker)
    }

    /// Prepares a context for routes that modify nothing.
    pub fn prepare_plain(&self, spare: Spare) -> Context {
        self.prepare(spare, self.plain)
    }

    fn prepare(&self, spare: Spare, server: ServerId) -> Context {
        let arrival = Arrival { server, ..self.arrival.clone() };
        spare.prepare(arrival, &self.generation)
    }

    /// Reads the server, a placeholder, a variable, the start time, the original request and the uuid, once each.
    /// Groups are read by running the routes.
    fn read(&mut self, cx: &mut Context) {
        black_box(cx.generation().plan().server_name(cx.arrival().server));
        self.rendered.clear();
        self.placeholder.render(cx, &mut self.rendered);
        black_box(self.rendered.as_slice());
        assert!(cx.variable(self.variable).is_none(), "nothing is left of the exchange before");
        black_box(cx.arrival().at);
        black_box(cx.original().target().as_str());
        black_box(cx.uuid());
    }
}

/// Modifies every part of an exchange's storage.
struct Dirty {
    variable: VarId,
    value: Template,
}

impl Dirty {
    fn make(_: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
        Ok(Box::new(Self {
            variable: build.allocate_variable("note"),
            value: build.template("{http.request.uri} by {http.request.uuid}"),
        }))
    }
}

impl Handler for Dirty {
    fn enter(&self, cx: &mut Context) -> Step {
        cx.set_variable(self.variable, &self.value);
        cx.set_target("/else%77here?x=y").expect("a good target");
        cx.head_mut().fields_mut().insert(names::ACCEPT, FieldValue::from_static("*/*"));
        cx.response_mut().set(names::CACHE_CONTROL, FieldValue::from_static("no-store"));
        cx.set_fault(Fault::from_status(StatusCode::NOT_FOUND));
        drop(cx.take_body());
        Step::Next
    }
}

struct Pass;

impl Handler for Pass {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }
}
