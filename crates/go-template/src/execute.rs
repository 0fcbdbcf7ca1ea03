//! The execution of a template: its nodes in their order.

use std::sync::Arc;

use crate::budget::{Budget, DEPTH_MAX, LimitError};
use crate::error::ExecuteError;
use crate::format::quoted;
use crate::functions::Functions;
use crate::print;
use crate::set::TemplateSet;
use crate::tree::{Branch, CommandNode, Invocation, Operand, Pipe, Template, TemplateNode};
use crate::value::Value;

/// A node of the tree, for the place of an error.
#[derive(Clone, Copy)]
pub(crate) enum Place<'t> {
    Start,
    Pipe(&'t Pipe),
    Command(&'t CommandNode),
    Operand(&'t Operand),
    Invocation(&'t Invocation),
}

impl Place<'_> {
    fn at_and_source(&self) -> Option<(usize, String)> {
        match self {
            Self::Start => None,
            Self::Pipe(node) => Some((node.at, node.to_string())),
            Self::Command(node) => Some((node.at, node.to_string())),
            Self::Operand(node) => Some((node.at, node.to_string())),
            Self::Invocation(node) => Some((node.at, node.to_string())),
        }
    }
}

/// How a list of nodes ended.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// The state of a template while it is executed.
pub(crate) struct State<'t> {
    pub(crate) template: &'t Template,
    pub(crate) set: &'t TemplateSet,
    pub(crate) functions: &'t Functions,
    pub(crate) budget: &'t Budget,
    pub(crate) variables: Vec<(&'t str, Value)>,
    pub(crate) place: Place<'t>,
}

pub(crate) type ExecuteResult<T> = Result<T, ExecuteError>;

/// Executes a template and appends its output.
pub(crate) fn execute(
    template: &Template,
    set: &TemplateSet,
    functions: &Functions,
    budget: &Budget,
    data: &Value,
    output: &mut Vec<u8>,
) -> ExecuteResult<()> {
    let variables = vec![("$", data.clone())];
    let mut state = State { template, set, functions, budget, variables, place: Place::Start };
    state.list(data, &template.root, output).map(drop)
}

impl<'t> State<'t> {
    pub(crate) fn error(&self, message: impl AsRef<str>) -> ExecuteError {
        let (name, message) = (&self.template.name, message.as_ref());
        let message = match self.place.at_and_source() {
            None => format!("template: {name}: {message}"),
            Some((at, source)) => {
                let (line, column) = self.template.source.line_and_column(at);
                let text = &self.template.source.name;
                let name = quoted(name.as_bytes());
                format!("template: {text}:{line}:{column}: executing {name} at <{source}>: {message}")
            }
        };
        ExecuteError { template: self.template.name.clone(), message }
    }

    pub(crate) fn fail<T>(&self, message: impl AsRef<str>) -> ExecuteResult<T> {
        Err(self.error(message))
    }

    pub(crate) fn bounded<T>(&self, result: Result<T, LimitError>) -> ExecuteResult<T> {
        result.map_err(|exhausted| self.error(exhausted.to_string()))
    }

    /// Runs a step of the recursion, which the depth bounds.
    pub(crate) fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> ExecuteResult<T>) -> ExecuteResult<T> {
        let depth = self.budget.depth.get();
        if depth == DEPTH_MAX {
            return self.fail(LimitError::Depth.to_string());
        }
        self.budget.depth.set(depth + 1);
        let result = run(self);
        self.budget.depth.set(depth);
        result
    }

    fn list(&mut self, dot: &Value, nodes: &'t [TemplateNode], output: &mut Vec<u8>) -> ExecuteResult<Flow> {
        self.deeper(|state| {
            for node in nodes {
                let flow = state.node(dot, node, output)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
            }
            Ok(Flow::Next)
        })
    }

    fn node(&mut self, dot: &Value, node: &'t TemplateNode, output: &mut Vec<u8>) -> ExecuteResult<Flow> {
        self.bounded(self.budget.charge_steps(1))?;
        match node {
            TemplateNode::Text(text) => self.write(text, output)?,
            TemplateNode::Action(pipe) => {
                let value = self.pipeline(dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.print(&value, output)?;
                }
            }
            TemplateNode::If(branch) => return self.condition(dot, branch, false, output),
            TemplateNode::With(branch) => return self.condition(dot, branch, true, output),
            TemplateNode::Range(branch) => return self.range(dot, branch, output),
            TemplateNode::Template(invocation) => self.invocation(dot, invocation, output)?,
            TemplateNode::Break => return Ok(Flow::Break),
            TemplateNode::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn write(&self, text: &[u8], output: &mut Vec<u8>) -> ExecuteResult<()> {
        self.bounded(self.budget.charge_output(text.len()))?;
        output.extend_from_slice(text);
        Ok(())
    }

    fn print(&self, value: &Value, output: &mut Vec<u8>) -> ExecuteResult<()> {
        match value {
            Value::Absent => self.write(b"<no value>", output),
            Value::String(text) => self.write(text, output),
            _ => {
                let text = print::plain(self.budget, value).map_err(|error| self.error(error.to_string()))?;
                self.write(&text, output)
            }
        }
    }

    fn condition(
        &mut self,
        dot: &Value,
        branch: &'t Branch,
        sets_dot: bool,
        output: &mut Vec<u8>,
    ) -> ExecuteResult<Flow> {
        let mark = self.variables.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let flow = if value.is_true() {
            self.list(if sets_dot { &value } else { dot }, &branch.list, output)?
        } else if let Some(otherwise) = &branch.otherwise {
            self.list(dot, otherwise, output)?
        } else {
            Flow::Next
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn range(&mut self, dot: &Value, branch: &'t Branch, output: &mut Vec<u8>) -> ExecuteResult<Flow> {
        let mark = self.variables.len();
        let value = self.pipeline(dot, &branch.pipe)?.resolved();
        let is_empty = match &value {
            Value::Absent | Value::Nil => true,
            Value::List(list) => {
                for (index, item) in list.items().iter().enumerate() {
                    let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    if self.iterate(branch, index, item, output)? == Flow::Break {
                        break;
                    }
                }
                list.items().is_empty()
            }
            Value::Map(map) => {
                // The body may change the map: as in Go, the range has the entries of its begin.
                let bytes = map.entries().len().saturating_mul(size_of::<(Arc<[u8]>, Value)>());
                self.bounded(self.budget.charge_memory(bytes))?;
                let entries: Vec<(Arc<[u8]>, Value)> =
                    map.entries().iter().map(|(key, value)| (Arc::clone(key), value.clone())).collect();
                for (key, item) in &entries {
                    if self.iterate(branch, Value::String(Arc::clone(key)), item, output)? == Flow::Break {
                        break;
                    }
                }
                entries.is_empty()
            }
            Value::Int(_) | Value::Integer(..) | Value::Uint(_) => self.range_over_integer(branch, &value, output)?,
            _ => {
                let shown = print::plain(self.budget, &value).map_err(|error| self.error(error.to_string()))?;
                return self.fail(format!("range can't iterate over {}", String::from_utf8_lossy(&shown)));
            }
        };
        let flow = match &branch.otherwise {
            Some(otherwise) if is_empty => self.list(dot, otherwise, output)?,
            _ => Flow::Next,
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    /// Returns whether there was nothing to iterate over.
    fn range_over_integer(&mut self, branch: &'t Branch, value: &Value, output: &mut Vec<u8>) -> ExecuteResult<bool> {
        if branch.pipe.variables.len() > 1 {
            let shown = print::plain(self.budget, value).map_err(|error| self.error(error.to_string()))?;
            let shown = String::from_utf8_lossy(&shown);
            return self.fail(format!("can't use {shown} to iterate over more than one variable"));
        }
        let count = match value {
            Value::Uint(count) => *count,
            _ => u64::try_from(value.as_integer().unwrap_or(0)).unwrap_or(0),
        };
        for index in 0..count {
            let number = i64::try_from(index).unwrap_or(i64::MAX);
            let item = match value {
                Value::Integer(_, kind) => Value::Integer(number, *kind),
                Value::Uint(_) => Value::Uint(index),
                _ => Value::Int(number),
            };
            if self.iterate(branch, Value::Absent, &item, output)? == Flow::Break {
                break;
            }
        }
        Ok(count == 0)
    }

    fn iterate(&mut self, branch: &'t Branch, index: Value, item: &Value, output: &mut Vec<u8>) -> ExecuteResult<Flow> {
        self.bounded(self.budget.charge_steps(1))?;
        let mark = self.variables.len();
        let names = &branch.pipe.variables;
        let both = [index, item.clone()];
        // With one variable it is the element, with two the index comes first.
        for (position, (name, value)) in names.iter().zip(both.into_iter().skip(2 - names.len().min(2))).enumerate() {
            if branch.pipe.assigns {
                self.set_variable(name, value)?;
            } else {
                let at = mark - names.len() + position;
                self.variables[at].1 = value;
            }
        }
        let flow = self.list(item, &branch.list, output)?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn invocation(&mut self, dot: &Value, invocation: &'t Invocation, output: &mut Vec<u8>) -> ExecuteResult<()> {
        self.place = Place::Invocation(invocation);
        let Some(template) = self.set.template(&invocation.name) else {
            return self.fail(format!("template {} not defined", quoted(invocation.name.as_bytes())));
        };
        let data = match &invocation.pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Value::Absent,
        };
        self.deeper(|state| execute(&template, state.set, state.functions, state.budget, &data, output))
    }
}
