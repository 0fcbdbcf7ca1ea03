//! Causeway's engine embedded in a program: httpgrpc whose answers are octets that were made once, as Go's are beside it, with every allocation
//! counted. Whoever connects to the second port is told how many there were.
//! Usage: `engine_httpgrpc PORT PORT_OF_COUNTS OCTETS…`, one route for each number of octets.

use std::alloc::{GlobalAlloc, Layout};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_message::{Chunk, StatusCode};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, Context, Handler, ListenAddress, ListenerSpec, Registry, Response, Step};
use mimalloc::MiMalloc;
use serde_json::{Value, json};

/// The server's own allocator, counted.
struct Counted;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static OCTETS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn count(octets: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    OCTETS.fetch_add(octets as u64, Ordering::Relaxed);
}

// SAFETY: every call goes on to mimalloc as it came; counting touches two atomics and allocates nothing.
#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are mimalloc's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, octets: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count(len);
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(octets, layout, len) }
    }

    unsafe fn dealloc(&self, octets: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(octets, layout) }
    }
}

fn main() {
    let numbers: Option<Vec<usize>> = std::env::args().skip(1).map(|word| word.parse().ok()).collect();
    let (port, told, sizes) = match numbers.as_deref() {
        Some([port, told, sizes @ ..]) => (*port as u16, *told as u16, sizes),
        _ => panic!("usage: engine_httpgrpc PORT PORT_OF_COUNTS OCTETS…"),
    };
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry.handler("octets", |settings, _| {
        let count = settings["count"].as_u64().unwrap_or_default();
        Ok(Box::new(Octets(Chunk::from(answer::pattern(count as usize)))))
    });
    let mut build = Build::new(&registry);
    let mut routes = vec![json!({ "handle": [{ "handler": "httpgrpc", "max_message_size": 64 << 20 }] })];
    for count in sizes {
        let path = format!("/octets/{count}");
        routes.push(json!({ "match": [{ "path": [path] }], "handle": [{ "handler": "octets", "count": count }] }));
    }
    routes.push(json!({ "handle": [{ "handler": "static_response", "body": "taken" }] }));
    let routes = Value::Array(routes);
    let server = build.server(&ServerSpec::new("bench", &routes)).unwrap_or_else(|error| panic!("{error}"));
    let listener = ListenerSpec::new(ListenAddress { host: Some([127, 0, 0, 1].into()), port }, server);
    let engine = Engine::start(EngineSpec {
        workers: 1,
        listeners: vec![listener],
        plan: Arc::new(build.finish()),
        blocking: BlockingSpec::default(),
        certificates: None,
        access: Box::new(std::io::sink()),
    });
    let _engine = engine.unwrap_or_else(|error| panic!("{error}"));
    tell(told);
}

/// Tells by HTTP, without allocating anything, until a signal ends the process.
fn tell(port: u16) {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
    for mut asker in listener.incoming().flatten() {
        let (octets, allocations) = (OCTETS.load(Ordering::Relaxed), ALLOCATIONS.load(Ordering::Relaxed));
        let mut asked = [0; 1024];
        let mut answer = [b' '; 256];
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
        answer[..head.len()].copy_from_slice(head.as_bytes());
        // JSON may end in spaces, so its length is known beforehand.
        let body = &mut answer[head.len()..head.len() + 100];
        let done = write!(&mut *body, "{{\"octets\":{octets},\"allocations\":{allocations}}}");
        done.expect("two numbers are not so long");
        // Whoever hangs up is told nothing.
        let _ = asker.read(&mut asked).and_then(|_| asker.write_all(&answer[..head.len() + 100]));
    }
}

/// Octets that were made once, by reference.
struct Octets(Chunk);

impl Handler for Octets {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Respond(Response::chunk(StatusCode::OK, self.0.clone()))
    }
}
