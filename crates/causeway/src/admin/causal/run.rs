//! Implements the runner's [`ProfileRun`] with the causal profiler.

use causal::report::{Report, Speech};
use causal::{Modes, Profiler, StartError};

use super::options::{ProfileModes, ProfileOptions};
use super::runner::{ProfileRun, ProfileSnapshot, ProfileStartError};

/// The default progress point. Routes have progress points of their own.
const PRIMARY: &str = "request";

/// Starts the profiler with the parameters of `options`.
pub(super) fn start(options: &ProfileOptions) -> Result<Box<dyn ProfileRun>, ProfileStartError> {
    let mut builder = Profiler::builder().program("causeway").speech(Speech::server()).duration(options.seconds);
    builder = builder.mode(match options.modes {
        ProfileModes::Both => Modes::Both,
        ProfileModes::Screen => Modes::Screen,
        ProfileModes::Confirm => Modes::Confirm,
    });
    if let Some(budget) = options.budget {
        builder = builder.budget(budget);
    }
    if let Some(seed) = options.seed {
        builder = builder.seed(seed);
    }
    for target in &options.targets {
        builder = builder.target(target);
    }
    for progress in options.progress.iter().map(String::as_str).chain(options.progress.is_empty().then_some(PRIMARY)) {
        builder = builder.progress(progress);
    }
    match builder.start() {
        Ok(profiler) => Ok(Box::new(profiler)),
        Err(StartError::Running) => Err(ProfileStartError::Running),
        Err(error) => Err(ProfileStartError::Failed(error.to_string())),
    }
}

impl ProfileRun for Profiler {
    fn progress(&self) -> ProfileSnapshot {
        let status = self.status();
        ProfileSnapshot {
            is_running: !self.is_finished(),
            phase: status.phase.name().to_owned(),
            elapsed: status.elapsed,
            duration: status.duration,
            report: Some(status.report),
            ..ProfileSnapshot::default()
        }
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn finish(self: Box<Self>) -> Report {
        Self::finish(*self)
    }
}
