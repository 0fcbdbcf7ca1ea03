//! Field names and values (RFC 9110 §5.1, §5.5).

use crate::name::KnownName;
use crate::syntax::{is_token, is_value};

/// A borrowed field name. Two are equal when they spell one name, ignoring case (RFC 9110 §5.1).
#[derive(Clone, Copy, Debug)]
pub enum NameRef<'a> {
    /// A registered name.
    Known(KnownName),
    /// Any other token, as spelled. [`NameRef::parse`] never puts a registered name here; comparisons are correct
    /// even if a caller does.
    Other(&'a str),
}

impl<'a> NameRef<'a> {
    /// Parses and interns a name; `None` when the bytes are not a token. O(n).
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        match KnownName::parse(name) {
            Some(known) => Some(Self::Known(known)),
            None if is_token(name) => Some(Self::Other(std::str::from_utf8(name).ok()?)),
            None => None,
        }
    }

    /// The name's spelling: canonical if the name is registered, else as received.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Known(known) => known.as_str(),
            Self::Other(name) => name,
        }
    }

    /// Whether a sender may write the field into a trailer section: [`KnownName::may_trail`], and a token, since
    /// [`NameRef::Other`] can hold any string.
    #[must_use]
    pub fn may_trail(self) -> bool {
        match self {
            Self::Known(known) => known.may_trail(),
            Self::Other(name) => is_token(name.as_bytes()),
        }
    }
}

impl PartialEq for NameRef<'_> {
    fn eq(&self, other: &NameRef<'_>) -> bool {
        match (self, other) {
            (Self::Known(a), NameRef::Known(b)) => a == b,
            _ => self.as_str().eq_ignore_ascii_case(other.as_str()),
        }
    }
}

impl Eq for NameRef<'_> {}

impl From<KnownName> for NameRef<'_> {
    fn from(name: KnownName) -> Self {
        Self::Known(name)
    }
}

impl<'a> From<&'a FieldName> for NameRef<'a> {
    fn from(name: &'a FieldName) -> Self {
        name.as_ref()
    }
}

/// A field line of a map (RFC 9110 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLine<'a> {
    /// The name.
    pub name: NameRef<'a>,
    /// The value.
    pub value: &'a [u8],
    /// Whether a sender must not let the field be indexed (RFC 7541 §6.2.3).
    pub is_sensitive: bool,
}

/// An owned field name, parsed once when the configuration is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(Spelling);

#[derive(Clone, Debug)]
enum Spelling {
    Known(KnownName),
    Other(Box<str>),
}

impl PartialEq for Spelling {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => a == b,
            (Self::Other(a), Self::Other(b)) => a.eq_ignore_ascii_case(b),
            _ => false,
        }
    }
}

impl Eq for Spelling {}

impl FieldName {
    /// Parses a name; `None` when it is not a token. Allocates if the name is not registered.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        NameRef::parse(name.as_bytes()).map(|name| {
            Self(match name {
                NameRef::Known(known) => Spelling::Known(known),
                NameRef::Other(name) => Spelling::Other(name.into()),
            })
        })
    }

    /// Borrows the name. O(1).
    #[must_use]
    pub fn as_ref(&self) -> NameRef<'_> {
        match &self.0 {
            Spelling::Known(known) => NameRef::Known(*known),
            Spelling::Other(name) => NameRef::Other(name),
        }
    }

    /// The name's spelling: canonical if registered, else as parsed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.as_ref().as_str()
    }
}

impl From<KnownName> for FieldName {
    fn from(name: KnownName) -> Self {
        Self(Spelling::Known(name))
    }
}

/// A field value that may be sent: no control byte except HTAB, no white space at either end (RFC 9110 §5.5). May be
/// empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldValue<'a>(&'a [u8]);

impl<'a> FieldValue<'a> {
    /// Checks the bytes; `None` when they are not a valid field value. O(n).
    #[must_use]
    pub const fn parse(value: &'a [u8]) -> Option<Self> {
        if is_value(value) { Some(Self(value)) } else { None }
    }

    /// Makes a value from a literal.
    ///
    /// # Panics
    /// When the text is not a valid field value; in a constant that is a compile error.
    #[must_use]
    pub const fn from_static(value: &'static str) -> FieldValue<'static> {
        match FieldValue::parse(value.as_bytes()) {
            Some(value) => value,
            None => panic!("not a field value"),
        }
    }

    /// The checked bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A value that owns its bytes: checked once, sent many times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedValue(Box<[u8]>);

impl OwnedValue {
    /// Borrows the value; not checked again.
    #[inline]
    #[must_use]
    pub const fn as_ref(&self) -> FieldValue<'_> {
        FieldValue(&self.0)
    }
}

impl From<FieldValue<'_>> for OwnedValue {
    fn from(value: FieldValue<'_>) -> Self {
        Self(value.0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn rfc9110_5_1_names_are_equal_in_any_case() {
        assert_eq!(NameRef::parse(b"content-TYPE"), Some(NameRef::Known(names::CONTENT_TYPE)));
        assert_eq!(NameRef::Other("X-a"), NameRef::Other("x-A"));
        assert_eq!(NameRef::Other("HOST"), NameRef::Known(names::HOST));
        assert_ne!(NameRef::Other("X-a"), NameRef::Other("X-b"));
        assert_eq!(NameRef::parse(b"a b"), None);
        assert_eq!(FieldName::parse("X-A"), FieldName::parse("x-a"));
        assert_eq!(FieldName::parse("x y"), None);
        assert_eq!(FieldName::parse("host").as_ref().map(FieldName::as_str), Some("Host"));
    }

    #[test]
    fn rfc9110_5_5_no_control_bytes_or_surrounding_white_space() {
        for (value, want) in [
            (&b""[..], true),
            (b"a\tb c", true),
            (b"D\xc3\xbc\xff", true),
            (b" a", false),
            (b"a\t", false),
            (b"a\rb", false),
            (b"a\nb", false),
            (b"a\0b", false),
            (b"a\x7fb", false),
        ] {
            assert_eq!(FieldValue::parse(value).is_some(), want, "{value:?}");
        }
        const VALUE: FieldValue<'static> = FieldValue::from_static("text/plain");
        assert_eq!(VALUE.as_bytes(), b"text/plain");
    }
}
