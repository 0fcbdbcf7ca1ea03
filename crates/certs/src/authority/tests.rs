use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{ServerName, UnixTime};

use std::sync::Arc;

use super::*;
use crate::FileStorage;
use crate::tests::{DAY, Directory, now};

/// Verifies a chain as a client does that connects to `name` at time `at` and trusts `root`.
fn verify(
    root: &CertificateDer<'static>,
    chain: &[CertificateDer<'static>],
    name: &str,
    at: SystemTime,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(aws_lc_rs::default_provider()));
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let verdict = verifier.build().unwrap().verify_server_cert(&chain[0], &chain[1..], &name, &[], at);
    verdict.map(drop).map_err(|error| error.to_string())
}

fn open(directory: &Directory, spec: AuthoritySpec, now: SystemTime) -> Result<Authority, String> {
    let storage: SharedStorage = Arc::new(FileStorage::new(directory.path("data")));
    Authority::open(spec, &storage, now).map_err(|error| error.to_string())
}

fn local() -> AuthoritySpec {
    AuthoritySpec::new("local")
}

// Caddy's documentation of `pki`: a root of ten years, an intermediate of seven days, leaves of twelve hours that
// clients accept.
#[test]
fn a_chain_is_valid_for_its_name_only() {
    let directory = Directory::new();
    let authority = open(&directory, local(), now()).unwrap();
    let key = KeyPair::generate().unwrap();
    let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
    for (name, other) in
        [("localhost", "example.com"), ("*.a.example", "a.example"), ("127.0.0.1", "127.0.0.2"), ("::1", "::2")]
    {
        for by in [SignedBy::Intermediate, SignedBy::Root] {
            let chain = authority.sign(&[name.to_owned()], &key, hours(12), by, now()).unwrap();
            let requested = name.replace('*', "b");
            assert_eq!(verify(&authority.current.load().root, &chain, &requested, now()), Ok(()), "{name} {by:?}");
            assert!(verify(&authority.current.load().root, &chain, other, now()).is_err(), "{name} {by:?}");
            assert!(
                verify(&authority.current.load().root, &chain, &requested, now() + hours(12) + Duration::from_secs(1))
                    .is_err(),
                "{name}"
            );
            assert!(
                verify(&authority.current.load().root, &chain, &requested, now() - hours(1)).is_err(),
                "{name}: not valid yet"
            );
        }
    }
    let (from, to) = read_validity(&authority.current.load().root, "").unwrap();
    assert_eq!((from, to.duration_since(from).unwrap()), (now(), 3600 * DAY));
    assert_eq!(authority.current.load().intermediate.not_after.duration_since(now()).unwrap(), 7 * DAY);
    assert_eq!(authority.common_names(now()).0, "Causeway Local Authority - 2026 ECC Root");
    assert!(
        authority.sign(&["a b".to_owned()], &key, hours(1), SignedBy::Intermediate, now()).is_ok(),
        "validating names is the task of the configuration crate"
    );
    assert!(authority.sign(&["é".to_owned()], &key, hours(1), SignedBy::Intermediate, now()).is_err());
}

// caddytls/internalissuer.go: a leaf does not outlive its issuer.
#[test]
fn a_leaf_ends_with_its_issuer() {
    let directory = Directory::new();
    let authority = open(&directory, local(), now()).unwrap();
    let key = KeyPair::generate().unwrap();
    let chain = authority.sign(&["localhost".to_owned()], &key, 30 * DAY, SignedBy::Intermediate, now()).unwrap();
    assert_eq!(read_validity(&chain[0], "").unwrap().1, authority.current.load().intermediate.not_after);
}

// caddypki/maintain.go: an intermediate is renewed when no more than a fifth of its lifetime is left.
#[test]
fn an_intermediate_is_renewed_in_time() {
    let directory = Directory::new();
    let authority = open(&directory, local(), now()).unwrap();
    let (root, first) = (authority.root_pem(), authority.intermediate_pem());
    assert!(!authority.renew(now() + 5 * DAY).unwrap());
    assert_eq!(authority.intermediate_pem(), first);
    assert!(authority.renew(now() + 6 * DAY).unwrap());
    assert_ne!(authority.intermediate_pem(), first);
    assert_eq!(authority.root_pem(), root);
    // Another process, or a restart, loads this intermediate from storage.
    let again = open(&directory, local(), now() + 6 * DAY).unwrap();
    assert_eq!(again.intermediate_pem(), authority.intermediate_pem());
    let late = open(&directory, local(), now() + 60 * DAY).unwrap();
    assert_ne!(late.intermediate_pem(), authority.intermediate_pem());
    assert_eq!(late.root_pem(), root);
}

// caddypki/ca.go: certificates in storage are used; a root that cannot be read is an error and never replaced.
#[test]
fn broken_storage() {
    let directory = Directory::new();
    let first = open(&directory, local(), now()).unwrap();
    let at = |file: &str| directory.path(&format!("data/pki/authorities/local/{file}"));
    // A malformed intermediate is replaced.
    std::fs::write(at("intermediate.crt"), "no certificate").unwrap();
    let second = open(&directory, local(), now()).unwrap();
    assert_eq!(second.root_pem(), first.root_pem());
    assert_ne!(second.intermediate_pem(), first.intermediate_pem());
    std::fs::write(at("intermediate.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert_ne!(open(&directory, local(), now()).unwrap().intermediate_pem(), second.intermediate_pem());
    // An intermediate of another root is replaced.
    let other = Directory::new();
    let foreign = open(&other, local(), now()).unwrap();
    std::fs::write(at("intermediate.crt"), foreign.intermediate_pem()).unwrap();
    std::fs::copy(other.path("data/pki/authorities/local/intermediate.key"), at("intermediate.key")).unwrap();
    let third = open(&directory, local(), now()).unwrap();
    assert_ne!(third.intermediate_pem(), foreign.intermediate_pem());
    // A root without its key is not replaced.
    std::fs::remove_file(at("root.key")).unwrap();
    assert!(open(&directory, local(), now()).is_ok(), "a fresh intermediate needs no root key");
    let error = open(&directory, local(), now() + 7 * DAY).err().unwrap();
    assert_eq!(error, "certificate authority 'local': its root has no private key, expected one to sign with");
    std::fs::write(at("root.crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let error = open(&directory, local(), now()).err().unwrap();
    assert!(
        error.starts_with(&format!("{}: found a certificate that cannot be read: ", at("root.crt").display())),
        "{error}"
    );
    std::fs::write(at("root.crt"), "").unwrap();
    let error = open(&directory, local(), now()).err().unwrap();
    assert!(error.starts_with(&format!("{}: found nothing: it is empty, ", at("root.crt").display())), "{error}");
}

// caddypki/ca.go: Caddy refuses to load a root with the key of another one, as a restore of some files leaves it
// ("provided PrivateKey doesn't match parent's PublicKey").
#[test]
fn a_root_with_another_key_is_refused() {
    let directory = Directory::new();
    open(&directory, local(), now()).unwrap();
    let at = |file: &str| directory.path(&format!("data/pki/authorities/local/{file}"));
    std::fs::write(at("root.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let want = format!(
        "{}: found another key than that of the certificate in {}",
        at("root.key").display(),
        at("root.crt").display()
    );
    for now in [now(), now() + 8 * DAY] {
        assert_eq!(open(&directory, local(), now).err().as_deref(), Some(&*want));
    }
}

// caddypki/maintain.go, `renewCertsForCA`: the root and its key are loaded together, and signed with from then on. Two
// machines have one storage, and the root is made anew by the other one, or restored without its key.
#[test]
fn a_root_that_is_replaced_meanwhile() {
    let directory = Directory::new();
    let authority = open(&directory, local(), now()).unwrap();
    let (root, intermediate) = (authority.root_pem(), authority.intermediate_pem());
    let at = |file: &str| directory.path(&format!("data/pki/authorities/local/{file}"));
    let old_key = std::fs::read(at("root.key")).unwrap();
    std::fs::remove_file(at("root.crt")).unwrap();
    let error = authority.renew(now() + 6 * DAY).unwrap_err().to_string();
    assert_eq!(error, format!("{}: cannot be read: the storage has lost the root", at("root.crt").display()));
    let other = open(&directory, local(), now() + DAY).unwrap();
    assert_ne!(other.root_pem(), root);
    let new_key = std::fs::read(at("root.key")).unwrap();
    let stored = || std::fs::read_to_string(at("intermediate.crt")).unwrap();
    let stored_before = stored();
    std::fs::write(at("root.key"), old_key).unwrap();
    for _ in 0..2 {
        let error = authority.renew(now() + 6 * DAY + DAY / 2).unwrap_err().to_string();
        assert!(error.contains("root.key: found another key than that of"), "{error}");
        assert_eq!((authority.root_pem(), authority.intermediate_pem()), (root.clone(), intermediate.clone()));
        assert_eq!(stored(), stored_before);
    }
    std::fs::write(at("root.key"), new_key).unwrap();
    assert!(authority.renew(now() + 6 * DAY + DAY / 2).unwrap());
    assert_eq!(authority.root_pem(), other.root_pem());
    let key = KeyPair::generate().unwrap();
    let at = now() + 6 * DAY + DAY / 2;
    let chain = authority.sign(&["localhost".to_owned()], &key, DAY, SignedBy::Intermediate, at).unwrap();
    assert_eq!(verify(&other.current.load().root, &chain, "localhost", at), Ok(()));
}

// As above, for the operator's own files, which Caddy reads again too; and for a root that signs itself: the next check
// replaces the intermediate of the former root.
#[test]
fn the_operator_replaces_the_root() {
    let (directory, roots) = (Directory::new(), [Directory::new(), Directory::new()]);
    let made: Vec<_> = roots.iter().map(|root| open(root, local(), now()).unwrap()).collect();
    let copy = |from: usize, file: &str| {
        let at = roots[from].path(&format!("data/pki/authorities/local/{file}"));
        std::fs::copy(at, directory.path(file)).unwrap();
    };
    let files = PairFiles { certificate: directory.path("root.crt"), key: Some(directory.path("root.key")) };
    let spec = || AuthoritySpec { root: Some(files.clone()), ..local() };
    copy(0, "root.crt");
    copy(0, "root.key");
    let [renewed, signing] = [(); 2].map(|()| open(&directory, spec(), now()).unwrap());
    let key = KeyPair::generate().unwrap();
    let sign = |by, at| signing.sign(&["localhost".to_owned()], &key, DAY, by, at);
    copy(1, "root.key");
    for at in [now(), now() + 6 * DAY] {
        let error = sign(SignedBy::Root, at).unwrap_err().to_string();
        assert!(error.contains("root.key: found another key than that of"), "{error}");
    }
    assert!(renewed.renew(now() + 6 * DAY).is_err());
    copy(1, "root.crt");
    let new_root = &made[1].current.load().root;
    let chain = sign(SignedBy::Root, now()).unwrap();
    assert_eq!(verify(new_root, &chain, "localhost", now()), Ok(()));
    assert_eq!(signing.root_pem(), made[1].root_pem());
    assert!(signing.renew(now()).unwrap() && !signing.renew(now()).unwrap());
    let chain = sign(SignedBy::Intermediate, now()).unwrap();
    assert_eq!(verify(new_root, &chain, "localhost", now()), Ok(()));
    assert!(renewed.renew(now() + 6 * DAY).unwrap());
    assert_eq!(renewed.root_pem(), made[1].root_pem());
}

// Caddy's JSON of an authority: `root` and `intermediate` from files, common names with placeholders, a bounded
// lifetime.
#[test]
fn options_of_an_authority() {
    let (directory, other) = (Directory::new(), Directory::new());
    let theirs = open(&other, local(), now()).unwrap();
    let file = |file: &str| other.path(&format!("data/pki/authorities/local/{file}"));
    let root = PairFiles { certificate: file("root.crt"), key: Some(file("root.key")) };
    let spec = AuthoritySpec { root: Some(root.clone()), name: "Mine".into(), ..AuthoritySpec::new("my ca") };
    let mine = open(&directory, spec.clone(), now()).unwrap();
    assert_eq!((mine.root_pem(), mine.root_location()), (theirs.root_pem(), file("root.crt").to_str().unwrap()));
    assert_eq!(mine.common_names(now()).1, "Mine - ECC Intermediate");
    assert!(directory.path("data/pki/authorities/my_ca/intermediate.crt").exists());
    assert!(!directory.path("data/pki/authorities/my_ca/root.crt").exists());

    let intermediate = PairFiles { certificate: file("intermediate.crt"), key: Some(file("intermediate.key")) };
    let given =
        AuthoritySpec { intermediate: Some(intermediate), root: Some(PairFiles { key: None, ..root }), ..spec.clone() };
    let given = open(&directory, given, now()).unwrap();
    assert_eq!(given.intermediate_pem(), theirs.intermediate_pem());
    assert!(!given.renew(now() + 60 * DAY).unwrap(), "the operator's intermediate is not renewed");

    let wrong = PairFiles { certificate: file("intermediate.crt"), key: Some(file("root.key")) };
    let error = open(&directory, AuthoritySpec { intermediate: Some(wrong), ..spec.clone() }, now()).err().unwrap();
    let (certificate, key) = (file("intermediate.crt"), file("root.key"));
    let want =
        format!("{}: found another key than that of the certificate in {}", key.display(), certificate.display());
    assert_eq!(error, want);

    let long = AuthoritySpec { intermediate_lifetime: 3600 * DAY, ..AuthoritySpec::new("long") };
    let error = open(&directory, long, now()).err().unwrap();
    assert!(
        error.contains("intermediate certificate lifetime must be less than actual root certificate lifetime, expected an intermediate_lifetime below"),
        "{error}"
    );
}
