//! Responses of the API. Bodies are JSON, errors included, except for certificates and profiles.

use causeway_config::caddyfile::Warning;
use causeway_message::{Chunk, FieldValue, NameRef, ResponseHead, StatusCode, names};
use causeway_pipeline::metrics::Format;
use causeway_pipeline::{Context, Metrics, Response, Step};
use serde_json::{Value, json};

use crate::server::{ChangeError, Excerpt, LoadError, TreeError};

const NOSNIFF: FieldValue<'static> = FieldValue::from_static("nosniff");
const NO_STORE: FieldValue<'static> = FieldValue::from_static("no-store");
/// The page carries the rest of its policy in a `<meta>` element, which cannot hold this directive.
const NO_FRAMES: FieldValue<'static> = FieldValue::from_static("frame-ancestors 'none'");

/// The media type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaType {
    Json,
    Pem,
    Metrics(Format),
    /// An HTML page of this server.
    Page,
    /// Profile formats, sent as attachments.
    Coz,
    Folded,
    Pprof,
}

impl MediaType {
    fn media_type(self) -> FieldValue<'static> {
        FieldValue::from_static(match self {
            Self::Json => "application/json",
            Self::Pem => "application/pem-certificate-chain",
            Self::Metrics(format) => format.media_type(),
            Self::Page => "text/html; charset=utf-8",
            Self::Coz | Self::Folded => "text/plain; charset=utf-8",
            Self::Pprof => "application/octet-stream",
        })
    }

    fn set(self, response: &mut ResponseHead) {
        response.set(names::CONTENT_TYPE, self.media_type());
        let disposition = match self {
            Self::Json | Self::Pem | Self::Metrics(_) => return,
            Self::Page => None,
            Self::Coz => Some("attachment; filename=\"profile.coz\""),
            Self::Folded => Some("attachment; filename=\"profile.folded\""),
            Self::Pprof => Some("attachment; filename=\"profile.pb.gz\""),
        };
        match disposition {
            Some(disposition) => response.set(names::CONTENT_DISPOSITION, FieldValue::from_static(disposition)),
            None => response.set(names::CONTENT_SECURITY_POLICY, NO_FRAMES),
        }
        response.set(names::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        response.set(names::CACHE_CONTROL, NO_STORE);
    }
}

/// A response before it is sent.
#[derive(Debug)]
pub(super) struct AdminResponse {
    status: u16,
    etag: Option<String>,
    location: Option<String>,
    /// The methods of the path, for 405.
    allow: Option<&'static str>,
    body: Vec<u8>,
    /// Media type of a non-empty body.
    kind: MediaType,
    /// The error message for the log.
    error: Option<String>,
}

impl AdminResponse {
    /// Status 200 without a body.
    pub(super) fn done() -> Self {
        Self {
            status: 200,
            etag: None,
            location: None,
            allow: None,
            body: Vec::new(),
            kind: MediaType::Json,
            error: None,
        }
    }

    /// Status 200 with a JSON body.
    pub(super) fn json(value: &Value) -> Self {
        Self { body: format!("{value}\n").into_bytes(), ..Self::done() }
    }

    /// Status 200 with PEM certificates.
    pub(super) fn pem(text: String) -> Self {
        Self::text(text, MediaType::Pem)
    }

    /// Status 200 with a text body.
    pub(super) fn text(text: String, kind: MediaType) -> Self {
        Self::bytes(text.into_bytes(), kind)
    }

    /// Status 200 with a body of bytes.
    pub(super) fn bytes(body: Vec<u8>, kind: MediaType) -> Self {
        Self { body, kind, ..Self::done() }
    }

    /// Status 200 with one value of the configuration and its entity tag.
    pub(super) fn excerpt(excerpt: Excerpt) -> Self {
        Self { etag: Some(excerpt.etag), body: excerpt.json, ..Self::done() }
    }

    /// Redirects to `location` with the method and body unchanged (RFC 9110 §15.4.8).
    pub(super) fn redirect(location: String) -> Self {
        Self { status: 307, location: Some(location), ..Self::done() }
    }

    /// An error response.
    pub(super) fn error(status: u16, message: impl Into<String>) -> Self {
        Self::error_with(status, message, &[])
    }

    /// The response to a method that the path does not have (RFC 9110 §15.5.6).
    pub(super) fn not_allowed(allow: &'static str) -> Self {
        Self::not_allowed_with(allow, "method not allowed")
    }

    /// As [`not_allowed`](Self::not_allowed), with another message.
    pub(super) fn not_allowed_with(allow: &'static str, message: impl Into<String>) -> Self {
        Self { allow: Some(allow), ..Self::error(405, message) }
    }

    /// An error response that includes the adapter's warnings.
    pub(super) fn error_with(status: u16, message: impl Into<String>, warned: &[Warning]) -> Self {
        let message = message.into();
        let mut value = json!({ "error": message });
        if !warned.is_empty() {
            value["warnings"] = warnings(warned);
        }
        Self { status, error: Some(message), ..Self::json(&value) }
    }

    /// Status 413: the body exceeds `bytes_max`.
    pub(super) fn too_large(bytes_max: usize) -> Self {
        let most = match bytes_max >> 20 {
            0 => format!("{} KiB", bytes_max >> 10),
            mebi => format!("{mebi} MiB"),
        };
        Self::error(413, format!("reading request body: more than {most}"))
    }

    /// The response to a failed change or lookup. The statuses are Caddy's, which uses 500 for some client mistakes.
    pub(super) fn change_error(error: &ChangeError) -> Self {
        let status = match error {
            ChangeError::UnknownId(_) | ChangeError::Tree(TreeError::Missing(_)) => 404,
            ChangeError::Tree(TreeError::Exists(_)) => 409,
            ChangeError::Changed => 412,
            ChangeError::NoId | ChangeError::BadIfMatch(_) | ChangeError::Load(LoadError::Ids(_)) => 400,
            ChangeError::Load(LoadError::Stopping) => 503,
            _ => 500,
        };
        Self::error(status, error.to_string())
    }

    /// The response to a failed read, where Caddy's status is 400.
    pub(super) fn read_error(error: &ChangeError) -> Self {
        match error {
            ChangeError::Tree(error) => Self::error(400, error.to_string()),
            other => Self::change_error(other),
        }
    }

    /// Counts the request as one to `endpoint`.
    pub(super) fn count(&self, cx: &Context, endpoint: &'static str, metrics: &Metrics) {
        metrics.count_admin_request(endpoint, cx.original().method(), self.status, self.error.is_some());
    }

    /// Whether the client, and not only its request, was refused.
    fn refuses_client(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// Logs the request. Refused changes and refused clients are warnings, so that operators see them; each change is
    /// logged with its client. Other failed reads do not concern an operator.
    fn log(&self, cx: &Context) {
        let (method, path) = (cx.head().method(), cx.head().target().path());
        let (status, peer) = (self.status, &cx.arrival().ends);
        match &self.error {
            Some(error) if !method.is_safe() || self.refuses_client() => {
                let error = on_one_line(error);
                tracing::warn!("admin API: {} {path} from {peer}: {status}: {error}", method.as_str());
            }
            None if !method.is_safe() => tracing::info!("admin API: {} {path} from {peer}: {status}", method.as_str()),
            _ => tracing::debug!("admin API: {} {path} from {peer}: {status}", method.as_str()),
        }
    }

    /// Returns the status and the error message.
    #[cfg(test)]
    pub(super) fn status_and_error(&self) -> (u16, &str) {
        (self.status, self.error.as_deref().unwrap_or_default())
    }

    pub(super) fn step(self, cx: &mut Context) -> Step {
        self.log(cx);
        let response = cx.response_mut();
        if !self.body.is_empty() {
            self.kind.set(response);
        }
        let mut set = |name: NameRef<'_>, value: &Option<String>| {
            // An entity tag contains the request's path, which may hold bytes that are invalid in a field value.
            if let Some(value) = value.as_ref().and_then(|value| FieldValue::parse(value.as_bytes())) {
                response.set(name, value);
            }
        };
        set(names::ETAG.into(), &self.etag);
        set(names::LOCATION.into(), &self.location);
        if let Some(allow) = self.allow {
            response.set(names::ALLOW, FieldValue::from_static(allow));
        }
        let status = StatusCode::new(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Step::Respond(Response::chunk(status, Chunk::from(self.body)))
    }
}

/// Escapes control characters, so that a peer cannot forge a log line.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}

/// Formats warnings as Caddy lists them.
pub(super) fn warnings(warnings: &[Warning]) -> Value {
    let list = warnings
        .iter()
        .map(|warning| json!({ "file": &*warning.at.file, "line": warning.at.line, "message": warning.message }));
    list.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_clients() {
        let refuses = |status| AdminResponse::error(status, "").refuses_client();
        assert_eq!([400, 401, 403, 404, 500].map(refuses), [false, true, true, false, false]);
    }
}
