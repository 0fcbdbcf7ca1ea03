//! Log events for interrupted responses: one at level `error`, and none when the client disconnects. In a process of
//! its own, whose log it reads.

mod support;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use causeway_pipeline::FastCgi;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use support::TestServer;
use support::forward::override_transport;
use support::origin::{Deed, Origin, OriginConnection};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }
}

#[test]
fn responses_that_break_off() {
    tracing::subscriber::set_global_default(Lines).unwrap();
    let server = TestServer::start(|_| {});
    let sized = |peer: &mut OriginConnection| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello");
    };
    let cases: Vec<(Deed, Option<&str>)> = vec![
        (Box::new(move |peer| sized(peer)), Some("the connection closed before the response was complete")),
        (
            Box::new(|peer| {
                peer.head();
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
                peer.rest();
            }),
            Some("the upstream violated the protocol: an invalid chunk size"),
        ),
        (
            Box::new(move |peer| {
                sized(peer);
                peer.rest();
            }),
            Some("no data was transferred in time"),
        ),
        // A complete response causes no event.
        (
            Box::new(|peer| {
                peer.head();
                peer.answer("whole");
            }),
            None,
        ),
    ];
    for (act, want) in cases {
        LINES.lock().unwrap().clear();
        let origin = Origin::with(vec![act]);
        override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
            transport.read_timeout = Some(Duration::from_millis(100));
        });
        let mut client = server.client();
        client.send_request(&format!("{}/a?secret", origin.target()));
        assert_eq!(client.head().status, 200);
        if want.is_some() {
            client.rest();
        }
        let port = origin.port;
        origin.end();
        let lines = LINES.lock().unwrap();
        match want {
            None => assert!(lines.is_empty(), "{lines:?}"),
            Some(cause) => {
                let [line] = &lines[..] else { panic!("{cause}: {lines:?}") };
                assert!(line.contains(cause) && line.contains(&format!("127.0.0.1:{port}")), "{line}");
                assert!(line.contains("duration=") && !line.contains("secret"), "{line}");
            }
        }
    }

    // Text of a FastCGI application on STDERR after its response is logged, too.
    LINES.lock().unwrap().clear();
    let origin = Origin::with(vec![Box::new(|peer: &mut OriginConnection| {
        // Up to the end of STDIN.
        let mut header = peer.exactly(8);
        while header[..6] != [1, 5, 0, 1, 0, 0] {
            peer.exactly(usize::from(header[5]) + usize::from(header[6]));
            header = peer.exactly(8);
        }
        peer.send(b"\x01\x06\0\x01\0\x29\0\0Status: 500 Failed\r\nContent-Length: 0\r\n\r\n");
        peer.send(b"\x01\x07\0\x01\0\x04\0\0late");
        peer.send(b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0");
        peer.end();
    }) as Deed]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.fastcgi = Some(FastCgi { captures_stderr: true });
    });
    let mut client = server.client();
    client.send_request(&origin.target());
    assert_eq!(client.head().status, 500);
    origin.end();
    assert!(
        matches!(&LINES.lock().unwrap()[..], [line] if line.contains("text=\"late\"")),
        "{:?}",
        LINES.lock().unwrap()
    );

    // A client's disconnect is not an error of the upstream.
    LINES.lock().unwrap().clear();
    let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
        sized(peer);
        peer.rest();
    }) as Deed]);
    let mut client = server.client();
    client.send_request(&origin.target());
    assert_eq!(client.head().status, 200);
    client.reset();
    origin.end();
    assert!(LINES.lock().unwrap().is_empty());
}
