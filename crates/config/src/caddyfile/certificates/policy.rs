//! Automation policies: the issuers and settings for a set of names.

use serde_json::{Map, Value, json};

use super::super::members::Members;
use crate::names::{self, covers};

/// A policy. Without subjects it applies to all names that no other policy has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct AutomationPolicyDraft {
    pub(super) subjects: Vec<String>,
    /// Indexes of its issuers. Empty: automatic HTTPS chooses.
    pub(super) issuers: Vec<usize>,
    /// The issuers in the JSON.
    pub(super) written: Vec<Value>,
    pub(super) getters: Vec<Value>,
    pub(super) renewal_window_ratio: Option<Value>,
    pub(super) key_type: String,
    pub(super) on_demand: bool,
    pub(super) reuse_private_keys: bool,
    pub(super) no_ocsp_stapling: bool,
}

/// The kind of issuer that automatic HTTPS chooses for a policy without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Public,
    Internal,
    Mixed,
    EveryName,
}

impl AutomationPolicyDraft {
    /// Whether automatic HTTPS would use a public authority for a name. A wildcard of several levels qualifies only
    /// with on-demand TLS, where the concrete name is known at the handshake.
    pub(super) fn certifies_publicly(&self, name: &str) -> bool {
        !names::is_address(name) && !names::is_internal(name) && (name.matches("*.").count() < 2 || self.on_demand)
    }

    /// Whether all names use public authorities and none is supplied by Tailscale.
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

    /// Whether `other` covers all names of this policy.
    fn within(&self, other: &Self) -> bool {
        let covered = |name: &String| other.subjects.iter().any(|pattern| covers(pattern, name));
        other.subjects.is_empty() || (!self.subjects.is_empty() && self.subjects.iter().all(covered))
    }

    /// Whether joining the two policies changes no name's issuer.
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

    /// Whether the two differ only in their names.
    fn same_but_for_names(&self, other: &Self) -> bool {
        self.same_issuers(other)
            && self.getters == other.getters
            && self.key_type == other.key_type
            && self.on_demand == other.on_demand
            && self.reuse_private_keys == other.reuse_private_keys
            && self.renewal_window_ratio == other.renewal_window_ratio
    }

    /// Whether the policy has no settings except for names and these getters.
    fn has_only_getters(&self, getters: &[Value]) -> bool {
        self.getters == getters
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
        json.list("get_certificate", self.getters.clone());
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

/// Sorts the policies, most specific first, omits those without settings and those that repeat an earlier one, and
/// joins equal ones. If a policy occurs more than once in `order`, each occurrence gets the joined names.
pub(super) fn consolidate(policies: &mut [AutomationPolicyDraft], mut order: Vec<usize>) -> Vec<usize> {
    super::super::sort::sort(&mut order, |&a, &b| {
        let (a, b) = (&policies[a], &policies[b]);
        a.within(b) || (!b.within(a) && a.subjects.len() > b.subjects.len())
    });
    if order.iter().all(|&index| policies[index].has_only_getters(&[])) {
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
                // The later policy also covers all names of this one, unless a policy between them takes precedence.
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

/// Omits policies without settings, except for those that keep their names from a later policy with settings.
fn drop_silent(policies: &[AutomationPolicyDraft], order: &mut Vec<usize>) {
    let mut index = 0;
    while index < order.len() {
        let useless = |shadowed: usize| {
            let later = &policies[order[shadowed]];
            // A wildcard's getters also supply the names that it covers.
            later.has_only_getters(&later.getters)
        };
        let last = index + 1 == order.len();
        if policies[order[index]].has_only_getters(&[])
            && (last || shadowed(index, policies, order).is_some_and(useless))
        {
            order.remove(index);
        } else {
            index += 1;
        }
    }
}

/// The position of the first later policy that covers all names of the one at `index`.
fn shadowed(index: usize, policies: &[AutomationPolicyDraft], order: &[usize]) -> Option<usize> {
    (index + 1..order.len()).find(|&later| policies[order[index]].within(&policies[order[later]]))
}

/// Whether a policy in between shares a name with the later one. Joining would then change which policy that name finds
/// first.
fn crosses(index: usize, later: usize, policies: &[AutomationPolicyDraft], order: &[usize]) -> bool {
    let between = order[index + 1..later].iter().flat_map(|&between| &policies[between].subjects);
    between
        .into_iter()
        .any(|name| policies[order[later]].subjects.iter().any(|other| covers(other, name) || covers(name, other)))
}
