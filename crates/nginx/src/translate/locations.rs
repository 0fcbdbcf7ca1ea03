//! The locations of a server: their matchers, and the rules after which nginx chooses one again.

use super::access::{refuses, refuses_all, restricts};
use super::content::{alias_of, in_written_order, is_internal, leads_elsewhere, passing_conditions};
use super::directories::{leaves_directories, serves_directories};
use super::path_case::{is_plain_path, path_test};
use super::rules::{
    HELD_CONDITION, LOCATION_KEPT, always_answers, doubles_slash, has_break, keep_values_of_sets, may_keep_location,
    repeated_sets, rules_choose_anew, rules_of,
};
use super::{Translator, own};
use crate::expressions::{WithoutLookAhead, compiled, without_assertions, without_look_ahead};
use crate::location::{Location, Locations, PathConditions, Pattern};
use crate::parse::Directive;
use crate::variables::VariableScope;
use crate::write::{block, cel_text, quote, rewrite};

/// A location as one of several blocks `handle`, of which the first that takes a request counts.
struct LocationBlock<'a> {
    location: Location<'a>,
    head: String,
    scope: VariableScope,
}

/// The directives with which a location leaves the response to an upstream.
pub(super) const PASSES: &[&str] = &["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass", "scgi_pass"];

impl<'a> Translator<'a> {
    /// Writes the locations: matchers to `out`, handlers in nginx's order to `route`.
    pub(super) fn write_locations(
        &mut self,
        out: &mut Vec<String>,
        route: &mut Vec<String>,
        blocks: &[&'a Directive],
        scope: &VariableScope,
    ) {
        let mut all = Locations::of(blocks);
        for (directive, reason) in std::mem::take(&mut all.invalid) {
            self.note(out, directive, &reason);
        }
        if !all.ordered.iter().any(|l| l.is_prefix() && l.prefix() == "/") {
            // The server itself serves the requests that no location takes.
            let pattern = Pattern::Prefix { prefix: "/".into(), ends_search: false };
            all.ordered.push(Location { pattern, blocks: blocks.to_vec(), conditions: PathConditions::default() });
        }
        let mut heads = Vec::new();
        for location in &all.ordered {
            heads.push(self.location_matcher(out, location));
        }
        if blocks.iter().any(|block| joins_request_uri(block)) {
            let name = self.fresh("above");
            route.push(
                "# nginx refuses a path above the root. Rules below join the URI as it was sent to another one."
                    .to_owned(),
            );
            route.push(format!("@{name} vars_regexp {{path}} {}", quote(r"(?:^|/)\.\.(?:/|$)")));
            route.push(format!("error @{name} 400"));
        }
        self.write_slash_redirects(route, &all, scope);
        let mut handles: Vec<LocationBlock<'_>> = Vec::new();
        for (location, (head, capture)) in all.ordered.iter().zip(heads) {
            let mut scope = location.scope(scope, &capture);
            if !repeated_sets(location.own()).is_empty() {
                scope.rules_applied = self.fresh("applied");
            }
            handles.push(LocationBlock { location: location.clone(), head, scope });
        }
        let rules = handles.iter().map(|handle| self.choosing_rules(handle, &all)).collect();
        write_pass(route, "# Rules after which nginx chooses the location again.", &handles, rules);
        handles.splice(0..0, self.handles_of_kept(out));
        let files = handles.iter().map(|handle| self.choosing_files(handle, &all)).collect();
        write_pass(route, "# Paths of another location, for missing files and for directories.", &handles, files);
        handles.splice(0..0, self.handles_of_kept(out));
        for LocationBlock { location, head, scope } in handles {
            let lines = self.content(&location, &all, &scope);
            block(route, &head, lines);
        }
    }

    /// Writes the redirects of paths whose last slash is missing: to their location of a proxy, and to a directory.
    fn write_slash_redirects(&mut self, route: &mut Vec<String>, all: &Locations<'a>, scope: &VariableScope) {
        for location in &all.ordered {
            let is_usual = |stem: &&str| !stem.is_empty() && is_plain_path(stem);
            let Some(stem) = location.prefix().strip_suffix('/').filter(is_usual) else {
                self.redirect_to_alias(route, location, scope);
                continue;
            };
            let passes = PASSES.iter().any(|name| !own(location.own(), name).is_empty());
            // An exact location too, but not beside a prefix of the same text, which has the redirect already.
            let is_second =
                |l: &Location<'_>| l.is_prefix() && l.prefix() == location.prefix() && l.is_beside(location);
            let counts = location.is_prefix() || passes && !all.ordered.iter().any(is_second);
            if !counts || all.ordered.iter().any(|l| l.prefix() == stem && l.is_beside(location)) {
                continue;
            }
            if !passes {
                let around = all.ordered.iter().filter(|l| l.is_prefix() && stem.starts_with(l.prefix()));
                if around.max_by_key(|l| l.prefix().len()).is_some_and(serves_directories) {
                    self.redirect_to_listing(route, location, stem, scope);
                }
                continue;
            }
            let matcher = self.only(route, stem);
            if is_internal(location) {
                route.push(format!("error {matcher} 404"));
                continue;
            }
            self.redirect(route, (location, scope), &matcher, location.prefix());
        }
    }

    /// Returns the word that selects a path: the path itself, or a matcher where its case counts.
    fn only(&mut self, out: &mut Vec<String>, path: &str) -> String {
        if let Some(path) = self.case.plain(path) {
            return path.to_owned();
        }
        let name = self.fresh("stem");
        out.push(format!("@{name} {}", self.case.matcher(path, "$")));
        format!("@{name}")
    }

    /// Returns the locations that a `break` of the rules written last keeps, and defines their matchers. They come
    /// before those that a path chooses.
    fn handles_of_kept(&mut self, out: &mut Vec<String>) -> Vec<LocationBlock<'a>> {
        let kept = std::mem::take(&mut self.kept_locations).into_iter().map(|(location, scope)| {
            out.push(format!("@{} vars {LOCATION_KEPT} {}", scope.location_kept, scope.location_kept));
            LocationBlock { location, head: format!("handle @{}", scope.location_kept), scope }
        });
        kept.collect()
    }

    /// The scope of the rules of a location that may choose another one.
    pub(super) fn scope_of_rules(
        &mut self,
        location: &Location<'a>,
        all: &Locations<'a>,
        outer: &VariableScope,
    ) -> VariableScope {
        let mut scope = VariableScope { location_kept: String::new(), ..outer.clone() };
        if may_keep_location(location.own()) {
            scope.location_kept = self.fresh("kept");
            self.kept_locations.push((location.clone(), scope.clone()));
        }
        // nginx joins the slashes of a request's path, and not those of a rule's.
        let next = all.chosen("//").filter(|next| rules_of(next.own()).is_empty());
        if let Some(next) = next.filter(|_| location.own().block().iter().any(doubles_slash)) {
            scope.double_slash_kept = self.fresh("doubled");
            self.kept_locations.push((
                next.clone(),
                VariableScope { location_kept: scope.double_slash_kept.clone(), ..outer.clone() },
            ));
        }
        scope
    }

    /// Defines the matcher of a location; returns the head of its block and the name of the expression's groups.
    pub(super) fn location_matcher(&mut self, out: &mut Vec<String>, location: &Location<'_>) -> (String, String) {
        let case = self.case;
        let mut lines = Vec::new();
        // Conditions of one `expression`.
        let mut tests = Vec::new();
        let mut capture = String::new();
        let hint = match &location.pattern {
            Pattern::Exact(path) => {
                case.add(&mut lines, &mut tests, path, "$");
                path.clone()
            }
            Pattern::Prefix { prefix, .. } => {
                if prefix != "/" {
                    case.add(&mut lines, &mut tests, prefix, "");
                }
                prefix.clone()
            }
            Pattern::Regexp(expression) | Pattern::Named(expression) => expression.replace("(?i)", ""),
        };
        let name = self.fresh(&hint);
        let PathConditions { around, within, except, closed } = &location.conditions;
        let mut is_possible = around.iter().all(|outer| compiled(&without_look_ahead(outer).expression).is_ok());
        if let Pattern::Regexp(expression) = &location.pattern {
            let WithoutLookAhead { expression, except } = without_look_ahead(expression);
            let wider = Some(without_assertions(&expression)).filter(|wider| {
                refuses_all(location.own()) && compiled(&expression).is_err() && compiled(wider).is_ok()
            });
            if let Some(wider) = wider {
                let reason = "the expression is not in Go's syntax; all paths are refused that it matches without its look-around";
                self.remark(out, location.own(), reason);
                capture.clone_from(&name);
                lines.push(format!("path_regexp {name} {}", quote(&wider)));
            } else if let Err(reason) = compiled(&expression) {
                let check = match restricts(location) {
                    true => " It restricts access: write it by hand before you serve this.",
                    false => "",
                };
                let reason =
                    format!("the expression is not in Go's syntax, so the location takes no request.{check} {reason}");
                self.note(out, location.own(), &reason);
                is_possible = false;
            } else {
                capture.clone_from(&name);
                lines.push(format!("path_regexp {name} {}", quote(&expression)));
                lines.extend(except.map(|except| format!("not path_regexp {}", quote(&except))));
            }
        }
        for outer in around {
            let WithoutLookAhead { expression, except } = without_look_ahead(outer);
            tests.push(format!("path_regexp({})", cel_text(&expression)));
            tests.extend(except.map(|except| format!("!path_regexp({})", cel_text(&except))));
        }
        if location.prefix().is_empty() {
            // A prefix of the location's own is longer. The set may have one `path_regexp` only.
            if let Some(prefix) = within {
                match case.plain(prefix) {
                    Some(pattern) => lines.push(format!("path {pattern}*")),
                    None => tests.push(path_test(prefix, "")),
                }
            }
        }
        lines.extend(case.others(except));
        for (prefix, open) in closed {
            block(&mut lines, "not", [vec![case.matcher(prefix, "")], case.others(open)].concat());
        }
        if !tests.is_empty() {
            lines.push(format!("expression {}", quote(&tests.join(" && "))));
        }
        if !is_possible {
            lines = vec!["not path *".to_owned()];
        }
        match &*lines {
            [] => return ("handle".to_owned(), capture),
            [one] => out.push(format!("@{name} {one}")),
            _ => block(out, &format!("@{name}"), lines),
        }
        (format!("handle @{name}"), capture)
    }

    /// The rules of a location after which nginx chooses again.
    fn choosing_rules(&mut self, handle: &LocationBlock<'a>, all: &Locations<'a>) -> Vec<String> {
        let LocationBlock { location, scope, .. } = handle;
        let mut lines = Vec::new();
        if location.is_server() || !rules_come_first(location, all) {
            return lines;
        }
        self.write_internal(&mut lines, location, scope);
        self.with_root(&mut lines, location, scope, |this, out| {
            let mut scope = this.scope_of_rules(location, all, scope);
            this.write_script_names(out, location, &mut scope);
            // The other methods do not reach the rules.
            this.write_other_methods(out, &location.blocks, &scope);
            let mut rules = keep_values_of_sets(location.own(), &scope);
            rules.extend(this.rules(&location.blocks, &mut scope));
            block(out, "route", rules);
        });
        lines
    }

    /// Writes lines that need the root of the location, which later lines for other locations must not have.
    pub(super) fn with_root(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        scope: &VariableScope,
        write: impl FnOnce(&mut Self, &mut Vec<String>),
    ) {
        let mut lines = Vec::new();
        write(self, &mut lines);
        if lines.is_empty() {
            return;
        }
        let mut root = Vec::new();
        self.write_root(&mut root, location.location_blocks(), scope);
        let has_root = !root.is_empty();
        out.extend(root);
        out.extend(lines);
        if has_root {
            let mut outer = Vec::new();
            self.write_root(&mut outer, location.server_blocks(), scope);
            // Of several lines `root` of one route only the first applies.
            out.extend(outer.into_iter().map(|line| line.replacen("root *", "vars root", 1)));
        }
    }

    /// The lines that lead requests of a location to another one: those for missing files and for directories.
    fn choosing_files(&mut self, handle: &LocationBlock<'a>, all: &Locations<'a>) -> Vec<String> {
        let location = &handle.location;
        let mut scope = handle.scope.clone();
        let mut scripts = Vec::new();
        self.write_script_names(&mut scripts, location, &mut scope);
        let mut lines = Vec::new();
        self.with_root(&mut lines, location, &scope, |this, out| this.leave_location(out, location, all, &scope));
        if lines.is_empty() {
            return lines;
        }
        let mut out = Vec::new();
        self.write_internal(&mut out, location, &scope);
        out.extend(scripts);
        out.extend(lines);
        out
    }

    /// Writes the lines of [`Self::choosing_files`].
    fn leave_location(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
    ) {
        let own_block = location.own();
        if !location.is_server() && always_answers(own_block) {
            return;
        }
        let stays = self.directory_steps(out, location, all, scope);
        let mut files = Vec::new();
        self.missing_files(&mut files, location, all, scope);
        match stays.filter(|_| !files.is_empty()) {
            Some(stays) => block(out, &format!("route @{stays}"), files),
            None => out.extend(files),
        }
    }

    /// Writes the steps for missing files: a `try_files` whose last word is for another location.
    pub(super) fn missing_files(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
    ) {
        let own_block = location.own();
        if !location.is_server() && always_answers(own_block) {
            return;
        }
        let has_alias = alias_of(location).is_some();
        let files = own(own_block, "try_files").first().copied();
        let parts = files.and_then(split_last);
        let named = parts.and_then(|(last, _)| all.named(last.strip_prefix('@')?));
        if let (Some(files), Some((last, _)), true) = (files, parts, has_alias) {
            let leaves = !last.starts_with('=') && (last.starts_with('@') || leads_elsewhere(last, location, all));
            if leaves && named.is_none_or(|named| rules_choose_anew(named.own())) {
                self.note(out, files, "with 'alias' the last word is not carried over if it chooses a location");
            }
        } else if let (Some(files), Some((last, candidates))) = (files, parts)
            && let Some(candidates) = self.candidates(out, files, candidates, scope)
        {
            if let Some(named) = named.filter(|named| rules_choose_anew(named.own())) {
                let missing = self.missing(out, &candidates);
                let mut scope_of_named = self.scope_of_rules(named, all, scope);
                scope_of_named.another_may_be_kept = !scope.location_kept.is_empty();
                let rules = self.rules(&named.blocks, &mut scope_of_named);
                self.guarded(out, location, scope, &missing, rules);
            } else if !last.starts_with(['=', '@'])
                && leads_elsewhere(last, location, all)
                && let Some(last) = self.expand_path(out, files, scope, last)
            {
                let last = with_query(&last);
                let missing = self.missing(out, &candidates);
                let mut others =
                    candidates.split(' ').filter(|pattern| *pattern != "{path}" && *pattern != "{path}/").peekable();
                if others.peek().is_none() {
                    return self.guarded(out, location, scope, &missing, rewrite_anew(scope, rewrite(&last)));
                }
                let matcher = format!("found_{missing}");
                out.push(format!("@{matcher} file {candidates}"));
                let has_directories = others.any(|pattern| pattern.ends_with('/'));
                let found = self.keep_found(location, scope, has_directories);
                // Only one of the blocks runs: the path of a file that was found may be one for which none exists.
                block(out, &format!("handle @{matcher}"), in_written_order(found));
                let mut otherwise = Vec::new();
                self.guarded(&mut otherwise, location, scope, &missing, rewrite_anew(scope, rewrite(&last)));
                block(out, "handle", in_written_order(otherwise));
            }
        }
    }

    /// The lines for a file that `try_files` finds by another path, and for a directory if it may find one: the request
    /// stays in its location.
    fn keep_found(&mut self, location: &Location<'a>, scope: &VariableScope, has_directories: bool) -> Vec<String> {
        let kept = self.fresh("found");
        let mut rules = scope.clone();
        let mut lines = Vec::new();
        if !location.is_server() && !rules_choose_anew(location.own()) && scope.location_kept.is_empty() {
            let found = self.rules(&location.blocks, &mut rules);
            if !found.is_empty() {
                block(&mut lines, "route", found);
            }
        }
        let rewrite = ["rewrite * {file_match.relative}".to_owned(), format!("vars {LOCATION_KEPT} {kept}")];
        self.unless_passing(&mut lines, location, rewrite.into());
        let mut of_file = Vec::new();
        if has_directories {
            block(&mut of_file, "route", lines);
        } else {
            // A directory keeps its path, from which its location redirects it.
            let file = self.fresh("file");
            of_file.push(format!("@{file} vars_regexp {{file_match.relative}} [^/]$"));
            block(&mut of_file, &format!("route @{file}"), lines);
        }
        self.kept_locations.push((location.clone(), VariableScope { location_kept: kept, ..scope.clone() }));
        of_file
    }

    /// Writes lines for a matcher. As in nginx, the rules of the location apply before the request leaves the location,
    /// and a request does not leave it for which an `if` with an upstream holds.
    pub(super) fn guarded(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        scope: &VariableScope,
        matcher: &str,
        lines: Vec<String>,
    ) {
        let mut all = Vec::new();
        self.write_body_limit(&mut all, location.location_blocks());
        self.write_other_methods(&mut all, &location.blocks, scope);
        let has_passes = passing_conditions(location.own()).next().is_some();
        let has_rules = !rules_choose_anew(location.own()) || has_passes;
        if !location.is_server() && has_rules && scope.location_kept.is_empty() {
            let rules = self.staying_rules(&location.blocks, &mut scope.clone());
            if !rules.is_empty() {
                block(&mut all, "route", rules);
            }
        }
        let mut leaving = Vec::new();
        // The limits of the server are those of the new location.
        self.write_limits(&mut leaving, location.location_blocks(), scope);
        self.write_access(&mut leaving, &location.blocks, scope);
        match &*lines {
            [line] if all.is_empty() && leaving.is_empty() && !has_passes && line.contains(" * ") => {
                out.push(line.replacen(" * ", &format!(" @{matcher} "), 1));
            }
            _ => {
                leaving.extend(lines);
                self.unless_passing(&mut all, location, leaving);
                block(out, &format!("route @{matcher}"), all);
            }
        }
    }

    /// Writes lines for the requests for which no `if` with an upstream holds.
    fn unless_passing(&mut self, out: &mut Vec<String>, location: &Location<'a>, lines: Vec<String>) {
        let conditions = passing_conditions(location.own());
        let held: Vec<_> = conditions.map(|condition| self.name_of_condition(condition)).collect();
        if held.is_empty() {
            return out.extend(lines);
        }
        let name = self.fresh("leaves");
        out.push(format!("@{name} not vars {HELD_CONDITION} {}", held.join(" ")));
        block(out, &format!("route @{name}"), lines);
    }
}

/// The lines after which the path chooses the location, even if a `break` has kept one before.
pub(super) fn rewrite_anew(scope: &VariableScope, rewrite: String) -> Vec<String> {
    let unkept = (!scope.location_kept.is_empty()).then(|| format!("vars {LOCATION_KEPT} \"\""));
    [rewrite].into_iter().chain(unkept).collect()
}

/// The last word of a `try_files`, and the files before it. One without a slash at its start counts as `=404`: nginx
/// chooses a location by that word, which no prefix takes, and joins it to the text of the root.
pub(super) fn split_last(files: &Directive) -> Option<(&str, &[String])> {
    let (last, candidates) = files.arguments.split_last()?;
    Some((if leads_nowhere(last) { "=404" } else { last }, candidates))
}

/// Whether the last word of a `try_files` is that of no location.
pub(super) fn leads_nowhere(last: &str) -> bool {
    !last.starts_with(['/', '@', '=', '$'])
}

/// Whether the rules of a location apply before the steps for files of all locations: they may choose another one, or
/// change the path of those files.
fn rules_come_first(location: &Location<'_>, all: &Locations<'_>) -> bool {
    let owner = location.own();
    let leaves = || leaves_directories(location, all) || leaves_files(location, all);
    rules_choose_anew(owner) || has_break(owner) && leaves()
}

/// Whether the last word of a location's `try_files` leads to another location, before the content of any.
pub(super) fn leaves_files(location: &Location<'_>, all: &Locations<'_>) -> bool {
    let files = own(location.own(), "try_files").first().copied();
    let last = files.and_then(split_last).map_or("=", |(last, _)| last);
    match last.strip_prefix('@') {
        Some(name) => all.named(name).is_some_and(|named| rules_choose_anew(named.own())),
        None => !last.starts_with('=') && leads_elsewhere(last, location, all),
    }
}

/// Whether a path with `$request_uri` in it becomes the request's, in a block or within it.
fn joins_request_uri(block: &Directive) -> bool {
    let joins = |word: &String| word.starts_with('/') && word.contains("$request_uri");
    let rule = |d: &Directive| matches!(&*d.name, "rewrite" | "try_files" | "index") && d.arguments.iter().any(joins);
    block.block().iter().any(|directive| rule(directive) || joins_request_uri(directive))
}

/// The target of a new URI, which has no query unless it names one.
pub(super) fn with_query(uri: &str) -> String {
    let uri = uri.replace("{?query}", "?{query}");
    if uri.contains('?') { uri } else { format!("{uri}?") }
}

impl Location<'_> {
    /// The scope in a location whose matcher has this name for its groups.
    pub(super) fn scope(&self, outer: &VariableScope, capture: &str) -> VariableScope {
        let mut scope = outer.clone();
        if let (Pattern::Regexp(expression), false) = (&self.pattern, capture.is_empty()) {
            scope.capture_groups(capture, expression);
        }
        scope
    }
}

/// Refuses paths that end with a dot segment, if a server has rules that may be about a directory.
pub(super) fn refuse_dot_segments(route: &mut Vec<String>, server: &Directive) {
    if has_rules(server) {
        route.push("# nginx takes a dot segment at the end for a directory, and the matchers below do not.".to_owned());
        route.push(format!("@dots vars_regexp {{path}} {}", quote(r"/\.\.?$")));
        route.push("error @dots 400".to_owned());
    }
}

/// Whether some rule of a block, at any depth, may keep clients from a path.
fn has_rules(block: &Directive) -> bool {
    block.block().iter().any(|rule| refuses(rule) || matches!(&*rule.name, "if" | "rewrite") || has_rules(rule))
}

/// Writes a route with the lines of each location, if one has any. A location without lines keeps its requests from
/// later ones.
fn write_pass(route: &mut Vec<String>, comment: &str, handles: &[LocationBlock<'_>], lines: Vec<Vec<String>>) {
    let has_lines: Vec<bool> = lines.iter().map(|lines| !lines.is_empty()).collect();
    let mut out = vec![comment.to_owned()];
    for (index, lines) in lines.into_iter().enumerate() {
        let keeps = |later: usize| has_lines[later] && may_overlap(&handles[index], &handles[later]);
        if has_lines[index] || (index + 1..handles.len()).any(keeps) {
            block(&mut out, &handles[index].head, in_written_order(lines));
        }
    }
    if out.len() > 1 {
        block(route, "route", out);
    }
}

/// Whether the matchers of two locations, which ignore case, may take one path. Two expressions may, and a kept
/// location has any path.
fn may_overlap(one: &LocationBlock<'_>, other: &LocationBlock<'_>) -> bool {
    if !one.scope.location_kept.is_empty() {
        return true;
    }
    let [one, other] = [one, other].map(|handle| handle.location.prefix().to_ascii_lowercase());
    one.starts_with(&other) || other.starts_with(&one)
}
