//! The secret that protects our records during a handshake, for the alerts that rustls does not send.
//!
//! For some faults rustls returns an error without an alert, and it seals no alert of the caller's before the handshake
//! is over. A peer that already has our keys rejects an alert in the clear, so this module derives the keys to seal
//! one: rustls's key log exposes the secret, and RFC 8446 §7.3 or RFC 5246 §6.3 define the derivation.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::tls13::OkmBlock;
use rustls::{ConnectionTrafficSecrets, KeyLog, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use super::record::Sealer;

/// The key log's label of TLS 1.2's master secret.
const MASTER: &str = "CLIENT_RANDOM";
/// Length of a hello's random value.
const RANDOM_BYTES: usize = 32;
/// Length of the longest secret: SHA-384's output, and TLS 1.2's master secret.
const SECRET_BYTES_MAX: usize = 48;

/// A server's or a client's random value (RFC 5246 §7.4.1.2).
pub(super) type HelloRandom = [u8; RANDOM_BYTES];

/// A key log that keeps one secret. Each handshake has its own.
pub(super) struct WriteSecret {
    /// The key log's label of the secret that protects our next record in TLS 1.3.
    label: &'static str,
    is_client: bool,
    /// A mutex because rustls's key log must be `Sync`, and a handshake may run a step on another thread. Never
    /// contended.
    kept: Mutex<Option<LoggedSecret>>,
}

/// A secret as rustls logged it.
struct LoggedSecret {
    client_random: HelloRandom,
    secret: [u8; SECRET_BYTES_MAX],
    len: usize,
}

// By hand: the secret must not reach a log.
impl fmt::Debug for WriteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteSecret").finish_non_exhaustive()
    }
}

impl KeyLog for WriteSecret {
    fn will_log(&self, label: &str) -> bool {
        label == self.label || label == MASTER
    }

    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if !self.will_log(label) || secret.len() > SECRET_BYTES_MAX {
            return;
        }
        let Ok(client_random) = client_random.try_into() else { return };
        let mut kept = LoggedSecret { client_random, secret: [0; SECRET_BYTES_MAX], len: secret.len() };
        kept.secret[..secret.len()].copy_from_slice(secret);
        *self.kept() = Some(kept);
    }
}

impl WriteSecret {
    /// For a server. It sends with its application keys after its Finished, and detects faults of the client only
    /// later.
    pub(super) fn server() -> Self {
        Self { label: "SERVER_TRAFFIC_SECRET_0", is_client: false, kept: Mutex::default() }
    }

    /// For a client. It sends with its handshake keys after the ServerHello, and sends no record before the server's
    /// Finished.
    pub(super) fn client() -> Self {
        Self { label: "CLIENT_HANDSHAKE_TRAFFIC_SECRET", is_client: true, kept: Mutex::default() }
    }

    /// For a server before its Finished, which sends with its handshake keys; a peer in tests.
    #[cfg(test)]
    pub(super) fn early_server() -> Self {
        Self { label: "SERVER_HANDSHAKE_TRAFFIC_SECRET", is_client: false, kept: Mutex::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<LoggedSecret>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether rustls has logged the secret, so our next record is protected.
    pub(super) fn is_known(&self) -> bool {
        self.kept().is_some()
    }

    /// Drops the secret. Called when the handshake is over.
    pub(super) fn forget(&self) {
        *self.kept() = None;
    }

    /// Returns a sealer for our next record: the first under its keys in TLS 1.3, the one after Finished in TLS 1.2.
    pub(super) fn sealer(&self, suite: SupportedCipherSuite, server_random: Option<&HelloRandom>) -> Option<Sealer> {
        let (sequence, secrets) = self.secrets(suite, server_random)?;
        Sealer::new(suite, sequence, &secrets)
    }

    /// Derives the keys. Returns them with the sequence number of the next record.
    pub(super) fn secrets(
        &self,
        suite: SupportedCipherSuite,
        server_random: Option<&HelloRandom>,
    ) -> Option<(u64, ConnectionTrafficSecrets)> {
        let kept = self.kept();
        let kept = kept.as_ref()?;
        match suite {
            SupportedCipherSuite::Tls13(suite) => Some((0, kept.tls13(suite)?)),
            SupportedCipherSuite::Tls12(suite) => Some((1, kept.tls12(suite, self.is_client, server_random?)?)),
        }
    }
}

impl LoggedSecret {
    fn tls13(&self, suite: &'static Tls13CipherSuite) -> Option<ConnectionTrafficSecrets> {
        let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(&self.secret[..self.len]));
        // RFC 8446 §7.1: HKDF-Expand-Label with an empty context.
        let expand = |label: &[u8], out: &mut [u8]| {
            let len = u8::try_from(out.len()).ok()?;
            let label_len = u8::try_from(label.len()).ok()?;
            expander.expand_slice(&[&[0, len, label_len], label, &[0]], out).ok()
        };
        let (mut key, mut iv) = ([0; 32], [0; 12]);
        expand(b"tls13 key", key.get_mut(..suite.aead_alg.key_len())?)?;
        expand(b"tls13 iv", &mut iv)?;
        suite.aead_alg.extract_keys(AeadKey::from(key), Iv::from(iv)).ok()
    }

    fn tls12(
        &self,
        suite: &'static Tls12CipherSuite,
        is_client: bool,
        server_random: &HelloRandom,
    ) -> Option<ConnectionTrafficSecrets> {
        let shape = suite.aead_alg.key_block_shape();
        let (key_len, iv_len) = (shape.enc_key_len, shape.fixed_iv_len);
        // RFC 5246 §6.3: the client's key, the server's key, and the fixed parts of their nonces; rustls appends the
        // start value of GCM's explicit part. An AEAD has no MAC key.
        let mut block = vec![0; 2 * (key_len + iv_len) + shape.explicit_nonce_len];
        let seed = [&server_random[..], &self.client_random].concat();
        suite.prf_provider.for_secret(&mut block, &self.secret[..self.len], b"key expansion", &seed);
        let (keys, rest) = block.split_at_checked(2 * key_len)?;
        let (ivs, explicit) = rest.split_at_checked(2 * iv_len)?;
        let side = usize::from(!is_client);
        let mut key = [0; 32];
        key.get_mut(..key_len)?.copy_from_slice(&keys[side * key_len..][..key_len]);
        let iv = &ivs[side * iv_len..][..iv_len];
        suite.aead_alg.extract_keys(AeadKey::from(key), iv, explicit).ok()
    }
}
