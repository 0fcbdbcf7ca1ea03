//! Allocations per request: the edge's own, and those of an axum router. The test prints the figures and bounds them.

mod support;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Bytes;
use axum::routing::get;
use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread, sites};
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use support::{TestClient, client, start};
use tower_edge::{EdgeBody, Running};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const REQUESTS: u64 = 200;

/// Responds at once, without allocating.
#[derive(Clone)]
struct Hello;

impl tower_service::Service<Request<EdgeBody>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<EdgeBody>) -> Self::Future {
        // Reuses the request's map for the response, as a service does that edits its request.
        let mut fields = request.into_parts().0.headers;
        fields.clear();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let mut answer = Response::new(Full::new(Bytes::from_static(b"Hello, World!")));
        *answer.headers_mut() = fields;
        ready(Ok(answer))
    }
}

const MINIMAL: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const BROWSER: &str = "GET / HTTP/1.1\r\nHost: test\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:143.0)\r\nAccept: text/html\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nReferer: https://test/page\r\nCookie: session=0123456789\r\n\
    Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nPriority: u=0, i\r\n\r\n";
const UPLOAD: &str = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello";

/// Returns the allocations per request.
#[track_caller]
fn each(running: &Running, request: &str) -> f64 {
    let mut client: TestClient = client(running);
    let mut send_request = || {
        client.send(request);
        assert_eq!(client.answer().text(), "Hello, World!");
    };
    for _ in 0..REQUESTS {
        send_request();
    }
    let count = allocations_during(|| (0..REQUESTS).for_each(|_| send_request()));
    count as f64 / REQUESTS as f64
}

// One test only: the counter counts all threads.
#[test]
fn only_the_service_allocates_for_a_request() {
    exempt_this_thread();
    let bare = start(Hello);
    for (name, request, most) in [("minimal", MINIMAL, 2.1), ("browser-like", BROWSER, 2.1), ("upload", UPLOAD, 3.1)] {
        let count = each(&bare, request);
        println!("bare service, {name}: {count} allocations");
        assert!(count > 1.9, "the allocator is not counting");
        assert!(count <= most, "{name}: {count}, from {:#?}", sites());
    }
    drop(bare);
    let axum = start(Router::new().route("/", get(async || "Hello, World!")));
    for (name, request, most) in [("minimal", MINIMAL, 25.0), ("browser-like", BROWSER, 25.0)] {
        let count = each(&axum, request);
        println!("axum router, {name}: {count} allocations");
        assert!(count <= most, "{name}: {count}, from {:#?}", sites());
    }
}
