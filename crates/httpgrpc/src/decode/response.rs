//! The message `HTTPResponse`.

use causeway_message::{ResponseHead, StatusCode, names};

use super::Message;
use super::request::state_length;
use crate::body::Body;
use crate::error::DecodeError;
use crate::field_parser::FieldKind;
use crate::fields::{self, HeadBudget};
use crate::limits::Limits;

/// Field numbers.
pub(crate) mod field {
    pub(crate) const CODE: u32 = 1;
    pub(crate) const HEADERS: u32 = 2;
    pub(crate) const BODY: u32 = 3;
}

use field::{BODY, CODE, HEADERS};

/// A response. It has no fields of a connection. Content-Length is the length of the body. If the body is empty, the
/// received value stays, because the response may be one to HEAD (RFC 9110 §8.6).
#[derive(Debug, Default)]
pub struct Response {
    /// Status and fields.
    pub head: ResponseHead,
    /// The content.
    pub body: Body,
    has_status: bool,
}

impl Message for Response {
    fn kind(field: u32, limits: &Limits) -> Option<FieldKind> {
        Some(match field {
            CODE => FieldKind::Number,
            HEADERS => FieldKind::Text(limits.head_bytes_max, DecodeError::HeadTooLong),
            BODY => FieldKind::Content,
            _ => return None,
        })
    }

    fn number(&mut self, _: u32, number: u64) -> Result<(), DecodeError> {
        let status = status(number)?;
        // A unary call has one message, so a final response could not follow.
        if status.is_informational() {
            return Err(DecodeError::StatusCode);
        }
        self.head.set_status(status);
        self.has_status = true;
        Ok(())
    }

    fn text(&mut self, _: u32, bytes: &[u8], budget: &mut HeadBudget) -> Result<(), DecodeError> {
        fields::take(bytes, self.head.fields_mut(), budget)
    }

    fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    fn finish(&mut self) -> Result<(), DecodeError> {
        if !self.has_status {
            return Err(DecodeError::StatusCode);
        }
        let fields = self.head.fields_mut();
        if self.body.bytes() > 0 {
            state_length(fields, self.body.bytes());
        // An unusable length is dropped; the response itself is valid.
        } else if fields.content_length().is_err() {
            fields.remove(names::CONTENT_LENGTH);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.has_status = false;
    }

    fn release_memory(&mut self, bytes_max: usize) {
        self.head.shrink_to(bytes_max);
        self.body.release_memory(bytes_max);
    }
}

/// Converts an int32 to a status: protobuf truncates a number to its lowest 32 bits.
pub(crate) fn status(number: u64) -> Result<StatusCode, DecodeError> {
    let code = u16::try_from(number as u32).ok();
    code.and_then(StatusCode::new).ok_or(DecodeError::StatusCode)
}
