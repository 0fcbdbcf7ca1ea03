//! Bytes, length and validators of a response belong to one version of a file (RFC 9110 §8.8, §13.1.5, §15.3.7).

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn content(len: usize, fill: u8) -> Vec<u8> {
    vec![fill; len]
}

fn etag(answer: &TestResponse) -> String {
    answer.field("etag").expect("a file has a tag").to_owned()
}

// The length of a file sent from its descriptor is checked at the start of each response, regardless of the cache.
#[test]
fn a_large_file_overwritten_in_place_is_noticed_at_once() {
    let directory = Directory::new();
    directory.file("big", content(200_000, b'a'));
    let mut kit = directory.kit(json!({}));
    let mut old = kit.send(&Request::get("/big"));
    for (len, fill) in [(260_000, b'b'), (120_000, b'c'), (300_000, b'd'), (300_000, b'e'), (0, b'f'), (200_000, b'g')]
    {
        fs::write(directory.0.join("big"), content(len, fill)).expect("a file");
        // The kernel's times may be too coarse for writes of this frequency.
        set_modified(&directory.0.join("big"), fill.into());
        let why = char::from(fill);
        let tag = etag(&old);
        for request in [
            Request::get("/big"),
            Request::get("/big").field("If-None-Match", &tag),
            // The range refers to an old version, so the response is the whole file.
            Request::get("/big").field("Range", "bytes=100-199").field("If-Range", &tag),
        ] {
            let answer = kit.send(&request);
            assert_eq!((answer.status, answer.length), (200, Some(len as u64)), "{why}");
            assert!(answer.body == content(len, fill) && answer.broken.is_none(), "{why}");
            assert_ne!(etag(&answer), tag, "{why}");
            old = answer;
        }
        // A small file would be cached for a second.
        kit.worker().advance(Duration::from_secs(1));
    }
}

#[test]
fn a_replaced_large_file_is_noticed_at_once() {
    let directory = Directory::new();
    directory.file("big", content(200_000, b'a')).file("next", content(200_000, b'b'));
    let mut kit = directory.kit(json!({}));
    assert!(kit.send(&Request::get("/big")).body.starts_with(b"a"));
    fs::rename(directory.0.join("next"), directory.0.join("big")).expect("both are there");
    assert!(kit.send(&Request::get("/big")).body.starts_with(b"b"));
    fs::remove_file(directory.0.join("big")).expect("it is there");
    assert_eq!(kit.send(&Request::get("/big")).status, 404);
}

#[test]
fn a_compressed_variant_matches_one_version_of_its_file() {
    let directory = Directory::new();
    directory.file("big", content(10, b'a')).file("big.gz", content(200_000, b'x'));
    let mut kit = directory.kit(json!({ "precompressed": { "gzip": {} } }));
    let request = Request::get("/big").field("Accept-Encoding", "gzip");
    let old = kit.send(&request);
    assert_eq!((old.field("content-encoding"), old.length), (Some("gzip"), Some(200_000)));
    fs::write(directory.0.join("big.gz"), content(150_000, b'y')).expect("a file");
    let new = kit.send(&request);
    assert_eq!((new.length, new.broken), (Some(150_000), None));
    assert!(new.body == content(150_000, b'y') && etag(&new) != etag(&old));
}

// A changed file makes the cached entry useless, so a full queue is a 503.
#[test]
fn a_changed_large_file_is_not_served_from_the_cache() {
    let directory = Directory::new();
    directory.file("big", content(200_000, b'a'));
    let mut kit = directory.kit(json!({}));
    assert_eq!(kit.send(&Request::get("/big")).status, 200);
    kit.worker().queue_jobs(0);
    assert_eq!(kit.send(&Request::get("/big")).status, 200);
    fs::write(directory.0.join("big"), content(200_001, b'b')).expect("a file");
    assert_eq!(kit.send(&Request::get("/big")).status, 503);
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(kit.send(&Request::get("/big")).status, 503);
}

// A lookup that began before the request may have seen the old version.
#[test]
fn a_request_that_joins_a_lookup_gets_the_current_file() {
    let directory = Directory::new();
    directory.file("big", content(200_000, b'a'));
    let mut kit = directory.kit(json!({}));
    kit.worker().queue_jobs(9);
    let first = kit.send_pending(&Request::get("/big")).expect_err("it looks");
    kit.worker().run_jobs();
    fs::write(directory.0.join("big"), content(210_000, b'b')).expect("a file");
    let second = kit.send_pending(&Request::get("/big")).expect_err("it waits for the same look");
    for pending in [first, second] {
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.length, answer.broken), (Some(210_000), None));
        assert!(answer.body == content(210_000, b'b'));
    }
}

// A file that appears is served at once, also to a request that joins a lookup which did not see it.
#[test]
fn a_request_that_joins_a_lookup_gets_a_new_file() {
    let directory = Directory::new();
    let mut kit = directory.kit(json!({}));
    kit.worker().queue_jobs(9);
    let first = kit.send_pending(&Request::get("/x.txt")).expect_err("it looks");
    kit.worker().run_jobs();
    directory.file("x.txt", "x");
    let second = kit.send_pending(&Request::get("/x.txt")).expect_err("it waits for the same look");
    assert_eq!((first.finish(&mut kit).status, kit.worker().jobs_seen()), (404, 1));
    assert_eq!((summary(&second.finish(&mut kit)), kit.worker().jobs_seen()), ((200, "x"), 2));
}

// File times are coarse: two versions of equal length within one step are indistinguishable. So a file that was read
// shortly after a write is read again.
#[test]
fn a_version_of_equal_size_and_time_is_noticed_within_a_second() {
    let directory = Directory::new();
    let mut kit = directory.kit(json!({}));
    let path = directory.0.join("x.txt");
    let now = SystemTime::now();
    let write = |text: &str| {
        fs::write(&path, text).expect("a file");
        fs::File::options().write(true).open(&path).expect("it is there").set_modified(now).expect("the owner may");
    };
    write("one");
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "one"));
    write("two");
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(summary(&kit.send(&Request::get("/x.txt"))), (200, "two"));
}

/// Runs a test's work without root's access to every file: on Linux each thread has its own user id.
fn without_rights(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).expect("root may");
            }
            work();
        });
    });
}

// An unreadable file or directory is 403, as in Caddy and nginx, whether or not there would be a listing or an index.
#[test]
fn unreadable_files_are_403() {
    let directory = Directory::new();
    directory.file("shut/index.html", "x").file("listed/x", "x").file("file", "x").file("deep/in/x", "x");
    let set = |path: &str, mode| {
        fs::set_permissions(directory.0.join(path), fs::Permissions::from_mode(mode)).expect("the owner may");
    };
    for (path, mode) in [("shut", 0o000), ("listed", 0o711), ("file", 0o000), ("deep", 0o000)] {
        set(path, mode);
    }
    without_rights(|| {
        for browse in [json!(null), json!({})] {
            let mut options = json!({});
            if browse.is_object() {
                options["browse"] = browse.clone();
            }
            let mut kit = directory.kit(options);
            // With permission to traverse a directory but not to read it, the server can see that it has no index.
            let listed = if browse.is_object() { 403 } else { 404 };
            for (target, want) in [
                ("/shut/", 403),
                ("/shut/index.html", 403),
                ("/file", 403),
                ("/deep/in/x", 403),
                ("/listed/", listed),
                ("/listed/x", 200),
                ("/none", 404),
            ] {
                assert_eq!(kit.send(&Request::get(target)).status, want, "{target}, browse: {browse}");
            }
        }
    });
    for path in ["shut", "deep"] {
        set(path, 0o755);
    }
}
