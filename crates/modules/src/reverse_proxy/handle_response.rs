//! `handle_response`: another status, or routes, for answers that match.

use causeway_message::{FieldMap, StatusCode};
use causeway_pipeline::{Build, BuildError, Context, Fault, RoutesId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::headers::{Require, WrittenRequire};
use crate::rendered::{Status, Weak};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "match")]
    matches: Option<WrittenRequire>,
    status_code: Option<Weak>,
    #[serde(rename = "routes")]
    _routes: Option<IgnoredAny>,
}

pub(super) struct ResponseRoutes {
    matches: Option<Require>,
    status: Option<Status>,
    list: RoutesId,
}

impl ResponseRoutes {
    pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: Written = build.parse(value)?;
        let matches = match written.matches {
            Some(matches) => Some(build.at("match", |build| Require::build(matches, build))?),
            None => None,
        };
        let status = Status::parse(written.status_code, build)?;
        let none = Value::Array(Vec::new());
        let routes = value.get("routes").filter(|routes| !routes.is_null()).unwrap_or(&none);
        let list = build.at("routes", |build| build.routes(routes))?;
        Ok(Self { matches, status, list })
    }

    /// Whether they are for an answer like this.
    pub(super) fn are_for(&self, fields: &FieldMap, status: StatusCode) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches.holds(fields, status))
    }

    /// The status that the answer gets and is passed on with; `None`: routes decide.
    pub(super) fn status(&self, cx: &mut Context) -> Option<Result<StatusCode, Fault>> {
        self.status.as_ref().map(|status| status.of(cx))
    }

    pub(super) fn list(&self) -> RoutesId {
        self.list
    }
}
