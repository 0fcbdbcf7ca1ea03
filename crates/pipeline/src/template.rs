//! Placeholder strings, compiled at load: a request looks up no names.
//!
//! `{name}` is a placeholder; `\{` and `\}` are literal braces. `request` has the placeholders of a request,
//! `load_time` those that are constant while a configuration runs. Any other name is a slot that a module may set
//! during the request (`map`, regular expressions); until then the placeholder is unknown.

mod load_time;
mod request;

use std::rc::Rc;

use request::{Clock, CompiledName, PlaceholderId};

use crate::build::Build;
use crate::context::{Context, ValueKind, VarId};
use crate::route::FamilyId;

/// The prefix of the placeholders of variables.
pub(crate) const VARIABLES: &str = "http.vars.";

/// A compiled string with placeholders. Rendering costs time linear in its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Box<[Piece]>,
    /// The whole text, if no piece depends on the request.
    literal: Option<Box<str>>,
    unknown: Unknown,
}

/// How a placeholder is rendered while it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// As no text.
    Empty,
    /// As its text in the configuration.
    Written,
    /// As `.`, also if its value is empty.
    Directory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Placeholder { means: Meaning, written: Box<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    /// A value that was known at load. It is apart from the operator's text for callers that escape values
    /// ([`Template::render_values`]); [`Template::literal`] contains it.
    Known(Box<str>),
    Placeholder(PlaceholderId),
    /// A slot that a module sets; unknown until then.
    Slot(VarId),
}

impl Template {
    pub(crate) fn compile(source: &str, unknown: Unknown, build: &mut Build<'_>) -> Self {
        let mut pieces = Pieces::default();
        let mut rest = source;
        // Once a brace has no closing brace, no later one has: skip the search, which would make compilation
        // quadratic.
        let mut closes = true;
        while let Some(at) = rest.find(['{', '\\']) {
            pieces.text.push_str(&rest[..at]);
            let tail = &rest[at..];
            if let Some(escaped) = tail.strip_prefix('\\') {
                // A backslash escapes braces only; before any other character it is literal.
                let brace = escaped.starts_with(['{', '}']);
                pieces.text.push_str(if brace { &escaped[..1] } else { "\\" });
                rest = if brace { &escaped[1..] } else { escaped };
                continue;
            }
            // Names may contain escaped braces, as in `{http.request.header.x\}y}`.
            let end = if closes { closing(tail) } else { None };
            let Some(end) = end else {
                closes = false;
                pieces.text.push('{');
                rest = &tail[1..];
                continue;
            };
            let name = &tail[1..end];
            let found = CompiledName::find(name, build);
            // Braces of a style sheet or of JSON are text; there may be placeholders between them.
            let is_text = found.is_none() && unknown == Unknown::Written && !is_name(name);
            if is_text {
                pieces.text.push('{');
                rest = &tail[1..];
                continue;
            }
            rest = &tail[end + 1..];
            let means = match found {
                Some(CompiledName::Text(text)) if text.is_empty() && unknown == Unknown::Directory => {
                    Meaning::Known(".".into())
                }
                Some(CompiledName::Text(text)) => Meaning::Known(text.into()),
                Some(CompiledName::Placeholder(id)) => Meaning::Placeholder(id),
                None if is_name(name) => Meaning::Slot(build.allocate_slot(name)),
                None if unknown == Unknown::Directory => Meaning::Known(".".into()),
                None => continue,
            };
            pieces.push(Piece::Placeholder { means, written: tail[..=end].into() });
        }
        pieces.text.push_str(rest);
        let pieces = pieces.finish();
        let literal = pieces.iter().map(Piece::known).collect::<Option<String>>().map(Into::into);
        Self { pieces, literal, unknown }
    }

    /// Returns a template that renders as this text, in which braces have no meaning.
    pub fn of_text(text: &str) -> Self {
        Self { pieces: [Piece::Text(text.into())].into(), literal: Some(text.into()), unknown: Unknown::Empty }
    }

    /// Returns the whole text if the template has no placeholders, or only some whose values are known at load.
    #[inline]
    pub fn literal(&self) -> Option<&str> {
        self.literal.as_deref()
    }

    /// Returns the text that [`render`](Self::render) appends while all placeholders that depend on the request are
    /// unknown.
    pub fn text_of_unknown(&self) -> String {
        let texts = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) | Piece::Placeholder { means: Meaning::Known(text), .. } => &**text,
            Piece::Placeholder { written, .. } => match self.unknown {
                Unknown::Empty => "",
                Unknown::Written => written,
                Unknown::Directory => ".",
            },
        });
        texts.collect()
    }

    /// Appends the rendered template.
    pub fn render(&self, cx: &mut Context, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Placeholder { means, written } => {
                    self.render_placeholder(means, written, cx, out);
                }
            }
        }
    }

    /// Appends a placeholder's value, or the text in its place; returns false for its text in the configuration.
    #[inline]
    fn render_placeholder(&self, means: &Meaning, written: &str, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let is_known = means.render(cx, out);
        match self.unknown {
            Unknown::Written if !is_known => {
                out.extend_from_slice(written.as_bytes());
                return false;
            }
            Unknown::Directory if out.len() == start => out.push(b'.'),
            _ => {}
        }
        true
    }

    /// Appends the rendered template and returns the type of its value, which is a text unless the template is a single
    /// placeholder.
    pub fn render_value(&self, cx: &mut Context, out: &mut Vec<u8>) -> ValueKind {
        match &*self.pieces {
            [Piece::Placeholder { means: Meaning::Placeholder(place), .. }] => place.render_value(cx, out),
            [Piece::Placeholder { means: Meaning::Slot(id), .. }] => {
                cx.render_variable(*id, out).unwrap_or(ValueKind::Null)
            }
            _ => {
                self.render(cx, out);
                ValueKind::Text
            }
        }
    }

    /// As [`render`](Self::render), but calls `put` to append the value of each placeholder, with the name without
    /// braces; also of those that are known at load. For templates whose values must be escaped and whose own text must
    /// not.
    pub fn render_values(&self, cx: &mut Context, out: &mut Vec<u8>, mut put: impl FnMut(&str, &[u8], &mut Vec<u8>)) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Placeholder { means, written } => {
                    cx.with_scratch(|cx, value| match self.render_placeholder(means, written, cx, value) {
                        true => put(&written[1..written.len() - 1], value, out),
                        false => out.extend_from_slice(value),
                    });
                }
            }
        }
    }
}

impl Piece {
    /// Returns the text if it does not depend on the request.
    fn known(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Placeholder { means: Meaning::Known(text), .. } => Some(text),
            Self::Placeholder { .. } => None,
        }
    }
}

impl Meaning {
    /// Appends the placeholder's text; returns false if it is unknown at this time.
    #[inline]
    fn render(&self, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Known(value) => {
                out.extend_from_slice(value.as_bytes());
                true
            }
            Self::Placeholder(place) => place.render(cx, out),
            Self::Slot(id) => cx.render_variable(*id, out).is_some(),
        }
    }
}

impl Context {
    /// Appends the text of a placeholder whose name is not known before a request runs; returns false if it is unknown.
    /// `slots` is the family of all slots (`build.allocate_family("")`): a placeholder that a module sets is known only
    /// if the configuration names it too. The request's body is known only if it was read before.
    // Look-up by name is for texts that are written at run time, such as templates. It has no `{file.…}`: such a text
    // may come from another party than the operator.
    pub fn render_placeholder(&mut self, slots: FamilyId, name: &str, out: &mut Vec<u8>) -> bool {
        let id = match name.strip_prefix("http.") {
            _ if name.starts_with(VARIABLES) => None,
            Some(rest) => PlaceholderId::of_exchange(rest),
            None => name.strip_prefix("time.now").and_then(Clock::find).map(PlaceholderId::Now),
        };
        if let Some(id) = id {
            return id.render(self, out);
        }
        let generation = Rc::clone(self.generation());
        let slot = generation.plan().family(slots).iter().find(|(slot, _)| **slot == *name);
        if slot.is_some_and(|(_, id)| self.render_variable(*id, out).is_some()) {
            return true;
        }
        if let Some(variable) = name.strip_prefix(VARIABLES) {
            return PlaceholderId::render_unset(variable, self, out);
        }
        load_time::text_at_run_time(name, generation.plan().environment()).is_some_and(|text| {
            out.extend_from_slice(text.as_bytes());
            true
        })
    }
}

/// The compiled pieces, and the literal text after them, which may still grow.
#[derive(Default)]
struct Pieces {
    done: Vec<Piece>,
    text: String,
}

impl Pieces {
    fn push(&mut self, piece: Piece) {
        self.flush();
        self.done.push(piece);
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.done.push(Piece::Text(std::mem::take(&mut self.text).into()));
        }
    }

    fn finish(mut self) -> Box<[Piece]> {
        self.flush();
        self.done.into()
    }
}

/// Returns the index of the brace that closes the one at the start of `tail`: the first `}` without a preceding
/// backslash, or a `}` at the very end with one.
fn closing(tail: &str) -> Option<usize> {
    let bytes = tail.as_bytes();
    let mut end = tail.find('}')?;
    while end < bytes.len() - 1 && bytes[end - 1] == b'\\' {
        end += 1 + tail[end + 1..].find('}')?;
    }
    Some(end)
}

/// Returns whether a module could set a placeholder of this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|ch: char| ch.is_whitespace() || ch.is_control() || "{\"'`;".contains(ch))
}
