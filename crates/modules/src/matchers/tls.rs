//! `tls`: whether the request came over TLS, and after the handshake or in early data.

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tls {
    /// No request is read before its connection's handshake is complete: early data belongs to HTTP/3, which nothing carries here.
    handshake_complete: Option<bool>,
}

/// Makes the matcher from an object with `handshake_complete` or nothing.
///
/// # Errors
/// When it is something else.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    Ok(Box::new(build.parse::<Tls>(value)?))
}

impl Matcher for Tls {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(cx.arrival().tls.is_some() && self.handshake_complete != Some(false))
    }
}
