use rcgen::{
    CertificateParams, DnType, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    SerialNumber, SignatureAlgorithm,
};
use rustls::SignatureAlgorithm as KeyAlgorithm;

use super::*;
use crate::tests::{DAY, certificate, certificate_with};

fn found(store: &Store, name: Option<&str>, tags: &[&str]) -> Option<String> {
    let tags: Vec<_> = tags.iter().map(|&tag| tag.to_owned()).collect();
    store.find(name, &tags, &|_| true).map(|found| found.tags()[0].clone())
}

// certmagic's `getCertificateFromCache`: the exact name, then `*` for its first labels; IP addresses match exactly.
#[test]
fn by_name() {
    let now = SystemTime::now();
    let of = |names: &[&str], id: &str| Arc::new(certificate(names, &[id], now - DAY, now + DAY));
    assert_eq!(found(&Store::new([], Vec::new()), Some("a.example"), &[]), None);
    let store = Store::new(
        [
            of(&["a.example", "b.example"], "1"),
            of(&["*.example"], "2"),
            of(&["*.a.example"], "3"),
            of(&["127.0.0.1", "::1"], "4"),
            of(&["*.*.deep.example"], "5"),
            of(&["xn--bcher-kva.example"], "6"),
        ],
        Vec::new(),
    );
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
    let store = Store::new(
        [of(&["a.example"], &["1", "red"]), of(&["a.example"], &["2", "blue"]), of(&["b.example"], &["3", "red"])],
        Vec::new(),
    );
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

/// A certificate for `a.example` with the tag `id`.
fn signed(id: &str, algorithm: &'static SignatureAlgorithm, serial: &[u8], organization: &str) -> Arc<Certificate> {
    let now = SystemTime::now();
    let params = |params: &mut CertificateParams| {
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.distinguished_name.push(DnType::OrganizationName, organization);
    };
    Arc::new(certificate_with(&["a.example"], &[id], now - DAY, now + DAY, algorithm, params))
}

/// A selection that matches all certificates.
fn unconditional(tag: &str) -> CertificateSelection {
    CertificateSelection {
        tag: tag.into(),
        any_tag: Vec::new(),
        all_tags: Vec::new(),
        serial_numbers: Vec::new(),
        organizations: Vec::new(),
        key_algorithm: None,
    }
}

// caddytls/certselection.go: all conditions must hold; of a list of serial numbers, organizations or `any_tag` one.
#[test]
fn by_conditions() {
    let certificates = [
        signed("1", &PKCS_ECDSA_P256_SHA256, &[5], "Alpha"),
        signed("2", &PKCS_ECDSA_P384_SHA384, &[0x00, 0x80, 0x00], "Beta"),
        signed("3", &PKCS_RSA_SHA256, &[1; 20], "Gamma"),
        signed("4", &PKCS_ED25519, &[0], "Gamma"),
    ];
    let all = unconditional("\0");
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let (serials, organizations) = (
        |serials: &[&[u8]]| CertificateSelection {
            serial_numbers: serials.iter().map(|serial| serial.to_vec()).collect(),
            ..all.clone()
        },
        |names: &[&str]| CertificateSelection { organizations: texts(names), ..all.clone() },
    );
    let keys = |algorithm| CertificateSelection { key_algorithm: Some(algorithm), ..all.clone() };
    let tags = |any: &[&str], every: &[&str]| CertificateSelection {
        any_tag: texts(any),
        all_tags: texts(every),
        ..all.clone()
    };
    for (selection, want) in [
        (all.clone(), "1234"),
        (serials(&[&[5]]), "1"),
        (serials(&[&[0x80, 0x00], &[1; 20], &[9]]), "23"),
        (serials(&[&[]]), "4"),
        (serials(&[&[9]]), ""),
        (organizations(&["Alpha"]), "1"),
        (organizations(&["Beta", "Gamma"]), "234"),
        (organizations(&["beta"]), ""),
        (keys(KeyAlgorithm::ECDSA), "12"),
        (keys(KeyAlgorithm::RSA), "3"),
        (keys(KeyAlgorithm::DSA), ""),
        (tags(&["1", "3"], &[]), "13"),
        (tags(&[], &["1", "3"]), ""),
        (tags(&["1", "2"], &["2"]), "2"),
        (CertificateSelection { key_algorithm: Some(KeyAlgorithm::ECDSA), ..organizations(&["Alpha"]) }, "1"),
    ] {
        let admitted = certificates.iter().filter(|certificate| selection.admits(certificate));
        assert_eq!(
            admitted.map(|certificate| certificate.tags()[0].as_str()).collect::<String>(),
            want,
            "{selection:?}"
        );
    }
}

// A selection holds for renewed certificates too, with their name and, if no certificate has the name, without it.
#[test]
fn by_conditions_after_a_renewal() {
    let now = SystemTime::now();
    let of = |name: &str, algorithm, from| Arc::new(certificate_with(&[name], &[], from, now + DAY, algorithm, |_| ()));
    let selection = |tag, algorithm| CertificateSelection { key_algorithm: Some(algorithm), ..unconditional(tag) };
    let selections = vec![selection("\0rsa", KeyAlgorithm::RSA), selection("\0ecdsa", KeyAlgorithm::ECDSA)];
    let (rsa, ecdsa) =
        (of("a.example", &PKCS_RSA_SHA256, now - 2 * DAY), of("a.example", &PKCS_ECDSA_P256_SHA256, now - DAY));
    let store = Store::new([rsa.clone(), ecdsa.clone()], selections);
    let is = |name: Option<&str>, tag: &str, want: Option<&Arc<Certificate>>| {
        let found = store.find(name, &[tag.to_owned()], &|_| true);
        assert!(found.as_ref().map(Arc::as_ptr) == want.map(Arc::as_ptr), "{name:?} {tag}");
    };
    is(Some("a.example"), "\0rsa", Some(&rsa));
    is(Some("a.example"), "\0ecdsa", Some(&ecdsa));
    is(Some("b.example"), "\0rsa", Some(&rsa));
    is(None, "\0ecdsa", Some(&ecdsa));
    let renewed = of("a.example", &PKCS_RSA_SHA256, now);
    store.swap(Some(&rsa), Some(&renewed));
    for name in [Some("a.example"), Some("b.example"), None] {
        is(name, "\0rsa", Some(&renewed));
    }
    is(Some("a.example"), "\0ecdsa", Some(&ecdsa));
    store.swap(Some(&renewed), None);
    is(Some("a.example"), "\0rsa", None);
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
        let store = Store::new(there.into_iter().cloned(), Vec::new());
        assert_eq!(found(&store, Some("a.example"), &[]).as_deref(), Some(want));
    }
}

// CertMagic: of several certificates the client gets one that it can verify, if there is one.
#[test]
fn the_newest_that_the_client_can_verify() {
    let now = SystemTime::now();
    let of = |algorithm, from| Arc::new(certificate_with(&["a.example"], &[], from, now + DAY, algorithm, |_| ()));
    let (rsa, ecdsa) = (of(&PKCS_RSA_SHA256, now - 2 * DAY), of(&PKCS_ECDSA_P256_SHA256, now - DAY));
    let is = |there: &[&Arc<Certificate>], algorithm, want: &Arc<Certificate>| {
        let store = Store::new(there.iter().copied().cloned(), Vec::new());
        let is_usable = |key: &CertifiedKey| key.key.algorithm() == algorithm;
        let found = store.find(Some("a.example"), &[], &is_usable);
        assert!(found.is_some_and(|found| Arc::ptr_eq(&found, want)), "{algorithm:?}");
    };
    is(&[&rsa, &ecdsa], KeyAlgorithm::RSA, &rsa);
    is(&[&rsa, &ecdsa], KeyAlgorithm::ECDSA, &ecdsa);
    is(&[&rsa, &ecdsa], KeyAlgorithm::ED25519, &ecdsa);
    is(&[&ecdsa], KeyAlgorithm::RSA, &ecdsa);
}

// A renewal: the new certificate replaces the old one under its names, and only there.
#[test]
fn a_certificate_is_swapped() {
    let now = SystemTime::now();
    let of = |names: &[&str], from| Arc::new(certificate(names, &[], from, now + DAY));
    let (old, new) = (of(&["a.example", "b.example"], now - 2 * DAY), of(&["a.example", "c.example"], now - DAY));
    let (other, newest) = (of(&["a.example"], now - 3 * DAY), of(&["a.example"], now));
    let store = Store::new([other.clone(), old.clone()], Vec::new());
    let is = |name: &str, want: Option<&Arc<Certificate>>| {
        let found = store.find(Some(name), &[], &|_| true);
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
