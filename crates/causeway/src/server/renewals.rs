//! Obtains and renews certificates of public authorities in the background, one task for each name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use causeway_acme::{PublicIssuer, RenewalAdvisor};
use causeway_certs::{Certificate, IssuedCertificate, Keeper};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::blocking::locked;
use super::issuance_plan::{IssuancePlan, RenewError};
use super::on_demand::Permission;
use super::order_limits::{LIMITED_MAX, OrderLimits};
use super::order_slots::{OrderSlots, OrderUrgency};

/// The longest sleep until a renewal, so that a step of the clock delays no renewal by more.
const SLEEP_MAX: Duration = Duration::from_secs(10 * 60);
/// The fraction of the lifetime that remains at the latest when a certificate is renewed, independent of its
/// authority's suggestion; CertMagic's.
const LAST_RATIO: f64 = 1.0 / 20.0;
/// The time until the next query after an authority has given no advice (RFC 9773), and the shortest time between two
/// queries.
const REPEAT_INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);
const REQUEST_PAUSE: Duration = Duration::from_secs(60);
/// How long after a renewal the authority's advice is ignored.
const ADVICE_PAUSE: Duration = Duration::from_secs(60 * 60);
/// Pauses between failed attempts in minutes, after Caddy's: short ones first, because most causes are mistakes that
/// the operator is just correcting. The last one repeats.
const PAUSES: [u64; 12] = [1, 2, 2, 5, 10, 10, 20, 30, 60, 120, 180, 360];

/// The pause after a failure of the storage or a local authority. It is short, because no rate limit applies.
const LOCAL_PAUSE: Duration = Duration::from_secs(10);

/// The time between two errors about a storage that fails for every name.
const STORAGE_ERROR_PAUSE: Duration = Duration::from_secs(60 * 60);

/// How long another server with the storage may obtain a name's certificate before that is an error: longer than an
/// order of several issuers, each with its test authority and two challenges.
const ELSEWHERE_MAX: Duration = Duration::from_secs(60 * 60);

/// The signals and the state that the tasks of certificates share.
#[derive(Default)]
pub(super) struct CertificateEvents {
    /// Signalled when a name has a new certificate.
    pub(super) issued: Notify,
    /// Signalled when a local authority has signed for one more name, which may be due sooner than the others.
    pub(super) added: Notify,
    /// Changes when a responder has reported a certificate as revoked.
    pub(super) revoked: watch::Sender<()>,
    faults: StorageFaults,
}

/// The tasks that keep certificates fresh, one for each name. Clones share them.
#[derive(Clone)]
pub(super) struct Renewals {
    keeper: Arc<Keeper>,
    slots: Arc<OrderSlots>,
    attempts: Arc<Mutex<HashMap<String, Attempt>>>,
    advisor: Arc<RenewalAdvisor>,
    advised: Arc<Mutex<HashMap<String, AdvisedName>>>,
    limits: Arc<OrderLimits>,
    events: Arc<CertificateEvents>,
    /// `None` after [`stop`](Self::stop).
    tasks: Arc<Mutex<Option<Tasks>>>,
}

#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    by_name: HashMap<String, RunningTask>,
}

struct RunningTask {
    handle: AbortHandle,
    /// The task removes its name, and ends: another one may serve the name by now.
    is_ending: Arc<AtomicBool>,
}

impl RunningTask {
    fn has_ended(&self) -> bool {
        self.is_ending.load(Ordering::Acquire) || self.handle.is_finished()
    }
}

/// The state of a name without a fresh certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// An order is in progress, here or at another server with the storage, or waits for others.
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
    /// `before`: the tasks of the former configuration, whose authorities are not queried again before their advice
    /// ends (RFC 9773 §4.3), and get no order before their rate limits end.
    pub(super) fn new(keeper: &Arc<Keeper>, before: Option<&Self>) -> Self {
        let advised = before.map(|before| Arc::clone(&before.advised)).unwrap_or_default();
        // Otherwise, names that were removed would remain.
        locked(&advised).retain(|_, name| name.is_needed());
        let limits = before.map(|before| Arc::clone(&before.limits)).unwrap_or_default();
        limits.remove_ended(SystemTime::now());
        Self {
            keeper: Arc::clone(keeper),
            slots: Arc::default(),
            attempts: Arc::default(),
            advisor: Arc::default(),
            advised,
            limits,
            events: Arc::default(),
            tasks: Arc::new(Mutex::new(Some(Tasks::default()))),
        }
    }

    /// Starts the task of a name: obtains a certificate when it has none or a due one. For a name on demand,
    /// `permission` is checked before each renewal, and the task ends when the certificate was not used. Does nothing
    /// if the name has a task, and after [`stop`](Self::stop).
    pub(super) fn start(&self, plan: IssuancePlan, permission: Option<Permission>) {
        let task = self.task(plan, permission);
        if let Some(Tasks { all, by_name }) = &mut *locked(&self.tasks) {
            let mut has_ended = false;
            // Collects the tasks that have ended, so that names on demand do not accumulate them.
            while all.try_join_next().is_some() {
                has_ended = true;
            }
            if has_ended {
                by_name.retain(|_, task| !task.has_ended());
            }
            let name = task.plan.public().name.clone();
            // Also a name that left memory and came back within a sleep.
            if by_name.get(&name).is_none_or(RunningTask::has_ended) {
                let is_ending = Arc::clone(&task.is_ending);
                by_name.insert(name, RunningTask { handle: all.spawn(task.run()), is_ending });
            }
        }
    }

    fn task(&self, plan: IssuancePlan, permission: Option<Permission>) -> Task {
        // Without `tasks`: a task that held its own set would never be dropped.
        Task {
            plan,
            permission,
            keeper: self.keeper.clone(),
            slots: self.slots.clone(),
            attempts: self.attempts.clone(),
            advisor: self.advisor.clone(),
            advised: self.advised.clone(),
            limits: self.limits.clone(),
            events: self.events.clone(),
            is_ending: Arc::default(),
        }
    }

    /// Aborts the task of a name that has left memory.
    pub(super) fn end(&self, name: &str) {
        if let Some(task) = locked(&self.tasks).as_mut().and_then(|tasks| tasks.by_name.remove(name)) {
            task.handle.abort();
        }
        locked(&self.attempts).remove(name);
        locked(&self.advised).remove(name);
    }

    pub(super) fn events(&self) -> &Arc<CertificateEvents> {
        &self.events
    }

    /// Aborts all tasks.
    pub(super) fn stop(&self) {
        drop(locked(&self.tasks).take());
    }

    /// Orders a certificate at once, unless a rate limit stands. `attempt` counts the failures so far.
    ///
    /// # Errors
    /// The reason why no issuer signed a certificate.
    pub(super) async fn obtain(&self, plan: &IssuancePlan, attempt: usize) -> Result<(), RenewError> {
        let _slot = self.slots.acquire(plan.first_authority(), OrderUrgency::Handshake).await;
        let renew = || plan.renew(&self.keeper, attempt, false, &self.limits);
        match renew().await {
            // A handshake waits for twice the time in which storage gives up its lock.
            Err(RenewError::Elsewhere(_)) => renew().await,
            done => done,
        }
    }

    /// The state of the names without a fresh certificate.
    pub(super) fn attempts(&self) -> HashMap<String, Attempt> {
        locked(&self.attempts).clone()
    }
}

/// The task of one name.
struct Task {
    plan: IssuancePlan,
    permission: Option<Permission>,
    keeper: Arc<Keeper>,
    slots: Arc<OrderSlots>,
    attempts: Arc<Mutex<HashMap<String, Attempt>>>,
    advisor: Arc<RenewalAdvisor>,
    advised: Arc<Mutex<HashMap<String, AdvisedName>>>,
    limits: Arc<OrderLimits>,
    events: Arc<CertificateEvents>,
    is_ending: Arc<AtomicBool>,
}

/// The storages that fail for every name, by their identities, and the time of the last error about each. Thousands of
/// names may wait for one, and try again every few seconds: one error per [`STORAGE_ERROR_PAUSE`] is logged.
#[derive(Default)]
struct StorageFaults(Mutex<HashMap<String, Instant>>);

impl StorageFaults {
    /// Records the outcome of an attempt. Returns whether it is to be logged: it is no failure of a storage about which
    /// there is a recent error.
    fn record_outcome(&self, storage: &str, error: Option<&RenewError>, now: Instant) -> bool {
        let mut failing = locked(&self.0);
        match error {
            Some(RenewError::Storage(_)) => {
                let is_recent =
                    failing.get(storage).is_some_and(|logged| now.duration_since(*logged) < STORAGE_ERROR_PAUSE);
                if !is_recent {
                    failing.insert(storage.to_owned(), now);
                }
                !is_recent
            }
            // The storage has given a lock, if only to another server.
            Some(RenewError::Local(_) | RenewError::Elsewhere(_) | RenewError::Authority(..)) | None => {
                failing.remove(storage);
                true
            }
        }
    }
}

/// The facts of a task that the one of the next configuration takes over.
#[derive(Clone, Default)]
struct AdvisedName {
    advice: Option<Advice>,
    /// The last renewal.
    renewed: Option<Instant>,
}

impl AdvisedName {
    /// Whether the authority's advice counts. Otherwise, an authority that suggests the immediate renewal of each new
    /// certificate would cause orders without end.
    fn is_advised(&self) -> bool {
        self.renewed.is_none_or(|at| at.elapsed() > ADVICE_PAUSE)
    }

    /// Whether a task can still use it: a keeper has the certificate, or the last renewal was lately.
    fn is_needed(&self) -> bool {
        !self.is_advised() || self.advice.as_ref().is_some_and(|advice| Arc::strong_count(&advice.leaf) > 1)
    }
}

/// The renewal time that an authority suggests for a certificate, and the time of the next query.
#[derive(Clone)]
struct Advice {
    leaf: Arc<Certificate>,
    at: Option<SystemTime>,
    request_at: SystemTime,
}

impl Task {
    /// Obtains the name's certificate when it has none or a due one, for ever.
    async fn run(self) {
        let Self { plan, keeper, slots, attempts, .. } = &self;
        let name = &plan.public().name;
        let (mut failures, mut elsewhere_since) = (0, None);
        let mut advised = locked(&self.advised).get(name).cloned().unwrap_or_default();
        let mut revoked = self.events.revoked.subscribe();
        loop {
            // Boxed, as the orders below: a task sleeps for weeks, and would otherwise hold room for the state of a
            // query or an order.
            let sleep = Box::pin(self.until_due(&mut advised)).await;
            if !sleep.is_zero() {
                (failures, elsewhere_since) = (0, None);
                locked(attempts).remove(name);
                // The sender lives as long as this task.
                let _ = tokio::time::timeout(sleep.min(SLEEP_MAX), revoked.changed()).await;
                continue;
            }
            if plan.public().on_demand && !Box::pin(self.is_still_wanted()).await {
                tracing::info!(
                    "{name}: its certificate is not renewed: it was not used, or its permission was withdrawn"
                );
                // First: a handshake that adds the name again starts another task.
                self.is_ending.store(true, Ordering::Release);
                keeper.remove_public(name);
                locked(attempts).remove(name);
                locked(&self.advised).remove(name);
                return;
            }
            locked(attempts).insert(name.clone(), Attempt::Running);
            let renewed = Box::pin(async {
                let _slot = slots.acquire(plan.first_authority(), OrderUrgency::Background).await;
                let is_early = advised.advice.as_ref().is_some_and(Advice::is_due) || self.is_revoked();
                plan.renew(keeper, failures, is_early, &self.limits).await
            });
            let error = match renewed.await {
                Ok(()) if keeper.public_renew_at(name).is_some_and(|at| SystemTime::now() < at) => {
                    elsewhere_since = None;
                    self.record_outcome(None);
                    advised.renewed = Some(Instant::now());
                    locked(&self.advised).insert(name.clone(), advised.clone());
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
            if is_elsewhere(&error, &mut elsewhere_since, Instant::now()) {
                tracing::info!("{name}: another server with this storage is obtaining its certificate");
                tokio::time::sleep(LOCAL_PAUSE).await;
                continue;
            }
            let pause = self.until_ended(pause_after(&error, &mut failures, SystemTime::now()));
            if self.record_outcome(Some(&error)) {
                tracing::error!("{name}: cannot obtain a certificate: {error}; retrying in {}", in_words(pause));
            } else {
                tracing::debug!(name, %error, "cannot obtain a certificate: the storage still fails");
            }
            let retry_at = SystemTime::now() + pause;
            locked(attempts).insert(name.clone(), Attempt::Failed { error: error.to_string(), failures, retry_at });
            tokio::time::sleep(pause).await;
        }
    }

    /// Records the outcome of an attempt, as [`StorageFaults::record_outcome`].
    fn record_outcome(&self, error: Option<&RenewError>) -> bool {
        let storage = self.plan.storage(self.keeper.storage()).identity();
        self.events.faults.record_outcome(&storage, error, Instant::now())
    }

    /// Shortens a pause to the end of the certificate in use, if the local authority signs another one then.
    fn until_ended(&self, pause: Duration) -> Duration {
        let served = self.keeper.issued(&self.plan.public().name).filter(|_| self.plan.has_fallback());
        let left = served.and_then(|served| served.certificate.not_after().duration_since(SystemTime::now()).ok());
        left.map_or(pause, |left| pause.min(left.max(LOCAL_PAUSE)))
    }

    /// Returns the time until the next action: a renewal, or a query for renewal information. Zero: the certificate is
    /// due, or there is none.
    async fn until_due(&self, advised: &mut AdvisedName) -> Duration {
        let is_advised = advised.is_advised();
        let (mut now, name) = (SystemTime::now(), &self.plan.public().name);
        let (Some(issued), Some(due)) = (self.keeper.issued(name), self.keeper.public_renew_at(name)) else {
            return Duration::ZERO;
        };
        // As in CertMagic, a revoked certificate is replaced at once.
        if issued.certificate.is_revoked() || issued.is_superseded {
            return Duration::ZERO;
        }
        let left = |at: SystemTime, now: SystemTime| at.duration_since(now).unwrap_or_default();
        let is_its = |advice: &&Advice| Arc::ptr_eq(&advice.leaf, &issued.certificate);
        // An authority may suggest a later time than the configured ratio, but not one shortly before the end.
        let last = issued.certificate.renew_at(LAST_RATIO);
        let renew_at = |advice: &Advice| advice.at.filter(|_| is_advised).map_or(due, |at| at.min(last));
        let known = advised.advice.as_ref().filter(is_its);
        // Only while the certificate is fresh, by the ratio or by the authority's suggestion: a due one is renewed
        // anyhow.
        let fresh_until = known.map_or(due, |advice| due.max(renew_at(advice)));
        if !left(fresh_until, now).is_zero() && known.is_none_or(|advice| advice.request_at <= now) {
            let known_at = known.and_then(|advice| advice.at);
            // A certificate that becomes due meanwhile is renewed at once.
            let answer = tokio::time::timeout(left(fresh_until, now), self.advise(&issued, known_at, now)).await;
            let unanswered =
                Advice { leaf: Arc::clone(&issued.certificate), at: known_at, request_at: now + REPEAT_INTERVAL };
            advised.advice = Some(answer.unwrap_or(unanswered));
            locked(&self.advised).insert(name.clone(), advised.clone());
            now = SystemTime::now();
        }
        match advised.advice.as_ref().filter(is_its) {
            Some(advice) => left(renew_at(advice), now).min(left(advice.request_at, now).max(REQUEST_PAUSE)),
            None => left(due, now),
        }
    }

    /// Queries the authority that has issued the certificate for the time of its renewal. A failed query does not
    /// change `known_at`, its suggestion so far.
    async fn advise(&self, issued: &IssuedCertificate, known_at: Option<SystemTime>, now: SystemTime) -> Advice {
        let name = &self.plan.public().name;
        let mut advice = Advice { leaf: Arc::clone(&issued.certificate), at: None, request_at: now + REPEAT_INTERVAL };
        let mut issuers = self.plan.issuers().iter().filter_map(PublicIssuer::acme);
        let issuer = issuers.find(|issuer| issuer.storage_name() == issued.authority);
        let signed = issued.certificate.signed();
        let (Some(issuer), Some(leaf)) = (issuer, signed.cert.first()) else { return advice };
        match self.advisor.advise(issuer, leaf).await {
            Ok(Some(found)) => {
                tracing::debug!(name, at = ?found.at, explanation = found.explanation, "the authority suggests when to renew");
                advice.at = Some(found.at);
                advice.request_at = now + found.valid_for;
            }
            Ok(None) => {}
            Err(error) => {
                advice.at = known_at;
                tracing::debug!(name, %error, "no renewal information");
            }
        }
        advice
    }

    /// Whether the certificate is revoked, by its OCSP responder.
    fn is_revoked(&self) -> bool {
        self.keeper.issued(&self.plan.public().name).is_some_and(|issued| issued.certificate.is_revoked())
    }

    /// Whether the certificate of a name on demand is worth a renewal.
    async fn is_still_wanted(&self) -> bool {
        let name = &self.plan.public().name;
        if !self.keeper.issued(name).is_some_and(|issued| issued.certificate.is_used()) {
            return false;
        }
        match &self.permission {
            // An endpoint that does not answer denies nothing: the name was allowed before.
            Some(permission) => permission.allows(name).await.unwrap_or(true),
            None => true,
        }
    }
}

impl Advice {
    fn is_due(&self) -> bool {
        self.at.is_some_and(|at| at <= SystemTime::now())
    }
}

/// Whether another server with the storage is still obtaining the certificate, and may take longer. `since` is the time
/// at which it was seen first.
fn is_elsewhere(error: &RenewError, since: &mut Option<Instant>, now: Instant) -> bool {
    match error {
        RenewError::Elsewhere(_) => now.duration_since(*since.get_or_insert(now)) < ELSEWHERE_MAX,
        RenewError::Storage(_) | RenewError::Local(_) | RenewError::Authority(..) => {
            *since = None;
            false
        }
    }
}

/// How long to wait after a failed attempt. Counts those of the authorities.
pub(super) fn pause_after(error: &RenewError, failures: &mut usize, now: SystemTime) -> Duration {
    match error {
        RenewError::Storage(_) | RenewError::Local(_) | RenewError::Elsewhere(_) => LOCAL_PAUSE,
        RenewError::Authority(_, retry_at) => {
            *failures += 1;
            pause_until(*failures - 1, *retry_at, now)
        }
    }
}

/// How long to wait after this many failures and one more.
fn pause(failures: usize) -> Duration {
    Duration::from_secs(60 * PAUSES[failures.min(PAUSES.len() - 1)])
}

/// As [`pause`], but at least until the end of the authorities' rate limits.
fn pause_until(failures: usize, retry_at: Option<SystemTime>, now: SystemTime) -> Duration {
    let limited = retry_at.and_then(|at| at.duration_since(now).ok()).unwrap_or_default();
    pause(failures).max(limited.min(LIMITED_MAX))
}

/// Describes a pause for the log. Rounds up, because the next attempt is not before its end.
pub(super) fn in_words(pause: Duration) -> String {
    match pause.as_nanos().div_ceil(1_000_000_000) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests;
