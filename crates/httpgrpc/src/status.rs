//! How a call ends: `grpc-status` and `grpc-message`.

use std::borrow::Cow;
use std::fmt;

use causeway_message::path::hex;
use causeway_message::{FieldMap, FieldValue, StatusCode, names};

/// The trailer that holds a `google.rpc.Status`, in base64.
pub const DETAILS: &str = "grpc-status-details-bin";

/// What a call ends with: gRPC's numbers, or an HTTP status where a response came as an error. Any 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(u32);

macro_rules! codes {
    ($($number:literal $name:ident $http:literal;)+) => {
        impl Code {
            $(#[doc = concat!(stringify!($number), " ", stringify!($name))]
            pub const $name: Self = Self($number);)+

            /// The HTTP status that says the same. A code that is an HTTP status is that; 500 for any other that is unknown. For gRPC's own, the mapping
            /// of `google/rpc/code.proto`.
            #[must_use]
            pub fn http_status(self) -> StatusCode {
                let code = match self.0 {
                    $($number => $http,)+
                    code => u16::try_from(code).unwrap_or(500),
                };
                match StatusCode::new(code) {
                    Some(status) if !status.is_informational() => status,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                }
            }
        }
    };
}

codes! {
    0 OK 200;
    1 CANCELLED 499;
    2 UNKNOWN 500;
    3 INVALID_ARGUMENT 400;
    4 DEADLINE_EXCEEDED 504;
    5 NOT_FOUND 404;
    6 ALREADY_EXISTS 409;
    7 PERMISSION_DENIED 403;
    8 RESOURCE_EXHAUSTED 429;
    9 FAILED_PRECONDITION 400;
    10 ABORTED 409;
    11 OUT_OF_RANGE 400;
    12 UNIMPLEMENTED 501;
    13 INTERNAL 500;
    14 UNAVAILABLE 503;
    15 DATA_LOSS 500;
    16 UNAUTHENTICATED 401;
}

impl Code {
    /// A code by its number.
    #[must_use]
    pub const fn new(code: u32) -> Self {
        Self(code)
    }

    /// Its number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// An HTTP status as a code, as dskit's servers send it.
    #[must_use]
    pub const fn of_response(status: StatusCode) -> Self {
        Self(status.as_u16() as u32)
    }

    /// What a client makes of an answer that is not gRPC's (gRPC's `http-grpc-status-mapping.md`).
    #[must_use]
    pub const fn of_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502 | 503 | 504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }
}

/// How a call ended, in full but for the details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// What is to be said about it; for people.
    pub message: Cow<'static, str>,
}

impl Status {
    /// All went well.
    pub const OK: Self = Self { code: Code::OK, message: Cow::Borrowed("") };

    /// A status.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// Sets the trailers that end a call: in a section of their own behind the content, or in the head of an answer without content. `scratch` is
    /// cleared and used. Details that stand there are left.
    pub fn put(&self, trailers: &mut FieldMap, scratch: &mut Vec<u8>) {
        put_status(self.code, &self.message, trailers, scratch);
    }

    /// The status of a call that ended with these trailers. One that is missing, or none, is UNKNOWN.
    #[must_use]
    pub fn of(trailers: &FieldMap) -> Self {
        match code_of(trailers) {
            Ok(code) => {
                let message = trailers.get(names::GRPC_MESSAGE).map(decode_message).unwrap_or_default();
                Self::new(code, message)
            }
            Err(message) => Self::new(Code::UNKNOWN, message),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grpc-status {}: {}", self.code.0, self.message)
    }
}

impl std::error::Error for Status {}

/// The code; where there is none, what is wrong.
pub(crate) fn code_of(trailers: &FieldMap) -> Result<Code, &'static str> {
    let value = trailers.get(names::GRPC_STATUS).ok_or("the call ended without grpc-status")?;
    let number = causeway_message::octets::parse_number(value).and_then(|number| u32::try_from(number).ok());
    match number {
        Some(number) if !trailers.is_repeated(names::GRPC_STATUS) => Ok(Code(number)),
        _ => Err("grpc-status is no number, or there is more than one"),
    }
}

pub(crate) fn put_status(code: Code, message: &str, trailers: &mut FieldMap, scratch: &mut Vec<u8>) {
    trailers.insert_number(names::GRPC_STATUS, u64::from(code.0));
    if message.is_empty() {
        trailers.remove(names::GRPC_MESSAGE);
        return;
    }
    scratch.clear();
    encode_message(message, scratch);
    let value = FieldValue::parse(scratch).expect("an encoded message is a field value");
    trailers.insert(names::GRPC_MESSAGE, value);
}

/// gRPC over HTTP/2, "Percent-Encoded": what is not printable ASCII, and '%', is escaped. So are spaces at the ends, which a field value would
/// lose.
fn encode_message(message: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let inner = message.trim_matches(' ');
    let from = message.len() - message.trim_start_matches(' ').len();
    let inner = from..from + inner.len();
    for (at, octet) in message.bytes().enumerate() {
        match octet {
            b'%' | ..b' ' | 0x7f.. => {}
            b' ' if !inner.contains(&at) => {}
            _ => {
                out.push(octet);
                continue;
            }
        }
        out.extend_from_slice(&[b'%', DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
    }
}

/// The specification: a broken escape stays as it is, and so that a message is never lost, what is no UTF-8 is replaced.
fn decode_message(value: &[u8]) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [octet, behind @ ..] = rest {
        rest = behind;
        let escaped = match behind {
            [high, low, ..] if *octet == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = &behind[2..];
            }
            None => out.push(*octet),
        }
    }
    String::from_utf8(out).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // gRPC over HTTP/2, "Responses": Status-Message is percent-encoded.
    #[test]
    fn messages_survive_as_field_values() {
        for (message, wire) in [
            ("", ""),
            ("plain", "plain"),
            ("100%", "100%25"),
            ("a\r\nb", "a%0D%0Ab"),
            ("ünwell ☠", "%C3%BCnwell %E2%98%A0"),
            (" a b ", "%20a b%20"),
            ("  ", "%20%20"),
            ("~\u{7f}\t", "~%7F%09"),
        ] {
            let mut out = Vec::new();
            encode_message(message, &mut out);
            assert_eq!(std::str::from_utf8(&out), Ok(wire), "{message:?}");
            assert_eq!(decode_message(&out), message);
            assert!(FieldValue::parse(&out).is_some());
        }
        for (wire, message) in [("%", "%"), ("%4", "%4"), ("%zz%41", "%zzA"), ("%c3%bc", "ü"), ("%FF", "\u{fffd}")] {
            assert_eq!(decode_message(wire.as_bytes()), message, "{wire}");
        }
    }

    #[test]
    fn trailers_say_how_a_call_ended() {
        let (mut trailers, mut scratch) = (FieldMap::new(), Vec::new());
        assert_eq!(Status::of(&trailers).code, Code::UNKNOWN);
        let status = Status::new(Code::NOT_FOUND, "no such\nthing");
        status.put(&mut trailers, &mut scratch);
        assert_eq!(Status::of(&trailers), status);
        Status::OK.put(&mut trailers, &mut scratch);
        assert_eq!((Status::of(&trailers), trailers.len()), (Status::OK, 1), "what stood there is replaced");
        for bad in ["", "x", "-1", "4294967296", "1 "] {
            trailers.clear();
            trailers.push_known(names::GRPC_STATUS, bad.as_bytes());
            assert_eq!(Status::of(&trailers).code, Code::UNKNOWN, "{bad:?}");
        }
        trailers.clear();
        trailers.push_known(names::GRPC_STATUS, b"0");
        trailers.push_known(names::GRPC_STATUS, b"0");
        assert_eq!(Status::of(&trailers).code, Code::UNKNOWN, "twice");
    }

    #[test]
    fn codes_and_statuses_of_http() {
        for (code, want) in
            [(0, 200), (4, 504), (14, 503), (17, 500), (99, 500), (101, 500), (404, 404), (503, 503), (u32::MAX, 500)]
        {
            assert_eq!(Code::new(code).http_status().as_u16(), want, "{code}");
        }
        assert_eq!(Code::of_http(StatusCode::BAD_GATEWAY), Code::UNAVAILABLE);
        assert_eq!(Code::of_http(StatusCode::OK), Code::UNKNOWN);
        assert_eq!(Code::of_response(StatusCode::BAD_GATEWAY).as_u32(), 502);
    }
}
