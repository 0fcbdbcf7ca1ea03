//! The content of a location: fields, and files or an upstream.

use super::cache::CACHE_STATUS;
use super::rules::{OWN_FIELDS, always_answers, rules_of};
use super::{Translator, active, inherited, own, value};
use crate::location::{Location, Locations, Pattern, pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, only_variable, variables};
use crate::write::{block, quote, rewrite};

/// Statuses to whose responses `add_header` without `always` applies (nginx's documentation of ngx_http_headers_module).
const ADDED: &str = "200 201 204 206 301 302 303 304 307 308";

/// Whether `add_header` without `always` applies to responses with this status.
fn has_added_fields(status: u16) -> bool {
    ADDED.split(' ').any(|added| added == status.to_string())
}

/// Whether a line `add_header` applies to responses with this status.
pub(super) fn is_added(field: &Directive, status: u16) -> bool {
    field.argument(2) == "always" || has_added_fields(status)
}

/// How many named locations may lead to each other.
const NAMED_DEPTH_MAX: usize = 4;

/// Keeps lines in their order where a Caddyfile has another one: there `handle` comes before `route` and `error`, so an access rule would
/// come too late, and `try_files` before `route`, which contains the rules of `rewrite` and `if`. `cache` comes before all of them,
/// `basic_auth` before `error`, and the directives that change the path before `error`, which may be about the path. `vars` comes before these,
/// and may take the path after them.
pub(super) fn in_written_order(lines: Vec<String>) -> Vec<String> {
    let has = |names: &[&str]| lines.iter().any(|line| names.iter().any(|name| line.starts_with(name)));
    let before_error = ["basic_auth ", "forward_auth ", "uri ", "rewrite ", "try_files ", "redir "];
    let changed = lines.iter().position(|line| before_error.iter().any(|name| line.starts_with(name)));
    let takes_changed = changed.is_some_and(|at| lines[at..].iter().any(|line| line.starts_with("vars @")));
    if has(&["handle ", "route ", "cache "]) || has(&["error "]) && changed.is_some() || takes_changed {
        let mut out = Vec::new();
        block(&mut out, "route", lines);
        return out;
    }
    lines
}

impl<'a> Translator<'a> {
    /// The lines of a location; of the server itself without one.
    pub(super) fn content(
        &mut self,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
    ) -> Vec<String> {
        self.content_with(location, all, scope, None)
    }

    /// The lines of a location. `around` is the location that led to this one: its own fields, if they are equal, and its
    /// error pages apply already.
    fn content_with(
        &mut self,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        around: Option<&Location<'a>>,
    ) -> Vec<String> {
        let mut out = Vec::new();
        let blocks = &*location.blocks;
        let own_block = location.own();
        let in_location = !location.is_server();
        let mut scope = scope.clone();
        let is_kept = !std::mem::take(&mut scope.location_kept).is_empty();
        if in_location {
            let is_read = |d: &&Directive| d.name == "location" || has_no_types(d);
            for directive in own_block.block().iter().filter(|d| !is_read(d)) {
                self.report_unread(&mut out, directive, super::tables::READ);
            }
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
        self.choose_pages(&mut out, blocks, around.map_or(&[], |around| &around.blocks), &scope);
        self.internal(&mut out, location);
        let location_blocks = location.location_blocks();
        // An upstream over HTTP gets the whole path; only files and programs are within the folder.
        let sends_path = ["proxy_pass", "grpc_pass"].iter().any(|name| !own(own_block, name).is_empty())
            && own(own_block, "try_files").is_empty()
            && !tests_files(own_block);
        let alias = alias_of(location).filter(|_| !sends_path);
        if alias.is_none() {
            self.root(&mut out, location_blocks, &scope);
        }
        self.script_names(&mut out, location, &mut scope);
        // Rules see the whole path, and tests of files that within the folder of `alias`.
        let is_alias_first = tests_files(own_block);
        if let Some((alias, pattern)) = alias.as_ref().filter(|_| is_alias_first) {
            self.alias(&mut out, alias, pattern, &scope);
        }
        if location_blocks.iter().any(|block| !own(block, "access_log").is_empty())
            && value(location_blocks, "access_log") == Some("off")
        {
            out.push("log_skip".to_owned());
        }
        // nginx compares the length of the content in the location that the path chooses, and not in a named one.
        if !matches!(location.pattern, Pattern::Named(_)) {
            self.body_limit(&mut out, blocks);
        }
        // The other methods do not reach the rules.
        self.other_methods(&mut out, own_block);
        if in_location {
            let mut rules = Vec::new();
            self.paths_of_maps(&mut rules, own_block);
            let staying = self.staying_rules(blocks, &mut scope);
            // After a `break` they have applied already, and only their variables count.
            rules.extend(staying.into_iter().filter(|_| !is_kept));
            if always_answers(own_block) && rules_of(own_block).len() == 1 {
                out.extend(rules);
                return in_written_order(out);
            }
            if !rules.is_empty() {
                block(&mut out, "route", rules);
            }
            if always_answers(own_block) {
                return in_written_order(out);
            }
        }
        if let Some((alias, pattern)) = alias.as_ref().filter(|_| !is_alias_first) {
            self.alias(&mut out, alias, pattern, &scope);
        }
        // A named location for missing files has fields of its own.
        let named = own(own_block, "try_files").first().and_then(|files| files.arguments.last()?.strip_prefix('@'));
        let named = named.and_then(|name| all.named(name));
        let is_for_found = named.is_some_and(|named| !has_equal_fields(blocks, &named.blocks));
        let mut content = Vec::new();
        let mut fields = Vec::new();
        if around.is_none_or(|around| !has_equal_fields(&around.blocks, blocks)) {
            self.fields(&mut fields, blocks, &scope, None);
        }
        let sets_fields = |rule: &&Directive| own(rule, "return").is_empty() && !own(rule, "add_header").is_empty();
        if !fields.is_empty() && own(own_block, "if").iter().any(sets_fields) {
            let name = self.fresh("outer_fields");
            out.push(format!("@{name} not vars {OWN_FIELDS} yes"));
            block(&mut out, &format!("route @{name}"), fields);
        } else if is_for_found {
            content = fields;
        } else {
            out.extend(fields);
        }
        self.limits(&mut out, blocks, &scope);
        self.access(&mut out, blocks, &scope);
        scope.has_user = active(blocks, "auth_basic").is_some() && value(blocks, "satisfy") != Some("any");
        self.source(&mut content, location, &scope);
        match own(own_block, "try_files").first() {
            Some(files) => self.try_files(&mut out, files, location, all, &scope, content),
            None => out.extend(content),
        }
        in_written_order(out)
    }

    /// `client_max_body_size`
    pub(super) fn body_limit(&mut self, out: &mut Vec<String>, blocks: &[&Directive]) {
        if let Some(size) = value(blocks, "client_max_body_size").filter(|size| *size != "0") {
            block(out, "request_body", vec![format!("max_size {}", self::size(size))]);
        }
    }

    /// `internal`: refuses requests whose path no rule has changed. It stands before all lines that change the path.
    pub(super) fn internal(&mut self, out: &mut Vec<String>, location: &Location<'_>) {
        if is_internal(location) {
            let name = self.fresh("from_outside");
            out.push(format!("@{name} `{{path}} == {{orig_path}}`"));
            out.push(format!("error @{name} 404"));
        }
    }

    fn alias(&mut self, out: &mut Vec<String>, alias: &Directive, pattern: &Pattern, scope: &VariableScope) {
        let target = alias.argument(0);
        match pattern {
            Pattern::Prefix { prefix, .. } => {
                out.push(format!("uri strip_prefix {}", quote(prefix.trim_end_matches('/'))));
                match self.expand(out, alias, scope, target) {
                    Some(target) => out.push(format!("root * {}", quote(&target))),
                    None => out.push("root * /nonexistent".to_owned()),
                }
            }
            Pattern::Exact(_) => {
                let (folder, file) = target.rsplit_once('/').unwrap_or(("", target));
                out.push(format!("root * {}", quote(&format!("{folder}/"))));
                out.push(format!("rewrite * {}", quote(&format!("/{file}"))));
            }
            _ => match scope.expand(target) {
                Ok(target) if !scope.capture.is_empty() && target.contains(&format!("{{re.{}.", scope.capture)) => {
                    out.push("root * /".to_owned());
                    out.push(rewrite(&target));
                }
                _ => self.note(out, alias, "in a location with an expression its path has to contain a group"),
            },
        }
    }

    /// `add_header` and `expires` for the last of the blocks. For an answer with a known status only the fields that it gets. Writes nothing if
    /// the site has them.
    pub(super) fn fields(
        &mut self,
        out: &mut Vec<String>,
        blocks: &[&Directive],
        scope: &VariableScope,
        status: Option<u16>,
    ) {
        if self.fields_are_shared {
            return;
        }
        let is_added = status.map(has_added_fields);
        let mut sometimes = Vec::new();
        for field in inherited(blocks, "add_header") {
            let Some(text) = self.expand_path(out, field, scope, field.argument(1)) else { continue };
            // nginx adds no empty field.
            if text.is_empty() {
                continue;
            }
            if let Some(map) = self.map_of_response(field.argument(1)) {
                self.note(out, field, &format!("the map of ${map} is about the response, which it precedes here"));
                continue;
            }
            if self.field_of_response(out, field, &text, blocks, status) {
                continue;
            }
            let always = field.argument(2) == "always" || is_added == Some(true);
            if !always && is_added.is_some() {
                continue;
            }
            let kind = field.argument(0).eq_ignore_ascii_case("content-type");
            let line = format!("{}{} {}", if kind { "" } else { "+" }, field.argument(0), quote(&text));
            let has_cache = super::cache::stores_here(blocks);
            if variables(field.argument(1)).contains(&CACHE_STATUS) && !has_cache {
                continue;
            }
            if only_variable(field.argument(1)) == Some(CACHE_STATUS) {
                // It is empty for a request that the cache does not concern.
                let name = self.fresh(&format!("has_{}", field.argument(0)));
                out.push(format!("@{name} method GET HEAD"));
                let late = if always { "defer".to_owned() } else { format!("match status {ADDED}") };
                block(out, &format!("header @{name}"), vec![line, late]);
                continue;
            }
            if !has_cache && self.may_be_empty(field.argument(1), scope) {
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
                time if time == "epoch" || time.starts_with('-') => Some("no-cache".to_owned()),
                "max" => Some("max-age=315360000".to_owned()),
                time => match seconds(time.strip_prefix('+').unwrap_or(time)) {
                    Some(seconds) => Some(format!("max-age={seconds}")),
                    None => {
                        self.note(out, expires, "only a duration, 'max', 'epoch' and 'off' are carried over");
                        None
                    }
                },
            };
            // It replaces the field of an upstream, and stands beside one of `add_header`.
            let is_control = |field: &&Directive| field.argument(0).eq_ignore_ascii_case("cache-control");
            let sign = if inherited(blocks, "add_header").iter().any(is_control) { "+" } else { "" };
            sometimes.extend(control.map(|control| format!("{sign}Cache-Control {control}")));
        }
        if is_added == Some(true) {
            out.extend(sometimes.into_iter().map(|line| format!("header {line}")));
        } else if !sometimes.is_empty() && is_added.is_none() {
            sometimes.push(format!("match status {ADDED}"));
            // The field is added when the response's status is known.
            block(out, "header", sometimes);
        }
    }

    /// Writes a field whose value has that of a field of the response, which an answer with a known status has not. Returns `false` for other
    /// values.
    fn field_of_response(
        &mut self,
        out: &mut Vec<String>,
        field: &Directive,
        text: &str,
        blocks: &[&Directive],
        status: Option<u16>,
    ) -> bool {
        let value = field.argument(1);
        let of_upstream = |name: &str| name.strip_prefix("upstream_http_").map(|name| name.replace('_', "-"));
        let Some(name) = variables(value).into_iter().find_map(of_upstream) else { return false };
        let hidden = ["proxy_hide_header", "fastcgi_hide_header"].into_iter().flat_map(|hide| inherited(blocks, hide));
        if hidden.into_iter().any(|hide| hide.argument(0).eq_ignore_ascii_case(&name)) {
            self.note(out, field, "the field of the upstream is hidden, and absent here");
            return true;
        }
        let text = text.replace("{rp.header.", "{http.response.header.");
        let mut lines = vec![format!("+{} {}", field.argument(0), quote(&text))];
        let mut conditions = Vec::new();
        // nginx adds no empty field.
        conditions.extend(only_variable(value).map(|_| format!("header {name} *")));
        if field.argument(2) != "always" {
            conditions.push(format!("status {ADDED}"));
        }
        match conditions.is_empty() {
            true => lines.push("defer".to_owned()),
            false => block(&mut lines, "match", conditions),
        }
        if status.is_none() {
            block(out, "header", lines);
        }
        true
    }

    /// The variable in a text whose map is about the response.
    fn map_of_response<'t>(&self, text: &'t str) -> Option<&'t str> {
        variables(text).into_iter().find(|name| self.map_of(name).is_some_and(is_of_response))
    }

    /// The map whose variable has this name.
    pub(super) fn map_of(&self, variable: &str) -> Option<&'a Directive> {
        self.shared.maps.iter().copied().find(|map| map.argument(1).trim_start_matches('$') == variable)
    }

    /// Whether a text is one variable that the request decides and that may be empty.
    pub(super) fn may_be_empty(&self, text: &str, scope: &VariableScope) -> bool {
        let Some(variable) = only_variable(text) else { return false };
        if let Some(map) = self.map_of(variable) {
            return !is_of_response(map);
        }
        scope.set.iter().any(|set| set == variable)
            || ["http_", "cookie_", "arg_", "ssl_"].iter().any(|prefix| variable.starts_with(prefix))
            || ["args", "query_string"].contains(&variable)
    }

    fn try_files(
        &mut self,
        out: &mut Vec<String>,
        files: &Directive,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        content: Vec<String>,
    ) {
        let Some((last, candidates)) = files.arguments.split_last() else { return };
        // nginx joins a name to the text of an `alias`.
        let has_slash = alias_of(location).is_some_and(|(alias, _)| alias.argument(0).ends_with('/'));
        let in_folder = |name: &String| match has_slash && !name.starts_with(['/', '$']) {
            true => format!("/{name}"),
            false => name.clone(),
        };
        let candidates: Vec<_> = candidates.iter().map(in_folder).collect();
        let Some(candidates) = self.candidates(out, files, &candidates, scope) else { return };
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
                Some(name) if self.named.iter().any(|around| around == name) || self.named.len() == NAMED_DEPTH_MAX => {
                    out.push("error 500".to_owned());
                    return self.note(out, files, "named locations lead to each other; requests fail with 500");
                }
                Some(name) => {
                    let Some(named) = all.named(name) else {
                        out.push("error 500".to_owned());
                        return self.note(out, files, "found no location of this name");
                    };
                    self.named.push(name.to_owned());
                    let lines = self.content_with(named, all, scope, Some(location));
                    self.named.pop();
                    lines
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
        if !leads_elsewhere(last, location, all)
            && let Some(last) = self.expand(out, files, scope, last)
        {
            let last = last.replace("{?query}", "?{query}");
            // The path within the folder of `alias`.
            let stem = match alias_of(location) {
                Some((_, Pattern::Prefix { prefix, .. })) => prefix.trim_end_matches('/').to_owned(),
                _ => String::new(),
            };
            let last = last.strip_prefix(&stem).unwrap_or(&last);
            out.push(format!("try_files {candidates} {}", quote(last)));
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
        scope: &VariableScope,
    ) -> Option<String> {
        let mut patterns = Vec::new();
        for candidate in candidates {
            // The matcher `file` would find other files by such a pattern.
            if candidate.contains(['?', '*', '[']) {
                self.remark(
                    out,
                    files,
                    &format!("'{candidate}' is a file's name with that character, and is left out"),
                );
                continue;
            }
            if !candidate.starts_with(['/', '$']) {
                let reason = format!("'{candidate}' without a slash is no file in the root, and is left out");
                self.remark(out, files, &reason);
                continue;
            }
            patterns.push(quote(&self.expand(out, files, scope, candidate)?));
        }
        // Without any the matcher would look for the path.
        Some(if patterns.is_empty() { "/no/such/file".to_owned() } else { patterns.join(" ") })
    }

    /// The handler that makes the response.
    fn source(&mut self, out: &mut Vec<String>, location: &Location<'a>, scope: &VariableScope) {
        let own_block = location.own();
        let blocks = &*location.blocks;
        if let Some(pass) = own(own_block, "proxy_pass").first() {
            return self.proxy(out, pass, location, scope);
        }
        if let Some(pass) = own(own_block, "grpc_pass").first() {
            let address = pass.argument(0);
            let (scheme, address) = address.split_once("://").unwrap_or(("grpc", address));
            let scheme = if scheme == "grpcs" { "https" } else { "h2c" };
            let hosts: Vec<String> = self
                .upstream_addresses(address, if scheme == "https" { 443 } else { 80 })
                .iter()
                .map(|host| format!("{scheme}://{host}"))
                .collect();
            out.push(format!("reverse_proxy {}", hosts.join(" ")));
            return;
        }
        if let Some(pass) = own(own_block, "fastcgi_pass").first() {
            let hidden = self.cache(out, "fastcgi", location, scope);
            return self.fastcgi(out, pass, location, scope, hidden);
        }
        if !own(own_block, "stub_status").is_empty() {
            out.push("metrics".to_owned());
            return;
        }
        if ["uwsgi_pass", "scgi_pass"].iter().any(|name| !own(own_block, name).is_empty()) {
            out.push("error 502".to_owned());
            return;
        }
        if value(blocks, "root").is_none() && alias_of(location).is_none() {
            out.push("# There is no root; nginx serves its own folder 'html' here.".to_owned());
            out.push("error 404".to_owned());
            return;
        }
        if let Some(kind) = value(&blocks[1..], "default_type") {
            // Without types the default is for all files.
            let is_for_all = inherited(&blocks[1..], "types").last().is_some_and(|types| has_no_types(types));
            let only_absent = if is_for_all { "" } else { "?" };
            out.push(format!("header {only_absent}Content-Type {}", quote(kind)));
        }
        let mut lines = Vec::new();
        if let Some(index) = inherited(blocks, "index").last() {
            let files = index.arguments.iter().map(String::as_str).filter(|file| !file.starts_with('/'));
            let files: Vec<_> = files.collect();
            lines.push(format!("index {}", if files.is_empty() { "index.html".to_owned() } else { files.join(" ") }));
        } else {
            lines.push("index index.html".to_owned());
        }
        if value(blocks, "autoindex") == Some("on") {
            lines.push("browse".to_owned());
        }
        if value(blocks, "gzip_static") == Some("on") {
            lines.push("precompressed gzip".to_owned());
        }
        lines.extend(self.hidden(Some(location)));
        block(out, "file_server", lines);
    }
}

/// Whether a map is about a variable of the response.
fn is_of_response(map: &Directive) -> bool {
    let of_response = |name: &str| ["sent_http_", "upstream_", "status"].iter().any(|p| name.starts_with(p));
    variables(map.argument(0)).into_iter().any(of_response)
}

/// Whether a server and all of its locations have the same lines `add_header` and `expires`, whose values the request does not decide, and no
/// cache, which must not store them.
pub(super) fn has_shared_fields(blocks: &[&Directive]) -> bool {
    fn has(block: &Directive, names: &[&str]) -> bool {
        block.block().iter().any(|directive| names.contains(&&*directive.name) || has(directive, names))
    }
    let Some(server) = blocks.last() else { return false };
    let fields = ["add_header", "expires"];
    let within = server.block().iter().filter(|directive| directive.block.is_some());
    let lines: Vec<_> = fields.iter().flat_map(|name| inherited(blocks, name)).collect();
    !lines.is_empty()
        && lines.iter().all(|line| line.arguments.iter().all(|word| !word.contains('$')))
        && !within.into_iter().any(|block| has(block, &fields))
        && !blocks.iter().any(|block| has(block, &["proxy_cache", "fastcgi_cache"]))
}

/// Whether two locations have the same lines `add_header` and `expires`.
pub(super) fn has_equal_fields(one: &[&Directive], other: &[&Directive]) -> bool {
    ["add_header", "expires"].iter().all(|name| inherited(one, name) == inherited(other, name))
}

/// Whether a directive is `types { }`.
pub(super) fn has_no_types(directive: &Directive) -> bool {
    directive.name == "types" && directive.block().is_empty()
}

/// Whether an `if` of a block tests files.
fn tests_files(owner: &Directive) -> bool {
    own(owner, "if").iter().any(|rule| ["-f", "-d", "-e"].iter().any(|test| rule.argument(0).ends_with(test)))
}

/// The `alias` that applies in a location, its own or that of a location around it, and the pattern of the location that has it.
pub(super) fn alias_of<'a>(location: &Location<'a>) -> Option<(&'a Directive, Pattern)> {
    let location_blocks = location.location_blocks().iter().rev();
    let mut with_folder =
        location_blocks.filter(|block| block.block().iter().any(|d| matches!(&*d.name, "alias" | "root")));
    let owner = *with_folder.next()?;
    Some((*own(owner, "alias").last()?, pattern(owner).ok()?))
}

/// Whether a location, or one around it, has `internal`: only rules may lead to it. A named one is never chosen by a path.
pub(super) fn is_internal(location: &Location<'_>) -> bool {
    !matches!(location.pattern, Pattern::Named(_))
        && location.location_blocks().iter().any(|block| !own(block, "internal").is_empty())
}

/// Whether the last word of `try_files` is for another location, or for one that only a request decides.
pub(super) fn leads_elsewhere(last: &str, location: &Location<'_>, all: &Locations<'_>) -> bool {
    let path = last.split('?').next().unwrap_or_default();
    let path = path.strip_suffix("$is_args$args").unwrap_or(path);
    if path.contains('$') {
        return true;
    }
    all.chosen(path).is_none_or(|chosen| !std::ptr::eq(chosen.own(), location.own()))
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
