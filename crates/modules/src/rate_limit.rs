//! `rate_limit`: refuses requests beyond a number of events in a sliding window, with 429 and `Retry-After`. The
//! options are those of the plugin `caddy-ratelimit`.
//!
//! - `zone`: the events of the keys of a zone
//! - `redis`: the events of other servers, which Redis reports

mod redis;
mod zone;

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_message::{StatusCode, names};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, LogLimit, RoutesId, Step, Template, UNIX_PEER};
pub use causeway_shared_counts::{ExchangeStatus, statuses};
use causeway_shared_counts::{RedisPlace, RedisServer};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use zone::{Limit, LimitedZone};

/// Names the zone whose limit a refused request exceeds.
const EXCEEDED: &str = "http.rate_limit.exceeded.name";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimitConfig {
    /// Zones by name. A name stands for the same events wherever it is used.
    #[serde(default)]
    rate_limits: BTreeMap<String, ZoneConfig>,
    /// Up to this share of the wait is added to `Retry-After`.
    #[serde(default)]
    jitter: f64,
    /// Whether the log's entry contains the key.
    #[serde(default)]
    log_key: bool,
    /// Only checked: the plugin removes expired events at this interval, here requests do it.
    sweep_interval: Option<DurationConfig>,
    /// Where the events of several servers are added up; not in the plugin.
    redis: Option<RedisConfig>,
    distributed: Option<IgnoredAny>,
    storage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneConfig {
    #[serde(default, rename = "match")]
    matchers: Vec<Map<String, Value>>,
    /// The zone counts the events of each text apart.
    #[serde(default)]
    key: String,
    window: Option<DurationConfig>,
    #[serde(default)]
    max_events: i64,
}

/// A Redis server. Its texts may be placeholders that are known at load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisConfig {
    address: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    db: u32,
    #[serde(default)]
    tls: bool,
}

/// The shortest window in Redis: servers learn of each other's events after 0.1 s.
const SHARED_WINDOW_MIN: Duration = Duration::from_secs(1);

/// The zones that all requests count for.
struct RateLimit {
    zones: Box<[ZoneLimit]>,
    jitter: f64,
    log_key: bool,
    exceeded: VarId,
}

struct ZoneLimit {
    name: Box<str>,
    key: Template,
    zone: LimitedZone,
    log: LogLimit,
}

/// Zones some of which have matchers: a route for each.
struct MatchedZones(RoutesId);

/// Compiles the handler from its JSON.
///
/// # Errors
/// A zone has no window or no number of events, a matcher is not valid, or the address of Redis is none. `distributed`
/// is not supported.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: RateLimitConfig = build.parse_module(value)?;
    for (key, is_written) in [("distributed", written.distributed.is_some()), ("storage", written.storage.is_some())] {
        if is_written {
            return build
                .at(key, |build| Err(build.refuse(key, "'redis', with which several servers share their limits")));
        }
    }
    if build.optional_duration("sweep_interval", written.sweep_interval.as_ref())?.is_some() {
        build.warn_unused("sweep_interval", "requests remove expired events");
    }
    if !(0.0..=100.0).contains(&written.jitter) {
        return build.at("jitter", |build| Err(build.refuse(written.jitter.to_string(), "a share such as 0.2")));
    }
    let redis = match &written.redis {
        Some(redis) => Some(build.at("redis", |build| redis.read(build))?),
        None => None,
    };
    let mut zones = Vec::with_capacity(written.rate_limits.len());
    for (name, zone) in &written.rate_limits {
        zones
            .push(build.at(format!("rate_limits.{name}"), |build| ZoneLimit::read(name, zone, redis.as_ref(), build))?);
    }
    // As the plugin: the strictest first.
    zones.sort_by(|one, two| one.zone.limit().rate().total_cmp(&two.zone.limit().rate()));
    if written.rate_limits.values().all(|zone| zone.matchers.is_empty()) {
        let exceeded = build.allocate_slot(EXCEEDED);
        let RateLimitConfig { jitter, log_key, .. } = written;
        return Ok(Box::new(RateLimit { zones: zones.into(), jitter, log_key, exceeded }));
    }
    let routes: Vec<_> = zones.iter().map(|zone| route(value, &zone.name)).collect();
    Ok(Box::new(MatchedZones(build.at("rate_limits", |build| build.routes(&routes.into()))?)))
}

/// Returns the route of one zone: its matchers, and this handler for the zone alone.
fn route(value: &Value, name: &str) -> Value {
    let mut zone = value["rate_limits"][name].clone();
    let matchers = zone.as_object_mut().and_then(|zone| zone.shift_remove("match"));
    let mut handler = value.clone();
    handler["rate_limits"] = json!({ name: zone });
    match matchers {
        Some(matchers) => json!({ "match": matchers, "handle": [handler] }),
        None => json!({ "handle": [handler] }),
    }
}

impl ZoneLimit {
    fn read(
        name: &str,
        written: &ZoneConfig,
        redis: Option<&RedisServer>,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let window = match &written.window {
            Some(window) => build.at("window", |build| window.duration(build))?,
            None => Duration::ZERO,
        };
        let expected = "a window and max_events above 0";
        let Some(limit) = Limit::new(written.max_events, window) else {
            return Err(build.refuse(format!("window {window:?} and max_events {}", written.max_events), expected));
        };
        if redis.is_some() && window < SHARED_WINDOW_MIN {
            let expected = "at least 1s with redis: servers learn of each other's requests after 0.1 s";
            return build.at("window", |build| Err(build.refuse(format!("{window:?}"), expected)));
        }
        let key = build.template(&written.key);
        let zone = LimitedZone::of(name, redis, limit);
        let zone = zone.map_err(|error| build.refuse("redis", format!("a thread and TLS for it: {error}")))?;
        Ok(Self { name: name.into(), key, zone, log: LogLimit::new() })
    }
}

impl RedisConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<RedisServer, BuildError> {
        let address = build.expand_constants(&self.address);
        let Some(mut server) = RedisServer::parse_address(&address) else {
            let expected = "HOST:PORT or unix//PATH, such as redis.internal:6379";
            // A login would end up in the log.
            let found = if address.contains('@') { "an address with a login".to_owned() } else { address };
            return build.at("address", |build| Err(build.refuse(found, expected)));
        };
        match &mut server.place {
            RedisPlace::Tcp { tls, .. } => *tls = self.tls,
            RedisPlace::Unix(_) if self.tls => {
                return build.at("tls", |build| Err(build.refuse("true", "false for a Unix socket")));
            }
            RedisPlace::Unix(_) => {}
        }
        (server.username, server.password) =
            (build.expand_constants(&self.username), build.expand_constants(&self.password));
        server.db = self.db;
        Ok(server)
    }
}

impl RateLimit {
    #[cold]
    fn refuse(&self, cx: &mut Context, limit: &ZoneLimit, mut wait: Duration) -> Step {
        if self.jitter > 0.0 {
            // 53 bits are a number from 0 to below 1.
            let random = (cx.worker().random() >> 11) as f64 / (1_u64 << 53) as f64;
            wait += wait.mul_f64(self.jitter * random);
        }
        // RFC 9110 §10.2.3: whole seconds, rounded up.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        cx.response_mut().fields_mut().insert_number(names::RETRY_AFTER, seconds);
        cx.set_variable_text(self.exceeded, limit.name.as_bytes());
        if let Some(suppressed) = limit.log.admit() {
            let key =
                self.log_key.then(|| cx.with_rendered(&limit.key, |_, key| String::from_utf8_lossy(key).into_owned()));
            let (zone, remote_ip) = (&*limit.name, cx.arrival().ends.peer_ip());
            let remote_ip = remote_ip.map_or_else(|| UNIX_PEER.to_owned(), |ip| ip.to_string());
            tracing::info!(zone, wait = wait.as_secs_f64(), %remote_ip, key, suppressed, "rate limit exceeded");
        }
        Step::Fail(Fault::from_status(StatusCode::TOO_MANY_REQUESTS))
    }
}

impl Handler for RateLimit {
    fn enter(&self, cx: &mut Context) -> Step {
        let now = cx.worker().now();
        for limit in &self.zones {
            let taken = cx.with_rendered(&limit.key, |_, key| limit.zone.take(key, now));
            if let Err(wait) = taken {
                return self.refuse(cx, limit, wait);
            }
        }
        Step::Next
    }
}

impl Handler for MatchedZones {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Run(self.0)
    }
}

#[cfg(test)]
mod tests;
