//! `expression`: a condition in CEL, with the other matchers as functions and placeholders as values.
//!
//! - `token`, `syntax`: parse the text to a tree
//! - `program`: compiles the tree and checks types; `call`: matchers called as functions
//! - `value`, `evaluate`, `function`, `time`: evaluation
//!
//! Expressions are compiled at load. An evaluation does not allocate once the worker's memory has grown to its size.
//! Unsupported parts of CEL are rejected at load by name: fields and maps as values, byte strings, unsigned integers,
//! types, `has`, `format`, and patterns that are not literals.
//!
//! Placeholders have the types of Caddy: ports, status codes and numbers of `vars` are numbers, so that
//! `{http.vars.n} == '5'` does not hold after `vars n 5`. Durations, and the time of `{time.now}`, are values of CEL.

mod call;
mod evaluate;
mod function;
mod program;
mod syntax;
mod time;
mod token;
mod value;

use std::cell::Cell;

use causeway_message::StatusCode;
use causeway_pipeline::{Build, BuildError, Context, Fault, Matched, Matcher, Reach, Reason};
use serde::Deserialize;
use serde_json::Value as Json;

use evaluate::Halt;
use program::{Node, Program};
use value::{Memory, Value};

/// Memory that a worker keeps between evaluations; the excess is freed.
const KEPT_BYTES_MAX: usize = 16 * 1024;
const KEPT_VALUES_MAX: usize = 1024;

/// A syntax or type error in an expression.
#[derive(Debug, PartialEq, Eq)]
struct ExpressionError {
    /// Position in characters, 1-based.
    at: usize,
    message: String,
}

impl ExpressionError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedExpressionConfig {
    expr: String,
    #[serde(default)]
    name: String,
}

struct Expression(Program);

/// Compiles the matcher from a string, or from an object with `expr` and a `name` for its regular expressions.
///
/// # Errors
/// If the text is not a valid expression, or its result is not a boolean.
pub fn make(value: &Json, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written = match value {
        Json::String(text) => NamedExpressionConfig { expr: text.clone(), name: String::new() },
        Json::Object(_) => build.parse(value)?,
        other => return Err(build.refuse(other.to_string(), "an expression, or an object with `expr`")),
    };
    let source = &written.expr;
    let refuse = |mistake: ExpressionError, build: &Build<'_>| {
        build.refuse(source, format!("a CEL expression: {} at character {}", mistake.message, mistake.at))
    };
    let tree = token::tokens(source).and_then(|tokens| syntax::parse(&tokens));
    let tree = tree.map_err(|mistake| refuse(mistake, build))?;
    match program::compile(&tree, &written.name, build) {
        Ok(program) => Ok(Box::new(Expression(program))),
        Err(program::CompileError::Expression(mistake)) => Err(refuse(mistake, build)),
        Err(program::CompileError::Module(error)) => Err(error),
    }
}

thread_local! {
    /// Taken out during an evaluation, so that a nested expression would find an empty memory instead of this one.
    static MEMORY: Cell<Memory> = const { Cell::new(Memory::EMPTY) };
}

impl Matcher for Expression {
    fn matches(&self, cx: &mut Context) -> Matched {
        let mut memory = MEMORY.take();
        // Constants are copied into the memory, so that all strings are spans of one buffer.
        memory.begin(&self.0.constants);
        let result = self.0.root.evaluate(cx, &mut memory);
        memory.release_memory(KEPT_BYTES_MAX, KEPT_VALUES_MAX);
        MEMORY.set(memory);
        match result {
            Ok(value) => Ok(matches!(value, Value::Bool(true))),
            Err(Halt::Stop(stop)) => Err(stop),
            Err(Halt::Error(message)) => {
                let reason = Reason::Text(message.into());
                Err(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason }.into())
            }
        }
    }

    fn reach(&self) -> Reach<'_> {
        // The route index can use the reach of a matcher that must match: the whole expression, or a term of a
        // top-level `&&`.
        match &self.0.root {
            Node::Matcher(matcher) => matcher.reach(),
            Node::All(parts) => {
                let reaches = parts.iter().map(|part| match part {
                    Node::Matcher(matcher) => matcher.reach(),
                    _ => Reach::All,
                });
                reaches.into_iter().find(|reach| *reach != Reach::All).unwrap_or(Reach::All)
            }
            _ => Reach::All,
        }
    }
}
