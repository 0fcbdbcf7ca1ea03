//! The logs of a configuration.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use causeway_log_output::{Output, OutputSpec, WhenFull};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::destination::{self, at_load};
use super::entry::{Entry, Level};
use super::format::{DefaultFormat, Format};
use super::sampling::{Sampler, SamplingConfig};

/// The log that takes every entry which no other log claims.
const DEFAULT: &str = "default";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LogConfig {
    #[serde(default)]
    writer: Option<Map<String, Value>>,
    #[serde(default)]
    encoder: Option<Map<String, Value>>,
    #[serde(default)]
    level: String,
    #[serde(default)]
    sampling: Option<SamplingConfig>,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
    /// Ours: the reaction to a full queue.
    #[serde(default)]
    queue_full: String,
    #[serde(default)]
    core: Option<Value>,
    #[serde(default)]
    with_caller: Option<Value>,
    #[serde(default)]
    with_caller_skip: Option<Value>,
    #[serde(default)]
    with_stacktrace: Option<Value>,
}

/// A log, ready to write to.
pub struct Log {
    name: Box<str>,
    spec: OutputSpec,
    output: Arc<Output>,
    when_full: WhenFull,
    format: Format,
    level: Level,
    sampler: Option<Sampler>,
    include: Box<[String]>,
    exclude: Box<[String]>,
}

/// All logs of a configuration, `default` among them.
pub struct Logs(Box<[Log]>);

/// The open logs by their JSON: the servers of a configuration share them, with their outputs and counters.
static OPEN: LazyLock<Mutex<HashMap<String, Weak<Logs>>>> = LazyLock::new(Mutex::default);

impl Logs {
    /// Opens the logs of a configuration's `logging.logs`. If the plan is only checked ([`Build::is_check_only`]), no
    /// file is opened.
    ///
    /// # Errors
    /// A log has an unknown output, format, level or option, two logs give one file different options, or an output
    /// cannot be opened.
    pub fn open(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<Arc<Self>, BuildError> {
        let mut key = serde_json::to_string(written).unwrap_or_default();
        if build.is_check_only() {
            // They lose their lines, so no server may share them.
            key.insert_str(0, "check ");
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(logs) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(logs);
        }
        let nothing = Value::Object(Map::new());
        let default = (!written.contains_key(DEFAULT)).then_some((DEFAULT, &nothing));
        let named = written.iter().map(|(name, log)| (&**name, log));
        let mut logs = Vec::<Log>::with_capacity(written.len() + 1);
        // The first log of each output.
        let mut first_logs = HashMap::<String, usize>::new();
        for (name, log) in default.into_iter().chain(named) {
            let log = build.at(name, |build| {
                let config: LogConfig = build.parse(log)?;
                let spec = build.at("writer", |build| destination::read(config.writer.as_ref(), build))?;
                // Further logs of an output have the options of its first one.
                let first = first_logs.get(&spec.key()).map(|first| &logs[*first]);
                if let Some(other) = first.filter(|first| !first.spec.has_options_of(&spec)) {
                    let expected = format!("the options that the log '{}' has for it", other.name);
                    return build
                        .at("writer", |build| Err(build.refuse(format!("other options for {spec}"), expected)));
                }
                Log::open(name, &config, spec, build)
            })?;
            // The directory exists now, so it has a canonical name.
            first_logs.entry(log.spec.key()).or_insert(logs.len());
            logs.push(log);
        }
        let logs = Arc::new(Self(logs.into()));
        open.retain(|_, logs| logs.strong_count() > 0);
        open.insert(key, Arc::downgrade(&logs));
        Ok(logs)
    }

    /// Gives outputs that an earlier configuration opened the options of this one. To be called when the configuration
    /// takes effect.
    pub fn activate(&self) {
        self.0.iter().for_each(|log| log.output.configure(&log.spec));
    }

    /// Returns the logs.
    pub fn iter(&self) -> impl Iterator<Item = &Log> {
        self.0.iter()
    }

    /// Returns the log at an index of [`iter`](Self::iter).
    pub(crate) fn get(&self, index: usize) -> &Log {
        &self.0[index]
    }
}

impl Log {
    fn open(name: &str, config: &LogConfig, spec: OutputSpec, build: &mut Build<'_>) -> Result<Self, BuildError> {
        for (key, value, expected) in [
            ("core", &config.core, "nothing: this server has no other cores"),
            ("with_caller", &config.with_caller, "nothing: entries have no source line"),
            ("with_caller_skip", &config.with_caller_skip, "nothing: entries have no source line"),
            ("with_stacktrace", &config.with_stacktrace, "nothing: entries have no stack trace"),
        ] {
            if let Some(value) = value.as_ref().filter(|value| !matches!(value, Value::Bool(false) | Value::Null)) {
                return build.at(key, |build| Err(build.refuse(value.to_string(), expected)));
            }
        }
        let level = build.at("level", |build| {
            let name = at_load(&config.level, build)?;
            Level::parse(&name).ok_or_else(|| build.refuse(name, "DEBUG, INFO, WARN, ERROR, PANIC or FATAL"))
        })?;
        let when_full = match &*config.queue_full {
            "" | "drop" => WhenFull::Drop,
            "wait" => WhenFull::Wait,
            other => return build.at("queue_full", |build| Err(build.refuse(other, "drop or wait"))),
        };
        check_names(config, build)?;
        // DEVIATES Caddy, whose `validate` opens and creates the files: as root it would leave ones that the server's
        // user cannot write.
        let opened = if build.is_check_only() { Output::check(&spec) } else { Output::open(&spec) };
        let output = match opened {
            Ok(output) => output,
            Err(error) => {
                let expected = match spec {
                    OutputSpec::Net(_) => "a collector that can be reached; soft_start also starts without one",
                    _ => "a file that can be written",
                };
                return build.at("writer", |build| Err(build.refuse(format!("{spec}: {error}"), expected)));
            }
        };
        // As in Caddy, whose default is JSON everywhere but on a terminal.
        let default = if output.is_terminal() { DefaultFormat::Console } else { DefaultFormat::Json };
        let format = build.at("encoder", |build| Format::read(config.encoder.as_ref(), default, &output, build))?;
        Ok(Self {
            name: name.into(),
            spec,
            output,
            when_full,
            format,
            level,
            sampler: config.sampling.as_ref().map(Sampler::new),
            include: config.include.clone().into(),
            exclude: config.exclude.clone().into(),
        })
    }

    /// Returns the name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this is the log `default`.
    pub fn is_default(&self) -> bool {
        &*self.name == DEFAULT
    }

    /// Returns the least level that the log takes.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns whether the log accepts entries of this logger. As in Caddy, the longest matching name of `include` and
    /// `exclude` decides.
    pub fn accepts(&self, logger: &str) -> bool {
        let longest = |names: &[String]| {
            let covers = |name: &&String| {
                logger.strip_prefix(&***name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            names.iter().filter(covers).map(String::len).max()
        };
        // Caddy: `*` stands for every module, and `.` for the server itself, whose entries have no name.
        let is_all_excluded = |name: &String| (name == "*" && !logger.is_empty()) || (name == "." && logger.is_empty());
        if self.exclude.iter().any(is_all_excluded) {
            return false;
        }
        match (longest(&self.include), longest(&self.exclude)) {
            (None, None) => self.include.is_empty(),
            (included, excluded) => included > excluded,
        }
    }

    /// Writes an entry of the server itself, unless sampling leaves it out. The caller has checked its level and
    /// [`accepts`](Self::accepts). A full queue drops it in any case: the thread that carries out commands and signals
    /// must not wait for a collector. Returns false only on the thread of the log's own output, which cannot queue a
    /// line.
    pub fn write(&self, entry: &Entry<'_>) -> bool {
        self.write_to(&self.output, WhenFull::Drop, entry)
    }

    /// As [`write`](Self::write) for an entry of a request, for which the log's `queue_full` applies; `stream` takes
    /// the place of standard error.
    pub(crate) fn write_of_request(&self, stream: Option<&Output>, entry: &Entry<'_>) -> bool {
        let output = stream.filter(|_| self.spec == OutputSpec::Stderr).unwrap_or(&self.output);
        self.write_to(output, self.when_full, entry)
    }

    fn write_to(&self, output: &Output, when_full: WhenFull, entry: &Entry<'_>) -> bool {
        if self.sampler.as_ref().is_some_and(|sampler| !sampler.takes(entry)) {
            return true;
        }
        output.write(when_full, |line| self.format.write(entry, line))
    }
}

/// Caddy's rule: with both lists, each name must be within a name of the other list, or contain one.
fn check_names(config: &LogConfig, build: &mut Build<'_>) -> Result<(), BuildError> {
    let (include, exclude) = (&config.include, &config.exclude);
    if include.is_empty() || exclude.is_empty() {
        return Ok(());
    }
    let is_within =
        |one: &str, two: &str| one.strip_prefix(two).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    build.at("include", |build| {
        for name in include {
            if exclude.contains(name) {
                return Err(build.refuse(name, "a name that 'exclude' does not contain too"));
            }
            if !exclude.iter().any(|other| is_within(name, other) || is_within(other, name)) {
                return Err(build.refuse(name, "a name within a name of 'exclude', or one that contains it"));
            }
        }
        Ok(())
    })
}
