//! The values of YAML, with the types of Go's `yaml.v3`, which Caddy uses: the words `yes` and `off` are strings, `010`
//! is 8, and a timestamp without quotes is a time.

use std::fmt;

use causeway_go_template::Value;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{NonFiniteFloatPolicy, Spanned, UserMessageFormatter};

use super::super::dates;

/// The forms of timestamps that `yaml.v3` reads, as layouts of Go.
const TIMES: [&str; 4] =
    ["2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2"];

/// Lists and dictionaries within each other. The library's 64 need more stack than a thread has in a build without
/// optimization.
const DEPTH_MAX: usize = 32;

/// Parses a document. An empty one is nil.
///
/// # Errors
/// If it is not YAML, has a key twice, or is nested too deeply: the cause, the line and the column.
pub(super) fn parse(document: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        with_snippet: false,
        strict_booleans: true,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    let parsed = serde_saphyr::from_str_with_options(document, options);
    // The library's other form has advice for programmers.
    let root: Option<Spanned<YamlNode>> =
        parsed.map_err(|error: serde_saphyr::Error| error.render_with_formatter(&UserMessageFormatter))?;
    Ok(root.map_or(Value::Nil, |root| value(root, document)))
}

/// A value before its strings are examined for times.
enum YamlNode {
    Nil,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<YamlNode>>),
    Map(Vec<(String, Spanned<YamlNode>)>),
}

fn value(node: Spanned<YamlNode>, document: &str) -> Value {
    let start = node.defined.span().byte_offset().and_then(|at| usize::try_from(at).ok());
    match node.value {
        YamlNode::Nil => Value::Nil,
        YamlNode::Bool(value) => value.into(),
        YamlNode::Integer(number) => Value::Int(number),
        YamlNode::Float(number) => number.into(),
        YamlNode::Text(text) => {
            // Text in quotes, in a block or after a tag is not a time.
            let is_plain = start.and_then(|at| document.get(at..)).is_some_and(|rest| rest.starts_with(&text));
            let time = if is_plain { dates::by_layouts(&TIMES, &text, &TimeZone::UTC) } else { None };
            time.unwrap_or_else(|| text.into())
        }
        YamlNode::List(items) => Value::list(items.into_iter().map(|item| value(item, document)).collect()),
        YamlNode::Map(members) => Value::map(members.into_iter().map(|(name, member)| (name, value(member, document)))),
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML")
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Nil)
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        YamlNode::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<YamlNode, E> {
        // Templates have no type for larger ones.
        Ok(i64::try_from(number).map_or(YamlNode::Float(number as f64), YamlNode::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlNode::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<YamlNode, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(YamlNode::Map(map))
    }
}
