//! Evaluates a compiled expression. Recursive; the parser bounds the depth.

use std::cmp::Ordering;

use causeway_pipeline::context::ValueKind;
use causeway_pipeline::{Context, Stop};

use jiff::Timestamp;

use super::function;
use super::program::{Arithmetic, Comprehension, Node, Order};
use super::time;
use super::value::{Memory, Value, ValueRange};

/// The reason that an evaluation yields no value.
pub(super) enum Halt {
    /// A matcher called in the expression must wait, or failed the request.
    Stop(Stop),
    /// A CEL error, such as a value of a type that an operator does not accept. `&&` and `||` may absorb it.
    Error(&'static str),
}

pub(super) type Evaluated = Result<Value, Halt>;

pub(super) const NO_OVERLOAD: &str = "an expression's operator or function does not accept its operand's type";

pub(super) fn no_overload<T>() -> Result<T, Halt> {
    Err(Halt::Error(NO_OVERLOAD))
}

impl Node {
    /// Evaluates a node. Strings and lists of the result are in `memory`.
    pub(super) fn evaluate(&self, cx: &mut Context, memory: &mut Memory) -> Evaluated {
        Ok(match self {
            // A constant string is a span of the constants, which are at the start of the memory.
            Self::Constant(value) => *value,
            Self::Placeholder(template) => {
                let mut kind = ValueKind::Text;
                let text = memory.write(|out| kind = template.render_value(cx, out))?;
                memory.charge_reading(&[Value::Text(text)])?;
                match kind {
                    ValueKind::Null => Value::Null,
                    ValueKind::Scalar => memory.scalar(text),
                    ValueKind::Duration => {
                        let span = std::str::from_utf8(memory.text(text)).ok().and_then(time::duration);
                        span.map_or(Value::Text(text), Value::Duration)
                    }
                    ValueKind::Text => Value::Text(text),
                }
            }
            Self::Now => Value::Time(Timestamp::try_from(cx.worker().wall()).unwrap_or(Timestamp::MAX)),
            Self::Local(number) => memory.locals[*number],
            Self::List(items) => list(items, cx, memory)?,
            Self::Any(parts) => Value::Bool(short_circuit(parts, true, cx, memory)?),
            Self::All(parts) => Value::Bool(short_circuit(parts, false, cx, memory)?),
            Self::Not(part) => Value::Bool(!part.truth(cx, memory)?),
            Self::Negate(part) => {
                let value = part.evaluate(cx, memory)?;
                match value {
                    Value::Int(number) => Value::Int(number.checked_neg().ok_or(OVERFLOW)?),
                    Value::Double(number) => Value::Double(-number),
                    _ => return no_overload(),
                }
            }
            // Only the selected branch is evaluated.
            Self::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if condition.truth(cx, memory)? { yes } else { no };
                chosen.evaluate(cx, memory)?
            }
            Self::Equal(sides, negated) => {
                let (lhs, rhs) = both(sides, cx, memory)?;
                Value::Bool(memory.equal(lhs, rhs)? != *negated)
            }
            Self::Compare(order, sides) => {
                let (lhs, rhs) = both(sides, cx, memory)?;
                memory.charge_reading(&[lhs, rhs])?;
                match memory.compare(lhs, rhs) {
                    Some(found) => Value::Bool(order.holds(found)),
                    // One of the numbers is NaN.
                    None if lhs.is_number() && rhs.is_number() => Value::Bool(false),
                    None => return no_overload(),
                }
            }
            Self::In(sides) => {
                let (lhs, all) = both(sides, cx, memory)?;
                let Value::List(all) = all else { return no_overload() };
                Value::Bool(memory.contains(all, lhs)?)
            }
            Self::Arithmetic(operator, sides) => {
                let (lhs, rhs) = both(sides, cx, memory)?;
                memory.charge_reading(&[lhs, rhs])?;
                arithmetic(*operator, lhs, rhs, memory)?
            }
            Self::Index(sides) => {
                let (all, index) = both(sides, cx, memory)?;
                let (Value::List(all), Value::Int(index)) = (all, index) else { return no_overload() };
                let found = usize::try_from(index).ok().and_then(|index| memory.list(all).get(index));
                *found.ok_or(Halt::Error("an expression's index is outside of its list"))?
            }
            Self::Call(function, arguments) => {
                // A fixed array, so that a call does not allocate.
                let mut values = [Value::Null; function::ARGUMENTS_MAX];
                for (value, argument) in values.iter_mut().zip(arguments) {
                    *value = argument.evaluate(cx, memory)?;
                }
                let values = &values[..arguments.len()];
                memory.charge_reading(values)?;
                let (bytes, items) = (memory.text.len(), memory.values.len());
                let result = function.call(values, memory)?;
                memory.charge_writing(bytes, items)?;
                result
            }
            Self::Search(text, pattern) => {
                let value = text.evaluate(cx, memory)?;
                let Value::Text(text) = value else { return no_overload() };
                memory.charge_reading(&[value])?;
                Value::Bool(pattern.is_match(cx, memory.text(text)))
            }
            Self::TimePart(part, zone, time) => part.of(time.evaluate(cx, memory)?, zone)?,
            Self::Matcher(matcher) => Value::Bool(matcher.matches(cx).map_err(Halt::Stop)?),
            Self::Repeated(node) => {
                // It may read a whole head, also if it finds nothing: a query that lacks a name.
                let request = cx.head().bytes().max(cx.original().bytes());
                memory.charge_search(request + cx.response().fields().bytes())?;
                node.evaluate(cx, memory)?
            }
            Self::Comprehension(comprehension) => comprehension.evaluate(cx, memory)?,
        })
    }

    fn truth(&self, cx: &mut Context, memory: &mut Memory) -> Result<bool, Halt> {
        match self.evaluate(cx, memory)? {
            Value::Bool(truth) => Ok(truth),
            _ => no_overload(),
        }
    }
}

const OVERFLOW: Halt = Halt::Error("an expression's integer overflowed");

fn both(sides: &[Node; 2], cx: &mut Context, memory: &mut Memory) -> Result<(Value, Value), Halt> {
    let lhs = sides[0].evaluate(cx, memory)?;
    Ok((lhs, sides[1].evaluate(cx, memory)?))
}

/// Evaluates `||` (decided by true) or `&&` (decided by false). As CEL defines, an error counts only if no part
/// decides.
fn short_circuit(parts: &[Node], decides: bool, cx: &mut Context, memory: &mut Memory) -> Result<bool, Halt> {
    let mut error = None;
    for part in parts {
        match part.truth(cx, memory) {
            Ok(truth) if truth == decides => return Ok(decides),
            Ok(_) => {}
            Err(Halt::Error(message)) => error = error.or(Some(message)),
            Err(stop) => return Err(stop),
        }
    }
    error.map_or(Ok(!decides), |message| Err(Halt::Error(message)))
}

/// Evaluates a list. Its slots are reserved first, since items may be lists and append slots themselves.
fn list(items: &[Node], cx: &mut Context, memory: &mut Memory) -> Evaluated {
    let span = memory.reserve(items.len())?;
    for (at, item) in span.range().zip(items) {
        memory.values[at] = item.evaluate(cx, memory)?;
    }
    Ok(Value::List(span))
}

/// Applies an operator to strings, lists, numbers or times. Integers that overflow are an error, as in CEL.
fn arithmetic(operator: Arithmetic, lhs: Value, rhs: Value, memory: &mut Memory) -> Evaluated {
    match (operator, lhs, rhs) {
        (Arithmetic::Add, Value::Text(lhs), Value::Text(rhs)) => {
            let whole = memory.write(|out| {
                out.extend_from_within(lhs.range());
                out.extend_from_within(rhs.range());
            });
            return whole.map(Value::Text);
        }
        (Arithmetic::Add, Value::List(lhs), Value::List(rhs)) => {
            // Lists are spans too: a concatenation copies both to the end.
            let start = memory.values.len();
            memory.values.extend_from_within(lhs.range());
            memory.values.extend_from_within(rhs.range());
            memory.check()?;
            return Ok(Value::List(ValueRange::new(start..memory.values.len())));
        }
        _ => {}
    }
    match (lhs, rhs) {
        (Value::Int(_), Value::Int(0)) if matches!(operator, Arithmetic::Divide | Arithmetic::Remainder) => {
            Err(Halt::Error("an expression divides by zero"))
        }
        (Value::Int(lhs), Value::Int(rhs)) => {
            let result = match operator {
                Arithmetic::Add => lhs.checked_add(rhs),
                Arithmetic::Subtract => lhs.checked_sub(rhs),
                Arithmetic::Multiply => lhs.checked_mul(rhs),
                Arithmetic::Divide => lhs.checked_div(rhs),
                Arithmetic::Remainder => lhs.checked_rem(rhs),
            };
            result.map(Value::Int).ok_or(OVERFLOW)
        }
        // Caddy's numbers of `vars` are doubles, which here are integers if they are whole. So the two types may be
        // mixed.
        (Value::Int(lhs), Value::Double(_)) => arithmetic(operator, Value::Double(lhs as f64), rhs, memory),
        (Value::Double(_), Value::Int(rhs)) => arithmetic(operator, lhs, Value::Double(rhs as f64), memory),
        (Value::Double(lhs), Value::Double(rhs)) => match operator {
            Arithmetic::Add => Ok(Value::Double(lhs + rhs)),
            Arithmetic::Subtract => Ok(Value::Double(lhs - rhs)),
            Arithmetic::Multiply => Ok(Value::Double(lhs * rhs)),
            Arithmetic::Divide => Ok(Value::Double(lhs / rhs)),
            Arithmetic::Remainder => no_overload(),
        },
        _ => time::arithmetic(operator, lhs, rhs),
    }
}

impl Order {
    fn holds(self, found: Ordering) -> bool {
        match self {
            Self::Less => found.is_lt(),
            Self::LessOrEqual => found.is_le(),
            Self::Greater => found.is_gt(),
            Self::GreaterOrEqual => found.is_ge(),
        }
    }
}

impl Comprehension {
    fn evaluate(&self, cx: &mut Context, memory: &mut Memory) -> Evaluated {
        use super::program::ListMacro;
        let list = match self.list().evaluate(cx, memory)? {
            Value::List(list) => list,
            _ => return no_overload(),
        };
        let keeps = matches!(self.list_macro, ListMacro::Map | ListMacro::Filter);
        // Reserve the result's slots before the bodies append theirs; the list cannot be longer than its source.
        let kept = memory.reserve(if keeps { list.range().len() } else { 0 })?;
        let (mut count, mut error) = (0, None);
        for at in list.range() {
            memory.charge_visit()?;
            let item = memory.values[at];
            memory.locals.truncate(self.local);
            memory.locals.push(item);
            if self.list_macro == ListMacro::Map {
                let value = self.body().evaluate(cx, memory)?;
                memory.values[kept.range().start + count] = value;
                count += 1;
                continue;
            }
            let (bytes, values) = (memory.text.len(), memory.values.len());
            let truth = self.body().truth(cx, memory);
            // Memory of the body's evaluation is no longer needed.
            memory.text.truncate(bytes);
            memory.values.truncate(values);
            match (self.list_macro, truth) {
                (ListMacro::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                (ListMacro::All, Ok(false)) => return Ok(Value::Bool(false)),
                (ListMacro::Exists | ListMacro::All, Err(Halt::Error(message))) => error = Some(message),
                (_, Err(halt)) => return Err(halt),
                (ListMacro::Filter, Ok(true)) => {
                    memory.values[kept.range().start + count] = item;
                    count += 1;
                }
                (_, Ok(truth)) => count += usize::from(truth),
            }
        }
        // As for `&&` and `||`, an error counts only if no item decided.
        memory.locals.truncate(self.local);
        match (error, self.list_macro) {
            (Some(message), _) => Err(Halt::Error(message)),
            (None, ListMacro::Exists) => Ok(Value::Bool(false)),
            (None, ListMacro::All) => Ok(Value::Bool(true)),
            (None, ListMacro::ExistsOne) => Ok(Value::Bool(count == 1)),
            (None, ListMacro::Map | ListMacro::Filter) => {
                Ok(Value::List(ValueRange::new(kept.range().start..kept.range().start + count)))
            }
        }
    }
}
