//! The profiler's names of routes, of plans that follow each other. In a process of its own: names are those of the
//! whole program.

use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, Context, Handler, Registry, Step};
use serde_json::json;

struct Idle;

impl Handler for Idle {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }
}

/// A program that adds and removes routes through the admin API for months has as many names as the two plans that
/// exist during a load.
#[test]
fn a_plan_releases_the_names_of_its_routes() {
    let mut registry = Registry::default();
    registry.register_handler("idle", |_, _| Ok(Box::new(Idle)));
    let load = |number: usize| {
        let routes = json!([{ "handle": [{ "handler": "idle" }] }]);
        let mut build = Build::new(&registry);
        for server in 0..50 {
            // The routes of a server that is no progress have its name in theirs.
            let name = format!("{number}-{server}");
            build.server(&ServerSpec { is_progress: false, ..ServerSpec::new(&name, &routes) }).unwrap();
        }
        build.finish()
    };
    let mut plan = load(0);
    for number in 1..20 {
        plan = load(number);
    }
    let named = |names: Vec<String>| names.iter().filter(|name| name.starts_with("route ")).count();
    assert_eq!([named(progress::span_names()), named(progress::point_names())], [100, 100]);
    drop(plan);
}
