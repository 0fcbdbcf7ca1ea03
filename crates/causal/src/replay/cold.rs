//! What an event loop's work takes more behind sleep: the processor had halted, and its caches and predictors have to be filled again. A
//! microsecond or a few for the first job of each such turn, spread over all of its work. Who makes a program faster makes it sleep more,
//! or, where it waited for others, less.
//!
//! Jobs that take the same steps, those begun from sleep against the others: the difference of the medians, by kind of work, over all
//! sorts of jobs. What may be chance counts as nothing, so work that varies as it likes says nothing.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::ops::Range;

use super::script::{self, Job, Script, Step, Work};
use crate::trace::Trace;

/// By kind of work, nanoseconds; nothing for kinds that are not in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cold(BTreeMap<u32, f64>);

/// So many events are gone through: some tens of milliseconds.
const EVENTS_MAX: usize = 100_000;
/// Of one sort, begun from sleep and not, it takes so many jobs that they are compared.
const JOBS_MIN: usize = 10;
/// How many standard errors a difference has to be beyond nothing.
const CERTAIN: f64 = 3.0;
/// No kind's is believed to be more, nanoseconds: jobs of one sort may differ in what they are asked for, too.
const EXTRA_MAX: f64 = 20_000.0;

/// The times of one kind of work in jobs of one sort: those that were not begun from sleep, and those that were.
type Times = [Vec<f64>; 2];

/// Differences of one kind, each times the jobs that tell it.
#[derive(Default)]
struct Sum {
    differences: f64,
    /// Squared.
    errors: f64,
    jobs: f64,
}

impl Cold {
    /// From the first windows of many; those without an event loop tell nothing.
    pub fn of(traces: impl Iterator<Item: Borrow<Trace>>) -> Self {
        let mut sorts: BTreeMap<(u64, u32), Times> = BTreeMap::new();
        let (mut events, mut times, mut script) = (0, Vec::new(), Script::default());
        for trace in traces {
            let trace: &Trace = trace.borrow();
            script = script::write(trace, None, &Self::default(), script);
            let Script { jobs, steps, work, is_worker, .. } = &script;
            for job in jobs.iter().filter(|job| is_worker[job.thread as usize]) {
                let sort = sort_of(job, steps, work);
                add_up(job, steps, work, &mut times);
                for &(kind, time) in &times {
                    sorts.entry((sort, kind)).or_default()[usize::from(job.is_from_sleep)].push(time);
                }
            }
            events += trace.threads.iter().map(|thread| thread.events.len()).sum::<usize>();
            if events >= EVENTS_MAX {
                break;
            }
        }
        let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
        for ((_, kind), times) in sorts {
            let jobs = times[0].len().min(times[1].len());
            if jobs >= JOBS_MIN {
                let [without, with] = times.map(median);
                let (sum, jobs) = (sums.entry(kind).or_default(), jobs as f64);
                sum.differences += (with.0 - without.0) * jobs;
                sum.errors += (with.1.powi(2) + without.1.powi(2)) * jobs.powi(2);
                sum.jobs += jobs;
            }
        }
        let certain = |(kind, sum): (u32, Sum)| {
            let is_certain = sum.differences > CERTAIN * sum.errors.sqrt();
            is_certain.then(|| (kind, (sum.differences / sum.jobs).min(EXTRA_MAX)))
        };
        Self(sums.into_iter().filter_map(certain).collect())
    }

    /// Says of each piece of work what is different when its job begins otherwise than it was recorded.
    pub(super) fn apply(&self, script: &mut Script) {
        if self.0.is_empty() {
            return;
        }
        let Script { jobs, steps, work, is_worker, .. } = script;
        let mut times = Vec::new();
        for job in jobs.iter().filter(|job| is_worker[job.thread as usize]) {
            add_up(job, steps, work, &mut times);
            let sign = if job.is_from_sleep { -1.0 } else { 1.0 };
            for at in work_of(job, steps).flatten() {
                let work = &mut work[at];
                let time = times.iter().find(|(kind, _)| *kind == work.kind).map_or(0.0, |&(_, time)| time);
                if let Some(extra) = self.0.get(&work.kind).filter(|_| time > 0.0) {
                    // As much again, or all of it, at most.
                    work.otherwise = sign * work.time * (extra / time).min(1.0);
                }
            }
        }
    }
}

/// Ranges of [`Script::work`] that a job does, one for each step that is work, but for having looked for it.
fn work_of(job: &Job, steps: &[Step]) -> impl Iterator<Item = Range<usize>> {
    let mut looked = usize::from(job.has_looked);
    steps_of(job, steps).iter().filter_map(move |step| match *step {
        Step::Work(from, to) => Some((from as usize + std::mem::take(&mut looked)).min(to as usize)..to as usize),
        _ => None,
    })
}

fn steps_of<'a>(job: &Job, steps: &'a [Step]) -> &'a [Step] {
    &steps[job.steps.start as usize..job.steps.end as usize]
}

/// How long each kind of work takes in a job.
fn add_up(job: &Job, steps: &[Step], work: &[Work], times: &mut Vec<(u32, f64)>) {
    times.clear();
    for work in work_of(job, steps).flat_map(|range| &work[range]) {
        match times.iter_mut().find(|(kind, _)| *kind == work.kind) {
            Some((_, time)) => *time += work.time,
            None => times.push((work.kind, work.time)),
        }
    }
}

/// Which sort a job is of: the same kinds of work between the same other steps have the same number.
fn sort_of(job: &Job, steps: &[Step], work: &[Work]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut ranges = work_of(job, steps);
    for step in steps_of(job, steps) {
        match step {
            Step::Work(..) => {
                let range = ranges.next().unwrap_or_default();
                work[range].iter().for_each(|work| work.kind.hash(&mut hasher));
            }
            other => discriminant(other).hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// The median, and its error, were it of a normal distribution with the same quartiles.
fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    (at(0.5), 0.93 * (at(0.75) - at(0.25)) / (times.len() as f64).sqrt())
}
