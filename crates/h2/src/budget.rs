//! What a peer may do that costs us more than it.

use std::time::Instant;

use crate::fault::Fault;

/// Bounds on what is cheap to send and dear to handle. Beyond each the connection ends with ENHANCE_YOUR_CALM (RFC 9113 §10.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Streams that the peer resets, or makes us reset, at once; 200. A request begun and thrown away costs us all of it
    /// (CVE-2023-44487, and CVE-2025-8671 for resets that the peer provokes).
    pub resets: u32,
    /// How many more of them a second adds; 33.
    pub resets_a_second: u32,
    /// PING and SETTINGS whose answers the peer has not taken yet; 1000. Without it a peer that does not read makes us hold
    /// them all (CVE-2019-9512, CVE-2019-9515).
    pub answers: u32,
    /// Frames that carry neither a head nor content at once: PING, SETTINGS, PRIORITY, PRIORITY_UPDATE, WINDOW_UPDATE, RST_STREAM of
    /// an ended stream, unknown ones; 2000. Each head that the peer sends gives 16 of them back, each DATA frame that it is sent 4.
    pub control: u32,
    /// How many more of them a second adds; 200.
    pub control_a_second: u32,
    /// DATA frames without content, except a stream's last, at once; 100 (CVE-2019-9518).
    pub empty_data: u32,
    /// How many more of them a second adds; 10.
    pub empty_data_a_second: u32,
    /// CONTINUATION frames of one header block; 8 (CVE-2024-27316 and its like).
    pub continuations: u8,
    /// Entries of one SETTINGS frame; 64. There are fewer than a dozen settings.
    pub settings_entries: u16,
    /// DATA frames of a stream since its reader last had all of it; 1024, as long as their mean is below
    /// [`tiny_data_bytes`](Self::tiny_data_bytes) (CVE-2019-9517's cousin: what holding a frame costs does not depend on its length).
    pub tiny_data: u16,
    /// Below this mean of octets a frame, DATA counts as tiny; 64.
    pub tiny_data_bytes: u32,
    /// Streams not open yet whose priority is kept; 16 (RFC 9218 §7.1). The oldest gives way; nothing ends.
    pub early_priorities: u8,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            resets: 200,
            resets_a_second: 33,
            answers: 1000,
            control: 2000,
            control_a_second: 200,
            empty_data: 100,
            empty_data_a_second: 10,
            continuations: 8,
            settings_entries: 64,
            tiny_data: 1024,
            tiny_data_bytes: 64,
            early_priorities: 16,
        }
    }
}

/// So much at once, and so much more a second. Time is only looked at when it runs out.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    // When it was filled last, in milliseconds of the connection's life.
    filled: u32,
}

impl Bucket {
    const fn new(burst: u32) -> Self {
        Self { left: burst, filled: 0 }
    }

    #[inline]
    fn take(&mut self, burst: u32, a_second: u32, clock: &Clock) -> Result<(), Fault> {
        if self.left == 0 {
            self.fill(burst, a_second, clock)?;
        }
        self.left -= 1;
        Ok(())
    }

    #[cold]
    fn fill(&mut self, burst: u32, a_second: u32, clock: &Clock) -> Result<(), Fault> {
        let now = clock.milliseconds();
        let elapsed = u64::from(now.saturating_sub(self.filled));
        let more = (elapsed * u64::from(a_second) / 1000).min(u64::from(burst)) as u32;
        if more == 0 {
            return Err(Fault::CALM);
        }
        (self.left, self.filled) = (more, now);
        Ok(())
    }
}

/// The owner's time, and when it was first told.
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

/// What is left of a connection's [`Budgets`].
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Clock,
    resets: Bucket,
    control: Bucket,
    empty_data: Bucket,
    answers: u32,
}

/// What a head that the peer sends, and a DATA frame that it is sent, give back of the control budget.
const CONTROL_FOR_HEAD: u32 = 16;
const CONTROL_FOR_DATA: u32 = 4;

impl Meter {
    pub(crate) const fn new(budgets: &Budgets) -> Self {
        Self {
            clock: Clock { began: None, now: None },
            resets: Bucket::new(budgets.resets),
            control: Bucket::new(budgets.control),
            empty_data: Bucket::new(budgets.empty_data),
            answers: 0,
        }
    }

    /// Octets come; `taken`: all that was answered before is out of our hands.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, taken: bool) {
        self.clock.began.get_or_insert(now);
        self.clock.now = Some(now);
        if taken {
            self.answers = 0;
        }
    }

    /// A stream was reset, by the peer or because of it.
    #[cold]
    pub(crate) fn reset(&mut self, budgets: &Budgets) -> Result<(), Fault> {
        self.resets.take(budgets.resets, budgets.resets_a_second, &self.clock)
    }

    /// A frame that carries nothing.
    pub(crate) fn control(&mut self, budgets: &Budgets) -> Result<(), Fault> {
        self.control.take(budgets.control, budgets.control_a_second, &self.clock)
    }

    /// An answer to one of them.
    pub(crate) fn answer(&mut self, budgets: &Budgets) -> Result<(), Fault> {
        self.answers += 1;
        if self.answers > budgets.answers { Err(Fault::CALM) } else { Ok(()) }
    }

    #[cold]
    pub(crate) fn empty_data(&mut self, budgets: &Budgets) -> Result<(), Fault> {
        self.empty_data.take(budgets.empty_data, budgets.empty_data_a_second, &self.clock)
    }

    #[inline]
    pub(crate) fn head_came(&mut self, budgets: &Budgets) {
        self.control.left = (self.control.left + CONTROL_FOR_HEAD).min(budgets.control);
    }

    #[inline]
    pub(crate) fn data_went(&mut self, budgets: &Budgets) {
        self.control.left = (self.control.left + CONTROL_FOR_DATA).min(budgets.control);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_runs_out_and_fills_with_time() {
        let budgets = Budgets { resets: 3, resets_a_second: 2, ..Budgets::default() };
        let (mut meter, start) = (Meter::new(&budgets), Instant::now());
        let run = |meter: &mut Meter, milliseconds| {
            meter.begin(start + Duration::from_millis(milliseconds), true);
            (0..100).take_while(|_| meter.reset(&budgets).is_ok()).count()
        };
        assert_eq!(run(&mut meter, 0), 3);
        assert_eq!(run(&mut meter, 499), 0);
        assert_eq!(run(&mut meter, 500), 1);
        assert_eq!(run(&mut meter, 1500), 2);
        assert_eq!(run(&mut meter, 1_000_000), 3, "never more than at once");
    }
}
