//! The causal profiler, as the desk has it.

use causal::report::{Report, Speech};
use causal::{Modes, Profiler, StartError};

use super::desk::{Refusal, Run, Seen};
use super::wish::{Ways, Wish};

/// The progress that a server is there for; routes are others.
const PRIMARY: &str = "request";

pub(super) fn start(wish: &Wish) -> Result<Box<dyn Run>, Refusal> {
    let mut builder = Profiler::builder().program("causeway").speech(Speech::server()).duration(wish.seconds);
    builder = builder.mode(match wish.ways {
        Ways::Both => Modes::Both,
        Ways::Screen => Modes::Screen,
        Ways::Confirm => Modes::Confirm,
    });
    if let Some(budget) = wish.budget {
        builder = builder.budget(budget);
    }
    if let Some(seed) = wish.seed {
        builder = builder.seed(seed);
    }
    for target in &wish.targets {
        builder = builder.target(target);
    }
    for progress in wish.progress.iter().map(String::as_str).chain(wish.progress.is_empty().then_some(PRIMARY)) {
        builder = builder.progress(progress);
    }
    match builder.start() {
        Ok(profiler) => Ok(Box::new(profiler)),
        Err(StartError::Running) => Err(Refusal::Running),
        Err(error) => Err(Refusal::Failed(error.to_string())),
    }
}

impl Run for Profiler {
    fn progress(&self) -> Seen {
        let status = self.status();
        Seen {
            is_running: !self.is_finished(),
            phase: status.phase.name().to_owned(),
            elapsed: status.elapsed,
            duration: status.duration,
            report: Some(status.report),
            ..Seen::default()
        }
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn finish(self: Box<Self>) -> Report {
        Self::finish(*self)
    }
}
