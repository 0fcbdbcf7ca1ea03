//! Our TLS connection and rustls's buffered one, with the same bytes: both return the same content, and both end.
//!
//! Randomness and key exchange are fixed and Ed25519 signatures are deterministic, so both servers send the same bytes,
//! and the bytes of one client are valid for both.
#![no_main]

use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use causeway_engine::fuzzing::{Course, FuzzClient, FuzzServer, Seal};
use libfuzzer_sys::fuzz_target;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, ClientConfig, Error, NamedGroup, PeerMisbehaved, RootCertStore, ServerConfig, ServerConnection,
};

/// Largest number of records per input: less than the bounds of both implementations.
const RECORDS_MAX: usize = 24;

#[derive(Debug)]
struct Fixed;

impl SecureRandom for Fixed {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        bytes.fill(7);
        Ok(())
    }
}

impl SupportedKxGroup for Fixed {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Self))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for Fixed {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&[9; 32][..]))
    }

    fn pub_key(&self) -> &[u8] {
        &[5; 32]
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Configs {
    server: ServerConfig,
    client: ClientConfig,
}

static CONFIGS: LazyLock<[Configs; 2]> = LazyLock::new(|| {
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let params = CertificateParams::new(vec!["test".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let provider = CryptoProvider { kx_groups: vec![&Fixed], secure_random: &Fixed, ..default_provider() };
    let provider = Arc::new(provider);
    [&TLS12, &TLS13].map(|version| {
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .expect("a pair");
        server.enable_secret_extraction = true;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("a root");
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        client.resumption = rustls::client::Resumption::disabled();
        Configs { server, client }
    })
});

/// rustls's buffered connection.
struct Beside {
    tls: ServerConnection,
    content: Vec<u8>,
    is_closed: bool,
    error: Option<Error>,
}

impl Beside {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.error.is_none() && !self.is_closed {
            if self.tls.read_tls(&mut bytes).is_err() {
                return;
            }
            match self.tls.process_new_packets() {
                Ok(state) => self.is_closed = state.peer_has_closed(),
                Err(error) => self.error = Some(error),
            }
            // `read_to_end` returns an error when no further content is available yet.
            let _ = self.tls.reader().read_to_end(&mut self.content);
        }
    }

    fn out(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("into a vector");
        }
        out
    }

    /// Returns whether rustls rejected input that we accept: it has separate bounds for records that we bound together,
    /// checks the level of TLS 1.3 alerts, and parses the ClientHello of a renegotiation, which both decline.
    fn is_stricter(&self, is_tls13: bool) -> bool {
        matches!(
            self.error,
            Some(
                Error::PeerMisbehaved(
                    PeerMisbehaved::TooManyWarningAlertsReceived
                        | PeerMisbehaved::TooManyRenegotiationRequests
                        | PeerMisbehaved::TooManyEmptyFragments
                ) | Error::AlertReceived(AlertDescription::UserCanceled | AlertDescription::CloseNotify)
            )
        ) || !is_tls13 && matches!(self.error, Some(Error::InvalidMessage(_)))
    }
}

/// Returns the client's bytes after its handshake.
fn stream(mut input: &[u8], seal: &mut Seal) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..RECORDS_MAX {
        let [op, len, rest @ ..] = input else { break };
        let (content, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        input = rest;
        match op & 7 {
            0..=2 => stream.extend(seal.record(23, content)),
            // RFC 8446 §5.4: only application data may be empty. rustls accepts some other empty records.
            3..=6 if content.is_empty() => {}
            3 | 4 => stream.extend(seal.record(22, content)),
            5 => stream.extend(seal.record(21, content)),
            6 => stream.extend(seal.record(*op, content)),
            _ => stream.extend_from_slice(content),
        }
        if op & 0x80 != 0 {
            seal.next_keys();
        }
    }
    stream
}

fuzz_target!(|input: &[u8]| {
    let [version, cut, flip_at, flip, input @ ..] = input else { return };
    let is_tls13 = version & 1 == 1;
    let Configs { server, client } = &CONFIGS[usize::from(is_tls13)];
    let mut ours = FuzzServer::new(server);
    let tls = ServerConnection::new(Arc::new(server.clone())).expect("a configuration that serves");
    let mut theirs = Beside { tls, content: Vec::new(), is_closed: false, error: None };
    let mut client = FuzzClient::new(client, "test".try_into().expect("a name"));
    let cut = usize::from(*cut).max(1);

    let mut heard = Vec::new();
    for flight in 0..2 {
        let mut bytes = client.feed(&heard);
        // Change one byte of one flight, in a minority of inputs.
        if version >> 1 & 3 == flight + 1 && !bytes.is_empty() {
            let at = usize::from(*flip_at) % bytes.len();
            bytes[at] ^= flip;
        }
        bytes.chunks(cut).for_each(|bytes| ours.feed(bytes));
        theirs.feed(&bytes);
        heard = std::mem::take(&mut ours.out);
        let said = theirs.out();
        assert_eq!(ours.course() == Course::Faulted, theirs.error.is_some(), "{:?}", theirs.error);
        if theirs.error.is_some() {
            // An alert follows, except after an alert of the peer.
            assert!(!heard.is_empty() || matches!(theirs.error, Some(Error::AlertReceived(_))), "{:?}", theirs.error);
            return;
        }
        assert_eq!(heard, said, "two servers with one configuration differ");
    }
    if version >> 1 & 3 != 0 || ours.course() != Course::Open {
        return;
    }
    client.feed(&heard);
    let Some(mut seal) = client.seal() else { return };

    let bytes = stream(input, &mut seal);
    bytes.chunks(cut).for_each(|bytes| ours.feed(bytes));
    theirs.feed(&bytes);
    // Content before the rejected record must still be equal.
    if theirs.is_stricter(is_tls13) {
        assert!(ours.content.starts_with(&theirs.content));
        return;
    }
    assert_eq!(ours.content, theirs.content, "{:?} {:?}", ours.course(), theirs.error);
    assert_eq!(ours.course() == Course::Closed, theirs.is_closed, "{:?} {:?}", ours.course(), theirs.error);
    // We reject an unexpected message at its first byte, rustls at its last; rustls rejects a header before it is
    // complete.
    let is_header = matches!(theirs.error, Some(Error::InvalidMessage(_)));
    assert!(theirs.error.is_none() || is_header || ours.course() == Course::Faulted, "{:?}", theirs.error);
});
