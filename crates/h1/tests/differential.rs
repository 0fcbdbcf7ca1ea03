//! The head parsers against httparse on random valid and hostile heads, and a reused head against a fresh one.
#![allow(missing_docs, reason = "a test")]

use causeway_h1::{Limits, Parsed, parse_head, parse_response_head};
use causeway_message::{Head, ResponseHead};
use proptest::prelude::*;

/// The pieces of random heads: valid ones, and typical parts of attacks.
const PIECES: &[&str] = &[
    "GET",
    "POST",
    "BREW",
    " ",
    "/",
    "/a?b=c",
    "*",
    "http://b.test/",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/1.2",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "Host",
    "host",
    ":",
    ": ",
    "a.test",
    "X-Own",
    "Content-Length",
    "Transfer-Encoding",
    "chunked",
    "5",
    "\t",
    "\0",
    "\u{7f}",
    "ü",
    "Cookie",
    "a-rather-long-value-that-fills-more-than-one-block-of-bytes",
    "Connection",
    "close",
    ",",
    ";",
    "\u{b}",
    "X",
    "200",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 404 \r\n",
    "\r\nSet-Cookie: a=b\r\n",
];

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::sample::select(PIECES).prop_map(|p| p.as_bytes().to_vec()),
        any::<u8>().prop_map(|o| vec![o])
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|all| all.concat())
}

/// A valid head with a few bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let name =
        proptest::sample::select(&["Host", "Accept", "X-Own", "cookie", "TE", "x-forwarded-for", "User-Agent"][..]);
    let field = (name, "[ -~]{0,40}").prop_map(|(name, value)| format!("{name}: {value}\r\n"));
    let good =
        proptest::collection::vec(field, 0..12).prop_map(|f| format!("GET /a/b?c HTTP/1.1\r\n{}\r\n", f.concat()));
    (good, proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3)).prop_map(
        |(good, changes)| {
            let mut bytes = good.into_bytes();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

/// As [`mutated`], for a response.
fn mutated_response() -> impl Strategy<Value = Vec<u8>> {
    (
        mutated(),
        "HTTP/1\\.[01] [0-9]{3}( [ -~]{0,12})?",
        proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    )
        .prop_map(|(request, line, change)| {
            let mut line = line.into_bytes();
            if let Some((at, byte)) = change {
                let at = at.index(line.len());
                line[at] = byte;
            }
            let fields = request.iter().position(|&byte| byte == b'\r').unwrap_or(request.len());
            [&line, &request[fields..]].concat()
        })
}

#[derive(Debug, PartialEq)]
struct ParsedHead {
    len: usize,
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
}

fn ours(input: &[u8], head: &mut Head) -> Option<ParsedHead> {
    match parse_head(input, &Limits::default(), head) {
        Ok(Parsed::Whole(len)) => Some(ParsedHead {
            len,
            method: head.method().as_str().to_owned(),
            target: head.target().as_str().to_owned(),
            fields: head.fields().iter().map(|(n, v)| (n.as_str().to_ascii_lowercase(), v.to_vec())).collect(),
        }),
        _ => None,
    }
}

fn theirs(input: &[u8]) -> Option<ParsedHead> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(len)) = request.parse(input) else { return None };
    Some(ParsedHead {
        len,
        method: request.method?.to_owned(),
        target: encoded(request.path?),
        fields: request.headers.iter().map(|h| (h.name.to_ascii_lowercase(), h.value.to_vec())).collect(),
    })
}

/// The target as `Head` stores it: raw bytes percent-encoded.
fn encoded(target: &str) -> String {
    let mut head = Head::new();
    match head.set_target(target) {
        Ok(()) => head.target().as_str().to_owned(),
        Err(_) => target.to_owned(),
    }
}

/// httparse is more lenient (a single LF, more target bytes). It must accept each head that this parser accepts, with
/// an equal result.
#[track_caller]
fn check(input: &[u8]) {
    let mut head = Head::new();
    if let Some(seen) = ours(input, &mut head) {
        // httparse accepts only minor versions 0 and 1, whereas RFC 9110 §2.5 requires any.
        let line = input.split(|&byte| byte == b'\r').next().unwrap_or_default();
        // httparse accepts only UTF-8 targets; this parser accepts any bytes above 0x7f.
        let is_text = std::str::from_utf8(line).is_ok();
        if is_text && (line.ends_with(b"HTTP/1.1") || line.ends_with(b"HTTP/1.0")) {
            assert_eq!(Some(seen), theirs(input), "{:?}", String::from_utf8_lossy(input));
        }
    } else if let Some(seen) = theirs(input) {
        // httparse alone may accept a head only for one of these reasons.
        let head = &input[..seen.len];
        let lenient = head.iter().enumerate().any(|(at, &o)| o == b'\n' && (at == 0 || head[at - 1] != b'\r'))
            || head.starts_with(b"\r\n")
            || causeway_message::Target::parse(&encoded(&seen.target)).is_err();
        assert!(lenient, "{:?}", String::from_utf8_lossy(input));
    }
}

#[derive(Debug, PartialEq)]
struct SeenResponse {
    len: usize,
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
}

fn our_response(input: &[u8], head: &mut ResponseHead) -> Option<SeenResponse> {
    match parse_response_head(input, &Limits::default(), head) {
        Ok(Parsed::Whole(len)) => Some(SeenResponse {
            len,
            status: head.status().as_u16(),
            fields: head.fields().iter().map(|(n, v)| (n.as_str().to_ascii_lowercase(), v.to_vec())).collect(),
        }),
        _ => None,
    }
}

fn their_response(input: &[u8]) -> Option<SeenResponse> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(len)) = response.parse(input) else { return None };
    Some(SeenResponse {
        len,
        status: response.code?,
        fields: response.headers.iter().map(|h| (h.name.to_ascii_lowercase(), h.value.to_vec())).collect(),
    })
}

#[track_caller]
fn check_response(input: &[u8]) {
    let mut head = ResponseHead::default();
    let text = String::from_utf8_lossy(input);
    if let Some(seen) = our_response(input, &mut head) {
        if input.starts_with(b"HTTP/1.1") || input.starts_with(b"HTTP/1.0") {
            assert_eq!(Some(seen), their_response(input), "{text:?}");
        }
    } else {
        assert!(head.fields().is_empty());
        if let Some(seen) = their_response(input) {
            let head = &input[..seen.len];
            let lenient = head.iter().enumerate().any(|(at, &o)| o == b'\n' && (at == 0 || head[at - 1] != b'\r'))
                || head.starts_with(b"\r\n")
                || seen.status < 100;
            assert!(lenient, "{text:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_pieces(input in pieces()) {
        check(&input);
    }

    #[test]
    fn heads_with_changed_bytes(input in mutated()) {
        check(&input);
    }

    /// A reused head behaves as a new one.
    #[test]
    fn a_reused_head_equals_a_new_one(a in prop_oneof![pieces(), mutated()], b in mutated()) {
        let (mut used, mut fresh) = (Head::new(), Head::new());
        ours(&a, &mut used);
        prop_assert_eq!(ours(&b, &mut used), ours(&b, &mut fresh));
        prop_assert_eq!(used.authority(), fresh.authority());
        prop_assert_eq!(used.bytes(), fresh.bytes());
        for (name, _) in fresh.fields().iter() {
            prop_assert_eq!(used.fields().get(name), fresh.fields().get(name));
            prop_assert!(used.fields().get_all(name).eq(fresh.fields().get_all(name)));
        }
    }

    #[test]
    fn random_pieces_of_a_response(input in pieces()) {
        check_response(&input);
        check_response(&[b"HTTP/1.1 200 OK\r\n", &input[..]].concat());
    }

    #[test]
    fn response_heads_with_changed_bytes(input in mutated_response()) {
        check_response(&input);
    }

    #[test]
    fn a_reused_response_head_equals_a_new_one(
        a in prop_oneof![pieces(), mutated_response()],
        b in prop_oneof![pieces(), mutated_response()],
    ) {
        let (mut used, mut fresh) = (ResponseHead::default(), ResponseHead::default());
        our_response(&a, &mut used);
        prop_assert_eq!(our_response(&b, &mut used), our_response(&b, &mut fresh));
        prop_assert_eq!(&used, &fresh);
        prop_assert_eq!(used.fields().bytes(), fresh.fields().bytes());
        for (name, _) in fresh.fields().iter() {
            prop_assert!(used.fields().get_all(name).eq(fresh.fields().get_all(name)));
        }
    }
}
