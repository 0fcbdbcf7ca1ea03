//! The formats of entries, as JSON describes them.
//!
//! - `number`: numbers and durations as text
//! - `json`: fields as JSON, which the formats `json` and `console` have in common
//! - `filter`: removes or changes fields before they are written
//! - `template`: a line with the values of chosen fields

mod filter;
mod json;
mod number;
mod template;

use std::borrow::Cow;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use causeway_log_output::{Output, TimeLayout, Zone};
use causeway_pipeline::build::{Problem, go_duration};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::entry::{Entry, FieldSink, Fields, Level, LogValue};
use crate::rendered::is_placeholder;
use filter::Filters;
pub use json::JsonSink;
use json::Spacing;
pub(crate) use json::json_text;
use template::LineTemplate;

/// A format, ready to use. Formatting allocates nothing if the line's buffer has room and no regular expression has to
/// allocate.
pub(super) struct Format {
    /// From the outside in.
    layers: Box<[Layer]>,
    base: Base,
    options: Options,
    /// Whether a line begins with its priority, for systemd's journal.
    has_priority: bool,
}

/// The format of a log that names none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DefaultFormat {
    Json,
    Console,
}

enum Layer {
    Filter(Filters),
    Append(AppendedFields),
}

enum Base {
    Json(JsonParts),
    Console,
    Template(LineTemplate),
}

/// Keys with the values that `append` sets.
type AppendedFields = Box<[(Box<str>, Constant)]>;

/// A value of `append`.
enum Constant {
    Text(Box<str>),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
}

/// The options that the formats have in common. An absent key omits its part of the entry.
struct Options {
    message_key: Option<Box<str>>,
    level_key: Option<Box<str>>,
    time_key: Option<Box<str>>,
    name_key: Option<Box<str>>,
    line_ending: Box<str>,
    time: TimeFormat,
    durations: DurationFormat,
    level: LevelFormat,
}

/// The parts of a JSON line that are known at load.
struct JsonParts {
    /// The line up to the value of the time, by level.
    openings: [Box<[u8]>; Level::ALL.len()],
    /// `,"logger":`
    name: Option<Box<[u8]>>,
    /// `,"msg":`
    message: Option<Box<[u8]>>,
}

enum TimeFormat {
    Seconds,
    Milliseconds,
    Nanoseconds,
    Layout(TimeLayout),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum DurationFormat {
    #[default]
    Seconds,
    Milliseconds,
    Nanoseconds,
    /// Go's notation: `1.5ms`.
    Text,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LevelFormat {
    Lower,
    Upper,
    Colour,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct OptionsConfig {
    #[serde(default, rename = "format")]
    _format: String,
    message_key: Option<String>,
    level_key: Option<String>,
    time_key: Option<String>,
    name_key: Option<String>,
    /// No entry has a source line or a stack trace.
    caller_key: Option<String>,
    stacktrace_key: Option<String>,
    line_ending: Option<String>,
    #[serde(default)]
    time_format: String,
    #[serde(default)]
    time_local: bool,
    #[serde(default)]
    duration_format: String,
    #[serde(default)]
    level_format: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrapConfig {
    #[serde(default)]
    wrap: Option<Map<String, Value>>,
    #[serde(default)]
    fields: Map<String, Value>,
}

impl Format {
    /// Reads a log's `encoder`.
    ///
    /// # Errors
    /// An unknown format, option or filter, or a value out of range.
    pub(super) fn read(
        written: Option<&Map<String, Value>>,
        default: DefaultFormat,
        output: &Output,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let mut layers = Vec::new();
        let mut has_priority = output.is_journal();
        let (base, mut options) = Self::read_layers(written, default, output, &mut layers, &mut has_priority, build)?;
        if has_priority && matches!(base, Base::Console) {
            // As in Caddy: journald has the time of each line itself.
            options.time_key = None;
        }
        Ok(Self { layers: layers.into(), base, options, has_priority })
    }

    fn read_layers(
        written: Option<&Map<String, Value>>,
        default: DefaultFormat,
        output: &Output,
        layers: &mut Vec<Layer>,
        has_priority: &mut bool,
        build: &mut Build<'_>,
    ) -> Result<(Base, Options), BuildError> {
        let nothing = Map::new();
        let name = match written {
            Some(written) => match written.get("format").and_then(Value::as_str) {
                Some(name) => name,
                None => return Err(build.refuse("no format", "an object with a 'format' key that names one")),
            },
            None if default == DefaultFormat::Console => "console",
            None => "json",
        };
        let written = written.unwrap_or(&nothing);
        let without_format = |written: &Map<String, Value>| {
            let mut rest = written.clone();
            rest.shift_remove("format");
            Value::Object(rest)
        };
        match name {
            "console" => Ok((Base::Console, Options::read(written, DefaultFormat::Console, output, build)?)),
            "json" => {
                let options = Options::read(written, DefaultFormat::Json, output, build)?;
                Ok((Base::Json(JsonParts::new(&options)), options))
            }
            "transform" => {
                let mut rest = written.clone();
                let template = LineTemplate::read(&mut rest, build)?;
                Ok((Base::Template(template), Options::read(&rest, DefaultFormat::Json, output, build)?))
            }
            wrapper @ ("filter" | "append" | "journald") => {
                let WrapConfig { wrap, fields } = build.parse(&without_format(written))?;
                match wrapper {
                    "filter" => layers.push(Layer::Filter(build.at("fields", |build| Filters::read(&fields, build))?)),
                    "append" => layers.push(Layer::Append(build.at("fields", |build| constants(&fields, build))?)),
                    _ => {
                        if let Some(field) = fields.keys().next() {
                            return Err(build.refuse(field, "no fields: journald only wraps a format"));
                        }
                        *has_priority = true;
                    }
                }
                build.at("wrap", |build| Self::read_layers(wrap.as_ref(), default, output, layers, has_priority, build))
            }
            name => Err(build.error(Problem::UnknownModule { kind: "log encoder", name: name.to_owned() })),
        }
    }

    /// Appends the line of an entry, with its end.
    pub(super) fn write(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        if self.has_priority {
            // Writing to a vector cannot fail.
            let _ = write!(out, "<{}>", entry.level.priority());
        }
        let fields = Layered { layers: &self.layers, fields: entry.fields };
        match &self.base {
            Base::Json(parts) => self.options.json(parts, entry, &fields, out),
            Base::Console => self.options.console(entry, &fields, out),
            Base::Template(template) => template.write(entry, &fields, &self.options, out),
        }
        out.extend_from_slice(self.options.line_ending.as_bytes());
    }
}

impl JsonParts {
    fn new(options: &Options) -> Self {
        let member = |key: &Option<Box<str>>| {
            let mut out = b"{".to_vec();
            let mut sink = JsonSink::within(&mut out, options.durations);
            sink.key((&**key.as_ref()?).into());
            out[0] = b',';
            Some(out.into_boxed_slice())
        };
        let opening = |level| {
            let mut out = b"{".to_vec();
            let mut sink = JsonSink::within(&mut out, options.durations);
            if let Some(key) = &options.level_key {
                sink.key((&**key).into());
                sink.quoted(|out| options.write_level(level, out));
            }
            if let Some(key) = &options.time_key {
                sink.key((&**key).into());
            }
            out.into()
        };
        let (name, message) = (member(&options.name_key), member(&options.message_key));
        Self { openings: Level::ALL.map(opening), name, message }
    }
}

impl Options {
    fn read(
        written: &Map<String, Value>,
        defaults: DefaultFormat,
        output: &Output,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let config: OptionsConfig = build.parse(&Value::Object(written.clone()))?;
        for (key, name) in [("caller_key", &config.caller_key), ("stacktrace_key", &config.stacktrace_key)] {
            if name.as_ref().is_some_and(|name| !name.is_empty()) {
                build.warn_unused(key, "no entry has a source line or a stack trace");
            }
        }
        let key = |written: Option<String>, usual: &str| {
            let key = written.unwrap_or_else(|| usual.to_owned());
            (!key.is_empty()).then(|| key.into_boxed_str())
        };
        let is_console = defaults == DefaultFormat::Console;
        let local = if config.time_local { Zone::Local } else { Zone::Utc };
        let time = match &*config.time_format {
            "" if is_console => TimeFormat::Layout(TimeLayout::new("2006/01/02 15:04:05.000", local)),
            "" | "unix_seconds_float" => TimeFormat::Seconds,
            "unix_milli_float" => TimeFormat::Milliseconds,
            "unix_nano" => TimeFormat::Nanoseconds,
            // Caddy writes this format in the local zone, with or without `time_local`.
            "iso8601" => TimeFormat::Layout(TimeLayout::new("2006-01-02T15:04:05.000Z0700", Zone::Local)),
            "rfc3339" => TimeFormat::Layout(TimeLayout::new("2006-01-02T15:04:05Z07:00", local)),
            "rfc3339_nano" => TimeFormat::Layout(TimeLayout::new("2006-01-02T15:04:05.999999999Z07:00", local)),
            "wall" => TimeFormat::Layout(TimeLayout::new("2006/01/02 15:04:05", local)),
            "wall_milli" => TimeFormat::Layout(TimeLayout::new("2006/01/02 15:04:05.000", local)),
            "wall_nano" => TimeFormat::Layout(TimeLayout::new("2006/01/02 15:04:05.000000000", local)),
            "common_log" => TimeFormat::Layout(TimeLayout::new(COMMON_LOG_TIME, local)),
            layout => TimeFormat::Layout(TimeLayout::new(layout, local)),
        };
        let durations = build.at("duration_format", |build| match &*config.duration_format {
            "" | "s" | "second" | "seconds" => Ok(DurationFormat::Seconds),
            "ms" | "milli" | "millis" => Ok(DurationFormat::Milliseconds),
            "ns" | "nano" | "nanos" => Ok(DurationFormat::Nanoseconds),
            "string" => Ok(DurationFormat::Text),
            other => Err(build.refuse(other, "s, ms, ns or string")),
        })?;
        let level = build.at("level_format", |build| match &*config.level_format {
            // DEVIATES Caddy, whose console format writes colours into files too.
            "" if is_console && output.is_terminal() && shows_colour() => Ok(LevelFormat::Colour),
            "" if is_console => Ok(LevelFormat::Upper),
            "" | "lower" => Ok(LevelFormat::Lower),
            "upper" => Ok(LevelFormat::Upper),
            "color" => Ok(LevelFormat::Colour),
            other => Err(build.refuse(other, "lower, upper or color")),
        })?;
        Ok(Self {
            message_key: key(config.message_key, "msg"),
            level_key: key(config.level_key, "level"),
            time_key: key(config.time_key, "ts"),
            name_key: key(config.name_key, "logger"),
            line_ending: config.line_ending.filter(|ending| !ending.is_empty()).unwrap_or_else(|| "\n".into()).into(),
            time,
            durations,
            level,
        })
    }

    /// Appends an entry as one JSON object.
    fn json(&self, parts: &JsonParts, entry: &Entry<'_>, fields: &dyn Fields, out: &mut Vec<u8>) {
        out.extend_from_slice(&parts.openings[entry.level as usize]);
        match self.time {
            _ if self.time_key.is_none() => {}
            TimeFormat::Layout(_) => {
                JsonSink::within(out, self.durations).quoted(|out| self.write_time(entry.time, out));
            }
            _ => self.write_time(entry.time, out),
        }
        if let Some(member) = parts.name.as_ref().filter(|_| !entry.logger.is_empty()) {
            json::text_member(out, member, entry.logger.as_bytes());
        }
        if let Some(member) = &parts.message {
            json::text_member(out, member, entry.message.as_bytes());
        }
        fields.visit_json(&mut JsonSink::within(out, self.durations));
        out.push(b'}');
    }

    /// Appends an entry as columns with tabs between them, its fields as JSON in the last one.
    fn console(&self, entry: &Entry<'_>, fields: &dyn Fields, out: &mut Vec<u8>) {
        let start = out.len();
        let column = |out: &mut Vec<u8>, is_shown: bool, write: &dyn Fn(&mut Vec<u8>)| {
            if is_shown {
                if out.len() > start {
                    out.push(b'\t');
                }
                write(out);
            }
        };
        column(out, self.time_key.is_some(), &|out| self.write_time(entry.time, out));
        column(out, self.level_key.is_some(), &|out| self.write_level(entry.level, out));
        let has_name = self.name_key.is_some() && !entry.logger.is_empty();
        column(out, has_name, &|out| out.extend_from_slice(entry.logger.as_bytes()));
        column(out, self.message_key.is_some(), &|out| json::escape(out, entry.message.as_bytes(), json::Quotes::Raw));
        let before = out.len();
        if before > start {
            out.push(b'\t');
        }
        out.push(b'{');
        let empty = out.len();
        fields.visit_json(&mut JsonSink::new(out, Spacing::Spaced, self.durations));
        if out.len() == empty {
            out.truncate(before);
        } else {
            out.push(b'}');
        }
    }

    fn write_level(&self, level: Level, out: &mut Vec<u8>) {
        match self.level {
            LevelFormat::Lower => out.extend_from_slice(level.lower().as_bytes()),
            LevelFormat::Upper => out.extend_from_slice(level.upper().as_bytes()),
            LevelFormat::Colour => {
                let _ = write!(out, "\x1b[{}m{}\x1b[0m", level.colour(), level.upper());
            }
        }
    }

    fn write_time(&self, time: SystemTime, out: &mut Vec<u8>) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = since.subsec_nanos();
        match &self.time {
            // Caddy's floats have about this precision too: 100 ns.
            TimeFormat::Seconds => number::fixed(out, since.as_secs(), nanoseconds / 100, 7),
            TimeFormat::Milliseconds => {
                let milliseconds = since.as_secs() * 1000 + u64::from(nanoseconds / 1_000_000);
                number::fixed(out, milliseconds, nanoseconds % 1_000_000 / 100, 4);
            }
            TimeFormat::Nanoseconds => number::unsigned(out, whole(since.as_nanos())),
            TimeFormat::Layout(layout) => layout.write(time, out),
        }
    }
}

/// Saturates at `u64::MAX` ns, about 584 years.
fn whole(nanoseconds: u128) -> u64 {
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// The time of the common log format.
const COMMON_LOG_TIME: &str = "02/Jan/2006:15:04:05 -0700";

/// Whether a terminal gets colours: unless `NO_COLOR` is set and not empty (no-color.org).
fn shows_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl DurationFormat {
    fn write(self, span: Duration, out: &mut Vec<u8>) {
        match self {
            Self::Seconds => number::fixed(out, span.as_secs(), span.subsec_nanos(), 9),
            Self::Milliseconds => number::unsigned(out, whole(span.as_millis())),
            Self::Nanoseconds => number::unsigned(out, whole(span.as_nanos())),
            Self::Text => go_duration(span, out),
        }
    }
}

/// Fields as the layers change them, from the outer layer on.
struct Layered<'l> {
    layers: &'l [Layer],
    fields: &'l dyn Fields,
}

impl Fields for Layered<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        match self.layers.split_first() {
            None => self.fields.visit(sink),
            Some((Layer::Filter(filters), layers)) => {
                Layered { layers, fields: &filters.of(self.fields) }.visit(sink);
            }
            Some((Layer::Append(constants), layers)) => {
                Layered { layers, fields: &Appended { fields: self.fields, constants } }.visit(sink);
            }
        }
    }

    fn visit_json(&self, sink: &mut JsonSink<'_>) {
        match self.layers.split_first() {
            None => self.fields.visit_json(sink),
            Some((Layer::Filter(_), _)) => self.visit(sink),
            Some((Layer::Append(constants), layers)) => {
                Layered { layers, fields: &Appended { fields: self.fields, constants } }.visit_json(sink);
            }
        }
    }
}

/// Fields with those of `append` after them.
struct Appended<'a> {
    fields: &'a dyn Fields,
    constants: &'a [(Box<str>, Constant)],
}

impl Fields for Appended<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        self.fields.visit(sink);
        self.constants(sink);
    }

    fn visit_json(&self, sink: &mut JsonSink<'_>) {
        self.fields.visit_json(sink);
        self.constants(sink);
    }
}

impl Appended<'_> {
    fn constants(&self, sink: &mut dyn FieldSink) {
        for (key, constant) in self.constants {
            sink.value((&**key).into(), constant.value());
        }
    }
}

impl Constant {
    fn value(&self) -> LogValue<'_> {
        match self {
            Self::Text(text) => LogValue::Text(text.as_bytes()),
            Self::Unsigned(number) => LogValue::Unsigned(*number),
            Self::Signed(number) => LogValue::Signed(*number),
            Self::Float(number) => LogValue::Float(*number),
            Self::Bool(value) => LogValue::Bool(*value),
        }
    }
}

// Caddy's documentation of `append`: a value is a constant, or one placeholder that is known at load.
fn constants(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<AppendedFields, BuildError> {
    let mut constants = Vec::with_capacity(written.len());
    for (key, value) in written {
        let constant = match value {
            Value::Bool(value) => Constant::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Constant::Unsigned(number),
                (None, Some(number)) => Constant::Signed(number),
                (None, None) => Constant::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => {
                let text = match is_placeholder(text) {
                    true => Cow::Owned(build.at(key, |build| super::destination::at_load(text, build))?),
                    false => Cow::Borrowed(&**text),
                };
                Constant::Text(text.into())
            }
            other => {
                return build.at(key, |build| Err(build.refuse(other.to_string(), "a text, a number, true or false")));
            }
        };
        constants.push((key.as_str().into(), constant));
    }
    Ok(constants.into())
}
