//! Field names and values (RFC 9110 §5.1, §5.5).

use crate::name::KnownName;
use crate::octets::{is_token, is_value};

/// A field name by reference. Two are equal when they spell the same name in any case (RFC 9110 §5.1).
#[derive(Clone, Copy, Debug)]
pub enum NameRef<'a> {
    /// A registered name.
    Known(KnownName),
    /// Any other token, as it was spelled. Never the spelling of a registered name when it comes from
    /// [`NameRef::parse`]; comparisons hold either way.
    Other(&'a str),
}

impl<'a> NameRef<'a> {
    /// Interns a name; `None` when the octets are no token. O(n).
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        match KnownName::parse(name) {
            Some(known) => Some(Self::Known(known)),
            None if is_token(name) => Some(Self::Other(std::str::from_utf8(name).ok()?)),
            None => None,
        }
    }

    /// The name: canonical when registered, as spelled otherwise.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Known(known) => known.as_str(),
            Self::Other(name) => name,
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

/// An owned field name, parsed once when a plan is built.
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
    /// A name from text; `None` when it is no token. Allocates for names that are not registered.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        NameRef::parse(name.as_bytes()).map(|name| {
            Self(match name {
                NameRef::Known(known) => Spelling::Known(known),
                NameRef::Other(name) => Spelling::Other(name.into()),
            })
        })
    }

    /// The name by reference.
    #[must_use]
    pub fn as_ref(&self) -> NameRef<'_> {
        match &self.0 {
            Spelling::Known(known) => NameRef::Known(*known),
            Spelling::Other(name) => NameRef::Other(name),
        }
    }

    /// The name's spelling, canonical when registered.
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

/// A field value whose octets may be sent: no control octet but HTAB, no white space at either end (RFC 9110 §5.5).
/// May be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldValue<'a>(&'a [u8]);

impl<'a> FieldValue<'a> {
    /// Checks the octets; `None` when they may not be sent as they are. O(n).
    #[must_use]
    pub const fn parse(value: &'a [u8]) -> Option<Self> {
        if is_value(value) { Some(Self(value)) } else { None }
    }

    /// A value from a literal.
    ///
    /// # Panics
    /// When the text may not be sent as a value; in a constant that is a compile error.
    #[must_use]
    pub const fn from_static(value: &'static str) -> FieldValue<'static> {
        match FieldValue::parse(value.as_bytes()) {
            Some(value) => value,
            None => panic!("not a field value"),
        }
    }

    /// The octets.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A value that owns its octets: checked once, sent often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedValue(Box<[u8]>);

impl OwnedValue {
    /// The value.
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
    fn rfc9110_5_5_values_hold_no_control_octet_and_no_white_space_at_the_ends() {
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
