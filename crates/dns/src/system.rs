//! The system's settings of DNS (`/etc/resolv.conf`), and its own hosts (`/etc/hosts`).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The port of DNS (RFC 1035 §4.2).
pub const PORT: u16 = 53;
/// The file with the system's settings.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The file with the system's own hosts.
pub(crate) const HOSTS: &str = "/etc/hosts";

/// Search domains that are used; resolv.conf(5) had the same limit.
const SEARCH_MAX: usize = 6;
/// The upper bounds of the options, as in resolv.conf(5).
const NDOTS_MAX: usize = 15;
const TIMEOUT_MAX_S: u64 = 30;
const ATTEMPTS_MAX: u32 = 5;

/// The settings of a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) search: Vec<String>,
    /// A name with at least this many dots is first queried as it is.
    pub(crate) ndots: usize,
    /// How long a server may take to answer over one transport.
    pub(crate) timeout: Duration,
    /// How often all servers are queried.
    pub(crate) attempts: u32,
}

impl Settings {
    /// Parses the text of a `resolv.conf`. Lines and options that are unknown have no effect, as in every resolver.
    pub(crate) fn parse(text: &str) -> Self {
        let mut settings =
            Self { servers: Vec::new(), search: Vec::new(), ndots: 1, timeout: Duration::from_secs(5), attempts: 2 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                // A zone index (`fe80::1%eth0`) is left out with its server.
                Some("nameserver") => {
                    settings.servers.extend(words.next().and_then(|ip| ip.parse().ok()).map(at_port));
                }
                // The last of the two lines applies.
                Some("domain") => settings.search = words.take(1).map(str::to_owned).collect(),
                Some("search") => settings.search = words.take(SEARCH_MAX).map(str::to_owned).collect(),
                Some("options") => words.for_each(|option| settings.set(option)),
                _ => {}
            }
        }
        settings
    }

    /// Uses the server of this machine if there is none (resolv.conf(5)).
    pub(crate) fn with_default_server(mut self) -> Self {
        if self.servers.is_empty() {
            self.servers.push(at_port(IpAddr::from([127, 0, 0, 1])));
        }
        self
    }

    fn set(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else { return };
        let Ok(value) = value.parse::<u32>() else { return };
        match name {
            "ndots" => self.ndots = NDOTS_MAX.min(value as usize),
            "timeout" => self.timeout = Duration::from_secs(u64::from(value).clamp(1, TIMEOUT_MAX_S)),
            "attempts" => self.attempts = value.clamp(1, ATTEMPTS_MAX),
            _ => {}
        }
    }
}

/// Returns the servers in the text of a `resolv.conf`; there may be none.
pub fn servers(text: &str) -> Vec<SocketAddr> {
    Settings::parse(text).servers
}

fn at_port(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, PORT)
}

/// Returns the addresses of a name in the text of a `hosts` file, in its order.
pub(crate) fn hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.trim_end_matches('.');
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(ip) = words.next().and_then(|ip| ip.parse().ok()) else { continue };
        if words.any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(name)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // resolv.conf(5).
    #[test]
    fn settings() {
        let parsed = Settings::parse(
            "# nameserver 192.0.2.9\nnameserver 192.0.2.1\nnameserver\t2001:db8::1\nnameserver x\ndomain a.test\n\
             search svc.cluster.local cluster.local\noptions ndots:5 timeout:2 attempts:3 rotate ndots:x\n",
        );
        let want = Settings {
            servers: vec!["192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()],
            search: vec!["svc.cluster.local".to_owned(), "cluster.local".to_owned()],
            ndots: 5,
            timeout: Duration::from_secs(2),
            attempts: 3,
        };
        assert_eq!(parsed, want);
        let bounded = Settings::parse("options ndots:99 timeout:999 attempts:0");
        assert_eq!((bounded.ndots, bounded.timeout.as_secs(), bounded.attempts), (15, 30, 1));
        assert_eq!(bounded.with_default_server().servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    // hosts(5): an address, and its names without regard to case.
    #[test]
    fn names_of_hosts() {
        let text = "127.0.0.1 localhost a # b\n::1\tLOCALHOST\nx localhost\n127.0.0.1 localhost.\n";
        assert_eq!(hosts(text, "localhost"), ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!(hosts(text, "a."), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        assert!(hosts(text, "b").is_empty());
    }
}
