//! `reverse_proxy`: forwards requests to upstream servers, and their responses to the clients.
//!
//! In reading order:
//! - `transport`, `tls`, `network_proxy`: compile the JSON to the settings of upstream connections
//! - `backend`, `address`: the upstreams, and each worker's state of them
//! - `dynamic`: upstreams that are looked up in DNS
//! - `health`: active and passive health checks
//! - `breaker`: circuit breakers
//! - `policy`, `cookie`, `slow_start`: load balancing
//! - `retry`: whether another attempt is made, and the body for it
//! - `request`, `forwarded`: build the upstream request from the client's
//! - `max_forwards`: requests that may be forwarded a limited number of times
//! - `buffer`, `incremental`: bodies that are read into memory first, and messages that forbid it
//! - `attempt`: the call to an upstream, and further attempts
//! - `wire_form`, `httpgrpc`, `fastcgi`: the wire form of requests and responses
//! - `answer`, `switch`: build the client's response from the upstream's, and tunnels
//! - `handle_response`, `copy`: routes for selected responses, and the handlers that copy a response
//! - `placeholders`: `{http.reverse_proxy.…}`
//!
//! Connections belong to one worker. Failures, results of health checks, circuit breakers, positions of round-robin and
//! the bound of requests in progress are those of all workers.

mod address;
mod answer;
mod attempt;
mod backend;
mod breaker;
mod buffer;
mod cookie;
pub mod copy;
mod dynamic;
mod fastcgi;
mod forwarded;
pub(crate) mod handle_response;
mod health;
mod httpgrpc;
mod incremental;
mod max_forwards;
mod network_proxy;
mod placeholders;
mod policy;
mod request;
mod retry;
mod slow_start;
mod switch;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod wire_form;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use causeway_message::{Head, StatusCode};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::upstream::BreakerSettings;
use causeway_pipeline::{
    Build, BuildError, Context, FamilyId, Fault, Handler, Reason, Response, StateId, Step, Template, UpstreamTransport,
};
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::headers::Headers;
use crate::rewrite::Rewrite;
use backend::{Backend, UpstreamConfig};
use dynamic::DynamicUpstreams;
use handle_response::ResponseRoutes;
use health::{Checker, HealthChecks, PassiveChecks};
use placeholders::ProxyPlaceholders;
use policy::LoadBalancing;
use retry::Retries;
use wire_form::WireForm;

/// The JSON's shape. Nested values are parsed in place, so that an error names their position.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReverseProxyConfig {
    #[serde(default)]
    upstreams: Vec<UpstreamConfig>,
    dynamic_upstreams: Option<IgnoredAny>,
    transport: Option<IgnoredAny>,
    load_balancing: Option<IgnoredAny>,
    health_checks: Option<IgnoredAny>,
    circuit_breaker: Option<IgnoredAny>,
    headers: Option<IgnoredAny>,
    rewrite: Option<IgnoredAny>,
    #[serde(default)]
    trusted_proxies: Vec<String>,
    /// Accepted without effect: the body is forwarded without buffering.
    flush_interval: Option<DurationConfig>,
    stream_timeout: Option<DurationConfig>,
    stream_close_delay: Option<DurationConfig>,
    /// Accepted without effect.
    #[serde(default)]
    stream_buffer_size: i64,
    #[serde(default)]
    verbose_logs: bool,
    #[serde(default)]
    request_buffers: i64,
    #[serde(default)]
    response_buffers: i64,
    #[serde(default)]
    proxy_status_name: String,
    #[serde(default)]
    handle_response: Vec<IgnoredAny>,
}

/// The compiled handler, shared by all workers.
struct ReverseProxyPlan {
    /// The configured upstreams.
    backends: Box<[Backend]>,
    dynamic: Option<DynamicUpstreams>,
    balancing: LoadBalancing,
    passive: Option<PassiveChecks>,
    /// For upstreams that are found later; the configured ones have their breakers.
    breaker: Option<BreakerSettings>,
    /// Keeps the active health checks running while the plan exists.
    _checker: Option<Arc<Checker>>,
    wire_form: WireForm,
    transport: Arc<UpstreamTransport>,
    /// The server name for TLS, if each request has its own.
    server_name: Option<Template>,
    /// The URL of the network proxy, likewise.
    network_proxy: Option<Template>,
    headers: Option<Headers>,
    rewrite: Option<Rewrite>,
    /// How long a tunnel may last.
    stream_timeout: Option<Duration>,
    /// How long a tunnel may last after its plan was replaced; `None` is no limit.
    stream_close_delay: Option<Duration>,
    /// Whether each retry is logged.
    is_verbose: bool,
    /// Bytes of a request's body that are read before it is sent.
    request_buffers: Option<usize>,
    /// Bytes of a response's content that are read before its head is forwarded.
    response_buffers: Option<usize>,
    /// The name of this server in Proxy-Status.
    proxy_status_name: Option<Box<str>>,
    /// The rewrite sets a method without content.
    drops_body: bool,
    /// The client's `Max-Forwards` applies: the method is the client's, and the upstream is another recipient and not a
    /// part of this one, as an application over FastCGI is.
    limits_forwards: bool,
    trusted: Box<[IpNet]>,
    response_routes: Box<[ResponseRoutes]>,
    placeholders: FamilyId,
}

/// The handler's state on one worker. A pending call holds this `Rc`, so that workers share no reference count.
struct Local {
    plan: Arc<ReverseProxyPlan>,
    placeholders: OnceCell<ProxyPlaceholders>,
    /// Storage for the request that a load balancing policy reads; empty between two of them.
    prepared: RefCell<Head>,
}

struct ReverseProxy {
    local: StateId<Rc<Local>>,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If an option is unknown, invalid, or not supported by this version.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let mut written: ReverseProxyConfig = build.parse_module(value)?;
    if written.stream_buffer_size > 0 {
        build.warn_unused("stream_buffer_size", "data is forwarded in the blocks that it was read into");
    }
    let transport = transport::build(present(value, "transport", &written.transport), build)?;
    let dynamic = build_dynamic(value, &mut written, &transport, build)?;
    let checks = build_checks(value, &written, &transport, build)?;
    let backends = build_backends(&written.upstreams, &transport, &checks, build)?;
    let HealthChecks { active, passive, breaker } = checks;
    if active.is_some() && transport.network_proxy.is_some() && transport.transport.network_proxy.is_none() {
        return build.at("transport.network_proxy", |build| {
            let expected = "one that is valid without the request's placeholders too, for the active health checks";
            Err(build.refuse("a URL with placeholders", expected))
        });
    }
    let checker = active.map(|active| {
        let targets = backends.iter().filter_map(Backend::check_target).collect();
        Checker::launch(active, targets, &transport.transport, build)
    });
    let balancing = build_balancing(value, &written, &backends, &transport, build)?;
    let headers = present(value, "headers", &written.headers)
        .map(|headers| build.at("headers", |build| Headers::build(headers, build)));
    let headers = headers.transpose()?;
    let rewrite = present(value, "rewrite", &written.rewrite)
        .map(|rewrite| build.at("rewrite", |build| Rewrite::build(rewrite, build)));
    let rewrite = rewrite.transpose()?;
    // Like Caddy, checks the configured text, before any expansion.
    let drops_body = matches!(value["rewrite"]["method"].as_str(), Some("GET" | "HEAD"));
    let limits_forwards = value["rewrite"]["method"].is_null() && !matches!(transport.wire_form, WireForm::FastCgi(_));
    let trusted = build.at("trusted_proxies", |build| forwarded::ranges(&written.trusted_proxies, build))?;
    let response_routes = build_response_routes(value, &written, build)?;
    if let Some(interval) = &written.flush_interval {
        build.at("flush_interval", |build| interval.signed(build))?;
    }
    let stream_timeout = read_duration("stream_timeout", written.stream_timeout.as_ref(), build)?;
    let stream_close_delay = read_duration("stream_close_delay", written.stream_close_delay.as_ref(), build)?;
    // Its messages are read whole, or its answers streamed, by the transport itself.
    if written.response_buffers != 0 && matches!(transport.wire_form, WireForm::HttpGrpc(_)) {
        return build.at("response_buffers", |build| {
            Err(build.refuse(written.response_buffers.to_string(), "nothing: the transport httpgrpc has no buffers"))
        });
    }
    let plan = Arc::new(ReverseProxyPlan {
        backends,
        dynamic,
        balancing,
        passive,
        breaker,
        _checker: checker,
        wire_form: transport.wire_form,
        transport: transport.transport,
        server_name: transport.server_name,
        network_proxy: transport.network_proxy,
        headers,
        rewrite,
        stream_timeout,
        stream_close_delay,
        is_verbose: written.verbose_logs,
        request_buffers: buffer::read_option("request_buffers", written.request_buffers, build)?,
        response_buffers: buffer::read_option("response_buffers", written.response_buffers, build)?,
        proxy_status_name: (!written.proxy_status_name.is_empty()).then(|| written.proxy_status_name.into()),
        drops_body,
        limits_forwards,
        trusted,
        response_routes,
        placeholders: build.allocate_family(placeholders::PREFIX),
    });
    let local = build.allocate_state(move |_| {
        Rc::new(Local { plan: Arc::clone(&plan), placeholders: OnceCell::new(), prepared: RefCell::default() })
    });
    Ok(Box::new(ReverseProxy { local }))
}

/// Returns the value of a member if it was written. `null` counts as not written.
fn present<'v>(value: &'v Value, key: &str, written: &Option<IgnoredAny>) -> Option<&'v Value> {
    written.is_some().then(|| &value[key])
}

/// Compiles `dynamic_upstreams`. The transport `httpgrpc` has none; their names become upstreams of `written` instead.
fn build_dynamic(
    value: &Value,
    written: &mut ReverseProxyConfig,
    transport: &transport::TransportParts,
    build: &mut Build<'_>,
) -> Result<Option<DynamicUpstreams>, BuildError> {
    let mut dynamic = None;
    if let Some(sources) = present(value, "dynamic_upstreams", &written.dynamic_upstreams) {
        match transport.wire_form {
            WireForm::Http | WireForm::FastCgi(_) => {
                let settings = format!("{} {} {}", transport.key, value["health_checks"], value["circuit_breaker"]);
                dynamic = Some(DynamicUpstreams::build(sources, &settings, build)?);
            }
            // It has names for all of their addresses itself, in the form that the Caddyfile generates.
            WireForm::HttpGrpc(_) => written.upstreams.extend(httpgrpc::named(sources, build)?),
        }
    }
    if written.upstreams.is_empty() && dynamic.is_none() {
        // Automation may empty the list and fill it again, so this is no mistake.
        let at = build.location();
        build.warn(format!("{at}: reverse_proxy has no upstreams, so its requests get 503"));
    }
    Ok(dynamic)
}

/// Compiles `circuit_breaker` and `health_checks`.
fn build_checks(
    value: &Value,
    written: &ReverseProxyConfig,
    transport: &transport::TransportParts,
    build: &mut Build<'_>,
) -> Result<HealthChecks, BuildError> {
    let breaker = breaker::build(present(value, "circuit_breaker", &written.circuit_breaker), build)?;
    let checks = HealthChecks::build(present(value, "health_checks", &written.health_checks), breaker, build)?;
    if checks.active.is_some() && !matches!(transport.wire_form, WireForm::Http) {
        return build.at("health_checks", |build| {
            Err(build.refuse("active", "passive checks only: this transport has no active health checks"))
        });
    }
    Ok(checks)
}

fn build_backends(
    upstreams: &[UpstreamConfig],
    transport: &transport::TransportParts,
    checks: &HealthChecks,
    build: &mut Build<'_>,
) -> Result<Box<[Backend]>, BuildError> {
    let backends = upstreams.iter().enumerate().map(|(index, upstream)| {
        build.at(format!("upstreams[{index}]"), |build| Backend::build(upstream, transport, checks, build))
    });
    backends.collect()
}

fn build_balancing(
    value: &Value,
    written: &ReverseProxyConfig,
    backends: &[Backend],
    transport: &transport::TransportParts,
    build: &mut Build<'_>,
) -> Result<LoadBalancing, BuildError> {
    let balancing = LoadBalancing::build(present(value, "load_balancing", &written.load_balancing), backends, build)?;
    // The status of its responses is inside of the gRPC message.
    if balancing.retries.as_ref().is_some_and(Retries::judges_responses)
        && matches!(transport.wire_form, WireForm::HttpGrpc(_))
    {
        return build.at("load_balancing.retry_match", |build| {
            Err(build.refuse("a condition about responses", "none: the transport httpgrpc retries only failed calls"))
        });
    }
    Ok(balancing)
}

fn build_response_routes(
    value: &Value,
    written: &ReverseProxyConfig,
    build: &mut Build<'_>,
) -> Result<Box<[ResponseRoutes]>, BuildError> {
    let routes = (0..written.handle_response.len()).map(|index| {
        let routes = &value["handle_response"][index];
        build.at(format!("handle_response[{index}]"), |build| ResponseRoutes::build(routes, build))
    });
    routes.collect()
}

/// Reads the duration of a member; `None` if it is absent, or zero or less.
fn read_duration(
    key: &str,
    written: Option<&DurationConfig>,
    build: &mut Build<'_>,
) -> Result<Option<Duration>, BuildError> {
    match written {
        Some(limit) => build.at(key, |build| limit.read(build)),
        None => Ok(None),
    }
}

impl Handler for ReverseProxy {
    fn enter(&self, cx: &mut Context) -> Step {
        let local = Rc::clone(cx.generation().state(self.local));
        if local.plan.limits_forwards
            && let Some(step) = max_forwards::answer(cx)
        {
            return step;
        }
        match incremental::check_request(cx, &local.plan) {
            Ok(()) => buffer::request(cx, &local, begin).unwrap_or_else(|| begin(cx, local)),
            Err(fault) => Step::Fail(fault),
        }
    }

    // Reached only through `handle_response`, after its routes have responded: the held upstream response is not
    // needed.
    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        drop(cx.take_held_upstream_response());
        Step::Respond(response)
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        drop(cx.take_held_upstream_response());
        Step::Fail(fault)
    }
}

fn begin(cx: &mut Context, local: Rc<Local>) -> Step {
    match local.plan.wire_form.prepare(cx, &local) {
        Some(step) => step,
        None => attempt::start(cx, local),
    }
}

/// A fault caused by an upstream: 502.
#[cold]
fn bad_gateway(message: String) -> Fault {
    Fault { status: StatusCode::BAD_GATEWAY, reason: Reason::Text(message.into()) }
}
