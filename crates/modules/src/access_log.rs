//! `access_log`: a record of each request in the logs that the configuration names. The configuration crate puts this handler before a
//! server's routes; no operator writes it.
//!
//! - `record`: the fields of one request, with Caddy's names

mod record;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, FamilyId, Handler, Outcome, Step};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::log_append::{FIELDS, SPANS, SPANS_MS};
use crate::logs::{Entry, Level, Logs, Output};
use crate::vars::{LEVEL, NAMES, NAMES_SEPARATOR, USER};
use record::{HeaderTable, Record};

/// Caddy's name of the logger of access records; a server's own loggers have names below it.
const LOGGER: &str = "http.log.access";
/// The message of an access record.
const MESSAGE: &str = "handled request";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessLogConfig {
    /// The logger of hosts that `names` does not list; empty: [`LOGGER`] itself.
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

/// A logger's name, and the logs that accept its records, by index.
struct Logger {
    name: Box<str>,
    logs: Box<[usize]>,
}

/// The loggers of the hosts that a pattern covers, by index.
type WildcardLoggers = (Box<str>, Box<[usize]>);

struct AccessLog {
    logs: Arc<Logs>,
    /// Takes the place of standard error.
    stream: Option<Arc<Output>>,
    /// The default one first.
    loggers: Vec<Logger>,
    /// The loggers of a host, by index.
    names: BTreeMap<Box<str>, Box<[usize]>>,
    /// Those whose names begin with `*`, the one with the fewest stars first.
    wildcards: Box<[WildcardLoggers]>,
    skip_hosts: Box<[String]>,
    skip_unmapped_hosts: bool,
    headers: HeaderTable,
    slots: Slots,
}

/// The variables that change a record.
struct Slots {
    /// The user whom `basic_auth` let in.
    user: VarId,
    /// The loggers that `log_name` selects.
    names: VarId,
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
    let written: AccessLogConfig = build.parse(value)?;
    let logs = build.at("logs", |build| Logs::open(&written.logs, build))?;
    let mut loggers = Vec::new();
    let mut logger = |name: &str| {
        let name = if name.is_empty() { LOGGER.to_owned() } else { format!("{LOGGER}.{name}") };
        if let Some(known) = loggers.iter().position(|known: &Logger| *known.name == *name) {
            return known;
        }
        let accepts = |(index, log): (usize, &crate::logs::Log)| log.accepts(&name).then_some(index);
        let logs = logs.iter().enumerate().filter_map(accepts).collect();
        loggers.push(Logger { name: name.into(), logs });
        loggers.len() - 1
    };
    logger(&written.default);
    let names = written.names.iter();
    let names = names.map(|(host, names)| {
        let loggers = names.iter().map(|name| logger(name)).collect();
        (host.to_ascii_lowercase().into(), loggers)
    });
    let (mut wildcards, names): (Vec<_>, Vec<_>) = names.partition(|(name, _): &(Box<str>, _)| name.starts_with('*'));
    wildcards.sort_by_key(|(name, _)| name.matches('*').count());
    Ok(Box::new(AccessLog {
        logs,
        stream,
        loggers,
        names: names.into_iter().collect(),
        wildcards: wildcards.into(),
        skip_hosts: written.skip_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        skip_unmapped_hosts: written.skip_unmapped_hosts,
        headers: HeaderTable::new(written.credentials),
        slots: Slots {
            user: build.slot(USER),
            names: build.variable(NAMES),
            level: build.variable(LEVEL),
            fields: build.family(FIELDS),
            spans: build.family(SPANS),
            spans_ms: build.family(SPANS_MS),
        },
    }))
}

/// Returns whether a name with `*` in place of its first labels covers a host.
fn covers(name: &str, host: &str) -> bool {
    let (mut labels, mut hosts) = (name.split('.'), host.split('.'));
    let mut is_leading = true;
    loop {
        match (labels.next(), hosts.next()) {
            (None, None) => return true,
            (Some("*"), Some(label)) if is_leading && !label.is_empty() => {}
            (Some(one), Some(two)) if one == two => is_leading = false,
            _ => return false,
        }
    }
}

impl AccessLog {
    /// Returns the loggers of a host: those of its name, or of the name with `*` in place of its first labels.
    fn loggers(&self, host: &str, authority: &str) -> Option<&[usize]> {
        if let Some(found) = self.names.get(host) {
            return Some(found);
        }
        let is_skipped = |skipped: &String| {
            let is_wild = |parent: &str| host.split_once('.').is_some_and(|(_, rest)| rest == parent);
            *skipped == host || skipped == authority || skipped.strip_prefix("*.").is_some_and(is_wild)
        };
        if self.skip_hosts.iter().any(is_skipped) {
            return None;
        }
        if let Some((_, found)) = self.wildcards.iter().find(|(name, _)| covers(name, host)) {
            return Some(found);
        }
        (!self.skip_unmapped_hosts).then_some(&[0])
    }

    /// Returns the loggers of a request; `None`: it has no record.
    fn loggers_of(&self, cx: &Context) -> Option<&[usize]> {
        if self.names.is_empty() && self.wildcards.is_empty() && self.skip_hosts.is_empty() {
            return (!self.skip_unmapped_hosts).then_some(&[0]);
        }
        let lower = |text: &str| -> Option<String> {
            text.bytes().any(|byte| byte.is_ascii_uppercase()).then(|| text.to_ascii_lowercase())
        };
        let authority = cx.original().authority().unwrap_or_default();
        let authority = lower(authority).map_or(Cow::Borrowed(authority), Cow::Owned);
        let host = authority.rsplit_once(':').filter(|(name, _)| !name.ends_with(':') && !name.ends_with('['));
        let host = host.filter(|(_, port)| !port.ends_with(']')).map_or(&*authority, |(name, _)| name);
        self.loggers(host.trim_matches(['[', ']']), &authority)
    }

    /// Writes the record to the logs that accept its logger.
    fn write(&self, record: &Record<'_>, level: Level, logger: &str, accepting: impl Iterator<Item = usize>) {
        let entry = Entry { level, time: record.cx.worker().wall(), logger, message: MESSAGE, fields: record };
        for log in accepting.map(|index| self.logs.get(index)) {
            if level >= log.level() {
                log.write_with(self.stream.as_deref(), &entry);
            }
        }
    }
}

impl Handler for AccessLog {
    fn enter(&self, cx: &mut Context) -> Step {
        // The record's client is the one of the original request, before handlers change fields.
        cx.client();
        Step::Next
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        if !cx.is_recorded() {
            return;
        }
        let Some(loggers) = self.loggers_of(cx) else { return };
        // The outcome's duration is 0 for an exchange that one turn of its connection began and ended.
        cx.worker().refresh();
        let took = cx.worker().now().saturating_duration_since(cx.arrival().at);
        let outcome = &Outcome { took, ..*outcome };
        let record = Record { cx, outcome, slots: &self.slots, headers: &self.headers };
        let level = cx.variable(self.slots.level).and_then(|name| Level::parse(std::str::from_utf8(name).ok()?));
        let level = level.unwrap_or(if record.status() >= 500 { Level::Error } else { Level::Info });
        match cx.variable(self.slots.names) {
            None => {
                for logger in loggers.iter().map(|index| &self.loggers[*index]) {
                    self.write(&record, level, &logger.name, logger.logs.iter().copied());
                }
            }
            Some(names) => {
                for name in names.split(|byte| *byte == NAMES_SEPARATOR) {
                    self.write_named(&record, level, &String::from_utf8_lossy(name));
                }
            }
        }
    }
}

impl AccessLog {
    /// Writes the record under a name of `log_name`.
    fn write_named(&self, record: &Record<'_>, level: Level, name: &str) {
        let known = self.loggers.iter().find(|logger| match logger.name.strip_prefix(LOGGER) {
            Some("") => name.is_empty(),
            Some(below) => below.strip_prefix('.') == Some(name),
            None => false,
        });
        if let Some(logger) = known {
            self.write(record, level, &logger.name, logger.logs.iter().copied());
            return;
        }
        // A name that no site of the server has; rare, so that its logs are looked up here.
        let name = format!("{LOGGER}.{name}");
        let accepting = self.logs.iter().enumerate().filter(|(_, log)| log.accepts(&name));
        self.write(record, level, &name, accepting.map(|(index, _)| index));
    }
}

#[cfg(test)]
mod tests;
