use super::*;
use crate::tests::{DAY, certificate};

fn found(store: &Store, name: Option<&str>, tags: &[&str]) -> Option<String> {
    let tags: Vec<_> = tags.iter().map(|&tag| tag.to_owned()).collect();
    store.find(name, &tags).map(|found| found.tags()[0].clone())
}

// certmagic's `getCertificateFromCache`: the exact name, then `*` for its first labels; IP addresses match exactly.
#[test]
fn by_name() {
    let now = SystemTime::now();
    let of = |names: &[&str], id: &str| Arc::new(certificate(names, &[id], now - DAY, now + DAY));
    assert_eq!(found(&Store::new([]), Some("a.example"), &[]), None);
    let store = Store::new([
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

// caddytls/certselection.go: the certificate must have one of the tags; if none with the name has, any with the tag
// matches.
#[test]
fn by_tag() {
    let now = SystemTime::now();
    let of = |names: &[&str], tags: &[&str]| Arc::new(certificate(names, tags, now - DAY, now + DAY));
    let store = Store::new([
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
        let store = Store::new(there.into_iter().cloned());
        assert_eq!(found(&store, Some("a.example"), &[]).as_deref(), Some(want));
    }
}

// A renewal: the new certificate replaces the old one under its names, and only there.
#[test]
fn a_certificate_is_swapped() {
    let now = SystemTime::now();
    let of = |names: &[&str], from| Arc::new(certificate(names, &[], from, now + DAY));
    let (old, new) = (of(&["a.example", "b.example"], now - 2 * DAY), of(&["a.example", "c.example"], now - DAY));
    let (other, newest) = (of(&["a.example"], now - 3 * DAY), of(&["a.example"], now));
    let store = Store::new([other.clone(), old.clone()]);
    let is = |name: &str, want: Option<&Arc<Certificate>>| {
        let found = store.find(Some(name), &[]);
        assert!(found.as_ref().map(Arc::as_ptr) == want.map(Arc::as_ptr), "{name}");
    };
    is("b.example", Some(&old));
    store.swap(Some(&old), Some(&new));
    is("a.example", Some(&new));
    is("b.example", None);
    is("c.example", Some(&new));
    // Again, as when a reload finds the same certificate in storage.
    store.swap(Some(&new), Some(&new));
    store.swap(None, Some(&newest));
    is("a.example", Some(&newest));
    store.swap(Some(&newest), None);
    store.swap(Some(&new), None);
    is("a.example", Some(&other));
    is("c.example", None);
}
