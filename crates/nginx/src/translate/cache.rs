//! `proxy_cache` and `fastcgi_cache` as `cache`: the zone's directory, lifetimes, keys, and the requests that skip the
//! cache.
//!
//! Settings that RFC 9111 or our cache treats differently are named; where a difference could show one client's
//! response to another, there is no `cache` at all.
//!
//! - `key`: `proxy_cache_key`
//! - `lifetimes`: `proxy_cache_valid`

mod key;
mod lifetimes;

use std::collections::BTreeSet;

use self::key::KeyKind;
use self::lifetimes::{duration, list};
use super::units::{seconds, size};
use super::{Translator, active, inherited, own, value};
use crate::location::Location;
use crate::parse::Directive;
use crate::variables::{VariableScope, variables};
use crate::write::{block, quote};

/// Statuses of an origin for which `stale` sends a stale response, as words of `proxy_cache_use_stale`.
const OUTAGES: &[&str] = &["http_500", "http_502", "http_503", "http_504"];

/// Seconds that a request waits for the fetch of another one, here and by nginx's default.
const LOCK_SECONDS: u64 = 5;

/// The end of a directive's name, whether a line of it is named, and the reason.
type Setting = (&'static str, fn(&Directive) -> bool, &'static str);

impl<'a> Translator<'a> {
    /// Writes `cache` for a location whose content comes from `pass`: `proxy` or `fastcgi`. Returns the lines for the
    /// handler after it that hide fields of the upstream.
    pub(super) fn write_cache(
        &mut self,
        out: &mut Vec<String>,
        pass: &str,
        location: &Location<'a>,
        scope: &VariableScope,
    ) -> Vec<String> {
        let hidden = inherited(&location.blocks, &format!("{pass}_hide_header"));
        let mut hidden: Vec<&str> = hidden.iter().map(|directive| directive.argument(0)).collect();
        if let Some(lines) = self.cache_lines(out, pass, location, scope) {
            // nginx's cache sees hidden fields, except those that it ignores.
            let ignored = inherited(&location.blocks, &format!("{pass}_ignore_headers"));
            let is_ignored = |field: &str| {
                ignored.iter().flat_map(|directive| &directive.arguments).any(|other| other.eq_ignore_ascii_case(field))
            };
            out.extend(hidden.iter().filter(|field| !is_ignored(field)).map(|field| format!("header -{field}")));
            hidden.retain(|field| is_ignored(field));
            out.extend(lines);
        }
        hidden.into_iter().map(|field| format!("header_down -{field}")).collect()
    }

    /// Returns the lines of the cache; the notes and matchers go to `out`. `None` without a cache.
    fn cache_lines(
        &mut self,
        out: &mut Vec<String>,
        pass: &str,
        location: &Location<'a>,
        scope: &VariableScope,
    ) -> Option<Vec<String>> {
        let blocks = &*location.blocks;
        let named = |rest: &str| format!("{pass}_{rest}");
        let zone = active(blocks, &named("cache"))?;
        let Some(path) = self.shared.caches.get(zone.argument(0)).copied() else {
            self.note(out, zone, &format!("found no '{pass}_cache_path' with this zone; nothing is stored"));
            return None;
        };
        if let Some(buffering) = inherited(blocks, &named("buffering")).last().filter(|d| d.argument(0) == "off") {
            self.note(out, buffering, "nginx stores no response that it does not buffer, so there is no `cache`");
            return None;
        }
        let mut lines = Vec::new();
        let key = self.cache_key(out, &mut lines, pass, location, scope)?;
        let matcher = self.skipping(out, pass, blocks, scope)?;
        if !self.has_cache {
            self.has_cache = true;
            let reason = "a lifetime of the configuration is not for requests with a cookie, credentials or a client \
                          certificate, X-Accel-Expires does not count, content above 8 MiB is not stored, and the \
                          application's Vary and no-cache have the meaning of RFC 9111";
            self.remark(out, zone, reason);
        }
        if key == KeyKind::Lasting {
            self.cache_directory(out, &mut lines, path);
        }
        let lifetimes = self.read_lifetimes(out, pass, blocks);
        lines.push(format!("ttl {}", duration(lifetimes.ttl)));
        if !lifetimes.additional.is_empty() {
            lines.push(format!("allowed_additional_status_codes {}", list(&lifetimes.additional)));
        }
        self.write_stale(out, &mut lines, pass, blocks);
        self.write_locks(out, &mut lines, pass, blocks);
        // nginx ignores Cache-Control of requests.
        lines.push("mode bypass_request".to_owned());
        self.write_cache_settings(out, pass, blocks);
        let mut text = Vec::new();
        block(&mut text, &format!("cache{matcher}"), lines);
        for (time, statuses) in lifetimes.others {
            text.push(match time {
                0 => "# nginx stores these only with a lifetime of the application's. Browsers ignore s-maxage."
                    .to_owned(),
                _ => "# Another lifetime, also for requests with a cookie, as in nginx. Browsers ignore s-maxage."
                    .to_owned(),
            });
            let mut only = Vec::new();
            block(&mut only, "match", vec![format!("status {}", list(&statuses)), "header !Expires".to_owned()]);
            only.insert(0, format!("?Cache-Control s-maxage={time}"));
            block(&mut text, "header", only);
        }
        Some(text)
    }

    /// Returns the matcher of requests that the cache handles, with a space before it, or an empty text for all. `None`
    /// after a note: the cache would answer requests that nginx lets pass.
    fn skipping(
        &mut self,
        out: &mut Vec<String>,
        pass: &str,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) -> Option<String> {
        let mut conditions: Vec<String> = Vec::new();
        let lists = [format!("{pass}_cache_bypass"), format!("{pass}_no_cache")].map(|name| inherited(blocks, &name));
        let words = |list: &[&Directive]| -> BTreeSet<String> {
            list.iter().flat_map(|directive| directive.arguments.iter().cloned()).collect()
        };
        let [bypass, no_cache] = [words(&lists[0]), words(&lists[1])];
        for (index, directive) in
            lists.iter().enumerate().flat_map(|(index, list)| list.iter().map(move |d| (index, *d)))
        {
            let other = if index == 0 { &no_cache } else { &bypass };
            if directive.arguments.iter().any(|word| !other.contains(word)) {
                let reason = match index {
                    0 => "the response to such a request does not replace the stored one",
                    _ => "such a request is not answered with a stored response either",
                };
                self.remark(out, directive, reason);
            }
            for word in &directive.arguments {
                let found = variables(word);
                let literal = found
                    .iter()
                    .fold(word.replace(['{', '}'], ""), |text, name| text.replacen(&format!("${name}"), "", 1));
                if !literal.is_empty() && literal != "0" {
                    self.note(
                        out,
                        directive,
                        "a text that is never empty, so nginx stores nothing, or answers nothing from it",
                    );
                    return None;
                }
                for variable in found {
                    let of_response = ["sent_http_", "upstream_http_", "upstream_status", "status"];
                    let is_early = !of_response.iter().any(|start| variable.starts_with(start));
                    match scope.expand(&format!("${variable}")).ok().filter(|_| is_early) {
                        Some(placeholder) if !conditions.contains(&placeholder) => conditions.push(placeholder),
                        Some(_) => {}
                        None => {
                            let reason = match is_early {
                                true => {
                                    format!("the variable ${variable} has no equivalent here, so nothing is stored")
                                }
                                false => {
                                    "a response cannot decide this, except by its Cache-Control; nothing is stored"
                                        .into()
                                }
                            };
                            self.note(out, directive, &reason);
                            return None;
                        }
                    }
                }
            }
        }
        if conditions.is_empty() {
            return Some(String::new());
        }
        let name = self.fresh("cacheable");
        match &*conditions {
            [one] => out.push(format!("@{name} vars {one} \"\" 0")),
            several => {
                // Each is empty or 0. Several lines `vars` would be alternatives.
                let lines = several.iter().map(|one| format!("not vars_regexp {one} `(?s)^(?:0.|[^0])`")).collect();
                block(out, &format!("@{name}"), lines);
            }
        }
        Some(format!(" @{name}"))
    }

    fn cache_directory(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, path: &Directive) {
        let word = |key: &str| path.arguments.iter().find_map(|word| word.strip_prefix(key));
        let bound = match word("max_size=").map(size) {
            Some(size) => size,
            None => {
                self.remark(out, path, "without 'max_size' nginx has no bound; here it is 1 GiB");
                "1GiB".to_owned()
            }
        };
        if word("purger=").is_some_and(|purger| purger == "on") {
            self.note(out, path, "purger: the admin API removes responses, `DELETE /causeway/cache`");
        }
        let mut configuration = Vec::new();
        block(&mut configuration, "configuration", vec![format!("directory_size {bound}")]);
        configuration.insert(0, format!("path {}", quote(path.argument(0))));
        block(lines, "simplefs", configuration);
    }

    fn write_stale(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, pass: &str, blocks: &[&Directive]) {
        let Some(directive) = inherited(blocks, &format!("{pass}_cache_use_stale")).last().copied() else { return };
        let has = |word: &str| directive.arguments.iter().any(|other| other == word);
        if has("off") {
            return;
        }
        if OUTAGES.iter().chain(&["error", "timeout", "invalid_header"]).any(|word| has(word)) {
            // nginx sets no bound, as long as the response is requested now and then.
            lines.push("stale 365d".to_owned());
            let missing: Vec<&str> = OUTAGES.iter().filter(|word| !has(word)).map(|word| &word[5..]).collect();
            if !missing.is_empty() {
                let reason =
                    format!("a stale response also takes the place of the application's own {}", missing.join(", "));
                self.remark(out, directive, &reason);
            }
        }
        if has("updating") {
            let reason = "updating: the application permits a stale response during an update, with \
                          `Cache-Control: stale-while-revalidate=60`";
            self.note(out, directive, reason);
        }
        for status in ["403", "404", "429"] {
            if has(&format!("http_{status}")) {
                let reason = format!("http_{status}: a stale response takes the place of 500, 502, 503 and 504 only");
                self.note(out, directive, &reason);
            }
        }
    }

    fn write_locks(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, pass: &str, blocks: &[&Directive]) {
        if value(blocks, &format!("{pass}_cache_lock")) != Some("on") {
            lines.push("disable_coalescing".to_owned());
            return;
        }
        for name in ["timeout", "age"] {
            for directive in inherited(blocks, &format!("{pass}_cache_lock_{name}")) {
                if seconds(directive.argument(0)) != Some(LOCK_SECONDS) {
                    self.note(
                        out,
                        directive,
                        "a request waits for 5 s at most, after which the others do not wait either",
                    );
                }
            }
        }
    }

    /// Names the settings that our cache does not have.
    fn write_cache_settings(&mut self, out: &mut Vec<String>, pass: &str, blocks: &[&Directive]) {
        let is_hidden = |field: &str| {
            let hidden = inherited(blocks, &format!("{pass}_hide_header"));
            hidden.iter().any(|directive| directive.argument(0).eq_ignore_ascii_case(field))
        };
        for directive in inherited(blocks, &format!("{pass}_ignore_headers")) {
            // A hidden field is removed before the response reaches the cache. X-Accel-* never count.
            let counts = |field: &&String| !field.to_ascii_lowercase().starts_with("x-accel-") && !is_hidden(field);
            let fields: Vec<&str> = directive.arguments.iter().filter(counts).map(String::as_str).collect();
            if !fields.is_empty() {
                let reason = format!(
                    "{} of a response counts for the cache; `header_down -{}` in `reverse_proxy` removes such a field, also for clients",
                    fields.join(" and "),
                    fields[0]
                );
                self.note(out, directive, &reason);
            }
        }
        let settings: [Setting; 5] = [
            ("cache_min_uses", |d| d.argument(0) != "1", "the first response is stored"),
            (
                "cache_methods",
                |d| d.arguments.iter().any(|method| !matches!(method.as_str(), "GET" | "HEAD")),
                "only responses to GET are stored, and answer GET and HEAD",
            ),
            ("cache_convert_head", |d| d.argument(0) == "off", "the stored response to GET also answers HEAD"),
            (
                "cache_background_update",
                |d| d.argument(0) == "on",
                "a response with `stale-while-revalidate` is updated so; others are validated first",
            ),
            ("cache_purge", |_| true, "the admin API removes responses, `DELETE /causeway/cache`"),
        ];
        for (name, is_named, reason) in settings {
            for directive in inherited(blocks, &format!("{pass}_{name}")) {
                if is_named(directive) {
                    self.note(out, directive, reason);
                }
            }
        }
    }
}

/// Returns whether a location, with the blocks around it, has a cache.
pub(super) fn stores_here(blocks: &[&Directive]) -> bool {
    let is_on = |pass: &str| value(blocks, &format!("{pass}_cache")).is_some_and(|zone| zone != "off");
    let passes =
        |pass: &str| blocks.last().is_some_and(|own_block| !own(own_block, &format!("{pass}_pass")).is_empty());
    ["proxy", "fastcgi"].into_iter().any(|pass| is_on(pass) && passes(pass))
}

/// The variable for which [`cache_status`] makes a placeholder.
pub(super) const CACHE_STATUS: &str = "upstream_cache_status";

/// Returns the lines of a `map` from Cache-Status to nginx's words.
pub(super) fn cache_status() -> Vec<String> {
    let words = [
        ("stale-if-error|ttl=-", "STALE"),
        ("hit|collapsed", "HIT"),
        ("fwd-status=304", "REVALIDATED"),
        ("fwd=stale", "EXPIRED"),
        ("-miss", "MISS"),
        ("fwd=method", "\"\""),
    ];
    let mut lines: Vec<String> = words.map(|(expression, word)| format!("~{expression} {word}")).into();
    lines.push("default BYPASS".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::super::tests::translated;

    /// Translates the lines of a location with a cache; returns the Caddyfile and the notes.
    fn cached(lines: &str) -> (String, String) {
        let text = format!(
            "http {{ proxy_cache_path /c keys_zone=z:1m max_size=1g; fastcgi_cache_path /f keys_zone=f:1m max_size=1g;
             server {{ location / {{\n{lines}\n}} }} }}"
        );
        translated(&text)
    }

    #[test]
    fn settings_with_an_equivalent() {
        let pass = "proxy_pass http://a; proxy_cache z;";
        for (lines, want) in [
            ("", &["cache {", "ttl 0s", "directory_size 1GiB", "mode bypass_request", "disable_coalescing"][..]),
            ("proxy_cache_valid 5m;", &["ttl 5m", "allowed_additional_status_codes 302"]),
            ("proxy_cache_valid 200 5m; proxy_cache_valid 404 1m;", &["?Cache-Control s-maxage=60", "status 404"]),
            ("proxy_cache_use_stale error http_500 http_502 http_503 http_504;", &["stale 365d"]),
            ("proxy_cache_key $host$uri;", &["disable_scheme", "disable_query"]),
            ("proxy_cache_key $scheme$host$request_uri$http_x_a;", &["headers x-a"]),
            ("proxy_no_cache $cookie_s; proxy_cache_bypass $cookie_s;", &["vars {cookie.s} \"\" 0"]),
            (
                "proxy_no_cache $cookie_s$arg_x; proxy_cache_bypass $cookie_s$arg_x;",
                &["not vars_regexp {cookie.s} ", "not vars_regexp {query.x} "],
            ),
            (
                "proxy_ignore_headers Set-Cookie X-Accel-Expires; proxy_hide_header Set-Cookie;",
                &["header_down -Set-Cookie"],
            ),
            ("proxy_cache_min_uses 1; proxy_cache_methods GET HEAD; proxy_cache_revalidate on;", &["cache {"]),
        ] {
            let (caddyfile, notes) = cached(&format!("{pass}\n{lines}"));
            for line in want {
                assert!(caddyfile.contains(line), "{lines}: {line}\n{caddyfile}");
            }
            // Only the general differences.
            assert!(
                notes.starts_with("n:3: unlike nginx: \"proxy_cache z\"") && !notes.contains('\n'),
                "{lines}: {notes}"
            );
        }
        let (caddyfile, notes) = cached(&format!("{pass}\nproxy_cache_lock on;"));
        assert!(!caddyfile.contains("disable_coalescing") && !notes.contains('\n'), "{caddyfile}");
        // An application may read the client's URI, which is not that after a rewrite.
        let (caddyfile, notes) = cached(&format!("{pass}\nrewrite ^/a /b break;"));
        assert!(caddyfile.contains("template {scheme}://{hostport}{http.request.orig_uri}"), "{caddyfile}");
        assert!(!caddyfile.contains("simplefs") && notes.contains("in memory only"), "{notes}");
        // The upstream of a request is a part of nginx's key.
        let (caddyfile, _) = cached("proxy_pass http://$arg_to:1; proxy_cache z;");
        assert!(caddyfile.contains("template {scheme}{query.to}:1{http.request.orig_uri}"), "{caddyfile}");
        let php = "fastcgi_pass a:1; fastcgi_cache f; fastcgi_cache_key $scheme$host$request_uri;";
        let (caddyfile, _) = cached(php);
        assert!(caddyfile.contains("template {scheme}://{hostport}{http.request.orig_uri}"), "{caddyfile}");
    }

    #[test]
    fn unsupported_settings_are_reported() {
        let pass = "proxy_pass http://a; proxy_cache z;";
        for (lines, want) in [
            (
                "proxy_cache_use_stale updating;",
                "n:4: not carried over: \"proxy_cache_use_stale updating\": updating: the application",
            ),
            ("proxy_cache_use_stale http_404;", "http_404: a stale response takes the place of 500"),
            ("proxy_cache_use_stale error http_500;", "takes the place of the application's own 502, 503, 504"),
            ("proxy_cache_min_uses 3;", "the first response is stored"),
            ("proxy_cache_methods GET POST;", "only responses to GET are stored"),
            ("proxy_cache_convert_head off;", "the stored response to GET also answers HEAD"),
            ("proxy_cache_background_update on;", "stale-while-revalidate"),
            ("proxy_cache_purge PURGE;", "DELETE /causeway/cache"),
            ("proxy_ignore_headers Cache-Control;", "Cache-Control of a response counts"),
            ("proxy_cache_lock on; proxy_cache_lock_timeout 1m;", "5 s at most"),
            ("proxy_cache_valid 206 1m;", "206 depend on fields that are not in the key"),
            ("proxy_cache_valid 200 soon;", "found no duration"),
            ("proxy_cache_valid ok 1m;", "found 'ok', expected a status or 'any'"),
            ("proxy_cache_bypass $arg_a;", "does not replace the stored one"),
            ("proxy_no_cache $arg_a;", "not answered with a stored response either"),
            ("proxy_cache_key $host$request_uri$cookie_a;", "in memory only"),
        ] {
            let (caddyfile, notes) = cached(&format!("{pass}\n{lines}"));
            assert!(notes.contains(want) && caddyfile.contains(want), "{lines}: {notes}");
            assert!(caddyfile.contains("cache {") || caddyfile.contains("cache @"), "{lines}: {caddyfile}");
        }
    }

    /// Where a part is missing that keeps responses apart, nothing is stored.
    #[test]
    fn no_cache_rather_than_an_incorrect_one() {
        for (lines, want) in [
            ("proxy_pass http://a; proxy_cache other;", "found no 'proxy_cache_path' with this zone"),
            (
                "proxy_pass http://a; proxy_cache z; proxy_buffering off;",
                "nginx stores no response that it does not buffer",
            ),
            ("proxy_pass http://a; proxy_cache z; proxy_cache_key $host$uri$nothing;", "the variable $nothing"),
            ("proxy_pass http://$nothing; proxy_cache z;", "the variable $nothing"),
            ("proxy_pass http://a; proxy_cache z; proxy_no_cache $nothing;", "the variable $nothing"),
            ("proxy_pass http://a; proxy_cache z; proxy_no_cache $upstream_http_x;", "a response cannot decide this"),
            ("proxy_pass http://a; proxy_cache z; proxy_no_cache 1;", "a text that is never empty"),
            ("fastcgi_pass a:1; fastcgi_cache f;", "there is no 'fastcgi_cache_key'"),
        ] {
            let (caddyfile, notes) = cached(lines);
            assert!(notes.contains(want), "{lines}: {notes}");
            assert!(caddyfile.contains("reverse_proxy") || caddyfile.contains("error 502"), "{lines}: {caddyfile}");
            assert!(!caddyfile.contains("cache {") && !caddyfile.contains("cache @"), "{lines}: {caddyfile}");
        }
        let (caddyfile, notes) = cached("proxy_pass http://a; proxy_cache off; proxy_cache_min_uses 3;");
        assert!(notes.is_empty() && !caddyfile.contains("cache"), "{notes}");
    }
}
