//! An ordered list of fields in one arena.
//!
//! An entry is two ranges of the arena and the name's index. A registered name is found through a bitmap and a table
//! of first positions. Any other name is found by a linear scan, which the limit on fields bounds: there is no hash
//! table that a peer could attack with collisions.

use std::error::Error;
use std::fmt;

use crate::field::{FieldLine, FieldValue, NameRef};
use crate::list::List;
use crate::name::{KnownName, names};
use crate::syntax::{parse_number, write_number};

#[cfg(test)]
const _: () = assert!(size_of::<FieldEntry>() <= 16);
#[cfg(test)]
const _: () = assert!(size_of::<FieldMap>() <= 320);
const _: () = assert!(KnownName::COUNT <= WORDS * 64 && KnownName::COUNT < OTHER as usize);

const WORDS: usize = 4;
const OTHER: u8 = u8::MAX;
/// The table of first positions has one byte per name, so a position of 255 or more is stored as this value and
/// searched for.
const FIRST_MAX: u8 = u8::MAX;

/// The reason why a Content-Length cannot be used (RFC 9110 §8.6, RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentLengthError {
    /// Not digits only, or 2^63 or more.
    Malformed,
    /// More than one field line, even if the numbers are equal.
    Repeated,
}

impl fmt::Display for ContentLengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the Content-Length is not a number below 2^63",
            Self::Repeated => "more than one Content-Length",
        })
    }
}

impl Error for ContentLengthError {}

/// Header or trailer fields, in order. At most 65 535 fields and 4 GiB of arena.
#[derive(Clone)]
pub struct FieldMap {
    arena: Vec<u8>,
    entries: Vec<FieldEntry>,
    present: [u64; WORDS],
    // The names that occur more than once.
    repeated: [u64; WORDS],
    // Valid only where `present` has the bit set, so that clearing the map clears two short bitmaps and not this
    // table.
    first: [u8; KnownName::COUNT],
    // Length of the request line at the arena's start, which `clear` keeps.
    line_len: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct FieldEntry {
    name_at: u32,
    value_at: u32,
    value_len: u32,
    name_len: u16,
    known: u8,
    flags: EntryFlags,
}

/// Two small properties of an entry in one byte, which keeps the entry at 16 bytes: the lower seven bits are the slack,
/// the unused bytes after the value that a longer value may take. The highest bit marks a sensitive field.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct EntryFlags(u8);

impl EntryFlags {
    const SLACK_MAX: u8 = 0x7f;
    const SENSITIVE: u8 = 0x80;

    #[inline]
    fn slack(self) -> usize {
        usize::from(self.0 & Self::SLACK_MAX)
    }

    /// Slack that does not fit is wasted until the map is cleared.
    #[inline]
    fn set_slack(&mut self, bytes: usize) {
        let slack = u8::try_from(bytes).map_or(Self::SLACK_MAX, |slack| slack.min(Self::SLACK_MAX));
        self.0 = self.0 & Self::SENSITIVE | slack;
    }

    #[inline]
    fn is_sensitive(self) -> bool {
        self.0 & Self::SENSITIVE != 0
    }

    fn set_sensitive(&mut self) {
        self.0 |= Self::SENSITIVE;
    }

    /// Becomes sensitive if `other` is.
    #[inline]
    fn join_sensitive(&mut self, other: Self) {
        self.0 |= other.0 & Self::SENSITIVE;
    }
}

impl Default for FieldMap {
    fn default() -> Self {
        Self::new()
    }
}

impl FieldMap {
    /// An empty map; does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            arena: Vec::new(),
            entries: Vec::new(),
            present: [0; WORDS],
            repeated: [0; WORDS],
            first: [0; KnownName::COUNT],
            line_len: 0,
        }
    }

    /// Returns the first value of a name. O(1) for a registered name, O(entries) for any other.
    #[must_use]
    pub fn get<'a>(&self, name: impl Into<NameRef<'a>>) -> Option<&[u8]> {
        let at = self.position(name.into())?;
        Some(self.value(&self.entries[at]))
    }

    /// Iterates over all values of a name, in order. O(entries).
    pub fn get_all<'s, 'a: 's>(&'s self, name: impl Into<NameRef<'a>>) -> impl Iterator<Item = &'s [u8]> {
        let name = name.into();
        // `position` has already compared the first entry.
        let (first, rest) = match self.position(name) {
            Some(at) => (Some(&self.entries[at]), &self.entries[at + 1..]),
            None => (None, &[][..]),
        };
        first.into_iter().chain(rest.iter().filter(move |entry| self.is(entry, name))).map(|entry| self.value(entry))
    }

    /// Whether there is a field of this name. Costs a [`FieldMap::get`].
    #[must_use]
    pub fn contains<'a>(&self, name: impl Into<NameRef<'a>>) -> bool {
        self.position(name.into()).is_some()
    }

    /// Sets a field: replaces the value of the first field of that name and removes the further ones. Appends the
    /// field if there is no field of that name. A field that was sensitive remains so.
    ///
    /// # Panics
    /// If this is the 65 536th field, the name is longer than 65 535 bytes, or the arena would exceed 4 GiB.
    pub fn insert<'a>(&mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) {
        self.insert_bytes(name.into(), value.as_bytes());
    }

    /// Sets a field to a decimal number.
    ///
    /// # Panics
    /// As [`FieldMap::insert`].
    pub fn insert_number<'a>(&mut self, name: impl Into<NameRef<'a>>, number: u64) {
        let mut digits = [0; 20];
        self.insert_bytes(name.into(), write_number(number, &mut digits));
    }

    /// Appends a field, even if there is one of that name.
    ///
    /// # Panics
    /// As [`FieldMap::insert`].
    pub fn append<'a>(&mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) {
        self.append_bytes(name.into(), value.as_bytes());
    }

    /// Appends all values of a name to `out`, with commas between them (RFC 9110 §5.3). Returns whether there is any.
    pub fn write_joined(&self, name: NameRef<'_>, out: &mut Vec<u8>) -> bool {
        if let NameRef::Known(known) = name
            // The common case: one value, found without a scan of all fields.
            && !self.is_repeated(known)
        {
            let value = self.get(known);
            out.extend_from_slice(value.unwrap_or_default());
            return value.is_some();
        }
        let mut values = self.get_all(name);
        let Some(first) = values.next() else { return false };
        out.extend_from_slice(first);
        values.for_each(|value| {
            out.push(b',');
            out.extend_from_slice(value);
        });
        true
    }

    /// Whether there is more than one field of this name. O(1).
    #[inline]
    #[must_use]
    pub fn is_repeated(&self, name: KnownName) -> bool {
        let at = name.index();
        self.repeated[at >> 6] >> (at & 63) & 1 != 0
    }

    /// Whether the first field of this name is sensitive. O(1).
    #[must_use]
    pub fn is_sensitive(&self, name: KnownName) -> bool {
        self.position_of_known(name).is_some_and(|at| self.entries[at].flags.is_sensitive())
    }

    /// Removes all fields of this name and returns their number. O(entries).
    pub fn remove<'a>(&mut self, name: impl Into<NameRef<'a>>) -> usize {
        let name = name.into();
        let Some(from) = self.position(name) else { return 0 };
        self.remove_from(from, name).0
    }

    /// Keeps the fields for which `keep` returns `true`. O(entries).
    pub fn retain(&mut self, mut keep: impl FnMut(NameRef<'_>, &[u8]) -> bool) {
        let before = self.entries.len();
        let mut kept = 0;
        for at in 0..before {
            let entry = self.entries[at];
            if keep(self.name(&entry), self.value(&entry)) {
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        if kept < before {
            self.entries.truncate(kept);
            self.index_again();
        }
    }

    /// Iterates over the names that are not registered, in order and with repetitions. O(1) if there are no such
    /// names, else O(entries).
    pub fn unregistered(&self) -> impl Iterator<Item = &str> {
        let any = self.present[WORDS - 1] >> 63 != 0;
        let entries = if any { &self.entries[..] } else { &[] };
        entries.iter().filter(|entry| entry.known == OTHER).filter_map(|entry| match self.name(entry) {
            NameRef::Other(name) => Some(name),
            NameRef::Known(_) => None,
        })
    }

    /// Iterates over names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (NameRef<'_>, &[u8])> {
        self.entries.iter().map(|entry| (self.name(entry), self.value(entry)))
    }

    /// Iterates over the field lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = FieldLine<'_>> {
        self.entries.iter().map(|entry| FieldLine {
            name: self.name(entry),
            value: self.value(entry),
            is_sensitive: entry.flags.is_sensitive(),
        })
    }

    /// Whether both maps were built by identical operations, so that arena and entries match byte for byte. Identical
    /// maps are equal; equal maps need not be identical. O(bytes): a comparison of two buffers, with no work per
    /// field.
    #[inline]
    #[must_use]
    pub fn is_identical(&self, other: &Self) -> bool {
        self.arena == other.arena && self.entries == other.entries
    }

    /// The number of fields; a repeated name counts each time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all fields; keeps the memory. O(1).
    pub fn clear(&mut self) {
        self.entries.clear();
        self.arena.truncate(self.line_len as usize);
        self.present = [0; WORDS];
        self.repeated = [0; WORDS];
    }

    /// Becomes a copy of another map and reuses the memory of this one.
    pub fn copy_from(&mut self, other: &Self) {
        self.arena.clone_from(&other.arena);
        self.entries.clone_from(&other.entries);
        self.present = other.present;
        self.repeated = other.repeated;
        self.first = other.first;
        // The request line of `other`'s head is copied too, but no `Head` refers to it in this map.
        self.line_len = 0;
    }

    /// Becomes a copy of a head's map, including the request line at the start of its arena.
    pub(crate) fn copy_with_line_from(&mut self, other: &Self) {
        self.copy_from(other);
        self.line_len = other.line_len;
    }

    /// The buffer that holds all values and all unregistered names: one copy of it copies them all.
    #[must_use]
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Length of the arena in bytes, overwritten values included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    /// Bytes of memory that the map has allocated.
    #[must_use]
    pub fn bytes_capacity(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<FieldEntry>()
    }

    /// Shrinks the memory to about `bytes_max` bytes, or to the part in use if that is larger.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        if self.bytes_capacity() > bytes_max {
            self.entries.shrink_to(bytes_max / 4 / size_of::<FieldEntry>());
            self.arena.shrink_to(bytes_max.saturating_sub(self.entries.capacity() * size_of::<FieldEntry>()));
        }
    }

    /// The value of Content-Length (RFC 9110 §8.6); `None` without the field. An error if it is repeated, not a number,
    /// or at least 2^63: a peer with signed numbers would read another length.
    pub fn content_length(&self) -> Result<Option<u64>, ContentLengthError> {
        let Some(value) = self.get(names::CONTENT_LENGTH) else { return Ok(None) };
        if self.is_repeated(names::CONTENT_LENGTH) {
            return Err(ContentLengthError::Repeated);
        }
        let length = parse_number(value).filter(|length| *length <= i64::MAX as u64);
        length.map(Some).ok_or(ContentLengthError::Malformed)
    }

    /// Returns whether a request with these fields has content (RFC 9112 §6.3): Transfer-Encoding, or a Content-Length
    /// above 0.
    #[must_use]
    pub fn declares_content(&self) -> bool {
        self.contains(names::TRANSFER_ENCODING) || self.content_length().ok().flatten() > Some(0)
    }

    /// Iterates over the list elements of all field lines of this name (RFC 9110 §5.6.1).
    pub fn list<'s, 'a: 's>(&'s self, name: impl Into<NameRef<'a>>) -> impl Iterator<Item = &'s [u8]> {
        self.get_all(name).flat_map(List::new)
    }

    /// Whether a list element of this name equals `token`, ignoring case.
    #[must_use]
    pub fn has_token<'a>(&self, name: impl Into<NameRef<'a>>, token: &str) -> bool {
        let name = name.into();
        self.position(name).is_some() && self.list(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }

    fn insert_bytes(&mut self, name: NameRef<'_>, value: &[u8]) {
        let Some(at) = self.position(name) else { return self.append_bytes(name, value) };
        let (_, removed) = self.remove_from(at + 1, name);
        let old = self.entries[at];
        // A value that fits into the old value's range overwrites it, so that repeated rewriting does not grow the
        // arena.
        let room = old.value_len as usize + old.flags.slack();
        let (value_at, slack) = if value.len() <= room {
            self.arena[old.value_at as usize..][..value.len()].copy_from_slice(value);
            (old.value_at, room - value.len())
        } else {
            (self.push(value), 0)
        };
        let entry = &mut self.entries[at];
        entry.value_at = value_at;
        entry.value_len = value.len() as u32;
        entry.flags.set_slack(slack);
        // The new value may be made of those of the removed fields.
        entry.flags.join_sensitive(removed);
    }

    fn append_bytes(&mut self, name: NameRef<'_>, value: &[u8]) {
        let name = match name {
            NameRef::Other(spelled) => match KnownName::parse(spelled.as_bytes()) {
                Some(known) => NameRef::Known(known),
                None => name,
            },
            NameRef::Known(_) => name,
        };
        match name {
            NameRef::Known(known) => self.push_known(known, value),
            NameRef::Other(spelled) => self.push_other(spelled, value),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> u32 {
        let at = self.arena.len();
        assert!(u32::try_from(at + bytes.len()).is_ok(), "a field map of at most 4 GiB");
        self.arena.extend_from_slice(bytes);
        at as u32
    }

    /// Removes the fields of this name from a position on. Returns their number, and a mark if one of them was
    /// sensitive.
    fn remove_from(&mut self, from: usize, name: NameRef<'_>) -> (usize, EntryFlags) {
        let before = self.entries.len();
        let (mut kept, mut removed) = (from, EntryFlags::default());
        for at in from..before {
            let entry = self.entries[at];
            if self.is(&entry, name) {
                removed.join_sensitive(entry.flags);
            } else {
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        if kept < before {
            self.entries.truncate(kept);
            self.index_again();
        }
        (before - kept, removed)
    }

    fn index_again(&mut self) {
        self.present = [0; WORDS];
        self.repeated = [0; WORDS];
        for at in 0..self.entries.len() {
            let known = self.entries[at].known;
            if known == OTHER {
                self.note_other();
            } else {
                self.note(known, at);
            }
        }
    }

    #[inline]
    fn note(&mut self, known: u8, at: usize) {
        let (word, bit) = (usize::from(known >> 6), 1u64 << (known & 63));
        if self.present[word] & bit == 0 {
            self.present[word] |= bit;
            // A position that does not fit becomes FIRST_MAX, which means "search".
            self.first[usize::from(known)] = u8::try_from(at).unwrap_or(FIRST_MAX);
        } else {
            self.repeated[word] |= bit;
        }
    }

    // The last bit records that the map has unregistered names; `COUNT` is small enough to leave it free.
    #[inline]
    fn note_other(&mut self) {
        self.present[WORDS - 1] |= 1 << 63;
    }

    #[inline]
    fn has(&self, known: KnownName) -> bool {
        let at = known.index();
        self.present[at >> 6] >> (at & 63) & 1 != 0
    }

    #[inline]
    fn position(&self, name: NameRef<'_>) -> Option<usize> {
        match name {
            NameRef::Known(known) => self.position_of_known(known),
            NameRef::Other(spelled) => self.position_of_other(spelled.as_bytes()),
        }
    }

    #[inline]
    fn position_of_known(&self, known: KnownName) -> Option<usize> {
        if !self.has(known) {
            return None;
        }
        match self.first[known.index()] {
            // Position 255 or later: scan from there.
            FIRST_MAX => {
                let from = usize::from(FIRST_MAX);
                let found = self.entries[from..].iter().position(|entry| usize::from(entry.known) == known.index());
                found.map(|at| from + at)
            }
            first => Some(usize::from(first)),
        }
    }

    #[inline(never)]
    fn position_of_other(&self, name: &[u8]) -> Option<usize> {
        let any = self.present[WORDS - 1] >> 63 != 0;
        let entries = &self.entries[..if any { self.entries.len() } else { 0 }];
        let found = entries.iter().position(|entry| self.is_spelled(entry, name));
        // `NameRef::Other` may spell a registered name if a caller built it directly.
        found.or_else(|| KnownName::parse(name).and_then(|known| self.position_of_known(known)))
    }

    fn is(&self, entry: &FieldEntry, name: NameRef<'_>) -> bool {
        match name {
            NameRef::Known(known) => usize::from(entry.known) == known.index(),
            NameRef::Other(spelled) if entry.known == OTHER => self.is_spelled(entry, spelled.as_bytes()),
            // `NameRef::Other` may spell a registered name if a caller built it directly.
            NameRef::Other(spelled) => self.name(entry).as_str().eq_ignore_ascii_case(spelled),
        }
    }

    /// Whether `entry` has this unregistered name.
    #[inline]
    fn is_spelled(&self, entry: &FieldEntry, name: &[u8]) -> bool {
        let Some((&last, _)) = name.split_last() else { return false };
        if entry.known != OTHER || usize::from(entry.name_len) != name.len() {
            return false;
        }
        // Most names of one length differ in their last byte, which is cheap to compare first.
        let own = self.arena[entry.name_at as usize + name.len() - 1];
        own.eq_ignore_ascii_case(&last) && self.spelling(entry).eq_ignore_ascii_case(name)
    }

    fn name(&self, entry: &FieldEntry) -> NameRef<'_> {
        if entry.known == OTHER {
            NameRef::Other(std::str::from_utf8(self.spelling(entry)).unwrap_or_default())
        } else {
            NameRef::Known(KnownName::of_index(entry.known))
        }
    }

    fn spelling(&self, entry: &FieldEntry) -> &[u8] {
        &self.arena[entry.name_at as usize..][..usize::from(entry.name_len)]
    }

    #[inline]
    fn value(&self, entry: &FieldEntry) -> &[u8] {
        &self.arena[entry.value_at as usize..][..entry.value_len as usize]
    }
}

/// For the protocol machines: they record ranges while they scan the read buffer, and copy the bytes once at the end.
impl FieldMap {
    /// Records a field of a registered name whose value will be at this range of the arena. The caller has checked
    /// the value's bytes.
    ///
    /// # Panics
    /// If this is the 65 536th field.
    #[inline]
    pub fn index_known(&mut self, name: KnownName, value_at: u32, value_len: u32) {
        let at = self.entries.len();
        assert!(at < usize::from(u16::MAX), "a field map of at most 65535 fields");
        self.entries.push(FieldEntry {
            name_at: 0,
            value_at,
            value_len,
            name_len: 0,
            known: name.index() as u8,
            flags: EntryFlags::default(),
        });
        self.note(name.index() as u8, at);
    }

    /// Records a field of an unregistered name. The caller has checked that the name is a token and not registered.
    ///
    /// # Panics
    /// As [`FieldMap::index_known`].
    #[inline]
    pub fn index_other(&mut self, name_at: u32, name_len: u16, value_at: u32, value_len: u32) {
        assert!(self.entries.len() < usize::from(u16::MAX), "a field map of at most 65535 fields");
        self.entries.push(FieldEntry {
            name_at,
            value_at,
            value_len,
            name_len,
            known: OTHER,
            flags: EntryFlags::default(),
        });
        self.note_other();
    }

    /// Appends a field of a registered name. The caller has checked the value's bytes.
    ///
    /// # Panics
    /// If this is the 65 536th field, or the arena would exceed 4 GiB.
    #[inline]
    pub fn push_known(&mut self, name: KnownName, value: &[u8]) {
        let value_at = self.push(value);
        self.index_known(name, value_at, value.len() as u32);
    }

    /// Appends a field of an unregistered name. The caller has checked that the name is a token and not registered,
    /// and the value's bytes.
    ///
    /// # Panics
    /// As [`FieldMap::push_known`], and if the name is longer than 65 535 bytes.
    #[inline]
    pub fn push_other(&mut self, name: &str, value: &[u8]) {
        let name_len = u16::try_from(name.len()).expect("a field name of at most 65535 bytes");
        let name_at = self.push(name.as_bytes());
        let value_at = self.push(value);
        self.index_other(name_at, name_len, value_at, value.len() as u32);
    }

    /// Appends a copy of a field line. The caller has checked the bytes of one that is not from a map.
    ///
    /// # Panics
    /// As [`FieldMap::push_other`].
    #[inline]
    pub fn push_line(&mut self, line: FieldLine<'_>) {
        match line.name {
            NameRef::Known(known) => self.push_known(known, line.value),
            NameRef::Other(other) => self.push_other(other, line.value),
        }
        if line.is_sensitive {
            self.mark_last_sensitive();
        }
    }

    /// Marks the field that was appended last as sensitive: an intermediary that forwards it must not let it be indexed
    /// (RFC 7541 §6.2.3).
    #[cold]
    pub fn mark_last_sensitive(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.flags.set_sensitive();
        }
    }

    /// Marks the first field of this name as sensitive, if there is one. O(1).
    #[cold]
    pub fn mark_sensitive(&mut self, name: KnownName) {
        if let Some(at) = self.position_of_known(name) {
            self.entries[at].flags.set_sensitive();
        }
    }

    /// Appends `between` and `value` to the last field's value if that field has this name; else appends a field. An
    /// empty value adds nothing to another one. The caller has checked the value's bytes.
    ///
    /// # Panics
    /// If this is the 65 536th field, or the arena would exceed 4 GiB.
    #[inline]
    pub fn join_known(&mut self, name: KnownName, between: &[u8], value: &[u8]) {
        match self.entries.last_mut() {
            // The value can grow in place only while it is at the end of the arena.
            Some(last)
                if usize::from(last.known) == name.index()
                    && (last.value_at + last.value_len) as usize == self.arena.len() =>
            {
                // Nothing is between an empty value and another one, so that the result neither begins nor ends with a
                // separator.
                let between = if last.value_len == 0 || value.is_empty() { b"" } else { between };
                last.value_len += (between.len() + value.len()) as u32;
                self.arena.extend_from_slice(between);
                self.push(value);
            }
            _ => self.push_known(name, value),
        }
    }

    /// Merges all fields of a name into the first one, their values in order and separated by `between`, without the
    /// empty ones. O(bytes).
    ///
    /// # Panics
    /// If the arena would exceed 4 GiB.
    #[cold]
    pub fn join_repeated(&mut self, name: KnownName, between: &[u8]) {
        let Some(first) = self.position_of_known(name) else { return };
        let value_at = self.arena.len();
        let mut flags = EntryFlags::default();
        for at in first..self.entries.len() {
            let entry = self.entries[at];
            if usize::from(entry.known) != name.index() {
                continue;
            }
            // One sensitive part makes the whole sensitive.
            flags.join_sensitive(entry.flags);
            if entry.value_len > 0 {
                if self.arena.len() > value_at {
                    self.arena.extend_from_slice(between);
                }
                let from = entry.value_at as usize;
                self.arena.extend_from_within(from..from + entry.value_len as usize);
            }
        }
        // An empty push checks the 4 GiB bound.
        self.push(b"");
        let value_len = (self.arena.len() - value_at) as u32;
        let entry = &mut self.entries[first];
        (entry.value_at, entry.value_len, entry.flags) = (value_at as u32, value_len, flags);
        self.remove_from(first + 1, NameRef::Known(name));
    }

    /// Copies the bytes that the recorded ranges refer to into the arena, from its start. The first `line_len` bytes
    /// are the request line.
    ///
    /// # Panics
    /// If `line_len` exceeds the length of `bytes`.
    pub fn fill(&mut self, bytes: &[u8], line_len: u32) {
        assert!(line_len as usize <= bytes.len(), "the line is part of the head");
        self.arena.clear();
        self.arena.extend_from_slice(bytes);
        self.line_len = line_len;
    }

    /// Clears the map, including the request line. O(1).
    pub(crate) fn clear_all(&mut self) {
        self.line_len = 0;
        self.clear();
    }

    pub(crate) fn line(&self, from: u32, to: u32) -> &[u8] {
        &self.arena[from as usize..to as usize]
    }
}

impl PartialEq for FieldMap {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for FieldMap {}

impl fmt::Debug for FieldMap {
    /// Shows names and value lengths only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name.as_str(), value.len()))).finish()
    }
}

#[cfg(test)]
mod tests;
