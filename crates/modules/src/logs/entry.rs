//! A message with its fields, before it is formatted.

use std::time::{Duration, SystemTime};

/// The importance of an entry, or the least one that a log takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// For finding faults.
    Debug,
    /// For the record.
    #[default]
    Info,
    /// An operator should look at it some time.
    Warn,
    /// The server could not do something.
    Error,
    /// No entry has this level; a log with it takes none.
    Panic,
    /// As `Panic`.
    Fatal,
}

impl Level {
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

/// The fields of an entry or of an object in it. They are visited in their order, so that formats and filters need no copy.
pub trait Fields {
    /// Passes each field to `sink`.
    fn visit(&self, sink: &mut dyn FieldSink);
}

/// The receiver of fields.
pub trait FieldSink {
    /// Takes a value.
    fn value(&mut self, key: &str, value: LogValue<'_>);

    /// Takes an object.
    fn object(&mut self, key: &str, fields: &dyn Fields);
}

/// The value of a field.
#[derive(Clone, Copy)]
pub enum LogValue<'v> {
    /// A text; bytes that are not UTF-8 are written as U+FFFD.
    Text(&'v [u8]),
    /// A list of texts.
    Texts(&'v dyn TextList),
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
