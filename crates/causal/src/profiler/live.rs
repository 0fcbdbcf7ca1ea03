//! This process, as the profiled program of the controller.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use progress::{Account, Attention, ENTRIES_MAX, accounts, set_attention};

use crate::clock;
use crate::estimate::{AnalysisLimits, Analyst, Evidence, Finding, ProfileRequest, Recording, TargetSource};
use crate::ledger::{Experiment, WindowCost};
use crate::outcome::WindowOutcome;
use crate::own;
use crate::peers::Peers;
use crate::policy::{HookCostEstimator, HookCosts, Recorder, WorkDone};
use crate::profiler::controller::{NICENESS, Program};
use crate::profiler::{StartError, StopRequest};
use crate::report::Stack;
use crate::sample::{Lost, Rate, Sample, Sampler, cpu_time};
use crate::symbols::Symbols;
use crate::target::{SampleProfile, Target, Weights};
use crate::trace::Trace;

/// Installed once, for the life of the process.
static RECORDER: Recorder = Recorder::new();

/// Time after a window's end for hooks in progress to write their entries.
const GRACE: Duration = Duration::from_millis(1);
/// Bound on the frames of a batch of samples.
const FRAMES_MAX: usize = 1 << 18;

/// Installs the profiler's policy, once per process.
pub(super) fn prepare() -> Result<(), StartError> {
    static OURS: OnceLock<bool> = OnceLock::new();
    let is_ours = *OURS.get_or_init(|| progress::install(&RECORDER).is_ok());
    if is_ours { Ok(()) } else { Err(StartError::Foreign) }
}

/// Ends the open window.
fn close() {
    RECORDER.close();
    set_attention(Attention::Spans);
}

/// This process under profile. While it lives, spans are tracked; while a window is open, every hook calls the policy.
pub(super) struct ProcessUnderProfile {
    stop: Arc<StopRequest>,
    sampler: Option<Sampler>,
    batch: Batch,
    analysis: Option<AnalysisThread>,
    /// Each thread's totals at the start of the current stretch: of a window, or of the time between two.
    totals_at_begin: Vec<ThreadTotals>,
    /// The process's processor time then, nanoseconds.
    process_at_begin: u64,
    /// Each thread's time in the run queue at the window's start, by thread id, nanoseconds.
    waited: Vec<(i32, u64)>,
    hook_cost: HookCostEstimator,
    /// The part of its unblocked time for which each thread had or waited for a processor, in the last recorded window.
    runnable: Vec<(u32, f64)>,
    /// The trace of the last window, kept for its allocations.
    trace: Trace,
    costs: HookCosts,
    /// Processor time of the profiler's threads before this profile.
    taken: u64,
}

impl ProcessUnderProfile {
    pub(super) fn start(rate: Rate, request: ProfileRequest) -> Result<Self, StartError> {
        progress::register_thread();
        let sampler = Sampler::start(rate).map_err(StartError::Sampler)?;
        let analysis = AnalysisThread::start(request, rate.period()).map_err(StartError::Thread)?;
        set_attention(Attention::Spans);
        RECORDER.ledger().forget_usual_gap();
        let costs = HookCosts::measure();
        Ok(Self {
            stop: Arc::default(),
            sampler: Some(sampler),
            batch: Batch::default(),
            analysis: Some(analysis),
            totals_at_begin: thread_totals(),
            process_at_begin: own::process_cpu_time(),
            waited: Vec::new(),
            hook_cost: HookCostEstimator::new(costs.in_window),
            runnable: Vec::new(),
            trace: Trace::default(),
            costs,
            taken: {
                own::charge_cpu_time();
                own::cpu_time_charged()
            },
        })
    }

    pub(super) fn stop(&self) -> &Arc<StopRequest> {
        &self.stop
    }

    fn stop_profiling(&mut self) {
        RECORDER.close();
        set_attention(Attention::Nothing);
        own::resume_analysis();
        self.sampler = None;
        self.trace = Trace::default();
        // The logs are megabytes for each thread: their memory goes back to the system.
        for account in accounts() {
            account.log().give_back();
        }
    }
}

impl Drop for ProcessUnderProfile {
    fn drop(&mut self) {
        self.stop_profiling();
    }
}

/// The calls around a recorded window, in order:
/// 1. `open_recorded`: `end_gap` measures the gap before it and suspends the analysis; the times in the run queue are
///    read; every hook calls the policy, then the window opens.
/// 2. `close_recorded`: the window closes, hooks no longer call the policy, and the totals of threads are read
///    (`thread_totals`).
/// 3. The analysis resumes, and hooks in progress get [`GRACE`] to write their entries.
/// 4. `Recorder::take` reads the window, and the hooks' cost is measured from the totals.
/// 5. The totals are read again: the next gap begins.
impl Program for ProcessUnderProfile {
    fn now(&self) -> u64 {
        clock::now()
    }

    fn sleep(&mut self, length: u64) {
        self.stop.sleep(Duration::from_nanos(length));
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    fn open_recorded(&mut self) {
        self.end_gap();
        self.waited.clear();
        self.waited.extend(self.totals_at_begin.iter().map(|one| (one.tid, run_queue_time(one.tid))));
        // Hooks call the policy before the window opens: a thread joins the window at its first hook in it.
        set_attention(Attention::Everything);
        RECORDER.open_recorded();
    }

    fn entries(&self) -> usize {
        RECORDER.entries()
    }

    fn close_recorded(&mut self) -> Recording {
        own::charge_cpu_time();
        close();
        let began = std::mem::replace(&mut self.totals_at_begin, thread_totals());
        let process = own::process_cpu_time() - self.process_at_begin;
        let runnable_times: Vec<(u32, u64)> =
            self.totals_at_begin.iter().filter_map(|now| self.runnable_time(&began, now)).collect();
        own::resume_analysis();
        // Hooks that began before the window's end may still write.
        std::thread::sleep(GRACE);
        let hook = self.hook_cost.cost();
        // A full log lost events: its hooks cannot be counted.
        let is_whole = RECORDER.entries() < ENTRIES_MAX;
        RECORDER.take(hook, &mut self.trace);
        // A thread that began during the window has no earlier total, and so no entry.
        let of_account = |number| runnable_times.iter().find(|&&(one, _)| one == number).map(|&(_, time)| time);
        let mut recording = Recording::new(&self.trace, of_account);
        if let Some(mut heard) = work_between(&began, &self.totals_at_begin).filter(|_| is_whole) {
            // The cost of spans between windows is part of a unit's time without a window, so both sides must include
            // it.
            heard.processor += (self.costs.between_windows * recording.changes as f64) as u64;
            self.hook_cost.add_window(heard, recording.hook_count as f64);
        }
        recording.unregistered = process.saturating_sub(registered_time(&began, &self.totals_at_begin));
        // The time to read the window belongs neither to the window nor to the gap after it.
        self.totals_at_begin = thread_totals();
        self.runnable.clear();
        self.runnable.extend(recording.packed.threads.iter().map(|thread| (thread.number, thread.runnable)));
        recording.reading = own::by_processor(own::charge_cpu_time());
        recording
    }

    fn open_paused(&mut self, weights: Option<&Weights>, speedup: f64) {
        self.end_gap();
        for account in accounts() {
            let known = self.runnable.iter().find(|&&(number, _)| number == account.number());
            RECORDER.ledger().set_runnable(account, known.map_or(1.0, |&(_, part)| part));
        }
        set_attention(Attention::Everything);
        RECORDER.ledger().set_hook_cost(self.hook_cost.cost() as u64);
        RECORDER.open_experiment(&Experiment { weights, speedup });
    }

    fn delay_so_far(&self) -> u64 {
        RECORDER.ledger().cost(clock::now()).delayed
    }

    fn close_paused(&mut self) -> (WindowOutcome, WindowCost) {
        close();
        own::resume_analysis();
        std::thread::sleep(GRACE);
        let outcome = RECORDER.outcome();
        self.totals_at_begin = thread_totals();
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
        // Samples are handed over in batches; this bounds a batch between two analyses.
        if self.batch.frames.len() > FRAMES_MAX {
            self.hand_over();
        }
    }

    fn lost(&self) -> Lost {
        self.sampler.as_ref().map_or_else(Lost::default, Sampler::lost)
    }

    fn costs(&self) -> HookCosts {
        HookCosts { in_window: self.hook_cost.cost(), ..self.costs }
    }

    fn hook_cost(&self) -> Option<f64> {
        self.hook_cost.measured_cost()
    }

    fn own_cpu_time(&self) -> u64 {
        own::charge_cpu_time();
        own::cpu_time_charged() - self.taken
    }

    fn start_analysis(&mut self, evidence: Evidence, limits: AnalysisLimits) {
        self.hand_over();
        if let Some(analysis) = &mut self.analysis
            && !analysis.is_busy
        {
            analysis.is_busy = analysis.requests.send(AnalysisRequest::Analyse(Box::new(evidence), limits)).is_ok();
        }
    }

    fn take_finding(&mut self) -> Option<Finding> {
        let analysis = self.analysis.as_mut()?;
        let finding = analysis.findings.try_recv().ok()?;
        analysis.is_busy = false;
        Some(finding)
    }

    fn conclude(&mut self, evidence: Evidence, limits: AnalysisLimits) -> Option<Finding> {
        // Measuring is over: the program runs without hooks during the analysis.
        self.stop_profiling();
        self.hand_over();
        let AnalysisThread { requests, findings, is_busy, is_cancelled, thread } = self.analysis.take()?;
        if is_busy {
            // An analysis in progress is cut short: its result is not used.
            is_cancelled.store(true, Relaxed);
            drop(findings.recv());
            is_cancelled.store(false, Relaxed);
        }
        requests.send(AnalysisRequest::Analyse(Box::new(evidence), limits)).ok()?;
        let finding = findings.recv().ok();
        // Ends the thread, which frees its symbols and samples.
        drop(requests);
        let _ = thread.join();
        finding
    }
}

impl ProcessUnderProfile {
    /// Ends the stretch between two windows, and suspends the profiler's other threads for the window that follows.
    fn end_gap(&mut self) {
        own::suspend_analysis();
        let now = thread_totals();
        self.hook_cost.add_between(work_between(&self.totals_at_begin, &now).unwrap_or_default());
        self.totals_at_begin = now;
        self.process_at_begin = own::process_cpu_time();
    }

    /// How long a thread has had a processor or waited for one since `then`, by its account; `None` for another thread.
    ///
    /// A thread's time in the run queue is proportional to its work, so it shrinks with that work. The remaining time,
    /// neither this nor a block that the program reported, is an unreported wait (a file, a page fault, a lock without
    /// a hook), which a faster target does not shorten.
    fn runnable_time(&self, then: &[ThreadTotals], now: &ThreadTotals) -> Option<(u32, u64)> {
        let then = then.iter().find(|one| one.tid == now.tid && one.number == now.number)?;
        let (_, before) = self.waited.iter().find(|&&(tid, _)| tid == now.tid)?;
        Some((now.number, now.cpu_time.saturating_sub(then.cpu_time) + run_queue_time(now.tid).saturating_sub(*before)))
    }

    fn hand_over(&mut self) {
        if let Some(analysis) = &self.analysis {
            // Fails only if the analysis thread has ended: the samples are then not needed.
            let _ = analysis.requests.send(AnalysisRequest::Samples(std::mem::take(&mut self.batch)));
        }
    }
}

/// The thread that analyses the evidence.
struct AnalysisThread {
    requests: Sender<AnalysisRequest>,
    findings: Receiver<Finding>,
    is_busy: bool,
    /// Set when the result of the analysis in progress is not needed.
    is_cancelled: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

enum AnalysisRequest {
    Samples(Batch),
    Analyse(Box<Evidence>, AnalysisLimits),
}

impl AnalysisThread {
    /// Starts the thread. Each sample stands for `period` nanoseconds.
    fn start(request: ProfileRequest, period: u64) -> std::io::Result<Self> {
        let (requests, received) = channel();
        let (results, findings) = channel();
        let is_cancelled = Arc::<AtomicBool>::default();
        let theirs = Arc::clone(&is_cancelled);
        let thread = std::thread::Builder::new().name("causal-analysis".into()).spawn(move || {
            own::lower_priority(NICENESS);
            let mut peers = Peers::default();
            let mut analyst = Analyst::new(request, SampleProfile::new(period)).with_cancellation(theirs);
            for request in received {
                match request {
                    AnalysisRequest::Samples(batch) => batch.each(|sample| {
                        own::wait_while_suspended();
                        analyst.naming().add(sample);
                    }),
                    AnalysisRequest::Analyse(mut evidence, limits) => {
                        // Without outside load there is no client process to look for.
                        if evidence.recordings.iter().any(|one| one.has_load) {
                            own::wait_while_suspended();
                            evidence.peer = peers.look();
                        }
                        let finding = analyst.analyse(&evidence, limits);
                        // Before the result is sent: a profile that starts after it must not be charged for this time.
                        own::charge_cpu_time();
                        if results.send(finding).is_err() {
                            break;
                        }
                    }
                }
                own::charge_cpu_time();
            }
        })?;
        Ok(Self { requests, findings, is_busy: false, is_cancelled, thread })
    }
}

/// Samples on their way to the analysis thread: frames in one vector, heads that index it.
#[derive(Default)]
struct Batch {
    heads: Vec<SampleHead>,
    frames: Vec<usize>,
}

struct SampleHead {
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
        self.heads.push(SampleHead { account, kind, at, frames: begin..self.frames.len() });
    }

    fn each(self, mut seen: impl FnMut(&Sample<'_>)) {
        for SampleHead { account, kind, at, frames } in self.heads {
            seen(&Sample { account, kind, at, frames: &self.frames[frames] });
        }
    }
}

impl TargetSource for SampleProfile {
    fn recorded(&mut self, kinds: &[u32], upstreams: &[u32]) {
        Self::recorded(self, kinds, upstreams);
    }

    fn samples(&self) -> u64 {
        Self::samples(self)
    }

    fn shortcoming(&self) -> Option<&'static str> {
        match self.symbols() {
            Symbols::Lines => None,
            Symbols::Functions => Some(
                "the program has no line table: the report has functions, but no lines or inlined frames; build with \
                 debug = \"line-tables-only\"",
            ),
            Symbols::Large => Some(
                "the program's line tables are too large for the profiler's memory limit: the report has functions, \
                 but no lines or inlined frames",
            ),
            Symbols::None => {
                Some("the program has no symbol table: the report has spans only; build with strip = false")
            }
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

/// A thread's totals at some moment.
struct ThreadTotals {
    number: u32,
    tid: i32,
    /// Processor time so far, nanoseconds.
    cpu_time: u64,
    hits: u64,
}

/// The totals of all live threads.
fn thread_totals() -> Vec<ThreadTotals> {
    let of_account = |account: &Account| {
        Some(ThreadTotals {
            number: account.number(),
            tid: account.tid()?,
            cpu_time: cpu_time(account)?,
            hits: account.hits(),
        })
    };
    accounts().into_iter().filter_map(of_account).collect()
}

/// The sum over all threads between two moments; `None` if a thread began or ended between them.
fn work_between(then: &[ThreadTotals], now: &[ThreadTotals]) -> Option<WorkDone> {
    let pairs = || then.iter().zip(now);
    let are_same = then.len() == now.len() && pairs().all(|(then, now)| then.tid == now.tid);
    are_same.then(|| WorkDone {
        processor: pairs().map(|(then, now)| now.cpu_time.saturating_sub(then.cpu_time)).sum(),
        hits: pairs().map(|(then, now)| now.hits.saturating_sub(then.hits)).sum(),
    })
}

/// The processor time of all threads of `now` since `then`, nanoseconds; of a thread that began since, all of it.
fn registered_time(then: &[ThreadTotals], now: &[ThreadTotals]) -> u64 {
    let before = |tid| then.iter().find(|then| then.tid == tid).map_or(0, |then| then.cpu_time);
    now.iter().map(|now| now.cpu_time.saturating_sub(before(now.tid))).sum()
}

/// A thread's time in the run queue so far, nanoseconds; 0 if the system does not report it.
fn run_queue_time(tid: i32) -> u64 {
    let statistics = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    statistics.split_ascii_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}
