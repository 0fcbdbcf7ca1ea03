//! Rules that remove a prefix from the URI as the client sent it. In Gitea's documentation they are
//!
//! ```text
//! rewrite ^ $request_uri;
//! rewrite ^(/git)?(/.*) $2 break;
//! proxy_pass http://127.0.0.1:3000$uri;
//! ```
//!
//! A `proxy_pass` with a path has this effect here, as the rest of the URI keeps its encoding.

use super::own;
use super::rules::rules_of;
use crate::location::{Pattern, pattern};
use crate::parse::Directive;

/// Replaces such rules in all locations by a `proxy_pass` with a path.
pub(crate) fn replace(directives: &mut [Directive]) {
    for directive in directives {
        let removed = removed_prefix(directive);
        let Some(inner) = directive.block.as_mut() else { continue };
        if let Some(Removed { address, stem, is_whole }) = removed {
            inner.retain(|d| d.name != "rewrite");
            let to = |inner: &mut Vec<Directive>, uri: &str| {
                let pass = inner.iter_mut().find(|d| d.name == "proxy_pass").expect("it has the address");
                pass.arguments = vec![format!("{address}{uri}")];
                pass.place.clone()
            };
            let place = to(inner, if is_whole { "/" } else { "" });
            // With variables nginx leaves the upstream's redirects as they are.
            if !inner.iter().any(|d| d.name == "proxy_redirect") {
                let arguments = vec!["off".to_owned()];
                inner.push(Directive { name: "proxy_redirect".into(), arguments, block: None, place: place.clone() });
            }
            if !is_whole {
                // Of the paths that an expression takes only some have the prefix.
                let exact = ["=".to_owned(), stem.clone()];
                for (arguments, uri) in [(exact.to_vec(), ""), (vec![format!("{stem}/")], "/")] {
                    let mut lines: Vec<_> = inner.iter().filter(|d| d.name != "location").cloned().collect();
                    to(&mut lines, uri);
                    let (name, place) = ("location".to_owned(), place.clone());
                    inner.push(Directive { name, arguments, block: Some(lines), place });
                }
            }
        }
        replace(inner);
    }
}

/// A prefix that the rules of a location remove.
struct Removed {
    /// The upstream's address.
    address: String,
    /// The prefix, without the slash at its end.
    stem: String,
    /// All paths of the location have the prefix.
    is_whole: bool,
}

fn removed_prefix(location: &Directive) -> Option<Removed> {
    let pattern = pattern(location).ok().filter(|_| location.name == "location")?;
    let [raw, strip] = rules_of(location)[..] else { return None };
    let word = |rule: &Directive| rule.arguments.join(" ");
    if raw.name != "rewrite" || strip.name != "rewrite" || word(raw) != "^ $request_uri" {
        return None;
    }
    let written = word(strip).replacen("$ ", " ", 1);
    let optional = || written.strip_prefix("^(")?.strip_suffix(")?(/.*) $2 break");
    let with_slash = || written.strip_prefix('^')?.strip_suffix("(/.*) $1 break");
    let without_slash = || written.strip_prefix('^')?.strip_suffix("/(.*) /$1 break");
    let expression = optional().or_else(with_slash).or_else(without_slash)?;
    let stem = expression.replace('\\', "");
    if !stem.starts_with('/') || regex::escape(&stem) != expression {
        return None;
    }
    let is_whole = match &pattern {
        Pattern::Prefix { prefix, .. } if prefix.strip_suffix('/') == Some(&stem) => true,
        Pattern::Regexp(_) => false,
        _ => return None,
    };
    let address = own(location, "proxy_pass").first()?.argument(0).strip_suffix("$uri")?.to_owned();
    Some(Removed { address, stem, is_whole })
}
