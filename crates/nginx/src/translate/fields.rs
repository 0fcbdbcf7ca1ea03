//! Fields of responses: `add_header` and `expires`.

use super::access::decided_fields;
use super::cache::CACHE_STATUS;
use super::units::seconds;
use super::{Translator, inherited};
use crate::parse::Directive;
use crate::variables::{VariableScope, only_variable, variables};
use crate::write::{block, quote};

/// Statuses to whose responses `add_header` without `always` applies (nginx's documentation of
/// ngx_http_headers_module).
pub(super) const ADDED: &str = "200 201 204 206 301 302 303 304 307 308";

impl Translator<'_> {
    /// `add_header` and `expires` for the last of the blocks. For an answer with a known status only the fields that it
    /// gets. Writes nothing if the site has them.
    pub(super) fn write_fields(
        &mut self,
        out: &mut Vec<String>,
        blocks: &[&Directive],
        scope: &VariableScope,
        status: Option<u16>,
    ) {
        if self.fields_are_shared {
            return;
        }
        let is_added = status.map(has_added_fields);
        let mut sometimes = Vec::new();
        let expires = inherited(blocks, "expires").last().copied().filter(|expires| expires.argument(0) != "off");
        for field in inherited(blocks, "add_header") {
            // They are written after the access rules, see `write_decided_fields`.
            if decided_fields(blocks).iter().any(|(_, other)| std::ptr::eq(field, *other)) {
                continue;
            }
            let Some(text) = self.expand_path(out, field, scope, field.argument(1)) else { continue };
            // nginx adds no empty field.
            if text.is_empty() {
                continue;
            }
            if let Some(map) = self.map_of_response(field.argument(1)) {
                self.note(out, field, &format!("the map of ${map} is about the response, which it precedes here"));
                continue;
            }
            if self.field_of_response(out, field, &text, blocks, status) {
                continue;
            }
            let always = field.argument(2) == "always" || is_added == Some(true);
            if !always && is_added.is_some() {
                continue;
            }
            let kind = field.argument(0).eq_ignore_ascii_case("content-type");
            let line = format!("{}{} {}", if kind { "" } else { "+" }, field.argument(0), quote(&text));
            let has_cache = super::cache::stores_here(blocks);
            if variables(field.argument(1)).contains(&CACHE_STATUS) && !has_cache {
                continue;
            }
            if only_variable(field.argument(1)) == Some(CACHE_STATUS) {
                // It is empty for a request that the cache does not concern.
                let name = self.fresh(&format!("has_{}", field.argument(0)));
                out.push(format!("@{name} method GET HEAD"));
                let late = if always { "defer".to_owned() } else { format!("match status {ADDED}") };
                block(out, &format!("header @{name}"), vec![line, late]);
                continue;
            }
            if !has_cache && self.may_be_empty(field.argument(1), scope) {
                let name = self.fresh(&format!("has_{}", field.argument(0)));
                out.push(format!("@{name} not vars {} \"\"", quote(&text)));
                if always {
                    out.push(format!("header @{name} {line}"));
                } else {
                    block(out, &format!("header @{name}"), vec![line, format!("match status {ADDED}")]);
                }
                continue;
            }
            // `expires` replaces the field of an upstream before.
            let is_after_expires =
                expires.is_some() && is_added.is_none() && field.argument(0).eq_ignore_ascii_case("cache-control");
            if always && (has_cache || is_after_expires) {
                // After the cache, for which only the upstream's fields count.
                block(out, "header", vec![line, "defer".to_owned()]);
                continue;
            }
            if always {
                out.push(format!("header {line}"));
            } else {
                sometimes.push(line);
            }
        }
        let mut control = None;
        if let Some(expires) = expires {
            control = match expires.argument(0) {
                time if time == "epoch" || time.starts_with('-') => Some("no-cache".to_owned()),
                "max" => Some("max-age=315360000".to_owned()),
                time => match seconds(time.strip_prefix('+').unwrap_or(time)) {
                    Some(seconds) => Some(format!("max-age={seconds}")),
                    None => {
                        self.note(out, expires, "only a duration, 'max', 'epoch' and 'off' are carried over");
                        None
                    }
                },
            };
        }
        let control = control.map(|control| format!("Cache-Control {control}"));
        if is_added == Some(true) {
            // It stands beside a field of `add_header`.
            let is_control = |field: &&Directive| field.argument(0).eq_ignore_ascii_case("cache-control");
            let sign = if inherited(blocks, "add_header").iter().any(is_control) { "+" } else { "" };
            sometimes.extend(control.map(|control| format!("{sign}{control}")));
            out.extend(sometimes.into_iter().map(|line| format!("header {line}")));
        } else if is_added.is_none() {
            // The field is added when the response's status is known. Of several blocks the last comes first, so that
            // `expires` replaces the field of an upstream, and not one of `add_header`.
            let is_beside = sometimes.iter().any(|line| line.to_ascii_lowercase().starts_with("+cache-control "));
            let (with_others, apart) = if is_beside { (None, control) } else { (control, None) };
            sometimes.extend(with_others);
            for mut lines in [sometimes, apart.into_iter().collect()].into_iter().filter(|lines| !lines.is_empty()) {
                lines.push(format!("match status {ADDED}"));
                block(out, "header", lines);
            }
        }
    }

    /// Writes a field whose value has that of a field of the response, which an answer with a known status has not.
    /// Returns `false` for other values.
    fn field_of_response(
        &mut self,
        out: &mut Vec<String>,
        field: &Directive,
        text: &str,
        blocks: &[&Directive],
        status: Option<u16>,
    ) -> bool {
        let value = field.argument(1);
        let of_upstream = |name: &str| name.strip_prefix("upstream_http_").map(|name| name.replace('_', "-"));
        let Some(name) = variables(value).into_iter().find_map(of_upstream) else { return false };
        let hidden = ["proxy_hide_header", "fastcgi_hide_header"].into_iter().flat_map(|hide| inherited(blocks, hide));
        if hidden.into_iter().any(|hide| hide.argument(0).eq_ignore_ascii_case(&name)) {
            self.note(out, field, "the field of the upstream is hidden, and absent here");
            return true;
        }
        let text = text.replace("{rp.header.", "{http.response.header.");
        let mut lines = vec![format!("+{} {}", field.argument(0), quote(&text))];
        let mut conditions = Vec::new();
        // nginx adds no empty field.
        conditions.extend(only_variable(value).map(|_| format!("header {name} *")));
        if field.argument(2) != "always" {
            conditions.push(format!("status {ADDED}"));
        }
        match conditions.is_empty() {
            true => lines.push("defer".to_owned()),
            false => block(&mut lines, "match", conditions),
        }
        if status.is_none() {
            block(out, "header", lines);
        }
        true
    }

    /// The variable in a text whose map is about the response.
    fn map_of_response<'t>(&self, text: &'t str) -> Option<&'t str> {
        variables(text).into_iter().find(|name| self.map_of(name).is_some_and(is_of_response))
    }

    /// Whether a text is one variable that the request decides and that may be empty.
    pub(super) fn may_be_empty(&self, text: &str, scope: &VariableScope) -> bool {
        let Some(variable) = only_variable(text) else { return false };
        if let Some(map) = self.map_of(variable) {
            return !is_of_response(map);
        }
        scope.set.iter().any(|set| set == variable)
            || ["http_", "cookie_", "arg_", "ssl_"].iter().any(|prefix| variable.starts_with(prefix))
            || ["args", "query_string"].contains(&variable)
    }
}

/// Whether a line `add_header` applies to responses with this status.
pub(super) fn is_added(field: &Directive, status: u16) -> bool {
    field.argument(2) == "always" || has_added_fields(status)
}

/// Whether a server and all of its locations have the same lines `add_header` and `expires`, whose values the request
/// does not decide, and no cache, which must not store them.
pub(super) fn has_shared_fields(blocks: &[&Directive]) -> bool {
    fn has(block: &Directive, names: &[&str]) -> bool {
        block.block().iter().any(|directive| names.contains(&&*directive.name) || has(directive, names))
    }
    let Some(server) = blocks.last() else { return false };
    let fields = ["add_header", "expires"];
    let within = server.block().iter().filter(|directive| directive.block.is_some());
    let lines: Vec<_> = fields.iter().flat_map(|name| inherited(blocks, name)).collect();
    !lines.is_empty()
        && lines.iter().all(|line| line.arguments.iter().all(|word| !word.contains('$')))
        && !within.into_iter().any(|block| has(block, &fields))
        && !blocks.iter().any(|block| has(block, &["proxy_cache", "fastcgi_cache"]))
}

/// Whether two locations have the same lines `add_header` and `expires`, with the same decided values.
pub(super) fn has_equal_fields(one: &[&Directive], other: &[&Directive]) -> bool {
    ["add_header", "expires"].iter().all(|name| inherited(one, name) == inherited(other, name))
        && decided_fields(one) == decided_fields(other)
}

/// Whether `add_header` without `always` applies to responses with this status.
fn has_added_fields(status: u16) -> bool {
    ADDED.split(' ').any(|added| added == status.to_string())
}

/// Whether a map is about a variable of the response.
fn is_of_response(map: &Directive) -> bool {
    let of_response = |name: &str| ["sent_http_", "upstream_", "status"].iter().any(|p| name.starts_with(p));
    variables(map.argument(0)).into_iter().any(of_response)
}
