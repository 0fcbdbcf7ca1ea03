//! Flow control (RFC 9113 §5.2, §6.9).

use crate::fault::Fault;

/// The largest window (RFC 9113 §6.9.1).
pub(crate) const WINDOW_MAX: u32 = 0x7fff_ffff;
/// A window before anybody changed it (RFC 9113 §6.9.2).
pub(crate) const WINDOW_DEFAULT: u32 = 65_535;

/// Octets that we may send; negative after a SETTINGS change (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(i32);

impl Window {
    pub(crate) const fn new(octets: u32) -> Self {
        Self(octets as i32)
    }

    /// Adds a WINDOW_UPDATE, or the difference that SETTINGS make; `None` when the sum passes 2^31-1 (RFC 9113 §6.9.1).
    #[must_use]
    pub(crate) fn grow(self, by: i64) -> Option<Self> {
        i32::try_from(i64::from(self.0) + by).ok().map(Self)
    }

    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Takes octets that are [available](Self::available).
    #[inline]
    pub(crate) fn take(&mut self, octets: usize) {
        debug_assert!(octets <= self.available());
        self.0 -= octets as i32;
    }
}

/// Octets that the peer may send, and those that were read and that it has not been told of.
///
/// They are announced when they are half of the window: fewer announcements cost less, and a peer that always has the other
/// half never stops while its octets take no longer than the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receive {
    left: i32,
    owed: u32,
}

impl Receive {
    pub(crate) const fn new(octets: u32) -> Self {
        Self { left: octets as i32, owed: 0 }
    }

    /// Octets came. `slack` is what the peer may send beyond the window while it has not heard of it.
    #[inline]
    pub(crate) fn take(&mut self, octets: usize, slack: u32) -> Result<(), Fault> {
        let left = i64::from(self.left) - octets as i64;
        if left < -i64::from(slack) {
            return Err(Fault::FLOW_CONTROL);
        }
        self.left = left as i32;
        Ok(())
    }

    /// Octets were read.
    #[inline]
    pub(crate) fn owe(&mut self, octets: u32) {
        self.owed += octets;
    }

    /// How many octets are to be announced now, 0 for none.
    #[inline]
    pub(crate) fn announce(&mut self, full: u32) -> u32 {
        if self.owed < (full / 2).max(1) {
            return 0;
        }
        self.left += self.owed as i32;
        std::mem::take(&mut self.owed)
    }

    /// What the peer knows that it may send.
    pub(crate) const fn left(self) -> i32 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9113 §6.9.1: a window never passes 2^31-1; §6.9.2: it may become negative.
    #[test]
    fn windows_grow_to_their_bound_and_fall_below_zero() {
        let window = Window::new(WINDOW_DEFAULT);
        assert_eq!(window.grow(i64::from(WINDOW_MAX - WINDOW_DEFAULT)).map(Window::available), Some(0x7fff_ffff));
        assert_eq!(window.grow(i64::from(WINDOW_MAX - WINDOW_DEFAULT) + 1), None);
        let negative = window.grow(-100_000).unwrap();
        assert_eq!((negative.available(), negative.grow(34_466).unwrap().available()), (0, 1));
    }

    #[test]
    fn what_was_read_is_announced_by_halves() {
        let mut receive = Receive::new(100);
        assert_eq!(receive.take(101, 0), Err(Fault::FLOW_CONTROL));
        assert_eq!((receive.take(100, 0), receive.take(1, 0)), (Ok(()), Err(Fault::FLOW_CONTROL)));
        receive.owe(49);
        assert_eq!((receive.announce(100), receive.left()), (0, 0));
        receive.owe(1);
        assert_eq!((receive.announce(100), receive.left()), (50, 50));
        assert_eq!(receive.take(60, 10), Ok(()));
        assert_eq!(receive.take(1, 10), Err(Fault::FLOW_CONTROL));
    }
}
