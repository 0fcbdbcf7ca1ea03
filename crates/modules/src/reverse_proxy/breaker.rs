//! `circuit_breaker`: its settings, and its log lines. [`CircuitBreaker`] is the breaker itself.
//!
//! Caddy has the field and no module for it; the module `internal` is ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::StatusCode;
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::upstream::{
    BASIS_POINTS, BreakerChange, BreakerSettings, CallOutcome, CircuitBreaker, LatencyLimit, Permit,
};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::headers::status_matches;

const WINDOW: Duration = Duration::from_secs(10);
const TRIP: Duration = Duration::from_secs(5);
const REQUESTS_MIN: u32 = 20;
const REQUESTS_MIN_MAX: u32 = 1_000_000;
/// Of the latency: the 0.95 quantile.
const SLOW_SHARE: u32 = BASIS_POINTS / 20;
/// The longest window, trip and limit of latency.
const DURATION_MAX: Duration = Duration::from_secs(3600);
/// The shortest window: shorter ones would depend on the coarse clocks of the workers.
const WINDOW_MIN: Duration = Duration::from_secs(1);
const TRIP_MIN: Duration = Duration::from_millis(100);
const LATENCY_MIN: Duration = Duration::from_millis(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CircuitBreakerConfig {
    #[serde(rename = "type")]
    _kind: String,
    error_ratio: Option<Value>,
    #[serde(default)]
    error_status: Vec<u16>,
    latency: Option<IgnoredAny>,
    window: Option<DurationConfig>,
    min_requests: Option<i64>,
    trip_duration: Option<DurationConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyConfig {
    limit: Option<DurationConfig>,
    quantile: Option<Value>,
}

/// Compiles `circuit_breaker`.
pub(super) fn build(value: Option<&Value>, build: &mut Build<'_>) -> Result<Option<BreakerSettings>, BuildError> {
    let Some(value) = value else { return Ok(None) };
    build.at("circuit_breaker", |build| {
        let kind = value["type"].as_str().unwrap_or_default();
        // Before the options, which belong to the type.
        if kind != "internal" {
            let found = if kind.is_empty() { "none" } else { kind };
            return build.at("type", |build| Err(build.refuse(found, "internal")));
        }
        settings(value, build).map(Some)
    })
}

fn settings(value: &Value, build: &mut Build<'_>) -> Result<BreakerSettings, BuildError> {
    let CircuitBreakerConfig { error_ratio, error_status, latency, window, min_requests, trip_duration, .. } =
        build.parse(value)?;
    let error_basis_points = match error_ratio {
        None => None,
        Some(ratio) => Some(build.at("error_ratio", |build| {
            share(&ratio).ok_or_else(|| build.refuse(shown(&ratio), "a ratio from 0.0001 to 1"))
        })?),
    };
    let latency = match latency {
        None => None,
        Some(_) => Some(build.at("latency", |build| latency_limit(&value["latency"], build))?),
    };
    if error_basis_points.is_none() && latency.is_none() {
        return Err(build.refuse("neither", "error_ratio, latency or both"));
    }
    if let Some(odd) = error_status.iter().find(|status| !matches!(status, 1..=5 | 100..=599)) {
        let expected = "a status such as 503, or a class such as 5";
        return build.at("error_status", |build| Err(build.refuse(odd.to_string(), expected)));
    }
    let requests_min = match min_requests.map(u32::try_from) {
        None => REQUESTS_MIN,
        Some(Ok(count @ 1..=REQUESTS_MIN_MAX)) => count,
        Some(_) => {
            let expected = format!("a number from 1 to {REQUESTS_MIN_MAX}");
            let found = value["min_requests"].to_string();
            return build.at("min_requests", |build| Err(build.refuse(found, expected)));
        }
    };
    Ok(BreakerSettings {
        error_basis_points,
        latency,
        error_statuses: if error_status.is_empty() { [5].into() } else { error_status.into() },
        window: duration("window", window.as_ref(), (WINDOW, WINDOW_MIN, "1s"), build)?,
        requests_min,
        trip: duration("trip_duration", trip_duration.as_ref(), (TRIP, TRIP_MIN, "100ms"), build)?,
    })
}

fn latency_limit(value: &Value, build: &mut Build<'_>) -> Result<LatencyLimit, BuildError> {
    let LatencyConfig { limit, quantile } = build.parse(value)?;
    let Some(limit) = limit else {
        return build.at("limit", |build| Err(build.refuse("none", "a duration such as 500ms")));
    };
    let limit = duration("limit", Some(&limit), (Duration::ZERO, LATENCY_MIN, "1ms"), build)?;
    let Some(quantile) = quantile else { return Ok(LatencyLimit { slow_basis_points: SLOW_SHARE, limit }) };
    build.at("quantile", |build| match share(&quantile) {
        Some(share) if share < BASIS_POINTS => Ok(LatencyLimit { slow_basis_points: BASIS_POINTS - share, limit }),
        _ => Err(build.refuse(shown(&quantile), "a quantile from 0.0001 to 0.9999, such as 0.95")),
    })
}

/// Returns a value as errors show it. An object or a list can be as long as the whole configuration, so it is not
/// printed.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => text.clone(),
        scalar => scalar.to_string(),
    }
}

/// Returns a part of one in basis points, at least one; `None` for anything else.
fn share(part: &Value) -> Option<u32> {
    let part = part.as_f64().filter(|part| (0.0..=1.0).contains(part))?;
    Some((part * f64::from(BASIS_POINTS)).round() as u32).filter(|share| *share > 0)
}

/// Reads a duration with its default, its least value, and the text of that.
fn duration(
    key: &str,
    written: Option<&DurationConfig>,
    (default, min, least): (Duration, Duration, &str),
    build: &mut Build<'_>,
) -> Result<Duration, BuildError> {
    let Some(written) = written else { return Ok(default) };
    build.at(key, |build| {
        let read = written.duration(build)?;
        if (min..=DURATION_MAX).contains(&read) {
            return Ok(read);
        }
        Err(build.refuse(written.written(), format!("a duration from {least} to 1h")))
    })
}

/// Returns how a response with this status counts.
pub(super) fn outcome_of(breaker: &CircuitBreaker, status: StatusCode) -> CallOutcome {
    match breaker.settings().error_statuses.iter().any(|&error| status_matches(status, error)) {
        true => CallOutcome::Failed,
        false => CallOutcome::Succeeded,
    }
}

/// Lets a request to the upstream pass, or not (`None`).
pub(super) fn admit(breaker: &Arc<CircuitBreaker>, dial: &str, now: Instant) -> Option<Permit> {
    let (permit, change) = breaker.admit(now)?;
    if let Some(change) = change {
        report(breaker, dial, change);
    }
    Some(permit)
}

/// Counts the end of a request to the upstream.
pub(super) fn record_outcome(
    breaker: &CircuitBreaker,
    dial: &str,
    permit: Permit,
    outcome: CallOutcome,
    took: Duration,
    now: Instant,
) -> Option<BreakerChange> {
    let change = breaker.record_outcome(permit, outcome, took, now)?;
    report(breaker, dial, change);
    Some(change)
}

/// Logs a change of the breaker.
#[cold]
fn report(breaker: &CircuitBreaker, upstream: &str, change: BreakerChange) {
    let duration = breaker.settings().trip.as_secs_f64();
    match change {
        BreakerChange::Opened { requests, failures, slow } => {
            let slow = breaker.settings().latency.is_some().then_some(slow);
            tracing::warn!(
                upstream,
                duration,
                requests,
                failures,
                slow,
                "an upstream gets no requests: its circuit breaker is open"
            );
        }
        BreakerChange::HalfOpened => {
            tracing::info!(upstream, "a request probes an upstream: its circuit breaker is half-open");
        }
        BreakerChange::Reopened => {
            tracing::warn!(upstream, duration, "an upstream gets no requests: the request that probed it has failed");
        }
        BreakerChange::Closed => {
            tracing::info!(upstream, "an upstream gets requests again: its circuit breaker is closed");
        }
    }
}
