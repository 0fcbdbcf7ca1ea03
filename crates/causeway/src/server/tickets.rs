//! The keys of session tickets that a configuration sets: made here or shared in a storage, and replaced one after the
//! other.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use causeway_certs::{Durability, Error, SharedStorage};
use causeway_config::plan::{self, TicketKeySource};
use causeway_engine::{SessionTickets, TicketKeys};
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;

use super::blocking::{blocking, locked};
use super::storage;

/// The keys in the storage, and the name of their lock. Caddy has its own form at `stek/stek.bin`, and its tickets are
/// of another form too.
const STORED: &str = "stek/keys.json";
const LOCK: &str = "stek_check";
/// The pause after a failure of the storage.
const STORAGE_PAUSE: Duration = Duration::from_secs(10);
/// The longest sleep, so that a step of the clock delays no rotation by more.
const SLEEP_MAX: Duration = Duration::from_secs(10 * 60);
/// The most keys that are read from the storage. Another server may have a larger `max_keys`.
const KEYS_MAX: usize = 64;

type TicketSecret = [u8; 32];

/// The tickets of the current configuration. Dropping it ends the rotation.
pub(super) struct Tickets {
    setting: plan::SessionTickets,
    rotation: Option<Arc<Rotation>>,
    task: Option<AbortHandle>,
}

/// Keys, and how they are replaced.
struct Rotation {
    interval: Duration,
    max_keys: usize,
    /// Where several servers share them.
    storage: Option<SharedStorage>,
    record: Mutex<KeyRecord>,
    keys: TicketKeys,
}

/// The keys, newest first, and the time of the next one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeyRecord {
    keys: Vec<TicketSecret>,
    /// Seconds since 1970.
    next_rotation: u64,
    /// The interval of the server that made the newest key. 0 in records of servers that do not store it.
    #[serde(default)]
    interval_s: u64,
}

impl Tickets {
    /// Makes the keys, or reads them from the storage. Keys of `before` stay if the settings are equal, so a reload
    /// ends no session. Blocks on the storage, and must run on a thread of the server's runtime, which rotates the
    /// keys.
    ///
    /// # Errors
    /// The random number generator failed, or the storage has a setting that cannot be used. A storage that cannot be
    /// read is not an error: the keys are this server's own until it can.
    pub(super) fn open(
        setting: &plan::SessionTickets,
        default_storage: &SharedStorage,
        data: &Path,
        before: Option<&Self>,
    ) -> Result<Self, Error> {
        let plan::SessionTickets::Rotating { interval, max_keys, source } = setting else {
            return Ok(Self { setting: setting.clone(), rotation: None, task: None });
        };
        let storage = match source {
            TicketKeySource::Standard => None,
            TicketKeySource::Distributed(None) => Some(Arc::clone(default_storage)),
            TicketKeySource::Distributed(Some(own)) => Some(storage::open(own, data)?),
        };
        let is_same = |rotation: &&Arc<Rotation>| {
            let identity = |storage: &Option<SharedStorage>| storage.as_ref().map(|storage| storage.identity());
            identity(&rotation.storage) == identity(&storage)
        };
        let known = before.filter(|before| before.setting == *setting).and_then(|before| before.rotation.as_ref());
        let (rotation, is_known) = match known.filter(is_same) {
            Some(known) => (Arc::clone(known), true),
            None => {
                let mut record = KeyRecord { keys: Vec::new(), next_rotation: 0, interval_s: 0 };
                record.rotate(*interval, *max_keys, SystemTime::now())?;
                let keys = TicketKeys::new(&record.keys, *interval * u32::try_from(*max_keys).unwrap_or(1));
                let keys = keys.ok_or(Error::Random)?;
                let record = Mutex::new(record);
                (Arc::new(Rotation { interval: *interval, max_keys: *max_keys, storage, record, keys }), false)
            }
        };
        // Before the first handshake, so that it can resume a session of another server.
        let refreshed = if is_known { Ok(()) } else { rotation.refresh(SystemTime::now()) };
        let has_failed = refreshed.map_err(|error| report(&error)).is_err();
        let task = tokio::spawn(Arc::clone(&rotation).run(has_failed)).abort_handle();
        Ok(Self { setting: setting.clone(), rotation: Some(rotation), task: Some(task) })
    }

    pub(super) fn session_tickets(&self) -> SessionTickets {
        match (&self.setting, &self.rotation) {
            (plan::SessionTickets::Disabled, _) => SessionTickets::Disabled,
            (_, Some(rotation)) => SessionTickets::Keys(rotation.keys.clone()),
            (_, None) => SessionTickets::Process,
        }
    }
}

impl Drop for Tickets {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

fn report(error: &Error) {
    let end = match error {
        Error::Random | Error::BadValue(..) => "the next keys are made",
        _ => "the storage works again",
    };
    tracing::error!("session tickets: {error}; sessions of other servers are not resumed until {end}");
}

impl Rotation {
    /// Replaces the keys when they are due, until it is aborted. `has_failed`: the storage has failed, and the log has
    /// that.
    async fn run(self: Arc<Self>, mut has_failed: bool) {
        loop {
            let left = || locked(&self.record).left(self.interval, SystemTime::now());
            tokio::time::sleep(if has_failed { STORAGE_PAUSE } else { left().min(SLEEP_MAX) }).await;
            if !has_failed && !left().is_zero() {
                continue;
            }
            let at_work = Arc::clone(&self);
            let refreshed = blocking(move || at_work.refresh(SystemTime::now())).await;
            match refreshed {
                Ok(Ok(())) => {
                    if has_failed {
                        tracing::info!("session tickets: the storage works again");
                    }
                    has_failed = false;
                }
                Ok(Err(error)) => {
                    if !has_failed {
                        report(&error);
                    }
                    has_failed = true;
                }
                // The task has panicked, or the runtime is shutting down.
                Err(_) => has_failed = true,
            }
        }
    }

    /// Takes the keys of the storage, and makes a new one if it is due. Blocks.
    fn refresh(&self, now: SystemTime) -> Result<(), Error> {
        let Some(storage) = &self.storage else {
            let mut record = locked(&self.record);
            if record.is_due(self.interval, now) {
                record.rotate(self.interval, self.max_keys, now)?;
                self.keys.replace(&record.keys);
            }
            return Ok(());
        };
        // Of several servers one makes the new key, and the others then find it.
        let lock = storage.lock(LOCK)?;
        let text = storage.load(STORED)?;
        let found = text.map(|text| KeyRecord::parse(&text)).transpose().unwrap_or_else(|why| {
            tracing::warn!(
                "{}: replacing keys of session tickets that cannot be decoded: {why}",
                storage.location(STORED)
            );
            None
        });
        let record = match found {
            Some(found) if !found.is_due(self.interval, now) => found,
            found => {
                let mut record = found.unwrap_or_else(|| locked(&self.record).clone());
                if record.is_due(self.interval, now) {
                    record.rotate(self.interval, self.max_keys, now)?;
                }
                let text =
                    serde_json::to_vec(&record).map_err(|error| Error::BadValue(STORED.into(), error.to_string()))?;
                lock.store(STORED, &text, Durability::Unflushed)?;
                record
            }
        };
        self.keys.replace(&record.keys);
        *locked(&self.record) = record;
        Ok(())
    }
}

impl fmt::Debug for KeyRecord {
    /// The keys are secrets, so this shows only their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, next_rotation, interval_s } = self;
        let mut record = f.debug_struct("KeyRecord");
        record.field("keys", &keys.len()).field("next_rotation", next_rotation).field("interval_s", interval_s).finish()
    }
}

impl KeyRecord {
    /// # Errors
    /// The reason why the text is not a record.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match record.keys.len() {
            1..=KEYS_MAX => Ok(record),
            count => Err(format!("found {count} keys, expected 1 to {KEYS_MAX}")),
        }
    }

    fn is_due(&self, interval: Duration, now: SystemTime) -> bool {
        self.left(interval, now).is_zero()
    }

    /// Returns the time until the next key is due; zero if it is. `interval` is that of this server.
    fn left(&self, interval: Duration, now: SystemTime) -> Duration {
        let left = Duration::from_secs(self.next_rotation.saturating_sub(seconds(now)));
        // The server that made the last key may have a longer interval than this one.
        let longest = interval.max(Duration::from_secs(self.interval_s));
        // Twice, so that clocks may differ. A time beyond that comes from a server whose clock was wrong: without this
        // bound its key would seal tickets until then.
        if left > longest.saturating_mul(2) { Duration::ZERO } else { left }
    }

    /// Puts a new key before the others.
    fn rotate(&mut self, interval: Duration, max_keys: usize, now: SystemTime) -> Result<(), Error> {
        self.keys.insert(0, TicketKeys::generate().ok_or(Error::Random)?);
        self.keys.truncate(max_keys.max(1));
        self.interval_s = interval.as_secs().max(1);
        self.next_rotation = seconds(now).saturating_add(self.interval_s);
        Ok(())
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use causeway_certs::FileStorage;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn rotation(storage: &SharedStorage, now: SystemTime) -> Rotation {
        let mut record = KeyRecord { keys: Vec::new(), next_rotation: 0, interval_s: 0 };
        record.rotate(HOUR, 2, now).unwrap();
        let keys = TicketKeys::new(&record.keys, HOUR).unwrap();
        Rotation { interval: HOUR, max_keys: 2, storage: Some(storage.clone()), record: Mutex::new(record), keys }
    }

    fn keys(rotation: &Rotation) -> Vec<TicketSecret> {
        locked(&rotation.record).keys.clone()
    }

    // Caddy's documentation of `tls.stek.distributed`: servers with one storage have the same keys. One of them makes
    // the next key, and the oldest leaves.
    #[test]
    fn servers_share_keys() {
        let directory = std::env::temp_dir().join(format!("causeway-tickets-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let storage: SharedStorage = Arc::new(FileStorage::new(&directory));
        let now = SystemTime::now();
        let [one, other] = [(); 2].map(|()| rotation(&storage, now));
        assert_ne!(keys(&one), keys(&other));
        one.refresh(now).unwrap();
        other.refresh(now).unwrap();
        let first = keys(&one);
        assert_eq!(first, keys(&other));
        let mut before = first[0];
        for round in 1..4 {
            let later = now + HOUR * round;
            other.refresh(later).unwrap();
            one.refresh(later).unwrap();
            assert_eq!(keys(&one), keys(&other));
            assert_eq!((keys(&one).len(), keys(&one)[1]), (2, before), "{round}");
            before = keys(&one)[0];
        }
        let later = now + HOUR * 3;
        // A damaged value is replaced by the keys in use.
        for damaged in ["", "{}", r#"{"keys":[],"next_rotation":1}"#, "\u{0}"] {
            let in_use = keys(&one);
            storage.store(STORED, damaged.as_bytes(), Durability::Unflushed).unwrap();
            one.refresh(later).unwrap();
            other.refresh(later).unwrap();
            assert_eq!((keys(&one), keys(&other)), (in_use.clone(), in_use), "{damaged}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
        // A storage that cannot be used leaves the keys in use.
        std::fs::write(&directory, "a file").unwrap();
        let in_use = keys(&one);
        assert!(one.refresh(now + HOUR * 9).is_err());
        assert_eq!(keys(&one), in_use);
        std::fs::remove_file(&directory).unwrap();
    }

    // A value of the storage may be anything, and a server with a wrong clock stores a time in the far future.
    #[test]
    fn times_of_the_next_rotation() {
        let now = SystemTime::UNIX_EPOCH + HOUR * 1000;
        let at = |hours: u32| seconds(SystemTime::UNIX_EPOCH + HOUR * hours);
        for (next_rotation, interval_s, left) in [
            (0, 0, Duration::ZERO),
            (at(1000), 0, Duration::ZERO),
            (at(1000) + 1, 0, Duration::from_secs(1)),
            (at(1001), at(1), HOUR),
            (at(1002), 0, HOUR * 2),
            (at(1002) + 1, 0, Duration::ZERO),
            (at(1010), at(10), HOUR * 10),
            (at(1021), at(10), Duration::ZERO),
            (u64::MAX, at(1), Duration::ZERO),
            (i64::MAX as u64 + 1, 0, Duration::ZERO),
        ] {
            let record = KeyRecord { keys: Vec::new(), next_rotation, interval_s };
            assert_eq!(record.left(HOUR, now), left, "{next_rotation} {interval_s}");
            assert_eq!(record.is_due(HOUR, now), left.is_zero());
        }
        let old = KeyRecord::parse(format!("{{\"keys\":[{:?}],\"next_rotation\":7}}", [1; 32]).as_bytes());
        assert_eq!(old, Ok(KeyRecord { keys: vec![[1; 32]], next_rotation: 7, interval_s: 0 }));
    }

    #[test]
    fn no_key_is_shown() {
        let record = KeyRecord { keys: vec![[170; 32]; 3], next_rotation: 7, interval_s: 1 };
        assert_eq!(format!("{record:?}"), "KeyRecord { keys: 3, next_rotation: 7, interval_s: 1 }");
    }

    // A reload ends no session: with equal settings the keys stay.
    #[tokio::test]
    async fn reloads() {
        let default_storage: SharedStorage = Arc::new(FileStorage::new(""));
        let setting =
            |max_keys| plan::SessionTickets::Rotating { interval: HOUR, max_keys, source: TicketKeySource::Standard };
        let open = |setting: &_, before: Option<&Tickets>| {
            Tickets::open(setting, &default_storage, Path::new(""), before).unwrap()
        };
        let first = open(&setting(2), None);
        let same = open(&setting(2), Some(&first));
        let other = open(&setting(3), Some(&same));
        let keys = |tickets: &Tickets| keys(tickets.rotation.as_ref().unwrap());
        assert_eq!(keys(&first), keys(&same));
        assert_ne!(keys(&first), keys(&other));
        let disabled = open(&plan::SessionTickets::Disabled, None);
        assert!(matches!(disabled.session_tickets(), SessionTickets::Disabled));
        assert!(matches!(other.session_tickets(), SessionTickets::Keys(_)));
    }
}
