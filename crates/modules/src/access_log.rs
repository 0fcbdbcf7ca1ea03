//! `access_log`: a record of each request in the logs that the configuration names. The configuration crate puts this
//! handler before a server's routes; no operator writes it.
//!
//! - `record`: the fields of one request, with Caddy's names
//! - `loggers`: the loggers of a server's hosts
//! - `debug`: the same fields for the messages of other handlers
//! - [`error`]: `error_log`, an entry for each request that failed

pub(crate) mod debug;
pub mod error;
mod loggers;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, FamilyId, Handler, Outcome, Step};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::log_append::{FIELDS, SPANS, SPANS_MS};
use crate::logs::{Level, Output};
use crate::vars::{LEVEL, USER};
use loggers::HostLoggers;
use record::Record;

/// Caddy's name of the logger of access records; a server's own loggers have names below it.
const LOGGER: &str = "http.log.access";
/// The message of an access record.
const MESSAGE: &str = "handled request";
/// Caddy's message for a request that no handler responded to.
const MESSAGE_UNHANDLED: &str = "NOP";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessLogConfig {
    /// The logger of hosts that `names` does not list, below the base logger; empty: the base logger itself.
    #[serde(default)]
    default: String,
    /// The loggers of a host, which may begin with `*` labels.
    #[serde(default)]
    names: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    skip_hosts: Vec<String>,
    #[serde(default)]
    skip_unmapped_hosts: bool,
    #[serde(default)]
    credentials: bool,
    /// `logging.logs` of the configuration.
    #[serde(default)]
    logs: Map<String, Value>,
}

struct AccessLog {
    loggers: HostLoggers,
    slots: RecordSlots,
}

/// The variables that change a record.
struct RecordSlots {
    /// The user whom `basic_auth` let in.
    user: VarId,
    /// The level that `log_level` sets.
    level: VarId,
    /// The fields that `log_append` adds.
    fields: FamilyId,
    spans: FamilyId,
    spans_ms: FamilyId,
}

/// Compiles the handler from its JSON. Opens the outputs of its logs.
///
/// # Errors
/// A log has an unknown output, format, level or option, or its output cannot be opened.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    make_with(value, build, None)
}

/// As [`make`], but records for standard error go to `stream`.
///
/// # Errors
/// As [`make`].
pub fn make_with(
    value: &Value,
    build: &mut Build<'_>,
    stream: Option<Arc<Output>>,
) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(AccessLog {
        loggers: HostLoggers::open(LOGGER, value, build, stream)?,
        slots: RecordSlots {
            user: build.allocate_slot(USER),
            level: build.allocate_variable(LEVEL),
            fields: build.allocate_family(FIELDS),
            spans: build.allocate_family(SPANS),
            spans_ms: build.allocate_family(SPANS_MS),
        },
    }))
}

impl Handler for AccessLog {
    fn enter(&self, cx: &mut Context) -> Step {
        // The record's client is the one of the original request, before handlers change fields.
        cx.client();
        Step::Next
    }

    fn sees_rejected(&self) -> bool {
        true
    }

    fn is_internal(&self) -> bool {
        true
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        if !cx.is_recorded() {
            return;
        }
        let Some(loggers) = self.loggers.of(cx) else { return };
        // The outcome's duration is 0 for an exchange that one turn of its connection began and ended.
        cx.worker().refresh();
        let took = cx.worker().now().saturating_duration_since(cx.arrival().at);
        let outcome = &Outcome { took, ..*outcome };
        let record = Record { cx, outcome, slots: &self.slots, headers: &self.loggers.headers };
        let level = cx.variable(self.slots.level).and_then(|name| Level::parse(std::str::from_utf8(name).ok()?));
        let level = level.unwrap_or(if record.status() >= 500 { Level::Error } else { Level::Info });
        let message = if record.is_unhandled() { MESSAGE_UNHANDLED } else { MESSAGE };
        self.loggers.write(cx, loggers, level, message, &record);
    }
}

#[cfg(test)]
mod tests;
