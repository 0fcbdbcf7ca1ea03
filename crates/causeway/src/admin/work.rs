//! What is done for a request: its body read, adapted where it is no JSON, and the server asked.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{BodyFault, BodyStream as _, Frame, IncomingBody, Worker};
use serde_json::{Value, json};

use super::answer::{Answer, warnings};
use super::{Office, causal};
use crate::document::{AdaptedDocument, Document, Language};
use crate::server::{By, Change, ChangeFault, Force, Load, LoadFault, Status, Verb};

/// How large a configuration may be; 64 MiB. Beyond: 413.
const BODY_OCTETS_MAX: usize = 64 << 20;

/// What a request asks for, its body apart.
pub(super) enum Ask {
    Read { path: String },
    Change { verb: Verb, path: String, if_match: Option<String>, force: Force, by: By },
    Load { content_type: String, force: Force, by: By },
    Adapt { content_type: String },
    Authority { id: String, form: AuthorityForm },
    Stop,
    Status,
    Causal(causal::Ask),
}

impl Ask {
    /// How large its body may be.
    pub(super) fn body_octets_max(&self) -> usize {
        match self {
            Self::Causal(_) => causal::BODY_OCTETS_MAX,
            _ => BODY_OCTETS_MAX,
        }
    }
}

/// How an authority is shown.
#[derive(Clone, Copy)]
pub(super) enum AuthorityForm {
    /// All that is known of it.
    Json,
    /// Its certificates, the root last.
    Pem,
}

/// Does it. What was handed to the server is done even if nobody waits for the answer any more.
pub(super) async fn perform(
    ask: Ask,
    body: Option<IncomingBody>,
    office: Arc<Office>,
    worker: Rc<dyn Worker>,
) -> Answer {
    let desk = Desk { office, worker };
    let done = match ask {
        Ask::Read { path } => return desk.read(path).await,
        Ask::Authority { id, form } => return desk.authority(id, form).await,
        Ask::Stop => return desk.stop().await,
        Ask::Status => return desk.status().await,
        Ask::Causal(ask) => match text(body, causal::BODY_OCTETS_MAX).await {
            Ok(body) => return causal::perform(ask, body, desk.worker).await,
            Err(answer) => Err(answer),
        },
        Ask::Change { verb: Verb::Delete, path, if_match, force, by } => {
            desk.change(Change { verb: Verb::Delete, path, value: Value::Null, if_match, force, by }).await
        }
        Ask::Change { verb, path, if_match, force, by } => match desk.value(body).await {
            Ok(value) => desk.change(Change { verb, path, value, if_match, force, by }).await,
            Err(answer) => Err(answer),
        },
        Ask::Load { content_type, force, by } => desk.load(&content_type, body, force, by).await,
        Ask::Adapt { content_type } => desk.adapt(&content_type, body).await,
    };
    done.unwrap_or_else(|answer| answer)
}

struct Desk {
    office: Arc<Office>,
    worker: Rc<dyn Worker>,
}

impl Desk {
    async fn read(&self, path: String) -> Answer {
        match self.office.control.read(path).await {
            Ok(excerpt) => Answer::excerpt(excerpt),
            Err(fault) => Answer::fault_of_read(&fault),
        }
    }

    /// Caddy's answers, byte for byte but for the order of keys.
    async fn authority(&self, id: String, form: AuthorityForm) -> Answer {
        let facts = match self.office.control.authority(id.clone()).await {
            Ok(Some(facts)) => facts,
            Ok(None) => return Answer::error(404, format!("no certificate authority configured with id: {id}")),
            Err(error) => return Answer::error(500, format!("failed to provision CA {id}, {error}")),
        };
        match form {
            AuthorityForm::Pem => Answer::pem(format!("{}{}", facts.intermediate, facts.root)),
            AuthorityForm::Json => Answer::json(&json!({
                "id": facts.id,
                "name": facts.name,
                "root_common_name": facts.root_common_name,
                "intermediate_common_name": facts.intermediate_common_name,
                "root_certificate": facts.root,
                "intermediate_certificate": facts.intermediate,
            })),
        }
    }

    async fn stop(&self) -> Answer {
        tracing::info!("the admin API was told to stop the server");
        if let Some(stopping) = self.office.control.stop().await {
            stopping.ended().await;
        }
        Answer::done()
    }

    async fn status(&self) -> Answer {
        match self.office.control.status().await {
            Some(Status { connections, live_plans, panics }) => {
                Answer::json(&json!({ "connections": connections, "live_plans": live_plans, "panics": panics }))
            }
            None => Answer::fault(&ChangeFault::Load(LoadFault::Stopping)),
        }
    }

    async fn change(&self, change: Change) -> Result<Answer, Answer> {
        self.office.control.change(change).await.map(|()| Answer::done()).map_err(|fault| Answer::fault(&fault))
    }

    async fn load(
        &self,
        content_type: &str,
        body: Option<IncomingBody>,
        force: Force,
        by: By,
    ) -> Result<Answer, Answer> {
        let language = language(content_type)?;
        let text = text(body, BODY_OCTETS_MAX).await?;
        // DEVIATES from Caddy, which takes nothing for `null` and stops serving: a client whose file is missing sends nothing.
        if text.is_empty() {
            return Err(Answer::error(400, "loading config: found an empty body, expected a configuration"));
        }
        if language == Language::Json {
            let config = self.parsed(text).await?;
            let config = config.map_err(|words| Answer::error(400, format!("loading config: {words}")))?;
            let loaded = self.office.control.load(Load { config, force, by }).await;
            return loaded.map(|()| Answer::done()).map_err(|fault| {
                let status = status_of(&fault);
                Answer::error(status, format!("loading config: {}", ChangeFault::Load(fault)))
            });
        }
        let (document, adapted) = self.adapted(text, OnlyBuilt::Yes).await?;
        let warned = &adapted.warnings;
        match self.office.control.load(Load { config: adapted.json.clone(), force, by }).await {
            Ok(()) if warned.is_empty() => Ok(Answer::done()),
            Ok(()) => Ok(Answer::json(&json!({ "warnings": warnings(warned) }))),
            Err(LoadFault::Config(error)) => {
                let words = format!("loading config: {}", document.explain(&adapted, &error));
                Err(Answer::error_with(400, words, warned))
            }
            Err(fault) => Err(Answer::error_with(status_of(&fault), format!("loading config: {fault}"), warned)),
        }
    }

    async fn adapt(&self, content_type: &str, body: Option<IncomingBody>) -> Result<Answer, Answer> {
        let language = language(content_type)?;
        let text = text(body, BODY_OCTETS_MAX).await?;
        if language == Language::Json {
            let value = self.parsed(text).await?.map_err(|words| Answer::error(400, words))?;
            return Ok(Answer::json(&json!({ "result": value })));
        }
        let (_, adapted) = self.adapted(text, OnlyBuilt::No).await?;
        Ok(Answer::json(&match &*adapted.warnings {
            [] => json!({ "result": adapted.json }),
            warned => json!({ "warnings": warnings(warned), "result": adapted.json }),
        }))
    }

    /// The value that a change sets; no body is null.
    async fn value(&self, body: Option<IncomingBody>) -> Result<Value, Answer> {
        let text = text(body, BODY_OCTETS_MAX).await?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        self.parsed(text).await?.map_err(|words| Answer::error(500, words))
    }

    async fn parsed(&self, text: Vec<u8>) -> Result<Result<Value, String>, Answer> {
        let parse = move || {
            serde_json::from_slice(&text).map_err(|error| format!("decoding request body: {error}, expected JSON"))
        };
        self.blocking(parse).await
    }

    async fn adapted(&self, text: Vec<u8>, only_built: OnlyBuilt) -> Result<(Document, AdaptedDocument), Answer> {
        let Ok(text) = String::from_utf8(text) else {
            return Err(Answer::error(400, "reading request body: found octets that are not UTF-8, expected text"));
        };
        let office = Arc::clone(&self.office);
        let adapt = move || {
            let all;
            let directives = match only_built {
                OnlyBuilt::Yes => &*office.directives,
                OnlyBuilt::No => {
                    all = office.directives.unrestrained();
                    &all
                }
            };
            let document = Document { name: "Caddyfile".into(), text, language: Language::Caddyfile };
            let adapted = document.adapt(directives, &*office.environment);
            adapted.map(|adapted| (document, adapted)).map_err(|mistake| mistake.to_string())
        };
        let adapted = self.blocking(adapt).await?;
        adapted.map_err(|words| Answer::error(400, format!("adapting config using caddyfile adapter: {words}")))
    }

    /// Off the worker: a large configuration takes long, and a Caddyfile may import files.
    async fn blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
        let busy = || Answer::error(503, "the server is busy");
        let done = run_blocking(&*self.worker, job).map_err(|_| busy())?.await;
        done.ok_or_else(|| Answer::error(500, "reading the configuration failed inside the server"))
    }
}

/// Whether a directive that is known but cannot be served is refused.
#[derive(Clone, Copy)]
enum OnlyBuilt {
    Yes,
    No,
}

/// What a load that failed is answered with: as in Caddy whatever failed is the configuration's fault.
fn status_of(fault: &LoadFault) -> u16 {
    match fault {
        LoadFault::Stopping => 503,
        LoadFault::Broken => 500,
        _ => 400,
    }
}

/// The configuration's language by the request's media type: JSON unless its subtype names another adapter.
fn language(content_type: &str) -> Result<Language, Answer> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.split_once('/') {
        None if media_type.is_empty() => Ok(Language::Json),
        None => Err(Answer::error(400, "malformed Content-Type")),
        Some((_, adapter)) => Language::by_adapter(adapter)
            .ok_or_else(|| Answer::error(400, format!("unrecognized config adapter '{adapter}'"))),
    }
}

/// The whole body; beyond the bound 413.
async fn text(body: Option<IncomingBody>, octets_max: usize) -> Result<Vec<u8>, Answer> {
    let mut text = Vec::new();
    let Some(mut body) = body else { return Ok(text) };
    while let Some(frame) = poll_fn(|task| body.poll_frame(task)).await {
        match frame {
            Ok(Frame::Chunk(chunk)) if text.len() + chunk.len() > octets_max => {
                return Err(Answer::too_large(octets_max));
            }
            Ok(Frame::Chunk(chunk)) => text.extend_from_slice(chunk.as_slice()),
            Ok(Frame::Trailers(_)) => {}
            Err(fault) => {
                let words = match fault {
                    BodyFault::TimedOut => "nothing arrived for too long",
                    BodyFault::Malformed => "its framing is broken",
                    _ => "it ended before its end",
                };
                return Err(Answer::error(400, format!("reading request body: {words}")));
            }
        }
    }
    Ok(text)
}
