//! `templates`: executes a response's content as a template in Go's `text/template` language, with Caddy's functions.
//!
//! - `request`: the exchange, copied for the thread that executes the template
//! - `data`: the same as values of the template language
//! - `functions`, `files`, `include`, `front_matter`, `markdown`: Caddy's functions; `dates`, `random`: those of
//!   Sprig for times, random values and passwords
//! - `text`: values and bytes as text
//!
//! A template runs on a thread of the pool for blocking work: it may read files and compute. It uses placeholders by
//! names that are known only when it runs, and a placeholder can be evaluated on the worker alone. So an execution that
//! meets new names ends with their list; the worker evaluates them, and the template is executed again. The same holds
//! for the responses of `httpInclude`. All executions have the same current time and the same random values, so that a
//! URI made of these is fetched once.

mod data;
mod dates;
mod files;
mod front_matter;
mod functions;
mod include;
mod markdown;
mod random;
mod request;
#[cfg(test)]
mod tests;
mod text;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::SystemTime;

use causeway_go_template::{Signature, Value};
use causeway_message::syntax::trim_ows;
use causeway_message::{Chunk, FieldMap, FieldName, FieldValue, Method, StatusCode, names};
use causeway_pipeline::body::BodyReader;
use causeway_pipeline::worker::{Work, WorkKind, Worker, offload};
use causeway_pipeline::{
    Body, BodyError, Build, BuildError, Context, FamilyId, Fault, Frame, Handler, LogLimit, Reason, Response, Step,
    Template,
};
use serde::Deserialize;

use functions::{Executed, Failure, FieldChange, MissingValues, ResolvedValues, TemplateError};
use request::Snapshot;

/// Bytes of a template; a longer response is an error.
const TEMPLATE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Executions of one response, each of which met values that were missing.
const EXECUTIONS_MAX: u32 = 32;
/// The types of content that are templates by default; Caddy's.
const TYPES: [&str; 3] = ["text/html", "text/plain", "text/markdown"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplatesConfig {
    #[serde(default)]
    file_root: String,
    mime_types: Option<Vec<String>>,
    #[serde(default)]
    delimiters: Vec<String>,
}

/// The compiled handler.
pub(crate) struct TemplatesPlan {
    /// The directory of files that templates read.
    root: Template,
    types: Box<[Box<str>]>,
    /// The delimiters of actions; empty ones are Go's.
    delimiters: [Box<str>; 2],
    /// All placeholders that modules set.
    placeholders: FamilyId,
    /// Limits the log lines about failures. Only the log has the place in the template.
    log: LogLimit,
    /// Limits the log lines about templates that are encoded.
    log_encoded: LogLimit,
}

struct Templates(Arc<TemplatesPlan>);

/// Compiles the handler from its JSON.
///
/// # Errors
/// If an option is unknown, or there are not two delimiters.
pub fn make(value: &serde_json::Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: TemplatesConfig = build.parse_module(value)?;
    let delimiters = match <[String; 2]>::try_from(written.delimiters) {
        Ok([left, right]) => [left.into(), right.into()],
        Err(none) if none.is_empty() => Default::default(),
        Err(some) => {
            let expected = "two delimiters: before an action, and after it";
            return build.at("delimiters", |build| Err(build.refuse(some.join(" "), expected)));
        }
    };
    let root = if written.file_root.is_empty() { "{http.vars.root}" } else { &written.file_root };
    let types = match written.mime_types {
        Some(types) => types.into_iter().map(Into::into).collect(),
        None => TYPES.map(Into::into).into(),
    };
    let root = build.template_of_directory(root);
    let placeholders = build.allocate_family("");
    let (log, log_encoded) = (LogLimit::new(), LogLimit::new());
    Ok(Box::new(Templates(Arc::new(TemplatesPlan { root, types, delimiters, placeholders, log, log_encoded }))))
}

impl TemplatesPlan {
    /// Returns a plan for [`page`].
    pub(crate) fn of_page(build: &mut Build<'_>) -> Arc<Self> {
        Arc::new(Self {
            root: build.template(""),
            types: Box::default(),
            delimiters: Default::default(),
            placeholders: build.allocate_family(""),
            log: LogLimit::new(),
            log_encoded: LogLimit::new(),
        })
    }

    /// Returns whether a response of this type is a template.
    fn has_type(&self, content_type: &[u8]) -> bool {
        self.types.iter().any(|wanted| memchr::memmem::find(content_type, wanted.as_bytes()).is_some())
    }
}

impl Handler for Templates {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Next
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        let fields = cx.response().fields();
        let has_type = self.0.has_type(fields.get(names::CONTENT_TYPE).unwrap_or_default());
        if matches!(response.body, Body::Tunnel(_)) || !has_type {
            return Step::Respond(response);
        }
        let is_head = cx.head().method() == Method::Head;
        let has_content = !is_head && !matches!(response.status.as_u16(), 204 | 304);
        // DEVIATES Caddy, which executes the encoded bytes: they are no text.
        if is_encoded(fields) {
            if has_content && let Some(suppressed) = self.0.log_encoded.admit() {
                let path = cx.head().target().path();
                tracing::warn!(path, suppressed, "a template is not executed: the response has a Content-Encoding");
            }
            return Step::Respond(response);
        }
        if !has_content {
            // The fields are those of a response to GET as far as they are known.
            remove_validators(cx);
            let body = if is_head { crate::unsent::content() } else { response.body };
            return Step::Respond(Response { body, ..response });
        }
        let (plan, status) = (Arc::clone(&self.0), response.status);
        let reading = ReadContent { reader: response.body.into(), worker: Rc::clone(cx.worker()), bytes: Vec::new() };
        cx.wait(reading, move |cx, read| match read {
            Ok(text) => {
                let root = cx.with_rendered(&plan.root, |_, root| root.to_vec());
                let snapshot = Arc::new(Snapshot::of(cx, root, text, None));
                Run::new(plan, snapshot, status).execute(cx)
            }
            Err(fault) => fail(cx, fault),
        })
    }

    fn reads_content(&self, content_type: &[u8]) -> bool {
        self.0.has_type(content_type)
    }
}

/// Returns whether the content has a coding. `identity` is none, though RFC 9110 §8.4.1 forbids it here.
fn is_encoded(fields: &FieldMap) -> bool {
    let codings = fields.get_all(names::CONTENT_ENCODING).flat_map(|value| value.split(|&byte| byte == b','));
    codings.map(trim_ows).any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

/// Fields and methods of the dot beside those of the exchange. They have precedence.
pub(crate) trait DotFields: Send + Sync {
    /// As [`Object::field`](causeway_go_template::Object::field).
    fn field(self: Arc<Self>, name: &str) -> Option<Value>;
    /// As [`Object::method`](causeway_go_template::Object::method).
    fn method(&self, name: &str) -> Option<Signature>;
    /// Invokes a method without parameters.
    fn invoke(&self, name: &str) -> Value;
}

/// Responds with the output of a template that is not another handler's response, such as a page for listings. `text`
/// is the template, or why there is none; `root` is the directory of files that it reads.
pub(crate) fn page(
    cx: &mut Context,
    plan: &Arc<TemplatesPlan>,
    root: Vec<u8>,
    text: Result<Vec<u8>, String>,
    dot: Arc<dyn DotFields>,
) -> Step {
    match text {
        Ok(text) => {
            let snapshot = Arc::new(Snapshot::of(cx, root, text, Some(dot)));
            Run::new(Arc::clone(plan), snapshot, StatusCode::OK).execute(cx)
        }
        Err(cause) => fail_broken(cx, plan, cause),
    }
}

/// Returns a time of a file for a template, in UTC as in Caddy.
pub(crate) fn modified_at(time: SystemTime) -> Value {
    dates::utc(time)
}

/// Reads the whole content of a response.
struct ReadContent {
    reader: BodyReader,
    worker: Rc<dyn Worker>,
    bytes: Vec<u8>,
}

impl Future for ReadContent {
    type Output = Result<Vec<u8>, Fault>;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match ready!(this.reader.poll_frame(&this.worker, poll_cx)) {
                None => return Poll::Ready(Ok(std::mem::take(&mut this.bytes))),
                Some(Ok(Frame::Chunk(chunk))) if this.bytes.len() + chunk.len() > TEMPLATE_BYTES_MAX => {
                    return Poll::Ready(Err(broken(format!("a template is longer than {TEMPLATE_BYTES_MAX} bytes"))));
                }
                Some(Ok(Frame::Chunk(chunk))) => this.bytes.extend_from_slice(chunk.as_slice()),
                Some(Ok(Frame::Trailers(_))) => {}
                Some(Err(error)) => return Poll::Ready(Err(unread(error))),
            }
        }
    }
}

/// The executions of one response's template, until no value is missing.
struct Run {
    plan: Arc<TemplatesPlan>,
    snapshot: Arc<Snapshot>,
    status: StatusCode,
    resolved: ResolvedValues,
    executions_left: u32,
}

impl Run {
    fn new(plan: Arc<TemplatesPlan>, snapshot: Arc<Snapshot>, status: StatusCode) -> Self {
        Self { plan, snapshot, status, resolved: ResolvedValues::default(), executions_left: EXECUTIONS_MAX }
    }

    /// Executes the template with the values that are resolved so far.
    fn execute(mut self, cx: &mut Context) -> Step {
        let (plan, snapshot) = (Arc::clone(&self.plan), Arc::clone(&self.snapshot));
        let resolved = std::mem::take(&mut self.resolved);
        let job = move || {
            let resolved = Arc::new(resolved);
            let executed = functions::execute(&snapshot, &resolved, [&*plan.delimiters[0], &*plan.delimiters[1]]);
            // The execution is over, so there is no other holder.
            (executed, Arc::into_inner(resolved).unwrap_or_default())
        };
        let Ok(job) = offload(&**cx.worker(), Work::of(WorkKind::Blocking), job) else {
            return fail(cx, Fault::busy());
        };
        cx.wait(job, move |cx, done| match done {
            Some((Ok(Executed::Whole { output, changes }), _)) => {
                if self.snapshot.dot.is_none() {
                    remove_validators(cx);
                }
                change_fields(cx, &changes);
                Step::Respond(Response { status: self.status, body: Body::Chunk(Chunk::from(output)) })
            }
            Some((Ok(Executed::Missing(missing)), resolved)) if self.executions_left > 0 => {
                let run = Self { resolved, executions_left: self.executions_left - 1, ..self };
                let is_body = |name: &str| matches!(name, "http.request.body" | "http.request.body_base64");
                if missing.placeholders.iter().any(|name| is_body(name)) {
                    return cx.with_body_text(|cx, read| match read {
                        Ok(()) => run.evaluate_missing(cx, missing),
                        Err(fault) => fail(cx, fault),
                    });
                }
                run.evaluate_missing(cx, missing)
            }
            Some((Ok(Executed::Missing(_)), _)) => {
                fail(cx, broken(format!("a template needs new values in each of {EXECUTIONS_MAX} executions")))
            }
            Some((Err(TemplateError { failure, changes }), _)) => {
                // As in Caddy, whose functions change the fields of the response at once.
                change_fields(cx, &changes);
                match failure {
                    Failure::Status(status) => fail(cx, Fault::from_status(status)),
                    Failure::Broken(cause) => fail_broken(cx, &self.plan, cause),
                }
            }
            // The job has panicked.
            None => fail(cx, Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
        })
    }

    /// Evaluates the values that an execution has missed, and executes the template again.
    fn evaluate_missing(mut self, cx: &mut Context, missing: MissingValues) -> Step {
        let resolved = &mut self.resolved;
        resolved.steps_used = missing.steps_used;
        for name in missing.placeholders {
            let value = cx.with_scratch(|cx, text| {
                cx.render_placeholder(self.plan.placeholders, &name, text);
                text.clone()
            });
            resolved.placeholders.insert(name, value);
        }
        if missing.includes.is_empty() {
            return self.execute(cx);
        }
        let used: usize = resolved.includes.values().flatten().map(Vec::len).sum();
        let including = include::responses(cx, missing.includes, TEMPLATE_BYTES_MAX.saturating_sub(used));
        cx.wait(including, move |cx, responses| {
            self.resolved.includes.extend(responses);
            self.execute(cx)
        })
    }
}

/// Applies a template's changes of the response's fields.
fn change_fields(cx: &mut Context, changes: &[FieldChange]) {
    for change in changes {
        let (FieldChange::Add(name, _) | FieldChange::Set(name, _) | FieldChange::Del(name)) = change;
        // The function has checked names and values.
        let Some(name) = FieldName::parse(name) else { continue };
        let head = cx.response_mut().fields_mut();
        match change {
            FieldChange::Del(_) => drop(head.remove(name.as_ref())),
            FieldChange::Add(_, value) => {
                if let Some(value) = FieldValue::parse(value) {
                    head.append(name.as_ref(), value);
                }
            }
            FieldChange::Set(_, value) => {
                if let Some(value) = FieldValue::parse(value) {
                    head.insert(name.as_ref(), value);
                }
            }
        }
    }
}

/// Caddy: the output has neither the length nor the ranges and validators of the template.
fn remove_validators(cx: &mut Context) {
    let head = cx.response_mut();
    for name in [names::CONTENT_LENGTH, names::ACCEPT_RANGES, names::LAST_MODIFIED, names::ETAG] {
        head.remove(name);
    }
}

/// Fails without the fields that describe the content of the template, as Caddy does.
fn fail(cx: &mut Context, fault: Fault) -> Step {
    remove_validators(cx);
    let head = cx.response_mut();
    for name in [names::CONTENT_TYPE, names::CONTENT_ENCODING, names::CONTENT_RANGE] {
        head.remove(name);
    }
    Step::Fail(fault)
}

/// Logs why a template cannot be executed, and fails with it.
fn fail_broken(cx: &mut Context, plan: &TemplatesPlan, cause: String) -> Step {
    if let Some(suppressed) = plan.log.admit() {
        tracing::error!(cause, suppressed, "a template fails");
    }
    fail(cx, broken(cause))
}

#[cold]
fn broken(message: String) -> Fault {
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(message.into()) }
}

#[cold]
fn unread(error: BodyError) -> Fault {
    broken(format!("reading a template: {error}"))
}
