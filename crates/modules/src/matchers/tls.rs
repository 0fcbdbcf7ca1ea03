//! `tls`: whether the connection uses TLS and, optionally, whether its handshake was complete.

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TlsMatcher {
    /// `Some(false)` never matches: no request is read before its connection's handshake is complete. Early data would
    /// be a feature of HTTP/3, which this server does not support.
    handshake_complete: Option<bool>,
}

/// Compiles the matcher from an object with an optional `handshake_complete`.
///
/// # Errors
/// If the value has another shape.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    Ok(Box::new(build.parse::<TlsMatcher>(value)?))
}

impl Matcher for TlsMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(cx.arrival().tls.is_some() && self.handshake_complete != Some(false))
    }
}
