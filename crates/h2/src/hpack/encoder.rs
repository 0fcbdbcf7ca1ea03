//! Fields to field blocks (RFC 7541 §6), so that what repeats costs one octet and what does not is copied.
//!
//! What goes into the table is sent once and Huffman-coded where that is shorter; what does not is copied as it is, since
//! copying costs less than coding. Whether a field goes into the table is `encoder/habit`'s to say.

mod habit;

use causeway_message::{NameRef, StatusCode, WriteList};

use super::table::Table;
use super::{Kind, TABLE_BYTES_DEFAULT, field_size, huffman, integer, statics};
use habit::{Habit, Memory, TRAITS};

/// Entries of one name that are compared with a value, from the newest on.
const COMPARED_MAX: u32 = 4;

// Patterns of the first octet and the bits of the index in it (§6).
const INDEXED: (u8, u32) = (0x80, 7);
const INSERTED: (u8, u32) = (0x40, 6);
const SIZE: (u8, u32) = (0x20, 5);
const NEVER_INDEXED: (u8, u32) = (0x10, 4);
const NOT_INDEXED: (u8, u32) = (0x00, 4);

// A string literal as it is, and Huffman-coded (§5.2).
const PLAIN: (u8, u32) = (0x00, 7);
const CODED: (u8, u32) = (0x80, 7);
// The pattern, the index and two lengths.
const NUMBERS_LEN: usize = 18;

const FIRST_DYNAMIC: u32 = statics::ENTRIES.len() as u32 + 1;

/// A pseudo-field of a request (RFC 9113 §8.3.1, RFC 8441).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol`
    Protocol,
}

/// The sending side of one connection. Holds no memory of its own until there is a field that may repeat.
///
/// It knows no beginning or end of a block: whoever writes one writes all its fields before the peer's settings may change again.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    memory: Option<Box<Memory>>,
    // Ours: what the peer allows above is not used.
    size_bound: u32,
    // The smallest size since the last block, and the size from the next block on.
    changed: Option<(u32, u32)>,
}

/// What is left to be said of a field once the tables were searched.
enum Found {
    Whole(u32),
    Name(u32),
    Nothing,
}

impl Encoder {
    /// An encoder whose table takes at most `table_bytes_max` octets, whatever the peer allows. Until the peer's settings say
    /// another size it is the protocol's 4096, or less.
    ///
    /// # Panics
    /// When that is more than [`super::TABLE_BYTES_MAX`].
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        assert!(table_bytes_max <= super::TABLE_BYTES_MAX, "a table of at most 65535 octets");
        let size = table_bytes_max.min(TABLE_BYTES_DEFAULT);
        // A smaller table than the peer expects has to be told.
        let changed = if size < TABLE_BYTES_DEFAULT { Some((size, size)) } else { None };
        Self { table: Table::new(size), memory: None, size_bound: table_bytes_max, changed }
    }

    /// Octets of memory that it holds beside itself.
    #[must_use]
    pub fn table_octets(&self) -> usize {
        self.table.octets_capacity() + self.memory.as_deref().map_or(0, size_of_val)
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE. The next block begins with what has changed (RFC 7541 §4.2), so this stands
    /// between two blocks.
    pub fn set_table_bytes_max(&mut self, octets: u32) {
        let size = octets.min(self.size_bound);
        if size != self.table.size_max() {
            let smallest = self.changed.map_or(size, |(smallest, _)| smallest.min(size));
            self.changed = Some((smallest, size));
            self.table.set_size_max(size);
        }
    }

    /// `:status`, the first field of a response.
    #[inline]
    pub fn status(&mut self, status: StatusCode, out: &mut WriteList) {
        self.put_changed(out);
        // RFC 7541 Appendix A, indices 8 to 14
        let index = match status.as_u16() {
            200 => 0x88,
            204 => 0x89,
            206 => 0x8a,
            304 => 0x8b,
            400 => 0x8c,
            404 => 0x8d,
            500 => 0x8e,
            other => {
                let digits = [other / 100, other / 10 % 10, other % 10].map(|digit| b'0' + digit as u8);
                return self.named(Kind::Status, &digits, out);
            }
        };
        out.put_octet(index);
    }

    /// A pseudo-field of a request. They come before all other fields (RFC 9113 §8.3).
    pub fn pseudo(&mut self, name: Pseudo, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        let kind = match name {
            Pseudo::Method => Kind::Method,
            Pseudo::Scheme => Kind::Scheme,
            Pseudo::Authority => Kind::Authority,
            Pseudo::Path => Kind::Path,
            Pseudo::Protocol => Kind::Protocol,
        };
        self.named(kind, value, out);
    }

    /// A field. The caller knows that the name is a token and the value may be sent; a name in upper case is sent in lower
    /// case (RFC 9113 §8.2.1).
    #[inline]
    pub fn field<'a>(&mut self, name: impl Into<NameRef<'a>>, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        match name.into() {
            NameRef::Known(known) => self.named(Kind::Known(known), value, out),
            NameRef::Other(spelled) => self.other(spelled.as_bytes(), value, out),
        }
    }

    /// A field that is a secret or may have been guessed at: nobody may put it into a table (RFC 7541 §7.1.3).
    pub fn field_never_indexed<'a>(&mut self, name: impl Into<NameRef<'a>>, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        match name.into() {
            NameRef::Known(known) => self.copied(Kind::Known(known), value, NEVER_INDEXED, out),
            NameRef::Other(spelled) => {
                put_literal(NEVER_INDEXED, 0, spelled.as_bytes(), value, out);
            }
        }
    }

    // A field whose name is known by its kind.
    #[inline]
    fn named(&mut self, kind: Kind, value: &[u8], out: &mut WriteList) {
        match TRAITS[kind.number()].habit(value.len()) {
            Habit::Repeats => self.repeating(kind, value, out),
            Habit::Changes => self.copied(kind, value, NOT_INDEXED, out),
            Habit::Secret => self.copied(kind, value, NEVER_INDEXED, out),
        }
    }

    #[inline]
    fn repeating(&mut self, kind: Kind, value: &[u8], out: &mut WriteList) {
        let found = self.find(kind, value);
        if let Found::Whole(index) = found {
            return put_number(INDEXED, index, out);
        }
        self.missed(kind, value, found, out);
    }

    // A value that neither table has.
    fn missed(&mut self, kind: Kind, value: &[u8], found: Found, out: &mut WriteList) {
        let index = match found {
            Found::Name(index) | Found::Whole(index) => index,
            Found::Nothing => 0,
        };
        let name = kind.spelling();
        let fits = self.is_worth_a_place(field_size(name.len(), value.len()));
        let memory = self.memory.get_or_insert_default();
        let slot = &mut memory.named[kind.number()];
        if !fits || !slot.inserts() {
            return put_literal(NOT_INDEXED, index, name.as_bytes(), value, out);
        }
        put_coded_literal(INSERTED, index, name.as_bytes(), value, out);
        let older = slot.newest;
        self.table.reserve(value.len());
        let from = self.table.end();
        self.table.put(value);
        self.table.insert(kind, name.len(), from, true, older);
        slot.newest = self.table.newest();
    }

    // A field that is sent as it is, and only its name by an index.
    fn copied(&mut self, kind: Kind, value: &[u8], pattern: (u8, u32), out: &mut WriteList) {
        let traits = &TRAITS[kind.number()];
        if pattern == NOT_INDEXED
            && let Some(index) = traits.whole(value)
        {
            return put_number(INDEXED, index, out);
        }
        put_literal(pattern, u32::from(traits.index), kind.spelling().as_bytes(), value, out);
    }

    #[inline]
    fn find(&mut self, kind: Kind, value: &[u8]) -> Found {
        let traits = &TRAITS[kind.number()];
        if let Some(index) = traits.whole(value) {
            return Found::Whole(index);
        }
        let mut name = u32::from(traits.index);
        if let Some(memory) = &mut self.memory {
            let slot = &mut memory.named[kind.number()];
            let mut number = slot.newest;
            for _ in 0..COMPARED_MAX {
                // What the number leads to may be long gone, and another field there.
                let Some((back, entry)) = self.table.numbered(number).filter(|(_, entry)| entry.kind == kind) else {
                    break;
                };
                let index = FIRST_DYNAMIC + back;
                if self.table.value(entry) == value {
                    slot.missed = 0;
                    return Found::Whole(index);
                }
                name = if name == 0 { index } else { name };
                number = entry.older;
            }
        }
        if name == 0 { Found::Nothing } else { Found::Name(name) }
    }

    // A field whose name is not registered. It goes into the table when it is seen again soon.
    fn other(&mut self, name: &[u8], value: &[u8], out: &mut WriteList) {
        let mark = habit::mark(name, value);
        let fits = self.is_worth_a_place(field_size(name.len(), value.len()));
        let memory = self.memory.get_or_insert_default();
        let seen = memory.other_mut(mark);
        if !fits || seen.mark != mark {
            *seen = habit::Seen { mark, number: None };
            return put_literal(NOT_INDEXED, 0, name, value, out);
        }
        let found = seen.number.and_then(|number| self.table.numbered(number)).filter(|(_, entry)| {
            let same = entry.kind == Kind::Other && self.table.value(entry) == value;
            same && self.table.name(entry).eq_ignore_ascii_case(name)
        });
        if let Some((back, _)) = found {
            return put_number(INDEXED, FIRST_DYNAMIC + back, out);
        }
        self.table.reserve(name.len() + value.len());
        let from = self.table.end();
        self.table.put(name);
        self.table.lower_from(from);
        self.table.put(value);
        let (lower, value) = self.table.behind(from).split_at(name.len());
        put_coded_literal(INSERTED, 0, lower, value, out);
        self.table.insert(Kind::Other, name.len(), from, true, 0);
        seen.number = Some(self.table.newest());
    }

    // One that takes more than half of the table would drive out what repeats more often.
    fn is_worth_a_place(&self, size: usize) -> bool {
        size <= self.table.size_max() as usize / 2
    }

    // RFC 7541 §4.2: the smallest size in between and the last one come before the first field.
    #[inline]
    fn put_changed(&mut self, out: &mut WriteList) {
        if let Some((smallest, last)) = self.changed.take() {
            if smallest < last {
                put_number(SIZE, smallest, out);
            }
            put_number(SIZE, last, out);
            self.table.settle();
        }
    }
}

#[inline]
fn put_number((pattern, bits): (u8, u32), number: u32, out: &mut WriteList) {
    match integer::short(pattern, bits, number) {
        Some(octet) => out.put_octet(octet),
        None => out.put(integer::Octets::of(pattern, bits, number).as_slice()),
    }
}

/// A literal whose strings are copied. The name is written where `index` is 0.
fn put_literal(pattern: (u8, u32), index: u32, name: &[u8], value: &[u8], out: &mut WriteList) {
    out.reserve(NUMBERS_LEN + name.len() + value.len());
    put_number(pattern, index, out);
    if index == 0 {
        put_number(PLAIN, name.len() as u32, out);
        put_lower(name, out);
    }
    put_number(PLAIN, value.len() as u32, out);
    out.put(value);
}

/// The same with the strings coded, where that makes them shorter.
fn put_coded_literal(pattern: (u8, u32), index: u32, name: &[u8], value: &[u8], out: &mut WriteList) {
    out.reserve(NUMBERS_LEN + name.len() + value.len());
    put_number(pattern, index, out);
    if index == 0 {
        put_coded(name, out);
    }
    put_coded(value, out);
}

/// A string, coded where that makes it shorter.
fn put_coded(plain: &[u8], out: &mut WriteList) {
    let coded_len = huffman::coded_len(plain);
    if coded_len < plain.len() {
        put_number(CODED, coded_len as u32, out);
        huffman::encode(plain, |piece| out.put(piece));
    } else {
        put_number(PLAIN, plain.len() as u32, out);
        out.put(plain);
    }
}

fn put_lower(name: &[u8], out: &mut WriteList) {
    for piece in name.chunks(32) {
        let mut lower = [0; 32];
        let lower = &mut lower[..piece.len()];
        lower.copy_from_slice(piece);
        lower.make_ascii_lowercase();
        out.put(lower);
    }
}
