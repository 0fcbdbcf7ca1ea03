//! `subroute`: a nested list of routes, with its own error routes.

use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, RoutesId, Step};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The JSON's shape. The routes are compiled in place, not copied: they may be nearly the whole configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubrouteConfig {
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
    #[serde(default)]
    errors: Option<SubrouteErrorsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubrouteErrorsConfig {
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
}

struct Subroute {
    routes: RoutesId,
    errors: Option<RoutesId>,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// The first mistake in its routes.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: SubrouteConfig = build.parse_module(value)?;
    let none = Value::Array(Vec::new());
    let routes = build.at("routes", |build| build.routes(value.get("routes").unwrap_or(&none)))?;
    let errors = match written.errors {
        None => None,
        Some(_) => {
            Some(build.at("errors.routes", |build| build.routes(value["errors"].get("routes").unwrap_or(&none)))?)
        }
    };
    Ok(Box::new(Subroute { routes, errors }))
}

impl Handler for Subroute {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Run(self.routes)
    }

    // As in Caddy, a fault in a handler after the subroute also arrives here: Caddy compiles the following handlers
    // into it.
    // DEVIATES Caddy: error routes without a response end in an empty 200; the handlers after the subroute do not run.
    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        match self.errors {
            None => Step::Fail(fault),
            Some(routes) => cx.handle_fault(fault, routes),
        }
    }
}
