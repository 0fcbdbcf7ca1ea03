//! Metrics: counters of requests, and the numbers that the other parts of a program add to a scrape.
//!
//! Each worker counts in cells of its own; a scrape adds them up, on the thread that requests it. So a request shares
//! nothing with other workers. The cells belong to [`Metrics`], not to a plan: a reload continues the counters.
//!
//! - `meter`: a worker's counters, and the measurement of an exchange
//! - `cells`: the numbers that a worker writes and a scrape reads
//! - `exposition`: the formats of a scrape

mod cells;
mod exposition;
mod meter;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use causeway_message::Method;
use rustc_hash::FxHashMap;

use crate::upstream::{UpstreamStatus, UpstreamTable};

pub use exposition::{Buckets, Exposition, Family, Format, Kind, Label, Number, Observed};

use cells::{Distributions, SIZE_BOUNDS, Sum, TIME_BOUNDS, Totals};
use meter::CodeAndMethod;
pub(crate) use meter::{Measurement, Meter, MeteredHosts, MeteredPlan, RouteSeries, end, take};

/// Pairs of server and handler that have labels of their own. Pairs beyond it are counted as `_other`. Pairs of earlier
/// configurations count, because their counters stay.
const SERIES_MAX: usize = 4096;
/// Hosts of configurations, earlier ones included, that have a label of their own. Hosts beyond it are counted as
/// `_other`.
const HOSTS_MAX: usize = 50_000;
/// Hosts that no configuration names and that have a label of their own. Further hosts are counted as `_other`.
const OBSERVED_MAX: usize = 256;
/// Length of the longest host with a label of its own, in bytes: the longest name of DNS (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 253;
/// The label of everything that has no label of its own, as in Caddy.
const OTHER: &str = "_other";

/// The settings of the request metrics of a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetricsSpec {
    /// Whether series have a label for the request's host.
    pub per_host: bool,
    /// Whether hosts that no route names get labels over HTTP too. Over TLS they always do.
    pub observe_catchall_hosts: bool,
    /// Modules whose routes are not counted: those that the server adds to the configuration's.
    pub uncounted: &'static [&'static str],
}

/// The index of a server and handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesId(u16);

impl SeriesId {
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The index of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostId(u16);

impl HostId {
    /// Series have no label for the host.
    const NONE: Self = Self(0);
    /// All hosts without a label of their own.
    const OTHER: Self = Self(1);

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An owned set of cells. The owner 0 is no worker: these cells hold the counts of workers' meters that are gone.
struct Owned<K, C> {
    owner: u64,
    key: K,
    cells: Arc<C>,
}

#[derive(Default)]
struct Book {
    meters: u64,
    series: Vec<(Box<str>, Box<str>)>,
    /// The hosts from index 2 on.
    hosts: Vec<Box<str>>,
    known: FxHashMap<Box<str>, HostId>,
    observed: FxHashMap<Box<str>, HostId>,
    totals: Vec<Owned<(SeriesId, HostId), Totals>>,
    distributions: Vec<Owned<(SeriesId, HostId, CodeAndMethod), Distributions>>,
    /// Requests and failed requests to the administration API, by path, method and status code.
    admin: BTreeMap<(&'static str, &'static str, u16), (u64, u64)>,
}

impl Book {
    fn add_host(&mut self, host: &str) -> HostId {
        self.hosts.push(host.into());
        // Both bounds together fit into 16 bits.
        HostId((self.hosts.len() + 1) as u16)
    }

    fn host(&self, id: HostId) -> Option<&str> {
        match id {
            HostId::NONE => None,
            HostId::OTHER => Some(OTHER),
            HostId(id) => Some(&self.hosts[usize::from(id) - 2]),
        }
    }
}

const _: () = assert!(HOSTS_MAX + OBSERVED_MAX + 2 < u16::MAX as usize);

type Collector = Box<dyn Fn(&mut Exposition) + Send + Sync>;

/// The metrics of one server, shared by its workers, its configurations and its scrapes.
#[derive(Default)]
pub struct Metrics {
    book: Mutex<Book>,
    upstreams: UpstreamTable,
    collectors: Mutex<BTreeMap<&'static str, Collector>>,
    scrapes: AtomicU64,
    is_last_load_good: AtomicBool,
    /// Milliseconds since the Unix epoch; 0 before the first configuration.
    loaded_ms: AtomicU64,
}

impl Metrics {
    /// Adds numbers to every scrape, in place of an earlier collector of the same name. `collect` runs on the scraping
    /// thread, where it may read files.
    pub fn add_collector(&self, name: &'static str, collect: impl Fn(&mut Exposition) + Send + Sync + 'static) {
        self.collectors().insert(name, Box::new(collect));
    }

    fn collectors(&self) -> MutexGuard<'_, BTreeMap<&'static str, Collector>> {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shared state of the upstream with this address; the upstream is listed until all handles are
    /// dropped.
    pub fn upstream(&self, dial: &str) -> Arc<UpstreamStatus> {
        self.upstreams.get(dial)
    }

    /// Returns the upstreams of the plans that exist.
    pub fn upstreams(&self) -> Vec<Arc<UpstreamStatus>> {
        self.upstreams.all()
    }

    /// Records that a configuration took effect, or was refused.
    pub fn record_load(&self, is_good: bool) {
        self.is_last_load_good.store(is_good, Ordering::Relaxed);
        if is_good {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.loaded_ms.store(u64::try_from(now.as_millis()).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Counts a request to the administration API. `path` is the endpoint, without the part that the client chooses.
    pub fn count_admin_request(&self, path: &'static str, method: Method<'_>, status: u16, is_error: bool) {
        let mut book = self.book();
        let (requests, errors) = book.admin.entry((path, meter::method_label(method), status)).or_default();
        *requests += 1;
        *errors += u64::from(is_error);
    }

    /// Returns all metrics in a format. Takes about a millisecond for each thousand series: call it off the workers.
    pub fn scrape(&self, format: Format) -> String {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        // As in Go, the scrape itself is the one in flight.
        self.gather(1).render(format)
    }

    /// Returns all metrics, to send them elsewhere. Costs as much as a scrape, and counts as none.
    pub fn collect(&self) -> Exposition {
        self.gather(0)
    }

    fn gather(&self, in_flight: u64) -> Exposition {
        let mut page = Exposition::default();
        self.expose(in_flight, &mut page);
        for collect in self.collectors().values() {
            collect(&mut page);
        }
        page
    }

    fn expose(&self, in_flight: u64, page: &mut Exposition) {
        let help = "Total number of scrapes by HTTP status code.";
        let scrapes = self.scrapes.load(Ordering::Relaxed);
        let family = page.family("promhttp_metric_handler_requests_total", Kind::Counter, help);
        // This server's scrapes do not fail; the other codes are there for dashboards made for Go's servers.
        for (code, count) in [("200", scrapes), ("500", 0), ("503", 0)] {
            family.sample(&[("code", code)], count);
        }
        let help = "Current number of scrapes being served.";
        page.single("promhttp_metric_handler_requests_in_flight", Kind::Gauge, help, in_flight);
        let help = "Whether the last configuration reload attempt was successful.";
        let is_good = self.is_last_load_good.load(Ordering::Relaxed);
        page.single("caddy_config_last_reload_successful", Kind::Gauge, help, is_good);
        let help = "Timestamp of the last successful configuration reload.";
        let loaded = self.loaded_ms.load(Ordering::Relaxed) as f64 / 1000.0;
        page.single("caddy_config_last_reload_success_timestamp_seconds", Kind::Gauge, help, loaded);
        let book = self.book();
        expose_admin(&book, page);
        expose_upstreams(&self.upstreams(), page);
        expose_totals(&book, page);
        expose_distributions(&book, page);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A panic while the book is locked leaves it usable: each change is one push or one store.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- for the build of a plan ----

    /// Returns the index of a server and handler.
    pub(crate) fn series(&self, server: &str, handler: &str) -> SeriesId {
        let mut book = self.book();
        let known = book.series.iter().position(|(known, of)| **known == *server && **of == *handler);
        let index = known.unwrap_or_else(|| {
            match book.series.len() {
                0..SERIES_MAX => book.series.push((server.into(), handler.into())),
                SERIES_MAX => book.series.push((OTHER.into(), OTHER.into())),
                _ => {}
            }
            book.series.len() - 1
        });
        SeriesId(index as u16)
    }

    /// Returns the index of a host that a configuration names. `host` is in lower case.
    pub(crate) fn intern_host(&self, host: &str) -> HostId {
        let mut book = self.book();
        if let Some(&known) = book.known.get(host).or_else(|| book.observed.get(host)) {
            return known;
        }
        if book.known.len() == HOSTS_MAX || host.len() > HOST_BYTES_MAX {
            return HostId::OTHER;
        }
        let id = book.add_host(host);
        book.known.insert(host.into(), id);
        id
    }

    // ---- for a worker's meter ----

    fn new_meter(&self) -> u64 {
        let mut book = self.book();
        book.meters += 1;
        book.meters
    }

    /// Returns the index of a host that no configuration names; `None` if too many have one.
    fn observe_host(&self, host: &str) -> Option<HostId> {
        let mut book = self.book();
        if let Some(&known) = book.known.get(host).or_else(|| book.observed.get(host)) {
            return Some(known);
        }
        if book.observed.len() == OBSERVED_MAX {
            return None;
        }
        let id = book.add_host(host);
        book.observed.insert(host.into(), id);
        Some(id)
    }

    fn observed_hosts(&self) -> FxHashMap<Box<str>, HostId> {
        self.book().observed.clone()
    }

    fn add_totals(&self, owner: u64, key: (SeriesId, HostId)) -> Arc<Totals> {
        let cells = Arc::default();
        self.book().totals.push(Owned { owner, key, cells: Arc::clone(&cells) });
        cells
    }

    fn add_distributions(
        &self,
        owner: u64,
        (series, host): (SeriesId, HostId),
        code: CodeAndMethod,
    ) -> Arc<Distributions> {
        let cells = Arc::default();
        let key = (series, host, code);
        self.book().distributions.push(Owned { owner, key, cells: Arc::clone(&cells) });
        cells
    }

    /// A meter ends: its counts become those of no worker, so that counters never shrink.
    fn retire(&self, meter: u64) {
        let mut book = self.book();
        retire(&mut book.totals, meter, Totals::add);
        retire(&mut book.distributions, meter, Distributions::add);
    }
}

/// Adds the cells of `meter` to those of no worker.
fn retire<K: Ord + Copy, C>(all: &mut Vec<Owned<K, C>>, meter: u64, add: impl Fn(&C, &C)) {
    let mut retired: BTreeMap<K, Arc<C>> = BTreeMap::new();
    for owned in all.iter().filter(|owned| owned.owner == 0) {
        retired.insert(owned.key, Arc::clone(&owned.cells));
    }
    all.retain_mut(|owned| {
        if owned.owner != meter {
            return true;
        }
        owned.owner = 0;
        match retired.get(&owned.key) {
            Some(before) => {
                add(before, &owned.cells);
                false
            }
            None => true,
        }
    });
}

fn expose_admin(book: &Book, page: &mut Exposition) {
    let help = "Counter of requests made to the Admin API's HTTP endpoints.";
    let family = page.family("caddy_admin_http_requests_total", Kind::Counter, help);
    let mut errors: BTreeMap<_, u64> = BTreeMap::new();
    for (&(path, method, code), &(requests, failed)) in &book.admin {
        let code = code.to_string();
        family.sample(&[("code", &code), ("handler", "admin"), ("method", method), ("path", path)], requests);
        if failed > 0 {
            *errors.entry((path, method)).or_default() += failed;
        }
    }
    let help = "Number of requests resulting in middleware errors.";
    let family = page.family("caddy_admin_http_request_errors_total", Kind::Counter, help);
    for ((path, method), failed) in errors {
        family.sample(&[("handler", "admin"), ("method", method), ("path", path)], failed);
    }
}

fn expose_upstreams(upstreams: &[Arc<UpstreamStatus>], page: &mut Exposition) {
    let now = Instant::now();
    let help = "Health status of reverse proxy upstreams.";
    let family = page.family("caddy_reverse_proxy_upstreams_healthy", Kind::Gauge, help);
    let mut upstreams: Vec<_> = upstreams.iter().collect();
    upstreams.sort_by_key(|status| status.dial());
    for status in upstreams {
        family.sample(&[("upstream", status.dial())], status.is_healthy(now));
    }
}

fn expose_totals(book: &Book, page: &mut Exposition) {
    let mut sums: BTreeMap<(SeriesId, HostId), [u64; 3]> = BTreeMap::new();
    for Owned { key, cells, .. } in &book.totals {
        let sum = sums.entry(*key).or_default();
        for (sum, cell) in sum.iter_mut().zip([&cells.in_flight, &cells.requests, &cells.errors]) {
            *sum = sum.wrapping_add(cell.read());
        }
    }
    for (index, name, kind, help) in [
        (0, "caddy_http_requests_in_flight", Kind::Gauge, "Number of requests currently handled by this server."),
        (1, "caddy_http_requests_total", Kind::Counter, "Counter of HTTP(S) requests made."),
        (2, "caddy_http_request_errors_total", Kind::Counter, "Number of requests resulting in middleware errors."),
    ] {
        let family = page.family(name, kind, help);
        for ((series, host), sum) in &sums {
            // As in Caddy, a counter that has never counted is not shown.
            if kind == Kind::Gauge || sum[index] > 0 {
                let (server, handler) = &book.series[series.index()];
                match book.host(*host) {
                    None => family.sample(&[("handler", handler), ("server", server)], sum[index]),
                    Some(host) => {
                        family.sample(&[("handler", handler), ("host", host), ("server", server)], sum[index]);
                    }
                }
            }
        }
    }
}

fn expose_distributions(book: &Book, page: &mut Exposition) {
    let mut sums: BTreeMap<(SeriesId, HostId, CodeAndMethod), [Sum; 4]> = BTreeMap::new();
    for Owned { key, cells, .. } in &book.distributions {
        let [request_time, response_time, request_size, response_size] = sums.entry(*key).or_default();
        request_time.add(&cells.request_time);
        response_time.add(&cells.response_time);
        request_size.add(&cells.request_size);
        response_size.add(&cells.response_size);
    }
    for (index, name, help) in [
        (0, "caddy_http_request_duration_seconds", "Histogram of round-trip request durations."),
        (1, "caddy_http_response_duration_seconds", "Histogram of times to first byte in response bodies."),
        (2, "caddy_http_request_size_bytes", "Total size of the request. Includes body"),
        (3, "caddy_http_response_size_bytes", "Size of the returned response."),
    ] {
        let family = page.family(name, Kind::Histogram, help);
        for ((series, host, code), sums) in &sums {
            let Sum { buckets: counts, sum } = &sums[index];
            if counts.iter().all(|&count| count == 0) {
                continue;
            }
            let buckets = match index {
                0 | 1 => Buckets { bounds: &TIME_BOUNDS, counts, sum: (*sum as f64 / 1e9).into() },
                _ => Buckets { bounds: &SIZE_BOUNDS, counts, sum: (*sum).into() },
            };
            let (server, handler) = &book.series[series.index()];
            let (code, method) = code.labels();
            match book.host(*host) {
                None => {
                    let labels = [("code", &*code), ("handler", handler), ("method", method), ("server", server)];
                    family.histogram(&labels, &buckets);
                }
                Some(host) => {
                    let (code, host) = (("code", &*code), ("host", host));
                    let labels = [code, ("handler", handler), host, ("method", method), ("server", server)];
                    family.histogram(&labels, &buckets);
                }
            }
        }
    }
}
