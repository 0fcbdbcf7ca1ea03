//! Caddy's automatic HTTPS: which servers speak TLS, for which names certificates are obtained, and where requests in the clear are
//! sent.
//!
//! - `names`: which names may have a certificate, and of whom
//! - `redirects`: from the clear to TLS

mod names;
mod redirects;

use std::collections::{BTreeSet, HashSet};

use causeway_pipeline::{Build, BuildError, ListenAddress, TlsPolicy};
use serde::Deserialize;
use serde_json::Value;

use super::LoadError;
use super::certificates::{CertificateAuthority, ManagedName};
use super::pki::LOCAL;
use super::tls::{Issuer, Policy, Tls, ascii, known, matches_wildcard};
pub(super) use redirects::{Inserted, Remaining, SERVER as REDIRECTS};

/// The ports that stand for the schemes.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) http: u16,
    pub(super) https: u16,
}

/// A server's `automatic_https`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Automatic {
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

/// A server as automatic HTTPS sees it.
pub(super) struct Site<'c> {
    pub(super) automatic: &'c Automatic,
    pub(super) routes: &'c Value,
    /// A written address and the range of ports that it stands for.
    pub(super) listen: Vec<Vec<ListenAddress>>,
    /// How it protects its connections; with none, or an empty list, not at all.
    pub(super) policies: Option<Vec<TlsPolicy>>,
    /// What it gets besides its own routes.
    pub(super) inserted: Option<Inserted>,
    pub(super) access_log: bool,
}

impl Site<'_> {
    /// Whether one of its addresses is not that port.
    fn is_elsewhere_than(&self, port: u16) -> bool {
        self.listen.iter().any(|range| range.iter().all(|address| address.port != port))
    }

    /// Whether it takes the connections to an address. A port on every address is in the way of one address's, on Linux.
    fn listens_on(&self, wanted: ListenAddress) -> bool {
        let takes = |address: &ListenAddress| {
            address.port == wanted.port
                && (address.host == wanted.host || address.host.is_none() || wanted.host.is_none())
        };
        self.listen.iter().flatten().any(takes)
    }

    /// Hosts that its own routes name; those within handlers are not looked at.
    fn hosts(&self, build: &mut Build<'_>) -> BTreeSet<String> {
        let routes = self.routes.as_array().into_iter().flatten();
        let sets = routes.filter_map(|route| route.get("match")?.as_array()).flatten();
        let hosts = sets.filter_map(|set| set.get("host")?.as_array()).flatten().filter_map(Value::as_str);
        hosts.map(|host| known(host, build)).filter(|host| !self.automatic.skip.contains(host)).collect()
    }
}

/// What automatic HTTPS comes to, besides what it does to the servers.
#[derive(Default)]
pub(super) struct Arranged {
    /// Names whose certificates are ours to obtain.
    pub(super) managed: Vec<ManagedName>,
    /// A server more.
    pub(super) remaining: Option<Remaining>,
    /// Whether that one leaves access records.
    pub(super) access_log: bool,
}

/// Arranges it. `loaded` are the names of certificates that the operator has; authorities that are needed and not named are added.
pub(super) fn arrange(
    sites: &mut [Site<'_>],
    ports: Ports,
    tls: &Tls,
    loaded: &[String],
    authorities: &mut Vec<CertificateAuthority>,
    build: &mut Build<'_>,
) -> Result<Arranged, LoadError> {
    let mut arranged = Arranged::default();
    let loaded: HashSet<&str> = loaded.iter().map(String::as_str).collect();
    let mut names = BTreeSet::new();
    let mut redirects = redirects::Redirects::default();
    for site in &mut *sites {
        let automatic = site.automatic;
        if automatic.disable || !site.is_elsewhere_than(ports.http) {
            continue;
        }
        // Who listens on the HTTPS port only means TLS without saying so.
        if site.policies.is_none() && !site.is_elsewhere_than(ports.https) {
            site.policies = Some(vec![TlsPolicy::default()]);
        }
        let hosts = site.hosts(build);
        if hosts.is_empty() && site.policies.as_ref().is_none_or(Vec::is_empty) {
            continue;
        }
        arranged.access_log |= site.access_log;
        if !automatic.disable_certificates {
            let wanted = hosts.iter().filter(|host| {
                names::qualifies(host)
                    && !automatic.skip_certificates.contains(host)
                    && (automatic.ignore_loaded_certificates || !covers(&loaded, &ascii(host, build)))
            });
            names.extend(wanted.cloned());
        }
        if site.policies.is_none() {
            site.policies = Some(vec![TlsPolicy::default()]);
        }
        if automatic.disable_redirects {
            continue;
        }
        for range in &site.listen {
            let Some(&first) = range.first() else { continue };
            if hosts.is_empty() {
                redirects.record("", first, ports);
            }
            for host in &hosts {
                redirects.record(host, first, ports);
            }
        }
    }
    arranged.remaining = redirects.place(sites, ports, !names.is_empty());
    arranged.managed = managed(&names, tls, authorities, build)?;
    Ok(arranged)
}

/// Who signs each name; what cannot be signed by any of ours is refused.
fn managed(
    names: &BTreeSet<String>,
    tls: &Tls,
    authorities: &mut Vec<CertificateAuthority>,
    build: &mut Build<'_>,
) -> Result<Vec<ManagedName>, LoadError> {
    check_authorities(tls, authorities, build)?;
    // As written, for messages, and as it is in the certificate.
    let mut wanted: Vec<(String, String)> = names.iter().map(|name| (name.clone(), ascii(name, build))).collect();
    wanted.extend(tls.automate.iter().map(|name| (name.clone(), name.clone())));
    wanted.sort_by(|one, other| one.1.cmp(&other.1));
    wanted.dedup_by(|one, other| one.1 == other.1);
    let wildcards: Vec<String> =
        wanted.iter().map(|(_, name)| name.clone()).filter(|name| name.contains('*')).collect();
    let automated: HashSet<&String> = tls.automate.iter().collect();
    let mut managed = Vec::new();
    for (written, name) in wanted {
        // A wildcard that is managed too makes another certificate needless, unless it was asked for by name.
        if is_under_wildcard(&name, &wildcards) && !automated.contains(&name) {
            continue;
        }
        let (policy, issuer) = issuer(&name, tls);
        let Issuer::Internal { authority, lifetime, by_root } = issuer else {
            return Err(LoadError::NeedsAcme { site: written });
        };
        if authority == LOCAL && !authorities.iter().any(|known| known.id == LOCAL) {
            authorities.push(CertificateAuthority::new(LOCAL));
        }
        managed.push(ManagedName {
            name,
            authority,
            lifetime,
            by_root,
            renewal_ratio: policy.renewal_ratio,
            key: policy.key,
            reuse_key: policy.reuse_key,
        });
    }
    Ok(managed)
}

/// The policy of a name, and who signs first by it.
fn issuer(name: &str, tls: &Tls) -> (Policy, Issuer) {
    let internal = Issuer::Internal { authority: LOCAL.to_owned(), lifetime: None, by_root: false };
    let automation = &tls.automation;
    let is_public = |name: &str| names::qualifies_publicly(name);
    if let Some(naming) = automation.naming(name) {
        let policy = automation.policy(name).unwrap_or(naming).clone();
        // A policy that names only what no public authority signs, and names no issuer, means ours.
        let ours = policy.issuers.is_empty() && policy.subjects.iter().all(|subject| !is_public(subject));
        let issuer = policy.issuers.first().cloned().unwrap_or(if ours { internal } else { Issuer::Public });
        return (policy, issuer);
    }
    // Addresses are ours where nobody said otherwise: the public authorities that are asked by default do not sign them.
    if !is_public(name) || (names::is_ip(name) && automation.policies.is_empty()) {
        return (automation.base().cloned().unwrap_or_default(), internal);
    }
    let policy = automation.policy(name).cloned().unwrap_or_default();
    let issuer = policy.issuers.first().cloned().unwrap_or(Issuer::Public);
    (policy, issuer)
}

/// Every issuer's authority is one that there is.
fn check_authorities(tls: &Tls, authorities: &[CertificateAuthority], build: &mut Build<'_>) -> Result<(), BuildError> {
    for (policy_index, policy) in tls.automation.policies.iter().enumerate() {
        for (index, issuer) in policy.issuers.iter().enumerate() {
            let Issuer::Internal { authority, .. } = issuer else { continue };
            if authority != LOCAL && !authorities.iter().any(|known| known.id == *authority) {
                let place = format!("apps.tls.automation.policies[{policy_index}].issuers[{index}].ca");
                let expected = "'local', or an authority that the option `pki` names";
                return build.at(place, |build| Err(build.refuse(authority, expected)));
            }
        }
    }
    Ok(())
}

/// Whether a certificate that is loaded is for it, by name or by wildcard.
fn covers(loaded: &HashSet<&str>, name: &str) -> bool {
    let mut wildcards = loaded.iter().filter(|loaded| loaded.contains('*'));
    loaded.contains(name) || (!names::is_ip(name) && wildcards.any(|loaded| matches_wildcard(name, loaded)))
}

fn is_under_wildcard(name: &str, wildcards: &[String]) -> bool {
    !names::is_ip(name) && wildcards.iter().any(|other| other != name && matches_wildcard(name, other))
}

#[cfg(test)]
mod tests;
