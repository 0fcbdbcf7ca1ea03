//! The certificates of one configuration: loaded, found in storage, or signed now; and kept fresh while it is served.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize};

use super::authority::SignedBy;
use super::storage::{Lasting, safe};
use super::{Authority, AuthoritySpec, Certificate, Error, FileStorage, Store, pem};

/// The least time between two looks, and the time until another try of what failed.
const LOOK_SOONEST: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(60);

/// What a configuration wants.
#[derive(Debug)]
pub struct Wanted {
    /// Where what must outlive the process is kept.
    pub storage: FileStorage,
    /// Authorities, by their ids.
    pub authorities: Vec<AuthoritySpec>,
    /// What the operator has already.
    pub loaded: Vec<Certificate>,
    /// What is ours to obtain and renew.
    pub managed: Vec<Managed>,
    /// How often at least the dates are looked at.
    pub look_every: Duration,
}

/// A name whose certificate is ours to obtain and renew.
#[derive(Debug, Clone, PartialEq)]
pub struct Managed {
    /// The name, in lower case and ASCII, `*.` in front allowed; or an address.
    pub name: String,
    /// Who signs it.
    pub authority: String,
    /// How long it is valid.
    pub lifetime: Duration,
    /// Whether the root signs it, and no intermediate.
    pub by_root: bool,
    /// The part of its lifetime that is left when it is renewed.
    pub renewal_ratio: f64,
    /// What its key is.
    pub key: KeyKind,
    /// Whether a renewed certificate has the same key.
    pub reuse_key: bool,
}

impl Managed {
    /// A name with all defaults, which are Caddy's: valid for 12 hours, renewed when a third of them is left, P-256.
    pub fn new(name: impl Into<String>, authority: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            authority: authority.into(),
            lifetime: Duration::from_secs(12 * 60 * 60),
            by_root: false,
            renewal_ratio: 1.0 / 3.0,
            key: KeyKind::P256,
            reuse_key: false,
        }
    }
}

/// What a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa2048,
    Rsa4096,
}

/// The certificates of one configuration.
pub struct Keeper {
    store: Arc<Store>,
    storage: FileStorage,
    loaded: Vec<Arc<Certificate>>,
    look_every: Duration,
    kept: Mutex<Kept>,
}

struct Kept {
    authorities: Vec<Authority>,
    held: Vec<(Managed, Arc<Certificate>)>,
}

impl Keeper {
    /// Gets all that is wanted: from the keeper before, from storage, or signed now. Blocks.
    ///
    /// # Errors
    /// The first that cannot be had; what was signed by then is in storage for the next try.
    ///
    /// # Panics
    /// When an authority is named that is not among those given.
    pub fn open(wanted: Wanted, before: Option<&Self>, now: SystemTime) -> Result<Self, Error> {
        let Wanted { storage, authorities, loaded, managed, look_every } = wanted;
        let authorities: Vec<_> =
            authorities.into_iter().map(|spec| Authority::open(spec, &storage, now)).collect::<Result<_, _>>()?;
        let known = before.filter(|before| before.storage == storage).map(Self::held).unwrap_or_default();
        let mut held = Vec::with_capacity(managed.len());
        for managed in managed {
            let authority = authority(&authorities, &managed.authority);
            let known = known.get(&managed.name).filter(|(before, certificate)| {
                *before == managed && now < due(before, certificate) && authority.leads_here(certificate)
            });
            let certificate = match known {
                Some((_, certificate)) => Arc::clone(certificate),
                None => Arc::new(obtain(&managed, authority, &storage, now)?),
            };
            held.push((managed, certificate));
        }
        let keeper = Self {
            store: Arc::default(),
            storage,
            loaded: loaded.into_iter().map(Arc::new).collect(),
            look_every,
            kept: Mutex::new(Kept { authorities, held }),
        };
        keeper.publish(&keeper.kept());
        Ok(keeper)
    }

    /// What handshakes ask.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Looks at the authorities, in the order in which they were given.
    pub fn authorities<T>(&self, look: impl FnMut(&Authority) -> T) -> Vec<T> {
        self.kept().authorities.iter().map(look).collect()
    }

    /// Renews what it is time for, and says when to look again. What cannot be renewed stays as it is, and is tried again.
    /// Blocks.
    pub fn renew(&self, now: SystemTime) -> Duration {
        let mut kept = self.kept();
        let Kept { authorities, held } = &mut *kept;
        let mut failed = false;
        for authority in &mut *authorities {
            match authority.renew(now) {
                Ok(true) => {
                    tracing::info!("certificate authority '{}': its intermediate is renewed", authority.spec().id);
                }
                Ok(false) => {}
                Err(error) => {
                    failed = true;
                    tracing::error!("certificate authority '{}': renewing: {error}", authority.spec().id);
                }
            }
        }
        let mut renewed = false;
        for (managed, certificate) in &mut *held {
            if now < due(managed, certificate) {
                continue;
            }
            match obtain(managed, authority(authorities, &managed.authority), &self.storage, now) {
                Ok(fresh) => {
                    *certificate = Arc::new(fresh);
                    renewed = true;
                }
                Err(error) => {
                    failed = true;
                    tracing::error!("{}: renewing its certificate: {error}", managed.name);
                }
            }
        }
        if renewed {
            self.publish(&kept);
        }
        let dues = kept.held.iter().map(|(managed, certificate)| due(managed, certificate));
        let soonest = dues.chain(kept.authorities.iter().filter_map(Authority::renew_at)).min();
        let until = soonest.map_or(self.look_every, |at| at.duration_since(now).unwrap_or_default());
        let until = until.clamp(LOOK_SOONEST, self.look_every.max(LOOK_SOONEST));
        if failed { until.max(AGAIN) } else { until }
    }

    fn publish(&self, kept: &Kept) {
        let managed = kept.held.iter().map(|(_, certificate)| Arc::clone(certificate));
        self.store.replace(self.loaded.iter().cloned().chain(managed));
    }

    fn held(&self) -> HashMap<String, (Managed, Arc<Certificate>)> {
        self.kept().held.iter().map(|held| (held.0.name.clone(), held.clone())).collect()
    }

    /// A panic while something was signed left nothing half done: each step replaces one value.
    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("storage", &self.storage).field("store", &self.store).finish_non_exhaustive()
    }
}

fn authority<'a>(authorities: &'a [Authority], id: &str) -> &'a Authority {
    authorities.iter().find(|authority| authority.spec().id == id).expect("an authority that is named is given")
}

fn due(managed: &Managed, certificate: &Certificate) -> SystemTime {
    certificate.renew_at(managed.renewal_ratio)
}

/// From storage where it is fresh, or else signed now.
fn obtain(
    managed: &Managed,
    authority: &Authority,
    storage: &FileStorage,
    now: SystemTime,
) -> Result<Certificate, Error> {
    let _lock = storage.lock(&format!("issue_cert_{}", managed.name))?;
    let stored = stored(managed, storage)?;
    let fresh = |certificate: &Certificate| {
        certificate.is_valid(now) && now < due(managed, certificate) && authority.leads_here(certificate)
    };
    if let Some(stored) = stored.filter(fresh) {
        return Ok(stored);
    }
    let failed = |error: rcgen::Error| Error::Sign(managed.name.clone(), error.to_string());
    let [chain_at, key_at, meta_at] = keys(managed);
    let old = if managed.reuse_key { storage.load(&key_at)? } else { None };
    let key = match old.and_then(|text| KeyPair::try_from(&pem::key(&text, &key_at).ok()?).ok()) {
        Some(key) => key,
        None => generate(managed.key).map_err(failed)?,
    };
    let by = if managed.by_root { SignedBy::Root } else { SignedBy::Intermediate };
    let chain = authority.sign(&managed.name, &key, managed.lifetime, by, now)?;
    storage.store(&key_at, key.serialize_pem().as_bytes(), Lasting::No)?;
    storage.store(&chain_at, pem::write_chain(&chain).as_bytes(), Lasting::No)?;
    storage.store(&meta_at, meta(&managed.name).as_bytes(), Lasting::No)?;
    tracing::info!("{}: obtained a certificate of the authority '{}'", managed.name, managed.authority);
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    Certificate::new(chain, der.into(), Vec::new(), (&chain_at, &key_at))
}

/// What storage has for it; what is broken there is replaced.
fn stored(managed: &Managed, storage: &FileStorage) -> Result<Option<Certificate>, Error> {
    let [chain_at, key_at, _] = keys(managed);
    let (Some(chain), Some(key)) = (storage.load(&chain_at)?, storage.load(&key_at)?) else { return Ok(None) };
    let (chain_place, key_place) = (storage.path(&chain_at), storage.path(&key_at));
    let (chain_place, key_place) = (chain_place.display().to_string(), key_place.display().to_string());
    let read = pem::chain(&chain, &chain_place)
        .and_then(|chain| Certificate::new(chain, pem::key(&key, &key_place)?, Vec::new(), (&chain_place, &key_place)));
    Ok(read.inspect_err(|error| tracing::warn!("{error}; another is obtained")).ok())
}

/// `certificates/AUTHORITY/NAME/NAME.crt`, `.key` and `.json`.
fn keys(managed: &Managed) -> [String; 3] {
    let name = safe(&managed.name);
    let prefix = format!("certificates/{}/{name}/{name}", safe(&managed.authority));
    ["crt", "key", "json"].map(|extension| format!("{prefix}.{extension}"))
}

/// What Caddy writes beside a certificate. A name has nothing in it that JSON would want escaped: it is a host's.
fn meta(name: &str) -> String {
    format!("{{\n\t\"sans\": [\n\t\t\"{name}\"\n\t],\n\t\"issuer_data\": null\n}}")
}

fn generate(kind: KeyKind) -> Result<KeyPair, rcgen::Error> {
    match kind {
        KeyKind::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        KeyKind::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        KeyKind::Ed25519 => KeyPair::generate_for(&PKCS_ED25519),
        KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        KeyKind::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
    }
}

#[cfg(test)]
mod tests;
