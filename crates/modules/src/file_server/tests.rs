//! Tests of the file server with the test kit, each on its own directory.

mod browse;
mod escape;
mod generated;
mod names;
mod precompressed;
mod rfc9110;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Value, json};

/// A temporary directory, removed on drop.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("causeway-file-server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    /// Writes a file, creates its parent directories, and sets its time to 2001-09-09T01:46:40Z.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a file has a parent directory")).expect("directories");
        fs::write(&path, content).expect("a file");
        set_modified(&path, 1_000_000_000);
        self
    }

    fn kit(&self, options: Value) -> Kit {
        Kit::new(&registry(), &json!([{ "handle": [self.handler(options)] }]))
    }

    pub(crate) fn handler(&self, mut options: Value) -> Value {
        options["handler"] = json!("file_server");
        if options.get("root").is_none() {
            options["root"] = json!(self.0);
        }
        options
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn set_modified(path: &Path, seconds: u64) {
    let file = fs::File::open(path).expect("it was written");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("the owner may");
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

fn summary(answer: &TestResponse) -> (u16, &str) {
    (answer.status, answer.text())
}

#[test]
fn a_file_with_its_fields() {
    let directory = Directory::new();
    directory.file("a/page.html", "<p>").file("a/raw", "raw").file("empty.txt", "");
    let mut kit = directory.kit(json!({}));
    for _ in 0..2 {
        let answer = kit.send(&Request::get("/a/page.html?x=1"));
        assert_eq!(summary(&answer), (200, "<p>"));
        assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(answer.field("last-modified"), Some("Sun, 09 Sep 2001 01:46:40 GMT"));
        assert_eq!(answer.field("accept-ranges"), Some("bytes"));
        // Caddy: base 36 of 10^18 and of 3.
        assert_eq!(answer.field("etag"), Some("\"7lieexzx4kxs-3\""));
    }
    let raw = kit.send(&Request::get("/a/raw"));
    assert_eq!((summary(&raw), raw.field("content-type")), ((200, "raw"), None));
    let head = kit.send(&Request::new("HEAD", "/a/raw"));
    assert_eq!((summary(&head), head.length), ((200, ""), Some(3)));
    assert_eq!(summary(&kit.send(&Request::get("/empty.txt"))), (200, ""));
    assert_eq!(kit.send(&Request::new("HEAD", "/empty.txt")).values("Content-Length").collect::<Vec<_>>(), ["0"]);
    assert_eq!(kit.send(&Request::get("/a/none")).status, 404);
    assert_eq!(kit.send(&Request::get("/a/raw/below")).status, 404);
    // Caddy: a name that cannot exist is the client's mistake.
    assert_eq!(kit.send(&Request::get(&format!("/{}", "x".repeat(300)))).status, 400);
}

// Caddy: "root … default {http.vars.root} if set, or current working directory".
#[test]
fn the_root_is_a_variable() {
    let directory = Directory::new();
    directory.file("site/x.txt", "x");
    let vars = json!({ "handler": "vars", "root": format!("{}/{{http.request.host}}/", directory.0.display()) });
    let routes = json!([{ "handle": [vars, { "handler": "file_server" }] }]);
    let mut kit = Kit::new(&registry(), &routes);
    assert_eq!(summary(&kit.send(&Request::get("/x.txt").field("Host", "site"))), (200, "x"));
    assert_eq!(kit.send(&Request::get("/x.txt")).status, 404);
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [{ "handler": "file_server" }] }]));
    let own = kit.send(&Request::get("/Cargo.toml"));
    assert!(own.text().contains("causeway-modules"), "tests run in the crate's directory");
}

// Caddy: index names are tried in order; hidden ones are skipped; a directory without an index is 404.
#[test]
fn index_files() {
    let directory = Directory::new();
    directory.file("index.html", "top").file("a/index.txt", "a").file("b/home", "b").file("c/index.html/x", "folder");
    let mut kit = directory.kit(json!({}));
    assert_eq!(summary(&kit.send(&Request::get("/"))), (200, "top"));
    assert_eq!(summary(&kit.send(&Request::get("/a/"))), (200, "a"));
    assert_eq!(kit.send(&Request::get("/b/")).status, 404);
    assert_eq!(kit.send(&Request::get("/c/")).status, 404);
    let mut kit = directory.kit(json!({ "index_names": ["home"] }));
    assert_eq!(summary(&kit.send(&Request::get("/b/"))), (200, "b"));
    assert_eq!(kit.send(&Request::get("/a/")).status, 404);
    let mut kit = directory.kit(json!({ "hide": ["index.html"] }));
    assert_eq!(kit.send(&Request::get("/")).status, 404);
}

// Caddy, `canonical_uris`: directories end in a slash, files do not; 308; the query is kept; no redirect if the last
// segment was rewritten.
#[test]
fn canonical_paths() {
    let directory = Directory::new();
    directory.file("d/index.html", "d").file("f.txt", "f").file("d/e f/index.html", "e");
    let mut kit = directory.kit(json!({}));
    for (target, want) in [
        ("/d", "/d/"),
        ("/d?a=b&c", "/d/?a=b&c"),
        ("/f.txt/", "/f.txt"),
        ("/f.txt/?x", "/f.txt?x"),
        ("/d/e%20f", "/d/e%20f/"),
        ("//d", "/d/"),
        ("////f.txt/", "/f.txt"),
        // Copied to Location unchanged, these would name another host.
        ("//evil.test/../d", "/d/"),
        ("//evil.test/..%2fd", "/evil.test/..%2fd/"),
        ("/./d", "/d/"),
        ("/d/../d/.", "/d/"),
        ("/f.txt/./", "/f.txt"),
        // The decoded path ends in a slash, which no matcher of the file's path expects.
        ("/f.txt%2f", "/f.txt"),
        ("/f.txt%2F?x", "/f.txt?x"),
        ("/f.txt/%2f%2F", "/f.txt"),
        ("/f.txt/.%2f", "/f.txt"),
        ("/f.txt/x/..%2f", "/f.txt"),
    ] {
        let answer = kit.send(&Request::get(target));
        assert_eq!((answer.status, answer.field("location")), (308, Some(want)), "{target}");
        assert_eq!(kit.send(&Request::get(want)).status, 200, "{target}");
    }
    let mut kit = directory.kit(json!({ "canonical_uris": false }));
    assert_eq!(summary(&kit.send(&Request::get("/d"))), (200, "d"));
    assert_eq!(summary(&kit.send(&Request::get("/f.txt/"))), (200, "f"));
    let rewrite =
        |uri: &str| json!([{ "handle": [{ "handler": "rewrite", "uri": uri }, directory.handler(json!({}))] }]);
    let mut kit = Kit::new(&registry(), &rewrite("/d"));
    assert_eq!(summary(&kit.send(&Request::get("/other"))), (200, "d"));
    assert_eq!(kit.send(&Request::get("/x/d")).field("location"), Some("/x/d/"));
    // The names are compared decoded. A slash that the rewrite adds to another name is that of no file, as no matcher
    // of the file's path holds for it.
    let mut kit = Kit::new(&registry(), &rewrite("/f.txt/"));
    for (target, want) in [("/x/f.txt/", "/x/f.txt"), ("/x/f.txt%2f", "/x/f.txt"), ("/x/%66.txt%2F/", "/x/%66.txt")] {
        assert_eq!(kit.send(&Request::get(target)).field("location"), Some(want), "{target}");
    }
    assert_eq!(kit.send(&Request::get("/x/f.txt")).status, 404);
    assert_eq!(kit.send(&Request::get("/other/")).status, 404);
    // Without the redirect, the index of a directory would be sent for a path that no matcher of the directory's path
    // expects.
    let strip =
        json!([{ "handle": [{ "handler": "rewrite", "strip_path_prefix": "/x" }, directory.handler(json!({}))] }]);
    let mut kit = Kit::new(&registry(), &strip);
    for (target, want) in
        [("/x%2Fd", "/x%2Fd/"), ("/x%2fd?q", "/x%2fd/?q"), ("/x/%64", "/x/%64/"), ("/x/d%2f..%2fd", "/x/d%2f..%2fd/")]
    {
        assert_eq!(kit.send(&Request::get(target)).field("location"), Some(want), "{target}");
    }
}

// Caddy, `hide`: a pattern without a slash applies to each component, one with a slash to a path and everything below;
// both may be globs.
#[test]
fn hidden_files() {
    let directory = Directory::new();
    directory
        .file(".git/config", "x")
        .file("a/.env", "x")
        .file("a/b/c.txt", "x")
        .file("a/bc.txt", "x")
        .file("d.php", "x");
    let secret = format!("{}/a/b", directory.0.display());
    let glob = format!("{}/*.php", directory.0.display());
    for (hide, target, want) in [
        (json!([".git"]), "/.git/config", 404),
        (json!([".*"]), "/a/.env", 404),
        (json!([".git"]), "/a/.env", 200),
        (json!(["b"]), "/a/b/c.txt", 404),
        (json!(["b"]), "/a/bc.txt", 200),
        (json!([secret]), "/a/b/c.txt", 404),
        (json!([secret]), "/a/bc.txt", 200),
        (json!([secret]), "/x/../a//b/c.txt", 404),
        (json!([glob]), "/d.php", 404),
        (json!([glob]), "/a/bc.txt", 200),
        (json!(["*.txt"]), "/a/b/c.txt", 404),
    ] {
        let answer = directory.kit(json!({ "hide": hide })).send(&Request::get(target));
        assert_eq!(answer.status, want, "{hide} {target}");
    }
}

#[test]
fn methods_pass_thru_and_statuses() {
    let directory = Directory::new();
    directory.file("x.txt", "x").file("sorry.html", "sorry");
    let mut kit = directory.kit(json!({}));
    for method in ["POST", "DELETE", "OPTIONS", "PROPFIND"] {
        let answer = kit.send(&Request::new(method, "/x.txt"));
        assert_eq!((answer.status, answer.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    assert_eq!(kit.send(&Request::new("POST", "/none")).status, 404);
    let next = json!({ "handler": "static_response", "body": "next" });
    let routes = json!([{ "handle": [directory.handler(json!({ "pass_thru": true })), next.clone()] }]);
    let mut kit = Kit::new(&registry(), &routes);
    assert_eq!(summary(&kit.send(&Request::get("/none"))), (200, "next"));
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "x"));
    let rewrite = json!({ "handler": "rewrite", "uri": "/x.txt/" });
    let routes = json!([{ "handle": [rewrite, directory.handler(json!({ "pass_thru": true })), next] }]);
    let mut kit = Kit::new(&registry(), &routes);
    assert_eq!(summary(&kit.send(&Request::get("/y"))), (200, "next"), "such a path is no file's");
    let mut kit = directory.kit(json!({ "status_code": "503" }));
    let answer = kit.send(&Request::get("/x.txt").field("Range", "bytes=0-0").field("If-None-Match", "*"));
    assert_eq!(summary(&answer), (503, "x"));
    // Caddy: an error route serves the file with the error's status, whatever the method.
    let errors = json!([{ "handle": [{ "handler": "rewrite", "uri": "/sorry.html" }, directory.handler(json!({}))] }]);
    let mut kit = Kit::with_errors(&registry(), &json!([{ "handle": [directory.handler(json!({}))] }]), &errors);
    assert_eq!(summary(&kit.send(&Request::get("/none"))), (404, "sorry"));
    assert_eq!(summary(&kit.send(&Request::new("POST", "/x.txt"))), (405, "sorry"));
}

#[test]
fn fields_of_earlier_handlers_are_kept() {
    let directory = Directory::new();
    directory.file("x.txt", "x");
    let set = json!({ "handler": "headers", "response": { "set": { "Content-Type": ["a/b"], "ETag": ["\"mine\""] } } });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [set, directory.handler(json!({}))] }]));
    let answer = kit.send(&Request::get("/x.txt"));
    assert_eq!((answer.field("content-type"), answer.field("etag")), (Some("a/b"), Some("\"mine\"")));
    assert_eq!(kit.send(&Request::get("/x.txt").field("If-None-Match", "\"mine\"")).status, 304);
}

// Go, ServeContent: Last-Modified is the file's time, by which conditions are evaluated (RFC 9110 §13.1.3).
#[test]
fn last_modified_is_the_time_of_the_file() {
    let directory = Directory::new();
    directory.file("x.txt", "x");
    let date = "Sun, 09 Sep 2001 01:46:40 GMT";
    let set = json!({ "Last-Modified": ["Mon, 01 Jan 2035 00:00:00 GMT"] });
    let set = json!({ "handler": "headers", "response": { "set": set } });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [set, directory.handler(json!({}))] }]));
    let answer = kit.send(&Request::get("/x.txt"));
    assert_eq!(answer.values("Last-Modified").collect::<Vec<_>>(), [date]);
    assert_eq!(kit.send(&Request::get("/x.txt").field("If-Modified-Since", date)).status, 304);
}

// The bound of the blocking pool protects the operator: beyond it the response is an immediate 503. A cached file is
// still served, since an expired value is better than a 503.
#[test]
fn a_full_pool_is_503_except_for_cached_files() {
    let directory = Directory::new();
    directory.file("x.txt", "x");
    let mut kit = directory.kit(json!({}));
    assert_eq!(kit.send(&Request::get("/x.txt")).status, 200);
    kit.worker().queue_jobs(0);
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "x"));
    assert_eq!(kit.send(&Request::get("/y.txt")).status, 503);
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "x"));
}

#[test]
fn a_changed_file_is_noticed_within_a_second() {
    let directory = Directory::new();
    directory.file("x.txt", "old");
    let mut kit = directory.kit(json!({}));
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "old"));
    fs::write(directory.0.join("x.txt"), "newer").expect("a file");
    let jobs = kit.worker().jobs_seen();
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "old"));
    kit.worker().advance(Duration::from_millis(999));
    assert_eq!((summary(&kit.send(&Request::get("/x.txt"))), kit.worker().jobs_seen()), ((200, "old"), jobs));
    kit.worker().advance(Duration::from_millis(1));
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "newer"));
    // Unchanged: the metadata is read, the content is not.
    kit.worker().advance(Duration::from_secs(5));
    assert_eq!((summary(&kit.send(&Request::get("/x.txt"))), kit.worker().jobs_seen()), ((200, "newer"), jobs + 2));
    fs::remove_file(directory.0.join("x.txt")).expect("it was there");
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(kit.send(&Request::get("/x.txt")).status, 404);
}

#[test]
fn requests_get_the_old_file_during_a_refresh() {
    let directory = Directory::new();
    directory.file("x.txt", "x");
    let mut kit = directory.kit(json!({}));
    assert_eq!(kit.send(&Request::get("/x.txt")).status, 200);
    kit.worker().advance(Duration::from_secs(2));
    kit.worker().queue_jobs(1);
    let Err(looking) = kit.send_pending(&Request::get("/x.txt")) else { panic!("it looks first") };
    assert_eq!(summary(&kit.send_pending(&Request::get("/x.txt")).ok().expect("no wait")), (200, "x"));
    assert_eq!(summary(&looking.finish(&mut kit)), (200, "x"));
    // A client that disconnects during the lookup leaves no state.
    let Err(gone) = kit.send_pending(&Request::get("/y.txt")) else { panic!("it looks first") };
    gone.cancel(&mut kit);
    assert_eq!(kit.worker().run_jobs(), 1);
    assert_eq!(kit.send(&Request::get("/y.txt")).status, 404);
}

// A request that joins a lookup that has begun looks up an absent file again. With a full queue it gets the first
// outcome: a 404 is better than a 503.
#[test]
fn a_full_pool_keeps_the_outcome_of_the_first_lookup() {
    let directory = Directory::new();
    directory.file("d/x", "x");
    for target in ["/none", "/d/"] {
        let mut kit = directory.kit(json!({}));
        kit.worker().queue_jobs(1);
        let Err(first) = kit.send_pending(&Request::get(target)) else { panic!("it looks first") };
        assert_eq!(kit.worker().run_jobs(), 1);
        let Err(second) = kit.send_pending(&Request::get(target)) else { panic!("it joins the lookup") };
        kit.worker().queue_jobs(0);
        for pending in [first, second] {
            assert_eq!(pending.finish(&mut kit).status, 404, "{target}");
        }
        assert_eq!(kit.worker().jobs_seen(), 1, "{target}");
    }
}

// Go, writeNotModified: a 304 has no fields that describe content, also for handlers before the file server.
#[test]
fn a_304_has_no_content_type() {
    let directory = Directory::new();
    directory.file("x.txt", "x");
    let matcher = json!({ "headers": { "Content-Type": ["*"] } });
    let mark = json!({ "deferred": true, "require": matcher, "set": { "X-Type": ["seen"] } });
    let mark = json!({ "handler": "headers", "response": mark });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [mark, directory.handler(json!({}))] }]));
    let answer = kit.send(&Request::get("/x.txt"));
    assert_eq!((answer.status, answer.field("x-type")), (200, Some("seen")));
    let again = kit.send(&Request::get("/x.txt").field("If-None-Match", answer.field("etag").expect("a tag")));
    assert_eq!((again.status, again.field("x-type")), (304, None));
    assert_eq!((again.field("etag"), again.field("last-modified")), (answer.field("etag"), None));
}

// Concurrent requests for a path that is not cached share one lookup, also if the first client disconnects.
#[test]
fn many_concurrent_requests() {
    let directory = Directory::new();
    directory.file("x.txt", "x").file("d/x", "x");
    let mut kit = directory.kit(json!({}));
    kit.worker().queue_jobs(3);
    for (target, want) in [("/x.txt", (200, "x")), ("/none", (404, "")), ("/d/", (404, ""))] {
        let seen = kit.worker().jobs_seen();
        let mut crowd: Vec<_> = (0..100).filter_map(|_| kit.send_pending(&Request::get(target)).err()).collect();
        assert_eq!((crowd.len(), kit.worker().jobs_seen()), (100, seen + 1), "{target}");
        crowd.remove(0).cancel(&mut kit);
        for pending in crowd {
            assert_eq!(summary(&pending.finish(&mut kit)), want, "{target}");
        }
        assert_eq!(kit.worker().jobs_seen(), seen + 1, "{target}");
    }
    assert_eq!(kit.worker().drive_spawned(), 0);
}

#[test]
fn large_files_are_sent_from_the_file() {
    let directory = Directory::new();
    let content: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    directory.file("big.bin", &content).file("edge.bin", &content[..131_072]).file("over.bin", &content[..131_073]);
    let mut kit = directory.kit(json!({}));
    for (target, len) in [("/big.bin", 200_000), ("/edge.bin", 131_072), ("/over.bin", 131_073), ("/big.bin", 200_000)]
    {
        let answer = kit.send(&Request::get(target));
        assert_eq!((answer.status, answer.length), (200, Some(len as u64)), "{target}");
        assert!(answer.body == content[..len], "{target}");
    }
    let answer = kit.send(&Request::get("/big.bin").field("Range", "bytes=100000-100009"));
    assert_eq!((answer.status, &answer.body[..]), (206, &content[100_000..100_010]));
    let answer = kit.send(&Request::get("/big.bin").field("Range", "bytes=0-4,-5"));
    assert_eq!(answer.length, Some(answer.body.len() as u64));
    assert!(answer.body.windows(5).any(|part| part == &content[199_995..]));
}

// docs/limits.md: a large file that is not requested for 10 to 20 seconds is closed, so that a deleted one takes no
// space, also after a reload.
#[test]
fn a_large_file_without_requests_is_closed() {
    let directory = Directory::new();
    let large = vec![b'x'; 200_000];
    directory.file("a.bin", &large).file("b.bin", &large).file("c.txt", "c");
    let is_open = |name: &str| {
        let own = fs::read_dir("/proc/self/fd").expect("Linux has it");
        let mut links = own.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| link.to_string_lossy().starts_with(&*directory.0.join(name).to_string_lossy()))
    };
    let mut kit = directory.kit(json!({}));
    assert_eq!(kit.send(&Request::get("/c.txt")).status, 200);
    assert_eq!(kit.worker().drive_spawned(), 0, "no file is open");
    for target in ["/a.bin", "/b.bin"] {
        assert_eq!(kit.send(&Request::get(target)).body, large);
    }
    assert_eq!(kit.worker().drive_spawned(), 1, "one task for all files");
    fs::remove_file(directory.0.join("a.bin")).expect("it exists");
    kit.reload(&registry(), &json!([{ "handle": [directory.handler(json!({}))] }]), &Value::Null);
    assert!(is_open("a.bin"), "a later request needs no open()");
    for second in 0..30 {
        assert!(is_open("b.bin"), "{second}");
        assert_eq!(kit.send(&Request::get("/b.bin")).status, 200);
        kit.worker().advance(Duration::from_secs(1));
        kit.worker().drive_spawned();
    }
    assert!(!is_open("a.bin"));
    for _ in 0..2 {
        kit.worker().advance(Duration::from_secs(10));
        kit.worker().drive_spawned();
    }
    assert!(!is_open("b.bin"));
    assert_eq!((kit.worker().drive_spawned(), kit.worker().sleepers()), (0, 0), "an idle worker is not woken");
    // The next file is closed too.
    assert_eq!(kit.send(&Request::get("/b.bin")).status, 200);
    assert!(is_open("b.bin") && kit.worker().drive_spawned() == 1);
}

#[test]
fn pipes_and_devices_are_not_served() {
    let directory = Directory::new();
    std::os::unix::fs::symlink("/dev/zero", directory.0.join("zero")).expect("a link");
    assert_eq!(directory.kit(json!({})).send(&Request::get("/zero")).status, 404);
}

#[test]
fn refused() {
    for (options, want) in [
        (json!({ "fs": "s3" }), "found 's3', expected no `fs`"),
        (json!({ "precompressed": { "lzma": {} } }), "found 'lzma', expected one of br, gzip, zstd"),
        (json!({ "precompressed": { "br": { "level": 1 } } }), "expected no options of a precompressed format"),
        (json!({ "precompressed": "gzip" }), "precompressed: found the string 'gzip', expected an object"),
        (json!({ "hide": "x" }), "hide: found the string 'x', expected a list"),
        (json!({ "browse": { "sort": ["age"] } }), "found 'age', expected one of name"),
        (json!({ "browse": { "sort": ["asc"] } }), "found 'asc', expected one of name"),
        (json!({ "browse": { "sort": ["size", "name"] } }), "found 'name', expected asc or desc as the second"),
        (json!({ "browse": { "sort": ["size", "asc", "x"] } }), "found 'x', expected at most two words"),
        (json!({ "browse": { "file_limit": 1.5 } }), "found the number 1.5, expected a whole number"),
        (json!({ "rot": "x" }), "unknown field `rot`"),
        (json!({ "status_code": "abc" }), "status_code: found 'abc'"),
    ] {
        let mut handler = options;
        handler["handler"] = json!("file_server");
        let error = Kit::build(&registry(), &json!([{ "handle": [handler] }]), &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
fn a_reload_that_keeps_the_options_keeps_the_cache() {
    let directory = Directory::new();
    directory.file("a.txt", "a");
    let routes = |options: Value| json!([{ "handle": [directory.handler(options)] }]);
    let get = Request::get("/a.txt");
    let mut kit = directory.kit(json!({}));
    assert_eq!(kit.send(&get).text(), "a");
    kit.reload(&registry(), &routes(json!({})), &Value::Null);
    match kit.send_pending(&get) {
        Ok(answer) => assert_eq!(answer.text(), "a"),
        Err(_) => panic!("the file was looked up again"),
    }
    kit.reload(&registry(), &routes(json!({ "hide": ["a.txt"] })), &Value::Null);
    assert_eq!(kit.send(&get).status, 404);
}
