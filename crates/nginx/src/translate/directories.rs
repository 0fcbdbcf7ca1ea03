//! Directories: the redirect to a directory's slash, and its index, for which nginx chooses the location again.

use super::access::{denies_all, restricts};
use super::content::{alias_of, in_written_order, is_internal};
use super::error_pages::passes;
use super::fields::has_equal_fields;
use super::locations::{PASSES, leaves_files, rewrite_anew, with_query};
use super::path_case::is_plain_path;
use super::rules::{LOCATION_KEPT, ORIGIN, has_break, rules_choose_anew};
use super::{Translator, inherited, own, value};
use crate::expressions::{has_alternatives, is_match};
use crate::location::{Location, Locations, Pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, with_one_name_of_path};
use crate::write::{block, quote, rewrite};

/// A variable: the path is that of an index, which may be in another location than its directory.
const INDEX_FOUND: &str = "index_found";
/// A variable: the path of that index.
const INDEX_PATH: &str = "index_path";

/// The path of a URI as it was sent, if it does not end in a slash.
const SENT_WITHOUT_SLASH: &str = r"^([^?]*[^/?])(?:\?|$)";

/// Endings of programs' names.
const PROGRAMS: &[&str] = &["php", "php3", "php4", "php5", "php7", "php8", "phtml", "phar", "cgi", "pl", "py"];

impl<'a> Translator<'a> {
    /// Writes the steps for the directories of a location whose index another location may serve. Returns the matcher
    /// of the requests for which the location's `try_files` still counts, if it does not for all.
    pub(super) fn directory_steps(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
    ) -> Option<String> {
        let Indexes { line, files, absolute } = Indexes::of(location);
        let has_directories = has_directories(location);
        let leaves_directories = leaves_directories(location, all);
        if let (Some(line), true) = (line, has_directories && absolute.is_some() && !leaves_directories) {
            self.note(out, line, "an absolute path is not carried over");
        }
        let base = location.prefix().trim_end_matches('/');
        let chosen = |index: &String| {
            all.chosen(&format!("{base}/{index}")).filter(|chosen| !std::ptr::eq(chosen.own(), location.own()))
        };
        if leaves_directories {
            let last = absolute.zip(line).and_then(|(last, line)| self.expand(out, line, scope, last));
            let mut rules = Vec::new();
            let has_matcher = self.rules_of_indexes(&mut rules, location, all, (&files, last.is_some()), scope);
            let earlier = self.candidates_before_directories(out, location, scope);
            let indexes = IndexNames { files: &files, are_marked: !rules.is_empty(), earlier };
            self.other_directories(out, location, &indexes, scope);
            if has_directories {
                self.directories(out, location, &indexes, last.as_deref(), scope);
            }
            out.extend(rules);
            return has_matcher.then(|| {
                let name = self.fresh("stays");
                out.push(format!("@{name} not vars {INDEX_FOUND} yes"));
                name
            });
        }
        if has_directories {
            self.redirect_alias_itself(out, location, scope);
        }
        let of_one_file = |index: &String| {
            chosen(index).is_some_and(|chosen| {
                matches!(chosen.pattern, Pattern::Exact(_)) && !has_equal_fields(&chosen.blocks, &location.blocks)
            })
        };
        if has_directories && alias_of(location).is_none() && files.iter().any(of_one_file) {
            let name = self.fresh("index");
            let files: Vec<_> = files.iter().map(|index| format!("{base}/{index}")).collect();
            block(out, &format!("@{name}"), vec![format!("path {base}/"), format!("file {}", files.join(" "))]);
            self.guarded(
                out,
                location,
                scope,
                &name,
                rewrite_anew(scope, "rewrite * {file_match.relative}".to_owned()),
            );
        }
        None
    }

    /// The line that keeps `file_server` from sending the source of programs, in a location or in none.
    pub(super) fn hidden(&self, location: Option<&Location<'a>>) -> Option<String> {
        let is_sent = |ending: &str| {
            // An application permits such a file, and no expression counts for it.
            let is_permitted = |location: &Location<'_>| self.is_in_accel && location.ends_search();
            location.is_some_and(|location| sends_source(location, ending) || is_permitted(location))
        };
        let hidden: Vec<_> =
            self.programs.iter().filter(|ending| !is_sent(ending)).map(|ending| format!(" *.{ending}")).collect();
        (!hidden.is_empty()).then(|| format!("hide{}", hidden.concat()))
    }

    /// Writes the rules and the `try_files` that choose a location again for an index that was found, as its path is
    /// that of another location now. Of the locations the first that takes the path counts. Returns whether the
    /// location's own `try_files` counts only for requests whose path is still the location's: the mark of an index is
    /// removed from these.
    fn rules_of_indexes(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        all: &Locations<'a>,
        (indexes, has_last): (&[String], bool),
        scope: &VariableScope,
    ) -> bool {
        let is_own = |other: &Location<'a>| std::ptr::eq(other.own(), location.own());
        let takes = |other: &Location<'a>| indexes.iter().any(|index| may_take_index(other, location, index));
        let mut definitions = Vec::new();
        let mut steps = Vec::new();
        for other in &all.ordered {
            let mut definition = Vec::new();
            let (head, capture) = self.location_matcher(&mut definition, other);
            let mut inner = Vec::new();
            if !is_own(other) && takes(other) {
                inner = self.steps_of_index(other, all, &other.scope(scope, &capture));
            }
            definitions.push(definition);
            steps.push((head, inner));
        }
        let has_steps = steps.iter().any(|(_, inner)| !inner.is_empty());
        // The file of an index exists, so that `try_files` without other words finds it again.
        let tries_again = alias_of(location).is_none()
            && leaves_files(location, all)
            && (has_steps || has_last || !tries_path_only(location));
        let own_steps = all.ordered.iter().zip(&steps).map(|(other, (head, _))| {
            let mut unmarked = Vec::new();
            if tries_again && is_own(other) {
                // A file that the index's location has found by another path is still that location's.
                let name = self.fresh("unkept");
                unmarked.push(format!("@{name} vars {LOCATION_KEPT} \"\""));
                unmarked.push(format!("vars @{name} {INDEX_FOUND} \"\""));
            }
            (head.clone(), unmarked)
        });
        let own_steps = handles(own_steps.collect());
        let chains = [handles(steps), own_steps];
        let end = chains.iter().map(|(end, _)| *end).max().unwrap_or_default();
        let mut lines = definitions.into_iter().take(end).flatten().collect::<Vec<_>>();
        match chains {
            [(0, _), (0, _)] => return false,
            [(0, _), (_, chain)] | [(_, chain), (0, _)] => lines.extend(chain),
            chains => chains.into_iter().for_each(|(_, chain)| block(&mut lines, "route", chain)),
        }
        let name = self.fresh("index_found");
        out.push(format!("@{name} vars {INDEX_FOUND} yes"));
        block(out, &format!("route @{name}"), lines);
        tries_again
    }

    /// The rules and the `try_files` of a location that an index has chosen.
    fn steps_of_index(&mut self, location: &Location<'a>, all: &Locations<'a>, outer: &VariableScope) -> Vec<String> {
        let mut scope = outer.clone();
        let mut lines = Vec::new();
        self.with_root(&mut lines, location, outer, |this, out| {
            let mut rules = Vec::new();
            if rules_choose_anew(location.own()) {
                scope = this.scope_of_rules(location, all, outer);
                // The other methods do not reach the rules.
                this.write_other_methods(&mut rules, &location.blocks, &scope);
                let lines = this.rules(&location.blocks, &mut scope);
                block(&mut rules, "route", lines);
            }
            let mut files = Vec::new();
            this.missing_files(&mut files, location, all, &scope);
            if rules.is_empty() || files.is_empty() {
                out.extend(rules);
                out.extend(files);
            } else {
                // After a rule that has changed the path the location is another one.
                out.push(format!("vars {INDEX_PATH} {{path}}"));
                out.extend(rules);
                let name = this.fresh("unchanged");
                out.push(format!("@{name} vars {INDEX_PATH} {{path}}"));
                block(out, &format!("route @{name}"), files);
            }
        });
        lines
    }

    /// Writes the redirect from the path `stem` to the location's listing, if the location has one.
    pub(super) fn redirect_to_listing(
        &mut self,
        route: &mut Vec<String>,
        location: &Location<'a>,
        stem: &str,
        scope: &VariableScope,
    ) {
        let lists = value(&location.blocks, "autoindex") == Some("on") && alias_of(location).is_none();
        let roots = inherited(&location.blocks, "root");
        let Some(root) = roots.last().filter(|_| lists && !is_internal(location)) else { return };
        let Some(root) = self.expand(route, root, scope, root.argument(0)) else { return };
        self.redirect_to_directory(route, (location, scope), stem, (&root, stem));
    }

    /// Writes the redirect from a location without a slash at its end to its directory, which an `alias` names.
    pub(super) fn redirect_to_alias(
        &mut self,
        route: &mut Vec<String>,
        location: &Location<'a>,
        scope: &VariableScope,
    ) {
        let (path, block) = (location.prefix(), location.own());
        let answers = PASSES.iter().chain(&["return", "rewrite"]).any(|name| !own(block, name).is_empty());
        let Some(alias) = own(block, "alias").last().copied() else { return };
        let answers = answers || !tests_directories(location) || path.ends_with('/');
        if !location.is_prefix() || !is_plain_path(path) || answers || is_internal(location) || restricts(location) {
            return;
        }
        let Some((outer_directory, name)) = directory_of(alias) else { return };
        let Some(outer_directory) = self.expand(route, alias, scope, outer_directory) else { return };
        self.redirect_to_directory(route, (location, scope), path, (&format!("{outer_directory}/"), name));
    }

    /// The matcher of the prefix of an `alias` that is a directory, and not a file.
    fn itself_of_alias(&self, location: &Location<'a>, prefix: &str, scope: &VariableScope) -> Vec<String> {
        let mut matcher = vec![self.case.matcher(prefix, "$")];
        let directory = alias_of(location).and_then(|(alias, _)| directory_of(alias));
        if let Some((Ok(outer_directory), name)) =
            directory.map(|(outer_directory, name)| (scope.expand(outer_directory), name))
        {
            let root = format!("root {}", quote(&format!("{outer_directory}/")));
            block(&mut matcher, "file", vec![root, format!("try_files {name}/")]);
        }
        matcher
    }

    /// Writes the redirect of a path to its slash, with the location's fields. It applies if the root has the
    /// directory.
    fn redirect_to_directory(
        &mut self,
        route: &mut Vec<String>,
        (location, scope): (&Location<'a>, &VariableScope),
        path: &str,
        (root, directory): (&str, &str),
    ) {
        let name = self.fresh("directory");
        let mut lines = vec![self.case.matcher(path, "$")];
        block(&mut lines, "file", vec![format!("root {}", quote(root)), format!("try_files {directory}/")]);
        block(route, &format!("@{name}"), lines);
        self.redirect(route, (location, scope), &format!("@{name}"), &format!("{path}/"));
    }

    /// Writes the redirect of the requests of a matcher to another path, with the location's fields.
    pub(super) fn redirect(
        &mut self,
        route: &mut Vec<String>,
        (location, scope): (&Location<'a>, &VariableScope),
        matcher: &str,
        path: &str,
    ) {
        let mut lines = Vec::new();
        self.write_fields(&mut lines, &location.blocks, scope, Some(301));
        let target = format!("{ORIGIN}{path}{{?query}} 301");
        if lines.is_empty() {
            route.push(format!("redir {matcher} {target}"));
        } else {
            lines.push(format!("redir * {target}"));
            block(route, &format!("route {matcher}"), lines);
        }
    }

    /// Writes nginx's steps for a directory whose index another location may serve: a redirect to its slash, and the
    /// index as the path, or, without an index, the path `last`.
    fn directories(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        indexes: &IndexNames<'_>,
        last: Option<&str>,
        scope: &VariableScope,
    ) {
        let Some(place) = self.directory_place(out, location, scope) else { return };
        let is_plain = place.root.is_none() && place.matcher.is_none();
        let earlier = Some(&indexes.earlier).filter(|earlier| is_plain && !earlier.is_empty());
        let no_earlier: Vec<_> = earlier.map(|earlier| format!("not file {earlier}")).into_iter().collect();
        let mut lines = Vec::new();
        self.redirect_alias_itself(&mut lines, location, scope);
        let directory = self.fresh("directory");
        let itself = place.files(&[format!("{}/", place.path)]);
        // The path as it was sent, with its encoding.
        let sent = format!("vars_regexp {directory} {{uri}} {}", quote(SENT_WITHOUT_SLASH));
        block(&mut lines, &format!("@{directory}"), [&itself[..], &[sent], &no_earlier].concat());
        let mut redirect = Vec::new();
        self.write_fields(&mut redirect, &location.blocks, scope, Some(301));
        redirect.push(format!("redir * {ORIGIN}{{re.{directory}.1}}/{{?query}} 301"));
        self.guarded(&mut lines, location, scope, &directory, redirect);
        let with_slash = ["path */".to_owned()];
        let mark = indexes.are_marked.then(|| format!("vars {INDEX_FOUND} yes"));
        let files = indexes.files;
        for files in files.chunks(if place.has_own_names { 1 } else { files.len().max(1) }) {
            let name = self.fresh("index");
            let candidates: Vec<_> = files.iter().map(|index| format!("{}{index}", place.path)).collect();
            block(&mut lines, &format!("@{name}"), [&with_slash[..], &place.files(&candidates), &no_earlier].concat());
            let found = match place.has_own_names {
                true => quote(&format!("{{path}}{}", files[0])),
                false => format!("{}{{file_match.relative}}", place.prefix),
            };
            let mut chosen = rewrite_anew(scope, format!("rewrite * {found}"));
            chosen.extend(mark.clone());
            self.guarded(&mut lines, location, scope, &name, chosen);
        }
        if let Some(last) = last {
            // A directory without an index: its path still ends in a slash.
            let name = self.fresh("no_index");
            block(&mut lines, &format!("@{name}"), [&with_slash[..], &itself].concat());
            let mut chosen = rewrite_anew(scope, rewrite(&with_query(last)));
            chosen.extend(mark.clone());
            self.guarded(&mut lines, location, scope, &name, chosen);
        }
        match place.matcher {
            Some(matcher) => block(out, &format!("route @{matcher}"), lines),
            None => out.extend(lines),
        }
    }

    /// Writes the steps of [`Self::directories`] for the directories by other paths for which the `try_files` of a
    /// location looks.
    fn other_directories(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        indexes: &IndexNames<'_>,
        scope: &VariableScope,
    ) {
        let Some(files) = own(location.own(), "try_files").first().copied() else { return };
        let mut blocks = Vec::new();
        for word in other_directories_of(location) {
            let earlier: Vec<_> = files.arguments.iter().take_while(|path| *path != word).cloned().collect();
            let Some(directory) = self.expand(out, files, scope, word) else { continue };
            let mut conditions = Vec::new();
            if !earlier.is_empty() {
                let Some(earlier) = self.candidates(out, files, &earlier, scope) else { continue };
                conditions.push(format!("not file {earlier}"));
            }
            if earlier.iter().any(|path| path == "$uri/") {
                // The root is a directory that exists, but the matcher `file` finds no directory for `/`.
                conditions.push("not path /".to_owned());
            }
            // As in nginx, the path is the word without its last slash, and has an index if it ends in another one.
            let stem = directory.strip_suffix('/').unwrap_or(&directory);
            let name = self.fresh("directory");
            let (without_slash, with_slash, target);
            if word.ends_with("$uri/") {
                // The path as it was sent, with its encoding.
                let sent = VariableScope { path: format!("{{re.{name}.1}}"), ..scope.clone() };
                let Some(directory) = self.expand(out, files, &sent, word) else { continue };
                without_slash = format!("vars_regexp {name} {{uri}} {}", quote(SENT_WITHOUT_SLASH));
                with_slash = "path */".to_owned();
                target = format!("{directory}{{?query}}");
            } else {
                let variable = self.fresh("stem");
                out.push(format!("vars {variable} {}", quote(stem)));
                without_slash = format!("vars_regexp {variable} [^/]$");
                with_slash = format!("vars_regexp {variable} /$");
                // The path becomes the directory's, which this placeholder encodes.
                target = "{uri}".to_owned();
            }
            let candidates: Vec<_> = indexes.files.iter().map(|index| quote(&format!("{stem}{index}"))).collect();
            let directory = format!("file {}", quote(&directory));
            block(&mut blocks, &format!("@{name}"), [&conditions[..], &[directory, without_slash]].concat());
            let mut redirect = Vec::new();
            if target == "{uri}" {
                redirect.push("rewrite * {file_match.relative}".to_owned());
            }
            self.write_fields(&mut redirect, &location.blocks, scope, Some(301));
            redirect.push(format!("redir * {} 301", quote(&format!("{ORIGIN}{target}"))));
            let mut steps = Vec::new();
            self.guarded(&mut steps, location, scope, &name, redirect);
            // Only one of the blocks runs: the path of an index may be one before which another directory is found.
            block(&mut blocks, &format!("handle @{name}"), steps);
            let name = self.fresh("index");
            conditions.extend([with_slash, format!("file {}", candidates.join(" "))]);
            block(&mut blocks, &format!("@{name}"), conditions);
            let mut chosen = rewrite_anew(scope, "rewrite * {file_match.relative}".to_owned());
            chosen.extend(indexes.are_marked.then(|| format!("vars {INDEX_FOUND} yes")));
            let mut steps = Vec::new();
            self.guarded(&mut steps, location, scope, &name, chosen);
            block(&mut blocks, &format!("handle @{name}"), steps);
        }
        out.extend(blocks);
    }

    /// The files by other paths for which the `try_files` of a location looks before a directory.
    fn candidates_before_directories(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        scope: &VariableScope,
    ) -> String {
        let Some(files) = own(location.own(), "try_files").first().copied() else { return String::new() };
        let earlier = files.arguments.iter().take_while(|path| *path != "$uri/").filter(|path| *path != "$uri");
        let earlier: Vec<String> = earlier.cloned().collect();
        if earlier.is_empty() {
            return String::new();
        }
        self.candidates(out, files, &earlier, scope).unwrap_or_default()
    }

    /// Returns the place of a location's directories in the file system.
    pub(super) fn directory_place(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        scope: &VariableScope,
    ) -> Option<DirectoryPlace> {
        let whole = DirectoryPlace {
            root: None,
            path: "{path}".to_owned(),
            prefix: String::new(),
            matcher: None,
            has_own_names: false,
        };
        match alias_of(location) {
            None => Some(whole),
            Some((alias, Pattern::Prefix { prefix, .. })) => {
                // A path that nginx joins to the name of the directory is not within it.
                let rest = match (alias.argument(0).ends_with('/'), prefix.ends_with('/')) {
                    (true, _) => "(.*)",
                    (false, true) => "(/)",
                    (false, false) => "(/.*|)",
                };
                let (inside, prefix) = (self.fresh("inside"), prefix.trim_end_matches('/').to_owned());
                let expression = format!("(?s)^{}{rest}$", regex::escape(&prefix));
                out.push(format!("@{inside} path_regexp {inside} {}", quote(&expression)));
                // Without a root it would be that of the server.
                let root = self.expand(out, alias, scope, alias.argument(0)).unwrap_or("/nonexistent".to_owned());
                Some(DirectoryPlace {
                    root: Some(root),
                    path: format!("{{re.{inside}.1}}"),
                    prefix,
                    matcher: Some(inside),
                    ..whole
                })
            }
            Some((alias, _)) => {
                let path = self.expand(out, alias, scope, alias.argument(0))?;
                Some(DirectoryPlace { root: Some("/".to_owned()), path, has_own_names: true, ..whole })
            }
        }
    }

    /// Writes the redirect of the prefix of an `alias` to its slash, after the access rules: the matcher `file` finds
    /// no directory for `/`.
    fn redirect_alias_itself(&mut self, out: &mut Vec<String>, location: &Location<'a>, scope: &VariableScope) {
        let Some((_, Pattern::Prefix { prefix, .. })) = alias_of(location) else { return };
        if !prefix.ends_with('/') && restricts(location) {
            let matcher = self.itself_of_alias(location, &prefix, scope);
            let name = self.fresh("stem");
            block(out, &format!("@{name}"), matcher);
            let redirect = format!("redir * {ORIGIN}{prefix}/{{?query}} 301");
            self.guarded(out, location, scope, &name, vec![redirect]);
        }
    }
}

/// The directory around that of an `alias`, and the name in it, with a slash before it: the matcher `file` finds no
/// directory for `/`. `None` for a name with variables.
fn directory_of(alias: &Directive) -> Option<(&str, &str)> {
    let directory = alias.argument(0).trim_end_matches('/');
    let (outer_directory, name) = directory.split_at(directory.rfind('/')?);
    (!name.contains('$') && is_plain_path(name)).then_some((outer_directory, name))
}

/// The blocks of locations with their lines, up to the last block with lines; also returns their number.
fn handles(blocks: Vec<(String, Vec<String>)>) -> (usize, Vec<String>) {
    let end = blocks.iter().rposition(|(_, lines)| !lines.is_empty()).map_or(0, |last| last + 1);
    let mut out = Vec::new();
    for (head, lines) in blocks.into_iter().take(end) {
        block(&mut out, &head, in_written_order(lines));
    }
    (end, out)
}

/// The names of a location's indexes.
struct IndexNames<'t> {
    files: &'t [String],
    /// Rules apply to an index that was found.
    are_marked: bool,
    /// The files for which `try_files` looks before a directory; empty without any.
    earlier: String,
}

/// The place of a location's directories in the file system.
pub(super) struct DirectoryPlace {
    /// The directory of an `alias`.
    root: Option<String>,
    /// The path of a request below the root.
    pub(super) path: String,
    /// The part of a request's path before that.
    prefix: String,
    /// The matcher whose group the path is.
    pub(super) matcher: Option<String>,
    /// The names of files are those of an expression's groups, and not parts of the path.
    has_own_names: bool,
}

impl DirectoryPlace {
    /// The lines of a matcher for files.
    pub(super) fn files(&self, paths: &[String]) -> Vec<String> {
        let paths = paths.iter().map(|path| quote(path)).collect::<Vec<_>>().join(" ");
        let Some(root) = &self.root else { return vec![format!("file {paths}")] };
        let mut lines = Vec::new();
        block(&mut lines, "file", vec![format!("root {}", quote(root)), format!("try_files {paths}")]);
        lines
    }
}

/// The line `index` of a location.
struct Indexes<'a> {
    line: Option<&'a Directive>,
    /// Names of files in a directory.
    files: Vec<String>,
    /// A path, which counts for a directory without any of them.
    absolute: Option<&'a str>,
}

impl<'a> Indexes<'a> {
    fn of(location: &Location<'a>) -> Self {
        let Some(line) = inherited(&location.blocks, "index").last().copied() else {
            return Self { line: None, files: vec!["index.html".to_owned()], absolute: None };
        };
        let (absolute, files): (Vec<&str>, Vec<&str>) =
            line.arguments.iter().map(String::as_str).partition(|file| file.starts_with('/'));
        let files = files.into_iter().map(str::to_owned).collect();
        Self { line: Some(line), files, absolute: absolute.last().copied() }
    }
}

/// Whether a location needs the steps for directories: another one may serve the index of its directories in its own
/// way.
pub(super) fn leaves_directories(location: &Location<'_>, all: &Locations<'_>) -> bool {
    let Indexes { files, .. } = Indexes::of(location);
    let others = || all.ordered.iter().filter(|other| !std::ptr::eq(other.own(), location.own()) && !is_plain(other));
    let finds_directories = has_directories(location) || other_directories_of(location).next().is_some();
    finds_directories && files.iter().any(|index| others().any(|other| may_take_index(other, location, index)))
}

/// The words of the `try_files` of a location for directories by other paths, if the location serves them.
fn other_directories_of<'l>(location: &'l Location<'_>) -> impl Iterator<Item = &'l String> {
    let block = location.own();
    let serves = !passes(block) && !denies_all(block) && alias_of(location).is_none();
    let files = own(block, "try_files").first().copied().filter(|_| serves);
    let candidates = files.and_then(|files| files.arguments.split_last()).map_or(&[][..], |(_, candidates)| candidates);
    let is_other = |path: &&String| path.ends_with('/') && *path != "$uri/" && path.starts_with(['/', '$']);
    candidates.iter().filter(is_other).filter(|path| !path.contains(['?', '*', '[']))
}

/// Whether a location serves files, and so directories, to some clients.
fn has_directories(location: &Location<'_>) -> bool {
    let block = location.own();
    let may_be_directory = match &location.pattern {
        Pattern::Exact(path) => path.ends_with('/'),
        Pattern::Regexp(expression) => ends(expression).is_none(),
        _ => true,
    };
    let has_names = match alias_of(location) {
        Some((_, Pattern::Exact(_) | Pattern::Named(_))) => false,
        // Its groups are in the target.
        Some((alias, Pattern::Regexp(_))) => alias.argument(0).contains('$') && own(block, "try_files").is_empty(),
        _ => true,
    };
    !passes(block) && !denies_all(block) && may_be_directory && has_names && tests_directories(location)
}

/// Whether the `try_files` of a location, if it has one, admits directories.
fn tests_directories(location: &Location<'_>) -> bool {
    let files = own(location.own(), "try_files").first().copied();
    let candidates = files.and_then(|files| files.arguments.split_last()).map(|(_, candidates)| candidates);
    candidates.is_none_or(|candidates| candidates.iter().any(|path| path == "$uri/"))
}

/// Whether the `try_files` of a location finds each file that a request's path names, and no other.
fn tries_path_only(location: &Location<'_>) -> bool {
    let files = own(location.own(), "try_files").first().copied();
    let candidates = files.and_then(|files| files.arguments.split_last()).map(|(_, candidates)| candidates);
    candidates.is_none_or(|candidates| {
        candidates.iter().any(|path| path == "$uri") && candidates.iter().all(|path| path == "$uri" || path == "$uri/")
    })
}

/// The texts, in lower case, with one of which each path ends that an expression matches; `None` for those of other
/// forms.
pub(super) fn ends(expression: &str) -> Option<Vec<String>> {
    let before = expression.strip_suffix('$')?;
    let (head, texts) = match before.strip_suffix(')') {
        Some(group) => group.rsplit_once('(').map(|(head, texts)| (head, texts.trim_start_matches("?:")))?,
        None => before.split_at(before.rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |at| at + 1)),
    };
    let is_text = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    // The letter after a backslash is not text.
    let is_whole = !has_alternatives(head) && !head.ends_with('\\') && texts.split('|').all(is_text);
    is_whole.then(|| texts.split('|').map(str::to_ascii_lowercase).collect())
}

/// Whether a location only sends files, to all clients.
fn is_plain(location: &Location<'_>) -> bool {
    let block = location.own();
    let answers = PASSES.iter().chain(&["return", "try_files"]).any(|name| !own(block, name).is_empty());
    !answers && !rules_choose_anew(block) && !has_break(block) && !restricts(location)
}

/// Whether a location may take the index of a directory of another location. Where that is unclear it may: the steps
/// for directories lead to the location that nginx chooses in any case.
fn may_take_index(other: &Location<'_>, location: &Location<'_>, index: &str) -> bool {
    // After a rule with `break`, and by another word of `try_files`, the directory may be any one.
    let is_any = has_break(location.own()) || other_directories_of(location).next().is_some();
    let base = if is_any { "" } else { location.prefix().trim_end_matches('/') };
    let is_exact = !is_any && matches!(location.pattern, Pattern::Exact(_));
    let is_within = other.blocks.iter().any(|block| std::ptr::eq(*block, location.own()));
    // The expression of a directory may not match the index in it, so that the path chooses among all.
    let is_left = is_any || matches!(&location.pattern, Pattern::Regexp(expression) if looks_ahead(expression));
    match &other.pattern {
        _ if is_exact => other.takes(&format!("{base}/{index}")),
        Pattern::Exact(path) => path.starts_with(base) && path.ends_with(&format!("/{index}")),
        Pattern::Prefix { prefix, .. } => {
            let last = prefix.rsplit('/').next().unwrap_or_default();
            is_left || prefix.starts_with(base) && !last.is_empty() && index.starts_with(last)
        }
        // nginx does not look at the expressions beside `^~`.
        Pattern::Regexp(_) if location.ends_search() && !is_within && !is_any => false,
        Pattern::Regexp(expression) => is_left || may_need_index(expression, index),
        Pattern::Named(_) => false,
    }
}

/// Whether the match of an expression may depend on the text after it.
fn looks_ahead(expression: &str) -> bool {
    ["$", r"\z", r"\Z", r"\b", r"\B", "(?!", "(?="].iter().any(|end| expression.contains(end))
}

/// Whether an expression may match the path of an index, but not that of its directory, which ends in a slash. `true`
/// where that is unclear.
fn may_need_index(expression: &str, index: &str) -> bool {
    let begin = expression.trim_start_matches("(?i)");
    if ends(expression).is_some_and(|ends| !ends.iter().any(|end| index.to_ascii_lowercase().ends_with(end))) {
        return false;
    }
    // A rest that may be empty needs no text.
    let rests = [".*$", "(.*)$", "(?:.*)$", ".*", "(.*)", "(?:.*)"];
    let needed = rests.iter().find_map(|rest| begin.strip_suffix(rest)).unwrap_or(begin);
    let escapes = needed.len() - needed.trim_end_matches('\\').len();
    if escapes % 2 == 1 || index.contains(['/', '$']) {
        return true;
    }
    // The match ends in the directory's path.
    if needed.ends_with('/') && !needed.replace("(?:", "(").contains("(?") && !has_alternatives(needed) {
        return false;
    }
    let Some(texts) = texts_of(needed) else { return true };
    let first = index.chars().next().unwrap_or_default().to_ascii_lowercase();
    // A text that begins in the directory's path goes on after its slash.
    let goes_on = |texts: &str| {
        let mut after = texts.match_indices('/').map(|(at, _)| texts[at + 1..].chars().next().unwrap_or_default());
        after.any(|next| ['(', ')', '|', '^'].contains(&next) || next.to_ascii_lowercase() == first)
    };
    goes_on(&texts) || is_match(&format!("(?i){}", needed.trim_start_matches('^')), index)
}

/// The texts of an expression that matches only some texts, with the signs of groups, alternatives and the beginning;
/// `None` for others.
fn texts_of(expression: &str) -> Option<String> {
    let mut texts = String::new();
    // A look-ahead for a text without a slash ends within the directory's path.
    let expression = expression.replace("(?:", "(").replace("(?!", "(");
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        texts.push(match c {
            '\\' => chars.next().filter(|c| !c.is_alphanumeric())?,
            '.' | '*' | '+' | '?' | '[' | ']' | '{' | '}' | '$' => return None,
            c => c,
        });
    }
    Some(texts)
}

/// Replaces the other names of `$uri` in the words of all `try_files`.
pub(super) fn use_one_name_of_path(directives: &mut [Directive]) {
    for directive in directives {
        if directive.name == "try_files" {
            directive.arguments.iter_mut().for_each(|word| *word = with_one_name_of_path(word));
        }
        use_one_name_of_path(directive.block.as_deref_mut().unwrap_or_default());
    }
}

/// The endings of the programs of a server. nginx sends the source of a program that no location runs; here no location
/// sends it, unless its own expression is about such files.
pub(super) fn programs(server: &Directive, all: &Locations<'_>) -> Vec<&'static str> {
    let runs = |ending: &str| {
        let is_about = |other: &Location<'_>| !is_plain(other) && names_files(&other.pattern, ending);
        all.ordered.iter().any(is_about)
    };
    let is_program = |ending: &str| ending == "php" && has_programs(server) || runs(ending);
    PROGRAMS.iter().copied().filter(|ending| is_program(ending)).collect()
}

/// Whether a location sends the source of programs with this ending on purpose.
fn sends_source(location: &Location<'_>, ending: &str) -> bool {
    is_plain(location) && names_files(&location.pattern, ending)
}

/// Whether a pattern is about files with this ending, and not about all files.
fn names_files(pattern: &Pattern, ending: &str) -> bool {
    match pattern {
        Pattern::Exact(path) | Pattern::Prefix { prefix: path, .. } => path.ends_with(&format!(".{ending}")),
        Pattern::Regexp(expression) => {
            let matches = |ending: &str| is_match(expression, &format!("/x.{ending}"));
            expression.contains(ending)
                && (expression.contains(&format!(r"\.{ending}")) || matches(ending) && !matches("other"))
        }
        Pattern::Named(_) => false,
    }
}

/// Whether a block has a `fastcgi_pass`, at any depth.
pub(super) fn has_programs(block: &Directive) -> bool {
    block.block().iter().any(|directive| directive.name == "fastcgi_pass" || has_programs(directive))
}

/// Whether a location responds with a directory's redirect to its slash: it serves files, and `try_files` admits
/// directories.
pub(super) fn serves_directories(location: &Location<'_>) -> bool {
    let leaves = PASSES.iter().chain(&["return", "rewrite"]).any(|name| !own(location.own(), name).is_empty());
    let tried = inherited(&location.blocks, "try_files");
    !leaves && tried.last().is_none_or(|files| files.arguments.iter().any(|file| file == "$uri/"))
}
