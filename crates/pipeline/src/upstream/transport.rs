//! How calls are carried: versions, TLS, limits. Plain records, which the engine acts on.

use std::sync::Arc;
use std::time::Duration;

/// How the calls to an upstream are carried. Made at load, shared by all workers.
#[derive(Debug, Clone)]
pub struct Transport {
    /// Which versions of HTTP are spoken.
    pub versions: Versions,
    /// `None`: in the clear.
    pub tls: Option<Arc<TlsClient>>,
    /// How long looking up the address, connecting and the TLS handshake may take together; 3 s.
    pub connect_timeout: Duration,
    /// How long the answer's head may take, from when the request was written; `None` is as long as it takes.
    pub head_timeout: Option<Duration>,
    /// How long the upstream may send nothing of a body that is awaited; `None` is as long as it takes.
    pub read_timeout: Option<Duration>,
    /// How long the upstream may take nothing of what is to be sent; `None` is as long as it takes.
    pub write_timeout: Option<Duration>,
    /// How long a connection is kept without a call; 2 min. Zero keeps none.
    pub idle_timeout: Duration,
    /// Connections that are kept without a call, each worker for itself; 32.
    pub idle_max: usize,
    /// Connections that may be open, each worker for itself; `None` is as many as it takes. Calls beyond wait for one.
    pub connections_max: Option<usize>,
    /// Octets of an answer's head at most; 32 KiB.
    pub head_octets_max: u32,
    /// Octets of its trailers at most; 8 KiB.
    pub trailers_octets_max: u32,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            versions: Versions::Http1,
            tls: None,
            connect_timeout: Duration::from_secs(3),
            head_timeout: None,
            read_timeout: None,
            write_timeout: None,
            idle_timeout: Duration::from_secs(120),
            idle_max: 32,
            connections_max: None,
            head_octets_max: 32 * 1024,
            trailers_octets_max: 8 * 1024,
        }
    }
}

/// Which versions of HTTP are spoken to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Versions {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; in the clear by prior knowledge (RFC 9113 §3.3).
    Http2,
    /// Whichever the upstream chooses by ALPN, HTTP/2 first; in the clear HTTP/1.1.
    Negotiated,
}

/// What is asked of an upstream's certificate, and shown to it.
#[derive(Debug, Clone, Default)]
pub struct TlsClient {
    /// The name that is asked for and that the certificate has to be for; `None` is the address's host.
    pub server_name: Option<String>,
    /// Who may have signed it.
    pub roots: Roots,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// Our own certificate chain and its private key (PKCS #8, SEC 1 or PKCS #1), DER.
    pub certificate: Option<(Vec<Vec<u8>>, Vec<u8>)>,
}

/// Which authorities are believed.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// Those that the system trusts.
    #[default]
    System,
    /// These certificates, DER.
    These(Vec<Vec<u8>>),
}
