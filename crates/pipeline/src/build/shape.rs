//! Deserialises JSON to the types of a configuration, as serde does, with three exceptions.
//!
//! - A value of another type, or a number out of its range, is an error in JSON's words, not in Rust's: `found a list,
//!   expected an object`.
//! - A list is never accepted for a struct. Serde would fill the fields in order, so `[]` would be a configuration
//!   that serves no requests.
//! - `null` is an absent value, as in Go, whose programs write it for every unset pointer, slice and map. A struct's
//!   member gets its default, and a name that is none of its members remains an error; anywhere else, `null` is the
//!   empty value of the requested type. `Option` maps it to `None`, and [`Value`] to `Value::Null`, for configurations
//!   in which it has a meaning, such as the `header` matcher.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

use super::kind_of;

/// A deserialiser of a JSON value with the rules of this module, which apply to nested values too.
#[derive(Clone, Copy)]
pub struct Shape<'v>(pub &'v Value);

/// A deserialiser of a module's object, without the member that names the module.
pub(super) struct ModuleShape<'v> {
    pub(super) members: &'v Map<String, Value>,
    pub(super) name: &'static str,
}

/// Returns the members without those of a struct's `fields` that are null.
fn set_members<'v>(
    members: &'v Map<String, Value>,
    fields: &'static [&'static str],
) -> impl Iterator<Item = (&'v String, &'v Value)> {
    members.iter().filter(move |(key, value)| !value.is_null() || !fields.contains(&key.as_str()))
}

fn visit_members<'v, V: Visitor<'v>>(
    members: impl Iterator<Item = (&'v String, &'v Value)>,
    visitor: V,
) -> Result<V::Value, Error> {
    let mut members = MapDeserializer::new(members.map(|(key, value)| (key.as_str(), Shape(value))));
    let read = visitor.visit_map(&mut members)?;
    // An error if the visitor has not consumed all members.
    members.end().map(|()| read)
}

impl<'v> Deserializer<'v> for ModuleShape<'v> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
        visit_members(self.members.iter().filter(|(key, _)| *key != self.name), visitor)
    }

    fn deserialize_struct<V: Visitor<'v>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visit_members(set_members(self.members, fields).filter(|(key, _)| *key != self.name), visitor)
    }

    forward_to_deserialize_any! {
        <V: Visitor<'v>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The error for a value that is not of the expected type.
pub fn mistyped<E: serde::de::Error>(found: &Value, expected: &str) -> E {
    let (kind, value) = match found {
        Value::Number(number) => ("the number ", number.to_string()),
        Value::String(text) => ("the string ", format!("'{}'", text.escape_debug())),
        other => (kind_of(other), String::new()),
    };
    E::custom(format_args!("found {kind}{value}, expected {expected}"))
}

/// Implements methods for types: the values that they accept, their name in errors, and the empty value, which `null`
/// is.
macro_rules! types {
    ($($method:ident: $is:expr, $expected:literal, $empty:expr;)*) => {$(
        fn $method<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
            let empty: fn(V) -> Result<V::Value, Error> = $empty;
            let is: fn(&Value) -> bool = $is;
            match self.0 {
                Value::Null => empty(visitor),
                value if is(value) => self.deserialize_any(visitor),
                other => Err(mistyped(other, $expected)),
            }
        }
    )*};
}

/// Implements methods for types of whole numbers: the type, and its range in errors. `null` is 0.
macro_rules! whole_numbers {
    ($($method:ident: $type:ty, $range:literal;)*) => {$(
        fn $method<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = match self.0 {
                Value::Null => Some(0),
                Value::Number(number) => number.as_i128(),
                _ => None,
            };
            let Some(number) = number else { return Err(mistyped(self.0, "a whole number")) };
            let Ok(number) = <$type>::try_from(number) else {
                return Err(mistyped(self.0, concat!("a whole number ", $range)));
            };
            IntoDeserializer::<Error>::into_deserializer(number).deserialize_any(visitor)
        }
    )*};
}

impl<'v> IntoDeserializer<'v, Error> for Shape<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'v> Deserializer<'v> for Shape<'v> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(array) => {
                let mut list = SeqDeserializer::new(array.iter().map(Shape));
                let read = visitor.visit_seq(&mut list)?;
                list.end().map(|()| read)
            }
            Value::Object(members) => visit_members(members.iter(), visitor),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'v>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'v>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(members) => visit_members(set_members(members, fields), visitor),
            Value::Null => visit_members(std::iter::empty(), visitor),
            // Among them a list, which serde's derived visitors would accept.
            other => Err(mistyped(other, "an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'v>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    whole_numbers! {
        deserialize_i8: i8, "from -128 to 127";
        deserialize_i16: i16, "from -32768 to 32767";
        deserialize_i32: i32, "from -2147483648 to 2147483647";
        deserialize_i64: i64, "below 2^63";
        deserialize_u8: u8, "from 0 to 255";
        deserialize_u16: u16, "from 0 to 65535";
        deserialize_u32: u32, "from 0 to 4294967295";
        deserialize_u64: u64, "from 0";
    }

    types! {
        deserialize_bool: Value::is_boolean, "true or false", |visitor| visitor.visit_bool(false);
        deserialize_f32: Value::is_number, "a number", |visitor| visitor.visit_f32(0.0);
        deserialize_f64: Value::is_number, "a number", |visitor| visitor.visit_f64(0.0);
        deserialize_str: Value::is_string, "a string", |visitor| visitor.visit_str("");
        deserialize_string: Value::is_string, "a string", |visitor| visitor.visit_str("");
        deserialize_seq: Value::is_array, "a list",
            |visitor| visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<Shape<'v>>()));
        deserialize_map: Value::is_object, "an object", |visitor| visit_members(std::iter::empty(), visitor);
    }

    forward_to_deserialize_any! {
        <V: Visitor<'v>>
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        pair: (u8, f64),
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    struct Inner {
        #[serde(default)]
        text: String,
    }

    /// A struct with a member of each kind.
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Kinds {
        #[serde(default)]
        truth: bool,
        #[serde(default = "seven")]
        number: u16,
        #[serde(default)]
        ratio: f64,
        #[serde(default)]
        text: String,
        #[serde(default)]
        list: Vec<String>,
        #[serde(default)]
        map: BTreeMap<String, Vec<String>>,
        #[serde(default)]
        inner: Inner,
        #[serde(default)]
        optional: Option<Vec<u8>>,
        #[serde(default)]
        free: BTreeMap<String, Value>,
    }

    fn seven() -> u16 {
        7
    }

    // encoding/json, Unmarshal: null leaves the destination unchanged; in a list or a map that is the empty value.
    #[test]
    fn null_is_absent() {
        let read = |value: &Value| Kinds::deserialize(Shape(value)).map_err(|error| error.to_string());
        let module = |value: &Value| {
            let members = value.as_object().unwrap();
            Kinds::deserialize(ModuleShape { members, name: "handler" }).map_err(|error| error.to_string())
        };
        let absent = || Kinds { number: 7, ..Kinds::default() };
        for key in ["truth", "number", "ratio", "text", "list", "map", "inner", "optional", "free"] {
            assert_eq!(read(&json!({ key: null })), Ok(absent()), "{key}");
            assert_eq!(module(&json!({ "handler": "x", key: null })), Ok(absent()), "{key}");
        }
        assert_eq!(read(&Value::Null), Ok(absent()));
        let map = BTreeMap::from([("a".to_owned(), Vec::new())]);
        assert_eq!(read(&json!({ "map": { "a": null } })), Ok(Kinds { map, ..absent() }));
        let list = vec!["a".to_owned(), String::new()];
        assert_eq!(read(&json!({ "list": ["a", null] })), Ok(Kinds { list, ..absent() }));
        let free = BTreeMap::from([("a".to_owned(), Value::Null)]);
        assert_eq!(read(&json!({ "free": { "a": null } })), Ok(Kinds { free, ..absent() }));
        // Caddy refuses a name that is none of the members also with null, so that a wrong name is noticed.
        for read in [read(&json!({ "other": null })), module(&json!({ "handler": "x", "other": null }))] {
            let error = read.unwrap_err();
            assert!(error.starts_with("unknown field `other`"), "{error}");
        }
    }

    // Each type in JSON's words.
    #[test]
    fn a_value_of_another_type() {
        for (key, value, want) in [
            ("truth", json!("yes"), "found the string 'yes', expected true or false"),
            ("number", json!("7"), "found the string '7', expected a whole number"),
            ("number", json!(7.5), "found the number 7.5, expected a whole number"),
            ("number", json!(70_000), "found the number 70000, expected a whole number from 0 to 65535"),
            ("number", json!(-1), "found the number -1, expected a whole number from 0 to 65535"),
            ("ratio", json!(true), "found a boolean, expected a number"),
            ("text", json!(["a"]), "found a list, expected a string"),
            ("list", json!("a\nb"), "found the string 'a\\nb', expected a list"),
            ("map", json!([]), "found a list, expected an object"),
        ] {
            let json = json!({ key: value });
            assert_eq!(Kinds::deserialize(Shape(&json)).unwrap_err().to_string(), want, "{json}");
        }
    }

    fn read(value: &Value) -> Result<Outer, String> {
        Outer::deserialize(Shape(value)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_is_no_object() {
        let inner = || Inner { text: "x".to_owned() };
        for (value, want) in [
            (json!({}), Ok(Outer { inner: None, list: vec![], pair: (0, 0.0) })),
            (json!({ "inner": null, "pair": [1, 2] }), Ok(Outer { inner: None, list: vec![], pair: (1, 2.0) })),
            (
                json!({ "inner": { "text": "x" }, "list": [{ "text": "x" }] }),
                Ok(Outer { inner: Some(inner()), list: vec![inner()], pair: (0, 0.0) }),
            ),
            (json!([]), Err("found a list, expected an object")),
            (json!({ "inner": [] }), Err("found a list, expected an object")),
            (json!({ "inner": ["x"] }), Err("found a list, expected an object")),
            (json!({ "list": [["x"]] }), Err("found a list, expected an object")),
            (json!({ "list": {} }), Err("found an object, expected a list")),
            (json!({ "inner": { "text": 1.5 } }), Err("found the number 1.5, expected a string")),
            (json!({ "pair": [1, 2, 3] }), Err("invalid length 3, expected 2 elements in sequence")),
        ] {
            assert_eq!(read(&value), want.map_err(str::to_owned), "{value}");
        }
    }
}
