//! Errors in Caddyfiles.
//!
//! [`Display`](fmt::Display) prints one line: the position, the text found, the text expected. [`Error::caddy_message`]
//! is the message in Caddy's exact words, for scripts that search for them.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::hint;
use super::position::Position;
use super::token::{Imported, Token};

/// An error in a Caddyfile. Always the operator's to fix. The whole load fails, so the file has no effect.
#[derive(Debug)]
pub struct Error(Box<ErrorDetails>);

#[derive(Debug)]
struct ErrorDetails {
    at: Position,
    kind: ErrorKind,
    /// The import that inserted the word.
    imported: Option<Arc<Imported>>,
    /// The enclosing directives, outermost first.
    within: Vec<DirectiveFrame>,
    /// Text to append to the sentence, such as where a block or a quote began.
    note: Option<String>,
    /// The position in Caddy's message, if it differs.
    caddy_position: Option<Position>,
}

#[derive(Debug)]
struct DirectiveFrame {
    /// Empty for a named route, which Caddy counts as an enclosing directive but does not name.
    directive: Box<str>,
    /// Position of the directive's last word. Caddy's messages name its line.
    closes: Position,
}

/// The table in which a name was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameTable {
    /// A directive of a site block.
    Directive,
    /// An option of the global block.
    GlobalOption,
    /// An option of `servers` in the global block.
    ServersOption,
    /// A module that an option selects.
    Module,
}

/// The kinds of errors. Texts are words from the file.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `<<` without a marker.
    HeredocMarkerMissing,
    /// `<<<MARKER`
    HeredocBrackets,
    /// A marker with characters other than letters, digits, `-` and `_`.
    HeredocMarker(Box<str>),
    /// A heredoc without its closing marker.
    HeredocOpen(Box<str>),
    /// A line of a heredoc is indented less than its closing marker.
    HeredocIndent {
        /// The heredoc's marker.
        marker: Box<str>,
        /// The line.
        line: Box<str>,
        /// White space before the closing marker.
        expected: Box<str>,
    },
    /// The file ends inside a construct.
    UnexpectedEnd {
        /// The expected word or construct.
        expected: &'static str,
    },
    /// A word where a specific other word is required.
    UnexpectedToken {
        /// The word.
        found: Box<str>,
        /// The expected word.
        expected: &'static str,
    },
    /// A complete sentence.
    Rule(&'static str),
    /// A sentence with `{}` in place of the offending word.
    Word {
        /// The sentence, with one `{}`.
        rule: &'static str,
        /// The word.
        found: Box<str>,
    },
    /// Too few or too many arguments. The word is the last one read.
    ArgumentCount(Box<str>),
    /// A directive that neither Caddy nor a registered module has.
    UnknownDirective {
        /// Its name.
        name: Box<str>,
        /// A known name that differs by a typo.
        near: Option<Box<str>>,
        /// Whether its site block has braces; `None` inside another directive.
        braces: Option<bool>,
    },
    /// A name that is not in the table for its position.
    Unknown {
        /// Caddy's sentence, with `{}` in place of the name.
        rule: &'static str,
        /// The name.
        name: Box<str>,
        /// The names allowed here.
        expected: &'static [&'static str],
    },
    /// A global option that Caddy does not have.
    UnknownGlobalOption {
        /// Its name.
        name: Box<str>,
        /// The names of all global options.
        expected: &'static [&'static str],
    },
    /// `order` with a name that no directive has.
    UnregisteredDirective(Box<str>),
    /// A use of a matcher that its block does not define.
    UnknownMatcher(Box<str>),
    /// A matcher defined twice in one block.
    MatcherTwice(Box<str>),
    /// `invoke` of a named route that is not defined.
    UnknownNamedRoute(Box<str>),
    /// A word that is not a duration.
    Duration(Box<str>),
    /// Two global options `servers` with the same name.
    ServerNameTwice(Box<str>),
    /// Two global options `servers` for the same listener address.
    ServersTwice(Box<str>),
    /// A feature of Caddy's that is not supported.
    NotSupported(NameTable, Box<str>),
    /// A directive without a position in the directive order.
    Unordered(Box<str>),
    /// A directive's name in place of a site address.
    DirectiveAsAddress(Box<str>),
    /// Two site blocks on one listener with the same address.
    AmbiguousSite(Box<str>),
    /// A named route defined twice.
    NamedRouteTwice(Box<str>),
    /// A block without addresses that is not the first.
    GlobalOptionsNotFirst,
    /// A port above 65535 or below 0.
    PortRange(i64),
    /// An import cycle.
    ImportCycle {
        /// The importing file or snippet.
        from: Box<str>,
        /// The imported file or snippet.
        to: Box<str>,
    },
    /// An imported file that cannot be read.
    ImportRead(Box<str>, std::io::ErrorKind),
    /// A complete sentence from a directive, for directives registered by other crates.
    Custom(Cow<'static, str>),
}

impl Error {
    /// An error at a position.
    pub fn new(at: Position, kind: ErrorKind) -> Self {
        Self(Box::new(ErrorDetails { at, kind, imported: None, within: Vec::new(), note: None, caddy_position: None }))
    }

    /// An error at a word, with the word's import.
    pub fn at(token: &Token, kind: ErrorKind) -> Self {
        let mut error = Self::new(token.at.clone(), kind);
        error.0.imported.clone_from(&token.imported);
        error
    }

    /// Position of the first character at fault.
    pub fn position(&self) -> &Position {
        &self.0.at
    }

    /// The kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file ends inside the block that `open` begins. Caddy's message names the position of the file's last word
    /// instead.
    pub(crate) fn unclosed(open: &Token, last: &Position) -> Self {
        let error = Self::at(open, ErrorKind::UnexpectedEnd { expected: "'}'" }).with_caddy_position(last);
        error.with_note(|| "the block that begins here is never closed".to_owned())
    }

    /// Sets the position in Caddy's message, which otherwise is the error's own.
    pub(crate) fn with_caddy_position(mut self, at: &Position) -> Self {
        self.0.caddy_position = Some(at.clone());
        self
    }

    /// Sets the text appended to the sentence, unless one is set already.
    pub(crate) fn with_note(mut self, note: impl FnOnce() -> String) -> Self {
        self.0.note.get_or_insert_with(note);
        self
    }

    /// Adds a hint if the error is an unknown directive that looks like a site address: then the block of `name`, which
    /// begins at `opens`, probably lacks its `}`.
    pub(crate) fn in_unclosed(self, name: &str, opens: &Position) -> Self {
        match &self.0.kind {
            ErrorKind::UnknownDirective { name: found, .. } if hint::is_address(found) => self.with_note(|| {
                format!("if it is a site address, the block of '{name}' that begins at {opens} lacks its '}}'")
            }),
            _ => self,
        }
    }

    /// Adds an enclosing directive, which ends at `closes`, around those added before.
    pub(crate) fn inside(mut self, directive: &str, closes: &Position) -> Self {
        self.0.within.insert(0, DirectiveFrame { directive: directive.into(), closes: closes.clone() });
        self
    }

    /// The error in Caddy's words: without column, with the enclosing directives in front and the lines where they end
    /// after it.
    pub fn caddy_message(&self) -> String {
        let ErrorDetails { at, kind, within, .. } = &*self.0;
        let mut message = String::new();
        for frame in within.iter().filter(|frame| !frame.directive.is_empty()) {
            message += &format!("parsing caddyfile tokens for '{}': ", frame.directive);
        }
        let mut place = self.0.caddy_position.as_ref().unwrap_or(at);
        match kind {
            ErrorKind::UnknownDirective { name, braces: None, .. } => {
                message += &format!(
                    "unrecognized directive: {name} - are you sure your Caddyfile structure (nesting and braces) is \
                     correct?"
                );
                // Caddy reads the whole block before it looks up the name, so it reports the line of the block's end.
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
            ErrorKind::DirectiveAsAddress(_) | ErrorKind::UnknownGlobalOption { .. } => {
                return format!("{}:{}: {}", at.file, at.line, self.0.sentence());
            }
            // Caddy's sentences do not state the expected text.
            ErrorKind::Word { .. } | ErrorKind::UnknownMatcher(_) | ErrorKind::Duration(_) => {
                message += self.0.sentence().split("; expected").next().unwrap_or_default();
            }
            _ => message += &self.0.sentence(),
        }
        if kind.has_position() {
            message += &format!(", at {}:{}", place.file, place.line);
            message += &self.0.import_chain();
        }
        // Each enclosing directive, except for the innermost, adds the line of its end.
        for frame in within.iter().rev().skip(1) {
            message += &format!(", at {}:{}", frame.closes.file, frame.closes.line);
        }
        message
    }
}

impl ErrorKind {
    /// Whether the unknown name is that of something that a plugin of Caddy can add: an option or a module.
    fn may_be_of_a_plugin(&self) -> bool {
        match self {
            Self::UnknownGlobalOption { .. } => true,
            Self::Unknown { rule, .. } => rule.ends_with("module not registered"),
            _ => false,
        }
    }

    /// Whether Caddy's message has a position. Caddy finds the other errors after parsing, when positions are lost.
    fn has_position(&self) -> bool {
        !matches!(
            self,
            Self::UnknownMatcher(_)
                | Self::MatcherTwice(_)
                | Self::UnknownNamedRoute(_)
                | Self::Duration(_)
                | Self::ServerNameTwice(_)
                | Self::ServersTwice(_)
                | Self::Unordered(_)
                | Self::NamedRouteTwice(_)
                | Self::AmbiguousSite(_)
                | Self::GlobalOptionsNotFirst
        )
    }
}

const SECOND_SITE: &str = "Did you mean to define a second site? If so, you must use curly braces around each site to \
                           separate their configurations.";

/// Writes line breaks as `\n`: quoted words and file names can contain them, and a message must be one line.
struct OneLine<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                self.0.write_str("\\n")?;
            }
            self.0.write_str(part)?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut OneLine(f);
        let ErrorDetails { at, kind, within, .. } = &*self.0;
        write!(f, "{at}: ")?;
        for frame in within.iter().filter(|frame| !frame.directive.is_empty()) {
            write!(f, "parsing caddyfile tokens for '{}': ", frame.directive)?;
        }
        f.write_str(&self.0.sentence())?;
        match kind {
            ErrorKind::UnknownDirective { name, near, braces } => {
                let home = hint::home_of(name);
                if let Some(other) = hint::of_another_server(name) {
                    write!(f, " (a directive of another server; here: {other})")?;
                } else if let Some(home) = home {
                    write!(f, " (it belongs in the block of {home})")?;
                } else if let Some(near) = near {
                    write!(f, " (did you mean \"{near}\"?)")?;
                } else {
                    write_plugin(f, name)?;
                }
                match braces {
                    _ if hint::of_a_plugin(name).is_some() => {}
                    None => f.write_str(" - are you sure your Caddyfile structure (nesting and braces) is correct?")?,
                    Some(false) if near.is_none() && home.is_none() => {
                        write!(f, "; expected a directive. {SECOND_SITE}")?;
                    }
                    Some(_) => f.write_str("; expected a directive")?,
                }
            }
            ErrorKind::Unknown { expected, name, .. } | ErrorKind::UnknownGlobalOption { expected, name } => {
                if let Some(near) = hint::near(expected.iter().copied(), name) {
                    write!(f, " (did you mean \"{near}\"?)")?;
                }
                if let Some(words) = hint::removed(name) {
                    write!(f, "; {words}")?;
                } else if kind.may_be_of_a_plugin() && hint::of_a_plugin(name).is_some() {
                    write_plugin(f, name)?;
                } else if !expected.is_empty() {
                    write!(f, "; expected {}", expected.join(", "))?;
                }
            }
            ErrorKind::Word { rule, found } => {
                if let Some(near) = hint::near_in_sentence(rule, found) {
                    write!(f, " (did you mean \"{near}\"?)")?;
                }
            }
            ErrorKind::UnregisteredDirective(name) => write_plugin(f, name)?,
            _ => {}
        }
        if let Some(note) = &self.0.note {
            write!(f, "; {note}")?;
        }
        match &self.0.imported {
            Some(imported) => write!(f, " (imported at {})", imported.at),
            None => Ok(()),
        }
    }
}

/// Names the plugin of a directive, a global option or a module, if it is known.
pub(crate) fn write_plugin(f: &mut impl fmt::Write, name: &str) -> fmt::Result {
    match hint::of_a_plugin(name) {
        Some((plugin, instead)) => write!(f, " (of the plugin {plugin}, which is not supported; here: {instead})"),
        None => Ok(()),
    }
}

impl std::error::Error for Error {}

impl ErrorDetails {
    /// The imports that inserted the word, outermost first, in Caddy's notation.
    fn import_chain(&self) -> String {
        let mut imports = Vec::new();
        let mut next = self.imported.as_ref();
        while let Some(import) = next {
            let snippet = import.snippet.as_ref().map_or(String::new(), |name| format!(" {name}"));
            imports.insert(0, format!("{}:{} (import{snippet})", import.at.file, import.last_line));
            next = import.before.as_ref();
        }
        if imports.is_empty() { String::new() } else { format!(" import chain ['{}']", imports.join("','")) }
    }

    /// The sentence without position and enclosing directives, in Caddy's words where Caddy has such an error.
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
            ErrorKind::UnknownGlobalOption { name, .. } => format!("unrecognized global option: {name}").into(),
            ErrorKind::UnregisteredDirective(name) => format!("{name} is not a registered directive").into(),
            ErrorKind::UnknownMatcher(name) => {
                format!("unrecognized matcher name: {name}; expected one defined in this block").into()
            }
            ErrorKind::MatcherTwice(name) => format!("matcher is defined more than once: {name}").into(),
            ErrorKind::UnknownNamedRoute(name) => {
                format!("cannot invoke named route '{name}', which was not defined").into()
            }
            ErrorKind::Duration(found) => {
                format!("invalid duration '{found}'; expected one such as 30s, 1m30s or 2d").into()
            }
            ErrorKind::ServerNameTwice(name) => {
                format!("applying global server options: cannot use duplicate server name '{name}'").into()
            }
            ErrorKind::ServersTwice(address) => {
                format!("cannot have 'servers' global options with duplicate listener addresses: {address}").into()
            }
            ErrorKind::ArgumentCount(found) if &**found == "{" => "unexpected token '{', expecting argument".into(),
            ErrorKind::ArgumentCount(found) => {
                format!("wrong argument count or unexpected line ending after '{found}'").into()
            }
            ErrorKind::UnknownDirective { name, .. } => format!("unrecognized directive: {name}").into(),
            ErrorKind::NotSupported(part, name) => format!("{part} '{name}' is not supported (docs/refused.md)").into(),
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

impl fmt::Display for NameTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directive => "directive",
            Self::GlobalOption => "global option",
            Self::ServersOption => "servers option",
            Self::Module => "module",
        })
    }
}
