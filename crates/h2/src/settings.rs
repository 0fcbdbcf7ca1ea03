//! What both sides of a connection tell each other (RFC 9113 §6.5).

use crate::budget::Budgets;

/// What a peer is told, and held to. In octets where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Streams that the peer may have open at once; 128 (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams_max: u32,
    /// Content of one stream that may be under way unread; 1 MiB, at most 2^31-1 (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// Content of all streams together that may be under way unread; 2 MiB, at least 65 535, at most 2^31-1.
    pub connection_window: u32,
    /// The peer's HPACK table; 4096 (SETTINGS_HEADER_TABLE_SIZE).
    pub header_table_bytes: u32,
    /// Our own HPACK table, at most what the peer allows; 4096.
    pub encoder_table_bytes: u32,
    /// A decoded head, each field counted with 32 octets more (RFC 9113 §6.5.2); 32 KiB (SETTINGS_MAX_HEADER_LIST_SIZE).
    pub head_bytes_max: u32,
    /// Fields in a head, and in a trailer section; 100. A Cookie in pieces is one.
    pub fields_max: u16,
    /// The request target; 8 KiB.
    pub target_bytes_max: u32,
    /// A decoded trailer section, counted as a head; 8 KiB.
    pub trailers_bytes_max: u32,
    /// CONNECT may name a protocol (RFC 8441); true (SETTINGS_ENABLE_CONNECT_PROTOCOL).
    pub extended_connect: bool,
    /// What is bounded beside that.
    pub budgets: Budgets,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streams_max: 128,
            stream_window: 1024 * 1024,
            connection_window: 2 * 1024 * 1024,
            header_table_bytes: 4096,
            encoder_table_bytes: 4096,
            head_bytes_max: 32 * 1024,
            fields_max: 100,
            target_bytes_max: 8 * 1024,
            trailers_bytes_max: 8 * 1024,
            extended_connect: true,
            budgets: Budgets::default(),
        }
    }
}
