//! Session tickets (RFC 8446 §4.6.1, RFC 5077 §4): a client keeps its session, sealed by a key of the server.
//!
//! A ticket is `NAME NONCE SEALED TAG`: 16 bytes that select the key, 12 random bytes, the sealed time and session, 16
//! bytes. The time is that of the ticket, as 8 bytes.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use rustls::server::ProducesTickets;

const NAME_BYTES: usize = 16;
const TIME_BYTES: usize = size_of::<u64>();
/// RFC 8446 §4.6.1: a week at most.
const LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How the tickets of a configuration are sealed.
#[derive(Debug, Clone, Default)]
pub enum SessionTickets {
    /// By keys of this process, which rustls rotates every 6 hours.
    #[default]
    Process,
    /// There are none: every handshake is a full one.
    Disabled,
    /// By these keys.
    Keys(TicketKeys),
}

/// Keys that the embedder rotates. Clones share them.
#[derive(Clone)]
pub struct TicketKeys(Arc<SharedKeys>);

struct SharedKeys {
    /// At least one. The first one seals.
    keys: RwLock<Vec<TicketKey>>,
    lifetime: u32,
}

impl TicketKeys {
    /// The first key seals, and all of them open. Clients may use a ticket for `lifetime`, a week at most. `None`
    /// without a key.
    pub fn new(keys: &[[u8; 32]], lifetime: Duration) -> Option<Self> {
        // A week in seconds fits.
        let lifetime = u32::try_from(lifetime.min(LIFETIME_MAX).as_secs().max(1)).ok()?;
        // Derived here, once, and not in each handshake.
        let keys: Vec<_> = keys.iter().map(TicketKey::new).collect::<Option<_>>()?;
        (!keys.is_empty()).then(|| Self(Arc::new(SharedKeys { keys: RwLock::new(keys), lifetime })))
    }

    /// Makes a key. `None` if the random number generator fails.
    pub fn generate() -> Option<[u8; 32]> {
        let mut key = [0; 32];
        rand::fill(&mut key).ok()?;
        Some(key)
    }

    /// Replaces the keys; does nothing without a key. Sessions whose key is gone begin with a full handshake.
    pub fn replace(&self, keys: &[[u8; 32]]) {
        let Some(keys) = keys.iter().map(TicketKey::new).collect::<Option<Vec<_>>>() else { return };
        if !keys.is_empty() {
            *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
    }

    pub(super) fn ticketer(&self) -> Arc<dyn ProducesTickets> {
        Arc::clone(&self.0) as _
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl SharedKeys {
    /// Ignores poisoning: the keys are replaced as a whole.
    fn keys(&self) -> RwLockReadGuard<'_, Vec<TicketKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProducesTickets for SharedKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, SystemTime::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(cipher, SystemTime::now())
    }
}

impl SharedKeys {
    fn encrypt_at(&self, session: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let plain = [&seconds(now).to_be_bytes()[..], session].concat();
        self.keys().first()?.seal(plain)
    }

    fn decrypt_at(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        // The name decides, so that a wrong ticket costs one decryption at most.
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let mut session = self.keys().iter().find(|key| key.name == *name)?.open(rest)?;
        let sealed_at = u64::from_be_bytes(*session.first_chunk::<TIME_BYTES>()?);
        // RFC 8446 §4.6.1: a client caches no ticket for longer than a week. A server must check that, because a key
        // may seal and open for longer, and rustls uses the age of a session only for early data. A ticket from the far
        // future is of a server with a wrong clock.
        if seconds(now).abs_diff(sealed_at) > LIFETIME_MAX.as_secs() {
            return None;
        }
        session.drain(..TIME_BYTES);
        Some(session)
    }
}

/// Seconds since 1970: servers that share keys have this time in common.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// One key. AES-GCM-SIV, because servers that share a key cannot count its nonces together: random ones may repeat
/// there without harm (RFC 8452 §1).
struct TicketKey {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl TicketKey {
    fn new(secret: &[u8; 32]) -> Option<Self> {
        // Two values from one secret: the name is sent in cleartext.
        let derive = |label: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), label);
        let name = *derive(b"causeway ticket name").as_ref().first_chunk()?;
        let key = UnboundKey::new(&AES_256_GCM_SIV, derive(b"causeway ticket key").as_ref()).ok()?;
        Some(Self { name, key: LessSafeKey::new(key) })
    }

    /// Seals `text` in place, as the library requires.
    fn seal(&self, mut text: Vec<u8>) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let nonce_of_key = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_of_key, Aad::from(self.name), &mut text).ok()?;
        Some([&self.name[..], &nonce, &text].concat())
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(self.name), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    // RFC 5077 §4: a ticket is opened by the key that its name selects, and only unchanged. Caddy's `session_tickets`:
    // the newest key seals, and the others still open.
    #[test]
    fn keys_rotate() {
        let [first, second, third] = [[1; 32], [2; 32], [3; 32]];
        let keys = TicketKeys::new(&[first], HOUR).unwrap();
        let ticketer = keys.ticketer();
        let ticket = ticketer.encrypt(b"session").unwrap();
        assert_ne!(ticket, ticketer.encrypt(b"session").unwrap());
        keys.replace(&[second, first]);
        assert_eq!(ticketer.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        let later = ticketer.encrypt(b"").unwrap();
        keys.replace(&[third, second]);
        assert_eq!((ticketer.decrypt(&ticket), ticketer.decrypt(&later)), (None, Some(Vec::new())));
        keys.replace(&[]);
        assert!(ticketer.decrypt(&later).is_some(), "there is always a key");
        // Another server with the same keys.
        let other = TicketKeys::new(&[second], HOUR).unwrap();
        assert!(other.ticketer().decrypt(&later).is_some());
        assert!(TicketKeys::new(&[], HOUR).is_none());
        let long = TicketKeys::new(&[first], 1000 * HOUR).unwrap();
        assert_eq!((ticketer.lifetime(), long.ticketer().lifetime()), (3600, 604_800));
    }

    // RFC 8446 §4.6.1: a week at most, however long its key lives.
    #[test]
    fn tickets_expire() {
        let keys = TicketKeys::new(&[[1; 32]], 1000 * HOUR).unwrap();
        let now = SystemTime::now();
        let ticket = keys.0.encrypt_at(b"session", now).unwrap();
        let after = |age| keys.0.decrypt_at(&ticket, now + age).is_some();
        assert_eq!([HOUR, LIFETIME_MAX, LIFETIME_MAX + HOUR].map(after), [true, true, false]);
        // Clocks of servers differ.
        let before = |age| keys.0.decrypt_at(&ticket, now - age).is_some();
        assert_eq!([HOUR, LIFETIME_MAX + HOUR].map(before), [true, false]);
        // A ticket that is sealed by the key and too short for a time.
        let short = keys.0.keys()[0].seal(b"session".to_vec()).unwrap();
        assert_eq!(keys.0.decrypt_at(&short, now), None);
    }

    // The peer sends the ticket, so it may be any bytes.
    #[test]
    fn malformed_tickets() {
        let ticketer = TicketKeys::new(&[[1; 32]], HOUR).unwrap().ticketer();
        let ticket = ticketer.encrypt(b"session").unwrap();
        for end in 0..ticket.len() {
            assert_eq!(ticketer.decrypt(&ticket[..end]), None, "{end}");
        }
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(ticketer.decrypt(&changed), None, "{at}");
        }
        assert_eq!(ticketer.decrypt(&[&ticket[..], b"x"].concat()), None);
    }
}
