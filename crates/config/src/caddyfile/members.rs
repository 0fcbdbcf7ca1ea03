//! JSON objects that omit members without a value, as Caddy omits texts that are empty, numbers that are 0, and
//! switches that are off.

use serde_json::{Map, Value};

pub(crate) trait Members {
    /// Sets a text, or removes the member if the text is empty.
    fn text(&mut self, key: &str, text: &str);
    /// Sets a number, or removes the member if it is 0.
    fn number(&mut self, key: &str, number: i64);
    /// Sets a list, or removes the member if the list is empty.
    fn list(&mut self, key: &str, list: Vec<Value>);
    /// Appends to a list, which is created if needed.
    fn extend_list(&mut self, key: &str, more: Vec<Value>);
    /// Sets the member to `true`.
    fn switch_on(&mut self, key: &str);
    /// The object at `key`, created if needed. It remains even if it stays empty.
    fn child(&mut self, key: &str) -> &mut Map<String, Value>;
    /// The text at `key`; empty if there is none.
    fn text_of(&self, key: &str) -> &str;
}

impl Members for Map<String, Value> {
    fn text(&mut self, key: &str, text: &str) {
        set(self, key, (!text.is_empty()).then(|| text.into()));
    }

    fn number(&mut self, key: &str, number: i64) {
        set(self, key, (number != 0).then(|| number.into()));
    }

    fn list(&mut self, key: &str, list: Vec<Value>) {
        set(self, key, (!list.is_empty()).then(|| list.into()));
    }

    fn extend_list(&mut self, key: &str, more: Vec<Value>) {
        match self.get_mut(key) {
            Some(Value::Array(list)) => list.extend(more),
            _ => self.list(key, more),
        }
    }

    fn switch_on(&mut self, key: &str) {
        set(self, key, Some(true.into()));
    }

    fn child(&mut self, key: &str) -> &mut Map<String, Value> {
        let child = self.entry(key).or_insert_with(|| Map::new().into());
        if !child.is_object() {
            *child = Map::new().into();
        }
        child.as_object_mut().expect("it was made one")
    }

    fn text_of(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

fn set(members: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(members.insert(key.to_owned(), value)),
        None => drop(members.shift_remove(key)),
    }
}
