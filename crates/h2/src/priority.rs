//! The order in which streams send (RFC 9218).
//!
//! Streams of a lower urgency value send first. Within an urgency, each incremental stream takes turns on its own,
//! and all other streams take turns together as one group; the least recent turn is next. Within the group the lowest
//! id sends until it has no more bytes (RFC 9218 §10). An incremental stream sends [`INCREMENTAL_BYTES`] per turn,
//! the group four times that. So neither kind starves the other, and a response that is useful only as a whole
//! completes early.

use causeway_message::List;

/// Bytes per turn of an incremental stream.
pub(crate) const INCREMENTAL_BYTES: usize = 16 * 1024;
/// Bytes per turn of the group of streams that are not incremental.
pub(crate) const WHOLE_BYTES: usize = 64 * 1024;

/// The priority of a stream that the peer requests (RFC 9218 §4).
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
    /// Parses a Priority field's value, a dictionary (RFC 8941 §3.2). The last value of a key counts; unknown and
    /// out-of-range members are ignored (RFC 9218 §4).
    pub(crate) fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for element in List::new(value) {
            let member = element.split(|&byte| byte == b';').next().unwrap_or_default();
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

/// The turns that streams have taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rotation {
    last: u32,
    // For each urgency, the last turn of its group of streams that are not incremental.
    whole: [u32; 8],
}

const TURN_BITS: u32 = 30;

impl Rotation {
    /// The last turn, which a new stream starts with.
    pub(crate) const fn last(&self) -> u32 {
        self.last
    }

    /// Returns the sort key of a stream; the lowest sends first. `turn` is the stream's last turn.
    #[inline]
    pub(crate) fn rank(&self, id: u32, priority: Priority, turn: u32) -> u64 {
        let turn = if priority.incremental { turn } else { self.whole[usize::from(priority.urgency & 7)] };
        // Three fields in one key: 3 bits of urgency, 30 of turn, 31 of id.
        u64::from(priority.urgency) << 61 | u64::from(turn) << 31 | u64::from(id)
    }

    /// Counts a turn and returns its number. The number wraps after 2^30 turns, which disturbs the order once.
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

    // RFC 9218 §4.1, §4.2, §4: defaults, and ignored members.
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
