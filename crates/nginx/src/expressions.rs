//! Regular expressions: nginx's are those of Perl, a Caddyfile's those of Go, which have no look-ahead.

use std::collections::BTreeMap;

/// Compiles an expression, or returns the reason why it is not in Go's syntax.
pub(crate) fn compiled(expression: &str) -> Result<regex::Regex, String> {
    let go = causeway_go_regexp::translate(expression).map_err(|mistake| mistake.to_string())?;
    let mut builder = regex::RegexBuilder::new(&go.pattern);
    builder.size_limit(causeway_go_regexp::COMPILED_BYTES_MAX).build().map_err(|error| {
        let error = error.to_string();
        error.lines().last().unwrap_or_default().trim().to_owned()
    })
}

/// Whether an expression of nginx matches a text; `false` for one that is not carried over.
pub(crate) fn is_match(expression: &str, text: &str) -> bool {
    test(expression)(text)
}

/// The test of texts by an expression, as [`is_match`].
pub(crate) fn test(expression: &str) -> impl Fn(&str) -> bool {
    let WithoutLookAhead { expression, except } = without_look_ahead(expression);
    let (regex, except) = (compiled(&expression).ok(), except.and_then(|except| compiled(&except).ok()));
    move |text| {
        let matches = |regex: &Option<regex::Regex>| regex.as_ref().is_some_and(|regex| regex.is_match(text));
        matches(&regex) && !matches(&except)
    }
}

/// The names of an expression's groups.
pub(crate) fn groups(expression: &str) -> Vec<String> {
    let go = causeway_go_regexp::translate(expression).ok();
    go.into_iter().flat_map(|go| go.names).flatten().map(String::from).collect()
}

/// The number of an expression's groups; the highest of `$1` to `$9` for one that is not carried over.
pub(crate) fn groups_len(expression: &str) -> usize {
    causeway_go_regexp::translate(expression).map_or(9, |go| go.names.len() - 1)
}

/// Whether an expression has alternatives outside of its groups.
pub(crate) fn has_alternatives(expression: &str) -> bool {
    let (mut depth, mut is_escaped) = (0, false);
    // The characters of an open class; a bracket that is the first of them does not close it.
    let mut class: Option<String> = None;
    expression.chars().any(|c| {
        let is_text = std::mem::replace(&mut is_escaped, false);
        match c {
            '\\' if !is_text => is_escaped = true,
            ']' if !is_text && class.as_deref().is_some_and(|class| !matches!(class, "" | "^")) => class = None,
            _ if let Some(class) = &mut class => class.push(c),
            _ if is_text => {}
            '[' => class = Some(String::new()),
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' => return depth == 0,
            _ => {}
        }
        false
    })
}

/// An expression without look-ahead, and one that must not match.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WithoutLookAhead {
    pub(crate) expression: String,
    pub(crate) except: Option<String>,
}

/// Removes one negative look-ahead, if an expression without it can be equal. Others stay as they are.
pub(crate) fn without_look_ahead(expression: &str) -> WithoutLookAhead {
    let unchanged = || WithoutLookAhead { expression: expression.to_owned(), except: None };
    let Some((before, inner, after)) = split_look_ahead(expression) else { return unchanged() };
    if let Some(at) = before.strip_prefix("(?i)").unwrap_or(before).strip_prefix('^')
        && !at.contains(['*', '+', '?', '|', '{', '('])
        && !has_alternatives(after)
    {
        // There is only one place where it can apply, and no other alternative.
        return WithoutLookAhead {
            expression: format!("{before}{after}"),
            except: Some(format!("{before}(?:{inner})")),
        };
    }
    let literals: Option<Vec<Vec<char>>> = inner.split('|').map(literal).collect();
    match literals {
        Some(literals) if takes_any_rest(after) => {
            WithoutLookAhead { expression: format!("{before}{}{after}", other_than(&literals)), except: None }
        }
        _ => unchanged(),
    }
}

/// Removes all look-around, so that an expression matches more.
pub(crate) fn without_assertions(expression: &str) -> String {
    let mut out = String::new();
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|start| rest.starts_with(start)) {
            let Some(end) = group_end(rest) else { return expression.to_owned() };
            rest = &rest[end..];
            continue;
        }
        // An escaped character is not a parenthesis.
        let length = if c == '\\' { 1 + rest[1..].chars().next().map_or(0, char::len_utf8) } else { c.len_utf8() };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// Whether the part after a look-ahead, in its alternative, matches any text.
fn takes_any_rest(after: &str) -> bool {
    let rest = after.strip_prefix(".*").unwrap_or(after).trim_start_matches(')');
    let is_at_end = rest == "$" || rest.starts_with("$|");
    rest.is_empty() || rest.starts_with('|') || is_at_end && after.starts_with(".*")
}

/// Returns the texts before, in and after a negative look-ahead.
fn split_look_ahead(expression: &str) -> Option<(&str, &str, &str)> {
    let start = expression.find("(?!")?;
    let end = start + group_end(&expression[start..])?;
    Some((&expression[..start], &expression[start + 3..end - 1], &expression[end..]))
}

/// Returns the offset after the group with which an expression begins; `None` if it is not closed.
fn group_end(expression: &str) -> Option<usize> {
    let (mut depth, mut is_escaped) = (0, false);
    for (at, c) in expression.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The characters of an expression that matches one text.
fn literal(expression: &str) -> Option<Vec<char>> {
    let mut text = Vec::new();
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => chars.next().filter(|c| !c.is_alphanumeric())?,
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            c => c,
        });
    }
    (!text.is_empty()).then_some(text)
}

/// An expression that matches where none of these texts, which are not empty, begins.
fn other_than(texts: &[Vec<char>]) -> String {
    let mut next: BTreeMap<char, Vec<Vec<char>>> = BTreeMap::new();
    for text in texts {
        let rests = next.entry(text[0]).or_default();
        rests.push(text[1..].to_vec());
    }
    let first: String = next.keys().map(|c| class_member(*c)).collect();
    let mut parts = vec![format!("[^{first}]")];
    for (c, rests) in next {
        // A text ends here, with any characters after it.
        if rests.iter().all(|rest| !rest.is_empty()) {
            parts.push(format!("{}{}", regex::escape(c.encode_utf8(&mut [0; 4])), other_than(&rests)));
        }
    }
    parts.push("$".to_owned());
    format!("(?:{})", parts.join("|"))
}

fn class_member(c: char) -> String {
    if matches!(c, '\\' | ']' | '[' | '^' | '-') { format!("\\{c}") } else { c.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions() {
        for (expression, want) in [
            (r"/(config|(?<!ext/)phpbb(?!\w+)|store)", r"/(config|phpbb|store)"),
            (r"^/(?!(a|b)\)).*x", "^/.*x"),
            (r"\(?=x(?:y)", r"\(?=x(?:y)"),
            (r"a(?=b", r"a(?=b"),
        ] {
            assert_eq!(without_assertions(expression), want);
        }
    }

    // PCRE's documentation, "Vertical bar" and "Square brackets and character classes".
    #[test]
    fn alternatives() {
        for (expression, want) in [
            ("a|b", true),
            ("(a|b)", false),
            (r"a\|b", false),
            ("a[|]b", false),
            ("a[]|]b", false),
            ("a[^]|(]b", false),
            (r"a[\]|(]b", false),
            ("a[(]b|c", true),
            ("a[)]b(c|d)", false),
            (r"a\[b|c]", true),
        ] {
            assert_eq!(has_alternatives(expression), want, "{expression}");
        }
    }

    // PCRE's documentation, "Lookahead assertions": it applies at each place where the part before it matches.
    #[test]
    fn negative_look_ahead() {
        for (expression, path, want) in [
            (r"/\.(?!well-known)", "/.env", true),
            (r"/\.(?!well-known)", "/.well-known/x", false),
            (r"/\.(?!well-known)", "/.well-known/.env", true),
            (r"/\.(?!well-known)", "/.well-knows", true),
            (r"/\.(?!well-known)", "/.", true),
            (r"/\.(?!well-known)", "/.well", true),
            (r"/\.(?!well-known)", "/well", false),
            (r"(?i)/\.(?!well-known|acme\.sh).*", "/.WELL-known/x", false),
            (r"(?i)/\.(?!well-known|acme\.sh).*", "/.acme.sh", false),
            (r"(?i)/\.(?!well-known|acme\.sh).*", "/.acmeXsh", true),
            (r"(?i)/\.(?!well-known|acme\.sh).*$", "/a/.acme.sh/.b", true),
            ("x(?!ab|a|b)", "xab", false),
            ("x(?!ab|a|b)", "xac", false),
            ("x(?!ab|a|b)", "xca", true),
            (r"x(?!a-\]\^)", "xa-]^", false),
            (r"x(?!a-\]\^)", "xa-", true),
            (r"\.(yml|inc)(~)?$|/(\.(?!well-known).*)|composer\.(json|lock)$", "/a.yml~", true),
            (r"\.(yml|inc)(~)?$|/(\.(?!well-known).*)|composer\.(json|lock)$", "/composer.json", true),
            (r"\.(yml|inc)(~)?$|/(\.(?!well-known).*)|composer\.(json|lock)$", "/a/.git/config", true),
            (r"\.(yml|inc)(~)?$|/(\.(?!well-known).*)|composer\.(json|lock)$", "/.well-known/x", false),
            (r"\.(yml|inc)(~)?$|/(\.(?!well-known).*)|composer\.(json|lock)$", "/.well-known/x.inc", true),
            (r"/(\.(?!git))", "/.a", true),
            (r"/(\.(?!git))", "/.git", false),
            (r"/(\.(?!git))|x$", "/.a", true),
            (r"/(\.(?!git))|x$", "/.git", false),
            (r"^/(?!api|static/).*\.html$", "/x.html", true),
            (r"^/(?!api|static/).*\.html$", "/apis.html", false),
            (r"^/(?!api|static/).*\.html$", "/static.html", true),
            (r"^/(?!a/)|\.txt$", "/a/x.html", false),
            (r"^/(?!a/)|\.txt$", "/a/x.txt", true),
            (r"^/(?!a/)|\.txt$", "/b", true),
            (r"^/(?!a/)|\.txt$", "/", true),
            (r"^/a(?!/pub).*$|^/b/", "/a/pub/x", false),
            (r"^/a(?!/pub).*$|^/b/", "/a/pux", true),
            (r"^/a(?!/pub).*$|^/b/", "/b/", true),
        ] {
            assert_eq!(is_match(expression, path), want, "{expression} {path}");
        }
        for expression in [
            r"/\.(?!well-known).+x",
            r"/(\.(?!well-known).*)+x",
            r"/(\.(?!well-known).*)x",
            "/(?!a+)",
            r"/(?!\d)",
            "^/.*(?!a)b",
            r"^/(?!a/)x|\.txt$",
            "(?=a)",
            "(?<!a)",
            "(?!a",
            "(?!)",
        ] {
            let unchanged = WithoutLookAhead { expression: expression.to_owned(), except: None };
            assert_eq!(without_look_ahead(expression), unchanged);
            assert!(compiled(expression).is_err(), "{expression}");
        }
    }
}
