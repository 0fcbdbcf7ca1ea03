//! The renewal of many certificates at once, while clients make handshakes and requests.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::client::{Client, Exchange, exchange};
use super::pebble::Pebble;
use super::{Extent, stored};
use crate::configurations::host;
use crate::peers;
use crate::progress::Progress;
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::workshop::Workshop;

/// Clients that make a new connection for each request, and the pause from the start of one to the start of the next.
const CONNECTING: usize = 4;
const CONNECT_INTERVAL: Duration = Duration::from_millis(40);
/// Clients that keep their connection, and the pause between two requests.
const KEEPING: usize = 16;
const REQUEST_INTERVAL: Duration = Duration::from_millis(40);
/// The rest of the certificates' lifetime of 90 days: less than a third, so that all are due.
const DAYS_LEFT: i64 = 20;
/// Duration of the measurement after the renewals.
const AFTER: Duration = Duration::from_secs(10);
/// After this time without a renewal, Pebble has stopped.
const STOPPED: Duration = Duration::from_secs(10);
/// How often it is restarted. Orders that fail then are repeated after a minute.
const RESTARTS_MAX: usize = 4;
/// Time limit of the renewals.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Estimated duration of a renewal.
const RENEWAL_MS: u64 = 60;

pub(super) fn planned_ms(extent: &Extent) -> u64 {
    extent.renewals as u64 * RENEWAL_MS + 5000 + AFTER.as_millis() as u64
}

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Table> {
    let count = extent.renewals;
    progress.at(&format!("renewing {count} certificates"));
    let rows = measure(shop, count).unwrap_or_else(|error| {
        skip(shop, &format!("{count} renewals"), &error);
        Vec::new()
    });
    progress.done(planned_ms(extent));
    Ok(Table {
        name: "renewals".to_owned(),
        title: format!("{count} renewals under load"),
        how: format!(
            "Causeway starts with {count} certificates in storage that are all due, and renews them with Pebble, which verifies each name by \
             TLS-ALPN-01. Meanwhile {CONNECTING} clients make a new connection with a full handshake (X25519) and one request every {} ms, each \
             time to another name, and {KEEPING} clients send a request every {} ms on one connection. `after` is the same load for {} s when all \
             certificates are new. A time counts from when the connection or the request was due. Pebble, the clients and the server share all \
             cores. The target of the failures is 0: a handshake counts as failed also if the leaf does not name the site.",
            CONNECT_INTERVAL.as_millis(),
            REQUEST_INTERVAL.as_millis(),
            AFTER.as_secs()
        ),
        chart: Some(Chart { bars: vec!["handshake p99".to_owned()], label: Some("failed handshakes".to_owned()) }),
        rows,
    })
}

fn measure(shop: &mut Workshop, count: usize) -> Result<Vec<Row>> {
    let recipe = peers::recipe("causeway")?;
    let tool = peers::obtain(shop, recipe)?;
    let dir = shop.scratch.join("renewals");
    let (http, https) = (free_port()?, free_port()?);
    let mut pebble = Pebble::start(shop, &dir, https)?;
    let storage = dir.join("storage");
    let old = stored::write(&storage, count, &pebble.storage_key(), DAYS_LEFT)?;
    let mut text = format!(
        "{{\n\tadmin off\n\tpersist_config off\n\tauto_https disable_redirects\n\thttp_port {http}\n\thttps_port {https}\n\
         \tacme_ca {}\n\tacme_ca_root {}\n\tstorage file_system {}\n}}\n",
        pebble.directory(),
        pebble.root.display(),
        storage.display()
    );
    for number in 0..count {
        let host = host(number, count);
        let _ = write!(text, "https://{host} {{\n\tbind 127.0.0.1\n\trespond \"{}\"\n}}\n", answer::BODY);
    }
    let launch = peers::configured(shop, &tool, "causeway", "renewals.Caddyfile", &text)?;
    let all = Cores::First(std::thread::available_parallelism()?.get());
    let last = host(count - 1, count);
    let server = PeerServer::start_asked(shop, recipe, launch, https, all, &|address, _| {
        Client::full(address, &last, Exchange::X25519)?.request(None)?;
        Ok(Answered::Right)
    })?;
    let begun = Instant::now();
    // When Pebble did not answer for the first time, and the number of renewals until then.
    let mut stopped = None;
    let during = load(server.address, count, || {
        let (mut last, mut progressed, mut restarts) = (count, Instant::now(), 0);
        loop {
            let left = due(&storage, &pebble.storage_key(), &old)?;
            if left == 0 {
                return Ok(());
            }
            if left < last {
                (last, progressed) = (left, Instant::now());
            } else if progressed.elapsed() > STOPPED && restarts < RESTARTS_MAX {
                stopped.get_or_insert((progressed - begun, count - left));
                restarts += 1;
                pebble.restart()?;
                // Time for the repetition of the orders that fail now.
                progressed = Instant::now() + Duration::from_secs(90);
            }
            ensure!(begun.elapsed() < PATIENCE, "{left} certificates are not renewed after {} s", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(500));
        }
    })?;
    // The first renewals begin before the first client does.
    let took = begun.elapsed() + server.start;
    let (rate_took, rate_count) = stopped.map_or((took, count), |(after, done)| (after + server.start, done));
    let after = load(server.address, count, || {
        std::thread::sleep(AFTER);
        Ok(())
    })?;
    let mut during = row("during renewals", &during);
    during.metrics.insert(0, Metric::time("all renewals", "s", vec![took.as_secs_f64()]));
    during.metrics.insert(1, Metric::rate("renewals", vec![rate_count as f64 / rate_took.as_secs_f64()]));
    during.notes.extend(stopped.map(|(after, done)| {
        format!(
            "Pebble stopped after {done} renewals in {:.0} s and was started anew; `renewals` is the rate until then",
            after.as_secs_f64()
        )
    }));
    Ok(vec![during, row("after", &after)])
}

/// The number of names whose certificate in storage is the old one.
fn due(storage: &Path, authority: &str, old: &stored::Stored) -> Result<usize> {
    let count = old.leaves.len();
    let mut left = 0;
    for number in 0..count {
        let name = host(number, count);
        let path = storage.join("certificates").join(authority).join(&name).join(format!("{name}.crt"));
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        use rustls::pki_types::pem::PemObject as _;
        // The file is replaced atomically.
        let leaf = rustls::pki_types::CertificateDer::from_pem_slice(&text).context("parsing a certificate")?;
        left += usize::from(*leaf == *old.leaves[number]);
    }
    Ok(left)
}

/// The counts and times of one kind of client.
struct Outcome {
    done: u64,
    failed: u64,
    error: Option<String>,
    /// In µs.
    times: Histogram<u64>,
}

impl Outcome {
    fn new() -> Self {
        Self { done: 0, failed: 0, error: None, times: Histogram::new(3).expect("three digits are possible") }
    }

    fn count(&mut self, due: Instant, result: Result<()>) {
        match result {
            Ok(()) => {
                self.done += 1;
                // The histogram grows as needed, so that no time is too long.
                let _ = self.times.record(due.elapsed().as_micros() as u64);
            }
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.error = self.error.take().or(other.error);
        self.times += other.times;
    }
}

/// The outcomes of the clients that connect and of those that keep their connection.
struct Outcomes {
    handshakes: Outcome,
    requests: Outcome,
}

/// Runs the clients for as long as `wait` takes.
fn load(address: SocketAddr, count: usize, wait: impl FnOnce() -> Result<()>) -> Result<Outcomes> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let connecting: Vec<_> =
            (0..CONNECTING).map(|seed| scope.spawn(move || connect(address, count, seed, is_over))).collect();
        let keeping: Vec<_> =
            (0..KEEPING).map(|seed| scope.spawn(move || keep(address, count, seed, is_over))).collect();
        let waited = wait();
        is_over.store(true, Ordering::Relaxed);
        let (mut handshakes, mut requests) = (Outcome::new(), Outcome::new());
        for thread in connecting {
            handshakes.add(thread.join().expect("a client thread does not panic"));
        }
        for thread in keeping {
            requests.add(thread.join().expect("a client thread does not panic"));
        }
        waited.map(|()| Outcomes { handshakes, requests })
    })
}

/// Calls `work` with the time at which it is due, at a fixed rate.
fn paced(interval: Duration, is_over: &AtomicBool, mut work: impl FnMut(Instant)) {
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        work(due);
        due += interval;
    }
}

fn connect(address: SocketAddr, count: usize, seed: usize, is_over: &AtomicBool) -> Outcome {
    let mut outcome = Outcome::new();
    // A stride that is coprime to the count visits every name.
    let mut number = seed * count / CONNECTING;
    paced(CONNECT_INTERVAL, is_over, |due| {
        number = (number + 7) % count;
        outcome.count(due, visit(address, &host(number, count)));
    });
    outcome
}

fn visit(address: SocketAddr, name: &str) -> Result<()> {
    let mut stream = Client::full(address, name, Exchange::X25519)?.connect()?;
    let leaf = stream.conn.peer_certificates().and_then(|chain| chain.first()).context("no certificate")?;
    // The DER of a dNSName in subjectAltName: its tag, its length, its bytes.
    let mut named = vec![0x82, u8::try_from(name.len())?];
    named.extend_from_slice(name.as_bytes());
    ensure!(leaf.windows(named.len()).any(|window| window == named), "the certificate does not name {name}");
    exchange(&mut stream, &request(name, "close"))
}

fn keep(address: SocketAddr, count: usize, seed: usize, is_over: &AtomicBool) -> Outcome {
    let mut outcome = Outcome::new();
    let name = host(seed % count, count);
    let connect = || Client::full(address, &name, Exchange::X25519)?.connect();
    let mut stream = connect();
    paced(REQUEST_INTERVAL, is_over, |due| {
        let result = match &mut stream {
            Ok(stream) => exchange(stream, &request(&name, "keep-alive")),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        if result.is_err() {
            stream = connect();
        }
        outcome.count(due, result);
    });
    outcome
}

fn request(name: &str, connection: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: {connection}\r\n\r\n")
}

fn row(name: &str, outcomes: &Outcomes) -> Row {
    let mut row = Row::new(name);
    for (kind, outcome) in [("handshake", &outcomes.handshakes), ("request", &outcomes.requests)] {
        let time = |quantile| vec![outcome.times.value_at_quantile(quantile) as f64 / 1e3];
        row.metrics.extend([
            Metric::new(&format!("{kind}s"), "", MetricKind::Timed, Better::Higher, vec![outcome.done as f64]),
            Metric::count(&format!("failed {kind}s"), "", vec![outcome.failed as f64]),
            Metric::time(&format!("{kind} p50"), "ms", time(0.5)),
            Metric::time(&format!("{kind} p99"), "ms", time(0.99)),
        ]);
        row.notes.extend(outcome.error.as_ref().map(|error| format!("the first failed {kind}: {error}")));
    }
    row
}
