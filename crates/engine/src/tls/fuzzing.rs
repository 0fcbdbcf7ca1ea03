//! A connection without sockets, for the fuzz target `tls_records`: our server, and a client that seals arbitrary
//! records.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ContentType, ServerConfig};

use super::record::{SEALED_BYTES, Sealer};
use super::record_buffer::RecordBuffer;
use super::records::{Keys, ReceiveEnd, Records};
use super::session::{Endpoint, Session};
use super::write_secret::WriteSecret;
use crate::blocks::{BLOCK_BYTES_MIN, Blocks};

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// The handshake is not complete.
    Handshake,
    /// The server accepts content.
    Open,
    /// The peer has closed the connection.
    Closed,
    /// An alert, received or sent, has ended the connection.
    Faulted,
}

/// Our side of a connection: a rustls handshake, then our record layer.
pub struct FuzzServer {
    blocks: Blocks,
    phase: ServerPhase,
    /// All content received so far.
    pub content: Vec<u8>,
    /// Handshake records to send to the client.
    pub out: Vec<u8>,
}

enum ServerPhase {
    Handshake(Box<Session<UnbufferedServerConnection>>),
    Open(Box<Records>, Vec<u8>),
    Failed,
}

impl FuzzServer {
    /// Creates a server before its handshake. Panics on a configuration without a certificate resolver.
    pub fn new(config: &ServerConfig) -> Self {
        let secret = Arc::new(WriteSecret::server());
        let mut config = config.clone();
        config.key_log = secret.clone();
        let tls = UnbufferedServerConnection::new(Arc::new(config)).expect("a configuration that serves");
        let phase = ServerPhase::Handshake(Box::new(Session::new(tls, RecordBuffer::default(), secret)));
        Self { blocks: blocks(), phase, content: Vec::new(), out: Vec::new() }
    }

    /// Receives bytes: continues the handshake or opens records.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.phase = match std::mem::replace(&mut self.phase, ServerPhase::Failed) {
            ServerPhase::Handshake(mut session) => {
                let result = feed(&mut session, bytes, &self.blocks);
                self.out.append(&mut session.out);
                match result {
                    Err(_) => ServerPhase::Failed,
                    Ok(()) if session.tls.is_handshaking() => ServerPhase::Handshake(session),
                    Ok(()) => {
                        let Session { tls, inbound, .. } = *session;
                        let (secrets, keys) = tls.dangerous_into_kernel_connection().expect("its handshake is over");
                        let records = Records::new(secrets, Keys::Server(keys)).expect("keys of its suite");
                        open(Box::new(records), inbound.sealed().to_vec(), &mut self.content)
                    }
                }
            }
            ServerPhase::Open(records, mut sealed) => {
                sealed.extend_from_slice(bytes);
                open(records, sealed, &mut self.content)
            }
            ServerPhase::Failed => ServerPhase::Failed,
        };
    }

    /// Returns the connection's state.
    pub fn course(&self) -> Course {
        match &self.phase {
            ServerPhase::Handshake(_) => Course::Handshake,
            ServerPhase::Failed => Course::Faulted,
            ServerPhase::Open(records, _) => match records.end() {
                None => Course::Open,
                Some(ReceiveEnd::CloseNotify | ReceiveEnd::Cut) => Course::Closed,
                Some(ReceiveEnd::PeerAborted(_) | ReceiveEnd::Fault(_)) => Course::Faulted,
            },
        }
    }
}

fn open(mut records: Box<Records>, mut sealed: Vec<u8>, content: &mut Vec<u8>) -> ServerPhase {
    let mut at = 0;
    while let Some(len) = records.whole(&sealed[at..]) {
        if let Some(range) = records.open(&mut sealed[at..at + len]) {
            content.extend_from_slice(&sealed[at..][range]);
        }
        at += len;
    }
    sealed.drain(..at);
    ServerPhase::Open(records, sealed)
}

/// A client during its handshake; [`seal`](Self::seal) then yields its keys.
pub struct FuzzClient {
    blocks: Blocks,
    session: Session<UnbufferedClientConnection>,
}

/// Seals records under a client's keys.
pub struct Seal {
    sealer: Sealer,
    keys: rustls::kernel::KernelConnection<rustls::client::ClientConnectionData>,
}

impl FuzzClient {
    /// Creates a client before its handshake.
    pub fn new(config: &ClientConfig, name: ServerName<'static>) -> Self {
        let secret = Arc::new(WriteSecret::client());
        let mut config = config.clone();
        config.key_log = secret.clone();
        let tls = UnbufferedClientConnection::new(Arc::new(config), name).expect("a configuration that connects");
        Self { blocks: blocks(), session: Session::new(tls, RecordBuffer::default(), secret) }
    }

    /// Receives bytes and returns the client's output, including an alert.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        // The fuzzer may change the ClientHello on its way; the server then has other keys, and this fails.
        let _ = feed(&mut self.session, bytes, &self.blocks);
        std::mem::take(&mut self.session.out)
    }

    /// Returns a sealer with the client's keys, or `None` before the handshake is complete.
    pub fn seal(self) -> Option<Seal> {
        let (secrets, keys) = self.session.tls.dangerous_into_kernel_connection().ok()?;
        let sealer = Sealer::new(keys.negotiated_cipher_suite(), secrets.tx.0, &secrets.tx.1)?;
        Some(Seal { sealer, keys })
    }
}

impl Seal {
    /// Seals one record of this type and content; neither needs to be valid.
    pub fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = vec![0; SEALED_BYTES];
        let len = self.sealer.seal(ContentType::from(kind), content, &mut record).expect("few records");
        record.truncate(len);
        record
    }

    /// Seals later records under the next keys. No effect in TLS 1.2, which has none.
    pub fn next_keys(&mut self) {
        if let Ok((sequence, secrets)) = self.keys.update_tx_secret() {
            let suite = self.keys.negotiated_cipher_suite();
            self.sealer = Sealer::new(suite, sequence, &secrets).expect("keys of its suite");
        }
    }
}

fn blocks() -> Blocks {
    Blocks::new(0, BLOCK_BYTES_MIN, Arc::default())
}

fn feed<E: Endpoint>(session: &mut Session<E>, bytes: &[u8], blocks: &Blocks) -> Result<(), rustls::Error> {
    let sealed = [session.inbound.sealed(), bytes].concat();
    session.inbound = RecordBuffer::default();
    if !sealed.is_empty() {
        session.inbound.keep_sealed(&sealed, blocks);
    }
    session.advance()
}
