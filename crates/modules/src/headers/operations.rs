//! The changes to fields, in Caddy's order: clear, add, set, delete, replace.

use std::cell::RefCell;
use std::collections::BTreeMap;

use causeway_message::{FieldLine, FieldMap, FieldName, KnownName, NameRef, names};
use causeway_pipeline::{Build, BuildError, Call, Context, Fault, StateId, Template};

use super::{HeaderOpsConfig, HeaderReplacementConfig};
use crate::glob::Affix;
use crate::rendered::{FieldNameTemplate, FieldText, with_field_value};
use crate::replace::{self, Replacer, TemplatedReplacer};

/// The message whose fields are changed.
#[derive(Clone, Copy)]
pub(super) enum Side<'c> {
    Request,
    Response,
    /// The request of an upstream call.
    Call(&'c Call),
    /// The response of an upstream call.
    Answer(&'c Call),
}

impl Side<'_> {
    fn edit<T>(self, cx: &mut Context, work: impl FnOnce(&mut FieldMap) -> T) -> T {
        match self {
            Self::Request => work(cx.head_mut().fields_mut()),
            Self::Response => work(cx.response_mut().fields_mut()),
            Self::Call(call) => work(call.request_mut().fields_mut()),
            Self::Answer(call) => work(call.head_mut().fields_mut()),
        }
    }
}

/// The compiled operations on one message's fields.
pub(crate) struct Operations {
    clear: bool,
    add: Box<[Values]>,
    set: Box<[Values]>,
    delete: Box<[Template]>,
    replace: Box<[Replacement]>,
    /// Reused by each worker: the previous fields while a replacement builds the new ones.
    old: StateId<RefCell<FieldMap>>,
}

/// A field and its new values.
type Values = (FieldNameTemplate, Box<[FieldText]>);

struct Replacement {
    /// `None` applies to all fields.
    name: Option<FieldNameTemplate>,
    search: ReplacementSearch,
    with: Template,
}

enum ReplacementSearch {
    Plain(Template),
    Regexp(Replacer),
    /// With placeholders in the expression.
    Templated(TemplatedReplacer),
}

impl Operations {
    pub(super) fn build(written: HeaderOpsConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut add = Vec::with_capacity(written.add.len());
        for (name, values) in written.add {
            let values = values.iter().map(|value| FieldText::build(value, build)).collect();
            add.push((FieldNameTemplate::build(&name, build)?, values));
        }
        let set = set(written.set, build)?;
        let (mut clear, mut delete) = (false, Vec::with_capacity(written.delete.len()));
        for name in written.delete {
            let pattern = build.template_keeping_unknown(&name);
            match pattern.literal() {
                // A lone `*` deletes all fields, before the other operations.
                Some("*") => clear = true,
                // As in Caddy, a name whose placeholders are empty deletes no field.
                Some("") if !name.is_empty() => {}
                Some(text) if text != "**" && FieldName::parse(text.trim_matches('*')).is_none() => {
                    return Err(build.refuse(name, "a field name, with a * at its start or end at most"));
                }
                _ => delete.push(pattern),
            }
        }
        let mut replace = Vec::with_capacity(written.replace.len());
        for (name, replacements) in written.replace {
            // Caddy expands the name first: it may be the value of a placeholder.
            let is_all = build.template_keeping_unknown(&name).literal() == Some("*");
            let field = if is_all { None } else { Some(FieldNameTemplate::build(&name, build)?) };
            for (index, replacement) in replacements.iter().enumerate() {
                let search = build
                    .at(format!("replace.{name}[{index}]"), |build| ReplacementSearch::build(replacement, build))?;
                let with = build.template_keeping_unknown(&replacement.replace);
                replace.push(Replacement { name: field.clone(), search, with });
            }
        }
        let old = build.allocate_state(|_| RefCell::default());
        Ok(Self { clear, add: add.into(), set: set.into(), delete: delete.into(), replace: replace.into(), old })
    }

    /// Applies the operations.
    ///
    /// # Errors
    /// 500 for a replacement with a result that is too long.
    pub(super) fn apply(&self, cx: &mut Context, side: Side<'_>) -> Result<(), Fault> {
        if self.clear {
            side.edit(cx, FieldMap::clear);
        }
        for (name, values) in &self.add {
            name.with(cx, |cx, name| append(cx, side, name, values));
        }
        for (name, values) in &self.set {
            name.with(cx, |cx, name| match &**values {
                [value] => value.with(cx, |cx, value| side.edit(cx, |fields| fields.insert(name, value))),
                // Caddy: several Set-Cookie values become several fields, because they cannot be joined to one.
                values if values.len() > 1 && name == NameRef::Known(names::SET_COOKIE) => {
                    side.edit(cx, |fields| fields.remove(name));
                    append(cx, side, name, values);
                }
                // Other values are joined with commas to one field.
                values => cx.with_scratch(|cx, joined| {
                    for (number, value) in values.iter().enumerate() {
                        if number > 0 {
                            joined.push(b',');
                        }
                        value.render(cx, joined);
                    }
                    with_field_value(joined, |value| side.edit(cx, |fields| fields.insert(name, value)));
                }),
            });
        }
        for pattern in &self.delete {
            cx.with_rendered(pattern, |cx, pattern| side.edit(cx, |fields| delete(fields, Affix::of(pattern))));
        }
        for replacement in &self.replace {
            let mut result = Ok(());
            cx.with_rendered(&replacement.with, |cx, with| match &replacement.name {
                None => result = self.replace(cx, side, None, &replacement.search, with),
                Some(name) => name.with(cx, |cx, name| {
                    result = self.replace(cx, side, Some(name), &replacement.search, with);
                }),
            });
            result?;
        }
        if matches!(side, Side::Request | Side::Call(_)) {
            self.remove_from_connection_and_trailer(cx, side);
        }
        Ok(())
    }

    /// Removes the names of the changed fields from the client's `Connection` and `Trailer`. A name in `Connection`
    /// would make the upstream drop the field that was set; a name in `Trailer` would let the client send in a trailer
    /// the field that was removed.
    fn remove_from_connection_and_trailer(&self, cx: &mut Context, side: Side<'_>) {
        if !side.edit(cx, |fields| LISTS.iter().any(|list| fields.contains(*list))) {
            return;
        }
        if self.clear {
            side.edit(cx, |fields| remove_listed(fields, |_| true));
        }
        let replaced = self.replace.iter().filter_map(|replacement| replacement.name.as_ref());
        for name in self.add.iter().chain(&self.set).map(|(name, _)| name).chain(replaced) {
            name.with(cx, |cx, name| {
                let is_it = |listed: &[u8]| listed.eq_ignore_ascii_case(name.as_str().as_bytes());
                side.edit(cx, |fields| remove_listed(fields, is_it));
            });
        }
        for pattern in &self.delete {
            cx.with_rendered(pattern, |cx, pattern| {
                let pattern = Affix::of(pattern);
                side.edit(cx, |fields| remove_listed(fields, |listed| pattern.matches_any_case(listed)));
            });
        }
    }

    /// Replaces in the values of one field, or of all fields. The map is rebuilt from a copy, but only if a value
    /// changes.
    fn replace(
        &self,
        cx: &mut Context,
        side: Side<'_>,
        name: Option<NameRef<'_>>,
        search: &ReplacementSearch,
        with: &[u8],
    ) -> Result<(), Fault> {
        let is_meant = |field: NameRef<'_>| name.is_none_or(|name| name == field);
        if !side.edit(cx, |fields| fields.iter().any(|(field, _)| is_meant(field))) {
            return Ok(());
        }
        // Taken out of the cell, so that no borrow is held while placeholders are rendered.
        let mut old = cx.generation().state(self.old).take();
        side.edit(cx, |fields| old.copy_from(fields));
        let (mut changed, mut total) = (false, 0);
        let result = cx.with_scratch(|cx, made| {
            for (place, line) in old.lines().enumerate() {
                made.clear();
                let replaced = is_meant(line.name) && search.replace(cx, line.value, with, made);
                total += made.len();
                replace::check_len(total)?;
                if replaced && !changed {
                    // The first change: start a new map with a copy of the fields before it.
                    changed = true;
                    side.edit(cx, FieldMap::clear);
                    side.edit(cx, |fields| old.lines().take(place).for_each(|line| fields.push_line(line)));
                }
                if replaced {
                    with_field_value(made, |value| {
                        side.edit(cx, |fields| fields.push_line(FieldLine { value: value.as_bytes(), ..line }));
                    });
                } else if changed {
                    side.edit(cx, |fields| fields.push_line(line));
                }
            }
            Ok(())
        });
        if result.is_err() && changed {
            // The error routes and the log see the fields as they were.
            side.edit(cx, |fields| fields.copy_from(&old));
        }
        old.clear();
        old.shrink_to(KEPT_BYTES_MAX);
        cx.generation().state(self.old).replace(old);
        result
    }
}

/// Capacity in bytes that a worker keeps between requests.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Compiles the fields to set. Names that differ only in case are one field, with all their values.
fn set(written: BTreeMap<String, Vec<String>>, build: &mut Build<'_>) -> Result<Vec<Values>, BuildError> {
    let mut merged: Vec<(String, Vec<String>)> = Vec::with_capacity(written.len());
    for (name, values) in written {
        match merged.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            Some((_, known)) => known.extend(values),
            None => merged.push((name, values)),
        }
    }
    let mut set = Vec::with_capacity(merged.len());
    for (name, values) in merged {
        let values = values.iter().map(|value| FieldText::build(value, build)).collect();
        set.push((FieldNameTemplate::build(&name, build)?, values));
    }
    Ok(set)
}

fn append(cx: &mut Context, side: Side<'_>, name: NameRef<'_>, values: &[FieldText]) {
    // RFC 9112 §3.2: a request has exactly one Host. An added one replaces it, as in Caddy.
    let replaces = name == NameRef::Known(names::HOST) && matches!(side, Side::Request | Side::Call(_));
    for value in values {
        value.with(cx, |cx, value| {
            side.edit(cx, |fields| if replaces { fields.insert(name, value) } else { fields.append(name, value) });
        });
    }
}

/// The fields that list names of other fields (RFC 9110 §6.6.2, §7.6.1).
const LISTS: [KnownName; 2] = [names::CONNECTION, names::TRAILER];

/// Removes from both lists the names that are meant, apart from the options of the connection itself.
pub(crate) fn remove_listed(fields: &mut FieldMap, is_meant: impl Fn(&[u8]) -> bool) {
    let is_option = |listed: &[u8]| {
        [&b"close"[..], b"keep-alive", b"upgrade", b"te"].iter().any(|option| listed.eq_ignore_ascii_case(option))
    };
    let is_removed = |listed: &[u8]| is_meant(listed) && !is_option(listed);
    for list in LISTS {
        if !fields.list(list).any(is_removed) {
            continue;
        }
        let left: Vec<_> = fields.list(list).filter(|listed| !is_removed(listed)).map(<[u8]>::to_vec).collect();
        fields.remove(list);
        if !left.is_empty() {
            with_field_value(&left.join(&b", "[..]), |left| fields.insert(list, left));
        }
    }
}

fn delete(fields: &mut FieldMap, pattern: Affix<'_>) {
    match pattern {
        // From a placeholder. A literal `*` was handled as `clear`.
        Affix::Any => {}
        Affix::Exact(name) => {
            if let Some(name) = NameRef::parse(name) {
                fields.remove(name);
            }
        }
        pattern => fields.retain(|name, _| !pattern.matches_any_case(name.as_str().as_bytes())),
    }
}

/// Returns whether an expression may have placeholders: a text in braces, as in Caddy.
fn has_braces(expression: &str) -> bool {
    let inner = expression.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inner.is_some_and(|(inner, _)| !inner.is_empty())
}

impl ReplacementSearch {
    fn build(written: &HeaderReplacementConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let HeaderReplacementConfig { search, search_regexp, .. } = written;
        if search_regexp.is_empty() {
            return Ok(Self::Plain(build.template_keeping_unknown(search)));
        }
        if !search.is_empty() {
            return Err(build.refuse(search_regexp.clone(), "`search` or `search_regexp`, not both"));
        }
        build.at("search_regexp", |build| {
            // Without braces a backslash is the expression's own.
            if !has_braces(search_regexp) {
                return Ok(Self::Regexp(Replacer::build(search_regexp, build)?));
            }
            // A count such as `{2}` also looks like a placeholder, which keeps its text while it is unknown.
            let source = build.template_keeping_unknown(search_regexp);
            match source.literal() {
                Some(literal) => Ok(Self::Regexp(Replacer::build(literal, build)?)),
                None => Ok(Self::Templated(TemplatedReplacer::build(source, build))),
            }
        })
    }

    fn replace(&self, cx: &mut Context, value: &[u8], with: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Self::Plain(search) => cx.with_rendered(search, |_, search| replace::plain(value, search, with, None, out)),
            Self::Regexp(search) => search.replace(cx, value, with, out),
            Self::Templated(search) => search.replace(cx, value, with, out),
        }
    }
}
