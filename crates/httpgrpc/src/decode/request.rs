//! `HTTPRequest`.

use causeway_message::{FieldMap, Head, Method, TargetForm, names};

use super::Message;
use crate::body::Body;
use crate::fault::DecodeFault;
use crate::fields::{self, Room};
use crate::limits::Limits;
use crate::walk::Kind;

/// The fields' numbers.
pub(crate) mod field {
    pub(crate) const METHOD: u8 = 1;
    pub(crate) const URL: u8 = 2;
    pub(crate) const HEADERS: u8 = 3;
    pub(crate) const BODY: u8 = 4;
}

const METHOD: u32 = field::METHOD as u32;
const URL: u32 = field::URL as u32;
const HEADERS: u32 = field::HEADERS as u32;
const BODY: u32 = field::BODY as u32;

/// RFC 9112 §3 says of HTTP/1 what holds here: a method longer than any there is.
const METHOD_BYTES_MAX: u32 = 64;

/// A request: checked as one that came over HTTP/1 is. Fields of a connection are not there, and Content-Length says how long
/// the body is, where there is one.
#[derive(Debug, Default)]
pub struct Request {
    /// Method, target and fields.
    pub head: Head,
    /// The content.
    pub body: Body,
}

impl Message for Request {
    fn kind(field: u32, limits: &Limits) -> Option<Kind> {
        Some(match field {
            METHOD => Kind::Text(METHOD_BYTES_MAX, DecodeFault::Method),
            URL => Kind::Text(limits.target_bytes_max, DecodeFault::TargetTooLong),
            HEADERS => Kind::Text(limits.head_bytes_max, DecodeFault::HeadTooLong),
            BODY => Kind::Content,
            _ => return None,
        })
    }

    fn number(&mut self, field: u32, _: u64) -> Result<(), DecodeFault> {
        Err(DecodeFault::WireType(field))
    }

    fn text(&mut self, field: u32, octets: &[u8], room: &mut Room) -> Result<(), DecodeFault> {
        match field {
            METHOD => method(octets, &mut self.head, room),
            URL => target(octets, &mut self.head, room),
            _ => fields::take(octets, self.head.fields_mut(), room),
        }
    }

    fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    fn finish(&mut self) -> Result<(), DecodeFault> {
        target_form(&self.head)?;
        fields::check_host(self.head.fields())?;
        state_length(self.head.fields_mut(), self.body.octets());
        Ok(())
    }

    fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
    }

    fn give_back(&mut self, octets_max: usize) {
        self.head.give_back(octets_max);
        self.body.give_back(octets_max);
    }
}

/// Takes the method. Go's clients mean GET by none.
pub(crate) fn method(octets: &[u8], head: &mut Head, room: &mut Room) -> Result<(), DecodeFault> {
    room.octets(octets.len())?;
    let method = match octets {
        b"" => Method::Get,
        _ if octets.len() > METHOD_BYTES_MAX as usize => return Err(DecodeFault::Method),
        _ => Method::parse(octets).ok_or(DecodeFault::Method)?,
    };
    // RFC 9110 §9.3.6: it asks for a tunnel, which a message cannot be.
    if method == Method::Connect {
        return Err(DecodeFault::Method);
    }
    head.set_method(method);
    Ok(())
}

pub(crate) fn target(octets: &[u8], head: &mut Head, room: &mut Room) -> Result<(), DecodeFault> {
    room.octets(octets.len())?;
    head.set_target(octets).map_err(|_| DecodeFault::Target)
}

/// RFC 9112 §3.2: only OPTIONS asks for everything, only CONNECT has an authority for a target.
pub(crate) fn target_form(head: &Head) -> Result<(), DecodeFault> {
    let target = head.target();
    match target.form() {
        // Before a target was set, it is empty.
        TargetForm::Origin if target.as_str().is_empty() => Err(DecodeFault::Target),
        TargetForm::Origin | TargetForm::Absolute => Ok(()),
        TargetForm::Asterisk if head.method() == Method::Options => Ok(()),
        TargetForm::Asterisk | TargetForm::Authority => Err(DecodeFault::Target),
    }
}

/// The message says how long its content is, as in Go; what its fields say may be of another peer's framing.
pub(super) fn state_length(fields: &mut FieldMap, octets: u64) {
    fields.remove(names::CONTENT_LENGTH);
    if octets > 0 {
        fields.insert_number(names::CONTENT_LENGTH, octets);
    }
}
