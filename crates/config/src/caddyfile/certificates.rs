//! The TLS app, as far as site addresses alone ask for it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::Site;
use super::error::{Error, ErrorKind};
use super::options::Options;
use super::servers::Pairing;

/// Names that share an issuer; without one, automatic HTTPS chooses.
#[derive(Debug, Clone, PartialEq)]
struct Policy {
    subjects: Vec<String>,
    internal: bool,
}

impl Policy {
    /// Whether every name of it is also one of `other`'s; a policy without names is for all.
    fn within(&self, other: &Self) -> bool {
        let covered = |name: &String| other.subjects.iter().any(|pattern| covers(pattern, name));
        other.subjects.is_empty() || (!self.subjects.is_empty() && self.subjects.iter().all(covered))
    }
}

/// Which issuer automatic HTTPS chooses for names without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Public,
    Internal,
    Mixed,
    EveryName,
}

impl Policy {
    fn class(&self) -> Class {
        let internal = self.subjects.iter().filter(|name| is_private(name)).count();
        match (self.subjects.len(), internal) {
            (0, _) => Class::EveryName,
            (_, 0) => Class::Public,
            (all, internal) if all == internal => Class::Internal,
            _ => Class::Mixed,
        }
    }

    /// Whether joining the two changes no name's issuer.
    fn same_issuer(&self, other: &Self) -> bool {
        let (own, theirs) = (self.class(), other.class());
        match (self.internal, other.internal) {
            (true, true) => true,
            (false, false) => own == theirs || own == Class::EveryName || theirs == Class::EveryName,
            (true, false) => theirs == Class::Internal,
            (false, true) => own == Class::Internal,
        }
    }
}

/// The app's members; none if it needs no configuration.
pub(crate) fn tls_app(pairings: &[Pairing], sites: &[Site], options: &Options) -> Result<Map<String, Value>, Error> {
    let http_port = options.http_port();
    let mut policies = Vec::new();
    let mut hostless: Vec<usize> = Vec::new();
    let mut shared: BTreeSet<&str> = BTreeSet::new();
    for pairing in pairings {
        let secure = pairing.leaves_port(&http_port);
        for share in &pairing.shares {
            let own = || share.addresses(sites).filter(|address| address.scheme != "http" && address.port != http_port);
            let names: BTreeSet<&str> = own().map(|address| &*address.host).filter(|host| !host.is_empty()).collect();
            // Hosts beside an address for every host appear in no matcher, so automatic HTTPS would not find them.
            if share.addresses(sites).any(|address| address.host.is_empty()) {
                shared.extend(&names);
            }
            if !secure || share.addresses(sites).all(|address| address.scheme == "http") {
                continue;
            }
            if let Some(name) = names.iter().find(|name| !qualifies(name)) {
                let rule = "subject does not qualify for certificate: '{}'";
                let at = sites[share.site].keys[0].at.clone();
                return Err(Error::new(at, ErrorKind::Word { rule, found: (*name).into() }));
            }
            let (internal, external): (Vec<_>, Vec<_>) = names
                .iter()
                .filter(|name| !name.to_lowercase().ends_with(".ts.net"))
                .map(|name| String::from(*name))
                .partition(|name| is_private(name));
            let split = !internal.is_empty() && !external.is_empty();
            let subjects = if split { external } else { names.iter().map(|name| String::from(*name)).collect() };
            // Caddy has one policy for all sites that are for every host: the names of the last are those of all.
            if share.addresses(sites).any(|address| address.host.is_empty()) {
                for &index in &hostless {
                    let policy: &mut Policy = &mut policies[index];
                    policy.subjects.clone_from(&subjects);
                }
                hostless.push(policies.len());
            }
            policies.push(Policy { subjects, internal: false });
            if split {
                policies.push(Policy { subjects: internal, internal: true });
            }
        }
    }
    let mut tls = Map::new();
    if !options.auto_https("off") && !options.auto_https("disable_certs") && !shared.is_empty() {
        tls.insert("certificates".into(), json!({ "automate": Vec::from_iter(&shared) }));
        let internal = shared.iter().filter(|name| is_internal(name) || is_wide(name)).map(|name| String::from(*name));
        let subjects = Vec::from_iter(internal);
        if !subjects.is_empty() {
            policies.push(Policy { subjects, internal: true });
        }
    }
    let policies = consolidate(policies);
    if !policies.is_empty() {
        let policies = Vec::from_iter(policies.iter().map(|policy| {
            let mut json = Map::new();
            if !policy.subjects.is_empty() {
                json.insert("subjects".into(), policy.subjects.clone().into());
            }
            if policy.internal {
                json.insert("issuers".into(), json!([{ "module": "internal" }]));
            }
            Value::Object(json)
        }));
        tls.insert("automation".into(), json!({ "policies": policies }));
    }
    Ok(tls)
}

/// Most specific first; policies that say nothing, or nothing new, are left out.
fn consolidate(mut policies: Vec<Policy>) -> Vec<Policy> {
    super::route::insertion_sort(&mut policies, |a, b| {
        a.within(b) || (!b.within(a) && a.subjects.len() > b.subjects.len())
    });
    if policies.iter().all(|policy| !policy.internal) {
        return Vec::new();
    }
    let shadowed = |index: usize, policies: &[Policy]| {
        (index + 1..policies.len()).find(|&later| policies[index].within(&policies[later]))
    };
    let mut index = 0;
    while index < policies.len() {
        let useless =
            index + 1 == policies.len() || shadowed(index, &policies).is_some_and(|later| !policies[later].internal);
        if !policies[index].internal && useless {
            policies.remove(index);
        } else {
            index += 1;
        }
    }
    let mut index = 0;
    'policies: while index < policies.len() {
        let mut later = index + 1;
        while later < policies.len() {
            if policies[index] == policies[later] {
                policies.remove(later);
                continue;
            }
            if !policies[index].same_issuer(&policies[later]) {
                later += 1;
                continue;
            }
            if policies[later].subjects.is_empty() && !policies[index].subjects.is_empty() {
                // The later one is for every name, this one's included, unless one in between comes first.
                if shadowed(index, &policies).is_some_and(|shadowed| shadowed >= later) {
                    policies.remove(index);
                    continue 'policies;
                }
                later += 1;
                continue;
            }
            let between = policies[index + 1..later].iter().flat_map(|policy| &policy.subjects);
            let crosses = between
                .into_iter()
                .any(|name| policies[later].subjects.iter().any(|other| covers(other, name) || covers(name, other)));
            if crosses {
                later += 1;
                continue;
            }
            let merged = policies.remove(later).subjects;
            let own = &mut policies[index].subjects;
            let new = merged.into_iter().filter(|name| !own.contains(name)).collect::<Vec<_>>();
            own.extend(new);
        }
        index += 1;
    }
    policies
}

/// Whether a name is meant by a pattern, whose `*` stand for whole labels.
fn covers(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let labels = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (pattern, name) = (labels(&pattern), labels(&name));
    pattern.len() == name.len() && pattern.iter().zip(&name).all(|(own, label)| own == "*" || own == label)
}

fn qualifies(name: &str) -> bool {
    !name.trim().is_empty()
        && !name.starts_with('.')
        && !name.ends_with('.')
        && (!name.contains('*') || name.starts_with("*.") || name == "*")
        && !name.contains(|ch| "()[]{}<> \t\n\"\\!@#$%^&|;'+=".contains(ch))
}

/// Names that no public authority certifies.
fn is_internal(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || [".localhost", ".local", ".internal", ".home.arpa"].iter().any(|suffix| name.ends_with(suffix))
}

/// Names that automatic HTTPS gives internal certificates.
fn is_private(name: &str) -> bool {
    is_internal(name) || name.matches("*.").count() >= 2
}

/// A wildcard beyond what public authorities certify: one, in front of at least two labels.
fn is_wide(name: &str) -> bool {
    name.contains('*') && !(name.matches('*').count() == 1 && name.matches('.').count() > 1 && name.starts_with("*."))
}
