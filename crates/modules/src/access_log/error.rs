//! `error_log`: an entry for each request that failed, in the logs that the configuration names. The configuration
//! crate gives each server one.

use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::{Build, BuildError, Context, Failure, Fault, FaultId, Handler, Outcome, Step};
use serde_json::Value;

use super::loggers::HostLoggers;
use super::record::{HeaderTable, RequestFields};
use crate::logs::{EachField, FieldSink, Level, LogValue, Output, key};

/// Caddy's name of the logger; a server's own loggers have names below it.
const LOGGER: &str = "http.log.error";

struct ErrorLog(HostLoggers);

/// Compiles the handler from its JSON, which is that of `access_log`. Opens the outputs of its logs; entries for
/// standard error go to `stream`.
///
/// # Errors
/// As [`super::make`].
pub fn make_with(
    value: &Value,
    build: &mut Build<'_>,
    stream: Option<Arc<Output>>,
) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(ErrorLog(HostLoggers::open(LOGGER, value, build, stream)?)))
}

/// As [`make_with`] for standard error, but with no logs in the configuration the handler writes nothing: for programs
/// that embed the server.
///
/// # Errors
/// As [`make_with`].
pub fn make_configured(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let mut handler = make_with(value, build, None)?;
    if value["logs"].as_object().is_none_or(serde_json::Map::is_empty) {
        handler = Box::new(Silent);
    }
    Ok(handler)
}

/// Writes nothing.
struct Silent;

impl Handler for Silent {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }
}

impl Handler for ErrorLog {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }

    fn end(&self, cx: &Context, _: &Outcome) {
        let Some(failure) = cx.failure() else { return };
        // A fault that an error route responded to and a mistake of the client are of less importance.
        // DEVIATES Caddy: it counts a fault as handled if the server has error routes, though none of them may be for
        // this site.
        let is_error = !failure.is_handled && (!failure.fault.is_of_request() || failure.first.is_some());
        let level = if is_error { Level::Error } else { Level::Debug };
        // A host without access records has errors.
        let loggers = self.0.of(cx).filter(|loggers| !loggers.is_empty()).unwrap_or(&[0]);
        if !self.0.takes(cx, loggers, level) {
            return;
        }
        let message = match failure.first {
            Some(_) => "error handling handler error".to_owned(),
            None => failure.fault.to_string(),
        };
        let took = failure.at.saturating_duration_since(cx.arrival().at);
        let fields = ErrorFields { cx, headers: &self.0.headers, took, failure };
        self.0.write(cx, loggers, level, &message, &fields);
    }
}

/// The fields of an entry, with Caddy's names and order.
struct ErrorFields<'e> {
    cx: &'e Context,
    headers: &'e HeaderTable,
    took: Duration,
    failure: Failure<'e>,
}

impl EachField for ErrorFields<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        let Failure { fault, id, first, .. } = self.failure;
        sink.object(key!("request"), &RequestFields { cx: self.cx, head: self.cx.original(), headers: self.headers });
        sink.value(key!("duration"), LogValue::Duration(self.took));
        match first {
            None => FaultFields(fault, id).each(sink),
            Some((first, first_id)) => {
                sink.value(key!("error"), LogValue::Text(fault.to_string().as_bytes()));
                sink.object(key!("first_error"), &FirstFaultFields(first, first_id));
            }
        }
    }
}

struct FaultFields<'f>(&'f Fault, FaultId);

impl EachField for FaultFields<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        sink.value(key!("status"), LogValue::Unsigned(self.0.status.as_u16().into()));
        sink.value(key!("err_id"), LogValue::Plain(&self.1.text()));
    }
}

struct FirstFaultFields<'f>(&'f Fault, FaultId);

impl EachField for FirstFaultFields<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        sink.value(key!("msg"), LogValue::Text(self.0.to_string().as_bytes()));
        FaultFields(self.0, self.1).each(sink);
    }
}
