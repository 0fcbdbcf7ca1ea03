//! Names with placeholders: `root`, `hide`, `index_names`.

use causeway_pipeline::Build;
use causeway_pipeline::build::ServerSpec;

use super::*;

// Caddy, `hide`: may contain placeholders; a path is relative to the server's working directory, in any spelling.
#[test]
fn hidden_by_placeholders() {
    let directory = Directory::new();
    directory.file("a/x.txt", "a").file("b/x.txt", "b").file("b/y.txt", "y");
    let root = directory.0.display();
    let mut kit =
        directory.kit(json!({ "hide": ["{http.request.host}", format!("{root}/{{http.request.header.Hide}}")] }));
    // Twice, so that one request's cached result is not served to another.
    for _ in 0..2 {
        for (host, hide, target, want) in [
            ("a", "none", "/a/x.txt", 404),
            ("a", "none", "/b/x.txt", 200),
            ("b", "none", "/a/x.txt", 200),
            ("b", "none", "/b/x.txt", 404),
            ("none", "b/x.txt", "/b/x.txt", 404),
            ("none", "b/x.txt", "/b/y.txt", 200),
            ("none", "b/", "/b/y.txt", 404),
            ("none", "./a/../b", "/b/y.txt", 404),
            ("none", "b/*", "/b/y.txt", 404),
            ("none", "b/*", "/a/x.txt", 200),
            ("*.txt", "none", "/a/x.txt", 404),
        ] {
            let request = Request::get(target).field("Host", host).field("Hide", hide);
            assert_eq!(kit.send(&request).status, want, "{host} {hide} {target}");
        }
    }
}

#[test]
fn hidden_by_paths() {
    let directory = Directory::new();
    directory.file("a/b/c.txt", "c").file("a/[x]/d.txt", "d");
    let root = directory.0.display();
    for (pattern, target, want) in [
        (format!("{root}/a/b/"), "/a/b/c.txt", 404),
        (format!("{root}/a/./b"), "/a/b/c.txt", 404),
        (format!("{root}/x/../a//b"), "/a/b/c.txt", 404),
        (format!("{root}/a/b/c"), "/a/b/c.txt", 200),
        (format!("{root}/a/?"), "/a/b/c.txt", 200),
        (format!("{root}/a/?/*"), "/a/b/c.txt", 404),
        // A directory with exactly this name, although the pattern also reads as a glob.
        (format!("{root}/a/[x]"), "/a/%5bx%5d/d.txt", 404),
        ("./a".to_owned(), "/a/b/c.txt", 200),
        ("c.tx?".to_owned(), "/a/b/c.txt", 404),
        ("C.TXT".to_owned(), "/a/b/c.txt", 200),
    ] {
        let answer = directory.kit(json!({ "hide": [pattern] })).send(&Request::get(target));
        assert_eq!(answer.status, want, "{pattern} {target}");
    }
    // A root relative to the tests' working directory.
    let mut kit = directory.kit(json!({ "root": "src/..", "hide": ["./Cargo.toml"] }));
    assert_eq!(kit.send(&Request::get("/Cargo.toml")).status, 404);
    assert_eq!(kit.send(&Request::get("/src/lib.rs")).status, 200);
}

// Caddy, `index_names`: may contain placeholders; a name cannot lead out of the directory.
#[test]
fn index_names() {
    let directory = Directory::new();
    directory.file("top.html", "top").file("a/de.html", "de").file("a/en.html", "en").file("a/index.html", "index");
    let names = ["{http.request.header.Language}.html", "../top.html", "index.html"];
    let mut kit = directory.kit(json!({ "index_names": names }));
    for _ in 0..2 {
        for (language, want) in [("de", "de"), ("en", "en"), ("fr", "index"), ("../top", "index")] {
            let answer = kit.send(&Request::get("/a/").field("Language", language));
            assert_eq!(summary(&answer), (200, want), "{language}");
        }
    }
}

// Caddy: a placeholder of the root without a value expands to the current directory.
#[test]
fn a_root_placeholder_without_a_value() {
    let directory = Directory::new();
    for root in ["{http.request.header.Root}/src", "{a b}/src"] {
        assert_eq!(directory.kit(json!({ "root": root })).send(&Request::get("/lib.rs")).status, 200, "{root}");
    }
    let mut kit = directory.kit(json!({ "root": "{http.request.uri.query.root}" }));
    assert_eq!(kit.send(&Request::get("/src/lib.rs")).status, 200);
    assert_eq!(kit.send(&Request::get("/src/lib.rs?root=/%00")).status, 400);
}

// Caddy, `Provision`: a relative data directory, which has private keys, is hidden from each file server.
#[test]
fn own_files_are_hidden() {
    let directory = Directory::new();
    directory.file("data/keys/a.key", "secret").file("data2/b.txt", "b").file("saved.json", "saved");
    let registry = registry();
    let mut build = Build::new(&registry);
    build.set_own_files(vec![directory.0.join("data"), directory.0.join("saved.json")]);
    let routes = json!([{ "handle": [directory.handler(json!({ "browse": {} }))] }]);
    build.server(&ServerSpec::new("srv0", &routes)).unwrap();
    let mut kit = Kit::of_plan(build.finish());
    for (target, want) in [
        ("/data/keys/a.key", 404),
        ("/data/keys/", 404),
        ("/data/", 404),
        ("/x/..//data/keys/a.key", 404),
        ("/saved.json", 404),
        ("/data2/b.txt", 200),
    ] {
        assert_eq!(kit.send(&Request::get(target)).status, want, "{target}");
    }
    let listing = kit.send(&Request::get("/").field("Accept", "application/json"));
    assert!(!listing.text().contains("saved") && listing.text().contains("data2"), "{}", listing.text());
}
