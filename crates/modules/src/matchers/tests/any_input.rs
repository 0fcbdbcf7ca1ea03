//! Arbitrary expressions and patterns are either rejected with a message or evaluated; none panics.

use causeway_testkit::{Kit, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::registry;

/// Fragments of expressions; random sequences of them are often almost valid.
const PIECES: &[&str] = &[
    "1",
    "0",
    "-",
    "9223372036854775807",
    "1.5",
    "'a'",
    "\"ä\"",
    "''",
    "r'\\d'",
    "'\\x41'",
    "'\\",
    "true",
    "false",
    "null",
    "{http.request.method}",
    "{http.vars.a}",
    "{http.error.status_code}",
    "\\{ab}",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ".",
    " ",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "!",
    "?",
    ":",
    " in ",
    "[1, 2]",
    "['a', 'b']",
    "size(",
    ".size()",
    ".split('')",
    ".replace('', 'x', 2)",
    ".substring(1)",
    ".charAt(",
    ".indexOf('a', 1)",
    ".lastIndexOf('')",
    ".exists(x, ",
    ".map(x, ",
    "x",
    ".join()",
    "int(",
    "string(",
    "path('/a')",
    "header({'a': 'b'})",
    ".matches('a+')",
    "// c\n",
    "0x",
    "1e",
    "5u",
    "b'a'",
];

fn outcome(matcher: &Value, request: &Request) {
    let routes = json!([{ "match": [matcher], "handle": [{ "handler": "static_response", "status_code": 201 }] }]);
    match Kit::build(&registry(), &routes, &Value::Null) {
        Ok(mut kit) => assert!(matches!(kit.send(request).status, 200 | 201 | 500), "{matcher}"),
        Err(error) => assert!(error.to_string().len() > 10, "{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn expressions(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
        outcome(&json!({ "expression": pieces.concat() }), &Request::get("/a"));
    }

    #[test]
    fn any_text_as_expression(text in "\\PC{0,24}") {
        outcome(&json!({ "expression": text }), &Request::get("/a"));
    }

    #[test]
    fn patterns(pattern in "[a-c\\\\\\[\\](){}?*+|^$.:<>QEpPLdwWbB0-9,=!iäx-]{0,14}", path in "(/|a|%ff|%c3%a4|%0a|b){0,8}") {
        outcome(&json!({ "path_regexp": { "name": "n", "pattern": pattern } }), &Request::get(&format!("/{path}")));
    }

    #[test]
    fn url_patterns(pattern in "(/|:[a-c]|\\*|\\([a-z.*+|)\\\\]{0,3}\\)|\\{|\\}|\\?|#|ä|%2f|http|://|a\\.b|\\[|\\]|@){0,8}", path in "(/|a|%ff|%c3%a4|\\?){0,8}") {
        outcome(&json!({ "url_pattern": { "pattern": pattern } }), &Request::get(&format!("/{path}")));
    }

    #[test]
    fn paths(pattern in "[/a%*?2fFä.\\[\\]\\\\]{0,12}", path in "(/|a|%2f|%ff|%c3%a4|\\.\\.|\\.){0,8}") {
        outcome(&json!({ "path": [pattern] }), &Request::get(&format!("/{path}")));
    }
}
