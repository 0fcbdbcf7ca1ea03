//! Parses a template's text.

pub(crate) mod number;
mod quote;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bounds::{NESTING_MAX, TEXT_BYTES_MAX};
use crate::error::ParseError;
use crate::format::quoted;
use crate::lex::{Keyword, Kind, Lexer, Token};
use crate::tree::{Branch, CommandNode, Invocation, Operand, Pipe, Source, Template, TemplateNode, Term};

use quote::unquote;

/// The templates that a text defines.
pub(crate) type Templates = BTreeMap<String, Template>;

/// Parses a text. The template of the given name is the text outside of definitions. `is_function` accepts the names
/// of all functions.
pub(crate) fn parse(
    name: &str,
    text: &[u8],
    delimiters: (&[u8], &[u8]),
    is_function: &dyn Fn(&str) -> bool,
) -> Result<Templates, ParseError> {
    let source = Arc::new(Source { name: name.to_owned(), text: text.to_vec() });
    let mut parser = Parser {
        lexer: Lexer::new(text, delimiters.0, delimiters.1),
        ahead: Vec::new(),
        source: Arc::clone(&source),
        at: 0,
        action: None,
        scope: Scope::new(),
        nesting: 0,
        is_function,
        templates: Templates::new(),
    };
    if text.len() > TEXT_BYTES_MAX {
        return Err(parser.error(format!("the text has more than {TEXT_BYTES_MAX} bytes")));
    }
    let root = parser.top()?;
    parser.add(Template { name: name.to_owned(), source, root })?;
    Ok(parser.templates)
}

/// The action that ends a list of nodes.
enum Closing {
    End,
    Else,
}

/// A text or an action.
enum Parsed {
    Node(TemplateNode),
    Closing(Closing),
}

/// The action in which a pipeline is.
#[derive(Clone, Copy)]
enum PipelineContext {
    Action,
    Block,
    Template,
    Branch(BranchKind),
    Parentheses,
}

impl PipelineContext {
    /// Returns the name in Go's messages.
    fn name(self) -> &'static str {
        match self {
            Self::Action => "command",
            Self::Block => BLOCK,
            Self::Template => TEMPLATE,
            Self::Branch(kind) => kind.name(),
            Self::Parentheses => "parenthesized pipeline",
        }
    }

    fn end(self) -> Kind {
        match self {
            Self::Parentheses => Kind::RightParen,
            _ => Kind::RightDelim,
        }
    }

    /// Returns how many variables the pipeline may declare.
    fn variables_max(self) -> usize {
        match self {
            Self::Branch(BranchKind::Range) => 2,
            _ => 1,
        }
    }
}

/// An action with a list of nodes that it executes on a condition.
#[derive(Clone, Copy, Eq, PartialEq)]
enum BranchKind {
    If,
    Range,
    With,
}

impl BranchKind {
    fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Range => "range",
            Self::With => "with",
        }
    }
}

const BLOCK: &str = "block clause";
const DEFINE: &str = "define clause";
const TEMPLATE: &str = "template clause";

/// The state that a definition does not share with the text around it.
struct Scope {
    variables: Vec<String>,
    ranges: u32,
}

impl Scope {
    fn new() -> Self {
        Self { variables: vec!["$".to_owned()], ranges: 0 }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Tokens that were put back, the next one last.
    ahead: Vec<Token>,
    source: Arc<Source>,
    /// Where the last token began.
    at: usize,
    /// Where the action began that is being parsed.
    action: Option<usize>,
    scope: Scope,
    nesting: u32,
    is_function: &'a dyn Fn(&str) -> bool,
    templates: Templates,
}

impl Parser<'_> {
    fn next(&mut self) -> Token {
        let token = self.ahead.pop().unwrap_or_else(|| self.lexer.token());
        self.at = token.at;
        token
    }

    fn put_back(&mut self, token: Token) {
        self.ahead.push(token);
    }

    fn peek(&mut self) -> Kind {
        let token = self.next();
        let kind = token.kind;
        self.put_back(token);
        kind
    }

    fn next_non_space(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Kind {
        let token = self.next_non_space();
        let kind = token.kind;
        self.put_back(token);
        kind
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        let (line, column) = self.source.line_and_column(self.at);
        ParseError { template: self.source.name.clone(), line, column, message: message.into() }
    }

    fn unexpected(&self, token: &Token, context: &str) -> ParseError {
        let shown = token.describe();
        if token.kind != Kind::Error {
            return self.error(format!("unexpected {shown} in {context}"));
        }
        let line = |at| self.source.line_and_column(at).0;
        match self.action {
            Some(action) if line(action) != line(token.at) => {
                let word = if shown.ends_with(" action") { "" } else { " in action" };
                self.error(format!("{shown}{word} started at {}:{}", self.source.name, line(action)))
            }
            _ => self.error(shown),
        }
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Result<Token, ParseError> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { Err(self.unexpected(&token, context)) }
    }

    /// Bounds the recursion of the parser, and with it that of everything that walks over the tree.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.nesting == NESTING_MAX {
            return Err(self.error("max expression depth exceeded"));
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    fn add(&mut self, template: Template) -> Result<(), ParseError> {
        match self.templates.get(&template.name) {
            Some(old) if !old.is_empty() => {
                if !template.is_empty() {
                    let name = quoted(template.name.as_bytes());
                    return Err(self.error(format!("template: multiple definition of template {name}")));
                }
            }
            _ => {
                self.templates.insert(template.name.clone(), template);
            }
        }
        Ok(())
    }

    /// Parses to the end of the text. `{{define}}` is valid only at the top level.
    fn top(&mut self) -> Result<Vec<TemplateNode>, ParseError> {
        let mut list = Vec::new();
        loop {
            let token = self.next();
            match token.kind {
                Kind::Eof => return Ok(list),
                Kind::LeftDelim => {
                    let word = self.next_non_space();
                    if word.kind == Kind::Keyword(Keyword::Define) {
                        self.definition()?;
                        continue;
                    }
                    self.put_back(word);
                }
                _ => {}
            }
            self.put_back(token);
            match self.text_or_action()? {
                Parsed::Node(node) => list.push(node),
                Parsed::Closing(Closing::End) => return Err(self.error("unexpected {{end}}")),
                Parsed::Closing(Closing::Else) => return Err(self.error("unexpected {{else}}")),
            }
        }
    }

    fn definition(&mut self) -> Result<(), ParseError> {
        let token = self.next_non_space();
        let name = self.template_name(&token, DEFINE)?;
        self.expect(Kind::RightDelim, DEFINE)?;
        self.body(name, DEFINE)
    }

    /// Parses the body of a definition, which begins with no variable but `$`.
    fn body(&mut self, name: String, context: &str) -> Result<(), ParseError> {
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        let (root, closing) = self.list()?;
        self.scope = outer;
        if matches!(closing, Closing::Else) {
            return Err(self.error(format!("unexpected {{{{else}}}} in {context}")));
        }
        self.add(Template { name, source: Arc::clone(&self.source), root })
    }

    fn template_name(&mut self, token: &Token, context: &str) -> Result<String, ParseError> {
        match token.kind {
            Kind::String | Kind::RawString => {
                let name = unquote(&token.text).ok_or_else(|| self.error("invalid syntax"))?;
                String::from_utf8(name).map_err(|_| self.error("the name of a template is not UTF-8"))
            }
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn list(&mut self) -> Result<(Vec<TemplateNode>, Closing), ParseError> {
        self.nested(|parser| {
            let mut list = Vec::new();
            while parser.peek_non_space() != Kind::Eof {
                match parser.text_or_action()? {
                    Parsed::Node(node) => list.push(node),
                    Parsed::Closing(closing) => return Ok((list, closing)),
                }
            }
            Err(parser.error("unexpected EOF"))
        })
    }

    fn text_or_action(&mut self) -> Result<Parsed, ParseError> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => Ok(Parsed::Node(TemplateNode::Text(token.text))),
            Kind::LeftDelim => {
                self.action = Some(token.at);
                let node = self.action();
                self.action = None;
                node
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    fn action(&mut self) -> Result<Parsed, ParseError> {
        let token = self.next_non_space();
        let Kind::Keyword(keyword) = token.kind else {
            self.put_back(token);
            return Ok(Parsed::Node(TemplateNode::Action(self.pipeline(PipelineContext::Action)?)));
        };
        let node = match keyword {
            Keyword::Block => TemplateNode::Template(self.block()?),
            Keyword::Break => {
                self.loop_control("{{break}}")?;
                TemplateNode::Break
            }
            Keyword::Continue => {
                self.loop_control("{{continue}}")?;
                TemplateNode::Continue
            }
            Keyword::Else => {
                let follows = self.peek_non_space();
                // `{{else if}}` is `{{else}}{{if}}`: the branch reads the second word.
                if !matches!(follows, Kind::Keyword(Keyword::If | Keyword::With)) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Parsed::Closing(Closing::Else));
            }
            Keyword::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Parsed::Closing(Closing::End));
            }
            Keyword::If => TemplateNode::If(self.branch(BranchKind::If)?),
            Keyword::Range => TemplateNode::Range(self.branch(BranchKind::Range)?),
            Keyword::With => TemplateNode::With(self.branch(BranchKind::With)?),
            Keyword::Template => TemplateNode::Template(self.invocation()?),
            Keyword::Define | Keyword::Nil => {
                self.put_back(token);
                TemplateNode::Action(self.pipeline(PipelineContext::Action)?)
            }
        };
        Ok(Parsed::Node(node))
    }

    fn loop_control(&mut self, context: &str) -> Result<(), ParseError> {
        self.expect(Kind::RightDelim, context)?;
        if self.scope.ranges == 0 {
            return Err(self.error(format!("{context} outside {{{{range}}}}")));
        }
        Ok(())
    }

    fn block(&mut self) -> Result<Invocation, ParseError> {
        let token = self.next_non_space();
        let name = self.template_name(&token, BLOCK)?;
        let pipe = self.pipeline(PipelineContext::Block)?;
        self.body(name.clone(), BLOCK)?;
        Ok(Invocation { at: token.at, name, pipe: Some(pipe) })
    }

    fn invocation(&mut self) -> Result<Invocation, ParseError> {
        let token = self.next_non_space();
        let name = self.template_name(&token, TEMPLATE)?;
        let next = self.next_non_space();
        let pipe = if next.kind == Kind::RightDelim {
            None
        } else {
            self.put_back(next);
            Some(self.pipeline(PipelineContext::Template)?)
        };
        Ok(Invocation { at: token.at, name, pipe })
    }

    fn branch(&mut self, kind: BranchKind) -> Result<Branch, ParseError> {
        let visible = self.scope.variables.len();
        let pipe = self.pipeline(PipelineContext::Branch(kind))?;
        self.scope.ranges += u32::from(kind == BranchKind::Range);
        let (list, closing) = self.list()?;
        self.scope.ranges -= u32::from(kind == BranchKind::Range);
        let otherwise = match closing {
            Closing::End => None,
            Closing::Else => Some(self.otherwise(kind)?),
        };
        self.scope.variables.truncate(visible);
        Ok(Branch { pipe, list, otherwise })
    }

    fn otherwise(&mut self, kind: BranchKind) -> Result<Vec<TemplateNode>, ParseError> {
        let token = self.next();
        match (kind, token.kind) {
            (BranchKind::If, Kind::Keyword(Keyword::If)) => {
                self.nested(|parser| Ok(vec![TemplateNode::If(parser.branch(kind)?)]))
            }
            (BranchKind::With, Kind::Keyword(Keyword::With)) => {
                self.nested(|parser| Ok(vec![TemplateNode::With(parser.branch(kind)?)]))
            }
            _ => {
                self.put_back(token);
                let (list, closing) = self.list()?;
                match closing {
                    Closing::End => Ok(list),
                    Closing::Else => Err(self.error("expected end; found {{else}}")),
                }
            }
        }
    }

    fn pipeline(&mut self, context: PipelineContext) -> Result<Pipe, ParseError> {
        let first = self.next_non_space();
        let at = first.at;
        self.put_back(first);
        let mut pipe = Pipe { at, variables: Vec::new(), assigns: false, commands: Vec::new() };
        while self.declaration(&mut pipe, context)? {}
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == context.end() => break,
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Keyword(Keyword::Nil)
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {
                    self.put_back(token);
                    pipe.commands.push(self.command()?);
                }
                _ => return Err(self.unexpected(&token, context.name())),
            }
        }
        if pipe.commands.is_empty() {
            return Err(self.error(format!("missing value for {}", context.name())));
        }
        for (index, command) in pipe.commands.iter().enumerate().skip(1) {
            if is_constant(&command.operands[0].term) {
                return Err(self.error(format!("non executable command in pipeline stage {}", index + 1)));
            }
        }
        Ok(pipe)
    }

    /// Parses a variable that is declared or set. Returns whether another one may follow.
    fn declaration(&mut self, pipe: &mut Pipe, context: PipelineContext) -> Result<bool, ParseError> {
        let variable = self.next_non_space();
        if variable.kind != Kind::Variable {
            self.put_back(variable);
            return Ok(false);
        }
        let name = String::from_utf8_lossy(&variable.text).into_owned();
        let after = self.next();
        let (space, next) =
            if after.kind == Kind::Space { (Some(after), self.next_non_space()) } else { (None, after) };
        match next.kind {
            Kind::Assign | Kind::Declare => {
                pipe.assigns = next.kind == Kind::Assign;
                pipe.variables.push(name.clone());
                self.scope.variables.push(name);
                Ok(false)
            }
            Kind::Char if next.text == b"," => {
                pipe.variables.push(name.clone());
                self.scope.variables.push(name);
                if pipe.variables.len() < context.variables_max() {
                    return match self.peek_non_space() {
                        Kind::Variable | Kind::RightDelim | Kind::RightParen => Ok(true),
                        _ => Err(self.error("range can only initialize variables")),
                    };
                }
                Err(self.error(format!("too many declarations in {}", context.name())))
            }
            _ => {
                self.put_back(next);
                self.ahead.extend(space);
                self.put_back(variable);
                Ok(false)
            }
        }
    }

    fn command(&mut self) -> Result<CommandNode, ParseError> {
        let first = self.next_non_space();
        let at = first.at;
        self.put_back(first);
        let mut operands = Vec::new();
        loop {
            self.peek_non_space();
            operands.extend(self.operand()?);
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelim | Kind::RightParen => {
                    self.put_back(token);
                    break;
                }
                Kind::Pipe => break,
                _ => return Err(self.unexpected(&token, "operand")),
            }
        }
        if operands.is_empty() {
            return Err(self.error("empty command"));
        }
        Ok(CommandNode { at, operands })
    }

    /// Parses a term with its fields.
    fn operand(&mut self) -> Result<Option<Operand>, ParseError> {
        let Some(mut operand) = self.term()? else { return Ok(None) };
        let mut names = Vec::new();
        let mut at = operand.at;
        while self.peek() == Kind::Field {
            let token = self.next();
            // As in Go, messages have the place of the first field after the term.
            at = if names.is_empty() { token.at } else { at };
            names.push(field_name(&token.text));
        }
        if names.is_empty() {
            return Ok(Some(operand));
        }
        match &mut operand.term {
            Term::Field(fields) | Term::Variable(_, fields) => {
                fields.append(&mut names);
                operand.at = at;
                Ok(Some(operand))
            }
            term if is_constant(term) => {
                let shown = quoted(operand.to_string().as_bytes());
                Err(self.error(format!("unexpected . after term {shown}")))
            }
            _ => Ok(Some(Operand { at, term: Term::Chain(Box::new(operand), names) })),
        }
    }

    fn term(&mut self) -> Result<Option<Operand>, ParseError> {
        let token = self.next_non_space();
        let text = String::from_utf8_lossy(&token.text);
        let term = match token.kind {
            Kind::Identifier => {
                if !(self.is_function)(&text) {
                    return Err(self.error(format!("function {} not defined", quoted(&token.text))));
                }
                Term::Identifier(text.into_owned())
            }
            Kind::Dot => Term::Dot,
            Kind::Keyword(Keyword::Nil) => Term::Nil,
            Kind::Variable => {
                if !self.scope.variables.iter().any(|name| **name == text) {
                    return Err(self.error(format!("undefined variable {}", quoted(&token.text))));
                }
                Term::Variable(text.into_owned(), Vec::new())
            }
            Kind::Field => Term::Field(vec![field_name(&token.text)]),
            Kind::Bool => Term::Bool(text == "true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => {
                Term::Number(number::constant(&token).map_err(|message| self.error(message))?)
            }
            Kind::LeftParen => Term::Pipe(self.nested(|parser| parser.pipeline(PipelineContext::Parentheses))?),
            Kind::String | Kind::RawString => {
                let text = unquote(&token.text).ok_or_else(|| self.error("invalid syntax"))?;
                Term::String { text: text.into(), source: token.text }
            }
            _ => {
                self.put_back(token);
                return Ok(None);
            }
        };
        // Go gives a parenthesized pipeline the place of its first token inside.
        let at = if let Term::Pipe(pipe) = &term { pipe.at } else { token.at };
        Ok(Some(Operand { at, term }))
    }
}

fn field_name(token: &[u8]) -> String {
    String::from_utf8_lossy(&token[1..]).into_owned()
}

fn is_constant(term: &Term) -> bool {
    matches!(term, Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::String { .. })
}
