//! The locations of a server: their matchers, and the rules after which nginx chooses one anew.

use super::content::{alias_of, elsewhere, has_equal_fields, in_written_order, is_internal};
use super::rules::{always_answers, choose_anew, has_break};
use super::{Translator, inherited, own, value};
use crate::expressions::{WithoutLookAhead, compiled, groups, without_assertions, without_look_ahead};
use crate::location::{Location, Locations, PathConditions, Pattern, pattern};
use crate::parse::Directive;
use crate::variables::{Names, variables};
use crate::write::{block, cel_text, quote, rewrite};

/// The directives with which a location leaves the response to an upstream.
pub(super) const PASSES: &[&str] = &["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass", "scgi_pass"];

impl<'a> Translator<'a> {
    /// Writes the locations: matchers to `out`, handlers in nginx's order to `route`.
    pub(super) fn locations(
        &mut self,
        out: &mut Vec<String>,
        route: &mut Vec<String>,
        blocks: &[&'a Directive],
        names: &Names,
    ) {
        let mut all = Locations::of(blocks);
        for (directive, reason) in std::mem::take(&mut all.invalid) {
            self.note(out, directive, &reason);
        }
        if !all.ordered.iter().any(|l| l.is_prefix() && l.prefix() == "/") {
            // The server itself serves the requests that no location takes.
            let pattern = Pattern::Prefix { prefix: "/".into(), last: false };
            all.ordered.push(Location { pattern, blocks: blocks.to_vec(), conditions: PathConditions::default() });
        }
        let mut heads = Vec::new();
        for location in &all.ordered {
            heads.push(self.location_matcher(out, location));
        }
        if all
            .ordered
            .iter()
            .any(|location| location.prefix().len() > 1 && location.prefix().ends_with('/') && restricts(location))
        {
            let name = self.fresh("dots");
            route
                .push("# nginx takes a dot segment at the end for a folder, and the matchers below do not.".to_owned());
            route.push(format!("@{name} vars_regexp {{path}} {}", quote(r"/\.\.?$")));
            route.push(format!("error @{name} 400"));
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
        // nginx redirects a path whose last slash is missing to its location of a proxy, and to a folder.
        for location in &all.ordered {
            let is_usual = |stem: &&str| !stem.is_empty() && is_plain_path(stem);
            let Some(stem) = location.prefix().strip_suffix('/').filter(is_usual) else {
                self.redirect_to_alias(route, location, names);
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
                if around.max_by_key(|l| l.prefix().len()).is_some_and(serves_folders) {
                    self.redirect_to_listing(route, location, stem, names);
                }
                continue;
            }
            if is_internal(location) {
                route.push(format!("error {stem} 404"));
                continue;
            }
            let mut lines = Vec::new();
            self.fields(&mut lines, &location.blocks, names, Some(301));
            let target = format!("{{scheme}}://{{hostport}}{}{{?query}} 301", location.prefix());
            if lines.is_empty() {
                route.push(format!("redir {stem} {target}"));
            } else {
                lines.push(format!("redir * {target}"));
                block(route, &format!("route {stem}"), lines);
            }
        }
        let rules =
            all.ordered.iter().zip(&heads).map(|(l, (_, capture))| self.choosing_rules(l, names, capture)).collect();
        pass(route, "# Rules after which nginx chooses the location anew.", &all.ordered, &heads, rules);
        let files = all
            .ordered
            .iter()
            .zip(&heads)
            .map(|(l, (_, capture))| self.choosing_files(l, &all, names, capture))
            .collect();
        pass(route, "# Paths of another location, for missing files and for folders.", &all.ordered, &heads, files);
        for (location, (head, capture)) in all.ordered.iter().zip(&heads) {
            let lines = self.content(location, &all, &location.names(names, capture));
            block(route, head, lines);
        }
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
            let wider = Some(without_assertions(&expression))
                .filter(|wider| closes(location.own()) && compiled(&expression).is_err() && compiled(wider).is_ok());
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
    fn choosing_rules(&mut self, location: &Location<'a>, names: &Names, capture: &str) -> Vec<String> {
        let owner = location.own();
        let mut lines = Vec::new();
        if location.is_server() || !choose_anew(owner) {
            return lines;
        }
        self.internal(&mut lines, location);
        self.with_root(&mut lines, location, names, |this, out| {
            let mut names = names.clone();
            capture.clone_into(&mut names.capture);
            this.script_names(out, location, &mut names);
            // The other methods do not reach the rules.
            this.other_methods(out, owner);
            let rules = this.rules(&location.blocks, &mut names);
            block(out, "route", rules);
            for rule in own(owner, "rewrite").into_iter().filter(|rule| rule.argument(2) == "break") {
                this.note(out, rule, "its location is chosen anew, as after the rules with 'last' beside it");
            }
        });
        lines
    }

    /// Writes lines that need the root of the location, which later lines for other locations must not have.
    fn with_root(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        names: &Names,
        write: impl FnOnce(&mut Self, &mut Vec<String>),
    ) {
        let mut lines = Vec::new();
        write(self, &mut lines);
        if lines.is_empty() {
            return;
        }
        let mut root = Vec::new();
        self.root(&mut root, location.deeper(), names);
        let has_root = !root.is_empty();
        out.extend(root);
        out.extend(lines);
        if has_root {
            let mut outer = Vec::new();
            self.root(&mut outer, location.outer(), names);
            // Of several lines `root` of one route only the first applies.
            out.extend(outer.into_iter().map(|line| line.replacen("root *", "vars root", 1)));
        }
    }

    /// The lines that lead requests of a location to another one: those for missing files and for folders.
    fn choosing_files(
        &mut self,
        location: &Location<'a>,
        all: &Locations<'a>,
        names: &Names,
        capture: &str,
    ) -> Vec<String> {
        let mut names = names.clone();
        capture.clone_into(&mut names.capture);
        let mut scripts = Vec::new();
        self.script_names(&mut scripts, location, &mut names);
        let mut lines = Vec::new();
        self.with_root(&mut lines, location, &names, |this, out| this.leave(out, location, all, &names));
        if lines.is_empty() {
            return lines;
        }
        let mut out = Vec::new();
        self.internal(&mut out, location);
        out.extend(scripts);
        out.extend(lines);
        out
    }

    /// Writes the lines of [`Self::choosing_files`].
    fn leave(&mut self, out: &mut Vec<String>, location: &Location<'a>, all: &Locations<'a>, names: &Names) {
        let own_block = location.own();
        if !location.is_server() && always_answers(own_block) {
            return;
        }
        let index = inherited(&location.blocks, "index").last().copied();
        let (absolute, indexes): (Vec<String>, Vec<String>) =
            index.iter().flat_map(|index| index.arguments.clone()).partition(|file| file.starts_with('/'));
        let alias = alias_of(location);
        let has_alias = alias.is_some();
        let has_pass = |block: &Directive| PASSES.iter().any(|name| !own(block, name).is_empty());
        // Of the locations of index files only those count that refuse requests or leave them to an upstream, and those of one file.
        let base = location.prefix().trim_end_matches('/');
        let chosen = |index: &str| {
            all.chosen(&format!("{base}/{index}")).filter(|chosen| !std::ptr::eq(chosen.own(), own_block))
        };
        let program =
            indexes.iter().any(|index| chosen(index).is_some_and(|chosen| has_pass(chosen.own()) || restricts(chosen)));
        let usual = ["index.html".to_owned()];
        let names_of_files = if indexes.is_empty() { &usual[..] } else { &indexes };
        let of_one_file = |index: &String| {
            chosen(index).filter(|chosen| {
                matches!(chosen.pattern, Pattern::Exact(_)) && !has_equal_fields(&chosen.blocks, &location.blocks)
            })
        };
        let serves = !has_pass(own_block) && alias.is_none_or(|(_, pattern)| matches!(pattern, Pattern::Prefix { .. }));
        let files = own(own_block, "try_files").first().copied();
        let parts = files.and_then(|files| files.arguments.split_last());
        let tests_folders = parts.is_none_or(|(_, candidates)| candidates.iter().any(|path| path == "$uri/"));
        let is_file = matches!(&location.pattern, Pattern::Exact(path) if !path.ends_with('/'));
        let leaves_folders = program && serves && tests_folders && !is_file;
        if let (Some(index), true) = (index, serves && !absolute.is_empty() && !leaves_folders) {
            self.note(out, index, "an absolute path is not carried over");
        }
        if leaves_folders {
            let last = absolute.last().zip(index).and_then(|(last, index)| self.expand(out, index, names, last));
            self.folders(out, location, &indexes, last.as_deref(), names);
        } else if serves
            && tests_folders
            && !is_file
            && !has_alias
            && names_of_files.iter().any(|i| of_one_file(i).is_some())
        {
            let name = self.fresh("index");
            let files: Vec<_> = names_of_files.iter().map(|index| format!("{base}/{index}")).collect();
            block(out, &format!("@{name}"), vec![format!("path {base}/"), format!("file {}", files.join(" "))]);
            self.guarded(out, location, names, &name, vec!["rewrite * {file_match.relative}".to_owned()]);
        }
        let named = parts.and_then(|(last, _)| all.named(last.strip_prefix('@')?));
        if let (Some(files), Some((last, _)), true) = (files, parts, has_alias) {
            let leaves = !last.starts_with('=') && (last.starts_with('@') || elsewhere(last, location, all));
            if leaves && named.is_none_or(|named| choose_anew(named.own())) {
                self.note(out, files, "with 'alias' the last word is not carried over if it chooses a location");
            }
        } else if let (Some(files), Some((last, candidates))) = (files, parts)
            && let Some(candidates) = self.candidates(out, files, candidates, names)
        {
            if let Some(named) = named.filter(|named| choose_anew(named.own())) {
                let missing = self.missing(out, &candidates);
                let rules = self.rules(&named.blocks, &mut names.clone());
                self.guarded(out, location, names, &missing, rules);
            } else if !last.starts_with(['=', '@'])
                && elsewhere(last, location, all)
                && let Some(last) = self.expand(out, files, names, last)
            {
                if has_break(own_block) {
                    self.remark(out, files, "the files are those of the path before the rule with 'break'");
                }
                let last = with_query(&last);
                let missing = self.missing(out, &candidates);
                if candidates.split(' ').any(|pattern| pattern != "{path}" && pattern != "{path}/") {
                    out.push(format!("@found_{missing} file {candidates}"));
                    let found = vec!["rewrite * {file_match.relative}".to_owned()];
                    self.guarded(out, location, names, &format!("found_{missing}"), found);
                }
                self.guarded(out, location, names, &missing, vec![rewrite(&last)]);
            }
        }
    }

    /// Writes the redirect from the path `stem` to the location's listing, if the location has one.
    fn redirect_to_listing(&mut self, route: &mut Vec<String>, location: &Location<'a>, stem: &str, names: &Names) {
        let lists = value(&location.blocks, "autoindex") == Some("on") && alias_of(location).is_none();
        let roots = inherited(&location.blocks, "root");
        let Some(root) = roots.last().filter(|_| lists && !is_internal(location)) else { return };
        let Some(root) = self.expand(route, root, names, root.argument(0)) else { return };
        self.redirect_to_folder(route, stem, &root, stem);
    }

    /// Writes the redirect from a location without a slash at its end to its folder, which an `alias` names.
    fn redirect_to_alias(&mut self, route: &mut Vec<String>, location: &Location<'a>, names: &Names) {
        let (path, block) = (location.prefix(), location.own());
        let answers = PASSES.iter().chain(&["return", "rewrite", "try_files"]).any(|name| !own(block, name).is_empty());
        let Some(alias) = own(block, "alias").last().copied() else { return };
        if !location.is_prefix() || !is_plain_path(path) || answers || is_internal(location) || restricts(location) {
            return;
        }
        // The matcher `file` finds no folder for `/`, so it looks for the folder's name in the one around it.
        let folder = alias.argument(0).trim_end_matches('/');
        let Some((around, name)) = folder.rfind('/').map(|at| folder.split_at(at)) else { return };
        let Some(around) = self.expand(route, alias, names, around) else { return };
        if !name.contains('$') && is_plain_path(name) {
            self.redirect_to_folder(route, path, &format!("{around}/"), name);
        }
    }

    /// Writes the redirect of a path to its slash, which applies if the root has the folder.
    fn redirect_to_folder(&mut self, route: &mut Vec<String>, path: &str, root: &str, folder: &str) {
        let name = self.fresh("folder");
        let mut lines = vec![format!("path {path}")];
        block(&mut lines, "file", vec![format!("root {}", quote(root)), format!("try_files {folder}/")]);
        block(route, &format!("@{name}"), lines);
        route.push(format!("redir @{name} {{scheme}}://{{hostport}}{path}/{{?query}} 301"));
    }

    /// Writes nginx's steps for a folder whose index another location may serve: a redirect to its slash, and the index as the path,
    /// or, without an index, the path `last`.
    fn folders(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        indexes: &[String],
        last: Option<&str>,
        names: &Names,
    ) {
        let mut lines = Vec::new();
        let (mut root, mut path, mut prefix) = (None, "{path}".to_owned(), "");
        let alias = alias_of(location);
        let inside = self.fresh("inside");
        if let Some((alias, Pattern::Prefix { prefix: of_alias, .. })) = &alias {
            prefix = of_alias.trim_end_matches('/');
            path = format!("{{re.{inside}.1}}");
            out.push(format!("@{inside} path_regexp {inside} {}", quote(&format!("^{}(.*)$", regex::escape(prefix)))));
            root = self.expand(out, alias, names, alias.argument(0));
        }
        // The lines of a matcher for files in the folder of the location.
        let files = |paths: &str| match &root {
            None => vec![format!("file {paths}")],
            Some(root) => {
                let mut lines = Vec::new();
                block(&mut lines, "file", vec![format!("root {}", quote(root)), format!("try_files {paths}")]);
                lines
            }
        };
        let folder = self.fresh("folder");
        // The path as it was sent, with its encoding.
        let sent = format!("vars_regexp {folder} {{uri}} {}", quote(r"^([^?]*[^/?])(?:\?|$)"));
        block(&mut lines, &format!("@{folder}"), [files(&format!("{path}/")), vec![sent]].concat());
        let mut redirect = Vec::new();
        self.fields(&mut redirect, &location.blocks, names, Some(301));
        redirect.push(format!("redir * {{scheme}}://{{hostport}}{{re.{folder}.1}}/{{?query}} 301"));
        self.guarded(&mut lines, location, names, &folder, redirect);
        let index = self.fresh("index");
        let candidates: Vec<_> = indexes.iter().map(|index| format!("{path}{index}")).collect();
        block(&mut lines, &format!("@{index}"), [vec!["path */".to_owned()], files(&candidates.join(" "))].concat());
        self.guarded(&mut lines, location, names, &index, vec![format!("rewrite * {prefix}{{file_match.relative}}")]);
        if let Some(last) = last {
            // A folder without an index: its path still ends in a slash.
            let name = self.fresh("no_index");
            block(&mut lines, &format!("@{name}"), [vec!["path */".to_owned()], files(&format!("{path}/"))].concat());
            self.guarded(&mut lines, location, names, &name, vec![rewrite(&with_query(last))]);
        }
        match alias {
            None => out.extend(lines),
            Some(_) => block(out, &format!("route @{inside}"), lines),
        }
    }

    /// Writes lines for a matcher. As in nginx, the rules of the location apply before the request leaves the location.
    fn guarded(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        names: &Names,
        matcher: &str,
        lines: Vec<String>,
    ) {
        let mut all = Vec::new();
        self.body_limit(&mut all, location.deeper());
        self.other_methods(&mut all, location.own());
        if !location.is_server() && !choose_anew(location.own()) {
            let rules = self.rules(&location.blocks, &mut names.clone());
            if !rules.is_empty() {
                block(&mut all, "route", rules);
            }
        }
        // The limits of the server are those of the new location.
        self.limits(&mut all, location.deeper(), names);
        self.access(&mut all, &location.blocks, names);
        match &*lines {
            [line] if all.is_empty() && line.contains(" * ") => {
                out.push(line.replacen(" * ", &format!(" @{matcher} "), 1));
            }
            _ => {
                all.extend(lines);
                block(out, &format!("route @{matcher}"), all);
            }
        }
    }
}

/// Whether a path with `$request_uri` in it becomes the request's, in a block or within it.
fn joins_request_uri(block: &Directive) -> bool {
    let joins = |word: &String| word.starts_with('/') && word.contains("$request_uri");
    let rule = |d: &Directive| matches!(&*d.name, "rewrite" | "try_files" | "index") && d.arguments.iter().any(joins);
    block.block().iter().any(|directive| rule(directive) || joins_request_uri(directive))
}

/// The target of a new URI, which has no query unless it names one.
fn with_query(uri: &str) -> String {
    let uri = uri.replace("{?query}", "?{query}");
    if uri.contains('?') { uri } else { format!("{uri}?") }
}

impl Location<'_> {
    /// The names in a location whose matcher has this name for its groups.
    pub(super) fn names(&self, outer: &Names, capture: &str) -> Names {
        let mut names = outer.clone();
        if let (Pattern::Regexp(expression), false) = (&self.pattern, capture.is_empty()) {
            capture.clone_into(&mut names.capture);
            names.groups = groups(expression);
        }
        names
    }
}

/// Whether no character of a path has a meaning in a pattern of `path`, or ends a word.
fn is_plain_path(path: &str) -> bool {
    path.starts_with('/') && path.chars().all(|c| !c.is_whitespace() && !"*?[]\\%{}\"`".contains(c))
}

/// The test of an expression for a path, or for a prefix with an empty `end`.
fn path_test(path: &str, end: &str) -> String {
    format!("path_regexp({})", cel_text(&format!("^{}{end}", regex::escape(path))))
}

/// Whether the matchers of a server's paths may ignore case, as `path` does. nginx compares them with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathCase {
    /// All of the server's rules are about prefixes and exact paths: they concern a path in another case as well.
    Ignored,
    /// Other rules compare the case, such as an expression that refuses a path within a prefix.
    Compared,
}

impl PathCase {
    /// How the paths of a server are compared.
    pub(super) fn of(http: &Directive, server: &Directive, locations: &Locations<'_>) -> Self {
        let mut prefixes: Vec<_> =
            locations.ordered.iter().map(Location::prefix).filter(|path| !path.is_empty()).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let all = prefixes.len();
        let mut lower: Vec<_> = prefixes.iter().map(|path| path.to_ascii_lowercase()).collect();
        lower.sort_unstable();
        lower.dedup();
        let of_path = |text: &str| variables(text).iter().any(|name| PATHS.contains(name));
        let maps = http.block().iter().filter(|d| d.name == "map" && of_path(d.argument(0)));
        let mut names: Vec<&str> = PATHS.to_vec();
        names.extend(maps.map(|map| map.argument(1).trim_start_matches('$')));
        let is_compared = lower.len() < all || has_rules_of_case(server, &names);
        if is_compared { Self::Compared } else { Self::Ignored }
    }

    /// The path as a word of `path`, if that compares it as it should.
    fn plain(self, path: &str) -> Option<&str> {
        let has_letters = path.contains(|c: char| c.is_ascii_alphabetic());
        (is_plain_path(path) && (self == Self::Ignored || !has_letters)).then_some(path)
    }

    /// The matcher for a path, or for a prefix with an empty `end`.
    fn matcher(self, path: &str, end: &str) -> String {
        match self.plain(path) {
            Some(path) => format!("path {path}{}", if end.is_empty() { "*" } else { "" }),
            None if is_plain_path(path) => format!("path_regexp ^{}{end}", regex::escape(path)),
            None => format!("expression {}", quote(&path_test(path, end))),
        }
    }

    /// Adds [`Self::matcher`] to a set, whose conditions of `expression` are `tests`.
    fn add(self, lines: &mut Vec<String>, tests: &mut Vec<String>, path: &str, end: &str) {
        if is_plain_path(path) { lines.push(self.matcher(path, end)) } else { tests.push(path_test(path, end)) }
    }

    /// The matchers for all paths but those with these prefixes.
    fn others(self, prefixes: &[String]) -> Vec<String> {
        let (plain, others): (Vec<_>, Vec<_>) = prefixes.iter().partition(|prefix| self.plain(prefix).is_some());
        let mut lines = Vec::new();
        if !plain.is_empty() {
            let plain: Vec<_> = plain.iter().map(|prefix| format!("{prefix}*")).collect();
            lines.push(format!("not path {}", plain.join(" ")));
        }
        lines.extend(others.iter().map(|prefix| format!("not {}", self.matcher(prefix, ""))));
        lines
    }
}

/// The variables of nginx that contain the path.
const PATHS: &[&str] = &["uri", "request_uri", "document_uri"];

/// Whether a block has rules that compare the case of a path, which these variables contain.
fn has_rules_of_case(block: &Directive, names: &[&str]) -> bool {
    let has_letters = |word: &str| word.contains(|c: char| c.is_ascii_alphabetic());
    block.block().iter().any(|rule| {
        let compares = match &*rule.name {
            "location" => match pattern(rule) {
                Ok(Pattern::Regexp(expression)) => !expression.starts_with("(?i)") && has_letters(&expression),
                _ => false,
            },
            "rewrite" => has_letters(rule.argument(0)),
            "if" => rule.arguments.iter().any(|word| variables(word).iter().any(|name| names.contains(name))),
            _ => false,
        };
        compares || has_rules_of_case(rule, names)
    })
}

/// Whether a location responds with a folder's redirect to its slash: it serves files, and `try_files` admits folders.
fn serves_folders(location: &Location<'_>) -> bool {
    let leaves = PASSES.iter().chain(&["return", "rewrite"]).any(|name| !own(location.own(), name).is_empty());
    let tried = inherited(&location.blocks, "try_files");
    !leaves && tried.last().is_none_or(|files| files.arguments.iter().any(|file| file == "$uri/"))
}

/// Whether a location, or one around it, has rules that refuse requests.
fn restricts(location: &Location<'_>) -> bool {
    location.deeper().iter().any(|block| block.block().iter().any(refuses))
}

/// Whether a location refuses all requests.
fn closes(location: &Directive) -> bool {
    let denies =
        own(location, "deny").iter().any(|deny| deny.argument(0) == "all") && own(location, "allow").is_empty();
    let returns = own(location, "return");
    let answers =
        returns.first().is_some_and(|answer| answer.argument(0).parse().is_ok_and(|status: u16| status >= 400));
    denies && value(&[location], "satisfy") != Some("any") || answers || !own(location, "internal").is_empty()
}

/// Whether a rule may refuse requests.
pub(super) fn refuses(rule: &Directive) -> bool {
    match &*rule.name {
        "deny" | "internal" | "limit_except" | "limit_req" => true,
        "auth_basic" | "auth_request" => rule.argument(0) != "off",
        "return" => rule.argument(0).parse().is_ok_and(|status: u16| status >= 400),
        "if" => rule.block().iter().any(refuses),
        _ => false,
    }
}

/// Writes a route with the lines of each location, if one has any. A location without lines keeps its requests from later ones.
fn pass(
    route: &mut Vec<String>,
    comment: &str,
    locations: &[Location<'_>],
    heads: &[(String, String)],
    lines: Vec<Vec<String>>,
) {
    let has_lines: Vec<bool> = lines.iter().map(|lines| !lines.is_empty()).collect();
    let mut out = vec![comment.to_owned()];
    for (index, lines) in lines.into_iter().enumerate() {
        let keeps = |later: usize| has_lines[later] && may_overlap(&locations[index], &locations[later]);
        if has_lines[index] || (index + 1..locations.len()).any(keeps) {
            block(&mut out, &heads[index].0, in_written_order(lines));
        }
    }
    if out.len() > 1 {
        block(route, "route", out);
    }
}

/// Whether the matchers of two locations, which ignore case, may take one path. Two expressions may.
fn may_overlap(one: &Location<'_>, other: &Location<'_>) -> bool {
    let [one, other] = [one, other].map(|location| location.prefix().to_ascii_lowercase());
    one.starts_with(&other) || other.starts_with(&one)
}
