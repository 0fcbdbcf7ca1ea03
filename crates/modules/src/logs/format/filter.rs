//! Filters: they remove, rename or change fields.
//!
//! - `change`: new texts for a field's texts

mod change;

use causeway_pipeline::build::Problem;
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::entry::{FieldSink, Fields, LogKey, LogValue};
use change::{Action, ActionConfig, Operation, OperationConfig, Scratch, TextChange};

/// The filters of a format, as a tree of field names.
pub(super) struct Filters(Node);

#[derive(Default)]
struct Node {
    filter: Option<Filter>,
    children: Vec<(Box<str>, Node)>,
}

enum Filter {
    Delete,
    Rename(Box<str>),
    Replace(Box<str>),
    /// Changes texts; other values and objects stay.
    TextChange(TextChange),
    /// Changes the cookies in a list of fields, which becomes one text.
    Cookies {
        actions: Box<[Action]>,
        is_set_cookie: bool,
    },
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FilterConfig {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    regexp: Option<String>,
    #[serde(default)]
    ipv4_cidr: Option<i64>,
    #[serde(default)]
    ipv6_cidr: Option<i64>,
    #[serde(default)]
    actions: Option<Vec<ActionConfig>>,
    #[serde(default)]
    operations: Option<Vec<OperationConfig>>,
}

impl Filters {
    /// Reads a map from field names, with `>` between the names of nested fields, to filters.
    pub(super) fn read(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut root = Node::default();
        for (path, filter) in written {
            let filter = build.at(path, |build| {
                let config: FilterConfig = build.parse(filter)?;
                config.read(filter, build)
            })?;
            let mut node = &mut root;
            for name in path.split('>') {
                let known = node.children.iter().position(|(child, _)| **child == *name);
                let index = known.unwrap_or_else(|| {
                    node.children.push((name.into(), Node::default()));
                    node.children.len() - 1
                });
                node = &mut node.children[index].1;
            }
            node.filter = Some(filter);
        }
        Ok(Self(root))
    }

    /// Returns the fields as the filters change them.
    pub(super) fn of<'f>(&'f self, fields: &'f dyn Fields) -> impl Fields + 'f {
        Filtered { fields, node: &self.0 }
    }
}

impl FilterConfig {
    fn read(self, written: &Value, build: &mut Build<'_>) -> Result<Filter, BuildError> {
        let allowed: &[&str] = match &*self.filter {
            "delete" | "hash" => &[],
            "rename" => &["name"],
            "replace" => &["value"],
            "ip_mask" => &["ipv4_cidr", "ipv6_cidr"],
            "query" | "cookie" | "set_cookie" => &["actions"],
            "regexp" => &["regexp", "value"],
            "multi_regexp" => &["operations"],
            name => return Err(build.error(Problem::UnknownModule { kind: "log filter", name: name.to_owned() })),
        };
        let members = written.as_object().into_iter().flatten().map(|(key, _)| key);
        if let Some(option) = members.into_iter().find(|key| *key != "filter" && !allowed.contains(&key.as_str())) {
            return Err(build.refuse(option, format!("options of the filter '{}'", self.filter)));
        }
        let bits = |key: &str, bits: Option<i64>, most: u8, build: &mut Build<'_>| match bits {
            None | Some(0) => Ok(None),
            Some(bits) => match u8::try_from(bits).ok().filter(|bits| *bits <= most) {
                Some(bits) => Ok(Some(bits)),
                None => build.at(key, |build| Err(build.refuse(bits.to_string(), format!("bits from 0 to {most}")))),
            },
        };
        let actions = |actions: Option<Vec<ActionConfig>>, build: &mut Build<'_>| {
            let actions = actions.unwrap_or_default();
            let actions = actions.into_iter().map(|action| action.read(build));
            build_all(actions)
        };
        Ok(match &*self.filter {
            "delete" => Filter::Delete,
            "rename" => Filter::Rename(self.name.unwrap_or_default().into()),
            "replace" => Filter::Replace(self.value.unwrap_or_default().into()),
            "hash" => Filter::TextChange(TextChange::Hash),
            "ip_mask" => Filter::TextChange(TextChange::IpMask {
                v4: bits("ipv4_cidr", self.ipv4_cidr, 32, build)?,
                v6: bits("ipv6_cidr", self.ipv6_cidr, 128, build)?,
            }),
            "query" => Filter::TextChange(TextChange::Query(actions(self.actions, build)?)),
            "regexp" => {
                let only =
                    OperationConfig { regexp: self.regexp.unwrap_or_default(), value: self.value.unwrap_or_default() };
                Filter::TextChange(TextChange::Regexp([Operation::read(&only, build)?].into()))
            }
            "multi_regexp" => {
                let written = self.operations.unwrap_or_default();
                if written.is_empty() || written.len() > change::OPERATIONS_MAX {
                    let expected = format!("1 to {} operations", change::OPERATIONS_MAX);
                    return Err(build.refuse(written.len().to_string(), expected));
                }
                let operations = written.iter().map(|operation| {
                    // It would match between all characters.
                    if operation.regexp.is_empty() {
                        return Err(build.refuse("", "a regular expression in `regexp`"));
                    }
                    Operation::read(operation, build)
                });
                Filter::TextChange(TextChange::Regexp(build_all(operations)?))
            }
            kind => Filter::Cookies { actions: actions(self.actions, build)?, is_set_cookie: kind == "set_cookie" },
        })
    }
}

fn build_all<T>(items: impl Iterator<Item = Result<T, BuildError>>) -> Result<Box<[T]>, BuildError> {
    items.collect()
}

/// Fields of which some are changed.
struct Filtered<'f> {
    fields: &'f dyn Fields,
    node: &'f Node,
}

impl Fields for Filtered<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        self.fields.visit(&mut FilterSink { inner: sink, node: self.node });
    }
}

/// Changes fields on their way to `inner`.
struct FilterSink<'s> {
    inner: &'s mut dyn FieldSink,
    node: &'s Node,
}

impl Node {
    fn child(&self, key: &str) -> Option<&Self> {
        self.children.iter().find(|(name, _)| **name == *key).map(|(_, node)| node)
    }
}

impl FieldSink for FilterSink<'_> {
    fn value(&mut self, key: LogKey<'_>, value: LogValue<'_>) {
        let node = self.node;
        match node.child(key.name()).and_then(|node| node.filter.as_ref()) {
            None => self.inner.value(key, value),
            Some(filter) => value.general(|value| self.filtered(filter, key, value)),
        }
    }

    fn object(&mut self, key: LogKey<'_>, fields: &dyn Fields) {
        let Some(node) = self.node.child(key.name()) else {
            self.inner.object(key, fields);
            return;
        };
        match &node.filter {
            None => self.inner.object(key, &Filtered { fields, node }),
            Some(Filter::Delete) => {}
            Some(Filter::Rename(name)) => self.inner.object((&**name).into(), fields),
            Some(Filter::Replace(text)) => self.inner.value(key, LogValue::Text(text.as_bytes())),
            Some(Filter::TextChange(_) | Filter::Cookies { .. }) => self.inner.object(key, fields),
        }
    }
}

impl FilterSink<'_> {
    fn filtered(&mut self, filter: &Filter, key: LogKey<'_>, value: LogValue<'_>) {
        match (filter, value) {
            (Filter::Delete, _) => {}
            (Filter::Rename(name), value) => self.inner.value((&**name).into(), value),
            (Filter::Replace(text), _) => self.inner.value(key, LogValue::Text(text.as_bytes())),
            (Filter::TextChange(change), LogValue::Text(text)) => {
                let mut scratch = Scratch::take();
                change.apply(text, &mut scratch);
                self.inner.value(key, LogValue::Text(&scratch.text));
                scratch.put_back();
            }
            (Filter::TextChange(change), LogValue::Texts(texts)) => {
                let changed = |take: &mut dyn FnMut(&[u8])| {
                    texts.each(&mut |text| {
                        let mut scratch = Scratch::take();
                        change.apply(text, &mut scratch);
                        take(&scratch.text);
                        scratch.put_back();
                    });
                };
                self.inner.value(key, LogValue::Texts(&changed));
            }
            (Filter::Cookies { actions, is_set_cookie: false }, LogValue::Texts(texts)) => {
                let changed = |take: &mut dyn FnMut(&[u8])| {
                    let mut scratch = Scratch::take();
                    change::cookies(actions, texts, &mut scratch.text);
                    if !scratch.text.is_empty() {
                        take(&scratch.text);
                    }
                    scratch.put_back();
                };
                self.inner.value(key, LogValue::Texts(&changed));
            }
            (Filter::Cookies { actions, is_set_cookie: true }, LogValue::Texts(texts)) => {
                let changed = |take: &mut dyn FnMut(&[u8])| {
                    texts.each(&mut |text| {
                        let mut scratch = Scratch::take();
                        change::set_cookie(actions, text, &mut scratch.text);
                        if !scratch.text.is_empty() {
                            take(&scratch.text);
                        }
                        scratch.put_back();
                    });
                };
                self.inner.value(key, LogValue::Texts(&changed));
            }
            // As in Caddy, numbers have no text that could be changed.
            (Filter::TextChange(_) | Filter::Cookies { .. }, value) => self.inner.value(key, value),
        }
    }
}
