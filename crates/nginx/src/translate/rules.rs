//! `rewrite`, `if`, `set` and `return`: nginx's rewrite module.

use super::referers::other_referers;
use super::{Translator, own};
use crate::expressions::{compiled, groups};
use crate::parse::Directive;
use crate::variables::Names;
use crate::write::{block, quote};

/// Whether a `rewrite`, or one within an `if`, lets nginx choose the location anew.
pub(super) fn chooses_anew(directive: &Directive) -> bool {
    if directive.name == "if" {
        return directive.block().iter().any(chooses_anew);
    }
    directive.name == "rewrite"
        && !matches!(directive.argument(2), "break" | "redirect" | "permanent")
        && !is_url(directive.argument(1))
}

/// Whether a rule may end the rules of its block, so that a later `return` does not apply.
pub(super) fn may_end(rule: &Directive) -> bool {
    match &*rule.name {
        "if" => rule.block().iter().any(may_end),
        "break" => true,
        "rewrite" => !rule.argument(2).is_empty(),
        _ => false,
    }
}

/// Whether a target is another server's, and not a path.
pub(super) fn is_url(target: &str) -> bool {
    target.starts_with("http://") || target.starts_with("https://")
}

impl Translator<'_> {
    /// The rules of a block in their order, without its unconditional `return`.
    pub(super) fn rules(&mut self, owner: &Directive, names: &mut Names) -> Vec<String> {
        let mut out = Vec::new();
        let rules: Vec<_> = owner.block().iter().filter(|d| matches!(&*d.name, "rewrite" | "if" | "set")).collect();
        for (index, directive) in rules.iter().enumerate() {
            match &*directive.name {
                "set" => self.set(&mut out, directive, names, None),
                "rewrite" => self.rewrite(&mut out, directive, names, None),
                _ => self.condition(&mut out, directive, owner, rules.split_at(index), names),
            }
        }
        out
    }

    /// The rules of a location's content. If one of them chooses the location anew, all have been applied before; the conditions with
    /// `return` apply once more, as another location may have led here; these may need the lines `set`.
    pub(super) fn staying_rules(&mut self, owner: &Directive, names: &mut Names) -> Vec<String> {
        if !owner.block().iter().any(chooses_anew) {
            return self.rules(owner, names);
        }
        let mut staying = owner.clone();
        let rules = staying.block.get_or_insert_default();
        rules.retain_mut(|rule| {
            let is_condition = rule.name == "if";
            if is_condition {
                rule.block.get_or_insert_default().retain(|inner| matches!(&*inner.name, "return" | "set"));
            }
            matches!(&*rule.name, "valid_referers" | "set") || is_condition && !rule.block().is_empty()
        });
        let has_return = staying.block().iter().any(|rule| !own(rule, "return").is_empty());
        if has_return { self.rules(&staying, names) } else { Vec::new() }
    }

    fn set(&mut self, out: &mut Vec<String>, directive: &Directive, names: &mut Names, matcher: Option<&str>) {
        let name = directive.argument(0).trim_start_matches('$').to_owned();
        if let Some(value) = self.expand(out, directive, names, directive.argument(1)) {
            let matcher = matcher.map(|matcher| format!("@{matcher} ")).unwrap_or_default();
            out.push(format!("vars {matcher}{name} {}", quote(&value)));
            if !names.set.contains(&name) {
                names.set.push(name);
            }
        }
    }

    /// Writes a `rewrite`; within `if`, `condition` is its matcher.
    fn rewrite(&mut self, out: &mut Vec<String>, directive: &Directive, names: &Names, condition: Option<&str>) {
        let (expression, replacement, flag) = (directive.argument(0), directive.argument(1), directive.argument(2));
        let regex = match compiled(expression) {
            Ok(regex) => regex,
            Err(reason) => {
                return self.note(out, directive, &format!("the expression is not in Go's syntax: {reason}"));
            }
        };
        // A group that the expression lacks is empty.
        let absent = (regex.captures_len()..10).map(|group| format!("${group}"));
        let replacement = absent.fold(replacement.to_owned(), |text, group| text.replace(&group, ""));
        let name = self.fresh("rewrite");
        let mut names = names.clone();
        names.capture.clone_from(&name);
        names.groups = groups(expression);
        let Some(target) = self.expand(out, directive, &names, &replacement) else { return };
        let external = is_url(&target) || target.starts_with("{scheme}");
        let expression = format!("path_regexp {name} {}", quote(expression));
        match condition {
            None => out.push(format!("@{name} {expression}")),
            Some(condition) => block(out, &format!("@{name}"), vec![condition.to_owned(), expression]),
        }
        let (path, dropped) = match target.strip_suffix('?') {
            Some(path) => (path.to_owned(), true),
            None => (target, false),
        };
        let mut lines = Vec::new();
        if external || matches!(flag, "redirect" | "permanent") {
            let origin = if external { "" } else { "{scheme}://{hostport}" };
            let query = match (dropped, path.contains('?')) {
                (true, _) => "",
                (false, false) => "{?query}",
                (false, true) => "&{query}",
            };
            let status = if flag == "permanent" { 301 } else { 302 };
            lines.push(format!("redir * {} {status}", quote(&format!("{origin}{path}{query}"))));
        } else {
            let query = match (dropped, path.contains('?')) {
                (true, false) => "?",
                (false, true) => "&{query}",
                _ => "",
            };
            lines.push(format!("rewrite * {}", quote(&format!("{path}{query}"))));
        }
        // Only one of several blocks `handle` in a row runs, as only one rule with a flag does.
        let kind = if flag.is_empty() && !external { "route" } else { "handle" };
        block(out, &format!("{kind} @{name}"), lines);
    }

    /// Writes an `if` of `owner`, with the rules before it, and those from itself on.
    fn condition(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        owner: &Directive,
        (before, from): (&[&Directive], &[&Directive]),
        names: &mut Names,
    ) {
        let words = condition_words(directive);
        let name = self.fresh("if");
        let mut inner_names = names.clone();
        let matcher = match words[..] {
            ["$invalid_referer"] => own(owner, "valid_referers").first().and_then(|valid| other_referers(valid, names)),
            _ => matcher(out, &words, &name, &mut inner_names),
        };
        let Some(matcher) = matcher else {
            return self.note(out, directive, "a condition of a form that has no matcher");
        };
        // A `rewrite` has a matcher of its own.
        if !directive.block().iter().all(|inner| matches!(&*inner.name, "rewrite" | "#")) {
            out.push(format!("@{name} {matcher}"));
        }
        for inner in directive.block() {
            match &*inner.name {
                "#" => out.push(format!("# {}", inner.argument(0))),
                "set" => {
                    self.set(out, inner, &mut inner_names, Some(&name));
                    names.set.clone_from(&inner_names.set);
                }
                "rewrite" => self.rewrite(out, inner, &inner_names, Some(&matcher)),
                "return" => {
                    let is_last = before.iter().any(|rule| may_end(rule));
                    let matcher = if is_last { "*".to_owned() } else { format!("@{name}") };
                    match self.response(out, inner, &inner_names, &matcher) {
                        // Of several blocks `handle` in a row only one runs.
                        Some(lines) if is_last => block(out, &format!("handle @{name}"), lines),
                        lines => out.extend(lines.into_iter().flatten()),
                    }
                }
                "add_header" => {
                    if let Some(value) = self.expand(out, inner, &inner_names, inner.argument(1)) {
                        out.push(format!("header @{name} {} {}", inner.argument(0), quote(&value)));
                    }
                }
                "break" => {
                    // A block `handle` that runs, so that none after it does.
                    block(out, &format!("handle @{name}"), vec!["# Nothing: no rule after it applies.".to_owned()]);
                    let is_left_out = |rule: &Directive| may_end(rule) || matches!(&*rule.name, "return" | "#");
                    let is_all_left_out = |rule: &&Directive| match &*rule.name {
                        "if" => rule.block().iter().all(is_left_out),
                        _ => is_left_out(rule),
                    };
                    if !from.iter().skip(1).all(is_all_left_out) {
                        self.remark(out, inner, "only a later 'return', and a 'rewrite' with a flag, are left out");
                    }
                }
                "access_log" if inner.argument(0) == "off" => out.push(format!("log_skip @{name}")),
                _ => self.note(
                    out,
                    inner,
                    "within 'if' only return, rewrite, set, add_header and break are carried over",
                ),
            }
        }
    }

    /// The lines of a `return`, with a matcher or `*`.
    pub(super) fn response(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        names: &Names,
        matcher: &str,
    ) -> Option<Vec<String>> {
        let first = directive.argument(0);
        let (status, text) = match first.parse::<u16>() {
            Ok(status) => (status, directive.arguments.get(1).map(String::as_str)),
            Err(_) => (302, Some(first)),
        };
        Some(match (status, text) {
            (444, _) => vec![format!("abort {matcher}")],
            (301 | 302 | 303 | 307 | 308, Some(url)) => {
                let url = self.expand(out, directive, names, url)?;
                let origin = if url.starts_with('/') { "{scheme}://{hostport}" } else { "" };
                vec![format!("redir {matcher} {} {status}", quote(&format!("{origin}{url}")))]
            }
            (400.., None) => vec![format!("error {matcher} {status}")],
            (_, None) => vec![format!("respond {matcher} {status}")],
            (_, Some(text)) => {
                let text = self.expand(out, directive, names, text)?;
                vec![format!("respond {matcher} {} {status}", quote(&text))]
            }
        })
    }
}

/// The words of a condition, without its parentheses.
fn condition_words(directive: &Directive) -> Vec<&str> {
    let mut words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    if let Some(first) = words.first_mut() {
        *first = first.strip_prefix('(').unwrap_or(first);
    }
    if let Some(last) = words.last_mut() {
        *last = last.strip_suffix(')').unwrap_or(last);
    }
    // They may also stand apart.
    if words.first() == Some(&"") {
        words.remove(0);
    }
    if words.last() == Some(&"") {
        words.pop();
    }
    words
}

/// Returns the matcher for a condition, without its name. Lines that it needs before it go to `out`.
fn matcher(out: &mut Vec<String>, words: &[&str], name: &str, names: &mut Names) -> Option<String> {
    let (variable, operator, operand) = match *words {
        [test, file] => {
            let (negated, kind) = test.strip_prefix('!').map_or(("", test), |kind| ("not ", kind));
            let path = match file {
                "$request_filename" => "{path}".to_owned(),
                _ => quote(&names.expand(file.strip_prefix("$document_root")?).ok()?),
            };
            return match kind {
                "-f" => Some(format!("{negated}file {path}")),
                "-d" => Some(format!("{negated}file {path}/")),
                "-e" => Some(format!("{negated}file {path} {path}/")),
                _ => None,
            };
        }
        [variable] => (variable, "", ""),
        [variable, operator, operand] => (variable, operator, operand),
        _ => return None,
    };
    let mut key = names.expand(variable).ok()?;
    if key.matches('{').count() > 1 {
        // A matcher's key is one placeholder or one name.
        out.push(format!("vars of_{name} {}", quote(&key)));
        key = format!("of_{name}");
    }
    let key = quote(&key);
    let negated = if operator.starts_with('!') { "not " } else { "" };
    let variable = variable.trim_start_matches('$').trim_matches(['{', '}']);
    // The path as sent may have another form, which the matchers of paths resolve; nginx compares hosts in lower case.
    let (is_path, is_host) = (matches!(variable, "uri" | "document_uri"), variable == "host");
    let regexp = |expression: &str| {
        let kind = if is_path { format!("path_regexp {name}") } else { format!("vars_regexp {name} {key}") };
        Some(format!("{negated}{kind} {}", quote(expression)))
    };
    match operator {
        "" => Some(format!("not vars {key} \"\" 0")),
        "=" | "!=" if variable == "request_method" => Some(format!("{negated}method {}", quote(operand))),
        "=" | "!=" if (is_path || is_host) && !operand.contains('$') => {
            regexp(&format!("{}^{}$", if is_host { "(?i)" } else { "" }, regex::escape(operand)))
        }
        "=" | "!=" => Some(format!("{negated}vars {key} {}", quote(&names.expand(operand).ok()?))),
        "~" | "!~" | "~*" | "!~*" => {
            let ignores_case = operator.ends_with('*') || is_host;
            let expression = if ignores_case { format!("(?i){operand}") } else { operand.to_owned() };
            compiled(&expression).ok()?;
            name.clone_into(&mut names.capture);
            names.groups = groups(&expression);
            regexp(&expression)
        }
        _ => None,
    }
}
