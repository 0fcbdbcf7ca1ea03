//! For arbitrary hosts and paths in a long list of routes, and arbitrary requests: the index finds the route that a
//! linear search finds.

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Few labels, so that they collide; some have the maximum length, are longer, empty, or not labels at all.
fn label() -> impl Strategy<Value = String> {
    let long = "x".repeat(63);
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "A", "test", "*", "", "xn--a", "a*", "a_b", "127", "[::1]"]).prop_map(str::to_owned),
        1 => Just(long.clone()),
        1 => Just(long + "y"),
    ]
}

fn host() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."))
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        5 => prop::sample::select(vec!["/a", "/A", "/b", "/ab", "b", "*"]),
        1 => prop::sample::select(vec!["/", "//", "/.", "/..", "/%61", "/%2f", "/%2A", "%ff"]),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Generates the matcher sets of one route.
fn sets() -> impl Strategy<Value = Value> {
    let hosts = || prop::collection::btree_set(host(), 1..3);
    let paths = || prop::collection::vec(path(), 1..3);
    let set = prop_oneof![
        hosts().prop_map(|hosts| json!({ "host": hosts })),
        paths().prop_map(|paths| json!({ "path": paths })),
        (hosts(), paths()).prop_map(|(hosts, paths)| json!({ "host": hosts, "path": paths })),
        (hosts(), hosts()).prop_map(|(hosts, others)| json!({ "host": hosts, "not": [{ "host": others }] })),
    ];
    prop::collection::vec(set, 1..3).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_index_finds_the_same_routes_as_a_walk(
        lists in prop::collection::vec(sets(), 8..40),
        asked in prop::collection::vec((host(), path()), 1..12),
    ) {
        let mut registry = Registry::default();
        causeway_modules::register(&mut registry);
        let route = |number: usize, sets: &Value| {
            json!({ "match": sets, "handle": [{ "handler": "static_response", "body": number.to_string() }] })
        };
        // A set with one host in two spellings is rejected.
        let routes = lists.iter().enumerate().map(|(number, sets)| route(number, sets));
        let (routes, mut alone): (Vec<_>, Vec<_>) = routes
            .filter_map(|route| Some((route.clone(), Kit::build(&registry, &json!([route]), &Value::Null).ok()?)))
            .unzip();
        let mut whole = Kit::new(&registry, &Value::from(routes));
        for (host, path) in &asked {
            let request = Request::get(path).without("Host").field("Host", host);
            let found = whole.send(&request);
            let walked = alone.iter_mut().map(|kit| kit.send(&request)).find(|answer| !answer.text().is_empty());
            prop_assert_eq!(found.text(), walked.as_ref().map_or("", |answer| answer.text()), "{} {}", host, path);
        }
    }
}
