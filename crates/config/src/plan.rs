//! Compiles Caddy's JSON configuration to a plan and its listeners.
//!
//! - [`load`]: the whole configuration. Strict: an unknown field is an error that names its JSON path
//! - `admin`: the parts outside of the apps: admin API, logging; `storage`: files or a server
//! - `server`: one server of the HTTP app; `policy`: the TLS settings of its connections;
//!   `wrappers`: the layers before HTTP on them; `ip_sources`: the networks of its trusted proxies
//! - `tls`, `pki`: the apps of these names: certificates, and local certificate authorities
//! - `certificates`: the certificates that all of these need, as plain records
//! - `https`: automatic HTTPS; `client_certificates`: the certificates that proxies present
//! - `address`: Caddy's network addresses

mod address;
mod admin;
mod certificates;
mod client_certificates;
mod https;
mod ip_sources;
mod pki;
mod policy;
mod server;
mod storage;
mod tls;
mod trusted;
mod wrappers;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use causeway_pipeline::build::trust_pool::{CertificateList, EndpointTls};
use causeway_pipeline::build::{DurationConfig, Problem, ServerSpec, Shape};
use causeway_pipeline::{Build, BuildError, ListenerSpec, MetricsSpec, Plan, Protocols, Registry};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::caddyfile::write_plugin;

pub use admin::{
    Admin, AdminAddress, ConfigPull, HttpLoader, Identity, LoaderCredentials, RemoteAccess, RemoteAdmin,
    RemotePermission, canonical_path,
};
pub use certificates::{
    AcmeIssuer, CertificateAuthority, CertificateFiles, CertificateGetter, CertificateSelection, CertificateSource,
    Certificates, DnsChallenge, DnsProvider, ExternalAccount, KeyAlgorithm, KeyKind, ManagedName, OcspStapling,
    PreferredChains, PropagationLimit, ProxySetting, PublicIssuer, PublicName, SessionTickets, StorageCleaning,
    TicketKeySource, ZeroSslIssuer,
};
pub use https::{OnDemand, SignedName};
pub use ip_sources::RangeFetch;
pub use storage::{RedisCompression, RedisRoots, RedisServer, RedisTlsSettings, Secret, Storage};

use server::{PreparedServer, ServerConfig};
use trusted::TrustedSources;

/// Default of `grace_period`: how long shutdown waits for exchanges in progress.
const GRACE: Duration = Duration::from_secs(10);

/// A compiled configuration.
pub struct Loaded {
    /// The routes of all servers.
    pub plan: Plan,
    /// The addresses that the servers listen on.
    pub listeners: Vec<ListenerSpec>,
    /// How long shutdown waits for exchanges in progress before it cancels them.
    pub grace: Duration,
    /// How long the server continues to serve normally after the signal to shut down.
    pub shutdown_delay: Duration,
    /// The admin API: its address and its access rules.
    pub admin: Admin,
    /// Persistent storage for certificates and local authorities.
    pub storage: Storage,
    /// The certificates of the sites.
    pub certificates: Certificates,
    /// The networks of trusted proxies that must be fetched while the sites are served. No two are equal.
    pub range_fetches: Vec<RangeFetch>,
    /// Whether the metrics are sent to a collector too, which the environment names.
    pub pushes_metrics: bool,
    /// Warnings about settings that are served differently than written, one line each.
    pub warnings: Vec<String>,
}

/// Why a configuration was rejected.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlanError {
    /// A value is invalid. The error holds its JSON path.
    Build(BuildError),
    /// A wildcard site needs a certificate from a public authority, which signs it only after the challenge DNS-01, and
    /// no DNS provider is set for it.
    NeedsDns {
        /// The site's host.
        site: String,
    },
    /// A certificate that the operator supplies cannot be loaded.
    Certificates(CertificateReadError),
}

/// Why certificates cannot be loaded, from the caller's loader. One line that names the file.
pub type CertificateReadError = Box<dyn std::error::Error + Send + Sync>;

/// Reads the certificates that a configuration names, while it is compiled. Blocks on disk and network. Without an
/// implementation of their own, the methods are errors.
pub trait CertificateReader {
    /// Loads the operator's certificates, some of which may be in the storage, and returns the names that they cover,
    /// in any order.
    ///
    /// # Errors
    /// A certificate cannot be loaded.
    fn load(&self, sources: &[CertificateSource], storage: &Storage) -> Result<Vec<String>, CertificateReadError>;

    /// Returns the authorities that the system trusts.
    ///
    /// # Errors
    /// None can be read.
    fn system(&self) -> Result<CertificateList, CertificateReadError> {
        Err(NOT_READ.into())
    }

    /// Returns the certificates of a local authority as PEM; creates the authority if it is missing. `default_storage`
    /// is the storage of authorities without one of their own.
    ///
    /// # Errors
    /// The authority cannot be read or created.
    fn authority(
        &self,
        authority: &CertificateAuthority,
        default_storage: &Storage,
    ) -> Result<AuthorityCertificates, CertificateReadError> {
        let _ = (authority, default_storage);
        Err(NOT_READ.into())
    }

    /// Returns the value of a key in a storage.
    ///
    /// # Errors
    /// The storage cannot be read, or has no such key.
    fn stored(&self, storage: &Storage, key: &str) -> Result<Vec<u8>, CertificateReadError> {
        let _ = (storage, key);
        Err(NOT_READ.into())
    }

    /// Returns the answer of a server. The URL may be malformed.
    ///
    /// # Errors
    /// The server does not answer with status 200.
    fn fetched(&self, url: &str, tls: &EndpointTls) -> Result<Vec<u8>, CertificateReadError> {
        let _ = (url, tls);
        Err(NOT_READ.into())
    }
}

/// The certificates of a local authority, as PEM.
#[derive(Debug, Clone)]
pub struct AuthorityCertificates {
    /// Its root.
    pub root: String,
    /// Its current intermediate.
    pub intermediate: String,
}

/// Reads nothing: the configuration's certificates cover no names, and it trusts no sources.
struct NoReader;

impl CertificateReader for NoReader {
    fn load(&self, _: &[CertificateSource], _: &Storage) -> Result<Vec<String>, CertificateReadError> {
        Ok(Vec::new())
    }
}

const NOT_READ: &str = "the configuration is compiled without its certificates";

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Build(error) => {
                error.fmt(f)?;
                match (&error.problem, error.path.strip_prefix("apps.")) {
                    (Problem::UnknownModule { name, .. }, _) => write_plugin(f, name),
                    // An app is a module too.
                    (Problem::Shape(words), Some(app)) if words.starts_with("unknown field") && !app.contains('.') => {
                        f.write_str(" (docs/refused.md)")?;
                        write_plugin(f, app)
                    }
                    _ => Ok(()),
                }
            }
            Self::NeedsDns { site } => {
                write!(
                    f,
                    "{site} needs the DNS challenge of a public authority; expected a DNS provider for it, names without '*', an \
                     internal issuer, a certificate that is loaded, or the site on the HTTP port only"
                )
            }
            Self::Certificates(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<BuildError> for PlanError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RootConfig {
    #[serde(default)]
    admin: Option<admin::AdminConfig>,
    #[serde(default)]
    logging: Option<admin::LoggingConfig>,
    #[serde(default)]
    storage: Option<Value>,
    #[serde(default)]
    apps: AppsConfig,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct AppsConfig {
    /// Defaults of all `cache` handlers.
    #[serde(default)]
    cache: Option<Value>,
    #[serde(default)]
    http: HttpConfig,
    #[serde(default)]
    tls: Option<tls::TlsConfig>,
    #[serde(default)]
    pki: Option<pki::PkiConfig>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct HttpConfig {
    #[serde(default)]
    http_port: Option<u16>,
    #[serde(default)]
    https_port: Option<u16>,
    #[serde(default)]
    grace_period: Option<DurationConfig>,
    #[serde(default)]
    shutdown_delay: Option<DurationConfig>,
    #[serde(default)]
    metrics: Option<MetricsConfig>,
    #[serde(default)]
    servers: BTreeMap<String, ServerConfig>,
}

/// `apps.http.metrics`, or the older `metrics` of a server. Its presence makes the servers count their requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsConfig {
    #[serde(default)]
    per_host: bool,
    #[serde(default)]
    observe_catchall_hosts: bool,
    #[serde(default)]
    otlp: bool,
}

/// Compiles a configuration without reading the certificates that it loads. The names that those cover therefore count
/// as names that need a managed certificate. A pool of trusted authorities outside the configuration and its files is
/// an error.
///
/// # Errors
/// Returns the first invalid value, with its JSON path, or the first site that needs a certificate from a public
/// authority.
pub fn load(json: &Value, registry: &Registry) -> Result<Loaded, PlanError> {
    load_with(json, registry, &NoReader, Vec::new())
}

/// Reads only where a configuration stores certificates and authorities.
///
/// # Errors
/// Returns the first invalid value, with its JSON path.
pub fn load_storage(json: &Value, registry: &Registry) -> Result<Storage, PlanError> {
    let written = json.get("storage").filter(|written| !written.is_null());
    Ok(storage::read(written, &mut Build::new(registry))?)
}

/// Compiles a configuration; `reader` reads the certificates that it names, and no site serves `own_files`
/// ([`Build::set_own_files`]). Blocks on files, on name resolution and on the reader.
///
/// # Errors
/// As [`load`]; also if a certificate cannot be loaded.
pub fn load_with(
    json: &Value,
    registry: &Registry,
    reader: &dyn CertificateReader,
    own_files: Vec<PathBuf>,
) -> Result<Loaded, PlanError> {
    let mut build = Build::new(registry);
    build.set_own_files(own_files);
    let config: RootConfig = if json.is_null() { RootConfig::default() } else { parse(json, &build)? };
    let (admin, storage) = admin::read(&config, &mut build)?;
    let mut tls = config.apps.tls.as_ref().map(|tls| tls.read(&mut build)).transpose()?.unwrap_or_default();
    let mut authorities = pki::read(config.apps.pki.as_ref(), &mut build)?;
    build.at("apps.http", |build| pki::serve(&json["apps"]["http"], &mut authorities, build))?;
    let uses_local = set_trust_reader(reader, &storage, &authorities, &mut build);
    tls.presented = client_certificates::names(&json["apps"]["http"], &mut build);
    if let Some(cache) = &config.apps.cache {
        build.set_app("cache", cache.clone());
    }
    let http = &config.apps.http;
    measure(http, &mut build)?;
    // Prepare all servers before `serve` compiles any routes: automatic HTTPS needs to see every server at once.
    let mut selections = BTreeMap::new();
    let servers = http.prepare_servers(&json["apps"]["http"]["servers"], &mut selections, &mut build)?;
    let range_fetches = range_fetches(&servers);
    let admin = admin.with_identity(config.admin.as_ref(), &tls, &authorities, &mut build)?;
    let has_other_challenges = admin.identity.as_ref().is_some_and(|identity| !identity.certificates.public.is_empty());
    let loaded = reader.load(&tls.sources, &storage).map_err(PlanError::Certificates)?;
    let mut warnings = http.warnings();
    warnings.extend(tls.automation.warnings());
    let no_logs = Map::new();
    let logs = config.logging.as_ref().map_or(&no_logs, |logging| &logging.logs);
    let https = https::Inputs { ports: http.ports(), tls: &tls, loaded: &loaded, has_other_challenges };
    let inputs = ServerInputs { logs, https };
    let served = serve(servers, &inputs, &mut authorities, &mut warnings, &mut build)?;
    if uses_local.get() {
        pki::add_local(&mut authorities);
    }
    let grace = http.grace_period(&mut build)?;
    let shutdown_delay = http.shutdown_delay(&mut build)?;
    warnings.extend(build.take_warnings());
    let Served { listeners, managed, public, on_demand } = served;
    Ok(Loaded {
        plan: build.finish(),
        listeners,
        grace,
        shutdown_delay,
        admin,
        storage,
        certificates: Certificates { selections, authorities, managed, public, on_demand, ..tls.into_certificates() },
        range_fetches,
        pushes_metrics: http.metrics.as_ref().is_some_and(|metrics| metrics.otlp),
        warnings,
    })
}

/// Lets the modules read trusted certificates: from `reader`, the storage and the local authorities. The result becomes
/// true when one of them uses the authority `local`.
fn set_trust_reader<'r>(
    reader: &'r dyn CertificateReader,
    storage: &Storage,
    authorities: &[CertificateAuthority],
    build: &mut Build<'r>,
) -> Rc<Cell<bool>> {
    let uses_local = Rc::new(Cell::new(false));
    let trusted = TrustedSources {
        reader,
        storage: storage.clone(),
        authorities: authorities.to_vec(),
        uses_local: Rc::clone(&uses_local),
    };
    build.set_trust_reader(trusted.into_reader());
    uses_local
}

impl HttpConfig {
    /// As in Caddy, 0 is the default.
    fn ports(&self) -> https::Ports {
        let port = |written: Option<u16>, default| written.filter(|port| *port != 0).unwrap_or(default);
        https::Ports { http: port(self.http_port, 80), https: port(self.https_port, 443) }
    }

    /// Parses all servers except for their routes. `json` is the field `servers`.
    fn prepare_servers<'c>(
        &'c self,
        json: &'c Value,
        selections: &mut BTreeMap<String, CertificateSelection>,
        build: &mut Build<'_>,
    ) -> Result<Vec<PreparedServer<'c>>, BuildError> {
        self.servers.iter().map(|(name, server)| server.prepare(name, &json[name], selections, build)).collect()
    }

    /// Returns warnings about settings of servers that are served differently than written.
    fn warnings(&self) -> Vec<String> {
        let unsupported = self.servers.iter().filter(|(_, server)| server.names_http3());
        let unsupported =
            unsupported.map(|(name, _)| format!("server {name}: HTTP/3 is not supported; serving its other protocols"));
        let nested = self.servers.iter().filter(|(_, server)| server.metrics().is_some());
        let nested = nested.map(|(name, _)| {
            format!(
                "server {name}: 'metrics' of a server is deprecated and counts the requests of all servers; expected \
                 'metrics' of the http app"
            )
        });
        unsupported.chain(nested).collect()
    }

    fn grace_period(&self, build: &mut Build<'_>) -> Result<Duration, BuildError> {
        match &self.grace_period {
            Some(span) => build.at("apps.http.grace_period", |build| span.duration(build)),
            None => Ok(GRACE),
        }
    }

    fn shutdown_delay(&self, build: &mut Build<'_>) -> Result<Duration, BuildError> {
        match &self.shutdown_delay {
            Some(span) => build.at("apps.http.shutdown_delay", |build| span.duration(build)),
            None => Ok(Duration::ZERO),
        }
    }
}

/// Returns the networks that the servers fetch, each once.
fn range_fetches(servers: &[PreparedServer<'_>]) -> Vec<RangeFetch> {
    let mut distinct: Vec<RangeFetch> = Vec::new();
    for fetch in servers.iter().flat_map(|server| &server.range_fetches) {
        if !distinct.contains(fetch) {
            distinct.push(fetch.clone());
        }
    }
    distinct
}

/// Makes the servers count their requests, if the app or one of its servers enables that. As in Caddy, a server's
/// `metrics` counts the requests of all servers, and only its `per_host` matters.
fn measure(http: &HttpConfig, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (name, server) in &http.servers {
        if server.metrics().is_some_and(|metrics| metrics.otlp) {
            build.at(format!("apps.http.servers.{name}.metrics"), |build| {
                build.warn_unused("otlp", "only the global option `metrics` sends metrics, as in Caddy");
                Ok(())
            })?;
        }
    }
    let mut nested = http.servers.values().filter_map(ServerConfig::metrics).peekable();
    if http.metrics.is_some() || nested.peek().is_some() {
        let of_app = |has: fn(&MetricsConfig) -> bool| http.metrics.as_ref().is_some_and(has);
        build.measure(MetricsSpec {
            per_host: of_app(|metrics| metrics.per_host) || nested.any(|metrics| metrics.per_host),
            observe_catchall_hosts: of_app(|metrics| metrics.observe_catchall_hosts),
            // A server's access log is a route here, and not in Caddy.
            uncounted: &["access_log"],
        });
    }
    Ok(())
}

/// The parts of a configuration that all its servers depend on.
struct ServerInputs<'c> {
    /// `logging.logs`.
    logs: &'c Map<String, Value>,
    https: https::Inputs<'c>,
}

/// The servers' listeners, and the names that need a certificate of a local or a public authority.
struct Served {
    listeners: Vec<ListenerSpec>,
    managed: Vec<ManagedName>,
    public: Vec<PublicName>,
    on_demand: Option<OnDemand>,
}

/// Applies automatic HTTPS to the servers and adds them to the plan.
fn serve(
    mut servers: Vec<PreparedServer<'_>>,
    inputs: &ServerInputs<'_>,
    authorities: &mut Vec<CertificateAuthority>,
    warnings: &mut Vec<String>,
    build: &mut Build<'_>,
) -> Result<Served, PlanError> {
    let ServerInputs { logs, https } = *inputs;
    check_addresses(&servers, build)?;
    let policies: Vec<_> = servers.iter_mut().map(|server| server.policies.take()).collect();
    let mut sites: Vec<_> = servers
        .iter()
        .zip(policies)
        .map(|(server, policies)| https::HttpsServer {
            name: server.name,
            automatic: server.written.automatic(),
            routes: server.routes(),
            listen: server.listen.clone(),
            policies,
            inserted: None,
            access_log: server.written.access_log(logs),
        })
        .collect();
    let automatic = https::arrange(&mut sites, https, authorities, build)?;
    let sites: Vec<_> = sites.into_iter().map(|site| (site.policies, site.inserted)).collect();
    let mut listeners = Vec::new();
    for (server, (policies, inserted)) in servers.into_iter().zip(sites) {
        listeners.extend(server.build(policies, inserted, logs, https.ports, warnings, build)?);
    }
    if let Some(mut remaining) = automatic.remaining {
        if let (Some(handler), Some(routes)) = (automatic.access_log, remaining.routes.as_array_mut()) {
            routes.insert(0, json!({ "handle": [handler] }));
        }
        let spec = ServerSpec { answers_asterisk: true, ..ServerSpec::new(https::REDIRECTS, &remaining.routes) };
        let id = build.at("automatic HTTPS", |build| build.server(&spec))?;
        let protocols = Protocols::default();
        listeners.extend(
            remaining.listen.into_iter().map(|address| ListenerSpec { protocols, ..ListenerSpec::new(address, id) }),
        );
    }
    let https::AutomaticHttps { managed, public, on_demand, .. } = automatic;
    Ok(Served { listeners, managed, public, on_demand })
}

/// Refuses an address that two servers have, or that one server has twice in the same words.
fn check_addresses(servers: &[PreparedServer<'_>], build: &mut Build<'_>) -> Result<(), BuildError> {
    let mut owners = HashMap::new();
    for server in servers {
        for (index, sockets) in server.listen.iter().enumerate() {
            let written = &server.written.listen()[index];
            // The system chooses another port for each port 0.
            for socket in sockets.iter().filter(|socket| socket.port() != Some(0)) {
                // Without the mode of a Unix socket.
                let address = socket.to_string();
                match owners.insert(address.clone(), (server.name, written)) {
                    Some((owner, other)) if owner != server.name || other == written => {
                        let expected = format!("addresses that are not taken; the server '{owner}' has {address}");
                        return build.at(format!("apps.http.servers.{}.listen[{index}]", server.name), |build| {
                            Err(build.refuse(&**written, expected))
                        });
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Returns the JSON of all handlers of this kind, at any depth.
fn handlers<'j>(kind: &str, json: &'j Value) -> Vec<&'j Value> {
    let mut found = Vec::new();
    let inner: Vec<&Value> = match json {
        Value::Object(object) => {
            found.extend(object.get("handler").is_some_and(|handler| handler == kind).then_some(json));
            object.values().collect()
        }
        Value::Array(values) => values.iter().collect(),
        _ => Vec::new(),
    };
    found.extend(inner.into_iter().flat_map(|inner| handlers(kind, inner)));
    found
}

/// Rejects a field of Caddy's that is not supported. An absent field, `null` and `false` pass.
fn refuse(key: &str, value: &Option<Value>, build: &mut Build<'_>) -> Result<(), BuildError> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(value) => build
            .at(key, |build| Err(build.refuse(value.to_string(), "nothing: this is not supported (docs/refused.md)"))),
    }
}

fn parse(json: &Value, build: &Build<'_>) -> Result<RootConfig, BuildError> {
    serde_path_to_error::deserialize(Shape(json)).map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let path = error.path().to_string();
        BuildError { path, ..build.error(Problem::Shape(error.into_inner().to_string())) }
    })
}

#[cfg(test)]
mod tests;
