//! Through 200 routes and through 200 sites, with placeholders in body and fields, a request allocates nothing: a Caddyfile,
//! a whole engine, a real socket.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_config::caddyfile;
use causeway_config::plan;
use causeway_engine::{BlockingSpec, Engine, EngineSpec};

/// The system's allocator; while switched on it counts what every thread asks for but the test's own.
struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that is ending has no cell any more, and serves nobody.
    if ON.load(Ordering::Relaxed) && !EXEMPT.try_with(Cell::get).unwrap_or(true) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise; it only counts and passes on")]
// SAFETY: each method passes its arguments to the system's allocator as they came; counting touches two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, octets: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(octets, layout, len) }
    }

    unsafe fn dealloc(&self, octets: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(octets, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_during(work: impl FnOnce()) -> u64 {
    COUNT.store(0, Ordering::Relaxed);
    ON.store(true, Ordering::Relaxed);
    work();
    ON.store(false, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed)
}

fn start(caddyfile: &str) -> Engine {
    let registry = causeway::registry();
    let directives = causeway::directives(&registry);
    let adapted = caddyfile::adapt(caddyfile, "Caddyfile", &directives, &|_| None).expect("a good Caddyfile");
    let loaded = plan::load(&adapted.json, &registry).expect("a good configuration");
    let spec = EngineSpec {
        workers: 1,
        listeners: loaded.listeners,
        plan: Arc::new(loaded.plan),
        blocking: BlockingSpec::default(),
        access: Box::new(std::io::sink()),
    };
    Engine::start(spec).expect("a free port")
}

/// Sends each request and looks for each text in its answer; allocates nothing once `answer` has grown.
fn exchange(stream: &mut TcpStream, answer: &mut Vec<u8>, requests: &[(String, [String; 3])]) {
    for (request, wanted) in requests {
        stream.write_all(request.as_bytes()).expect("the server reads");
        answer.clear();
        let mut octets = [0; 4096];
        while !answer.ends_with(b"\n") {
            let read = stream.read(&mut octets).expect("the server answers");
            assert!(read > 0, "closed in the middle of an answer");
            answer.extend_from_slice(&octets[..read]);
        }
        let text = std::str::from_utf8(answer).expect("text");
        for wanted in wanted {
            assert!(text.contains(&**wanted), "no {wanted:?} in {text:?}");
        }
    }
}

/// Each request has its answer, and allocates nothing once such requests were served before.
#[track_caller]
fn check(caddyfile: &str, requests: &[(String, [String; 3])]) {
    EXEMPT.set(true);
    let engine = start(caddyfile);
    let mut stream = TcpStream::connect(engine.addresses()[0]).expect("our own listener");
    let mut answer = Vec::new();
    // The counter sees the worker: a connection of its own is a task.
    let seen = allocations_during(|| {
        let mut other = TcpStream::connect(engine.addresses()[0]).expect("our own listener");
        exchange(&mut other, &mut Vec::new(), &requests[..1]);
    });
    assert!(seen > 0, "the allocator is not counting");
    exchange(&mut stream, &mut answer, requests);
    let allocations = allocations_during(|| exchange(&mut stream, &mut answer, requests));
    assert_eq!(allocations, 0, "over {} requests", requests.len());
}

const OPTIONS: &str = "{\n\tadmin off\n\tauto_https off\n}\n";

// The two are one test: while one counts, the other must not allocate.
#[test]
fn two_hundred_routes_and_two_hundred_sites() {
    // No index can tell these matchers apart, so each request looks at all the routes before its own.
    let mut routes = format!("{OPTIONS}http://:0 {{\n\tbind 127.0.0.1\n");
    for number in 0..200 {
        let _ = write!(
            routes,
            "\t@r{number} header X-Route {number}\n\
             \thandle @r{number} {{\n\
             \t\tvars note \"{number} of {{host}}\"\n\
             \t\theader X-Note \"{{vars.note}} by {{method}}\"\n\
             \t\trespond \"route {number} {{path}} {{http.request.header.X-Route}} {{query}}\n\"\n\t}}\n"
        );
    }
    routes += "}\n";
    let requests = [0, 3, 99, 198, 199, 7].map(|number| {
        let request = format!(
            "GET /a%20path/{number}?x={number} HTTP/1.1\r\nHost: h{number}.test\r\nUser-Agent: a test\r\nX-Route: {number}\r\n\r\n"
        );
        let note = format!("\r\nX-Note: {number} of h{number}.test by GET\r\n");
        (request, ["HTTP/1.1 200 OK\r\n".to_owned(), note, format!("route {number} /a path/{number} {number} x={number}\n")])
    });
    check(&routes, &requests);

    let mut sites = OPTIONS.to_owned();
    for number in 0..200 {
        let _ = write!(
            sites,
            "http://site{number}.test:0 {{\n\tbind 127.0.0.1\n\theader X-Site {{host}}\n\
             \thandle /static/* {{\n\t\trespond static\n\t}}\n\
             \thandle /api/* {{\n\t\trespond \"{{path}} of {{host}} by {{remote_host}}\n\"\n\t}}\n}}\n"
        );
    }
    let requests = [0, 57, 199].map(|number| {
        let request = format!("GET /api/{number} HTTP/1.1\r\nHost: site{number}.test\r\n\r\n");
        let site = format!("\r\nX-Site: site{number}.test\r\n");
        (
            request,
            ["HTTP/1.1 200 OK\r\n".to_owned(), site, format!("/api/{number} of site{number}.test by 127.0.0.1\n")],
        )
    });
    check(&sites, &requests);
}
