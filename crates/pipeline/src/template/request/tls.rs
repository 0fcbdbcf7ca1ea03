//! Placeholders of the TLS handshake and the client's certificate. All are empty on a cleartext connection.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;

use crate::context::{AlternativeName, ClientCertificate, TlsFacts};

/// A parameter of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum OfTls {
    Version,
    CipherSuite,
    Resumed,
    Protocol,
    ProtocolMutual,
    ServerName,
    EncryptedHello,
    Client(OfCertificate),
}

/// A part of the client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum OfCertificate {
    Fingerprint,
    PublicKey,
    PublicKeySha256,
    Issuer,
    Serial,
    Subject,
    Pem,
    Base64,
    Names(AlternativeName),
    Name(AlternativeName, usize),
}

impl OfTls {
    /// Compiles the rest of a name after `http.request.tls.`, without regard to case, as in Caddy.
    pub(super) fn find(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if let Some(part) = name.strip_prefix("client.") {
            return OfCertificate::find(part).map(Self::Client);
        }
        Some(match &*name {
            "version" => Self::Version,
            "cipher_suite" => Self::CipherSuite,
            "resumed" => Self::Resumed,
            "proto" => Self::Protocol,
            "proto_mutual" => Self::ProtocolMutual,
            "server_name" => Self::ServerName,
            "ech" => Self::EncryptedHello,
            _ => return None,
        })
    }

    pub(super) fn render(self, facts: &TlsFacts, out: &mut Vec<u8>) {
        let text = match self {
            Self::Version => facts.version,
            Self::CipherSuite => facts.cipher_suite,
            Self::Resumed => truth(facts.resumed),
            Self::Protocol => facts.protocol,
            // Deprecated in Go's crypto/tls, and always true.
            Self::ProtocolMutual => truth(true),
            Self::ServerName => facts.server_name.as_deref().unwrap_or_default(),
            // No listener accepts Encrypted Client Hello yet.
            Self::EncryptedHello => truth(false),
            // DEVIATES Caddy 2.11: these are empty if the client sent no certificate. Caddy shows the parts of
            // an empty
            // certificate: `<nil>`, `[]`, the hash of no bytes. A configuration that tests for emptiness would take
            // every client
            // for one with a certificate.
            Self::Client(part) => return facts.client_certificate.iter().for_each(|client| part.render(client, out)),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

impl OfCertificate {
    fn find(name: &str) -> Option<Self> {
        if let Some(names) = name.strip_prefix("san.") {
            let (kind, index) = match names.split_once('.') {
                Some((kind, index)) => (kind, Some(index.parse().ok()?)),
                None => (names, None),
            };
            let kind = match kind {
                "dns_names" => AlternativeName::Dns,
                "emails" => AlternativeName::Email,
                "ips" => AlternativeName::Ip,
                "uris" => AlternativeName::Uri,
                _ => return None,
            };
            return Some(index.map_or(Self::Names(kind), |index| Self::Name(kind, index)));
        }
        Some(match name {
            "fingerprint" => Self::Fingerprint,
            "public_key" => Self::PublicKey,
            "public_key_sha256" => Self::PublicKeySha256,
            "issuer" => Self::Issuer,
            "serial" => Self::Serial,
            "subject" => Self::Subject,
            "certificate_pem" => Self::Pem,
            "certificate_der_base64" => Self::Base64,
            _ => return None,
        })
    }

    fn render(self, client: &ClientCertificate, out: &mut Vec<u8>) {
        let text = match self {
            Self::Issuer => client.issuer(),
            Self::Serial => client.serial(),
            Self::Subject => client.subject(),
            Self::Name(kind, index) => client.alternative_names(kind).get(index).map_or("", |name| name),
            // Go's notation of a list.
            Self::Names(kind) => {
                out.push(b'[');
                for (index, name) in client.alternative_names(kind).iter().enumerate() {
                    if index > 0 {
                        out.push(b' ');
                    }
                    out.extend_from_slice(name.as_bytes());
                }
                "]"
            }
            Self::Fingerprint => return hexadecimal(client.fingerprint(), out),
            Self::PublicKey => return hexadecimal(client.public_key().unwrap_or_default(), out),
            Self::PublicKeySha256 => {
                return hexadecimal(client.public_key_sha256().map_or(&[][..], |hash| hash), out);
            }
            Self::Base64 => return base64(client.der(), out),
            // RFC 7468 §2: lines of 64 characters.
            Self::Pem => {
                out.extend_from_slice(b"-----BEGIN CERTIFICATE-----\n");
                for line in client.der().chunks(48) {
                    base64(line, out);
                    out.push(b'\n');
                }
                "-----END CERTIFICATE-----\n"
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn truth(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}

fn hexadecimal(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    HEXLOWER.encode_mut(bytes, &mut out[start..]);
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]).expect("there is room for four in three");
    out.truncate(start + written);
}
