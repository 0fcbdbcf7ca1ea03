//! Encoding and decoding of frames (RFC 9113 §4.1, §6).

use causeway_message::WriteList;

use crate::error::ErrorCode;

/// Length in bytes of a frame header.
pub(crate) const HEADER_LEN: usize = 9;
/// The largest accepted payload in bytes. SETTINGS_MAX_FRAME_SIZE stays at its default, so that a whole frame fits a
/// read block.
pub(crate) const PAYLOAD_MAX: usize = 16_384;
/// The client connection preface (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
    /// RFC 9218 §7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Decodes a frame header; `None` while it is incomplete. The reserved bit is ignored (RFC 9113 §4.1).
    #[inline]
    pub(crate) fn read(input: &[u8]) -> Option<Self> {
        // A fixed array, so that the compiler checks the length once and no index can panic.
        let &[l2, l1, l0, kind, flags, s3, s2, s1, s0] = input.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            len: u32::from_be_bytes([0, l2, l1, l0]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s3 & 0x7f, s2, s1, s0]),
        })
    }

    #[inline]
    pub(crate) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Encodes a frame header. `len` must be less than 2^24.
#[inline]
pub(crate) fn header(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER_LEN] {
    // The callers split at the peer's SETTINGS_MAX_FRAME_SIZE, which RFC 9113 §6.5.2 keeps below this.
    debug_assert!(len < 1 << 24);
    let [_, l2, l1, l0] = (len as u32).to_be_bytes();
    let [s3, s2, s1, s0] = stream.to_be_bytes();
    [l2, l1, l0, kind, flags, s3, s2, s1, s0]
}

/// Decodes a 31-bit number; the reserved bit is ignored.
#[inline]
pub(crate) fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

fn put_with_number(kind: u8, stream: u32, number: u32, out: &mut WriteList) {
    // One call of `put` for header and payload: the list's bookkeeping costs more than the 13 bytes.
    let mut frame = [0; HEADER_LEN + 4];
    frame[..HEADER_LEN].copy_from_slice(&header(4, kind, 0, stream));
    frame[HEADER_LEN..].copy_from_slice(&number.to_be_bytes());
    out.put(&frame);
}

#[cold]
pub(crate) fn put_reset(stream: u32, code: ErrorCode, out: &mut WriteList) {
    put_with_number(kind::RST_STREAM, stream, code as u32, out);
}

pub(crate) fn put_window_update(stream: u32, by: u32, out: &mut WriteList) {
    put_with_number(kind::WINDOW_UPDATE, stream, by, out);
}

pub(crate) fn put_ping(flags: u8, payload: [u8; 8], out: &mut WriteList) {
    out.put(&header(8, kind::PING, flags, 0));
    out.put(&payload);
}

#[cold]
pub(crate) fn put_goaway(last: u32, code: ErrorCode, out: &mut WriteList) {
    out.put(&header(8, kind::GOAWAY, 0, 0));
    out.put(&last.to_be_bytes());
    out.put(&(code as u32).to_be_bytes());
}

pub(crate) fn put_settings(entries: &[(u16, u32)], out: &mut WriteList) {
    out.put(&header(6 * entries.len(), kind::SETTINGS, 0, 0));
    for (setting, value) in entries {
        out.put(&setting.to_be_bytes());
        out.put(&value.to_be_bytes());
    }
}

pub(crate) fn put_settings_ack(out: &mut WriteList) {
    out.put(&header(0, kind::SETTINGS, flag::ACK, 0));
}
