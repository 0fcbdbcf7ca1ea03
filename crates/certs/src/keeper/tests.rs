use super::*;
use crate::tests::{DAY, Folder, now};

fn wanted(folder: &Folder, managed: &[Managed]) -> Wanted {
    Wanted {
        storage: FileStorage::new(folder.path("data")),
        authorities: vec![AuthoritySpec::new("local")],
        loaded: Vec::new(),
        managed: managed.to_vec(),
        look_every: Duration::from_secs(600),
    }
}

fn open(folder: &Folder, managed: &[Managed], before: Option<&Keeper>, now: SystemTime) -> Keeper {
    Keeper::open(wanted(folder, managed), before, now).unwrap_or_else(|error| panic!("{error}"))
}

fn leaf(keeper: &Keeper, name: &str) -> Arc<Certificate> {
    keeper.store().find(Some(name), &[]).unwrap_or_else(|| panic!("no certificate for {name}"))
}

fn local(name: &str) -> Managed {
    Managed::new(name, "local")
}

// Caddy's documentation: what is in storage and fresh is used again, by reloads and by the next start.
#[test]
fn obtained_once() {
    let folder = Folder::new();
    let names = [local("localhost"), local("*.a.localhost"), local("127.0.0.1")];
    let first = open(&folder, &names, None, now());
    assert_eq!(leaf(&first, "localhost").names(), ["localhost"]);
    assert_eq!(leaf(&first, "x.a.localhost").names(), ["*.a.localhost"]);
    assert_eq!(leaf(&first, "127.0.0.1").names(), ["127.0.0.1"]);
    for file in
        ["localhost/localhost.crt", "localhost/localhost.key", "wildcard_.a.localhost/wildcard_.a.localhost.json"]
    {
        assert!(folder.path(&format!("data/certificates/local/{file}")).exists(), "{file}");
    }
    let later = now() + Duration::from_secs(60 * 60);
    let reloaded = open(&folder, &names[..1], Some(&first), later);
    assert!(Arc::ptr_eq(&leaf(&reloaded, "localhost"), &leaf(&first, "localhost")));
    assert!(reloaded.store().find(Some("127.0.0.1"), &[]).is_none());
    let restarted = open(&folder, &names, None, later);
    assert_eq!(leaf(&restarted, "localhost").signed().cert, leaf(&first, "localhost").signed().cert);
}

// certmagic's renewal window: a third of the lifetime; the policy's `renewal_window_ratio` says otherwise.
#[test]
fn renewed_when_a_third_is_left() {
    let folder = Folder::new();
    let hour = Duration::from_secs(60 * 60);
    let early = Managed { renewal_ratio: 0.5, reuse_key: true, ..local("b.localhost") };
    let keeper = open(&folder, &[local("a.localhost"), early], None, now());
    let (a, b) = (leaf(&keeper, "a.localhost"), leaf(&keeper, "b.localhost"));
    assert_eq!(keeper.renew(now()), Duration::from_secs(600), "looked at every ten minutes at least");
    assert_eq!(keeper.renew(now() + 6 * hour - Duration::from_secs(5)), Duration::from_secs(5));
    assert!(Arc::ptr_eq(&leaf(&keeper, "b.localhost"), &b));
    keeper.renew(now() + 7 * hour);
    assert!(Arc::ptr_eq(&leaf(&keeper, "a.localhost"), &a));
    let renewed = leaf(&keeper, "b.localhost");
    assert_eq!(renewed.not_before(), now() + 7 * hour);
    let key = |certificate: &Certificate| certificate.signed().key.public_key().map(|key| key.to_vec());
    assert_eq!(key(&renewed), key(&b), "its key is kept, as it was asked for");
    keeper.renew(now() + 9 * hour);
    let renewed = leaf(&keeper, "a.localhost");
    assert_eq!(renewed.not_before(), now() + 9 * hour);
    assert_ne!(key(&renewed), key(&a));
    // After a week asleep everything is out of date, the intermediate too.
    keeper.renew(now() + 8 * DAY);
    assert_eq!(leaf(&keeper, "a.localhost").not_before(), now() + 8 * DAY);
    assert_eq!(leaf(&keeper, "a.localhost").not_after(), now() + 8 * DAY + 12 * hour);
}

#[test]
fn what_is_broken_in_storage_is_replaced() {
    let folder = Folder::new();
    let names = [local("localhost")];
    let at = |file: &str| folder.path(&format!("data/certificates/local/localhost/localhost.{file}"));
    let mut before = open(&folder, &names, None, now());
    for (file, text) in [
        ("crt", "nonsense"),
        ("crt", ""),
        ("key", "nonsense"),
        ("key", &*generate(KeyKind::P256).unwrap().serialize_pem()),
    ] {
        std::fs::write(at(file), text).unwrap();
        let next = open(&folder, &names, None, now());
        assert_ne!(leaf(&next, "localhost").signed().cert, leaf(&before, "localhost").signed().cert, "{file} {text}");
        before = next;
    }
    // A leaf of an authority that is no more.
    std::fs::remove_dir_all(folder.path("data/pki")).unwrap();
    let next = open(&folder, &names, Some(&before), now());
    assert_ne!(leaf(&next, "localhost").signed().cert, leaf(&before, "localhost").signed().cert);
}

// Caddy's `key_type`.
#[test]
fn kinds_of_keys() {
    let folder = Folder::new();
    let kinds = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa2048];
    let managed: Vec<_> =
        kinds.iter().map(|&key| Managed { key, ..local(&format!("{key:?}.localhost").to_lowercase()) }).collect();
    let keeper = open(&folder, &managed, None, now());
    for managed in &managed {
        assert_eq!(leaf(&keeper, &managed.name).names(), std::slice::from_ref(&managed.name));
    }
}

#[test]
fn a_renewal_that_fails_keeps_what_there_is() {
    let folder = Folder::new();
    let keeper = open(&folder, &[local("localhost")], None, now());
    let before = leaf(&keeper, "localhost");
    std::fs::remove_dir_all(folder.path("data")).unwrap();
    std::fs::write(folder.path("data"), "in the way").unwrap();
    assert_eq!(keeper.renew(now() + Duration::from_secs(11 * 60 * 60)), AGAIN);
    assert!(Arc::ptr_eq(&leaf(&keeper, "localhost"), &before));
    std::fs::remove_file(folder.path("data")).unwrap();
    keeper.renew(now() + Duration::from_secs(11 * 60 * 60));
    assert!(!Arc::ptr_eq(&leaf(&keeper, "localhost"), &before));
}
