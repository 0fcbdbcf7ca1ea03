//! The two ends of a connection, in little space.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use causeway_pipeline::Endpoints;

/// The two ends of a connection. IPv6 addresses are boxed, so that the many idle connections are small.
#[derive(Debug)]
pub(super) enum AddressPair {
    Four {
        peer: SocketAddrV4,
        local: SocketAddrV4,
    },
    Six(Box<(SocketAddr, SocketAddr)>),
    /// The path is in the listener.
    Unix,
}

impl AddressPair {
    /// Converts IPv4-mapped IPv6 addresses, which a socket for both families reports, back to IPv4.
    pub(super) fn new(endpoints: Endpoints) -> Self {
        let (peer, local) = match endpoints {
            Endpoints::Ip { peer, local } => (peer, local),
            Endpoints::Unix(_) => return Self::Unix,
        };
        let canonical = |end: SocketAddr| match end.ip().to_canonical() {
            IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, end.port())),
            IpAddr::V6(_) => None,
        };
        match (canonical(peer), canonical(local)) {
            (Some(peer), Some(local)) => Self::Four { peer, local },
            _ => Self::Six(Box::new((peer, local))),
        }
    }

    /// `unix` is the path of the listener's Unix socket.
    pub(super) fn endpoints(&self, unix: Option<&Rc<str>>) -> Endpoints {
        match self {
            Self::Four { peer, local } => Endpoints::Ip { peer: (*peer).into(), local: (*local).into() },
            Self::Six(pair) => Endpoints::Ip { peer: pair.0, local: pair.1 },
            Self::Unix => Endpoints::Unix(unix.map_or_else(|| "".into(), Rc::clone)),
        }
    }
}
