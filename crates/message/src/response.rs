//! A response's head.

use std::io::Write as _;
use std::time::SystemTime;

use crate::cookie::Cookie;
use crate::field::{FieldValue, NameRef};
use crate::map::FieldMap;
use crate::name::{KnownName, names};
use crate::status::StatusCode;

/// How two representations with the same entity tag compare (RFC 9110 §8.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtagKind {
    /// The same octets.
    Strong,
    /// The same meaning.
    Weak,
}

/// A response's status and fields. The fields are its own: they are taken by value or copied once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    fields: FieldMap,
    status: StatusCode,
    scratch: Vec<u8>,
}

impl ResponseHead {
    /// A head without fields; allocates nothing.
    #[must_use]
    pub const fn new(status: StatusCode) -> Self {
        Self { fields: FieldMap::new(), status, scratch: Vec::new() }
    }

    /// Takes the fields over; nothing is copied.
    #[must_use]
    pub const fn from_fields(status: StatusCode, fields: FieldMap) -> Self {
        Self { fields, status, scratch: Vec::new() }
    }

    /// Replaces the fields by a copy of these, made once and into the memory that is there.
    pub fn copy_from(&mut self, fields: &FieldMap) {
        self.fields.copy_from(fields);
    }

    /// Back to 200 without fields; keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.status = StatusCode::OK;
    }

    /// Gives memory beyond `octets_max` back, as far as it is not in use.
    pub fn give_back(&mut self, octets_max: usize) {
        self.scratch.clear();
        self.scratch.shrink_to(octets_max / 4);
        self.fields.give_back(octets_max - octets_max / 4);
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Sets the status.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// The fields as they were set; what is sent of them, [`ResponseHead::sendable`] says.
    #[must_use]
    pub fn fields(&self) -> &FieldMap {
        &self.fields
    }

    /// The fields, to change.
    pub fn fields_mut(&mut self) -> &mut FieldMap {
        &mut self.fields
    }

    /// Sets a field, all others of its name go.
    pub fn set<'a>(&mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) {
        self.fields.insert(name, value);
    }

    /// Adds a field behind the others.
    pub fn append<'a>(&mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) {
        self.fields.append(name, value);
    }

    /// Takes the fields of a name out; answers how many there were.
    pub fn remove<'a>(&mut self, name: impl Into<NameRef<'a>>) -> usize {
        self.fields.remove(name)
    }

    /// Adds a Set-Cookie field.
    pub fn set_cookie(&mut self, cookie: &Cookie<'_>) {
        self.scratch.clear();
        cookie.write(&mut self.scratch);
        let value = FieldValue::parse(&self.scratch).expect("a cookie of checked parts is a field value");
        self.fields.append(names::SET_COOKIE, value);
    }

    /// Makes this a redirect (RFC 9110 §15.4).
    pub fn redirect(&mut self, status: StatusCode, location: FieldValue<'_>) {
        self.status = status;
        self.fields.insert(names::LOCATION, location);
    }

    /// Sets Cache-Control (RFC 9111 §5.2).
    pub fn cache_control(&mut self, directives: FieldValue<'_>) {
        self.fields.insert(names::CACHE_CONTROL, directives);
    }

    /// Sets ETag. The tag comes without quotes; answers false and sets nothing when it holds an octet that a tag may not
    /// (RFC 9110 §8.8.3).
    pub fn etag(&mut self, tag: &str, kind: EtagKind) -> bool {
        if !tag.bytes().all(|octet| octet > b' ' && octet != b'"' && octet != 0x7f) {
            return false;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(if kind == EtagKind::Weak { b"W/\"" } else { b"\"" });
        self.scratch.extend_from_slice(tag.as_bytes());
        self.scratch.push(b'"');
        let value = FieldValue::parse(&self.scratch).expect("a checked tag is a field value");
        self.fields.insert(names::ETAG, value);
        true
    }

    /// Sets Last-Modified, to the second (RFC 9110 §8.8.2). A time before 1970 or past the year 9999 sets nothing.
    pub fn last_modified(&mut self, time: SystemTime) {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs());
        if !seconds.is_ok_and(|seconds| seconds < 253_402_300_800) {
            return;
        }
        self.scratch.clear();
        write!(self.scratch, "{}", httpdate::HttpDate::from(time)).expect("a vector takes every write");
        let value = FieldValue::parse(&self.scratch).expect("a date is a field value");
        self.fields.insert(names::LAST_MODIFIED, value);
    }

    /// The fields that go to the peer. Those that describe content are left out where there is none: with 1xx, 204 and 304
    /// (RFC 9110 §8.6, §15.4.5).
    pub fn sendable(&self) -> impl Iterator<Item = (NameRef<'_>, &[u8])> {
        let bare = self.status.forbids_content();
        self.fields
            .iter()
            .filter(move |(name, _)| !bare || !matches!(name, NameRef::Known(name) if is_of_content(*name)))
    }
}

fn is_of_content(name: KnownName) -> bool {
    name == names::CONTENT_LENGTH
        || name == names::CONTENT_TYPE
        || name == names::CONTENT_ENCODING
        || name == names::CONTENT_LANGUAGE
        || name == names::CONTENT_RANGE
        || name == names::TRANSFER_ENCODING
        || name == names::TRAILER
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rfc9110_15_4_5_no_content_fields_where_there_is_no_content() {
        let mut head = ResponseHead::new(StatusCode::OK);
        head.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
        head.fields_mut().insert_number(names::CONTENT_LENGTH, 5);
        assert!(head.etag("x", EtagKind::Weak));
        assert_eq!(head.sendable().count(), 3);
        for code in [100, 103, 204, 304] {
            head.set_status(StatusCode::new(code).unwrap());
            let left: Vec<_> = head.sendable().collect();
            assert_eq!(left, [(NameRef::Known(names::ETAG), &b"W/\"x\""[..])]);
        }
        assert_eq!(head.fields().len(), 3, "the fields themselves stay");
    }

    #[test]
    fn a_copied_map_stays_its_owners() {
        let mut theirs = FieldMap::new();
        theirs.insert(names::SERVER, FieldValue::from_static("a"));
        let mut head = ResponseHead::new(StatusCode::OK);
        head.append(names::VARY, FieldValue::from_static("*"));
        head.copy_from(&theirs);
        assert_eq!(head.fields(), &theirs);
        head.set(names::SERVER, FieldValue::from_static("b"));
        assert_eq!(theirs.get(names::SERVER), Some(&b"a"[..]));
    }

    #[test]
    fn dates_and_tags() {
        let mut head = ResponseHead::new(StatusCode::OK);
        head.last_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(head.fields().get(names::LAST_MODIFIED), Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..]));
        head.last_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 60));
        assert_eq!(head.fields().get_all(names::LAST_MODIFIED).count(), 1);
        assert!(!head.etag("a\"b", EtagKind::Strong) && !head.etag("a b", EtagKind::Strong));
        assert!(head.etag("ab", EtagKind::Strong));
        assert_eq!(head.fields().get(names::ETAG), Some(&b"\"ab\""[..]));
        head.cache_control(FieldValue::from_static("max-age=1"));
        head.cache_control(FieldValue::from_static("no-store"));
        assert_eq!(
            head.fields().get_all(names::CACHE_CONTROL).collect::<Vec<_>>(),
            [b"no-store"],
            "one line, the last"
        );
        head.redirect(StatusCode::FOUND, FieldValue::from_static("/x"));
        assert_eq!((head.status(), head.fields().get(names::LOCATION)), (StatusCode::FOUND, Some(&b"/x"[..])));
    }
}
