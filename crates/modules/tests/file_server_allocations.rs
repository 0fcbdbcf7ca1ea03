//! The cost of a cached file and of matching: no allocation, no job on the file thread pool, and so no system call.

use causeway_pipeline::Registry;
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
}

/// Asserts that each of these requests does not allocate after it was served once.
#[track_caller]
fn check(routes: &Value, requests: &[Request], status: u16) {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let mut kit = Kit::new(&registry(), routes);
    for request in requests {
        assert_eq!(kit.send(request).status, status, "{}", request.target());
        kit.run(request);
        let jobs = kit.worker().jobs_seen();
        let count = allocations_during(|| {
            for _ in 0..1000 {
                kit.run(request);
            }
        });
        assert_eq!((count, kit.worker().jobs_seen()), (0, jobs), "{}", request.target());
    }
}

#[test]
fn a_cached_file_costs_no_allocation() {
    let directory = std::env::temp_dir().join(format!("causeway-allocations-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("d")).expect("a directory");
    std::fs::write(directory.join("d/index.html"), vec![b'x'; 60_000]).expect("a file");
    std::fs::write(directory.join("big.bin"), vec![b'x'; 600_000]).expect("a file");
    let server = json!({ "handler": "file_server", "root": "{http.vars.root}", "hide": ["Caddyfile"] });
    let routes = json!([{ "handle": [{ "handler": "vars", "root": directory }, server] }]);
    let whole = ["/d/", "/d/index.html", "/big.bin", "/x/../d/?a=b", "/%64/"].map(Request::get);
    check(&routes, &whole, 200);
    let mut kit = Kit::new(&registry(), &routes);
    let tag = kit.send(&Request::get("/d/")).field("etag").expect("a tag").to_owned();
    check(&routes, &[Request::get("/d/").field("If-None-Match", format!("\"x\", {tag}"))], 304);
    let date = kit.send(&Request::get("/d/")).field("last-modified").expect("a date").to_owned();
    check(&routes, &[Request::get("/d/").field("If-Modified-Since", date)], 304);
    check(&routes, &["/d/", "/big.bin"].map(|target| Request::get(target).field("Range", "bytes=5-70")), 206);
    std::fs::remove_dir_all(&directory).expect("it was made here");
}

#[test]
fn compressed_versions_and_live_names_cost_no_allocation() {
    let directory = std::env::temp_dir().join(format!("causeway-allocations-versions-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("d")).expect("a directory");
    for (name, len) in
        [("a.js", 60_000), ("a.js.br", 20_000), ("a.js.gz", 30_000), ("big.js", 600_000), ("big.js.gz", 200_000)]
    {
        std::fs::write(directory.join(name), vec![b'x'; len]).expect("a file");
    }
    std::fs::write(directory.join("a.js.gz.md5"), "\"tag\"").expect("a file");
    let server = json!({
        "handler": "file_server", "root": directory, "hide": ["{http.request.host}"], "index_names": ["{http.request.host}.html"],
        "precompressed": { "br": {}, "zstd": {}, "gzip": {} }, "precompressed_order": ["br", "zstd", "gzip"],
        "etag_file_extensions": [".md5"],
    });
    let routes = json!([{ "handle": [server] }]);
    let get = |target: &str, accept: &str| Request::get(target).field("Accept-Encoding", accept);
    let requests =
        [get("/a.js", "gzip, deflate, br"), get("/a.js", "zstd, gzip;q=0.5"), get("/a.js", ""), get("/big.js", "gzip")];
    check(&routes, &requests, 200);
    check(&routes, &[get("/a.js", "gzip").field("If-None-Match", "\"tag\"")], 304);
    std::fs::remove_dir_all(&directory).expect("it was made here");
}

// `precompress`: once the variants are made, choosing and sending one, or a 304 for its tag, allocates nothing.
#[test]
fn variants_that_the_server_made_cost_no_allocation() {
    let directory = std::env::temp_dir().join(format!("causeway-allocations-made-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("a.js"), "let x = 1;\n".repeat(1000)).expect("a file");
    let server = json!({ "handler": "file_server", "root": directory, "precompress": ["br", "zstd", "gzip"] });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [server] }]));
    let get = |accept: &str| Request::get("/a.js").field("Accept-Encoding", accept);
    for coding in ["br", "zstd", "gzip"] {
        kit.send(&get(coding));
        kit.worker().drive_spawned();
    }
    let tag = kit.send(&get("br")).field("etag").expect("a tag").to_owned();
    let requests = [
        get("gzip, deflate, br, zstd"),
        get("zstd"),
        get("gzip;q=0.5"),
        get(""),
        get("br").field("If-None-Match", tag),
    ];
    for (index, request) in requests.iter().enumerate() {
        let answer = kit.send(request);
        let coding = ["br", "zstd", "gzip", "", ""][index];
        assert_eq!(answer.field("content-encoding").unwrap_or_default(), coding);
        assert_eq!(answer.status, if index == 4 { 304 } else { 200 });
        kit.run(request);
        let jobs = kit.worker().jobs_seen();
        let count = allocations_during(|| (0..1000).for_each(|_| kit.run(request)));
        assert_eq!((count, kit.worker().jobs_seen()), (0, jobs), "{index}");
    }
    std::fs::remove_dir_all(&directory).expect("it was made here");
}

// `try_files`: the worker's cache decides, without an allocation or an access to the file system.
#[test]
fn trying_files_costs_no_allocation() {
    let directory = std::env::temp_dir().join(format!("causeway-allocations-tries-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("docs")).expect("a directory");
    for name in ["index.html", "a.txt", "page.html", "docs/a.md", "docs/b.md", "index.php"] {
        std::fs::write(directory.join(name), name).expect("a file");
    }
    let vars = json!({ "handler": "vars", "root": directory });
    let path = "{http.request.uri.path}";
    let routes = |matchers: Value, rewrite: Option<&str>| {
        let mut handle = vec![];
        handle.extend(rewrite.map(|uri| json!({ "handler": "rewrite", "uri": uri })));
        json!([{ "handle": [vars] }, { "match": matchers, "handle": handle }, { "handle": [{ "handler": "file_server" }] }])
    };
    let html = format!("{path}.html");
    let slash = format!("{path}/");
    for tries in [
        json!({ "try_files": [path, html, slash, "/index.html"] }),
        json!({ "try_files": [path, html, "=200", "/index.html"] }),
        json!({ "try_files": [path, "/*.txt", "/docs/*.md"] }),
        json!({ "try_files": [path, html, "/index.html"], "try_policy": "largest_size" }),
        json!({ "try_files": [path, "/index.html"], "try_policy": "first_exist_fallback", "split_path": [".php"] }),
    ] {
        check(
            &routes(json!([{ "file": tries }]), None),
            &["/a.txt", "/index.html?x=1", "//a.txt"].map(Request::get),
            200,
        );
    }
    // With a rewrite after it, no more allocations than the rewrite itself makes.
    let count = |routes: &Value| {
        let mut kit = Kit::new(&registry(), routes);
        let requests = ["/a.txt", "/page", "/docs/", "/none/of/these"].map(Request::get);
        for request in requests.iter().chain(&requests) {
            assert_eq!(kit.send(request).status, 200);
            kit.run(request);
        }
        let jobs = kit.worker().jobs_seen();
        let count = allocations_during(|| {
            for request in requests.iter().cycle().take(200) {
                kit.run(request);
            }
        });
        assert_eq!(kit.worker().jobs_seen(), jobs);
        count
    };
    let tries = json!([{ "file": { "try_files": [path, html, "/index.html"] } }]);
    let plain = count(&routes(json!([{ "method": ["GET"] }]), Some("/index.html")));
    assert_eq!(count(&routes(tries, Some("{http.matchers.file.relative}"))), plain);
    std::fs::remove_dir_all(&directory).expect("it was made here");
}

#[test]
fn matching_and_answering_cost_no_allocation() {
    let routes = json!([
        { "match": [{ "path": ["/never", "*.php", "*/x/*", "/a/*/c", "/%41b", "/{http.request.host}/*"] }], "handle": [] },
        { "match": [{ "host": ["*.test", "b.test", "{http.request.method}"] }, { "method": ["PUT"] }], "handle": [] },
        { "match": [{ "header": { "Accept": ["*json"], "X-A": null }, "query": { "a b": ["1"] } }], "handle": [] },
        { "match": [{ "not": [{ "path": ["/hello"] }] }], "handle": [{ "handler": "error" }] },
        { "handle": [{ "handler": "subroute", "routes": [{ "handle": [
            { "handler": "vars", "who": "{http.request.remote.host}" },
            { "handler": "headers", "request": { "set": { "X-Who": ["{http.vars.who}"] } },
              "response": { "set": { "X-Uri": ["{http.request.uri}"] }, "delete": ["Server"], "deferred": true } },
            { "handler": "static_response", "headers": { "X-A": ["1"] }, "body": "hello {http.vars.who}", "status_code": "200" },
        ] }] }] },
    ]);
    let get = |target: &str| Request::get(target).field("Host", "a.b.test").field("Accept", "text/json");
    check(&routes, &[get("/hello"), get("//x/../hello?a+b=1"), get("/%68ello?%61%20b=%31&c"), get("/HELLO")], 200);
}
