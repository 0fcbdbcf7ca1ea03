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
        // RFC 4291 §2.2: the same address in several texts.
        ("2001:db8::7", "2001:DB8:0::7", true),
        ("2001:db8::7", "2001:db8::8", false),
        ("192.0.2.7", "192.0.2.7", true),
    ] {
        assert_eq!(is_covered(name, pattern), want, "{name} {pattern}");
    }
}
