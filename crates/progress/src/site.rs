//! Synchronisation sites: source locations where threads synchronise, as spans, with a lookup that takes no lock.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::span::Span;

/// The operation at a synchronisation site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncOp {
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

// The words below are the first word of a site's name in reports: `lock src/main.rs:12`.
impl SyncOp {
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

/// Sites in the lock-free table. Beyond, and when all probed slots are occupied, the name is looked up under a lock.
const SLOTS: usize = 1024;
/// Slots probed for one site.
const PROBES: usize = 8;

/// One site. Never cleared: a `Location` is `'static`.
struct SiteSlot {
    /// The address of the `Location`, shifted, with the operation in the low 8 bits; 0 while the slot is free.
    key: AtomicU64,
    /// The span's id plus 1; 0 until it is looked up.
    span: AtomicU32,
}

static KNOWN: [SiteSlot; SLOTS] = [const { SiteSlot { key: AtomicU64::new(0), span: AtomicU32::new(0) } }; SLOTS];

/// Returns the span of an operation at a source location.
pub(crate) fn span(op: SyncOp, call_site: &'static Location<'static>) -> Span {
    // A user-space address leaves the upper 8 bits free.
    let key = (std::ptr::from_ref(call_site) as u64) << 8 | op as u64;
    let first = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for probe in 0..PROBES as u64 {
        let slot = &KNOWN[(first + probe) as usize % SLOTS];
        // Relaxed: the key and the id are single words, and no other memory depends on them.
        let found = match slot.key.load(Ordering::Relaxed) {
            0 => slot.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|other| other),
            found => found,
        };
        if found == 0 || found == key {
            return match slot.span.load(Ordering::Relaxed) {
                // Threads may race here; they store equal ids.
                0 => {
                    let span = Span::at(op.word(), call_site);
                    slot.span.store(span.id() + 1, Ordering::Relaxed);
                    span
                }
                id => Span::from_id(id - 1),
            };
        }
    }
    Span::at(op.word(), call_site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn a_place_has_a_span_for_each_operation() {
        let call_site = here();
        let lock = span(SyncOp::Lock, call_site);
        assert_eq!(lock, span(SyncOp::Lock, call_site));
        assert_ne!(lock, span(SyncOp::Send, call_site));
        assert_eq!(lock, Span::at("lock", call_site));
        assert_eq!(crate::span_names()[lock.id() as usize], format!("lock {}:{}", file!(), call_site.line()));
    }

    #[test]
    fn a_full_table_is_correct() {
        // Leaked copies of a location, twice as many as the table holds.
        let places: Vec<&'static Location<'static>> =
            (0..2 * SLOTS).map(|_| &*Box::leak(Box::new(*Location::caller()))).collect();
        let want = Span::at("park", places[0]);
        for call_site in places {
            assert_eq!(span(SyncOp::Park, call_site), want);
        }
    }
}
