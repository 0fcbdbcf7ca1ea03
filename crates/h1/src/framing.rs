//! Message framing, for both roles: where the content ends, and whether another message may follow.
//!
//! The functions are `inline(always)`. Each role calls them once. Without the attribute the compiler emits calls,
//! which cost 53 instructions per request; the server's whole `handle_bytes` takes about 2000.

use causeway_message::{BodyLength, FieldMap, names, syntax};

use crate::error::ProtocolError;

/// Returns the content's framing (RFC 9112 §6.1, §6.3). Rejects every combination that two parsers could read
/// differently.
#[inline(always)]
pub(crate) fn body_length(fields: &FieldMap, is_http_1_0: bool) -> Result<BodyLength, ProtocolError> {
    if let Some(coding) = fields.get(names::TRANSFER_ENCODING) {
        if fields.contains(names::CONTENT_LENGTH) {
            return Err(ProtocolError::LengthAndCoding);
        }
        if is_http_1_0 {
            return Err(ProtocolError::TransferEncoding);
        }
        if fields.is_repeated(names::TRANSFER_ENCODING) || !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(coding_fault(fields));
        }
        return Ok(BodyLength::Unknown);
    }
    match fields.content_length() {
        Ok(Some(bytes)) => Ok(BodyLength::Sized(bytes)),
        Ok(None) => Ok(BodyLength::None),
        Err(_) => Err(ProtocolError::ContentLength),
    }
}

// RFC 9112 §6.1: an unknown coding is 501; chunked that is repeated, not last or misspelt is 400.
#[cold]
fn coding_fault(fields: &FieldMap) -> ProtocolError {
    let is_foreign = |element: &[u8]| {
        let name = syntax::trim_ows(element.split(|&byte| byte == b';').next().unwrap_or_default());
        syntax::is_token(name) && !name.eq_ignore_ascii_case(b"chunked") && !name.eq_ignore_ascii_case(b"identity")
    };
    let foreign = fields.list(names::TRANSFER_ENCODING).any(is_foreign);
    if foreign { ProtocolError::TransferCoding } else { ProtocolError::TransferEncoding }
}

/// The options of the Connection field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    pub(crate) upgrade: bool,
}

impl ConnectionOptions {
    #[inline(always)]
    pub(crate) fn of(fields: &FieldMap) -> Self {
        let mut options = Self::default();
        if let Some(first) = fields.get(names::CONNECTION) {
            // RFC 9110 §7.6.1: options are case-insensitive. A single `keep-alive`, the common value, needs no list
            // parser.
            if first.eq_ignore_ascii_case(b"keep-alive") && !fields.is_repeated(names::CONNECTION) {
                options.keep_alive = true;
            } else {
                for option in fields.list(names::CONNECTION) {
                    options.close |= option.eq_ignore_ascii_case(b"close");
                    options.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    options.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                }
            }
        }
        options
    }

    /// Whether another message may follow on the connection (RFC 9112 §9.3).
    #[inline]
    pub(crate) fn is_persistent(self, is_http_1_0: bool) -> bool {
        !self.close && (!is_http_1_0 || self.keep_alive)
    }
}
