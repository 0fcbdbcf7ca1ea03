//! What errors of gRPC are by HTTP.

use causeway_httpgrpc::{Code, DecodeFault, Status};
use causeway_message::StatusCode;
use causeway_pipeline::{BodyFault, Fault, Reason};

use super::super::exchange::Asked;

/// Why a call brought no response.
#[derive(Debug)]
pub(super) enum Failed {
    /// It ended with a status, and no response in that.
    Status(Status),
    /// Its message is none.
    Decode(DecodeFault),
    /// It broke off.
    Broken(BodyFault),
    /// It took longer than it may.
    Late,
}

/// What the client is told. dskit's own front says 500 to all of it; here a gateway's statuses say whose fault it is.
#[cold]
pub(super) fn fault_of(asked: &Asked, failed: Failed) -> Fault {
    let (status, words) = match failed {
        Failed::Status(status) => (http_status(asked.has_content, status.code), status.to_string()),
        Failed::Decode(fault) => (StatusCode::BAD_GATEWAY, format!("its message: {fault}")),
        Failed::Broken(BodyFault::TimedOut) => (StatusCode::GATEWAY_TIMEOUT, "its answer stopped coming".to_owned()),
        Failed::Broken(fault) => (StatusCode::BAD_GATEWAY, format!("its answer broke off: {fault}")),
        Failed::Late => (StatusCode::GATEWAY_TIMEOUT, "its answer took too long".to_owned()),
    };
    Fault { status, reason: Reason::Text(format!("upstream {}: {words}", asked.place.address.authority).into()) }
}

fn http_status(has_content: bool, code: Code) -> StatusCode {
    match code {
        // Its limit on messages, in most servers; without content it is not the request that was too large.
        Code::RESOURCE_EXHAUSTED if has_content => StatusCode::CONTENT_TOO_LARGE,
        Code::UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
        Code::DEADLINE_EXCEEDED => StatusCode::GATEWAY_TIMEOUT,
        Code::UNAUTHENTICATED | Code::PERMISSION_DENIED => code.http_status(),
        Code::INVALID_ARGUMENT => StatusCode::BAD_REQUEST,
        // An error of HTTP, said without the response itself.
        _ if code.as_u32() >= 400 => code.http_status(),
        _ => StatusCode::BAD_GATEWAY,
    }
}
