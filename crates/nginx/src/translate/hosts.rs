//! The names of a server: `server_name`.

use std::cmp::Reverse;

use super::own;
use crate::expressions::{compiled, groups};
use crate::parse::Directive;

/// The order in which nginx compares names that are not exact; the longest of a kind first, and expressions as they are
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostOrder {
    /// `*.name`, for the hosts that its own site does not take.
    Leading(Reverse<usize>),
    /// `name.*`
    Trailing(Reverse<usize>),
    Expression,
}

/// A name with a wildcard, or an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPattern {
    /// Of Go's syntax, for a whole host.
    pub(super) expression: String,
    pub(super) groups: Vec<String>,
    pub(super) order: HostOrder,
    /// The index of its server.
    pub(super) server: usize,
}

/// The exact names of a server, and those with a wildcard at their beginning.
pub(super) fn server_names(server: &Directive) -> Vec<String> {
    let mut names = Vec::new();
    for name in own(server, "server_name").iter().flat_map(|directive| &directive.arguments) {
        match name.as_str() {
            // Names that no request has.
            "_" | "" | "__" | "--" => {}
            name if name.starts_with('~') || name.ends_with(".*") || !is_host(name) => {}
            name if name.starts_with('.') => names.extend([name[1..].to_owned(), format!("*{name}")]),
            name => names.push(name.to_ascii_lowercase()),
        }
    }
    names
}

/// Whether a name has the characters of a host, or of one with a wildcard.
pub(super) fn is_host(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '*'))
}

/// The names of the groups in all expressions for a server's hosts; `None` without an expression.
pub(super) fn host_groups_all(server: &Directive) -> Option<Vec<String>> {
    let names = own(server, "server_name");
    let mut expressions = names.iter().flat_map(|d| &d.arguments).filter_map(|name| name.strip_prefix('~')).peekable();
    expressions.peek()?;
    Some(expressions.flat_map(groups).collect())
}

/// Reads `~expression` or `name.*` of a server, or returns the reason why it has no equivalent.
pub(super) fn host_pattern(name: &str, server: usize) -> Result<HostPattern, String> {
    if let Some(expression) = name.strip_prefix('~') {
        // nginx compares hosts in lower case.
        let expression = format!("(?i){expression}");
        compiled(&expression).map_err(|reason| format!("{name}: the expression is not in Go's syntax: {reason}"))?;
        return Ok(HostPattern { groups: groups(&expression), expression, order: HostOrder::Expression, server });
    }
    let stem = &name[..name.len() - 2];
    if stem.is_empty() || stem.contains('*') {
        return Err(format!("{name}: nginx allows one wildcard, at the beginning or at the end"));
    }
    let expression = format!("(?i)^{}\\..", regex::escape(stem));
    Ok(HostPattern { expression, groups: Vec::new(), order: HostOrder::Trailing(Reverse(stem.len())), server })
}
