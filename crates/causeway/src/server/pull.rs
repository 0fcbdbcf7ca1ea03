//! Pulls configurations from another server: `admin.config.load`.
//!
//! ```text
//!            ┌─────────── failed, refused or unchanged ───────────┐
//!            ▼                                                    │
//!  load_delay ──► request, repeated for a moment ──► adapt ──► load ──► the new configuration's own `load`, if any
//! ```
//! Without `load_delay` the request is a part of the load of the configuration that has the loader: if it fails, that
//! configuration is refused.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_acme::http::{HttpClient, HttpError, HttpRequest, HttpResponse, Method, REQUEST_TIMEOUT, without_secrets};
use causeway_config::caddyfile::Directives;
use causeway_config::plan::{CertificateFiles, ConfigPull, HttpLoader, LoaderCredentials, PlanError};
use causeway_engine::certificate::{CertifiedKey, certified_key};
use causeway_pipeline::BuildError;
use causeway_pipeline::build::Problem;
use tokio::task::AbortHandle;

use super::Environment;
use super::blocking::blocking;
use super::control::{CONFIG_BYTES_MAX, ConfigurationNumber, Control, PulledLoad};
use crate::document::{AdaptedDocument, Document, Language, LanguageError};

/// Attempts of one pull, and the pause between two; Caddy's numbers.
const ATTEMPTS_MAX: usize = 10;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);
/// No attempt begins later than this after the first: a server that lets each attempt time out gets one.
const ATTEMPTS_FOR: Duration = Duration::from_secs(5);
/// The shortest pause between two pulls, so that a unit forgotten in `load_delay` does not flood a server.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// The reason why a server has no configuration for this one.
#[derive(Debug)]
#[non_exhaustive]
pub enum PullError {
    /// The file of the client's certificate or key cannot be used: the reason.
    Credentials(PathBuf, String),
    /// The server's identity has no certificate yet.
    NoIdentity,
    /// The request could not be sent, or its response is not complete.
    Exchange(HttpError),
    /// A status that comes with no configuration.
    Status(u16),
    /// The response selects no configuration adapter.
    Language(LanguageError),
    /// The response is empty.
    Empty,
    /// The response is not UTF-8.
    NotUtf8,
    /// The response is JSON, but not an object.
    NotAnObject,
    /// The response is not in its language: the reason, with its place.
    Document(String),
    /// Adapting the response failed inside the server; its thread has reported the panic.
    Panicked(String),
    /// A pulled configuration pulls another one at once.
    Recursive,
}

impl PullError {
    /// Whether another attempt may succeed a moment later.
    fn is_transient(&self) -> bool {
        match self {
            Self::Exchange(HttpError::Exchange(_) | HttpError::Timeout(_)) => true,
            // As in Caddy.
            Self::Status(status) => !(200..500).contains(status),
            _ => false,
        }
    }
}

impl fmt::Display for PullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(path, why) => write!(f, "{}: {why}", path.display()),
            Self::NoIdentity => f.write_str("the server's identity has no certificate yet"),
            Self::Exchange(error) => error.fmt(f),
            Self::Status(status @ 300..400) => {
                write!(f, "found status {status}, expected a configuration: redirects are not followed")
            }
            Self::Status(status) => write!(f, "found status {status}, expected a configuration"),
            Self::Language(unknown) => unknown.fmt(f),
            Self::Empty => f.write_str("found an empty response, expected a configuration"),
            Self::NotUtf8 => f.write_str("found bytes that are not UTF-8, expected a configuration"),
            Self::NotAnObject => f.write_str("found JSON that is not an object, expected a configuration"),
            Self::Document(message) | Self::Panicked(message) => f.write_str(message),
            Self::Recursive => f.write_str(
                "found a `load` without `load_delay` in a pulled configuration, expected a delay: it would pull again at once",
            ),
        }
    }
}

impl std::error::Error for PullError {}

/// Everything that a configuration with a loader needs to pull another one.
#[derive(Clone)]
pub(super) struct Puller {
    loader: Arc<HttpLoader>,
    /// `None`: one pull, while the configuration is loaded.
    delay: Option<Duration>,
    /// The URL without the parts that may hold secrets.
    name: Arc<str>,
    directives: Arc<Directives>,
    environment: Environment,
    identity: Option<ServerIdentity>,
}

/// The certificates of the server's identity.
#[derive(Clone)]
pub(super) struct ServerIdentity {
    pub(super) certificates: Arc<dyn causeway_engine::Certificates>,
    /// The name of the certificate to present.
    pub(super) name: String,
}

/// A configuration that a server has sent, adapted.
pub(super) struct PulledConfig {
    document: Document,
    adapted: AdaptedDocument,
}

/// The background work of a configuration's loader. Dropping it ends the work.
pub(super) struct PullTask(AbortHandle);

impl Drop for PullTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Checks the settings of a loader, as far as the configuration's own code does not.
pub(super) fn check(pull: Option<&ConfigPull>) -> Result<(), PlanError> {
    let Some(adapter) = pull.map(|pull| &*pull.loader.adapter) else { return Ok(()) };
    if Language::by_adapter(adapter).is_some() {
        return Ok(());
    }
    let problem = Problem::Value { found: adapter.to_owned(), expected: "caddyfile or json".into() };
    Err(BuildError { path: "admin.config.load.adapter".to_owned(), problem }.into())
}

impl Puller {
    /// `identity` is for loaders that present the server's own certificate.
    pub(super) fn new(
        pull: &ConfigPull,
        directives: &Arc<Directives>,
        environment: &Environment,
        identity: Option<ServerIdentity>,
    ) -> Self {
        Self {
            identity,
            loader: Arc::new(pull.loader.clone()),
            delay: pull.delay.map(|delay| delay.max(DELAY_MIN)),
            name: without_secrets(&pull.loader.url).into(),
            directives: Arc::clone(directives),
            environment: Arc::clone(environment),
        }
    }

    /// The server's URL, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Pulls the configuration now, if it is a part of the load.
    ///
    /// # Errors
    /// The last attempt's reason.
    pub(super) async fn pull_at_once(&self) -> Result<Option<PulledConfig>, PullError> {
        match self.delay {
            None => self.pull().await.map(Some),
            Some(_) => Ok(None),
        }
    }

    /// Whether a load of this configuration includes a pull.
    pub(super) fn is_immediate(&self) -> bool {
        self.delay.is_none()
    }

    /// Loads `pulled`, or else pulls again and again, for the configuration of this number. Must run in the server's
    /// runtime.
    pub(super) fn start(self, pulled: Option<PulledConfig>, number: ConfigurationNumber, control: Control) -> PullTask {
        let work = async move {
            match (pulled, self.delay) {
                (Some(pulled), _) => {
                    if let Err(message) = self.load(pulled, number, &control).await {
                        tracing::error!("{message}; keeping the configuration that pulled it");
                    }
                }
                (None, Some(delay)) => self.poll(delay, number, &control).await,
                (None, None) => {}
            }
        };
        PullTask(tokio::spawn(work).abort_handle())
    }

    /// Pulls and loads until another configuration replaces this one, which aborts the task.
    async fn poll(&self, delay: Duration, number: ConfigurationNumber, control: &Control) {
        // The last cause, so that a repeated one is logged once.
        let mut complaint = String::new();
        while !control.is_stopping() {
            tokio::time::sleep(delay).await;
            let done = match self.pull().await {
                Ok(pulled) => self.load(pulled, number, control).await,
                Err(error) => Err(format!("pulling a configuration from {}: {error}", self.name)),
            };
            match done {
                Ok(()) if complaint.is_empty() => {}
                Ok(()) => {
                    tracing::info!("{} has a configuration that can be served again", self.name);
                    complaint.clear();
                }
                Err(message) if message != complaint => {
                    tracing::error!("{message}; keeping the current configuration");
                    complaint = message;
                }
                Err(_) => {}
            }
        }
    }

    /// Loads a configuration, unless it is the running one.
    async fn load(&self, pulled: PulledConfig, number: ConfigurationNumber, control: &Control) -> Result<(), String> {
        let PulledConfig { document, mut adapted } = pulled;
        // The server logs the warnings: only it can compare this configuration with the running one, and the end of its
        // load aborts this task.
        let warnings = std::mem::take(&mut adapted.warnings);
        let load = PulledLoad { config: adapted.json.clone(), warnings, number };
        control.load_pulled(load).await.map_err(|error| document.explain_load_error(&adapted, &error))
    }

    async fn pull(&self) -> Result<PulledConfig, PullError> {
        let (loader, identity) = (Arc::clone(&self.loader), self.identity.clone());
        // The files of roots and certificates are read again each time, so that renewed ones are used.
        let client = blocking(move || client(&loader, identity.as_ref())).await.map_err(PullError::Panicked)??;
        let response = self.response(&client).await?;
        let language = match &*self.loader.adapter {
            "" => Language::by_content_type(response.header("content-type").unwrap_or_default()),
            adapter => Language::by_content_type(&format!("text/{adapter}")),
        };
        let language = language.map_err(PullError::Language)?;
        let (name, directives) = (self.name.to_string(), Arc::clone(&self.directives));
        let environment = Arc::clone(&self.environment);
        let adapt = move || adapt(name, &response, language, &directives, &environment);
        blocking(adapt).await.map_err(PullError::Panicked)?
    }

    /// Returns the first response with a status of success, after several attempts if necessary.
    async fn response(&self, client: &HttpClient) -> Result<HttpResponse, PullError> {
        let begun = Instant::now();
        let mut attempt = 1;
        loop {
            let error = match self.request() {
                Ok(request) => match client.send(request).await {
                    Ok(response) if response.status.is_success() => return Ok(response),
                    Ok(response) => PullError::Status(response.status.as_u16()),
                    Err(error) => PullError::Exchange(error),
                },
                Err(error) => PullError::Exchange(error),
            };
            if !error.is_transient() || attempt == ATTEMPTS_MAX || begun.elapsed() >= ATTEMPTS_FOR {
                return Err(error);
            }
            tracing::debug!(attempt, "pulling a configuration from {}: {error}", self.name);
            attempt += 1;
            tokio::time::sleep(ATTEMPT_PAUSE).await;
        }
    }

    fn request(&self) -> Result<HttpRequest, HttpError> {
        let HttpLoader { method, url, headers, .. } = &*self.loader;
        // The plan has checked that it is a token.
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
        let request = HttpRequest::new(method, url.clone());
        headers.iter().try_fold(request, |request, (name, value)| request.named_header(name, value.0.clone()))
    }
}

/// Makes the client of one pull. Blocks on disk.
fn client(loader: &HttpLoader, identity: Option<&ServerIdentity>) -> Result<HttpClient, PullError> {
    let credentials = match &loader.credentials {
        LoaderCredentials::Anonymous => None,
        LoaderCredentials::Identity => {
            let found = identity.and_then(|identity| identity.certificates.find(Some(&identity.name), &[], &|_| true));
            Some(found.ok_or(PullError::NoIdentity)?)
        }
        LoaderCredentials::Files(files) => Some(read(files)?),
    };
    let client = HttpClient::with_identity(&loader.roots, credentials).map_err(PullError::Exchange)?;
    Ok(client.timeout(loader.limit.unwrap_or(REQUEST_TIMEOUT)).body_bytes_max(CONFIG_BYTES_MAX))
}

/// Reads a client's certificate. Without the checks of a site's certificate, whose names matter.
fn read(files: &CertificateFiles) -> Result<Arc<CertifiedKey>, PullError> {
    let CertificateFiles { certificate, key } = files;
    let key = key.as_ref().unwrap_or(certificate);
    let bad = |path: &Path, why: &dyn fmt::Display| PullError::Credentials(path.to_owned(), why.to_string());
    let text = |path: &Path| std::fs::read(path).map_err(|error| bad(path, &error));
    let chain = causeway_pem::chain(&text(certificate)?).map_err(|error| bad(certificate, &error))?;
    let key_der = causeway_pem::key(&text(key)?).map_err(|error| bad(key, &error))?;
    certified_key(chain, key_der).map(Arc::new).map_err(|error| bad(certificate, &error))
}

/// Adapts a response. May take long, and may read the files that a Caddyfile imports.
fn adapt(
    name: String,
    response: &HttpResponse,
    language: Language,
    directives: &Directives,
    environment: &Environment,
) -> Result<PulledConfig, PullError> {
    if response.body.is_empty() {
        return Err(PullError::Empty);
    }
    let text = std::str::from_utf8(&response.body).map_err(|_| PullError::NotUtf8)?;
    let document = Document { name, text: text.to_owned(), language };
    let adapted = document.adapt(directives, &**environment);
    let mut adapted = adapted.map_err(|mistake| PullError::Document(mistake.to_string()))?;
    if !adapted.json.is_object() {
        return Err(PullError::NotAnObject);
    }
    adapted.warnings.extend(document.root_warnings(&adapted));
    Ok(PulledConfig { document, adapted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Force, LoadError, LoadOrigin, LoadRequest, Server};

    // Caddy repeats a request after a failed connection and after statuses outside of 200 to 499.
    #[test]
    fn causes_that_may_be_brief() {
        let is_transient = |status| PullError::Status(status).is_transient();
        assert_eq!([100, 301, 404, 499, 500, 503].map(is_transient), [true, false, false, false, true, true]);
        assert!(PullError::Exchange(HttpError::Timeout(REQUEST_TIMEOUT)).is_transient());
        for lasting in [
            PullError::Exchange(HttpError::TooLong(1)),
            PullError::Exchange(HttpError::Url(String::new())),
            PullError::Empty,
        ] {
            assert!(!lasting.is_transient(), "{lasting:?}");
        }
    }

    // A pull and an operator's load may end at the same time. The operator's configuration, which may not pull at all,
    // stays.
    #[tokio::test]
    async fn a_pull_of_a_replaced_configuration_is_refused() {
        let server = Server::builder().json(serde_json::json!({})).workers(1).start().await.unwrap();
        let control = server.control();
        let config = |grace: &str| serde_json::json!({ "apps": { "http": { "grace_period": grace } } });
        let pulled = |grace: &str, number| {
            let load = PulledLoad { config: config(grace), warnings: Vec::new(), number };
            control.load_pulled(load)
        };
        let first = ConfigurationNumber::default();
        let load = LoadRequest { config: config("1s"), force: Force::IfChanged, by: LoadOrigin::Peer(None) };
        // Both are in the channel before the server executes one.
        let (loaded, refused) = tokio::join!(control.load(load), pulled("2s", first));
        assert!(matches!((loaded, refused), (Ok(()), Err(LoadError::Superseded))));
        let current = async || control.read("/config/apps/http/grace_period".to_owned()).await.unwrap().json;
        assert_eq!(current().await, b"\"1s\"\n");
        pulled("3s", first.next()).await.unwrap();
        assert_eq!(current().await, b"\"3s\"\n");
        server.stop().await;
    }
}
