//! Variables: texts in slots that are allotted at build.
//!
//! A slot holds the number of the exchange that set it. Advancing the number invalidates all slots, so that recycling
//! costs no time per slot.

use super::{KEPT_BYTES_MAX, clear_and_shrink};

/// Slots that recycled storage keeps, 16 bytes each. A plan with more slots allocates again when one of the higher
/// slots is set.
const KEPT_SLOTS_MAX: usize = 4 * KEPT_BYTES_MAX / size_of::<VariableSlot>();

/// The id of a variable's slot, allotted at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VarId(pub(crate) u32);

/// The id of a text that is computed each time a placeholder is rendered, allotted at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputedId(pub(crate) u32);

/// The type of a placeholder's value in Caddy. Its text is the same for all types; expressions and access records
/// distinguish them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// No value; the text is empty.
    Null,
    /// A text.
    #[default]
    Text,
    /// A number or a boolean, as in JSON.
    Scalar,
    /// A duration in Go's form, for example `1.5s`.
    Duration,
}

/// The `end` of a slot with a computed text; `start` is then the [`ComputedId`].
const COMPUTED: u32 = u32::MAX;

/// The range of a variable's text, and the exchange that set it.
#[derive(Debug, Clone, Copy, Default)]
struct VariableSlot {
    exchange: u32,
    start: u32,
    end: u32,
    kind: ValueKind,
}

pub(super) struct Variables {
    /// Number of the current exchange on this storage, from 1. Slots with another number are unset.
    exchange: u32,
    slots: Vec<VariableSlot>,
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

    /// Returns the type of a variable with a text.
    #[inline]
    pub(super) fn kind(&self, id: VarId) -> Option<ValueKind> {
        let slot = self.slots.get(id.0 as usize)?;
        (slot.exchange == self.exchange && slot.end != COMPUTED).then_some(slot.kind)
    }

    pub(super) fn set(&mut self, id: VarId, text: &[u8], kind: ValueKind) {
        // Append only: an overwritten text stays in the buffer until the exchange ends.
        let start = bytes(self.text.len());
        self.text.extend_from_slice(text);
        *self.slot_mut(id) = VariableSlot { exchange: self.exchange, start, end: bytes(self.text.len()), kind };
    }

    /// Sets a variable to a computed text, unless the variable is set already.
    pub(super) fn set_computed(&mut self, id: VarId, computed: ComputedId) {
        let exchange = self.exchange;
        let slot = self.slot_mut(id);
        // A text that a handler has set takes precedence.
        if slot.exchange != exchange {
            *slot = VariableSlot { exchange, start: computed.0, end: COMPUTED, kind: ValueKind::Text };
        }
    }

    /// Returns how the variable is computed; `None` if it has a text or is unset.
    #[inline]
    pub(super) fn computed(&self, id: VarId) -> Option<ComputedId> {
        let slot = self.slots.get(id.0 as usize)?;
        (slot.exchange == self.exchange && slot.end == COMPUTED).then_some(ComputedId(slot.start))
    }

    fn slot_mut(&mut self, id: VarId) -> &mut VariableSlot {
        let at = id.0 as usize;
        if self.slots.len() <= at {
            // On first use only: an exchange that sets no variable allocates no slots.
            self.slots.resize(at + 1, VariableSlot::default());
        }
        &mut self.slots[at]
    }

    pub(super) fn unset(&mut self, id: VarId) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = VariableSlot::default();
        }
    }

    /// Unsets all variables for the next exchange. O(1), except when the exchange number overflows.
    pub(super) fn reset(&mut self) {
        let Self { exchange, slots, text } = self;
        *exchange = exchange.checked_add(1).unwrap_or_else(|| {
            // A reused number would make old slots valid again: clear them and start over.
            slots.clear();
            1
        });
        if slots.capacity() > KEPT_SLOTS_MAX {
            slots.truncate(KEPT_SLOTS_MAX);
            slots.shrink_to(KEPT_SLOTS_MAX);
        }
        clear_and_shrink(text);
    }
}

fn bytes(len: usize) -> u32 {
    u32::try_from(len).expect("a context's text is far below 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_is_left_for_the_next_exchange() {
        let mut variables = Variables { exchange: u32::MAX - 1, ..Variables::default() };
        let (low, high) = (VarId(0), VarId(KEPT_SLOTS_MAX as u32 + 5));
        for _ in 0..4 {
            assert_eq!((variables.get(low), variables.get(high), variables.computed(low)), (None, None, None));
            variables.set_computed(low, ComputedId(7));
            assert_eq!((variables.get(low), variables.computed(low)), (None, Some(ComputedId(7))));
            variables.set(high, b"high", ValueKind::Text);
            variables.set(low, b"", ValueKind::Scalar);
            assert_eq!((variables.kind(low), variables.kind(high)), (Some(ValueKind::Scalar), Some(ValueKind::Text)));
            assert_eq!((variables.get(low), variables.get(high)), (Some(&b""[..]), Some(&b"high"[..])));
            variables.set_computed(low, ComputedId(8));
            assert_eq!(variables.computed(low), None);
            variables.unset(low);
            assert_eq!((variables.get(low), variables.kind(low)), (None, None));
            variables.reset();
            assert!(variables.slots.capacity() <= KEPT_SLOTS_MAX);
        }
    }
}
