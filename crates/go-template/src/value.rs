//! The values that templates work on.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::FunctionError;
use crate::functions::{CallContext, Signature};

/// A value of a template: data, a variable, an argument or a result.
///
/// A clone is cheap, because containers are shared. As in Go, a map is shared by all that refer to it, and the function
/// `set` changes it for all of them.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value at all, which prints as `<no value>`: the value of a field of nothing.
    #[default]
    Absent,
    /// Go's nil of the type `interface {}`: the value of a missing key in a map to any values.
    Nil,
    /// A `bool`.
    Bool(bool),
    /// An `int`: constants, lengths and positions.
    Int(i64),
    /// An integer of another type than `int`. Functions that demand an `int` refuse it, as in Go.
    Integer(i64, IntegerType),
    /// A `uint64`.
    Uint(u64),
    /// A `float64`.
    Float(f64),
    /// A string: bytes, by convention in UTF-8.
    String(Arc<[u8]>),
    /// A slice.
    List(List),
    /// A map with strings as keys.
    Map(Map),
    /// A value of the caller's, with fields and methods.
    Object(Rc<dyn Object>),
}

/// The type of an integer that is not an `int`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IntegerType {
    /// `int64`, the result of most functions for integers.
    Int64,
    /// `int32`.
    Int32,
    /// `uint8`: a byte of a string.
    Uint8,
}

/// The type of the elements of a list or map, which decides the printed form and the value of a missing key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Element {
    /// `interface {}`: any value.
    #[default]
    Any,
    /// `string`.
    String,
    /// `int`.
    Int,
    /// `[]string`.
    Strings,
    /// `[]interface {}`.
    Lists,
}

impl Element {
    fn name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::String => "string",
            Self::Int => "int",
            Self::Strings => "[]string",
            Self::Lists => "[]interface {}",
        }
    }

    /// Returns the zero value, which a missing key has.
    pub(crate) fn zero(self) -> Value {
        match self {
            Self::Any => Value::Nil,
            Self::String => Value::from(""),
            Self::Int => Value::Int(0),
            Self::Strings => Value::List(List::nil(Self::String)),
            Self::Lists => Value::List(List::nil(Self::Any)),
        }
    }
}

/// A value of the caller's. Templates find its fields and methods by name.
pub trait Object: std::fmt::Debug {
    /// Returns Go's name of the type, for messages and `typeOf`: `*http.Request`.
    fn type_name(&self) -> &str;

    /// Returns Go's name of the kind, for `kindOf`.
    fn kind(&self) -> &str {
        "ptr"
    }

    /// Returns a field, or `None` if there is none of this name.
    fn field(&self, name: &str) -> Option<Value> {
        let _ = name;
        None
    }

    /// Returns the parameters of a method, or `None` if there is none of this name. A method has precedence over a
    /// field.
    fn method(&self, name: &str) -> Option<Signature> {
        let _ = name;
        None
    }

    /// Calls a method with arguments that match its signature.
    ///
    /// # Errors
    /// The method's own: the execution ends with it.
    fn invoke(&self, name: &str, arguments: &[Value], call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let _ = (arguments, call);
        Err(format!("{} has no method {name}", self.type_name()).into())
    }

    /// Returns the object itself for functions of its owner, which know its type.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }

    /// Returns the list, map or integer that the object is for functions and, if it has no text form, for printing.
    /// `None` if it is a structure.
    fn underlying(&self) -> Option<Value> {
        None
    }

    /// Returns the names and values of a structure's fields, for printing. `None` if only its type is printed.
    fn members(&self) -> Option<Vec<(&'static str, Value)>> {
        None
    }

    /// Returns the text form: Go's `String` or `Error` method.
    fn text(&self) -> Option<String> {
        None
    }

    /// Returns the string that JSON has for the object: that of Go's `MarshalJSON` or `MarshalText` method.
    fn json_text(&self) -> Option<String> {
        self.text()
    }
}

/// A list of values: Go's slice.
#[derive(Clone, Debug)]
pub struct List(Rc<Items>);

#[derive(Debug)]
struct Items {
    items: Vec<Value>,
    element: Element,
    /// Whether Go has a nil slice here, which is empty too.
    is_nil: bool,
}

impl List {
    /// Makes a list of elements of the given type.
    #[must_use]
    pub fn new(items: Vec<Value>, element: Element) -> Self {
        Self(Rc::new(Items { items, element, is_nil: false }))
    }

    /// Makes Go's nil slice: empty, and `null` in JSON.
    #[must_use]
    pub fn nil(element: Element) -> Self {
        Self(Rc::new(Items { items: Vec::new(), element, is_nil: true }))
    }

    /// Returns the elements.
    #[must_use]
    pub fn items(&self) -> &[Value] {
        &self.0.items
    }

    /// Returns the type of the elements.
    #[must_use]
    pub fn element(&self) -> Element {
        self.0.element
    }

    pub(crate) fn is_nil(&self) -> bool {
        self.0.is_nil
    }
}

/// A map from strings to values, in the order of its keys.
#[derive(Clone, Debug)]
pub struct Map(Rc<SharedEntries>);

/// The entries of a map.
pub type Entries = BTreeMap<Arc<[u8]>, Value>;

#[derive(Debug)]
struct SharedEntries {
    entries: RefCell<Entries>,
    element: Element,
}

impl Map {
    /// Makes a map with values of the given type.
    #[must_use]
    pub fn new(entries: Entries, element: Element) -> Self {
        Self(Rc::new(SharedEntries { entries: RefCell::new(entries), element }))
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn value(&self, key: &[u8]) -> Option<Value> {
        self.0.entries.borrow().get(key).cloned()
    }

    /// Returns the entries. The map must not change while they are borrowed.
    #[must_use]
    pub fn entries(&self) -> Ref<'_, Entries> {
        self.0.entries.borrow()
    }

    /// Returns the type of the values.
    #[must_use]
    pub fn element(&self) -> Element {
        self.0.element
    }

    /// Sets a key. The caller makes sure that the value does not contain this map, which would never be freed.
    pub(crate) fn insert(&self, key: Arc<[u8]>, value: Value) {
        self.0.entries.borrow_mut().insert(key, value);
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.0.entries.borrow_mut().remove(key);
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

// Templates can nest containers arbitrarily deep, and the recursion of the default drop would overflow the stack.
impl Drop for Items {
    fn drop(&mut self) {
        free(std::mem::take(&mut self.items));
    }
}

impl Drop for SharedEntries {
    fn drop(&mut self) {
        free(std::mem::take(self.entries.get_mut()).into_values().collect());
    }
}

fn free(mut pending: Vec<Value>) {
    while let Some(value) = pending.pop() {
        match value {
            Value::List(List(items)) => {
                if let Some(mut items) = Rc::into_inner(items) {
                    pending.append(&mut items.items);
                }
            }
            Value::Map(Map(entries)) => {
                if let Some(mut entries) = Rc::into_inner(entries) {
                    pending.extend(std::mem::take(entries.entries.get_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}

impl Value {
    /// Makes a list of any values.
    #[must_use]
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items, Element::Any))
    }

    /// Makes a list of strings.
    #[must_use]
    pub fn strings<T: Into<Self>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::List(List::new(items.into_iter().map(Into::into).collect(), Element::String))
    }

    /// Makes a map to any values.
    #[must_use]
    pub fn map<K: AsRef<[u8]>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (Arc::from(key.as_ref()), value)).collect();
        Self::Map(Map::new(entries, Element::Any))
    }

    /// Returns the bytes of a string.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns an integer of any type that fits, also that of an object.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Int(value) | Self::Integer(value, _) => Some(*value),
            Self::Uint(value) => i64::try_from(*value).ok(),
            Self::Object(object) => object.underlying()?.as_integer(),
            _ => None,
        }
    }

    /// Returns Go's name of the type, as `%T` prints it.
    #[must_use]
    pub fn type_name(&self) -> String {
        match self {
            Self::Absent | Self::Nil => "<nil>".to_owned(),
            Self::List(list) => format!("[]{}", list.element().name()),
            Self::Map(map) => format!("map[string]{}", map.element().name()),
            Self::Object(object) => object.type_name().to_owned(),
            // The name of a basic type is that of its kind.
            _ => self.kind_name().to_owned(),
        }
    }

    /// Returns Go's name of the kind, as `kindOf` returns it.
    #[must_use]
    pub fn kind_name(&self) -> &str {
        match self {
            Self::Absent | Self::Nil => "invalid",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Integer(_, IntegerType::Int32) => "int32",
            Self::Integer(_, IntegerType::Uint8) => "uint8",
            Self::Integer(_, IntegerType::Int64) => "int64",
            Self::Uint(_) => "uint64",
            Self::Float(_) => "float64",
            Self::String(_) => "string",
            Self::List(_) => "slice",
            Self::Map(_) => "map",
            Self::Object(object) => object.kind(),
        }
    }

    /// Returns whether `if` takes the value as true: whether it is not the zero value or empty.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match self {
            Self::Absent | Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Integer(value, _) => *value != 0,
            Self::Uint(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::String(text) => !text.is_empty(),
            Self::List(list) => !list.items().is_empty(),
            Self::Map(map) => !map.entries().is_empty(),
            Self::Object(object) => object.underlying().is_none_or(|value| value.is_true()),
        }
    }

    /// Returns the list, map or integer of an object that has one, else the value itself.
    pub(crate) fn resolved(&self) -> Self {
        match self {
            Self::Object(object) => object.underlying().unwrap_or_else(|| self.clone()),
            _ => self.clone(),
        }
    }

    /// Returns the bytes that the value itself occupies, without its elements.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::List(list) => size_of_val(list.items()),
            Self::Map(map) => map.entries().len() * 2 * size_of::<Self>(),
            _ => 0,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.as_bytes().into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into_bytes().into())
    }
}

impl From<&[u8]> for Value {
    fn from(text: &[u8]) -> Self {
        Self::String(text.into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(text: Vec<u8>) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}
