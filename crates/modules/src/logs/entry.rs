//! A message with its fields, before it is formatted.

use std::time::{Duration, SystemTime};

use super::JsonSink;

/// The importance of an entry, or the least one that a log takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// An event of normal operation.
    #[default]
    Info,
    /// A problem that did not make an operation fail.
    Warn,
    /// An operation failed.
    Error,
    /// No entry has this level; a log with it takes none.
    Panic,
    /// As `Panic`.
    Fatal,
}

impl Level {
    /// All levels, in the order of their numbers.
    pub(super) const ALL: [Self; 6] = [Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Panic, Self::Fatal];

    /// Returns the level of this name, in any case; an empty name is `info`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match &*name.to_ascii_lowercase() {
            "debug" => Self::Debug,
            "" | "info" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            "panic" => Self::Panic,
            "fatal" => Self::Fatal,
            _ => return None,
        })
    }

    pub(super) fn lower(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Fatal => "fatal",
        }
    }

    pub(super) fn upper(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
            Self::Panic => "PANIC",
            Self::Fatal => "FATAL",
        }
    }

    /// The colour of a terminal, as in Caddy.
    pub(super) fn colour(self) -> u8 {
        match self {
            Self::Debug => 35,
            Self::Info => 34,
            Self::Warn => 33,
            Self::Error | Self::Panic | Self::Fatal => 31,
        }
    }

    /// The priority of syslog(3), which systemd's journal reads.
    pub(super) fn priority(self) -> u8 {
        match self {
            Self::Debug => 7,
            Self::Info => 6,
            Self::Warn => 4,
            Self::Error => 3,
            Self::Panic | Self::Fatal => 2,
        }
    }
}

/// A message for the logs.
#[derive(Clone, Copy)]
pub struct Entry<'e> {
    /// Its importance.
    pub level: Level,
    /// When it happened.
    pub time: SystemTime,
    /// The name of the part of the server that logs it, such as `http.log.access.log0`.
    pub logger: &'e str,
    /// The message.
    pub message: &'e str,
    /// Its fields.
    pub fields: &'e dyn Fields,
}

/// The fields of an entry or of an object in it. They are visited in their order, so that formats and filters need no
/// copy.
pub trait Fields {
    /// Passes each field to `sink`.
    fn visit(&self, sink: &mut dyn FieldSink);

    /// As [`visit`](Self::visit), for the sink of most records. Types that are logged with each request override it, so
    /// that they are compiled for this sink, with constant keys.
    fn visit_json(&self, sink: &mut JsonSink<'_>) {
        self.visit(sink);
    }
}

/// Fields that are compiled for each kind of sink.
pub(crate) trait EachField {
    /// Passes each field to `sink`.
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S);
}

impl<F: EachField> Fields for F {
    fn visit(&self, sink: &mut dyn FieldSink) {
        self.each(sink);
    }

    fn visit_json(&self, sink: &mut JsonSink<'_>) {
        self.each(sink);
    }
}

/// The receiver of fields.
pub trait FieldSink {
    /// Takes a value.
    fn value(&mut self, key: LogKey<'_>, value: LogValue<'_>);

    /// Takes an object.
    fn object(&mut self, key: LogKey<'_>, fields: &dyn Fields);
}

/// The name of a field.
#[derive(Clone, Copy)]
pub struct LogKey<'k> {
    name: &'k str,
    /// The name as a member of an object, `,"name":`, if that is known: it is copied without a search for bytes to
    /// escape.
    json: Option<&'k str>,
}

impl<'k> LogKey<'k> {
    /// Returns the key of a member, which is `,"name":`. The name has nothing that JSON escapes. See [`key`] and
    /// [`LogKey::json_of`].
    pub(crate) const fn prepared(json: &'k str) -> Self {
        let (name, _) = json.split_at(json.len() - "\":".len());
        let (_, name) = name.split_at(",\"".len());
        Self { name, json: Some(json) }
    }

    /// Returns the member that [`prepared`](Self::prepared) takes.
    pub(crate) fn json_of(name: &str) -> String {
        format!(",\"{name}\":")
    }

    /// The name alone.
    pub fn name(self) -> &'k str {
        self.name
    }

    /// The member that [`prepared`](Self::prepared) took.
    pub(super) fn json(self) -> Option<&'k str> {
        self.json
    }
}

impl<'k> From<&'k str> for LogKey<'k> {
    fn from(name: &'k str) -> Self {
        Self { name, json: None }
    }
}

/// A constant [`LogKey`].
macro_rules! key {
    ($name:literal) => {
        const { $crate::logs::LogKey::prepared(concat!(",\"", $name, "\":")) }
    };
}
pub(crate) use key;

/// The value of a field.
#[derive(Clone, Copy)]
pub enum LogValue<'v> {
    /// No value.
    Null,
    /// A text; bytes that are not UTF-8 are written as U+FFFD.
    Text(&'v [u8]),
    /// A text of printable ASCII without `"` and `\`: it is copied without a search.
    Plain(&'v [u8]),
    /// A list of texts.
    Texts(&'v dyn TextList),
    /// A list of one text.
    OneText(&'v [u8]),
    /// A number.
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A time span; the format chooses its unit.
    Duration(Duration),
    /// A value that is already JSON, on one line.
    Json(&'v [u8]),
}

impl LogValue<'_> {
    /// Passes the value as one of the kinds that are not special cases of another kind.
    pub(super) fn general(self, take: impl FnOnce(LogValue<'_>)) {
        match self {
            Self::Plain(text) => take(LogValue::Text(text)),
            Self::OneText(text) => take(LogValue::Texts(&|take: &mut dyn FnMut(&[u8])| take(text))),
            value => take(value),
        }
    }
}

/// Texts that are visited in their order.
pub trait TextList {
    /// Passes each text to `take`.
    fn each(&self, take: &mut dyn FnMut(&[u8]));
}

impl<F: Fn(&mut dyn FnMut(&[u8]))> TextList for F {
    fn each(&self, take: &mut dyn FnMut(&[u8])) {
        self(take);
    }
}

/// No fields.
impl Fields for () {
    fn visit(&self, _: &mut dyn FieldSink) {}
}
