//! Processes that are killed, disks that are full, clocks that are wrong.
//!
//! A test starts this test program again as the process to be killed: with an environment variable, [`victim`] does the
//! work of a server.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::CertificateParams;

use super::*;
use crate::OcspPolicy;
use crate::replace::is_temporary;
use crate::tests::{DAY, Directory, now};
use crate::{
    AuthoritySpec, CertificatePlan, Keeper, KeyKind, LocalCertificateSpec, PublicCertificateSpec, generate_key,
};

const DIRECTORY: &str = "CERTS_FAULT_DIRECTORY";
const STEP: &str = "CERTS_FAULT_STEP";
const LOCAL: &str = "local.example";
pub(super) const PUBLIC: &str = "public.example";
const ACCOUNT: &str = "acme/ca/users/default/default.key";

/// A directory whose process dies at one of its steps. Each write has three: before it, within it, and after it.
#[derive(Debug, Clone)]
struct FatalStorage {
    inner: FileStorage,
    directory: PathBuf,
    steps: Arc<AtomicUsize>,
    fatal: usize,
}

impl FatalStorage {
    fn step(&self) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed) == self.fatal
    }

    fn die() -> ! {
        // As SIGKILL, it runs no destructors and flushes nothing.
        std::process::abort()
    }

    fn write(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        if self.step() {
            Self::die();
        }
        if self.step() {
            // As `replace` leaves it when it is killed in the middle.
            let path = self.directory.join(format!("{key}.0123456789abcdef.new"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &value[..value.len() / 2]).unwrap();
            Self::die();
        }
        self.inner.store(key, value, durability)?;
        if self.step() {
            Self::die();
        }
        Ok(())
    }
}

struct FatalLock {
    _lock: Lock,
    storage: FatalStorage,
}

impl HeldLock for FatalLock {
    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.storage.write(key, value, durability)
    }
}

impl Storage for FatalStorage {
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
        self.write(key, value, durability)
    }
    fn delete(&self, key: &str) -> Result<(), Error> {
        self.inner.delete(key)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.inner.list(prefix)
    }
    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        Ok(Lock::new(FatalLock { _lock: self.inner.lock_within(name, timeout)?, storage: self.clone() }))
    }
}

pub(super) fn open(storage: SharedStorage, now: SystemTime) -> Result<Keeper, Error> {
    let public = PublicCertificateSpec {
        name: PUBLIC.to_owned(),
        authorities: vec!["ca".to_owned()],
        renewal_ratio: 1.0 / 3.0,
        ocsp: OcspPolicy::default(),
        storage: None,
        on_demand: false,
    };
    let plan = CertificatePlan {
        storage,
        authorities: vec![AuthoritySpec::new("local")],
        loaded: Vec::new(),
        selections: Vec::new(),
        loaded_ocsp: OcspPolicy::default(),
        local: vec![LocalCertificateSpec::new(LOCAL, "local")],
        public: vec![public],
        renewal_check_interval: Duration::from_secs(600),
    };
    Keeper::open(plan, None, now)
}

/// A pair as a public authority issues it, valid for 90 days.
pub(super) fn issued(from: SystemTime) -> (String, String) {
    let mut params = CertificateParams::new(vec![PUBLIC.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (from.into(), (from + 90 * DAY).into());
    let key = generate_key(KeyKind::P256).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn put(keeper: &Keeper, from: SystemTime) -> Result<(), Error> {
    let (chain, key) = issued(from);
    let lock = keeper.storage().lock(&format!("issue_cert_{PUBLIC}"))?;
    keeper.install_public(PUBLIC, "ca", &chain, &key, &lock)
}

/// The life of a server: its start, an account, a certificate, and renewals of everything.
fn live(storage: SharedStorage, now: SystemTime) {
    let lock = storage.lock("register_acme_account_").unwrap();
    if storage.load(ACCOUNT).unwrap().is_none() {
        lock.store(ACCOUNT, generate_key(KeyKind::P256).unwrap().serialize_pem().as_bytes(), Durability::Flushed)
            .unwrap();
    }
    drop(lock);
    let keeper = open(storage, now).unwrap();
    for round in 0..2 {
        put(&keeper, now + DAY * round).unwrap();
        keeper.renew(now + 6 * DAY + DAY / 2 * round);
    }
}

/// The process that is killed; in an ordinary run it does nothing.
#[test]
fn victim() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let inner = FileStorage::new(&directory);
    match std::env::var(STEP) {
        Ok(step) => {
            let (steps, fatal) = (Arc::default(), step.parse().unwrap());
            live(Arc::new(FatalStorage { inner, directory, steps, fatal }), now());
        }
        Err(_) => {
            println!("begun");
            io::stdout().flush().unwrap();
            for round in 0.. {
                live(Arc::new(inner.clone()), now() + round * 7 * DAY);
            }
        }
    }
}

fn victim_command(directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "storage::faults::victim", "--nocapture", "--test-threads", "1"])
        .env(DIRECTORY, directory);
    command.stderr(Stdio::null());
    command
}

/// The values of a storage that must stay.
#[derive(Default)]
struct Remembered {
    root: Option<Vec<u8>>,
    account: Option<Vec<u8>>,
}

impl Remembered {
    /// Starts a server after the kill: everything that it serves is whole, and nothing that lasts is lost.
    fn check(&mut self, directory: &Path, why: &str) {
        let storage = FileStorage::new(directory);
        for key in storage.list("").unwrap() {
            assert!(!is_temporary(Path::new(&key)), "{why}: {key}");
            assert_ne!(storage.load(&key).unwrap().as_deref(), Some(&b""[..]), "{why}: {key}");
        }
        for (before, key) in [(&mut self.root, "pki/authorities/local/root.crt"), (&mut self.account, ACCOUNT)] {
            let found = storage.load(key).unwrap();
            assert!(before.is_none() || *before == found, "{why}: {key} was lost");
            *before = found;
        }
        // `Keeper` serves a certificate only with its own key.
        let keeper = open(Arc::new(storage), now()).unwrap_or_else(|error| panic!("{why}: {error}"));
        assert!(keeper.store().find(Some(LOCAL), &[], &|_| true).is_some(), "{why}");
        put(&keeper, now()).unwrap();
        let restarted = open(Arc::new(FileStorage::new(directory)), now()).unwrap();
        assert!(restarted.issued(PUBLIC).is_some(), "{why}");
        self.root = FileStorage::new(directory).load("pki/authorities/local/root.crt").unwrap();
    }
}

// A process that is killed before, within or after any of its writes leaves nothing that is half-written and served;
// the root and the account stay.
#[test]
fn killed_at_every_write() {
    let mut step = 0;
    loop {
        let directory = Directory::new();
        let status =
            victim_command(&directory.path("")).env(STEP, step.to_string()).stdout(Stdio::null()).status().unwrap();
        let mut remembered = Remembered::default();
        remembered.check(&directory.path(""), &format!("step {step}"));
        // Without a second kill.
        remembered.check(&directory.path(""), &format!("after step {step}"));
        if status.success() {
            break;
        }
        step += 1;
    }
    assert!(step > 40, "{step} steps");
}

// As above, at moments of the clock within the system calls; the storage is that of all earlier processes.
#[test]
fn killed_at_any_moment() {
    let seed = std::env::var("CERTS_FAULT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_u64);
    let directory = Directory::new();
    let (mut random, mut remembered) = (seed | 1, Remembered::default());
    for round in 0..25 {
        // xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = victim_command(&directory.path("")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 1];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        std::thread::sleep(Duration::from_micros(random % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();
        remembered.check(&directory.path(""), &format!("round {round} of CERTS_FAULT_SEED={seed}"));
    }
    let keys = FileStorage::new(directory.path("")).list("").unwrap();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
}

/// A file system of 128 KiB in memory; unmounted when dropped.
struct TinyDisk(Directory);

impl TinyDisk {
    /// `None` if this user must not mount one.
    fn mount() -> Option<Self> {
        let directory = Directory::new();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(directory.path(""));
        match command.stderr(Stdio::null()).status() {
            Ok(status) if status.success() => Some(Self(directory)),
            _ => {
                eprintln!("skipped: only root can mount a file system");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0.path("")).status();
        assert!(status.unwrap().success());
    }

    /// Writes until the disk is full.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path("filler")).unwrap();
        for block in [vec![0; 4096], vec![0; 1]] {
            while file.write_all(&block).is_ok() {}
        }
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path("")).status();
    }
}

// A disk that is full, and one that has become read-only: certificates in use stay in use, new ones of a public
// authority are served without being stored, stored values stay whole, and everything continues when there is room
// again.
#[test]
fn a_disk_without_room() {
    let Some(disk) = TinyDisk::mount() else { return };
    let hour = Duration::from_secs(60 * 60);
    let keeper = open(Arc::new(FileStorage::new(disk.0.path("data"))), now()).unwrap();
    put(&keeper, now()).unwrap();
    let local = || keeper.store().find(Some(LOCAL), &[], &|_| true).unwrap();
    let chain_path = format!("certificates/ca/{PUBLIC}/{PUBLIC}.crt");
    let stored = || keeper.storage().load(&chain_path).unwrap().unwrap();
    for (round, is_full) in [(0, true), (1, false)] {
        let at = now() + 9 * hour * (round + 1);
        let (before, stored_before) = (local(), stored());
        if is_full {
            disk.fill();
        } else {
            disk.remount("ro");
        }
        assert_eq!(keeper.renew(at), Duration::from_secs(60), "it tries again after a minute");
        assert!(Arc::ptr_eq(&local(), &before));
        let (chain, key) = issued(at);
        // On a read-only disk, the lock's file is there already.
        match keeper.storage().lock(&format!("issue_cert_{PUBLIC}")) {
            Ok(lock) => {
                let error = keeper.install_public(PUBLIC, "ca", &chain, &key, &lock).unwrap_err();
                let location = disk.0.path("data").display().to_string();
                assert!(matches!(&error, Error::Write(at, _) if at.starts_with(&location)), "{error}");
                assert_eq!(keeper.issued(PUBLIC).unwrap().certificate.not_before(), at);
            }
            Err(error) => assert!(!is_full && matches!(error, Error::Write(..)), "{error}"),
        }
        assert_eq!(stored(), stored_before, "the file on the disk is whole");
        if is_full {
            std::fs::remove_file(disk.0.path("filler")).unwrap();
        } else {
            disk.remount("rw");
        }
        keeper.renew(at);
        assert_eq!(local().not_before(), at);
        put(&keeper, at).unwrap();
        assert_ne!(stored(), stored_before);
    }
}

// A clock that jumps: after each jump, certificates are served that are valid by the clock, under the same root; no
// certificate is lost.
#[test]
fn a_clock_that_jumps() {
    let directory = Directory::new();
    let storage = || -> SharedStorage { Arc::new(FileStorage::new(directory.path(""))) };
    let keeper = open(storage(), now()).unwrap();
    put(&keeper, now()).unwrap();
    let local = |keeper: &Keeper| keeper.store().find(Some(LOCAL), &[], &|_| true).unwrap();
    let roots = |keeper: &Keeper| keeper.authorities(|authority| authority.root_pem());
    let root = roots(&keeper);
    let year = 365 * DAY;
    for at in [now() - year, now() - year + DAY, now(), now() + year, now() + 30 * DAY, now() + DAY] {
        assert!(keeper.renew(at) <= Duration::from_secs(600));
        let leaf = local(&keeper);
        assert!(leaf.is_valid(at));
        let restarted = open(storage(), at).unwrap();
        assert_eq!(local(&restarted).signed().cert, leaf.signed().cert);
        assert_eq!((roots(&keeper), roots(&restarted)), (root.clone(), root.clone()));
        assert!(keeper.issued(PUBLIC).is_some() && restarted.issued(PUBLIC).is_some());
        // A certificate in storage that is not valid by this clock, or due, is ordered again.
        let is_fresh = at >= now() && at < now() + 60 * DAY;
        assert_eq!(keeper.reload_public(PUBLIC, at).unwrap(), is_fresh);
    }
    // Clocks of servers differ by seconds.
    let leaf = local(&keeper);
    keeper.renew(now() + DAY - Duration::from_secs(30));
    assert!(Arc::ptr_eq(&local(&keeper), &leaf));
    // Beyond the root's end, nothing can be signed: the certificates in use stay.
    assert_eq!(keeper.renew(now() + 20 * year), Duration::from_secs(60));
    assert!(Arc::ptr_eq(&local(&keeper), &leaf));
    keeper.renew(now() + 2 * DAY);
    assert!(local(&keeper).is_valid(now() + 2 * DAY));
}
