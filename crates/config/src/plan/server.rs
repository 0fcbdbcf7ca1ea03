//! One of `apps.http.servers`: Caddy's fields, and two of our own.
//!
//! What a field would ask for and this version has not is refused by the field's name, never left undone in silence.

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Build, BuildError, Confusable, HeadLimits, Http2, ListenAddress, ListenerSpec, Protocols, Timeouts, TlsPolicy,
    TlsSpec, Trust,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::certificates::CertificateSource;
use super::duration::Span;
use super::policy::WrittenPolicy;
use super::{address, https, refuse};

/// Where a trusted proxy says who the client is, unless `client_ip_headers` says otherwise.
const CLIENT_IP_HEADERS: &[&str] = &["X-Forwarded-For"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    #[serde(default)]
    listen: Vec<String>,
    #[serde(default)]
    read_timeout: Option<Span>,
    #[serde(default)]
    read_header_timeout: Option<Span>,
    #[serde(default)]
    read_idle_timeout: Option<Span>,
    #[serde(default)]
    write_timeout: Option<Span>,
    #[serde(default)]
    write_idle_timeout: Option<Span>,
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
    /// Request and answer always go at the same time here.
    #[serde(default, rename = "enable_full_duplex")]
    _enable_full_duplex: bool,
    #[serde(default)]
    expected_underscore_headers: Vec<String>,
    #[serde(default)]
    expected_dot_headers: Vec<String>,
    /// Of these three the modules read the JSON itself: 10 000 sites are not to be copied.
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
    #[serde(default, rename = "errors")]
    _errors: Option<Errors>,
    #[serde(default, rename = "named_routes")]
    _named_routes: Option<BTreeMap<String, IgnoredAny>>,
    /// Ours: what HTTP/2 tells its peers.
    #[serde(default)]
    http2: Http2,
    #[serde(default)]
    automatic_https: https::Automatic,
    #[serde(default)]
    tls_connection_policies: Option<Vec<WrittenPolicy>>,
    #[serde(default)]
    strict_sni_host: Option<bool>,
    /// Of HTTP/3 only; over TCP none is taken.
    #[serde(default, rename = "allow_0rtt")]
    _allow_0rtt: Option<bool>,
    #[serde(default)]
    trusted_proxies: Option<IpSource>,
    #[serde(default)]
    client_ip_headers: Option<Vec<String>>,
    #[serde(default)]
    trusted_proxies_strict: u8,
    #[serde(default)]
    logs: Option<Logs>,
    #[serde(default)]
    protocols: Vec<String>,
    #[serde(default)]
    listener_wrappers: Option<Value>,
    #[serde(default)]
    packet_conn_wrappers: Option<Value>,
    #[serde(default)]
    read_min_rate: Option<Value>,
    #[serde(default)]
    write_min_rate: Option<Value>,
    #[serde(default)]
    max_write_chunk: Option<Value>,
    #[serde(default)]
    keepalive_interval: Option<Value>,
    #[serde(default)]
    keepalive_idle: Option<Value>,
    #[serde(default)]
    keepalive_count: Option<Value>,
    #[serde(default)]
    trusted_proxies_unix: Option<Value>,
    #[serde(default)]
    listen_protocols: Option<Value>,
    #[serde(default)]
    metrics: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
}

/// A module of `http.ip_sources`; one is built in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IpSource {
    source: String,
    #[serde(default)]
    ranges: Vec<String>,
}

/// A server's `logs`: that there is one asks for a line for each request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logs {
    #[serde(default)]
    default_logger_name: Option<Value>,
    #[serde(default)]
    logger_names: Option<Value>,
    #[serde(default)]
    skip_hosts: Option<Value>,
    #[serde(default)]
    skip_unmapped_hosts: Option<Value>,
    #[serde(default)]
    should_log_credentials: Option<Value>,
    #[serde(default)]
    trace: Option<Value>,
}

/// A server whose own fields are read; what automatic HTTPS does to it is missing.
pub(super) struct Prepared<'c> {
    pub(super) name: &'c str,
    pub(super) written: &'c Server,
    /// As it is written, for its routes.
    json: &'c Value,
    pub(super) listen: Vec<Vec<ListenAddress>>,
    timeouts: Timeouts,
    trust: Option<Trust>,
    confusable: Confusable,
    protocols: Protocols,
    pub(super) policies: Option<Vec<TlsPolicy>>,
}

impl Server {
    /// Reads all but the routes. Certificates that policies select are tagged.
    pub(super) fn prepare<'c>(
        &'c self,
        name: &'c str,
        json: &'c Value,
        sources: &mut [CertificateSource],
        build: &mut Build<'_>,
    ) -> Result<Prepared<'c>, BuildError> {
        build.at(format!("apps.http.servers.{name}"), |build| {
            let listen = build.at("listen", |build| address::parse_each(&self.listen, build))?;
            self.refuse_unbuilt(build)?;
            let protocols = self.protocols(build)?;
            build.at("http2", |build| check_http2(self.http2, build))?;
            let policies = match &self.tls_connection_policies {
                Some(written) => Some(
                    build.at("tls_connection_policies", |build| read_policies(written, protocols, sources, build))?,
                ),
                None => None,
            };
            let (timeouts, trust, confusable) = (self.timeouts(build)?, self.trust(build)?, self.confusable(build)?);
            Ok(Prepared { name, written: self, json, listen, timeouts, trust, confusable, protocols, policies })
        })
    }

    pub(super) fn automatic(&self) -> &https::Automatic {
        &self.automatic_https
    }

    pub(super) fn access_log(&self) -> bool {
        self.logs.is_some()
    }

    /// Whether some of its hosts ask clients for certificates: then a request must be for the host that its connection was opened
    /// for, unless the server was told otherwise.
    fn asks_clients(&self) -> bool {
        self.tls_connection_policies.iter().flatten().any(WrittenPolicy::asks_clients)
    }

    /// Whether HTTP/3 was asked for by its name.
    pub(super) fn names_http3(&self) -> bool {
        self.protocols.iter().any(|protocol| protocol == "h3")
    }

    fn refuse_unbuilt(&self, build: &mut Build<'_>) -> Result<(), BuildError> {
        for (key, value) in [
            ("listener_wrappers", &self.listener_wrappers),
            ("packet_conn_wrappers", &self.packet_conn_wrappers),
            ("read_min_rate", &self.read_min_rate),
            ("write_min_rate", &self.write_min_rate),
            ("max_write_chunk", &self.max_write_chunk),
            ("keepalive_interval", &self.keepalive_interval),
            ("keepalive_idle", &self.keepalive_idle),
            ("keepalive_count", &self.keepalive_count),
            ("trusted_proxies_unix", &self.trusted_proxies_unix),
            ("listen_protocols", &self.listen_protocols),
            ("metrics", &self.metrics),
        ] {
            refuse(key, value, build)?;
        }
        if let Some(logs) = &self.logs {
            for (key, value) in [
                ("logs.default_logger_name", &logs.default_logger_name),
                ("logs.logger_names", &logs.logger_names),
                ("logs.skip_hosts", &logs.skip_hosts),
                ("logs.skip_unmapped_hosts", &logs.skip_unmapped_hosts),
                ("logs.should_log_credentials", &logs.should_log_credentials),
                ("logs.trace", &logs.trace),
            ] {
                refuse(key, value, build)?;
            }
        }
        Ok(())
    }

    /// Without a list all that there is; HTTP/2 in the clear by prior knowledge too, which costs nobody anything.
    fn protocols(&self, build: &mut Build<'_>) -> Result<Protocols, BuildError> {
        if self.protocols.is_empty() {
            return Ok(Protocols::default());
        }
        let has = |wanted: &str| self.protocols.iter().any(|protocol| protocol == wanted);
        for (index, protocol) in self.protocols.iter().enumerate() {
            if !matches!(&**protocol, "h1" | "h2" | "h2c" | "h3") {
                return build
                    .at(format!("protocols[{index}]"), |build| Err(build.refuse(&**protocol, "h1, h2, h2c or h3")));
            }
        }
        if !has("h1") && !has("h2") && !has("h2c") {
            return build
                .at("protocols", |build| Err(build.refuse("h3", "h1, h2 or h2c too: HTTP/3 is not built yet")));
        }
        Ok(Protocols { http1: has("h1"), http2: has("h2"), http2_clear: has("h2c"), http2_upgrade: has("h2c") })
    }

    fn timeouts(&self, build: &mut Build<'_>) -> Result<Timeouts, BuildError> {
        let mut timeouts = Timeouts::default();
        let mut set = |key: &str, span: &Option<Span>, timeout: &mut Duration| {
            if let Some(span) = span {
                *timeout = build.at(key, |build| span.duration(build))?;
            }
            Ok::<_, BuildError>(())
        };
        set("read_header_timeout", &self.read_header_timeout, &mut timeouts.head)?;
        set("idle_timeout", &self.idle_timeout, &mut timeouts.keep_alive)?;
        set("linger_timeout", &self.linger_timeout, &mut timeouts.linger)?;
        // Caddy's limits of a whole request and answer are taken for limits of silence, unless those are named too.
        set("read_timeout", &self.read_timeout, &mut timeouts.body_idle)?;
        set("write_timeout", &self.write_timeout, &mut timeouts.write_idle)?;
        set("read_idle_timeout", &self.read_idle_timeout, &mut timeouts.body_idle)?;
        set("write_idle_timeout", &self.write_idle_timeout, &mut timeouts.write_idle)?;
        Ok(timeouts)
    }

    fn trust(&self, build: &mut Build<'_>) -> Result<Option<Trust>, BuildError> {
        let Some(proxies) = &self.trusted_proxies else { return Ok(None) };
        build.at("trusted_proxies", |build| {
            if proxies.source != "static" {
                return Err(build.refuse(&*proxies.source, "static: other sources are not built into this version"));
            }
            let headers: Vec<_> = match &self.client_ip_headers {
                Some(headers) => headers.iter().map(|header| &**header).collect(),
                None => CLIENT_IP_HEADERS.to_vec(),
            };
            let trust = Trust::new(&proxies.ranges, &headers, self.trusted_proxies_strict > 0);
            trust
                .map(Some)
                .map_err(|bad| build.refuse(bad, "an IP address, a network such as 10.0.0.0/8, or a field name"))
        })
    }

    fn confusable(&self, build: &mut Build<'_>) -> Result<Confusable, BuildError> {
        Confusable::new(&self.expected_underscore_headers, &self.expected_dot_headers).map_err(|bad| {
            build
                .refuse(bad, "a field name in ASCII with the `_` or `.` it is listed for, and a `*` at its end at most")
        })
    }
}

impl Prepared<'_> {
    /// Its own routes.
    pub(super) fn routes(&self) -> &Value {
        self.json.get("routes").unwrap_or(&NO_ROUTES)
    }

    /// Adds the server to the plan; returns where it listens.
    pub(super) fn build(
        self,
        policies: Option<Vec<TlsPolicy>>,
        inserted: Option<https::Inserted>,
        ports: https::Ports,
        build: &mut Build<'_>,
    ) -> Result<Vec<ListenerSpec>, BuildError> {
        let (server, json) = (self.written, self.json);
        let routes = inserted.as_ref().map(|inserted| inserted.among(self.routes()));
        let spec = ServerSpec {
            errors: json
                .get("errors")
                .filter(|errors| !errors.is_null())
                .map(|errors| errors.get("routes").unwrap_or(&NO_ROUTES)),
            named_routes: json.get("named_routes").and_then(Value::as_object),
            access_log: server.logs.is_some(),
            trust: self.trust.clone(),
            confusable: self.confusable.clone(),
            strict_sni_host: server.strict_sni_host.unwrap_or_else(|| server.asks_clients()),
            ..ServerSpec::new(self.name, routes.as_ref().unwrap_or_else(|| self.routes()))
        };
        let place = format!("apps.http.servers.{}", self.name);
        let id = build.at(&*place, |build| build.server(&spec));
        let id = id.map_err(|error| match &inserted {
            Some(inserted) => inserted.place_of(error, &place),
            None => error,
        })?;
        let limits = server.limits;
        let head = HeadLimits { head_bytes_max: server.max_header_bytes.unwrap_or(limits.head_bytes_max), ..limits };
        let tls = policies.filter(|policies| !policies.is_empty()).map(|policies| TlsSpec { policies });
        let listener = |address: ListenAddress| ListenerSpec {
            timeouts: self.timeouts,
            head,
            protocols: self.protocols,
            http2: server.http2,
            // What is on the HTTP port is in the clear, whatever the server has besides.
            tls: tls.clone().filter(|_| address.port != ports.http),
            ..ListenerSpec::new(address, id)
        };
        Ok(self.listen.iter().flatten().copied().map(listener).collect())
    }
}

static NO_ROUTES: Value = Value::Array(Vec::new());

fn read_policies(
    written: &[WrittenPolicy],
    protocols: Protocols,
    sources: &mut [CertificateSource],
    build: &mut Build<'_>,
) -> Result<Vec<TlsPolicy>, BuildError> {
    let mut policies = Vec::with_capacity(written.len());
    for (index, policy) in written.iter().enumerate() {
        policies.extend(build.at(format!("[{index}]"), |build| policy.read(protocols, sources, build))?);
    }
    if policies.is_empty() && !written.is_empty() {
        // Policies that nobody can meet still ask for TLS; none at all would be a server in the clear.
        policies.push(TlsPolicy { drop: true, ..TlsPolicy::default() });
    }
    Ok(policies)
}

/// The bounds that its fields name.
fn check_http2(http2: Http2, build: &mut Build<'_>) -> Result<(), BuildError> {
    const WINDOW_MAX: u32 = (1 << 31) - 1;
    const TABLE_MAX: u32 = (1 << 16) - 1;
    for (key, value, least, most) in [
        ("streams_max", http2.streams_max, 1, 4096),
        ("stream_window_bytes", http2.stream_window_bytes, 0, WINDOW_MAX),
        ("connection_window_bytes", http2.connection_window_bytes, (1 << 16) - 1, WINDOW_MAX),
        ("header_table_bytes", http2.header_table_bytes, 0, TABLE_MAX),
        ("encoder_table_bytes", http2.encoder_table_bytes, 0, TABLE_MAX),
    ] {
        if !(least..=most).contains(&value) {
            let expected = format!("a number from {least} to {most}");
            return build.at(key, |build| Err(build.refuse(value.to_string(), expected)));
        }
    }
    Ok(())
}
