use causeway_config::caddyfile::{DirectiveOutput, Directives, Error, Order, Route, Syntax, adapt};
use serde_json::{Value, json};

use super::{handlers, json, read, routes};

/// The body of the only `respond`.
#[track_caller]
fn check(cases: &[(&str, &str, &str)]) {
    for (why, source, want) in cases {
        assert_eq!(handlers(source)[0]["body"], **want, "{why}: {source:?}");
    }
}

// Quotes preserve white space. In double quotes only `\"` is an escape; backticks escape nothing. A comment starts at a
// word. A backslash before a line break joins lines, and before `<<` prevents a heredoc.
#[test]
fn words() {
    check(&[
        ("double quotes", "respond \"a b\"", "a b"),
        ("escaped quote, other backslashes stay", r#"respond "a \"b\" \n""#, r#"a "b" \n"#),
        ("backticks", "respond `a \\\" b`", "a \\\" b"),
        ("quotes over lines", "respond \"a\nb\"", "a\nb"),
        ("a hash inside a word", "respond a#b # comment", "a#b"),
        ("joined lines", "respond \\\n\tx", "x"),
        ("carriage returns", "respond x\r", "x"),
        ("quoted brace", "respond \"{\"", "{"),
        ("escaped heredoc", "respond \\<<A", "<<A"),
        ("heredoc without indentation", "respond <<A\nx\n\ny\nA", "x\n\ny"),
        ("heredoc indented like its marker", "respond <<A\n\t\tx\n\t\t\ty\n\t\tA", "x\n\ty"),
        ("heredoc with carriage returns", "respond <<A\r\nx\r\nA", "x"),
        ("the marker anywhere on a line, also after its own beginning", "respond <<AAB\nAx\nAAAB", "x"),
        ("braces in a placeholder", "respond {http.request.uri}", "{http.request.uri}"),
    ]);
}

// DEVIATES: in Caddy a backslash at the end of a comment makes the next line's words arguments.
#[test]
fn comments_that_end_in_a_backslash() {
    assert_eq!(handlers("respond x # a \\\nheader A b"), handlers("respond x\nheader A b"));
}

// The time is linear: with a search for each variable, or from each character of a heredoc, this takes minutes.
#[test]
fn long_texts() {
    let marker = "A".repeat(60_000);
    let lines = format!("{}\n", &marker[1..]).repeat(20);
    let heredoc = handlers(&format!("respond <<{marker}\n{lines}{marker}"));
    assert_eq!(heredoc[0]["body"].as_str().map(str::len), Some(lines.len() - 1));
    let words = "{$NONE} ".repeat(30_000);
    let comments = "#\n".repeat(30_000);
    assert_eq!(handlers(&format!("{comments}respond x {words}")), handlers("respond x"));
}

// {$NAME} is substituted before words are split. A default follows a colon; an unset variable is empty; values are not
// substituted again.
#[test]
fn environment() {
    check(&[
        ("set", "respond {$HOST}", "a.test"),
        ("inside a word", "respond <{$HOST}>", "<a.test>"),
        ("default", "respond {$NONE:fall back}", "fall"),
        ("default unused", "respond {$HOST:b}", "a.test"),
        ("an empty value overrides the default", "respond \"{$EMPTY:b}.\"", "."),
        ("unset", "respond \"[{$NONE}]\"", "[]"),
        ("a value in quotes stays one word", "respond \"{$TWO_WORDS}\"", "one two"),
        ("nameless", "respond {$}", "{$}"),
    ]);
    assert_eq!(handlers("header {$TWO_WORDS}")[0]["response"]["set"], json!({ "One": ["two"] }));
    assert_eq!(handlers("respond {$TWO_LINES}").as_array().unwrap().len(), 2, "a value can contain line breaks");
}

#[test]
fn short_placeholders() {
    check(&[
        ("plain", "respond {host}:{port}", "{http.request.host}:{http.request.port}"),
        (
            "odd characters",
            "respond {?query}{%path}",
            "{http.request.uri.prefixed_query}{http.request.uri.path_escaped}",
        ),
        ("families", "respond {header.X-A}{re.a.1}", "{http.request.header.X-A}{http.regexp.a.1}"),
        ("dots only in families that allow them", "respond {header.a.b}", "{header.a.b}"),
        ("unknown", "respond {nothing}", "{nothing}"),
        ("nested brace", "respond {{host}}", "{{http.request.host}}"),
    ]);
}

// A file with one site can omit the braces; after a comma, addresses continue on the next line.
#[test]
fn site_blocks() {
    assert_eq!(json(":80\nrespond x"), json(":80 {\n\trespond x\n}\n"));
    assert_eq!(json("http://a.test,\nhttp://b.test {\n}\n"), json("http://a.test http://b.test {\n}\n"));
    assert_eq!(json("\u{feff}:80\nrespond x"), json(":80\nrespond x"), "a byte order mark is skipped");
    assert_eq!(json(":80\n{\nrespond x\n}"), json(":80\nrespond x"), "only a site's brace may stand on the next line");
    assert_eq!(json(" \n"), json!({}));
    assert_eq!(json("{\n\tdebug\n}\n"), json!({ "logging": { "logs": { "default": { "level": "DEBUG" } } } }));
}

// import of a snippet: arguments by number or range, blocks as a whole or by name.
#[test]
fn snippets() {
    let site = |snippet: &str, body: &str| json(&format!("(s) {{\n{snippet}\n}}\n:80 {{\n{body}\n}}\n"));
    let plain = |body: &str| json(&format!(":80 {{\n{body}\n}}\n"));
    let cases = [
        ("respond x", "import s", "respond x"),
        ("respond {args[0]}-{args[1]}", "import s a b", "respond a-b"),
        ("respond {args[:]}", "import s a 404", "respond a 404"),
        ("header {args[1:]}", "import s a B c", "header B c"),
        ("respond {args.0}", "import s a", "respond a"),
        ("respond \"{args[0]}{args[7]}\"", "import s a", "respond \"a{args[7]}\""),
        ("header {\n{block}\n}", "import s {\nA b\n-C\n}", "header {\nA b\n-C\n}"),
        ("handle {\n{block}\n}", "import s", "handle {\n}"),
        ("{blocks.one}\n{blocks.two}", "import s {\ntwo {\nheader A b\n}\n}", "header A b"),
        ("header A {blocks.value}", "import s {\nvalue b\n}", "header A\nb"),
    ];
    for (snippet, body, same) in cases {
        if same == "header A\nb" {
            // Words of a block never join a line of the snippet.
            let error = read(&format!("(s) {{\n{snippet}\n}}\n:80 {{\n{body}\n}}\n")).unwrap_err();
            assert_eq!(error.position().to_string(), "Caddyfile:6:7");
            continue;
        }
        assert_eq!(site(snippet, body), plain(same), "{snippet:?} {body:?}");
    }
    let whole = "(s) {\nhttp://{args[0]} {\nrespond {args[0]}\n}\n}\nimport s a\nimport s b\n";
    assert_eq!(json(whole), json("http://a {\nrespond a\n}\nhttp://b {\nrespond b\n}\n"));
}

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/caddyfile/files/Caddyfile");

fn from_files(source: &str) -> Result<Value, Error> {
    adapt(source, FILES, &Directives::standard(), &|_| None).map(|adapted| adapted.json)
}

// import of files: relative to the importing file, one wildcard, and snippets that the files define.
#[test]
fn files() {
    let plain = |body: &str| from_files(&format!(":80 {{\n{body}\n}}\n")).unwrap();
    assert_eq!(plain("import answer.conf a 404"), plain("respond a 404"));
    assert_eq!(plain("import ans*.conf a 404"), plain("respond a 404"));
    assert_eq!(from_files("import snip*\n:80 {\nimport twice x\n}\n").unwrap(), plain("header A x\nheader B x"));
    let error = from_files("import loop.conf\n").unwrap_err().to_string();
    assert!(error.contains("/loop.conf:1:1: a cycle of imports exists between "), "{error}");
    let error = from_files(":80\nimport absent.conf\n").unwrap_err().to_string();
    assert!(error.ends_with("Caddyfile:2:8: File to import not found: absent.conf"), "{error}");
    let error = from_files(":80\nimport absent\n").unwrap_err().to_string();
    let want = "File to import not found: absent; no snippet (absent) stands above this line either";
    assert!(error.ends_with(&format!("Caddyfile:2:8: {want}")), "{error}");
    // A device without end is read up to the limit.
    let error = from_files(":80\nimport /dev/zero\n").unwrap_err().to_string();
    assert!(error.ends_with("Caddyfile:2:8: Could not import /dev/zero: file too large"), "{error}");
    let adapted = adapt(":80\nimport absent*\n", FILES, &Directives::standard(), &|_| None).unwrap();
    assert_eq!(adapted.warnings.len(), 1, "a pattern without matches is accepted, with a warning");
}

// As Go's `filepath.Glob`: the wildcard can be in any component, and the matches are sorted. As in Caddy, a leading `*`
// finds no hidden files, but files in hidden directories. A relative pattern is cleaned first, so that `..` takes a
// wildcard away; an absolute one is not.
#[test]
fn wildcards_in_directories() {
    let plain = |body: &str| from_files(&format!(":80 {{\n{body}\n}}\n")).unwrap();
    let in_files = |path: &str| format!("{}/tests/caddyfile/files{path}", env!("CARGO_MANIFEST_DIR"));
    let headers = |names: &[&str]| plain(&names.iter().map(|name| format!("header {name} x\n")).collect::<String>());
    for (pattern, want) in [
        ("sites/*/site.conf", &["Four", "One", "Two"][..]),
        ("sites/t*/site.conf", &["Two"]),
        ("sites/t?o/s*.conf", &["Two"]),
        ("./sites/*/../one/site.conf", &["One"]),
        ("absent/../sites/*/./site.conf", &["Four", "One", "Two"]),
        ("absent/../sites/one/site.conf", &["One"]),
        (&in_files("/sites/*/site.conf"), &["Four", "One", "Two"]),
        (&in_files("/sites/../sites/t*/site.conf"), &["Two"]),
        (&in_files("/sites/*/../one/site.conf"), &[]),
        (&in_files("/sites/*/./site.conf"), &[]),
        (&in_files("/sites/*//site.conf"), &[]),
        (&in_files("/absent/../sites/*/site.conf"), &[]),
        ("sites/three/.h*", &["Three"]),
        ("sites/three/*", &[]),
        ("sites/*/absent.conf", &[]),
        ("sites/note/*", &[]),
        ("absent/*/site.conf", &[]),
    ] {
        assert_eq!(plain(&format!("import {pattern}")), headers(want), "{pattern}");
    }
}

// The files that a site's words come from are hidden from its file server, however deep the import.
#[test]
fn imported_files_are_hidden() {
    let json = from_files(":80 {\nfile_server\nimport answer.conf a 200\n}\n").unwrap();
    let text = json.to_string();
    assert!(text.contains("tests/caddyfile/files/Caddyfile\""), "{text}");
    assert!(text.contains("tests/caddyfile/files/answer.conf\""), "{text}");
}

// A registered directive: its position in the order, matchers and errors work as for built-in ones.
#[test]
fn registered_directives() {
    let mut directives = Directives::standard();
    let greet = Syntax::Handler(|d| {
        let name = d.require()?.text.to_string();
        d.expect_no_argument()?;
        Ok(json!({ "handler": "greet", "name": name }))
    });
    let pair = Syntax::Custom(|d| {
        let route = |name: &str| Route::new(None, json!({ "handler": name }));
        d.expect_no_argument()?;
        Ok(vec![DirectiveOutput::Routes(vec![route("one"), route("two")])])
    });
    directives.register("greet", Order::Before("header"), greet).unwrap();
    directives.register("pair", Order::Unordered, pair).unwrap();
    directives.withhold("templates");
    directives.register("templates", Order::Last, pair).unwrap();
    assert!(directives.register("respond", Order::Last, greet).is_err(), "taken");
    assert!(directives.register("other", Order::After("nothing"), greet).is_err(), "the neighbour is unknown");

    let adapt = |source: &str| adapt(source, "Caddyfile", &directives, &|_| None);
    let names = |source: &str| {
        let json = adapt(source).unwrap().json;
        let routes = json["apps"]["http"]["servers"]["srv0"]["routes"].as_array().unwrap().clone();
        let handlers = routes.iter().flat_map(|route| route["handle"].as_array().unwrap().clone());
        handlers.map(|handler| handler["handler"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(":80\nheader A b\ngreet /x you\nrespond x"), ["greet", "headers", "static_response"]);
    assert_eq!(names(":80\nrespond x\ntemplates"), ["one", "two", "static_response"], "it keeps Caddy's place");
    assert_eq!(adapt(":80\ngreet").unwrap_err().position().column, 1);
    let error = adapt(":80\npair").unwrap_err().to_string();
    assert!(error.starts_with("Caddyfile:2:1: directive 'pair' is not an ordered HTTP handler"), "{error}");
    assert_eq!(names("{\norder pair first\n}\n:80 {\npair\nrespond x\n}"), ["one", "two", "static_response"]);
}

// A withheld directive is reported as not supported, and can be given another syntax. Its own syntax is restored by
// `with_withheld`.
#[test]
fn withheld_directives() {
    let mut directives = Directives::standard();
    directives.withhold("respond");
    directives.withhold("respond");
    let adapt = |directives: &Directives| match adapt(":80\nrespond hi", "Caddyfile", directives, &|_| None) {
        Ok(adapted) => adapted.json["apps"]["http"]["servers"]["srv0"]["routes"][0]["handle"][0].clone(),
        Err(error) => error.to_string().into(),
    };
    let own = json!({ "handler": "static_response", "body": "hi" });
    assert_eq!(adapt(&directives), "Caddyfile:2:1: directive 'respond' is not supported (docs/refused.md)");
    assert_eq!(adapt(&directives.with_withheld()), own);
    let another = Syntax::Handler(|d| Ok(json!({ "handler": "another", "words": d.rest().len() })));
    directives.register("respond", Order::Last, another).unwrap();
    let want = json!({ "handler": "another", "words": 1 });
    assert_eq!((adapt(&directives), adapt(&directives.with_withheld())), (want.clone(), want));
}

// In the block of `header` a further word is a field of its own, as if it started a line.
#[test]
fn surplus_words_in_a_header_block() {
    let surplus = read(":80 {\n\theader {\n\t\tdefer Server\n\t\tA b c D e\n\t}\n}\n").unwrap();
    let written = json(":80 {\n\theader {\n\t\tdefer\n\t\tServer\n\t\tA b c\n\t\tD e\n\t}\n}\n");
    assert_eq!(surplus.json, written);
    let warnings: Vec<_> = surplus.warnings.iter().map(|warning| warning.at.to_string()).collect();
    assert_eq!(warnings, ["Caddyfile:3:9", "Caddyfile:4:9"]);
}

#[test]
fn named_routes() {
    let json = json("&(r) {\nrespond x\n}\n:80 {\ninvoke r\n}\n");
    let server = &json["apps"]["http"]["servers"]["srv0"];
    assert_eq!(server["named_routes"], json!({ "r": { "handle": [{ "handler": "static_response", "body": "x" }] } }));
    assert_eq!(server["routes"][0]["handle"], json!([{ "handler": "invoke", "name": "r" }]));
    assert_eq!(routes("handle {\n}"), json!([{ "handle": [{ "handler": "subroute" }] }]));
}

// A backslash before an opening quote escapes the first character inside.
#[test]
fn a_backslash_before_a_quote() {
    for (text, want) in [("\\\"a b\"", "\\a b"), ("\\\"\"a b\"", "\"a b"), ("\\`a b`", "a b"), ("\\\\`a", "\\\\`a")] {
        assert_eq!(handlers(&format!("respond {text}"))[0]["body"], want, "{text}");
    }
}

// Caddy accepts both texts, so they are accepted, with a warning.
#[test]
fn braces_that_do_not_pair() {
    let warned = |source: &str| {
        let adapted = read(source).unwrap_or_else(|error| panic!("{source}\n{error}"));
        let places = adapted.warnings.iter().map(|warning| warning.at.to_string()).collect::<Vec<_>>();
        (adapted.json, places)
    };
    let (missing, places) = warned(":80 {\n\thandle {\n\t\trespond x\n\t}\n");
    assert_eq!(missing, json(":80 {\n\thandle {\n\t\trespond x\n\t}\n}\n"));
    assert_eq!(places, ["Caddyfile:4:2"]);
    let (surplus, places) = warned(":80\n\nrespond x\n}\n");
    assert_eq!(surplus, json(":80\n\nrespond x\n"));
    assert_eq!(places, ["Caddyfile:4:1"]);
}

#[test]
fn a_file_that_is_only_an_unset_variable() {
    assert_eq!(read("{$UNSET}").unwrap_err().to_string(), "Caddyfile:1:1: unexpected EOF, expecting a site address");
}

/// A configuration that was loaded must be readable again, however its blocks are nested.
#[test]
fn the_deepest_configurations_are_readable() {
    for (open, close) in [
        ("handle {\n", "}\n"),
        ("route {\n", "}\n"),
        ("handle_path /a* {\n", "}\n"),
        ("reverse_proxy a.test {\nhandle_response {\n", "}\n}\n"),
        ("intercept {\nhandle_response {\n", "}\n}\n"),
        ("route {\nreverse_proxy a.test {\nhandle_response {\n", "}\n}\n}\n"),
        ("not {\n", "}\n"),
    ] {
        let inner = |count: usize, leaf: &str| format!("{}{leaf}{}", open.repeat(count), close.repeat(count));
        let text = |count| match open {
            "not {\n" => format!(":80 {{\n@a {{\n{}}}\nrespond @a hi\n}}\n", inner(count, "path /a\n")),
            _ => format!(":80 {{\n{}}}\n", inner(count, "respond hi\n")),
        };
        let deepest = (1..=40).rev().find_map(|count| read(&text(count)).ok()).unwrap_or_else(|| panic!("{open}"));
        let json = deepest.json;
        assert_eq!(causeway_config::json::parse(json.to_string().as_bytes()).ok(), Some(json), "{open}");
    }
}
