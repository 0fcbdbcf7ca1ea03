//! The two socket addresses of a connection, in little space.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

/// The two socket addresses of a connection. IPv6 addresses are boxed, so that the many idle connections are small.
#[derive(Debug)]
pub(super) enum AddressPair {
    Four { peer: SocketAddrV4, local: SocketAddrV4 },
    Six(Box<(SocketAddr, SocketAddr)>),
}

impl AddressPair {
    /// Converts IPv4-mapped IPv6 addresses, which a socket for both families reports, back to IPv4.
    pub(super) fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        let canonical = |end: SocketAddr| match end.ip().to_canonical() {
            IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, end.port())),
            IpAddr::V6(_) => None,
        };
        match (canonical(peer), canonical(local)) {
            (Some(peer), Some(local)) => Self::Four { peer, local },
            _ => Self::Six(Box::new((peer, local))),
        }
    }

    pub(super) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        match self {
            Self::Four { peer, local } => ((*peer).into(), (*local).into()),
            Self::Six(ends) => **ends,
        }
    }
}
