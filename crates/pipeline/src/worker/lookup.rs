//! Questions to DNS that the system's resolver has no call for: services, and other servers.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The port of DNS (RFC 1035 §4.2). The crate dns has the constant too, but it needs a runtime.
const PORT: u16 = 53;

/// A question to DNS.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// The addresses of a name. An address is its own answer.
    Addresses {
        /// The name.
        name: Box<str>,
        /// The families of addresses to return.
        families: Families,
    },
    /// The services of a name (SRV, RFC 2782).
    Services {
        /// The full name, such as `_http._tcp.example.com`.
        name: Box<str>,
    },
}

/// The answer to a [`Question`]: records in the order in which to use them, at least one.
pub type LookupAnswer = Result<Vec<DnsRecord>, LookupError>;

impl Question {
    /// Returns the name that is looked up.
    pub fn name(&self) -> &str {
        match self {
            Self::Addresses { name, .. } | Self::Services { name } => name,
        }
    }
}

/// Families of addresses. The engine converts them to those of the crate dns, which needs a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Families {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// A record of an answer, in the order in which clients use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsRecord {
    /// An address of the name.
    Address(IpAddr),
    /// A host that offers the service.
    Service {
        /// The host's name, with the dot at its end.
        target: Box<str>,
        /// The port.
        port: u16,
    },
}

/// DNS servers to query in place of the system's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resolver {
    /// The servers, at least one. The first one is chosen at random, the others are queried if it does not answer.
    pub servers: Box<[ResolverServer]>,
    /// Time limit for a connection to a server over TCP; `None` is no limit of its own.
    pub dial_timeout: Option<Duration>,
    /// The pause before the second family of a server's addresses is tried (RFC 8305); `None` tries it only after the
    /// first has failed.
    pub fallback_delay: Option<Duration>,
}

/// A DNS server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolverServer {
    /// `host:port`. The system resolves a host that is not an address.
    pub address: Box<str>,
    /// Whether it is queried over TCP from the start.
    pub is_tcp: bool,
    /// The families of its addresses to use.
    pub families: Families,
}

impl ResolverServer {
    /// Parses `[NETWORK/]HOST[:PORT]`; the network is UDP and the port 53 by default.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a DNS server such as 192.0.2.1, tcp/192.0.2.1:53 or [2001:db8::1]:53";
        let (network, rest) = text.split_once('/').unwrap_or(("udp", text));
        let (is_tcp, families) = match network {
            "udp" => (false, Families::Both),
            "udp4" => (false, Families::Ipv4),
            "udp6" => (false, Families::Ipv6),
            "tcp" => (true, Families::Both),
            "tcp4" => (true, Families::Ipv4),
            "tcp6" => (true, Families::Ipv6),
            _ => return Err(EXPECTED),
        };
        let bare = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(rest);
        if let Ok(ip) = bare.parse() {
            return Ok(Self { address: SocketAddr::new(ip, PORT).to_string().into(), is_tcp, families });
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|&port: &u16| port > 0).ok_or(EXPECTED)?),
            None => (rest, PORT),
        };
        let address = format!("{host}:{port}");
        let is_host = if host.starts_with('[') {
            address.parse::<SocketAddr>().is_ok()
        } else {
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"[]:/@{}\"".contains(&byte))
        };
        if is_host { Ok(Self { address: address.into(), is_tcp, families }) } else { Err(EXPECTED) }
    }
}

/// Why a lookup has no answer, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupError(Box<str>);

impl LookupError {
    /// Creates the error from its text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for LookupError {}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, UpstreamResolver: a network address with the network udp and the port 53 by default.
    #[test]
    fn server_addresses() {
        for (text, want) in [
            ("192.0.2.1", Some(("192.0.2.1:53", false))),
            ("udp/192.0.2.1:5353", Some(("192.0.2.1:5353", false))),
            ("tcp/192.0.2.1", Some(("192.0.2.1:53", true))),
            ("2001:db8::1", Some(("[2001:db8::1]:53", false))),
            ("[2001:db8::1]:5353", Some(("[2001:db8::1]:5353", false))),
            ("tcp6/dns.test", Some(("dns.test:53", true))),
            ("", None),
            ("a:0", None),
            ("a:53-54", None),
            ("unix//run/dns", None),
            ("a b", None),
            ("[::g]:53", None),
        ] {
            let found = ResolverServer::parse(text).ok();
            assert_eq!(found.as_ref().map(|it| (&*it.address, it.is_tcp)), want, "{text}");
        }
    }
}
