//! The profile that runs, and what the last one found.
//!
//! ```text
//!       start             its threads are there      it is over, or was stopped      its report is there
//! free ───────► it begins ─────────────────────► it runs ───────────────────► it ends ───────────────────► free, …
//! ```
//!
//! Beginning and ending take a while, so neither is done under the lock: who only goes away, or replaces the configuration, never waits.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causal::report::{Reason, ReasonCode, Report};

use super::super::answer::Answer;
use super::wish::Wish;

/// A profile that runs.
pub(super) trait Run: Send {
    /// How far it is, without its number. Does not wait.
    fn progress(&self) -> Seen;
    /// Ends it early.
    fn stop(&self);
    /// What it found, once it runs no more; waits for that.
    fn finish(self: Box<Self>) -> Report;
}

/// Begins a profile, or says why not.
pub(super) type Begin = Box<dyn Fn(&Wish) -> Result<Box<dyn Run>, Refusal> + Send + Sync>;

/// Why no profile begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is one already, of somebody else's in this process.
    Running,
    /// It cannot be, with words.
    Failed(String),
}

/// What there is to see.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Which profile it is: they are counted from 1. 0 before the first.
    pub(super) number: u64,
    pub(super) is_running: bool,
    pub(super) phase: String,
    pub(super) elapsed: Duration,
    pub(super) duration: Duration,
    /// So far, where one runs; else the last one.
    pub(super) report: Option<Arc<Report>>,
}

pub(super) struct Desk {
    begin: Begin,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    stage: Stage,
    /// How many were to begin: the number of the one that is under way, where one is.
    number: u64,
    /// When, within the profile, the configuration was replaced.
    changed_at: Vec<Duration>,
    last: Option<Seen>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Free,
    /// Somebody may say already that it is to end.
    Begins {
        duration: Duration,
        is_unwanted: bool,
    },
    Runs(Box<dyn Run>),
    /// As it was seen last; somebody waits for its report.
    Ends(Seen),
}

impl Desk {
    pub(super) fn new(begin: Begin) -> Self {
        Self { begin, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, after the report of a profile that is over was taken. May wait for the profiler's thread: not for a worker.
    fn collected(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held();
        let run = match mem::take(&mut held.stage) {
            Stage::Runs(run) if !run.progress().is_running => run,
            other => {
                held.stage = other;
                return held;
            }
        };
        let seen = Seen { number: held.number, is_running: true, ..run.progress() };
        held.stage = Stage::Ends(seen.clone());
        drop(held);
        let mut report = run.finish();
        let mut held = self.held();
        report.reasons.extend(held.changed());
        held.last = Some(Seen { is_running: false, phase: "ended".into(), report: Some(Arc::new(report)), ..seen });
        held.stage = Stage::Free;
        held
    }

    /// Begins a profile; answers with its number. Takes a while: not for a worker, as all else that answers.
    pub(super) fn start(&self, wish: &Wish) -> Result<u64, Answer> {
        let busy = |words: &str| Answer::error(409, words);
        let mut held = self.collected();
        if !matches!(held.stage, Stage::Free) {
            return Err(busy("a profile is running already; POST /causal/stop ends it"));
        }
        held.stage = Stage::Begins { duration: wish.seconds, is_unwanted: false };
        held.number += 1;
        held.changed_at.clear();
        let number = held.number;
        drop(held);
        // After a panic another one can still begin.
        let begun = catch_unwind(AssertUnwindSafe(|| (self.begin)(wish)))
            .unwrap_or_else(|_| Err(Refusal::Failed("the profiler itself failed".into())));
        let mut held = self.held();
        let before = mem::take(&mut held.stage);
        let run = begun.map_err(|refusal| match refusal {
            Refusal::Running => busy("this process is being profiled already"),
            Refusal::Failed(words) => Answer::error(500, format!("the profile cannot begin: {words}")),
        })?;
        if matches!(before, Stage::Begins { is_unwanted: true, .. }) {
            run.stop();
        }
        held.stage = Stage::Runs(run);
        Ok(number)
    }

    /// The profile that is under way, else the last one.
    pub(super) fn look(&self) -> Seen {
        self.collected().now()
    }

    /// A profile by its number: the one that is under way, or the last one that ended.
    pub(super) fn look_at(&self, number: u64) -> Result<Seen, Answer> {
        let held = self.collected();
        let known = [Some(held.now()), held.last.clone()].into_iter().flatten();
        let words = || format!("there is no profile {number}, or another one ended after it");
        known.into_iter().find(|seen| seen.number == number).ok_or_else(|| Answer::error(404, words()))
    }

    /// Ends the profile that is under way, if it is the one that is meant; answers with its number.
    pub(super) fn stop(&self, meant: Option<u64>) -> Result<u64, Answer> {
        let mut held = self.collected();
        let number = held.number;
        match meant {
            _ if matches!(held.stage, Stage::Free) => Err(Answer::error(404, "no profile is running")),
            Some(meant) if meant != number => {
                Err(Answer::error(409, format!("profile {number} is running, not {meant}")))
            }
            _ => {
                held.stop();
                Ok(number)
            }
        }
    }

    /// Ends this one, if it still runs. Does not wait.
    pub(super) fn abandon(&self, number: u64) {
        let mut held = self.held();
        if held.number == number {
            held.stop();
        }
    }

    /// Does not wait.
    pub(super) fn configuration_changed(&self) {
        let mut held = self.held();
        if let Stage::Runs(run) = &held.stage {
            let seen = run.progress();
            held.changed_at.extend(seen.is_running.then_some(seen.elapsed));
        }
    }
}

impl Seen {
    /// What was found, so far or in the end.
    pub(super) fn report(self) -> Result<Arc<Report>, Answer> {
        let words = "there is no report yet; POST /causal/start begins a profile";
        self.report.ok_or_else(|| Answer::error(404, words))
    }
}

impl Held {
    fn now(&self) -> Seen {
        let number = self.number;
        match &self.stage {
            Stage::Free => self.last.clone().unwrap_or(Seen { phase: "idle".into(), ..Seen::default() }),
            Stage::Begins { duration, .. } => {
                let (phase, duration) = ("starting".into(), *duration);
                Seen { number, is_running: true, phase, duration, ..Seen::default() }
            }
            Stage::Runs(run) => Seen { number, is_running: true, ..run.progress() },
            Stage::Ends(seen) => seen.clone(),
        }
    }

    fn stop(&mut self) {
        match &mut self.stage {
            Stage::Begins { is_unwanted, .. } => *is_unwanted = true,
            Stage::Runs(run) => run.stop(),
            Stage::Free | Stage::Ends(_) => {}
        }
    }

    /// What a report has to say of configurations that were replaced.
    fn changed(&self) -> Option<Reason> {
        let first = self.changed_at.first()?;
        let times = match self.changed_at.len() {
            1 => String::new(),
            times => format!(", the first of {times} times"),
        };
        let text = format!(
            "the configuration was replaced {:.1} s after the profile began{times}; the figures are of both",
            first.as_secs_f64(),
        );
        Some(Reason { target: String::new(), code: ReasonCode::Changed, text })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Runs until it is stopped.
    struct Fake(Arc<AtomicBool>);

    impl Run for Fake {
        fn progress(&self) -> Seen {
            let report = Some(Arc::new(Report { program: "so far".into(), ..Report::default() }));
            let is_running = self.0.load(Ordering::Relaxed);
            Seen { is_running, phase: "recording".into(), elapsed: Duration::from_secs(1), report, ..Seen::default() }
        }

        fn stop(&self) {
            self.0.store(false, Ordering::Relaxed);
        }

        fn finish(self: Box<Self>) -> Report {
            assert!(!self.0.load(Ordering::Relaxed));
            Report { program: "found".into(), ..Report::default() }
        }
    }

    fn desk() -> (Desk, Arc<AtomicBool>) {
        let runs = Arc::new(AtomicBool::new(false));
        let run = Arc::clone(&runs);
        let begin = move |_: &Wish| {
            run.store(true, Ordering::Relaxed);
            Ok(Box::new(Fake(Arc::clone(&run))) as Box<dyn Run>)
        };
        (Desk::new(Box::new(begin)), runs)
    }

    #[test]
    fn one_at_a_time() {
        let (desk, _) = desk();
        assert_eq!(desk.look().report().unwrap_err().said().0, 404);
        assert_eq!(desk.stop(None).unwrap_err().said(), (404, "no profile is running"));
        assert_eq!(desk.look().phase, "idle");
        assert_eq!(desk.start(&Wish::default()).unwrap(), 1);
        let again = desk.start(&Wish::default()).unwrap_err();
        assert_eq!(again.said(), (409, "a profile is running already; POST /causal/stop ends it"));
        let seen = desk.look();
        assert!(seen.is_running && seen.phase == "recording");
        assert_eq!(seen.report.unwrap().program, "so far");
        desk.stop(None).unwrap();
        let seen = desk.look();
        assert!(!seen.is_running && seen.phase == "ended");
        assert_eq!(desk.look().report().unwrap().program, "found");
        assert_eq!(desk.start(&Wish::default()).unwrap(), 2);
    }

    #[test]
    fn each_has_its_number() {
        let (desk, runs) = desk();
        assert_eq!(desk.look().number, 0);
        let first = desk.start(&Wish::default()).unwrap();
        runs.store(false, Ordering::Relaxed);
        let second = desk.start(&Wish::default()).unwrap();
        let seen = desk.look_at(first).unwrap();
        assert!(!seen.is_running && seen.number == first);
        assert_eq!(seen.report().unwrap().program, "found");
        assert!(desk.look_at(second).unwrap().is_running);
        assert_eq!(desk.look().number, second);
        let other = desk.stop(Some(first)).unwrap_err();
        assert_eq!(other.said(), (409, "profile 2 is running, not 1"));
        assert_eq!(desk.stop(Some(second)).unwrap(), second);
        assert!(!desk.look_at(second).unwrap().is_running);
        assert_eq!(desk.stop(Some(second)).unwrap_err().said(), (404, "no profile is running"));
        let gone = (404, "there is no profile 1, or another one ended after it");
        assert_eq!(desk.look_at(first).unwrap_err().said(), gone);
    }

    /// Nobody waits for a profile that begins; whoever wants its end meanwhile gets it.
    #[test]
    fn one_that_begins_is_seen_and_stopped() {
        let (inner, runs) = desk();
        let (begins, begun) = std::sync::mpsc::channel();
        let (goes, go) = std::sync::mpsc::channel::<()>();
        let go = Mutex::new(go);
        let begin = move |wish: &Wish| {
            begins.send(()).unwrap();
            go.lock().unwrap().recv().unwrap();
            (inner.begin)(wish)
        };
        let desk = Arc::new(Desk::new(Box::new(begin)));
        let start = {
            let desk = Arc::clone(&desk);
            std::thread::spawn(move || desk.start(&Wish::default()))
        };
        begun.recv().unwrap();
        let seen = desk.look();
        assert_eq!((seen.number, seen.is_running, &*seen.phase), (1, true, "starting"));
        assert_eq!(desk.start(&Wish::default()).unwrap_err().said().0, 409);
        desk.configuration_changed();
        desk.abandon(2);
        desk.abandon(1);
        goes.send(()).unwrap();
        assert_eq!(start.join().unwrap().unwrap(), 1);
        assert!(!runs.load(Ordering::Relaxed));
        assert!(desk.look().report().unwrap().reasons.is_empty());
    }

    #[test]
    fn who_goes_ends_only_their_own() {
        let (desk, runs) = desk();
        let first = desk.start(&Wish::default()).unwrap();
        runs.store(false, Ordering::Relaxed);
        let second = desk.start(&Wish::default()).unwrap();
        desk.abandon(first);
        assert!(desk.look().is_running);
        desk.abandon(second);
        assert!(!desk.look().is_running);
    }

    #[test]
    fn a_reload_in_the_middle_is_told() {
        let (desk, _) = desk();
        desk.configuration_changed();
        desk.start(&Wish::default()).unwrap();
        desk.configuration_changed();
        desk.configuration_changed();
        desk.stop(None).unwrap();
        let report = desk.look().report().unwrap();
        let [reason] = &*report.reasons else { panic!("{:?}", report.reasons) };
        assert_eq!(reason.code, ReasonCode::Changed);
        assert!(reason.text.contains("1.0 s after the profile began, the first of 2 times"), "{}", reason.text);
    }

    #[test]
    fn what_cannot_begin() {
        for (refusal, want) in [
            (Refusal::Running, (409, "this process is being profiled already")),
            (Refusal::Failed("no timers".into()), (500, "the profile cannot begin: no timers")),
        ] {
            let refusal = Mutex::new(Some(refusal));
            let desk = Desk::new(Box::new(move |_| Err(refusal.lock().unwrap().take().unwrap())));
            assert_eq!(desk.start(&Wish::default()).unwrap_err().said(), want);
            assert!(!desk.look().is_running);
        }
        let desk = Desk::new(Box::new(|_| panic!("on purpose")));
        for _ in 0..2 {
            let words = "the profile cannot begin: the profiler itself failed";
            assert_eq!(desk.start(&Wish::default()).unwrap_err().said(), (500, words));
        }
    }
}
