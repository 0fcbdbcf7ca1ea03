//! The current profile, and the report of the last one.
//!
//! ```text
//!       start               threads are running           ended, or was stopped              report collected
//! free ───────► Starting ─────────────────────► Running ─────────────────────► Finishing ─────────────────────► free, …
//! ```
//!
//! Beginning and ending take long, so neither happens under the lock. A disconnect or a reload therefore never waits.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causal::report::{Reason, ReasonCode, Report};

use super::super::response::AdminResponse;
use super::options::ProfileOptions;

/// A profile after its start.
pub(super) trait ProfileRun: Send {
    /// Returns the progress; `number` is left at 0. Does not block.
    fn progress(&self) -> ProfileSnapshot;
    /// Stops the profile early.
    fn stop(&self);
    /// Waits for the end of the profile and returns its report.
    fn finish(self: Box<Self>) -> Report;
}

/// Starts a profile.
pub(super) type Begin = Box<dyn Fn(&ProfileOptions) -> Result<Box<dyn ProfileRun>, ProfileStartError> + Send + Sync>;

/// The reason why no profile starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProfileStartError {
    /// The process is being profiled by another user of the profiler.
    Running,
    /// Starting failed; the message for the client.
    Failed(String),
}

/// A snapshot of a profile.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfileSnapshot {
    /// The profile's number, counted from 1. 0 before the first profile.
    pub(super) number: u64,
    pub(super) is_running: bool,
    pub(super) phase: String,
    pub(super) elapsed: Duration,
    pub(super) duration: Duration,
    /// The results so far of a running profile, or else the last report.
    pub(super) report: Option<Arc<Report>>,
}

pub(super) struct ProfileRunner {
    begin: Begin,
    held: Mutex<RunnerState>,
}

#[derive(Default)]
struct RunnerState {
    stage: Stage,
    /// Number of profiles started so far, which is also the number of the current one.
    number: u64,
    /// Times since the profile's start at which the configuration was replaced.
    changed_at: Vec<Duration>,
    last: Option<ProfileSnapshot>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Free,
    /// The profile is starting. `is_unwanted` is set when it is stopped before it runs.
    Starting {
        duration: Duration,
        is_unwanted: bool,
    },
    Running(Box<dyn ProfileRun>),
    /// The last snapshot, while a thread waits for the report.
    Finishing(ProfileSnapshot),
}

impl ProfileRunner {
    pub(super) fn new(begin: Begin) -> Self {
        Self { begin, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, RunnerState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the runner after collecting the report of an ended profile. May wait for the profiler's thread, so it must
    /// not run on a worker.
    fn collected(&self) -> MutexGuard<'_, RunnerState> {
        let mut held = self.held();
        let run = match mem::take(&mut held.stage) {
            Stage::Running(run) if !run.progress().is_running => run,
            other => {
                held.stage = other;
                return held;
            }
        };
        let seen = ProfileSnapshot { number: held.number, is_running: true, ..run.progress() };
        // Release the lock during `finish`, which blocks. `Finishing` keeps others from starting or finishing a
        // profile.
        held.stage = Stage::Finishing(seen.clone());
        drop(held);
        // Catch a panic, as in `start`: a stage that stayed `Finishing` would refuse every later profile.
        let finished = catch_unwind(AssertUnwindSafe(|| run.finish()));
        let mut held = self.held();
        let (phase, report) = match finished {
            Ok(mut report) => {
                report.reasons.extend(held.changed());
                ("ended", Some(Arc::new(report)))
            }
            Err(_) => ("failed", None),
        };
        held.last = Some(ProfileSnapshot { is_running: false, phase: phase.into(), report, ..seen });
        held.stage = Stage::Free;
        held
    }

    /// Starts a profile and returns its number. Blocks, as `stop`, `report` and the other methods that return a
    /// `Result`: it must not run on a worker.
    pub(super) fn start(&self, options: &ProfileOptions) -> Result<u64, AdminResponse> {
        let busy = |message: &str| AdminResponse::error(409, message);
        let mut held = self.collected();
        if !matches!(held.stage, Stage::Free) {
            return Err(busy("a profile is running already; POST /causal/stop ends it"));
        }
        held.stage = Stage::Starting { duration: options.seconds, is_unwanted: false };
        held.number += 1;
        held.changed_at.clear();
        let number = held.number;
        drop(held);
        // Catch a panic, so that the stage is reset and another profile can start.
        let begun = catch_unwind(AssertUnwindSafe(|| (self.begin)(options)))
            .unwrap_or_else(|_| Err(ProfileStartError::Failed("the profiler itself failed".into())));
        let mut held = self.held();
        // Resets the stage to `Free` also when starting has failed.
        let before = mem::take(&mut held.stage);
        let run = begun.map_err(|refusal| match refusal {
            ProfileStartError::Running => busy("this process is being profiled already"),
            ProfileStartError::Failed(message) => {
                AdminResponse::error(500, format!("the profile cannot begin: {message}"))
            }
        })?;
        // Stopped while it started. It still becomes `Running`, so that its report is collected.
        if matches!(before, Stage::Starting { is_unwanted: true, .. }) {
            run.stop();
        }
        held.stage = Stage::Running(run);
        Ok(number)
    }

    /// Returns the current profile, or else the last one.
    pub(super) fn snapshot(&self) -> ProfileSnapshot {
        self.collected().now()
    }

    /// Returns the profile with this number, if it is the current or the last ended one.
    pub(super) fn snapshot_of(&self, number: u64) -> Result<ProfileSnapshot, AdminResponse> {
        let held = self.collected();
        let known = [Some(held.now()), held.last.clone()].into_iter().flatten();
        let message = || format!("there is no profile {number}, or another one ended after it");
        known.into_iter().find(|seen| seen.number == number).ok_or_else(|| AdminResponse::error(404, message()))
    }

    /// Stops the current profile and returns its number. With `meant`, stops only that profile.
    pub(super) fn stop(&self, meant: Option<u64>) -> Result<u64, AdminResponse> {
        let mut held = self.collected();
        let number = held.number;
        match meant {
            _ if matches!(held.stage, Stage::Free) => Err(AdminResponse::error(404, "no profile is running")),
            Some(meant) if meant != number => {
                Err(AdminResponse::error(409, format!("profile {number} is running, not {meant}")))
            }
            _ => {
                held.stop();
                Ok(number)
            }
        }
    }

    /// Stops the profile with this number if it is still current. Does not block.
    pub(super) fn abandon(&self, number: u64) {
        let mut held = self.held();
        if held.number == number {
            held.stop();
        }
    }

    /// Records the time of a reload for the report. Does not block.
    pub(super) fn configuration_changed(&self) {
        let mut held = self.held();
        if let Stage::Running(run) = &held.stage {
            let seen = run.progress();
            held.changed_at.extend(seen.is_running.then_some(seen.elapsed));
        }
    }
}

impl ProfileSnapshot {
    /// Returns the report, complete or so far.
    pub(super) fn report(self) -> Result<Arc<Report>, AdminResponse> {
        let message = "there is no report yet; POST /causal/start begins a profile";
        self.report.ok_or_else(|| AdminResponse::error(404, message))
    }
}

impl RunnerState {
    fn now(&self) -> ProfileSnapshot {
        let number = self.number;
        match &self.stage {
            Stage::Free => {
                self.last.clone().unwrap_or(ProfileSnapshot { phase: "idle".into(), ..ProfileSnapshot::default() })
            }
            Stage::Starting { duration, .. } => {
                let (phase, duration) = ("starting".into(), *duration);
                ProfileSnapshot { number, is_running: true, phase, duration, ..ProfileSnapshot::default() }
            }
            Stage::Running(run) => ProfileSnapshot { number, is_running: true, ..run.progress() },
            Stage::Finishing(seen) => seen.clone(),
        }
    }

    fn stop(&mut self) {
        match &mut self.stage {
            Stage::Starting { is_unwanted, .. } => *is_unwanted = true,
            Stage::Running(run) => run.stop(),
            Stage::Free | Stage::Finishing(_) => {}
        }
    }

    /// Returns the report's remark on replaced configurations, if any were.
    fn changed(&self) -> Option<Reason> {
        let first = self.changed_at.first()?;
        let times = match self.changed_at.len() {
            1 => String::new(),
            times => format!(", the first of {times} times"),
        };
        let text = format!(
            "the configuration was replaced {:.1} s after the profile began{times}; the figures mix both configurations",
            first.as_secs_f64(),
        );
        Some(Reason { target: String::new(), code: ReasonCode::Changed, text })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A profile that runs until it is stopped.
    struct Fake(Arc<AtomicBool>);

    impl ProfileRun for Fake {
        fn progress(&self) -> ProfileSnapshot {
            let report = Some(Arc::new(Report { program: "so far".into(), ..Report::default() }));
            let is_running = self.0.load(Ordering::Relaxed);
            ProfileSnapshot {
                is_running,
                phase: "screening".into(),
                elapsed: Duration::from_secs(1),
                report,
                ..ProfileSnapshot::default()
            }
        }

        fn stop(&self) {
            self.0.store(false, Ordering::Relaxed);
        }

        fn finish(self: Box<Self>) -> Report {
            assert!(!self.0.load(Ordering::Relaxed));
            Report { program: "found".into(), ..Report::default() }
        }
    }

    fn runner() -> (ProfileRunner, Arc<AtomicBool>) {
        let runs = Arc::new(AtomicBool::new(false));
        let run = Arc::clone(&runs);
        let begin = move |_: &ProfileOptions| {
            run.store(true, Ordering::Relaxed);
            Ok(Box::new(Fake(Arc::clone(&run))) as Box<dyn ProfileRun>)
        };
        (ProfileRunner::new(Box::new(begin)), runs)
    }

    #[test]
    fn one_at_a_time() {
        let (runner, _) = runner();
        assert_eq!(runner.snapshot().report().unwrap_err().status_and_error().0, 404);
        assert_eq!(runner.stop(None).unwrap_err().status_and_error(), (404, "no profile is running"));
        assert_eq!(runner.snapshot().phase, "idle");
        assert_eq!(runner.start(&ProfileOptions::default()).unwrap(), 1);
        let again = runner.start(&ProfileOptions::default()).unwrap_err();
        assert_eq!(again.status_and_error(), (409, "a profile is running already; POST /causal/stop ends it"));
        let seen = runner.snapshot();
        assert!(seen.is_running && seen.phase == "screening");
        assert_eq!(seen.report.unwrap().program, "so far");
        runner.stop(None).unwrap();
        let seen = runner.snapshot();
        assert!(!seen.is_running && seen.phase == "ended");
        assert_eq!(runner.snapshot().report().unwrap().program, "found");
        assert_eq!(runner.start(&ProfileOptions::default()).unwrap(), 2);
    }

    /// A profile whose report cannot be made.
    struct Broken;

    impl ProfileRun for Broken {
        fn progress(&self) -> ProfileSnapshot {
            ProfileSnapshot::default()
        }

        fn stop(&self) {}

        fn finish(self: Box<Self>) -> Report {
            panic!("the profiler's own panic")
        }
    }

    #[test]
    fn a_panic_at_the_end_does_not_block_later_profiles() {
        let runner = ProfileRunner::new(Box::new(|_: &ProfileOptions| Ok(Box::new(Broken) as Box<dyn ProfileRun>)));
        for number in 1..3 {
            assert_eq!(runner.start(&ProfileOptions::default()).unwrap(), number);
            let seen = runner.snapshot();
            assert_eq!((seen.number, seen.is_running, &*seen.phase), (number, false, "failed"));
            assert_eq!(seen.report().unwrap_err().status_and_error().0, 404);
        }
    }

    #[test]
    fn each_profile_has_a_number() {
        let (runner, runs) = runner();
        assert_eq!(runner.snapshot().number, 0);
        let first = runner.start(&ProfileOptions::default()).unwrap();
        runs.store(false, Ordering::Relaxed);
        let second = runner.start(&ProfileOptions::default()).unwrap();
        let seen = runner.snapshot_of(first).unwrap();
        assert!(!seen.is_running && seen.number == first);
        assert_eq!(seen.report().unwrap().program, "found");
        assert!(runner.snapshot_of(second).unwrap().is_running);
        assert_eq!(runner.snapshot().number, second);
        let other = runner.stop(Some(first)).unwrap_err();
        assert_eq!(other.status_and_error(), (409, "profile 2 is running, not 1"));
        assert_eq!(runner.stop(Some(second)).unwrap(), second);
        assert!(!runner.snapshot_of(second).unwrap().is_running);
        assert_eq!(runner.stop(Some(second)).unwrap_err().status_and_error(), (404, "no profile is running"));
        let gone = (404, "there is no profile 1, or another one ended after it");
        assert_eq!(runner.snapshot_of(first).unwrap_err().status_and_error(), gone);
    }

    /// A starting profile is visible to others without blocking them, and they can stop it.
    #[test]
    fn a_starting_profile_is_visible_and_can_be_stopped() {
        let (inner, runs) = runner();
        let (begins, begun) = std::sync::mpsc::channel();
        let (goes, go) = std::sync::mpsc::channel::<()>();
        let go = Mutex::new(go);
        let begin = move |options: &ProfileOptions| {
            begins.send(()).unwrap();
            go.lock().unwrap().recv().unwrap();
            (inner.begin)(options)
        };
        let runner = Arc::new(ProfileRunner::new(Box::new(begin)));
        let start = {
            let runner = Arc::clone(&runner);
            std::thread::spawn(move || runner.start(&ProfileOptions::default()))
        };
        begun.recv().unwrap();
        let seen = runner.snapshot();
        assert_eq!((seen.number, seen.is_running, &*seen.phase), (1, true, "starting"));
        assert_eq!(runner.start(&ProfileOptions::default()).unwrap_err().status_and_error().0, 409);
        runner.configuration_changed();
        runner.abandon(2);
        runner.abandon(1);
        goes.send(()).unwrap();
        assert_eq!(start.join().unwrap().unwrap(), 1);
        assert!(!runs.load(Ordering::Relaxed));
        assert!(runner.snapshot().report().unwrap().reasons.is_empty());
    }

    #[test]
    fn an_abandoned_profile_does_not_end_a_later_one() {
        let (runner, runs) = runner();
        let first = runner.start(&ProfileOptions::default()).unwrap();
        runs.store(false, Ordering::Relaxed);
        let second = runner.start(&ProfileOptions::default()).unwrap();
        runner.abandon(first);
        assert!(runner.snapshot().is_running);
        runner.abandon(second);
        assert!(!runner.snapshot().is_running);
    }

    #[test]
    fn a_reload_during_a_profile_is_reported() {
        let (runner, _) = runner();
        runner.configuration_changed();
        runner.start(&ProfileOptions::default()).unwrap();
        runner.configuration_changed();
        runner.configuration_changed();
        runner.stop(None).unwrap();
        let report = runner.snapshot().report().unwrap();
        let [reason] = &*report.reasons else { panic!("{:?}", report.reasons) };
        assert_eq!(reason.code, ReasonCode::Changed);
        assert!(reason.text.contains("1.0 s after the profile began, the first of 2 times"), "{}", reason.text);
    }

    #[test]
    fn profiles_that_cannot_start() {
        for (refusal, want) in [
            (ProfileStartError::Running, (409, "this process is being profiled already")),
            (ProfileStartError::Failed("no timers".into()), (500, "the profile cannot begin: no timers")),
        ] {
            let refusal = Mutex::new(Some(refusal));
            let runner = ProfileRunner::new(Box::new(move |_| Err(refusal.lock().unwrap().take().unwrap())));
            assert_eq!(runner.start(&ProfileOptions::default()).unwrap_err().status_and_error(), want);
            assert!(!runner.snapshot().is_running);
        }
        let runner = ProfileRunner::new(Box::new(|_| panic!("on purpose")));
        for _ in 0..2 {
            let message = "the profile cannot begin: the profiler itself failed";
            assert_eq!(runner.start(&ProfileOptions::default()).unwrap_err().status_and_error(), (500, message));
        }
    }
}
