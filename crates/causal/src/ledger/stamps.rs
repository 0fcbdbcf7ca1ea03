//! The contents of a stamp in a window with pauses: the time at which it was made, and its maker's delay.

use progress::{Account, Stamp};

use super::Ledger;

/// Stamps made later than this after the window's begin are empty, nanoseconds.
pub const STAMP_TIME_MAX: u64 = STAMP_RESOLUTION << SENT_BITS;
/// Resolution of a stamp's times, nanoseconds.
pub(super) const STAMP_RESOLUTION: u64 = 512;
/// Bits of a stamp for its time and for its delay. One more bit marks a call of the target.
const SENT_BITS: u32 = 20;
const DELAY_BITS: u32 = 19;

/// A stamp's contents: the time from the window's begin at which it was made, and its maker's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StampContents {
    pub(super) sent: u64,
    pub(super) delay: u64,
    pub(super) is_target: bool,
}

impl Ledger {
    pub(super) fn stamped(&self, account: &Account, window: u32, now: u64, is_target: bool) -> Stamp {
        let sent = (self.since(now) + STAMP_RESOLUTION / 2) / STAMP_RESOLUTION;
        let delay = ((Self::delay(account) + STAMP_RESOLUTION / 2) / STAMP_RESOLUTION).min((1 << DELAY_BITS) - 1);
        // The time does not fit into a stamp. An empty one is like a message from before the window.
        if sent >= 1 << SENT_BITS {
            return Stamp::default();
        }
        Stamp::new(window, sent << (DELAY_BITS + 1) | delay << 1 | u64::from(is_target))
    }

    pub(super) fn reading(stamp: Stamp, window: u32) -> Option<StampContents> {
        stamp.value(window).map(|value| StampContents {
            sent: (value >> (DELAY_BITS + 1)) * STAMP_RESOLUTION,
            delay: (value >> 1 & ((1 << DELAY_BITS) - 1)) * STAMP_RESOLUTION,
            is_target: value & 1 == 1,
        })
    }
}
