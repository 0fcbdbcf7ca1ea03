//! Selects the upstream for a request (Caddy's selection policies).

use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_message::{FieldName, NameRef, names};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError, Context, Template, UNIX_PEER};
use serde::Deserialize;
use serde_json::Value;
use twox_hash::XxHash64;

use super::Local;
use super::backend::{Backend, Backends};
use super::cookie::StickyCookie;
use super::request::with_prepared;
use super::retry::Retries;
use super::slow_start::{Shares, SlowStart};
use crate::ip_text::put_ip;

pub(super) enum SelectionPolicy {
    Random,
    /// The one with the fewest requests among this number of random upstreams.
    RandomChoose(usize),
    RoundRobin(RoundRobinPosition),
    WeightedRoundRobin(UpstreamWeights, RoundRobinPosition),
    First,
    LeastConn,
    /// By hash of a key: a key keeps its upstream while that is available.
    Hash(Key),
    /// Like [`Self::Hash`]; the second policy applies if the request has no key.
    HashOr(Key, Box<SelectionPolicy>),
    /// By a cookie; the second policy applies if the request has no valid cookie.
    Cookie(StickyCookie, Box<SelectionPolicy>),
}

/// The part of a request that is hashed.
pub(super) enum Key {
    PeerIp,
    ClientIp,
    Uri,
    Field(FieldName),
    Query(Template),
}

/// The position of a round robin, which all workers advance.
#[derive(Default)]
pub(super) struct RoundRobinPosition(AtomicU32);

impl RoundRobinPosition {
    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

/// The weight of each upstream.
pub(super) struct UpstreamWeights {
    each: Box<[u32]>,
    /// Above 0.
    sum: u32,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct SelectionPolicyConfig {
    policy: String,
    choose: Option<usize>,
    weights: Option<Vec<i64>>,
    key: Option<String>,
    field: Option<String>,
    name: Option<String>,
    secret: Option<String>,
    max_age: Option<DurationConfig>,
    fallback: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadBalancingConfig {
    selection_policy: Option<Value>,
    #[serde(default)]
    pub(super) retries: i64,
    pub(super) try_duration: Option<DurationConfig>,
    pub(super) try_interval: Option<DurationConfig>,
    #[serde(default)]
    pub(super) retry_match: Vec<Value>,
    slow_start: Option<DurationConfig>,
}

/// The compiled `load_balancing`.
pub(super) struct LoadBalancing {
    pub(super) policy: SelectionPolicy,
    pub(super) slow_start: Option<SlowStart>,
    pub(super) retries: Option<Retries>,
}

impl LoadBalancing {
    /// Compiles `load_balancing`. The default policy is random.
    pub(super) fn build(
        value: Option<&Value>,
        backends: &[Backend],
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let Some(value) = value else {
            return Ok(Self { policy: SelectionPolicy::Random, slow_start: None, retries: None });
        };
        build.at("load_balancing", |build| {
            let written: LoadBalancingConfig = build.parse(value)?;
            let policy = match &written.selection_policy {
                Some(policy) => build.at("selection_policy", |build| SelectionPolicy::of(policy, backends, build))?,
                None => SelectionPolicy::Random,
            };
            let slow_start = SlowStart::build(written.slow_start.as_ref(), build)?;
            Ok(Self { policy, slow_start, retries: Retries::build(&written, build)? })
        })
    }

    /// Returns the index of the selected upstream, or `None` if none is available.
    pub(super) fn select(&self, cx: &mut Context, local: &Local, backends: Backends<'_>) -> Option<usize> {
        self.policy.select(cx, local, backends, self.slow_start)
    }
}

impl SelectionPolicy {
    fn of(value: &Value, backends: &[Backend], build: &mut Build<'_>) -> Result<Self, BuildError> {
        let SelectionPolicyConfig { policy, choose, weights, key, field, name, secret, max_age, fallback } =
            build.parse(value)?;
        // The options of each policy: an option of another policy is a mistake.
        let may: &[&str] = match policy.as_str() {
            "random_choose" => &["choose"],
            "weighted_round_robin" => &["weights"],
            "query" => &["key", "fallback"],
            "header" => &["field", "fallback"],
            "cookie" => &["name", "secret", "max_age", "fallback"],
            _ => &[],
        };
        let set = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let odd = set.map(|(key, _)| key.as_str());
        if let Some(odd) = odd.into_iter().find(|key| *key != "policy" && !may.contains(key)) {
            let expected = format!("nothing: the policy {policy} has no such option");
            return Err(build.refuse(odd, expected));
        }
        let fallback = |build: &mut Build<'_>| {
            let Some(fallback) = &fallback else { return Ok(Box::new(Self::Random)) };
            build.at("fallback", |build| Self::of(fallback, backends, build)).map(Box::new)
        };
        Ok(match policy.as_str() {
            "random" => Self::Random,
            "random_choose" => match choose.unwrap_or(2) {
                0 => Self::RandomChoose(2),
                choose @ 2.. => Self::RandomChoose(choose),
                choose => return build.at("choose", |build| Err(build.refuse(choose.to_string(), "2 or more"))),
            },
            "round_robin" => Self::RoundRobin(RoundRobinPosition::default()),
            "weighted_round_robin" => build.at("weights", |build| weighted(&weights.unwrap_or_default(), build))?,
            "first" => Self::First,
            "least_conn" => Self::LeastConn,
            "ip_hash" => Self::Hash(Key::PeerIp),
            "client_ip_hash" => Self::Hash(Key::ClientIp),
            "uri_hash" => Self::Hash(Key::Uri),
            "header" => {
                let field = field.unwrap_or_default();
                let Some(name) = FieldName::parse(&field) else {
                    return build.at("field", |build| Err(build.refuse(field, "a field name")));
                };
                Self::HashOr(Key::Field(name), fallback(build)?)
            }
            "query" => {
                // Braces would end the placeholder below.
                let key = key.unwrap_or_default();
                if key.is_empty() || key.contains(['{', '}', '\\']) {
                    return build.at("key", |build| Err(build.refuse(key, "a key, without braces and backslashes")));
                }
                Self::HashOr(Key::Query(build.template(&format!("{{http.request.uri.query.{key}}}"))), fallback(build)?)
            }
            "cookie" => {
                let cookie = StickyCookie::build(name, &secret.unwrap_or_default(), max_age.as_ref(), backends, build)?;
                Self::Cookie(cookie, fallback(build)?)
            }
            _ => {
                let expected = "random, random_choose, round_robin, weighted_round_robin, first, least_conn, ip_hash, \
                                client_ip_hash, uri_hash, header, query or cookie";
                return build.at("policy", |build| Err(build.refuse(policy, expected)));
            }
        })
    }

    fn select(
        &self,
        cx: &mut Context,
        local: &Local,
        backends: Backends<'_>,
        slow_start: Option<SlowStart>,
    ) -> Option<usize> {
        // The cookie policy must also set its cookie, so it takes no shortcut.
        if backends.len() == 1 && !matches!(self, Self::Cookie(..)) {
            return backends[0].is_available(cx).then_some(0);
        }
        match self {
            Self::Random => {
                let shares = Shares::new(cx, backends, slow_start);
                let available = (0..backends.len()).filter(|&number| backends[number].is_available(cx));
                weighted_random(cx, available.map(|number| (number, u64::from(shares.of(number)))))
            }
            Self::RandomChoose(choose) => random_choose(cx, backends, *choose, &Shares::new(cx, backends, slow_start)),
            Self::RoundRobin(position) => round_robin(cx, backends, position, &Shares::new(cx, backends, slow_start)),
            Self::WeightedRoundRobin(weights, position) => {
                weighted_round_robin(cx, backends, weights, position, &Shares::new(cx, backends, slow_start))
            }
            Self::First => (0..backends.len()).find(|&number| backends[number].is_available(cx)),
            Self::LeastConn => least(cx, backends, 0..backends.len(), &Shares::new(cx, backends, slow_start)),
            Self::Hash(key) => key.with(cx, local, |cx, key| by_hash(cx, backends, key)),
            Self::HashOr(key, fallback) => {
                match key.with(cx, local, |cx, key| (!key.is_empty()).then(|| by_hash(cx, backends, key))) {
                    Some(chosen) => chosen,
                    None => fallback.select(cx, local, backends, slow_start),
                }
            }
            Self::Cookie(cookie, fallback) => cookie.backend_of_cookie(cx, backends).or_else(|| {
                let chosen = fallback.select(cx, local, backends, slow_start)?;
                cookie.set_cookie(cx, backends, chosen);
                Some(chosen)
            }),
        }
    }
}

fn weighted(written: &[i64], build: &mut Build<'_>) -> Result<SelectionPolicy, BuildError> {
    let mut weights = Vec::with_capacity(written.len());
    for weight in written {
        match u16::try_from(*weight) {
            Ok(weight) => weights.push(u32::from(weight)),
            Err(_) => {
                let expected = "a weight from 0 to 65535: the weight of an upstream cannot be negative";
                return Err(build.refuse(weight.to_string(), expected));
            }
        }
    }
    match weights.iter().sum() {
        0 => {
            let expected = "one at least: weighted_round_robin requires at least one upstream with a positive weight";
            Err(build.refuse("no weight above 0", expected))
        }
        sum => {
            let weights = UpstreamWeights { each: weights.into(), sum };
            Ok(SelectionPolicy::WeightedRoundRobin(weights, RoundRobinPosition::default()))
        }
    }
}

/// Caddy: the position within the sum of weights selects the n-th upstream with a weight; n then counts only the
/// available ones.
fn weighted_round_robin(
    cx: &Context,
    backends: Backends<'_>,
    weights: &UpstreamWeights,
    position: &RoundRobinPosition,
    shares: &Shares<'_>,
) -> Option<usize> {
    let UpstreamWeights { each: weights, sum } = weights;
    if weights.len() < 2 {
        return (backends.len() > 0 && backends[0].is_available(cx)).then_some(0);
    }
    let mut left = position.next() % sum;
    let number = weights.iter().filter(|&&weight| weight > 0).position(|&weight| {
        let is_here = left < weight;
        left = left.saturating_sub(weight);
        is_here
    })?;
    let is_open = |number: &usize| weights[*number] > 0 && backends[*number].is_available(cx);
    let open = || (0..backends.len().min(weights.len())).filter(is_open);
    let count = open().count();
    let chosen = open().nth(number.checked_rem(count)?)?;
    if shares.accepts(cx, chosen) {
        return Some(chosen);
    }
    // At random, because the next position may be that of the same upstream many times.
    let others = open().filter(|&number| number != chosen);
    let weighted = others.map(|number| (number, u64::from(weights[number]) * u64::from(shares.of(number))));
    weighted_random(cx, weighted).or(Some(chosen))
}

/// Returns the next available upstream whose share accepts the request.
fn round_robin(
    cx: &Context,
    backends: Backends<'_>,
    position: &RoundRobinPosition,
    shares: &Shares<'_>,
) -> Option<usize> {
    let mut first = None;
    // At most one round, so that the search ends if none is available.
    for _ in 0..backends.len() {
        let number = position.next() as usize % backends.len();
        if !backends[number].is_available(cx) {
            continue;
        }
        if shares.accepts(cx, number) {
            return Some(number);
        }
        first = first.or(Some(number));
    }
    // None has accepted: the one with the largest share, which accepts everything, has become unavailable. Or other
    // workers advanced past those that are available.
    first.or_else(|| (0..backends.len()).find(|&number| backends[number].is_available(cx)))
}

/// Returns one of the candidates, each with a probability in proportion to its weight.
fn weighted_random(cx: &Context, candidates: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
    // Reservoir sampling: one pass, without adding the weights up first.
    let mut sum = 0;
    candidates.fold(None, |chosen, (number, weight)| {
        sum += weight;
        if weight == sum || below(cx, sum) < weight { Some(number) } else { chosen }
    })
}

/// Returns a random number from 0 to `end`, exclusive.
pub(super) fn below(cx: &Context, end: u64) -> u64 {
    if end == 1 { 0 } else { cx.worker().random() % end }
}

/// Returns an available upstream with the fewest requests; a random one among equals.
fn least(
    cx: &Context,
    backends: Backends<'_>,
    among: impl Iterator<Item = usize>,
    shares: &Shares<'_>,
) -> Option<usize> {
    let mut best: Option<(u64, usize)> = None;
    let mut equal = 0;
    for number in among {
        if !backends[number].is_available(cx) {
            continue;
        }
        let requests = shares.requests(cx, number);
        match best {
            Some((fewest, _)) if fewest < requests => continue,
            Some((fewest, _)) if fewest == requests => equal += 1,
            _ => equal = 1,
        }
        if below(cx, equal) == 0 {
            best = Some((requests, number));
        }
    }
    best.map(|(_, number)| number)
}

/// Most upstreams that `random_choose` considers; the sample fits on the stack.
const CHOSEN_MAX: usize = 64;

/// Takes a random sample of the available upstreams (reservoir sampling), and returns the one with the fewest requests.
fn random_choose(cx: &Context, backends: Backends<'_>, choose: usize, shares: &Shares<'_>) -> Option<usize> {
    let mut chosen = [0; CHOSEN_MAX];
    let room = choose.min(backends.len()).min(CHOSEN_MAX);
    let mut available = 0;
    for number in (0..backends.len()).filter(|&number| backends[number].is_available(cx)) {
        available += 1;
        if available <= room {
            chosen[available - 1] = number;
            continue;
        }
        // Replace a sampled upstream with probability room / available.
        let index = below(cx, available as u64) as usize;
        if index < room {
            chosen[index] = number;
        }
    }
    least(cx, backends, chosen[..available.min(room)].iter().copied(), shares)
}

/// Rendezvous hashing: if an upstream becomes unavailable, only its own requests move.
fn by_hash(cx: &Context, backends: Backends<'_>, key: &[u8]) -> Option<usize> {
    let weight = |number: &usize| {
        let mut hash = XxHash64::with_seed(0);
        hash.write(backends[*number].dial.as_bytes());
        hash.write(key);
        hash.finish()
    };
    // `max_by_key` returns the last maximum, so the reversed order yields the first, as in Caddy.
    (0..backends.len()).rev().filter(|&number| backends[number].is_available(cx)).max_by_key(weight)
}

impl Key {
    /// Calls `look` with the key of the request, which is the one for the upstream.
    fn with<T>(&self, cx: &mut Context, local: &Local, look: impl FnOnce(&mut Context, &[u8]) -> T) -> T {
        let is_other = match self {
            Self::PeerIp | Self::ClientIp => false,
            Self::Uri | Self::Query(_) => local.plan.rewrite.is_some(),
            // The proxy sets some fields, and `Connection` may remove any.
            Self::Field(_) => true,
        };
        if is_other { with_prepared(cx, local, |cx| self.read(cx, look)) } else { self.read(cx, look) }
    }

    fn read<T>(&self, cx: &mut Context, look: impl FnOnce(&mut Context, &[u8]) -> T) -> T {
        match self {
            Self::Query(template) => cx.with_rendered(template, look),
            _ => cx.with_scratch(|cx, text| {
                match self {
                    Self::PeerIp => put_peer(cx.arrival().ends.peer_ip(), text),
                    Self::ClientIp => put_peer(cx.client().ip, text),
                    Self::Uri => text.extend_from_slice(cx.head().target().as_str().as_bytes()),
                    Self::Field(name) => text.extend_from_slice(match name.as_ref() {
                        NameRef::Known(names::HOST) => cx.head().authority().unwrap_or_default().as_bytes(),
                        name => cx.head().fields().get(name).unwrap_or_default(),
                    }),
                    Self::Query(_) => {}
                }
                look(cx, text)
            }),
        }
    }
}

/// Appends a peer's address as text; `None` is a Unix socket's.
fn put_peer(ip: Option<IpAddr>, out: &mut Vec<u8>) {
    match ip {
        Some(ip) => put_ip(ip, out),
        None => out.extend_from_slice(UNIX_PEER.as_bytes()),
    }
}
