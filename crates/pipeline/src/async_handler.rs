//! Handlers that are `async` functions of a request, for programs that embed the server: easier to write than a [`Handler`], at
//! the price of a copied head, and of what the function itself allocates.

use std::future::{Future, poll_fn};
use std::rc::Rc;

use causeway_message::{Chunk, FieldMap, FieldValue, Head, Method, NameRef, StatusCode, names};

use crate::body::{Body, BodyFault, BodyStream, Frame, IncomingBody};
use crate::context::{Client, Context};
use crate::handler::{Fault, Handler, Response, Step};
use crate::worker::Worker;

const TEXT: FieldValue<'static> = FieldValue::from_static("text/plain; charset=utf-8");

/// Makes a handler of a function. Its future runs on the worker that has the request, so it need not be `Send`, and must not
/// compute for long (see [`run_computing`](crate::worker::run_computing)); it is dropped when the peer goes.
///
/// ```
/// use causeway_message::StatusCode;
/// use causeway_pipeline::{Registry, async_handler};
///
/// let mut registry = Registry::default();
/// registry.handler("echo", |_, _| {
///     Ok(Box::new(async_handler(|mut request| async move {
///         let text = request.octets(64 * 1024).await?;
///         Ok((StatusCode::OK, text))
///     })))
/// });
/// ```
pub fn async_handler<F, A, T>(answer: F) -> impl Handler
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Result<T, Fault>> + 'static,
    T: Into<Answer> + 'static,
{
    AsyncHandler(answer)
}

struct AsyncHandler<F>(F);

impl<F, A, T> Handler for AsyncHandler<F>
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Result<T, Fault>> + 'static,
    T: Into<Answer> + 'static,
{
    fn enter(&self, cx: &mut Context) -> Step {
        let future = (self.0)(Request::of(cx));
        cx.wait(future, |cx, answer| match answer {
            Ok(answer) => answer.into().respond(cx),
            Err(fault) => Step::Fail(fault),
        })
    }
}

/// A request that outlives the context it came in.
pub struct Request {
    head: Head,
    client: Client,
    body: Option<IncomingBody>,
    worker: Rc<dyn Worker>,
}

impl Request {
    fn of(cx: &mut Context) -> Self {
        let mut head = Head::new();
        head.copy_from(cx.head());
        Self { head, client: cx.client(), body: cx.take_body(), worker: Rc::clone(cx.worker()) }
    }

    /// Its head, as the handlers before have left it.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Its method.
    pub fn method(&self) -> Method<'_> {
        self.head.method()
    }

    /// Its path as it was sent.
    pub fn path(&self) -> &[u8] {
        self.head.path()
    }

    /// A field's first value.
    pub fn field<'a>(&self, name: impl Into<NameRef<'a>>) -> Option<&[u8]> {
        self.head.fields().get(name)
    }

    /// Who asks, behind the proxies that the server trusts.
    pub fn client(&self) -> Client {
        self.client
    }

    /// What else may be asked of the world: the time, sleep, work that blocks.
    pub fn worker(&self) -> &Rc<dyn Worker> {
        &self.worker
    }

    /// Its body, piece by piece, to the first who asks; `None` when an earlier handler took it too.
    pub fn take_body(&mut self) -> Option<IncomingBody> {
        self.body.take()
    }

    /// Its whole body.
    ///
    /// # Errors
    /// When it does not come whole, or is longer than `octets_max`: the fault that the peer is told of.
    pub async fn octets(&mut self, octets_max: usize) -> Result<Vec<u8>, Fault> {
        let mut octets = Vec::new();
        let Some(mut body) = self.take_body() else { return Ok(octets) };
        while let Some(frame) = poll_fn(|task| body.poll_frame(task)).await {
            match frame.map_err(Fault::body)? {
                Frame::Chunk(chunk) if octets.len() + chunk.len() > octets_max => {
                    return Err(Fault::body(BodyFault::TooLarge));
                }
                Frame::Chunk(chunk) => octets.extend_from_slice(chunk.as_slice()),
                Frame::Trailers(_) => {}
            }
        }
        Ok(octets)
    }
}

/// An answer with its fields; made of a text, of a status, or of a status and octets.
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// Fields that take the place of those of their names.
    pub fields: FieldMap,
    /// The content.
    pub body: Body,
}

impl Answer {
    /// An answer without fields or content.
    pub fn new(status: StatusCode) -> Self {
        Self { status, fields: FieldMap::new(), body: Body::Empty }
    }

    /// The same with a further field.
    #[must_use]
    pub fn field<'a>(mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) -> Self {
        self.fields.append(name, value);
        self
    }

    /// The same with this content.
    #[must_use]
    pub fn content(mut self, octets: impl Into<Vec<u8>>) -> Self {
        let octets = octets.into();
        self.body = if octets.is_empty() { Body::Empty } else { Body::Chunk(Chunk::from(octets)) };
        self
    }

    fn respond(self, cx: &mut Context) -> Step {
        let head = cx.response_mut();
        for (name, _) in self.fields.iter() {
            head.remove(name);
        }
        for (name, value) in self.fields.iter() {
            if let Some(value) = FieldValue::parse(value) {
                head.append(name, value);
            }
        }
        Step::Respond(Response { status: self.status, body: self.body })
    }
}

impl From<StatusCode> for Answer {
    fn from(status: StatusCode) -> Self {
        Self::new(status)
    }
}

impl From<(StatusCode, Vec<u8>)> for Answer {
    fn from((status, octets): (StatusCode, Vec<u8>)) -> Self {
        Self::new(status).content(octets)
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self::new(StatusCode::OK).field(names::CONTENT_TYPE, TEXT).content(text)
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
