//! Upstreams that violate their protocol, send false lengths, stall or disconnect. Checks the client's responses, and
//! that no byte of one response reaches another.

#[path = "hostile/again.rs"]
mod again;
#[path = "hostile/http1.rs"]
mod http1;
#[path = "hostile/http2.rs"]
mod http2;
#[path = "hostile/limits.rs"]
mod limits;
#[path = "hostile/places.rs"]
mod places;
mod support;
#[path = "hostile/tls.rs"]
mod tls;

use std::time::{Duration, Instant};

use support::{ClientResponse, PATIENCE, TestClient, TestServer};

/// A client's result.
#[derive(Debug, PartialEq, Eq)]
enum ClientResult {
    /// A complete response.
    Whole(u16, String),
    /// A head, and truncated content.
    Cut(u16),
}

impl ClientResult {
    fn status(&self) -> u16 {
        match self {
            Self::Whole(status, _) | Self::Cut(status) => *status,
        }
    }
}

fn whole(status: u16, text: &str) -> ClientResult {
    ClientResult::Whole(status, text.to_owned())
}

/// Sends a request over HTTP/1.1 on a new connection and reads the response.
#[track_caller]
fn send_request(server: &TestServer, target: &str) -> ClientResult {
    let mut client = server.client();
    client.send_request(target);
    read(&mut client)
}

/// Reads a response, and checks by its framing whether it is complete.
#[track_caller]
fn read(client: &mut TestClient) -> ClientResult {
    let mut head = client.head();
    while head.status < 200 {
        head = client.head();
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(len) = head.field("Content-Length") {
        let len = len.parse().unwrap();
        return match client.upto(len) {
            bytes if bytes.len() == len => ClientResult::Whole(head.status, text(&bytes)),
            _ => ClientResult::Cut(head.status),
        };
    }
    assert_eq!(head.field("Transfer-Encoding"), Some("chunked"), "{head:?}");
    let mut answer = ClientResponse::default();
    match client.try_chunked(&mut answer) {
        true => ClientResult::Whole(head.status, text(&answer.body)),
        false => ClientResult::Cut(head.status),
    }
}

/// Waits until the server holds no calls, blocks or connections, except for the one of this check.
#[track_caller]
fn assert_all_returned(server: &TestServer) {
    let end = Instant::now() + PATIENCE;
    loop {
        let calls = server.client().get("/calls-lent").text().to_owned();
        std::thread::sleep(Duration::from_millis(2));
        let blocks = server.counts().blocks_in_use;
        if calls == "0" && blocks == 0 && server.counts().connections == 0 {
            return;
        }
        assert!(Instant::now() < end, "{calls} calls, {blocks} blocks and {} connections", server.counts().connections);
    }
}
