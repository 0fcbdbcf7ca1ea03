//! `precompress`: variants that the server makes itself.

use std::io::Read as _;

use causeway_pipeline::worker::WorkKind;

use super::*;

fn text(len: usize) -> String {
    "All human beings are born free and equal in dignity and rights. ".repeat(len / 64 + 1)[..len].to_owned()
}

fn all() -> Value {
    json!({ "precompress": ["br", "zstd", "gzip"] })
}

fn get(path: &str, accept: &str) -> Request {
    Request::get(path).field("Accept-Encoding", accept)
}

/// Sends the request until the variant that it prefers is made.
fn made(kit: &mut Kit, request: &Request) -> TestResponse {
    kit.send(request);
    kit.worker().drive_spawned();
    kit.send(request)
}

#[track_caller]
fn decoded(answer: &TestResponse) -> String {
    let (bytes, mut plain) = (&*answer.body, String::new());
    match answer.field("content-encoding") {
        None => plain = answer.text().to_owned(),
        Some("gzip") => drop(flate2::read::GzDecoder::new(bytes).read_to_string(&mut plain).unwrap()),
        Some("zstd") => plain = String::from_utf8(zstd::decode_all(bytes).unwrap()).unwrap(),
        Some("br") => drop(brotli::Decompressor::new(bytes, 4096).read_to_string(&mut plain).unwrap()),
        Some(other) => panic!("{other}"),
    }
    plain
}

// Until a variant is ready, the file itself is sent; then the one that the client prefers, with the fields of its own
// representation (RFC 9110 §8.8.3.3), and without a range unit.
#[test]
fn a_variant_is_created_once_and_then_reused() {
    let directory = Directory::new();
    directory.file("a.txt", text(5000));
    let mut kit = directory.kit(all());
    kit.worker().queue_jobs(10);
    let pending = kit.send_pending(&get("/a.txt", "gzip")).expect_err("the file is read");
    kit.worker().run_jobs();
    let first = pending.finish(&mut kit);
    assert_eq!((first.status, first.field("content-encoding"), first.body.len()), (200, None, 5000));
    for _ in 0..3 {
        let answer = kit.send(&get("/a.txt", "gzip"));
        assert_eq!((answer.field("content-encoding"), answer.body.len()), (None, 5000), "it is not ready yet");
    }
    let seen = kit.worker().work_seen();
    assert_eq!(seen.iter().filter(|work| work.kind() == WorkKind::Precompress).count(), 1, "one job for all requests");
    kit.worker().run_jobs();
    kit.worker().drive_spawned();
    for _ in 0..3 {
        let answer = kit.send(&get("/a.txt", "gzip"));
        assert!(answer.body.len() < 500);
        assert_eq!(
            (decoded(&answer), answer.field("content-encoding"), answer.field("accept-ranges")),
            (text(5000), Some("gzip"), None)
        );
        assert_eq!(
            (answer.field("vary"), answer.field("etag")),
            (Some("Accept-Encoding"), Some("\"7lieexzx4kxs-3uw-gzip\""))
        );
    }
    assert_eq!(kit.worker().jobs_seen(), seen.len(), "no further job");
    let plain = kit.send(&Request::get("/a.txt"));
    assert_eq!(
        (plain.body.len(), plain.field("etag"), plain.field("accept-ranges"), plain.field("vary")),
        (5000, Some("\"7lieexzx4kxs-3uw\""), Some("bytes"), Some("Accept-Encoding"))
    );
}

// RFC 9110 §12.5.3 as Caddy implements it; a coding that is not made yet is replaced by one that is.
#[test]
fn choice_of_the_variant() {
    let directory = directory_of_one();
    let mut kit = directory.kit(all());
    for coding in ["br", "zstd", "gzip"] {
        assert_eq!(made(&mut kit, &get("/a.txt", coding)).field("content-encoding"), Some(coding));
    }
    for (accept, want) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("gzip, br;q=0.5", Some("gzip")),
        ("gzip;q=0, br;q=0", None),
        ("*", None),
        ("identity", None),
        ("", None),
    ] {
        let answer = kit.send(&get("/a.txt", accept));
        assert_eq!((answer.field("content-encoding"), decoded(&answer)), (want, text(5000)), "{accept}");
    }
    // Another kit is another worker, with its own cache: br is not made there, and gzip is.
    let mut kit = directory.kit(all());
    made(&mut kit, &get("/a.txt", "gzip"));
    assert_eq!(kit.send(&get("/a.txt", "br, gzip")).field("content-encoding"), Some("gzip"), "br is under way");
    kit.worker().drive_spawned();
    assert_eq!(kit.send(&get("/a.txt", "br, gzip")).field("content-encoding"), Some("br"));
}

fn directory_of_one() -> Directory {
    let directory = Directory::new();
    directory.file("a.txt", text(5000));
    directory
}

// RFC 9110 §9.3.2 (HEAD), §13.1.2 (a tag of any variant of this version is current that the response could be), §14.2
// (ranges of the uncompressed file), §13.1.5.
#[test]
fn conditions_ranges_and_head() {
    let directory = directory_of_one();
    let mut kit = directory.kit(all());
    let whole = made(&mut kit, &get("/a.txt", "gzip"));
    let (etag, plain) = (whole.field("etag").unwrap().to_owned(), "\"7lieexzx4kxs-3uw\"");

    let head = kit.send(&Request::new("HEAD", "/a.txt").field("Accept-Encoding", "gzip"));
    for name in ["content-encoding", "etag", "content-type", "vary", "last-modified"] {
        assert_eq!(head.field(name), whole.field(name), "{name}");
    }
    let (br, several) = ("\"7lieexzx4kxs-3uw-br\"", format!("{plain}, \"7lieexzx4kxs-3uw-br\", {etag}"));
    for (accept, tag, status, sent) in [
        ("gzip", &*etag, 304, &*etag),
        ("gzip", plain, 304, plain),
        ("gzip", &format!("\"x\", W/{etag}"), 304, &etag),
        ("gzip", "*", 304, &etag),
        ("gzip", br, 200, &etag),
        ("gzip;q=0", &etag, 200, plain),
        // The variant of another coding is not made yet, but the client has it.
        ("gzip, br", br, 304, br),
        ("identity", &etag, 200, plain),
        ("identity", plain, 304, plain),
        ("identity", "*", 304, plain),
        // A cache with several variants should use the one that it would get.
        ("gzip", &several, 304, &etag),
        ("identity", &several, 304, plain),
    ] {
        let answer = kit.send(&get("/a.txt", accept).field("If-None-Match", tag));
        assert_eq!((answer.status, answer.field("etag")), (status, Some(sent)), "{tag} {accept}");
        assert_eq!(answer.body.is_empty(), status == 304, "{tag} {accept}");
    }
    for tag in ["\"7lieexzx4kxs-3uw-lzw\"", "\"other\"", "\"other-gzip\""] {
        assert_eq!(kit.send(&get("/a.txt", "gzip").field("If-None-Match", tag)).status, 200, "{tag}");
    }
    let part = kit.send(&get("/a.txt", "gzip").field("Range", "bytes=0-9"));
    assert_eq!(
        (part.status, part.text(), part.field("content-encoding"), part.field("etag")),
        (206, &text(5000)[..10], None, Some(plain))
    );
    let changed = kit.send(&get("/a.txt", "gzip").field("Range", "bytes=0-9").field("If-Range", &etag));
    assert_eq!((changed.status, changed.field("content-encoding"), changed.body.len()), (200, None, 5000));
    assert_eq!(kit.send(&get("/a.txt", "gzip").field("If-Match", &etag)).status, 200);
    assert_eq!(
        kit.send(&get("/a.txt", "gzip").field("If-Match", plain)).status,
        412,
        "the tag of another representation"
    );
}

// A changed file is another version: its variants are made again, and the old ones are not sent with its validators.
#[test]
fn a_changed_file() {
    let directory = directory_of_one();
    let mut kit = directory.kit(all());
    let old = made(&mut kit, &get("/a.txt", "gzip"));
    directory.file("a.txt", text(4000).to_uppercase());
    set_modified(&directory.0.join("a.txt"), 1_000_000_001);
    kit.worker().advance(Duration::from_secs(2));
    let answer = kit.send(&get("/a.txt", "gzip"));
    assert_eq!((answer.field("content-encoding"), decoded(&answer)), (None, text(4000).to_uppercase()));
    kit.worker().drive_spawned();
    let new = kit.send(&get("/a.txt", "gzip"));
    assert_eq!((new.field("content-encoding"), decoded(&new)), (Some("gzip"), text(4000).to_uppercase()));
    assert_ne!(new.field("etag"), old.field("etag"));
    // Unchanged: the entry is confirmed, and its variants remain.
    kit.worker().advance(Duration::from_secs(2));
    assert_eq!(kit.send(&get("/a.txt", "gzip")).field("content-encoding"), Some("gzip"));
}

// Files for which a variant is of no use, and responses to which an earlier handler gave other fields.
#[test]
fn some_files_remain_uncompressed() {
    let mut random = 3u64;
    let noise: String = (0..2000)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + (random >> 33) as u8 % 94)
        })
        .collect();
    let directory = Directory::new();
    directory
        .file("short.txt", text(512))
        .file("a.png", text(5000))
        .file("raw", text(5000))
        .file("long.txt", text(200_000));
    directory.file("a.txt", text(5000)).file("tiny.txt", "").file("noise.bin", &noise);
    let mut kit = directory.kit(all());
    for path in ["/short.txt", "/a.png", "/raw", "/long.txt", "/tiny.txt", "/noise.bin"] {
        assert_eq!(made(&mut kit, &get(path, "gzip")).field("content-encoding"), None, "{path}");
    }
    for (name, value) in [("Cache-Control", "no-transform"), ("Content-Encoding", "x"), ("Etag", "\"mine\"")] {
        let set = json!({ "handler": "headers", "response": { "set": { name: [value] } } });
        let mut kit = Kit::new(&registry(), &json!([{ "handle": [set, directory.handler(all())] }]));
        let answer = made(&mut kit, &get("/a.txt", "gzip"));
        assert_eq!(answer.body.len(), 5000, "{name}");
    }
    // A full queue: the file itself, and another try later.
    let mut kit = directory.kit(all());
    kit.send(&Request::get("/a.txt"));
    kit.worker().queue_jobs(0);
    assert_eq!(made(&mut kit, &get("/a.txt", "gzip")).field("content-encoding"), None);
    kit.worker().queue_jobs(1);
    kit.send(&get("/a.txt", "gzip"));
    kit.worker().run_jobs();
    kit.worker().drive_spawned();
    assert_eq!(kit.send(&get("/a.txt", "gzip")).field("content-encoding"), Some("gzip"));
}

// A preceding `encode` sends the variant unchanged, and the client's tag matches through both.
#[test]
fn together_with_encode_and_stored_variants() {
    let directory = directory_of_one();
    directory.file("b.txt", text(5000)).file("b.txt.gz", "GZIP");
    let encode = json!({ "handler": "encode", "encodings": { "gzip": {} } });
    let mut both = all();
    both["precompressed"] = json!({ "gzip": {} });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [encode, directory.handler(both)] }]));
    let answer = made(&mut kit, &get("/a.txt", "gzip"));
    assert_eq!(decoded(&answer), text(5000));
    assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()));
    let etag = answer.field("etag").unwrap().to_owned();
    assert_eq!((&*etag, answer.field("vary")), ("\"7lieexzx4kxs-3uw-gzip\"", Some("Accept-Encoding")));
    assert_eq!(kit.send(&get("/a.txt", "gzip").field("If-None-Match", &etag)).status, 304);
    assert_eq!(made(&mut kit, &get("/b.txt", "gzip")).text(), "GZIP", "the stored variant goes first");
}

#[test]
fn mistakes() {
    for (formats, want) in [
        (json!(["lzw"]), "precompress[0]: found 'lzw', expected one of br, gzip, zstd"),
        (json!(["br", "br"]), "precompress[1]: found 'br', expected each coding once"),
    ] {
        let handler = json!({ "handler": "file_server", "precompress": formats });
        let error = Kit::build(&registry(), &json!([{ "handle": [handler] }]), &json!([])).err().expect("a mistake");
        assert_eq!(error.to_string(), format!("routes[0].handle[0].{want}"));
    }
}
