//! A table of exchanges in HTTP's own words, and its runs over HTTP/1; `http2` runs the same.

use causeway_pipeline::Ending;

use crate::support::client::Asked;
use crate::support::handlers::collected;
use crate::support::server::Errors;
use crate::support::{Answer, Client, Server, octets};

/// A request's content.
#[derive(Clone)]
pub(super) enum Content {
    None,
    Sized(Vec<u8>),
    /// Pieces, then trailers.
    Pieces(Vec<Vec<u8>>, &'static [(&'static str, &'static str)]),
}

/// What becomes of the connection, where it is this exchange's alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Kept,
    Closed,
}

pub(super) struct Exchange {
    pub(super) target: &'static str,
    pub(super) content: Content,
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) after: After,
}

fn get(target: &'static str, status: u16, body: impl Into<Vec<u8>>) -> Exchange {
    Exchange { target, content: Content::None, status, body: body.into(), after: After::Kept }
}

fn post(target: &'static str, content: Content, status: u16, body: impl Into<Vec<u8>>) -> Exchange {
    Exchange { target, content, status, body: body.into(), after: After::Kept }
}

fn ends(exchange: Exchange) -> Exchange {
    Exchange { after: After::Closed, ..exchange }
}

/// Every handler, the content that suits it, and what comes back. Those that end their connection come last.
pub(super) fn table() -> Vec<Exchange> {
    let some = || Content::Sized(octets(40_000));
    let file = octets(300_000);
    let parts = [b"--head--", &file[10..20], b"--between--", &file[100_000..]].concat();
    let pieces = || Content::Pieces(vec![octets(10), octets(5_000), octets(1)], &[("x-sum", "17")]);
    let pieced = || [octets(10), octets(5_000), octets(1)].concat();
    vec![
        get("/fixed", 200, "fixed"),
        get("/octets/0", 200, ""),
        get("/octets/1", 200, octets(1)),
        get("/octets/300000", 200, octets(300_000)),
        get("/chunks/300000", 200, octets(300_000)),
        get("/chunk/1025", 200, octets(1025)),
        get("/chunk/200000", 200, octets(200_000)),
        get("/empty/200", 200, ""),
        get("/empty/204", 204, ""),
        get("/empty/304", 304, ""),
        get("/sleep/1", 200, "slept"),
        get("/yield", 200, "yielded"),
        get("/chain/1", 200, "chained"),
        get("/hints", 200, "hinted"),
        get("/background", 200, "begun"),
        get("/compute", 200, "blocked"),
        get("/burn/1000", 200, "burnt"),
        get("/file/big", 200, file.clone()),
        get("/parts/big", 200, parts),
        get("/fail/418", 418, ""),
        get("/nowhere", 404, ""),
        post("/fixed", some(), 200, "fixed"),
        post("/drop-body", some(), 200, "dropped"),
        post("/drop-body-later", some(), 200, "dropped"),
        post("/collect", some(), 200, collected(&octets(40_000))),
        post("/collect", pieces(), 200, collected(&pieced())),
        post("/collect", Content::Sized(Vec::new()), 200, collected(b"")),
        post("/collect", Content::None, 200, collected(b"")),
        post("/echo", some(), 200, octets(40_000)),
        post("/echo", pieces(), 200, pieced()),
        post("/fail/403", some(), 403, ""),
        ends(get("/panic-enter", 500, "")),
        ends(get("/panic-wait", 500, "")),
        ends(get("/panic-leave", 500, "")),
    ]
}

/// The request in HTTP/1's words. HTTP/1.0 has no chunks; it keeps a connection only where that is asked for.
fn encode(exchange: &Exchange, method: &str, version: &str) -> Vec<u8> {
    let mut out = format!("{method} {} {version}\r\nHost: test\r\n", exchange.target).into_bytes();
    if version == "HTTP/1.0" {
        out.extend(b"Connection: keep-alive\r\n");
    }
    match &exchange.content {
        Content::None => out.extend(b"\r\n"),
        Content::Sized(body) => {
            out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            out.extend(body);
        }
        Content::Pieces(pieces, trailers) => {
            out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            for piece in pieces {
                out.extend(format!("{:x}\r\n", piece.len()).as_bytes());
                out.extend(piece);
                out.extend(b"\r\n");
            }
            out.extend(b"0\r\n");
            for (name, value) in *trailers {
                out.extend(format!("{name}: {value}\r\n").as_bytes());
            }
            out.extend(b"\r\n");
        }
    }
    out
}

#[track_caller]
pub(super) fn check(exchange: &Exchange, answer: &Answer, method: &str) {
    let target = exchange.target;
    assert_eq!(answer.status, exchange.status, "{method} {target}");
    let body = if method == "HEAD" { &[][..] } else { &exchange.body };
    assert!(answer.body == body, "{method} {target}: {} octets, not {}", answer.body.len(), body.len());
    assert!(answer.field("Date").is_some() && answer.field("Server") == Some("Causeway"), "{target}: {answer:?}");
    if exchange.after == After::Closed && answer.version != "HTTP/2" {
        assert!(answer.closes(), "{target}: {:?}", answer.fields);
    }
    if let (Content::Pieces(_, trailers), "/echo", "POST") = (&exchange.content, target, method) {
        let trailers = trailers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(answer.trailers, trailers.collect::<Vec<_>>(), "{target}");
    }
}

#[track_caller]
pub(super) fn check_outcome(server: &Server, exchange: &Exchange, method: &str) {
    let outcome = server.probe.outcome(exchange.target);
    let target = exchange.target;
    let received = match &exchange.content {
        Content::None => 0,
        Content::Sized(body) => body.len(),
        Content::Pieces(pieces, _) => pieces.concat().len(),
    };
    let ending = if target.starts_with("/panic") { Ending::Panicked } else { Ending::Complete };
    assert_eq!(outcome.status.map(|status| status.as_u16()), Some(exchange.status), "{target}");
    assert_eq!((outcome.ending, outcome.received), (ending, received as u64), "{target}");
    let sent = if method == "HEAD" { 0 } else { exchange.body.len() };
    assert_eq!(outcome.sent, sent as u64, "{method} {target}");
}

pub(super) fn method(exchange: &Exchange) -> &'static str {
    if matches!(exchange.content, Content::None) { "GET" } else { "POST" }
}

pub(super) fn server() -> Server {
    let server = Server::start(|_| ());
    std::fs::write(server.files.join("big"), octets(300_000)).unwrap();
    server
}

#[test]
fn each_on_a_connection_of_its_own() {
    let server = server();
    for exchange in table() {
        let mut client = server.client();
        client.send(encode(&exchange, method(&exchange), "HTTP/1.1"));
        check(&exchange, &client.answer(), method(&exchange));
        check_outcome(&server, &exchange, method(&exchange));
        match exchange.after {
            After::Kept => assert_eq!(client.get("/burn/1").text(), "burnt", "behind {}", exchange.target),
            After::Closed => client.closed(),
        }
    }
}

#[test]
fn all_on_one_connection() {
    let server = server();
    let mut client = server.client();
    for exchange in table() {
        client.send(encode(&exchange, method(&exchange), "HTTP/1.1"));
        check(&exchange, &client.answer(), method(&exchange));
        if exchange.after == After::Closed {
            client.closed();
            client = server.client();
        }
    }
}

#[test]
fn pipelined() {
    let server = server();
    let (kept, _): (Vec<_>, Vec<_>) = table().into_iter().partition(|exchange| exchange.after == After::Kept);
    let mut client = server.client();
    let mut reader = Client::over(client.stream.try_clone().unwrap());
    let all: Vec<u8> = (0..3).flat_map(|_| kept.iter().flat_map(|e| encode(e, method(e), "HTTP/1.1"))).collect();
    let writer = std::thread::spawn(move || client.send(all));
    for exchange in (0..3).flat_map(|_| &kept) {
        check(exchange, &reader.answer(), method(exchange));
        check_outcome(&server, exchange, method(exchange));
    }
    writer.join().unwrap();
}

#[test]
fn two_hundred_small_ones_pipelined_and_half_closed() {
    let server = server();
    let mut client = server.client();
    client.send("GET /fixed HTTP/1.1\r\nHost: test\r\n\r\n".repeat(200));
    client.end();
    for _ in 0..200 {
        assert_eq!(client.answer().text(), "fixed");
    }
    client.closed();
}

#[test]
fn octet_by_octet() {
    let server = server();
    let mut client = server.client();
    for exchange in table().into_iter().filter(|exchange| exchange.after == After::Kept) {
        let whole = encode(&exchange, method(&exchange), "HTTP/1.1");
        // A body's octets need not all come alone; its head, its start and its end do.
        let alone = whole.len().min(600);
        for octet in &whole[..alone] {
            client.send([*octet]);
        }
        let tail = whole.len().saturating_sub(40).max(alone);
        client.send(&whole[alone..tail]);
        for octet in &whole[tail..] {
            client.send([*octet]);
        }
        check(&exchange, &client.answer(), method(&exchange));
    }
}

#[test]
fn asked_for_the_head_only() {
    let server = server();
    let mut client = server.client();
    for exchange in table().into_iter().filter(|exchange| matches!(exchange.content, Content::None)) {
        client.send(encode(&exchange, "HEAD", "HTTP/1.1"));
        check(&exchange, &client.answer_to(Asked::HeadOnly), "HEAD");
        check_outcome(&server, &exchange, "HEAD");
        if exchange.after == After::Closed {
            client.closed();
            client = server.client();
        }
    }
}

#[test]
fn in_http_1_0() {
    let server = server();
    for exchange in table().into_iter().filter(|exchange| !matches!(exchange.content, Content::Pieces(..))) {
        let mut client = server.client();
        client.send(encode(&exchange, method(&exchange), "HTTP/1.0"));
        let answer = client.answer();
        assert_eq!(answer.field("Transfer-Encoding"), None, "{}", exchange.target);
        assert!(answer.informs.is_empty(), "{}", exchange.target);
        check(&exchange, &answer, method(&exchange));
        let delimited = answer.field("Content-Length").is_some() || matches!(answer.status, 204 | 304);
        if exchange.after == After::Kept && delimited {
            assert_eq!(answer.field("Connection"), Some("keep-alive"), "{}", exchange.target);
            assert_eq!(client.get("/burn/1").text(), "burnt", "behind {}", exchange.target);
        } else {
            client.closed();
        }
    }
}

#[test]
fn with_error_routes() {
    let server = Server::start(|setup| setup.errors = Errors::Handled);
    let mut client = server.client();
    for (target, status) in [("/fail/404", 404), ("/fail/503", 503), ("/nowhere", 404), ("/fail/403", 403)] {
        let answer = client.get(target);
        assert_eq!((answer.status, answer.text()), (status, format!("fault {status}").as_str()), "{target}");
        assert_eq!(server.probe.outcome(target).ending, Ending::Complete);
    }
    client.post("/fail/403", &octets(1000));
    assert_eq!(client.answer().text(), "fault 403");
}

#[test]
fn hints_come_first() {
    let server = server();
    let answer = server.client().get("/hints");
    let link = ("Link".to_owned(), "</style.css>; rel=preload".to_owned());
    assert_eq!(answer.informs, [(103, vec![link])]);
}
