//! Causeway's engine embedded in a program: httpgrpc with responses generated once, as in the Go server of the
//! comparison. It counts every allocation and sends the count to clients of the second port. Usage: `engine_httpgrpc
//! PORT PORT_OF_COUNTS BYTES…`, with one route for each number of bytes.

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

/// The server's usual allocator, with counters.
struct Counted;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call is forwarded unchanged to mimalloc; counting updates two atomics and does not allocate.
#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is mimalloc's too.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count(len);
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(bytes, layout, len) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(bytes, layout) }
    }
}

fn main() {
    let numbers: Option<Vec<usize>> = std::env::args().skip(1).map(|word| word.parse().ok()).collect();
    let (port, told, sizes) = match numbers.as_deref() {
        Some([port, told, sizes @ ..]) => (*port as u16, *told as u16, sizes),
        _ => panic!("usage: engine_httpgrpc PORT PORT_OF_COUNTS BYTES…"),
    };
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry.register_handler("bytes", |settings, _| {
        let count = settings["count"].as_u64().unwrap_or_default();
        Ok(Box::new(BytesHandler(Chunk::from(answer::pattern(count as usize)))))
    });
    let mut build = Build::new(&registry);
    let mut routes = vec![json!({ "handle": [{ "handler": "httpgrpc", "max_message_size": 64 << 20 }] })];
    for count in sizes {
        let path = format!("/bytes/{count}");
        routes.push(json!({ "match": [{ "path": [path] }], "handle": [{ "handler": "bytes", "count": count }] }));
    }
    routes.push(json!({ "handle": [{ "handler": "static_response", "body": "taken" }] }));
    let routes = Value::Array(routes);
    let server = build.server(&ServerSpec::new("bench", &routes)).unwrap_or_else(|error| panic!("{error}"));
    let listener = ListenerSpec::new(ListenAddress { host: Some([127, 0, 0, 1].into()), port, zone: 0 }, server);
    let engine = Engine::start(EngineSpec {
        workers: 1,
        listeners: vec![listener],
        plan: Arc::new(build.finish()),
        blocking: BlockingSpec::default(),
        certificates: None,
    });
    let _engine = engine.unwrap_or_else(|error| panic!("{error}"));
    tell(told);
}

/// Sends the counts over HTTP until a signal ends the process, without allocating.
fn tell(port: u16) {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
    for mut asker in listener.incoming().flatten() {
        let (bytes, allocations) = (BYTES.load(Ordering::Relaxed), ALLOCATIONS.load(Ordering::Relaxed));
        let mut asked = [0; 1024];
        let mut answer = [b' '; 256];
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
        answer[..head.len()].copy_from_slice(head.as_bytes());
        // JSON may end in spaces, so the body has a fixed length.
        let body = &mut answer[head.len()..head.len() + 100];
        let done = write!(&mut *body, "{{\"bytes\":{bytes},\"allocations\":{allocations}}}");
        done.expect("two numbers are not so long");
        // Ignore a client that closes early.
        let _ = asker.read(&mut asked).and_then(|_| asker.write_all(&answer[..head.len() + 100]));
    }
}

/// Bytes generated once and sent by reference.
struct BytesHandler(Chunk);

impl Handler for BytesHandler {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Respond(Response::chunk(StatusCode::OK, self.0.clone()))
    }
}
