//! Content of unknown length. CGI announces the length before the content (RFC 3875 §4.1.2), and php-fpm reads no more
//! than that, so such content is read first.

use std::rc::Rc;

use causeway_message::{Chunk, StatusCode};
use causeway_pipeline::{Context, Fault, ReadBody, ReadEnd, Reason, Step};

use super::super::Local;
use super::super::wire_form::WireForm;

/// The longest content of unknown length in bytes, unless `request_buffers` sets another limit. Longer content is
/// answered with 411.
// DEVIATES Caddy: its limit is 4095 bytes, or one byte less than `request_buffers`.
pub(super) const UNSIZED_BYTES_MAX: usize = 64 * 1024;

/// Reads the whole content and then dispatches the request. `None` if there is no content.
pub(super) fn read(cx: &mut Context, local: Rc<Local>) -> Option<Step> {
    if let Some(bytes_max) = local.plan.request_buffers {
        // That much was read, and there is more.
        return Some(Step::Fail(no_length(bytes_max)));
    }
    let body = cx.take_body()?;
    Some(cx.wait(ReadBody::new(body, UNSIZED_BYTES_MAX), move |cx, read| {
        match read.end {
            // Trailers have no place in CGI.
            ReadEnd::Whole => cx.replace_body(Chunk::from(read.bytes)),
            ReadEnd::Longer(..) => {
                // Error routes may have another proxy.
                cx.put_body_back(read);
                return Step::Fail(no_length(UNSIZED_BYTES_MAX));
            }
            ReadEnd::Broken(error) => return Step::Fail(Fault::from_body_error(error)),
        }
        match &local.plan.wire_form {
            WireForm::FastCgi(fastcgi) => fastcgi.dispatch(cx, &local),
            WireForm::Http | WireForm::HttpGrpc(_) => unreachable!("only FastCGI reads content first"),
        }
    }))
}

#[cold]
pub(super) fn no_length(bytes_max: usize) -> Fault {
    let message = format!(
        "the request announces no Content-Length, and its content is longer than {bytes_max} bytes: FastCGI \
         needs the length first"
    );
    Fault { status: StatusCode::LENGTH_REQUIRED, reason: Reason::Text(message.into()) }
}
