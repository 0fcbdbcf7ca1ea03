//! Compiles `serde_json::Value` to a plan: the registry of modules, and the allotment of run-time resources.
//!
//! A module is registered under its Caddy name, and the build calls it with its JSON. While it is built, the module
//! allots everything that it needs at run time: slots for variables, compiled templates, route lists, per-worker
//! state. So requests look up no names.

mod duration;
mod error;
mod metered;
mod names;
mod shape;
pub mod trust_pool;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use ipnet::IpNet;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use crate::context::{ComputedId, Context, LocalId, MatcherId, ValueKind, VarId};
use crate::handler::{Handler, Matcher};
use crate::listen::ServerNameMatcher;
use crate::metrics::Metrics;
use crate::route::{
    FamilyId, GroupId, HandlerEntry, Index, List, Plan, Route, RoutesId, ServerId, ServerPlan, StateId, Traced,
};
use crate::template::{Template, Unknown, VARIABLES};
use crate::trust::{Confusable, FetchedRanges, FetchedTable, Trust};
use crate::worker::Worker;

use names::RouteNames;
use trust_pool::TrustReader;

pub use duration::{DurationConfig, go_duration, nanoseconds};
pub use error::{BuildError, Problem};
use shape::ModuleShape;
pub use shape::{Shape, mistyped};

/// Creates a handler from its JSON object, including the `handler` key. It must read the object with
/// [`Build::parse_module`], which refuses unknown keys, with their position.
pub type HandlerMaker = Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync>;
/// Creates a matcher from the JSON value under its name in a matcher set.
pub type MatcherMaker = Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync>;
/// Creates a condition on server names from the JSON value under its name in the `match` of a TLS connection policy.
pub type ServerNameMatcherMaker =
    Box<dyn Fn(&Value, &mut Build<'_>) -> Result<Arc<dyn ServerNameMatcher>, BuildError> + Send + Sync>;

/// The variables of the environment.
#[derive(Clone)]
pub struct Environment(Arc<LookUpVariable>);

/// Returns the value of an environment variable; `None` if it is not set.
type LookUpVariable = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Environment {
    /// Returns a variable's value; `None` if it is not set.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

impl Default for Environment {
    /// The environment of the process.
    fn default() -> Self {
        Self(Arc::new(|name| std::env::var(name).ok()))
    }
}

/// The names that a configuration may use: handler modules, matcher modules, and environment variables.
pub struct Registry {
    handlers: BTreeMap<String, HandlerMaker>,
    matchers: BTreeMap<String, MatcherMaker>,
    server_name_matchers: BTreeMap<String, ServerNameMatcherMaker>,
    environment: Environment,
    metrics: Arc<Metrics>,
    fetched: FetchedTable,
    /// The plans are not served.
    is_check_only: bool,
}

impl Default for Registry {
    /// No modules; the environment of the process.
    fn default() -> Self {
        Self {
            handlers: BTreeMap::new(),
            matchers: BTreeMap::new(),
            server_name_matchers: BTreeMap::new(),
            environment: Environment::default(),
            metrics: Arc::default(),
            fetched: FetchedTable::default(),
            is_check_only: false,
        }
    }
}

impl Registry {
    /// Sets the lookup of `{env.NAME}`, which happens at load, and for texts that are written at run time, such as
    /// templates, with each one.
    pub fn set_environment(&mut self, look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        self.environment = Environment(Arc::new(look_up));
    }

    /// Returns the environment.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Lets the plans that are built with this registry only be checked: no file is created for them, so they must not
    /// be served.
    pub fn check_only(&mut self) {
        self.is_check_only = true;
    }

    /// Returns whether [`check_only`](Self::check_only) was called.
    pub fn is_check_only(&self) -> bool {
        self.is_check_only
    }

    /// Returns the metrics of all plans that are built with this registry.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Registers a handler module; replaces an earlier one of the same name. `make` may capture values that its
    /// handlers share with the program.
    pub fn register_handler(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static,
    ) {
        self.handlers.insert(name.into(), Box::new(make));
    }

    /// Registers a matcher module; replaces an earlier one of the same name.
    pub fn register_matcher(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync + 'static,
    ) {
        self.matchers.insert(name.into(), Box::new(make));
    }

    /// Registers a matcher of server names for TLS connection policies; replaces an earlier one of the same name.
    pub fn register_server_name_matcher(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Arc<dyn ServerNameMatcher>, BuildError> + Send + Sync + 'static,
    ) {
        self.server_name_matchers.insert(name.into(), Box::new(make));
    }

    /// Returns all module IDs, sorted, as `list-modules` prints them.
    pub fn modules(&self) -> Vec<String> {
        let handlers = self.handlers.keys().map(|name| format!("http.handlers.{name}"));
        let matchers = self.matchers.keys().map(|name| format!("http.matchers.{name}"));
        let of_handshakes = self.server_name_matchers.keys().map(|name| format!("tls.handshake_match.{name}"));
        let mut modules: Vec<_> = handlers.chain(matchers).chain(of_handshakes).collect();
        modules.sort_unstable();
        modules
    }
}

/// The configuration of one server.
pub struct ServerSpec<'v> {
    /// Its name in the configuration.
    pub name: &'v str,
    /// Its `routes`.
    pub routes: &'v Value,
    /// Its `errors.routes`.
    pub errors: Option<&'v Value>,
    /// Its `named_routes`: an object of routes, for handlers that invoke one by name.
    pub named_routes: Option<&'v Map<String, Value>>,
    /// Whether the profiler counts its responses as progress. If not, as for the administration server, its routes'
    /// names start with the server's name. Its requests count as load in both cases.
    pub is_progress: bool,
    /// The proxies that may report the client's address.
    pub trust: Option<Trust>,
    /// The field names that are dropped as confusable.
    pub confusable: Confusable,
    /// Whether the host of a request over TLS must equal the connection's server name (RFC 6066 §3); other requests
    /// get 421. A server that requires client certificates for only some of its hosts needs this: without it, a
    /// connection opened for another host bypasses the requirement.
    pub strict_sni_host: bool,
    /// Whether each handler that a request enters is a line of the log, at level `debug`.
    pub is_traced: bool,
    /// Whether `OPTIONS *`, which is about the server and no route (RFC 9110 §9.3.7), gets an empty 200, as from Go's
    /// server.
    pub answers_asterisk: bool,
    /// The handler whose [`Handler::end`] is called for each exchange with a [failure](Context::failure).
    pub error_log: Option<Value>,
}

impl<'v> ServerSpec<'v> {
    /// Creates a server with these routes; all other values are defaults.
    pub fn new(name: &'v str, routes: &'v Value) -> Self {
        Self {
            name,
            routes,
            errors: None,
            named_routes: None,
            is_progress: true,
            trust: None,
            confusable: Confusable::default(),
            strict_sni_host: false,
            is_traced: false,
            answers_asterisk: false,
            error_log: None,
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
    locals: u32,
    /// Settings of whole apps that modules read, by the app's name.
    apps: Map<String, Value>,
    /// Prefixes of placeholder families.
    families: Vec<String>,
    /// The named routes of the server under construction.
    named: HashMap<String, RoutesId>,
    names: RouteNames,
    /// The server under construction has the option `trace`.
    is_traced: bool,
    /// A template compiled since this was last cleared contains the request body.
    reads_body: bool,
    /// Modules whose routes are not counted.
    uncounted: &'static [&'static str],
    /// `None`: sources of trusted certificates outside the configuration are refused.
    trust_reader: Option<TrustReader<'r>>,
    /// Files and directories of the server itself.
    own_files: Vec<PathBuf>,
    /// Warnings about accepted settings, each once.
    warnings: Vec<String>,
    /// Values that modules share, by their type.
    shared: HashMap<TypeId, Box<dyn Any>>,
}

impl<'r> Build<'r> {
    /// Creates an empty plan, for configurations that use the modules of `registry`.
    pub fn new(registry: &'r Registry) -> Self {
        Self {
            registry,
            plan: Plan::default(),
            path: Vec::new(),
            variables: HashMap::new(),
            groups: HashMap::new(),
            matchers: 0,
            locals: 0,
            apps: Map::new(),
            families: Vec::new(),
            named: HashMap::new(),
            names: RouteNames::default(),
            is_traced: false,
            reads_body: false,
            uncounted: &[],
            trust_reader: None,
            own_files: Vec::new(),
            warnings: Vec::new(),
            shared: HashMap::new(),
        }
    }

    /// Adds a warning about a setting that is accepted. One with the same text is added once.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds the warning that a member of the current value has no effect, and why.
    pub fn warn_unused(&mut self, key: &str, reason: &str) {
        let at = self.location();
        self.warn(format!("{at}.{key}: has no effect: {reason}"));
    }

    /// Removes and returns the warnings so far.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Freezes the plan.
    pub fn finish(mut self) -> Plan {
        for prefix in &self.families {
            let member = |(name, id): (&String, &VarId)| Some((Box::from(name.strip_prefix(prefix.as_str())?), *id));
            let mut members: Vec<_> = self.variables.iter().filter_map(member).collect();
            // `variables` is a hash map: sort for a stable order.
            members.sort_unstable_by_key(|(_, id)| id.0);
            self.plan.families.push(members);
        }
        self.plan.environment = self.registry.environment.clone();
        self.plan
    }

    /// Calls `work` for the value at `key` below the current location, so that errors contain the location.
    ///
    /// # Errors
    /// The errors of `work`.
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

    /// Creates an error at the current location.
    pub fn error(&self, problem: Problem) -> BuildError {
        BuildError { path: self.location(), problem }
    }

    /// Returns the JSON path of the current location.
    pub fn location(&self) -> String {
        let mut path = String::new();
        for key in &self.path {
            if !path.is_empty() && !key.starts_with('[') {
                path.push('.');
            }
            path.push_str(key);
        }
        path
    }

    /// Creates an error at the current location for a value that a module rejects.
    pub fn refuse(&self, found: impl Into<String>, expected: impl Into<Cow<'static, str>>) -> BuildError {
        self.error(Problem::Value { found: found.into(), expected: expected.into() })
    }

    /// Deserialises JSON. An unknown field is an error if the type has `deny_unknown_fields`.
    ///
    /// # Errors
    /// [`Problem::Shape`], with the path of the value that has it.
    pub fn parse<T: DeserializeOwned>(&self, value: &Value) -> Result<T, BuildError> {
        serde_path_to_error::deserialize(Shape(value)).map_err(|error| self.misshapen(error))
    }

    /// As [`parse`](Self::parse), for the JSON of a handler: skips the key `handler`, which names its module.
    ///
    /// # Errors
    /// As of [`parse`](Self::parse).
    pub fn parse_module<T: DeserializeOwned>(&self, value: &Value) -> Result<T, BuildError> {
        // Skipped without a copy: the object may contain nested routes as long as the rest of the configuration.
        let Value::Object(members) = value else { return self.parse(value) };
        let read = serde_path_to_error::deserialize(ModuleShape { members, name: "handler" });
        read.map_err(|error| self.misshapen(error))
    }

    fn misshapen(&self, error: serde_path_to_error::Error<serde_json::Error>) -> BuildError {
        let mut path = self.location();
        let inner = error.path().to_string();
        let problem = Problem::Shape(error.into_inner().to_string());
        if inner != "." {
            path.push_str(if path.is_empty() || inner.starts_with('[') { "" } else { "." });
            path.push_str(&inner);
        }
        BuildError { path, problem }
    }

    /// Compiles a placeholder string; unknown placeholders render as no text.
    pub fn template(&mut self, source: &str) -> Template {
        Template::compile(source, Unknown::Empty, self)
    }

    /// Compiles a placeholder string; unknown placeholders render as their text in the configuration.
    pub fn template_keeping_unknown(&mut self, source: &str) -> Template {
        Template::compile(source, Unknown::Written, self)
    }

    /// Compiles the path of a directory; a placeholder that is unknown or empty renders as `.`, the current directory.
    pub fn template_of_directory(&mut self, source: &str) -> Template {
        Template::compile(source, Unknown::Directory, self)
    }

    /// Replaces the placeholders whose values are known at load (environment, files, system). A text with any other
    /// placeholder is returned unchanged.
    pub fn expand_constants(&mut self, text: &str) -> String {
        if !text.contains('{') {
            return text.to_owned();
        }
        self.template(text).literal().map_or_else(|| text.to_owned(), str::to_owned)
    }

    /// Returns the slot of the variable that `vars` sets and `{http.vars.NAME}` reads. One name has one slot.
    pub fn allocate_variable(&mut self, name: &str) -> VarId {
        self.allocate_slot(&format!("{VARIABLES}{name}"))
    }

    /// Returns the slot of a placeholder that a module sets during the request, by its whole name, for example
    /// `http.regexp.name.1`. The placeholder is unknown until it is set.
    pub fn allocate_slot(&mut self, placeholder: &str) -> VarId {
        if let Some(id) = self.variables.get(placeholder) {
            return *id;
        }
        let id = VarId(u32::try_from(self.variables.len()).expect("as many names do not fit into memory"));
        self.variables.insert(placeholder.to_owned(), id);
        id
    }

    /// Allots a family: the slots of all placeholders of the plan that start with `prefix`. A module with an open set
    /// of placeholders sets only those that the plan uses ([`Plan::family`]).
    pub fn allocate_family(&mut self, prefix: &str) -> FamilyId {
        let known = self.families.iter().position(|family| family == prefix);
        let index = known.unwrap_or_else(|| {
            self.families.push(prefix.to_owned());
            self.families.len() - 1
        });
        FamilyId(u32::try_from(index).expect("fewer families than modules"))
    }

    /// Allots a computed text: `compute` appends it and returns its type, or `None` if it is unknown.
    pub fn allocate_computed(
        &mut self,
        compute: impl Fn(&mut Context, &mut Vec<u8>) -> Option<ValueKind> + Send + Sync + 'static,
    ) -> ComputedId {
        self.plan.computed.push(Box::new(compute));
        ComputedId(u32::try_from(self.plan.computed.len() - 1).expect("as many do not fit into memory"))
    }

    /// Allots the id of a matcher that may wait; see [`crate::Context::wait_to_match`].
    pub fn allocate_matcher_id(&mut self) -> MatcherId {
        self.matchers += 1;
        MatcherId(self.matchers)
    }

    /// Returns the route of this name in the server's `named_routes`, to call with [`crate::Step::Run`].
    pub fn named_route(&self, name: &str) -> Option<RoutesId> {
        self.named.get(name).copied()
    }

    /// Returns the value of an environment variable.
    pub fn environment(&self, name: &str) -> Option<String> {
        self.registry.environment.get(name)
    }

    /// Returns whether the plan is only checked, so that no file may be created for it.
    pub fn is_check_only(&self) -> bool {
        self.registry.is_check_only
    }

    /// Sets an app's settings, for the modules that read them ([`app`](Self::app)).
    pub fn set_app(&mut self, name: &str, settings: Value) {
        self.apps.insert(name.to_owned(), settings);
    }

    /// Returns the settings of an app.
    pub fn app(&self, name: &str) -> Option<&Value> {
        self.apps.get(name)
    }

    /// Sets the function that reads the sources of trusted certificates outside the configuration.
    pub fn set_trust_reader(&mut self, read: TrustReader<'r>) {
        self.trust_reader = Some(read);
    }

    /// Sets the files and directories of the server itself, such as those of private keys, which no file server may
    /// serve.
    pub fn set_own_files(&mut self, paths: Vec<PathBuf>) {
        self.own_files = paths;
    }

    /// Returns the files and directories that no file server may serve, even if they are below its root.
    pub fn own_files(&self) -> &[PathBuf] {
        &self.own_files
    }

    /// Returns the metrics of the server that will run the plan.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.registry.metrics
    }

    /// Returns the networks that the server fetches from these URLs: those of a plan that has them already, or else a
    /// list that equals `first` until the server has fetched one.
    pub fn fetched_ranges(&self, urls: &[String], first: impl FnOnce() -> Vec<IpNet>) -> Arc<FetchedRanges> {
        self.registry.fetched.get(urls, first)
    }

    /// Returns a value that the modules of the plan share while it is built; the type's default at first.
    pub fn shared<T: Default + 'static>(&mut self) -> &mut T {
        let value = self.shared.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        value.downcast_mut().expect("its type is the key")
    }

    /// Records that the current template needs the request body as a text.
    pub(crate) fn record_body_use(&mut self) {
        self.reads_body = true;
    }

    /// Allots a value that a handler keeps from its request pass to its response pass.
    pub fn allocate_local<T: 'static>(&mut self) -> LocalId<T> {
        self.locals += 1;
        LocalId::new(self.locals)
    }

    /// Allots a state that each worker creates when it gets the plan.
    pub fn allocate_state<T: 'static>(
        &mut self,
        make: impl Fn(&Rc<dyn Worker>) -> T + Send + Sync + 'static,
    ) -> StateId<T> {
        self.plan.states.push(Box::new(move |worker| Rc::new(make(worker))));
        StateId::new(self.plan.states.len() - 1)
    }

    /// Allots a state that outlives its plan: the next plan takes it over if it allots a state of the same type and
    /// key. Within one plan, equal type and key share one state. So the key must name everything that the state
    /// depends on.
    pub fn allocate_kept_state<T: 'static>(
        &mut self,
        key: String,
        make: impl Fn(&Rc<dyn Worker>) -> T + Send + Sync + 'static,
    ) -> StateId<T> {
        let key = (TypeId::of::<T>(), key);
        if let Some(index) = self.plan.kept_states.get(&key) {
            return StateId::new(*index);
        }
        let id = self.allocate_state(make);
        self.plan.kept_states.insert(key, self.plan.states.len() - 1);
        id
    }

    /// Builds a server and its routes.
    ///
    /// # Errors
    /// The first mistake in its routes.
    pub fn server(&mut self, spec: &ServerSpec<'_>) -> Result<ServerId, BuildError> {
        // The first site's routes have no prefix: most configurations have only one site.
        let is_first = spec.is_progress && !self.plan.servers.iter().any(|server| server.is_progress);
        let name = if is_first { "" } else { spec.name };
        self.within(name, |build| build.server_routes(spec))
    }

    fn server_routes(&mut self, spec: &ServerSpec<'_>) -> Result<ServerId, BuildError> {
        self.named.clear();
        self.is_traced = spec.is_traced;
        // Open all lists before the first route is built: a named route may invoke another one.
        for name in spec.named_routes.into_iter().flatten().map(|(name, _)| name) {
            let id = self.open_list()?;
            self.named.insert(name.clone(), id);
        }
        for (name, route) in spec.named_routes.into_iter().flatten() {
            let at = format!("named_routes.{name}");
            let mut built = self.at(at, |build| build.within(format!("&{name}"), |build| build.route(route)))?;
            built.series = self.series_of(spec.name, route);
            let id = self.named[name];
            self.fill_list(id, vec![built]);
        }
        let routes = self.at("routes", |build| build.routes(spec.routes))?;
        for (index, route) in spec.routes.as_array().into_iter().flatten().enumerate() {
            self.plan.lists[routes.0 as usize].routes[index].series = self.series_of(spec.name, route);
        }
        let errors = match spec.errors {
            Some(routes) => {
                Some(self.at("errors.routes", |build| build.within("errors", |build| build.routes(routes)))?)
            }
            None => None,
        };
        let error_log = match &spec.error_log {
            Some(value) => Some(self.at("logs", |build| build.handler(value))?),
            None => None,
        };
        let id = ServerId(u16::try_from(self.plan.servers.len()).map_err(|_| self.refuse("65536 servers", "fewer"))?);
        self.plan.servers.push(ServerPlan {
            name: spec.name.to_owned(),
            routes,
            errors,
            sees_rejected: self.plan.first_that_sees_rejected(routes),
            is_progress: spec.is_progress,
            trust: spec.trust.clone(),
            confusable: spec.confusable.clone(),
            strict_sni_host: spec.strict_sni_host,
            answers_asterisk: spec.answers_asterisk,
            error_log,
        });
        Ok(id)
    }

    /// Reserves a list's id. Lists that are built until it is filled get higher ids.
    fn open_list(&mut self) -> Result<RoutesId, BuildError> {
        self.plan.lists.push(List::default());
        let id = u32::try_from(self.plan.lists.len() - 1).map_err(|_| self.refuse("2^32 route lists", "fewer"))?;
        Ok(RoutesId(id))
    }

    fn fill_list(&mut self, id: RoutesId, routes: Vec<Route>) {
        self.plan.lists[id.0 as usize] = List { index: Index::of(&routes), routes };
    }

    /// Builds a route list from its JSON array, or an empty one from `null`: for servers, and for handlers with
    /// nested routes.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn routes(&mut self, value: &Value) -> Result<RoutesId, BuildError> {
        let routes = match value {
            Value::Array(routes) => routes.as_slice(),
            Value::Null => &[],
            _ => return Err(self.refuse(kind_of(value), "a list of routes")),
        };
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
        struct RouteConfig {
            #[serde(default)]
            group: String,
            /// Only the shape is checked here; the build reads the value itself, without a copy.
            #[serde(default, rename = "match")]
            _matchers: Vec<BTreeMap<String, IgnoredAny>>,
            #[serde(default, rename = "handle")]
            _handle: Vec<IgnoredAny>,
            #[serde(default)]
            terminal: bool,
        }
        let written: RouteConfig = self.parse(value)?;
        // The flag of the handler that contains this route, of which other templates were built before.
        let outer = std::mem::take(&mut self.reads_body);
        let listed = |key| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut matchers = Vec::new();
        let none = Map::new();
        for (index, set) in listed("match").iter().map(|set| set.as_object().unwrap_or(&none)).enumerate() {
            matchers.push(self.at(format!("match[{index}]"), |build| build.matcher_set(set))?);
        }
        // The matchers' templates have set the flag; the handlers' are separate.
        let reads_body = std::mem::take(&mut self.reads_body);
        let matched = names::matched(listed("match"));
        let mut entries = self.within(matched, |build| build.entries(listed("handle")))?;
        // After the nested routes' entries, which the build of the handlers has appended.
        let start = self.plan.entries.len() as u32;
        self.plan.entries.append(&mut entries);
        let handlers = start..self.plan.entries.len() as u32;
        let group = (!written.group.is_empty()).then(|| self.group(&written.group));
        self.reads_body = outer;
        Ok(Route { matchers, handlers, group, terminal: written.terminal, series: None, reads_body })
    }

    /// Builds a route's handlers. Handlers with nested routes append entries to the plan, so this route's are collected
    /// first and appended together, which keeps their range contiguous.
    fn entries(&mut self, handlers: &[Value]) -> Result<Vec<HandlerEntry>, BuildError> {
        let mut entries = Vec::new();
        for (index, value) in handlers.iter().enumerate() {
            let handler = self.at(format!("handle[{index}]"), |build| build.handler(value))?;
            let reads_body = std::mem::take(&mut self.reads_body);
            let handler =
                if self.is_traced && !handler.is_internal() { Box::new(Traced::new(handler, value)) } else { handler };
            let spans = self.names.spans(value.get("handler").and_then(Value::as_str).unwrap_or("handler"));
            entries.push(HandlerEntry { handler, spans, reads_body });
        }
        Ok(entries)
    }

    /// Builds routes under a name that prefixes their own names in profiles.
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

    /// Builds a matcher set, all of whose matchers must match: for routes, and for matchers that contain sets
    /// (`not`).
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn matcher_set(&mut self, set: &Map<String, Value>) -> Result<Vec<Box<dyn Matcher>>, BuildError> {
        let mut matchers = Vec::with_capacity(set.len());
        for (name, value) in set {
            matchers.push(self.at(name, |build| match build.registry.matchers.get(name) {
                // In most matchers null would be a condition that every request meets.
                Some(_) if value.is_null() => Err(build.refuse("null", "the value of this matcher")),
                Some(make) => make(value, build),
                None => Err(build.error(Problem::UnknownModule { kind: "matcher", name: name.clone() })),
            })?);
        }
        Ok(matchers)
    }

    /// Compiles the matcher of server names of this name.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn server_name_matcher(&mut self, name: &str, value: &Value) -> Result<Arc<dyn ServerNameMatcher>, BuildError> {
        self.at(name, |build| match build.registry.server_name_matchers.get(name) {
            Some(make) => make(value, build),
            None => Err(build.error(Problem::UnknownModule { kind: "handshake matcher", name: name.to_owned() })),
        })
    }

    /// Returns whether the registry has a handler of this name.
    pub fn has_handler(&self, name: &str) -> bool {
        self.registry.handlers.contains_key(name)
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
