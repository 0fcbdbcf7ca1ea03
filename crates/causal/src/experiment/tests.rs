use super::*;

fn settings(seed: u64, modes: Modes, budget: f64) -> ExperimentSettings {
    ExperimentSettings {
        modes,
        budget,
        duration: 30_000 * MS,
        speedups: vec![0.5, 0.25, 0.5, 1.0],
        seed,
        bytes_max: 4e6,
        bytes_all: 64e6,
        entries_max: 262_144.0,
    }
}

/// The result of a run.
#[derive(Debug, Default)]
struct RunResult {
    recorded: u64,
    records: Vec<(u64, u64)>,
    pauses: Vec<Pause>,
    spent: u64,
    /// The time spent, including hooks.
    paid: u64,
    aborted: u32,
}

/// Runs a plan in simulated time. Calls `before` before each step, `recorded` after each recording, and `pause` for
/// each window with pauses, which returns its length.
fn drive(
    plan: &mut ExperimentPlan,
    mut now: u64,
    mut before: impl FnMut(&mut ExperimentPlan, u64),
    mut recorded: impl FnMut(&mut ExperimentPlan, u64, u64),
    mut pause: impl FnMut(&mut ExperimentPlan, u64, Pause) -> u64,
) {
    loop {
        before(plan, now);
        let step = plan.next(now);
        now += match step {
            RunStep::Done => break,
            RunStep::Rest(length) => length,
            RunStep::Record(length) => {
                recorded(plan, now + length, length);
                length
            }
            RunStep::Pause(window) => pause(plan, now, window),
        };
        assert!(!matches!(step, RunStep::Rest(0)));
        assert!(now <= plan.ends() + 2 * COST_CHECK, "{step:?} is longer than the run");
    }
}

/// Runs a plan. Delays grow at the rate `growth`, and are checked every [`COST_CHECK`]: each time asserts that the loss
/// is within the budget.
fn run(
    settings: ExperimentSettings,
    rates: ProgramRates,
    has_load: bool,
    targets: &[(&str, f64)],
    growth: impl Fn(&Pause, u64) -> f64,
) -> RunResult {
    let (began, budget) = (1_000_000_000, settings.budget);
    let mut run = RunResult::default();
    let mut plan = ExperimentPlan::new(settings, began);
    let recorded = |plan: &mut ExperimentPlan, now, length| {
        run.records.push((now - length, length));
        run.recorded += length;
        plan.recorded(now, length, rates, has_load);
        plan.confirm(targets.iter().copied());
    };
    let pause = |plan: &mut ExperimentPlan, opened, window: Pause| {
        let (mut now, mut cost) = (opened, 0.0);
        while now < opened + window.length {
            let rate = if window.treated { growth(&window, now).min(window.speedup) } else { 0.0 };
            cost += rate * COST_CHECK as f64;
            now += COST_CHECK;
            let lost = run.spent as f64 + cost;
            let filled = BUDGET_COUNTED * budget * (now - began) as f64;
            assert!(lost <= filled + 1.0, "{lost} lost {} after the start", now - began);
            if ExperimentPlan::is_too_dear(&window, cost as u64) {
                run.aborted += 1;
                break;
            }
        }
        plan.paused(now, &window, now - opened, cost as u64);
        run.spent += cost as u64;
        run.pauses.push(window);
        now - opened
    };
    drive(&mut plan, began, |_, _| (), recorded, pause);
    run.paid = plan.budget.spent;
    assert!(run.spent <= run.paid);
    run
}

const SERVER: ProgramRates = ProgramRates {
    entries: 1e-4,
    bytes: 1e-2,
    hits: 2e-5,
    latency: 1e6,
    hook_time: 0.02,
    reading: 0.0,
    span_tracking: 0.002,
    busy: 1.0,
};

/// The loss stays within the budget at every moment, at any cost of the windows.
#[test]
fn the_loss_never_exceeds_the_budget() {
    for seed in 0..300 {
        let budget = [0.005, 0.02, 0.03, 0.05][seed as usize % 4];
        let mut random = SeededRandom::new(seed);
        let (usual, wild) = (random.fraction(), random.fraction());
        let targets = [("a", random.fraction()), ("b", 0.001), ("c", 1.0)];
        let lot = std::cell::RefCell::new(random);
        let run = run(settings(seed, Modes::Both, budget), SERVER, seed % 3 > 0, &targets, |pause, _| {
            let mut random = lot.borrow_mut();
            match pause.subject {
                Subject::Load => PROBE,
                _ if random.fraction() < 0.01 * wild => pause.speedup,
                _ => pause.speedup * usual * 2.0 * random.fraction(),
            }
        });
        assert!(run.records.len() > 20, "{seed}: {}", run.records.len());
    }
}

/// The budget is used: in blocks of four windows in one of the two orders, and for all targets in turns.
#[test]
fn blocks_are_balanced_and_fair() {
    let targets = [("a", 0.3), ("b", 0.2), ("c", 0.1)];
    let mut firsts = 0;
    for seed in 0..40 {
        let run = run(settings(seed, Modes::Both, 0.03), SERVER, true, &targets, |pause, _| match pause.subject {
            Subject::Load => PROBE,
            Subject::Candidate(at) => pause.speedup * targets[at].1,
        });
        let whole = run.pauses.chunk_by(|a, b| a.block == b.block).filter(|block| block.len() == 4);
        let mut blocks = [0; 4];
        for block in whole {
            let treated: Vec<bool> = block.iter().map(|one| one.treated).collect();
            assert!(treated == [true, false, false, true] || treated == [false, true, true, false], "{treated:?}");
            assert!(block.iter().all(|one| (one.subject, one.speedup) == (block[0].subject, block[0].speedup)));
            firsts += i32::from(treated[0]);
            blocks[match block[0].subject {
                Subject::Load => 3,
                Subject::Candidate(at) => at,
            }] += 1;
        }
        let (min, max) = (blocks[..3].iter().min().unwrap(), blocks[..3].iter().max().unwrap());
        assert!(*min >= CONFIRMED_IN_TURN && max - min <= CONFIRMED_IN_TURN, "{seed}: {blocks:?}");
        assert!(blocks[3] >= PROBE_BLOCKS[0], "{seed}: {blocks:?}");
        let [spent, paid] = [run.spent, run.paid].map(|sum| sum as f64 / 30e9);
        assert!(paid > 0.02 && spent > 0.01, "{seed}: of 3 % only {paid} is used, {spent} for pauses");
        assert!(run.recorded as f64 > 0.1 * 30e9, "{seed}: recorded {}", run.recorded);
    }
    assert!((150..).contains(&firsts), "both orders come: {firsts}");
}

/// A busy server is recorded for as large a fraction of the time as recording and reading may cost, and a window fits
/// into logs and memory.
#[test]
fn recording_costs_at_most_its_share() {
    let cases = [
        (0.02, 0.0, 1e-4, 1e-3),
        (0.02, 0.02, 1e-4, 1e-3),
        (0.2, 0.0, 2e-3, 0.05),
        (0.1, 0.1, 2e-3, 0.05),
        (0.5, 0.0, 5e-3, 0.2),
        (0.001, 0.0, 1e-6, 1e-5),
        (0.001, 0.001, 1e-6, 1e-5),
    ];
    for (recording, reading, entries, bytes) in cases {
        let rates = ProgramRates { hook_time: recording, reading, entries, bytes, ..SERVER };
        for seed in 0..20 {
            let run = run(settings(seed, Modes::Screen, 0.0), rates, true, &[("a", 0.5)], |_, _| 1.0);
            let part = run.recorded as f64 / 30e9 * (recording + reading);
            assert!(part <= RECORDING_FREE * 1.3, "{recording}, {reading}: {part}");
            assert!(run.pauses.is_empty(), "no budget, no probes");
            for (_, length) in &run.records[1..] {
                assert!(*length as f64 * entries <= 262_144.0 && *length as f64 * bytes <= 4e6, "{length}");
            }
            // Spread over the whole run.
            let thirds: Vec<usize> = (0..3)
                .map(|third| {
                    run.records.iter().filter(|(at, _)| (at - 1_000_000_000) / 10_000_000_000 == third).count()
                })
                .collect();
            assert!(thirds.iter().all(|&count| count * 6 >= run.records.len()), "{thirds:?}");
        }
    }
}

/// With slow units, or few of them, windows are longer.
#[test]
fn the_window_length_depends_on_the_rate_of_progress() {
    let slow = ProgramRates { hits: 1e-8, bytes: 1e-3, ..SERVER };
    let far = run(settings(1, Modes::Both, 0.05), slow, true, &[("a", 0.1)], |pause, _| 0.1 * pause.speedup);
    assert!(
        far.records[1..].iter().filter(|(_, length)| *length == RECORD_LENGTHS[2]).count() + 2 >= far.records.len()
    );
    let targets = || far.pauses.iter().filter(|one| one.subject != Subject::Load);
    assert!(targets().filter(|one| one.length == PAUSE_LENGTHS[1]).count() * 2 > targets().count());
    let near = run(settings(1, Modes::Both, 0.03), SERVER, true, &[("a", 0.1)], |pause, _| 0.1 * pause.speedup);
    assert!(
        near.records[1..near.records.len() - 1].iter().all(|(_, length)| *length == RECORD_LENGTHS[1]),
        "{:?}",
        near.records
    );
}

/// Windows grow until a unit fits into them four times, also beyond the usual longest; a window shows at most its own
/// length of a unit.
#[test]
fn windows_grow_with_long_units() {
    let mut long = settings(1, Modes::Screen, 0.05);
    long.duration = 60_000 * MS;
    let mut plan = ExperimentPlan::new(long, 0);
    let mut lengths = Vec::new();
    let recorded = |plan: &mut ExperimentPlan, now, length: u64| {
        lengths.push(length);
        let latency = (length as f64 / 2.0).min(1_200.0 * MS as f64);
        plan.recorded(now, length, ProgramRates { latency, entries: 1e-6, bytes: 1e-4, ..SERVER }, true);
    };
    let pause = |plan: &mut ExperimentPlan, opened, pause: Pause| {
        plan.paused(opened + pause.length, &pause, pause.length, 0);
        pause.length
    };
    drive(&mut plan, 0, |_, _| (), recorded, pause);
    assert!(lengths[..8].is_sorted(), "{lengths:?}");
    assert!(lengths[8..lengths.len() - 1].iter().all(|&length| length == 4_800 * MS), "{lengths:?}");
}

/// A probe's windows with pauses are short, and its controls twice as long. A target's windows are all equally long.
#[test]
fn the_control_of_a_probe_is_longer() {
    for (hits, length) in [(2e-5, PROBE_LENGTHS[0]), (1e-8, PROBE_LENGTHS[1])] {
        let run =
            run(settings(1, Modes::Both, 0.05), ProgramRates { hits, ..SERVER }, true, &[("a", 0.1)], |pause, _| {
                if pause.subject == Subject::Load { PROBE } else { 0.1 * pause.speedup }
            });
        let of = |is_probe| run.pauses.iter().filter(move |one| (one.subject == Subject::Load) == is_probe);
        assert!(of(true).count() >= 16 && of(false).count() >= 16, "{:?}", run.pauses);
        for one in of(true) {
            assert_eq!(one.length, if one.treated { length } else { 2 * length }, "{one:?}");
        }
        for block in run.pauses.chunk_by(|a, b| a.block == b.block).filter(|block| block[0].subject != Subject::Load) {
            assert!(block.iter().all(|one| one.length == block[0].length), "{block:?}");
        }
    }
}

/// If too many messages were held at the end of short probes, further probes have the maximum length.
#[test]
fn probes_become_longer_on_request() {
    let mut plan = ExperimentPlan::new(settings(5, Modes::Screen, 0.03), 0);
    let mut lengths = [Vec::new(), Vec::new()];
    let recorded = |plan: &mut ExperimentPlan, now, length| {
        plan.recorded(now, length, SERVER, true);
        if now > 5_000 * MS {
            plan.probe_longer();
        }
    };
    drive(
        &mut plan,
        0,
        |_, _| (),
        recorded,
        |plan, opened, pause| {
            if pause.treated {
                lengths[usize::from(opened > 7_000 * MS)].push(pause.length);
            }
            let spent = if pause.treated { (PROBE * pause.length as f64) as u64 } else { 0 };
            plan.paused(opened + pause.length, &pause, pause.length, spent);
            pause.length
        },
    );
    let [before, after] = lengths;
    assert!(
        before.len() >= 4 && before.iter().filter(|&&length| length == PROBE_LENGTHS[0]).count() >= 4,
        "{before:?}"
    );
    assert!(after.len() >= 4 && after.iter().all(|&length| length == PROBE_LENGTHS[1]), "{after:?}");
}

/// A target for which the budget does not allow two short windows is reported as out of reach, and no window is run for
/// it.
#[test]
fn targets_beyond_the_budget_are_skipped_and_reported() {
    let mut short = settings(3, Modes::Confirm, 0.001);
    short.duration = 3_000 * MS;
    let mut plan = ExperimentPlan::new(short, 0);
    let recorded = |plan: &mut ExperimentPlan, now, length| {
        plan.recorded(now, length, SERVER, false);
        plan.confirm([("all of it", 0.9)].into_iter());
    };
    drive(&mut plan, 0, |_, _| (), recorded, |_, _, pause| panic!("{pause:?}"));
    assert_eq!(plan.unaffordable().collect::<Vec<_>>(), ["all of it"]);
}

/// A short run confirms the first target rather than none of three. A target out of reach takes no other target's turn.
#[test]
fn the_most_promising_target_is_confirmed_first() {
    let targets = [("all of it", 1.0), ("a", 0.3), ("b", 0.2), ("c", 0.1), ("d", 0.1)];
    let mut short = settings(2, Modes::Both, 0.02);
    short.duration = 10_000 * MS;
    let run = run(short, ProgramRates { busy: 4.0, ..SERVER }, false, &targets, |pause, _| pause.speedup * 0.2);
    let blocks: Vec<_> = run.pauses.chunk_by(|a, b| a.block == b.block).filter(|block| block.len() == 4).collect();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    let first = blocks[0][0].subject;
    assert!(blocks[..4].iter().all(|block| block[0].subject == first && block[0].speedup == 0.5), "{:?}", run.pauses);
}

/// Once the load is known to set the rate, pauses for targets end.
#[test]
fn nothing_is_confirmed_under_an_open_load() {
    let mut plan = ExperimentPlan::new(settings(5, Modes::Both, 0.03), 0);
    let (mut sooner, mut after) = (0, 0);
    let recorded = |plan: &mut ExperimentPlan, now, length| {
        plan.recorded(now, length, SERVER, true);
        plan.confirm([("a", 0.2)].into_iter());
        plan.load_known(now > 10_000 * MS, now < 10_000 * MS);
    };
    drive(
        &mut plan,
        0,
        |_, _| (),
        recorded,
        |plan, opened, pause| {
            let now = opened + pause.length;
            after += u32::from(now > 11_000 * MS);
            sooner += u32::from(now < 10_000 * MS && pause.subject != Subject::Load);
            plan.paused(now, &pause, pause.length, if pause.treated { 5 * MS } else { 0 });
            pause.length
        },
    );
    assert!(sooner >= 4 && after == 0, "{sooner} before it was known, {after} after");
}

/// Time of the profiler's own threads leaves less for pauses, but no target is given up: the budget recovers with time.
#[test]
fn a_block_waits_for_work_of_the_profiler_itself() {
    let mut plan = ExperimentPlan::new(settings(7, Modes::Confirm, 0.03), 0);
    let (mut spent, mut own, mut windows, mut recording, mut paused) = (0, 0, 0, 0, Vec::new());
    // Readings of samples now and then, with 50 ms of processor time each.
    let look = |plan: &mut ExperimentPlan, now: u64| {
        let took = if now / (5_000 * MS) > own / (50 * MS) { 50 * MS } else { 0 };
        own += took;
        plan.passed(now, took);
    };
    let recorded = |plan: &mut ExperimentPlan, now, length| {
        recording += length;
        plan.recorded(now, length, SERVER, false);
        plan.confirm([("a", 0.3)].into_iter());
    };
    drive(&mut plan, 0, look, recorded, |plan, opened, pause| {
        let now = opened + pause.length;
        let delayed = if pause.treated { pause.length * 3 / 20 } else { 0 };
        (spent, windows) = (spent + delayed, windows + pause.length);
        assert!(spent <= (BUDGET_COUNTED * 0.03 * now as f64) as u64, "{spent} of {now}");
        paused.push(now);
        plan.paused(now, &pause, pause.length, delayed);
        pause.length
    });
    assert!(own >= 250 * MS);
    assert_eq!(plan.unaffordable().count(), 0);
    let last = *paused.last().expect("it is tried");
    assert!(paused.len() >= 16 && last > 20_000 * MS, "{} until {last}", paused.len());
    // The plan pays for hooks in windows, and for the tracking of spans since the first recorded window.
    let hooks = 0.002 * 29e9 + 0.02 * (recording + windows) as f64;
    assert!(plan.hooks() as f64 > hooks && plan.budget.spent >= spent + own + plan.hooks());
}

/// In an idle program, windows do not follow each other endlessly.
#[test]
fn an_idle_program_is_recorded_occasionally() {
    let idle = ProgramRates { hits: 0.0, entries: 0.0, bytes: 1e-3, hook_time: 0.0, span_tracking: 0.0, ..SERVER };
    let idle = run(settings(1, Modes::Screen, 0.03), idle, false, &[], |_, _| 0.0);
    assert!(idle.records.len() < 200, "{}", idle.records.len());
    assert!(idle.records.last().is_some_and(|&(at, _)| at > 20_000_000_000));
}

/// A probe costs a fifth of its window, so a small budget may allow no probe, but windows for targets with a small
/// share.
#[test]
fn targets_are_confirmed_if_probes_are_unaffordable() {
    let targets = [("a", 0.02)];
    for (budget, duration) in [(0.0015, 30_000), (0.009, 5_000)] {
        let windows = |has_load| {
            let settings = ExperimentSettings { duration: duration * MS, ..settings(1, Modes::Both, budget) };
            let rates = ProgramRates { hook_time: 0.0, span_tracking: 0.0, ..SERVER };
            let run = run(settings, rates, has_load, &targets, |pause, _| match pause.subject {
                Subject::Load => PROBE,
                Subject::Candidate(at) => pause.speedup * targets[at].1,
            });
            run.pauses.iter().filter(|pause| pause.subject != Subject::Load).count()
        };
        let (without, with) = (windows(false), windows(true));
        assert!(with >= 4, "{budget} of {duration} ms: {with} windows, {without} without a load");
    }
}
