//! The server's own messages. They are entries of the configuration's logs; before a configuration is loaded, of a log
//! on standard error.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use causeway_modules::logs::{Entry, FieldSink, Fields, Level, LogValue, Logs, end_all, flush_streams};
use causeway_pipeline::{Build, BuildError, Registry};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Time limit for writing queued lines before text that does not go through the logs, and before the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Names of loggers by the module that logs, a module before its parents. Caddy's names, where it has such a logger;
/// other modules are the server itself, whose entries have no name.
const LOGGERS: &[(&str, &str)] = &[
    ("causeway::admin::response", "admin.api"),
    ("causeway::admin::work", "admin.api"),
    ("causeway::admin", "admin"),
    ("causeway::server::certificates", "tls"),
    ("causeway::server::getters", "tls"),
    ("causeway::server::on_demand", "tls"),
    ("causeway::server::issuance_plan", "tls.obtain"),
    ("causeway::server::renewals", "tls.obtain"),
    ("causeway::server::staples", "tls"),
    ("causeway_acme", "tls.issuance.acme"),
    ("causeway_certs", "tls"),
    ("causeway_engine::upstream", "http.handlers.reverse_proxy"),
    ("causeway_engine", "http"),
    ("causeway_log_output", "log"),
    ("causeway_modules::file_server", "http.handlers.file_server"),
    ("causeway_modules::matchers::file", "http.matchers.file"),
    ("causeway_modules::rate_limit", "http.handlers.rate_limit"),
    ("causeway_modules::reverse_proxy::health::active", "http.handlers.reverse_proxy.health_checker.active"),
    ("causeway_modules::reverse_proxy", "http.handlers.reverse_proxy"),
    ("causeway_modules::rewrite", "http.handlers.rewrite"),
    ("causeway_modules::templates", "http.handlers.templates"),
    ("causeway_modules", "http"),
    ("causeway_pipeline::route::traced", "http.log.trace"),
    ("causeway_pipeline::upstream", "http.handlers.reverse_proxy"),
    ("causeway_pipeline", "http"),
    ("causeway_shared_counts", "http.handlers.rate_limit"),
];

/// Gives the server's messages to other logs.
#[derive(Clone)]
pub(super) struct OwnLogHandle {
    logs: Arc<RwLock<Arc<Logs>>>,
    filter: reload::Handle<LevelFilter, tracing_subscriber::Registry>,
    /// The level that `--debug` forces for the log `default`.
    forced_level: Option<Level>,
}

/// Ends the logs when it is dropped, as [`end`].
pub(super) struct EndOfLogs;

impl Drop for EndOfLogs {
    fn drop(&mut self) {
        end();
    }
}

/// Writes all queued lines, before the process ends.
pub(super) fn end() {
    end_all(FLUSH_TIMEOUT);
}

/// Waits until the lines for standard output and standard error are written, so that they come before the text that
/// follows there.
pub(super) fn flush() {
    flush_streams(FLUSH_TIMEOUT);
}

/// Installs the subscriber. Until [`OwnLogHandle::set`], messages of `level` go to standard error. With a
/// `forced_level`, the log `default` takes messages from there on, even if its configured level is higher.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn install(level: Level, forced_level: Option<Level>) -> Result<OwnLogHandle, BuildError> {
    let registry = Registry::default();
    let name = if level == Level::Debug { "DEBUG" } else { "INFO" };
    let default = Map::from_iter([("default".to_owned(), json!({ "level": name }))]);
    let logs = Logs::open(&default, &mut Build::new(&registry))?;
    let (filter, handle) = reload::Layer::new(filter_of(&logs, forced_level));
    let logs = Arc::new(RwLock::new(logs));
    let own = OwnLog { logs: Arc::clone(&logs), forced_level };
    // Fails only if a subscriber is already installed, as in a program that embeds the server.
    let _ = tracing_subscriber::registry().with(filter).with(own).try_init();
    Ok(OwnLogHandle { logs, filter: handle, forced_level })
}

impl OwnLogHandle {
    pub(super) fn set(&self, logs: &Arc<Logs>) {
        // An error means that the subscriber is gone, and with it the log.
        let _ = self.filter.modify(|filter| *filter = filter_of(logs, self.forced_level));
        let before =
            std::mem::replace(&mut *self.logs.write().unwrap_or_else(PoisonError::into_inner), Arc::clone(logs));
        drop(before);
    }
}

/// The most verbose level that a log takes.
fn filter_of(logs: &Logs, forced_level: Option<Level>) -> LevelFilter {
    match logs.iter().map(|log| level_of(log, forced_level)).min().unwrap_or_default() {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
        Level::Panic | Level::Fatal => LevelFilter::OFF,
    }
}

fn level_of(log: &causeway_modules::logs::Log, forced_level: Option<Level>) -> Level {
    forced_level.filter(|_| log.is_default()).map_or(log.level(), |forced_level| log.level().min(forced_level))
}

/// The subscriber's layer that makes an entry of each event.
struct OwnLog {
    logs: Arc<RwLock<Arc<Logs>>>,
    /// The level that `--debug` forces for the log `default`: it then writes these messages even if the configuration
    /// does not.
    forced_level: Option<Level>,
}

impl<S: Subscriber> Layer<S> for OwnLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            tracing::Level::DEBUG | tracing::Level::TRACE => Level::Debug,
        };
        let mut event_fields = EventFields::default();
        event.record(&mut event_fields);
        let is_within = |module: &&(&str, &str)| {
            metadata.target().strip_prefix(module.0).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let logger = LOGGERS.iter().find(is_within).map_or("", |(_, name)| name);
        let message = std::mem::take(&mut event_fields.message);
        let entry = Entry { level, time: SystemTime::now(), logger, message: &message, fields: &event_fields };
        let logs = Arc::clone(&*self.logs.read().unwrap_or_else(PoisonError::into_inner));
        let mut is_refused = false;
        let mut is_written = false;
        for log in logs.iter().filter(|log| level >= level_of(log, self.forced_level) && log.accepts(logger)) {
            match log.write(&entry) {
                true => is_written = true,
                false => is_refused = true,
            }
        }
        // An output that reports its own fault cannot take the report.
        if is_refused && !is_written {
            let _ = writeln!(std::io::stderr(), "{}: {message}", metadata.level());
        }
    }
}

/// The fields of an event as text.
#[derive(Default)]
struct EventFields {
    message: String,
    fields: Vec<(&'static str, EventValue)>,
}

enum EventValue {
    Text(String),
    /// The value of the JSON text of a field whose name ends in `.json`. The log has the name without this end.
    Json(Value),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.message, "{value:?}");
        } else if let Some(name) = field.name().strip_suffix(".json") {
            let text = format!("{value:?}");
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            self.fields.push((name, EventValue::Json(value)));
        } else {
            self.fields.push((field.name(), EventValue::Text(format!("{value:?}"))));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.fields.push((field.name(), EventValue::Text(value.to_owned())));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), EventValue::Unsigned(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), EventValue::Signed(value)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.push((field.name(), EventValue::Float(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), EventValue::Bool(value)));
    }
}

impl Fields for EventFields {
    fn visit(&self, sink: &mut dyn FieldSink) {
        for (name, value) in &self.fields {
            let value = match value {
                EventValue::Text(text) => LogValue::Text(text.as_bytes()),
                EventValue::Json(json) => {
                    write_json(name, json, sink);
                    continue;
                }
                EventValue::Unsigned(number) => LogValue::Unsigned(*number),
                EventValue::Signed(number) => LogValue::Signed(*number),
                EventValue::Float(number) => LogValue::Float(*number),
                EventValue::Bool(value) => LogValue::Bool(*value),
            };
            sink.value((*name).into(), value);
        }
    }
}

/// Passes a JSON value in its parts, so that the filters of a format see the fields of an object.
fn write_json(name: &str, value: &Value, sink: &mut dyn FieldSink) {
    match value {
        Value::Object(members) => sink.object(name.into(), &JsonFields(members)),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let texts = items.iter().filter_map(Value::as_str);
            sink.value(
                name.into(),
                LogValue::Texts(&|take: &mut dyn FnMut(&[u8])| {
                    texts.clone().for_each(|text| take(text.as_bytes()));
                }),
            );
        }
        Value::String(text) => sink.value(name.into(), LogValue::Text(text.as_bytes())),
        other => sink.value(name.into(), LogValue::Json(other.to_string().as_bytes())),
    }
}

/// The members of a JSON object as fields.
struct JsonFields<'v>(&'v Map<String, Value>);

impl Fields for JsonFields<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        for (name, value) in self.0 {
            write_json(name, value, sink);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    // The messages of a module that was renamed would lose their logger, and with it the logs that include it.
    #[test]
    fn the_modules_of_the_loggers_exist() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (module, _) in LOGGERS {
            let (name, path) = module.split_once("::").unwrap_or((module, "lib"));
            let name = name.strip_prefix("causeway_").unwrap_or(name).replace('_', "-");
            let directory = crates.join(name).join("src");
            // A published crate is alone.
            if !directory.exists() {
                continue;
            }
            let file = directory.join(path.replace("::", "/")).with_extension("rs");
            assert!(file.exists(), "{module}: no {}", file.display());
        }
    }
}
