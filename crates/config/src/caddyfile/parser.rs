//! Builds blocks from tokens: the global block, sites, snippets and named routes, each a tree of segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Warning;
use super::environment::Unset;
use super::error::{Error, ErrorKind};
use super::import::Imports;
use super::position::Position;
use super::segment::Segment;
use super::token::Token;

/// Deepest nesting of blocks. Bounds the recursion, so that no input can exhaust the stack.
const DEPTH_MAX: usize = 32;

/// The kind of a top-level block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A site, or the global options if the block has no keys.
    Site,
    /// `&(name)`
    NamedRoute(String),
}

/// A top-level block.
#[derive(Debug)]
pub(crate) struct ServerBlock {
    pub(crate) kind: BlockKind,
    pub(crate) keys: Vec<Token>,
    pub(crate) segments: Vec<Segment>,
    /// Whether braces enclose it. A file with a single site can omit them.
    pub(crate) braces: bool,
    /// Position of its opening brace.
    pub(crate) opens: Option<Position>,
    /// An unset variable next to its opening brace.
    pub(crate) unset: Option<Unset>,
    pub(crate) at: Position,
    /// Position of its last token: the closing brace, if it has one.
    pub(crate) closes: Position,
}

impl ServerBlock {
    /// The files that the block's tokens come from, sorted, without duplicates.
    pub(crate) fn files(&self) -> Vec<Arc<str>> {
        let mut files = Vec::new();
        self.segments.iter().for_each(|segment| segment.files(&mut files));
        files.sort();
        files.dedup();
        files
    }
}

/// Parses a file into blocks, with imports spliced in.
pub(crate) fn parse(
    tokens: Vec<Token>,
    file: &Arc<str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Vec<ServerBlock>, Vec<Warning>), Error> {
    blocks(tokens, file, Imports::new(env))
}

/// As [`parse`], but every import inserts no tokens.
pub(crate) fn parse_alone(tokens: Vec<Token>, file: &Arc<str>) -> Result<(Vec<ServerBlock>, Vec<Warning>), Error> {
    blocks(tokens, file, Imports::none())
}

fn blocks(
    tokens: Vec<Token>,
    file: &Arc<str>,
    imports: Imports<'_>,
) -> Result<(Vec<ServerBlock>, Vec<Warning>), Error> {
    let end = Position { file: file.clone(), line: 1, column: 1 };
    let mut parser = Parser { tokens, next: 0, snippets: BTreeMap::new(), imports, end };
    let mut blocks = Vec::new();
    while parser.next < parser.tokens.len() {
        if let Some(block) = parser.block()? {
            blocks.push(block);
        }
    }
    Ok((blocks, parser.imports.warnings))
}

struct Parser<'a> {
    tokens: Vec<Token>,
    next: usize,
    snippets: BTreeMap<String, Vec<Token>>,
    imports: Imports<'a>,
    end: Position,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn starts_line(&self, index: usize) -> bool {
        index == 0 || self.tokens[index - 1].line_ends_before(&self.tokens[index])
    }

    fn last_in_line(&self, index: usize) -> bool {
        index + 1 >= self.tokens.len() || self.starts_line(index + 1)
    }

    fn end(&self, expected: &'static str) -> Error {
        let at = self.tokens.last().map_or(&self.end, |token| &token.at);
        Error::new(at.clone(), ErrorKind::UnexpectedEnd { expected })
    }

    fn unclosed(&self, open: &Token) -> Error {
        Error::unclosed(open, self.tokens.last().map_or(&self.end, |token| &token.at))
    }

    fn block(&mut self) -> Result<Option<ServerBlock>, Error> {
        let keys = self.keys()?;
        let Some(first) = keys.first().or(self.peek()) else { return Ok(None) };
        let at = first.at.clone();
        let braces = self.peek().is_some_and(Token::opens);
        let open = self.peek().filter(|token| token.opens());
        let (opens, unset) = (open.map(|token| token.at.clone()), open.and_then(|token| token.unset.clone()));
        // Snippets and named routes are recognised by their single key.
        if let [key] = keys.as_slice() {
            if let Some(name) = key.text.strip_prefix('(').and_then(|name| name.strip_suffix(')')) {
                let name = name.to_owned();
                return self.snippet(key, name).map(|()| None);
            }
            if let Some(name) = key.text.strip_prefix("&(").and_then(|name| name.strip_suffix(')')) {
                let kind = BlockKind::NamedRoute(name.to_owned());
                // Check first that the braces balance: `lines` lets the brace of a last directive close the block
                // too, which Caddy accepts for sites only.
                self.require_brace()?;
                let body = self.next + 1;
                self.skip_block()?;
                self.next = body;
                let (segments, closes) = self.lines(&keys[0], 1)?;
                return Ok(Some(ServerBlock { kind, keys, segments, braces, opens, unset, at, closes }));
            }
        }
        let (segments, closes) = if braces {
            let open = self.tokens[self.next].clone();
            self.next += 1;
            self.lines(&open, 1)?
        } else {
            let segments = self.lines_until_end()?;
            let closes = segments.last().map_or(&at, |last| &last.closes).clone();
            (segments, closes)
        };
        if keys.is_empty() && segments.is_empty() && unset.is_none() {
            return Ok(None);
        }
        Ok(Some(ServerBlock { kind: BlockKind::Site, keys, segments, braces, opens, unset, at, closes }))
    }

    /// Parses site addresses, up to the opening brace or to the end of a line that does not end in a comma.
    fn keys(&mut self) -> Result<Vec<Token>, Error> {
        let mut keys = Vec::new();
        let mut comma = false;
        loop {
            let Some(token) = self.peek() else {
                return if comma { Err(self.end("another address")) } else { Ok(keys) };
            };
            let fail = |rule| Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }));
            if token.text.starts_with('@') {
                return fail("request matchers may not be defined globally, they must be in a site block; found {}");
            }
            if &*token.text == "import" && self.starts_line(self.next) {
                self.import(0)?;
                continue;
            }
            if token.opens() {
                if comma {
                    return fail("Expected another address but had '{}' - check for extra comma");
                }
                return Ok(keys);
            }
            if token.closes() {
                return fail("Unexpected '{}' because no matching opening brace");
            }
            if !token.quoted() && token.text.ends_with('{') {
                return fail(
                    "Site addresses cannot end with a curly brace: '{}' - put a space between the token and the brace",
                );
            }
            // Skips an empty token, as from an unset variable.
            if !token.text.is_empty() {
                let text = token.text.strip_suffix(',');
                comma = text.is_some();
                let text = text.unwrap_or(&token.text);
                if text.contains(',') {
                    return fail(
                        "Site addresses cannot contain a comma ',': '{}' - put a space after the comma to separate \
                         site addresses",
                    );
                }
                if !text.is_empty() {
                    keys.push(Token { text: text.into(), ..token.clone() });
                }
            }
            let line_ends = self.last_in_line(self.next);
            self.next += 1;
            if line_ends && !comma {
                return Ok(keys);
            }
        }
    }

    fn warn(&mut self, at: &Position, message: &str) {
        self.imports.warnings.push(Warning { at: at.clone(), message: message.to_owned() });
    }

    fn require_brace(&self) -> Result<(), Error> {
        match self.peek() {
            Some(token) if token.opens() => Ok(()),
            Some(token) => {
                let kind = ErrorKind::UnexpectedToken { found: token.text.clone(), expected: "{" };
                Err(Error::at(token, kind))
            }
            None => Err(self.end("'{'")),
        }
    }

    /// Stores a snippet's tokens for later imports. Only its braces are checked.
    fn snippet(&mut self, key: &Token, name: String) -> Result<(), Error> {
        if self.snippets.contains_key(&name) {
            let rule = "redeclaration of previously declared snippet {}";
            return Err(Error::at(key, ErrorKind::Word { rule, found: name.into() }));
        }
        self.require_brace()?;
        let start = self.next + 1;
        self.skip_block()?;
        let snippet: Arc<str> = Arc::from(name.as_str());
        let mut tokens = self.tokens[start..self.next - 1].to_vec();
        tokens.iter_mut().for_each(|token| token.snippet = Some(snippet.clone()));
        self.snippets.insert(name, tokens);
        Ok(())
    }

    /// Advances from an opening brace to after the matching closing brace.
    fn skip_block(&mut self) -> Result<(), Error> {
        let start = self.next;
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            if token.opens() {
                depth += 1;
            } else if token.closes() {
                depth -= 1;
            }
            self.next += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.unclosed(&self.tokens[start]))
    }

    /// Parses the directives of a site without braces.
    fn lines_until_end(&mut self) -> Result<Vec<Segment>, Error> {
        let mut segments = Vec::new();
        while let Some(token) = self.peek() {
            if token.closes() {
                // Caddy accepts this brace as the end of the site.
                let at = token.at.clone();
                self.warn(&at, "this brace closes no open block");
                self.next += 1;
                break;
            }
            if &*token.text == "import" {
                self.import(1)?;
            } else {
                segments.push(self.segment(1)?);
            }
        }
        Ok(segments)
    }

    /// Parses the lines of a block. Also returns the position of the closing brace.
    fn lines(&mut self, open: &Token, depth: usize) -> Result<(Vec<Segment>, Position), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::at(open, ErrorKind::Rule("blocks are nested too deep; expected at most 32 levels")));
        }
        let mut segments = Vec::new();
        loop {
            let Some(token) = self.peek() else {
                // Caddy lets the brace that closes a site's last directive close the site too.
                return match (self.tokens.last(), segments.is_empty()) {
                    (Some(last), false) if depth == 1 && last.closes() => {
                        let at = last.at.clone();
                        self.warn(&at, "this brace closes its directive and, being the last, the site too");
                        Ok((segments, at))
                    }
                    _ => Err(self.unclosed(open)),
                };
            };
            if token.closes() {
                let at = token.at.clone();
                self.next += 1;
                return Ok((segments, at));
            }
            if &*token.text == "import" && self.starts_line(self.next) {
                self.import(1)?;
            } else {
                segments.push(self.segment(depth)?);
            }
        }
    }

    fn segment(&mut self, depth: usize) -> Result<Segment, Error> {
        let name = self.tokens[self.next].clone();
        let rule = |token: &Token, rule| Err(Error::at(token, ErrorKind::Rule(rule)));
        if name.opens() && !self.last_in_line(self.next) {
            return rule(&name, "Unexpected next token after '{' on same line");
        }
        if name.opens() {
            return rule(&name, "Unexpected '{' on a new line; did you mean to place the '{' on the previous line?");
        }
        let mut segment = Segment { closes: name.at.clone(), name, arguments: Vec::new(), block: None, opens: None };
        self.next += 1;
        while let Some(token) = self.peek() {
            let last = self.last_in_line(self.next);
            if self.starts_line(self.next) {
                if token.opens() && !last {
                    return rule(token, "Unexpected next token after '{' on same line");
                }
                break;
            }
            if segment.block.is_some() {
                return rule(token, "Unexpected next token after '}' on same line");
            }
            if token.opens() {
                if !last {
                    return rule(token, "Unexpected next token after '{' on same line");
                }
                let open = token.clone();
                self.next += 1;
                let (lines, closes) = self.lines(&open, depth + 1)?;
                segment.block = Some(lines);
                segment.opens = Some(open.at);
                segment.closes = closes;
                continue;
            }
            if token.closes() {
                return rule(token, "Unexpected '}' because no matching opening brace");
            }
            if !token.quoted() && &*token.text == "{}" && last {
                return rule(token, "Unexpected '{}' at end of line");
            }
            segment.closes = token.at.clone();
            segment.arguments.push(token.clone());
            self.next += 1;
        }
        Ok(segment)
    }

    /// Replaces the import at the cursor with the imported tokens, and leaves the cursor before them, so that imports
    /// among them are expanded next. `nesting` is 0 between blocks.
    fn import(&mut self, nesting: usize) -> Result<(), Error> {
        let start = self.next;
        let mut block = None;
        loop {
            self.next += 1;
            match self.peek() {
                Some(token) if !self.starts_line(self.next) => {
                    if token.opens() {
                        let open = self.next;
                        self.skip_block()?;
                        if self.next < self.tokens.len() && !self.starts_line(self.next) {
                            let rule = "Unexpected next token after '}' on same line";
                            return Err(Error::at(&self.tokens[self.next], ErrorKind::Rule(rule)));
                        }
                        block = Some(self.tokens[open + 1..self.next - 1].to_vec());
                        break;
                    }
                }
                _ => break,
            }
        }
        // `skip_block` has moved past the block, so the arguments end at the first brace.
        let arguments_end = start + self.tokens[start..self.next].iter().take_while(|token| !token.opens()).count();
        let line = self.tokens[start..arguments_end].to_vec();
        let ends = self.tokens[self.next - 1].at.line;
        let block = block.unwrap_or_default();
        let imported = self.imports.expand(&line, &block, ends, &self.snippets, nesting)?;
        self.tokens.splice(start..self.next, imported);
        self.next = start;
        Ok(())
    }
}
