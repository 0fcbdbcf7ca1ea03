//! `if`: the matcher of its condition, and the rules within it.

use super::access::refuses;
use super::referers::other_referers;
use super::rules::{
    HELD_CONDITION, has_expression, is_query, is_to_https, keep_location, may_end, redirect_target, rules_of,
    takes_any_path,
};
use super::{Translator, own};
use crate::expressions::compiled;
use crate::parse::Directive;
use crate::variables::{VariableScope, is_of_uri, is_path, only_variable, variable, variables};
use crate::write::{block, cel_text, quote, quote_scalar};

/// The fields of an `if` that replace those of its location.
#[derive(Debug, Clone)]
pub(super) struct HeldFields {
    /// The value of [`HELD_CONDITION`].
    pub(super) name: String,
    /// The lines of the fields.
    pub(super) fields: Vec<String>,
    /// The lines of those that the upstream of `auth_request` decides.
    pub(super) decided: Vec<String>,
}

/// The condition of an `if`.
struct Condition {
    /// The matcher's name.
    name: String,
    /// The matcher's lines.
    matcher: Vec<String>,
    /// The scope with the groups of its expression.
    scope: VariableScope,
}

impl Translator<'_> {
    /// Writes an `if` of the last of the blocks. `may_have_ended`: an earlier rule may have ended the rules. `is_last`:
    /// no rule comes after it.
    pub(super) fn condition(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        blocks: &[&Directive],
        scope: &mut VariableScope,
        may_have_ended: bool,
        is_last: bool,
    ) {
        self.keep_values(out, directive, scope);
        let in_condition = directive.arguments.iter().flat_map(|word| variables(word));
        let partial: Vec<&str> = in_condition.filter(|name| scope.partial.iter().any(|other| other == name)).collect();
        let is_partial = !partial.is_empty();
        if is_partial && may_keep_out(directive, scope, &partial) {
            out.push("error 403".to_owned());
            let reason = "a value of its variable has no equivalent; all requests are refused";
            return self.note(out, directive, reason);
        }
        let names = own(directive, "set").into_iter().map(|set| set.argument(0).trim_start_matches('$'));
        let Some(condition) = self.condition_of(out, directive, blocks, scope) else {
            if !may_keep_out(directive, scope, &[]) {
                names.for_each(|name| scope.forget(name));
                return self.note(out, directive, "a condition of a form that has no matcher");
            }
            out.push("error 403".to_owned());
            return self.note(out, directive, "a condition of a form that has no matcher; all requests are refused");
        };
        let name = condition.name.clone();
        let definition = out.len();
        match &*condition.matcher {
            [one] => out.push(format!("@{name} {one}")),
            _ => block(out, &format!("@{name}"), condition.matcher.clone()),
        }
        let definition = definition..out.len();
        let answers = !own(directive, "return").is_empty();
        if !answers && blocks.len() > 2 && holds_content(directive) {
            let (mut fields, mut decided) = (Vec::new(), Vec::new());
            let inner = [blocks, &[directive]].concat();
            self.write_fields(&mut fields, &inner, &condition.scope, None);
            self.write_decided_fields(&mut decided, &inner);
            let held = self.name_of_condition(directive);
            out.push(format!("vars @{name} {HELD_CONDITION} {held}"));
            self.held_fields.push(HeldFields { name: held, fields, decided });
        } else if !answers && !self.held_fields.is_empty() {
            // In nginx the location's own fields replace those of an earlier `if`.
            out.push(format!("vars @{name} {HELD_CONDITION} \"\""));
        }
        if go_on_after_end(&rules_of(directive), is_last) {
            out.push(format!("error @{name} 500"));
            let reason =
                "a 'rewrite' without a flag after one with it; requests for which the condition holds fail with 500";
            return self.note(out, directive, reason);
        }
        let condition = match self.changes_condition(directive) {
            true => self.decide_once(out, condition),
            false => condition,
        };
        self.rules_of_condition(out, directive, blocks, scope, condition, may_have_ended);
        if is_partial {
            names.for_each(|name| scope.set_partial(name, true));
        }
        let is_used = out[definition.end..].iter().any(|line| line.contains(&format!("@{name}")));
        if !is_used {
            out.drain(definition);
        }
    }

    /// Writes to a variable that a condition holds, and returns the condition of that variable.
    fn decide_once(&mut self, out: &mut Vec<String>, condition: Condition) -> Condition {
        let name = self.fresh("holds");
        let matcher = format!("vars {name} yes");
        out.push(format!("vars @{} {name} yes", condition.name));
        out.push(format!("@{name} {matcher}"));
        Condition { name, matcher: vec![matcher], ..condition }
    }

    /// Whether a rule of an `if`, before another one of them, may change a value that its condition reads.
    fn changes_condition(&self, directive: &Directive) -> bool {
        let words = condition_words(directive);
        let mut read: Vec<&str> = words.iter().flat_map(|word| variables(word)).collect();
        let of_maps: Vec<&str> =
            read.iter().filter_map(|name| self.map_of(name)).flat_map(|map| variables(map.argument(0))).collect();
        read.extend(of_maps);
        let reads_uri = words.len() == 2 || read.iter().any(|name| is_of_uri(name));
        let changes = |rule: &Directive| match &*rule.name {
            "set" if is_query(rule) => reads_uri,
            "set" => read.contains(&rule.argument(0).trim_start_matches('$')),
            // Of several rules that end the rules, only one applies.
            "rewrite" => reads_uri && !may_end(rule),
            _ => false,
        };
        rules_of(directive).split_last().is_some_and(|(_, earlier)| earlier.iter().any(|rule| changes(rule)))
    }

    /// Returns the condition of an `if` in the last of the blocks. Lines that its matcher needs before it go to `out`.
    /// `None` for a form that has no matcher.
    fn condition_of(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) -> Option<Condition> {
        let words = condition_words(directive);
        let name = self.fresh("if");
        if words[..] == ["$invalid_referer"] {
            let owner = blocks[blocks.len() - 1];
            let matcher = other_referers(own(owner, "valid_referers").first()?, scope)?;
            return Some(Condition { name, matcher: vec![matcher], scope: scope.clone() });
        }
        // Names of files are resolved by their matcher, and a path alone by another one.
        let is_of_path = matches!(words[..], [variable, ..] if is_path(variable));
        let compared = if words.len() == 2 { &[][..] } else { &words[usize::from(is_of_path)..] };
        let mut scope = self.with_path(out, scope, compared.iter().copied());
        let has_rewrite = !own(directive, "rewrite").is_empty();
        let matcher = condition_matcher(out, &words, &name, has_rewrite, &mut scope)?;
        scope.path.clear();
        Some(Condition { name, matcher, scope })
    }

    /// Writes the rules within an `if` for the requests for which its condition holds. Variables that they set are
    /// added to `scope`.
    fn rules_of_condition(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        blocks: &[&Directive],
        scope: &mut VariableScope,
        condition: Condition,
        mut may_have_ended: bool,
    ) {
        let Condition { name, matcher, scope: mut inner_scope } = condition;
        let inner = [blocks, &[directive]].concat();
        let rules = rules_of(directive);
        let is_after_end = |rule: &Directive| {
            matches!(&*rule.name, "set" | "rewrite" | "return" | "break")
                && !rules.iter().any(|r| std::ptr::eq(*r, rule))
        };
        for rule in directive.block().iter().filter(|rule| !is_after_end(rule)) {
            match &*rule.name {
                "#" => out.push(format!("# {}", rule.argument(0))),
                "set" => {
                    self.set(out, rule, &mut inner_scope, Some(&name));
                    scope.set.clone_from(&inner_scope.set);
                    scope.unknown.clone_from(&inner_scope.unknown);
                    scope.partial.clone_from(&inner_scope.partial);
                }
                "rewrite" => self.rewrite(out, rule, blocks, &inner_scope, &matcher, may_have_ended),
                "return" => {
                    let lines = self.write_return(out, rule, &inner, &inner_scope);
                    match &*lines {
                        // Of several blocks `handle` in a row only one runs.
                        _ if may_have_ended => block(out, &format!("handle @{name}"), lines),
                        [one] if one.contains(" * ") => out.push(one.replacen(" * ", &format!(" @{name} "), 1)),
                        _ => block(out, &format!("route @{name}"), lines),
                    }
                }
                _ if blocks.len() > 2 && is_held(rule) => {}
                // A block `handle` that runs, so that none after it does.
                "break" => {
                    let kept = (!scope.location_kept.is_empty()).then(|| keep_location(scope));
                    let line = kept.unwrap_or_else(|| "# No rule after it applies.".to_owned());
                    block(out, &format!("handle @{name}"), vec![line]);
                }
                "access_log" if rule.argument(0) == "off" => out.push(format!("log_skip @{name}")),
                _ => {
                    self.note(
                        out,
                        rule,
                        "within 'if' only return, rewrite, set, add_header, expires, break and an upstream are carried over",
                    );
                }
            }
            may_have_ended |= may_end(rule);
            inner_scope.has_expressions |= has_expression(rule);
        }
    }

    /// The value of [`HELD_CONDITION`] if this is the last `if` that holds. The rules of a location may be written
    /// several times.
    pub(super) fn name_of_condition(&mut self, directive: &Directive) -> String {
        let content = |d: &Directive| d.block().iter().filter(|inner| is_held(inner)).cloned().collect::<Vec<_>>();
        let is_equal = |other: &Directive| {
            other.place == directive.place
                && other.arguments == directive.arguments
                && content(other) == content(directive)
        };
        if let Some((_, name)) = self.conditions.iter().find(|(other, _)| is_equal(other)) {
            return name.clone();
        }
        let name = self.fresh("held");
        self.conditions.push((directive.clone(), name.clone()));
        name
    }

    /// The lines of the fields of a location, and those of the `if` that replace them. `conditions` has the values of
    /// [`HELD_CONDITION`], if there is such an `if`.
    pub(super) fn fields_by_condition(
        &mut self,
        fields: Vec<String>,
        conditions: &[(&String, &Vec<String>)],
    ) -> Vec<String> {
        if conditions.is_empty() {
            return fields;
        }
        let mut out = Vec::new();
        let names: Vec<&str> = conditions.iter().map(|(name, _)| name.as_str()).collect();
        if !fields.is_empty() {
            let outer = self.fresh("outer_fields");
            out.push(format!("@{outer} not vars {HELD_CONDITION} {}", names.join(" ")));
            block(&mut out, &format!("route @{outer}"), fields);
        }
        for (name, fields) in conditions.iter().filter(|(_, fields)| !fields.is_empty()) {
            let own = self.fresh("own_fields");
            out.push(format!("@{own} vars {HELD_CONDITION} {name}"));
            block(&mut out, &format!("route @{own}"), (*fields).clone());
        }
        out
    }

    /// Writes the fields of a `return`. Beside an `if` of the same location that holds, they are those of the `if`.
    pub(super) fn fields_of_answer(
        &mut self,
        out: &mut Vec<String>,
        blocks: &[&Directive],
        scope: &VariableScope,
        status: u16,
    ) {
        let mut fields = Vec::new();
        self.write_fields(&mut fields, blocks, scope, Some(status));
        if blocks.last().is_some_and(|block| block.name == "location") {
            // The request to the upstream of `auth_request` comes later.
            let held = self.held_fields.clone();
            let conditions: Vec<_> = held.iter().map(|held| (&held.name, &held.fields)).collect();
            fields = self.fields_by_condition(fields, &conditions);
        }
        out.extend(fields);
    }

    /// Gives the variables that an `if` sets the values that they have without it, such as those of request fields.
    fn keep_values(&mut self, out: &mut Vec<String>, condition: &Directive, scope: &mut VariableScope) {
        for set in own(condition, "set").into_iter().filter(|set| !is_query(set)) {
            let name = set.argument(0).trim_start_matches('$').to_owned();
            if scope.set.contains(&name) {
                continue;
            }
            if let Ok(value) = scope.expand(&format!("${name}")) {
                out.push(format!("vars {} {}", variable(&name), quote_scalar(&value)));
                scope.set.push(name);
            }
        }
    }
}

/// Whether a directive within an `if` replaces one of the location.
pub(super) fn is_held(rule: &Directive) -> bool {
    matches!(&*rule.name, "add_header" | "expires" | "proxy_pass" | "fastcgi_pass" | "grpc_pass")
}

/// Whether an `if` replaces fields or the upstream of its location.
pub(super) fn holds_content(condition: &Directive) -> bool {
    condition.block().iter().any(is_held)
}

/// Whether some rules of an `if` come after a `rewrite` without a flag, before which others may have ended them.
/// `is_last`: no rules come after the `if`.
fn go_on_after_end(rules: &[&Directive], is_last: bool) -> bool {
    let may_have_ended = |at: usize| rules[..at].iter().any(|rule| may_end(rule));
    let is_without_end = |at: &usize| rules[*at].name == "rewrite" && !may_end(rules[*at]) && may_have_ended(*at);
    (0..rules.len()).find(is_without_end).is_some_and(|at| !is_last || at + 1 < rules.len())
}

/// Whether an `if` may keep clients from content that would be open without it: by a refusal, another answer, or a
/// `rewrite` that leads away. Two usual redirects are not meant so: the one to HTTPS, and one to the value of a
/// variable of `partial`, which lacks some of its values.
fn may_keep_out(directive: &Directive, scope: &VariableScope, partial: &[&str]) -> bool {
    // In its query, the value may only tell the reason of a redirect to a login.
    let has_partial = |target: &str| {
        let path = target.split('?').next().unwrap_or_default();
        variables(path).iter().any(|name| partial.contains(name))
    };
    let is_usual = |target: &str| is_to_https(target, &scope.server_names) || has_partial(target);
    directive.block().iter().any(|rule| match &*rule.name {
        "return" | "rewrite" if redirect_target(rule).is_some_and(is_usual) => false,
        "return" => true,
        "rewrite" => may_end(rule) || takes_any_path(rule.argument(0)),
        _ => refuses(rule),
    })
}

/// The words of a condition, without its parentheses.
pub(super) fn condition_words(directive: &Directive) -> Vec<&str> {
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

/// The rest of a text that begins with a variable.
fn without_variable<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let braced = text.strip_prefix("${").and_then(|rest| rest.strip_prefix(name)?.strip_prefix('}'));
    let is_first = text.starts_with('$') && variables(text).first() == Some(&name);
    braced.or_else(|| text.strip_prefix('$')?.strip_prefix(name).filter(|_| is_first))
}

/// Returns the lines of the matcher for a condition. Lines that it needs before it go to `out`. `beside_path`: the
/// matcher will have an expression about the path in addition, of which one matcher has only one.
fn condition_matcher(
    out: &mut Vec<String>,
    words: &[&str],
    name: &str,
    beside_path: bool,
    scope: &mut VariableScope,
) -> Option<Vec<String>> {
    let (variable, operator, operand) = match *words {
        [test, file] => {
            let (negated, kind) = test.strip_prefix('!').map_or(("", test), |kind| ("not ", kind));
            let paths = |path: &str| match kind {
                "-f" => Some(path.to_owned()),
                "-d" => Some(format!("{path}/")),
                "-e" => Some(format!("{path} {path}/")),
                _ => None,
            };
            if file.starts_with('/') {
                let options =
                    vec!["root /".to_owned(), format!("try_files {}", paths(&quote(&scope.expand(file).ok()?))?)];
                let mut lines = Vec::new();
                block(&mut lines, &format!("{negated}file"), options);
                return Some(lines);
            }
            let path = match without_variable(file, "request_filename") {
                Some(ending) => format!("{{path}}{}", scope.expand(ending).ok()?),
                None => scope.expand(without_variable(file, "document_root")?).ok()?,
            };
            let path = quote(&path);
            let line = format!("{negated}file {}", paths(&path)?);
            // The root is a directory that exists, but the matcher `file` finds no directory for `/`.
            let is_root_left_out = kind != "-f" && path == "{path}" && !negated.is_empty();
            return Some(is_root_left_out.then(|| "not path /".to_owned()).into_iter().chain([line]).collect());
        }
        [variable] => (variable, "", ""),
        [variable, operator, operand] => (variable, operator, operand),
        _ => return None,
    };
    let (variable, operator, operand) = match (only_variable(variable), operator, operand) {
        // Its value is `on` or empty.
        (Some("https"), "" | "!=", "") | (Some("https"), "=", "on") => return Some(vec!["protocol https".to_owned()]),
        (Some("https"), "=", "") | (Some("https"), "!=", "on") => return Some(vec!["not protocol https".to_owned()]),
        // Its value is `?` or empty, as that of `$args`.
        (Some("is_args"), "" | "!=", "") | (Some("is_args"), "=", "?") => ("$args", "!=", ""),
        (Some("is_args"), "=", "") | (Some("is_args"), "!=", "?") => ("$args", "=", ""),
        _ => (variable, operator, operand),
    };
    let mut key = scope.expand(variable).ok()?;
    if key.matches('{').count() != 1 || !key.starts_with('{') {
        // A matcher's key is one placeholder or one name.
        out.push(format!("vars of_{name} {}", quote(&key)));
        key = format!("of_{name}");
    }
    let key = quote(&key);
    let negated = if operator.starts_with('!') { "not " } else { "" };
    // The path as sent may have another form, which the matchers of paths resolve; nginx compares hosts in lower case.
    let is_of = |name: &String| only_variable(variable) == Some(name.as_str());
    let (is_path, is_host) =
        (is_path(variable) && !scope.set.iter().any(is_of), only_variable(variable) == Some("host"));
    let regexp = |expression: &str| {
        Some(vec![match is_path {
            true if beside_path => {
                let test = format!("path_regexp({}, {})", cel_text(name), cel_text(expression));
                format!("{negated}expression {}", quote(&test))
            }
            true => format!("{negated}path_regexp {name} {}", quote(expression)),
            false => format!("{negated}vars_regexp {name} {key} {}", quote(expression)),
        }])
    };
    match operator {
        "" => Some(vec![format!("not vars {key} \"\" 0")]),
        "=" | "!=" if only_variable(variable) == Some("request_method") => {
            Some(vec![format!("{negated}method {}", quote(operand))])
        }
        "=" | "!=" if (is_path || is_host) && !operand.contains('$') => {
            regexp(&format!("{}^{}$", if is_host { "(?i)" } else { "" }, regex::escape(operand)))
        }
        "=" | "!=" => Some(vec![format!("{negated}vars {key} {}", quote(&scope.expand(operand).ok()?))]),
        "~" | "!~" | "~*" | "!~*" => {
            let ignores_case = operator.ends_with('*') || is_host;
            let expression = if ignores_case { format!("(?i){operand}") } else { operand.to_owned() };
            compiled(&expression).ok()?;
            scope.capture_groups(name, &expression);
            regexp(&expression)
        }
        _ => None,
    }
}
