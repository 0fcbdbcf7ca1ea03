//! Route names for the profiler's tables: each has the matchers of the route and of the routes around it.

use std::collections::BTreeSet;

use progress::{Point, Span};
use serde_json::{Map, Value};

use crate::route::HandlerSpans;

/// Distinct route names of a plan. A longer table is unreadable.
const NAMES_MAX: usize = 200;
/// The name of the routes beyond [`NAMES_MAX`].
const OTHERS: &str = "other routes";
/// Values of a matcher, and matcher sets of a route, that a name lists.
const LISTED_MAX: usize = 3;
/// Characters of a matcher whose value is not a list of texts.
const WRITTEN_MAX: usize = 40;
/// Characters of a name.
const NAME_MAX: usize = 120;

/// The names given so far, and the names around the current position of the build.
#[derive(Default)]
pub(super) struct RouteNames {
    around: Vec<String>,
    given: BTreeSet<String>,
}

impl RouteNames {
    /// Starts a scope: `name` prefixes the names until [`leave`](Self::leave).
    pub(super) fn enter(&mut self, name: String) {
        self.around.push(name);
    }

    pub(super) fn leave(&mut self) {
        self.around.pop();
    }

    /// Creates the spans of a handler of the current route.
    pub(super) fn spans(&mut self, module: &str) -> HandlerSpans {
        let name = self.name();
        let leads_on = matches!(module, "subroute" | "invoke");
        HandlerSpans {
            route: Span::lease(&name),
            module: (!leads_on).then(|| Span::lease(module)),
            progress: Point::lease(&name),
        }
    }

    fn name(&mut self) -> String {
        let parts: Vec<&str> = self.around.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let matched = if parts.is_empty() { "*".to_owned() } else { parts.join(" ") };
        let name = format!("route {}", clipped(&matched, NAME_MAX));
        if !self.given.contains(&name) {
            // A new name beyond the limit shares one entry with all further ones.
            if self.given.len() == NAMES_MAX {
                return OTHERS.to_owned();
            }
            self.given.insert(name.clone());
        }
        name
    }
}

/// Returns a short text of a route's matcher sets; empty if it matches every request.
pub(super) fn matched(sets: &[Value]) -> String {
    let mut descriptions: Vec<String> = sets.iter().filter_map(Value::as_object).take(LISTED_MAX).map(set).collect();
    if sets.len() > LISTED_MAX {
        descriptions.push("…".to_owned());
    }
    descriptions.join(" | ")
}

/// Returns a short text of a matcher set: host, method, path, then the others with their names.
fn set(matchers: &Map<String, Value>) -> String {
    const SAID: [&str; 3] = ["host", "method", "path"];
    let plain = SAID.iter().filter_map(|name| matchers.get(*name)).map(texts);
    let others = matchers.iter().filter(|(name, _)| !SAID.contains(&name.as_str()));
    let others = others.map(|(name, value)| format!("{name} {}", texts(value)));
    plain.chain(others).collect::<Vec<_>>().join(" ")
}

fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => clipped(text, WRITTEN_MAX),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            let mut texts: Vec<_> = values.iter().filter_map(Value::as_str).take(LISTED_MAX).collect();
            if values.len() > LISTED_MAX {
                texts.push("…");
            }
            texts.join(",")
        }
        other => clipped(&other.to_string(), WRITTEN_MAX),
    }
}

fn clipped(text: &str, most: usize) -> String {
    // Control characters become spaces: the name is one line, and must not control the operator's terminal.
    let char = |char: char| if char.is_control() { ' ' } else { char };
    match text.char_indices().nth(most) {
        Some((end, _)) => text[..end].chars().map(char).chain(['…']).collect(),
        None => text.chars().map(char).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_route_is_named_after_its_matchers() {
        let cases = [
            (json!([]), ""),
            (json!([{"path": ["/api/*"]}]), "/api/*"),
            (json!([{"path": ["/x"], "method": ["GET"], "host": ["localhost"]}]), "localhost GET /x"),
            (json!([{"path": ["/a", "/b", "/c", "/d"]}]), "/a,/b,/c,…"),
            (json!([{"path": ["/a"]}, {"host": ["b"]}]), "/a | b"),
            (json!([{"header": {"X-A": ["1"]}}]), "header {\"X-A\":[\"1\"]}"),
            (json!([{"protocol": "http"}]), "protocol http"),
        ];
        for (sets, want) in cases {
            assert_eq!(matched(sets.as_array().unwrap()), want, "{sets}");
        }
    }

    #[test]
    fn names_are_bounded() {
        let mut names = RouteNames::default();
        assert_eq!(names.name(), "route *");
        names.enter("localhost".into());
        names.enter(String::new());
        assert_eq!(names.name(), "route localhost", "a route without matchers has the name of the one around it");
        names.enter("/x\n".repeat(100));
        let long = names.name();
        assert!(long.chars().count() <= NAME_MAX + "route …".chars().count() && !long.contains('\n'), "{long:?}");
        names.leave();
        for number in 0..NAMES_MAX {
            names.enter(format!("/{number}"));
            names.name();
            names.leave();
        }
        names.enter("/one-more".into());
        assert_eq!(names.name(), OTHERS);
        names.leave();
        assert_eq!(names.name(), "route localhost", "a name that was given before remains valid");
    }
}
