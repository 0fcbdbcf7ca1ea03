//! A response as a call's error, as dskit's servers send responses with 5xx: the code is the HTTP status, and the
//! details contain the response, in a `google.rpc.Status` with one `google.protobuf.Any`.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use causeway_message::{Chunk, FieldMap, FieldValue, NameRef, StatusCode};

use crate::body::Blocks;
use crate::decode::ResponseDecoder;
use crate::encode::put_response;
use crate::error::TooLong;
use crate::status::{Code, DETAILS, code_of, put_status};
use crate::wire::{Fields, Value, field_len, put_bytes, put_len, put_number, put_some};

/// A response field in which a handler sets the error's message; by default that is the body.
pub const ERROR_MESSAGE: &str = "X-ErrorMessage";
/// A response field in which a handler requests that the error is not logged.
pub const DO_NOT_LOG_ERROR: &str = "X-DoNotLogError";

/// Bytes of an error's message, which is for people; the details contain the whole body.
const MESSAGE_BYTES_MAX: usize = 4096;
/// RFC 9113 §6.5.2: the cost of a field in addition to its bytes.
const FIELD_COST: usize = 32;

const TYPE_URL: &[u8] = b"type.googleapis.com/httpgrpc.HTTPResponse";
const TYPE_NAME: &[u8] = b"httpgrpc.HTTPResponse";

/// gRPC over HTTP/2, "Binary headers": send without padding, accept with and without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

mod status_field {
    pub(super) const CODE: u32 = 1;
    pub(super) const MESSAGE: u32 = 2;
    pub(super) const DETAILS: u32 = 3;
}

mod any_field {
    pub(super) const TYPE_URL: u32 = 1;
    pub(super) const VALUE: u32 = 2;
}

/// Returns whether a field controls dskit's server, and is not sent on.
pub(crate) fn is_control(name: NameRef<'_>) -> bool {
    let NameRef::Other(name) = name else { return false };
    name.eq_ignore_ascii_case(ERROR_MESSAGE) || name.eq_ignore_ascii_case(DO_NOT_LOG_ERROR)
}

/// Returns whether dskit's server sends this status as an error of the call.
#[must_use]
pub const fn is_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500..=599)
}

/// Encodes responses as errors. It is meant to be reused, for its memory.
#[derive(Debug, Default)]
pub struct ErrorEncoder {
    response: Vec<u8>,
    status: Vec<u8>,
}

impl ErrorEncoder {
    /// Creates an encoder; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { response: Vec::new(), status: Vec::new() }
    }

    /// Sets the trailers of a call that ends with this response: status, message and details. The message is the
    /// value of [`ERROR_MESSAGE`], or else the first 4096 bytes of the body.
    ///
    /// # Errors
    /// [`TooLong`] if the trailers would exceed `trailers_bytes_max`, counted as in HTTP/2; no trailer is set then.
    /// The caller may send the response as a message instead, which dskit's clients accept too.
    pub fn encode(
        &mut self,
        status: StatusCode,
        fields: &FieldMap,
        body: &[Chunk],
        trailers_bytes_max: usize,
        trailers: &mut FieldMap,
    ) -> Result<(), TooLong> {
        let body_bytes: usize = body.iter().map(Chunk::len).sum();
        // An early exit: the body is in the details, so it must fit, and is not copied if it cannot.
        if body_bytes > trailers_bytes_max {
            return Err(TooLong);
        }
        let Self { response, status: out } = self;
        response.clear();
        put_response(status, fields, body_bytes as u64, response);
        let body_at = response.len();
        body.iter().for_each(|chunk| response.extend_from_slice(chunk.as_slice()));
        let message = match fields.get(NameRef::Other(ERROR_MESSAGE)) {
            None | Some(b"") => &response[body_at..],
            Some(message) => message,
        };
        let message = text(message);
        let code = Code::of_response(status);

        out.clear();
        put_number(status_field::CODE, u64::from(code.as_u32()), out);
        put_some(status_field::MESSAGE, message.as_bytes(), out);
        let any = field_len(TYPE_URL.len() as u64) + field_len(response.len() as u64);
        put_len(status_field::DETAILS, any, out);
        put_bytes(any_field::TYPE_URL, TYPE_URL, out);
        put_bytes(any_field::VALUE, response, out);

        let details = out.len().div_ceil(3) * 4;
        // Every byte of the message may need three as an escape.
        let at_most = details + 3 * message.len() + DETAILS.len() + "grpc-statusgrpc-message599".len() + 3 * FIELD_COST;
        if at_most > trailers_bytes_max {
            return Err(TooLong);
        }
        // `message` may borrow from `response`, which becomes the output of base64.
        let message = message.into_owned();
        response.resize(details, 0);
        let len = BASE64.encode_slice(&*out, response).map_err(|_| TooLong)?;
        let details = FieldValue::parse(&response[..len]).expect("base64 is a field value");
        put_status(code, &message, trailers, out);
        trailers.insert(NameRef::Other(DETAILS), details);
        Ok(())
    }

    /// Frees memory beyond `bytes_max`.
    pub fn release_memory(&mut self, bytes_max: usize) {
        for buffer in [&mut self.response, &mut self.status] {
            buffer.clear();
            buffer.shrink_to(bytes_max / 2);
        }
    }
}

/// Returns the start of a message as text; a protobuf `string` must be UTF-8.
fn text(message: &[u8]) -> std::borrow::Cow<'_, str> {
    let mut first = &message[..message.len().min(MESSAGE_BYTES_MAX)];
    if first.len() < message.len()
        && let Err(wrong) = std::str::from_utf8(first)
        && wrong.error_len().is_none()
    {
        // The cut split a character: drop its first bytes.
        first = &first[..wrong.valid_up_to()];
    }
    String::from_utf8_lossy(first)
}

/// Decodes the response in the trailers of a call, as dskit's servers send it. Returns whether there is one, and if
/// so leaves it in `decoder`. Otherwise `decoder` is empty, and [`Status::of`](crate::Status::of) has the call's
/// status. Allocates.
pub fn decode_error(trailers: &FieldMap, decoder: &mut ResponseDecoder, blocks: Blocks<'_>) -> bool {
    let response = response_in(trailers);
    let is_response = response.is_some_and(|response| decoder.read_bare(response, blocks).is_ok());
    if !is_response {
        decoder.clear();
    }
    is_response
}

fn response_in(trailers: &FieldMap) -> Option<Chunk> {
    let mut values = trailers.get_all(NameRef::Other(DETAILS));
    // As in Go, details that occur twice are ignored, as are details with another code than the status.
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let status = BASE64.decode(value).ok()?;
    let (mut code, mut details) = (0, None);
    for part in Fields::new(&status) {
        match part.ok()? {
            (status_field::CODE, Value::Number(number)) => code = number as u32,
            (status_field::DETAILS, Value::Bytes(_)) if details.is_some() => return None,
            (status_field::DETAILS, Value::Bytes(any)) => details = Some(any),
            (status_field::MESSAGE, Value::Bytes(_)) => {}
            (status_field::CODE | status_field::MESSAGE | status_field::DETAILS, _) => return None,
            _ => {}
        }
    }
    // The details must agree with the status, or they describe another call.
    if code_of(trailers) != Ok(Code::new(code)) {
        return None;
    }
    let (mut type_url, mut value): (&[u8], &[u8]) = (b"", b"");
    for part in Fields::new(details?) {
        match part.ok()? {
            (any_field::TYPE_URL, Value::Bytes(bytes)) => type_url = bytes,
            (any_field::VALUE, Value::Bytes(bytes)) => value = bytes,
            (any_field::TYPE_URL | any_field::VALUE, _) => return None,
            _ => {}
        }
    }
    // google.protobuf.Any: the type's name follows the last slash.
    let name = type_url.rsplit(|&byte| byte == b'/').next();
    if name != Some(TYPE_NAME) {
        return None;
    }
    if value.is_empty() {
        return Some(Chunk::default());
    }
    // `value` is a slice of `status`: return it as a range, without a copy.
    let from = value.as_ptr().addr() - status.as_ptr().addr();
    let range = from..from + value.len();
    Some(Chunk::from(status).slice(range))
}
