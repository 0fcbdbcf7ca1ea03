//! The content of a location: its own lines in their order, and files or an upstream.

use super::accel::replace_fields;
use super::conditions::{HeldFields, holds_content};
use super::directories::DirectoryPlace;
use super::error_pages::passes;
use super::fields::has_equal_fields;
use super::locations::{leads_nowhere, split_last, with_query};
use super::path_case::is_plain_path;
use super::rules::{HELD_CONDITION, always_answers, rules_of};
use super::site::compression;
use super::units::size;
use super::upstream::{own_server_field, without_kept_fields};
use super::{Translator, active, inherited, own, value};
use crate::location::{Location, Locations, Pattern, pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, without_query};
use crate::write::{block, quote, rewrite};

/// A variable: the path below the directory of an `alias`.
const DIRECTORY_PATH: &str = "directory_path";

/// A path that no file has.
const NO_FILE: &str = "/no/such/file";

/// How many named locations may lead to each other.
const NAMED_DEPTH_MAX: usize = 4;

/// Keeps lines in their order where a Caddyfile has another one: there `handle` comes before `route` and `error`, so an
/// access rule would come too late, and `try_files` before `route`, which contains the rules of `rewrite` and `if`.
/// `cache` comes before all of them, `basic_auth` before `error`, and the directives that change the path before
/// `error`, which may be about the path. `vars` comes before these, and may take the path after them. `header` comes
/// before `error`, whose response must not have a field for another one.
pub(super) fn in_written_order(lines: Vec<String>) -> Vec<String> {
    let has = |names: &[&str]| lines.iter().any(|line| names.iter().any(|name| line.starts_with(name)));
    let before_error = ["basic_auth ", "forward_auth ", "uri ", "rewrite ", "try_files ", "redir "];
    let changed = lines.iter().position(|line| before_error.iter().any(|name| line.starts_with(name)));
    let takes_changed = changed.is_some_and(|at| lines[at..].iter().any(|line| line.starts_with("vars @")));
    let refuses_before_fields = {
        let mut top_level = top_level(&lines);
        top_level.any(|line| line.starts_with("error ")) && top_level.any(|line| line.starts_with("header "))
    };
    if has(&["handle ", "route ", "cache "])
        || has(&["error "]) && changed.is_some()
        || takes_changed
        || refuses_before_fields
    {
        let mut out = Vec::new();
        block(&mut out, "route", lines);
        return out;
    }
    lines
}

/// The lines that are in no block.
fn top_level(lines: &[String]) -> impl Iterator<Item = &String> {
    let mut depth = 0_usize;
    lines.iter().filter(move |line| {
        depth = depth.saturating_sub(usize::from(*line == "}"));
        let at = depth;
        depth += usize::from(line.ends_with('{'));
        at == 0
    })
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

    /// The lines of a location. `outer` is the location that led to this one: its own fields, if they are equal, and
    /// its error pages apply already.
    fn content_with(
        &mut self,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        outer: Option<&Location<'a>>,
    ) -> Vec<String> {
        let mut out = Vec::new();
        let blocks = &*location.blocks;
        let own_block = location.own();
        let in_location = !location.is_server();
        let mut scope = scope.clone();
        let is_kept = !std::mem::take(&mut scope.location_kept).is_empty();
        if in_location {
            self.note_server_only(&mut out, own_block);
        }
        self.choose_pages(&mut out, blocks, outer.map_or(&[], |outer| &outer.blocks), &scope);
        self.write_internal(&mut out, location, &scope);
        let location_blocks = location.location_blocks();
        // An upstream over HTTP gets the whole path; only files and programs are within the directory.
        let sends_path = ["proxy_pass", "grpc_pass"].iter().any(|name| !own(own_block, name).is_empty())
            && own(own_block, "try_files").is_empty()
            && !tests_files(own_block);
        let alias = alias_of(location).filter(|_| !sends_path);
        if alias.is_none() {
            self.write_root(&mut out, location_blocks, &scope);
        }
        self.write_script_names(&mut out, location, &mut scope);
        // Rules see the whole path, and tests of files that within the directory of `alias`.
        let is_alias_first = tests_files(own_block);
        let files = own(own_block, "try_files").first().copied();
        let keeps_path = files.and_then(split_last).is_some_and(|(last, _)| !last.starts_with(['=', '@']));
        if let Some((alias, pattern)) = alias.as_ref().filter(|_| is_alias_first) {
            self.write_alias(&mut out, alias, pattern, &scope, keeps_path);
        }
        if location_blocks.iter().any(|block| !own(block, "access_log").is_empty())
            && value(location_blocks, "access_log") == Some("off")
        {
            out.push("log_skip".to_owned());
        }
        // nginx compares the length of the content in the location that the path chooses, and not in a named one.
        if !matches!(location.pattern, Pattern::Named(_)) {
            self.write_body_limit(&mut out, blocks);
        }
        // The other methods do not reach the rules.
        self.write_other_methods(&mut out, blocks, &scope);
        // A named location for missing files has fields of its own, and its own compression.
        let named = files.and_then(|files| files.arguments.last()?.strip_prefix('@'));
        let named = named.and_then(|name| all.named(name));
        let compressed = compression(blocks);
        let is_equal = |other: &Location<'_>| compression(&other.blocks) == compressed;
        let is_compressed = named.is_none_or(is_equal);
        if self.gzip_of_locations && is_compressed && !outer.is_some_and(is_equal) {
            // Before the rules, whose answers are compressed too.
            out.extend(compressed.clone());
        }
        if in_location && self.write_rules(&mut out, location, &mut scope, is_kept) {
            return in_written_order(out);
        }
        let held_fields = std::mem::take(&mut self.held_fields);
        // A named location gets the whole path, so that only the files are below the directory of `alias`.
        let mut directory = None;
        if let Some((alias, pattern)) = &alias {
            let is_prefix = matches!(pattern, Pattern::Prefix { .. });
            if let Some(files) = files.filter(|_| named.is_some() && (is_alias_first || !is_prefix)) {
                self.remark(&mut out, files, "the named location gets the path within the directory of 'alias'");
            }
            if named.is_some() && is_prefix && !is_alias_first {
                directory = self.write_directory(&mut out, alias, pattern, location, &scope, keeps_path);
            } else if !is_alias_first {
                self.write_alias(&mut out, alias, pattern, &scope, keeps_path);
            }
        }
        let is_for_found = named.is_some_and(|named| !has_equal_fields(blocks, &named.blocks));
        let mut content = Vec::new();
        let has_own_fields = outer.is_none_or(|outer| !has_equal_fields(&outer.blocks, blocks));
        let (mut fields, mut decided) = self.location_fields(blocks, &scope, has_own_fields, &held_fields);
        let outer_fields = self.outer_fields.clone();
        if self.may_leave(location, all, named) {
            self.outer_fields.keep_from_targets(&mut fields, &mut decided);
        }
        if is_for_found {
            content = fields;
            content.append(&mut decided);
        } else {
            out.extend(fields);
        }
        self.write_limits(&mut out, blocks, &scope);
        self.write_access(&mut out, blocks, &scope);
        out.extend(decided);
        scope.has_user = active(blocks, "auth_basic").is_some() && value(blocks, "satisfy") != Some("any");
        if self.gzip_of_locations && !is_compressed {
            content.extend(compression(blocks));
        }
        self.write_sources(&mut content, location, &scope);
        match files {
            Some(files) => self.write_try_files(&mut out, files, location, all, &scope, (directory, content)),
            None => out.extend(content),
        }
        self.outer_fields = outer_fields;
        in_written_order(out)
    }

    /// Reports the lines of a location that nothing reads, and those that count only in a server.
    fn note_server_only(&mut self, out: &mut Vec<String>, own_block: &Directive) {
        let is_read = |d: &&Directive| d.name == "location" || has_no_types(d);
        for directive in own_block.block().iter().filter(|d| !is_read(d)) {
            self.report_unread(out, directive, super::tables::READ);
        }
        for directive in own_block.block() {
            let is_server_only =
                matches!(&*directive.name, "set_real_ip_from" | "real_ip_header" | "real_ip_recursive");
            if is_server_only || directive.name == "access_log" && directive.argument(0) != "off" {
                self.note(out, directive, "carried over only from a server or 'http'");
            }
        }
    }

    /// Writes the rules that stay in the location. `is_kept`: a `break` has applied them already, and only their
    /// variables count. Returns whether they answer every request, so that no content comes after them.
    fn write_rules(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        scope: &mut VariableScope,
        is_kept: bool,
    ) -> bool {
        let own_block = location.own();
        let mut rules = Vec::new();
        self.write_map_paths(&mut rules, own_block);
        let staying = self.staying_rules(&location.blocks, scope);
        rules.extend(staying.into_iter().filter(|_| !is_kept));
        if always_answers(own_block) && rules_of(own_block).len() == 1 {
            out.extend(rules);
        } else if !rules.is_empty() {
            block(out, "route", rules);
        }
        always_answers(own_block)
    }

    /// Returns the directory of an `alias` with the lines that lead to it, which only files need, as a named location
    /// gets the whole path. Writes the variable of the path in that directory.
    fn write_directory(
        &mut self,
        out: &mut Vec<String>,
        alias: &Directive,
        pattern: &Pattern,
        location: &Location<'a>,
        scope: &VariableScope,
        keeps_path: bool,
    ) -> Option<(DirectoryPlace, Vec<String>)> {
        let mut lines = Vec::new();
        self.write_alias(&mut lines, alias, pattern, scope, keeps_path);
        let mut place = self.directory_place(out, location, scope)?;
        if let DirectoryPlace { path, matcher: Some(matcher), .. } = &mut place {
            out.push(format!("vars {DIRECTORY_PATH} {NO_FILE}"));
            out.push(format!("vars @{matcher} {DIRECTORY_PATH} {path}"));
            *path = format!("{{vars.{DIRECTORY_PATH}}}");
        }
        Some((place, lines))
    }

    /// The lines of the fields of a location, and of those that an access decision sets, which come after it. Without
    /// `has_own` the location's `add_header` and `expires` are written already.
    fn location_fields(
        &mut self,
        blocks: &[&'a Directive],
        scope: &VariableScope,
        has_own: bool,
        held_fields: &[HeldFields],
    ) -> (Vec<String>, Vec<String>) {
        let (mut fields, mut decided) = (Vec::new(), Vec::new());
        if has_own {
            self.write_fields(&mut fields, blocks, scope, None);
            self.write_decided_fields(&mut decided, blocks);
        }
        let held: Vec<_> = held_fields.iter().map(|held| (&held.name, &held.fields)).collect();
        fields = self.fields_by_condition(fields, &held);
        let held: Vec<_> = held_fields.iter().map(|held| (&held.name, &held.decided)).collect();
        decided = self.fields_by_condition(decided, &held);
        if !self.replaced_fields.is_empty() {
            fields = replace_fields(&std::mem::take(&mut self.replaced_fields), fields);
        }
        (fields, decided)
    }

    /// `client_max_body_size`
    pub(super) fn write_body_limit(&mut self, out: &mut Vec<String>, blocks: &[&Directive]) {
        if let Some(limit) = value(blocks, "client_max_body_size").filter(|limit| *limit != "0") {
            block(out, "request_body", vec![format!("max_size {}", size(limit))]);
        }
    }

    /// `internal`: refuses requests whose path no rule has changed. It stands before all lines that change the path.
    pub(super) fn write_internal(&mut self, out: &mut Vec<String>, location: &Location<'_>, scope: &VariableScope) {
        if is_internal(location) {
            let name = self.fresh("from_outside");
            out.push(format!("@{name} `{{path}} == {{orig_path}}`"));
            self.refuse(out, &name, 404, &location.blocks, scope);
        }
    }

    /// Refuses the requests of a matcher, with the fields of the last of the blocks.
    pub(super) fn refuse(
        &mut self,
        out: &mut Vec<String>,
        matcher: &str,
        status: u16,
        blocks: &[&Directive],
        scope: &VariableScope,
    ) {
        let mut lines = Vec::new();
        self.write_fields(&mut lines, blocks, scope, Some(status));
        if lines.is_empty() {
            out.push(format!("error @{matcher} {status}"));
        } else {
            lines.push(format!("error * {status}"));
            block(out, &format!("route @{matcher}"), lines);
        }
    }

    /// Writes the directory of an `alias`, and the path in it. `keeps_path`: a path that nginx joins to the directory's
    /// name must not become another one than that of a file beside the directory, as the location's `try_files` has a
    /// last word for the directory.
    fn write_alias(
        &mut self,
        out: &mut Vec<String>,
        alias: &Directive,
        pattern: &Pattern,
        scope: &VariableScope,
        keeps_path: bool,
    ) {
        let target = alias.argument(0);
        match pattern {
            Pattern::Prefix { prefix, .. } => {
                let mut inside = vec![format!("uri strip_prefix {}", quote(prefix.trim_end_matches('/')))];
                let root = match self.expand(out, alias, scope, target) {
                    Some(target) => format!("root * {}", quote(&target)),
                    None => "root * /nonexistent".to_owned(),
                };
                inside.push(root.clone());
                if target.ends_with('/') {
                    return out.extend(inside);
                }
                // nginx joins the rest of the path to the text of the alias: `/static.env` is not in the directory of
                // `/static`, but beside it. The text itself may be the name of a file.
                let (outer_directory, name) = target.rsplit_once('/').unwrap_or(("", target));
                let has_name = !keeps_path && is_plain_path(&format!("/{name}")) && !name.contains('$');
                let outer_directory = Some(format!("{outer_directory}/")).filter(|_| has_name);
                let outer_directory =
                    outer_directory.and_then(|outer_directory| self.expand(out, alias, scope, &outer_directory));
                let matcher = self.fresh("joined");
                let rest = match (prefix.ends_with('/'), outer_directory.is_some()) {
                    (true, _) => "(.+)",
                    (false, true) => "([^/].*)?",
                    (false, false) => "([^/].*)",
                };
                let expression = format!("(?is)^{}{rest}$", regex::escape(prefix));
                let joined = match outer_directory {
                    Some(outer_directory) => {
                        vec![
                            format!("rewrite * /{name}{{re.{matcher}.1}} escape_values"),
                            format!("root * {}", quote(&outer_directory)),
                        ]
                    }
                    None => vec![format!("rewrite * {NO_FILE}"), root],
                };
                let mut lines = vec![format!("@{matcher} path_regexp {matcher} {}", quote(&expression))];
                block(&mut lines, &format!("handle @{matcher}"), joined);
                block(&mut lines, "handle", inside);
                block(out, "route", lines);
            }
            Pattern::Exact(_) => {
                let (directory, file) = target.rsplit_once('/').unwrap_or(("", target));
                out.push(format!("root * {}", quote(&format!("{directory}/"))));
                out.push(format!("rewrite * {}", quote(&format!("/{file}"))));
            }
            // All paths are that of one file.
            Pattern::Regexp(_) if is_plain_path(target) && !target.contains('$') && !target.ends_with('/') => {
                out.push("root * /".to_owned());
                out.push(format!("rewrite * {target}"));
            }
            _ => match scope.expand(target) {
                Ok(target) if !scope.capture.is_empty() && target.contains(&format!("{{re.{}.", scope.capture)) => {
                    out.push("root * /".to_owned());
                    out.push(rewrite(&target));
                }
                _ => self.note(
                    out,
                    alias,
                    "in a location with an expression its path has to contain a group, or to be that of a file",
                ),
            },
        }
    }

    fn write_try_files(
        &mut self,
        out: &mut Vec<String>,
        files: &Directive,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        (directory, content): (Option<(DirectoryPlace, Vec<String>)>, Vec<String>),
    ) {
        let Some((last, candidates)) = split_last(files) else { return };
        if let Some(word) = files.arguments.last().filter(|word| leads_nowhere(word)) {
            let reason =
                format!("the last word '{word}' without a slash is '=404', as no location with a prefix takes it");
            self.remark(out, files, &reason);
        }
        // nginx joins a name to the text of an `alias`.
        let has_slash = alias_of(location).is_some_and(|(alias, _)| alias.argument(0).ends_with('/'));
        let in_directory = |name: &String| match has_slash && !name.starts_with(['/', '$']) {
            true => format!("/{name}"),
            false => name.clone(),
        };
        let candidates: Vec<_> = candidates.iter().map(in_directory).collect();
        let Some(candidates) = self.candidates(out, files, &candidates, scope) else { return };
        if last.starts_with(['@', '=']) {
            let mut definition = Vec::new();
            let missing = match &directory {
                Some((place, _)) => self.missing_in_directory(&mut definition, place, &candidates),
                None => self.missing(&mut definition, &candidates),
            };
            let is_in_directory = directory.is_some();
            let mut found = directory.map(|(_, lines)| lines).unwrap_or_default();
            if candidates.split(' ').any(|pattern| pattern != "{path}" && pattern != "{path}/") {
                found.push(format!("@found_{missing} file {candidates}"));
                found.push(format!("rewrite @found_{missing} {{file_match.relative}}"));
            }
            found.extend(content);
            if is_in_directory {
                // The directory's lines come first.
                let lines = std::mem::take(&mut found);
                block(&mut found, "route", lines);
            }
            let otherwise = match last.strip_prefix('@') {
                None if last == "=444" => vec!["abort".to_owned()],
                None => vec![format!("error {}", &last[1..])],
                Some(name) if self.named.iter().any(|outer| outer == name) || self.named.len() == NAMED_DEPTH_MAX => {
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
            // The path within the directory of `alias`.
            let stem = match alias_of(location) {
                Some((_, Pattern::Prefix { prefix, .. })) => prefix.trim_end_matches('/').to_owned(),
                _ => String::new(),
            };
            let last = last.strip_prefix(&stem).unwrap_or(&last);
            // Only a program reads the query, which is not the client's.
            let last = if passes(location.own()) { with_query(last) } else { last.to_owned() };
            out.push(format!("try_files {candidates} {}", quote(&last)));
        }
        out.extend(content);
    }

    /// Defines the matcher of requests for which none of these files exists.
    pub(super) fn missing(&mut self, out: &mut Vec<String>, candidates: &str) -> String {
        let missing = self.fresh("missing");
        if candidates.split(' ').any(|pattern| pattern == "{path}/") {
            // The root is a directory that exists, but the matcher `file` finds no directory for `/`.
            let lines = vec!["not path /".to_owned(), format!("not file {candidates}")];
            block(out, &format!("@{missing}"), lines);
        } else {
            out.push(format!("@{missing} not file {candidates}"));
        }
        missing
    }

    /// Defines the matcher of requests for which none of these files exists in a directory of `alias`.
    fn missing_in_directory(&mut self, out: &mut Vec<String>, place: &DirectoryPlace, candidates: &str) -> String {
        let missing = self.fresh("missing");
        let paths: Vec<String> = candidates.split(' ').map(|path| path.replace("{path}", &place.path)).collect();
        let mut file = Vec::new();
        block(&mut file, "not", place.files(&paths));
        // The directory itself exists, but the matcher `file` finds no directory for `/`.
        if candidates.split(' ').any(|path| path == "{path}/") {
            file.push(format!("not vars_regexp {} ^/?$", place.path));
        }
        block(out, &format!("@{missing}"), file);
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
        Some(if patterns.is_empty() { NO_FILE.to_owned() } else { patterns.join(" ") })
    }

    /// The handlers that make the response: those of `if`, and that of the location.
    fn write_sources(&mut self, out: &mut Vec<String>, location: &Location<'a>, scope: &VariableScope) {
        let own_block = location.blocks[location.blocks.len() - 1];
        let mut lines = Vec::new();
        for condition in passing_conditions(own_block) {
            let inner =
                Location { blocks: location.blocks.iter().copied().chain([condition]).collect(), ..location.clone() };
            let mut content = Vec::new();
            self.write_source(&mut content, &inner, scope);
            let (held, name) = (self.name_of_condition(condition), self.fresh("passes"));
            lines.push(format!("@{name} vars {HELD_CONDITION} {held}"));
            block(&mut lines, &format!("handle @{name}"), in_written_order(content));
        }
        if lines.is_empty() {
            return self.write_source(out, location, scope);
        }
        let mut content = Vec::new();
        self.write_source(&mut content, location, scope);
        block(&mut lines, "handle", in_written_order(content));
        block(out, "route", lines);
    }

    /// The handler that makes the response.
    fn write_source(&mut self, out: &mut Vec<String>, location: &Location<'a>, scope: &VariableScope) {
        let own_block = location.own();
        let blocks = &*location.blocks;
        if let Some(pass) = own(own_block, "proxy_pass").first() {
            if !self.proxy_by_value(out, pass, location, scope) {
                self.write_proxy(out, pass, location, scope);
            }
            return;
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
            let mut lines: Vec<String> = own_server_field("grpc", blocks).into_iter().collect();
            lines.extend(without_kept_fields(blocks));
            lines.extend(self.outer_fields.line_of_upstream());
            block(out, &format!("reverse_proxy {}", hosts.join(" ")), lines);
            return;
        }
        if let Some(pass) = own(own_block, "fastcgi_pass").first() {
            let hidden = self.write_cache(out, "fastcgi", location, scope);
            return self.write_fastcgi(out, pass, location, scope, hidden);
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
            out.push("# There is no root; nginx serves its own directory 'html' here.".to_owned());
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

/// Whether a directive is `types { }`.
pub(super) fn has_no_types(directive: &Directive) -> bool {
    directive.name == "types" && directive.block().is_empty()
}

/// The `if` of a block whose own upstream makes the response where they hold.
pub(super) fn passing_conditions(owner: &Directive) -> impl Iterator<Item = &Directive> {
    own(owner, "if").into_iter().filter(|rule| holds_content(rule) && passes(rule))
}

/// Whether an `if` of a block tests files.
fn tests_files(owner: &Directive) -> bool {
    own(owner, "if").iter().any(|rule| ["-f", "-d", "-e"].iter().any(|test| rule.argument(0).ends_with(test)))
}

/// The `alias` that applies in a location, its own or that of a location around it, and the pattern of the location
/// that has it.
pub(super) fn alias_of<'a>(location: &Location<'a>) -> Option<(&'a Directive, Pattern)> {
    let location_blocks = location.location_blocks().iter().rev();
    let mut with_directory =
        location_blocks.filter(|block| block.block().iter().any(|d| matches!(&*d.name, "alias" | "root")));
    let owner = *with_directory.next()?;
    Some((*own(owner, "alias").last()?, pattern(owner).ok()?))
}

/// Whether a location, or one around it, has `internal`: only rules may lead to it. A named one is never chosen by a
/// path.
pub(super) fn is_internal(location: &Location<'_>) -> bool {
    !matches!(location.pattern, Pattern::Named(_))
        && location.location_blocks().iter().any(|block| !own(block, "internal").is_empty())
}

/// Whether the last word of `try_files` is for another location, or for one that only a request decides.
pub(super) fn leads_elsewhere(last: &str, location: &Location<'_>, all: &Locations<'_>) -> bool {
    let path = last.split('?').next().unwrap_or_default();
    let path = without_query(path);
    if path.contains('$') {
        return true;
    }
    all.chosen(path).is_none_or(|chosen| !std::ptr::eq(chosen.own(), location.own()))
}
