//! The environment variables of the OpenTelemetry specification that configure traces and metrics ("Environment
//! Variable Specification", "OpenTelemetry Protocol Exporter").
//!
//! DEVIATES from the specification, which ignores a value that it does not know with a warning: here such a value is an
//! error, as in the rest of a configuration.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The largest queue, in spans; its memory is allocated at once.
const QUEUE_MAX: usize = 65_536;
/// The longest time, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// A variable with a value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// The name of the variable.
    pub variable: &'static str,
    /// Its value, or the part of it that is wrong. Values of headers are left out.
    pub found: String,
    /// The values that are valid.
    pub expected: String,
}

impl std::fmt::Display for SettingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: found '{}', expected {}", self.variable, self.found, self.expected)
    }
}

impl std::error::Error for SettingError {}

/// The settings for traces in the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    /// Where spans are sent; `None`: nowhere, but requests still carry the trace.
    pub export: Option<ExportSettings>,
    /// Which requests are sampled.
    pub sampler: Sampler,
    /// Whether `traceparent` and `tracestate` are read and written.
    pub propagates: bool,
    /// `false`: `OTEL_SDK_DISABLED` switches everything off.
    pub is_enabled: bool,
}

/// How spans are sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExportSettings {
    /// The collector.
    pub collector: CollectorSettings,
    /// Spans that may wait.
    pub queue_max: usize,
    /// Spans in a request.
    pub batch_max: usize,
    /// Time between requests while fewer spans wait than a request takes.
    pub delay: Duration,
}

/// How metrics are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricSettings {
    /// The collector.
    pub collector: CollectorSettings,
    /// Time between exports.
    pub interval: Duration,
}

/// A collector of one signal. Times are limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CollectorSettings {
    /// The kind of telemetry that it collects.
    pub signal: Signal,
    /// The protocol.
    pub protocol: ExportProtocol,
    /// The URL of requests by HTTP; the URL without a path for gRPC.
    pub endpoint: String,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// Whether requests are compressed.
    pub gzip: bool,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// A PEM file with the certificates that the collector's certificate may be issued by; `None`: the system's.
    pub certificate: Option<PathBuf>,
    /// The PEM files of the client's certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Attributes of the resource: this server.
    pub resource: Vec<(String, String)>,
    /// The variables of the values above.
    pub(crate) variables: UsedVariables,
    /// Time limit of a batch with all attempts.
    pub export_timeout: Duration,
}

/// The names of the variables that have the settings of a collector, for errors: those of the signal, or of all
/// signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UsedVariables {
    pub(crate) endpoint: &'static str,
    pub(crate) headers: &'static str,
    pub(crate) certificate: &'static str,
    pub(crate) client_certificate: &'static str,
    pub(crate) client_key: &'static str,
}

impl UsedVariables {
    fn find(variables: &SignalVariables, environment: &Variables<'_>) -> Self {
        let used = |special, general| if environment.get(special).is_some() { special } else { general };
        Self {
            endpoint: used(variables.endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT"),
            headers: used(variables.headers, "OTEL_EXPORTER_OTLP_HEADERS"),
            certificate: used(variables.certificate, "OTEL_EXPORTER_OTLP_CERTIFICATE"),
            client_certificate: used(variables.client_certificate, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
            client_key: used(variables.client_key, "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
        }
    }
}

/// A kind of telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Data points of metrics.
    Metrics,
}

/// The variables of one signal, which have precedence over those of all signals.
struct SignalVariables {
    exporter: &'static str,
    protocol: &'static str,
    endpoint: &'static str,
    insecure: &'static str,
    headers: &'static str,
    compression: &'static str,
    timeout: &'static str,
    certificate: &'static str,
    client_certificate: &'static str,
    client_key: &'static str,
}

impl Signal {
    fn variables(self) -> &'static SignalVariables {
        match self {
            Self::Traces => &SignalVariables {
                exporter: "OTEL_TRACES_EXPORTER",
                protocol: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                insecure: "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
                headers: "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                compression: "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
                timeout: "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
                certificate: "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
                client_certificate: "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
                client_key: "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
            },
            Self::Metrics => &SignalVariables {
                exporter: "OTEL_METRICS_EXPORTER",
                protocol: "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
                endpoint: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
                insecure: "OTEL_EXPORTER_OTLP_METRICS_INSECURE",
                headers: "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
                compression: "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION",
                timeout: "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
                certificate: "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE",
                client_certificate: "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE",
                client_key: "OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY",
            },
        }
    }

    /// The path below the general endpoint of OTLP/HTTP.
    fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }
}

/// A transport of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExportProtocol {
    /// `http/protobuf`.
    Http,
    /// `grpc`.
    Grpc,
}

/// Which requests are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Whether a request that belongs to a trace follows the decision of its sender.
    pub follows_parent: bool,
    /// The share of the other traces: a trace is sampled if 63 bits of its id are below this. 2^63 is all.
    pub below: u64,
}

impl Sampler {
    const ALL: u64 = 1 << 63;

    /// Decides about a request. `parent` is its sender's decision, if it belongs to a trace. All servers with one ratio
    /// decide alike about a trace. OpenTelemetry prescribes no function of the id; this is the one of its Go library,
    /// which Caddy uses.
    pub fn samples(&self, trace: &[u8; 16], parent: Option<bool>) -> bool {
        match parent {
            Some(is_sampled) if self.follows_parent => is_sampled,
            _ => {
                let [.., a, b, c, d, e, f, g, h] = *trace;
                u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.below
            }
        }
    }
}

type LookUp<'l> = &'l dyn Fn(&str) -> Option<String>;

/// Reads variables; an empty value is none, as the specification requires.
struct Variables<'l>(LookUp<'l>);

impl Variables<'_> {
    fn get(&self, variable: &'static str) -> Option<String> {
        (self.0)(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the first of two variables that is set: the one of the signal, or the one of all signals.
    fn either(&self, special: &'static str, general: &'static str) -> Option<(&'static str, String)> {
        [special, general].into_iter().find_map(|variable| Some((variable, self.get(variable)?)))
    }

    fn path(&self, special: &'static str, general: &'static str) -> Option<PathBuf> {
        self.either(special, general).map(|(_, path)| PathBuf::from(path))
    }

    fn number<T: FromStr + PartialOrd>(
        &self,
        variable: &'static str,
        default: T,
        range: std::ops::RangeInclusive<T>,
        expected: &str,
    ) -> Result<T, SettingError> {
        let Some(text) = self.get(variable) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| refuse(variable, text, expected))
    }

    fn milliseconds(&self, variable: &'static str, default: u64) -> Result<Duration, SettingError> {
        let expected = "a number of milliseconds from 1 to 86400000";
        self.number(variable, default, 1..=DAY_MS, expected).map(Duration::from_millis)
    }

    fn boolean(&self, variable: &'static str) -> Result<bool, SettingError> {
        match self.get(variable) {
            None => Ok(false),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => Err(refuse(variable, text, "'true' or 'false'")),
        }
    }
}

fn refuse(variable: &'static str, found: impl Into<String>, expected: impl Into<String>) -> SettingError {
    SettingError { variable, found: found.into(), expected: expected.into() }
}

impl TraceSettings {
    /// Reads the variables with `look_up`.
    ///
    /// # Errors
    /// The first variable with a value that cannot be used.
    pub fn read(look_up: LookUp<'_>) -> Result<Self, SettingError> {
        let environment = Variables(look_up);
        let is_disabled = environment.boolean("OTEL_SDK_DISABLED")?;
        let exports = exports(Signal::Traces, &environment)? && !is_disabled;
        let export = if exports { Some(ExportSettings::read(&environment)?) } else { None };
        let propagates = propagates(&environment)?;
        Ok(Self { export, sampler: sampler(&environment)?, propagates, is_enabled: !is_disabled })
    }
}

impl MetricSettings {
    /// Reads the variables with `look_up`; `None` if they switch the export off.
    ///
    /// # Errors
    /// The first variable with a value that cannot be used.
    pub fn read(look_up: LookUp<'_>) -> Result<Option<Self>, SettingError> {
        let environment = Variables(look_up);
        let is_disabled = environment.boolean("OTEL_SDK_DISABLED")?;
        if !exports(Signal::Metrics, &environment)? || is_disabled {
            return Ok(None);
        }
        let export_timeout = environment.milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", 30_000)?;
        let collector = CollectorSettings::read(Signal::Metrics, export_timeout, &environment)?;
        let interval = environment.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?;
        Ok(Some(Self { collector, interval }))
    }
}

/// Returns whether a signal is sent.
fn exports(signal: Signal, environment: &Variables<'_>) -> Result<bool, SettingError> {
    let variable = signal.variables().exporter;
    match environment.get(variable).as_deref() {
        None | Some("otlp") => Ok(true),
        Some("none") => Ok(false),
        Some(other) => Err(refuse(variable, other, "'otlp' or 'none'")),
    }
}

fn propagates(environment: &Variables<'_>) -> Result<bool, SettingError> {
    let variable = "OTEL_PROPAGATORS";
    let Some(names) = environment.get(variable) else { return Ok(true) };
    let mut propagates = false;
    for name in names.split(',').map(str::trim) {
        match name {
            "tracecontext" => propagates = true,
            // The field `baggage` stays in the request as it is.
            "baggage" | "none" => {}
            _ => return Err(refuse(variable, name, "'tracecontext', 'baggage' or 'none'")),
        }
    }
    Ok(propagates)
}

fn sampler(environment: &Variables<'_>) -> Result<Sampler, SettingError> {
    let name = environment.get("OTEL_TRACES_SAMPLER");
    let name = name.as_deref().unwrap_or("parentbased_always_on");
    let (follows_parent, kind) = match name.strip_prefix("parentbased_") {
        Some(kind) => (true, kind),
        None => (false, name),
    };
    let below = match kind {
        "always_on" => Sampler::ALL,
        "always_off" => 0,
        "traceidratio" => {
            let expected = "a number from 0 to 1";
            let ratio = environment.number("OTEL_TRACES_SAMPLER_ARG", 1.0, 0.0..=1.0, expected)?;
            (ratio * Sampler::ALL as f64) as u64
        }
        _ => {
            let expected = "'always_on', 'always_off' or 'traceidratio', each also with 'parentbased_' before it";
            return Err(refuse("OTEL_TRACES_SAMPLER", name, expected));
        }
    };
    Ok(Sampler { follows_parent, below })
}

impl ExportSettings {
    fn read(environment: &Variables<'_>) -> Result<Self, SettingError> {
        let export_timeout = environment.milliseconds("OTEL_BSP_EXPORT_TIMEOUT", 30_000)?;
        let collector = CollectorSettings::read(Signal::Traces, export_timeout, environment)?;
        let expected = "a number from 1 to 65536";
        let queue_max = environment.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1..=QUEUE_MAX, expected)?;
        let expected = "a number from 1 to OTEL_BSP_MAX_QUEUE_SIZE";
        let batch_max =
            environment.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", queue_max.min(512), 1..=queue_max, expected)?;
        let delay = environment.milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5000)?;
        Ok(Self { collector, queue_max, batch_max, delay })
    }
}

impl CollectorSettings {
    fn read(signal: Signal, export_timeout: Duration, environment: &Variables<'_>) -> Result<Self, SettingError> {
        let variables = signal.variables();
        let protocol = match environment.either(variables.protocol, "OTEL_EXPORTER_OTLP_PROTOCOL") {
            // OTLP exporter, "Specify Protocol": the default. Caddy 2.11.9 has it too, for both signals.
            None => ExportProtocol::Http,
            Some((variable, name)) => match &*name {
                "grpc" => ExportProtocol::Grpc,
                "http/protobuf" => ExportProtocol::Http,
                _ => return Err(refuse(variable, name, "'grpc' or 'http/protobuf'")),
            },
        };
        let gzip = match environment.either(variables.compression, "OTEL_EXPORTER_OTLP_COMPRESSION") {
            None => false,
            Some((variable, name)) => match &*name {
                "gzip" => true,
                "none" => false,
                _ => return Err(refuse(variable, name, "'gzip' or 'none'")),
            },
        };
        let headers = environment.either(variables.headers, "OTEL_EXPORTER_OTLP_HEADERS");
        let headers = headers.map_or(Ok(Vec::new()), |(variable, text)| pairs(variable, &text))?;
        let certificate = environment.path(variables.certificate, "OTEL_EXPORTER_OTLP_CERTIFICATE");
        let used = UsedVariables::find(variables, environment);
        let client = client_certificate(variables, &used, environment)?;
        let timeout = match environment.get(variables.timeout) {
            Some(_) => environment.milliseconds(variables.timeout, 0),
            None => environment.milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000),
        }?;
        let endpoint = endpoint(signal, environment, protocol)?;
        let resource = resource(environment)?;
        Ok(Self {
            signal,
            protocol,
            endpoint,
            headers,
            gzip,
            timeout,
            certificate,
            client,
            resource,
            export_timeout,
            variables: used,
        })
    }
}

/// Returns the files of the client's certificate and its key: both or none.
fn client_certificate(
    variables: &SignalVariables,
    used: &UsedVariables,
    environment: &Variables<'_>,
) -> Result<Option<(PathBuf, PathBuf)>, SettingError> {
    let client = environment.path(variables.client_certificate, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE");
    let key = environment.path(variables.client_key, "OTEL_EXPORTER_OTLP_CLIENT_KEY");
    match (client, key) {
        (Some(client), Some(key)) => Ok(Some((client, key))),
        (None, None) => Ok(None),
        (Some(client), None) => {
            let expected = "OTEL_EXPORTER_OTLP_CLIENT_KEY beside it";
            Err(refuse(used.client_certificate, client.display().to_string(), expected))
        }
        (None, Some(key)) => {
            let expected = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it";
            Err(refuse(used.client_key, key.display().to_string(), expected))
        }
    }
}

fn endpoint(signal: Signal, environment: &Variables<'_>, protocol: ExportProtocol) -> Result<String, SettingError> {
    let (variables, directory) = (signal.variables(), signal.path());
    let special = variables.endpoint;
    let found = environment.either(special, "OTEL_EXPORTER_OTLP_ENDPOINT");
    let Some((variable, mut url)) = found else {
        return Ok(match protocol {
            ExportProtocol::Grpc => "http://localhost:4317".into(),
            ExportProtocol::Http => format!("http://localhost:4318{directory}"),
        });
    };
    // OTLP exporter, "Configuration Options": gRPC also accepts an endpoint without a scheme, which is secure unless a
    // variable makes it insecure.
    if protocol == ExportProtocol::Grpc && !url.contains("://") {
        let is_special = environment.get(variables.insecure).is_some();
        let insecure = if is_special { variables.insecure } else { "OTEL_EXPORTER_OTLP_INSECURE" };
        url.insert_str(0, if environment.boolean(insecure)? { "http://" } else { "https://" });
    }
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let Some(authority) = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).filter(|name| !name.is_empty())
    else {
        return Err(refuse(variable, url, "a URL with the scheme 'http' or 'https'"));
    };
    if authority.contains('@') || url.contains(['?', '#', ' ']) {
        return Err(refuse(
            variable,
            authority.rsplit('@').next().unwrap_or_default(),
            "a URL of scheme, host, port and path",
        ));
    }
    let path = rest.map_or("", |rest| &rest[authority.len()..]);
    if protocol == ExportProtocol::Grpc {
        return match path {
            "" | "/" => Ok(url.trim_end_matches('/').to_owned()),
            _ => Err(refuse(variable, url, "a URL without a path, because the protocol is 'grpc'")),
        };
    }
    // The general endpoint is a directory; the one of the signal is used as it is.
    Ok(match (variable == special, path) {
        (true, "") => format!("{url}/"),
        (true, _) => url,
        (false, _) => format!("{}{directory}", url.trim_end_matches('/')),
    })
}

/// Returns the attributes of this server. A key that stands twice has its first value.
fn resource(environment: &Variables<'_>) -> Result<Vec<(String, String)>, SettingError> {
    let mut attributes = Vec::new();
    if let Some(name) = environment.get("OTEL_SERVICE_NAME") {
        attributes.push(("service.name".to_owned(), name));
    }
    let variable = "OTEL_RESOURCE_ATTRIBUTES";
    let written = environment.get(variable).map_or(Ok(Vec::new()), |text| pairs(variable, &text))?;
    let version = env!("CARGO_PKG_VERSION");
    let own = [
        ("service.name", "unknown_service:causeway"),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.name", "causeway"),
        ("telemetry.sdk.version", version),
        ("webengine.name", "Causeway"),
        ("webengine.version", version),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    for (key, value) in written.into_iter().chain(own) {
        if !attributes.iter().any(|(known, _): &(String, String)| *known == key) {
            attributes.push((key, value));
        }
    }
    Ok(attributes)
}

/// Reads `key=value,…` with percent-encoded values, the form of W3C Baggage.
fn pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, SettingError> {
    let mut pairs = Vec::new();
    for (index, pair) in text.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
        let entry = || format!("entry {}", index + 1);
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
            return Err(refuse(variable, entry(), "'key=value'"));
        };
        let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8();
        let value = value.map_err(|_| refuse(variable, entry(), "a value in UTF-8, percent-encoded"))?;
        pairs.push((key.trim().to_owned(), value.into_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests;
