//! Hands the tokens of a directive to its syntax function, one by one.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Session;
use super::error::{Error, ErrorKind, NameTable};
use super::matcher::{self, MatcherSet};
use super::options::Options;
use super::position::Position;
use super::quantity::bytes;
use super::registry::{Availability, DirectiveOutput, Syntax};
use super::route::{self, Placed, Route, RouteOrder};
use super::segment::Segment;
use super::token::Token;

/// The context of a directive.
#[derive(Clone)]
pub(crate) struct Scope<'a> {
    pub(crate) session: &'a Session<'a>,
    pub(crate) matchers: BTreeMap<Box<str>, Rc<Matcher>>,
    /// The files that the enclosing block's tokens come from.
    pub(crate) files: &'a [Arc<str>],
}

/// A matcher defined in this block or an enclosing one.
pub(crate) struct Matcher {
    set: MatcherSet,
    used: Cell<bool>,
}

/// The tokens of one directive, or of one line in its block.
///
/// A syntax function must read every token and the block. A token that it leaves on a line of a block starts a further
/// option of that block ([`Dispenser::lines`]), as in Caddy. Any other token or block left over is an error after the
/// directive (`unread`), so no input is silently ignored.
pub struct Dispenser<'a> {
    segment: &'a Segment,
    /// Index of the first argument after the name: 0, unless an argument serves as the name of a further option.
    first: usize,
    /// Number of arguments handed out, including those before `first`.
    taken: usize,
    /// Index of the first argument proper: `first`, or the index after the matcher token.
    start: usize,
    block: Cell<BlockProgress>,
    /// Receives the index of the first token left over, on drop. `None` for a directive's own line.
    left: Option<Rc<Cell<Option<usize>>>>,
    scope: &'a Scope<'a>,
}

/// Whether the syntax function has read the block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockProgress {
    Unread,
    Read,
}

// Dropping detects unread tokens, so that no syntax function needs to check for them at its end.
impl Drop for Dispenser<'_> {
    fn drop(&mut self) {
        match (self.remaining().first(), &self.left) {
            (Some(_), Some(left)) => left.set(Some(self.taken)),
            (Some(token), None) => self.scope.session.note_unread(unexpected_word(token)),
            (None, left) => match self.segment.block.as_deref() {
                Some(_) if self.block.get() == BlockProgress::Read => {}
                // As in Caddy, an empty block after a directive is ignored. Within a block it would be an option.
                Some([]) if left.is_none() => {
                    let message = format!("the empty block of '{}' has no effect", self.segment.name.text);
                    self.scope.session.warn(self.name(), message);
                }
                Some(_) => self.scope.session.note_unread(unexpected_block(self.segment, self.last())),
                None => {}
            },
        }
    }
}

/// The error for an unexpected block after the token `last`.
pub(crate) fn unexpected_block(segment: &Segment, last: &Token) -> Error {
    let rule = "unexpected block after '{}'; expected the line to end there";
    let at = segment.opens.as_ref().unwrap_or(&last.at);
    Error::new(at.clone(), ErrorKind::Word { rule, found: last.text.clone() })
}

fn unexpected_word(token: &Token) -> Error {
    let rule = "unexpected '{}'; expected the line to end before it";
    Error::at(token, ErrorKind::Word { rule, found: token.text.clone() })
}

/// Iterates over the lines of a block. A token that the reader of a line leaves over comes next, as an option of its
/// own.
pub struct Lines<'a> {
    segments: std::slice::Iter<'a, Segment>,
    current: Option<&'a Segment>,
    left: Rc<Cell<Option<usize>>>,
    scope: &'a Scope<'a>,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Dispenser<'a>;

    fn next(&mut self) -> Option<Dispenser<'a>> {
        let (segment, first) = match (self.current, self.left.take()) {
            // The reader of this line left a token over: continue with it as an option.
            (Some(segment), Some(left)) => {
                let name = &segment.arguments[left];
                self.scope.session.warn(name, format!("'{}' is read as an option of its own", name.text));
                (segment, left + 1)
            }
            _ => (self.segments.next()?, 0),
        };
        self.current = Some(segment);
        let mut line = Dispenser::new(segment, self.scope);
        (line.first, line.taken, line.start) = (first, first, first);
        line.left = Some(self.left.clone());
        Some(line)
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        // A token left over on the last line, or a line that was not iterated over.
        let left = self.left.take().and_then(|left| self.current?.arguments.get(left));
        if let Some(token) = left.or_else(|| Some(&self.segments.next()?.name)) {
            self.scope.session.note_unread(unexpected_word(token));
        }
    }
}

impl<'a> Dispenser<'a> {
    pub(crate) fn new(segment: &'a Segment, scope: &'a Scope<'a>) -> Self {
        Self { segment, first: 0, taken: 0, start: 0, block: Cell::new(BlockProgress::Unread), left: None, scope }
    }

    /// The first token of the directive or line.
    pub fn name(&self) -> &'a Token {
        match self.first {
            0 => &self.segment.name,
            first => &self.segment.arguments[first - 1],
        }
    }

    /// The whole segment, including arguments handed out before, to be read by another dispenser. Marks all of it as
    /// read.
    pub(crate) fn take_segment(&mut self) -> Segment {
        self.rest();
        let arguments = self.segment.arguments[self.first..].to_vec();
        self.block.set(BlockProgress::Read);
        Segment { name: self.name().clone(), arguments, ..self.segment.clone() }
    }

    /// Takes the next argument.
    pub fn argument(&mut self) -> Option<&'a Token> {
        let token = self.segment.arguments.get(self.taken)?;
        self.taken += 1;
        Some(token)
    }

    /// Takes the next argument; an error if there is none.
    pub fn require(&mut self) -> Result<&'a Token, Error> {
        self.argument().ok_or_else(|| self.count_error())
    }

    /// Takes the next argument, which must be the last; an error otherwise.
    pub fn sole_argument(&mut self) -> Result<&'a Token, Error> {
        let token = self.require()?;
        if self.remaining().is_empty() { Ok(token) } else { Err(self.count_error()) }
    }

    /// Takes the only argument and parses it as a size in bytes. `rule` is the error's sentence.
    pub(crate) fn size(&mut self, rule: &'static str) -> Result<i64, Error> {
        let token = self.sole_argument()?;
        let size = bytes(&token.text).and_then(|bytes| i64::try_from(bytes).ok());
        size.ok_or_else(|| self.word(rule))
    }

    /// The remaining arguments, without taking them.
    pub fn remaining(&self) -> &'a [Token] {
        &self.segment.arguments[self.taken..]
    }

    /// Takes the remaining arguments.
    pub fn rest(&mut self) -> &'a [Token] {
        let rest = self.remaining();
        self.taken = self.segment.arguments.len();
        rest
    }

    /// All arguments after a matcher token, including those handed out before. Takes the remaining ones.
    pub fn arguments(&mut self) -> &'a [Token] {
        self.rest();
        &self.segment.arguments[self.start..]
    }

    /// Position of the last token: the closing brace, if there is one.
    pub(crate) fn closing_position(&self) -> &'a Position {
        &self.segment.closes
    }

    /// Whether there is a block.
    pub fn has_block(&self) -> bool {
        self.segment.block.is_some()
    }

    /// Returns an error if an argument remains.
    pub fn expect_no_argument(&mut self) -> Result<(), Error> {
        match self.argument() {
            Some(_) => Err(self.count_error()),
            None => Ok(()),
        }
    }

    /// The lines of the block. Empty while arguments remain: the brace is not the next token then, as in Caddy.
    pub fn lines(&self) -> Lines<'a> {
        Lines { segments: self.block().iter(), current: None, left: Rc::default(), scope: self.scope }
    }

    fn block(&self) -> &'a [Segment] {
        if !self.remaining().is_empty() {
            return &[];
        }
        self.block.set(BlockProgress::Read);
        self.segment.block.as_deref().unwrap_or_default()
    }

    /// A dispenser over another segment, in this one's context.
    pub(crate) fn over<'b>(&self, segment: &'b Segment) -> Dispenser<'b>
    where
        'a: 'b,
    {
        Dispenser::new(segment, self.scope)
    }

    /// Returns an error if the block has a line.
    pub fn expect_empty_block(&self, rule: &'static str) -> Result<(), Error> {
        match self.lines().next() {
            Some(line) => Err(Error::at(line.name(), ErrorKind::Rule(rule))),
            None => Ok(()),
        }
    }

    /// Returns an error if there is a block, even an empty one.
    pub fn expect_no_braces(&self) -> Result<(), Error> {
        match self.segment.block {
            Some(_) => Err(self.error(ErrorKind::ArgumentCount("{".into()))),
            None => Ok(()),
        }
    }

    /// Returns an error if an argument or a block remains.
    pub(crate) fn expect_end_of_line(&mut self) -> Result<(), Error> {
        if self.argument().is_some() {
            return Err(self.word("unknown subdirective '{}'; expected nothing more on this line"));
        }
        match self.segment.block {
            Some(_) => Err(self.rule("unexpected block; expected the line to end here")),
            None => Ok(()),
        }
    }

    /// Takes the next argument if it is a matcher token: `*` (returns `None`), `/path` or `@name`.
    pub fn matcher(&mut self) -> Result<Option<MatcherSet>, Error> {
        let Some(token) = self.remaining().first() else { return Ok(None) };
        let set = if &*token.text == "*" {
            None
        } else if token.text.starts_with('/') {
            Some(matcher::path(&token.text))
        } else if token.text.starts_with('@') {
            let known = self
                .scope
                .matchers
                .get(&token.text)
                .ok_or_else(|| Error::at(token, ErrorKind::UnknownMatcher(token.text.clone())))?;
            known.used.set(true);
            Some(known.set.clone())
        } else {
            return Ok(None);
        };
        self.taken += 1;
        self.start = self.taken;
        Ok(set)
    }

    pub(crate) fn directives(&self) -> Result<Vec<Placed>, Error> {
        evaluate(self.block(), self.scope.clone(), None)
    }

    /// Evaluates the block's lines as directives and sorts them into routes like a site's. Matchers defined in the
    /// block are visible in it and in blocks nested in it.
    pub fn routes(&self) -> Result<Vec<Route>, Error> {
        route::subroute(self.directives()?, self.scope.session, RouteOrder::ByDirective)
    }

    /// As [`Self::routes`], but in the order written.
    pub fn routes_as_written(&self) -> Result<Vec<Route>, Error> {
        route::subroute(self.directives()?, self.scope.session, RouteOrder::AsWritten)
    }

    /// A fresh name for a group of mutually exclusive routes.
    pub fn next_group_name(&self) -> String {
        self.scope.session.next_group_name()
    }

    /// A fresh name for a logger.
    pub(crate) fn next_log_name(&self) -> String {
        self.scope.session.next_log_name()
    }

    /// The tag of a certificate file, and whether this is its first use.
    pub(crate) fn assign_certificate_tag(&self, file: &str) -> (String, bool) {
        self.scope.session.assign_certificate_tag(file)
    }

    /// The global options.
    pub(crate) fn options(&self) -> &'a Options {
        self.scope.session.options
    }

    /// The files that the enclosing site block's tokens come from, sorted.
    pub fn files(&self) -> &'a [Arc<str>] {
        self.scope.files
    }

    /// Records that the site invokes a named route.
    pub(crate) fn record_invocation(&self, name: &Token) {
        self.scope.session.invoked.borrow_mut().insert(name.text.to_string(), name.at.clone());
    }

    /// Records a warning about accepted input.
    pub fn warn(&self, token: &Token, message: String) {
        self.scope.session.warn(token, message);
    }

    /// The last token handed out, or the name if there is none. A matcher token does not count.
    pub fn last(&self) -> &'a Token {
        let arguments = &self.segment.arguments[self.start..self.taken];
        arguments.last().unwrap_or(self.name())
    }

    /// The error for too few or too many arguments.
    pub fn count_error(&self) -> Error {
        let last = self.last();
        if last.quoted() {
            let rule = "wrong argument count or unexpected line ending after '{}'";
            return Error::at(last, ErrorKind::Word { rule, found: last.text.clone() });
        }
        Error::at(last, ErrorKind::ArgumentCount(last.text.clone()))
    }

    /// An error at the last token handed out.
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::at(self.last(), kind)
    }

    /// An error with a complete sentence, at the last token handed out.
    pub fn rule(&self, rule: &'static str) -> Error {
        self.error(ErrorKind::Rule(rule))
    }

    /// An error at the last token handed out, which replaces `{}` in `rule`.
    pub fn word(&self, rule: &'static str) -> Error {
        self.error(ErrorKind::Word { rule, found: self.last().text.clone() })
    }

    /// The error for a last token that is not a duration.
    pub(crate) fn duration_error(&self) -> Error {
        self.error(ErrorKind::Duration(self.last().text.clone()))
    }

    /// The error for an unknown module named by the last token handed out, which replaces `{}` in `rule`.
    pub(crate) fn unknown_module(&self, rule: &'static str, expected: &'static [&'static str]) -> Error {
        self.error(ErrorKind::Unknown { rule, name: self.last().text.clone(), expected })
    }

    /// The error for a line whose name is not in the table `expected`. The name replaces `{}` in `rule`.
    pub fn unknown(&self, rule: &'static str, expected: &'static [&'static str]) -> Error {
        let name = self.name().text.clone();
        Error::at(self.name(), ErrorKind::Unknown { rule, name, expected })
    }
}

/// Evaluates a block: first its matcher definitions, then its directives. `site` is `Some` for the body of a site
/// block, and then holds whether the site has braces.
pub(crate) fn evaluate(segments: &[Segment], mut scope: Scope<'_>, site: Option<bool>) -> Result<Vec<Placed>, Error> {
    let defines = |segment: &&Segment| segment.name.text.starts_with('@');
    // Definitions come first: a directive can use a matcher that is defined below it.
    for segment in segments.iter().filter(defines) {
        let name = &segment.name;
        if scope.matchers.contains_key(&name.text) {
            return Err(Error::at(name, ErrorKind::MatcherTwice(name.text.clone())));
        }
        let matcher = Matcher { set: matcher::definition(segment)?, used: Cell::new(false) };
        scope.matchers.insert(name.text.clone(), Rc::new(matcher));
    }
    let mut outputs = Vec::new();
    for segment in segments.iter().filter(|segment| !defines(segment)) {
        let name = &segment.name;
        let syntax = match scope.session.directives.availability(&name.text) {
            Some(Availability::Available(syntax)) => syntax,
            Some(Availability::Withheld(_)) => {
                return Err(Error::at(name, ErrorKind::NotSupported(NameTable::Directive, name.text.clone())));
            }
            None => {
                let near = scope.session.directives.near(&name.text);
                let kind = ErrorKind::UnknownDirective { name: name.text.clone(), near, braces: site };
                return Err(Error::at(name, kind));
            }
        };
        let results = run(syntax, Dispenser::new(segment, &scope));
        let results = unread(results, scope.session);
        let results = results.map_err(|error| match &segment.opens {
            Some(opens) => error.in_unclosed(&name.text, opens).inside(&name.text, &segment.closes),
            None => error.inside(&name.text, &segment.closes),
        })?;
        // Caddy sorts `handle_path` together with `handle`.
        let sorted_as = if &*name.text == "handle_path" { "handle" } else { &name.text };
        let placed = |output| Placed { directive: sorted_as.into(), at: name.at.clone(), output };
        outputs.extend(results.into_iter().map(placed));
    }
    // Matchers from imports are exempt: a shared snippet may define matchers that only some of its importers use.
    let own = segments.iter().filter(defines).map(|segment| &segment.name).filter(|name| name.imported.is_none());
    for name in own.filter(|name| !scope.matchers[&name.text].used.get()) {
        scope.session.warn(name, format!("matcher {} is never used", name.text));
    }
    Ok(outputs)
}

/// Turns a directive's result into an error if its syntax function left a token or block unread. Its own error takes
/// precedence.
pub(crate) fn unread<T>(result: Result<T, Error>, session: &Session<'_>) -> Result<T, Error> {
    let left = session.unread.take();
    let read = result?;
    left.map_or(Ok(read), Err)
}

fn run(syntax: Syntax, mut dispenser: Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    match syntax {
        Syntax::Handler(parse) => {
            let matcher = dispenser.matcher()?;
            let handler = parse(&mut dispenser)?;
            Ok(vec![DirectiveOutput::Route(Route::new(matcher, handler))])
        }
        Syntax::Custom(parse) => parse(&mut dispenser),
    }
}
