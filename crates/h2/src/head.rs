//! Heads and trailers from decoded fields (RFC 9113 §8).
//!
//! The fields of a block are stored in the caller's head one by one, and checked in combination after the last one.
//! The first problem is kept, and all later fields are dropped; the decoder still has to process them.
//!
//! - `response`: a response's head

mod response;

use causeway_message::{
    BodyLength, FieldMap, Head, KnownName, Method, StatusCode, TargetForm, Version, is_host_port, names, syntax,
};

use crate::hpack::{Field, Name, Sink};
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream::RequestKind;

pub(crate) use response::{Response, ResponseSink};

/// The reason why a head is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// A protocol violation: the stream is reset (RFC 9113 §8.1.1).
    Malformed,
    /// Answered with this status, and not served.
    Refused(StatusCode),
}

/// The properties of a complete request head that the machine needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSummary {
    pub(crate) body: BodyLength,
    /// The value of Content-Length.
    pub(crate) declared: Option<u64>,
    pub(crate) kind: RequestKind,
    pub(crate) priority: Option<Priority>,
    /// The size of the head, with 32 bytes added per field (RFC 9113 §6.5.2).
    pub(crate) head_bytes: u32,
}

/// Field names with a rule of their own in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Nothing,
    Host,
    Cookie,
    /// RFC 9113 §8.2.2: connection-specific fields of HTTP/1.
    ConnectionSpecific,
    Te,
    ContentLength,
    Expect,
    Priority,
}

static SPECIAL: [Special; KnownName::COUNT] = {
    let mut table = [Special::Nothing; KnownName::COUNT];
    table[names::HOST.index()] = Special::Host;
    table[names::COOKIE.index()] = Special::Cookie;
    table[names::CONNECTION.index()] = Special::ConnectionSpecific;
    table[names::PROXY_CONNECTION.index()] = Special::ConnectionSpecific;
    table[names::KEEP_ALIVE.index()] = Special::ConnectionSpecific;
    table[names::TRANSFER_ENCODING.index()] = Special::ConnectionSpecific;
    table[names::UPGRADE.index()] = Special::ConnectionSpecific;
    table[names::TE.index()] = Special::Te;
    table[names::CONTENT_LENGTH.index()] = Special::ContentLength;
    table[names::EXPECT.index()] = Special::Expect;
    table[names::PRIORITY.index()] = Special::Priority;
    table
};

/// Whether a field is connection-specific in HTTP/1; such a field is never sent either.
#[inline]
pub(crate) fn is_connection_specific(name: KnownName) -> bool {
    SPECIAL[name.index()] == Special::ConnectionSpecific
}

const TOO_LARGE: HeadError = HeadError::Refused(StatusCode::FIELDS_TOO_LARGE);

/// The space left for a block within its limits.
struct Room {
    bytes: u32,
    fields: u16,
}

impl Room {
    #[inline]
    fn take(&mut self, field: &Field<'_>, fields: &FieldMap) -> Result<(), HeadError> {
        // Subtract instead of adding up, so that a field of any size cannot overflow.
        let left = self.bytes.checked_sub(field.size).ok_or(TOO_LARGE)?;
        if fields.len() >= usize::from(self.fields) {
            return Err(TOO_LARGE);
        }
        self.bytes = left;
        Ok(())
    }
}

/// Stores a field with a registered name.
#[inline]
fn push(fields: &mut FieldMap, name: KnownName, field: &Field<'_>) {
    fields.push_known(name, field.value);
    mark(fields, field);
}

/// Keeps the representation of the field that was stored last (RFC 7541 §6.2.3).
#[inline]
fn mark(fields: &mut FieldMap, field: &Field<'_>) {
    if field.never_indexed {
        fields.mark_last_sensitive();
    }
}

/// Stores a field that is not a pseudo-field and returns the rule that applies to it.
#[inline]
fn put(field: &Field<'_>, fields: &mut FieldMap) -> Result<Special, HeadError> {
    if !field.value_is_valid {
        return Err(HeadError::Malformed);
    }
    match field.name {
        Name::Known(name) => {
            let special = SPECIAL[name.index()];
            match special {
                Special::Host | Special::ConnectionSpecific => {}
                // RFC 9113 §8.2.3: the pieces of a Cookie are joined before any other code reads them.
                Special::Cookie => {
                    fields.join_known(name, b"; ", field.value);
                    mark(fields, field);
                }
                _ => push(fields, name, field),
            }
            Ok(special)
        }
        Name::Other(name) if name.len() <= usize::from(u16::MAX) => {
            fields.push_other(name, field.value);
            mark(fields, field);
            Ok(Special::Nothing)
        }
        Name::Other(_) => Err(TOO_LARGE),
        _ => Err(HeadError::Malformed),
    }
}

mod seen {
    pub(super) const METHOD: u8 = 1;
    pub(super) const SCHEME: u8 = 2;
    pub(super) const AUTHORITY: u8 = 4;
    pub(super) const PATH: u8 = 8;
    pub(super) const PROTOCOL: u8 = 16;
    /// Any field that is not a pseudo-field.
    pub(super) const FIELD: u8 = 32;
    pub(super) const EXPECT: u8 = 64;
    pub(super) const LENGTH: u8 = 128;
}

/// Receives a request's fields (RFC 9113 §8.3.1).
pub(crate) struct RequestSink<'a> {
    head: &'a mut Head,
    bytes_max: u32,
    room: Room,
    target_max: usize,
    extended_connect: bool,
    seen: u8,
    has_http_scheme: bool,
    is_asterisk: bool,
    priority: Option<Priority>,
    problem: Option<HeadError>,
}

impl<'a> RequestSink<'a> {
    #[inline]
    pub(crate) fn new(head: &'a mut Head, settings: &Settings) -> Self {
        head.clear();
        Self {
            head,
            bytes_max: settings.head_bytes_max,
            room: Room { bytes: settings.head_bytes_max, fields: settings.fields_max },
            target_max: settings.target_bytes_max as usize,
            extended_connect: settings.extended_connect,
            seen: 0,
            has_http_scheme: false,
            is_asterisk: false,
            priority: None,
            problem: None,
        }
    }

    #[inline]
    fn take(&mut self, field: &Field<'_>) -> Result<(), HeadError> {
        self.room.take(field, self.head.fields())?;
        match field.name {
            Name::Known(_) | Name::Other(_) => {
                self.seen |= seen::FIELD;
                match put(field, self.head.fields_mut())? {
                    Special::Nothing | Special::Cookie => Ok(()),
                    special => self.take_special(special, field),
                }
            }
            _ => self.take_pseudo(field),
        }
    }

    fn take_special(&mut self, special: Special, field: &Field<'_>) -> Result<(), HeadError> {
        match special {
            Special::Host => return self.take_host(field),
            Special::ConnectionSpecific => return Err(HeadError::Malformed),
            // RFC 9113 §8.2.2.
            Special::Te if !field.value.eq_ignore_ascii_case(b"trailers") => return Err(HeadError::Malformed),
            Special::ContentLength => self.seen |= seen::LENGTH,
            Special::Expect => self.seen |= seen::EXPECT,
            Special::Priority => self.priority = Some(Priority::parse(field.value)),
            Special::Te | Special::Nothing | Special::Cookie => {}
        }
        Ok(())
    }

    // RFC 9113 §8.3.1: Host may accompany `:authority` if it is equal.
    fn take_host(&mut self, field: &Field<'_>) -> Result<(), HeadError> {
        let fields = self.head.fields_mut();
        match fields.get(names::HOST) {
            Some(first) if self.seen & seen::AUTHORITY != 0 && first.eq_ignore_ascii_case(field.value) => {
                // RFC 7541 §6.2.3: the stored field stands for both.
                if field.never_indexed {
                    fields.mark_sensitive(names::HOST);
                }
                Ok(())
            }
            None if is_host_port(field.value) => {
                push(fields, names::HOST, field);
                Ok(())
            }
            _ => Err(HeadError::Malformed),
        }
    }

    #[inline]
    fn take_pseudo(&mut self, field: &Field<'_>) -> Result<(), HeadError> {
        let bit = match field.name {
            Name::Method => seen::METHOD,
            Name::Scheme => seen::SCHEME,
            Name::Authority => seen::AUTHORITY,
            Name::Path => seen::PATH,
            Name::Protocol if self.extended_connect => seen::PROTOCOL,
            _ => return Err(HeadError::Malformed),
        };
        // RFC 9113 §8.3: each at most once, and before all other fields.
        if self.seen & (bit | seen::FIELD) != 0 || !field.value_is_valid {
            return Err(HeadError::Malformed);
        }
        self.seen |= bit;
        let value = field.value;
        // DEVIATES RFC 7541 §6.2.3: only an authority and a path are forwarded as never indexed. The other values are
        // no secrets.
        match bit {
            seen::METHOD => {
                if value.len() > Method::BYTES_MAX {
                    return Err(HeadError::Refused(StatusCode::NOT_IMPLEMENTED));
                }
                self.head.set_method(Method::parse(value).ok_or(HeadError::Malformed)?);
            }
            seen::SCHEME => {
                self.has_http_scheme = matches!(value, b"http" | b"https");
                if !self.has_http_scheme && !is_scheme(value) {
                    return Err(HeadError::Malformed);
                }
            }
            seen::AUTHORITY => {
                // RFC 9113 §8.3.1, RFC 9110 §4.2: a host and optionally a port, no userinfo.
                if value.is_empty() || !is_host_port(value) {
                    return Err(HeadError::Malformed);
                }
                push(self.head.fields_mut(), names::HOST, field);
            }
            seen::PATH => {
                if value.len() > self.target_max {
                    return Err(HeadError::Refused(StatusCode::URI_TOO_LONG));
                }
                // RFC 9113 §8.3.1: a path, or the asterisk; no other form of a target.
                self.is_asterisk = value == b"*";
                if !self.is_asterisk && value.first() != Some(&b'/') {
                    return Err(HeadError::Malformed);
                }
                self.head.set_target(value).map_err(|_| HeadError::Malformed)?;
                if field.never_indexed {
                    self.head.mark_target_sensitive();
                }
            }
            // RFC 8441 §4: corresponds to Upgrade in HTTP/1.
            _ => {
                if !syntax::is_token(value) {
                    return Err(HeadError::Malformed);
                }
                self.head.fields_mut().push_known(names::UPGRADE, value);
            }
        }
        Ok(())
    }

    /// Checks the fields of the whole block in combination.
    #[inline]
    pub(crate) fn finish(self, end_stream: bool) -> Result<RequestSummary, HeadError> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let head = self.head;
        head.set_version(Version::Http2);
        let required = seen::METHOD | seen::SCHEME | seen::PATH;
        let (is_connect, is_head, is_options) = match head.method() {
            Method::Connect => (true, false, false),
            Method::Head => (false, true, false),
            Method::Options => (false, false, true),
            _ => (false, false, false),
        };
        if self.seen & (required | seen::PROTOCOL) != required || is_connect {
            check_connect(self.seen, head)?;
        } else if self.is_asterisk && !is_options || self.has_http_scheme && !head.fields().contains(names::HOST) {
            // RFC 9113 §8.3.1: http and https need an authority; only OPTIONS may have the asterisk.
            return Err(HeadError::Malformed);
        }
        let mut kind = RequestKind { is_head, is_connect, ..RequestKind::default() };
        let fields = head.fields_mut();
        if fields.is_repeated(names::COOKIE) {
            fields.join_repeated(names::COOKIE, b"; ");
        }
        let length = if self.seen & seen::LENGTH == 0 {
            None
        } else {
            fields.content_length().map_err(|_| HeadError::Malformed)?
        };
        let body = match (length, end_stream) {
            (None | Some(0), true) => BodyLength::None,
            // RFC 9113 §8.1.1: content was declared, but does not follow.
            (Some(1..), true) => return Err(HeadError::Malformed),
            (Some(bytes @ 1..), false) => BodyLength::Sized(bytes),
            // The stream is still open, so an end follows even without content.
            (None | Some(0), false) => BodyLength::Unknown,
        };
        if self.seen & seen::EXPECT != 0 {
            // RFC 9110 §10.1.1: 100-continue is the only defined expectation.
            if !fields.list(names::EXPECT).all(|element| element.eq_ignore_ascii_case(b"100-continue")) {
                return Err(HeadError::Refused(StatusCode::EXPECTATION_FAILED));
            }
            kind.expects_continue = !end_stream;
        }
        let head_bytes = self.bytes_max - self.room.bytes;
        Ok(RequestSummary { body, declared: length, kind, priority: self.priority, head_bytes })
    }
}

impl Sink for RequestSink<'_> {
    #[inline]
    fn field(&mut self, field: Field<'_>) {
        if self.problem.is_none() {
            self.problem = self.take(&field).err();
        }
    }
}

// RFC 9113 §8.5: CONNECT has only a method and an authority with a port. RFC 8441 §4: with a protocol it has all
// pseudo-fields.
#[cold]
fn check_connect(seen: u8, head: &mut Head) -> Result<(), HeadError> {
    let all = seen::METHOD | seen::SCHEME | seen::AUTHORITY | seen::PATH | seen::PROTOCOL;
    let plain = seen::METHOD | seen::AUTHORITY;
    if head.method() != Method::Connect {
        return Err(HeadError::Malformed);
    }
    match seen & all {
        seen if seen == all && head.target().form() == TargetForm::Origin => Ok(()),
        seen if seen == plain => {
            // CONNECT has no path, so its target is the authority.
            let authority = head.fields().get(names::HOST).unwrap_or_default().to_vec();
            head.set_target(&authority).map_err(|_| HeadError::Malformed)?;
            if head.target().is_host_and_port() { Ok(()) } else { Err(HeadError::Malformed) }
        }
        _ => Err(HeadError::Malformed),
    }
}

// RFC 3986 §3.1.
fn is_scheme(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphabetic)
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
}

/// Receives the fields of a trailer section (RFC 9113 §8.1).
pub(crate) struct TrailerSink<'a> {
    head: &'a mut Head,
    room: Room,
    problem: Option<HeadError>,
}

impl<'a> TrailerSink<'a> {
    pub(crate) fn new(head: &'a mut Head, settings: &Settings) -> Self {
        head.clear();
        let room = Room { bytes: settings.trailers_bytes_max, fields: settings.fields_max };
        Self { head, room, problem: None }
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), HeadError> {
        self.room.take(field, self.head.fields())?;
        match put(field, self.head.fields_mut())? {
            Special::ConnectionSpecific => Err(HeadError::Malformed),
            Special::Host => {
                push(self.head.fields_mut(), names::HOST, field);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn finish(self) -> Result<(), HeadError> {
        self.problem.map_or(Ok(()), Err)
    }
}

impl Sink for TrailerSink<'_> {
    fn field(&mut self, field: Field<'_>) {
        if self.problem.is_none() {
            self.problem = self.take(&field).err();
        }
    }
}

/// Drops the fields of a rejected block, which still has to be decoded.
pub(crate) struct NoSink;

impl Sink for NoSink {
    fn field(&mut self, _field: Field<'_>) {}
}
