//! The content of a location: Fields, access, and files or an upstream.

use super::cache::CACHE_STATUS;
use super::rules::chooses_anew;
use super::site::named;
use super::upstream::copied;
use super::{Translator, inherited, own, value};
use crate::location::{Location, Pattern};
use crate::parse::Directive;
use crate::variables::{Names, variables};
use crate::write::{block, quote};

/// Statuses to whose responses `add_header` without `always` applies (nginx's documentation of ngx_http_headers_module).
const ADDED: &str = "200 201 204 206 301 302 303 304 307 308";

/// Keeps lines in their order where a Caddyfile has another one: there `handle` comes before `route` and `error`, so an access rule would
/// come too late, and `try_files` before `route`, which contains the rules of `rewrite` and `if`. `cache` comes before all of them,
/// and `basic_auth` before `error`.
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
        let before_limits = out.len();
        self.other_methods(&mut out, own_block);
        let has_limits = out.len() > before_limits;
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
            if !has_limits {
                return out;
            }
            let mut ordered = Vec::new();
            block(&mut ordered, "route", out);
            return ordered;
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

    pub(super) fn fields(&mut self, out: &mut Vec<String>, blocks: &[&Directive], names: &Names) {
        let mut sometimes = Vec::new();
        for field in inherited(blocks, "add_header") {
            let Some(text) = self.expand(out, field, names, field.argument(1)) else { continue };
            // nginx adds no empty field.
            if text.is_empty() {
                continue;
            }
            let always = field.argument(2) == "always";
            let kind = field.argument(0).eq_ignore_ascii_case("content-type");
            let line = format!("{}{} {}", if kind { "" } else { "+" }, field.argument(0), quote(&text));
            let has_cache = super::cache::stores_here(blocks);
            if variables(field.argument(1)).contains(&CACHE_STATUS) && !has_cache {
                continue;
            }
            if !has_cache && self.may_be_empty(field.argument(1), names) {
                let name = self.fresh(&format!("has_{}", field.argument(0)));
                out.push(format!("@{name} not vars {} \"\"", quote(&text)));
                if always {
                    out.push(format!("header @{name} {line}"));
                } else {
                    block(out, &format!("header @{name}"), vec![line, format!("match status {ADDED}")]);
                }
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

    /// Whether a text is one variable that the request decides and that may be empty.
    fn may_be_empty(&self, text: &str, names: &Names) -> bool {
        let [variable] = variables(text)[..] else { return false };
        if text != format!("${variable}") && text != format!("${{{variable}}}") {
            return false;
        }
        let of_response = |name: &str| ["sent_http_", "upstream_", "status"].iter().any(|p| name.starts_with(p));
        let map = self.shared.maps.iter().find(|map| map.argument(1).trim_start_matches('$') == variable);
        if let Some(map) = map {
            return !variables(map.argument(0)).into_iter().any(of_response);
        }
        names.set.iter().any(|set| set == variable)
            || ["http_", "cookie_", "arg_"].iter().any(|prefix| variable.starts_with(prefix))
            || ["args", "query_string", "remote_user"].contains(&variable)
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
        let realm = inherited(blocks, "auth_basic").last().copied();
        if let Some(realm) = realm.filter(|realm| realm.argument(0) != "off") {
            self.passwords(out, realm, blocks, "");
        }
        if let Some(request) = inherited(blocks, "auth_request").last().filter(|r| r.argument(0) != "off") {
            self.forward_auth(out, request, blocks);
        }
    }

    /// `satisfy any`: the addresses that `allow` names need no password. Returns whether the rules have this form; all of them
    /// apply otherwise.
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
        true
    }

    /// Refuses the methods that `limit_except` of a block does not name, but for the addresses that it allows.
    pub(super) fn other_methods(&mut self, out: &mut Vec<String>, owner: &Directive) {
        for limit in own(owner, "limit_except") {
            self.limit_methods(out, limit);
        }
    }

    fn limit_methods(&mut self, out: &mut Vec<String>, limit: &Directive) {
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
        let host = self.hosts(host, 80).join(" ");
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
            let mut definition = Vec::new();
            let missing = self.missing(&mut definition, &candidates);
            let mut found = Vec::new();
            if candidates.split(' ').any(|pattern| pattern != "{path}" && pattern != "{path}/") {
                found.push(format!("@found_{missing} file {candidates}"));
                found.push(format!("rewrite @found_{missing} {{file_match.relative}}"));
            }
            found.extend(content);
            let otherwise = match last.strip_prefix('@') {
                None => vec![format!("error {}", &last[1..])],
                Some(name) => {
                    let Some(named) = named(all, name) else {
                        out.push("error 500".to_owned());
                        return self.note(out, files, "found no location of this name");
                    };
                    self.content(named, all, names)
                }
            };
            let found = in_written_order(found);
            if otherwise == found {
                // The rules of the named location stand before all locations.
                out.extend(found);
                return;
            }
            out.extend(definition);
            block(out, &format!("handle @{missing}"), otherwise);
            block(out, "handle", found);
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
            let hosts: Vec<String> = self
                .hosts(address, if scheme == "https" { 443 } else { 80 })
                .iter()
                .map(|host| format!("{scheme}://{host}"))
                .collect();
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
        if let Some(kind) = value(&blocks[1..], "default_type") {
            out.push(format!("header ?Content-Type {}", quote(kind)));
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
