//! Which window comes when: those that are recorded, those that pause, and how far apart they must be for what they cost.
//!
//! Windows that pause come in blocks of four, two with the speed-up and two without, in one of the orders ABBA and BAAB: what drifts
//! while the block lasts falls on both alike; those of a load probe without are twice as long as those with. Everything that could keep
//! step with the program is drawn by lot.
//!
//! - `purse`: what may be spent, so that what was lost is within the budget at any moment; `dice`: chance by a seed.

mod dice;
mod purse;

pub use dice::Dice;
pub use purse::Purse;

use crate::ledger::PROBE;
use crate::profiler::Modes;

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// The part of the budget that is spent on what can be counted. The rest is for what can't: caches that are cold behind a window or a
/// look, signals, threads that take turns.
pub const COUNTED: f64 = 0.8;

/// How often a window that pauses is looked at: what it may cost beyond its part.
pub const POLL: u64 = 2 * MS;

/// The part of the budget that recording may take, and reading what was recorded; at least, of the program's busy time; and so much where
/// there is no budget.
const RECORDING: f64 = 1.0 / 5.0;
const RECORDING_MIN: f64 = 0.002;
const RECORDING_FREE: f64 = 0.01;
/// Windows with progress that are recorded as soon as they may be; the others are spread over the run.
const EARLY: u32 = 8;
/// The same of all windows, where there is none.
const IDLE: u32 = 64;
/// A recorded window: the first one, the usual one, and the longest, where progress is slow.
const RECORD: [u64; 3] = [20 * MS, 100 * MS, 1000 * MS];
/// A window that pauses: the shortest and the longest.
const PAUSE: [u64; 2] = [100 * MS, 250 * MS];
/// The shortest there is, where the budget allows no more.
const PAUSE_MIN: u64 = 50 * MS;
/// The shortest and the longest of a load probe: the less time its pauses are spread over, the less else varies in it.
const PROBED: [u64; 2] = [PAUSE_MIN, 125 * MS];
/// How many times as long a probe's window without pauses is: it delays nothing, and the longer it is the less varies in it.
const UNPROBED: u64 = 2;
/// Units of progress that a window should see.
const HITS: f64 = 50.0;
/// Times that what is on its way takes must fit into a window, or its edges count for much.
const LATENCIES: f64 = 20.0;
/// How many blocks of load probes there are at least, where there is a load, and at most.
const PROBES: [u32; 2] = [4, 16];
/// The part of the time that windows with pauses may have, and the part of all pauses that probes may have.
const PAUSING: f64 = 0.5;
const PROBING: f64 = 1.0 / 3.0;
/// Blocks that a target gets before the next one's turn; those of the first round are for the first speed-up.
const ROUND: u32 = 4;
/// Targets that are confirmed.
const CANDIDATES_MAX: usize = 3;
/// Between two windows, so that what one delayed is through.
const SETTLE: u64 = 4 * MS;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Nothing, for so long.
    Rest(u64),
    /// A window that is recorded, so long.
    Record(u64),
    /// A window that pauses.
    Pause(Pause),
    /// The time is over.
    Done,
}

/// A window that pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// For whom.
    pub subject: Subject,
    /// The speed-up of its block; where the window is the block's control, nothing is made faster.
    pub speedup: f64,
    /// Whether it has the speed-up.
    pub treated: bool,
    /// Nanoseconds.
    pub length: u64,
    /// What it may cost, nanoseconds.
    pub limit: u64,
    /// Which block it belongs to.
    pub block: u32,
}

/// Whom a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nobody: the load probe.
    Load,
    /// A candidate, by its place among those that were named.
    Candidate(usize),
}

/// What windows have told about the program's pace, per nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tempo {
    /// Entries in the log that fills fastest, at most.
    pub entries: f64,
    /// Octets that a recording takes in memory, at most.
    pub octets: f64,
    /// Units of progress at the point that is looked at.
    pub hits: f64,
    /// How long one takes, nanoseconds.
    pub latency: f64,
    /// The part of the threads' busy time, or of one thread's time where that is more, that hooks take while a window is open.
    pub recording: f64,
    /// What it takes to read a window once it is over, as a part of its length: of all processors' time.
    pub reading: f64,
    /// The part as of `recording` of what it takes to keep spans between windows.
    pub keeping: f64,
    /// How many threads are busy, on average.
    pub busy: f64,
}

/// A target that is to be confirmed by pauses.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    name: String,
    /// How fast delays grow if it took no time at all: a part of the wall's.
    growth: f64,
    /// Whether windows have told that.
    is_known: bool,
    wanted: bool,
    /// Before whom it comes.
    rank: usize,
    blocks: u32,
    /// No window of it is affordable.
    given_up: bool,
}

struct Block {
    subject: Subject,
    speedup: f64,
    /// Of a window that has the speed-up.
    length: u64,
    /// Whether each of the four windows has the speed-up.
    treated: [bool; 4],
    done: usize,
    number: u32,
}

/// What the plan is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which windows there are at all.
    pub modes: Modes,
    /// The part of the time that may be lost.
    pub budget: f64,
    /// How long, nanoseconds.
    pub duration: u64,
    /// The speed-ups that pauses are made for, in turns; the first one for the first blocks.
    pub speedups: Vec<f64>,
    /// Of all chance.
    pub seed: u64,
    /// Octets that a recording may take in memory, and all of them together: others take their place beyond.
    pub octets_max: f64,
    /// See `octets_max`.
    pub octets_all: f64,
    /// Entries that a thread's log takes.
    pub entries_max: f64,
}

/// The plan of a run: it is asked for the next step and told what came of it.
pub struct Plan {
    settings: Settings,
    dice: Dice,
    purse: Purse,
    ends: u64,
    tempo: Option<Tempo>,
    has_load: bool,
    load_is_known: bool,
    /// The shortest window of a load probe.
    probe_min: u64,
    confirms: bool,
    candidates: Vec<Candidate>,
    block: Option<Block>,
    blocks: u32,
    probes: u32,
    probed: u64,
    /// What all pauses cost, those of probes, too.
    delayed: u64,
    pausing: u64,
    records: u32,
    windows: u32,
    /// What hooks took, of windows and between them.
    hooks: u64,
    /// Until when the keeping of spans is paid for.
    kept_until: u64,
    record_due: u64,
    rest: u64,
}

impl Plan {
    /// A plan that begins now.
    #[must_use]
    pub fn new(settings: Settings, now: u64) -> Self {
        let mut dice = Dice::new(settings.seed);
        let first = now + dice.below(20 * MS);
        Self {
            dice,
            purse: Purse::new(settings.budget * COUNTED, now),
            ends: now + settings.duration,
            tempo: None,
            has_load: false,
            load_is_known: false,
            probe_min: PROBED[0],
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

    /// What is spent of the budget.
    #[must_use]
    pub fn purse(&self) -> &Purse {
        &self.purse
    }

    /// What hooks took so far, by estimate, nanoseconds.
    #[must_use]
    pub fn hooks(&self) -> u64 {
        self.hooks
    }

    /// When the run is over.
    #[must_use]
    pub fn ends(&self) -> u64 {
        self.ends
    }

    /// Names of the candidates that the budget allows no windows for.
    pub fn unaffordable(&self) -> impl Iterator<Item = &str> {
        self.candidates.iter().filter(|one| one.given_up && one.blocks == 0).map(|one| one.name.as_str())
    }

    /// The name of a candidate.
    #[must_use]
    pub fn candidate(&self, number: usize) -> &str {
        &self.candidates[number].name
    }

    /// What was recorded last tells of the pace, and whether anybody outside drives the program.
    pub fn recorded(&mut self, now: u64, length: u64, tempo: Tempo, has_load: bool) {
        let was = self.tempo.unwrap_or(tempo);
        let mean = |was: f64, is: f64| was + (is - was) * 0.3;
        self.tempo = Some(Tempo {
            entries: tempo.entries.max(was.entries * 0.9),
            octets: tempo.octets.max(was.octets * 0.9),
            hits: mean(was.hits, tempo.hits),
            latency: mean(was.latency, tempo.latency),
            recording: mean(was.recording, tempo.recording),
            reading: mean(was.reading, tempo.reading),
            keeping: mean(was.keeping, tempo.keeping),
            busy: mean(was.busy, tempo.busy),
        });
        self.has_load |= has_load;
        self.records += u32::from(tempo.hits > 0.0);
        self.windows += 1;
        self.pay_hooks((length as f64 * tempo.recording) as u64);
        let usual = if self.settings.modes == Modes::Confirm { 0.1 } else { 0.5 };
        let part = if self.settings.budget > 0.0 {
            (RECORDING * COUNTED * self.settings.budget).max(RECORDING_MIN)
        } else {
            RECORDING_FREE
        };
        let duty = (part / (tempo.recording + tempo.reading).max(1e-9)).min(usual);
        let mut gap = length as f64 * (1.0 / duty - 1.0);
        if self.records >= EARLY || self.windows >= IDLE {
            // No more than are kept: reading one costs processor time, too.
            gap = gap.max(self.settings.duration as f64 * length as f64 * tempo.octets / self.settings.octets_all);
        }
        self.record_due = now + (gap * (0.5 + self.dice.part())) as u64;
    }

    fn pay_hooks(&mut self, time: u64) {
        self.hooks += time;
        self.purse.pay(time);
    }

    /// So much time has passed, in which spans were kept; and what the profiler's own threads took meanwhile, a part of all processors'
    /// time, nanoseconds.
    pub fn passed(&mut self, now: u64, own: u64) {
        let kept = (now - std::mem::replace(&mut self.kept_until, now)) as f64;
        self.pay_hooks((kept * self.tempo.map_or(0.0, |tempo| tempo.keeping)) as u64);
        self.purse.pay(own);
    }

    /// What hooks take of a window of that length.
    fn heard(&self, length: u64) -> u64 {
        self.tempo.map_or(0, |tempo| (length as f64 * tempo.recording) as u64)
    }

    /// What the last window that paused cost, without its hooks.
    pub fn paused(&mut self, now: u64, pause: &Pause, lasted: u64, spent: u64) {
        self.pay_hooks(self.heard(lasted));
        self.purse.pay(spent);
        self.pausing += lasted;
        self.delayed += spent;
        self.rest = SETTLE + self.dice.below(SETTLE);
        match pause.subject {
            Subject::Load => {
                self.probed += spent;
                // What a load of its own pace left behind is worked off before anything else is measured.
                self.rest += if pause.treated { lasted } else { 0 };
            }
            Subject::Candidate(at) if pause.treated && lasted > 0 && pause.speedup > 0.0 => {
                let candidate = &mut self.candidates[at];
                let growth = spent as f64 / lasted as f64 / pause.speedup;
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
                    // It has waited for the block, and does not begin in step with it; no other block comes before.
                    self.rest += self.dice.below(50 * MS);
                }
            }
        }
    }

    /// The window can't be opened: its target is no longer known.
    pub fn lost(&mut self, pause: &Pause) {
        self.block = None;
        if let Subject::Candidate(at) = pause.subject {
            self.candidates[at].wanted = false;
        }
    }

    /// The load is known well enough; `confirms` says whether pauses can still tell anything about targets.
    pub fn load_known(&mut self, known: bool, confirms: bool) {
        self.load_is_known = known;
        self.confirms = confirms && self.settings.modes != Modes::Screen;
        if !self.confirms && self.block.as_ref().is_some_and(|block| block.subject != Subject::Load) {
            self.block = None;
        }
    }

    /// Probes of the load are as long as they may be from now on: in shorter ones too much was held at their end.
    pub fn probe_longer(&mut self) {
        self.probe_min = PROBED[1];
    }

    /// The targets to be confirmed from now on, the most worthwhile first: names, and the part of all samples that each has. The first
    /// `CANDIDATES_MAX` that the budget allows get windows.
    pub fn confirm<'a>(&mut self, targets: impl Iterator<Item = (&'a str, f64)>) {
        self.candidates.iter_mut().for_each(|one| one.wanted = false);
        let busy = self.tempo.map_or(1.0, |tempo| tempo.busy).max(1.0);
        for (rank, (name, share)) in targets.enumerate() {
            match self.candidates.iter_mut().find(|one| one.name == name) {
                Some(known) => (known.wanted, known.rank) = (true, rank),
                None => self.candidates.push(Candidate {
                    name: name.to_owned(),
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

    /// What comes now.
    pub fn next(&mut self, now: u64) -> Step {
        let left = self.ends.saturating_sub(now);
        if left == 0 {
            return Step::Done;
        }
        if self.rest > 0 {
            return Step::Rest(std::mem::take(&mut self.rest).min(left));
        }
        if let Some(step) = self.go_on(now) {
            return step;
        }
        // In turns, once both are due.
        if now >= self.record_due {
            let length = self.record_length().min(left);
            return if length < RECORD[0] / 2 { Step::Rest(left) } else { Step::Record(length) };
        }
        if self.begin_block(now)
            && let Some(step) = self.go_on(now)
        {
            return step;
        }
        Step::Rest((self.record_due - now).min(left).min(20 * MS))
    }

    /// Whether the window must end because of what it cost so far.
    #[must_use]
    pub fn is_too_dear(pause: &Pause, spent: u64) -> bool {
        spent + margin(pause.speedup) > pause.limit
    }

    /// The next window of the block that is under way.
    fn go_on(&mut self, now: u64) -> Option<Step> {
        let ends = self.ends;
        // One that had to wait for its budget may have no time left.
        self.block.take_if(|block| now + block.window(block.done) > ends);
        let block = self.block.as_ref()?;
        let treated = block.treated[block.done];
        let windows = block.done..block.treated.len();
        let left = block.treated[block.done..].iter().filter(|&&treated| treated).count() as u64;
        let hooks = self.heard(windows.map(|at| block.window(at)).sum());
        let limit = self.purse.left(now).saturating_sub(hooks) / left.max(1);
        let (subject, speedup, length, number) = (block.subject, block.speedup, block.window(block.done), block.number);
        let needed = self.cost(subject, speedup, block.length);
        if treated && needed > limit {
            // It was cheaper when the block began, or the purse pays for something else. A little patience, or the block is dropped.
            let wait = self.purse.until(now, needed * left + hooks);
            if wait > 500 * MS {
                // Whether another one is affordable is seen before it begins.
                self.block = None;
                return None;
            }
            return Some(Step::Rest(wait.max(MS).min(self.ends.saturating_sub(now).max(1))));
        }
        let limit = if treated { limit } else { u64::MAX };
        Some(Step::Pause(Pause { subject, speedup, treated, length, limit, block: number }))
    }

    fn set_given_up(&mut self, subject: Subject) {
        if let Subject::Candidate(at) = subject {
            self.candidates[at].given_up = true;
        }
    }

    /// Begins a block, if one is wanted and what it costs is there.
    fn begin_block(&mut self, now: u64) -> bool {
        let Some(tempo) = self.tempo else { return false };
        let elapsed = self.settings.duration - (self.ends - now);
        if self.pausing as f64 > PAUSING * elapsed as f64 {
            return false;
        }
        let Some((subject, speedup)) = self.choose() else { return false };
        // The shortest that the budget may make it, the shortest by itself, the longest.
        let [least, shortest, longest] = match subject {
            Subject::Load => [self.probe_min, self.probe_min, PROBED[1]],
            Subject::Candidate(_) => [PAUSE_MIN, PAUSE[0], PAUSE[1]],
        };
        let wanted = (HITS / tempo.hits.max(1e-12)).max(LATENCIES * tempo.latency);
        let mut length = wanted.clamp(shortest as f64, longest as f64) as u64;
        // What comes in while the block lasts is not counted on.
        let budget = self.purse.left(now);
        if self.cost_of_block(subject, speedup, length) > budget {
            let rest = self.purse.left(self.ends).saturating_sub(self.purse.left(self.ends) / 10);
            if self.cost_of_block(subject, speedup, least) > rest {
                self.set_given_up(subject);
                return false;
            }
            // Rather soon and short than once and long, if it is not soon at all.
            if self.purse.until(now, self.cost_of_block(subject, speedup, length)) < self.settings.duration / 20 {
                return false;
            }
            length = least;
            if self.cost_of_block(subject, speedup, length) > budget {
                return false;
            }
        }
        let rests = 8 * SETTLE + if subject == Subject::Load { 2 * length } else { 0 };
        if self.ends.saturating_sub(now) < length_of_block(subject, length) + rests {
            return false;
        }
        let first = self.dice.below(2) == 0;
        self.blocks += 1;
        let treated = [first, !first, !first, first];
        self.block = Some(Block { subject, speedup, length, treated, done: 0, number: self.blocks });
        true
    }

    /// For whom the next block is.
    fn choose(&mut self) -> Option<(Subject, f64)> {
        let probes = self.has_load
            && self.settings.budget > 0.0
            && (self.probes < PROBES[0] || !self.load_is_known && self.probes < PROBES[1]);
        if probes && (self.probes < 2 || self.probed as f64 <= PROBING * self.delayed as f64) {
            return Some((Subject::Load, PROBE));
        }
        if !self.confirms {
            return probes.then_some((Subject::Load, PROBE));
        }
        // One after the other, the most worthwhile first, so that a short run says something of one target and not nothing of three.
        let open = self.candidates.iter().enumerate().filter(|(_, one)| one.wanted && !one.given_up);
        let mut open: Vec<(usize, u32, usize)> = open.map(|(at, one)| (at, one.blocks / ROUND, one.rank)).collect();
        open.sort_unstable_by_key(|&(_, _, rank)| rank);
        open.truncate(CANDIDATES_MAX);
        let (at, ..) = open.into_iter().min_by_key(|&(_, rounds, rank)| (rounds, rank))?;
        let speedups = &self.settings.speedups;
        let blocks = self.candidates[at].blocks;
        let turn = if blocks < ROUND { 0 } else { blocks as usize % speedups.len().max(1) };
        let speedup = *speedups.get(turn)?;
        Some((Subject::Candidate(at), speedup))
    }

    /// Two windows delay, and in all four hooks are heard.
    fn cost_of_block(&self, subject: Subject, speedup: f64, length: u64) -> u64 {
        2 * self.cost(subject, speedup, length) + self.heard(length_of_block(subject, length))
    }

    /// What a window is expected to delay, with what it may delay beyond its limit before that is seen.
    fn cost(&self, subject: Subject, speedup: f64, length: u64) -> u64 {
        let growth = match subject {
            Subject::Load => PROBE,
            Subject::Candidate(at) => {
                let one = &self.candidates[at];
                // What was seen varies.
                speedup * (one.growth * if one.is_known { 1.2 } else { 1.0 }).min(1.0)
            }
        };
        (length as f64 * growth) as u64 + margin(speedup)
    }

    fn record_length(&self) -> u64 {
        let Some(tempo) = self.tempo else { return RECORD[0] };
        let wanted =
            (HITS / tempo.hits.max(1e-12)).max(LATENCIES * tempo.latency).clamp(RECORD[1] as f64, RECORD[2] as f64);
        let fits = (0.8 * self.settings.entries_max / tempo.entries.max(1e-12))
            .min(self.settings.octets_max / tempo.octets.max(1e-12));
        (wanted.min(fits) as u64).clamp(RECORD[0] / 2, RECORD[2]).min((self.settings.duration / 8).max(RECORD[0] / 2))
    }
}

/// What may be lost between two looks at a window: delays never grow faster than time at the speed-up.
fn margin(speedup: f64) -> u64 {
    (2.0 * POLL as f64 * speedup) as u64
}

/// How long the window without a speed-up is in a block of windows of that length.
fn length_of_control(subject: Subject, length: u64) -> u64 {
    if subject == Subject::Load { UNPROBED * length } else { length }
}

/// All four windows.
fn length_of_block(subject: Subject, length: u64) -> u64 {
    2 * (length + length_of_control(subject, length))
}

impl Block {
    /// How long the window at that place is.
    fn window(&self, at: usize) -> u64 {
        if self.treated[at] { self.length } else { length_of_control(self.subject, self.length) }
    }
}

#[cfg(test)]
mod tests;
