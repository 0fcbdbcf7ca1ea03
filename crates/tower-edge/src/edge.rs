//! A tower service as a handler.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as PollContext, Poll, Waker};

use causeway_message::{Method, StatusCode};
use causeway_pipeline::{
    Build, BuildError, Context, Fault, Handler, Reason, Registry, ReportedWait, Response, StateId, Step,
};
use http::{Extensions, HeaderMap, Request};
use serde_json::Value;
use tower_service::Service;

use crate::answer::{self, BodyStorage, BoxError, Length};
use crate::body::{self, EdgeBody};
use crate::facts::{self, LastTls};
use crate::request::{Arena, ConversionError};
use crate::upgrade;

/// Fields for which a kept map has room at most: twice the number that a browser or a typical response sends.
const KEPT_FIELDS_MAX: usize = 64;
/// Maps that a worker keeps: one for each exchange between its request and its response, up to this many.
const KEPT_MAPS_MAX: usize = 64;

/// The services that the edge can serve: a tower service on requests with an [`EdgeBody`]. An axum `Router` is one,
/// and a tonic `Routes`, and every type that implements [`Service`] for [`Request<EdgeBody>`](Request).
///
/// Each worker has a service of its own and runs its futures, which never leave the worker's thread and need not be
/// [`Send`]. The service need not be either, if each worker makes its own ([`handler_with`]).
pub trait Servable:
    Service<
        Request<EdgeBody>,
        Response = http::Response<Self::Content>,
        Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        Future: 'static,
    > + Clone
    + 'static
{
    /// The body of its responses.
    type Content: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static;
}

impl<S, B> Servable for S
where
    S: Service<Request<EdgeBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Content = B;
}

/// A tower service as a handler: it responds to every request that reaches it.
///
/// The service's fields replace those that earlier handlers set, except Set-Cookie and Vary, which are added. An
/// error of the service becomes a 500 and runs the error routes. A response body that fails after the head truncates
/// the response.
pub struct Edge<S: Servable> {
    state: StateId<EdgeState<S>>,
    facts: ConnectionFacts,
    kind: PhantomData<fn() -> S>,
}

/// The connection facts in a request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFacts {
    Nothing,
    ConnectInfo,
}

/// A worker's state for a service.
pub(crate) struct EdgeState<S: Servable> {
    /// The original, for further clones.
    first: S,
    /// The clone that is called; absent during a call, while an exchange waits until it is ready, and after a panic or
    /// an error in one.
    service: Cell<Option<S>>,
    arena: RefCell<Arena>,
    maps: RefCell<Vec<HeaderMap>>,
    places: BodyStorage<S::Content>,
    tls: LastTls,
}

impl<S: Servable> Edge<S> {
    /// Creates the handler, and allots its per-worker state. `make` makes the service of a worker, given the worker's
    /// number from 0, on the worker's thread.
    pub fn new(make: impl Fn(usize) -> S + Send + Sync + 'static, build: &mut Build<'_>) -> Self {
        let state = build.allocate_state(move |worker| {
            body::spawn_body_task(&**worker);
            EdgeState::new(make(worker.number()))
        });
        Self { state, facts: ConnectionFacts::Nothing, kind: PhantomData }
    }

    /// Adds a [`ConnectInfo`](crate::ConnectInfo) to each request's extensions, and with the feature `axum` also
    /// axum's own. Costs a few allocations per request, as all extensions do.
    #[must_use]
    pub fn with_connect_info(self) -> Self {
        Self { facts: ConnectionFacts::ConnectInfo, ..self }
    }
}

/// Registers a service as a handler module; see [`handler`].
pub fn register<S: Servable + Send>(registry: &mut Registry, name: impl Into<String>, service: S) {
    registry.register_handler(name, handler(service));
}

/// Converts a service to a function that creates handlers, for [`Registry::register_handler`]. The handler's JSON is
/// `{"handler": "NAME"}`; with `"connect_info": true` its requests have [`ConnectInfo`](crate::ConnectInfo).
pub fn handler<S: Servable + Send>(
    service: S,
) -> impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static {
    handler_with(cloning(service))
}

/// As [`handler`], with a service that each worker makes itself: `make` gets the number of the worker, from 0, and runs
/// on its thread, in its runtime, before the worker accepts connections; for each handler of each configuration.
pub fn handler_with<S: Servable>(
    make: impl Fn(usize) -> S + Send + Sync + 'static,
) -> impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct EdgeConfig {
        #[serde(default)]
        connect_info: bool,
    }
    let make = Arc::new(make);
    move |value, build| {
        let written: EdgeConfig = build.parse_module(value)?;
        let make = Arc::clone(&make);
        let edge = Edge::new(move |worker| make(worker), build);
        Ok(Box::new(if written.connect_info { edge.with_connect_info() } else { edge }))
    }
}

/// Returns a function that gives each worker a clone of the service.
pub(crate) fn cloning<S: Servable + Send>(service: S) -> impl Fn(usize) -> S + Send + Sync + 'static {
    let service = Mutex::new(service);
    // A clone may panic. The lock's poison is ignored, because a clone does not change the original.
    move |_| service.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl<S: Servable> EdgeState<S> {
    fn new(service: S) -> Self {
        Self {
            service: Cell::new(Some(service.clone())),
            first: service,
            arena: RefCell::default(),
            maps: RefCell::default(),
            places: BodyStorage::default(),
            tls: LastTls::default(),
        }
    }

    pub(crate) fn clone_service(&self) -> S {
        self.first.clone()
    }

    /// Fills a request with the exchange's head.
    fn fill(
        &self,
        facts: ConnectionFacts,
        cx: &Context,
        request: &mut Request<EdgeBody>,
    ) -> Result<(), ConversionError> {
        let fields = match self.maps.borrow_mut().pop() {
            // A kept map that is too small would grow, which costs more than a new one.
            Some(map) if map.capacity() >= cx.head().fields().len() => map,
            // Allocate the final size at once: growing a map moves every entry. A map holds at most 24 576 fields.
            _ => HeaderMap::try_with_capacity(cx.head().fields().len()).map_err(|_| ConversionError)?,
        };
        self.arena.borrow_mut().fill(cx.head(), fields, request)?;
        self.insert_facts(facts, cx, request.extensions_mut());
        Ok(())
    }

    /// Adds the connection facts that the handler is configured for.
    #[inline]
    pub(crate) fn insert_facts(&self, facts: ConnectionFacts, cx: &Context, extensions: &mut Extensions) {
        if facts == ConnectionFacts::ConnectInfo {
            facts::put(cx.arrival(), &self.tls, extensions);
        }
    }

    /// Clears a response's map and keeps it for a later request.
    fn keep(&self, mut map: HeaderMap) {
        map.clear();
        let mut maps = self.maps.borrow_mut();
        if maps.len() < KEPT_MAPS_MAX && map.capacity() <= KEPT_FIELDS_MAX {
            maps.push(map);
        }
    }

    /// Converts the service's response to the pipeline's.
    pub(crate) fn answer(&self, cx: &mut Context, answer: http::Response<S::Content>) -> Response {
        let (parts, content) = answer.into_parts();
        // The original method: the request may have been rewritten, but the peer parses the response to the one it
        // sent, in a message of HTTP over gRPC the carried one.
        let asked = cx.carried().unwrap_or_else(|| cx.original());
        let length = if asked.method() == Method::Head { Length::Service } else { Length::Content };
        answer::put_fields(&parts.headers, length, cx.response_mut().fields_mut());
        let body = answer::body(&parts.headers, content, &self.places);
        self.keep(parts.headers);
        Response { status: answer::status(parts.status), body }
    }
}

impl<S: Servable> Handler for Edge<S> {
    fn enter(&self, cx: &mut Context) -> Step {
        if let Some(step) = upgrade::enter(self.state, self.facts, cx) {
            return step;
        }
        let generation = Rc::clone(cx.generation());
        let state = generation.state(self.state);
        let mut request = Request::new(match cx.take_body() {
            Some(body) => EdgeBody::new(body),
            None => EdgeBody::empty(),
        });
        if state.fill(self.facts, cx, &mut request).is_err() {
            return Step::Fail(Fault::from_status(StatusCode::BAD_REQUEST));
        }
        // Taken out for the call: if the call panics, the damaged clone is dropped and the next request gets a new
        // one.
        let mut service = state.service.take().unwrap_or_else(|| state.clone_service());
        let id = self.state;
        let then = move |cx: &mut Context, answer: Result<http::Response<S::Content>, S::Error>| match answer {
            // RFC 9110 §15.2.2: a 101 answers a request with `Upgrade`, and `upgrade` handles those.
            Ok(answer) if answer.status() == http::StatusCode::SWITCHING_PROTOCOLS => {
                failed("a 101 without an upgrade".into())
            }
            Ok(answer) => {
                let generation = Rc::clone(cx.generation());
                Step::Respond(generation.state(id).answer(cx, answer))
            }
            Err(error) => failed(error.into()),
        };
        // A service usually is ready. If it is not, `when_ready` registers the exchange's waker, which exists only
        // while it waits.
        match service.poll_ready(&mut PollContext::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                let answer = service.call(request);
                // Back before the future runs, so that other exchanges can call the clone concurrently.
                state.service.set(Some(service));
                cx.wait(ReportedWait::new(answer), then)
            }
            Poll::Ready(Err(error)) => failed(error.into()),
            // This exchange keeps the clone, which may hold a place in the service's queue.
            Poll::Pending => cx.wait(ReportedWait::new(when_ready(service, request)), then),
        }
    }
}

pub(crate) async fn when_ready<S: Servable>(
    mut service: S,
    request: Request<EdgeBody>,
) -> Result<http::Response<S::Content>, S::Error> {
    poll_fn(|poll_cx| service.poll_ready(poll_cx)).await?;
    service.call(request).await
}

/// Logs an error of the service, and returns a 500 for the error routes.
pub(crate) fn failed(error: BoxError) -> Step {
    tracing::error!(%error, "a service failed");
    let reason = Reason::Text(error.to_string().into());
    Step::Fail(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason })
}
