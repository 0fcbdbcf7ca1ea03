//! Variables that depend on another one: `map`.

use std::cmp::Reverse;

use super::error_pages::ERROR_STATUS;
use super::site::mentions_in;
use super::{Translator, WHOLE_PATH};
use crate::expressions::{WithoutLookAhead, compiled, without_look_ahead};
use crate::parse::Directive;
use crate::variables::{self, VariableScope};
use crate::write::{block, quote, quote_scalar};

impl<'a> Translator<'a> {
    /// Finds the maps that have an equivalent, and those of them that lack a value. A map about the variable of another
    /// one without an equivalent has none itself.
    pub(super) fn know_maps(&mut self) {
        let mut known = self.shared.maps.clone();
        loop {
            self.shared.known_maps = known.iter().map(|map| variable_of(map).to_owned()).collect();
            let scope = self.map_scope();
            let count = known.len();
            known.retain(|map| scope.expand(map.argument(0)).is_ok_and(|source| !source.is_empty()));
            if known.len() == count {
                break;
            }
        }
        // Their lines and notes are written for each server.
        let notes = std::mem::take(&mut self.notes);
        for map in &known {
            self.write_map(&mut Vec::new(), map);
            if !std::mem::take(&mut self.notes).is_empty() {
                self.shared.partial_maps.push(variable_of(map).to_owned());
            }
        }
        self.notes = notes;
        loop {
            let scope = self.shared_scope();
            let has_partial = |map: &&&Directive| {
                let mut texts = map.block().iter().filter(|entry| entry.name != "#").map(|entry| entry.argument(0));
                !scope.partial.iter().any(|name| name == variable_of(map))
                    && (scope.is_partial(map.argument(0)) || texts.any(|text| scope.is_partial(text)))
            };
            let Some(map) = known.iter().find(has_partial) else { return };
            self.shared.partial_maps.push(variable_of(map).to_owned());
        }
    }

    /// The scope of the values of maps, which are made for each use.
    fn map_scope(&self) -> VariableScope {
        VariableScope { status: ERROR_STATUS.to_owned(), ..self.shared_scope() }
    }

    /// Writes the maps whose variables a server has.
    pub(super) fn write_maps(&mut self, out: &mut Vec<String>, server: &Directive, http: &Directive) {
        for map in self.shared.maps.clone() {
            let variable = variable_of(map);
            // The proxy sends the field Connection by itself.
            let is_of_proxy = variable == "connection_upgrade" && !server.block().iter().any(has_upgrade);
            if mentions_in(server, http, variable) && !is_of_proxy {
                self.write_map(out, map);
            }
        }
    }

    fn write_map(&mut self, out: &mut Vec<String>, map: &Directive) {
        let variable = variable_of(map);
        let mut scope = self.map_scope();
        let has_path = has_path(map);
        if has_path {
            scope.path = format!("{{re.{}.0}}", path_matcher(variable));
        }
        let Some(source) = self.expand(out, map, &scope, map.argument(0)) else { return };
        if source.is_empty() {
            return self.note(out, map, "a map of a constant");
        }
        let lines = self.entries(map, &scope).into_lines();
        let source = if has_path {
            // The path as sent may have another form, which this matcher resolves.
            let name = path_matcher(variable);
            out.push(format!("@{name} path_regexp {name} {WHOLE_PATH}"));
            format!("@{name} {}", quote(&source))
        } else {
            quote(&source)
        };
        block(out, &format!("map {source} {{{}}}", variables::variable(variable)), lines);
    }

    /// Translates the entries of a map.
    fn entries(&mut self, map: &Directive, scope: &VariableScope) -> MapEntries {
        let mut entries = MapEntries::default();
        let has_masks = map.block().iter().any(|entry| entry.name == "hostnames");
        let last_expression = map.block().iter().rposition(|entry| entry.name.starts_with('~'));
        for (index, entry) in map.block().iter().enumerate() {
            let key = &*entry.name;
            if key == "#" {
                entries.comments.push(format!("# {}", entry.argument(0)));
                continue;
            }
            let mut lines = std::mem::take(&mut entries.comments);
            if let Some((rank, mask)) = mask_of_hosts(key).filter(|_| has_masks) {
                self.mask_entry(&mut lines, map, entry, &mask);
                entries.masks.push((rank, lines));
            } else if let Some(expression) = key.strip_prefix('~') {
                entries.expressions.append(&mut lines);
                let is_last = last_expression == Some(index);
                self.expression_entry(&mut entries, map, entry, expression, is_last);
            } else {
                match key {
                    // A value is evaluated for each request anyway.
                    "hostnames" | "volatile" => {}
                    "default" => entries.default = self.expand(&mut lines, entry, scope, entry.argument(0)),
                    _ => self.text_entry(&mut lines, map, entry, scope),
                }
                entries.texts.append(&mut lines);
            }
        }
        entries
    }

    fn mask_entry(&mut self, lines: &mut Vec<String>, map: &Directive, entry: &Directive, mask: &str) {
        match value_of_expression(mask, entry.argument(0), map.argument(0)) {
            Some((mask, value)) => lines.push(expression_line(&mask, &value)),
            None => {
                let reason = "the value of a mask is a text, or the variable that the map is about";
                self.note(lines, entry, reason);
            }
        }
    }

    fn text_entry(&mut self, lines: &mut Vec<String>, map: &Directive, entry: &Directive, scope: &VariableScope) {
        let text = entry.argument(0);
        let value = match text == map.argument(0) {
            true => Some("${0}".to_owned()),
            false => self.expand(lines, entry, scope, text),
        };
        if let Some(value) = value {
            let keys = keys_of_text(&entry.name, value.contains('{') && value != "${0}");
            lines.extend(keys.iter().map(|key| format!("{} {}", quote(key), quote_scalar(&value))));
        }
    }

    /// `is_last`: no other expression follows.
    fn expression_entry(
        &mut self,
        entries: &mut MapEntries,
        map: &Directive,
        entry: &Directive,
        expression: &str,
        is_last: bool,
    ) {
        let expression = match expression.strip_prefix('*') {
            Some(expression) => format!("(?i){}", expression.trim_start()),
            // nginx compares hosts in lower case.
            None if variables::only_variable(map.argument(0)) == Some("host") => {
                format!("(?i){}", expression.trim_start())
            }
            None => expression.trim_start().to_owned(),
        };
        let WithoutLookAhead { expression, except } = without_look_ahead(&expression);
        let mistake = match &except {
            Some(_) if !is_last => Some("a look-ahead before other expressions".to_owned()),
            _ => [Some(&expression), except.as_ref()].into_iter().flatten().find_map(|e| compiled(e).err()),
        };
        let lines = &mut entries.expressions;
        if let Some(mistake) = mistake {
            return self.note(lines, entry, &format!("no equivalent expression: {mistake}"));
        }
        match value_of_expression(&expression, entry.argument(0), map.argument(0)) {
            Some((expression, value)) => {
                entries.excluded = except.map(|except| (lines.len(), except));
                lines.push(expression_line(&expression, &value));
            }
            None => {
                let reason = "the value of an expression has only its groups, or the variable that it is about";
                self.note(lines, entry, reason);
            }
        }
    }

    /// Takes the path again for the maps about it that the rules of a block have: in nginx a map has the value of its
    /// first use, which may be after a rewrite or an index.
    pub(super) fn write_map_paths(&mut self, out: &mut Vec<String>, block: &Directive) {
        for map in &self.shared.maps {
            let variable = variable_of(map);
            let is_rule = |d: &&Directive| matches!(&*d.name, "if" | "set" | "return");
            let has = |d: &Directive| d.arguments.iter().any(|word| variables::variables(word).contains(&variable));
            let mut rules = block.block().iter().filter(is_rule);
            if has_path(map) && rules.any(|rule| has(rule) || rule.block().iter().any(has)) {
                let name = path_matcher(variable);
                out.push(format!("vars @{name} path_of_maps {{re.{name}.0}}"));
            }
        }
    }

    /// The map whose variable has this name.
    pub(super) fn map_of(&self, variable: &str) -> Option<&'a Directive> {
        self.shared.maps.iter().copied().find(|map| variable_of(map) == variable)
    }
}

/// The name of the variable of a map.
/// The translated lines of a map.
#[derive(Default)]
struct MapEntries {
    texts: Vec<String>,
    masks: Vec<(MaskRank, Vec<String>)>,
    expressions: Vec<String>,
    /// The value for a text that no entry matches.
    default: Option<String>,
    /// An expression whose texts have the default, because the last expression excludes them, and its index in
    /// `expressions`.
    excluded: Option<(usize, String)>,
    /// The comments after the last entry.
    comments: Vec<String>,
}

impl MapEntries {
    /// Orders the lines as nginx searches them: first for a text, then for the longest mask of a host name, then for
    /// the first expression.
    fn into_lines(mut self) -> Vec<String> {
        let default = self.default.unwrap_or_default();
        if let Some((at, except)) = self.excluded {
            self.expressions.insert(at, expression_line(&except, &default));
        }
        self.masks.sort();
        let mut lines = self.texts;
        lines.extend(self.masks.into_iter().flat_map(|(_, lines)| lines));
        lines.append(&mut self.expressions);
        lines.append(&mut self.comments);
        lines.push(format!("default {}", quote_scalar(&default)));
        lines
    }
}

fn expression_line(expression: &str, value: &str) -> String {
    format!("{} {}", quote(&format!("~{expression}")), quote_scalar(value))
}

/// The order of masks: those with a wildcard at the start come first, and then the longer ones.
type MaskRank = (u8, Reverse<usize>);

fn variable_of(map: &Directive) -> &str {
    map.argument(1).trim_start_matches('$')
}

/// Whether a map is about the path, or has it in a value.
fn has_path(map: &Directive) -> bool {
    let values = map.block().iter().filter(|entry| entry.name != "#").map(|entry| entry.argument(0));
    [map.argument(0)].into_iter().chain(values).any(variables::has_path)
}

/// The name of the matcher for the path that a map is about.
fn path_matcher(variable: &str) -> String {
    format!("path_of_{variable}")
}

/// Whether a directive, or one within it, has the variable in another field than Connection.
fn has_upgrade(directive: &Directive) -> bool {
    let is_field = directive.name == "proxy_set_header" && directive.argument(0).eq_ignore_ascii_case("connection");
    let has_variable = |word: &String| variables::variables(word).contains(&"connection_upgrade");
    !is_field && (directive.arguments.iter().any(has_variable) || directive.block().iter().any(has_upgrade))
}

/// The expression for a mask of a `map` with `hostnames` (`*.example.com`, `.example.com`, `www.*`), and its rank:
/// masks at the start come first, and longer ones before shorter ones.
fn mask_of_hosts(key: &str) -> Option<(MaskRank, String)> {
    let (at, expression) = if let Some(end) = key.strip_prefix("*.") {
        (0, format!(r"(?i)^.+\.{}$", regex::escape(end)))
    } else if let Some(end) = key.strip_prefix('.') {
        (0, format!(r"(?i)^(?:.+\.)?{}$", regex::escape(end)))
    } else if let Some(start) = key.strip_suffix(".*") {
        (1, format!(r"(?i)^{}\..+$", regex::escape(start)))
    } else {
        return None;
    };
    Some(((at, Reverse(key.len())), expression))
}

/// The keys for a text, whose case nginx ignores. A backslash before it keeps it from having another meaning. The value
/// of an expression has no placeholders, so one that needs them is for the text as it is written, and in lower case.
fn keys_of_text(key: &str, has_placeholder: bool) -> Vec<String> {
    let text = key.strip_prefix('\\').unwrap_or(key);
    if has_placeholder && !text.starts_with('~') {
        let lower = text.to_lowercase();
        return [text.to_owned()].into_iter().chain((lower != text).then_some(lower)).collect();
    }
    vec![if text.starts_with('~') || text.chars().any(char::is_alphabetic) {
        format!("~(?i)^{}$", regex::escape(text))
    } else {
        text.to_owned()
    }]
}

/// The expression and the value of an entry of `map` about `source`: a text, one with the expression's groups, or
/// `source` itself. `None` for values with other variables.
fn value_of_expression(expression: &str, text: &str, source: &str) -> Option<(String, String)> {
    if text == source {
        // The match is the whole text.
        return Some((format!("(?s)^.*(?:{expression}).*$"), "${0}".to_owned()));
    }
    let text = if text.contains('$') { with_groups(expression, text)? } else { text.to_owned() };
    Some((expression.to_owned(), text))
}

/// Replaces the groups of an expression in a text, `$1` or `$name`, by `${1}`. `None` if the text has none, or other
/// variables too.
fn with_groups(expression: &str, text: &str) -> Option<String> {
    let names = causeway_go_regexp::translate(expression).ok()?.names;
    let out = variables::replaced(text, |variable| {
        let mut groups = names.iter().enumerate().skip(1);
        let (index, _) =
            groups.find(|(index, name)| name.as_deref() == Some(variable) || index.to_string() == variable)?;
        Some(format!("${{{index}}}"))
    });
    (out != text && !out.replace("${", "").contains('$')).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    // nginx's documentation of `map`: texts are compared ignoring case; a backslash is for texts such as `default`.
    #[test]
    fn texts_of_a_map() {
        for (key, want) in [
            ("", ""),
            ("12.5", "12.5"),
            ("Abc.d", r"~(?i)^Abc\.d$"),
            (r"\default", "~(?i)^default$"),
            (r"\~1", r"~(?i)^\~1$"),
        ] {
            assert_eq!(keys_of_text(key, false), [want], "{key}");
        }
    }

    // nginx's documentation of `map`: a value may contain the groups of its expression, by number or by name.
    #[test]
    fn groups_in_the_values_of_a_map() {
        let whole = ("(?s)^.*(?:a|b).*$".to_owned(), "${0}".to_owned());
        assert_eq!(value_of_expression("a|b", "$http_origin", "$http_origin"), Some(whole));
        assert_eq!(value_of_expression("(a)", "$1$host", "$http_origin"), None);
        for (expression, text, want) in [
            (r"^/a/(\d+)$", "/b/$1", Some("/b/${1}")),
            (r"^/(\w+)/(\w+)$", "/$2/$1", Some("/${2}/${1}")),
            (r"^/a/(?<id>\d+)$", "/b/$id", Some("/b/${1}")),
            (r"^/(?<ab>\w+)/(?<a>\w+)$", "/$ab/$a", Some("/${1}/${2}")),
            (r"^/a/(\d+)$", "/b/$1$args", None),
            (r"^/a$", "/b/$1", None),
            (r"^/a$", "/b", None),
        ] {
            assert_eq!(with_groups(expression, text).as_deref(), want, "{expression} {text}");
        }
    }
}
