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

/// Whether a file's name matches a pattern with `*`, `?` and `[…]`. As in a shell, a wildcard at the start does not match a
/// leading dot.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let mut expression = String::from("(?s)^");
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '*' => expression += ".*",
            '?' => expression.push('.'),
            '[' => {
                let set: String = rest.by_ref().take_while(|c| *c != ']').collect();
                expression += &format!("[{}]", set.replacen('!', "^", usize::from(set.starts_with('!'))));
            }
            c => expression += &regex::escape(c.encode_utf8(&mut [0; 4])),
        }
    }
    expression.push('$');
    let hidden = name.starts_with('.') && !pattern.starts_with('.');
    !hidden && regex::Regex::new(&expression).is_ok_and(|regex| regex.is_match(name))
}
