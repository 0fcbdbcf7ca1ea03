//! The values of YAML, with the types of Go's `yaml.v3`, which Caddy uses: the words `yes` and `off` are strings, `010` is 8, and a
//! timestamp without quotes is a time.

use std::fmt;

use causeway_go_template::Value;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{NonFiniteFloatPolicy, Spanned};

use super::super::dates;

/// The forms of timestamps that `yaml.v3` reads, as layouts of Go.
const TIMES: [&str; 4] =
    ["2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2"];

/// Parses a document. An empty one is nil.
pub(super) fn parse(document: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    let root: Option<Spanned<Node>> = serde_saphyr::from_str_with_options(document, options)?;
    Ok(root.map_or(Value::Nil, |root| value(root, document)))
}

/// A value before its strings are examined for times.
enum Node {
    Nil,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

fn value(node: Spanned<Node>, document: &str) -> Value {
    let start = node.defined.span().byte_offset().and_then(|at| usize::try_from(at).ok());
    match node.value {
        Node::Nil => Value::Nil,
        Node::Bool(value) => value.into(),
        Node::Integer(number) => Value::Int(number),
        Node::Float(number) => number.into(),
        Node::Text(text) => {
            // Text in quotes, in a block or after a tag is not a time.
            let is_plain = start.and_then(|at| document.get(at..)).is_some_and(|rest| rest.starts_with(&text));
            let time = if is_plain { dates::by_layouts(&TIMES, &text, Some(&TimeZone::UTC)) } else { None };
            time.unwrap_or_else(|| text.into())
        }
        Node::List(items) => Value::list(items.into_iter().map(|item| value(item, document)).collect()),
        Node::Map(members) => Value::map(members.into_iter().map(|(name, member)| (name, value(member, document)))),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nil)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        // Templates have no type for larger ones.
        Ok(i64::try_from(number).map_or(Node::Float(number as f64), Node::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Node::Map(map))
    }
}
