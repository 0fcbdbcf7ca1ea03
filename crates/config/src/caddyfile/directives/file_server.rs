//! file_server and try_files.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::clean_path::clean_path;
use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::import::matches;
use super::super::matcher::MatcherSet;
use super::super::quantity::{integer, weak};
use super::super::registry::DirectiveOutput;
use super::super::route::Route;
use super::{Handler, texts};

const OPTIONS: &[&str] = &[
    "browse",
    "disable_canonical_uris",
    "etag_file_extensions",
    "fs",
    "hide",
    "index",
    "pass_thru",
    "precompress",
    "precompressed",
    "root",
    "status",
];

/// Parses `file_server [<matcher>] [browse] { … }`.
pub(super) fn file_server(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("file_server");
    if let Some(word) = d.argument() {
        if &*word.text != "browse" {
            return Err(d.count_error());
        }
        d.expect_no_argument()?;
        handler.set("browse", json!({}));
    }
    let mut hide = Vec::new();
    for mut line in d.lines() {
        match &*line.name().text {
            "fs" if handler.0.contains_key("fs") => return Err(line.rule("file system already specified")),
            key @ ("fs" | "root") => {
                handler.text(key, &line.require()?.text);
                no_more(&mut line)?;
            }
            "status" => {
                handler.set("status_code", weak(&line.require()?.text));
                no_more(&mut line)?;
            }
            "hide" => {
                line.require()?;
                hide.extend(line.arguments().iter().map(|token| token.text.clone()));
            }
            "index" => list(&mut handler, "index_names", &mut line)?,
            "etag_file_extensions" => list(&mut handler, "etag_file_extensions", &mut line)?,
            "browse" if handler.0.contains_key("browse") => return Err(line.rule("browsing is already configured")),
            "browse" => {
                handler.set("browse", browse(&mut line)?);
            }
            "precompress" if handler.0.contains_key("precompress") => {
                return Err(line.rule("precompress is already configured"));
            }
            "precompress" => precompress(&mut handler, &mut line)?,
            "precompressed" => precompressed(&mut handler, &mut line)?,
            "disable_canonical_uris" => {
                line.expect_no_argument()?;
                handler.set("canonical_uris", false);
            }
            "pass_thru" => {
                line.expect_no_argument()?;
                handler.set("pass_thru", true);
            }
            _ => return Err(line.unknown("unknown subdirective '{}'", OPTIONS)),
        }
    }
    // The Caddyfile and its imports are never served.
    for file in d.files() {
        let file = clean_path(Path::new(&**file)).to_string_lossy().into_owned();
        if !hidden(&file, &hide) {
            hide.push(if file.contains('/') { file.into() } else { format!("./{file}").into() });
        }
    }
    if !hide.is_empty() {
        handler.set("hide", hide.iter().map(|path| Value::from(&**path)).collect::<Value>());
    }
    Ok(handler.json())
}

/// Rejects a further word. Caddy reads it as another option, which is never meant on this line.
fn no_more(line: &mut Dispenser<'_>) -> Result<(), Error> {
    match line.argument() {
        Some(_) => Err(line.word("unknown subdirective '{}'; expected nothing more on this line")),
        None => Ok(()),
    }
}

fn list(handler: &mut Handler, key: &str, line: &mut Dispenser<'_>) -> Result<(), Error> {
    line.require()?;
    handler.set(key, texts(line.arguments()));
    Ok(())
}

/// Parses `precompress [<formats…>]`, which Caddy does not have: the formats in which the server itself compresses
/// cached files, the preferred one first.
fn precompress(handler: &mut Handler, line: &mut Dispenser<'_>) -> Result<(), Error> {
    let mut formats: Vec<Value> = Vec::new();
    while let Some(format) = line.argument() {
        if !matches!(&*format.text, "br" | "gzip" | "zstd") {
            return Err(line.word("unknown format '{}'; expected br, gzip or zstd"));
        }
        if formats.iter().any(|known| *known == *format.text) {
            return Err(line.word("format '{}' is named twice; expected each format once"));
        }
        formats.push(Value::from(&*format.text));
    }
    if formats.is_empty() {
        formats = ["br", "zstd", "gzip"].map(Value::from).into();
    }
    handler.set("precompress", formats);
    Ok(())
}

/// Parses `precompressed [<formats…>]`. The default is Caddy's order of preference.
fn precompressed(handler: &mut Handler, line: &mut Dispenser<'_>) -> Result<(), Error> {
    let mut formats = Map::new();
    let mut order = Vec::new();
    while let Some(format) = line.argument() {
        if !matches!(&*format.text, "br" | "gzip" | "zstd") {
            return Err(line.word("getting module named 'http.precompressed.{}': expected br, gzip or zstd"));
        }
        formats.insert(format.text.to_string(), json!({}));
        order.push(Value::from(&*format.text));
    }
    if order.is_empty() {
        order = ["br", "zstd", "gzip"].map(Value::from).into();
        formats = order.iter().filter_map(|format| Some((format.as_str()?.to_owned(), json!({})))).collect();
    }
    // As in Caddy, a second line adds its formats but replaces the order.
    if let Some(Value::Object(earlier)) = handler.0.get("precompressed") {
        formats.extend(earlier.clone());
    }
    handler.set("precompressed", formats).set("precompressed_order", order);
    Ok(())
}

/// Parses `browse [<template>] { reveal_symlinks; sort …; file_limit <n>; plain_time_format <layout> }`.
fn browse(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    const SORTS: [&str; 6] = ["name", "namedirfirst", "size", "time", "asc", "desc"];
    let mut browse = Map::new();
    if let Some(template) = d.argument().filter(|template| !template.text.is_empty()) {
        browse.insert("template_file".into(), (*template.text).into());
    }
    no_more(d)?;
    let mut sorts = Vec::new();
    for mut line in d.lines() {
        let name = &*line.name().text;
        match name {
            "reveal_symlinks" if browse.contains_key(name) => {
                return Err(line.rule("Symlinks path reveal is already enabled"));
            }
            "reveal_symlinks" => {
                browse.insert(name.into(), true.into());
                no_more(&mut line)?;
            }
            "sort" => {
                while let Some(sort) = line.argument() {
                    if !SORTS.contains(&&*sort.text) {
                        return Err(line.word("unknown sort option '{}'"));
                    }
                    sorts.push(Value::from(&*sort.text));
                }
            }
            "file_limit" => {
                let limit = match line.rest() {
                    [limit] => integer(&limit.text),
                    _ => None,
                };
                let Some(limit) = limit else { return Err(line.rule("file_limit should have an integer value")) };
                if browse.contains_key(name) {
                    return Err(line.rule("file_limit is already enabled"));
                }
                if limit != 0 {
                    browse.insert(name.into(), limit.into());
                }
            }
            "plain_time_format" => match line.rest() {
                [] => return Err(line.rule("plain_time_format is missing a time layout argument")),
                [layout] if layout.text.is_empty() => {
                    return Err(line.rule("plain_time_format requires a non-empty time layout argument"));
                }
                [_] if browse.contains_key(name) => return Err(line.rule("plain_time_format is already set")),
                [layout] => {
                    browse.insert(name.into(), (*layout.text).into());
                }
                _ => {
                    return Err(line.rule(
                        "plain_time_format accepts exactly one time layout argument; enclose layouts containing \
                         spaces in quotes",
                    ));
                }
            },
            _ => {
                let expected = &["file_limit", "plain_time_format", "reveal_symlinks", "sort"];
                return Err(line.unknown("unknown subdirective '{}'", expected));
            }
        }
    }
    if !sorts.is_empty() {
        browse.insert("sort".into(), sorts.into());
    }
    Ok(browse.into())
}

/// Whether the list already hides a path. A pattern without a slash hides any component; a pattern with one hides the
/// path itself and everything below. A wildcard matches within one component. Compares absolute paths.
fn hidden(file: &str, hide: &[Box<str>]) -> bool {
    let absolute = std::path::absolute(file).map_or(file.to_owned(), |path| path.to_string_lossy().into_owned());
    let parts = Vec::from_iter(absolute.split('/'));
    hide.iter().any(|pattern| {
        if !pattern.contains('/') {
            return parts.iter().any(|part| matches(pattern, part));
        }
        let patterns = Vec::from_iter(pattern.split('/'));
        let beneath = absolute.strip_prefix(&**pattern).is_some_and(|rest| rest.starts_with('/'));
        let glob = || patterns.iter().zip(&parts).all(|(pattern, part)| matches(pattern, part));
        beneath || (patterns.len() == parts.len() && glob())
    })
}

/// Parses `try_files <files…> { policy <policy> }`. Adds one rewrite for each file with a query, and one for each run
/// of files without; only the first that matches runs.
pub(super) fn try_files(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    const POLICIES: [&str; 5] =
        ["first_exist", "first_exist_fallback", "largest_size", "smallest_size", "most_recently_modified"];
    d.require()?;
    let files = d.arguments();
    let mut policy = None;
    for mut line in d.lines() {
        if &*line.name().text != "policy" {
            // DEVIATES: Caddy ignores any other line.
            return Err(line.unknown("unrecognized subdirective '{}'", &["policy"]));
        }
        if policy.is_some() {
            return Err(line.rule("try policy already configured"));
        }
        let chosen = &line.require()?.text;
        if !POLICIES.contains(&&**chosen) {
            return Err(line.word("unrecognized try policy: {}"));
        }
        policy = Some(chosen);
    }
    let route = |files: &[&str], query: &str| {
        let mut file = Map::from_iter([("try_files".to_owned(), Value::from(files.to_vec()))]);
        if let Some(policy) = policy {
            file.insert("try_policy".into(), (**policy).into());
        }
        let matcher = MatcherSet::from_iter([("file".to_owned(), Value::Object(file))]);
        let mut handler = Handler::new("rewrite");
        handler.set("uri", format!("{{http.matchers.file.relative}}{query}"));
        Route::new(Some(matcher), handler.json())
    };
    let mut routes = Vec::new();
    let mut run: Vec<&str> = Vec::new();
    for file in files {
        match file.text.find('?') {
            Some(query) => {
                if !run.is_empty() {
                    routes.push(route(&std::mem::take(&mut run), ""));
                }
                routes.push(route(&[&file.text[..query]], &file.text[query..]));
            }
            None => run.push(&file.text),
        }
    }
    if !run.is_empty() {
        routes.push(route(&run, ""));
    }
    if routes.len() > 1 {
        let group = d.next_group_name();
        routes.iter_mut().for_each(|route| route.group = Some(group.clone()));
    }
    Ok(routes.into_iter().map(DirectiveOutput::Route).collect())
}
