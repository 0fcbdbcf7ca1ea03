//! Health checks: `health_checks` of the handler.
//!
//! - Passive checks count failures of ordinary requests ([`PassiveChecks`]).
//! - Active checks send requests of their own at an interval (`active`), to targets from URIs (`reference`).
//! - A circuit breaker is a third kind, with an option of its own (`super::breaker`).
//!
//! All write to the upstream's [`UpstreamStatus`], which all workers share and which outlives a reload.

mod active;
mod reference;

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::StatusCode;
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::upstream::{
    BreakerChange, BreakerSettings, CallOutcome, CircuitBreaker, FAILURES_MAX, Permit, UpstreamStatus,
};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{breaker, read_duration};
use crate::headers::status_matches;
pub(super) use active::{ActiveChecks, Checker, Target};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthChecksConfig {
    active: Option<IgnoredAny>,
    passive: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PassiveConfig {
    fail_duration: Option<DurationConfig>,
    #[serde(default)]
    max_fails: i64,
    #[serde(default)]
    unhealthy_request_count: i64,
    #[serde(default)]
    unhealthy_status: Vec<u16>,
    unhealthy_latency: Option<DurationConfig>,
}

/// The handler's health checks.
#[derive(Default)]
pub(super) struct HealthChecks {
    pub(super) active: Option<ActiveChecks>,
    pub(super) passive: Option<PassiveChecks>,
    /// `circuit_breaker`.
    pub(super) breaker: Option<BreakerSettings>,
}

impl HealthChecks {
    /// Compiles `health_checks`. Breakers have an option of their own.
    pub(super) fn build(
        value: Option<&Value>,
        breaker: Option<BreakerSettings>,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let Some(value) = value else { return Ok(Self { breaker, ..Self::default() }) };
        build.at("health_checks", |build| {
            let written: HealthChecksConfig = build.parse(value)?;
            let active = match written.active {
                Some(_) => build.at("active", |build| ActiveChecks::build(&value["active"], build))?,
                None => None,
            };
            let passive = match written.passive {
                Some(_) => Some(build.at("passive", |build| PassiveChecks::build(&value["passive"], build))?),
                None => None,
            };
            Ok(Self { active, passive, breaker })
        })
    }
}

/// Which requests count as failures of their upstream, and how many of them make it unavailable.
pub(super) struct PassiveChecks {
    /// How long a failure counts; `None` counts none.
    fail_duration: Option<Duration>,
    /// An upstream with this many failures gets no requests.
    pub(super) failures_max: u32,
    /// The bound of requests in progress for upstreams without a bound of their own.
    pub(super) requests_max: Option<u32>,
    /// Codes, and classes such as 5 for 5xx.
    unhealthy_status: Box<[u16]>,
    unhealthy_latency: Option<Duration>,
}

impl PassiveChecks {
    fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: PassiveConfig = build.parse(value)?;
        let mut duration = |key: &str, written: &Option<DurationConfig>| read_duration(key, written.as_ref(), build);
        let fail_duration = duration("fail_duration", &written.fail_duration)?;
        let unhealthy_latency = duration("unhealthy_latency", &written.unhealthy_latency)?;
        let failures_max = match written.max_fails {
            0 => 1,
            max => match u32::try_from(max) {
                Ok(max) if max as usize <= FAILURES_MAX => max,
                _ => {
                    let expected = format!("a number from 1 to {FAILURES_MAX}, or 0 for 1");
                    return build.at("max_fails", |build| Err(build.refuse(max.to_string(), expected)));
                }
            },
        };
        Ok(Self {
            fail_duration,
            failures_max,
            requests_max: u32::try_from(written.unhealthy_request_count).ok().filter(|&max| max > 0),
            unhealthy_status: written.unhealthy_status.into(),
            unhealthy_latency,
        })
    }

    /// Counts a failed request.
    pub(super) fn count_failure(&self, status: &UpstreamStatus, now: Instant) {
        if let Some(kept) = self.fail_duration {
            status.add_failure(now, kept);
        }
    }

    /// Counts a response whose head has arrived `took` after the request. As in Caddy, a response that is both late and
    /// of an unhealthy status counts twice, and so does a status that two entries name.
    pub(super) fn count_response(&self, status: &UpstreamStatus, code: StatusCode, took: Duration, now: Instant) {
        for _ in self.unhealthy_status.iter().filter(|&&unhealthy| status_matches(code, unhealthy)) {
            self.count_failure(status, now);
        }
        if self.unhealthy_latency.is_some_and(|limit| took >= limit) {
            self.count_failure(status, now);
        }
    }
}

/// The permission for one request to an upstream; `None` without a circuit breaker.
#[derive(Default)]
pub(super) struct BreakerPass(Option<Permit>);

/// The end of a request to an upstream, for its circuit breaker.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallEnd {
    /// The head of a response with this status has arrived.
    Responded(StatusCode),
    /// There is no response.
    Failed,
}

/// The health of an upstream as its handler sees it.
pub(super) struct UpstreamHealth {
    pub(super) status: Arc<UpstreamStatus>,
    check: Option<active::Check>,
    failures_max: Option<u32>,
    breaker: Option<Arc<CircuitBreaker>>,
}

impl UpstreamHealth {
    pub(super) fn new(status: Arc<UpstreamStatus>, checks: &HealthChecks, transport_key: &str) -> Self {
        let check = checks.active.as_ref().map(|checks| checks.of(&status, transport_key));
        Self { check, ..Self::without_checks(status, checks.passive.as_ref(), checks.breaker.as_ref()) }
    }

    /// The health of an upstream without active checks.
    pub(super) fn without_checks(
        status: Arc<UpstreamStatus>,
        passive: Option<&PassiveChecks>,
        breaker: Option<&BreakerSettings>,
    ) -> Self {
        let failures_max = passive.map(|checks| checks.failures_max);
        // Another handler with the upstream may count its failures.
        if let Some(max) = failures_max.filter(|_| passive.is_some_and(|checks| checks.fail_duration.is_some())) {
            status.set_failures_limit(max);
        }
        let breaker = breaker.map(|settings| status.breaker(settings));
        Self { status, check: None, failures_max, breaker }
    }

    /// Returns whether the upstream may get requests.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        self.check.as_ref().is_none_or(|check| check.is_up())
            && self.failures_max.is_none_or(|max| self.status.failures(now) < max)
            && self.breaker.as_ref().is_none_or(|breaker| breaker.is_available(now))
    }

    /// Lets a request pass the circuit breaker. `None` if another worker's request probes the upstream.
    pub(super) fn admit(&self, now: Instant) -> Option<BreakerPass> {
        match &self.breaker {
            None => Some(BreakerPass(None)),
            Some(breaker) => breaker::admit(breaker, self.status.dial(), now).map(|permit| BreakerPass(Some(permit))),
        }
    }

    /// Counts the end of a request that has passed.
    pub(super) fn record_outcome(&self, breaker_pass: BreakerPass, end: CallEnd, took: Duration, now: Instant) {
        let (Some(breaker), BreakerPass(Some(permit))) = (&self.breaker, breaker_pass) else { return };
        let outcome = match end {
            CallEnd::Responded(status) => breaker::outcome_of(breaker, status),
            CallEnd::Failed => CallOutcome::Failed,
        };
        let change = breaker::record_outcome(breaker, self.status.dial(), permit, outcome, took, now);
        if change == Some(BreakerChange::Closed) {
            self.status.set_recovered(now);
        }
    }

    pub(super) fn check(&self) -> Option<&active::Check> {
        self.check.as_ref()
    }
}
