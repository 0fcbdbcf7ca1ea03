//! Reads a window after its end: as a trace, or as the outcome of pauses.

use std::sync::atomic::Ordering::Relaxed;

use progress::Log;

use super::{COUNT_SHIFT, Recorder, WINDOW_MASK, WindowPurpose};
use crate::ledger::{Ledger, Unit, WindowCost, outcome};
use crate::outcome::WindowOutcome;
use crate::trace::{self, Event, Thread, Trace};
use crate::{clock, kinds, machine};

impl Recorder {
    /// Returns the outcome, in virtual time, and the cost of the last window with pauses. It must be closed.
    pub fn outcome(&self) -> (WindowOutcome, WindowCost) {
        let (began, ended) = (self.began.load(Relaxed), self.ended.load(Relaxed));
        let window = (self.count.load(Relaxed) << COUNT_SHIFT | WindowPurpose::Pause as u32) & WINDOW_MASK;
        let (spent, time) = (self.ledger.cost(ended), ended.saturating_sub(began));
        let (mut units, mut events, mut until) = (Vec::new(), Vec::new(), u64::MAX);
        for account in progress::accounts() {
            if read_log(account.log(), window >> COUNT_SHIFT, &mut events) {
                // A full log lacks the rest of the window, so the window ends here for all threads.
                until = until.min(events.last().map_or(until, |&(at, _)| at));
            }
            for &(at, event) in &events {
                match event {
                    Event::Hit { point } => units.push(Unit { at, point, began: None }),
                    Event::VisitEnded { visit, point } => {
                        // A visit of 0 began before the window.
                        units.push(Unit { at, point, began: Some(visit).filter(|&began| began != 0) });
                    }
                    _ => {}
                }
            }
        }
        // The events have virtual times, and `outcome` leaves out those after the window's end.
        let time = time.min(until.saturating_sub(Ledger::start()) + spent.delayed);
        (outcome(&units, time, spent.delayed), spent)
    }

    /// Returns the number of entries of the open window in its fullest log.
    #[must_use]
    pub fn entries(&self) -> usize {
        let window = self.count.load(Relaxed) & WINDOW_MASK >> COUNT_SHIFT;
        progress::accounts().iter().map(|account| account.log().read(window).len()).max().unwrap_or(0)
    }

    /// Reads the events of the last window into `trace`, reusing its memory. `hook` is the time of one hook,
    /// nanoseconds.
    pub fn take(&self, hook: f64, trace: &mut Trace) {
        let (window, began) = (self.count.load(Relaxed) & WINDOW_MASK >> COUNT_SHIFT, self.began.load(Relaxed));
        // The window may still be open: then `ended` is that of an earlier one.
        let mut ended = Some(self.ended.load(Relaxed)).filter(|&ended| ended >= began).unwrap_or_else(clock::now);
        let mut threads = Vec::new();
        let mut memory = std::mem::take(&mut trace.threads).into_iter().map(|thread| thread.events);
        for account in progress::accounts().into_iter().filter(|account| account.log().read(window).len() > 0) {
            // Reused from the last window, as each one would be allocated and touched anew.
            let mut events = memory.next().unwrap_or_default();
            if read_log(account.log(), window, &mut events) {
                // A full log lacks the rest of the window, so the window ends here for all threads.
                ended = ended.min(events.last().map_or(ended, |&(at, _)| at));
            }
            // `record_in` writes the kind before a thread's first event.
            let kind = match events.first() {
                Some(&(_, Event::Kind(kind))) => kind,
                _ => kinds::of_thread(account),
            };
            // A hook may have read the clock just before the window opened.
            events.retain(|&(at, _)| at >= began);
            let (number, is_worker) = (account.number(), account.is_worker());
            threads.push(Thread { number, is_worker, runnable: 1.0, kind, events });
        }
        for thread in &mut threads {
            thread.events.retain(|&(at, _)| at <= ended);
        }
        *trace = Trace { time: began..ended, hook, wake_up: machine::wake_up(), threads };
    }
}

/// Fills `events` with the events of a window in a log. Returns whether the log is full; its last event is then left
/// out, as it may lack its second entry.
fn read_log(log: &Log, window: u32, events: &mut Vec<(u64, Event)>) -> bool {
    events.clear();
    let entries = log.read(window);
    events.reserve(entries.len());
    events.extend(trace::events(entries));
    let is_full = log.is_full(window);
    if is_full {
        events.pop();
    }
    is_full
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use progress::Account;

    use super::*;
    use crate::ledger::Experiment;

    /// Without the units after a log became full, the count would seem to stop there, and the rate would be too low.
    #[test]
    fn a_window_with_pauses_ends_where_a_log_is_full() {
        let recorder = Recorder::new();
        // A number that no other test's window has.
        recorder.count.store(1 << 16, Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                progress::register_thread();
                let account = progress::current().expect("just registered");
                recorder
                    .open_experiment(&Experiment { weights: Some(&crate::target::Weights::default()), speedup: 0.0 });
                let (window, _) = recorder.window();
                let units = (1..).map(|unit| Ledger::start() + 10 * unit);
                for at in units.take_while(|_| !account.log().is_full(window >> COUNT_SHIFT)) {
                    recorder.write(account, window, at, Event::Hit { point: 3 });
                }
                std::thread::sleep(Duration::from_millis(20));
                recorder.close();
            });
        });
        let point = recorder.outcome().0.point(3);
        assert_eq!(point.hits, progress::ENTRIES_MAX as u64 - 1);
        assert!((point.ns_per_unit / 10.0 - 1.0).abs() < 1e-3, "{point:?}");
    }

    /// The second entry of a call holds its span: without it, the call would be attributed to another one.
    #[test]
    fn a_full_log_ends_before_its_last_event() {
        let (recorder, account) = (Recorder::new(), Account::new(0, "full"));
        let called = |call| Event::Called { call, callee: 7, is_first: true };
        recorder.write(&account, 0, 1, Event::BlockBegan);
        recorder.write(&account, 0, 2, called(2));
        let mut events = Vec::new();
        assert!(!read_log(account.log(), 0, &mut events));
        assert_eq!(events, [(1, Event::BlockBegan), (2, called(2))]);
        for at in 3.. {
            recorder.write(&account, 0, at, called(at));
            if account.log().is_full(0) {
                break;
            }
        }
        assert!(read_log(account.log(), 0, &mut events));
        assert!(events[1..].iter().all(|&(at, event)| event == called(at)));
        assert_eq!(events.len(), progress::ENTRIES_MAX / 2);
    }
}
