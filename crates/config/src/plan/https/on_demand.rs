//! On-demand TLS: names whose certificates are obtained when a handshake needs them.

use std::collections::HashSet;

use super::super::certificates::{CertificateGetter, ManagedName, PublicIssuer, PublicName};
use super::super::pki::LOCAL;
use super::super::storage::Storage;
use super::super::tls::{Automation, Issuer};
use super::{issuer_by_default, signed_by};
use crate::names;

/// Selects the names for which a handshake may obtain a certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct OnDemand {
    automation: Automation,
}

/// A name, and the authorities that sign its certificate.
#[derive(Debug, Clone, PartialEq)]
pub enum SignedName {
    /// By a local authority.
    Local(ManagedName),
    /// By public authorities.
    Public(PublicName),
}

impl SignedName {
    /// Leaves out the issuers that cannot sign a wildcard, those without a DNS provider. `None`: there is no other one.
    pub(in crate::plan) fn signable(self) -> Option<Self> {
        match self {
            Self::Public(mut name) if name.name.contains('*') => {
                name.issuers.retain(|issuer| issuer.dns().is_some());
                if name.issuers.is_empty() { name.fallback.map(Self::Local) } else { Some(Self::Public(name)) }
            }
            signed => Some(signed),
        }
    }

    /// Returns the settings of the local authority, if one may sign.
    pub(in crate::plan) fn local(&self) -> Option<&ManagedName> {
        match self {
            Self::Local(name) => Some(name),
            Self::Public(name) => name.fallback.as_ref(),
        }
    }
}

impl OnDemand {
    /// `None` if no automation policy is on demand.
    pub(super) fn new(automation: &Automation) -> Option<Self> {
        let is_used = automation.policies.iter().any(|policy| policy.on_demand);
        is_used.then(|| Self { automation: automation.clone() })
    }

    /// The URL that allows or denies a name: `GET` with the query `domain=NAME`, and a status of 2xx to allow it.
    /// `None`: every name for which [`name`](Self::name) returns authorities is allowed.
    pub fn permission(&self) -> Option<&str> {
        self.automation.permission.as_deref()
    }

    /// Returns the sources that a handshake for this server name queries first, in order. The name is in lower-case
    /// ASCII, and empty if the client sent none.
    pub fn getters(&self, name: &str) -> Vec<CertificateGetter> {
        let Some(policy) = self.automation.policy(name) else { return Vec::new() };
        let is_for_name =
            |getter: &&CertificateGetter| **getter != CertificateGetter::Tailscale || names::is_tailscale(name);
        policy.getters.iter().filter(is_for_name).cloned().collect()
    }

    /// Returns all sources of certificates in the configuration, each once.
    pub fn all_getters(&self) -> HashSet<&CertificateGetter> {
        self.automation.policies.iter().flat_map(|policy| &policy.getters).collect()
    }

    /// Returns the storages of the policies that have their own.
    pub fn storages(&self) -> impl Iterator<Item = &Storage> {
        self.automation.policies.iter().filter_map(|policy| policy.storage.as_ref())
    }

    /// Returns how to obtain a certificate for a server name in lower-case ASCII; `None` if its policy is not on
    /// demand, or no certificate can be issued for the name.
    pub fn name(&self, name: &str) -> Option<SignedName> {
        if name.contains('*') || !names::qualifies(name) {
            return None;
        }
        // The first policy that matches, for internal names too: automatic HTTPS has no part in a handshake.
        let policy = self.automation.policy(name)?;
        if !policy.on_demand || policy.is_signing_forbidden {
            return None;
        }
        let is_internal = policy.lists_only_internal_names() || (policy.subjects.is_empty() && !names::is_public(name));
        let issuer = policy.issuers.first().cloned().unwrap_or_else(|| issuer_by_default(is_internal));
        match signed_by(name.to_owned(), policy, issuer) {
            SignedName::Local(name) if name.authority == LOCAL && !self.uses_local_authority() => None,
            // A private authority may sign names that a public one refuses.
            SignedName::Public(public)
                if !names::is_public(name) && public.issuers.iter().all(PublicIssuer::is_known_to_be_public) =>
            {
                public.fallback.map(SignedName::Local)
            }
            signed => Some(signed),
        }
    }

    /// Whether the local authority may sign at a handshake: a policy on demand names it, or has no issuer and lists
    /// only internal names.
    pub(super) fn uses_local_authority(&self) -> bool {
        let mut policies =
            self.automation.policies.iter().filter(|policy| policy.on_demand && !policy.is_signing_forbidden);
        policies.any(|policy| match policy.issuers.as_slice() {
            [] => policy.lists_only_internal_names(),
            issuers => {
                issuers.iter().any(|issuer| matches!(issuer, Issuer::Internal { authority, .. } if authority == LOCAL))
            }
        })
    }
}
