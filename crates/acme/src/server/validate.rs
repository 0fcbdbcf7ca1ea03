//! Verifies that a client controls a name: requests its answer to a challenge.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::policy::Identifier;
use super::problem::Problem;
use super::{ChallengeKind, Ports};
use crate::challenge::server_name;
use crate::dns::{Resolvers, absolute};
use crate::http::any_certificate::AnyCertificate;
use crate::http::{HttpClient, ProxyChoice, Redirects, StatusCode, tls_builder};

/// Concurrent validations of the process; further ones wait.
pub(super) const CONCURRENT_MAX: usize = 64;
/// Time limit of one validation.
const VALIDATION_TIMEOUT: Duration = Duration::from_secs(20);
/// Bounds of an HTTP-01 answer: a key authorization has about 90 bytes.
const ANSWER_BYTES_MAX: usize = 4096;
const REDIRECTS_MAX: usize = 10;
/// id-pe-acmeIdentifier (RFC 8737 §3), and the tag and length of its OCTET STRING.
const ACME_IDENTIFIER: &str = "1.3.6.1.5.5.7.1.31";
const DIGEST_HEAD: [u8; 2] = [0x04, 0x20];
const ALPN: &[u8] = b"acme-tls/1";

pub(super) static SLOTS: Semaphore = Semaphore::const_new(CONCURRENT_MAX);

/// A challenge that a client is ready for.
#[derive(Debug, Clone)]
pub(super) struct Validation {
    pub(super) identifier: Identifier,
    pub(super) kind: ChallengeKind,
    pub(super) token: String,
    pub(super) key_authorization: String,
    pub(super) ports: Ports,
    pub(super) resolvers: Vec<String>,
}

impl Validation {
    /// Requests the client's answer and compares it.
    pub(super) async fn run(self) -> Result<(), Problem> {
        let work = async {
            match self.kind {
                ChallengeKind::Http => self.http().await,
                ChallengeKind::TlsAlpn => self.tls_alpn().await,
                ChallengeKind::Dns => self.dns().await,
            }
        };
        let slow = || connection(format!("no answer within {} s", VALIDATION_TIMEOUT.as_secs()));
        tokio::time::timeout(VALIDATION_TIMEOUT, work).await.unwrap_or_else(|_| Err(slow()))
    }

    /// RFC 8555 §8.3.
    async fn http(&self) -> Result<(), Problem> {
        let host = match &self.identifier {
            Identifier::Ip(IpAddr::V6(ip)) => format!("[{ip}]"),
            other => other.base(),
        };
        let port = if self.ports.http == 80 { String::new() } else { format!(":{}", self.ports.http) };
        let mut url = format!("http://{host}{port}/.well-known/acme-challenge/{}", self.token);
        // RFC 8555 §10.2 counts on no certificate: the client may redirect to HTTPS before it has the one that it
        // orders here.
        let client = HttpClient::unverified(&ProxyChoice::Direct).map_err(|error| Problem::internal(&error))?;
        let client = client.timeout(VALIDATION_TIMEOUT).body_bytes_max(ANSWER_BYTES_MAX);
        let response = client.get_following(&mut url, REDIRECTS_MAX, Redirects::All).await;
        let response = response.map_err(|error| connection(format!("{url}: {error}")))?;
        if response.status != StatusCode::OK {
            let status = response.status.as_u16();
            return Err(Problem::unauthorized(format!("{url}: found the status {status}, expected 200")));
        }
        // Trailing whitespace is allowed.
        let found = response.body.trim_ascii_end();
        if verify_slices_are_equal(found, self.key_authorization.as_bytes()).is_ok() {
            Ok(())
        } else {
            Err(Problem::unauthorized(format!("{url}: found another text than the key authorization")))
        }
    }

    /// RFC 8555 §8.4.
    async fn dns(&self) -> Result<(), Problem> {
        let name = format!("_acme-challenge.{}.", self.identifier.base());
        let failed = |error| Problem::new("dns", 400, format!("{name}: {error}"));
        let resolvers = Resolvers::new(&self.resolvers).await.map_err(failed)?;
        let texts = resolvers.texts(&absolute(&name).map_err(failed)?).await.map_err(failed)?;
        let wanted = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, self.key_authorization.as_bytes()));
        match texts.iter().any(|text| *text == wanted.as_bytes()) {
            true => Ok(()),
            false => Err(Problem::unauthorized(format!(
                "{name}: none of its {} TXT records is the digest of the key authorization",
                texts.len()
            ))),
        }
    }

    /// RFC 8737 §3; for addresses RFC 8738 §6.
    async fn tls_alpn(&self) -> Result<(), Problem> {
        let name = server_name(&self.identifier.value());
        let host = self.identifier.base();
        let failed = |error: &dyn std::fmt::Display| connection(format!("{host}: {error}"));
        let stream = TcpStream::connect((host.as_str(), self.ports.tls_alpn)).await.map_err(|error| failed(&error))?;
        // The certificate is self-signed, and its proof is the digest in an extension that is critical, which the
        // verifiers of rustls refuse to parse.
        let mut config =
            tls_builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate)).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let name = ServerName::try_from(name).map_err(|error| Problem::internal(&error))?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(|error| Problem::internal(&error))?;
        let session = shake(session, stream).await.map_err(|error| failed(&error))?;
        let wrong = |why: &str| Err(Problem::unauthorized(format!("{host}: {why}")));
        if session.alpn_protocol() != Some(ALPN) {
            return wrong("the server did not select the protocol acme-tls/1");
        }
        let Some([leaf]) = session.peer_certificates() else {
            return wrong("found none or several certificates, expected one");
        };
        let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return wrong("the certificate cannot be read") };
        let names = leaf.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.clone()).unwrap_or_default();
        let is_it = match (&names[..], &self.identifier) {
            ([GeneralName::DNSName(found)], Identifier::Dns(name)) => found.eq_ignore_ascii_case(name),
            ([GeneralName::IPAddress(found)], Identifier::Ip(IpAddr::V4(ip))) => **found == ip.octets(),
            ([GeneralName::IPAddress(found)], Identifier::Ip(IpAddr::V6(ip))) => **found == ip.octets(),
            _ => false,
        };
        if !is_it {
            return wrong("the certificate does not have exactly this name");
        }
        let proof = leaf.extensions().iter().find(|extension| extension.oid.to_id_string() == ACME_IDENTIFIER);
        let wanted = [&DIGEST_HEAD[..], digest(&SHA256, self.key_authorization.as_bytes()).as_ref()].concat();
        match proof {
            Some(proof) if proof.critical && verify_slices_are_equal(proof.value, &wanted).is_ok() => Ok(()),
            Some(proof) if !proof.critical => wrong("the extension acmeIdentifier is not critical"),
            Some(_) => wrong("the extension acmeIdentifier holds another digest than that of the key authorization"),
            None => wrong("the certificate has no extension acmeIdentifier"),
        }
    }
}

fn connection(detail: impl Into<String>) -> Problem {
    Problem::new("connection", 400, detail)
}

/// Runs a handshake to its end.
async fn shake(mut session: ClientConnection, mut stream: TcpStream) -> std::io::Result<ClientConnection> {
    let mut piece = [0; 4096];
    while session.is_handshaking() || session.wants_write() {
        let mut out = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut out)?;
        }
        stream.write_all(&out).await?;
        if !session.is_handshaking() {
            break;
        }
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the connection ended in the handshake",
            ));
        }
        let mut read = &piece[..count];
        while !read.is_empty() {
            session.read_tls(&mut read)?;
            session.process_new_packets().map_err(std::io::Error::other)?;
        }
    }
    Ok(session)
}
