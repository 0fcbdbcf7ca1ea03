//! A worker's counters of requests, by the labels of the routes that they take.
//!
//! As in Caddy 2.11, a request is counted once for each route of its server's own list that it takes (and for each
//! named route that it invokes), under the module of the route's first handler; routes within routes are not counted.

use std::cell::{Cell as PlainCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_message::{Method, StatusCode, names};
use rustc_hash::FxHashMap;

use super::cells::{Distributions, Totals};
use super::{HOST_BYTES_MAX, HostId, Metrics, SeriesId};
use crate::context::{Context, Scheme};
use crate::outcome::{Ending, Outcome};
use crate::route::{Generation, StateId};

/// Pairs of status code and method that a worker counts apart for one server, handler and host. Further pairs share one
/// with the code `_other` and the method `OTHER`.
const CODES_MAX: usize = 256;
/// Measured routes for which recycled storage keeps room.
const KEPT_MAX: usize = 64;

/// The methods that have a label of their own, in the order of [`method`].
const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "OTHER"];

/// A status code and a method in one number; 0 for the shared pair of [`CODES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CodeAndMethod(u16);

impl CodeAndMethod {
    const OTHERS: Self = Self(0);

    #[inline]
    fn new(code: u16, method: Method<'_>) -> Self {
        Self(code << 4 | self::method(method))
    }

    /// Returns the labels.
    pub(super) fn labels(self) -> (String, &'static str) {
        match self {
            Self::OTHERS => (super::OTHER.to_owned(), METHODS[9]),
            Self(pair) => ((pair >> 4).to_string(), METHODS[usize::from(pair & 15)]),
        }
    }
}

/// Returns the label of a method. As in Caddy, methods that are not the standard's share one.
pub(super) fn method_label(method: Method<'_>) -> &'static str {
    METHODS[usize::from(self::method(method))]
}

#[inline]
fn method(method: Method<'_>) -> u16 {
    match method {
        Method::Get => 0,
        Method::Head => 1,
        Method::Post => 2,
        Method::Put => 3,
        Method::Delete => 4,
        Method::Connect => 5,
        Method::Options => 6,
        Method::Trace => 7,
        Method::Patch => 8,
        Method::Other(_) => 9,
    }
}

/// The metrics of a plan's routes.
pub(crate) struct MeteredPlan {
    pub(crate) meter: StateId<Meter>,
    /// `None`: series have no label for the host.
    pub(crate) hosts: Option<MeteredHosts>,
}

/// The hosts that have a label of their own.
pub(crate) struct MeteredHosts {
    /// Hosts of the routes' matchers, in lower case.
    pub(crate) known: FxHashMap<Box<str>, HostId>,
    /// Whether any other host gets its own label too, over HTTP; over TLS it always does, as in Caddy.
    pub(crate) observes_all: bool,
}

/// The series of a route.
#[derive(Clone, Copy)]
pub(crate) struct RouteSeries {
    pub(crate) series: SeriesId,
    /// The host, if the route's matchers admit only one.
    pub(crate) host: Option<HostId>,
}

/// The counts of one server, handler and host on one worker.
struct Counts {
    meter: u64,
    metrics: Arc<Metrics>,
    labels: (SeriesId, HostId),
    totals: Arc<Totals>,
    /// A short list: few codes and methods are frequent, and a hit moves one place to the front.
    by_code: RefCell<Vec<(CodeAndMethod, Arc<Distributions>)>>,
}

impl Counts {
    /// Calls `record` with the distributions of a code and a method.
    #[inline]
    fn record(&self, key: CodeAndMethod, record: impl FnOnce(&Distributions)) {
        let mut by_code = self.by_code.borrow_mut();
        let at = by_code.iter().position(|(known, _)| *known == key);
        let at = at.unwrap_or_else(|| self.add(&mut by_code, key));
        record(&by_code[at].1);
        if at > 0 {
            by_code.swap(at, at - 1);
        }
    }

    #[cold]
    fn add(&self, by_code: &mut Vec<(CodeAndMethod, Arc<Distributions>)>, key: CodeAndMethod) -> usize {
        let key = if by_code.len() < CODES_MAX { key } else { CodeAndMethod::OTHERS };
        if let Some(at) = by_code.iter().position(|(known, _)| *known == key) {
            return at;
        }
        by_code.push((key, self.metrics.add_distributions(self.meter, self.labels, key)));
        by_code.len() - 1
    }
}

/// The counters of one worker. They outlive the plan: the next plan takes them over.
pub(crate) struct Meter {
    number: u64,
    metrics: Arc<Metrics>,
    /// By series, then by host.
    counts: RefCell<Vec<Vec<Option<Rc<Counts>>>>>,
    /// Hosts that are not known from the configuration.
    observed: RefCell<FxHashMap<Box<str>, HostId>>,
    /// No other host gets a label any more.
    is_full: PlainCell<bool>,
}

impl Meter {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            number: metrics.new_meter(),
            metrics: Arc::clone(metrics),
            counts: RefCell::default(),
            observed: RefCell::default(),
            is_full: PlainCell::new(false),
        }
    }

    #[inline]
    fn counts(&self, series: SeriesId, host: HostId) -> Rc<Counts> {
        let known = self.counts.borrow().get(series.index()).and_then(|hosts| hosts.get(host.index())?.clone());
        known.unwrap_or_else(|| self.add(series, host))
    }

    #[cold]
    fn add(&self, series: SeriesId, host: HostId) -> Rc<Counts> {
        let labels = (series, host);
        let counts = Rc::new(Counts {
            meter: self.number,
            metrics: Arc::clone(&self.metrics),
            labels,
            totals: self.metrics.add_totals(self.number, labels),
            by_code: RefCell::default(),
        });
        let mut table = self.counts.borrow_mut();
        let (rows, columns) = (table.len().max(series.index() + 1), host.index() + 1);
        table.resize_with(rows, Vec::new);
        let hosts = &mut table[series.index()];
        hosts.resize(hosts.len().max(columns), None);
        hosts[host.index()] = Some(Rc::clone(&counts));
        counts
    }

    fn host(&self, cx: &Context, hosts: &MeteredHosts) -> HostId {
        let host = cx.host();
        let mut lower = [0; HOST_BYTES_MAX];
        let Some(lower) = lower.get_mut(..host.len()) else { return HostId::OTHER };
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let Ok(host) = std::str::from_utf8(lower) else { return HostId::OTHER };
        if let Some(&known) = hosts.known.get(host) {
            return known;
        }
        if host.is_empty() || !hosts.observes_all && cx.arrival().scheme == Scheme::Http {
            return HostId::OTHER;
        }
        if let Some(&observed) = self.observed.borrow().get(host) {
            return observed;
        }
        if self.is_full.get() { HostId::OTHER } else { self.observe(host) }
    }

    #[cold]
    fn observe(&self, host: &str) -> HostId {
        let mut observed = self.observed.borrow_mut();
        match self.metrics.observe_host(host) {
            Some(id) => {
                observed.insert(host.into(), id);
                id
            }
            None => {
                // From here on a host costs no lock, so this worker needs those that other workers have added.
                *observed = self.metrics.observed_hosts();
                self.is_full.set(true);
                HostId::OTHER
            }
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.metrics.retire(self.number);
    }
}

/// A route that an exchange has taken. It counts as in flight until this is dropped.
struct TakenRoute {
    counts: Rc<Counts>,
    at: Instant,
}

impl Drop for TakenRoute {
    fn drop(&mut self) {
        self.counts.totals.in_flight.subtract(1);
    }
}

/// The measurement of one exchange.
#[derive(Default)]
pub(crate) struct Measurement {
    taken: Vec<TakenRoute>,
    /// The fault that no handler has turned into a response.
    failed: Option<StatusCode>,
    responded: Option<Instant>,
    /// The chain ended without a handler that responds.
    is_unhandled: bool,
}

impl Measurement {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.taken.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        if self.is_on() {
            *self = Self { taken: std::mem::take(&mut self.taken), ..Self::default() };
            self.taken.clear();
            self.taken.shrink_to(KEPT_MAX);
        }
    }

    /// No handler responds, so the response is an empty one.
    pub(crate) fn set_unhandled(&mut self) {
        self.is_unhandled = self.is_on();
    }

    /// A fault has passed all handlers. Only the first counts: the next is one of the error routes.
    pub(crate) fn failed(&mut self, status: StatusCode) {
        if self.is_on() {
            self.failed.get_or_insert(status);
        }
    }

    /// The response's head is ready at `now`.
    pub(crate) fn responded(&mut self, now: Instant) {
        self.responded = Some(now);
    }
}

/// The exchange takes a route.
pub(crate) fn take(cx: &mut Context, route: RouteSeries) {
    let generation: &Generation = cx.generation();
    let Some(plan) = &generation.plan().metered else { return };
    let meter = generation.state(plan.meter);
    let host = match (&plan.hosts, route.host) {
        (None, _) => HostId::NONE,
        (Some(_), Some(host)) => host,
        (Some(hosts), None) => meter.host(cx, hosts),
    };
    let counts = meter.counts(route.series, host);
    counts.totals.in_flight.add(1);
    let at = cx.worker().now();
    cx.flow_mut().measurement.taken.push(TakenRoute { counts, at });
}

/// Counts an exchange that is over.
pub(crate) fn end(cx: &Context, outcome: &Outcome) {
    // As in Caddy, where a handler that aborts the exchange or panics passes the counters by.
    if matches!(outcome.ending, Ending::Aborted | Ending::Panicked) {
        return;
    }
    let measurement = &cx.flow().measurement;
    let head = cx.original();
    let code = match (measurement.failed, cx.effective_status(outcome.status)) {
        (Some(status), _) | (None, Some(status)) => status.as_u16(),
        (None, None) => Outcome::CLIENT_CLOSED,
    };
    // A client that has gone is no error of the server.
    let is_error = measurement.failed.is_some();
    let key = CodeAndMethod::new(code, head.method());
    let received = request_bytes(cx) + outcome.received;
    let sent = if is_error { 0 } else { outcome.sent };
    let now = cx.worker().now();
    // As in Caddy, where the code 499 is a response.
    let responded = measurement.responded.or(outcome.status.is_none().then_some(now));
    let responded = responded.filter(|_| !is_error && !measurement.is_unhandled);
    for TakenRoute { counts, at } in &measurement.taken {
        counts.totals.requests.add(1);
        if is_error {
            counts.totals.errors.add(1);
        }
        counts.record(key, |distributions| {
            distributions.request_time.observe_time(now.saturating_duration_since(*at));
            distributions.request_size.observe_size(received);
            distributions.response_size.observe_size(sent);
            if let Some(responded) = responded {
                distributions.response_time.observe_time(responded.saturating_duration_since(*at));
            }
        });
    }
}

/// Returns the size of a request's head as Caddy computes it: without separators and line ends.
fn request_bytes(cx: &Context) -> u64 {
    let head = cx.original();
    let target = head.target();
    let line = target.path().len() + target.query().map_or(0, |query| 1 + query.len()) + head.method().as_str().len();
    let fields: usize = head.fields().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    // Caddy counts the host without a field name, wherever it stands.
    let (added, counted) = match head.fields().contains(names::HOST) {
        true => (0, names::HOST.as_str().len()),
        false => (head.authority().map_or(0, str::len), 0),
    };
    (line + head.version().as_str().len() + fields + added - counted) as u64
}
