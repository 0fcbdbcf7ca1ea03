//! The address of an upstream and the URI after it, with the variables in them.

use super::{Translator, own};
use crate::location::{Location, Pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, replaced, variables};

/// The targets of a `proxy_pass` with a variable.
pub(super) struct NamedTargets<'a> {
    pub(super) variable: String,
    /// Each value of the variable, with the target that has it in the place of the variable.
    pub(super) targets: Vec<(&'a str, String)>,
}

impl<'a> Translator<'a> {
    /// The addresses of an upstream, or the one address; `usual` is the port of an address without one. In an upstream
    /// that is 80, also for https.
    pub(super) fn upstream_addresses(&self, host: &str, usual: u16) -> Vec<String> {
        match self.shared.upstreams.get(host) {
            None => vec![address(host, usual)],
            Some(upstream) => own(upstream, "server")
                .iter()
                .filter(|d| !d.arguments.iter().any(|w| w == "down"))
                .map(|d| address(d.argument(0), 80))
                .collect(),
        }
    }

    /// Returns the address with placeholders, or the reason why it has no equivalent.
    pub(super) fn variable_host(
        &self,
        host: &str,
        usual: u16,
        location: &Location<'a>,
        scope: &VariableScope,
    ) -> Result<String, String> {
        let address = scope
            .expand(host)
            .map_err(|variable| format!("the variable ${variable} has no equivalent in an address"))?;
        let found = variables(host);
        let Some(last) = found.last().filter(|last| host.ends_with(&format!("${last}")) || host.ends_with('}')) else {
            // A port is at its end.
            let port = host.rsplit(':').next().unwrap_or_default();
            let is_port = !port.is_empty() && host.contains(':') && port.bytes().all(|b| b.is_ascii_digit());
            return Ok(if is_port { address } else { format!("{address}:{usual}") });
        };
        if host.trim_end_matches(['}']).rsplit_once('$').is_some_and(|(before, _)| before.ends_with(':')) {
            return Ok(address);
        }
        if *last == "http_host" {
            return Err("$http_host may have a port or not; write $host with a port".to_owned());
        }
        let values = self.values(last, location);
        if values.iter().any(|value| self.shared.upstreams.contains_key(value)) {
            return Err(format!("${last} may be the name of an upstream; write a location for each"));
        }
        let has_port = |value: &&str| value.contains(':');
        if found.len() == 1 && values.iter().any(has_port) {
            return match values.iter().filter(|value| !value.is_empty()).all(has_port) {
                true => Ok(address),
                false => {
                    Err(format!("some values of ${last} have a port, and others have none; write the port for all"))
                }
            };
        }
        Ok(format!("{address}:{usual}"))
    }

    /// The targets of a `proxy_pass` that begins with a variable, after the scheme or before it, if some of them are
    /// names of upstreams.
    pub(super) fn named_targets(&self, pass: &Directive, location: &Location<'a>) -> Option<NamedTargets<'a>> {
        let text = with_constants(pass.argument(0), &location.blocks);
        let variable = (*variables(&text).first()?).to_owned();
        let with_value = |value: &str| replaced(&text, |name| (name == variable).then(|| value.to_owned()));
        // A URI that is not a variable is another one without variables before it.
        let without = with_value("");
        let rest = ["http://", "https://"].iter().find_map(|scheme| without.strip_prefix(scheme)).unwrap_or(&without);
        let mut values = self.values(&variable, location);
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        if !rest.is_empty() && !rest.starts_with('$') || values.iter().any(|value| value.contains('$')) {
            return None;
        }
        let is_upstream = |name: &str| self.shared.upstreams.contains_key(name);
        let is_named = |(_, target): &(&str, String)| {
            let rest = target.split_once("://").map(|(_, rest)| rest);
            rest.is_some_and(|rest| is_upstream(&split_host(rest, &location.pattern, is_upstream).0))
        };
        let targets: Vec<_> = values.into_iter().map(|value| (value, with_value(value))).collect();
        targets.iter().any(is_named).then_some(NamedTargets { variable, targets })
    }

    /// The texts that a variable of `map` or `set` may have; empty for other variables.
    fn values(&self, name: &str, location: &Location<'a>) -> Vec<&'a str> {
        let entries = self.map_of(name).into_iter().flat_map(|map| map.block());
        let of_map = entries.filter(|entry| entry.name != "#").map(|entry| entry.argument(0));
        let sets = location.blocks.get(1).map(|server| sets(server, name)).unwrap_or_default();
        of_map.chain(sets.into_iter().map(|set| set.argument(1))).collect()
    }
}

/// Replaces the variables that have one constant value. The blocks are those around a directive, its own last.
pub(super) fn with_constants(text: &str, blocks: &[&Directive]) -> String {
    replaced(text, |name| constant(name, blocks).map(str::to_owned))
}

/// Whether a URI begins with a slash: it is one, or its first variable has one.
pub(super) fn begins_with_slash(uri: &str, pattern: &Pattern) -> bool {
    uri.starts_with('/')
        || SLASH_FIRST.iter().any(|path| uri.starts_with(path))
        || groups_with_slash(pattern).iter().any(|group| uri.starts_with(group))
}

/// Splits the text after `http://` into the address and the URI. It begins with a slash, with a query, with a variable
/// that begins with a slash, or with any variable after a port or the name of an upstream.
pub(super) fn split_host<'t>(
    rest: &'t str,
    pattern: &Pattern,
    is_upstream: impl Fn(&str) -> bool,
) -> (String, Option<&'t str>) {
    let groups = groups_with_slash(pattern);
    let starts = ["/", "?"].into_iter().chain(SLASH_FIRST).chain(groups.iter().map(String::as_str));
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_whole = |host: &str| is_upstream(host) || host.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
    let after_whole = rest.find('$').filter(|at| is_whole(&rest[..*at]));
    match starts.filter_map(|start| rest.find(start)).chain(after_whole).min() {
        Some(at) => (rest[..at].to_owned(), Some(&rest[at..])),
        None => (rest.to_owned(), None),
    }
}

/// The value of a variable that the last of the blocks sets without a condition, or that has the same value wherever
/// the server sets it, one time around the last block. `None` if the value has variables itself.
fn constant<'a>(name: &str, blocks: &[&'a Directive]) -> Option<&'a str> {
    if name == "args" {
        // A rule may change the query too.
        return None;
    }
    let is_of_name = |set: &&&Directive| set.argument(0).trim_start_matches('$') == name;
    let last = *blocks.last()?;
    let conditional = own(last, "if").into_iter().any(|condition| !sets(condition, name).is_empty());
    let set = match own(last, "set").into_iter().rfind(|set| is_of_name(&set)) {
        // A location may set the variable of a server again.
        Some(set) if !conditional && blocks.len() > 2 => set,
        _ => {
            let all = sets(blocks.get(1)?, name);
            let is_around = |set: &&&Directive| {
                blocks.iter().any(|block| own(block, "set").iter().any(|other| std::ptr::eq(*other, **set)))
            };
            let set = *all.iter().find(is_around)?;
            all.iter().all(|other| other.argument(1) == set.argument(1)).then_some(set)?
        }
    };
    Some(set.argument(1)).filter(|value| !value.contains('$'))
}

/// The lines `set` for a variable in a server, at all depths.
pub(super) fn sets<'a>(block: &'a Directive, name: &str) -> Vec<&'a Directive> {
    let mut found = Vec::new();
    for directive in block.block() {
        if directive.name == "set" && directive.argument(0).trim_start_matches('$') == name {
            found.push(directive);
        }
        found.extend(sets(directive, name));
    }
    found
}

/// Variables whose values begin with a slash.
const SLASH_FIRST: [&str; 5] = ["$request_uri", "$uri", "$document_uri", "${request_uri}", "${uri}"];

/// The groups of a location's expression that begin with a slash.
fn groups_with_slash(pattern: &Pattern) -> Vec<String> {
    let Pattern::Regexp(expression) = pattern else { return Vec::new() };
    let groups = expression.match_indices('(').filter(|(at, _)| !expression[at + 1..].starts_with('?'));
    let has_slash = |open: usize| expression[open + 1..].starts_with('/');
    groups.enumerate().filter(|(_, (open, _))| has_slash(*open)).map(|(index, _)| format!("${}", index + 1)).collect()
}

/// nginx's form of an address in ours.
fn address(host: &str, usual: u16) -> String {
    match host.strip_prefix("unix:") {
        Some(path) => format!("unix/{path}"),
        None if host.contains(':') && !host.ends_with(']') => host.to_owned(),
        None => format!("{host}:{usual}"),
    }
}
