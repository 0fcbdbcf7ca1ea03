//! One of `apps.http.servers`: Caddy's fields, and two of our own.
//!
//! What a field would ask for and this version has not is refused by the field's name, never left undone in silence.

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, BuildError, Confusable, HeadLimits, ListenerSpec, Timeouts, Trust};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::duration::Span;
use super::{LoadError, address, https};

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
    #[serde(default)]
    pub(super) automatic_https: https::Automatic,
    #[serde(default)]
    pub(super) tls_connection_policies: Option<Vec<Value>>,
    /// Without TLS there is no name to compare the host with.
    #[serde(default, rename = "strict_sni_host")]
    _strict_sni_host: Option<bool>,
    /// Without TLS there is no early data.
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

impl Server {
    /// Adds the server to the plan, as it is written in `json`; returns where it listens.
    pub(super) fn build(
        &self,
        name: &str,
        json: &Value,
        ports: https::Ports,
        build: &mut Build<'_>,
    ) -> Result<Vec<ListenerSpec>, LoadError> {
        let (addresses, timeouts, trust, confusable) = build.at(format!("apps.http.servers.{name}"), |build| {
            let addresses = build.at("listen", |build| address::parse_all(&self.listen, build))?;
            self.refuse_unbuilt(build)?;
            Ok((addresses, self.timeouts(build)?, self.trust(build)?, self.confusable(build)?))
        })?;
        let none = Value::Array(Vec::new());
        let routes = json.get("routes").unwrap_or(&none);
        https::check(self, routes, &addresses, ports)?;
        let spec = ServerSpec {
            errors: json
                .get("errors")
                .filter(|errors| !errors.is_null())
                .map(|errors| errors.get("routes").unwrap_or(&none)),
            named_routes: json.get("named_routes").and_then(Value::as_object),
            access_log: self.logs.is_some(),
            trust,
            confusable,
            ..ServerSpec::new(name, routes)
        };
        let server = build.at(format!("apps.http.servers.{name}"), |build| build.server(&spec))?;
        let head =
            HeadLimits { head_bytes_max: self.max_header_bytes.unwrap_or(self.limits.head_bytes_max), ..self.limits };
        Ok(addresses
            .into_iter()
            .map(|address| ListenerSpec { timeouts, head, ..ListenerSpec::new(address, server) })
            .collect())
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
        for (index, protocol) in self.protocols.iter().enumerate() {
            build.at(format!("protocols[{index}]"), |build| match &**protocol {
                "h1" => Ok(()),
                // They need TLS, which is refused where it is asked for.
                "h2" | "h3" if self.protocols.iter().any(|protocol| protocol == "h1") => Ok(()),
                _ => Err(build.refuse(&**protocol, "h1: other protocols are not built into this version")),
            })?;
        }
        Ok(())
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

/// A field that is known and not built.
fn refuse(key: &str, value: &Option<Value>, build: &mut Build<'_>) -> Result<(), BuildError> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(value) => build.at(key, |build| Err(build.refuse(value.to_string(), "nothing: this is not built"))),
    }
}
