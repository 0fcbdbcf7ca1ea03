use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tree() -> Value {
    json!({ "config": { "a": { "list": ["x", "y"], "n": null }, "lists": [[1, 2]], "s": "text" } })
}

// Caddy's API documentation, `GET /config/[path]`: returns the value at the path; a missing value is null.
#[test]
fn reading() {
    for (path, want) in [
        ("/config/", Ok(tree()["config"].clone())),
        ("/config/a/list", Ok(json!(["x", "y"]))),
        ("/config/a/list/", Ok(json!(["x", "y"]))),
        ("/config/a/list/1", Ok(json!("y"))),
        ("/config/a/list/...", Ok(json!(["x", "y"]))),
        ("/config/lists/0/1", Ok(json!(2))),
        ("/config/nope", Ok(json!(null))),
        ("/config/nope/deeper", Err("invalid traversal path at: config/nope/deeper")),
        ("/config/s/deeper/still", Err("invalid traversal path at: config/s/deeper")),
        ("/config/a/list/2", Err("[/config/a/list/2] array index out of bounds: 2")),
        ("/config/a/list/01", Err("[/config/a/list/01] invalid array index '01': non-canonical array index")),
        ("/config/a/list/-1", Err("[/config/a/list/-1] invalid array index '-1': expected a number")),
        ("/config/lists/9/1", Err("[/config/lists/9] array index out of bounds: 9")),
    ] {
        let root = tree();
        let got = read(&root, path).cloned().map_err(|error| error.to_string());
        assert_eq!(got, want.map_err(str::to_owned), "{path}");
    }
}

/// The path to read after the change and the value expected there, or the expected error message.
type ChangeResult = Result<(&'static str, Value), &'static str>;

/// Applies each change to a fresh tree and compares the outcome.
#[track_caller]
fn check(cases: &[(Verb, &str, Value, ChangeResult)]) {
    for (verb, path, value, want) in cases {
        let mut root = tree();
        let got = change(&mut root, *verb, path, value.clone()).map_err(|error| error.to_string());
        match want {
            Ok((place, after)) => {
                assert_eq!(got, Ok(()), "{verb:?} {path}");
                assert_eq!(read(&root, place), Ok(after), "{verb:?} {path}");
            }
            Err(message) => assert_eq!(got, Err((*message).to_owned()), "{verb:?} {path}"),
        }
    }
}

// "POST /config/[path]: sets or replaces object; appends to array"; `/...` appends each element of an array.
#[test]
fn post() {
    use Verb::Post;
    check(&[
        (Post, "/config/", json!({ "b": 1 }), Ok(("/config", json!({ "b": 1 })))),
        (Post, "/config/a/new", json!(1), Ok(("/config/a/new", json!(1)))),
        (Post, "/config/s", json!(1), Ok(("/config/s", json!(1)))),
        (Post, "/config/a/list", json!("z"), Ok(("/config/a/list", json!(["x", "y", "z"])))),
        (Post, "/config/a/list", json!(["z"]), Ok(("/config/a/list", json!(["x", "y", ["z"]])))),
        (Post, "/config/a/list/0", json!("z"), Ok(("/config/a/list", json!(["x", "y", "z"])))),
        (Post, "/config/a/list/...", json!(["z", 1]), Ok(("/config/a/list", json!(["x", "y", "z", 1])))),
        (Post, "/config/a/list/...", json!("z"), Err("final element is not an array")),
        (Post, "/config/nope/deeper", json!(1), Err("invalid traversal path at: config/nope/deeper")),
        (Post, "/config/s/deeper", json!(1), Err("invalid traversal path at: config/s/deeper")),
    ]);
}

// "PUT: creates new object; inserts into array".
#[test]
fn put() {
    use Verb::Put;
    check(&[
        (Put, "/config/a/new", json!(1), Ok(("/config/a/new", json!(1)))),
        (Put, "/config/x/y/z", json!(1), Ok(("/config/x", json!({ "y": { "z": 1 } })))),
        (Put, "/config/a/n/z", json!(1), Ok(("/config/a/n", json!({ "z": 1 })))),
        (Put, "/config/a/list/0", json!("w"), Ok(("/config/a/list", json!(["w", "x", "y"])))),
        (Put, "/config/a/list/2", json!("z"), Ok(("/config/a/list", json!(["x", "y", "z"])))),
        (Put, "/config/a/list/3", json!("z"), Err("[/config/a/list/3] array index out of bounds: 3")),
        (Put, "/config/lists/0/2", json!(3), Ok(("/config/lists/0", json!([1, 2, 3])))),
        (Put, "/config/lists/0/3", json!(3), Err("[/config/lists/0/3] array index out of bounds: 3")),
        (Put, "/config/s", json!(1), Err("[/config/s] key already exists: s")),
        (Put, "/config/", json!({}), Err("[/config/] key already exists: config")),
    ]);
}

// "PATCH: replaces an existing object or array element"; "DELETE: deletes the value at the path".
#[test]
fn patch_and_delete() {
    use Verb::{Delete, Patch};
    check(&[
        (Patch, "/config/", json!({}), Ok(("/config/", json!({})))),
        (Patch, "/config/a/list", json!([]), Ok(("/config/a/list", json!([])))),
        (Patch, "/config/a/list/1", json!("z"), Ok(("/config/a/list", json!(["x", "z"])))),
        (Patch, "/config/a/list/2", json!("z"), Err("[/config/a/list/2] array index out of bounds: 2")),
        (Patch, "/config/lists/0/1", json!(3), Ok(("/config/lists/0", json!([1, 3])))),
        (Patch, "/config/nope", json!(1), Err("[/config/nope] key does not exist: nope")),
        (Delete, "/config/", json!(null), Ok(("/config/", json!(null)))),
        (Delete, "/config/a/list/0", json!(null), Ok(("/config/a/list", json!(["y"])))),
        (Delete, "/config/a/list/x", json!(null), Err("[/config/a/list/x] invalid array index 'x': expected a number")),
        (Delete, "/config/a/list", json!(null), Ok(("/config/a", json!({ "n": null })))),
        (Delete, "/config/nope", json!(null), Err("[/config/nope] key does not exist: nope")),
    ]);
}

/// A peer controls the length of a path and the nesting of a body, and the functions that walk the tree are recursive.
#[test]
fn depth_is_bounded() {
    let deep = "the configuration would be nested more than 120 levels deep";
    let path = |levels: usize| format!("/config{}", "/x".repeat(levels));
    let nested = |levels: usize| (0..levels).fold(json!(1), |value, _| json!([value]));
    for (levels, value, want) in [
        (118, json!(1), Ok(())),
        (118, json!([]), Ok(())),
        (118, json!([[]]), Err(deep)),
        (119, json!(1), Ok(())),
        (120, json!(1), Err(deep)),
        (4000, json!(1), Err(deep)),
        (1, nested(118), Ok(())),
        (1, nested(119), Err(deep)),
    ] {
        let got = change(&mut tree(), Verb::Put, &path(levels), value);
        assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{levels}");
    }
}

proptest! {
    /// Any path with any verb returns a result and never panics. A value that was put can be read back.
    #[test]
    fn any_change(words in prop::collection::vec("|config|a|list|lists|n|s|0|1|2|01|-1|\\.\\.\\.", 0..6), verb in 0usize..4) {
        let path = format!("/config/{}", words.join("/"));
        let verb = [Verb::Post, Verb::Put, Verb::Patch, Verb::Delete][verb];
        let mut root = tree();
        let before = read(&root, &path).cloned();
        let changed = change(&mut root, verb, &path, json!("new"));
        let after = read(&root, &path).cloned();
        match verb {
            Verb::Put | Verb::Patch if changed.is_ok() => prop_assert_eq!(after, Ok(json!("new")), "{}", path),
            // DELETE of an array's element shifts those after it, so only compare the whole tree.
            Verb::Delete if changed.is_ok() && before.is_ok() => prop_assert_ne!(&root, &tree(), "{}", path),
            _ => {}
        }
    }
}

/// A Caddyfile may be adapted to more levels than a change may cause. Changes within that configuration are possible,
/// at each level.
#[test]
fn a_deep_configuration_can_be_changed() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |value, _| json!({ "x": value }));
    let path = |levels: usize| format!("/config{}", "/x".repeat(levels));
    for (verb, levels, value, want) in [
        (Verb::Put, 0, json!(1), Ok(())),
        (Verb::Put, 199, json!(1), Ok(())),
        (Verb::Put, 199, json!([]), Ok(())),
        (Verb::Put, 200, json!([]), Err(TreeError::TooDeep)),
        (Verb::Put, 4000, json!(1), Err(TreeError::TooDeep)),
        (Verb::Delete, 1, Value::Null, Ok(())),
        (Verb::Delete, 200, Value::Null, Ok(())),
    ] {
        let mut root = json!({ "config": nested(200) });
        let path = if verb == Verb::Put { path(levels) + "/y" } else { path(levels) };
        assert_eq!(change(&mut root, verb, &path, value), want, "{verb:?} {levels}");
    }
}
