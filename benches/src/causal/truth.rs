//! The measured effect: the knob alternates between 0 and v, in a process in which no profiler ever ran. In an open
//! loop both stretches of a pair use equal arrival times (common random numbers), which differ from pair to pair.

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cases::{CausalCase, Quantity};
use super::program::{RunningProgram, Stretch};
use crate::stats;
use crate::workshop::Workshop;

/// Settling time after each change of the knob.
const SETTLE: Duration = Duration::from_millis(150);

/// The measured gain at one speed-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// The measured quantity.
    pub quantity: Quantity,
    /// The reduction in percent.
    pub speedup: u32,
    /// The centre of the pairs' gains: see [`stats::centre`].
    pub gain: f64,
    /// Half of its 95 % interval.
    pub half: f64,
    /// Median time of a unit with the knob at 0, in ns.
    pub baseline_ns: f64,
    /// The gain of each pair.
    pub pairs: Vec<f64>,
    /// Median over all stretches of the share of time that the program waited for its cores.
    pub disturbed: f64,
}

/// Measures all quantities of the case at each speed-up, in blocks of 0, v, v, 0.
pub fn measure(
    shop: &Workshop,
    case: &CausalCase,
    steps_per_ms: u64,
    speedups: &[u32],
    blocks: usize,
    stretch: Duration,
) -> Result<Vec<Truth>> {
    let mut running = RunningProgram::start(shop, case, steps_per_ms)?;
    std::thread::sleep(Duration::from_millis(500));
    let mut pairs: Vec<Vec<(Stretch, Stretch)>> = vec![Vec::new(); speedups.len()];
    let mut crowds = 0;
    // Alternate the speed-ups, so that drift affects all of them.
    for _ in 0..blocks {
        for (&speedup, pairs) in speedups.iter().zip(&mut pairs) {
            let mut at = |percent, crowd| -> Result<Stretch> {
                running.turn(percent)?;
                running.repeat(crowd);
                std::thread::sleep(SETTLE);
                let mark = running.mark()?;
                std::thread::sleep(stretch);
                running.since(&mark)
            };
            crowds += 2;
            let (one, other) = (crowds - 1, crowds);
            let (first, second, third, fourth) = (at(0, one)?, at(speedup, one)?, at(speedup, other)?, at(0, other)?);
            pairs.push((first, second));
            pairs.push((fourth, third));
        }
    }
    let quantities = case.looks_at.iter().flat_map(|&quantity| {
        speedups.iter().zip(&pairs).map(move |(&speedup, pairs)| truth(quantity, speedup, pairs))
    });
    Ok(quantities.collect())
}

fn truth(quantity: Quantity, speedup: u32, pairs: &[(Stretch, Stretch)]) -> Truth {
    let gains: Vec<f64> = pairs.iter().map(|(before, after)| 1.0 - after.of(quantity) / before.of(quantity)).collect();
    let baseline: Vec<f64> = pairs.iter().map(|(before, _)| before.of(quantity)).collect();
    let disturbed: Vec<f64> = pairs.iter().flat_map(|(before, after)| [before.disturbed, after.disturbed]).collect();
    // A disturbance is equally likely in both stretches of a pair, so the logarithms of the ratios are symmetric about
    // the truth.
    let left: Vec<f64> = gains.iter().map(|gain| (1.0 - gain).ln()).collect();
    let (left, interval) = stats::centre(&left);
    let [low, high] = interval.map(f64::exp);
    Truth {
        quantity,
        speedup,
        gain: 1.0 - left.exp(),
        half: (high - low) / 2.0,
        baseline_ns: stats::median(&baseline),
        disturbed: stats::median(&disturbed),
        pairs: gains,
    }
}
