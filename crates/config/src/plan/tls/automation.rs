//! `apps.tls.automation`: selects a name's issuer, and sets how its certificate is renewed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::build::Problem;
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::certificates::{
    AcmeIssuer, CertificateGetter, DnsProvider, ExternalAccount, KeyKind, OcspStapling, PreferredChains, ProxySetting,
    PublicIssuer, ZeroSslIssuer,
};
use super::super::storage::{Secret, Storage, read_own};
use super::ascii;
use super::dns::{self, DnsDefaults};
use crate::names;
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::build::trust_pool::pem_files_certificates;

/// The expected text if a handshake could order a certificate for any name.
const PERMISSION: &str = "the global option `on_demand_tls` with `ask <url>`, which says what names may have a certificate: \
                          without it, anyone could make this server order certificates for any name";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct AutomationConfig {
    #[serde(default)]
    policies: Vec<AutomationPolicyConfig>,
    #[serde(default)]
    on_demand: Option<OnDemandConfig>,
    #[serde(default)]
    ocsp_interval: Option<DurationConfig>,
    #[serde(default)]
    renew_interval: Option<DurationConfig>,
    #[serde(default)]
    storage_clean_interval: Option<DurationConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDemandConfig {
    #[serde(default)]
    permission: Option<PermissionConfig>,
    /// The old form of `permission`, which Caddy still takes.
    #[serde(default)]
    ask: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionConfig {
    module: String,
    #[serde(default)]
    endpoint: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AutomationPolicyConfig {
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    issuers: Vec<Map<String, Value>>,
    #[serde(default)]
    get_certificate: Vec<Map<String, Value>>,
    #[serde(default)]
    must_staple: bool,
    #[serde(default)]
    renewal_window_ratio: Option<f64>,
    #[serde(default)]
    key_type: String,
    #[serde(default)]
    storage: Option<Value>,
    #[serde(default)]
    on_demand: bool,
    #[serde(default)]
    reuse_private_keys: bool,
    #[serde(default)]
    disable_ocsp_stapling: bool,
    #[serde(default)]
    ocsp_overrides: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpGetterConfig {
    #[serde(rename = "via")]
    _via: String,
    #[serde(default)]
    url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TailscaleGetterConfig {
    #[serde(rename = "via")]
    _via: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InternalIssuerConfig {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    ca: String,
    #[serde(default)]
    lifetime: Option<DurationConfig>,
    #[serde(default)]
    sign_with_root: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZeroSslIssuerConfig {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    api_key: String,
    #[serde(default)]
    validity_days: i64,
    /// Ignored, as the port: the files are on every listener of the HTTP port.
    #[serde(default, rename = "listen_host")]
    _listen_host: String,
    #[serde(default, rename = "alternate_http_port")]
    _alternate_http_port: u16,
    #[serde(default)]
    cname_validation: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcmeIssuerConfig {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    ca: String,
    #[serde(default)]
    test_ca: String,
    #[serde(default)]
    email: String,
    #[serde(default)]
    profile: String,
    #[serde(default)]
    account_key: String,
    #[serde(default)]
    external_account: Option<ExternalAccountConfig>,
    /// Only checked: each step of an order has a time limit of its own.
    #[serde(default)]
    acme_timeout: Option<DurationConfig>,
    #[serde(default)]
    certificate_lifetime: Option<DurationConfig>,
    #[serde(default)]
    challenges: Option<ChallengesConfig>,
    #[serde(default)]
    trusted_roots_pem_files: Vec<String>,
    #[serde(default)]
    preferred_chains: Option<PreferredChainsConfig>,
    #[serde(default)]
    network_proxy: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyFromUrlConfig {
    #[serde(rename = "from")]
    _from: String,
    #[serde(default)]
    url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyFromNoneConfig {
    #[serde(rename = "from")]
    _from: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreferredChainsConfig {
    #[serde(default)]
    smallest: Option<bool>,
    #[serde(default)]
    root_common_name: Vec<String>,
    #[serde(default)]
    any_common_name: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExternalAccountConfig {
    #[serde(default)]
    key_id: String,
    #[serde(default)]
    mac_key: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ChallengesConfig {
    #[serde(default)]
    http: ChallengeConfig,
    #[serde(default, rename = "tls-alpn")]
    tls_alpn: ChallengeConfig,
    #[serde(default)]
    dns: Option<Value>,
    /// Ignored: the challenges are answered on every listener. A Caddyfile's `bind` sets it.
    #[serde(default, rename = "bind_host")]
    _bind_host: String,
    #[serde(default)]
    distributed: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ChallengeConfig {
    #[serde(default)]
    disabled: bool,
    /// Ignored: the challenge is answered on every listener, and a port forwarding to one of them needs no option.
    #[serde(default, rename = "alternate_port")]
    _alternate_port: u16,
}

/// The policies in order. The first that matches a name applies.
#[derive(Debug, Default, Clone, PartialEq)]
pub(in super::super) struct Automation {
    pub(in super::super) policies: Vec<AutomationPolicy>,
    pub(in super::super) renewal_check_interval: Option<Duration>,
    pub(in super::super) cleaning_interval: Option<Duration>,
    pub(in super::super) ocsp_check_interval: Option<Duration>,
    /// The URL that allows or denies a name for which a handshake would obtain a certificate.
    pub(in super::super) permission: Option<String>,
    /// Index of the policy with this exact subject. A hash table, because there can be thousands of names.
    exact: HashMap<String, usize>,
    /// Wildcard subjects, with the index of their policy, in the order of the policies.
    patterns: Vec<(String, usize)>,
    /// Index of the policy without subjects, which matches all names.
    base: Option<usize>,
}

/// How certificates for a set of names are issued and renewed.
#[derive(Debug, Default, Clone, PartialEq)]
pub(in super::super) struct AutomationPolicy {
    /// Names in ASCII. Empty: all names.
    pub(in super::super) subjects: Vec<String>,
    /// In order of preference. Empty: Let's Encrypt, or the local authority for names that no public one signs.
    pub(in super::super) issuers: Vec<Issuer>,
    pub(in super::super) renewal_ratio: Option<f64>,
    pub(in super::super) key: KeyKind,
    pub(in super::super) reuse_key: bool,
    /// Where the certificates are stored. `None`: in the configuration's storage.
    pub(in super::super) storage: Option<Storage>,
    /// Certificates are obtained when a handshake needs them.
    pub(in super::super) on_demand: bool,
    /// The sources that a handshake without a certificate queries before the issuers, in this order. Policies with any
    /// are on demand.
    pub(in super::super) getters: Vec<CertificateGetter>,
    /// The issuers sign nothing: clients could choose the names, and no endpoint allows or denies them.
    pub(in super::super) is_signing_forbidden: bool,
    pub(in super::super) ocsp: OcspStapling,
}

/// The signer of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Issuer {
    /// A local certificate authority.
    Internal { authority: String, lifetime: Option<Duration>, by_root: bool },
    /// A public authority.
    Public(PublicIssuer),
}

impl Automation {
    /// The first policy that matches the name, exactly, by wildcard or by matching all.
    pub(in super::super) fn policy(&self, name: &str) -> Option<&AutomationPolicy> {
        let exact = self.exact.get(name).copied();
        let pattern =
            self.patterns.iter().find(|(pattern, _)| names::matches_wildcard(pattern, name)).map(|(_, index)| *index);
        let first = [exact, pattern, self.base].into_iter().flatten().min()?;
        self.policies.get(first)
    }

    /// The policy that lists exactly this name.
    pub(in super::super) fn naming(&self, name: &str) -> Option<&AutomationPolicy> {
        self.policies.get(*self.exact.get(name)?)
    }

    /// The DNS providers of all issuers.
    pub(in super::super) fn dns_providers(&self) -> impl Iterator<Item = &DnsProvider> {
        self.policies.iter().flat_map(AutomationPolicy::dns_providers)
    }

    /// All issuers by ACME, with their JSON paths.
    pub(in super::super) fn acme_issuers(&self) -> Vec<(String, AcmeIssuer)> {
        let mut all = Vec::new();
        for (policy_index, policy) in self.policies.iter().enumerate() {
            all.extend(policy.acme_issuers(&format!("apps.tls.automation.policies[{policy_index}]")));
        }
        all
    }

    /// The policy for all names.
    pub(in super::super) fn base(&self) -> Option<&AutomationPolicy> {
        self.policies.get(self.base?)
    }

    /// One line for each policy that has an effect which its author may not expect.
    pub(in super::super) fn warnings(&self) -> impl Iterator<Item = String> {
        let silent = self.policies.iter().filter(|policy| policy.is_signing_forbidden);
        silent.map(|policy| {
            let names = if policy.subjects.is_empty() { "all names".to_owned() } else { policy.subjects.join(", ") };
            format!(
                "{names}: certificates come only from `get_certificate`, not from an authority: the option `on_demand_tls` has no \
                 `ask`, so anyone could make this server order certificates for any name"
            )
        })
    }

    /// Adds policies for names that no policy lists: those below `.ts.net`, whose certificates Tailscale's daemon
    /// supplies. Their other settings are those of the policy for all names.
    ///
    /// # Errors
    /// As for policies on demand: one of the names is a wildcard, and no endpoint allows or denies the names below it.
    pub(in super::super) fn with_tailscale(
        &self,
        names: Vec<String>,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let mut all = self.clone();
        let mut policy = self.base().cloned().unwrap_or_default();
        // As in Caddy, sources that the policy for all names lists do without a permission.
        let has_sources =
            policy.is_signing_forbidden || policy.getters.iter().any(|getter| *getter != CertificateGetter::Tailscale);
        policy.issuers.clear();
        if !policy.getters.contains(&CertificateGetter::Tailscale) {
            policy.getters.push(CertificateGetter::Tailscale);
        }
        policy.on_demand = true;
        let (wildcards, exact): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.contains('*'));
        if let Some(wildcard) = wildcards.first() {
            if self.permission.is_none() && !has_sources {
                return build.at("apps.http", |build| Err(build.refuse(wildcard, PERMISSION)));
            }
            // After the policies with names, which may be below it. As in Caddy, no issuer signs such a name.
            let index = all.base.unwrap_or(all.policies.len());
            all.insert(index, AutomationPolicy { subjects: wildcards, is_signing_forbidden: true, ..policy.clone() });
        }
        if !exact.is_empty() {
            // Before the others, since the first match applies.
            all.insert(0, AutomationPolicy { subjects: exact, is_signing_forbidden: false, ..policy });
        }
        Ok(all)
    }

    /// Inserts a policy for names that no policy lists.
    fn insert(&mut self, index: usize, policy: AutomationPolicy) {
        let patterns = self.patterns.iter_mut().map(|(_, index)| index);
        let indexes = self.exact.values_mut().chain(patterns).chain(&mut self.base);
        indexes.filter(|known| **known >= index).for_each(|known| *known += 1);
        for subject in &policy.subjects {
            if subject.contains('*') {
                self.patterns.push((subject.clone(), index));
            }
            self.exact.insert(subject.clone(), index);
        }
        self.patterns.sort_by_key(|(_, index)| *index);
        self.policies.insert(index, policy);
    }

    /// Appends a policy. As in Caddy, an error if it repeats a subject or is a second policy for all names: the
    /// repetition would never be used.
    fn push(&mut self, policy: AutomationPolicy, build: &mut Build<'_>) -> Result<(), BuildError> {
        let index = self.policies.len();
        if policy.subjects.is_empty() && self.base.replace(index).is_some() {
            return Err(build.refuse("a second policy for all names", "one at most"));
        }
        for subject in &policy.subjects {
            if self.exact.insert(subject.clone(), index).is_some_and(|before| before != index) {
                return build.at("subjects", |build| Err(build.refuse(subject, "each name in one policy")));
            }
            if subject.contains('*') {
                self.patterns.push((subject.clone(), index));
            }
        }
        self.policies.push(policy);
        Ok(())
    }
}

impl AutomationConfig {
    pub(super) fn read(&self, defaults: &DnsDefaults, build: &mut Build<'_>) -> Result<Automation, BuildError> {
        let mut interval = |key, written: &Option<DurationConfig>| build.optional_duration(key, written.as_ref());
        let ocsp_check_interval =
            interval("ocsp_interval", &self.ocsp_interval)?.filter(|interval| !interval.is_zero());
        let cleaning_interval =
            interval("storage_clean_interval", &self.storage_clean_interval)?.filter(|interval| !interval.is_zero());
        let renewal_check_interval = interval("renew_interval", &self.renew_interval)?;
        let is_used = self.policies.iter().any(|policy| policy.on_demand);
        let permission = match &self.on_demand {
            Some(written) => build.at("on_demand", |build| written.read(is_used, build))?,
            None => None,
        };
        let mut automation = Automation {
            renewal_check_interval,
            cleaning_interval,
            ocsp_check_interval,
            permission,
            ..Automation::default()
        };
        for (index, written) in self.policies.iter().enumerate() {
            build.at(format!("policies[{index}]"), |build| {
                let mut policy = written.read(defaults, build)?;
                let is_open = policy.on_demand && policy.lets_clients_choose_names() && automation.permission.is_none();
                // DEVIATES: Caddy 2.11 logs that only the sources supply certificates here, and lets the issuers sign
                // too.
                policy.is_signing_forbidden = is_open && !policy.getters.is_empty();
                if is_open && !policy.is_signing_forbidden {
                    return build.at("on_demand", |build| Err(build.refuse("no permission", PERMISSION)));
                }
                // As in Caddy: it costs names of other domains nothing.
                if policy.on_demand && policy.getters.is_empty() {
                    policy.getters.push(CertificateGetter::Tailscale);
                }
                automation.push(policy, build)
            })?;
        }
        Ok(automation)
    }
}

impl OnDemandConfig {
    /// Returns the URL to ask. A mistake in it is an error only if a policy uses it: a file for several environments
    /// may have a default that is no URL, as with Baserow's.
    fn read(&self, is_used: bool, build: &mut Build<'_>) -> Result<Option<String>, BuildError> {
        let (key, endpoint) = match &self.permission {
            Some(_) if !self.ask.is_empty() => {
                let expected = "either `ask` or `permission`: the server would query only one of them";
                return build.at("ask", |build| Err(build.refuse(&*self.ask, expected)));
            }
            Some(PermissionConfig { module, endpoint }) if module == "http" => ("permission.endpoint", endpoint),
            Some(PermissionConfig { module, .. }) => {
                let problem = Problem::UnknownModule { kind: "permission", name: module.clone() };
                return build.at("permission.module", |build| Err(build.error(problem)));
            }
            None if self.ask.is_empty() => return Ok(None),
            None => ("ask", &self.ask),
        };
        let endpoint = build.expand_constants(endpoint);
        if names::strip_http_scheme(&endpoint).is_none() {
            if !is_used {
                build.warn(format!(
                    "on_demand_tls: {endpoint} does not begin with http:// or https://; no site uses it"
                ));
                return Ok(None);
            }
            return build.at(key, |build| Err(build.refuse(endpoint, names::HTTP_URL)));
        }
        Ok(Some(endpoint))
    }
}

impl AutomationPolicy {
    /// Its issuers by ACME, with their JSON paths; `path` is the policy's.
    pub(in super::super) fn acme_issuers(&self, path: &str) -> impl Iterator<Item = (String, AcmeIssuer)> {
        self.issuers.iter().enumerate().filter_map(move |(index, issuer)| match issuer {
            Issuer::Public(PublicIssuer::Acme(acme)) => {
                Some((format!("{path}.issuers[{index}]"), AcmeIssuer::clone(acme)))
            }
            Issuer::Public(_) | Issuer::Internal { .. } => None,
        })
    }

    /// Whether it lists names, and no public authority signs any of them.
    pub(in super::super) fn lists_only_internal_names(&self) -> bool {
        !self.subjects.is_empty() && self.subjects.iter().all(|subject| !names::is_public(subject))
    }

    /// The DNS providers of its issuers.
    pub(in super::super) fn dns_providers(&self) -> impl Iterator<Item = &DnsProvider> {
        self.issuers.iter().filter_map(|issuer| match issuer {
            Issuer::Public(public) => public.dns().map(|dns| &dns.provider),
            Issuer::Internal { .. } => None,
        })
    }

    /// Whether clients can choose the names that a public authority has to sign: the policy covers more names than it
    /// lists.
    fn lets_clients_choose_names(&self) -> bool {
        let is_open = self.subjects.is_empty() || self.subjects.iter().any(|subject| subject.starts_with('*'));
        is_open && !matches!(self.issuers.as_slice(), [Issuer::Internal { .. }])
    }
}

impl AutomationPolicyConfig {
    fn read(&self, defaults: &DnsDefaults, build: &mut Build<'_>) -> Result<AutomationPolicy, BuildError> {
        let mut getters = Vec::new();
        for (index, written) in self.get_certificate.iter().enumerate() {
            getters.push(build.at(format!("get_certificate[{index}]"), |build| getter(written, build))?);
        }
        let key_type = build.expand_constants(&self.key_type);
        let key = build.at("key_type", |build| {
            let expected = "ed25519, p256, p384, rsa2048 or rsa4096";
            KeyKind::by_name(&key_type).ok_or_else(|| build.refuse(key_type, expected))
        })?;
        let issuers = build.at("issuers", |build| read_issuers(&self.issuers, defaults, build))?;
        let is_public = match &issuers[..] {
            [] => self.subjects.is_empty() || self.subjects.iter().any(|subject| names::is_public(subject)),
            issuers => issuers.iter().any(|issuer| matches!(issuer, Issuer::Public(_))),
        };
        if self.reuse_private_keys && is_public {
            build.warn_unused("reuse_private_keys", "each certificate of a public authority has a new key");
        }
        Ok(AutomationPolicy {
            subjects: self.subjects.iter().map(|subject| ascii(subject, build)).collect::<Result<_, _>>()?,
            issuers,
            renewal_ratio: self.renewal_window_ratio.filter(|ratio| *ratio > 0.0 && *ratio <= 1.0),
            key,
            reuse_key: self.reuse_private_keys,
            storage: read_own(self.storage.as_ref(), build)?,
            // A handshake queries the sources, so no certificate is obtained before one.
            on_demand: self.on_demand || !getters.is_empty(),
            getters,
            is_signing_forbidden: false,
            ocsp: OcspStapling {
                is_enabled: !self.disable_ocsp_stapling,
                overrides: Arc::new(self.overrides(build)?),
                must_staple: self.must_staple,
            },
        })
    }

    /// Checks that each URL which is to be used is one.
    fn overrides(&self, build: &mut Build<'_>) -> Result<BTreeMap<String, String>, BuildError> {
        for (written, used) in &self.ocsp_overrides {
            if !used.is_empty() && names::strip_http_scheme(used).is_none() {
                let expected = format!("{}, or an empty text, which disables the responder", names::HTTP_URL);
                return build.at(format!("ocsp_overrides.{written}"), |build| Err(build.refuse(used, expected)));
            }
        }
        Ok(self.ocsp_overrides.clone())
    }
}

fn getter(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<CertificateGetter, BuildError> {
    let json = Value::Object(written.clone());
    match written.get("via").and_then(Value::as_str) {
        Some("http") => {
            let HttpGetterConfig { url, .. } = build.parse(&json)?;
            let url = build.expand_constants(&url);
            if names::strip_http_scheme(&url)
                .is_none_or(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#', ':']))
            {
                let expected = format!("{} and a host", names::HTTP_URL);
                return build.at("url", |build| Err(build.refuse(url, expected)));
            }
            Ok(CertificateGetter::Http(url))
        }
        Some("tailscale") => {
            let TailscaleGetterConfig { .. } = build.parse(&json)?;
            Ok(CertificateGetter::Tailscale)
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "get_certificate", name: name.to_owned() })),
        None => Err(build.refuse(json.to_string(), "an object with a 'via' key, as {\"via\": \"tailscale\"}")),
    }
}

/// Reads a list of issuers.
pub(in super::super) fn read_issuers(
    written: &[Map<String, Value>],
    defaults: &DnsDefaults,
    build: &mut Build<'_>,
) -> Result<Vec<Issuer>, BuildError> {
    let mut issuers = Vec::with_capacity(written.len());
    for (index, written) in written.iter().enumerate() {
        issuers.push(build.at(format!("[{index}]"), |build| issuer(written, defaults, build))?);
    }
    Ok(issuers)
}

fn issuer(written: &Map<String, Value>, defaults: &DnsDefaults, build: &mut Build<'_>) -> Result<Issuer, BuildError> {
    let json = Value::Object(written.clone());
    match written.get("module").and_then(Value::as_str) {
        Some("acme") => Ok(Issuer::Public(PublicIssuer::Acme(Box::new(acme(&json, defaults, build)?)))),
        Some("zerossl") => Ok(Issuer::Public(PublicIssuer::ZeroSsl(zerossl(&json, build)?))),
        Some("internal") => {
            let internal: InternalIssuerConfig = build.parse(&json)?;
            let lifetime = build.optional_duration("lifetime", internal.lifetime.as_ref())?;
            let authority = if internal.ca.is_empty() { super::super::pki::LOCAL.to_owned() } else { internal.ca };
            let lifetime = lifetime.filter(|lifetime| !lifetime.is_zero());
            Ok(Issuer::Internal { authority, lifetime, by_root: internal.sign_with_root })
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "issuance", name: name.to_owned() })),
        None => Err(build.refuse(json.to_string(), "an object with a 'module' key, as {\"module\": \"internal\"}")),
    }
}

fn zerossl(json: &Value, build: &mut Build<'_>) -> Result<ZeroSslIssuer, BuildError> {
    let written: ZeroSslIssuerConfig = build.parse(json)?;
    if let Some(found) = &written.cname_validation {
        let expected = "nothing: ZeroSSL verifies names by files only in this version (docs/https.md)";
        return build.at("cname_validation", |build| Err(build.refuse(found.to_string(), expected)));
    }
    let api_key = build.expand_constants(&written.api_key);
    if api_key.trim().is_empty() || api_key.contains(|char: char| char.is_control() || char == '{') {
        let found = if api_key.is_empty() { "" } else { "(a text with control characters or an unknown placeholder)" };
        return build.at("api_key", |build| Err(build.refuse(found, "the key of ZeroSSL's interface: is it set?")));
    }
    let validity_days = match written.validity_days {
        0 => None,
        days => match u32::try_from(days) {
            Ok(days) => Some(days),
            Err(_) => {
                return build
                    .at("validity_days", |build| Err(build.refuse(days.to_string(), "a number of days, such as 90")));
            }
        },
    };
    Ok(ZeroSslIssuer { api_key: Secret(api_key), validity_days })
}

fn network_proxy(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<ProxySetting, BuildError> {
    let json = Value::Object(written.clone());
    match written.get("from").and_then(Value::as_str) {
        Some("none") => {
            let ProxyFromNoneConfig { .. } = build.parse(&json)?;
            Ok(ProxySetting::Direct)
        }
        Some("url") => {
            let ProxyFromUrlConfig { url, .. } = build.parse(&json)?;
            Ok(ProxySetting::Url(Secret(build.expand_constants(&url))))
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "network_proxy", name: name.to_owned() })),
        None => Err(build.refuse(json.to_string(), "an object with a 'from' key, as {\"from\": \"none\"}")),
    }
}

fn acme(json: &Value, defaults: &DnsDefaults, build: &mut Build<'_>) -> Result<AcmeIssuer, BuildError> {
    let written: AcmeIssuerConfig = build.parse(json)?;
    let proxy = written.network_proxy.as_ref();
    let proxy = build.at("network_proxy", |build| proxy.map(|proxy| network_proxy(proxy, build)).transpose())?;
    // A placeholder that is set to nothing stays an empty key, which is refused.
    let account_key = Some(build.expand_constants(&written.account_key)).filter(|_| !written.account_key.is_empty());
    let lifetime = build.optional_duration("certificate_lifetime", written.certificate_lifetime.as_ref())?;
    if build.optional_duration("acme_timeout", written.acme_timeout.as_ref())?.is_some() {
        build.warn_unused("acme_timeout", "each step of an order has a time limit of its own");
    }
    let chains = written.preferred_chains.map(|written| PreferredChains {
        smallest: written.smallest,
        any_common_names: written.any_common_name,
        root_common_names: written.root_common_name,
    });
    let challenges = written.challenges.unwrap_or_default();
    let dns = build.at("challenges", |build| {
        let dns = challenges.dns.as_ref();
        build.at("dns", |build| dns.map(|dns| dns::challenge(dns, defaults, build).map(Box::new)).transpose())
    })?;
    let files = &written.trusted_roots_pem_files;
    // The client reads them again when it is made.
    pem_files_certificates("trusted_roots_pem_files", files, build)?;
    Ok(AcmeIssuer {
        ca: build.expand_constants(&written.ca),
        test_ca: build.expand_constants(&written.test_ca),
        email: build.expand_constants(&written.email),
        profile: build.expand_constants(&written.profile),
        account_key: account_key.map(Secret),
        proxy: proxy.unwrap_or_default(),
        lifetime: lifetime.filter(|lifetime| !lifetime.is_zero()),
        chains: chains.filter(|chains| *chains != PreferredChains::default()).map(Box::new),
        external_account: written.external_account.map(|account| ExternalAccount {
            key_id: build.expand_constants(&account.key_id),
            mac_key: Secret(build.expand_constants(&account.mac_key)),
        }),
        roots: files.iter().map(|path| build.expand_constants(path).into()).collect(),
        allows_http01: !challenges.http.disabled,
        allows_tls_alpn01: !challenges.tls_alpn.disabled,
        is_distributed: challenges.distributed != Some(false),
        dns,
    })
}
