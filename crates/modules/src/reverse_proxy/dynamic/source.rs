//! A source of upstreams: `a` or `srv`; `multi` is a list of them.

use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::worker::{Families, Question, Resolver};
use causeway_pipeline::{Build, BuildError, Context, Template};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::super::read_duration;
use super::resolver::{self, ResolverConfig};

/// How long an answer is used; Caddy's.
const REFRESH: Duration = Duration::from_secs(60);
/// Sources that contain each other; deeper ones are a mistake.
const DEPTH_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressesConfig {
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    port: String,
    refresh: Option<DurationConfig>,
    resolver: Option<ResolverConfig>,
    dial_timeout: Option<DurationConfig>,
    dial_fallback_delay: Option<DurationConfig>,
    versions: Option<VersionsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionsConfig {
    ipv4: Option<bool>,
    ipv6: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServicesConfig {
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    service: String,
    #[serde(default)]
    proto: String,
    #[serde(default)]
    name: String,
    refresh: Option<DurationConfig>,
    grace_period: Option<DurationConfig>,
    resolver: Option<ResolverConfig>,
    dial_timeout: Option<DurationConfig>,
    dial_fallback_delay: Option<DurationConfig>,
    #[serde(default)]
    dial_network: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MultiConfig {
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    sources: Vec<IgnoredAny>,
}

/// A source.
pub(super) struct Source {
    kind: Kind,
    /// How long an answer is used without a new lookup.
    pub(super) refresh: Duration,
    /// How long the last answer is used after a failed lookup; `None`: not at all.
    pub(super) grace: Option<Duration>,
    pub(super) resolver: Option<Arc<Resolver>>,
    /// Its name in the configuration, for the log.
    pub(super) shown: Box<str>,
}

enum Kind {
    Addresses {
        name: Template,
        port: Template,
        families: Families,
    },
    /// The full name of the service.
    Services(Template),
}

/// A source's question for one request, and the port for addresses.
pub(super) struct SourceQuestion {
    pub(super) question: Question,
    pub(super) port: Box<str>,
}

impl Source {
    /// Compiles a source and those in it.
    pub(super) fn build(value: &Value, sources: &mut Vec<Self>, build: &mut Build<'_>) -> Result<(), BuildError> {
        Self::build_at(value, sources, 0, build)
    }

    fn build_at(value: &Value, sources: &mut Vec<Self>, depth: usize, build: &mut Build<'_>) -> Result<(), BuildError> {
        match value["source"].as_str().unwrap_or_default() {
            "a" => sources.push(Self::addresses(build.parse(value)?, build)?),
            "srv" => sources.push(Self::services(build.parse(value)?, build)?),
            "multi" if depth == DEPTH_MAX => {
                let expected = format!("at most {DEPTH_MAX} sources within each other");
                return build.at("source", |build| Err(build.refuse("multi", expected)));
            }
            "multi" => {
                let written: MultiConfig = build.parse(value)?;
                for index in 0..written.sources.len() {
                    let inner = &value["sources"][index];
                    build.at(format!("sources[{index}]"), |build| Self::build_at(inner, sources, depth + 1, build))?;
                }
            }
            other => return build.at("source", |build| Err(build.refuse(other, "a, srv or multi"))),
        }
        Ok(())
    }

    fn addresses(written: AddressesConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        if written.name.is_empty() {
            return build.at("name", |build| Err(build.refuse("none", "a name to look up")));
        }
        let port = if written.port.is_empty() { "80" } else { &*written.port };
        let template = build.template(port);
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse() != Ok(0_u16);
        if template.literal().is_some_and(|text| !is_port(text) || text.parse::<u16>().is_err()) {
            return build.at("port", |build| Err(build.refuse(port, "a port from 1 to 65535")));
        }
        let families = match written.versions.map(|versions| (versions.ipv4, versions.ipv6)) {
            None | Some((None, None)) => Families::Both,
            // As in Caddy, a list that names neither names both.
            Some((ipv4, ipv6)) => match (ipv4.unwrap_or(false), ipv6.unwrap_or(false)) {
                (true, false) => Families::Ipv4,
                (false, true) => Families::Ipv6,
                _ => Families::Both,
            },
        };
        Ok(Self {
            shown: format!("{}:{port}", written.name).into(),
            kind: Kind::Addresses { name: build.template(&written.name), port: template, families },
            refresh: read_duration("refresh", written.refresh.as_ref(), build)?.unwrap_or(REFRESH),
            grace: None,
            resolver: resolver::build(
                written.resolver.as_ref(),
                written.dial_timeout.as_ref(),
                written.dial_fallback_delay.as_ref(),
                build,
            )?,
        })
    }

    fn services(written: ServicesConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        if written.name.is_empty() {
            return build.at("name", |build| Err(build.refuse("none", "a name to look up")));
        }
        // DEVIATES Caddy: with one of the two it looks up a name such as `_._tcp.example.com`, which cannot exist.
        for (key, text, other) in
            [("service", &written.service, &written.proto), ("proto", &written.proto, &written.service)]
        {
            if text.is_empty() && !other.is_empty() {
                return build.at(key, |build| Err(build.refuse("none", "both of service and proto, or neither")));
            }
        }
        if !matches!(&*written.dial_network, "" | "tcp") {
            let expected = "tcp; other networks are not supported (docs/refused.md)";
            return build.at("dial_network", |build| Err(build.refuse(written.dial_network.clone(), expected)));
        }
        let full = match &*written.service {
            "" => written.name,
            service => format!("_{service}._{}.{}", written.proto, written.name),
        };
        Ok(Self {
            kind: Kind::Services(build.template(&full)),
            shown: full.into(),
            refresh: read_duration("refresh", written.refresh.as_ref(), build)?.unwrap_or(REFRESH),
            grace: read_duration("grace_period", written.grace_period.as_ref(), build)?,
            resolver: resolver::build(
                written.resolver.as_ref(),
                written.dial_timeout.as_ref(),
                written.dial_fallback_delay.as_ref(),
                build,
            )?,
        })
    }

    /// Returns whether the source is `srv`.
    pub(super) fn is_service(&self) -> bool {
        matches!(self.kind, Kind::Services(_))
    }

    /// Returns whether the source has the same question for every request.
    pub(super) fn is_fixed(&self) -> bool {
        match &self.kind {
            Kind::Addresses { name, port, .. } => name.literal().is_some() && port.literal().is_some(),
            Kind::Services(name) => name.literal().is_some(),
        }
    }

    /// Appends the text that identifies the question of a request.
    pub(super) fn render_key(&self, cx: &mut Context, key: &mut Vec<u8>) {
        match &self.kind {
            Kind::Addresses { name, port, .. } => {
                name.render(cx, key);
                // A port has no line break, so that keys differ if the questions do.
                key.push(b'\n');
                port.render(cx, key);
            }
            Kind::Services(name) => name.render(cx, key),
        }
    }

    /// Returns the question that a key identifies.
    pub(super) fn question(&self, key: &[u8]) -> SourceQuestion {
        let text = String::from_utf8_lossy(key);
        match &self.kind {
            Kind::Addresses { families, .. } => {
                let (name, port) = text.rsplit_once('\n').unwrap_or((&text, ""));
                SourceQuestion {
                    question: Question::Addresses { name: name.into(), families: *families },
                    port: port.into(),
                }
            }
            Kind::Services(_) => {
                SourceQuestion { question: Question::Services { name: (&*text).into() }, port: Box::default() }
            }
        }
    }
}
