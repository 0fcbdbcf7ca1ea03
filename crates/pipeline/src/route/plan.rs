//! A compiled configuration: tables of route lists, routes and handlers, with ids in place of names; and its states on
//! one worker.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::{HandlerSpans, Index};
use crate::build::Environment;
use crate::context::{ComputedId, Context, ValueKind, VarId};
use crate::handler::{Handler, Matcher};
use crate::metrics::{MeteredPlan, RouteSeries};
use crate::trust::{Confusable, Trust};
use crate::worker::Worker;

/// The id of a route list of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutesId(pub(crate) u32);

/// The id of a server of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerId(pub(crate) u16);

impl ServerId {
    /// The first server.
    pub const FIRST: Self = Self(0);
}

/// The id of a handler of a plan.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandlerId(pub(super) u32);

/// The handler that unpacked the carried request from the peer's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carrier(pub(super) HandlerId);

/// The id of a family of placeholders: those of a plan whose names start with the same prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyId(pub(crate) u32);

/// The id of a route group; at most one route of a group runs in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupId(pub(crate) u32);

/// Matchers that must all match.
pub(crate) type MatcherSet = Vec<Box<dyn Matcher>>;

pub(crate) struct Route {
    /// Alternatives: one set that matches is enough. Without sets, the route matches every request.
    pub(crate) matchers: Vec<MatcherSet>,
    pub(crate) handlers: Range<u32>,
    pub(crate) group: Option<GroupId>,
    pub(crate) terminal: bool,
    /// The counters of its requests; `None` if they are not counted.
    pub(crate) series: Option<RouteSeries>,
    /// A matcher contains `{http.request.body}`.
    pub(crate) reads_body: bool,
}

/// A route list.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) routes: Vec<Route>,
    /// The index of a long list.
    pub(crate) index: Option<Index>,
}

pub(crate) struct HandlerEntry {
    pub(crate) handler: Box<dyn Handler>,
    pub(crate) spans: HandlerSpans,
    /// The handler's configuration contains `{http.request.body}`.
    pub(crate) reads_body: bool,
}

/// A server: the entry point of its requests to the plan.
pub(crate) struct ServerPlan {
    pub(crate) name: String,
    pub(crate) routes: RoutesId,
    pub(crate) errors: Option<RoutesId>,
    /// The first handler, if it [sees requests](Handler::sees_rejected) that no route gets.
    pub(crate) sees_rejected: Option<HandlerId>,
    pub(crate) is_progress: bool,
    pub(crate) trust: Option<Trust>,
    pub(crate) confusable: Confusable,
    pub(crate) strict_sni_host: bool,
    /// `OPTIONS *` gets an empty 200 before all routes.
    pub(crate) answers_asterisk: bool,
    /// Its [`Handler::end`] is called for exchanges with a [failure](Context::failure).
    pub(crate) error_log: Option<Box<dyn Handler>>,
}

/// Appends a computed text and returns its type; `None` if the text is unknown.
type Computed = Box<dyn Fn(&mut Context, &mut Vec<u8>) -> Option<ValueKind> + Send + Sync>;
type StateMaker = Box<dyn Fn(&Rc<dyn Worker>) -> Rc<dyn Any> + Send + Sync>;

/// A compiled configuration: frozen, shared by all workers, with ids in place of names.
#[derive(Default)]
pub struct Plan {
    pub(crate) servers: Vec<ServerPlan>,
    pub(crate) lists: Vec<List>,
    pub(crate) entries: Vec<HandlerEntry>,
    pub(crate) groups_len: u32,
    pub(crate) states: Vec<StateMaker>,
    /// The kept states ([`Build::allocate_kept_state`](crate::Build::allocate_kept_state)) by type and key, as indices
    /// into `states`. The next plan can take them over.
    pub(crate) kept_states: BTreeMap<(TypeId, String), usize>,
    pub(crate) computed: Vec<Computed>,
    pub(crate) families: Vec<Vec<(Box<str>, VarId)>>,
    /// For placeholders whose names are known only at run time.
    pub(crate) environment: Environment,
    /// `None`: no request is counted.
    pub(crate) metered: Option<MeteredPlan>,
    /// Set when a worker gets the next plan.
    pub(crate) replaced_at: OnceLock<Instant>,
}

impl Plan {
    /// Records that the next plan is in use. Only the first call counts, so all workers agree on the time.
    pub fn set_replaced(&self, now: Instant) {
        self.replaced_at.get_or_init(|| now);
    }

    /// Returns the environment, for texts that are written at run time.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns when the next plan came into use; `None` while this one gets new requests.
    pub fn replaced_at(&self) -> Option<Instant> {
        self.replaced_at.get().copied()
    }

    /// Returns the first handler of a list, if every request reaches it and it sees rejected ones too.
    pub(crate) fn first_that_sees_rejected(&self, list: RoutesId) -> Option<HandlerId> {
        let first = self.lists[list.0 as usize].routes.first().filter(|route| route.matchers.is_empty())?;
        let id = HandlerId(first.handlers.clone().next()?);
        self.entry(id).handler.sees_rejected().then_some(id)
    }

    /// Appends a computed text and returns its type; `None` if the text is unknown.
    pub(crate) fn compute(&self, id: ComputedId, cx: &mut Context, out: &mut Vec<u8>) -> Option<ValueKind> {
        self.computed[id.0 as usize](cx, out)
    }

    /// Returns the members of a family that the plan uses: the rest of each name after the family's prefix, and its
    /// slot.
    pub fn family(&self, id: FamilyId) -> &[(Box<str>, VarId)] {
        &self.families[id.0 as usize]
    }

    /// Returns a server's name in the configuration.
    pub fn server_name(&self, server: ServerId) -> &str {
        &self.servers[usize::from(server.0)].name
    }

    pub(crate) fn server(&self, server: ServerId) -> Option<&ServerPlan> {
        self.servers.get(usize::from(server.0))
    }

    pub(crate) fn trust(&self, server: ServerId) -> Option<&Trust> {
        self.server(server)?.trust.as_ref()
    }

    /// Returns whether the profiler counts the responses of this server as progress; true if the plan has no such
    /// server.
    pub fn is_progress(&self, server: ServerId) -> bool {
        self.server(server).is_none_or(|server| server.is_progress)
    }

    pub(super) fn entry(&self, id: HandlerId) -> &HandlerEntry {
        &self.entries[id.0 as usize]
    }
}

/// The id of a per-worker state of type `T`, allotted at build.
pub struct StateId<T> {
    index: u32,
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T> Clone for StateId<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for StateId<T> {}

impl<T> StateId<T> {
    pub(crate) fn new(index: usize) -> Self {
        Self { index: u32::try_from(index).expect("fewer states than handlers"), kind: std::marker::PhantomData }
    }
}

/// A plan on one worker, with that worker's states. Every exchange holds the generation that it started under, so a
/// replaced generation is freed when the last of its exchanges ends.
pub struct Generation {
    // Declared before `plan`, because fields are dropped in order: the plan must outlive its states, so that a freed
    // plan implies freed states.
    states: Vec<Rc<dyn Any>>,
    plan: Arc<Plan>,
}

impl Generation {
    /// Creates the plan's generation on a worker. Kept states that `before` also has are taken over; the other states
    /// are created.
    pub fn new(plan: Arc<Plan>, worker: &Rc<dyn Worker>, before: Option<&Self>) -> Rc<Self> {
        let mut kept = vec![None; plan.states.len()];
        if let Some(before) = before {
            for (key, index) in &plan.kept_states {
                kept[*index] = before.plan.kept_states.get(key).map(|index| Rc::clone(&before.states[*index]));
            }
        }
        let states = plan.states.iter().zip(kept).map(|(make, kept)| kept.unwrap_or_else(|| make(worker))).collect();
        Rc::new(Self { states, plan })
    }

    /// Creates a generation without servers, for unused storage.
    pub fn vacant() -> Rc<Self> {
        Rc::new(Self { states: Vec::new(), plan: Arc::default() })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns this worker's state.
    ///
    /// # Panics
    /// If the id is from the build of another plan.
    pub fn state<T: 'static>(&self, id: StateId<T>) -> &T {
        self.states[id.index as usize].downcast_ref().expect("a state id belongs to the plan that allotted it")
    }
}
