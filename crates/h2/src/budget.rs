//! Limits on traffic that is cheap for a peer and expensive for us.

use std::time::Instant;

use causeway_message::WriteList;

use crate::error::ConnectionError;

/// Limits on frames that are cheap to send and expensive to handle. Exceeding one ends the connection with
/// ENHANCE_YOUR_CALM (RFC 9113 §10.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Burst of streams that the peer resets before their response begins, or causes us to reset; default 200. A
    /// request that is opened and cancelled costs us all of its work (CVE-2023-44487, and CVE-2025-8671 for resets that
    /// the peer provokes). Each complete response gives one back, so that some cancelled requests among many on a
    /// shared connection do not end it.
    pub resets: u32,
    /// Number of resets that each second adds; default 33.
    pub resets_per_second: u32,
    /// PING and SETTINGS acknowledgements that are still in the output; default 1000. Without this limit a peer that
    /// does not read makes us buffer them all (CVE-2019-9512, CVE-2019-9515).
    pub acks: u32,
    /// Burst of frames that carry neither a head nor content: PING, SETTINGS, PRIORITY, PRIORITY_UPDATE, WINDOW_UPDATE,
    /// RST_STREAM and unknown ones; default 2000. Each stream that is opened gives 16 of them back, each DATA frame
    /// sent 4. A WINDOW_UPDATE of 1 KiB or more is free if as many bytes of content were sent.
    pub control: u32,
    /// Number of such frames that each second adds; default 200.
    pub control_per_second: u32,
    /// Burst of DATA frames without content, except a stream's last; default 100 (CVE-2019-9518).
    pub empty_data: u32,
    /// Number of such frames that each second adds; default 10.
    pub empty_data_per_second: u32,
    /// CONTINUATION frames of one field block; default 8, or as many as the longest permitted block needs if these are
    /// more (CVE-2024-27316 and similar).
    pub continuations: u8,
    /// Entries of one SETTINGS frame; default 64. Fewer than a dozen settings are defined.
    pub settings_entries: u16,
    /// Streams not yet open whose priority is stored; default 16 (RFC 9218 §7.1). The oldest one is dropped; the
    /// connection does not end.
    pub early_priorities: u8,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            // More than a browser sends when a user leaves a page with a hundred images.
            resets: 200,
            resets_per_second: 33,
            acks: 1000,
            // Clients acknowledge and ping in proportion to traffic; streams and DATA frames give frames back.
            control: 2000,
            control_per_second: 200,
            empty_data: 100,
            empty_data_per_second: 10,
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
    filled: u64,
}

impl Bucket {
    const fn new(burst: u32) -> Self {
        Self { left: burst, filled: 0 }
    }

    #[inline]
    fn take(&mut self, burst: u32, per_second: u32, clock: &Clock) -> Result<(), ConnectionError> {
        if self.left == 0 {
            self.fill(burst, per_second, clock)?;
        }
        self.left -= 1;
        Ok(())
    }

    #[cold]
    fn fill(&mut self, burst: u32, per_second: u32, clock: &Clock) -> Result<(), ConnectionError> {
        let now = clock.milliseconds();
        let elapsed = now.saturating_sub(self.filled);
        // Refill up to the burst; without a whole token the budget is exceeded.
        let more = (elapsed.saturating_mul(u64::from(per_second)) / 1000).min(u64::from(burst)) as u32;
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
    fn milliseconds(&self) -> u64 {
        let (Some(began), Some(now)) = (self.began, self.now) else { return 0 };
        // 32 bits would be full after 49 days, and no bucket would be refilled any more.
        now.saturating_duration_since(began).as_millis() as u64
    }
}

/// Acknowledgements in the output, in two groups: those counted until the first group was written, and those since. The
/// output of a busy connection is never empty, so each group records the output's position after its last frame.
#[derive(Clone, Copy, Debug)]
struct PendingAcks {
    counts: [u32; 2],
    // The output's positions after the last one of each group.
    ends: [u64; 2],
}

impl PendingAcks {
    /// Counts the last frame of the output; returns the number of all.
    fn add(&mut self, out: &WriteList) -> u32 {
        let group = usize::from(self.counts[0] > 0);
        self.counts[group] += 1;
        self.ends[group] = out.advanced() + out.len() as u64;
        self.counts[0] + self.counts[1]
    }

    /// Subtracts those that were written: the peer has read them, or its socket buffer holds them.
    #[cold]
    fn subtract_written(&mut self, out: &WriteList) {
        let (written, end) = (out.advanced(), out.advanced() + out.len() as u64);
        for _ in 0..2 {
            // A position beyond the end is one in an earlier list, which was written completely before the connection
            // returned it.
            if self.ends[0] <= written || self.ends[0] > end {
                (self.counts, self.ends) = ([self.counts[1], 0], [self.ends[1], 0]);
            }
        }
    }
}

/// The remaining [`Budgets`] of a connection.
#[derive(Debug)]
pub(crate) struct BudgetUse {
    clock: Clock,
    resets: Bucket,
    control: Bucket,
    empty_data: Bucket,
    acks: PendingAcks,
    // Bytes of sent content that no WINDOW_UPDATE has announced yet, once for its stream and once for the connection.
    announceable: u64,
}

/// Number of control frames that each opened stream and each sent DATA frame give back.
const CONTROL_FOR_STREAM: u32 = 16;
const CONTROL_FOR_DATA: u32 = 4;

/// Increment of a WINDOW_UPDATE from which on sent content pays for it. Common peers announce content in steps of 4 KiB
/// or more, twice each. A peer may receive several full windows before it reads, and then announce all of them at once.
const ANNOUNCEMENT_MIN: u32 = 1024;

impl BudgetUse {
    pub(crate) const fn new(budgets: &Budgets) -> Self {
        Self {
            clock: Clock { began: None, now: None },
            resets: Bucket::new(budgets.resets),
            control: Bucket::new(budgets.control),
            empty_data: Bucket::new(budgets.empty_data),
            acks: PendingAcks { counts: [0; 2], ends: [0; 2] },
            announceable: 0,
        }
    }

    /// Begins the handling of received bytes. `out`: the output that has not been written.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, out: &WriteList) {
        self.clock.began.get_or_insert(now);
        self.clock.now = Some(now);
        if self.acks.counts[0] > 0 {
            self.acks.subtract_written(out);
        }
    }

    /// Counts a stream that the peer reset before its response began, or that was reset because of the peer.
    #[cold]
    pub(crate) fn count_reset(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.resets.take(budgets.resets, budgets.resets_per_second, &self.clock)
    }

    /// Gives one reset back: a response is complete.
    #[inline]
    pub(crate) fn restore_reset(&mut self, budgets: &Budgets) {
        self.resets.left = self.resets.left.saturating_add(1).min(budgets.resets);
    }

    /// Counts a frame without head or content.
    pub(crate) fn count_control(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.control.take(budgets.control, budgets.control_per_second, &self.clock)
    }

    /// Counts an acknowledgement, which is the last frame of the output.
    pub(crate) fn count_ack(&mut self, budgets: &Budgets, out: &WriteList) -> Result<(), ConnectionError> {
        if self.acks.add(out) > budgets.acks { Err(ConnectionError::CALM) } else { Ok(()) }
    }

    /// Counts a WINDOW_UPDATE.
    pub(crate) fn count_window_update(&mut self, by: u32, budgets: &Budgets) -> Result<(), ConnectionError> {
        match self.announceable.checked_sub(u64::from(by)) {
            Some(left) if by >= ANNOUNCEMENT_MIN => {
                self.announceable = left;
                Ok(())
            }
            _ => self.count_control(budgets),
        }
    }

    #[cold]
    pub(crate) fn count_empty_data(&mut self, budgets: &Budgets) -> Result<(), ConnectionError> {
        self.empty_data.take(budgets.empty_data, budgets.empty_data_per_second, &self.clock)
    }

    /// A stream was opened. Heads that open none give nothing back, as their number would be unlimited.
    #[inline]
    pub(crate) fn stream_opened(&mut self, budgets: &Budgets) {
        self.control.left = (self.control.left + CONTROL_FOR_STREAM).min(budgets.control);
    }

    #[inline]
    pub(crate) fn data_sent(&mut self, bytes: usize, budgets: &Budgets) {
        self.control.left = (self.control.left + CONTROL_FOR_DATA).min(budgets.control);
        // The peer announces each byte for the stream and for the connection.
        self.announceable += 2 * bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_runs_out_and_refills_over_time() {
        let budgets = Budgets { resets: 3, resets_per_second: 2, ..Budgets::default() };
        let (mut budget_use, start) = (BudgetUse::new(&budgets), Instant::now());
        let run = |budget_use: &mut BudgetUse, milliseconds| {
            budget_use.begin(start + Duration::from_millis(milliseconds), &WriteList::new());
            (0..100).take_while(|_| budget_use.count_reset(&budgets).is_ok()).count()
        };
        assert_eq!(run(&mut budget_use, 0), 3);
        assert_eq!(run(&mut budget_use, 499), 0);
        assert_eq!(run(&mut budget_use, 500), 1);
        assert_eq!(run(&mut budget_use, 1500), 2);
        assert_eq!(run(&mut budget_use, 1_000_000), 3, "never more than at once");
        // 2^32 ms are 49.7 days.
        let days = 86_400_000 * 50;
        assert_eq!(run(&mut budget_use, days), 3);
        assert_eq!(run(&mut budget_use, days + 1000), 2, "on a connection of any age");
    }
}
