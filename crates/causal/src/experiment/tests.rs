use super::*;

fn settings(seed: u64, modes: Modes, budget: f64) -> Settings {
    Settings {
        modes,
        budget,
        duration: 30_000 * MS,
        speedups: vec![0.5, 0.25, 0.5, 1.0],
        seed,
        octets_max: 4e6,
        octets_all: 64e6,
        entries_max: 262_144.0,
    }
}

/// What a run came to.
#[derive(Debug, Default)]
struct Run {
    recorded: u64,
    records: Vec<(u64, u64)>,
    pauses: Vec<Pause>,
    spent: u64,
    /// The same with what hooks cost.
    paid: u64,
    aborted: u32,
}

/// Goes through a plan in simulated time: what else is to be done before each step, when a window was recorded, and when one pauses, and
/// how long that took.
fn drive(
    plan: &mut Plan,
    mut now: u64,
    mut before: impl FnMut(&mut Plan, u64),
    mut recorded: impl FnMut(&mut Plan, u64, u64),
    mut pause: impl FnMut(&mut Plan, u64, Pause) -> u64,
) {
    loop {
        before(plan, now);
        let step = plan.next(now);
        now += match step {
            Step::Done => break,
            Step::Rest(length) => length,
            Step::Record(length) => {
                recorded(plan, now + length, length);
                length
            }
            Step::Pause(window) => pause(plan, now, window),
        };
        assert!(!matches!(step, Step::Rest(0)));
        assert!(now <= plan.ends() + 2 * POLL, "{step:?} is longer than the run");
    }
}

/// Goes through a plan. Delays grow as `growth` says, looked at every [`POLL`]; that no more than the budget's part is lost is asserted at
/// every one of these moments.
fn run(
    settings: Settings,
    tempo: Tempo,
    has_load: bool,
    targets: &[(&str, f64)],
    growth: impl Fn(&Pause, u64) -> f64,
) -> Run {
    let (began, budget) = (1_000_000_000, settings.budget);
    let mut run = Run::default();
    let mut plan = Plan::new(settings, began);
    let recorded = |plan: &mut Plan, now, length| {
        run.records.push((now - length, length));
        run.recorded += length;
        plan.recorded(now, length, tempo, has_load);
        plan.confirm(targets.iter().copied());
    };
    let pause = |plan: &mut Plan, opened, window: Pause| {
        let (mut now, mut cost) = (opened, 0.0);
        while now < opened + window.length {
            let rate = if window.treated { growth(&window, now).min(window.speedup) } else { 0.0 };
            cost += rate * POLL as f64;
            now += POLL;
            let lost = run.spent as f64 + cost;
            let filled = COUNTED * budget * (now - began) as f64;
            assert!(lost <= filled + 1.0, "{lost} lost {} after the start", now - began);
            if Plan::is_too_dear(&window, cost as u64) {
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
    run.paid = plan.purse().spent();
    assert!(run.spent <= run.paid);
    run
}

const SERVER: Tempo = Tempo {
    entries: 1e-4,
    octets: 1e-2,
    hits: 2e-5,
    latency: 1e6,
    recording: 0.02,
    reading: 0.0,
    keeping: 0.002,
    busy: 1.0,
};

/// What is lost stays within the budget, at any moment and whatever the windows cost.
#[test]
fn no_more_is_lost_than_the_budget_at_any_moment() {
    for seed in 0..300 {
        let budget = [0.005, 0.02, 0.03, 0.05][seed as usize % 4];
        let mut dice = Dice::new(seed);
        let (usual, wild) = (dice.part(), dice.part());
        let targets = [("a", dice.part()), ("b", 0.001), ("c", 1.0)];
        let lot = std::cell::RefCell::new(dice);
        let run = run(settings(seed, Modes::Both, budget), SERVER, seed % 3 > 0, &targets, |pause, _| {
            let mut dice = lot.borrow_mut();
            match pause.subject {
                Subject::Load => PROBE,
                _ if dice.part() < 0.01 * wild => pause.speedup,
                _ => pause.speedup * usual * 2.0 * dice.part(),
            }
        });
        assert!(run.records.len() > 20, "{seed}: {}", run.records.len());
    }
}

/// What the budget is there for is used: a block of four in one of the two orders, everybody in turns.
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
        assert!(*min >= ROUND && max - min <= ROUND, "{seed}: {blocks:?}");
        assert!(blocks[3] >= PROBES[0], "{seed}: {blocks:?}");
        let [spent, paid] = [run.spent, run.paid].map(|sum| sum as f64 / 30e9);
        assert!(paid > 0.02 && spent > 0.01, "{seed}: of 3 % only {paid} is used, {spent} for pauses");
        assert!(run.recorded as f64 > 0.1 * 30e9, "{seed}: recorded {}", run.recorded);
    }
    assert!((150..).contains(&firsts), "both orders come: {firsts}");
}

/// A busy server is recorded for as much of the time as recording and reading may cost, and a window fits into logs and memory.
#[test]
fn recording_costs_no_more_than_its_part() {
    let cases = [
        (0.02, 0.0, 1e-4, 1e-3),
        (0.02, 0.02, 1e-4, 1e-3),
        (0.2, 0.0, 2e-3, 0.05),
        (0.1, 0.1, 2e-3, 0.05),
        (0.5, 0.0, 5e-3, 0.2),
        (0.001, 0.0, 1e-6, 1e-5),
        (0.001, 0.001, 1e-6, 1e-5),
    ];
    for (recording, reading, entries, octets) in cases {
        let tempo = Tempo { recording, reading, entries, octets, ..SERVER };
        for seed in 0..20 {
            let run = run(settings(seed, Modes::Screen, 0.0), tempo, true, &[("a", 0.5)], |_, _| 1.0);
            let part = run.recorded as f64 / 30e9 * (recording + reading);
            assert!(part <= RECORDING_FREE * 1.3, "{recording}, {reading}: {part}");
            assert!(run.pauses.is_empty(), "no budget, no probes");
            for (_, length) in &run.records[1..] {
                assert!(*length as f64 * entries <= 262_144.0 && *length as f64 * octets <= 4e6, "{length}");
            }
            // From one end of the run to the other.
            let thirds: Vec<usize> = (0..3)
                .map(|third| {
                    run.records.iter().filter(|(at, _)| (at - 1_000_000_000) / 10_000_000_000 == third).count()
                })
                .collect();
            assert!(thirds.iter().all(|&count| count * 6 >= run.records.len()), "{thirds:?}");
        }
    }
}

/// Where a unit takes long, or few are done, windows are longer.
#[test]
fn windows_are_as_long_as_progress_needs() {
    let slow = Tempo { hits: 1e-8, octets: 1e-3, ..SERVER };
    let far = run(settings(1, Modes::Both, 0.05), slow, true, &[("a", 0.1)], |pause, _| 0.1 * pause.speedup);
    assert!(far.records[1..].iter().filter(|(_, length)| *length == RECORD[2]).count() + 2 >= far.records.len());
    let targets = || far.pauses.iter().filter(|one| one.subject != Subject::Load);
    assert!(targets().filter(|one| one.length == PAUSE[1]).count() * 2 > targets().count());
    let near = run(settings(1, Modes::Both, 0.03), SERVER, true, &[("a", 0.1)], |pause, _| 0.1 * pause.speedup);
    assert!(
        near.records[1..near.records.len() - 1].iter().all(|(_, length)| *length == RECORD[1]),
        "{:?}",
        near.records
    );
}

/// A probe's windows with pauses are short, those without twice as long; a target's are all alike.
#[test]
fn the_control_of_a_probe_is_longer() {
    for (hits, length) in [(2e-5, PROBED[0]), (1e-8, PROBED[1])] {
        let run = run(settings(1, Modes::Both, 0.05), Tempo { hits, ..SERVER }, true, &[("a", 0.1)], |pause, _| {
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

/// Where too much was held at the end of short probes, those that follow are as long as they may be.
#[test]
fn probes_become_longer_where_that_is_wanted() {
    let mut plan = Plan::new(settings(5, Modes::Screen, 0.03), 0);
    let mut lengths = [Vec::new(), Vec::new()];
    let recorded = |plan: &mut Plan, now, length| {
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
    assert!(before.len() >= 4 && before.iter().filter(|&&length| length == PROBED[0]).count() >= 4, "{before:?}");
    assert!(after.len() >= 4 && after.iter().all(|&length| length == PROBED[1]), "{after:?}");
}

/// A target for which not even two short windows are within the budget is said to be out of reach, not tried in vain.
#[test]
fn what_is_too_dear_is_given_up_and_named() {
    let mut short = settings(3, Modes::Confirm, 0.001);
    short.duration = 3_000 * MS;
    let mut plan = Plan::new(short, 0);
    let recorded = |plan: &mut Plan, now, length| {
        plan.recorded(now, length, SERVER, false);
        plan.confirm([("all of it", 0.9)].into_iter());
    };
    drive(&mut plan, 0, |_, _| (), recorded, |_, _, pause| panic!("{pause:?}"));
    assert_eq!(plan.unaffordable().collect::<Vec<_>>(), ["all of it"]);
}

/// A short run says something of the first target rather than nothing of three; what is out of reach takes nobody's place.
#[test]
fn the_most_worthwhile_is_confirmed_first() {
    let targets = [("all of it", 1.0), ("a", 0.3), ("b", 0.2), ("c", 0.1), ("d", 0.1)];
    let mut short = settings(2, Modes::Both, 0.02);
    short.duration = 10_000 * MS;
    let run = run(short, Tempo { busy: 4.0, ..SERVER }, false, &targets, |pause, _| pause.speedup * 0.2);
    let blocks: Vec<_> = run.pauses.chunk_by(|a, b| a.block == b.block).filter(|block| block.len() == 4).collect();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    let first = blocks[0][0].subject;
    assert!(blocks[..4].iter().all(|block| block[0].subject == first && block[0].speedup == 0.5), "{:?}", run.pauses);
}

/// Once the load is known to set the pace, pauses for targets end.
#[test]
fn nothing_is_confirmed_under_a_load_that_sets_the_pace() {
    let mut plan = Plan::new(settings(5, Modes::Both, 0.03), 0);
    let (mut sooner, mut after) = (0, 0);
    let recorded = |plan: &mut Plan, now, length| {
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

/// What the profiler's own threads take leaves less for pauses, and gives nobody up: it is paid back with time.
#[test]
fn own_work_in_the_middle_of_a_block_is_waited_out() {
    let mut plan = Plan::new(settings(7, Modes::Confirm, 0.03), 0);
    let (mut spent, mut own, mut windows, mut recording, mut paused) = (0, 0, 0, 0, Vec::new());
    // A look now and then: 50 ms of processor time at once.
    let look = |plan: &mut Plan, now: u64| {
        let took = if now / (5_000 * MS) > own / (50 * MS) { 50 * MS } else { 0 };
        own += took;
        plan.passed(now, took);
    };
    let recorded = |plan: &mut Plan, now, length| {
        recording += length;
        plan.recorded(now, length, SERVER, false);
        plan.confirm([("a", 0.3)].into_iter());
    };
    drive(&mut plan, 0, look, recorded, |plan, opened, pause| {
        let now = opened + pause.length;
        let delayed = if pause.treated { pause.length * 3 / 20 } else { 0 };
        (spent, windows) = (spent + delayed, windows + pause.length);
        assert!(spent <= (COUNTED * 0.03 * now as f64) as u64, "{spent} of {now}");
        paused.push(now);
        plan.paused(now, &pause, pause.length, delayed);
        pause.length
    });
    assert!(own >= 250 * MS);
    assert_eq!(plan.unaffordable().count(), 0);
    let last = *paused.last().expect("it is tried");
    assert!(paused.len() >= 16 && last > 20_000 * MS, "{} until {last}", paused.len());
    // Hooks in windows are paid, and spans that are kept all the time are, too, as soon as the first window has told of them.
    let hooks = 0.002 * 29e9 + 0.02 * (recording + windows) as f64;
    assert!(plan.hooks() as f64 > hooks && plan.purse().spent() >= spent + own + plan.hooks());
}

/// Where nothing is done, windows do not follow each other for ever.
#[test]
fn an_idle_program_is_recorded_now_and_then() {
    let idle = Tempo { hits: 0.0, entries: 0.0, octets: 1e-3, recording: 0.0, keeping: 0.0, ..SERVER };
    let idle = run(settings(1, Modes::Screen, 0.03), idle, false, &[], |_, _| 0.0);
    assert!(idle.records.len() < 200, "{}", idle.records.len());
    assert!(idle.records.last().is_some_and(|&(at, _)| at > 20_000_000_000));
}
