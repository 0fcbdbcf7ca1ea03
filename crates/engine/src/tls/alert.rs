//! Alerts: the descriptions that the server sends, and the interpretation of the peer's (RFC 8446 §6, RFC 5246 §7.2).

use rustls::{AlertDescription, Error, PeerMisbehaved};

pub(super) const CLOSE_NOTIFY: u8 = 0;
pub(super) const UNEXPECTED_MESSAGE: u8 = 10;
pub(super) const BAD_RECORD_MAC: u8 = 20;
pub(super) const RECORD_OVERFLOW: u8 = 22;
pub(super) const ILLEGAL_PARAMETER: u8 = 47;
pub(super) const DECODE_ERROR: u8 = 50;
pub(super) const PROTOCOL_VERSION: u8 = 70;
pub(super) const INTERNAL_ERROR: u8 = 80;
pub(super) const USER_CANCELED: u8 = 90;
pub(super) const NO_RENEGOTIATION: u8 = 100;
pub(super) const NO_APPLICATION_PROTOCOL: u8 = 120;

/// The level after which the connection continues.
pub(super) const WARNING: u8 = 1;
/// The level that ends the connection.
pub(super) const FATAL: u8 = 2;

/// The effect of an alert that the peer sent after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The peer has closed its sending side.
    Closed,
    /// The connection continues.
    Nothing,
    /// The peer has aborted the connection with this description, and gets no alert in return.
    PeerAborted(u8),
    /// The alert is malformed; the alert in return has this description.
    Wrong(u8),
}

/// Interprets the content of an alert record.
pub(super) fn meaning(content: &[u8], is_tls13: bool) -> Meaning {
    let &[level, description] = content else {
        // RFC 8446 §5.4: an alert record must not be empty. RFC 5246 lets alerts be split and joined, which no peer
        // does.
        return Meaning::Wrong(if content.is_empty() { UNEXPECTED_MESSAGE } else { DECODE_ERROR });
    };
    match (level, description) {
        // RFC 8446 §6: the description alone decides; all except these two are errors at any level.
        (_, CLOSE_NOTIFY) if is_tls13 => Meaning::Closed,
        (_, USER_CANCELED) if is_tls13 => Meaning::Nothing,
        _ if is_tls13 => Meaning::PeerAborted(description),
        (WARNING | FATAL, CLOSE_NOTIFY) => Meaning::Closed,
        // RFC 5246 §7.2: the level decides, user_canceled and no_renegotiation included.
        (WARNING, _) => Meaning::Nothing,
        (FATAL, _) => Meaning::PeerAborted(description),
        _ => Meaning::Wrong(ILLEGAL_PARAMETER),
    }
}

/// Returns the alert description for a handshake error for which rustls has queued no alert, or `None` when the error
/// is an alert from the peer.
pub(super) fn description(error: &Error) -> Option<u8> {
    let description = match error {
        Error::AlertReceived(_) => return None,
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            AlertDescription::UnexpectedMessage
        }
        Error::InvalidMessage(error) => AlertDescription::from(*error),
        Error::DecryptError => AlertDescription::BadRecordMac,
        Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        Error::PeerIncompatible(_) => AlertDescription::HandshakeFailure,
        Error::NoCertificatesPresented => AlertDescription::CertificateRequired,
        Error::InvalidCertificate(error) => error.clone().into(),
        Error::NoApplicationProtocol => AlertDescription::NoApplicationProtocol,
        Error::PeerMisbehaved(fault) => match fault {
            // RFC 8446 §5, §5.1: records in a forbidden order, or too many without content.
            PeerMisbehaved::MessageInterleavedWithHandshakeMessage
            | PeerMisbehaved::RejectedEarlyDataInterleavedWithHandshakeMessage
            | PeerMisbehaved::KeyEpochWithPendingFragment
            | PeerMisbehaved::IllegalMiddleboxChangeCipherSpec
            | PeerMisbehaved::IllegalTlsInnerPlaintext
            | PeerMisbehaved::TooManyEmptyFragments
            | PeerMisbehaved::TooManyWarningAlertsReceived
            | PeerMisbehaved::TooMuchEarlyDataReceived => AlertDescription::UnexpectedMessage,
            _ => AlertDescription::IllegalParameter,
        },
        _ => AlertDescription::InternalError,
    };
    Some(description.into())
}

/// Encodes a fatal alert as an unprotected record.
pub(super) fn in_the_clear(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, FATAL, description]
}

#[cfg(test)]
mod tests;
