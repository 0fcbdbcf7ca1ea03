//! The handler `acme_server`: an ACME authority that signs with a local certificate authority
//! (`causeway_acme::server`).

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use causeway_acme::server::{
    AcmeServer, BODY_BYTES_MAX, ChallengeKind, Policy, Ports, Rules, ServerPlan, ServerRequest, ServerResponse,
};
use causeway_certs::SignedBy;
use causeway_message::{FieldValue, NameRef, StatusCode, names};
use causeway_pipeline::build::nanoseconds;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{
    BodyError, Build, BuildError, Context, Fault, Handler, IncomingBody, ReadBody, ReadEnd, Registry, Response, Step,
};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

/// Caddy's defaults.
const PREFIX: &str = "/acme/";
const AUTHORITY: &str = "local";
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// The shortest lifetime of a certificate.
const LIFETIME_MIN: Duration = Duration::from_secs(5 * 60);

/// Adds the handler to a registry.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_handler("acme_server", make);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcmeServerConfig {
    #[serde(default)]
    ca: String,
    #[serde(default)]
    lifetime: Value,
    #[serde(default)]
    host: String,
    #[serde(default)]
    path_prefix: String,
    #[serde(default)]
    sign_with_root: bool,
    #[serde(default)]
    resolvers: Vec<String>,
    #[serde(default)]
    challenges: Vec<String>,
    #[serde(default)]
    policy: PolicyConfig,
    /// Not Caddy's: for networks whose clients cannot use the ports 80 and 443.
    #[serde(default)]
    validation_ports: PortsConfig,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PolicyConfig {
    #[serde(default)]
    allow: RulesConfig,
    #[serde(default)]
    deny: RulesConfig,
    #[serde(default)]
    allow_wildcard_names: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RulesConfig {
    #[serde(default)]
    domains: Vec<String>,
    #[serde(default)]
    ip_ranges: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PortsConfig {
    #[serde(default)]
    http: Option<u16>,
    #[serde(default)]
    tls_alpn: Option<u16>,
}

/// Answers the requests below its prefix. Others continue.
struct AcmeServerHandler {
    /// `/acme/local`.
    path: String,
    /// The host in URLs; empty for that of the request.
    host: String,
    server: Arc<AcmeServer>,
}

fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: AcmeServerConfig = build.parse_module(value)?;
    let authority = if written.ca.is_empty() { AUTHORITY.to_owned() } else { written.ca };
    let prefix = if written.path_prefix.is_empty() { PREFIX.to_owned() } else { written.path_prefix };
    if !prefix.starts_with('/') || !prefix.ends_with('/') {
        return build
            .at("path_prefix", |build| Err(build.refuse(prefix, "a path that begins and ends with '/', as /acme/")));
    }
    let challenges = build.at("challenges", |build| challenges(&written.challenges, build))?;
    let policy = build.at("policy", |build| {
        let allow = build.at("allow", |build| rules(written.policy.allow, build))?;
        let deny = build.at("deny", |build| rules(written.policy.deny, build))?;
        Ok(Policy { allow, deny, wildcards: written.policy.allow_wildcard_names })
    })?;
    if policy.is_open() {
        tracing::warn!("acme_server: no allow or deny rules: it issues certificates of '{authority}' for all names");
    }
    let defaults = Ports::default();
    let ports = Ports {
        http: written.validation_ports.http.unwrap_or(defaults.http),
        tls_alpn: written.validation_ports.tls_alpn.unwrap_or(defaults.tls_alpn),
    };
    let plan = ServerPlan {
        lifetime: build.at("lifetime", |build| lifetime(&written.lifetime, build))?,
        by: if written.sign_with_root { SignedBy::Root } else { SignedBy::Intermediate },
        resolvers: build.at("resolvers", |build| resolvers(&written.resolvers, build))?,
        challenges,
        policy,
        ports,
        authority,
    };
    let path = format!("{prefix}{}", plan.authority);
    Ok(Box::new(AcmeServerHandler { path, host: written.host, server: Arc::new(AcmeServer::new(plan)) }))
}

fn lifetime(written: &Value, build: &Build<'_>) -> Result<Duration, BuildError> {
    let found = match written {
        Value::Null => return Ok(LIFETIME),
        Value::Number(number) => number.as_i64(),
        Value::String(text) => nanoseconds(text),
        _ => None,
    };
    match found.and_then(|found| u64::try_from(found).ok()).map(Duration::from_nanos) {
        Some(Duration::ZERO) => Ok(LIFETIME),
        Some(lifetime) if lifetime >= LIFETIME_MIN => Ok(lifetime),
        _ => Err(build.refuse(written.to_string(), "a duration of at least 5m")),
    }
}

/// Without a list, all challenges that this server has.
fn challenges(written: &[String], build: &Build<'_>) -> Result<Vec<ChallengeKind>, BuildError> {
    let mut kinds = Vec::new();
    for name in written {
        let kind = ChallengeKind::by_name(&name.trim().to_ascii_lowercase());
        let kind = kind.ok_or_else(|| build.refuse(name.clone(), ChallengeKind::names()))?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(if kinds.is_empty() { ChallengeKind::ALL.to_vec() } else { kinds })
}

fn rules(written: RulesConfig, build: &mut Build<'_>) -> Result<Rules, BuildError> {
    let ranges = build.at("ip_ranges", |build| {
        let range = |text: &String| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>()
                .or_else(|_| address())
                .map_err(|_| build.refuse(text.clone(), "an address or a CIDR range"))
        };
        written.ip_ranges.iter().map(range).collect::<Result<_, _>>()
    })?;
    let is_wrong = |domain: &&String| domain.trim_start_matches("*.").contains('*') || domain.is_empty();
    if let Some(domain) = written.domains.iter().find(is_wrong) {
        return build.at("domains", |build| Err(build.refuse(domain.clone(), "a name, optionally with `*.` in front")));
    }
    Ok(Rules { domains: written.domains, ranges })
}

/// Addresses in Caddy's form, over UDP.
fn resolvers(written: &[String], build: &Build<'_>) -> Result<Vec<String>, BuildError> {
    let resolver = |text: &String| {
        let bare = text.strip_prefix("udp/").unwrap_or(text);
        if bare.is_empty() || bare.contains('/') || bare.contains(char::is_whitespace) {
            return Err(build.refuse(text.clone(), "a host or an IP address, optionally with a port"));
        }
        Ok(bare.to_owned())
    };
    written.iter().map(resolver).collect()
}

impl Handler for AcmeServerHandler {
    fn enter(&self, cx: &mut Context) -> Step {
        let rest = cx.path().strip_prefix(self.path.as_bytes()).filter(|rest| rest.starts_with(b"/"));
        let Some(rest) = rest.and_then(|rest| std::str::from_utf8(rest).ok()) else { return Step::Next };
        let rest = rest.to_owned();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let method = cx.head().method().as_str().to_owned();
        let media_type = cx.head().fields().get(names::CONTENT_TYPE).map(text).unwrap_or_default();
        let host = if self.host.is_empty() { cx.head().authority().unwrap_or_default() } else { &*self.host };
        let base = format!("https://{host}{}", self.path);
        let (server, body, worker) = (Arc::clone(&self.server), cx.take_body(), Rc::clone(cx.worker()));
        let (client, now) = (cx.client().network(), worker.wall());
        let future = async move {
            let body = read_body(body).await?;
            let work = Work::of(WorkKind::Blocking).for_party("acme_server", client);
            let answer = move || {
                let request =
                    ServerRequest { method: &method, base: &base, path: &rest, media_type: &media_type, body: &body };
                server.answer(request, now)
            };
            let answer = offload(&*worker, work, answer).map_err(|_| Fault::busy())?;
            answer.await.ok_or_else(|| Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR))
        };
        cx.wait(future, |cx, answered: Result<ServerResponse, Fault>| match answered {
            Ok(answer) => respond(cx, answer),
            Err(fault) => Step::Fail(fault),
        })
    }
}

async fn read_body(body: Option<IncomingBody>) -> Result<Vec<u8>, Fault> {
    let Some(body) = body else { return Ok(Vec::new()) };
    let read = ReadBody::new(body, BODY_BYTES_MAX).await;
    match read.end {
        ReadEnd::Whole => Ok(read.bytes),
        ReadEnd::Longer(..) => Err(Fault::from_body_error(BodyError::TooLarge)),
        ReadEnd::Broken(error) => Err(Fault::from_body_error(error)),
    }
}

fn respond(cx: &mut Context, answer: ServerResponse) -> Step {
    let head = cx.response_mut();
    for name in answer.fields.iter().filter_map(|(name, _)| NameRef::parse(name.as_bytes())) {
        head.remove(name);
    }
    // Some names come twice: a response to a challenge has two links.
    for (name, value) in &answer.fields {
        // A host that a client sent is in some of the values; one with control characters is left out.
        if let (Some(name), Some(value)) = (NameRef::parse(name.as_bytes()), FieldValue::parse(value.as_bytes())) {
            head.append(name, value);
        }
    }
    let status = StatusCode::new(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Step::Respond(if answer.body.is_empty() {
        Response::empty(status)
    } else {
        Response::chunk(status, answer.body.into())
    })
}
