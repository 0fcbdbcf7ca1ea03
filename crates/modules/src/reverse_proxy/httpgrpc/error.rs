//! Maps gRPC errors to HTTP statuses.

use causeway_httpgrpc::{Code, DecodeError, Status};
use causeway_message::StatusCode;
use causeway_pipeline::{BodyError, Context, Fault, Reason};

use super::super::attempt::PendingCall;
use super::super::health::CallEnd;

/// The reason that a call yielded no response.
#[derive(Debug)]
pub(super) enum GrpcError {
    /// The call ended with an error status that contains no response.
    Status(Status),
    /// Its message is not valid.
    Decode(DecodeError),
    /// The call was aborted.
    Broken(BodyError),
    /// The call exceeded the time limit.
    Late,
}

/// Returns the fault for the client. dskit's own frontend responds with 500 to all of them; the statuses here separate
/// the client's mistakes from the upstream's, also for the circuit breaker.
#[cold]
pub(super) fn fault_of(cx: &Context, pending: &PendingCall, failed: GrpcError) -> Fault {
    let (status, message) = match failed {
        GrpcError::Status(status) => (http_status(pending.has_content, status.code), status.to_string()),
        GrpcError::Decode(error) => (StatusCode::BAD_GATEWAY, format!("its message: {error}")),
        GrpcError::Broken(BodyError::TimedOut) => (StatusCode::GATEWAY_TIMEOUT, "its response stalled".to_owned()),
        GrpcError::Broken(error) => (StatusCode::BAD_GATEWAY, format!("its response ended early: {error}")),
        GrpcError::Late => (StatusCode::GATEWAY_TIMEOUT, "its response took too long".to_owned()),
    };
    pending.record_outcome(cx, if status.as_u16() < 500 { CallEnd::Responded(status) } else { CallEnd::Failed });
    Fault { status, reason: Reason::Text(format!("upstream {}: {message}", pending.pool.address.name).into()) }
}

fn http_status(has_content: bool, code: Code) -> StatusCode {
    match code {
        // In most servers this is the limit on messages. Without content the request cannot be too large.
        Code::RESOURCE_EXHAUSTED if has_content => StatusCode::CONTENT_TOO_LARGE,
        Code::UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
        Code::DEADLINE_EXCEEDED => StatusCode::GATEWAY_TIMEOUT,
        Code::UNAUTHENTICATED | Code::PERMISSION_DENIED => code.http_status(),
        Code::INVALID_ARGUMENT => StatusCode::BAD_REQUEST,
        // An HTTP status as the code, without the response itself.
        _ if (400..1000).contains(&code.as_u32()) => code.http_status(),
        _ => StatusCode::BAD_GATEWAY,
    }
}
