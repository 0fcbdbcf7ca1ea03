//! `error`: fails the request, which runs the error routes.

use causeway_message::StatusCode;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::{StatusTemplate, WeakString};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorConfig {
    #[serde(default)]
    error: String,
    status_code: Option<WeakString>,
}

struct StaticError {
    message: Template,
    status: Option<StatusTemplate>,
}

/// Compiles the handler from its JSON. The default status is 500.
///
/// # Errors
/// If the status code is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: ErrorConfig = build.parse_module(value)?;
    let status = StatusTemplate::parse(written.status_code, build)?;
    Ok(Box::new(StaticError { message: build.template_keeping_unknown(&written.error), status }))
}

impl Handler for StaticError {
    fn enter(&self, cx: &mut Context) -> Step {
        let status = match self.status.as_ref().map(|status| status.of(cx)) {
            None => StatusCode::INTERNAL_SERVER_ERROR,
            Some(Ok(status)) => status,
            Some(Err(fault)) => return Step::Fail(fault),
        };
        // An empty message stays empty: `{http.error.message}` must not become the status text.
        let message = cx.with_rendered(&self.message, |_, message| String::from_utf8_lossy(message).into_owned());
        Step::Fail(Fault { status, reason: Reason::Text(message.into()) })
    }
}
