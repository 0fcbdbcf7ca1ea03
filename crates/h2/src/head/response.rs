//! A response's head, and its trailers (RFC 9113 §8.3.2).

use causeway_message::{FieldMap, ResponseHead, StatusCode, names, syntax};

use super::{HeadError, Room, Special, push, put};
use crate::hpack::{Field, Name, Sink};
use crate::settings::Settings;

/// The properties of a complete response head that the machine needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    /// The value of Content-Length.
    pub(crate) declared: Option<u64>,
}

/// Receives a response's fields, or those of a trailer section, which has no status.
pub(crate) struct ResponseSink<'a> {
    head: &'a mut ResponseHead,
    room: Room,
    status: Option<StatusCode>,
    has_length: bool,
    is_trailer: bool,
    problem: Option<HeadError>,
}

impl<'a> ResponseSink<'a> {
    pub(crate) fn head(head: &'a mut ResponseHead, settings: &Settings) -> Self {
        Self::new(head, settings.head_bytes_max, settings.fields_max, false)
    }

    pub(crate) fn trailers(head: &'a mut ResponseHead, settings: &Settings) -> Self {
        Self::new(head, settings.trailers_bytes_max, settings.fields_max, true)
    }

    fn new(head: &'a mut ResponseHead, bytes: u32, fields: u16, is_trailer: bool) -> Self {
        head.clear();
        Self { head, room: Room { bytes, fields }, status: None, has_length: false, is_trailer, problem: None }
    }

    #[inline]
    fn take(&mut self, field: &Field<'_>) -> Result<(), HeadError> {
        self.room.take(field, self.head.fields())?;
        if field.name == Name::Status {
            return self.take_status(field);
        }
        match put(field, self.head.fields_mut())? {
            Special::ConnectionSpecific => return Err(HeadError::Malformed),
            Special::Host => push(self.head.fields_mut(), names::HOST, field),
            Special::ContentLength => self.has_length = true,
            _ => {}
        }
        Ok(())
    }

    // RFC 9113 §8.3.2: exactly one, before all other fields, with three digits.
    fn take_status(&mut self, field: &Field<'_>) -> Result<(), HeadError> {
        if self.is_trailer || self.status.is_some() || !self.head.fields().is_empty() || field.value.len() != 3 {
            return Err(HeadError::Malformed);
        }
        // Three digits fit 16 bits.
        let code = syntax::parse_number(field.value).and_then(|code| StatusCode::new(code as u16));
        let status = code.ok_or(HeadError::Malformed)?;
        self.status = Some(status);
        self.head.set_status(status);
        Ok(())
    }

    /// Checks the fields of the whole block in combination.
    pub(crate) fn finish(self) -> Result<Response, HeadError> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let status = self.status.ok_or(HeadError::Malformed)?;
        let declared = if self.has_length { declared(self.head.fields())? } else { None };
        Ok(Response { status, declared })
    }

    /// Returns an error if the trailer section is malformed or too large.
    pub(crate) fn finish_trailers(self) -> Result<(), HeadError> {
        self.problem.map_or(Ok(()), Err)
    }
}

fn declared(fields: &FieldMap) -> Result<Option<u64>, HeadError> {
    fields.content_length().map_err(|_| HeadError::Malformed)
}

impl Sink for ResponseSink<'_> {
    #[inline]
    fn field(&mut self, field: Field<'_>) {
        if self.problem.is_none() {
            self.problem = self.take(&field).err();
        }
    }
}
