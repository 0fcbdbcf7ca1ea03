//! The parser: recursive descent by the grammar of CEL's language definition.

use super::ExpressionError;
use super::token::{TOO_LARGE, Token, TokenKind};

/// Most nested brackets, and most operators or calls in a chain, except `&&` and `||`. The functions that walk the tree
/// recurse, so this bounds their stack.
const DEPTH_MAX: usize = 32;

/// A subexpression and its position.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) part: Expr,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Placeholder(String),
    Name(String),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
    /// Called on a value, as in `'a'.size()`, or without one.
    Call(Option<Box<Tree>>, String, Vec<Tree>),
    Any(Vec<Tree>),
    All(Vec<Tree>),
    Unary(&'static str, Box<Tree>),
    Binary(&'static str, Box<[Tree; 2]>),
    Index(Box<[Tree; 2]>),
    Conditional(Box<[Tree; 3]>),
}

/// Binary operators, lowest precedence first.
const LEVELS: &[&[&str]] = &[&["==", "!=", "<", "<=", ">", ">=", "in"], &["+", "-"], &["*", "/", "%"]];

pub(super) fn parse(tokens: &[Token]) -> Result<Tree, ExpressionError> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let tree = parser.expression()?;
    match parser.token().kind {
        TokenKind::End => Ok(tree),
        _ => parser.unexpected("the end of the expression or an operator"),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn token(&self) -> &'t Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> &'t Token {
        let token = self.token();
        self.at += 1;
        token
    }

    fn sign(&mut self, of: &[&'static str]) -> Option<&'static str> {
        // `in` is an operator although it is spelled like a name.
        let found = match &self.token().kind {
            TokenKind::Sign(sign) => of.iter().find(|wanted| *wanted == sign),
            TokenKind::Name(name) => of.iter().find(|wanted| **wanted == "in" && name == "in"),
            _ => None,
        };
        self.at += usize::from(found.is_some());
        found.copied()
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ExpressionError> {
        match self.sign(&[sign]) {
            Some(_) => Ok(()),
            None => self.unexpected(&format!("'{sign}'")),
        }
    }

    fn unexpected<T>(&self, expected: &str) -> Result<T, ExpressionError> {
        let token = self.token();
        let found = match &token.kind {
            TokenKind::Name(name) => format!("'{name}'"),
            TokenKind::Int(number) => format!("'{number}'"),
            TokenKind::IntEnd => format!("'{}'", i64::MIN.unsigned_abs()),
            TokenKind::Double(number) => format!("'{number}'"),
            TokenKind::Text(_) => "a string".to_owned(),
            TokenKind::Placeholder(name) => format!("'{{{name}}}'"),
            TokenKind::Sign(sign) => format!("'{sign}'"),
            TokenKind::End => "the end".to_owned(),
        };
        Err(ExpressionError::new(token.at, format!("{found} where {expected} was expected")))
    }

    /// Runs `work` one level deeper. Fails beyond [`DEPTH_MAX`].
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, ExpressionError>) -> Result<T, ExpressionError> {
        if self.depth == DEPTH_MAX {
            return Err(ExpressionError::new(self.token().at, "brackets nested deeper than 32 levels"));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// Counts one more operator in a left-associative chain, which makes the tree one level deeper.
    fn link(&self, links: &mut usize) -> Result<(), ExpressionError> {
        *links += 1;
        match *links > DEPTH_MAX {
            true => Err(ExpressionError::new(self.token().at, "a chain of more than 32 operators")),
            false => Ok(()),
        }
    }

    fn expression(&mut self) -> Result<Tree, ExpressionError> {
        self.deeper(|parser| {
            let condition = parser.any()?;
            if parser.sign(&["?"]).is_none() {
                return Ok(condition);
            }
            let at = condition.at;
            // By CEL's grammar only the last branch may contain another unparenthesized conditional.
            let yes = parser.any()?;
            parser.expect(":")?;
            let no = parser.expression()?;
            Ok(Tree { part: Expr::Conditional(Box::new([condition, yes, no])), at })
        })
    }

    fn any(&mut self) -> Result<Tree, ExpressionError> {
        self.joined("||", Expr::Any, |parser| parser.joined("&&", Expr::All, |parser| parser.level(0)))
    }

    /// Parses a chain of `&&` or `||` to one flat node, so that its length does not add depth.
    fn joined(
        &mut self,
        sign: &'static str,
        part: fn(Vec<Tree>) -> Expr,
        inner: fn(&mut Self) -> Result<Tree, ExpressionError>,
    ) -> Result<Tree, ExpressionError> {
        let first = inner(self)?;
        let at = first.at;
        let mut all = vec![first];
        while self.sign(&[sign]).is_some() {
            all.push(inner(self)?);
        }
        if all.len() == 1 {
            return Ok(all.remove(0));
        }
        Ok(Tree { part: part(all), at })
    }

    /// Parses the operators of one precedence level, left-associative.
    fn level(&mut self, level: usize) -> Result<Tree, ExpressionError> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        let mut links = 0;
        loop {
            let at = self.token().at;
            let Some(sign) = self.sign(signs) else { return Ok(left) };
            self.link(&mut links)?;
            let right = self.level(level + 1)?;
            // Operators of one level associate to the left, so the chain nests in its left operand.
            left = Tree { part: Expr::Binary(sign, Box::new([left, right])), at };
        }
    }

    fn unary(&mut self) -> Result<Tree, ExpressionError> {
        let at = self.token().at;
        match self.sign(&["!", "-"]) {
            Some("-") if self.token().kind == TokenKind::IntEnd => {
                self.next();
                Ok(Tree { part: Expr::Int(i64::MIN), at })
            }
            Some(sign) => self.deeper(|parser| {
                let inner = parser.unary()?;
                Ok(Tree { part: Expr::Unary(sign, Box::new(inner)), at })
            }),
            None => self.member(),
        }
    }

    fn member(&mut self) -> Result<Tree, ExpressionError> {
        let mut value = self.primary()?;
        let mut links = 0;
        loop {
            if self.sign(&["."]).is_some() {
                let at = self.token().at;
                let TokenKind::Name(name) = &self.token().kind else { return self.unexpected("a function's name") };
                self.next();
                // Only calls may follow a dot: values have no fields here.
                if self.sign(&["("]).is_none() {
                    return Err(ExpressionError::new(
                        at,
                        format!("the field '{name}' of a value, but values have no fields here"),
                    ));
                }
                self.link(&mut links)?;
                let arguments = self.list(")")?;
                value = Tree { part: Expr::Call(Some(Box::new(value)), name.clone(), arguments), at };
            } else if self.sign(&["["]).is_some() {
                self.link(&mut links)?;
                let at = self.token().at;
                let index = self.expression()?;
                self.expect("]")?;
                value = Tree { part: Expr::Index(Box::new([value, index])), at };
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Tree, ExpressionError> {
        let token = self.token();
        let part = match &token.kind {
            TokenKind::Int(number) => Expr::Int(*number),
            TokenKind::IntEnd => return Err(ExpressionError::new(token.at, TOO_LARGE)),
            TokenKind::Double(number) => Expr::Double(*number),
            TokenKind::Text(text) => Expr::Text(text.clone()),
            TokenKind::Placeholder(name) => Expr::Placeholder(name.clone()),
            TokenKind::Name(name) if name == "in" => return self.unexpected("a value"),
            TokenKind::Name(name) => {
                self.next();
                let part = match &**name {
                    "true" => Expr::Bool(true),
                    "false" => Expr::Bool(false),
                    "null" => Expr::Null,
                    _ if self.sign(&["("]).is_some() => Expr::Call(None, name.clone(), self.list(")")?),
                    _ => Expr::Name(name.clone()),
                };
                return Ok(Tree { part, at: token.at });
            }
            TokenKind::Sign("(") => {
                self.next();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            TokenKind::Sign("[") => {
                self.next();
                return Ok(Tree { part: Expr::List(self.list("]")?), at: token.at });
            }
            TokenKind::Sign("{") => {
                self.next();
                return Ok(Tree { part: Expr::Map(self.map()?), at: token.at });
            }
            _ => return self.unexpected("a value"),
        };
        self.next();
        Ok(Tree { part, at: token.at })
    }

    /// Parses a list up to its closing bracket. A trailing comma is allowed.
    fn list(&mut self, close: &'static str) -> Result<Vec<Tree>, ExpressionError> {
        let mut items = Vec::new();
        while self.sign(&[close]).is_none() {
            items.push(self.expression()?);
            if self.sign(&[","]).is_none() {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn map(&mut self) -> Result<Vec<(Tree, Tree)>, ExpressionError> {
        let mut pairs = Vec::new();
        while self.sign(&["}"]).is_none() {
            let key = self.expression()?;
            self.expect(":")?;
            pairs.push((key, self.expression()?));
            if self.sign(&[","]).is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(pairs)
    }
}
