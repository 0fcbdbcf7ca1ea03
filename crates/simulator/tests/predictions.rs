//! Predictions against the ground truth: programs run with equal random numbers, once with the target really faster.
//! With `--nocapture` each test prints its table; the environment variable SEEDS sets the number of seeds, 20 by
//! default.
//!
//! The bound: |predicted − true| ≤ max(2 points, a tenth of the truth), for the mean over the seeds. Where a mode is
//! known to be worse, [`KNOWN`] has the larger bound.

use causal::ledger::Experiment;
use causal::load::{ClientBehaviour, ProbeBlock, judge};
use causal::replay::LoadModel;
use causal::report::{GainSource, LoadKind};
use causeway_simulator::{
    WindowPlan, cases, cases::Case, confirm, latency_saved, record, saved, screen, truth, weights,
};

const MS: u64 = 1_000_000;

/// Means over the seeds, in percentage points.
#[derive(Default)]
struct PredictionRow {
    truth: f64,
    screened: f64,
    confirmed: f64,
    latency: f64,
    latency_screened: f64,
    latency_confirmed: f64,
    /// The loss of units while confirming pauses the program.
    slow_down: f64,
    /// The part of the time by which effects precede their causes when confirming.
    ahead: f64,
}

fn seeds(usual: u64) -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

fn row(case: &Case, speedup: f64, seeds: u64) -> PredictionRow {
    let record_plan = WindowPlan { warm_up: 30 * MS, window: 100 * MS, rest: 10 * MS, windows: 2 };
    let pause_plan = WindowPlan { window: 150 * MS, windows: 1, ..record_plan };
    let pace = if case.is_open { LoadModel::Open } else { LoadModel::Closed };
    let program = &case.program;
    let mut row = PredictionRow::default();
    for seed in 1..=seeds {
        let part = 100.0 / seeds as f64;
        let weights = weights(program, seed, 150 * MS);
        let really = |speedup| truth(program, seed, speedup, 30 * MS, 400 * MS);
        let truth = [(really(0.0), really(speedup))];
        let screened = screen(&record(program, seed, record_plan), &weights, speedup, pace);
        let confirmed = confirm(program, seed, &Experiment { weights: Some(&weights), speedup }, pause_plan);
        row.truth += part * saved(&truth, 0);
        row.screened += part * saved(&screened, 0);
        row.confirmed += part * saved(&confirmed.pairs, 0);
        row.latency += part * latency_saved(&truth, 0);
        row.latency_screened += part * latency_saved(&screened, 0);
        row.latency_confirmed += part * latency_saved(&confirmed.pairs, 0);
        row.slow_down += part * (1.0 - confirmed.units.1 as f64 / confirmed.units.0.max(1) as f64);
        row.ahead += part * confirmed.ahead as f64 / (pause_plan.window as f64 * pause_plan.windows as f64);
    }
    row
}

/// A mode's known error for a case: the allowed points at 25, 50 and 100 % (0: the usual bound), and the reason.
struct KnownError(GainSource, &'static str, [f64; 3], &'static str);

const KNOWN: &[KnownError] = &[
    // An open load sets the rate: with the pauses of confirming each unit of load takes less virtual time. The profiler
    // detects an open load by its load probe, and does not confirm.
    KnownError(GainSource::Confirmed, "open, 10 k/s", [3.5, 9.0, 19.0], "confirming assumes a closed load"),
    KnownError(GainSource::Confirmed, "open, 16 k/s", [8.0, 17.0, 33.0], "confirming assumes a closed load"),
    // A sleep overshoots by about 65 µs, which is long compared with this lock, so threads arrive at it in another
    // order. B's error is always too small a gain, never too large; `ahead` shows it.
    KnownError(
        GainSource::Confirmed,
        "lock, 4 threads, target inside",
        [3.0, 6.5, 9.5],
        "pauses change the order at a lock held for 20 µs",
    ),
    KnownError(
        GainSource::Confirmed,
        "lock, 8 threads, target inside",
        [6.5, 10.0, 13.0],
        "pauses change the order at a lock held for 20 µs",
    ),
    KnownError(
        GainSource::Confirmed,
        "lock, 4 threads, target outside",
        [0.0, 0.0, 3.5],
        "pauses change the order at a lock held for 20 µs",
    ),
    KnownError(
        GainSource::Confirmed,
        "lock, 8 threads, target outside",
        [0.0, 0.0, 2.8],
        "pauses change the order at a lock held for 20 µs",
    ),
    // Paused nearly all of the time: the loop keeps a hundredth of the wall time.
    KnownError(
        GainSource::Confirmed,
        "an independent burner",
        [0.0, 0.0, 2.8],
        "confirming pauses all threads while a thread that never idles runs",
    ),
    KnownError(
        GainSource::Confirmed,
        "lock of 1 ms, 8 threads, target inside",
        [0.0, 0.0, 4.5],
        "a pause inside the lock makes the waiting threads sleep",
    ),
    KnownError(
        GainSource::Screened,
        "lock, 8 threads, target inside",
        [0.0, 0.0, 6.5],
        "the replay models roughly whether a waiter still spins",
    ),
    // The faster stage has to be woken for every unit, and B pauses for many units at once.
    KnownError(
        GainSource::Confirmed,
        "pipeline, even stages",
        [0.0, 3.5, 4.5],
        "a pause is longer than a unit, so fewer are woken",
    ),
    // The arrival times of requests are estimated from how long clients usually take.
    KnownError(GainSource::Confirmed, "4, arrivals not known", [0.0, 0.0, 4.5], "arrivals are estimated"),
    KnownError(GainSource::Confirmed, "8, arrivals not known", [2.5, 3.5, 9.0], "arrivals are estimated"),
    // At 100 % the whole wall time of a call is delay: every other thread is paused throughout it.
    KnownError(
        GainSource::Confirmed,
        "an upstream, 4",
        [0.0, 0.0, 20.0],
        "pauses cannot try an upstream that takes no time",
    ),
    KnownError(
        GainSource::Confirmed,
        "an upstream of a loop",
        [0.0, 0.0, 24.0],
        "pauses cannot try an upstream that takes no time",
    ),
    KnownError(
        GainSource::Confirmed,
        "an upstream, 32",
        [0.0, 0.0, 100.0],
        "pauses cannot try an upstream that takes no time",
    ),
    KnownError(
        GainSource::Confirmed,
        "two upstreams, the target unlimited",
        [3.2, 3.2, 3.2],
        "pauses of a loop that hardly works are long compared with its work",
    ),
    KnownError(
        GainSource::Confirmed,
        "two upstreams, the target over 2",
        [0.0, 0.0, 160.0],
        "pauses cannot try an upstream that takes no time",
    ),
    // A loop's timers are not held: the whole loop sleeps off their delay.
    KnownError(GainSource::Confirmed, "handlers that sleep", [0.0, 0.0, 4.5], "pauses do not hold timers"),
];

fn allowed(mode: GainSource, case: &Case, speedup: f64, truth: f64) -> f64 {
    let usual = f64::max(2.0, truth.abs() / 10.0);
    let column = [0.25, 0.5, 1.0].iter().position(|&column| column == speedup).expect("a speed-up of the table");
    let known = KNOWN.iter().find(|KnownError(of, name, ..)| *of == mode && case.name.contains(name));
    match known {
        Some(KnownError(_, _, points, why)) if points[column] > usual => {
            println!("    {} may be wrong by {:.1} points: {why}", mode.word(), points[column]);
            points[column]
        }
        _ => usual,
    }
}

fn check(speedup: f64) {
    let head = ("case", "truth", "screen", "confirm", "latency", "screen", "confirm", "slow-down", "ahead");
    println!(
        "{:40} {:>7} {:>7} {:>7} | {:>7} {:>7} {:>7} | {:>9} {:>6}   at {speedup}",
        head.0, head.1, head.2, head.3, head.4, head.5, head.6, head.7, head.8
    );
    let mut wrong = Vec::new();
    for case in cases::all() {
        // Programs with long cycles complete few units per window, and are cheap to simulate: they get more seeds.
        let is_slow = ["lock of 1 ms", "barrier", "20 ms"].iter().any(|name| case.name.contains(name));
        let row = row(&case, speedup, seeds(20) * if is_slow { 24 } else { 1 });
        println!(
            "{:40} {:7.1} {:7.1} {:7.1} | {:7.1} {:7.1} {:7.1} | {:9.1} {:6.1}",
            case.name,
            row.truth,
            row.screened,
            row.confirmed,
            row.latency,
            row.latency_screened,
            row.latency_confirmed,
            row.slow_down,
            row.ahead
        );
        for (mode, predicted) in [(GainSource::Screened, row.screened), (GainSource::Confirmed, row.confirmed)] {
            let allowed = allowed(mode, &case, speedup, row.truth);
            if predicted.is_nan() || (predicted - row.truth).abs() > allowed {
                wrong.push(format!(
                    "{} {}: {predicted:.2}, {:.2} is true, {allowed:.1}",
                    mode.word(),
                    case.name,
                    row.truth
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_quarter() {
    check(0.25);
}

#[test]
fn a_half() {
    check(0.5);
}

#[test]
fn the_whole() {
    check(1.0);
}

// A target without effect, repeated: at most 5 false alarms of 100, in either mode. An alarm is a 95 % interval that
// excludes 0 after it is widened by 0.3 points for the instrument, as reports do.
#[test]
fn false_alarms() {
    let program = cases::worthless(4);
    let runs = seeds(20) * 20;
    let plan = WindowPlan { warm_up: 20 * MS, window: 30 * MS, rest: 5 * MS, windows: 6 };
    let mut alarms = [0, 0];
    for seed in 1..=runs {
        let weights = weights(&program, seed, 30 * MS);
        let screened = screen(&record(&program, seed, plan), &weights, 0.5, LoadModel::Closed);
        let confirmed = confirm(&program, seed, &Experiment { weights: Some(&weights), speedup: 0.5 }, plan).pairs;
        for (mode, pairs) in [screened, confirmed].iter().enumerate() {
            let ratios: Vec<f64> =
                pairs.iter().map(|(was, is)| (is.point(0).ns_per_unit / was.point(0).ns_per_unit).ln()).collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let squares = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>();
            let error = (squares / (ratios.len() * (ratios.len() - 1)) as f64).sqrt();
            // Student's t of 5 degrees of freedom.
            alarms[mode] += usize::from(mean.abs() > 2.571 * error + 0.003);
        }
    }
    println!("false alarms of {runs}: screened {}, confirmed {}", alarms[0], alarms[1]);
    assert!(alarms.iter().all(|&alarms| alarms as u64 * 20 <= runs), "{alarms:?} of {runs}");
}

// The load probe pauses everything for a part of the time: a closed load loses that part of its units, an open one
// loses none.
#[test]
fn a_probe_distinguishes_a_closed_load_from_an_open_one() {
    let plan = WindowPlan { warm_up: 20 * MS, window: 125 * MS, rest: 10 * MS, windows: 2 };
    let time = (plan.windows as u64 * plan.window) as f64;
    let cases = [
        ("2 connections", cases::loops(1, 2, &cases::request()), LoadKind::Closed),
        ("32 connections", cases::loops(1, 32, &cases::request()), LoadKind::Closed),
        ("64 connections, 40 ms away", cases::far(64, 40 * MS), LoadKind::Closed),
        ("a pipeline", cases::pipeline(20_000, 50_000, true), LoadKind::Closed),
        ("10 k/s on 16 connections", cases::open(16, 10_000), LoadKind::Limited),
        ("10 k/s on 400, each every 40 ms", cases::open(400, 10_000), LoadKind::Limited),
    ];
    for (name, program, kind) in cases {
        let block = |seed| {
            let probed = confirm(&program, seed, &Experiment { weights: None, speedup: 0.0 }, plan);
            ProbeBlock {
                control: [probed.units.0 as f64, time],
                paused: [probed.units.1 as f64, time],
                pauses: probed.delayed as f64,
                held: probed.held as f64 / plan.window as f64,
            }
        };
        let blocks: Vec<ProbeBlock> = (1..=12).map(block).collect();
        let verdict = judge(&blocks, 0.5, ClientBehaviour::default());
        println!("{name}: {verdict:?}");
        assert_eq!((verdict.kind, verdict.blocks), (kind, 12), "{name}: {verdict:?}");
    }
}
