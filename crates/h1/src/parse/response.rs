//! A response head from its octets (RFC 9112 §4).

use causeway_message::{ResponseHead, StatusCode, Version};

use super::{Parsed, Stop, fields, line_end, other_version};
use crate::fault::HeadFault;
use crate::limits::Limits;
use crate::scan;

/// Parses a response head that begins with the first octet. On anything but [`Parsed::Whole`] the head is left cleared.
/// O(n); allocates only where the head's memory has to grow.
pub fn parse_response_head(input: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<Parsed, HeadFault> {
    response_head(input, limits, head).map(|(parsed, _)| parsed)
}

/// As [`parse_response_head`], with the version where the head is whole.
pub(crate) fn response_head(
    input: &[u8],
    limits: &Limits,
    head: &mut ResponseHead,
) -> Result<(Parsed, Version), HeadFault> {
    head.clear();
    let parsed = parse_into(input, limits, head);
    if !matches!(parsed, Ok((Parsed::Whole(_), _))) {
        head.clear();
    }
    parsed
}

struct Line {
    version: Version,
    status: StatusCode,
    len: usize,
}

fn parse_into(input: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<(Parsed, Version), HeadFault> {
    let whole = status_line(input)
        .and_then(|line| fields(input, line.len, limits.fields_max, head.fields_mut()).map(|len| (line, len)));
    match whole {
        Ok((_, len)) if len > limits.head_bytes_max as usize => Err(HeadFault::HeadTooLong),
        Ok((line, len)) => {
            head.set_status(line.status);
            // The places of the fields count from the first octet, so the status line is copied too.
            head.fields_mut().fill(&input[..len], 0);
            Ok((Parsed::Whole(len), line.version))
        }
        Err(Stop::Partial) if input.len() >= limits.head_bytes_max as usize => Err(HeadFault::HeadTooLong),
        Err(Stop::Partial) => Ok((Parsed::Partial, Version::Http11)),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

/// RFC 9112 §4: HTTP-version SP status-code SP [ reason-phrase ] CRLF. The reason phrase says nothing to a client; the
/// space before it may be missing with it, as §4 lets a recipient forgive: servers in use leave it out, and no two
/// parsers part over it.
#[inline]
fn status_line(input: &[u8]) -> Result<Line, Stop> {
    let version = match input.first_chunk::<9>() {
        Some(b"HTTP/1.1 ") => Version::Http11,
        Some(b"HTTP/1.0 ") => Version::Http10,
        _ => other_version(input, b"HTTP/1.1 ", HeadFault::StatusLine)?,
    };
    let mut code = 0;
    for at in 9..12 {
        match input.get(at) {
            Some(digit @ b'0'..=b'9') => code = code * 10 + u16::from(digit - b'0'),
            Some(_) => return Err(HeadFault::StatusLine.into()),
            None => return Err(Stop::Partial),
        }
    }
    let status = StatusCode::new(code).ok_or(HeadFault::StatusLine)?;
    let end = if let Some(b' ') = input.get(12) { scan::value_end(input, 13) } else { 12 };
    match input.get(end) {
        Some(b'\r') => Ok(Line { version, status, len: line_end(input, end)? }),
        Some(b'\n') => Err(HeadFault::LineEnd.into()),
        Some(_) => Err(HeadFault::StatusLine.into()),
        None => Err(Stop::Partial),
    }
}
