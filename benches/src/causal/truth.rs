//! What really happens: the knob at 0 and at v by turns, in a process in which no profiler ever ran.

use std::time::Duration;

use anyhow::Result;
use causal::statistics::Stream;
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
    /// Mean of the pairs' gains.
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
    // The speed-ups by turns, so that what drifts meets all.
    for _ in 0..blocks {
        for (&speedup, pairs) in speedups.iter().zip(&mut pairs) {
            let mut at = |percent| -> Result<Stretch> {
                running.turn(percent)?;
                std::thread::sleep(SETTLE);
                let mark = running.mark()?;
                std::thread::sleep(stretch);
                running.since(&mark)
            };
            let (first, second, third, fourth) = (at(0)?, at(speedup)?, at(speedup)?, at(0)?);
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
    let mut mean = Stream::default();
    gains.iter().for_each(|&gain| mean.push(gain));
    Truth {
        quantity,
        speedup,
        gain: mean.mean(),
        half: mean.estimate().map_or(f64::INFINITY, |mean| mean.half_width()),
        baseline_ns: stats::median(&baseline),
        disturbed: stats::median(&disturbed),
        pairs: gains,
    }
}
