//! The route that a request's response is counted for, and the route's name.

use std::sync::{Arc, Mutex};

use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Context, Handler, Outcome, Registry, Step, route};
use causeway_testkit::{Kit, Request};
use serde_json::json;

/// Runs before all other handlers, and records the route that responded.
struct Tell(Arc<Mutex<Vec<String>>>);

impl Handler for Tell {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }

    fn end(&self, cx: &Context, _: &Outcome) {
        let point = route::progress_point(cx).expect("this handler was entered at least");
        self.0.lock().unwrap().push(progress::point_names()[point.id() as usize].clone());
    }
}

/// Returns all modules and `tell`, and the list of its records.
fn recording_registry() -> (Registry, Arc<Mutex<Vec<String>>>) {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let recording_registry = Arc::clone(&recorded);
    registry.register_handler("tell", move |_, _| Ok(Box::new(Tell(Arc::clone(&recording_registry)))));
    (registry, recorded)
}

#[test]
fn a_response_belongs_to_its_innermost_route() {
    let (registry, recorded) = recording_registry();
    let respond = json!({ "handler": "static_response", "body": "x" });
    // As Caddy adapts a site with two `handle`s, a named route, and errors.
    let site = json!([
        { "match": [{ "path": ["/api/*"] }], "group": "g", "handle": [
            { "handler": "subroute", "routes": [
                { "match": [{ "method": ["POST"] }], "handle": [respond], "terminal": true },
                { "handle": [{ "handler": "vars", "a": "b" }, respond] },
            ] },
        ] },
        { "match": [{ "path": ["/named"] }], "group": "g", "handle": [{ "handler": "invoke", "name": "shared" }] },
        { "match": [{ "path": ["/fails"] }], "group": "g", "handle": [{ "handler": "error", "status_code": 418 }] },
    ]);
    let routes = json!([
        { "handle": [{ "handler": "tell" }] },
        { "match": [{ "host": ["localhost"] }], "handle": [{ "handler": "subroute", "routes": site }], "terminal": true },
    ]);
    let named = json!({ "shared": { "handle": [respond] } });
    let errors = json!([{ "match": [{ "path": ["/fails"] }], "handle": [respond] }]);
    let spec =
        ServerSpec { named_routes: named.as_object(), errors: Some(&errors), ..ServerSpec::new("srv0", &routes) };
    let mut kit = Kit::of(&registry, &spec).unwrap_or_else(|error| panic!("{error}"));
    for (request, want) in [
        (Request::new("POST", "/api/x"), "route localhost /api/* POST"),
        (Request::new("GET", "/api/x"), "route localhost /api/*"),
        (Request::new("GET", "/named"), "route &shared"),
        (Request::new("GET", "/fails"), "route errors /fails"),
        (Request::new("GET", "/nothing"), "route localhost"),
    ] {
        kit.send(&request.field("Host", "localhost"));
        assert_eq!(recorded.lock().unwrap().pop().as_deref(), Some(want));
    }
    kit.send(&Request::get("/").field("Host", "elsewhere"));
    assert_eq!(recorded.lock().unwrap().pop().as_deref(), Some("route *"));
}

/// As for the admin API: a profile must not show its routes as those of a site.
#[test]
fn routes_of_an_internal_server_have_its_name() {
    let (registry, recorded) = recording_registry();
    let routes = json!([{ "handle": [{ "handler": "tell" }, { "handler": "static_response", "body": "x" }] }]);
    for (is_progress, want) in [(true, "route *"), (false, "route own")] {
        let spec = ServerSpec { is_progress, ..ServerSpec::new("own", &routes) };
        let mut kit = Kit::of(&registry, &spec).unwrap_or_else(|error| panic!("{error}"));
        kit.send(&Request::get("/"));
        assert_eq!(recorded.lock().unwrap().pop().as_deref(), Some(want));
    }
}
