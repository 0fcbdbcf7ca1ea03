//! From `serde_json::Value` to a plan: the registry of modules, and what a module may ask for while it is built.
//!
//! A module registers under its Caddy name; configuration calls it with its JSON; whatever it needs at run time (slots
//! for variables, compiled templates, route lists, per-worker state) it allots here, so that no name is left at run time.

mod duration;
mod names;
mod shape;

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::rc::Rc;

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use crate::context::{ComputedId, Context, MatcherId, VarId};
use crate::handler::{Handler, Matcher};
use crate::route::{FamilyId, GroupId, Index, Link, List, Plan, Route, RoutesId, Server, ServerId, StateId};
use crate::template::{Template, Unknown, VARIABLES};
use crate::trust::{Confusable, Trust};
use crate::worker::Worker;

use names::RouteNames;

pub use duration::nanoseconds;
pub use shape::Shape;

/// Makes a handler from its JSON, the `handler` key included.
pub type HandlerMaker = Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync>;
/// Makes a matcher from the JSON under its name in a matcher set.
pub type MatcherMaker = Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync>;

/// The value of a name; `None` for one that is not set.
type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a name in a configuration stands for: handler and matcher modules, and the environment.
pub struct Registry {
    handlers: BTreeMap<String, HandlerMaker>,
    matchers: BTreeMap<String, MatcherMaker>,
    environment: Environment,
}

impl Default for Registry {
    /// No modules; the environment is that of the process.
    fn default() -> Self {
        Self {
            handlers: BTreeMap::new(),
            matchers: BTreeMap::new(),
            environment: Box::new(|name| std::env::var(name).ok()),
        }
    }
}

impl Registry {
    /// Takes what `{env.NAME}` stands for from `look_up`, at load.
    pub fn environment(&mut self, look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        self.environment = Box::new(look_up);
    }

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
        expected: Cow<'static, str>,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.problem {
            Problem::UnknownModule { kind, name } => write!(f, "no {kind} module '{name}' is built into this version"),
            Problem::Shape(words) => f.write_str(words),
            Problem::Value { found, expected } => {
                f.write_str("found '")?;
                // On one line: an expression may have several.
                for char in found.chars() {
                    if char.is_control() { write!(f, "{}", char.escape_default())? } else { f.write_char(char)? }
                }
                write!(f, "', expected {expected}")
            }
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
    /// Its `named_routes`: an object of routes, for handlers that invoke one.
    pub named_routes: Option<&'v Map<String, Value>>,
    /// Whether its requests leave access records.
    pub access_log: bool,
    /// Whether the program is there for its answers: a profile counts them as progress. Where it is not, its routes are called after it;
    /// who asks it is load all the same.
    pub is_progress: bool,
    /// Which proxies may say who the client is.
    pub trust: Option<Trust>,
    /// Which fields are dropped as confusable.
    pub confusable: Confusable,
    /// Whether a request over TLS must be for the host that its connection was opened for (RFC 6066 §3); others get 421. A server
    /// that asks some of its hosts' clients for a certificate needs it: with the name of another host one gets past that.
    pub strict_sni_host: bool,
}

impl<'v> ServerSpec<'v> {
    /// A server with these routes, and nothing else set.
    pub fn new(name: &'v str, routes: &'v Value) -> Self {
        Self {
            name,
            routes,
            errors: None,
            named_routes: None,
            access_log: false,
            is_progress: true,
            trust: None,
            confusable: Confusable::default(),
            strict_sni_host: false,
        }
    }
}

/// A plan under construction.
pub struct Build<'r> {
    registry: &'r Registry,
    plan: Plan,
    path: Vec<String>,
    variables: HashMap<String, VarId>,
    groups: HashMap<String, GroupId>,
    matchers: u32,
    /// Prefixes of placeholders' names.
    families: Vec<String>,
    /// The named routes of the server under construction.
    named: HashMap<String, RoutesId>,
    names: RouteNames,
    /// What was compiled since this was last asked names the request's body.
    reads_body: bool,
}

impl<'r> Build<'r> {
    /// An empty plan, with the modules that it may name.
    pub fn new(registry: &'r Registry) -> Self {
        Self {
            registry,
            plan: Plan::default(),
            path: Vec::new(),
            variables: HashMap::new(),
            groups: HashMap::new(),
            matchers: 0,
            families: Vec::new(),
            named: HashMap::new(),
            names: RouteNames::default(),
            reads_body: false,
        }
    }

    /// The plan, frozen.
    pub fn finish(mut self) -> Plan {
        for prefix in &self.families {
            let member = |(name, id): (&String, &VarId)| Some((Box::from(name.strip_prefix(prefix.as_str())?), *id));
            let mut members: Vec<_> = self.variables.iter().filter_map(member).collect();
            members.sort_unstable_by_key(|(_, id)| id.0);
            self.plan.families.push(members);
        }
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
    pub fn refuse(&self, found: impl Into<String>, expected: impl Into<Cow<'static, str>>) -> BuildError {
        self.error(Problem::Value { found: found.into(), expected: expected.into() })
    }

    /// Reads a module's JSON into its type; an unknown field is an error if the type says `deny_unknown_fields`. The
    /// `handler` key, which names the module, is not the type's.
    ///
    /// # Errors
    /// [`Problem::Shape`].
    pub fn parse<T: DeserializeOwned>(&self, value: &Value) -> Result<T, BuildError> {
        let read = match value {
            // Not copied: what is nested in a handler is as long as the rest of the configuration.
            Value::Object(fields) if fields.contains_key("handler") => {
                let own = fields.iter().filter(|(key, _)| *key != "handler");
                T::deserialize(MapDeserializer::new(own.map(|(key, value)| (key.as_str(), Shape(value)))))
            }
            _ => T::deserialize(Shape(value)),
        };
        read.map_err(|error: serde_json::Error| self.error(Problem::Shape(error.to_string())))
    }

    /// Compiles a string with placeholders; a placeholder that stands for nothing becomes no text.
    pub fn template(&mut self, source: &str) -> Template {
        Template::compile(source, Unknown::Empty, self)
    }

    /// Compiles a string with placeholders; a placeholder that is not known when it is rendered stays as it is written.
    pub fn template_of_known(&mut self, source: &str) -> Template {
        Template::compile(source, Unknown::Written, self)
    }

    /// The slot of a variable that `vars` sets and `{http.vars.NAME}` reads, the same for every mention of its name.
    pub fn variable(&mut self, name: &str) -> VarId {
        self.slot(&format!("{VARIABLES}{name}"))
    }

    /// The slot of a placeholder that a module sets while the request runs, by its whole name, as in
    /// `http.regexp.name.1`. While it is not set the placeholder is unknown.
    pub fn slot(&mut self, placeholder: &str) -> VarId {
        if let Some(id) = self.variables.get(placeholder) {
            return *id;
        }
        let id = VarId(u32::try_from(self.variables.len()).expect("as many names do not fit into memory"));
        self.variables.insert(placeholder.to_owned(), id);
        id
    }

    /// The slots of all placeholders that begin so and that the plan names, for a module that sets whichever are wanted
    /// ([`Plan::family`]).
    pub fn family(&mut self, prefix: &str) -> FamilyId {
        let known = self.families.iter().position(|family| family == prefix);
        let index = known.unwrap_or_else(|| {
            self.families.push(prefix.to_owned());
            self.families.len() - 1
        });
        FamilyId(u32::try_from(index).expect("fewer families than modules"))
    }

    /// Keeps how a text is worked out when a placeholder asks for it: `compute` appends it, or says that it is not known.
    pub fn computed(
        &mut self,
        compute: impl Fn(&mut Context, &mut Vec<u8>) -> bool + Send + Sync + 'static,
    ) -> ComputedId {
        self.plan.computed.push(Box::new(compute));
        ComputedId(u32::try_from(self.plan.computed.len() - 1).expect("as many do not fit into memory"))
    }

    /// The number of a matcher that may wait; see [`crate::Context::wait_to_match`].
    pub fn matcher_id(&mut self) -> MatcherId {
        self.matchers += 1;
        MatcherId(self.matchers)
    }

    /// The routes of this name in the server's `named_routes`, to be called with [`crate::Step::Call`].
    pub fn named_route(&self, name: &str) -> Option<RoutesId> {
        self.named.get(name).copied()
    }

    /// A value of the environment that the configuration may name.
    pub fn environment(&self, name: &str) -> Option<String> {
        (self.registry.environment)(name)
    }

    /// What is compiled now needs the request's body as a text.
    pub(crate) fn needs_body(&mut self) {
        self.reads_body = true;
    }

    /// Allots a state that each worker makes for itself when the plan reaches it.
    pub fn state<T: 'static>(&mut self, make: impl Fn(&Rc<dyn Worker>) -> T + Send + Sync + 'static) -> StateId<T> {
        self.plan.states.push(Box::new(move |worker| Rc::new(make(worker))));
        StateId::new(self.plan.states.len() - 1)
    }

    /// A state that outlives its plan: a plan that takes over, and asks for the same type under the same key, finds it as it
    /// was left. Whoever asks for it within one plan shares it too. So the key names everything that the state depends on.
    pub fn kept_state<T: 'static>(
        &mut self,
        key: String,
        make: impl Fn(&Rc<dyn Worker>) -> T + Send + Sync + 'static,
    ) -> StateId<T> {
        let key = (TypeId::of::<T>(), key);
        if let Some(index) = self.plan.kept_states.get(&key) {
            return StateId::new(*index);
        }
        let id = self.state(make);
        self.plan.kept_states.insert(key, self.plan.states.len() - 1);
        id
    }

    /// Builds a server: the entrance to its routes.
    ///
    /// # Errors
    /// The first mistake in its routes.
    pub fn server(&mut self, spec: &ServerSpec<'_>) -> Result<ServerId, BuildError> {
        // The first site needs no name: mostly there is no other.
        let is_first = spec.is_progress && !self.plan.servers.iter().any(|server| server.is_progress);
        let name = if is_first { "" } else { spec.name };
        self.within(name, |build| build.server_routes(spec))
    }

    fn server_routes(&mut self, spec: &ServerSpec<'_>) -> Result<ServerId, BuildError> {
        self.named.clear();
        // All are there before the first is built: one may invoke another.
        for name in spec.named_routes.into_iter().flatten().map(|(name, _)| name) {
            let id = self.open_list()?;
            self.named.insert(name.clone(), id);
        }
        for (name, route) in spec.named_routes.into_iter().flatten() {
            let at = format!("named_routes.{name}");
            let route = self.at(at, |build| build.within(format!("&{name}"), |build| build.route(route)))?;
            let id = self.named[name];
            self.fill_list(id, vec![route]);
        }
        let routes = self.at("routes", |build| build.routes(spec.routes))?;
        let errors = match spec.errors {
            Some(routes) => {
                Some(self.at("errors.routes", |build| build.within("errors", |build| build.routes(routes)))?)
            }
            None => None,
        };
        let id = ServerId(u16::try_from(self.plan.servers.len()).map_err(|_| self.refuse("65536 servers", "fewer"))?);
        self.plan.servers.push(Server {
            name: spec.name.to_owned(),
            routes,
            errors,
            access_log: spec.access_log,
            is_progress: spec.is_progress,
            trust: spec.trust.clone(),
            confusable: spec.confusable.clone(),
            strict_sni_host: spec.strict_sni_host,
        });
        Ok(id)
    }

    /// A list's place: what is built while it is open comes behind it.
    fn open_list(&mut self) -> Result<RoutesId, BuildError> {
        self.plan.lists.push(List::default());
        let id = u32::try_from(self.plan.lists.len() - 1).map_err(|_| self.refuse("2^32 route lists", "fewer"))?;
        Ok(RoutesId(id))
    }

    fn fill_list(&mut self, id: RoutesId, routes: Vec<Route>) {
        self.plan.lists[id.0 as usize] = List { index: Index::of(&routes), routes };
    }

    /// Builds a route list from its JSON array; for servers, and for handlers with routes of their own.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn routes(&mut self, value: &Value) -> Result<RoutesId, BuildError> {
        let Value::Array(routes) = value else { return Err(self.refuse(kind_of(value), "a list of routes")) };
        let id = self.open_list()?;
        let mut list = Vec::with_capacity(routes.len());
        for (index, route) in routes.iter().enumerate() {
            list.push(self.at(format!("[{index}]"), |build| build.route(route))?);
        }
        self.fill_list(id, list);
        Ok(id)
    }

    fn route(&mut self, value: &Value) -> Result<Route, BuildError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            #[serde(default)]
            group: String,
            /// Checked here; taken from the value itself, uncopied.
            #[serde(default, rename = "match")]
            _matchers: Vec<BTreeMap<String, IgnoredAny>>,
            #[serde(default, rename = "handle")]
            _handle: Vec<IgnoredAny>,
            #[serde(default)]
            terminal: bool,
        }
        let written: Written = self.parse(value)?;
        let listed = |key| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut matchers = Vec::new();
        for (index, set) in listed("match").iter().filter_map(Value::as_object).enumerate() {
            matchers.push(self.at(format!("match[{index}]"), |build| build.matcher_set(set))?);
        }
        let reads_body = std::mem::take(&mut self.reads_body);
        let matched = names::matched(listed("match"));
        let mut links = self.within(matched, |build| build.links(listed("handle")))?;
        let start = self.plan.links.len() as u32;
        self.plan.links.append(&mut links);
        let handlers = start..self.plan.links.len() as u32;
        let group = (!written.group.is_empty()).then(|| self.group(&written.group));
        Ok(Route { matchers, handlers, group, terminal: written.terminal, reads_body })
    }

    /// A route's handlers. Those with routes of their own add links while they are built: this route's come together behind them.
    fn links(&mut self, handlers: &[Value]) -> Result<Vec<Link>, BuildError> {
        let mut links = Vec::new();
        for (index, value) in handlers.iter().enumerate() {
            let handler = self.at(format!("handle[{index}]"), |build| build.handler(value))?;
            let reads_body = std::mem::take(&mut self.reads_body);
            let marks = self.names.marks(value.get("handler").and_then(Value::as_str).unwrap_or("handler"));
            links.push(Link { handler, marks, reads_body });
        }
        Ok(links)
    }

    /// Builds routes that are called so, and by what they match themselves.
    fn within<T>(
        &mut self,
        name: impl Into<String>,
        work: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        self.names.enter(name.into());
        let result = work(self);
        self.names.leave();
        result
    }

    fn group(&mut self, name: &str) -> GroupId {
        if let Some(id) = self.groups.get(name) {
            return *id;
        }
        let id = GroupId(self.plan.groups_len);
        self.plan.groups_len += 1;
        self.groups.insert(name.to_owned(), id);
        id
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
