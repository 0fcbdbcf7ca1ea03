//! Functions, and the types of their arguments.

use std::collections::BTreeMap;
use std::fmt;

use crate::budget::{Budget, LimitError, Text};
use crate::builtins;
use crate::error::FunctionError;
use crate::print;
use crate::sprig;
use crate::value::{Element, Value};

/// The type of a parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Type {
    /// `reflect.Value`: any value, also [`Value::Absent`]. Go's own functions have it.
    Value,
    /// `interface {}`: any value but [`Value::Absent`], which becomes [`Value::Nil`].
    Any,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `int64`.
    Int64,
    /// `float64`.
    Float,
    /// `string`.
    String,
    /// `[]interface {}`.
    List,
    /// `[]string`.
    Strings,
    /// `map[string]interface {}`.
    Map,
}

impl Type {
    /// Returns Go's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "reflect.Value",
            Self::Any => "interface {}",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Float => "float64",
            Self::String => "string",
            Self::List => "[]interface {}",
            Self::Strings => "[]string",
            Self::Map => "map[string]interface {}",
        }
    }

    /// Returns whether a value of the type can be Go's nil.
    pub(crate) fn can_be_nil(self) -> bool {
        matches!(self, Self::Value | Self::Any | Self::List | Self::Strings | Self::Map)
    }

    /// Returns Go's zero value of a type that can be nil.
    pub(crate) fn nil(self) -> Value {
        match self {
            Self::Value => Value::Absent,
            Self::List => Element::Lists.zero(),
            Self::Strings => Element::Strings.zero(),
            Self::Map => Value::map::<&str>([]),
            _ => Value::Nil,
        }
    }

    pub(crate) fn accepts(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Value | Self::Any, _)
            | (Self::Bool, Value::Bool(_))
            | (Self::Int, Value::Int(_))
            | (Self::Int64, Value::Integer(_, crate::IntegerType::Int64))
            | (Self::Float, Value::Float(_))
            | (Self::String, Value::String(_)) => true,
            (Self::List, Value::List(list)) => list.element() == Element::Any,
            (Self::Strings, Value::List(list)) => list.element() == Element::String,
            (Self::Map, Value::Map(map)) => map.element() == Element::Any,
            _ => false,
        }
    }
}

/// The parameters of a function or method.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The types of the parameters. If the function is variadic, the last one is that of each further argument.
    pub parameters: &'static [Type],
    /// Whether the last parameter takes any number of arguments, also none.
    pub is_variadic: bool,
}

impl Signature {
    /// Makes a signature with a fixed number of parameters.
    #[must_use]
    pub const fn fixed(parameters: &'static [Type]) -> Self {
        Self { parameters, is_variadic: false }
    }

    /// Makes a signature whose last parameter takes any number of arguments.
    #[must_use]
    pub const fn variadic(parameters: &'static [Type]) -> Self {
        Self { parameters, is_variadic: true }
    }
}

/// The resources of a function while it runs.
#[derive(Debug)]
pub struct CallContext<'a> {
    budget: &'a Budget,
}

impl<'a> CallContext<'a> {
    pub(crate) fn new(budget: &'a Budget) -> Self {
        Self { budget }
    }

    /// Returns the budget of the execution, for executions that the function starts.
    #[must_use]
    pub fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// Charges steps. A function calls it before it looks at so many elements.
    ///
    /// # Errors
    /// As [`Budget::charge_steps`].
    pub fn charge_steps(&self, steps: usize) -> Result<(), LimitError> {
        self.budget.charge_steps(steps)
    }

    /// Charges memory. A function calls it before it makes a value much larger than its arguments.
    ///
    /// # Errors
    /// As [`Budget::charge_memory`].
    pub fn charge_memory(&self, bytes: usize) -> Result<(), LimitError> {
        self.budget.charge_memory(bytes)
    }

    /// Returns the value as Go's `%+v` prints it.
    ///
    /// # Errors
    /// A limit of the budget.
    pub fn printed(&self, value: &Value) -> Result<Vec<u8>, FunctionError> {
        print::printf(self.budget, b"%+v", std::slice::from_ref(value))
    }

    pub(crate) fn text(&self) -> Text<'a> {
        Text::new(self.budget)
    }
}

/// The body of a function of the crate.
pub(crate) type Body = fn(&mut CallContext<'_>, &[Value]) -> Result<Value, FunctionError>;

/// A function of the crate, in a table in the order of the names.
pub(crate) struct Builtin {
    name: &'static str,
    signature: Signature,
    body: Body,
}

pub(crate) const fn fixed(name: &'static str, parameters: &'static [Type], body: Body) -> Builtin {
    Builtin { name, signature: Signature::fixed(parameters), body }
}

pub(crate) const fn variadic(name: &'static str, parameters: &'static [Type], body: Body) -> Builtin {
    Builtin { name, signature: Signature::variadic(parameters), body }
}

type Custom = Box<dyn Fn(&mut CallContext<'_>, &[Value]) -> Result<Value, FunctionError>>;

/// The functions that templates can call.
pub struct Functions {
    has_sprig: bool,
    custom: BTreeMap<String, (Signature, Custom)>,
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.custom.keys()).finish()
    }
}

/// The function of a name.
pub(crate) enum ResolvedFunction<'a> {
    And,
    Or,
    /// Go's `call`.
    CallBuiltin,
    Callable(Callable<'a>),
}

/// A function with a signature, whose arguments are all evaluated.
pub(crate) enum Callable<'a> {
    Builtin(&'static Builtin),
    Custom(Signature, &'a Custom),
}

impl Default for Functions {
    fn default() -> Self {
        Self::new()
    }
}

impl Functions {
    /// Makes the set of Go's functions and those of Sprig. Sprig's `slice`, which is for lists only, hides Go's.
    #[must_use]
    pub fn new() -> Self {
        Self { has_sprig: true, custom: BTreeMap::new() }
    }

    /// Makes the set of the functions of Go's text/template alone.
    #[must_use]
    pub fn without_sprig() -> Self {
        Self { has_sprig: false, custom: BTreeMap::new() }
    }

    /// Adds a function. It has precedence over one of the crate with the same name.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        signature: Signature,
        body: impl Fn(&mut CallContext<'_>, &[Value]) -> Result<Value, FunctionError> + 'static,
    ) -> Self {
        self.custom.insert(name.to_owned(), (signature, Box::new(body)));
        self
    }

    /// Returns whether there is a function of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(crate) fn find(&self, name: &str) -> Option<ResolvedFunction<'_>> {
        if let Some((signature, body)) = self.custom.get(name) {
            return Some(ResolvedFunction::Callable(Callable::Custom(*signature, body)));
        }
        match name {
            "and" => return Some(ResolvedFunction::And),
            "or" => return Some(ResolvedFunction::Or),
            "call" => return Some(ResolvedFunction::CallBuiltin),
            _ => {}
        }
        let tables = if self.has_sprig { sprig::TABLES } else { &[] };
        tables.iter().chain([&builtins::BUILTINS]).find_map(|table| {
            let at = table.binary_search_by(|builtin| builtin.name.cmp(name)).ok()?;
            Some(ResolvedFunction::Callable(Callable::Builtin(&table[at])))
        })
    }
}

impl Callable<'_> {
    pub(crate) fn signature(&self) -> Signature {
        match self {
            Self::Builtin(builtin) => builtin.signature,
            Self::Custom(signature, _) => *signature,
        }
    }

    pub(crate) fn invoke(&self, call: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
        match self {
            Self::Builtin(builtin) => (builtin.body)(call, arguments),
            Self::Custom(_, body) => body(call, arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A name is found by binary search.
    #[test]
    fn tables_are_in_order() {
        for table in sprig::TABLES.iter().chain([&builtins::BUILTINS]) {
            let names: Vec<&str> = table.iter().map(|builtin| builtin.name).collect();
            assert!(names.is_sorted(), "{names:?}");
        }
    }
}
