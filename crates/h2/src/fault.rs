//! What a peer can do wrong.

/// Why a stream or a connection ends (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0x0,
    /// A breach of the protocol that no other code names.
    Protocol = 0x1,
    /// Our own failure, or the peer's own.
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

impl ErrorCode {
    /// The code with this number; one that is not known means INTERNAL_ERROR (RFC 9113 §7).
    #[must_use]
    pub const fn of(number: u32) -> Self {
        match number {
            0x0 => Self::NoError,
            0x1 => Self::Protocol,
            0x3 => Self::FlowControl,
            0x4 => Self::SettingsTimeout,
            0x5 => Self::StreamClosed,
            0x6 => Self::FrameSize,
            0x7 => Self::RefusedStream,
            0x8 => Self::Cancel,
            0x9 => Self::Compression,
            0xa => Self::Connect,
            0xb => Self::EnhanceYourCalm,
            0xc => Self::InadequateSecurity,
            0xd => Self::Http11Required,
            _ => Self::Internal,
        }
    }
}

/// A breach that ends the connection, with the code that its GOAWAY carries (RFC 9113 §5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub ErrorCode);

impl Fault {
    pub(crate) const PROTOCOL: Self = Self(ErrorCode::Protocol);
    pub(crate) const FRAME_SIZE: Self = Self(ErrorCode::FrameSize);
    pub(crate) const FLOW_CONTROL: Self = Self(ErrorCode::FlowControl);
    pub(crate) const STREAM_CLOSED: Self = Self(ErrorCode::StreamClosed);
    pub(crate) const COMPRESSION: Self = Self(ErrorCode::Compression);
    pub(crate) const CALM: Self = Self(ErrorCode::EnhanceYourCalm);
}
