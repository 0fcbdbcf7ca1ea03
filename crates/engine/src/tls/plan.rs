//! A listener's policies as they run: made at load, off the workers, and shared by all of them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use causeway_pipeline::{ListenAddress, ListenerSpec, Protocols, TlsPolicy};
use ipnet::IpNet;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{Certificates, client, names};

/// What keeps a listener's TLS from being set up: an operator's mistake.
#[derive(Debug)]
pub struct TlsError {
    listener: ListenAddress,
    policy: usize,
    what: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, policy, what } = self;
        write!(f, "listener {listener}, TLS policy {policy}: {what}")
    }
}

impl std::error::Error for TlsError {}

/// Seals and opens what a client needs to go on with an earlier session. One for the process, so that a session goes on on any
/// worker and over reloads; its keys change by themselves.
#[derive(Debug, Clone)]
pub(crate) struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ticketer::new().map(Self).map_err(std::io::Error::other)
    }
}

/// How a listener protects its connections.
#[derive(Debug)]
pub(crate) struct TlsPlan {
    policies: Vec<Policy>,
    certificates: Option<Arc<dyn Certificates>>,
}

/// One policy, ready.
#[derive(Debug)]
pub(super) struct Policy {
    spec: TlsPolicy,
    /// Complete but for the certificate.
    config: ServerConfig,
}

impl TlsPlan {
    /// The plans of these listeners, in their order.
    ///
    /// # Errors
    /// The first policy that says something unknown or impossible.
    pub(crate) fn all(
        specs: &[ListenerSpec],
        certificates: Option<&Arc<dyn Certificates>>,
        tickets: &Tickets,
    ) -> Result<Arc<[Option<Arc<Self>>]>, TlsError> {
        specs
            .iter()
            .map(|spec| {
                let Some(tls) = &spec.tls else { return Ok(None) };
                let policy = |(number, policy): (usize, &TlsPolicy)| {
                    let wrong = |what| TlsError { listener: spec.address, policy: number, what };
                    let config = config(policy, spec.protocols, tickets).map_err(wrong)?;
                    Ok(Policy { spec: policy.clone(), config })
                };
                let policies = tls.policies.iter().enumerate().map(policy).collect::<Result<_, _>>()?;
                Ok(Some(Arc::new(Self { policies, certificates: certificates.cloned() })))
            })
            .collect()
    }

    /// Whether whoever was let in by the one is let in by the other: nobody is asked for certificates or turned away, or the policies
    /// are the same.
    pub(crate) fn admits_as(&self, other: &Self) -> bool {
        let is_open =
            |plan: &Self| plan.policies.iter().all(|policy| policy.spec.client.is_none() && !policy.spec.drop);
        is_open(self) && is_open(other)
            || self.policies.iter().map(|policy| &policy.spec).eq(other.policies.iter().map(|policy| &policy.spec))
    }

    /// The first policy that a ClientHello meets.
    pub(super) fn choose(&self, server_name: Option<&str>, peer: SocketAddr, local: SocketAddr) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.is_met(server_name, peer, local))
    }

    /// The certificate that a policy serves for this name, as CertMagic finds it: without a name, that of our own address, then
    /// the default's; last the fallback's.
    pub(super) fn certificate(
        &self,
        policy: &Policy,
        server_name: Option<&str>,
        local: SocketAddr,
    ) -> Option<Arc<CertifiedKey>> {
        let certificates = self.certificates.as_ref()?;
        let spec = &policy.spec;
        let find = |name: &str| certificates.find(Some(name), &spec.certificate_tags);
        let found = match server_name {
            Some(name) => find(name),
            None => find(&local.ip().to_canonical().to_string())
                .or_else(|| find(&spec.default_server_name.as_ref()?.to_ascii_lowercase())),
        };
        found
            .or_else(|| find(&spec.fallback_server_name.as_ref()?.to_ascii_lowercase()))
            .or_else(|| certificates.find(None, &spec.certificate_tags).filter(|_| server_name.is_none()))
    }
}

impl Policy {
    fn is_met(&self, server_name: Option<&str>, peer: SocketAddr, local: SocketAddr) -> bool {
        let TlsPolicy { server_names, remote_ranges, remote_ranges_not, local_ranges, .. } = &self.spec;
        let within = |ranges: &[IpNet], ip: IpAddr| ranges.iter().any(|range| range.contains(&ip));
        let (peer, local) = (peer.ip().to_canonical(), local.ip().to_canonical());
        (server_names.is_empty() || server_names.iter().any(|name| is_covered(server_name.unwrap_or_default(), name)))
            && (remote_ranges.is_empty() || within(remote_ranges, peer))
            && !within(remote_ranges_not, peer)
            && (local_ranges.is_empty() || within(local_ranges, local))
    }

    /// Whether its connections are closed.
    pub(super) fn drops(&self) -> bool {
        self.spec.drop
    }

    /// The configuration of one handshake.
    pub(super) fn config(&self, hello: &ClientHello<'_>, certificate: Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(Found(certificate));
        if let Some(offered) = hello.alpn() {
            // As Go has it: a client of HTTP/1.1 is not refused by a server that names HTTP/2 only.
            let offered: Vec<&[u8]> = offered.collect();
            let ours = &config.alpn_protocols;
            if !ours.iter().any(|name| offered.contains(&&name[..]))
                && ours.iter().any(|name| name == b"h2")
                && offered.contains(&&b"http/1.1"[..])
            {
                config.alpn_protocols.clear();
            }
        }
        Arc::new(config)
    }
}

/// Whether a pattern names this server name: literally, or with stars in place of its first labels.
fn is_covered(server_name: &str, pattern: &str) -> bool {
    if !pattern.contains('*') {
        return server_name.eq_ignore_ascii_case(pattern);
    }
    let (mut names, mut patterns) = (server_name.split('.'), pattern.split('.'));
    let mut are_stars_over = false;
    loop {
        match (names.next(), patterns.next()) {
            (None, None) => return true,
            (Some(name), Some("*")) if !name.is_empty() && !are_stars_over => {}
            (Some(name), Some(label)) if label != "*" && name.eq_ignore_ascii_case(label) => are_stars_over = true,
            _ => return false,
        }
    }
}

/// A certificate that was found before the handshake went on.
#[derive(Debug)]
struct Found(Arc<CertifiedKey>);

impl ResolvesServerCert for Found {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Until a handshake finds one.
#[derive(Debug)]
struct Nothing;

impl ResolvesServerCert for Nothing {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

fn config(policy: &TlsPolicy, protocols: Protocols, tickets: &Tickets) -> Result<ServerConfig, String> {
    let mut provider = default_provider();
    if !policy.cipher_suites.is_empty() {
        let chosen = policy.cipher_suites.iter().map(|name| {
            let suite = names::suite(name);
            suite.ok_or_else(|| unknown("a cipher suite", name, names::SUITES.iter().map(|(name, _)| *name)))
        });
        let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
        // Those of TLS 1.3 are not to choose.
        provider.cipher_suites.retain(|suite| suite.tls13().is_some());
        for suite in chosen {
            if !provider.cipher_suites.contains(&suite) {
                provider.cipher_suites.push(suite);
            }
        }
    }
    if !policy.groups.is_empty() {
        let chosen = policy.groups.iter().map(|name| {
            let group = names::group(name);
            group.ok_or_else(|| unknown("a key exchange group", name, names::GROUPS.iter().map(|(name, _)| *name)))
        });
        provider.kx_groups = chosen.collect::<Result<_, _>>()?;
    }
    if policy.version_min > policy.version_max {
        return Err(format!(
            "found a lowest version ({:?}) above the highest ({:?}), expected at least one version",
            policy.version_min, policy.version_max
        ));
    }
    let alpn = alpn(policy, protocols)?;
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&names::versions(policy.version_min, policy.version_max))
        .map_err(|error| format!("no connection could be made with these suites and groups: {error}"))?;
    let builder = match &policy.client {
        Some(spec) => builder.with_client_cert_verifier(client::verifier(spec, &provider)?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Nothing));
    config.alpn_protocols = alpn;
    // Sessions are with the clients, in tickets: nothing is kept here.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if policy.client.is_none() {
        config.ticketer = Arc::clone(&tickets.0);
    } else {
        // As Caddy has it: who showed a certificate for one server name is not known for another by a ticket.
        config.send_tls13_tickets = 0;
    }
    config.max_early_data_size = 0;
    config.send_half_rtt_data = false;
    // For the record layer of our own; see `record`.
    config.enable_secret_extraction = true;
    Ok(config)
}

fn alpn(policy: &TlsPolicy, protocols: Protocols) -> Result<Vec<Vec<u8>>, String> {
    if policy.alpn.is_empty() {
        let spoken = [("h2", protocols.http2), ("http/1.1", protocols.http1)];
        return Ok(spoken
            .iter()
            .filter(|(_, is_spoken)| *is_spoken)
            .map(|(name, _)| name.as_bytes().to_vec())
            .collect());
    }
    let known = |name: &String| match names::protocol(name.as_bytes()) {
        Some(name) => Ok(name.as_bytes().to_vec()),
        None => Err(unknown("a protocol for ALPN", name, names::PROTOCOLS.iter().copied())),
    };
    policy.alpn.iter().map(known).collect()
}

fn unknown<'n>(what: &str, found: &str, known: impl Iterator<Item = &'n str>) -> String {
    format!("found '{found}' for {what}, expected one of {}", known.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
