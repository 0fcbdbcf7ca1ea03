//! The certificates of one configuration: loads, finds in storage or signs them, and renews them while they are served.
//!
//! - `stored`: certificates in storage, in Caddy's layout; `carried`: those of the previous configuration

mod carried;
mod stored;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize,
};

use super::authority::SignedBy;
use super::replace::Durability;
use super::storage::{LOCK_TIMEOUT, StorageRequirement, lock_if_free, lock_if_writable};
use super::{
    Authority, AuthoritySpec, Certificate, CertificateSelection, Error, Lock, OcspPolicy, SharedStorage, Storage,
    Store, ocsp, pem,
};
use carried::carry_public;
use stored::{meta, storage_keys, stored, stored_public};

/// The shortest time between two renewal checks.
const RENEWAL_CHECK_PAUSE_MIN: Duration = Duration::from_secs(1);
/// The time until a retry after a failure.
const RENEWAL_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// How long a load, or a handshake, waits for names whose locks are held elsewhere: for an order of a public authority,
/// which takes minutes, or for another server that signs at this moment. Then it signs without storing.
const LOAD_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Names of a wrong certificate that its error lists.
const OTHER_NAMES_MAX: usize = 10;

/// The certificates that a configuration needs, and the means to obtain them.
#[derive(Debug)]
pub struct CertificatePlan {
    /// Persistent storage for authorities and certificates without one of their own, and for OCSP responses of supplied
    /// certificates.
    pub storage: SharedStorage,
    /// The authorities, each with a distinct ID.
    pub authorities: Vec<AuthoritySpec>,
    /// The certificates that the operator supplies. They are never renewed.
    pub loaded: Vec<Certificate>,
    /// How they get an OCSP response.
    pub loaded_ocsp: OcspPolicy,
    /// Conditions by which certificates of all kinds have further tags.
    pub selections: Vec<CertificateSelection>,
    /// The names whose certificates the keeper obtains and renews.
    pub local: Vec<LocalCertificateSpec>,
    /// The names whose certificates public authorities sign.
    pub public: Vec<PublicCertificateSpec>,
    /// The longest time between two renewal checks.
    pub renewal_check_interval: Duration,
}

/// A name whose certificate a public authority signs. The keeper finds its certificate in storage and serves it; the
/// caller obtains new ones ([`Keeper::public_renew_at`], [`Keeper::install_public`]).
#[derive(Debug, Clone, PartialEq)]
pub struct PublicCertificateSpec {
    /// The name in lower-case ASCII; or an IP address.
    pub name: String,
    /// The storage names of the authorities, in order of preference.
    pub authorities: Vec<String>,
    /// The certificate is renewed when this fraction of its lifetime remains.
    pub renewal_ratio: f64,
    /// How the certificate gets an OCSP response.
    pub ocsp: OcspPolicy,
    /// Where the certificate is stored. `None`: in the plan's storage.
    pub storage: Option<SharedStorage>,
    /// A handshake has caused the order. The caller removes the name when its certificate is due and no handshake has
    /// used it.
    pub on_demand: bool,
}

/// A name whose certificate the keeper obtains and renews.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalCertificateSpec {
    /// The name in lower-case ASCII, optionally with `*.` in front; or an IP address.
    pub name: String,
    /// The ID of the authority that signs.
    pub authority: String,
    /// Lifetime of the certificate.
    pub lifetime: Duration,
    /// Whether the root signs directly, without the intermediate.
    pub by_root: bool,
    /// The certificate is renewed when this fraction of its lifetime remains.
    pub renewal_ratio: f64,
    /// The kind of key to generate.
    pub key: KeyKind,
    /// Whether a renewed certificate reuses the key.
    pub reuse_key: bool,
    /// Where the certificate is stored. `None`: in the plan's storage.
    pub storage: Option<SharedStorage>,
    /// A handshake has caused the signature. The keeper drops the name instead of renewing a certificate that was not
    /// used.
    pub on_demand: bool,
}

impl LocalCertificateSpec {
    /// A name with Caddy's defaults: valid for 12 hours, renewed when a third of that remains, a P-256 key.
    pub fn new(name: impl Into<String>, authority: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            authority: authority.into(),
            lifetime: Duration::from_secs(12 * 60 * 60),
            by_root: false,
            renewal_ratio: 1.0 / 3.0,
            key: KeyKind::P256,
            reuse_key: false,
            storage: None,
            on_demand: false,
        }
    }
}

/// The algorithm and size of a generated key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa2048,
    Rsa4096,
}

/// A name whose certificate the keeper serves or waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRecord {
    /// The name in lower-case ASCII.
    pub name: String,
    /// The ID of the local authority that signs, or the storage name of the public authority that has signed; `None`:
    /// none has signed yet.
    pub authority: Option<String>,
    /// The end of the certificate's validity; `None`: there is no certificate yet.
    pub not_after: Option<SystemTime>,
    /// The date from which the certificate is to be renewed.
    pub renew_at: Option<SystemTime>,
    /// A handshake has caused the certificate to be obtained.
    pub on_demand: bool,
    /// Why a local authority has signed no new certificate since the last one was due.
    pub failure: Option<RenewalFailure>,
}

/// The failed renewals of a local authority's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalFailure {
    /// The last reason, in one line.
    pub error: String,
    /// The number of failures since the last success.
    pub failures: usize,
    /// The time of the next attempt.
    pub retry_at: SystemTime,
}

/// Serves the certificates of one configuration and renews the local ones. Shared between the handshakes, which use
/// only the store; the thread that calls [`renew`](Self::renew); the tasks that obtain those of public authorities and
/// of handshakes; and the ACME server.
pub struct Keeper {
    store: Arc<Store>,
    storage: SharedStorage,
    renewal_check_interval: Duration,
    /// The supplied certificates that name an OCSP responder.
    stapled: (Vec<Arc<Certificate>>, OcspPolicy),
    /// Without a lock: a renewal can wait for the locks of storage for minutes, and others use the authorities
    /// meanwhile.
    authorities: Vec<Authority>,
    state: Mutex<KeeperState>,
}

struct KeeperState {
    local: Vec<(LocalCertificateSpec, Arc<Certificate>)>,
    /// By name: a public authority's certificate, once there is one. A map, because there can be thousands of names.
    public: HashMap<String, PublicState>,
    /// When the next renewal check is due.
    next_check: SystemTime,
    /// By name: the last reason of each name that could not be renewed, and the number of failures.
    failures: HashMap<String, (String, usize)>,
}

#[derive(Clone)]
struct PublicState {
    public: PublicCertificateSpec,
    issued: Option<IssuedCertificate>,
}

/// A certificate whose OCSP responses are to be fetched.
#[derive(Debug, Clone)]
pub struct OcspTarget {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// The URL of its responder.
    pub responder: String,
    /// Where its responses are stored.
    pub storage: SharedStorage,
}

/// The certificate of a public name, from a public authority or from the local one of its fallback.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// The authority's name in storage keys.
    pub authority: String,
    /// The configuration no longer names its authority or its storage. The certificate serves until there is another
    /// one, which is due at once.
    pub is_superseded: bool,
}

impl Keeper {
    /// Obtains every local certificate: from the previous configuration's keeper, from storage, or newly signed.
    /// Blocks on disk and on signatures.
    ///
    /// # Errors
    /// Returns the first failure. Certificates signed before it are in storage, so a retry finds them.
    ///
    /// # Panics
    /// Panics if a local name refers to an authority that is not in `wanted`.
    pub fn open(wanted: CertificatePlan, before: Option<&Self>, now: SystemTime) -> Result<Self, Error> {
        let CertificatePlan {
            storage,
            authorities,
            loaded,
            loaded_ocsp,
            selections,
            local: specs,
            public,
            renewal_check_interval,
        } = wanted;
        let authorities: Vec<_> =
            authorities.into_iter().map(|spec| Authority::open(spec, &storage, now)).collect::<Result<_, _>>()?;
        // A certificate carries over if its settings and the storage are unchanged, it is not due, and its authority
        // still has the root that issued it.
        let known = before
            .filter(|before| before.storage.identity() == storage.identity())
            .map(Self::local_by_name)
            .unwrap_or_default();
        let mut local = Vec::with_capacity(specs.len());
        let mut lock_timeout = LOAD_LOCK_TIMEOUT;
        for spec in specs {
            let authority = authority(&authorities, &spec.authority);
            let known = known.get(&spec.name).filter(|(before, certificate)| {
                *before == spec && !is_due(before, certificate, now) && authority.issued(certificate)
            });
            let certificate = match known {
                Some((_, certificate)) => Arc::clone(certificate),
                None => {
                    let storage = &**spec.storage.as_ref().unwrap_or(&storage);
                    Arc::new(obtain(&spec, authority, storage, (StorageRequirement::Optional, &mut lock_timeout), now)?)
                }
            };
            local.push((spec, certificate));
        }
        let public = carry_public(public, before, &storage, now);
        let loaded: Vec<_> = loaded.into_iter().map(Arc::new).collect();
        let with_responder = loaded.iter().filter(|certificate| loaded_ocsp.responder(certificate).is_some());
        let with_responder: Vec<_> = with_responder.cloned().collect();
        for certificate in &with_responder {
            ocsp::restore(certificate, &loaded_ocsp, &*storage, now);
        }
        let state = KeeperState { local, public, next_check: now, failures: HashMap::new() };
        let local = state.local.iter().map(|(_, certificate)| certificate);
        let public = state.public.values().filter_map(PublicState::certificate);
        let store = Store::new(loaded.iter().chain(local).chain(public).cloned(), selections);
        let stapled = (with_responder, loaded_ocsp);
        Ok(Self {
            store: Arc::new(store),
            storage,
            renewal_check_interval,
            stapled,
            authorities,
            state: Mutex::new(state),
        })
    }

    /// The index that handshakes use.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Where certificates and authorities without a storage of their own are stored.
    pub fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// Returns every certificate whose OCSP responder is to be queried. O(names).
    pub fn ocsp_targets(&self) -> Vec<OcspTarget> {
        let stapled = |certificate: &Arc<Certificate>, policy: &OcspPolicy, own: Option<&SharedStorage>| {
            Some(OcspTarget {
                certificate: Arc::clone(certificate),
                responder: policy.responder(certificate)?,
                storage: own.unwrap_or(&self.storage).clone(),
            })
        };
        let (loaded, policy) = &self.stapled;
        let loaded = loaded.iter().filter_map(|known| stapled(known, policy, None));
        let state = self.state();
        let public = state
            .public
            .values()
            .filter_map(|state| stapled(state.certificate()?, &state.public.ocsp, state.public.storage.as_ref()));
        loaded.chain(public).collect()
    }

    /// Signs a certificate for another holder of a key: `names` and a public key, with an authority's root or
    /// intermediate. Returns the chain to send as PEM and the leaf's DER; `None` if there is no authority with this ID.
    /// Blocks on disk and on the signature.
    ///
    /// # Errors
    /// If signing fails, or the root is to sign and its key cannot be read.
    pub fn sign(
        &self,
        authority: &str,
        names: &[String],
        key: &impl PublicKeyData,
        lifetime: Duration,
        by: SignedBy,
        now: SystemTime,
    ) -> Result<Option<(String, Vec<u8>)>, Error> {
        let Some(authority) = self.authorities.iter().find(|known| known.spec().id == authority) else {
            return Ok(None);
        };
        let chain = authority.sign(names, key, lifetime, by, now)?;
        Ok(Some((pem::write_chain(&chain), chain[0].to_vec())))
    }

    /// Maps `look` over the authorities, in configuration order. Does not wait for signatures or renewals.
    pub fn authorities<T>(&self, look: impl FnMut(&Authority) -> T) -> Vec<T> {
        self.authorities.iter().map(look).collect()
    }

    /// Returns the certificate of a public name, if there is one.
    pub fn issued(&self, name: &str) -> Option<IssuedCertificate> {
        self.state().public.get(name)?.issued.clone()
    }

    /// Returns the date from which a public name's certificate is to be renewed; `None` if it has none.
    pub fn public_renew_at(&self, name: &str) -> Option<SystemTime> {
        let state = self.state();
        state.public.get(name)?.renew_at()
    }

    /// Looks for a public name's certificate in storage, where another process may have put a new one. Returns whether
    /// the name then has a certificate that is not due. If storage has the one that is served, that stays, with its
    /// OCSP status. Blocks on disk.
    ///
    /// # Errors
    /// Storage cannot be read.
    pub fn reload_public(&self, name: &str, now: SystemTime) -> Result<bool, Error> {
        self.reload_public_except(name, None, now)
    }

    /// As [`reload_public`](Self::reload_public), unless storage has `old`, which the caller has replaced by the
    /// certificate in use.
    ///
    /// # Errors
    /// Storage cannot be read.
    pub fn reload_public_except(&self, name: &str, old: Option<&Certificate>, now: SystemTime) -> Result<bool, Error> {
        let Some(public) = self.state().public.get(name).map(|state| state.public.clone()) else { return Ok(false) };
        let storage = public.storage.as_ref().unwrap_or(&self.storage);
        let found = stored_public(&public, &**storage)?;
        let found = found.filter(|found| {
            let certificate = &found.certificate;
            let is_old = old.is_some_and(|old| old.signed().cert.first() == certificate.signed().cert.first());
            !is_old && certificate.is_valid(now) && now < certificate.renew_at(public.renewal_ratio)
        });
        let Some(found) = found else { return Ok(false) };
        if let Some(served) = self.state().public.get_mut(name).and_then(|state| state.issued.as_mut())
            && served.certificate.signed().cert.first() == found.certificate.signed().cert.first()
        {
            (served.authority, served.is_superseded) = (found.authority, false);
            return Ok(true);
        }
        ocsp::restore(&found.certificate, &public.ocsp, &**storage, now);
        self.serve_public(name, found);
        Ok(true)
    }

    /// Signs a certificate with a local authority for a public name for which no public authority signs one, stores it
    /// and serves it from now on. `lock` is the name's, of its storage. Blocks on disk.
    ///
    /// # Errors
    /// If signing fails, or storage.
    pub fn sign_public(&self, local: &LocalCertificateSpec, lock: &Lock, now: SystemTime) -> Result<(), Error> {
        let storage = &**local.storage.as_ref().unwrap_or(&self.storage);
        let authority = authority(&self.authorities, &local.authority);
        let certificate = obtain_locked(local, authority, (storage, lock), StorageRequirement::Optional, now)?;
        self.serve_public(&local.name, IssuedCertificate::new(certificate, &local.authority));
        Ok(())
    }

    /// Serves a public name's certificate from now on, and stores it: PEM texts from the authority with this storage
    /// name. `lock` is the name's, of its storage, held since before the order. Blocks on disk.
    ///
    /// # Errors
    /// The chain or the key is malformed, they do not belong together, or the chain does not cover the name: the
    /// certificate in use stays in use. [`Error::Write`] or [`Error::LockLost`] if only storage refuses it: the new
    /// certificate is in use nevertheless, because ordering another one would not repair the storage.
    pub fn install_public(
        &self,
        name: &str,
        authority: &str,
        chain: &str,
        key: &str,
        lock: &Lock,
    ) -> Result<(), Error> {
        let [chain_path, key_path, meta_path] = storage_keys(authority, name);
        // Neither is in storage yet: the location of a mistake is the authority.
        let (chain_from, key_from) = ("the authority's answer", "the key of the request");
        let parsed = pem::chain(chain.as_bytes(), chain_from)?;
        let fresh = Certificate::new(parsed, pem::key(key.as_bytes(), key_from)?, Vec::new(), (chain_from, key_from))?;
        if !fresh.names().iter().any(|own| own == name) {
            let found = fresh.names().iter().take(OTHER_NAMES_MAX).cloned().collect();
            return Err(Error::OtherNames { location: chain_from.to_owned(), found, expected: name.to_owned() });
        }
        self.serve_public(name, IssuedCertificate::new(fresh, authority));
        // As in `obtain`: a crash between the writes leaves a pair that does not match, which is rejected when it is
        // read.
        lock.store(&key_path, key.as_bytes(), Durability::Flushed)?;
        lock.store(&chain_path, chain.as_bytes(), Durability::Flushed)?;
        lock.store(&meta_path, meta(name).as_bytes(), Durability::Flushed)
    }

    /// Adds a public name, if the keeper does not have it, and looks for its certificate in storage. Blocks on disk.
    ///
    /// # Errors
    /// Storage cannot be read. The name is not added then.
    pub fn add_public(&self, public: PublicCertificateSpec) -> Result<(), Error> {
        if self.state().public.contains_key(&public.name) {
            return Ok(());
        }
        let storage = public.storage.as_ref().unwrap_or(&self.storage);
        let found = stored_public(&public, &**storage)?;
        if let Some(found) = &found {
            ocsp::restore(&found.certificate, &public.ocsp, &**storage, SystemTime::now());
        }
        let name = public.name.clone();
        self.state().public.entry(name.clone()).or_insert(PublicState { public, issued: None });
        if let Some(found) = found {
            self.serve_public(&name, found);
        }
        Ok(())
    }

    /// Removes a public name and its certificate. Storage still has them.
    pub fn remove_public(&self, name: &str) {
        let mut state = self.state();
        if let Some(old) = state.public.remove(name).and_then(|state| state.issued) {
            self.store.swap(Some(&old.certificate), None);
        }
    }

    /// Replaces a public name's certificate in handshakes. Does nothing for a name that the keeper does not have.
    fn serve_public(&self, name: &str, fresh: IssuedCertificate) {
        let mut state = self.state();
        if let Some(state) = state.public.get_mut(name) {
            let old = state.issued.replace(fresh);
            self.store.swap(old.as_ref().map(|old| &old.certificate), state.certificate());
        }
    }

    /// Signs a certificate for one more name, or finds it in storage, and renews it from now on: the name may be due
    /// before the others ([`until_renewal`](Self::until_renewal)). Blocks on disk and on signatures.
    ///
    /// # Errors
    /// The certificate cannot be signed or stored. The name is not added then.
    ///
    /// # Panics
    /// Panics if the name refers to an authority that the keeper does not have.
    pub fn add_local(&self, spec: LocalCertificateSpec, now: SystemTime) -> Result<Arc<Certificate>, Error> {
        if let Some(known) = self.state().local_certificate(&spec.name) {
            return Ok(known);
        }
        let authority = authority(&self.authorities, &spec.authority);
        let storage = &**spec.storage.as_ref().unwrap_or(&self.storage);
        let mut lock_timeout = LOAD_LOCK_TIMEOUT;
        let wait = (StorageRequirement::Optional, &mut lock_timeout);
        let fresh = Arc::new(obtain(&spec, authority, storage, wait, now)?);
        let mut state = self.state();
        // Another thread may have added the name meanwhile.
        if let Some(known) = state.local_certificate(&spec.name) {
            return Ok(known);
        }
        self.store.swap(None, Some(&fresh));
        state.next_check = state.next_check.min(due(&spec, &fresh));
        state.local.push((spec, Arc::clone(&fresh)));
        Ok(fresh)
    }

    /// Renews everything that is due, and returns the time until the next call. A certificate that cannot be renewed
    /// stays in use, and the failure is logged. Blocks on disk and on signatures.
    pub fn renew(&self, now: SystemTime) -> Duration {
        let mut failed = false;
        // The authorities come first: leaves signed below then get the full lifetime from a fresh intermediate.
        for authority in &self.authorities {
            match authority.renew(now) {
                Ok(true) => {
                    tracing::info!("certificate authority '{}': renewed its intermediate", authority.spec().id);
                }
                Ok(false) => {}
                Err(error) => {
                    failed = true;
                    tracing::error!(
                        "certificate authority '{}': cannot renew its intermediate: {error}",
                        authority.spec().id
                    );
                }
            }
        }
        // `state` is not locked while authorities sign: tasks for public certificates wait for it.
        let due_now = self.take_due(now);
        let mut lock_timeout = LOCK_TIMEOUT;
        let mut failures = HashMap::new();
        for (spec, old) in due_now {
            let requirement = StorageRequirement::while_served(old.not_after(), now);
            let storage = &**spec.storage.as_ref().unwrap_or(&self.storage);
            let authority = authority(&self.authorities, &spec.authority);
            match obtain(&spec, authority, storage, (requirement, &mut lock_timeout), now) {
                Ok(fresh) => {
                    let fresh = Arc::new(fresh);
                    let mut state = self.state();
                    if let Some((_, certificate)) = state.local.iter_mut().find(|(_, served)| Arc::ptr_eq(served, &old))
                    {
                        *certificate = Arc::clone(&fresh);
                        self.store.swap(Some(&old), Some(&fresh));
                    }
                }
                Err(error) => {
                    failed = true;
                    tracing::error!("{}: cannot renew its certificate: {error}", spec.name);
                    failures.insert(spec.name, error.to_string());
                }
            }
        }
        let mut state = self.state();
        let failures_before = std::mem::take(&mut state.failures);
        let count = |name: &str| failures_before.get(name).map_or(1, |(_, count)| count + 1);
        state.failures = failures.into_iter().map(|(name, error)| (name.clone(), (error, count(&name)))).collect();
        let dues = state.local.iter().map(|(spec, certificate)| due(spec, certificate));
        // Certificates that could not be renewed are still due, so their date is in the past and the bounds below
        // apply.
        let soonest = dues.chain(self.authorities.iter().filter_map(Authority::renew_at)).min();
        let until = soonest.map_or(self.renewal_check_interval, |at| at.duration_since(now).unwrap_or_default());
        let until = until.clamp(RENEWAL_CHECK_PAUSE_MIN, self.renewal_check_interval.max(RENEWAL_CHECK_PAUSE_MIN));
        let until = if failed { until.max(RENEWAL_RETRY_PAUSE) } else { until };
        state.next_check = now + until;
        until
    }

    /// Returns the time until the next call of [`renew`](Self::renew): as that returned it, or less if a name was added
    /// that is due sooner.
    pub fn until_renewal(&self, now: SystemTime) -> Duration {
        let left = self.state().next_check.duration_since(now).unwrap_or_default();
        // The upper bound is for a clock that was set back.
        left.clamp(RENEWAL_CHECK_PAUSE_MIN, self.renewal_check_interval.max(RENEWAL_RETRY_PAUSE))
    }

    /// Returns the local names that are due. Drops names on demand whose certificate no handshake has used.
    fn take_due(&self, now: SystemTime) -> Vec<(LocalCertificateSpec, Arc<Certificate>)> {
        let mut state = self.state();
        let mut due_now = Vec::new();
        state.local.retain(|(spec, certificate)| {
            if !is_due(spec, certificate, now) {
                return true;
            }
            if spec.on_demand && !certificate.is_used() {
                self.store.swap(Some(certificate), None);
                return false;
            }
            due_now.push((spec.clone(), Arc::clone(certificate)));
            true
        });
        due_now
    }

    /// Returns the names on demand, local ones and public ones, so that the next configuration can keep them.
    pub fn names_on_demand(&self) -> Vec<String> {
        let state = self.state();
        let local = state.local.iter().filter(|(spec, _)| spec.on_demand).map(|(spec, _)| &spec.name);
        let public = state.public.values().filter(|state| state.public.on_demand).map(|state| &state.public.name);
        local.chain(public).cloned().collect()
    }

    /// Makes room for one more name on demand: drops names and their certificates until there are fewer than `max`.
    /// Storage still has the certificates. Returns the dropped names.
    pub fn make_room_on_demand(&self, max: usize) -> Vec<String> {
        let mut state = self.state();
        let (mut local, mut public) = (0, 0);
        let local_before = state.local.iter().filter(|(spec, _)| spec.on_demand).count();
        let public_before = state.public.values().filter(|state| state.public.on_demand).count();
        // From the larger kind, so that neither displaces the other.
        for _ in 0..(local_before + public_before + 1).saturating_sub(max).min(local_before + public_before) {
            if local_before - local >= public_before - public { local += 1 } else { public += 1 }
        }
        let mut names = Vec::with_capacity(local + public);
        state.local.retain(|(spec, certificate)| {
            let is_dropped = spec.on_demand && names.len() < local;
            if is_dropped {
                names.push(spec.name.clone());
                self.store.swap(Some(certificate), None);
            }
            !is_dropped
        });
        // Handshakes may wait for a name without a certificate, so those come last.
        let on_demand = state.public.values().filter(|state| state.public.on_demand);
        let (issued, waiting): (Vec<_>, Vec<_>) = on_demand.partition(|state| state.issued.is_some());
        let dropped = issued.into_iter().chain(waiting).take(public).map(|state| state.public.name.clone());
        let dropped: Vec<_> = dropped.collect();
        for name in &dropped {
            if let Some(issued) = state.public.remove(name).and_then(|state| state.issued) {
                self.store.swap(Some(&issued.certificate), None);
            }
        }
        names.extend(dropped);
        names
    }

    /// Describes every name that the keeper serves or waits for, sorted by name.
    pub fn names(&self) -> Vec<NameRecord> {
        let state = self.state();
        let local = state.local.iter().map(|(spec, certificate)| NameRecord {
            name: spec.name.clone(),
            authority: Some(spec.authority.clone()),
            not_after: Some(certificate.not_after()),
            renew_at: Some(due(spec, certificate)),
            on_demand: spec.on_demand,
            failure: state.failures.get(&spec.name).map(|(error, failures)| RenewalFailure {
                error: error.clone(),
                failures: *failures,
                retry_at: state.next_check,
            }),
        });
        let public = state.public.values().map(|state| NameRecord {
            name: state.public.name.clone(),
            authority: state.issued.as_ref().map(|issued| issued.authority.clone()),
            not_after: state.certificate().map(|certificate| certificate.not_after()),
            renew_at: state.renew_at(),
            on_demand: state.public.on_demand,
            failure: None,
        });
        let mut names: Vec<_> = local.chain(public).collect();
        names.sort_by(|one, other| one.name.cmp(&other.name));
        names
    }

    fn local_by_name(&self) -> HashMap<String, (LocalCertificateSpec, Arc<Certificate>)> {
        self.state().local.iter().map(|local| (local.0.name.clone(), local.clone())).collect()
    }

    /// Ignores poisoning: each update replaces one value, so a panic during a renewal leaves the state consistent.
    fn state(&self) -> std::sync::MutexGuard<'_, KeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeeperState {
    /// The certificate of a local name.
    fn local_certificate(&self, name: &str) -> Option<Arc<Certificate>> {
        self.local.iter().find(|(known, _)| known.name == name).map(|(_, certificate)| Arc::clone(certificate))
    }
}

impl PublicState {
    fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.issued.as_ref().map(|issued| &issued.certificate)
    }

    fn renew_at(&self) -> Option<SystemTime> {
        let IssuedCertificate { certificate, is_superseded, .. } = self.issued.as_ref()?;
        Some(if *is_superseded { certificate.not_before() } else { certificate.renew_at(self.public.renewal_ratio) })
    }
}

impl IssuedCertificate {
    fn new(certificate: Certificate, authority: &str) -> Self {
        Self { certificate: Arc::new(certificate), authority: authority.to_owned(), is_superseded: false }
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

fn due(spec: &LocalCertificateSpec, certificate: &Certificate) -> SystemTime {
    certificate.renew_at(spec.renewal_ratio)
}

/// Whether to renew now. A clock that was ahead has signed certificates that are not valid yet.
fn is_due(spec: &LocalCertificateSpec, certificate: &Certificate, now: SystemTime) -> bool {
    due(spec, certificate) <= now || certificate.is_not_yet_valid(now)
}

/// Returns the certificate in the name's storage if it is fresh, or else signs a new one and stores it. If storage is
/// optional and the name's lock is not free within `lock_timeout`, from which the wait is deducted, the certificate is
/// only in memory until its renewal.
fn obtain(
    spec: &LocalCertificateSpec,
    authority: &Authority,
    storage: &dyn Storage,
    (requirement, lock_timeout): (StorageRequirement, &mut Duration),
    now: SystemTime,
) -> Result<Certificate, Error> {
    let name = format!("issue_cert_{}", spec.name);
    // Held while reading and writing: of several processes one signs, and the others then find its certificate.
    let lock = match requirement {
        // Without the lock the name fails, so the waits for others do not shorten this one.
        StorageRequirement::Required => lock_if_writable(storage, &name, LOCK_TIMEOUT)?,
        StorageRequirement::Optional => lock_if_free(storage, &name, lock_timeout)?,
    };
    obtain_locked(spec, authority, (storage, &lock), requirement, now)
}

/// As [`obtain`], with the name's lock.
fn obtain_locked(
    spec: &LocalCertificateSpec,
    authority: &Authority,
    (storage, lock): (&dyn Storage, &Lock),
    requirement: StorageRequirement,
    now: SystemTime,
) -> Result<Certificate, Error> {
    // If storage cannot be read, the certificate is only in memory, and the values in storage stay.
    let mut unread = None;
    let stored = requirement.read(stored(&spec.authority, &spec.name, storage), &mut unread)?;
    let fresh = |certificate: &Certificate| {
        certificate.is_valid(now) && now < due(spec, certificate) && authority.issued(certificate)
    };
    if let Some(stored) = stored.filter(fresh) {
        return Ok(stored);
    }
    let failed = |error: rcgen::Error| Error::Sign(spec.name.clone(), error.to_string());
    let [chain_path, key_path, meta_path] = storage_keys(&spec.authority, &spec.name);
    let old = if spec.reuse_key { requirement.read(storage.load(&key_path), &mut unread)? } else { None };
    let key = match old.and_then(|text| KeyPair::try_from(&pem::key(&text, &key_path).ok()?).ok()) {
        Some(key) => key,
        None => generate_key(spec.key).map_err(failed)?,
    };
    let by = if spec.by_root { SignedBy::Root } else { SignedBy::Intermediate };
    let chain = authority.sign(std::slice::from_ref(&spec.name), &key, spec.lifetime, by, now)?;
    // The key comes first. A crash between the writes leaves a pair that does not match, which `stored` rejects.
    let kept = unread
        .map_or(Ok(()), Err)
        .and_then(|()| lock.store(&key_path, key.serialize_pem().as_bytes(), Durability::Unflushed))
        .and_then(|()| lock.store(&chain_path, pem::write_chain(&chain).as_bytes(), Durability::Unflushed))
        .and_then(|()| lock.store(&meta_path, meta(&spec.name).as_bytes(), Durability::Unflushed));
    requirement.check(&format!("{}: obtained a certificate of the authority '{}'", spec.name, spec.authority), kept)?;
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    Certificate::new(chain, der.into(), Vec::new(), (&chain_path, &key_path))
}

/// RSA keys are generated one at a time: each takes seconds, and those of many names together would take all processors
/// from the workers.
static RSA_TURN: Mutex<()> = Mutex::new(());

/// Generates a private key. An RSA key waits for those that other threads generate.
///
/// # Errors
/// The system's random number generator failed.
pub fn generate_key(kind: KeyKind) -> Result<KeyPair, rcgen::Error> {
    let is_rsa = matches!(kind, KeyKind::Rsa2048 | KeyKind::Rsa4096);
    let _turn = is_rsa.then(|| RSA_TURN.lock().unwrap_or_else(PoisonError::into_inner));
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
