//! The cache of a running server: with concurrent clients, over restarts, and in the admin API.

use std::time::{Duration, Instant};

use causeway_testkit::ports::free_ports;
use rustix::process::Signal;

use crate::client::{ReceivedResponse, get, send};
use crate::process::{Directory, ServerProcess};

/// Timeout after which a test fails instead of hanging.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A site with a cache, and its origin, whose responses differ.
fn start(options: &str) -> (Directory, [u16; 2], ServerProcess, u16) {
    let [site, origin] = free_ports();
    let caddyfile = format!(
        "{{\n\tadmin localhost:0\n\tauto_https off\n}}\nhttp://localhost:{site} {{\n\tcache {{\n{options}\n\t}}\n\treverse_proxy localhost:{origin}\n}}\n\
         http://localhost:{origin} {{\n\theader Cache-Control max-age=600\n\theader Surrogate-Key \"all {{path}}\"\n\trespond {{http.request.uuid}}\n}}\n"
    );
    let directory = Directory::with(&[("Caddyfile", &caddyfile)]);
    let mut server = directory.start(&["run"]);
    let admin = server.admin_port();
    (directory, [site, origin], server, admin)
}

fn admin(port: u16, request: &str) -> (u16, serde_json::Value) {
    let ReceivedResponse { status, body, .. } = send(port, request, &[&format!("Host: localhost:{port}")]);
    (status, serde_json::from_str(&body).unwrap())
}

fn is_hit(response: &ReceivedResponse) -> bool {
    response.field("Cache-Status").unwrap().contains("; hit;")
}

// docs/cache.md: the admin API shows and removes stored responses, and metrics count lookups.
#[test]
fn the_admin_api() {
    let (_directory, [site, _], _server, port) = start("");
    let one = get(site, "/a?b=c&d");
    let two = get(site, "/a?b=c&d");
    assert!(!is_hit(&one) && is_hit(&two));
    assert_eq!((one.status, &one.body), (200, &two.body));
    get(site, "/b");
    let (_, usage) = admin(port, "GET /causeway/cache");
    assert_eq!(
        (&usage["responses"], &usage["lookups"]["hit"], &usage["lookups"]["uri_miss"]),
        (&2.into(), &1.into(), &2.into())
    );
    let metrics = send(port, "GET /metrics", &[&format!("Host: localhost:{port}")]).body;
    for line in
        ["causeway_cache_lookups_total{result=\"hit\"} 1", "causeway_cache_responses 2", "causeway_cache_files 0"]
    {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let uri = "uri=http%3A%2F%2Flocalhost%2Fa%3Fb%3Dc%26d";
    for (query, purged) in [(uri, 1), (uri, 0), ("tag=/b", 1), ("prefix=http", 0)] {
        let (status, answer) = admin(port, &format!("DELETE /causeway/cache?{query}"));
        assert_eq!((status, &answer["purged"]), (200, &purged.into()), "{query}");
    }
    assert!(!is_hit(&get(site, "/a?b=c&d")));
    assert_eq!(admin(port, "DELETE /causeway/cache").1["purged"], 1);
    for (request, status) in [
        ("DELETE /causeway/cache?x=1", 400),
        ("DELETE /causeway/cache?uri=", 400),
        ("DELETE /causeway/cache?uri=a&tag=b", 400),
        ("POST /causeway/cache", 405),
    ] {
        assert_eq!(admin(port, request).0, status, "{request}");
    }
}

// docs/cache.md, Files: responses outlive the process.
#[test]
fn files_outlive_the_process() {
    let (directory, [site, _], server, port) = start("\t\tsimplefs {\n\t\t\tpath stored\n\t\t}");
    let one = get(site, "/");
    let begun = Instant::now();
    while admin(port, "GET /causeway/cache").1["files"] != 1 {
        assert!(begun.elapsed() < TIMEOUT, "the response has a file");
    }
    server.signal(Signal::TERM);
    server.status();
    let mut server = directory.start(&["run"]);
    let port = server.admin_port();
    let begun = Instant::now();
    while admin(port, "GET /causeway/cache").1["files"] != 1 {
        assert!(begun.elapsed() < TIMEOUT, "the file is found");
    }
    let two = get(site, "/");
    assert!(is_hit(&two), "{two:?}");
    assert_eq!(one.body, two.body);
    assert_eq!(admin(port, "DELETE /causeway/cache").1["files"], 1);
    assert!(!is_hit(&get(site, "/")));
}

// Concurrent requests of one URI go to the origin once, over all workers.
#[test]
fn concurrent_requests() {
    let (_directory, [site, _], _server, _) = start("");
    let clients: Vec<_> = (0..20).map(|_| std::thread::spawn(move || get(site, "/").body)).collect();
    let mut bodies: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
}
