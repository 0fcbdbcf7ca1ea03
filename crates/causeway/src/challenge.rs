//! The handler that answers HTTP-01 challenges, and requests for ZeroSSL's validation files. Automatic HTTPS puts it
//! before the routes of the servers on the HTTP port.

use causeway_acme::challenge::{self, FILE_PREFIX, http_answer, shared_file, shared_http_answer};
use causeway_message::{Method, StatusCode};
use causeway_pipeline::{Context, Handler, Registry, Response, Step};

/// The handler's module name; `causeway_config` uses it for the routes that it adds.
const NAME: &str = "acme_challenge";
/// RFC 8555 §8.3.
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Adds the handler to a registry.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_handler(NAME, |_, _| Ok(Box::new(AcmeChallenge)));
}

/// Responds with the key authorization of an open challenge of this server, or of another one with the same storage.
/// Any other request continues to the site.
struct AcmeChallenge;

impl Handler for AcmeChallenge {
    fn enter(&self, cx: &mut Context) -> Step {
        if cx.path().starts_with(FILE_PREFIX.as_bytes()) {
            return file(cx);
        }
        let token = cx.path().strip_prefix(PREFIX).and_then(|token| std::str::from_utf8(token).ok());
        let Some(token) = token else { return Step::Next };
        if let Some(answer) = http_answer(token) {
            return respond(answer);
        }
        if cx.head().method() != Method::Get {
            return Step::Next;
        }
        match shared_http_answer(cx.host(), token) {
            Some(sought) => cx.wait(sought, |_, answer| answer.map_or(Step::Next, respond)),
            None => Step::Next,
        }
    }
}

/// Responds with an open validation file.
fn file(cx: &mut Context) -> Step {
    if cx.head().method() != Method::Get {
        return Step::Next;
    }
    let Ok(path) = std::str::from_utf8(cx.path()) else { return Step::Next };
    if let Some(content) = challenge::file(cx.host(), path) {
        return respond(content);
    }
    match shared_file(cx.host(), path) {
        Some(sought) => cx.wait(sought, |_, content| content.map_or(Step::Next, respond)),
        None => Step::Next,
    }
}

fn respond(answer: String) -> Step {
    Step::Respond(Response::chunk(StatusCode::OK, answer.into_bytes().into()))
}
