//! A service as a handler.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::{Context as Task, Poll, Waker};

use causeway_message::{Method, StatusCode};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, Registry, Response, StateId, Step};
use http::{Extensions, HeaderMap, Request};
use serde_json::Value;
use tower_service::Service;

use crate::answer::{self, BoxError, Length, Places};
use crate::body::{self, EdgeBody};
use crate::facts::{self, LastTls};
use crate::request::{Arena, Unspeakable};
use crate::upgrade;

/// Fields that a kept map has room for at most: twice what a browser sends, and an answer has.
const KEPT_FIELDS_MAX: usize = 64;
/// Maps that a worker keeps: as many as may be between a request and its answer.
const KEPT_MAPS_MAX: usize = 64;

/// What the edge can serve: a tower service on this room's requests. An axum `Router` is one, a tonic `Routes` is, and so is whatever
/// implements [`Service`] for [`Request<EdgeBody>`](Request).
///
/// It is cloned once for each worker, and its futures never leave that; they need not be [`Send`].
pub trait Servable:
    Service<
        Request<EdgeBody>,
        Response = http::Response<Self::Content>,
        Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        Future: 'static,
    > + Clone
    + Send
    + 'static
{
    /// The content of its answers.
    type Content: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static;
}

impl<S, B> Servable for S
where
    S: Service<Request<EdgeBody>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Content = B;
}

/// A tower service as a handler: it answers whatever reaches it.
///
/// The service's fields replace those that handlers before it set, Set-Cookie and Vary stand beside them. What the service itself fails
/// with becomes a 500, which the error routes see; content that fails under way cuts the answer short.
pub struct Edge<S: Servable> {
    desk: StateId<Desk<S>>,
    told: Told,
    kind: PhantomData<fn() -> S>,
}

/// What requests are told of their connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    ConnectInfo,
}

/// What a worker has for its calls.
pub(crate) struct Desk<S: Servable> {
    /// What others are cloned from.
    first: S,
    /// The one that is called; not there while that is under way, nor when it unwound.
    service: Cell<Option<S>>,
    arena: RefCell<Arena>,
    maps: RefCell<Vec<HeaderMap>>,
    places: Places<S::Content>,
    tls: LastTls,
}

impl<S: Servable> Edge<S> {
    /// The handler, with what each worker needs for it.
    pub fn new(service: S, build: &mut Build<'_>) -> Self {
        let service = Mutex::new(service);
        let desk = build.state(move |worker| {
            body::attend(&**worker);
            // Cloning may unwind; what was not changed by that is whole.
            Desk::new(service.lock().unwrap_or_else(PoisonError::into_inner).clone())
        });
        Self { desk, told: Told::Nothing, kind: PhantomData }
    }

    /// Puts a [`ConnectInfo`](crate::ConnectInfo) into each request's extensions; with the feature `axum`, axum's own too. It costs some
    /// allocations a request, as all extensions do.
    #[must_use]
    pub fn with_connect_info(self) -> Self {
        Self { told: Told::ConnectInfo, ..self }
    }
}

/// Lets configurations name a service; see [`handler`].
pub fn register<S: Servable>(registry: &mut Registry, name: impl Into<String>, service: S) {
    registry.handler(name, handler(service));
}

/// Makes handlers of a service, for whatever registers handlers. In a configuration one is `{"handler": "NAME"}`; with
/// `"connect_info": true` beside that its requests carry [`ConnectInfo`](crate::ConnectInfo).
pub fn handler<S: Servable>(
    service: S,
) -> impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        #[serde(default)]
        connect_info: bool,
    }
    let service = Mutex::new(service);
    move |value, build| {
        let written: Written = build.parse(value)?;
        let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let edge = Edge::new(service, build);
        Ok(Box::new(if written.connect_info { edge.with_connect_info() } else { edge }))
    }
}

impl<S: Servable> Desk<S> {
    fn new(service: S) -> Self {
        Self {
            service: Cell::new(Some(service.clone())),
            first: service,
            arena: RefCell::default(),
            maps: RefCell::default(),
            places: Places::default(),
            tls: LastTls::default(),
        }
    }

    pub(crate) fn clone_service(&self) -> S {
        self.first.clone()
    }

    /// Gives a request the exchange's head.
    fn fill(&self, told: Told, cx: &Context, request: &mut Request<EdgeBody>) -> Result<(), Unspeakable> {
        let fields = match self.maps.borrow_mut().pop() {
            Some(map) if map.capacity() >= cx.head().fields().len() => map,
            // Made of the right size at once: a map that grows moves everything. More than some 24 000 fields none holds.
            _ => HeaderMap::try_with_capacity(cx.head().fields().len()).map_err(|_| Unspeakable)?,
        };
        self.arena.borrow_mut().fill(cx.head(), fields, request)?;
        self.tell(told, cx, request.extensions_mut());
        Ok(())
    }

    /// Says of the connection what is to be said.
    #[inline]
    pub(crate) fn tell(&self, told: Told, cx: &Context, extensions: &mut Extensions) {
        if told == Told::ConnectInfo {
            facts::put(cx.arrival(), &self.tls, extensions);
        }
    }

    /// An answer's map is a later request's, without what was in it.
    fn keep(&self, mut map: HeaderMap) {
        map.clear();
        let mut maps = self.maps.borrow_mut();
        if maps.len() < KEPT_MAPS_MAX && map.capacity() <= KEPT_FIELDS_MAX {
            maps.push(map);
        }
    }

    /// Makes the pipeline's answer of the service's.
    pub(crate) fn answer(&self, cx: &mut Context, answer: http::Response<S::Content>) -> Response {
        let (parts, content) = answer.into_parts();
        let length = if cx.original().method() == Method::Head { Length::Service } else { Length::Content };
        answer::put_fields(&parts.headers, length, cx.response_mut().fields_mut());
        let body = answer::body(&parts.headers, content, &self.places);
        self.keep(parts.headers);
        Response { status: answer::status(parts.status), body }
    }
}

impl<S: Servable> Handler for Edge<S> {
    fn enter(&self, cx: &mut Context) -> Step {
        if let Some(step) = upgrade::enter(self.desk, self.told, cx) {
            return step;
        }
        let generation = Rc::clone(cx.generation());
        let desk = generation.state(self.desk);
        let mut request = Request::new(match cx.take_body() {
            Some(body) => EdgeBody::new(body),
            None => EdgeBody::empty(),
        });
        if desk.fill(self.told, cx, &mut request).is_err() {
            return Step::Fail(Fault::status(StatusCode::BAD_REQUEST));
        }
        let mut service = desk.service.take().unwrap_or_else(|| desk.clone_service());
        let id = self.desk;
        let then = move |cx: &mut Context, answer: Result<http::Response<S::Content>, S::Error>| match answer {
            Ok(answer) => {
                let generation = Rc::clone(cx.generation());
                Step::Respond(generation.state(id).answer(cx, answer))
            }
            Err(error) => failed(error.into()),
        };
        // Mostly a service is ready; whoever it would wake is known only once the exchange waits.
        match service.poll_ready(&mut Task::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                let answer = service.call(request);
                desk.service.set(Some(service));
                cx.wait(answer, then)
            }
            Poll::Ready(Err(error)) => failed(error.into()),
            // It belongs to this exchange now, and so does its place in whatever queue there is.
            Poll::Pending => cx.wait(when_ready(service, request), then),
        }
    }
}

pub(crate) async fn when_ready<S: Servable>(
    mut service: S,
    request: Request<EdgeBody>,
) -> Result<http::Response<S::Content>, S::Error> {
    poll_fn(|task| service.poll_ready(task)).await?;
    service.call(request).await
}

/// The service's own fault: 500, for the error routes.
pub(crate) fn failed(error: BoxError) -> Step {
    tracing::error!(%error, "a service failed");
    let reason = Reason::Text(error.to_string().into());
    Step::Fail(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason })
}
