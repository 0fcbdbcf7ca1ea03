//! What a configuration says of listeners: plain records, read once when the engine builds what runs.
//!
//! - `tls`: how connections are protected

mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::route::ServerId;

pub use tls::{ClientAuthentication, ClientAuthenticationMode, TlsPolicy, TlsSpec, TlsVersion};

/// Where a server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// A port on every address, IPv6 and IPv4, or one address.
    pub host: Option<std::net::IpAddr>,
    /// TCP port; 0 lets the kernel choose (tests).
    pub port: u16,
}

impl ListenAddress {
    /// The socket addresses to try, in order: without a host the IPv6 wildcard, which takes IPv4 too, then IPv4's own.
    pub fn candidates(self) -> impl Iterator<Item = SocketAddr> {
        let any6 = std::net::IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);
        let any4 = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let hosts = match self.host {
            Some(host) => [Some(host), None],
            None => [Some(any6), Some(any4)],
        };
        hosts.into_iter().flatten().map(move |host| SocketAddr::new(host, self.port))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Some(host) => SocketAddr::new(host, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// One listener as it was written.
#[derive(Debug, Clone)]
pub struct ListenerSpec {
    /// Where.
    pub address: ListenAddress,
    /// Which server's routes its requests take.
    pub server: ServerId,
    /// How long peers may take.
    pub timeouts: Timeouts,
    /// How large a head may be.
    pub head: HeadLimits,
    /// Which versions it speaks.
    pub protocols: Protocols,
    /// What HTTP/2 tells its peers.
    pub http2: Http2,
    /// How it protects its connections; `None`: not at all.
    pub tls: Option<TlsSpec>,
}

impl ListenerSpec {
    /// A listener in the clear with all defaults.
    #[must_use]
    pub fn new(address: ListenAddress, server: ServerId) -> Self {
        Self {
            address,
            server,
            timeouts: Timeouts::default(),
            head: HeadLimits::default(),
            protocols: Protocols::default(),
            http2: Http2::default(),
            tls: None,
        }
    }
}

/// Which versions of HTTP a listener speaks. Over TLS the peer chooses among them by ALPN (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.1 and HTTP/1.0.
    pub http1: bool,
    /// HTTP/2 over TLS.
    pub http2: bool,
    /// HTTP/2 in the clear, by prior knowledge (RFC 9113 §3.3).
    pub http2_clear: bool,
    /// HTTP/2 in the clear by `Upgrade: h2c` (RFC 7540 §3.2): only where a configuration asks for it, because proxies that
    /// pass the field on unseen open a way around their own rules.
    pub http2_upgrade: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { http1: true, http2: true, http2_clear: true, http2_upgrade: false }
    }
}

/// What HTTP/2 tells its peers, and holds them to. A configuration names those that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http2 {
    /// Streams that a peer may have open at once, SETTINGS_MAX_CONCURRENT_STREAMS; 128, at most 4096.
    pub streams_max: u32,
    /// Octets of one request's body that may be under way unread, SETTINGS_INITIAL_WINDOW_SIZE; 1 MiB, at most 2^31-1. Bounds an
    /// upload's rate by this much a round trip.
    pub stream_window_bytes: u32,
    /// The same for all bodies of a connection together; 2 MiB, at least 64 KiB - 1, at most 2^31-1. Bounds what a connection's
    /// slow readers may pin.
    pub connection_window_bytes: u32,
    /// Octets of the peer's HPACK table, SETTINGS_HEADER_TABLE_SIZE; 4096, which is what a peer may assume before it was told,
    /// at most 64 KiB - 1.
    pub header_table_bytes: u32,
    /// Octets of our own HPACK table, at most what the peer allows; 4096, at most 64 KiB - 1.
    pub encoder_table_bytes: u32,
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

/// How long a peer may take for each thing before its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From a head's first octet to its last; 10 s.
    pub head: Duration,
    /// Between two arrivals of body octets; 60 s.
    pub body_idle: Duration,
    /// While output waits and the peer takes none of it; 60 s.
    pub write_idle: Duration,
    /// Between requests; 300 s.
    pub keep_alive: Duration,
    /// After the last answer, for the peer to see it and close; 2 s.
    pub linger: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body_idle: Duration::from_secs(60),
            write_idle: Duration::from_secs(60),
            keep_alive: Duration::from_secs(300),
            linger: Duration::from_secs(2),
        }
    }
}

/// How large the parts of a request's head and framing may be, in octets unless named otherwise. A configuration names
/// those that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadLimits {
    /// The whole head; 32 KiB. Beyond: 431.
    pub head_bytes_max: usize,
    /// Field lines in a head; 100. Beyond: 431.
    pub fields_max: usize,
    /// The request target; 8 KiB. Beyond: 414.
    pub target_bytes_max: usize,
    /// Extensions of one chunk; 4 KiB.
    pub chunk_extension_line_bytes_max: usize,
    /// Extensions of all chunks of a body; 16 KiB.
    pub chunk_extension_bytes_max: usize,
    /// The trailer section; 8 KiB.
    pub trailers_bytes_max: usize,
    /// What is read and thrown away of a body that no handler wanted; 256 KiB. Beyond: the connection closes.
    pub discard_bytes_max: u64,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 * 1024,
            fields_max: 100,
            target_bytes_max: 8 * 1024,
            chunk_extension_line_bytes_max: 4 * 1024,
            chunk_extension_bytes_max: 16 * 1024,
            trailers_bytes_max: 8 * 1024,
            discard_bytes_max: 256 * 1024,
        }
    }
}
