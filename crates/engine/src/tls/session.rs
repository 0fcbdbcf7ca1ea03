//! rustls's side of a handshake, in either role.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedConnectionCommon, UnbufferedStatus};

use super::inbound::Inbound;

/// A role of rustls, as the handshake drives it.
pub(super) trait Endpoint: std::ops::Deref<Target = UnbufferedConnectionCommon<Self::Data>> {
    type Data;

    /// Takes the next step with these octets.
    fn process<'c, 'i>(&'c mut self, octets: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Endpoint for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, octets: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(octets)
    }
}

impl Endpoint for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, octets: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(octets)
    }
}

/// A handshake, whole, so that it may run elsewhere.
pub(super) struct Session<E> {
    pub(super) tls: E,
    pub(super) inbound: Inbound,
    pub(super) out: Vec<u8>,
    /// The peer sends no more.
    pub(super) is_over: bool,
}

impl<E: Endpoint> Session<E> {
    /// Nothing was said yet; what came lies in `inbound`.
    pub(super) fn new(tls: E, inbound: Inbound) -> Self {
        Self { tls, inbound, out: Vec::new(), is_over: false }
    }

    /// Takes rustls as far as it comes with what is there. What it has to say, an alert too, is in `out` then.
    pub(super) fn advance(&mut self) -> Result<(), rustls::Error> {
        let mut fault = None;
        loop {
            // Behind the handshake, octets are for the record layer of our own. What failed once is not looked at again: rustls
            // would have a second alert for it.
            let is_wanted = fault.is_none() && self.tls.is_handshaking();
            let octets = if is_wanted { self.inbound.sealed_mut() } else { &mut [] };
            let UnbufferedStatus { mut discard, state } = self.tls.process(octets);
            let mut early = Vec::new();
            let goes_on = match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, &mut self.out);
                    true
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    true
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    // Where rustls has nothing to say behind the handshake, it goes on to what came with its end.
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        early.extend_from_slice(record.payload);
                    }
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_over = true;
                    true
                }
                Ok(_) => false,
                // Once more, for the alert.
                Err(error) if fault.is_none() => {
                    fault = Some(error);
                    true
                }
                Err(_) => false,
            };
            self.inbound.consume(discard);
            self.inbound.keep_plain(&early);
            if !goes_on {
                return fault.map_or(Ok(()), Err);
            }
        }
    }
}

/// Appends a message to `out`.
fn encode<Side>(data: &mut EncodeTlsData<'_, Side>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(error)) = data.encode(&mut []) {
        out.resize(start + error.required_size, 0);
        // It fits by now.
        let written = data.encode(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}
