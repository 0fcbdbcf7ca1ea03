//! Interned field names: one byte instead of a string, found without hashing the whole name.
//!
//! `name/table.rs` lists the names. A lookup mixes the name's length and its first and last eight bytes, folded to
//! lower case, with a multiplicative hash. The multiplier was searched for offline and gives every registered name a
//! slot of its own (the build fails if two names share a slot). The candidate in the slot is then compared exactly.

/// A registered field name (RFC 9110 §16.3.1 and common practice).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KnownName(u8);

macro_rules! known_names {
    ($($name:ident $wire:literal $lower:literal;)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "only counts; `names` is public")]
        enum NameIndex { $($name,)+ }

        /// One constant for each registered name.
        pub mod names {
            use super::{KnownName, NameIndex};
            $(#[doc = concat!("`", $wire, "`")]
            pub const $name: KnownName = KnownName(NameIndex::$name as u8);)+
        }

        static WIRE: [&str; COUNT] = [$($wire,)+];
        const WIRE_CONST: [&str; COUNT] = [$($wire,)+];
        static LOWER: [&str; COUNT] = [$($lower,)+];
        const LOWER_CONST: [&str; COUNT] = [$($lower,)+];
        const COUNT: usize = [$($lower,)+].len();
    };
}

include!("name/table.rs");

impl KnownName {
    /// The number of registered names; [`KnownName::index`] is always less.
    pub const COUNT: usize = COUNT;

    /// Iterates over all registered names, ordered by index.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..COUNT as u8).map(Self)
    }

    /// Looks a name up, ignoring case; `None` when it is not registered. O(1) for the lookup and O(n) for one
    /// comparison.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::at_start(name, name.len())
    }

    /// Looks up the name that the first `len` bytes of `rest` spell. Cheaper than [`KnownName::parse`] if `rest` has
    /// at least eight bytes, because the name is then read as whole words. Returns `None` also when `len` exceeds
    /// `rest`.
    #[inline]
    #[must_use]
    pub fn at_start(rest: &[u8], len: usize) -> Option<Self> {
        if len == 0 || len > LEN_MAX || len > rest.len() {
            return None;
        }
        // A name shorter than eight bytes is one word, with the bytes past its end masked off.
        let (first, last) = if len >= 8 {
            (word(rest, 0), word(rest, len - 8))
        } else {
            let first =
                if rest.len() >= 8 { word(rest, 0) & (u64::MAX >> (64 - 8 * len)) } else { short(&rest[..len]) };
            (first, first)
        };
        let place = PLACES[slot(fold(first, len), fold(last, len), len)];
        let shape = &SHAPES[usize::from(place)];
        // The three comparisons are combined into one branch, which is almost never taken.
        let differs = (first | shape.first_mask) ^ shape.first
            | (last | shape.last_mask) ^ shape.last
            | (usize::from(shape.len) ^ len) as u64;
        let same = differs == 0
            && (len <= 16 || rest[8..len - 8].eq_ignore_ascii_case(&LOWER[usize::from(place)].as_bytes()[8..len - 8]));
        if same { Some(Self(place)) } else { None }
    }

    /// The canonical spelling: `Content-Type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let wire = self.wire();
        &wire[..wire.len() - 2]
    }

    /// The canonical spelling with the colon and the space that follow it in HTTP/1.1: `Content-Type: `.
    #[inline]
    #[must_use]
    pub fn wire(self) -> &'static str {
        WIRE[usize::from(self.0)]
    }

    /// Returns [`KnownName::wire`] padded with spaces to a fixed length, and its unpadded length. A copy of a fixed
    /// length compiles to a few moves; a copy of a variable length is a call.
    #[inline]
    pub(crate) fn wire_padded(self) -> (&'static [u8; WIRE_MAX], usize) {
        (&PADDED[usize::from(self.0)], self.wire().len())
    }

    /// The lower-case spelling: `content-type`.
    #[must_use]
    pub fn lower(self) -> &'static str {
        LOWER[usize::from(self.0)]
    }

    /// The name's index, less than [`KnownName::COUNT`]. Stable within one build only.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether the field may be in a trailer section. Fields that frame, route, modify or authenticate a message, or
    /// that describe how to process its content, may not (RFC 9110 §6.5.1): a recipient that merges trailers into the
    /// header section would act on them.
    #[inline]
    #[must_use]
    pub fn may_trail(self) -> bool {
        !MAY_NOT_TRAIL.contains(&self)
    }

    /// The name with this index, which must be less than `COUNT`.
    pub(crate) const fn of_index(index: u8) -> Self {
        assert!((index as usize) < COUNT);
        Self(index)
    }
}

impl std::fmt::Debug for KnownName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

const MAY_NOT_TRAIL: [KnownName; 36] = [
    names::AUTHORIZATION,
    names::CACHE_CONTROL,
    names::CLIENT_CERT,
    names::CLIENT_CERT_CHAIN,
    names::CONNECTION,
    names::CONTENT_ENCODING,
    names::CONTENT_LENGTH,
    names::CONTENT_RANGE,
    names::CONTENT_TYPE,
    names::COOKIE,
    names::EXPECT,
    names::FORWARDED,
    names::HOST,
    names::HTTP2_SETTINGS,
    names::IF_MATCH,
    names::IF_MODIFIED_SINCE,
    names::IF_NONE_MATCH,
    names::IF_RANGE,
    names::IF_UNMODIFIED_SINCE,
    names::KEEP_ALIVE,
    names::MAX_FORWARDS,
    names::PRAGMA,
    names::PROXY_AUTHENTICATE,
    names::PROXY_AUTHORIZATION,
    names::PROXY_CONNECTION,
    names::RANGE,
    names::TE,
    names::TRAILER,
    names::TRANSFER_ENCODING,
    names::UPGRADE,
    names::WWW_AUTHENTICATE,
    names::X_FORWARDED_FOR,
    names::X_FORWARDED_HOST,
    names::X_FORWARDED_PORT,
    names::X_FORWARDED_PROTO,
    names::X_REAL_IP,
];

const LEN_MAX: usize = 40;
pub(crate) const WIRE_MAX: usize = 48;
const CASE: u64 = 0x2020_2020_2020_2020;
const SLOTS: usize = 1024;
// Found by a search over random odd multipliers; `places` checks at compile time that no two names share a slot.
const MULTIPLIER: u64 = 0xecc7_0ca6_5cb0_f559;
const LEN_SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The words and length that a candidate is compared with. A mask has 0x20 at each letter of the name and 0
/// elsewhere, so that case folding applies to letters only: CR never becomes '-'.
struct Shape {
    first: u64,
    first_mask: u64,
    last: u64,
    last_mask: u64,
    len: u8,
}

static SHAPES: [Shape; COUNT] = shapes();
static PLACES: [u8; SLOTS] = places();
static PADDED: [[u8; WIRE_MAX]; COUNT] = {
    let mut padded = [[b' '; WIRE_MAX]; COUNT];
    let mut name = 0;
    while name < COUNT {
        let wire = WIRE_CONST[name].as_bytes();
        let mut at = 0;
        while at < wire.len() {
            padded[name][at] = wire[at];
            at += 1;
        }
        name += 1;
    }
    padded
};

#[inline]
const fn slot(first: u64, last: u64, len: usize) -> usize {
    let mixed = first ^ last.rotate_left(7) ^ (len as u64).wrapping_mul(LEN_SPREAD);
    (mixed.wrapping_mul(MULTIPLIER) >> 54) as usize
}

#[inline]
const fn fold(word: u64, len: usize) -> u64 {
    word | if len >= 8 { CASE } else { CASE & (u64::MAX >> (64 - 8 * len)) }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cold]
fn short(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

const fn shapes() -> [Shape; COUNT] {
    let mut shapes = [const { Shape { first: 0, first_mask: 0, last: 0, last_mask: 0, len: 0 } }; COUNT];
    let mut name = 0;
    while name < COUNT {
        let lower = LOWER_CONST[name].as_bytes();
        assert!(!lower.is_empty() && lower.len() <= LEN_MAX);
        let (first, first_mask) = lower_word(lower, 0);
        let (last, last_mask) = lower_word(lower, lower.len().saturating_sub(8));
        shapes[name] = Shape { first, first_mask, last, last_mask, len: lower.len() as u8 };
        name += 1;
    }
    shapes
}

const fn lower_word(lower: &[u8], at: usize) -> (u64, u64) {
    let (mut word, mut mask, mut i) = (0u64, 0u64, 0);
    while i < 8 && at + i < lower.len() {
        let byte = lower[at + i];
        assert!(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        word |= (byte as u64) << (8 * i);
        if byte.is_ascii_lowercase() {
            mask |= 0x20 << (8 * i);
        }
        i += 1;
    }
    (word, mask)
}

const fn places() -> [u8; SLOTS] {
    // An empty slot points at the first name, and the exact comparison then rejects it.
    let mut places = [0; SLOTS];
    let mut taken = [false; SLOTS];
    let mut name = 0;
    while name < COUNT {
        let lower = LOWER_CONST[name].as_bytes();
        let first = lower_word(lower, 0).0;
        let last = lower_word(lower, lower.len().saturating_sub(8)).0;
        // The same mixing as in `at_start`, evaluated at compile time.
        let slot = slot(fold(first, lower.len()), fold(last, lower.len()), lower.len());
        assert!(!taken[slot], "two registered names share a slot: search for another multiplier");
        taken[slot] = true;
        places[slot] = name as u8;
        name += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_in_any_case_and_no_other_text_is() {
        for (index, &lower) in LOWER.iter().enumerate() {
            let known = KnownName(index as u8);
            assert_eq!(known.as_str().to_ascii_lowercase(), lower);
            for spelling in [lower.to_owned(), lower.to_ascii_uppercase(), known.as_str().to_owned()] {
                assert_eq!(KnownName::parse(spelling.as_bytes()), Some(known));
                let padded = format!("{spelling}: some value");
                assert_eq!(KnownName::at_start(padded.as_bytes(), spelling.len()), Some(known));
            }
            // Replace each byte by each other byte: the name is still found only if the change is one of case.
            for at in 0..lower.len() {
                for byte in 0..=255u8 {
                    let mut changed = lower.as_bytes().to_vec();
                    changed[at] = byte;
                    let want = changed.eq_ignore_ascii_case(lower.as_bytes());
                    assert_eq!(KnownName::parse(&changed) == Some(known), want, "{lower} {at} {byte}");
                }
            }
        }
        assert!(KnownName::all().enumerate().all(|(index, known)| known.index() == index));
        assert_eq!(KnownName::all().len(), COUNT);
        assert_eq!(KnownName::parse(b""), None);
        assert_eq!(KnownName::parse(b"X-Unheard-Of"), None);
        assert_eq!(KnownName::at_start(b"Host", 9), None);
    }
}
