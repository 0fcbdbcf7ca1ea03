//! The content of a location: Fields, access, and files or an upstream.

use super::cache::CACHE_STATUS;
use super::rules::chooses_anew;
use super::{Translator, inherited, own, value};
use crate::location::{Location, Pattern};
use crate::parse::Directive;
use crate::variables::{Names, variables};
use crate::write::{block, quote};

/// Statuses to whose responses `add_header` without `always` applies (nginx's documentation of ngx_http_headers_module).
const ADDED: &str = "200 201 204 206 301 302 303 304 307 308";

/// Keeps lines in their order where a Caddyfile has another one: there `handle` comes before `route` and `error`, so an access rule would
/// come too late, and `try_files` before `route`, which contains the rules of `rewrite` and `if`; `cache` before all of them; and `basic_auth` before `error`.
pub(super) fn in_written_order(lines: Vec<String>) -> Vec<String> {
    let is_early = |line: &String| ["handle ", "route ", "cache "].iter().any(|name| line.starts_with(name));
    let is_password = |line: &String| line.starts_with("basic_auth ") || line.starts_with("forward_auth ");
    let is_denied_late = lines.iter().any(is_password) && lines.iter().any(|line| line.starts_with("error "));
    if !lines.iter().any(is_early) && !is_denied_late {
        return lines;
    }
    let mut out = Vec::new();
    block(&mut out, "route", lines);
    out
}

impl<'a> Translator<'a> {
    /// The lines of a location; of the server itself without one.
    pub(super) fn content(&mut self, location: &Location<'a>, all: &[Location<'a>], names: &Names) -> Vec<String> {
        let mut out = Vec::new();
        let blocks = &*location.blocks;
        let own_block = location.own();
        let in_location = blocks.len() > 2;
        let mut names = names.clone();
        if in_location {
            for directive in own_block.block().iter().filter(|d| d.name != "location") {
                self.outside(&mut out, directive, super::tables::READ);
            }
            for page in own(own_block, "error_page") {
                self.note(&mut out, page, "only error pages of a server are carried over");
            }
        }
        if in_location {
            for directive in own_block.block() {
                let of_server = matches!(
                    &*directive.name,
                    "gzip"
                        | "gzip_types"
                        | "gzip_min_length"
                        | "set_real_ip_from"
                        | "real_ip_header"
                        | "real_ip_recursive"
                );
                if of_server || directive.name == "access_log" && directive.argument(0) != "off" {
                    self.note(&mut out, directive, "carried over only from a server or 'http'");
                }
            }
        }
        let deeper = &blocks[2.min(blocks.len())..];
        self.root(&mut out, deeper, &names);
        if let Some(alias) = own(own_block, "alias").first() {
            self.alias(&mut out, alias, location, &names);
        }
        self.fields(&mut out, blocks, &names);
        if deeper.iter().any(|block| !own(block, "access_log").is_empty()) && value(deeper, "access_log") == Some("off")
        {
            out.push("log_skip".to_owned());
        }
        if let Some(size) = value(blocks, "client_max_body_size").filter(|size| *size != "0") {
            block(&mut out, "request_body", vec![format!("max_size {}", self::size(size))]);
        }
        if in_location && !own(own_block, "internal").is_empty() {
            let name = self.fresh("from_outside");
            out.push(format!("@{name} `{{path}} == {{orig_path}}`"));
            out.push(format!("error @{name} 404"));
        }
        // Rules that choose a location anew stand before all locations.
        if in_location && !own_block.block().iter().any(chooses_anew) {
            let rules = self.rules(own_block, &mut names);
            if !rules.is_empty() {
                block(&mut out, "route", rules);
            }
        }
        if let Some(answer) = own(own_block, "return").first().filter(|_| in_location) {
            if let Some(lines) = self.response(&mut out, answer, &names, "*") {
                let kind = value(blocks, "default_type").unwrap_or("text/plain");
                let typed =
                    inherited(blocks, "add_header").iter().any(|d| d.argument(0).eq_ignore_ascii_case("content-type"));
                if lines[0].starts_with("respond") && answer.arguments.len() > 1 && !typed {
                    out.push(format!("header Content-Type {}", quote(kind)));
                }
                out.extend(lines);
            }
            return out;
        }
        self.access(&mut out, blocks);
        let mut content = Vec::new();
        self.source(&mut content, location, &names);
        match own(own_block, "try_files").first() {
            Some(files) => self.try_files(&mut out, files, location, all, &names, content),
            None => out.extend(content),
        }
        in_written_order(out)
    }

    fn alias(&mut self, out: &mut Vec<String>, alias: &Directive, location: &Location<'_>, names: &Names) {
        let target = alias.argument(0);
        match &location.pattern {
            Pattern::Prefix { prefix, .. } => {
                out.push(format!("uri strip_prefix {}", quote(prefix.trim_end_matches('/'))));
                match self.expand(out, alias, names, target) {
                    Some(target) => out.push(format!("root * {}", quote(&target))),
                    None => out.push("root * /nonexistent".to_owned()),
                }
            }
            Pattern::Exact(_) => {
                let (folder, file) = target.rsplit_once('/').unwrap_or(("", target));
                out.push(format!("root * {}", quote(&format!("{folder}/"))));
                out.push(format!("rewrite * {}", quote(&format!("/{file}"))));
            }
            _ => match names.expand(target) {
                Ok(target) if !names.capture.is_empty() && target.contains(&format!("{{re.{}.", names.capture)) => {
                    out.push("root * /".to_owned());
                    out.push(format!("rewrite * {}", quote(&target)));
                }
                _ => self.note(out, alias, "in a location with an expression its path has to contain a group"),
            },
        }
    }

    fn fields(&mut self, out: &mut Vec<String>, blocks: &[&Directive], names: &Names) {
        let mut sometimes = Vec::new();
        for field in inherited(blocks, "add_header") {
            let Some(text) = self.expand(out, field, names, field.argument(1)) else { continue };
            if text.is_empty() {
                continue;
            }
            let always = field.argument(2) == "always";
            let kind = field.argument(0).eq_ignore_ascii_case("content-type");
            let line = format!("{}{} {}", if kind { "" } else { "+" }, field.argument(0), quote(&text));
            let has_cache = super::cache::stores_here(blocks);
            if variables(field.argument(1)).contains(&CACHE_STATUS) && !has_cache {
                // nginx adds no empty field.
                continue;
            }
            if always && has_cache {
                // After the cache, for which only the upstream's fields count.
                block(out, "header", vec![line, "defer".to_owned()]);
                continue;
            }
            if always {
                out.push(format!("header {line}"));
            } else {
                sometimes.push(line);
            }
        }
        if let Some(expires) = inherited(blocks, "expires").last() {
            let control = match expires.argument(0) {
                "off" => None,
                "epoch" | "-1" => Some("no-cache".to_owned()),
                "max" => Some("max-age=315360000".to_owned()),
                time => match seconds(time) {
                    Some(seconds) => Some(format!("max-age={seconds}")),
                    None => {
                        self.note(out, expires, "only a duration, 'max', 'epoch' and 'off' are carried over");
                        None
                    }
                },
            };
            sometimes.extend(control.map(|control| format!("+Cache-Control {control}")));
        }
        if !sometimes.is_empty() {
            sometimes.push(format!("match status {ADDED}"));
            // The field is added when the response's status is known.
            block(out, "header", sometimes);
        }
    }

    pub(super) fn access(&mut self, out: &mut Vec<String>, blocks: &[&Directive]) {
        for limit in inherited(blocks, "limit_req") {
            self.limit(out, limit, blocks);
        }
        let level = blocks.iter().rev().find(|b| b.block().iter().any(|d| matches!(&*d.name, "allow" | "deny")));
        let rules = level.map(|level| level.block()).unwrap_or_default();
        if let Some(satisfy) = inherited(blocks, "satisfy").last().copied().filter(|d| d.argument(0) == "any")
            && self.either(out, satisfy, rules, blocks)
        {
            return;
        }
        let matcher = self.address_matcher();
        let mut allowed: Vec<&str> = Vec::new();
        for rule in rules {
            match (&*rule.name, rule.argument(0)) {
                ("allow" | "deny", "unix:") => self.note(out, rule, "no matcher for peers at Unix sockets"),
                ("allow", "all") => break,
                ("allow", range) => allowed.push(range),
                ("deny", range) => {
                    let name = self.fresh("denied");
                    let mut lines = Vec::new();
                    if range != "all" {
                        lines.push(format!("{matcher} {range}"));
                    }
                    if !allowed.is_empty() {
                        lines.push(format!("not {matcher} {}", allowed.join(" ")));
                    }
                    if lines.is_empty() {
                        out.push("error 403".to_owned());
                        break;
                    }
                    block(out, &format!("@{name}"), lines);
                    out.push(format!("error @{name} 403"));
                    if range == "all" {
                        break;
                    }
                }
                _ => {}
            }
        }
        for limit in blocks.last().map(|block| own(block, "limit_except")).unwrap_or_default() {
            self.other_methods(out, limit);
        }
        let realm = inherited(blocks, "auth_basic").last().copied();
        if let Some(realm) = realm.filter(|realm| realm.argument(0) != "off") {
            self.passwords(out, realm, blocks, "");
        }
        if let Some(request) = inherited(blocks, "auth_request").last().filter(|r| r.argument(0) != "off") {
            self.forward_auth(out, request, blocks);
        }
    }

    /// `satisfy any`: the addresses that `allow` names need no password. Returns whether the rules have this form; all of them apply otherwise.
    fn either(
        &mut self,
        out: &mut Vec<String>,
        satisfy: &Directive,
        rules: &[Directive],
        blocks: &[&Directive],
    ) -> bool {
        let rules: Vec<(&str, &str)> = rules
            .iter()
            .filter(|rule| matches!(&*rule.name, "allow" | "deny"))
            .map(|rule| (&*rule.name, rule.argument(0)))
            .collect();
        let realm = inherited(blocks, "auth_basic").last().copied().filter(|realm| realm.argument(0) != "off");
        let has_request = inherited(blocks, "auth_request").last().is_some_and(|request| request.argument(0) != "off");
        let Some(realm) = realm.filter(|_| !has_request) else {
            // With one kind of rules both values of `satisfy` are equal.
            if has_request && !rules.is_empty() {
                self.note(out, satisfy, "only with addresses and a password; all rules apply");
            }
            return false;
        };
        let Some((("deny", "all"), allowed)) = rules.split_last() else {
            if !rules.is_empty() {
                self.note(out, satisfy, "only with lines 'allow' and a last 'deny all'; all rules apply");
            }
            return false;
        };
        if allowed.is_empty()
            || !allowed.iter().all(|(name, range)| *name == "allow" && !matches!(*range, "all" | "unix:"))
        {
            self.note(out, satisfy, "only with lines 'allow' and a last 'deny all'; all rules apply");
            return false;
        }
        let name = self.fresh("outside");
        let ranges: Vec<&str> = allowed.iter().map(|(_, range)| *range).collect();
        out.push(format!("@{name} not {} {}", self.address_matcher(), ranges.join(" ")));
        self.passwords(out, realm, blocks, &format!("@{name} "));
        for limit in blocks.last().map(|block| own(block, "limit_except")).unwrap_or_default() {
            self.other_methods(out, limit);
        }
        true
    }

    /// Refuses the methods that `limit_except` does not name, but for the addresses that it allows.
    fn other_methods(&mut self, out: &mut Vec<String>, limit: &Directive) {
        let mut methods: Vec<&str> = limit.arguments.iter().map(String::as_str).collect();
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        let mut lines = vec![format!("not method {}", methods.join(" "))];
        let rules: Vec<_> = limit.block().iter().filter(|rule| rule.name != "#").collect();
        let is_plain = |rule: &&&Directive| {
            matches!((&*rule.name, rule.argument(0)), ("deny", "all"))
                || rule.name == "allow" && !matches!(rule.argument(0), "all" | "unix:")
        };
        if rules.iter().all(|rule| is_plain(&rule)) {
            let allowed: Vec<_> = rules.iter().filter(|d| d.name == "allow").map(|d| d.argument(0)).collect();
            if !allowed.is_empty() {
                lines.push(format!("not {} {}", self.address_matcher(), allowed.join(" ")));
            }
        } else {
            self.note(
                out,
                limit,
                "only addresses with 'allow' and 'deny all' are carried over; the other methods are refused",
            );
        }
        let name = self.fresh("other_methods");
        block(out, &format!("@{name}"), lines);
        out.push(format!("error @{name} 403"));
    }

    fn limit(&mut self, out: &mut Vec<String>, limit: &Directive, blocks: &[&Directive]) {
        let word = |d: &Directive, key: &str| d.arguments.iter().find_map(|w| w.strip_prefix(key).map(str::to_owned));
        let name = word(limit, "zone=").unwrap_or_default();
        let zone = self.shared.zones.get(name.as_str()).copied();
        let rate = zone.and_then(|zone| word(zone, "rate="));
        let rate = rate.as_deref().and_then(|rate| {
            let per_second = rate.strip_suffix("r/s").map(|n| (n, 1000));
            let (number, window) = per_second.or_else(|| rate.strip_suffix("r/m").map(|n| (n, 60_000)))?;
            Some((number.parse::<u64>().ok().filter(|n| *n > 0)?, window))
        });
        let (Some(zone), Some((number, window))) = (zone, rate) else {
            return self.note(out, limit, "found no 'limit_req_zone' of this name with a rate");
        };
        let Some(key) = self.expand(out, zone, &self.shared_names(), zone.argument(0)) else { return };
        let burst = word(limit, "burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
        // A leaky bucket lets a burst through and then the rate: as many in the time that the bucket takes to empty.
        let window = window * (burst + 1) / number;
        match inherited(blocks, "limit_req_status").last() {
            None => out.push("# The status beyond the limit is 429; nginx's is 503.".to_owned()),
            Some(status) if status.argument(0) == "429" => {}
            Some(status) => self.note(out, status, "the status beyond the limit is 429"),
        }
        let mut lines = vec![format!("key {key}"), format!("window {window}ms"), format!("events {}", burst + 1)];
        // nginx counts no request whose key is empty; these variables never are.
        let always = ["$binary_remote_addr", "$remote_addr", "$host", "$server_name", "$uri", "$request_uri"];
        if matches!(variables(zone.argument(0))[..], [_]) && !always.contains(&zone.argument(0)) {
            block(&mut lines, "match", vec![format!("not vars {key} \"\"")]);
        }
        let mut zone = Vec::new();
        block(&mut zone, &format!("zone {name}"), lines);
        block(out, "rate_limit", zone);
    }

    /// Requires a password of the requests that `matcher` selects: empty for all, else with a space after it.
    fn passwords(&mut self, out: &mut Vec<String>, realm: &Directive, blocks: &[&Directive], matcher: &str) {
        let Some(list) = inherited(blocks, "auth_basic_user_file").last().copied() else {
            out.push(format!("error {matcher}403"));
            return self.note(out, realm, "there is no 'auth_basic_user_file'; all requests are refused");
        };
        let mut accounts = Vec::new();
        match self.files.read(list.argument(0)) {
            Err(reason) => self.note(out, list, &reason),
            Ok(text) => {
                for (user, hash) in text.lines().filter_map(|line| line.trim().split_once(':')) {
                    if user.starts_with('#') {
                        continue;
                    }
                    let hash = hash.split(':').next().unwrap_or_default();
                    if ["$2y$", "$2a$", "$2b$"].iter().any(|kind| hash.starts_with(kind)) {
                        accounts.push(format!("{} {hash}", quote(user)));
                    } else {
                        let reason = format!(
                            "the password of '{user}' is not hashed with bcrypt; `causeway hash-password` makes such a hash"
                        );
                        self.note(out, list, &reason);
                    }
                }
            }
        }
        if accounts.is_empty() {
            // Never open because a list could not be read.
            out.push("# Without an account all requests are refused.".to_owned());
            out.push(format!("error {matcher}401"));
        } else {
            block(out, &format!("basic_auth {matcher}bcrypt {}", quote(realm.argument(0))), accounts);
        }
    }

    fn forward_auth(&mut self, out: &mut Vec<String>, request: &Directive, blocks: &[&Directive]) {
        let server = blocks.get(1).map(|server| server.block()).unwrap_or_default();
        let path = request.argument(0);
        let location = server.iter().find(|d| d.name == "location" && d.arguments.last().is_some_and(|a| a == path));
        let pass = location.and_then(|location| own(location, "proxy_pass").first().copied());
        let target = pass.and_then(|pass| pass.argument(0).strip_prefix("http://")).filter(|url| !url.contains('$'));
        let Some(target) = target else {
            out.push("error 403".to_owned());
            return self.note(
                out,
                request,
                "found no location of this path with 'proxy_pass'; all requests are refused",
            );
        };
        let (host, uri) = target.find('/').map_or((target, path), |at| target.split_at(at));
        let host = self.hosts(host).join(" ");
        let mut lines = vec![format!("uri {uri}")];
        for set in inherited(blocks, "auth_request_set") {
            match copied(set, blocks) {
                Some((from, to)) if from.eq_ignore_ascii_case(to) => lines.push(format!("copy_headers {to}")),
                Some((from, to)) => lines.push(format!("copy_headers {from}>{to}")),
                None => self.note(
                    out,
                    set,
                    "only a field of the response, '$upstream_http_…', that 'proxy_set_header' sends unchanged is carried over",
                ),
            }
        }
        block(out, &format!("forward_auth {host}"), lines);
    }

    fn try_files(
        &mut self,
        out: &mut Vec<String>,
        files: &Directive,
        location: &Location<'a>,
        all: &[Location<'a>],
        names: &Names,
        content: Vec<String>,
    ) {
        let Some((last, candidates)) = files.arguments.split_last() else { return };
        let Some(candidates) = self.candidates(out, files, candidates, names) else { return };
        if last.starts_with(['@', '=']) {
            let missing = self.missing(out, &candidates);
            let mut found = Vec::new();
            if candidates.split(' ').any(|pattern| pattern != "{path}" && pattern != "{path}/") {
                found.push(format!("@found_{missing} file {candidates}"));
                found.push(format!("rewrite @found_{missing} {{file_match.relative}}"));
            }
            found.extend(content);
            let otherwise = match last.strip_prefix('@') {
                None => vec![format!("error {}", &last[1..])],
                Some(name) => {
                    let named = all.iter().find(|l| l.pattern == Pattern::Named(name.to_owned()));
                    let Some(named) = named else {
                        out.push("error 500".to_owned());
                        return self.note(out, files, "found no location of this name");
                    };
                    self.content(named, all, names)
                }
            };
            block(out, &format!("handle @{missing}"), otherwise);
            block(out, "handle", in_written_order(found));
            return;
        }
        if !elsewhere(last, location, all)
            && let Some(last) = self.expand(out, files, names, last)
        {
            out.push(format!("try_files {candidates} {}", quote(&last.replace("{?query}", "?{query}"))));
        }
        out.extend(content);
    }

    /// Defines the matcher of requests for which none of these files exists.
    pub(super) fn missing(&mut self, out: &mut Vec<String>, candidates: &str) -> String {
        let missing = self.fresh("missing");
        if candidates.split(' ').any(|pattern| pattern == "{path}/") {
            // The root is a folder that exists, but the matcher `file` finds no folder for `/`.
            let lines = vec!["not path /".to_owned(), format!("not file {candidates}")];
            block(out, &format!("@{missing}"), lines);
        } else {
            out.push(format!("@{missing} not file {candidates}"));
        }
        missing
    }

    /// The patterns for files that `try_files` looks for.
    pub(super) fn candidates(
        &mut self,
        out: &mut Vec<String>,
        files: &Directive,
        candidates: &[String],
        names: &Names,
    ) -> Option<String> {
        let mut patterns = Vec::new();
        for candidate in candidates {
            patterns.push(quote(&self.expand(out, files, names, candidate)?));
        }
        Some(patterns.join(" "))
    }

    /// The handler that makes the response.
    fn source(&mut self, out: &mut Vec<String>, location: &Location<'a>, names: &Names) {
        let own_block = location.own();
        let blocks = &*location.blocks;
        if let Some(pass) = own(own_block, "proxy_pass").first() {
            return self.proxy(out, pass, location, names);
        }
        if let Some(pass) = own(own_block, "grpc_pass").first() {
            let address = pass.argument(0);
            let (scheme, address) = address.split_once("://").unwrap_or(("grpc", address));
            let scheme = if scheme == "grpcs" { "https" } else { "h2c" };
            let hosts: Vec<String> = self.hosts(address).iter().map(|host| format!("{scheme}://{host}")).collect();
            out.push(format!("reverse_proxy {}", hosts.join(" ")));
            return;
        }
        if let Some(pass) = own(own_block, "fastcgi_pass").first() {
            let hidden = self.cache(out, "fastcgi", location, names);
            return self.fastcgi(out, pass, blocks, names, hidden);
        }
        if !own(own_block, "stub_status").is_empty() {
            out.push("metrics".to_owned());
            return;
        }
        if ["uwsgi_pass", "scgi_pass"].iter().any(|name| !own(own_block, name).is_empty()) {
            out.push("error 502".to_owned());
            return;
        }
        if value(blocks, "root").is_none() && own(own_block, "alias").is_empty() {
            out.push("# There is no root; nginx serves its own folder 'html' here.".to_owned());
            out.push("error 404".to_owned());
            return;
        }
        let mut lines = Vec::new();
        if let Some(index) = inherited(blocks, "index").last() {
            lines.push(format!("index {}", index.arguments.join(" ")));
        } else {
            lines.push("index index.html".to_owned());
        }
        if value(blocks, "autoindex") == Some("on") {
            lines.push("browse".to_owned());
        }
        if value(blocks, "gzip_static") == Some("on") {
            lines.push("precompressed gzip".to_owned());
        }
        block(out, "file_server", lines);
    }

    /// The addresses of an upstream, or the one address.
    fn hosts(&self, host: &str) -> Vec<String> {
        match self.shared.upstreams.get(host) {
            None => vec![address(host)],
            Some(upstream) => own(upstream, "server")
                .iter()
                .filter(|d| !d.arguments.iter().any(|w| w == "down"))
                .map(|d| address(d.argument(0)))
                .collect(),
        }
    }

    fn proxy(&mut self, out: &mut Vec<String>, pass: &Directive, location: &Location<'a>, names: &Names) {
        let Some((scheme @ ("http" | "https"), rest)) = pass.argument(0).split_once("://") else {
            out.push("error 502".to_owned());
            return self.note(out, pass, "found no http:// or https:// with an address; requests fail with 502");
        };
        let (host, uri) = match rest.strip_prefix("unix:") {
            Some(path) => {
                let (path, uri) = path.split_once(':').map_or((path, None), |(path, uri)| (path, Some(uri)));
                (format!("unix:{path}"), uri)
            }
            None => rest.find('/').map_or((rest.to_owned(), None), |at| (rest[..at].to_owned(), Some(&rest[at..]))),
        };
        if host.contains('$') {
            out.push("error 502".to_owned());
            return self.note(
                out,
                pass,
                "an address with variables; write the upstream's name. Requests fail with 502",
            );
        }
        let mut names = names.clone();
        names.proxy_host = if host.starts_with("unix:") { "localhost".to_owned() } else { host.clone() };
        let hidden = self.cache(out, "proxy", location, &names);
        if let Some(uri) = uri {
            if uri.contains('$') {
                if let Some(uri) = self.expand(out, pass, &names, uri) {
                    out.push(format!("rewrite * {}", quote(&uri)));
                }
            } else {
                let prefix = location.prefix();
                match prefix.strip_suffix('/') {
                    Some("") if uri == "/" => {}
                    Some(stem) if uri == "/" => out.push(format!("uri strip_prefix {stem}")),
                    _ => out.push(format!(
                        "uri path_regexp {} {}",
                        quote(&format!("^{}", regex::escape(prefix))),
                        quote(uri)
                    )),
                }
            }
        }
        let mut lines = self.balance(out, &host, &location.blocks);
        self.fields_up(out, &mut lines, &location.blocks, &names);
        lines.extend(hidden);
        self.cookies(out, &mut lines, &location.blocks, &names);
        self.intercepted(&mut lines, "proxy", &location.blocks);
        if value(&location.blocks, "proxy_buffering") == Some("off") {
            lines.push("flush_interval -1".to_owned());
        }
        for redirect in own(location.own(), "proxy_redirect") {
            match &*redirect.arguments {
                [one] if one == "off" || one == "default" => {}
                [from, to] if !from.starts_with('~') => {
                    let to = self.expand(out, redirect, &names, to);
                    let from = format!("^{}", regex::escape(from));
                    lines.extend(to.map(|to| format!("header_down Location {} {}", quote(&from), quote(&to))));
                }
                _ => self.note(out, redirect, "only two texts, 'off' and 'default' are carried over"),
            }
        }
        let mut transport = Vec::new();
        if scheme == "https" {
            transport.push("tls".to_owned());
            if value(&location.blocks, "proxy_ssl_verify") != Some("on") {
                transport.push(
                    "# nginx does not verify the upstream's certificate by default; better remove this line."
                        .to_owned(),
                );
                transport.push("tls_insecure_skip_verify".to_owned());
            }
            if let Some(name) = inherited(&location.blocks, "proxy_ssl_name").last()
                && let Some(text) = self.expand(out, name, &names, name.argument(0))
            {
                transport.push(format!("tls_server_name {}", quote(&text)));
            }
            if let Some(file) = value(&location.blocks, "proxy_ssl_trusted_certificate") {
                transport.push(format!("tls_trust_pool file {}", quote(file)));
            }
            if let (Some(certificate), Some(key)) =
                (value(&location.blocks, "proxy_ssl_certificate"), value(&location.blocks, "proxy_ssl_certificate_key"))
            {
                transport.push(format!("tls_client_auth {} {}", quote(certificate), quote(key)));
            }
        }
        for (directive, option) in [
            ("proxy_connect_timeout", "dial_timeout"),
            ("proxy_read_timeout", "read_timeout"),
            ("proxy_send_timeout", "write_timeout"),
        ] {
            if let Some(time) = value(&location.blocks, directive).and_then(seconds) {
                transport.push(format!("{option} {time}s"));
            }
        }
        if let Some(idle) = self.shared.upstreams.get(host.as_str()).and_then(|u| own(u, "keepalive").first().copied())
        {
            transport.push(format!("keepalive_idle_conns {}", idle.argument(0)));
        }
        if !transport.is_empty() {
            block(&mut lines, "transport http", transport);
        }
        let hosts = self.hosts(&host);
        let hosts: Vec<String> = if scheme == "https" && !host.starts_with("unix:") {
            hosts.into_iter().map(|host| if host.contains(':') { host } else { format!("{host}:443") }).collect()
        } else {
            hosts
        };
        if lines.is_empty() {
            out.push(format!("reverse_proxy {}", hosts.join(" ")));
        } else {
            block(out, &format!("reverse_proxy {}", hosts.join(" ")), lines);
        }
    }

    fn balance(&mut self, out: &mut Vec<String>, host: &str, blocks: &[&Directive]) -> Vec<String> {
        let Some(upstream) = self.shared.upstreams.get(host).copied() else { return Vec::new() };
        let word = |d: &Directive, key: &str| d.arguments.iter().find_map(|w| w.strip_prefix(key).map(str::to_owned));
        let mut servers = own(upstream, "server");
        servers.retain(|d| !d.arguments.iter().any(|w| w == "down"));
        let weights: Vec<String> =
            servers.iter().map(|d| word(d, "weight=").unwrap_or_else(|| "1".to_owned())).collect();
        let backups = servers.iter().filter(|d| d.arguments.iter().any(|w| w == "backup")).count();
        let mut policy = "round_robin".to_owned();
        for directive in upstream.block() {
            match &*directive.name {
                "server" | "keepalive" | "#" => {}
                "least_conn" => policy = "least_conn".to_owned(),
                "ip_hash" => policy = "ip_hash".to_owned(),
                "random" => policy = "random".to_owned(),
                "hash" if directive.argument(0) == "$request_uri" => policy = "uri_hash".to_owned(),
                "hash" if directive.argument(0) == "$remote_addr" => policy = "client_ip_hash".to_owned(),
                "zone" | "keepalive_timeout" | "keepalive_requests" => self.tuning.push(directive.clone()),
                _ => self.note(out, directive, "no equivalent in an upstream"),
            }
        }
        if policy == "round_robin" && weights.iter().any(|weight| weight != "1") {
            policy = format!("weighted_round_robin {}", weights.join(" "));
        }
        if backups > 0 {
            if backups + 1 == servers.len() && !servers[0].arguments.iter().any(|w| w == "backup") {
                policy = "first".to_owned();
            } else {
                for server in servers.iter().filter(|d| d.arguments.iter().any(|w| w == "backup")) {
                    self.note(
                        out,
                        server,
                        "the upstream takes part as the others do; only one server with its backups is carried over",
                    );
                }
            }
        }
        if servers.len() < 2 {
            return Vec::new();
        }
        let fails = servers.iter().find_map(|d| word(d, "max_fails=")).unwrap_or_else(|| "1".to_owned());
        let time = servers.iter().find_map(|d| word(d, "fail_timeout=")).and_then(|time| seconds(&time)).unwrap_or(10);
        let mut lines = vec![format!("lb_policy {policy}")];
        self.next_upstream(out, &mut lines, servers.len(), blocks);
        if fails != "0" {
            lines.extend([format!("max_fails {fails}"), format!("fail_duration {time}s")]);
        }
        lines
    }

    /// Writes the retries of an upstream with several servers.
    fn next_upstream(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, servers: usize, blocks: &[&Directive]) {
        let words = inherited(blocks, "proxy_next_upstream").last().copied();
        let has = |word: &str| words.is_some_and(|words| words.arguments.iter().any(|other| other == word));
        if has("off") {
            return;
        }
        let tries = value(blocks, "proxy_next_upstream_tries").and_then(|tries| tries.parse::<usize>().ok());
        let tries = tries.filter(|tries| *tries > 0).map_or(servers, |tries| tries.min(servers));
        if tries < 2 {
            return;
        }
        lines.push(format!("lb_retries {}", tries - 1));
        if let Some(limit) = inherited(blocks, "proxy_next_upstream_timeout").last().filter(|d| d.argument(0) != "0") {
            match seconds(limit.argument(0)) {
                Some(time) => lines.push(format!("lb_try_duration {time}s")),
                None => self.note(out, limit, "found no duration"),
            }
        }
        let Some(words) = words else { return };
        let codes: Vec<&str> = words.arguments.iter().filter_map(|word| word.strip_prefix("http_")).collect();
        let is_any_method = has("non_idempotent");
        if codes.is_empty() && !is_any_method {
            return;
        }
        let mut conditions = vec!["{rp.is_transport_error}".to_owned()];
        if !codes.is_empty() {
            conditions.push(format!("{{rp.status_code}} in [{}]", codes.join(", ")));
            self.remark(
                out,
                words,
                "if the last server responds so too, the client gets the status without its content",
            );
        }
        for condition in conditions {
            let methods = if is_any_method { "" } else { " && !method('POST', 'LOCK', 'PATCH')" };
            block(lines, "lb_retry_match", vec![format!("expression `{condition}{methods}`")]);
        }
    }

    /// Lets `handle_errors` answer instead of responses whose status has an `error_page`.
    fn intercepted(&mut self, lines: &mut Vec<String>, pass: &str, blocks: &[&Directive]) {
        if value(blocks, &format!("{pass}_intercept_errors")) != Some("on") {
            return;
        }
        // A location's own pages, which are not carried over, replace those of its server.
        let is_of_server = blocks[2.min(blocks.len())..].iter().all(|block| own(block, "error_page").is_empty());
        let pages = if is_of_server { inherited(blocks, "error_page") } else { Vec::new() };
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
    fn cookies(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, blocks: &[&Directive], names: &Names) {
        for (name, attribute) in [("proxy_cookie_path", "path"), ("proxy_cookie_domain", "domain")] {
            for cookie in inherited(blocks, name) {
                let (from, to) = match &*cookie.arguments {
                    [one] if one == "off" => continue,
                    [from, to] if !from.starts_with('~') && !from.contains('$') => (from, to),
                    _ => {
                        self.note(out, cookie, "only two texts are carried over");
                        continue;
                    }
                };
                let Some(to) = self.expand(out, cookie, names, to) else { continue };
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

    fn fields_up(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, blocks: &[&Directive], names: &Names) {
        let fields = inherited(blocks, "proxy_set_header");
        if !fields.iter().any(|d| d.argument(0).eq_ignore_ascii_case("host")) {
            lines.push(format!("header_up Host {}", names.proxy_host));
        }
        let copies = inherited(blocks, "auth_request_set");
        for field in fields {
            let (name, text) = (field.argument(0), field.argument(1));
            // `forward_auth` sends these.
            if copies.iter().any(|set| copied(set, blocks).is_some_and(|(_, to)| to == name)) {
                continue;
            }
            match (name.to_ascii_lowercase().as_str(), text) {
                // The proxy sends these by itself.
                ("host", "$host" | "$http_host" | "$host:$server_port")
                | ("upgrade" | "connection", _)
                | ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr")
                | ("x-forwarded-proto", "$scheme")
                | ("x-forwarded-host", "$host" | "$http_host") => {}
                (_, "") => lines.push(format!("header_up -{name}")),
                _ => {
                    if let Some(text) = self.expand(out, field, names, text) {
                        lines.push(format!("header_up {name} {}", quote(&text)));
                    }
                }
            }
        }
    }

    /// Writes the upstream, with the lines that hide its fields.
    fn fastcgi(
        &mut self,
        out: &mut Vec<String>,
        pass: &Directive,
        blocks: &[&Directive],
        names: &Names,
        hidden: Vec<String>,
    ) {
        let mut lines = Vec::new();
        if let Some(root) = value(blocks, "root").and_then(|root| names.expand(root).ok()) {
            lines.push(format!("root {}", quote(&root)));
        }
        lines.push("split .php".to_owned());
        for parameter in inherited(blocks, "fastcgi_param") {
            let (name, text) = (parameter.argument(0), parameter.argument(1));
            let standard = [
                "SCRIPT_FILENAME",
                "SCRIPT_NAME",
                "QUERY_STRING",
                "REQUEST_METHOD",
                "CONTENT_TYPE",
                "CONTENT_LENGTH",
                "REQUEST_URI",
                "DOCUMENT_URI",
                "DOCUMENT_ROOT",
                "SERVER_PROTOCOL",
                "REQUEST_SCHEME",
                "HTTPS",
                "GATEWAY_INTERFACE",
                "SERVER_SOFTWARE",
                "REMOTE_ADDR",
                "REMOTE_PORT",
                "SERVER_ADDR",
                "SERVER_PORT",
                "SERVER_NAME",
                "REDIRECT_STATUS",
                "PATH_INFO",
                "PATH_TRANSLATED",
                "REMOTE_USER",
            ];
            if standard.contains(&name) {
                continue;
            }
            if let Some(text) = self.expand(out, parameter, names, text) {
                lines.push(format!("env {name} {}", if text.is_empty() { "\"\"".to_owned() } else { quote(&text) }));
            }
        }
        for (directive, option) in [
            ("fastcgi_connect_timeout", "dial_timeout"),
            ("fastcgi_read_timeout", "read_timeout"),
            ("fastcgi_send_timeout", "write_timeout"),
        ] {
            if let Some(time) = value(blocks, directive).and_then(seconds) {
                lines.push(format!("{option} {time}s"));
            }
        }
        let mut transport = hidden;
        self.intercepted(&mut transport, "fastcgi", blocks);
        block(&mut transport, "transport fastcgi", lines);
        let hosts = self.hosts(pass.argument(0));
        block(out, &format!("reverse_proxy {}", hosts.join(" ")), transport);
    }
}

/// Returns the names of the response's field and of the request's field, if a variable of `auth_request_set` only copies one to the other.
fn copied<'a>(set: &'a Directive, blocks: &[&'a Directive]) -> Option<(String, &'a str)> {
    let from = set.argument(1).strip_prefix("$upstream_http_")?.replace('_', "-");
    let fields = inherited(blocks, "proxy_set_header");
    let field = fields.iter().find(|field| field.argument(1) == set.argument(0))?;
    Some((from, field.argument(0)))
}

/// Whether the last word of `try_files` is for another location, or for one that only a request decides.
pub(super) fn elsewhere(last: &str, location: &Location<'_>, all: &[Location<'_>]) -> bool {
    let path = last.split('?').next().unwrap_or_default();
    let path = path.strip_suffix("$is_args$args").unwrap_or(path);
    if path.contains('$') {
        return true;
    }
    let chosen = all.iter().find(|l| l.takes(path));
    chosen.is_none_or(|chosen| chosen.pattern != location.pattern)
}

/// nginx's form of an address in ours.
fn address(host: &str) -> String {
    match host.strip_prefix("unix:") {
        Some(path) => format!("unix/{path}"),
        None if host.contains(':') && !host.ends_with(']') => host.to_owned(),
        None => format!("{host}:80"),
    }
}

/// A size of nginx, such as `10m`, in ours.
pub(super) fn size(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let unit = [('k', "KiB"), ('m', "MiB"), ('g', "GiB")].into_iter().find(|(unit, _)| text.ends_with(*unit));
    unit.map_or_else(|| text.clone(), |(unit, name)| format!("{}{name}", text.trim_end_matches(unit)))
}

/// The seconds of a duration such as `30d`, `1h30m` or `60`, at least one; `None` for other texts.
pub(super) fn seconds(text: &str) -> Option<u64> {
    if let Some(ms) = text.strip_suffix("ms") {
        return Some(ms.parse::<u64>().ok()?.div_ceil(1000));
    }
    let mut total = 0_u64;
    let mut number = String::new();
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            'w' => 7 * 86400,
            'M' => 30 * 86400,
            'y' => 365 * 86400,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    if !number.is_empty() {
        total = total.checked_add(number.parse().ok()?)?;
    }
    Some(total)
}
