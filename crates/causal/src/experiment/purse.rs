//! What may be lost, and what is.

/// A budget that fills with time: at any moment no more is spent than its part of the time that has passed.
#[derive(Clone, Debug)]
pub struct Purse {
    budget: f64,
    began: u64,
    spent: u64,
}

impl Purse {
    /// Empty, and filling with `budget` of the time from now on.
    #[must_use]
    pub fn new(budget: f64, now: u64) -> Self {
        Self { budget, began: now, spent: 0 }
    }

    /// What may be spent now, nanoseconds.
    #[must_use]
    pub fn left(&self, now: u64) -> u64 {
        let filled = self.budget * now.saturating_sub(self.began) as f64;
        (filled as u64).saturating_sub(self.spent)
    }

    /// How long until so much may be spent; for ever without a budget.
    #[must_use]
    pub fn until(&self, now: u64, needed: u64) -> u64 {
        let missing = needed.saturating_sub(self.left(now));
        if missing == 0 {
            0
        } else if self.budget > 0.0 {
            (missing as f64 / self.budget) as u64 + 1
        } else {
            u64::MAX
        }
    }

    /// So much was lost.
    pub fn pay(&mut self, spent: u64) {
        self.spent += spent;
    }

    /// All that was lost.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent
    }
}
