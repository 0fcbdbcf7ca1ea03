//! One request to a collector, by OTLP/HTTP or OTLP/gRPC, and the meaning of its answer.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::answer;
use crate::output::lock;
use crate::settings::{CollectorSettings, ExportProtocol, SettingError, Signal};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Returns the path of OTLP's service in gRPC.
fn grpc_path(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The collector accepted the batch, except for `rejected` of its items.
    Done { rejected: u64, message: String },
    /// The same batch may be sent again, after the time that the collector demands.
    Retry { reason: String, after: Option<Duration> },
    /// The same batch must not be sent again.
    Refused(String),
}

type Connections = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client with its connections.
pub(crate) struct CollectorClient {
    connector: HttpsConnector<HttpConnector>,
    connections: Mutex<Connections>,
    protocol: ExportProtocol,
    gzip: bool,
    uri: Uri,
    headers: HeaderMap,
}

impl CollectorClient {
    /// # Errors
    /// The endpoint, a file of certificates, or a header is not valid.
    pub(crate) fn new(settings: &CollectorSettings) -> Result<Self, SettingError> {
        let config = match tls(settings)? {
            Some(config) => config,
            None => {
                let builder = tls_builder().try_with_platform_verifier().map_err(|error| SettingError {
                    variable: settings.variables.certificate,
                    found: "nothing".into(),
                    expected: format!("a file of certificates, because the system's cannot be read: {error}"),
                })?;
                builder.with_no_client_auth()
            }
        };
        let builder = HttpsConnectorBuilder::new().with_tls_config(config);
        let is_grpc = settings.protocol == ExportProtocol::Grpc;
        let builder = builder.https_or_http();
        let connector = if is_grpc { builder.enable_http2().build() } else { builder.enable_http1().build() };
        let bad_endpoint = || SettingError {
            variable: settings.variables.endpoint,
            found: settings.endpoint.clone(),
            expected: "an absolute URL".into(),
        };
        let url = if is_grpc {
            format!("{}{}", settings.endpoint, grpc_path(settings.signal))
        } else {
            settings.endpoint.clone()
        };
        let uri: Uri = url.parse().map_err(|_| bad_endpoint())?;
        if uri.authority().is_none() {
            return Err(bad_endpoint());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            // The value may be a secret.
            let refuse = || SettingError {
                variable: settings.variables.headers,
                found: name.clone(),
                expected: "the name and the value of an HTTP header".into(),
            };
            let name: HeaderName = name.parse().map_err(|_| refuse())?;
            headers.append(name, value.parse().map_err(|_| refuse())?);
        }
        let agent = concat!("causeway/", env!("CARGO_PKG_VERSION"));
        let gzip = settings.gzip;
        let mut own = vec![("user-agent", agent)];
        match settings.protocol {
            ExportProtocol::Http => {
                own.push(("content-type", "application/x-protobuf"));
                own.extend(gzip.then_some(("content-encoding", "gzip")));
            }
            ExportProtocol::Grpc => {
                own.extend([("content-type", "application/grpc"), ("te", "trailers")]);
                own.extend(gzip.then_some(("grpc-encoding", "gzip")));
            }
        }
        for (name, value) in own {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let connections = Mutex::new(connections(&connector, settings.protocol));
        Ok(Self { connector, connections, protocol: settings.protocol, gzip, uri, headers })
    }

    /// Leaves the connections: the next request opens one. A request that times out does not close its connection over
    /// HTTP/2, and if the collector has vanished without a word, every later request would time out too. Keep-alive
    /// PINGs are no substitute: a server of grpc-go closes connections with more than one in 5 minutes.
    pub(crate) fn reconnect(&self) {
        *lock(&self.connections) = connections(&self.connector, self.protocol);
    }

    /// Returns the body of a request for a message: compressed and framed as the protocol needs it.
    pub(crate) fn message(&self, message: Vec<u8>) -> Bytes {
        let mut body = if self.protocol == ExportProtocol::Grpc { vec![0; 5] } else { Vec::new() };
        if self.gzip {
            let mut encoder = GzEncoder::new(body, Compression::fast());
            // A vector accepts every byte.
            let _ = encoder.write_all(&message);
            body = encoder.finish().unwrap_or_default();
        } else {
            body.extend_from_slice(&message);
        }
        if self.protocol == ExportProtocol::Grpc {
            // A message in gRPC has a flag for its compression and its length before it.
            let len = u32::try_from(body.len() - 5).unwrap_or(u32::MAX);
            body[0] = self.gzip.into();
            body[1..5].copy_from_slice(&len.to_be_bytes());
        }
        body.into()
    }

    /// Sends the body of a request, and reads the answer.
    pub(crate) async fn send(&self, body: Bytes) -> Delivery {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let lost = |error: &dyn std::error::Error| Delivery::Retry { reason: chain(error), after: None };
        let sending = lock(&self.connections).request(request);
        let (head, body) = match sending.await {
            Ok(response) => response.into_parts(),
            Err(error) => return lost(&error),
        };
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body,
            Err(error) => return lost(&*error),
        };
        let trailers = body.trailers().cloned();
        let body = body.to_bytes();
        match self.protocol {
            ExportProtocol::Http => http(head.status, &head.headers, &body),
            // A response without a message has the status in its head.
            ExportProtocol::Grpc => match trailers.filter(|trailers| trailers.contains_key("grpc-status")) {
                Some(trailers) => grpc(head.status, &trailers, &body),
                None => grpc(head.status, &head.headers, &body),
            },
        }
    }
}

fn connections(connector: &HttpsConnector<HttpConnector>, protocol: ExportProtocol) -> Connections {
    let is_grpc = protocol == ExportProtocol::Grpc;
    hyper_util::client::legacy::Client::builder(TokioExecutor::new()).http2_only(is_grpc).build(connector.clone())
}

/// Returns the text of an error and of its causes. As in the crate acme; neither crate depends on the other one.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Evaluates an answer of OTLP/HTTP. OTLP, "Failures": only 429, 502, 503 and 504 permit another attempt.
fn http(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Delivery {
    if status.is_success() {
        let (rejected, message) = answer::partial_success(body);
        return Delivery::Done { rejected, message };
    }
    let is_protobuf = headers.get("content-type").is_some_and(|kind| kind.as_bytes() == b"application/x-protobuf");
    let message = if is_protobuf { answer::status(body).0 } else { answer::printable(body) };
    let message = message.trim();
    let reason = match message {
        "" => format!("the answer is {status}"),
        message => format!("the answer is {status}: {message}"),
    };
    if !matches!(status.as_u16(), 429 | 502 | 503 | 504) {
        return Delivery::Refused(reason);
    }
    let after = headers.get("retry-after").and_then(|after| retry_after(after.to_str().ok()?, SystemTime::now()));
    Delivery::Retry { reason, after }
}

/// Reads `Retry-After` (RFC 9110 §10.2.3): seconds or a date.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    match text.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()),
    }
}

/// Evaluates an answer of OTLP/gRPC. OTLP, "Failures": these codes permit another attempt, RESOURCE_EXHAUSTED only with
/// a `RetryInfo`.
fn grpc(status: StatusCode, fields: &HeaderMap, body: &[u8]) -> Delivery {
    let Some(code) = fields.get("grpc-status").and_then(|code| code.to_str().ok()?.parse::<u32>().ok()) else {
        let reason = format!("the answer is {status} without a status of gRPC");
        // gRPC over HTTP2, "HTTP to gRPC Status Code Mapping".
        return match status.as_u16() {
            429 | 502 | 503 | 504 => Delivery::Retry { reason, after: None },
            _ => Delivery::Refused(reason),
        };
    };
    if code == 0 {
        let (rejected, message) = match body.split_at_checked(5) {
            // A compressed message is not requested.
            Some(([0, ..], message)) => answer::partial_success(message),
            _ => (0, String::new()),
        };
        return Delivery::Done { rejected, message };
    }
    let details = fields.get("grpc-status-details-bin").map(HeaderValue::as_bytes).unwrap_or_default();
    let details = STANDARD_NO_PAD.decode(details).or_else(|_| STANDARD.decode(details)).unwrap_or_default();
    let (_, delay) = answer::status(&details);
    let message = fields.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    let message: Vec<u8> = percent_encoding::percent_decode(message).collect();
    let reason = format!("the answer is gRPC status {code}: {}", answer::printable(&message));
    match code {
        1 | 4 | 10 | 11 | 14 | 15 => Delivery::Retry { reason, after: delay },
        8 if delay.is_some() => Delivery::Retry { reason, after: delay },
        _ => Delivery::Refused(reason),
    }
}

/// Begins a client's TLS configuration. The provider is explicit: rustls has no default one in a program that enables
/// its feature `ring` too.
fn tls_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites of TLS 1.2 and 1.3")
}

/// Reads the certificates of the settings; `None` for the system's.
fn tls(settings: &CollectorSettings) -> Result<Option<ClientConfig>, SettingError> {
    if settings.certificate.is_none() && settings.client.is_none() {
        return Ok(None);
    }
    let refuse = |variable: &'static str, path: &Path, expected: &str| SettingError {
        variable,
        found: path.display().to_string(),
        expected: expected.into(),
    };
    let read = |variable: &'static str, path: &Path| {
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(refuse(variable, path, "a PEM file with certificates")),
        }
    };
    let mut roots = RootCertStore::empty();
    let Some(path) = &settings.certificate else {
        let (variable, path) = (settings.variables.client_certificate, settings.client.as_ref());
        let path = path.map(|(certificate, _)| certificate.as_path()).unwrap_or(Path::new(""));
        return Err(refuse(variable, path, "OTEL_EXPORTER_OTLP_CERTIFICATE beside it"));
    };
    let variable = settings.variables.certificate;
    for certificate in read(variable, path)? {
        roots.add(certificate).map_err(|_| refuse(variable, path, "certificates that can be trusted"))?;
    }
    let builder = tls_builder().with_root_certificates(roots);
    Ok(Some(match &settings.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let variable = settings.variables.client_key;
            let chain = read(settings.variables.client_certificate, certificate)?;
            let read = PrivateKeyDer::from_pem_file(key).map_err(|_| refuse(variable, key, "a PEM file with a key"))?;
            builder
                .with_client_auth_cert(chain, read)
                .map_err(|_| refuse(variable, key, "the key of the certificate"))?
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9110 §10.2.3: `Retry-After` is a number of seconds or a date; a date in the past means now.
    #[test]
    fn retry_after_forms() {
        let now = httpdate::parse_http_date("Thu, 26 Nov 2026 20:00:00 GMT").expect("a date");
        for (text, want) in [
            ("7", Some(7)),
            ("Thu, 26 Nov 2026 20:00:09 GMT", Some(9)),
            ("Thu, 26 Nov 2026 19:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(retry_after(text, now), want.map(Duration::from_secs), "{text}");
        }
    }

    // OTLP, "Failures": the codes that permit another attempt.
    #[test]
    fn retryable_codes() {
        let fields = HeaderMap::new();
        for code in [400, 401, 404, 413, 429, 500, 501, 502, 503, 504, 308] {
            let delivery = http(StatusCode::from_u16(code).expect("a status"), &fields, b"");
            assert_eq!(matches!(delivery, Delivery::Retry { .. }), [429, 502, 503, 504].contains(&code), "{code}");
        }
        for code in 1..17 {
            let mut fields = HeaderMap::new();
            fields.insert("grpc-status", code.into());
            let delivery = grpc(StatusCode::OK, &fields, b"");
            assert_eq!(matches!(delivery, Delivery::Retry { .. }), [1, 4, 10, 11, 14, 15].contains(&code), "{code}");
        }
        let refused = |status| matches!(grpc(status, &fields, b""), Delivery::Refused(_));
        assert!(refused(StatusCode::OK) && refused(StatusCode::NOT_FOUND) && !refused(StatusCode::BAD_GATEWAY));
    }
}
