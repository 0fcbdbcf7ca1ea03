use std::time::Duration;

use super::target::range_in;
use super::*;

// Go, package time, func (Duration) String.
#[test]
fn durations_as_go_writes_them() {
    for (nanoseconds, want) in [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (1_000_000_000, "1s"),
        (3_300_000_000, "3.3s"),
        (60_000_000_000, "1m0s"),
        (245_000_000_000, "4m5s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (28_800_000_000_001, "8h0m0.000000001s"),
    ] {
        let mut out = Vec::new();
        go_duration(Duration::from_nanos(nanoseconds), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), want);
    }
}

#[test]
fn values_of_a_query() {
    for (query, key, want) in [
        ("a=1&b=2&a=3", "a", "1,3"),
        ("a=x+y%2Bz", "a", "x y+z"),
        ("%61=1", "a", "1"),
        ("a", "a", ""),
        ("a=1;b=2&a=3", "a", "3"),
        ("a=%zz&a=2", "a", "2"),
        ("aa=1", "a", ""),
        ("a+b=1", "a b", "1"),
        ("&&=x&", "", "x"),
    ] {
        let mut out = b"<".to_vec();
        query_values(query, key.as_bytes(), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("<{want}"), "{query}");
    }
}

#[test]
fn parts_of_a_path() {
    for (path, part, want) in [
        ("/a/b.c.gz", Part::File, "b.c.gz"),
        ("/a/b.c.gz", Part::Folder, "/a/"),
        ("/a/b.c.gz", Part::FileBase, "b.c"),
        ("/a/b.c.gz", Part::FileExtension, ".gz"),
        ("/a.b/c", Part::FileExtension, ""),
        ("/a.b/c", Part::FileBase, "c"),
        ("/a/", Part::File, ""),
        ("/a.b/", Part::FileBase, "a.b"),
        ("/a//", Part::FileBase, "a"),
        ("/", Part::FileBase, "/"),
        ("//", Part::FileBase, "/"),
        ("/..", Part::FileBase, "."),
        ("/a/b", Part::Segment(0), "a"),
        ("/a/b", Part::Segment(1), "b"),
        ("/a/b", Part::Segment(2), ""),
        ("/a/", Part::Segment(1), ""),
        ("*", Part::Segment(0), "*"),
        ("", Part::File, ""),
    ] {
        assert_eq!(&path[range_in(path.as_bytes(), part)], want, "{path} {part:?}");
    }
}
