//! The locations of a server: their matchers, and the rules after which nginx chooses one anew.

use super::content::{alias_of, elsewhere, in_written_order, is_internal};
use super::rules::chooses_anew;
use super::{Translator, inherited, own};
use crate::expressions::{WithoutLookAhead, compiled, groups, without_look_ahead};
use crate::location::{Location, Locations, PathConditions, Pattern};
use crate::parse::Directive;
use crate::variables::Names;
use crate::write::{block, cel_text, quote};

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
        if !all.ordered.iter().any(|l| l.blocks.len() == blocks.len() + 1 && l.prefix() == "/") {
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
        // nginx redirects a path to its location of a proxy if only the last slash is missing.
        for location in &all.ordered {
            let passes = ["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass"];
            let proxies = passes.iter().any(|name| !own(location.own(), name).is_empty()) && !is_internal(location);
            if let Pattern::Prefix { prefix, .. } = &location.pattern
                && let Some(stem) = prefix.strip_suffix('/').filter(|stem| proxies && !stem.is_empty())
                && !all.ordered.iter().any(|other| other.prefix() == stem)
            {
                route.push(format!("redir {stem} {{scheme}}://{{hostport}}{prefix}{{?query}} 301"));
            }
        }
        let rules =
            all.ordered.iter().zip(&heads).map(|(l, (_, capture))| self.choosing_rules(l, names, capture)).collect();
        pass(route, "# Rules after which nginx chooses the location anew.", &heads, rules);
        let files = all
            .ordered
            .iter()
            .zip(&heads)
            .map(|(l, (_, capture))| self.choosing_files(l, &all, names, capture))
            .collect();
        pass(route, "# Paths of another location, for missing files and for folders.", &heads, files);
        for (location, (head, capture)) in all.ordered.iter().zip(&heads) {
            let mut names = names.clone();
            if let (Pattern::Regexp(expression), false) = (&location.pattern, capture.is_empty()) {
                names.capture.clone_from(capture);
                names.groups = groups(expression);
            }
            let lines = self.content(location, &all, &names);
            block(route, head, lines);
        }
    }

    /// Defines the matcher of a location; returns the head of its block and the name of the expression's groups.
    fn location_matcher(&mut self, out: &mut Vec<String>, location: &Location<'_>) -> (String, String) {
        let mut lines = Vec::new();
        let mut capture = String::new();
        let hint = match &location.pattern {
            Pattern::Exact(path) => {
                lines.push(format!("path {}", quote(path)));
                path.clone()
            }
            Pattern::Prefix { prefix, .. } => {
                if prefix != "/" {
                    lines.push(format!("path {}", quote(&format!("{prefix}*"))));
                }
                prefix.clone()
            }
            Pattern::Regexp(expression) | Pattern::Named(expression) => expression.replace("(?i)", ""),
        };
        let name = self.fresh(&hint);
        if let Pattern::Regexp(expression) = &location.pattern {
            let WithoutLookAhead { expression, except } = without_look_ahead(expression);
            if let Err(reason) = compiled(&expression) {
                let check = match restricts(location) {
                    true => " It restricts access: write it by hand before you serve this.",
                    false => "",
                };
                let reason =
                    format!("the expression is not in Go's syntax, so the location takes no request.{check} {reason}");
                self.note(out, location.own(), &reason);
                lines.push("not path *".to_owned());
            } else {
                capture.clone_from(&name);
                lines.push(format!("path_regexp {name} {}", quote(&expression)));
                lines.extend(except.map(|except| format!("not path_regexp {}", quote(&except))));
            }
        }
        let PathConditions { around, within, except, closed } = &location.conditions;
        if !around.is_empty() {
            let tests = around.iter().flat_map(|outer| {
                let WithoutLookAhead { expression, except } = without_look_ahead(outer);
                let except = except.map(|except| format!("!path_regexp({})", cel_text(&except)));
                [format!("path_regexp({})", cel_text(&expression))].into_iter().chain(except)
            });
            lines.push(format!("expression {}", quote(&tests.collect::<Vec<_>>().join(" && "))));
        }
        let begins = |prefix: &String| quote(&format!("{prefix}*"));
        if location.prefix().is_empty() {
            // A prefix of the location's own is longer, and two lines `path` are alternatives.
            lines.extend(within.iter().map(|prefix| format!("path {}", begins(prefix))));
        }
        if !except.is_empty() {
            let except: Vec<String> = except.iter().map(begins).collect();
            lines.push(format!("not path {}", except.join(" ")));
        }
        for (prefix, open) in closed {
            let mut paths = vec![format!("path {}", begins(prefix))];
            if !open.is_empty() {
                let open: Vec<String> = open.iter().map(begins).collect();
                paths.push(format!("not path {}", open.join(" ")));
            }
            block(&mut lines, "not", paths);
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
        if location.blocks.len() < 3 || !owner.block().iter().any(chooses_anew) {
            return lines;
        }
        self.internal(&mut lines, location);
        self.with_root(&mut lines, location, names, |this, out| {
            let mut names = names.clone();
            capture.clone_into(&mut names.capture);
            let rules = this.rules(owner, &mut names);
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
        self.root(&mut root, &location.blocks[2..], names);
        let has_root = !root.is_empty();
        out.extend(root);
        out.extend(lines);
        if has_root {
            let mut outer = Vec::new();
            self.root(&mut outer, &location.blocks[..2], names);
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
        let mut lines = Vec::new();
        self.with_root(&mut lines, location, &names, |this, out| this.leave(out, location, all, &names));
        if lines.is_empty() {
            return lines;
        }
        let mut out = Vec::new();
        self.internal(&mut out, location);
        out.extend(lines);
        out
    }

    fn leave(&mut self, out: &mut Vec<String>, location: &Location<'a>, all: &Locations<'a>, names: &Names) {
        let own_block = location.own();
        if location.blocks.len() > 2 && !own(own_block, "return").is_empty() {
            // It answers all requests.
            return;
        }
        let indexes: Vec<String> =
            inherited(&location.blocks, "index").last().map(|d| d.arguments.clone()).unwrap_or_default();
        let program =
            indexes.iter().any(|index| elsewhere(&format!("/{index}"), location, all) && index.ends_with(".php"));
        let has_alias = alias_of(location).is_some();
        let passes = ["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass"];
        let serves = !has_alias && passes.iter().all(|name| own(own_block, name).is_empty());
        let files = own(own_block, "try_files").first().copied();
        let parts = files.and_then(|files| files.arguments.split_last());
        let tests_folders = parts.is_none_or(|(_, candidates)| candidates.iter().any(|path| path == "$uri/"));
        let is_file = matches!(&location.pattern, Pattern::Exact(path) if !path.ends_with('/'));
        if program && serves && tests_folders && !is_file {
            self.folders(out, location, &indexes, names);
        }
        let named = parts.and_then(|(last, _)| all.named(last.strip_prefix('@')?));
        if let (Some(files), Some((last, _)), true) = (files, parts, has_alias) {
            let leaves = !last.starts_with('=') && (last.starts_with('@') || elsewhere(last, location, all));
            if leaves && named.is_none_or(|named| named.own().block().iter().any(chooses_anew)) {
                self.note(out, files, "with 'alias' the last word is not carried over if it chooses a location");
            }
        } else if let (Some(files), Some((last, candidates))) = (files, parts)
            && let Some(candidates) = self.candidates(out, files, candidates, names)
        {
            if let Some(named) = named.filter(|named| named.own().block().iter().any(chooses_anew)) {
                let missing = self.missing(out, &candidates);
                let rules = self.rules(named.own(), &mut names.clone());
                self.guarded(out, location, names, &missing, rules);
            } else if !last.starts_with(['=', '@'])
                && elsewhere(last, location, all)
                && let Some(last) = self.expand(out, files, names, last)
            {
                let is_break = |rule: &&Directive| rule.name == "rewrite" && rule.argument(2) == "break";
                let mut rules = own_block.block().iter().flat_map(|rule| [rule].into_iter().chain(rule.block()));
                if rules.any(|rule| is_break(&rule)) {
                    self.remark(out, files, "the files are those of the path before the rule with 'break'");
                }
                let mut last = last.replace("{?query}", "?{query}");
                if !last.contains('?') {
                    // The new URI has no query.
                    last.push('?');
                }
                let last = quote(&last);
                let missing = self.missing(out, &candidates);
                if candidates.split(' ').any(|pattern| pattern != "{path}" && pattern != "{path}/") {
                    out.push(format!("@found_{missing} file {candidates}"));
                    let found = vec!["rewrite * {file_match.relative}".to_owned()];
                    self.guarded(out, location, names, &format!("found_{missing}"), found);
                }
                self.guarded(out, location, names, &missing, vec![format!("rewrite * {last}")]);
            }
        }
    }

    /// Writes nginx's steps for a folder whose index another location may serve: a redirect to its slash, and the index as the path.
    fn folders(&mut self, out: &mut Vec<String>, location: &Location<'a>, indexes: &[String], names: &Names) {
        let folder = self.fresh("folder");
        block(out, &format!("@{folder}"), vec!["file {path}/".to_owned(), "not path */".to_owned()]);
        let mut redirect = Vec::new();
        self.fields(&mut redirect, &location.blocks, names);
        redirect.push("redir * {scheme}://{hostport}{path}/{?query} 301".to_owned());
        self.guarded(out, location, names, &folder, redirect);
        let index = self.fresh("index");
        let files: Vec<_> = indexes.iter().map(|index| format!("{{path}}{index}")).collect();
        block(out, &format!("@{index}"), vec!["path */".to_owned(), format!("file {}", files.join(" "))]);
        self.guarded(out, location, names, &index, vec!["rewrite * {file_match.relative}".to_owned()]);
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
        self.body_limit(&mut all, &location.blocks[2..]);
        if location.blocks.len() > 2 && !location.own().block().iter().any(chooses_anew) {
            let rules = self.rules(location.own(), &mut names.clone());
            if !rules.is_empty() {
                block(&mut all, "route", rules);
            }
        }
        self.other_methods(&mut all, location.own());
        // The limits of the server are those of the new location.
        self.limits(&mut all, &location.blocks[2..]);
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

/// Whether a location, or one around it, has rules that refuse requests.
fn restricts(location: &Location<'_>) -> bool {
    const RULES: &[&str] =
        &["deny", "auth_basic", "auth_request", "internal", "limit_except", "limit_req", "return", "if"];
    location.blocks.iter().skip(2).any(|block| block.block().iter().any(|d| RULES.contains(&&*d.name)))
}

/// Writes a route with the lines of each location, if one has any.
fn pass(route: &mut Vec<String>, comment: &str, heads: &[(String, String)], lines: Vec<Vec<String>>) {
    let Some(last) = lines.iter().rposition(|lines| !lines.is_empty()) else { return };
    let mut out = vec![comment.to_owned()];
    for ((head, _), lines) in heads.iter().zip(lines).take(last + 1) {
        block(&mut out, head, in_written_order(lines));
    }
    block(route, "route", out);
}
