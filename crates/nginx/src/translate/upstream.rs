//! Upstreams: `proxy_pass` as `reverse_proxy`, with balancing, retries, fields and cookies.

use std::borrow::Cow;

use super::content::in_written_order;
use super::rules::{ORIGIN, PATH_CHANGED, has_break, may_change_uri};
use super::units::seconds;
use super::upstream_address::{NamedTargets, begins_with_slash, split_host, with_constants};
use super::{Translator, active, inherited, own, value};
use crate::location::{Location, Pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, has_path, variables};
use crate::write::{block, quote};

impl<'a> Translator<'a> {
    /// Writes the upstreams of a `proxy_pass` with a variable whose values are their names. Returns `false` for another
    /// one.
    pub(super) fn proxy_by_value(
        &mut self,
        out: &mut Vec<String>,
        pass: &Directive,
        location: &Location<'a>,
        scope: &VariableScope,
    ) -> bool {
        let Some(NamedTargets { variable, targets }) = self.named_targets(pass, location) else { return false };
        let Ok(key) = scope.expand(&format!("${{{variable}}}")) else { return false };
        let mut lines = Vec::new();
        for (value, target) in targets {
            let one = Directive { arguments: vec![target], ..pass.clone() };
            let mut content = Vec::new();
            self.write_proxy(&mut content, &one, location, scope);
            let name = self.fresh(value);
            lines.push(format!("@{name} vars {} {}", quote(&key), quote(value)));
            block(&mut lines, &format!("handle @{name}"), in_written_order(content));
        }
        // Without a value there is no host, which nginx takes for a mistake of its own.
        block(&mut lines, "handle", vec!["error 500".to_owned()]);
        block(out, "route", lines);
        true
    }

    pub(super) fn write_proxy(
        &mut self,
        out: &mut Vec<String>,
        pass: &Directive,
        location: &Location<'a>,
        outer_scope: &VariableScope,
    ) {
        let url = with_constants(pass.argument(0), &location.blocks);
        let Some((scheme @ ("http" | "https"), rest)) = url.split_once("://") else {
            out.push("error 502".to_owned());
            return self.note(out, pass, "found no http:// or https:// with an address; requests fail with 502");
        };
        let (host, uri) = match rest.strip_prefix("unix:") {
            Some(path) => {
                let (path, uri) = path.split_once(':').map_or((path, None), |(path, uri)| (path, Some(uri)));
                (format!("unix:{path}"), uri)
            }
            None => split_host(rest, &location.pattern, |name| self.shared.upstreams.contains_key(name)),
        };
        // A query alone is that of the path `/`, which nginx leaves out without variables in the target.
        let uri = uri.map(|uri| if uri.starts_with('?') { Cow::Owned(format!("/{uri}")) } else { Cow::Borrowed(uri) });
        let uri = uri.as_deref();
        let usual = if scheme == "https" { 443 } else { 80 };
        // In nginx the URI of a `proxy_pass` leaves `$uri` as it is.
        let fields = inherited(&location.blocks, "proxy_set_header").into_iter().map(|field| field.argument(1));
        let mut scope = self.with_path(out, outer_scope, fields.chain(uri));
        let mut hosts = self.upstream_addresses(&host, usual);
        if hosts.is_empty() {
            out.push("error 502".to_owned());
            return self.note(out, pass, "all servers of the upstream are down; requests fail with 502");
        }
        if host.contains('$') {
            match self.variable_host(&host, usual, location, &scope) {
                Ok(address) => {
                    scope.proxy_host.clone_from(&address);
                    hosts = vec![address];
                }
                Err(reason) => {
                    out.push("error 502".to_owned());
                    return self.note(out, pass, &format!("{reason}. Requests fail with 502"));
                }
            }
        } else {
            scope.proxy_host = if host.starts_with("unix:") { "localhost".to_owned() } else { host.clone() };
        }
        let hidden = self.write_cache(out, "proxy", location, &scope);
        if let Some(uri) = uri {
            self.upstream_uri(out, pass, location, &scope, uri);
        }
        let mut lines = self.balance(out, &host, &location.blocks);
        if let Some(method) = inherited(&location.blocks, "proxy_method").last()
            && let Some(text) = self.expand(out, method, &scope, method.argument(0))
        {
            lines.push(format!("method {}", quote(&text)));
        }
        self.fields_up(out, &mut lines, &location.blocks, &scope);
        lines.extend(hidden);
        lines.extend(own_server_field("proxy", &location.blocks));
        lines.extend(self.outer_fields.line_of_upstream());
        self.write_cookies(out, &mut lines, &location.blocks, &scope);
        self.write_intercepted(&mut lines, "proxy", &location.blocks);
        self.write_accel(&mut lines, "proxy", location, outer_scope);
        if value(&location.blocks, "proxy_buffering") == Some("off") {
            lines.push("flush_interval -1".to_owned());
        }
        self.write_redirects(out, &mut lines, pass, (scheme, &host, uri), location, &scope);
        self.write_transport(out, &mut lines, (scheme, &host), &location.blocks, &scope);
        if lines.is_empty() {
            out.push(format!("reverse_proxy {}", hosts.join(" ")));
        } else {
            block(out, &format!("reverse_proxy {}", hosts.join(" ")), lines);
        }
    }

    /// Writes the rewrite to the URI of a `proxy_pass`, which takes the place of the location's prefix, or, with
    /// variables, of the whole URI.
    fn upstream_uri(
        &mut self,
        out: &mut Vec<String>,
        pass: &Directive,
        location: &Location<'a>,
        scope: &VariableScope,
        uri: &str,
    ) {
        let is_unchanged = uri == "$request_uri" && !location.blocks[1..].iter().any(|block| may_change_uri(block));
        if is_unchanged {
            // The request's own URI.
        } else if uri.starts_with('$') && !begins_with_slash(uri, &location.pattern) {
            self.uri_of_variables(out, pass, scope, uri);
        } else if pass.argument(0).contains('$') {
            self.uri_with_variables(out, pass, scope, uri);
        } else {
            self.uri_for_prefix(out, location, uri);
        }
    }

    /// Writes the URI of a `proxy_pass` with variables, which nginx sends as it is, without the request's query.
    fn uri_with_variables(&mut self, out: &mut Vec<String>, pass: &Directive, scope: &VariableScope, uri: &str) {
        let Some(text) = self.expand(out, pass, scope, uri) else { return };
        let has_query = uri.contains('?') || ["request_uri", "is_args"].iter().any(|v| variables(uri).contains(v));
        let matcher = if uri == "$request_uri" {
            // A URI that no rule has changed is sent with the client's encoding.
            let name = self.fresh("changed");
            out.push(format!("@{name} not vars {{uri}} {text}"));
            format!("@{name}")
        } else {
            "*".to_owned()
        };
        // The value of the path is decoded already. The question mark is not a part of a value, so that it stays one.
        let (text, escape) = match has_path(uri) {
            true => (text.replacen("{?query}", "?{query}", 1), " escape_values"),
            false => (text, ""),
        };
        let target = format!("{text}{}", if has_query { "" } else { "?" });
        out.push(format!("rewrite {matcher} {}{escape}", quote(&target)));
    }

    /// Writes the URI of a `proxy_pass` in the place of the location's prefix, unless a rule with `break` has changed
    /// the path.
    fn uri_for_prefix(&mut self, out: &mut Vec<String>, location: &Location<'a>, uri: &str) {
        let prefix = location.prefix();
        let has_break = location.blocks[1..].iter().any(|block| has_break(block));
        let operation = match prefix.strip_suffix('/') {
            // The rest of the path belongs to the query.
            _ if uri.contains('?') => {
                let name = self.fresh("rest");
                let expression = format!("(?s)^{}(.*)$", regex::escape(prefix));
                let mut matcher = vec![format!("path_regexp {name} {}", quote(&expression))];
                matcher.extend(has_break.then(|| format!("not vars {{vars.{PATH_CHANGED}}} yes")));
                block(out, &format!("@{name}"), matcher);
                return out.push(format!("rewrite @{name} {}", quote(&format!("{uri}{{re.{name}.1}}{{?query}}"))));
            }
            Some("") if uri == "/" => return,
            Some(stem) if uri == "/" => format!("strip_prefix {}", quote(stem)),
            _ => format!("path_regexp {} {}", quote(&format!("^{}", regex::escape(prefix))), quote(uri)),
        };
        let mut matcher = String::new();
        if has_break {
            let name = self.fresh("unchanged");
            out.push(format!("@{name} not vars {{vars.{PATH_CHANGED}}} yes"));
            matcher = format!("@{name} ");
        }
        out.push(format!("uri {matcher}{operation}"));
    }

    /// Writes the URI of a `proxy_pass` that begins with a variable: a path, a query, for which nginx sends the path
    /// `/`, or nothing, for which it sends the request's own URI.
    fn uri_of_variables(&mut self, out: &mut Vec<String>, pass: &Directive, scope: &VariableScope, uri: &str) {
        let Some(text) = self.expand(out, pass, scope, uri) else { return };
        let [of, path, query] = ["uri", "path", "query"].map(|kind| self.fresh(kind));
        let lines = vec![
            format!("vars {of} {}", quote(&text)),
            format!("@{path} vars_regexp {of} ^/"),
            format!("rewrite @{path} {{vars.{of}}}?"),
            format!("@{query} vars_regexp {of} ^\\?"),
            format!("rewrite @{query} /{{vars.{of}}}"),
        ];
        block(out, "route", lines);
    }

    /// Writes the connections to an upstream: TLS, time limits, and those kept open.
    pub(super) fn write_transport(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        (scheme, host): (&str, &str),
        blocks: &[&Directive],
        scope: &VariableScope,
    ) {
        let mut transport = Vec::new();
        if scheme == "https" {
            transport.push("tls".to_owned());
            if value(blocks, "proxy_ssl_verify") != Some("on") {
                transport.push(
                    "# nginx does not verify the upstream's certificate by default; better remove this line."
                        .to_owned(),
                );
                transport.push("tls_insecure_skip_verify".to_owned());
            }
            if let Some(name) = inherited(blocks, "proxy_ssl_name").last()
                && let Some(text) = self.expand(out, name, scope, name.argument(0))
            {
                transport.push(format!("tls_server_name {}", quote(&text)));
            }
            if let Some(file) = value(blocks, "proxy_ssl_trusted_certificate") {
                transport.push(format!("tls_trust_pool file {}", quote(file)));
            }
            if let (Some(certificate), Some(key)) =
                (value(blocks, "proxy_ssl_certificate"), value(blocks, "proxy_ssl_certificate_key"))
            {
                transport.push(format!("tls_client_auth {} {}", quote(certificate), quote(key)));
            }
        }
        self.write_transport_times(out, &mut transport, "proxy", blocks);
        if let Some(idle) = self.shared.upstreams.get(host).and_then(|u| own(u, "keepalive").first().copied()) {
            transport.push(format!("keepalive_idle_conns {}", idle.argument(0)));
        }
        if !transport.is_empty() {
            block(lines, "transport http", transport);
        }
    }

    /// Writes the time limits of a transport. `prefix` is that of the directives.
    pub(super) fn write_transport_times(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        prefix: &str,
        blocks: &[&Directive],
    ) {
        for (name, option) in [("connect", "dial"), ("read", "read"), ("send", "write")] {
            let Some(limit) = inherited(blocks, &format!("{prefix}_{name}_timeout")).last().copied() else { continue };
            match seconds(limit.argument(0)) {
                Some(time) => lines.push(format!("{option}_timeout {time}s")),
                None => self.note(out, limit, "found no duration"),
            }
        }
    }

    /// `proxy_redirect`: replaces the beginning of Location. A target that begins with a slash gets the request's
    /// origin, as nginx makes it absolute.
    fn write_redirects(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        pass: &Directive,
        (scheme, host, uri): (&str, &str, Option<&str>),
        location: &Location<'a>,
        scope: &VariableScope,
    ) {
        let written = inherited(&location.blocks, "proxy_redirect");
        // nginx's default is about the upstream's own address, which an upstream only knows from the field Host.
        let sends_host =
            inherited(&location.blocks, "proxy_set_header").iter().any(|d| d.argument(0).eq_ignore_ascii_case("host"));
        let by_default = written.is_empty() && !sends_host || written.iter().any(|d| d.argument(0) == "default");
        let mut replaced = Vec::new();
        if by_default && !pass.argument(0).contains('$') && !host.starts_with("unix:") {
            let (from, to) = match (uri, &location.pattern) {
                (Some(uri), Pattern::Exact(_) | Pattern::Prefix { .. }) => (uri, location.prefix()),
                _ => ("/", "/"),
            };
            replaced.push((format!("{scheme}://{host}{from}"), to.to_owned()));
        }
        for redirect in written {
            match &*redirect.arguments {
                [one] if one == "off" || one == "default" => {}
                [from, to] if !from.starts_with('~') && !from.contains('$') => {
                    let earlier: Vec<&str> =
                        replaced.iter().map(|(_, to): &(_, String)| &**to).filter(|to| !to.starts_with('/')).collect();
                    if may_follow(&earlier, from) {
                        self.remark(out, redirect, TWICE_REPLACED);
                    }
                    replaced.extend(self.expand(out, redirect, scope, to).map(|to| (from.clone(), to)));
                }
                _ => self.note(out, redirect, "only two texts, 'off' and 'default' are carried over"),
            }
        }
        for (from, to) in replaced {
            let origin = if to.starts_with('/') { ORIGIN } else { "" };
            let from = format!("^{}", regex::escape(&from));
            lines.push(format!("header_down Location {} {}", quote(&from), quote(&format!("{origin}{to}"))));
        }
    }

    /// Lets `handle_errors` answer instead of responses whose status has an `error_page`.
    pub(super) fn write_intercepted(&mut self, lines: &mut Vec<String>, pass: &str, blocks: &[&Directive]) {
        if value(blocks, &format!("{pass}_intercept_errors")) != Some("on") {
            return;
        }
        let pages = inherited(blocks, "error_page");
        let words =
            pages.iter().flat_map(|page| page.arguments.split_last().map(|(_, codes)| codes).unwrap_or_default());
        let mut codes: Vec<&str> = words.map(String::as_str).filter(|code| !code.starts_with('=')).collect();
        codes.sort_unstable();
        codes.dedup();
        if !codes.is_empty() {
            let name = self.fresh("intercepted");
            lines.push(format!("@{name} status {}", codes.join(" ")));
            block(lines, &format!("handle_response @{name}"), vec!["error intercepted {rp.status_code}".to_owned()]);
        }
    }

    /// `proxy_cookie_path` and `proxy_cookie_domain`, as replacements in Set-Cookie.
    fn write_cookies(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) {
        for (name, attribute) in [("proxy_cookie_path", "path"), ("proxy_cookie_domain", "domain")] {
            let mut earlier = Vec::new();
            for cookie in inherited(blocks, name) {
                let (from, to) = match &*cookie.arguments {
                    [one] if one == "off" => continue,
                    [from, to] if !from.starts_with('~') && !from.contains('$') => (from, to),
                    _ => {
                        self.note(out, cookie, "only two texts are carried over");
                        continue;
                    }
                };
                let is_again = match attribute {
                    "path" => may_follow(&earlier, from),
                    _ => earlier.iter().any(|to: &&str| to.eq_ignore_ascii_case(from.trim_start_matches('.'))),
                };
                if is_again {
                    self.remark(out, cookie, TWICE_REPLACED);
                }
                earlier.push(to.trim_start_matches('.'));
                let Some(to) = self.expand(out, cookie, scope, to) else { continue };
                let from = match attribute {
                    "path" => regex::escape(from),
                    _ => format!(r"\.?{}(?:;|$)", regex::escape(from.trim_start_matches('.'))),
                };
                let (find, end) = match attribute {
                    "path" => (format!(r"(?i)(;\s*path=){from}"), ""),
                    _ => (format!(r"(?i)(;\s*domain=){}", from.replace("(?:;|$)", "(;|$)")), "${2}"),
                };
                lines.push(format!("header_down Set-Cookie {} {}", quote(&find), quote(&format!("${{1}}{to}{end}"))));
            }
        }
    }

    /// Writes the fields of requests to an upstream.
    pub(super) fn fields_up(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) {
        let fields = inherited(blocks, "proxy_set_header");
        let has_no_others = value(blocks, "proxy_pass_request_headers") == Some("off");
        if has_no_others {
            // Before all other operations.
            lines.push("header_up -*".to_owned());
        }
        if !fields.iter().any(|d| d.argument(0).eq_ignore_ascii_case("host")) {
            lines.push(format!("header_up Host {}", scope.proxy_host));
        }
        let copies = inherited(blocks, "auth_request_set");
        let has_request = active(blocks, "auth_request").is_some();
        lines.extend(without_kept_fields(blocks));
        let has_usual_port = blocks.get(1).is_none_or(|server| own(server, "listen").iter().all(|d| is_usual_port(d)));
        for field in fields {
            let (name, text) = (field.argument(0), field.argument(1));
            if let Some((from, _)) = copies.iter().filter_map(|set| copied(set, blocks)).find(|(_, to)| *to == name) {
                // `forward_auth` sends it. Without that it is empty, and not the client's.
                let kept = kept_field(&from, blocks);
                if !has_request {
                    lines.push(format!("header_up -{name}"));
                } else if kept != name {
                    lines.push(format!("header_up {name} {{header.{kept}}}"));
                }
                continue;
            }
            match (name.to_ascii_lowercase().as_str(), text) {
                // Such a field Host has a port, which `$host` has not.
                ("host", "$host") if !has_usual_port => lines.push("header_up Host {host}".to_owned()),
                // After a trusted proxy the proxy sends that one's, and not those of the connection.
                ("x-forwarded-proto", "$scheme") if scope.has_real_ip => {
                    lines.push("header_up X-Forwarded-Proto {scheme}".to_owned());
                }
                ("x-forwarded-host", "$host") if scope.has_real_ip || !has_usual_port => {
                    lines.push("header_up X-Forwarded-Host {host}".to_owned());
                }
                ("x-forwarded-for", "$proxy_add_x_forwarded_for") if has_no_others => {
                    self.remark(out, field, "the field has the connection's address alone");
                    lines.push("header_up X-Forwarded-For {remote_host}".to_owned());
                }
                ("x-forwarded-proto", "$scheme") if has_no_others => {
                    lines.push("header_up X-Forwarded-Proto {scheme}".to_owned());
                }
                ("x-forwarded-host", "$host" | "$http_host") if has_no_others => {
                    lines.push("header_up X-Forwarded-Host {host}".to_owned());
                }
                // The proxy sends these by itself.
                ("host", "$host" | "$http_host")
                | ("content-length", "")
                | ("upgrade" | "connection", _)
                | ("x-forwarded-for", "$proxy_add_x_forwarded_for")
                | ("x-forwarded-proto", "$scheme")
                | ("x-forwarded-host", "$host" | "$http_host") => {}
                // With trusted proxies it appends the connection's address to the field of the last one.
                ("x-forwarded-for", "$remote_addr") if !has_no_others && !scope.has_real_ip => {}
                (_, "") => lines.push(format!("header_up -{name}")),
                // The client's own field.
                (lower, text)
                    if !has_no_others
                        && !lower.starts_with("x-forwarded-")
                        && text.strip_prefix("$http_").is_some_and(|of| of == lower.replace('-', "_")) => {}
                _ => lines.push(match self.expand(out, field, scope, text) {
                    Some(text) => format!("header_up {name} {}", quote(&text)),
                    // The client's own field would be taken for nginx's.
                    None => format!("header_up -{name}"),
                }),
            }
        }
    }
}

/// The line that hides the name of an upstream's software, as nginx does. `pass` is the prefix of the directives.
pub(super) fn own_server_field(pass: &str, blocks: &[&Directive]) -> Option<String> {
    let is_passed =
        inherited(blocks, &format!("{pass}_pass_header")).iter().any(|d| d.argument(0).eq_ignore_ascii_case("server"));
    (!is_passed).then(|| "header_down Server Causeway".to_owned())
}

const TWICE_REPLACED: &str =
    "it may also replace the result of an earlier line; nginx applies only the first that matches";

/// Whether a text that begins with one of these may begin with `from`, apart from values of variables at its start.
fn may_follow(earlier: &[&str], from: &str) -> bool {
    let constants = earlier.iter().map(|text| text.split(['$', '{', '\\']).next().unwrap_or_default());
    constants.filter(|text| !text.is_empty()).any(|text| from.starts_with(text) || text.starts_with(from))
}

/// Whether a `listen` is for a port that the field Host does not have.
fn is_usual_port(listen: &Directive) -> bool {
    let address = listen.argument(0);
    let port = address.rsplit(':').next().unwrap_or_default();
    matches!(port, "80" | "443") || !port.bytes().all(|b| b.is_ascii_digit())
}

/// The beginning of names of fields that only the server itself reads.
const KEPT_PREFIX: &str = "Causeway-Auth-";

/// The line that keeps from an upstream the fields that only the server itself reads, if it may have some. Another
/// location may have led here.
pub(super) fn without_kept_fields(blocks: &[&Directive]) -> Option<String> {
    let mut sets: Vec<&Directive> = blocks.iter().flat_map(|block| own(block, "auth_request_set")).collect();
    sets.extend(blocks.get(1).into_iter().flat_map(|server| within(server, "auth_request_set")));
    let mut fields: Vec<&Directive> = blocks.iter().flat_map(|block| own(block, "add_header")).collect();
    fields.extend(blocks.get(1).into_iter().flat_map(|server| within(server, "add_header")));
    let is_sent = |set: &&Directive| fields.iter().any(|field| field.argument(1) == set.argument(0));
    sets.iter().any(is_sent).then(|| format!("header_up -{KEPT_PREFIX}*"))
}

/// The directives of this name in a block, at all depths.
fn within<'a>(block: &'a Directive, name: &str) -> Vec<&'a Directive> {
    let mut found = own(block, name);
    found.extend(block.block().iter().flat_map(|inner| within(inner, name)));
    found
}

/// The request's field that keeps the value of a field of the upstream of `auth_request`: `forward_auth` copies each to
/// one only.
pub(super) fn kept_field(from: &str, blocks: &[&Directive]) -> String {
    let copies = inherited(blocks, "auth_request_set");
    let last = copies.iter().rev().filter_map(|set| copied(set, blocks)).find(|(other, _)| other == from);
    last.map_or_else(|| format!("{KEPT_PREFIX}{from}"), |(_, to)| to.to_owned())
}

/// Returns the names of the response's field and of the request's field, if a variable of `auth_request_set` only
/// copies one to the other.
pub(super) fn copied<'a>(set: &'a Directive, blocks: &[&'a Directive]) -> Option<(String, &'a str)> {
    let from = set.argument(1).strip_prefix("$upstream_http_")?.replace('_', "-");
    let fields = inherited(blocks, "proxy_set_header");
    let field = fields.iter().find(|field| field.argument(1) == set.argument(0))?;
    Some((from, field.argument(0)))
}
