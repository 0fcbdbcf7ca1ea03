//! The upstreams, and each worker's state of them: connections, and requests in progress.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Index;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::StatusCode;
use causeway_pipeline::upstream::{RequestCount, UpstreamStatus};
use causeway_pipeline::{
    Build, BuildError, Context, Fault, Metrics, ProxyHeader, Reason, RunningCallCounter, StateId, Template, TlsClient,
    Upstream, UpstreamTransport, Versions, Worker,
};
use serde::Deserialize;

use super::address::Address;
use super::health::{BreakerPass, CallEnd, HealthChecks, Target, UpstreamHealth};
use super::httpgrpc::dns::NamedUpstream;
use super::wire_form::WireForm;
use super::{ReverseProxyPlan, network_proxy, transport};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamConfig {
    #[serde(default)]
    dial: String,
    #[serde(default)]
    max_requests: i64,
}

impl UpstreamConfig {
    pub(super) fn to(dial: String) -> Self {
        Self { dial, ..Self::default() }
    }
}

/// The common part of configured and found upstreams.
pub(super) struct BackendCommon {
    /// As configured or found. Identifies the upstream in hashes, cookies and kept states.
    pub(super) dial: Box<str>,
    /// For all workers together.
    pub(super) requests_max: Option<u32>,
    health: UpstreamHealth,
}

/// One configured upstream.
pub(super) struct Backend {
    pub(super) common: BackendCommon,
    load: StateId<Rc<ActiveRequests>>,
    at: At,
}

/// An upstream that one worker has found in DNS.
pub(super) struct FoundBackend {
    pub(super) common: BackendCommon,
    load: Rc<ActiveRequests>,
    pool: Rc<AddressPool>,
}

enum At {
    Fixed(Address, StateId<Rc<AddressPool>>),
    /// An address with placeholders, expanded for each request.
    Templated {
        dial: Template,
        pools: StateId<RefCell<ExpandedPools>>,
    },
}

/// The requests in progress to an upstream on one worker.
pub(super) struct ActiveRequests(Arc<RequestCount>);

impl RunningCallCounter for ActiveRequests {
    fn begin(&self) {
        self.0.begin();
    }

    fn end(&self) {
        self.0.end();
    }
}

impl Backend {
    pub(super) fn build(
        written: &UpstreamConfig,
        transport: &transport::TransportParts,
        checks: &HealthChecks,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let dial = written.dial.as_str();
        let template = build.template(dial);
        let at = match template.literal() {
            None => {
                let pools =
                    build.allocate_kept_state(format!("reverse_proxy pools {}", transport.key), |_| RefCell::default());
                At::Templated { dial: template, pools }
            }
            Some(literal) => {
                let (literal, is_name) = transport.wire_form.strip_scheme(literal);
                // A literal address is checked at load.
                let address = match Address::parse(literal) {
                    Ok(address) => address,
                    Err(expected) => return build.at("dial", |build| Err(build.refuse(dial, expected))),
                };
                // Equal addresses with equal transports share their connections, also across handlers and reloads.
                let (name, families) = (&address.name, address.families());
                let key = format!("reverse_proxy pool {name} {families:?} {is_name} {}", transport.key);
                let transport = Arc::clone(&transport.transport);
                let pooled = address.clone();
                let make = move |worker: &Rc<dyn Worker>| {
                    Rc::new(AddressPool::new(pooled.clone(), is_name, worker, &transport))
                };
                At::Fixed(address, build.allocate_kept_state(key, make))
            }
        };
        let status = build.metrics().upstream(dial);
        let health = UpstreamHealth::new(Arc::clone(&status), checks, &transport.key);
        let own_max = u32::try_from(written.max_requests).ok().filter(|&max| max > 0);
        let load = build.allocate_kept_state(format!("reverse_proxy load {dial}"), move |_| {
            Rc::new(ActiveRequests(status.add_worker()))
        });
        let requests_max = own_max.or(checks.passive.as_ref().and_then(|checks| checks.requests_max));
        Ok(Self { common: BackendCommon { dial: dial.into(), requests_max, health }, load, at })
    }

    /// Returns the upstream for the active health checks; `None` if it has none.
    pub(super) fn check_target(&self) -> Option<Target> {
        let check = self.common.health.check()?;
        match &self.at {
            At::Fixed(address, _) => Some(check.target(self.common.status(), address)),
            At::Templated { .. } => None,
        }
    }

    /// Returns the pool for this request. Fails with 500 if the expanded address is not valid.
    fn pool(
        &self,
        cx: &mut Context,
        wire_form: &WireForm,
        transport: &Arc<UpstreamTransport>,
    ) -> Result<Rc<AddressPool>, Fault> {
        match &self.at {
            At::Fixed(_, pool) => Ok(Rc::clone(cx.generation().state(*pool))),
            At::Templated { dial, pools } => cx.with_rendered(dial, |cx, text| {
                let text = std::str::from_utf8(text).unwrap_or_default();
                let pools = cx.generation().state(*pools);
                if let Some(pool) = pools.borrow().known.get(text) {
                    return Ok(Rc::clone(pool));
                }
                // As in Caddy, this is a 500: the mistake precedes any connection to an upstream.
                let (stripped, is_name) = wire_form.strip_scheme(text);
                let address =
                    Address::parse(stripped).map_err(|expected| not_dialled(&self.common.dial, text, &expected))?;
                let pool = Rc::new(AddressPool::new(address, is_name, cx.worker(), transport));
                pools.borrow_mut().remember(text, &pool);
                Ok(pool)
            }),
        }
    }
}

impl FoundBackend {
    /// # Errors
    /// The expected form of the address.
    pub(super) fn new(
        dial: &str,
        plan: &ReverseProxyPlan,
        metrics: &Metrics,
        worker: &Rc<dyn Worker>,
    ) -> Result<Self, Cow<'static, str>> {
        let address = Address::parse(dial)?;
        let status = metrics.upstream(dial);
        let load = Rc::new(ActiveRequests(status.add_worker()));
        let passive = plan.passive.as_ref();
        let common = BackendCommon {
            dial: dial.into(),
            requests_max: passive.and_then(|checks| checks.requests_max),
            health: UpstreamHealth::without_checks(status, passive, plan.breaker.as_ref()),
        };
        Ok(Self { common, load, pool: Rc::new(AddressPool::new(address, false, worker, &plan.transport)) })
    }
}

impl BackendCommon {
    /// The state that all workers share.
    pub(super) fn status(&self) -> &Arc<UpstreamStatus> {
        &self.health.status
    }

    /// Lets a request pass the circuit breaker. `None` if another worker's request probes the upstream.
    pub(super) fn admit(&self, cx: &Context) -> Option<BreakerPass> {
        self.health.admit(cx.worker().now())
    }

    /// Counts the end of a request that has passed, which took so long.
    pub(super) fn record_outcome(&self, breaker_pass: BreakerPass, end: CallEnd, took: Duration, now: Instant) {
        self.health.record_outcome(breaker_pass, end, took, now);
    }

    /// Returns whether the upstream is healthy and below its limit of requests.
    pub(super) fn is_available(&self, cx: &Context) -> bool {
        self.health.is_up(cx.worker().now()) && self.requests_max.is_none_or(|max| self.status().requests() < max)
    }
}

/// The upstreams that a request can go to.
#[derive(Clone, Copy)]
pub(super) enum Backends<'b> {
    Configured(&'b [Backend]),
    Found(&'b [Rc<FoundBackend>]),
}

/// A selected upstream.
pub(super) enum ChosenBackend {
    /// The index in the plan's upstreams.
    Configured(usize),
    Found(Rc<FoundBackend>),
}

impl Backends<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Configured(backends) => backends.len(),
            Self::Found(backends) => backends.len(),
        }
    }

    pub(super) fn chosen(self, index: usize) -> ChosenBackend {
        match self {
            Self::Configured(_) => ChosenBackend::Configured(index),
            Self::Found(backends) => ChosenBackend::Found(Rc::clone(&backends[index])),
        }
    }
}

impl Index<usize> for Backends<'_> {
    type Output = BackendCommon;

    fn index(&self, index: usize) -> &BackendCommon {
        match self {
            Self::Configured(backends) => &backends[index].common,
            Self::Found(backends) => &backends[index].common,
        }
    }
}

impl ChosenBackend {
    pub(super) fn common<'c>(&'c self, plan: &'c ReverseProxyPlan) -> &'c BackendCommon {
        match self {
            Self::Configured(index) => &plan.backends[*index].common,
            Self::Found(found) => &found.common,
        }
    }

    pub(super) fn load(&self, cx: &Context, plan: &ReverseProxyPlan) -> Rc<ActiveRequests> {
        match self {
            Self::Configured(index) => Rc::clone(cx.generation().state(plan.backends[*index].load)),
            Self::Found(found) => Rc::clone(&found.load),
        }
    }

    /// Returns the pool for this request. Fails with 500 if the expanded address is not valid.
    pub(super) fn pool(&self, cx: &mut Context, plan: &ReverseProxyPlan) -> Result<Rc<AddressPool>, Fault> {
        let pool = match self {
            Self::Configured(index) => plan.backends[*index].pool(cx, &plan.wire_form, &plan.transport)?,
            Self::Found(found) => Rc::clone(&found.pool),
        };
        let pool = match &plan.server_name {
            None => pool,
            Some(name) => cx.with_rendered(name, |cx, text| pool.of_server_name(text, cx.worker())),
        };
        let pool = match &plan.network_proxy {
            // A Unix socket is reached directly.
            Some(_) if pool.address.is_unix() => pool,
            None => pool,
            Some(url) => cx.with_rendered(url, |cx, url| pool.of_network_proxy(url, &plan.transport, cx.worker()))?,
        };
        Ok(match plan.transport.proxy_header {
            None => pool,
            Some(header) => pool.of_client(cx.client().ip, header, cx.worker()),
        })
    }
}

#[cold]
fn not_dialled(dial: &str, text: &str, expected: &str) -> Fault {
    let message = format!("making dial info: upstream {dial}: found '{}', expected {expected}", text.escape_debug());
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(message.into()) }
}

/// An upstream address on one worker, with its connections.
pub(super) struct AddressPool {
    pub(super) address: Address,
    pub(super) upstream: Rc<dyn Upstream>,
    /// The address over HTTP/1.1, for requests to switch protocols: HTTP/2 has no Upgrade.
    switching: OnceCell<Rc<dyn Upstream>>,
    /// Until then httpgrpc sends whole messages: the server did not implement the streaming service.
    unstreamed_until: Cell<Option<Instant>>,
    transport: Arc<UpstreamTransport>,
    /// The pool for each client, whose connections begin with its own header of the PROXY protocol. As in Caddy, the
    /// requests of one client share connections.
    by_client: RefCell<HashMap<Option<IpAddr>, Rc<AddressPool>>>,
    /// The pool for each server name of TLS, if requests have their own.
    by_server_name: RefCell<ExpandedPools>,
    /// The pool for each URL of a network proxy, likewise.
    by_network_proxy: RefCell<ExpandedPools>,
}

impl AddressPool {
    fn new(address: Address, is_name: bool, worker: &Rc<dyn Worker>, transport: &Arc<UpstreamTransport>) -> Self {
        let transport = transport::to_address(transport, &address);
        let upstream: Rc<dyn Upstream> = if is_name {
            NamedUpstream::new(&address.to_dial(), worker, &transport)
        } else {
            worker.upstream(&address.to_dial(), &transport)
        };
        Self {
            address,
            upstream,
            switching: OnceCell::new(),
            unstreamed_until: Cell::default(),
            transport,
            by_client: RefCell::default(),
            by_server_name: RefCell::default(),
            by_network_proxy: RefCell::default(),
        }
    }

    /// Returns the pool for a server name of TLS; an empty one is the address's own.
    fn of_server_name(self: &Rc<Self>, name: &[u8], worker: &Rc<dyn Worker>) -> Rc<Self> {
        let name = std::str::from_utf8(name).unwrap_or_default();
        let Some(tls) = self.transport.tls.as_deref().filter(|_| !name.is_empty()) else { return Rc::clone(self) };
        if let Some(pool) = self.by_server_name.borrow().known.get(name) {
            return Rc::clone(pool);
        }
        let tls = TlsClient { server_name: Some(name.to_owned()), ..tls.clone() };
        let transport = Arc::new(UpstreamTransport { tls: Some(Arc::new(tls)), ..(*self.transport).clone() });
        let pool = Rc::new(Self::new(self.address.clone(), false, worker, &transport));
        self.by_server_name.borrow_mut().remember(name, &pool);
        pool
    }

    /// Returns the pool for the network proxy at this URL. Fails with 502 if the URL is not valid.
    fn of_network_proxy(
        &self,
        url: &[u8],
        configured: &UpstreamTransport,
        worker: &Rc<dyn Worker>,
    ) -> Result<Rc<Self>, Fault> {
        let url = std::str::from_utf8(url).unwrap_or_default();
        if let Some(pool) = self.by_network_proxy.borrow().known.get(url) {
            return Ok(Rc::clone(pool));
        }
        // Without the URL, which may have a password.
        let refuse = |expected| Fault {
            status: StatusCode::BAD_GATEWAY,
            reason: Reason::Text(
                format!("network_proxy: the URL of this request is not valid, expected {expected}").into(),
            ),
        };
        let proxy = network_proxy::secured(network_proxy::parse(url).map_err(refuse)?, configured.tls.as_deref());
        // An address in the clear may still have a proxy with TLS: `tls_except_ports`.
        let transport = Arc::new(UpstreamTransport { network_proxy: Some(proxy), ..(*self.transport).clone() });
        let pool = Rc::new(Self::new(self.address.clone(), false, worker, &transport));
        self.by_network_proxy.borrow_mut().remember(url, &pool);
        Ok(pool)
    }

    fn of_client(&self, ip: Option<IpAddr>, header: ProxyHeader, worker: &Rc<dyn Worker>) -> Rc<Self> {
        let mut by_client = self.by_client.borrow_mut();
        if let Some(pool) = by_client.get(&ip) {
            return Rc::clone(pool);
        }
        let header = ProxyHeader { source: ip, ..header };
        let transport = Arc::new(UpstreamTransport { proxy_header: Some(header), ..(*self.transport).clone() });
        let pool = Rc::new(Self::new(self.address.clone(), false, worker, &transport));
        if by_client.len() >= CLIENTS_MAX {
            by_client.retain(|_, pool| Rc::strong_count(pool) > 1);
        }
        // If all are in use, this one works without being kept, and its connections are closed after its call.
        if by_client.len() < CLIENTS_MAX {
            by_client.insert(ip, Rc::clone(&pool));
        }
        pool
    }

    /// Returns whether httpgrpc may stream content in several messages.
    pub(super) fn may_stream(&self, now: Instant) -> bool {
        self.unstreamed_until.get().is_none_or(|until| until <= now)
    }

    /// Disables streaming until then: the server does not implement the streaming service.
    pub(super) fn unstream(&self, until: Instant) {
        self.unstreamed_until.set(Some(until));
    }

    /// Returns the upstream for a call that requests another protocol.
    pub(super) fn switching(&self, worker: &Rc<dyn Worker>) -> &Rc<dyn Upstream> {
        let transport = &self.transport;
        // Only ALPN could select HTTP/2 here.
        if transport.tls.is_none() || transport.versions != Versions::Negotiated {
            return &self.upstream;
        }
        self.switching.get_or_init(|| {
            let transport = UpstreamTransport { versions: Versions::Http1, ..(**transport).clone() };
            worker.upstream(&self.address.to_dial(), &Arc::new(transport))
        })
    }
}

/// Pools for addresses, TLS server names or network proxies that contained placeholders, by the expanded text.
#[derive(Default)]
pub(super) struct ExpandedPools {
    known: HashMap<Box<str>, Rc<AddressPool>>,
}

/// Most clients with connections of their own to one upstream that a worker keeps; see `AddressPool::by_client`.
const CLIENTS_MAX: usize = 1024;
/// Most expanded addresses that a worker keeps. Beyond it, addresses without pending calls are dropped.
const EXPANDED_POOLS_MAX: usize = 1024;

impl ExpandedPools {
    fn remember(&mut self, text: &str, pool: &Rc<AddressPool>) {
        if self.known.len() >= EXPANDED_POOLS_MAX {
            self.known.retain(|_, pool| Rc::strong_count(pool) > 1);
        }
        // If all are in use, the new address works without being kept, and its connections are closed after its call.
        if self.known.len() < EXPANDED_POOLS_MAX {
            self.known.insert(text.into(), Rc::clone(pool));
        }
    }
}
