//! The budget of lost time, and the time lost.

/// A budget that accrues with time. Hooks and the profiler's own threads are paid when they occur, also beyond it; a
/// pause begins only if its expected cost fits into the rest.
#[derive(Clone, Debug)]
pub(super) struct TimeBudget {
    budget: f64,
    began: u64,
    /// All time spent, nanoseconds.
    pub(super) spent: u64,
}

impl TimeBudget {
    /// Makes an empty budget that accrues at `budget` of the time from now on.
    #[must_use]
    pub(super) fn new(budget: f64, now: u64) -> Self {
        Self { budget, began: now, spent: 0 }
    }

    /// Returns the time that may be spent now, nanoseconds.
    #[must_use]
    pub(super) fn available(&self, now: u64) -> u64 {
        let filled = self.budget * now.saturating_sub(self.began) as f64;
        (filled as u64).saturating_sub(self.spent)
    }

    /// Returns the time until `needed` may be spent, nanoseconds; `u64::MAX` without a budget.
    #[must_use]
    pub(super) fn time_until(&self, now: u64, needed: u64) -> u64 {
        let missing = needed.saturating_sub(self.available(now));
        if missing == 0 {
            0
        } else if self.budget > 0.0 {
            (missing as f64 / self.budget) as u64 + 1
        } else {
            u64::MAX
        }
    }

    /// Spends this much, nanoseconds. May exceed the budget.
    pub(super) fn spend(&mut self, spent: u64) {
        self.spent += spent;
    }
}
