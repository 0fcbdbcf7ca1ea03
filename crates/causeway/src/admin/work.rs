//! Executes admin commands: reads the body, adapts it if it is not JSON, and passes the result to the server.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use causeway_modules::cache::{self, Lookup, Purge};
use causeway_pipeline::metrics::Format;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{BodyError, IncomingBody, ReadBody, ReadEnd, Worker};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::response::{AdminResponse, MediaType, warnings};
use super::{AdminState, causal};
use crate::document::{AdaptedDocument, Document, Language, log_warnings};
use crate::server::{
    Attempt, CONFIG_BYTES_MAX, CertificateStatus, Change, ChangeError, Force, LoadError, LoadOrigin, LoadRequest,
    Status, StopError, UpgradeError, Verb,
};

/// A command of the API, without the request's body.
pub(super) enum AdminCommand {
    Read {
        path: String,
    },
    Change {
        verb: Verb,
        path: String,
        if_match: Option<String>,
        force: Force,
        by: LoadOrigin,
    },
    /// A request that gets `response` unless its path has no object, as in Caddy, which looks up the `@id` first.
    Refused {
        path: String,
        response: AdminResponse,
    },
    Load {
        content_type: String,
        force: Force,
        by: LoadOrigin,
    },
    Adapt {
        content_type: String,
    },
    Authority {
        id: String,
        form: AuthorityForm,
    },
    Stop,
    /// `is_over_unix`: the request came over a Unix socket.
    Upgrade {
        is_over_unix: bool,
    },
    Status,
    Variables,
    Certificates,
    Upstreams,
    CacheUsage,
    Purge(Purge),
    Metrics(Format),
    Causal(causal::ProfileCommand),
}

impl AdminCommand {
    /// Returns the largest size of the command's body, in bytes.
    pub(super) fn body_bytes_max(&self) -> usize {
        match self {
            Self::Causal(_) | Self::Upgrade { .. } => causal::BODY_BYTES_MAX,
            _ => CONFIG_BYTES_MAX,
        }
    }
}

/// The body of a request for an upgrade.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpgradeConfig {
    /// The program to run; without it the server's own.
    #[serde(default)]
    binary: Option<PathBuf>,
}

/// The format of an authority's data.
#[derive(Clone, Copy)]
pub(super) enum AuthorityForm {
    /// A JSON object with all data.
    Json,
    /// The certificates in PEM, the root last.
    Pem,
}

/// Executes a command. A command that has reached the server is completed even if the client disconnects.
pub(super) async fn perform(
    command: AdminCommand,
    body: Option<IncomingBody>,
    state: Arc<AdminState>,
    worker: Rc<dyn Worker>,
) -> AdminResponse {
    let context = CommandContext { state, worker };
    let done = match command {
        AdminCommand::Read { path } => return context.read(path).await,
        AdminCommand::Refused { path, response } => match context.state.control.resolve(path).await {
            Ok(_) => Err(response),
            Err(error) => Err(AdminResponse::change_error(&error)),
        },
        AdminCommand::Authority { id, form } => return context.authority(id, form).await,
        AdminCommand::Stop => context.stop().await,
        AdminCommand::Status => return context.status(),
        AdminCommand::Variables => return context.variables(),
        AdminCommand::Certificates => return context.certificates().await,
        AdminCommand::Upstreams => return context.upstreams(),
        AdminCommand::CacheUsage => context.cache_usage().await,
        AdminCommand::Purge(which) => context.purge(which).await,
        AdminCommand::Metrics(format) => context.metrics(format).await,
        AdminCommand::Causal(command) => match read_body(body, causal::BODY_BYTES_MAX).await {
            Ok(body) => return causal::perform(command, body, context.worker).await,
            Err(response) => Err(response),
        },
        AdminCommand::Change { verb: Verb::Delete, path, if_match, force, by } => {
            context.change(Change { verb: Verb::Delete, path, value: Value::Null, if_match, force, by }).await
        }
        AdminCommand::Change { verb, path, if_match, force, by } => match context.value(body).await {
            Ok(Ok(value)) => context.change(Change { verb, path, value, if_match, force, by }).await,
            // As in Caddy, a mistake in the path or the entity tag precedes one in the body.
            Ok(Err(message)) => match context.state.control.check(path, if_match).await {
                Ok(()) => Err(AdminResponse::error(500, message)),
                Err(error) => Err(AdminResponse::change_error(&error)),
            },
            Err(response) => Err(response),
        },
        AdminCommand::Upgrade { is_over_unix } => context.upgrade(is_over_unix, body).await,
        AdminCommand::Load { content_type, force, by } => context.load(&content_type, body, force, by).await,
        AdminCommand::Adapt { content_type } => context.adapt(&content_type, body).await,
    };
    done.unwrap_or_else(|response| response)
}

struct CommandContext {
    state: Arc<AdminState>,
    worker: Rc<dyn Worker>,
}

impl CommandContext {
    async fn read(&self, path: String) -> AdminResponse {
        match self.state.control.read(path).await {
            Ok(excerpt) => AdminResponse::excerpt(excerpt),
            Err(error) => AdminResponse::read_error(&error),
        }
    }

    /// Responds byte for byte as Caddy, except for the order of keys.
    async fn authority(&self, id: String, form: AuthorityForm) -> AdminResponse {
        let facts = match self.state.control.authority(id.clone()).await {
            Ok(Some(facts)) => facts,
            Ok(None) => return AdminResponse::error(404, format!("no certificate authority configured with id: {id}")),
            Err(error) => return AdminResponse::error(500, format!("failed to provision CA {id}, {error}")),
        };
        match form {
            AuthorityForm::Pem => AdminResponse::pem(format!("{}{}", facts.intermediate, facts.root)),
            AuthorityForm::Json => AdminResponse::json(&json!({
                "id": facts.id,
                "name": facts.name,
                "root_common_name": facts.root_common_name,
                "intermediate_common_name": facts.intermediate_common_name,
                "root_certificate": facts.root,
                "intermediate_certificate": facts.intermediate,
            })),
        }
    }

    async fn stop(&self) -> Result<AdminResponse, AdminResponse> {
        tracing::info!("stopping: requested through the admin API");
        match self.state.control.stop().await {
            Ok(stopping) => stopping.ended().await,
            Err(StopError::Ending) => {}
            // The other process continues to serve.
            Err(error) => return Err(AdminResponse::error(503, error.to_string())),
        }
        Ok(AdminResponse::done())
    }

    async fn upgrade(&self, is_over_unix: bool, body: Option<IncomingBody>) -> Result<AdminResponse, AdminResponse> {
        let text = read_body(body, causal::BODY_BYTES_MAX).await?;
        let UpgradeConfig { binary } = match &*text {
            [] => UpgradeConfig::default(),
            text => {
                serde_json::from_slice(text).map_err(|error| AdminResponse::error(400, format!("body: {error}")))?
            }
        };
        if binary.is_some() && !is_over_unix {
            // Every user of the machine can connect to a port, but only those that the permission bits of the socket's
            // file admit may choose a program that runs with the server's rights.
            let message =
                "binary: expected a request over a Unix socket; over TCP the server starts its own program only";
            return Err(AdminResponse::error(403, message));
        }
        match self.state.control.upgrade(binary).await {
            Ok(process) => Ok(AdminResponse::json(&json!({ "pid": process }))),
            Err(error) => Err(AdminResponse::error(status_of_upgrade(&error), error.to_string())),
        }
    }

    async fn certificates(&self) -> AdminResponse {
        match self.state.control.certificates().await {
            Some(names) => AdminResponse::json(&names.iter().map(certificate).collect()),
            None => AdminResponse::change_error(&ChangeError::Load(LoadError::Stopping)),
        }
    }

    /// Responds as Caddy, whose order of upstreams is random.
    fn upstreams(&self) -> AdminResponse {
        let now = self.worker.now();
        let upstreams = self.state.metrics.upstreams();
        let shown = upstreams.iter().map(|upstream| {
            let mut shown = json!({
                "address": upstream.dial(),
                "num_requests": upstream.requests(),
                "fails": upstream.failures(now),
            });
            // Not in Caddy, so only if there is one.
            if let Some(phase) = upstream.breaker_phase(now) {
                shown["circuit_breaker"] = phase.as_str().into();
            }
            shown
        });
        AdminResponse::json(&shown.collect())
    }

    async fn cache_usage(&self) -> Result<AdminResponse, AdminResponse> {
        let usage = self.blocking(cache::usage).await?;
        let lookups: Map<String, Value> = Lookup::ALL
            .into_iter()
            .zip(usage.lookups)
            .map(|(lookup, count)| (lookup.as_str().to_owned(), count.into()))
            .collect();
        Ok(AdminResponse::json(&json!({
            "responses": usage.responses,
            "bytes": usage.bytes,
            "bytes_max": usage.bytes_max,
            "evicted": usage.evicted,
            "files": usage.files,
            "file_bytes": usage.file_bytes,
            "lookups": lookups,
        })))
    }

    async fn purge(&self, which: Purge) -> Result<AdminResponse, AdminResponse> {
        tracing::info!(?which, "cached responses are removed through the admin API");
        let purged = self.blocking(move || cache::purge(&which)).await?;
        Ok(AdminResponse::json(&json!({ "purged": purged.responses, "files": purged.files })))
    }

    fn status(&self) -> AdminResponse {
        self.with_status(json!({}))
    }

    /// The variables of Go's package `expvar`, as far as a program that is not in Go has them: the arguments of the
    /// process. Those of the server take the place of `memstats`.
    fn variables(&self) -> AdminResponse {
        let arguments: Vec<_> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
        self.with_status(json!({ "cmdline": arguments }))
    }

    /// Adds the server's status to these members.
    fn with_status(&self, mut members: Value) -> AdminResponse {
        let Some(Status { connections, live_plans, panics }) = self.state.control.status() else {
            return AdminResponse::change_error(&ChangeError::Load(LoadError::Stopping));
        };
        members["connections"] = json!(connections);
        members["live_plans"] = json!(live_plans);
        members["panics"] = json!(panics);
        AdminResponse::json(&members)
    }

    async fn metrics(&self, format: Format) -> Result<AdminResponse, AdminResponse> {
        let metrics = Arc::clone(&self.state.metrics);
        let text = self.blocking(move || metrics.scrape(format)).await?;
        Ok(AdminResponse::text(text, MediaType::Metrics(format)))
    }

    async fn change(&self, change: Change) -> Result<AdminResponse, AdminResponse> {
        self.state
            .control
            .change(change)
            .await
            .map(|()| AdminResponse::done())
            .map_err(|error| AdminResponse::change_error(&error))
    }

    async fn load(
        &self,
        content_type: &str,
        body: Option<IncomingBody>,
        force: Force,
        by: LoadOrigin,
    ) -> Result<AdminResponse, AdminResponse> {
        let language = language(content_type)?;
        let text = read_body(body, CONFIG_BYTES_MAX).await?;
        // DEVIATES Caddy, which treats an empty body as `null` and stops serving: a client whose file is missing
        // sends an empty body.
        if text.is_empty() {
            return Err(AdminResponse::error(400, "loading config: found an empty body, expected a configuration"));
        }
        if language == Language::Json {
            let config = self.parsed_config(text).await?;
            let config = config.map_err(|message| AdminResponse::error(400, format!("loading config: {message}")))?;
            // Once queued, the load completes even if this future is dropped.
            let loaded = self.state.control.load(LoadRequest { config, force, by }).await;
            return loaded.map(|()| AdminResponse::done()).map_err(|error| {
                let status = status_of(&error);
                AdminResponse::error(status, format!("loading config: {}", ChangeError::Load(error)))
            });
        }
        let (document, adapted) = self.adapted(text, OnlyBuilt::Yes).await?;
        let warned = &adapted.warnings;
        match self.state.control.load(LoadRequest { config: adapted.json.clone(), force, by }).await {
            Ok(()) if warned.is_empty() => Ok(AdminResponse::done()),
            Ok(()) => Ok(AdminResponse::json(&json!({ "warnings": warnings(warned) }))),
            Err(error @ (LoadError::Config(_) | LoadError::TlsPolicy(_))) => {
                let message = format!("loading config: {}", document.explain_load_error(&adapted, &error));
                Err(AdminResponse::error_with(400, message, warned))
            }
            Err(error) => Err(AdminResponse::error_with(status_of(&error), format!("loading config: {error}"), warned)),
        }
    }

    async fn adapt(&self, content_type: &str, body: Option<IncomingBody>) -> Result<AdminResponse, AdminResponse> {
        let language = language(content_type)?;
        let text = read_body(body, CONFIG_BYTES_MAX).await?;
        if language == Language::Json {
            let value = self.parsed(text).await?.map_err(|message| AdminResponse::error(400, message))?;
            return Ok(AdminResponse::json(&json!({ "result": value })));
        }
        let (_, adapted) = self.adapted(text, OnlyBuilt::No).await?;
        Ok(AdminResponse::json(&match &*adapted.warnings {
            [] => json!({ "result": adapted.json }),
            warned => json!({ "warnings": warnings(warned), "result": adapted.json }),
        }))
    }

    /// Parses the value that a change sets. An empty body means null.
    async fn value(&self, body: Option<IncomingBody>) -> Result<Result<Value, String>, AdminResponse> {
        let text = read_body(body, CONFIG_BYTES_MAX).await?;
        if text.is_empty() {
            return Ok(Ok(Value::Null));
        }
        self.parsed(text).await
    }

    async fn parsed(&self, text: Vec<u8>) -> Result<Result<Value, String>, AdminResponse> {
        self.blocking(move || json_of(&text)).await
    }

    /// As [`parsed`](Self::parsed), and logs a warning for each directory that the configuration serves files from and
    /// that cannot be read.
    async fn parsed_config(&self, text: Vec<u8>) -> Result<Result<Value, String>, AdminResponse> {
        // One job for both: the text, of up to 64 MiB, moves into the document and is never copied.
        let job = move || -> Result<Value, String> {
            let adapted = AdaptedDocument::of(json_of(&text)?);
            // The text was parsed as JSON, so it is UTF-8.
            let text = String::from_utf8(text).unwrap_or_default();
            let document = Document { name: "the loaded JSON".into(), text, language: Language::Json };
            log_warnings(&document.root_warnings(&adapted));
            Ok(adapted.json)
        };
        self.blocking(job).await
    }

    async fn adapted(
        &self,
        text: Vec<u8>,
        only_built: OnlyBuilt,
    ) -> Result<(Document, AdaptedDocument), AdminResponse> {
        let Ok(text) = String::from_utf8(text) else {
            return Err(AdminResponse::error(
                400,
                "reading request body: found bytes that are not UTF-8, expected text",
            ));
        };
        let state = Arc::clone(&self.state);
        let adapt = move || {
            let all;
            let directives = match only_built {
                OnlyBuilt::Yes => &*state.directives,
                OnlyBuilt::No => {
                    all = state.directives.with_withheld();
                    &all
                }
            };
            let document = Document { name: "Caddyfile".into(), text, language: Language::Caddyfile };
            let adapted = document.adapt(directives, &*state.environment);
            let mut adapted = adapted.map_err(|mistake| mistake.with_caddys_words())?;
            if let OnlyBuilt::Yes = only_built {
                let warnings = document.root_warnings(&adapted);
                log_warnings(&warnings);
                adapted.warnings.extend(warnings);
            }
            Ok((document, adapted))
        };
        let adapted = self.blocking(adapt).await?;
        adapted.map_err(|message: String| {
            AdminResponse::error(400, format!("adapting config using caddyfile adapter: {message}"))
        })
    }

    /// Runs `job` on the blocking pool, as it may take long or read files.
    async fn blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, AdminResponse> {
        let busy = || AdminResponse::error(503, "the server is busy");
        let done = offload(&*self.worker, Work::of(WorkKind::Blocking), job).map_err(|_| busy())?.await;
        done.ok_or_else(|| AdminResponse::error(500, "the work failed inside the server"))
    }
}

/// A name's certificate as a JSON object. Dates are in UTC (RFC 3339).
fn certificate(status: &CertificateStatus) -> Value {
    let CertificateStatus { record, attempt } = status;
    let date = |date: SystemTime| Timestamp::try_from(date).map(|date| format!("{date:.0}")).unwrap_or_default();
    let state = match (attempt, record.not_after) {
        (Some(Attempt::Failed { .. }), _) => "failed",
        // A local certificate can end shortly before the check that renews it, as when the machine was suspended.
        (None, Some(end)) if SystemTime::now() < end => "valid",
        (Some(Attempt::Running), _) | (None, _) => "obtaining",
    };
    let mut json = json!({ "name": record.name, "state": state });
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            json[key] = value;
        }
    };
    set("authority", record.authority.as_deref().map(Value::from));
    set("on_demand", record.on_demand.then_some(true.into()));
    set("not_after", record.not_after.map(|at| date(at).into()));
    set("renew_at", record.renew_at.map(|at| date(at).into()));
    if let Some(Attempt::Failed { error, failures, retry_at }) = attempt {
        set("error", Some(error.as_str().into()));
        set("failures", Some((*failures).into()));
        set("retry_at", Some(date(*retry_at).into()));
    }
    json
}

/// Parses a request's body.
fn json_of(text: &[u8]) -> Result<Value, String> {
    causeway_config::json::parse(text).map_err(|error| format!("decoding request body: {error}, expected JSON"))
}

/// Whether a directive that is known but not supported is refused.
#[derive(Clone, Copy)]
enum OnlyBuilt {
    Yes,
    No,
}

/// Returns the status of a failed upgrade. 503 invites the client to send it to the process that has taken this one's
/// place.
fn status_of_upgrade(error: &UpgradeError) -> u16 {
    match error {
        UpgradeError::Stopping => 503,
        UpgradeError::Cancelled => 409,
        _ => 500,
    }
}

/// Returns the status of a failed load. As in Caddy, most failures count as faults of the configuration.
fn status_of(error: &LoadError) -> u16 {
    match error {
        LoadError::Stopping => 503,
        LoadError::Panicked => 500,
        _ => 400,
    }
}

/// Returns the configuration's language for a media type.
fn language(content_type: &str) -> Result<Language, AdminResponse> {
    Language::by_content_type(content_type).map_err(|unknown| AdminResponse::error(400, unknown.to_string()))
}

/// Reads the whole body. Beyond `bytes_max` the error is status 413.
async fn read_body(body: Option<IncomingBody>, bytes_max: usize) -> Result<Vec<u8>, AdminResponse> {
    let Some(body) = body else { return Ok(Vec::new()) };
    let read = ReadBody::new(body, bytes_max).await;
    let message = match read.end {
        ReadEnd::Whole => return Ok(read.bytes),
        ReadEnd::Longer(..) => return Err(AdminResponse::too_large(bytes_max)),
        ReadEnd::Broken(BodyError::TimedOut) => "timed out waiting for more bytes",
        ReadEnd::Broken(BodyError::Malformed) => "malformed framing",
        ReadEnd::Broken(_) => "the body ended early",
    };
    Err(AdminResponse::error(400, format!("reading request body: {message}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use causeway_certs::NameRecord;

    use super::*;

    // The documentation of `/causeway/certificates`: a name that failed has the reason, and one without a usable
    // certificate is not `valid`.
    #[test]
    fn states_of_certificates() {
        let (now, hour) = (SystemTime::now(), Duration::from_secs(60 * 60));
        let failed = Attempt::Failed { error: "refused".to_owned(), failures: 1, retry_at: now };
        for (not_after, attempt, want) in [
            (Some(now + hour), None, "valid"),
            (Some(now - hour), None, "obtaining"),
            (None, None, "obtaining"),
            (Some(now + hour), Some(Attempt::Running), "obtaining"),
            (Some(now - hour), Some(failed), "failed"),
        ] {
            let (name, authority) = ("localhost".to_owned(), Some("local".to_owned()));
            let record = NameRecord { name, authority, not_after, renew_at: None, on_demand: false, failure: None };
            let json = certificate(&CertificateStatus { record, attempt });
            assert_eq!(json["state"], want, "{json}");
        }
    }
}
