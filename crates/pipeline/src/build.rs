//! From `serde_json::Value` to a plan: the registry of modules, and what a module may ask for while it is built.
//!
//! A module registers under its Caddy name; configuration calls it with its JSON; whatever it needs at run time (slots
//! for variables, compiled templates, route lists, per-worker state) it allots here, so that no name is left at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use causeway_progress::Span;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::context::VarId;
use crate::handler::{Handler, Matcher};
use crate::route::{GroupId, Link, Plan, Route, RoutesId, Server, ServerId, StateId};
use crate::template::Template;
use crate::worker::Worker;

/// Makes a handler from its JSON, the `handler` key included.
pub type HandlerMaker = Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync>;
/// Makes a matcher from the JSON under its name in a matcher set.
pub type MatcherMaker = Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync>;

/// Handler and matcher modules by the names that configurations use.
#[derive(Default)]
pub struct Registry {
    handlers: BTreeMap<String, HandlerMaker>,
    matchers: BTreeMap<String, MatcherMaker>,
}

impl Registry {
    /// Adds a handler module; a later one of the same name replaces it. `make` may hold what its handlers talk to.
    pub fn handler(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static,
    ) {
        self.handlers.insert(name.into(), Box::new(make));
    }

    /// Adds a matcher module; a later one of the same name replaces it.
    pub fn matcher(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync + 'static,
    ) {
        self.matchers.insert(name.into(), Box::new(make));
    }

    /// All module IDs, as `list-modules` prints them, sorted.
    pub fn modules(&self) -> Vec<String> {
        let handlers = self.handlers.keys().map(|name| format!("http.handlers.{name}"));
        let matchers = self.matchers.keys().map(|name| format!("http.matchers.{name}"));
        let mut modules: Vec<_> = handlers.chain(matchers).collect();
        modules.sort_unstable();
        modules
    }
}

/// A configuration that cannot be built: the operator's mistake, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// JSON path of the value at fault, as in `apps.http.servers.srv0.routes[2]`.
    pub path: String,
    /// What was found and what was expected.
    pub problem: Problem,
}

/// What is wrong with a value of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// No module of this name is registered.
    UnknownModule {
        /// `handler` or `matcher`.
        kind: &'static str,
        /// The name that was found.
        name: String,
    },
    /// The value's shape is wrong; the deserialiser's words.
    Shape(String),
    /// A value that its module refuses.
    Value {
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.problem {
            Problem::UnknownModule { kind, name } => write!(f, "no {kind} module '{name}' is built into this version"),
            Problem::Shape(words) => f.write_str(words),
            Problem::Value { found, expected } => write!(f, "found '{found}', expected {expected}"),
        }
    }
}

impl std::error::Error for BuildError {}

/// What one server's part of the configuration says.
pub struct ServerSpec<'v> {
    /// Its name in the configuration.
    pub name: &'v str,
    /// Its `routes`.
    pub routes: &'v Value,
    /// Its `errors.routes`.
    pub errors: Option<&'v Value>,
    /// Whether its requests leave access records.
    pub access_log: bool,
}

/// A plan under construction.
pub struct Build<'r> {
    registry: &'r Registry,
    plan: Plan,
    path: Vec<String>,
}

impl<'r> Build<'r> {
    /// An empty plan, with the modules that it may name.
    pub fn new(registry: &'r Registry) -> Self {
        Self { registry, plan: Plan::default(), path: Vec::new() }
    }

    /// The plan, frozen.
    pub fn finish(self) -> Plan {
        self.plan
    }

    /// Works on the value at `key` below the present place, so that errors name it.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn at<T>(
        &mut self,
        key: impl Into<String>,
        work: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        self.path.push(key.into());
        let result = work(self);
        self.path.pop();
        result
    }

    /// An error at the present place.
    pub fn error(&self, problem: Problem) -> BuildError {
        let mut path = String::new();
        for key in &self.path {
            if !path.is_empty() && !key.starts_with('[') {
                path.push('.');
            }
            path.push_str(key);
        }
        BuildError { path, problem }
    }

    /// An error at the present place, for a value that its module refuses.
    pub fn refuse(&self, found: impl Into<String>, expected: &'static str) -> BuildError {
        self.error(Problem::Value { found: found.into(), expected })
    }

    /// Reads a module's JSON into its type; an unknown field is an error if the type says `deny_unknown_fields`. The
    /// `handler` key, which names the module, is not the type's.
    ///
    /// # Errors
    /// [`Problem::Shape`].
    pub fn parse<T: DeserializeOwned>(&self, value: &Value) -> Result<T, BuildError> {
        let mut value = value.clone();
        if let Value::Object(fields) = &mut value {
            fields.remove("handler");
        }
        serde_json::from_value(value).map_err(|error| self.error(Problem::Shape(error.to_string())))
    }

    /// Compiles a string with placeholders.
    pub fn template(&mut self, source: &str) -> Template {
        Template::compile(source, self)
    }

    /// The slot of a variable, the same for every mention of its name.
    pub fn variable(&mut self, name: &str) -> VarId {
        VarId(index_of(&mut self.plan.variables, name))
    }

    /// Allots a state that each worker makes for itself when the plan reaches it.
    pub fn state<T: 'static>(&mut self, make: impl Fn(&Rc<dyn Worker>) -> T + Send + Sync + 'static) -> StateId<T> {
        self.plan.states.push(Box::new(move |worker| Box::new(make(worker))));
        StateId::new(self.plan.states.len() - 1)
    }

    /// Builds a server: the entrance to its routes.
    ///
    /// # Errors
    /// The first mistake in its routes.
    pub fn server(&mut self, spec: &ServerSpec<'_>) -> Result<ServerId, BuildError> {
        let routes = self.at("routes", |build| build.routes(spec.routes))?;
        let errors = match spec.errors {
            Some(routes) => Some(self.at("errors.routes", |build| build.routes(routes))?),
            None => None,
        };
        let id = ServerId(u16::try_from(self.plan.servers.len()).map_err(|_| self.refuse("65536 servers", "fewer"))?);
        let name = spec.name.to_owned();
        self.plan.servers.push(Server { name, routes, errors, access_log: spec.access_log });
        Ok(id)
    }

    /// Builds a route list from its JSON array; for servers, and for handlers with routes of their own.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn routes(&mut self, value: &Value) -> Result<RoutesId, BuildError> {
        let Value::Array(routes) = value else { return Err(self.refuse(kind_of(value), "a list of routes")) };
        // A nested list is built while its parent is: the parent's place is taken first, filled last.
        let id = self.plan.lists.len();
        self.plan.lists.push(Vec::new());
        let mut list = Vec::with_capacity(routes.len());
        for (index, route) in routes.iter().enumerate() {
            list.push(self.at(format!("[{index}]"), |build| build.route(route))?);
        }
        self.plan.lists[id] = list;
        Ok(RoutesId(u32::try_from(id).map_err(|_| self.refuse("2^32 route lists", "fewer"))?))
    }

    fn route(&mut self, value: &Value) -> Result<Route, BuildError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            #[serde(default)]
            group: String,
            #[serde(default, rename = "match")]
            matchers: Vec<Map<String, Value>>,
            #[serde(default)]
            handle: Vec<Value>,
            #[serde(default)]
            terminal: bool,
        }
        let written: Written = self.parse(value)?;
        let mut matchers = Vec::new();
        for (index, set) in written.matchers.iter().enumerate() {
            matchers.push(self.at(format!("match[{index}]"), |build| build.matcher_set(set))?);
        }
        // Handlers with routes of their own add links while they are built: this route's come together behind them.
        let mut links = Vec::new();
        for (index, handler) in written.handle.iter().enumerate() {
            let handler = self.at(format!("handle[{index}]"), |build| build.handler(handler))?;
            links.push(Link { handler, span: Span::allot() });
        }
        let start = self.plan.links.len() as u32;
        self.plan.links.append(&mut links);
        let group = (!written.group.is_empty()).then(|| GroupId(index_of(&mut self.plan.groups, &written.group)));
        Ok(Route { matchers, handlers: start..self.plan.links.len() as u32, group, terminal: written.terminal })
    }

    /// Builds a matcher set, all of which must match: for routes, and for matchers that hold sets (`not`).
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn matcher_set(&mut self, set: &Map<String, Value>) -> Result<Vec<Box<dyn Matcher>>, BuildError> {
        let mut matchers = Vec::with_capacity(set.len());
        for (name, value) in set {
            matchers.push(self.at(name, |build| match build.registry.matchers.get(name) {
                Some(make) => make(value, build),
                None => Err(build.error(Problem::UnknownModule { kind: "matcher", name: name.clone() })),
            })?);
        }
        Ok(matchers)
    }

    fn handler(&mut self, value: &Value) -> Result<Box<dyn Handler>, BuildError> {
        let Some(name) = value.get("handler").and_then(Value::as_str) else {
            return Err(self.refuse(kind_of(value), "an object with a 'handler' key that names a module"));
        };
        match self.registry.handlers.get(name) {
            Some(make) => make(value, self),
            None => Err(self.error(Problem::UnknownModule { kind: "handler", name: name.to_owned() })),
        }
    }
}

/// The index of a name in a table, added when it is new.
fn index_of(table: &mut Vec<String>, name: &str) -> u16 {
    let index = table.iter().position(|known| known == name).unwrap_or_else(|| {
        table.push(name.to_owned());
        table.len() - 1
    });
    u16::try_from(index).expect("a plan names fewer than 65536 variables or groups")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
