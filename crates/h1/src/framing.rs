//! What the fields of a head, of either role, say of where its content ends and whether another message may follow.
//!
//! Each role has one call of these. Left to the compiler they become functions, for 53 instructions a request more; a server's whole
//! `handle_octets` is some 2000.

use causeway_message::{BodyLength, FieldMap, names, octets};

use crate::fault::HeadFault;

/// What the framing fields say (RFC 9112 §6.1, §6.3). Whatever two parsers could read in two ways is refused.
#[inline(always)]
pub(crate) fn body_length(fields: &FieldMap, is_10: bool) -> Result<BodyLength, HeadFault> {
    if let Some(coding) = fields.get(names::TRANSFER_ENCODING) {
        if fields.contains(names::CONTENT_LENGTH) {
            return Err(HeadFault::LengthAndCoding);
        }
        if is_10 {
            return Err(HeadFault::TransferEncoding);
        }
        if fields.is_repeated(names::TRANSFER_ENCODING) || !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(coding_fault(fields));
        }
        return Ok(BodyLength::Unknown);
    }
    match fields.content_length() {
        Ok(Some(octets)) => Ok(BodyLength::Sized(octets)),
        Ok(None) => Ok(BodyLength::None),
        Err(_) => Err(HeadFault::ContentLength),
    }
}

// RFC 9112 §6.1: a coding that is not known is 501; chunked twice, not last, or misspelt is 400.
#[cold]
fn coding_fault(fields: &FieldMap) -> HeadFault {
    let is_foreign = |element: &[u8]| {
        let name = octets::trim_ows(element.split(|&octet| octet == b';').next().unwrap_or_default());
        octets::is_token(name) && !name.eq_ignore_ascii_case(b"chunked") && !name.eq_ignore_ascii_case(b"identity")
    };
    let foreign = fields.list(names::TRANSFER_ENCODING).any(is_foreign);
    if foreign { HeadFault::TransferCoding } else { HeadFault::TransferEncoding }
}

/// What the Connection field says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    close: bool,
    keep_alive: bool,
    pub(crate) upgrade: bool,
}

impl Options {
    #[inline(always)]
    pub(crate) fn of(fields: &FieldMap) -> Self {
        let mut options = Self::default();
        if let Some(first) = fields.get(names::CONNECTION) {
            // RFC 9110 §7.6.1: options are compared in any case.
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

    /// Whether another message may follow (RFC 9112 §9.3).
    #[inline]
    pub(crate) fn keep(self, is_10: bool) -> bool {
        !self.close && (!is_10 || self.keep_alive)
    }
}
