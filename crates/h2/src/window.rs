//! Flow control (RFC 9113 §5.2, §6.9).

use crate::error::ConnectionError;

/// The largest window (RFC 9113 §6.9.1).
pub(crate) const WINDOW_MAX: u32 = 0x7fff_ffff;
/// The initial window, before SETTINGS or WINDOW_UPDATE change it (RFC 9113 §6.9.2).
pub(crate) const WINDOW_DEFAULT: u32 = 65_535;

/// Most bytes of a stream that are read before they are announced.
pub(crate) const STREAM_STEP_MAX: u32 = 128 * 1024;

/// Number of bytes that we may send; negative after a SETTINGS change (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(i32);

impl Window {
    pub(crate) const fn new(bytes: u32) -> Self {
        Self(bytes as i32)
    }

    /// Adds a WINDOW_UPDATE increment, or the difference of a SETTINGS change. `None` when the sum exceeds 2^31-1
    /// (RFC 9113 §6.9.1).
    #[must_use]
    pub(crate) fn grow(self, by: i64) -> Option<Self> {
        i32::try_from(i64::from(self.0) + by).ok().map(Self)
    }

    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Consumes `bytes`, which must be [available](Self::available).
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as i32;
    }
}

/// A receive window: the bytes that the peer may send, and the bytes read but not yet announced with WINDOW_UPDATE.
///
/// An announcement is sent when it reaches a quarter of the window, or a step if that is less. Fewer announcements cost
/// less. More of them let a distant peer send more: in each round trip it can send the window less the part that is
/// read but not announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveWindow {
    left: i32,
    unannounced: u32,
}

impl ReceiveWindow {
    pub(crate) const fn new(bytes: u32) -> Self {
        Self { left: bytes as i32, unannounced: 0 }
    }

    /// Counts received bytes. `slack` is the number of bytes that the peer may send beyond the window before it has
    /// received our SETTINGS.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize, slack: u32) -> Result<(), ConnectionError> {
        let left = i64::from(self.left) - bytes as i64;
        // RFC 9113 §6.9: a frame without content is permitted even if no window is left.
        if bytes > 0 && left < -i64::from(slack) {
            return Err(ConnectionError::FLOW_CONTROL);
        }
        self.left = left as i32;
        Ok(())
    }

    /// Counts bytes that were read and may be announced.
    #[inline]
    pub(crate) fn add_read(&mut self, bytes: u32) {
        self.unannounced += bytes;
    }

    /// Returns the number of bytes to announce now, or 0, and counts them as announced. `full` is the window's size.
    #[inline]
    pub(crate) fn announce(&mut self, full: u32, step_max: u32) -> u32 {
        // At least 1, so that a window of one byte is announced too.
        if self.unannounced < (full / 4).clamp(1, step_max) {
            return 0;
        }
        self.left += self.unannounced as i32;
        std::mem::take(&mut self.unannounced)
    }

    /// The number of bytes that the peer may send by its own count.
    pub(crate) const fn left(self) -> i32 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9113 §6.9.1: a window never exceeds 2^31-1; §6.9.2: it may become negative.
    #[test]
    fn windows_grow_to_their_bound_and_fall_below_zero() {
        let window = Window::new(WINDOW_DEFAULT);
        assert_eq!(window.grow(i64::from(WINDOW_MAX - WINDOW_DEFAULT)).map(Window::available), Some(0x7fff_ffff));
        assert_eq!(window.grow(i64::from(WINDOW_MAX - WINDOW_DEFAULT) + 1), None);
        let negative = window.grow(-100_000).unwrap();
        assert_eq!((negative.available(), negative.grow(34_466).unwrap().available()), (0, 1));
    }

    #[test]
    fn window_updates_are_sent_for_a_quarter_of_a_window() {
        let mut receive = ReceiveWindow::new(100);
        assert_eq!(receive.take(101, 0), Err(ConnectionError::FLOW_CONTROL));
        assert_eq!((receive.take(100, 0), receive.take(1, 0)), (Ok(()), Err(ConnectionError::FLOW_CONTROL)));
        receive.add_read(24);
        assert_eq!((receive.announce(100, STREAM_STEP_MAX), receive.left()), (0, 0));
        receive.add_read(1);
        assert_eq!((receive.announce(100, STREAM_STEP_MAX), receive.left()), (25, 25));
        assert_eq!(receive.take(35, 10), Ok(()));
        assert_eq!(receive.take(1, 10), Err(ConnectionError::FLOW_CONTROL));
        assert_eq!((receive.left(), receive.take(0, 0)), (-10, Ok(())), "no content");
        // A large window.
        let mut receive = ReceiveWindow::new(1 << 20);
        receive.add_read(STREAM_STEP_MAX - 1);
        assert_eq!(receive.announce(1 << 20, STREAM_STEP_MAX), 0);
        receive.add_read(1);
        assert_eq!(receive.announce(1 << 20, STREAM_STEP_MAX), STREAM_STEP_MAX);
    }
}
