//! Small programs, written as recorded traces, whose gains can be computed by hand.

use super::*;
use crate::target::KindShare;
use crate::trace::{Event, Thread};

const US: u64 = 1_000;

/// Kind 1 is the target, kind 2 is not.
fn target() -> Weights {
    let part = |part| KindShare { part, error: 0.0 };
    Weights { parts: vec![part(0.0), part(1.0), part(0.0)], calls: None }
}

fn thread(number: u32, is_worker: bool, events: Vec<(u64, Event)>) -> Thread {
    Thread { number, is_worker, runnable: 1.0, kind: 2, events }
}

fn trace(until: u64, threads: Vec<Thread>) -> Trace {
    Trace { time: 0..until, threads, ..Trace::default() }
}

#[track_caller]
fn gain(replay: &Replay, weights: &Weights, speedup: f64, pace: LoadModel) -> f64 {
    let of = |speedup| replay.run(weights, speedup, pace).point(0).ns_per_unit;
    1.0 - of(speedup) / of(0.0)
}

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 0.004, "{got} instead of {want}");
}

/// A loop that serves `clients`, each of which sends its next request `away` after its answer. Of each `service`,
/// `target` belongs to the target. Recorded as an event loop records it.
fn event_loop(clients: u64, away: u64, service: u64, target: u64, until: u64) -> Trace {
    let mut due: VecDeque<(u64, u64)> = (0..clients).map(|client| (client * 3 * US, client + 1)).collect();
    let mut events = Vec::new();
    let mut now = 0;
    while now < until {
        let (came, client) = due.pop_front().unwrap();
        if came > now {
            events.push((now, Event::BlockBegan));
            now = came;
            events.push((now, Event::BlockEnded));
        }
        let visit = events.len() as u64 + 1;
        events.extend([
            (now, Event::Arrived { connection: client, at: came }),
            (now, Event::VisitBegan { visit }),
            (now, Event::Kind(1)),
            (now + target, Event::Kind(2)),
            (now + service, Event::Written { connection: client }),
            (now + service, Event::VisitEnded { visit, point: 0 }),
        ]);
        now += service;
        due.push_back((now + away, client));
    }
    trace(now, vec![thread(0, true, events)])
}

// S = 1 - p(v)/p(0): a loop that never waits saves the target's share.
#[test]
fn a_saturated_loop_gains_the_share_of_the_target() {
    let replay = Replay::new(&event_loop(32, 20 * US, 50 * US, 20 * US, 100_000 * US), None, &ColdCosts::default());
    for speedup in [0.25, 0.5, 1.0] {
        near(gain(&replay, &target(), speedup, LoadModel::Closed), 0.4 * speedup);
    }
    let (was, is) =
        (replay.measured(LoadModel::Closed).point(0), replay.run(&target(), 0.0, LoadModel::Closed).point(0));
    assert_eq!(was.hits, is.hits);
    near(is.ns_per_unit / was.ns_per_unit, 1.0);
    near(is.latency_mean / was.latency_mean, 1.0);
}

/// A loop of 200 us per request, 120 of them the target's, with random arrivals at 2500 a second. Each client takes the
/// connection freed last, so some connections are used only while many requests wait.
fn crowd(seed: u64, until: u64) -> Trace {
    let mut random = crate::experiment::SeededRandom::new(seed);
    let (mut free, mut answered): (Vec<u64>, VecDeque<(u64, u64)>) = ((1..=64).rev().collect(), VecDeque::new());
    let (mut events, mut came, mut now) = (Vec::new(), 0, 0);
    while now < until {
        came += (-(1.0 - random.fraction()).ln() * 400e3) as u64;
        while let Some((_, connection)) = answered.pop_front_if(|(at, _)| *at <= came) {
            free.push(connection);
        }
        if came > now {
            events.push((now, Event::BlockBegan));
            now = came;
            events.push((now, Event::BlockEnded));
        }
        let (visit, connection) = (events.len() as u64 + 1, free.pop().unwrap());
        events.extend([
            (now, Event::Arrived { connection, at: came }),
            (now, Event::VisitBegan { visit }),
            (now, Event::Kind(1)),
            (now + 120 * US, Event::Kind(2)),
            (now + 200 * US, Event::Written { connection }),
            (now + 200 * US, Event::VisitEnded { visit, point: 0 }),
        ]);
        now += 200 * US;
        answered.push_back((now, connection));
    }
    trace(now, vec![thread(0, true, events)])
}

// The rate of answers is the rate of arrivals, however long an answer takes. The small rest comes from the window's
// edges.
#[test]
fn faster_responses_do_not_speed_up_an_open_load() {
    let mut sum = 0.0;
    for seed in 0..200 {
        let replay = Replay::new(&crowd(seed, 80_000 * US), None, &ColdCosts::default());
        sum += gain(&replay, &target(), 1.0, LoadModel::Open);
    }
    let mean = sum / 200.0;
    assert!(mean.abs() < 0.002, "{mean} instead of 0");
}

// A loop handles a message to itself before it looks for other messages: the second request arrived after 50 us, and
// waits for all of the first.
#[test]
fn a_turn_ends_with_messages_of_the_loop_to_itself() {
    let mut events = Vec::new();
    for unit in 0..1000 {
        let (visit, message, connection) = (unit + 1, unit + 1, 1 + unit % 2);
        // Two requests, then a pause.
        let pair = unit / 2 * 1000 * US;
        let (came, begun) = if unit % 2 == 0 { (pair, pair) } else { (pair + 50 * US, pair + 110 * US) };
        if unit % 2 == 0 {
            events.push((begun, Event::BlockEnded));
        }
        events.extend([
            (begun, Event::Arrived { connection, at: came }),
            (begun, Event::VisitBegan { visit }),
            (begun + 100 * US, Event::Sent { message }),
            (begun + 100 * US, Event::Took { message, blocked: 0 }),
            (begun + 110 * US, Event::Written { connection }),
            (begun + 110 * US, Event::VisitEnded { visit, point: 0 }),
        ]);
        if unit % 2 == 1 {
            events.push((begun + 110 * US, Event::BlockBegan));
        }
    }
    let replay = Replay::new(&trace(500_000 * US, vec![thread(0, true, events)]), None, &ColdCosts::default());
    let (was, is) = (replay.measured(LoadModel::Open).point(0), replay.run(&target(), 0.0, LoadModel::Open).point(0));
    near(was.latency_mean / 140e3, 1.0);
    near(is.latency_mean / was.latency_mean, 1.0);
}

// Polling the kernel takes 10 us before each request, which had arrived before: the loop did not sleep.
#[test]
fn receiving_available_events_is_work() {
    let mut events = Vec::new();
    for unit in 0..1000 {
        let (at, connection) = (unit * 60 * US, 1 + unit % 8);
        let came = at.saturating_sub(400 * US);
        events.extend([
            (at, Event::BlockBegan),
            (at + 10 * US, Event::BlockEnded),
            (at + 10 * US, Event::Arrived { connection, at: came }),
            (at + 10 * US, Event::Kind(1)),
            (at + 30 * US, Event::Kind(2)),
            (at + 60 * US, Event::Written { connection }),
            (at + 60 * US, Event::Hit { point: 0 }),
        ]);
    }
    let replay = Replay::new(&trace(60_000 * US, vec![thread(0, true, events)]), None, &ColdCosts::default());
    let [was, is] = [replay.measured(LoadModel::Closed), &replay.run_as_recorded(LoadModel::Closed)]
        .map(|of| of.point(0).ns_per_unit);
    near(is / was, 1.0);
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 20.0 / 60.0);
}

/// Pairs of requests to a loop, the second one 30 us after the first. The first finds the loop asleep; the loop finds
/// the second at once, after a poll of 5 us. Each takes 40 us of the target, plus a time of kind 2 that `other` returns
/// for the pair's number.
fn pairs(other: impl Fn(u64) -> [u64; 2]) -> Trace {
    let mut events = Vec::new();
    for pair in 0..100 {
        let mut now = pair * 1000 * US;
        for (connection, came, other) in [(1, now, other(pair)[0]), (2, now + 30 * US, other(pair)[1])] {
            let visit = 2 * pair + connection;
            if connection == 2 {
                events.push((now, Event::BlockBegan));
                now += 5 * US;
            }
            events.extend([
                (now, Event::BlockEnded),
                (now, Event::Arrived { connection, at: came }),
                (now, Event::VisitBegan { visit }),
                (now, Event::Kind(1)),
                (now + 40 * US, Event::Kind(2)),
                (now + (40 + other) * US, Event::Written { connection }),
                (now + (40 + other) * US, Event::VisitEnded { visit, point: 0 }),
            ]);
            now += (40 + other) * US;
        }
        events.push((now, Event::BlockBegan));
    }
    trace(100_000 * US, vec![thread(0, true, events)])
}

// The second request is done 85 us after it arrived. Without the target it is done 15 us after it arrived, or 25 if the
// loop is cold then, as it is for the first request.
#[test]
fn a_loop_that_sleeps_more_has_more_cold_caches() {
    let recorded = pairs(|_| [20, 10]);
    let latencies = |cold: &ColdCosts| {
        let replay = Replay::new(&recorded, None, cold);
        [0.0, 1.0].map(|speedup| replay.run(&target(), speedup, LoadModel::Open).point(0).latency_mean)
    };
    // The longer unit has a little more weight in a window of 100 ms.
    let are = |cold: &ColdCosts, want: [f64; 2]| {
        let is = latencies(cold);
        assert!(is.iter().zip(want).all(|(is, want)| (is - want).abs() < 2.0), "{is:?} instead of {want:?}");
    };
    are(&ColdCosts::default(), [(60e3 + 85e3) / 2.0, (20e3 + 15e3) / 2.0]);
    let cold = ColdCosts::of([&recorded].into_iter());
    are(&cold, [(60e3 + 85e3) / 2.0, (20e3 + 25e3) / 2.0]);
    // A result does not depend on the trace read before.
    let other = event_loop(32, 20 * US, 50 * US, 20 * US, 9_000 * US);
    let in_order = ColdCosts::of([&recorded, &other].into_iter());
    assert!(in_order != ColdCosts::default() && in_order == ColdCosts::of([other, recorded].into_iter()));
}

// Work that varies at random has no cold cost, nor has work that is shorter after sleep, or a loop that never sleeps.
#[test]
fn insignificant_differences_are_not_attributed_to_cold_caches() {
    let random = |seed: u64| 10 + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 40;
    let never = event_loop(32, 20 * US, 50 * US, 20 * US, 9_000 * US);
    for recorded in [pairs(|pair| [random(2 * pair), random(2 * pair + 1)]), pairs(|_| [10, 20]), never] {
        assert_eq!(ColdCosts::of([&recorded].into_iter()), ColdCosts::default());
    }
}

// A call sent before the window takes the rest of its time in the window, and a faster upstream answers it sooner, too.
// A further part of an answer that was there before the loop looked for it is ready when the loop looks.
#[test]
fn calls_from_before_the_window_complete_sooner() {
    let mut events = Vec::new();
    let mut answer = |call, called, came, is_first| {
        events.extend([
            (came * US, 1, Event::BlockEnded),
            (called * US, 2, Event::Called { call, callee: 7, is_first }),
            ((came + 1) * US, 3, Event::Answered { call, at: came * US }),
            ((came + 10) * US, 5, Event::Hit { point: 0 }),
            ((came + 10) * US, 6, Event::BlockBegan),
        ]);
    };
    for call in 1..=5 {
        answer(call, call * 1000, call * 1000, true);
    }
    // Sent in the window, and followed by a sleep.
    answer(6, 5_005, 10_100, true);
    answer(7, 20_105, 20_105, false);
    events.extend([
        (10_105 * US, 4, Event::SleepBegan { timer: 8 }),
        (20_105 * US, 1, Event::SleepEnded { timer: 8, blocked: 0 }),
    ]);
    events.sort_by_key(|&(at, order, _)| (at, order));
    let events = events.into_iter().map(|(at, _, event)| (at, event)).collect();
    let replay = Replay::new(&trace(21_000 * US, vec![thread(0, true, events)]), None, &ColdCosts::default());
    let of = |callee| gain(&replay, &Weights { calls: Some(callee), ..Weights::default() }, 0.5, LoadModel::Closed);
    // From 1010 to 20 115 us; from 510 to 2505 + 5 + 5047.5 + 10 000 us and the work then.
    near(of(7), 1.0 - (15_072.5 - 510.0) / (20_115.0 - 1_010.0));
    near(of(8), 0.0);
}

// Two hooks are in each unit's time. Without them 40 µs remain, 15 of them the target's. The part of a hook that
// exceeds its stretch of 20 µs is taken off the next one, too.
#[test]
fn the_time_of_hooks_is_deducted() {
    let recorded = event_loop(32, 20 * US, 50 * US, 20 * US, 100_000 * US);
    let replay = Replay::new(&Trace { hook: 5_000.0, ..recorded.clone() }, None, &ColdCosts::default());
    near(gain(&replay, &target(), 0.5, LoadModel::Closed), 7.5 / 40.0);
    let [was, with, without] = [
        replay.measured(LoadModel::Closed),
        &replay.run_as_recorded(LoadModel::Closed),
        &replay.run(&target(), 0.0, LoadModel::Closed),
    ]
    .map(|outcome| outcome.point(0).ns_per_unit);
    near(with / was, 1.0);
    near(without / was, 0.8);
    let long = Replay::new(&Trace { hook: 22_500.0, ..recorded }, None, &ColdCosts::default());
    near(long.run(&target(), 0.0, LoadModel::Closed).point(0).ns_per_unit / was, 0.1);
}

// A loop that is never idle has no measured wakeup latency. When it is faster it is idle before each turn. Four clients
// that are away for 100 µs and then served for 10 have a round of 110, or of 130 with a latency of 20.
#[test]
fn a_busy_loop_uses_the_latency_of_other_windows() {
    let busy = event_loop(4, 100 * US, 50 * US, 40 * US, 100_000 * US);
    let machine = Trace { wake_up: 10_000.0, ..busy.clone() };
    // In this order: no latency known, the machine's, that of other windows, and that of other windows with another one
    // for the machine.
    for (trace, wakeup_latency, round) in [
        (&busy, None, 110.0),
        (&machine, None, 120.0),
        (&busy, Some(20_000.0), 130.0),
        (&machine, Some(20_000.0), 130.0),
    ] {
        near(
            gain(&Replay::new(trace, wakeup_latency, &ColdCosts::default()), &target(), 1.0, LoadModel::Closed),
            1.0 - round / 200.0,
        );
    }
}

// One client: the saving is part of a cycle that includes the client's own time.
#[test]
fn waiting_for_a_client_hides_the_gain() {
    let replay = Replay::new(&event_loop(1, 150 * US, 50 * US, 20 * US, 100_000 * US), None, &ColdCosts::default());
    near(gain(&replay, &target(), 0.5, LoadModel::Closed), 10.0 / 200.0);
    let latency = |speedup| replay.run(&target(), speedup, LoadModel::Closed).point(0).latency_mean;
    near(1.0 - latency(0.5) / latency(0.0), 10.0 / 50.0);
    near(replay.run(&target(), 0.5, LoadModel::Closed).point(0).waiting, 150.0 / 190.0);
}

// An open load sets its own rate: only the latency changes.
#[test]
fn an_open_load_gains_latency_only() {
    let replay = Replay::new(&event_loop(2, 150 * US, 50 * US, 20 * US, 100_000 * US), None, &ColdCosts::default());
    near(gain(&replay, &target(), 0.5, LoadModel::Open), 0.0);
    let latency = |speedup| replay.run(&target(), speedup, LoadModel::Open).point(0).latency_mean;
    near(1.0 - latency(0.5) / latency(0.0), 0.2);
}

// A replay depends on its own trace alone, not on the earlier contents of its memory.
#[test]
fn a_replay_does_not_depend_on_reused_memory() {
    let traces = [
        event_loop(4, 150 * US, 50 * US, 20 * US, 20_000 * US),
        pairs(|_| [20, 10]),
        saturated_lock(),
        Trace::default(),
    ];
    let cold = ColdCosts::of(traces.iter());
    let of = |trace| Replay::new(trace, Some(9e3), &cold);
    let windows_of = |replay: &Replay| {
        let at = |speedup| [LoadModel::Closed, LoadModel::Open].map(|pace| replay.run(&target(), speedup, pace));
        (replay.measured(LoadModel::Closed).clone(), at(0.0), at(0.5), replay.run_as_recorded(LoadModel::Closed))
    };
    for before in &traces {
        for trace in &traces {
            let lengths = WindowLengths::of([trace.time.end]);
            assert_eq!(windows_of(&of(before).next(trace, Some(9e3), &cold, &lengths)), windows_of(&of(trace)));
        }
    }
}

/// Four threads that each work 10 us outside a lock and 20 inside, in turns.
fn saturated_lock() -> Trace {
    use Sharing::Exclusive;
    let lock = 9;
    let mut threads = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for turn in 0..1000 {
        let (at, thread) = (turn * 20 * US, &mut threads[turn as usize % 4]);
        let blocked = if turn < 4 { at } else { 50 * US };
        thread.extend([
            (at, Event::Locked { lock, sharing: Exclusive, blocked }),
            (at, Event::Kind(1)),
            (at + 20 * US, Event::Unlocked { lock, sharing: Exclusive }),
            (at + 20 * US, Event::Kind(2)),
            (at + 20 * US, Event::Hit { point: 0 }),
        ]);
    }
    let threads = (0..).zip(threads).map(|(number, events)| thread(number, false, events)).collect();
    trace(20_000 * US, threads)
}

// A queue at a lock: while it is never free, only the work inside counts.
#[test]
fn inside_a_saturated_lock_and_outside() {
    let replay = Replay::new(&saturated_lock(), None, &ColdCosts::default());
    near(gain(&replay, &target(), 0.25, LoadModel::Closed), 0.25);
    let outside = Weights {
        parts: vec![KindShare::default(), KindShare::default(), KindShare { part: 1.0, error: 0.0 }],
        calls: None,
    };
    near(gain(&replay, &outside, 1.0, LoadModel::Closed), 0.0);
}

// A thread with no work outside a lock takes it again before the other thread is awake, until its own work is done.
#[test]
fn a_thread_that_always_holds_a_lock_is_not_twice_as_fast() {
    use Sharing::Exclusive;
    let lock = 9;
    let mut threads = vec![Vec::new(), Vec::new()];
    // 20 us inside, 10 us outside; a waiter's wakeup latency is 5 us.
    for turn in 0..1000 {
        let (at, thread) = (turn * 25 * US, &mut threads[turn as usize % 2]);
        let blocked = if turn < 2 { 0 } else { 20 * US };
        thread.extend([
            (at, Event::Locked { lock, sharing: Exclusive, blocked }),
            (at, Event::Kind(2)),
            (at + 20 * US, Event::Unlocked { lock, sharing: Exclusive }),
            (at + 20 * US, Event::Kind(1)),
            (at + 20 * US, Event::Hit { point: 0 }),
        ]);
    }
    let threads = (0..).zip(threads).map(|(number, events)| thread(number, false, events)).collect();
    let replay = Replay::new(&trace(25_000 * US, threads), None, &ColdCosts::default());
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 0.2);
    near(gain(&replay, &target(), 0.25, LoadModel::Closed), 0.0);
}

// Two stages: the slow one sets the pace.
#[test]
fn the_slowest_stage_limits_a_pipeline() {
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for item in 0..500 {
        let at = item * 40 * US;
        // The first stage makes an item in 10 us and then waits for room; the second takes 40 us.
        let blocked = if item == 0 { 0 } else { 30 * US };
        fast.push((at, Event::Took { message: 10_000 + item, blocked }));
        fast.push((at + 10 * US, Event::Sent { message: 1 + item }));
        slow.push((at + 10 * US, Event::Took { message: 1 + item, blocked: if item == 0 { 10 * US } else { 0 } }));
        slow.push((at + 40 * US, Event::Sent { message: 10_001 + item }));
        slow.push((at + 50 * US, Event::Hit { point: 0 }));
    }
    slow.sort_by_key(|&(at, _)| at);
    let mut both = vec![thread(0, false, fast), thread(1, false, slow)];
    (both[0].kind, both[1].kind) = (2, 1);
    let replay = Replay::new(&trace(20_000 * US, both), None, &ColdCosts::default());
    // An item takes 20 us then. Room takes 15 of these, and 10 of the first stage.
    near(gain(&replay, &target(), 0.5, LoadModel::Closed), 1.0 - 25.0 / 40.0);
    let first = Weights {
        parts: vec![KindShare::default(), KindShare::default(), KindShare { part: 1.0, error: 0.0 }],
        calls: None,
    };
    near(gain(&replay, &first, 1.0, LoadModel::Closed), 0.0);
}

/// A thread that takes 100 us per unit, 10 of them (kind 0) to wake a quick thread, and sends to a slow one that takes
/// 101 us per unit (kind 3). The target has 60 us.
fn waking_replay() -> Replay {
    const SLOW: u64 = 101 * US;
    let mut threads = [Vec::new(), Vec::new(), Vec::new()];
    // It has a backlog from the begin.
    let mut since = 300 * US;
    for unit in 0..500 {
        let (at, quick, late) = (unit * 100 * US, 1 + 2 * unit, 2 + 2 * unit);
        threads[0].extend([
            (at, Event::Kind(1)),
            (at + 60 * US, Event::Kind(2)),
            (at + 90 * US, Event::Sent { message: late }),
            (at + 90 * US, Event::Sent { message: quick }),
            (at + 90 * US, Event::Waking(0)),
            (at + 100 * US, Event::Kind(2)),
            (at + 100 * US, Event::Hit { point: 0 }),
        ]);
        let sent = at + 90 * US;
        threads[1]
            .push((sent + 5 * US, Event::Took { message: quick, blocked: if unit == 0 { sent } else { 94 * US } }));
        threads[1].push((sent + 6 * US, Event::Hit { point: 1 }));
        let took = since.max(sent);
        threads[2].push((took, Event::Took { message: late, blocked: 0 }));
        since = took + SLOW;
        threads[2].push((since, Event::Hit { point: 2 }));
    }
    let until = 500 * 100 * US;
    threads[2].retain(|&(at, _)| at <= until);
    let mut threads: Vec<_> = (0..).zip(threads).map(|(number, events)| thread(number, false, events)).collect();
    threads[2].kind = 3;
    Replay::new(&trace(until, threads), None, &ColdCosts::default())
}

// Waking a thread takes time, as long as that thread sleeps. A sender that is 60 us sooner still finds the quick thread
// asleep, and spends the recorded time on each wakeup. The slow thread never slept, until it is faster than its sender.
#[test]
fn waking_a_sleeping_thread_takes_time() {
    let replay = waking_replay();
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 0.6);
    let wake = Weights { parts: vec![KindShare { part: 1.0, error: 0.0 }], calls: None };
    near(gain(&replay, &wake, 1.0, LoadModel::Closed), 0.1);
    let mut slow = Weights { parts: vec![KindShare::default(); 4], calls: None };
    slow.parts[3].part = 1.0;
    near(gain(&replay, &slow, 0.5, LoadModel::Closed), -0.1);
}

// A sender that wakes by other means does not record the cost of waking: it is part of its work already, 10 of 100 us
// here. Another wakeup has a recorded cost of 20 us.
#[test]
fn unreported_wakeups_are_not_added() {
    let (mut sends, mut quick, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for unit in 0..500 {
        let (at, reported, unreported) = (unit * 100 * US, 1 + 2 * unit, 2 + 2 * unit);
        sends.extend([
            (at, Event::Kind(1)),
            (at + 50 * US, Event::Kind(2)),
            (at + 60 * US, Event::Sent { message: unreported }),
            (at + 80 * US, Event::Sent { message: reported }),
            (at + 80 * US, Event::Waking(0)),
            (at + 100 * US, Event::Kind(2)),
            (at + 100 * US, Event::Hit { point: 0 }),
        ]);
        let blocked = |since: u64| if unit == 0 { since * US } else { 99 * US };
        other.push((at + 65 * US, Event::Took { message: unreported, blocked: blocked(65) }));
        other.push((at + 66 * US, Event::Hit { point: 1 }));
        quick.push((at + 85 * US, Event::Took { message: reported, blocked: blocked(85) }));
        quick.push((at + 86 * US, Event::Hit { point: 1 }));
    }
    let threads = vec![thread(0, false, sends), thread(1, false, quick), thread(2, false, other)];
    let replay = Replay::new(&trace(50_000 * US, threads), None, &ColdCosts::default());
    let [was, is] = [replay.measured(LoadModel::Closed), &replay.run_as_recorded(LoadModel::Closed)]
        .map(|of| of.point(0).ns_per_unit);
    near(is / was, 1.0);
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 0.5);
}

// A receiver that cannot keep up is no longer woken.
#[test]
fn a_running_thread_is_not_woken() {
    let (mut sends, mut takes) = (Vec::new(), Vec::new());
    for unit in 0..500 {
        let at = unit * 100 * US;
        sends.extend([
            (at, Event::Kind(1)),
            (at + 80 * US, Event::Kind(2)),
            (at + 90 * US, Event::Sent { message: 1 + unit }),
            (at + 90 * US, Event::Waking(0)),
            (at + 100 * US, Event::Kind(2)),
            (at + 100 * US, Event::Hit { point: 0 }),
        ]);
        let blocked = if unit == 0 { 95 * US } else { 50 * US };
        takes.push((at + 95 * US, Event::Took { message: 1 + unit, blocked }));
        takes.push((at + 145 * US, Event::Hit { point: 1 }));
    }
    let replay = Replay::new(
        &trace(50_000 * US, vec![thread(0, false, sends), thread(1, false, takes)]),
        None,
        &ColdCosts::default(),
    );
    // With 40 us less, 60 remain, and the receiver, which takes 50 and a latency of 5, sleeps each time.
    near(gain(&replay, &target(), 0.5, LoadModel::Closed), 0.4);
    // 10 us per message, of which the receiver handles fewer than one in 50 us.
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 0.9);
}

// The items in a bounded queue at the window's begin are there at once for a second stage that takes no time. Later it
// has an item every 20 us, as the first stage makes them.
#[test]
fn a_full_queue_is_no_gain() {
    const ROOM: u64 = 16;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for item in 0..500 {
        let at = item * 40 * US;
        second.push((at, Event::Took { message: item.saturating_sub(ROOM - 1), blocked: 0 }));
        second.push((at, Event::Sent { message: 10_000 + item }));
        second.push((at + 40 * US, Event::Hit { point: 0 }));
        // Its item is ready when there is room for it, and then it makes the next.
        first.push((at, Event::Took { message: 10_000 + item, blocked: if item == 0 { 0 } else { 20 * US } }));
        first.push((at, Event::Sent { message: 1 + item }));
    }
    let mut both = vec![thread(0, false, first), thread(1, false, second)];
    (both[0].kind, both[1].kind) = (2, 1);
    let replay = Replay::new(&trace(20_000 * US, both), None, &ColdCosts::default());
    near(gain(&replay, &target(), 0.25, LoadModel::Closed), 0.25);
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 0.5);
}

// Messages queued before the window need no wait: a consumer with more of them than fit into the window sets its own
// pace.
#[test]
fn an_earlier_backlog_is_processed_sooner() {
    for is_worker in [false, true] {
        let mut events = Vec::new();
        for item in 0..500 {
            let at = item * 100 * US;
            events.extend([
                (at, Event::Took { message: 0, blocked: 0 }),
                (at, Event::Kind(1)),
                (at, Event::VisitBegan { visit: item + 1 }),
                (at + 60 * US, Event::Kind(2)),
                (at + 100 * US, Event::VisitEnded { visit: item + 1, point: 0 }),
            ]);
        }
        let replay = Replay::new(&trace(50_000 * US, vec![thread(0, is_worker, events)]), None, &ColdCosts::default());
        near(gain(&replay, &target(), 0.5, LoadModel::Closed), 0.3);
        let (was, is) =
            (replay.measured(LoadModel::Closed).point(0), replay.run(&target(), 0.0, LoadModel::Closed).point(0));
        near(is.ns_per_unit / was.ns_per_unit, 1.0);
        near(is.latency_mean / was.latency_mean, 1.0);
    }
}

// A message from before the window that woke the thread arrived at the time of the wakeup.
#[test]
fn external_events_arrive_no_sooner() {
    let mut events = vec![(0, Event::Took { message: 0, blocked: 0 })];
    for item in 1..500 {
        let at = item * 100 * US;
        events.extend([
            (at - 40 * US, Event::Hit { point: 0 }),
            (at, Event::Took { message: 0, blocked: 40 * US }),
            (at, Event::Kind(1)),
        ]);
    }
    let replay = Replay::new(&trace(50_000 * US, vec![thread(0, false, events)]), None, &ColdCosts::default());
    near(gain(&replay, &target(), 1.0, LoadModel::Closed), 0.0);
}

// An upstream is a target too: its time is cut, and this program's follows.
#[test]
fn an_upstream_that_answers_sooner() {
    let mut events = Vec::new();
    for request in 0..500 {
        let at = request * 200 * US;
        events.extend([
            (at, Event::BlockEnded),
            (at, Event::Arrived { connection: 1, at }),
            (at + 10 * US, Event::Called { call: 100 + request, callee: 7, is_first: true }),
            (at + 10 * US, Event::BlockBegan),
            (at + 110 * US, Event::BlockEnded),
            (at + 110 * US, Event::Answered { call: 100 + request, at: at + 110 * US }),
            (at + 120 * US, Event::Written { connection: 1 }),
            (at + 120 * US, Event::Hit { point: 0 }),
            (at + 120 * US, Event::BlockBegan),
        ]);
    }
    let replay = Replay::new(&trace(100_000 * US, vec![thread(0, true, events)]), None, &ColdCosts::default());
    let upstream = Weights { parts: Vec::new(), calls: Some(7) };
    near(gain(&replay, &upstream, 0.5, LoadModel::Closed), 0.25);
    near(gain(&replay, &Weights { parts: Vec::new(), calls: Some(8) }, 0.5, LoadModel::Closed), 0.0);
}

// A request takes 20 µs of the target, a wait of 100 for an event without a hook, and 10 more; its client is away
// for 20. If the wait is reported, its length stays, so a target that takes no time saves 20 of 150. If not, the units
// stay at their times, and are counted.
#[test]
fn a_wait_without_a_known_cause_is_counted() {
    let [reported, unreported] = [true, false].map(|is_reported| {
        let mut events = Vec::new();
        for request in 0..500 {
            let (at, timer) = (request * 150 * US, request + 1);
            let mut reported = |after, event| events.extend(is_reported.then_some((at + after * US, event)));
            reported(20, Event::SleepBegan { timer });
            reported(120, Event::SleepEnded { timer, blocked: 0 });
            events.extend([
                (at, Event::BlockEnded),
                (at, Event::Arrived { connection: 1, at }),
                (at, Event::Kind(1)),
                (at + 20 * US, Event::Kind(2)),
                (at + 20 * US, Event::BlockBegan),
                (at + 120 * US, Event::BlockEnded),
                (at + 130 * US, Event::Written { connection: 1 }),
                (at + 130 * US, Event::Hit { point: 0 }),
                (at + 130 * US, Event::BlockBegan),
            ]);
        }
        // Of equal times, the sleep begins before the block, and ends after it.
        events.sort_by_key(|&(at, event)| (at, matches!(event, Event::BlockBegan | Event::SleepEnded { .. })));
        Replay::new(&trace(75_000 * US, vec![thread(0, true, events)]), None, &ColdCosts::default())
    });
    near(gain(&reported, &target(), 1.0, LoadModel::Closed), 20.0 / 150.0);
    near(gain(&unreported, &target(), 1.0, LoadModel::Closed), 0.0);
    assert_eq!([reported.unexplained(0), unreported.unexplained(0)], [0, 500]);
}

// With events cut off by the window's end or missing from a full log, the replay still ends, with finite results.
#[test]
fn inconsistent_windows_terminate() {
    let cases = [
        vec![],
        vec![(5, Event::Took { message: 3, blocked: 9 }), (6, Event::Hit { point: 0 })],
        vec![
            (5, Event::Unlocked { lock: 1, sharing: Sharing::Exclusive }),
            (9, Event::Locked { lock: 1, sharing: Sharing::Shared, blocked: 2 }),
        ],
        vec![(5, Event::BlockEnded), (7, Event::BlockEnded), (8, Event::BlockBegan), (9, Event::BlockBegan)],
        vec![(5, Event::VisitEnded { visit: 0, point: 3 }), (6, Event::SleepEnded { timer: 0, blocked: 1 })],
        vec![
            (5, Event::Locked { lock: 1, sharing: Sharing::Exclusive, blocked: 0 }),
            (9, Event::Locked { lock: 1, sharing: Sharing::Exclusive, blocked: 2 }),
        ],
        vec![(5, Event::Dequeued { message: 3 }), (6, Event::Sent { message: 3 }), (7, Event::Hit { point: 0 })],
        vec![(5, Event::Answered { call: 4, at: 900 }), (6, Event::Arrived { connection: 0, at: 0 })],
    ];
    for events in cases {
        for is_worker in [false, true] {
            let replay =
                Replay::new(&trace(10, vec![thread(0, is_worker, events.clone())]), None, &ColdCosts::default());
            for pace in [LoadModel::Closed, LoadModel::Open] {
                let outcome = replay.run(&target(), 1.0, pace);
                assert!(outcome.points.iter().all(|point| point.ns_per_unit.is_finite()));
            }
        }
    }
}
