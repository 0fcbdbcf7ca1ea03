//! `expression`: a condition in CEL, with the other matchers as functions and placeholders as values.
//!
//! - `token`, `syntax`: from text to a tree
//! - `program`: from the tree to what runs, its types checked; `call`: matchers called as functions
//! - `value`, `evaluate`, `function`: what runs
//!
//! All of it is compiled at load; an evaluation allocates nothing once its worker's memory has grown to what it needs. What CEL
//! has and this has not is refused at load by name: fields and maps as values, octet strings, unsigned numbers, times, `has`,
//! `format`, patterns that are no literals.
//!
//! A variable's value is a text here, where Caddy also keeps numbers and booleans. So it is compared as the other side is:
//! `{http.vars.n} == 5` and `{http.vars.n} == '5'` both hold.

mod call;
mod evaluate;
mod function;
mod program;
mod syntax;
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

/// What a worker keeps of an evaluation's memory; what is above goes back to the allocator.
const KEPT_OCTETS_MAX: usize = 16 * 1024;
const KEPT_VALUES_MAX: usize = 1024;

/// Why an expression is none.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    /// In characters, from 1.
    at: usize,
    what: String,
}

impl Mistake {
    fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    expr: String,
    #[serde(default)]
    name: String,
}

struct Expression(Program);

/// Makes the matcher from a string, or from an object with `expr` and the `name` that regular expressions in it get.
///
/// # Errors
/// When it is no expression, or none that is true or false.
pub fn make(value: &Json, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written = match value {
        Json::String(text) => Named { expr: text.clone(), name: String::new() },
        _ => build.parse(value)?,
    };
    let source = &written.expr;
    let refuse = |mistake: Mistake, build: &Build<'_>| {
        build.refuse(source, format!("a CEL expression: {} at character {}", mistake.what, mistake.at))
    };
    let tree = token::tokens(source).and_then(|tokens| syntax::parse(&tokens));
    let tree = tree.map_err(|mistake| refuse(mistake, build))?;
    match program::compile(&tree, &written.name, build) {
        Ok(program) => Ok(Box::new(Expression(program))),
        Err(program::Refusal::Here(mistake)) => Err(refuse(mistake, build)),
        Err(program::Refusal::There(error)) => Err(error),
    }
}

thread_local! {
    /// Taken while an expression is evaluated, so that one inside of another would find an empty one.
    static MEMORY: Cell<Memory> = const { Cell::new(Memory::EMPTY) };
}

impl Matcher for Expression {
    fn matches(&self, cx: &mut Context) -> Matched {
        let mut memory = MEMORY.take();
        memory.begin(&self.0.constants);
        let result = self.0.root.evaluate(cx, &mut memory);
        memory.give_back(KEPT_OCTETS_MAX, KEPT_VALUES_MAX);
        MEMORY.set(memory);
        match result {
            Ok(value) => Ok(matches!(value, Value::Bool(true))),
            Err(Halt::Stop(stop)) => Err(stop),
            Err(Halt::Error(words)) => {
                let reason = Reason::Text(words.into());
                Err(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason }.into())
            }
        }
    }

    fn reach(&self) -> Reach<'_> {
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
