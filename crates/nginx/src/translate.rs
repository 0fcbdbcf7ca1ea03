//! The meaning of each directive of nginx: walks the servers in their order and writes a site for each.
//!
//! - `tables`: directives that are read elsewhere, that only tune nginx, and reasons why others have no equivalent
//! - `site`: a server: names, certificates, logs, error pages
//! - `listens`: the addresses of a server
//! - `locations`: the order of locations, and the rules after which nginx chooses one anew
//! - `rules`: `rewrite`, `if`, `set` and `return`
//! - `content`: a location: files and fields
//! - `access`: a location: addresses, methods, passwords, rates, `auth_request`
//! - `upstream`: `proxy_pass`
//! - `fastcgi`: `fastcgi_pass`
//! - `accel`: responses that an upstream leaves to an internal location
//! - `cache`: `proxy_cache` and `fastcgi_cache`
//! - `map`: variables that depend on another one
//! - `geo`: variables that depend on the client's network
//! - `referers`: pages from which a resource may be requested
//! - `real_ip`: the client's address from a field of a trusted proxy

mod accel;
mod access;
mod cache;
mod content;
mod fastcgi;
mod geo;
mod listens;
mod locations;
mod map;
mod real_ip;
mod referers;
mod rules;
mod site;
mod tables;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use crate::parse::{Directive, Files, Place, SyntaxError, parse};
use crate::variables::Names;
use crate::write::{block, indent};

/// A line of the configuration that the Caddyfile does not carry over, or carries over with another meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The line; for a group of lines, the first.
    pub place: Place,
    /// The reason, with the directive.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A Caddyfile, with the lines that it does not carry over as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The Caddyfile.
    pub caddyfile: String,
    /// In the order found; those that only tune nginx are one note at the end.
    pub notes: Vec<Note>,
}

/// Translates the text of a configuration, `name`, which may also be a single file of servers as in `sites-enabled`.
///
/// # Errors
/// Returns the first text that nginx would refuse too.
pub fn translate(text: &str, name: &str, files: &dyn Files) -> Result<Translation, SyntaxError> {
    let main = parse(text, name, files)?;
    let mut translator = Translator {
        files,
        notes: Vec::new(),
        tuning: Vec::new(),
        shared: Shared::default(),
        names: 0,
        has_cache: false,
        has_real_ip: false,
        is_in_accel: false,
        options: Vec::new(),
    };
    let mut out = Vec::new();
    let http: Vec<&Directive> = main.iter().filter(|d| d.name == "http").collect();
    let mut head = Vec::new();
    let root;
    let http = match &*http {
        [] => {
            let place = Place { file: name.into(), line: 1 };
            root = Directive { name: "http".into(), arguments: Vec::new(), block: Some(main.clone()), place };
            &root
        }
        [http, others @ ..] => {
            for other in others {
                translator.note(&mut head, other, "a second block 'http'; nginx refuses it");
            }
            for directive in main.iter().filter(|d| d.name != "http") {
                translator.outside(&mut head, directive, &[]);
            }
            *http
        }
    };
    translator.http(&mut head, &mut out, http);
    let mut lines = vec![format!("# Translated from {name}."), String::new()];
    if let Some(first) = translator.tuning.first() {
        let names: BTreeSet<&str> = translator.tuning.iter().map(|d| d.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let message = format!("not needed, as these only tune nginx itself: {}", names.join(", "));
        lines.insert(1, format!("# {}: {message}", first.place));
        translator.notes.push(Note { place: first.place.clone(), message });
    }
    let tls = out.iter().any(|line| line.starts_with("https://") || line.contains(", https://"));
    let mut options = Vec::new();
    if tls {
        options.push("# nginx redirects to https only where its configuration says so.".to_owned());
        options.push("auto_https disable_redirects".to_owned());
    }
    if !translator.options.is_empty() {
        block(&mut options, "servers", translator.options);
    }
    if !options.is_empty() {
        lines.push("{".to_owned());
        lines.extend(options);
        lines.extend(["}".to_owned(), String::new()]);
    }
    if !head.is_empty() {
        lines.extend(head);
        lines.push(String::new());
    }
    lines.extend(out);
    let caddyfile = format!("{}\n", indent(&lines).trim_end());
    Ok(Translation { caddyfile, notes: translator.notes })
}

/// Definitions of the block `http` that servers refer to.
#[derive(Default)]
struct Shared<'a> {
    upstreams: BTreeMap<&'a str, &'a Directive>,
    maps: Vec<&'a Directive>,
    geos: Vec<Rc<geo::Geo<'a>>>,
    /// `limit_req_zone`, by name.
    zones: BTreeMap<&'a str, &'a Directive>,
    formats: BTreeMap<&'a str, &'a Directive>,
    /// `proxy_cache_path` and `fastcgi_cache_path`, by zone.
    caches: BTreeMap<&'a str, &'a Directive>,
}

struct Translator<'a> {
    files: &'a dyn Files,
    notes: Vec<Note>,
    tuning: Vec<Directive>,
    shared: Shared<'a>,
    /// Number of matcher names handed out.
    names: usize,
    /// A `cache` is written; the differences of all are named at the first.
    has_cache: bool,
    /// The client's address is that of a field; see `real_ip`.
    has_real_ip: bool,
    /// The locations for `X-Accel-Redirect` are being written; see `accel`.
    is_in_accel: bool,
    /// Lines of the global option `servers`.
    options: Vec<String>,
}

impl<'a> Translator<'a> {
    fn http(&mut self, head: &mut Vec<String>, out: &mut Vec<String>, http: &'a Directive) {
        for directive in http.block() {
            match &*directive.name {
                "upstream" => _ = self.shared.upstreams.insert(directive.argument(0), directive),
                "map" => self.shared.maps.push(directive),
                "geo" => match geo::Geo::of(directive) {
                    Ok(geo) => self.shared.geos.push(Rc::new(geo)),
                    Err((line, reason)) => {
                        if line.place != directive.place {
                            self.note(head, directive, "one of its lines has no equivalent");
                        }
                        self.note(head, line, &reason);
                    }
                },
                "limit_req_zone" => {
                    let zone = directive.arguments.iter().find_map(|word| word.strip_prefix("zone="));
                    if let Some((name, _)) = zone.and_then(|zone| zone.split_once(':')) {
                        self.shared.zones.insert(name, directive);
                    }
                }
                "proxy_cache_path" | "fastcgi_cache_path" => {
                    let zone = directive.arguments.iter().find_map(|word| word.strip_prefix("keys_zone="));
                    if let Some(zone) = zone {
                        self.shared.caches.insert(zone.split(':').next().unwrap_or_default(), directive);
                    }
                }
                "log_format" => _ = self.shared.formats.insert(directive.argument(0), directive),
                _ => {}
            }
        }
        for directive in http.block() {
            let known = ["server", "upstream", "map", "geo", "limit_req_zone", "log_format", "types", "#"];
            if !known.contains(&&*directive.name) {
                self.outside(head, directive, tables::READ);
            }
        }
        let servers: Vec<&Directive> = http.block().iter().filter(|d| d.name == "server").collect();
        self.real_ip(head, http, &servers);
        self.sites(out, http, &servers);
    }

    /// Notes a directive that nothing reads.
    fn outside(&mut self, out: &mut Vec<String>, directive: &Directive, read: &[&str]) {
        let name = &*directive.name;
        if read.contains(&name) {
            return;
        }
        if name == "#" {
            out.push(format!("# {}", directive.argument(0)).trim_end().to_owned());
        } else if tables::TUNING.contains(&name) || tables::TUNING_PREFIXES.iter().any(|p| name.starts_with(p)) {
            self.tuning.push(Directive { block: None, ..directive.clone() });
        } else {
            let reason = tables::REASONS.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason);
            self.note(out, directive, reason.unwrap_or("no equivalent"));
        }
    }

    /// Names a line that is not carried over, at its place in the Caddyfile and once in the list.
    fn note(&mut self, out: &mut Vec<String>, directive: &Directive, reason: &str) {
        self.name(out, directive, "not carried over", reason);
    }

    /// Names a line that is carried over with another meaning, as [`Self::note`] does.
    fn remark(&mut self, out: &mut Vec<String>, directive: &Directive, reason: &str) {
        self.name(out, directive, "unlike nginx", reason);
    }

    fn name(&mut self, out: &mut Vec<String>, directive: &Directive, kind: &str, reason: &str) {
        let message = format!("{kind}: \"{}\": {reason}", directive.text());
        let note = Note { place: directive.place.clone(), message };
        out.push(format!("# {note}"));
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Replaces variables by placeholders; a variable without one is noted, and the result is `None`.
    fn expand(&mut self, out: &mut Vec<String>, directive: &Directive, names: &Names, text: &str) -> Option<String> {
        match names.expand(text) {
            Ok(text) => Some(text),
            Err(variable) => {
                self.note(out, directive, &format!("the variable ${variable} has no equivalent here"));
                None
            }
        }
    }

    /// The variables that the block `http` defines.
    fn shared_names(&self) -> Names {
        let maps = self.shared.maps.iter().map(|d| d.argument(1).trim_start_matches('$').to_owned()).collect();
        let set = self.shared.geos.iter().map(|geo| geo.variable.to_owned()).collect();
        Names { maps, set, has_real_ip: self.has_real_ip, ..Names::default() }
    }

    /// Returns a matcher's name that no other has.
    fn fresh(&mut self, hint: &str) -> String {
        self.names += 1;
        let mut slug: String = hint.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        slug.truncate(24);
        let slug = slug.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
        format!("{}_{}", if slug.is_empty() { "all" } else { &slug }, self.names)
    }
}

/// The directives of the innermost block that has any of this name: nginx's rule of inheritance.
fn inherited<'a>(blocks: &[&'a Directive], name: &str) -> Vec<&'a Directive> {
    let found = blocks.iter().rev().map(|block| own(block, name)).find(|found| !found.is_empty());
    found.unwrap_or_default()
}

/// The directive of this name that counts, unless it is `off`.
fn active<'a>(blocks: &[&'a Directive], name: &str) -> Option<&'a Directive> {
    inherited(blocks, name).last().copied().filter(|directive| directive.argument(0) != "off")
}

fn own<'a>(block: &'a Directive, name: &str) -> Vec<&'a Directive> {
    block.block().iter().filter(|d| d.name == name).collect()
}

/// The first argument of the directive that counts; `None` without one.
fn value<'a>(blocks: &[&'a Directive], name: &str) -> Option<&'a str> {
    inherited(blocks, name).last().map(|d| d.argument(0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct NoFiles;

    impl Files for NoFiles {
        fn read(&self, _: &str) -> Result<String, String> {
            Err("there is no such file".into())
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }
    }

    /// Translates a text; returns the Caddyfile, and the notes as lines.
    pub(super) fn translated(text: &str) -> (String, String) {
        let Translation { caddyfile, notes } = translate(text, "n", &NoFiles).unwrap();
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        (caddyfile, notes.join("\n"))
    }

    /// Checks the translation of the lines of a block `http`: parts of the Caddyfile, and a part of the notes. With an empty one
    /// there must be no notes.
    #[track_caller]
    fn check(lines: &str, in_caddyfile: &[&str], in_notes: &str) {
        let (caddyfile, notes) = translated(&format!("http {{\n{lines}\n}}"));
        for part in in_caddyfile {
            assert!(caddyfile.contains(part), "{lines}: {part}\n{caddyfile}");
        }
        assert!(notes.contains(in_notes) && notes.is_empty() == in_notes.is_empty(), "{lines}: {notes}");
    }

    /// Shapes without one of their lines, and with a line that has lost its arguments, are translated or refused.
    #[test]
    fn damaged_shapes() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes");
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            for index in 0..lines.len() {
                let bare =
                    format!("{};", lines[index].split_whitespace().next().unwrap_or_default().trim_end_matches(';'));
                for other in ["", &bare, "server_name ~ .* *.;", "set $app; geo $x; proxy_cache_path; upstream;"] {
                    let mut changed = lines.clone();
                    changed[index] = other;
                    _ = translate(&changed.join("\n"), "n", &NoFiles);
                }
            }
        }
    }

    // nginx's documentation of ngx_http_realip_module.
    #[test]
    fn addresses_of_clients() {
        let rest = "server { root /a; deny 192.0.2.1; }";
        let options = [
            "trusted_proxies static 10.0.0.0/8 ::1",
            "trusted_proxies_strict",
            "@denied_2 {\n\t\t\t\tclient_ip 192.0.2.1",
        ];
        let from = "set_real_ip_from 10.0.0.0/8; set_real_ip_from ::1;";
        check(&format!("{from} {rest}"), &[&options[..], &["client_ip_headers X-Real-IP"]].concat(), "");
        check(&format!("{from} real_ip_header CF-Connecting-IP; {rest}"), &["client_ip_headers CF-Connecting-IP"], "");
        check(&format!("set_real_ip_from unix:; {rest}"), &["trusted_proxies_unix"], "");
        check(
            &format!("{from} real_ip_header X-Forwarded-For; {rest}"),
            &options,
            "the last address in X-Forwarded-For",
        );
        check(&format!("set_real_ip_from proxy.test; {rest}"), &["\tremote_ip 192.0.2.1"], "no names");
        check(
            &format!("{from} real_ip_header proxy_protocol; {rest}"),
            &["\tremote_ip 192.0.2.1"],
            "listener_wrappers",
        );
        let one = "server { listen 81; set_real_ip_from 10.0.0.1; root /b; }";
        check(
            &format!("{one} {rest}"),
            &["\tremote_ip 192.0.2.1"],
            "n:2: not carried over: \"set_real_ip_from 10.0.0.1\"",
        );
    }

    // nginx's documentation of `server_name`.
    #[test]
    fn hosts_of_patterns() {
        let other = "server { listen 80; server_name a.test; return 200 a; }";
        let sites = ["http://a.test {", "http://:80 {", "error @empty_label_", "http://b.test {"];
        check(
            &format!("{other} server {{ server_name b.test ~^(?<n>.+)\\.b\\.test$ c.*; return 200 $n; }}"),
            &[
                &sites[..],
                &[
                    "vars_regexp host_",
                    "{host} `(?i)^(?<n>.+)\\.b\\.test$`",
                    "(?i)^c\\..",
                    ".n} 200",
                    "respond * \"\" 200",
                ],
            ]
            .concat(),
            "",
        );
        for (server, reason) in [
            ("server_name ~(?=a);", "the expression is not in Go's syntax"),
            ("server_name *.a.*;", "nginx allows one wildcard"),
            ("server_name ~a; listen 127.0.0.1:80;", "the servers of its port have several addresses"),
            ("server_name ~a; listen unix:/a;", "at a Unix socket the server takes all hosts"),
            ("server_name ~a; access_log /b;", "another certificate or log"),
        ] {
            let (caddyfile, notes) = translated(&format!("http {{ {other} server {{ {server} return 200 b; }} }}"));
            assert!(notes.contains(reason) && !caddyfile.contains("vars_regexp"), "{server}: {notes}\n{caddyfile}");
        }
        let tls = "listen 443 ssl; ssl_certificate c; ssl_certificate_key k;";
        let servers = format!("server {{ {tls} return 200 a; }} server {{ server_name ~b; {tls} return 200 b; }}");
        check(&servers, &["https://:443 {", "tls c k", "(?i)b"], "");
        let other_key = servers.replacen("c; ssl", "d; ssl", 1);
        check(&other_key, &["https://:443 {"], "another certificate or log");
    }

    // nginx's documentation of `ssl_reject_handshake`: without a server for the host the handshake fails.
    #[test]
    fn handshakes_without_a_host() {
        let rejecting =
            "server { listen 443 ssl default_server; listen 80 default_server; ssl_reject_handshake on; return 444; }";
        let named =
            "server { listen 443 ssl; server_name a.test; ssl_certificate c; ssl_certificate_key k; return 200 a; }";
        let (caddyfile, notes) = translated(&format!("http {{ {rejecting} {named} }}"));
        assert!(notes.is_empty() && !caddyfile.contains("https://:443"), "{notes}\n{caddyfile}");
        assert!(caddyfile.contains("http://:80 {") && caddyfile.contains("https://a.test {"), "{caddyfile}");
        let pattern = named.replace("a.test", "~a");
        check(&format!("{rejecting} {pattern}"), &["http://:80 {"], "another certificate or log");
    }

    #[test]
    fn rules_of_access() {
        let server = |lines: &str| format!("server {{ root /a; location / {{ {lines} }} }}");
        let password = "auth_basic a; auth_basic_user_file none;";
        check(
            &server(&format!("satisfy any; allow 10.0.0.0/8; deny all; {password}")),
            &["@outside_2 not remote_ip 10.0.0.0/8", "error @outside_2 401"],
            "there is no such file",
        );
        for rules in ["deny 10.0.0.1; allow all;", "allow 10.0.0.1;", "deny all;", "allow unix:; deny all;"] {
            let lines = format!("satisfy any; {rules} {password}");
            check(&server(&lines), &["error 401"], "a last 'deny all'; all rules apply");
        }
        check(&server("satisfy any; allow 10.0.0.1; deny all;"), &["not remote_ip 10.0.0.1", "403"], "");
        check(
            "server { location / { auth_request /auth; auth_request_set $u $upstream_http_x_user; auth_request_set $v $upstream_status;
             auth_request_set $n $upstream_http_x_name;
             proxy_set_header X-User $u; proxy_set_header X-N $n; proxy_pass http://a; } location = /auth { proxy_pass http://b; } }",
            &["forward_auth b:80 {", "copy_headers X-User", "copy_headers x-name>X-N"],
            "\"auth_request_set $v $upstream_status\": only a field",
        );
    }

    // The request of `auth_request` has the connection of its location.
    #[test]
    fn requests_that_decide() {
        let tls =
            "proxy_ssl_name n.test; proxy_ssl_verify on; proxy_ssl_trusted_certificate /ca; proxy_read_timeout 3s;";
        for (lines, parts) in [
            ("proxy_pass https://a/v;", &["forward_auth a:443 {", "uri /v/x", "tls\n", "tls_insecure_skip_verify"][..]),
            (&format!("proxy_pass https://a; {tls}"), &["uri /auth/x", "tls_server_name n.test", "read_timeout 3s"]),
            ("proxy_pass http://a/v/;", &["forward_auth a:80 {", "uri /v/x"]),
        ] {
            // The URI of `proxy_pass` takes the place of the location's prefix, as it is written.
            let prefix = if lines.ends_with("/v;") { "/auth" } else { "/auth/" };
            let server = format!(
                "server {{ root /a; location / {{ auth_request /auth/x; }} location {prefix} {{ internal; {lines} }} }}"
            );
            check(&server, parts, "");
        }
    }

    #[test]
    fn requests_to_upstreams() {
        let upstream = "upstream u { server a; server b; server c; }";
        let location = |lines: &str| format!("{upstream} server {{ location / {{ proxy_pass http://u; {lines} }} }}");
        check(&location(""), &["lb_retries 2"], "");
        check(
            &location(
                "proxy_next_upstream error timeout; proxy_next_upstream_tries 2; proxy_next_upstream_timeout 10s;",
            ),
            &["lb_retries 1", "lb_try_duration 10s"],
            "",
        );
        check(&location("proxy_next_upstream error non_idempotent;"), &["expression `{rp.is_transport_error}`"], "");
        check(
            &location("proxy_next_upstream http_502 http_503;"),
            &["`{rp.status_code} in [502, 503] && !method"],
            "without its content",
        );
        let (caddyfile, _) = translated(&format!("http {{ {} }}", location("proxy_next_upstream off;")));
        assert!(!caddyfile.contains("lb_retries"), "{caddyfile}");
        check(&location("proxy_cookie_path /a/ /;"), &["header_down Set-Cookie `(?i)(;\\s*path=)/a/` ${1}/"], "");
        check(&location("proxy_cookie_path ~^/a /;"), &["reverse_proxy"], "only two texts");
        check(&location("proxy_intercept_errors on;"), &["reverse_proxy"], "");
        let pages = "proxy_intercept_errors on; error_page 404 500 /e.html;";
        check(
            &format!(
                "{upstream} server {{ {pages} root /a; location / {{ proxy_pass http://u; }} location = /e.html {{ }} }}"
            ),
            &["status 404 500", "error intercepted {rp.status_code}"],
            "",
        );
        let tls = "proxy_ssl_name a.test; proxy_ssl_trusted_certificate /ca; proxy_ssl_certificate /c; proxy_ssl_certificate_key /k;";
        check(
            &format!("server {{ location / {{ proxy_pass https://a; {tls} }} }}"),
            &["tls_server_name a.test", "tls_trust_pool file /ca", "tls_client_auth /c /k"],
            "",
        );
    }

    // nginx's documentation of `proxy_pass`: with variables the URI is sent as it is, and the address may be that of an upstream.
    #[test]
    fn addresses_of_upstreams() {
        let map = "map $arg_a $m { default a:1; b b:2; } map $arg_a $n { default a:1; b b; }
                   map $arg_a $u { default up; } upstream up { server c:3; }";
        let server = |lines: &str| format!("{map} server {{ set $s http://c:4; location /l/ {{ {lines} }} }}");
        for (lines, parts) in [
            ("proxy_pass https://a;", &["reverse_proxy a:443"][..]),
            ("proxy_pass https://a:8443;", &["reverse_proxy a:8443"]),
            ("proxy_pass http://[::1];", &["reverse_proxy [::1]:80"]),
            ("proxy_pass https://up;", &["reverse_proxy c:3"]),
            ("proxy_pass $s;", &["reverse_proxy c:4"]),
            ("proxy_pass $s/x;", &["rewrite * /x?", "reverse_proxy c:4"]),
            ("set $g up; proxy_pass http://$g;", &["reverse_proxy c:3"]),
            ("proxy_pass http://$m;", &["reverse_proxy {m}"]),
            ("proxy_pass http://$host;", &["reverse_proxy {host}:80"]),
            ("proxy_pass https://$host$request_uri;", &["reverse_proxy {host}:443"]),
            ("proxy_pass http://$host:81$uri;", &["rewrite * {path}?", "reverse_proxy {host}:81"]),
            ("proxy_pass http://a:$server_port;", &["reverse_proxy a:{http.request.local.port}"]),
        ] {
            check(&server(lines), parts, "");
        }
        for (lines, reason) in [
            ("proxy_pass http://$n;", "some values of $n have a port"),
            ("proxy_pass http://$u;", "$u may be the name of an upstream"),
            ("proxy_pass http://$http_host;", "$http_host may have a port or not"),
            ("proxy_pass http://$nothing;", "the variable $nothing has no equivalent in an address"),
            ("proxy_pass $arg_url;", "found no http:// or https://"),
            ("if ($arg_x) { set $t http://a; } proxy_pass $t;", "found no http:// or https://"),
        ] {
            check(&server(lines), &["error 502"], reason);
        }
    }

    // nginx's documentation of `proxy_redirect`, and of `add_header`, which adds no empty field.
    #[test]
    fn fields_of_responses() {
        let location = |path: &str, lines: &str| format!("server {{ location {path} {{ {lines} }} }}");
        let pass = "proxy_pass http://a:1/in/;";
        for (path, lines, want) in [
            ("/out/", "", Some("header_down Location ^http://a:1/in/ {scheme}://{hostport}/out/")),
            ("~ x", "proxy_pass http://a:1;", Some("header_down Location ^http://a:1/ {scheme}://{hostport}/")),
            (
                "/out/",
                "proxy_redirect http://b/ /c/;",
                Some("header_down Location ^http://b/ {scheme}://{hostport}/c/"),
            ),
            ("/out/", "proxy_redirect off;", None),
            ("/out/", "proxy_set_header Host $host;", None),
        ] {
            let pass = if lines.contains("proxy_pass") { "" } else { pass };
            let text = location(path, &format!("{pass} {lines}"));
            check(&text, &want.into_iter().collect::<Vec<_>>(), "");
            assert_eq!(translated(&format!("http {{ {text} }}")).0.contains("Location"), want.is_some(), "{lines}");
        }
        check(&location("/", &format!("{pass} proxy_redirect ~^x /y;")), &["reverse_proxy"], "only two texts");
        let map = "map $http_origin $o { ~^https://(a|b)$ $http_origin; ~c $1$host; }";
        let added = "root /a; location / { add_header X-A $arg_a; add_header X-O $o always; add_header X-H a$arg_a; }";
        check(
            &format!("{map} server {{ {added} }}"),
            &[
                "@has_X_A_2 not vars {query.a} \"\"",
                "header @has_X_O_3 +X-O {o}",
                "+X-H a{query.a}",
                "~(?s)^.*(?:^https://(a|b)$).*$ ${0}",
            ],
            "\"~c $1$host\": the value of an expression has only its groups",
        );
        check(
            "server { root /a; error_page 404 = @f; location @f { rewrite ^ /i.php last; } }",
            &["file_server"],
            "an error page whose rules choose a location",
        );
    }

    // An internal location whose named location has an upstream: the field of that upstream is not followed once more.
    #[test]
    fn internal_locations_with_upstreams() {
        let named = "location @m { proxy_pass http://a:1; }";
        check(
            &format!(
                "server {{ root /a; location /i/ {{ internal; try_files $uri @m; }} location / {{ try_files $uri @m; }} {named} }}"
            ),
            &["header X-Accel-Redirect *", "reverse_proxy a:1"],
            "",
        );
    }

    // nginx's documentation of `limit_req_zone`: requests with an empty key are not counted.
    #[test]
    fn limits_by_a_variable() {
        let zone = "geo $o { default 1; 10.0.0.0/8 0; } map $o $k { 0 \"\"; 1 $binary_remote_addr; }
                    limit_req_zone $k zone=z:1m rate=1r/s;";
        let server = "server { root /a; limit_req zone=z; }";
        check(&format!("{zone} {server}"), &["vars o 1", "map {vars.o} {k} {", "not vars {k} \"\""], "");
        check(&format!("{zone} limit_req_status 444; {server}"), &["rate_limit"], "the status beyond the limit is 429");
        let refused = "geo $o {\nproxy 10.0.0.1;\n} server { return 200 $o; }";
        check(refused, &[], "n:3: not carried over: \"proxy 10.0.0.1\"");
        check(
            "split_clients $remote_addr $v { 50% a; * b; } server { return 200 a; }",
            &[],
            "assigns a share of the clients by a hash",
        );
    }

    // nginx's documentation of `listen`: a Unix socket has no port, and its servers no address in common with others.
    #[test]
    fn a_unix_socket() {
        let text = "server { listen 80; return 200 a; }\nserver { listen unix:/run/a.sock; server_name b.test; return 200 b; }\n";
        let Translation { caddyfile, notes } = translate(text, "nginx.conf", &NoFiles).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        let (first, second) = caddyfile.split_once("http://b.test, http://:80 {\n\tbind unix//run/a.sock\n").unwrap();
        assert!(first.contains("http://:80 {\n") && second.contains("respond * b 200"), "{caddyfile}");
        let both = "server { listen 80; listen unix:/run/a.sock; return 200 a; }\n";
        let Translation { caddyfile, notes } = translate(both, "nginx.conf", &NoFiles).unwrap();
        assert_eq!(notes.len(), 1);
        assert!(caddyfile.contains("write a second site with `bind unix//run/a.sock`"), "{caddyfile}");
    }
}
