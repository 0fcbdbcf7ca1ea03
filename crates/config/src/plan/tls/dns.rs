//! The challenge DNS-01 in an ACME issuer, and its DNS provider.

use causeway_pipeline::build::{DurationConfig, Problem};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::certificates::{DnsChallenge, DnsProvider, PropagationLimit};
use crate::dns::{Form, NAMES, ProviderSyntax};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DnsChallengeConfig {
    #[serde(default)]
    provider: Option<Map<String, Value>>,
    #[serde(default)]
    ttl: Option<DurationConfig>,
    #[serde(default)]
    propagation_delay: Option<DurationConfig>,
    #[serde(default)]
    propagation_timeout: Option<Value>,
    #[serde(default)]
    resolvers: Vec<String>,
    #[serde(default)]
    override_domain: String,
}

/// The members of `apps.tls` that DNS challenges fall back to.
#[derive(Debug, Default)]
pub(in super::super) struct DnsDefaults {
    pub(super) provider: Option<DnsProvider>,
    pub(super) resolvers: Vec<String>,
}

/// Reads `challenges.dns`.
pub(super) fn challenge(
    json: &Value,
    defaults: &DnsDefaults,
    build: &mut Build<'_>,
) -> Result<DnsChallenge, BuildError> {
    let written: DnsChallengeConfig = build.parse(json)?;
    let provider = match (&written.provider, &defaults.provider) {
        (Some(own), _) => build.at("provider", |build| provider(own, build))?,
        (None, Some(provider)) => provider.clone(),
        (None, None) => {
            let expected = "a DNS provider here, or one for all issuers in the option `dns`";
            return Err(build.refuse("no provider", expected));
        }
    };
    let ttl = build.optional_duration("ttl", written.ttl.as_ref())?.filter(|ttl| !ttl.is_zero());
    let propagation_delay = build.optional_duration("propagation_delay", written.propagation_delay.as_ref())?;
    let propagation_delay = propagation_delay.unwrap_or_default();
    let propagation_limit = build.at("propagation_timeout", |build| limit(written.propagation_timeout, build))?;
    let resolvers = if written.resolvers.is_empty() { &defaults.resolvers } else { &written.resolvers };
    Ok(DnsChallenge {
        provider,
        ttl,
        propagation_delay,
        propagation_limit,
        resolvers: resolvers.iter().map(|server| build.expand_constants(server)).collect(),
        override_domain: build.expand_constants(&written.override_domain),
    })
}

fn limit(written: Option<Value>, build: &mut Build<'_>) -> Result<PropagationLimit, BuildError> {
    match written {
        None => Ok(PropagationLimit::Default),
        Some(value) if value == -1 => Ok(PropagationLimit::Unchecked),
        Some(value) => {
            let span: DurationConfig = build.parse(&value)?;
            let limit = span.duration(build)?;
            Ok(if limit.is_zero() { PropagationLimit::Default } else { PropagationLimit::Within(limit) })
        }
    }
}

/// Reads a provider and replaces the placeholders in its settings.
pub(super) fn provider(json: &Map<String, Value>, build: &mut Build<'_>) -> Result<DnsProvider, BuildError> {
    let name = json.get("name").and_then(Value::as_str).unwrap_or_default();
    let Some(syntax) = ProviderSyntax::of(name) else {
        return build.at("name", |build| Err(build.refuse(name, format!("one of {}", NAMES.join(", ")))));
    };
    let mut settings = Map::new();
    for (key, value) in json.iter().filter(|(key, _)| *key != "name" && syntax.ignored(key).is_none()) {
        let Some(form) = syntax.form(key) else {
            let expected = format!("one of {} in the DNS provider {name}", syntax.keys());
            return Err(build.refuse(key, expected));
        };
        let value = build.at(key, |build| setting(form, value, build))?;
        settings.insert(key.clone(), value);
    }
    for key in syntax.required() {
        let written = json.get(key).and_then(Value::as_str).unwrap_or_default();
        let read = settings.get(key).and_then(Value::as_str).unwrap_or_default();
        if read.trim().is_empty() {
            let expected = match written {
                "" => format!("a value, which the DNS provider {name} requires"),
                _ => format!("a value, which the DNS provider {name} requires, and not an empty one: is it set?"),
            };
            return build.at(key, |build| Err(build.refuse(written, expected)));
        }
    }
    let path = build.error(Problem::Shape(String::new())).path;
    Ok(DnsProvider { path, name: name.to_owned(), settings })
}

fn setting(form: Form, value: &Value, build: &mut Build<'_>) -> Result<Value, BuildError> {
    match (form, value) {
        (Form::Required | Form::Optional, Value::String(text)) => Ok(build.expand_constants(text).into()),
        (Form::Words, Value::Array(_)) | (Form::Accounts, Value::Object(_)) => Ok(replaced(value, build)),
        (form, _) => {
            let expected = match form {
                Form::Required | Form::Optional => "a text",
                Form::Words => "a list of texts",
                Form::Accounts => "an object",
            };
            // The value may be a secret.
            Err(build.refuse("a value of another kind", expected))
        }
    }
}

/// Replaces placeholders in all texts of the value.
fn replaced(value: &Value, build: &mut Build<'_>) -> Value {
    match value {
        Value::String(text) => build.expand_constants(text).into(),
        Value::Array(values) => values.iter().map(|value| replaced(value, build)).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), replaced(value, build))).collect(),
        other => other.clone(),
    }
}
