//! Replacements of Go's `Regexp.Expand`, in which `$1` and `${name}` stand for groups.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, Hir, HirKind};

/// A piece of a replacement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplacementPiece<'t> {
    /// Text that is copied.
    Text(&'t [u8]),
    /// The name or number of a group, for [`group_number`]. A group that does not exist is empty.
    Group(&'t [u8]),
}

/// Splits a replacement at its groups. A `$` without a name is literal, and `$$` is one `$`. Does not allocate.
pub fn replacement_pieces(replacement: &[u8]) -> impl Iterator<Item = ReplacementPiece<'_>> {
    let mut rest = replacement;
    std::iter::from_fn(move || {
        let piece;
        (piece, rest) = match rest {
            [] => return None,
            [b'$', b'$', after @ ..] => (ReplacementPiece::Text(b"$"), after),
            [b'$', after @ ..] => match group_name(after) {
                Some((name, after)) => (ReplacementPiece::Group(name), after),
                None => (ReplacementPiece::Text(b"$"), after),
            },
            text => {
                let end = text.iter().position(|byte| *byte == b'$').unwrap_or(text.len());
                (ReplacementPiece::Text(&text[..end]), &text[end..])
            }
        };
        Some(piece)
    })
}

/// Returns the number of the group that a replacement names, which may be larger than the last one. `names` are those
/// of [`Translated`](crate::Translated).
#[must_use]
pub fn group_number(name: &[u8], names: &[Option<Box<str>>]) -> Option<usize> {
    // Go: `$01` is a name, not a number.
    let is_number = name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name.first() != Some(&b'0'));
    if is_number {
        return std::str::from_utf8(name).ok()?.parse().ok();
    }
    names.iter().position(|group| group.as_ref().is_some_and(|group| group.as_bytes() == name))
}

/// Returns the name at the start, which may be in braces, and the text after it. As in Go it is the longest run of
/// letters, digits and underscores: `$1x` is the group `1x`, not group 1.
fn group_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"{");
    let name = inside.unwrap_or(text);
    let mut end = 0;
    while let Some(c) = first_character(&name[end..]).filter(|c| *c == '_' || is_letter_or_digit(*c)) {
        end += c.len_utf8();
    }
    if end == 0 {
        return None;
    }
    let (name, after) = name.split_at(end);
    let after = if inside.is_some() { after.strip_prefix(b"}")? } else { after };
    Some((name, after))
}

/// Returns the first character, if it is valid UTF-8.
fn first_character(text: &[u8]) -> Option<char> {
    // No character is longer; to look at the whole text for each one would take quadratic time.
    text[..text.len().min(4)].utf8_chunks().next()?.valid().chars().next()
}

/// Returns whether Go's `unicode.IsLetter` or `unicode.IsDigit` holds. They are smaller classes than Rust's
/// `is_alphanumeric`.
#[must_use]
pub fn is_letter_or_digit(c: char) -> bool {
    static RANGES: LazyLock<Vec<(char, char)>> =
        LazyLock::new(|| match regex_syntax::parse(r"[\pL\p{Nd}]").map(Hir::into_kind) {
            Ok(HirKind::Class(Class::Unicode(class))) => {
                class.iter().map(|range| (range.start(), range.end())).collect()
            }
            _ => unreachable!("the pattern is a class"),
        });
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    let after = RANGES.partition_point(|(start, _)| *start <= c);
    after > 0 && c <= RANGES[after - 1].1
}
