//! `error`: leads the request into the error routes.

use causeway_message::StatusCode;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::{Status, Weak};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    error: String,
    status_code: Option<Weak>,
}

struct StaticError {
    words: Template,
    status: Option<Status>,
}

/// Makes the handler; without a status code it is 500.
///
/// # Errors
/// When the status is none.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    let status = Status::parse(written.status_code, build)?;
    Ok(Box::new(StaticError { words: build.template_of_known(&written.error), status }))
}

impl Handler for StaticError {
    fn enter(&self, cx: &mut Context) -> Step {
        let status = match self.status.as_ref().map(|status| status.of(cx)) {
            None => StatusCode::INTERNAL_SERVER_ERROR,
            Some(Ok(status)) => status,
            Some(Err(fault)) => return Step::Fail(fault),
        };
        // No words are words too: `{http.error.message}` is empty then, not the status text.
        let words = cx.rendered(&self.words, |_, words| String::from_utf8_lossy(words).into_owned());
        Step::Fail(Fault { status, reason: Reason::Text(words.into()) })
    }
}
