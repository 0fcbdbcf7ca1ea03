//! The status of a call: `grpc-status` and `grpc-message`.

use std::borrow::Cow;
use std::fmt;

use causeway_message::path::{hex, push_escape};
use causeway_message::{FieldMap, FieldValue, StatusCode, names};

/// The trailer that contains a `google.rpc.Status`, in base64.
pub const DETAILS: &str = "grpc-status-details-bin";

/// A status code: one of gRPC's, or an HTTP status if a response was sent as the call's error. It may be any 32-bit
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(u32);

macro_rules! codes {
    ($($number:literal $name:ident $http:literal;)+) => {
        impl Code {
            $(#[doc = concat!(stringify!($number), " ", stringify!($name))]
            pub const $name: Self = Self($number);)+

            /// Returns the corresponding HTTP status. A code that is a final HTTP status maps to itself, gRPC's codes
            /// as in `google/rpc/code.proto`, any other code to 500.
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
    /// Creates a code from its number.
    #[must_use]
    pub const fn new(code: u32) -> Self {
        Self(code)
    }

    /// Returns the number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// Returns the code for an HTTP response that is sent as the call's error, as dskit's servers do: its status.
    #[must_use]
    pub const fn of_response(status: StatusCode) -> Self {
        Self(status.as_u16() as u32)
    }

    /// Returns a client's code for an HTTP response that is not gRPC's (gRPC's `http-grpc-status-mapping.md`).
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

/// The status of a call, without details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The message, for people.
    pub message: Cow<'static, str>,
}

impl Status {
    /// Success, without a message.
    pub const OK: Self = Self { code: Code::OK, message: Cow::Borrowed("") };

    /// Creates a status.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// Sets the status in the trailers of a call, or in the head of a response without content. Overwrites `scratch`.
    /// Keeps existing details.
    pub fn put(&self, trailers: &mut FieldMap, scratch: &mut Vec<u8>) {
        put_status(self.code, &self.message, trailers, scratch);
    }

    /// Reads the status from the trailers of a call. A missing or invalid status is UNKNOWN.
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

/// Reads the code; the error is a message for the status.
pub(crate) fn code_of(trailers: &FieldMap) -> Result<Code, &'static str> {
    let value = trailers.get(names::GRPC_STATUS).ok_or("the call ended without grpc-status")?;
    let number = causeway_message::syntax::parse_number(value).and_then(|number| u32::try_from(number).ok());
    match number {
        // Two values could be read differently by different recipients.
        Some(number) if !trailers.is_repeated(names::GRPC_STATUS) => Ok(Code(number)),
        _ => Err("grpc-status is not a number, or occurs more than once"),
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

/// Escapes a message as in gRPC over HTTP/2, "Percent-Encoded": all bytes other than printable ASCII, and '%'. Also
/// escapes spaces at the ends, which a field value would lose.
fn encode_message(message: &str, out: &mut Vec<u8>) {
    let inner = message.trim_matches(' ');
    let from = message.len() - message.trim_start_matches(' ').len();
    let inner = from..from + inner.len();
    for (at, byte) in message.bytes().enumerate() {
        match byte {
            // Escaped below.
            b'%' | ..b' ' | 0x7f.. => {}
            b' ' if !inner.contains(&at) => {}
            _ => {
                out.push(byte);
                continue;
            }
        }
        push_escape(byte, out);
    }
}

/// Decodes a message. As specified, an invalid escape stays as it is, and invalid UTF-8 is replaced, so that no
/// message is lost.
fn decode_message(value: &[u8]) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let escaped = match behind {
            [high, low, ..] if *byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = &behind[2..];
            }
            None => out.push(*byte),
        }
    }
    String::from_utf8(out).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // gRPC over HTTP/2, "Responses": Status-Message is percent-encoded.
    #[test]
    fn messages_round_trip_as_field_values() {
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
    fn the_status_in_trailers() {
        let (mut trailers, mut scratch) = (FieldMap::new(), Vec::new());
        assert_eq!(Status::of(&trailers).code, Code::UNKNOWN);
        let status = Status::new(Code::NOT_FOUND, "no such\nthing");
        status.put(&mut trailers, &mut scratch);
        assert_eq!(Status::of(&trailers), status);
        Status::OK.put(&mut trailers, &mut scratch);
        assert_eq!((Status::of(&trailers), trailers.len()), (Status::OK, 1), "the old status is replaced");
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
