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
use crate::parse::Directive;

/// Replaces such rules in all locations by a `proxy_pass` with a path.
pub(crate) fn replace(directives: &mut [Directive]) {
    for directive in directives {
        let address = match &*directive.arguments {
            _ if directive.name != "location" => None,
            [prefix] => address_after(directive, prefix),
            [modifier, prefix] if modifier == "^~" => address_after(directive, prefix),
            _ => None,
        };
        let Some(inner) = directive.block.as_mut() else { continue };
        if let Some(address) = address {
            inner.retain(|d| d.name != "rewrite");
            let pass = inner.iter_mut().find(|d| d.name == "proxy_pass").expect("it has the address");
            pass.arguments = vec![format!("{address}/")];
            // With variables nginx leaves the upstream's redirects as they are.
            let (place, arguments) = (pass.place.clone(), vec!["off".to_owned()]);
            if !inner.iter().any(|d| d.name == "proxy_redirect") {
                inner.push(Directive { name: "proxy_redirect".into(), arguments, block: None, place });
            }
        }
        replace(inner);
    }
}

/// The address of the upstream, if the rules of a location remove its prefix.
fn address_after(location: &Directive, prefix: &str) -> Option<String> {
    let [raw, strip] = rules_of(location)[..] else { return None };
    let word = |rule: &Directive| rule.arguments.join(" ");
    if raw.name != "rewrite" || strip.name != "rewrite" || word(raw) != "^ $request_uri" {
        return None;
    }
    let stem = prefix.strip_suffix('/').filter(|stem| stem.starts_with('/'))?;
    let stem = regex::escape(stem);
    let ways =
        [format!("^({stem})?(/.*) $2 break"), format!("^{stem}(/.*) $1 break"), format!("^{stem}/(.*) /$1 break")];
    let written = word(strip).replacen("$ ", " ", 1);
    let pass = own(location, "proxy_pass").first()?.argument(0);
    ways.contains(&written).then(|| pass.strip_suffix("$uri").map(str::to_owned))?
}
