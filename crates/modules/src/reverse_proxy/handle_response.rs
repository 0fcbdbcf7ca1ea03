//! `handle_response` of `reverse_proxy` and `intercept`: for matching responses, another status or routes.

use causeway_message::{FieldMap, StatusCode};
use causeway_pipeline::{Build, BuildError, Context, Fault, RoutesId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::headers::{ResponseMatcher, ResponseMatcherConfig};
use crate::rendered::{StatusTemplate, WeakString};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HandleResponseConfig {
    #[serde(rename = "match")]
    matches: Option<ResponseMatcherConfig>,
    status_code: Option<WeakString>,
    #[serde(rename = "routes")]
    _routes: Option<IgnoredAny>,
}

pub(crate) struct ResponseRoutes {
    matches: Option<ResponseMatcher>,
    status: Option<StatusTemplate>,
    list: RoutesId,
}

impl ResponseRoutes {
    pub(crate) fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: HandleResponseConfig = build.parse(value)?;
        let matches = match written.matches {
            Some(matches) => Some(build.at("match", |build| ResponseMatcher::build(matches, build))?),
            None => None,
        };
        let status = StatusTemplate::parse(written.status_code, build)?;
        let none = Value::Array(Vec::new());
        let routes = value.get("routes").unwrap_or(&none);
        let list = build.at("routes", |build| build.routes(routes))?;
        Ok(Self { matches, status, list })
    }

    /// Returns whether this entry applies to a response.
    pub(crate) fn are_for(&self, fields: &FieldMap, status: StatusCode) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches.holds(fields, status))
    }

    /// Returns the status that replaces the response's own, or `None` if the routes decide.
    pub(crate) fn status(&self, cx: &mut Context) -> Option<Result<StatusCode, Fault>> {
        self.status.as_ref().map(|status| status.of(cx))
    }

    pub(crate) fn list(&self) -> RoutesId {
        self.list
    }
}
