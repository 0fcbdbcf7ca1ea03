//! Variables: texts in slots that were allotted at build.
//!
//! A slot says which exchange set it, so that nothing is cleared between two exchanges, however many slots a plan has.

use super::{KEPT_OCTETS_MAX, keep};

/// Slots that storage keeps room for, 12 octets each; a plan with more makes room again when one of those is set.
const KEPT_SLOTS_MAX: usize = 4 * KEPT_OCTETS_MAX / size_of::<Slot>();

/// A variable's slot, allotted at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VarId(pub(crate) u32);

/// A text that is worked out when a placeholder asks for it, allotted at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputedId(pub(crate) u32);

/// The end of a slot that has no text: its start is the number of a [`ComputedId`].
const COMPUTED: u32 = u32::MAX;

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
        (slot.exchange == self.exchange && slot.end != COMPUTED)
            .then(|| &self.text[slot.start as usize..slot.end as usize])
    }

    pub(super) fn set(&mut self, id: VarId, text: &[u8]) {
        let start = octets(self.text.len());
        self.text.extend_from_slice(text);
        *self.slot_mut(id) = Slot { exchange: self.exchange, start, end: octets(self.text.len()) };
    }

    /// Has it worked out when it is asked for, unless it is set.
    pub(super) fn compute(&mut self, id: VarId, computed: ComputedId) {
        let exchange = self.exchange;
        let slot = self.slot_mut(id);
        if slot.exchange != exchange {
            *slot = Slot { exchange, start: computed.0, end: COMPUTED };
        }
    }

    /// How it is worked out; `None` when it has a text or is unset.
    #[inline]
    pub(super) fn computed(&self, id: VarId) -> Option<ComputedId> {
        let slot = self.slots.get(id.0 as usize)?;
        (slot.exchange == self.exchange && slot.end == COMPUTED).then_some(ComputedId(slot.start))
    }

    fn slot_mut(&mut self, id: VarId) -> &mut Slot {
        let at = id.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Slot::default());
        }
        &mut self.slots[at]
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
            assert_eq!((variables.get(low), variables.get(high), variables.computed(low)), (None, None, None));
            variables.compute(low, ComputedId(7));
            assert_eq!((variables.get(low), variables.computed(low)), (None, Some(ComputedId(7))));
            variables.set(high, b"high");
            variables.set(low, b"");
            assert_eq!((variables.get(low), variables.get(high)), (Some(&b""[..]), Some(&b"high"[..])));
            variables.compute(low, ComputedId(8));
            assert_eq!(variables.computed(low), None);
            variables.unset(low);
            assert_eq!(variables.get(low), None);
            variables.renew();
            assert!(variables.slots.capacity() <= KEPT_SLOTS_MAX);
        }
    }
}
