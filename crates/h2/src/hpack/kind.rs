//! The kind of a field name, without its bytes.

use causeway_message::KnownName;
use causeway_message::syntax::TOKEN;

use super::Name;

/// A name as the tables store it. Only [`NameKind::Other`] needs the name's bytes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Known(KnownName),
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
    OtherPseudo,
    Other,
    Invalid,
}

impl NameKind {
    /// Number of kinds with a number of their own: registered names and pseudo-fields.
    pub(super) const COUNT: usize = KnownName::COUNT + 6;

    /// Classifies a name. O(n).
    pub(super) fn of(name: &[u8]) -> Self {
        if let [b':', ..] = name {
            return match name {
                b":method" => Self::Method,
                b":scheme" => Self::Scheme,
                b":authority" => Self::Authority,
                b":path" => Self::Path,
                b":protocol" => Self::Protocol,
                b":status" => Self::Status,
                _ => Self::OtherPseudo,
            };
        }
        // RFC 9113 §8.2.1: names are lower-case tokens.
        let valid = name
            .iter()
            .fold(!name.is_empty(), |valid, &byte| valid & TOKEN[usize::from(byte)] & !byte.is_ascii_uppercase());
        match KnownName::parse(name) {
            _ if !valid => Self::Invalid,
            Some(known) => Self::Known(known),
            None => Self::Other,
        }
    }

    /// The name, if the kind determines it; else "".
    pub(super) fn spelling(self) -> &'static str {
        match self {
            Self::Known(known) => known.lower(),
            Self::Method => ":method",
            Self::Scheme => ":scheme",
            Self::Authority => ":authority",
            Self::Path => ":path",
            Self::Protocol => ":protocol",
            Self::Status => ":status",
            Self::OtherPseudo | Self::Other | Self::Invalid => "",
        }
    }

    /// The name of a decoded field; `bytes` is the stored name of [`NameKind::Other`].
    #[inline]
    pub(super) fn name(self, bytes: &[u8]) -> Name<'_> {
        match self {
            Self::Known(known) => Name::Known(known),
            Self::Method => Name::Method,
            Self::Scheme => Name::Scheme,
            Self::Authority => Name::Authority,
            Self::Path => Name::Path,
            Self::Protocol => Name::Protocol,
            Self::Status => Name::Status,
            Self::OtherPseudo => Name::OtherPseudo,
            // A token is ASCII, so the conversion does not fail.
            Self::Other => std::str::from_utf8(bytes).map_or(Name::Invalid, Name::Other),
            Self::Invalid => Name::Invalid,
        }
    }

    /// The kind's index, less than [`NameKind::COUNT`]. All kinds without a name of their own share the last one.
    #[inline]
    pub(super) const fn number(self) -> usize {
        KnownName::COUNT
            + match self {
                Self::Known(known) => return known.index(),
                Self::Method => 0,
                Self::Scheme => 1,
                Self::Authority => 2,
                Self::Path => 3,
                Self::Protocol => 4,
                Self::Status | Self::OtherPseudo | Self::Other | Self::Invalid => 5,
            }
    }
}
