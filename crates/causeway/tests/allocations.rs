//! A request allocates nothing, with 200 routes or 200 sites and with placeholders in body and fields. The test runs a
//! Caddyfile on a whole engine, through a real socket.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use causeway_config::caddyfile;
use causeway_config::plan;
use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread, sites};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

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
        certificates: None,
    };
    Engine::start(spec).expect("a free port")
}

/// Sends each request and checks that its response contains each text. Allocates nothing once `answer` has grown.
fn exchange(stream: &mut TcpStream, answer: &mut Vec<u8>, requests: &[(String, [String; 3])]) {
    for (request, wanted) in requests {
        stream.write_all(request.as_bytes()).expect("the server reads");
        answer.clear();
        let mut bytes = [0; 4096];
        while !answer.ends_with(b"\n") {
            let read = stream.read(&mut bytes).expect("the server answers");
            assert!(read > 0, "closed in the middle of an answer");
            answer.extend_from_slice(&bytes[..read]);
        }
        let text = std::str::from_utf8(answer).expect("text");
        for wanted in wanted {
            assert!(text.contains(&**wanted), "no {wanted:?} in {text:?}");
        }
    }
}

/// Checks the response to each request, and that a second round allocates nothing.
#[track_caller]
fn check(caddyfile: &str, requests: &[(String, [String; 3])]) {
    exempt_this_thread();
    let engine = start(caddyfile);
    let mut stream = TcpStream::connect(engine.addresses()[0]).expect("our own listener");
    let mut answer = Vec::new();
    // Checks that the counter sees the worker's thread: a new connection allocates its task.
    let seen = allocations_during(|| {
        let mut other = TcpStream::connect(engine.addresses()[0]).expect("our own listener");
        exchange(&mut other, &mut Vec::new(), &requests[..1]);
    });
    assert!(seen > 0, "the allocator is not counting");
    exchange(&mut stream, &mut answer, requests);
    let allocations = allocations_during(|| exchange(&mut stream, &mut answer, requests));
    assert_eq!(allocations, 0, "over {} requests; they came from {:#?}", requests.len(), sites());
}

const OPTIONS: &str = "{\n\tadmin off\n\tauto_https off\n}\n";

// One test for both: while one counts, a concurrent test must not allocate.
#[test]
fn two_hundred_routes_and_two_hundred_sites() {
    // No index can distinguish these matchers, so a request evaluates every route before its own.
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
