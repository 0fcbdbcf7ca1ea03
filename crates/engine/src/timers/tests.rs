use super::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

#[derive(Default)]
struct WakeCount(AtomicU32);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl WakeCount {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (Arc::clone(&count), Waker::from(count))
    }
    fn wakes(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_deadline_wakes_once_and_not_early() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    let (count, waker) = WakeCount::new();
    let key = wheel.add(waker);
    wheel.set(key, start + ms(250));
    wheel.advance(start + ms(250));
    assert_eq!(count.wakes(), 0, "rounded up to the tick at 300 ms");
    wheel.advance(start + ms(300));
    assert_eq!(count.wakes(), 1);
    wheel.advance(start + ms(5000));
    assert_eq!(count.wakes(), 1);
}

// A wait that is interrupted again and again must not become longer each time.
#[test]
fn a_coarse_time_is_rounded_up_once() {
    let start = Instant::now();
    let wheel = Wheel::new(start);
    for (at, now, want) in
        [(0, 0, 0), (0, 5000, 0), (1, 50, 100), (100, 200, 100), (250, 260, 300), (250, 6_553_700, 300)]
    {
        let latest = |at| wheel.latest(wheel.coarse(at), start + ms(now));
        assert_eq!(latest(start + ms(at)), start + ms(want), "{at}, {now}");
        assert_eq!(latest(latest(start + ms(at))), start + ms(want), "{at}, {now}");
    }
    let later = wheel.latest(wheel.coarse(start), start + ms(6_553_700));
    assert_eq!(later, start + ms(6_553_600), "it repeats after 65 536 ticks");
}

#[test]
fn a_deadline_moves_later_and_earlier() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    let (count, waker) = WakeCount::new();
    let key = wheel.add(waker);
    wheel.set(key, start + ms(1000));
    wheel.set(key, start + ms(3000));
    wheel.advance(start + ms(2900));
    assert_eq!(count.wakes(), 0, "moved later");
    wheel.set(key, start + ms(500_000));
    wheel.set(key, start + ms(4000));
    wheel.advance(start + ms(4000));
    assert_eq!(count.wakes(), 1, "moved earlier");
}

#[test]
fn a_deadline_beyond_the_wheel_is_kept() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    let (count, waker) = WakeCount::new();
    let key = wheel.add(waker);
    wheel.set(key, start + ms(300_000));
    for at in (0..300_000).step_by(5_000) {
        wheel.advance(start + ms(at));
    }
    assert_eq!(count.wakes(), 0);
    wheel.advance(start + ms(300_000));
    assert_eq!(count.wakes(), 1);
}

#[test]
fn a_reused_key_is_not_woken_for_its_predecessor() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    let (_, waker) = WakeCount::new();
    let first = wheel.add(waker);
    wheel.set(first, start + ms(500));
    wheel.remove(first);
    let (count, waker) = WakeCount::new();
    let second = wheel.add(waker);
    assert_eq!(second, first);
    wheel.set(second, start + ms(900));
    wheel.advance(start + ms(800));
    assert_eq!(count.wakes(), 0);
    wheel.advance(start + ms(900));
    assert_eq!(count.wakes(), 1);
}

/// A random sequence of additions, moves and removals: each connection is woken exactly once, at its last deadline.
#[test]
fn many_in_the_same_buckets_keep_their_deadlines() {
    let start = Instant::now();
    let mut random = causeway_testkit::random::Random::new(7);
    let mut wheel = Wheel::new(start);
    let mut there: Vec<(TimerKey, Arc<WakeCount>, Option<u64>)> = Vec::new();
    for tick in 0..3000 {
        for _ in 0..random.below(4) {
            match random.below(3) {
                0 => {
                    let (count, waker) = WakeCount::new();
                    there.push((wheel.add(waker), count, None));
                }
                1 if !there.is_empty() => {
                    let (key, _, _) = there.swap_remove(random.below(there.len() as u64) as usize);
                    wheel.remove(key);
                }
                _ if !there.is_empty() => {
                    let at = random.below(there.len() as u64) as usize;
                    // A few ticks away, so that timers share buckets; sometimes beyond one turn of the wheel.
                    let far = if random.below(10) == 0 { 1500 } else { 5 };
                    let due = tick + 1 + random.below(far);
                    wheel.set(there[at].0, start + ms(due * 100));
                    there[at].2 = Some(due);
                }
                _ => {}
            }
        }
        wheel.advance(start + ms(tick * 100));
        for (_, count, due) in &mut there {
            let is_due = due.take_if(|due| *due == tick).is_some();
            assert_eq!(count.0.swap(0, Ordering::Relaxed), u32::from(is_due), "at tick {tick}, {due:?}");
        }
    }
    assert!(there.len() > 10, "{}", there.len());
}

#[test]
fn an_idle_wheel_needs_no_tick() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    assert_eq!(wheel.next(), None);
    let key = wheel.add(Waker::noop().clone());
    assert!(wheel.next().is_some());
    wheel.remove(key);
    assert_eq!(wheel.next(), None);
    wheel.advance(start + ms(90_000));
    let (count, waker) = WakeCount::new();
    let key = wheel.add(waker);
    wheel.set(key, start + ms(90_500));
    wheel.advance(start + ms(90_500));
    assert_eq!(count.wakes(), 1);
}

#[test]
fn sleepers_wake_in_order_and_a_dropped_one_does_not() {
    let start = Instant::now();
    let mut sleepers = Sleepers::default();
    let (late, waker) = WakeCount::new();
    sleepers.add(start + ms(20), waker);
    let (soon, waker) = WakeCount::new();
    sleepers.add(start + ms(10), waker);
    let (dropped, waker) = WakeCount::new();
    let id = sleepers.add(start + ms(5), waker);
    sleepers.cancel(id);
    sleepers.cancel(id);
    sleepers.advance(start + ms(10));
    assert_eq!((late.wakes(), soon.wakes(), dropped.wakes()), (0, 1, 0));
    assert_eq!(sleepers.next(), Some(start + ms(20)));
    sleepers.advance(start + ms(20));
    assert_eq!((late.wakes(), sleepers.next()), (1, None));
}

// A peer may choose a deadline of years, by `grpc-timeout`.
#[test]
fn cancelled_sleeps_leave_the_heap_while_another_sleeps() {
    let (mut sleepers, start) = (Sleepers::default(), Instant::now());
    let (years, year_waker) = WakeCount::new();
    sleepers.add(start + Duration::from_secs(1 << 30), year_waker);
    for _ in 0..10 * STALE_MAX {
        let (_, waker) = WakeCount::new();
        let id = sleepers.add(start + Duration::from_secs(1 << 29), waker);
        sleepers.cancel(id);
    }
    assert!(sleepers.heap.len() <= 2 + STALE_MAX, "{}", sleepers.heap.len());
    sleepers.advance(start + Duration::from_secs(1 << 30));
    assert_eq!((years.wakes(), sleepers.next()), (1, None));
}
