//! The head of a CGI response (RFC 3875 §6).

use causeway_message::syntax::{TOKEN, is_value_byte, parse_number, trim_ows};
use causeway_message::{BodyLength, FieldMap, KnownName, NameRef, ResponseHead, StatusCode, names};

use crate::error::FastCgiError;
use crate::limits::Limits;

/// The field that sets the status (RFC 3875 §6.3.3). It is not a field of HTTP.
const STATUS: NameRef<'static> = NameRef::Other("Status");

/// How the end of a response's content is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEnd {
    /// There is no content.
    Absent,
    /// By its length.
    Sized(u64),
    /// By the end of the response.
    Open,
    /// By the last chunk.
    Chunked,
}

impl ContentEnd {
    /// Returns the length of the content.
    pub(crate) fn length(self) -> BodyLength {
        match self {
            Self::Absent => BodyLength::None,
            Self::Sized(bytes) => BodyLength::Sized(bytes),
            Self::Open | Self::Chunked => BodyLength::Unknown,
        }
    }
}

/// The search for the end of a head, over bytes that grow. All calls together look at each byte once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadSearch {
    /// Begin of the last line.
    line_at: usize,
    /// Bytes that were searched.
    searched: usize,
}

impl HeadSearch {
    /// Returns the length of the head including its final empty line, or `None` if its end has not arrived.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(len) = bytes[self.searched..].iter().position(|&byte| byte == b'\n') {
            let line_end = self.searched + len;
            let line = &bytes[self.line_at..line_end];
            (self.line_at, self.searched) = (line_end + 1, line_end + 1);
            if matches!(line, [] | [b'\r']) {
                return Some(self.line_at);
            }
        }
        self.searched = bytes.len();
        None
    }
}

/// Parses a whole head into `head`. `is_head`: the request's method is HEAD. Returns the framing of the content.
pub(crate) fn parse(
    bytes: &[u8],
    is_head: bool,
    limits: &Limits,
    head: &mut ResponseHead,
) -> Result<ContentEnd, FastCgiError> {
    head.clear();
    let parsed = fill(bytes, limits, head).and_then(|()| examine(is_head, head));
    if parsed.is_err() {
        head.clear();
    }
    parsed
}

fn fill(bytes: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<(), FastCgiError> {
    if bytes.len() > limits.head_bytes_max as usize {
        return Err(FastCgiError::HeadTooLong);
    }
    let fields = head.fields_mut();
    let mut at = 0;
    while let Some(len) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        let next = at + len + 1;
        // RFC 3875 §6.1: a line ends with NL; HTTP's CR LF is common.
        let line_end = if len > 0 && bytes[next - 2] == b'\r' { next - 2 } else { next - 1 };
        if line_end > at {
            if fields.len() == usize::from(limits.fields_max) {
                return Err(FastCgiError::TooManyFields);
            }
            index_line(bytes, at, line_end, fields)?;
        }
        at = next;
    }
    fields.fill(bytes, 0);
    Ok(())
}

/// Records the field in one line, which is not empty.
fn index_line(bytes: &[u8], at: usize, end: usize, fields: &mut FieldMap) -> Result<(), FastCgiError> {
    let line = &bytes[at..end];
    if let b' ' | b'\t' = line[0] {
        return Err(FastCgiError::Folded);
    }
    let colon = line.iter().position(|&byte| byte == b':').ok_or(FastCgiError::FieldName)?;
    let name = &line[..colon];
    let name_len = u16::try_from(name.len()).map_err(|_| FastCgiError::FieldName)?;
    if name.is_empty() || !name.iter().all(|&byte| TOKEN[usize::from(byte)]) {
        return Err(FastCgiError::FieldName);
    }
    let rest = &line[colon + 1..];
    let value = trim_ows(rest);
    if !value.iter().all(|&byte| is_value_byte(byte)) {
        return Err(FastCgiError::FieldValue);
    }
    // `trim_ows` returns a part of `rest`, so the difference of their positions is the white space before it. An empty
    // value has no position.
    let before = rest.len() - trim_start(rest).len();
    let value_at = if value.is_empty() { at + colon + 1 } else { at + colon + 1 + before };
    // The whole head is at most `Limits::head_bytes_max` long, which is a u32.
    let (value_at, value_len) = (value_at as u32, value.len() as u32);
    match KnownName::at_start(line, colon) {
        Some(name) => fields.index_known(name, value_at, value_len),
        None => fields.index_other(at as u32, name_len, value_at, value_len),
    }
    Ok(())
}

fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Derives the status and the framing from the fields.
fn examine(is_head: bool, head: &mut ResponseHead) -> Result<ContentEnd, FastCgiError> {
    let fields = head.fields();
    let status = match fields.get(STATUS) {
        Some(text) if !text.is_empty() => status(text).ok_or(FastCgiError::Status)?,
        // RFC 3875 §6.2.3: a Location without a status is a redirect.
        _ if fields.get(names::LOCATION).is_some_and(|location| !location.is_empty()) => StatusCode::FOUND,
        _ => StatusCode::OK,
    };
    let length = fields.content_length().map_err(|_| FastCgiError::ContentLength)?;
    // The module `chunked` states why this coding is decoded.
    let is_chunked = match fields.get(names::TRANSFER_ENCODING) {
        None => false,
        Some(coding) if coding.eq_ignore_ascii_case(b"identity") => false,
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") && length.is_none() => true,
        Some(_) => return Err(FastCgiError::TransferEncoding),
    };
    head.set_status(status);
    Ok(match length {
        _ if is_head || status.forbids_content() => ContentEnd::Absent,
        Some(0) => ContentEnd::Absent,
        Some(bytes) => ContentEnd::Sized(bytes),
        None if is_chunked => ContentEnd::Chunked,
        None => ContentEnd::Open,
    })
}

/// RFC 3875 §6.3.3: three digits, then a space and a reason phrase, which is ignored. An interim status is refused: its
/// final response would have no place.
fn status(text: &[u8]) -> Option<StatusCode> {
    let digits = text.split(|&byte| byte == b' ').next()?;
    let code = u16::try_from(parse_number(digits)?).ok()?;
    StatusCode::new(code).filter(|status| !status.is_informational())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status, the fields and the framing of a head.
    type Seen<'c> = (u16, &'c [(&'c str, &'c str)], ContentEnd);

    #[track_caller]
    fn check(cases: &[(&str, &str, Result<Seen<'_>, FastCgiError>)]) {
        for (why, text, want) in cases {
            let mut head = ResponseHead::default();
            let mut search = HeadSearch::default();
            assert_eq!(search.end(text.as_bytes()), Some(text.len()), "{why}");
            let found = parse(text.as_bytes(), false, &Limits::default(), &mut head);
            let fields: Vec<_> = head
                .fields()
                .iter()
                .map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap()))
                .collect();
            match want {
                Ok((status, lines, body)) => {
                    assert_eq!((found, head.status().as_u16(), &*fields), (Ok(*body), *status, *lines), "{why}");
                }
                Err(fault) => assert_eq!((found, fields.len()), (Err(*fault), 0), "{why}"),
            }
        }
    }

    /// RFC 3875 §6.2, §6.3: the forms of a response's head.
    #[test]
    fn heads() {
        use ContentEnd::{Absent, Chunked, Open, Sized};
        check(&[
            (
                "php",
                "Content-type: text/html; charset=UTF-8\r\n\r\n",
                Ok((200, &[("Content-Type", "text/html; charset=UTF-8")], Open)),
            ),
            ("NL alone", "A: 1\nB:2 \n\n", Ok((200, &[("A", "1"), ("B", "2")], Open))),
            ("no field", "\r\n", Ok((200, &[], Open))),
            ("an empty value", "A:\r\nB: \t\r\n\r\n", Ok((200, &[("A", ""), ("B", "")], Open))),
            ("a status", "Status: 404 Not Found\r\n\r\n", Ok((404, &[("Status", "404 Not Found")], Open))),
            ("a status in capitals", "STATUS:503\r\n\r\n", Ok((503, &[("STATUS", "503")], Open))),
            ("no reason", "Status: 299 \r\n\r\n", Ok((299, &[("Status", "299")], Open))),
            ("no content", "Status: 204\r\n\r\n", Ok((204, &[("Status", "204")], Absent))),
            ("a redirect", "Location: /a\r\n\r\n", Ok((302, &[("Location", "/a")], Open))),
            (
                "a redirect with a status",
                "Location: /a\r\nStatus: 301\r\n\r\n",
                Ok((301, &[("Location", "/a"), ("Status", "301")], Open)),
            ),
            ("a length", "Content-Length: 7\r\n\r\n", Ok((200, &[("Content-Length", "7")], Sized(7)))),
            ("an empty body", "Content-Length: 0\r\n\r\n", Ok((200, &[("Content-Length", "0")], Absent))),
            ("no number", "Content-Length: 7x\r\n\r\n", Err(FastCgiError::ContentLength)),
            ("two lengths", "Content-Length: 7\r\nContent-Length: 7\r\n\r\n", Err(FastCgiError::ContentLength)),
            ("chunked", "Transfer-Encoding: Chunked\r\n\r\n", Ok((200, &[("Transfer-Encoding", "Chunked")], Chunked))),
            (
                "no coding, by its former name",
                "Transfer-Encoding: identity\r\n\r\n",
                Ok((200, &[("Transfer-Encoding", "identity")], Open)),
            ),
            ("another coding", "Transfer-Encoding: gzip, chunked\r\n\r\n", Err(FastCgiError::TransferEncoding)),
            (
                "a coding and a length",
                "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
                Err(FastCgiError::TransferEncoding),
            ),
            ("no colon", "<html>\n\n", Err(FastCgiError::FieldName)),
            ("white space before the colon", "A : 1\r\n\r\n", Err(FastCgiError::FieldName)),
            ("no name", ": 1\r\n\r\n", Err(FastCgiError::FieldName)),
            ("folding", "A: 1\r\n 2\r\n\r\n", Err(FastCgiError::Folded)),
            ("a zero byte", "A: 1\x002\r\n\r\n", Err(FastCgiError::FieldValue)),
            ("a CR within a line", "A: 1\r2\n\n", Err(FastCgiError::FieldValue)),
            ("a status that is no number", "Status: OK\r\n\r\n", Err(FastCgiError::Status)),
            ("an interim status", "Status: 103 Early Hints\r\n\r\n", Err(FastCgiError::Status)),
            ("a status of four digits", "Status: 2000\r\n\r\n", Err(FastCgiError::Status)),
        ]);
    }

    #[test]
    fn limits() {
        let limits = Limits { head_bytes_max: 12, fields_max: 2 };
        for (text, want) in [
            ("A: 1\nB: 2\n\n", Ok(ContentEnd::Open)),
            ("A: 1\nB: 22\n\n", Ok(ContentEnd::Open)),
            ("A: 1\nB: 222\n\n", Err(FastCgiError::HeadTooLong)),
            ("A:\nB:\nC:\n\n", Err(FastCgiError::TooManyFields)),
        ] {
            assert_eq!(parse(text.as_bytes(), false, &limits, &mut ResponseHead::default()), want, "{text:?}");
        }
        let mut head = ResponseHead::default();
        assert_eq!(parse(b"Content-Length: 7\n\n", true, &Limits::default(), &mut head), Ok(ContentEnd::Absent));
    }
}
