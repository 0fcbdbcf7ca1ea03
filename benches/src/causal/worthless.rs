//! Case 9: a target that does not affect progress, profiled repeatedly. An interval that excludes 0 is a false alarm.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cases::{CASES, CausalCase, Quantity};
use super::prediction::{ProfileParameters, predict};
use crate::progress::Progress;
use crate::workshop::Workshop;

/// Largest allowed share of false alarms.
const ALARMS_MAX: f64 = 0.05;

/// The results of the repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worthless {
    /// Number of profiles.
    pub asked: usize,
    /// Number of intervals at 50 % that exclude 0.
    pub alarms: usize,
    /// Number of profiles without a prediction.
    pub silent: usize,
    /// The predicted gains.
    pub gains: Vec<f64>,
}

/// Runs `times` profiles, each in a new process.
pub fn run(shop: &Workshop, steps_per_ms: u64, times: usize, seconds: f64, progress: &Progress) -> Result<Worthless> {
    let burner: &CausalCase = CASES.iter().find(|case| case.name == "6").expect("the burner is a case");
    let mut found = Worthless { asked: times, alarms: 0, silent: 0, gains: Vec::new() };
    for time in 0..times {
        let asking = ProfileParameters { seconds, mode: "both" };
        let prediction = predict(shop, burner, steps_per_ms, asking, time)?;
        match prediction.answer(burner, Quantity::Throughput, 50) {
            Ok((answer, _, _)) => {
                found.gains.push(answer.gain);
                if answer.low > 0.0 || answer.high < 0.0 {
                    found.alarms += 1;
                }
            }
            Err(_) => found.silent += 1,
        }
        progress.done((seconds * 1e3) as u64 + 500);
    }
    Ok(found)
}

impl Worthless {
    /// Whether there are few enough false alarms, and no missing prediction.
    pub fn passes(&self) -> bool {
        self.silent == 0 && self.alarms as f64 <= ALARMS_MAX * self.asked as f64
    }
}
