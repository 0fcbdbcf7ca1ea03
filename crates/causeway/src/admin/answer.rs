//! What the API says: JSON, errors included.

use causeway_config::caddyfile::Warning;
use causeway_message::{Chunk, FieldValue, NameRef, ResponseHead, StatusCode, names};
use causeway_pipeline::{Context, Response, Step};
use serde_json::{Value, json};

use crate::server::{ChangeFault, Excerpt, LoadFault, TreeFault};

const NOSNIFF: FieldValue<'static> = FieldValue::from_static("nosniff");
const NO_STORE: FieldValue<'static> = FieldValue::from_static("no-store");
/// The rest of a page's policy stands in it.
const NO_FRAMES: FieldValue<'static> = FieldValue::from_static("frame-ancestors 'none'");

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Pem,
    /// A page of our own.
    Page,
    /// Forms of a profile, to be kept.
    Coz,
    Folded,
    Pprof,
}

impl Kind {
    fn media_type(self) -> FieldValue<'static> {
        FieldValue::from_static(match self {
            Self::Json => "application/json",
            Self::Pem => "application/pem-certificate-chain",
            Self::Page => "text/html; charset=utf-8",
            Self::Coz | Self::Folded => "text/plain; charset=utf-8",
            Self::Pprof => "application/octet-stream",
        })
    }

    fn set(self, response: &mut ResponseHead) {
        response.set(names::CONTENT_TYPE, self.media_type());
        let disposition = match self {
            Self::Json | Self::Pem => return,
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

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    etag: Option<String>,
    location: Option<String>,
    body: Vec<u8>,
    /// What the body is, where there is one.
    kind: Kind,
    /// What went wrong, for the log.
    error: Option<String>,
}

impl Answer {
    /// It was done, and there is nothing to say.
    pub(super) fn done() -> Self {
        Self { status: 200, etag: None, location: None, body: Vec::new(), kind: Kind::Json, error: None }
    }

    /// What was asked for.
    pub(super) fn json(value: &Value) -> Self {
        Self { body: format!("{value}\n").into_bytes(), ..Self::done() }
    }

    /// Certificates.
    pub(super) fn pem(text: String) -> Self {
        Self::text(text, Kind::Pem)
    }

    /// Text of some kind.
    pub(super) fn text(text: String, kind: Kind) -> Self {
        Self::octets(text.into_bytes(), kind)
    }

    /// A body of some kind.
    pub(super) fn octets(body: Vec<u8>, kind: Kind) -> Self {
        Self { body, kind, ..Self::done() }
    }

    /// A place of the configuration.
    pub(super) fn excerpt(excerpt: Excerpt) -> Self {
        Self { etag: Some(excerpt.etag), body: excerpt.json, ..Self::done() }
    }

    /// The same, elsewhere, with the same method and body (RFC 9110 §15.4.8).
    pub(super) fn elsewhere(location: String) -> Self {
        Self { status: 307, location: Some(location), ..Self::done() }
    }

    /// It was not done.
    pub(super) fn error(status: u16, words: impl Into<String>) -> Self {
        Self::error_with(status, words, &[])
    }

    /// It was not done; what the adapter had to say comes with it.
    pub(super) fn error_with(status: u16, words: impl Into<String>, warned: &[Warning]) -> Self {
        let words = words.into();
        let mut value = json!({ "error": words });
        if !warned.is_empty() {
            value["warnings"] = warnings(warned);
        }
        Self { status, error: Some(words), ..Self::json(&value) }
    }

    /// The body is larger than anything that is read.
    pub(super) fn too_large(octets_max: usize) -> Self {
        let most = match octets_max >> 20 {
            0 => format!("{} KiB", octets_max >> 10),
            mebi => format!("{mebi} MiB"),
        };
        Self::error(413, format!("reading request body: more than {most}"))
    }

    /// A change, or what was asked for, that there cannot be. Caddy's statuses: its 500 is often the client's mistake.
    pub(super) fn fault(fault: &ChangeFault) -> Self {
        let status = match fault {
            ChangeFault::UnknownId(_) | ChangeFault::Tree(TreeFault::Missing(_)) => 404,
            ChangeFault::Tree(TreeFault::Exists(_)) => 409,
            ChangeFault::Changed => 412,
            ChangeFault::NoId | ChangeFault::BadIfMatch(_) | ChangeFault::Load(LoadFault::Ids(_)) => 400,
            ChangeFault::Load(LoadFault::Stopping) => 503,
            _ => 500,
        };
        Self::error(status, fault.to_string())
    }

    /// The same of a request that only reads: there Caddy says 400.
    pub(super) fn fault_of_read(fault: &ChangeFault) -> Self {
        match fault {
            ChangeFault::Tree(fault) => Self::error(400, fault.to_string()),
            other => Self::fault(other),
        }
    }

    /// An operator wants to know of every change that was not made, and of everybody who was not let in.
    fn log(&self, cx: &Context) {
        let (method, path) = (cx.head().method(), cx.head().target().path());
        let (status, peer) = (self.status, cx.arrival().peer);
        match &self.error {
            Some(error) if !method.is_safe() || status == 403 => {
                let error = on_one_line(error);
                tracing::warn!("admin API: {} {path} from {peer}: {status}: {error}", method.as_str());
            }
            _ => tracing::debug!("admin API: {} {path} from {peer}: {status}", method.as_str()),
        }
    }

    /// Its status, and what went wrong.
    #[cfg(test)]
    pub(super) fn said(&self) -> (u16, &str) {
        (self.status, self.error.as_deref().unwrap_or_default())
    }

    pub(super) fn step(self, cx: &mut Context) -> Step {
        self.log(cx);
        let response = cx.response_mut();
        if !self.body.is_empty() {
            self.kind.set(response);
        }
        let mut set = |name: NameRef<'_>, value: &Option<String>| {
            // An entity tag holds the path, which may be what no field can hold.
            if let Some(value) = value.as_ref().and_then(|value| FieldValue::parse(value.as_bytes())) {
                response.set(name, value);
            }
        };
        set(names::ETAG.into(), &self.etag);
        set(names::LOCATION.into(), &self.location);
        let status = StatusCode::new(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Step::Respond(Response::chunk(status, Chunk::from(self.body)))
    }
}

/// Text on one line, so that nobody forges another one.
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

/// Warnings as Caddy lists them.
pub(super) fn warnings(warnings: &[Warning]) -> Value {
    let list = warnings
        .iter()
        .map(|warning| json!({ "file": &*warning.at.file, "line": warning.at.line, "message": warning.message }));
    list.collect()
}
