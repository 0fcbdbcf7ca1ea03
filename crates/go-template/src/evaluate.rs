//! The values of pipelines, commands and their operands.

use crate::error::{ExecuteError, FunctionError};
use crate::execute::{ExecuteResult, Place, State};
use crate::functions::{CallContext, ResolvedFunction, Signature, Type};
use crate::tree::{CommandNode, Number, Operand, Pipe, Term};
use crate::value::{Object, Value};

/// The arguments of a command.
pub(crate) struct Arguments<'t> {
    /// The command's first operand, for messages.
    first: Option<&'t Operand>,
    /// The operands after the first one.
    operands: &'t [Operand],
    /// The result of the command before it in the pipeline: the last argument.
    piped: Option<Value>,
}

impl Arguments<'_> {
    fn none() -> Self {
        Self { first: None, operands: &[], piped: None }
    }

    fn count(&self) -> usize {
        self.operands.len() + usize::from(self.piped.is_some())
    }
}

/// Bytes of a function's texts that are read in the time of one step.
const BYTES_PER_STEP: usize = 32;

impl<'t> State<'t> {
    pub(crate) fn pipeline(&mut self, dot: &Value, pipe: &'t Pipe) -> ExecuteResult<Value> {
        self.place = Place::Pipe(pipe);
        let mut value = None;
        for command in &pipe.commands {
            let result = self.deeper(|state| state.command(dot, command, value.take()))?;
            // The value inside of a nil interface is no value.
            value = Some(if matches!(result, Value::Nil) { Value::Absent } else { result });
        }
        let value = value.unwrap_or_default();
        for name in &pipe.variables {
            if pipe.assigns {
                self.set_variable(name, value.clone())?;
            } else {
                self.variables.push((name, value.clone()));
            }
        }
        Ok(value)
    }

    pub(crate) fn set_variable(&mut self, name: &str, value: Value) -> ExecuteResult<()> {
        match self.variables.iter_mut().rev().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = value,
            None => return self.fail(format!("undefined variable: {name}")),
        }
        Ok(())
    }

    fn command(&mut self, dot: &Value, command: &'t CommandNode, piped: Option<Value>) -> ExecuteResult<Value> {
        self.bounded(self.budget.charge_steps(1))?;
        let Some((first, operands)) = command.operands.split_first() else { return Ok(Value::Absent) };
        let arguments = Arguments { first: Some(first), operands, piped };
        match &first.term {
            Term::Field(_) | Term::Chain(..) | Term::Variable(..) => self.access(dot, first, arguments),
            Term::Identifier(name) => {
                self.place = Place::Operand(first);
                self.function(dot, name, Place::Command(command), arguments)
            }
            Term::Pipe(pipe) => {
                self.reject_arguments(&arguments)?;
                self.pipeline(dot, pipe)
            }
            term => {
                self.place = Place::Operand(first);
                self.reject_arguments(&arguments)?;
                match term {
                    Term::Dot => Ok(dot.clone()),
                    Term::Nil => self.fail("nil is not a command"),
                    _ => self.constant(first),
                }
            }
        }
    }

    /// Fails if a command that calls no function has arguments.
    fn reject_arguments(&self, arguments: &Arguments<'t>) -> ExecuteResult<()> {
        match arguments.first {
            Some(first) if arguments.count() > 0 => self.fail(format!("can't give argument to non-function {first}")),
            _ => Ok(()),
        }
    }

    /// The value of a constant where any type will do: the constant's form decides.
    fn constant(&mut self, operand: &'t Operand) -> ExecuteResult<Value> {
        self.place = Place::Operand(operand);
        match &operand.term {
            Term::Bool(value) => Ok(Value::Bool(*value)),
            Term::String { text, .. } => Ok(Value::String(text.clone())),
            Term::Number(number) => self.untyped_constant(number),
            _ => self.fail(format!("can't evaluate command {operand}")),
        }
    }

    /// The value of Go's untyped constant in its default type.
    fn untyped_constant(&self, number: &Number) -> ExecuteResult<Value> {
        let text = number.text.as_str();
        let is_hexadecimal =
            text.len() > 2 && text.to_ascii_lowercase().starts_with("0x") && !text.contains(['p', 'P']);
        let is_character = text.starts_with('\'');
        match (number.float, number.int) {
            (Some(value), _) if !is_hexadecimal && !is_character && text.contains(['.', 'e', 'E', 'p', 'P']) => {
                Ok(Value::Float(value))
            }
            (_, Some(value)) => Ok(Value::Int(value)),
            _ => self.fail(format!("{text} overflows int")),
        }
    }

    /// The value of a field, a variable or a chain of fields.
    fn access(&mut self, dot: &Value, operand: &'t Operand, arguments: Arguments<'t>) -> ExecuteResult<Value> {
        self.place = Place::Operand(operand);
        let (mut receiver, names): (Value, &'t [String]) = match &operand.term {
            Term::Field(names) => (dot.clone(), names),
            Term::Variable(name, names) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let Some((_, value)) = found else { return self.fail(format!("undefined variable: {name}")) };
                if names.is_empty() {
                    let value = value.clone();
                    self.reject_arguments(&arguments)?;
                    return Ok(value);
                }
                (value.clone(), names)
            }
            Term::Chain(inner, names) => {
                if let Term::Nil = inner.term {
                    return self.fail(format!("indirection through explicit nil in {operand}"));
                }
                (self.deeper(|state| state.argument(dot, inner, Type::Value))?, names)
            }
            _ => return self.fail(format!("can't evaluate command {operand}")),
        };
        let Some((final_name, names)) = names.split_last() else { return Ok(receiver) };
        for name in names {
            receiver = self.field(dot, &receiver, name, operand, Arguments::none())?;
        }
        self.field(dot, &receiver, final_name, operand, arguments)
    }

    fn field(
        &mut self,
        dot: &Value,
        receiver: &Value,
        name: &str,
        operand: &'t Operand,
        arguments: Arguments<'t>,
    ) -> ExecuteResult<Value> {
        self.bounded(self.budget.charge_steps(1))?;
        let has_arguments = arguments.count() > 0;
        match receiver {
            Value::Absent => return Ok(Value::Absent),
            Value::Nil => return self.fail(format!("nil pointer evaluating interface {{}}.{name}")),
            Value::Object(object) => {
                if let Some(signature) = object.method(name) {
                    return self.method(dot, &**object, name, signature, operand, arguments);
                }
                if let Some(value) = object.field(name) {
                    if has_arguments {
                        return self.fail(format!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(value);
                }
            }
            _ => {}
        }
        if let Value::Map(map) = receiver.resolved() {
            if has_arguments {
                return self.fail(format!("{name} is not a method but has arguments"));
            }
            return Ok(map.value(name.as_bytes()).unwrap_or_else(|| map.element().zero()));
        }
        self.fail(format!("can't evaluate field {name} in type {}", receiver.type_name()))
    }

    fn method(
        &mut self,
        dot: &Value,
        object: &dyn Object,
        name: &str,
        signature: Signature,
        operand: &'t Operand,
        arguments: Arguments<'t>,
    ) -> ExecuteResult<Value> {
        let values = self.arguments(dot, name, signature, arguments)?;
        let result = object.invoke(name, &values, &mut CallContext::new(self.budget));
        self.with_call_errors(name, Place::Operand(operand), result)
    }

    fn function(
        &mut self,
        dot: &Value,
        name: &str,
        place: Place<'t>,
        arguments: Arguments<'t>,
    ) -> ExecuteResult<Value> {
        let functions = self.functions;
        let callable = match functions.find(name) {
            None => return self.fail(format!("{name:?} is not a defined function")),
            Some(ResolvedFunction::And) => return self.short_circuit(dot, name, false, arguments),
            Some(ResolvedFunction::Or) => return self.short_circuit(dot, name, true, arguments),
            Some(ResolvedFunction::CallBuiltin) => return self.call_builtin(dot, name, place, arguments),
            Some(ResolvedFunction::Callable(callable)) => callable,
        };
        let values = self.arguments(dot, name, callable.signature(), arguments)?;
        let result = callable.invoke(&mut CallContext::new(self.budget), &values);
        self.with_call_errors(name, place, result)
    }

    /// The function `call`. It always fails: values are never functions.
    fn call_builtin(
        &mut self,
        dot: &Value,
        name: &str,
        place: Place<'t>,
        arguments: Arguments<'t>,
    ) -> ExecuteResult<Value> {
        const SIGNATURE: Signature = Signature::variadic(&[Type::Value, Type::Value]);
        let callee = arguments.operands.first().map_or_else(|| "<no value>".to_owned(), ToString::to_string);
        let values = self.arguments(dot, name, SIGNATURE, arguments)?;
        let message = match &values[0] {
            Value::Absent | Value::Nil => "call of nil".to_owned(),
            value => format!("non-function {callee} of type {}", value.type_name()),
        };
        self.with_call_errors(name, place, Err(message.into()))
    }

    /// `and` and `or` evaluate no argument after the first one whose truth is `stop_at`.
    fn short_circuit(
        &mut self,
        dot: &Value,
        name: &str,
        stop_at: bool,
        arguments: Arguments<'t>,
    ) -> ExecuteResult<Value> {
        if arguments.count() == 0 {
            return self.fail(format!("wrong number of args for {name}: want at least 1 got 0"));
        }
        let mut value = Value::Absent;
        for operand in arguments.operands {
            value = self.deeper(|state| state.argument(dot, operand, Type::Value))?;
            if value.is_true() == stop_at {
                return Ok(value);
            }
        }
        Ok(arguments.piped.unwrap_or(value))
    }

    fn with_call_errors(
        &mut self,
        name: &str,
        place: Place<'t>,
        result: Result<Value, FunctionError>,
    ) -> ExecuteResult<Value> {
        let failed = |state: &mut Self, message: String| -> ExecuteError {
            state.place = place;
            state.error(format!("error calling {name}: {message}"))
        };
        let value = result.map_err(|error| failed(self, error.to_string()))?;
        self.budget.charge_memory(value.size()).map_err(|exhausted| failed(self, exhausted.to_string()))?;
        Ok(value)
    }

    fn arguments(
        &mut self,
        dot: &Value,
        name: &str,
        signature: Signature,
        arguments: Arguments<'t>,
    ) -> ExecuteResult<Vec<Value>> {
        let Signature { parameters, is_variadic } = signature;
        let given = arguments.count();
        if is_variadic {
            let least = parameters.len() - 1;
            if given < least {
                let got = arguments.operands.len();
                return self.fail(format!("wrong number of args for {name}: want at least {least} got {got}"));
            }
        } else if given != parameters.len() {
            return self.fail(format!("wrong number of args for {name}: want {} got {given}", parameters.len()));
        }
        let parameter = |index: usize| parameters[index.min(parameters.len() - 1)];
        let mut values = Vec::with_capacity(given);
        for (index, operand) in arguments.operands.iter().enumerate() {
            values.push(self.deeper(|state| state.argument(dot, operand, parameter(index)))?);
        }
        if let Some(piped) = arguments.piped {
            values.push(self.typed(piped, parameter(given - 1))?);
        }
        // Functions read their texts to the ends, also those with small results such as `contains`.
        let bytes: usize = values.iter().filter_map(Value::as_bytes).map(<[u8]>::len).sum();
        self.bounded(self.budget.charge_steps(bytes / BYTES_PER_STEP))?;
        Ok(values)
    }

    /// The value of an operand as an argument of a type.
    fn argument(&mut self, dot: &Value, operand: &'t Operand, wanted: Type) -> ExecuteResult<Value> {
        self.bounded(self.budget.charge_steps(1))?;
        self.place = Place::Operand(operand);
        let value = match &operand.term {
            Term::Dot => dot.clone(),
            Term::Nil if wanted.can_be_nil() => return Ok(wanted.nil()),
            Term::Nil => return self.fail(format!("cannot assign nil to {}", wanted.name())),
            Term::Field(_) | Term::Variable(..) | Term::Chain(..) => self.access(dot, operand, Arguments::none())?,
            Term::Pipe(pipe) => self.pipeline(dot, pipe)?,
            Term::Identifier(name) => self.function(dot, name, Place::Operand(operand), Arguments::none())?,
            _ => return self.typed_constant(operand, wanted),
        };
        self.typed(value, wanted)
    }

    fn typed_constant(&mut self, operand: &'t Operand, wanted: Type) -> ExecuteResult<Value> {
        match (wanted, &operand.term) {
            (Type::Value | Type::Any, _) | (Type::Bool, Term::Bool(_)) | (Type::String, Term::String { .. }) => {
                self.constant(operand)
            }
            (Type::Int, Term::Number(Number { int: Some(value), .. })) => Ok(Value::Int(*value)),
            (Type::Int64, Term::Number(Number { int: Some(value), .. })) => {
                Ok(Value::Integer(*value, crate::IntegerType::Int64))
            }
            (Type::Float, Term::Number(Number { float: Some(value), .. })) => Ok(Value::Float(*value)),
            (Type::Int | Type::Int64, _) => self.fail(format!("expected integer; found {operand}")),
            (Type::Bool | Type::String, _) => self.fail(format!("expected {}; found {operand}", wanted.name())),
            (Type::Float, _) => self.fail(format!("expected float; found {operand}")),
            (Type::List | Type::Strings | Type::Map, _) => {
                self.fail(format!("can't handle {operand} for arg of type {}", wanted.name()))
            }
        }
    }

    /// Checks that a value has the type that a parameter demands.
    fn typed(&self, value: Value, wanted: Type) -> ExecuteResult<Value> {
        match value {
            Value::Absent if wanted.can_be_nil() => Ok(wanted.nil()),
            Value::Absent => self.fail(format!("invalid value; expected {}", wanted.name())),
            value if wanted.accepts(&value) => Ok(value),
            value => {
                let got = if matches!(value, Value::Nil) { "interface {}".to_owned() } else { value.type_name() };
                self.fail(format!("wrong type for value; expected {}; got {got}", wanted.name()))
            }
        }
    }
}
