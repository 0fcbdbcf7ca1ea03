//! The placeholders that are evaluated, here and by Caddy: the request, the variables that are set, and what each text with
//! placeholders has to become. Both programs check that it does before they measure.

use serde_json::{Value, json};

/// Fields and variables that are set: the first and the last of them are to cost the same.
pub const COUNT: usize = 15;

/// A text with placeholders.
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// As in a configuration.
    pub source: &'static str,
    /// What it becomes.
    pub text: &'static str,
}

const fn case(name: &'static str, source: &'static str, text: &'static str) -> Case {
    Case { name, source, text }
}

/// All that are measured.
pub const CASES: &[Case] = &[
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

/// The octets of the request that they are asked of.
pub fn request() -> String {
    let fields: String = (1..=COUNT).map(|number| format!("X-Field-{number}: field {number}\r\n")).collect();
    format!("GET /articles/2026/11/a-page.html?page=2 HTTP/1.1\r\nHost: bench.example\r\n{fields}\r\n")
}

/// The variables that are set before, in their order.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    (1..=COUNT).map(|number| (format!("note{number}"), format!("note {number}")))
}

/// All of it for a program in another language.
pub fn json() -> Value {
    let templates = CASES.iter().map(|case| json!({ "name": case.name, "source": case.source, "text": case.text }));
    json!({
        "variables": variables().collect::<std::collections::BTreeMap<_, _>>(),
        "templates": templates.collect::<Vec<_>>(),
    })
}
