//! Whose turn it is to send (RFC 9218).
//!
//! Streams of a lower urgency go first. Within an urgency each incremental stream takes part by itself, and all others
//! together as one: whoever had its turn longest ago sends next. Among the others the lowest id goes, until it has nothing more to
//! send (RFC 9218 §10). An incremental stream sends [`INCREMENTAL_OCTETS`] a turn, the others four times that, so that
//! neither kind starves the other, and what is only useful whole is whole soon.

use causeway_message::List;

/// A turn of a stream that is useful in parts.
pub(crate) const INCREMENTAL_OCTETS: usize = 16 * 1024;
/// A turn of the streams that are only useful whole.
pub(crate) const WHOLE_OCTETS: usize = 64 * 1024;

/// What the peer wants of a stream (RFC 9218 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    pub(crate) urgency: u8,
    pub(crate) incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Reads a Priority field's value, a dictionary (RFC 8941 §3.2): the last of a key counts, what is not understood or out of
    /// range is as if it were not there (RFC 9218 §4).
    pub(crate) fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for element in List::new(value) {
            let member = element.split(|&octet| octet == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

/// The order in which streams had their turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    last: u32,
    // When the streams of an urgency that are not incremental last had theirs.
    whole: [u32; 8],
}

const TURN_BITS: u32 = 30;

impl Turns {
    /// The last turn: where a new stream queues up.
    pub(crate) const fn last(&self) -> u32 {
        self.last
    }

    /// Lower goes first. `turn` is when the stream had its last.
    #[inline]
    pub(crate) fn rank(&self, id: u32, priority: Priority, turn: u32) -> u64 {
        let turn = if priority.incremental { turn } else { self.whole[usize::from(priority.urgency & 7)] };
        u64::from(priority.urgency) << 61 | u64::from(turn) << 31 | u64::from(id)
    }

    /// A stream has sent; answers the turn that it had. Turns that wrap, after a thousand million, only mix up the order once.
    #[inline]
    pub(crate) fn take(&mut self, priority: Priority) -> u32 {
        self.last = (self.last + 1) & ((1 << TURN_BITS) - 1);
        if !priority.incremental {
            self.whole[usize::from(priority.urgency & 7)] = self.last;
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9218 §4.1, §4.2, §4: defaults, and what is ignored.
    #[test]
    fn a_priority_field_is_a_dictionary() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?1,u=5", 5, true),
            ("i, i=?0", 3, false),
            ("u=1;x=2, i;q", 1, true),
            ("u=8, i=1", 3, false),
            ("u=-1", 3, false),
            ("u", 3, false),
            ("x=9, u=2", 2, false),
            ("u=2, u=4", 4, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, incremental }, "{value:?}");
        }
    }
}
