//! A request's head: one arena of bytes, and the ranges of its parts.

use std::ops::Range;

use crate::map::FieldMap;
use crate::method::Method;
use crate::name::names;
use crate::syntax::is_token;
use crate::target::{Parts, Target, TargetError, encode, is_host_port};
use crate::version::Version;

/// A request's head. It is reused for many requests: clearing it keeps its memory.
///
/// A machine fills it in one of two ways. HTTP/1 records the fields' ranges in [`Head::fields_mut`] and then calls
/// [`Head::fill`] with the bytes of the whole head. HTTP/2 calls the setters one by one.
#[derive(Clone, Debug, Default)]
pub struct Head {
    fields: FieldMap,
    method: MethodText,
    target: TextRange,
    parts: Parts,
    target_is_sensitive: bool,
    version: Version,
    // Holds the method and target if they were set separately, encoded or rewritten.
    own: Vec<u8>,
}

/// A range of the field map's arena (`Read`) or of `Head::own` (`Own`).
#[derive(Clone, Copy, Debug)]
enum TextRange {
    Read(u32, u32),
    Own(u32, u32),
}

impl Default for TextRange {
    fn default() -> Self {
        Self::Own(0, 0)
    }
}

#[derive(Clone, Copy, Debug)]
enum MethodText {
    Named(Method<'static>),
    Spelled(TextRange),
}

impl Default for MethodText {
    fn default() -> Self {
        Self::Named(Method::Get)
    }
}

impl Head {
    /// An empty head: GET, an empty target, no fields. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Resets the head to [`Head::new`]; keeps the memory. O(1).
    #[inline]
    pub fn clear(&mut self) {
        self.fields.clear_all();
        self.own.clear();
        self.method = MethodText::default();
        self.target = TextRange::default();
        self.parts = Parts::default();
        self.target_is_sensitive = false;
        self.version = Version::default();
    }

    /// Becomes a copy of another head and reuses the memory of this one.
    pub fn copy_from(&mut self, other: &Self) {
        self.fields.copy_with_line_from(&other.fields);
        self.own.clone_from(&other.own);
        (self.method, self.target, self.parts, self.version) = (other.method, other.target, other.parts, other.version);
        self.target_is_sensitive = other.target_is_sensitive;
    }

    /// Shrinks the memory to about `bytes_max` bytes, or to the part in use if that is larger.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        self.own.shrink_to(bytes_max / 4);
        self.fields.shrink_to(bytes_max.saturating_sub(self.own.capacity()));
    }

    /// The method; GET if it was not set.
    #[must_use]
    pub fn method(&self) -> Method<'_> {
        match self.method {
            MethodText::Named(method) => method,
            MethodText::Spelled(place) => Method::Other(self.text(place)),
        }
    }

    /// Sets the method. A method without a variant of its own is copied.
    pub fn set_method(&mut self, method: Method<'_>) {
        self.method = match Method::known(method.as_str().as_bytes()) {
            Some(named) => MethodText::Named(named),
            None => MethodText::Spelled(self.keep(method.as_str().as_bytes())),
        };
    }

    /// The request target; empty if it was not set.
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        Target::of(self.text(self.target), self.parts)
    }

    /// As [`Target::as_str`], without the UTF-8 check.
    #[inline]
    #[must_use]
    pub fn target_bytes(&self) -> &[u8] {
        self.bytes_at(self.target)
    }

    /// As [`Target::path`], without the UTF-8 check.
    #[inline]
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.parts.path_of(self.bytes_at(self.target))
    }

    /// As [`Target::path_is_escaped`], without the UTF-8 check.
    #[must_use]
    pub const fn path_is_escaped(&self) -> bool {
        self.parts.escaped
    }

    /// Sets the target. The previous target stays in memory until [`Head::clear`] and counts in [`Head::bytes`].
    /// Bytes that a URI may not hold but some clients send are percent-encoded, see [`Target::parse`]. On failure the
    /// head is unchanged.
    pub fn set_target(&mut self, target: impl AsRef<[u8]>) -> Result<(), TargetError> {
        let target = target.as_ref();
        match Parts::of(target) {
            Ok(parts) => {
                self.parts = parts;
                self.target = self.keep(target);
                Ok(())
            }
            Err(fault) => self.set_encoded(target, fault),
        }
    }

    /// Percent-encodes a target that did not parse, and sets it if it parses then.
    #[cold]
    fn set_encoded(&mut self, target: &[u8], fault: TargetError) -> Result<(), TargetError> {
        let from = self.own.len();
        encode(target, &mut self.own);
        let parts = if fault == TargetError::Byte { Parts::of(&self.own[from..]) } else { Err(fault) };
        match parts {
            Ok(parts) => {
                self.parts = parts;
                self.target = TextRange::Own(from as u32, self.own.len() as u32);
                Ok(())
            }
            Err(fault) => {
                self.own.truncate(from);
                Err(fault)
            }
        }
    }

    /// Whether a sender must not let the target be indexed (RFC 7541 §6.2.3).
    #[must_use]
    pub const fn target_is_sensitive(&self) -> bool {
        self.target_is_sensitive
    }

    /// Marks the target as sensitive, and those that replace it.
    pub fn mark_target_sensitive(&mut self) {
        self.target_is_sensitive = true;
    }

    /// The version that carried the request; HTTP/1.1 if it was not set.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the version that carried the request.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The header fields.
    #[must_use]
    pub fn fields(&self) -> &FieldMap {
        &self.fields
    }

    /// The header fields, mutable.
    #[inline]
    pub fn fields_mut(&mut self) -> &mut FieldMap {
        &mut self.fields
    }

    /// The authority that the request is for: the target's if it has one, else the Host field's value (RFC 9112
    /// §3.2.2, §3.3). `None` without either.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        if self.parts.names_authority() {
            return self.target().authority();
        }
        std::str::from_utf8(self.fields.get(names::HOST)?).ok()
    }

    /// As [`Head::authority`], without the UTF-8 check.
    #[must_use]
    pub fn authority_bytes(&self) -> Option<&[u8]> {
        if self.parts.names_authority() {
            return self.target().authority().map(str::as_bytes);
        }
        self.fields.get(names::HOST)
    }

    /// The authority to which a client may send the head: not empty (RFC 9110 §4.2.1), and a host with an optional
    /// port.
    #[must_use]
    pub fn sendable_authority(&self) -> Option<&str> {
        self.authority().filter(|authority| !authority.is_empty() && is_host_port(authority.as_bytes()))
    }

    /// Whether the method and all field names are tokens. Those of a parsed head are; a head that was built may hold
    /// any string, so a client checks it before it writes. O(1) without unregistered names, else O(fields).
    #[must_use]
    pub fn names_are_tokens(&self) -> bool {
        is_token(self.method().as_str().as_bytes()) && self.fields.unregistered().all(|name| is_token(name.as_bytes()))
    }

    /// Bytes in use by fields, method and target, overwritten ones included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.fields.bytes() + self.own.len()
    }

    /// Completes a head whose fields were recorded by range: copies `bytes` once, of which the first `line` are the
    /// request line. `method` and `target` are ranges of `bytes`; the caller has checked that the method is a token.
    /// Fails if the target is invalid; the caller must clear the head then.
    ///
    /// # Panics
    /// If a range exceeds `bytes`.
    #[inline]
    pub fn fill(
        &mut self,
        bytes: &[u8],
        line: usize,
        method: Range<usize>,
        target: Range<usize>,
        version: Version,
    ) -> Result<(), TargetError> {
        self.method = match Method::known(&bytes[method.clone()]) {
            Some(named) => MethodText::Named(named),
            None => MethodText::Spelled(TextRange::Read(method.start as u32, method.end as u32)),
        };
        match Parts::of(&bytes[target.clone()]) {
            Ok(parts) => {
                self.parts = parts;
                self.target = TextRange::Read(target.start as u32, target.end as u32);
            }
            Err(fault) => self.set_encoded(&bytes[target], fault)?,
        }
        self.version = version;
        self.fields.fill(bytes, line as u32);
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> TextRange {
        let from = self.own.len() as u32;
        self.own.extend_from_slice(bytes);
        TextRange::Own(from, self.own.len() as u32)
    }

    fn text(&self, place: TextRange) -> &str {
        std::str::from_utf8(self.bytes_at(place)).unwrap_or_default()
    }

    fn bytes_at(&self, place: TextRange) -> &[u8] {
        match place {
            TextRange::Read(from, to) => self.fields.line(from, to),
            TextRange::Own(from, to) => &self.own[from as usize..to as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldValue;

    #[test]
    fn a_rewritten_head_returns_the_last_values() {
        let mut head = Head::new();
        head.set_method(Method::Other("BREW"));
        head.set_target("/a?b").unwrap();
        head.set_target("http://x.test/c").unwrap();
        assert!(head.set_target("no target").is_err());
        head.fields_mut().insert(names::HOST, FieldValue::from_static("y.test"));
        assert_eq!((head.method().as_str(), head.target().path()), ("BREW", "/c"));
        assert_eq!(head.authority(), Some("x.test"));
        head.set_target("/d").unwrap();
        assert_eq!(head.authority(), Some("y.test"));
        head.clear();
        assert_eq!((head.method(), head.target().as_str(), head.fields().len()), (Method::Get, "", 0));
        assert_eq!(head.authority(), None);
    }

    #[test]
    fn a_copy_replaces_any_earlier_contents() {
        let bytes = b"BREW /pot HTTP/1.1\r\nA: b\r\n\r\n";
        let mut read = Head::new();
        read.fields_mut().index_other(20, 1, 23, 1);
        read.fill(bytes, 20, 0..4, 5..9, Version::Http11).unwrap();
        let mut changed = Head::new();
        changed.set_method(Method::Other("OTHER"));
        changed.set_target("http://x.test/c?d").unwrap();
        changed.set_version(Version::Http10);
        changed.fields_mut().insert(names::HOST, FieldValue::from_static("y.test"));
        let mut copy = Head::new();
        for from in [&read, &changed, &read, &Head::new(), &changed] {
            copy.copy_from(from);
            let all = |head: &Head| {
                let fields: Vec<_> = head.fields().iter().map(|(n, v)| (n.as_str().to_owned(), v.to_vec())).collect();
                (head.method().as_str().to_owned(), head.target().as_str().to_owned(), head.version(), fields)
            };
            assert_eq!(all(&copy), all(from));
            copy.fields_mut().clear();
            assert_eq!((copy.method(), copy.path()), (from.method(), from.path()));
            copy.set_target("/else").unwrap();
        }
    }

    #[test]
    fn clearing_the_fields_keeps_the_request_line() {
        let bytes = b"BREW /pot HTTP/1.1\r\nA: b\r\n\r\n";
        let mut head = Head::new();
        head.fields_mut().index_other(20, 1, 23, 1);
        head.fill(bytes, 20, 0..4, 5..9, Version::Http11).unwrap();
        assert_eq!(head.fields().iter().next(), Some((crate::NameRef::Other("a"), &b"b"[..])));
        head.fields_mut().clear();
        head.fields_mut().insert(names::HOST, FieldValue::from_static("y.test"));
        assert_eq!((head.method().as_str(), head.target().as_str()), ("BREW", "/pot"));
        assert_eq!(head.fields().get(names::HOST), Some(&b"y.test"[..]));
    }
}
