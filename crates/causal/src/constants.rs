//! The constants on which the results depend: levels, thresholds, allowances, bounds and calibrations.
//!
//! Each has its unit and its calibration: a record under `benches/record`, a derivation, or "chosen", which means a
//! judgement without a measurement. `docs/internals/causal-model.md` has a table of them; a test keeps it equal to this
//! file. Constants of a format, or of the memory of one module, are in that module.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Nanoseconds in a microsecond.
///
/// Unit: ns. Calibration: a definition.
pub(crate) const US: u64 = 1_000;

/// Nanoseconds in a millisecond.
///
/// Unit: ns. Calibration: a definition.
pub(crate) const MS: u64 = 1_000_000;

// Intervals and decisions.

/// Confidence level of every interval in a report.
///
/// Unit: 1. Calibration: the usual level.
pub const CONFIDENCE: f64 = 0.95;

/// Two-sided quantile of the normal distribution at the level [`CONFIDENCE`].
///
/// Unit: 1. Calibration: derived: Φ⁻¹(0.975); a test compares it with the crate statrs.
pub const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;

/// Maximum expected fraction of false findings among the accepted ones.
///
/// Unit: 1. Calibration: the usual level; `benches/record/causal-2026-11-25-959bc3ed7` has no false alarm in 100
/// for a target without effect.
pub const FALSE_DISCOVERIES: f64 = 0.05;

/// Parameter ρ of the normal mixture: an interval that is valid at every look is tightest at about eight times as
/// many observations.
///
/// Unit: observations. Calibration: derived for 49 observations, a number that is chosen.
pub(crate) const SEQUENCE_MIXTURE_RHO: f64 = 6.0;

/// Minimum observations for an interval that is valid at every look: with fewer, the variance is too uncertain.
///
/// Unit: observations. Calibration: chosen.
pub(crate) const SEQUENCE_OBSERVATIONS_MIN: u64 = 5;

// Allowances for the method, by one rule for every program.

/// Possible error of any gain, absolute.
///
/// Unit: gain. Calibration: chosen; checked as a whole: in `benches/record/causal-2026-11-25-959bc3ed7` 179 of 180
/// intervals overlap the measured one.
pub(crate) const ALLOWANCE_ANY: f64 = 0.003;

/// Possible error of a gain found by replay, relative to the gain, if the threads only work.
///
/// Unit: 1. Calibration: chosen; checked as a whole: in `benches/record/causal-2026-11-25-959bc3ed7` 179 of 180
/// intervals overlap the measured one.
pub(crate) const ALLOWANCE_WORK: f64 = 0.01;

/// Possible error of a gain found by replay, relative to the gain, for the fraction of the time in which the
/// working threads wait, before or after the change. A replay keeps the recorded needs, wakeup latencies and cold
/// costs, which change a little in reality.
///
/// Unit: 1. Calibration: chosen; checked as a whole: in `benches/record/causal-2026-11-25-959bc3ed7` 179 of 180
/// intervals overlap the measured one.
pub(crate) const ALLOWANCE_WAITING: f64 = 0.1;

/// Possible error of the time of hooks that is removed, relative to that time.
///
/// Unit: 1. Calibration: chosen; checked as a whole: in `benches/record/causal-2026-11-25-959bc3ed7` 179 of 180
/// intervals overlap the measured one.
pub(crate) const ALLOWANCE_HOOKS: f64 = 0.2;

/// Possible error of a gain found by pauses, relative to the gain.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const ALLOWANCE_PAUSES: f64 = 0.03;

// Screening: which targets are replayed, and when a result is precise.

/// Maximum number of progress points with curves.
///
/// Unit: points. Calibration: chosen.
pub(crate) const PROGRESS_POINTS_MAX: usize = 16;

/// Maximum number of sampled targets that are replayed; half as many during the measurement.
///
/// Unit: targets. Calibration: chosen.
pub(crate) const SCREENED_TARGETS_MAX: usize = 48;

/// Number of targets in a group that gets whole curves together, the best group first.
///
/// Unit: targets. Calibration: chosen.
pub(crate) const SCREENED_WHOLE_MAX: usize = 12;

/// Windows for the first estimate of all targets at one speed-up; twice as many in the last analysis.
///
/// Unit: windows. Calibration: chosen.
pub(crate) const SCREENED_WINDOWS_FIRST: usize = 8;

/// Fraction of an analysis's time limit by which the first estimate of all targets ends.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const ANALYSIS_PART_FIRST: f64 = 0.35;

/// Fraction of that limit by which the curves of the best group end.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const ANALYSIS_PART_BEST: f64 = 0.85;

/// Fraction of that limit after which no further group begins.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const ANALYSIS_PART_OTHERS: f64 = 0.9;

/// Number of best targets whose intervals decide whether a profile is precise; during the measurement only these
/// get whole curves.
///
/// Unit: targets. Calibration: chosen; `benches/record/causal-2026-11-25-959bc3ed7` measures the widest interval of
/// as many.
pub(crate) const PRECISE_TARGETS: usize = 5;

/// Half-width at which an interval is precise, and magnitude below which a gain does not matter.
///
/// Unit: gain. Calibration: chosen; `benches/record/causal-2026-11-25-959bc3ed7` reaches it after 20 s.
pub(crate) const PRECISE_HALF_WIDTH: f64 = 0.01;

/// Relative error of a replay without a change above which a replay is less reliable than pauses.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const REPLAY_UNFAITHFUL: f64 = 0.08;

// Confirmation: which targets get windows with pauses, and the correction of their results.

/// Maximum number of candidates offered for confirmation: more than are confirmed, because some exceed the budget.
///
/// Unit: targets. Calibration: chosen.
pub(crate) const CANDIDATES_OFFERED_MAX: usize = 8;

/// Two candidates are one if their gains differ by at most this fraction, and their shares by at most the next one.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const CANDIDATES_GAIN_ALIKE: f64 = 0.02;

/// See [`CANDIDATES_GAIN_ALIKE`].
///
/// Unit: 1. Calibration: chosen.
pub(crate) const CANDIDATES_SHARE_ALIKE: f64 = 0.05;

/// Gain and share below which these fractions are of this value.
///
/// Unit: gain, share. Calibration: chosen.
pub(crate) const CANDIDATES_ALIKE_FLOOR: f64 = 0.01;

/// Speed-ups that are confirmed, in turn; for each, the nearest requested one is used.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const CONFIRMED_SPEEDUPS: [f64; 4] = [0.5, 0.25, 0.5, 1.0];

/// Minimum samples of a target in its windows with pauses for a comparison with its share in the run.
///
/// Unit: samples. Calibration: chosen: the relative error of the share is then at most 14 %.
pub(crate) const PHASE_SAMPLES_MIN: f64 = 50.0;

/// Minimum logarithm of the share's ratio that corrects a gain.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PHASE_CHANGE_MIN: f64 = 0.05;

/// Minimum of that logarithm in standard errors.
///
/// Unit: standard errors. Calibration: chosen: about 1 of 370 by chance.
pub(crate) const PHASE_ERRORS_MIN: f64 = 3.0;

/// Minimum of that logarithm for a note.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PHASE_CHANGE_NOTED: f64 = 0.2;

// The replay.

/// Time for which the standard library's locks spin before they sleep. A thread that sleeps is overtaken by threads
/// that arrive during its wakeup; this is much of the cost of a contended lock.
///
/// Unit: ns. Calibration: derived: a hundred spin-loop hints, taken as 40 ns each.
pub(crate) const SPIN: f64 = 4_000.0;

/// Maximum time for an event loop to poll for ready events without sleeping: one system call.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const POLL_MAX: u64 = 20 * US;

/// Maximum weight of a unit that was recorded whole: the weight grows without bound as the unit fills its window.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const UNIT_WEIGHT_MAX: f64 = 10.0;

/// Minimum excess of the number of units that were cut by their window's begin, over the number expected from those
/// recorded whole.
///
/// Unit: standard errors. Calibration: chosen: about 1 of 700 by chance, one-sided.
pub(crate) const CUT_UNITS_ERRORS_MIN: f64 = 3.0;

/// Minimum cost of a wakeup. In less time the kernel found no waiting thread, or was not called.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const WAKE_COST_MIN: f64 = 1_000.0;

/// Minimum number of wakeup latencies. Fewer may all be of threads that were waiting for a processor; then their
/// median counts as [`WAKEUP_VIRTUAL`] at most.
///
/// Unit: latencies. Calibration: chosen.
pub(crate) const WAKEUPS_MIN: usize = 20;

/// Maximum time for a thread to take all the messages that it was blocked for.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const TAKEN_TOGETHER_MAX: u64 = 20 * US;

/// Number of events after which no further trace is read for the extra cost of work after sleep: some tens of
/// milliseconds of analysis.
///
/// Unit: events. Calibration: chosen.
pub(crate) const COLD_EVENTS_MAX: usize = 100_000;

/// Minimum number of jobs, both begun after sleep and not, for a comparison of a group.
///
/// Unit: jobs. Calibration: chosen.
pub(crate) const COLD_JOBS_MIN: usize = 10;

/// Minimum difference between both, in standard errors.
///
/// Unit: standard errors. Calibration: chosen: about 1 of 700 by chance, one-sided.
pub(crate) const COLD_ERRORS_MIN: f64 = 3.0;

/// Maximum extra time of a kind of work: requests also differ within one group of jobs.
///
/// Unit: ns. Calibration: chosen; 1.5 to 2 µs were measured for a request (docs/causal-profiling.md).
pub(crate) const COLD_EXTRA_MAX: f64 = 20_000.0;

/// Standard error of a median, as a multiple of the distance of the quartiles divided by the root of the number of
/// values.
///
/// Unit: 1. Calibration: derived for a normal distribution: 1.2533 / 1.3490.
pub(crate) const MEDIAN_ERROR_PER_QUARTILES: f64 = 0.93;

/// Time to wake a thread on a virtual processor that has halted.
///
/// Unit: ns. Calibration: measured on one virtual machine: 27 to 33 µs; no record is kept. Before it was used where
/// no window has a latency, a server of four clients was predicted to gain 51.6 % for 46.6 % (a1f048fc5-dirty in
/// `benches/record/HISTORY.md`).
pub(crate) const WAKEUP_VIRTUAL: f64 = 30_000.0;

/// Time to wake a thread on a processor that is awake or in a light sleep, as after a short idle time.
///
/// Unit: ns. Calibration: chosen; not measured.
pub(crate) const WAKEUP_BARE: f64 = 5_000.0;

// The kind of load.

/// Elasticities: below the first one the load sets the rate (open loop), from the second one on the program does
/// (closed loop); between them the load is mixed.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const LOAD_ELASTICITIES: [f64; 2] = [0.3, 0.7];

/// Half-width of the elasticity's interval that is narrow enough to stop probing.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const LOAD_HALF_WIDTH_ENOUGH: f64 = 0.2;

/// Half-width of the elasticity's interval above which the probes have no result.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const LOAD_HALF_WIDTH_MAX: f64 = 0.5;

/// Minimum idle fraction of the busiest thread: with less, the program sets the rate with any load.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const LOAD_IDLE_MIN: f64 = 0.1;

/// If the program lacks idle time for more than this fraction of a pause, it is the bottleneck, and the forced part is
/// not subtracted.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const LOAD_FORCED_MAX: f64 = 0.85;

/// Minimum number of blocks of load probes that count.
///
/// Unit: blocks. Calibration: two blocks agreed by chance (75bbeff01, 2nd, in `benches/record/HISTORY.md`); the
/// tests of `load.rs` simulate Poisson arrivals.
pub(crate) const PROBE_BLOCKS_MIN: usize = 4;

/// Degrees of freedom of the prior that blocks vary like Poisson arrivals, added to those of the measured variance:
/// with few blocks, a small variance may itself be chance.
///
/// Unit: degrees of freedom. Calibration: as many as [`PROBE_BLOCKS_MIN`]; the tests of `load.rs` simulate it.
pub(crate) const PROBE_PRIOR_FREEDOM: f64 = 4.0;

/// If more than this fraction of a pause is still held at the end of its windows, the rest is too small to measure.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PROBE_PENDING_MAX: f64 = 0.7;

/// Above this fraction, longer windows would give a much better result.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PROBE_PENDING_MUCH: f64 = 0.4;

/// A process has no time left if one of its threads needs a processor for this fraction of the time or more.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PEER_SATURATED: f64 = 0.9;

/// On a shared machine, a generator at its limit waits for a program that has no processor. With a fixed number of
/// connections, each with one request in flight, this fraction is enough to name the generator as the likely cause:
/// a rate-limited one mostly sleeps.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PEER_BUSY: f64 = 0.6;

/// Minimum number of observations for the behaviour of the clients.
///
/// Unit: observations. Calibration: chosen.
pub(crate) const CLIENTS_POINTS_MIN: f64 = 200.0;

/// Maximum half-width of that behaviour's slope, at two standard errors.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const CLIENTS_HALF_WIDTH_MAX: f64 = 0.25;

/// Maximum number of stretches of time per arrival.
///
/// Unit: stretches. Calibration: chosen.
pub(crate) const CLIENTS_STRETCHES_MAX: u64 = 20;

/// Minimum fraction of arrivals in windows with a fixed set of connections, each with one request in flight.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const CLIENTS_FIXED_MIN: f64 = 0.9;

// Pauses and holds.

/// Smaller debts accumulate until they reach this.
///
/// Unit: ns. Calibration: a sleep takes 40 to 90 µs longer than requested, as measured on one virtual machine; no
/// record is kept.
pub const DEBT_QUANTUM: u64 = 200 * US;

/// Minimum debt that a thread pays before an action that other threads wait for. A smaller debt passes to the
/// receiver with the stamp.
///
/// Unit: ns. Calibration: chosen.
pub const DEBT_URGENT: u64 = 20 * US;

/// Minimum hold of a message. A message that needs less is passed on at once; the receiving thread gets the
/// difference as debt.
///
/// Unit: ns. Calibration: chosen.
pub const HOLD_MIN: u64 = 30 * US;

/// Maximum hold of a message. A message that needs a longer one is passed on at once, without debt, and counted.
///
/// Unit: ns. Calibration: chosen.
pub const HOLD_MAX: u64 = 5 * MS;

/// Fraction of wall time for which a load probe pauses everything. A longer pause stands out more from the
/// program's own variation. But a program that is idle for less than that fraction loses throughput, with any load.
///
/// Unit: 1. Calibration: chosen; six blocks are as informative as sixteen with longer windows were
/// (docs/causal-profiling.md).
pub const PROBE: f64 = 0.2;

/// Maximum hold in a load probe. A probe holds all outside messages, whose clients may be 50 ms away.
///
/// Unit: ns. Calibration: derived from [`PROBE`] for a distance of 50 ms, which is chosen.
pub(crate) const HOLD_MAX_PROBED: u64 = (PROBE * 50e6) as u64;

/// Maximum time from the send of a message to the wakeup that it caused.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const WAKEUP_MAX: u64 = 200 * US;

/// Longest sleep without a check whether the window is still open.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const PAUSE_PIECE_MAX: u64 = 2 * MS;

// The plan: windows and the budget.

/// Maximum budget, as a fraction of the time.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const BUDGET_MAX: f64 = 0.25;

/// Fraction of the budget spent on costs that can be counted. The rest covers the others: cold caches after windows
/// and readings, signals, context switches.
///
/// Unit: 1. Calibration: chosen; with a budget of 3 %, profiles reported a cost of 2.3 % and clients lost 2.5 ± 1.3
/// and 1.9 ± 1.6 % (`benches/record/causal-2026-11-25-959bc3ed7`).
pub(crate) const BUDGET_COUNTED: f64 = 0.8;

/// Time between two checks of the cost of a window with pauses. A window ends early by the delay of two such times.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const COST_CHECK: u64 = 2 * MS;

/// Time between two checks whether a recorded window's logs are nearly full.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const LOG_CHECK: u64 = 10 * MS;

/// Fraction of the counted budget ([`BUDGET_COUNTED`]) for recording windows and reading them.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const RECORDING_BUDGET: f64 = 1.0 / 5.0;

/// Minimum cost of recordings, as a fraction of the program's busy time, however small the budget is.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const RECORDING_MIN: f64 = 0.002;

/// Cost of recordings, as that fraction, if there is no budget.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const RECORDING_FREE: f64 = 0.01;

/// Maximum fraction of the time in recorded windows: usually, and if only pauses are used.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const RECORDING_DUTY_MAX: [f64; 2] = [0.5, 0.1];

/// Number of windows with progress that are recorded as early as possible. The others are spread over the run.
///
/// Unit: windows. Calibration: chosen.
pub(crate) const RECORDED_EARLY: u32 = 8;

/// Number of windows recorded early, with or without progress.
///
/// Unit: windows. Calibration: chosen.
pub(crate) const RECORDED_EARLY_MAX: u32 = 64;

/// Lengths of a recorded window: the first one, the usual one, and the longest, for slow progress.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const RECORD_LENGTHS: [u64; 3] = [20 * MS, 100 * MS, 1000 * MS];

/// Length of a recorded window if some units are nearly as long as the usual longest one.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const RECORD_LENGTH_MAX: u64 = 5000 * MS;

/// Fraction of a thread's log that a recorded window is planned to fill.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const LOG_FILL_MAX: f64 = 0.8;

/// Minimum and maximum length of a window with pauses.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const PAUSE_LENGTHS: [u64; 2] = [100 * MS, 250 * MS];

/// Minimum length of a window with pauses if the budget is too small for longer ones.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const PAUSE_LENGTH_MIN: u64 = 50 * MS;

/// Minimum and maximum length of a load probe's windows: in a shorter window less else varies.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const PROBE_LENGTHS: [u64; 2] = [PAUSE_LENGTH_MIN, 125 * MS];

/// Length of a probe's control relative to its window with pauses. A control delays nothing, and in a longer one
/// the rate varies less.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PROBE_CONTROL_LENGTH: u64 = 2;

/// Number of units of progress that a window should contain.
///
/// Unit: units. Calibration: chosen.
pub(crate) const WINDOW_UNITS: f64 = 50.0;

/// Minimum length of a window in latencies, so that its edges count for little.
///
/// Unit: latencies. Calibration: chosen.
pub(crate) const WINDOW_LATENCIES: f64 = 20.0;

/// Minimum length of a recorded window in latencies, also beyond the usual longest one: of four such lengths, one is
/// cut by the window's begin, and a weight corrects for that.
///
/// Unit: latencies. Calibration: chosen.
pub(crate) const RECORDED_LATENCIES_MIN: f64 = 4.0;

/// Minimum and maximum number of blocks of load probes, if there is a load.
///
/// Unit: blocks. Calibration: the minimum is [`PROBE_BLOCKS_MIN`]; the maximum is chosen.
pub(crate) const PROBE_BLOCKS: [u32; 2] = [4, 16];

/// Maximum fraction of the time for windows with pauses.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PAUSED_TIME_MAX: f64 = 0.5;

/// Maximum fraction of all pauses for load probes, after the first two blocks.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const PROBED_PAUSES_MAX: f64 = 1.0 / 3.0;

/// Number of blocks for a target before it is the next one's turn. In the first round, all of them use the first
/// speed-up.
///
/// Unit: blocks. Calibration: chosen.
pub(crate) const CONFIRMED_IN_TURN: u32 = 4;

/// Maximum number of targets to confirm.
///
/// Unit: targets. Calibration: chosen.
pub(crate) const CONFIRMED_TARGETS_MAX: usize = 3;

/// Minimum time after a window with pauses: lets its delayed work finish. Added are a random time up to this, the
/// length of a load probe's paused window, and up to 50 ms after a block in which a recording became due.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const WINDOW_SETTLE: u64 = 4 * MS;

/// Weight of a new window in the exponential means of the program's rates.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const RATE_SMOOTHING: f64 = 0.3;

/// Factor per window by which the largest rate so far decays.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const RATE_MAX_DECAY: f64 = 0.9;

/// Factor for the measured growth of a target's delays, which varies.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const DELAY_GROWTH_MARGIN: f64 = 1.2;

// The cost of hooks.

/// Bounds of the cost of a hook.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const HOOK_COSTS: [f64; 2] = [1.0, 1000.0];

/// Cost of a hook in a server, relative to its cost in a loop: in a real program other data occupies the caches.
///
/// Unit: 1. Calibration: measured on this server, by processor time with and without windows; no record is kept. A
/// profile measures it anew.
pub(crate) const HOOK_COST_REAL: f64 = 2.5;

/// Minimum units of progress in a stretch of time that counts for the measured cost of a hook.
///
/// Unit: units. Calibration: chosen.
pub(crate) const HOOK_UNITS_MIN: u64 = 20;

/// Minimum windows for the measured cost of a hook.
///
/// Unit: windows. Calibration: chosen.
pub(crate) const HOOK_WINDOWS_MIN: u64 = 8;

/// Standard error of the expected cost of a hook, as a fraction of it.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const HOOK_COST_ERROR: f64 = 0.5;

// Samples and targets.

/// A kind of work with fewer samples than this is estimated partly from its surroundings (shrinkage).
///
/// Unit: samples. Calibration: chosen.
pub(crate) const KIND_SAMPLES_FEW: f64 = 20.0;

/// Weight of the surroundings for a kind without samples. Small, since the work in a span mostly differs from the
/// rest of its thread's.
///
/// Unit: samples. Calibration: chosen.
pub(crate) const KIND_PRIOR_SAMPLES: f64 = 2.0;

/// Two targets are duplicates if their times differ by at most this part of the larger one.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const DUPLICATE_APART_MAX: f64 = 0.12;

/// Two targets with half of a kind each may be disjoint; they have common time only in kinds of which each has more
/// than this.
///
/// Unit: 1. Calibration: chosen above one half, from which on both must overlap.
pub(crate) const DUPLICATE_OVERLAP_MIN: f64 = 0.6;

/// A target with at least this part of another one's samples has the same time.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const FOLD_SAME_TIME: f64 = 0.9;

/// A library's frame is a wrapper if at least this part of its samples has the program's code further in.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const FOLD_WRAPPER_MIN: f64 = 0.5;

/// Smallest share of all samples for a target inside one that contains everything, to be reported in its place.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const FOLD_INNER_SHARE_MIN: f64 = 0.05;

/// Candidates with a smaller share of all samples become no target, unless requested by name.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const TARGET_SHARE_MIN: f64 = 0.005;

/// A candidate with a larger share of each of its threads counts as being in all their stacks (some stacks are
/// truncated). Of these few are kept.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const TARGET_WHOLE_SHARE: f64 = 0.85;

/// A thread with a smaller part of a target's samples is ignored in that decision.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const TARGET_THREAD_MIN: f64 = 0.1;

/// Candidates kept of those that are in all stacks of a thread.
///
/// Unit: targets. Calibration: chosen.
pub(crate) const TARGET_WHOLE_MAX: usize = 2;

/// Time between two samples by wall time. Not quite a millisecond, so that the samples drift through work that
/// repeats each millisecond.
///
/// Unit: ns. Calibration: chosen: a prime number of microseconds.
pub(crate) const SAMPLE_WALL_PERIOD: u64 = 997 * US;

// The run.

/// Default speed-ups of the curves.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const CURVE_SPEEDUPS: [f64; 11] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0];

/// Interval at which samples are moved out of the signal handler's rings.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const SAMPLE_DRAIN_INTERVAL: u64 = 50 * MS;

/// Shortest time from the result of an analysis to the next analysis.
///
/// Unit: ns. Calibration: chosen.
pub(crate) const ANALYSIS_INTERVAL_MIN: u64 = 1000 * MS;

/// The next analysis starts once the last one's processor time is 1 / this of the time since its start, because it
/// counts against the profile's budget.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const ANALYSIS_REST: u64 = 180;

/// Processor time of an analysis during the measurement.
///
/// Unit: duration. Calibration: chosen.
pub(crate) const ANALYSIS_TIME: Duration = Duration::from_millis(50);

/// [`ANALYSIS_REST`] if the findings decide when the profile ends.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const ANALYSIS_REST_DECIDING: u64 = 120;

/// [`ANALYSIS_TIME`] if the findings decide when the profile ends.
///
/// Unit: duration. Calibration: chosen.
pub(crate) const ANALYSIS_TIME_DECIDING: Duration = Duration::from_millis(1500);

/// Bounds of the last analysis's time, which is a quarter of the measured time.
///
/// Unit: duration. Calibration: chosen.
pub(crate) const ANALYSIS_TIMES_LAST: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

// Notes and sentences of the report.

/// Fewer samples of a target are noted.
///
/// Unit: samples. Calibration: chosen: the relative error of a count of 20 is 22 %.
pub(crate) const NOTED_SAMPLES_FEW: u64 = 20;

/// Fewer units of progress are noted; a rate with fewer is not compared.
///
/// Unit: units. Calibration: chosen.
pub(crate) const NOTED_UNITS_FEW: u64 = 30;

/// Fewer recorded windows are noted.
///
/// Unit: windows. Calibration: chosen.
pub(crate) const NOTED_WINDOWS_FEW: usize = 4;

/// A larger relative error of a replay without a change is noted. A smaller one is usual and part of the intervals.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const NOTED_MISFIT: f64 = 0.03;

/// A larger fraction of units that follow from waits without a known cause is noted, and the replay does not bound the
/// gains.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const NOTED_UNEXPLAINED: f64 = 0.05;

/// A larger fraction of the processor time that threads without an account use is noted.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const NOTED_UNREGISTERED: f64 = 0.15;

/// A larger fraction of the time that is in units longer than the windows is noted.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const NOTED_UNSEEN: f64 = 0.1;

/// An interval is wide, and noted, if its half-width is larger than this and than the next fraction of the gain.
///
/// Unit: gain. Calibration: the bound that a prediction of `./bench causal` has to keep.
pub(crate) const NOTED_WIDE_POINTS: f64 = 0.02;

/// See [`NOTED_WIDE_POINTS`].
///
/// Unit: 1. Calibration: the bound that a prediction of `./bench causal` has to keep.
pub(crate) const NOTED_WIDE_PART: f64 = 0.2;

/// Number of best targets whose intervals are checked.
///
/// Unit: targets. Calibration: chosen.
pub(crate) const NOTED_TARGETS: usize = 5;

/// Minimum change of a rate between the halves of a run, as a logarithm, that is noted.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const NOTED_RATE_CHANGE: f64 = 0.25;

/// Minimum of that change in standard errors of Poisson counts.
///
/// Unit: standard errors. Calibration: chosen: fewer than 1 of 10 000 by chance.
pub(crate) const NOTED_RATE_ERRORS: f64 = 4.0;

/// Fraction of samples that may be lost without a note.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const NOTED_SAMPLES_LOST: f64 = 0.01;

/// Speed-up that sentences use, if the curve has it.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const SENTENCE_SPEEDUP: f64 = 0.2;

/// Smallest absolute gain at a speed-up of 100 % that is worth a sentence.
///
/// Unit: gain. Calibration: chosen.
pub(crate) const SENTENCE_GAIN_MIN: f64 = 0.01;

/// A gain counts as zero if its interval is within ± this.
///
/// Unit: gain. Calibration: chosen.
pub(crate) const SENTENCE_NO_GAIN: f64 = 0.02;

/// Smallest share of samples for which a gain of zero is worth a sentence.
///
/// Unit: 1. Calibration: chosen.
pub(crate) const SENTENCE_SHARE_MIN: f64 = 0.03;
