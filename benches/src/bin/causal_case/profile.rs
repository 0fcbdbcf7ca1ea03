//! Runs the causal profiler once in this process and returns its report. The parameters are JSON: `seconds`, `mode`
//! (`both`, `screen`, `confirm`), `targets` (empty for all), `seed`, and `budget` to override the profiler's default.

use std::time::Duration;

use causal::profiler::{Modes, Profiler};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct ProfileArguments {
    seconds: f64,
    mode: String,
    targets: Vec<String>,
    seed: u64,
    budget: Option<f64>,
}

/// Returns `{"report": …}` or `{"error": …}`.
pub(crate) fn run(asked: &str) -> Value {
    match profile(asked) {
        Ok(report) => json!({ "report": report }),
        Err(error) => json!({ "error": error }),
    }
}

fn profile(asked: &str) -> Result<causal::report::Report, String> {
    let asked: ProfileArguments = serde_json::from_str(asked).map_err(|error| format!("'{asked}': {error}"))?;
    let mode = match asked.mode.as_str() {
        "both" => Modes::Both,
        "screen" => Modes::Screen,
        "confirm" => Modes::Confirm,
        other => return Err(format!("mode '{other}' is none of both, screen, confirm")),
    };
    let duration = Duration::from_secs_f64(asked.seconds);
    let mut builder = Profiler::builder().program("causal_case").duration(duration).mode(mode).seed(asked.seed);
    if let Some(budget) = asked.budget {
        builder = builder.budget(budget);
    }
    for target in asked.targets {
        builder = builder.target(target);
    }
    let profiler = builder.start().map_err(|error| error.to_string())?;
    while !profiler.is_finished() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(profiler.finish())
}
