//! `HTTPResponse`.

use causeway_message::{ResponseHead, StatusCode, names};

use super::Message;
use super::request::state_length;
use crate::body::Body;
use crate::fault::DecodeFault;
use crate::fields::{self, Room};
use crate::limits::Limits;
use crate::walk::Kind;

/// The fields' numbers.
pub(crate) mod field {
    pub(crate) const CODE: u8 = 1;
    pub(crate) const HEADERS: u8 = 2;
    pub(crate) const BODY: u8 = 3;
}

const CODE: u32 = field::CODE as u32;
const HEADERS: u32 = field::HEADERS as u32;
const BODY: u32 = field::BODY as u32;

/// A response. Fields of a connection are not there, and Content-Length says how long the body is; where there is no body, it
/// stays as it was sent, since the response may be one to HEAD (RFC 9110 §8.6).
#[derive(Debug, Default)]
pub struct Response {
    /// Status and fields.
    pub head: ResponseHead,
    /// The content.
    pub body: Body,
    has_status: bool,
}

impl Message for Response {
    fn kind(field: u32, limits: &Limits) -> Option<Kind> {
        Some(match field {
            CODE => Kind::Number,
            HEADERS => Kind::Text(limits.head_bytes_max, DecodeFault::HeadTooLong),
            BODY => Kind::Content,
            _ => return None,
        })
    }

    fn number(&mut self, _: u32, number: u64) -> Result<(), DecodeFault> {
        let status = status(number)?;
        // Nothing follows in a unary call that could be the response itself.
        if status.is_informational() {
            return Err(DecodeFault::StatusCode);
        }
        self.head.set_status(status);
        self.has_status = true;
        Ok(())
    }

    fn text(&mut self, _: u32, octets: &[u8], room: &mut Room) -> Result<(), DecodeFault> {
        fields::take(octets, self.head.fields_mut(), room)
    }

    fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    fn finish(&mut self) -> Result<(), DecodeFault> {
        if !self.has_status {
            return Err(DecodeFault::StatusCode);
        }
        let fields = self.head.fields_mut();
        if self.body.octets() > 0 {
            state_length(fields, self.body.octets());
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

    fn give_back(&mut self, octets_max: usize) {
        self.head.give_back(octets_max);
        self.body.give_back(octets_max);
    }
}

/// A code from an int32: protobuf keeps its lowest 32 bits.
pub(crate) fn status(number: u64) -> Result<StatusCode, DecodeFault> {
    let code = u16::try_from(number as u32).ok();
    code.and_then(StatusCode::new).ok_or(DecodeFault::StatusCode)
}
