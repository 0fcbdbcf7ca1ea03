//! Encoding and parsing of heads, compared with httparse in one run: interleaved rounds, medians, and the ratio.
//!
//! For a request head, "ours" is the server's whole work: parse, intern names, index, copy into the caller's head,
//! then look up Host, Connection, Content-Length and one unknown name. "httparse" is the parse alone. For a response
//! head, "ours" is parse, index and copy.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use causeway_h1::{Client, ClientEvent, Limits, Server, parse_head, parse_response_head};
use causeway_message::{
    FieldName, FieldValue, Framing, Head, KnownName, ResponseHead, StatusCode, StreamId, WriteList, names,
};

const ROUNDS: usize = 401;
const TURNS: u32 = 1_000;

const SIX: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
    Accept: text/html,application/xhtml+xml\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n\r\n";

const BROWSER: &[u8] = b"GET /static/app/main.js?v=20261101 HTTP/1.1\r\nHost: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nReferer: https://www.example.com/\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=3f9a8c1d7b6e45029f1e; theme=dark; _ga=GA1.2.1234567890.1700000000; consent=yes\r\n\
    Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n\r\n";

/// A response of a typical application server.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: gunicorn\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: keep-alive\r\n\
    Content-Type: application/json\r\nContent-Length: 11\r\nVary: Accept, Cookie\r\nX-Frame-Options: DENY\r\n\
    Set-Cookie: csrftoken=8d1f2a6b; Path=/; SameSite=Lax\r\n\r\n";

fn ours(input: &[u8], limits: &Limits, head: &mut Head, unknown: &FieldName) {
    black_box(parse_head(black_box(input), limits, head).is_ok());
    let fields = head.fields();
    black_box(fields.get(names::HOST));
    black_box(fields.get(names::CONNECTION));
    black_box(fields.get(names::CONTENT_LENGTH));
    black_box(fields.get(unknown));
}

fn theirs(input: &[u8]) {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; 64];
    let mut request = httparse::Request::new(&mut []);
    black_box(request.parse_with_uninit_headers(black_box(input), &mut fields).is_ok());
    black_box(request.headers.len());
}

fn timed(mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(|_| run());
    start.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn heads(what: &str, input: &[u8]) {
    let (limits, mut head) = (Limits::default(), Head::new());
    let unknown = FieldName::parse("X-Unheard-Of").expect("a token");
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(timed(|| ours(input, &limits, &mut head, &unknown)));
        b.push(timed(|| theirs(input)));
    }
    let ratio = median(a.iter().zip(&b).map(|(a, b)| a / b).collect());
    let (a, b) = (median(a), median(b));
    println!("{what:<28} {} bytes: ours {a:6.1} ns, httparse {b:6.1} ns, ratio {ratio:.2}", input.len());
}

/// Measures a response head, without the lookups that the client does.
fn answers(what: &str, input: &[u8]) {
    let (limits, mut head) = (Limits::default(), ResponseHead::default());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(timed(|| {
            black_box(parse_response_head(black_box(input), &limits, &mut head).is_ok());
        }));
        b.push(timed(|| {
            let mut fields = [httparse::EMPTY_HEADER; 64];
            let mut response = httparse::Response::new(&mut fields);
            black_box(response.parse(black_box(input)).is_ok());
            black_box(response.headers.len());
        }));
    }
    let ratio = median(a.iter().zip(&b).map(|(a, b)| a / b).collect());
    let (a, b) = (median(a), median(b));
    println!("{what:<28} {} bytes: ours {a:6.1} ns, httparse {b:6.1} ns, ratio {ratio:.2}", input.len());
}

/// Measures a whole exchange in the client's role: send a browser's head, receive a response with eleven bytes of
/// content.
fn asking() {
    let (limits, mut request) = (Rc::new(Limits::default()), Head::new());
    assert!(parse_head(BROWSER, &limits, &mut request).is_ok());
    let mut client = Client::new(limits);
    let (mut head, mut out) = (ResponseHead::default(), WriteList::new());
    let answer = [ANSWER, b"hello world"].concat();
    let (mut whole, mut encode) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        whole.push(timed(|| {
            client.open(black_box(&request), Framing::Empty, &mut out).expect("room");
            out.clear();
            let mut rest = black_box(&answer[..]);
            loop {
                let handled = client.handle_bytes(rest, &mut head);
                rest = &rest[handled.consumed..];
                if let Some(ClientEvent::End { .. }) = handled.event {
                    break;
                }
            }
        }));
        assert_eq!(client.room(), 1);
        let mut asking: Vec<Client> = (0..TURNS).map(|_| Client::new(Rc::new(Limits::default()))).collect();
        let mut asking = asking.iter_mut();
        encode.push(timed(|| {
            let client = asking.next().expect("one a turn");
            client.open(black_box(&request), Framing::Empty, &mut out).expect("room");
            black_box(&mut out).clear();
        }));
    }
    println!("exchange of a client, browser's head out      {:6.1} ns", median(whole));
    println!("browser's head, encoded                       {:6.1} ns", median(encode));
}

/// Measures a whole exchange on one connection: receive a request head and its end, send a response head of three
/// fields.
fn exchange() {
    const VALUES: [(KnownName, FieldValue<'static>); 3] = [
        (names::CONTENT_TYPE, FieldValue::from_static("text/plain; charset=utf-8")),
        (names::SERVER, FieldValue::from_static("Causeway")),
        (names::CACHE_CONTROL, FieldValue::from_static("no-store")),
    ];
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    let mut server = Server::new(Rc::new(Limits::default()));
    let (mut head, mut out) = (Head::new(), WriteList::new());
    let mut response = ResponseHead::new(StatusCode::OK);
    let (mut whole, mut encode, mut stream) = (Vec::new(), Vec::new(), 0);
    let build = |response: &mut ResponseHead| {
        response.clear();
        VALUES.iter().for_each(|(name, value)| response.set(*name, *value));
    };
    for _ in 0..ROUNDS {
        whole.push(timed(|| {
            let handled = server.handle_bytes(black_box(SIX), &mut head);
            black_box(server.handle_bytes(&SIX[handled.consumed..], &mut head));
            stream += 1;
            build(&mut response);
            server.send_head(StreamId(stream), black_box(&response), Framing::Sized(0), date, &mut out);
            server.finish(StreamId(stream), &mut out);
            out.clear();
        }));
        assert!(server.is_idle() && !server.should_close());
        // Prepare servers that all have a response pending, so that only the response is timed.
        let mut waiting: Vec<Server> = (0..TURNS).map(|_| Server::new(Rc::new(Limits::default()))).collect();
        for server in &mut waiting {
            server.handle_bytes(SIX, &mut head);
        }
        let mut waiting = waiting.iter_mut();
        encode.push(timed(|| {
            let server = waiting.next().expect("one a turn");
            build(&mut response);
            server.send_head(StreamId(1), black_box(&response), Framing::Sized(5), date, &mut out);
            black_box(&mut out).clear();
        }));
    }
    println!("exchange, six lines in, three fields out      {:6.1} ns", median(whole));
    println!("response head of three fields, built, encoded {:6.1} ns", median(encode));
}

fn main() {
    heads("six lines (Crystal PR 8002)", SIX);
    heads("browser, 12 fields", BROWSER);
    exchange();
    answers("answer, 8 fields", ANSWER);
    asking();
}
