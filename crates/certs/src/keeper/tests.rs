use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::tests::{DAY, Directory, now};
use crate::{FileStorage, Storage};

fn wanted(directory: &Directory, specs: &[LocalCertificateSpec]) -> CertificatePlan {
    CertificatePlan {
        storage: Arc::new(FileStorage::new(directory.path("data"))),
        authorities: vec![AuthoritySpec::new("local")],
        loaded: Vec::new(),
        selections: Vec::new(),
        loaded_ocsp: OcspPolicy::default(),
        local: specs.to_vec(),
        public: Vec::new(),
        renewal_check_interval: Duration::from_secs(600),
    }
}

fn open(directory: &Directory, specs: &[LocalCertificateSpec], before: Option<&Keeper>, now: SystemTime) -> Keeper {
    Keeper::open(wanted(directory, specs), before, now).unwrap_or_else(|error| panic!("{error}"))
}

fn leaf(keeper: &Keeper, name: &str) -> Arc<Certificate> {
    keeper.store().find(Some(name), &[], &|_| true).unwrap_or_else(|| panic!("no certificate for {name}"))
}

fn local(name: &str) -> LocalCertificateSpec {
    LocalCertificateSpec::new(name, "local")
}

// Caddy's documentation: a fresh certificate in storage is used again, by reloads and by the next start.
#[test]
fn obtained_once() {
    let directory = Directory::new();
    let names = [local("localhost"), local("*.a.localhost"), local("127.0.0.1")];
    let first = open(&directory, &names, None, now());
    assert_eq!(leaf(&first, "localhost").names(), ["localhost"]);
    assert_eq!(leaf(&first, "x.a.localhost").names(), ["*.a.localhost"]);
    assert_eq!(leaf(&first, "127.0.0.1").names(), ["127.0.0.1"]);
    for file in
        ["localhost/localhost.crt", "localhost/localhost.key", "wildcard_.a.localhost/wildcard_.a.localhost.json"]
    {
        assert!(directory.path(&format!("data/certificates/local/{file}")).exists(), "{file}");
    }
    let later = now() + Duration::from_secs(60 * 60);
    let reloaded = open(&directory, &names[..1], Some(&first), later);
    assert!(Arc::ptr_eq(&leaf(&reloaded, "localhost"), &leaf(&first, "localhost")));
    assert!(reloaded.store().find(Some("127.0.0.1"), &[], &|_| true).is_none());
    let restarted = open(&directory, &names, None, later);
    assert_eq!(leaf(&restarted, "localhost").signed().cert, leaf(&first, "localhost").signed().cert);
}

// certmagic's renewal window: a third of the lifetime, unless the policy sets `renewal_window_ratio`.
#[test]
fn renewed_when_a_third_is_left() {
    let directory = Directory::new();
    let hour = Duration::from_secs(60 * 60);
    let early = LocalCertificateSpec { renewal_ratio: 0.5, reuse_key: true, ..local("b.localhost") };
    let keeper = open(&directory, &[local("a.localhost"), early], None, now());
    let (a, b) = (leaf(&keeper, "a.localhost"), leaf(&keeper, "b.localhost"));
    assert_eq!(keeper.renew(now()), Duration::from_secs(600), "the next check comes after the interval at the latest");
    assert_eq!(keeper.renew(now() + 6 * hour - Duration::from_secs(5)), Duration::from_secs(5));
    assert!(Arc::ptr_eq(&leaf(&keeper, "b.localhost"), &b));
    keeper.renew(now() + 7 * hour);
    assert!(Arc::ptr_eq(&leaf(&keeper, "a.localhost"), &a));
    let renewed = leaf(&keeper, "b.localhost");
    assert_eq!(renewed.not_before(), now() + 7 * hour);
    let key = |certificate: &Certificate| certificate.signed().key.public_key().map(|key| key.to_vec());
    assert_eq!(key(&renewed), key(&b), "`reuse_key` keeps the key");
    keeper.renew(now() + 9 * hour);
    let renewed = leaf(&keeper, "a.localhost");
    assert_eq!(renewed.not_before(), now() + 9 * hour);
    assert_ne!(key(&renewed), key(&a));
    // A machine that was suspended for a week: everything has expired, including the intermediate.
    keeper.renew(now() + 8 * DAY);
    assert_eq!(leaf(&keeper, "a.localhost").not_before(), now() + 8 * DAY);
    assert_eq!(leaf(&keeper, "a.localhost").not_after(), now() + 8 * DAY + 12 * hour);
}

/// A storage that is read-only: its certificates are used, and new ones of its authority are only in memory.
#[test]
fn a_storage_that_cannot_be_written() {
    let directory = Directory::new();
    let first = open(&directory, &[local("a.localhost")], None, now());
    // A directory of locks where none can be made, since permissions do not bind the superuser.
    let locks = directory.path("data/locks");
    std::fs::remove_dir_all(&locks).unwrap();
    std::os::unix::fs::symlink("/proc/nonexistent/locks", &locks).unwrap();
    let names = [local("a.localhost"), local("b.localhost")];
    let second = open(&directory, &names, None, now());
    assert_eq!(leaf(&second, "a.localhost").signed().cert, leaf(&first, "a.localhost").signed().cert);
    assert_eq!(leaf(&second, "b.localhost").names(), ["b.localhost"]);
    assert!(!directory.path("data/certificates/local/b.localhost").exists());
    // All of it is due, the intermediate too.
    second.renew(now() + 8 * DAY);
    assert_eq!(leaf(&second, "a.localhost").not_before(), now() + 8 * DAY);
    // Without a root there is nothing that clients could trust.
    std::fs::remove_file(directory.path("data/pki/authorities/local/root.crt")).unwrap();
    let error = Keeper::open(wanted(&directory, &names), None, now()).map(drop).unwrap_err().to_string();
    assert!(error.contains("/locks: cannot be written: "), "{error}");
}

// Caddy signs a local certificate at load within milliseconds, also while orders are in progress. Here the name's lock
// is held for minutes: by an order of this server's former configuration, or by another server with the storage.
#[test]
fn a_name_whose_lock_is_held_elsewhere() {
    let directory = Directory::new();
    let names = ["a.localhost", "b.localhost", "c.localhost", "d.localhost"].map(local);
    let first = open(&directory, &names[..1], None, now());
    let storage = FileStorage::new(directory.path("data"));
    let held: Vec<_> = names.iter().map(|name| storage.lock(&format!("issue_cert_{}", name.name)).unwrap()).collect();
    let second = open(&directory, &names[..3], None, now());
    assert_eq!(leaf(&second, "a.localhost").signed().cert, leaf(&first, "a.localhost").signed().cert);
    second.add_local(names[3].clone(), now()).unwrap();
    let at = |name: &str| directory.path(&format!("data/certificates/local/{name}"));
    for name in &names[1..] {
        assert_eq!(leaf(&second, &name.name).names(), std::slice::from_ref(&name.name));
        assert!(!at(&name.name).exists());
    }
    drop(held);
    second.renew(now() + Duration::from_secs(9 * 60 * 60));
    assert!(names[1..].iter().all(|name| at(&name.name).exists()));
}

// One load waits for all locks of its names together, a lock that becomes free included. In a renewal, those waits do
// not shorten the wait for a name that fails without its lock.
#[test]
fn waits_for_locks_are_deducted() {
    let directory = Directory::new();
    let inner = FileStorage::new(directory.path("data"));
    let storage = Arc::new(WatchedStorage { inner, at_lock: OnceLock::new() });
    let pause = Duration::from_millis(2);
    let timeouts: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let taken = Arc::clone(&timeouts);
    let watch = move |timeout| {
        taken.lock().unwrap().push(timeout);
        std::thread::sleep(pause);
    };
    assert!(storage.at_lock.set(Box::new(watch)).is_ok());
    let hour = Duration::from_secs(60 * 60);
    let served_for_longer = LocalCertificateSpec { lifetime: 24 * hour, renewal_ratio: 0.75, ..local("c.localhost") };
    let specs = vec![local("a.localhost"), local("b.localhost"), served_for_longer];
    let plan = CertificatePlan { storage: storage.clone(), ..wanted(&directory, &specs) };
    let keeper = Keeper::open(plan, None, now()).unwrap();
    let seen = std::mem::take(&mut *timeouts.lock().unwrap());
    assert_eq!(seen[0], LOAD_LOCK_TIMEOUT);
    assert!(seen[1] <= seen[0] - pause && seen[2] <= seen[1] - pause, "{seen:?}");
    // Only the first two certificates are about to end.
    keeper.renew(now() + 12 * hour - Duration::from_secs(60));
    let seen = std::mem::take(&mut *timeouts.lock().unwrap());
    assert_eq!((seen[0], seen[2]), (LOCK_TIMEOUT, LOCK_TIMEOUT));
    assert!(seen[1] <= seen[0] - pause, "{seen:?}");
}

#[test]
fn damaged_files_in_storage_are_replaced() {
    let directory = Directory::new();
    let names = [local("localhost")];
    let at = |file: &str| directory.path(&format!("data/certificates/local/localhost/localhost.{file}"));
    let mut before = open(&directory, &names, None, now());
    for (file, text) in [
        ("crt", "nonsense"),
        ("crt", ""),
        ("key", "nonsense"),
        ("key", &*generate_key(KeyKind::P256).unwrap().serialize_pem()),
    ] {
        std::fs::write(at(file), text).unwrap();
        let next = open(&directory, &names, None, now());
        assert_ne!(leaf(&next, "localhost").signed().cert, leaf(&before, "localhost").signed().cert, "{file} {text}");
        before = next;
    }
    // A leaf whose authority was deleted.
    std::fs::remove_dir_all(directory.path("data/pki")).unwrap();
    let next = open(&directory, &names, Some(&before), now());
    assert_ne!(leaf(&next, "localhost").signed().cert, leaf(&before, "localhost").signed().cert);
}

// Caddy's `key_type`.
#[test]
fn kinds_of_keys() {
    let directory = Directory::new();
    let kinds = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa2048];
    let specs: Vec<_> = kinds
        .iter()
        .map(|&key| LocalCertificateSpec { key, ..local(&format!("{key:?}.localhost").to_lowercase()) })
        .collect();
    let keeper = open(&directory, &specs, None, now());
    for spec in &specs {
        assert_eq!(leaf(&keeper, &spec.name).names(), std::slice::from_ref(&spec.name));
    }
}

#[test]
fn a_failed_renewal_keeps_the_certificate() {
    let directory = Directory::new();
    let keeper = open(&directory, &[local("localhost")], None, now());
    let before = leaf(&keeper, "localhost");
    std::fs::remove_dir_all(directory.path("data")).unwrap();
    std::fs::write(directory.path("data"), "in the way").unwrap();
    let failure = || keeper.names()[0].failure.clone();
    assert_eq!(failure(), None);
    let at = now() + Duration::from_secs(11 * 60 * 60);
    for failures in 1..3 {
        assert_eq!(keeper.renew(at), RENEWAL_RETRY_PAUSE);
        let failure = failure().unwrap();
        assert_eq!((failure.failures, failure.retry_at), (failures, at + RENEWAL_RETRY_PAUSE));
        assert!(failure.error.starts_with(directory.path("data").to_str().unwrap()), "{}", failure.error);
    }
    assert!(Arc::ptr_eq(&leaf(&keeper, "localhost"), &before));
    std::fs::remove_file(directory.path("data")).unwrap();
    keeper.renew(at);
    assert_eq!(failure(), None);
    assert!(!Arc::ptr_eq(&leaf(&keeper, "localhost"), &before));
}

/// A directory that calls a function with the timeout where a name's lock is awaited.
struct WatchedStorage {
    inner: FileStorage,
    at_lock: OnceLock<Box<dyn Fn(Duration) + Send + Sync>>,
}

impl std::fmt::Debug for WatchedStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Storage for WatchedStorage {
    fn identity(&self) -> String {
        self.inner.identity()
    }
    fn location(&self, key: &str) -> String {
        self.inner.location(key)
    }
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.inner.load(key)
    }
    fn modified(&self, key: &str) -> Result<Option<SystemTime>, Error> {
        self.inner.modified(key)
    }
    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.inner.store(key, value, durability)
    }
    fn delete(&self, key: &str) -> Result<(), Error> {
        self.inner.delete(key)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.inner.list(prefix)
    }
    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        if let Some(watch) = self.at_lock.get().filter(|_| name.starts_with("issue_cert_")) {
            watch(timeout);
        }
        self.inner.lock_within(name, timeout)
    }
}

// Another process may hold a name's lock for 30 s. Meanwhile a reload looks at the authorities on the main thread, and
// others sign and add names. Here all three run inside the wait, on the renewing thread: a lock held by the renewal
// would hang the test.
#[test]
fn a_renewal_that_waits_blocks_nothing_else() {
    let directory = Directory::new();
    let inner = FileStorage::new(directory.path("data"));
    let storage = Arc::new(WatchedStorage { inner, at_lock: OnceLock::new() });
    let plan = CertificatePlan { storage: storage.clone(), ..wanted(&directory, &[local("a.localhost")]) };
    let keeper = Arc::new(Keeper::open(plan, None, now()).unwrap());
    let (looks, at_work) = (Arc::new(AtomicUsize::new(0)), Arc::downgrade(&keeper));
    let counted = Arc::clone(&looks);
    let watch = move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let keeper = at_work.upgrade().unwrap();
        assert_eq!(keeper.authorities(|authority| authority.spec().id.clone()), ["local"]);
        let (names, key) = (["x.localhost".to_owned()], generate_key(KeyKind::P256).unwrap());
        let signed = keeper.sign("local", &names, &key, DAY, SignedBy::Intermediate, now());
        assert!(signed.unwrap().is_some());
        keeper.add_local(local("b.localhost"), now()).unwrap();
    };
    assert!(storage.at_lock.set(Box::new(watch)).is_ok());
    let later = now() + Duration::from_secs(9 * 60 * 60);
    keeper.renew(later);
    assert_eq!(leaf(&keeper, "a.localhost").not_before(), later);
    assert!(looks.load(Ordering::Relaxed) > 1, "the renewal, and the name that was added");
}

/// A pair of PEM texts as a public authority issues it.
fn issued(names: &[&str], from: SystemTime, days: u32) -> (String, String) {
    let mut params =
        rcgen::CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
    (params.not_before, params.not_after) = (from.into(), (from + DAY * days).into());
    let key = generate_key(KeyKind::P256).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

const NAME: &str = "a.example";

/// Opens a keeper for [`NAME`] with these authorities.
fn open_public(directory: &Directory, authorities: &[&str], before: Option<&Keeper>) -> Keeper {
    let authorities = authorities.iter().map(|&authority| authority.to_owned()).collect();
    let public = PublicCertificateSpec {
        name: NAME.to_owned(),
        authorities,
        renewal_ratio: 1.0 / 3.0,
        ocsp: OcspPolicy::default(),
        storage: None,
        on_demand: false,
    };
    let plan = CertificatePlan { public: vec![public], authorities: Vec::new(), ..wanted(directory, &[]) };
    Keeper::open(plan, before, now()).unwrap_or_else(|error| panic!("{error}"))
}

/// Puts a certificate as its holder of the lock.
fn put(keeper: &Keeper, directory: &Directory, authority: &str, chain: &str, key: &str) -> Result<(), Error> {
    let lock = FileStorage::new(directory.path("data")).lock("issue_cert_a.example").unwrap();
    keeper.install_public(NAME, authority, chain, key, &lock)
}

fn served(keeper: &Keeper) -> Option<Arc<Certificate>> {
    keeper.store().find(Some(NAME), &[], &|_| true)
}

// A public name has no certificate until the caller puts one, which the next start finds in Caddy's layout.
#[test]
fn a_public_certificate_is_stored_and_loaded() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    assert!(served(&keeper).is_none() && keeper.public_renew_at(NAME).is_none());
    assert!(!keeper.reload_public(NAME, now()).unwrap());
    let (chain, key) = issued(&[NAME], now(), 90);
    put(&keeper, &directory, "one", &chain, &key).unwrap();
    assert_eq!(keeper.public_renew_at(NAME), Some(now() + 60 * DAY));
    assert_eq!(keeper.public_renew_at("b.example"), None);
    for file in ["crt", "key", "json"] {
        assert!(directory.path(&format!("data/certificates/one/{NAME}/{NAME}.{file}")).exists(), "{file}");
    }
    let restarted = open_public(&directory, &["one"], None);
    assert_eq!(served(&restarted).unwrap().signed().cert, served(&keeper).unwrap().signed().cert);
    let reloaded = open_public(&directory, &["one"], Some(&keeper));
    assert!(Arc::ptr_eq(&served(&reloaded).unwrap(), &served(&keeper).unwrap()));
}

// Caddy's `storage` of an authority and of an automation policy: each has its own, and a certificate does not carry
// over to another one.
#[test]
fn separate_storages() {
    let directory = Directory::new();
    let storage = |name: &str| Some(Arc::new(FileStorage::new(directory.path(name))) as SharedStorage);
    let plan = |leaves: &str| CertificatePlan {
        authorities: vec![AuthoritySpec { storage: storage("pki"), ..AuthoritySpec::new("local") }],
        ..wanted(
            &directory,
            &[local("a.localhost"), LocalCertificateSpec { storage: storage(leaves), ..local("b.localhost") }],
        )
    };
    let first = Keeper::open(plan("leaves"), None, now()).unwrap();
    for file in [
        "pki/pki/authorities/local/root.crt",
        "data/certificates/local/a.localhost/a.localhost.crt",
        "leaves/certificates/local/b.localhost/b.localhost.crt",
    ] {
        assert!(directory.path(file).exists(), "{file}");
    }
    for nothing in ["data/pki", "data/certificates/local/b.localhost", "leaves/pki"] {
        assert!(!directory.path(nothing).exists(), "{nothing}");
    }
    let same = |keeper: &Keeper, name: &str| leaf(keeper, name).signed().cert == leaf(&first, name).signed().cert;
    let restarted = Keeper::open(plan("leaves"), None, now()).unwrap();
    assert!(same(&restarted, "a.localhost") && same(&restarted, "b.localhost"));
    let moved = Keeper::open(plan("elsewhere"), Some(&first), now()).unwrap();
    assert!(same(&moved, "a.localhost") && !same(&moved, "b.localhost"));
    assert!(directory.path("elsewhere/certificates/local/b.localhost/b.localhost.crt").exists());
    moved.renew(now() + DAY);
    assert!(!same(&moved, "a.localhost"));
    assert!(!directory.path("data/certificates/local/b.localhost").exists(), "a renewal writes to the name's storage");
}

#[test]
fn a_public_certificate_in_its_own_storage() {
    let directory = Directory::new();
    let own: SharedStorage = Arc::new(FileStorage::new(directory.path("own")));
    let public = PublicCertificateSpec {
        name: NAME.to_owned(),
        authorities: vec!["one".to_owned()],
        renewal_ratio: 0.1,
        ocsp: OcspPolicy::default(),
        storage: Some(own.clone()),
        on_demand: false,
    };
    let keeper = open(&directory, &[], None, now());
    keeper.add_public(public.clone()).unwrap();
    let (chain, key) = issued(&[NAME], now(), 90);
    keeper.install_public(NAME, "one", &chain, &key, &own.lock("issue_cert_a.example").unwrap()).unwrap();
    assert!(directory.path(&format!("own/certificates/one/{NAME}/{NAME}.crt")).exists());
    let found = |public: &PublicCertificateSpec| {
        let plan = CertificatePlan { public: vec![public.clone()], ..wanted(&directory, &[]) };
        let keeper = Keeper::open(plan, None, now()).unwrap();
        (served(&keeper).is_some(), keeper.reload_public(NAME, now()).unwrap())
    };
    assert_eq!(found(&public), (true, true));
    assert_eq!(found(&PublicCertificateSpec { storage: None, ..public }), (false, false));
}

// Caddy's `Cleanup` of the app `tls`: after a reload with other public authorities the certificate in use serves until
// a new one replaces it, which is obtained at once.
#[test]
fn another_authority_replaces_the_certificate_while_it_serves() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["staging"], None);
    let (chain, key) = issued(&[NAME], now(), 90);
    put(&keeper, &directory, "staging", &chain, &key).unwrap();
    let old = served(&keeper).unwrap();
    let reloaded = open_public(&directory, &["production"], Some(&keeper));
    // Also by the next reload.
    let reloaded = open_public(&directory, &["production"], Some(&reloaded));
    assert!(Arc::ptr_eq(&served(&reloaded).unwrap(), &old) && reloaded.issued(NAME).unwrap().is_superseded);
    assert!(reloaded.public_renew_at(NAME).unwrap() <= now());
    assert!(!reloaded.reload_public(NAME, now()).unwrap(), "the old one does not count");
    let (chain, key) = issued(&[NAME], now(), 60);
    put(&reloaded, &directory, "production", &chain, &key).unwrap();
    assert_eq!(served(&reloaded).unwrap().not_after(), now() + 60 * DAY);
    assert_eq!(reloaded.public_renew_at(NAME), Some(now() + 40 * DAY));
    // If storage has a certificate of the new authority, that serves at once.
    let reloaded = open_public(&directory, &["production"], Some(&keeper));
    assert_eq!(served(&reloaded).unwrap().not_after(), now() + 60 * DAY);
}

// As the test above, for another storage. The certificate is as good as a new one as soon as that storage has it.
#[test]
fn a_certificate_serves_while_the_storage_is_replaced() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    let (chain, key) = issued(&[NAME], now(), 90);
    put(&keeper, &directory, "one", &chain, &key).unwrap();
    let old = served(&keeper).unwrap();
    let public = keeper.state().public[NAME].public.clone();
    let storage: SharedStorage = Arc::new(FileStorage::new(directory.path("other")));
    let plan = CertificatePlan { storage, public: vec![public], authorities: Vec::new(), ..wanted(&directory, &[]) };
    let moved = Keeper::open(plan, Some(&keeper), now()).unwrap();
    assert!(Arc::ptr_eq(&served(&moved).unwrap(), &old));
    assert!(moved.public_renew_at(NAME).unwrap() <= now() && !moved.reload_public(NAME, now()).unwrap());
    let files = format!("certificates/one/{NAME}");
    std::fs::create_dir_all(directory.path("other/certificates/one")).unwrap();
    std::fs::rename(directory.path(&format!("data/{files}")), directory.path(&format!("other/{files}"))).unwrap();
    assert!(moved.reload_public(NAME, now()).unwrap());
    assert_eq!(moved.public_renew_at(NAME), Some(now() + 60 * DAY));
    assert!(Arc::ptr_eq(&served(&moved).unwrap(), &old));
}

// The certificate stays in use if its authority is one of the new ones: here storage has lost it.
#[test]
fn further_authorities_keep_the_certificate() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    let (chain, key) = issued(&[NAME], now(), 90);
    put(&keeper, &directory, "one", &chain, &key).unwrap();
    std::fs::remove_dir_all(directory.path("data")).unwrap();
    for authorities in [&["one", "two"][..], &["two", "one"]] {
        let reloaded = open_public(&directory, authorities, Some(&keeper));
        assert!(Arc::ptr_eq(&served(&reloaded).unwrap(), &served(&keeper).unwrap()));
        assert_eq!(reloaded.public_renew_at(NAME), Some(now() + 60 * DAY));
    }
}

// Caddy's `Cleanup`: a certificate of a local authority does not stand in for one of a public authority, since other
// clients trust it.
#[test]
fn a_local_certificate_serves_for_no_public_authority() {
    let directory = Directory::new();
    let public = |authorities: &[&str]| PublicCertificateSpec {
        name: NAME.to_owned(),
        authorities: authorities.iter().map(|&authority| authority.to_owned()).collect(),
        renewal_ratio: 1.0 / 3.0,
        ocsp: OcspPolicy::default(),
        storage: None,
        on_demand: false,
    };
    let reload = |authorities: &[&str], before: Option<&Keeper>| {
        let plan = CertificatePlan { public: vec![public(authorities)], ..wanted(&directory, &[]) };
        Keeper::open(plan, before, now()).unwrap()
    };
    let keeper = reload(&["one", "local"], None);
    let lock = FileStorage::new(directory.path("data")).lock("issue_cert_a.example").unwrap();
    keeper.sign_public(&local(NAME), &lock, now()).unwrap();
    assert!(served(&reload(&["two", "local"], Some(&keeper))).is_some());
    assert!(served(&reload(&["one"], Some(&keeper))).is_none());
}

// CertMagic keeps the state of a certificate as long as it serves: `reload` of an equal one changes neither whether it
// was used, by which names on demand stay, nor its OCSP status.
#[test]
fn an_equal_certificate_in_storage_changes_nothing() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    let (chain, key) = issued(&[NAME], now(), 90);
    put(&keeper, &directory, "one", &chain, &key).unwrap();
    let before = served(&keeper).unwrap();
    assert!(keeper.reload_public(NAME, now()).unwrap());
    assert!(Arc::ptr_eq(&served(&keeper).unwrap(), &before));
}

// A local certificate that is about to end is signed again from memory if storage cannot be read. Storage keeps its
// values.
#[test]
fn a_storage_that_cannot_be_read() {
    let directory = Directory::new();
    for reuse_key in [false, true] {
        let spec = LocalCertificateSpec { reuse_key, ..local("localhost") };
        let keeper = open(&directory, &[spec], None, now());
        // Reading a directory as a file fails, for root too.
        let at = directory.path("data/certificates/local/localhost/localhost.key");
        std::fs::remove_file(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
        let before = leaf(&keeper, "localhost");
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(keeper.renew(now() + 9 * hour), RENEWAL_RETRY_PAUSE);
        assert!(Arc::ptr_eq(&leaf(&keeper, "localhost"), &before), "it serves for hours");
        keeper.renew(now() + 12 * hour - Duration::from_secs(60));
        assert_eq!(leaf(&keeper, "localhost").not_after(), now() + 24 * hour - Duration::from_secs(60));
        std::fs::remove_dir_all(directory.path("data/certificates")).unwrap();
    }
}

// The operator looks for a mistake at the place that the error names: nothing of it is in storage.
#[test]
fn a_certificate_that_does_not_match_is_not_stored() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    let (good, key) = issued(&[NAME], now(), 90);
    let (other_name, other_key) = issued(&["b.example"], now(), 90);
    for (why, chain, key, want) in [
        ("another name", &*other_name, &*other_key, "b.example, expected one for a.example"),
        (
            "another key",
            &good,
            &other_key,
            "the key of the request: found another key than that of the certificate in the authority's answer",
        ),
        ("no chain", "", &key, "the authority's answer: found "),
        ("no key", &good, "", "the key of the request: found "),
    ] {
        let error = put(&keeper, &directory, "one", chain, key).unwrap_err().to_string();
        assert!(error.contains(want), "{why}: {error}");
        assert!(served(&keeper).is_none() && !directory.path("data/certificates").exists(), "{why}");
    }
}

// Of the authorities, the certificate that stays valid the longest is served.
#[test]
fn the_certificate_with_the_latest_expiry() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    for (authority, days) in [("one", 30), ("two", 90), ("three", 60)] {
        let (chain, key) = issued(&[NAME], now(), days);
        put(&keeper, &directory, authority, &chain, &key).unwrap();
    }
    let restarted = open_public(&directory, &["one", "two", "three"], None);
    assert_eq!(served(&restarted).unwrap().not_after(), now() + 90 * DAY);
    assert_eq!(served(&open_public(&directory, &["one", "three"], None)).unwrap().not_after(), now() + 60 * DAY);
}

// An expired certificate in storage is served, because this machine's clock may be wrong, and is due at once. `reload`
// takes only one that is not due.
#[test]
fn expired_or_broken_in_storage() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    let (chain, key) = issued(&[NAME], now() - 100 * DAY, 90);
    put(&keeper, &directory, "one", &chain, &key).unwrap();
    let restarted = open_public(&directory, &["one"], None);
    assert!(served(&restarted).is_some() && restarted.public_renew_at(NAME).unwrap() < now());
    assert!(!restarted.reload_public(NAME, now()).unwrap());
    // Another process renews it.
    let (chain, key) = issued(&[NAME], now(), 90);
    put(&keeper, &directory, "one", &chain, &key).unwrap();
    assert!(restarted.reload_public(NAME, now()).unwrap());
    assert_eq!(restarted.public_renew_at(NAME), Some(now() + 60 * DAY));
    assert_eq!(served(&restarted).unwrap().not_after(), now() + 90 * DAY);
    // A crash between two writes leaves a key that does not belong to the chain.
    let (_, other) = issued(&[NAME], now(), 90);
    std::fs::write(directory.path(&format!("data/certificates/one/{NAME}/{NAME}.key")), other).unwrap();
    assert!(served(&open_public(&directory, &["one"], None)).is_none());
    assert!(!restarted.reload_public(NAME, now()).unwrap() && served(&restarted).is_some());
}

// A full disk: the certificate that the authority has issued is served nevertheless.
#[test]
fn a_certificate_that_cannot_be_stored_is_served() {
    let directory = Directory::new();
    let keeper = open_public(&directory, &["one"], None);
    let lock = FileStorage::new(directory.path("data")).lock("issue_cert_a.example").unwrap();
    std::fs::remove_dir_all(directory.path("data")).unwrap();
    std::fs::write(directory.path("data"), "in the way").unwrap();
    let (chain, key) = issued(&[NAME], now(), 90);
    let error = keeper.install_public(NAME, "one", &chain, &key, &lock).unwrap_err();
    assert!(
        matches!(&error, Error::Write(location, _) if location.starts_with(directory.path("data").to_str().unwrap())),
        "{error}"
    );
    assert_eq!((served(&keeper).is_some(), keeper.public_renew_at(NAME)), (true, Some(now() + 60 * DAY)));
}

// On-demand TLS: a handshake adds the name; a certificate that is due and was not used leaves memory instead of being
// renewed.
#[test]
fn names_on_demand() {
    let directory = Directory::new();
    let keeper = open(&directory, &[local("localhost")], None, now());
    let on_demand = |name: &str| LocalCertificateSpec { on_demand: true, ..local(name) };
    for name in ["used.example", "unused.example"] {
        let added = keeper.add_local(on_demand(name), now()).unwrap();
        assert!(Arc::ptr_eq(&added, &leaf(&keeper, name)));
        assert!(Arc::ptr_eq(&added, &keeper.add_local(on_demand(name), now()).unwrap()), "added once");
    }
    let names = ["unused.example", "used.example"];
    let mut known = keeper.names_on_demand();
    known.sort();
    assert_eq!(known, names);
    let before = leaf(&keeper, "used.example");
    before.mark_used();
    keeper.renew(now() + Duration::from_secs(9 * 60 * 60));
    assert_eq!(keeper.names_on_demand(), names[1..]);
    assert!(keeper.store().find(Some("unused.example"), &[], &|_| true).is_none());
    let after = leaf(&keeper, "used.example");
    assert!(before.not_after() < after.not_after() && !after.is_used());
    assert_eq!(keeper.names().iter().map(|record| &*record.name).collect::<Vec<_>>(), ["localhost", "used.example"]);
}

// A name that is added between two checks is renewed when it is due, not at the check that was planned before.
#[test]
fn an_added_name_is_renewed_in_time() {
    let directory = Directory::new();
    let keeper = open(&directory, &[local("localhost")], None, now());
    let seconds = Duration::from_secs;
    assert_eq!((keeper.renew(now()), keeper.until_renewal(now() + seconds(1))), (seconds(600), seconds(599)));
    let short = LocalCertificateSpec { lifetime: seconds(30), on_demand: true, ..local("a.example") };
    let added = keeper.add_local(short, now() + seconds(5)).unwrap();
    assert_eq!(keeper.until_renewal(now() + seconds(5)), seconds(20));
    added.mark_used();
    assert_eq!(keeper.renew(now() + seconds(25)), seconds(20), "the time until the next one");
    assert!(!Arc::ptr_eq(&leaf(&keeper, "a.example"), &added));
    assert_eq!(keeper.until_renewal(now() + seconds(90)), RENEWAL_CHECK_PAUSE_MIN);
    assert_eq!(keeper.until_renewal(now() - DAY), seconds(600), "a clock that was set back");
}

// On-demand TLS: ever new names do not make memory grow without bound, whichever kind of authority signs for them.
#[test]
fn names_on_demand_are_bounded() {
    let directory = Directory::new();
    let keeper = open(&directory, &[local("localhost")], None, now());
    let public = PublicCertificateSpec {
        name: String::new(),
        authorities: Vec::new(),
        renewal_ratio: 0.1,
        ocsp: OcspPolicy::default(),
        storage: None,
        on_demand: true,
    };
    for number in 0..4 {
        for kind in ["public", "local"] {
            let before = keeper.names_on_demand();
            let dropped = keeper.make_room_on_demand(3);
            assert_eq!(dropped.len(), before.len().saturating_sub(2));
            assert!(dropped.iter().all(|name| before.contains(name)), "{dropped:?}");
            let name = format!("{kind}{number}.example");
            if kind == "local" {
                keeper.add_local(LocalCertificateSpec { on_demand: true, ..local(&name) }, now()).unwrap();
            } else {
                keeper.add_public(PublicCertificateSpec { name: name.clone(), ..public.clone() }).unwrap();
            }
            let known = keeper.names_on_demand();
            assert!(known.len() <= 3 && known.contains(&name), "{known:?}");
        }
    }
    let served = |number| keeper.store().find(Some(&format!("local{number}.example")), &[], &|_| true).is_some();
    assert!(!served(0) && served(3), "a name that leaves memory is no longer served");
    leaf(&keeper, "localhost");
}

// A public name that a handshake adds is found in storage; after its removal storage still has it.
#[test]
fn a_public_name_is_added_and_removed() {
    const NAME: &str = "p.example";
    let directory = Directory::new();
    let at = directory.path("data/certificates/ca/p.example");
    std::fs::create_dir_all(&at).unwrap();
    let signed = open(&directory, &[LocalCertificateSpec::new(NAME, "local")], None, now());
    for extension in ["crt", "key"] {
        let from = directory.path(&format!("data/certificates/local/{NAME}/{NAME}.{extension}"));
        std::fs::copy(from, at.join(format!("{NAME}.{extension}"))).unwrap();
    }
    drop(signed);
    let keeper = open(&directory, &[], None, now());
    let public = |authority: &str| PublicCertificateSpec {
        name: NAME.to_owned(),
        authorities: vec![authority.to_owned()],
        renewal_ratio: 0.1,
        ocsp: OcspPolicy::default(),
        storage: None,
        on_demand: true,
    };
    keeper.add_public(public("another")).unwrap();
    assert!(keeper.issued(NAME).is_none() && keeper.names()[0].not_after.is_none());
    keeper.remove_public(NAME);
    keeper.add_public(public("ca")).unwrap();
    assert!(Arc::ptr_eq(&keeper.issued(NAME).unwrap().certificate, &leaf(&keeper, NAME)));
    keeper.remove_public(NAME);
    assert!(keeper.issued(NAME).is_none() && keeper.store().find(Some(NAME), &[], &|_| true).is_none());
    assert!(at.join("p.example.crt").exists());
}

// One certificate that cannot be read does not keep the others from being served.
#[test]
fn an_unreadable_certificate_is_left_out() {
    let directory = Directory::new();
    // Reading a directory as a file fails, for root too.
    std::fs::create_dir_all(directory.path("data/certificates/ca/a.example/a.example.crt")).unwrap();
    let public = PublicCertificateSpec {
        name: "a.example".to_owned(),
        authorities: vec!["ca".to_owned()],
        renewal_ratio: 0.1,
        ocsp: OcspPolicy::default(),
        storage: None,
        on_demand: false,
    };
    let plan = CertificatePlan { public: vec![public], ..wanted(&directory, &[local("localhost")]) };
    let keeper = Keeper::open(plan, None, now()).unwrap();
    assert!(keeper.issued("a.example").is_none());
    assert!(matches!(keeper.reload_public("a.example", now()), Err(Error::Read(..))), "its task reports the failure");
    leaf(&keeper, "localhost");
}
