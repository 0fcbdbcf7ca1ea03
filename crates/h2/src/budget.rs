//! Limits on traffic that is cheap for a peer and expensive for us.

use std::time::Instant;

use crate::error::ConnectionError;

/// Limits on frames that are cheap to send and expensive to handle. Exceeding one ends the connection with
/// ENHANCE_YOUR_CALM (RFC 9113 §10.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Burst of streams that the peer resets before their response begins, or causes us to reset; 200. A request that
    /// is opened and cancelled costs us all of its work (CVE-2023-44487, and CVE-2025-8671 for resets that the peer
    /// provokes). Each complete response gives one back, so that some cancelled requests among many on a shared
    /// connection do not end it.
    pub resets: u32,
    /// Number of resets that each second adds; 33.
    pub resets_a_second: u32,
    /// PING and SETTINGS acknowledgements that are still in the output; 1000. Without this limit a peer that does not
    /// read makes us buffer them all (CVE-2019-9512, CVE-2019-9515).
    pub answers: u32,
    /// Burst of frames that carry neither a head nor content: PING, SETTINGS, PRIORITY, PRIORITY_UPDATE,
    /// WINDOW_UPDATE, RST_STREAM, unknown ones, and HEADERS of a stream that was reset; 2000. Each head received gives 16 of them back,
    /// each DATA frame sent 4.
    pub control: u32,
    /// Number of such frames that each second adds; 200.
    pub control_a_second: u32,
    /// Burst of DATA frames without content, except a stream's last; 100 (CVE-2019-9518).
    pub empty_data: u32,
    /// Number of such frames that each second adds; 10.
    pub empty_data_a_second: u32,
    /// CONTINUATION frames of one header block; 8 (CVE-2024-27316 and similar).
    pub continuations: u8,
    /// Entries of one SETTINGS frame; 64. Fewer than a dozen settings are defined.
    pub settings_entries: u16,
    /// Streams not yet open whose priority is stored; 16 (RFC 9218 §7.1). The oldest one is dropped; the connection
    /// does not end.
    pub early_priorities: u8,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            // More than a browser sends when a user leaves a page with a hundred images.
            resets: 200,
            resets_a_second: 33,
            answers: 1000,
            // Clients acknowledge, ping and update windows in proportion to traffic; heads and DATA frames give frames back.
            control: 2000,
            control_a_second: 200,
            empty_data: 100,
            empty_data_a_second: 10,
            continuations: 8,
            settings_entries: 64,
            early_priorities: 16,
        }
    }
}

/// A token bucket: a burst, and a rate per second. The clock is read only when the bucket is empty.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    // Time of the last refill, in milliseconds since the connection began.
    filled: u32,
}

impl Bucket {
    const fn new(burst: u32) -> Self {
        Self { left: burst, filled: 0 }
    }

    #[inline]
    fn take(&mut self, burst: u32, a_second: u32, clock: &Clock) -> Result<(), ConnectionError> {
        if self.left == 0 {
            self.fill(burst, a_second, clock)?;
        }
        self.left -= 1;
        Ok(())
    }

    #[cold]
    fn fill(&mut self, burst: u32, a_second: u32, clock: &Clock) -> Result<(), ConnectionError> {
        let now = clock.milliseconds();
        let elapsed = u64::from(now.saturating_sub(self.filled));
        // Refill up to the burst; without a whole token the budget is exceeded.
        let more = (elapsed * u64::from(a_second) / 1000).min(u64::from(burst)) as u32;
        if more == 0 {
            return Err(ConnectionError::CALM);
        }
        (self.left, self.filled) = (more, now);
        Ok(())
    }
}

/// The driver's time, and the first time that it passed in.
#[derive(Clone, Copy, Debug)]
struct Clock {
    began: Option<Instant>,
    now: Option<Instant>,
}

impl Clock {
    fn milliseconds(&self) -> u32 {
        let (Some(began), Some(now)) = (self.began, self.now) else { return 0 };
        u32::try_from(now.saturating_duration_since(began).as_millis()).unwrap_or(u32::MAX)
    }
}

/// The remaining [`Budgets`] of a connection.
#[derive(Debug)]
pub(crate) struct BudgetUse {
    clock: Clock,
    resets: Bucket,
    control: Bucket,
    empty_data: Bucket,
    answers: u32,
}

/// Number of control frames that each received head and each sent DATA frame give back.
const CONTROL_FOR_HEAD: u32 = 16;
const CONTROL_FOR_DATA: u32 = 4;

impl BudgetUse {
    pub(crate) const fn new(budgets: &Budgets) -> Self {
        Self {
            clock: Clock { began: None, now: None },
            resets: Bucket::new(budgets.resets),
            control: Bucket::new(budgets.control),
            empty_data: Bucket::new(budgets.empty_data),
            answers: 0,
        }
    }

    /// Begins the handling of received bytes. `taken`: all earlier output has been written.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, taken: bool) {
        self.clock.began.get_or_insert(now);
        self.clock.now = Some(now);
        if taken {
            // The output was written, so the peer has read the acknowledgements or its socket buffer holds them.
            self.answers = 0;
        }
    }

    /// Counts a stream that the peer reset before its response began, or that was reset because of the peer.
    #[cold]
    pub(crate) fn reset(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.resets.take(budgets.resets, budgets.resets_a_second, &self.clock)
    }

    /// Gives one reset back: a response is complete.
    #[inline]
    pub(crate) fn completed(&mut self, budgets: &Budgets) {
        self.resets.left = self.resets.left.saturating_add(1).min(budgets.resets);
    }

    /// Counts a frame without head or content.
    pub(crate) fn control(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.control.take(budgets.control, budgets.control_a_second, &self.clock)
    }

    /// Counts an acknowledgement to send.
    pub(crate) fn answer(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.answers += 1;
        if self.answers > budgets.answers { Err(ConnectionError::CALM) } else { Ok(()) }
    }

    #[cold]
    pub(crate) fn empty_data(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.empty_data.take(budgets.empty_data, budgets.empty_data_a_second, &self.clock)
    }

    #[inline]
    pub(crate) fn head_received(&mut self, budgets: &Budgets) {
        self.control.left = (self.control.left + CONTROL_FOR_HEAD).min(budgets.control);
    }

    #[inline]
    pub(crate) fn data_sent(&mut self, budgets: &Budgets) {
        self.control.left = (self.control.left + CONTROL_FOR_DATA).min(budgets.control);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_runs_out_and_refills_over_time() {
        let budgets = Budgets { resets: 3, resets_a_second: 2, ..Budgets::default() };
        let (mut budget_use, start) = (BudgetUse::new(&budgets), Instant::now());
        let run = |budget_use: &mut BudgetUse, milliseconds| {
            budget_use.begin(start + Duration::from_millis(milliseconds), true);
            (0..100).take_while(|_| budget_use.reset(&budgets).is_ok()).count()
        };
        assert_eq!(run(&mut budget_use, 0), 3);
        assert_eq!(run(&mut budget_use, 499), 0);
        assert_eq!(run(&mut budget_use, 500), 1);
        assert_eq!(run(&mut budget_use, 1500), 2);
        assert_eq!(run(&mut budget_use, 1_000_000), 3, "never more than at once");
    }
}
