//! Caddy's automatic HTTPS: decides which servers use TLS, which names get a managed certificate, and where plain HTTP
//! requests are redirected to.
//!
//! - `on_demand`: the names that get a certificate when a handshake needs it
//! - `redirects`: routes from HTTP to HTTPS

mod on_demand;
mod redirects;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use causeway_pipeline::{Build, BuildError, ListenAddress, ListeningSocket, TlsPolicy};
use serde::Deserialize;
use serde_json::Value;

use super::PlanError;
use super::address::empty_placeholder;
use super::certificates::{CertificateAuthority, ManagedName, PublicIssuer, PublicName};
use super::pki::{KNOWN_AUTHORITY, LOCAL, add_local};
use super::tls::{Automation, AutomationPolicy, Issuer, Tls, ascii};
use crate::names;
pub use on_demand::{OnDemand, SignedName};
pub(super) use redirects::{Inserted, Remaining, SERVER as REDIRECTS};

/// The ports of the two schemes: `http_port` and `https_port`.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) http: u16,
    pub(super) https: u16,
}

/// The parts of a configuration that automatic HTTPS reads, besides its servers.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'c> {
    pub(super) ports: Ports,
    pub(super) tls: &'c Tls,
    /// The names in the operator's certificates.
    pub(super) loaded: &'c [String],
    /// Whether names that are not those of sites have HTTP-01 challenges.
    pub(super) has_other_challenges: bool,
}

/// A server's `automatic_https`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct AutomaticHttpsConfig {
    #[serde(default)]
    disable: bool,
    #[serde(default)]
    disable_redirects: bool,
    #[serde(default)]
    disable_certificates: bool,
    #[serde(default)]
    skip: Vec<String>,
    #[serde(default)]
    skip_certificates: Vec<String>,
    #[serde(default)]
    ignore_loaded_certificates: bool,
}

/// A server as input and output of automatic HTTPS.
pub(super) struct HttpsServer<'c> {
    /// Its name in the configuration.
    pub(super) name: &'c str,
    pub(super) automatic: &'c AutomaticHttpsConfig,
    pub(super) routes: &'c Value,
    /// One element for each written address: its port range, expanded.
    pub(super) listen: Vec<Vec<ListeningSocket>>,
    /// The TLS connection policies. The server is plain HTTP if this is `None` or empty.
    pub(super) policies: Option<Vec<TlsPolicy>>,
    /// Output: redirect routes to add to the server's own routes.
    pub(super) inserted: Option<Inserted>,
    /// The handler that writes its access records.
    pub(super) access_log: Option<Value>,
}

impl HttpsServer<'_> {
    /// Whether every written address includes `port`.
    fn listens_only_on(&self, port: u16) -> bool {
        self.listen.iter().all(|range| range.iter().any(|socket| socket.port() == Some(port)))
    }

    /// Whether the server accepts connections to `wanted`. On Linux a listener on all addresses conflicts with a
    /// listener on one address of equal port, so `None` matches every host, in both directions.
    fn listens_on(&self, wanted: ListenAddress) -> bool {
        let takes = |address: &ListenAddress| {
            address.port == wanted.port
                && (address.host.is_none()
                    || wanted.host.is_none()
                    || (address.host, address.zone) == (wanted.host, wanted.zone))
        };
        self.listen.iter().flatten().filter_map(|socket| socket.address()).any(|address| takes(&address))
    }

    /// Makes the server a TLS server if its port or its routes need that. Returns its hosts; `None` if it stays plain
    /// HTTP.
    ///
    /// # Errors
    /// As [`hosts`](Self::hosts).
    fn enable_tls(&mut self, ports: Ports, build: &mut Build<'_>) -> Result<Option<BTreeSet<String>>, BuildError> {
        // A server that listens on the HTTPS port only is a TLS server even without connection policies.
        if self.policies.is_none() && self.listens_only_on(ports.https) {
            self.policies = Some(vec![TlsPolicy::default()]);
        }
        // From here on as in `automaticHTTPSPhase1` of caddyhttp/autohttps.go: a server needs TLS if its routes name
        // hosts.
        let hosts = self.hosts(build)?;
        if hosts.is_empty() && self.policies.as_ref().is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        self.policies.get_or_insert_with(|| vec![TlsPolicy::default()]);
        Ok(Some(hosts))
    }

    /// The hosts in the matchers of its top-level routes, except for skipped ones. Routes nested in handlers are
    /// ignored, as in Caddy.
    ///
    /// # Errors
    /// A placeholder in a host is known at load and empty.
    fn hosts(&self, build: &mut Build<'_>) -> Result<BTreeSet<String>, BuildError> {
        let routes = self.routes.as_array().into_iter().flatten();
        let sets = routes.filter_map(|route| route.get("match")?.as_array()).flatten();
        let written = sets.filter_map(|set| set.get("host")?.as_array()).flatten().filter_map(Value::as_str);
        let mut hosts = BTreeSet::new();
        for written in written {
            if let Some(placeholder) = empty_placeholder(written, build) {
                let expected = format!("a host: the evaluated placeholder {placeholder} is empty");
                return build
                    .at(format!("apps.http.servers.{}", self.name), |build| Err(build.refuse(written, expected)));
            }
            let host = build.expand_constants(written);
            if !self.automatic.skip.contains(&host) {
                hosts.insert(host);
            }
        }
        Ok(hosts)
    }
}

/// The output of automatic HTTPS for the whole configuration.
#[derive(Default)]
pub(super) struct AutomaticHttps {
    /// Names whose certificates the server must obtain.
    pub(super) managed: Vec<ManagedName>,
    /// Names whose certificates public authorities sign.
    pub(super) public: Vec<PublicName>,
    /// The names for which a handshake may obtain a certificate, if any.
    pub(super) on_demand: Option<OnDemand>,
    /// An additional server for redirects, if needed.
    pub(super) remaining: Option<Remaining>,
    /// The handler for the access records of the additional server: that of the first TLS server which has one, with
    /// the loggers of all hosts.
    pub(super) access_log: Option<Value>,
}

/// Adds the loggers of the hosts in `other` that `all` lacks.
fn merge_names(all: &mut Value, other: &Value) {
    let (Some(names), Some(others)) = (all["names"].as_object_mut(), other["names"].as_object()) else { return };
    for (host, loggers) in others {
        names.entry(host).or_insert_with(|| loggers.clone());
    }
}

/// Applies automatic HTTPS. Adds policies and redirect routes to `sites`, and adds authorities that are used but not
/// configured.
pub(super) fn arrange(
    sites: &mut [HttpsServer<'_>],
    inputs: Inputs<'_>,
    authorities: &mut Vec<CertificateAuthority>,
    build: &mut Build<'_>,
) -> Result<AutomaticHttps, PlanError> {
    let Inputs { ports, tls, loaded, has_other_challenges } = inputs;
    let mut arranged = AutomaticHttps::default();
    let loaded: HashSet<&str> = loaded.iter().map(String::as_str).collect();
    let mut managed_names = BTreeSet::new();
    let mut redirects = redirects::Redirects::default();
    for site in &mut *sites {
        let automatic = site.automatic;
        if automatic.disable || site.listens_only_on(ports.http) {
            continue;
        }
        let Some(hosts) = site.enable_tls(ports, build)? else { continue };
        match (&mut arranged.access_log, &site.access_log) {
            (Some(all), Some(other)) => merge_names(all, other),
            (all, other) => *all = all.take().or_else(|| other.clone()),
        }
        if !automatic.disable_certificates {
            let wanted = |host: &&String| names::qualifies(host) && !automatic.skip_certificates.contains(host);
            for host in hosts.iter().filter(wanted) {
                if automatic.ignore_loaded_certificates || !is_loaded(&loaded, &ascii(host, build)?) {
                    managed_names.insert(host.clone());
                }
            }
        }
        if !automatic.disable_redirects {
            redirects.record_site(site, &hosts, ports);
        }
    }
    let mut tailscale = BTreeSet::new();
    let mut any_managed = false;
    for name in managed_names.iter().chain(&tls.automate) {
        let ascii = ascii(name, build)?;
        if names::is_tailscale(&ascii) && tls.automation.naming(&ascii).is_none() {
            tailscale.insert(ascii);
        } else {
            // Names that only `automate` lists do not count here.
            any_managed |= managed_names.contains(name);
        }
    }
    let automation = tls.automation.with_tailscale(tailscale.into_iter().collect(), build)?;
    (arranged.managed, arranged.public) = managed(&managed_names, tls, &automation, authorities, build)?;
    arranged.remaining = redirects.place(sites, ports, any_managed);
    arranged.on_demand = OnDemand::new(&automation);
    if let Some(on_demand) = &arranged.on_demand
        && on_demand.uses_local_authority()
    {
        add_local(authorities);
    }
    if !arranged.public.is_empty() || arranged.on_demand.is_some() || has_other_challenges {
        redirects::answer_challenges(sites, &mut arranged.remaining, ports);
    }
    Ok(arranged)
}

/// Selects the issuer of each name. Fails for a wildcard whose issuers are public authorities without a DNS provider.
fn managed(
    names: &BTreeSet<String>,
    tls: &Tls,
    automation: &Automation,
    authorities: &mut Vec<CertificateAuthority>,
    build: &mut Build<'_>,
) -> Result<(Vec<ManagedName>, Vec<PublicName>), PlanError> {
    check_authorities(tls, authorities, build)?;
    // The name as written, for messages, and as in the certificate.
    let mut wanted = Vec::with_capacity(names.len() + tls.automate.len());
    for name in names {
        wanted.push((name.clone(), ascii(name, build)?));
    }
    wanted.extend(tls.automate.iter().chain(&tls.presented).map(|name| (name.clone(), name.clone())));
    wanted.sort_by(|one, other| one.1.cmp(&other.1));
    wanted.dedup_by(|one, other| one.1 == other.1);
    // A handshake for one of these names obtains its certificate.
    wanted.retain(|(_, name)| !issuer(name, automation).0.on_demand);
    let wildcards: Vec<String> =
        wanted.iter().map(|(_, name)| name.clone()).filter(|name| name.contains('*')).collect();
    let automated: HashSet<&String> = tls.automate.iter().collect();
    let (mut managed, mut public) = (Vec::new(), Vec::new());
    for (written, name) in wanted {
        // A managed wildcard certificate covers this name too. `automate` still requests a certificate of its own.
        if is_under_wildcard(&name, &wildcards) && !automated.contains(&name) {
            continue;
        }
        let signed = signed(name, automation).signable().ok_or(PlanError::NeedsDns { site: written })?;
        if signed.local().is_some_and(|name| name.authority == LOCAL) {
            add_local(authorities);
        }
        match signed {
            SignedName::Public(name) => public.push(name),
            SignedName::Local(name) => managed.push(name),
        }
    }
    Ok((managed, public))
}

/// Selects the authorities that sign a name's certificate.
fn signed(name: String, automation: &Automation) -> SignedName {
    let (policy, issuer) = issuer(&name, automation);
    signed_by(name, &policy, issuer)
}

/// Combines a name with its policy and the first issuer by it.
pub(super) fn signed_by(name: String, policy: &AutomationPolicy, issuer: Issuer) -> SignedName {
    let local = |issuer: &Issuer| {
        let Issuer::Internal { authority, lifetime, by_root } = issuer else { return None };
        Some(ManagedName {
            name: name.clone(),
            authority: authority.clone(),
            lifetime: *lifetime,
            by_root: *by_root,
            renewal_ratio: policy.renewal_ratio,
            key: policy.key,
            reuse_key: policy.reuse_key,
            storage: policy.storage.clone(),
        })
    };
    if let Some(local) = local(&issuer) {
        return SignedName::Local(local);
    }
    let public = |issuer: &Issuer| if let Issuer::Public(public) = issuer { Some(public.clone()) } else { None };
    let mut issuers: Vec<_> = policy.issuers.iter().filter_map(public).collect();
    if issuers.is_empty() {
        issuers.push(PublicIssuer::Acme(Box::default()));
    }
    let fallback = policy.issuers.iter().find_map(local);
    let ocsp = policy.ocsp.clone();
    SignedName::Public(PublicName {
        name,
        issuers,
        fallback,
        renewal_ratio: policy.renewal_ratio,
        key: policy.key,
        ocsp,
        storage: policy.storage.clone(),
    })
}

/// The automation policy of a name, and the first issuer by it.
fn issuer<'a>(name: &str, automation: &'a Automation) -> (Cow<'a, AutomationPolicy>, Issuer) {
    if let Some(naming) = automation.naming(name) {
        let policy = automation.policy(name).unwrap_or(naming);
        let by_default = || issuer_by_default(policy.lists_only_internal_names());
        return (Cow::Borrowed(policy), policy.issuers.first().cloned().unwrap_or_else(by_default));
    }
    let or_default = |policy: Option<&'a AutomationPolicy>| policy.map(Cow::Borrowed).unwrap_or_default();
    // Without automation policies the local authority also signs IP addresses, because Caddy's default public
    // authorities do not.
    if !names::is_public(name) || (names::is_address(name) && automation.policies.is_empty()) {
        return (or_default(automation.base()), issuer_by_default(true));
    }
    let policy = or_default(automation.policy(name));
    let issuer = policy.issuers.first().cloned().unwrap_or_else(|| issuer_by_default(false));
    (policy, issuer)
}

/// The issuer where none is configured: the local authority for names that no public authority signs, else Let's
/// Encrypt.
fn issuer_by_default(is_internal: bool) -> Issuer {
    if is_internal {
        Issuer::Internal { authority: LOCAL.to_owned(), lifetime: None, by_root: false }
    } else {
        Issuer::Public(PublicIssuer::Acme(Box::default()))
    }
}

/// Rejects an issuer that refers to an authority that is not configured.
fn check_authorities(tls: &Tls, authorities: &[CertificateAuthority], build: &mut Build<'_>) -> Result<(), BuildError> {
    for (policy_index, policy) in tls.automation.policies.iter().enumerate() {
        for (index, issuer) in policy.issuers.iter().enumerate() {
            let Issuer::Internal { authority, .. } = issuer else { continue };
            if authority != LOCAL && !authorities.iter().any(|known| known.id == *authority) {
                let place = format!("apps.tls.automation.policies[{policy_index}].issuers[{index}].ca");
                return build.at(place, |build| Err(build.refuse(authority, KNOWN_AUTHORITY)));
            }
        }
    }
    Ok(())
}

/// Whether a loaded certificate covers `name`, exactly or by wildcard.
fn is_loaded(loaded: &HashSet<&str>, name: &str) -> bool {
    let mut wildcards = loaded.iter().filter(|loaded| loaded.contains('*'));
    loaded.contains(name) || (!names::is_address(name) && wildcards.any(|loaded| names::matches_wildcard(loaded, name)))
}

fn is_under_wildcard(name: &str, wildcards: &[String]) -> bool {
    !names::is_address(name) && wildcards.iter().any(|other| other != name && names::matches_wildcard(other, name))
}

#[cfg(test)]
mod tests;
