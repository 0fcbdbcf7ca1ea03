//! The SETTINGS of both sides (RFC 9113 §6.5).

use crate::budget::Budgets;
use crate::connection::Role;
use crate::error::ConnectionError;
use crate::frame::PAYLOAD_MAX;
use crate::hpack::{TABLE_BYTES_DEFAULT, TABLE_BYTES_MAX};
use crate::window::{WINDOW_DEFAULT, WINDOW_MAX};

/// The settings that a peer is sent and held to. In bytes unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Streams that the peer may have open at once; 128 (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams_max: u32,
    /// Unread content that one stream may have in flight; 1 MiB, at most 2^31-1 (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// Unread content that all streams together may have in flight; 2 MiB, at least 65 535, at most 2^31-1.
    pub connection_window: u32,
    /// Size of the peer's HPACK table; 4096, at most 65 535 (SETTINGS_HEADER_TABLE_SIZE).
    pub header_table_bytes: u32,
    /// Size of our own HPACK table, within the peer's limit; 4096, at most 65 535.
    pub encoder_table_bytes: u32,
    /// Size of a decoded head, with 32 bytes added per field (RFC 9113 §6.5.2); 32 KiB
    /// (SETTINGS_MAX_HEADER_LIST_SIZE).
    pub head_bytes_max: u32,
    /// Size of the decoded heads of all open streams, beyond which a new one is refused; 1 MiB. A compressed head can
    /// be a hundredth of its decoded size, so a client could fill much memory with few bytes.
    pub open_heads_bytes_max: u32,
    /// Number of fields in a head, and in a trailer section; 100. A Cookie that is split into pieces counts once.
    pub fields_max: u16,
    /// Length of the request target; 16 KiB.
    pub target_bytes_max: u32,
    /// Size of a decoded trailer section, counted as a head; 8 KiB.
    pub trailers_bytes_max: u32,
    /// Whether CONNECT may name a protocol (RFC 8441); true (SETTINGS_ENABLE_CONNECT_PROTOCOL).
    pub extended_connect: bool,
    /// Bounds on abusive traffic.
    pub budgets: Budgets,
}

impl Settings {
    /// The settings for the client's role. A server may reset any number of streams, since each reset costs only
    /// itself, and a stream of short messages must not end those of others.
    #[must_use]
    pub fn client() -> Self {
        let budgets = Budgets {
            resets: u32::MAX,
            resets_per_second: u32::MAX,
            empty_data: 10_000,
            empty_data_per_second: 1000,
            ..Budgets::default()
        };
        // Streams of one connection belong to many readers, some of them slow. Their unread bytes must not exhaust
        // the shared connection window.
        Self { budgets, stream_window: 256 * 1024, connection_window: 1 << 30, ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streams_max: 128,
            stream_window: 1024 * 1024,
            connection_window: 2 * 1024 * 1024,
            header_table_bytes: TABLE_BYTES_DEFAULT,
            encoder_table_bytes: TABLE_BYTES_DEFAULT,
            head_bytes_max: 32 * 1024,
            open_heads_bytes_max: 1024 * 1024,
            fields_max: 100,
            target_bytes_max: 16 * 1024,
            trailers_bytes_max: 8 * 1024,
            extended_connect: true,
            budgets: Budgets::default(),
        }
    }
}

mod id {
    pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(super) const ENABLE_PUSH: u16 = 0x2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441 §3.
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218 §2.1.
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

impl Settings {
    /// The bound on the peer's table: the value that is announced is also the decoder's size.
    pub(crate) fn decoder_table_bytes(&self) -> u32 {
        self.header_table_bytes.min(TABLE_BYTES_MAX)
    }

    /// Number of encoded bytes of a field block: the longest head or trailer section, and one frame more, so that one
    /// slightly above its limit still gets an error response.
    pub(crate) fn block_bytes_max(&self) -> usize {
        self.head_bytes_max.max(self.trailers_bytes_max) as usize + PAYLOAD_MAX
    }

    /// Number of CONTINUATION frames of one field block: the budget, or as many as the longest block needs.
    pub(crate) fn continuations_max(&self) -> u32 {
        u32::from(self.budgets.continuations).max((self.block_bytes_max() / PAYLOAD_MAX) as u32 + 1)
    }

    /// Number of streams whose unread content fits the connection's window together, at least 1.
    pub(crate) fn streams_in_window(&self) -> usize {
        (self.connection_window / self.stream_window.max(1)).max(1) as usize
    }

    /// Returns our SETTINGS entries, and the number of them that are used.
    pub(crate) fn entries(&self, role: Role) -> ([(u16, u32); 6], usize) {
        let is_server = role == Role::Server;
        let mut entries = [(0, 0); 6];
        let mut count = 0;
        let mut put = |is_sent: bool, setting, value| {
            if is_sent {
                entries[count] = (setting, value);
                count += 1;
            }
        };
        let table_bytes = self.decoder_table_bytes();
        put(table_bytes != TABLE_BYTES_DEFAULT, id::HEADER_TABLE_SIZE, table_bytes);
        // A client that accepted push would have to handle promised streams.
        put(!is_server, id::ENABLE_PUSH, 0);
        put(is_server, id::MAX_CONCURRENT_STREAMS, self.streams_max);
        put(true, id::INITIAL_WINDOW_SIZE, self.stream_window);
        put(true, id::MAX_HEADER_LIST_SIZE, self.head_bytes_max);
        put(is_server && self.extended_connect, id::ENABLE_CONNECT_PROTOCOL, 1);
        // RFC 9218 §2.1: the server ignores the priorities of RFC 7540.
        put(is_server, id::NO_RFC7540_PRIORITIES, 1);
        (entries, count)
    }
}

/// The peer's SETTINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerSettings {
    pub(crate) table_bytes: u32,
    /// The smallest table size that the peer set since the encoder last applied one.
    pub(crate) table_bytes_low: u32,
    pub(crate) initial_window: u32,
    pub(crate) streams_max: u32,
    /// The largest frame payload that we send.
    pub(crate) frame_max: u32,
    pub(crate) extended_connect: bool,
}

/// Our own bound on the frames that we send, so that one stream does not block the others for long.
const FRAME_MAX: u32 = 64 * 1024;

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            table_bytes: TABLE_BYTES_DEFAULT,
            table_bytes_low: TABLE_BYTES_DEFAULT,
            initial_window: WINDOW_DEFAULT,
            streams_max: u32::MAX,
            frame_max: 16_384,
            extended_connect: false,
        }
    }
}

impl PeerSettings {
    /// Applies the payload of a SETTINGS frame of a server, or of a client (RFC 9113 §6.5.2). Entries are applied in
    /// order, so that the last of a kind counts; unknown ones are ignored.
    pub(crate) fn apply(
        &mut self,
        payload: &[u8],
        entries_max: u16,
        is_of_server: bool,
    ) -> Result<(), ConnectionError> {
        let (entries, []) = payload.as_chunks::<6>() else { return Err(ConnectionError::FRAME_SIZE) };
        if entries.len() > usize::from(entries_max) {
            return Err(ConnectionError::CALM);
        }
        for &[i1, i0, v3, v2, v1, v0] in entries {
            let value = u32::from_be_bytes([v3, v2, v1, v0]);
            match u16::from_be_bytes([i1, i0]) {
                id::HEADER_TABLE_SIZE => {
                    self.table_bytes = value;
                    // RFC 7541 §4.2: the encoder must signal the smallest size in between.
                    self.table_bytes_low = self.table_bytes_low.min(value);
                }
                id::ENABLE_PUSH | id::NO_RFC7540_PRIORITIES if value > 1 => return Err(ConnectionError::PROTOCOL),
                // A server must not set it to any other value than 0.
                id::ENABLE_PUSH if value == 1 && is_of_server => return Err(ConnectionError::PROTOCOL),
                id::MAX_CONCURRENT_STREAMS => self.streams_max = value,
                id::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(ConnectionError::FLOW_CONTROL),
                id::INITIAL_WINDOW_SIZE => self.initial_window = value,
                id::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => return Err(ConnectionError::PROTOCOL),
                id::MAX_FRAME_SIZE => self.frame_max = value.min(FRAME_MAX),
                // RFC 8441 §3: 0 or 1, and never reset to 0.
                id::ENABLE_CONNECT_PROTOCOL if value > 1 || value == 0 && self.extended_connect => {
                    return Err(ConnectionError::PROTOCOL);
                }
                id::ENABLE_CONNECT_PROTOCOL => self.extended_connect = value == 1,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 §4.2: a peer may use all of the announced table, so the announced size must not exceed the decoder's.
    #[test]
    fn the_announced_table_size_is_within_the_decoder_limit() {
        for (written, announced) in [(4096, None), (0, Some(0)), (65_535, Some(65_535)), (65_536, Some(65_535))] {
            let settings = Settings { header_table_bytes: written, ..Settings::default() };
            let (entries, count) = settings.entries(Role::Server);
            let found = entries[..count].iter().find(|(id, _)| *id == id::HEADER_TABLE_SIZE).map(|(_, value)| *value);
            assert_eq!((found, settings.decoder_table_bytes()), (announced, announced.unwrap_or(written)), "{written}");
        }
    }
}
