//! RFC 9110 §13 (conditional requests) and §14 (range requests) on a file of ten bytes.

use causeway_pipeline::Worker as _;

use super::*;

const DATE: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const EARLIER: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
const LATER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";
/// Base 36 of 10^18 and of 10.
const TAG: &str = "\"7lieexzx4kxs-a\"";

fn ten() -> Directory {
    let directory = Directory::new();
    directory.file("ten.txt", "0123456789");
    directory
}

#[track_caller]
fn check(method: &str, cases: &[(&[(&str, &str)], u16)]) {
    let directory = ten();
    let mut kit = directory.kit(json!({}));
    assert_eq!(kit.send(&Request::get("/ten.txt")).field("etag"), Some(TAG));
    for (fields, want) in cases {
        let request =
            fields.iter().fold(Request::new(method, "/ten.txt"), |request, (name, value)| request.field(name, value));
        let answer = kit.send(&request);
        assert_eq!(answer.status, *want, "{method} {fields:?}");
        if *want == 304 {
            // RFC 9110 §15.4.5: a 304 has the cache-relevant fields of the 200.
            assert_eq!((answer.field("etag"), answer.field("content-type")), (Some(TAG), None));
            assert_eq!((answer.field("last-modified"), answer.field("accept-ranges")), (None, None));
            assert!(answer.body.is_empty());
        }
    }
}

// §13.1.1: If-Match compares strongly; `*` matches any representation; else 412.
#[test]
fn rfc9110_13_1_1_if_match() {
    let weak = format!("W/{TAG}");
    let list = format!("\"x\", {TAG}");
    check(
        "GET",
        &[
            (&[("If-Match", TAG)], 200),
            (&[("If-Match", "*")], 200),
            (&[("If-Match", &list)], 200),
            (&[("If-Match", "\"x\""), ("If-Match", TAG)], 200),
            (&[("If-Match", "\"x\"")], 412),
            (&[("If-Match", &weak)], 412),
            (&[("If-Match", "")], 412),
            (&[("If-Match", "\"7lieexzx4kxs-a")], 412),
        ],
    );
}

// §13.1.2: If-None-Match compares weakly; a match is 304 for GET and HEAD.
#[test]
fn rfc9110_13_1_2_if_none_match() {
    let weak = format!("W/{TAG}");
    let list = format!("\"a,b\", {TAG},");
    for method in ["GET", "HEAD"] {
        check(
            method,
            &[
                (&[("If-None-Match", TAG)], 304),
                (&[("If-None-Match", &weak)], 304),
                (&[("If-None-Match", &list)], 304),
                (&[("If-None-Match", "*")], 304),
                (&[("If-None-Match", "\"x\"")], 200),
                (&[("If-None-Match", "7lieexzx4kxs-a")], 200),
                (&[("If-None-Match", "")], 200),
            ],
        );
    }
}

// §13.1.3 and §13.1.4: a recipient ignores an invalid date.
#[test]
fn rfc9110_13_1_3_and_4_dates() {
    check(
        "GET",
        &[
            (&[("If-Modified-Since", DATE)], 304),
            (&[("If-Modified-Since", LATER)], 304),
            (&[("If-Modified-Since", EARLIER)], 200),
            (&[("If-Modified-Since", "Sunday, 09-Sep-01 01:46:40 GMT")], 304),
            (&[("If-Modified-Since", "Sun Sep  9 01:46:40 2001")], 304),
            (&[("If-Modified-Since", "yesterday")], 200),
            (&[("If-Unmodified-Since", DATE)], 200),
            (&[("If-Unmodified-Since", EARLIER)], 412),
            (&[("If-Unmodified-Since", "yesterday")], 200),
        ],
    );
}

// §13.2.2: If-Match before If-Unmodified-Since, then If-None-Match before If-Modified-Since; the first failure decides.
#[test]
fn rfc9110_13_2_2_precedence() {
    check(
        "GET",
        &[
            (&[("If-Match", TAG), ("If-Unmodified-Since", EARLIER)], 200),
            (&[("If-None-Match", "\"x\""), ("If-Modified-Since", LATER)], 200),
            (&[("If-None-Match", TAG), ("If-Modified-Since", EARLIER)], 304),
            (&[("If-Match", "\"x\""), ("If-None-Match", TAG)], 412),
            (&[("If-Match", TAG), ("If-None-Match", TAG)], 304),
            (&[("If-Unmodified-Since", EARLIER), ("If-None-Match", TAG)], 412),
            (&[("If-None-Match", TAG), ("Range", "bytes=0-1")], 304),
            (&[("If-Match", "\"x\""), ("Range", "bytes=0-1")], 412),
            (&[("If-Match", TAG), ("Range", "bytes=0-1")], 206),
        ],
    );
}

// §13.1.5: a strong tag or the exact date; otherwise the range is ignored.
#[test]
fn rfc9110_13_1_5_if_range() {
    let weak = format!("W/{TAG}");
    let range = ("Range", "bytes=0-1");
    check(
        "GET",
        &[
            (&[range, ("If-Range", TAG)], 206),
            (&[range, ("If-Range", &weak)], 200),
            (&[range, ("If-Range", "\"x\"")], 200),
            (&[range, ("If-Range", DATE)], 206),
            (&[range, ("If-Range", LATER)], 200),
            (&[range, ("If-Range", EARLIER)], 200),
            (&[range, ("If-Range", "x")], 200),
        ],
    );
}

// §13.1.5, §8.8.2.2: a file that was changed within the last second may change again with the same date.
#[test]
fn rfc9110_8_8_2_2_weak_dates() {
    let directory = ten();
    let now = causeway_testkit::FakeWorker::new().wall();
    for (age, status) in [(0, 200), (1, 206)] {
        let modified = now - Duration::from_secs(age);
        set_modified(&directory.0.join("ten.txt"), crate::conditional::since_1970(modified));
        let request = Request::get("/ten.txt").field("Range", "bytes=0-1");
        let answer = directory.kit(json!({})).send(&request.field("If-Range", httpdate::fmt_http_date(modified)));
        assert_eq!(answer.status, status, "{age} s");
    }
}

// §14.2: a range applies to GET only; §15.3.7.1: one part; §15.5.17: no satisfiable range.
#[test]
fn rfc9110_14_2_single_ranges() {
    let directory = ten();
    let mut kit = directory.kit(json!({}));
    for (range, status, body, content_range) in [
        ("bytes=0-3", 206, "0123", Some("bytes 0-3/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=4-", 206, "456789", Some("bytes 4-9/10")),
        ("bytes=0-99", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=x", 416, "", Some("bytes */10")),
        ("lines=1-2", 200, "0123456789", None),
    ] {
        let answer = kit.send(&Request::get("/ten.txt").field("Range", range));
        assert_eq!((summary(&answer), answer.field("content-range")), ((status, body), content_range), "{range}");
        // Placeholders and the access log contain the length.
        let length = body.len().to_string();
        assert_eq!(answer.field("content-length"), (status != 416).then_some(&*length), "{range}");
        let kind = (status != 416).then_some("text/plain; charset=utf-8");
        let ranges = (status != 416).then_some("bytes");
        assert_eq!((answer.field("accept-ranges"), answer.field("content-type")), (ranges, kind));
        // A 416 does not describe the content.
        assert_eq!(
            (answer.field("etag").is_some(), answer.field("last-modified").is_some()),
            (status != 416, status != 416)
        );
    }
    let lifetime = json!({ "handler": "headers", "response": { "set": { "Cache-Control": ["max-age=60"] } } });
    let routes = json!([{ "handle": [lifetime, { "handler": "file_server", "root": directory.0 }] }]);
    let answer = Kit::new(&registry(), &routes).send(&Request::get("/ten.txt").field("Range", "bytes=10-"));
    assert_eq!((answer.status, answer.field("cache-control")), (416, None));
    let answer = kit.send(&Request::new("HEAD", "/ten.txt").field("Range", "bytes=0-3"));
    assert_eq!((answer.status, answer.length, answer.field("content-length")), (200, Some(10), Some("10")));
}

// §14.6 and §15.3.7.2: each part has its type and range; the response itself has no Content-Range.
#[test]
fn rfc9110_14_6_multiple_ranges() {
    let directory = ten();
    let mut kit = directory.kit(json!({}));
    let answer = kit.send(&Request::get("/ten.txt").field("Range", "bytes=8-, 0-1"));
    assert_eq!((answer.status, answer.field("content-range")), (206, None));
    let kind = answer.field("content-type").expect("a type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect(kind);
    let part = |range: &str, content: &str| {
        format!(
            "--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{content}\r\n"
        )
    };
    assert_eq!(answer.text(), format!("{}{}--{boundary}--\r\n", part("8-9", "89"), part("0-1", "01")));
    assert_eq!(answer.length, Some(answer.body.len() as u64));
    assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()));
    let greedy = kit.send(&Request::get("/ten.txt").field("Range", "bytes=0-,0-,0-"));
    assert_eq!(summary(&greedy), (200, "0123456789"));
}
