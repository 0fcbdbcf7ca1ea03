//! Channels: the stamps that messages, freed slots and dropped ends carry.

use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use progress::sync::mpsc::{Receiver, channel, sync_channel};
use progress::thread;

use crate::recorder::{check, record, until_blocked};

fn named<F: FnOnce() + Send + 'static>(name: &str, work: F) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(work).unwrap()
}

#[test]
fn a_message_carries_the_stamp_of_its_sender() {
    let lines = record(|| {
        let (sender, receiver) = channel();
        sender.send('a').unwrap();
        sender.send('b').unwrap();
        assert_eq!(receiver.recv(), Ok('a'));
        assert_eq!(receiver.try_recv(), Ok('b'));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        drop(sender);
        assert_eq!(receiver.recv(), Err(RecvError));
    });
    check(
        &lines,
        "main",
        &[
            "sent 1", "at send", "sent 2", "at send", "took 1", "at recv", "took 2", "at recv", "sent 3", "took 3",
            "at recv",
        ],
    );
}

fn receiving(receiver: Receiver<u32>) -> thread::JoinHandle<()> {
    named("receiving", move || assert_eq!(receiver.iter().collect::<Vec<_>>(), [7]))
}

#[test]
fn a_receiver_waits_for_a_send_or_the_end_of_the_sender() {
    let lines = record(|| {
        let (sender, receiver) = channel();
        let receiver = receiving(receiver);
        until_blocked("receiving");
        sender.send(7).unwrap();
        until_blocked("receiving");
        drop(sender);
        receiver.join().unwrap();
    });
    check(&lines, "receiving", &["took 1", "took 2, blocked", "at recv", "took 3, blocked", "at recv", "sent 4"]);
    assert_eq!(lines["main"][..7], ["sent 1", "at spawn", "sent 2", "at send", "in wake", "out", "sent 3"]);
}

#[test]
fn a_bounded_channel_receiver_waits_and_frees_capacity() {
    let lines = record(|| {
        let (sender, receiver) = sync_channel(1);
        let receiver = receiving(receiver);
        until_blocked("receiving");
        sender.send(7).unwrap();
        until_blocked("receiving");
        drop(sender);
        receiver.join().unwrap();
    });
    check(
        &lines,
        "receiving",
        &[
            "took 1",
            "took 2, blocked",
            "sent 3",
            "at recv",
            "took 4, blocked",
            "at recv",
            // The receiver is dropped, then the thread ends; each leaves a stamp.
            "sent 5",
            "sent 6",
        ],
    );
    assert_eq!(lines["main"][..7], ["sent 1", "at spawn", "sent 2", "at send", "in wake", "out", "sent 4"]);
}

#[test]
fn a_full_channel_blocks_its_sender() {
    let lines = record(|| {
        let (sender, receiver) = sync_channel(2);
        let sending = named("sending", move || (0..4).for_each(|number| sender.send(number).unwrap()));
        until_blocked("sending");
        assert_eq!(receiver.recv(), Ok(0));
        // The third message takes the slot that the first one's receipt freed, and so on.
        until_blocked("sending");
        assert_eq!(receiver.recv(), Ok(1));
        sending.join().unwrap();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [2, 3]);
    });
    check(
        &lines,
        "sending",
        &[
            "took 1",
            "sent 2",
            "at send",
            "sent 3",
            "at send",
            "took 4, blocked",
            "sent 5",
            "at send",
            "took 6, blocked",
            "sent 7",
            "at send",
            "sent 8",
            "sent 9",
        ],
    );
    assert_eq!(
        lines["main"][..12],
        [
            "sent 1", "at spawn", "took 2", "sent 4", "in wake", "out", "at recv", "took 3", "sent 6", "in wake",
            "out", "at recv"
        ]
    );
}

#[test]
fn a_rendezvous_sender_waits_for_the_receiver() {
    let lines = record(|| {
        let (sender, receiver) = sync_channel(0);
        assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
        let sending = named("sending", move || sender.send(2).unwrap());
        until_blocked("sending");
        assert_eq!(receiver.recv(), Ok(2));
        sending.join().unwrap();
    });
    check(&lines, "sending", &["took 1", "sent 2", "at send", "took 3, blocked", "sent 4", "sent 5"]);
    assert_eq!(lines["main"][..7], ["sent 1", "at spawn", "took 2", "sent 3", "in wake", "out", "at recv"]);
}

#[test]
fn a_send_fails_after_the_receiver_is_dropped() {
    for places in [0, 1] {
        let lines = record(|| {
            let (sender, receiver) = sync_channel(places);
            let sending = named("sending", move || {
                let result = (0..=places).map(|number| sender.send(number)).collect::<Vec<_>>();
                assert_eq!(result.last(), Some(&Err(SendError(places))));
            });
            until_blocked("sending");
            drop(receiver);
            sending.join().unwrap();
        });
        let went = lines["main"].iter().find(|line| line.starts_with("sent") && *line != "sent 1").unwrap();
        let number = went.strip_prefix("sent ").unwrap();
        assert!(lines["sending"].contains(&format!("took {number}, blocked")), "{places}: {lines:#?}");
    }
}

#[test]
fn an_expired_receive_timeout_is_a_timer() {
    for bounded in [false, true] {
        let lines = record(|| {
            let (_sender, receiver) = channel::<()>();
            let (_bounded, other) = sync_channel::<()>(1);
            let receiver = if bounded { &other } else { &receiver };
            assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        });
        assert_eq!(lines["main"][..3], ["timer 1", "over 1, blocked", "at recv"]);
    }
}
