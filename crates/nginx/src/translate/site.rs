//! A server of nginx as a site: its names, certificate, logs, error pages, and its locations in nginx's order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::cache::{CACHE_STATUS, cache_status};
use super::content::has_no_types;
use super::directories::programs;
use super::error_pages::ErrorPage;
use super::fields::has_shared_fields;
use super::hosts::{HostOrder, HostPattern, host_groups_all, host_pattern, is_host, server_names};
use super::listens::{Defaults, Listen, SiteAddresses, site_addresses};
use super::locations::refuse_dot_segments;
use super::path_case::PathCase;
use super::rules::{always_answers, has_expression, redirect_target, rules_of};
use super::units::bytes;
use super::upstream_address::{sets, with_constants};
use super::{Translator, active, inherited, own, value};
use crate::location::Locations;
use crate::parse::Directive;
use crate::variables::{VariableScope, variable, variables};
use crate::write::{block, quote};

/// The lines of a server's site.
#[derive(Default)]
struct SiteText {
    /// Lines that stand only in a site itself: `tls` and `log`.
    own: Vec<String>,
    /// Lines that may also stand in `handle`.
    body: Vec<String>,
    errors: Vec<ErrorPage>,
}

/// Media types in nginx configurations, and those of the same files here (IANA's names).
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("application/javascript", "text/javascript"),
    ("application/x-javascript", "text/javascript"),
    ("application/x-font-ttf", "font/ttf"),
    ("application/x-font-otf", "font/otf"),
    ("font/opentype", "font/otf"),
    ("image/x-icon", "image/vnd.microsoft.icon"),
    ("image/x-ms-bmp", "image/bmp"),
];

/// Directives about compression.
const COMPRESSION: &[&str] = &["gzip", "gzip_types", "gzip_min_length"];

impl<'a> Translator<'a> {
    pub(super) fn write_sites(&mut self, out: &mut Vec<String>, http: &'a Directive, servers: &[&'a Directive]) {
        let mut notes = Vec::new();
        let listens: Vec<Vec<Listen>> = servers.iter().map(|server| self.read_listens(&mut notes, server)).collect();
        // Without `default_server` the first server of an address takes the requests for other hosts.
        let mut defaults = Defaults::new();
        for is_marked in [true, false] {
            for (index, listens) in listens.iter().enumerate() {
                for listen in listens.iter().filter(|l| !l.is_unix() && (l.default || !is_marked)) {
                    defaults.entry((listen.bind.clone(), listen.port)).or_insert(index);
                }
            }
        }
        let patterns = self.patterns(&mut notes, http, servers, &listens, &defaults);
        let with_pages = sites_with_pages(http, servers, &listens, &defaults, &patterns);
        let mut taken = BTreeSet::new();
        out.append(&mut notes);
        for (index, (server, listens)) in servers.iter().zip(&listens).enumerate() {
            let mut notes = Vec::new();
            let mut sites = Vec::new();
            let names = server_names(server);
            for directive in own(server, "server_name") {
                if directive.arguments.iter().any(|name| !name.starts_with('~') && !is_host(name)) {
                    self.note(&mut notes, directive, "one of the names is not that of a host");
                }
            }
            let mut is_elsewhere = false;
            let rejects = value(&[http, server], "ssl_reject_handshake") == Some("on");
            let is_default = |listen: &Listen| {
                listen.is_unix() || listen.default || defaults.get(&(listen.bind.clone(), listen.port)) == Some(&index)
            };
            for SiteAddresses { binds, tls, listens } in site_addresses(listens, is_default) {
                let mut addresses: Vec<String> = Vec::new();
                for listen in listens {
                    if rejects && tls {
                        // The handshake fails for hosts without a site, so this server needs none.
                        is_elsewhere = true;
                        continue;
                    }
                    let is_shared = !listen.is_unix() && patterns.contains_key(&listen.port);
                    is_elsewhere |= is_shared;
                    let any_host = (is_default(listen) && !is_shared).then(String::new);
                    for host in names.iter().cloned().chain(any_host) {
                        let address = listen.address(&host);
                        if addresses.contains(&address) {
                            continue;
                        }
                        if taken.insert((address.clone(), binds.clone())) {
                            addresses.push(address);
                        } else {
                            let reason = format!("{address}: an earlier server has it, as in nginx");
                            self.note(&mut notes, server, &reason);
                        }
                    }
                }
                if !addresses.is_empty() {
                    sites.push((binds, tls, addresses));
                }
            }
            if sites.is_empty() && !is_elsewhere {
                self.note(out, server, "found no name and no address that is left for it");
            }
            for (binds, tls, addresses) in sites {
                let mut body = std::mem::take(&mut notes);
                if !binds.is_empty() {
                    let binds: Vec<String> = binds.iter().map(|bind| quote(bind)).collect();
                    body.push(format!("bind {}", binds.join(" ")));
                }
                let text = self.translate_server(http, server, tls, &names, None);
                body.extend(text.own);
                body.extend(text.body);
                let is_covered = |site: &SiteWithPages| {
                    site.server != index
                        && listens.iter().any(|listen| listen.port == site.port)
                        && names.iter().any(|name| site.covers(name))
                };
                let is_redirect = matches!(rules_of(server)[..], [rule] if redirect_target(rule).is_some());
                if text.errors.is_empty() && !is_redirect && with_pages.iter().any(is_covered) {
                    // Without it, the other site's error pages would be for this one's errors.
                    block(&mut body, "handle_errors", Vec::new());
                }
                for ErrorPage { codes, lines } in text.errors {
                    block(&mut body, &format!("handle_errors {}", codes.join(" ")), lines);
                }
                block(out, &addresses.join(", "), body);
                out.push(String::new());
            }
        }
        for (port, patterns) in patterns {
            let default = defaults.get(&(None, port)).copied().unwrap_or_default();
            let listen = listens.iter().flatten().find(|l| l.port == port && !l.is_unix());
            if let Some(listen) = listen {
                let address = listen.address("");
                self.shared_site(out, &address, http, servers, default, &patterns, listen.tls);
            }
        }
    }

    /// Returns the patterns of each port that has names with a wildcard at the end or expressions, in nginx's order.
    /// Exact names and those with a wildcard for one label at the beginning come before them, as sites of their own.
    fn patterns(
        &mut self,
        out: &mut Vec<String>,
        http: &'a Directive,
        servers: &[&'a Directive],
        listens: &[Vec<Listen>],
        defaults: &Defaults,
    ) -> BTreeMap<u16, Vec<HostPattern>> {
        let mut found: BTreeMap<u16, Vec<HostPattern>> = BTreeMap::new();
        for (index, server) in servers.iter().enumerate() {
            for directive in own(server, "server_name") {
                for name in directive.arguments.iter().filter(|name| name.starts_with('~') || name.ends_with(".*")) {
                    let pattern = match host_pattern(name, index) {
                        Ok(pattern) => pattern,
                        Err(reason) => {
                            self.note(out, directive, &reason);
                            continue;
                        }
                    };
                    for listen in &listens[index] {
                        let default = defaults
                            .get(&(listen.bind.clone(), listen.port))
                            .map_or(*server, |default| servers[*default]);
                        let others = listens.iter().flatten().filter(|l| l.port == listen.port);
                        let reason = if listen.is_unix() {
                            "at a Unix socket the server takes all hosts"
                        } else if others.clone().any(|other| other.bind.is_some() || other.tls != listen.tls) {
                            "the servers of its port have several addresses; write the hosts"
                        } else if self.own_settings(http, server, listen.tls)
                            != self.own_settings(http, default, listen.tls)
                        {
                            "its site is that of the port's default server, which has another certificate or log; write the hosts"
                        } else {
                            let patterns = found.entry(listen.port).or_default();
                            if !patterns.iter().any(|other| other.expression == pattern.expression) {
                                patterns.push(pattern.clone());
                            }
                            continue;
                        };
                        self.note(out, directive, &format!("{name}: {reason}"));
                    }
                }
            }
        }
        // A site's wildcard stands for one label, nginx's for several.
        for (index, server) in servers.iter().enumerate() {
            for name in server_names(server) {
                let Some(rest) = name.strip_prefix("*.") else { continue };
                for listen in listens[index].iter().filter(|l| !l.is_unix()) {
                    let default =
                        defaults.get(&(listen.bind.clone(), listen.port)).map_or(*server, |default| servers[*default]);
                    let is_equal =
                        self.own_settings(http, server, listen.tls) == self.own_settings(http, default, listen.tls);
                    let Some(patterns) = found.get_mut(&listen.port).filter(|_| is_equal) else { continue };
                    patterns.push(HostPattern {
                        expression: format!(r"(?i)\.[^.]+\.{}$", regex::escape(rest)),
                        groups: Vec::new(),
                        order: HostOrder::Leading(Reverse(rest.len())),
                        server: index,
                    });
                }
            }
        }
        for patterns in found.values_mut() {
            patterns.sort_by_key(|pattern| pattern.order);
        }
        found
    }

    /// The settings of a server that only a whole site can have.
    fn own_settings(&self, http: &'a Directive, server: &'a Directive, tls: bool) -> Vec<&'a [String]> {
        let blocks = [http, server];
        let of_tls =
            ["ssl_certificate", "ssl_certificate_key", "ssl_protocols", "ssl_client_certificate", "ssl_verify_client"];
        let names = of_tls.into_iter().filter(|_| tls).chain(["access_log"]);
        names.flat_map(|name| inherited(&blocks, name)).map(|directive| &*directive.arguments).collect()
    }

    /// Writes the site of a port for the hosts that have no site: the servers with patterns in their order, and the
    /// default server.
    #[expect(clippy::too_many_arguments, reason = "the parts of one site")]
    fn shared_site(
        &mut self,
        out: &mut Vec<String>,
        address: &str,
        http: &'a Directive,
        servers: &[&'a Directive],
        default: usize,
        patterns: &[HostPattern],
        tls: bool,
    ) {
        let mut body = Vec::new();
        let mut route = Vec::new();
        let mut errors: BTreeMap<String, Vec<(String, Vec<String>)>> = BTreeMap::new();
        let mut heads = Vec::new();
        // A group of an expression may be part of a path.
        let empty = self.fresh("empty_label");
        body.push(format!("@{empty} vars_regexp {{host}} `\\.\\.`"));
        route.push(format!("error @{empty} 400"));
        for pattern in patterns {
            let server = servers[pattern.server];
            let name = self.fresh("host");
            body.push(format!("@{name} vars_regexp {name} {{host}} {}", quote(&pattern.expression)));
            let text = self.translate_server(http, server, tls, &server_names(server), Some((&name, &pattern.groups)));
            let head = format!("handle @{name}");
            block(&mut route, &head, text.body);
            for page in text.errors {
                for code in page.codes {
                    errors.entry(code).or_default().push((head.clone(), page.lines.clone()));
                }
            }
            heads.push(head);
        }
        let text = self.translate_server(http, servers[default], tls, &server_names(servers[default]), None);
        body.extend(text.own);
        block(&mut route, "handle", text.body);
        for page in text.errors {
            for code in page.codes {
                errors.entry(code).or_default().push(("handle".to_owned(), page.lines.clone()));
            }
        }
        heads.push("handle".to_owned());
        block(&mut body, "route", route);
        for (code, pages) in errors {
            let mut lines = Vec::new();
            let last = heads.iter().rposition(|head| pages.iter().any(|(of, _)| of == head)).unwrap_or_default();
            for head in &heads[..=last] {
                let page = pages.iter().find(|(of, _)| of == head);
                // A server without a page for the status must not get that of a later one.
                block(&mut lines, head, page.map(|(_, lines)| lines.clone()).unwrap_or_default());
            }
            let mut ordered = Vec::new();
            block(&mut ordered, "route", lines);
            block(&mut body, &format!("handle_errors {code}"), ordered);
        }
        block(out, address, body);
        out.push(String::new());
    }

    /// Translates a server. `capture` is the matcher of its host, and the names of that matcher's groups.
    fn translate_server(
        &mut self,
        http: &'a Directive,
        server: &'a Directive,
        tls: bool,
        hosts: &[String],
        capture: Option<(&str, &[String])>,
    ) -> SiteText {
        let blocks = [http, server];
        let all = Locations::of(&blocks);
        self.case = PathCase::of(http, server, &all);
        self.programs = programs(server, &all);
        let mut text = SiteText::default();
        let out = &mut text.body;
        for directive in server.block() {
            if directive.name != "ssl" && !has_no_types(directive) {
                self.report_unread(out, directive, super::tables::READ);
            }
        }
        if tls {
            self.write_tls(&mut text.own, &blocks);
        }
        self.write_logs(&mut text.own, &blocks);
        let mut scope = self.server_scope(server, hosts, capture);
        // Rules may set the variables of the root.
        let roots = inherited(&blocks, "root");
        let root = roots.last().map_or(String::new(), |root| with_constants(root.argument(0), &blocks));
        let is_of_rules = variables(&root).into_iter().any(|name| !sets(server, name).is_empty());
        if !is_of_rules {
            self.write_root(out, &blocks, &scope);
        }
        self.gzip_of_locations = own(server, "location").into_iter().any(has_compression);
        if !self.gzip_of_locations {
            out.extend(compression(&blocks));
        }
        let has_cache_status = mentions_in(server, http, CACHE_STATUS) && !self.shared.caches.is_empty();
        if has_cache_status {
            scope.maps.push(CACHE_STATUS.to_owned());
        }
        if has_shared_fields(&blocks) {
            self.write_fields(out, &blocks, &scope, None);
            self.fields_are_shared = true;
        }
        let mut route = Vec::new();
        self.write_refusals(out, &mut route, (http, server), tls);
        let rules = self.rules(&blocks, &mut scope);
        if always_answers(server) && rules_of(server).len() == 1 {
            route.extend(rules);
        } else if !rules.is_empty() {
            // Apart from the locations: of the blocks `handle` of one route only one runs.
            block(&mut route, "route", rules);
        }
        if is_of_rules {
            let mut lines = Vec::new();
            self.write_root(&mut lines, &blocks, &scope);
            // Locations have lines `root` of their own.
            route.extend(lines.into_iter().map(|line| line.replacen("root *", "vars root", 1)));
        }
        if !always_answers(server) {
            self.write_locations(out, &mut route, &blocks, &scope);
        }
        self.write_maps(out, server, http);
        if has_cache_status {
            block(
                out,
                &format!("map {{http.response.header.Cache-Status}} {{{}}}", variable(CACHE_STATUS)),
                cache_status(),
            );
        }
        block(out, "route", route);
        text.errors = self.write_error_pages(out, &blocks, &scope);
        self.fields_are_shared = false;
        text
    }

    fn server_scope(&self, server: &Directive, hosts: &[String], capture: Option<(&str, &[String])>) -> VariableScope {
        let written = own(server, "server_name").first().map_or("", |d| d.argument(0)).to_ascii_lowercase();
        let (host_capture, host_groups) = capture.unwrap_or_default();
        VariableScope {
            server_name: hosts.first().cloned().unwrap_or(written),
            host_capture: host_capture.to_owned(),
            host_groups: host_groups.to_vec(),
            host_groups_all: host_groups_all(server),
            server_names: hosts.to_vec(),
            has_expressions: has_expression(server),
            ..self.shared_scope()
        }
    }

    /// Writes the steps that refuse requests before any rule of the server, and the maps of `geo`.
    fn write_refusals(
        &mut self,
        out: &mut Vec<String>,
        route: &mut Vec<String>,
        (http, server): (&'a Directive, &'a Directive),
        tls: bool,
    ) {
        if tls && refuses_certificates(&[http, server]) {
            route.push(
                "# Certificates of clients are not verified as nginx does it, so all requests are refused.".to_owned(),
            );
            route.push("error 403".to_owned());
        }
        for geo in self.shared.geos.clone() {
            if mentions_in(server, http, geo.variable) {
                self.write_geo(out, route, &geo);
            }
        }
        if uses_in_rules(http, server, "request_uri") {
            route.push(
                "# nginx's $request_uri has no scheme and host; those of a request to a forward proxy are refused."
                    .to_owned(),
            );
            route.push("@absolute vars_regexp {http.request.orig_uri} ^[^/*]".to_owned());
            route.push("error @absolute 400".to_owned());
        }
        refuse_dot_segments(route, server);
    }

    /// Sets the root that the innermost block with one has.
    pub(super) fn write_root(&mut self, out: &mut Vec<String>, blocks: &[&Directive], scope: &VariableScope) {
        let Some(root) = inherited(blocks, "root").last().copied() else { return };
        if !root.argument(0).starts_with(['/', '$']) {
            self.remark(out, root, "a relative path is that from the directory where the server starts");
        }
        match self.expand(out, root, scope, &with_constants(root.argument(0), blocks)) {
            Some(root) => out.push(format!("root * {}", quote(&root))),
            // Without a root it would be the directory where the server was started.
            None => out.push("root * /nonexistent".to_owned()),
        }
    }

    fn write_tls(&mut self, out: &mut Vec<String>, blocks: &[&Directive]) {
        let mut lines = Vec::new();
        if let Some(protocols) = inherited(blocks, "ssl_protocols").last() {
            let spelled = |p: &str| match p {
                "TLSv1.2" => Some("tls1.2"),
                "TLSv1.3" => Some("tls1.3"),
                _ => None,
            };
            let known: Vec<&str> = protocols.arguments.iter().filter_map(|p| spelled(p)).collect();
            if known.len() < protocols.arguments.len() {
                self.note(out, protocols, "only TLSv1.2 and TLSv1.3 are served");
            }
            if known.len() == 1 {
                lines.push(format!("protocols {} {}", known[0], known[0]));
            }
        }
        match (value(blocks, "ssl_verify_client"), inherited(blocks, "ssl_client_certificate").last()) {
            (Some(mode @ ("on" | "optional")), Some(file)) => {
                let mode = if mode == "on" { "require_and_verify" } else { "verify_if_given" };
                let options = vec![format!("mode {mode}"), format!("trust_pool file {}", quote(file.argument(0)))];
                block(&mut lines, "client_auth", options);
            }
            (Some("off") | None, _) => {}
            _ => {
                for directive in inherited(blocks, "ssl_verify_client") {
                    let reason = "expected 'on' or 'optional' with 'ssl_client_certificate'; all requests are refused";
                    self.note(out, directive, reason);
                }
            }
        }
        // One for each kind of key.
        let pairs = inherited(blocks, "ssl_certificate").into_iter().zip(inherited(blocks, "ssl_certificate_key"));
        let mut files: Vec<String> =
            pairs.map(|(file, key)| format!("tls {} {}", quote(file.argument(0)), quote(key.argument(0)))).collect();
        if !lines.is_empty() {
            let last = files.pop().unwrap_or_else(|| "tls".to_owned());
            block(&mut files, &last, lines);
        }
        out.extend(files);
    }

    fn write_logs(&mut self, out: &mut Vec<String>, blocks: &[&Directive]) {
        for log in inherited(blocks, "access_log") {
            let file = log.argument(0);
            if file == "off" {
                return;
            }
            if file.starts_with("syslog:") || file.contains('$') || log.arguments.iter().any(|w| w.starts_with("if=")) {
                self.note(out, log, "only a file, without a condition, is carried over");
                continue;
            }
            let mut lines = vec![format!("output file {}", quote(file))];
            match log.argument(1) {
                "" | "combined" => lines.push("format transform \"{combined_log}\"".to_owned()),
                format => {
                    lines.push("format transform \"{combined_log}\"".to_owned());
                    let reason = format!("the format '{format}'; the log has the format 'combined'");
                    let definition = self.shared.formats.get(format).copied().unwrap_or(log);
                    self.note(out, definition, &reason);
                }
            }
            let name = self.fresh("log");
            block(out, &format!("log {name}"), lines);
        }
    }
}

/// The error pages of a server whose site takes requests for more than exact hosts. A Caddyfile uses them for the
/// errors of every site that has none and a host among these.
struct SiteWithPages {
    /// The index of the server.
    server: usize,
    port: u16,
    /// A name with a wildcard for its first label; empty for all hosts.
    host: String,
}

impl SiteWithPages {
    fn covers(&self, name: &str) -> bool {
        let rest = |name: &str| name.split_once('.').map(|(_, rest)| rest.to_owned());
        self.host.is_empty() || rest(&self.host) == rest(name)
    }
}

fn sites_with_pages(
    http: &Directive,
    servers: &[&Directive],
    listens: &[Vec<Listen>],
    defaults: &Defaults,
    patterns: &BTreeMap<u16, Vec<HostPattern>>,
) -> Vec<SiteWithPages> {
    let mut found = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        if own(http, "error_page").is_empty() && !has_error_page(server) {
            continue;
        }
        let site = |port, host| SiteWithPages { server: index, port, host };
        let ports = listens[index].iter().map(|listen| listen.port);
        let wildcards: Vec<_> = server_names(server).into_iter().filter(|name| name.starts_with("*.")).collect();
        found.extend(ports.flat_map(|port| wildcards.iter().cloned().map(move |host| site(port, host))));
        let of_any_host = defaults.iter().filter(|(_, default)| **default == index).map(|((_, port), _)| *port);
        let with_pattern = |all: &Vec<HostPattern>| all.iter().any(|pattern| pattern.server == index);
        let of_patterns = patterns.iter().filter(|(_, all)| with_pattern(all)).map(|(port, _)| *port);
        found.extend(of_any_host.chain(of_patterns).map(|port| site(port, String::new())));
    }
    found
}

/// Whether a block, or one within it, has an error page.
fn has_error_page(block: &Directive) -> bool {
    block.block().iter().any(|directive| directive.name == "error_page" || has_error_page(directive))
}

/// Whether a location, or one within it, has lines of its own about compression.
fn has_compression(location: &Directive) -> bool {
    let has_line = |d: &Directive| COMPRESSION.contains(&&*d.name);
    location.block().iter().any(|d| has_line(d) || d.name == "location" && has_compression(d))
}

/// Returns the `encode` of a server or a location, if its responses are compressed.
pub(super) fn compression(blocks: &[&Directive]) -> Vec<String> {
    if value(blocks, "gzip") != Some("on") {
        return Vec::new();
    }
    let mut types = vec!["text/html".to_owned()];
    for kind in inherited(blocks, "gzip_types").iter().flat_map(|d| &d.arguments) {
        if !types.contains(kind) {
            types.push(kind.clone());
        }
    }
    // The media types of nginx's mime.types, and of applications, that files have under another name here.
    for (nginx, own) in MEDIA_TYPES {
        if types.iter().any(|kind| kind == nginx) && !types.iter().any(|kind| kind == own) {
            types.push((*own).to_owned());
        }
    }
    let mut lines = vec![format!("minimum_length {}", value(blocks, "gzip_min_length").and_then(bytes).unwrap_or(20))];
    if !types.iter().any(|kind| kind == "*") {
        let types = types.iter().map(|kind| format!("header Content-Type {kind}*")).collect();
        block(&mut lines, "match", types);
    }
    let mut out = Vec::new();
    block(&mut out, "encode gzip", lines);
    out
}

/// Whether a server has a condition for the certificates of clients that has no equivalent.
fn refuses_certificates(blocks: &[&Directive]) -> bool {
    let is_verified = match value(blocks, "ssl_verify_client") {
        None | Some("off") => return false,
        mode => matches!(mode, Some("on" | "optional")),
    };
    let tests_revocation = value(blocks, "ssl_crl").is_some() || active(blocks, "ssl_ocsp").is_some();
    !is_verified || tests_revocation || inherited(blocks, "ssl_client_certificate").is_empty()
}

/// Whether a rule of a server, or a `map` outside of it, has a variable. A server that only redirects needs none of its
/// path.
fn uses_in_rules(http: &Directive, server: &Directive, variable: &str) -> bool {
    fn in_block(block: &Directive, variable: &str) -> bool {
        const RULES: &[&str] = &["if", "set", "return", "rewrite", "try_files", "index"];
        block.block().iter().any(|d| {
            RULES.contains(&&*d.name) && d.arguments.iter().any(|word| variables(word).contains(&variable))
                || in_block(d, variable)
        })
    }
    let maps = http.block().iter().filter(|d| d.name == "map");
    let is_about = |map: &Directive| {
        let own = map.argument(1).trim_start_matches('$');
        variables(map.argument(0)).contains(&variable) && mentions(server, own)
    };
    let only_redirects = always_answers(server) && rules_of(server).len() == 1;
    in_block(server, variable) && !only_redirects || maps.into_iter().any(is_about)
}

/// Whether a server, or the block `http` outside of its servers, has this variable.
pub(super) fn mentions_in(server: &Directive, http: &Directive, variable: &str) -> bool {
    // A `map` or `geo` defines its last variable.
    let defines = |d: &Directive| {
        matches!(&*d.name, "map" | "geo")
            && d.arguments.last().is_some_and(|last| last.strip_prefix('$') == Some(variable))
    };
    let mut others = http.block().iter().filter(|d| d.name != "server" && !defines(d));
    mentions(server, variable) || others.any(|other| mentions(other, variable))
}

fn mentions(directive: &Directive, variable: &str) -> bool {
    let (plain, braced) = (format!("${variable}"), format!("${{{variable}}}"));
    directive.arguments.iter().any(|word| word.contains(&plain) || word.contains(&braced))
        || directive.block().iter().any(|inner| mentions(inner, variable))
}
