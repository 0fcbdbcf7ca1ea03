//! A service on its own ports, without a configuration file.

use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use causeway_engine::certificate::{CertificateDer, CertifiedKey, PemObject as _, PrivateKeyDer, certified_key};
use causeway_engine::{BlockingSpec, Certificates, Engine, EngineSpec, StartError};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Build, HeadLimits, Http2, ListenAddress, ListenerSpec, Plan, Protocols, Registry, ServerId, Timeouts, TlsPolicy,
    TlsSpec,
};
use serde_json::{Value, json};

use crate::edge::{Servable, register};

/// The default grace period of requests in progress at shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// Serves a tower service. See [`Server::builder`].
pub struct Server;

impl Server {
    /// Returns a builder with default settings; at least an address is required.
    ///
    /// ```no_run
    /// # async fn example(router: axum::Router) -> Result<(), tower_edge::ServeError> {
    /// tower_edge::Server::builder().listen("127.0.0.1:8080").serve(router).await
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder {
            listen: Vec::new(),
            workers: None,
            grace: GRACE,
            timeouts: Timeouts::default(),
            head: HeadLimits::default(),
            http2: Http2::default(),
            protocols: Protocols::default(),
            tls: None,
            connect_info: false,
        }
    }
}

/// The settings of a server.
#[must_use = "nothing listens before `serve` or `start`"]
pub struct Builder {
    listen: Vec<String>,
    workers: Option<usize>,
    grace: Duration,
    timeouts: Timeouts,
    head: HeadLimits,
    http2: Http2,
    protocols: Protocols,
    tls: Option<(Vec<u8>, Vec<u8>)>,
    connect_info: bool,
}

/// Why a server could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// No address to listen on was given.
    Nowhere,
    /// An address is invalid, or its host name has none.
    Address {
        /// The invalid text.
        found: String,
    },
    /// The certificate or its key cannot be used.
    Certificate {
        /// The cause.
        problem: String,
    },
    /// The engine did not start, for example because an address is in use.
    Start(StartError),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("no address to listen on was given"),
            Self::Address { found } => {
                write!(f, "found '{found}' to listen on, expected HOST:PORT or :PORT with a host that has an address")
            }
            Self::Certificate { problem } => write!(f, "the certificate and its key: {problem}"),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) => Some(error),
            _ => None,
        }
    }
}

impl Builder {
    /// Adds an address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for all addresses.
    /// Port 0 lets the system choose one.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Sets the number of worker threads, each with a clone of the service; one per core by default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets the grace period of requests in progress at shutdown; 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the time limits for peers.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the size limits for request heads.
    pub fn head_limits(mut self, limits: HeadLimits) -> Self {
        self.head = limits;
        self
    }

    /// Sets the HTTP/2 settings: streams, windows and tables.
    pub fn http2(mut self, http2: Http2) -> Self {
        self.http2 = http2;
        self
    }

    /// Sets the accepted versions; by default HTTP/1.1 and HTTP/2, which in cleartext needs prior knowledge.
    pub fn protocols(mut self, protocols: Protocols) -> Self {
        self.protocols = protocols;
        self
    }

    /// Serves over TLS with this certificate chain and key, both in PEM; the certificate precedes its issuers. The
    /// client selects the version of HTTP by ALPN.
    pub fn tls(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls = Some((chain.into(), key.into()));
        self
    }

    /// Adds a [`ConnectInfo`](crate::ConnectInfo) to each request's extensions, and with the feature `axum` also
    /// axum's own. Costs a few allocations per request, as all extensions do.
    pub fn with_connect_info(mut self) -> Self {
        self.connect_info = true;
        self
    }

    /// Binds the addresses and starts to serve on new threads.
    ///
    /// # Errors
    /// If a setting is invalid or an address cannot be bound; no address is bound then.
    pub fn start<S: Servable>(self, service: S) -> Result<Running, ServeError> {
        let (plan, server) = plan(service, &json!({ "handler": "tower", "connect_info": self.connect_info }));
        let mut listeners = Vec::new();
        for found in &self.listen {
            for address in addresses(found)? {
                listeners.push(ListenerSpec {
                    timeouts: self.timeouts,
                    head: self.head,
                    http2: self.http2,
                    protocols: self.protocols,
                    tls: self.tls.is_some().then(|| TlsSpec { policies: vec![TlsPolicy::default()] }),
                    ..ListenerSpec::new(address, server)
                });
            }
        }
        if listeners.is_empty() {
            return Err(ServeError::Nowhere);
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let certificates = match &self.tls {
            Some((chain, key)) => Some(Arc::new(OneCertificate::read(chain, key)?) as Arc<dyn Certificates>),
            None => None,
        };
        let engine = Engine::start(EngineSpec {
            workers: self.workers.unwrap_or_else(cores),
            listeners,
            plan,
            certificates,
            blocking: BlockingSpec::default(),
        });
        Ok(Running { engine: engine.map_err(ServeError::Start)?, grace: self.grace })
    }

    /// Returns a future that binds and serves while it is awaited: until the
    /// [signal](Serving::with_graceful_shutdown), or without one forever.
    pub fn serve<S: Servable>(self, service: S) -> Serving<S> {
        Serving { builder: self, service, signal: Box::pin(pending()) }
    }
}

/// Builds a plan with one route, whose handler is the service.
fn plan<S: Servable>(service: S, handler: &Value) -> (Arc<Plan>, ServerId) {
    let mut registry = Registry::default();
    register(&mut registry, "tower", service);
    let mut build = Build::new(&registry);
    let routes = json!([{ "handle": [handler] }]);
    let server = build.server(&ServerSpec::new("tower", &routes)).expect("one route of a registered handler");
    (Arc::new(build.finish()), server)
}

fn addresses(found: &str) -> Result<Vec<ListenAddress>, ServeError> {
    let wrong = || ServeError::Address { found: found.to_owned() };
    // `to_socket_addrs` does not accept an address without a host.
    if let Some(port) = found.strip_prefix(':') {
        return Ok(vec![ListenAddress { host: None, port: port.parse().map_err(|_| wrong())? }]);
    }
    let known = |address: SocketAddr| ListenAddress { host: Some(address.ip()), port: address.port() };
    let known: Vec<_> = found.to_socket_addrs().map_err(|_| wrong())?.map(known).collect();
    if known.is_empty() { Err(wrong()) } else { Ok(known) }
}

/// A certificate that is used for every server name.
#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl OneCertificate {
    fn read(chain: &[u8], key: &[u8]) -> Result<Self, ServeError> {
        let wrong = |error: &dyn fmt::Display| ServeError::Certificate { problem: error.to_string() };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
        if chain.is_empty() {
            return Err(wrong(&"found no certificate in PEM"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(&error))?;
        Ok(Self(Arc::new(certified_key(chain, key).map_err(|error| wrong(&error))?)))
    }
}

impl Certificates for OneCertificate {
    fn find(&self, _: Option<&str>, _: &[String], _: &dyn Fn(&CertifiedKey) -> bool) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A running server. Dropping it stops it at once.
pub struct Running {
    engine: Engine,
    grace: Duration,
}

impl Running {
    /// Returns the bound addresses, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.engine.addresses()
    }

    /// Returns the engine, for its counters.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Stops accepting, waits for requests in progress up to the grace period, then stops. Needs tokio's timer.
    pub async fn shutdown(self) {
        self.engine.drain(self.grace).await;
    }
}

/// A server that serves while this value is awaited.
#[must_use = "nothing listens before this is awaited"]
pub struct Serving<S> {
    builder: Builder,
    service: S,
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S: Servable> Serving<S> {
    /// Shuts down gracefully when `signal` completes: the server stops accepting, and requests in progress have the
    /// [grace period](Builder::grace) to end.
    pub fn with_graceful_shutdown(self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { signal: Box::pin(signal), ..self }
    }
}

impl<S: Servable> IntoFuture for Serving<S> {
    type Output = Result<(), ServeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let running = self.builder.start(self.service)?;
            self.signal.await;
            running.shutdown().await;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
