//! From words to a tree, as the language definition of CEL has its grammar.

use super::Mistake;
use super::token::{Kind, Token};

/// How deep brackets may stand inside each other, and how long a chain of operators or calls may be, `&&` and `||` excepted:
/// what walks the tree walks it on the stack.
const DEPTH_MAX: usize = 32;

/// A part of an expression, and where it stands.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) part: Part,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) enum Part {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Placeholder(String),
    Name(String),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
    /// On a value, as `'a'.size()`, or on none.
    Call(Option<Box<Tree>>, String, Vec<Tree>),
    Any(Vec<Tree>),
    All(Vec<Tree>),
    Unary(&'static str, Box<Tree>),
    Binary(&'static str, Box<[Tree; 2]>),
    Index(Box<[Tree; 2]>),
    Choose(Box<[Tree; 3]>),
}

/// Operators of two sides, those that bind more loosely first.
const LEVELS: &[&[&str]] = &[&["==", "!=", "<", "<=", ">", ">=", "in"], &["+", "-"], &["*", "/", "%"]];

pub(super) fn parse(tokens: &[Token]) -> Result<Tree, Mistake> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let tree = parser.expression()?;
    match parser.token().kind {
        Kind::End => Ok(tree),
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
        let found = match &self.token().kind {
            Kind::Sign(sign) => of.iter().find(|wanted| *wanted == sign),
            Kind::Name(name) => of.iter().find(|wanted| **wanted == "in" && name == "in"),
            _ => None,
        };
        self.at += usize::from(found.is_some());
        found.copied()
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Mistake> {
        match self.sign(&[sign]) {
            Some(_) => Ok(()),
            None => self.unexpected(&format!("'{sign}'")),
        }
    }

    fn unexpected<T>(&self, expected: &str) -> Result<T, Mistake> {
        let token = self.token();
        let found = match &token.kind {
            Kind::Name(name) => format!("'{name}'"),
            Kind::Int(number) => format!("'{number}'"),
            Kind::Double(number) => format!("'{number}'"),
            Kind::Text(_) => "a string".to_owned(),
            Kind::Placeholder(name) => format!("'{{{name}}}'"),
            Kind::Sign(sign) => format!("'{sign}'"),
            Kind::End => "the end".to_owned(),
        };
        Err(Mistake::new(token.at, format!("{found} where {expected} was expected")))
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Mistake>) -> Result<T, Mistake> {
        if self.depth == DEPTH_MAX {
            return Err(Mistake::new(self.token().at, "brackets deeper inside each other than 32"));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn link(&self, links: &mut usize) -> Result<(), Mistake> {
        *links += 1;
        match *links > DEPTH_MAX {
            true => Err(Mistake::new(self.token().at, "a chain of more than 32 operators")),
            false => Ok(()),
        }
    }

    fn expression(&mut self) -> Result<Tree, Mistake> {
        self.deeper(|parser| {
            let condition = parser.any()?;
            if parser.sign(&["?"]).is_none() {
                return Ok(condition);
            }
            let at = condition.at;
            let yes = parser.any()?;
            parser.expect(":")?;
            let no = parser.expression()?;
            Ok(Tree { part: Part::Choose(Box::new([condition, yes, no])), at })
        })
    }

    fn any(&mut self) -> Result<Tree, Mistake> {
        self.joined("||", Part::Any, |parser| parser.joined("&&", Part::All, |parser| parser.level(0)))
    }

    fn joined(
        &mut self,
        sign: &'static str,
        part: fn(Vec<Tree>) -> Part,
        inner: fn(&mut Self) -> Result<Tree, Mistake>,
    ) -> Result<Tree, Mistake> {
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

    fn level(&mut self, level: usize) -> Result<Tree, Mistake> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        let mut links = 0;
        loop {
            let at = self.token().at;
            let Some(sign) = self.sign(signs) else { return Ok(left) };
            self.link(&mut links)?;
            let right = self.level(level + 1)?;
            left = Tree { part: Part::Binary(sign, Box::new([left, right])), at };
        }
    }

    fn unary(&mut self) -> Result<Tree, Mistake> {
        let at = self.token().at;
        match self.sign(&["!", "-"]) {
            Some(sign) => self.deeper(|parser| {
                let inner = parser.unary()?;
                Ok(Tree { part: Part::Unary(sign, Box::new(inner)), at })
            }),
            None => self.member(),
        }
    }

    fn member(&mut self) -> Result<Tree, Mistake> {
        let mut value = self.primary()?;
        let mut links = 0;
        loop {
            if self.sign(&["."]).is_some() {
                let at = self.token().at;
                let Kind::Name(name) = &self.token().kind else { return self.unexpected("a function's name") };
                self.next();
                if self.sign(&["("]).is_none() {
                    return Err(Mistake::new(at, format!("the field '{name}' of a value, and values have none here")));
                }
                self.link(&mut links)?;
                let arguments = self.list(")")?;
                value = Tree { part: Part::Call(Some(Box::new(value)), name.clone(), arguments), at };
            } else if self.sign(&["["]).is_some() {
                self.link(&mut links)?;
                let at = self.token().at;
                let index = self.expression()?;
                self.expect("]")?;
                value = Tree { part: Part::Index(Box::new([value, index])), at };
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Tree, Mistake> {
        let token = self.token();
        let part = match &token.kind {
            Kind::Int(number) => Part::Int(*number),
            Kind::Double(number) => Part::Double(*number),
            Kind::Text(text) => Part::Text(text.clone()),
            Kind::Placeholder(name) => Part::Placeholder(name.clone()),
            Kind::Name(name) if name == "in" => return self.unexpected("a value"),
            Kind::Name(name) => {
                self.next();
                let part = match &**name {
                    "true" => Part::Bool(true),
                    "false" => Part::Bool(false),
                    "null" => Part::Null,
                    _ if self.sign(&["("]).is_some() => Part::Call(None, name.clone(), self.list(")")?),
                    _ => Part::Name(name.clone()),
                };
                return Ok(Tree { part, at: token.at });
            }
            Kind::Sign("(") => {
                self.next();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Kind::Sign("[") => {
                self.next();
                return Ok(Tree { part: Part::List(self.list("]")?), at: token.at });
            }
            Kind::Sign("{") => {
                self.next();
                return Ok(Tree { part: Part::Map(self.map()?), at: token.at });
            }
            _ => return self.unexpected("a value"),
        };
        self.next();
        Ok(Tree { part, at: token.at })
    }

    /// Up to the bracket that closes it; a comma may stand in front of that.
    fn list(&mut self, close: &'static str) -> Result<Vec<Tree>, Mistake> {
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

    fn map(&mut self) -> Result<Vec<(Tree, Tree)>, Mistake> {
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
