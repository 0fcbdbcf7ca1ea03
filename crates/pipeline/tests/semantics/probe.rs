//! A handler that follows its JSON and leaves a trace, and matchers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use causeway_message::{FieldMap, FieldName, FieldValue, NameRef, StatusCode};
use causeway_pipeline::body::BodyStream;
use causeway_pipeline::context::{MatcherId, VarId};
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{
    Build, BuildError, Context, Fault, Frame, Handler, IncomingBody, Matched, Matcher, Outcome, PathReach, Reach,
    Registry, Response, RoutesId, Sleep, Step, Template,
};
use causeway_testkit::TestResponse;
use serde::Deserialize;
use serde_json::Value;

pub(crate) const TRACE: NameRef<'static> = NameRef::Other("Trace");

/// A probe's JSON. `enter`, `leave` and `failed` are actions: `next`, `respond`, `abort`, `call`, `sleep`, `block`,
/// `sleep-next`, or a status code to fail with.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ProbeConfig {
    mark: String,
    enter: Option<String>,
    leave: Option<String>,
    failed: Option<String>,
    routes: Option<Value>,
    body: String,
    set_target: Option<String>,
    set_field: Option<(String, String)>,
    set_variable: Option<(String, String)>,
    interim: bool,
    take_body: bool,
    /// A placeholder to set, and its template.
    set_slot: Option<(String, String)>,
    limit_body: Option<u64>,
    replace_body: Option<String>,
}

struct Probe {
    mark: String,
    enter: Door,
    leave: Door,
    failed: Door,
    routes: Option<RoutesId>,
    body: Arc<Template>,
    set_target: Option<String>,
    set_field: Option<(FieldName, Template)>,
    set_variable: Option<(VarId, Template)>,
    interim: bool,
    take_body: bool,
    set_slot: Option<(VarId, Template)>,
    limit_body: Option<u64>,
    replace_body: Option<String>,
}

#[derive(Clone, Copy)]
enum Door {
    /// The default of the `Handler` trait.
    Pass,
    Respond,
    Abort,
    Call,
    Sleep,
    SleepNext,
    Block,
    Next,
    Fail(StatusCode),
}

impl Door {
    fn parse(word: Option<&str>) -> Self {
        match word {
            None => Self::Pass,
            Some("respond") => Self::Respond,
            Some("abort") => Self::Abort,
            Some("call") => Self::Call,
            Some("sleep") => Self::Sleep,
            Some("sleep-next") => Self::SleepNext,
            Some("block") => Self::Block,
            Some("next") => Self::Next,
            Some(code) => {
                Self::Fail(code.parse().ok().and_then(StatusCode::new).expect("a word that the probe knows, or a code"))
            }
        }
    }
}

thread_local! {
    /// The marks of the probes whose exchange ended, in order, with the outcome.
    pub(crate) static ENDED: RefCell<Vec<(String, Outcome)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_handler("probe", make);
    registry.register_matcher("field", |value, build| {
        let (name, want): (String, String) = build.parse(value)?;
        Ok(Box::new(HasField(FieldName::parse(&name).expect("a name"), want)))
    });
    registry.register_matcher("sleep", |value, build| {
        let (answer, reach): (Value, Option<String>) = build.parse(value)?;
        Ok(Box::new(Sleepy { id: build.allocate_matcher_id(), answer: answer.as_bool(), host: reach }))
    });
    registry.register_matcher("text", |value, build| {
        let (text, want): (String, String) = build.parse(value)?;
        Ok(Box::new(Text(build.template(&text), want)))
    });
    registry.register_matcher("hosts", |value, build| Ok(Box::new(Hosts(build.parse(value)?))));
    registry.register_matcher("paths", |value, build| Ok(Box::new(Paths(build.parse(value)?))));
    registry.register_matcher("fault", |value, build| Ok(Box::new(Faulty(build.parse(value)?))));
    registry
}

fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: ProbeConfig = build.parse_module(value)?;
    // Before the nested routes, as the proxy builds its headers before its `handle_response`.
    let set_variable = written.set_variable.map(|(name, text)| (build.allocate_variable(&name), build.template(&text)));
    let routes = written.routes.map(|routes| build.routes(&routes)).transpose()?;
    Ok(Box::new(Probe {
        enter: Door::parse(written.enter.as_deref()),
        leave: Door::parse(written.leave.as_deref()),
        failed: Door::parse(written.failed.as_deref()),
        routes,
        body: Arc::new(build.template_keeping_unknown(&written.body)),
        set_target: written.set_target,
        set_field: written.set_field.map(|(name, v)| (FieldName::parse(&name).expect("a name"), build.template(&v))),
        set_variable,
        interim: written.interim,
        take_body: written.take_body,
        set_slot: written.set_slot.map(|(name, text)| (build.allocate_slot(&name), build.template(&text))),
        limit_body: written.limit_body,
        replace_body: written.replace_body,
        mark: written.mark,
    }))
}

impl Probe {
    fn go(&self, door: Door, cx: &mut Context, pass: Step) -> Step {
        match door {
            Door::Pass => pass,
            Door::Next => Step::Next,
            Door::Abort => Step::Abort,
            Door::Fail(status) => Step::Fail(Fault::from_status(status)),
            Door::Call => Step::Run(self.routes.expect("routes to call")),
            Door::Respond => self.respond(cx),
            Door::Sleep | Door::SleepNext => {
                let worker = Rc::clone(cx.worker());
                let until = worker.now() + Duration::from_secs(1);
                let body = Arc::clone(&self.body);
                let continues = matches!(door, Door::SleepNext);
                cx.wait(Sleep::until(worker, until), move |cx, ()| {
                    trace(cx, "slept", "");
                    if continues {
                        Step::Next
                    } else {
                        Step::Respond(Response::chunk(StatusCode::OK, cx.render(&body)))
                    }
                })
            }
            Door::Block => match offload(&**cx.worker(), Work::of(WorkKind::Blocking), || 42) {
                Err(_) => Step::Fail(Fault::busy()),
                Ok(job) => cx.wait(job, |cx, result| {
                    trace(cx, "blocked", if result == Some(42) { "42" } else { "?" });
                    Step::Next
                }),
            },
        }
    }

    fn respond(&self, cx: &mut Context) -> Step {
        Step::Respond(Response::chunk(StatusCode::OK, cx.render(&self.body)))
    }
}

impl Handler for Probe {
    fn enter(&self, cx: &mut Context) -> Step {
        trace(cx, "in", &self.mark);
        if let Some(target) = &self.set_target
            && let Err(fault) = cx.set_target(target)
        {
            return Step::Fail(fault);
        }
        if let Some((name, value)) = &self.set_field {
            let value = cx.render(value);
            let value = FieldValue::parse(value.as_slice()).expect("a value");
            cx.head_mut().fields_mut().insert(name, value);
        }
        if let Some((id, text)) = &self.set_variable {
            cx.set_variable(*id, text);
        }
        if let Some((id, text)) = &self.set_slot {
            cx.set_variable(*id, text);
        }
        if let Some(limit) = self.limit_body {
            cx.limit_body(limit);
        }
        if let Some(body) = &self.replace_body {
            cx.replace_body(cx.chunk(body.as_bytes()));
        }
        if self.interim {
            cx.push_interim(StatusCode::EARLY_HINTS, FieldMap::new());
        }
        if self.take_body {
            let text_of_body = cx.take_body().map_or_else(|| "no body".to_owned(), read);
            trace(cx, &text_of_body, &self.mark);
        }
        self.go(self.enter, cx, Step::Next)
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        trace(cx, "out", &self.mark);
        self.go(self.leave, cx, Step::Respond(response))
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        trace(cx, "failed", &self.mark);
        self.go(self.failed, cx, Step::Fail(fault))
    }

    fn end(&self, _cx: &Context, outcome: &Outcome) {
        ENDED.with_borrow_mut(|ended| {
            if ended.len() < 100 {
                ended.push((self.mark.clone(), *outcome));
            }
        });
    }
}

/// Reads the available part of a body; returns its length, and whether it is complete.
fn read(mut body: IncomingBody) -> String {
    let mut poll_cx = PollContext::from_waker(Waker::noop());
    let mut bytes = 0;
    loop {
        match body.poll_frame(&mut poll_cx) {
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => bytes += chunk.len(),
            Poll::Ready(Some(Ok(Frame::Trailers(_)))) => {}
            Poll::Ready(Some(Err(fault))) => return format!("body of {bytes} {fault:?}"),
            Poll::Ready(None) => return format!("body of {bytes}"),
            Poll::Pending => return format!("body of {bytes} and more"),
        }
    }
}

fn trace(cx: &mut Context, text_of_body: &str, mark: &str) {
    let mut text = [0; 48];
    let (text_of_body, mark) = (text_of_body.as_bytes(), mark.as_bytes());
    text[..text_of_body.len()].copy_from_slice(text_of_body);
    let mut len = text_of_body.len();
    if !mark.is_empty() {
        text[len] = b' ';
        text[len + 1..len + 1 + mark.len()].copy_from_slice(mark);
        len += 1 + mark.len();
    }
    cx.response_mut().append(TRACE, FieldValue::parse(&text[..len]).expect("a value"));
}

/// Returns the trace of a response: `in a, in b, out a`.
pub(crate) fn traced(answer: &TestResponse) -> String {
    answer.values("trace").collect::<Vec<_>>().join(", ")
}

struct HasField(FieldName, String);

impl Matcher for HasField {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(cx.head().fields().get(&self.0) == Some(self.1.as_bytes()))
    }
}

struct Faulty(u16);

impl Matcher for Faulty {
    fn matches(&self, _cx: &mut Context) -> Matched {
        Err(Fault::from_status(StatusCode::new(self.0).expect("a code")).into())
    }
}

/// Waits a second, then decides as configured; fails if no decision is configured.
struct Sleepy {
    id: MatcherId,
    answer: Option<bool>,
    host: Option<String>,
}

impl Matcher for Sleepy {
    fn matches(&self, cx: &mut Context) -> Matched {
        if let Some(answer) = cx.recall(self.id) {
            trace(cx, "recalled", "");
            return Ok(answer);
        }
        let worker = Rc::clone(cx.worker());
        let until = worker.now() + Duration::from_secs(1);
        let answer = self.answer.ok_or_else(|| Fault::from_status(StatusCode::BAD_GATEWAY));
        Err(cx.wait_to_match(self.id, Sleep::until(worker, until), move |_, ()| answer))
    }

    fn reach(&self) -> Reach<'_> {
        self.host.as_ref().map_or(Reach::All, |host| Reach::Hosts(vec![host]))
    }
}

struct Text(Template, String);

impl Matcher for Text {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(cx.with_rendered(&self.0, |_, text| text == self.1.as_bytes()))
    }
}

/// Matches any of these hosts, without wildcards.
struct Hosts(Vec<String>);

impl Matcher for Hosts {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().any(|host| host.eq_ignore_ascii_case(cx.host())))
    }

    fn reach(&self) -> Reach<'_> {
        Reach::Hosts(self.0.iter().map(|host| &**host).collect())
    }
}

/// Matches paths that start with any of these texts.
struct Paths(Vec<String>);

impl Matcher for Paths {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().any(|path| cx.path().starts_with(path.as_bytes())))
    }

    fn reach(&self) -> Reach<'_> {
        Reach::Paths(self.0.iter().map(|path| PathReach::Prefix(path)).collect())
    }
}
