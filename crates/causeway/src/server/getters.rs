//! The sources of certificates outside this server, which handshakes query: `get_certificate`.
//!
//! As in Caddy, each handshake without another certificate queries them, so a source decides when a certificate
//! changes. Nothing is stored.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_acme::http::{HttpClient, HttpError, HttpRequest, StatusCode, without_secrets};
use causeway_config::plan::CertificateGetter;
use causeway_engine::SoughtCertificate;
use causeway_engine::certificate::CertifiedKey;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

/// How long a server may take to answer.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long Tailscale's daemon may take for one answer: it may order the certificate first. Less than a handshake
/// waits.
const TAILSCALE_TIMEOUT: Duration = Duration::from_secs(50);
/// A chain with its key has some KiB.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// How much of an error's text the log has, in characters.
const ERROR_CHARS_MAX: usize = 200;
/// How many cipher suites and how many signature schemes of a ClientHello a query has. Usual clients list fewer than
/// 50; a hostile one could list so many thousands that the URL is too long.
const CODES_MAX: usize = 256;
/// The host in requests to Tailscale's daemon, which has no other name.
const TAILSCALE_HOST: &str = "http://local-tailscaled.sock";

/// A source and its client.
pub(super) struct Getter {
    source: CertificateGetter,
    client: HttpClient,
    /// The last answer was a fault, which the log has.
    is_failing: AtomicBool,
}

impl Getter {
    /// Blocks on disk for some milliseconds.
    ///
    /// # Errors
    /// The system's root certificates cannot be read.
    pub(super) fn new(source: &CertificateGetter) -> Result<Self, HttpError> {
        let client = match source {
            CertificateGetter::Http(_) => HttpClient::new(&[])?.timeout(HTTP_TIMEOUT).body_bytes_max(BODY_BYTES_MAX),
            CertificateGetter::Tailscale => HttpClient::unix(&socket()).timeout(TAILSCALE_TIMEOUT),
        };
        Ok(Self { source: source.clone(), client, is_failing: AtomicBool::new(false) })
    }

    /// Requests the certificate of a handshake. `Ok(None)`: the source has none for it, and the next source is to be
    /// tried.
    ///
    /// # Errors
    /// The source should have one, but failed. The log has the first of several such faults.
    pub(super) async fn get(&self, sought: &SoughtCertificate) -> Result<Option<Arc<CertifiedKey>>, ()> {
        let answer = match &self.source {
            CertificateGetter::Http(url) => self.ask_server(url, sought).await,
            CertificateGetter::Tailscale => self.ask_tailscale(sought.server_name.as_deref().unwrap_or_default()).await,
        };
        let name = sought.server_name.as_deref().unwrap_or("a client without a server name");
        match answer {
            Ok(found) => {
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("{self} works again");
                }
                tracing::debug!(name, source = %self, is_found = found.is_some(), "requested a certificate");
                Ok(found)
            }
            Err(error) => {
                if self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::debug!(name, source = %self, %error, "no certificate");
                } else {
                    tracing::error!(
                        "{name}: no certificate: {self}: {error}; further faults are not logged until it works again"
                    );
                }
                Err(())
            }
        }
    }

    async fn ask_server(
        &self,
        url: &str,
        sought: &SoughtCertificate,
    ) -> Result<Option<Arc<CertifiedKey>>, GetterError> {
        let response = self.client.send(HttpRequest::get(with_query(url, sought))).await?;
        match response.status {
            StatusCode::OK => certificate(&response.body, "its answer").map(Some),
            StatusCode::NO_CONTENT => Ok(None),
            status => Err(GetterError::Status(status, String::new())),
        }
    }

    async fn ask_tailscale(&self, name: &str) -> Result<Option<Arc<CertifiedKey>>, GetterError> {
        // As in Caddy: without a status the daemon may have the certificate nevertheless.
        if let Ok(body) = self.tailscale("/localapi/v0/status").await
            && let Ok(status) = serde_json::from_slice::<TailscaleStatus>(&body)
            && !status.cert_domains.iter().flatten().any(|domain| domain.eq_ignore_ascii_case(name))
        {
            return Ok(None);
        }
        let body = self.tailscale(&format!("/localapi/v0/cert/{}?type=pair", escaped(name))).await?;
        certificate(&body, "its answer").map(Some)
    }

    async fn tailscale(&self, target: &str) -> Result<Vec<u8>, GetterError> {
        let response = self.client.send(HttpRequest::get(format!("{TAILSCALE_HOST}{target}"))).await?;
        if response.status == StatusCode::OK {
            return Ok(response.body.to_vec());
        }
        // An error is JSON with `error`, or plain text.
        let error: Option<TailscaleError> = serde_json::from_slice(&response.body).ok();
        let text = error.map_or_else(|| String::from_utf8_lossy(&response.body).into_owned(), |error| error.error);
        let text = text.trim().chars().filter(|char| !char.is_control()).take(ERROR_CHARS_MAX).collect();
        Err(GetterError::Status(response.status, text))
    }
}

impl fmt::Display for Getter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            CertificateGetter::Http(url) => write!(f, "get_certificate {}", without_secrets(url)),
            CertificateGetter::Tailscale => write!(f, "Tailscale's daemon at {}", socket().display()),
        }
    }
}

/// The socket of Tailscale's daemon: that of `TS_SOCKET`, or its default.
fn socket() -> PathBuf {
    let default_path =
        if cfg!(target_os = "macos") { "/var/run/tailscaled.socket" } else { "/var/run/tailscale/tailscaled.sock" };
    env::var_os("TS_SOCKET").filter(|value| !value.is_empty()).map_or_else(|| default_path.into(), PathBuf::from)
}

fn certificate(text: &[u8], place: &str) -> Result<Arc<CertifiedKey>, GetterError> {
    Ok(causeway_certs::from_bundle(text, place).map_err(GetterError::Certificate)?.signed())
}

/// Adds the facts of the ClientHello to a URL's query, in place of parameters of these names.
fn with_query(url: &str, sought: &SoughtCertificate) -> String {
    let hex =
        |codes: &[u16]| codes.iter().take(CODES_MAX).map(|code| format!("{code:x}")).collect::<Vec<_>>().join(",");
    let facts = [
        ("cipher_suites", Some(hex(&sought.cipher_suites))),
        ("local_ip", sought.local.map(|ip| ip.to_string())),
        ("server_name", Some(sought.server_name.clone().unwrap_or_default())),
        ("signature_schemes", Some(hex(&sought.signature_schemes))),
    ];
    let (base, query) = url.split('#').next().unwrap_or_default().split_once('?').unwrap_or((url, ""));
    let base = base.split('#').next().unwrap_or_default();
    let is_fact = |pair: &&str| facts.iter().any(|(name, _)| pair.split('=').next() == Some(*name));
    let own = query.split('&').filter(|pair| !pair.is_empty() && !is_fact(pair)).map(str::to_owned);
    let facts = facts.iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(value.as_ref()?))));
    format!("{base}?{}", own.chain(facts).collect::<Vec<_>>().join("&"))
}

fn escaped(text: &str) -> impl fmt::Display + '_ {
    const KEPT: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, KEPT)
}

/// The part of the daemon's status that names its certificates.
#[derive(Deserialize)]
struct TailscaleStatus {
    /// `null` if there are none.
    #[serde(default, rename = "CertDomains")]
    cert_domains: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct TailscaleError {
    #[serde(alias = "Error")]
    error: String,
}

/// Why a source gave no certificate.
enum GetterError {
    Http(HttpError),
    /// A status other than those of a certificate and of none, with the text of the error.
    Status(StatusCode, String),
    /// The answer has no usable chain and key.
    Certificate(causeway_certs::Error),
}

impl From<HttpError> for GetterError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl fmt::Display for GetterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Status(status, text) if text.is_empty() => write!(f, "found the status {}", status.as_u16()),
            Self::Status(status, text) => write!(f, "found the status {}: {text}", status.as_u16()),
            Self::Certificate(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy's documentation of `tls.get_certificate.http`: the URL is augmented with `server_name`, `signature_schemes`
    // and `cipher_suites`, lists of hexadecimal numbers; certmanagers.go adds `local_ip`, and escapes as Go's
    // `url.Values`.
    #[test]
    fn the_facts_of_a_handshake_are_in_the_query() {
        let sought = SoughtCertificate {
            server_name: Some("a.example".to_owned()),
            local: Some("::1".parse().unwrap()),
            signature_schemes: vec![0x0403, 0x0804],
            cipher_suites: vec![0x1301, 0xc02b],
        };
        let facts = "cipher_suites=1301%2Cc02b&local_ip=%3A%3A1&server_name=a.example&signature_schemes=403%2C804";
        for (url, want) in [
            ("http://c.example", format!("http://c.example?{facts}")),
            (
                "http://c.example/get?key=a%20b&server_name=x&flag#part",
                format!("http://c.example/get?key=a%20b&flag&{facts}"),
            ),
            ("http://c.example/#a?b", format!("http://c.example/?{facts}")),
        ] {
            assert_eq!(with_query(url, &sought), want);
        }
        let bare =
            SoughtCertificate { server_name: None, local: None, signature_schemes: vec![], cipher_suites: vec![] };
        assert_eq!(with_query("http://c/?", &bare), "http://c/?cipher_suites=&server_name=&signature_schemes=");
    }

    // A ClientHello may list 32,767 cipher suites.
    #[test]
    fn long_lists_are_cut() {
        let codes = vec![0x1301; 32_767];
        let sought = SoughtCertificate {
            server_name: None,
            local: None,
            signature_schemes: codes.clone(),
            cipher_suites: codes,
        };
        let url = with_query("http://c/", &sought);
        assert_eq!(url.matches("1301").count(), 2 * CODES_MAX);
    }

    #[test]
    fn the_name_of_a_source_has_no_secrets() {
        let source = CertificateGetter::Http("https://user:password@c.example/get?key=a".to_owned());
        assert_eq!(Getter::new(&source).unwrap().to_string(), "get_certificate https://c.example/get");
    }
}
