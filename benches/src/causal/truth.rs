//! What really happens: the knob at 0 and at v by turns, in a process in which no profiler ever ran. Where requests come at their own pace,
//! the same crowd comes in both stretches of a pair (common random numbers), another one in each pair.

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cases::{Case, Quantity};
use super::program::{Running, Stretch};
use crate::stats;
use crate::workshop::Workshop;

/// Time that a program gets after a turn of the knob until it counts.
const SETTLE: Duration = Duration::from_millis(150);

/// The gain at one speed-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// Of what.
    pub quantity: Quantity,
    /// Percent that were cut.
    pub speedup: u32,
    /// What most pairs lie around: see [`stats::centre`].
    pub gain: f64,
    /// Half of its 95 % interval.
    pub half: f64,
    /// Median of what a unit took with the knob at 0, ns.
    pub baseline_ns: f64,
    /// Each pair's.
    pub pairs: Vec<f64>,
    /// The part of its time that the program waited while others had its cores, the median of all stretches.
    pub disturbed: f64,
}

/// Measures all of the case's quantities at the speed-ups, by blocks of 0, v, v, 0.
pub fn measure(
    shop: &Workshop,
    case: &Case,
    steps_per_ms: u64,
    speedups: &[u32],
    blocks: usize,
    stretch: Duration,
) -> Result<Vec<Truth>> {
    let mut running = Running::start(shop, case, steps_per_ms)?;
    std::thread::sleep(Duration::from_millis(500));
    let mut pairs: Vec<Vec<(Stretch, Stretch)>> = vec![Vec::new(); speedups.len()];
    let mut crowds = 0;
    // The speed-ups by turns, so that what drifts meets all.
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
    // The host is as likely to disturb the one as the other, so it is their logarithms that lie evenly around what is true.
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
