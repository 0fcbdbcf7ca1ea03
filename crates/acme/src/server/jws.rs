//! Signed requests: JWS in the flattened JSON form (RFC 7515 §7.2.2), with the headers and keys that ACME allows (RFC
//! 8555 §6.2).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::problem::Problem;

/// The signature algorithms of requests.
pub(super) const ALGORITHMS: &[&str] = &["ES256", "ES384", "EdDSA", "RS256"];
/// The largest modulus of an RSA key, in bytes. Larger ones make a verification expensive.
const MODULUS_BYTES_MAX: usize = 512;
const EXPONENT_BYTES_MAX: usize = 8;

/// A request whose signature is not yet verified.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) signer: Signer,
    pub(super) nonce: String,
    pub(super) url: String,
    /// Empty for a POST-as-GET (RFC 8555 §6.3).
    pub(super) payload: Vec<u8>,
    algorithm: String,
    signed: String,
    signature: Vec<u8>,
}

/// The key that signed a request.
#[derive(Debug)]
pub(super) enum Signer {
    /// The key itself: new accounts, and revocations with a certificate's key.
    Key(Jwk),
    /// The URL of an account.
    Account(String),
}

impl Envelope {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let object: Value = serde_json::from_slice(body)
            .map_err(|error| Problem::malformed(format!("the body is not JSON: {error}")))?;
        Self::read(&object)
    }

    /// Reads an object with the members `protected`, `payload` and `signature`.
    pub(super) fn read(object: &Value) -> Result<Self, Problem> {
        let text = |name: &str| {
            let found = object.get(name).and_then(Value::as_str);
            found.ok_or_else(|| Problem::malformed(format!("the JWS has no text {name:?}")))
        };
        let (protected, payload, signature) = (text("protected")?, text("payload")?, text("signature")?);
        let header: Value = serde_json::from_slice(&decode("protected", protected)?)
            .map_err(|error| Problem::malformed(format!("the protected header is not JSON: {error}")))?;
        let member = |name: &str| header.get(name).and_then(Value::as_str);
        // RFC 8555 §6.2: exactly one of the two.
        let signer = match (header.get("jwk"), member("kid")) {
            (Some(jwk), None) => Signer::Key(Jwk::read(jwk)?),
            (None, Some(url)) => Signer::Account(url.to_owned()),
            _ => return Err(Problem::malformed("the protected header must have either `jwk` or `kid`")),
        };
        if header.get("crit").is_some() || header.get("b64").is_some() {
            return Err(Problem::malformed("the protected header has an extension that this server does not know"));
        }
        Ok(Self {
            signer,
            nonce: member("nonce").unwrap_or_default().to_owned(),
            url: member("url").unwrap_or_default().to_owned(),
            payload: decode("payload", payload)?,
            algorithm: member("alg").unwrap_or_default().to_owned(),
            signed: format!("{protected}.{payload}"),
            signature: decode("signature", signature)?,
        })
    }

    /// Verifies the signature. The algorithm must be that of the key.
    pub(super) fn verify(&self, key: &Jwk) -> Result<(), Problem> {
        if !ALGORITHMS.contains(&self.algorithm.as_str()) || self.algorithm != key.algorithm() {
            let detail =
                format!("found the algorithm {:?}, expected {:?} for this key", self.algorithm, key.algorithm());
            return Err(Problem::new("badSignatureAlgorithm", 400, detail));
        }
        if key.verifies(self.signed.as_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(Problem::malformed("the signature is not that of the key"))
        }
    }

    /// Returns the payload as a JSON object.
    pub(super) fn payload_object(&self) -> Result<Value, Problem> {
        let payload: Value = serde_json::from_slice(&self.payload)
            .map_err(|error| Problem::malformed(format!("the payload is not JSON: {error}")))?;
        if payload.is_object() { Ok(payload) } else { Err(Problem::malformed("the payload is not an object")) }
    }
}

/// A public key (RFC 7517, RFC 8037).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Jwk {
    /// The uncompressed point on P-256.
    P256(Vec<u8>),
    /// The uncompressed point on P-384.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl Jwk {
    pub(super) fn read(value: &Value) -> Result<Self, Problem> {
        let bad = |detail: &str| Problem::new("badPublicKey", 400, detail);
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str, bytes_max: usize| {
            let number = BASE64_URL_SAFE_NO_PAD.decode(text(name)).unwrap_or_default();
            let is_fit = (1..=bytes_max).contains(&number.len());
            if is_fit {
                Ok(number)
            } else {
                Err(bad(&format!("the key's member {name:?} is missing or of a wrong size")))
            }
        };
        if value.get("d").is_some() {
            return Err(bad("the key is a private one"));
        }
        let point = |bytes: usize| {
            let (x, y) = (number("x", bytes)?, number("y", bytes)?);
            // RFC 7518 §6.2.1.2: both have the full length of the field.
            if x.len() != bytes || y.len() != bytes {
                return Err(bad("the key's coordinates are too short"));
            }
            Ok([&[4][..], &x, &y].concat())
        };
        match (text("kty"), text("crv")) {
            ("EC", "P-256") => Ok(Self::P256(point(32)?)),
            ("EC", "P-384") => Ok(Self::P384(point(48)?)),
            ("OKP", "Ed25519") => Ok(Self::Ed25519(number("x", 32)?)),
            ("RSA", _) => {
                let (modulus, exponent) = (number("n", MODULUS_BYTES_MAX)?, number("e", EXPONENT_BYTES_MAX)?);
                Ok(Self::Rsa { modulus, exponent })
            }
            _ => Err(bad("found another kind of key, expected EC on P-256 or P-384, Ed25519, or RSA")),
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa { .. } => "RS256",
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let plain = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match self {
            Self::P256(point) => plain(&ECDSA_P256_SHA256_FIXED, point),
            Self::P384(point) => plain(&ECDSA_P384_SHA384_FIXED, point),
            Self::Ed25519(key) => plain(&ED25519, key),
            Self::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
        }
    }

    /// Whether `bits`, the content of a certificate's subjectPublicKey, hold this key.
    pub(super) fn is_subject_key(&self, bits: &[u8]) -> bool {
        match self {
            Self::P256(key) | Self::P384(key) | Self::Ed25519(key) => **key == *bits,
            Self::Rsa { modulus, exponent } => rsa_bits(modulus, exponent) == bits,
        }
    }

    /// The members of RFC 7638 §3.2, in lexicographic order.
    pub(super) fn to_json(&self) -> Value {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let curve = |name: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at(point.len() / 2);
            json!({ "crv": name, "kty": "EC", "x": encode(x), "y": encode(y) })
        };
        match self {
            Self::P256(point) => curve("P-256", point),
            Self::P384(point) => curve("P-384", point),
            Self::Ed25519(key) => json!({ "crv": "Ed25519", "kty": "OKP", "x": encode(key) }),
            Self::Rsa { modulus, exponent } => json!({ "e": encode(exponent), "kty": "RSA", "n": encode(modulus) }),
        }
    }

    fn digest(&self) -> [u8; 32] {
        let mut canonical = self.to_json();
        canonical.sort_all_objects();
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, canonical.to_string().as_bytes()).as_ref());
        bytes
    }

    /// The thumbprint of RFC 7638, as in key authorizations.
    pub(super) fn thumbprint(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.digest())
    }

    /// The thumbprint in lower-case hexadecimal, for keys of a storage that ignores case.
    pub(super) fn fingerprint(&self) -> String {
        HEXLOWER.encode(&self.digest())
    }
}

/// Encodes RSAPublicKey (RFC 8017 A.1.1).
fn rsa_bits(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let integer = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let mut content = bytes[zeros..].to_vec();
        if content.first().is_none_or(|byte| byte & 0x80 != 0) {
            content.insert(0, 0);
        }
        tagged(0x02, content)
    };
    tagged(0x30, [integer(modulus), integer(exponent)].concat())
}

/// Encodes a DER value of at most 65 535 bytes.
fn tagged(tag: u8, content: Vec<u8>) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let head = match (high, low) {
        (0, low) if low < 0x80 => vec![tag, low],
        (0, low) => vec![tag, 0x81, low],
        (high, low) => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}

/// Decodes base64url without padding (RFC 8555 §6.1).
pub(super) fn decode(name: &str, text: &str) -> Result<Vec<u8>, Problem> {
    BASE64_URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| Problem::malformed(format!("{name:?} is not base64url without padding")))
}
