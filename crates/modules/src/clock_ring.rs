//! CLOCK: the slots of a cache, and the hand that selects the slot to evict.

/// A slot with a mark that a reader of its value sets.
pub(crate) trait ClockSlot {
    /// Clears the mark, and returns whether it was set.
    fn take_used(&mut self) -> bool;
}

/// Slots and the hand that passes over them.
#[derive(Debug)]
pub(crate) struct ClockRing<S> {
    /// The caller adds slots at the end, and removes them with `swap_remove`. New slots are unused, so that values
    /// requested once are evicted before values requested again.
    pub(crate) slots: Vec<S>,
    hand: usize,
}

impl<S> ClockRing<S> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), hand: 0 }
    }
}

impl<S> Default for ClockRing<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: ClockSlot> ClockRing<S> {
    /// Returns the index of the next slot, other than those that `is_kept` selects, that was not used since the hand
    /// last passed it. The caller removes this slot. `None` if the hand has reached the end of the slots: the next call
    /// begins another revolution.
    pub(crate) fn find_unused(&mut self, is_kept: impl Fn(&S) -> bool) -> Option<usize> {
        while let Some(slot) = self.slots.get_mut(self.hand) {
            let at = self.hand;
            // Also past the slot that is removed: the last one, which is the latest, moves there and stays for this
            // revolution.
            self.hand += 1;
            if !is_kept(slot) && !slot.take_used() {
                return Some(at);
            }
        }
        self.hand = 0;
        None
    }
}
