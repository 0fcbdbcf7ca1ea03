//! `reverse_proxy`: passes requests on to other servers, and their answers back.
//!
//! In reading order:
//! - `unbuilt`: what Caddy knows and this version has not
//! - `transport`, `tls`: from JSON to how calls are carried
//! - `backend`, `address`: the servers, and what a worker knows of each
//! - `policy`, `cookie`: which of them gets a request
//! - `request`, `forwarded`: from the exchange's request to the call's
//! - `exchange`: the call under way
//! - `carriage`, `httpgrpc`: in which form requests and answers travel
//! - `answer`, `switch`: from the call's answer to the exchange's, and tunnels
//! - `handle_response`, `copy`: routes for some answers, and what they may do with one
//! - `placeholders`: what templates may ask
//!
//! Everything that one worker counts is that worker's: requests under way, whose turn it is, connections.

mod address;
mod answer;
mod backend;
mod carriage;
mod cookie;
pub mod copy;
mod exchange;
mod forwarded;
mod handle_response;
mod httpgrpc;
mod placeholders;
mod policy;
mod request;
mod switch;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod unbuilt;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use causeway_message::StatusCode;
use causeway_pipeline::{
    Build, BuildError, Context, FamilyId, Fault, Handler, Reason, Response, StateId, Step, Transport,
};
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::headers::Headers;
use crate::rewrite::Rewrite;
use backend::{Backend, WrittenBackend};
use carriage::Carriage;
use handle_response::ResponseRoutes;
use placeholders::Named;
use policy::{Policy, Turn};

/// The shape. What is not a field's own type is read where it stands, so that a mistake names its place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    upstreams: Vec<WrittenBackend>,
    dynamic_upstreams: Option<IgnoredAny>,
    transport: Option<IgnoredAny>,
    load_balancing: Option<IgnoredAny>,
    headers: Option<IgnoredAny>,
    rewrite: Option<IgnoredAny>,
    #[serde(default)]
    trusted_proxies: Vec<String>,
    /// Octets go on as they come, so there is nothing to flush.
    #[serde(rename = "flush_interval")]
    _flush_interval: Option<crate::duration::Written>,
    #[serde(default)]
    handle_response: Vec<IgnoredAny>,
}

/// Options that this version has not.
const UNBUILT: &[&str] = &[
    "circuit_breaker",
    "health_checks",
    "proxy_status_name",
    "request_buffers",
    "response_buffers",
    "stream_buffer_size",
    "stream_close_delay",
    "stream_timeout",
    "verbose_logs",
];

/// The handler, as all workers share it.
struct Plan {
    backends: Box<[Backend]>,
    policy: Policy,
    carriage: Carriage,
    transport: Arc<Transport>,
    headers: Option<Headers>,
    rewrite: Option<Rewrite>,
    /// The rewrite makes it a method without content.
    drops_body: bool,
    trusted: Box<[IpNet]>,
    response_routes: Box<[ResponseRoutes]>,
    placeholders: FamilyId,
}

/// The handler on one worker. What waits for an answer holds it, so that no count is shared between workers.
struct Local {
    plan: Arc<Plan>,
    turn: Turn,
    named: OnceCell<Named>,
}

struct ReverseProxy {
    plan: Arc<Plan>,
    local: StateId<Rc<Local>>,
}

/// Makes the handler.
///
/// # Errors
/// When an option is unknown, wrong, or not built into this version.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    unbuilt::refuse(value, UNBUILT, build)?;
    let mut written: Written = build.parse(value)?;
    let present = |is: bool, key: &str| is.then(|| &value[key]);
    let transport = transport::build(present(written.transport.is_some(), "transport"), build)?;
    if written.dynamic_upstreams.is_some() {
        match transport.carriage {
            Carriage::Http => unbuilt::refuse(value, &["dynamic_upstreams"], build)?,
            Carriage::HttpGrpc(_) => {
                written.upstreams.extend(httpgrpc::named(&value["dynamic_upstreams"], build)?);
            }
        }
    }
    if written.upstreams.is_empty() {
        return build.at("upstreams", |build| Err(build.refuse("none", "one upstream at least")));
    }
    let mut backends = Vec::with_capacity(written.upstreams.len());
    for (index, backend) in written.upstreams.iter().enumerate() {
        backends.push(build.at(format!("upstreams[{index}]"), |build| Backend::build(backend, &transport, build))?);
    }
    let policy = Policy::build(present(written.load_balancing.is_some(), "load_balancing"), &backends, build)?;
    let headers = match present(written.headers.is_some(), "headers") {
        Some(headers) => Some(build.at("headers", |build| Headers::build(headers, build))?),
        None => None,
    };
    let rewrite = match present(written.rewrite.is_some(), "rewrite") {
        Some(rewrite) => Some(build.at("rewrite", |build| Rewrite::build(rewrite, build))?),
        None => None,
    };
    // Caddy looks at how the method is written.
    let drops_body = matches!(value["rewrite"]["method"].as_str(), Some("GET" | "HEAD"));
    let trusted = build.at("trusted_proxies", |build| forwarded::ranges(&written.trusted_proxies, build))?;
    let mut response_routes = Vec::with_capacity(written.handle_response.len());
    for index in 0..written.handle_response.len() {
        let routes = &value["handle_response"][index];
        response_routes
            .push(build.at(format!("handle_response[{index}]"), |build| ResponseRoutes::build(routes, build))?);
    }
    let plan = Arc::new(Plan {
        backends: backends.into(),
        policy,
        carriage: transport.carriage,
        transport: transport.transport,
        headers,
        rewrite,
        drops_body,
        trusted,
        response_routes: response_routes.into(),
        placeholders: build.family(placeholders::PREFIX),
    });
    let shared = Arc::clone(&plan);
    let local = build
        .state(move |_| Rc::new(Local { plan: Arc::clone(&shared), turn: Turn::default(), named: OnceCell::new() }));
    Ok(Box::new(ReverseProxy { plan, local }))
}

impl Handler for ReverseProxy {
    fn enter(&self, cx: &mut Context) -> Step {
        let local = Rc::clone(cx.generation().state(self.local));
        let Some(number) = self.plan.policy.select(cx, &self.plan.backends, &local.turn) else {
            return Step::Fail(nobody());
        };
        let backend = &self.plan.backends[number];
        let begun = backend
            .place(cx, self.plan.carriage, &self.plan.transport)
            .and_then(|place| exchange::begin(cx, local, number, place));
        match begun {
            Ok(step) => step,
            Err(fault) => Step::Fail(fault),
        }
    }

    // Only with `handle_response`, whose routes had their say: what they left of the answer nobody wants.
    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        drop(cx.take_held_answer());
        Step::Respond(response)
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        drop(cx.take_held_answer());
        Step::Fail(fault)
    }
}

#[cold]
fn nobody() -> Fault {
    Fault { status: StatusCode::SERVICE_UNAVAILABLE, reason: Reason::Text("no upstreams available".into()) }
}

/// A fault of an upstream's making.
#[cold]
fn bad_gateway(words: String) -> Fault {
    Fault { status: StatusCode::BAD_GATEWAY, reason: Reason::Text(words.into()) }
}
