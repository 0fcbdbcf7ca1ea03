//! Parsing of a response head (RFC 9112 §4).

use causeway_message::{ResponseHead, StatusCode, Version};

use super::{Parsed, ScanStop, fields, line_end, other_version};
use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::scan;

/// Parses a response head at the start of `input`. Unless it returns [`Parsed::Whole`], `head` is left cleared. O(n);
/// allocates only if the head's memory has to grow.
pub fn parse_response_head(input: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<Parsed, ProtocolError> {
    response_head(input, limits, head).map(|(parsed, _)| parsed)
}

/// As [`parse_response_head`], and also returns the version, which is meaningful only if the head is complete.
pub(crate) fn response_head(
    input: &[u8],
    limits: &Limits,
    head: &mut ResponseHead,
) -> Result<(Parsed, Version), ProtocolError> {
    head.clear();
    let parsed = parse_into(input, limits, head);
    if !matches!(parsed, Ok((Parsed::Whole(_), _))) {
        head.clear();
    }
    parsed
}

struct StatusLine {
    version: Version,
    status: StatusCode,
    len: usize,
}

fn parse_into(input: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<(Parsed, Version), ProtocolError> {
    let whole = status_line(input)
        .and_then(|line| fields(input, line.len, limits.fields_max, head.fields_mut()).map(|len| (line, len)));
    match whole {
        Ok((_, len)) if len > limits.head_bytes_max as usize => Err(ProtocolError::HeadTooLong),
        Ok((line, len)) => {
            head.set_status(line.status);
            // The ranges of the fields are relative to the first byte, so the status line is copied too.
            head.fields_mut().fill(&input[..len], 0);
            Ok((Parsed::Whole(len), line.version))
        }
        Err(ScanStop::Partial) if input.len() >= limits.head_bytes_max as usize => Err(ProtocolError::HeadTooLong),
        Err(ScanStop::Partial) => Ok((Parsed::Partial, Version::Http11)),
        Err(ScanStop::Fault(fault)) => Err(fault),
    }
}

/// RFC 9112 §4: HTTP-version SP status-code SP [ reason-phrase ] CRLF. The reason phrase is ignored. The space before
/// an absent reason phrase may be absent too, as §4 permits: deployed servers omit it, and parsers do not disagree
/// about it.
#[inline]
fn status_line(input: &[u8]) -> Result<StatusLine, ScanStop> {
    let version = match input.first_chunk::<9>() {
        Some(b"HTTP/1.1 ") => Version::Http11,
        Some(b"HTTP/1.0 ") => Version::Http10,
        _ => other_version(input, b"HTTP/1.1 ", ProtocolError::StatusLine)?,
    };
    let mut code = 0;
    for at in 9..12 {
        match input.get(at) {
            Some(digit @ b'0'..=b'9') => code = code * 10 + u16::from(digit - b'0'),
            Some(_) => return Err(ProtocolError::StatusLine.into()),
            None => return Err(ScanStop::Partial),
        }
    }
    let status = StatusCode::new(code).ok_or(ProtocolError::StatusLine)?;
    let end = if let Some(b' ') = input.get(12) { scan::value_end(input, 13) } else { 12 };
    match input.get(end) {
        Some(b'\r') => Ok(StatusLine { version, status, len: line_end(input, end)? }),
        Some(b'\n') => Err(ProtocolError::LineEnd.into()),
        Some(_) => Err(ProtocolError::StatusLine.into()),
        None => Err(ScanStop::Partial),
    }
}
