//! Pages from which a resource may be requested: `valid_referers`.

use crate::expressions::compiled;
use crate::parse::Directive;
use crate::variables::VariableScope;
use crate::write::cel_text;

/// The matcher for requests whose Referer `valid_referers` does not name. `None` for forms without an equivalent.
pub(super) fn other_referers(valid: &Directive, scope: &VariableScope) -> Option<String> {
    let (mut none, mut blocked, mut texts) = (false, false, Vec::new());
    for word in &valid.arguments {
        match word.as_str() {
            "none" => none = true,
            "blocked" => blocked = true,
            "server_names" => texts.extend(scope.server_names.iter().map(|name| host(name))),
            expression if expression.starts_with('~') => {
                let expression = &expression[1..];
                compiled(expression).ok()?;
                // It is about the text after the scheme.
                let anywhere = if expression.starts_with('^') { "" } else { ".*" };
                texts.push(format!("{anywhere}(?:{})", expression.trim_start_matches('^')));
            }
            name => texts.push(host(name)),
        }
    }
    let regexp = |text: &str| format!("header_regexp('Referer', {})", cel_text(text));
    let mut parts = Vec::new();
    match (none, blocked) {
        (true, true) => parts.push(regexp("(?i)^(?:http://.|https://)")),
        (true, false) => parts.push("header({'Referer': '*'})".to_owned()),
        // A text without a scheme would be valid, but none at all would not.
        (false, true) => return None,
        (false, false) => {}
    }
    if !texts.is_empty() {
        parts.push(format!("!{}", regexp(&format!("(?i)^https?://(?:{})", texts.join("|")))));
    }
    let text = parts.join(" && ");
    (!text.is_empty() && !text.contains('`')).then(|| format!("expression `{text}`"))
}

/// The expression for a name with an optional path: `example.com`, `.example.com`, `*.example.com/photos/` or
/// `example.*`.
fn host(name: &str) -> String {
    let (host, path) = name.find('/').map_or((name, ""), |at| name.split_at(at));
    let (before, host) = match (host.strip_prefix("*."), host.strip_prefix('.')) {
        (Some(rest), _) => (r"[^/:]+\.", rest),
        (None, Some(rest)) => (r"(?:[^/:]+\.)?", rest),
        (None, None) => ("", host),
    };
    let (host, after) = host.strip_suffix(".*").map_or((host, ""), |rest| (rest, r"\.[^/:]+"));
    let end = if path.is_empty() { "(?:[/:]|$)".to_owned() } else { format!("(?::[0-9]+)?{}", regex::escape(path)) };
    format!("{before}{}{after}{end}", regex::escape(host))
}
