//! The placeholders that both Causeway and Caddy evaluate: the request, the variables, and the expected result of each
//! text. Both programs check the results before they measure.

use serde_json::{Value, json};

/// Number of fields and of variables; the first and the last should have equal costs.
pub const COUNT: usize = 15;

/// A text with placeholders, and its expected result.
pub struct PlaceholderCase {
    /// The case's name.
    pub name: &'static str,
    /// The text, as in a configuration.
    pub source: &'static str,
    /// The expected result.
    pub text: &'static str,
}

const fn case(name: &'static str, source: &'static str, text: &'static str) -> PlaceholderCase {
    PlaceholderCase { name, source, text }
}

/// All measured cases.
pub const CASES: &[PlaceholderCase] = &[
    case("path", "{http.request.uri.path}", "/articles/2026/11/a-page.html"),
    case("host", "{http.request.host}", "bench.example"),
    case("method", "{http.request.method}", "GET"),
    case("first field", "{http.request.header.X-Field-1}", "field 1"),
    case("15th field", "{http.request.header.X-Field-15}", "field 15"),
    case("first variable", "{http.vars.note1}", "note 1"),
    case("15th variable", "{http.vars.note15}", "note 15"),
    case(
        "four with text",
        "{http.request.method} of {http.request.uri.path} at {http.request.host} by {http.vars.note1}",
        "GET of /articles/2026/11/a-page.html at bench.example by note 1",
    ),
    case("no such field", "{http.request.header.X-Unheard-Of}", ""),
    case("no such variable", "{http.vars.unheard_of}", ""),
    case("no such name", "{http.regexp.unheard_of.1}", ""),
    case("text alone", "no placeholder in this text", "no placeholder in this text"),
];

/// Returns the bytes of the request.
pub fn request() -> String {
    let fields: String = (1..=COUNT).map(|number| format!("X-Field-{number}: field {number}\r\n")).collect();
    format!("GET /articles/2026/11/a-page.html?page=2 HTTP/1.1\r\nHost: bench.example\r\n{fields}\r\n")
}

/// Returns the variables, in the order in which they are set.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    (1..=COUNT).map(|number| (format!("note{number}"), format!("note {number}")))
}

/// Returns all cases as JSON, for a program in another language.
pub fn json() -> Value {
    let templates = CASES.iter().map(|case| json!({ "name": case.name, "source": case.source, "text": case.text }));
    json!({
        "variables": variables().collect::<std::collections::BTreeMap<_, _>>(),
        "templates": templates.collect::<Vec<_>>(),
    })
}
