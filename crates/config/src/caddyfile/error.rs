//! The operator's mistakes.
//!
//! [`Display`](fmt::Display) is one line: place, what was found, what was expected. [`Error::caddy_message`] is the same
//! mistake in the exact words that Caddy prints, for scripts that look for them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::position::Position;
use super::token::{Imported, Token};

/// A mistake in a Caddyfile. Always the operator's; reaches the whole load, so nothing of the file takes effect.
#[derive(Debug)]
pub struct Error(Box<Fault>);

#[derive(Debug)]
struct Fault {
    at: Position,
    kind: ErrorKind,
    /// The import that brought the word.
    imported: Option<Arc<Imported>>,
    /// The directives it happened in, outermost first.
    within: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    /// Empty for a named route, which Caddy counts as a surrounding but does not name.
    directive: Box<str>,
    /// The last word of the directive: Caddy names its line.
    closes: Position,
}

/// Which table a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// A directive of a site block.
    Directive,
    /// An option of the global block.
    GlobalOption,
    /// An option of `servers` in the global block.
    ServersOption,
    /// A request matcher.
    Matcher,
    /// A module that an option names.
    Module,
}

/// What is wrong. Texts are words found in the file.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `<<` and nothing after it.
    HeredocMarkerMissing,
    /// `<<<MARKER`
    HeredocBrackets,
    /// A marker of other characters than letters, digits, `-` and `_`.
    HeredocMarker(Box<str>),
    /// The closing marker never comes.
    HeredocOpen(Box<str>),
    /// A line is indented less than the closing marker.
    HeredocIndent {
        /// The heredoc's marker.
        marker: Box<str>,
        /// The line.
        line: Box<str>,
        /// White space before the closing marker.
        expected: Box<str>,
    },
    /// The file ends inside something.
    UnexpectedEnd {
        /// What would have closed it.
        expected: &'static str,
    },
    /// A word where another is required.
    UnexpectedToken {
        /// The word.
        found: Box<str>,
        /// What belongs there.
        expected: &'static str,
    },
    /// A rule with nothing to add to it.
    Rule(&'static str),
    /// A rule and the word that breaks it; `{}` in the rule stands for the word.
    Word {
        /// The sentence.
        rule: &'static str,
        /// The word.
        found: Box<str>,
    },
    /// Too few or too many arguments; the word is the last one looked at.
    ArgumentCount(Box<str>),
    /// A directive that neither Caddy nor a registered module knows.
    UnknownDirective {
        /// Its name.
        name: Box<str>,
        /// A known name that it resembles.
        near: Option<Box<str>>,
        /// Whether its site block has braces; `None` inside another directive.
        braces: Option<bool>,
    },
    /// A name that is in no table where it stands.
    Unknown {
        /// What Caddy says before the name; `{}` stands for it.
        rule: &'static str,
        /// The name.
        name: Box<str>,
        /// The names that could stand here.
        expected: &'static [&'static str],
    },
    /// Caddy has it, this version has not.
    NotBuilt(Part, Box<str>),
    /// A directive that has no place in the order.
    Unordered(Box<str>),
    /// A directive's name where a site address belongs.
    DirectiveAsAddress(Box<str>),
    /// Two site blocks on one listener with the same address.
    AmbiguousSite(Box<str>),
    /// A named route defined twice.
    NamedRouteTwice(Box<str>),
    /// A block without addresses that is not the first.
    GlobalOptionsNotFirst,
    /// A port above 65535 or below 0.
    PortRange(i64),
    /// Imports that lead back to where they came from.
    ImportCycle {
        /// The importing file or snippet.
        from: Box<str>,
        /// The imported one.
        to: Box<str>,
    },
    /// An imported file that cannot be read.
    ImportRead(Box<str>, std::io::ErrorKind),
    /// A directive's own sentence; for directives registered from outside.
    Custom(Cow<'static, str>),
}

impl Error {
    /// A mistake at a place.
    pub fn new(at: Position, kind: ErrorKind) -> Self {
        Self(Box::new(Fault { at, kind, imported: None, within: Vec::new() }))
    }

    /// A mistake at a word.
    pub fn at(token: &Token, kind: ErrorKind) -> Self {
        let mut error = Self::new(token.at.clone(), kind);
        error.0.imported.clone_from(&token.imported);
        error
    }

    /// The first character of what is wrong.
    pub fn position(&self) -> &Position {
        &self.0.at
    }

    /// What is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The same mistake, known to have happened inside a directive that ends at `closes`.
    pub(crate) fn inside(mut self, directive: &str, closes: &Position) -> Self {
        self.0.within.insert(0, Frame { directive: directive.into(), closes: closes.clone() });
        self
    }

    /// The mistake in Caddy's words: no column, the directives it happened in, and at the end the lines where they end.
    pub fn caddy_message(&self) -> String {
        let Fault { at, kind, within, .. } = &*self.0;
        let mut message = String::new();
        for frame in within.iter().filter(|frame| !frame.directive.is_empty()) {
            message += &format!("parsing caddyfile tokens for '{}': ", frame.directive);
        }
        let mut place = at;
        match kind {
            ErrorKind::UnknownDirective { name, braces: None, .. } => {
                message += &format!(
                    "unrecognized directive: {name} - are you sure your Caddyfile structure (nesting and braces) is \
                     correct?"
                );
                // Caddy has read the whole block before it looks the name up.
                place = within.last().map_or(at, |frame| &frame.closes);
            }
            ErrorKind::UnknownDirective { name, braces: Some(braces), .. } => {
                message += &format!("{}:{}: unrecognized directive: {name}", at.file, at.line);
                if !braces {
                    message += "\n";
                    message += SECOND_SITE;
                }
                return message;
            }
            ErrorKind::DirectiveAsAddress(_) | ErrorKind::Unknown { rule: GLOBAL_OPTION, .. } => {
                return format!("{}:{}: {}", at.file, at.line, self.0.sentence());
            }
            // What was expected is this project's addition.
            ErrorKind::Word { .. } => message += self.0.sentence().split("; expected").next().unwrap_or_default(),
            _ => message += &self.0.sentence(),
        }
        if kind.placed() {
            message += &format!(", at {}:{}", place.file, place.line);
            message += &self.0.import_chain();
        }
        for frame in within.iter().rev().skip(1) {
            message += &format!(", at {}:{}", frame.closes.file, frame.closes.line);
        }
        message
    }
}

/// How Caddy words an unknown global option; its own shape, because Caddy puts the place in front.
pub(crate) const GLOBAL_OPTION: &str = "unrecognized global option: {}";

pub(crate) const MATCHER_NAME: &str = "unrecognized matcher name: {}; expected one defined in this block";
pub(crate) const MATCHER_TWICE: &str = "matcher is defined more than once: {}";
pub(crate) const NAMED_ROUTE: &str = "cannot invoke named route '{}', which was not defined";
pub(crate) const DURATION: &str = "invalid duration '{}'; expected one such as 30s, 1m30s or 2d";
pub(crate) const SERVER_NAME_TWICE: &str = "applying global server options: cannot use duplicate server name '{}'";
pub(crate) const SERVERS_TWICE: &str = "cannot have 'servers' global options with duplicate listener addresses: {}";

impl ErrorKind {
    /// Whether Caddy says where it is; these it finds when the words are read already.
    fn placed(&self) -> bool {
        const UNPLACED: [&str; 6] =
            [MATCHER_NAME, MATCHER_TWICE, NAMED_ROUTE, DURATION, SERVER_NAME_TWICE, SERVERS_TWICE];
        match self {
            Self::Word { rule, .. } => !UNPLACED.contains(rule),
            Self::Unordered(_) | Self::NamedRouteTwice(_) | Self::AmbiguousSite(_) | Self::GlobalOptionsNotFirst => {
                false
            }
            _ => true,
        }
    }
}

const SECOND_SITE: &str = "Did you mean to define a second site? If so, you must use curly braces around each site to \
                           separate their configurations.";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { at, kind, within, .. } = &*self.0;
        // A quoted word may hold line breaks; the sentence stays one line.
        let sentence = self.0.sentence().replace('\n', "\\n");
        write!(f, "{at}: ")?;
        for frame in within.iter().filter(|frame| !frame.directive.is_empty()) {
            write!(f, "parsing caddyfile tokens for '{}': ", frame.directive)?;
        }
        f.write_str(&sentence)?;
        match kind {
            ErrorKind::UnknownDirective { near, braces, .. } => {
                if let Some(near) = near {
                    write!(f, " (did you mean \"{near}\"?)")?;
                }
                match braces {
                    None => f.write_str(" - are you sure your Caddyfile structure (nesting and braces) is correct?")?,
                    Some(false) if near.is_none() => write!(f, "; expected a directive. {SECOND_SITE}")?,
                    Some(_) => f.write_str("; expected a directive")?,
                }
            }
            ErrorKind::Unknown { expected, .. } if !expected.is_empty() => {
                write!(f, "; expected {}", expected.join(", "))?;
            }
            _ => {}
        }
        match &self.0.imported {
            Some(imported) => write!(f, " (imported at {})", imported.at),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl Fault {
    /// Which imports brought the word, first the one that read it, in Caddy's notation.
    fn import_chain(&self) -> String {
        let mut imports = Vec::new();
        let mut next = self.imported.as_ref();
        while let Some(import) = next {
            let snippet = import.snippet.as_ref().map_or(String::new(), |name| format!(" {name}"));
            imports.insert(0, format!("{}:{} (import{snippet})", import.at.file, import.ends));
            next = import.before.as_ref();
        }
        if imports.is_empty() { String::new() } else { format!(" import chain ['{}']", imports.join("','")) }
    }

    /// The sentence, without place or surroundings; Caddy's wording wherever Caddy has one.
    fn sentence(&self) -> Cow<'static, str> {
        let line = self.at.line;
        const MARKER: &str = "must contain only alphanumeric characters, dashes and underscores; got";
        match &self.kind {
            ErrorKind::HeredocMarkerMissing => {
                format!("missing opening heredoc marker on line #{line}; {MARKER} empty string").into()
            }
            ErrorKind::HeredocBrackets => {
                format!("too many '<' for heredoc on line #{line}; only use two, for example <<END").into()
            }
            ErrorKind::HeredocMarker(found) => format!("heredoc marker on line #{line} {MARKER} '{found}'").into(),
            ErrorKind::HeredocOpen(marker) => {
                format!("incomplete heredoc <<{marker} on line #{line}, expected ending marker {marker}").into()
            }
            ErrorKind::HeredocIndent { marker, line: text, expected } => format!(
                "mismatched leading whitespace in heredoc <<{marker} on line #{line} [{text}], expected whitespace \
                 [{expected}] to match the closing marker"
            )
            .into(),
            ErrorKind::UnexpectedEnd { expected } => format!("unexpected EOF, expecting {expected}").into(),
            ErrorKind::UnexpectedToken { found, expected } => {
                format!("syntax error: unexpected token '{found}', expecting '{expected}'").into()
            }
            ErrorKind::Rule(rule) => (*rule).into(),
            ErrorKind::Word { rule, found } => rule.replacen("{}", found, 1).into(),
            ErrorKind::Unknown { rule, name, .. } => rule.replacen("{}", name, 1).into(),
            ErrorKind::ArgumentCount(found) if &**found == "{" => "unexpected token '{', expecting argument".into(),
            ErrorKind::ArgumentCount(found) => {
                format!("wrong argument count or unexpected line ending after '{found}'").into()
            }
            ErrorKind::UnknownDirective { name, .. } => format!("unrecognized directive: {name}").into(),
            ErrorKind::NotBuilt(part, name) => format!("{part} '{name}' is not built into this version").into(),
            ErrorKind::Unordered(name) => format!(
                "directive '{name}' is not an ordered HTTP handler, so it cannot be used here - try placing within a \
                 route block or using the order global option"
            )
            .into(),
            ErrorKind::DirectiveAsAddress(name) => format!(
                "parsed '{name}' as a site address, but it is a known directive; directives must appear in a site block"
            )
            .into(),
            ErrorKind::AmbiguousSite(address) => format!("ambiguous site definition: {address}").into(),
            ErrorKind::NamedRouteTwice(name) => format!("cannot have duplicate named_routes: {name}").into(),
            ErrorKind::GlobalOptionsNotFirst => {
                "server block without any key is global configuration, and if used, it must be first".into()
            }
            ErrorKind::PortRange(port) => format!("port {port} is out of range; expected 0 to 65535").into(),
            ErrorKind::ImportCycle { from, to } => format!("a cycle of imports exists between {from} and {to}").into(),
            ErrorKind::ImportRead(file, kind) => format!("Could not import {file}: {kind}").into(),
            ErrorKind::Custom(sentence) => sentence.clone(),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directive => "directive",
            Self::GlobalOption => "global option",
            Self::ServersOption => "servers option",
            Self::Matcher => "matcher",
            Self::Module => "module",
        })
    }
}
