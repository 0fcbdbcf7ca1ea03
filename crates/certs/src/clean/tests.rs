use std::fs::File;

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::FileStorage;
use crate::tests::{DAY, Directory, now};

/// Stores a self-signed certificate, as a server would.
fn store(storage: &FileStorage, name: &str, not_after: SystemTime) -> String {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    (params.not_before, params.not_after) = ((not_after - 90 * DAY).into(), not_after.into());
    let key = KeyPair::generate().unwrap();
    let safe = crate::safe_key(name);
    let stem = format!("certificates/ca.example/{safe}/{safe}");
    let chain = params.self_signed(&key).unwrap().pem();
    for (extension, text) in [("crt", &*chain), ("key", &key.serialize_pem()), ("json", "{}")] {
        storage.store(&format!("{stem}.{extension}"), text.as_bytes(), Durability::Unflushed).unwrap();
    }
    stem
}

fn set_modified(directory: &Directory, key: &str, at: SystemTime) {
    File::options().write(true).open(directory.path(key)).unwrap().set_modified(at).unwrap();
}

// Caddy's `cleanStorageUnits` with certmagic's `CleanStorage`: two weeks after its end, a certificate is removed with
// its key and its record.
#[test]
fn expired_files_are_removed() {
    let directory = Directory::new();
    let storage = FileStorage::new(directory.path(""));
    let old = [("*.old.example", 15 * DAY), ("192.0.2.1", 300 * DAY), ("edge.example", 14 * DAY)];
    let old = old.map(|(name, age)| store(&storage, name, now() - age));
    let kept = [("new.example", now() + 30 * DAY), ("expired.example", now() - 13 * DAY)];
    let kept = kept.map(|(name, not_after)| store(&storage, name, not_after));
    let tokens = ["acme/ca/challenge_tokens/old.json", "acme/ca/challenge_tokens/open.json", "acme/ca/users/u/u.json"];
    for (at, age) in tokens.iter().zip([2 * DAY, DAY / 2, 900 * DAY]) {
        storage.store(at, b"{}", Durability::Unflushed).unwrap();
        set_modified(&directory, at, now() - age);
    }
    storage.store("certificates/ca.example/broken/broken.crt", b"nonsense", Durability::Unflushed).unwrap();
    // CertMagic's `deleteOldOCSPStaples` removes other values, too.
    storage.store("ocsp/a.example-1", b"nonsense", Durability::Unflushed).unwrap();
    assert_eq!(clean(&storage, DAY, now()).unwrap(), Cleaned::Removed { certificates: 3, challenges: 1, responses: 1 });
    for stem in &old {
        for extension in ["crt", "key", "json"] {
            assert_eq!(storage.load(&format!("{stem}.{extension}")).unwrap(), None, "{stem}.{extension}");
        }
        assert!(!directory.path(stem).parent().unwrap().exists(), "{stem}");
    }
    for stem in &kept {
        for extension in ["crt", "key", "json"] {
            assert!(storage.load(&format!("{stem}.{extension}")).unwrap().is_some(), "{stem}.{extension}");
        }
    }
    assert_eq!(tokens.map(|at| storage.load(at).unwrap().is_some()), [false, true, true]);
    assert!(storage.load("certificates/ca.example/broken/broken.crt").unwrap().is_some());
}

// certmagic's `last_clean.json`: processes with one storage clean it once in an interval.
#[test]
fn once_in_an_interval() {
    let directory = Directory::new();
    let storage = FileStorage::new(directory.path(""));
    let none = Cleaned::Removed { certificates: 0, challenges: 0, responses: 0 };
    assert_eq!(clean(&storage, DAY, now()).unwrap(), none);
    let text = String::from_utf8(storage.load(LAST_CLEAN).unwrap().unwrap()).unwrap();
    assert_eq!(text, r#"{"tls":{"timestamp":"2026-01-15T00:00:00Z"}}"#);
    for (later, want) in [(DAY / 4, Cleaned::NotDue(3 * DAY / 4)), (DAY, none)] {
        assert_eq!(clean(&storage, DAY, now() + later).unwrap(), want);
    }
    // Caddy's record, with the id of its process, in another time zone; and clocks that are wrong.
    for (record, want) in [
        (r#"{"tls":{"timestamp":"2026-01-15T06:00:00.123456789+06:00","instance_id":"x"}}"#, Cleaned::NotDue(DAY)),
        (r#"{"tls":{"timestamp":"2026-01-15T12:00:00Z"}}"#, Cleaned::NotDue(3 * DAY / 2)),
        (r#"{"tls":{"timestamp":"2036-01-15T00:00:00Z"}}"#, none),
        (r#"{"tls":{"timestamp":"2006-01-15T00:00:00Z"}}"#, none),
        ("{}", none),
        ("nonsense", none),
    ] {
        storage.store(LAST_CLEAN, record.as_bytes(), Durability::Unflushed).unwrap();
        let cleaned = match clean(&storage, DAY, now()).unwrap() {
            Cleaned::NotDue(left) => Cleaned::NotDue(Duration::from_secs(left.as_secs())),
            cleaned => cleaned,
        };
        assert_eq!(cleaned, want, "{record}");
    }
}

// Two processes at once: one of them cleans.
#[test]
fn one_at_a_time() {
    let directory = Directory::new();
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| clean(&FileStorage::new(directory.path("")), DAY, now()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Cleaned::Removed { .. })).count(), 1, "{outcomes:?}");
}
