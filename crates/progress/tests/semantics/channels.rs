//! Channels, compared with std's.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::mpsc as theirs;
use std::time::Duration;

use progress::sync::Arc;
use progress::sync::mpsc::{
    self as ours, RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError, channel, sync_channel,
};
use progress::thread;

use crate::always;

const ROUNDS: usize = 1_000;
const SENDERS: usize = 3;

/// Checks that no message is lost or duplicated, and that each sender's messages arrive in order.
fn in_order(received: impl Iterator<Item = (usize, usize)>) {
    let mut next = [0; SENDERS];
    for (sender, number) in received {
        assert_eq!(number, next[sender], "of {sender}");
        next[sender] += 1;
    }
    assert_eq!(next, [ROUNDS; SENDERS]);
}

#[test]
fn many_senders_and_one_receiver() {
    always(|| {
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            for own in 0..SENDERS {
                let sender = sender.clone();
                scope.spawn(move || (0..ROUNDS).for_each(|number| sender.send((own, number)).unwrap()));
            }
            drop(sender);
            in_order(receiver.iter());
        });
        for places in [0, 1, 2, 100] {
            let (sender, receiver) = sync_channel(places);
            thread::scope(|scope| {
                for own in 0..SENDERS {
                    let sender = sender.clone();
                    scope.spawn(move || (0..ROUNDS).for_each(|number| sender.send((own, number)).unwrap()));
                }
                drop(sender);
                in_order(receiver.into_iter());
            });
        }
    });
}

/// A random sequence of calls by one thread: a bounded channel returns the results that std's returns.
#[test]
fn random_operations_match_the_standard_library() {
    always(|| {
        for seed in 1..=200_u64 {
            let places = (seed % 4) as usize;
            let (mut sender, receiver) = sync_channel(places);
            let (mut their_sender, their_receiver) = theirs::sync_channel(places);
            let (mut receiver, mut their_receiver) = (Some(receiver), Some(their_receiver));
            let mut chance = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for number in 0..60 {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                match chance >> 59 {
                    0 if number > 40 => (receiver, their_receiver) = (None, None),
                    1 => {
                        // Drops the original, keeps the clone.
                        sender = sender.clone();
                        their_sender = their_sender.clone();
                    }
                    0..16 => {
                        assert_eq!(sender.try_send(number), their_sender.try_send(number), "seed {seed}, {number}");
                    }
                    16..28 => {
                        let theirs = their_receiver.as_ref().map(theirs::Receiver::try_recv);
                        assert_eq!(
                            receiver.as_ref().map(|receiver| receiver.try_recv()),
                            theirs,
                            "seed {seed}, {number}"
                        );
                    }
                    28..30 => {
                        let time = Duration::ZERO;
                        let theirs = their_receiver.as_ref().map(|receiver| receiver.recv_timeout(time));
                        let ours = receiver.as_ref().map(|receiver| receiver.recv_timeout(time));
                        assert_eq!(ours, theirs, "seed {seed}, {number}");
                    }
                    _ => {
                        let theirs: Option<Vec<_>> =
                            their_receiver.as_ref().map(|receiver| receiver.try_iter().collect());
                        let ours = receiver.as_ref().map(|receiver| receiver.try_iter().collect());
                        assert_eq!(ours, theirs, "seed {seed}, {number}");
                    }
                }
            }
            drop((sender, their_sender));
            let theirs: Option<Vec<_>> = their_receiver.map(|receiver| receiver.into_iter().collect());
            assert_eq!(receiver.map(|receiver| receiver.into_iter().collect()), theirs, "seed {seed}");
        }
    });
}

/// The ends are unwind-safe for every message type, as std's are. It is enough that this compiles.
#[test]
fn channels_may_be_used_after_a_panic() {
    fn send_and_sync_match_the_standard_library<A: UnwindSafe + RefUnwindSafe, B: UnwindSafe + RefUnwindSafe>() {}
    type Sent = Cell<u8>;
    send_and_sync_match_the_standard_library::<theirs::Receiver<Sent>, ours::Receiver<Sent>>();
    send_and_sync_match_the_standard_library::<theirs::Sender<Sent>, ours::Sender<Sent>>();
    send_and_sync_match_the_standard_library::<theirs::SyncSender<Sent>, ours::SyncSender<Sent>>();
}

#[test]
fn queued_messages_arrive_after_the_senders_are_dropped() {
    always(|| {
        let (unbounded, one) = channel();
        let (bounded, other) = sync_channel(2);
        unbounded.send(1).unwrap();
        bounded.send(1).unwrap();
        drop((unbounded, bounded));
        for receiver in [one, other] {
            assert_eq!(receiver.recv(), Ok(1));
            assert_eq!(receiver.recv(), Err(RecvError));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
            assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Disconnected));
        }
    });
}

#[test]
fn unreceived_messages_are_dropped_with_the_receiver() {
    always(|| {
        let value = Arc::new(());
        let (unbounded, one) = channel();
        let (bounded, other) = sync_channel(2);
        unbounded.send(Arc::clone(&value)).unwrap();
        bounded.send(Arc::clone(&value)).unwrap();
        assert_eq!(Arc::strong_count(&value), 3);
        drop((one, other));
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(unbounded.send(Arc::clone(&value)), Err(SendError(Arc::clone(&value))));
        assert_eq!(bounded.send(Arc::clone(&value)), Err(SendError(Arc::clone(&value))));
        assert_eq!(bounded.try_send(Arc::clone(&value)), Err(TrySendError::Disconnected(Arc::clone(&value))));
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// A channel of 0 slots: a sender returns when its own message was taken, or gets it back when the receiver is dropped.
#[test]
fn rendezvous() {
    always(|| {
        for _ in 0..100 {
            let (sender, receiver) = sync_channel(0);
            let results = thread::scope(|scope| {
                let senders = [1, 2, 3].map(|number| {
                    let sender = sender.clone();
                    scope.spawn(move || sender.send(number))
                });
                let mut received = vec![receiver.recv().unwrap(), receiver.recv().unwrap()];
                drop(receiver);
                let back = senders.into_iter().filter_map(|sender| sender.join().unwrap().err());
                received.extend(back.map(|SendError(number)| number));
                received.sort_unstable();
                received
            });
            assert_eq!(results, [1, 2, 3]);
            assert_eq!(sender.try_send(4), Err(TrySendError::Disconnected(4)));
        }
    });
}

/// With 0 slots `try_send` succeeds only while the receiver waits.
#[test]
fn rendezvous_without_waiting() {
    always(|| {
        let (sender, receiver) = sync_channel(0);
        assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..20 {
                    while sender.try_send(number).is_err() {
                        thread::yield_now();
                    }
                }
            });
            assert!(receiver.iter().eq(0..20));
        });
    });
}

/// A receive that times out loses no message.
#[test]
fn timeouts_lose_no_message() {
    always(|| {
        for places in [0, 1] {
            let (sender, receiver) = sync_channel(places);
            thread::scope(|scope| {
                scope.spawn(move || (0..300).for_each(|number| sender.send(number).unwrap()));
                let mut next = 0;
                loop {
                    match receiver.recv_timeout(Duration::from_micros(next % 7)) {
                        Ok(number) => {
                            assert_eq!(number, next);
                            next += 1;
                        }
                        Err(RecvTimeoutError::Timeout) => thread::yield_now(),
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
                assert_eq!(next, 300);
            });
        }
        let (_sender, receiver) = sync_channel::<()>(1);
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    });
}

/// Memory is used for queued messages only, not for the bound.
#[test]
fn a_bound_may_be_huge() {
    let (sender, receiver) = sync_channel(usize::MAX);
    sender.send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));
}
