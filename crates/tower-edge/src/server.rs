//! A service on its own ports, without a configuration file.

use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use causeway_engine::certificate::{self, CertificateDer, CertifiedKey};
use causeway_engine::{BlockingSpec, Certificates, Engine, EngineSpec, HandedSockets, StartError, is_absent_address};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Build, ClientAuthentication, ClientAuthenticationMode, Confusable, HeadLimits, Http2, ListenAddress, ListenerSpec,
    ListeningSocket, Plan, Protocols, ProxyProtocol, Registry, ServerId, Timeouts, TlsPolicy, TlsSpec, UnixAddress,
};
use serde_json::{Value, json};

use crate::edge::{Servable, cloning, handler_with};

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
            tls_policy: None,
            client_certificates: None,
            proxy_protocol: None,
            connect_info: false,
        }
    }
}

/// The settings of a server.
#[must_use = "nothing listens before `serve` or `start`"]
pub struct Builder {
    listen: Vec<Listen>,
    workers: Option<usize>,
    grace: Duration,
    timeouts: Timeouts,
    head: HeadLimits,
    http2: Http2,
    protocols: Protocols,
    tls: Option<CertificateSource>,
    tls_policy: Option<TlsPolicy>,
    /// The authorities in PEM.
    client_certificates: Option<(Vec<u8>, ClientAuthenticationMode)>,
    proxy_protocol: Option<Arc<ProxyProtocol>>,
    connect_info: bool,
}

/// A socket to listen on.
#[derive(Debug)]
enum Listen {
    Address(String),
    /// The path of a Unix socket, and its permission bits.
    Unix(PathBuf, u32),
    Inherited(u16),
    Open(OwnedFd),
}

enum CertificateSource {
    Pem { chain: Vec<u8>, key: Vec<u8> },
    Custom(Arc<dyn Certificates>),
}

/// Why a server could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// No address to listen on was given.
    NoAddress,
    /// An address is invalid, or its host name has none.
    Address {
        /// The invalid text.
        found: String,
    },
    /// The path of a Unix socket is not valid UTF-8.
    Path {
        /// The path.
        found: PathBuf,
    },
    /// A setting is out of its range.
    Setting {
        /// The setting.
        name: &'static str,
        /// The invalid value.
        found: u64,
        /// The valid values.
        expected: String,
    },
    /// No version of HTTP can be served.
    Protocols {
        /// Whether the server has TLS, which has other versions.
        has_tls: bool,
    },
    /// A certificate or its key cannot be used.
    Certificate {
        /// The cause.
        problem: String,
    },
    /// A setting of TLS for a server without TLS.
    NoTls {
        /// The builder's method.
        setting: &'static str,
    },
    /// The engine did not start. [`StartError::Bind`] has the system's error, for example that an address is in use,
    /// and [`StartError::Tls`] the setting of a [`TlsPolicy`] that cannot be used.
    Start(StartError),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("no address to listen on was given"),
            Self::Address { found } => {
                write!(f, "found '{found}' to listen on, expected HOST:PORT or :PORT with a host that has an address")
            }
            Self::Path { found } => write!(f, "found {found:?} to listen on, expected a path in UTF-8"),
            Self::Setting { name, found, expected } => write!(f, "{name}: found {found}, expected {expected}"),
            Self::Protocols { has_tls: true } => {
                f.write_str("protocols: expected http1 or http2 for a server with TLS")
            }
            Self::Protocols { has_tls: false } => {
                f.write_str("protocols: expected http1 or http2_clear for a server without TLS")
            }
            Self::Certificate { problem } => write!(f, "the certificates: {problem}"),
            Self::NoTls { setting } => write!(f, "{setting}: found a server without TLS, expected tls or certificates"),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The text is that of the engine's error, so the next one is its source.
            Self::Start(error) => error.source(),
            _ => None,
        }
    }
}

impl Builder {
    /// Adds an address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `[fe80::1%eth0]:8080`, `localhost:8080`, or
    /// `:8080` for all addresses. Port 0 lets the system choose one. A name stands for those of its addresses that the
    /// machine has.
    pub fn listen(mut self, address: impl ToString) -> Self {
        self.listen.push(Listen::Address(address.to_string()));
        self
    }

    /// Adds a Unix socket to listen on: the path of its file, which is created with these permission bits and removed
    /// at the end, or an abstract name after an `@`.
    pub fn listen_unix(mut self, path: impl AsRef<Path>, mode: u32) -> Self {
        self.listen.push(Listen::Unix(path.as_ref().into(), mode));
        self
    }

    /// Adds a listening socket that the process has inherited under this number, for example the first one of a systemd
    /// socket unit: 3.
    pub fn listen_inherited(mut self, descriptor: u16) -> Self {
        self.listen.push(Listen::Inherited(descriptor));
        self
    }

    /// Adds a listening socket that the program has opened: a [`TcpListener`] or a
    /// [`UnixListener`](std::os::unix::net::UnixListener) of std, or another socket as [`OwnedFd`]; tokio's listeners
    /// have `into_std`. The server sets it to non-blocking, also for its duplicates, closes it at the end, and leaves
    /// the file of a Unix socket.
    ///
    /// ```
    /// # fn example(router: axum::Router) -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let running = tower_edge::Server::builder().listen_on(listener).start(router)?;
    /// # Ok(()) }
    /// # example(axum::Router::new()).unwrap();
    /// ```
    pub fn listen_on(mut self, listener: impl Into<OwnedFd>) -> Self {
        self.listen.push(Listen::Open(listener.into()));
        self
    }

    /// Reads the PROXY protocol, version 1 or 2, at the start of connections from these peers, such as a load balancer.
    pub fn proxy_protocol(mut self, settings: ProxyProtocol) -> Self {
        self.proxy_protocol = Some(Arc::new(settings));
        self
    }

    /// Sets the number of worker threads, each with a service of its own; one per core by default.
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
        self.tls = Some(CertificateSource::Pem { chain: chain.into(), key: key.into() });
        self
    }

    /// Serves over TLS, as [`tls`](Self::tls), with certificates that `source` returns at each handshake: by the server
    /// name, or renewed ones. [`certified_key`] reads one from PEM.
    pub fn certificates(mut self, source: impl Certificates + 'static) -> Self {
        self.tls = Some(CertificateSource::Custom(Arc::new(source)));
        self
    }

    /// Sets the versions, cipher suites, key exchange groups and protocols (ALPN) of TLS, and the other settings of a
    /// policy. Without it, these are the defaults of [`TlsPolicy`].
    ///
    /// ```
    /// use tower_edge::{Server, TlsPolicy, TlsVersion};
    ///
    /// let policy = TlsPolicy { version_min: TlsVersion::Tls13, groups: vec!["x25519mlkem768".into()], ..TlsPolicy::default() };
    /// let builder = Server::builder().tls_policy(policy);
    /// ```
    pub fn tls_policy(mut self, policy: TlsPolicy) -> Self {
        self.tls_policy = Some(policy);
        self
    }

    /// Requests certificates of clients over TLS that `authorities`, in PEM, have issued. It replaces the policy's
    /// [`client`](TlsPolicy::client). A service finds a client's
    /// in [`ConnectInfo`](crate::ConnectInfo).
    pub fn client_certificates(mut self, authorities: impl Into<Vec<u8>>, mode: ClientAuthenticationMode) -> Self {
        self.client_certificates = Some((authorities.into(), mode));
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
    pub fn start<S: Servable + Send>(self, service: S) -> Result<Running, ServeError> {
        self.start_with(cloning(service))
    }

    /// As [`start`](Self::start), with a service that each worker makes itself, which need not be [`Send`]: `make` gets
    /// the number of the worker, from 0, and runs on its thread, in its runtime.
    ///
    /// # Errors
    /// As of `start`; also if `make` panics.
    pub fn start_with<S: Servable>(
        self,
        make: impl Fn(usize) -> S + Send + Sync + 'static,
    ) -> Result<Running, ServeError> {
        self.check()?;
        let (plan, server) = plan(make, &json!({ "handler": "tower", "connect_info": self.connect_info }));
        let (mut sockets, mut handed) = (Vec::new(), Vec::new());
        for listen in self.listen {
            match listen {
                Listen::Address(found) => sockets.extend(addresses(&found)?.into_iter().map(ListeningSocket::from)),
                Listen::Unix(found, mode) => {
                    let Some(text) = found.to_str() else { return Err(ServeError::Path { found }) };
                    sockets.push(UnixAddress { path: text.into(), mode }.into());
                }
                Listen::Inherited(descriptor) => sockets.push(ListeningSocket::Descriptor(descriptor.into())),
                Listen::Open(descriptor) => {
                    let (own, socket) = HandedSockets::own(descriptor);
                    handed.push(own);
                    sockets.push(socket);
                }
            }
        }
        if sockets.is_empty() {
            return Err(ServeError::NoAddress);
        }
        let mut policy = self.tls_policy.unwrap_or_default();
        if let Some((authorities, mode)) = self.client_certificates {
            policy.client = Some(clients(&authorities, mode)?);
        }
        let tls = self.tls.is_some().then(|| TlsSpec { policies: vec![policy] });
        let listeners = sockets.into_iter().map(|socket| ListenerSpec {
            timeouts: self.timeouts,
            head: self.head,
            http2: self.http2,
            protocols: self.protocols,
            tls: tls.clone(),
            proxy_protocol: self.proxy_protocol.clone(),
            ..ListenerSpec::new(socket, server)
        });
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let certificates = match self.tls {
            Some(CertificateSource::Pem { chain, key }) => {
                Some(Arc::new(OneCertificate(certified_key(&chain, &key)?)) as Arc<dyn Certificates>)
            }
            Some(CertificateSource::Custom(source)) => Some(source),
            None => None,
        };
        let spec = EngineSpec {
            workers: self.workers.unwrap_or_else(cores),
            listeners: listeners.collect(),
            plan,
            certificates,
            blocking: BlockingSpec::default(),
        };
        let engine = Engine::start_with(spec, handed).map_err(ServeError::Start)?;
        Ok(Running { engine, grace: self.grace })
    }

    fn check(&self) -> Result<(), ServeError> {
        if let Some((name, found, range)) = self.head.out_of_range() {
            return Err(setting(name, found as u64, &range));
        }
        if let Some((name, found, range)) = self.http2.out_of_range() {
            return Err(setting(name, found.into(), &range));
        }
        let of_tls =
            [("tls_policy", self.tls_policy.is_some()), ("client_certificates", self.client_certificates.is_some())];
        if let Some((setting, _)) = of_tls.into_iter().find(|(_, is_set)| *is_set && self.tls.is_none()) {
            return Err(ServeError::NoTls { setting });
        }
        let Protocols { http1, http2, http2_clear, http2_upgrade: _ } = self.protocols;
        let can_serve = if self.tls.is_some() { http1 || http2 } else { http1 || http2_clear };
        if !can_serve {
            return Err(ServeError::Protocols { has_tls: self.tls.is_some() });
        }
        match self.workers {
            Some(0) => Err(ServeError::Setting { name: "workers", found: 0, expected: "one at least".to_owned() }),
            _ => Ok(()),
        }
    }

    /// Returns a future that binds and serves while it is awaited: until the
    /// [signal](Serving::with_graceful_shutdown), or without one forever.
    pub fn serve<S: Servable + Send>(self, service: S) -> Serving<S> {
        self.serve_with(cloning(service))
    }

    /// As [`serve`](Self::serve), with a service that each worker makes itself, as [`start_with`](Self::start_with).
    ///
    /// ```no_run
    /// # use axum::{Router, routing::get};
    /// # async fn example() -> Result<(), tower_edge::ServeError> {
    /// let make = |worker| Router::new().route("/", get(move || async move { format!("worker {worker}") }));
    /// tower_edge::Server::builder().listen("127.0.0.1:8080").serve_with(make).await
    /// # }
    /// ```
    pub fn serve_with<S: Servable>(self, make: impl Fn(usize) -> S + Send + Sync + 'static) -> Serving<S> {
        Serving { builder: self, make: Box::new(make), signal: Box::pin(pending()) }
    }
}

/// Builds a plan with one route, whose handler is the service.
fn plan<S: Servable>(make: impl Fn(usize) -> S + Send + Sync + 'static, handler: &Value) -> (Arc<Plan>, ServerId) {
    let mut registry = Registry::default();
    registry.register_handler("tower", handler_with(make));
    let mut build = Build::new(&registry);
    let routes = json!([{ "handle": [handler] }]);
    // A service compares names exactly, and gRPC's metadata may have `_` and `.`.
    let spec = ServerSpec { confusable: Confusable::keep_all(), ..ServerSpec::new("tower", &routes) };
    let server = build.server(&spec).expect("one route of a registered handler");
    (Arc::new(build.finish()), server)
}

fn addresses(found: &str) -> Result<Vec<ListenAddress>, ServeError> {
    let wrong = || ServeError::Address { found: found.to_owned() };
    let (host, port) = found.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    if host.is_empty() {
        return Ok(vec![ListenAddress { host: None, port, zone: 0 }]);
    }
    // The resolver also reads the zone of an IPv6 address (RFC 4007 §11), if that is without brackets.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let known: Vec<_> = (host, port).to_socket_addrs().map_err(|_| wrong())?.map(ListenAddress::from).collect();
    if known.is_empty() { Err(wrong()) } else { Ok(present(known)) }
}

/// Returns those of a name's addresses that this machine has, or all if it has none, so that binding them shows the
/// error. `localhost` resolves to `::1` even on a system without IPv6.
fn present(known: Vec<ListenAddress>) -> Vec<ListenAddress> {
    // On any free port: one that is in use is an error of its own.
    let is_absent = |address: SocketAddr| TcpListener::bind(address).is_err_and(|error| is_absent_address(&error));
    let is_present = |address: &&ListenAddress| !ListenAddress { port: 0, ..**address }.candidates().all(is_absent);
    let found: Vec<_> = known.iter().filter(is_present).copied().collect();
    if found.is_empty() { known } else { found }
}

/// Reads a certificate chain and its key from PEM; the certificate precedes its issuers. For
/// [`Builder::certificates`].
///
/// # Errors
/// [`ServeError::Certificate`]: there is none, the key's type is not supported, or they do not belong together.
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, ServeError> {
    let chain = read_certificates(chain)?;
    let key = causeway_pem::key(key).map_err(|error| unusable(format!("{}: {error}", error.location("the key"))))?;
    Ok(Arc::new(certificate::certified_key(chain, key).map_err(unusable)?))
}

/// The authorities of clients.
fn clients(authorities: &[u8], mode: ClientAuthenticationMode) -> Result<ClientAuthentication, ServeError> {
    let authorities = read_certificates(authorities)?.iter().map(|authority| authority.to_vec()).collect();
    Ok(ClientAuthentication { mode, authorities, leaves: Vec::new() })
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    causeway_pem::chain(pem).map_err(|error| unusable(format!("{}: {error}", error.location("the PEM text"))))
}

fn unusable(problem: impl fmt::Display) -> ServeError {
    ServeError::Certificate { problem: problem.to_string() }
}

fn setting<N: fmt::Display>(name: &'static str, found: u64, range: &RangeInclusive<N>) -> ServeError {
    ServeError::Setting { name, found, expected: format!("a number from {} to {}", range.start(), range.end()) }
}

/// A certificate that is used for every server name.
#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

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
    /// Returns the bound IP addresses in the order in which they were added, with the ports that the system chose. A
    /// Unix socket has none.
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
    make: Box<dyn Fn(usize) -> S + Send + Sync>,
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key of a certificate stays out.
        let mut fields = f.debug_struct("Builder");
        fields.field("listen", &self.listen).field("workers", &self.workers).field("grace", &self.grace);
        fields.finish_non_exhaustive()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Running");
        fields.field("addresses", &self.engine.bound_addresses()).field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Serving<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("builder", &self.builder).finish_non_exhaustive()
    }
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
            let running = self.builder.start_with(self.make)?;
            self.signal.await;
            running.shutdown().await;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
