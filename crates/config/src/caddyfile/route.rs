//! Routes: their order, their groups, and joining of neighbours.

use serde_json::{Map, Value};

use super::Session;
use super::error::{Error, ErrorKind};
use super::matcher::MatcherSet;
use super::position::Position;
use super::registry::DirectiveOutput;

/// Matchers, and the handlers to run if one of them matches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Route {
    /// Only the first matching route of a group runs.
    pub group: Option<String>,
    /// One of these must match. Empty: every request matches.
    pub matchers: Vec<MatcherSet>,
    /// Handlers in order, each with a `handler` member.
    pub handlers: Vec<Value>,
    /// Whether routes after this one are skipped if it matches.
    pub terminal: bool,
}

impl Route {
    /// A route with one handler.
    pub fn new(matcher: Option<MatcherSet>, handler: Value) -> Self {
        Self { matchers: matcher.into_iter().collect(), handlers: vec![handler], ..Self::default() }
    }

    /// Returns the route in Caddy's JSON, as for the `routes` of a handler.
    pub fn json(&self) -> Value {
        let mut route = Map::new();
        if let Some(group) = &self.group {
            route.insert("group".into(), group.as_str().into());
        }
        if !self.matchers.is_empty() {
            route.insert("match".into(), self.matchers.iter().cloned().map(Value::Object).collect());
        }
        if !self.handlers.is_empty() {
            route.insert("handle".into(), self.handlers.clone().into());
        }
        if self.terminal {
            route.insert("terminal".into(), true.into());
        }
        route.into()
    }

    /// The path to compare by: the only path of the only matcher set.
    fn only_path(&self) -> Option<&str> {
        let [set] = self.matchers.as_slice() else { return None };
        match set.get("path")?.as_array()?.as_slice() {
            [Value::String(path)] if !path.is_empty() => Some(path),
            _ => None,
        }
    }

    /// Whether it sorts before a route of the same directive. Longer paths sort first; of two paths that differ by a
    /// trailing `*`, the one without; without paths to compare, a route with matchers before one without.
    fn precedes(&self, other: &Self) -> bool {
        let (Some(own), Some(theirs)) = (self.only_path(), other.only_path()) else {
            return !self.matchers.is_empty() && other.matchers.is_empty();
        };
        let trimmed = |path: &str| path.strip_suffix('*').map_or(path.len(), str::len);
        let (own_stem, their_stem) = (&own[..trimmed(own)], &theirs[..trimmed(theirs)]);
        if own_stem == their_stem {
            return own.len() < theirs.len();
        }
        if own_stem.len() == their_stem.len() { own_stem < their_stem } else { own_stem.len() > their_stem.len() }
    }
}

/// A directive's output, and the directive as which it is sorted.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) directive: Box<str>,
    pub(crate) at: Position,
    pub(crate) output: DirectiveOutput,
}

/// The order of a block's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteOrder {
    /// By the order of directives. Directives that do not add handlers are errors.
    ByDirective,
    /// As written (in `route`).
    AsWritten,
}

/// Directives of which only the first matching one runs. `rewrite` gets a group even if it is alone: it changes the
/// request, so it must not be joined with a neighbour of equal matchers, which may no longer match.
const EXCLUSIVE: [&str; 3] = ["handle", "rewrite", "root"];

/// Returns a `subroute` handler with these routes, such as those of [`Dispenser::routes`](super::Dispenser::routes).
pub fn subroute_handler(routes: &[Route]) -> Value {
    let mut handler = Map::from_iter([("handler".to_owned(), Value::from("subroute"))]);
    if !routes.is_empty() {
        handler.insert("routes".into(), json(routes));
    }
    handler.into()
}

pub(crate) fn json(routes: &[Route]) -> Value {
    routes.iter().map(Route::json).collect()
}

/// The routes of a block: sorted, grouped, and neighbours with equal matchers joined.
pub(crate) fn subroute(
    mut outputs: Vec<Placed>,
    session: &Session<'_>,
    order: RouteOrder,
) -> Result<Vec<Route>, Error> {
    if order == RouteOrder::ByDirective {
        sort(&mut outputs, &session.order)?;
    }
    // A single directive has no competitor, so it needs no group. Groups are numbered in this order, as in Caddy.
    let groups = EXCLUSIVE.map(|name| {
        let several = outputs.iter().filter(|placed| *placed.directive == *name).nth(1).is_some();
        (several || name == "rewrite").then(|| session.next_group_name())
    });
    let mut routes = Vec::new();
    for placed in outputs {
        match placed.output {
            DirectiveOutput::Route(mut route) => {
                if let Some(index) = EXCLUSIVE.iter().position(|name| *placed.directive == **name) {
                    route.group.clone_from(&groups[index]);
                }
                routes.push(route);
            }
            DirectiveOutput::Routes(together) => routes.extend(together),
            // As in Caddy (`buildSubroute`): the authority is not added to the configuration, and `route` refuses the
            // directive.
            DirectiveOutput::Authority(_) if order == RouteOrder::ByDirective => {}
            DirectiveOutput::ErrorRoutes(_)
            | DirectiveOutput::Bind { .. }
            | DirectiveOutput::Log(_)
            | DirectiveOutput::Tls(_)
            | DirectiveOutput::Authority(_) => {
                let rule = "{} directive returned something other than an HTTP route or subroute \
                            (only handler directives can be used in routes)";
                let kind = ErrorKind::Word { rule, found: placed.directive };
                return Err(Error::new(placed.at, kind));
            }
        }
    }
    Ok(consolidate(routes))
}

fn sort(outputs: &mut [Placed], order: &[Box<str>]) -> Result<(), Error> {
    let position = |placed: &Placed| order.iter().position(|name| *name == placed.directive);
    if let Some(stray) = outputs.iter().find(|placed| position(placed).is_none()) {
        return Err(Error::new(stray.at.clone(), ErrorKind::Unordered(stray.directive.clone())));
    }
    super::sort::sort(outputs, |a, b| {
        if a.directive != b.directive {
            return position(a) < position(b);
        }
        let (DirectiveOutput::Route(a_route), DirectiveOutput::Route(b_route)) = (&a.output, &b.output) else {
            return false;
        };
        // These overwrite each other, so the most specific one must run last.
        let reversed = matches!(&*a.directive, "vars" | "log_level");
        if reversed { b_route.precedes(a_route) } else { a_route.precedes(b_route) }
    });
    Ok(())
}

/// Joins neighbours with equal matchers, group and `terminal`.
pub(crate) fn consolidate(routes: Vec<Route>) -> Vec<Route> {
    let mut joined: Vec<Route> = Vec::with_capacity(routes.len());
    for route in routes {
        match joined.last_mut() {
            Some(last)
                if last.matchers == route.matchers && last.terminal == route.terminal && last.group == route.group =>
            {
                last.handlers.extend(route.handlers);
            }
            _ => joined.push(route),
        }
    }
    joined
}
