//! The table of directives: name, position in the order, syntax.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::directives;
use super::dispenser::Dispenser;
use super::error::Error;
use super::log::Logger;
use super::route::Route;
use super::tls::Tls;

/// How a directive is read.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Syntax {
    /// One HTTP handler (a JSON object with a `handler` member). A matcher token after the name is taken off first.
    Handler(fn(&mut Dispenser<'_>) -> Result<Value, Error>),
    /// Anything; the function deals with matcher tokens itself.
    Custom(fn(&mut Dispenser<'_>) -> Result<Vec<Output>, Error>),
}

/// What a directive adds to its site.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// A route, sorted among its siblings.
    Route(Route),
    /// Routes that stay together in this order.
    Routes(Vec<Route>),
    /// Routes for errors.
    ErrorRoutes(Vec<Route>),
    /// Who logs the site's requests.
    Log(Logger),
    /// Certificates and handshakes of the site.
    Tls(Box<Tls>),
    /// A certificate authority of this server's own that the site uses.
    Authority(String),
    /// Addresses to listen on, and the protocols to serve there (empty for the default).
    Bind {
        /// Hosts, or `network/host`.
        addresses: Vec<String>,
        /// `h1`, `h2`, `h2c`, `h3`.
        protocols: Vec<String>,
    },
}

/// Where a directive's handlers run among those of other directives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order<'a> {
    /// Before all others.
    First,
    /// After all others.
    Last,
    /// Right before this directive.
    Before(&'a str),
    /// Right after this directive.
    After(&'a str),
    /// Nowhere by default: only inside `route`, or with the global option `order`.
    Unordered,
}

/// Why a directive could not be registered. The programmer's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name already has a syntax.
    Taken,
    /// [`Order`] names a directive that has no place in the order.
    NoSuchNeighbour,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taken => "a directive of this name is already registered",
            Self::NoSuchNeighbour => "the directive to be placed beside is not in the order",
        })
    }
}

impl std::error::Error for RegisterError {}

/// Caddy's default order, with ours among them. Directives that are not built yet keep their place.
const ORDER: &[&str] = &[
    "tracing",
    // Not Caddy's: it puts another request in place of the one that came, so all others look at that.
    "httpgrpc",
    // Variables that others may use.
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "log_name",
    "log_level",
    // The response's fields, before anything can answer.
    "header",
    "copy_response_headers",
    "request_body",
    "timeouts",
    "redir",
    // The request's target.
    "method",
    "rewrite",
    "uri",
    "try_files",
    // Handlers around others.
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    // Ways to other routes.
    "invoke",
    "handle",
    "handle_path",
    "route",
    // Handlers that answer.
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

/// Directives of Caddy's that configure the site instead of adding a handler.
const UNORDERED: &[&str] = &["bind", "handle_errors", "log", "tls"];

/// Every directive that a Caddyfile may use.
#[derive(Clone)]
pub struct Directives {
    /// `None`: Caddy's, not built into this version.
    table: BTreeMap<Box<str>, Option<Syntax>>,
    /// Syntax of directives that are treated as not built.
    withheld: BTreeMap<Box<str>, Syntax>,
    order: Vec<Box<str>>,
}

impl Directives {
    /// Caddy's directives, those not built yet included so that they can be told from unknown ones.
    pub fn standard() -> Self {
        let names = ORDER.iter().chain(UNORDERED);
        let mut table: BTreeMap<Box<str>, Option<Syntax>> = names.map(|&name| (name.into(), None)).collect();
        for &(name, syntax) in directives::BUILT {
            table.insert(name.into(), Some(syntax));
        }
        Self { table, withheld: BTreeMap::new(), order: ORDER.iter().map(|&name| name.into()).collect() }
    }

    /// Adds a directive, or gives one of Caddy's that is not built its syntax (it keeps its place then, whatever `order`).
    ///
    /// ```
    /// use causeway_config::caddyfile::{Directives, Dispenser, Error, Order, Syntax, adapt};
    /// use serde_json::{Value, json};
    ///
    /// /// `shout <text> { times <n> }`
    /// fn shout(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    ///     let text = d.only()?;
    ///     let mut times = 1;
    ///     for mut line in d.lines() {
    ///         match &*line.name().text {
    ///             "times" => times = line.only()?.text.parse().map_err(|_| line.word("found '{}', expected a number"))?,
    ///             _ => return Err(line.unknown("unknown option '{}'", &["times"])),
    ///         }
    ///     }
    ///     Ok(json!({ "handler": "shout", "text": &*text.text, "times": times }))
    /// }
    ///
    /// let mut directives = Directives::standard();
    /// directives.register("shout", Order::Before("respond"), Syntax::Handler(shout)).unwrap();
    /// let read = |source| adapt(source, "Caddyfile", &directives, &|_| None);
    /// let adapted = read(":80 {\n\tshout /loud hello {\n\t\ttimes 2\n\t}\n}\n").unwrap();
    /// let handler = &adapted.json["apps"]["http"]["servers"]["srv0"]["routes"][0]["handle"][0];
    /// assert_eq!(handler, &json!({ "handler": "shout", "text": "hello", "times": 2 }));
    /// let error = read(":80 {\n\tshout hello {\n\t\ttimes many\n\t}\n}\n").unwrap_err().to_string();
    /// assert_eq!(error, "Caddyfile:3:9: parsing caddyfile tokens for 'shout': found 'many', expected a number");
    /// ```
    ///
    /// # Errors
    /// When the name is taken, or `order` names a directive that has no place itself.
    pub fn register(&mut self, name: &str, order: Order<'_>, syntax: Syntax) -> Result<(), RegisterError> {
        match self.table.get(name) {
            Some(Some(_)) => return Err(RegisterError::Taken),
            Some(None) => {}
            None => {
                let beside = |name: &str| self.order.iter().position(|other| **other == *name);
                let index = match order {
                    Order::Unordered => None,
                    Order::First => Some(0),
                    Order::Last => Some(self.order.len()),
                    Order::Before(other) => Some(beside(other).ok_or(RegisterError::NoSuchNeighbour)?),
                    Order::After(other) => Some(beside(other).ok_or(RegisterError::NoSuchNeighbour)? + 1),
                };
                if let Some(index) = index {
                    self.order.insert(index, name.into());
                }
            }
        }
        self.table.insert(name.into(), Some(syntax));
        self.withheld.remove(name);
        Ok(())
    }

    /// Treats a directive as not built: for a server whose modules can't run what it turns into.
    pub fn withhold(&mut self, name: &str) {
        if let Some(known) = self.table.get_mut(name)
            && let Some(syntax) = known.take()
        {
            self.withheld.insert(name.into(), syntax);
        }
    }

    /// The same with nothing withheld: for whoever only wants the JSON.
    #[must_use]
    pub fn unrestrained(&self) -> Self {
        let mut all = self.clone();
        for (name, syntax) in std::mem::take(&mut all.withheld) {
            all.table.insert(name, Some(syntax));
        }
        all
    }

    /// Whether the name is a directive, built or not.
    pub fn knows(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// Every name that has a syntax, in alphabetical order.
    pub fn built(&self) -> impl Iterator<Item = &str> {
        self.table.iter().filter(|(_, syntax)| syntax.is_some()).map(|(name, _)| &**name)
    }

    pub(crate) fn order(&self) -> &[Box<str>] {
        &self.order
    }

    /// `None`: unknown; `Some(None)`: not built.
    pub(crate) fn syntax(&self, name: &str) -> Option<Option<Syntax>> {
        self.table.get(name).copied()
    }

    /// The known name that `name` was probably meant to be.
    pub(crate) fn near(&self, name: &str) -> Option<Box<str>> {
        let near = self.table.keys().map(|known| (distance(known, name), known));
        near.filter(|(distance, known)| *distance <= 2 && *distance * 2 < known.len())
            .min()
            .map(|(_, known)| known.clone())
    }
}

impl fmt::Debug for Directives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directives").field("built", &Vec::from_iter(self.built())).finish_non_exhaustive()
    }
}

/// Single-character edits between two words; a long word is near nothing, whatever the count.
fn distance(known: &str, written: &str) -> usize {
    if written.len() > known.len() + 4 {
        return usize::MAX / 4;
    }
    let mut row = Vec::from_iter(0..=known.len());
    for (i, a) in written.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in known.bytes().enumerate() {
            let edited = (diagonal + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], edited);
        }
    }
    row[known.len()]
}
