//! `splitFrontMatter`: the data before a document, in YAML, TOML or JSON.

use std::rc::Rc;

use causeway_go_template::{Call, Failure, IntegerType, Object, Value};
use serde_json::Value as Json;

/// Splits a document into its front matter (`.Meta`) and the rest (`.Body`).
pub(super) fn split(document: &str, call: &mut Call<'_>) -> Result<Value, Failure> {
    // The parsers' values are at most some times as large.
    call.allocate(document.len().saturating_mul(8))?;
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
        "---" => serde_saphyr::from_str::<Option<Json>>(matter)
            .map_err(|error| format!("yaml: {error}"))?
            .unwrap_or_default(),
        "+++" => toml::from_str::<Json>(matter).map_err(|error| format!("toml: {error}"))?,
        _ => serde_json::from_str(&format!("{{{matter}}}")).map_err(|error| format!("json: {error}"))?,
    };
    let meta = match meta {
        Json::Object(_) => value(meta),
        Json::Null => nothing(),
        _ => return Err(format!("the front matter is no list of keys with values: {matter:?}").into()),
    };
    made(meta, &document[end + len..])
}

/// Converts data; JSON's numbers are floats, as in Go.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => value.into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => number.into(),
            (None, None) => Value::Integer(0, IntegerType::Int64),
        },
        Json::String(text) => text.into(),
        Json::Array(items) => Value::list(items.into_iter().map(value).collect()),
        Json::Object(members) => Value::map(members.into_iter().map(|(name, member)| (name, value(member)))),
    }
}

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
}
