//! The state of a thread whose events are being converted.

use progress::Sharing;

use crate::constants::TAKEN_TOGETHER_MAX;
use crate::replay::script::{Cause, ScriptStep, Work};
use crate::trace::Hooks;

/// The state of the thread whose events are being converted.
pub(super) struct ThreadConverter {
    pub(super) thread: u32,
    pub(super) is_worker: bool,
    pub(super) kind: u32,
    /// The time up to which its work is accounted for.
    pub(super) at: u64,
    /// The time of hooks, which is not its work.
    pub(super) hooks: Hooks,
    pub(super) work: Vec<Work>,
    pub(super) steps: Vec<ScriptStep>,
    pub(super) cause: Cause,
    /// The time at which the job began, and at which its cause was ready.
    pub(super) job_began: u64,
    pub(super) ready: u64,
    pub(super) chain: Option<u32>,
    /// Whether the job's cause is not known yet, except that the thread woke.
    pub(super) is_anonymous: bool,
    /// Number of steps that certainly belong to the job: all except the work after the last step of another type.
    pub(super) certain_steps: usize,
    /// The mark that the job waits for besides its cause, or `NONE`.
    pub(super) room: u32,
    /// Waits explained by one block (a barrier's): its begin and end, the step that became ready last, and when that
    /// was.
    pub(super) group: Option<(u64, u64, usize, u64)>,
    /// The locks that it holds.
    pub(super) held: Vec<(u64, Sharing)>,
    /// The step that gets the cost of the wakeup in progress.
    pub(super) wake: Option<usize>,
    pub(super) is_waking: bool,
    pub(super) blocked: Option<u64>,
    /// A block that has ended and is not explained yet.
    pub(super) unexplained: Option<(u64, u64)>,
    /// Whether the job's cause is a block that no event has explained.
    pub(super) is_unexplained: bool,
    /// Its kind of work when that block ended.
    pub(super) kind_at_wakeup: u32,
    /// Whether it slept before the job began.
    pub(super) is_from_sleep: bool,
    /// Whether it looked at the kernel's ready events for the job.
    pub(super) has_polled: bool,
    /// The time of its last look at the kernel's ready events, and one at which nothing that it found then was ready.
    pub(super) looked: u64,
    pub(super) not_ready_at: u64,
}

/// The last wait of a group, before its step is pushed.
pub(super) const NO_STEP: usize = usize::MAX;

impl ThreadConverter {
    /// Handles messages for which a thread was blocked together: it was blocked for the last of them, so only that one
    /// has a latency.
    pub(super) fn join_group(&mut self, stood: Option<(u64, u64)>, at: u64, ready: Option<u64>, cause: &mut Cause) {
        let Some(ready) = ready else { return };
        if let Some((since, up)) = stood {
            self.group = Some((since, up, NO_STEP, ready));
            return;
        }
        // This message did not block the thread: it may belong to the block before.
        let Some((since, up, step, last)) = self.group else { return };
        let explained = at <= up + TAKEN_TOGETHER_MAX && ready <= up;
        if !explained
            || !self.steps[step..].iter().all(|step| matches!(step, ScriptStep::Await(_) | ScriptStep::Work(..)))
        {
            self.group = None;
            return;
        }
        cause.wakeup_latency = 0.0;
        if ready > last {
            // This one arrived later, so it is the message that ended the block.
            if let ScriptStep::Await(earlier) = &mut self.steps[step] {
                earlier.wakeup_latency = 0.0;
            }
            cause.wakeup_latency = (up - ready) as f64;
            self.group = Some((since, up, NO_STEP, ready));
        }
    }

    pub(super) fn push(&mut self, step: ScriptStep) {
        self.steps.push(step);
        self.certain_steps = self.steps.len();
        self.wake = None;
    }

    /// Adds an empty wakeup step: threads may wait for the step pushed last.
    pub(super) fn push_wake(&mut self) {
        self.push(ScriptStep::Wake(0, 0));
        self.wake = Some(self.steps.len() - 1);
    }

    /// Accounts for the work until `at`, except for the last `blocked` nanoseconds. The time between two hooks' clock
    /// readings is the program's, except for the time of the hook itself.
    pub(super) fn account(&mut self, at: u64, blocked: u64) {
        let worked = at.saturating_sub(self.at).saturating_sub(blocked) as f64;
        if worked > 0.0 {
            let hooks = self.hooks.take(worked);
            let time = worked - hooks;
            match self.work.last_mut() {
                // Merge consecutive work of one kind: fewer pieces to add up in each replay.
                Some(last) if last.kind == self.kind => {
                    last.time += time;
                    last.hooks += hooks;
                }
                _ => self.work.push(Work { kind: self.kind, time, hooks, sleep_change: 0.0 }),
            }
        }
        self.at = at;
    }
}
