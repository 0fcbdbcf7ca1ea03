//! Upstreams that break their protocol, lie, stall or go: what the client gets, and that nothing of one answer reaches another.

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

use support::{Answer, Client, PATIENCE, Server};

/// What a client gets.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// A whole answer.
    Whole(u16, String),
    /// A head, and content that is cut.
    Cut(u16),
}

impl Got {
    fn status(&self) -> u16 {
        match self {
            Self::Whole(status, _) | Self::Cut(status) => *status,
        }
    }
}

fn whole(status: u16, text: &str) -> Got {
    Got::Whole(status, text.to_owned())
}

/// Asks by HTTP/1.1, on a connection of its own.
#[track_caller]
fn ask(server: &Server, target: &str) -> Got {
    let mut client = server.client();
    client.ask(target);
    read(&mut client)
}

/// The answer, and whether it is whole by its framing.
#[track_caller]
fn read(client: &mut Client) -> Got {
    let mut head = client.head();
    while head.status < 200 {
        head = client.head();
    }
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    if let Some(len) = head.field("Content-Length") {
        let len = len.parse().unwrap();
        return match client.upto(len) {
            octets if octets.len() == len => Got::Whole(head.status, text(&octets)),
            _ => Got::Cut(head.status),
        };
    }
    assert_eq!(head.field("Transfer-Encoding"), Some("chunked"), "{head:?}");
    let mut answer = Answer::default();
    match client.try_chunked(&mut answer) {
        true => Got::Whole(head.status, text(&answer.body)),
        false => Got::Cut(head.status),
    }
}

/// Waits until nothing is held for any call or connection of the server, but for the one that asks.
#[track_caller]
fn all_home(server: &Server) {
    let end = Instant::now() + PATIENCE;
    loop {
        let calls = server.client().get("/calls-lent").text().to_owned();
        std::thread::sleep(Duration::from_millis(2));
        let blocks = server.engine().blocks_lent();
        if calls == "0" && blocks == 0 && server.engine().connections() == 0 {
            return;
        }
        assert!(
            Instant::now() < end,
            "{calls} calls, {blocks} blocks and {} connections",
            server.engine().connections()
        );
    }
}
