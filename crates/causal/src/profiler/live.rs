//! This process, as the controller of a profile sees it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use progress::{Account, Attention, ENTRIES_MAX, accounts, attend};

use crate::clock;
use crate::estimate::{Analyst, Effort, Evidence, Finding, Naming, Recording, Request};
use crate::ledger::{Experiment, Spent};
use crate::outcome::Outcome;
use crate::own;
use crate::policy::{Costs, Recorder, Rule, Stretch, Toll};
use crate::profiler::controller::Program;
use crate::profiler::{StartError, Stop};
use crate::report::Stack;
use crate::sample::{Lost, Rate, Sample, Sampler, cpu_time};
use crate::symbols::Symbols;
use crate::target::{Profile, Target, Weights};
use crate::trace::Trace;

/// Installed once, for the life of the process.
static RECORDER: Recorder = Recorder::new();

/// After a window's end, until the hooks that were under way have written what they had to say.
const GRACE: Duration = Duration::from_millis(1);
/// How much analysis lets the program go first; those who replay windows do so more while others are measured.
const NICENESS: i32 = 5;
/// Samples that are handed over at once, at most, in frames.
const FRAMES_MAX: usize = 1 << 18;

/// Puts the profiler behind the hooks.
pub(super) fn prepare() -> Result<(), StartError> {
    static OURS: OnceLock<bool> = OnceLock::new();
    let is_ours = *OURS.get_or_init(|| progress::install(&RECORDER).is_ok());
    if is_ours { Ok(()) } else { Err(StartError::Foreign) }
}

/// Ends the window that is open.
fn close() {
    RECORDER.close();
    attend(Attention::Spans);
}

/// The process. While there is one, spans are heard; everything is while a window is open.
pub(super) struct Live {
    stop: Arc<Stop>,
    sampler: Option<Sampler>,
    batch: Batch,
    thinker: Option<Thinker>,
    /// What each thread had done when the stretch of time began in which we are: a window, or what is measured between two.
    begun: Vec<Seen>,
    /// For how long each had waited for a processor when the window began.
    waited: Vec<(i32, u64)>,
    toll: Toll,
    /// Which part of the time that it was not blocked each thread had or waited for one, lately.
    running: Vec<(u32, f64)>,
    /// The last window, for the memory that it has.
    trace: Trace,
    costs: Costs,
    /// What the profiler's threads had taken before.
    taken: u64,
}

impl Live {
    pub(super) fn start(rate: Rate, request: Request) -> Result<Self, StartError> {
        progress::on_each_thread();
        let sampler = Sampler::start(rate).map_err(StartError::Sampler)?;
        let thinker = Thinker::start(request, rate.period()).map_err(StartError::Thread)?;
        attend(Attention::Spans);
        let costs = Costs::measure();
        Ok(Self {
            stop: Arc::default(),
            sampler: Some(sampler),
            batch: Batch::default(),
            thinker: Some(thinker),
            begun: seen(),
            waited: Vec::new(),
            toll: Toll::new(costs.heard),
            running: Vec::new(),
            trace: Trace::default(),
            costs,
            taken: {
                own::tell();
                own::taken()
            },
        })
    }

    pub(super) fn stop(&self) -> &Arc<Stop> {
        &self.stop
    }

    fn let_go(&mut self) {
        RECORDER.close();
        attend(Attention::Nothing);
        own::let_go_on();
        self.sampler = None;
        self.trace = Trace::default();
        for account in accounts() {
            account.log().give_back();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Program for Live {
    fn now(&self) -> u64 {
        clock::now()
    }

    fn sleep(&mut self, length: u64) {
        self.stop.sleep(Duration::from_nanos(length));
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_wished()
    }

    fn record(&mut self) {
        self.end_quiet();
        self.waited.clear();
        self.waited.extend(self.begun.iter().map(|one| (one.tid, waited(one.tid))));
        // Whoever meets the window tells it everything from there on.
        attend(Attention::Everything);
        RECORDER.open(Rule::Record);
    }

    fn entries(&self) -> usize {
        RECORDER.entries()
    }

    fn recorded(&mut self) -> Recording {
        own::tell();
        close();
        let began = std::mem::replace(&mut self.begun, seen());
        let wanted: Vec<(u32, u64)> = self.begun.iter().filter_map(|now| self.wanted(&began, now)).collect();
        own::let_go_on();
        std::thread::sleep(GRACE);
        let hook = self.toll.hook();
        let is_whole = RECORDER.entries() < ENTRIES_MAX;
        RECORDER.take(hook, &mut self.trace);
        let of_account = |number| wanted.iter().find(|&&(one, _)| one == number).map(|&(_, wanted)| wanted);
        let mut recording = Recording::new(&self.trace, of_account);
        if let Some(mut heard) = since(&began, &self.begun).filter(|_| is_whole) {
            // Between windows spans are kept: that is no part of what a unit takes without a profile.
            heard.processor += (self.costs.kept * recording.changes as f64) as u64;
            self.toll.heard(heard, recording.hook_count as f64);
        }
        // What it took to read the window belongs to no stretch of the program's.
        self.begun = seen();
        self.running.clear();
        self.running.extend(recording.packed.threads.iter().map(|thread| (thread.number, thread.running)));
        recording.reading = own::by_processor(own::tell());
        recording
    }

    fn pause(&mut self, weights: Option<&Weights>, speedup: f64) {
        self.end_quiet();
        for account in accounts() {
            let known = self.running.iter().find(|&&(number, _)| number == account.number());
            RECORDER.ledger().set_running(account, known.map_or(1.0, |&(_, part)| part));
        }
        attend(Attention::Everything);
        RECORDER.ledger().set_hook(self.toll.hook() as u64);
        RECORDER.open_experiment(&Experiment { weights, speedup });
    }

    fn spent(&self) -> u64 {
        RECORDER.ledger().spent(clock::now()).delayed
    }

    fn paused(&mut self) -> (Outcome, Spent) {
        close();
        own::let_go_on();
        std::thread::sleep(GRACE);
        let outcome = RECORDER.outcome();
        self.begun = seen();
        outcome
    }

    fn samples(&mut self, seen: &mut dyn FnMut(u32)) {
        if let Some(sampler) = &mut self.sampler {
            sampler.refresh();
            sampler.drain(|sample| {
                seen(sample.kind);
                self.batch.push(sample);
            });
        }
        if self.batch.frames.len() > FRAMES_MAX {
            self.hand_over();
        }
    }

    fn lost(&self) -> Lost {
        self.sampler.as_ref().map_or_else(Lost::default, Sampler::lost)
    }

    fn costs(&self) -> Costs {
        Costs { heard: self.toll.hook(), ..self.costs }
    }

    fn hook(&self) -> Option<f64> {
        self.toll.told()
    }

    fn own(&self) -> u64 {
        own::tell();
        own::taken() - self.taken
    }

    fn think(&mut self, evidence: Evidence, effort: Effort) {
        self.hand_over();
        if let Some(thinker) = &mut self.thinker
            && !thinker.is_busy
        {
            thinker.is_busy = thinker.ask.send(Ask::Look(Box::new(evidence), effort)).is_ok();
        }
    }

    fn thought(&mut self) -> Option<Finding> {
        let thinker = self.thinker.as_mut()?;
        let finding = thinker.found.try_recv().ok()?;
        thinker.is_busy = false;
        Some(finding)
    }

    fn conclude(&mut self, evidence: Evidence, effort: Effort) -> Option<Finding> {
        // Whatever is measured is measured; the program runs on without us.
        self.let_go();
        self.hand_over();
        let Thinker { ask, found, is_busy, is_superfluous } = self.thinker.take()?;
        if is_busy {
            is_superfluous.store(true, Relaxed);
            drop(found.recv());
            is_superfluous.store(false, Relaxed);
        }
        ask.send(Ask::Look(Box::new(evidence), effort)).ok()?;
        found.recv().ok()
    }
}

impl Live {
    /// A window is about to begin: the profiler's other threads rest, and the stretch since the last one is over.
    fn end_quiet(&mut self) {
        own::let_rest();
        let now = seen();
        self.toll.quiet(since(&self.begun, &now).unwrap_or_default());
        self.begun = now;
    }

    /// For how long a thread has had a processor since then or waited for one, by its account; `None` where it was another one then.
    ///
    /// Who waits for a processor waits the longer the more it has to do, so that time shrinks as its work does. What is neither this nor a
    /// block that the program told of is a wait that nobody told of (a file, a page, a lock that has no hook), and is not made shorter.
    fn wanted(&self, then: &[Seen], now: &Seen) -> Option<(u32, u64)> {
        let then = then.iter().find(|one| one.tid == now.tid && one.number == now.number)?;
        let (_, before) = self.waited.iter().find(|&&(tid, _)| tid == now.tid)?;
        Some((now.number, now.had.saturating_sub(then.had) + waited(now.tid).saturating_sub(*before)))
    }

    fn hand_over(&mut self) {
        if let Some(thinker) = &self.thinker {
            // Nobody there: then nobody will miss them.
            let _ = thinker.ask.send(Ask::Samples(std::mem::take(&mut self.batch)));
        }
    }
}

/// The thread that works out what is known.
struct Thinker {
    ask: Sender<Ask>,
    found: Receiver<Finding>,
    is_busy: bool,
    /// Set: what it works out at the moment nobody waits for.
    is_superfluous: Arc<AtomicBool>,
}

enum Ask {
    Samples(Batch),
    Look(Box<Evidence>, Effort),
}

impl Thinker {
    /// Each sample stands for `period` nanoseconds.
    fn start(request: Request, period: u64) -> std::io::Result<Self> {
        let (ask, asked) = channel();
        let (tell, found) = channel();
        let is_superfluous = Arc::<AtomicBool>::default();
        let theirs = Arc::clone(&is_superfluous);
        std::thread::Builder::new().name("causal-analysis".into()).spawn(move || {
            // Of no consequence if the system refuses.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            let mut analyst = Analyst::new(request, Profile::new(period)).ending_by(theirs);
            for ask in asked {
                match ask {
                    Ask::Samples(batch) => batch.each(|sample| {
                        own::rest();
                        analyst.naming().add(sample);
                    }),
                    Ask::Look(evidence, effort) => {
                        let finding = analyst.look(&evidence, effort);
                        // Before anybody begins another profile, which is not to pay for it.
                        own::tell();
                        if tell.send(finding).is_err() {
                            break;
                        }
                    }
                }
                own::tell();
            }
        })?;
        Ok(Self { ask, found, is_busy: false, is_superfluous })
    }
}

/// Samples on their way to the thinker.
#[derive(Default)]
struct Batch {
    heads: Vec<Head>,
    frames: Vec<usize>,
}

struct Head {
    account: u32,
    kind: u32,
    at: u64,
    frames: std::ops::Range<usize>,
}

impl Batch {
    fn push(&mut self, sample: &Sample<'_>) {
        let begin = self.frames.len();
        self.frames.extend_from_slice(sample.frames);
        let Sample { account, kind, at, .. } = *sample;
        self.heads.push(Head { account, kind, at, frames: begin..self.frames.len() });
    }

    fn each(self, mut seen: impl FnMut(&Sample<'_>)) {
        for Head { account, kind, at, frames } in self.heads {
            seen(&Sample { account, kind, at, frames: &self.frames[frames] });
        }
    }
}

impl Naming for Profile {
    fn upstreams(&mut self, spans: &[u32]) {
        Self::upstreams(self, spans);
    }

    fn samples(&self) -> u64 {
        Self::samples(self)
    }

    fn shortcoming(&self) -> Option<&'static str> {
        match self.is_symbolic() {
            Symbols::Lines => None,
            Symbols::Functions => Some(
                "the program has no line table: there are functions, and no lines or inlined frames; build with debug = \"line-tables-only\"",
            ),
            Symbols::None => Some("the program has no symbol table: there are spans alone; build with strip = false"),
        }
    }

    fn targets(&mut self, wanted: &[String], max: usize) -> Vec<Target> {
        Self::targets(self, wanted, max)
    }

    fn names(&mut self) -> Vec<String> {
        Self::names(self)
    }

    fn stacks(&mut self) -> Vec<Stack> {
        Self::stacks(self)
    }
}

/// What a thread had done at some moment.
struct Seen {
    number: u32,
    tid: i32,
    /// For how long it has had a processor, nanoseconds.
    had: u64,
    hits: u64,
}

/// What all threads have done so far.
fn seen() -> Vec<Seen> {
    let of_account = |account: &Account| {
        Some(Seen { number: account.number(), tid: account.tid()?, had: cpu_time(account)?, hits: account.hits() })
    };
    accounts().into_iter().filter_map(of_account).collect()
}

/// What they did between two moments; `None` where they are not the same threads.
fn since(then: &[Seen], now: &[Seen]) -> Option<Stretch> {
    let pairs = || then.iter().zip(now);
    let are_same = then.len() == now.len() && pairs().all(|(then, now)| then.tid == now.tid);
    are_same.then(|| Stretch {
        processor: pairs().map(|(then, now)| now.had.saturating_sub(then.had)).sum(),
        hits: pairs().map(|(then, now)| now.hits.saturating_sub(then.hits)).sum(),
    })
}

/// For how long a thread has waited for a processor, nanoseconds; 0 where the system does not say.
fn waited(tid: i32) -> u64 {
    let statistics = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    statistics.split_ascii_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}
