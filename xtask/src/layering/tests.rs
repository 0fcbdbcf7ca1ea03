//! Workspaces that must be refused, and similar ones that must not.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::{forbidden_dependencies, members, sources};

/// Checks workspaces of one crate with one dependency. `kind` is cargo's dependency kind, empty for a normal one.
#[track_caller]
fn check(cases: &[(&str, &str, &str, &str, Option<&str>)]) {
    for (why, name, kind, dependency, want) in cases {
        let kind = if kind.is_empty() { json!(null) } else { json!(kind) };
        let meta = json!({ "packages": [{
            "name": name,
            "manifest_path": "/x/Cargo.toml",
            "dependencies": [{ "name": dependency, "kind": kind, "rename": "innocent" }],
        }] });
        let violations = forbidden_dependencies(&members(&meta).unwrap());
        match want {
            None => assert!(violations.is_empty(), "{why}: {violations:?}"),
            Some(want) => assert!(violations.len() == 1 && violations[0].contains(want), "{why}: {violations:?}"),
        }
    }
}

#[test]
fn arrows_between_our_crates() {
    check(&[
        ("an arrow of the map", "causeway-engine", "", "causeway-h1", None),
        ("an arrow of the map, for a build script", "causeway-engine", "build", "causeway-h1", None),
        ("the top combines all", "causeway-server", "", "causeway-modules", None),
        ("an arrow turned round", "causeway-h1", "", "causeway-engine", Some("h1 must not depend on engine")),
        (
            "turned round in a build script",
            "causeway-h1",
            "build",
            "causeway-engine",
            Some("h1 must not depend on engine"),
        ),
        ("the lowest crate", "causeway-message", "", "causeway-progress", Some("message must not depend on progress")),
        ("config meets modules by name", "causeway-config", "", "causeway-modules", Some("must not depend on modules")),
        (
            "the engine never names a module",
            "causeway-engine",
            "",
            "causeway-modules",
            Some("must not depend on modules"),
        ),
        (
            "the profiler knows no HTTP",
            "causeway-causal",
            "",
            "causeway-message",
            Some("causal must not depend on message"),
        ),
        ("xtask builds alone", "xtask", "", "causeway-progress", Some("xtask must not depend on progress")),
        ("no crate depends on xtask", "causeway-server", "", "xtask", Some("server must not depend on xtask")),
    ]);
}

#[test]
fn test_helpers_are_for_tests() {
    check(&[
        ("a module's tests", "causeway-modules", "dev", "causeway-testkit", None),
        ("a module", "causeway-modules", "", "causeway-testkit", Some("modules must not depend on testkit")),
        (
            "the wildcard does not cover it",
            "causeway-server",
            "",
            "causeway-testkit",
            Some("server must not depend on testkit"),
        ),
        ("the top's tests", "causeway-server", "dev", "causeway-testkit", None),
        ("config's tests need some module", "causeway-config", "dev", "causeway-modules", None),
        (
            "tests below know nothing above",
            "causeway-message",
            "dev",
            "causeway-h1",
            Some("message's tests must not use h1"),
        ),
    ]);
}

#[test]
fn third_party_absences() {
    check(&[
        ("no reactor in a machine", "causeway-h1", "", "tokio", Some("h1 must not depend on tokio")),
        ("no system call in the vocabulary", "causeway-message", "", "libc", Some("message must not depend on libc")),
        ("no reactor in the chain", "causeway-pipeline", "", "tokio", Some("pipeline must not depend on tokio")),
        ("no socket in a handler", "causeway-modules", "", "socket2", Some("modules must not depend on socket2")),
        ("files are a handler's business", "causeway-modules", "", "rustix", None),
        ("tests may", "causeway-h1", "dev", "tokio", None),
        ("another's crate of the same name", "causeway-h2", "dev", "h2", None),
        ("ours", "causeway-h1", "dev", "causeway-h2", Some("h1's tests must not use h2")),
        ("a crate whose name only begins so", "causeway-h1", "", "tokio-free", None),
    ]);
}

#[test]
fn a_crate_without_a_room_is_told_where_to_go() {
    check(&[("", "causeway-attic", "", "serde", Some("attic is unknown: add it to RULES"))]);
}

#[test]
fn a_package_that_cannot_be_read_is_an_error() {
    assert!(members(&json!({ "packages": [{ "name": "x", "manifest_path": "/x/Cargo.toml" }] })).is_err());
    assert!(members(&json!({})).is_err());
}

#[test]
fn words_in_source() {
    let occurrences = |text: &str| sources::occurrences(text, &["Mutex", "Instant::now", "tokio::"]);
    assert_eq!(
        occurrences("use std::sync::{Arc, Mutex};\nlet t = std::time::Instant::now();"),
        [(1, "Mutex"), (2, "Instant::now")]
    );
    assert_eq!(occurrences("use tokio::net;"), [(1, "tokio::")]);
    assert_eq!(occurrences("let (url, lock) = (\"http://a\", Mutex::new(()));"), [(1, "Mutex")]);
    assert_eq!(occurrences("struct MutexFree; // like a Mutex\n/// `tokio::spawn`\nfn my_tokio::x"), []);
    assert_eq!(occurrences("fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}"), []);
}

#[test]
fn files_are_searched_and_tests_left_out() {
    let directory = std::env::temp_dir().join(format!("layering-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("inner/tests")).unwrap();
    for file in ["lib.rs", "tests.rs", "inner/a.rs", "inner/tests/b.rs", "inner/notes.md"] {
        std::fs::write(directory.join(file), "\nstatic M: Mutex<u8>;").unwrap();
    }
    let violations = sources::violations(&directory, &["Mutex"], &directory).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(violations.len(), 2, "{violations:?}");
    assert!(violations[0].starts_with("inner/a.rs:2:") && violations[1].starts_with("lib.rs:2:"), "{violations:?}");
}

/// The table in SECURITY.md lists exactly the files that contain unsafe code outside of tests.
#[test]
fn the_table_of_unsafe_code_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (_, table) = page.split_once("| where | why |\n|---|---|\n").expect("the table");
    let cells = table.lines().take_while(|line| line.starts_with('|')).filter_map(|row| row.split('|').nth(1));
    let listed: BTreeSet<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).flat_map(alternatives)).collect();
    let mut found = BTreeSet::new();
    for line in sources::violations(&root.join("crates"), &["expect(unsafe_code"], &root.join("crates")).unwrap() {
        let path = line.split(':').next().unwrap();
        // The test kit is for tests, and examples are no part of the program.
        if !path.starts_with("testkit/") && path.contains("/src/") {
            found.insert(path.to_owned());
        }
    }
    assert!(found.len() > 10, "{found:?}");
    assert_eq!(found, listed);
}

/// Returns the paths of `a/{b,c}.rs`.
fn alternatives(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (inner, after) = rest.split_once('}').expect("a closing brace");
    inner.split(',').map(|word| format!("{before}{word}{after}")).collect()
}
