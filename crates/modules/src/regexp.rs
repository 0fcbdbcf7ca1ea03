//! Regular expressions in Go's syntax that match texts, and the placeholders filled from their capture groups.
//! `replace` has those that replace.
//!
//! Each worker searches with its own copy, so requests share no memory and do not allocate. Text that is not valid
//! UTF-8 is searched as in Go: each byte that is not part of a valid character counts as U+FFFD.

use std::cell::RefCell;
use std::rc::Rc;

use causeway_go_regexp::{COMPILED_BYTES_MAX, Translated, as_characters, before_repair, error_reason, translate};
use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, StateId};
use regex::bytes::{CaptureLocations, Regex, RegexBuilder};
use serde::Deserialize;

/// Prefix of the placeholders for capture groups.
const PREFIX: &str = "http.regexp";

/// Bounds on an expression that is compiled while a request runs, possibly one of the client's choice: the bytes of its
/// source and of its compiled form, and the characters whose case is looked up. Compiling occupies the worker, with
/// these bounds for about 10 ms.
const SOURCE_AT_REQUEST_BYTES_MAX: usize = 1024;
const COMPILED_AT_REQUEST_BYTES_MAX: usize = 256 * 1024;
const FOLDED_AT_REQUEST_MAX: usize = 300_000;

/// A compiled pattern with one searcher per worker.
pub(crate) struct WorkerRegex {
    searcher: StateId<RefCell<Searcher>>,
    /// The name of each group, the whole match first.
    names: Box<[Option<Box<str>>]>,
}

/// A compiled expression and the names of its groups.
#[derive(Clone)]
pub(crate) struct CompiledRegex {
    pub(crate) regex: Regex,
    /// The name of each group, the whole match first.
    pub(crate) names: Box<[Option<Box<str>>]>,
}

impl CompiledRegex {
    /// Compiles a pattern in Go's syntax; the error describes the mistake.
    pub(crate) fn read(pattern: &str) -> Result<Self, String> {
        Self::compile(translate(pattern).map_err(|mistake| mistake.to_string())?, COMPILED_BYTES_MAX)
    }

    /// Like [`read`](Self::read), with small bounds, for a pattern that depends on the request.
    pub(crate) fn read_at_request(pattern: &str) -> Result<Self, String> {
        const LARGE: &str = "an expression that is too large for one of a request";
        if pattern.len() > SOURCE_AT_REQUEST_BYTES_MAX {
            return Err(LARGE.to_owned());
        }
        let translated = translate(pattern).map_err(|mistake| mistake.to_string())?;
        if translated.folded_characters > FOLDED_AT_REQUEST_MAX {
            return Err(LARGE.to_owned());
        }
        Self::compile(translated, COMPILED_AT_REQUEST_BYTES_MAX)
    }

    fn compile(translated: Translated, compiled_bytes_max: usize) -> Result<Self, String> {
        let regex = RegexBuilder::new(&translated.pattern).size_limit(compiled_bytes_max).build();
        let regex = regex.map_err(error_reason)?;
        Ok(Self { regex, names: translated.names.into() })
    }

    /// Like [`read`](Self::read), but the error names the place in the configuration.
    ///
    /// # Errors
    /// If the pattern is not valid.
    pub(crate) fn build(pattern: &str, build: &Build<'_>) -> Result<Self, BuildError> {
        Self::read(pattern).map_err(|message| build.refuse(pattern, format!("a regular expression: {message}")))
    }
}

/// One worker's copy of a pattern and its scratch memory.
struct Searcher {
    regex: Regex,
    /// The groups' positions in the last match.
    groups: CaptureLocations,
    /// The searched text with U+FFFD for each invalid byte; used only when the original is not valid UTF-8.
    repaired: Vec<u8>,
}

impl WorkerRegex {
    /// Compiles a pattern in Go's syntax.
    ///
    /// # Errors
    /// If the pattern is not valid.
    pub(crate) fn compile(pattern: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let CompiledRegex { regex, names } = CompiledRegex::build(pattern, build)?;
        let searcher = build.allocate_state(move |_| {
            let (regex, groups) = (regex.clone(), regex.capture_locations());
            RefCell::new(Searcher { regex, groups, repaired: Vec::new() })
        });
        Ok(Self { searcher, names })
    }

    /// Returns whether the text contains a match.
    pub(crate) fn is_match(&self, cx: &Context, text: &[u8]) -> bool {
        let Searcher { regex, repaired, .. } = &mut *cx.generation().state(self.searcher).borrow_mut();
        regex.is_match(as_characters(text, repaired))
    }

    /// Like [`is_match`](Self::is_match), and stores the groups' positions.
    fn search(&self, cx: &Context, text: &[u8]) -> bool {
        let Searcher { regex, groups, repaired } = &mut *cx.generation().state(self.searcher).borrow_mut();
        regex.captures_read(groups, as_characters(text, repaired)).is_some()
    }
}

/// A pattern in a matcher's JSON, with an optional name for its placeholders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegexpConfig {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) pattern: String,
}

impl RegexpConfig {
    /// Checks the name by Caddy's rule.
    ///
    /// # Errors
    /// If the name has no letter, digit or underscore.
    pub(crate) fn check_name(&self, build: &mut Build<'_>) -> Result<(), BuildError> {
        let name = &self.name;
        if name.is_empty() || name.contains(|ch: char| ch.is_ascii_alphanumeric() || ch == '_') {
            return Ok(());
        }
        build.at("name", |build| Err(build.refuse(name, "a name with letters, digits or underscores")))
    }
}

/// A pattern that fills `{http.regexp.NAME.GROUP}` and `{http.regexp.GROUP}` from its capture groups. GROUP is the
/// group's number or, if it has one, its name.
pub(crate) struct Capturing {
    regexp: WorkerRegex,
    /// The placeholder slots of each group.
    slots: Box<[Box<[VarId]>]>,
}

impl Capturing {
    /// Compiles the pattern and allocates the slots of its placeholders.
    ///
    /// # Errors
    /// If the pattern or the name is not valid.
    pub(crate) fn compile(written: &RegexpConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        written.check_name(build)?;
        let name = &written.name;
        let regexp = build.at("pattern", |build| WorkerRegex::compile(&written.pattern, build))?;
        let groups = regexp.names.iter().enumerate().map(|(number, group)| {
            // A named group fills two placeholders, by number and by name, each with and without the pattern's name.
            let keys = [Some(number.to_string()), group.as_deref().map(str::to_owned)];
            let mut slots = Vec::new();
            for key in keys.into_iter().flatten() {
                if !name.is_empty() {
                    slots.push(build.allocate_slot(&format!("{PREFIX}.{name}.{key}")));
                }
                slots.push(build.allocate_slot(&format!("{PREFIX}.{key}")));
            }
            slots.into()
        });
        let slots = groups.collect();
        Ok(Self { regexp, slots })
    }

    /// Compiles the pattern; its groups fill these placeholders, one each.
    ///
    /// # Errors
    /// If the pattern is not valid.
    pub(crate) fn with_placeholders(
        pattern: &str,
        placeholders: impl Iterator<Item = String>,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let regexp = WorkerRegex::compile(pattern, build)?;
        // The whole match has none.
        let mut slots = vec![Box::default()];
        slots.extend(placeholders.map(|placeholder| Box::from([build.allocate_slot(&placeholder)])));
        Ok(Self { regexp, slots: slots.into() })
    }

    /// Returns whether the text contains a match; on a match also fills the placeholders.
    pub(crate) fn matches(&self, cx: &mut Context, text: &[u8]) -> bool {
        let found = self.search(cx, text);
        if found {
            self.fill(cx, text);
        }
        found
    }

    /// Returns whether the text contains a match, without filling the placeholders: call [`fill`](Self::fill) for that.
    pub(crate) fn search(&self, cx: &Context, text: &[u8]) -> bool {
        self.regexp.search(cx, text)
    }

    /// Fills the placeholders from the last match. `text` must be the text of that match. A group that did not take
    /// part expands to the empty string.
    pub(crate) fn fill(&self, cx: &mut Context, text: &[u8]) {
        let generation = Rc::clone(cx.generation());
        let searcher = generation.state(self.regexp.searcher).borrow();
        // The groups' positions refer to the repaired text if the original is not valid UTF-8.
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
