//! `splitFrontMatter`: the data before a document, in YAML, TOML or JSON.
//!
//! - `yaml`: the values of YAML

mod yaml;

use std::rc::Rc;

use causeway_go_template::{CallContext, FunctionError, IntegerType, Object, Value};
use jiff::tz::TimeZone;
use serde_json::Value as Json;
use toml::Value as Toml;

use super::dates;

/// Splits a document into its front matter (`.Meta`) and the rest (`.Body`).
pub(super) fn split(document: &str, call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
    // The parsers' values are at most about 8 times as large as the text.
    call.charge_memory(document.len().saturating_mul(8))?;
    let nothing = || Value::map::<&str>([]);
    let made = |meta, body: &str| Ok(Value::Object(Rc::new(Document { meta, body: body.into() })));
    // Empty lines before it do not count.
    let Some(start) = document.find(|letter: char| !letter.is_whitespace()) else { return made(nothing(), document) };
    let line_start = document[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = document[start..].find('\n').map_or(document.len(), |at| start + at);
    let fence = document[line_start..line_end].trim();
    let closing: &[&str] = match fence {
        "---" => &["---", "..."],
        "+++" => &["+++"],
        "{" => &["}"],
        _ => return made(nothing(), document),
    };
    let ends = closing.iter().filter_map(|end| Some((document[line_end..].find(&format!("\n{end}"))?, end.len())));
    let (at, len) = ends.min().ok_or("unterminated front matter")?;
    let end = line_end + at + 1;
    let matter = &document[line_end..end];
    let meta = match fence {
        "---" => yaml::parse(matter).map_err(|error| format!("yaml: {error}"))?,
        "+++" => of_toml(Toml::Table(matter.parse().map_err(|error| format!("toml: {error}"))?)),
        _ => of_json(serde_json::from_str(&format!("{{{matter}}}")).map_err(|error| format!("json: {error}"))?),
    };
    let meta = match meta {
        Value::Map(_) => meta,
        Value::Nil => nothing(),
        _ => return Err(format!("the front matter is no list of keys with values: {matter:?}").into()),
    };
    made(meta, &document[end + len..])
}

/// Converts JSON, whose numbers are floats, as in Go.
fn of_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => value.into(),
        Json::Number(number) => number.as_f64().unwrap_or_default().into(),
        Json::String(text) => text.into(),
        Json::Array(items) => Value::list(items.into_iter().map(of_json).collect()),
        Json::Object(members) => Value::map(members.into_iter().map(|(name, member)| (name, of_json(member)))),
    }
}

/// Converts TOML. As in Go, a time without a zone is in the server's.
fn of_toml(toml: Toml) -> Value {
    match toml {
        Toml::String(text) => text.into(),
        Toml::Integer(number) => Value::Integer(number, IntegerType::Int64),
        Toml::Float(number) => number.into(),
        Toml::Boolean(value) => value.into(),
        Toml::Datetime(time) => {
            let text = time.to_string();
            dates::by_layouts(&TOML_TIMES, &text, &TimeZone::system()).unwrap_or_else(|| text.into())
        }
        Toml::Array(items) => Value::list(items.into_iter().map(of_toml).collect()),
        Toml::Table(members) => Value::map(members.into_iter().map(|(name, member)| (name, of_toml(member)))),
    }
}

/// TOML's forms of times (TOML 1.0, sections on dates and times), as layouts of Go.
const TOML_TIMES: [&str; 4] =
    ["2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02", "15:04:05.999999999"];

#[derive(Debug)]
struct Document {
    meta: Value,
    body: Value,
}

impl Object for Document {
    fn type_name(&self) -> &str {
        "templates.parsedMarkdownDoc"
    }

    fn kind(&self) -> &str {
        "struct"
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Meta" => Some(self.meta.clone()),
            "Body" => Some(self.body.clone()),
            _ => None,
        }
    }

    fn members(&self) -> Option<Vec<(&'static str, Value)>> {
        Some(vec![("Meta", self.meta.clone()), ("Body", self.body.clone())])
    }
}
