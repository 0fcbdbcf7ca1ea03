//! The two addresses of a connection, small.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

/// The two addresses of a connection. IPv4's fit where one IPv6 address would not: there are many idle connections.
#[derive(Debug)]
pub(super) enum Ends {
    Four { peer: SocketAddrV4, local: SocketAddrV4 },
    Six(Box<(SocketAddr, SocketAddr)>),
}

impl Ends {
    /// Of a socket that listens on both families, IPv4 addresses come mapped into IPv6's; here they are their own again.
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
