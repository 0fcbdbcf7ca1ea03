//! On-demand TLS: a handshake for a name without a certificate waits while the server obtains one.
//!
//! ```text
//!  handshake ──► sources ──► refused lately? ──► permission endpoint ──► storage ──► authorities ──► the handshake goes on
//!                   │              │                     │                                │
//!                   │ fault        └─────── alert ◄──────┴────────────────────────────────┘ (and the name is refused for a while)
//!                   └─► alert
//! ```
//! The sources are those of `get_certificate`. Concurrent handshakes for one name wait for one answer or order
//! (single-flight).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use causeway_acme::http::{HttpClient, HttpError, HttpRequest, without_secrets};
use causeway_certs::{Certificate, Error, Keeper};
use causeway_config::plan::{self, CertificateGetter, SignedName};
use causeway_engine::certificate::CertifiedKey;
use causeway_engine::{ObtainedCertificate, SoughtCertificate};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::blocking::{blocking, locked};
use super::certificates::{key_kind, local_spec};
use super::getters::Getter;
use super::issuance_plan::{IssuancePlan, RenewError};
use super::renewals::{Renewals, in_words, pause_after};
use super::storage::Storages;

/// Names whose certificates are being obtained. Handshakes for further names are refused.
const PENDING_MAX: usize = 256;
/// Handshakes that wait for one name. Further ones are refused.
const WAITING_MAX: usize = 128;
/// Names on demand with a certificate in memory: Caddy's default of its certificate cache. Beyond it, the certificate
/// of another name leaves memory; storage still has it.
pub(super) const NAMES_MAX: usize = 10_000;
/// Refused names that are remembered.
const REFUSED_MAX: usize = 10_000;
/// How long the failed orders of a name are remembered after its last pause, if others need its place: as long as the
/// longest pause.
const FAILURES_KEPT: Duration = Duration::from_secs(6 * 60 * 60);
/// How long a name is refused after the permission endpoint has denied it, or has failed.
const DENIED_FOR: Duration = Duration::from_secs(10);
/// How long the permission endpoint may take: Caddy's limit.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The endpoint's answer is its status; its body is ignored.
const ASK_BODY_BYTES_MAX: usize = 64 * 1024;

/// The endpoint that allows or denies names.
#[derive(Debug, Clone)]
pub(super) struct Permission {
    endpoint: String,
    client: HttpClient,
}

impl Permission {
    /// Blocks on disk for some milliseconds.
    ///
    /// # Errors
    /// The system's root certificates cannot be read.
    pub(super) fn new(endpoint: &str) -> Result<Self, HttpError> {
        let client = HttpClient::new(&[])?.timeout(REQUEST_TIMEOUT).body_bytes_max(ASK_BODY_BYTES_MAX);
        Ok(Self { endpoint: endpoint.to_owned(), client })
    }

    /// Returns whether the endpoint allows the name; `None` if it does not answer.
    pub(super) async fn allows(&self, name: &str) -> Option<bool> {
        match self.client.send(HttpRequest::get(url(&self.endpoint, name))).await {
            Ok(response) => {
                tracing::debug!(name, status = response.status.as_u16(), "the permission endpoint answered");
                Some(response.status.is_success())
            }
            Err(error) => {
                let endpoint = without_secrets(&self.endpoint);
                tracing::error!("{name}: cannot query the permission endpoint {endpoint}: {error}");
                None
            }
        }
    }
}

/// Adds `domain=NAME` to the endpoint's query. A server name has no character that a query would have to escape.
fn url(endpoint: &str, name: &str) -> String {
    let endpoint = endpoint.split('#').next().unwrap_or_default();
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    format!("{endpoint}{separator}domain={name}")
}

/// The sources of certificates in a configuration.
pub(super) type Getters = HashMap<CertificateGetter, Arc<Getter>>;

/// Makes the sources of a configuration. Blocks on disk for some milliseconds.
///
/// # Errors
/// The system's root certificates cannot be read.
pub(super) fn getters(names: &plan::OnDemand) -> Result<Getters, HttpError> {
    names.all_getters().into_iter().map(|source| Ok((source.clone(), Arc::new(Getter::new(source)?)))).collect()
}

/// Obtains certificates for handshakes.
#[derive(Clone)]
pub(super) struct OnDemand {
    shared: Arc<Shared>,
}

struct Shared {
    names: plan::OnDemand,
    /// [`NAMES_MAX`], or the configured number.
    names_max: usize,
    getters: Getters,
    permission: Option<Permission>,
    keeper: Arc<Keeper>,
    storages: Storages,
    renewals: Renewals,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The handshakes that wait, by name.
    pending: HashMap<String, Vec<oneshot::Sender<Option<Arc<CertifiedKey>>>>>,
    refused: HashMap<String, RefusedName>,
}

#[derive(Debug, Clone, PartialEq)]
struct RefusedName {
    until: Instant,
    /// Failed orders since the last success.
    failures: usize,
}

impl OnDemand {
    /// Must run within the server's runtime, which executes the orders.
    pub(super) fn new(
        names: plan::OnDemand,
        getters: Getters,
        permission: Option<Permission>,
        keeper: &Arc<Keeper>,
        storages: &Storages,
        renewals: &Renewals,
        names_max: usize,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                names,
                names_max,
                getters,
                permission,
                keeper: Arc::clone(keeper),
                storages: storages.clone(),
                renewals: renewals.clone(),
                runtime: Handle::current(),
                state: Mutex::default(),
            }),
        }
    }

    /// Starts to obtain a certificate, unless that is in progress. `None`: the handshake gets no certificate. Does not
    /// block.
    pub(super) fn obtain(&self, sought: SoughtCertificate) -> Option<ObtainedCertificate> {
        // As in CertMagic, the name is our own address for a client that names no server.
        let known = sought.server_name.clone().or_else(|| sought.local.map(|ip| ip.to_string()));
        let name = known.as_deref().unwrap_or_default();
        let getters = self.shared.names.getters(name);
        let mut signed = self.shared.names.name(name);
        let (sender, receiver) = oneshot::channel();
        let mut state = locked(&self.shared.state);
        if state.refused.get(name).is_some_and(|refused| Instant::now() < refused.until) {
            signed = None;
        }
        if signed.is_none() && getters.is_empty() {
            return None;
        }
        if let Some(waiting) = state.pending.get_mut(name) {
            if waiting.len() >= WAITING_MAX {
                return None;
            }
            waiting.push(sender);
        } else {
            if state.pending.len() >= PENDING_MAX {
                tracing::warn!(
                    "{name}: refusing its handshake: certificates of {PENDING_MAX} names are being obtained"
                );
                return None;
            }
            state.pending.insert(name.to_owned(), vec![sender]);
            // A task of its own, which a reload does not abort: an order is not repeated without need.
            let getters = getters.iter().filter_map(|getter| self.shared.getters.get(getter)).cloned().collect();
            let wanted = WantedCertificate { name: name.to_owned(), sought, getters, signed };
            self.shared.runtime.spawn(run(Arc::clone(&self.shared), wanted));
        }
        Some(Box::pin(async move { receiver.await.ok().flatten() }))
    }
}

/// The certificate that one or more handshakes wait for.
struct WantedCertificate {
    name: String,
    /// The facts of the first of these handshakes.
    sought: SoughtCertificate,
    getters: Vec<Arc<Getter>>,
    /// The authorities that sign if no source has a certificate; `None`: the handshakes get none then.
    signed: Option<SignedName>,
}

/// The handshakes that wait for one name. Dropping it passes the certificate to them, if it was found, so that a panic
/// does not let them and later ones wait for ever.
struct PendingHandshakes<'s> {
    shared: &'s Shared,
    name: &'s str,
    found: Option<Arc<CertifiedKey>>,
}

impl Drop for PendingHandshakes<'_> {
    fn drop(&mut self) {
        let waiting = locked(&self.shared.state).pending.remove(self.name);
        for waiting in waiting.unwrap_or_default() {
            // The handshake may have timed out.
            let _ = waiting.send(self.found.clone());
        }
    }
}

/// Obtains the certificate of one name, and passes it to the handshakes that wait.
async fn run(shared: Arc<Shared>, wanted: WantedCertificate) {
    let WantedCertificate { name, sought, getters, signed } = wanted;
    let mut pending = PendingHandshakes { shared: &shared, name: &name, found: None };
    // As in CertMagic, the last source decides: if it fails, there is no order.
    let mut answer = Ok(None);
    for getter in getters {
        answer = getter.get(&sought).await;
        if matches!(answer, Ok(Some(_))) {
            break;
        }
    }
    pending.found = match (answer, signed) {
        (Ok(None), Some(signed)) => sign(&shared, &name, signed).await,
        (answer, _) => answer.unwrap_or_default(),
    };
}

/// Obtains a certificate of an authority. `None`: the name is refused for a while.
async fn sign(shared: &Shared, name: &str, signed: SignedName) -> Option<Arc<CertifiedKey>> {
    let mut failures = locked(&shared.state).refused.get(name).map_or(0, |refused| refused.failures);
    let outcome = match is_allowed(shared, name).await {
        true => shared.sign(name, signed, failures).await.map_err(|error| {
            let pause = pause_after(&error, &mut failures, SystemTime::now());
            let refusing = format!("refusing its handshakes for {}", in_words(pause));
            match &error {
                RenewError::Elsewhere(_) => {
                    tracing::info!("{name}: another server with this storage is obtaining its certificate; {refusing}");
                }
                _ => tracing::error!("{name}: cannot obtain a certificate: {error}; {refusing}"),
            }
            RefusedName { until: Instant::now() + pause, failures }
        }),
        false => Err(RefusedName { until: Instant::now() + DENIED_FOR, failures }),
    };
    let mut state = locked(&shared.state);
    match outcome {
        Ok(found) => {
            state.refused.remove(name);
            Some(found.signed())
        }
        Err(refused) => {
            state.refuse(name.to_owned(), refused);
            None
        }
    }
}

async fn is_allowed(shared: &Shared, name: &str) -> bool {
    let Some(permission) = &shared.permission else { return true };
    let answer = permission.allows(name).await;
    // Without an answer there is a message about that already.
    if answer == Some(false) {
        tracing::info!("{name}: no certificate: {} does not allow it", without_secrets(&permission.endpoint));
    }
    answer.unwrap_or(false)
}

impl Shared {
    async fn sign(&self, name: &str, signed: SignedName, failures: usize) -> Result<Arc<Certificate>, RenewError> {
        let failed = |error: Error| RenewError::Local(error.to_string());
        let keeper = Arc::clone(&self.keeper);
        for dropped in self.keeper.make_room_on_demand(self.names_max) {
            self.renewals.end(&dropped);
        }
        match signed {
            SignedName::Local(written) => {
                let spec = local_spec(&written, true, &self.storages);
                let signed = blocking(move || keeper.add_local(spec, SystemTime::now())).await;
                let signed = signed.map_err(RenewError::Local)?.map_err(failed)?;
                self.renewals.events().added.notify_one();
                Ok(signed)
            }
            SignedName::Public(written) => {
                let plan = IssuancePlan::new(&written, key_kind(written.key), true, &self.storages);
                let public = plan.public().clone();
                blocking(move || keeper.add_public(public)).await.map_err(RenewError::Local)?.map_err(failed)?;
                let is_fresh =
                    self.keeper.issued(name).is_some_and(|found| SystemTime::now() < found.certificate.not_after());
                // A certificate in storage that is only due is served now and renewed by its task.
                if !is_fresh && let Err(error) = self.renewals.obtain(&plan, failures).await {
                    self.keeper.remove_public(name);
                    return Err(error);
                }
                let removed = || RenewError::Local("the certificate was removed".to_owned());
                let found = self.keeper.issued(name).ok_or_else(removed)?.certificate;
                // The handshake that waits uses it, so that its task renews one that was due in storage.
                found.mark_used();
                self.renewals.events().issued.notify_one();
                self.renewals.start(plan, self.permission.clone());
                Ok(found)
            }
        }
    }
}

impl State {
    fn refuse(&mut self, name: String, refused: RefusedName) {
        // Names whose orders failed leave last: strangers can send handshakes for ever new names that are denied, and
        // the pauses protect the authority's rate limits.
        let kept: [fn(&RefusedName, Instant) -> bool; 5] = [
            |refused, now| refused.failures > 0 || now < refused.until,
            |refused, now| now < refused.until + FAILURES_KEPT,
            |refused, _| refused.failures > 0,
            |refused, now| now < refused.until,
            |_, _| false,
        ];
        let now = Instant::now();
        for is_kept in kept {
            if self.refused.len() < REFUSED_MAX {
                break;
            }
            self.refused.retain(|_, refused| is_kept(refused, now));
        }
        self.refused.insert(name, refused);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use causeway_certs::{AuthoritySpec, CertificatePlan, FileStorage, OcspPolicy, SharedStorage};
    use causeway_config::plan::ManagedName;
    use serde_json::json;

    use super::super::certificates::renew;
    use super::super::issuance_plan::tests::public_name;
    use super::*;

    // Caddy's documentation of `ask`: a GET with the query `domain`, next to the endpoint's own parameters.
    #[test]
    fn urls_of_the_permission_endpoint() {
        for (endpoint, want) in [
            ("http://localhost:9123/ask", "http://localhost:9123/ask?domain=a.example"),
            ("http://localhost:9123/ask?key=1", "http://localhost:9123/ask?key=1&domain=a.example"),
            ("https://ask.example/#part", "https://ask.example/?domain=a.example"),
        ] {
            assert_eq!(url(endpoint, "a.example"), want);
        }
    }

    // A client that sends ever new names does not make the table grow without bound.
    #[test]
    fn refused_names_are_bounded() {
        let mut state = State::default();
        let refused = |until| RefusedName { until, failures: 0 };
        let now = Instant::now();
        for number in 0..REFUSED_MAX {
            let until = if number == 0 { now + Duration::from_secs(600) } else { now };
            state.refuse(number.to_string(), refused(until));
        }
        state.refuse("more".to_owned(), refused(now + Duration::from_secs(600)));
        assert_eq!(state.refused.len(), 2, "the refusals that are over have left");
        for number in 0..2 * REFUSED_MAX {
            state.refuse(number.to_string(), refused(now + Duration::from_secs(600)));
            assert!(state.refused.len() <= REFUSED_MAX);
        }
    }

    // Strangers can send handshakes for ever new names that are denied. The names whose orders failed keep their
    // pauses, which protect the authority's rate limits, and their count of failures.
    #[test]
    fn denied_names_displace_no_failed_ones() {
        const FAILED: usize = REFUSED_MAX / 2;
        let mut state = State::default();
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(600));
        for number in 0..FAILED {
            let until = if number == 0 { now } else { later };
            state.refuse(format!("failed{number}"), RefusedName { until, failures: 3 });
        }
        for number in 0..3 * REFUSED_MAX {
            state.refuse(format!("denied{number}"), RefusedName { until: later, failures: 0 });
            assert!(state.refused.len() <= REFUSED_MAX);
        }
        assert_eq!(state.refused.values().filter(|refused| refused.failures == 3).count(), FAILED);
        for number in 0..2 * REFUSED_MAX {
            state.refuse(format!("more{number}"), RefusedName { until: later, failures: 1 });
            assert!(state.refused.len() <= REFUSED_MAX);
        }
    }

    fn keeper(storage: &Path, authorities: Vec<AuthoritySpec>) -> (Arc<Keeper>, Storages) {
        let default_storage: SharedStorage = Arc::new(FileStorage::new(storage));
        let plan = CertificatePlan {
            storage: default_storage.clone(),
            authorities,
            loaded: Vec::new(),
            selections: Vec::new(),
            loaded_ocsp: OcspPolicy::default(),
            local: Vec::new(),
            public: Vec::new(),
            renewal_check_interval: Duration::from_secs(24 * 60 * 60),
        };
        let keeper = Keeper::open(plan, None, SystemTime::now()).unwrap_or_else(|error| panic!("{error}"));
        (Arc::new(keeper), Storages::open(default_storage, std::iter::empty(), Path::new("")).unwrap())
    }

    fn shared(keeper: &Arc<Keeper>, storages: &Storages) -> Arc<Shared> {
        let policy = json!({ "subjects": ["a.example"], "on_demand": true, "issuers": [{ "module": "internal" }] });
        let config = json!({ "apps": { "tls": { "automation": { "policies": [policy] } } } });
        let loaded = plan::load(&config, &crate::registry()).unwrap_or_else(|error| panic!("{error}"));
        let names = loaded.certificates.on_demand.unwrap();
        OnDemand::new(names, Getters::new(), None, keeper, storages, &Renewals::new(keeper, None), NAMES_MAX).shared
    }

    fn local() -> ManagedName {
        ManagedName {
            name: "a.example".to_owned(),
            authority: "local".to_owned(),
            lifetime: None,
            renewal_ratio: Some(1.0),
            by_root: false,
            key: plan::KeyKind::P256,
            reuse_key: false,
            storage: None,
        }
    }

    // The long pauses protect the rate limits of authorities. A storage that fails has none: the name is refused for
    // seconds, and its earlier failures still count. A local authority signs in memory.
    #[tokio::test]
    async fn a_storage_that_fails_is_no_failed_order() {
        let directory = std::env::temp_dir().join(format!("causeway-on-demand-storage-{}", std::process::id()));
        let _ = std::fs::remove_file(&directory);
        let (keeper, storages) = keeper(&directory, vec![AuthoritySpec::new("local")]);
        let shared = shared(&keeper, &storages);
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::write(&directory, "in the way").unwrap();
        assert!(sign(&shared, "a.example", SignedName::Local(local())).await.is_some());
        let refused_before = RefusedName { until: Instant::now(), failures: 3 };
        locked(&shared.state).refuse("a.example".to_owned(), refused_before);
        assert!(sign(&shared, "a.example", SignedName::Public(public_name())).await.is_none());
        let refused = locked(&shared.state).refused["a.example"].clone();
        assert_eq!(refused.failures, 3);
        assert!(refused.until <= Instant::now() + Duration::from_secs(10));
        std::fs::remove_file(&directory).unwrap();
        // No authority signs.
        assert!(sign(&shared, "a.example", SignedName::Public(public_name())).await.is_none());
        let state = locked(&shared.state);
        assert_eq!(state.refused["a.example"].failures, 4);
        assert!(state.refused["a.example"].until > Instant::now() + Duration::from_secs(60));
        drop(state);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    // A name that a handshake adds may be due before the next check of the others, which is a day away here. As no
    // handshake used it, the check drops it; a used one would be renewed.
    #[tokio::test]
    async fn an_added_name_wakes_the_renewal() {
        let directory = std::env::temp_dir().join(format!("causeway-on-demand-added-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let (keeper, storages) = keeper(&directory, vec![AuthoritySpec::new("local")]);
        let shared = shared(&keeper, &storages);
        let events = Arc::clone(shared.renewals.events());
        let renewal = tokio::spawn(renew(Arc::clone(&keeper), events));
        let pause = || tokio::time::sleep(Duration::from_millis(5));
        // The first check ends.
        while keeper.until_renewal(SystemTime::now()) < Duration::from_secs(60) {
            pause().await;
        }
        assert!(sign(&shared, "a.example", SignedName::Local(local())).await.is_some());
        while !keeper.names_on_demand().is_empty() {
            pause().await;
        }
        renewal.abort();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    // A task that panics, here one that is aborted, ends the wait of its handshakes, and the next one starts another
    // task.
    #[tokio::test]
    async fn a_task_that_ends_early() {
        let directory = std::env::temp_dir().join(format!("causeway-on-demand-early-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let (keeper, storages) = keeper(&directory, vec![AuthoritySpec::new("local")]);
        let mut shared = shared(&keeper, &storages);
        let endpoint = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let permission = Permission::new(&format!("http://{}/", endpoint.local_addr().unwrap())).unwrap();
        Arc::get_mut(&mut shared).unwrap().permission = Some(permission);
        let (sender, receiver) = oneshot::channel();
        locked(&shared.state).pending.insert("a.example".to_owned(), vec![sender]);
        let sought = || SoughtCertificate {
            server_name: Some("a.example".to_owned()),
            local: None,
            signature_schemes: Vec::new(),
            cipher_suites: Vec::new(),
        };
        let signed = Some(SignedName::Local(local()));
        let wanted = WantedCertificate { name: "a.example".to_owned(), sought: sought(), getters: Vec::new(), signed };
        let task = tokio::spawn(run(Arc::clone(&shared), wanted));
        // It waits for the answer of the permission endpoint.
        let _asked = endpoint.accept().await.unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(locked(&shared.state).pending.is_empty());
        assert!(receiver.await.is_ok_and(|found| found.is_none()));
        let next = OnDemand { shared }.obtain(sought());
        assert!(next.is_some());
        let request = tokio::time::timeout(Duration::from_secs(60), endpoint.accept()).await;
        request.expect("no other task asks the endpoint").unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
