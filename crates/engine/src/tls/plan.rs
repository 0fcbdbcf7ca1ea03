//! A listener's TLS policies, ready to run: made when a configuration loads, off the workers, and shared by all
//! workers.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use causeway_pipeline::{Endpoints, ListenerSpec, ListeningSocket, Protocols, TlsMatchers, TlsPolicy};
use ipnet::IpNet;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig, SignatureAlgorithm};

use super::secrets_log::{FileKeyLog, SecretsLog, SecretsLogs};
use super::write_secret::WriteSecret;
use super::{Certificates, ObtainedCertificate, SessionTickets, SoughtCertificate, client_auth, names};

/// The protocol name by which an authority verifies a TLS-ALPN-01 challenge (RFC 8737 §4).
pub(super) const CHALLENGE_ALPN: &[u8] = b"acme-tls/1";

/// An invalid TLS policy, a mistake in the configuration. Displays the listener's address, the policy's index and the
/// reason.
#[derive(Debug)]
pub struct TlsError {
    listener: ListeningSocket,
    policy: usize,
    refused: Box<Refused>,
}

/// Why a policy is invalid.
#[derive(Debug)]
struct Refused {
    reason: String,
    /// The invalid value, if one value is the reason.
    found: Option<String>,
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, found: None }
    }
}

impl TlsError {
    /// Returns the reason, without the policy's place.
    pub fn reason(&self) -> &str {
        &self.refused.reason
    }

    /// Returns the invalid value, if one value is the reason.
    pub fn found(&self) -> Option<&str> {
        self.refused.found.as_deref()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, policy, refused } = self;
        write!(f, "listener {listener}, TLS policy {policy}: {}", refused.reason)
    }
}

impl std::error::Error for TlsError {}

/// Encrypts and decrypts session tickets, unless a configuration sets others. The process has one, so a session resumes
/// on any worker and across reloads; rustls rotates its keys.
#[derive(Debug, Clone)]
pub(crate) struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// # Errors
    /// The system's random number generator failed.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ticketer::new().map(Self).map_err(std::io::Error::other)
    }
}

/// A listener's policies in order, and the source of their certificates.
#[derive(Debug)]
pub(crate) struct TlsPlan {
    policies: Vec<CompiledPolicy>,
    certificates: Option<Arc<dyn Certificates>>,
}

/// The certificate that answers a challenge.
pub(super) enum ChallengeCertificate {
    Open(Arc<CertifiedKey>),
    /// Another server may have opened the challenge.
    Sought(ObtainedCertificate),
}

/// One policy: its matchers and its rustls configuration.
#[derive(Debug)]
pub(super) struct CompiledPolicy {
    spec: TlsPolicy,
    /// Complete except for the certificate and the key log, which each handshake sets.
    config: ServerConfig,
    /// The file for the secrets of sessions, if there is one.
    secrets_log: Option<Arc<SecretsLog>>,
    /// The listener serves HTTP/1, which includes clients that choose no protocol by ALPN.
    serves_http1: bool,
}

impl TlsPlan {
    /// Makes the plans of `specs`, in their order; `None` for a listener without TLS.
    ///
    /// # Errors
    /// The first policy with an unknown name or an impossible combination.
    pub(crate) fn all(
        specs: &[ListenerSpec],
        certificates: Option<&Arc<dyn Certificates>>,
        tickets: &Tickets,
    ) -> Result<Arc<[Option<Arc<Self>>]>, TlsError> {
        // One choice for all listeners: a client may resume a session at another port.
        let tickets = match certificates.map(|certificates| certificates.session_tickets()).unwrap_or_default() {
            SessionTickets::Process => Some(Arc::clone(&tickets.0)),
            SessionTickets::Disabled => None,
            SessionTickets::Keys(keys) => Some(keys.ticketer()),
        };
        let mut secrets_logs = SecretsLogs::default();
        specs
            .iter()
            .map(|spec| {
                let Some(tls) = &spec.tls else { return Ok(None) };
                let policy = |(number, policy): (usize, &TlsPolicy)| {
                    let wrong = |refused| TlsError {
                        listener: spec.socket.clone(),
                        policy: number,
                        refused: Box::new(refused),
                    };
                    let config = config(policy, spec.protocols, tickets.as_ref()).map_err(wrong)?;
                    let open = |path: &PathBuf| {
                        let refused = |error| Refused {
                            reason: format!("{}: {error}", path.display()),
                            found: Some(path.display().to_string()),
                        };
                        secrets_logs.open(path).map_err(|error| wrong(refused(error)))
                    };
                    let secrets_log = policy.secrets_log.as_ref().map(open).transpose()?;
                    Ok(CompiledPolicy { spec: policy.clone(), config, secrets_log, serves_http1: spec.protocols.http1 })
                };
                let policies = tls.policies.iter().enumerate().map(policy).collect::<Result<_, _>>()?;
                Ok(Some(Arc::new(Self { policies, certificates: certificates.cloned() })))
            })
            .collect()
    }

    /// Returns whether a connection admitted by this plan may continue under `other` after a reload: either neither
    /// plan authenticates or drops clients, or their policies are equal.
    pub(crate) fn admits_as(&self, other: &Self) -> bool {
        // The client was admitted by rules that the new plan may not have, and the connection keeps no proof of them.
        let is_open =
            |plan: &Self| plan.policies.iter().all(|policy| policy.spec.client.is_none() && !policy.spec.drop);
        is_open(self) && is_open(other)
            || self.policies.iter().map(|policy| &policy.spec).eq(other.policies.iter().map(|policy| &policy.spec))
    }

    /// Returns the first policy that matches a ClientHello.
    pub(super) fn choose(&self, server_name: Option<&str>, endpoints: &Endpoints) -> Option<&CompiledPolicy> {
        self.policies.iter().find(|policy| policy.is_met(server_name, endpoints))
    }

    /// Returns the certificate for a handshake that verifies a TLS-ALPN-01 challenge (RFC 8737 §4): the client offers
    /// `acme-tls/1`, and a challenge for its server name is open.
    pub(super) fn challenge(&self, hello: &ClientHello<'_>, server_name: Option<&str>) -> Option<ChallengeCertificate> {
        // RFC 8737 §3: the validating authority offers this protocol and no other, and sends no request.
        let mut offers = hello.alpn()?;
        let is_only = offers.next()? == CHALLENGE_ALPN && offers.next().is_none();
        if !is_only && !hello.alpn()?.any(|name| name == CHALLENGE_ALPN) {
            return None;
        }
        let certificates = self.certificates.as_ref()?;
        let open = certificates.challenge(server_name?).map(ChallengeCertificate::Open);
        open.or_else(|| {
            certificates.shared_challenge(server_name?).filter(|_| is_only).map(ChallengeCertificate::Sought)
        })
    }

    /// Finds the certificate for a server name, in CertMagic's order: for the name itself; without a name, for our own
    /// address, then for the policy's default name.
    pub(super) fn certificate(
        &self,
        policy: &CompiledPolicy,
        hello: &ClientHello<'_>,
        server_name: Option<&str>,
        endpoints: &Endpoints,
    ) -> Option<Arc<CertifiedKey>> {
        // The server name is already in lower case; the configured names are not.
        // A client that names a server never gets the default name's certificate, which it would refuse.
        let named = server_name.and_then(|name| self.find(policy, hello, name));
        if named.is_some() || is_named(server_name) {
            return named;
        }
        let local = endpoints.local().map(|local| local.ip().to_canonical().to_string());
        local
            .and_then(|local| self.find(policy, hello, &local))
            .or_else(|| self.find(policy, hello, &policy.spec.default_server_name.as_ref()?.to_ascii_lowercase()))
    }

    /// Starts to obtain a certificate for a handshake that has none; `None` if the configuration does not provide for
    /// it.
    pub(super) fn obtain(
        &self,
        policy: &CompiledPolicy,
        hello: &ClientHello<'_>,
        server_name: Option<&str>,
        endpoints: &Endpoints,
    ) -> Option<ObtainedCertificate> {
        // A policy with tags selects among the certificates that there are.
        if !policy.spec.certificate_tags.is_empty() {
            return None;
        }
        // Copied, because the work continues after a handshake that times out.
        self.certificates.as_ref()?.obtain(SoughtCertificate {
            server_name: server_name.map(str::to_owned),
            local: endpoints.local().map(|local| local.ip().to_canonical()),
            signature_schemes: hello.signature_schemes().iter().map(|scheme| u16::from(*scheme)).collect(),
            cipher_suites: hello.cipher_suites().iter().map(|suite| u16::from(*suite)).collect(),
        })
    }

    /// Finds the certificate for a handshake that [`certificate`](Self::certificate) and [`obtain`](Self::obtain) have
    /// none for: that of the policy's fallback name; without a server name, any with one of the policy's tags.
    pub(super) fn fallback(
        &self,
        policy: &CompiledPolicy,
        hello: &ClientHello<'_>,
        server_name: Option<&str>,
    ) -> Option<Arc<CertifiedKey>> {
        let fallback = policy.spec.fallback_server_name.as_ref();
        fallback.and_then(|name| self.find(policy, hello, &name.to_ascii_lowercase())).or_else(|| {
            let is_usable = |key: &CertifiedKey| can_verify(hello, key);
            let any = self.certificates.as_ref()?.find(None, &policy.spec.certificate_tags, &is_usable);
            any.filter(|_| !is_named(server_name))
        })
    }

    fn find(&self, policy: &CompiledPolicy, hello: &ClientHello<'_>, name: &str) -> Option<Arc<CertifiedKey>> {
        let is_usable = |key: &CertifiedKey| can_verify(hello, key);
        self.certificates.as_ref()?.find(Some(name), &policy.spec.certificate_tags, &is_usable)
    }
}

/// Returns whether a client names a server.
// DEVIATES from CertMagic: RFC 6066 §3 permits no address as a server name, so a client with an address that has no
// certificate counts as one without a server name.
fn is_named(server_name: Option<&str>) -> bool {
    server_name.is_some_and(|name| name.parse::<IpAddr>().is_err())
}

/// Returns whether a client can verify the signatures of a key: by its signature schemes, and for TLS 1.2 also by its
/// cipher suites (RFC 5246 §7.4.2).
fn can_verify(hello: &ClientHello<'_>, key: &CertifiedKey) -> bool {
    let is_suite_of = |suite: &CipherSuite| match key.key.algorithm() {
        SignatureAlgorithm::RSA => suite.as_str().is_some_and(|name| name.starts_with("TLS_ECDHE_RSA")),
        _ => suite.as_str().is_some_and(|name| name.starts_with("TLS_ECDHE_ECDSA")),
    };
    // The suites of TLS 1.3 work with every kind of key.
    let is_tls13 = |suite: &CipherSuite| suite.as_str().is_some_and(|name| name.starts_with("TLS13_"));
    key.key.choose_scheme(hello.signature_schemes()).is_some()
        && hello.cipher_suites().iter().any(|suite| is_tls13(suite) || is_suite_of(suite))
}

/// Returns the configuration for a handshake that verifies a challenge.
pub(super) fn challenge_config(certificate: Arc<CertifiedKey>, secret: &Arc<WriteSecret>) -> Option<Arc<ServerConfig>> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().ok()?.with_no_client_auth();
    let mut config = builder.with_cert_resolver(Arc::new(ResolvedCertificate(certificate)));
    config.alpn_protocols = vec![CHALLENGE_ALPN.to_vec()];
    config.key_log = Arc::clone(secret) as _;
    config.enable_secret_extraction = true;
    Some(Arc::new(config))
}

/// Returns whether all conditions accept the ClientHello; an empty list accepts everything.
fn is_met(matchers: &TlsMatchers, server_name: Option<&str>, endpoints: &Endpoints) -> bool {
    let TlsMatchers { server_names, server_name_matcher, remote_ranges, remote_ranges_not, local_ranges, not } =
        matchers;
    // As in Caddy, a matcher of addresses refuses a Unix socket, which has none.
    let within =
        |ranges: &[IpNet], ip: Option<IpAddr>| ip.is_some_and(|ip| ranges.iter().any(|range| range.contains(&ip)));
    // A socket for both families reports IPv4 peers as IPv6 addresses, which no configured range contains.
    let (peer, local) = (endpoints.peer_ip(), endpoints.local().map(|local| local.ip().to_canonical()));
    let name = server_name.unwrap_or_default();
    (server_names.is_empty() || server_names.iter().any(|pattern| is_covered(name, pattern)))
        && server_name_matcher.as_ref().is_none_or(|matcher| matcher.matches(name))
        && (remote_ranges.is_empty() || within(remote_ranges, peer))
        && (remote_ranges_not.is_empty() || peer.is_some() && !within(remote_ranges_not, peer))
        && (local_ranges.is_empty() || within(local_ranges, local))
        && !not.iter().any(|matchers| is_met(matchers, server_name, endpoints))
}

impl CompiledPolicy {
    /// Returns whether the policy applies to the ClientHello.
    fn is_met(&self, server_name: Option<&str>, endpoints: &Endpoints) -> bool {
        is_met(&self.spec.matchers, server_name, endpoints)
    }

    /// Returns whether the policy closes its connections without a handshake.
    pub(super) fn drops(&self) -> bool {
        self.spec.drop
    }

    /// Returns whether the client offers only protocols that the listener does not serve (RFC 7301 §3.2). rustls
    /// performs this check itself when its configuration names protocols, so only the empty list is handled here.
    pub(super) fn has_no_protocol(&self, hello: &ClientHello<'_>) -> bool {
        !self.serves_http1 && self.config.alpn_protocols.is_empty() && hello.alpn().is_some()
    }

    /// Makes the configuration of one handshake, with its certificate and `secret` as the key log. Copies the rustls
    /// configuration.
    pub(super) fn config(
        &self,
        hello: &ClientHello<'_>,
        certificate: Arc<CertifiedKey>,
        secret: &Arc<WriteSecret>,
    ) -> Arc<ServerConfig> {
        // A copy per handshake, of pointers for the most part: the certificate and the key log differ in each.
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(ResolvedCertificate(certificate));
        config.key_log = match &self.secrets_log {
            None => Arc::clone(secret) as _,
            Some(log) => Arc::new(FileKeyLog { secret: Arc::clone(secret), log: Arc::clone(log) }),
        };
        if self.serves_http1
            && let Some(offered) = hello.alpn()
        {
            // As in Go: a policy that names only HTTP/2 still admits a client that offers HTTP/1.1. With an empty list
            // rustls skips its ALPN check, and the connection continues as HTTP/1.
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

/// Returns whether a pattern covers a server name: the exact name, the same address, or stars in place of the leading
/// labels, one star for each.
fn is_covered(server_name: &str, pattern: &str) -> bool {
    if !pattern.contains('*') {
        // RFC 4291 §2.2: IPv6 has several texts for one address.
        let address = |text: &str| text.parse::<IpAddr>().ok();
        return server_name.eq_ignore_ascii_case(pattern)
            || address(pattern).is_some_and(|pattern| address(server_name) == Some(pattern));
    }
    // RFC 6125 §6.4.3: a star stands for one whole label, and only for the leftmost ones.
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

/// Resolves to the certificate that was found from the ClientHello, before rustls's handshake.
#[derive(Debug)]
struct ResolvedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for ResolvedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A placeholder; each handshake replaces it by [`ResolvedCertificate`].
#[derive(Debug)]
struct Nothing;

impl ResolvesServerCert for Nothing {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// Makes a policy's rustls configuration.
///
/// # Errors
/// A name is unknown, or no handshake could succeed.
fn config(
    policy: &TlsPolicy,
    protocols: Protocols,
    tickets: Option<&Arc<dyn ProducesTickets>>,
) -> Result<ServerConfig, Refused> {
    let mut provider = default_provider();
    if !policy.cipher_suites.is_empty() {
        let chosen = policy.cipher_suites.iter().map(|name| {
            let suite = names::suite(name);
            suite.ok_or_else(|| unknown("a cipher suite", name, names::SUITES.iter().map(|(name, _)| *name)))
        });
        let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
        // As in Go, the suites of TLS 1.3 are not configurable.
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
        // In the configured order, which is the server's preference.
        provider.kx_groups = chosen.collect::<Result<_, _>>()?;
    }
    if policy.version_min > policy.version_max {
        let reason = format!(
            "found a lowest version ({:?}) above the highest ({:?}), expected at least one version",
            policy.version_min, policy.version_max
        );
        return Err(reason.into());
    }
    let alpn = alpn(policy, protocols)?;
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&names::versions(policy.version_min, policy.version_max))
        .map_err(|error| format!("no connection could be made with these suites and groups: {error}"))?;
    let builder = match &policy.client {
        Some(spec) => builder.with_client_cert_verifier(client_auth::verifier(spec, &provider)?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Nothing));
    config.alpn_protocols = alpn;
    // Sessions are stateless: clients keep them as tickets, and the server stores none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    match tickets {
        Some(tickets) if policy.client.is_none() => config.ticketer = Arc::clone(tickets),
        // As in Caddy: without tickets, a client that authenticated for one server name cannot resume that session for
        // another.
        _ => config.send_tls13_tickets = 0,
    }
    // RFC 8446 §8: early data can be replayed, so it is neither offered nor accepted.
    config.max_early_data_size = 0;
    config.send_half_rtt_data = false;
    // Our own record layer needs the keys; see `record`.
    config.enable_secret_extraction = true;
    Ok(config)
}

/// Returns the policy's ALPN names, all by default, without the names of versions that the listener does not serve.
fn alpn(policy: &TlsPolicy, protocols: Protocols) -> Result<Vec<Vec<u8>>, Refused> {
    let is_served = |name: &&str| if *name == "h2" { protocols.http2 } else { protocols.http1 };
    let named = match &policy.alpn[..] {
        [] => vec!["h2", "http/1.1"],
        names => {
            let known = |name: &String| {
                let known = names::protocol(name.as_bytes());
                known.ok_or_else(|| unknown("a protocol for ALPN", name, names::PROTOCOLS.iter().copied()))
            };
            names.iter().map(known).collect::<Result<_, _>>()?
        }
    };
    Ok(named.into_iter().filter(is_served).map(|name| name.as_bytes().to_vec()).collect())
}

fn unknown<'n>(kind: &str, found: &str, known: impl Iterator<Item = &'n str>) -> Refused {
    let known = known.collect::<Vec<_>>().join(", ");
    Refused { reason: format!("found '{found}' for {kind}, expected one of {known}"), found: Some(found.to_owned()) }
}

#[cfg(test)]
mod tests;
