//! An HTTP client for the interfaces of other servers, such as those of DNS providers: one request, one response with a
//! bounded body.
//!
//! It uses HTTP/1.1, with TLS for `https` URLs, reuses connections while it lives, and follows redirects only on
//! request.
//!
//! - `any_certificate`: connections without verification
//! - `connector`: opens its connections; `proxy`: a network proxy between

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt as _, FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SignatureScheme, WantsVerifier};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;

pub use hyper::{Method, StatusCode};
pub use proxy::{NetworkProxy, ProxyChoice, ProxyEnvironment, ProxyUrlError};

use crate::error::write_with_causes;
use any_certificate::AnyCertificate;
use connector::Connector;

pub(crate) mod any_certificate;
mod connector;
mod proxy;

#[cfg(test)]
pub(crate) mod double;
#[cfg(test)]
mod tests;

/// The default time limit of a request, from the connection to the response's last byte.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The default bound of a response's body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// How long an idle connection stays open.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The most idle connections to one server. Handshakes on demand may send any number of requests concurrently.
const POOL_IDLE_MAX: usize = 2;

/// The servers that a client trusts.
#[derive(Debug, Clone)]
pub enum ServerTrust {
    /// Servers with a certificate of an authority that the system trusts.
    System,
    /// Servers with a certificate of these authorities, in DER.
    Roots(Vec<Vec<u8>>),
    /// Any server.
    Unverified,
}

/// The redirects that a request follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// Any.
    All,
    /// Those of an `https` URL only to `https` URLs: without it, a response could be forged.
    KeepHttps,
}

/// A client with its roots and limits. Cloning is cheap and shares the connections.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    timeout: Duration,
    body_bytes_max: usize,
}

impl HttpClient {
    /// Makes a client that trusts the certificates in the PEM files `roots`, or the system's roots if there are none.
    /// It connects through the [proxy of the environment](ProxyChoice::environment). Blocks on disk for some
    /// milliseconds.
    ///
    /// # Errors
    /// If the roots cannot be read.
    pub fn new(roots: &[PathBuf]) -> Result<Self, HttpError> {
        Self::through(&ProxyChoice::environment(), roots)
    }

    /// As [`new`](Self::new), with this choice of a proxy. A chosen proxy is only for `https` URLs: it gets no other
    /// request than to connect.
    ///
    /// # Errors
    /// If the roots cannot be read.
    pub fn through(proxy: &ProxyChoice, roots: &[PathBuf]) -> Result<Self, HttpError> {
        Ok(Self::over(configured(roots)?, Connector::new(proxy)?))
    }

    /// As [`new`](Self::new), and presents `identity` to servers that request a client's certificate.
    ///
    /// # Errors
    /// If the roots cannot be read.
    pub fn with_identity(roots: &[PathBuf], identity: Option<Arc<CertifiedKey>>) -> Result<Self, HttpError> {
        let mut config = configured(roots)?;
        if let Some(identity) = identity {
            config.client_auth_cert_resolver = Arc::new(Presented(identity));
        }
        Ok(Self::over(config, Connector::new(&ProxyChoice::environment())?))
    }

    /// Makes a client that trusts these servers, and sends and verifies the name `server_name` instead of the host of
    /// each URL. Blocks on disk for some milliseconds.
    ///
    /// # Errors
    /// The roots cannot be used, or `server_name` is not a host name.
    pub fn trusting(trust: &ServerTrust, server_name: Option<&str>) -> Result<Self, HttpError> {
        let config = match trust {
            ServerTrust::System => configured(&[])?,
            ServerTrust::Roots(certificates) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates {
                    roots.add(CertificateDer::from(&**certificate)).map_err(HttpError::Root)?;
                }
                tls_builder().with_root_certificates(roots).with_no_client_auth()
            }
            ServerTrust::Unverified => unverified(),
        };
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let connector = Connector::new(&ProxyChoice::environment())?;
        Ok(Self::with(match server_name {
            None => builder.enable_http1().wrap_connector(connector),
            Some(name) => {
                let name = ServerName::try_from(name.to_owned()).map_err(|_| HttpError::ServerName(name.to_owned()))?;
                let resolver = FixedServerNameResolver::new(name);
                builder.with_server_name_resolver(resolver).enable_http1().wrap_connector(connector)
            }
        }))
    }

    /// Makes a client that trusts any server, with this choice of a proxy.
    ///
    /// # Errors
    /// If the proxy cannot be used.
    pub(crate) fn unverified(proxy: &ProxyChoice) -> Result<Self, HttpError> {
        Ok(Self::over(unverified(), Connector::new(proxy)?))
    }

    /// Makes a client for a server that listens on a Unix socket. The host of its URLs, which are `http` ones, is only
    /// a name in requests.
    pub fn unix(socket: &Path) -> Self {
        let config = tls_builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        Self::over(config, Connector::Unix(socket.into()))
    }

    fn over(config: ClientConfig, connector: Connector) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        Self::with(builder.wrap_connector(connector))
    }

    fn with(connector: HttpsConnector<Connector>) -> Self {
        // Without a timer the client closes an idle connection only when it looks for one to reuse.
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(POOL_IDLE_MAX)
            .build(connector);
        Self { client, timeout: REQUEST_TIMEOUT, body_bytes_max: BODY_BYTES_MAX }
    }

    /// Sets the time limit of each request, from the connection to the response's last byte.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the bound of a response's body.
    #[must_use]
    pub fn body_bytes_max(mut self, max: usize) -> Self {
        self.body_bytes_max = max;
        self
    }

    /// Sends a request and reads the whole response, of any status.
    ///
    /// # Errors
    /// If the request is malformed, or the server sends no complete response within the limits.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.exchange(request.into_hyper()?).await
    }

    /// Requests `url` and follows redirects, at most `redirects_max`; all of that within the time limit of one request.
    /// `url` becomes that of the returned response, or of the request that failed.
    ///
    /// # Errors
    /// As [`send`](Self::send). There are more redirects, or one that `redirects` excludes.
    pub async fn get_following(
        &self,
        url: &mut String,
        redirects_max: usize,
        redirects: Redirects,
    ) -> Result<HttpResponse, HttpError> {
        let follow = async {
            for _ in 0..=redirects_max {
                let response = self.send(HttpRequest::get(&**url)).await?;
                let Some(target) = response.redirect_target(url) else { return Ok(response) };
                if redirects == Redirects::KeepHttps && is_https(url) && !is_https(&target) {
                    return Err(HttpError::Insecure(without_secrets(&target)));
                }
                *url = target;
            }
            Err(HttpError::Redirects(redirects_max))
        };
        tokio::time::timeout(self.timeout, follow).await.unwrap_or(Err(HttpError::Timeout(self.timeout)))
    }

    /// As [`send`](Self::send).
    pub(crate) async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        authorize(&mut request);
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| HttpError::Exchange(Box::new(error)))?;
            let (head, body) = response.into_parts();
            // By the declared length, before the first byte is read.
            if body.size_hint().lower() > self.body_bytes_max as u64 {
                return Err(HttpError::TooLong(self.body_bytes_max));
            }
            let body = Limited::new(body, self.body_bytes_max).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    HttpError::TooLong(self.body_bytes_max)
                } else {
                    HttpError::Exchange(error)
                }
            })?;
            Ok(HttpResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        tokio::time::timeout(self.timeout, exchange).await.unwrap_or(Err(HttpError::Timeout(self.timeout)))
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Presents one certificate to every server.
#[derive(Debug)]
struct Presented(Arc<CertifiedKey>);

impl ResolvesClientCert for Presented {
    /// As Go's client with one certificate, this ignores the authorities that the server names: the server decides.
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Moves the user information of the URL into an `Authorization`, unless there is one. As Go's client: hyper would drop
/// it silently.
fn authorize<B>(request: &mut Request<B>) {
    let mut parts = request.uri().clone().into_parts();
    let authority = parts.authority.as_ref().map_or("", Authority::as_str);
    let Some((user, place)) = authority.rsplit_once('@') else { return };
    // RFC 3986 §3.2.1: each of both parts is percent-encoded. RFC 7617 §2: the bytes, with a colon also without a
    // password.
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let user: Vec<u8> = percent_decode_str(user).chain([b':']).chain(percent_decode_str(password)).collect();
    let value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(user)));
    // Without it in the URL, requests of all users share connections.
    parts.authority = place.parse().ok();
    if let (Ok(mut value), Ok(uri)) = (value, Uri::from_parts(parts)) {
        *request.uri_mut() = uri;
        value.set_sensitive(true);
        request.headers_mut().entry(AUTHORIZATION).or_insert(value);
    }
}

/// Begins a client's TLS configuration. The provider is explicit: rustls has no default one in a program that enables
/// its feature `ring` too.
pub(crate) fn tls_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites of TLS 1.2 and 1.3")
}

/// Returns the configuration of a client that trusts the certificates in these files, or the system's roots without
/// any.
fn configured(paths: &[PathBuf]) -> Result<ClientConfig, HttpError> {
    if paths.is_empty() {
        let builder = tls_builder().try_with_platform_verifier().map_err(HttpError::SystemRoots)?;
        return Ok(builder.with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    for path in paths {
        let no_roots = || HttpError::Roots(path.clone());
        let text = std::fs::read(path).map_err(|_| no_roots())?;
        for certificate in causeway_pem::chain(&text).map_err(|_| no_roots())? {
            roots.add(certificate).map_err(|_| no_roots())?;
        }
    }
    Ok(tls_builder().with_root_certificates(roots).with_no_client_auth())
}

fn unverified() -> ClientConfig {
    let builder = tls_builder().dangerous();
    builder.with_custom_certificate_verifier(Arc::new(AnyCertificate)).with_no_client_auth()
}

/// A request: a method, a URL, headers, and a body.
#[derive(Clone)]
pub struct HttpRequest {
    method: Method,
    url: String,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
}

impl HttpRequest {
    /// A request without a body. `url` is absolute, with the scheme `http` or `https`. Its `user:password@` is sent as
    /// Basic credentials, unless the request has an `Authorization`.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new(Method::GET, url)
    }

    /// Adds a header. `name` is in lower case.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((HeaderName::from_static(name), value.into()));
        self
    }

    /// Adds a header whose name is not known at build time, in any case.
    ///
    /// # Errors
    /// The name is not a token.
    pub fn named_header(mut self, name: &str, value: impl Into<String>) -> Result<Self, HttpError> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HttpError::HeaderName(name.to_owned()))?;
        self.headers.push((name, value.into()));
        Ok(self)
    }

    /// Adds `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    /// Sets the body and its media type.
    #[must_use]
    pub fn body(self, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut request = self.header("content-type", media_type);
        request.body = body.into();
        request
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, value: &Value) -> Self {
        self.body("application/json", value.to_string())
    }

    /// # Errors
    /// The URL is not an absolute one, or a header's value contains a control character.
    pub(crate) fn into_hyper(self) -> Result<Request<Full<Bytes>>, HttpError> {
        let request = Request::builder().method(self.method).uri(&self.url).body(Full::new(self.body));
        let Ok(mut request) = request else { return Err(HttpError::url(&self.url)) };
        let uri = request.uri();
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(HttpError::url(&self.url));
        }
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("Causeway"));
        for (name, value) in self.headers {
            // Some values are secrets, so the error does not show them.
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(|_| HttpError::Header(name.as_str().to_owned()))?;
            value.set_sensitive(name == AUTHORIZATION);
            if name == USER_AGENT {
                request.headers_mut().insert(name, value);
            } else {
                request.headers_mut().append(name, value);
            }
        }
        Ok(request)
    }
}

/// Returns the scheme, host, port and path of a URL, for messages. User information, query and fragment may hold
/// secrets.
///
/// The URL may be malformed: without a valid host and port, this returns only the scheme.
pub fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        // `user:password@host/path`, with a forgotten scheme.
        return url.rsplit_once('@').map_or(url, |(_, rest)| rest).to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let is_address = place.starts_with('[');
    let port = place.rsplit_once(':').map(|(_, port)| port).filter(|port| !(is_address && port.ends_with(']')));
    // A password with an unescaped `/`, `?` or `#` ends the authority early, so the user stands where a host should and
    // the password where a port should.
    if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return format!("{scheme}://...");
    }
    format!("{scheme}://{place}{path}")
}

/// A response: the status, the headers, and the whole body.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// Any status, also those of errors.
    pub status: StatusCode,
    headers: HeaderMap,
    /// The body, without its transfer coding.
    pub body: Bytes,
}

impl HttpResponse {
    /// Returns the first header of this name, if its value is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns all headers of this name whose values are visible ASCII.
    pub fn headers<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
    }

    /// Returns the URL that this response to a request for `url` redirects to; `None` if it is not a redirect. The URL
    /// may be malformed.
    fn redirect_target(&self, url: &str) -> Option<String> {
        let is_redirect = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        self.header("location").filter(|_| is_redirect).map(|location| resolved(url, location))
    }

    /// Returns the time from `now` to that of `Retry-After`, of any length; zero if its date has passed. `None` without
    /// a valid `Retry-After`.
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        // RFC 9110 §10.2.3: a number of seconds, or a date in one of the three forms of §5.6.7.
        let value = self.header("retry-after")?.trim();
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            // Only a number beyond the range fails.
            return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
        }
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    }

    pub(crate) fn into_hyper(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        (*response.status_mut(), *response.headers_mut()) = (self.status, self.headers);
        response
    }
}

/// Resolves a reference against the URL that it came from (RFC 3986 §5.2).
fn resolved(url: &str, reference: &str) -> String {
    let has_scheme = reference.split(['/', '?', '#']).next().is_some_and(|start| start.contains(':'));
    if has_scheme {
        return reference.to_owned();
    }
    let url = url.split('#').next().unwrap_or_default();
    let authority = url.find("://").map_or(0, |at| at + "://".len());
    let path = url[authority..].find(['/', '?']).map_or(url.len(), |at| authority + at);
    let query = url[path..].find('?').map_or(url.len(), |at| path + at);
    if reference.is_empty() || reference.starts_with('#') {
        return format!("{url}{reference}");
    }
    if reference.starts_with('?') {
        return format!("{}{reference}", &url[..query]);
    }
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{}{rest}", &url[..authority]);
    }
    let (segments, rest) = reference.split_at(reference.find(['?', '#']).unwrap_or(reference.len()));
    let directory = match segments.starts_with('/') {
        true => String::new(),
        false => format!("{}/", url[path..query].rsplit_once('/').map_or("", |(directory, _)| directory)),
    };
    format!("{}{}{rest}", &url[..path], without_dot_segments(&(directory + segments)))
}

/// Removes the segments `.` and `..` of an absolute path (RFC 3986 §5.2.4), as `path::remove_dot_segments` of the crate
/// message, on which this crate does not depend.
fn without_dot_segments(path: &str) -> String {
    let mut kept = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
        // As the last one, a dot segment leaves its slash.
        if segments.peek().is_none() && matches!(segment, "." | "..") {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

fn is_https(url: &str) -> bool {
    url.get(.."https:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
}

/// The reason why a request got no response. Displays no header and no body, which may hold secrets.
#[derive(Debug)]
#[non_exhaustive]
pub enum HttpError {
    /// The URL is not an absolute one with the scheme `http` or `https`. In the form of [`without_secrets`].
    Url(String),
    /// This header's value contains a control character.
    Header(String),
    /// This is not the name of a header.
    HeaderName(String),
    /// The system's roots cannot be used.
    SystemRoots(rustls::Error),
    /// This file contains no root certificates as PEM, or cannot be read.
    Roots(PathBuf),
    /// A root certificate cannot be used.
    Root(rustls::Error),
    /// This is not a host name, or an IP address.
    ServerName(String),
    /// The connection, the TLS handshake or the response's framing failed.
    Exchange(Box<dyn std::error::Error + Send + Sync>),
    /// The response was not complete after this time.
    Timeout(Duration),
    /// The response's body is longer than this number of bytes.
    TooLong(usize),
    /// A redirect from HTTPS to this URL without it, in the form of [`without_secrets`].
    Insecure(String),
    /// More redirects than this number.
    Redirects(usize),
}

impl HttpError {
    pub(crate) fn url(url: &str) -> Self {
        Self::Url(without_secrets(url))
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "found the URL '{url}', expected one such as https://api.example/path"),
            Self::Header(name) => write!(f, "the value of the header '{name}' contains a control character"),
            Self::HeaderName(name) => write!(f, "found '{name}', expected the name of a header"),
            Self::SystemRoots(error) => write!(f, "cannot use the system's root certificates: {error}"),
            Self::Roots(path) => write!(f, "{}: found no root certificates, expected a PEM file", path.display()),
            Self::Root(error) => write!(f, "cannot use a root certificate: {error}"),
            Self::ServerName(name) => {
                write!(f, "found the server name '{name}', expected a host name or an IP address")
            }
            Self::Exchange(error) => {
                // hyper's own message names the step only. The cause is in its sources.
                write_with_causes(&**error, f)
            }
            Self::Timeout(timeout) => write!(f, "no complete response after {} s", timeout.as_secs_f32()),
            Self::TooLong(max) => write!(f, "the response is longer than {max} bytes"),
            Self::Insecure(target) => write!(f, "found a redirect to {}, expected HTTPS", target.escape_debug()),
            Self::Redirects(max) => write!(f, "found more than {max} redirects"),
        }
    }
}

impl std::error::Error for HttpError {}
