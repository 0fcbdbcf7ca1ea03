//! A request allocates nothing, with 200 routes or 200 sites and with placeholders in body and fields. The test runs a
//! Caddyfile on a whole engine, through a real socket.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
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

// One test for all: while one counts, a concurrent test must not allocate.
#[test]
fn requests_allocate_nothing() {
    two_hundred_routes();
    two_hundred_sites();
    a_proxy_with_all_of_its_checks();
    a_client_of_cloudflare();
}

fn two_hundred_routes() {
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
}

fn two_hundred_sites() {
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

// The only worker is both the proxy and its upstreams.
fn a_proxy_with_all_of_its_checks() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let upstream = free.local_addr().expect("a port").port();
    drop(free);
    let site = format!(
        "{{\n\tadmin off\n\tauto_https off\n\tmetrics {{\n\t\tper_host\n\t}}\n}}\n\
         http://a.test:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{upstream} localhost:{upstream} {{\n\
         \t\thealth_uri /health\n\t\tfail_duration 30s\n\t\tunhealthy_status 5xx\n\t\tunhealthy_latency 10s\n\
         \t\tlb_policy round_robin\n\t\tlb_retries 2\n\t\tlb_try_duration 5s\n\
         \t\tlb_slow_start 1m\n\t\tcircuit_breaker {{\n\t\t\terror_ratio 0.5\n\t\t\tlatency 10s\n\t\t}}\n\t}}\n}}\n\
         http://127.0.0.1:{upstream} {{\n\tbind 127.0.0.1\n\trespond \"of {{host}} {{path}}\n\"\n}}\n\
         http://a.test:{upstream} {{\n\tbind 127.0.0.1\n\trespond \"of {{host}} {{path}}\n\"\n}}\n"
    );
    let requests = [1, 2, 3, 4].map(|number| {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\nUser-Agent: a test\r\n\r\n");
        (request, ["HTTP/1.1 200 OK\r\n".to_owned(), "\r\nVia: ".to_owned(), format!("of a.test /{number}\n")])
    });
    check(&site, &requests);
}

// The engine alone fetches nothing, so the networks of this version count.
fn a_client_of_cloudflare() {
    let site = "{\n\tadmin off\n\tauto_https off\n\tservers {\n\t\ttrusted_proxies combine {\n\t\t\tstatic 127.0.0.1\n\t\t\tcloudflare\n\t\t}\n\
                \t\ttrusted_proxies_strict\n\t}\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\trespond \"{client_ip}\n\"\n}\n";
    let requests = ["173.245.48.1", "2606:4700::1"].map(|edge| {
        let forwarded = format!("192.0.2.1, 203.0.113.9, {edge}");
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: {forwarded}\r\n\r\n");
        (request, ["HTTP/1.1 200 OK\r\n".to_owned(), String::new(), "\r\n\r\n203.0.113.9\n".to_owned()])
    });
    check(site, &requests);
}
