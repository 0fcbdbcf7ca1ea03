//! What a peer can do wrong.

/// Why a stream or a connection ends (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0x0,
    /// A breach of the protocol that no other code names.
    Protocol = 0x1,
    /// Our own failure.
    Internal = 0x2,
    /// More octets than a window had room for.
    FlowControl = 0x3,
    /// Settings were not acknowledged in time.
    SettingsTimeout = 0x4,
    /// A frame on a stream that had ended.
    StreamClosed = 0x5,
    /// A frame of an impossible length.
    FrameSize = 0x6,
    /// A stream that was refused before anything was done for it.
    RefusedStream = 0x7,
    /// The stream is not wanted any more.
    Cancel = 0x8,
    /// A header block that cannot be decoded.
    Compression = 0x9,
    /// The other end of a CONNECT tunnel broke.
    Connect = 0xa,
    /// More than a [budget](crate::Budgets) allows.
    EnhanceYourCalm = 0xb,
    /// The transport is not safe enough.
    InadequateSecurity = 0xc,
    /// HTTP/1.1 is wanted.
    Http11Required = 0xd,
}

/// A breach that ends the connection, with the code that its GOAWAY carries (RFC 9113 §5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub ErrorCode);
