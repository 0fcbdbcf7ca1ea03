//! The handler that answers HTTP-01 challenges. Automatic HTTPS puts it before the routes of the servers on the HTTP port.

use causeway_message::StatusCode;
use causeway_pipeline::{Context, Handler, Registry, Response, Step};

/// The handler's module name; `causeway_config` uses it for the routes that it adds.
const NAME: &str = "acme_challenge";
/// RFC 8555 §8.3.
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Adds the handler to a registry.
pub(crate) fn register(registry: &mut Registry) {
    registry.handler(NAME, |_, _| Ok(Box::new(AcmeChallenge)));
}

/// Responds with the key authorization of an open challenge. Any other request continues to the site.
struct AcmeChallenge;

impl Handler for AcmeChallenge {
    fn enter(&self, cx: &mut Context) -> Step {
        let token = cx.path().strip_prefix(PREFIX).and_then(|token| std::str::from_utf8(token).ok());
        match token.and_then(causeway_acme::challenge::http_answer) {
            Some(answer) => Step::Respond(Response::chunk(StatusCode::OK, answer.into_bytes().into())),
            None => Step::Next,
        }
    }
}
