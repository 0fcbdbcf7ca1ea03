//! Drives rustls through a handshake, in either role.
//!
//! Each step passes rustls one more record, so it never opens a record that follows the handshake: those belong to
//! [`records`]. After an error rustls gets no further input. The buffer may still begin with a part of a message, and
//! rustls would look for the next record after it; only the alert that rustls has queued is fetched.
//!
//! [`records`]: super::records

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::{ContentType, Error, ProtocolVersion};

use super::alert;
use super::record::{ALERT_BYTES, HEADER_BYTES};
use super::record_buffer::RecordBuffer;
use super::write_secret::{HelloRandom, WriteSecret};

/// A rustls connection in the client's or the server's role.
pub(super) trait Endpoint: std::ops::Deref<Target = UnbufferedConnectionCommon<Self::Data>> {
    type Data;

    /// Processes the next record or returns the next queued output; rustls's `process_tls_records`.
    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Endpoint for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(bytes)
    }
}

impl Endpoint for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(bytes)
    }
}

/// The whole state of a handshake. It owns its buffers, so it can move to another thread for a slow step.
pub(super) struct Session<E> {
    pub(super) tls: E,
    /// Received records that rustls has not consumed.
    pub(super) inbound: RecordBuffer,
    /// Records to send.
    pub(super) out: Vec<u8>,
    /// Bytes at the front of `inbound` that rustls has processed and still needs: records that hold a part of a
    /// message.
    shown: usize,
    secret: Arc<WriteSecret>,
    /// The ServerHello's random value, sent or received; an input of TLS 1.2's key derivation.
    server_random: Option<HelloRandom>,
    /// TLS 1.2's change_cipher_spec is sent, so our next record must be protected.
    has_changed_cipher: bool,
}

impl<E: Endpoint> Session<E> {
    /// Creates a handshake that has not begun. `inbound` holds the records received so far; `secret` must be the key
    /// log of rustls's configuration.
    pub(super) fn new(tls: E, inbound: RecordBuffer, secret: Arc<WriteSecret>) -> Self {
        Self { tls, inbound, out: Vec::new(), shown: 0, secret, server_random: None, has_changed_cipher: false }
    }

    /// Runs rustls over the complete records in `inbound` and appends its output to `out`; after an error, the alert.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        let result = self.process();
        if let Err(error) = &result {
            let answered = self.out.len();
            self.fetch();
            // For some errors rustls queues no alert, so the peer would see a bare TCP close.
            if self.out.len() == answered
                && let Some(description) = alert::description(error)
            {
                self.refuse(description);
            }
        }
        result
    }

    /// Appends a fatal alert to `out`, protected with the keys of our next record if there are any. A peer that already
    /// expects protected records would reject an alert in the clear.
    #[cold]
    pub(super) fn refuse(&mut self, description: u8) {
        let is_protected = match self.tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => self.secret.is_known(),
            Some(_) => self.has_changed_cipher,
            None => false,
        };
        if !is_protected {
            self.out.extend(alert::in_the_clear(description));
            return;
        }
        let suite = self.tls.negotiated_cipher_suite();
        let sealer = suite.and_then(|suite| self.secret.sealer(suite, self.server_random.as_ref()));
        let mut record = [0; ALERT_BYTES];
        if let Some(mut sealer) = sealer
            && let Ok(len) = sealer.seal(ContentType::Alert, &[alert::FATAL, description], &mut record)
        {
            self.out.extend_from_slice(&record[..len]);
        }
    }

    /// Alternates between rustls's output and its input until it needs a record that is not complete yet.
    fn process(&mut self) -> Result<(), Error> {
        // rustls gets the bytes up to `end`. It exceeds `shown` only for an incomplete record, whose header rustls may
        // reject early; such a record stays out of `shown`, so the next call passes it again.
        let mut end = self.shown;
        while self.tls.is_handshaking() {
            let UnbufferedStatus { discard, state } = self.tls.process(&mut self.inbound.sealed_mut()[..end]);
            let is_blocked = match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let start = self.out.len();
                    encode(&mut data, &mut self.out);
                    self.note(start);
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    false
                }
                // A server that resumes a session may send content before the client's Finished (RFC 5246 §7.3).
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => true,
                Ok(state) => return Err(Error::General(format!("unexpected state {state:?} during the handshake"))),
                Err(error) => return Err(error),
            };
            // rustls discards input only at the end of a message, so `discard` may cover several records or none.
            self.inbound.consume(discard);
            self.shown = self.shown.saturating_sub(discard);
            end = end.saturating_sub(discard);
            if is_blocked {
                let next = front(&self.inbound.sealed()[self.shown..]);
                if end > self.shown || next.len == 0 {
                    // rustls has processed all bytes received so far.
                    return Ok(());
                }
                end = self.shown + next.len;
                if next.is_whole {
                    let record = &self.inbound.sealed()[self.shown..end];
                    self.server_random = self.server_random.or_else(|| server_random(record));
                    self.shown = end;
                }
            }
        }
        self.fetch();
        self.secret.forget();
        Ok(())
    }

    /// Moves rustls's queued output to `out`. While output is queued, rustls returns it before it reads, so no input is
    /// needed.
    fn fetch(&mut self) {
        while self.tls.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = self.tls.process(&mut []).state else { return };
            encode(&mut data, &mut self.out);
        }
    }

    /// Extracts the state that [`refuse`](Self::refuse) needs from a record of ours, at `start` in `out`.
    fn note(&mut self, start: usize) {
        let record = &self.out[start..];
        // In TLS 1.3 a change_cipher_spec has no effect (RFC 8446 §D.4), and `refuse` does not use this flag.
        self.has_changed_cipher |= record.first() == Some(&20);
        self.server_random = self.server_random.or_else(|| server_random(record));
    }
}

/// Returns the random value of a record that begins with a ServerHello (RFC 5246 §7.4.1.3). The pattern is the record's
/// type and header, the message's type and length, and the version.
fn server_random(record: &[u8]) -> Option<HelloRandom> {
    let (&[22, _, _, _, _, 2, _, _, _, _, _], rest) = record.split_first_chunk()? else { return None };
    rest.first_chunk().copied()
}

/// The record at the front of a buffer, possibly incomplete.
struct Front {
    /// The number of its bytes that are in the buffer.
    len: usize,
    is_whole: bool,
}

/// Finds the first record in `bytes`. It does not validate the header; rustls does.
fn front(bytes: &[u8]) -> Front {
    let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Front { len: bytes.len(), is_whole: false };
    };
    let len = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    Front { len: len.min(bytes.len()), is_whole: bytes.len() >= len }
}

/// Appends a record of rustls's to `out`. The first call of `encode` only yields the required size.
fn encode<Side>(data: &mut EncodeTlsData<'_, Side>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(error)) = data.encode(&mut []) {
        out.resize(start + error.required_size, 0);
        // The buffer has the required size, so this cannot fail.
        let written = data.encode(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}

#[cfg(test)]
mod tests;
