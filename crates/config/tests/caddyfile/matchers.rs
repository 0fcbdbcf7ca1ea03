use serde_json::{Value, json};

use super::{read, routes};

/// The matcher set of a definition.
#[track_caller]
fn check(cases: &[(&str, Value)]) {
    for (definition, want) in cases {
        // Inside `route`, because a host matcher at the top level would be wrapped.
        let routes = routes(&format!("route {{\n@m {definition}\nrespond @m x\n}}"));
        assert_eq!(routes[0]["handle"][0]["routes"][0]["match"], json!([want]), "{definition}");
    }
}

#[test]
fn each_kind() {
    check(&[
        ("path /a /b*", json!({ "path": ["/a", "/b*"] })),
        ("host a.test b.test", json!({ "host": ["a.test", "b.test"] })),
        ("method GET HEAD", json!({ "method": ["GET", "HEAD"] })),
        ("header x-a 1", json!({ "header": { "X-A": ["1"] } })),
        ("header !X-A", json!({ "header": { "X-A": null } })),
        ("query a=1 a=2 b=", json!({ "query": { "a": ["1", "2"], "b": [""] } })),
        ("protocol https", json!({ "protocol": "https" })),
        ("path_regexp ^/a", json!({ "path_regexp": { "name": "m", "pattern": "^/a" } })),
        ("path_regexp own ^/a", json!({ "path_regexp": { "name": "own", "pattern": "^/a" } })),
        ("header_regexp X ^a", json!({ "header_regexp": { "X": { "name": "m", "pattern": "^a" } } })),
        ("url_pattern /a/:id", json!({ "url_pattern": { "pattern": "/a/:id" } })),
        (
            "url_pattern a/:id {\nbase_url https://b.test\nignore_case\n}",
            json!({ "url_pattern": { "pattern": "a/:id", "base_url": "https://b.test", "ignore_case": true } }),
        ),
        ("vars {x} 1 2", json!({ "vars": { "{x}": ["1", "2"] } })),
        ("vars_regexp v x ^1", json!({ "vars_regexp": { "x": { "name": "v", "pattern": "^1" } } })),
        ("remote_ip 10.0.0.0/8", json!({ "remote_ip": { "ranges": ["10.0.0.0/8"] } })),
        (
            "client_ip private_ranges",
            json!({ "client_ip": { "ranges": ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"] } }),
        ),
        ("tls early_data", json!({ "tls": { "handshake_complete": false } })),
        (
            "file a {\ntry_files b\ntry_policy first_exist\nroot /x\nsplit_path .php\n}",
            json!({ "file": {
            "try_files": ["a", "b"], "try_policy": "first_exist", "root": "/x", "split_path": [".php"],
        } }),
        ),
        ("expression {path} == \"/a\"", json!({ "expression": "{http.request.uri.path} == \"/a\"" })),
        (
            "expression `{path} == \"/a\"`",
            json!({ "expression": { "expr": "{http.request.uri.path} == \"/a\"", "name": "m" } }),
        ),
        ("`{method} == 'GET'`", json!({ "expression": { "expr": "{http.request.method} == 'GET'", "name": "m" } })),
    ]);
}

// All lines of a block must match; several lines of one kind form one matcher.
#[test]
fn blocks_merge_lines_of_a_kind() {
    check(&[
        ("{\npath /a\nmethod GET\npath /b\n}", json!({ "path": ["/a", "/b"], "method": ["GET"] })),
        ("{\nheader A 1\nheader a 2\nheader B 3\n}", json!({ "header": { "A": ["1", "2"], "B": ["3"] } })),
        ("{\n}", json!({})),
    ]);
}

// Each `not` is one set that must not match. Regular expressions inside have no name.
#[test]
fn not() {
    check(&[
        ("not path /a /b", json!({ "not": [{ "path": ["/a", "/b"] }] })),
        ("not {\npath /a\nmethod GET\n}", json!({ "not": [{ "path": ["/a"], "method": ["GET"] }] })),
        ("{\nnot path /a\nnot method GET\n}", json!({ "not": [{ "path": ["/a"] }, { "method": ["GET"] }] })),
        ("not `{method} == 'GET'`", json!({ "not": [{ "expression": "{http.request.method} == 'GET'" }] })),
        // As in Caddy, the words after a quoted expression are another matcher, and so are the lines of its block.
        ("not `true` path /a /b", json!({ "not": [{ "expression": "true", "path": ["/a", "/b"] }] })),
        ("not {\n`true` path /a\npath /b\n}", json!({ "not": [{ "expression": "true", "path": ["/a", "/b"] }] })),
        (
            "not `true` file a {\nroot /x\n}",
            json!({ "not": [{ "expression": "true", "file": { "try_files": ["a"], "root": "/x" } }] }),
        ),
        ("not path_regexp x", json!({ "not": [{ "path_regexp": { "pattern": "x" } }] })),
        ("not not path /a", json!({ "not": [{ "not": [{ "path": ["/a"] }] }] })),
    ]);
}

#[test]
fn tokens_after_a_directive() {
    let matchers = |body: &str| routes(body)[0].get("match").cloned();
    assert_eq!(matchers("respond * x"), None);
    assert_eq!(matchers("respond /a x"), Some(json!([{ "path": ["/a"] }])));
    assert_eq!(matchers("respond a/b"), None);
}

// A further matcher of the kind can start with its name on the same line; any other word is an error.
#[test]
fn surplus_words() {
    for (surplus, written) in [
        ("header A b header C d", "{\nheader A b\nheader C d\n}"),
        ("header_regexp n A b header_regexp C d", "{\nheader_regexp n A b\nheader_regexp C d\n}"),
        ("protocol http protocol https", "protocol https"),
    ] {
        let routes = |matcher: &str| routes(&format!("@m {matcher}\nrespond @m x"));
        assert_eq!(routes(surplus), routes(written), "{surplus}");
    }
    for stray in ["header A b and C d", "header_regexp n A b and C d", "protocol http or https"] {
        let error = read(&format!(":80\n@m {stray}\nrespond @m x")).unwrap_err().to_string();
        assert!(error.contains("unexpected '"), "{error}");
    }
}

// In the position of a kind a quoted word is an expression; in a block it is a kind.
#[test]
fn quoted_words() {
    let expression = json!({ "expression": { "expr": "path('/a')", "name": "m" } });
    assert_eq!(routes("@m `path('/a')`\nrespond @m x")[0]["match"], json!([expression]));
    assert_eq!(routes("@m {\n\"path\" /a\n}\nrespond @m x")[0]["match"], json!([{ "path": ["/a"] }]));
}
