//! Repeating a step of the protocol, and recognizing the authority's errors.

use instant_acme::Error;

/// How often a step is repeated after instant-acme's own three tries.
pub(crate) const NONCE_TRIES: usize = 8;

/// Performs one step of the protocol. Repeats it if the authority rejects the request's nonce, for example because
/// another of its data centers has issued the nonce (RFC 8555 §6.5). A macro, because steps borrow the order mutably.
macro_rules! retry_bad_nonce {
    ($step:expr) => {{
        let mut tries = 0;
        loop {
            match $step.await {
                Err(error)
                    if $crate::bad_nonce::is_problem(&error, "badNonce") && tries < $crate::bad_nonce::NONCE_TRIES =>
                {
                    tries += 1;
                }
                done => break done,
            }
        }
    }};
}

pub(crate) use retry_bad_nonce;

/// Whether the authority answered with this error type (RFC 8555 §6.7).
pub(crate) fn is_problem(error: &Error, name: &str) -> bool {
    let Error::Api(problem) = error else { return false };
    let kind = problem.r#type.as_deref().and_then(|kind| kind.strip_prefix("urn:ietf:params:acme:error:"));
    kind == Some(name)
}
