#![doc = include_str!("../README.md")]

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustls_pki_types::pem::{self, PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The reason why a PEM text cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line at fault, from 1, if it is one.
    pub line: Option<usize>,
    /// A description of the content found.
    pub found: String,
    /// A description of valid content.
    pub expected: &'static str,
}

impl Error {
    fn new(found: impl Into<String>, expected: &'static str) -> Self {
        Self { line: None, found: found.into(), expected }
    }

    /// Returns the name of the text, followed by the line at fault.
    #[must_use]
    pub fn location(&self, text: &str) -> String {
        match self.line {
            Some(line) => format!("{text}:{line}"),
            None => text.to_owned(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl std::error::Error for Error {}

const CERTIFICATE: &str = "a certificate as PEM: `-----BEGIN CERTIFICATE-----`";
const KEY: &str = "a private key as PEM: `-----BEGIN PRIVATE KEY-----`";

const LINE: usize = 64;
const DASHES: &[u8] = b"-----";

/// Parses all certificates of a PEM text, at least one. Skips other sections.
///
/// # Errors
/// The text has none, or its PEM is broken.
pub fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = |error: pem::Error| Error::new(format!("a certificate whose PEM is broken ({error})"), CERTIFICATE);
    refuse_joined_lines(text)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(bad)?;
    if chain.is_empty() { Err(Error::new(found(text), CERTIFICATE)) } else { Ok(chain) }
}

/// Parses the first private key of a PEM text: PKCS #8, PKCS #1 (RSA) or SEC 1 (elliptic curves). As in Go, the label
/// may be any that ends in `PRIVATE KEY`, and the DER decides the format: Caddy stores Ed25519 keys as `ED25519 PRIVATE
/// KEY`.
///
/// # Errors
/// The text has none, or an encrypted one, or its PEM is broken.
pub fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    let encrypted = || Error::new("an encrypted private key", "one without a pass phrase");
    refuse_joined_lines(text)?;
    let Some(label) = text.split(|byte| matches!(byte, b'\n' | b'\r')).find_map(key_label) else {
        return Err(if is_encrypted(text) { encrypted() } else { Error::new(found(text), KEY) });
    };
    // The parser takes this label only with a key of its format, and skips labels that RFC 7468 does not list.
    let text = String::from_utf8_lossy(text).replace(&format!(" {label}-----"), " PRIVATE KEY-----");
    match PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()) {
        Ok(key) => Ok(PrivateKeyDer::try_from(key.secret_pkcs8_der().to_vec()).unwrap_or(PrivateKeyDer::Pkcs8(key))),
        // The older encryption format (RFC 1421) puts header lines where the base64 would start, so the PEM parser
        // fails.
        Err(_) if is_encrypted(text.as_bytes()) => Err(encrypted()),
        Err(error) => Err(Error::new(format!("a private key whose PEM is broken ({error})"), KEY)),
    }
}

/// Returns the label of a line that begins the section of a private key, unless an encrypted one.
fn key_label(line: &[u8]) -> Option<&str> {
    let label = line.trim_ascii_end().strip_prefix(b"-----BEGIN ")?.strip_suffix(DASHES)?;
    let is_key = label == b"PRIVATE KEY" || label.ends_with(b" PRIVATE KEY") && !is_encrypted(label);
    str::from_utf8(label).ok().filter(|_| is_key)
}

/// Refuses text after the end of a section, as Go's parser does. The usual cause is a bundle of files without a final
/// newline, in which the next section begins on the same line. The parser would skip that section, so that a chain
/// would lack certificates.
///
/// # Errors
/// There is such text: its line.
pub fn refuse_joined_lines(text: &[u8]) -> Result<(), Error> {
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        // The parser ends lines at a carriage return too.
        if let Some(label) = line.split(|byte| *byte == b'\r').find_map(label_before_text) {
            return Err(Error {
                line: Some(index + 1),
                found: format!("text after `-----END {}-----`", String::from_utf8_lossy(label)),
                expected: "it on a line of its own",
            });
        }
    }
    Ok(())
}

/// Returns the label of a line that ends a section and continues after that.
fn label_before_text(line: &[u8]) -> Option<&[u8]> {
    let label = line.strip_prefix(b"-----END ")?;
    let len = label.windows(DASHES.len()).position(|window| window == DASHES)?;
    let (label, rest) = label.split_at(len);
    (!rest[DASHES.len()..].trim_ascii().is_empty()).then_some(label)
}

/// Describes a text that lacks the expected PEM section, for the error message.
fn found(text: &[u8]) -> String {
    const LABELS_MAX: usize = 3;
    if text.trim_ascii().is_empty() {
        return "nothing: it is empty".to_owned();
    }
    let begins = |line: &[u8]| {
        let label = line.trim_ascii().strip_prefix(b"-----BEGIN ")?.strip_suffix(b"-----")?;
        let label = String::from_utf8_lossy(label);
        // The parser, as Go's, does not read such a line.
        let is_indented = line.first().is_some_and(u8::is_ascii_whitespace);
        Some(match is_indented {
            true => format!("`-----BEGIN {label}-----` after spaces, which must not begin a line of PEM"),
            false => format!("`-----BEGIN {label}-----`"),
        })
    };
    let labels: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(begins).take(LABELS_MAX).collect();
    match &labels[..] {
        // Every DER certificate and key is an ASN.1 SEQUENCE, whose tag byte is 0x30.
        [] if text[0] == 0x30 && !text.is_ascii() => "binary data (DER)".to_owned(),
        [] => "text that is not PEM".to_owned(),
        labels => labels.join(", "),
    }
}

/// Finds `-----BEGIN ENCRYPTED PRIVATE KEY-----` and `Proc-Type: 4,ENCRYPTED`.
fn is_encrypted(text: &[u8]) -> bool {
    text.windows(b"ENCRYPTED".len()).any(|window| window == b"ENCRYPTED")
}

/// Writes certificates as PEM, in order, with base64 lines of 64 characters (RFC 7468 §2).
#[must_use]
pub fn write_chain(chain: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in chain {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut digits = &*BASE64_STANDARD.encode(certificate);
        while !digits.is_empty() {
            let (line, rest) = digits.split_at(digits.len().min(LINE));
            text.push_str(line);
            text.push('\n');
            digits = rest;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Iterates over the kinds of all PEM sections that the parser recognises.
pub fn sections(text: &[u8]) -> impl Iterator<Item = Result<SectionKind, pem::Error>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text).map(|section| section.map(|(kind, _)| kind))
}
