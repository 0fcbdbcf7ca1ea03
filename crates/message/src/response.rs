//! A response's head: status and fields.

use std::io::Write as _;
use std::time::SystemTime;

use crate::cookie::Cookie;
use crate::field::{FieldLine, FieldValue, NameRef};
use crate::map::FieldMap;
use crate::name::{KnownName, names};
use crate::status::StatusCode;

/// The first second since 1970 that an HTTP date cannot express: the year has four digits (RFC 9110 §5.6.7).
pub const HTTP_DATE_SECONDS_END: u64 = 253_402_300_800;

/// The comparison that an entity tag supports (RFC 9110 §8.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtagKind {
    /// Equal tags mean identical bytes.
    Strong,
    /// Equal tags mean equivalent content.
    Weak,
}

/// A response's status and fields. It owns its fields: they are moved in, or copied once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    fields: FieldMap,
    status: StatusCode,
    scratch: Vec<u8>,
}

impl ResponseHead {
    /// A head without fields; does not allocate.
    #[must_use]
    pub const fn new(status: StatusCode) -> Self {
        Self { fields: FieldMap::new(), status, scratch: Vec::new() }
    }

    /// Replaces the fields by a copy of `fields` and reuses the memory of the old ones.
    pub fn copy_from(&mut self, fields: &FieldMap) {
        self.fields.copy_from(fields);
    }

    /// Resets the head to 200 without fields; keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.status = StatusCode::OK;
    }

    /// Shrinks the memory to about `bytes_max` bytes, or to the part in use if that is larger.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        self.scratch.clear();
        self.scratch.shrink_to(bytes_max / 4);
        self.fields.shrink_to(bytes_max - bytes_max / 4);
    }

    /// The status code.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Sets the status code.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// The fields as they were set. [`ResponseHead::sendable`] returns the ones that are sent.
    #[must_use]
    pub fn fields(&self) -> &FieldMap {
        &self.fields
    }

    /// The fields, mutable.
    pub fn fields_mut(&mut self) -> &mut FieldMap {
        &mut self.fields
    }

    /// Sets a field and removes all others of its name.
    pub fn set<'a>(&mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) {
        self.fields.insert(name, value);
    }

    /// Appends a field, even if there is one of that name.
    pub fn append<'a>(&mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) {
        self.fields.append(name, value);
    }

    /// Removes the fields of a name and returns their number.
    pub fn remove<'a>(&mut self, name: impl Into<NameRef<'a>>) -> usize {
        self.fields.remove(name)
    }

    /// Appends a Set-Cookie field.
    pub fn set_cookie(&mut self, cookie: &Cookie<'_>) {
        self.scratch.clear();
        cookie.write(&mut self.scratch);
        let value = FieldValue::parse(&self.scratch).expect("a cookie of checked parts is a field value");
        self.fields.append(names::SET_COOKIE, value);
    }

    /// Sets the status and Location of a redirect (RFC 9110 §15.4).
    pub fn set_redirect(&mut self, status: StatusCode, location: FieldValue<'_>) {
        self.status = status;
        self.fields.insert(names::LOCATION, location);
    }

    /// Sets Cache-Control and removes all others of that name (RFC 9111 §5.2).
    pub fn set_cache_control(&mut self, directives: FieldValue<'_>) {
        self.fields.insert(names::CACHE_CONTROL, directives);
    }

    /// Sets ETag from a tag without quotes. Returns `false` and sets no field if the tag holds a byte that it may not
    /// (RFC 9110 §8.8.3).
    pub fn set_etag(&mut self, tag: &str, kind: EtagKind) -> bool {
        if !tag.bytes().all(|byte| byte > b' ' && byte != b'"' && byte != 0x7f) {
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

    /// Sets Last-Modified, rounded down to the second (RFC 9110 §8.8.2). Does nothing for a time before 1970 or after
    /// the year 9999.
    pub fn set_last_modified(&mut self, time: SystemTime) {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs());
        if !seconds.is_ok_and(|seconds| seconds < HTTP_DATE_SECONDS_END) {
            return;
        }
        self.scratch.clear();
        write!(self.scratch, "{}", httpdate::HttpDate::from(time)).expect("a vector takes every write");
        let value = FieldValue::parse(&self.scratch).expect("a date is a field value");
        self.fields.insert(names::LAST_MODIFIED, value);
    }

    /// Iterates over the field lines to send. With 1xx, 204 and 304, which have no content, the fields that frame
    /// content are left out (RFC 9110 §8.6), with 304 also those that describe it (§15.4.5).
    pub fn sendable(&self) -> impl Iterator<Item = FieldLine<'_>> {
        let bare = self.status.forbids_content();
        let is_304 = self.status == StatusCode::NOT_MODIFIED;
        let is_left_out = move |name| frames_content(name) || is_304 && describes_content(name);
        self.fields.lines().filter(move |line| !bare || !matches!(line.name, NameRef::Known(name) if is_left_out(name)))
    }
}

fn frames_content(name: KnownName) -> bool {
    name == names::CONTENT_LENGTH || name == names::TRANSFER_ENCODING || name == names::TRAILER
}

fn describes_content(name: KnownName) -> bool {
    name == names::CONTENT_TYPE
        || name == names::CONTENT_ENCODING
        || name == names::CONTENT_LANGUAGE
        || name == names::CONTENT_RANGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rfc9110_15_4_5_no_content_length_without_content() {
        let mut head = ResponseHead::new(StatusCode::OK);
        head.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
        head.fields_mut().insert_number(names::CONTENT_LENGTH, 5);
        assert!(head.set_etag("x", EtagKind::Weak));
        assert_eq!(head.sendable().count(), 3);
        for (code, want) in [(100, 2), (103, 2), (204, 2), (304, 1)] {
            head.set_status(StatusCode::new(code).unwrap());
            let left: Vec<_> = head.sendable().map(|line| (line.name, line.value)).collect();
            assert_eq!((left.len(), left.last()), (want, Some(&(NameRef::Known(names::ETAG), &b"W/\"x\""[..]))));
        }
        assert_eq!(head.fields().len(), 3, "the fields themselves stay");
    }

    #[test]
    fn changes_to_a_copy_leave_the_original_map_unchanged() {
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
        head.set_last_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(head.fields().get(names::LAST_MODIFIED), Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..]));
        head.set_last_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 60));
        assert_eq!(head.fields().get_all(names::LAST_MODIFIED).count(), 1);
        assert!(!head.set_etag("a\"b", EtagKind::Strong) && !head.set_etag("a b", EtagKind::Strong));
        assert!(head.set_etag("ab", EtagKind::Strong));
        assert_eq!(head.fields().get(names::ETAG), Some(&b"\"ab\""[..]));
        head.set_cache_control(FieldValue::from_static("max-age=1"));
        head.set_cache_control(FieldValue::from_static("no-store"));
        assert_eq!(
            head.fields().get_all(names::CACHE_CONTROL).collect::<Vec<_>>(),
            [b"no-store"],
            "one line, the last"
        );
        head.set_redirect(StatusCode::FOUND, FieldValue::from_static("/x"));
        assert_eq!((head.status(), head.fields().get(names::LOCATION)), (StatusCode::FOUND, Some(&b"/x"[..])));
    }
}
