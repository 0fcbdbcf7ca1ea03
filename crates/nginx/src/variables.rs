//! Which placeholder has the value of an nginx variable?

use crate::expressions::{groups, groups_len, without_look_ahead};

/// Variables with a placeholder of the same value.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("args", "{query}"),
    ("query_string", "{query}"),
    ("request_uri", "{http.request.orig_uri}"),
    ("host", "{host}"),
    ("http_host", "{hostport}"),
    ("hostname", "{system.hostname}"),
    ("scheme", "{scheme}"),
    ("remote_addr", "{remote_host}"),
    ("binary_remote_addr", "{remote_host}"),
    ("realip_remote_addr", "{remote_host}"),
    ("realip_remote_port", "{remote_port}"),
    ("remote_port", "{remote_port}"),
    ("server_addr", "{http.request.local.host}"),
    ("server_port", "{http.request.local.port}"),
    ("request_method", "{method}"),
    ("content_type", "{header.Content-Type}"),
    ("content_length", "{header.Content-Length}"),
    ("server_protocol", "{http.request.proto}"),
    ("document_root", "{http.vars.root}"),
    ("request_id", "{uuid}"),
    ("time_iso8601", "{time.now.rfc3339}"),
    ("time_local", "{time.now.common_log}"),
    ("ssl_protocol", "{tls_version}"),
    ("ssl_cipher", "{tls_cipher}"),
    ("ssl_server_name", "{http.request.tls.server_name}"),
    ("ssl_client_s_dn", "{tls_client_subject}"),
    ("ssl_client_i_dn", "{tls_client_issuer}"),
    ("ssl_client_serial", "{tls_client_serial}"),
];

/// The variables that have a value at a place of the configuration, beside those that every request has.
#[derive(Debug, Default, Clone)]
pub(crate) struct VariableScope {
    /// The matcher whose groups `$1` and named groups are; empty without one.
    pub(crate) capture: String,
    /// Names of that matcher's groups.
    pub(crate) groups: Vec<String>,
    /// An earlier rule has an expression with a group: `$1` may be a group of it, so it is unknown and not empty.
    pub(crate) has_expressions: bool,
    /// The number of that matcher's groups. Those of higher numbers are empty.
    pub(crate) groups_len: usize,
    /// Earlier matchers, the latest at the end, with the names of their groups, which nginx keeps.
    pub(crate) earlier_groups: Vec<(String, Vec<String>)>,
    /// The matcher of the server's host, whose groups are variables too; empty without one.
    pub(crate) host_capture: String,
    /// Names of that matcher's groups.
    pub(crate) host_groups: Vec<String>,
    /// Names of the groups of all expressions for the server's hosts; those that the matcher lacks are empty. `None`
    /// without an expression.
    pub(crate) host_groups_all: Option<Vec<String>>,
    /// The address of the client is not that of the peer.
    pub(crate) has_real_ip: bool,
    /// Variables of `map`, whose placeholder has the same name.
    pub(crate) maps: Vec<String>,
    /// Variables of `set`.
    pub(crate) set: Vec<String>,
    /// Variables whose value here is not known, as a rule that sets them has no equivalent.
    pub(crate) unknown: Vec<String>,
    /// Variables that lack some of nginx's values: those of a `map` with an entry that has no equivalent, and those
    /// that depend on one.
    pub(crate) partial: Vec<String>,
    /// The placeholder or the text that `$status` has, such as that of an error; empty where it is not known.
    pub(crate) status: String,
    /// Value of `location_kept` that makes this location serve the request after a `break`; empty if its rules have no
    /// `break`.
    pub(crate) location_kept: String,
    /// `location_kept` may have the value of another location than that of these rules.
    pub(crate) another_may_be_kept: bool,
    /// Value of `location_kept` that makes the location for paths with two slashes at their start serve the request;
    /// empty if none of the rules makes such a path.
    pub(crate) double_slash_kept: String,
    /// Value of `rules_applied` after the rules of this location, if another pass repeats a `set` of a variable that
    /// its value contains; otherwise empty.
    pub(crate) rules_applied: String,
    /// The first name of the server.
    pub(crate) server_name: String,
    /// The names of the server that are not expressions.
    pub(crate) server_names: Vec<String>,
    /// Whether the request has passed `auth_basic`. Before that the user is not known.
    pub(crate) has_user: bool,
    /// Host of `proxy_pass`.
    pub(crate) proxy_host: String,
    /// The placeholder of the path in the form that nginx compares. Empty for the path as it was sent, which is enough
    /// for names of files: the matcher `file` resolves it.
    pub(crate) path: String,
}

impl VariableScope {
    /// Replaces the variables of `text` by placeholders, or returns the name of the first variable without one.
    pub(crate) fn expand(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            literal(&mut out, &rest[..at]);
            rest = &rest[at + 1..];
            if let Some(name) = unclosed_name(rest) {
                return Err(name.to_owned());
            }
            let (name, after) = split_name(rest);
            if name.is_empty() {
                out.push('$');
                continue;
            }
            // Only both together have a placeholder.
            if name == "is_args"
                && let Some((query @ ("args" | "query_string"), after)) = after.strip_prefix('$').map(split_name)
                && !self.unknown.iter().any(|unknown| unknown == query)
            {
                out += "{?query}";
                rest = after;
                continue;
            }
            out += &self.placeholder(name).ok_or_else(|| name.to_owned())?;
            rest = after;
        }
        literal(&mut out, rest);
        Ok(out)
    }

    /// Takes the groups of an expression that has just matched, `capture` being the name of its matcher. nginx keeps
    /// the named groups of earlier expressions.
    pub(crate) fn capture_groups(&mut self, capture: &str, expression: &str) {
        self.has_expressions = false;
        let earlier = (std::mem::replace(&mut self.capture, capture.to_owned()), std::mem::take(&mut self.groups));
        if !earlier.1.is_empty() {
            self.earlier_groups.push(earlier);
        }
        let expression = without_look_ahead(expression).expression;
        self.groups = groups(&expression);
        self.groups_len = groups_len(&expression);
    }

    /// Notes that the value of a variable is not known from here on.
    pub(crate) fn forget(&mut self, name: &str) {
        if !self.unknown.iter().any(|unknown| unknown == name) {
            self.unknown.push(name.to_owned());
        }
    }

    /// Notes whether a variable lacks some of its values from here on.
    pub(crate) fn set_partial(&mut self, name: &str, is_partial: bool) {
        self.partial.retain(|partial| partial != name);
        self.partial.extend(is_partial.then(|| name.to_owned()));
    }

    /// Whether a text has a variable that lacks some of its values.
    pub(crate) fn is_partial(&self, text: &str) -> bool {
        variables(text).into_iter().any(|name| self.partial.iter().any(|partial| partial == name))
    }

    fn path(&self) -> &str {
        if self.path.is_empty() { "{path}" } else { &self.path }
    }

    fn placeholder(&self, name: &str) -> Option<String> {
        let field = |name: &str| name.replace('_', "-");
        let is_number = name.bytes().all(|b| b.is_ascii_digit());
        let has = |names: &[String]| names.iter().any(|group| group == name);
        if has(&self.unknown) {
            return None;
        }
        if !has(&self.groups)
            && let Some(all) = &self.host_groups_all
            && (has(all) || is_number && self.capture.is_empty())
        {
            let is_set = !self.host_capture.is_empty() && (is_number || has(&self.host_groups));
            return Some(if is_set { format!("{{re.{}.{name}}}", self.host_capture) } else { String::new() });
        }
        if is_number || has(&self.groups) {
            let capture = &self.capture;
            let is_absent = name.parse().is_ok_and(|number: usize| number > self.groups_len);
            if capture.is_empty() || is_absent {
                return (!self.has_expressions).then(String::new);
            }
            return Some(format!("{{re.{capture}.{name}}}"));
        }
        if let Some((capture, _)) = self.earlier_groups.iter().rfind(|(_, groups)| has(groups)) {
            return Some(format!("{{re.{capture}.{name}}}"));
        }
        if self.set.iter().any(|set| set == name) {
            return Some(format!("{{vars.{}}}", variable(name)));
        }
        if self.maps.iter().any(|map| map == name) {
            return Some(format!("{{{}}}", variable(name)));
        }
        match name {
            "server_name" => return Some(self.server_name.clone()),
            "remote_addr" | "binary_remote_addr" if self.has_real_ip => return Some("{client_ip}".to_owned()),
            "remote_user" if self.has_user => return Some("{http.auth.user.id}".to_owned()),
            "status" if !self.status.is_empty() => return Some(self.status.clone()),
            "proxy_host" if !self.proxy_host.is_empty() => return Some(self.proxy_host.clone()),
            "request_filename" => return Some(format!("{{http.vars.root}}{}", self.path())),
            name if NORMALIZED_PATHS.contains(&name) => return Some(self.path().to_owned()),
            _ => {}
        }
        if let Some((_, placeholder)) = PLACEHOLDERS.iter().find(|(variable, _)| *variable == name) {
            return Some((*placeholder).to_owned());
        }
        type Make<'a> = &'a dyn Fn(&str) -> String;
        let families: [(&str, Make<'_>); 5] = [
            ("http_", &|name| format!("{{header.{}}}", field(name))),
            ("cookie_", &|name| format!("{{cookie.{name}}}")),
            ("arg_", &|name| format!("{{query.{name}}}")),
            ("sent_http_", &|name| format!("{{http.response.header.{}}}", field(name))),
            ("upstream_http_", &|name| format!("{{rp.header.{}}}", field(name))),
        ];
        families.iter().find_map(|(prefix, make)| name.strip_prefix(prefix).map(make))
    }
}

/// The name of a variable of `set`, `geo` or `map` in the Caddyfile, where names such as `client_ip` have a meaning of
/// their own.
pub(crate) fn variable(name: &str) -> String {
    format!("nginx_{name}")
}

/// The name of the variable if a text is one variable and nothing else.
pub(crate) fn only_variable(text: &str) -> Option<&str> {
    let (name, rest) = split_name(text.strip_prefix('$')?);
    (!name.is_empty() && rest.is_empty()).then_some(name)
}

/// Variables of the path. nginx's have no encoding, double slashes and dot segments.
const NORMALIZED_PATHS: &[&str] = &["uri", "document_uri", "fastcgi_script_name"];

/// Whether a text is a variable of the path, which nginx compares in another form than it was sent.
pub(crate) fn is_path(text: &str) -> bool {
    only_variable(text).is_some_and(|name| NORMALIZED_PATHS.contains(&name))
}

/// Whether a variable's value changes with the URI of the request.
pub(crate) fn is_of_uri(name: &str) -> bool {
    NORMALIZED_PATHS.contains(&name)
        || matches!(name, "request_filename" | "args" | "query_string" | "is_args")
        || name.starts_with("arg_")
}

/// Whether a text has a variable with the path.
pub(crate) fn has_path(text: &str) -> bool {
    variables(text).into_iter().any(|name| NORMALIZED_PATHS.contains(&name) || name == "request_filename")
}

/// The text with `$uri` for each variable of the request's whole path.
pub(crate) fn with_one_name_of_path(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, after_name) = split_name(after);
        let is_path = matches!(name, "uri" | "document_uri") && unclosed_name(after).is_none();
        let is_joined = after_name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        match (is_path, is_joined) {
            (true, false) => out.push_str("$uri"),
            (true, true) => out.push_str("${uri}"),
            (false, _) => {
                out.push('$');
                out.push_str(&after[..after.len() - after_name.len()]);
            }
        }
        rest = after_name;
    }
    out + rest
}

/// The names of the variables in a text, in their order.
pub(crate) fn variables(text: &str) -> Vec<&str> {
    let parts = text.split('$').skip(1);
    parts.map(|part| split_name(part).0).filter(|name| !name.is_empty()).collect()
}

/// The text without `$is_args$args` at its end.
pub(crate) fn without_query(text: &str) -> &str {
    let strip = |text: &'_ str, names: &[&str]| names.iter().find_map(|name| Some(text.strip_suffix(name)?.len()));
    let before = strip(text, &["$args", "${args}", "$query_string", "${query_string}"]);
    let before = before.and_then(|end| strip(&text[..end], &["$is_args", "${is_args}"]));
    before.map_or(text, |end| &text[..end])
}

/// Replaces the variables of a text for which `replacement` returns a text.
pub(crate) fn replaced(text: &str, replacement: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    // Where the name of the variable before begins, if it is kept without braces.
    let mut kept_at = None;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        kept_at = kept_at.filter(|_| before.is_empty());
        let (name, after_name) = split_name(after);
        match replacement(name) {
            Some(text) => {
                // The text would be a part of the name.
                if let Some(at) = kept_at.take() {
                    out.insert(at, '{');
                    out.push('}');
                }
                out.push_str(&text);
            }
            None => {
                out.push('$');
                kept_at = (!name.is_empty() && !after.starts_with('{')).then_some(out.len());
                out.push_str(&after[..after.len() - after_name.len()]);
            }
        }
        rest = after_name;
    }
    out + rest
}

/// Splits the text after a `$` into the variable's name and the rest.
fn split_name(rest: &str) -> (&str, &str) {
    if let Some(inner) = rest.strip_prefix('{') {
        return inner.split_once('}').unwrap_or((inner, ""));
    }
    let end = if rest.starts_with(|c: char| c.is_ascii_digit()) {
        1
    } else {
        rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())
    };
    rest.split_at(end)
}

/// The bracket and the name after it, of a variable that nginx refuses since the closing bracket or the name is
/// missing.
fn unclosed_name(rest: &str) -> Option<&str> {
    let inner = rest.strip_prefix('{')?;
    let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inner.len());
    (end == 0 || !inner[end..].starts_with('}')).then(|| &rest[..=end])
}

/// Writes a text so that no part of it is a placeholder.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    literal(&mut out, text);
    out
}

/// The brace that closes another one is escaped too: `\{host}` has the shorthand `{host}`.
fn literal(out: &mut String, text: &str) {
    let mut open = 0_usize;
    for c in text.chars() {
        let closes = c == '}' && open > 0;
        if c == '{' || closes {
            out.push('\\');
        }
        open = if closes { open - 1 } else { open + usize::from(c == '{') };
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_replaced_by_its_whole_name() {
        for (text, want) in [
            ("/$app_root/$app", "/$app_root/x"),
            ("${app}y$app", "xyx"),
            ("$app$app2$", "x$app2$"),
            ("${app_root}${app", "${app_root}x"),
            ("$app_root$app", "${app_root}x"),
            ("$app_root/$app", "$app_root/x"),
        ] {
            assert_eq!(replaced(text, |name| (name == "app").then(|| "x".to_owned())), want, "{text}");
        }
    }

    #[test]
    fn the_path_has_one_name() {
        for (text, want) in [
            ("${uri}/", "$uri/"),
            ("/a$document_uri", "/a$uri"),
            ("${document_uri}${uri}.html", "$uri$uri.html"),
            ("${uri}x/${uri}_", "${uri}x/${uri}_"),
            ("$uris$document_uri_", "$uris$document_uri_"),
            ("$a${uri}", "$a$uri"),
            ("${uri", "${uri"),
        ] {
            assert_eq!(with_one_name_of_path(text), want, "{text}");
        }
    }

    #[test]
    fn texts_without_the_query() {
        for (text, want) in [
            ("/x$is_args$args", "/x"),
            ("/x${is_args}${args}", "/x"),
            ("/x$is_args${query_string}", "/x"),
            ("/x$args", "/x$args"),
            ("/x$is_args$args_foo", "/x$is_args$args_foo"),
            ("/x", "/x"),
        ] {
            assert_eq!(without_query(text), want, "{text}");
        }
    }

    // nginx's documentation, "Alphabetical index of variables".
    #[test]
    fn variables_become_placeholders() {
        let scope = VariableScope {
            capture: "old".into(),
            groups_len: 1,
            earlier_groups: vec![("first".into(), vec!["g".into()]), ("second".into(), vec!["g".into()])],
            unknown: vec!["args".into()],
            maps: vec!["kind".into()],
            server_name: "a.b".into(),
            ..VariableScope::default()
        };
        for (text, want) in [
            ("https://$host$request_uri", Ok("https://{host}{http.request.orig_uri}")),
            ("/index.php$is_args$query_string", Ok("/index.php{?query}")),
            ("/${is_args}${query_string}x", Ok("/{?query}x")),
            ("/x$is_args$query_string_foo", Err("is_args")),
            ("$is_args$query_string$args_foo", Err("args_foo")),
            ("$args", Err("args")),
            ("$is_args$args", Err("is_args")),
            ("$causeway_prefixed_query", Err("causeway_prefixed_query")),
            ("/x${args", Err("{args")),
            ("/x${args/}", Err("{args")),
            ("${}", Err("{")),
            ("${scheme}x", Ok("{scheme}x")),
            ("$http_user_agent $arg_q $cookie_id", Ok("{header.user-agent} {query.q} {cookie.id}")),
            ("/a/$1/$2/$g/$kind", Ok("/a/{re.old.1}//{re.second.g}/{nginx_kind}")),
            ("$status", Err("status")),
            ("$server_name", Ok("a.b")),
            ("a$ {x}} {", Ok("a$ \\{x\\}} \\{")),
            ("{\"a\":{\"b\":\"$scheme\"}}", Ok("\\{\"a\":\\{\"b\":\"{scheme}\"}}")),
            ("$nothing_like_it", Err("nothing_like_it")),
        ] {
            assert_eq!(scope.expand(text).as_deref(), want.map_err(str::to_owned).as_ref().copied(), "{text}");
        }
    }
}
