//! Regular expressions in Go's syntax.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use causeway_go_regexp::{
    ReplacementPiece, Translated, as_characters, error_reason, group_number, replacement_pieces, translate,
};
use regex::{CaptureLocations, Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::{STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type};
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

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("mustRegexFind", TWO, find),
    fixed("mustRegexFindAll", COUNTED, find_all),
    fixed("mustRegexMatch", TWO, |call, args| {
        let pattern = TextPattern::compile(call, &args[0])?;
        is_match(call, &pattern, &args[1])
    }),
    fixed("mustRegexReplaceAll", THREE, |call, args| replace(call, args, Replacement::Template)),
    fixed("mustRegexReplaceAllLiteral", THREE, |call, args| replace(call, args, Replacement::Literal)),
    fixed("mustRegexSplit", COUNTED, split),
    fixed("regexFind", TWO, find),
    fixed("regexFindAll", COUNTED, find_all),
    fixed("regexMatch", TWO, |call, args| {
        // Only here a mistake in the expression is no match.
        match TextPattern::compile(call, &args[0]) {
            Ok(pattern) => is_match(call, &pattern, &args[1]),
            Err(FunctionError::Message(_)) => Ok(Value::Bool(false)),
            Err(limit) => Err(limit),
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
    fixed("regexReplaceAll", THREE, |call, args| replace(call, args, Replacement::Template)),
    fixed("regexReplaceAllLiteral", THREE, |call, args| replace(call, args, Replacement::Literal)),
    fixed("regexSplit", COUNTED, split),
];

/// A FIFO cache of compiled patterns.
#[derive(Debug, Default)]
pub(crate) struct RegexCache(RefCell<Vec<Compiled>>);

/// The source of an expression, and the expression.
type Compiled = (Arc<[u8]>, Rc<TextPattern>);

/// How many patterns a cache keeps.
const CACHED_MAX: usize = 16;

#[derive(Debug)]
struct TextPattern {
    regex: Regex,
    /// The name of each group, the whole match first.
    names: Vec<Option<Box<str>>>,
    states: usize,
}

impl TextPattern {
    /// Compiles an expression, or takes it from those that the execution has. The error is a message for a mistake in
    /// the expression.
    fn compile(call: &CallContext<'_>, value: &Value) -> Result<Rc<Self>, FunctionError> {
        let source = text(value);
        call.charge_steps(1 + source.len() / 64)?;
        let RegexCache(known) = &call.budget().regexes;
        if let Some((_, pattern)) = known.borrow().iter().find(|(known, _)| **known == *source) {
            return Ok(Rc::clone(pattern));
        }
        let refused = |reason: String| FunctionError::Message(format!("error parsing regexp: {reason}"));
        if source.len() > SOURCE_BYTES_MAX {
            return Err(refused(TOO_LARGE.to_owned()));
        }
        // Compiling takes about as long as thousands of other steps. The crate sorts a class again after each class
        // within it, so that the time is quadratic.
        call.charge_steps(2000 + source.len() + source.len().pow(2) / 4096)?;
        let translated = Self::translated(source).map_err(refused)?;
        // With the flag `i` the crate looks up each character of a class.
        call.charge_steps(translated.folded_characters / 16)?;
        let states = Self::states(&translated).map_err(refused)?;
        // Before the work, since an expression that is refused then costs as much.
        call.charge_steps(64 * states)?;
        let pattern = Rc::new(Self::of(translated, states).map_err(refused)?);
        // A search keeps the two ends of each group for each state, before and after a character.
        call.charge_memory(pattern.states.saturating_mul(pattern.names.len()).saturating_mul(4 * size_of::<usize>()))?;
        let mut known = known.borrow_mut();
        if known.len() == CACHED_MAX {
            known.remove(0);
        }
        known.push((source.into(), Rc::clone(&pattern)));
        Ok(pattern)
    }

    fn translated(source: &[u8]) -> Result<Translated, String> {
        let source = std::str::from_utf8(source).map_err(|_| "invalid UTF-8")?;
        translate(source).map_err(|mistake| mistake.to_string())
    }

    fn states(translated: &Translated) -> Result<usize, String> {
        let hir = regex_syntax::parse(&translated.pattern).map_err(error_reason)?;
        let states = states(&hir);
        if states > STATES_MAX { Err(TOO_LARGE.to_owned()) } else { Ok(states) }
    }

    fn of(translated: Translated, states: usize) -> Result<Self, String> {
        let regex = RegexBuilder::new(&translated.pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(error_reason)?;
        Ok(Self { regex, names: translated.names, states })
    }

    /// Charges the steps of a search to the end of the subject, which is the first one or a repeated one.
    fn charge_search(&self, call: &CallContext<'_>, bytes: usize, is_first: bool) -> Result<(), FunctionError> {
        // One search is linear. Each search for a further match may look at the whole rest, but most of them do not.
        // Few states are fast to search with.
        let (states, share) = if is_first { (self.states.max(8), 64) } else { (self.states, 256) };
        Ok(call.charge_steps(1 + bytes.saturating_mul(states) / share)?)
    }
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
    fn of(call: &CallContext<'_>, value: &'t Value) -> Result<Self, FunctionError> {
        let original = text(value);
        call.charge_memory(original.len())?;
        if let Ok(text) = std::str::from_utf8(original) {
            return Ok(Self { original, text: text.to_owned(), offsets: None });
        }
        call.charge_memory(original.len().saturating_mul(3 + 3 * size_of::<usize>()))?;
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

fn is_match(call: &CallContext<'_>, pattern: &TextPattern, value: &Value) -> Result<Value, FunctionError> {
    let subject = Subject::of(call, value)?;
    pattern.charge_search(call, subject.text.len(), true)?;
    Ok(Value::Bool(pattern.regex.is_match(&subject.text)))
}

fn find(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])?, Subject::of(call, &args[1])?);
    pattern.charge_search(call, subject.text.len(), true)?;
    let found = pattern.regex.find(&subject.text).map_or(0..0, |found| found.range());
    Ok(subject.part(found).into())
}

/// Returns at most `count` matches, without empty ones directly after another.
fn matches(
    call: &CallContext<'_>,
    pattern: &TextPattern,
    subject: &Subject<'_>,
    count: i64,
) -> Result<Vec<Range<usize>>, FunctionError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut found, mut at, mut end_before) = (Vec::new(), 0, None);
    while found.len() < count && at <= subject.text.len() {
        pattern.charge_search(call, subject.text.len() - at, at == 0)?;
        let Some(range) = pattern.regex.find_at(&subject.text, at).map(|found| found.range()) else { break };
        let is_accepted = range.end > at || Some(range.start) != end_before;
        at = if range.end > at { range.end } else { at + subject.width(at).max(1) };
        end_before = Some(range.end);
        if is_accepted {
            call.charge_memory(size_of::<Range<usize>>())?;
            found.push(range);
        }
    }
    Ok(found)
}

fn texts(call: &CallContext<'_>, parts: Vec<&[u8]>) -> Result<Value, FunctionError> {
    call.charge_memory(parts.iter().map(|part| size_of::<Value>() + part.len() + 16).sum())?;
    Ok(Value::strings(parts))
}

fn find_all(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])?, Subject::of(call, &args[1])?);
    let found = matches(call, &pattern, &subject, args[2].as_integer().unwrap_or(0))?;
    if found.is_empty() {
        return Ok(Value::List(List::nil(Element::String)));
    }
    texts(call, found.into_iter().map(|range| subject.part(range)).collect())
}

fn split(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])?, Subject::of(call, &args[1])?);
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

fn replace(call: &CallContext<'_>, args: &[Value], replacement: Replacement) -> Result<Value, FunctionError> {
    let (pattern, subject) = (TextPattern::compile(call, &args[0])?, Subject::of(call, &args[1])?);
    let with = match replacement {
        Replacement::Literal => vec![ReplacementPart::Text(text(&args[2]))],
        Replacement::Template => {
            // Each `$` ends a piece and begins another, which may be found among the names of the groups.
            let dollars = text(&args[2]).iter().filter(|byte| **byte == b'$').count();
            call.charge_memory((2 * dollars + 1).saturating_mul(size_of::<ReplacementPart<'_>>()))?;
            call.charge_steps(dollars.saturating_mul(1 + pattern.names.len() / 8))?;
            let pieces = replacement_pieces(text(&args[2]));
            pieces.map(|piece| ReplacementPart::of(piece, &pattern.names)).collect()
        }
    };
    let mut groups = pattern.regex.capture_locations();
    // A search copies the ends of the groups from state to state.
    let share_of_groups = 1 + pattern.names.len() / 4;
    let mut out = call.text();
    let (mut at, mut end_before) = (0, 0);
    while at <= subject.text.len() {
        pattern.charge_search(call, (subject.text.len() - at).saturating_mul(share_of_groups), at == 0)?;
        let Some(found) = pattern.regex.captures_read_at(&mut groups, &subject.text, at) else { break };
        out.push(subject.part(end_before..found.start()))?;
        // An empty match directly after another one is not replaced.
        if found.end() > end_before || found.start() == 0 {
            for piece in &with {
                call.charge_steps(1)?;
                out.push(piece.text(&subject, &groups))?;
            }
        }
        end_before = found.end();
        at = found.end().max(at + subject.width(at).max(1));
    }
    out.push(subject.part(end_before..subject.text.len()))?;
    Ok(out.into_bytes().into())
}

/// A piece of a replacement whose group has been looked up.
enum ReplacementPart<'t> {
    Text(&'t [u8]),
    /// The number of a group; `None` if there is no such group, which is empty.
    Group(Option<usize>),
}

impl<'t> ReplacementPart<'t> {
    fn of(piece: ReplacementPiece<'t>, names: &[Option<Box<str>>]) -> Self {
        match piece {
            ReplacementPiece::Text(text) => Self::Text(text),
            ReplacementPiece::Group(name) => Self::Group(group_number(name, names)),
        }
    }

    fn text<'s: 't>(&self, subject: &Subject<'s>, groups: &CaptureLocations) -> &'t [u8] {
        match self {
            Self::Text(text) => text,
            Self::Group(number) => {
                let found = number.and_then(|number| groups.get(number));
                found.map_or(b"", |(start, end)| subject.part(start..end))
            }
        }
    }
}
