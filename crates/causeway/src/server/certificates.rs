//! The certificates of the current configuration: obtained before it takes effect, renewed while it is current.
//!
//! The configuration crate describes certificates as plain records. This module converts them to the types of
//! `causeway_certs`.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_acme::challenge::{self, SharedChallenges};
use causeway_certs::{
    Authority, AuthoritySpec, Certificate, CertificatePlan, CertificateSelection, Cleaned, Keeper, LoadedSource,
    LocalCertificateSpec, NameRecord, OcspPolicy, PairFiles, RenewalFailure, SharedStorage, SignatureAlgorithm, Store,
};
use causeway_config::plan::{
    self, AuthorityCertificates, CertificateAuthority, CertificateFiles, CertificateReadError, CertificateReader,
    CertificateSource, Certificates, KeyAlgorithm, KeyKind, ManagedName, PlanError, SignedName, StorageCleaning,
};
use causeway_engine::certificate::CertifiedKey;
use causeway_engine::{ObtainedCertificate, SessionTickets, SoughtCertificate};
use causeway_pipeline::BuildError;
use causeway_pipeline::build::Problem;
use causeway_pipeline::build::trust_pool::{CertificateList, EndpointTls};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::autosave::user_directory;
use super::blocking::blocking;
use super::error::LoadError;
use super::issuance_plan::IssuancePlan;
use super::issuers;
use super::on_demand::{self, NAMES_MAX, OnDemand, Permission};
use super::renewals::{Attempt, CertificateEvents, Renewals};
use super::staples::Staples;
use super::storage::{self, Storages};
use super::tickets::Tickets;

/// Longest interval between two checks of the expiry dates; Caddy's value.
const CHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// How often a storage is cleaned; Caddy's value. And the shortest pause between two attempts.
const CLEAN_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
const CLEAN_PAUSE: Duration = Duration::from_secs(1);

/// Returns the default certificate directory: `causeway` in the user's data directory.
pub fn data_directory() -> PathBuf {
    data_directory_in(&|_| None)
}

/// As [`data_directory`], with an environment beside that of the process, such as the variables of `--envfile`.
pub fn data_directory_in(environment: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let named = |name| user_directory(name, environment);
    let directory = named("XDG_DATA_HOME").or_else(|| Some(named("HOME")?.join(".local/share")));
    // Caddy's fallback when the environment sets neither variable.
    directory.unwrap_or_else(|| PathBuf::from(".")).join("causeway")
}

/// Reads certificates while a configuration is compiled, and keeps them for the server.
pub(super) struct Reader<'d> {
    /// The default directory of the storage.
    data: &'d Path,
    read: RefCell<Vec<Certificate>>,
}

impl<'d> Reader<'d> {
    pub(super) fn new(data: &'d Path) -> Self {
        Self { data, read: RefCell::default() }
    }

    pub(super) fn into_read(self) -> Vec<Certificate> {
        self.read.into_inner()
    }
}

impl CertificateReader for Reader<'_> {
    fn load(
        &self,
        sources: &[CertificateSource],
        storage: &plan::Storage,
    ) -> Result<Vec<String>, CertificateReadError> {
        // Opened only if needed: a server's settings may name files that are not there.
        let is_stored = sources.iter().any(|source| matches!(source, CertificateSource::Stored { .. }));
        let storage = is_stored.then(|| storage::open(storage, self.data)).transpose()?;
        let sources: Vec<_> = sources.iter().filter_map(|written| source(written, storage.as_ref())).collect();
        let read = causeway_certs::load(&sources)?;
        let names = read.iter().flat_map(Certificate::names).cloned().collect();
        self.read.replace(read);
        Ok(names)
    }

    fn system(&self) -> Result<CertificateList, CertificateReadError> {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            return Err(format!("the system has no trusted authorities: {}", reasons.join("; ")).into());
        }
        Ok(found.certs.iter().map(|certificate| certificate.to_vec()).collect())
    }

    fn authority(
        &self,
        written: &CertificateAuthority,
        default_storage: &plan::Storage,
    ) -> Result<AuthorityCertificates, CertificateReadError> {
        let storages = Storages::open(storage::open(default_storage, self.data)?, written.storage.iter(), self.data)?;
        let authority = Authority::open(authority(written, &storages), storages.default_storage(), SystemTime::now())?;
        Ok(AuthorityCertificates { root: authority.root_pem(), intermediate: authority.intermediate_pem() })
    }

    fn stored(&self, storage: &plan::Storage, key: &str) -> Result<Vec<u8>, CertificateReadError> {
        let storage = storage::open(storage, self.data)?;
        storage.load(key)?.ok_or_else(|| format!("{}: not in the storage", storage.location(key)).into())
    }

    fn fetched(&self, url: &str, tls: &EndpointTls) -> Result<Vec<u8>, CertificateReadError> {
        super::trust_endpoint::fetch(url, tls)
    }
}

/// The current certificates and the task that renews them. Dropping it aborts the task.
pub(super) struct Custody {
    keeper: Arc<Keeper>,
    renewal: AbortHandle,
    /// One task for each storage.
    cleaning: Vec<AbortHandle>,
    /// Keeps the OCSP responses current.
    _staples: Staples,
    /// Obtain the certificates of public authorities.
    renewals: Renewals,
    /// The plans that [`start_orders`](Self::start_orders) starts, and the endpoint that permits those of names on
    /// demand.
    plans: Vec<IssuancePlan>,
    permission: Option<Permission>,
    on_demand: Option<OnDemand>,
    tickets: Arc<Tickets>,
    /// Answer the challenges of other servers, each those in one storage.
    _challenges: Vec<SharedChallenges>,
}

impl Custody {
    /// Loads the certificates of a configuration, and signs those of local authorities, on a blocking thread.
    /// Certificates in `before` that are still needed are reused.
    pub(super) async fn open(
        wanted: &Certificates,
        loaded: Vec<Certificate>,
        storage: SharedStorage,
        data: &Path,
        before: Option<&Self>,
    ) -> Result<Self, LoadError> {
        let storages = Storages::open(storage, wanted.storages(), data)?;
        let mut plans: Vec<_> =
            wanted.public.iter().map(|name| IssuancePlan::new(name, key_kind(name.key), false, &storages)).collect();
        let mut all_local: Vec<_> = wanted.managed.iter().map(|name| local_spec(name, false, &storages)).collect();
        let tickets_before = before.map(|before| Arc::clone(&before.tickets));
        let renewals_before = before.map(|before| &before.renewals);
        let before = before.map(|before| Arc::clone(&before.keeper));
        // Names on demand stay, if the new configuration still provides for them.
        let known = before.as_ref().map(|before| before.names_on_demand()).unwrap_or_default();
        let on_demand = wanted.on_demand.as_ref();
        for signed in known.iter().filter_map(|name| on_demand.and_then(|on_demand| on_demand.name(name))) {
            match signed {
                SignedName::Local(name) => all_local.push(local_spec(&name, true, &storages)),
                SignedName::Public(name) => plans.push(IssuancePlan::new(&name, key_kind(name.key), true, &storages)),
            }
        }
        let plan = CertificatePlan {
            storage: storages.default_storage().clone(),
            authorities: wanted.authorities.iter().map(|written| authority(written, &storages)).collect(),
            loaded,
            selections: wanted.selections.iter().map(selection).collect(),
            loaded_ocsp: OcspPolicy { is_enabled: !wanted.ocsp_disabled_for_sources, ..OcspPolicy::default() },
            local: all_local,
            public: plans.iter().map(|plan| plan.public().clone()).collect(),
            renewal_check_interval: wanted.renewal_check_interval.unwrap_or(CHECK_INTERVAL),
        };
        let endpoint = on_demand.and_then(|on_demand| on_demand.permission().map(str::to_owned));
        let names = on_demand.cloned();
        let (setting, default_storage, data) =
            (wanted.session_tickets.clone(), storages.default_storage().clone(), data.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            let permission = endpoint.map(|endpoint| Permission::new(&endpoint)).transpose();
            let getters = names.as_ref().map(on_demand::getters).transpose().map_err(LoadError::OnDemand)?;
            let keeper = Keeper::open(plan, before.as_deref(), SystemTime::now())?;
            let tickets = Tickets::open(&setting, &default_storage, &data, tickets_before.as_deref())?;
            Ok((keeper, permission.map_err(LoadError::OnDemand)?, getters.unwrap_or_default(), tickets))
        });
        let (keeper, permission, getters, tickets) = opened.await.map_err(|_| LoadError::Panicked).flatten()?;
        let keeper = Arc::new(keeper);
        // The previous custody keeps renewing until it is dropped, which happens after the engine has switched to this
        // one.
        let renewals = Renewals::new(&keeper, renewals_before);
        let renewal = tokio::spawn(renew(Arc::clone(&keeper), Arc::clone(renewals.events()))).abort_handle();
        let staples = Staples::start(&keeper, renewals.events(), wanted.ocsp_check_interval);
        let has_challenges = !plans.is_empty() || on_demand.is_some();
        let challenges = storages.all().filter(|_| has_challenges).map(|storage| {
            SharedChallenges::new(storage, issuers::authorities_of(&plans, on_demand.cloned(), &storages, storage))
        });
        let challenges = challenges.collect();
        let mut cleaning = Vec::new();
        if let Some(interval) = cleaning_interval(wanted) {
            let clean = |storage: &SharedStorage| tokio::spawn(clean(storage.clone(), interval)).abort_handle();
            cleaning.extend(storages.all().map(clean));
        }
        let on_demand = on_demand.cloned();
        let names_max = wanted.cache_capacity.unwrap_or(NAMES_MAX);
        let on_demand = on_demand.map(|names| {
            let permission = permission.clone();
            OnDemand::new(names, getters, permission, &keeper, &storages, &renewals, names_max)
        });
        Ok(Self {
            keeper,
            renewal,
            cleaning,
            _staples: staples,
            renewals,
            plans,
            permission,
            on_demand,
            tickets: Arc::new(tickets),
            _challenges: challenges,
        })
    }

    /// Returns the lookup for TLS handshakes. It sees renewed certificates at once.
    pub(super) fn finder(&self) -> Arc<dyn causeway_engine::Certificates> {
        let (store, tickets) = (Arc::clone(self.keeper.store()), self.tickets.session_tickets());
        Arc::new(Finder { store, on_demand: self.on_demand.clone(), tickets })
    }

    /// Returns the certificates of the configuration.
    pub(super) fn store(&self) -> &Arc<Store> {
        self.keeper.store()
    }

    /// Starts to obtain the certificates of public authorities: a load that is refused must not have placed orders.
    pub(super) fn start_orders(&mut self) {
        for plan in self.plans.drain(..) {
            self.renewals.start(plan, self.permission.clone());
        }
    }

    /// Lets the handlers `acme_server` sign with these authorities from now on.
    pub(super) fn install_authorities(&self) {
        causeway_acme::server::serve_with(&self.keeper);
    }

    /// Returns each authority's id with the location of its root certificate.
    pub(super) fn roots(&self) -> Vec<(String, String)> {
        self.keeper.authorities(|authority| (authority.spec().id.clone(), authority.root_location().to_owned()))
    }

    /// Describes every name whose certificate the server obtains, sorted by name.
    pub(super) fn names(&self) -> Vec<CertificateStatus> {
        let mut attempts = self.renewals.attempts();
        let failed = |failure: &RenewalFailure| Attempt::Failed {
            error: failure.error.clone(),
            failures: failure.failures,
            retry_at: failure.retry_at,
        };
        let status = |record: NameRecord| CertificateStatus {
            attempt: attempts.remove(&record.name).or_else(|| record.failure.as_ref().map(failed)),
            record,
        };
        self.keeper.names().into_iter().map(status).collect()
    }

    /// Looks up an authority on a blocking thread; `None` when there is none with this id. Like Caddy, creates the
    /// local authority when it is missing: the caller is about to use it.
    pub(super) async fn authority(&self, id: String) -> Result<Option<AuthorityFacts>, causeway_certs::Error> {
        let (keeper, storage) = (Arc::clone(&self.keeper), self.keeper.storage().clone());
        let look = move || {
            let now = SystemTime::now();
            let known = keeper.authorities(|authority| (authority.spec().id == id).then(|| facts(authority, now)));
            match known.into_iter().flatten().next() {
                Some(known) => Ok(Some(known)),
                None if id == "local" => {
                    Authority::open(AuthoritySpec::new(id), &storage, now).map(|authority| Some(facts(&authority, now)))
                }
                None => Ok(None),
            }
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(Ok(None))
    }
}

struct Finder {
    store: Arc<Store>,
    on_demand: Option<OnDemand>,
    tickets: SessionTickets,
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder").field("store", &self.store).finish_non_exhaustive()
    }
}

impl causeway_engine::Certificates for Finder {
    fn find(
        &self,
        server_name: Option<&str>,
        tags: &[String],
        is_usable: &dyn Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let found = self.store.find(server_name, tags, is_usable)?;
        found.mark_used();
        Some(found.signed())
    }

    fn obtain(&self, sought: SoughtCertificate) -> Option<ObtainedCertificate> {
        self.on_demand.as_ref()?.obtain(sought)
    }

    fn session_tickets(&self) -> SessionTickets {
        self.tickets.clone()
    }

    fn challenge(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        challenge::tls_certificate(server_name)
    }

    fn shared_challenge(&self, server_name: &str) -> Option<ObtainedCertificate> {
        challenge::shared_tls_certificate(server_name)
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        self.renewal.abort();
        self.cleaning.iter().for_each(AbortHandle::abort);
        self.renewals.stop();
    }
}

/// The state of a name's certificate, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The certificate in use.
    pub record: NameRecord,
    /// The order in progress or the last failure; `None` while the certificate is fresh.
    pub attempt: Option<Attempt>,
}

/// An authority's data, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFacts {
    /// The id by which issuers refer to it.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The root's common name.
    pub root_common_name: String,
    /// The intermediate's common name.
    pub intermediate_common_name: String,
    /// The root certificate as PEM.
    pub root: String,
    /// The intermediate certificate as PEM.
    pub intermediate: String,
}

fn facts(authority: &Authority, now: SystemTime) -> AuthorityFacts {
    let (root_common_name, intermediate_common_name) = authority.common_names(now);
    AuthorityFacts {
        id: authority.spec().id.clone(),
        name: authority.spec().name.clone(),
        root_common_name,
        intermediate_common_name,
        root: authority.root_pem(),
        intermediate: authority.intermediate_pem(),
    }
}

/// Renews certificates until it is aborted. Signing and file access run on a blocking thread.
pub(super) async fn renew(keeper: Arc<Keeper>, events: Arc<CertificateEvents>) {
    loop {
        let at_work = Arc::clone(&keeper);
        let next = tokio::task::spawn_blocking(move || at_work.renew(SystemTime::now())).await;
        // A panic was already reported by its thread; certificates are renewed early enough to wait for the next round.
        let mut at = Instant::now() + next.unwrap_or(CHECK_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => break,
                () = events.added.notified() => at = at.min(Instant::now() + keeper.until_renewal(SystemTime::now())),
            }
        }
    }
}

/// Returns the interval at which the storage is cleaned; `None` for a configuration that stores no certificates.
fn cleaning_interval(wanted: &Certificates) -> Option<Duration> {
    if wanted.authorities.is_empty() && wanted.public.is_empty() && wanted.on_demand.is_none() {
        return None;
    }
    match wanted.cleaning {
        StorageCleaning::Default => Some(CLEAN_INTERVAL),
        StorageCleaning::Every(interval) => Some(interval),
        StorageCleaning::Never => None,
    }
}

/// Cleans the storage until it is aborted. The work runs on a blocking thread.
async fn clean(storage: SharedStorage, interval: Duration) {
    loop {
        let at_work = storage.clone();
        let cleaned = blocking(move || causeway_certs::clean(&*at_work, interval, SystemTime::now())).await;
        let pause = match cleaned {
            Ok(Ok(Cleaned::NotDue(left))) => left,
            Ok(Ok(Cleaned::Removed { certificates, challenges, responses })) => {
                tracing::debug!(certificates, challenges, responses, "cleaned the storage");
                interval
            }
            Ok(Err(error)) => {
                tracing::warn!("cannot clean the storage: {error}");
                interval
            }
            // The task has panicked.
            Err(_) => interval,
        };
        tokio::time::sleep(pause.max(CLEAN_PAUSE)).await;
    }
}

/// `None`: the source needs a storage, and there is none.
fn source(source: &CertificateSource, storage: Option<&SharedStorage>) -> Option<LoadedSource> {
    Some(match source.clone() {
        CertificateSource::Files { certificate, key, tags } => LoadedSource::Files { certificate, key, tags },
        CertificateSource::Pem { location, certificate, key, tags } => {
            LoadedSource::Pem { location, certificate, key, tags }
        }
        CertificateSource::Stored { certificate, key, tags } => {
            LoadedSource::Stored { storage: storage?.clone(), certificate, key, tags }
        }
        CertificateSource::Directory(path) => LoadedSource::Directory(path),
    })
}

/// Checks the settings and the files of the configured authorities.
pub(super) fn check(certificates: &Certificates) -> Result<(), PlanError> {
    for authority in &certificates.authorities {
        let refused = |key: &str, found: String, expected: &'static str| BuildError {
            path: format!("apps.pki.certificate_authorities.{}.{key}", authority.id),
            problem: Problem::Value { found, expected: expected.into() },
        };
        for (key, files) in [("root", &authority.root), ("intermediate", &authority.intermediate)] {
            let Some(files) = files.clone().map(pair_files) else { continue };
            files.check().map_err(|error| refused(key, error.to_string(), "a certificate and its key"))?;
        }
        match (&authority.root, authority.intermediate_lifetime) {
            (None, Some(lifetime)) if lifetime >= causeway_certs::ROOT_LIFETIME => {
                let found = format!("{} s", lifetime.as_secs());
                let expected = "less than the lifetime of a new root, 3600d";
                return Err(refused("intermediate_lifetime", found, expected).into());
            }
            (Some(CertificateFiles { certificate, key: None }), _) if authority.intermediate.is_none() => {
                let found = certificate.display().to_string();
                let expected = "a key too, to sign the intermediate with, or an intermediate";
                return Err(refused("root", found, expected).into());
            }
            _ => {}
        }
    }
    Ok(())
}

fn pair_files(files: CertificateFiles) -> PairFiles {
    PairFiles { certificate: files.certificate, key: files.key }
}

fn selection((tag, written): (&String, &plan::CertificateSelection)) -> CertificateSelection {
    let plan::CertificateSelection { any_tag, all_tags, serial_numbers, organizations, key_algorithm } =
        written.clone();
    let key_algorithm = key_algorithm.map(|algorithm| match algorithm {
        KeyAlgorithm::Rsa => SignatureAlgorithm::RSA,
        KeyAlgorithm::Ecdsa => SignatureAlgorithm::ECDSA,
        KeyAlgorithm::Dsa => SignatureAlgorithm::DSA,
    });
    CertificateSelection { tag: tag.clone(), any_tag, all_tags, serial_numbers, organizations, key_algorithm }
}

fn authority(written: &CertificateAuthority, storages: &Storages) -> AuthoritySpec {
    let CertificateAuthority {
        id,
        name,
        root_common_name,
        intermediate_common_name,
        intermediate_lifetime,
        renewal_ratio,
        root,
        intermediate,
        storage,
    } = written.clone();
    let defaults = AuthoritySpec::new(id);
    AuthoritySpec {
        name: name.unwrap_or(defaults.name),
        root_common_name: root_common_name.unwrap_or(defaults.root_common_name),
        intermediate_common_name: intermediate_common_name.unwrap_or(defaults.intermediate_common_name),
        intermediate_lifetime: intermediate_lifetime.unwrap_or(defaults.intermediate_lifetime),
        renewal_ratio: renewal_ratio.unwrap_or(defaults.renewal_ratio),
        root: root.map(pair_files),
        intermediate: intermediate.map(pair_files),
        storage: storages.own(storage.as_ref()).cloned(),
        id: defaults.id,
    }
}

pub(super) fn local_spec(written: &ManagedName, on_demand: bool, storages: &Storages) -> LocalCertificateSpec {
    let defaults = LocalCertificateSpec::new(written.name.clone(), written.authority.clone());
    LocalCertificateSpec {
        lifetime: written.lifetime.unwrap_or(defaults.lifetime),
        renewal_ratio: written.renewal_ratio.unwrap_or(defaults.renewal_ratio),
        by_root: written.by_root,
        key: key_kind(written.key),
        reuse_key: written.reuse_key,
        storage: storages.own(written.storage.as_ref()).cloned(),
        on_demand,
        ..defaults
    }
}

pub(super) fn key_kind(written: KeyKind) -> causeway_certs::KeyKind {
    match written {
        KeyKind::P256 => causeway_certs::KeyKind::P256,
        KeyKind::P384 => causeway_certs::KeyKind::P384,
        KeyKind::Ed25519 => causeway_certs::KeyKind::Ed25519,
        KeyKind::Rsa2048 => causeway_certs::KeyKind::Rsa2048,
        KeyKind::Rsa4096 => causeway_certs::KeyKind::Rsa4096,
    }
}
