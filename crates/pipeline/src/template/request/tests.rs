use super::target::range_in;
use super::*;

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
        ("/a/b.c.gz", TargetPart::File, "b.c.gz"),
        ("/a/b.c.gz", TargetPart::Directory, "/a/"),
        ("/a/b.c.gz", TargetPart::FileBase, "b.c"),
        ("/a/b.c.gz", TargetPart::FileExtension, ".gz"),
        ("/a.b/c", TargetPart::FileExtension, ""),
        ("/a.b/c", TargetPart::FileBase, "c"),
        ("/a/", TargetPart::File, ""),
        ("/a.b/", TargetPart::FileBase, "a.b"),
        ("/a//", TargetPart::FileBase, "a"),
        ("/", TargetPart::FileBase, "/"),
        ("//", TargetPart::FileBase, "/"),
        ("/..", TargetPart::FileBase, "."),
        ("/a/b", TargetPart::Segment(0), "a"),
        ("/a/b", TargetPart::Segment(1), "b"),
        ("/a/b", TargetPart::Segment(2), ""),
        ("/a/", TargetPart::Segment(1), ""),
        ("*", TargetPart::Segment(0), "*"),
        ("", TargetPart::File, ""),
    ] {
        assert_eq!(&path[range_in(path.as_bytes(), part)], want, "{path} {part:?}");
    }
}
