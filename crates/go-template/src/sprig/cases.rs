//! Words: upper and lower case, `snake_case`, initials, and lines of a width.
//!
//! Sprig has some of them from `github.com/Masterminds/goutils` and `github.com/huandu/xstrings`.

use super::chars::{self, LETTER, LOWER, NUMBER, PUNCTUATION, TITLE, UPPER, chars, decode, mapped};
use super::{STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type};
use crate::value::Value;

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("camelcase", STRING, |call, args| map_text(call, &args[0], pascal)),
    fixed("initials", STRING, |call, args| map_text(call, &args[0], initials)),
    fixed("kebabcase", STRING, |call, args| map_text(call, &args[0], |text| joined_words(text, b'-'))),
    fixed("lower", STRING, |call, args| map_text(call, &args[0], |text| mapped(text, chars::lower))),
    fixed("nospace", STRING, |call, args| map_text(call, &args[0], without_space)),
    fixed("snakecase", STRING, |call, args| map_text(call, &args[0], |text| joined_words(text, b'_'))),
    fixed("swapcase", STRING, |call, args| map_text(call, &args[0], swap_case)),
    fixed("title", STRING, |call, args| map_text(call, &args[0], title)),
    fixed("untitle", STRING, |call, args| map_text(call, &args[0], untitle)),
    fixed("upper", STRING, |call, args| map_text(call, &args[0], |text| mapped(text, chars::upper))),
    fixed("wrap", &[Type::Int, Type::String], |call, args| wrap(call, &args[0], b"", &args[1], LongWords::Whole)),
    fixed("wrapWith", &[Type::Int, Type::String, Type::String], |call, args| {
        wrap(call, &args[0], text(&args[1]), &args[2], LongWords::Cut)
    }),
];

/// Changes a text to one of at most three times its bytes.
fn map_text(call: &CallContext<'_>, value: &Value, change: impl Fn(&[u8]) -> Vec<u8>) -> Result<Value, FunctionError> {
    let text = text(value);
    call.charge_memory(text.len())?;
    call.charge_steps(text.len() / 8)?;
    Ok(change(text).into())
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// goutils: the first byte of each word as a character of Latin-1.
fn initials(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut after_space = true;
    for byte in text {
        let c = char::from(*byte);
        let is_space = c.is_whitespace();
        if after_space && !is_space {
            push(&mut out, c);
        }
        after_space = is_space;
    }
    out
}

/// goutils: without spaces. If there is one, each byte is read as a character of Latin-1.
fn without_space(text: &[u8]) -> Vec<u8> {
    if !text.iter().any(|byte| char::from(*byte).is_whitespace()) {
        return text.to_vec();
    }
    let mut out = Vec::new();
    text.iter().map(|byte| char::from(*byte)).filter(|c| !c.is_whitespace()).for_each(|c| push(&mut out, c));
    out
}

/// goutils: lowercase letters become uppercase, and the reverse. A lowercase letter at the start of a word gets its
/// title form.
fn swap_case(text: &[u8]) -> Vec<u8> {
    let mut after_space = true;
    mapped(text, |c| {
        if UPPER.contains(c) || TITLE.contains(c) {
            after_space = false;
            return chars::lower(c);
        }
        if LOWER.contains(c) {
            return if std::mem::take(&mut after_space) { chars::title(c) } else { chars::upper(c) };
        }
        after_space = c.is_whitespace();
        c
    })
}

fn title(text: &[u8]) -> Vec<u8> {
    let mut before = ' ';
    mapped(text, |c| if chars::separates_words(std::mem::replace(&mut before, c)) { chars::title(c) } else { c })
}

fn untitle(text: &[u8]) -> Vec<u8> {
    let mut after_space = true;
    mapped(text, |c| {
        let is_space = c.is_whitespace();
        let changed = if after_space && !is_space { chars::lower(c) } else { c };
        after_space = is_space;
        changed
    })
}

fn connects(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

/// xstrings: words begin with an uppercase letter, and connectors between them are removed.
fn pascal(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = chars(text);
    // Connectors at the start stay.
    let first = loop {
        match rest.next() {
            Some(c) if connects(c) => push(&mut out, c),
            Some(c) => break c,
            None => return out,
        }
    };
    let mut in_capitals = UPPER.contains(first);
    let mut before = chars::upper(first);
    for c in rest {
        let mut c = c;
        if connects(c) && connects(before) {
            push(&mut out, before);
        } else if connects(before) {
            in_capitals = UPPER.contains(c);
            c = chars::upper(c);
        } else {
            // `HTTPStatus` is one word: only its first letter stays large.
            if in_capitals && UPPER.contains(c) {
                c = chars::lower(c);
            } else {
                in_capitals = false;
            }
            push(&mut out, before);
        }
        before = c;
    }
    push(&mut out, before);
    out
}

/// The kinds of words of `snakecase` and `kebabcase`.
#[derive(Clone, Copy, Eq, PartialEq)]
enum WordKind {
    Invalid,
    Number,
    Capitals,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// A word, and the text after it.
#[derive(Clone, Copy)]
struct Word<'t> {
    kind: WordKind,
    word: &'t [u8],
    rest: &'t [u8],
}

/// Returns the next valid character, and the bytes up to its end. If there is none, the character is `before`.
fn valid(text: &[u8], before: char) -> (char, usize) {
    let mut size = 0;
    while size < text.len() {
        let (c, bytes) = decode(&text[size..]);
        size += bytes;
        if c != char::REPLACEMENT_CHARACTER {
            return (c, size);
        }
    }
    (before, size)
}

fn is_alphabetic(c: char) -> bool {
    let is_ideograph = matches!(c,
        '\u{4e00}'..='\u{9fcc}' | '\u{3400}'..='\u{4d85}' | '\u{20000}'..='\u{2b81d}');
    LETTER.contains(c) && !is_ideograph
}

/// Returns the end of a word that goes on from `end` while characters belong to it, the start of its last character,
/// and the character after it.
fn run(text: &[u8], end: usize, first: char, belongs: impl Fn(char) -> bool) -> (usize, usize, char) {
    let (mut end, mut last, mut c) = (end, end, first);
    while end < text.len() {
        let (next, size) = valid(&text[end..], c);
        c = next;
        if !belongs(c) {
            break;
        }
        last = end;
        end += size;
    }
    (end, last, c)
}

fn next_word(text: &[u8]) -> Word<'_> {
    if text.is_empty() {
        return Word { kind: WordKind::Invalid, word: text, rest: text };
    }
    let (first, size) = valid(text, char::REPLACEMENT_CHARACTER);
    let is_small = |c| is_alphabetic(c) && !UPPER.contains(c);
    let (kind, end) = if first == char::REPLACEMENT_CHARACTER {
        (WordKind::Invalid, size)
    } else if connects(first) {
        (WordKind::Connector, run(text, size, first, connects).0)
    } else if PUNCTUATION.contains(first) {
        (WordKind::Punctuation, run(text, size, first, |c| PUNCTUATION.contains(c)).0)
    } else if UPPER.contains(first) {
        (WordKind::Capitals, end_of_capitals(text, first, size))
    } else if is_alphabetic(first) {
        (WordKind::Letters, run(text, size, first, is_small).0)
    } else if NUMBER.contains(first) {
        (WordKind::Number, run(text, size, first, |c| NUMBER.contains(c)).0)
    } else {
        let is_other = |c| !connects(c) && !is_alphabetic(c) && !NUMBER.contains(c) && !PUNCTUATION.contains(c);
        (WordKind::Other, run(text, size, first, is_other).0)
    };
    Word { kind, word: &text[..end], rest: &text[end..] }
}

fn end_of_capitals(text: &[u8], first: char, size: usize) -> usize {
    let (second, bytes) = valid(&text[size..], first);
    let end = size + bytes;
    if bytes == 0 {
        return size;
    }
    if UPPER.contains(second) {
        let (end, last, after) = run(text, end, second, |c| UPPER.contains(c));
        // `HTTPStatus` is `HTTP` and `Status`.
        let last = if last == end { size } else { last };
        return if end < text.len() && is_alphabetic(after) { last } else { end };
    }
    if is_alphabetic(second) {
        return run(text, end, second, |c| is_alphabetic(c) && !UPPER.contains(c)).0;
    }
    size
}

fn push_word(out: &mut Vec<u8>, word: Word<'_>, connector: u8) {
    if word.kind != WordKind::Capitals && word.kind != WordKind::Connector {
        out.extend_from_slice(word.word);
        return;
    }
    for c in chars(word.word) {
        if connects(c) {
            out.push(connector);
        } else if UPPER.contains(c) {
            push(out, chars::lower(c));
        } else {
            push(out, c);
        }
    }
}

/// xstrings: lowercase letters, with a connector between two words.
fn joined_words(text: &[u8], connector: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut word = next_word(text);
    let ends = |kind| matches!(kind, WordKind::Connector | WordKind::Punctuation);
    while !word.rest.is_empty() {
        if word.kind != WordKind::Connector {
            push_word(&mut out, word, connector);
        }
        let before = word;
        word = next_word(word.rest);
        match before.kind {
            WordKind::Connector => push_word(&mut out, before, connector),
            WordKind::Punctuation => {}
            WordKind::Number => word = after_number(&mut out, word, connector),
            _ if word.kind != WordKind::Number => {
                if !ends(word.kind) {
                    out.push(connector);
                }
            }
            _ if word.rest.is_empty() => {}
            _ => {
                let number = word;
                word = next_word(word.rest);
                if word.kind == WordKind::Letters {
                    // Small letters after a number: `HTTP2xx` is `http_2xx`.
                    out.push(connector);
                    push_word(&mut out, number, connector);
                    word = after_number(&mut out, word, connector);
                } else {
                    // A number at the end of a word belongs to it: `Bld4Floor` is `bld4_floor`.
                    push_word(&mut out, number, connector);
                    if !ends(word.kind) {
                        out.push(connector);
                    }
                }
            }
        }
    }
    push_word(&mut out, word, connector);
    out
}

/// Writes words that belong to a number before them. Returns the first one that does not.
fn after_number<'t>(out: &mut Vec<u8>, word: Word<'t>, connector: u8) -> Word<'t> {
    let mut word = word;
    while matches!(word.kind, WordKind::Letters | WordKind::Number) {
        push_word(out, word, connector);
        word = next_word(word.rest);
    }
    if !matches!(word.kind, WordKind::Invalid | WordKind::Connector | WordKind::Punctuation) {
        out.push(connector);
    }
    word
}

/// How `wrap` treats a word that is longer than a line.
#[derive(Clone, Copy, Eq, PartialEq)]
enum LongWords {
    Whole,
    Cut,
}

/// Breaks lines at spaces. The width counts bytes.
fn wrap(
    call: &CallContext<'_>,
    width: &Value,
    separator: &[u8],
    value: &Value,
    long_words: LongWords,
) -> Result<Value, FunctionError> {
    let separator = if separator.is_empty() { b"\n" } else { separator };
    let width = usize::try_from(width.as_integer().unwrap_or(0)).unwrap_or(0).max(1);
    let mut rest = text(value);
    let mut out = call.text();
    while rest.len() > width {
        call.charge_steps(1 + width / 64)?;
        if rest[0] == b' ' {
            rest = &rest[1..];
            continue;
        }
        // A space directly after the line ends it too.
        let (line, after) = if let Some(space) = rest[..=width].iter().rposition(|byte| *byte == b' ') {
            (space, space + 1)
        } else if long_words == LongWords::Cut {
            (width, width)
        } else {
            match rest[width..].iter().position(|byte| *byte == b' ') {
                Some(space) => (width + space, width + space + 1),
                None => break,
            }
        };
        out.push(&rest[..line])?;
        out.push(separator)?;
        rest = &rest[after..];
    }
    out.push(rest)?;
    Ok(out.into_bytes().into())
}
