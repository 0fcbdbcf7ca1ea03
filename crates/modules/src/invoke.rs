//! `invoke`: runs a named route of the server, then continues with the next handler.

use causeway_pipeline::{Build, BuildError, Context, Handler, RoutesId, Step};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InvokeConfig {
    #[serde(default)]
    name: String,
}

struct Invoke(RoutesId);

/// Compiles the handler from its JSON.
///
/// # Errors
/// If the server has no named route of this name. Caddy reports this only when a request reaches the handler.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: InvokeConfig = build.parse_module(value)?;
    match build.named_route(&written.name) {
        Some(routes) => Ok(Box::new(Invoke(routes))),
        None => {
            build.at("name", |build| Err(build.refuse(written.name, "the name of one of the server's named routes")))
        }
    }
}

impl Handler for Invoke {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Run(self.0)
    }
}
