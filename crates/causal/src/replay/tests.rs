//! Small programs, written down as they would be recorded, whose gains can be worked out by hand.

use super::*;
use crate::target::Part;
use crate::trace::{Event, Thread};

const US: u64 = 1_000;

/// Kind 1 is the target, kind 2 is not.
fn target() -> Weights {
    let part = |part| Part { part, error: 0.0 };
    Weights { parts: vec![part(0.0), part(1.0), part(0.0)], calls: None }
}

fn thread(number: u32, is_worker: bool, events: Vec<(u64, Event)>) -> Thread {
    Thread { number, is_worker, running: 1.0, kind: 2, events }
}

fn trace(until: u64, threads: Vec<Thread>) -> Trace {
    Trace { span: 0..until, threads, ..Trace::default() }
}

#[track_caller]
fn gain(replay: &Replay, weights: &Weights, speedup: f64, pace: Pace) -> f64 {
    let of = |speedup| replay.run(weights, speedup, pace).point(0).ns_per_unit;
    1.0 - of(speedup) / of(0.0)
}

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 0.004, "{got} instead of {want}");
}

/// A loop that serves `clients`, who come back `away` after their answers: `target` of each `service` is the target's. As an event
/// loop does, written down as it happens.
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

// S = 1 - p(v)/p(0): a loop that never waits saves what the target saves.
#[test]
fn a_saturated_loop_gains_the_target_s_share() {
    let replay = Replay::new(&event_loop(32, 20 * US, 50 * US, 20 * US, 100_000 * US), None, &Cold::default());
    for speedup in [0.25, 0.5, 1.0] {
        near(gain(&replay, &target(), speedup, Pace::Closed), 0.4 * speedup);
    }
    let (was, is) = (replay.measured(Pace::Closed).point(0), replay.run(&target(), 0.0, Pace::Closed).point(0));
    assert_eq!(was.hits, is.hits);
    near(is.ns_per_unit / was.ns_per_unit, 1.0);
    near(is.latency_mean / was.latency_mean, 1.0);
}

/// A loop of 200 us a request, of which 120 are the target's, in a crowd of 2500 a second: who comes takes the connection that was free
/// last, so that some are needed only where many wait.
fn crowd(seed: u64, until: u64) -> Trace {
    let mut dice = crate::experiment::Dice::new(seed);
    let (mut free, mut answered): (Vec<u64>, VecDeque<(u64, u64)>) = ((1..=64).rev().collect(), VecDeque::new());
    let (mut events, mut came, mut now) = (Vec::new(), 0, 0);
    while now < until {
        came += (-(1.0 - dice.part()).ln() * 400e3) as u64;
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

// As many are answered as come, whatever an answer takes. What is left of the difference is where a window begins and ends.
#[test]
fn a_crowd_is_not_faster_answered_for_a_shorter_time() {
    let mut sum = 0.0;
    for seed in 0..200 {
        let replay = Replay::new(&crowd(seed, 80_000 * US), None, &Cold::default());
        sum += gain(&replay, &target(), 1.0, Pace::Open);
    }
    let mean = sum / 200.0;
    assert!(mean.abs() < 0.002, "{mean} instead of nothing");
}

// A loop that has told itself something does that before it looks for what else has come: the second request came after 50 us, and waits
// for all of the first.
#[test]
fn a_turn_ends_with_what_the_loop_told_itself() {
    let mut events = Vec::new();
    for unit in 0..1000 {
        let (visit, message, connection) = (unit + 1, unit + 1, 1 + unit % 2);
        // Two of them, then nothing for a while.
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
    let replay = Replay::new(&trace(500_000 * US, vec![thread(0, true, events)]), None, &Cold::default());
    let (was, is) = (replay.measured(Pace::Open).point(0), replay.run(&target(), 0.0, Pace::Open).point(0));
    near(was.latency_mean / 140e3, 1.0);
    near(is.latency_mean / was.latency_mean, 1.0);
    near(is.latency_p99 / was.latency_p99, 1.0);
}

// Asking the kernel for what has come takes 10 us before each request, which had come before: the loop did not sleep.
#[test]
fn to_ask_for_what_is_there_is_work() {
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
    let replay = Replay::new(&trace(60_000 * US, vec![thread(0, true, events)]), None, &Cold::default());
    near(replay.measured(Pace::Closed).busiest, 1.0);
    let [was, is] =
        [replay.measured(Pace::Closed), &replay.run_as_recorded(Pace::Closed)].map(|of| of.point(0).ns_per_unit);
    near(is / was, 1.0);
    near(gain(&replay, &target(), 1.0, Pace::Closed), 20.0 / 60.0);
}

/// Pairs of requests to a loop, the second one 30 us behind the first: that one finds the loop asleep, the other one is found at once by
/// one that looks for 5 us. Each takes 40 us, the target's, and so much more of kind 2 as `other` says of the pair's number.
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

// The second request is done 85 us after it came; without the target 15 us after it, and if the loop is cold then, as it is for the first
// one, 25.
#[test]
fn a_loop_that_sleeps_more_is_cold_more_often() {
    let recorded = pairs(|_| [20, 10]);
    let latencies = |cold: &Cold| {
        let replay = Replay::new(&recorded, None, cold);
        [0.0, 1.0].map(|speedup| replay.run(&target(), speedup, Pace::Open).point(0).latency_mean)
    };
    assert_eq!(latencies(&Cold::default()), [(60e3 + 85e3) / 2.0, (20e3 + 15e3) / 2.0]);
    let cold = Cold::of([&recorded].into_iter());
    assert_eq!(latencies(&cold), [(60e3 + 85e3) / 2.0, (20e3 + 25e3) / 2.0]);
    // What a window says is its own, whatever was gone through before it.
    let other = event_loop(32, 20 * US, 50 * US, 20 * US, 9_000 * US);
    let in_order = Cold::of([&recorded, &other].into_iter());
    assert!(in_order != Cold::default() && in_order == Cold::of([other, recorded].into_iter()));
}

// Work that varies as it likes tells nothing, nor does work that takes less behind sleep, nor a loop that never sleeps.
#[test]
fn what_may_be_chance_is_no_cold() {
    let random = |seed: u64| 10 + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 40;
    let never = event_loop(32, 20 * US, 50 * US, 20 * US, 9_000 * US);
    for recorded in [pairs(|pair| [random(2 * pair), random(2 * pair + 1)]), pairs(|_| [10, 20]), never] {
        assert_eq!(Cold::of([&recorded].into_iter()), Cold::default());
    }
}

// What had been asked before the window began takes what was left of it then, and is answered sooner by a faster upstream, too. The rest of
// an answer that was there before anybody looked for it comes when somebody looks.
#[test]
fn who_was_asked_before_the_window_answers_faster_too() {
    let mut events = Vec::new();
    let mut answer = |call, called, came, is_first| {
        events.extend([
            (came * US, 1, Event::BlockEnded),
            (called * US, 2, Event::Called { call, whom: 7, is_first }),
            ((came + 1) * US, 3, Event::Answered { call, at: came * US }),
            ((came + 10) * US, 5, Event::Hit { point: 0 }),
            ((came + 10) * US, 6, Event::BlockBegan),
        ]);
    };
    for call in 1..=5 {
        answer(call, call * 1000, call * 1000, true);
    }
    // Asked in the window, and followed by a sleep.
    answer(6, 5_005, 10_100, true);
    answer(7, 20_105, 20_105, false);
    events.extend([
        (10_105 * US, 4, Event::SleepBegan { timer: 8 }),
        (20_105 * US, 1, Event::SleepEnded { timer: 8, blocked: 0 }),
    ]);
    events.sort_by_key(|&(at, order, _)| (at, order));
    let events = events.into_iter().map(|(at, _, event)| (at, event)).collect();
    let replay = Replay::new(&trace(21_000 * US, vec![thread(0, true, events)]), None, &Cold::default());
    let of = |whom| gain(&replay, &Weights { calls: Some(whom), ..Weights::default() }, 0.5, Pace::Closed);
    // From 1010 to 20 115 us; from 510 to 2505 + 5 + 5047.5 + 10 000 us and what is done then.
    near(of(7), 1.0 - (15_072.5 - 510.0) / (20_115.0 - 1_010.0));
    near(of(8), 0.0);
}

// Two hooks fall into each unit's time, and 40 µs are left of it, 15 of them the target's; what does not fit into the 20 before it is taken
// off those, too.
#[test]
fn what_hooks_took_is_taken_off() {
    let recorded = event_loop(32, 20 * US, 50 * US, 20 * US, 100_000 * US);
    let replay = Replay::new(&Trace { hook: 5_000.0, ..recorded.clone() }, None, &Cold::default());
    near(gain(&replay, &target(), 0.5, Pace::Closed), 7.5 / 40.0);
    let [was, with, without] = [
        replay.measured(Pace::Closed),
        &replay.run_as_recorded(Pace::Closed),
        &replay.run(&target(), 0.0, Pace::Closed),
    ]
    .map(|outcome| outcome.point(0).ns_per_unit);
    near(with / was, 1.0);
    near(without / was, 0.8);
    let long = Replay::new(&Trace { hook: 22_500.0, ..recorded }, None, &Cold::default());
    near(long.run(&target(), 0.0, Pace::Closed).point(0).ns_per_unit / was, 0.1);
}

// A loop that is never idle does not say how long it takes to be up; once it is faster it is idle before each turn. Four clients who
// are away for 100 µs and then served for 10 come round in 110, or in 130 with 20 to be up.
#[test]
fn what_a_busy_loop_does_not_tell_others_may() {
    let busy = event_loop(4, 100 * US, 50 * US, 40 * US, 100_000 * US);
    let machine = Trace { wake_up: 10_000.0, ..busy.clone() };
    // In this order: nobody tells, the machine does, other windows do, though the machine says otherwise.
    for (trace, lag, round) in [
        (&busy, None, 110.0),
        (&machine, None, 120.0),
        (&busy, Some(20_000.0), 130.0),
        (&machine, Some(20_000.0), 130.0),
    ] {
        near(gain(&Replay::new(trace, lag, &Cold::default()), &target(), 1.0, Pace::Closed), 1.0 - round / 200.0);
    }
}

// One client: what it saves is part of a cycle that includes its own time.
#[test]
fn a_client_that_is_waited_for_hides_the_gain() {
    let replay = Replay::new(&event_loop(1, 150 * US, 50 * US, 20 * US, 100_000 * US), None, &Cold::default());
    near(gain(&replay, &target(), 0.5, Pace::Closed), 10.0 / 200.0);
    let latency = |speedup| replay.run(&target(), speedup, Pace::Closed).point(0).latency_mean;
    near(1.0 - latency(0.5) / latency(0.0), 10.0 / 50.0);
    near(replay.run(&target(), 0.5, Pace::Closed).point(0).waiting, 150.0 / 190.0);
}

// An open load sets the rate itself: only the time to an answer changes.
#[test]
fn an_open_load_gains_latency_only() {
    let replay = Replay::new(&event_loop(2, 150 * US, 50 * US, 20 * US, 100_000 * US), None, &Cold::default());
    near(gain(&replay, &target(), 0.5, Pace::Open), 0.0);
    let latency = |speedup| replay.run(&target(), speedup, Pace::Open).point(0).latency_mean;
    near(1.0 - latency(0.5) / latency(0.0), 0.2);
}

// What a replay says is of its own trace, whatever was in its memory before.
#[test]
fn a_replay_in_the_memory_of_another_one_is_the_same() {
    let traces = [
        event_loop(4, 150 * US, 50 * US, 20 * US, 20_000 * US),
        pairs(|_| [20, 10]),
        saturated_lock(),
        Trace::default(),
    ];
    let cold = Cold::of(traces.iter());
    let of = |trace| Replay::new(trace, Some(9e3), &cold);
    let said = |replay: &Replay| {
        let at = |speedup| [Pace::Closed, Pace::Open].map(|pace| replay.run(&target(), speedup, pace));
        (replay.measured(Pace::Closed).clone(), at(0.0), at(0.5), replay.run_as_recorded(Pace::Closed))
    };
    for before in &traces {
        for trace in &traces {
            assert_eq!(said(&of(before).next(trace, Some(9e3), &cold)), said(&of(trace)));
        }
    }
}

/// Four threads that each work 10 us outside of a lock and 20 inside; it goes round.
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

// The queue in front of a lock: only what is done inside counts while it is never free.
#[test]
fn inside_a_saturated_lock_and_outside() {
    let replay = Replay::new(&saturated_lock(), None, &Cold::default());
    near(gain(&replay, &target(), 0.25, Pace::Closed), 0.25);
    let outside =
        Weights { parts: vec![Part::default(), Part::default(), Part { part: 1.0, error: 0.0 }], calls: None };
    near(gain(&replay, &outside, 1.0, Pace::Closed), 0.0);
}

// Who does nothing outside of a lock has it again before the other is awake, and so on until there is no more to do.
#[test]
fn who_never_lets_go_of_a_lock_is_not_twice_as_fast() {
    use Sharing::Exclusive;
    let lock = 9;
    let mut threads = vec![Vec::new(), Vec::new()];
    // 20 us inside, 10 us outside; who waits is up 5 us after the lock is free.
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
    let replay = Replay::new(&trace(25_000 * US, threads), None, &Cold::default());
    near(gain(&replay, &target(), 1.0, Pace::Closed), 0.2);
    near(gain(&replay, &target(), 0.25, Pace::Closed), 0.0);
}

// Two stages: the slow one sets the pace.
#[test]
fn a_pipeline_goes_at_its_slow_stage_s_pace() {
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for item in 0..500 {
        let at = item * 40 * US;
        // The first makes an item in 10 us and then waits for room; the second takes 40.
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
    let replay = Replay::new(&trace(20_000 * US, both), None, &Cold::default());
    // An item takes 20 us then; for room it takes 15 of these and 10 of the first.
    near(gain(&replay, &target(), 0.5, Pace::Closed), 1.0 - 25.0 / 40.0);
    let first = Weights { parts: vec![Part::default(), Part::default(), Part { part: 1.0, error: 0.0 }], calls: None };
    near(gain(&replay, &first, 1.0, Pace::Closed), 0.0);
}

/// A thread that takes 100 us for each unit, 10 of them (kind 0) to wake one that is quick, and sends to one that takes 101
/// (kind 3). The target has 60.
fn one_that_wakes() -> Replay {
    const SLOW: u64 = 101 * US;
    let mut threads = [Vec::new(), Vec::new(), Vec::new()];
    // It is behind from the begin.
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
    Replay::new(&trace(until, threads), None, &Cold::default())
}

// Whoever wakes somebody takes its time for it, as long as somebody sleeps: who is 60 us sooner finds the quick one asleep all the same,
// and takes what it took for each wake; the slow one never slept, until it is faster than who sends to it.
#[test]
fn waking_takes_time_where_somebody_sleeps() {
    let replay = one_that_wakes();
    near(gain(&replay, &target(), 1.0, Pace::Closed), 0.6);
    let wake = Weights { parts: vec![Part { part: 1.0, error: 0.0 }], calls: None };
    near(gain(&replay, &wake, 1.0, Pace::Closed), 0.1);
    let mut slow = Weights { parts: vec![Part::default(); 4], calls: None };
    slow.parts[3].part = 1.0;
    near(gain(&replay, &slow, 0.5, Pace::Closed), -0.1);
}

// Who sends by means of its own says nothing of what waking takes: that is part of its work already, 10 of 100 us here, and of another's
// wake it is told that it takes 20.
#[test]
fn what_was_not_told_of_a_wake_is_not_added() {
    let (mut sends, mut quick, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for unit in 0..500 {
        let (at, told, untold) = (unit * 100 * US, 1 + 2 * unit, 2 + 2 * unit);
        sends.extend([
            (at, Event::Kind(1)),
            (at + 50 * US, Event::Kind(2)),
            (at + 60 * US, Event::Sent { message: untold }),
            (at + 80 * US, Event::Sent { message: told }),
            (at + 80 * US, Event::Waking(0)),
            (at + 100 * US, Event::Kind(2)),
            (at + 100 * US, Event::Hit { point: 0 }),
        ]);
        let blocked = |since: u64| if unit == 0 { since * US } else { 99 * US };
        other.push((at + 65 * US, Event::Took { message: untold, blocked: blocked(65) }));
        other.push((at + 66 * US, Event::Hit { point: 1 }));
        quick.push((at + 85 * US, Event::Took { message: told, blocked: blocked(85) }));
        quick.push((at + 86 * US, Event::Hit { point: 1 }));
    }
    let threads = vec![thread(0, false, sends), thread(1, false, quick), thread(2, false, other)];
    let replay = Replay::new(&trace(50_000 * US, threads), None, &Cold::default());
    let [was, is] =
        [replay.measured(Pace::Closed), &replay.run_as_recorded(Pace::Closed)].map(|of| of.point(0).ns_per_unit);
    near(is / was, 1.0);
    near(gain(&replay, &target(), 1.0, Pace::Closed), 0.5);
}

// A receiver that falls behind is woken no more.
#[test]
fn who_does_not_sleep_is_not_woken() {
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
        &Cold::default(),
    );
    // 40 us less leave 60, and the receiver, which takes 50 and 5 to be up, sleeps each time.
    near(gain(&replay, &target(), 0.5, Pace::Closed), 0.4);
    // 10 us a message, of which the receiver does not take one in 50.
    near(gain(&replay, &target(), 1.0, Pace::Closed), 0.9);
}

// What lay in a bounded queue when the window began is there at once for a second stage that takes no time; from then on it has an item
// each 20 us, as the first makes them.
#[test]
fn a_full_queue_is_no_gain() {
    const ROOM: u64 = 16;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for item in 0..500 {
        let at = item * 40 * US;
        second.push((at, Event::Took { message: item.saturating_sub(ROOM - 1), blocked: 0 }));
        second.push((at, Event::Sent { message: 10_000 + item }));
        second.push((at + 40 * US, Event::Hit { point: 0 }));
        // Its item is ready when there is room for it, and it makes another one.
        first.push((at, Event::Took { message: 10_000 + item, blocked: if item == 0 { 0 } else { 20 * US } }));
        first.push((at, Event::Sent { message: 1 + item }));
    }
    let mut both = vec![thread(0, false, first), thread(1, false, second)];
    (both[0].kind, both[1].kind) = (2, 1);
    let replay = Replay::new(&trace(20_000 * US, both), None, &Cold::default());
    near(gain(&replay, &target(), 0.25, Pace::Closed), 0.25);
    near(gain(&replay, &target(), 1.0, Pace::Closed), 0.5);
}

// What lay in a queue before the window waits for nobody: a consumer that has more of it than the window lasts is its own pace.
#[test]
fn a_backlog_from_before_the_window_is_worked_off_sooner() {
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
        let replay = Replay::new(&trace(50_000 * US, vec![thread(0, is_worker, events)]), None, &Cold::default());
        near(gain(&replay, &target(), 0.5, Pace::Closed), 0.3);
        let (was, is) = (replay.measured(Pace::Closed).point(0), replay.run(&target(), 0.0, Pace::Closed).point(0));
        near(is.ns_per_unit / was.ns_per_unit, 1.0);
        near(is.latency_mean / was.latency_mean, 1.0);
    }
}

// A message from before the window that woke the thread came when it did.
#[test]
fn what_was_waited_for_comes_no_sooner() {
    let mut events = vec![(0, Event::Took { message: 0, blocked: 0 })];
    for item in 1..500 {
        let at = item * 100 * US;
        events.extend([
            (at - 40 * US, Event::Hit { point: 0 }),
            (at, Event::Took { message: 0, blocked: 40 * US }),
            (at, Event::Kind(1)),
        ]);
    }
    let replay = Replay::new(&trace(50_000 * US, vec![thread(0, false, events)]), None, &Cold::default());
    near(gain(&replay, &target(), 1.0, Pace::Closed), 0.0);
}

// An upstream is a target too: its time is cut, and ours follows.
#[test]
fn an_upstream_that_answers_sooner() {
    let mut events = Vec::new();
    for request in 0..500 {
        let at = request * 200 * US;
        events.extend([
            (at, Event::BlockEnded),
            (at, Event::Arrived { connection: 1, at }),
            (at + 10 * US, Event::Called { call: 100 + request, whom: 7, is_first: true }),
            (at + 10 * US, Event::BlockBegan),
            (at + 110 * US, Event::BlockEnded),
            (at + 110 * US, Event::Answered { call: 100 + request, at: at + 110 * US }),
            (at + 120 * US, Event::Written { connection: 1 }),
            (at + 120 * US, Event::Hit { point: 0 }),
            (at + 120 * US, Event::BlockBegan),
        ]);
    }
    let replay = Replay::new(&trace(100_000 * US, vec![thread(0, true, events)]), None, &Cold::default());
    let upstream = Weights { parts: Vec::new(), calls: Some(7) };
    near(gain(&replay, &upstream, 0.5, Pace::Closed), 0.25);
    near(gain(&replay, &Weights { parts: Vec::new(), calls: Some(8) }, 0.5, Pace::Closed), 0.0);
}

// Whatever a window cut off, or a log that lost entries, the replay ends and says what it can.
#[test]
fn windows_that_make_no_sense_end() {
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
        vec![(5, Event::Answered { call: 4, at: 900 }), (6, Event::Arrived { connection: 0, at: 0 })],
    ];
    for events in cases {
        for is_worker in [false, true] {
            let replay = Replay::new(&trace(10, vec![thread(0, is_worker, events.clone())]), None, &Cold::default());
            for pace in [Pace::Closed, Pace::Open] {
                let outcome = replay.run(&target(), 1.0, pace);
                assert!(outcome.points.iter().all(|point| point.ns_per_unit.is_finite()));
            }
        }
    }
}
