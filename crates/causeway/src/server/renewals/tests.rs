use std::path::Path;
use std::sync::atomic::AtomicUsize;

use causeway_certs::{
    AuthoritySpec, Durability, Error, FileStorage, KeyKind, Lock, OcspPolicy, SharedStorage, Storage,
};
use causeway_config::plan::{self, AcmeIssuer, ManagedName, PublicName};

use super::super::issuance_plan::tests::{public_name, storages};
use super::super::storage::Storages;
use super::*;

// RFC 8555 §6.6: a client that is limited waits. Without a time, and beyond a week, the usual pauses count.
#[test]
fn pauses_of_rate_limits() {
    let now = SystemTime::now();
    let hours = |hours: u64| Some(now + Duration::from_secs(hours * 3600));
    assert_eq!(pause_until(0, None, now), pause(0));
    assert_eq!(pause_until(0, hours(3), now), Duration::from_secs(3 * 3600));
    assert_eq!(pause_until(0, hours(10_000), now), LIMITED_MAX);
    assert_eq!(pause_until(3, Some(now - Duration::from_secs(60)), now), pause(3));
}

// The next attempt is not before the time in the log.
#[test]
fn pauses_in_words() {
    for (ms, want) in [
        (0, "0 s"),
        (10_000, "10 s"),
        (10_001, "11 s"),
        (59_001, "1 min"),
        (60_000, "1 min"),
        (119_999, "2 min"),
        (120_001, "3 min"),
    ] {
        assert_eq!(in_words(Duration::from_millis(ms)), want, "{ms} ms");
    }
}

fn keeper(storages: &Storages) -> Arc<Keeper> {
    open(storages, Vec::new(), None, None)
}

fn open(
    storages: &Storages,
    authorities: Vec<AuthoritySpec>,
    plan: Option<&IssuancePlan>,
    before: Option<&Keeper>,
) -> Arc<Keeper> {
    let plan = causeway_certs::CertificatePlan {
        storage: storages.default_storage().clone(),
        authorities,
        loaded: Vec::new(),
        selections: Vec::new(),
        loaded_ocsp: OcspPolicy::default(),
        local: Vec::new(),
        public: plan.iter().map(|plan| plan.public().clone()).collect(),
        renewal_check_interval: Duration::from_secs(600),
    };
    Arc::new(Keeper::open(plan, before, SystemTime::now()).unwrap())
}

/// The local authority, for the name of [`public_name`].
fn fallback() -> ManagedName {
    ManagedName {
        name: "a.example".to_owned(),
        authority: "local".to_owned(),
        lifetime: None,
        renewal_ratio: None,
        by_root: false,
        key: plan::KeyKind::P256,
        reuse_key: false,
        storage: None,
    }
}

// RFC 9773 §4.3: a client queries again when the time of `Retry-After` is over. A reload, which replaces the tasks, is
// no reason.
#[tokio::test]
async fn advice_outlives_a_reload() {
    let directory = std::env::temp_dir().join(format!("causeway-renewals-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let default_storage: SharedStorage = Arc::new(FileStorage::new(&directory));
    let storages = Storages::open(default_storage.clone(), std::iter::empty(), Path::new("")).unwrap();
    let name = PublicName { fallback: Some(fallback()), ..public_name() };
    let plan = || IssuancePlan::new(&name, KeyKind::P256, false, &storages);
    let authorities = || vec![AuthoritySpec::new("local")];
    let first_keeper = open(&storages, authorities(), Some(&plan()), None);
    // The local authority signs, because there is no other one.
    assert!(plan().renew(&first_keeper, 0, false, &OrderLimits::default()).await.is_ok());
    let first = Renewals::new(&first_keeper, None);
    let mut advised = AdvisedName::default();
    assert!(!first.task(plan(), None).until_due(&mut advised).await.is_zero());
    let request_at = advised.advice.unwrap().request_at;
    let next_keeper = open(&storages, authorities(), Some(&plan()), Some(&first_keeper));
    let next = Renewals::new(&next_keeper, Some(&first));
    let mut advised = locked(&next.advised)["a.example"].clone();
    assert!(!next.task(plan(), None).until_due(&mut advised).await.is_zero());
    assert!(advised.advice.as_ref().is_some_and(|advice| advice.request_at == request_at), "no other query");
    drop((advised, first, first_keeper, next_keeper));
    // The certificate of a name that was removed leaves memory.
    drop(next.keeper);
    let third = Renewals { keeper: open(&storages, authorities(), None, None), ..next };
    assert!(locked(&Renewals::new(&third.keeper, Some(&third)).advised).is_empty());
    std::fs::remove_dir_all(&directory).unwrap();
}

// RFC 9773 §4.2: the server queries the window again when `Retry-After` is over, also between the configured time of
// the renewal and a later one that the authority has suggested.
#[tokio::test]
async fn a_later_suggestion_is_queried_again() {
    let directory = std::env::temp_dir().join(format!("causeway-renewals-later-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let default_storage: SharedStorage = Arc::new(FileStorage::new(&directory));
    let storages = Storages::open(default_storage.clone(), std::iter::empty(), Path::new("")).unwrap();
    // The certificate has been due for most of its lifetime of 12 hours.
    let name = PublicName { fallback: Some(fallback()), renewal_ratio: Some(0.9), ..public_name() };
    let plan = IssuancePlan::new(&name, KeyKind::P256, false, &storages);
    let keeper = open(&storages, vec![AuthoritySpec::new("local")], Some(&plan), None);
    let local = super::super::certificates::local_spec(&fallback(), false, &storages);
    let hour = Duration::from_secs(60 * 60);
    let lock = default_storage.lock("issue_cert_a.example").unwrap();
    keeper.sign_public(&local, &lock, SystemTime::now() - 6 * hour).unwrap();
    let leaf = keeper.issued("a.example").unwrap().certificate;
    let (now, at) = (SystemTime::now(), SystemTime::now() + 2 * hour);
    let mut advised = AdvisedName {
        advice: Some(Advice { leaf, at: Some(at), request_at: now - Duration::from_secs(1) }),
        ..AdvisedName::default()
    };
    let task = Renewals::new(&keeper, None).task(plan, None);
    // The local authority makes no suggestions, so the configured time counts again.
    assert!(task.until_due(&mut advised).await.is_zero());
    assert!(advised.advice.is_some_and(|advice| advice.at.is_none() && advice.request_at > now));
    drop(lock);
    std::fs::remove_dir_all(&directory).unwrap();
}

// RFC 8555 §6.6: a client that is limited waits, also if its configuration is loaded again meanwhile or the name has
// left memory. A certificate that another process has stored is found, and the local authority signs.
#[tokio::test]
async fn a_rate_limit_outlives_a_reload() {
    let directory = std::env::temp_dir().join(format!("causeway-renewals-limit-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let default_storage: SharedStorage = Arc::new(FileStorage::new(&directory));
    let storages = Storages::open(default_storage.clone(), std::iter::empty(), Path::new("")).unwrap();
    // Nothing listens there.
    let issuer = AcmeIssuer { ca: "https://127.0.0.1:1/directory".to_owned(), ..AcmeIssuer::default() };
    let written = PublicName { issuers: vec![plan::PublicIssuer::Acme(Box::new(issuer))], ..public_name() };
    let plan =
        |fallback| IssuancePlan::new(&PublicName { fallback, ..written.clone() }, KeyKind::P256, false, &storages);
    let with_fallback = || plan(Some(fallback()));
    let open = || open(&storages, vec![AuthoritySpec::new("local")], Some(&with_fallback()), None);
    let first = Renewals::new(&open(), None);
    let (now, hour) = (SystemTime::now(), Duration::from_secs(60 * 60));
    first.limits.add(&plan(None), &default_storage, "too many", Some(now + hour), now);
    first.end("a.example");
    let next = Renewals::new(&open(), Some(&first));
    let error = next.obtain(&plan(None), 0).await.unwrap_err();
    let remembered = "no order was sent, because an earlier refusal still holds: too many";
    assert!(
        matches!(&error, RenewError::Authority(why, Some(at)) if why == remembered && *at == now + hour),
        "{error}"
    );
    assert!(next.obtain(&with_fallback(), 0).await.is_ok());
    let limit = |renewals: &Renewals| renewals.limits.find(&plan(None), &default_storage, SystemTime::now());
    assert!(limit(&next).is_some(), "the local authority has signed");
    // Another process has the certificate now.
    let third = Renewals::new(&open(), Some(&next));
    assert!(third.obtain(&plan(None), 0).await.is_ok());
    // The local authority signs the next one when this one ends, also within a limit.
    let task = third.task(with_fallback(), None);
    let left = third.keeper.issued("a.example").unwrap().certificate.not_after().duration_since(now).unwrap();
    assert!(task.until_ended(LIMITED_MAX) <= left);
    assert_eq!(task.until_ended(pause(0)), pause(0));
    assert_eq!(third.task(plan(None), None).until_ended(LIMITED_MAX), LIMITED_MAX);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A storage whose lock another server holds for a number of waits.
#[derive(Debug)]
struct BusyStorage {
    storage: FileStorage,
    waits: AtomicUsize,
}

impl Storage for BusyStorage {
    fn identity(&self) -> String {
        self.storage.identity()
    }

    fn location(&self, key: &str) -> String {
        self.storage.location(key)
    }

    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.storage.load(key)
    }

    fn modified(&self, key: &str) -> Result<Option<SystemTime>, Error> {
        self.storage.modified(key)
    }

    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.storage.store(key, value, durability)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.storage.delete(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.storage.list(prefix)
    }

    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        let waits = name.starts_with("issue_cert_")
            && self.waits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waits| waits.checked_sub(1)).is_ok();
        if waits { Err(Error::Locked(name.to_owned())) } else { self.storage.lock_within(name, timeout) }
    }
}

// Caddy's documentation of `storage`: servers with one storage share the work of obtaining certificates. The order of
// another server, which may take minutes, is no failure, and a handshake waits for it for a minute.
#[tokio::test]
async fn an_order_of_another_server() {
    let folder = std::env::temp_dir().join(format!("causeway-renewals-elsewhere-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let default_storage = Arc::new(BusyStorage { storage: FileStorage::new(&folder), waits: AtomicUsize::new(0) });
    let storages = Storages::open(default_storage.clone(), std::iter::empty(), Path::new("")).unwrap();
    let name = PublicName { fallback: Some(fallback()), ..public_name() };
    let plan = IssuancePlan::new(&name, KeyKind::P256, false, &storages);
    let keeper = open(&storages, vec![AuthoritySpec::new("local")], Some(&plan), None);
    let renewals = Renewals::new(&keeper, None);
    default_storage.waits.store(2, Ordering::SeqCst);
    let error = renewals.obtain(&plan, 3).await.unwrap_err();
    assert!(matches!(error, RenewError::Elsewhere(_)), "{error}");
    let (mut failures, now, mut since) = (3, Instant::now(), None);
    assert_eq!((pause_after(&error, &mut failures, SystemTime::now()), failures), (LOCAL_PAUSE, 3));
    assert!(is_elsewhere(&error, &mut since, now));
    assert!(is_elsewhere(&error, &mut since, now + ELSEWHERE_MAX / 2));
    assert!(!is_elsewhere(&error, &mut since, now + ELSEWHERE_MAX), "its process is stuck");
    assert!(!is_elsewhere(&RenewError::Local(String::new()), &mut since, now) && since.is_none());
    default_storage.waits.store(1, Ordering::SeqCst);
    assert!(renewals.obtain(&plan, 3).await.is_ok());
    std::fs::remove_dir_all(&folder).unwrap();
}

// The documentation of `storage`: orders that fail because of the storage are tried again every 10 seconds. They are no
// failures of the authority, after which its test authority would be tried first, and count as such only if another
// authority has failed.
#[tokio::test]
async fn an_account_that_storage_cannot_read() {
    let folder = std::env::temp_dir().join(format!("causeway-renewals-account-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let default_storage: SharedStorage = Arc::new(FileStorage::new(&folder));
    let storages = Storages::open(default_storage, std::iter::empty(), Path::new("")).unwrap();
    let issuer = |directory: &str, test: &str| {
        plan::PublicIssuer::Acme(Box::new(AcmeIssuer {
            ca: directory.to_owned(),
            test_ca: test.to_owned(),
            ..AcmeIssuer::default()
        }))
    };
    // Reading a directory as a file fails, for root too.
    for authority in ["one.invalid-dir", "test.invalid-dir"] {
        std::fs::create_dir_all(folder.join(format!("acme/{authority}/users/default/default.key"))).unwrap();
    }
    let unreadable = issuer("https://one.invalid/dir", "https://test.invalid/dir");
    let refused = issuer("https://127.0.0.1:1/dir", "");
    for (issuers, attempt, is_local) in [
        (vec![unreadable.clone()], 0, true),
        (vec![unreadable.clone()], 1, true),
        (vec![unreadable, refused], 0, false),
    ] {
        let name = PublicName { issuers, ..public_name() };
        let plan = IssuancePlan::new(&name, KeyKind::P256, false, &storages);
        let keeper = open(&storages, Vec::new(), Some(&plan), None);
        let error = plan.renew(&keeper, attempt, false, &OrderLimits::default()).await.unwrap_err();
        assert!(error.to_string().contains("default.key: cannot be read: "), "{error}");
        assert_eq!(matches!(error, RenewError::Local(_)), is_local, "{error}");
        assert_eq!(matches!(error, RenewError::Authority(..)), !is_local, "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

// 300 names that wait for a storage which is away would write an error each every 10 seconds. A fault of one name is no
// reason to hide those of the others, and a lasting fault of the storage is logged again.
#[test]
fn a_fault_of_the_storage_is_logged_once_an_hour() {
    let faults = StorageFaults::default();
    let [away, local] = [RenewError::Storage, RenewError::Local].map(|error| error(String::new()));
    let refused = RenewError::Authority(String::new(), None);
    let start = Instant::now();
    for (minutes, storage, error, want) in [
        (0, "one", Some(&away), true),
        (0, "one", Some(&away), false),
        (1, "two", Some(&away), true),
        (59, "one", Some(&away), false),
        (60, "one", Some(&away), true),
        (60, "two", Some(&away), false),
        (61, "one", Some(&away), false),
        (61, "one", Some(&refused), true),
        (61, "one", Some(&refused), true),
        (61, "one", Some(&away), true),
        (61, "one", Some(&local), true),
        (61, "one", Some(&local), true),
        (61, "one", Some(&away), true),
        (61, "one", None, true),
        (61, "one", Some(&away), true),
        (62, "two", Some(&away), true),
    ] {
        let now = start + Duration::from_secs(60 * minutes);
        let is_logged = faults.record_outcome(storage, error, now);
        assert_eq!(is_logged, want, "{minutes} {storage} {:?}", error.map(ToString::to_string));
    }
}

// A certificate that storage cannot read is a fault of its name. Without locks, the storage fails for every name.
#[tokio::test]
async fn a_storage_without_locks_fails_for_every_name() {
    let folder = std::env::temp_dir().join(format!("causeway-renewals-locks-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let default_storage: SharedStorage = Arc::new(FileStorage::new(&folder));
    let storages = Storages::open(default_storage, std::iter::empty(), Path::new("")).unwrap();
    let plan = IssuancePlan::new(&public_name(), KeyKind::P256, false, &storages);
    let keeper = open(&storages, Vec::new(), Some(&plan), None);
    let _ = std::fs::remove_dir_all(&folder);
    // A file in place of the storage's directory, for root too.
    std::fs::write(&folder, "").unwrap();
    let error = plan.renew(&keeper, 0, false, &OrderLimits::default()).await.unwrap_err();
    assert!(matches!(error, RenewError::Storage(_)), "{error}");
    std::fs::remove_file(&folder).unwrap();
}

// A client that lets names leave memory and come back must not start a task with each handshake.
#[tokio::test]
async fn a_name_has_one_task() {
    let storages = storages();
    let renewals = Renewals::new(&keeper(&storages), None);
    let count = || locked(&renewals.tasks).as_ref().map_or(0, |tasks| tasks.all.len());
    let start = || renewals.start(IssuancePlan::new(&public_name(), KeyKind::P256, true, &storages), None);
    start();
    start();
    assert_eq!(count(), 1);
    renewals.end("a.example");
    while count() > 0 {
        tokio::task::yield_now().await;
        if let Some(tasks) = locked(&renewals.tasks).as_mut() {
            while tasks.all.try_join_next().is_some() {}
        }
    }
    start();
    assert_eq!(count(), 1, "a new one");
    renewals.stop();
    start();
    assert_eq!(count(), 0);
}

// Nearly all tasks of 10 000 names sleep: they hold their plan and a timer. Without the boxes a task holds some KiB.
#[test]
fn a_sleeping_task_is_small() {
    const BYTES_MAX: usize = 1600;
    let storages = storages();
    let keeper = keeper(&storages);
    let task =
        Renewals::new(&keeper, None).task(IssuancePlan::new(&public_name(), KeyKind::P256, false, &storages), None);
    let task = task.run();
    assert!(size_of_val(&task) <= BYTES_MAX, "{} bytes", size_of_val(&task));
}
