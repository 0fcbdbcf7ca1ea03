//! The message `HTTPRequest`.

use causeway_message::{FieldMap, Head, Method, TargetForm, names};

use super::Message;
use crate::body::Body;
use crate::error::DecodeError;
use crate::field_parser::FieldKind;
use crate::fields::{self, HeadBudget};
use crate::limits::Limits;

/// Field numbers.
pub(crate) mod field {
    pub(crate) const METHOD: u32 = 1;
    pub(crate) const URL: u32 = 2;
    pub(crate) const HEADERS: u32 = 3;
    pub(crate) const BODY: u32 = 4;
}

use field::{BODY, HEADERS, METHOD, URL};

/// A request, with the checks of one received over HTTP/1. It has no fields of a connection. Content-Length is the
/// length of the body, and absent if that is empty.
#[derive(Debug, Default)]
pub struct Request {
    /// Method, target and fields.
    pub head: Head,
    /// The content.
    pub body: Body,
}

impl Message for Request {
    fn kind(field: u32, limits: &Limits) -> Option<FieldKind> {
        Some(match field {
            METHOD => FieldKind::Text(Method::BYTES_MAX as u32, DecodeError::Method),
            URL => FieldKind::Text(limits.target_bytes_max, DecodeError::TargetTooLong),
            HEADERS => FieldKind::Text(limits.head_bytes_max, DecodeError::HeadTooLong),
            BODY => FieldKind::Content,
            _ => return None,
        })
    }

    fn number(&mut self, field: u32, _: u64) -> Result<(), DecodeError> {
        Err(DecodeError::WireType(field))
    }

    fn text(&mut self, field: u32, bytes: &[u8], budget: &mut HeadBudget) -> Result<(), DecodeError> {
        match field {
            METHOD => method(bytes, &mut self.head, budget),
            URL => target(bytes, &mut self.head, budget),
            _ => fields::take(bytes, self.head.fields_mut(), budget),
        }
    }

    fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    fn finish(&mut self) -> Result<(), DecodeError> {
        target_form(&self.head)?;
        fields::check_host(self.head.fields())?;
        state_length(self.head.fields_mut(), self.body.bytes());
        Ok(())
    }

    fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
    }

    fn release_memory(&mut self, bytes_max: usize) {
        self.head.shrink_to(bytes_max);
        self.body.release_memory(bytes_max);
    }
}

/// Sets the method. Go's clients send an empty one for GET.
pub(crate) fn method(bytes: &[u8], head: &mut Head, budget: &mut HeadBudget) -> Result<(), DecodeError> {
    budget.bytes(bytes.len())?;
    let method = match bytes {
        b"" => Method::Get,
        _ if bytes.len() > Method::BYTES_MAX => return Err(DecodeError::Method),
        _ => Method::parse(bytes).ok_or(DecodeError::Method)?,
    };
    // RFC 9110 §9.3.6: CONNECT requests a tunnel, which a single message cannot provide.
    if method == Method::Connect {
        return Err(DecodeError::Method);
    }
    head.set_method(method);
    Ok(())
}

pub(crate) fn target(bytes: &[u8], head: &mut Head, budget: &mut HeadBudget) -> Result<(), DecodeError> {
    budget.bytes(bytes.len())?;
    head.set_target(bytes).map_err(|_| DecodeError::Target)
}

/// Checks RFC 9112 §3.2: only OPTIONS may have the target `*`, only CONNECT an authority.
pub(crate) fn target_form(head: &Head) -> Result<(), DecodeError> {
    let target = head.target();
    match target.form() {
        // An unset target is empty.
        TargetForm::Origin if target.as_str().is_empty() => Err(DecodeError::Target),
        TargetForm::Origin | TargetForm::Absolute => Ok(()),
        TargetForm::Asterisk if head.method() == Method::Options => Ok(()),
        TargetForm::Asterisk | TargetForm::Authority => Err(DecodeError::Target),
    }
}

/// Sets Content-Length to the length of the message's content, as in Go. The received value may belong to another
/// peer's framing.
pub(super) fn state_length(fields: &mut FieldMap, bytes: u64) {
    fields.remove(names::CONTENT_LENGTH);
    if bytes > 0 {
        fields.insert_number(names::CONTENT_LENGTH, bytes);
    }
}
