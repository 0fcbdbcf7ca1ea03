//! JSON read into what was written for it, as serde does, except that a list is never taken for an object: serde would fill the
//! fields in order, and `[]` would be a configuration that serves nothing.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// A value to be read; the same holds for all within it.
#[derive(Clone, Copy)]
pub struct Shape<'v>(pub &'v Value);

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
            Value::Object(map) => {
                let mut fields = MapDeserializer::new(map.iter().map(|(key, value)| (key.as_str(), Shape(value))));
                let read = visitor.visit_map(&mut fields)?;
                fields.end().map(|()| read)
            }
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
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
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

    forward_to_deserialize_any! {
        <V: Visitor<'v>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
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

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        #[serde(default)]
        text: String,
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
            (json!([]), Err("invalid type: sequence, expected an object")),
            (json!({ "inner": [] }), Err("invalid type: sequence, expected an object")),
            (json!({ "inner": ["x"] }), Err("invalid type: sequence, expected an object")),
            (json!({ "list": [["x"]] }), Err("invalid type: sequence, expected an object")),
            (json!({ "pair": [1, 2, 3] }), Err("invalid length 3, expected 2 elements in sequence")),
        ] {
            assert_eq!(read(&value), want.map_err(str::to_owned), "{value}");
        }
    }
}
