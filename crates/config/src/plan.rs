//! Caddy's JSON configuration to a plan and its listeners.
//!
//! - [`load`]: the whole configuration; strict: an unknown field is an error that names its path
//! - `admin`: what stands beside the apps: the admin API's place, storage, logging
//! - `address`: Caddy's network addresses
//! - `https`: which sites need TLS

mod address;
mod admin;
mod https;

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_pipeline::build::{Problem, ServerSpec};
use causeway_pipeline::{Build, BuildError, HeadLimits, ListenerSpec, Plan, Registry, Timeouts};
use serde::Deserialize;
use serde_json::Value;

pub use admin::{Admin, AdminAddress, Level, Storage, Switch};

/// How long exchanges under way may take to end when the server stops, unless `grace_period` says otherwise.
const GRACE: Duration = Duration::from_secs(10);

/// What a configuration became.
pub struct Loaded {
    /// The routes of all servers.
    pub plan: Plan,
    /// Where they are reached.
    pub listeners: Vec<ListenerSpec>,
    /// How long exchanges may take to end when the server stops.
    pub grace: Duration,
    /// Where the admin API is reached, and by whom.
    pub admin: Admin,
    /// Where what must outlive the process is kept; nothing uses it yet.
    pub storage: Storage,
    /// How much is said on standard error.
    pub level: Level,
}

/// Why a configuration is not served.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A value is wrong; its JSON path is in the error.
    Build(BuildError),
    /// A site would have to be served over TLS, which this version does not speak; never served in the clear silently.
    NeedsTls {
        /// The site's host, or its port where it names none.
        site: String,
    },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::NeedsTls { site } => {
                write!(
                    f,
                    "{site} needs TLS, which this version does not speak: write http://{site} or `auto_https off`"
                )
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<BuildError> for LoadError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    admin: Option<admin::WrittenAdmin>,
    #[serde(default)]
    logging: Option<admin::WrittenLogging>,
    #[serde(default)]
    storage: Option<Value>,
    #[serde(default)]
    apps: Apps,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Apps {
    #[serde(default)]
    http: Http,
    #[serde(default)]
    tls: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Http {
    #[serde(default)]
    http_port: Option<u16>,
    #[serde(default)]
    https_port: Option<u16>,
    #[serde(default)]
    grace_period: Option<Span>,
    #[serde(default)]
    servers: BTreeMap<String, Server>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    #[serde(default)]
    listen: Vec<String>,
    #[serde(default)]
    read_timeout: Option<Span>,
    #[serde(default)]
    read_header_timeout: Option<Span>,
    #[serde(default)]
    write_timeout: Option<Span>,
    #[serde(default)]
    idle_timeout: Option<Span>,
    #[serde(default)]
    max_header_bytes: Option<usize>,
    /// Ours: how long a closing connection waits for the peer's own close.
    #[serde(default)]
    linger_timeout: Option<Span>,
    /// Ours: the limits that Caddy has no name for.
    #[serde(default)]
    limits: HeadLimits,
    #[serde(default)]
    routes: Vec<Value>,
    #[serde(default)]
    errors: Option<Errors>,
    #[serde(default)]
    automatic_https: https::Automatic,
    #[serde(default)]
    tls_connection_policies: Option<Vec<Value>>,
    #[serde(default)]
    logs: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    #[serde(default)]
    routes: Vec<Value>,
}

/// A Caddy duration: nanoseconds, or Go's notation (`1h30m`, `1.5s`, `250ms`), days included.
#[derive(Deserialize)]
#[serde(untagged)]
enum Span {
    Nanoseconds(u64),
    Text(String),
}

impl Span {
    fn duration(&self, build: &Build<'_>) -> Result<Duration, BuildError> {
        match self {
            Self::Nanoseconds(nanoseconds) => Ok(Duration::from_nanos(*nanoseconds)),
            Self::Text(text) => {
                parse_duration(text).ok_or_else(|| build.refuse(text.clone(), "a duration such as 90s, 1m30s or 250ms"))
            }
        }
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let seconds = match &tail[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = &tail[unit..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

/// Compiles a configuration.
///
/// # Errors
/// The first mistake, with its JSON path; or the first site that needs TLS.
pub fn load(json: &Value, registry: &Registry) -> Result<Loaded, LoadError> {
    let mut build = Build::new(registry);
    let config: Config = if json.is_null() { Config::default() } else { parse(json, &build)? };
    let (admin, storage, level) = admin::read(&config, &mut build)?;
    if let Some(tls) = &config.apps.tls {
        build.at("apps.tls", |build| Err::<(), _>(build.refuse(tls.to_string(), "nothing: TLS is not built")))?;
    }
    let http = &config.apps.http;
    let ports = https::Ports { http: http.http_port.unwrap_or(80), https: http.https_port.unwrap_or(443) };
    let mut listeners = Vec::new();
    for (name, server) in &http.servers {
        let listen = build.at(format!("apps.http.servers.{name}"), |build| {
            let addresses = build.at("listen", |build| address::parse_all(&server.listen, build))?;
            let timeouts = server.timeouts(build)?;
            Ok((addresses, timeouts))
        });
        let (addresses, timeouts) = listen?;
        https::check(server, &addresses, ports)?;
        let routes = Value::Array(server.routes.clone());
        let errors = server.errors.as_ref().map(|errors| Value::Array(errors.routes.clone()));
        let spec =
            ServerSpec { errors: errors.as_ref(), access_log: server.logs.is_some(), ..ServerSpec::new(name, &routes) };
        let id = build.at(format!("apps.http.servers.{name}"), |build| build.server(&spec))?;
        let head = HeadLimits {
            head_bytes_max: server.max_header_bytes.unwrap_or(server.limits.head_bytes_max),
            ..server.limits
        };
        listeners.extend(addresses.into_iter().map(|address| ListenerSpec { address, server: id, timeouts, head }));
    }
    let grace = match &http.grace_period {
        Some(span) => build.at("apps.http.grace_period", |build| span.duration(build))?,
        None => GRACE,
    };
    Ok(Loaded { plan: build.finish(), listeners, grace, admin, storage, level })
}

fn parse(json: &Value, build: &Build<'_>) -> Result<Config, BuildError> {
    serde_path_to_error::deserialize(json).map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let path = error.path().to_string();
        BuildError { path, ..build.error(Problem::Shape(error.into_inner().to_string())) }
    })
}

impl Server {
    fn timeouts(&self, build: &mut Build<'_>) -> Result<Timeouts, BuildError> {
        let mut timeouts = Timeouts::default();
        for (key, span, timeout) in [
            ("read_header_timeout", &self.read_header_timeout, &mut timeouts.head),
            ("read_timeout", &self.read_timeout, &mut timeouts.body_idle),
            ("write_timeout", &self.write_timeout, &mut timeouts.write_idle),
            ("idle_timeout", &self.idle_timeout, &mut timeouts.keep_alive),
            ("linger_timeout", &self.linger_timeout, &mut timeouts.linger),
        ] {
            if let Some(span) = span {
                *timeout = build.at(key, |build| span.duration(build))?;
            }
        }
        Ok(timeouts)
    }
}

#[cfg(test)]
mod tests;
