//! Caddy's JSON configuration to a plan and its listeners.
//!
//! - [`load`]: the whole configuration; strict: an unknown field is an error that names its path
//! - `admin`: what stands beside the apps: the admin API's place, storage, logging
//! - `server`: one of the HTTP app's servers; `policy`: how its connections are protected
//! - `tls`, `pki`: the apps of these names: certificates, and authorities of our own
//! - `certificates`: what all of that wants of certificates
//! - `https`: automatic HTTPS
//! - `address`, `duration`: Caddy's network addresses and durations

mod address;
mod admin;
mod certificates;
mod duration;
mod https;
mod pki;
mod policy;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_pipeline::build::{Problem, ServerSpec, Shape};
use causeway_pipeline::{Build, BuildError, ListenerSpec, Plan, Protocols, Registry};
use serde::Deserialize;
use serde_json::Value;

pub use admin::{Admin, AdminAddress, Level, Storage, Switch};
pub use certificates::{CertificateAuthority, CertificateFiles, CertificateSource, Certificates, KeyKind, ManagedName};

use duration::Span;
use server::{Prepared, Server};

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
    /// Where what must outlive the process is kept: certificates, and authorities of our own.
    pub storage: Storage,
    /// What has to be there before the sites can be served.
    pub certificates: Certificates,
    /// What is served otherwise than it was asked for, a line each.
    pub notes: Vec<String>,
    /// How much is said on standard error.
    pub level: Level,
}

/// Why a configuration is not served.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A value is wrong; its JSON path is in the error.
    Build(BuildError),
    /// A site's certificate would have to come from a public authority, which this version cannot ask.
    NeedsAcme {
        /// The site's host.
        site: String,
    },
    /// A certificate that the operator has cannot be loaded.
    Certificates(CertificateFault),
}

/// Why certificates cannot be loaded, by whoever looked at them; one line that names the file.
pub type CertificateFault = Box<dyn std::error::Error + Send + Sync>;

/// Answers which names are in certificates that the operator has.
pub type NamesOf<'a> = &'a dyn Fn(&[CertificateSource]) -> Result<Vec<String>, CertificateFault>;

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::NeedsAcme { site } => {
                write!(
                    f,
                    "{site} needs a certificate of a public authority (ACME), which this version cannot get; expected an \
                     internal issuer, a certificate that is loaded, or the site on the HTTP port only"
                )
            }
            Self::Certificates(fault) => fault.fmt(f),
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
    tls: Option<tls::WrittenTls>,
    #[serde(default)]
    pki: Option<pki::WrittenPki>,
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

/// Compiles a configuration without a look at the certificates that it loads: names that these are for are taken for names
/// that need one.
///
/// # Errors
/// The first mistake, with its JSON path; or the first site that needs a certificate which cannot be had.
pub fn load(json: &Value, registry: &Registry) -> Result<Loaded, LoadError> {
    load_with(json, registry, &|_| Ok(Vec::new()))
}

/// Compiles a configuration; `names_of` reads the certificates that it loads.
///
/// # Errors
/// As [`load`]'s, and what is wrong with a certificate.
pub fn load_with(json: &Value, registry: &Registry, names_of: NamesOf<'_>) -> Result<Loaded, LoadError> {
    let mut build = Build::new(registry);
    let config: Config = if json.is_null() { Config::default() } else { parse(json, &build)? };
    let (admin, storage, level) = admin::read(&config, &mut build)?;
    let mut tls = config.apps.tls.as_ref().map(|tls| tls.read(&mut build)).transpose()?.unwrap_or_default();
    let mut authorities = pki::read(config.apps.pki.as_ref(), &mut build)?;
    let http = &config.apps.http;
    let ports = https::Ports { http: http.http_port.unwrap_or(80), https: http.https_port.unwrap_or(443) };
    let mut servers = Vec::with_capacity(http.servers.len());
    for (name, server) in &http.servers {
        let json = &json["apps"]["http"]["servers"][name];
        servers.push(server.prepare(name, json, &mut tls.sources, &mut build)?);
    }
    let loaded = names_of(&tls.sources).map_err(LoadError::Certificates)?;
    let (listeners, managed) = serve(servers, ports, &tls, &loaded, &mut authorities, &mut build)?;
    let look_every = tls.automation.look_every;
    let certificates = Certificates { sources: tls.sources, authorities, managed, look_every };
    let unbuilt = http.servers.iter().filter(|(_, server)| server.names_http3());
    let notes =
        unbuilt.map(|(name, _)| format!("server {name}: HTTP/3 is not built yet; it speaks the others")).collect();
    let grace = match &http.grace_period {
        Some(span) => build.at("apps.http.grace_period", |build| span.duration(build))?,
        None => GRACE,
    };
    let shutdown_delay = match &http.shutdown_delay {
        Some(span) => build.at("apps.http.shutdown_delay", |build| span.duration(build))?,
        None => Duration::ZERO,
    };
    Ok(Loaded { plan: build.finish(), listeners, grace, shutdown_delay, admin, storage, level, certificates, notes })
}

/// Adds the servers to the plan, with what automatic HTTPS makes of them; also returns the names that it wants certificates for.
fn serve(
    mut servers: Vec<Prepared<'_>>,
    ports: https::Ports,
    tls: &tls::Tls,
    loaded: &[String],
    authorities: &mut Vec<CertificateAuthority>,
    build: &mut Build<'_>,
) -> Result<(Vec<ListenerSpec>, Vec<ManagedName>), LoadError> {
    let policies: Vec<_> = servers.iter_mut().map(|server| server.policies.take()).collect();
    let mut sites: Vec<_> = servers
        .iter()
        .zip(policies)
        .map(|(server, policies)| https::Site {
            automatic: server.written.automatic(),
            routes: server.routes(),
            listen: server.listen.clone(),
            policies,
            inserted: None,
            access_log: server.written.access_log(),
        })
        .collect();
    let arranged = https::arrange(&mut sites, ports, tls, loaded, authorities, build)?;
    let sites: Vec<_> = sites.into_iter().map(|site| (site.policies, site.inserted)).collect();
    let mut listeners = Vec::new();
    for (server, (policies, inserted)) in servers.into_iter().zip(sites) {
        listeners.extend(server.build(policies, inserted, ports, build)?);
    }
    if let Some(remaining) = arranged.remaining {
        let spec =
            ServerSpec { access_log: arranged.access_log, ..ServerSpec::new(https::REDIRECTS, &remaining.routes) };
        let id = build.at("automatic HTTPS", |build| build.server(&spec))?;
        let protocols = Protocols::default();
        listeners.extend(
            remaining.listen.into_iter().map(|address| ListenerSpec { protocols, ..ListenerSpec::new(address, id) }),
        );
    }
    Ok((listeners, arranged.managed))
}

/// A field that is known and not built.
fn refuse(key: &str, value: &Option<Value>, build: &mut Build<'_>) -> Result<(), BuildError> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(value) => build.at(key, |build| Err(build.refuse(value.to_string(), "nothing: this is not built"))),
    }
}

fn parse(json: &Value, build: &Build<'_>) -> Result<Config, BuildError> {
    serde_path_to_error::deserialize(Shape(json)).map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let path = error.path().to_string();
        BuildError { path, ..build.error(Problem::Shape(error.into_inner().to_string())) }
    })
}

#[cfg(test)]
mod tests;
