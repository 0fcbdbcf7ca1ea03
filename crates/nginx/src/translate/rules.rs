//! `rewrite`, `set` and `return`, and the order of all rules of nginx's rewrite module.

use super::conditions::{condition_words, holds_content, is_held};
use super::content::in_written_order;
use super::fields::is_added;
use super::locations::split_last;
use super::{Translator, inherited, own, value};
use crate::expressions::{WithoutLookAhead, compiled, groups_len, has_alternatives, test, without_look_ahead};
use crate::location::{Pattern, pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, is_of_uri, replaced, variable, variables, without_query};
use crate::write::{block, quote, quote_scalar, rewrite};

/// A variable: a rule with `break` has changed the path.
pub(super) const PATH_CHANGED: &str = "path_changed";
/// A variable: the location whose rules a `break` has ended, although they may choose another one.
pub(super) const LOCATION_KEPT: &str = "location_kept";
/// A variable: the last `if` that holds, whose fields and upstream replace those of its location.
pub(super) const HELD_CONDITION: &str = "held_condition";

/// The origin that nginx writes before the path of a redirect.
pub(super) const ORIGIN: &str = "{scheme}://{hostport}";

/// The types of texts in nginx's own `mime.types`, for a configuration without that file.
const TYPES_OF_TEXTS: &[(&str, &str)] = &[
    ("html", "text/html"),
    ("htm", "text/html"),
    ("txt", "text/plain"),
    ("css", "text/css"),
    ("js", "application/javascript"),
    ("json", "application/json"),
    ("xml", "text/xml"),
    ("atom", "application/atom+xml"),
    ("rss", "application/rss+xml"),
    ("svg", "image/svg+xml"),
];

/// How often rules may follow those that may end them: each time they are one block deeper.
const REST_DEPTH_MAX: usize = 8;

/// A variable: the location whose rules have applied to the request, and have not led to another path.
const RULES_APPLIED: &str = "rules_applied";

/// The rules of a block, in their order, up to one that ends them in any case.
pub(super) fn rules_of(owner: &Directive) -> Vec<&Directive> {
    let is_rule = |d: &&Directive| matches!(&*d.name, "rewrite" | "if" | "set" | "return" | "break");
    let mut rules: Vec<&Directive> = owner.block().iter().filter(is_rule).collect();
    if let Some(end) = rules.iter().position(|rule| matches!(&*rule.name, "return" | "break")) {
        rules.truncate(end + 1);
    }
    rules
}

/// Whether rules of a block let nginx choose the location again.
pub(super) fn rules_choose_anew(owner: &Directive) -> bool {
    rules_of(owner).into_iter().any(chooses_anew)
}

/// Whether a `rewrite`, or one within an `if`, lets nginx choose the location again.
fn chooses_anew(directive: &Directive) -> bool {
    if directive.name == "if" {
        return rules_choose_anew(directive);
    }
    directive.name == "rewrite"
        && !matches!(directive.argument(2), "break" | "redirect" | "permanent")
        && !is_url(directive.argument(1))
}

/// Whether a `break` may end the rules of a block without a choice of the location.
pub(super) fn may_keep_location(owner: &Directive) -> bool {
    rules_of(owner).into_iter().any(|rule| match &*rule.name {
        "if" => may_keep_location(rule),
        name => name == "break" || name == "rewrite" && rule.argument(2) == "break",
    })
}

/// Whether a rule, or one within it, writes a slash before a whole path, which begins with one.
pub(super) fn doubles_slash(rule: &Directive) -> bool {
    let whole = ["(.*)", "(.+)", "(/"];
    let expression = rule.argument(0).trim_start_matches('^');
    rule.name == "rewrite" && rule.argument(1).starts_with("/$1") && whole.iter().any(|w| expression.starts_with(w))
        || rule.name != "location" && rule.block().iter().any(doubles_slash)
}

/// Whether the rules of a block answer all requests.
pub(super) fn always_answers(owner: &Directive) -> bool {
    let rules = rules_of(owner);
    rules.last().is_some_and(|rule| rule.name == "return") && !rules.into_iter().any(may_end)
}

/// Whether a block has a `rewrite … break`, also within `if`.
pub(super) fn has_break(owner: &Directive) -> bool {
    owner.block().iter().any(|rule| match &*rule.name {
        "if" => has_break(rule),
        name => name == "rewrite" && rule.argument(2) == "break",
    })
}

/// Whether a rule in a block, or in a location within it, may change the URI.
pub(super) fn may_change_uri(block: &Directive) -> bool {
    block.block().iter().any(|directive| match &*directive.name {
        "rewrite" => true,
        "set" => is_query(directive),
        "try_files" => split_last(directive).is_some_and(|(last, _)| !last.starts_with(['@', '='])),
        "location" | "if" => may_change_uri(directive),
        _ => false,
    })
}

/// Whether a `set` changes the query of the request.
pub(super) fn is_query(set: &Directive) -> bool {
    set.argument(0) == "$args"
}

/// Whether a rule, a location or a block within it has an expression with a group, which sets `$1`. One without a group
/// leaves it empty.
pub(super) fn has_expression(directive: &Directive) -> bool {
    let has_group = |expression: &str| groups_len(&without_look_ahead(expression).expression) > 0;
    let own = match &*directive.name {
        "rewrite" => has_group(directive.argument(0)),
        "if" => {
            matches!(condition_words(directive)[..], [_, test, expression] if test.contains('~') && has_group(expression))
        }
        "location" => matches!(pattern(directive), Ok(Pattern::Regexp(expression)) if has_group(&expression)),
        _ => false,
    };
    own || directive.block().iter().any(has_expression)
}

/// Whether a rule may end the rules of its block, without an answer.
pub(super) fn may_end(rule: &Directive) -> bool {
    match &*rule.name {
        "if" => rule.block().iter().any(may_end),
        "break" => true,
        "rewrite" => !rule.argument(2).is_empty() || is_url(rule.argument(1)),
        _ => false,
    }
}

/// Whether a rule is written as blocks `handle` alone, of which only one runs.
fn is_exclusive(rule: &Directive) -> bool {
    let is_answer = |rule: &Directive| matches!(&*rule.name, "return" | "break" | "#");
    match &*rule.name {
        "if" => rule.block().iter().all(|inner| is_answer(inner) || inner.name == "rewrite" && may_end(inner)),
        "rewrite" => may_end(rule),
        _ => is_answer(rule),
    }
}

/// Whether a target is a URL, and not a path.
pub(super) fn is_url(target: &str) -> bool {
    target.starts_with("http://") || target.starts_with("https://") || begins_with_scheme(target)
}

/// The target of a `return` or a `rewrite` that is a redirect.
pub(super) fn redirect_target(rule: &Directive) -> Option<&str> {
    let arguments: Vec<&str> = rule.arguments.iter().map(String::as_str).collect();
    match (&*rule.name, &arguments[..]) {
        ("return", [url]) if is_url(url) => Some(url),
        ("return", ["301" | "302" | "303" | "307" | "308", url]) => Some(url),
        ("rewrite", [_, target]) if is_url(target) => Some(target),
        ("rewrite", [_, target, flag]) if is_url(target) || matches!(*flag, "redirect" | "permanent") => Some(target),
        _ => None,
    }
}

/// Whether an expression of a `rewrite` takes paths of any name.
pub(super) fn takes_any_path(expression: &str) -> bool {
    let takes = test(expression);
    ["/~", "/~/~"].into_iter().all(takes)
}

/// Whether a target is the request's own URI with the scheme `https`, at a server of these names. Another port may be
/// that of another server.
pub(super) fn is_to_https(target: &str, server_names: &[String]) -> bool {
    let target = replaced(target, |name| Some(format!("${{{name}}}")));
    let Some(rest) = target.strip_prefix("https://") else { return false };
    let (host, path) = match rest.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
        Some(("host" | "http_host" | "server_name", path)) => (None, path),
        Some(_) => return false,
        None => {
            let (host, path) = rest.split_at(rest.find([':', '/', '$']).unwrap_or(rest.len()));
            (Some(host), path)
        }
    };
    let is_own = host.is_none_or(|host| server_names.iter().any(|name| name.eq_ignore_ascii_case(host)));
    let path = path.strip_prefix(":443").unwrap_or(path).trim_end_matches('?');
    is_own && matches!(without_query(path), "${request_uri}" | "${uri}" | "${document_uri}" | "${1}" | "/${1}")
}

/// Whether a target begins with a variable whose value begins with a slash.
fn begins_with_path(target: &str) -> bool {
    let first = variables(target).into_iter().next().filter(|_| target.starts_with('$'));
    first.is_some_and(|name| matches!(name, "uri" | "document_uri" | "request_uri"))
}

/// Whether a target begins with a scheme, and so is a URL.
fn begins_with_scheme(target: &str) -> bool {
    ["$scheme:", "${scheme}:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Splits an absolute URL before its path.
fn origin_and_path(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |at| at + 3);
    url.split_at(url[host..].find('/').map_or(url.len(), |at| host + at))
}

/// Returns whether a target of a redirect is a path with groups of the expression `name`, and has no other
/// placeholders.
fn has_only_groups(target: &str, name: &str) -> bool {
    let group = format!("{{re.{name}.");
    let path = target.split('?').next().unwrap_or_default();
    let is_path = path.starts_with('/') || path.starts_with(&group);
    is_path && target.contains(&group) && target.matches('{').count() == target.matches(&group).count()
}

/// A `rewrite` whose matcher is defined.
struct Rewrite {
    /// The matcher's name.
    name: String,
    /// `None` after a note: a variable in it has no equivalent.
    target: Option<RewriteTarget>,
    /// The scope with the groups of its expression.
    scope: VariableScope,
}

/// The target of a `rewrite`, with placeholders.
struct RewriteTarget {
    /// The path, or the URL, with the rule's own query.
    path: String,
    /// A `?` at its end drops the query of the request.
    drops_query: bool,
}

impl RewriteTarget {
    fn of(target: String) -> Self {
        match target.strip_suffix('?') {
            Some(path) => Self { path: path.to_owned(), drops_query: true },
            None => Self { path: target, drops_query: false },
        }
    }

    fn is_url(&self) -> bool {
        is_url(&self.path) || self.path.starts_with("{scheme}")
    }

    /// The line that makes a path the request's, with the query of this target.
    fn rewrite_to(&self, path: &str) -> String {
        let query = match (self.drops_query, path.contains('?')) {
            (true, false) => "?",
            (false, true) => "&{query}",
            _ => "",
        };
        rewrite(&format!("{path}{query}"))
    }
}

impl Translator<'_> {
    /// The rules of the last of the blocks. Their answers have the fields of `add_header`.
    pub(super) fn rules(&mut self, blocks: &[&Directive], scope: &mut VariableScope) -> Vec<String> {
        let mut out = Vec::new();
        self.held_fields.clear();
        self.rules_from(&mut out, &rules_of(blocks[blocks.len() - 1]), blocks, scope, 0);
        out
    }

    fn rules_from(
        &mut self,
        out: &mut Vec<String>,
        rules: &[&Directive],
        blocks: &[&Directive],
        scope: &mut VariableScope,
        depth: usize,
    ) {
        let (mut may_have_ended, mut has_kept_content) = (false, false);
        for (index, rule) in rules.iter().enumerate() {
            // Such an `if` ends the fields and the upstream of an earlier one; after an end of the rules it does not
            // apply.
            let ends_content = rule.name == "if" && own(rule, "return").is_empty();
            if may_have_ended && !is_exclusive(rule) || has_kept_content && ends_content {
                if depth == REST_DEPTH_MAX {
                    out.push("error 500".to_owned());
                    return self.note(out, rule, "too many rules that may end the rules; requests fail with 500");
                }
                let mut rest = Vec::new();
                self.rules_from(&mut rest, &rules[index..], blocks, scope, depth + 1);
                return block(out, "handle", in_written_order(rest));
            }
            match &*rule.name {
                "set" => self.set(out, rule, scope, None),
                "rewrite" => self.rewrite(out, rule, blocks, scope, &[], false),
                "return" => {
                    let lines = self.write_return(out, rule, blocks, scope);
                    if may_have_ended {
                        block(out, "handle", lines);
                    } else {
                        out.extend(lines);
                    }
                }
                "if" => self.condition(out, rule, blocks, scope, may_have_ended, index + 1 == rules.len()),
                "break" if scope.location_kept.is_empty() => {}
                "break" => block(out, "handle", vec![keep_location(scope)]),
                _ => {}
            }
            may_have_ended |= may_end(rule);
            has_kept_content |= may_end(rule) && !self.held_fields.is_empty() && (!ends_content || holds_content(rule));
            scope.has_expressions |= has_expression(rule);
        }
    }

    /// The rules of a location's content. If one of them chooses the location again, all have been applied before; the
    /// lines `set` and `return` apply once more, as the path may be another one now, and another location may have led
    /// here.
    pub(super) fn staying_rules(&mut self, blocks: &[&Directive], scope: &mut VariableScope) -> Vec<String> {
        let [outer @ .., owner] = blocks else { return Vec::new() };
        if !rules_choose_anew(owner) {
            return self.rules(blocks, scope);
        }
        let mut out = restore_values_of_sets(owner, scope);
        let mut staying = Directive::clone(owner);
        let rules = staying.block.get_or_insert_default();
        // A query that contains the former one has it already.
        let adds_to_query = |rule: &Directive| {
            rule.name == "set" && is_query(rule) && variables(rule.argument(1)).into_iter().any(is_of_uri)
        };
        rules.retain_mut(|rule| {
            let is_condition = rule.name == "if";
            if is_condition {
                rule.block.get_or_insert_default().retain(|inner| {
                    matches!(&*inner.name, "return" | "set") && !adds_to_query(inner) || is_held(inner)
                });
            }
            let is_empty = is_condition && rule.block().is_empty();
            !is_empty && !matches!(&*rule.name, "rewrite" | "break") && !adds_to_query(rule)
        });
        scope.rules_applied.clear();
        out.extend(self.rules(&[outer, &[&staying]].concat(), scope));
        out
    }

    pub(super) fn set(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        scope: &mut VariableScope,
        matcher: Option<&str>,
    ) {
        let name = directive.argument(0).trim_start_matches('$').to_owned();
        if name == "limit_rate" {
            // The only variable that is a setting.
            return self.note(out, directive, "no limit on the rate of a response");
        }
        let Some(value) = self.expand_path(out, directive, scope, directive.argument(1)) else {
            return scope.forget(&name);
        };
        let is_partial = scope.is_partial(directive.argument(1));
        if matcher.is_none() {
            scope.unknown.retain(|unknown| *unknown != name);
            scope.set_partial(&name, is_partial);
        } else if is_partial {
            scope.set_partial(&name, true);
        }
        let matcher = matcher.map(|matcher| format!("@{matcher} ")).unwrap_or_default();
        if is_query(directive) {
            let line = format!("rewrite * {}", quote(&format!("?{value}")));
            return block(out, format!("route {matcher}").trim_end(), vec![line]);
        }
        out.push(format!("vars {matcher}{} {}", variable(&name), quote_scalar(&value)));
        if !scope.set.contains(&name) {
            scope.set.push(name);
        }
    }

    /// Writes a `rewrite` of the last of the blocks; within `if`, `condition` has the lines of its matcher.
    /// `may_have_ended`: a rule of the same `if` may have ended the rules.
    pub(super) fn rewrite(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        blocks: &[&Directive],
        scope: &VariableScope,
        condition: &[String],
        may_have_ended: bool,
    ) {
        let flag = directive.argument(2);
        let Some(Rewrite { name, target, scope }) = self.rewrite_matcher(out, directive, scope, condition) else {
            return;
        };
        let Some(target) = target else {
            // The rule may lead away from content that is not for all clients.
            let kind = if may_end(directive) || may_have_ended { "handle" } else { "route" };
            return block(out, &format!("{kind} @{name}"), vec!["error 403".to_owned()]);
        };
        let is_external = target.is_url();
        let mut lines = Vec::new();
        if is_external || matches!(flag, "redirect" | "permanent") {
            let status = if flag == "permanent" { 301 } else { 302 };
            self.write_fields(&mut lines, blocks, &scope, Some(status));
            self.redirect_of_rewrite(&mut lines, &name, &target, status);
        } else {
            lines.push(target.rewrite_to(&target.path));
            self.after_rewrite(out, &mut lines, directive, blocks, &scope);
        }
        // Only one of several blocks `handle` in a row runs, as only one rule with a flag does.
        let kind = if flag.is_empty() && !is_external && !may_have_ended { "route" } else { "handle" };
        block(out, &format!("{kind} @{name}"), lines);
    }

    /// Defines the matcher of a `rewrite`, with the lines of `condition`. `None` after a note.
    fn rewrite_matcher(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        scope: &VariableScope,
        condition: &[String],
    ) -> Option<Rewrite> {
        let WithoutLookAhead { expression, except } = without_look_ahead(directive.argument(0));
        if let Err(reason) = compiled(&expression) {
            self.note(out, directive, &format!("the expression is not in Go's syntax: {reason}"));
            return None;
        }
        let name = self.fresh("rewrite");
        let mut scope = scope.clone();
        scope.capture_groups(&name, &expression);
        let target = self.expand_rule(out, directive, &scope, directive.argument(1)).map(RewriteTarget::of);
        let mut lines = condition.to_vec();
        lines.push(format!("path_regexp {name} {}", quote(&expression)));
        lines.extend(except.map(|except| format!("not path_regexp {}", quote(&except))));
        match &*lines {
            [one] => out.push(format!("@{name} {one}")),
            _ => block(out, &format!("@{name}"), lines),
        }
        Some(Rewrite { name, target, scope })
    }

    /// Writes the redirect of a `rewrite` whose matcher has the name `name`.
    fn redirect_of_rewrite(&mut self, lines: &mut Vec<String>, name: &str, target: &RewriteTarget, status: u16) {
        let (origin, path) = match target.path.starts_with('/') {
            true => (ORIGIN, &*target.path),
            false => origin_and_path(&target.path),
        };
        // A group may begin the path, without a slash before it.
        let (origin, path) = match origin.find(&format!("{{re.{name}.")).filter(|_| path.is_empty()) {
            Some(at) => origin.split_at(at),
            None => (origin, path),
        };
        if has_only_groups(path, name) {
            // The groups are parts of the decoded path. As a path they are encoded again.
            let rewrite = target.rewrite_to(path);
            if origin.is_empty() {
                let redirect = self.redirect_to_value(vec![rewrite], "{uri}", status);
                lines.extend(redirect);
            } else {
                let redirect = format!("redir * {} {status}", quote(&format!("{origin}{{uri}}")));
                block(lines, "route", vec![rewrite, redirect]);
            }
            return;
        }
        let query = match (target.drops_query, path.contains('?')) {
            (true, _) => "",
            (false, false) => "{?query}",
            (false, true) => "&{query}",
        };
        let target = format!("{origin}{path}{query}");
        if target.starts_with('{') && !target.starts_with("{scheme}:") {
            let redirect = self.redirect_to_value(Vec::new(), &target, status);
            lines.extend(redirect);
        } else {
            lines.push(format!("redir * {} {status}", quote(&target)));
        }
    }

    /// Writes the variables that tell the location of a path which a rule has written.
    fn after_rewrite(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        rule: &Directive,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) {
        let is_break = rule.argument(2) == "break";
        if !is_break && !scope.rules_applied.is_empty() {
            lines.push(format!("vars {RULES_APPLIED} \"\""));
        }
        if is_break && replaces_prefix(blocks[blocks.len() - 1]) {
            lines.push(format!("vars {PATH_CHANGED} yes"));
        }
        if is_break && !scope.location_kept.is_empty() {
            lines.push(keep_location(scope));
        } else if !is_break && doubles_slash(rule) {
            match scope.double_slash_kept.is_empty() {
                true => self.remark(out, rule, "the locations compare this path without its double slash"),
                false => lines.push(format!("vars {LOCATION_KEPT} {}", scope.double_slash_kept)),
            }
        } else if !is_break && scope.another_may_be_kept {
            lines.push(format!("vars {LOCATION_KEPT} \"\""));
        }
    }

    /// The lines of a `return` in the last of the blocks, with its fields.
    pub(super) fn write_return(
        &mut self,
        out: &mut Vec<String>,
        answer: &Directive,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let status = answer.argument(0).parse().unwrap_or(302);
        let Some(mut response) = self.response(out, answer, scope) else {
            // Without its text a refusal stays one, and no other answer becomes the location's content.
            let status = if status < 400 { 403 } else { status };
            self.fields_of_answer(&mut lines, blocks, scope, status);
            lines.push(format!("error * {status}"));
            return lines;
        };
        if status != 444 {
            self.fields_of_answer(&mut lines, blocks, scope, status);
        }
        let is_typed = |d: &&Directive| d.argument(0).eq_ignore_ascii_case("content-type") && is_added(d, status);
        if response.iter().any(|line| line.starts_with("respond"))
            && answer.arguments.len() > 1
            && !inherited(blocks, "add_header").iter().any(is_typed)
        {
            let kind = type_of_path(blocks).or_else(|| value(blocks, "default_type")).unwrap_or("text/plain");
            lines.push(format!("header Content-Type {}", quote(kind)));
        }
        lines.append(&mut response);
        lines
    }

    /// The lines of a `return`, for all requests. `None` after a note.
    fn response(&mut self, out: &mut Vec<String>, directive: &Directive, scope: &VariableScope) -> Option<Vec<String>> {
        let first = directive.argument(0);
        let (status, text) = match first.parse::<u16>() {
            Ok(status) => (status, directive.arguments.get(1).map(String::as_str)),
            Err(_) => (302, Some(first)),
        };
        // While nginx makes the text, the response has its status already, which is not that of an error page's
        // `return`.
        let own = |name: &str| (name == "status" && scope.status.is_empty()).then(|| status.to_string());
        let text = text.map(|text| replaced(text, own));
        let mut lines = Vec::new();
        let line = match (status, text.as_deref()) {
            (444, _) => "abort *".to_owned(),
            (301 | 302 | 303 | 307 | 308, Some(url)) => {
                let is_path = url.starts_with('/') || begins_with_path(url);
                let is_known = is_path || !url.starts_with('$') || begins_with_scheme(url);
                let url = self.expand_rule(&mut lines, directive, scope, url).or_else(|| {
                    // The line that names the variable.
                    out.append(&mut lines);
                    None
                })?;
                if is_known {
                    let origin = if is_path { ORIGIN } else { "" };
                    format!("redir * {} {status}", quote(&format!("{origin}{url}")))
                } else {
                    return Some(self.redirect_to_value(lines, &url, status));
                }
            }
            (400.., None) => format!("error * {status}"),
            (_, None) => format!("respond * {status}"),
            (_, Some(text)) => {
                let Some(text) = self.expand_rule(&mut lines, directive, scope, text) else {
                    out.append(&mut lines);
                    return None;
                };
                format!("respond * {} {status}", quote(&text))
            }
        };
        lines.push(line);
        Some(lines)
    }

    /// The lines of a redirect to a target that begins with a variable. As in nginx, a path gets the request's origin:
    /// a browser would take `//name/` and `/\\name/` for another host.
    fn redirect_to_value(&mut self, mut lines: Vec<String>, target: &str, status: u16) -> Vec<String> {
        let name = self.fresh("target");
        lines.extend([
            format!("vars {name} {}", quote(target)),
            format!("@{name} vars_regexp {name} ^/"),
            format!("redir @{name} {ORIGIN}{{vars.{name}}} {status}"),
            format!("redir * {{vars.{name}}} {status}"),
        ]);
        let mut out = Vec::new();
        block(&mut out, "route", lines);
        out
    }
}

/// The media type of the only path, or of the ending of all paths, that the innermost location takes.
fn type_of_path<'a>(blocks: &[&'a Directive]) -> Option<&'a str> {
    let location = blocks.iter().rfind(|block| block.name == "location")?;
    let ending = match pattern(location).ok()? {
        Pattern::Exact(path) => path.rsplit('/').next()?.rsplit_once('.')?.1.to_ascii_lowercase(),
        Pattern::Regexp(expression) => {
            let (head, ending) = expression.strip_suffix('$')?.rsplit_once(r"\.")?;
            if !ending.bytes().all(|b| b.is_ascii_alphanumeric()) || has_alternatives(head) {
                return None;
            }
            ending.to_ascii_lowercase()
        }
        _ => return None,
    };
    let types = inherited(blocks, "types");
    if types.iter().any(|types| !types.block().is_empty()) {
        let mut entries = types.into_iter().flat_map(|types| types.block());
        return entries.find(|entry| entry.arguments.contains(&ending)).map(|entry| &*entry.name);
    }
    let is_known = types.is_empty();
    TYPES_OF_TEXTS.iter().find(|(known, _)| is_known && *known == ending).map(|(_, kind)| *kind)
}

/// The variables of the lines `set` of a location that change their value each time they apply, if its rules apply in
/// two passes.
pub(super) fn repeated_sets(owner: &Directive) -> Vec<&str> {
    fn within(owner: &Directive) -> Vec<&str> {
        let rules = owner.block().iter();
        rules
            .flat_map(|rule| match &*rule.name {
                "if" => within(rule),
                "set" if !is_query(rule) => {
                    let name = rule.argument(0).trim_start_matches('$');
                    Some(name).filter(|name| variables(rule.argument(1)).contains(name)).into_iter().collect()
                }
                _ => Vec::new(),
            })
            .collect()
    }
    if !rules_choose_anew(owner) {
        return Vec::new();
    }
    let mut names = within(owner);
    names.sort_unstable();
    names.dedup();
    names
}

/// The lines before the rules of a location that keep the values of its repeated lines `set`.
pub(super) fn keep_values_of_sets(owner: &Directive, scope: &VariableScope) -> Vec<String> {
    let applied = &scope.rules_applied;
    if applied.is_empty() {
        return Vec::new();
    }
    let values = repeated_sets(owner).into_iter().filter_map(|name| {
        let value = scope.expand(&format!("${name}")).ok()?;
        Some(format!("vars {applied}_{name} {}", quote_scalar(&value)))
    });
    [format!("vars {RULES_APPLIED} {applied}")].into_iter().chain(values).collect()
}

/// The lines that bring back the values of repeated lines `set`, where another pass has applied them.
fn restore_values_of_sets(owner: &Directive, scope: &VariableScope) -> Vec<String> {
    let applied = &scope.rules_applied;
    if applied.is_empty() {
        return Vec::new();
    }
    let values = repeated_sets(owner).into_iter().filter(|name| scope.expand(&format!("${name}")).is_ok());
    let values = values.map(|name| format!("vars @{applied} {} {{vars.{applied}_{name}}}", variable(name)));
    [format!("@{applied} vars {RULES_APPLIED} {applied}")].into_iter().chain(values).collect()
}

/// The line after which the location of the rules serves the request, also if its path is that of another one.
pub(super) fn keep_location(scope: &VariableScope) -> String {
    format!("vars {LOCATION_KEPT} {}", scope.location_kept)
}

/// Whether a block, or a location within it, has a `proxy_pass` with a URI, which replaces the location's prefix unless
/// a rule has changed the path.
fn replaces_prefix(owner: &Directive) -> bool {
    let has_uri = |pass: &Directive| pass.argument(0).split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    owner.block().iter().any(|d| match &*d.name {
        "location" => replaces_prefix(d),
        name => name == "proxy_pass" && has_uri(d),
    })
}
