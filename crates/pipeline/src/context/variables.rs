//! Variables: texts in slots that were allotted at build.
//!
//! A slot says which exchange set it, so that nothing is cleared between two exchanges, however many slots a plan has.

use super::{KEPT_OCTETS_MAX, keep};

/// Slots that storage keeps room for, 12 octets each; a plan with more makes room again when one of those is set.
const KEPT_SLOTS_MAX: usize = 4 * KEPT_OCTETS_MAX / size_of::<Slot>();

/// A variable's slot, allotted at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VarId(pub(crate) u32);

/// Where a variable's text lies, and for which exchange.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    exchange: u32,
    start: u32,
    end: u32,
}

pub(super) struct Variables {
    /// Which exchange of this storage it is, from 1; what a slot says of another one is void.
    exchange: u32,
    slots: Vec<Slot>,
    text: Vec<u8>,
}

impl Default for Variables {
    fn default() -> Self {
        Self { exchange: 1, slots: Vec::new(), text: Vec::new() }
    }
}

impl Variables {
    #[inline]
    pub(super) fn get(&self, id: VarId) -> Option<&[u8]> {
        let slot = self.slots.get(id.0 as usize)?;
        (slot.exchange == self.exchange).then(|| &self.text[slot.start as usize..slot.end as usize])
    }

    pub(super) fn set(&mut self, id: VarId, text: &[u8]) {
        let start = octets(self.text.len());
        self.text.extend_from_slice(text);
        let slot = Slot { exchange: self.exchange, start, end: octets(self.text.len()) };
        let at = id.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Slot::default());
        }
        self.slots[at] = slot;
    }

    pub(super) fn unset(&mut self, id: VarId) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = Slot::default();
        }
    }

    /// For the next exchange.
    pub(super) fn renew(&mut self) {
        self.exchange = self.exchange.checked_add(1).unwrap_or_else(|| {
            self.slots.clear();
            1
        });
        if self.slots.capacity() > KEPT_SLOTS_MAX {
            self.slots.truncate(KEPT_SLOTS_MAX);
            self.slots.shrink_to(KEPT_SLOTS_MAX);
        }
        keep(&mut self.text);
    }
}

fn octets(len: usize) -> u32 {
    u32::try_from(len).expect("a context's text is far below 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_for_the_next_exchange() {
        let mut variables = Variables { exchange: u32::MAX - 1, ..Variables::default() };
        let (low, high) = (VarId(0), VarId(KEPT_SLOTS_MAX as u32 + 5));
        for _ in 0..4 {
            assert_eq!((variables.get(low), variables.get(high)), (None, None));
            variables.set(high, b"high");
            variables.set(low, b"");
            assert_eq!((variables.get(low), variables.get(high)), (Some(&b""[..]), Some(&b"high"[..])));
            variables.unset(low);
            assert_eq!(variables.get(low), None);
            variables.renew();
            assert!(variables.slots.capacity() <= KEPT_SLOTS_MAX);
        }
    }
}
