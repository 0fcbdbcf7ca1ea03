use super::stamps::STAMP_RESOLUTION;
use super::*;
use crate::outcome::WindowOutcome;
use crate::target::KindShare;

const US: u64 = 1_000;
const WINDOW: u32 = 6;
/// The window's begin, clock time.
const T0: u64 = 10_000_000;

/// Opens a window whose target is all of kind 1 and half of kind 2.
fn opened(speedup: f64) -> Ledger {
    let parts = [0.0, 1.0, 0.5].map(|part| KindShare { part, error: 0.0 });
    let ledger = Ledger::new();
    ledger.open(WINDOW, &Experiment { weights: Some(&Weights { parts: parts.to_vec(), calls: Some(7) }), speedup }, T0);
    ledger
}

fn thread(ledger: &Ledger, number: u32, kind: u32) -> Account {
    let account = Account::new(number, "worker");
    account.kind.store(kind, Relaxed);
    ledger.join(&account, WINDOW);
    account
}

/// Raises G by `until`, with a thread that runs nothing except the target.
fn pause(ledger: &Ledger, until: u64) {
    ledger.credit(&thread(ledger, 99, 1), T0 + until);
}

#[track_caller]
fn near(got: u64, want: u64) {
    // Stamps round times to about half a microsecond.
    assert!(got.abs_diff(want) <= STAMP_RESOLUTION, "{got} instead of {want}");
}

fn delay(account: &Account) -> u64 {
    Ledger::delay(account)
}

// Running the target for t at speed-up v adds v·t to the thread's delay, and G is the largest.
#[test]
fn the_target_s_time_is_credited_by_kind() {
    for (kind, speedup, runnable, want) in [
        (0, 0.5, 1.0, 0),
        (1, 0.5, 1.0, 500 * US),
        (1, 1.0, 1.0, 1000 * US),
        (2, 0.5, 1.0, 250 * US),
        (3, 0.5, 1.0, 0),
        (1, 0.0, 1.0, 0),
        // Preempted for half of the time: that half is not the target's.
        (1, 0.5, 0.5, 250 * US),
    ] {
        let ledger = opened(speedup);
        let account = thread(&ledger, 0, kind);
        ledger.set_runnable(&account, runnable);
        // One credit or several give the same sum.
        for part in 1..=4 {
            ledger.credit(&account, T0 + part * 250 * US);
        }
        assert_eq!(
            (delay(&account), ledger.largest_delay(T0 + 1000 * US)),
            (want, want),
            "{kind} {speedup} {runnable}"
        );
        assert_eq!(ledger.virtual_time(&account, T0 + 1000 * US), Ledger::start() + 1000 * US - want);
    }
}

#[test]
fn debts_of_existing_and_new_threads() {
    let ledger = opened(1.0);
    pause(&ledger, 300 * US);
    let (old, new) = (thread(&ledger, 0, 0), thread(&ledger, 1, 0));
    ledger.begin(&new, WINDOW, T0 + 300 * US);
    assert_eq!(ledger.take_due_pause(&old, Urgency::Awaited, T0 + 300 * US), 300 * US);
    assert_eq!(ledger.take_due_pause(&new, Urgency::Awaited, T0 + 300 * US), 0);
}

// A debt below a quantum is not paid yet, unless other threads wait for this one.
#[test]
fn debts_are_paid_from_a_minimum_on() {
    for (debt, awaited, unawaited) in [
        (DEBT_URGENT - 1, 0, 0),
        (DEBT_URGENT, DEBT_URGENT, 0),
        (DEBT_QUANTUM - 1, DEBT_QUANTUM - 1, 0),
        (DEBT_QUANTUM, DEBT_QUANTUM, DEBT_QUANTUM),
    ] {
        let ledger = opened(1.0);
        pause(&ledger, debt);
        let account = thread(&ledger, 0, 0);
        assert_eq!(ledger.take_due_pause(&account, Urgency::Unawaited, T0 + debt), unawaited, "{debt}");
        assert_eq!(ledger.take_due_pause(&account, Urgency::Awaited, T0 + debt), awaited, "{debt}");
    }
}

// Overshoot never raises G: the excess is carried over to the next pause.
#[test]
fn oversleep_is_deducted_from_the_next_pause() {
    let ledger = opened(1.0);
    pause(&ledger, 300 * US);
    let account = thread(&ledger, 0, 0);
    let pause = ledger.take_due_pause(&account, Urgency::Awaited, T0 + 300 * US);
    ledger.paid(&account, pause, T0 + 300 * US, T0 + 670 * US);
    assert_eq!(ledger.largest_delay(T0 + 670 * US), 300 * US);
    assert_eq!(ledger.virtual_time(&account, T0 + 670 * US), Ledger::start() + 300 * US);
    assert_eq!(ledger.cost(T0 + 670 * US), WindowCost { delayed: 300 * US, slept: 370 * US, ..WindowCost::default() });
    let other = thread(&ledger, 98, 1);
    ledger.credit(&other, T0 + 360 * US);
    assert_eq!(ledger.take_due_pause(&account, Urgency::Awaited, T0 + 670 * US), 0);
    ledger.credit(&other, T0 + 400 * US);
    assert_eq!(ledger.take_due_pause(&account, Urgency::Awaited, T0 + 670 * US), 30 * US);
    // The end of a window cuts a sleep short: only the time slept is paid.
    ledger.paid(&account, 30 * US, T0 + 670 * US, T0 + 680 * US);
    assert_eq!(delay(&account), 380 * US);
}

// d_B += min(d_m − d_B, time blocked). Waiting absorbs debt, but never more than its own length.
#[test]
fn waiting_for_a_message_pays_debt() {
    for (why, blocked, sender, want) in [
        ("it waited long enough", 500 * US, 300 * US, 300 * US),
        ("it waited for less than its debt", 100 * US, 300 * US, 100 * US),
        ("it did not wait", 0, 300 * US, 0),
    ] {
        let ledger = opened(1.0);
        pause(&ledger, 300 * US);
        let (from, to) = (thread(&ledger, 0, 0), thread(&ledger, 1, 0));
        ledger.credit(&to, T0);
        from.delay_ns.store(sender, Relaxed);
        let stamp = ledger.sent(&from, WINDOW, T0 + 990 * US);
        ledger.received(&to, WINDOW, stamp, blocked, T0 + 1000 * US);
        assert!(delay(&to).abs_diff(want) <= STAMP_RESOLUTION, "{why}");
    }
}

// A message from a sender ahead in virtual time gives its receiver the sender's debt: virtual time never runs
// backwards.
#[test]
fn a_debt_travels_with_a_message() {
    let ledger = opened(1.0);
    pause(&ledger, 300 * US);
    let (from, to) = (thread(&ledger, 0, 0), thread(&ledger, 1, 0));
    ledger.credit(&to, T0);
    to.delay_ns.store(300 * US, Relaxed);
    // Sent without any payment, and taken 40 us later.
    let stamp = ledger.sent(&from, WINDOW, T0 + 500 * US);
    ledger.received(&to, WINDOW, stamp, 0, T0 + 540 * US);
    near(delay(&to), 40 * US);
    near(ledger.cost(T0 + 540 * US).ahead, 260 * US);
    assert!(ledger.virtual_time(&to, T0 + 540 * US) + STAMP_RESOLUTION >= ledger.virtual_time(&from, T0 + 500 * US));
}

#[test]
fn a_new_thread_gets_the_delay_of_its_first_message() {
    let ledger = opened(1.0);
    pause(&ledger, 300 * US);
    let (from, to) = (thread(&ledger, 0, 0), thread(&ledger, 1, 0));
    from.delay_ns.store(300 * US, Relaxed);
    let stamp = ledger.sent(&from, WINDOW, T0 + 500 * US);
    ledger.received(&to, WINDOW, stamp, 0, T0 + 510 * US);
    near(delay(&to), 300 * US);
}

// A parked worker absorbs its debt, for as long as it was parked.
#[test]
fn an_idle_loop_has_no_debt() {
    let ledger = opened(1.0);
    let account = thread(&ledger, 0, 0);
    ledger.block_began(&account, T0 + 100 * US);
    pause(&ledger, 300 * US);
    ledger.block_ended(&account, T0 + 400 * US);
    assert_eq!(delay(&account), 300 * US);
    // A thread that was idle before the window began counts as idle since the begin.
    let account = Account::new(1, "idle");
    account.blocked_since_ns.store(1, Relaxed);
    ledger.join(&account, WINDOW);
    ledger.block_ended(&account, T0 + 250 * US);
    assert_eq!(delay(&account), 250 * US);
}

// A request is due at arrival − d of the answer that it follows, and held while now − G is less.
#[test]
fn external_messages_are_held_until_they_are_due() {
    for (why, answered, arrived, now, want) in [
        ("no pause since the answer", 300, 5000, 5005, None),
        ("100 us of pauses", 200, 5000, 5000, Some(100)),
        ("100 us, of which it has waited 40", 200, 5000, 5040, Some(60)),
        ("100 us, of which it has waited most", 200, 5000, 5080, None),
        ("it waited longer than the pauses", 200, 5000, 5200, None),
    ] {
        let ledger = opened(1.0);
        pause(&ledger, 300 * US);
        let account = thread(&ledger, 0, 0);
        account.delay_ns.store(answered * US, Relaxed);
        let stamp = ledger.sent(&account, WINDOW, T0 + 310 * US);
        let hold = ledger.hold(WINDOW, stamp, T0 + arrived * US, T0 + now * US);
        assert_eq!(hold.is_some(), want.is_some(), "{why}");
        if let (Some(hold), Some(want)) = (hold, want) {
            near(hold, want * US);
        }
    }
}

// Neither the message nor its receiver is paused: the receiver may be a loop with a thousand other connections.
#[test]
fn messages_with_too_long_a_hold_pass_and_their_debt_is_waived() {
    let now = T0 + 10 * HOLD_MAX;
    // A stamp of another window: the answer was sent before this one began.
    let old = Stamp::new(WINDOW - 4, 1);
    for (why, paused, waited, is_forgiven) in [
        ("it is far too early", HOLD_MAX + DEBT_QUANTUM, 0, true),
        ("it has waited for a part of the hold", HOLD_MAX + DEBT_QUANTUM, 2 * DEBT_QUANTUM, false),
        ("it is not so early", HOLD_MAX, 0, false),
    ] {
        let ledger = opened(1.0);
        pause(&ledger, paused);
        let account = thread(&ledger, 0, 0);
        ledger.credit(&account, T0);
        account.delay_ns.store(paused, Relaxed);
        assert_eq!(ledger.hold(WINDOW, old, now - waited, now).is_none(), is_forgiven, "{why}");
        ledger.arrived(&account, WINDOW, old, now - waited, now);
        assert_eq!(delay(&account), if is_forgiven { paused } else { waited }, "{why}");
        assert_eq!(ledger.cost(now).forgiven, u64::from(is_forgiven), "{why}");
        // A unit begins when the message arrived, in the virtual time of the thread that handles it.
        let began = Ledger::start() + 10 * HOLD_MAX - waited - if is_forgiven { paused } else { 0 };
        assert_eq!(ledger.visit_began(&account, now), began, "{why}");
        // An upstream's answer likewise.
        account.delay_ns.store(paused, Relaxed);
        ledger.answered(&account, WINDOW, old, now - waited, now);
        assert_eq!(delay(&account), if is_forgiven { paused } else { waited }, "{why}");
    }
}

#[test]
fn messages_without_an_arrival_time_are_not_held() {
    let ledger = opened(1.0);
    pause(&ledger, 300 * US);
    let account = thread(&ledger, 0, 0);
    let stamp = ledger.sent(&account, WINDOW, T0 + 310 * US);
    assert_eq!(ledger.hold(WINDOW, stamp, 0, T0 + 310 * US), None);
    // The thread that takes it gets the difference as debt.
    account.delay_ns.store(300 * US, Relaxed);
    ledger.arrived(&account, WINDOW, stamp, 0, T0 + 310 * US);
    assert_eq!(delay(&account), 0);
}

// A thread preempted within a hook while its window ended and the next one began.
#[test]
fn an_account_of_an_earlier_window_changes_no_total() {
    let ledger = opened(1.0);
    let late = thread(&ledger, 0, 1);
    ledger.credit(&late, T0 + 300 * US);
    let weights = Weights { parts: vec![KindShare { part: 1.0, error: 0.0 }; 2], calls: Some(7) };
    ledger.open(WINDOW + 4, &Experiment { weights: Some(&weights), speedup: 1.0 }, T0 + 400 * US);
    ledger.credit(&late, T0 + 500 * US);
    assert_eq!(ledger.largest_delay(T0 + 500 * US), 0);
    let call = ledger.called(&late, WINDOW, 7, T0 + 500 * US);
    assert_eq!(ledger.largest_delay(T0 + 600 * US), 0);
    ledger.answered(&late, WINDOW, call, T0 + 600 * US, T0 + 600 * US);
    ledger.join(&late, WINDOW + 4);
    ledger.credit(&late, T0 + 700 * US);
    assert_eq!(ledger.largest_delay(T0 + 700 * US), 300 * US);
}

// A message slightly too early in virtual time, and not held: its receiver gets the rest as debt, except for the time
// of the wakeup, which is the program's own.
#[test]
fn work_ahead_of_the_delay_is_debt() {
    let ledger = opened(1.0);
    pause(&ledger, 300 * US);
    let account = thread(&ledger, 0, 0);
    ledger.credit(&account, T0);
    account.delay_ns.store(280 * US, Relaxed);
    let stamp = ledger.sent(&account, WINDOW, T0 + 310 * US);
    ledger.block_began(&account, T0 + 310 * US);
    ledger.block_ended(&account, T0 + 510 * US);
    assert_eq!(delay(&account), 300 * US);
    ledger.arrived(&account, WINDOW, stamp, T0 + 500 * US, T0 + 511 * US);
    near(delay(&account), 280 * US);
    near(ledger.visit_began(&account, T0 + 511 * US), Ledger::start() + 220 * US);
}

// An upstream that is the target has d = d_sent + v·latency: its answer is due at once, and all threads get the
// difference as debt.
#[test]
fn the_time_of_an_upstream_is_credited_during_calls() {
    let ledger = opened(0.5);
    let account = thread(&ledger, 0, 0);
    let other = ledger.called(&account, WINDOW, 8, T0 + 100 * US);
    assert_eq!(ledger.largest_delay(T0 + 200 * US), 0);
    let first = ledger.called(&account, WINDOW, 7, T0 + 200 * US);
    let second = ledger.called(&account, WINDOW, 7, T0 + 300 * US);
    assert_eq!(ledger.largest_delay(T0 + 400 * US), 100 * US);
    assert_eq!(ledger.hold(WINDOW, first, T0 + 400 * US, T0 + 400 * US), None);
    ledger.answered(&account, WINDOW, first, T0 + 400 * US, T0 + 400 * US);
    ledger.answered(&account, WINDOW, second, T0 + 500 * US, T0 + 500 * US);
    assert_eq!(ledger.largest_delay(T0 + 900 * US), 150 * US);
    // The answer of another upstream is not due yet.
    assert!(ledger.hold(WINDOW, other, T0 + 900 * US, T0 + 900 * US).is_some_and(|hold| hold >= 149 * US));
    // An answer without a pending call changes no delay.
    ledger.answered(&account, WINDOW, second, T0 + 900 * US, T0 + 900 * US);
    ledger.answered(&account, WINDOW, Stamp::default(), T0 + 900 * US, T0 + 900 * US);
    assert_eq!(ledger.largest_delay(T0 + 950 * US), 150 * US);
}

// Timers run on during pauses, so a sleeping thread pays nothing: deadline += ΔG.
#[test]
fn a_sleep_pays_no_debt() {
    let ledger = opened(1.0);
    let account = thread(&ledger, 0, 0);
    let timer = ledger.sent(&account, WINDOW, T0);
    pause(&ledger, 300 * US);
    ledger.woke(&account, WINDOW, timer, 1000 * US, T0 + 1000 * US);
    assert_eq!(ledger.take_due_pause(&account, Urgency::Unawaited, T0 + 1000 * US), 300 * US);
}

// Readers release a lock in any order: the next writer follows the last of them.
#[test]
fn a_lock_carries_the_delay_of_its_last_reader() {
    let ledger = opened(1.0);
    let (early, late) = (thread(&ledger, 0, 0), thread(&ledger, 1, 0));
    let last = ledger.unlocked(&late, WINDOW, Stamp::default(), Sharing::Shared, T0 + 200 * US);
    assert_eq!(ledger.unlocked(&early, WINDOW, last, Sharing::Shared, T0 + 100 * US), last);
    assert_ne!(ledger.unlocked(&early, WINDOW, last, Sharing::Exclusive, T0 + 100 * US), last);
    assert_ne!(ledger.unlocked(&early, WINDOW, last, Sharing::Shared, T0 + 300 * US), last);
}

#[test]
fn a_load_probe_pauses_all_threads_for_a_fifth() {
    let ledger = Ledger::new();
    ledger.open(WINDOW, &Experiment { weights: None, speedup: 1.0 }, T0);
    let account = thread(&ledger, 0, 1);
    ledger.credit(&account, T0 + 5000 * US);
    assert_eq!(delay(&account), 0);
    assert_eq!(ledger.take_due_pause(&account, Urgency::Unawaited, T0 + 5000 * US), 1000 * US);
}

#[test]
fn an_overlong_window_adds_no_stamps() {
    let ledger = opened(1.0);
    let account = thread(&ledger, 0, 0);
    assert_ne!(ledger.sent(&account, WINDOW, T0 + STAMP_TIME_MAX - STAMP_RESOLUTION), Stamp::default());
    assert_eq!(ledger.sent(&account, WINDOW, T0 + STAMP_TIME_MAX), Stamp::default());
    assert_eq!(ledger.called(&account, WINDOW, 7, T0 + STAMP_TIME_MAX), Stamp::default());
    assert_eq!(ledger.largest_delay(T0 + 2 * STAMP_TIME_MAX), 0);
}

// p is virtual time per unit: here from the slope of the count, without the units beyond the window's end.
#[test]
fn units_of_a_window_are_counted_in_virtual_time() {
    let at = |at: u64, began| Unit { at: Ledger::start() + at, point: 1, began };
    let mut units: Vec<_> = (1..2000).map(|n| at(n * 50 * US, Some(Ledger::start() + n * 50 * US - 20 * US))).collect();
    // 100 ms of the clock, 10 of them pauses: units after 90 ms of virtual time are not counted.
    let came = outcome(&units, 100_000 * US, 10_000 * US);
    let point = came.point(1);
    assert_eq!((came.point(0).hits, point.hits, point.timed), (0, 1800, 1800.0));
    assert!((point.ns_per_unit / 50_000.0 - 1.0).abs() < 1e-4, "{}", point.ns_per_unit);
    assert_eq!(point.latency_mean, 20_000.0);
    units.clear();
    assert_eq!(outcome(&units, 100, 200), WindowOutcome::default());
}
