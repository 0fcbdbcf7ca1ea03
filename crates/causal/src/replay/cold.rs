//! The extra cost of an event loop's work after sleep. The processor had halted, and its caches and predictors must be
//! filled again: one or a few microseconds for the first job after each sleep, spread over all of its work. A faster
//! program sleeps more, or less if it was waiting for other threads.
//!
//! Compares jobs with equal steps, those begun after sleep with the others: the difference of the medians, by kind of
//! work, over all groups of such jobs. A difference that may be noise counts as zero, so work that varies much has no
//! extra cost here.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::ops::Range;

use super::convert;
use super::script::{Job, Script, ScriptStep, Work};
use crate::constants::{COLD_ERRORS_MIN, COLD_EVENTS_MAX, COLD_EXTRA_MAX, COLD_JOBS_MIN, MEDIAN_ERROR_PER_QUARTILES};
use crate::trace::Trace;

/// By kind of work: the extra time after sleep, nanoseconds. Zero for kinds not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColdCosts(BTreeMap<u32, f64>);

/// The times of one kind of work in one group of jobs: those not begun after sleep, and those begun after sleep.
type Times = [Vec<f64>; 2];

/// The differences of one kind, weighted by the number of jobs.
#[derive(Default)]
struct KindDifference {
    differences: f64,
    /// Squares of the errors.
    errors: f64,
    jobs: f64,
}

impl ColdCosts {
    /// Computes the extra times from the first windows, up to `COLD_EVENTS_MAX` events. Threads without an event loop
    /// do not count.
    pub fn of(traces: impl Iterator<Item: Borrow<Trace>>) -> Self {
        let mut groups: BTreeMap<(u64, u32), Times> = BTreeMap::new();
        let (mut events, mut times, mut script) = (0, Vec::new(), Script::default());
        for trace in traces {
            let trace: &Trace = trace.borrow();
            // Without cold costs, as these are only found here.
            script = convert::convert(trace, None, &Self::default(), script);
            let Script { jobs, steps, work, is_worker, .. } = &script;
            for job in jobs.iter().filter(|job| is_worker[job.thread as usize]) {
                let group = group_of(job, steps, work);
                add_up(job, steps, work, &mut times);
                for &(kind, time) in &times {
                    groups.entry((group, kind)).or_default()[usize::from(job.is_from_sleep)].push(time);
                }
            }
            events += trace.threads.iter().map(|thread| thread.events.len()).sum::<usize>();
            if events >= COLD_EVENTS_MAX {
                break;
            }
        }
        let mut sums: BTreeMap<u32, KindDifference> = BTreeMap::new();
        for ((_, kind), times) in groups {
            let jobs = times[0].len().min(times[1].len());
            if jobs >= COLD_JOBS_MIN {
                let [without, with] = times.map(median);
                let (sum, jobs) = (sums.entry(kind).or_default(), jobs as f64);
                // Weight each group by the number of jobs in its smaller half.
                sum.differences += (with.0 - without.0) * jobs;
                sum.errors += (with.1.powi(2) + without.1.powi(2)) * jobs.powi(2);
                sum.jobs += jobs;
            }
        }
        // Keep only significant costs. A negative difference is noise: work is not faster after sleep.
        let certain = |(kind, sum): (u32, KindDifference)| {
            let is_certain = sum.differences > COLD_ERRORS_MIN * sum.errors.sqrt();
            is_certain.then(|| (kind, (sum.differences / sum.jobs).min(COLD_EXTRA_MAX)))
        };
        Self(sums.into_iter().filter_map(certain).collect())
    }

    /// Sets for each piece of work its change if its job begins after sleep and was recorded without, or the reverse.
    pub(super) fn apply(&self, script: &mut Script) {
        if self.0.is_empty() {
            return;
        }
        let Script { jobs, steps, work, is_worker, .. } = script;
        let mut times = Vec::new();
        for job in jobs.iter().filter(|job| is_worker[job.thread as usize]) {
            add_up(job, steps, work, &mut times);
            // A job recorded after sleep loses the cost if it is awake in a replay, and the reverse.
            let sign = if job.is_from_sleep { -1.0 } else { 1.0 };
            for at in work_of(job, steps).flatten() {
                let work = &mut work[at];
                let time = times.iter().find(|(kind, _)| *kind == work.kind).map_or(0.0, |&(_, time)| time);
                if let Some(extra) = self.0.get(&work.kind).filter(|_| time > 0.0) {
                    // At most double the work, or remove all of it.
                    work.sleep_change = sign * work.time * (extra / time).min(1.0);
                }
            }
        }
    }
}

/// Returns the ranges of [`Script::work`] that a job does, one per step that is work, without the look at the kernel
/// that began it.
fn work_of(job: &Job, steps: &[ScriptStep]) -> impl Iterator<Item = Range<usize>> {
    let mut looked = usize::from(job.has_polled);
    steps_of(job, steps).iter().filter_map(move |step| match *step {
        ScriptStep::Work(from, to) => Some((from as usize + std::mem::take(&mut looked)).min(to as usize)..to as usize),
        _ => None,
    })
}

fn steps_of<'a>(job: &Job, steps: &'a [ScriptStep]) -> &'a [ScriptStep] {
    &steps[job.steps.start as usize..job.steps.end as usize]
}

/// Sums the time of each kind of work in a job into `times`.
fn add_up(job: &Job, steps: &[ScriptStep], work: &[Work], times: &mut Vec<(u32, f64)>) {
    times.clear();
    for work in work_of(job, steps).flat_map(|range| &work[range]) {
        match times.iter_mut().find(|(kind, _)| *kind == work.kind) {
            Some((_, time)) => *time += work.time,
            None => times.push((work.kind, work.time)),
        }
    }
}

/// Returns a hash of a job's steps: jobs with the same kinds of work between the same other steps are one group.
fn group_of(job: &Job, steps: &[ScriptStep], work: &[Work]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut ranges = work_of(job, steps);
    for step in steps_of(job, steps) {
        match step {
            ScriptStep::Work(..) => {
                let range = ranges.next().unwrap_or_default();
                work[range].iter().for_each(|work| work.kind.hash(&mut hasher));
            }
            other => discriminant(other).hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// Returns the median and its standard error, the latter as for a normal distribution with these quartiles.
fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    (at(0.5), MEDIAN_ERROR_PER_QUARTILES * (at(0.75) - at(0.25)) / (times.len() as f64).sqrt())
}
