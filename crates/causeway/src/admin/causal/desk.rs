//! The profile that runs, and what the last one found.
//!
//! ```text
//!          start                 it has ended, or was stopped
//! nothing ───────► one runs ─────────────────────────────────► a report ──start──► one runs, …
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causal::report::{Reason, ReasonCode, Report};

use super::super::answer::Answer;
use super::wish::Wish;

/// A profile that runs.
pub(super) trait Run: Send {
    /// How far it is.
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
    run: Option<Box<dyn Run>>,
    /// How many were begun: the number of the one that runs, or of the last one.
    number: u64,
    /// When, within the profile, the configuration was replaced.
    changed_at: Vec<Duration>,
    last: Option<Seen>,
}

impl Desk {
    pub(super) fn new(begin: Begin) -> Self {
        Self { begin, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.collect();
        held
    }

    /// Begins a profile; answers with its number.
    pub(super) fn start(&self, wish: &Wish) -> Result<u64, Answer> {
        let mut held = self.held();
        let busy = |words: &str| Answer::error(409, words);
        if held.run.is_some() {
            return Err(busy("a profile is running already; POST /causal/stop ends it"));
        }
        held.run = Some((self.begin)(wish).map_err(|refusal| match refusal {
            Refusal::Running => busy("this process is being profiled already"),
            Refusal::Failed(words) => Answer::error(500, format!("the profile cannot begin: {words}")),
        })?);
        held.number += 1;
        held.changed_at.clear();
        Ok(held.number)
    }

    pub(super) fn look(&self) -> Seen {
        let held = self.held();
        match &held.run {
            Some(run) => Seen { is_running: true, ..run.progress() },
            None => held.last.clone().unwrap_or(Seen { phase: "idle".into(), ..Seen::default() }),
        }
    }

    /// What was found so far.
    pub(super) fn report(&self) -> Result<Arc<Report>, Answer> {
        let words = "there is no report yet; POST /causal/start begins a profile";
        self.look().report.ok_or_else(|| Answer::error(404, words))
    }

    /// Ends the profile that runs.
    pub(super) fn stop(&self) -> Result<(), Answer> {
        match &self.held().run {
            Some(run) => {
                run.stop();
                Ok(())
            }
            None => Err(Answer::error(404, "no profile is running")),
        }
    }

    /// Ends this one, if it still runs.
    pub(super) fn abandon(&self, number: u64) {
        let held = self.held();
        if let (Some(run), true) = (&held.run, held.number == number) {
            run.stop();
        }
    }

    pub(super) fn configuration_changed(&self) {
        let mut held = self.held();
        if let Some(run) = &held.run {
            let at = run.progress().elapsed;
            held.changed_at.push(at);
        }
    }
}

impl Held {
    /// Takes the report of a profile that has ended.
    fn collect(&mut self) {
        let Some(run) = self.run.take_if(|run| !run.progress().is_running) else { return };
        let seen = run.progress();
        let mut report = run.finish();
        if let Some(first) = self.changed_at.first() {
            let times = match self.changed_at.len() {
                1 => String::new(),
                times => format!(", the first of {times} times"),
            };
            report.reasons.push(Reason {
                target: String::new(),
                code: ReasonCode::Changed,
                text: format!(
                    "the configuration was replaced {:.1} s after the profile began{times}; the figures are of both",
                    first.as_secs_f64(),
                ),
            });
        }
        let (phase, report) = ("ended".into(), Some(Arc::new(report)));
        self.last = Some(Seen { is_running: false, phase, report, ..seen });
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
        assert_eq!(desk.report().unwrap_err().said().0, 404);
        assert_eq!(desk.stop().unwrap_err().said(), (404, "no profile is running"));
        assert_eq!(desk.look().phase, "idle");
        assert_eq!(desk.start(&Wish::default()).unwrap(), 1);
        let again = desk.start(&Wish::default()).unwrap_err();
        assert_eq!(again.said(), (409, "a profile is running already; POST /causal/stop ends it"));
        let seen = desk.look();
        assert!(seen.is_running && seen.phase == "recording");
        assert_eq!(seen.report.unwrap().program, "so far");
        desk.stop().unwrap();
        let seen = desk.look();
        assert!(!seen.is_running && seen.phase == "ended");
        assert_eq!(desk.report().unwrap().program, "found");
        assert_eq!(desk.start(&Wish::default()).unwrap(), 2);
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
        desk.stop().unwrap();
        let report = desk.report().unwrap();
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
    }
}
