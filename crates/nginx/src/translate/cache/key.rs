//! Keys of stored responses: `proxy_cache_key`.

use crate::location::Location;
use crate::translate::rules::may_change_uri;
use crate::translate::{Translator, inherited};
use crate::variables::{VariableScope, variables};
use crate::write::{block, quote};

/// Whether responses with a key can be stored in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    Lasting,
    /// A text of the configuration, which may not mean the same in another process.
    Own,
}

impl Translator<'_> {
    /// Adds the options of a key to `lines`. `None` after a note: without the whole key a response could be for other
    /// requests.
    pub(super) fn cache_key(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        pass: &str,
        location: &Location<'_>,
        scope: &VariableScope,
    ) -> Option<KeyKind> {
        let zone = inherited(&location.blocks, &format!("{pass}_cache")).last().copied()?;
        let directive = inherited(&location.blocks, &format!("{pass}_cache_key")).last().copied();
        let text = match directive {
            Some(directive) => directive.argument(0),
            None if pass == "proxy" => "$scheme$proxy_host$request_uri",
            None => {
                let reason =
                    "there is no 'fastcgi_cache_key', so nginx has one response for all requests; nothing is stored";
                self.note(out, zone, reason);
                return None;
            }
        };
        let mut options = Vec::new();
        let mut template = None;
        // With an address of variables, two requests for one URI may go to different upstreams.
        let is_by_upstream = scope.proxy_host.contains('{') && variables(text).contains(&"proxy_host");
        match KeyParts::of(text).filter(|_| !is_by_upstream) {
            Some(key) => {
                // After a rewrite the cache sees another URI than the application, which may read the client's.
                let is_rewritten = pass == "fastcgi" || location.blocks[1..].iter().any(|block| may_change_uri(block));
                if key.is_original && is_rewritten {
                    let scheme = if key.scheme { "{scheme}://" } else { "" };
                    template = Some(format!("{scheme}{{hostport}}{{http.request.orig_uri}}"));
                } else {
                    if !key.scheme {
                        options.push("disable_scheme".to_owned());
                    }
                    if !key.query {
                        options.push("disable_query".to_owned());
                    }
                }
                if !key.host {
                    out.push("# Unlike nginx's, the key also has the host.".to_owned());
                }
                if !key.fields.is_empty() {
                    options.push(format!("headers {}", key.fields.join(" ")));
                }
            }
            None => match scope.expand(text) {
                Ok(text) => template = Some(text),
                Err(variable) => {
                    let reason = format!("the variable ${variable} has no equivalent here, so nothing is stored");
                    self.note(out, directive.unwrap_or(zone), &reason);
                    return None;
                }
            },
        }
        let mut kind = KeyKind::Lasting;
        if let Some(template) = template {
            let reason = "with a template as key, responses are in memory only, and a reload empties it";
            self.remark(out, directive.unwrap_or(zone), reason);
            options.push(format!("template {}", quote(&template)));
            kind = KeyKind::Own;
        }
        if !options.is_empty() {
            block(lines, "key", options);
        }
        Some(kind)
    }
}

/// The parts of a request that a key of nginx has.
#[derive(Debug, Default, PartialEq, Eq)]
struct KeyParts {
    scheme: bool,
    host: bool,
    path: bool,
    query: bool,
    /// The path and the query are the client's, before all rewrites.
    is_original: bool,
    /// Request fields.
    fields: Vec<String>,
}

impl KeyParts {
    /// Reads a key. Constant texts in it distinguish nothing. `None` if it has another variable, or no path.
    fn of(text: &str) -> Option<Self> {
        let mut key = Self::default();
        for variable in variables(text) {
            match variable {
                "scheme" => key.scheme = true,
                "host" | "http_host" | "server_name" | "proxy_host" | "server_port" | "proxy_port" => key.host = true,
                "request_uri" => (key.path, key.query, key.is_original) = (true, true, true),
                "uri" | "document_uri" | "fastcgi_script_name" => key.path = true,
                "args" | "query_string" => key.query = true,
                // A stored response to GET also answers HEAD, and the cache stores no others.
                "request_method" | "is_args" => {}
                _ => key.fields.push(variable.strip_prefix("http_")?.replace('_', "-")),
            }
        }
        key.path.then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_by_their_parts() {
        let key = |text: &str| KeyParts::of(text).map(|key| (key.scheme, key.host, key.query, key.fields.join(" ")));
        for (text, want) in [
            ("$scheme$proxy_host$request_uri", Some((true, true, true, ""))),
            ("$scheme://$host$uri", Some((true, true, false, ""))),
            ("$host$uri$is_args$args", Some((false, true, true, ""))),
            ("$request_method|$host|${request_uri}", Some((false, true, true, ""))),
            ("$host$request_uri$http_accept_language", Some((false, true, true, "accept-language"))),
            ("$host$request_uri$cookie_lang", None),
            ("$host", None),
        ] {
            assert_eq!(key(text), want.map(|(a, b, c, fields)| (a, b, c, fields.to_owned())), "{text}");
        }
    }
}
