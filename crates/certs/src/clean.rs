//! Removes values that are of no use any more from a storage, as CertMagic does: certificates that expired two weeks
//! ago, OCSP responses that have ended, and challenges of orders that ended without removing them.
//!
//! One process at a time cleans, and no process soon after another one: `last_clean.json`, which Caddy shares, has the
//! time of the last clean-up.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::certificate::moment;
use super::replace::Durability;
use super::storage::Storage;
use super::{Error, ocsp, pem};

/// How long an expired certificate stays; Caddy's value.
const CERTIFICATE_GRACE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Age from which a challenge belongs to no order in progress. No order takes an hour; the clocks of a fleet may
/// differ.
const CHALLENGE_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
const LAST_CLEAN: &str = "last_clean.json";

/// The outcome of [`clean`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleaned {
    /// The numbers of removed values.
    Removed {
        /// Certificates with their keys.
        certificates: usize,
        /// Challenges.
        challenges: usize,
        /// OCSP responses.
        responses: usize,
    },
    /// Another process has cleaned the storage within the interval; the time until the next clean-up.
    NotDue(Duration),
}

/// The content of `last_clean.json`: CertMagic's entry of the app `tls`.
#[derive(Serialize, Deserialize)]
struct LastClean {
    tls: LastCleanTls,
}

#[derive(Serialize, Deserialize)]
struct LastCleanTls {
    timestamp: String,
}

/// Cleans a storage, unless a process has done so within `interval`. Blocks on storage. A value that cannot be read or
/// removed is reported and stays.
///
/// # Errors
/// If the storage cannot be locked or listed, or the time of the clean-up cannot be stored.
pub fn clean(storage: &dyn Storage, interval: Duration, now: SystemTime) -> Result<Cleaned, Error> {
    let lock = storage.lock("storage_clean")?;
    if let Some(last) = last_clean(storage)? {
        let due = last + interval;
        // A time far in the future is that of a clock that was wrong.
        if let Ok(left) = due.duration_since(now)
            && !left.is_zero()
            && left <= 2 * interval
        {
            return Ok(Cleaned::NotDue(left));
        }
    }
    let certificates = clean_certificates(storage, now)?;
    let challenges = clean_challenges(storage, now)?;
    let responses = clean_responses(storage, now)?;
    let timestamp = OffsetDateTime::from(now).format(&Rfc3339).unwrap_or_default();
    let record = LastClean { tls: LastCleanTls { timestamp } };
    lock.store(LAST_CLEAN, &serde_json::to_vec(&record).unwrap_or_default(), Durability::Unflushed)?;
    Ok(Cleaned::Removed { certificates, challenges, responses })
}

/// The time of the last clean-up; `None` if there was none, or its record is malformed.
fn last_clean(storage: &dyn Storage) -> Result<Option<SystemTime>, Error> {
    let Some(text) = storage.load(LAST_CLEAN)? else { return Ok(None) };
    let record: Option<LastClean> = serde_json::from_slice(&text).ok();
    let at = record.and_then(|record| OffsetDateTime::parse(&record.tls.timestamp, &Rfc3339).ok());
    if at.is_none() {
        tracing::warn!("{}: found no record of an earlier clean-up; cleaning now", storage.location(LAST_CLEAN));
    }
    Ok(at.map(SystemTime::from))
}

fn clean_certificates(storage: &dyn Storage, now: SystemTime) -> Result<usize, Error> {
    let mut removed = 0;
    for chain_path in storage.list("certificates")?.iter().filter(|key| key.ends_with(".crt")) {
        match remove_expired(storage, chain_path, now) {
            Ok(true) => removed += 1,
            Ok(false) => {}
            Err(error) => tracing::warn!("cleaning the storage: {error}"),
        }
    }
    Ok(removed)
}

/// Removes a certificate with its key, if it expired long ago. Returns whether it did.
fn remove_expired(storage: &dyn Storage, chain_path: &str, now: SystemTime) -> Result<bool, Error> {
    let is_expired = |leaf: &Leaf| leaf.not_after + CERTIFICATE_GRACE <= now;
    let Some(Leaf { name, .. }) = leaf(storage, chain_path)?.filter(is_expired) else { return Ok(false) };
    // Under the name's lock, because a server may be about to store a new certificate for the name.
    let _lock = storage.lock(&format!("issue_cert_{name}"))?;
    if leaf(storage, chain_path)?.as_ref().is_none_or(|leaf| !is_expired(leaf)) {
        return Ok(false);
    }
    let stem = chain_path.strip_suffix(".crt").unwrap_or(chain_path);
    // The chain goes last: the next clean-up finds the rest of a pair by its chain.
    for at in [&format!("{stem}.key"), &format!("{stem}.json"), chain_path] {
        storage.delete(at)?;
    }
    tracing::info!("{}: removed a certificate that expired more than two weeks ago", storage.location(chain_path));
    Ok(true)
}

struct Leaf {
    name: String,
    not_after: SystemTime,
}

/// Reads a certificate's first name and expiry; `None` if storage has none by now. Unlike for serving, the key does not
/// matter.
fn leaf(storage: &dyn Storage, chain_path: &str) -> Result<Option<Leaf>, Error> {
    let Some(text) = storage.load(chain_path)? else { return Ok(None) };
    let location = storage.location(chain_path);
    let chain = pem::chain(&text, &location)?;
    let (_, parsed) = X509Certificate::from_der(&chain[0])
        .map_err(|error| Error::BadCertificate(location.clone(), error.to_string()))?;
    let name = super::certificate::names(&parsed).into_iter().next().ok_or(Error::NoName(location))?;
    Ok(Some(Leaf { name, not_after: moment(parsed.validity().not_after) }))
}

fn clean_challenges(storage: &dyn Storage, now: SystemTime) -> Result<usize, Error> {
    let mut removed = 0;
    for at in storage.list("acme")?.iter().filter(|key| key.contains("/challenge_tokens/")) {
        let cleaned = storage.modified(at).and_then(|modified| {
            let is_stale = modified.is_some_and(|modified| modified + CHALLENGE_GRACE <= now);
            if is_stale {
                storage.delete(at)?;
            }
            Ok(is_stale)
        });
        match cleaned {
            Ok(is_stale) => removed += usize::from(is_stale),
            Err(error) => tracing::warn!("cleaning the storage: {error}"),
        }
    }
    Ok(removed)
}

fn clean_responses(storage: &dyn Storage, now: SystemTime) -> Result<usize, Error> {
    let mut removed = 0;
    for at in &storage.list("ocsp")? {
        let cleaned = storage.load(at).and_then(|found| {
            let is_expired = found.is_some_and(|found| ocsp::is_expired(&found, now));
            if is_expired {
                storage.delete(at)?;
            }
            Ok(is_expired)
        });
        match cleaned {
            Ok(is_expired) => removed += usize::from(is_expired),
            Err(error) => tracing::warn!("cleaning the storage: {error}"),
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
