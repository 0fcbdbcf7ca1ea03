//! The meaning of each directive of nginx: walks the servers in their order and writes a site for each.
//!
//! - `tables`: directives that are read elsewhere, that only tune nginx, and reasons why others have no equivalent
//! - `site`: a server: names, certificates, logs
//! - `error_pages`: `error_page`
//! - `listens`, `hosts`: the addresses and names of a server
//! - `locations`: the order of locations, and the rules after which nginx chooses one again
//! - `path_case`: whether the matchers of paths may ignore case
//! - `directories`: the redirect to a directory's slash, and its index
//! - `rules`: `rewrite`, `set` and `return`
//! - `conditions`: `if`
//! - `raw_uri`: rules that remove a prefix from the URI as the client sent it
//! - `content`: a location, and its files
//! - `fields`: `add_header` and `expires`
//! - `access`: a location: addresses, methods, passwords, rates, `auth_request`
//! - `upstream`: `proxy_pass`
//! - `upstream_address`: the address and the URI of `proxy_pass`
//! - `balance`: the choice of one of the servers of `upstream`
//! - `fastcgi`: `fastcgi_pass`
//! - `accel`: responses that an upstream leaves to an internal location
//! - `cache`: `proxy_cache` and `fastcgi_cache`
//! - `map`: variables that depend on another one
//! - `geo`: variables that depend on the client's network
//! - `referers`: pages from which a resource may be requested
//! - `connections`: times and sizes of clients' connections
//! - `real_ip`: the client's address from a field of a trusted proxy
//! - `units`: sizes and durations

mod accel;
mod access;
mod balance;
mod cache;
mod conditions;
mod connections;
mod content;
mod directories;
mod error_pages;
mod fastcgi;
mod fields;
mod geo;
mod hosts;
mod listens;
mod locations;
mod map;
mod path_case;
mod raw_uri;
mod real_ip;
mod referers;
mod rules;
mod site;
mod tables;
mod units;
mod upstream;
mod upstream_address;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use crate::parse::{Directive, Files, Place, SyntaxError, parse};
use crate::variables::{VariableScope, has_path, only_variable};
use crate::write::{block, indent};

/// A variable: the path in the form that nginx compares.
const PATH_RESOLVED: &str = "path_resolved";
/// The expression that takes a whole path.
const WHOLE_PATH: &str = "(?s)^.*$";

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
    let mut main = parse(text, name, files)?;
    raw_uri::replace(&mut main);
    directories::use_one_name_of_path(&mut main);
    let mut translator = Translator {
        files,
        notes: Vec::new(),
        tuning: Vec::new(),
        shared: Shared::default(),
        matcher_names: 0,
        has_cache: false,
        has_real_ip: false,
        is_in_accel: false,
        fields_are_shared: false,
        gzip_of_locations: false,
        programs: Vec::new(),
        case: path_case::PathCase::Ignored,
        kept_locations: Vec::new(),
        conditions: Vec::new(),
        held_fields: Vec::new(),
        outer_fields: accel::OuterFields::default(),
        replaced_fields: Vec::new(),
        named: Vec::new(),
        location_pages: Vec::new(),
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
                translator.report_unread(&mut head, directive, &[]);
            }
            *http
        }
    };
    translator.write_http(&mut head, &mut out, http);
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
        options.push(
            "# nginx redirects to https only where its configuration says so, and obtains no certificates.".to_owned(),
        );
        options.push("auto_https disable_redirects disable_certs".to_owned());
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
    /// Variables of the maps that have an equivalent.
    known_maps: Vec<String>,
    /// Variables of the maps that lack a value; see [`VariableScope::partial`].
    partial_maps: Vec<String>,
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
    matcher_names: usize,
    /// A `cache` is written; the differences of all are named at the first.
    has_cache: bool,
    /// The client's address is that of a field; see `real_ip`.
    has_real_ip: bool,
    /// The locations for `X-Accel-Redirect` are being written; see `accel`.
    is_in_accel: bool,
    /// The site that is being written has the fields of all its locations.
    fields_are_shared: bool,
    /// The locations of the site that is being written are compressed each by its own lines.
    gzip_of_locations: bool,
    /// The endings of files that the site that is being written does not send, as they are programs.
    programs: Vec<&'static str>,
    /// How the paths of the site that is being written are compared.
    case: path_case::PathCase,
    /// The locations that a `break` of the rules written last may keep, each with the scope of its rules.
    kept_locations: Vec<(crate::location::Location<'a>, VariableScope)>,
    /// The `if` that replace fields or the upstream of their location, with their names; see `conditions`.
    conditions: Vec<(Directive, String)>,
    /// The fields of those among the rules written last.
    held_fields: Vec<conditions::HeldFields>,
    /// The fields around the upstream that is being written, which are not for `X-Accel-Redirect`.
    outer_fields: accel::OuterFields,
    /// The names of those that the location of `X-Accel-Redirect` which is being written has to remove.
    replaced_fields: Vec<String>,
    /// The named locations around the lines that are being written.
    named: Vec<String>,
    /// The error pages of the locations of the site that is being written.
    location_pages: Vec<error_pages::LocationPages<'a>>,
    /// Lines of the global option `servers`.
    options: Vec<String>,
}

impl<'a> Translator<'a> {
    fn write_http(&mut self, head: &mut Vec<String>, out: &mut Vec<String>, http: &'a Directive) {
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
            let known = ["server", "upstream", "map", "geo", "limit_req_zone", "log_format", "#"];
            // The types of nginx's own file are those that files have here.
            let is_usual = directive.name == "types"
                && (directive.block().is_empty() || directive.place.file.rsplit('/').next() == Some("mime.types"));
            if !known.contains(&&*directive.name) && !is_usual {
                self.report_unread(head, directive, tables::READ);
            }
        }
        let servers: Vec<&Directive> = http.block().iter().filter(|d| d.name == "server").collect();
        self.write_real_ip(head, http, &servers);
        self.know_maps();
        self.write_connections(head, http);
        self.write_sites(out, http, &servers);
    }

    /// Notes a directive that nothing reads.
    fn report_unread(&mut self, out: &mut Vec<String>, directive: &Directive, read: &[&str]) {
        let name = &*directive.name;
        if read.contains(&name) {
            return;
        }
        if name == "#" {
            out.push(format!("# {}", directive.argument(0)).trim_end().to_owned());
        } else if ["uwsgi_", "scgi_"].iter().any(|prefix| name.starts_with(prefix)) && !name.ends_with("_pass") {
            // The line with the upstream is named, and these are for it.
        } else if name == "charset" && directive.argument(0).eq_ignore_ascii_case("utf-8") {
            // `file_server` declares it by itself.
            self.tuning.push(directive.clone());
        } else if tables::TUNING.contains(&name) || tables::TUNING_PREFIXES.iter().any(|p| name.starts_with(p)) {
            self.tuning.push(Directive { block: None, ..directive.clone() });
        } else {
            let refuses = tables::REFUSING.contains(&name) && directive.argument(0) != "off";
            let reason = match tables::REASONS.iter().find(|(known, _)| *known == name) {
                Some((_, reason)) => reason,
                None if refuses => "no equivalent; all requests are refused",
                None => "no equivalent",
            };
            self.note(out, directive, reason);
        }
    }

    /// Names a line that is not carried over, at its place in the Caddyfile and once in the list.
    fn note(&mut self, out: &mut Vec<String>, directive: &Directive, reason: &str) {
        self.report(out, directive, "not carried over", reason);
    }

    /// Names a line that is carried over with another meaning, as [`Self::note`] does.
    fn remark(&mut self, out: &mut Vec<String>, directive: &Directive, reason: &str) {
        self.report(out, directive, "unlike nginx", reason);
    }

    fn report(&mut self, out: &mut Vec<String>, directive: &Directive, kind: &str, reason: &str) {
        let message = format!("{kind}: \"{}\": {reason}", directive.text()).replace(['\n', '\r'], " ");
        let note = Note { place: directive.place.clone(), message };
        out.push(format!("# {note}"));
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Replaces variables by placeholders; a variable without one is noted, and the result is `None`.
    fn expand(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        scope: &VariableScope,
        text: &str,
    ) -> Option<String> {
        self.expand_or_note(out, directive, scope, text, "")
    }

    fn expand_or_note(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        scope: &VariableScope,
        text: &str,
        consequence: &str,
    ) -> Option<String> {
        match scope.expand(text) {
            Ok(text) => Some(text),
            Err(variable) => {
                self.note(out, directive, &format!("the variable ${variable} has no equivalent here{consequence}"));
                None
            }
        }
    }

    /// Replaces the variables in the text of a rule as [`Self::expand_path`] does. The caller refuses the rule's
    /// requests if there is none.
    fn expand_rule(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        scope: &VariableScope,
        text: &str,
    ) -> Option<String> {
        let scope = self.with_path(out, scope, [text]);
        self.expand_or_note(out, directive, &scope, text, "; its requests are refused")
    }

    /// The scope for texts with the path. If they have it, writes the lines that resolve it to the form that nginx
    /// compares: `{path}` has the double slashes and dot segments of the request, by which a rule could be passed.
    fn with_path<'t>(
        &mut self,
        out: &mut Vec<String>,
        scope: &VariableScope,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> VariableScope {
        let is_set = |text: &str| only_variable(text).is_some_and(|name| scope.set.iter().any(|set| set == name));
        let mut scope = scope.clone();
        if texts.into_iter().any(|text| has_path(text) && !is_set(text)) {
            let name = self.fresh("path");
            out.push(format!("@{name} path_regexp {name} {WHOLE_PATH}"));
            out.push(format!("vars @{name} {PATH_RESOLVED} {{re.{name}.0}}"));
            scope.path = format!("{{vars.{PATH_RESOLVED}}}");
        }
        scope
    }

    /// Replaces variables as [`Self::expand`] does, with the path as nginx compares it.
    fn expand_path(
        &mut self,
        out: &mut Vec<String>,
        directive: &Directive,
        scope: &VariableScope,
        text: &str,
    ) -> Option<String> {
        let scope = self.with_path(out, scope, [text]);
        self.expand(out, directive, &scope, text)
    }

    /// The variables that the block `http` defines.
    fn shared_scope(&self) -> VariableScope {
        VariableScope {
            maps: self.shared.known_maps.clone(),
            partial: self.shared.partial_maps.clone(),
            set: self.shared.geos.iter().map(|geo| geo.variable.to_owned()).collect(),
            has_real_ip: self.has_real_ip,
            ..VariableScope::default()
        }
    }

    /// Returns a matcher's name that no other has.
    fn fresh(&mut self, hint: &str) -> String {
        self.matcher_names += 1;
        let mut slug: String = hint.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        slug.truncate(24);
        let slug = slug.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
        format!("{}_{}", if slug.is_empty() { "all" } else { &slug }, self.matcher_names)
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
pub(crate) mod tests;
