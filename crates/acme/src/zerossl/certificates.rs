//! Certificates of ZeroSSL by its own interface instead of ACME (<https://zerossl.com/documentation/api/>).
//!
//! ```text
//!  create (certificate request) ──► file at the name's port 80 ──► verify ──► issued? ──► download
//!                │                                                   │           │
//!                └───────────────── a fault, or the order's end ─────┴───────────┴──► cancel
//! ```
//! The interface reports most errors in JSON with the status 200.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use causeway_certs::SharedStorage;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::challenge::{OpenChallenge, Published, StoredChallenge};
use crate::dns::encoded;
use crate::http::{HttpClient, HttpRequest, Method, StatusCode};
use crate::order::{CertificateRequest, ObtainedCertificate, POLL_TIMEOUT, is_chain, make_key, request_params};
use crate::{AcmeError, OtherChallenge};

/// The interface.
const BASE: &str = "https://api.zerossl.com";
/// The authority's name in storage keys, as in Caddy.
pub(crate) const STORAGE_NAME: &str = "zerossl";
/// How long the interface may take for one request: the limit of Caddy's client.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The pause before each look whether the certificate is issued, as in CertMagic.
const POLL: Duration = Duration::from_secs(5);
/// The part of the interface's explanation that the log shows, in characters.
const EXPLANATION_CHARS_MAX: usize = 300;
/// The longest content of a validation file, in bytes. Usual ones have three short lines.
const FILE_BYTES_MAX: usize = 4096;

/// An account at ZeroSSL, and the settings for certificates from it.
#[derive(Clone, PartialEq, Eq)]
pub struct ZeroSslIssuer {
    /// The key of the interface. A secret.
    pub api_key: String,
    /// How many days certificates are valid; `None`: ZeroSSL's default. It accepts few values.
    pub validity_days: Option<u32>,
    /// The base of the interface's URLs, and the pause between two polls. No configuration changes them; tests do.
    pub(crate) base: String,
    pub(crate) poll: Duration,
}

impl ZeroSslIssuer {
    /// An account with the key of its interface.
    pub fn new(api_key: String, validity_days: Option<u32>) -> Self {
        Self { api_key, validity_days, base: BASE.to_owned(), poll: POLL }
    }
}

impl fmt::Debug for ZeroSslIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZeroSslIssuer").field("validity_days", &self.validity_days).finish_non_exhaustive()
    }
}

/// A certificate as the interface describes it. Before it is issued, it has the content of the validation files.
#[derive(Deserialize)]
struct CertificateObject {
    id: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    validation: Option<Validation>,
}

#[derive(Deserialize)]
struct Validation {
    /// By name.
    #[serde(default)]
    other_methods: HashMap<String, ValidationMethods>,
}

#[derive(Deserialize)]
struct ValidationMethods {
    #[serde(default)]
    file_validation_url_http: String,
    /// The lines of the file.
    #[serde(default)]
    file_validation_content: Vec<String>,
}

#[derive(Deserialize)]
struct Bundle {
    #[serde(rename = "certificate.crt")]
    leaf: String,
    #[serde(default, rename = "ca_bundle.crt")]
    intermediates: String,
}

/// Obtains a certificate.
///
/// # Errors
/// Returns the reason why ZeroSSL issued nothing.
pub(crate) async fn obtain(
    issuer: &ZeroSslIssuer,
    wanted: CertificateRequest<'_>,
    storage: &SharedStorage,
) -> Result<ObtainedCertificate, AcmeError> {
    let http = HttpClient::new(&[])?.timeout(REQUEST_TIMEOUT);
    let interface = Interface { http, base: issuer.base.clone(), key: issuer.api_key.clone() };
    let key = make_key(wanted.key).await?;
    let request = request_params(wanted)?.serialize_request(&key)?.pem()?;
    let mut body = json!({ "certificate_domains": wanted.name, "certificate_csr": request, "strict_domains": 1 });
    if let Some(days) = issuer.validity_days {
        body["certificate_validity_days"] = days.into();
    }
    let created: CertificateObject = interface.call("create", Method::POST, "", Some(&body)).await?;
    let mut pending = Pending { interface: interface.clone(), id: Some(created.id.clone()) };
    let work = async {
        let open = present(&created, wanted.name, storage).await?;
        let issued = issue(&interface, issuer, &created.id).await;
        open.close().await;
        issued?;
        let target = format!("/{}/download/return", encoded(&created.id));
        let bundle: Bundle = interface.call("download", Method::GET, &target, None).await?;
        let separator = if bundle.leaf.ends_with('\n') { "" } else { "\n" };
        let chain = format!("{}{separator}{}", bundle.leaf, bundle.intermediates);
        if is_chain(&chain) {
            Ok(chain)
        } else {
            Err(AcmeError::Malformed("found a certificate that is not PEM".to_owned()))
        }
    };
    let done = tokio::time::timeout(2 * POLL_TIMEOUT, work).await.unwrap_or(Err(AcmeError::Timeout(2 * POLL_TIMEOUT)));
    match done {
        Ok(chain) => {
            pending.id = None;
            Ok(ObtainedCertificate { chain, key: key.serialize_pem() })
        }
        Err(error) => {
            pending.cancel().await;
            Err(error)
        }
    }
}

/// Opens the file by which ZeroSSL verifies that this server controls the name.
async fn present(created: &CertificateObject, name: &str, storage: &SharedStorage) -> Result<OpenChallenge, AcmeError> {
    let methods = created.validation.as_ref().and_then(|validation| validation.other_methods.get(name));
    let methods = methods.filter(|methods| !methods.file_validation_content.is_empty());
    let missing = |what: &str| AcmeError::Malformed(format!("found no {what} for {name}"));
    let methods = methods.ok_or_else(|| missing("validation file"))?;
    let url = &methods.file_validation_url_http;
    let path = url.strip_prefix("http://").and_then(|rest| Some(&rest[rest.find('/')?..]));
    let path = path.filter(|path| path.starts_with(crate::challenge::FILE_PREFIX));
    let path = path.ok_or_else(|| missing("http URL of its validation file"))?;
    // As in Caddy. The interface gives the lines without their ends.
    let content = methods.file_validation_content.join("\n");
    if content.len() > FILE_BYTES_MAX {
        return Err(AcmeError::Malformed(format!("found a validation file of more than {FILE_BYTES_MAX} bytes")));
    }
    let stored = StoredChallenge::file(name, url, &content);
    let published = Published::at(STORAGE_NAME, storage, stored).await;
    Ok(OpenChallenge::file(name, path, &content, published))
}

/// Has the name verified, and waits until the certificate is issued.
async fn issue(interface: &Interface, issuer: &ZeroSslIssuer, id: &str) -> Result<(), AcmeError> {
    let id = encoded(id);
    let method = json!({ "validation_method": "HTTP_CSR_HASH" });
    let verified: CertificateObject =
        interface.call("verify", Method::POST, &format!("/{id}/challenges"), Some(&method)).await?;
    let mut status = verified.status;
    let wait = async {
        loop {
            match &*status {
                "issued" => return Ok(()),
                "pending_validation" => {}
                other => {
                    let why = format!("the certificate is {}", short(other));
                    return Err(AcmeError::Unverified(why, OtherChallenge::CannotHelp));
                }
            }
            tokio::time::sleep(issuer.poll).await;
            status = interface.call::<CertificateObject>("poll", Method::GET, &format!("/{id}"), None).await?.status;
        }
    };
    tokio::time::timeout(POLL_TIMEOUT, wait).await.unwrap_or(Err(AcmeError::Timeout(POLL_TIMEOUT)))
}

/// The interface and the key for it.
#[derive(Clone)]
struct Interface {
    http: HttpClient,
    base: String,
    key: String,
}

impl Interface {
    /// Sends a request for a target below `/certificates`, and parses the response.
    ///
    /// # Errors
    /// The interface does not answer, or refuses the request.
    async fn call<T: DeserializeOwned>(
        &self,
        step: &'static str,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<T, AcmeError> {
        let url = format!("{}/certificates{target}?access_key={}", self.base, encoded(&self.key));
        let request = HttpRequest::new(method, url);
        let response = self.http.send(body.into_iter().fold(request, HttpRequest::json)).await?;
        let json: Option<Value> = serde_json::from_slice(&response.body).ok();
        let refusal = json.as_ref().filter(|json| is_refusal(json)).map(explanation);
        let why = match (refusal, json) {
            (Some(why), _) => why,
            (None, Some(json)) if response.status.is_success() => match serde_json::from_value(json) {
                Ok(parsed) => return Ok(parsed),
                Err(error) => short(&error.to_string()),
            },
            (None, _) => format!("found the status {}", response.status.as_u16()),
        };
        let error = AcmeError::ZeroSsl(step, why);
        let retry_at = response.retry_after(SystemTime::now()).map(|after| SystemTime::now().checked_add(after));
        match retry_at.flatten().filter(|_| response.status == StatusCode::TOO_MANY_REQUESTS) {
            Some(at) => Err(AcmeError::NotBefore(at, Box::new(error))),
            None => Err(error),
        }
    }
}

/// Whether this is an error: `success` is present and means "no". Its type differs between calls: `false`, 0, or a
/// text.
fn is_refusal(json: &Value) -> bool {
    match json.get("success") {
        None => false,
        Some(Value::Bool(success)) => !success,
        Some(Value::Number(number)) => number.as_i64() != Some(1),
        Some(Value::String(text)) => !["true", "1", "yes", "y"].contains(&&*text.to_ascii_lowercase()),
        Some(_) => true,
    }
}

/// The code and the type of an error, and the reasons why names could not be verified.
fn explanation(json: &Value) -> String {
    let error = json.get("error").unwrap_or(&Value::Null);
    let mut parts = Vec::new();
    if let Some(code) = error.get("code").and_then(Value::as_i64) {
        parts.push(format!("error {code}"));
    }
    parts.extend(error.get("type").and_then(Value::as_str).map(str::to_owned));
    // By name, then by URL.
    let details = error.get("details").and_then(Value::as_object).into_iter().flat_map(|names| names.values());
    for detail in details.filter_map(Value::as_object).flat_map(|urls| urls.values()) {
        let text = ["error_info", "error_slug"].iter().find_map(|key| detail.get(key)?.as_str());
        parts.extend(text.filter(|text| !text.is_empty()).map(str::to_owned));
    }
    if parts.is_empty() { "it gave no reason".to_owned() } else { short(&parts.join(": ")) }
}

/// A text of the interface as part of one line.
fn short(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(EXPLANATION_CHARS_MAX).collect()
}

/// A certificate that is created and not issued. It counts towards the account's limits until it is cancelled; dropping
/// this cancels it in the background.
struct Pending {
    interface: Interface,
    id: Option<String>,
}

impl Pending {
    async fn cancel(mut self) {
        if let Some(id) = self.id.take() {
            cancel(&self.interface, &id).await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) {
            let interface = self.interface.clone();
            runtime.spawn(async move { cancel(&interface, &id).await });
        }
    }
}

async fn cancel(interface: &Interface, id: &str) {
    let cancelled = interface.call::<Value>("cancel", Method::POST, &format!("/{}/cancel", encoded(id)), None).await;
    if let Err(error) = cancelled {
        tracing::warn!("ZeroSSL keeps the certificate {}, which was not issued: {error}", short(id));
    }
}

#[cfg(test)]
mod tests;
