//! A service on ports of its own, without a configuration.

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

/// How long requests under way may take when the server ends, unless something else is said.
const GRACE: Duration = Duration::from_secs(10);

/// Serves a tower service. See [`Server::builder`].
pub struct Server;

impl Server {
    /// What a server may be told: at least where it listens.
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

/// How a server is to be.
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

/// Why a server does not serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// It was not told where to listen.
    Nowhere,
    /// What it was told is no address, or its name has none.
    Address {
        /// As it was written.
        found: String,
    },
    /// The certificate or its key cannot be used.
    Certificate {
        /// What is wrong with it.
        problem: String,
    },
    /// The engine did not start: the address is taken, for one.
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
    /// Listens there too: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for all addresses. Port 0 lets the system choose.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// So many threads serve, each with a clone of the service; by default one per core.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How long requests under way may take when the server ends; 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long peers may take for each thing.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// How large the parts of a head may be.
    pub fn head_limits(mut self, limits: HeadLimits) -> Self {
        self.head = limits;
        self
    }

    /// Streams, windows and tables of HTTP/2.
    pub fn http2(mut self, http2: Http2) -> Self {
        self.http2 = http2;
        self
    }

    /// Which versions are spoken; by default HTTP/1.1 and HTTP/2, in the clear by prior knowledge.
    pub fn protocols(mut self, protocols: Protocols) -> Self {
        self.protocols = protocols;
        self
    }

    /// Serves over TLS with this certificate and its key, both in PEM; the chain goes behind the certificate. The client chooses the
    /// version of HTTP by ALPN.
    pub fn tls(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls = Some((chain.into(), key.into()));
        self
    }

    /// Puts a [`ConnectInfo`](crate::ConnectInfo) into each request's extensions; with the feature `axum`, axum's own too. It costs some
    /// allocations a request, as all extensions do.
    pub fn with_connect_info(mut self) -> Self {
        self.connect_info = true;
        self
    }

    /// Binds and serves, on threads of its own, from now on.
    ///
    /// # Errors
    /// What of the settings is wrong, or the address that cannot be had; nothing listens then.
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
            access: Box::new(std::io::sink()),
        });
        Ok(Running { engine: engine.map_err(ServeError::Start)?, grace: self.grace })
    }

    /// Serves while the result is awaited, for ever unless there is a [signal](Serving::with_graceful_shutdown). Nothing listens
    /// before that.
    pub fn serve<S: Servable>(self, service: S) -> Serving<S> {
        Serving { builder: self, service, signal: Box::pin(pending()) }
    }
}

/// One route: the service answers everything.
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
    if let Some(port) = found.strip_prefix(':') {
        return Ok(vec![ListenAddress { host: None, port: port.parse().map_err(|_| wrong())? }]);
    }
    let known = |address: SocketAddr| ListenAddress { host: Some(address.ip()), port: address.port() };
    let known: Vec<_> = found.to_socket_addrs().map_err(|_| wrong())?.map(known).collect();
    if known.is_empty() { Err(wrong()) } else { Ok(known) }
}

/// The same certificate whatever name is asked for.
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
    fn find(&self, _: Option<&str>, _: &[String]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A server that serves. Dropping it ends it at once.
pub struct Running {
    engine: Engine,
    grace: Duration,
}

impl Running {
    /// Where it listens; ports that the system chose are filled in.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.engine.addresses()
    }

    /// The engine, for what it counts.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Accepts no more, lets requests under way end as long as the grace lasts, then ends what is left. Needs tokio's timer.
    pub async fn shutdown(self) {
        self.engine.drain(self.grace).await;
    }
}

/// A server that is to serve while this is awaited.
#[must_use = "nothing listens before this is awaited"]
pub struct Serving<S> {
    builder: Builder,
    service: S,
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S: Servable> Serving<S> {
    /// Ends gracefully when `signal` is ready: no connection is accepted any more, requests under way have the
    /// [grace](Builder::grace) to end.
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
