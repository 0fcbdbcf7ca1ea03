//! `error_page`: the pages of a server, and those of a location, which replace all of its server's.

use super::access::refuses;
use super::content::{in_written_order, leads_elsewhere};
use super::locations::{PASSES, split_last, with_query};
use super::rules::{always_answers, is_url, rules_choose_anew, rules_of};
use super::{Translator, inherited, own};
use crate::location::{Location, Locations, location_blocks};
use crate::parse::Directive;
use crate::variables::VariableScope;
use crate::write::{block, quote, rewrite};

/// The lines of a `handle_errors` for some statuses.
pub(super) struct ErrorPage {
    pub(super) codes: Vec<String>,
    pub(super) lines: Vec<String>,
}

/// The error pages of a location with its own.
pub(super) struct LocationPages<'a> {
    /// The block of the location.
    owner: &'a Directive,
    /// The value of [`ERROR_PAGES`] in requests of the location.
    name: String,
    pages: Vec<ErrorPage>,
}

/// The variable that names the location whose error pages count.
const ERROR_PAGES: &str = "error_pages";

/// A variable: the URI of the request when its location began.
const PAGE_URI: &str = "page_uri";

/// A placeholder without a value: an empty text would leave the content as it is.
const NO_CONTENT: &str = "{vars.no_content}";

/// Without `=` the status of the error replaces that of the page.
pub(super) const ERROR_STATUS: &str = "{err.status_code}";

impl<'a> Translator<'a> {
    /// Returns the `handle_errors` of a server whose locations are written, in the order of their statuses.
    pub(super) fn write_error_pages(
        &mut self,
        out: &mut Vec<String>,
        blocks: &[&'a Directive],
        scope: &VariableScope,
    ) -> Vec<ErrorPage> {
        let mut server_pages = Vec::new();
        for page in inherited(blocks, "error_page") {
            server_pages.extend(self.error_page(out, page, blocks, scope));
        }
        let location_pages = std::mem::take(&mut self.location_pages);
        if location_pages.is_empty() {
            return server_pages;
        }
        let mut codes: Vec<&String> =
            location_pages.iter().flat_map(|of| &of.pages).chain(&server_pages).flat_map(|page| &page.codes).collect();
        codes.sort_unstable();
        codes.dedup();
        // For each code the page of each location, and at last that of the server. Codes with the same pages are one
        // block.
        let mut merged: Vec<(Vec<Option<&ErrorPage>>, Vec<String>)> = Vec::new();
        for code in codes {
            let all = location_pages.iter().map(|of| &of.pages).chain([&server_pages]);
            let pages: Vec<_> = all.map(|pages| pages.iter().find(|page| page.codes.contains(code))).collect();
            let is_equal = |other: &[Option<&ErrorPage>]| {
                other.iter().zip(&pages).all(|pair| match pair {
                    (Some(one), Some(other)) => std::ptr::eq(*one, *other),
                    (one, other) => one.is_none() && other.is_none(),
                })
            };
            match merged.iter_mut().find(|(other, _)| is_equal(other)) {
                Some((_, codes)) => codes.push(code.clone()),
                None => merged.push((pages, vec![code.clone()])),
            }
        }
        let mut found = Vec::new();
        for (pages, codes) in merged {
            let (server_pages, of_each) = pages.split_last().expect("the server's stand at the end");
            let mut lines = Vec::new();
            let mut without = Vec::new();
            for (location, page) in location_pages.iter().zip(of_each) {
                match page {
                    Some(page) => self.for_locations(&mut lines, &[&location.name], page.lines.clone()),
                    None => without.push(&*location.name),
                }
            }
            // Locations without a page for the status must not get that of the server.
            if server_pages.is_some() && !without.is_empty() {
                self.for_locations(&mut lines, &without, Vec::new());
            }
            if let Some(page) = server_pages {
                block(&mut lines, "handle", page.lines.clone());
            }
            found.push(ErrorPage { codes, lines });
        }
        found
    }

    /// Writes the page of these locations.
    fn for_locations(&mut self, out: &mut Vec<String>, locations: &[&str], page: Vec<String>) {
        let name = self.fresh("errors");
        out.push(format!("@{name} vars {ERROR_PAGES} {}", locations.join(" ")));
        block(out, &format!("handle @{name}"), page);
    }

    /// Writes which location's error pages count, if a location has some. `outer` is the location that led to this one.
    pub(super) fn choose_pages(
        &mut self,
        out: &mut Vec<String>,
        blocks: &[&'a Directive],
        outer: &[&'a Directive],
        scope: &VariableScope,
    ) {
        let owner = owner_of_pages(blocks);
        if owner.map(std::ptr::from_ref) == owner_of_pages(outer).map(std::ptr::from_ref) {
            return;
        }
        let Some(owner) = owner else {
            out.push(format!("vars {ERROR_PAGES} \"\""));
            return;
        };
        let is_named = returns_to_named(owner);
        if is_named {
            out.push(format!("vars {PAGE_URI} {{uri}}"));
        }
        if let Some(known) = self.location_pages.iter().find(|of| std::ptr::eq(of.owner, owner)) {
            out.push(format!("vars {ERROR_PAGES} {}", known.name));
            return;
        }
        let name = self.fresh(owner.arguments.last().map_or("", String::as_str));
        out.push(format!("vars {ERROR_PAGES} {name}"));
        // It stands in the list before its pages are written, which may be of a location with the same pages.
        let at = self.location_pages.len();
        self.location_pages.push(LocationPages { owner, name, pages: Vec::new() });
        for page in own(owner, "error_page") {
            let mut made = self.error_page(out, page, &blocks[..2], scope);
            if let Some(made) = made.as_mut().filter(|_| is_named && is_of_name(page)) {
                // An error brings back the URI of the client, which the index of a directory or a rule has changed.
                let changed = self.fresh("changed");
                let content = std::mem::take(&mut made.lines);
                let matcher =
                    vec![format!("vars_regexp {PAGE_URI} ^/"), format!("not vars {{uri}} {{vars.{PAGE_URI}}}")];
                block(&mut made.lines, &format!("@{changed}"), matcher);
                made.lines.push(format!("rewrite @{changed} {{vars.{PAGE_URI}}}"));
                block(&mut made.lines, "handle", content);
            }
            self.location_pages[at].pages.extend(made);
        }
    }

    fn error_page(
        &mut self,
        out: &mut Vec<String>,
        page: &Directive,
        blocks: &[&'a Directive],
        scope: &VariableScope,
    ) -> Option<ErrorPage> {
        let (target, codes) = page.arguments.split_last()?;
        let mut status = None;
        let mut codes: Vec<&str> = codes.iter().map(String::as_str).collect();
        if let Some(code) = codes.last().and_then(|code| code.strip_prefix('=')) {
            status = Some(code.to_owned());
            codes.pop();
        }
        // With `=` alone the page's response has a status of its own.
        let status_of_page = status.clone().unwrap_or_else(|| ERROR_STATUS.to_owned());
        let scope = &VariableScope { status: status_of_page, ..scope.clone() };
        let mut outer_pages = own(blocks[0], "error_page").into_iter();
        let has_503 = outer_pages.any(has_status_503) || blocks[1].block().iter().any(has_status_503);
        if codes.contains(&"502") && !has_503 && self.may_lack_servers(blocks[1]) {
            // nginx's status is 502 here too.
            codes.push("503");
        }
        let codes = codes.into_iter().map(str::to_owned).collect();
        if let Some(name) = target.strip_prefix('@') {
            let all = Locations::of(blocks);
            let Some(named) = all.named(name) else {
                self.note(out, page, "found no location of this name");
                return None;
            };
            let status = status.unwrap_or_else(|| ERROR_STATUS.to_owned());
            if rules_choose_anew(named.own()) {
                let lines = self.page_after_rules(out, page, named, &all, scope, &status)?;
                return Some(ErrorPage { codes, lines });
            }
            let mut lines = self.content(named, &all, scope);
            replace_status(&mut lines, &status);
            let mut root = Vec::new();
            self.write_root_of_page(&mut root, named, scope);
            lines.splice(0..0, root);
            return Some(ErrorPage { codes, lines });
        }
        let text = self.expand(out, page, scope, target)?;
        if !is_url(&text) && target.contains('$') {
            self.note(out, page, "a path with variables may be that of any file");
            return None;
        }
        if is_url(&text) {
            let status = status.filter(|s| !s.is_empty()).unwrap_or_else(|| "302".to_owned());
            return Some(ErrorPage { codes, lines: vec![format!("redir * {} {status}", quote(&text))] });
        }
        let all = Locations::of(blocks);
        let chosen = all.chosen(path_of(target));
        if chosen.is_some_and(has_access_rules) {
            self.note(out, page, "only pages of a location without access rules are carried over");
            return None;
        }
        if let Some(chosen) = chosen.filter(|chosen| makes_pages(chosen)) {
            let status = status.unwrap_or_else(|| ERROR_STATUS.to_owned());
            let rules = self.request_of_page(&with_query(&text));
            let lines = self.page_of(out, page, rules, chosen, &all, scope, &status)?;
            return Some(ErrorPage { codes, lines });
        }
        let lines = self.page_of_file(out, page, (text, status), chosen, &all, blocks, scope);
        Some(ErrorPage { codes, lines })
    }

    /// Whether a block, or one within it, has an upstream with several servers: without one that works the status
    /// is 503.
    fn may_lack_servers(&self, block: &Directive) -> bool {
        let has_several = |pass: &Directive| {
            let address = pass.argument(0).split_once("://").map_or(pass.argument(0), |(_, address)| address);
            let name = address.split(['/', '$']).next().unwrap_or_default();
            self.shared.upstreams.get(name).is_some_and(|upstream| own(upstream, "server").len() > 1)
        };
        block.block().iter().any(|d| match &*d.name {
            "proxy_pass" | "fastcgi_pass" => has_several(d),
            _ => self.may_lack_servers(d),
        })
    }

    /// Returns the page that is a file, in the location that its path chooses.
    #[expect(clippy::too_many_arguments, reason = "the parts of one page")]
    fn page_of_file(
        &mut self,
        out: &mut Vec<String>,
        page: &Directive,
        (text, status): (String, Option<String>),
        chosen: Option<&Location<'a>>,
        all: &Locations<'a>,
        blocks: &[&'a Directive],
        scope: &VariableScope,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let blocks = chosen.map_or(blocks, |chosen| &*chosen.blocks);
        // The location of the error may have another root.
        if has_directories(blocks[1]) {
            self.write_root(&mut lines, blocks, scope);
        }
        let made = match chosen {
            Some(chosen) => self.page_without_file(out, page, chosen, all, scope, status.as_deref()),
            None => Vec::new(),
        };
        lines.push(format!("rewrite * {}", quote(&if made.is_empty() { text } else { with_query(&text) })));
        if let Some(chosen) = chosen.filter(|_| made.is_empty()) {
            self.write_files_of_page(&mut lines, chosen, all, scope);
        }
        lines.extend(made);
        // `=` alone takes the status of the page.
        let status = status.map(|status| format!("status {}", if status.is_empty() { "200" } else { &*status }));
        let options: Vec<_> = status.into_iter().chain(self.hidden(chosen)).collect();
        match options.is_empty() {
            true => lines.push("file_server".to_owned()),
            false => block(&mut lines, "file_server", options),
        }
        in_written_order(lines)
    }

    /// Writes the `try_files` of the location of a page that is a file.
    fn write_files_of_page(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
    ) {
        let Some(files) = own(location.own(), "try_files").first().copied() else { return };
        let Some((last, candidates)) = split_last(files) else { return };
        if candidates.iter().all(|candidate| matches!(&**candidate, "$uri" | "$uri/")) && last.starts_with('=') {
            return;
        }
        let Some(mut candidates) = self.candidates(out, files, candidates, scope) else { return };
        if !last.starts_with('=')
            && !leads_elsewhere(last, location, all)
            && let Some(last) = self.expand(out, files, scope, path_of(last))
        {
            candidates += &format!(" {}", quote(&last));
        }
        out.push(format!("try_files {candidates}"));
    }

    /// Writes the root of the server for a page's location without one of its own: that of the error may have another.
    fn write_root_of_page(&mut self, out: &mut Vec<String>, location: &Location<'a>, scope: &VariableScope) {
        if !location.location_blocks().iter().any(|block| has_directory(block)) && has_directories(location.blocks[1]) {
            self.write_root(out, location.server_blocks(), scope);
        }
    }

    /// Returns the lines that make a request of a page: nginx sends GET, and not the query of the request.
    fn request_of_page(&mut self, target: &str) -> Vec<String> {
        self.new_request(rewrite(target))
    }

    /// Returns the lines that make a GET request of another one, with the line that sets its URI. An upstream may have
    /// read the content.
    pub(super) fn new_request(&mut self, rewrite: String) -> Vec<String> {
        let other = self.fresh("other_method");
        let mut lines = vec![format!("@{other} not method GET HEAD")];
        block(&mut lines, &format!("request_body @{other}"), vec![format!("set {NO_CONTENT}")]);
        lines.extend([format!("method @{other} GET"), rewrite]);
        lines
    }

    /// Returns the page of a file that is missing, if `try_files` of its location leads to a location that makes one.
    fn page_without_file(
        &mut self,
        out: &mut Vec<String>,
        page: &Directive,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        status: Option<&str>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(files) = own(location.own(), "try_files").first().copied() else { return lines };
        let Some((last, candidates)) = split_last(files) else { return lines };
        let next = all.chosen(path_of(last)).filter(|next| makes_pages(next) && !has_access_rules(next));
        let Some(next) = next.filter(|_| !path_of(last).contains('$')) else { return lines };
        let candidates = self.candidates(out, files, candidates, scope);
        if let (Some(candidates), Some(last)) = (candidates, self.expand(out, files, scope, last)) {
            let missing = self.missing(&mut lines, &candidates);
            let rules = self.request_of_page(&with_query(&last));
            let made = self.page_of(out, page, rules, next, all, scope, status.unwrap_or(ERROR_STATUS));
            block(&mut lines, &format!("handle @{missing}"), made.unwrap_or_default());
        }
        lines
    }

    /// Returns the page of a named location whose only rule leads to a path without variables, and so to one location.
    fn page_after_rules(
        &mut self,
        out: &mut Vec<String>,
        page: &Directive,
        named: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        status: &str,
    ) -> Option<Vec<String>> {
        let path = match &rules_of(named.own())[..] {
            [rule] if rule.name == "rewrite" => Some(path_of(rule.argument(1))),
            _ => None,
        };
        let path = path.filter(|path| path.starts_with('/') && !path.contains('$'));
        let Some(chosen) = path.and_then(|path| all.chosen(path)).filter(|chosen| passes(chosen.own())) else {
            self.note(out, page, "an error page whose rules choose a location is carried over only for one `rewrite` to the path of an upstream");
            return None;
        };
        let mut rules = Vec::new();
        self.write_root(&mut rules, named.location_blocks(), scope);
        rules.extend(self.rules(&named.blocks, &mut scope.clone()));
        let mut lines = Vec::new();
        block(&mut lines, "route", rules);
        self.page_of(out, page, lines, chosen, all, scope, status)
    }

    /// Returns the page that a location responds with, after rules that lead to it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one page")]
    fn page_of(
        &mut self,
        out: &mut Vec<String>,
        page: &Directive,
        rules: Vec<String>,
        location: &Location<'a>,
        all: &Locations<'a>,
        scope: &VariableScope,
        status: &str,
    ) -> Option<Vec<String>> {
        let mut lines = rules;
        self.write_root_of_page(&mut lines, location, scope);
        let (head, capture) = self.location_matcher(&mut lines, location);
        let mut content = self.content(location, all, &location.scope(scope, &capture));
        if !replace_status(&mut content, status) {
            self.note(out, page, "the location of the page sends no page");
            return None;
        }
        block(&mut lines, &head, content);
        let mut ordered = Vec::new();
        block(&mut ordered, "route", lines);
        Some(ordered)
    }
}

/// Whether a rule or an error page, or one within a block, has this status.
fn has_status_503(directive: &Directive) -> bool {
    match &*directive.name {
        "return" | "error_page" => directive.arguments.iter().any(|word| matches!(&**word, "503" | "=503")),
        "try_files" => directive.arguments.last().is_some_and(|last| last == "=503"),
        _ => directive.block().iter().any(has_status_503),
    }
}

/// Whether a location leaves its responses to an upstream.
pub(super) fn passes(location: &Directive) -> bool {
    PASSES.iter().any(|name| !own(location, name).is_empty())
}

/// Whether a location leaves its requests to a named one by an error of its own, as with `error_page 418 = @app; return
/// 418;`.
fn returns_to_named(owner: &Directive) -> bool {
    let returns = |rule: &Directive| rule.name == "return" || !own(rule, "return").is_empty();
    own(owner, "error_page").into_iter().any(is_of_name) && rules_of(owner).into_iter().any(returns)
}

/// Whether an error page is that of a named location.
fn is_of_name(page: &Directive) -> bool {
    page.arguments.last().is_some_and(|target| target.starts_with('@'))
}

/// The location whose own error pages count in the innermost of these blocks.
fn owner_of_pages<'a>(blocks: &[&'a Directive]) -> Option<&'a Directive> {
    location_blocks(blocks).iter().rev().copied().find(|block| !own(block, "error_page").is_empty())
}

/// Gives the responses of a location this status; an empty one leaves that of each response, which is 200 for a file.
/// Returns whether the lines have a response.
fn replace_status(lines: &mut Vec<String>, status: &str) -> bool {
    let is_answer =
        |line: &String| ["respond * ", "reverse_proxy ", "file_server"].iter().any(|head| line.starts_with(head));
    let answers: Vec<usize> = (0..lines.len()).filter(|at| is_answer(&lines[*at])).collect();
    // From the last one, as lines are added.
    for at in answers.iter().rev().copied() {
        let line = &mut lines[at];
        let option = match (line.starts_with("file_server"), status) {
            (true, "") => "status 200".to_owned(),
            (false, "") => continue,
            (true, status) => format!("status {status}"),
            (false, status) if line.starts_with("respond") => {
                let end = line.rfind(' ').expect("it has arguments");
                line.replace_range(end + 1.., status);
                continue;
            }
            (false, status) => format!("replace_status {status}"),
        };
        if line.ends_with('{') {
            // Of several handlers of responses the first counts.
            let len = end_of_block(&lines[at..]);
            lines.insert(at + len, option);
        } else {
            *line += " {";
            lines.splice(at + 1..=at, [option, "}".to_owned()]);
        }
    }
    refuse_with_status(lines);
    !answers.is_empty()
}

/// The number of lines before the one that ends the block which the first line begins.
fn end_of_block(lines: &[String]) -> usize {
    let mut depth = 0_usize;
    for (at, line) in lines.iter().enumerate() {
        depth = if line == "}" { depth.saturating_sub(1) } else { depth + usize::from(line.ends_with('{')) };
        if depth == 0 {
            return at;
        }
    }
    lines.len()
}

/// Makes responses of the errors in an error page: an error there would leave the status of the first one.
fn refuse_with_status(lines: &mut [String]) {
    for line in lines {
        let Some(words) = line.strip_prefix("error ") else { continue };
        *line = match words.strip_prefix("intercepted ") {
            Some(status) => format!("respond \"\" {status}"),
            None => format!("respond {words}"),
        };
    }
}

/// The path of a target that may have a query, which has no part in the choice of a location.
pub(super) fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

/// Whether the pages of a location come from an upstream or a rule, also by way of a named location.
fn makes_pages(location: &Location<'_>) -> bool {
    let block = location.own();
    let leads_to_named = |files: &&Directive| files.arguments.last().is_some_and(|last| last.starts_with('@'));
    let has_named = own(block, "try_files").first().is_some_and(leads_to_named);
    !location.is_server() && (passes(block) || always_answers(block) || has_named)
}

/// Whether a location, or one around it, has access rules. The error itself leads to an internal location.
fn has_access_rules(location: &Location<'_>) -> bool {
    let is_rule = |d: &Directive| !matches!(&*d.name, "internal" | "return") && refuses(d);
    location.location_blocks().iter().any(|block| block.block().iter().any(is_rule))
}

/// Whether a location in a block has a directory of its own.
fn has_directories(block: &Directive) -> bool {
    block.block().iter().any(|inner| inner.name == "location" && (has_directory(inner) || has_directories(inner)))
}

/// Whether a block has a directory of its own.
fn has_directory(block: &Directive) -> bool {
    block.block().iter().any(|d| matches!(&*d.name, "root" | "alias"))
}
