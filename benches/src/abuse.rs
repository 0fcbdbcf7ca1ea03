//! `./bench abuse`: how long those who behave wait for their answers while hostile clients of HTTP/2 are at work beside them.
//!
//! What becomes of the attackers and of the server's memory is asserted by `./test`; here is what it costs the others.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use causeway_testkit::http2::{ATTACKS, Attack, Outcome, Target, Visitor};
use hdrhistogram::Histogram;

use crate::peers;
use crate::progress::Progress;
use crate::record::{Better, Chart, Kind, Metric, Record, Row, Table};
use crate::sample;
use crate::server::{Cores, Server, free_port};
use crate::workshop::Workshop;

/// Connections that attack at the same time; each is made anew when it was ended.
const ATTACKERS: usize = 4;
/// What a visitor may wait at the 99th percentile, whatever happens beside it.
const P99_MS_MAX: f64 = 100.0;
/// Octets of the long answer.
const LONG_BYTES: usize = 4 << 20;
/// What attackers are niced by: they share their core with the visitor, whose own waiting for it is not the server's doing.
const NICE: i32 = 19;

const MIB: f64 = 1024.0 * 1024.0;

/// What happened beside one attack.
struct Suffered {
    waited: Histogram<u64>,
    seconds: f64,
    /// How the attackers' connections ended, in the order in which they did.
    outcomes: Vec<Outcome>,
    growth: u64,
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("abuse", shop, arguments)?;
    let (rounds, effort) = if quick { (1, Duration::from_secs(1)) } else { (3, Duration::from_secs(2)) };
    let recipe = peers::recipe("causeway")?;
    let tool = peers::obtain(shop, recipe)?;
    let start = |shop: &Workshop| -> Result<Server> {
        let port = free_port()?;
        let folder = shop.scratch.join("abuse");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("long"), vec![b'x'; LONG_BYTES])?;
        let site = format!("respond /short \"{}\"\n\troot {:?}\n\tfile_server", answer::BODY, folder);
        let text = format!("{{\n\tadmin off\n}}\n:{port} {{\n\t{site}\n}}\n");
        let mut launch = peers::configured(shop, &tool, "causeway", &format!("{port}.Caddyfile"), &text)?;
        peers::limit_workers(&mut launch, "causeway", 1);
        launch.path = "/short".to_owned();
        Server::start_launch(shop, recipe, launch, port, Cores::One(0))
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
            // A server of its own, so that nothing is left of the one before.
            let server = start(shop)?;
            suffered.push(suffer(&server, attack, effort).with_context(|| format!("beside {name}"))?);
            progress.done(effort.as_millis() as u64);
        }
        rows.push(row(name, &suffered, pinned.is_ok()));
    }
    let table = Table {
        name: "abuse".to_owned(),
        title: "What others wait while hostile clients are at work".to_owned(),
        how: format!(
            "Causeway with one worker on core 0. On core 1 one client of HTTP/2 in the clear that asks for a short answer again and again, and {ATTACKERS} connections that attack at \
             the same time, each anew as soon as it was ended; they are niced by {NICE}, so that the client seldom waits for its own core. {rounds} rounds of {} s, a server of \
             its own for each. Growth is the peak of resident memory over what it was before the attack. The p99 shall be below {P99_MS_MAX} ms.",
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
        eprintln!("beside {} the p99 is not below {P99_MS_MAX} ms", row.name);
    }
    Ok(record.finish(shop, vec![table]))
}

fn suffer(server: &Server, attack: Option<&Attack>, effort: Duration) -> Result<Suffered> {
    let target = Target { address: server.address, short: "/short", long: "/long" };
    let mut visitor = Visitor::connect(target.address)?;
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
        over.store(true, Ordering::Relaxed);
        (visits.join().expect("it does not panic"), outcomes)
    });
    let (waited, seconds) = visited?;
    ensure!(!waited.is_empty(), "nobody was served");
    let outcomes = outcomes.into_iter().collect::<io::Result<Vec<_>>>()?.concat();
    let growth = sample::resident_peak(&server.processes)?.saturating_sub(before);
    Ok(Suffered { waited, seconds, outcomes, growth })
}

/// Asks until it is over; how long each answer took, in µs, and how long all of it.
fn visit(visitor: &mut Visitor, target: Target, over: &AtomicBool) -> Result<(Histogram<u64>, f64)> {
    let begun = Instant::now();
    let mut waited = Histogram::new(3)?;
    while !over.load(Ordering::Relaxed) {
        let took = visitor.ask(target.short)?;
        waited.record(took.as_micros() as u64)?;
    }
    Ok((waited, begun.elapsed().as_secs_f64()))
}

/// Attacks until the time is over, and again whenever it was stopped.
fn persist(attack: &Attack, target: Target, effort: Duration) -> io::Result<Vec<Outcome>> {
    // Linux: of this thread alone, and of those that it starts.
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
    row.metrics.push(Metric::new("growth", "MiB", Kind::Counted, Better::Lower, growth));
    if let Some(first) = suffered.iter().find_map(|one| one.outcomes.first()) {
        let connections: usize = suffered.iter().map(|one| one.outcomes.len()).sum();
        let word = match *first {
            Outcome::CALM => "ended by ENHANCE_YOUR_CALM".to_owned(),
            Outcome::GoAway(code) => format!("ended by GOAWAY {code}"),
            Outcome::Closed => "closed".to_owned(),
            Outcome::Stopped => "read no more".to_owned(),
            Outcome::Absorbed => "absorbed".to_owned(),
        };
        row.notes.push(format!("{word}; {connections} connections"));
    }
    if !is_pinned {
        row.notes.push("the clients were not pinned".to_owned());
    }
    row
}
