//! The parsed form of a template, and its source in Go's normal form, which error messages show.

use std::fmt;
use std::sync::Arc;

use bstr::ByteSlice;

use crate::format::quoted;

/// A text that was parsed, for the places of errors.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
}

impl Source {
    /// Returns the line, from 1, and the byte in it, from 0.
    pub(crate) fn line_and_column(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at.min(self.text.len())];
        let line = 1 + before.find_iter(b"\n").count();
        (line, before.len() - before.rfind_byte(b'\n').map_or(0, |newline| newline + 1))
    }
}

/// A template with a name.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) source: Arc<Source>,
    pub(crate) root: Vec<TemplateNode>,
}

impl Template {
    /// Returns whether the template has nothing but space: such a definition replaces no other.
    pub(crate) fn is_empty(&self) -> bool {
        is_empty(&self.root)
    }
}

fn is_empty(list: &[TemplateNode]) -> bool {
    list.iter().all(|node| matches!(node, TemplateNode::Text(text) if text.chars().all(char::is_whitespace)))
}

#[derive(Debug)]
pub(crate) enum TemplateNode {
    Text(Vec<u8>),
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template(Invocation),
    Break,
    Continue,
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: Pipe,
    pub(crate) list: Vec<TemplateNode>,
    pub(crate) otherwise: Option<Vec<TemplateNode>>,
}

/// `{{template "name" pipeline}}`, also the invocation of a `{{block}}`.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) at: usize,
    pub(crate) name: String,
    pub(crate) pipe: Option<Pipe>,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) at: usize,
    pub(crate) variables: Vec<String>,
    /// Whether the variables are set, not declared.
    pub(crate) assigns: bool,
    pub(crate) commands: Vec<CommandNode>,
}

#[derive(Debug)]
pub(crate) struct CommandNode {
    pub(crate) at: usize,
    /// At least one.
    pub(crate) operands: Vec<Operand>,
}

#[derive(Debug)]
pub(crate) struct Operand {
    pub(crate) at: usize,
    pub(crate) term: Term,
}

#[derive(Debug)]
pub(crate) enum Term {
    Bool(bool),
    Dot,
    Nil,
    Number(Number),
    String { source: Vec<u8>, text: Arc<[u8]> },
    Field(Vec<String>),
    Variable(String, Vec<String>),
    Identifier(String),
    Pipe(Pipe),
    Chain(Box<Operand>, Vec<String>),
}

/// A constant with all types that it fits.
#[derive(Debug)]
pub(crate) struct Number {
    pub(crate) text: String,
    pub(crate) int: Option<i64>,
    pub(crate) float: Option<f64>,
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.root)
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{template {}", quoted(self.name.as_bytes()))?;
        if let Some(pipe) = &self.pipe {
            write!(f, " {pipe}")?;
        }
        f.write_str("}}")
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            f.write_str(&self.variables.join(", "))?;
            f.write_str(if self.assigns { " = " } else { " := " })?;
        }
        for (index, command) in self.commands.iter().enumerate() {
            f.write_str(if index > 0 { " | " } else { "" })?;
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for CommandNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operand) in self.operands.iter().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            write_operand(f, operand)?;
        }
        Ok(())
    }
}

fn write_operand(f: &mut fmt::Formatter<'_>, operand: &Operand) -> fmt::Result {
    match &operand.term {
        Term::Pipe(pipe) => write!(f, "({pipe})"),
        _ => write!(f, "{operand}"),
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Bool(value) => write!(f, "{value}"),
            Term::Dot => f.write_str("."),
            Term::Nil => f.write_str("nil"),
            Term::Number(number) => f.write_str(&number.text),
            Term::String { source, .. } => f.write_str(&String::from_utf8_lossy(source)),
            Term::Field(names) => names.iter().try_for_each(|name| write!(f, ".{name}")),
            Term::Variable(name, fields) => {
                f.write_str(name)?;
                fields.iter().try_for_each(|name| write!(f, ".{name}"))
            }
            Term::Identifier(name) => f.write_str(name),
            Term::Pipe(pipe) => pipe.fmt(f),
            Term::Chain(inner, fields) => {
                write_operand(f, inner)?;
                fields.iter().try_for_each(|name| write!(f, ".{name}"))
            }
        }
    }
}

fn write_branch(f: &mut fmt::Formatter<'_>, word: &str, branch: &Branch) -> fmt::Result {
    write!(f, "{{{{{word} {}}}}}", branch.pipe)?;
    write_list(f, &branch.list)?;
    if let Some(otherwise) = &branch.otherwise {
        f.write_str("{{else}}")?;
        write_list(f, otherwise)?;
    }
    f.write_str("{{end}}")
}

fn write_list(f: &mut fmt::Formatter<'_>, list: &[TemplateNode]) -> fmt::Result {
    for node in list {
        match node {
            TemplateNode::Text(text) => f.write_str(&String::from_utf8_lossy(text))?,
            TemplateNode::Action(pipe) => write!(f, "{{{{{pipe}}}}}")?,
            TemplateNode::If(branch) => write_branch(f, "if", branch)?,
            TemplateNode::With(branch) => write_branch(f, "with", branch)?,
            TemplateNode::Range(branch) => write_branch(f, "range", branch)?,
            TemplateNode::Template(invocation) => write!(f, "{invocation}")?,
            TemplateNode::Break => f.write_str("{{break}}")?,
            TemplateNode::Continue => f.write_str("{{continue}}")?,
        }
    }
    Ok(())
}
