//! Regular expressions as Go writes them, and the placeholders that their groups fill.
//!
//! - `syntax`: what Go's syntax says, in that of the `regex` crate
//!
//! Each worker searches with its own copy, so that nothing is shared or allocated while requests run. Text that is no UTF-8
//! is searched as Go does it: each octet that is part of no character counts as U+FFFD.

mod syntax;

use std::cell::RefCell;
use std::rc::Rc;

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, StateId};
use regex::bytes::{CaptureLocations, Regex};
use serde::Deserialize;

/// Begins the placeholders of groups.
const PREFIX: &str = "http.regexp";

/// A pattern that is searched for.
pub(crate) struct Regexp {
    searcher: StateId<RefCell<Searcher>>,
    /// Of each group, the whole match included.
    names: Box<[Option<Box<str>>]>,
}

/// An expression, and what its groups are called.
#[derive(Clone)]
pub(crate) struct Expression {
    pub(crate) regex: Regex,
    /// Of each group, the whole match included.
    pub(crate) names: Box<[Option<Box<str>>]>,
}

impl Expression {
    /// From Go's syntax; what is wrong with it otherwise.
    pub(crate) fn read(pattern: &str) -> Result<Self, String> {
        let translated = syntax::translate(pattern).map_err(|mistake| mistake.to_string())?;
        let regex = Regex::new(&translated.pattern).map_err(|error| {
            let words = error.to_string();
            words.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        Ok(Self { regex, names: translated.names.into() })
    }

    /// As [`read`](Self::read), for a place of the configuration.
    ///
    /// # Errors
    /// When it is no such pattern.
    pub(crate) fn build(pattern: &str, build: &Build<'_>) -> Result<Self, BuildError> {
        Self::read(pattern).map_err(|words| build.refuse(pattern, format!("a regular expression: {words}")))
    }
}

/// What one worker searches with.
struct Searcher {
    regex: Regex,
    /// Where the groups of the last match lie.
    groups: CaptureLocations,
    /// The text that was searched, when its own octets are no UTF-8.
    repaired: Vec<u8>,
}

impl Regexp {
    /// From Go's syntax.
    ///
    /// # Errors
    /// When it is no such pattern.
    pub(crate) fn compile(pattern: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let Expression { regex, names } = Expression::build(pattern, build)?;
        let searcher = build.state(move |_| {
            let (regex, groups) = (regex.clone(), regex.capture_locations());
            RefCell::new(Searcher { regex, groups, repaired: Vec::new() })
        });
        Ok(Self { searcher, names })
    }

    /// Whether the text holds a match.
    pub(crate) fn is_match(&self, cx: &Context, text: &[u8]) -> bool {
        let Searcher { regex, repaired, .. } = &mut *cx.generation().state(self.searcher).borrow_mut();
        regex.is_match(as_characters(text, repaired))
    }

    /// As [`is_match`](Self::is_match), and keeps where the groups lie.
    fn find(&self, cx: &Context, text: &[u8]) -> bool {
        let Searcher { regex, groups, repaired } = &mut *cx.generation().state(self.searcher).borrow_mut();
        regex.captures_read(groups, as_characters(text, repaired)).is_some()
    }
}

/// A pattern as matchers have it, whose groups fill placeholders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) pattern: String,
}

/// A pattern that leaves what its groups matched to `{http.regexp.NAME.GROUP}` and `{http.regexp.GROUP}`, the group by its
/// number and, where it has one, its name.
pub(crate) struct Capturing {
    regexp: Regexp,
    /// The placeholders of each group.
    slots: Box<[Box<[VarId]>]>,
}

impl Capturing {
    /// Compiles the pattern and allots the slots of its placeholders.
    ///
    /// # Errors
    /// When the pattern or the name is none.
    pub(crate) fn compile(written: &Written, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let name = &written.name;
        if !name.is_empty() && !name.contains(|ch: char| ch.is_ascii_alphanumeric() || ch == '_') {
            let expected = "a name with letters, digits or underscores";
            return build.at("name", |build| Err(build.refuse(name, expected)));
        }
        let regexp = build.at("pattern", |build| Regexp::compile(&written.pattern, build))?;
        let groups = regexp.names.iter().enumerate().map(|(number, group)| {
            let keys = [Some(number.to_string()), group.as_deref().map(str::to_owned)];
            let mut slots = Vec::new();
            for key in keys.into_iter().flatten() {
                if !name.is_empty() {
                    slots.push(build.slot(&format!("{PREFIX}.{name}.{key}")));
                }
                slots.push(build.slot(&format!("{PREFIX}.{key}")));
            }
            slots.into()
        });
        let slots = groups.collect();
        Ok(Self { regexp, slots })
    }

    /// Whether the text holds a match; if so the placeholders are filled.
    pub(crate) fn matches(&self, cx: &mut Context, text: &[u8]) -> bool {
        let found = self.find(cx, text);
        if found {
            self.fill(cx, text);
        }
        found
    }

    /// Whether the text holds a match, and nothing more: [`fill`](Self::fill) comes next.
    pub(crate) fn find(&self, cx: &Context, text: &[u8]) -> bool {
        self.regexp.find(cx, text)
    }

    /// Fills the placeholders from the last match, which was found in this text. A group that took no part is empty.
    pub(crate) fn fill(&self, cx: &mut Context, text: &[u8]) {
        let generation = Rc::clone(cx.generation());
        let searcher = generation.state(self.regexp.searcher).borrow();
        let is_text = std::str::from_utf8(text).is_ok();
        for (group, slots) in self.slots.iter().enumerate() {
            let (start, end) = searcher.groups.get(group).unwrap_or_default();
            let matched = match is_text {
                true => &text[start..end],
                false => &text[before_repair(text, start)..before_repair(text, end)],
            };
            for slot in slots {
                cx.set_variable_text(*slot, matched);
            }
        }
    }
}

/// Octets of a repaired text that a worker keeps room for.
const REPAIRED_KEPT_MAX: usize = 64 * 1024;

/// The text, or what Go takes it for when it is no UTF-8.
pub(crate) fn as_characters<'t>(text: &'t [u8], repaired: &'t mut Vec<u8>) -> &'t [u8] {
    if std::str::from_utf8(text).is_ok() {
        return text;
    }
    repaired.clear();
    repaired.shrink_to(REPAIRED_KEPT_MAX);
    for chunk in text.utf8_chunks() {
        repaired.extend_from_slice(chunk.valid().as_bytes());
        chunk.invalid().iter().for_each(|_| repaired.extend_from_slice("\u{fffd}".as_bytes()));
    }
    repaired
}

/// Where a place of the repaired text lies in the text itself.
#[cold]
fn before_repair(text: &[u8], at: usize) -> usize {
    let (mut from, mut to) = (0, 0);
    for chunk in text.utf8_chunks() {
        let (valid, invalid) = (chunk.valid().len(), chunk.invalid().len());
        if at < to + valid + 3 * invalid {
            return from + (at - to).min(valid) + (at - to).saturating_sub(valid) / 3;
        }
        from += valid + invalid;
        to += valid + 3 * invalid;
    }
    from
}

#[cfg(test)]
mod tests;
