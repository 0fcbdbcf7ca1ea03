//! Strict parsing of heads and trailers (RFC 9112 §2.2, §3, §5).
//!
//! The scan records the ranges of names and values, then copies the whole head once into the caller's head.
//! `server/examine.rs` and `client/examine.rs` check the fields in combination.
//! - `response`: heads that begin with a status line

mod response;

use std::ops::Range;

use causeway_message::syntax::TOKEN;
use causeway_message::{FieldMap, Head, KnownName, Method, ResponseHead, Version};

use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::scan;

pub use response::parse_response_head;
pub(crate) use response::response_head;

/// The result of parsing a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The head is complete and takes this many bytes.
    Whole(usize),
    /// The head is valid so far, but incomplete.
    Partial,
}

/// Parses a request head at the start of `input`. Unless it returns [`Parsed::Whole`], `head` is left cleared. O(n);
/// allocates only if the head's memory has to grow.
pub fn parse_head(input: &[u8], limits: &Limits, head: &mut Head) -> Result<Parsed, ProtocolError> {
    head.clear();
    let parsed = parse_into(input, limits, head);
    if !matches!(parsed, Ok(Parsed::Whole(_))) {
        head.clear();
    }
    parsed
}

struct RequestLine {
    method: Range<usize>,
    target: Range<usize>,
    version: Version,
    len: usize,
}

/// The reason why the scan stopped: more bytes are needed, or the input is invalid.
enum ScanStop {
    Partial,
    Fault(ProtocolError),
}

impl From<ProtocolError> for ScanStop {
    fn from(fault: ProtocolError) -> Self {
        Self::Fault(fault)
    }
}

fn parse_into(input: &[u8], limits: &Limits, head: &mut Head) -> Result<Parsed, ProtocolError> {
    let whole = request_line(input, limits)
        .and_then(|line| fields(input, line.len, limits.fields_max, head.fields_mut()).map(|len| (line, len)));
    match whole {
        Ok((_, len)) if len > limits.head_bytes_max as usize => Err(ProtocolError::HeadTooLong),
        Ok((line, len)) => {
            head.fill(&input[..len], line.len, line.method, line.target, line.version)
                .map_err(|_| ProtocolError::Target)?;
            Ok(Parsed::Whole(len))
        }
        // An incomplete head fails once the buffered bytes reach the limit.
        Err(ScanStop::Partial) if input.len() >= limits.head_bytes_max as usize => Err(ProtocolError::HeadTooLong),
        Err(ScanStop::Partial) => Ok(Parsed::Partial),
        Err(ScanStop::Fault(fault)) => Err(fault),
    }
}

/// RFC 9112 §3: method SP request-target SP HTTP-version CRLF, with exactly these spaces. With lenient splitting two
/// parsers could extract two different targets.
#[inline]
fn request_line(input: &[u8], limits: &Limits) -> Result<RequestLine, ScanStop> {
    // GET is the common case and skips the token loop.
    let method_end = match input {
        [b'G', b'E', b'T', b' ', ..] => 3,
        _ => input.iter().take(Method::BYTES_MAX + 1).position(|&byte| !TOKEN[usize::from(byte)]).ok_or(
            if input.len() > Method::BYTES_MAX {
                ScanStop::Fault(ProtocolError::MethodTooLong)
            } else {
                ScanStop::Partial
            },
        )?,
    };
    if method_end == 0 || input[method_end] != b' ' {
        return Err(ProtocolError::Method.into());
    }
    let target_at = method_end + 1;
    let mut target_end = scan::visible_end(input, target_at);
    if input.get(target_end).is_some_and(|byte| *byte > 0x7f) {
        target_end = raw_target_end(input, target_end);
    }
    if target_end - target_at > limits.target_bytes_max as usize {
        return Err(ProtocolError::TargetTooLong.into());
    }
    match input.get(target_end) {
        None => return Err(ScanStop::Partial),
        Some(b' ') if target_end > target_at => {}
        Some(b' ' | b'\r' | b'\n') => return Err(ProtocolError::RequestLine.into()),
        Some(_) => return Err(ProtocolError::Target.into()),
    }
    let rest = &input[target_end + 1..];
    let version = match rest.first_chunk::<10>() {
        Some(b"HTTP/1.1\r\n") => Version::Http11,
        Some(b"HTTP/1.0\r\n") => Version::Http10,
        _ => other_version(rest, b"HTTP/1.1\r\n", ProtocolError::RequestLine)?,
    };
    Ok(RequestLine { method: 0..method_end, target: target_at..target_end, version, len: target_end + 11 })
}

/// Returns the end of a target that holds bytes above 0x7f, which `Head` percent-encodes.
#[cold]
fn raw_target_end(input: &[u8], from: usize) -> usize {
    let is_target = |byte: &u8| byte.is_ascii_graphic() || *byte > 0x7f;
    input[from..].iter().position(|byte| !is_target(byte)).map_or(input.len(), |at| from + at)
}

/// RFC 9112 §2.3: "HTTP/" DIGIT "." DIGIT, followed by the bytes of `like`. RFC 9110 §2.5: a higher minor version is
/// processed as the highest known one.
#[cold]
fn other_version(rest: &[u8], like: &[u8], fault: ProtocolError) -> Result<Version, ScanStop> {
    for (at, (&byte, &wanted)) in rest.iter().zip(like).enumerate() {
        let fits = if let 5 | 7 = at { byte.is_ascii_digit() } else { byte == wanted };
        if !fits {
            return Err(if wanted == b'\n' { ProtocolError::LineEnd } else { fault }.into());
        }
    }
    match rest.get(5) {
        _ if rest.len() < like.len() => Err(ScanStop::Partial),
        // Another major version has its own grammar, so the following bytes are not checked.
        Some(major) if *major != b'1' => Err(ProtocolError::Version.into()),
        _ => Ok(Version::Http11),
    }
}

/// Parses field lines from `at` up to and including the empty line (RFC 9112 §5) and returns the end of it. Also used
/// for a trailer section.
#[inline]
fn fields(input: &[u8], mut at: usize, fields_max: u16, map: &mut FieldMap) -> Result<usize, ScanStop> {
    for _ in 0..=fields_max {
        match input.get(at) {
            Some(b'\r') => return line_end(input, at),
            // RFC 9112 §5.2: line folding is rejected; §2.2: so is white space before the first field.
            Some(b' ' | b'\t') => return Err(ProtocolError::Folded.into()),
            Some(_) => {}
            None => return Err(ScanStop::Partial),
        }
        if map.len() == usize::from(fields_max) {
            break;
        }
        // A colon found in a later line makes the name invalid: `at_start` and `other_name` reject it, since it holds
        // a CR.
        let Some(colon) = scan::find(input, at, b':') else { return Err(no_colon(&input[at..])) };
        let known = KnownName::at_start(&input[at..], colon - at);
        let mut value_at = colon + 1;
        while let Some(b' ' | b'\t') = input.get(value_at) {
            value_at += 1;
        }
        let line_ends = scan::value_end(input, value_at);
        let mut value_end = line_ends;
        while value_end > value_at && matches!(input[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        let value_len = (value_end - value_at) as u32;
        match known {
            Some(name) => map.index_known(name, value_at as u32, value_len),
            None => map.index_other(at as u32, other_name(&input[at..colon])?, value_at as u32, value_len),
        }
        at = value_line_end(input, line_ends)?;
    }
    Err(ProtocolError::TooManyFields.into())
}

/// RFC 9112 §5.1: the name is a token, and the colon follows it directly.
#[inline]
fn other_name(name: &[u8]) -> Result<u16, ProtocolError> {
    let ok = !name.is_empty() && name.iter().all(|&byte| TOKEN[usize::from(byte)]);
    if ok { u16::try_from(name.len()).map_err(|_| ProtocolError::FieldName) } else { Err(ProtocolError::FieldName) }
}

/// No colon in the rest of the input: more bytes may bring one if all bytes so far are valid in a name.
#[cold]
fn no_colon(rest: &[u8]) -> ScanStop {
    if rest.iter().all(|&byte| TOKEN[usize::from(byte)]) { ScanStop::Partial } else { ProtocolError::FieldName.into() }
}

#[inline]
fn value_line_end(input: &[u8], at: usize) -> Result<usize, ScanStop> {
    match input.get(at) {
        Some(b'\r') => line_end(input, at),
        Some(b'\n') => Err(ProtocolError::LineEnd.into()),
        Some(_) => Err(ProtocolError::FieldValue.into()),
        None => Err(ScanStop::Partial),
    }
}

/// RFC 9112 §2.2: CR is allowed only before LF. DEVIATES RFC 9112 §2.2: a single LF is not a line end, because
/// parsers disagree about it.
#[inline]
fn line_end(input: &[u8], cr: usize) -> Result<usize, ScanStop> {
    match input.get(cr + 1) {
        Some(b'\n') => Ok(cr + 2),
        Some(_) => Err(ProtocolError::LineEnd.into()),
        None => Err(ScanStop::Partial),
    }
}

/// The head of either role that the caller passes in; trailers replace its fields.
pub(crate) trait HeadStorage {
    /// Whether blanks may follow a chunk's size. Some old servers pad it, as Go accepts; from a client they may hide a
    /// smuggled request.
    const ALLOWS_PADDED_SIZES: bool;

    fn clear(&mut self);
    fn fields_mut(&mut self) -> &mut FieldMap;
}

impl HeadStorage for Head {
    const ALLOWS_PADDED_SIZES: bool = false;

    fn clear(&mut self) {
        self.clear();
    }

    fn fields_mut(&mut self) -> &mut FieldMap {
        self.fields_mut()
    }
}

impl HeadStorage for ResponseHead {
    const ALLOWS_PADDED_SIZES: bool = true;

    fn clear(&mut self) {
        self.clear();
    }

    fn fields_mut(&mut self) -> &mut FieldMap {
        self.fields_mut()
    }
}

/// Parses a trailer section (RFC 9112 §7.1.2) into the head's fields and clears the rest of the head.
pub(crate) fn parse_trailers(
    input: &[u8],
    limits: &Limits,
    head: &mut impl HeadStorage,
) -> Result<Parsed, ProtocolError> {
    head.clear();
    let max = limits.trailers_bytes_max as usize;
    let parsed = match fields(input, 0, limits.fields_max, head.fields_mut()) {
        Ok(len) if len > max => Err(ProtocolError::TrailersTooLong),
        Ok(len) => {
            head.fields_mut().fill(&input[..len], 0);
            return Ok(Parsed::Whole(len));
        }
        Err(ScanStop::Partial) if input.len() >= max => Err(ProtocolError::TrailersTooLong),
        Err(ScanStop::Partial) => Ok(Parsed::Partial),
        Err(ScanStop::Fault(fault)) => Err(fault),
    };
    head.clear();
    parsed
}

/// Whether `input` holds the end of a head from about `from` on, or an end that a lenient parser would accept: LF CR
/// LF or LF LF. If `from` is the previous length of `input`, all calls together scan each byte once.
pub(crate) fn has_end(input: &[u8], from: usize) -> bool {
    // The end may span the old and the new bytes.
    let mut at = from.saturating_sub(2);
    while let Some(lf) = scan::find(input, at, b'\n') {
        match input[lf + 1..] {
            [b'\n', ..] | [b'\r', b'\n', ..] => return true,
            _ => at = lf + 1,
        }
    }
    false
}
