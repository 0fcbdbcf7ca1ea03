//! `apps.tls.automation`: which issuer a name has, and how its certificate is kept.

use std::collections::HashMap;
use std::time::Duration;

use causeway_pipeline::build::Problem;
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::certificates::KeyKind;
use super::super::duration::Span;
use super::super::refuse;
use super::{ascii, known};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenAutomation {
    #[serde(default)]
    policies: Vec<WrittenPolicy>,
    #[serde(default)]
    on_demand: Option<Value>,
    #[serde(default)]
    ocsp_interval: Option<Value>,
    #[serde(default)]
    renew_interval: Option<Span>,
    #[serde(default)]
    storage_clean_interval: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPolicy {
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    issuers: Vec<Map<String, Value>>,
    #[serde(default)]
    get_certificate: Option<Value>,
    #[serde(default)]
    must_staple: Option<Value>,
    #[serde(default)]
    renewal_window_ratio: Option<f64>,
    #[serde(default)]
    key_type: String,
    #[serde(default)]
    storage: Option<Value>,
    #[serde(default)]
    on_demand: Option<Value>,
    #[serde(default)]
    reuse_private_keys: bool,
    /// Nothing is stapled, so there is nothing to disable.
    #[serde(default, rename = "disable_ocsp_stapling")]
    _disable_ocsp_stapling: bool,
    #[serde(default)]
    ocsp_overrides: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInternal {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    ca: String,
    #[serde(default)]
    lifetime: Option<Span>,
    #[serde(default)]
    sign_with_root: bool,
}

/// Policies in order: the first that a name meets is its own.
#[derive(Debug, Default)]
pub(in super::super) struct Automation {
    pub(in super::super) policies: Vec<Policy>,
    pub(in super::super) look_every: Option<Duration>,
    /// Which policy names a name; there may be thousands.
    exact: HashMap<String, usize>,
    /// Wildcards, and their policies.
    patterns: Vec<(String, usize)>,
    /// The policy for all names.
    base: Option<usize>,
}

/// How certificates for some names are got and kept.
#[derive(Debug, Default, Clone)]
pub(in super::super) struct Policy {
    /// In ASCII; none: all.
    pub(in super::super) subjects: Vec<String>,
    /// In the order in which they are asked; none: the public ones.
    pub(in super::super) issuers: Vec<Issuer>,
    pub(in super::super) renewal_ratio: Option<f64>,
    pub(in super::super) key: KeyKind,
    pub(in super::super) reuse_key: bool,
}

/// Who signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Issuer {
    /// An authority of our own.
    Internal { authority: String, lifetime: Option<Duration>, by_root: bool },
    /// One that is asked by ACME.
    Public,
}

impl Automation {
    /// The policy that a name meets first.
    pub(in super::super) fn policy(&self, name: &str) -> Option<&Policy> {
        let exact = self.exact.get(name).copied();
        let pattern =
            self.patterns.iter().find(|(pattern, _)| matches_wildcard(name, pattern)).map(|(_, index)| *index);
        let first = [exact, pattern, self.base].into_iter().flatten().min()?;
        self.policies.get(first)
    }

    /// A policy that names this very name.
    pub(in super::super) fn naming(&self, name: &str) -> Option<&Policy> {
        self.policies.get(*self.exact.get(name)?)
    }

    /// The policy for all names.
    pub(in super::super) fn base(&self) -> Option<&Policy> {
        self.policies.get(self.base?)
    }

    /// Adds a policy behind the others; refuses what only the first would ever be used of, as Caddy does.
    fn push(&mut self, policy: Policy, build: &mut Build<'_>) -> Result<(), BuildError> {
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

/// Whether a name is `pattern`, or would be with `*` in the place of one or more of its first labels.
pub(in super::super) fn matches_wildcard(name: &str, pattern: &str) -> bool {
    if name == pattern {
        return true;
    }
    let stars = pattern.split('.').take_while(|label| *label == "*").count();
    let (mut name, mut pattern) = (name.split('.'), pattern.split('.'));
    for _ in 0..stars {
        pattern.next();
        // A label that is not there is none that a star could stand for.
        if name.next().is_none_or(str::is_empty) {
            return false;
        }
    }
    stars > 0 && name.eq(pattern)
}

impl WrittenAutomation {
    pub(super) fn read(&self, build: &mut Build<'_>) -> Result<Automation, BuildError> {
        for (key, value) in [
            ("on_demand", &self.on_demand),
            ("ocsp_interval", &self.ocsp_interval),
            ("storage_clean_interval", &self.storage_clean_interval),
        ] {
            refuse(key, value, build)?;
        }
        let look_every = self.renew_interval.as_ref();
        let look_every = build.at("renew_interval", |build| look_every.map(|span| span.duration(build)).transpose())?;
        let mut automation = Automation { look_every, ..Automation::default() };
        for (index, written) in self.policies.iter().enumerate() {
            build.at(format!("policies[{index}]"), |build| {
                let policy = written.read(build)?;
                automation.push(policy, build)
            })?;
        }
        Ok(automation)
    }
}

impl WrittenPolicy {
    fn read(&self, build: &mut Build<'_>) -> Result<Policy, BuildError> {
        for (key, value) in [
            ("get_certificate", &self.get_certificate),
            ("must_staple", &self.must_staple),
            ("storage", &self.storage),
            ("on_demand", &self.on_demand),
            ("ocsp_overrides", &self.ocsp_overrides),
        ] {
            refuse(key, value, build)?;
        }
        let key_type = known(&self.key_type, build);
        let key = build.at("key_type", |build| {
            let expected = "ed25519, p256, p384, rsa2048 or rsa4096";
            KeyKind::by_name(&key_type).ok_or_else(|| build.refuse(key_type, expected))
        })?;
        let mut issuers = Vec::new();
        for (index, written) in self.issuers.iter().enumerate() {
            issuers.push(build.at(format!("issuers[{index}]"), |build| issuer(written, build))?);
        }
        Ok(Policy {
            subjects: self.subjects.iter().map(|subject| ascii(subject, build)).collect(),
            issuers,
            renewal_ratio: self.renewal_window_ratio.filter(|ratio| *ratio > 0.0 && *ratio <= 1.0),
            key,
            reuse_key: self.reuse_private_keys,
        })
    }
}

fn issuer(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<Issuer, BuildError> {
    let json = Value::Object(written.clone());
    match written.get("module").and_then(Value::as_str) {
        // What they say is looked at when a name needs them; then it is refused with the site that does.
        Some("acme" | "zerossl") => Ok(Issuer::Public),
        Some("internal") => {
            let internal: WrittenInternal = build.parse(&json)?;
            let lifetime = internal.lifetime.as_ref();
            let lifetime = build.at("lifetime", |build| lifetime.map(|span| span.duration(build)).transpose())?;
            let authority = if internal.ca.is_empty() { super::super::pki::LOCAL.to_owned() } else { internal.ca };
            let lifetime = lifetime.filter(|lifetime| !lifetime.is_zero());
            Ok(Issuer::Internal { authority, lifetime, by_root: internal.sign_with_root })
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "issuance", name: name.to_owned() })),
        None => Err(build.refuse(json.to_string(), "an object with a 'module' key, as {\"module\": \"internal\"}")),
    }
}
