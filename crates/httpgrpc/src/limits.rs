//! Limits on messages of a peer.

/// Limits on the memory of a decoder, in bytes unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One message, as received and after decompression.
    pub message_bytes_max: u32,
    /// Method, target and fields of one message together, and each of them.
    pub head_bytes_max: u32,
    /// Field lines of a message. A name counts as one more, so that a name without values is not free.
    pub fields_max: u16,
    /// The request target.
    pub target_bytes_max: u32,
}

/// The default of gRPC's libraries: 4 MiB.
pub const MESSAGE_BYTES_DEFAULT: u32 = 4 * 1024 * 1024;
/// 1 MiB. Generous, because most senders have already applied their own limit to the head.
pub const HEAD_BYTES_DEFAULT: u32 = 1024 * 1024;
/// 1000: a name with one value counts as two.
pub const FIELDS_DEFAULT: u16 = 1000;
/// 64 KiB: queries of metrics and logs are long.
pub const TARGET_BYTES_DEFAULT: u32 = 64 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            head_bytes_max: HEAD_BYTES_DEFAULT,
            fields_max: FIELDS_DEFAULT,
            target_bytes_max: TARGET_BYTES_DEFAULT,
        }
    }
}
