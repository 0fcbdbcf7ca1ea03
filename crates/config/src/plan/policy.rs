//! `tls_connection_policies` of a server: the TLS settings of its connections.
//!
//! - `client`: client authentication
//! - `selection`: conditions on the server's certificate

mod client;
mod selection;

use std::collections::BTreeMap;
use std::net::IpAddr;

use causeway_pipeline::{Build, BuildError, Protocols, TlsMatchers, TlsPolicy, TlsVersion};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::certificates::CertificateSelection;
use super::refuse;
use super::tls::ascii;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionPolicyConfig {
    #[serde(default, rename = "match")]
    matchers: Option<PolicyMatchersConfig>,
    #[serde(default)]
    certificate_selection: Option<selection::CertificateSelectionConfig>,
    #[serde(default)]
    cipher_suites: Vec<String>,
    #[serde(default)]
    curves: Vec<String>,
    #[serde(default)]
    alpn: Option<Vec<String>>,
    #[serde(default)]
    protocol_min: String,
    #[serde(default)]
    protocol_max: String,
    #[serde(default)]
    drop: bool,
    #[serde(default)]
    client_authentication: Option<client::ClientAuthConfig>,
    #[serde(default)]
    default_sni: String,
    #[serde(default)]
    fallback_sni: String,
    #[serde(default)]
    insecure_secrets_log: String,
    #[serde(default)]
    handshake_context: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyMatchersConfig {
    #[serde(default)]
    sni: Option<Vec<String>>,
    #[serde(default)]
    sni_regexp: Option<Value>,
    #[serde(default)]
    remote_ip: Option<RemoteIpConfig>,
    #[serde(default)]
    local_ip: Option<LocalIpConfig>,
    #[serde(default)]
    not: Vec<PolicyMatchersConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoteIpConfig {
    #[serde(default)]
    ranges: Vec<String>,
    #[serde(default)]
    not_ranges: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalIpConfig {
    #[serde(default)]
    ranges: Vec<String>,
}

impl ConnectionPolicyConfig {
    /// Whether the policy requests client certificates.
    pub(super) fn asks_clients(&self) -> bool {
        self.client_authentication.as_ref().is_some_and(client::ClientAuthConfig::is_active)
    }

    /// Converts the policy to the engine's form; `None` if no connection can match it. Adds its conditions on the
    /// certificate to `selections`.
    pub(super) fn read(
        &self,
        protocols: Protocols,
        selections: &mut BTreeMap<String, CertificateSelection>,
        build: &mut Build<'_>,
    ) -> Result<Option<TlsPolicy>, BuildError> {
        refuse("handshake_context", &self.handshake_context, build)?;
        let mut policy = TlsPolicy { drop: self.drop, ..TlsPolicy::default() };
        if let Some(matchers) = &self.matchers {
            match build.at("match", |build| matchers.read(build))? {
                Some(matchers) => policy.matchers = matchers,
                None => return Ok(None),
            }
        }
        if let Some(selection) = &self.certificate_selection {
            policy.certificate_tags = build.at("certificate_selection", |build| selection.read(selections, build))?;
        }
        // The engine checks the names of suites and groups against those that it supports.
        policy.cipher_suites = distinct(&self.cipher_suites);
        policy.groups = distinct(&self.curves);
        policy.alpn = self.alpn(protocols, build)?;
        policy.version_min = version("protocol_min", &self.protocol_min, TlsVersion::Tls12, build)?;
        policy.version_max = version("protocol_max", &self.protocol_max, TlsVersion::Tls13, build)?;
        if policy.version_min > policy.version_max {
            let found = format!("{} above {}", self.protocol_min, self.protocol_max);
            return build.at("protocol_min", |build| {
                Err(build.refuse(found, "a lowest version that is not above the highest"))
            });
        }
        match &self.client_authentication {
            Some(client) if client.is_active() => {
                policy.client = Some(build.at("client_authentication", |build| client.read(build))?);
            }
            Some(_) => {
                let reason = "it has no mode, authority or verifier, so no client is asked for a certificate";
                build.warn_unused("client_authentication", reason);
            }
            None => {}
        }
        let name = |name: &str, build: &mut Build<'_>| {
            ascii(name, build).map(|name| Some(name).filter(|name| !name.is_empty()))
        };
        policy.default_server_name = name(&self.default_sni, build)?;
        policy.fallback_server_name = name(&self.fallback_sni, build)?;
        let secrets_log = build.expand_constants(&self.insecure_secrets_log);
        if !secrets_log.is_empty() {
            build.warn(format!(
                "{secrets_log}: this file gets the secrets of TLS sessions, by which their content can be read (insecure_secrets_log)"
            ));
        }
        policy.secrets_log = Some(secrets_log).filter(|path| !path.is_empty()).map(Into::into);
        Ok(Some(policy))
    }

    /// The ALPN protocols of the policy that the server has enabled. An error if there is none: a client could then use
    /// a protocol that the policy does not name, or no client could connect.
    fn alpn(&self, protocols: Protocols, build: &mut Build<'_>) -> Result<Vec<String>, BuildError> {
        let Some(written) = &self.alpn else { return Ok(Vec::new()) };
        let mut offered = Vec::new();
        for (index, protocol) in written.iter().enumerate() {
            let spoken = match &**protocol {
                "h2" => protocols.http2,
                "http/1.1" => protocols.http1,
                // HTTP/3 is not supported, and clients that offer it also offer others. A handshake that offers
                // `acme-tls/1` is answered before its policy's protocols count.
                "h3" | "acme-tls/1" => false,
                _ => {
                    let expected = "h2 or http/1.1";
                    return build.at(format!("alpn[{index}]"), |build| Err(build.refuse(&**protocol, expected)));
                }
            };
            if spoken && !offered.contains(protocol) {
                offered.push(protocol.clone());
            }
        }
        if written.is_empty() {
            return build.at("alpn", |build| Err(build.refuse("[]", "h2, http/1.1 or both, or no `alpn`")));
        }
        if offered.is_empty() && !self.drop {
            let enabled = [("h2", protocols.http2), ("http/1.1", protocols.http1)];
            let enabled: Vec<_> = enabled.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
            let expected = match &enabled[..] {
                [] => "h2 or http/1.1, and h2 or h1 among the server's `protocols`".to_owned(),
                enabled => format!("{} too, which the server's `protocols` enable with TLS", enabled.join(" or ")),
            };
            return build.at("alpn", |build| Err(build.refuse(written.join(" "), expected)));
        }
        Ok(offered)
    }
}

impl PolicyMatchersConfig {
    /// Converts the matchers to the engine's form; `None` if no connection can match them.
    fn read(&self, build: &mut Build<'_>) -> Result<Option<TlsMatchers>, BuildError> {
        let mut matchers = TlsMatchers::default();
        if let Some(names) = &self.sni {
            matchers.server_names = names.iter().map(|name| ascii(name, build)).collect::<Result<_, _>>()?;
        }
        if let Some(pattern) = &self.sni_regexp {
            matchers.server_name_matcher = Some(build.server_name_matcher("sni_regexp", pattern)?);
        }
        if let Some(remote) = &self.remote_ip {
            build.at("remote_ip", |build| {
                matchers.remote_ranges = ranges("ranges", &remote.ranges, build)?;
                matchers.remote_ranges_not = ranges("not_ranges", &remote.not_ranges, build)?;
                Ok(())
            })?;
        }
        if let Some(local) = &self.local_ip {
            matchers.local_ranges = build.at("local_ip", |build| ranges("ranges", &local.ranges, build))?;
        }
        for (index, not) in self.not.iter().enumerate() {
            matchers.not.extend(build.at(format!("not[{index}]"), |build| not.read(build))?);
        }
        // In Caddy an empty list matches no name, whereas an absent list matches all.
        let is_met_by_none = self.sni.as_ref().is_some_and(Vec::is_empty);
        Ok((!is_met_by_none).then_some(matchers))
    }
}

/// Parses the networks and addresses of a list.
pub(super) fn ranges(key: &str, written: &[String], build: &mut Build<'_>) -> Result<Vec<IpNet>, BuildError> {
    let mut ranges = Vec::with_capacity(written.len());
    for (index, text) in written.iter().enumerate() {
        let text = build.expand_constants(text);
        let range = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let bad = |build: &mut Build<'_>| Err(build.refuse(&*text, "an IP address, or a network such as 10.0.0.0/8"));
        ranges.push(match range {
            Some(range) => range,
            None => build.at(format!("{key}[{index}]"), bad)?,
        });
    }
    Ok(ranges)
}

fn version(key: &str, written: &str, default: TlsVersion, build: &mut Build<'_>) -> Result<TlsVersion, BuildError> {
    match written {
        "" => Ok(default),
        "tls1.2" => Ok(TlsVersion::Tls12),
        "tls1.3" => Ok(TlsVersion::Tls13),
        _ => build.at(key, |build| Err(build.refuse(written, "tls1.2 or tls1.3"))),
    }
}

fn distinct(written: &[String]) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(written.len());
    for name in written {
        if !distinct.contains(name) {
            distinct.push(name.clone());
        }
    }
    distinct
}

#[cfg(test)]
mod tests;
