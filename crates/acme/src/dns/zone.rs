//! The resolvers, the zone of a name, and the zone's own servers.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use causeway_dns::query::{QueryError, exchange, question};
use causeway_dns::system::{PORT, RESOLV_CONF};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::task::JoinSet;

/// Public resolvers, used like Caddy's if the system names none.
const FALLBACK: [Ipv4Addr; 4] =
    [Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(8, 8, 4, 4), Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(1, 0, 0, 1)];
/// Addresses of a zone's servers that get a query whether a name below is a zone, at the same time: a silent one takes
/// 10 s.
const PARENTS_MAX: usize = 3;
/// The first label of a challenge's record (RFC 8555 §8.4).
const USUAL_LABEL: &str = "_acme-challenge";
/// CNAME records after each other that are followed, as resolvers do.
const ALIASES_MAX: usize = 8;

/// The reason why a lookup failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ZoneError {
    /// This text is not a DNS name.
    Name(String),
    /// This server's address is unknown.
    Server(String),
    /// No resolver answered; the last one's failure.
    Resolvers(Box<dyn std::error::Error + Send + Sync>),
    /// A resolver refused to answer for this name, with this response code.
    Code(String, String),
    /// Neither this name nor one above it has an SOA record.
    NoZone(String),
    /// The zone's NS records lead to no address.
    NoServers(String),
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) => write!(f, "found '{text}', expected a DNS name"),
            Self::Server(text) => write!(f, "found '{text}', expected a DNS server's address such as 192.0.2.1:53"),
            Self::Resolvers(error) => write!(f, "no resolver answers: {error}"),
            Self::Code(name, code) => write!(f, "a resolver answered {code} for {name}"),
            Self::NoZone(name) => write!(f, "found no zone (SOA record) for {name}"),
            Self::NoServers(zone) => write!(f, "found no address of a DNS server of the zone {zone}"),
        }
    }
}

impl std::error::Error for ZoneError {}

/// Recursive resolvers, in order of preference.
#[derive(Debug)]
pub(crate) struct Resolvers {
    addresses: Vec<SocketAddr>,
    /// Whether the configuration names them. Then they, and not the zone's servers, tell whether a record is visible,
    /// as in Caddy.
    are_configured: bool,
    /// The port of the zones' own servers; another one only in tests.
    zone_port: u16,
}

impl Resolvers {
    /// The resolvers of the configuration, as `host` or `host:port`. If there are none: those of `/etc/resolv.conf`.
    pub(crate) async fn new(written: &[String]) -> Result<Self, ZoneError> {
        let mut addresses = if written.is_empty() { of_system(Path::new(RESOLV_CONF)) } else { Vec::new() };
        for server in written {
            addresses.extend(server_addresses(server).await?);
        }
        Ok(Self { addresses, are_configured: !written.is_empty(), zone_port: PORT })
    }

    /// The servers that tell whether a record is visible, each with its addresses: the configured resolvers, or the
    /// servers of the zone that contains `name`.
    pub(crate) async fn servers_to_check(&self, name: &Name) -> Result<Vec<Vec<SocketAddr>>, ZoneError> {
        if self.are_configured {
            return Ok(self.addresses.iter().map(|&server| vec![server]).collect());
        }
        self.servers(&self.zone(name).await?).await
    }

    /// Queries the resolvers in order until one has an answer. Otherwise returns the last response without one.
    async fn query(&self, name: &Name, kind: RecordType) -> Result<Message, ZoneError> {
        let mut last = Err(ZoneError::Resolvers("none is configured".into()));
        for &server in &self.addresses {
            match query_server(server, name, kind).await {
                Ok(message) if !message.answers.is_empty() => return Ok(message),
                Ok(message) => last = Ok(message),
                Err(error) if last.is_err() => {
                    last = Err(ZoneError::Resolvers(format!("{server}: {error}").into()));
                }
                Err(_) => {}
            }
        }
        last
    }

    /// Finds the zone that contains a name: the closest name at or above it with an SOA record.
    pub(crate) async fn zone(&self, name: &Name) -> Result<Name, ZoneError> {
        let mut at = name.clone();
        while !at.is_root() {
            let response = self.query(&at, RecordType::SOA).await?;
            match response.response_code {
                ResponseCode::NoError => {
                    // A CNAME cannot stand at the apex of a zone, and the SOA record after it is that of its target.
                    let aliased = response.answers.iter().any(|record| record.record_type() == RecordType::CNAME);
                    let soa = response.answers.iter().find(|record| record.record_type() == RecordType::SOA);
                    if let (Some(soa), false) = (soa, aliased) {
                        return Ok(soa.name.clone());
                    }
                }
                ResponseCode::NXDomain => {}
                code => return Err(ZoneError::Code(at.to_string(), code.to_string())),
            }
            at = at.base_name();
        }
        Err(ZoneError::NoZone(name.to_string()))
    }

    /// Finds the zone of a record that is about to be added. Configured resolvers tell later whether the record is
    /// visible, so they get no query for its name before: they would cache its absence (RFC 2308 §5). The servers of
    /// the zone above tell whether the name is a zone itself. If none of them answers, because a firewall blocks port
    /// 53 for example, a name with the usual first label counts as none, and for another one the resolvers do get the
    /// query.
    pub(crate) async fn zone_of_record(&self, name: &Name) -> Result<Name, ZoneError> {
        if self.are_configured
            && let Ok(above) = self.zone(&name.base_name()).await
        {
            let is_usual = || name.iter().next() == Some(USUAL_LABEL.as_bytes());
            match self.is_delegated(name, &above).await {
                Some(true) => return Ok(name.clone()),
                Some(false) => return Ok(above),
                None if is_usual() => return Ok(above),
                None => {}
            }
        }
        self.zone(name).await
    }

    /// Whether the servers of the zone `above` delegate a name, or have it as a zone themselves. `None`: none of them
    /// answers.
    async fn is_delegated(&self, name: &Name, above: &Name) -> Option<bool> {
        let servers = self.servers(above).await.ok()?;
        let mut queries = JoinSet::new();
        for server in servers.into_iter().flatten().take(PARENTS_MAX) {
            let name = name.clone();
            queries.spawn(async move { query_server(server, &name, RecordType::SOA).await });
        }
        while let Some(answered) = queries.join_next().await {
            let Ok(Ok(response)) = answered else { continue };
            if matches!(response.response_code, ResponseCode::NoError | ResponseCode::NXDomain) {
                let has = |records: &[Record], kind| {
                    records.iter().any(|record| record.name == *name && record.record_type() == kind)
                };
                return Some(has(&response.answers, RecordType::SOA) || has(&response.authorities, RecordType::NS));
            }
        }
        None
    }

    /// The name that the CNAME records of a name lead to, or the name itself.
    pub(crate) async fn target(&self, name: &Name) -> Result<Name, ZoneError> {
        let mut at = name.clone();
        for _ in 0..ALIASES_MAX {
            let response = self.query(&at, RecordType::CNAME).await?;
            let target = response.answers.iter().find_map(|record| match &record.data {
                RData::CNAME(target) if record.name == at => Some(target.0.clone()),
                _ => None,
            });
            let Some(target) = target else { break };
            at = target;
        }
        Ok(at)
    }

    /// The values of a name's TXT records, or of those that its CNAME records lead to.
    pub(crate) async fn texts(&self, name: &Name) -> Result<Vec<Vec<u8>>, ZoneError> {
        let response = self.query(name, RecordType::TXT).await?;
        match response.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => {}
            code => return Err(ZoneError::Code(name.to_string(), code.to_string())),
        }
        let texts = response.answers.iter().filter_map(|record| match &record.data {
            RData::TXT(text) => Some(text.txt_data.concat()),
            _ => None,
        });
        Ok(texts.collect())
    }

    /// The addresses of the servers that a zone's NS records name: one list for each server.
    async fn servers(&self, zone: &Name) -> Result<Vec<Vec<SocketAddr>>, ZoneError> {
        let response = self.query(zone, RecordType::NS).await?;
        let mut servers = Vec::new();
        for record in &response.answers {
            let RData::NS(server) = &record.data else { continue };
            let mut addresses = Vec::new();
            for kind in [RecordType::A, RecordType::AAAA] {
                let Ok(response) = self.query(&server.0, kind).await else { continue };
                addresses.extend(response.answers.iter().filter_map(|record| match &record.data {
                    RData::A(ip) => Some(SocketAddr::new(ip.0.into(), self.zone_port)),
                    RData::AAAA(ip) => Some(SocketAddr::new(ip.0.into(), self.zone_port)),
                    _ => None,
                }));
            }
            if !addresses.is_empty() {
                servers.push(addresses);
            }
        }
        if servers.is_empty() { Err(ZoneError::NoServers(zone.to_string())) } else { Ok(servers) }
    }
}

/// Queries one server.
pub(crate) async fn query_server(server: SocketAddr, name: &Name, kind: RecordType) -> Result<Message, QueryError> {
    let sent = question(name, kind).to_vec().map_err(|_| QueryError::Malformed)?;
    Ok(exchange(server, &sent).await?.0)
}

/// The addresses of `host`, `host:port`, an IPv6 address, or `[IPv6 address]:port`. Upstreams have a notation of their
/// own for DNS servers, with a network (`ResolverServer::parse` of the crate pipeline).
pub(crate) async fn server_addresses(text: &str) -> Result<Vec<SocketAddr>, ZoneError> {
    let unknown = || ZoneError::Server(text.to_owned());
    if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(vec![SocketAddr::new(ip, PORT)]);
    }
    let with_port = if text.contains(':') { text.to_owned() } else { format!("{text}:{PORT}") };
    let addresses: Vec<_> = tokio::net::lookup_host(&with_port).await.map_err(|_| unknown())?.collect();
    if addresses.is_empty() { Err(unknown()) } else { Ok(addresses) }
}

/// A name in ASCII, without or with the dot at its end.
pub(crate) fn absolute(text: &str) -> Result<Name, ZoneError> {
    let mut name = Name::from_ascii(text).map_err(|_| ZoneError::Name(text.to_owned()))?;
    name.set_fqdn(true);
    Ok(name)
}

/// The resolvers in a file like `/etc/resolv.conf`, or public ones.
fn of_system(path: &Path) -> Vec<SocketAddr> {
    let servers = causeway_dns::system::servers(&std::fs::read_to_string(path).unwrap_or_default());
    if servers.is_empty() { FALLBACK.map(|ip| (ip, PORT).into()).to_vec() } else { servers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::tests::servers::{server, unused_port, world};

    // Without configured resolvers, the visibility of a record is checked on the zone's own servers, at port 53.
    #[tokio::test]
    async fn servers_to_check() {
        let resolvers = Resolvers { addresses: vec![server(world).await], are_configured: false, zone_port: PORT };
        let name = |text| absolute(text).unwrap();
        let servers = resolvers.servers_to_check(&name("_acme-challenge.www.example.com")).await.unwrap();
        assert_eq!(servers, [vec!["192.0.2.53:53".parse().unwrap()]]);
        let error = resolvers.servers_to_check(&name("a.other.example")).await.unwrap_err().to_string();
        assert_eq!(error, "found no address of a DNS server of the zone other.example.");
        let configured = Resolvers { are_configured: true, ..resolvers };
        let servers = configured.servers_to_check(&name("a.other.example")).await.unwrap();
        assert_eq!(servers, [configured.addresses]);
    }

    // RFC 2308 §5: a resolver caches that the name of a query does not exist, so the resolvers that are to see the new
    // record get no query for it before. A record may stand in a zone of its own.
    #[tokio::test]
    async fn the_zone_of_a_new_record() {
        use std::sync::{Arc, Mutex};

        use hickory_proto::rr::rdata::{A, NS, SOA};

        let name = |text| absolute(text).unwrap();
        let answer = |request: &[u8], answers: Vec<RData>, delegation: Option<RData>| {
            let request = Message::from_vec(request).unwrap();
            let mut message = Message::response(request.id, request.op_code);
            message.queries.clone_from(&request.queries);
            let at = request.queries[0].name();
            message.answers = answers.into_iter().map(|data| Record::from_rdata(at.clone(), 60, data)).collect();
            message.authorities.extend(delegation.map(|data| Record::from_rdata(at.clone(), 60, data)));
            Some(message.to_vec().unwrap())
        };
        let question = |request: &[u8]| Message::from_vec(request).unwrap().queries[0].clone();
        let authority = server(move |request, _| {
            let is_delegated = question(request).name().to_ascii() == "_acme-challenge.own.example.com.";
            answer(request, Vec::new(), is_delegated.then(|| RData::NS(NS(name("ns.example.net")))))
        });
        let queried = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&queried);
        let resolver = server(move |request, _| {
            let question = question(request);
            let text = question.name().to_ascii();
            log.lock().unwrap().push(text.clone());
            let soa = || RData::SOA(SOA::new(name("ns.example.com"), name("root.example.com"), 1, 60, 60, 60, 60));
            let answers = match (&*text, question.query_type()) {
                ("example.com.", RecordType::SOA) => vec![soa()],
                ("example.com.", RecordType::NS) => vec![RData::NS(NS(name("ns.example.com")))],
                ("ns.example.com.", RecordType::A) => vec![RData::A(A::new(127, 0, 0, 1))],
                _ => Vec::new(),
            };
            answer(request, answers, None)
        });
        let (addresses, zone_port) = (vec![resolver.await], authority.await.port());
        let resolvers = Resolvers { addresses, are_configured: true, zone_port };
        for (at, want) in [
            ("_acme-challenge.www.example.com", "example.com."),
            ("_acme-challenge.own.example.com", "_acme-challenge.own.example.com."),
        ] {
            assert_eq!(resolvers.zone_of_record(&name(at)).await.unwrap().to_ascii(), want);
        }
        // None of the zone's servers answers.
        let zone_port = unused_port().await;
        let blocked = Resolvers { zone_port, ..resolvers };
        let found = blocked.zone_of_record(&name("_acme-challenge.own.example.com")).await.unwrap();
        assert_eq!(found.to_ascii(), "example.com.");
        let queried = queried.lock().unwrap();
        assert!(!queried.is_empty() && !queried.iter().any(|name| name.starts_with("_acme-challenge")), "{queried:?}");
    }

    // resolv.conf(5): lines `nameserver ADDRESS`.
    #[test]
    fn resolvers_of_the_system() {
        let path = std::env::temp_dir().join(format!("causeway-resolv-{}.conf", std::process::id()));
        let shown = |path: &Path| of_system(path).iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        let fallback = ["8.8.8.8:53", "8.8.4.4:53", "1.1.1.1:53", "1.0.0.1:53"];
        for (text, want) in [
            (
                "# a\nsearch b\nnameserver 192.0.2.1\n nameserver\t2001:db8::1\nnameserver\n",
                vec!["192.0.2.1:53", "[2001:db8::1]:53"],
            ),
            ("nameserver fe80::1%eth0\nnameserver 192.0.2.1\n", vec!["192.0.2.1:53"]),
            ("options edns0\n", fallback.to_vec()),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(shown(&path), want, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(shown(&path), fallback);
    }
}
