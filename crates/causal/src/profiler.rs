//! The run of a profile: what is asked, what is done about it, and how it stands.
//!
//! - `controller`: carries out the plan: opens and closes windows, takes samples, asks for what follows from them.
//! - `live`: the program that this process is, as the controller sees it.

mod controller;
mod live;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::estimate::Request;
use crate::report::{Reason, ReasonCode, Report, Speech};
use crate::sample::{Rate, SampleError};

/// Which ways a profile goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// All targets are screened, the most worthwhile confirmed.
    #[default]
    Both,
    /// Screening alone: nothing is paused for a target's sake. The load is still tried, within the budget, because what a gain is
    /// worth hangs on it; with a budget of 0 it is not.
    Screen,
    /// Confirming alone: screening chooses whom, if nobody is named.
    Confirm,
}

/// What a profile shall do; made by [`Profiler::builder`].
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

/// The largest part of the time that may be given away.
const BUDGET_MAX: f64 = 0.25;
/// The longest profile.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Of a page's curve.
const SPEEDUPS: [f64; 11] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0];

impl Builder {
    /// How long to measure; 30 s unless said otherwise.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// The part of the time that the profile may take from the program, from 0 to a quarter; 0.03 unless said otherwise. Pauses are made of
    /// what hooks and the profiler's own threads leave of it.
    #[must_use]
    pub fn budget(mut self, budget: f64) -> Self {
        self.budget = budget;
        self
    }

    /// Looks at this target only: its name, or a part of it. May be said again for more.
    #[must_use]
    pub fn target(mut self, name: impl Into<String>) -> Self {
        self.targets.push(name.into());
        self
    }

    /// The progress point that curves are of; the one with most hits unless said otherwise. May be said again for more.
    #[must_use]
    pub fn progress(mut self, name: impl Into<String>) -> Self {
        self.progress.push(name.into());
        self
    }

    /// Which ways it goes.
    #[must_use]
    pub fn mode(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    /// The speed-ups of the curves, above 0 and up to 1.
    #[must_use]
    pub fn speedups(mut self, speedups: &[f64]) -> Self {
        self.speedups = speedups.to_vec();
        self
    }

    /// Of all chance: which windows come when. From the clock unless said otherwise.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Samples by wall time, a thousand a second, at a cost of 3 to 5 %. See [`Rate::Wall`].
    #[must_use]
    pub fn wall_clock_sampler(mut self) -> Self {
        self.rate = Rate::Wall;
        self
    }

    /// What the report calls the program; the executable's name unless said otherwise.
    #[must_use]
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.program = Some(name.into());
        self
    }

    /// How the report's sentences speak of the program.
    #[must_use]
    pub fn speech(mut self, speech: Speech) -> Self {
        self.speech = speech;
        self
    }

    /// Ends as soon as the intervals of the best five targets are within a percentage point, or it is sure that nothing gives as much.
    #[must_use]
    pub fn until_precise(mut self) -> Self {
        self.until_precise = true;
        self
    }

    /// Begins. The calling thread is registered with the profiler, too.
    ///
    /// # Errors
    /// When what is asked makes no sense, a profile runs already, or the program does not allow one.
    pub fn start(self) -> Result<Profiler, StartError> {
        let request = self.request()?;
        let slot = Slot::take()?;
        live::prepare()?;
        let live = live::Live::start(self.rate, request.clone())?;
        let seed = self.seed.unwrap_or_else(|| {
            u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos())
        });
        let duration = self.duration;
        let shared = Arc::new(Shared {
            stop: live.stop().clone(),
            began: Instant::now(),
            standing: Mutex::new(Standing {
                phase: Phase::Screening,
                elapsed: Duration::ZERO,
                report: Arc::new(request.report()),
            }),
        });
        let run = controller::Run { request, duration, seed, until_precise: self.until_precise };
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("causal".into())
            .spawn(move || {
                // Dropped in this order, whatever happens: hooks off, then free for another profile, then finished.
                let _finished = Finished(seen.clone());
                let _slot = slot;
                let mut live = live;
                let report = run.carry_out(&mut live, &mut |phase, report| seen.publish(phase, report));
                drop(live);
                report
            })
            .map_err(StartError::Thread)?;
        Ok(Profiler { shared, duration, thread: Some(thread) })
    }

    /// What is asked, if it makes sense.
    fn request(&self) -> Result<Request, StartError> {
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
            return Err(StartError::Speedup(0.0));
        }
        speedups.sort_by(f64::total_cmp);
        speedups.dedup();
        let own = || {
            let path = std::env::current_exe().ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        Ok(Request {
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

/// Why a profile did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Another one runs in this process.
    Running,
    /// The hooks belong to another policy than this profiler's.
    Foreign,
    /// Too short or too long.
    Duration(Duration),
    /// Not a part of the time that may be given away.
    Budget(f64),
    /// Not a speed-up.
    Speedup(f64),
    /// There would be no samples.
    Sampler(SampleError),
    /// The system gave no thread.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("a profile runs already; there can be one in a process at a time"),
            Self::Foreign => f.write_str("the program's hooks were given to another policy than the profiler's"),
            Self::Duration(found) => {
                write!(f, "a profile of {found:?} is not possible; expected more than nothing and at most a day")
            }
            Self::Budget(found) => {
                write!(f, "a budget of {found} is not possible; expected a part of the time from 0 to {BUDGET_MAX}")
            }
            Self::Speedup(found) => write!(f, "{found} is no speed-up; expected one above 0 and up to 1"),
            Self::Sampler(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "the system gave no thread for the profiler: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What a profile does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It records windows, or waits for the next one.
    Screening,
    /// It pauses, for a target or to try the load.
    Confirming,
    /// It has measured and works out what that means.
    Analysing,
    /// The report is final, and another profile may begin.
    Finished,
}

impl Phase {
    /// In a word, for interfaces.
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

/// How a profile stands.
#[derive(Clone, Debug)]
pub struct Status {
    /// What it does.
    pub phase: Phase,
    /// How long it has measured.
    pub elapsed: Duration,
    /// How long it is to measure.
    pub duration: Duration,
    /// What is known so far; redone about once a second.
    pub report: Arc<Report>,
}

/// A profile of this process, under way or finished. Dropped before it is finished it ends at the next window's end.
#[derive(Debug)]
pub struct Profiler {
    shared: Arc<Shared>,
    duration: Duration,
    thread: Option<JoinHandle<Report>>,
}

impl Profiler {
    /// A profile that is to be described.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            duration: Duration::from_secs(30),
            budget: 0.03,
            targets: Vec::new(),
            progress: Vec::new(),
            modes: Modes::default(),
            speedups: SPEEDUPS.to_vec(),
            seed: None,
            rate: Rate::Cpu,
            program: None,
            speech: Speech::default(),
            until_precise: false,
        }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let standing = self.shared.standing();
        let elapsed = match standing.phase {
            Phase::Screening | Phase::Confirming => self.shared.began.elapsed().min(self.duration),
            Phase::Analysing | Phase::Finished => standing.elapsed,
        };
        Status { phase: standing.phase, elapsed, duration: self.duration, report: standing.report.clone() }
    }

    /// Ends it at the next occasion, within milliseconds; what was measured is still reported.
    pub fn stop(&self) {
        self.shared.stop.stop();
    }

    /// Whether the report is there, and another profile may begin.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.standing().phase == Phase::Finished
    }

    /// Waits for the end, and for what it all means: a few seconds more than the duration.
    #[must_use]
    pub fn finish(mut self) -> Report {
        let report = self.thread.take().map(JoinHandle::join);
        match report {
            Some(Ok(report)) => report,
            _ => {
                // A panic of the profiler's own: what is known until then is better than nothing.
                let mut report = Report::clone(&self.shared.standing().report);
                let text = "the profiler itself failed; this is what was known shortly before".to_owned();
                report.reasons.push(Reason { target: String::new(), code: ReasonCode::Stopped, text });
                report
            }
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.shared.stop.stop();
    }
}

/// What the profiler's thread and its owner share.
#[derive(Debug)]
struct Shared {
    stop: Arc<Stop>,
    began: Instant,
    standing: Mutex<Standing>,
}

#[derive(Debug)]
struct Standing {
    phase: Phase,
    elapsed: Duration,
    report: Arc<Report>,
}

impl Shared {
    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, phase: Phase, report: Option<Report>) {
        let mut standing = self.standing();
        if matches!(standing.phase, Phase::Screening | Phase::Confirming) {
            standing.elapsed = self.began.elapsed();
        }
        standing.phase = phase;
        if let Some(report) = report {
            standing.report = Arc::new(report);
        }
    }
}

/// Says that nothing more will come, also when the thread panics.
struct Finished(Arc<Shared>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.publish(Phase::Finished, None);
    }
}

/// Somebody's wish that a profile ends.
#[derive(Debug, Default)]
struct Stop {
    wished: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    fn stop(&self) {
        *self.wished.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    fn is_wished(&self) -> bool {
        *self.wished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, but not longer than until the wish.
    fn sleep(&self, length: Duration) {
        let wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.told.wait_timeout_while(wished, length, |wished| !*wished));
    }
}

/// The right to profile this process.
#[derive(Debug)]
struct Slot;

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Slot {
    fn take() -> Result<Self, StartError> {
        if TAKEN.swap(true, Ordering::SeqCst) { Err(StartError::Running) } else { Ok(Self) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
