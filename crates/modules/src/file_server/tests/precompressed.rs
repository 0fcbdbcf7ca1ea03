//! Compressed variants of a file, and entity tags from files.

use super::*;

fn directory() -> Directory {
    let directory = Directory::new();
    directory
        .file("a.js", "plain")
        .file("a.js.br", "BROTLI")
        .file("a.js.zst", "ZSTD--")
        .file("a.js.gz", "GZIP-14--bytes");
    directory.file("b.txt", "plain").file("b.txt.gz", "GZIP").file("only.txt.gz", "GZIP");
    directory
}

fn all() -> Value {
    json!({ "precompressed": { "br": {}, "zstd": {}, "gzip": {} }, "precompressed_order": ["br", "zstd", "gzip"] })
}

// RFC 9110 §12.5.3 as Caddy implements it: by weight, then by the configured order, then by the request's order.
#[test]
fn choice_of_the_version() {
    let directory = directory();
    let mut kit = directory.kit(all());
    let unordered = json!({ "precompressed": { "br": {}, "zstd": {}, "gzip": {} } });
    let mut unordered = directory.kit(unordered);
    for (accept, ordered, as_named) in [
        ("", None, None),
        ("identity", None, None),
        ("*", None, None),
        ("deflate", None, None),
        ("gzip", Some("gzip"), Some("gzip")),
        ("GZip", Some("gzip"), Some("gzip")),
        ("gzip, deflate, br, zstd", Some("br"), Some("gzip")),
        ("zstd,gzip", Some("zstd"), Some("zstd")),
        ("gzip;q=1.0, br;q=0.5", Some("gzip"), Some("gzip")),
        ("gzip; q=0.5 , br ;q=0.5", Some("br"), Some("gzip")),
        ("br;q=0, gzip;q=0.001", Some("gzip"), Some("gzip")),
        ("br;q=0", None, None),
        ("gzip;q=0.000001", None, None),
        ("identity, gzip;q=0.5", Some("gzip"), Some("gzip")),
        // An invalid weight counts as 1.
        ("br;q=2, gzip", Some("br"), Some("br")),
        ("gzip, br;q=x", Some("br"), Some("gzip")),
        ("gzip, br;a=b;q=0", Some("br"), Some("gzip")),
        ("gzip;q=0.1, gzip", Some("gzip"), Some("gzip")),
        (",, ;q=1,br", Some("br"), Some("br")),
    ] {
        for (kit, want) in [(&mut kit, ordered), (&mut unordered, as_named)] {
            let answer = kit.send(&Request::get("/a.js").field("Accept-Encoding", accept));
            let (bytes, len) = match want {
                Some("br") => ("BROTLI", "6"),
                Some("zstd") => ("ZSTD--", "6"),
                Some(_) => ("GZIP-14--bytes", "e"),
                None => ("plain", "5"),
            };
            assert_eq!((summary(&answer), answer.field("content-encoding")), ((200, bytes), want), "{accept}");
            // The tag is the variant's own; type and date are the file's.
            assert_eq!(answer.field("etag"), Some(&*format!("\"7lieexzx4kxs-{len}\"")), "{accept}");
            assert_eq!(answer.field("content-type"), Some("text/javascript; charset=utf-8"));
            assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
        }
    }
    let two = Request::get("/a.js").field("Accept-Encoding", "gzip;q=0.2").field("Accept-Encoding", "zstd;q=0.3");
    assert_eq!(kit.send(&two).text(), "ZSTD--");
    // Caddy: a WebSocket handshake gets no coding.
    let socket = Request::get("/a.js").field("Accept-Encoding", "gzip").field("Sec-WebSocket-Key", "x");
    assert_eq!(kit.send(&socket).text(), "plain");
}

// Caddy: a variant is looked up next to the file, and never used without it; hidden variants and directories are
// skipped.
#[test]
fn locations_of_versions() {
    let directory = directory();
    directory
        .file("c.txt", "plain")
        .file("c.txt.gz/x", "a directory")
        .file("d/index.html", "index")
        .file("d/index.html.br", "BR");
    let mut kit = directory.kit(all());
    for (target, want, coding) in [
        ("/b.txt", (200, "GZIP"), Some("gzip")),
        ("/only.txt", (404, ""), None),
        ("/only.txt.gz", (200, "GZIP"), None),
        ("/c.txt", (200, "plain"), None),
        ("/d/", (200, "BR"), Some("br")),
    ] {
        let answer = kit.send(&Request::get(target).field("Accept-Encoding", "gzip, br"));
        assert_eq!((summary(&answer), answer.field("content-encoding")), (want, coding), "{target}");
    }
    let mut options = all();
    options["hide"] = json!(["*.br"]);
    let answer = directory.kit(options).send(&Request::get("/a.js").field("Accept-Encoding", "br, gzip;q=0.1"));
    assert_eq!(answer.text(), "GZIP-14--bytes");
    // Without the option no variant is looked up, but Vary is still sent.
    let answer = directory.kit(json!({})).send(&Request::get("/a.js").field("Accept-Encoding", "br"));
    assert_eq!((answer.text(), answer.field("vary")), ("plain", Some("Accept-Encoding")));
}

// RFC 9110 §8.4, §13, §14.2: conditions and ranges refer to the selected variant; only content has a coding.
#[test]
fn conditions_and_ranges() {
    let directory = directory();
    let mut kit = directory.kit(all());
    for (name, value, status, text, coding) in [
        ("Range", "bytes=0-3", 206, "GZIP", Some("gzip")),
        ("Range", "bytes=-6", 206, "-bytes", Some("gzip")),
        ("Range", "bytes=14-", 416, "", None),
        ("If-None-Match", "\"7lieexzx4kxs-e\"", 304, "", None),
        ("If-None-Match", "\"7lieexzx4kxs-5\"", 200, "GZIP-14--bytes", Some("gzip")),
        ("If-Match", "\"7lieexzx4kxs-5\"", 412, "", None),
        ("If-Modified-Since", "Sun, 09 Sep 2001 01:46:40 GMT", 304, "", None),
    ] {
        let answer = kit.send(&Request::get("/a.js").field("Accept-Encoding", "gzip").field(name, value));
        assert_eq!((summary(&answer), answer.field("content-encoding")), ((status, text), coding), "{name}: {value}");
        assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{name}: {value}");
    }
    let range = Request::get("/a.js").field("Accept-Encoding", "gzip").field("Range", "bytes=0-0");
    assert_eq!(kit.send(&range).field("content-range"), Some("bytes 0-0/14"));
    let several = Request::get("/a.js").field("Accept-Encoding", "gzip").field("Range", "bytes=0-0,2-2");
    assert!(kit.send(&several).text().contains("Content-Range: bytes 2-2/14"));
    let head = kit.send(&Request::new("HEAD", "/a.js").field("Accept-Encoding", "gzip"));
    assert_eq!((head.length, head.field("content-encoding")), (Some(14), Some("gzip")));
    let post = kit.send(&Request::new("POST", "/a.js").field("Accept-Encoding", "gzip"));
    assert_eq!((post.status, post.field("content-encoding"), post.field("vary")), (405, None, Some("Accept-Encoding")));
}

#[test]
fn changes_of_versions_are_noticed_within_a_second() {
    let directory = directory();
    let mut kit = directory.kit(all());
    let mut fetch_after = |change: &dyn Fn()| {
        change();
        kit.worker().advance(Duration::from_secs(1));
        kit.send(&Request::get("/b.txt").field("Accept-Encoding", "br, gzip")).text().to_owned()
    };
    assert_eq!(fetch_after(&|| {}), "GZIP");
    assert_eq!(fetch_after(&|| _ = directory.file("b.txt.br", "BR")), "BR");
    assert_eq!(fetch_after(&|| _ = directory.file("b.txt.br", "CHANGED")), "CHANGED");
    assert_eq!(fetch_after(&|| fs::remove_file(directory.0.join("b.txt.br")).unwrap()), "GZIP");
    assert_eq!(fetch_after(&|| fs::remove_file(directory.0.join("b.txt.gz")).unwrap()), "plain");
    assert_eq!(fetch_after(&|| fs::remove_file(directory.0.join("b.txt")).unwrap()), "");
}

// Caddy, `etag_file_extensions`: the first existing file of these next to the file, or next to its compressed variant,
// contains its tag; else the tag is built from date and length.
#[test]
fn tags_in_files() {
    let directory = directory();
    directory.file("a.js.md5", "\"of-md5\"\n").file("a.js.b3", "\"of-b3\"").file("a.js.gz.md5", "\"of-gzip\"\n");
    directory.file("b.txt.md5", "\n").file("only.txt.gz.md5/x", "a directory");
    let mut options = all();
    options["etag_file_extensions"] = json!([".sha256", ".b3", ".md5"]);
    let mut kit = directory.kit(options.clone());
    for (target, accept, want) in [
        ("/a.js", "", "\"of-b3\""),
        ("/a.js", "gzip", "\"of-gzip\""),
        ("/a.js", "br", "\"7lieexzx4kxs-6\""),
        ("/b.txt", "", "\"7lieexzx4kxs-5\""),
        ("/b.txt", "gzip", "\"7lieexzx4kxs-4\""),
    ] {
        let answer = kit.send(&Request::get(target).field("Accept-Encoding", accept));
        assert_eq!(answer.field("etag"), Some(want), "{target} {accept}");
        let again = Request::get(target).field("Accept-Encoding", accept).field("If-None-Match", want);
        assert_eq!(kit.send(&again).status, 304, "{target} {accept}");
    }
    // Caddy: a tag file that exists and cannot be read is the server's failure.
    assert_eq!(kit.send(&Request::get("/only.txt.gz")).status, 500);
    directory.file("a.js.b3", "\"other\"");
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(kit.send(&Request::get("/a.js")).field("etag"), Some("\"other\""));
    let set = json!({ "handler": "headers", "response": { "set": { "ETag": ["\"mine\""] } } });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [set, directory.handler(options)] }]));
    assert_eq!(kit.send(&Request::get("/a.js")).field("etag"), Some("\"mine\""));
}
