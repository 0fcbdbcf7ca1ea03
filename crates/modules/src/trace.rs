//! `tracing`: a span of each sampled request, sent to an OpenTelemetry collector. The environment variables of
//! OpenTelemetry configure the collector and the sampling (`causeway-trace-output`).
//!
//! - `context`: the trace that a request belongs to (W3C Trace Context)

mod context;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use causeway_message::{Scheme, Version, names};
use causeway_pipeline::build::Problem;
use causeway_pipeline::context::VarId;
use causeway_pipeline::{
    Build, BuildError, Context, Ending, Fault, Handler, Outcome, Response, StateId, Step, Template, UNIX_PEER,
};
use causeway_trace_output::span::{self, SpanStart};
use causeway_trace_output::{OpenError, Sampler, SettingError, TraceOutput, TraceSettings};
pub use causeway_trace_output::{SpanCounts, flush_all, span_counts};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ip_text::IpText;
use crate::log_append::FIELDS;
use context::Parent;

/// The name of spans without `span`; Caddy's.
const NAME: &str = "handler";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TracingConfig {
    #[serde(default)]
    span: String,
    #[serde(default)]
    span_attributes: Map<String, Value>,
}

struct Tracing {
    sampler: Sampler,
    propagates: bool,
    recording: Option<Recording>,
    slots: TraceSlots,
}

/// The parts that only sampled requests use.
struct Recording {
    output: Arc<TraceOutput>,
    name: Template,
    attributes: Box<[(Box<str>, Template)]>,
    /// Attributes of the request that `span_attributes` replaces.
    replaced: Box<[&'static str]>,
    /// The beginning of the request's span ([`Begun`]), and its attributes from `span_attributes`.
    begun: VarId,
    added: VarId,
    /// The span that ended last on a worker: a route that is invoked twice ends its handlers twice.
    ended: StateId<Cell<u64>>,
}

/// The variables that Caddy sets: placeholders, and fields of the access record.
struct TraceSlots {
    trace: VarId,
    span: VarId,
    trace_field: VarId,
    span_field: VarId,
}

/// Compiles the handler from its JSON and the environment.
///
/// # Errors
/// A variable of the environment has a value that cannot be used, or an attribute is no text.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let TracingConfig { span, span_attributes } = build.parse_module(value)?;
    let mut attributes = Vec::with_capacity(span_attributes.len());
    build.at("span_attributes", |build| {
        for (key, value) in &span_attributes {
            let text = build.at(key, |build| build.parse::<String>(value))?;
            if key.is_empty() {
                return Err(build.refuse("nothing", "the name of an attribute"));
            }
            // OpenTelemetry: the keys of attributes MUST be unique. As in Caddy, the later one of two counts, and those
            // of the response are set last.
            if OF_RESPONSE.contains(&key.as_str()) {
                build.warn_unused(key, "the span has the response's own value");
                continue;
            }
            attributes.push((key.as_str().into(), build.template(&text)));
        }
        Ok(())
    })?;
    let settings = TraceSettings::read(&|name| build.environment(name)).or_else(|error| refuse(build, error))?;
    let mut recording = None;
    if let Some(export) = &settings.export {
        let output = TraceOutput::open(export).or_else(|error| match error {
            OpenError::Setting(error) => refuse(build, error),
            error => Err(build.refuse(error.to_string(), "a thread for each collector")),
        })?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        recording = Some(Recording {
            output,
            name: build.template(if span.is_empty() { NAME } else { &span }),
            replaced: OF_REQUEST.iter().copied().filter(|key| span_attributes.contains_key(*key)).collect(),
            attributes: attributes.into(),
            begun: build.allocate_slot(&format!("http.tracing.begun.{number}")),
            added: build.allocate_slot(&format!("http.tracing.added.{number}")),
            ended: build.allocate_state(|_| Cell::new(0)),
        });
    }
    if !settings.is_enabled {
        return Ok(Box::new(Disabled));
    }
    let slots = TraceSlots {
        trace: build.allocate_variable("trace_id"),
        span: build.allocate_variable("span_id"),
        trace_field: build.allocate_slot(&format!("{FIELDS}traceID")),
        span_field: build.allocate_slot(&format!("{FIELDS}spanID")),
    };
    Ok(Box::new(Tracing { sampler: settings.sampler, propagates: settings.propagates, recording, slots }))
}

fn refuse<T>(build: &mut Build<'_>, error: SettingError) -> Result<T, BuildError> {
    let SettingError { variable, found, expected } = error;
    Err(build.error(Problem::Environment { variable, found, expected }))
}

/// The handler when `OTEL_SDK_DISABLED` is true: the request stays as it is, with the trace that it came with.
struct Disabled;

impl Handler for Disabled {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }
}

impl Handler for Tracing {
    fn enter(&self, cx: &mut Context) -> Step {
        let parent = if self.propagates { Parent::of(cx.head().fields()) } else { None };
        let trace = match &parent {
            Some(parent) => parent.trace,
            // At most one of the halves may be zero.
            None => (u128::from(random(cx)) << 64 | u128::from(random(cx))).to_be_bytes(),
        };
        let id = random(cx).to_be_bytes();
        let is_sampled = self.sampler.samples(&trace, parent.as_ref().map(|parent| parent.is_sampled));
        if let (true, Some(recording)) = (is_sampled, &self.recording) {
            recording.begin(cx, trace, id, parent.as_ref().map(|parent| parent.span));
        }
        let field = context::field(&trace, &id, is_sampled);
        if self.propagates {
            let keeps_state = parent.is_some() && context::state_is_valid(cx.head().fields());
            let fields = cx.head_mut().fields_mut();
            if fields.contains(names::TRACEPARENT) {
                fields.remove(names::TRACEPARENT);
            }
            // Not checked: digits and dashes are a value.
            fields.push_known(names::TRACEPARENT, &field);
            // W3C Trace Context §3.3.1.5 and §4.3: the state belongs to the parent, and a damaged one is discarded.
            if !keeps_state && fields.contains(names::TRACESTATE) {
                fields.remove(names::TRACESTATE);
            }
        }
        let (trace, id) = (&field[3..35], &field[36..52]);
        cx.set_variable_text(self.slots.trace, trace);
        cx.set_variable_text(self.slots.span, id);
        cx.set_variable_text(self.slots.trace_field, trace);
        cx.set_variable_text(self.slots.span_field, id);
        Step::Next
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        self.add(cx);
        Step::Respond(response)
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        self.add(cx);
        Step::Fail(fault)
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        if let Some(recording) = &self.recording {
            recording.end(cx, outcome);
        }
    }
}

impl Tracing {
    fn add(&self, cx: &mut Context) {
        if let Some(recording) = &self.recording
            && !recording.attributes.is_empty()
            && cx.variable(recording.begun).is_some()
        {
            recording.add(cx);
        }
    }
}

/// Returns 64 random bits that are not all zero.
fn random(cx: &Context) -> u64 {
    cx.worker().random().max(1)
}

/// The numbers before the beginning of a span in its variable.
struct Begun {
    span: u64,
    /// The start in nanoseconds since 1970, and since the request's arrival.
    start: u64,
    since_arrival: u64,
}

impl Begun {
    const BYTES: usize = 24;

    fn write(&self, out: &mut Vec<u8>) {
        for number in [self.span, self.start, self.since_arrival] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn read(text: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = text.split_at_checked(Self::BYTES)?;
        let number = |index: usize| head[index * 8..][..8].try_into().map(u64::from_le_bytes).ok();
        Some((Self { span: number(0)?, start: number(1)?, since_arrival: number(2)? }, rest))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the time since the request's arrival, by a clock that is read now.
fn since_arrival(cx: &Context) -> u64 {
    cx.worker().refresh();
    nanoseconds(cx.worker().now().saturating_duration_since(cx.arrival().at))
}

impl Recording {
    /// Writes the beginning of the span to its variable: the request as it is now.
    #[cold]
    fn begin(&self, cx: &mut Context, trace: [u8; 16], id: [u8; 8], parent: Option<[u8; 8]>) {
        let since_arrival = since_arrival(cx);
        let start = nanoseconds(cx.worker().wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        cx.with_scratch(|cx, out| {
            Begun { span: u64::from_be_bytes(id), start, since_arrival }.write(out);
            cx.with_scratch(|cx, state| {
                if parent.is_some() && context::state_is_valid(cx.head().fields()) {
                    cx.head().fields().write_joined(names::TRACESTATE.into(), state);
                }
                cx.with_rendered(&self.name, |_, name| {
                    span::begin(out, &SpanStart { trace, id, parent, state, name, at: start });
                });
            });
            request(cx, out, &self.replaced);
            cx.set_variable_text(self.begun, out);
            cx.unset_variable(self.added);
        });
    }

    /// Writes the attributes of `span_attributes` to their variable.
    #[cold]
    fn add(&self, cx: &mut Context) {
        cx.with_scratch(|cx, out| {
            for (key, value) in &self.attributes {
                cx.with_rendered(value, |_, value| span::text(out, key, value));
            }
            cx.set_variable_text(self.added, out);
        });
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        let Some((begun, beginning)) = cx.variable(self.begun).and_then(Begun::read) else { return };
        if cx.generation().state(self.ended).replace(begun.span) == begun.span {
            return;
        }
        let took = since_arrival(cx).saturating_sub(begun.since_arrival);
        self.output.send(|out| {
            out.extend_from_slice(beginning);
            out.extend_from_slice(cx.variable(self.added).unwrap_or_default());
            let responded = cx.effective_status(outcome.status);
            let status = responded.map_or(0, |status| status.as_u16().into());
            for (key, number) in OF_RESPONSE.into_iter().zip([outcome.received, outcome.sent, status]) {
                if number > 0 {
                    span::number(out, key, number);
                }
            }
            let has_failed = responded.is_some_and(|status| status.as_u16() >= 500);
            span::end(out, begun.start.saturating_add(took), has_failed || outcome.ending == Ending::Panicked);
        });
    }
}

/// The methods that have an attribute value of their own (semantic conventions for HTTP spans, `http.request.method`).
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// The attributes of the request.
const OF_REQUEST: [&str; 11] = [
    "server.address",
    "http.request.method",
    "url.scheme",
    "server.port",
    "http.request.method_original",
    "network.peer.address",
    "network.peer.port",
    "user_agent.original",
    "client.address",
    "url.path",
    "network.protocol.version",
];

/// The attributes of the response: the bytes received and sent, and the status.
const OF_RESPONSE: [&str; 3] = ["http.request.body.size", "http.response.body.size", "http.response.status_code"];

/// Appends the attributes of the request, except those in `replaced`: those of Caddy, in its order.
fn request(cx: &Context, out: &mut Vec<u8>, replaced: &[&str]) {
    let (arrival, head) = (cx.arrival(), cx.head());
    let text = |out: &mut Vec<u8>, key, value| {
        if !replaced.contains(&key) {
            span::text(out, key, value);
        }
    };
    let number = |out: &mut Vec<u8>, key, value| {
        if !replaced.contains(&key) {
            span::number(out, key, value);
        }
    };
    text(out, "server.address", cx.host().as_bytes());
    let method = head.method().as_str();
    let known = METHODS.iter().find(|known| known.eq_ignore_ascii_case(method));
    text(out, "http.request.method", known.map_or("_OTHER", |known| *known).as_bytes());
    let (scheme, default) = if arrival.scheme == Scheme::Https { ("https", 443) } else { ("http", 80) };
    text(out, "url.scheme", scheme.as_bytes());
    if let Some(port) = cx.host_port().and_then(|port| port.parse::<u16>().ok())
        && port > 0
        && port != default
    {
        number(out, "server.port", port.into());
    }
    if known.is_none_or(|known| *known != method) {
        text(out, "http.request.method_original", method.as_bytes());
    }
    let peer = arrival.ends.peer_ip().map(IpText::of);
    let peer = peer.as_ref().map_or(UNIX_PEER.as_bytes(), IpText::as_bytes);
    text(out, "network.peer.address", peer);
    if let Some(port) = arrival.ends.peer().map(|peer| peer.port()).filter(|port| *port > 0) {
        number(out, "network.peer.port", port.into());
    }
    if let Some(agent) = head.fields().get(names::USER_AGENT).filter(|agent| !agent.is_empty()) {
        text(out, "user_agent.original", agent);
    }
    // As in Caddy, `trusted_proxies` plays no part.
    let forwarded = head.fields().get(names::X_FORWARDED_FOR).unwrap_or_default();
    let first = forwarded.split(|byte| *byte == b',').next().filter(|first| !first.is_empty());
    text(out, "client.address", first.unwrap_or(peer));
    if !cx.path().is_empty() {
        text(out, "url.path", cx.path());
    }
    let version =
        if cx.version() == Version::Http2 { "2.0" } else { cx.version().as_str().trim_start_matches("HTTP/") };
    text(out, "network.protocol.version", version.as_bytes());
}

#[cfg(test)]
mod tests;
