//! Compares the parser with Go's: `corpus/main.go` writes `corpus/expected.txt`.

mod support;

use causeway_go_template::{NESTING_MAX, TEXT_BYTES_MAX, TemplateSet};
use proptest::prelude::*;
use support::unquoted;

const TEMPLATES: &str = include_str!("corpus/templates.txt");
const EXPECTED: &str = include_str!("corpus/expected.txt");
const FUNCTIONS: &[&str] = &["f", "g", "len", "index", "print", "printf", "and", "or", "eq", "not"];

fn parse(text: &[u8]) -> Result<TemplateSet, causeway_go_template::ParseError> {
    let set = TemplateSet::new();
    set.parse("t", text, &|name| FUNCTIONS.contains(&name))?;
    Ok(set)
}

fn shown(text: &[u8]) -> (&'static str, String) {
    match parse(text) {
        Err(error) => ("error", error.message),
        Ok(set) => ("tree", set.names().iter().map(|name| format!("{name}={};", set.source(name).unwrap())).collect()),
    }
}

// text/template, "Text and spaces", "Actions", "Arguments", "Pipelines", "Variables", "Nested template definitions":
// the tree of a correct template, and the message for another.
#[test]
fn templates_parse_like_go() {
    assert_eq!(TEMPLATES.lines().count(), EXPECTED.lines().count());
    let mut faults = Vec::new();
    for (template, expected) in TEMPLATES.lines().zip(EXPECTED.lines()) {
        let (kind, want) = expected.split_once(' ').expect("a kind and a text");
        let want = String::from_utf8_lossy(&unquoted(want)).into_owned();
        let got = shown(&unquoted(template));
        if got != (kind, want.clone()) {
            faults.push(format!("{template}\n  Go:   {kind} {want:?}\n  ours: {} {:?}", got.0, got.1));
        }
    }
    assert!(faults.is_empty(), "{} differences\n{}", faults.len(), faults.join("\n"));
}

// A part of a template may be anything: the parser answers it with a tree or an error.
#[test]
fn any_part_of_a_template_parses_or_is_refused() {
    for template in TEMPLATES.lines().map(unquoted) {
        for end in 0..template.len() {
            let _ = parse(&template[..end]);
            let _ = parse(&template[end..]);
        }
    }
}

// An error has the line, from 1, and the byte in it, from 0.
#[test]
fn errors_have_a_place() {
    let error = parse(b"a\nbc{{f}} {{nosuch}}").unwrap_err();
    assert_eq!((error.line, error.column), (2, 10));
    assert_eq!(error.to_string(), "template: t:2:10: function \"nosuch\" not defined");
}

// text/template, `Delims`: "An empty delimiter stands for the corresponding default".
#[test]
fn delimiters_can_be_changed() {
    let set = TemplateSet::new().delimiters("[[", "");
    set.parse("t", b"{{x}}[[ .a }}", &|_| false).unwrap();
    assert_eq!(set.source("t").unwrap(), "{{x}}{{.a}}");
}

// text/template, `Parse`: "a template definition with a body containing only white space and comments is considered
// empty and will not replace an existing template's body".
#[test]
fn an_empty_template_replaces_no_other() {
    let set = parse(b"{{define \"a\"}}1{{end}}").unwrap();
    set.parse("u", b"{{define \"a\"}} {{/* c */}}{{end}}", &|_| false).unwrap();
    assert_eq!(set.source("a").unwrap(), "1");
    set.parse("u", b"{{define \"a\"}}2{{end}}", &|_| false).unwrap();
    assert_eq!(set.source("a").unwrap(), "2");
    // A text with a mistake changes nothing.
    set.parse("u", b"{{define \"a\"}}3{{end}}{{", &|_| false).unwrap_err();
    assert_eq!(set.source("a").unwrap(), "2");
}

// Nesting beyond the bound is refused, and the recursion up to it fits into the stack of a test.
#[test]
fn bounds_are_respected() {
    for (open, inner, close) in [("{{if .}}", "", "{{end}}"), ("", "", ""), ("{{range .}}", "x", "{{end}}")] {
        for deep in [NESTING_MAX as usize, NESTING_MAX as usize + 1, 100_000] {
            let text = format!("{}{inner}{}", open.repeat(deep), close.repeat(deep));
            assert_eq!(
                parse(text.as_bytes()).is_ok(),
                open.is_empty() || deep <= NESTING_MAX as usize,
                "{open} {deep}"
            );
        }
    }
    let parentheses = format!("{{{{{}f{}}}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(parse(parentheses.as_bytes()).unwrap_err().message, "max expression depth exceeded");
    let chain = format!("{{{{if .}}}}{}{{{{end}}}}", "{{else if .}}".repeat(100_000));
    assert_eq!(parse(chain.as_bytes()).unwrap_err().message, "max expression depth exceeded");
    assert!(parse(&vec![b'x'; TEXT_BYTES_MAX]).is_ok());
    assert!(parse(&vec![b'x'; TEXT_BYTES_MAX + 1]).is_err());
}

// Go accepts complex constants; Causeway refuses them.
#[test]
fn complex_constants_are_refused() {
    for text in ["{{1i}}", "{{1+2i}}"] {
        assert!(parse(text.as_bytes()).unwrap_err().message.starts_with("complex constant"), "{text}");
    }
}

proptest! {
    // The parser ends without a panic for any bytes, and its normal form is a template with the same normal form.
    #[test]
    fn any_bytes_parse_or_are_refused(pieces in proptest::collection::vec(piece(), 0..12)) {
        let text = pieces.concat();
        if let Ok(set) = parse(&text) {
            let normal = set.source("t").unwrap();
            if let Ok(again) = parse(normal.as_bytes()) {
                prop_assert_eq!(again.source("t").unwrap(), normal);
            }
        }
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let templates: Vec<Vec<u8>> = TEMPLATES.lines().map(unquoted).collect();
    let parts = [
        "{{", "}}", "{{-", " -}}", "(", ")", "|", " ", "$x", ":=", "if ", "range ", "end", "else", ".a", "\"", "`",
        "'", "1",
    ];
    prop_oneof![
        proptest::sample::select(templates),
        proptest::sample::select(parts.to_vec()).prop_map(|part| part.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
    ]
}
