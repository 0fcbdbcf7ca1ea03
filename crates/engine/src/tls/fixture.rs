//! A test bench: our sessions in both roles against rustls's buffered connections, in memory.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::UnbufferedServerConnection;
use rustls::{
    ClientConfig, ClientConnection, ContentType, Error, RootCertStore, ServerConfig, ServerConnection, SideData,
    SupportedProtocolVersion,
};

use super::record::{Sealer, whole};
use super::record_buffer::RecordBuffer;
use super::session::{Endpoint, Session};
use super::write_secret::WriteSecret;
use crate::blocks::{BLOCK_BYTES_MIN, Blocks};

pub(super) static TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub(super) static TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

pub(super) struct TlsFixture {
    pub(super) blocks: Blocks,
    server: ServerConfig,
    client: ClientConfig,
}

impl TlsFixture {
    pub(super) fn new(versions: &[&'static SupportedProtocolVersion]) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["test".into()]).unwrap().self_signed(&key).unwrap();
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(certificate.der().to_vec())).unwrap();
        let provider = Arc::new(default_provider());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        server.ticketer = Ticketer::new().unwrap();
        server.enable_secret_extraction = true;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.resumption = Resumption::in_memory_sessions(4);
        client.enable_secret_extraction = true;
        Self { blocks: Blocks::new(0, BLOCK_BYTES_MIN, Arc::default()), server, client }
    }

    /// Returns our server, rustls's client, and the key log of that client.
    pub(super) fn server(&self) -> (Session<UnbufferedServerConnection>, ClientConnection, Arc<WriteSecret>) {
        let (ours, theirs) = (Arc::new(WriteSecret::server()), Arc::new(WriteSecret::client()));
        let (mut server, mut client) = (self.server.clone(), self.client.clone());
        server.key_log = ours.clone();
        client.key_log = theirs.clone();
        let tls = UnbufferedServerConnection::new(Arc::new(server)).unwrap();
        let client = ClientConnection::new(Arc::new(client), "test".try_into().unwrap()).unwrap();
        (Session::new(tls, RecordBuffer::default(), ours), client, theirs)
    }

    /// Returns our client, rustls's server, and the key log of that server.
    pub(super) fn client(&self) -> (Session<UnbufferedClientConnection>, ServerConnection, Arc<WriteSecret>) {
        let (ours, theirs) = (Arc::new(WriteSecret::client()), Arc::new(WriteSecret::early_server()));
        let (mut server, mut client) = (self.server.clone(), self.client.clone());
        client.key_log = ours.clone();
        server.key_log = theirs.clone();
        let tls = UnbufferedClientConnection::new(Arc::new(client), "test".try_into().unwrap()).unwrap();
        (Session::new(tls, RecordBuffer::default(), ours), ServerConnection::new(Arc::new(server)).unwrap(), theirs)
    }

    /// Appends `bytes` to the session's input and advances the handshake.
    pub(super) fn feed<E: Endpoint>(&self, session: &mut Session<E>, bytes: &[u8]) -> Result<(), Error> {
        let sealed = [session.inbound.sealed(), bytes].concat();
        session.inbound = RecordBuffer::default();
        session.inbound.keep_sealed(&sealed, &self.blocks);
        session.advance()
    }
}

/// Returns all bytes that rustls has queued for sending.
pub(super) fn sent<S: SideData>(peer: &mut rustls::ConnectionCommon<S>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while peer.wants_write() {
        peer.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Passes our output to rustls and clears it.
pub(super) fn hear<S: SideData>(peer: &mut rustls::ConnectionCommon<S>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut left = &out[..];
    let mut result = Ok(());
    while !left.is_empty() && result.is_ok() {
        peer.read_tls(&mut left).unwrap();
        result = peer.process_new_packets().map(|_| ());
    }
    out.clear();
    result
}

/// Splits `bytes` into complete records.
pub(super) fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some(len) = whole(bytes).unwrap() {
        let (record, rest) = bytes.split_at(len);
        records.push(record.to_vec());
        bytes = rest;
    }
    assert!(bytes.is_empty());
    records
}

/// Encodes an unprotected record.
pub(super) fn plain(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3, 0, u8::try_from(content.len()).unwrap()][..], content].concat()
}

/// Seals a record into a new vector.
pub(super) fn sealed(sealer: &mut Sealer, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 20_000];
    let len = sealer.seal(ContentType::from(kind), content, &mut record).unwrap();
    record.truncate(len);
    record
}
