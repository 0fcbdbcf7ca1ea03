//! Matchers that must wait, nested in other matchers.

use causeway_pipeline::context::MatcherId;
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Sleep};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::registry;

/// Waits, then matches if the path contains its first `try_files` entry.
struct WaitingMatcher(MatcherId, String);

fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    Ok(Box::new(WaitingMatcher(
        build.allocate_matcher_id(),
        value["try_files"][0].as_str().unwrap_or_default().to_owned(),
    )))
}

impl Matcher for WaitingMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        if let Some(found) = cx.recall(self.0) {
            return Ok(found);
        }
        let wanted = self.1.clone();
        let worker = std::rc::Rc::clone(cx.worker());
        let until = worker.now() + std::time::Duration::from_secs(1);
        let sleep = Sleep::until(worker, until);
        Err(cx.wait_to_match(self.0, sleep, move |cx, ()| {
            Ok(memchr::memmem::find(cx.path(), wanted.as_bytes()).is_some())
        }))
    }
}

// `&&` and `||` do not treat a wait as an error; the result is recalled when the route is evaluated again.
#[test]
fn in_expressions_and_not() {
    let mut registry = registry();
    registry.register_matcher("file", make);
    for (set, want) in [
        (json!({ "expression": "file('a') && file({'try_files': ['b']})" }), true),
        (json!({ "expression": "file('x') || file('b') && method('GET')" }), true),
        (json!({ "expression": "file('a', 'x') ? file('x') : true" }), false),
        (json!({ "expression": "!file('x') && !file()" }), false),
        (json!({ "expression": "true || file('x')" }), true),
        (json!({ "not": [{ "file": { "try_files": ["x"] } }, { "expression": "file('a') && false" }] }), true),
        (json!({ "not": [{ "file": { "try_files": ["a"] } }] }), false),
    ] {
        let routes = json!([{ "match": [set], "handle": [{ "handler": "static_response", "status_code": 201 }] }]);
        let answer = Kit::new(&registry, &routes).send(&Request::get("/ab"));
        assert_eq!(answer.status == 201, want, "{set}");
    }
}
