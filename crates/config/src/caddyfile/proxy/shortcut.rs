//! `forward_auth` and `php_fastcgi`: shortcuts for a `reverse_proxy` with preset options. Their own options are removed
//! from the directive; the remaining ones are parsed as those of `reverse_proxy`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::directives::canonical;
use super::super::dispenser::{Dispenser, unexpected_block};
use super::super::error::{Error, ErrorKind};
use super::super::matcher::MatcherSet;
use super::super::members::Members;
use super::super::registry::DirectiveOutput;
use super::super::route::{Route, subroute_handler};
use super::super::segment::Segment;
use super::{Proxy, transport};

/// The words that an option of the shortcut has read.
enum ConsumedWords {
    /// None: it is not an option of the shortcut.
    Nothing,
    /// The words that it took from the dispenser.
    Words,
    /// These words, and the block.
    WordsAndBlock,
}

/// Returns the directive without the words that `take` reads. Like Caddy, offers every word of a line to `take`, not
/// only the first.
fn without(
    d: &mut Dispenser<'_>,
    mut take: impl FnMut(&mut Dispenser<'_>) -> Result<ConsumedWords, Error>,
) -> Result<Segment, Error> {
    let arguments = d.rest().to_vec();
    let directive = d.take_segment();
    let mut lines = Vec::new();
    for line in directive.block.iter().flatten() {
        let words = Vec::from_iter(std::iter::once(&line.name).chain(&line.arguments).cloned());
        let mut rest = words.as_slice();
        let (mut kept, mut block) = (Vec::new(), line.block.clone());
        while let Some((name, arguments)) = rest.split_first() {
            let name = name.clone();
            let option = Segment { name, arguments: arguments.to_vec(), ..line.clone() };
            let mut option = d.over(&option);
            let taken = take(&mut option);
            let left = option.remaining().len();
            // Mark the remaining words as read: they are kept for `reverse_proxy`.
            option.take_segment();
            match taken? {
                ConsumedWords::Nothing => {
                    kept.push(rest[0].clone());
                    rest = arguments;
                    continue;
                }
                ConsumedWords::Words => {}
                ConsumedWords::WordsAndBlock => block = None,
            }
            rest = &arguments[arguments.len() - left..];
        }
        let mut kept = kept.into_iter();
        match kept.next() {
            Some(name) => {
                let opens = block.as_ref().and(line.opens.clone());
                lines.push(Segment { name, arguments: kept.collect(), block, opens, closes: line.closes.clone() });
            }
            None if block.is_some() => {
                let last = line.arguments.last().unwrap_or(&line.name);
                return Err(unexpected_block(line, last));
            }
            None => {}
        }
    }
    let block = directive.block.as_ref().map(|_| lines);
    Ok(Segment { arguments, block, ..directive })
}

/// Parses `forward_auth [<matcher>] [<upstreams…>] { uri <to>; copy_headers <fields…> { <fields…> }; … }`.
pub(crate) fn forward_auth(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let matcher = d.matcher()?;
    let mut uri = String::new();
    let mut copied = BTreeMap::new();
    let proxy = without(d, |line| match &*line.name().text {
        "uri" => {
            let token = line.require()?;
            if !uri.is_empty() {
                return Err(line.word("cannot re-declare uri: {}"));
            }
            uri = token.text.to_string();
            Ok(ConsumedWords::Words)
        }
        "copy_headers" => {
            let mut fields = line.rest().to_vec();
            for mut further in line.lines() {
                fields.push(further.name().clone());
                fields.extend(further.rest().iter().cloned());
            }
            for field in fields {
                let mut names = field.text.split('>');
                let from = names.next().unwrap_or_default();
                let to = names.next();
                if from.is_empty() || to == Some("") {
                    let sentence = format!("found '{}', expected FIELD or FIELD>NAME, without spaces", field.text);
                    return Err(Error::at(&field, ErrorKind::Custom(sentence.into())));
                }
                copied.insert(from.to_owned(), to.unwrap_or(from).to_owned());
            }
            if copied.is_empty() {
                return Err(line.count_error());
            }
            Ok(ConsumedWords::WordsAndBlock)
        }
        _ => Ok(ConsumedWords::Nothing),
    })?;
    if uri.is_empty() {
        return Err(d.rule("the 'uri' subdirective is required"));
    }
    let mut handler = Proxy::default();
    handler.up.apply("X-Forwarded-Method", "{http.request.method}", None);
    handler.up.apply("X-Forwarded-Uri", "{http.request.uri}", None);
    handler.json.insert("rewrite".into(), json!({ "method": "GET", "uri": uri }));
    // A 2xx response lets the request continue, with the copied fields. Any other response is sent to the client.
    handler.answers.add(json!({ "match": { "status_code": [2] }, "routes": copy_routes(&copied) }));
    let handler = handler.read(&mut d.over(&proxy))?;
    Ok(vec![DirectiveOutput::Route(Route::new(matcher, handler))])
}

/// Deletes each field from the client's request first, so that the client cannot forge it, and sets it if the response
/// has it.
fn copy_routes(copied: &BTreeMap<String, String>) -> Vec<Value> {
    let mut routes = vec![json!({ "handle": [{ "handler": "vars" }] })];
    for (from, to) in copied {
        let (to, value) = (canonical(to), format!("{{http.reverse_proxy.header.{}}}", canonical(from)));
        routes.push(json!({ "handle": [{ "handler": "headers", "request": { "delete": [to] } }] }));
        routes.push(json!({
            "match": [{ "not": [{ "vars": { &value: [""] } }] }],
            "handle": [{ "handler": "headers", "request": { "set": { to: [value] } } }],
        }));
    }
    routes
}

/// Parses `php_fastcgi [<matcher>] [<upstreams…>] { root …; split …; index …; try_files …; … }`.
pub(crate) fn php_fastcgi(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let matcher = d.matcher()?;
    let mut transport = Map::new();
    let mut index = "index.php".to_owned();
    let mut tries = Vec::new();
    let proxy = without(d, |line| {
        match &*line.name().text {
            "index" => {
                let [file] = line.rest() else { return Err(line.count_error()) };
                index = file.text.to_string();
            }
            "try_files" => {
                line.require()?;
                line.rest();
                tries = line.arguments().iter().map(|token| token.text.to_string()).collect();
            }
            switch @ ("resolve_root_symlink" | "capture_stderr") => {
                line.expect_no_argument()?;
                transport.switch_on(switch);
            }
            "root" | "split" | "env" | "dial_timeout" | "read_timeout" | "write_timeout" | "max_response_header" => {
                transport::fastcgi(line, &mut transport)?;
            }
            _ => return Ok(ConsumedWords::Nothing),
        }
        Ok(ConsumedWords::Words)
    })?;
    if !transport.contains_key("split_path") {
        transport.list("split_path", vec![".php".into()]);
    }
    transport.insert("protocol".into(), "fastcgi".into());
    let extensions = transport["split_path"].clone();
    let mut routes = if index == "off" { Vec::new() } else { index_routes(&index, tries, &extensions) };

    let handler = Proxy { fixed_transport: Some(transport.into()), ..Proxy::default() };
    let handler = handler.read(&mut d.over(&proxy))?;
    let files = extensions.as_array().into_iter().flatten().filter_map(Value::as_str);
    let files: Vec<Value> = files.map(|extension| format!("*{extension}").into()).collect();
    routes.push(Route::new(Some(MatcherSet::from_iter([("path".to_owned(), files.into())])), handler));
    Ok(vec![match matcher {
        Some(matcher) => DirectiveOutput::Route(Route::new(Some(matcher), subroute_handler(&routes))),
        None => DirectiveOutput::Routes(routes),
    }])
}

/// Redirects a directory with an index file to its trailing slash, then rewrites to the first file that exists.
fn index_routes(index: &str, tries: Vec<String>, extensions: &Value) -> Vec<Route> {
    let in_directory = format!("{{http.request.uri.path}}/{index}");
    let (tries, policy, redirects) = match tries.last() {
        None => {
            let tries = vec!["{http.request.uri.path}".to_owned(), in_directory.clone(), index.to_owned()];
            (tries, Some("first_exist_fallback"), true)
        }
        Some(last) => {
            let policy = last.ends_with(".php").then_some("first_exist_fallback");
            let redirects = tries.contains(&in_directory);
            (tries, policy, redirects)
        }
    };
    let mut routes = Vec::new();
    if redirects {
        let matcher = json!({ "file": { "try_files": [in_directory] }, "not": [{ "path": ["*/"] }] });
        // Relative to the path's last component, so that it cannot lead to another host.
        let to = "./{http.request.orig_uri.path.file_escaped}/{http.request.orig_uri.prefixed_query}";
        let handler = json!({ "handler": "static_response", "status_code": 308, "headers": { "Location": [to] } });
        routes.push(Route::new(matcher.as_object().cloned(), handler));
    }
    let mut file = Map::from_iter([("try_files".to_owned(), Value::from(tries))]);
    if let Some(policy) = policy {
        file.insert("try_policy".into(), policy.into());
    }
    file.insert("split_path".into(), extensions.clone());
    let matcher = MatcherSet::from_iter([("file".to_owned(), file.into())]);
    routes.push(Route::new(Some(matcher), json!({ "handler": "rewrite", "uri": "{http.matchers.file.relative}" })));
    routes
}
