//! The PROXY protocol of a listener: which peers report the addresses of their clients.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// The settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// Time limit for the header. After it a connection is one without a header.
    pub timeout: Duration,
    /// Peers whose header is used.
    pub allow: Vec<IpNet>,
    /// Peers that must not send a header; they come before those of `allow`.
    pub deny: Vec<IpNet>,
    /// For all other peers.
    pub fallback: ProxyPolicy,
}

/// The treatment of a connection with a header, or without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyPolicy {
    /// The header is read, and its addresses have no effect.
    Ignore,
    /// The header's addresses are those of the connection, if there is one.
    Use,
    /// A connection with a header is closed.
    Reject,
    /// As `Use`; a connection without a header is closed.
    Require,
    /// The connection is not searched for a header.
    Skip,
}

impl ProxyProtocol {
    /// Returns the policy for a peer.
    pub fn policy(&self, peer: IpAddr) -> ProxyPolicy {
        let peer = peer.to_canonical();
        let is_in = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&peer));
        if is_in(&self.deny) {
            ProxyPolicy::Reject
        } else if is_in(&self.allow) {
            ProxyPolicy::Use
        } else {
            self.fallback
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, proxy_protocol: `deny` has precedence over `allow`, and `fallback_policy` is for all other peers.
    #[test]
    fn policies() {
        let ranges = |text: &str| vec![text.parse().unwrap()];
        let protocol = ProxyProtocol {
            timeout: Duration::ZERO,
            allow: ranges("10.0.0.0/8"),
            deny: ranges("10.1.0.0/16"),
            fallback: ProxyPolicy::Skip,
        };
        for (peer, want) in [
            ("10.0.0.1", ProxyPolicy::Use),
            ("::ffff:10.0.0.1", ProxyPolicy::Use),
            ("10.1.0.1", ProxyPolicy::Reject),
            ("192.0.2.1", ProxyPolicy::Skip),
            ("::1", ProxyPolicy::Skip),
        ] {
            assert_eq!(protocol.policy(peer.parse().unwrap()), want, "{peer}");
        }
    }
}
