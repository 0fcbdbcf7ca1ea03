//! `admin.identity`: the names by which other programs know this server, and the issuers of their certificates.

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::PlanError;
use super::super::certificates::{CertificateAuthority, Certificates, PublicIssuer};
use super::super::https::{SignedName, signed_by};
use super::super::pki::LOCAL;
use super::super::tls::{AutomationPolicy, Issuer, Tls, ascii, read_issuers};
use crate::names;

/// The server's identity.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Host names and IP addresses, in lower-case ASCII.
    pub identifiers: Vec<String>,
    /// Their certificates, which only the remote admin API and loaders use.
    pub certificates: Certificates,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdentityConfig {
    #[serde(default)]
    pub(super) identifiers: Vec<String>,
    #[serde(default)]
    issuers: Option<Vec<Map<String, Value>>>,
}

impl IdentityConfig {
    /// `authorities`: those that the configuration describes.
    pub(super) fn read(
        &self,
        tls: &Tls,
        authorities: &[CertificateAuthority],
        build: &mut Build<'_>,
    ) -> Result<Identity, PlanError> {
        let identifiers = build.at("identifiers", |build| self.identifiers(build))?;
        let issuers = build.at("issuers", |build| self.issuers(tls, authorities, build))?;
        let mut certificates = Certificates {
            cleaning: tls.cleaning,
            renewal_check_interval: tls.automation.renewal_check_interval,
            ..Certificates::default()
        };
        let policy = AutomationPolicy { issuers, ..AutomationPolicy::default() };
        let Some(first) = policy.issuers.first() else { return Ok(Identity { identifiers, certificates }) };
        for name in &identifiers {
            let signed = signed_by(name.clone(), &policy, first.clone()).signable();
            let signed = signed.ok_or_else(|| PlanError::NeedsDns { site: name.clone() })?;
            if let Some(local) = signed.local()
                && !certificates.authorities.iter().any(|known| known.id == local.authority)
            {
                let known = authorities.iter().find(|known| known.id == local.authority).cloned();
                let known = known.unwrap_or_else(|| CertificateAuthority::new(&local.authority));
                certificates.authorities.push(known);
            }
            match signed {
                SignedName::Local(name) => certificates.managed.push(name),
                SignedName::Public(name) => certificates.public.push(name),
            }
        }
        certificates.acme_issuers = policy.acme_issuers("admin.identity").collect();
        certificates.dns_providers = policy.dns_providers().cloned().collect();
        Ok(Identity { identifiers, certificates })
    }

    fn identifiers(&self, build: &mut Build<'_>) -> Result<Vec<String>, BuildError> {
        let mut identifiers = Vec::with_capacity(self.identifiers.len());
        for (index, written) in self.identifiers.iter().enumerate() {
            let name = build.at(format!("[{index}]"), |build| {
                let name = ascii(written, build)?;
                if names::qualifies(&name) {
                    return Ok(name);
                }
                Err(build.refuse(name, "a host name or an IP address that a certificate can contain"))
            })?;
            if !identifiers.contains(&name) {
                identifiers.push(name);
            }
        }
        Ok(identifiers)
    }

    fn issuers(
        &self,
        tls: &Tls,
        authorities: &[CertificateAuthority],
        build: &mut Build<'_>,
    ) -> Result<Vec<Issuer>, BuildError> {
        // Caddy's default, which is not that of the sites: it signs no private names.
        let Some(written) = &self.issuers else { return Ok(vec![Issuer::Public(PublicIssuer::Acme(Box::default()))]) };
        if written.is_empty() {
            return Err(build.refuse("[]", "one issuer at least, as {\"module\": \"internal\"}"));
        }
        let issuers = read_issuers(written, &tls.dns, build)?;
        for (index, issuer) in issuers.iter().enumerate() {
            let Issuer::Internal { authority, .. } = issuer else { continue };
            if authority != LOCAL && !authorities.iter().any(|known| known.id == *authority) {
                let expected = "'local', or an authority of the app `pki`";
                return build.at(format!("[{index}].ca"), |build| Err(build.refuse(authority, expected)));
            }
        }
        Ok(issuers)
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use serde_json::json;

    use super::super::super::load;
    use super::*;

    fn read(identity: &Value) -> Result<Option<Identity>, String> {
        let loaded = load(&json!({ "admin": { "identity": identity } }), &Registry::default());
        loaded.map(|loaded| loaded.admin.identity).map_err(|error| error.to_string())
    }

    // Caddy's documentation of `admin.identity`: certificates for these names, by ACME unless other issuers are
    // configured.
    #[test]
    fn identities() {
        let internal =
            json!({ "identifiers": ["A.example", "10.0.0.1", "a.example"], "issuers": [{ "module": "internal" }] });
        let identity = read(&internal).unwrap().unwrap();
        assert_eq!(identity.identifiers, ["a.example", "10.0.0.1"]);
        let managed: Vec<_> =
            identity.certificates.managed.iter().map(|name| (&*name.name, &*name.authority)).collect();
        assert_eq!(managed, [("a.example", "local"), ("10.0.0.1", "local")]);
        assert_eq!(identity.certificates.authorities.len(), 1);
        // The sites' default issuer of an IP address is the local authority.
        let public = read(&json!({ "identifiers": ["10.0.0.1"] })).unwrap().unwrap().certificates;
        assert_eq!((public.managed.len(), public.public.len(), public.public[0].issuers.len()), (0, 1, 1));
        assert_eq!(read(&json!(null)), Ok(None));
        assert_eq!(read(&json!({})).unwrap().unwrap().identifiers, [""; 0]);
    }

    #[test]
    fn mistakes() {
        for (identity, want) in [
            (
                json!({ "identifiers": ["a b"] }),
                ".identifiers[0]: found 'a b', expected a host name or an IP address that a certificate can contain",
            ),
            (
                json!({ "identifiers": ["a"], "issuers": [] }),
                ".issuers: found '[]', expected one issuer at least, as {\"module\": \"internal\"}",
            ),
            (
                json!({ "issuers": [{ "module": "internal", "ca": "x" }] }),
                ".issuers[0].ca: found 'x', expected 'local', or an authority of the app `pki`",
            ),
            (
                json!({ "issuers": [{ "module": "zero" }] }),
                ".issuers[0]: issuance module 'zero' is not supported (docs/refused.md)",
            ),
        ] {
            assert_eq!(read(&identity), Err(format!("admin.identity{want}")), "{identity}");
        }
        assert!(read(&json!({ "identifiers": ["*.a.example"] })).unwrap_err().contains("needs the DNS challenge"));
    }
}
