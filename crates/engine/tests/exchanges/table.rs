//! A table of exchanges, independent of the HTTP version, and its runs over HTTP/1; `http2` runs it over HTTP/2.

use causeway_pipeline::Ending;

use crate::support::client::RequestKind;
use crate::support::handlers::collected;
use crate::support::server::Errors;
use crate::support::{ClientResponse, TestClient, TestServer, bytes};

/// A request's content.
#[derive(Clone)]
pub(super) enum RequestContent {
    None,
    Sized(Vec<u8>),
    /// Pieces, then trailers.
    Pieces(Vec<Vec<u8>>, &'static [(&'static str, &'static str)]),
}

/// The state of an HTTP/1 connection after the exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Kept,
    Closed,
}

pub(super) struct ExchangeCase {
    pub(super) target: &'static str,
    pub(super) content: RequestContent,
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) after: After,
}

fn get(target: &'static str, status: u16, body: impl Into<Vec<u8>>) -> ExchangeCase {
    ExchangeCase { target, content: RequestContent::None, status, body: body.into(), after: After::Kept }
}

fn post(target: &'static str, content: RequestContent, status: u16, body: impl Into<Vec<u8>>) -> ExchangeCase {
    ExchangeCase { target, content, status, body: body.into(), after: After::Kept }
}

fn ends(exchange: ExchangeCase) -> ExchangeCase {
    ExchangeCase { after: After::Closed, ..exchange }
}

/// All handlers with suitable requests and the expected responses. Those that end their connection are last.
pub(super) fn table() -> Vec<ExchangeCase> {
    let some = || RequestContent::Sized(bytes(40_000));
    let file = bytes(300_000);
    let parts = [b"--head--", &file[10..20], b"--between--", &file[100_000..]].concat();
    let pieces = || RequestContent::Pieces(vec![bytes(10), bytes(5_000), bytes(1)], &[("x-sum", "17")]);
    let pieced = || [bytes(10), bytes(5_000), bytes(1)].concat();
    vec![
        get("/fixed", 200, "fixed"),
        get("/bytes/0", 200, ""),
        get("/bytes/1", 200, bytes(1)),
        get("/bytes/300000", 200, bytes(300_000)),
        get("/chunks/300000", 200, bytes(300_000)),
        get("/chunk/1025", 200, bytes(1025)),
        get("/chunk/200000", 200, bytes(200_000)),
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
        post("/collect", some(), 200, collected(&bytes(40_000))),
        post("/collect", pieces(), 200, collected(&pieced())),
        post("/collect", RequestContent::Sized(Vec::new()), 200, collected(b"")),
        post("/collect", RequestContent::None, 200, collected(b"")),
        post("/echo", some(), 200, bytes(40_000)),
        post("/echo", pieces(), 200, pieced()),
        post("/fail/403", some(), 403, ""),
        ends(get("/panic-enter", 500, "")),
        ends(get("/panic-wait", 500, "")),
        ends(get("/panic-leave", 500, "")),
    ]
}

/// Encodes the request as HTTP/1. HTTP/1.0 has no chunked coding, and keeps a connection only with `Connection:
/// keep-alive`.
fn encode(exchange: &ExchangeCase, method: &str, version: &str) -> Vec<u8> {
    let mut out = format!("{method} {} {version}\r\nHost: test\r\n", exchange.target).into_bytes();
    if version == "HTTP/1.0" {
        out.extend(b"Connection: keep-alive\r\n");
    }
    match &exchange.content {
        RequestContent::None => out.extend(b"\r\n"),
        RequestContent::Sized(body) => {
            out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            out.extend(body);
        }
        RequestContent::Pieces(pieces, trailers) => {
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
pub(super) fn check(exchange: &ExchangeCase, answer: &ClientResponse, method: &str) {
    let target = exchange.target;
    assert_eq!(answer.status, exchange.status, "{method} {target}");
    let body = if method == "HEAD" { &[][..] } else { &exchange.body };
    assert!(answer.body == body, "{method} {target}: {} bytes, not {}", answer.body.len(), body.len());
    assert!(answer.field("Date").is_some() && answer.field("Server") == Some("Causeway"), "{target}: {answer:?}");
    if exchange.after == After::Closed && answer.version != "HTTP/2" {
        assert!(answer.closes(), "{target}: {:?}", answer.fields);
    }
    if let (RequestContent::Pieces(_, trailers), "/echo", "POST") = (&exchange.content, target, method) {
        let trailers = trailers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(answer.trailers, trailers.collect::<Vec<_>>(), "{target}");
    }
}

#[track_caller]
pub(super) fn check_outcome(server: &TestServer, exchange: &ExchangeCase, method: &str) {
    let outcome = server.probe.outcome(exchange.target);
    let target = exchange.target;
    let received = match &exchange.content {
        RequestContent::None => 0,
        RequestContent::Sized(body) => body.len(),
        RequestContent::Pieces(pieces, _) => pieces.concat().len(),
    };
    let ending = if target.starts_with("/panic") { Ending::Panicked } else { Ending::Complete };
    assert_eq!(outcome.status.map(|status| status.as_u16()), Some(exchange.status), "{target}");
    assert_eq!((outcome.ending, outcome.received), (ending, received as u64), "{target}");
    let sent = if method == "HEAD" { 0 } else { exchange.body.len() };
    assert_eq!(outcome.sent, sent as u64, "{method} {target}");
}

pub(super) fn method(exchange: &ExchangeCase) -> &'static str {
    if matches!(exchange.content, RequestContent::None) { "GET" } else { "POST" }
}

pub(super) fn server() -> TestServer {
    let server = TestServer::start(|_| ());
    std::fs::write(server.files.join("big"), bytes(300_000)).unwrap();
    server
}

#[test]
fn each_exchange_on_its_own_connection() {
    let server = server();
    for exchange in table() {
        let mut client = server.client();
        client.send(encode(&exchange, method(&exchange), "HTTP/1.1"));
        check(&exchange, &client.answer(), method(&exchange));
        check_outcome(&server, &exchange, method(&exchange));
        match exchange.after {
            After::Kept => assert_eq!(client.get("/burn/1").text(), "burnt", "after {}", exchange.target),
            After::Closed => client.closed(),
        }
    }
}

#[test]
fn all_exchanges_on_one_connection() {
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
    let mut reader = TestClient::over(client.stream.try_clone().unwrap());
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
fn byte_by_byte() {
    let server = server();
    let mut client = server.client();
    for exchange in table().into_iter().filter(|exchange| exchange.after == After::Kept) {
        let whole = encode(&exchange, method(&exchange), "HTTP/1.1");
        // Only the head, the body's start and its end are sent byte by byte.
        let alone = whole.len().min(600);
        for byte in &whole[..alone] {
            client.send([*byte]);
        }
        let tail = whole.len().saturating_sub(40).max(alone);
        client.send(&whole[alone..tail]);
        for byte in &whole[tail..] {
            client.send([*byte]);
        }
        check(&exchange, &client.answer(), method(&exchange));
    }
}

#[test]
fn head_requests() {
    let server = server();
    let mut client = server.client();
    for exchange in table().into_iter().filter(|exchange| matches!(exchange.content, RequestContent::None)) {
        client.send(encode(&exchange, "HEAD", "HTTP/1.1"));
        check(&exchange, &client.answer_to(RequestKind::HeadOnly), "HEAD");
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
    for exchange in table().into_iter().filter(|exchange| !matches!(exchange.content, RequestContent::Pieces(..))) {
        let mut client = server.client();
        client.send(encode(&exchange, method(&exchange), "HTTP/1.0"));
        let answer = client.answer();
        assert_eq!(answer.field("Transfer-Encoding"), None, "{}", exchange.target);
        assert!(answer.interims.is_empty(), "{}", exchange.target);
        check(&exchange, &answer, method(&exchange));
        let delimited = answer.field("Content-Length").is_some() || matches!(answer.status, 204 | 304);
        if exchange.after == After::Kept && delimited {
            assert_eq!(answer.field("Connection"), Some("keep-alive"), "{}", exchange.target);
            assert_eq!(client.get("/burn/1").text(), "burnt", "after {}", exchange.target);
        } else {
            client.closed();
        }
    }
}

#[test]
fn with_error_routes() {
    let server = TestServer::start(|setup| setup.errors = Errors::Handled);
    let mut client = server.client();
    for (target, status) in [("/fail/404", 404), ("/fail/503", 503), ("/nowhere", 404), ("/fail/403", 403)] {
        let answer = client.get(target);
        assert_eq!((answer.status, answer.text()), (status, format!("fault {status}").as_str()), "{target}");
        assert_eq!(server.probe.outcome(target).ending, Ending::Complete);
    }
    client.post("/fail/403", &bytes(1000));
    assert_eq!(client.answer().text(), "fault 403");
}

#[test]
fn early_hints_precede_the_response() {
    let server = server();
    let answer = server.client().get("/hints");
    let link = ("Link".to_owned(), "</style.css>; rel=preload".to_owned());
    assert_eq!(answer.interims, [(103, vec![link])]);
}
