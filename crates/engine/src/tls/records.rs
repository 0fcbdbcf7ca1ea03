//! A connection's records in both directions after the handshake, without I/O. Separates content from alerts and
//! handshake messages, handles these, and seals the replies that they require.
//!
//! ```text
//!  record ─► open ─┬─ content ────────────────────────► the driver
//!                  ├─ alert ──────► end, or ignored       (`alert`)
//!                  ├─ handshake ──► messages ─┬─ KeyUpdate            ► next receive keys; new send keys if requested
//!                  │                          ├─ NewSessionTicket     ► stored (client)
//!                  │                          └─ renegotiation        ► ignored (client), or a warning sent (server, TLS 1.2)
//!                  └─ any other type ──► fault
//! ```

use std::io::IoSlice;
use std::ops::Range;

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite};

use super::alert::{self, Meaning};
use super::messages::{CLIENT_HELLO, HELLO_REQUEST, HandshakeMessage, KEY_UPDATE, Messages, NEW_SESSION_TICKET};
use super::record::{Exhausted, Opener, RecordError, Sealer, whole};

/// Maximum number of consecutive alerts, messages and empty records without content. A peer that sends more costs CPU
/// time without progress, and the connection ends.
const EMPTY_RECORDS_MAX: u8 = 32;

/// rustls's state after the handshake, in either role: the source of new keys.
pub(super) enum Keys {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

/// Evaluates one expression for either role; rustls's two types have no common trait.
macro_rules! either {
    ($keys:expr, $it:ident => $work:expr) => {
        match $keys {
            Keys::Server($it) => $work,
            Keys::Client($it) => $work,
        }
    };
}

impl Keys {
    fn suite(&self) -> SupportedCipherSuite {
        either!(self, keys => keys.negotiated_cipher_suite())
    }

    fn is_tls13(&self) -> bool {
        either!(self, keys => keys.protocol_version()) == ProtocolVersion::TLSv1_3
    }

    fn next_rx(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        either!(self, keys => keys.update_rx_secret()).ok()
    }

    fn next_tx(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        either!(self, keys => keys.update_tx_secret()).ok()
    }

    /// Returns the handshake message types that the peer may send after the handshake.
    fn expected(&self) -> &'static [u8] {
        match (self, self.is_tls13()) {
            // RFC 8446 §4.6. We never send post_handshake_auth, so a CertificateRequest is a violation (§4.2.6).
            (Self::Client(_), true) => &[NEW_SESSION_TICKET, KEY_UPDATE],
            (Self::Server(_), true) => &[KEY_UPDATE],
            // RFC 5246 §7.4.1: the messages that start a renegotiation.
            (Self::Client(_), false) => &[HELLO_REQUEST],
            (Self::Server(_), false) => &[CLIENT_HELLO],
        }
    }
}

/// The reason why the receive direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveEnd {
    /// The peer sent close_notify.
    CloseNotify,
    /// TCP ended without close_notify. An attacker on the path can forge this.
    Cut,
    /// The peer aborted the connection with an alert of this description.
    PeerAborted(u8),
    /// The peer violated the protocol; the connection sends this alert.
    Fault(RecordError),
}

/// The record layer's state for both directions of one connection.
pub(super) struct Records {
    opener: Opener,
    sealer: Sealer,
    /// Derives the next keys (RFC 8446 §7.2).
    keys: Keys,
    messages: Messages,
    /// Consecutive records and messages without content; see [`EMPTY_RECORDS_MAX`].
    idle: u8,
    /// The peer's KeyUpdate requested one of ours, which must precede our next content (RFC 8446 §4.6.3).
    is_update_owed: bool,
    /// The client requested a renegotiation; a warning must decline it (RFC 5246 §7.2.2).
    is_warning_owed: bool,
    /// Set once the receive direction has ended; later records are not opened.
    end: Option<ReceiveEnd>,
}

impl Records {
    /// Returns `None` when the secrets do not fit the suite, which rustls never exports.
    pub(super) fn new(secrets: ExtractedSecrets, keys: Keys) -> Option<Self> {
        let suite = keys.suite();
        Some(Self {
            opener: Opener::new(suite, secrets.rx.0, secrets.rx.1)?,
            sealer: Sealer::new(suite, secrets.tx.0, &secrets.tx.1)?,
            keys,
            messages: Messages::default(),
            idle: 0,
            is_update_owed: false,
            is_warning_owed: false,
            end: None,
        })
    }

    /// Returns the reason why the receive direction ended, or `None` while it is open.
    pub(super) fn end(&self) -> Option<ReceiveEnd> {
        self.end
    }

    /// Returns whether [`seal_warning`](Self::seal_warning) must decline a client's renegotiation.
    pub(super) fn must_warn(&self) -> bool {
        self.is_warning_owed
    }

    /// Returns the length of the record at the front of `bytes`, header included, or `None` while it is incomplete. A
    /// malformed header ends the receive direction; after that the result is always `None`.
    pub(super) fn whole(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.end.is_some() {
            return None;
        }
        whole(bytes).unwrap_or_else(|fault| {
            self.end = Some(ReceiveEnd::Fault(fault));
            None
        })
    }

    /// Decrypts a whole record in place. Returns the range of its content, or `None` when it has no content for the
    /// driver: alerts, handshake messages and faults are handled here.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Option<Range<usize>> {
        match self.opener.open(record) {
            // The hot path: one comparison of the type, and no call.
            Ok((ContentType::ApplicationData, content)) if !content.is_empty() && !self.messages.is_amid() => {
                self.idle = 0;
                return Some(content);
            }
            Ok((kind, content)) => self.handle_control(kind, &record[content]),
            Err(fault) => self.end = Some(ReceiveEnd::Fault(fault)),
        }
        None
    }

    /// Records TCP's end; without a preceding close_notify it counts as [`ReceiveEnd::Cut`].
    pub(super) fn handle_eof(&mut self) {
        self.end.get_or_insert(ReceiveEnd::Cut);
    }

    /// Handles every record that is not plain content. Cold: a connection usually gets one such record, its
    /// close_notify.
    #[cold]
    fn handle_control(&mut self, kind: ContentType, content: &[u8]) {
        let result = match kind {
            // RFC 8446 §5.1: the parts of a handshake message must not be interleaved with other record types.
            _ if self.messages.is_amid() && kind != ContentType::Handshake => {
                Err(RecordError(alert::UNEXPECTED_MESSAGE))
            }
            ContentType::ApplicationData => count(&mut self.idle),
            ContentType::Alert => self.handle_alert(content),
            ContentType::Handshake => self.handle_handshake(content),
            _ => Err(RecordError(alert::UNEXPECTED_MESSAGE)),
        };
        if let Err(fault) = result {
            self.end = Some(ReceiveEnd::Fault(fault));
        }
    }

    fn handle_alert(&mut self, content: &[u8]) -> Result<(), RecordError> {
        match alert::meaning(content, self.keys.is_tls13()) {
            Meaning::Closed => self.end = Some(ReceiveEnd::CloseNotify),
            Meaning::PeerAborted(description) => self.end = Some(ReceiveEnd::PeerAborted(description)),
            Meaning::Nothing => count(&mut self.idle)?,
            Meaning::Wrong(description) => return Err(RecordError(description)),
        }
        Ok(())
    }

    fn handle_handshake(&mut self, content: &[u8]) -> Result<(), RecordError> {
        let Self { opener, keys, messages, idle, is_update_owed, is_warning_owed, .. } = self;
        let expected = keys.expected();
        messages.feed(content, expected, |HandshakeMessage { kind, body, ends_record }| {
            count(idle)?;
            match (kind, &mut *keys) {
                (KEY_UPDATE, keys) => {
                    // RFC 8446 §4.6.3: any other value is illegal_parameter. §5.1: a message before a key change must
                    // end its record, since the rest of that record would be under the old keys.
                    let &[asked @ (0 | 1)] = body else { return Err(RecordError(alert::ILLEGAL_PARAMETER)) };
                    if !ends_record {
                        return Err(RecordError(alert::UNEXPECTED_MESSAGE));
                    }
                    let (sequence, secrets) = keys.next_rx().ok_or(RecordError(alert::INTERNAL_ERROR))?;
                    *opener = Opener::new(keys.suite(), sequence, secrets).ok_or(RecordError(alert::INTERNAL_ERROR))?;
                    *is_update_owed |= asked == 1;
                    Ok(())
                }
                (NEW_SESSION_TICKET, Keys::Client(keys)) => keys.handle_new_session_ticket(body).map_err(|error| {
                    RecordError(match error {
                        Error::InvalidMessage(_) => alert::DECODE_ERROR,
                        _ => alert::ILLEGAL_PARAMETER,
                    })
                }),
                // RFC 5246 §7.4.1.1: a client may ignore a HelloRequest. OpenSSL's servers close the connection on a
                // warning.
                (_, Keys::Client(_)) => Ok(()),
                // RFC 5246 §7.2.2: the client waits for a reply, and may then continue without a renegotiation.
                (_, Keys::Server(_)) => {
                    *is_warning_owed = true;
                    Ok(())
                }
            }
        })
    }

    /// Seals a pending KeyUpdate or warning, then content from the front of `slices`. Returns the number of content
    /// bytes taken and the number of bytes of `out` filled.
    pub(super) fn seal(&mut self, slices: &[IoSlice<'_>], out: &mut [u8]) -> Result<(usize, usize), Exhausted> {
        let mut start = 0;
        // Only TLS 1.3 can change keys; a TLS 1.2 connection ends with `Exhausted` at the key's limit.
        if self.is_update_owed || self.sealer.is_worn() && self.keys.is_tls13() {
            start = self.update_keys(out)?;
        }
        if self.is_warning_owed {
            start += self.seal_warning(&mut out[start..])?;
        }
        let (content, sealed) = self.sealer.seal_slices(slices, &mut out[start..])?;
        Ok((content, start + sealed))
    }

    /// Seals an alert into `out`. Returns the record's length.
    pub(super) fn seal_alert(&mut self, level: u8, description: u8, out: &mut [u8]) -> Result<usize, Exhausted> {
        self.sealer.seal(ContentType::Alert, &[level, description], out)
    }

    /// Seals the no_renegotiation warning into `out`. Returns the record's length.
    #[cold]
    pub(super) fn seal_warning(&mut self, out: &mut [u8]) -> Result<usize, Exhausted> {
        self.is_warning_owed = false;
        // RFC 5246 §7.2: no_renegotiation is always a warning.
        self.seal_alert(alert::WARNING, alert::NO_RENEGOTIATION, out)
    }

    /// Seals a KeyUpdate under the current keys, then switches to the next ones (RFC 8446 §4.6.3). It does not request
    /// an update from the peer. Returns the record's length.
    #[cold]
    fn update_keys(&mut self, out: &mut [u8]) -> Result<usize, Exhausted> {
        let sealed = self.sealer.seal(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0], out)?;
        // In TLS 1.2 rustls has no further keys, and the connection can send no more.
        let (sequence, secrets) = self.keys.next_tx().ok_or(Exhausted)?;
        self.sealer = Sealer::new(self.keys.suite(), sequence, &secrets).ok_or(Exhausted)?;
        self.is_update_owed = false;
        Ok(sealed)
    }
}

/// Counts a record or message without content.
fn count(idle: &mut u8) -> Result<(), RecordError> {
    *idle += 1;
    if *idle > EMPTY_RECORDS_MAX { Err(RecordError(alert::UNEXPECTED_MESSAGE)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
