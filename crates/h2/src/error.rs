//! The protocol errors that a peer can cause, and the error codes of RFC 9113.

use std::error::Error;
use std::fmt;

/// The reason why a stream or a connection ends (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// NO_ERROR: a graceful end.
    NoError = 0x0,
    /// PROTOCOL_ERROR: a violation without a more specific code.
    Protocol = 0x1,
    /// INTERNAL_ERROR: a failure of the sender itself.
    Internal = 0x2,
    /// FLOW_CONTROL_ERROR: more bytes than a window allowed.
    FlowControl = 0x3,
    /// SETTINGS_TIMEOUT: SETTINGS were not acknowledged in time.
    SettingsTimeout = 0x4,
    /// STREAM_CLOSED: a frame on a stream that had ended.
    StreamClosed = 0x5,
    /// FRAME_SIZE_ERROR: a frame of an invalid length.
    FrameSize = 0x6,
    /// REFUSED_STREAM: the stream was refused before any processing.
    RefusedStream = 0x7,
    /// CANCEL: the stream is no longer needed.
    Cancel = 0x8,
    /// COMPRESSION_ERROR: a field block that cannot be decoded.
    Compression = 0x9,
    /// CONNECT_ERROR: the connection to the target of a CONNECT failed.
    Connect = 0xa,
    /// ENHANCE_YOUR_CALM: a [budget](crate::Budgets) is exceeded.
    EnhanceYourCalm = 0xb,
    /// INADEQUATE_SECURITY: the transport does not meet the security requirements.
    InadequateSecurity = 0xc,
    /// HTTP_1_1_REQUIRED: the request must be sent over HTTP/1.1.
    Http11Required = 0xd,
}

impl ErrorCode {
    /// Returns the RFC's name of the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoError => "NO_ERROR",
            Self::Protocol => "PROTOCOL_ERROR",
            Self::Internal => "INTERNAL_ERROR",
            Self::FlowControl => "FLOW_CONTROL_ERROR",
            Self::SettingsTimeout => "SETTINGS_TIMEOUT",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::FrameSize => "FRAME_SIZE_ERROR",
            Self::RefusedStream => "REFUSED_STREAM",
            Self::Cancel => "CANCEL",
            Self::Compression => "COMPRESSION_ERROR",
            Self::Connect => "CONNECT_ERROR",
            Self::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            Self::InadequateSecurity => "INADEQUATE_SECURITY",
            Self::Http11Required => "HTTP_1_1_REQUIRED",
        }
    }

    /// Returns the code with this number; an unknown number means INTERNAL_ERROR (RFC 9113 §7).
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

/// A violation that ends the connection, with the code of its GOAWAY frame (RFC 9113 §5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError(pub ErrorCode);

impl ConnectionError {
    pub(crate) const PROTOCOL: Self = Self(ErrorCode::Protocol);
    pub(crate) const FRAME_SIZE: Self = Self(ErrorCode::FrameSize);
    pub(crate) const FLOW_CONTROL: Self = Self(ErrorCode::FlowControl);
    pub(crate) const STREAM_CLOSED: Self = Self(ErrorCode::StreamClosed);
    pub(crate) const COMPRESSION: Self = Self(ErrorCode::Compression);
    pub(crate) const CALM: Self = Self(ErrorCode::EnhanceYourCalm);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Other implementations log these names too.
        f.write_str(self.name())
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a violation of HTTP/2: {}", self.0)
    }
}

impl Error for ConnectionError {}
