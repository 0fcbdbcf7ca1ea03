//! Placeholder strings, compiled at load: a request looks no name up.
//!
//! `{name}` is a placeholder; `\{` and `\}` are braces. What a name stands for is said in `place` for what belongs to the
//! request, in `load_time` for what stays as it is while the configuration runs. Any other name is a slot that a module may
//! set while the request runs (`map`, regular expressions); while it is not set the placeholder is unknown.

mod load_time;
mod place;

pub use place::go_duration;
use place::{Known, Place};

use crate::build::Build;
use crate::context::{Context, VarId};

/// Begins the placeholders of variables.
pub(crate) const VARIABLES: &str = "http.vars.";

/// A string with placeholders, ready to be rendered. Rendering costs the octets it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Box<[Piece]>,
    unknown: Unknown,
}

/// What becomes of a placeholder that is not known when it is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// No text.
    Empty,
    /// The text as it is written in the configuration.
    Written,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Placeholder { means: Meaning, written: Box<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    Place(Place),
    /// Known only once a module has set it.
    Slot(VarId),
}

impl Template {
    pub(crate) fn compile(source: &str, unknown: Unknown, build: &mut Build<'_>) -> Self {
        let mut pieces = Pieces::default();
        let mut rest = source;
        // Behind a brace that nothing closes, nothing closes another one.
        let mut closes = true;
        while let Some(at) = rest.find(['{', '\\']) {
            pieces.text.push_str(&rest[..at]);
            let tail = &rest[at..];
            if let Some(escaped) = tail.strip_prefix('\\') {
                let brace = escaped.starts_with(['{', '}']);
                pieces.text.push_str(if brace { &escaped[..1] } else { "\\" });
                rest = if brace { &escaped[1..] } else { escaped };
                continue;
            }
            let end = if closes { closing(tail) } else { None };
            let Some(end) = end else {
                closes = false;
                pieces.text.push('{');
                rest = &tail[1..];
                continue;
            };
            let name = &tail[1..end];
            let found = Known::find(name, build);
            // Braces of a style sheet or of JSON are no placeholders; what they enclose may hold some.
            let is_text = found.is_none() && unknown == Unknown::Written && !is_name(name);
            if is_text {
                pieces.text.push('{');
                rest = &tail[1..];
                continue;
            }
            rest = &tail[end + 1..];
            let means = match found {
                Some(Known::Text(text)) => {
                    pieces.text.push_str(&text);
                    continue;
                }
                Some(Known::Place(place)) => Meaning::Place(place),
                None if is_name(name) => Meaning::Slot(build.slot(name)),
                None => continue,
            };
            pieces.push(Piece::Placeholder { means, written: tail[..=end].into() });
        }
        pieces.text.push_str(rest);
        Self { pieces: pieces.finish(), unknown }
    }

    /// The whole text, when it holds no placeholder.
    #[inline]
    pub fn literal(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Appends what the template stands for in this exchange.
    pub fn render(&self, cx: &mut Context, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Placeholder { means, written } => {
                    if !means.render(cx, out) && self.unknown == Unknown::Written {
                        out.extend_from_slice(written.as_bytes());
                    }
                }
            }
        }
    }

    /// As [`render`](Self::render), but has `put` append each placeholder's value, given its name without braces: for text
    /// where a value is to be escaped and what is around it is not.
    pub fn render_values(&self, cx: &mut Context, out: &mut Vec<u8>, mut put: impl FnMut(&str, &[u8], &mut Vec<u8>)) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Placeholder { means, written } => {
                    cx.with_scratch(|cx, value| {
                        if !means.render(cx, value) && self.unknown == Unknown::Written {
                            out.extend_from_slice(written.as_bytes());
                        } else {
                            put(&written[1..written.len() - 1], value, out);
                        }
                    });
                }
            }
        }
    }
}

impl Meaning {
    /// Appends its text; false when it is not known now.
    #[inline]
    fn render(&self, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Place(place) => place.render(cx, out),
            Self::Slot(id) => cx.render_variable(*id, out),
        }
    }
}

/// Pieces so far, and the text behind them that may still grow.
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

/// Where the brace that opens `tail` is closed: at the first closing one that has no backslash in front, the last octet
/// of all excepted.
fn closing(tail: &str) -> Option<usize> {
    let octets = tail.as_bytes();
    let mut end = tail.find('}')?;
    while end < octets.len() - 1 && octets[end - 1] == b'\\' {
        end += 1 + tail[end + 1..].find('}')?;
    }
    Some(end)
}

/// Whether a module could set a placeholder of this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|ch: char| ch.is_whitespace() || ch.is_control() || "{\"'`;".contains(ch))
}
