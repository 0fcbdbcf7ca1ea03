//! path_regexp, header_regexp, vars_regexp: matches, and the placeholders that they fill.

use causeway_pipeline::Build;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{check, refused, registry};

// Caddy, http.matchers.path_regexp: on the decoded, cleaned path; case-sensitive.
#[test]
fn path_regexp() {
    let pattern = |pattern: &str| json!({ "pattern": pattern });
    let cases: Vec<_> = [
        ("^/foo", "/foo/bar", true),
        ("^/foo", "/FOO", false),
        ("(?i)^/foo", "/FOO", true),
        ("", "/", true),
        ("/", "/", true),
        ("^/bar", "/foo/bar", false),
        ("^/add/([0-9]+)$", "/add/17?x=y", true),
        ("^/secret/", "/x/..//secret//y", true),
        ("^/secret/", "/%73ecret/y", true),
        ("^/a b$", "/a%20b", true),
        ("^/.$", "/%c3%a4", true),
        ("^/\\w$", "/%c3%a4", false),
        ("^/.{2}/.*$", "/%ff%fe/x", true),
        // Valid in Go; larger than the crate regex allows by default.
        (r"^/[\p{L}\p{N}_ -]{1,255}$", "/%c3%a4%20b", true),
        ("\\.(css|js)$", "/a.css/", false),
    ]
    .into_iter()
    .map(|(source, target, want)| (pattern(source), Request::get(target), want))
    .collect();
    check("path_regexp", &cases);
    refused(
        "path_regexp",
        &[
            (pattern("a("), "pattern: found 'a(', expected a regular expression: unclosed group"),
            (
                pattern("a(?=b)"),
                "pattern: found 'a(?=b)', expected a regular expression: an unknown group type at character 2",
            ),
            (json!({ "name": "-", "pattern": "" }), "name: found '-', expected a name"),
            (json!({ "patern": "" }), "patern: unknown field"),
        ],
    );
}

// Caddy, http.matchers.header_regexp: every field must match, by one of its values.
#[test]
fn header_regexp() {
    let request = || Request::get("/").field("Field", "foo").field("Field", "bar").field("Other", "x");
    check(
        "header_regexp",
        &[
            (json!({ "Field": { "pattern": "fo{2}" } }), request(), true),
            (json!({ "field": { "pattern": "^bar$" } }), request(), true),
            (json!({ "Field": { "pattern": "^foobar" } }), request(), false),
            (json!({ "Nope": { "pattern": "" } }), request(), false),
            (json!({ "Field": { "pattern": "o" }, "Other": { "pattern": "y" } }), request(), false),
            (json!({ "Field": { "pattern": "o" }, "Other": { "pattern": "x" } }), request(), true),
            (json!({ "Host": { "pattern": "^local" } }), request(), true),
            (json!({}), request(), true),
        ],
    );
    refused("header_regexp", &[(json!({ "a b": { "pattern": "" } }), "found 'a b', expected a field name")]);
}

#[track_caller]
fn captures(set: &Value, request: &Request, body: &str, want: &str) {
    let respond = json!({ "handler": "static_response", "body": body });
    let mut kit = Kit::new(&registry(), &json!([{ "match": [set], "handle": [respond] }]));
    assert_eq!(kit.send(request).text(), want, "{set} {}", request.target());
}

// Caddy: "Upon a match, it adds placeholders: {http.regexp.name.capture_group}", by number and by name, and also
// without the expression's name. A group that took no part is empty.
#[test]
fn groups_fill_placeholders() {
    let path = json!({ "path_regexp": { "name": "re", "pattern": "^/(?P<year>[0-9]{4})/(?<month>[0-9]+)?(x)?" } });
    let all = "{http.regexp.re.0}|{http.regexp.re.1}|{http.regexp.re.year}|{http.regexp.re.2}|{http.regexp.re.month}|\
               {http.regexp.re.3}|{http.regexp.1}|{http.regexp.year}|{http.regexp.re.4}";
    captures(&path, &Request::get("/2024/07/"), all, "/2024/07|2024|2024|07|07||2024|2024|{http.regexp.re.4}");
    captures(&path, &Request::get("/2024/x"), all, "/2024/x|2024|2024|||x|2024|2024|{http.regexp.re.4}");
    let unnamed = json!({ "path_regexp": { "pattern": "([a-z]+)$" } });
    captures(&unnamed, &Request::get("/a/b"), "{http.regexp.1}{http.regexp.0}{http.regexp..1}", "bb{http.regexp..1}");
    let header = json!({ "header_regexp": { "Cookie": { "name": "login", "pattern": "login_([a-f0-9]+)" } } });
    let request = Request::get("/").field("Cookie", "other").field("Cookie", "a=b; login_12ef=1");
    captures(&header, &request, "{http.regexp.login.1}", "12ef");
    let vars = json!({ "vars_regexp": { "{http.request.uri.path}": { "name": "v", "pattern": "/(.)" } } });
    captures(&vars, &Request::get("/%c3%a4b"), "{http.regexp.v.1}", "ä");
    // The captured bytes are kept although they are not valid UTF-8.
    let broken = json!({ "path_regexp": { "name": "b", "pattern": "^/(.)(.)(ä)(.)" } });
    let mut kit = Kit::new(
        &registry(),
        &json!([{ "match": [broken], "handle": [
        { "handler": "static_response", "body": "{http.regexp.b.1},{http.regexp.b.2},{http.regexp.b.3},{http.regexp.b.4}" },
    ] }]),
    );
    assert_eq!(kit.send(&Request::get("/%ff%c3%c3%a4%80")).body, b"\xff,\xc3,\xc3\xa4,\x80");
}

// Caddy, tls.handshake_match.sni_regexp: placeholders in the pattern are replaced at load, one without a value by no
// text.
#[test]
fn sni_regexp() {
    let mut registry = registry();
    registry.set_environment(|name| (name == "ZONE").then(|| r"example\.com".to_owned()));
    let make = |value: Value| {
        let mut build = Build::new(&registry);
        let made = build.server_name_matcher("sni_regexp", &value);
        (made.map_err(|error| error.to_string()), build.take_warnings())
    };
    for (pattern, name, want) in [
        (r"^([a-z]+)\.example\.com$", "a.example.com", true),
        (r"^([a-z]+)\.example\.com$", "1.example.com", false),
        ("^$", "", true),
        (".", "", false),
        ("", "a.test", true),
        ("b", "abc", true),
        (r"\.{env.ZONE}$", "a.example.com", true),
        (r"\.{env.ZONE}$", "a.example-com", false),
        (r"^a\{2\}$", "aa", true),
        ("^a{2}$", "a", true),
        ("^a{2}$", "aa", false),
        ("^{http.request.host}a$", "a", true),
    ] {
        let (made, notes) = make(json!({ "name": "n", "pattern": pattern }));
        assert_eq!(made.unwrap().matches(name), want, "{pattern} {name}");
        assert_eq!(notes.len(), usize::from(pattern.contains("a{") || pattern.contains("http")), "{pattern} {notes:?}");
    }
    let want = r"sni_regexp.pattern: found a placeholder without a value in 'a{2}'; it counts as no text. A repetition is written as \{2\}";
    assert_eq!(make(json!({ "pattern": "a{2}" })).1, [want]);
    // The texts are those after replacement, by which a reload compares policies.
    let text = |pattern: &str| make(json!({ "pattern": pattern })).0.unwrap().text().to_owned();
    assert_eq!(text("{env.ZONE}"), r"example\.com");
    for (value, want) in [
        (json!({ "pattern": "a(" }), "sni_regexp.pattern: found 'a(', expected a regular expression: unclosed group"),
        (
            json!({ "pattern": r"^\p{Greek}$" }),
            "sni_regexp.pattern: found '^\\p{Greek}$', expected a regular expression: an invalid Unicode class at character 2; a text in \
             braces is a placeholder, unless `\\` precedes them",
        ),
        (json!({ "name": "-" }), "sni_regexp.name: found '-', expected a name with letters, digits or underscores"),
        (json!({ "patern": "x" }), "sni_regexp.patern: unknown field `patern`"),
        (json!("x"), "sni_regexp: found the string 'x', expected an object"),
    ] {
        let error = make(value).0.unwrap_err();
        assert!(error.starts_with(want), "{error}");
    }
}
