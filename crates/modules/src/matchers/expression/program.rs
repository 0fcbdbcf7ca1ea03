//! Compiles the tree: placeholders become slots and templates, matchers and patterns are built, and types are checked
//! as far as they are known at load.

use causeway_pipeline::{Build, BuildError, Matcher, Template};
use jiff::tz::TimeZone;
use serde_json::Map;

use super::function::{self, CallForm, Function, Type};
use super::syntax::{Expr, Tree};
use super::time::{self, TimePart};
use super::token::{CLOSE, OPEN};
use super::value::{Memory, Value, ValueRange};
use super::{ExpressionError, call};
use crate::regexp::WorkerRegex;

/// Most nested variables of `exists` and similar macros.
const LOCALS_MAX: usize = 8;

pub(super) struct Program {
    pub(super) root: Node,
    /// The strings that constants in the program refer to.
    pub(super) constants: Vec<u8>,
}

pub(super) enum Node {
    Constant(Value),
    /// A placeholder; null while it has no value.
    Placeholder(Template),
    /// The current time.
    Now,
    /// The variable of an `exists` or similar macro.
    Local(usize),
    List(Box<[Self]>),
    Any(Box<[Self]>),
    All(Box<[Self]>),
    Not(Box<Self>),
    Negate(Box<Self>),
    Conditional(Box<[Self; 3]>),
    /// Equality, or inequality if the flag is set.
    Equal(Box<[Self; 2]>, bool),
    Compare(Order, Box<[Self; 2]>),
    In(Box<[Self; 2]>),
    Arithmetic(Arithmetic, Box<[Self; 2]>),
    Index(Box<[Self; 2]>),
    Call(Function, Box<[Self]>),
    Search(Box<Self>, WorkerRegex),
    /// A part of a timestamp in a time zone, or of a duration.
    TimePart(TimePart, TimeZone, Box<Self>),
    Matcher(Box<dyn Matcher>),
    /// A placeholder or a matcher in the body of a macro, which evaluates it for each item.
    Repeated(Box<Self>),
    Comprehension(Comprehension),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The macros that iterate over a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMacro {
    Exists,
    All,
    ExistsOne,
    Map,
    Filter,
}

/// A call such as `list.exists(x, …)`.
pub(super) struct Comprehension {
    pub(super) list_macro: ListMacro,
    /// Index of the variable that holds the item.
    pub(super) local: usize,
    list_and_body: Box<[Node; 2]>,
}

impl Comprehension {
    pub(super) fn list(&self) -> &Node {
        &self.list_and_body[0]
    }

    pub(super) fn body(&self) -> &Node {
        &self.list_and_body[1]
    }
}

/// The reason that an expression was not compiled.
pub(super) enum CompileError {
    /// A mistake in the expression.
    Expression(ExpressionError),
    /// A part of the expression (a matcher or a pattern) was rejected by its own module.
    Module(BuildError),
}

impl From<ExpressionError> for CompileError {
    fn from(mistake: ExpressionError) -> Self {
        Self::Expression(mistake)
    }
}

impl From<BuildError> for CompileError {
    fn from(error: BuildError) -> Self {
        Self::Module(error)
    }
}

/// Compiles a tree. `named` is the default name of its regular expressions.
pub(super) fn compile(tree: &Tree, named: &str, build: &mut Build<'_>) -> Result<Program, CompileError> {
    let mut compilation = Compilation { named, build, constants: Vec::new(), locals: Vec::new() };
    let (root, kind) = compilation.node(tree)?;
    if kind != Type::Bool {
        let message = format!("a value of type {}, where true or false is needed,", kind.name());
        return Err(ExpressionError::new(tree.at, message).into());
    }
    Ok(Program { root, constants: compilation.constants })
}

struct Compilation<'c, 'r> {
    named: &'c str,
    build: &'c mut Build<'r>,
    constants: Vec<u8>,
    locals: Vec<String>,
}

type Typed = (Node, Type);

impl Compilation<'_, '_> {
    fn node(&mut self, tree: &Tree) -> Result<Typed, CompileError> {
        let constant = |value, kind| Ok((Node::Constant(value), kind));
        match &tree.part {
            Expr::Null => constant(Value::Null, Type::Null),
            Expr::Bool(truth) => constant(Value::Bool(*truth), Type::Bool),
            Expr::Int(number) => constant(Value::Int(*number), Type::Int),
            Expr::Double(number) => constant(Value::Double(*number), Type::Double),
            Expr::Text(text) if text.contains([OPEN, CLOSE]) => {
                let message = "a placeholder in a string, where it is not expanded: write it outside of the quotes (with +), \
                            or with a backslash in front of its brace for the braces themselves,";
                Err(ExpressionError::new(tree.at, message).into())
            }
            Expr::Text(text) => Ok((self.text(text), Type::Text)),
            // The other placeholders of the clock are texts, as in Caddy.
            Expr::Placeholder(name) if name == "time.now" => Ok((Node::Now, Type::Time)),
            Expr::Placeholder(name) => Ok((self.placeholder(name), Type::Dyn)),
            Expr::Name(name) => match self.locals.iter().rposition(|local| local == name) {
                Some(number) => Ok((Node::Local(number), Type::Dyn)),
                None => Err(ExpressionError::new(tree.at, format!("the unknown name '{name}'")).into()),
            },
            Expr::List(items) => Ok((Node::List(self.nodes(items)?.0), Type::List)),
            Expr::Map(_) => {
                Err(ExpressionError::new(tree.at, "a map, which only header(), query(), vars() and file() take,")
                    .into())
            }
            Expr::Any(parts) => Ok((Node::Any(self.truths(parts)?), Type::Bool)),
            Expr::All(parts) => Ok((Node::All(self.truths(parts)?), Type::Bool)),
            Expr::Unary("!", inner) => Ok((Node::Not(Box::new(self.truth(inner)?)), Type::Bool)),
            Expr::Unary(_, inner) => match self.node(inner)? {
                // A negative literal is a constant.
                (Node::Constant(Value::Int(number)), _) if number != i64::MIN => {
                    constant(Value::Int(-number), Type::Int)
                }
                (node, kind @ (Type::Int | Type::Double | Type::Dyn)) => Ok((Node::Negate(Box::new(node)), kind)),
                (_, kind) => Err(wrong("-", &[kind], tree.at)),
            },
            Expr::Binary(operator, sides) => self.binary(operator, sides, tree.at),
            Expr::Index(sides) => match self.pair(sides)? {
                (nodes, [Type::List | Type::Dyn, Type::Int | Type::Dyn]) => Ok((Node::Index(nodes), Type::Dyn)),
                (_, kinds) => Err(wrong("[]", &kinds, tree.at)),
            },
            Expr::Conditional(parts) => {
                // The branches may have different types only if one is known at run time.
                let condition = self.truth(&parts[0])?;
                let ((yes, one), (no, other)) = (self.node(&parts[1])?, self.node(&parts[2])?);
                if !one.fits(other) {
                    return Err(wrong("? :", &[one, other], tree.at));
                }
                let kind = if one == other { one } else { Type::Dyn };
                Ok((Node::Conditional(Box::new([condition, yes, no])), kind))
            }
            Expr::Call(on, name, arguments) => self.call(on.as_deref(), name, arguments, tree.at),
        }
    }

    fn text(&mut self, text: &str) -> Node {
        let start = self.constants.len();
        self.constants.extend_from_slice(text.as_bytes());
        Node::Constant(Value::Text(ValueRange::new(start..self.constants.len())))
    }

    fn placeholder(&mut self, name: &str) -> Node {
        let template = self.build.template(&format!("{{{name}}}"));
        match template.literal() {
            Some(text) => {
                let text = text.to_owned();
                self.text(&text)
            }
            None => self.repeated(Node::Placeholder(template)),
        }
    }

    /// Marks a placeholder or a matcher if it is in the body of a macro.
    fn repeated(&self, node: Node) -> Node {
        if self.locals.is_empty() { node } else { Node::Repeated(Box::new(node)) }
    }

    fn nodes(&mut self, trees: &[Tree]) -> Result<(Box<[Node]>, Vec<Type>), CompileError> {
        let (mut nodes, mut kinds) = (Vec::with_capacity(trees.len()), Vec::with_capacity(trees.len()));
        for tree in trees {
            let (node, kind) = self.node(tree)?;
            nodes.push(node);
            kinds.push(kind);
        }
        Ok((nodes.into(), kinds))
    }

    fn pair(&mut self, sides: &[Tree; 2]) -> Result<(Box<[Node; 2]>, [Type; 2]), CompileError> {
        let ((one, left), (other, right)) = (self.node(&sides[0])?, self.node(&sides[1])?);
        Ok((Box::new([one, other]), [left, right]))
    }

    fn truth(&mut self, tree: &Tree) -> Result<Node, CompileError> {
        match self.node(tree)? {
            (node, Type::Bool | Type::Dyn) => Ok(node),
            (_, kind) => {
                let message = format!("a value of type {}, where true or false is needed,", kind.name());
                Err(ExpressionError::new(tree.at, message).into())
            }
        }
    }

    fn truths(&mut self, trees: &[Tree]) -> Result<Box<[Node]>, CompileError> {
        trees.iter().map(|tree| self.truth(tree)).collect()
    }

    fn binary(&mut self, operator: &'static str, sides: &[Tree; 2], at: usize) -> Result<Typed, CompileError> {
        let (nodes, kinds) = self.pair(sides)?;
        let [one, other] = kinds;
        // `Dyn` is compatible with every type; the other operand then determines the type.
        let known = if one == Type::Dyn { other } else { one };
        let arithmetic = match operator {
            "==" | "!=" if one.fits(other) => return Ok((Node::Equal(nodes, operator == "!="), Type::Bool)),
            "in" if other.fits(Type::List) => return Ok((Node::In(nodes), Type::Bool)),
            "<" | "<=" | ">" | ">=" if one.fits(other) && !matches!(known, Type::Null | Type::List) => {
                let order = match operator {
                    "<" => Order::Less,
                    "<=" => Order::LessOrEqual,
                    ">" => Order::Greater,
                    _ => Order::GreaterOrEqual,
                };
                return Ok((Node::Compare(order, nodes), Type::Bool));
            }
            "+" => Arithmetic::Add,
            "-" => Arithmetic::Subtract,
            "*" => Arithmetic::Multiply,
            "/" => Arithmetic::Divide,
            "%" => Arithmetic::Remainder,
            _ => return Err(wrong(operator, &kinds, at)),
        };
        if matches!(one, Type::Time | Type::Duration) || matches!(other, Type::Time | Type::Duration) {
            return match time::type_of(arithmetic, one, other) {
                Some(known) => Ok((Node::Arithmetic(arithmetic, nodes), known)),
                None => Err(wrong(operator, &kinds, at)),
            };
        }
        let takes = match (arithmetic, known) {
            (_, Type::Int | Type::Dyn) | (Arithmetic::Add, Type::Text | Type::List) => true,
            (arithmetic, Type::Double) => !matches!(arithmetic, Arithmetic::Remainder),
            _ => false,
        };
        match takes && one.fits(other) {
            true => Ok((Node::Arithmetic(arithmetic, nodes), known)),
            false => Err(wrong(operator, &kinds, at)),
        }
    }

    fn call(&mut self, on: Option<&Tree>, name: &str, arguments: &[Tree], at: usize) -> Result<Typed, CompileError> {
        let list_macro = match name {
            "exists" => Some(ListMacro::Exists),
            "all" => Some(ListMacro::All),
            "exists_one" => Some(ListMacro::ExistsOne),
            "map" => Some(ListMacro::Map),
            "filter" => Some(ListMacro::Filter),
            _ => None,
        };
        match (on, arguments) {
            (None, _) if call::is_matcher(name) => {
                // Build the matcher from JSON as a route would, so that both accept the same options.
                let json = call::json(name, arguments, self.named, at)?;
                let mut set = self.build.matcher_set(&Map::from_iter([(name.to_owned(), json)]))?;
                let matcher = set.pop().expect("one matcher was compiled");
                Ok((self.repeated(Node::Matcher(matcher)), Type::Bool))
            }
            // As in CEL: `map(x, condition, value)` is a filter and a map.
            (Some(list), [variable, condition, value]) if name == "map" => {
                let items = self.node(list)?;
                let filtered = self.comprehension(ListMacro::Filter, items, list.at, variable, condition)?;
                self.comprehension(ListMacro::Map, filtered, list.at, variable, value)
            }
            (Some(list), [variable, body]) if list_macro.is_some() => {
                let items = self.node(list)?;
                self.comprehension(list_macro.expect("checked by the guard"), items, list.at, variable, body)
            }
            (Some(text), [pattern]) | (None, [text, pattern]) if name == "matches" => self.search(text, pattern),
            (Some(time), zone) if TimePart::named(name).is_some() => self.time_part(name, time, zone, at),
            _ => {
                // Neither matcher nor macro: an ordinary function.
                let form = if on.is_some() { CallForm::OnValue } else { CallForm::Plain };
                if !function::is_known(name, form) {
                    let message = format!("the function '{name}', which is not supported (docs/refused.md),");
                    return Err(ExpressionError::new(at, message).into());
                }
                let mut nodes = Vec::new();
                let mut kinds = Vec::new();
                for tree in on.into_iter().chain(arguments) {
                    let (node, kind) = self.node(tree)?;
                    nodes.push(node);
                    kinds.push(kind);
                }
                match function::find(name, form, &kinds) {
                    Some((function, gives)) => match self.converted(function, arguments, &nodes, &kinds)? {
                        Some(value) => Ok((Node::Constant(value), gives)),
                        None => Ok((Node::Call(function, nodes.into()), gives)),
                    },
                    None => Err(wrong(&format!("{name}()"), &kinds, at)),
                }
            }
        }
    }

    /// Returns the value of a conversion of a constant, as CEL does when it compiles an expression. The value of a
    /// placeholder is no constant.
    ///
    /// # Errors
    /// If the constant cannot be converted.
    fn converted(
        &mut self,
        function: Function,
        arguments: &[Tree],
        nodes: &[Node],
        kinds: &[Type],
    ) -> Result<Option<Value>, ExpressionError> {
        let (Some(expected), [Tree { at, .. }], [Node::Constant(value)]) = (function.conversion(), arguments, nodes)
        else {
            return Ok(None);
        };
        if kinds == [Type::Dyn] {
            return Ok(None);
        }
        let mut memory = Memory::default();
        memory.begin(&self.constants);
        match function.convert(*value, &mut memory) {
            Ok(Value::Text(span)) => {
                let start = self.constants.len();
                self.constants.extend_from_slice(memory.text(span));
                Ok(Some(Value::Text(ValueRange::new(start..self.constants.len()))))
            }
            Ok(value) => Ok(Some(value)),
            Err(_) => {
                let found = match value {
                    Value::Text(span) => format!("'{}'", String::from_utf8_lossy(memory.text(*span))),
                    _ => format!("a value of type {}", kinds[0].name()),
                };
                Err(ExpressionError::new(*at, format!("{found}, which is not {expected},")))
            }
        }
    }

    fn time_part(&mut self, name: &str, time: &Tree, zone: &[Tree], at: usize) -> Result<Typed, CompileError> {
        let part = TimePart::named(name).expect("checked by the caller");
        let (node, kind) = self.node(time)?;
        let zone = match zone {
            [] => TimeZone::UTC,
            [Tree { part: Expr::Text(zone), at }] => time::zone(zone).ok_or_else(|| {
                ExpressionError::new(
                    *at,
                    format!("'{zone}', which is not a time zone such as 'Europe/Rome' or '+01:00',"),
                )
            })?,
            // A name of the client's choice would be looked up in files.
            [zone] => return Err(ExpressionError::new(zone.at, "a time zone that is not a string literal").into()),
            [_, zone, ..] => return Err(ExpressionError::new(zone.at, format!("a second argument of {name}()")).into()),
        };
        match kind.fits(Type::Time) || kind == Type::Duration && part.is_of_durations() {
            true => Ok((Node::TimePart(part, zone, Box::new(node)), Type::Int)),
            false => Err(wrong(&format!("{name}()"), &[kind], at)),
        }
    }

    fn search(&mut self, text: &Tree, pattern: &Tree) -> Result<Typed, CompileError> {
        let (node, kind) = self.node(text)?;
        if !kind.fits(Type::Text) {
            return Err(wrong("matches()", &[kind], text.at));
        }
        let Expr::Text(source) = &pattern.part else {
            return Err(ExpressionError::new(pattern.at, "a pattern that is not a string literal").into());
        };
        // In a pattern, braces are counts such as `{2}`, never placeholders.
        let source = source.replace(OPEN, "{").replace(CLOSE, "}");
        Ok((Node::Search(Box::new(node), WorkerRegex::compile(&source, self.build)?), Type::Bool))
    }

    fn comprehension(
        &mut self,
        list_macro: ListMacro,
        (list, kind): Typed,
        at: usize,
        variable: &Tree,
        body: &Tree,
    ) -> Result<Typed, CompileError> {
        let Expr::Name(name) = &variable.part else {
            return Err(ExpressionError::new(variable.at, "a variable that is not a plain name").into());
        };
        if !kind.fits(Type::List) {
            return Err(wrong("exists(), all(), map() or filter()", &[kind], at));
        }
        if self.locals.len() == LOCALS_MAX {
            return Err(ExpressionError::new(variable.at, "more than 8 nested variables").into());
        }
        // The name is in scope for the body only.
        self.locals.push(name.clone());
        let body = match list_macro {
            ListMacro::Map => self.node(body).map(|(node, _)| node),
            _ => self.truth(body),
        };
        self.locals.pop();
        // After the pop this is the index of the macro's own variable.
        let local = self.locals.len();
        let kind = match list_macro {
            ListMacro::Map | ListMacro::Filter => Type::List,
            _ => Type::Bool,
        };
        Ok((Node::Comprehension(Comprehension { list_macro, local, list_and_body: Box::new([list, body?]) }), kind))
    }
}

fn wrong(operator: &str, kinds: &[Type], at: usize) -> CompileError {
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    ExpressionError::new(at, format!("'{operator}', which does not take ({})", kinds.join(", "))).into()
}
