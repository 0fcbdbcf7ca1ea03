//! Automation policies: for which names, by whom and how certificates are obtained.

use serde_json::{Map, Value, json};

use super::super::members::Members;
use super::names::{self, covers};

/// A policy; without names it is for all that no other is for.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Policy {
    pub(super) subjects: Vec<String>,
    /// Issuers by their index; without one, automatic HTTPS chooses.
    pub(super) issuers: Vec<usize>,
    /// What the JSON says of issuers.
    pub(super) written: Vec<Value>,
    pub(super) managers: Vec<Value>,
    pub(super) renewal_window_ratio: Option<Value>,
    pub(super) key_type: String,
    pub(super) on_demand: bool,
    pub(super) reuse_private_keys: bool,
    pub(super) no_ocsp_stapling: bool,
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
    /// Whether automatic HTTPS asks a public authority for a name. Wildcards of several levels are fine where the name is
    /// known only at the handshake.
    pub(super) fn certifies_publicly(&self, name: &str) -> bool {
        !names::is_address(name) && !names::is_internal(name) && (name.matches("*.").count() < 2 || self.on_demand)
    }

    /// Whether every name of it is for public authorities, and none has certificates elsewhere.
    pub(super) fn all_public(&self) -> bool {
        self.subjects.iter().all(|name| self.certifies_publicly(name) && !names::is_tailscale(name))
    }

    fn class(&self) -> Class {
        let public = self.subjects.iter().filter(|name| self.certifies_publicly(name)).count();
        match (self.subjects.len(), public) {
            (0, _) => Class::EveryName,
            (_, 0) => Class::Internal,
            (all, public) if all == public => Class::Public,
            _ => Class::Mixed,
        }
    }

    /// Whether every name of it is also one of `other`'s.
    fn within(&self, other: &Self) -> bool {
        let covered = |name: &String| other.subjects.iter().any(|pattern| covers(pattern, name));
        other.subjects.is_empty() || (!self.subjects.is_empty() && self.subjects.iter().all(covered))
    }

    /// Whether joining the two changes no name's issuer.
    fn same_issuers(&self, other: &Self) -> bool {
        if self.written != other.written {
            return self.is_plainly_internal() && other.is_plainly_internal();
        }
        if [self, other].iter().any(|policy| !policy.issuers.is_empty() || !policy.written.is_empty()) {
            return true;
        }
        let (own, theirs) = (self.class(), other.class());
        own == theirs || own == Class::EveryName || theirs == Class::EveryName
    }

    fn is_plainly_internal(&self) -> bool {
        self.issuers.is_empty()
            && match self.written.as_slice() {
                [] => self.class() == Class::Internal,
                [only] => *only == json!({ "module": "internal" }),
                _ => false,
            }
    }

    /// Whether the two differ in nothing but their names.
    fn same_but_for_names(&self, other: &Self) -> bool {
        self.same_issuers(other)
            && self.managers == other.managers
            && self.key_type == other.key_type
            && self.on_demand == other.on_demand
            && self.reuse_private_keys == other.reuse_private_keys
            && self.renewal_window_ratio == other.renewal_window_ratio
    }

    /// Whether it says nothing but names and these managers.
    fn says_only(&self, managers: &[Value]) -> bool {
        self.managers == managers
            && self.issuers.is_empty()
            && self.written.is_empty()
            && self.renewal_window_ratio.is_none()
            && self.key_type.is_empty()
            && !(self.on_demand || self.reuse_private_keys || self.no_ocsp_stapling)
    }

    pub(super) fn json(&self) -> Value {
        let mut json = Map::new();
        json.list("subjects", self.subjects.iter().map(|name| name.as_str().into()).collect());
        json.list("issuers", self.written.clone());
        json.list("get_certificate", self.managers.clone());
        if let Some(ratio) = &self.renewal_window_ratio {
            json.insert("renewal_window_ratio".into(), ratio.clone());
        }
        json.text("key_type", &self.key_type);
        let switches = [
            ("on_demand", self.on_demand),
            ("reuse_private_keys", self.reuse_private_keys),
            ("disable_ocsp_stapling", self.no_ocsp_stapling),
        ];
        for (key, _) in switches.into_iter().filter(|(_, on)| *on) {
            json.switch_on(key);
        }
        json.into()
    }
}

/// The order of the policies, most specific first; those that say nothing, or nothing new, are left out, and equal ones are
/// joined. One that stands there more than once grows everywhere.
pub(super) fn consolidate(policies: &mut [Policy], mut order: Vec<usize>) -> Vec<usize> {
    super::super::sort::sort(&mut order, |&a, &b| {
        let (a, b) = (&policies[a], &policies[b]);
        a.within(b) || (!b.within(a) && a.subjects.len() > b.subjects.len())
    });
    if order.iter().all(|&index| policies[index].says_only(&[])) {
        return Vec::new();
    }
    drop_silent(policies, &mut order);
    let mut index = 0;
    'policies: while index < order.len() {
        let mut later = index + 1;
        while later < order.len() {
            let (own, other) = (&policies[order[index]], &policies[order[later]]);
            if own == other {
                order.remove(later);
                later = index + 1;
                continue;
            }
            if !own.same_but_for_names(other) {
                later += 1;
                continue;
            }
            if other.subjects.is_empty() && !own.subjects.is_empty() {
                // The later one is for every name, this one's included, unless one in between comes first.
                if shadowed(index, policies, &order).is_some_and(|shadowed| shadowed >= later) {
                    order.remove(index);
                    continue 'policies;
                }
                later += 1;
                continue;
            }
            if crosses(index, later, policies, &order) {
                later += 1;
                continue;
            }
            let more = other.subjects.clone();
            order.remove(later);
            let own = &mut policies[order[index]].subjects;
            for name in more {
                if !own.contains(&name) {
                    own.push(name);
                }
            }
        }
        index += 1;
    }
    order
}

/// Leaves out policies that say nothing, but for those that keep a name from a later one that does.
fn drop_silent(policies: &[Policy], order: &mut Vec<usize>) {
    let mut index = 0;
    while index < order.len() {
        let useless = |shadowed: usize| {
            let later = &policies[order[shadowed]];
            // A wildcard's managers are also asked for the names that it covers.
            later.says_only(&later.managers)
        };
        let last = index + 1 == order.len();
        if policies[order[index]].says_only(&[]) && (last || shadowed(index, policies, order).is_some_and(useless)) {
            order.remove(index);
        } else {
            index += 1;
        }
    }
}

/// The first later policy that is for all of a policy's names too.
fn shadowed(index: usize, policies: &[Policy], order: &[usize]) -> Option<usize> {
    (index + 1..order.len()).find(|&later| policies[order[index]].within(&policies[order[later]]))
}

/// Whether a policy in between is for a name of the later one, which would then be found at another place.
fn crosses(index: usize, later: usize, policies: &[Policy], order: &[usize]) -> bool {
    let between = order[index + 1..later].iter().flat_map(|&between| &policies[between].subjects);
    between
        .into_iter()
        .any(|name| policies[order[later]].subjects.iter().any(|other| covers(other, name) || covers(name, other)))
}
