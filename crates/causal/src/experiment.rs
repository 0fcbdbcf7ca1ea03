//! Schedules the windows: recorded windows, windows with pauses, and the time between them that keeps their cost within
//! the budget.
//!
//! Windows with pauses come in blocks of four, two with the speed-up and two controls without, in the order ABBA or
//! BAAB, so that a drift during the block affects both equally. In a load probe the controls are twice as long. All
//! times and orders are randomised, so that they cannot synchronise with the program.
//!
//! - `budget`: the time that may be lost, which accrues with time; `random`: seeded random numbers.

mod budget;
mod random;

use budget::TimeBudget;
pub use random::SeededRandom;

use crate::constants::{
    BUDGET_COUNTED, CONFIRMED_IN_TURN, CONFIRMED_TARGETS_MAX, COST_CHECK, DELAY_GROWTH_MARGIN, LOG_FILL_MAX, MS,
    PAUSE_LENGTH_MIN, PAUSE_LENGTHS, PAUSED_TIME_MAX, PROBE, PROBE_BLOCKS, PROBE_CONTROL_LENGTH, PROBE_LENGTHS,
    PROBED_PAUSES_MAX, RATE_MAX_DECAY, RATE_SMOOTHING, RECORD_LENGTH_MAX, RECORD_LENGTHS, RECORDED_EARLY,
    RECORDED_EARLY_MAX, RECORDED_LATENCIES_MIN, RECORDING_BUDGET, RECORDING_DUTY_MAX, RECORDING_FREE, RECORDING_MIN,
    WINDOW_LATENCIES, WINDOW_SETTLE, WINDOW_UNITS,
};
use crate::profiler::Modes;

/// The first recording begins at a random time up to this one, nanoseconds.
const START_SPREAD: u64 = 20 * MS;
/// Maximum rest before the next step is computed while no step is due, nanoseconds.
const STEP_REST_MAX: u64 = 20 * MS;
/// A recording that was due during a block begins at a random time up to this one after it, nanoseconds.
const RECORD_SPREAD: u64 = 50 * MS;
/// Maximum wait of a block for the budget of its next window, nanoseconds; a block that must wait longer ends.
const WINDOW_WAIT_MAX: u64 = 500 * MS;
/// One part of so many of the remaining budget is kept back when a block is judged affordable: for costs that grow.
const KEPT_BACK: u64 = 10;
/// A block waits for the budget of its usual length for at most one part of so many of the run; else it is short.
const LONG_BLOCK_WAIT: u64 = 20;
/// A recording takes at most one part of so many of the run, so that a short run has several.
const RECORDS_MIN: u64 = 8;

/// The next step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunStep {
    /// Wait, for this many nanoseconds.
    Rest(u64),
    /// Record a window of this length, nanoseconds.
    Record(u64),
    /// Run a window with pauses.
    Pause(Pause),
    /// The run is over.
    Done,
}

/// A window with pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// The subject of its block.
    pub subject: Subject,
    /// The speed-up of its block; its control windows make nothing faster.
    pub speedup: f64,
    /// Whether it has the speed-up; false for a control.
    pub treated: bool,
    /// Its length, nanoseconds.
    pub length: u64,
    /// Maximum delay that it may cause, nanoseconds.
    pub limit: u64,
    /// The number of its block.
    pub block: u32,
}

/// The subject of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A load probe, without a target.
    Load,
    /// A candidate, by its number for [`ExperimentPlan::candidate`].
    Candidate(usize),
}

/// The program's rates, from recorded windows. Rates are per nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramRates {
    /// Entries in the log that fills fastest; a maximum.
    pub entries: f64,
    /// Bytes of memory for a recording; a maximum.
    pub bytes: f64,
    /// Units of progress at the main point.
    pub hits: f64,
    /// Mean time of a unit, each weighted by its time, so that rare long ones count; a maximum. Nanoseconds.
    pub latency: f64,
    /// Time of hooks while a window is open, as a fraction of the threads' busy time, or of one thread's time if that
    /// is more.
    pub hook_time: f64,
    /// Time to read a window, as a fraction of its length: processor time divided by the number of processors.
    pub reading: f64,
    /// Time to track spans between windows, as a fraction like `hook_time`.
    pub span_tracking: f64,
    /// Mean number of busy threads.
    pub busy: f64,
}

/// A target to confirm by pauses.
#[derive(Clone, Debug, PartialEq)]
struct ConfirmTarget {
    name: String,
    /// Growth of delays at a speed-up of 1, as a fraction of wall time.
    growth: f64,
    /// Whether `growth` was measured; otherwise it is an estimate from samples.
    is_known: bool,
    wanted: bool,
    /// Its rank; a lower one comes first.
    rank: usize,
    blocks: u32,
    /// The budget allows no window for it.
    given_up: bool,
}

struct WindowBlock {
    subject: Subject,
    speedup: f64,
    /// Length of its windows with the speed-up, nanoseconds.
    length: u64,
    /// Whether each of the four windows has the speed-up.
    treated: [bool; 4],
    done: usize,
    number: u32,
}

/// The settings of a plan.
#[derive(Clone, Debug)]
pub struct ExperimentSettings {
    /// The kinds of windows to use.
    pub modes: Modes,
    /// Fraction of the time that may be lost.
    pub budget: f64,
    /// Length of the run, nanoseconds.
    pub duration: u64,
    /// The speed-ups to use in windows with pauses, in turns; the first blocks all use the first one.
    pub speedups: Vec<f64>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Maximum memory of one recording, bytes.
    pub bytes_max: f64,
    /// Maximum memory of all recordings, bytes. Beyond it, new recordings replace others.
    pub bytes_all: f64,
    /// Capacity of a thread's log in entries.
    pub entries_max: f64,
}

/// The plan of a run: returns the next step, and receives its result.
pub struct ExperimentPlan {
    settings: ExperimentSettings,
    random: SeededRandom,
    budget: TimeBudget,
    ends: u64,
    rates: Option<ProgramRates>,
    has_load: bool,
    load_is_known: bool,
    /// Minimum length of a load probe's windows.
    probe_min: u64,
    /// At the last rates, the budget allows no further probe.
    probes_given_up: bool,
    confirms: bool,
    candidates: Vec<ConfirmTarget>,
    block: Option<WindowBlock>,
    blocks: u32,
    probes: u32,
    probed: u64,
    /// Delay of all pauses, including those of probes.
    delayed: u64,
    pausing: u64,
    records: u32,
    windows: u32,
    /// Time of hooks, in windows and between them.
    hooks: u64,
    /// The time up to which the tracking of spans is paid for.
    kept_until: u64,
    record_due: u64,
    rest: u64,
}

impl ExperimentPlan {
    /// Makes a plan for a run that begins now.
    #[must_use]
    pub fn new(settings: ExperimentSettings, now: u64) -> Self {
        let mut random = SeededRandom::new(settings.seed);
        // A random start, so that runs do not begin in step with the program.
        let first = now + random.below(START_SPREAD);
        Self {
            random,
            budget: TimeBudget::new(settings.budget * BUDGET_COUNTED, now),
            ends: now + settings.duration,
            rates: None,
            has_load: false,
            load_is_known: false,
            probe_min: PROBE_LENGTHS[0],
            probes_given_up: false,
            confirms: settings.modes != Modes::Screen,
            candidates: Vec::new(),
            block: None,
            blocks: 0,
            probes: 0,
            probed: 0,
            delayed: 0,
            pausing: 0,
            records: 0,
            windows: 0,
            hooks: 0,
            kept_until: now,
            record_due: first,
            rest: 0,
            settings,
        }
    }

    /// Returns the estimated time of hooks so far, nanoseconds.
    #[must_use]
    pub fn hooks(&self) -> u64 {
        self.hooks
    }

    /// Returns the time at which the run ends.
    #[must_use]
    pub fn ends(&self) -> u64 {
        self.ends
    }

    /// Returns the names of the candidates that the budget allows no windows for.
    pub fn unaffordable(&self) -> impl Iterator<Item = &str> {
        self.candidates.iter().filter(|one| one.given_up && one.blocks == 0).map(|one| one.name.as_str())
    }

    /// Returns the name of a candidate.
    #[must_use]
    pub fn candidate(&self, number: usize) -> &str {
        &self.candidates[number].name
    }

    /// Takes the rates of a recorded window, and whether the program has a load from outside.
    pub fn recorded(&mut self, now: u64, length: u64, rates: ProgramRates, has_load: bool) {
        let was = self.rates.unwrap_or(rates);
        // Maxima decay slowly; all other rates are exponential means.
        let mean = |was: f64, is: f64| was + (is - was) * RATE_SMOOTHING;
        self.rates = Some(ProgramRates {
            entries: rates.entries.max(was.entries * RATE_MAX_DECAY),
            bytes: rates.bytes.max(was.bytes * RATE_MAX_DECAY),
            hits: mean(was.hits, rates.hits),
            latency: rates.latency.max(was.latency * RATE_MAX_DECAY),
            hook_time: mean(was.hook_time, rates.hook_time),
            reading: mean(was.reading, rates.reading),
            span_tracking: mean(was.span_tracking, rates.span_tracking),
            busy: mean(was.busy, rates.busy),
        });
        self.has_load |= has_load;
        // At the new rates the budget may suffice.
        self.probes_given_up = false;
        self.records += u32::from(rates.hits > 0.0);
        self.windows += 1;
        self.pay_hooks((length as f64 * rates.hook_time) as u64);
        // Confirming needs few recordings; leave the time to windows with pauses.
        let usual = RECORDING_DUTY_MAX[usize::from(self.settings.modes == Modes::Confirm)];
        let part = if self.settings.budget > 0.0 {
            (RECORDING_BUDGET * BUDGET_COUNTED * self.settings.budget).max(RECORDING_MIN)
        } else {
            RECORDING_FREE
        };
        // The fraction of time in windows at which recording costs `part`.
        let duty = (part / (rates.hook_time + rates.reading).max(1e-9)).min(usual);
        let mut gap = length as f64 * (1.0 / duty - 1.0);
        if self.records >= RECORDED_EARLY || self.windows >= RECORDED_EARLY_MAX {
            // Record no more windows than can be kept: reading them costs processor time, too.
            gap = gap.max(self.settings.duration as f64 * length as f64 * rates.bytes / self.settings.bytes_all);
        }
        // A random gap with that mean.
        self.record_due = now + (gap * (0.5 + self.random.fraction())) as u64;
    }

    fn pay_hooks(&mut self, time: u64) {
        self.hooks += time;
        self.budget.spend(time);
    }

    /// Pays for the tracking of spans since the last call, and for `own`: the time of the profiler's own threads since
    /// then, divided by the number of processors, nanoseconds.
    pub fn passed(&mut self, now: u64, own: u64) {
        let kept = (now - std::mem::replace(&mut self.kept_until, now)) as f64;
        self.pay_hooks((kept * self.rates.map_or(0.0, |rates| rates.span_tracking)) as u64);
        self.budget.spend(own);
    }

    /// Returns the expected time of hooks in a window of that length.
    fn hook_time(&self, length: u64) -> u64 {
        self.rates.map_or(0, |rates| (length as f64 * rates.hook_time) as u64)
    }

    /// Takes the delay of a window with pauses, without its hooks, and schedules the rest after it.
    pub fn paused(&mut self, now: u64, pause: &Pause, lasted: u64, spent: u64) {
        self.pay_hooks(self.hook_time(lasted));
        self.budget.spend(spent);
        self.pausing += lasted;
        self.delayed += spent;
        self.rest = WINDOW_SETTLE + self.random.below(WINDOW_SETTLE);
        match pause.subject {
            Subject::Load => {
                self.probed += spent;
                // An open-loop load has a backlog from the pause: let the program work it off before the next
                // measurement.
                self.rest += if pause.treated { lasted } else { 0 };
            }
            Subject::Candidate(at) if pause.treated && lasted > 0 && pause.speedup > 0.0 => {
                let candidate = &mut self.candidates[at];
                let growth = spent as f64 / lasted as f64 / pause.speedup;
                // Once measured, the maximum: a plan with a low estimate would end windows early.
                candidate.growth = if candidate.is_known { candidate.growth.max(growth) } else { growth };
                candidate.is_known = true;
            }
            Subject::Candidate(_) => {}
        }
        if let Some(block) = &mut self.block {
            block.done += 1;
            if block.done == block.treated.len() {
                match block.subject {
                    Subject::Load => self.probes += 1,
                    Subject::Candidate(at) => self.candidates[at].blocks += 1,
                }
                self.block = None;
                if self.record_due <= now {
                    // A recording that was due during the block starts at a random time after it. No other block starts
                    // before.
                    self.rest += self.random.below(RECORD_SPREAD);
                }
            }
        }
    }

    /// Drops the block of a window that cannot be opened, because its target no longer exists.
    pub fn lost(&mut self, pause: &Pause) {
        self.block = None;
        if let Subject::Candidate(at) = pause.subject {
            self.candidates[at].wanted = false;
        }
    }

    /// Sets whether the load is known well enough, and whether pauses can still confirm targets.
    pub fn load_known(&mut self, known: bool, confirms: bool) {
        self.load_is_known = known;
        self.confirms = confirms && self.settings.modes != Modes::Screen;
        if !self.confirms && self.block.as_ref().is_some_and(|block| block.subject != Subject::Load) {
            self.block = None;
        }
    }

    /// Makes further load probes as long as allowed: at the end of shorter ones too many messages were held.
    pub fn probe_longer(&mut self) {
        self.probe_min = PROBE_LENGTHS[1];
    }

    /// Sets the targets to confirm from now on, the best first: names, and fractions of all samples. The first
    /// `CONFIRMED_TARGETS_MAX` that the budget allows get windows.
    pub fn confirm<'a>(&mut self, targets: impl Iterator<Item = (&'a str, f64)>) {
        self.candidates.iter_mut().for_each(|one| one.wanted = false);
        let busy = self.rates.map_or(1.0, |rates| rates.busy).max(1.0);
        for (rank, (name, share)) in targets.enumerate() {
            match self.candidates.iter_mut().find(|one| one.name == name) {
                Some(known) => (known.wanted, known.rank) = (true, rank),
                None => self.candidates.push(ConfirmTarget {
                    name: name.to_owned(),
                    // At a speed-up of 1, a target that takes all of a thread's time makes delays grow as fast as wall
                    // time.
                    growth: (share * busy).clamp(0.001, 1.0),
                    is_known: false,
                    wanted: true,
                    rank,
                    blocks: 0,
                    given_up: false,
                }),
            }
        }
    }

    /// Returns the next step.
    pub fn next(&mut self, now: u64) -> RunStep {
        let left = self.ends.saturating_sub(now);
        if left == 0 {
            return RunStep::Done;
        }
        if self.rest > 0 {
            return RunStep::Rest(std::mem::take(&mut self.rest).min(left));
        }
        if let Some(step) = self.go_on(now) {
            return step;
        }
        // A due recording comes before a new block. After it the next recording is due only after a gap, in which
        // blocks run.
        if now >= self.record_due {
            // A window cut short by the end of the run may be too short to be of use.
            let length = self.record_length().min(left);
            return if length < RECORD_LENGTHS[0] / 2 { RunStep::Rest(left) } else { RunStep::Record(length) };
        }
        if self.begin_block(now)
            && let Some(step) = self.go_on(now)
        {
            return step;
        }
        RunStep::Rest((self.record_due - now).min(left).min(STEP_REST_MAX))
    }

    /// Returns whether the window must end because of its delay so far.
    #[must_use]
    pub fn is_too_dear(pause: &Pause, spent: u64) -> bool {
        spent + margin(pause.speedup) > pause.limit
    }

    /// Returns the next window of the current block.
    fn go_on(&mut self, now: u64) -> Option<RunStep> {
        let ends = self.ends;
        // A block that waited for its budget may no longer fit into the run.
        self.block.take_if(|block| now + block.window(block.done) > ends);
        let block = self.block.as_ref()?;
        let treated = block.treated[block.done];
        let windows = block.done..block.treated.len();
        // Divide the budget evenly between the remaining windows with the speed-up.
        let left = block.treated[block.done..].iter().filter(|&&treated| treated).count() as u64;
        let hooks = self.hook_time(windows.map(|at| block.window(at)).sum());
        let limit = self.budget.available(now).saturating_sub(hooks) / left.max(1);
        let (subject, speedup, length, number) = (block.subject, block.speedup, block.window(block.done), block.number);
        let needed = self.cost(subject, speedup, block.length);
        if treated && needed > limit {
            // The estimate was lower when the block began, or the budget has paid for other costs. Wait a little, or
            // drop the block.
            let wait = self.budget.time_until(now, needed * left + hooks);
            if wait > WINDOW_WAIT_MAX {
                // `begin_block` checks whether another one is affordable.
                self.block = None;
                return None;
            }
            return Some(RunStep::Rest(wait.max(MS).min(self.ends.saturating_sub(now).max(1))));
        }
        let limit = if treated { limit } else { u64::MAX };
        Some(RunStep::Pause(Pause { subject, speedup, treated, length, limit, block: number }))
    }

    fn set_given_up(&mut self, subject: Subject) {
        match subject {
            Subject::Load => self.probes_given_up = true,
            Subject::Candidate(at) => self.candidates[at].given_up = true,
        }
    }

    /// Begins a block if there is one to run and the budget is there.
    fn begin_block(&mut self, now: u64) -> bool {
        let Some(rates) = self.rates else { return false };
        let elapsed = self.settings.duration - (self.ends - now);
        // Leave time for recordings, and for the program to run undisturbed.
        if self.pausing as f64 > PAUSED_TIME_MAX * elapsed as f64 {
            return false;
        }
        let Some((subject, speedup)) = self.choose() else { return false };
        // The minimum with a small budget, the usual minimum, the maximum.
        let [least, shortest, longest] = match subject {
            Subject::Load => [self.probe_min, self.probe_min, PROBE_LENGTHS[1]],
            Subject::Candidate(_) => [PAUSE_LENGTH_MIN, PAUSE_LENGTHS[0], PAUSE_LENGTHS[1]],
        };
        let wanted = (WINDOW_UNITS / rates.hits.max(1e-12)).max(WINDOW_LATENCIES * rates.latency);
        let mut length = wanted.clamp(shortest as f64, longest as f64) as u64;
        // Budget that accrues during the block is not counted on.
        let budget = self.budget.available(now);
        if self.cost_of_block(subject, speedup, length) > budget {
            // The budget that accrues until the end, if nothing else is spent.
            let rest = self.budget.available(self.ends);
            let rest = rest - rest / KEPT_BACK;
            if self.cost_of_block(subject, speedup, least) > rest {
                self.set_given_up(subject);
                return false;
            }
            // Several short blocks early are better than one long block late.
            if self.budget.time_until(now, self.cost_of_block(subject, speedup, length))
                < self.settings.duration / LONG_BLOCK_WAIT
            {
                return false;
            }
            length = least;
            if self.cost_of_block(subject, speedup, length) > budget {
                return false;
            }
        }
        // The waits between the windows, at their longest.
        let rests = 8 * WINDOW_SETTLE + if subject == Subject::Load { 2 * length } else { 0 };
        if self.ends.saturating_sub(now) < length_of_block(subject, length) + rests {
            return false;
        }
        let first = self.random.below(2) == 0;
        self.blocks += 1;
        // ABBA or BAAB.
        let treated = [first, !first, !first, first];
        self.block = Some(WindowBlock { subject, speedup, length, treated, done: 0, number: self.blocks });
        true
    }

    /// Chooses the subject and the speed-up of the next block.
    fn choose(&mut self) -> Option<(Subject, f64)> {
        // A probe that cannot run must not take the turn of the targets.
        let probes = self.has_load
            && !self.probes_given_up
            && self.settings.budget > 0.0
            && (self.probes < PROBE_BLOCKS[0] || !self.load_is_known && self.probes < PROBE_BLOCKS[1]);
        // Two probes first, then in proportion: the kind of load decides which gains count.
        if probes && (self.probes < 2 || self.probed as f64 <= PROBED_PAUSES_MAX * self.delayed as f64) {
            return Some((Subject::Load, PROBE));
        }
        if !self.confirms {
            return probes.then_some((Subject::Load, PROBE));
        }
        // Targets in turns, the best first: a short run then has a result for one target rather than none for three.
        let open = self.candidates.iter().enumerate().filter(|(_, one)| one.wanted && !one.given_up);
        let mut open: Vec<(usize, u32, usize)> =
            open.map(|(at, one)| (at, one.blocks / CONFIRMED_IN_TURN, one.rank)).collect();
        open.sort_unstable_by_key(|&(_, _, rank)| rank);
        open.truncate(CONFIRMED_TARGETS_MAX);
        let (at, ..) = open.into_iter().min_by_key(|&(_, rounds, rank)| (rounds, rank))?;
        let speedups = &self.settings.speedups;
        let blocks = self.candidates[at].blocks;
        // The first round uses one speed-up, so that it has enough blocks for an interval.
        let turn = if blocks < CONFIRMED_IN_TURN { 0 } else { blocks as usize % speedups.len().max(1) };
        let speedup = *speedups.get(turn)?;
        Some((Subject::Candidate(at), speedup))
    }

    /// Returns the cost of a block: the delay of two windows, and the hooks in all four.
    fn cost_of_block(&self, subject: Subject, speedup: f64, length: u64) -> u64 {
        2 * self.cost(subject, speedup, length) + self.hook_time(length_of_block(subject, length))
    }

    /// Returns the expected delay of a window, plus the excess over its limit before that is noticed.
    fn cost(&self, subject: Subject, speedup: f64, length: u64) -> u64 {
        let growth = match subject {
            Subject::Load => PROBE,
            Subject::Candidate(at) => {
                let one = &self.candidates[at];
                // The measured growth varies: allow for more.
                speedup * (one.growth * if one.is_known { DELAY_GROWTH_MARGIN } else { 1.0 }).min(1.0)
            }
        };
        (length as f64 * growth) as u64 + margin(speedup)
    }

    fn record_length(&self) -> u64 {
        let Some(rates) = self.rates else { return RECORD_LENGTHS[0] };
        let wanted = (WINDOW_UNITS / rates.hits.max(1e-12))
            .max(WINDOW_LATENCIES * rates.latency)
            .clamp(RECORD_LENGTHS[1] as f64, RECORD_LENGTHS[2] as f64)
            // Units longer than the window would be cut in each one, and their time would remain unknown.
            .max((RECORDED_LATENCIES_MIN * rates.latency).min(RECORD_LENGTH_MAX as f64));
        // Leave room, as the rates vary: a full log would cut the window short.
        let fits = (LOG_FILL_MAX * self.settings.entries_max / rates.entries.max(1e-12))
            .min(self.settings.bytes_max / rates.bytes.max(1e-12));
        (wanted.min(fits) as u64)
            .max(RECORD_LENGTHS[0] / 2)
            .min((self.settings.duration / RECORDS_MIN).max(RECORD_LENGTHS[0] / 2))
    }
}

/// Returns the maximum delay between two looks at a window. Delays never grow faster than wall time times the speed-up;
/// twice the interval, because the sleep before a look may end late.
fn margin(speedup: f64) -> u64 {
    (2.0 * COST_CHECK as f64 * speedup) as u64
}

/// Returns the length of a control in a block of windows of that length.
fn length_of_control(subject: Subject, length: u64) -> u64 {
    if subject == Subject::Load { PROBE_CONTROL_LENGTH * length } else { length }
}

/// Returns the length of all four windows.
fn length_of_block(subject: Subject, length: u64) -> u64 {
    2 * (length + length_of_control(subject, length))
}

impl WindowBlock {
    /// Returns the length of one of the windows.
    fn window(&self, at: usize) -> u64 {
        if self.treated[at] { self.length } else { length_of_control(self.subject, self.length) }
    }
}

#[cfg(test)]
mod tests;
