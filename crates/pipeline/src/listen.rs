//! The configuration of listeners: plain records, which the engine reads once when it starts them.
//!
//! - `tls`: TLS connection policies
//! - `proxy_protocol`: addresses that proxies report

mod proxy_protocol;
mod tls;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::route::ServerId;

pub use proxy_protocol::{ProxyPolicy, ProxyProtocol};
pub use tls::{
    ClientAuthentication, ClientAuthenticationMode, ServerNameMatcher, TlsMatchers, TlsPolicy, TlsSpec, TlsVersion,
};

/// The address of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// The IP address; `None` is every address, IPv6 and IPv4.
    pub host: Option<IpAddr>,
    /// TCP port; 0 lets the kernel choose one (for tests).
    pub port: u16,
    /// The zone of a link-local IPv6 address (RFC 4007 §6) by the index of its interface; 0 for other addresses.
    pub zone: u32,
}

impl ListenAddress {
    /// Returns the socket addresses to try, in order: without a host the IPv6 wildcard, which also accepts IPv4, then
    /// the IPv4 wildcard.
    pub fn candidates(self) -> impl Iterator<Item = SocketAddr> {
        let any6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let any4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let hosts = match self.host {
            Some(host) => [Some(host), None],
            // The IPv4 wildcard is for systems without IPv6.
            None => [Some(any6), Some(any4)],
        };
        hosts.into_iter().flatten().map(move |host| match host {
            IpAddr::V4(host) => SocketAddr::new(host.into(), self.port),
            IpAddr::V6(host) => SocketAddrV6::new(host, self.port, 0, self.zone).into(),
        })
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        // The kernel ignores the zone of other addresses, so two texts of one address must be equal.
        let zone = match address {
            SocketAddr::V6(address) if address.ip().is_unicast_link_local() => address.scope_id(),
            _ => 0,
        };
        Self { host: Some(address.ip()), port: address.port(), zone }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.and_then(|_| self.candidates().next()) {
            Some(address) => address.fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// The address of a listener's Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnixAddress {
    /// The path of the socket's file. A name that begins with `@` is in the kernel's abstract namespace and has no
    /// file.
    pub path: Arc<str>,
    /// The permission bits of the file; without effect on an abstract name.
    pub mode: u32,
}

impl UnixAddress {
    /// The longest path or abstract name, in bytes: `sun_path` of Linux without its final NUL.
    pub const BYTES_MAX: usize = 107;
    /// The permission bits of a file without any in the configuration, as in Caddy: the owner may connect.
    pub const MODE: u32 = 0o200;

    /// Returns the name in the abstract namespace; `None` for a path.
    #[must_use]
    pub fn abstract_name(&self) -> Option<&str> {
        self.path.strip_prefix('@')
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix/{}", self.path)
    }
}

/// The address to which a listener's sockets are bound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BoundAddress {
    /// An IP address and a TCP port.
    Ip(SocketAddr),
    /// The path of a Unix socket, or its abstract name after an `@`.
    Unix(Arc<str>),
}

impl BoundAddress {
    /// Returns the IP address and the port; `None` for a Unix socket.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix/{path}"),
        }
    }
}

/// The two ends of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoints {
    /// The addresses of a TCP connection, or those that a proxy reports.
    Ip {
        /// The client's address, or that of the last proxy.
        peer: SocketAddr,
        /// The local address.
        local: SocketAddr,
    },
    /// The path of the Unix socket that accepted the connection. Its peers have no address.
    Unix(Rc<str>),
}

impl Endpoints {
    /// Returns the peer's address; `None` for a Unix socket.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip { peer, .. } => Some(*peer),
            Self::Unix(_) => None,
        }
    }

    /// Returns the peer's IP address, as IPv4 if it is mapped to IPv6; `None` for a Unix socket.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        // A socket for both families reports IPv4 peers as IPv4-mapped IPv6 addresses.
        self.peer().map(|peer| peer.ip().to_canonical())
    }

    /// Returns the local address; `None` for a Unix socket.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip { local, .. } => Some(*local),
            Self::Unix(_) => None,
        }
    }
}

/// Shows the peer, for logs; `@` is one of a Unix socket, as in Caddy.
impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip { peer, .. } => match peer.ip().to_canonical() {
                // Without the mapping of IPv4 to IPv6, which a socket for both families reports.
                IpAddr::V4(ip) => SocketAddr::new(ip.into(), peer.port()).fmt(f),
                // With its zone.
                IpAddr::V6(_) => peer.fmt(f),
            },
            Self::Unix(_) => f.write_str(UNIX_PEER),
        }
    }
}

/// The text for the peer of a Unix socket, where other peers have an address; Caddy's, from Go's `net` package.
pub const UNIX_PEER: &str = "@";

/// The origin of a listener's socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListeningSocket {
    /// The engine binds sockets to this address.
    Bound(ListenAddress),
    /// The engine binds one Unix socket, which all workers share.
    Unix(UnixAddress),
    /// A listening socket that is open under this file descriptor: the process has inherited it, for example from
    /// systemd, or its own code hands it to the engine.
    Descriptor(RawFd),
}

impl ListeningSocket {
    /// Returns the IP address to bind; `None` for an open socket, which has its address already, and a Unix socket.
    #[must_use]
    pub fn address(&self) -> Option<ListenAddress> {
        match self {
            Self::Bound(address) => Some(*address),
            Self::Unix(_) | Self::Descriptor(_) => None,
        }
    }

    /// Returns the configured TCP port; `None` for an open socket, whose port no configuration sets, and a Unix
    /// socket.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.address().map(|address| address.port)
    }
}

impl From<UnixAddress> for ListeningSocket {
    fn from(address: UnixAddress) -> Self {
        Self::Unix(address)
    }
}

impl From<ListenAddress> for ListeningSocket {
    fn from(address: ListenAddress) -> Self {
        Self::Bound(address)
    }
}

impl fmt::Display for ListeningSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound(address) => address.fmt(f),
            Self::Unix(address) => address.fmt(f),
            Self::Descriptor(descriptor) => write!(f, "fd/{descriptor}"),
        }
    }
}

/// The configuration of one listener.
#[derive(Debug, Clone)]
pub struct ListenerSpec {
    /// The socket to listen on.
    pub socket: ListeningSocket,
    /// The server whose routes handle the requests.
    pub server: ServerId,
    /// Time limits for peers.
    pub timeouts: Timeouts,
    /// Size limits for request heads and framing.
    pub head: HeadLimits,
    /// The accepted versions of HTTP.
    pub protocols: Protocols,
    /// HTTP/2 settings and limits.
    pub http2: Http2,
    /// TLS policies; `None` is cleartext.
    pub tls: Option<TlsSpec>,
    /// The PROXY protocol at the start of connections; `None` reads none.
    pub proxy_protocol: Option<Arc<ProxyProtocol>>,
    /// With TLS: the longest head, in bytes, of a cleartext request that is redirected to https; `None` refuses such
    /// requests.
    pub redirect_bytes_max: Option<usize>,
    /// TCP's keep-alive probes on accepted connections; `None`: every 15 seconds.
    pub probes: Option<TcpProbes>,
}

/// TCP's keep-alive probes (RFC 9293 §3.8.4), by which the kernel finds out that a silent peer is gone. `None` leaves a
/// value to the system. Times count in seconds, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpProbes {
    /// Whether there are probes.
    pub is_on: bool,
    /// The silence before the first probe.
    pub idle: Option<Duration>,
    /// The time between two probes.
    pub interval: Option<Duration>,
    /// The number of unanswered probes that end the connection.
    pub count: Option<u32>,
}

impl ListenerSpec {
    /// Creates a cleartext listener with all defaults.
    #[must_use]
    pub fn new(socket: impl Into<ListeningSocket>, server: ServerId) -> Self {
        Self {
            socket: socket.into(),
            server,
            timeouts: Timeouts::default(),
            head: HeadLimits::default(),
            protocols: Protocols::default(),
            http2: Http2::default(),
            tls: None,
            proxy_protocol: None,
            redirect_bytes_max: None,
            probes: None,
        }
    }
}

/// The versions of HTTP that a listener accepts. Over TLS the peer selects one by ALPN (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.1 and HTTP/1.0.
    pub http1: bool,
    /// HTTP/2 over TLS.
    pub http2: bool,
    /// HTTP/2 in cleartext, by prior knowledge (RFC 9113 §3.3).
    pub http2_clear: bool,
    /// HTTP/2 in cleartext by `Upgrade: h2c` (RFC 7540 §3.2). Off unless configured: a proxy that forwards the field
    /// unseen lets requests bypass its own rules.
    pub http2_upgrade: bool,
}

impl Protocols {
    /// Returns whether a cleartext connection can be served; HTTP/2 alone may need TLS.
    #[must_use]
    pub fn allow_cleartext(self) -> bool {
        self.http1 || self.http2_clear
    }

    /// Returns the versions that either of the two accepts.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            http1: self.http1 | other.http1,
            http2: self.http2 | other.http2,
            http2_clear: self.http2_clear | other.http2_clear,
            http2_upgrade: self.http2_upgrade | other.http2_upgrade,
        }
    }

    /// Returns whether `others` includes every one of these versions, `http2_upgrade` not considered.
    #[must_use]
    pub fn are_subset_of(self, others: Self) -> bool {
        self.http1 <= others.http1 && self.http2 <= others.http2 && self.http2_clear <= others.http2_clear
    }
}

impl Default for Protocols {
    fn default() -> Self {
        Self { http1: true, http2: true, http2_clear: true, http2_upgrade: false }
    }
}

/// HTTP/2 settings and the limits that they impose on peers. A configuration lists those that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http2 {
    /// Concurrent streams of a peer, SETTINGS_MAX_CONCURRENT_STREAMS; default 128, at most 4096.
    pub streams_max: u32,
    /// Unread bytes of one request's body, SETTINGS_INITIAL_WINDOW_SIZE; default 1 MiB, 1 to 2^31-1. Limits an
    /// upload to this many bytes per round trip.
    pub stream_window_bytes: u32,
    /// Unread bytes of all bodies of a connection; default 2 MiB, at least 64 KiB - 1, at most 2^31-1. Bounds the
    /// memory that slow readers of a connection can pin.
    pub connection_window_bytes: u32,
    /// Bytes of the peer's HPACK table, SETTINGS_HEADER_TABLE_SIZE; default 4096, which is the protocol's initial
    /// value, at most 64 KiB - 1.
    pub header_table_bytes: u32,
    /// Bytes of our own HPACK table, at most the size that the peer allows; default 4096, at most 64 KiB - 1.
    pub encoder_table_bytes: u32,
}

impl Http2 {
    /// Returns the first setting that is out of its range: its name, its value, and the range.
    pub fn out_of_range(&self) -> Option<(&'static str, u32, RangeInclusive<u32>)> {
        const WINDOW_MAX: u32 = (1 << 31) - 1;
        const TABLE_MAX: u32 = (1 << 16) - 1;
        let settings = [
            ("streams_max", self.streams_max, 1..=4096),
            // Without a window no upload could begin.
            ("stream_window_bytes", self.stream_window_bytes, 1..=WINDOW_MAX),
            ("connection_window_bytes", self.connection_window_bytes, (1 << 16) - 1..=WINDOW_MAX),
            ("header_table_bytes", self.header_table_bytes, 0..=TABLE_MAX),
            ("encoder_table_bytes", self.encoder_table_bytes, 0..=TABLE_MAX),
        ];
        settings.into_iter().find(|(_, value, range)| !range.contains(value))
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams_max: 128,
            stream_window_bytes: 1024 * 1024,
            connection_window_bytes: 2 * 1024 * 1024,
            header_table_bytes: 4096,
            encoder_table_bytes: 4096,
        }
    }
}

/// Time limits for a peer; a connection that exceeds one is closed. [`Duration::MAX`] is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a head to its last; 10 s.
    pub head: Duration,
    /// Of a request's body: between two arrivals; 60 s.
    pub body: TransferLimit,
    /// Of a response: while output is queued and the peer accepts none of it; 60 s.
    pub write: TransferLimit,
    /// Idle time between requests; 300 s.
    pub keep_alive: Duration,
    /// After the last response, for the peer to read it and close; 2 s.
    pub linger: Duration,
}

impl Timeouts {
    /// The longest limit, a century. A time cannot be added to a longer one, such as [`Duration::MAX`].
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

    /// Returns these limits, each of them a century at most.
    pub fn bounded(self) -> Self {
        let bounded = |limit: Duration| limit.min(Self::LONGEST);
        let of_transfer = |limit: TransferLimit| TransferLimit { idle: bounded(limit.idle), ..limit };
        Self {
            head: bounded(self.head),
            body: of_transfer(self.body),
            write: of_transfer(self.write),
            keep_alive: bounded(self.keep_alive),
            linger: bounded(self.linger),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: TransferLimit::default(),
            write: TransferLimit::default(),
            keep_alive: Duration::from_secs(300),
            linger: Duration::from_secs(2),
        }
    }
}

/// The time limit of one direction of an exchange's content. Only the time counts in which the peer has to send or to
/// accept bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferLimit {
    /// The time without progress; with a minimum rate, how far the peer may fall behind that rate.
    pub idle: Duration,
    /// Bytes per second that the peer has to send or to accept on average. `None`: any progress will do.
    pub bytes_per_second: Option<NonZeroU64>,
}

impl Default for TransferLimit {
    /// 60 s, without a rate.
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), bytes_per_second: None }
    }
}

impl TransferLimit {
    /// Returns the time in which the peer has to transfer `bytes` bytes and the next one; `None` without a rate.
    pub fn allowance(&self, bytes: u64) -> Option<Duration> {
        // Nanoseconds of a u64 of bytes fit in 128 bits, and a time beyond the clock's range is none.
        let credit = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second?.get());
        Some(self.idle.saturating_add(Duration::from_nanos(u64::try_from(credit).unwrap_or(u64::MAX))))
    }
}

/// Size limits of a request's head and framing, in bytes unless noted. A configuration lists those that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadLimits {
    /// The whole head; 32 KiB. A larger one gets 431.
    pub head_bytes_max: usize,
    /// Field lines in a head; 100. More get 431.
    pub fields_max: usize,
    /// The request target; a longer one gets 414. `None`: 16 KiB, or as many bytes as a head that may have more than 32
    /// KiB.
    pub target_bytes_max: Option<usize>,
    /// The extensions of one chunk; 4 KiB.
    pub chunk_extension_line_bytes_max: usize,
    /// The extensions of all chunks of a body; 16 KiB.
    pub chunk_extension_bytes_max: usize,
    /// The trailer section; 8 KiB.
    pub trailers_bytes_max: usize,
    /// Bytes of a body that are read and discarded if no handler takes it; 256 KiB. The connection closes if more
    /// follow.
    pub discard_bytes_max: u64,
}

/// The default of [`HeadLimits::head_bytes_max`].
const HEAD_BYTES_MAX: usize = 32 * 1024;

impl HeadLimits {
    /// Returns the first limit that is out of its range: its name, its value, and the range.
    #[must_use]
    pub fn out_of_range(&self) -> Option<(&'static str, usize, RangeInclusive<usize>)> {
        // A connection reads into a block of this size, and a worker keeps many of them.
        const BLOCK_MAX: usize = 64 * 1024 * 1024;
        // Handlers add fields, and a map holds 65 535.
        const FIELDS_MAX: usize = 60_000;
        // A parser counts these bytes with 16 bits.
        const EXTENSION_MAX: usize = u16::MAX as usize - 1;
        let limits = [
            ("head_bytes_max", self.head_bytes_max, 1..=BLOCK_MAX),
            ("fields_max", self.fields_max, 1..=FIELDS_MAX),
            ("chunk_extension_line_bytes_max", self.chunk_extension_line_bytes_max, 0..=EXTENSION_MAX),
            ("chunk_extension_bytes_max", self.chunk_extension_bytes_max, 0..=EXTENSION_MAX),
            ("trailers_bytes_max", self.trailers_bytes_max, 2..=BLOCK_MAX),
        ];
        limits.into_iter().find(|(_, value, range)| !range.contains(value))
    }

    /// Returns the upper bound of a request target in bytes.
    #[must_use]
    pub fn target_bytes_max(&self) -> usize {
        let larger = Some(self.head_bytes_max).filter(|bytes| *bytes > HEAD_BYTES_MAX);
        self.target_bytes_max.or(larger).unwrap_or(16 * 1024)
    }
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: HEAD_BYTES_MAX,
            fields_max: 100,
            target_bytes_max: None,
            chunk_extension_line_bytes_max: 4 * 1024,
            chunk_extension_bytes_max: 16 * 1024,
            trailers_bytes_max: 8 * 1024,
            discard_bytes_max: 256 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4291 §2.5.5.2: a socket for both families reports IPv4 peers as IPv6 addresses. Operators search logs for the
    // IPv4 address. RFC 4007 §11: a link-local address is unique only with its zone.
    #[test]
    fn logs_show_peers() {
        let shown = |peer: &str| {
            let (peer, local) = (peer.parse().unwrap(), "[::1]:443".parse().unwrap());
            Endpoints::Ip { peer, local }.to_string()
        };
        assert_eq!(shown("[::ffff:192.0.2.7]:80"), "192.0.2.7:80");
        assert_eq!(shown("[2001:db8::7]:80"), "[2001:db8::7]:80");
        assert_eq!(shown("192.0.2.7:80"), "192.0.2.7:80");
        assert_eq!(shown("[fe80::7%2]:80"), "[fe80::7%2]:80");
    }
}
