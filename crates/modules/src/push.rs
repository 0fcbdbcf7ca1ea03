//! `push`: accepted so that a configuration with it loads, but without effect. No browser takes HTTP/2 server push any
//! more, and this server does not send it (RFC 9113 §8.4 permits that).

use causeway_pipeline::{Build, BuildError, Context, Handler, Step};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PushConfig {
    #[serde(rename = "resources")]
    _resources: Option<Vec<ResourceConfig>>,
    #[serde(rename = "headers")]
    _headers: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceConfig {
    #[serde(rename = "method")]
    _method: Option<String>,
    #[serde(rename = "target")]
    _target: Option<String>,
}

struct Push;

/// Compiles the handler from its JSON, and warns.
///
/// # Errors
/// If an option is unknown.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let PushConfig { .. } = build.parse_module(value)?;
    build.warn(
        "'push' has no effect: browsers no longer support HTTP/2 server push; a Link field with rel=preload has a similar effect"
    );
    Ok(Box::new(Push))
}

impl Handler for Push {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Next
    }
}
