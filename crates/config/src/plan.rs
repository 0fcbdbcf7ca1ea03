//! Caddy's JSON configuration to a plan and its listeners.
//!
//! - [`load`]: the whole configuration; strict: an unknown field is an error that names its path
//! - `admin`: what stands beside the apps: the admin API's place, storage, logging
//! - `server`: one of the HTTP app's servers
//! - `address`, `duration`: Caddy's network addresses and durations
//! - `https`: which sites need TLS

mod address;
mod admin;
mod duration;
mod https;
mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_pipeline::build::{Problem, Shape};
use causeway_pipeline::{Build, BuildError, ListenerSpec, Plan, Registry};
use serde::Deserialize;
use serde_json::Value;

pub use admin::{Admin, AdminAddress, Level, Storage, Switch};

use duration::Span;
use server::Server;

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
    /// How long the server goes on as before, once it was told to stop.
    pub shutdown_delay: Duration,
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
    shutdown_delay: Option<Span>,
    #[serde(default)]
    servers: BTreeMap<String, Server>,
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
        let json = &json["apps"]["http"]["servers"][name];
        listeners.extend(server.build(name, json, ports, &mut build)?);
    }
    let grace = match &http.grace_period {
        Some(span) => build.at("apps.http.grace_period", |build| span.duration(build))?,
        None => GRACE,
    };
    let shutdown_delay = match &http.shutdown_delay {
        Some(span) => build.at("apps.http.shutdown_delay", |build| span.duration(build))?,
        None => Duration::ZERO,
    };
    Ok(Loaded { plan: build.finish(), listeners, grace, shutdown_delay, admin, storage, level })
}

fn parse(json: &Value, build: &Build<'_>) -> Result<Config, BuildError> {
    serde_path_to_error::deserialize(Shape(json)).map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let path = error.path().to_string();
        BuildError { path, ..build.error(Problem::Shape(error.into_inner().to_string())) }
    })
}

#[cfg(test)]
mod tests;
