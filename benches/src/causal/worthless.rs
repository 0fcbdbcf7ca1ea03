//! Case 9: a target whose time does not matter, profiled again and again. An interval that leaves out 0 is a false alarm.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cases::{CASES, Case, Quantity};
use super::prediction::{Asking, predict};
use crate::progress::Progress;
use crate::workshop::Workshop;

/// False alarms of a hundred that are allowed.
const ALARMS_MAX: f64 = 0.05;

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worthless {
    /// How often it was asked.
    pub asked: usize,
    /// How often the interval at 50 % left out 0.
    pub alarms: usize,
    /// How often there was no answer.
    pub silent: usize,
    /// The gains that were said.
    pub gains: Vec<f64>,
}

/// Asks so often, each time in a fresh process.
pub fn run(shop: &Workshop, steps_per_ms: u64, times: usize, seconds: f64, progress: &Progress) -> Result<Worthless> {
    let burner: &Case = CASES.iter().find(|case| case.name == "6").expect("the burner is a case");
    let mut found = Worthless { asked: times, alarms: 0, silent: 0, gains: Vec::new() };
    for time in 0..times {
        let asking = Asking { seconds, mode: "both" };
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
    /// Whether there are few enough alarms and always an answer.
    pub fn passes(&self) -> bool {
        self.silent == 0 && self.alarms as f64 <= ALARMS_MAX * self.asked as f64
    }
}
