//! A directive's words, handed out one by one to whoever knows its syntax.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::{self, Error, ErrorKind, Part};
use super::matcher::{self, MatcherSet};
use super::options::Options;
use super::quantity::octets;
use super::registry::{Output, Syntax};
use super::route::{self, Ordering, Placed, Route};
use super::segment::Segment;
use super::token::Token;
use super::{Session, Warning};

/// What a directive sees besides its own words.
#[derive(Clone)]
pub(crate) struct Scope<'a> {
    pub(crate) session: &'a Session<'a>,
    pub(crate) matchers: BTreeMap<Box<str>, MatcherSet>,
    /// The files the enclosing block came from.
    pub(crate) files: &'a [Arc<str>],
}

/// The words of one directive or of one line in its block.
pub struct Dispenser<'a> {
    segment: &'a Segment,
    taken: usize,
    /// Where the arguments start: behind the matcher token, if one was taken off.
    start: usize,
    scope: &'a Scope<'a>,
}

impl<'a> Dispenser<'a> {
    pub(crate) fn new(segment: &'a Segment, scope: &'a Scope<'a>) -> Self {
        Self { segment, taken: 0, start: 0, scope }
    }

    /// The directive's or line's first word.
    pub fn name(&self) -> &'a Token {
        &self.segment.name
    }

    /// The whole of it, what was handed out included.
    pub fn segment(&self) -> &'a Segment {
        self.segment
    }

    /// The next argument.
    pub fn argument(&mut self) -> Option<&'a Token> {
        let token = self.segment.arguments.get(self.taken)?;
        self.taken += 1;
        Some(token)
    }

    /// The next argument, which must be there.
    pub fn require(&mut self) -> Result<&'a Token, Error> {
        self.argument().ok_or_else(|| self.count_error())
    }

    /// The next argument, which must be there and the last.
    pub fn only(&mut self) -> Result<&'a Token, Error> {
        let token = self.require()?;
        if self.remaining().is_empty() { Ok(token) } else { Err(self.count_error()) }
    }

    /// The only argument, read as a number of octets; `{}` in the rule stands for one that is none.
    pub(crate) fn size(&mut self, rule: &'static str) -> Result<i64, Error> {
        let token = self.only()?;
        let size = octets(&token.text).and_then(|octets| i64::try_from(octets).ok());
        size.ok_or_else(|| self.word(rule))
    }

    /// All arguments not handed out yet; does not hand them out.
    pub fn remaining(&self) -> &'a [Token] {
        &self.segment.arguments[self.taken..]
    }

    /// All arguments not handed out yet.
    pub fn rest(&mut self) -> &'a [Token] {
        let rest = self.remaining();
        self.taken = self.segment.arguments.len();
        rest
    }

    /// Refuses any further argument.
    pub fn end(&mut self) -> Result<(), Error> {
        match self.argument() {
            Some(_) => Err(self.count_error()),
            None => Ok(()),
        }
    }

    /// Warns of any further argument: Caddy overlooks it here, so it must not keep a file from loading.
    pub fn overlook_rest(&mut self) {
        if let Some(token) = self.rest().first() {
            self.warn(token, format!("'{}' and what follows on its line has no effect here", token.text));
        }
    }

    /// The lines of the block.
    pub fn lines(&self) -> impl Iterator<Item = Dispenser<'a>> + use<'a> {
        let scope = self.scope;
        self.segment.block.iter().flatten().map(move |line| Dispenser::new(line, scope))
    }

    /// Hands the block's lines to `option` one by one. A word that it leaves over begins a further option, as in Caddy. Of a
    /// block behind an option that has none by `with_block`, Caddy reads the brace as an option; so it is refused.
    pub(crate) fn each_option(
        &self,
        with_block: fn(&str) -> bool,
        mut option: impl FnMut(&mut Dispenser<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for line in self.lines() {
            let mut next = Some(line.segment.clone());
            while let Some(segment) = next {
                let mut line = self.over(&segment);
                option(&mut line)?;
                next = line.left_over();
                if let Some(further) = &next {
                    self.warn(&further.name, format!("'{}' is read as an option of its own", further.name.text));
                } else if segment.block.is_some() && !with_block(&segment.name.text) {
                    let rule = "unrecognized subdirective {}; expected no block here";
                    return Err(Error::at(line.last(), ErrorKind::Word { rule, found: "{".into() }));
                }
            }
        }
        Ok(())
    }

    /// Other words, read where these are.
    pub(crate) fn over<'b>(&self, segment: &'b Segment) -> Dispenser<'b>
    where
        'a: 'b,
    {
        Dispenser::new(segment, self.scope)
    }

    /// What was not handed out yet, read as a segment of its own.
    pub(crate) fn left_over(&self) -> Option<Segment> {
        let (name, arguments) = self.remaining().split_first()?;
        Some(Segment {
            name: name.clone(),
            arguments: arguments.to_vec(),
            block: self.segment.block.clone(),
            closes: self.segment.closes.clone(),
        })
    }

    /// Refuses a block with at least one line.
    pub fn no_block(&self, rule: &'static str) -> Result<(), Error> {
        match self.lines().next() {
            Some(line) => Err(Error::at(line.name(), ErrorKind::Rule(rule))),
            None => Ok(()),
        }
    }

    /// Refuses a block, even an empty one.
    pub fn no_braces(&self) -> Result<(), Error> {
        match self.segment.block {
            Some(_) => Err(Error::at(self.last(), ErrorKind::ArgumentCount("{".into()))),
            None => Ok(()),
        }
    }

    /// Refuses whatever else its line holds: an argument, or a block.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        if self.argument().is_some() {
            return Err(self.word("unknown subdirective '{}'; expected nothing more on this line"));
        }
        match self.segment.block {
            Some(_) => Err(self.rule("unexpected block; expected the line to end here")),
            None => Ok(()),
        }
    }

    /// Takes a matcher token off if one is next: `*` (an empty answer), `/path` or `@name`.
    pub fn matcher(&mut self) -> Result<Option<MatcherSet>, Error> {
        let Some(token) = self.remaining().first() else { return Ok(None) };
        let set = if &*token.text == "*" {
            None
        } else if token.text.starts_with('/') {
            Some(matcher::path(&token.text))
        } else if token.text.starts_with('@') {
            let known = self.scope.matchers.get(&token.text).cloned();
            Some(known.ok_or_else(|| {
                Error::at(token, ErrorKind::Word { rule: error::MATCHER_NAME, found: token.text.clone() })
            })?)
        } else {
            return Ok(None);
        };
        self.taken += 1;
        self.start = self.taken;
        Ok(set)
    }

    pub(crate) fn directives(&self) -> Result<Vec<Placed>, Error> {
        evaluate(self.segment.block.as_deref().unwrap_or_default(), self.scope.clone(), None)
    }

    /// The block's lines read as directives, sorted into routes as a site's are; matchers defined in the block are seen
    /// there and deeper.
    pub fn routes(&self) -> Result<Vec<Route>, Error> {
        route::subroute(self.directives()?, self.scope.session, Ordering::ByDirective)
    }

    /// [`Self::routes`] in the order written.
    pub fn routes_as_written(&self) -> Result<Vec<Route>, Error> {
        route::subroute(self.directives()?, self.scope.session, Ordering::AsWritten)
    }

    /// A name for a group of mutually exclusive routes, used by no other.
    pub fn group(&self) -> String {
        self.scope.session.next_group()
    }

    /// A name for a logger that has none.
    pub(crate) fn log_name(&self) -> String {
        self.scope.session.next_log()
    }

    /// The tag of a certificate's file, and whether it was never asked for before.
    pub(crate) fn certificate_tag(&self, file: &str) -> (String, bool) {
        self.scope.session.certificate_tag(file)
    }

    /// What the global block says.
    pub(crate) fn options(&self) -> &'a Options {
        self.scope.session.options
    }

    /// The files the enclosing site block came from, sorted.
    pub fn files(&self) -> &'a [Arc<str>] {
        self.scope.files
    }

    /// Notes that the site invokes a named route.
    pub(crate) fn invoke(&self, name: &Token) {
        self.scope.session.invoked.borrow_mut().insert(name.text.to_string(), name.at.clone());
    }

    /// Notes something that deserves a look.
    pub fn warn(&self, token: &Token, message: String) {
        self.scope.session.warnings.borrow_mut().push(Warning { at: token.at.clone(), message });
    }

    /// The word handed out last, the name before any; a matcher token does not count.
    pub fn last(&self) -> &'a Token {
        let arguments = &self.segment.arguments[self.start..self.taken];
        arguments.last().unwrap_or(&self.segment.name)
    }

    /// Too few or too many arguments.
    pub fn count_error(&self) -> Error {
        let last = self.last();
        if last.quoted() {
            let rule = "wrong argument count or unexpected line ending after '{}'";
            return Error::at(last, ErrorKind::Word { rule, found: last.text.clone() });
        }
        Error::at(last, ErrorKind::ArgumentCount(last.text.clone()))
    }

    /// A mistake at the word handed out last.
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::at(self.last(), kind)
    }

    /// A broken rule at the word handed out last.
    pub fn rule(&self, rule: &'static str) -> Error {
        self.error(ErrorKind::Rule(rule))
    }

    /// A broken rule and the word handed out last, which stands for `{}` in it.
    pub fn word(&self, rule: &'static str) -> Error {
        self.error(ErrorKind::Word { rule, found: self.last().text.clone() })
    }

    /// The word handed out last, which is no module's name; `{}` in the rule stands for it.
    pub(crate) fn unknown_module(&self, rule: &'static str, expected: &'static [&'static str]) -> Error {
        self.error(ErrorKind::Unknown { rule, name: self.last().text.clone(), expected })
    }

    /// A line's name that is in no table; `{}` in the rule stands for it.
    pub fn unknown(&self, rule: &'static str, expected: &'static [&'static str]) -> Error {
        let name = self.name().text.clone();
        Error::at(self.name(), ErrorKind::Unknown { rule, name, expected })
    }
}

/// Evaluates a block's directives after taking its matcher definitions in. `site` is `Some` at the top of a site block
/// and tells whether it has braces.
pub(crate) fn evaluate(segments: &[Segment], mut scope: Scope<'_>, site: Option<bool>) -> Result<Vec<Placed>, Error> {
    let defines = |segment: &&Segment| segment.name.text.starts_with('@');
    for segment in segments.iter().filter(defines) {
        let name = &segment.name;
        if scope.matchers.contains_key(&name.text) {
            return Err(Error::at(name, ErrorKind::Word { rule: error::MATCHER_TWICE, found: name.text.clone() }));
        }
        scope.matchers.insert(name.text.clone(), matcher::definition(segment)?);
    }
    let mut outputs = Vec::new();
    for segment in segments.iter().filter(|segment| !defines(segment)) {
        let name = &segment.name;
        let syntax = match scope.session.directives.syntax(&name.text) {
            Some(Some(syntax)) => syntax,
            Some(None) => return Err(Error::at(name, ErrorKind::NotBuilt(Part::Directive, name.text.clone()))),
            None => {
                let near = scope.session.directives.near(&name.text);
                let kind = ErrorKind::UnknownDirective { name: name.text.clone(), near, braces: site };
                return Err(Error::at(name, kind));
            }
        };
        let results = run(syntax, Dispenser::new(segment, &scope));
        let results = results.map_err(|error| error.inside(&name.text, &segment.closes))?;
        // Caddy sorts `handle_path` among the `handle` blocks.
        let sorted_as = if &*name.text == "handle_path" { "handle" } else { &name.text };
        let placed = |output| Placed { directive: sorted_as.into(), at: name.at.clone(), output };
        outputs.extend(results.into_iter().map(placed));
    }
    Ok(outputs)
}

fn run(syntax: Syntax, mut dispenser: Dispenser<'_>) -> Result<Vec<Output>, Error> {
    match syntax {
        Syntax::Handler(parse) => {
            let matcher = dispenser.matcher()?;
            let handler = parse(&mut dispenser)?;
            Ok(vec![Output::Route(Route::new(matcher, handler))])
        }
        Syntax::Custom(parse) => parse(&mut dispenser),
    }
}
