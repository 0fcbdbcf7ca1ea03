//! `invoke`: runs a named route of the server, then goes on behind it.

use causeway_pipeline::{Build, BuildError, Context, Handler, RoutesId, Step};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    name: String,
}

struct Invoke(RoutesId);

/// Makes the handler.
///
/// # Errors
/// When the server has no named route of this name; Caddy says so only when a request comes.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    match build.named_route(&written.name) {
        Some(routes) => Ok(Box::new(Invoke(routes))),
        None => {
            build.at("name", |build| Err(build.refuse(written.name, "the name of one of the server's named routes")))
        }
    }
}

impl Handler for Invoke {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Call(self.0)
    }
}
