use super::*;
use crate::tests::{DAY, certificate};

fn found(store: &Store, name: Option<&str>, tags: &[&str]) -> Option<String> {
    let tags: Vec<_> = tags.iter().map(|&tag| tag.to_owned()).collect();
    store.find(name, &tags).map(|found| found.tags()[0].clone())
}

// certmagic's `getCertificateFromCache`: the very name, then `*` for its first labels; addresses as they are.
#[test]
fn by_name() {
    let now = SystemTime::now();
    let of = |names: &[&str], id: &str| Arc::new(certificate(names, &[id], now - DAY, now + DAY));
    let store = Store::default();
    assert_eq!(found(&store, Some("a.example"), &[]), None);
    store.replace([
        of(&["a.example", "b.example"], "1"),
        of(&["*.example"], "2"),
        of(&["*.a.example"], "3"),
        of(&["127.0.0.1", "::1"], "4"),
        of(&["*.*.deep.example"], "5"),
        of(&["xn--bcher-kva.example"], "6"),
    ]);
    for (name, want) in [
        ("a.example", Some("1")),
        ("B.Example", Some("1")),
        ("c.example", Some("2")),
        ("x.a.example", Some("3")),
        ("x.y.a.example", None),
        ("example", None),
        ("127.0.0.1", Some("4")),
        ("[::1]", Some("4")),
        ("0:0:0:0:0:0:0:1", Some("4")),
        ("127.0.0.2", None),
        ("1.2.deep.example", Some("5")),
        ("xn--bcher-kva.example", Some("6")),
        ("", None),
        (".", None),
        ("...", None),
    ] {
        assert_eq!(found(&store, Some(name), &[]).as_deref(), want, "{name}");
    }
    assert_eq!(found(&store, None, &[]), None);
}

// caddytls/certselection.go: the certificate must have a tag; where none with the name has, any with the tag will do.
#[test]
fn by_tag() {
    let now = SystemTime::now();
    let of = |names: &[&str], tags: &[&str]| Arc::new(certificate(names, tags, now - DAY, now + DAY));
    let store = Store::default();
    store.replace([
        of(&["a.example"], &["1", "red"]),
        of(&["a.example"], &["2", "blue"]),
        of(&["b.example"], &["3", "red"]),
    ]);
    for (name, tags, want) in [
        (Some("a.example"), &["red"][..], Some("1")),
        (Some("a.example"), &["blue"], Some("2")),
        (Some("b.example"), &["green", "red"], Some("3")),
        (Some("c.example"), &["blue"], Some("2")),
        (None, &["blue"], Some("2")),
        (Some("a.example"), &["green"], None),
    ] {
        assert_eq!(found(&store, name, tags).as_deref(), want, "{name:?} {tags:?}");
    }
}

#[test]
fn the_newest_that_is_valid() {
    let now = SystemTime::now();
    let of = |id: &str, from, to| Arc::new(certificate(&["a.example"], &[id], from, to));
    let (past, old, new, future) = (
        of("past", now - 9 * DAY, now - 8 * DAY),
        of("old", now - 7 * DAY, now + DAY),
        of("new", now - 6 * DAY, now + DAY),
        of("future", now + DAY, now + 2 * DAY),
    );
    for (there, want) in [
        (vec![&past, &old, &new, &future], "new"),
        (vec![&future, &old, &past], "old"),
        (vec![&past], "past"),
        (vec![&past, &future], "future"),
    ] {
        let store = Store::default();
        store.replace(there.into_iter().cloned());
        assert_eq!(found(&store, Some("a.example"), &[]).as_deref(), Some(want));
    }
}
