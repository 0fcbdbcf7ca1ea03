//! Content of unknown length. CGI announces the length before the content (RFC 3875 §4.1.2), and php-fpm reads no more
//! than that, so such content is read first.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};

use causeway_message::{Chunk, StatusCode};
use causeway_pipeline::{BodyStream as _, Context, Fault, Frame, IncomingBody, Reason, Step};

use super::super::Local;
use super::super::carriage::Carriage;

/// The longest content of unknown length in bytes. Longer content is answered with 411.
// DEVIATES Caddy: its limit is 4095 bytes, unless `request_buffers` sets another.
const UNSIZED_BYTES_MAX: usize = 64 * 1024;

/// Reads the whole content and then dispatches the request. `None` if there is no content.
pub(super) fn read(cx: &mut Context, local: Rc<Local>) -> Option<Step> {
    let body = cx.take_body()?;
    Some(cx.wait(Whole { body, read: Vec::new() }, move |cx, read| {
        match read {
            // Trailers have no place in CGI.
            Ok(content) => cx.replace_body(Chunk::from(content)),
            Err(fault) => return Step::Fail(fault),
        }
        match &local.plan.carriage {
            Carriage::FastCgi(fastcgi) => fastcgi.dispatch(cx, &local),
            Carriage::Http | Carriage::HttpGrpc(_) => unreachable!("only FastCGI reads content first"),
        }
    }))
}

/// The content read so far, copied: its frames would each pin a read block.
struct Whole {
    body: IncomingBody,
    read: Vec<u8>,
}

impl Future for Whole {
    type Output = Result<Vec<u8>, Fault>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.body.poll_frame(task)) {
                None => return Poll::Ready(Ok(std::mem::take(&mut self.read))),
                Some(Err(fault)) => return Poll::Ready(Err(Fault::body(fault))),
                Some(Ok(Frame::Chunk(chunk))) if self.read.len() + chunk.len() > UNSIZED_BYTES_MAX => {
                    return Poll::Ready(Err(no_length()));
                }
                Some(Ok(Frame::Chunk(chunk))) => self.read.extend_from_slice(chunk.as_slice()),
                Some(Ok(Frame::Trailers(_))) => {}
            }
        }
    }
}

#[cold]
pub(super) fn no_length() -> Fault {
    let words = format!(
        "the request announces no Content-Length, and its content is longer than {UNSIZED_BYTES_MAX} bytes: FastCGI \
         needs the length first"
    );
    Fault { status: StatusCode::LENGTH_REQUIRED, reason: Reason::Text(words.into()) }
}
