//! The directives that a Caddyfile can use: the standard ones, and those that an embedding program registers.

use std::collections::BTreeMap;
use std::fmt;

use causeway_pipeline::Registry;
use serde_json::Value;

use super::directives::{DIRECTIVES, Directive, Needs};
use super::dispenser::Dispenser;
use super::error::Error;
use super::hint;
use super::log::Logger;
use super::route::Route;
use super::tls::Tls;

/// The function that reads a directive.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Syntax {
    /// Adds one HTTP handler: the function returns a JSON object with a `handler` member. The matcher token after the
    /// name is taken before the call.
    Handler(fn(&mut Dispenser<'_>) -> Result<Value, Error>),
    /// Adds any outputs. The function takes the matcher token itself, if it accepts one.
    Custom(fn(&mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error>),
}

/// The addition of a directive to its site.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DirectiveOutput {
    /// A route, to be sorted among its siblings.
    Route(Route),
    /// Routes that stay together in this order.
    Routes(Vec<Route>),
    /// Routes that handle errors.
    ErrorRoutes(Vec<Route>),
    /// A logger for the site's requests.
    Log(Logger),
    /// TLS settings and certificates of the site.
    Tls(Box<Tls>),
    /// The ID of a local certificate authority that the site uses.
    Authority(String),
    /// Addresses to listen on, and the protocols to serve there (empty: the default).
    Bind {
        /// Hosts, or `network/host`.
        addresses: Vec<String>,
        /// `h1`, `h2`, `h2c`, `h3`.
        protocols: Vec<String>,
    },
}

/// The position of a directive's handlers relative to those of other directives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order<'a> {
    /// Before all others.
    First,
    /// After all others.
    Last,
    /// Directly before this directive.
    Before(&'a str),
    /// Directly after this directive.
    After(&'a str),
    /// Not in the order: usable only inside `route`, or with the global option `order`.
    Unordered,
}

/// Why a directive could not be registered. A programming error of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name already has a syntax.
    Taken,
    /// [`Order`] names this directive, which is not in the order.
    NoSuchNeighbour(Box<str>),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("a directive of this name is already registered"),
            Self::NoSuchNeighbour(name) => {
                write!(f, "the directive to be placed beside, '{name}', is not in the order")
            }
        }
    }
}

impl std::error::Error for RegisterError {}

/// The directives that a Caddyfile can use.
#[derive(Clone)]
pub struct Directives {
    table: BTreeMap<Box<str>, Availability>,
    order: Vec<Box<str>>,
}

/// Whether a Caddyfile can use a directive.
#[derive(Clone, Copy)]
pub(crate) enum Availability {
    Available(Syntax),
    /// The directive is treated as not supported.
    Withheld(Syntax),
}

impl Directives {
    /// Caddy's directives and ours, including those that can only be adapted.
    pub fn standard() -> Self {
        let available = |directive: &Directive| (directive.name.into(), Availability::Available(directive.syntax));
        let ordered = DIRECTIVES.iter().filter(|directive| directive.is_ordered);
        Self {
            table: DIRECTIVES.iter().map(available).collect(),
            order: ordered.map(|directive| directive.name.into()).collect(),
        }
    }

    /// As [`standard`](Self::standard), without the directives whose modules `registry` lacks. The Caddyfile reader
    /// then reports such a directive with its line; without this, the plan could only report a module's name.
    pub fn of(registry: &Registry) -> Self {
        let mut directives = Self::standard();
        let modules = registry.modules();
        for directive in DIRECTIVES {
            let runs = match directive.needs {
                Needs::Nothing => true,
                Needs::Module(needed) => modules.iter().any(|module| module == needed),
            };
            if !runs {
                directives.withhold(directive.name);
            }
        }
        directives
    }

    /// Adds a directive, or supplies the syntax for one that is [withheld](Self::withhold). The latter keeps its
    /// position, regardless of `order`.
    ///
    /// ```
    /// use causeway_config::caddyfile::{Directives, Dispenser, Error, Order, Syntax, adapt};
    /// use serde_json::{Value, json};
    ///
    /// /// `shout <text> { times <n> }`
    /// fn shout(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    ///     let text = d.sole_argument()?;
    ///     let mut times = 1;
    ///     for mut line in d.lines() {
    ///         match &*line.name().text {
    ///             "times" => times = line.sole_argument()?.text.parse().map_err(|_| line.word("found '{}', expected a number"))?,
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
    /// Fails if the name already has a syntax, or if `order` names a directive that is not in the order.
    pub fn register(&mut self, name: &str, order: Order<'_>, syntax: Syntax) -> Result<(), RegisterError> {
        match self.table.get(name) {
            Some(Availability::Available(_)) => return Err(RegisterError::Taken),
            Some(Availability::Withheld(_)) => {}
            None => {
                let beside = |name: &str| {
                    let found = self.order.iter().position(|other| **other == *name);
                    found.ok_or_else(|| RegisterError::NoSuchNeighbour(name.into()))
                };
                let index = match order {
                    Order::Unordered => None,
                    Order::First => Some(0),
                    Order::Last => Some(self.order.len()),
                    Order::Before(other) => Some(beside(other)?),
                    Order::After(other) => Some(beside(other)? + 1),
                };
                if let Some(index) = index {
                    self.order.insert(index, name.into());
                }
            }
        }
        self.table.insert(name.into(), Availability::Available(syntax));
        Ok(())
    }

    /// Treats a directive as not supported. For a server that lacks the module for the directive's JSON.
    pub fn withhold(&mut self, name: &str) {
        if let Some(availability) = self.table.get_mut(name)
            && let Availability::Available(syntax) = *availability
        {
            *availability = Availability::Withheld(syntax);
        }
    }

    /// A copy in which the withheld directives are available, for callers that only adapt to JSON and do not run it.
    #[must_use]
    pub fn with_withheld(&self) -> Self {
        let mut all = self.clone();
        for availability in all.table.values_mut() {
            if let Availability::Withheld(syntax) = *availability {
                *availability = Availability::Available(syntax);
            }
        }
        all
    }

    /// Whether the name is a directive, implemented or not.
    pub fn knows(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// The names of all directives that a Caddyfile can use, in alphabetical order.
    pub fn available(&self) -> impl Iterator<Item = &str> {
        let available = |availability: &Availability| matches!(availability, Availability::Available(_));
        self.table.iter().filter(move |(_, availability)| available(availability)).map(|(name, _)| &**name)
    }

    pub(crate) fn order(&self) -> &[Box<str>] {
        &self.order
    }

    /// `None`: the name is unknown.
    pub(crate) fn availability(&self, name: &str) -> Option<Availability> {
        self.table.get(name).copied()
    }

    /// The known name that is closest to `name`, if any is close.
    pub(crate) fn near(&self, name: &str) -> Option<Box<str>> {
        hint::near(self.table.keys().map(|known| &**known), name).map(Into::into)
    }
}

impl fmt::Debug for Directives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directives").field("available", &Vec::from_iter(self.available())).finish_non_exhaustive()
    }
}
