//! Characters as Go's packages `unicode` and `strings` see them.

use std::sync::LazyLock;

use causeway_go_regexp::is_letter_or_digit;
use regex_syntax::hir::{Class, HirKind};

/// A general category of Unicode: its ranges of characters, in their order.
pub(super) struct Category(LazyLock<Vec<(char, char)>>);

pub(super) static LETTER: Category = Category(LazyLock::new(|| ranges(r"\pL")));
pub(super) static LOWER: Category = Category(LazyLock::new(|| ranges(r"\p{Ll}")));
pub(super) static NUMBER: Category = Category(LazyLock::new(|| ranges(r"\pN")));
pub(super) static PUNCTUATION: Category = Category(LazyLock::new(|| ranges(r"\pP")));
pub(super) static TITLE: Category = Category(LazyLock::new(|| ranges(r"\p{Lt}")));
pub(super) static UPPER: Category = Category(LazyLock::new(|| ranges(r"\p{Lu}")));

impl Category {
    pub(super) fn contains(&self, c: char) -> bool {
        let after = self.0.partition_point(|(start, _)| *start <= c);
        after > 0 && c <= self.0[after - 1].1
    }
}

/// Returns the ranges of a class in the syntax of regular expressions. One that is unknown has none.
fn ranges(class: &str) -> Vec<(char, char)> {
    let parsed = regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind);
    let Ok(HirKind::Class(Class::Unicode(class))) = parsed else { return Vec::new() };
    class.iter().map(|range| (range.start(), range.end())).collect()
}

/// Returns the first character and its bytes. As in Go, a byte that is no UTF-8 counts as U+FFFD.
pub(super) fn decode(text: &[u8]) -> (char, usize) {
    match bstr::decode_utf8(text) {
        (Some(c), size) => (c, size),
        (None, size) => (char::REPLACEMENT_CHARACTER, size.min(1)),
    }
}

/// Returns all characters, as [`decode`] does.
pub(super) fn chars(text: &[u8]) -> impl Iterator<Item = char> {
    text.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER);
        chunk.valid().chars().chain(invalid)
    })
}

/// Changes each character. A text in ASCII stays one.
pub(super) fn mapped(text: &[u8], mut change: impl FnMut(char) -> char) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    chars(text).for_each(|c| out.push(change(c)));
    out.into_bytes()
}

/// Returns the only character of a mapping, or the character itself: Go's functions never map one to several.
fn single(c: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(only), None) => only,
        _ => c,
    }
}

pub(super) fn upper(c: char) -> char {
    match c {
        // The simple mapping of Greek letters with a subscript iota is one character; the full one has two.
        '\u{1f80}'..='\u{1faf}' if u32::from(c) & 8 == 0 => shifted(c, 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => shifted(c, 9),
        _ => single(c, c.to_uppercase()),
    }
}

fn shifted(c: char, by: u32) -> char {
    char::from_u32(u32::from(c) + by).unwrap_or(c)
}

pub(super) fn lower(c: char) -> char {
    // The full mapping of U+0130 has a combining dot.
    if c == '\u{130}' { 'i' } else { single(c, c.to_lowercase()) }
}

pub(super) fn title(c: char) -> char {
    match c {
        // Croatian digraphs have a form between upper and lower case.
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}',
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}',
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}',
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}',
        // Georgian words have no capital letters.
        '\u{10d0}'..='\u{10ff}' => c,
        _ => upper(c),
    }
}

/// Returns whether a word of Go's `strings.Title` ends here.
pub(super) fn separates_words(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_alphanumeric() && c != '_';
    }
    !is_letter_or_digit(c) && c.is_whitespace()
}
