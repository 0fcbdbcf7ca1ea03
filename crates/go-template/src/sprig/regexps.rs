//! Regular expressions in Go's syntax.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use causeway_go_regexp::{Translated, as_characters, translate};
use regex::{CaptureLocations, Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::letters::{DIGIT, LETTER};
use super::{STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::{Call, Row, Type};
use crate::value::{Element, List, Value};

const TWO: &[Type] = &[Type::String, Type::String];
const COUNTED: &[Type] = &[Type::String, Type::String, Type::Int];
const THREE: &[Type] = &[Type::String, Type::String, Type::String];
/// The bytes of an expression. Reading one takes up to thousands of times as much memory.
const SOURCE_BYTES_MAX: usize = 16 * 1024;
/// The bytes of a compiled expression.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// The states of an expression, as [`states`] estimates them.
const STATES_MAX: usize = 5000;
const TOO_LARGE: &str = "the expression is too large";

pub(super) static ROWS: &[Row] = &[
    fixed("mustRegexFind", TWO, find),
    fixed("mustRegexFindAll", COUNTED, find_all),
    fixed("mustRegexMatch", TWO, |call, args| {
        let pattern = TextPattern::compile(call, &args[0])??;
        is_match(call, &pattern, &args[1])
    }),
    fixed("mustRegexReplaceAll", THREE, |call, args| replaced(call, args, Replacement::Template)),
    fixed("mustRegexReplaceAllLiteral", THREE, |call, args| replaced(call, args, Replacement::Literal)),
    fixed("mustRegexSplit", COUNTED, split),
    fixed("regexFind", TWO, find),
    fixed("regexFindAll", COUNTED, find_all),
    fixed("regexMatch", TWO, |call, args| {
        // Only here a mistake in the expression is no match.
        match TextPattern::compile(call, &args[0])? {
            Ok(pattern) => is_match(call, &pattern, &args[1]),
            Err(_) => Ok(Value::Bool(false)),
        }
    }),
    fixed("regexQuoteMeta", STRING, |call, args| {
        let mut out = call.text();
        for byte in text(&args[0]) {
            out.push(if b"\\.+*?()|[]{}^$".contains(byte) { b"\\" } else { b"" })?;
            out.push(&[*byte])?;
        }
        Ok(out.into_bytes().into())
    }),
    fixed("regexReplaceAll", THREE, |call, args| replaced(call, args, Replacement::Template)),
    fixed("regexReplaceAllLiteral", THREE, |call, args| replaced(call, args, Replacement::Literal)),
    fixed("regexSplit", COUNTED, split),
];

/// The expressions that an execution has compiled last.
#[derive(Debug, Default)]
pub(crate) struct Expressions(RefCell<Vec<Compiled>>);

/// The source of an expression, and the expression.
type Compiled = (Arc<[u8]>, Rc<TextPattern>);

/// How many expressions an execution keeps.
const EXPRESSIONS_MAX: usize = 16;

#[derive(Debug)]
struct TextPattern {
    regex: Regex,
    /// The name of each group, the whole match first.
    names: Vec<Option<Box<str>>>,
    states: usize,
}

impl TextPattern {
    /// Compiles an expression, or takes it from those that the execution has. The outer failure is that of the budget.
    fn compile(call: &Call<'_>, value: &Value) -> Result<Result<Rc<Self>, FunctionError>, FunctionError> {
        let source = text(value);
        call.spend(1 + source.len() / 64)?;
        let Expressions(known) = &call.budget().expressions;
        if let Some((_, pattern)) = known.borrow().iter().find(|(known, _)| **known == *source) {
            return Ok(Ok(Rc::clone(pattern)));
        }
        let refused = |fault: String| Ok(Err(format!("error parsing regexp: {fault}").into()));
        if source.len() > SOURCE_BYTES_MAX {
            return refused(TOO_LARGE.to_owned());
        }
        // Compiling takes about as long as thousands of other steps. The crate sorts a class again after each class within it, so
        // that the time is quadratic.
        call.spend(2000 + source.len() + source.len().pow(2) / 4096)?;
        let translated = match Self::translated(source) {
            Ok(translated) => translated,
            Err(fault) => return refused(fault),
        };
        // With the flag `i` the crate looks up each character of a class.
        call.spend(translated.folded_characters / 16)?;
        let states = match Self::states(&translated) {
            Ok(states) => states,
            Err(fault) => return refused(fault),
        };
        // Before the work, since an expression that is refused then costs as much.
        call.spend(64 * states)?;
        let pattern = match Self::of(translated, states) {
            Ok(pattern) => Rc::new(pattern),
            Err(fault) => return refused(fault),
        };
        // A search keeps the two ends of each group for each state, before and after a character.
        call.allocate(pattern.states.saturating_mul(pattern.names.len()).saturating_mul(4 * size_of::<usize>()))?;
        let mut known = known.borrow_mut();
        if known.len() == EXPRESSIONS_MAX {
            known.remove(0);
        }
        known.push((source.into(), Rc::clone(&pattern)));
        Ok(Ok(pattern))
    }

    fn translated(source: &[u8]) -> Result<Translated, String> {
        let source = std::str::from_utf8(source).map_err(|_| "invalid UTF-8")?;
        translate(source).map_err(|mistake| mistake.to_string())
    }

    fn states(translated: &Translated) -> Result<usize, String> {
        let hir = regex_syntax::parse(&translated.pattern).map_err(reason)?;
        let states = states(&hir);
        if states > STATES_MAX { Err(TOO_LARGE.to_owned()) } else { Ok(states) }
    }

    fn of(translated: Translated, states: usize) -> Result<Self, String> {
        let regex = RegexBuilder::new(&translated.pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(reason)?;
        Ok(Self { regex, names: translated.names, states })
    }

    /// Uses the steps of a search to the end of the subject, which is the first one or a repeated one.
    fn spend(&self, call: &Call<'_>, bytes: usize, is_first: bool) -> Result<(), FunctionError> {
        // One search is linear. Each search for a further match may look at the whole rest, but most of them do not. Few states
        // are fast to search with.
        let (states, share) = if is_first { (self.states.max(8), 64) } else { (self.states, 256) };
        Ok(call.spend(1 + bytes.saturating_mul(states) / share)?)
    }
}

/// Returns the last line of a message of the crate: the reason, after a drawing of the place.
fn reason(error: impl Display) -> String {
    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Estimates the states of an expression from above, repetitions expanded.
fn states(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) => 1 + class.ranges().len() / 16,
        HirKind::Class(Class::Bytes(class)) => 1 + class.ranges().len() / 16,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            states(&repetition.sub).saturating_mul(times as usize).saturating_add(1)
        }
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(states).fold(1, usize::saturating_add),
    }
}

/// A text that is searched, in the characters that Go sees.
struct Subject<'t> {
    original: &'t [u8],
    text: String,
    /// For a text that is not valid UTF-8, the byte in the original of each byte.
    offsets: Option<Vec<usize>>,
}

impl<'t> Subject<'t> {
    fn of(call: &Call<'_>, value: &'t Value) -> Result<Self, FunctionError> {
        let original = text(value);
        call.allocate(original.len())?;
        if let Ok(text) = std::str::from_utf8(original) {
            return Ok(Self { original, text: text.to_owned(), offsets: None });
        }
        call.allocate(original.len().saturating_mul(3 + 3 * size_of::<usize>()))?;
        let mut repaired = Vec::new();
        let text = String::from_utf8_lossy(as_characters(original, &mut repaired)).into_owned();
        let mut offsets = Vec::with_capacity(text.len() + 1);
        let mut at = 0;
        for chunk in original.utf8_chunks() {
            offsets.extend(at..at + chunk.valid().len());
            at += chunk.valid().len();
            // An invalid byte has become a character of three bytes.
            offsets.extend((at..at + chunk.invalid().len()).flat_map(|place| [place; 3]));
            at += chunk.invalid().len();
        }
        offsets.push(at);
        Ok(Self { original, text, offsets: Some(offsets) })
    }

    fn part(&self, range: Range<usize>) -> &'t [u8] {
        match &self.offsets {
            Some(offsets) => &self.original[offsets[range.start]..offsets[range.end]],
            None => &self.original[range],
        }
    }

    /// Returns the bytes of the character at a position.
    fn width(&self, at: usize) -> usize {
        self.text[at..].chars().next().map_or(0, char::len_utf8)
    }
}

fn is_match(call: &Call<'_>, pattern: &TextPattern, value: &Value) -> Result<Value, FunctionError> {
    let subject = Subject::of(call, value)?;
    pattern.spend(call, subject.text.len(), true)?;
    Ok(Value::Bool(pattern.regex.is_match(&subject.text)))
}

fn find(call: &mut Call<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])??, Subject::of(call, &args[1])?);
    pattern.spend(call, subject.text.len(), true)?;
    let found = pattern.regex.find(&subject.text).map_or(0..0, |found| found.range());
    Ok(subject.part(found).into())
}

/// Returns at most `count` matches, without empty ones directly after another.
fn matches(
    call: &Call<'_>,
    pattern: &TextPattern,
    subject: &Subject<'_>,
    count: i64,
) -> Result<Vec<Range<usize>>, FunctionError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut found, mut at, mut end_before) = (Vec::new(), 0, None);
    while found.len() < count && at <= subject.text.len() {
        pattern.spend(call, subject.text.len() - at, at == 0)?;
        let Some(range) = pattern.regex.find_at(&subject.text, at).map(|found| found.range()) else { break };
        let is_accepted = range.end > at || Some(range.start) != end_before;
        at = if range.end > at { range.end } else { at + subject.width(at).max(1) };
        end_before = Some(range.end);
        if is_accepted {
            call.allocate(size_of::<Range<usize>>())?;
            found.push(range);
        }
    }
    Ok(found)
}

fn texts(call: &Call<'_>, parts: Vec<&[u8]>) -> Result<Value, FunctionError> {
    call.allocate(parts.iter().map(|part| size_of::<Value>() + part.len() + 16).sum())?;
    Ok(Value::strings(parts))
}

fn find_all(call: &mut Call<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])??, Subject::of(call, &args[1])?);
    let found = matches(call, &pattern, &subject, args[2].as_integer().unwrap_or(0))?;
    if found.is_empty() {
        return Ok(Value::List(List::nil(Element::String)));
    }
    texts(call, found.into_iter().map(|range| subject.part(range)).collect())
}

fn split(call: &mut Call<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])??, Subject::of(call, &args[1])?);
    let count = args[2].as_integer().unwrap_or(0);
    if count == 0 {
        return Ok(Value::List(List::nil(Element::String)));
    }
    if !text(&args[0]).is_empty() && subject.text.is_empty() {
        return Ok(Value::strings([""]));
    }
    let parts_max = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut parts, mut start, mut end) = (Vec::new(), 0, 0);
    for range in matches(call, &pattern, &subject, count)? {
        if parts.len() + 1 >= parts_max {
            break;
        }
        end = range.start;
        // An empty match at the start separates nothing.
        if range.end != 0 {
            parts.push(subject.part(start..end));
        }
        start = range.end;
    }
    if end != subject.text.len() {
        parts.push(subject.part(start..subject.text.len()));
    }
    texts(call, parts)
}

/// How the text that replaces a match is written.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Replacement {
    Literal,
    /// `$1` and `${name}` stand for groups.
    Template,
}

fn replaced(call: &Call<'_>, args: &[Value], replacement: Replacement) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])??, Subject::of(call, &args[1])?);
    let with = match replacement {
        Replacement::Literal => vec![ReplacementPiece::Text(text(&args[2]))],
        Replacement::Template => {
            // Each `$` ends a piece and begins another, which may be found among the names of the groups.
            let dollars = text(&args[2]).iter().filter(|byte| **byte == b'$').count();
            call.allocate((2 * dollars + 1).saturating_mul(size_of::<ReplacementPiece<'_>>()))?;
            call.spend(dollars.saturating_mul(1 + pattern.names.len() / 8))?;
            pieces(text(&args[2]), &pattern.names)
        }
    };
    let mut groups = pattern.regex.capture_locations();
    // A search copies the ends of the groups from state to state.
    let share_of_groups = 1 + pattern.names.len() / 4;
    let mut out = call.text();
    let (mut at, mut end_before) = (0, 0);
    while at <= subject.text.len() {
        pattern.spend(call, (subject.text.len() - at).saturating_mul(share_of_groups), at == 0)?;
        let Some(found) = pattern.regex.captures_read_at(&mut groups, &subject.text, at) else { break };
        out.push(subject.part(end_before..found.start()))?;
        // An empty match directly after another one is not replaced.
        if found.end() > end_before || found.start() == 0 {
            for piece in &with {
                call.spend(1)?;
                out.push(piece.text(&subject, &groups))?;
            }
        }
        end_before = found.end();
        at = found.end().max(at + subject.width(at).max(1));
    }
    out.push(subject.part(end_before..subject.text.len()))?;
    Ok(out.into_bytes().into())
}

/// A piece of a replacement.
enum ReplacementPiece<'t> {
    Text(&'t [u8]),
    /// The number of a group.
    Group(usize),
}

impl<'t> ReplacementPiece<'t> {
    fn text<'s: 't>(&self, subject: &Subject<'s>, groups: &CaptureLocations) -> &'t [u8] {
        match self {
            Self::Text(text) => text,
            Self::Group(number) => groups.get(*number).map_or(b"", |(start, end)| subject.part(start..end)),
        }
    }
}

/// Splits a replacement at its groups. A `$` without a name is literal, and `$$` is one `$`.
fn pieces<'t>(template: &'t [u8], names: &[Option<Box<str>>]) -> Vec<ReplacementPiece<'t>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(dollar) = rest.iter().position(|byte| *byte == b'$') {
        pieces.push(ReplacementPiece::Text(&rest[..dollar]));
        let after = &rest[dollar + 1..];
        if after.first() == Some(&b'$') {
            pieces.push(ReplacementPiece::Text(b"$"));
            rest = &after[1..];
            continue;
        }
        match group_name(after) {
            Some((name, after)) => {
                let is_number = name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name[0] != b'0');
                let name = std::str::from_utf8(name).unwrap_or_default();
                let number = if is_number {
                    name.parse().ok()
                } else {
                    names.iter().position(|known| known.as_deref() == Some(name))
                };
                // A group that does not exist is empty.
                pieces.extend(number.filter(|number| *number < names.len()).map(ReplacementPiece::Group));
                rest = after;
            }
            None => {
                pieces.push(ReplacementPiece::Text(b"$"));
                rest = after;
            }
        }
    }
    pieces.push(ReplacementPiece::Text(rest));
    pieces
}

/// Returns the longest name at the start, which may be in braces, and the text after it.
fn group_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"{");
    let name = inside.unwrap_or(text);
    let mut end = 0;
    while end < name.len() {
        let (letter, size) = super::letters::decode(&name[end..]);
        if !LETTER.contains(letter) && !DIGIT.contains(letter) && letter != '_' {
            break;
        }
        end += size;
    }
    if end == 0 {
        return None;
    }
    let (name, after) = name.split_at(end);
    let after = if inside.is_some() { after.strip_prefix(b"}")? } else { after };
    Some((name, after))
}
