//! The load generator for handshakes, `bench handshakes`: threads that connect over TLS 1.3, request once and
//! disconnect.
//!
//! It verifies neither chain nor signature, so that it is faster than the servers: their CPU time is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, NamedGroup, SignatureScheme, StreamOwned,
};
use serde::{Deserialize, Serialize};

use crate::request;
use crate::sample::Usage;

/// Time limit of a connect, a read or a write.
const PATIENCE: Duration = Duration::from_secs(10);

/// The key exchange of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// X25519.
    X25519,
    /// X25519MLKEM768, the hybrid with ML-KEM that browsers offer first.
    Hybrid,
}

impl Exchange {
    fn group(self) -> NamedGroup {
        match self {
            Self::X25519 => NamedGroup::X25519,
            Self::Hybrid => NamedGroup::X25519MLKEM768,
        }
    }
}

/// The connections to make, and the processes to watch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandshakePlan {
    /// The server's address.
    pub address: SocketAddr,
    /// The server name.
    pub name: String,
    /// The key exchange that must be negotiated.
    pub exchange: Exchange,
    /// Whether all handshakes resume a session, or none.
    pub resumed: bool,
    /// Number of threads, each with one connection at a time.
    pub threads: usize,
    /// Number of measured connections.
    pub connections: usize,
    /// Processes whose CPU time is read.
    pub processes: Vec<u32>,
}

/// The result of a [`HandshakePlan`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandshakeReport {
    /// Measured connections.
    pub connections: u64,
    /// Usage of the watched processes during the measurement.
    pub usage: Usage,
}

/// Runs `plan` to its end. A failure of any connection fails the run.
pub fn run(plan: &HandshakePlan) -> Result<HandshakeReport> {
    let clients: Vec<_> = (0..plan.threads).map(|_| Client::new(plan)).collect::<Result<_>>()?;
    for client in &clients {
        // Fills the server's pools, and for resumption the client's session.
        client.request(plan.resumed.then_some(HandshakeKind::Full))?;
    }
    let before = Usage::read(&plan.processes)?;
    let share = plan.connections / plan.threads;
    let kind = if plan.resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|client| scope.spawn(move || (0..share).try_for_each(|_| client.request(Some(kind)))))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a client thread does not panic"))
    })?;
    let usage = Usage::read(&plan.processes)?.since(&before);
    Ok(HandshakeReport { connections: (share * plan.threads) as u64, usage })
}

/// A client with its own sessions.
pub struct Client {
    address: SocketAddr,
    name: ServerName<'static>,
    exchange: Exchange,
    config: Arc<ClientConfig>,
}

impl Client {
    fn new(plan: &HandshakePlan) -> Result<Self> {
        let sessions = if plan.resumed { Resumption::in_memory_sessions(32) } else { Resumption::disabled() };
        Self::with(plan.address, &plan.name, plan.exchange, sessions)
    }

    /// Creates a client that never resumes.
    pub fn full(address: SocketAddr, name: &str, exchange: Exchange) -> Result<Self> {
        Self::with(address, name, exchange, Resumption::disabled())
    }

    fn with(address: SocketAddr, name: &str, exchange: Exchange, sessions: Resumption) -> Result<Self> {
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups.retain(|group| group.name() == exchange.group());
        ensure!(provider.kx_groups.len() == 1, "the client does not support {:?}", exchange.group());
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified))
            .with_no_client_auth();
        config.resumption = sessions;
        Ok(Self { address, name: ServerName::try_from(name.to_owned())?, exchange, config: Arc::new(config) })
    }

    /// Connects, requests the short response and disconnects. `kind` is the required kind of handshake, if any.
    pub fn request(&self, kind: Option<HandshakeKind>) -> Result<()> {
        let mut stream = self.connect()?;
        let found = stream.conn.handshake_kind().context("the handshake is not over")?;
        ensure!(kind.is_none_or(|kind| kind == found), "found a handshake of the kind {found:?}, expected {kind:?}");
        let text = request::minimal("/").replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
        exchange(&mut stream, &text)
    }

    /// Connects and completes the handshake.
    pub fn connect(&self) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE).context("connecting")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Closing resets the connection, which leaves no socket in TIME-WAIT: thousands of them would use up the ports.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).context("the handshake")?;
        }
        let found = stream.conn.negotiated_key_exchange_group().map(|group| group.name());
        ensure!(found == Some(self.exchange.group()), "found the key exchange {found:?}");
        Ok(stream)
    }
}

/// Sends a request and reads the short response.
pub fn exchange(stream: &mut StreamOwned<ClientConnection, TcpStream>, text: &str) -> Result<()> {
    stream.write_all(text.as_bytes())?;
    let mut response = Vec::new();
    let mut piece = [0; 2048];
    while !response.ends_with(answer::BODY.as_bytes()) {
        let count = stream.read(&mut piece).context("reading the response")?;
        ensure!(count > 0, "found the response {:?}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&piece[..count]);
    }
    ensure!(response.starts_with(b"HTTP/1.1 200"), "found {:?}", String::from_utf8_lossy(&response));
    Ok(())
}

/// Accepts every certificate and signature.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
