//! A request's head: octets in one arena, and where in them what lies.

use std::ops::Range;

use crate::map::FieldMap;
use crate::method::Method;
use crate::name::names;
use crate::target::{BadTarget, Parts, Target};
use crate::version::Version;

/// A request's head. Made once and filled again and again: clearing it keeps its memory.
///
/// A machine fills it in one of two ways: HTTP/1 calls [`Head::fill`] with the octets of the whole head, after having
/// recorded the fields' ranges in [`Head::fields_mut`]; HTTP/2 calls the setters one by one.
#[derive(Clone, Debug, Default)]
pub struct Head {
    fields: FieldMap,
    method: Kind,
    target: Place,
    parts: Parts,
    version: Version,
    // Method and target that were set one by one or rewritten lie here.
    own: Vec<u8>,
}

/// Octets of the field map's arena, or of `own`.
#[derive(Clone, Copy, Debug)]
enum Place {
    Read(u32, u32),
    Own(u32, u32),
}

impl Default for Place {
    fn default() -> Self {
        Self::Own(0, 0)
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Named(Method<'static>),
    Spelled(Place),
}

impl Default for Kind {
    fn default() -> Self {
        Self::Named(Method::Get)
    }
}

impl Head {
    /// A head of nothing: GET, no target, no fields. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, keeps the memory. O(1).
    #[inline]
    pub fn clear(&mut self) {
        self.fields.clear_all();
        self.own.clear();
        self.method = Kind::default();
        self.target = Place::default();
        self.parts = Parts::default();
        self.version = Version::default();
    }

    /// Becomes a copy of another head, in the memory that is there.
    pub fn copy_from(&mut self, other: &Self) {
        self.fields.copy_with_line_from(&other.fields);
        self.own.clone_from(&other.own);
        (self.method, self.target, self.parts, self.version) = (other.method, other.target, other.parts, other.version);
    }

    /// Gives memory beyond `octets_max` back, as far as it is not in use.
    pub fn give_back(&mut self, octets_max: usize) {
        self.own.shrink_to(octets_max / 4);
        self.fields.give_back(octets_max.saturating_sub(self.own.capacity()));
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method<'_> {
        match self.method {
            Kind::Named(method) => method,
            Kind::Spelled(place) => Method::Other(self.text(place)),
        }
    }

    /// Sets the method.
    pub fn set_method(&mut self, method: Method<'_>) {
        self.method = match Method::known(method.as_str().as_bytes()) {
            Some(named) => Kind::Named(named),
            None => Kind::Spelled(self.keep(method.as_str().as_bytes())),
        };
    }

    /// What is asked for. Empty before a target was set.
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        Target::of(self.text(self.target), self.parts)
    }

    /// As [`Target::as_str`], without looking whether the octets are text.
    #[inline]
    #[must_use]
    pub fn target_octets(&self) -> &[u8] {
        self.octets_at(self.target)
    }

    /// As [`Target::path`], without looking whether the octets are text.
    #[inline]
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.parts.path_of(self.octets_at(self.target))
    }

    /// As [`Target::path_is_escaped`], without looking at the text.
    #[must_use]
    pub const fn path_is_escaped(&self) -> bool {
        self.parts.escaped
    }

    /// Sets the target; what stood there before stays in memory until [`Head::clear`] and counts in [`Head::octets`].
    /// On failure nothing changes.
    pub fn set_target(&mut self, target: impl AsRef<[u8]>) -> Result<(), BadTarget> {
        let target = target.as_ref();
        self.parts = Parts::of(target)?;
        self.target = self.keep(target);
        Ok(())
    }

    /// The version that carried the request.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the version.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &FieldMap {
        &self.fields
    }

    /// The fields, to change.
    #[inline]
    pub fn fields_mut(&mut self) -> &mut FieldMap {
        &mut self.fields
    }

    /// The authority that the request is for: the target's where it has one, else the Host field's (RFC 9112 §3.2.2, §3.3).
    /// `None` without either.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        if self.parts.names_authority() {
            return self.target().authority();
        }
        std::str::from_utf8(self.fields.get(names::HOST)?).ok()
    }

    /// Octets of memory in use, overwritten ones included.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.fields.octets() + self.own.len()
    }

    /// Takes over a head whose fields have been recorded by range: one copy of its octets, of which the first `line` are the
    /// request line's. `method` and `target` are ranges of them; the caller has checked that the method is a token. Answers
    /// what is wrong with the target; the head is then to be cleared.
    ///
    /// # Panics
    /// When a range passes the end of `octets`.
    #[inline]
    pub fn fill(
        &mut self,
        octets: &[u8],
        line: usize,
        method: Range<usize>,
        target: Range<usize>,
        version: Version,
    ) -> Result<(), BadTarget> {
        self.method = match Method::known(&octets[method.clone()]) {
            Some(named) => Kind::Named(named),
            None => Kind::Spelled(Place::Read(method.start as u32, method.end as u32)),
        };
        self.parts = Parts::of(&octets[target.clone()])?;
        self.target = Place::Read(target.start as u32, target.end as u32);
        self.version = version;
        self.fields.fill(octets, line as u32);
        Ok(())
    }

    fn keep(&mut self, octets: &[u8]) -> Place {
        let from = self.own.len() as u32;
        self.own.extend_from_slice(octets);
        Place::Own(from, self.own.len() as u32)
    }

    fn text(&self, place: Place) -> &str {
        std::str::from_utf8(self.octets_at(place)).unwrap_or_default()
    }

    fn octets_at(&self, place: Place) -> &[u8] {
        match place {
            Place::Read(from, to) => self.fields.line(from, to),
            Place::Own(from, to) => &self.own[from as usize..to as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldValue;

    #[test]
    fn a_rewritten_head_says_what_it_was_last_told() {
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
    fn a_copy_is_as_the_first_whatever_was_there_before() {
        let octets = b"BREW /pot HTTP/1.1\r\nA: b\r\n\r\n";
        let mut read = Head::new();
        read.fields_mut().index_other(20, 1, 23, 1);
        read.fill(octets, 20, 0..4, 5..9, Version::Http11).unwrap();
        let mut told = Head::new();
        told.set_method(Method::Other("OTHER"));
        told.set_target("http://x.test/c?d").unwrap();
        told.set_version(Version::Http10);
        told.fields_mut().insert(names::HOST, FieldValue::from_static("y.test"));
        let mut copy = Head::new();
        for from in [&read, &told, &read, &Head::new(), &told] {
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
        let octets = b"BREW /pot HTTP/1.1\r\nA: b\r\n\r\n";
        let mut head = Head::new();
        head.fields_mut().index_other(20, 1, 23, 1);
        head.fill(octets, 20, 0..4, 5..9, Version::Http11).unwrap();
        assert_eq!(head.fields().iter().next(), Some((crate::NameRef::Other("a"), &b"b"[..])));
        head.fields_mut().clear();
        head.fields_mut().insert(names::HOST, FieldValue::from_static("y.test"));
        assert_eq!((head.method().as_str(), head.target().as_str()), ("BREW", "/pot"));
        assert_eq!(head.fields().get(names::HOST), Some(&b"y.test"[..]));
    }
}
