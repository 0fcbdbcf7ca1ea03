use super::*;

/// The alerts that RFC 8446 §6 and RFC 5246 §7.2 define, and three unknown ones.
const DESCRIPTIONS: [u8; 41] = [
    0, 10, 20, 21, 22, 30, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 60, 70, 71, 80, 86, 90, 100, 109, 110,
    111, 112, 113, 114, 115, 116, 117, 119, 120, 121, 1, 200, 255,
];

/// RFC 8446 §6: "the severity is implicit in the type of alert being sent and the 'level' field can safely be ignored";
/// only close_notify and user_canceled are not errors; unknown alerts are.
#[test]
fn rfc8446_6_the_description_decides() {
    for level in 0..=255 {
        for description in DESCRIPTIONS {
            let want = match description {
                CLOSE_NOTIFY => Meaning::Closed,
                USER_CANCELED => Meaning::Nothing,
                _ => Meaning::PeerAborted(description),
            };
            assert_eq!(meaning(&[level, description], true), want, "level {level}, description {description}");
        }
    }
}

/// RFC 5246 §7.2: the connection continues after a warning and ends with a fatal alert, even when the RFC requires the
/// opposite level for the description; close_notify ends it at both levels. Further levels do not exist.
#[test]
fn rfc5246_7_2_the_level_decides() {
    for level in 0..=255 {
        for description in DESCRIPTIONS {
            let want = match (level, description) {
                (WARNING | FATAL, CLOSE_NOTIFY) => Meaning::Closed,
                (WARNING, _) => Meaning::Nothing,
                (FATAL, _) => Meaning::PeerAborted(description),
                _ => Meaning::Wrong(ILLEGAL_PARAMETER),
            };
            assert_eq!(meaning(&[level, description], false), want, "level {level}, description {description}");
        }
    }
}

/// RFC 8446 §5.1: each alert is one record of its own. §5.4: the record must not be empty.
#[test]
fn rfc8446_5_1_an_alert_is_two_bytes() {
    for is_tls13 in [true, false] {
        for (content, want) in [
            (&[][..], UNEXPECTED_MESSAGE),
            (&[1], DECODE_ERROR),
            (&[2], DECODE_ERROR),
            (&[1, 0, 0], DECODE_ERROR),
            (&[1, 0, 1, 0], DECODE_ERROR),
        ] {
            assert_eq!(meaning(content, is_tls13), Meaning::Wrong(want), "{content:?}");
        }
    }
}

/// Errors for which rustls sends no alert get one of ours; a peer's alert gets none.
#[test]
fn errors_have_alerts() {
    for (error, want) in [
        (Error::AlertReceived(AlertDescription::HandshakeFailure), None),
        (PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into(), Some(UNEXPECTED_MESSAGE)),
        (PeerMisbehaved::TooManyEmptyFragments.into(), Some(UNEXPECTED_MESSAGE)),
        (PeerMisbehaved::IncorrectBinder.into(), Some(ILLEGAL_PARAMETER)),
        (rustls::InvalidMessage::HandshakePayloadTooLarge.into(), Some(DECODE_ERROR)),
        (Error::DecryptError, Some(BAD_RECORD_MAC)),
        (Error::PeerSentOversizedRecord, Some(RECORD_OVERFLOW)),
        (Error::NoApplicationProtocol, Some(120)),
        (rustls::PeerIncompatible::NoKxGroupsInCommon.into(), Some(40)),
        (Error::General(String::new()), Some(INTERNAL_ERROR)),
    ] {
        assert_eq!(description(&error), want, "{error:?}");
    }
}
