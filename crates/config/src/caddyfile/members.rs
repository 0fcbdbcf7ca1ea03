//! Members of a JSON object that are left out where they say nothing, as Caddy leaves out what is empty, 0 or off.

use serde_json::{Map, Value};

pub(crate) trait Members {
    /// Sets a text, or takes it out if it is empty.
    fn text(&mut self, key: &str, text: &str);
    /// Sets a number, or takes it out if it is 0.
    fn number(&mut self, key: &str, number: i64);
    /// Sets a list, or takes it out if it is empty.
    fn list(&mut self, key: &str, list: Vec<Value>);
    /// Appends to a list.
    fn extend_list(&mut self, key: &str, more: Vec<Value>);
    /// Sets `true`.
    fn switch_on(&mut self, key: &str);
    /// The object of that name, which stays even if nothing is put into it.
    fn child(&mut self, key: &str) -> &mut Map<String, Value>;
    /// The text of that name; empty if there is none.
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
