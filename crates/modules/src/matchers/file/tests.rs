//! Tests of the `file` matcher with the test kit.

use std::fs;
use std::time::Duration;

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use crate::file_server::tests::{Directory, set_modified};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// A match responds with the placeholders that it set; otherwise the response is 404.
fn routes(directory: &Directory, mut matcher: Value) -> Value {
    if matcher.get("root").is_none() {
        matcher["root"] = json!(directory.0);
    }
    let found = "{http.matchers.file.relative} {http.matchers.file.type} {http.matchers.file.remainder}";
    json!([
        { "match": [{ "file": matcher }], "handle": [{ "handler": "static_response", "body": found }], "terminal": true },
        { "handle": [{ "handler": "static_response", "status_code": 404 }] },
    ])
}

/// Sends each request twice: the first result is read from the file system, the second from the cache.
#[track_caller]
fn check(directory: &Directory, matcher: Value, cases: &[(&str, &str)]) {
    let mut kit = Kit::new(&registry(), &routes(directory, matcher.clone()));
    for (target, want) in cases {
        for round in ["asked", "remembered"] {
            let jobs = kit.worker().jobs_seen();
            let answer = kit.send(&Request::get(target));
            let got =
                if answer.status == 200 { answer.text().trim_end().to_owned() } else { answer.status.to_string() };
            assert_eq!(got, *want, "{target} {round} {matcher}");
            assert!(round == "asked" || kit.worker().jobs_seen() == jobs, "{target} {matcher}");
        }
    }
}

fn site() -> Directory {
    let directory = Directory::new();
    for path in [".env", "foo.txt", "foodir/foo.txt", "foodir/bar.txt", "index.php", "remote.php", "notphp.php.txt"] {
        directory.file(path, "x");
    }
    directory
        .file("foo.php.php/index.php", "x")
        .file("with:in-name.txt", "x")
        .file("ملف.txt", "x")
        .file("a[b]*?.txt", "x");
    directory.file("%D9%85.txt", "x").file("foodir/secr\\et.txt", "x").file("index.html", "x").file("file.html", "x");
    directory
}

// Caddy, fileserver/matcher_test.go: files and directories.
#[test]
fn files_and_directories() {
    let directory = site();
    let tries = json!({ "try_files": ["{http.request.uri.path}", "{http.request.uri.path}/"] });
    check(
        &directory,
        tries,
        &[
            ("/.env", "/.env file"),
            ("/.env/", "404"),
            ("/.env/./", "404"),
            ("/foo.txt", "/foo.txt file"),
            ("/foo.txt/", "404"),
            ("/foo.txt/./", "404"),
            ("/foo.txt//", "404"),
            ("/foo.txt?a=b", "/foo.txt file"),
            ("/foodir", "/foodir/ directory"),
            ("/foodir/", "/foodir/ directory"),
            ("/foodir/./", "/foodir/ directory"),
            ("/foodir/foo.txt", "/foodir/foo.txt file"),
            ("/foodir//foo.txt", "/foodir/foo.txt file"),
            ("/foodir/secr%5Cet.txt", "/foodir/secr\\et.txt file"),
            ("/missing.php", "404"),
            ("/%D9%85%D9%84%D9%81.txt", "/ملف.txt file"),
            ("/%25D9%2585.txt", "/%D9%85.txt file"),
            ("/with:in-name.txt", "/with:in-name.txt file"),
            ("/a%5bb%5d*%3f.txt", "/a[b]*?.txt file"),
            // Wildcards from the request are literal.
            ("/foo.*", "404"),
            ("/fo%5bo%5d.txt", "404"),
            // The root itself does not match: Caddy compares it without a slash.
            ("/", "404"),
            ("/%00", "404"),
            ("/foo.txt%00", "404"),
        ],
    );
    // The default of `try_files` is the request's path.
    check(
        &directory,
        json!({}),
        &[("/foo.txt", "/foo.txt file"), ("/foodir", "404"), ("/foodir/", "404"), ("/x", "404")],
    );
    check(&directory, json!({ "try_files": [] }), &[("/foo.txt", "404")]);
    // A request for a directory continues with the next entry if the pattern has no slash.
    let tries = json!({ "try_files": ["{http.request.uri.path}", "{http.request.uri.path}/index.php", "index.php"] });
    check(&directory, tries, &[("/foo.php.php/", "/foo.php.php/index.php file"), ("/foodir/", "/index.php file")]);
}

// Caddy, celFileMatcherMacroExpander: in an expression a candidate is the value of a placeholder, so a path with a
// slash at its end is a directory. Not in Caddy: wildcards in the value are literal.
#[test]
fn candidates_of_an_expression() {
    let directory = site();
    let root = directory.0.to_str().expect("UTF-8");
    let kit = |expression: &str| {
        let found = "{http.matchers.file.relative} {http.matchers.file.type}";
        let set = json!({ "handler": "vars", "root": root });
        let found = json!({ "handler": "static_response", "body": found });
        let missing = json!({ "handler": "static_response", "status_code": 404 });
        Kit::new(
            &registry(),
            &json!([
                { "handle": [set] },
                { "match": [{ "expression": expression }], "handle": [found], "terminal": true },
                { "handle": [missing] },
            ]),
        )
    };
    let path = "{http.request.uri.path}";
    let one = [
        ("/foo.txt", "/foo.txt file"),
        ("/foo.txt/", "404"),
        ("/foodir/", "/foodir/ directory"),
        ("/foodir/.", "404"),
        ("/foodir", "404"),
        ("/foo.*", "404"),
        ("/f*/", "404"),
        ("/", "404"),
    ];
    let both = [("/foodir", "/foodir/ directory"), ("/foodir/", "/foodir/ directory"), ("/foo.txt/", "404")];
    // The pattern of the matcher's default has no slash, whatever the path.
    let default = [("/foo.txt", "/foo.txt file"), ("/foodir/", "404"), ("/foodir", "404")];
    for (expression, cases) in [
        (format!("file({path})"), &one[..]),
        (format!("file({{'try_files': [{path}]}})"), &one),
        (format!("file({path}, {path} + '/')"), &both),
        ("file()".to_owned(), &default),
        (format!("file({{'root': '{root}'}})"), &default),
        // A glob with a value: the slash is that of the value.
        (format!("file('/*dir' + {path})"), &[("/", "/foodir/ directory"), ("/foo.txt", "/foodir/foo.txt file")]),
    ] {
        let mut kit = kit(&expression);
        for (target, want) in cases {
            let answer = kit.send(&Request::get(target));
            let got = if answer.status == 200 { answer.text().to_owned() } else { answer.status.to_string() };
            assert_eq!(got, *want, "{expression} {target}");
        }
    }
}

// No path leads out of the root.
#[test]
fn traversal() {
    let directory = Directory::new();
    directory
        .file("secret.txt", "x")
        .file("root/in.txt", "x")
        .file("root/a/in.txt", "x")
        .file("root-secret/in.txt", "x");
    let matcher = json!({ "root": directory.0.join("root") });
    let out = [
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/a/..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/%2e%2e/secret.txt",
        "/a/%2e%2e/%2e%2e/secret.txt",
        "/../root-secret/in.txt",
        "/%00/../../secret.txt",
    ];
    let mut cases: Vec<_> = out.iter().map(|target| (*target, "404")).collect();
    cases.extend([
        ("/a/..%2fin.txt", "/in.txt file"),
        ("/../in.txt", "/in.txt file"),
        ("/../a/in.txt", "/a/in.txt file"),
    ]);
    check(&directory, matcher.clone(), &cases);
    // Links are followed, as in the file server.
    std::os::unix::fs::symlink("../secret.txt", directory.0.join("root/link")).expect("a link");
    std::os::unix::fs::symlink("nowhere", directory.0.join("root/dangling")).expect("a link");
    check(&directory, matcher, &[("/link", "/link file"), ("/dangling", "404")]);
}

// Caddy, fileserver/matcher_test.go, TestPHPFileMatcher: a path is split after the first delimiter that ends a
// component.
#[test]
fn split_path() {
    let directory = site();
    let tries = ["{http.request.uri.path}", "{http.request.uri.path}/index.php"];
    check(
        &directory,
        json!({ "try_files": tries, "split_path": [".php"] }),
        &[
            ("/index.php", "/index.php file"),
            ("/index.php/somewhere", "/index.php file /somewhere"),
            ("/remote.php/somewhere/", "/remote.php file /somewhere/"),
            ("/REMOTE.PHP/x", "404"),
            ("/missing.php", "404"),
            ("/notphp.php.txt", "/notphp.php.txt file"),
            ("/notphp.php.txt/", "404"),
            ("/notphp.php.txt.suffixed", "404"),
            ("/index.php/", "/index.php file /"),
            ("/foo.php.php/index.php", "/foo.php.php/index.php file"),
            ("/foo.php.php/", "/foo.php.php/index.php file"),
            ("/foo.php.php/./", "/foo.php.php/index.php file"),
            ("/index.php/a*[b]", "/index.php file /a*[b]"),
            ("/%E2%C3", "404"),
            ("/index.php?path={path}&{query}", "/index.php file"),
        ],
    );
    // Caddy: the search for the delimiter ignores case, and the path keeps the request's case.
    directory.file("Up.PHP", "x");
    check(&directory, json!({ "split_path": [".php"] }), &[("/Up.PHP/x", "/Up.PHP file /x")]);
    // The first delimiter that splits applies.
    let splits = json!({ "split_path": [".none", "", ".php"] });
    check(&directory, splits, &[("/index.php/somewhere", "/index.php file /somewhere")]);
}

// Caddy: `=` and a number fails the request if the choice reaches that entry; other texts are names.
#[test]
fn statuses() {
    let directory = site();
    let errors = json!([{ "handle": [{ "handler": "static_response", "body": "{http.error.message}" }] }]);
    for (last, want, message) in [("=418", 418, "418"), ("=404", 404, "404"), ("=0200", 200, "200")] {
        let matcher = json!({ "try_files": ["{http.request.uri.path}", last, "/index.html"] });
        let routes = routes(&directory, matcher);
        let mut kit = Kit::new(&registry(), &routes);
        let mut with_page = Kit::with_errors(&registry(), &routes, &errors);
        for _ in 0..2 {
            assert_eq!(kit.send(&Request::get("/foo.txt")).text().trim(), "/foo.txt file");
            assert_eq!(kit.send(&Request::get("/none")).status, want);
            assert_eq!(with_page.send(&Request::get("/none")).text(), message);
        }
    }
    directory.file("=404", "x").file("=x", "x").file("=1000", "x");
    for (name, policy, want) in [
        ("=x", "", "/=x file"),
        ("=1000", "", "/=1000 file"),
        ("=99", "", "404"),
        ("=404", "largest_size", "/=404 file"),
    ] {
        check(&directory, json!({ "try_files": [name], "try_policy": policy }), &[("/", want)]);
    }
}

// Caddy's documentation of `try_policy`.
#[test]
fn policies() {
    let directory = Directory::new();
    directory
        .file("small", "1")
        .file("large", "12345")
        .file("new", "123")
        .file("also-small", "1")
        .file("folder/x", "x");
    set_modified(&directory.0.join("new"), 1_500_000_000);
    let files = ["/none", "/large", "/small", "/also-small", "/new"];
    for (policy, want) in [
        ("", "/large file"),
        ("first_exist", "/large file"),
        ("first_exist_fallback", "/large file"),
        ("largest_size", "/large file"),
        ("smallest_size", "/small file"),
        ("most_recently_modified", "/new file"),
    ] {
        check(&directory, json!({ "try_files": files, "try_policy": policy }), &[("/", want)]);
        check(
            &directory,
            json!({ "try_files": ["/none"], "try_policy": policy }),
            &[("/", if policy == "first_exist_fallback" { "/none file" } else { "404" })],
        );
    }
    // The last entry is taken literally, whether it exists or not, file or directory.
    for (last, want) in [
        ("/folder", "/folder file"),
        ("/folder/", "/folder/ file"),
        ("index.php", "/index.php file"),
        ("/no*", "/no* file"),
        ("/sm*", "/small file"),
        ("{http.request.uri.path}.html", "/a[b]*.html file"),
        ("/..//x", "/x file"),
    ] {
        let matcher = json!({ "try_files": ["/none", last], "try_policy": "first_exist_fallback" });
        check(&directory, matcher, &[("/a[b]*", want)]);
    }
    // Sizes and dates of directories are compared too.
    let matcher = json!({ "try_files": ["/folder", "/small"], "try_policy": "largest_size" });
    check(&directory, matcher, &[("/", "/folder directory")]);
}

// Caddy: wildcards in the configuration expand to files sorted by name; wildcards from placeholders are literal.
#[test]
fn wildcards() {
    let directory = site();
    directory.file("docs/b.md", "x").file("docs/a.md", "xx").file("docs/sub/c.md", "xxx").file("docs/[x].md", "x");
    check(
        &directory,
        json!({ "try_files": ["/none/*", "{http.request.uri.path}/*.md"] }),
        &[("/docs", "/docs/[x].md file"), ("/docs/sub", "/docs/sub/c.md file"), ("/d*", "404"), ("/foodir", "404")],
    );
    for (pattern, want) in [
        ("/docs/[a-b].md", "/docs/a.md file"),
        ("/docs/\\[x\\].md", "/docs/[x].md file"),
        ("/docs/?.md", "/docs/a.md file"),
        ("/*/*/c.md", "/docs/sub/c.md file"),
        ("/*/sub/*.md", "/docs/sub/c.md file"),
        ("/docs/su*", "404"),
        ("/docs/s*/", "/docs/sub/ directory"),
        ("/../*/b.md", "/docs/b.md file"),
        ("/docs/[", "404"),
        ("*.html", "/file.html file"),
    ] {
        check(&directory, json!({ "try_files": [pattern] }), &[("/", want)]);
    }
    let largest = json!({ "try_files": ["/docs/*.md", "/docs/*/*.md"], "try_policy": "largest_size" });
    check(&directory, largest, &[("/", "/docs/sub/c.md file")]);
    let split = json!({ "try_files": ["/ind*.php/{http.request.uri.path}"], "split_path": [".php"] });
    check(&directory, split, &[("/a*b", "/index.php file /a*b")]);
}

// docs/caddyfile.md, files: wildcards count only in the configuration's text. A root's placeholder without a value is
// the current directory, which is the crate's in tests.
#[test]
fn values_known_at_load() {
    let directory = site();
    directory.file("docs/a.md", "x").file("docs/[a].md", "x");
    let mut registry = registry();
    registry.set_environment(|name| match name {
        "STAR" => Some("*".to_owned()),
        "SET" => Some("[a]".to_owned()),
        _ => None,
    });
    for (matcher, want) in [
        (json!({ "try_files": ["/docs/{env.STAR}.m?"] }), 404),
        (json!({ "try_files": ["/docs/{env.SET}.m?"] }), 200),
        (json!({ "try_files": ["/docs/{env.SET}.md"] }), 200),
        (json!({ "root": "{env.NONE}/src", "try_files": ["/lib.rs"] }), 200),
        (json!({ "root": "{env.NONE}", "try_files": ["/src/lib.rs"] }), 200),
    ] {
        let answer = Kit::new(&registry, &routes(&directory, matcher.clone())).send(&Request::get("/"));
        assert_eq!(answer.status, want, "{matcher}");
        assert!(answer.status == 404 || !answer.text().contains("/a.md"), "{matcher}: {}", answer.text());
    }
}

// Caddy: the default root is `{http.vars.root}`, which may contain placeholders, else the working directory.
#[test]
fn roots() {
    let directory = site();
    directory.file("host.test/x.txt", "x").file("a[b]/x.txt", "x");
    let root = format!("{}/{{http.request.host}}/", directory.0.display());
    let mut kit = Kit::new(&registry(), &routes(&directory, json!({ "root": root })));
    let absolute = format!("{}/host.test/x.txt", directory.0.display());
    let mut body = routes(&directory, json!({ "root": root }));
    body[0]["handle"][0]["body"] = json!("{http.matchers.file.absolute}");
    let mut named = Kit::new(&registry(), &body);
    for _ in 0..2 {
        assert_eq!(kit.send(&Request::get("/x.txt").field("Host", "host.test")).text(), "/x.txt file ");
        assert_eq!(kit.send(&Request::get("/x.txt").field("Host", "other.test")).status, 404);
        assert_eq!(named.send(&Request::get("/x.txt").field("Host", "host.test")).text(), absolute);
    }
    check(&directory, json!({ "root": directory.0.join("a[b]") }), &[("/x.txt", "/x.txt file"), ("/y.txt", "404")]);
    let route = json!({ "match": [{ "file": {} }], "handle": [{ "handler": "static_response", "status_code": 201 }] });
    let mut kit =
        Kit::new(&registry(), &json!([{ "handle": [{ "handler": "vars", "root": directory.0 }] }, route.clone()]));
    assert_eq!(kit.send(&Request::get("/foo.txt")).status, 201);
    assert_eq!(kit.send(&Request::get("/Cargo.toml")).status, 200);
    let mut kit = Kit::new(&registry(), &json!([route]));
    assert_eq!(kit.send(&Request::get("/Cargo.toml")).status, 201);
    check(&directory, json!({ "root": "/" }), &[("/dev/null", "/dev/null file"), ("/dev/null/", "404")]);
}

// Results are cached for a second, absence included; during a revalidation other requests get the old result.
#[test]
fn freshness() {
    let directory = site();
    let mut kit = Kit::new(&registry(), &routes(&directory, json!({ "try_files": ["/new.txt", "/foo.txt"] })));
    let request = Request::get("/");
    assert_eq!(kit.send(&request).text(), "/foo.txt file ");
    // One job looked up both paths.
    assert_eq!(kit.worker().jobs_seen(), 1);
    directory.file("new.txt", "x");
    kit.worker().advance(Duration::from_millis(999));
    assert_eq!((kit.send(&request).text(), kit.worker().jobs_seen()), ("/foo.txt file ", 1));
    kit.worker().advance(Duration::from_millis(1));
    kit.worker().queue_jobs(1);
    let Err(looking) = kit.send_pending(&request) else { panic!("it looks again") };
    assert_eq!(kit.send_pending(&request).ok().expect("it does not wait").text(), "/foo.txt file ");
    // The request that started the lookup is cancelled: the lookup continues for others.
    looking.cancel(&mut kit);
    assert_eq!((kit.worker().run_jobs(), kit.worker().drive_spawned()), (1, 0));
    kit.worker().queue_jobs(0);
    assert_eq!(kit.send(&request).text(), "/new.txt file ");
    fs::remove_file(directory.0.join("new.txt")).expect("it is there");
    kit.worker().advance(Duration::from_secs(1));
    // The queue is full: the expired result is used.
    kit.worker().queue_jobs(0);
    assert_eq!(kit.send(&request).text(), "/new.txt file ");
    let mut other = Kit::new(&registry(), &routes(&directory, json!({})));
    other.worker().queue_jobs(0);
    assert_eq!(other.send(&request).status, 503);
    kit.worker().queue_jobs(1);
    assert_eq!(kit.send(&request).text(), "/foo.txt file ");
}

// Concurrent requests for a path that is not cached share one lookup.
#[test]
fn many_concurrent_requests() {
    let directory = site();
    let mut kit =
        Kit::new(&registry(), &routes(&directory, json!({ "try_files": ["{http.request.uri.path}", "/foo.txt"] })));
    kit.worker().queue_jobs(2);
    let targets = ["/a", "/a", "/b", "/a", "/b"];
    let crowd: Vec<_> = targets.iter().filter_map(|target| kit.send_pending(&Request::get(target)).err()).collect();
    assert_eq!((crowd.len(), kit.worker().jobs_seen()), (5, 2));
    for pending in crowd {
        assert_eq!(pending.finish(&mut kit).text(), "/foo.txt file ");
    }
    assert_eq!(kit.worker().jobs_seen(), 2);
}

// All such matchers share one cache, which survives a reload.
#[test]
fn matchers_share_cached_lookups() {
    let directory = site();
    let mut kit = Kit::new(&registry(), &routes(&directory, json!({ "try_files": ["/none", "/foo.txt"] })));
    assert_eq!(kit.send(&Request::get("/")).text(), "/foo.txt file ");
    let other = routes(&directory, json!({ "try_files": ["/foo.txt", "/none"], "try_policy": "smallest_size" }));
    kit.reload(&registry(), &other, &Value::Null);
    assert_eq!((kit.send(&Request::get("/")).text(), kit.worker().jobs_seen()), ("/foo.txt file ", 1));
}

// A matcher that had to wait works like any other: in a set, in a later set, within `not`.
#[test]
fn together_with_other_matchers() {
    let directory = site();
    let file = |name: &str| json!({ "root": directory.0, "try_files": [name] });
    for (sets, want) in [
        (json!([{ "file": file("/foo.txt"), "path": ["/x"] }]), 201),
        (json!([{ "file": file("/foo.txt"), "path": ["/y"] }]), 200),
        (json!([{ "file": file("/none") }, { "file": file("/foo.txt") }]), 201),
        (json!([{ "not": [{ "file": file("/none") }] }]), 201),
        (json!([{ "not": [{ "file": file("/foo.txt") }] }]), 200),
        (json!([{ "not": [{ "file": file("/none") }, { "file": file("/foo.txt") }] }]), 200),
    ] {
        let respond = json!({ "handler": "static_response", "status_code": 201 });
        let mut kit = Kit::new(&registry(), &json!([{ "match": sets, "handle": [respond] }]));
        for _ in 0..2 {
            assert_eq!(kit.send(&Request::get("/x")).status, want, "{sets}");
        }
    }
}

// Caddy: the placeholders are those of the last matcher that matched. A matcher that waited sets them again when the
// route is evaluated again, since an earlier one that did not wait does so too.
#[test]
fn placeholders_of_the_last_match() {
    let directory = site();
    let matcher = "file('/foo.txt') && header({'X-Never': '1'}) || file('/index.html')";
    let respond = json!({ "handler": "static_response", "body": "{http.matchers.file.relative}" });
    let vars = json!({ "handler": "vars", "root": directory.0 });
    let routes = json!([
        { "handle": [vars] },
        { "match": [{ "path": ["/first"], "file": { "try_files": ["/foo.txt"] } }], "handle": [respond], "terminal": true },
        { "match": [{ "expression": matcher }], "handle": [respond] },
    ]);
    let mut kit = Kit::new(&registry(), &routes);
    for (target, want) in [("/first", "/foo.txt"), ("/", "/index.html"), ("/", "/index.html")] {
        assert_eq!(kit.send(&Request::get(target)).text(), want, "{target}");
    }
}

// The results of paths and of patterns are separate for any bytes in a client's path.
#[test]
fn a_path_cannot_replace_the_result_of_a_pattern() {
    let directory = Directory::new();
    directory.file("a.md", "x");
    let route = |prefix: &str, tries: &str| {
        let respond = json!({ "handler": "static_response", "body": "{http.matchers.file.relative}" });
        let file = json!({ "root": directory.0, "try_files": [tries] });
        json!({ "match": [{ "path": [prefix], "file": file }], "handle": [respond], "terminal": true })
    };
    let fails = json!({ "handle": [{ "handler": "static_response", "status_code": 404 }] });
    let routes = json!([route("/glob", "/*.md"), route("/*", "{http.request.uri.path}"), fails]);
    let mut kit = Kit::new(&registry(), &routes);
    // The suffix that keys of patterns once had: a zero byte and the length of the root.
    let len = directory.0.as_os_str().len().to_be_bytes();
    let suffix: String = len.iter().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(kit.send(&Request::get(&format!("/*.md%00{suffix}"))).status, 404);
    assert_eq!(kit.send(&Request::get("/glob")).text(), "/a.md");
}

#[test]
fn refused() {
    for (matcher, want) in [
        (json!({ "fs": "s3" }), "file: found 's3', expected no `fs`"),
        (json!({ "try_policy": "best" }), "file: found 'best', expected first_exist, first_exist_fallback"),
        (json!({ "try_file": ["x"] }), "unknown field `try_file`"),
        (json!({ "try_files": "x" }), "try_files: found the string 'x', expected a list"),
        (json!("x"), "found the string 'x', expected an object"),
    ] {
        let routes = json!([{ "match": [{ "file": matcher }] }]);
        let error = Kit::build(&registry(), &routes, &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
    }
}
