//! `forward_auth` and `php_fastcgi`: a `reverse_proxy` that much is known of already. What they have options of their own for is
//! taken out of their words, and the others are read as those of `reverse_proxy`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::directives::canonical;
use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::matcher::MatcherSet;
use super::super::members::Members;
use super::super::registry::Output;
use super::super::route::{Route, subroute_handler};
use super::super::segment::Segment;
use super::{Proxy, transport};

/// What an option of a shortcut's own has taken.
enum Taken {
    /// Nothing: the word is not one.
    Nothing,
    /// What it has handed out.
    Words,
    /// The block too.
    WordsAndBlock,
}

/// The directive without what `take` takes. Like Caddy this looks at every word of a line, not only at the first.
fn without(
    d: &Dispenser<'_>,
    mut take: impl FnMut(&mut Dispenser<'_>) -> Result<Taken, Error>,
) -> Result<Segment, Error> {
    let directive = d.segment();
    let mut lines = Vec::new();
    for line in directive.block.iter().flatten() {
        let words = Vec::from_iter(std::iter::once(&line.name).chain(&line.arguments).cloned());
        let mut rest = words.as_slice();
        let (mut kept, mut block) = (Vec::new(), line.block.clone());
        while let Some((name, arguments)) = rest.split_first() {
            let (name, closes) = (name.clone(), line.closes.clone());
            let option = Segment { name, arguments: arguments.to_vec(), block: line.block.clone(), closes };
            let mut option = d.over(&option);
            match take(&mut option)? {
                Taken::Nothing => {
                    kept.push(rest[0].clone());
                    rest = arguments;
                    continue;
                }
                Taken::Words => {}
                Taken::WordsAndBlock => block = None,
            }
            rest = &arguments[arguments.len() - option.remaining().len()..];
        }
        let mut kept = kept.into_iter();
        match kept.next() {
            Some(name) => {
                lines.push(Segment { name, arguments: kept.collect(), block, closes: line.closes.clone() });
            }
            None if block.is_some() => {
                let rule = "unrecognized subdirective {}; expected no block here";
                return Err(Error::at(&line.name, ErrorKind::Word { rule, found: "{".into() }));
            }
            None => {}
        }
    }
    Ok(Segment {
        name: directive.name.clone(),
        arguments: d.remaining().to_vec(),
        block: directive.block.as_ref().map(|_| lines),
        closes: directive.closes.clone(),
    })
}

/// `forward_auth [<matcher>] [<upstreams…>] { uri <to>; copy_headers <fields…> { <fields…> }; … }`
pub(crate) fn forward_auth(d: &mut Dispenser<'_>) -> Result<Vec<Output>, Error> {
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
            Ok(Taken::Words)
        }
        "copy_headers" => {
            let mut fields = line.rest().to_vec();
            for further in line.lines() {
                if further.segment().block.is_some() {
                    return Err(further.word("unexpected block behind '{}'; expected field names"));
                }
                fields.push(further.name().clone());
                fields.extend(further.segment().arguments.iter().cloned());
            }
            for field in fields {
                let mut names = field.text.split('>');
                let from = names.next().unwrap_or_default();
                copied.insert(from.to_owned(), names.next().unwrap_or(from).to_owned());
            }
            if copied.is_empty() {
                return Err(line.count_error());
            }
            Ok(Taken::WordsAndBlock)
        }
        _ => Ok(Taken::Nothing),
    })?;
    if uri.is_empty() {
        return Err(d.rule("the 'uri' subdirective is required"));
    }
    let mut handler = Proxy::default();
    handler.up.apply("X-Forwarded-Method", "{http.request.method}", None);
    handler.up.apply("X-Forwarded-Uri", "{http.request.uri}", None);
    handler.json.insert("rewrite".into(), json!({ "method": "GET", "uri": uri }));
    // A good answer lets the request go on, with fields that it brought; any other is the client's.
    handler.answers.add(json!({ "match": { "status_code": [2] }, "routes": copy_routes(&copied) }));
    let handler = handler.read(&mut d.over(&proxy))?;
    Ok(vec![Output::Route(Route::new(matcher, handler))])
}

/// Each field is taken from the client first, so that it cannot bring it itself, then set if the answer has it.
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

/// `php_fastcgi [<matcher>] [<upstreams…>] { root …; split …; index …; try_files …; … }`
pub(crate) fn php_fastcgi(d: &mut Dispenser<'_>) -> Result<Vec<Output>, Error> {
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
                tries = line.segment().arguments.iter().map(|token| token.text.to_string()).collect();
            }
            switch @ ("resolve_root_symlink" | "capture_stderr") => {
                line.overlook_rest();
                transport.switch_on(switch);
            }
            "root" | "split" | "env" | "dial_timeout" | "read_timeout" | "write_timeout" => {
                transport::fastcgi(line, &mut transport)?;
            }
            _ => return Ok(Taken::Nothing),
        }
        Ok(Taken::Words)
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
        Some(matcher) => Output::Route(Route::new(Some(matcher), subroute_handler(&routes))),
        None => Output::Routes(routes),
    }])
}

/// A folder that has an index file is redirected to its slash; then what exists is looked for.
fn index_routes(index: &str, tries: Vec<String>, extensions: &Value) -> Vec<Route> {
    let in_folder = format!("{{http.request.uri.path}}/{index}");
    let (tries, policy, redirects) = match tries.last() {
        None => {
            let tries = vec!["{http.request.uri.path}".to_owned(), in_folder.clone(), index.to_owned()];
            (tries, Some("first_exist_fallback"), true)
        }
        Some(last) => {
            let policy = last.ends_with(".php").then_some("first_exist_fallback");
            let redirects = tries.contains(&in_folder);
            (tries, policy, redirects)
        }
    };
    let mut routes = Vec::new();
    if redirects {
        let matcher = json!({ "file": { "try_files": [in_folder] }, "not": [{ "path": ["*/"] }] });
        // Relative to the path's last part, so that it cannot lead to another host.
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
