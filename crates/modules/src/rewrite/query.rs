//! Edits the query as a list of keys and values, and writes it sorted by key.

use std::cell::RefCell;
use std::ops::Range;

use causeway_message::query;
use causeway_pipeline::{Build, BuildError, Context, Fault, StateId, Template};
use serde::Deserialize;

use super::{NewQuery, has_path, set_target};
use crate::replace::{self, Replacer};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QueryConfig {
    rename: Vec<QueryPairConfig>,
    set: Vec<QueryPairConfig>,
    add: Vec<QueryPairConfig>,
    replace: Vec<QueryReplacementConfig>,
    delete: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct QueryPairConfig {
    key: String,
    val: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct QueryReplacementConfig {
    key: String,
    search: String,
    search_regexp: String,
    replace: String,
}

pub(super) struct Operations {
    /// In Caddy's order: rename, set, add, replace, delete.
    list: Box<[Operation]>,
    pairs: StateId<RefCell<Pairs>>,
}

enum Operation {
    Rename(Template, Template),
    Set(Template, Template),
    Add(Template, Template),
    Replace { key: Template, search: QuerySearch, replace: Template },
    Delete(Template),
}

enum QuerySearch {
    Plain(Template),
    Regexp(Replacer),
}

impl Operations {
    pub(super) fn build(written: &QueryConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut list = Vec::new();
        let mut pair = |pair: &QueryPairConfig, make: fn(Template, Template) -> Operation| {
            list.push(make(build.template(&pair.key), build.template(&pair.val)));
        };
        written.rename.iter().for_each(|rename| pair(rename, Operation::Rename));
        written.set.iter().for_each(|set| pair(set, Operation::Set));
        written.add.iter().for_each(|add| pair(add, Operation::Add));
        for (index, replacement) in written.replace.iter().enumerate() {
            let search = if replacement.search_regexp.is_empty() {
                QuerySearch::Plain(build.template_keeping_unknown(&replacement.search))
            } else {
                let place = format!("replace[{index}].search_regexp");
                QuerySearch::Regexp(build.at(place, |build| Replacer::build(&replacement.search_regexp, build))?)
            };
            let (key, replace) =
                (build.template(&replacement.key), build.template_keeping_unknown(&replacement.replace));
            list.push(Operation::Replace { key, search, replace });
        }
        list.extend(written.delete.iter().map(|key| Operation::Delete(build.template(key))));
        Ok(Self { list: list.into(), pairs: build.allocate_state(|_| RefCell::default()) })
    }

    pub(super) fn apply(&self, cx: &mut Context) -> Result<(), Fault> {
        if !has_path(cx) {
            return Ok(());
        }
        // Taken out of the cell, so that no borrow is held while placeholders are rendered.
        let mut pairs = cx.generation().state(self.pairs).take();
        pairs.read(cx.head().target().query().unwrap_or_default().as_bytes());
        for operation in &self.list {
            operation.apply(&mut pairs, cx);
        }
        let outcome = cx.with_scratch(|cx, query| {
            replace::check_len(pairs.len())?;
            pairs.write(query);
            cx.with_scratch(|cx, path| {
                path.extend_from_slice(cx.head().target().path().as_bytes());
                set_target(cx, path, NewQuery::Set(query))
            })
        });
        pairs.release_memory();
        cx.generation().state(self.pairs).replace(pairs);
        outcome
    }
}

impl Operation {
    fn apply(&self, pairs: &mut Pairs, cx: &mut Context) {
        match self {
            Self::Rename(key, to) => cx.with_rendered(key, |cx, key| {
                cx.with_rendered(to, |_, to| {
                    if !key.is_empty() && !to.is_empty() && key != to && pairs.has(key) {
                        // As in Caddy, the renamed values replace those of the new key.
                        pairs.remove(to);
                        pairs.rename(key, to);
                    }
                });
            }),
            Self::Set(key, value) => cx.with_rendered(key, |cx, key| {
                if !key.is_empty() {
                    pairs.remove(key);
                    cx.with_rendered(value, |_, value| pairs.push(key, value));
                }
            }),
            Self::Add(key, value) => cx.with_rendered(key, |cx, key| {
                if !key.is_empty() {
                    cx.with_rendered(value, |_, value| pairs.push(key, value));
                }
            }),
            Self::Replace { key, search, replace } => cx.with_rendered(key, |cx, key| {
                cx.with_rendered(replace, |cx, with| match search {
                    QuerySearch::Regexp(search) => {
                        pairs.replace(key, |value, out| search.replace(cx, value, with, out));
                    }
                    QuerySearch::Plain(search) => cx.with_rendered(search, |_, search| {
                        pairs.replace(key, |value, out| replace::plain(value, search, with, None, out));
                    }),
                });
            }),
            Self::Delete(key) => cx.with_rendered(key, |_, key| {
                if !key.is_empty() {
                    pairs.remove(key);
                }
            }),
        }
    }
}

/// Decoded keys and values in one buffer, which a worker reuses.
#[derive(Default)]
struct Pairs {
    text: Vec<u8>,
    list: Vec<QueryPair>,
    made: Vec<u8>,
}

struct QueryPair {
    key: Range<usize>,
    value: Range<usize>,
    /// Position in the query, for a stable order.
    number: usize,
}

/// Capacity in bytes that a worker keeps between requests.
const KEPT_BYTES_MAX: usize = 16 * 1024;

impl Pairs {
    // Go, url.ParseQuery: a pair with a `;` or an invalid escape is ignored.
    fn read(&mut self, query: &[u8]) {
        self.text.clear();
        self.list.clear();
        for (key, value) in query::pairs(query) {
            let start = self.text.len();
            if let Some(key) = self.decoded(key)
                && let Some(value) = self.decoded(value)
            {
                self.list.push(QueryPair { key, value, number: self.list.len() });
            } else {
                // Also discards the key of a pair whose value is invalid.
                self.text.truncate(start);
            }
        }
    }

    fn decoded(&mut self, escaped: &[u8]) -> Option<Range<usize>> {
        let start = self.text.len();
        query::decode(escaped, &mut self.text).then_some(start..self.text.len())
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        start..self.text.len()
    }

    /// The bytes of all keys and values.
    fn len(&self) -> usize {
        self.list.iter().map(|pair| pair.key.len() + pair.value.len()).sum()
    }

    fn has(&self, key: &[u8]) -> bool {
        self.list.iter().any(|pair| self.text[pair.key.clone()] == *key)
    }

    fn remove(&mut self, key: &[u8]) {
        let text = &self.text;
        self.list.retain(|pair| text[pair.key.clone()] != *key);
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let number = self.list.last().map_or(0, |last| last.number + 1);
        let pair = QueryPair { key: self.put(key), value: self.put(value), number };
        self.list.push(pair);
    }

    fn rename(&mut self, key: &[u8], to: &[u8]) {
        let to = self.put(to);
        for pair in self.list.iter_mut().filter(|pair| self.text[pair.key.clone()] == *key) {
            pair.key = to.clone();
        }
    }

    /// Replaces in the values of one key, or of all keys for `*`.
    fn replace(&mut self, key: &[u8], mut replace: impl FnMut(&[u8], &mut Vec<u8>) -> bool) {
        let mut total = self.len();
        for at in 0..self.list.len() {
            if replace::check_len(total).is_err() {
                // The caller refuses it.
                return;
            }
            let pair = &self.list[at];
            if key != b"*" && self.text[pair.key.clone()] != *key {
                continue;
            }
            self.made.clear();
            if replace(&self.text[pair.value.clone()], &mut self.made) {
                // The old value stays in the buffer as garbage until the end of the request.
                total = total - pair.value.len() + self.made.len();
                let start = self.text.len();
                self.text.extend_from_slice(&self.made);
                self.list[at].value = start..self.text.len();
            }
        }
    }

    // Go, url.Values.Encode: sorted by key; the values of one key keep their order.
    fn write(&mut self, out: &mut Vec<u8>) {
        let text = &self.text;
        // An unstable sort does not allocate; the number as second key makes the result stable.
        self.list.sort_unstable_by(|a, b| (&text[a.key.clone()], a.number).cmp(&(&text[b.key.clone()], b.number)));
        for (number, pair) in self.list.iter().enumerate() {
            if number > 0 {
                out.push(b'&');
            }
            query::encode(&text[pair.key.clone()], out);
            out.push(b'=');
            query::encode(&text[pair.value.clone()], out);
        }
    }

    fn release_memory(&mut self) {
        for bytes in [&mut self.text, &mut self.made] {
            bytes.clear();
            bytes.shrink_to(KEPT_BYTES_MAX);
        }
        self.list.clear();
        self.list.shrink_to(KEPT_BYTES_MAX / size_of::<QueryPair>());
    }
}
