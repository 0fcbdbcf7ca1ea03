//! Handlers with one behaviour each. The path's first segment selects the handler, the second is its number.

use std::future::poll_fn;
use std::io::{Cursor, Write as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use causeway_message::{FieldMap, FieldValue, NameRef, StatusCode, names};
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{
    BodyError, BodyStream, Build, BuildError, Context, Fault, Frame, Handler, IncomingBody, Matched, Matcher, Outcome,
    Registry, Response, Sleep, Step, TlsFacts, Versions,
};
use futures_channel::oneshot;
use serde_json::{Value, json};

use super::bodies::{self, Echo, Failing, LastWords, Length, Panicking, Short, Silent, TestBody, Unread};
use super::forward::{calls_lent, forget, forward, forward_once};
use super::probe::{Ballast, Guard, Probe, ProbeEvent};

/// The parameters of a handler.
pub(crate) struct Given {
    pub(crate) probe: Arc<Probe>,
    pub(crate) files: PathBuf,
}

/// A handler that is one function, called on the way in.
struct Act {
    given: Given,
    act: Enter,
}

impl Handler for Act {
    fn enter(&self, cx: &mut Context) -> Step {
        (self.act)(cx, &self.given)
    }
}

/// The longest response of the handler `chunk`; created once, so that requests do not allocate it.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| super::bytes(200_000));

/// A handler's whole behaviour.
type Enter = fn(&mut Context, &Given) -> Step;

/// Every handler by its name.
const ACTS: &[(&str, Enter)] = &[
    ("fixed", |cx, _| text(cx, "fixed")),
    ("forward", |cx, _| forward(cx, number(cx), Versions::Http1, false)),
    ("forward2", |cx, _| forward(cx, number(cx), Versions::Http2, false)),
    ("forwards", |cx, _| forward(cx, number(cx), Versions::Http1, true)),
    ("forwards2", |cx, _| forward(cx, number(cx), Versions::Negotiated, true)),
    ("forward-once", |cx, _| forward_once(cx, number(cx))),
    ("forget", |cx, _| forget(cx, number(cx))),
    ("calls-lent", |cx, _| calls_lent(cx)),
    ("bytes", |cx, _| stream(cx, Length::Told)),
    ("chunks", |cx, _| stream(cx, Length::Untold)),
    ("chunk", |cx, _| {
        let chunk = cx.chunk(&PATTERN[..number(cx) as usize]);
        Step::Respond(Response::chunk(StatusCode::OK, chunk))
    }),
    ("sleep", |cx, _| sleep(cx, |cx| text(cx, "slept"))),
    ("yield", |cx, _| yield_once(cx, |cx| text(cx, "yielded"))),
    ("chain", |cx, _| sleep(cx, |cx| yield_once(cx, |cx| sleep(cx, |cx| text(cx, "chained"))))),
    ("hold", hold),
    // Keeps the worker from all other work, so that all bytes that arrive meanwhile are handled in one turn.
    ("occupy", |cx, _| {
        std::thread::sleep(Duration::from_millis(300));
        text(cx, "occupied")
    }),
    ("echo", |cx, _| {
        let body = cx.take_body().expect("taken only here");
        Step::Respond(Response::stream(StatusCode::OK, Echo(body)))
    }),
    ("collect", |cx, _| collect(cx, u64::MAX)),
    ("collect-elsewhere", collect_in_another_task),
    ("short-stream", |cx, _| {
        let chunk = cx.chunk(b"some");
        Step::Respond(Response::stream(StatusCode::OK, Short(Some(chunk))))
    }),
    ("half", |cx, _| {
        let length = cx.head().fields().content_length().ok().flatten().expect("a sized body");
        collect(cx, length / 2)
    }),
    ("first", |cx, _| collect(cx, number(cx))),
    ("too-large", |_, _| Step::Fail(Fault::from_body_error(BodyError::TooLarge))),
    ("slowly", slowly),
    ("hints", hints),
    ("switch", |cx, _| {
        if !cx.arrival().upgrade {
            return Step::Fail(Fault::from_status(StatusCode::UPGRADE_REQUIRED));
        }
        let body = cx.take_body().expect("taken only here");
        cx.response_mut().set(names::UPGRADE, FieldValue::from_static("echo"));
        Step::Respond(Response::switch(Echo(body)))
    }),
    ("hold-tunnel", |cx, _| {
        let body = cx.take_body().expect("taken only here");
        cx.response_mut().set(names::UPGRADE, FieldValue::from_static("x"));
        Step::Respond(Response::switch(Unread { _body: body }))
    }),
    ("refuse-with-head", |cx, _| {
        let head = cx.head();
        let mut text = format!("{} {}\n", head.method().as_str(), head.target().as_str());
        for (name, value) in head.fields().iter() {
            text += &format!("{}: {}\n", name.as_str(), String::from_utf8_lossy(value));
        }
        Step::Respond(Response::chunk(StatusCode::FORBIDDEN, cx.chunk(text.as_bytes())))
    }),
    ("farewell", |cx, _| {
        let chunk = cx.chunk(b"farewell");
        cx.response_mut().set(names::UPGRADE, FieldValue::from_static("echo"));
        Step::Respond(Response::switch(LastWords(Some(chunk))))
    }),
    ("panic-enter", |_, _| panic!("a test's enter")),
    ("panic-wait", |cx, _| yield_once(cx, |_| panic!("a test's continuation"))),
    ("panic-stream", |cx, _| {
        let chunk = cx.chunk(b"before the panic");
        Step::Respond(Response::stream(StatusCode::OK, Panicking(Some(chunk))))
    }),
    ("fail-stream", |cx, _| {
        let chunk = cx.chunk(b"before the fault");
        Step::Respond(Response::stream(StatusCode::OK, Failing(Some(chunk))))
    }),
    ("silent-stream", |cx, _| {
        let chunk = cx.chunk(b"and no more");
        Step::Respond(Response::stream(StatusCode::OK, Silent(Some(chunk))))
    }),
    ("fail", |cx, _| {
        let status = StatusCode::new(number(cx) as u16).expect("a status");
        Step::Fail(Fault::from_status(status))
    }),
    ("empty", |cx, _| {
        let status = StatusCode::new(number(cx) as u16).expect("a status");
        Step::Respond(Response::empty(status))
    }),
    ("background", background),
    ("block", |cx, given| {
        let probe = Arc::clone(&given.probe);
        block(cx, move || probe.block())
    }),
    ("compute", |cx, _| block(cx, || ())),
    ("abort", |_, _| Step::Abort),
    ("file", |cx, given| {
        let path = given.files.join(segment(cx, 1));
        Step::Respond(Response { status: StatusCode::OK, body: bodies::file(&path) })
    }),
    ("parts", |cx, given| {
        let (head, between) = (cx.chunk(b"--head--"), cx.chunk(b"--between--"));
        let body = bodies::parts(&given.files.join(segment(cx, 1)), head, between);
        Step::Respond(Response { status: StatusCode::OK, body })
    }),
    ("burn", |cx, _| {
        let turns = number(cx);
        let sum = (0..turns).fold(0_u64, |sum, turn| std::hint::black_box(sum.rotate_left(5) ^ turn));
        std::hint::black_box(sum);
        text(cx, "burnt")
    }),
    ("drop-body", |cx, _| {
        drop(cx.take_body());
        text(cx, "dropped")
    }),
    ("drop-body-later", |cx, _| {
        let body = cx.take_body();
        yield_once(cx, move |cx| {
            drop(body);
            text(cx, "dropped")
        })
    }),
    ("whoami", |cx, _| {
        let thread = std::thread::current();
        text(cx, thread.name().unwrap_or("nameless"))
    }),
    ("plan", |cx, _| plan(cx)),
    ("tls", |cx, _| {
        let arrival = cx.arrival();
        let facts = arrival.tls.as_deref().map(|facts| {
            let TlsFacts { version, cipher_suite, protocol, server_name, resumed, client_certificate, .. } = facts;
            let certificate = client_certificate.as_ref().map(|certificate| certificate.der().len());
            format!("{version} {cipher_suite} {protocol} {server_name:?} {resumed} {certificate:?}")
        });
        let facts = format!("{} {}", arrival.scheme.as_str(), facts.as_deref().unwrap_or("in the clear"));
        text(cx, &facts)
    }),
    ("outlive", |cx, given| {
        let held = given.probe.hold();
        cx.wait(held, |cx, _| plan(cx))
    }),
    ("panic-leave", |_, _| Step::Next),
];

/// Returns the names of all handlers.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|(name, _)| *name)
}

/// Returns the routes of a server with all handlers.
pub(crate) fn routes(given: &Given) -> Value {
    let with = |name: &str| json!({"handler": name, "probe": given.probe.id(), "files": given.files});
    let mut routes: Vec<Value> = names()
        .map(|name| {
            let handle = match name {
                "panic-leave" => vec![with("observe"), with("panic-on-leave"), with("fixed")],
                name => vec![with("observe"), with(name)],
            };
            json!({"match": [{"at": name}], "handle": handle, "terminal": true})
        })
        .collect();
    routes.push(json!({"handle": [with("observe"), with("lost")]}));
    Value::Array(routes)
}

/// Returns error routes that respond with the fault they handle.
pub(crate) fn errors(given: &Given) -> Value {
    json!([{"handle": [{"handler": "explain", "probe": given.probe.id(), "files": given.files}]}])
}

/// Registers all handlers as modules.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    for (name, _) in ACTS {
        registry.register_handler(*name, |value, build| {
            let name = value["handler"].as_str().unwrap_or_default();
            let act = ACTS.iter().find(|(known, _)| *known == name).expect("registered under its name").1;
            Ok(Box::new(Act { given: given(value, build)?, act }))
        });
    }
    registry.register_handler("lost", |value, build| {
        let act = |_: &mut Context, _: &Given| Step::Fail(Fault::from_status(StatusCode::NOT_FOUND));
        Ok(Box::new(Act { given: given(value, build)?, act }))
    });
    registry.register_handler("explain", |value, build| {
        let act = |cx: &mut Context, _: &Given| {
            let status = cx.fault().expect("error routes handle a fault").status;
            let mut words = *b"fault 000";
            words[6..].copy_from_slice(&digits(status));
            let chunk = cx.chunk(&words);
            Step::Respond(Response::chunk(status, chunk))
        };
        Ok(Box::new(Act { given: given(value, build)?, act }))
    });
    registry.register_handler("ballast", |value, build| {
        let probe = given(value, build)?.probe;
        build.allocate_state(move |_| Ballast::new(&probe));
        Ok(Box::new(Pass))
    });
    registry.register_handler("panic-state", |_, build| {
        // Panics on one worker of two, when the first has prepared its state.
        build.allocate_state(|_| assert_ne!(std::thread::current().name(), Some("worker-1"), "a test's state"));
        Ok(Box::new(Pass))
    });
    registry.register_handler("observe", |value, build| Ok(Box::new(Observe(given(value, build)?.probe))));
    registry.register_handler("panic-on-leave", |_, _| Ok(Box::new(PanicOnLeave)));
    registry.register_matcher("at", |value, build| match value.as_str() {
        Some(segment) => Ok(Box::new(At(segment.to_owned()))),
        None => Err(build.refuse(value.to_string(), "a path segment")),
    });
    registry
}

fn given(value: &Value, build: &Build<'_>) -> Result<Given, BuildError> {
    match (value["probe"].as_u64(), value["files"].as_str()) {
        (Some(probe), Some(files)) => Ok(Given { probe: Probe::find(probe), files: files.into() }),
        _ => Err(build.refuse(value.to_string(), "a probe's number and a directory")),
    }
}

struct At(String);

impl Matcher for At {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(segment(cx, 0) == self.0)
    }
}

/// Reports every exchange's end to the test.
struct Observe(Arc<Probe>);

impl Handler for Observe {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Next
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        // Tests that count allocations turn this off with a request field.
        if !cx.original().fields().contains(NameRef::Other("X-Unobserved")) {
            self.0.report(ProbeEvent::Ended(cx.original().target().as_str().to_owned(), *outcome));
        }
    }
}

struct Pass;

impl Handler for Pass {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Next
    }
}

struct PanicOnLeave;

impl Handler for PanicOnLeave {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Next
    }

    fn leave(&self, _cx: &mut Context, _response: Response) -> Step {
        panic!("a test's leave")
    }
}

fn segment(cx: &Context, index: usize) -> &str {
    let path = std::str::from_utf8(cx.path()).unwrap_or_default();
    // CONNECT has no path; the first label of its host is used instead.
    match path.strip_prefix('/') {
        Some(path) => path.split('/').nth(index).unwrap_or_default(),
        None => cx.head().target().as_str().split('.').nth(index).unwrap_or_default(),
    }
}

fn number(cx: &Context) -> u64 {
    segment(cx, 1).parse().unwrap_or(0)
}

fn digits(status: StatusCode) -> [u8; 3] {
    [100, 10, 1].map(|place| b'0' + (status.as_u16() / place % 10) as u8)
}

fn text(cx: &mut Context, words: &str) -> Step {
    let chunk = cx.chunk(words.as_bytes());
    Step::Respond(Response::chunk(StatusCode::OK, chunk))
}

/// Responds with the name of the listener's server in this exchange's plan.
fn plan(cx: &mut Context) -> Step {
    let generation = Rc::clone(cx.generation());
    text(cx, generation.plan().server_name(cx.arrival().server))
}

fn stream(cx: &mut Context, length: Length) -> Step {
    let stream = TestBody { worker: Rc::clone(cx.worker()), at: 0, len: number(cx), length };
    Step::Respond(Response::stream(StatusCode::OK, stream))
}

fn sleep(cx: &mut Context, then: impl FnOnce(&mut Context) -> Step + 'static) -> Step {
    let until = cx.worker().now() + Duration::from_millis(number(cx));
    let sleep = Sleep::until(Rc::clone(cx.worker()), until);
    cx.wait(sleep, move |cx, ()| then(cx))
}

fn yield_once(cx: &mut Context, then: impl FnOnce(&mut Context) -> Step + 'static) -> Step {
    let mut yielded = false;
    let once = poll_fn(move |poll_cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        poll_cx.waker().wake_by_ref();
        Poll::Pending
    });
    cx.wait(once, move |cx, ()| then(cx))
}

fn hold(cx: &mut Context, given: &Given) -> Step {
    let guard = Guard::new(&given.probe, "hold");
    let held = given.probe.hold();
    let wait = async move {
        let released = held.await.is_ok();
        guard.defuse();
        released
    };
    cx.wait(wait, |cx, released| text(cx, if released { "released" } else { "forgotten" }))
}

/// Reads at least `enough` bytes of the body and at least one frame, then responds with their number and sum.
fn collect(cx: &mut Context, enough: u64) -> Step {
    let mut body = cx.take_body().expect("taken only here");
    let (mut count, mut sum) = (0_u64, 0_u64);
    let read = poll_fn(move |poll_cx| {
        loop {
            let fault = match body.poll_frame(poll_cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => {
                    count += chunk.len() as u64;
                    sum = chunk.as_slice().iter().fold(sum, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
                    if count < enough {
                        continue;
                    }
                    None
                }
                Poll::Ready(Some(Ok(Frame::Trailers(_)))) => continue,
                Poll::Ready(Some(Err(fault))) => Some(fault),
                Poll::Ready(None) => None,
            };
            return Poll::Ready((count, sum, fault));
        }
    });
    cx.wait(read, |cx, (count, sum, fault)| match fault {
        None => {
            // Handlers must not allocate either.
            let mut words = Cursor::new([0; 64]);
            write!(words, "{count} bytes, sum {sum}").expect("two numbers are short");
            let len = words.position() as usize;
            let chunk = cx.chunk(&words.get_ref()[..len]);
            Step::Respond(Response::chunk(StatusCode::OK, chunk))
        }
        Some(BodyError::Malformed) => Step::Fail(Fault::from_status(StatusCode::BAD_REQUEST)),
        Some(BodyError::TimedOut) => Step::Fail(Fault::from_status(StatusCode::REQUEST_TIMEOUT)),
        Some(_) => Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
    })
}

/// Reads the body in a task of its own, then responds with the number of bytes.
fn collect_in_another_task(cx: &mut Context, given: &Given) -> Step {
    let mut body = cx.take_body().expect("taken only here");
    let (send, counted) = oneshot::channel();
    let held = given.probe.hold();
    cx.worker().spawn(Box::pin(async move {
        // Waits for the test.
        let _ = held.await;
        let mut count = 0;
        while let Some(Ok(frame)) = poll_fn(|poll_cx| body.poll_frame(poll_cx)).await {
            if let Frame::Chunk(chunk) = frame {
                count += chunk.len();
            }
        }
        let _ = send.send(count);
    }));
    cx.wait(counted, |cx, counted| text(cx, &format!("{} bytes", counted.expect("the task ends"))))
}

/// Returns the response of [`collect`] to a body.
pub(crate) fn collected(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    format!("{} bytes, sum {sum}", bytes.len())
}

/// Waits for the test, then reads the body frame by frame and yields before each.
fn slowly(cx: &mut Context, given: &Given) -> Step {
    async fn next(body: &mut IncomingBody) -> Option<Result<Frame, BodyError>> {
        let mut yielded = false;
        poll_fn(move |poll_cx| {
            if !std::mem::replace(&mut yielded, true) {
                poll_cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            body.poll_frame(poll_cx)
        })
        .await
    }
    let mut body = cx.take_body().expect("taken only here");
    let held = given.probe.hold();
    let read = async move {
        // If the test has ended, reading the body fails.
        let _ = held.await;
        let (mut count, mut sum) = (0_usize, 0_u64);
        while let Some(Ok(frame)) = next(&mut body).await {
            if let Frame::Chunk(chunk) = frame {
                count += chunk.len();
                sum = chunk.as_slice().iter().fold(sum, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            }
        }
        (count, sum)
    };
    cx.wait(read, |cx, (count, sum)| text(cx, &format!("{count} bytes, sum {sum}")))
}

fn hints(cx: &mut Context, _given: &Given) -> Step {
    let mut fields = FieldMap::new();
    fields.append(NameRef::Other("Link"), FieldValue::from_static("</style.css>; rel=preload"));
    cx.push_interim(StatusCode::new(103).expect("three digits"), fields);
    yield_once(cx, |cx| text(cx, "hinted"))
}

fn background(cx: &mut Context, given: &Given) -> Step {
    let (probe, held) = (Arc::clone(&given.probe), given.probe.hold());
    cx.worker().spawn(Box::pin(async move {
        if held.await.is_ok() {
            probe.report(ProbeEvent::Happened("background"));
        }
    }));
    text(cx, "begun")
}

fn block(cx: &mut Context, job: impl FnOnce() + Send + 'static) -> Step {
    match offload(&**cx.worker(), Work::of(WorkKind::Blocking), job) {
        Ok(blocking) => cx.wait(blocking, |cx, result| match result {
            Some(()) => text(cx, "blocked"),
            None => Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
        }),
        Err(_) => Step::Fail(Fault::busy()),
    }
}
