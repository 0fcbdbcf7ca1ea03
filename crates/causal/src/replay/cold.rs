//! What an event loop's work takes more in a turn that it begins from sleep: the processor had halted, and its caches and predictors
//! have to be filled again. A few microseconds for each such turn, spread over all of its work. Who makes a program faster makes it
//! sleep more, or, where it waited for others, less.
//!
//! Jobs that take the same steps, those begun from sleep against the others: the difference of the medians, by kind of work. What may be
//! chance counts as nothing, so work that varies as it likes says nothing.

use std::collections::BTreeMap;

use super::script::{self, Job, Script, Step};
use crate::trace::Trace;

/// By kind of work, nanoseconds; nothing for kinds that are not in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cold(BTreeMap<u32, f64>);

/// Jobs that are looked at.
const JOBS_MAX: usize = 4_000;
/// Of one sort, begun from sleep and not, it takes so many that they are compared.
const JOBS_MIN: usize = 10;
/// How many standard errors a difference has to be beyond nothing.
const CERTAIN: f64 = 3.0;

/// The times of one kind of work in jobs of one sort: those that were not begun from sleep, and those that were.
type Times = [Vec<f64>; 2];

impl Cold {
    /// From the first windows of many.
    pub fn of<'a>(traces: impl Iterator<Item = &'a Trace>) -> Self {
        let mut sorts: BTreeMap<(u64, u32), Times> = BTreeMap::new();
        let (mut jobs, mut times) = (0, Vec::new());
        for trace in traces {
            let script = script::write(trace, None, &Self::default());
            for job in script.jobs.iter().filter(|job| script.is_worker[job.thread as usize]) {
                let sort = describe(&script, job, &mut times);
                for &(kind, time) in &times {
                    sorts.entry((sort, kind)).or_default()[usize::from(job.is_from_sleep)].push(time);
                }
            }
            jobs += script.jobs.len();
            if jobs >= JOBS_MAX {
                break;
            }
        }
        // By kind: the differences and what they weigh.
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for ((_, kind), mut times) in sorts {
            let jobs = times[0].len().min(times[1].len());
            if jobs >= JOBS_MIN {
                let sum = sums.entry(kind).or_default();
                sum.0 += certain_difference(&mut times) * jobs as f64;
                sum.1 += jobs as f64;
            }
        }
        let mean = |(kind, (sum, jobs)): (u32, (f64, f64))| (sum > 0.0).then_some((kind, sum / jobs));
        Self(sums.into_iter().filter_map(mean).collect())
    }

    /// Says of each piece of work what is different when its job begins otherwise than it was recorded.
    pub(super) fn apply(&self, script: &mut Script) {
        if self.0.is_empty() {
            return;
        }
        let mut times = Vec::new();
        for job in 0..script.jobs.len() {
            let job = script.jobs[job].clone();
            if !script.is_worker[job.thread as usize] {
                continue;
            }
            describe(script, &job, &mut times);
            for step in &script.steps[job.steps.start as usize..job.steps.end as usize] {
                let Step::Work(from, to) = *step else { continue };
                for work in &mut script.work[from as usize..to as usize] {
                    let time = times.iter().find(|(kind, _)| *kind == work.kind).map_or(0.0, |&(_, time)| time);
                    let Some(extra) = self.0.get(&work.kind).filter(|_| time > 0.0) else { continue };
                    let part = extra / time;
                    // It may take more than it did by anything, and less by what it did.
                    work.otherwise = work.time * if job.is_from_sleep { -part.min(1.0) } else { part };
                }
            }
        }
    }
}

/// Which sort a job is of, and into `times` how long each kind of work takes in it; to have looked for it does not count.
fn describe(script: &Script, job: &Job, times: &mut Vec<(u32, f64)>) -> u64 {
    /// Fibonacci hashing: 2 to the 64th over the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    times.clear();
    let mut sort = 0_u64;
    let mut mix = |word: u32| sort = (sort.rotate_left(5) ^ u64::from(word)).wrapping_mul(SPREAD);
    let mut skipped = usize::from(job.has_looked);
    for step in &script.steps[job.steps.start as usize..job.steps.end as usize] {
        let Step::Work(from, to) = *step else {
            mix(u32::MAX - step.sort());
            continue;
        };
        for work in script.work[from as usize..to as usize].iter().skip(std::mem::take(&mut skipped)) {
            mix(work.kind);
            match times.iter_mut().find(|(kind, _)| *kind == work.kind) {
                Some((_, time)) => *time += work.time,
                None => times.push((work.kind, work.time)),
            }
        }
    }
    sort
}

/// How much more the second ones take, if it is certain that they do.
fn certain_difference(times: &mut Times) -> f64 {
    let [without, with] = times.each_mut().map(|times| {
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        // Of a median, were it of a normal distribution with these quartiles.
        let error = 0.93 * (at(0.75) - at(0.25)) / (times.len() as f64).sqrt();
        (at(0.5), error)
    });
    let difference = with.0 - without.0;
    if difference > CERTAIN * with.1.hypot(without.1) { difference } else { 0.0 }
}
