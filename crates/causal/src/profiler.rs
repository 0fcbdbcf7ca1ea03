//! Runs a profile: its settings, its thread, and its status.
//!
//! - `controller`: carries out the plan: opens and closes windows, takes samples, requests results.
//! - `live`: this process as the program that the controller profiles.

mod controller;
mod live;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::constants::{BUDGET_MAX, CURVE_SPEEDUPS};
use crate::estimate::ProfileRequest;
use crate::report::{Report, Speech};
use crate::sample::{Rate, SampleError};

/// The modes that a profile uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// Screen all targets, and confirm the best.
    #[default]
    Both,
    /// Only screen: no pauses for targets. Load probes still run within the budget, because the meaning of a gain
    /// depends on the load; a budget of 0 disables them.
    Screen,
    /// Only confirm: screening selects the targets if none are named.
    Confirm,
}

/// The settings of a profile; made by [`Profiler::builder`].
///
/// ```no_run
/// # use std::time::Duration;
/// let profiler = causal::Profiler::builder().duration(Duration::from_secs(10)).start()?;
/// // … the program's work …
/// let report = profiler.finish();
/// # Ok::<(), causal::StartError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    duration: Duration,
    budget: f64,
    targets: Vec<String>,
    progress: Vec<String>,
    modes: Modes,
    speedups: Vec<f64>,
    seed: Option<u64>,
    rate: Rate,
    program: Option<String>,
    speech: Speech,
    until_precise: bool,
}

/// Maximum length of a profile.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

impl Builder {
    /// Sets the length of the measurement; default 30 s.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Sets the fraction of the time that the profile may cost the program, from 0 to 0.25; default 0.03. Hooks and the
    /// profiler's own threads use part of it; the rest is for pauses.
    #[must_use]
    pub fn budget(mut self, budget: f64) -> Self {
        self.budget = budget;
        self
    }

    /// Considers only this target, by its name or a part of it. Call it again for further targets.
    #[must_use]
    pub fn target(mut self, name: impl Into<String>) -> Self {
        self.targets.push(name.into());
        self
    }

    /// Sets the main progress point; default: the one with most hits. Call it again for further points.
    #[must_use]
    pub fn progress(mut self, name: impl Into<String>) -> Self {
        self.progress.push(name.into());
        self
    }

    /// Sets the modes to use; default [`Modes::Both`].
    #[must_use]
    pub fn mode(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    /// Sets the speed-ups of the curves, above 0 and up to 1.
    #[must_use]
    pub fn speedups(mut self, speedups: &[f64]) -> Self {
        self.speedups = speedups.to_vec();
        self
    }

    /// Seeds the random schedule of windows; by default from the clock.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Samples by wall time, 1000 a second, at a cost of 3 to 5 %. See [`Rate::Wall`].
    #[must_use]
    pub fn wall_clock_sampler(mut self) -> Self {
        self.rate = Rate::Wall;
        self
    }

    /// Sets the program's name in the report; default: the file name of the executable.
    #[must_use]
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Sets the wording for the program in the report's sentences.
    #[must_use]
    pub fn speech(mut self, speech: Speech) -> Self {
        self.speech = speech;
        self
    }

    /// Ends the profile as soon as the intervals of the best five targets are within one percentage point, or certainly
    /// no target gains as much.
    #[must_use]
    pub fn until_precise(mut self) -> Self {
        self.until_precise = true;
        self
    }

    /// Starts the profile on a thread of its own. Registers the calling thread with the profiler.
    ///
    /// # Errors
    /// If a setting is invalid, another profile is running, or sampling is not possible in this process.
    pub fn start(self) -> Result<Profiler, StartError> {
        let request = self.request()?;
        // Taken before anything is changed in the process, and held until the run is over.
        let permit = ProfilePermit::take()?;
        // The records have ids, and the report gets their names at its end.
        let names = progress::NamePin::new();
        // Fails here, before any thread exists, if this process cannot be sampled.
        live::prepare()?;
        let live = live::ProcessUnderProfile::start(self.rate, request.clone())?;
        // Chance only has to differ between runs: windows must not fall in step with a periodic program.
        let seed = self.seed.unwrap_or_else(|| {
            u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos())
        });
        let duration = self.duration;
        // An empty report from the start, so that a status has one before the first window.
        let shared = Arc::new(ProfileState {
            stop: live.stop().clone(),
            began: Instant::now(),
            published: Mutex::new(PublishedState {
                phase: Phase::Screening,
                elapsed: Duration::ZERO,
                report: Arc::new(request.report()),
            }),
        });
        let run = controller::RunParameters { request, duration, seed, until_precise: self.until_precise };
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("causal".into())
            .spawn(move || {
                // Drop order, also on panic: hooks off, then the permit for another profile, then the final phase.
                let _finished = Finished(seen.clone());
                let _slot = (permit, names);
                let mut live = live;
                let report = run.carry_out(&mut live, &mut |phase, report| seen.publish(phase, report));
                drop(live);
                // The profile's memory is free by now. Clone the report, as the original keeps the freed memory around
                // it from being returned.
                let report = Report::clone(&report);
                seen.publish(Phase::Analysing, Some(report.clone()));
                give_back();
                report
            })
            .map_err(StartError::Thread)?;
        Ok(Profiler { shared, duration, thread: Some(thread) })
    }

    /// Checks the settings.
    fn request(&self) -> Result<ProfileRequest, StartError> {
        // Refused and not clamped: a profile of another length than the requested one would be mistaken for it.
        if self.duration.is_zero() || self.duration > DURATION_MAX {
            return Err(StartError::Duration(self.duration));
        }
        if !(0.0..=BUDGET_MAX).contains(&self.budget) {
            return Err(StartError::Budget(self.budget));
        }
        let mut speedups = self.speedups.clone();
        if let Some(&wrong) = speedups.iter().find(|&&one| !(one > 0.0 && one <= 1.0)) {
            return Err(StartError::Speedup(wrong));
        }
        if speedups.is_empty() {
            return Err(StartError::NoSpeedup);
        }
        // In ascending order, as the curves are drawn and interpolated.
        speedups.sort_by(f64::total_cmp);
        speedups.dedup();
        // The default name: that of the executable.
        let own = || {
            let path = std::env::current_exe().ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        Ok(ProfileRequest {
            program: self.program.clone().or_else(own).unwrap_or_default(),
            speech: self.speech.clone(),
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            targets: self.targets.clone(),
            progress: self.progress.clone(),
            speedups,
            modes: self.modes,
            budget: self.budget,
        })
    }
}

/// Maximum memory of a profile, bytes: its windows, samples, names and replays, and the pages of the program's own file
/// that it touches. Without the data that the first profile of a process keeps for later ones. docs/limits.md describes
/// the behaviour at the limit.
pub const MEMORY_MAX: usize = 96 << 20;

static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

/// Sets a function to call when a profile has freed its memory, whether it finished or was stopped: on the profiler's
/// thread, before the profile counts as finished. Some allocators keep freed memory; the function can make them return
/// it to the system. Only the first call has an effect.
pub fn on_freed(give_back: fn()) {
    let _ = GIVE_BACK.set(give_back);
}

/// Calls the function set by [`on_freed`]: for callers that have freed much memory of a report.
pub fn give_back() {
    if let Some(give_back) = GIVE_BACK.get() {
        give_back();
    }
}

/// The reason why a profile did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Another profile is running in this process.
    Running,
    /// Another policy than this profiler's is installed for the hooks.
    Foreign,
    /// The length is zero or above a day.
    Duration(Duration),
    /// The budget is not between 0 and 0.25.
    Budget(f64),
    /// A speed-up is not above 0 and at most 1.
    Speedup(f64),
    /// There are no speed-ups.
    NoSpeedup,
    /// There would be no samples.
    Sampler(SampleError),
    /// The thread could not be created.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("a profile is already running; a process can run only one at a time"),
            Self::Foreign => f.write_str("another policy than the profiler's is installed for the program's hooks"),
            Self::Duration(found) => {
                write!(f, "a profile of {found:?} is not possible; expected more than 0 s and at most a day")
            }
            Self::Budget(found) => {
                write!(f, "a budget of {found} is not possible; expected a fraction of the time from 0 to {BUDGET_MAX}")
            }
            Self::Speedup(found) => write!(f, "{found} is not a speed-up; expected one above 0 and up to 1"),
            Self::NoSpeedup => f.write_str("there are no speed-ups; expected at least one"),
            Self::Sampler(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start the profiler's thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The current activity of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Records windows, or waits for the next one.
    Screening,
    /// Pauses, for a target or a load probe.
    Confirming,
    /// Has finished measuring, and computes the results.
    Analysing,
    /// The report is final, and another profile may begin.
    Finished,
}

impl Phase {
    /// Returns its name in lower case, for interfaces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Screening => "screening",
            Self::Confirming => "confirming",
            Self::Analysing => "analysing",
            Self::Finished => "finished",
        }
    }
}

/// The status of a profile.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its current activity.
    pub phase: Phase,
    /// Length of the measurement so far.
    pub elapsed: Duration,
    /// Planned length of the measurement.
    pub duration: Duration,
    /// The results so far; updated at most once a second, usually every few seconds (see `ANALYSIS_REST`).
    pub report: Arc<Report>,
}

/// A profile of this process, running or finished. Dropping it stops the profile within milliseconds.
#[derive(Debug)]
pub struct Profiler {
    shared: Arc<ProfileState>,
    duration: Duration,
    thread: Option<JoinHandle<Report>>,
}

impl Profiler {
    /// Returns a builder with the default settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            duration: Duration::from_secs(30),
            budget: 0.03,
            targets: Vec::new(),
            progress: Vec::new(),
            modes: Modes::default(),
            speedups: CURVE_SPEEDUPS.to_vec(),
            seed: None,
            rate: Rate::Cpu,
            program: None,
            speech: Speech::default(),
            until_precise: false,
        }
    }

    /// Returns the current status.
    #[must_use]
    pub fn status(&self) -> Status {
        let published = self.shared.published();
        let elapsed = match published.phase {
            // Reports are seconds apart, so take the time from the clock.
            Phase::Screening | Phase::Confirming => self.shared.began.elapsed().min(self.duration),
            Phase::Analysing | Phase::Finished => published.elapsed,
        };
        Status { phase: published.phase, elapsed, duration: self.duration, report: published.report.clone() }
    }

    /// Stops the measurement within milliseconds; the results so far are still reported.
    pub fn stop(&self) {
        // Asked for and not awaited: `finish` waits, and a handler of a server must not.
        self.shared.stop.stop();
    }

    /// Returns whether the report is final, and another profile may start.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.published().phase == Phase::Finished
    }

    /// Waits for the end of the measurement and the results: a few seconds more than the duration.
    #[must_use]
    pub fn finish(mut self) -> Report {
        let report = self.thread.take().map(JoinHandle::join);
        match report {
            Some(Ok(report)) => report,
            // The profiler's thread panicked: return the last results.
            _ => Report::clone(&self.shared.published().report).before_failure(),
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.shared.stop.stop();
    }
}

/// State shared by the profiler's thread and its owner.
#[derive(Debug)]
struct ProfileState {
    stop: Arc<StopRequest>,
    began: Instant,
    published: Mutex<PublishedState>,
}

#[derive(Debug)]
struct PublishedState {
    phase: Phase,
    elapsed: Duration,
    report: Arc<Report>,
}

impl ProfileState {
    fn published(&self) -> std::sync::MutexGuard<'_, PublishedState> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, phase: Phase, report: Option<Report>) {
        let mut published = self.published();
        // The elapsed time stops with the measurement.
        if matches!(published.phase, Phase::Screening | Phase::Confirming) {
            published.elapsed = self.began.elapsed();
        }
        published.phase = phase;
        // A phase may change without news; the last report stays.
        if let Some(report) = report {
            published.report = Arc::new(report);
        }
    }
}

/// Publishes the final phase when dropped, also if the thread panics.
struct Finished(Arc<ProfileState>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.publish(Phase::Finished, None);
    }
}

/// A request to stop the profile.
#[derive(Debug, Default)]
struct StopRequest {
    requested: Mutex<bool>,
    notifier: Condvar,
}

impl StopRequest {
    fn stop(&self) {
        *self.requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.notifier.notify_all();
    }

    fn is_requested(&self) -> bool {
        *self.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `length`, or until the request.
    fn sleep(&self, length: Duration) {
        let requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        // The predicate, because a condition variable may wake without a cause.
        drop(self.notifier.wait_timeout_while(requested, length, |requested| !*requested));
    }
}

/// The right to profile this process, held by one profile at a time.
#[derive(Debug)]
struct ProfilePermit;

static TAKEN: AtomicBool = AtomicBool::new(false);

impl ProfilePermit {
    fn take() -> Result<Self, StartError> {
        if TAKEN.swap(true, Ordering::SeqCst) { Err(StartError::Running) } else { Ok(Self) }
    }
}

impl Drop for ProfilePermit {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
