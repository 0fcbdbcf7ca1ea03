//! What a peer may do that costs us and gives it nothing.

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
