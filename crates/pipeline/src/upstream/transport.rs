//! The transport of calls: versions, TLS, limits. Plain records, which the engine interprets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::ConnectionLimits;
use crate::worker::{Families, Resolver};

/// The transport to an upstream. Created at load, shared by all workers.
#[derive(Debug, Clone)]
pub struct UpstreamTransport {
    /// The HTTP versions to use.
    pub versions: Versions,
    /// FastCGI in place of HTTP; `versions` and `tls` then have no effect.
    pub fastcgi: Option<FastCgi>,
    /// TLS parameters; `None` is cleartext.
    pub tls: Option<Arc<TlsClient>>,
    /// A proxy that connections over TCP go through; `None` is a direct connection.
    pub network_proxy: Option<Arc<NetworkProxy>>,
    /// DNS servers for the name in the address, or in the network proxy's; `None` is the system's resolver.
    pub resolver: Option<Arc<Resolver>>,
    /// The PROXY protocol's header at the start of each connection; `None` sends none.
    pub proxy_header: Option<ProxyHeader>,
    /// The local address of connections over TCP; port 0 is any. `None` leaves the choice to the kernel. Addresses of
    /// the other family are not tried.
    pub local_address: Option<SocketAddr>,
    /// The families of addresses to connect to, unless there is a network proxy.
    pub families: Families,
    /// The head start of a name's first address family over the other one (RFC 8305); 300 ms. `None` tries one address
    /// after the other.
    pub fallback_delay: Option<Duration>,
    /// How often the kernel probes a silent connection over TCP; 30 s. `None` sends no probes.
    pub probe_interval: Option<Duration>,
    /// The time without a byte of the upstream after which an HTTP/2 connection with open calls sends PING (RFC 9113
    /// §6.7). `None`, the default, sends none: servers of gRPC may close connections with frequent ones.
    pub ping_interval: Option<Duration>,
    /// Time limit for a byte of the upstream after a PING, then the connection's calls fail; 15 s.
    pub ping_timeout: Duration,
    /// Time limit for resolving the address, connecting and the TLS handshake together; 3 s.
    pub connect_timeout: Duration,
    /// Time limit for the response head, from the end of writing the request; `None` is no limit.
    pub head_timeout: Option<Duration>,
    /// Time limit without a byte received of an awaited body; `None` is no limit.
    pub read_timeout: Option<Duration>,
    /// Time limit without a byte sent while output is queued; `None` is no limit.
    pub write_timeout: Option<Duration>,
    /// How long an idle connection is kept; 2 min. Zero keeps none.
    pub idle_timeout: Duration,
    /// Idle connections kept per worker; 32.
    pub idle_max: usize,
    /// Limit of open connections; `None` is no limit. Further calls wait for a connection.
    pub connection_limits: Option<Arc<ConnectionLimits>>,
    /// Time limit for this wait; `None` is no limit.
    pub queue_timeout: Option<Duration>,
    /// Bytes of a response head, and those of a response's trailers; 32 KiB.
    pub head_bytes_max: u32,
}

impl Default for UpstreamTransport {
    fn default() -> Self {
        Self {
            versions: Versions::Http1,
            fastcgi: None,
            tls: None,
            network_proxy: None,
            resolver: None,
            proxy_header: None,
            local_address: None,
            families: Families::Both,
            fallback_delay: Some(Duration::from_millis(300)),
            probe_interval: Some(Duration::from_secs(30)),
            ping_interval: None,
            ping_timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(3),
            head_timeout: None,
            read_timeout: None,
            write_timeout: None,
            idle_timeout: Duration::from_secs(120),
            idle_max: 32,
            connection_limits: None,
            queue_timeout: None,
            head_bytes_max: 32 * 1024,
        }
    }
}

/// A proxy between this server and its upstreams.
#[derive(Clone)]
pub struct NetworkProxy {
    /// The protocol of this proxy.
    pub protocol: NetworkProxyProtocol,
    /// `host:port`.
    pub address: String,
    /// The user's name and password, if the proxy requires them.
    pub credentials: Option<(String, String)>,
    /// TLS to the proxy itself, only with [`NetworkProxyProtocol::Http`]; `None` is cleartext.
    pub tls: Option<Arc<TlsClient>>,
}

/// The protocols of network proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkProxyProtocol {
    /// HTTP/1.1: a request in absolute form (RFC 9112 §3.2.2) for an upstream in cleartext over HTTP/1.1, else a tunnel
    /// by CONNECT (RFC 9110 §9.3.6).
    Http,
    /// SOCKS5 (RFC 1928); the proxy resolves the upstream's name.
    Socks5,
}

// By hand, so that no log contains the password.
impl fmt::Debug for NetworkProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, address, credentials: _, tls: _ } = self;
        f.debug_struct("NetworkProxy").field("protocol", protocol).field("address", address).finish_non_exhaustive()
    }
}

impl UpstreamTransport {
    /// Returns the network proxy if requests go to it in absolute form, and not through a tunnel.
    pub fn forward_proxy(&self) -> Option<&NetworkProxy> {
        let is_clear = self.tls.is_none() && self.versions != Versions::Http2 && self.fastcgi.is_none();
        self.network_proxy.as_deref().filter(|proxy| is_clear && proxy.protocol == NetworkProxyProtocol::Http)
    }
}

/// A header of the PROXY protocol (haproxy.org, proxy-protocol.txt).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The protocol's version.
    pub version: ProxyProtocolVersion,
    /// The client; `None` if a connection belongs to none, for example that of a health check.
    pub source: Option<IpAddr>,
}

/// The versions of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// A line of text.
    One,
    /// Binary.
    Two,
}

/// The engine's part of FastCGI's settings. The parameters of a request are in its call
/// ([`Call::parameters_mut`](super::Call::parameters_mut)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FastCgi {
    /// Whether every text on STDERR is logged, instead of at most one a second.
    pub captures_stderr: bool,
}

/// The HTTP versions for an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Versions {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; in cleartext by prior knowledge (RFC 9113 §3.3).
    Http2,
    /// The version that the upstream selects by ALPN, with a preference for HTTP/2; HTTP/1.1 in cleartext.
    Negotiated,
}

/// TLS client parameters: verification of the upstream's certificate, and our own certificate.
#[derive(Debug, Clone, Default)]
pub struct TlsClient {
    /// The server name to send and to verify the certificate against; `None` is the address's host.
    pub server_name: Option<String>,
    /// The trusted authorities.
    pub roots: Roots,
    /// Ports of upstreams to which connections are in cleartext all the same.
    pub except_ports: Vec<String>,
    /// Key exchange groups by Caddy's names (x25519mlkem768, x25519, secp256r1, …), in order of preference; empty is
    /// all.
    pub groups: Vec<String>,
    /// Whether verification is disabled, so that any certificate is accepted.
    pub insecure: bool,
    /// Our own certificate, for upstreams that request one.
    pub certificate: Option<OwnCertificate>,
}

/// A certificate that we present to an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnCertificate {
    /// A fixed one.
    Given {
        /// The chain in DER, leaf first.
        chain: Vec<Vec<u8>>,
        /// The leaf's private key in DER (PKCS #8, SEC 1 or PKCS #1).
        key: Vec<u8>,
    },
    /// The one that the server has for this name when a handshake begins. The name is in lower-case ASCII.
    Managed(String),
}

/// The key exchange groups that a [`TlsClient`] may name.
pub const TLS_GROUPS: [&str; 4] = ["x25519mlkem768", "x25519", "secp256r1", "secp384r1"];

/// A set of trusted authorities.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// The authorities that the system trusts.
    #[default]
    System,
    /// These certificates, in DER.
    These(Vec<Vec<u8>>),
}
