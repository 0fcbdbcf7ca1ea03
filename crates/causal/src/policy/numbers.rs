//! Numbers of messages, connections and locks, unique in a recorded window.

use std::sync::atomic::Ordering::Relaxed;

use progress::{Account, Lock, Stamp};

use crate::sample;

/// Bits of a message's number that count within its thread: more than a thread sends in a window. The bits above them,
/// up to the 40 of a stamp, hold the number of its account, for [`sample::THREADS_MAX`] accounts.
const SERIAL_BITS: u32 = 26;

/// Returns a number for a message of the thread's that is unique in the window, even if another thread had the account
/// before. With more than [`sample::THREADS_MAX`] accounts, of which a report says that their threads are missing, two
/// may give the same numbers, and a replay may then link the wrong events.
pub(super) fn next_message_number(account: &Account) -> u64 {
    let serial = account.message_count.load(Relaxed) + 1;
    account.message_count.store(serial, Relaxed);
    let number = u64::from(account.number()) % sample::THREADS_MAX as u64;
    number << SERIAL_BITS | serial & ((1 << SERIAL_BITS) - 1)
}

/// Returns the stamp's number in the window, or gives it one: for a connection that is written to repeatedly.
pub(super) fn window_number(stamp: &mut Stamp, account: &Account, window: u32) -> u64 {
    stamp.value(window).unwrap_or_else(|| {
        let number = next_message_number(account);
        *stamp = Stamp::new(window, number);
        number
    })
}

pub(super) fn lock_number(lock: &Lock, account: &Account, window: u32) -> u64 {
    let was = lock.stamp();
    was.value(window).unwrap_or_else(|| {
        let mine = Stamp::new(window, next_message_number(account));
        lock.replace(was, mine).value(window).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two accounts with equal numbers of messages would be linked by a replay.
    #[test]
    fn messages_of_all_sampled_threads_differ() {
        let last = sample::THREADS_MAX as u32 - 1;
        let mut numbers = [0, 1, 4096, last].map(|number| next_message_number(&Account::new(number, "")));
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
        assert_eq!((u64::from(last) + 1) << SERIAL_BITS, Stamp::VALUE_MAX + 1, "a stamp holds each number");
    }
}
