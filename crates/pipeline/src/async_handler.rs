//! Handlers that are `async` functions of a request, for programs that embed the server. They are easier to write
//! than a [`Handler`], at the cost of a copy of the head and of the allocations of the function itself.

use std::future::{Future, poll_fn};
use std::rc::Rc;

use causeway_message::{Chunk, FieldMap, FieldValue, Head, Method, NameRef, StatusCode, names};

use crate::body::{Body, BodyError, BodyStream, Frame, IncomingBody};
use crate::context::{Client, Context};
use crate::handler::{Fault, Handler, Response, Step};
use crate::wait::ReportedWait;
use crate::worker::Worker;

const TEXT: FieldValue<'static> = FieldValue::from_static("text/plain; charset=utf-8");

/// Creates a handler from an async function. The future runs on the worker of the request, so it need not be `Send`.
/// The future must not block or compute for long (see [`offload`](crate::worker::offload)). It is dropped when the peer
/// disconnects.
///
/// ```
/// use causeway_message::StatusCode;
/// use causeway_pipeline::{Registry, async_handler};
///
/// let mut registry = Registry::default();
/// registry.register_handler("echo", |_, _| {
///     Ok(Box::new(async_handler(|mut request| async move {
///         let text = request.bytes(64 * 1024).await?;
///         Ok((StatusCode::OK, text))
///     })))
/// });
/// ```
pub fn async_handler<F, A, T>(handle: F) -> impl Handler
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Result<T, Fault>> + 'static,
    T: Into<AsyncResponse> + 'static,
{
    AsyncHandler(handle)
}

struct AsyncHandler<F>(F);

impl<F, A, T> Handler for AsyncHandler<F>
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Result<T, Fault>> + 'static,
    T: Into<AsyncResponse> + 'static,
{
    fn enter(&self, cx: &mut Context) -> Step {
        let future = (self.0)(Request::of(cx));
        cx.wait(ReportedWait::new(future), |cx, response| match response {
            Ok(response) => response.into().respond(cx),
            Err(fault) => Step::Fail(fault),
        })
    }
}

/// An owned copy of a request, which outlives the context that it came from.
pub struct Request {
    head: Head,
    client: Client,
    body: Option<IncomingBody>,
    worker: Rc<dyn Worker>,
}

impl Request {
    fn of(cx: &mut Context) -> Self {
        let mut head = Head::new();
        // The future is `'static`, so it cannot borrow the context's head.
        head.copy_from(cx.head());
        Self { head, client: cx.client(), body: cx.take_body(), worker: Rc::clone(cx.worker()) }
    }

    /// Returns the request head, with the changes of earlier handlers.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the request method.
    pub fn method(&self) -> Method<'_> {
        self.head.method()
    }

    /// Returns the path as sent, without percent-decoding.
    pub fn path(&self) -> &[u8] {
        self.head.path()
    }

    /// Returns the first value of a field.
    pub fn field<'a>(&self, name: impl Into<NameRef<'a>>) -> Option<&[u8]> {
        self.head.fields().get(name)
    }

    /// Returns the client: the peer, or the address that a trusted proxy reports.
    pub fn client(&self) -> Client {
        self.client
    }

    /// Returns the worker, for the time, sleeps, and blocking work.
    pub fn worker(&self) -> &Rc<dyn Worker> {
        &self.worker
    }

    /// Takes the body, to read it frame by frame; `None` if an earlier handler or an earlier call took it.
    pub fn take_body(&mut self) -> Option<IncomingBody> {
        self.body.take()
    }

    /// Reads the whole body. After an earlier call of this or of [`take_body`](Self::take_body) the result is empty.
    ///
    /// # Errors
    /// Fails if the body is incomplete or longer than `bytes_max`; the fault's status is 413, 408, 400 or 500.
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        let Some(mut body) = self.take_body() else { return Ok(bytes) };
        while let Some(frame) = poll_fn(|poll_cx| body.poll_frame(poll_cx)).await {
            match frame.map_err(Fault::from_body_error)? {
                Frame::Chunk(chunk) if bytes.len() + chunk.len() > bytes_max => {
                    return Err(Fault::from_body_error(BodyError::TooLarge));
                }
                Frame::Chunk(chunk) => bytes.extend_from_slice(chunk.as_slice()),
                Frame::Trailers(_) => {}
            }
        }
        Ok(bytes)
    }
}

/// A response with its fields. Converts from a text, a status, or a status and bytes.
pub struct AsyncResponse {
    /// The status code.
    pub status: StatusCode,
    /// Fields that replace those of their names in the response.
    pub fields: FieldMap,
    /// The content.
    pub body: Body,
}

impl AsyncResponse {
    /// Creates a response without fields or content.
    pub fn new(status: StatusCode) -> Self {
        Self { status, fields: FieldMap::new(), body: Body::Empty }
    }

    /// Appends a field.
    #[must_use]
    pub fn field<'a>(mut self, name: impl Into<NameRef<'a>>, value: FieldValue<'_>) -> Self {
        self.fields.append(name, value);
        self
    }

    /// Sets the content.
    #[must_use]
    pub fn content(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        self.body = if bytes.is_empty() { Body::Empty } else { Body::Chunk(Chunk::from(bytes)) };
        self
    }

    fn respond(self, cx: &mut Context) -> Step {
        // Remove first, then append: several values of one name in `fields` are all kept.
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

impl From<StatusCode> for AsyncResponse {
    fn from(status: StatusCode) -> Self {
        Self::new(status)
    }
}

impl From<(StatusCode, Vec<u8>)> for AsyncResponse {
    fn from((status, bytes): (StatusCode, Vec<u8>)) -> Self {
        Self::new(status).content(bytes)
    }
}

impl From<String> for AsyncResponse {
    fn from(text: String) -> Self {
        Self::new(StatusCode::OK).field(names::CONTENT_TYPE, TEXT).content(text)
    }
}

impl From<&str> for AsyncResponse {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
