//! The locations of a server: their matchers, and the rules after which nginx chooses one anew.

use super::content::{alias_of, elsewhere, in_written_order};
use super::rules::{chooses_anew, compiled, groups, without_look_ahead};
use super::{Translator, inherited, own};
use crate::location::{Location, Pattern, in_order, pattern};
use crate::parse::Directive;
use crate::variables::Names;
use crate::write::{block, quote};

impl<'a> Translator<'a> {
    /// Writes the locations: matchers to `out`, handlers in nginx's order to `route`.
    pub(super) fn locations(
        &mut self,
        out: &mut Vec<String>,
        route: &mut Vec<String>,
        blocks: &[&'a Directive],
        server: &'a Directive,
        names: &Names,
    ) {
        let mut all = Vec::new();
        self.collect(out, &mut all, blocks, server, None);
        let mut ordered = in_order(&all);
        if !ordered.iter().any(|l| l.prefix() == "/" && matches!(l.pattern, Pattern::Prefix { .. })) {
            // The server itself serves the requests that no location takes.
            let pattern = Pattern::Prefix { prefix: "/".into(), last: false };
            ordered.push(Location { pattern, blocks: blocks.to_vec(), within: None, except: Vec::new() });
        }
        let mut with_named = ordered.clone();
        with_named.extend(all.iter().filter(|l| matches!(l.pattern, Pattern::Named(_))).cloned());
        let mut heads = Vec::new();
        for location in &ordered {
            heads.push(self.location_matcher(out, location));
        }
        // nginx redirects a path to its location of a proxy if only the last slash is missing.
        for location in &ordered {
            let passes = ["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass"];
            let proxies = passes.iter().any(|name| !own(location.own(), name).is_empty())
                && own(location.own(), "internal").is_empty();
            if let Pattern::Prefix { prefix, .. } = &location.pattern
                && let Some(stem) = prefix.strip_suffix('/').filter(|stem| proxies && !stem.is_empty())
                && !ordered.iter().any(|other| other.prefix() == stem)
            {
                route.push(format!("redir {stem} {{scheme}}://{{hostport}}{prefix}{{?query}} 301"));
            }
        }
        let first: Vec<Vec<String>> = ordered
            .iter()
            .zip(&heads)
            .map(|(l, (_, capture))| self.first_pass(l, &with_named, names, capture))
            .collect();
        if let Some(last) = first.iter().rposition(|lines| !lines.is_empty()) {
            let mut lines = vec!["# Rules after which nginx chooses the location anew.".to_owned()];
            for ((head, _), pass) in heads.iter().zip(first).take(last + 1) {
                block(&mut lines, head, in_written_order(pass));
            }
            block(route, "route", lines);
        }
        for (location, (head, capture)) in ordered.iter().zip(&heads) {
            let mut names = names.clone();
            if let (Pattern::Regexp(expression), false) = (&location.pattern, capture.is_empty()) {
                names.capture.clone_from(capture);
                names.groups = groups(expression);
            }
            let lines = self.content(location, &with_named, &names);
            block(route, head, lines);
        }
    }

    /// Lists a block's locations and those within them.
    pub(super) fn collect(
        &mut self,
        out: &mut Vec<String>,
        all: &mut Vec<Location<'a>>,
        blocks: &[&'a Directive],
        owner: &'a Directive,
        within: Option<&str>,
    ) {
        for directive in own(owner, "location") {
            let found = match pattern(directive) {
                Ok(found) => found,
                Err(reason) => {
                    self.note(out, directive, &reason);
                    continue;
                }
            };
            let mut blocks = blocks.to_vec();
            blocks.push(directive);
            let is_regexp = matches!(found, Pattern::Regexp(_));
            let prefix = match &found {
                Pattern::Prefix { prefix, .. } | Pattern::Exact(prefix) => Some(prefix.clone()),
                _ => within.map(str::to_owned),
            };
            self.collect(out, all, &blocks, directive, prefix.as_deref());
            let within = within.filter(|_| is_regexp).map(str::to_owned);
            all.push(Location { pattern: found, blocks, within, except: Vec::new() });
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
            let (positive, negative) = without_look_ahead(expression);
            if let Err(reason) = compiled(&positive) {
                let restricts = ["deny", "auth_basic", "auth_request", "internal", "return"];
                let check = match location.own().block().iter().any(|d| restricts.contains(&&*d.name)) {
                    true => " It restricts access: write it by hand before you serve this.",
                    false => "",
                };
                let reason =
                    format!("the expression is not in Go's syntax, so the location takes no request.{check} {reason}");
                self.note(out, location.own(), &reason);
                lines.push("not path *".to_owned());
            } else {
                capture.clone_from(&name);
                lines.push(format!("path_regexp {name} {}", quote(&positive)));
                if let Some(negative) = negative {
                    lines.push(format!("not path_regexp {}", quote(&negative)));
                }
            }
        }
        if let Some(within) = &location.within {
            lines.push(format!("path {}", quote(&format!("{within}*"))));
        }
        if !location.except.is_empty() {
            let except: Vec<String> = location.except.iter().map(|other| quote(&format!("{other}*"))).collect();
            lines.push(format!("not path {}", except.join(" ")));
        }
        match &*lines {
            [] => return ("handle".to_owned(), capture),
            [one] => out.push(format!("@{name} {one}")),
            _ => block(out, &format!("@{name}"), lines),
        }
        (format!("handle @{name}"), capture)
    }

    /// The rules of a location after which nginx chooses again.
    fn first_pass(
        &mut self,
        location: &Location<'a>,
        all: &[Location<'a>],
        names: &Names,
        capture: &str,
    ) -> Vec<String> {
        let own_block = location.own();
        let mut out = Vec::new();
        let mut names = names.clone();
        capture.clone_into(&mut names.capture);
        if location.blocks.len() > 2 && own_block.block().iter().any(chooses_anew) {
            let rules = self.rules(own_block, &mut names);
            block(&mut out, "route", rules);
            for rule in own(own_block, "rewrite").into_iter().filter(|rule| rule.argument(2) == "break") {
                self.note(&mut out, rule, "its location is chosen anew, as after the rules with 'last' beside it");
            }
        }
        let before_root = out.len();
        self.root(&mut out, &location.blocks[2..], &names);
        let after_root = out.len();
        let indexes: Vec<String> =
            inherited(&location.blocks, "index").last().map(|d| d.arguments.clone()).unwrap_or_default();
        let program =
            indexes.iter().any(|index| elsewhere(&format!("/{index}"), location, all) && index.ends_with(".php"));
        let has_alias = alias_of(location).is_some();
        let passes = ["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass", "return"];
        let serves = !has_alias && passes.iter().all(|name| own(own_block, name).is_empty());
        let files = own(own_block, "try_files").first().copied();
        let parts = files.and_then(|files| files.arguments.split_last());
        let tests_folders = parts.is_none_or(|(_, candidates)| candidates.iter().any(|path| path == "$uri/"));
        let is_file = matches!(&location.pattern, Pattern::Exact(path) if !path.ends_with('/'));
        if program && serves && tests_folders && !is_file {
            self.folders(&mut out, location, &indexes, &names);
        }
        let named = parts.and_then(|(last, _)| named(all, last.strip_prefix('@')?));
        if let (Some(files), Some((last, _)), true) = (files, parts, has_alias) {
            let leaves = !last.starts_with('=') && (last.starts_with('@') || elsewhere(last, location, all));
            if leaves && named.is_none_or(|named| named.own().block().iter().any(chooses_anew)) {
                self.note(&mut out, files, "with 'alias' the last word is not carried over if it chooses a location");
            }
        } else if let (Some(files), Some((last, candidates))) = (files, parts)
            && let Some(candidates) = self.candidates(&mut out, files, candidates, &names)
        {
            if let Some(named) = named.filter(|named| named.own().block().iter().any(chooses_anew)) {
                let missing = self.missing(&mut out, &candidates);
                let rules = self.rules(named.own(), &mut names);
                self.guarded(&mut out, location, &names, &missing, rules);
            } else if !last.starts_with(['=', '@'])
                && elsewhere(last, location, all)
                && let Some(last) = self.expand(&mut out, files, &names, last)
            {
                let last = quote(&last.replace("{?query}", "?{query}"));
                let missing = self.missing(&mut out, &candidates);
                if candidates.split(' ').any(|pattern| pattern != "{path}" && pattern != "{path}/") {
                    out.push(format!("@found_{missing} file {candidates}"));
                    let found = vec!["rewrite * {file_match.relative}".to_owned()];
                    self.guarded(&mut out, location, &names, &format!("found_{missing}"), found);
                }
                self.guarded(&mut out, location, &names, &missing, vec![format!("rewrite * {last}")]);
            }
        }
        if out.len() == after_root {
            // The root alone changes nothing.
            out.truncate(before_root);
        }
        if out.is_empty() {
            return out;
        }
        let mut lines = Vec::new();
        self.internal(&mut lines, location);
        lines.extend(out);
        lines
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

    /// Writes lines for a matcher. As in nginx, the access rules of the location apply before the request leaves the location.
    fn guarded(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        names: &Names,
        matcher: &str,
        lines: Vec<String>,
    ) {
        let rules = ["allow", "deny", "limit_except", "auth_basic", "auth_request"];
        let has_rule = |block: &&Directive| block.block().iter().any(|d| rules.contains(&&*d.name));
        if location.blocks.iter().any(has_rule) {
            let mut all = Vec::new();
            self.other_methods(&mut all, location.own());
            self.access(&mut all, &location.blocks, names);
            all.extend(lines);
            block(out, &format!("route @{matcher}"), all);
        } else if let [line] = &*lines
            && let Some((name, rest)) = line.split_once(" * ")
        {
            out.push(format!("{name} @{matcher} {rest}"));
        } else {
            block(out, &format!("route @{matcher}"), lines);
        }
    }
}

/// The location `@name`.
pub(super) fn named<'b, 'a>(all: &'b [Location<'a>], name: &str) -> Option<&'b Location<'a>> {
    all.iter().find(|location| matches!(&location.pattern, Pattern::Named(own) if own == name))
}
