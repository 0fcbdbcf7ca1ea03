//! How much of what a peer may send.

/// Bounds on what a decoder holds. In octets where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One message, as it came and inflated.
    pub message_bytes_max: u32,
    /// Method, target and fields of one message, and each of them.
    pub head_bytes_max: u32,
    /// Field lines in a message; a name counts too, so that one without values is not free.
    pub fields_max: u16,
    /// The request target.
    pub target_bytes_max: u32,
}

/// What gRPC's libraries take unless told otherwise.
pub const MESSAGE_BYTES_DEFAULT: u32 = 4 * 1024 * 1024;
/// Generous: whoever sends has mostly let the head through a limit of its own.
pub const HEAD_BYTES_DEFAULT: u32 = 1024 * 1024;
/// A name and its one value are two.
pub const FIELDS_DEFAULT: u16 = 1000;
/// Queries of metrics and logs are long.
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
