//! A DNS provider, and the requests to its interface.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use causeway_dns::query::QueryError;
use hickory_proto::op::ResponseCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::zone::ZoneError;
use crate::http::{HttpClient, HttpError, HttpRequest, StatusCode};

/// How often a request is repeated after 429 (Too Many Requests).
const REPEATS_MAX: usize = 2;
/// The longest pause that an interface may request with 429.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The part of an interface's explanation that the log shows, in bytes.
const EXPLANATION_BYTES_MAX: usize = 300;

/// A TXT record of a challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TxtRecord {
    /// The whole name in ASCII, without the dot at its end.
    pub(crate) name: String,
    /// The zone that contains it, without the dot at its end; empty if the provider does not need it.
    pub(crate) zone: String,
    /// The text.
    pub(crate) value: String,
    /// The time to live in seconds; `None`: the provider's lowest.
    pub(crate) ttl: Option<u32>,
}

impl TxtRecord {
    /// The name relative to the zone; `@` at its apex.
    pub(crate) fn relative(&self) -> &str {
        let relative = self.name.strip_suffix(&self.zone).and_then(|rest| rest.strip_suffix('.'));
        relative.unwrap_or(if self.name == self.zone { "@" } else { &self.name })
    }

    /// The text in quotation marks, as zone files have it. The text is base64url, so nothing needs escaping.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.value)
    }

    /// The time to live, at least `least` seconds.
    pub(crate) fn ttl_from(&self, least: u32) -> u32 {
        self.ttl.unwrap_or_default().max(least)
    }
}

/// The reference by which an interface removes an added record, such as an ID. Empty if it needs none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Receipt(pub(crate) String);

/// The future of a provider's step.
pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// Writes TXT records. Calls with one [`lock_name`](Self::lock_name) never overlap within this process.
pub(crate) trait Provider: Send + Sync {
    /// The name in configurations.
    fn name(&self) -> &'static str;

    /// Adds a record and keeps other values of its name.
    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt>;

    /// Removes a record and keeps other values of its name.
    fn remove<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, receipt: &'a Receipt) -> Work<'a, ()>;

    /// Whether the record's zone must be looked up.
    fn needs_zone(&self) -> bool {
        true
    }

    /// The name of the lock for changes of a record. Records whose values replace each other have one.
    fn lock_name(&self, record: &TxtRecord) -> String {
        record.name.clone()
    }

    /// Whether a further value may replace one that is needed. Orders with one lock then run one after the other.
    fn keeps_one_value(&self) -> bool {
        false
    }
}

/// A setting of a provider is missing, unknown or invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name; empty: all of them together.
    pub setting: &'static str,
    /// The invalid value; a description, if it is a secret.
    pub found: String,
    /// A description of valid values.
    pub expected: String,
}

impl SettingError {
    pub(crate) fn new(setting: &'static str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { setting, found: found.into(), expected: expected.into() }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found '{}', expected {}", self.setting, self.found, self.expected)
    }
}

impl std::error::Error for SettingError {}

/// Reads settings into their type.
pub(crate) fn read<T: DeserializeOwned>(settings: Map<String, Value>) -> Result<T, SettingError> {
    serde_json::from_value(settings.into()).map_err(|error| SettingError::new("", error.to_string(), "its settings"))
}

/// The reason why a provider did not add or remove a record. Displays no secret.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProviderError {
    /// The interface gave no response.
    Http(HttpError),
    /// The interface answered with this error and explanation.
    Refused(StatusCode, String),
    /// The interface's answer lacks this part.
    Unexpected(&'static str),
    /// The provider has no such zone, or the credentials do not open it.
    NoZone(String),
    /// The settings have no account for this name.
    NoAccount(String),
    /// The step was not complete after this time.
    Timeout(Duration),
    /// The program could not run, or failed.
    Program(String),
    /// The DNS server's address is unknown.
    Server(ZoneError),
    /// The update could not be signed or encoded here.
    Unsigned(String),
    /// The DNS server gave no usable answer.
    NoUsableAnswer(String),
    /// The DNS server refused the update with this response code.
    Code(ResponseCode),
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Refused(status, text) => {
                let code = status.as_u16();
                write!(f, "it answered {code}")?;
                if !text.is_empty() {
                    write!(f, ": {text}")?;
                }
                match code {
                    401 | 403 => f.write_str(" (check the credentials and their permissions)"),
                    _ => Ok(()),
                }
            }
            Self::Unexpected(missing) => write!(f, "found no {missing} in its answer"),
            Self::NoZone(zone) => write!(f, "it has no zone {zone}, or the credentials do not open it"),
            Self::NoAccount(name) => write!(f, "its settings have no account for {name}"),
            Self::Timeout(timeout) => write!(f, "not done after {} s", timeout.as_secs()),
            Self::Program(error) => f.write_str(error),
            Self::Server(error) => error.fmt(f),
            Self::Unsigned(error) => write!(f, "cannot sign the update: {error}"),
            Self::NoUsableAnswer(error) => f.write_str(error),
            Self::Code(code) => {
                write!(f, "the DNS server answered {code}")?;
                match code {
                    ResponseCode::NotAuth | ResponseCode::Refused => {
                        f.write_str(" (check key_name, key_alg, key, the key's rights and both clocks)")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for ProviderError {}

impl From<QueryError> for ProviderError {
    fn from(error: QueryError) -> Self {
        Self::NoUsableAnswer(error.to_string())
    }
}

/// Sends a request and returns the body of a successful response. After 429 with a short `Retry-After` the request is
/// repeated.
pub(crate) async fn call(http: &HttpClient, request: HttpRequest) -> Result<Bytes, ProviderError> {
    let mut repeats = 0;
    loop {
        let response = http.send(request.clone()).await.map_err(ProviderError::Http)?;
        if response.status.is_success() {
            return Ok(response.body);
        }
        let pause = response.retry_after(SystemTime::now());
        match pause.filter(|pause| *pause <= PAUSE_MAX) {
            Some(pause) if response.status == StatusCode::TOO_MANY_REQUESTS && repeats < REPEATS_MAX => {
                repeats += 1;
                tokio::time::sleep(pause).await;
            }
            _ => return Err(ProviderError::Refused(response.status, explanation(&response.body))),
        }
    }
}

/// Sends a request and parses the JSON body of a successful response.
pub(crate) async fn call_json(http: &HttpClient, request: HttpRequest) -> Result<Value, ProviderError> {
    let body = call(http, request).await?;
    serde_json::from_slice(&body).map_err(|_| ProviderError::Unexpected("JSON"))
}

/// The explanation in the body of an error: the member of JSON that interfaces use for it, an element of XML, or the
/// text itself.
fn explanation(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let member = json.as_ref().and_then(|json| {
        let paths = ["/errors/0/message", "/error/message", "/message", "/error"];
        paths.iter().find_map(|path| json.pointer(path)?.as_str())
    });
    let text = member.or_else(|| super::route53::element(&text, "Message")).unwrap_or(&text);
    let mut plain: String = text.split(|char: char| char.is_control() || char == ' ').collect::<Vec<_>>().join(" ");
    if plain.len() > EXPLANATION_BYTES_MAX {
        plain.truncate(plain.floor_char_boundary(EXPLANATION_BYTES_MAX));
        plain.push('…');
    }
    plain
}

/// Percent-encodes a part of a URL, except for the unreserved characters (RFC 3986 §2.3).
pub(crate) fn encoded(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let byte = |byte: u8| if unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(byte).collect()
}
