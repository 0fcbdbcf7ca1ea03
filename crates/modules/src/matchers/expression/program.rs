//! From the tree to what runs: placeholders become slots and templates, matchers and patterns are built, types are checked as far
//! as they are known.

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Matcher, Template};
use serde_json::Map;

use super::function::{self, Form, Function, Type};
use super::syntax::{Part, Tree};
use super::token::{CLOSE, OPEN};
use super::value::{Span, Value};
use super::{Mistake, call};
use crate::regexp::Regexp;

/// Variables of `exists` and the like inside each other.
const LOCALS_MAX: usize = 8;

pub(super) struct Program {
    pub(super) root: Node,
    /// The texts that values in it refer to.
    pub(super) constants: Vec<u8>,
}

pub(super) enum Node {
    Constant(Value),
    /// A placeholder that is always known.
    Text(Template),
    /// What a handler may have set: null while unset.
    Variable(VarId),
    /// What a regular expression's group matched: null before.
    Group(VarId),
    /// The status of the fault that is handled; null without one.
    Status,
    OfFault(Template),
    /// Null in the clear.
    OfTls(Template),
    /// The same, with a truth for a text.
    OfTlsWritten(Template),
    /// A number or a truth that a placeholder writes.
    Written(Template),
    /// The variable of an `exists` or the like.
    Local(usize),
    List(Box<[Self]>),
    Any(Box<[Self]>),
    All(Box<[Self]>),
    Not(Box<Self>),
    Negate(Box<Self>),
    Choose(Box<[Self; 3]>),
    /// Or unequal.
    Equal(Box<[Self; 2]>, bool),
    Compare(Order, Box<[Self; 2]>),
    In(Box<[Self; 2]>),
    Arithmetic(Arithmetic, Box<[Self; 2]>),
    Index(Box<[Self; 2]>),
    Call(Function, Box<[Self]>),
    Search(Box<Self>, Regexp),
    Matcher(Box<dyn Matcher>),
    Each(Each),
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

/// What becomes of a list whose items are looked at one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Exists,
    All,
    ExistsOne,
    Map,
    Filter,
}

/// `list.exists(x, …)` and the like.
pub(super) struct Each {
    pub(super) aggregate: Aggregate,
    /// Where the item is found.
    pub(super) local: usize,
    list_and_body: Box<[Node; 2]>,
}

impl Each {
    pub(super) fn list(&self) -> &Node {
        &self.list_and_body[0]
    }

    pub(super) fn body(&self) -> &Node {
        &self.list_and_body[1]
    }
}

/// Why there is no program.
pub(super) enum Refusal {
    /// The expression is wrong here.
    Here(Mistake),
    /// What it is made of is refused by whom it belongs to.
    There(BuildError),
}

impl From<Mistake> for Refusal {
    fn from(mistake: Mistake) -> Self {
        Self::Here(mistake)
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        Self::There(error)
    }
}

/// `named` is what regular expressions in it are called without a name of their own.
pub(super) fn compile(tree: &Tree, named: &str, build: &mut Build<'_>) -> Result<Program, Refusal> {
    let mut work = Compilation { named, build, constants: Vec::new(), locals: Vec::new() };
    let (root, kind) = work.node(tree)?;
    if kind != Type::Bool {
        let what = format!("a value of type {}, where true or false is needed,", kind.name());
        return Err(Mistake::new(tree.at, what).into());
    }
    Ok(Program { root, constants: work.constants })
}

struct Compilation<'c, 'r> {
    named: &'c str,
    build: &'c mut Build<'r>,
    constants: Vec<u8>,
    locals: Vec<String>,
}

type Typed = (Node, Type);

impl Compilation<'_, '_> {
    fn node(&mut self, tree: &Tree) -> Result<Typed, Refusal> {
        let constant = |value, kind| Ok((Node::Constant(value), kind));
        match &tree.part {
            Part::Null => constant(Value::Null, Type::Null),
            Part::Bool(truth) => constant(Value::Bool(*truth), Type::Bool),
            Part::Int(number) => constant(Value::Int(*number), Type::Int),
            Part::Double(number) => constant(Value::Double(*number), Type::Double),
            Part::Text(text) if text.contains([OPEN, CLOSE]) => {
                let what = "a placeholder in a string, where it is not expanded: write it outside of the quotes (with +), \
                            or with a backslash in front of its brace for the braces themselves,";
                Err(Mistake::new(tree.at, what).into())
            }
            Part::Text(text) => Ok((self.text(text), Type::Text)),
            Part::Placeholder(name) => Ok((self.placeholder(name, tree.at)?, Type::Dyn)),
            Part::Name(name) => match self.locals.iter().rposition(|local| local == name) {
                Some(number) => Ok((Node::Local(number), Type::Dyn)),
                None => Err(Mistake::new(tree.at, format!("the unknown name '{name}'")).into()),
            },
            Part::List(items) => Ok((Node::List(self.nodes(items)?.0), Type::List)),
            Part::Map(_) => {
                Err(Mistake::new(tree.at, "a map, which only header(), query(), vars() and file() take,").into())
            }
            Part::Any(parts) => Ok((Node::Any(self.truths(parts)?), Type::Bool)),
            Part::All(parts) => Ok((Node::All(self.truths(parts)?), Type::Bool)),
            Part::Unary("!", inner) => Ok((Node::Not(Box::new(self.truth(inner)?)), Type::Bool)),
            Part::Unary(_, inner) => match self.node(inner)? {
                (Node::Constant(Value::Int(number)), _) => constant(Value::Int(-number), Type::Int),
                (node, kind @ (Type::Int | Type::Double | Type::Dyn)) => Ok((Node::Negate(Box::new(node)), kind)),
                (_, kind) => Err(wrong("-", &[kind], tree.at)),
            },
            Part::Binary(operator, sides) => self.binary(operator, sides, tree.at),
            Part::Index(sides) => match self.pair(sides)? {
                (nodes, [Type::List | Type::Dyn, Type::Int | Type::Dyn]) => Ok((Node::Index(nodes), Type::Dyn)),
                (_, kinds) => Err(wrong("[]", &kinds, tree.at)),
            },
            Part::Choose(parts) => {
                let condition = self.truth(&parts[0])?;
                let ((yes, one), (no, other)) = (self.node(&parts[1])?, self.node(&parts[2])?);
                if !one.fits(other) {
                    return Err(wrong("? :", &[one, other], tree.at));
                }
                let kind = if one == other { one } else { Type::Dyn };
                Ok((Node::Choose(Box::new([condition, yes, no])), kind))
            }
            Part::Call(on, name, arguments) => self.call(on.as_deref(), name, arguments, tree.at),
        }
    }

    fn text(&mut self, text: &str) -> Node {
        let start = self.constants.len();
        self.constants.extend_from_slice(text.as_bytes());
        Node::Constant(Value::Text(Span::new(start..self.constants.len())))
    }

    fn placeholder(&mut self, name: &str, at: usize) -> Result<Node, Refusal> {
        let written = format!("{{{name}}}");
        match name {
            "http.error.status_code" => return Ok(Node::Status),
            "http.request.duration_ms" | "http.shutting_down" | "http.vars.trusted_proxy" => {
                return Ok(Node::Written(self.build.template(&written)));
            }
            "http.vars.client_ip" => return Ok(Node::Text(self.build.template(&written))),
            "time.now" => {
                return Err(Mistake::new(at, "{time.now}: times are no values here; {time.now.unix} is one,").into());
            }
            _ => {}
        }
        if let Some(variable) = name.strip_prefix("http.vars.") {
            return Ok(Node::Variable(self.build.variable(variable)));
        }
        if name.starts_with("http.regexp.") {
            return Ok(Node::Group(self.build.slot(name)));
        }
        if name.starts_with("http.error.") {
            return Ok(Node::OfFault(self.build.template(&written)));
        }
        match name.strip_prefix("http.request.tls.") {
            Some("resumed" | "proto_mutual" | "ech") => return Ok(Node::OfTlsWritten(self.build.template(&written))),
            Some(_) => return Ok(Node::OfTls(self.build.template(&written))),
            None => {}
        }
        const KNOWN: &[&str] =
            &["http.request.", "http.response.", "http.time_", "env.", "system.", "file.", "time.now."];
        if !KNOWN.iter().any(|prefix| name.starts_with(prefix)) {
            return Ok(Node::Variable(self.build.slot(name)));
        }
        let template = self.build.template(&written);
        Ok(match template.literal() {
            Some(text) => {
                let text = text.to_owned();
                self.text(&text)
            }
            None => Node::Text(template),
        })
    }

    fn nodes(&mut self, trees: &[Tree]) -> Result<(Box<[Node]>, Vec<Type>), Refusal> {
        let (mut nodes, mut kinds) = (Vec::with_capacity(trees.len()), Vec::with_capacity(trees.len()));
        for tree in trees {
            let (node, kind) = self.node(tree)?;
            nodes.push(node);
            kinds.push(kind);
        }
        Ok((nodes.into(), kinds))
    }

    fn pair(&mut self, sides: &[Tree; 2]) -> Result<(Box<[Node; 2]>, [Type; 2]), Refusal> {
        let ((one, left), (other, right)) = (self.node(&sides[0])?, self.node(&sides[1])?);
        Ok((Box::new([one, other]), [left, right]))
    }

    fn truth(&mut self, tree: &Tree) -> Result<Node, Refusal> {
        match self.node(tree)? {
            (node, Type::Bool | Type::Dyn) => Ok(node),
            (_, kind) => {
                let what = format!("a value of type {}, where true or false is needed,", kind.name());
                Err(Mistake::new(tree.at, what).into())
            }
        }
    }

    fn truths(&mut self, trees: &[Tree]) -> Result<Box<[Node]>, Refusal> {
        trees.iter().map(|tree| self.truth(tree)).collect()
    }

    fn binary(&mut self, operator: &'static str, sides: &[Tree; 2], at: usize) -> Result<Typed, Refusal> {
        let (nodes, kinds) = self.pair(sides)?;
        let [one, other] = kinds;
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

    fn call(&mut self, on: Option<&Tree>, name: &str, arguments: &[Tree], at: usize) -> Result<Typed, Refusal> {
        let aggregate = match name {
            "exists" => Some(Aggregate::Exists),
            "all" => Some(Aggregate::All),
            "exists_one" => Some(Aggregate::ExistsOne),
            "map" => Some(Aggregate::Map),
            "filter" => Some(Aggregate::Filter),
            _ => None,
        };
        match (on, arguments) {
            (None, _) if call::is_matcher(name) => {
                let json = call::json(name, arguments, self.named, at)?;
                let mut set = self.build.matcher_set(&Map::from_iter([(name.to_owned(), json)]))?;
                let matcher = set.pop().expect("the set of one matcher holds one");
                Ok((Node::Matcher(matcher), Type::Bool))
            }
            (Some(list), [variable, body]) if aggregate.is_some() => {
                self.each(aggregate.expect("it was looked at"), list, variable, body)
            }
            (Some(text), [pattern]) | (None, [text, pattern]) if name == "matches" => self.search(text, pattern),
            _ => {
                let form = if on.is_some() { Form::OnValue } else { Form::Plain };
                if !function::is_known(name, form) {
                    let what = format!("the function '{name}', which is not built into this version,");
                    return Err(Mistake::new(at, what).into());
                }
                let mut nodes = Vec::new();
                let mut kinds = Vec::new();
                for tree in on.into_iter().chain(arguments) {
                    let (node, kind) = self.node(tree)?;
                    nodes.push(node);
                    kinds.push(kind);
                }
                match function::find(name, form, &kinds) {
                    Some((function, gives)) => Ok((Node::Call(function, nodes.into()), gives)),
                    None => Err(wrong(&format!("{name}()"), &kinds, at)),
                }
            }
        }
    }

    fn search(&mut self, text: &Tree, pattern: &Tree) -> Result<Typed, Refusal> {
        let (node, kind) = self.node(text)?;
        if !kind.fits(Type::Text) {
            return Err(wrong("matches()", &[kind], text.at));
        }
        let Part::Text(source) = &pattern.part else {
            return Err(Mistake::new(pattern.at, "a pattern that is no string literal").into());
        };
        let source = source.replace(OPEN, "{").replace(CLOSE, "}");
        Ok((Node::Search(Box::new(node), Regexp::compile(&source, self.build)?), Type::Bool))
    }

    fn each(&mut self, aggregate: Aggregate, list: &Tree, variable: &Tree, body: &Tree) -> Result<Typed, Refusal> {
        let Part::Name(name) = &variable.part else {
            return Err(Mistake::new(variable.at, "a variable that is no plain name").into());
        };
        let (list_node, kind) = self.node(list)?;
        if !kind.fits(Type::List) {
            return Err(wrong("exists(), all(), map() or filter()", &[kind], list.at));
        }
        if self.locals.len() == LOCALS_MAX {
            return Err(Mistake::new(variable.at, "more than 8 variables inside each other").into());
        }
        self.locals.push(name.clone());
        let body = match aggregate {
            Aggregate::Map => self.node(body).map(|(node, _)| node),
            _ => self.truth(body),
        };
        self.locals.pop();
        let local = self.locals.len();
        let kind = match aggregate {
            Aggregate::Map | Aggregate::Filter => Type::List,
            _ => Type::Bool,
        };
        Ok((Node::Each(Each { aggregate, local, list_and_body: Box::new([list_node, body?]) }), kind))
    }
}

fn wrong(operator: &str, kinds: &[Type], at: usize) -> Refusal {
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    Mistake::new(at, format!("'{operator}', which does not take ({})", kinds.join(", "))).into()
}
