//! Predictions against the truth, case by case.

use causeway_causal::ledger::Experiment;
use causeway_causal::replay::Pace;
use causeway_simulator::{Plan, cases, confirm, latency_saved, record, saved, screen, truth, weights};

const MS: u64 = 1_000_000;

#[test]
fn table() {
    let plan = Plan { warm_up: 50 * MS, window: 100 * MS, rest: 20 * MS, windows: 4 };
    let pauses = Plan { window: 150 * MS, windows: 2, ..plan };
    let speedup: f64 = std::env::var("V").map_or(0.5, |v| v.parse().unwrap());
    let seeds: u64 = std::env::var("SEEDS").map_or(4, |v| v.parse().unwrap());
    let only = std::env::var("CASE").unwrap_or_default();
    println!("{:40} {:>7} {:>7} {:>7} | {:>7} {:>7} {:>7} | slow", "case", "truth", "A", "B", "lat", "A", "B");
    for case in cases::all() {
        if !case.name.contains(&only) {
            continue;
        }
        let mut sums = [0.0; 8];
        let mut times = [0.0; 4];
        for seed in 1..=seeds {
            let t = std::time::Instant::now();
            let program = &case.program;
            let weights = weights(program, seed, 300 * MS);
            let pair =
                [(truth(program, seed, 0.0, 50 * MS, 1000 * MS), truth(program, seed, speedup, 50 * MS, 1000 * MS))];
            times[0] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            let traces = record(program, seed, plan);
            times[1] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            let a = screen(&traces, &weights, speedup, if case.is_open { Pace::Open } else { Pace::Closed });
            times[2] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            let b = confirm(program, seed, &Experiment { weights: Some(&weights), speedup }, pauses);
            times[3] += t.elapsed().as_secs_f64();
            sums[0] += saved(&pair, 0);
            sums[1] += saved(&a, 0);
            sums[2] += saved(&b.pairs, 0);
            sums[3] += latency_saved(&pair, 0);
            sums[4] += latency_saved(&a, 0);
            sums[5] += latency_saved(&b.pairs, 0);
            sums[6] += 1.0 - b.units.1 as f64 / b.units.0 as f64;
            sums[7] += b.dropped as f64;
        }
        let s = sums.map(|sum| sum / seeds as f64 * 100.0);
        println!(
            "{:40} {:7.2} {:7.2} {:7.2} | {:7.2} {:7.2} {:7.2} | {:6.1} {:6.0} {:?}",
            case.name,
            s[0],
            s[1],
            s[2],
            s[3],
            s[4],
            s[5],
            s[6],
            s[7] / 100.0,
            times.map(|t| (t * 1000.0 / seeds as f64) as u32)
        );
    }
}
