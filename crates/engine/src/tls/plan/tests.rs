use super::*;

/// Caddy's matcher `sni`, which is CertMagic's `MatchWildcard`: each star matches one of the leading labels.
#[test]
fn patterns_cover_names() {
    for (name, pattern, want) in [
        ("a.test", "a.test", true),
        ("A.test", "a.TEST", true),
        ("a.test", "b.test", false),
        ("a.test", "*.test", true),
        ("a.b.test", "*.test", false),
        ("a.b.test", "*.*.test", true),
        ("a.b.test", "a.*.test", false),
        ("test", "*.test", false),
        (".test", "*.test", false),
        ("test", "*", true),
        ("", "*", false),
        ("", "a.test", false),
    ] {
        assert_eq!(is_covered(name, pattern), want, "{name} {pattern}");
    }
}
