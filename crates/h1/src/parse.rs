//! Heads and trailers from their octets (RFC 9112 §2.2, §3, §5), strictly.
//!
//! The scan records where names and values lie, then the whole head is copied once into the spare head's arena. What the
//! fields mean together, `server/examine.rs` and `client/examine.rs` ask.
//! - `response`: what begins with a status line

mod response;

use std::ops::Range;

use causeway_message::octets::TOKEN;
use causeway_message::{FieldMap, Head, KnownName, ResponseHead, Version};

use crate::fault::HeadFault;
use crate::limits::Limits;
use crate::scan;

pub use response::parse_response_head;
pub(crate) use response::response_head;

/// What came of looking for a whole head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The head is whole and takes this many octets.
    Whole(usize),
    /// Nothing wrong so far, but it is not whole.
    Partial,
}

/// Parses a request head that begins with the first octet. On anything but [`Parsed::Whole`] the head is left cleared. O(n);
/// allocates only where the head's memory has to grow.
pub fn parse_head(input: &[u8], limits: &Limits, head: &mut Head) -> Result<Parsed, HeadFault> {
    head.clear();
    let parsed = parse_into(input, limits, head);
    if !matches!(parsed, Ok(Parsed::Whole(_))) {
        head.clear();
    }
    parsed
}

/// RFC 9112 §3: a method longer than any that is implemented is 501. The longest registered one has 17 octets.
const METHOD_BYTES_MAX: usize = 64;

struct Line {
    method: Range<usize>,
    target: Range<usize>,
    version: Version,
    len: usize,
}

/// What a step of the scan found missing: more octets, or sense.
enum Stop {
    Partial,
    Fault(HeadFault),
}

impl From<HeadFault> for Stop {
    fn from(fault: HeadFault) -> Self {
        Self::Fault(fault)
    }
}

fn parse_into(input: &[u8], limits: &Limits, head: &mut Head) -> Result<Parsed, HeadFault> {
    let whole = request_line(input, limits)
        .and_then(|line| fields(input, line.len, limits.fields_max, head.fields_mut()).map(|len| (line, len)));
    match whole {
        Ok((_, len)) if len > limits.head_bytes_max as usize => Err(HeadFault::HeadTooLong),
        Ok((line, len)) => {
            head.fill(&input[..len], line.len, line.method, line.target, line.version)
                .map_err(|_| HeadFault::Target)?;
            Ok(Parsed::Whole(len))
        }
        Err(Stop::Partial) if input.len() >= limits.head_bytes_max as usize => Err(HeadFault::HeadTooLong),
        Err(Stop::Partial) => Ok(Parsed::Partial),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

/// RFC 9112 §3: method SP request-target SP HTTP-version CRLF, with exactly these spaces: lenient splitting lets two parsers
/// see two targets.
#[inline]
fn request_line(input: &[u8], limits: &Limits) -> Result<Line, Stop> {
    let method_end = match input {
        [b'G', b'E', b'T', b' ', ..] => 3,
        _ => input.iter().take(METHOD_BYTES_MAX + 1).position(|&octet| !TOKEN[usize::from(octet)]).ok_or(
            if input.len() > METHOD_BYTES_MAX { Stop::Fault(HeadFault::MethodTooLong) } else { Stop::Partial },
        )?,
    };
    if method_end == 0 || input[method_end] != b' ' {
        return Err(HeadFault::Method.into());
    }
    let target_at = method_end + 1;
    let target_end = scan::visible_end(input, target_at);
    if target_end - target_at > limits.target_bytes_max as usize {
        return Err(HeadFault::TargetTooLong.into());
    }
    match input.get(target_end) {
        None => return Err(Stop::Partial),
        Some(b' ') if target_end > target_at => {}
        Some(b' ' | b'\r' | b'\n') => return Err(HeadFault::RequestLine.into()),
        Some(_) => return Err(HeadFault::Target.into()),
    }
    let rest = &input[target_end + 1..];
    let version = match rest.first_chunk::<10>() {
        Some(b"HTTP/1.1\r\n") => Version::Http11,
        Some(b"HTTP/1.0\r\n") => Version::Http10,
        _ => other_version(rest, b"HTTP/1.1\r\n", HeadFault::RequestLine)?,
    };
    Ok(Line { method: 0..method_end, target: target_at..target_end, version, len: target_end + 11 })
}

/// RFC 9112 §2.3: "HTTP/" DIGIT "." DIGIT, here with what follows. RFC 9110 §2.5: a higher minor version is read as the highest
/// that is known.
#[cold]
fn other_version(rest: &[u8], like: &[u8], fault: HeadFault) -> Result<Version, Stop> {
    for (at, (&octet, &wanted)) in rest.iter().zip(like).enumerate() {
        let fits = if let 5 | 7 = at { octet.is_ascii_digit() } else { octet == wanted };
        if !fits {
            return Err(if wanted == b'\n' { HeadFault::LineEnd } else { fault }.into());
        }
    }
    match rest.get(5) {
        _ if rest.len() < like.len() => Err(Stop::Partial),
        // Another major version has a grammar of its own: what follows is not looked at.
        Some(major) if *major != b'1' => Err(HeadFault::Version.into()),
        _ => Ok(Version::Http11),
    }
}

/// Field lines from `at` on, up to and with the empty line (RFC 9112 §5); answers where that ends. Also a trailer section.
#[inline]
fn fields(input: &[u8], mut at: usize, fields_max: u16, map: &mut FieldMap) -> Result<usize, Stop> {
    for _ in 0..=fields_max {
        match input.get(at) {
            Some(b'\r') => return line_end(input, at),
            // RFC 9112 §5.2: folding is refused; §2.2: so is white space before the first field.
            Some(b' ' | b'\t') => return Err(HeadFault::Folded.into()),
            Some(_) => {}
            None => return Err(Stop::Partial),
        }
        if map.len() == usize::from(fields_max) {
            break;
        }
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
    Err(HeadFault::TooManyFields.into())
}

/// RFC 9112 §5.1: the name is a token and the colon follows it at once.
#[inline]
fn other_name(name: &[u8]) -> Result<u16, HeadFault> {
    let ok = !name.is_empty() && name.iter().all(|&octet| TOKEN[usize::from(octet)]);
    if ok { u16::try_from(name.len()).map_err(|_| HeadFault::FieldName) } else { Err(HeadFault::FieldName) }
}

/// No colon anywhere: if all there is may still become a name, more octets may bring it.
#[cold]
fn no_colon(rest: &[u8]) -> Stop {
    if rest.iter().all(|&octet| TOKEN[usize::from(octet)]) { Stop::Partial } else { HeadFault::FieldName.into() }
}

#[inline]
fn value_line_end(input: &[u8], at: usize) -> Result<usize, Stop> {
    match input.get(at) {
        Some(b'\r') => line_end(input, at),
        Some(b'\n') => Err(HeadFault::LineEnd.into()),
        Some(_) => Err(HeadFault::FieldValue.into()),
        None => Err(Stop::Partial),
    }
}

/// RFC 9112 §2.2: CR stands before LF or not at all. DEVIATES RFC 9112 §2.2: a single LF is no line end, because peers disagree
/// about it.
#[inline]
fn line_end(input: &[u8], cr: usize) -> Result<usize, Stop> {
    match input.get(cr + 1) {
        Some(b'\n') => Ok(cr + 2),
        Some(_) => Err(HeadFault::LineEnd.into()),
        None => Err(Stop::Partial),
    }
}

/// A spare head of either role: trailers come into its fields.
pub(crate) trait Spare {
    fn clear(&mut self);
    fn fields_mut(&mut self) -> &mut FieldMap;
}

impl Spare for Head {
    fn clear(&mut self) {
        self.clear();
    }

    fn fields_mut(&mut self) -> &mut FieldMap {
        self.fields_mut()
    }
}

impl Spare for ResponseHead {
    fn clear(&mut self) {
        self.clear();
    }

    fn fields_mut(&mut self) -> &mut FieldMap {
        self.fields_mut()
    }
}

/// Parses a trailer section (RFC 9112 §7.1.2) into the head's fields; the rest of the head is cleared.
pub(crate) fn parse_trailers(input: &[u8], limits: &Limits, head: &mut impl Spare) -> Result<Parsed, HeadFault> {
    head.clear();
    let max = limits.trailers_bytes_max as usize;
    let parsed = match fields(input, 0, limits.fields_max, head.fields_mut()) {
        Ok(len) if len > max => Err(HeadFault::TrailersTooLong),
        Ok(len) => {
            head.fields_mut().fill(&input[..len], 0);
            return Ok(Parsed::Whole(len));
        }
        Err(Stop::Partial) if input.len() >= max => Err(HeadFault::TrailersTooLong),
        Err(Stop::Partial) => Ok(Parsed::Partial),
        Err(Stop::Fault(fault)) => Err(fault),
    };
    head.clear();
    parsed
}

/// Whether octets from `from` on hold the end of a head, or what a lenient peer would take for one: LF CR LF or LF LF. Each
/// octet is looked at once over all calls when `from` is how many there were the last time.
pub(crate) fn has_end(input: &[u8], from: usize) -> bool {
    let mut at = from.saturating_sub(2);
    while let Some(lf) = scan::find(input, at, b'\n') {
        match input[lf + 1..] {
            [b'\n', ..] | [b'\r', b'\n', ..] => return true,
            _ => at = lf + 1,
        }
    }
    false
}
