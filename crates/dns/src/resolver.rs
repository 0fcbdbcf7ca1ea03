//! A stub resolver: it queries recursive servers, in the order and with the search list of the system.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::order::{sort_addresses, sort_services};
use crate::query::{QueryError, exchange_tcp, exchange_within, question};
use crate::system::{HOSTS, RESOLV_CONF, Settings, hosts};

/// The longest name in text form, without the final dot (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// Records of one answer that are used.
const RECORDS_MAX: usize = 1024;
/// The pause before the addresses of the second family of a server's name are tried (RFC 8305 §5).
const FALLBACK_DELAY: Duration = Duration::from_millis(300);
/// How long the addresses of one family wait for those of the other (RFC 8305 §3). Longer than there, because a set of
/// upstreams should have all of them; a server that never answers one kind of question must not take all the time of a
/// request.
const RESOLUTION_DELAY: Duration = Duration::from_secs(1);

/// A server to query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DnsServer {
    /// `host:port`. A host that is not an address is resolved by the system.
    pub address: String,
    /// Whether it is queried over TCP from the start.
    pub is_tcp: bool,
    /// The family of the address to use; `Both` for any.
    pub families: Families,
}

/// Families of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Families {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

impl Families {
    /// Returns whether the address is of one of the families.
    pub fn has(self, ip: IpAddr) -> bool {
        match self {
            Self::Both => true,
            Self::Ipv4 => ip.is_ipv4(),
            Self::Ipv6 => ip.is_ipv6(),
        }
    }
}

/// A service of a name (RFC 2782).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The host's name, with the dot at its end.
    pub target: String,
    /// The port.
    pub port: u16,
    /// Clients use the lowest that they can reach.
    pub priority: u16,
    /// The share among services of one priority.
    pub weight: u16,
}

/// The reason why a lookup has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum LookupError {
    /// This text is not a DNS name.
    Name(String),
    /// The name does not exist, or has no records of the type.
    NotFound(String),
    /// A server answered with this response code.
    Code(String, String),
    /// The server at this address gave no usable answer.
    Query(String, QueryError),
    /// The address of the server is unknown.
    DnsServer(String),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "found '{}', expected a DNS name", name.escape_debug()),
            Self::NotFound(name) => write!(f, "found no records of {name}"),
            Self::Code(name, code) => write!(f, "a server answered {code} for {name}"),
            Self::Query(server, error) => write!(f, "querying {server}: {error}"),
            Self::DnsServer(server) => write!(f, "the address of the server {server} is unknown"),
        }
    }
}

impl std::error::Error for LookupError {}

/// Sends queries to DNS servers. One resolver is for one lookup: it reads the system's settings when it is made.
#[derive(Debug)]
pub struct Resolver {
    settings: Settings,
    hosts: String,
    /// Servers in place of the system's; with them `settings.servers` is empty.
    servers: Vec<DnsServer>,
    dial_timeout: Option<Duration>,
    fallback_delay: Option<Duration>,
    random: u64,
}

impl Resolver {
    /// Reads the system's settings; this may block. `random` is the seed of all choices.
    pub fn of_system(random: u64) -> Self {
        // A file that is absent means its defaults.
        let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
        let hosts = std::fs::read_to_string(HOSTS).unwrap_or_default();
        Self {
            settings: Settings::parse(&text).with_default_server(),
            hosts,
            servers: Vec::new(),
            dial_timeout: None,
            fallback_delay: Some(FALLBACK_DELAY),
            random,
        }
    }

    /// Replaces the system's servers. The first one is chosen at random; the others are queried if it does not answer.
    #[must_use]
    pub fn with_servers(mut self, servers: Vec<DnsServer>) -> Self {
        self.settings.servers.clear();
        self.servers = servers;
        self
    }

    /// Sets the limit for a connection to a server over TCP, and the pause before the second family of a server's
    /// addresses is tried; `None` for the pause tries one family after the other.
    #[must_use]
    pub fn with_limits(mut self, dial_timeout: Option<Duration>, fallback_delay: Option<Duration>) -> Self {
        (self.dial_timeout, self.fallback_delay) = (dial_timeout, fallback_delay);
        self
    }

    /// Returns the addresses of a name, at least one, in the order in which to use them. The system's hosts come before
    /// DNS.
    ///
    /// # Errors
    /// If there is none.
    pub async fn addresses(mut self, name: &str, families: Families) -> Result<Vec<IpAddr>, LookupError> {
        if let Ok(ip) = name.parse() {
            return if families.has(ip) { Ok(vec![ip]) } else { Err(LookupError::NotFound(name.to_owned())) };
        }
        let mut found = hosts(&self.hosts, name);
        found.retain(|ip| families.has(*ip));
        if found.is_empty() {
            found = self.addresses_by_dns(name, families).await?;
        }
        sort_addresses(&mut found);
        Ok(found)
    }

    async fn addresses_by_dns(&mut self, name: &str, families: Families) -> Result<Vec<IpAddr>, LookupError> {
        let mut last_error = LookupError::NotFound(name.to_owned());
        for full in self.full_names(name)? {
            let servers = self.servers_in_order();
            let answers = match families {
                Families::Both => self.query_both(&full, &servers).await,
                Families::Ipv4 => [Some(self.query(&full, RecordType::A, &servers).await), None],
                Families::Ipv6 => [Some(self.query(&full, RecordType::AAAA, &servers).await), None],
            };
            let mut found = Vec::new();
            for answer in answers.into_iter().flatten() {
                // One family may fail if the other one is there.
                match answer {
                    Ok(answer) => found.extend(answer.answers.iter().filter_map(|record| match &record.data {
                        RData::A(ip) => Some(IpAddr::from(ip.0)),
                        RData::AAAA(ip) => Some(IpAddr::from(ip.0)),
                        _ => None,
                    })),
                    Err(LookupError::NotFound(_)) => {}
                    Err(error) => last_error = error,
                }
            }
            found.retain(|ip| families.has(*ip));
            found.truncate(RECORDS_MAX);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Err(last_error)
    }

    /// Queries both families at the same time. Once one of them has addresses, the other gets only the resolution
    /// delay; `None` if that is not enough.
    async fn query_both(&self, name: &Name, servers: &[DnsServer]) -> [Option<Result<Message, LookupError>>; 2] {
        let mut v4 = std::pin::pin!(self.query(name, RecordType::A, servers));
        let mut v6 = std::pin::pin!(self.query(name, RecordType::AAAA, servers));
        let (is_v4, first, second): (_, _, Pin<&mut dyn Future<Output = _>>) = tokio::select! {
            v4 = v4.as_mut() => (true, v4, v6),
            v6 = v6.as_mut() => (false, v6, v4),
        };
        let second = match first {
            Ok(_) => tokio::time::timeout(RESOLUTION_DELAY, second).await.ok(),
            Err(_) => Some(second.await),
        };
        // In a fixed order, so that the same records are the same answer.
        if is_v4 { [Some(first), second] } else { [second, Some(first)] }
    }

    /// Returns the services of a name, at least one, in the order in which to use them.
    ///
    /// # Errors
    /// If there is none.
    pub async fn services(mut self, name: &str) -> Result<Vec<Service>, LookupError> {
        let mut last_error = LookupError::NotFound(name.to_owned());
        for full in self.full_names(name)? {
            let servers = self.servers_in_order();
            let answer = match self.query(&full, RecordType::SRV, &servers).await {
                Ok(answer) => answer,
                Err(LookupError::NotFound(_)) => continue,
                Err(error) => {
                    last_error = error;
                    continue;
                }
            };
            let services = answer.answers.iter().filter_map(|record| match &record.data {
                // RFC 2782: with the target "." the service is not available at this domain.
                RData::SRV(service) if !service.target.is_root() => Some(Service {
                    target: service.target.to_ascii(),
                    port: service.port,
                    priority: service.priority,
                    weight: service.weight,
                }),
                _ => None,
            });
            let mut services: Vec<_> = services.take(RECORDS_MAX).collect();
            if !services.is_empty() {
                sort_services(&mut services, |below| self.below(below));
                return Ok(services);
            }
        }
        Err(last_error)
    }

    /// The absolute names that a name may mean, in the order in which to query them (resolv.conf(5), `ndots`).
    fn full_names(&self, name: &str) -> Result<Vec<Name>, LookupError> {
        let read = |text: &str| -> Result<Name, LookupError> {
            let mut name = Name::from_ascii(text).map_err(|_| LookupError::Name(text.to_owned()))?;
            name.set_fqdn(true);
            Ok(name)
        };
        if name.trim_end_matches('.').is_empty() || name.trim_end_matches('.').len() > NAME_BYTES_MAX {
            return Err(LookupError::Name(name.to_owned()));
        }
        let own = read(name)?;
        if name.ends_with('.') {
            return Ok(vec![own]);
        }
        let searched = self.settings.search.iter().map(|domain| format!("{name}.{}", domain.trim_matches('.')));
        // A name that the search makes too long is left out.
        let mut names: Vec<_> = searched.filter_map(|name| read(&name).ok()).collect();
        let has_dots = name.bytes().filter(|&byte| byte == b'.').count() >= self.settings.ndots;
        names.insert(if has_dots { 0 } else { names.len() }, own);
        Ok(names)
    }

    /// Queries the servers in turn until one has an answer.
    async fn query(&self, name: &Name, kind: RecordType, servers: &[DnsServer]) -> Result<Message, LookupError> {
        let query = question(name, kind);
        let sent = query.to_vec().map_err(|_| LookupError::Name(name.to_ascii()))?;
        let mut last_error = LookupError::NotFound(name.to_ascii());
        for _ in 0..self.settings.attempts {
            for server in servers {
                match self.exchange(server, &sent).await {
                    Ok(answer) => match answer.response_code {
                        ResponseCode::NoError if answer.answers.iter().any(|it| it.record_type() == kind) => {
                            return Ok(answer);
                        }
                        // Both are final: all servers have the same answer.
                        ResponseCode::NoError | ResponseCode::NXDomain => {
                            return Err(LookupError::NotFound(name.to_ascii()));
                        }
                        code => last_error = LookupError::Code(name.to_ascii(), code.to_string()),
                    },
                    Err(error) => last_error = error,
                }
            }
        }
        Err(last_error)
    }

    fn servers_in_order(&mut self) -> Vec<DnsServer> {
        if self.servers.is_empty() {
            let of_system = self.settings.servers.iter();
            return of_system
                .map(|address| DnsServer { address: address.to_string(), is_tcp: false, families: Families::Both })
                .collect();
        }
        let mut servers = self.servers.clone();
        let first = self.below(servers.len() as u32) as usize;
        servers.rotate_left(first);
        servers
    }

    async fn exchange(&self, server: &DnsServer, sent: &[u8]) -> Result<Message, LookupError> {
        let known = match server.address.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => tokio::net::lookup_host(&server.address)
                .await
                .map_err(|_| LookupError::DnsServer(server.address.clone()))?
                .collect(),
        };
        let known: Vec<_> = known.into_iter().filter(|address| server.families.has(address.ip())).collect();
        let is_v4 = known.first().ok_or_else(|| LookupError::DnsServer(server.address.clone()))?.is_ipv4();
        let (first, second): (Vec<_>, Vec<_>) = known.into_iter().partition(|address| address.is_ipv4() == is_v4);
        let query = |addresses: Vec<SocketAddr>| self.query_addresses(server, addresses, sent);
        let outcome = match self.fallback_delay.filter(|_| !second.is_empty()) {
            None => query(first.into_iter().chain(second).collect()).await,
            Some(delay) => race(query(first), query(second), delay).await,
        };
        outcome.map_err(|error| LookupError::Query(server.address.clone(), error))
    }

    async fn query_addresses(
        &self,
        server: &DnsServer,
        addresses: Vec<SocketAddr>,
        sent: &[u8],
    ) -> Result<Message, QueryError> {
        let mut last_error = QueryError::Timeout;
        for address in addresses {
            let timeout = self.settings.timeout;
            let outcome = if server.is_tcp {
                exchange_tcp(address, sent, timeout, self.dial_timeout).await
            } else {
                exchange_within(address, sent, timeout).await
            };
            match outcome {
                Ok((message, _)) => return Ok(message),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Returns a random number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        // Knuth's linear congruential generator; its upper bits are good enough for the order of servers.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) % u64::from(end.max(1))) as u32
    }
}

/// The result of the first of two that succeeds. The second one begins after `delay`, or when the first has failed.
async fn race<T, E>(
    first: impl Future<Output = Result<T, E>>,
    second: impl Future<Output = Result<T, E>>,
    delay: Duration,
) -> Result<T, E> {
    let mut first = std::pin::pin!(first);
    match tokio::time::timeout(delay, first.as_mut()).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(_)) => return second.await,
        Err(_) => {}
    }
    let mut second = std::pin::pin!(second);
    tokio::select! {
        done = first.as_mut() => match done {
            Ok(done) => Ok(done),
            Err(_) => second.await,
        },
        done = second.as_mut() => match done {
            Ok(done) => Ok(done),
            Err(_) => first.await,
        },
    }
}

#[cfg(test)]
mod tests;
