//! Translates an nginx configuration into a Caddyfile that a person can read and keep.
//!
//! [`translate()`] reads nothing itself: [`Files`] provides included files and lists of passwords. In the order to read
//! them:
//!
//! - `parse`: words, blocks and included files
//! - `standard`: files of nginx's packages
//! - `expressions`: regular expressions in the syntax of a Caddyfile
//! - `location`: nginx's choice of a location, as a list in the order of precedence
//! - `variables`: nginx's variables as placeholders
//! - `write`: the Caddyfile's lines and their quotes
//! - `translate`: servers, locations and directives
//!
//! A directive without an equivalent becomes a comment in the Caddyfile, and a [`Note`]. `docs/internals/nginx.md` describes the passes over a
//! server, the variables that they share, and how to add a directive.

mod expressions;
mod location;
mod parse;
mod standard;
mod translate;
mod variables;
mod write;

pub use parse::{Files, Place, SyntaxError};
pub use translate::{Note, Translation, translate};

/// Whether a file's name matches a pattern with `*`, `?` and `[…]`, as in glob(7). A wildcard at the start does not match a leading dot, and a
/// pattern with an empty range, such as `[z-a]`, matches no name.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let mut expression = String::from("(?s)^");
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (c, bracket(rest)) {
            ('*', _) => expression += ".*",
            ('?', _) => expression.push('.'),
            ('[', Some((set, after))) => {
                let (negation, set) = set.strip_prefix(['!', '^']).map_or(("", set), |set| ("^", set));
                // In a set of a regular expression, unlike in one of a pattern, punctuation other than `-` has a meaning.
                let set: Vec<_> = set.split('-').map(regex::escape).collect();
                expression += &format!("[{negation}{}]", set.join("-"));
                rest = after;
            }
            (c, _) => expression += &regex::escape(c.encode_utf8(&mut [0; 4])),
        }
    }
    expression.push('$');
    let hidden = name.starts_with('.') && !pattern.starts_with('.');
    !hidden && regex::Regex::new(&expression).is_ok_and(|regex| regex.is_match(name))
}

/// Splits the text after a `[` at the `]` that ends the set. A `]` that is the first character is in the set (glob(7)). `None`: the `[` begins
/// no set.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let first = text.len() - text.strip_prefix(['!', '^']).unwrap_or(text).len();
    let start = first + text[first..].chars().next()?.len_utf8();
    let end = start + text[start..].find(']')?;
    Some((&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    // glob(7): patterns of the directive `include`.
    #[test]
    fn patterns() {
        for (pattern, matching, others) in [
            ("*.conf", &["a.conf", "a.b.conf"][..], &[".a.conf", "a.conf~"][..]),
            (".*", &[".a"], &["a"]),
            ("a?", &["ab", "a]"], &["a", "abc"]),
            ("[a-c]x", &["ax", "bx", "cx"], &["dx", "-x"]),
            ("[!a-c]x", &["dx", "!x"], &["ax"]),
            ("[^a]x", &["bx", "^x"], &["ax"]),
            // A `]` that is the first character, and other punctuation, are in the set.
            ("[]a]x", &["]x", "ax"], &["[]a]x", "x"]),
            ("[!]a]x", &["bx"], &["]x", "ax"]),
            ("[[]x", &["[x"], &["x", "ax"]),
            ("x[&&^~.]", &["x&", "x^", "x~", "x."], &["xa"]),
            ("[.]x", &[], &[".x"]),
            ("[-a]x", &["-x", "ax"], &["bx"]),
            ("[a-]x", &["-x", "ax"], &["bx"]),
            // No set.
            ("a[b", &["a[b"], &["ab"]),
            ("a[]", &["a[]"], &["a"]),
            ("[z-a]", &[], &["z", "a", "-"]),
        ] {
            for (names, want) in [(matching, true), (others, false)] {
                names.iter().for_each(|name| assert_eq!(glob_matches(pattern, name), want, "{pattern} {name}"));
            }
        }
    }
}
