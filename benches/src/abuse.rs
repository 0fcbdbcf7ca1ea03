//! `./bench abuse`: the response times of a regular client while hostile HTTP/2 clients attack the server.
//!
//! `./test` asserts how the attacks end and how much memory the server uses. This bench measures the cost for other
//! clients.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use causeway_testkit::http2::{ATTACKS, Attack, AttackOutcome, AttackTarget, Visitor};
use hdrhistogram::Histogram;

use crate::peers;
use crate::progress::Progress;
use crate::record::{Better, Chart, Metric, MetricKind, Record, Row, Table};
use crate::sample;
use crate::server::{Cores, PeerServer, free_port};
use crate::workshop::Workshop;

/// Attacking connections; each reconnects when the server closes it.
const ATTACKERS: usize = 4;
/// Upper bound of a visitor's wait at the 99th percentile, under every attack.
const P99_MS_MAX: f64 = 100.0;
/// Size of the long response in bytes.
const LONG_BYTES: usize = 4 << 20;
/// Nice value of the attackers. They share their core with the visitor, whose wait for that core must not count against
/// the server.
const NICE: i32 = 19;

const MIB: f64 = 1024.0 * 1024.0;

/// The measurements beside one attack.
struct Suffered {
    waited: Histogram<u64>,
    seconds: f64,
    /// How the attackers' connections ended, in order.
    outcomes: Vec<AttackOutcome>,
    growth: u64,
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("abuse", shop, arguments)?;
    let (rounds, effort) = if quick { (1, Duration::from_secs(1)) } else { (3, Duration::from_secs(2)) };
    let recipe = peers::recipe("causeway")?;
    let tool = peers::obtain(shop, recipe)?;
    let start = |shop: &Workshop| -> Result<PeerServer> {
        let port = free_port()?;
        let directory = shop.scratch.join("abuse");
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("long"), vec![b'x'; LONG_BYTES])?;
        let site = format!("respond /short \"{}\"\n\troot {:?}\n\tfile_server", answer::BODY, directory);
        let text = format!("{{\n\tadmin off\n}}\n:{port} {{\n\t{site}\n}}\n");
        let mut launch = peers::configured(shop, &tool, "causeway", &format!("{port}.Caddyfile"), &text)?;
        peers::limit_workers(&mut launch, "causeway", 1);
        launch.path = "/short".to_owned();
        PeerServer::start_launch(shop, recipe, launch, port, Cores::One(0))
    };
    let pinned = Cores::One(1).pin_self();
    let all: Vec<Option<&Attack>> = std::iter::once(None).chain(ATTACKS.iter().map(Some)).collect();
    let progress = Progress::new((all.len() * rounds) as u64 * effort.as_millis() as u64);
    let mut rows = Vec::new();
    for attack in all {
        let name = attack.map_or("nobody", |attack| attack.name);
        let mut suffered = Vec::new();
        for round in 0..rounds {
            progress.at(&format!("{name}, round {} of {rounds}", round + 1));
            // A fresh server, without state from the previous round.
            let server = start(shop)?;
            suffered.push(suffer(&server, attack, effort).with_context(|| format!("row {name}"))?);
            progress.done(effort.as_millis() as u64);
        }
        rows.push(row(name, &suffered, pinned.is_ok()));
    }
    let table = Table {
        name: "abuse".to_owned(),
        title: "Response times while hostile clients attack".to_owned(),
        how: format!(
            "Causeway with one worker on core 0. On core 1 one HTTP/2 client without TLS that requests a short response repeatedly, and {ATTACKERS} connections that attack \
             concurrently and reconnect as soon as they are closed; they are niced by {NICE}, so that the client seldom waits for its own core. {rounds} rounds of {} s, each with a \
             server of its own. Growth is the peak of resident memory minus its size before the attack. The p99 must be below {P99_MS_MAX} ms.",
            effort.as_secs_f64()
        ),
        chart: Some(Chart { bars: vec!["p99".to_owned()], label: Some("growth".to_owned()) }),
        rows,
    };
    progress.show(&table);
    progress.end();
    let over: Vec<_> =
        table.rows.iter().filter(|row| row.metric("p99").is_none_or(|p99| p99.median >= P99_MS_MAX)).collect();
    for row in over {
        eprintln!("{}: the p99 is not below {P99_MS_MAX} ms", row.name);
    }
    Ok(record.finish(shop, vec![table]))
}

fn suffer(server: &PeerServer, attack: Option<&Attack>, effort: Duration) -> Result<Suffered> {
    let target = AttackTarget { address: server.address, short: "/short", long: "/long" };
    let mut visitor = Visitor::connect(target.address)?;
    // Fill the server's pools first, so that their growth is not attributed to the attack.
    for _ in 0..500 {
        visitor.ask(target.short)?;
    }
    visitor.ask(target.long)?;
    let before = sample::resident(&server.processes)?;
    let over = AtomicBool::new(false);
    let (visited, outcomes) = std::thread::scope(|scope| {
        let visits = scope.spawn(|| visit(&mut visitor, target, &over));
        let attackers: Vec<_> = match attack {
            Some(attack) => (0..ATTACKERS).map(|_| scope.spawn(move || persist(attack, target, effort))).collect(),
            None => {
                std::thread::sleep(effort);
                Vec::new()
            }
        };
        let outcomes: Vec<_> =
            attackers.into_iter().map(|attacker| attacker.join().expect("it does not panic")).collect();
        // The visitor measures until the last attacker has ended.
        over.store(true, Ordering::Relaxed);
        (visits.join().expect("it does not panic"), outcomes)
    });
    let (waited, seconds) = visited?;
    ensure!(!waited.is_empty(), "the visitor was not served");
    let outcomes = outcomes.into_iter().collect::<io::Result<Vec<_>>>()?.concat();
    let growth = sample::resident_peak(&server.processes)?.saturating_sub(before);
    Ok(Suffered { waited, seconds, outcomes, growth })
}

/// Sends requests until `over`. Returns the response times in µs, and the total time in seconds.
fn visit(visitor: &mut Visitor, target: AttackTarget, over: &AtomicBool) -> Result<(Histogram<u64>, f64)> {
    let begun = Instant::now();
    let mut waited = Histogram::new(3)?;
    while !over.load(Ordering::Relaxed) {
        let took = visitor.ask(target.short)?;
        waited.record(took.as_micros() as u64)?;
    }
    Ok((waited, begun.elapsed().as_secs_f64()))
}

/// Attacks until the time is over, reconnecting whenever the server stops it.
fn persist(attack: &Attack, target: AttackTarget, effort: Duration) -> io::Result<Vec<AttackOutcome>> {
    // On Linux, nice applies only to this thread and to threads that it starts.
    rustix::process::nice(NICE)?;
    let begun = Instant::now();
    let mut outcomes = Vec::new();
    while begun.elapsed() < effort {
        outcomes.push(attack.run(target, effort.saturating_sub(begun.elapsed()))?);
    }
    Ok(outcomes)
}

fn row(name: &str, suffered: &[Suffered], is_pinned: bool) -> Row {
    let ms = |quantile: f64| {
        suffered.iter().map(|one| one.waited.value_at_quantile(quantile) as f64 / 1e3).collect::<Vec<_>>()
    };
    let mut row = Row::new(name);
    row.metrics.push(Metric::time("p50", "ms", ms(0.5)));
    row.metrics.push(Metric::time("p99", "ms", ms(0.99)));
    row.metrics.push(Metric::time("longest", "ms", ms(1.0)));
    row.metrics
        .push(Metric::rate("answers", suffered.iter().map(|one| one.waited.len() as f64 / one.seconds).collect()));
    let growth = suffered.iter().map(|one| one.growth as f64 / MIB).collect();
    row.metrics.push(Metric::new("growth", "MiB", MetricKind::Counted, Better::Lower, growth));
    if let Some(first) = suffered.iter().find_map(|one| one.outcomes.first()) {
        let connections: usize = suffered.iter().map(|one| one.outcomes.len()).sum();
        let word = match *first {
            AttackOutcome::CALM => "ended by ENHANCE_YOUR_CALM".to_owned(),
            AttackOutcome::GoAway(code) => format!("ended by GOAWAY {code}"),
            AttackOutcome::Closed => "closed".to_owned(),
            AttackOutcome::Stopped => "read no more".to_owned(),
            AttackOutcome::Absorbed => "absorbed".to_owned(),
        };
        row.notes.push(format!("{word}; {connections} connections"));
    }
    if !is_pinned {
        row.notes.push("the clients were not pinned".to_owned());
    }
    row
}
