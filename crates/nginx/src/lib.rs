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
//! A directive without an equivalent becomes a comment in the Caddyfile, and a [`Note`]. `docs/internals/nginx.md`
//! describes the passes over a server, the variables that they share, and how to add a directive.

mod expressions;
mod location;
mod parse;
mod standard;
mod translate;
mod variables;
mod write;

pub use parse::{Files, Place, SyntaxError};
pub use translate::{Note, Translation, translate};

/// Whether a file's name matches a pattern with `*`, `?` and `[…]`, as in glob(7). A wildcard at the start does not
/// match a leading dot.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let mut expression = String::from("(?s)^");
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (c, bracket(rest)) {
            ('*', _) => expression += ".*",
            ('?', _) => expression.push('.'),
            ('[', Some((set, after))) => {
                expression += &set_expression(set);
                rest = after;
            }
            (c, _) => expression += &regex::escape(c.encode_utf8(&mut [0; 4])),
        }
    }
    expression.push('$');
    let hidden = name.starts_with('.') && !pattern.starts_with('.');
    !hidden && regex::Regex::new(&expression).is_ok_and(|regex| regex.is_match(name))
}

/// Translates the content of a set, such as `!a-z_` or `[:digit:]`, into one of a regular expression. A range whose end
/// is before its start has no character.
fn set_expression(set: &str) -> String {
    let (negation, mut rest) = set.strip_prefix(['!', '^']).map_or(("", set), |set| ("^", set));
    let mut members = String::new();
    while let Some(low) = rest.chars().next() {
        if let Some((class, after)) = rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
            members += &format!("[:{class}:]");
            rest = after;
            continue;
        }
        rest = &rest[low.len_utf8()..];
        let high = rest.strip_prefix('-').and_then(|rest| rest.chars().next());
        if let Some(high) = high {
            rest = &rest[1 + high.len_utf8()..];
        }
        let (low, high) = (u32::from(low), u32::from(high.unwrap_or(low)));
        if low <= high {
            members += &format!(r"\x{{{low:x}}}-\x{{{high:x}}}");
        }
    }
    match (negation, &*members) {
        // A regular expression has no empty set.
        ("", "") => r"[^\x{0}-\x{10ffff}]".to_owned(),
        (_, "") => ".".to_owned(),
        (negation, members) => format!("[{negation}{members}]"),
    }
}

/// Splits the text after a `[` at the `]` that ends the set. A `]` that is the first character, or ends a class such as
/// `[:digit:]`, is in the set (glob(7)). `None`: the `[` begins no set.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let first = text.len() - text.strip_prefix(['!', '^']).unwrap_or(text).len();
    let mut end = first + usize::from(text[first..].starts_with(']'));
    loop {
        let rest = &text[end..];
        if let Some(class) = rest.strip_prefix("[:").and_then(|rest| rest.find(":]")) {
            end += class + "[::]".len();
            continue;
        }
        match rest.chars().next()? {
            ']' => return Some((&text[..end], &rest[1..])),
            c => end += c.len_utf8(),
        }
    }
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
            ("[z-ab]", &["b"], &["z", "a", "-"]),
            ("[!z-a]", &["z"], &["", "zz"]),
            // The example of glob(7): from `-` to `0`.
            ("x[--0]", &["x-", "x.", "x0"], &["x1", "x,"]),
            ("x[+--]", &["x+", "x,", "x-"], &["x."]),
            ("x[[:digit:]_]", &["x0", "x_"], &["xa", "x:", "x["]),
            ("x[![:digit:]]y", &["xay"], &["x0y"]),
            ("x[[:a]", &["x[", "x:", "xa"], &["xb"]),
        ] {
            for (names, want) in [(matching, true), (others, false)] {
                names.iter().for_each(|name| assert_eq!(glob_matches(pattern, name), want, "{pattern} {name}"));
            }
        }
    }
}
