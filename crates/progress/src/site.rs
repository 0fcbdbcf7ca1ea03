//! Places in the source where threads meet, as spans that are found again without a lock.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::span::Span;

/// What threads do where they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Lock,
    Read,
    Write,
    Wait,
    Notify,
    Barrier,
    Send,
    Receive,
    Spawn,
    Join,
    Sleep,
    Park,
    Unpark,
}

impl Deed {
    fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Write => "write",
            Self::Wait => "wait",
            Self::Notify => "notify",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Receive => "recv",
            Self::Spawn => "spawn",
            Self::Join => "join",
            Self::Sleep => "sleep",
            Self::Park => "park",
            Self::Unpark => "unpark",
        }
    }
}

/// Places that are found without a lock; beyond, and where too many fall together, names are looked up.
const SLOTS: usize = 1024;
/// Slots that a place may be in.
const PROBES: usize = 8;

/// What is known of one place. Never emptied: a `Location` lives as long as the program.
struct Slot {
    /// The address of the `Location` and the deed; 0 while the slot is free.
    key: AtomicU64,
    /// The span's id and 1; 0 until it is known.
    span: AtomicU32,
}

static KNOWN: [Slot; SLOTS] = [const { Slot { key: AtomicU64::new(0), span: AtomicU32::new(0) } }; SLOTS];

/// The span of what is done at a place.
pub(crate) fn span(deed: Deed, place: &'static Location<'static>) -> Span {
    // A user's address leaves the upper 8 bits free.
    let key = (std::ptr::from_ref(place) as u64) << 8 | deed as u64;
    let first = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for probe in 0..PROBES as u64 {
        let slot = &KNOWN[(first + probe) as usize % SLOTS];
        // Relaxed: id and key are all there is to see.
        let found = match slot.key.load(Ordering::Relaxed) {
            0 => slot.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|other| other),
            found => found,
        };
        if found == 0 || found == key {
            return match slot.span.load(Ordering::Relaxed) {
                0 => {
                    let span = Span::at(deed.word(), place);
                    slot.span.store(span.id() + 1, Ordering::Relaxed);
                    span
                }
                id => Span::of(id - 1),
            };
        }
    }
    Span::at(deed.word(), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn a_place_has_a_span_for_each_thing_that_is_done_there() {
        let place = here();
        let lock = span(Deed::Lock, place);
        assert_eq!(lock, span(Deed::Lock, place));
        assert_ne!(lock, span(Deed::Send, place));
        assert_eq!(lock, Span::at("lock", place));
        assert_eq!(crate::spans()[lock.id() as usize], format!("lock {}:{}", file!(), place.line()));
    }

    #[test]
    fn a_full_table_is_right_too() {
        // Locations of our own make: as many as do not fit.
        let places: Vec<&'static Location<'static>> =
            (0..2 * SLOTS).map(|_| &*Box::leak(Box::new(*Location::caller()))).collect();
        let want = Span::at("park", places[0]);
        for place in places {
            assert_eq!(span(Deed::Park, place), want);
        }
    }
}
