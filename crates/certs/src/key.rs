//! Descriptions of private keys, for the error messages about keys that rustls does not accept.

use rustls::pki_types::PrivateKeyDer;
use x509_parser::der_parser::asn1_rs::{Any, FromDer as _, Integer, OctetString, Oid, Sequence};

/// Describes a key by the algorithm, size or curve in its DER (RFC 5958, RFC 8017, RFC 5915, RFC 8410), as far as that
/// parses.
pub(crate) fn kind(key: &PrivateKeyDer<'_>) -> String {
    let read = match key {
        PrivateKeyDer::Pkcs1(der) => rsa(der.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(der) => sec1(der.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(der) => pkcs8(der.secret_pkcs8_der()),
        _ => None,
    };
    read.unwrap_or_else(|| "a private key that is broken".to_owned())
}

fn rsa(der: &[u8]) -> Option<String> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&sequence.content).ok()?;
    let (_, modulus) = Integer::from_der(rest).ok()?;
    let digits = modulus.as_ref();
    // The size of a key is that of its modulus without leading zero bits (DER pads a positive INTEGER with a zero
    // byte).
    let zeros = digits.iter().take_while(|byte| **byte == 0).count();
    let first = digits.get(zeros)?;
    let bits = (digits.len() - zeros) * 8 - first.leading_zeros() as usize;
    Some(format!("an RSA key of {bits} bits"))
}

fn sec1(der: &[u8]) -> Option<String> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&sequence.content).ok()?;
    let (rest, _key) = OctetString::from_der(rest).ok()?;
    let Ok((_, parameters)) = Any::from_der(rest) else { return Some("an ECDSA key that names no curve".to_owned()) };
    Some(curve(parameters.data))
}

fn pkcs8(der: &[u8]) -> Option<String> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&sequence.content).ok()?;
    let (rest, algorithm) = Sequence::from_der(rest).ok()?;
    let (_, key) = OctetString::from_der(rest).ok()?;
    let (parameters, oid) = Oid::from_der(&algorithm.content).ok()?;
    // Supported algorithms appear here too: rustls has already rejected the key, so its content must be damaged.
    Some(match &*oid.to_id_string() {
        "1.2.840.113549.1.1.1" => rsa(key.as_ref())?,
        "1.2.840.113549.1.1.10" => "a key for RSASSA-PSS alone".to_owned(),
        "1.2.840.10045.2.1" => curve(parameters),
        "1.2.840.10040.4.1" => "a DSA key".to_owned(),
        "1.2.840.113549.1.3.1" => "a Diffie-Hellman key".to_owned(),
        "1.3.101.110" => "an X25519 key, which cannot sign".to_owned(),
        "1.3.101.111" => "an X448 key, which cannot sign".to_owned(),
        "1.3.101.112" => "an Ed25519 key that is broken".to_owned(),
        "1.3.101.113" => "an Ed448 key".to_owned(),
        other => format!("a private key of the algorithm {other}"),
    })
}

/// Describes an elliptic-curve key by its curve's object identifier (RFC 5480 §2.1.1).
fn curve(parameters: &[u8]) -> String {
    let Ok((_, oid)) = Oid::from_der(parameters) else { return "an ECDSA key whose curve has no name".to_owned() };
    match &*oid.to_id_string() {
        "1.2.840.10045.3.1.7" => "an ECDSA key on P-256 that is broken".to_owned(),
        "1.3.132.0.34" => "an ECDSA key on P-384 that is broken".to_owned(),
        "1.3.132.0.35" => "an ECDSA key on P-521 that is broken".to_owned(),
        "1.3.132.0.33" => "an ECDSA key on P-224".to_owned(),
        "1.3.132.0.10" => "an ECDSA key on secp256k1".to_owned(),
        other => format!("an ECDSA key on the curve {other}"),
    }
}
