//! What both sides of a connection tell each other (RFC 9113 §6.5).

use crate::budget::Budgets;
use crate::connection::Role;
use crate::fault::Fault;
use crate::hpack::{TABLE_BYTES_DEFAULT, TABLE_BYTES_MAX};
use crate::window::{WINDOW_DEFAULT, WINDOW_MAX};

/// What a peer is told, and held to. In octets where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Streams that the peer may have open at once; 128 (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams_max: u32,
    /// Content of one stream that may be under way unread; 1 MiB, at most 2^31-1 (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// Content of all streams together that may be under way unread; 2 MiB, at least 65 535, at most 2^31-1.
    pub connection_window: u32,
    /// The peer's HPACK table; 4096, at most 65 535 (SETTINGS_HEADER_TABLE_SIZE).
    pub header_table_bytes: u32,
    /// Our own HPACK table, at most what the peer allows; 4096, at most 65 535.
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

impl Settings {
    /// For the client's role: a server may reset as many streams as it likes, it only hurts itself.
    #[must_use]
    pub fn client() -> Self {
        let budgets = Budgets { resets: u32::MAX, resets_a_second: u32::MAX, ..Budgets::default() };
        // Streams of one connection belong to many readers, of whom some are slow. What these leave may not fill the window that all share.
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
            fields_max: 100,
            target_bytes_max: 8 * 1024,
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
    /// How large the peer's table may be: what it is told is what its blocks are decoded with.
    pub(crate) fn decoder_table_bytes(&self) -> u32 {
        self.header_table_bytes.min(TABLE_BYTES_MAX)
    }

    /// What we say of ourselves, and how many entries it takes.
    pub(crate) fn entries(&self, role: Role) -> ([(u16, u32); 6], usize) {
        let is_server = role == Role::Server;
        let mut entries = [(0, 0); 6];
        let mut count = 0;
        let mut put = |is_said: bool, setting, value| {
            if is_said {
                entries[count] = (setting, value);
                count += 1;
            }
        };
        let table_bytes = self.decoder_table_bytes();
        put(table_bytes != TABLE_BYTES_DEFAULT, id::HEADER_TABLE_SIZE, table_bytes);
        put(!is_server, id::ENABLE_PUSH, 0);
        put(is_server, id::MAX_CONCURRENT_STREAMS, self.streams_max);
        put(true, id::INITIAL_WINDOW_SIZE, self.stream_window);
        put(true, id::MAX_HEADER_LIST_SIZE, self.head_bytes_max);
        put(is_server && self.extended_connect, id::ENABLE_CONNECT_PROTOCOL, 1);
        put(is_server, id::NO_RFC7540_PRIORITIES, 1);
        (entries, count)
    }
}

/// What the peer said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) table_bytes: u32,
    /// The smallest table that it asked for since the encoder heard of it.
    pub(crate) table_bytes_low: u32,
    pub(crate) initial_window: u32,
    pub(crate) streams_max: u32,
    /// The largest frame that we send it.
    pub(crate) frame_max: u32,
    pub(crate) extended_connect: bool,
}

/// We send no larger frames, whatever the peer takes: others have their turn.
const FRAME_MAX: u32 = 64 * 1024;

impl Default for Peer {
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

impl Peer {
    /// Takes a SETTINGS frame's payload over (RFC 9113 §6.5.2). Entries are read in order, the last of a kind counts, what is not
    /// known is ignored.
    pub(crate) fn apply(&mut self, payload: &[u8], entries_max: u16) -> Result<(), Fault> {
        let (entries, []) = payload.as_chunks::<6>() else { return Err(Fault::FRAME_SIZE) };
        if entries.len() > usize::from(entries_max) {
            return Err(Fault::CALM);
        }
        for &[i1, i0, v3, v2, v1, v0] in entries {
            let value = u32::from_be_bytes([v3, v2, v1, v0]);
            match u16::from_be_bytes([i1, i0]) {
                id::HEADER_TABLE_SIZE => {
                    self.table_bytes = value;
                    self.table_bytes_low = self.table_bytes_low.min(value);
                }
                id::ENABLE_PUSH | id::NO_RFC7540_PRIORITIES if value > 1 => return Err(Fault::PROTOCOL),
                id::MAX_CONCURRENT_STREAMS => self.streams_max = value,
                id::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(Fault::FLOW_CONTROL),
                id::INITIAL_WINDOW_SIZE => self.initial_window = value,
                id::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => return Err(Fault::PROTOCOL),
                id::MAX_FRAME_SIZE => self.frame_max = value.min(FRAME_MAX),
                // RFC 8441 §3: 0 or 1, and never taken back.
                id::ENABLE_CONNECT_PROTOCOL if value > 1 || value == 0 && self.extended_connect => {
                    return Err(Fault::PROTOCOL);
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

    // RFC 7541 §4.2: a peer may use all of the table that it is told of, so it is told no more than the decoder has.
    #[test]
    fn a_table_that_is_announced_is_there() {
        for (written, said) in [(4096, None), (0, Some(0)), (65_535, Some(65_535)), (65_536, Some(65_535))] {
            let settings = Settings { header_table_bytes: written, ..Settings::default() };
            let (entries, count) = settings.entries(Role::Server);
            let found = entries[..count].iter().find(|(id, _)| *id == id::HEADER_TABLE_SIZE).map(|(_, value)| *value);
            assert_eq!((found, settings.decoder_table_bytes()), (said, said.unwrap_or(written)), "{written}");
        }
    }
}
