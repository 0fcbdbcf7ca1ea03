//! `timeouts`, and the minimum rates of `servers`: clients that send their bodies too slowly.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::client::connect;
use crate::process::Directory;

/// Sends a body of 100 bytes, one each 10 ms or later. Returns the response, which may come before the body's end.
fn drip(port: u16, path: &str) -> String {
    let mut stream = connect(port);
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        if stream.write_all(b"x").is_err() {
            break;
        }
    }
    let mut response = String::new();
    // An error: the server has reset the connection after its response.
    let _ = stream.read_to_string(&mut response);
    response
}

// Caddy 2.11.9, http.handlers.timeouts: the settings of the route that matches, and else those of the server.
#[test]
fn bodies_below_a_minimum_rate() {
    let directory = Directory::with(&[(
        "Caddyfile",
        "{\n\tservers {\n\t\ttimeouts {\n\t\t\tread_body_idle 300ms 1000000\n\t\t}\n\t}\n}\n\
         :0 {\n\ttimeouts /patient {\n\t\tread_timeout 30s\n\t}\n\ttimeouts /slow {\n\t\tread_timeout 30s 1\n\t}\n\
         \trespond \"got {http.request.body}\"\n}\n",
    )]);
    let server = directory.start(&["run"]);
    let whole = format!("got {}", "x".repeat(100));
    for (path, status, body) in [("/", "408", ""), ("/patient", "200", &*whole), ("/slow", "200", &*whole)] {
        let response = drip(server.port(), path);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")) && response.ends_with(body), "{path}: {response}");
    }
}
