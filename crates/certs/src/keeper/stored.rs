//! Certificates in storage: `certificates/AUTHORITY/NAME/NAME.crt`, `.key` and `.json`, as Caddy writes them.

use std::num::NonZero;
use std::thread;
use std::time::SystemTime;

use super::{IssuedCertificate, PublicCertificateSpec, PublicState};
use crate::storage::{SharedStorage, Storage, safe_key};
use crate::{Certificate, Error, ocsp, pem};

/// How many threads read certificates from storage, at most; and how many certificates are worth a thread.
const LOAD_THREADS_MAX: usize = 8;
const LOAD_PART_MIN: usize = 64;

/// The certificate in storage. `None` if there is none, or if it is malformed: the caller replaces it.
pub(super) fn stored(authority: &str, name: &str, storage: &dyn Storage) -> Result<Option<Certificate>, Error> {
    let [chain_path, key_path, _] = storage_keys(authority, name);
    let (Some(chain), Some(key)) = (storage.load(&chain_path)?, storage.load(&key_path)?) else { return Ok(None) };
    let (chain_location, key_location) = (storage.location(&chain_path), storage.location(&key_path));
    let read = pem::chain(&chain, &chain_location).and_then(|chain| {
        Certificate::new(chain, pem::key(&key, &key_location)?, Vec::new(), (&chain_location, &key_location))
    });
    Ok(read.inspect_err(|error| tracing::warn!("{error}; obtaining a new certificate")).ok())
}

/// The certificate in storage that stays valid the longest, of all the name's authorities.
pub(super) fn stored_public(
    public: &PublicCertificateSpec,
    storage: &dyn Storage,
) -> Result<Option<IssuedCertificate>, Error> {
    let mut best: Option<(Certificate, &String)> = None;
    for authority in &public.authorities {
        let Some(found) = stored(authority, &public.name, storage)? else { continue };
        if best.as_ref().is_none_or(|(best, _)| best.not_after() < found.not_after()) {
            best = Some((found, authority));
        }
    }
    Ok(best.map(|(best, authority)| IssuedCertificate::new(best, authority)))
}

/// Reads the names' certificates from storage, on several threads: parsing and checking the keys of 10 000 names takes
/// more than a second of processor time. A certificate that storage cannot return is reported and obtained again.
/// `default_storage`: the storage of names without one of their own.
pub(super) fn load_all(
    names: Vec<PublicCertificateSpec>,
    default_storage: &SharedStorage,
    now: SystemTime,
) -> Vec<(String, PublicState)> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(LOAD_THREADS_MAX);
    let load = |public: PublicCertificateSpec| {
        let storage = &**public.storage.as_ref().unwrap_or(default_storage);
        let issued = stored_public(&public, storage).unwrap_or_else(|error| {
            tracing::error!("{}: cannot look for its certificate in storage: {error}", public.name);
            None
        });
        if let Some(issued) = &issued {
            ocsp::restore(&issued.certificate, &public.ocsp, storage, now);
        }
        (public.name.clone(), PublicState { public, issued })
    };
    let part_len = names.len().div_ceil(threads).max(LOAD_PART_MIN);
    let mut names = names.into_iter();
    thread::scope(|scope| {
        let load = &load;
        let mut parts = Vec::new();
        loop {
            let part: Vec<_> = names.by_ref().take(part_len).collect();
            if part.is_empty() {
                break;
            }
            parts.push(scope.spawn(move || part.into_iter().map(load).collect::<Vec<_>>()));
        }
        parts.into_iter().flat_map(|part| part.join().expect("reading a certificate does not panic")).collect()
    })
}

/// The storage keys `certificates/AUTHORITY/NAME/NAME.crt`, `.key` and `.json`.
pub(super) fn storage_keys(authority: &str, name: &str) -> [String; 3] {
    let name = safe_key(name);
    let prefix = format!("certificates/{}/{name}/{name}", safe_key(authority));
    ["crt", "key", "json"].map(|extension| format!("{prefix}.{extension}"))
}

/// The JSON file that Caddy writes next to a certificate. A host name contains no character that JSON escapes.
pub(super) fn meta(name: &str) -> String {
    format!("{{\n\t\"sans\": [\n\t\t\"{name}\"\n\t],\n\t\"issuer_data\": null\n}}")
}
