//! `subroute`: routes within a route, with error routes of their own.

use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, RoutesId, Step};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The shape; the routes are read where they stand, since they may be nearly the whole configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
    #[serde(default)]
    errors: Option<Errors>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    #[serde(default, rename = "routes")]
    _routes: IgnoredAny,
}

struct Subroute {
    routes: RoutesId,
    errors: Option<RoutesId>,
}

/// Makes the handler.
///
/// # Errors
/// The first mistake in its routes.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    let none = Value::Array(Vec::new());
    let routes = build.at("routes", |build| build.routes(listed(value).unwrap_or(&none)))?;
    let errors = match written.errors {
        None => None,
        Some(_) => Some(build.at("errors.routes", |build| build.routes(listed(&value["errors"]).unwrap_or(&none)))?),
    };
    Ok(Box::new(Subroute { routes, errors }))
}

fn listed(value: &Value) -> Option<&Value> {
    value.get("routes").filter(|routes| !routes.is_null())
}

impl Handler for Subroute {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Call(self.routes)
    }

    // As in Caddy, a fault behind the subroute passes here too: what follows it is compiled into it.
    // DEVIATES Caddy: error routes that answer nothing end in an empty 200 and do not go on behind the subroute.
    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        match self.errors {
            None => Step::Fail(fault),
            Some(routes) => {
                cx.set_fault(fault);
                Step::Call(routes)
            }
        }
    }
}
