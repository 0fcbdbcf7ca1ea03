//! `transform`: a line with the values of chosen fields, such as the common log format.

use causeway_pipeline::{Build, BuildError};
use serde_json::{Map, Value};

use super::super::entry::{Entry, FieldSink, Fields, LogKey, LogValue};
use super::json::{JsonSink, Quotes, Spacing, escape};
use super::{COMMON_LOG_TIME, Options};
use causeway_log_output::{TimeLayout, Zone};

/// Replaces a value that an entry lacks.
const ABSENT: &str = "-";
/// The common log format of NCSA's and Apache's servers, and with two more fields the combined one.
const COMMON: &str =
    "{request>remote_ip} - {user_id} [{ts}] \"{request>method} {request>uri} {request>proto}\" {status} {size}";
const COMBINED: &str = " \"{request>headers>Referer>[0]}\" \"{request>headers>User-Agent>[0]}\"";

/// A compiled template.
pub(super) struct LineTemplate {
    pieces: Box<[TemplatePiece]>,
    absent: Box<str>,
    quotes: Quotes,
    /// The time's format in `{common_log}` and `{combined_log}`, unless `time_format` is set.
    common_time: Option<TimeLayout>,
}

enum TemplatePiece {
    Text(Box<str>),
    /// The first of these that has a text.
    Field(Box<[Source]>),
}

enum Source {
    Time,
    Level,
    Logger,
    Message,
    /// The names of nested fields, the outermost first; `[N]` is an element of a list.
    Path(Box<[Box<str>]>),
}

impl LineTemplate {
    /// Takes the options of `transform` from `written` and leaves those that all formats have.
    pub(super) fn read(written: &mut Map<String, Value>, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut text = |key: &str, build: &mut Build<'_>| match written.shift_remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => build.at(key, |build| Err(build.refuse(other.to_string(), "a text"))),
        };
        let template = text("template", build)?.filter(|template| !template.is_empty());
        let absent = text("placeholder", build)?.unwrap_or_else(|| ABSENT.into());
        let quotes = match written.shift_remove("unescape_strings") {
            None | Some(Value::Bool(false)) => Quotes::Escaped,
            Some(Value::Bool(true)) => Quotes::Raw,
            Some(other) => {
                return build.at("unescape_strings", |build| Err(build.refuse(other.to_string(), "true or false")));
            }
        };
        let template = template.unwrap_or_else(|| "{common_log}".into());
        let is_common = template.contains("{common_log}") || template.contains("{combined_log}");
        let has_time = written.get("time_format").and_then(Value::as_str).is_some_and(|format| !format.is_empty());
        let zone =
            if written.get("time_local").and_then(Value::as_bool) == Some(true) { Zone::Local } else { Zone::Utc };
        let common_time = (is_common && !has_time).then(|| TimeLayout::new(COMMON_LOG_TIME, zone));
        let template =
            template.replace("{common_log}", COMMON).replace("{combined_log}", &format!("{COMMON}{COMBINED}"));
        let pieces = build.at("template", |build| pieces(&template, build))?;
        Ok(Self { pieces: pieces.into(), absent: absent.into(), quotes, common_time })
    }

    /// Appends the line, without its end.
    pub(super) fn write(&self, entry: &Entry<'_>, fields: &dyn Fields, options: &Options, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePiece::Field(sources) => {
                    let start = out.len();
                    let is_found = sources.iter().any(|source| {
                        self.write_source(source, entry, fields, options, out);
                        out.len() > start
                    });
                    if !is_found {
                        out.extend_from_slice(self.absent.as_bytes());
                    }
                }
            }
        }
    }

    fn write_source(
        &self,
        source: &Source,
        entry: &Entry<'_>,
        fields: &dyn Fields,
        options: &Options,
        out: &mut Vec<u8>,
    ) {
        match source {
            Source::Time => match &self.common_time {
                Some(layout) => layout.write(entry.time, out),
                None => options.write_time(entry.time, out),
            },
            Source::Level => options.write_level(entry.level, out),
            Source::Logger => escape(out, entry.logger.as_bytes(), self.quotes),
            Source::Message => escape(out, entry.message.as_bytes(), self.quotes),
            Source::Path(path) => {
                fields.visit(&mut Find { path, quotes: self.quotes, options, is_found: false, out });
            }
        }
    }
}

/// Splits a template into texts and fields. A brace without its counterpart is text.
fn pieces(template: &str, build: &mut Build<'_>) -> Result<Vec<TemplatePiece>, BuildError> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), template);
    while let Some(start) = rest.find('{') {
        let Some(len) = rest[start..].find('}') else { break };
        let name = &rest[start + 1..start + len];
        text.push_str(&rest[..start]);
        rest = &rest[start + len + 1..];
        if name.starts_with("env.") || name.starts_with("system.") {
            text.push_str(&super::super::destination::at_load(&format!("{{{name}}}"), build)?);
            continue;
        }
        if name.is_empty() || name.split([':', '>']).any(str::is_empty) {
            return Err(build.refuse(format!("{{{name}}}"), "the name of a field, such as {request>remote_ip}"));
        }
        if !text.is_empty() {
            pieces.push(TemplatePiece::Text(std::mem::take(&mut text).into()));
        }
        let sources = name.split(':').map(|source| match source {
            "ts" => Source::Time,
            "level" => Source::Level,
            "logger" => Source::Logger,
            "msg" => Source::Message,
            path => Source::Path(path.split('>').map(Box::from).collect()),
        });
        pieces.push(TemplatePiece::Field(sources.collect()));
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(TemplatePiece::Text(text.into()));
    }
    Ok(pieces)
}

/// Writes the value at a path.
struct Find<'f> {
    path: &'f [Box<str>],
    quotes: Quotes,
    options: &'f Options,
    is_found: bool,
    out: &'f mut Vec<u8>,
}

impl FieldSink for Find<'_> {
    fn value(&mut self, key: LogKey<'_>, value: LogValue<'_>) {
        let Some((first, below)) = self.path.split_first() else { return };
        if self.is_found || **first != *key.name() {
            return;
        }
        self.is_found = true;
        let (quotes, out) = (self.quotes, &mut *self.out);
        value.general(|value| match (value, below) {
            (LogValue::Text(text), []) => escape(out, text, quotes),
            (LogValue::Duration(span), []) => self.options.durations.write(span, out),
            (value, []) => JsonSink::new(out, Spacing::Dense, self.options.durations).bare(value),
            (LogValue::Texts(texts), [index]) => {
                let index = index.strip_prefix('[').and_then(|index| index.strip_suffix(']'));
                let Some(index) = index.and_then(|index| index.parse::<usize>().ok()) else { return };
                let mut at = 0;
                texts.each(&mut |text| {
                    if at == index {
                        escape(out, text, quotes);
                    }
                    at += 1;
                });
            }
            _ => {}
        });
    }

    fn object(&mut self, key: LogKey<'_>, fields: &dyn Fields) {
        let Some((first, below)) = self.path.split_first() else { return };
        if self.is_found || **first != *key.name() {
            return;
        }
        self.is_found = true;
        if below.is_empty() {
            JsonSink::new(self.out, Spacing::Dense, self.options.durations).members(fields);
        } else {
            let mut inner =
                Find { path: below, quotes: self.quotes, options: self.options, is_found: false, out: self.out };
            fields.visit(&mut inner);
        }
    }
}
