//! The server option `trace`: a line of the log for each handler that a request enters.

use serde_json::Value;

use crate::context::Context;
use crate::handler::{Fault, Handler, Response, Step};
use crate::outcome::Outcome;

const CREDENTIALS: [&str; 4] = ["Cookie", "Set-Cookie", "Authorization", "Proxy-Authorization"];

/// A handler of a server with `trace`. Other servers have no such handlers, so that the option costs them nothing.
pub(crate) struct Traced {
    handler: Box<dyn Handler>,
    name: Box<str>,
    /// The handler's JSON without its name, and [shortened](shorten).
    module: Box<str>,
}

impl Traced {
    pub(crate) fn new(handler: Box<dyn Handler>, value: &Value) -> Self {
        let name = value.get("handler").and_then(Value::as_str).unwrap_or("handler");
        let mut module = value.clone();
        if let Some(members) = module.as_object_mut() {
            members.remove("handler");
        }
        shorten(&mut module);
        Self { handler, name: name.into(), module: module.to_string().into() }
    }
}

/// Removes the matchers and handlers of nested routes, which have lines of their own, and the accounts of `basic_auth`.
/// Credentials in fields are redacted as in access records.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.contains_key("handle") {
                members.remove("match");
            }
            members.retain(|name, _| !matches!(&**name, "handle" | "providers"));
            for (name, value) in members {
                match CREDENTIALS.iter().any(|secret| secret.eq_ignore_ascii_case(name)) {
                    true => *value = "REDACTED".into(),
                    false => shorten(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(shorten),
        _ => {}
    }
}

impl Handler for Traced {
    fn enter(&self, cx: &mut Context) -> Step {
        // The name is the message, as in Caddy.
        tracing::debug!(module.json = %self.module, "{}", self.name);
        self.handler.enter(cx)
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        self.handler.leave(cx, response)
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        self.handler.failed(cx, fault)
    }

    fn reads_content(&self, content_type: &[u8]) -> bool {
        self.handler.reads_content(content_type)
    }

    fn sees_rejected(&self) -> bool {
        self.handler.sees_rejected()
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        self.handler.end(cx, outcome);
    }
}
