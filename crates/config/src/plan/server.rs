//! One server of `apps.http.servers`: Caddy's fields, and three of ours.
//!
//! A field that is known but not supported is rejected by name, never ignored in silence.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::build::{DurationConfig, ServerSpec, Shape};
use causeway_pipeline::{
    Build, BuildError, Confusable, HeadLimits, Http2, ListenerSpec, ListeningSocket, Protocols, TcpProbes, Timeouts,
    TlsPolicy, TlsSpec, Trust,
};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::certificates::CertificateSelection;
use super::ip_sources::{IpSources, RangeFetch};
use super::policy::ConnectionPolicyConfig;
use super::wrappers::Wrappers;
use super::{MetricsConfig, address, https, refuse};

/// Default of `client_ip_headers`: the fields in which a trusted proxy sends the client's address.
const CLIENT_IP_HEADERS: &[&str] = &["X-Forwarded-For"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerConfig {
    #[serde(default)]
    listen: Vec<String>,
    #[serde(default)]
    read_timeout: Option<DurationConfig>,
    #[serde(default)]
    read_header_timeout: Option<DurationConfig>,
    #[serde(default)]
    read_idle_timeout: Option<DurationConfig>,
    #[serde(default)]
    write_timeout: Option<DurationConfig>,
    #[serde(default)]
    write_idle_timeout: Option<DurationConfig>,
    #[serde(default)]
    idle_timeout: Option<DurationConfig>,
    #[serde(default)]
    max_header_bytes: Option<usize>,
    /// Ours: how long a closing connection waits for the peer to close its side.
    #[serde(default)]
    linger_timeout: Option<DurationConfig>,
    /// Ours: limits on request heads that Caddy has no field for.
    #[serde(default)]
    limits: HeadLimits,
    /// Ignored: request and response bodies always flow at the same time.
    #[serde(default, rename = "enable_full_duplex")]
    _enable_full_duplex: bool,
    #[serde(default)]
    expected_underscore_headers: Vec<String>,
    #[serde(default)]
    expected_dot_headers: Vec<String>,
    /// The next three are compiled from the JSON document itself (see `build`), not from a copy: a configuration can
    /// hold 10 000 sites.
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
    #[serde(default, rename = "errors")]
    _errors: Option<ServerErrorsConfig>,
    #[serde(default, rename = "named_routes")]
    _named_routes: Option<BTreeMap<String, IgnoredAny>>,
    /// Ours: limits on streams, windows and header tables of HTTP/2.
    #[serde(default)]
    http2: Http2,
    #[serde(default)]
    automatic_https: https::AutomaticHttpsConfig,
    #[serde(default)]
    tls_connection_policies: Option<Vec<ConnectionPolicyConfig>>,
    #[serde(default)]
    strict_sni_host: Option<bool>,
    /// Without effect: it concerns HTTP/3 only. Over TCP, TLS early data is never accepted.
    #[serde(default)]
    allow_0rtt: Option<bool>,
    #[serde(default)]
    trusted_proxies: Option<Value>,
    #[serde(default)]
    client_ip_headers: Option<Vec<String>>,
    #[serde(default)]
    trusted_proxies_strict: u8,
    #[serde(default)]
    logs: Option<ServerLogsConfig>,
    #[serde(default)]
    protocols: Vec<String>,
    #[serde(default)]
    listener_wrappers: Option<Vec<Value>>,
    #[serde(default)]
    packet_conn_wrappers: Option<Value>,
    #[serde(default)]
    read_min_rate: i64,
    #[serde(default)]
    write_min_rate: i64,
    /// Accepted without effect.
    #[serde(default)]
    max_write_chunk: i64,
    #[serde(default)]
    keepalive_interval: Option<DurationConfig>,
    #[serde(default)]
    keepalive_idle: Option<DurationConfig>,
    #[serde(default)]
    keepalive_count: Option<i64>,
    #[serde(default)]
    trusted_proxies_unix: bool,
    #[serde(default)]
    listen_protocols: Option<Vec<Option<Vec<String>>>>,
    #[serde(default)]
    metrics: Option<MetricsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerErrorsConfig {
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
}

/// The timeout of a limit that is switched off: a hundred years.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A server's `logs`. Its presence enables access logging.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerLogsConfig {
    #[serde(default)]
    default_logger_name: String,
    #[serde(default)]
    logger_names: BTreeMap<String, LoggerNames>,
    #[serde(default)]
    skip_hosts: Vec<String>,
    #[serde(default)]
    skip_unmapped_hosts: bool,
    #[serde(default)]
    should_log_credentials: bool,
    /// Each handler that a request enters is a line of the log, at level `debug`.
    #[serde(default)]
    trace: bool,
}

/// The loggers of a host. Caddy also accepts one name without a list, as its earlier versions wrote it.
struct LoggerNames(Vec<String>);

impl<'de> Deserialize<'de> for LoggerNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self(vec![name])),
            value => Vec::deserialize(Shape(&value)).map(Self).map_err(D::Error::custom),
        }
    }
}

impl ServerLogsConfig {
    /// Hosts are compared without their ports, so a name with one would match no request.
    fn check(&self, build: &mut Build<'_>) -> Result<(), BuildError> {
        // An IPv6 address has several colons.
        let with_port = self.logger_names.keys().find(|host| host.matches(':').count() == 1 || host.contains("]:"));
        match with_port {
            Some(host) => build.at("logger_names", |build| Err(build.refuse(host, "a host without a port"))),
            None => Ok(()),
        }
    }

    /// Returns the handler `name` that writes the server's records to `logs`.
    fn handler(&self, name: &str, logs: &Map<String, Value>) -> Value {
        let names: BTreeMap<_, _> = self.logger_names.iter().map(|(host, names)| (host, &names.0)).collect();
        json!({
            "handler": name,
            "default": self.default_logger_name,
            "names": names,
            "skip_hosts": self.skip_hosts,
            "skip_unmapped_hosts": self.skip_unmapped_hosts,
            "credentials": self.should_log_credentials,
            "logs": logs,
        })
    }
}

/// A server whose own fields are parsed, before automatic HTTPS is applied.
pub(super) struct PreparedServer<'c> {
    pub(super) name: &'c str,
    pub(super) written: &'c ServerConfig,
    /// The server's JSON, for its routes.
    json: &'c Value,
    /// The sockets of each written address.
    pub(super) listen: Vec<Vec<ListeningSocket>>,
    /// The protocols of each written address.
    protocols: Vec<Protocols>,
    timeouts: Timeouts,
    trust: Option<Trust>,
    pub(super) range_fetches: Vec<RangeFetch>,
    confusable: Confusable,
    wrappers: Wrappers,
    probes: Option<TcpProbes>,
    pub(super) policies: Option<Vec<TlsPolicy>>,
}

impl ServerConfig {
    /// Parses everything except for the routes. Adds the connection policies' conditions on certificates to
    /// `selections`.
    pub(super) fn prepare<'c>(
        &'c self,
        name: &'c str,
        json: &'c Value,
        selections: &mut BTreeMap<String, CertificateSelection>,
        build: &mut Build<'_>,
    ) -> Result<PreparedServer<'c>, BuildError> {
        build.at(format!("apps.http.servers.{name}"), |build| {
            let listen = build.at("listen", |build| address::parse_each(&self.listen, build))?;
            refuse("packet_conn_wrappers", &self.packet_conn_wrappers, build)?;
            if self.max_write_chunk > 0 {
                build.warn_unused("max_write_chunk", "each part of a write that the kernel accepts is progress");
            }
            if self.allow_0rtt == Some(true) {
                build.warn_unused("allow_0rtt", "it concerns HTTP/3 only, and early data of TLS is never accepted");
            }
            let protocols = self.protocols_of_addresses(build)?;
            let any = protocols.iter().copied().reduce(Protocols::or).unwrap_or_default();
            build.at("http2", |build| check_range(self.http2.out_of_range(), build))?;
            match self.head_limits().out_of_range() {
                found @ Some(("head_bytes_max", ..)) if self.max_header_bytes.is_some_and(|bytes| bytes > 0) => {
                    check_range(found.map(|(_, bytes, range)| ("max_header_bytes", bytes, range)), build)?;
                }
                found => build.at("limits", |build| check_range(found, build))?,
            }
            let policies = match &self.tls_connection_policies {
                Some(written) => {
                    Some(build.at("tls_connection_policies", |build| read_policies(written, any, selections, build))?)
                }
                None => None,
            };
            if let Some(logs) = &self.logs {
                build.at("logs", |build| logs.check(build))?;
            }
            let (timeouts, confusable) = (self.timeouts(build)?, self.confusable(build)?);
            let (trust, range_fetches) = self.trust(build)?;
            let wrappers = Wrappers::read(self.listener_wrappers.as_deref().unwrap_or_default(), build)?;
            Ok(PreparedServer {
                name,
                written: self,
                json,
                listen,
                protocols,
                timeouts,
                trust,
                range_fetches,
                confusable,
                wrappers,
                probes: self.probes(build)?,
                policies,
            })
        })
    }

    pub(super) fn automatic(&self) -> &https::AutomaticHttpsConfig {
        &self.automatic_https
    }

    /// The limits on requests' heads; Caddy's field has precedence over ours. As in Caddy, 0 stands for the default.
    fn head_limits(&self) -> HeadLimits {
        let head_bytes_max = self.max_header_bytes.filter(|bytes| *bytes > 0).unwrap_or(self.limits.head_bytes_max);
        HeadLimits { head_bytes_max, ..self.limits }
    }

    /// The addresses to listen on, as they are written.
    pub(super) fn listen(&self) -> &[String] {
        &self.listen
    }

    /// Returns the handler for its access records; `None` if it has none.
    pub(super) fn access_log(&self, logs: &Map<String, Value>) -> Option<Value> {
        self.logs.as_ref().map(|written| written.handler("access_log", logs))
    }

    /// Returns the handler for its failed requests.
    fn error_log(&self, logs: &Map<String, Value>) -> Value {
        match &self.logs {
            Some(written) => written.handler("error_log", logs),
            None => json!({ "handler": "error_log", "logs": logs }),
        }
    }

    pub(super) fn metrics(&self) -> Option<&MetricsConfig> {
        self.metrics.as_ref()
    }

    /// Whether a policy requests client certificates. If so, `strict_sni_host` is on by default: a request's host must
    /// equal the server name of its connection.
    fn asks_clients(&self) -> bool {
        self.tls_connection_policies.iter().flatten().any(ConnectionPolicyConfig::asks_clients)
    }

    /// Whether `protocols` names HTTP/3.
    pub(super) fn names_http3(&self) -> bool {
        let of_addresses = self.listen_protocols.iter().flatten().flatten().flatten();
        self.protocols.iter().chain(of_addresses).any(|protocol| protocol == "h3")
    }

    /// The keep-alive probes, in the rules of Go's `KeepAliveConfig`: zero is the default, a negative value leaves the
    /// setting to the system, and a negative interval means no probes.
    fn probes(&self, build: &mut Build<'_>) -> Result<Option<TcpProbes>, BuildError> {
        /// Of the idle time before the first probe, and of the interval.
        const TIME_DEFAULT: Duration = Duration::from_secs(15);
        const COUNT_DEFAULT: u32 = 9;
        let mut read = |key: &str, written: &Option<DurationConfig>| match written {
            Some(written) => build.at(key, |build| written.signed(build)),
            None => Ok(0),
        };
        let interval = read("keepalive_interval", &self.keepalive_interval)?;
        let idle = read("keepalive_idle", &self.keepalive_idle)?;
        let count = self.keepalive_count.unwrap_or(0);
        if (interval, idle, count) == (0, 0, 0) {
            return Ok(None);
        }
        let time = |nanoseconds: i64| match nanoseconds {
            0 => Some(TIME_DEFAULT),
            _ => u64::try_from(nanoseconds).ok().map(Duration::from_nanos),
        };
        let count = match count {
            0 => Some(COUNT_DEFAULT),
            count => u32::try_from(count).ok(),
        };
        Ok(Some(TcpProbes { is_on: interval >= 0, idle: time(idle), interval: time(interval), count }))
    }

    /// The enabled protocols of each address in `listen`.
    fn protocols_of_addresses(&self, build: &mut Build<'_>) -> Result<Vec<Protocols>, BuildError> {
        let of_server = build.at("protocols", |build| read_protocols(&self.protocols, build))?;
        let of_server = of_server.unwrap_or_default();
        let Some(lists) = &self.listen_protocols else { return Ok(vec![of_server; self.listen.len()]) };
        build.at("listen_protocols", |build| {
            if lists.len() != self.listen.len() {
                let expected = format!("one for each address of listen, which has {}", self.listen.len());
                return Err(build.refuse(format!("{} lists", lists.len()), expected));
            }
            let mut protocols = Vec::with_capacity(lists.len());
            for (index, list) in lists.iter().enumerate() {
                // A datagram socket serves HTTP/3 or nothing, and `build` adds a warning about it.
                let is_for_datagrams = address::is_for_datagrams(&self.listen[index]);
                let Some(list) = list.as_ref().filter(|_| !is_for_datagrams) else {
                    protocols.push(of_server);
                    continue;
                };
                // As in Caddy, an empty name stands for the protocols of the server.
                let mut named = list.clone();
                named.retain(|protocol| !protocol.is_empty());
                let own = build.at(format!("[{index}]"), |build| read_protocols(&named, build))?;
                let with_servers = named.len() < list.len();
                protocols.push(match own {
                    Some(own) if with_servers => own.or(of_server),
                    Some(own) => own,
                    None => of_server,
                });
            }
            Ok(protocols)
        })
    }

    fn timeouts(&self, build: &mut Build<'_>) -> Result<Timeouts, BuildError> {
        let mut timeouts = Timeouts::default();
        // As in Caddy, zero is the default, and a negative value is no limit. `negative` is `None` for a limit on the
        // whole request or response: without it the idle limit stays.
        let mut set = |key: &str, span: &Option<DurationConfig>, negative: Option<Duration>, timeout: &mut Duration| {
            let Some(span) = span else { return Ok::<_, BuildError>(()) };
            let written = build.at(key, |build| span.signed(build))?;
            match u64::try_from(written) {
                Ok(0) => {}
                Ok(nanoseconds) => *timeout = Duration::from_nanos(nanoseconds),
                Err(_) => *timeout = negative.unwrap_or(*timeout),
            }
            Ok(())
        };
        let no_limit = Some(NO_LIMIT);
        set("read_header_timeout", &self.read_header_timeout, no_limit, &mut timeouts.head)?;
        set("idle_timeout", &self.idle_timeout, no_limit, &mut timeouts.keep_alive)?;
        // Caddy's limits on a whole request or response apply as idle limits here, unless the idle limits are set too.
        set("read_timeout", &self.read_timeout, None, &mut timeouts.body.idle)?;
        set("write_timeout", &self.write_timeout, None, &mut timeouts.write.idle)?;
        set("read_idle_timeout", &self.read_idle_timeout, no_limit, &mut timeouts.body.idle)?;
        set("write_idle_timeout", &self.write_idle_timeout, no_limit, &mut timeouts.write.idle)?;
        if let Some(span) = &self.linger_timeout {
            timeouts.linger = build.at("linger_timeout", |build| span.duration(build))?;
        }
        // As in Caddy, a rate of zero or less is none.
        let rate = |written: i64| u64::try_from(written).ok().and_then(NonZeroU64::new);
        timeouts.body.bytes_per_second = rate(self.read_min_rate);
        timeouts.write.bytes_per_second = rate(self.write_min_rate);
        Ok(timeouts)
    }

    /// Returns the trusted proxies, and the fetches that these need.
    fn trust(&self, build: &mut Build<'_>) -> Result<(Option<Trust>, Vec<RangeFetch>), BuildError> {
        if self.trusted_proxies.is_none() && !self.trusted_proxies_unix {
            return Ok((None, Vec::new()));
        }
        let mut sources = IpSources::default();
        if let Some(written) = &self.trusted_proxies {
            build.at("trusted_proxies", |build| sources.add(written, build))?;
        }
        let IpSources { ranges, fetches } = sources;
        let headers: Vec<_> = match &self.client_ip_headers {
            Some(headers) => headers.iter().map(|header| &**header).collect(),
            None => CLIENT_IP_HEADERS.to_vec(),
        };
        let trust = Trust::new(ranges, &headers, self.trusted_proxies_strict > 0);
        let trust =
            trust.or_else(|bad| build.at("client_ip_headers", |build| Err(build.refuse(bad, "a field name"))))?;
        let fetched = fetches.iter().map(|fetch| Arc::clone(&fetch.ranges)).collect();
        Ok((Some(trust.with_fetched(fetched).with_unix(self.trusted_proxies_unix)), fetches))
    }

    fn confusable(&self, build: &mut Build<'_>) -> Result<Confusable, BuildError> {
        Confusable::new(&self.expected_underscore_headers, &self.expected_dot_headers).map_err(|bad| {
            build
                .refuse(bad, "a field name in ASCII with the `_` or `.` it is listed for, and a `*` at its end at most")
        })
    }
}

impl PreparedServer<'_> {
    /// The server's own routes, without those of automatic HTTPS.
    pub(super) fn routes(&self) -> &Value {
        self.json.get("routes").filter(|routes| !routes.is_null()).unwrap_or(&NO_ROUTES)
    }

    /// Adds the server to the plan and returns its listeners. Omits an address on which no enabled protocol can be
    /// served, and adds a warning about it.
    pub(super) fn build(
        self,
        policies: Option<Vec<TlsPolicy>>,
        mut inserted: Option<https::Inserted>,
        logs: &Map<String, Value>,
        ports: https::Ports,
        warnings: &mut Vec<String>,
        build: &mut Build<'_>,
    ) -> Result<Vec<ListenerSpec>, BuildError> {
        let (server, json) = (self.written, self.json);
        if let Some(handler) = server.access_log(logs) {
            inserted.get_or_insert_default().first.insert(0, json!({ "handle": [handler] }));
        }
        // Copies the routes only if automatic HTTPS or a log adds some; the original is borrowed otherwise.
        let routes = inserted.as_ref().map(|inserted| inserted.among(self.routes()));
        let spec = ServerSpec {
            errors: json
                .get("errors")
                .filter(|errors| !errors.is_null())
                .map(|errors| errors.get("routes").unwrap_or(&NO_ROUTES)),
            named_routes: json.get("named_routes").and_then(Value::as_object),
            trust: self.trust.clone(),
            confusable: self.confusable.clone(),
            strict_sni_host: server.strict_sni_host.unwrap_or_else(|| server.asks_clients()),
            answers_asterisk: true,
            // A program with modules of its own may have none.
            error_log: build.has_handler("error_log").then(|| server.error_log(logs)),
            is_traced: server.logs.as_ref().is_some_and(|logs| logs.trace),
            ..ServerSpec::new(self.name, routes.as_ref().unwrap_or_else(|| self.routes()))
        };
        let place = format!("apps.http.servers.{}", self.name);
        let id = build.at(&*place, |build| build.server(&spec));
        let id = id.map_err(|error| match &inserted {
            Some(inserted) => inserted.place_of(error, &place),
            None => error,
        })?;
        let head = server.head_limits();
        let tls = policies.filter(|policies| !policies.is_empty()).map(|policies| TlsSpec { policies });
        let listener = |(socket, protocols): (ListeningSocket, Protocols)| ListenerSpec {
            timeouts: self.timeouts,
            head,
            protocols,
            http2: server.http2,
            // The HTTP port is always plain HTTP, even on a server with connection policies.
            tls: tls.clone().filter(|_| socket.port() != Some(ports.http)),
            proxy_protocol: self.wrappers.proxy_protocol.clone(),
            redirect_bytes_max: self.wrappers.redirect_bytes_max,
            probes: self.probes,
            ..ListenerSpec::new(socket, id)
        };
        if tls.is_some() {
            build.at(&*place, |build| self.wrappers.check_with_tls(build))?;
        }
        let datagrams = self.listen.iter().zip(&server.listen).filter(|(sockets, _)| sockets.is_empty());
        warnings.extend(datagrams.map(|(_, written)| {
            format!(
                "server {}: not listening on {written}: only HTTP/3 uses datagrams, and it is not supported",
                self.name
            )
        }));
        let sockets = self.listen.iter().zip(&self.protocols);
        let sockets =
            sockets.flat_map(|(sockets, protocols)| sockets.iter().map(|socket| (socket.clone(), *protocols)));
        let mut listeners: Vec<_> = sockets.map(listener).collect();
        let mut bound = HashSet::new();
        // Two spellings of one address, such as `localhost:80` and `127.0.0.1:80`, are one listener.
        listeners.retain(|listener| listener.socket.port() == Some(0) || bound.insert(listener.socket.to_string()));
        listeners.retain(|listener| {
            let is_served = listener.tls.is_some() || listener.protocols.allow_cleartext();
            if !is_served {
                let (name, address) = (self.name, &listener.socket);
                warnings.push(format!(
                    "server {name}: not listening on {address}: HTTP/2 needs TLS there, and neither h1 nor h2c is among its protocols"
                ));
            }
            is_served
        });
        Ok(listeners)
    }
}

/// Reads a list of protocols; `None` if it is empty.
fn read_protocols(written: &[String], build: &mut Build<'_>) -> Result<Option<Protocols>, BuildError> {
    if written.is_empty() {
        return Ok(None);
    }
    let has = |wanted: &str| written.iter().any(|protocol| protocol == wanted);
    for (index, protocol) in written.iter().enumerate() {
        if !matches!(&**protocol, "h1" | "h2" | "h2c" | "h3") {
            return build.at(format!("[{index}]"), |build| Err(build.refuse(&**protocol, "h1, h2, h2c or h3")));
        }
    }
    if !has("h1") && !has("h2") && !has("h2c") {
        return Err(build.refuse("h3", "h1, h2 or h2c too: HTTP/3 is not supported (docs/refused.md)"));
    }
    Ok(Some(Protocols { http1: has("h1"), http2: has("h2"), http2_clear: has("h2c"), http2_upgrade: has("h2c") }))
}

static NO_ROUTES: Value = Value::Array(Vec::new());

fn read_policies(
    written: &[ConnectionPolicyConfig],
    protocols: Protocols,
    selections: &mut BTreeMap<String, CertificateSelection>,
    build: &mut Build<'_>,
) -> Result<Vec<TlsPolicy>, BuildError> {
    let mut policies = Vec::with_capacity(written.len());
    for (index, policy) in written.iter().enumerate() {
        policies.extend(build.at(format!("[{index}]"), |build| policy.read(protocols, selections, build))?);
    }
    if policies.is_empty() && !written.is_empty() {
        // No connection can match any policy, but an empty list would mean plain HTTP. Use a policy that drops every
        // connection.
        policies.push(TlsPolicy { drop: true, ..TlsPolicy::default() });
    }
    Ok(policies)
}

/// Refuses a limit that is out of its range.
fn check_range<N: Display>(
    found: Option<(&'static str, N, RangeInclusive<N>)>,
    build: &mut Build<'_>,
) -> Result<(), BuildError> {
    let Some((key, value, range)) = found else { return Ok(()) };
    let expected = format!("a number from {} to {}", range.start(), range.end());
    build.at(key, |build| Err(build.refuse(value.to_string(), expected)))
}
