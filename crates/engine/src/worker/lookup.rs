//! Lookups in DNS, on a thread for names.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use causeway_dns as dns;
use causeway_pipeline::worker::{DnsRecord, Families, LookupError, Question, Resolver};

/// The file of names that the system's resolver reads.
pub(super) const HOSTS: &str = "/etc/hosts";

/// The addresses of `localhost`, by RFC 6761 §6.3. Without [`HOSTS`], as in a bare container, the system's resolver
/// would ask a server in DNS for it.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)];

/// Resolves `host:port` with the system's resolver; blocks for as long as the servers take.
///
/// # Errors
/// The resolver's.
pub(super) fn resolve(address: &str, hosts: &Path) -> io::Result<Vec<SocketAddr>> {
    match address.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) if !host.starts_with('[') => system_addresses(host, port, hosts),
        // A literal in brackets, or a text that the standard library refuses.
        _ => Ok(address.to_socket_addrs()?.collect()),
    }
}

fn system_addresses(host: &str, port: u16, hosts: &Path) -> io::Result<Vec<SocketAddr>> {
    if host == "localhost" && !hosts.exists() {
        return Ok(LOOPBACK.map(|ip| (ip, port).into()).to_vec());
    }
    refuse_numbers(host)?;
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Refuses a host of numbers that is no IP address, such as `127.1` or a port without its colon. The C library takes it
/// for an IPv4 address of inet_aton(3), so that a host could pass for another one.
fn refuse_numbers(host: &str) -> io::Result<()> {
    let is_number = |label: &str| match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    };
    match host.trim_end_matches('.').split('.').all(is_number) && host.parse::<Ipv4Addr>().is_err() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the host is a number, and no IP address")),
        false => Ok(()),
    }
}

/// Answers a question; blocks for as long as the servers take. `random` is the seed of all choices.
///
/// # Errors
/// If there is no record.
pub(super) fn look_up(
    question: &Question,
    resolver: Option<&Resolver>,
    random: u64,
) -> Result<Vec<DnsRecord>, LookupError> {
    match (question, resolver) {
        // The system's resolver has more sources than DNS.
        (Question::Addresses { name, families }, None) => by_system(name, families_of(*families), Path::new(HOSTS)),
        _ => {
            // A lookup takes a round trip or more, and a runtime some microseconds.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| LookupError::new(error.to_string()))?;
            runtime.block_on(by_dns(question, resolver, random))
        }
    }
}

async fn by_dns(
    question: &Question,
    configured: Option<&Resolver>,
    random: u64,
) -> Result<Vec<DnsRecord>, LookupError> {
    let mut resolver = dns::Resolver::of_system(random);
    if let Some(Resolver { servers, dial_timeout, fallback_delay }) = configured {
        let servers = servers.iter().map(|server| dns::DnsServer {
            address: server.address.to_string(),
            is_tcp: server.is_tcp,
            families: families_of(server.families),
        });
        resolver = resolver.with_servers(servers.collect()).with_limits(*dial_timeout, *fallback_delay);
    }
    let failed = |error: dns::LookupError| LookupError::new(error.to_string());
    Ok(match question {
        Question::Addresses { name, families } => {
            let found = resolver.addresses(name, families_of(*families)).await.map_err(failed)?;
            found.into_iter().map(DnsRecord::Address).collect()
        }
        Question::Services { name } => {
            let found = resolver.services(name).await.map_err(failed)?;
            found.into_iter().map(|it| DnsRecord::Service { target: it.target.into(), port: it.port }).collect()
        }
    })
}

fn by_system(name: &str, families: dns::Families, hosts: &Path) -> Result<Vec<DnsRecord>, LookupError> {
    let failed = |error: io::Error| LookupError::new(format!("{name}: {error}"));
    let found = system_addresses(name, 0, hosts).map_err(failed)?.into_iter().map(|address| address.ip());
    let found: Vec<_> = found.filter(|ip| families.has(*ip)).map(DnsRecord::Address).collect();
    if found.is_empty() { Err(LookupError::new(format!("found no records of {name}"))) } else { Ok(found) }
}

pub(crate) fn families_of(families: Families) -> dns::Families {
    match families {
        Families::Both => dns::Families::Both,
        Families::Ipv4 => dns::Families::Ipv4,
        Families::Ipv6 => dns::Families::Ipv6,
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::worker::ResolverServer;

    use super::*;

    fn addresses(name: &str, families: Families) -> Result<Vec<DnsRecord>, LookupError> {
        look_up(&Question::Addresses { name: name.into(), families }, None, 0)
    }

    // inet_aton(3): one to four numbers, decimal, octal or hexadecimal. Go's resolver looks such names up, and finds
    // none.
    #[test]
    fn hosts_that_are_numbers() {
        for host in ["14001", "127.1", "0x7f.1", "127.0.0.0x1", "1.2.3.4.5", "017.0.0.0x1", "127.0.0.1."] {
            assert!(refuse_numbers(host).is_err(), "{host}");
            assert!(resolve(&format!("{host}:80"), Path::new(HOSTS)).is_err(), "{host}");
        }
        for host in
            ["127.0.0.1", "a1", "a.1", "a.1b", "0xg", "[::1]", "::ffff:1.2.3.4", "fe80::1%eth0.100", "localhost", ""]
        {
            assert!(refuse_numbers(host).is_ok(), "{host}");
        }
    }

    // Caddy: an upstream's name may be an address; the family must be one of the question's.
    #[test]
    fn the_system_resolver() {
        let v4 = DnsRecord::Address([127, 0, 0, 1].into());
        assert_eq!(addresses("127.0.0.1", Families::Both), Ok(vec![v4.clone()]));
        assert_eq!(addresses("localhost", Families::Ipv4), Ok(vec![v4]));
        let error = addresses("127.0.0.1", Families::Ipv6).unwrap_err();
        assert_eq!(error.to_string(), "found no records of 127.0.0.1");
    }

    // RFC 6761 §6.3.
    #[test]
    fn localhost_needs_no_file() {
        let ports = |hosts: &str| {
            let found = resolve("localhost:80", Path::new(hosts)).unwrap();
            assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
            found.iter().map(SocketAddr::port).collect::<Vec<_>>()
        };
        assert_eq!(ports("/nonexistent/hosts"), [80, 80]);
        assert!(ports(HOSTS).iter().all(|port| *port == 80));
        assert_eq!(
            resolve("192.0.2.1:80", Path::new("/nonexistent/hosts")).unwrap(),
            ["192.0.2.1:80".parse().unwrap()]
        );
        assert!(resolve("localhost:x", Path::new("/nonexistent/hosts")).is_err());
    }

    // A server whose name is unknown is a failure of the lookup.
    #[test]
    fn other_servers_answer() {
        let server = ResolverServer { address: "unknown.invalid:53".into(), is_tcp: false, families: Families::Both };
        let resolver = Resolver { servers: [server].into(), dial_timeout: None, fallback_delay: None };
        let question = Question::Services { name: "a.test.".into() };
        let error = look_up(&question, Some(&resolver), 0).unwrap_err().to_string();
        assert_eq!(error, "the address of the server unknown.invalid:53 is unknown");
    }
}
