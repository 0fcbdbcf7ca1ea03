//! Obtains and renews certificates of public authorities in the background, one task for each name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use causeway_acme::challenge::{self, AuthoritiesOf};
use causeway_acme::http::{NetworkProxy, ProxyChoice, ProxyEnvironment};
use causeway_acme::{
    AccountKey, AcmeError, ChainPreference, DnsChallenge, DnsProvider, ExternalAccount, Issuer, LETS_ENCRYPT,
    LETS_ENCRYPT_STAGING, PROPAGATION_TIMEOUT, PublicIssuer, RenewalAdvisor, Timing, Wanted, ZeroSslIssuer,
};
use causeway_certs::{
    Certificate, Error, IssuedCertificate, Keeper, KeyKind, Lock, Managed, OcspPolicy, Public, SharedStorage,
};
use causeway_config::plan::{self, PlanError, PropagationLimit, ProxySetting, PublicName, SignedName};
use causeway_pipeline::BuildError;
use causeway_pipeline::build::Problem;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use super::certificates::managed;
use super::on_demand::Permission;
use super::storage::Storages;

/// Certificates that are obtained concurrently. More would only wait for the authority's rate limits.
const CONCURRENT_MAX: usize = 32;
/// The longest sleep until a renewal, so that a step of the clock delays no renewal by more.
const SLEEP_MAX: Duration = Duration::from_secs(10 * 60);
/// The longest pause that an authority's rate limit causes: the longest period of Let's Encrypt's limits.
const LIMITED_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Caddy's default of the lifetime's fraction that remains when a certificate is renewed.
const RENEWAL_RATIO: f64 = 1.0 / 3.0;
/// The largest fraction of a lifetime that may remain. Above it, a policy's ratio would order certificates until the authority's rate
/// limit.
const RENEWAL_RATIO_MAX: f64 = 0.9;
/// The fraction of the lifetime that remains at the latest when a certificate is renewed, independent of its authority's suggestion; CertMagic's.
const LAST_RATIO: f64 = 1.0 / 20.0;
/// The time until the next query after an authority has given no advice (RFC 9773), and the shortest time between two queries.
const ASK_AGAIN: Duration = Duration::from_secs(6 * 60 * 60);
const ASK_PAUSE: Duration = Duration::from_secs(60);
/// How long after a renewal the authority's advice is ignored.
const ADVICE_PAUSE: Duration = Duration::from_secs(60 * 60);
/// Pauses between failed attempts in minutes, after Caddy's: short ones first, because most causes are mistakes that the operator is
/// just correcting. The last one repeats.
const PAUSES: [u64; 12] = [1, 2, 2, 5, 10, 10, 20, 30, 60, 120, 180, 360];

/// The pause after a failure of the storage. It is short, because no authority's rate limit applies.
const STORAGE_PAUSE: Duration = Duration::from_secs(10);

/// A name and everything that its task needs.
pub(super) struct Order {
    public: Public,
    issuers: Box<[PublicIssuer]>,
    /// The local authority that signs when none of the issuers does.
    fallback: Option<Box<Managed>>,
    key: KeyKind,
    /// Whether the certificate obliges the server to send an OCSP response (RFC 7633).
    must_staple: bool,
}

impl Order {
    pub(super) fn new(written: &PublicName, key: KeyKind, on_demand: bool, storages: &Storages) -> Self {
        let issuers = issuers(written);
        let fallback = written.fallback.as_ref().map(|local| Box::new(managed(local, on_demand, storages)));
        let authorities = issuers.iter().map(PublicIssuer::storage_key);
        let public = Public {
            name: written.name.clone(),
            authorities: authorities.chain(fallback.as_ref().map(|local| local.authority.clone())).collect(),
            renewal_ratio: written.renewal_ratio.unwrap_or(RENEWAL_RATIO).min(RENEWAL_RATIO_MAX),
            ocsp: OcspPolicy { disabled: written.ocsp.disabled, overrides: Arc::clone(&written.ocsp.overrides) },
            storage: storages.own(written.storage.as_ref()).cloned(),
            on_demand,
        };
        Self { public, issuers: issuers.into(), fallback, key, must_staple: written.ocsp.must_staple }
    }

    /// The keeper's record of the name.
    pub(super) fn public(&self) -> &Public {
        &self.public
    }

    /// The name's storage; `usual` is that of names without one of their own.
    fn storage<'s>(&'s self, usual: &'s SharedStorage) -> &'s SharedStorage {
        self.public.storage.as_ref().unwrap_or(usual)
    }
}

fn issuers(written: &PublicName) -> Vec<PublicIssuer> {
    let acme = |written: &plan::AcmeIssuer| {
        let usual = Issuer::default();
        let directory = if written.ca.is_empty() { usual.directory } else { written.ca.clone() };
        let test_directory = match &*written.test_ca {
            "" if directory == LETS_ENCRYPT => Some(LETS_ENCRYPT_STAGING.to_owned()),
            "" => None,
            test => Some(test.to_owned()),
        };
        Issuer {
            directory,
            test_directory,
            email: written.email.clone(),
            external_account: written
                .external_account
                .clone()
                .map(|(key_id, mac_key)| ExternalAccount { key_id, mac_key }),
            // `check` has refused texts that cannot be used.
            account_key: account_key(written).unwrap_or_default(),
            proxy: proxy(written).unwrap_or_default(),
            roots: written.roots.clone(),
            profile: written.profile.clone(),
            lifetime: written.lifetime,
            chains: written.chains.as_deref().map(chain_preference),
            http: !written.no_http,
            tls_alpn: !written.no_tls_alpn,
            is_distributed: !written.no_distributed,
            dns: written.dns.as_deref().and_then(dns_challenge),
            timing: Timing::default(),
        }
    };
    let issuer = |written: &plan::PublicIssuer| match written {
        plan::PublicIssuer::Acme(written) => PublicIssuer::Acme(Box::new(acme(written))),
        plan::PublicIssuer::ZeroSsl(written) => {
            PublicIssuer::ZeroSsl(ZeroSslIssuer::new(written.api_key.0.clone(), written.validity_days))
        }
    };
    written.issuers.iter().map(issuer).collect()
}

fn chain_preference(written: &plan::PreferredChains) -> ChainPreference {
    ChainPreference {
        smallest: written.smallest,
        any_common_names: written.any_common_names.clone(),
        root_common_names: written.root_common_names.clone(),
    }
}

/// Returns the lookup of the authorities with which a name can have an open challenge in `storage`: for the names of `orders`, and for those of
/// which a handshake obtains the certificate.
pub(super) fn authorities_of(
    orders: &[Order],
    on_demand: Option<plan::OnDemand>,
    storages: &Storages,
    storage: &SharedStorage,
) -> AuthoritiesOf {
    // Thousands of names have few different lists.
    let mut lists: HashSet<Arc<[String]>> = HashSet::new();
    let mut names = HashMap::with_capacity(orders.len());
    let there = orders.iter().filter(|order| Arc::ptr_eq(order.storage(storages.usual()), storage));
    for Order { public, issuers, .. } in there {
        let keys = challenge_keys(issuers);
        let list = match lists.get(&*keys) {
            Some(list) => Arc::clone(list),
            None => Arc::from(keys),
        };
        lists.insert(Arc::clone(&list));
        // An IP address has another name in a ClientHello.
        names.insert(challenge::server_name(&public.name), Arc::clone(&list));
        names.insert(public.name.clone(), list);
    }
    let (storages, storage) = (storages.clone(), Arc::clone(storage));
    Box::new(move |name| match (names.get(name), &on_demand) {
        (Some(list), _) => Some(Arc::clone(list)).filter(|list| !list.is_empty()),
        (None, Some(on_demand)) => match on_demand.name(name)? {
            SignedName::Public(written) => {
                let is_there = Arc::ptr_eq(storages.of(written.storage.as_ref()), &storage);
                is_there.then(|| Arc::from(challenge_keys(&issuers(&written))))
            }
            SignedName::Local(_) => None,
        },
        (None, None) => None,
    })
}

/// The storage keys of the authorities whose challenges are in storage.
fn challenge_keys(issuers: &[PublicIssuer]) -> Vec<String> {
    issuers.iter().flat_map(PublicIssuer::challenge_keys).collect()
}

/// Checks the settings of DNS providers and issuers, as far as the configuration's own code does not.
pub(super) fn check(certificates: &plan::Certificates) -> Result<(), PlanError> {
    for provider in &certificates.dns_providers {
        dns_provider(provider)?;
    }
    for (path, issuer) in &certificates.acme_issuers {
        let refuse = |key: &str, found: String, expected: &'static str| BuildError {
            path: format!("{path}.{key}"),
            problem: Problem::Value { found, expected: expected.into() },
        };
        account_key(issuer).map_err(|found| refuse("account_key", found, "a P-256 key as PEM"))?;
        proxy(issuer).map_err(|found| refuse("network_proxy.url", found, NetworkProxy::EXPECTED))?;
    }
    Ok(())
}

/// The key of the issuer's account.
///
/// # Errors
/// A description of a text that is no key, which does not show the text.
fn account_key(written: &plan::AcmeIssuer) -> Result<Option<AccountKey>, String> {
    let Some(plan::Secret(text)) = &written.account_key else { return Ok(None) };
    let describe = || if text.is_empty() { String::new() } else { format!("(another text of {} bytes)", text.len()) };
    AccountKey::from_pem(text).map(Some).ok_or_else(describe)
}

/// The proxy for the issuer's requests.
///
/// # Errors
/// The text that is no proxy's URL, without the credentials in it.
fn proxy(written: &plan::AcmeIssuer) -> Result<ProxyChoice, String> {
    Ok(match &written.proxy {
        ProxySetting::Environment => environment_proxy(),
        ProxySetting::Direct => ProxyChoice::Direct,
        ProxySetting::Url(plan::Secret(url)) => {
            ProxyChoice::Proxy(url.parse().map_err(|_| match url.rsplit_once('@') {
                Some((_, host)) => format!("(credentials)@{host}"),
                None => url.clone(),
            })?)
        }
    })
}

/// The proxy that the environment has for requests to other servers.
pub(super) fn environment_proxy() -> ProxyChoice {
    // The environment of a process does not change.
    static ENVIRONMENT: LazyLock<ProxyEnvironment> = LazyLock::new(ProxyEnvironment::read);
    ProxyChoice::Environment(ENVIRONMENT.clone())
}

fn dns_provider(written: &plan::DnsProvider) -> Result<DnsProvider, BuildError> {
    DnsProvider::new(&written.name, written.settings.clone()).map_err(|error| BuildError {
        path: format!("{}.{}", written.path, error.setting),
        problem: Problem::Value { found: error.found, expected: error.expected.into() },
    })
}

fn dns_challenge(written: &plan::DnsChallenge) -> Option<DnsChallenge> {
    Some(DnsChallenge {
        // `check` has refused providers that cannot be made.
        provider: dns_provider(&written.provider).ok()?,
        ttl: written.ttl,
        propagation_delay: written.propagation_delay,
        propagation_timeout: match written.propagation_limit {
            PropagationLimit::Default => Some(PROPAGATION_TIMEOUT),
            PropagationLimit::Unchecked => None,
            PropagationLimit::Within(limit) => Some(limit),
        },
        resolvers: written.resolvers.clone(),
        override_domain: Some(written.override_domain.clone()).filter(|name| !name.is_empty()),
    })
}

/// The signals between the tasks of certificates.
#[derive(Default)]
pub(super) struct CertificateEvents {
    /// Signalled when a name has a new certificate.
    pub(super) issued: Notify,
    /// Changes when a responder has reported a certificate as revoked.
    pub(super) revoked: watch::Sender<()>,
}

/// The tasks that keep certificates fresh, one for each name. Clones share them.
#[derive(Clone)]
pub(super) struct Renewals {
    keeper: Arc<Keeper>,
    /// Bounds the concurrent orders.
    slots: Arc<Semaphore>,
    attempts: Arc<Mutex<HashMap<String, Attempt>>>,
    advisor: Arc<RenewalAdvisor>,
    events: Arc<CertificateEvents>,
    /// `None` after [`stop`](Self::stop).
    tasks: Arc<Mutex<Option<JoinSet<()>>>>,
}

/// The state of a name without a fresh certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// An order is in progress, or waits for others.
    Running,
    /// The last order failed.
    Failed {
        /// The reason, in one line.
        error: String,
        /// The number of failures since the last success.
        failures: usize,
        /// The time of the next attempt.
        retry_at: SystemTime,
    },
}

impl Renewals {
    pub(super) fn new(keeper: &Arc<Keeper>) -> Self {
        let slots = Arc::new(Semaphore::new(CONCURRENT_MAX));
        Self {
            keeper: Arc::clone(keeper),
            slots,
            attempts: Arc::default(),
            advisor: Arc::default(),
            events: Arc::default(),
            tasks: Arc::new(Mutex::new(Some(JoinSet::new()))),
        }
    }

    /// Starts the task of a name: obtains a certificate when it has none or a due one. For a name on demand, `permission` is checked
    /// before each renewal, and the task ends when the certificate was not used. Does nothing after [`stop`](Self::stop).
    pub(super) fn start(&self, order: Order, permission: Option<Permission>) {
        // Without `tasks`: a task that held its own set would never be dropped.
        let task = Task {
            order,
            permission,
            keeper: self.keeper.clone(),
            slots: self.slots.clone(),
            attempts: self.attempts.clone(),
            advisor: self.advisor.clone(),
            events: self.events.clone(),
        };
        if let Some(tasks) = &mut *locked(&self.tasks) {
            // Collects the tasks that have ended, so that names on demand do not accumulate them.
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task.run());
        }
    }

    pub(super) fn events(&self) -> &Arc<CertificateEvents> {
        &self.events
    }

    /// Aborts all tasks.
    pub(super) fn stop(&self) {
        drop(locked(&self.tasks).take());
    }

    /// Orders a certificate at once. `attempt` counts the failures so far.
    ///
    /// # Errors
    /// The reason why no issuer signed a certificate.
    pub(super) async fn obtain(&self, order: &Order, attempt: usize) -> Result<(), String> {
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await.map_err(|error| error.to_string())?;
        order.renew(&self.keeper, attempt, false).await.map_err(|error| error.to_string())
    }

    /// The state of the names without a fresh certificate.
    pub(super) fn attempts(&self) -> HashMap<String, Attempt> {
        locked(&self.attempts).clone()
    }
}

/// Locks and ignores poisoning: every change is one call.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task of one name.
struct Task {
    order: Order,
    permission: Option<Permission>,
    keeper: Arc<Keeper>,
    slots: Arc<Semaphore>,
    attempts: Arc<Mutex<HashMap<String, Attempt>>>,
    advisor: Arc<RenewalAdvisor>,
    events: Arc<CertificateEvents>,
}

/// The renewal time that an authority suggests for a certificate, and the time of the next query.
struct Advice {
    leaf: Arc<Certificate>,
    at: Option<SystemTime>,
    ask_at: SystemTime,
}

impl Task {
    /// Obtains the name's certificate when it has none or a due one, for ever.
    async fn run(self) {
        let Self { order, keeper, slots, attempts, .. } = &self;
        let name = &order.public.name;
        let mut failures = 0;
        let mut advice = None;
        let mut renewed: Option<Instant> = None;
        let mut revoked = self.events.revoked.subscribe();
        loop {
            // Otherwise, an authority that suggests the immediate renewal of each new certificate would cause orders without end.
            let is_advised = renewed.is_none_or(|at| at.elapsed() > ADVICE_PAUSE);
            // Boxed, as the orders below: a task sleeps for weeks, and would otherwise hold room for the state of a query or an order.
            let sleep = Box::pin(self.until_due(&mut advice, is_advised)).await;
            if !sleep.is_zero() {
                failures = 0;
                locked(attempts).remove(name);
                // The sender lives as long as this task.
                let _ = tokio::time::timeout(sleep.min(SLEEP_MAX), revoked.changed()).await;
                continue;
            }
            if order.public.on_demand && !Box::pin(self.is_still_wanted()).await {
                tracing::info!(
                    "{name}: its certificate is not renewed: it was not used, or its permission was withdrawn"
                );
                keeper.remove(name);
                locked(attempts).remove(name);
                return;
            }
            locked(attempts).insert(name.clone(), Attempt::Running);
            // The semaphore is never closed.
            let Ok(slot) = slots.acquire().await else { return };
            let is_early = advice.as_ref().is_some_and(|advice: &Advice| advice.is_due()) || self.is_revoked();
            let error = match Box::pin(order.renew(keeper, failures, is_early)).await {
                Ok(()) if keeper.renew_at(name).is_some_and(|at| SystemTime::now() < at) => {
                    renewed = Some(Instant::now());
                    self.events.issued.notify_one();
                    continue;
                }
                // Without a pause this would order certificates until the authority's rate limit.
                Ok(()) => {
                    let why = "the new one is due for renewal already: check this machine's clock";
                    RenewError::Authority(why.to_owned(), None)
                }
                Err(error) => error,
            };
            drop(slot);
            let pause = match &error {
                RenewError::Storage(_) => STORAGE_PAUSE,
                RenewError::Authority(_, retry_at) => {
                    failures += 1;
                    pause_until(failures - 1, *retry_at, SystemTime::now())
                }
            };
            tracing::error!("{name}: cannot obtain a certificate: {error}; retrying in {}", in_words(pause));
            let retry_at = SystemTime::now() + pause;
            locked(attempts).insert(name.clone(), Attempt::Failed { error: error.to_string(), failures, retry_at });
            tokio::time::sleep(pause).await;
        }
    }

    /// How long the certificate needs no renewal, and its authority no question. Zero: it is due, or there is none. `is_advised`: the
    /// authority's advice counts.
    async fn until_due(&self, advice: &mut Option<Advice>, is_advised: bool) -> Duration {
        let (now, name) = (SystemTime::now(), &self.order.public.name);
        let (Some(issued), Some(due)) = (self.keeper.issued(name), self.keeper.renew_at(name)) else {
            return Duration::ZERO;
        };
        // As in CertMagic, a revoked certificate is replaced at once.
        if issued.certificate.is_revoked() {
            return Duration::ZERO;
        }
        let left = |at: SystemTime| at.duration_since(now).unwrap_or_default();
        // Only while the certificate is fresh: a due one is renewed anyhow.
        let is_known = |advice: &Advice| Arc::ptr_eq(&advice.leaf, &issued.certificate) && now < advice.ask_at;
        if !left(due).is_zero() && !advice.as_ref().is_some_and(is_known) {
            *advice = Some(self.ask(&issued, now).await);
        }
        match advice {
            Some(advice) if Arc::ptr_eq(&advice.leaf, &issued.certificate) => {
                // An authority may suggest a later time than the configured ratio, but not one shortly before the end.
                let last = issued.certificate.renew_at(LAST_RATIO);
                let at = advice.at.filter(|_| is_advised).map_or(due, |at| at.min(last));
                left(at).min(left(advice.ask_at).max(ASK_PAUSE))
            }
            _ => left(due),
        }
    }

    /// Queries the authority that has issued the certificate for the time of its renewal.
    async fn ask(&self, issued: &IssuedCertificate, now: SystemTime) -> Advice {
        let name = &self.order.public.name;
        let mut advice = Advice { leaf: Arc::clone(&issued.certificate), at: None, ask_at: now + ASK_AGAIN };
        let mut issuers = self.order.issuers.iter().filter_map(PublicIssuer::acme);
        let issuer = issuers.find(|issuer| issuer.storage_key() == issued.authority);
        let signed = issued.certificate.signed();
        let (Some(issuer), Some(leaf)) = (issuer, signed.cert.first()) else { return advice };
        match self.advisor.ask(issuer, leaf).await {
            Ok(Some(found)) => {
                tracing::debug!(name, at = ?found.at, explanation = found.explanation, "the authority suggests when to renew");
                advice.at = Some(found.at);
                advice.ask_at = now + found.again;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(name, %error, "no renewal information"),
        }
        advice
    }

    /// Whether the certificate is revoked, by its OCSP responder.
    fn is_revoked(&self) -> bool {
        self.keeper.issued(&self.order.public.name).is_some_and(|issued| issued.certificate.is_revoked())
    }

    /// Whether the certificate of a name on demand is worth a renewal.
    async fn is_still_wanted(&self) -> bool {
        let name = &self.order.public.name;
        if !self.keeper.issued(name).is_some_and(|issued| issued.certificate.is_used()) {
            return false;
        }
        match &self.permission {
            // An endpoint that does not answer denies nothing: the name was allowed before.
            Some(permission) => permission.ask(name).await.unwrap_or(true),
            None => true,
        }
    }
}

impl Advice {
    fn is_due(&self) -> bool {
        self.at.is_some_and(|at| at <= SystemTime::now())
    }
}

/// How long to wait after this many failures and one more.
pub(super) fn pause(failures: usize) -> Duration {
    Duration::from_secs(60 * PAUSES[failures.min(PAUSES.len() - 1)])
}

/// As [`pause`], but at least until the end of the authorities' rate limits.
fn pause_until(failures: usize, retry_at: Option<SystemTime>, now: SystemTime) -> Duration {
    let limited = retry_at.and_then(|at| at.duration_since(now).ok()).unwrap_or_default();
    pause(failures).max(limited.min(LIMITED_MAX))
}

/// Why a name has no new certificate.
enum RenewError {
    /// Storage failed, or another process has held the name's lock for too long. No order was made.
    Storage(String),
    /// The authorities' reasons, and the time before which all of them refuse another order by a rate limit.
    Authority(String, Option<SystemTime>),
}

impl std::fmt::Display for RenewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Storage(why) | Self::Authority(why, _)) = self;
        f.write_str(why)
    }
}

fn in_words(pause: Duration) -> String {
    match pause.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

impl Order {
    /// Obtains a certificate from the first issuer that signs one, or else from the local authority. `attempt` counts the failures so
    /// far. `is_early`: the authority has suggested to renew the certificate in use before it is due.
    async fn renew(&self, keeper: &Arc<Keeper>, attempt: usize, is_early: bool) -> Result<(), RenewError> {
        let failed = |error: Error| RenewError::Storage(error.to_string());
        let (storage, name) = (self.storage(keeper.storage()).clone(), self.public.name.clone());
        let locked = blocking(move || storage.lock(&format!("issue_cert_{name}"))).await;
        // Held until the certificate is stored: of several processes with this storage one obtains the certificate, and the others then find
        // it.
        let lock = Arc::new(locked.map_err(RenewError::Storage)?.map_err(failed)?);
        let old = keeper.issued(&self.public.name);
        let (at_work, name) = (Arc::clone(keeper), self.public.name.clone());
        let is_found = blocking(move || at_work.reload(&name, SystemTime::now())).await;
        let is_found = is_found.map_err(RenewError::Storage)?.map_err(failed)?;
        let is_old = || {
            let leaf = |issued: IssuedCertificate| issued.certificate.signed().cert.first().cloned();
            old.and_then(leaf) == keeper.issued(&self.public.name).and_then(leaf)
        };
        if is_found && !(is_early && is_old()) {
            return Ok(());
        }
        let (mut errors, mut ends) = (Vec::new(), Vec::new());
        for issuer in &self.issuers {
            match self.obtain(issuer, keeper, &lock, attempt).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    ends.push(error.retry_at());
                    errors.push(format!("{}: {error}", issuer.label()));
                }
            }
        }
        // An issuer without such a time may be tried sooner.
        let retry_at = ends.into_iter().collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().min());
        let mut reasons = errors.join("; ");
        if let Some(local) = self.fallback.clone().filter(|local| self.lacks_public_certificate(local, keeper)) {
            tracing::error!("{}: {reasons}; the local authority '{}' signs", self.public.name, local.authority);
            let keeper = Arc::clone(keeper);
            let signed = blocking(move || keeper.sign_public(&local, &lock, SystemTime::now())).await;
            let Err(error) = signed.and_then(|signed| signed.map_err(|error| error.to_string())) else { return Ok(()) };
            reasons = format!("{reasons}; the local authority: {error}");
        }
        Err(RenewError::Authority(reasons, retry_at))
    }

    /// Returns whether the name has no certificate of a public authority that clients accept. The local authority replaces no such one.
    fn lacks_public_certificate(&self, local: &Managed, keeper: &Keeper) -> bool {
        !keeper.issued(&self.public.name).is_some_and(|issued| {
            let certificate = &issued.certificate;
            issued.authority != local.authority
                && SystemTime::now() < certificate.not_after()
                && !certificate.is_revoked()
        })
    }

    async fn obtain(
        &self,
        issuer: &PublicIssuer,
        keeper: &Arc<Keeper>,
        lock: &Arc<Lock>,
        attempt: usize,
    ) -> Result<(), AcmeError> {
        let name = &self.public.name;
        tracing::info!("{name}: obtaining a certificate from {}", issuer.label());
        let old = keeper.issued(name).filter(|old| old.authority == issuer.storage_key());
        let old = old.map(|old| old.certificate.signed());
        let replaces = old.as_ref().and_then(|old| old.cert.first());
        let wanted = Wanted { name, key: self.key, attempt, must_staple: self.must_staple, replaces };
        let issued = issuer.obtain(wanted, self.storage(keeper.storage())).await?;
        let (keeper, lock) = (Arc::clone(keeper), Arc::clone(lock));
        let (at, authority) = (name.clone(), issuer.storage_key());
        let stored = blocking(move || keeper.put(&at, &authority, &issued.chain, &issued.key, &lock)).await;
        match stored.unwrap_or(Ok(())) {
            Err(error @ (Error::Write(..) | Error::LockLost(_))) => {
                tracing::error!("{name}: {error}; the new certificate is served, but the next start orders another");
            }
            stored => stored?,
        }
        tracing::info!("{name}: obtained a certificate from {}", issuer.label());
        Ok(())
    }
}

/// Runs `work` on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn storages() -> Storages {
        let usual: SharedStorage = Arc::new(causeway_certs::FileStorage::new(""));
        Storages::open(usual, std::iter::empty(), Path::new("")).unwrap()
    }

    // RFC 8555 §6.6: a client that is limited waits. Without a time, and beyond a week, the usual pauses count.
    #[test]
    fn pauses_of_rate_limits() {
        let now = SystemTime::now();
        let hours = |hours: u64| Some(now + Duration::from_secs(hours * 3600));
        assert_eq!(pause_until(0, None, now), pause(0));
        assert_eq!(pause_until(0, hours(3), now), Duration::from_secs(3 * 3600));
        assert_eq!(pause_until(0, hours(10_000), now), LIMITED_MAX);
        assert_eq!(pause_until(3, Some(now - Duration::from_secs(60)), now), pause(3));
    }

    // CertMagic's default is a third. A ratio near 1 would make every certificate due as soon as it is issued.
    #[test]
    fn renewal_ratios() {
        for (written, want) in [(None, RENEWAL_RATIO), (Some(0.5), 0.5), (Some(1.0), RENEWAL_RATIO_MAX)] {
            let name = PublicName {
                name: "a.example".to_owned(),
                issuers: Vec::new(),
                fallback: None,
                renewal_ratio: written,
                key: plan::KeyKind::P256,
                ocsp: plan::OcspStapling::default(),
                storage: None,
            };
            let order = Order::new(&name, KeyKind::P256, false, &storages());
            assert!((order.public().renewal_ratio - want).abs() < f64::EPSILON, "{written:?}");
        }
    }

    // Caddy's documentation of `account_key`, a private key as PEM, and of `network_proxy`. The messages do not show secrets.
    #[test]
    fn refused_settings() {
        let secret = |text: &str| plan::Secret(text.to_owned());
        let key = causeway_certs::generate_key(KeyKind::P256).unwrap().serialize_pem();
        let other = causeway_certs::generate_key(KeyKind::P384).unwrap().serialize_pem();
        let expected = NetworkProxy::EXPECTED;
        for (account_key, proxy, want) in [
            (None, "http://ann:secret@p.example:3128", String::new()),
            (Some(&*key), "socks5://p.example", String::new()),
            (Some(""), "http://p", "at.account_key: found '', expected a P-256 key as PEM".to_owned()),
            (
                Some("secret"),
                "http://p",
                "at.account_key: found '(another text of 6 bytes)', expected a P-256 key as PEM".to_owned(),
            ),
            (
                Some(&*other),
                "http://p",
                format!("at.account_key: found '(another text of {} bytes)', expected a P-256 key as PEM", other.len()),
            ),
            (None, "", format!("at.network_proxy.url: found '', expected {expected}")),
            (None, "ftp://u:secret@p", format!("at.network_proxy.url: found '(credentials)@p', expected {expected}")),
        ] {
            let issuer = plan::AcmeIssuer {
                account_key: account_key.map(secret),
                proxy: ProxySetting::Url(secret(proxy)),
                ..plan::AcmeIssuer::default()
            };
            let certificates =
                plan::Certificates { acme_issuers: vec![("at".to_owned(), issuer)], ..plan::Certificates::default() };
            let found = check(&certificates).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, want, "{proxy}");
        }
    }

    // Nearly all tasks of 10 000 names sleep: they hold their order and a timer. Without the boxes a task holds some KiB.
    #[test]
    fn a_sleeping_task_is_small() {
        const BYTES_MAX: usize = 1536;
        let name = PublicName {
            name: "a.example".to_owned(),
            issuers: Vec::new(),
            fallback: None,
            renewal_ratio: None,
            key: plan::KeyKind::P256,
            ocsp: plan::OcspStapling::default(),
            storage: None,
        };
        let storages = storages();
        let plan = causeway_certs::CertificatePlan {
            storage: storages.usual().clone(),
            authorities: Vec::new(),
            loaded: Vec::new(),
            selections: Vec::new(),
            loaded_ocsp: OcspPolicy::default(),
            managed: Vec::new(),
            public: Vec::new(),
            look_every: Duration::from_secs(600),
        };
        let keeper = Arc::new(Keeper::open(plan, None, SystemTime::now()).unwrap());
        let task = Task {
            order: Order::new(&name, KeyKind::P256, false, &storages),
            permission: None,
            keeper,
            slots: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            attempts: Arc::default(),
            advisor: Arc::default(),
            events: Arc::default(),
        };
        let task = task.run();
        assert!(size_of_val(&task) <= BYTES_MAX, "{} bytes", size_of_val(&task));
    }
}
