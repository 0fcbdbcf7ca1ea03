//! The global options block.
//!
//! - `certificates`: options for certificates and issuers
//! - `per_server`: the option `servers`; `listeners`: its listener wrappers; `ip_sources`: its trusted proxies

mod certificates;
mod ip_sources;
mod listeners;
mod per_server;
mod storage;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub(crate) use storage::storage_module;

use super::directives::{cache_members, protocols};
use super::dispenser::{Dispenser, Scope, unread};
use super::error::{Error, ErrorKind, NameTable};
use super::log::{self, Logger};
use super::quantity::integer;
use super::registry::Directives;
use super::segment::Segment;
use super::{Session, Warning};
use causeway_pipeline::build::nanoseconds;

pub(crate) use certificates::{AcmeDns, Certificates, StorageClean, nested_duration, renewal_window_ratio};
pub(crate) use per_server::ServerOptions;

/// The global options. A default value stands for an option that is not set.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) debug: bool,
    pub(crate) order: Option<Vec<Box<str>>>,
    pub(crate) auto_https: Vec<Box<str>>,
    pub(crate) default_bind: Vec<(Vec<String>, Vec<String>)>,
    pub(crate) default_sni: String,
    pub(crate) fallback_sni: String,
    /// Sorted by the length of the listener address, longest first. The first entry that matches a server configures
    /// it.
    pub(crate) servers: Vec<ServerOptions>,
    http_port: Option<i64>,
    https_port: Option<i64>,
    grace_period: i64,
    shutdown_delay: i64,
    metrics: Option<Value>,
    /// The app of the plugin for Caddy: defaults of all `cache` directives.
    pub(crate) cache: Map<String, Value>,
    admin: Option<Value>,
    pub(crate) storage: Option<Value>,
    pub(crate) certificates: Certificates,
    pub(crate) loggers: Vec<Logger>,
    /// `persist_config off`.
    is_persistence_disabled: bool,
}

impl Options {
    pub(crate) fn http_port(&self) -> String {
        self.http_port.unwrap_or(80).to_string()
    }

    pub(crate) fn https_port(&self) -> String {
        self.https_port.unwrap_or(443).to_string()
    }

    /// The configured HTTP port, if any.
    pub(crate) fn configured_http_port(&self) -> Option<i64> {
        self.http_port
    }

    /// The configured HTTPS port, if any.
    pub(crate) fn configured_https_port(&self) -> Option<i64> {
        self.https_port
    }

    pub(crate) fn has_auto_https_option(&self, word: &str) -> bool {
        self.auto_https.iter().any(|own| **own == *word)
    }

    /// Members of the HTTP app, except for its servers.
    pub(crate) fn http_json(&self) -> Map<String, Value> {
        let numbers = [
            ("http_port", self.http_port.unwrap_or(0)),
            ("https_port", self.https_port.unwrap_or(0)),
            ("grace_period", self.grace_period),
            ("shutdown_delay", self.shutdown_delay),
        ];
        let set = numbers.into_iter().filter(|(_, number)| *number != 0);
        let mut http: Map<String, Value> = set.map(|(key, number)| (key.to_owned(), number.into())).collect();
        if let Some(metrics) = &self.metrics {
            http.insert("metrics".into(), metrics.clone());
        }
        http
    }

    pub(crate) fn admin_json(&self) -> Option<Value> {
        let mut admin = self.admin.clone();
        if self.is_persistence_disabled {
            admin.get_or_insert_with(|| json!({}))["config"] = json!({ "persist": false });
        }
        admin
    }
}

/// Caddy's options that are not supported.
const NOT_SUPPORTED: &[&str] = &["events", "filesystem"];

const BUILT: &[&str] = &[
    "acme_ca",
    "acme_ca_root",
    "acme_dns",
    "acme_eab",
    "admin",
    "auto_https",
    "cache",
    "cert_issuer",
    "cert_lifetime",
    "debug",
    "default_bind",
    "default_sni",
    "dns",
    "ech",
    "email",
    "fallback_sni",
    "grace_period",
    "http_port",
    "https_port",
    "key_type",
    "local_certs",
    "log",
    "metrics",
    "ocsp_interval",
    "ocsp_stapling",
    "on_demand_tls",
    "order",
    "persist_config",
    "pki",
    "preferred_chains",
    "renew_interval",
    "renewal_window_ratio",
    "servers",
    "shutdown_delay",
    "skip_install_trust",
    "storage",
    "storage_check",
    "storage_clean_interval",
    "tls_automate_names",
    "tls_resolvers",
];

/// Parses the lines of the global block.
pub(crate) fn read(segments: &[Segment], directives: &Directives) -> Result<(Options, Vec<Warning>), Error> {
    let none = Options::default();
    let session = Session::new(directives, &none, Vec::new());
    let scope = Scope { session: &session, matchers: BTreeMap::new(), files: &[] };
    let mut options = Options::default();
    for segment in segments {
        let mut d = Dispenser::new(segment, &scope);
        let read = option(&mut options, &mut d, directives);
        // Dropping it records the words that the option did not read, for `unread`.
        drop(d);
        // Caddy's messages for these two lack the enclosing option.
        unread(read, &session).map_err(|error| match error.kind() {
            ErrorKind::UnknownGlobalOption { .. } | ErrorKind::NotSupported(NameTable::GlobalOption, _) => error,
            _ => error.inside(&segment.name.text, &segment.closes),
        })?;
    }
    options.servers.sort_by_key(|servers| std::cmp::Reverse(servers.listener.len()));
    if let Some(pair) = options.servers.windows(2).find(|pair| pair[0].listener == pair[1].listener) {
        let kind = ErrorKind::ServersTwice(pair[1].listener.as_str().into());
        return Err(Error::new(pair[1].at.clone(), kind));
    }
    for (index, servers) in options.servers.iter().enumerate().filter(|(_, servers)| !servers.name.is_empty()) {
        if options.servers[..index].iter().any(|other| other.name == servers.name) {
            let kind = ErrorKind::ServerNameTwice(servers.name.as_str().into());
            return Err(Error::new(servers.at.clone(), kind));
        }
    }
    Ok((options, session.warnings.take()))
}

fn option(options: &mut Options, d: &mut Dispenser<'_>, directives: &Directives) -> Result<(), Error> {
    let name = d.name();
    match &*name.text {
        "debug" => options.debug = true,
        "http_port" => options.http_port = Some(port(d)?),
        "https_port" => options.https_port = Some(port(d)?),
        "grace_period" => options.grace_period = duration(d)?,
        "shutdown_delay" => options.shutdown_delay = duration(d)?,
        "default_sni" => options.default_sni = single(d)?,
        "fallback_sni" => options.fallback_sni = single(d)?,
        "persist_config" => {
            if single(d)? != "off" {
                return Err(d.rule("persist_config must be 'off'"));
            }
            options.is_persistence_disabled = true;
        }
        "auto_https" => {
            options.auto_https.clear();
            d.require()?;
            for word in d.arguments() {
                if !matches!(&*word.text, "off" | "disable_redirects" | "disable_certs" | "ignore_loaded_certs") {
                    let rule = "auto_https must be one of 'off', 'disable_redirects', 'disable_certs', or \
                                'ignore_loaded_certs'; expected one of them instead of '{}'";
                    return Err(Error::at(word, ErrorKind::Word { rule, found: word.text.clone() }));
                }
                options.auto_https.push(word.text.clone());
            }
        }
        "default_bind" => {
            let mut addresses: Vec<String> = d.rest().iter().map(|token| token.text.to_string()).collect();
            if addresses.is_empty() {
                addresses.push(String::new());
            }
            options.default_bind.push((addresses, protocols(d)?));
        }
        "order" => order(options, d, directives)?,
        "admin" => options.admin = Some(admin(d)?),
        "metrics" => options.metrics = Some(metrics(d)?),
        "cache" => options.cache = cache_members(d)?,
        "log" => options.loggers.push(log::option(d, &options.loggers)?),
        "storage" => options.storage = Some(storage_module(d)?),
        "servers" => options.servers.push(ServerOptions::read(d)?),
        _ if options.certificates.option(d)? => {}
        known if NOT_SUPPORTED.contains(&known) => {
            return Err(Error::at(name, ErrorKind::NotSupported(NameTable::GlobalOption, name.text.clone())));
        }
        _ => {
            let kind = ErrorKind::UnknownGlobalOption { name: name.text.clone(), expected: BUILT };
            return Err(Error::at(name, kind));
        }
    }
    Ok(())
}

fn port(d: &mut Dispenser<'_>) -> Result<i64, Error> {
    let token = d.sole_argument()?;
    let port = integer(&token.text);
    let port = port.ok_or_else(|| d.word("converting port '{}' to integer value: not a number"))?;
    // DEVIATES: Caddy accepts any number, and fails when it listens on the port. 0 is the default.
    if u16::try_from(port).is_err() {
        return Err(d.word("found '{}', expected a port from 1 to 65535"));
    }
    Ok(port)
}

fn duration(d: &mut Dispenser<'_>) -> Result<i64, Error> {
    let token = d.require()?;
    nanoseconds(&token.text).ok_or_else(|| d.duration_error())
}

fn single(d: &mut Dispenser<'_>) -> Result<String, Error> {
    let text = d.require()?.text.to_string();
    d.expect_no_argument()?;
    d.expect_no_braces()?;
    Ok(text)
}

/// Parses `order <directive> first|last|before|after [<directive>]`.
fn order(options: &mut Options, d: &mut Dispenser<'_>, directives: &Directives) -> Result<(), Error> {
    let directive = d.require()?;
    if !directives.knows(&directive.text) {
        return Err(d.error(ErrorKind::UnregisteredDirective(directive.text.clone())));
    }
    let position = d.require()?;
    let mut order = options.order.take().unwrap_or_else(|| directives.order().to_vec());
    order.retain(|name| *name != directive.text);
    let index = match &*position.text {
        "first" => 0,
        "last" => order.len(),
        side @ ("before" | "after") => {
            let other = d.require()?;
            let index = order.iter().position(|name| *name == other.text);
            index.ok_or_else(|| d.word("directive '{}' not found"))? + usize::from(side == "after")
        }
        _ => return Err(d.word("unknown positional '{}'; expected first, last, before or after")),
    };
    d.expect_no_argument()?;
    order.insert(index, directive.text.clone());
    options.order = Some(order);
    Ok(())
}

/// Parses `admin off|[<address>] { enforce_origin; origins … }`.
fn admin(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut admin = Map::new();
    match d.argument() {
        Some(word) if &*word.text == "off" => {
            if !d.remaining().is_empty() || d.has_block() {
                return Err(d.rule("No more option is allowed after turning off admin config"));
            }
            return Ok(json!({ "disabled": true }));
        }
        Some(address) if !address.text.is_empty() => {
            admin.insert("listen".into(), (*address.text).into());
        }
        _ => {
            admin.insert("listen".into(), "localhost:2019".into());
        }
    }
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "enforce_origin" => {
                admin.insert("enforce_origin".into(), true.into());
            }
            "origins" => {
                let origins: Vec<Value> = line.rest().iter().map(|token| (*token.text).into()).collect();
                if !origins.is_empty() {
                    admin.insert("origins".into(), origins.into());
                }
            }
            _ => return Err(line.unknown("unrecognized parameter '{}'", &["enforce_origin", "origins"])),
        }
    }
    Ok(admin.into())
}

/// Parses `metrics { per_host; observe_catchall_hosts; otlp }`.
fn metrics(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut metrics = Map::new();
    for line in d.lines() {
        match &*line.name().text {
            name @ ("per_host" | "observe_catchall_hosts" | "otlp") => {
                metrics.insert(name.to_owned(), true.into());
            }
            _ => {
                let expected = &["observe_catchall_hosts", "otlp", "per_host"];
                return Err(line.unknown("unrecognized servers option '{}'", expected));
            }
        }
    }
    Ok(metrics.into())
}
