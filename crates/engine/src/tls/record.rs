//! The record layer after the handshake: keys, sequence numbers, and sealing and opening of records in place
//! (RFC 8446 §5, RFC 5246 §6.2, RFC 5288, RFC 7905).
//!
//! rustls performs the handshake and exports its keys. This module replaces rustls's record layer, which allocates for
//! each record in both directions and makes one avoidable copy. Opening uses rustls's `MessageDecrypter`, which works
//! in place. Sealing is implemented here, since rustls's `MessageEncrypter` returns a new vector for each record.
//! Sealing 200 bytes takes 116 ns; rustls takes 153 to 173 ns. docs/decisions/0005 has the other measurements.

use std::io::IoSlice;
use std::ops::Range;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::cipher::{InboundOpaqueMessage, Iv, MessageDecrypter};
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite};

use super::alert;

/// Length of a record's header: type, version and payload length.
pub(super) const HEADER_BYTES: usize = 5;
/// Maximum content of one record, 2^14 bytes (RFC 8446 §5.1).
pub(super) const CONTENT_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes by which a received record's payload may exceed its content (RFC 5246 §6.2.3).
const EXPANSION_BYTES_MAX: usize = 2048;
/// Maximum length of a received record, header included.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + EXPANSION_BYTES_MAX;
const TAG_BYTES: usize = 16;
/// Maximum overhead of a sealed record: header, explicit nonce or inner content type, tag.
const SEALED_OVERHEAD: usize = HEADER_BYTES + 8 + TAG_BYTES;
/// Size of a buffer that holds any sealed alert.
pub(super) const ALERT_BYTES: usize = 64;
/// Maximum content that one call of [`Sealer::seal_slices`] seals.
pub(super) const SEALED_CONTENT_MAX: usize = 4 * CONTENT_BYTES_MAX;
/// Size of the output buffer: at most a KeyUpdate and an alert, then four records of content.
pub(crate) const SEALED_BYTES: usize = SEALED_CONTENT_MAX + 6 * SEALED_OVERHEAD + 64;

/// The peer violated the protocol. Holds the description of the fatal alert to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordError(pub(super) u8);

/// The key has reached its record limit, or the cipher failed: the connection can send no further records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

/// Returns the length of the record at the front of `bytes`, header included, or `None` while it is incomplete.
pub(super) fn whole(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let len = HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
    // RFC 8446 §5: an unknown type is refused before its length is used. Otherwise bytes that are not TLS at all, read
    // as a long length, would keep the connection waiting for a record that never completes.
    if !(20..=24).contains(&header[0]) {
        return Err(RecordError(alert::UNEXPECTED_MESSAGE));
    }
    // Only the major version: the minor one is legacy and ignored (RFC 8446 §5.1).
    if header[1] != 3 {
        return Err(RecordError(alert::DECODE_ERROR));
    }
    if len > RECORD_BYTES_MAX {
        return Err(RecordError(alert::RECORD_OVERFLOW));
    }
    Ok((bytes.len() >= len).then_some(len))
}

/// Opens records with the peer's keys.
pub(super) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    /// Number of the next record (RFC 8446 §5.3).
    sequence: u64,
    version: ProtocolVersion,
}

impl Opener {
    /// Returns `None` when the secrets are of an unknown cipher, which rustls never exports.
    pub(super) fn new(suite: SupportedCipherSuite, sequence: u64, secrets: ConnectionTrafficSecrets) -> Option<Self> {
        let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
        else {
            return None;
        };
        let (decrypter, version) = match suite {
            SupportedCipherSuite::Tls13(suite) => (suite.aead_alg.decrypter(key, iv), ProtocolVersion::TLSv1_3),
            SupportedCipherSuite::Tls12(suite) => {
                // RFC 5288 §3: AES-GCM's fixed nonce part is the first four bytes; each record carries the rest.
                let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
                (suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed]), ProtocolVersion::TLSv1_2)
            }
        };
        Some(Self { decrypter, sequence, version })
    }

    /// Decrypts a whole record in place. Returns its content type and the range of its content within `record`.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<(ContentType, Range<usize>), RecordError> {
        let (header, payload) = record.split_at_mut(HEADER_BYTES);
        let kind = ContentType::from(header[0]);
        // RFC 8446 §5.2: the outer type of a protected record is always application_data; the real type is inside.
        if self.version == ProtocolVersion::TLSv1_3 && kind != ContentType::ApplicationData {
            return Err(RecordError(alert::UNEXPECTED_MESSAGE));
        }
        let base = payload.as_ptr().addr();
        // The version is always 3.3: TLS 1.2 authenticates the negotiated version, and the header's is ignored.
        let sealed = InboundOpaqueMessage::new(kind, ProtocolVersion::TLSv1_2, payload);
        let opened = self.decrypter.decrypt(sealed, self.sequence).map_err(|error| {
            RecordError(match error {
                Error::DecryptError => alert::BAD_RECORD_MAC,
                Error::PeerSentOversizedRecord => alert::RECORD_OVERFLOW,
                _ => alert::UNEXPECTED_MESSAGE,
            })
        })?;
        if opened.payload.len() > CONTENT_BYTES_MAX {
            return Err(RecordError(alert::RECORD_OVERFLOW));
        }
        // RFC 8446 §5.3: sequence numbers must not wrap.
        self.sequence = self.sequence.checked_add(1).ok_or(RecordError(alert::INTERNAL_ERROR))?;
        // The content is a sub-slice of `payload`, at an offset that depends on the cipher. An empty one may point
        // anywhere.
        let start = if opened.payload.is_empty() { 0 } else { opened.payload.as_ptr().addr() - base };
        let start = HEADER_BYTES + start;
        Ok((opened.typ, start..start + opened.payload.len()))
    }
}

/// The layout of a sealed record after its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Encrypted content and content type, tag (RFC 8446 §5.2).
    Tls13,
    /// Explicit nonce of 8 bytes, encrypted content, tag (RFC 5288 §3).
    Tls12Gcm,
    /// Encrypted content, tag (RFC 7905 §2).
    Tls12ChaCha,
}

/// Seals records with our keys.
pub(super) struct Sealer {
    key: LessSafeKey,
    iv: [u8; 12],
    /// Number of the next record (RFC 8446 §5.3).
    sequence: u64,
    /// Number at which sealing stops: the cipher's confidentiality limit (RFC 8446 §5.5).
    sequence_max: u64,
    layout: Layout,
}

impl Sealer {
    /// Returns `None` when the secrets do not fit the suite, which rustls never exports.
    pub(super) fn new(suite: SupportedCipherSuite, sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<Self> {
        let (algorithm, key, iv): (&'static Algorithm, _, &Iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return None,
        };
        let is_chacha = matches!(secrets, ConnectionTrafficSecrets::Chacha20Poly1305 { .. });
        let (layout, limit) = match suite {
            SupportedCipherSuite::Tls13(suite) => (Layout::Tls13, suite.common.confidentiality_limit),
            SupportedCipherSuite::Tls12(suite) if is_chacha => {
                (Layout::Tls12ChaCha, suite.common.confidentiality_limit)
            }
            SupportedCipherSuite::Tls12(suite) => (Layout::Tls12Gcm, suite.common.confidentiality_limit),
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref().get(..algorithm.key_len())?).ok()?);
        // ChaCha20 has no limit of its own; the counter must still not wrap, since that would reuse a nonce.
        let sequence_max = limit.min(u64::MAX - 1024);
        Some(Self { key, iv: iv.as_ref().try_into().ok()?, sequence, sequence_max, layout })
    }

    /// Returns whether the key should be replaced before the next write. The margin of 64 records is more than one
    /// write seals, so the check is needed only once per write.
    pub(super) fn is_worn(&self) -> bool {
        self.sequence.saturating_add(64) >= self.sequence_max
    }

    /// Seals up to [`SEALED_CONTENT_MAX`] bytes from the front of `slices` into `out`. Returns the number of content
    /// bytes taken and the number of bytes of `out` filled. Content that fills a record from one slice is encrypted
    /// straight out of that slice; only a record that spans slices is copied together first.
    pub(super) fn seal_slices(&mut self, slices: &[IoSlice<'_>], out: &mut [u8]) -> Result<(usize, usize), Exhausted> {
        let (mut taken, mut filled) = (0, 0);
        let mut rest = slices.iter().map(|slice| &**slice).filter(|slice| !slice.is_empty()).peekable();
        let mut front: &[u8] = rest.next().unwrap_or_default();
        // Every record except the last is full, so one call seals four records at most and `SEALED_BYTES` suffices.
        while !front.is_empty() && taken < SEALED_CONTENT_MAX {
            let out = &mut out[filled..];
            // One slice fills the record, or is the last one: no copy is needed.
            if front.len() >= CONTENT_BYTES_MAX || rest.peek().is_none() {
                let (content, left) = front.split_at(front.len().min(CONTENT_BYTES_MAX));
                filled += self.seal(ContentType::ApplicationData, content, out)?;
                taken += content.len();
                front = if left.is_empty() { rest.next().unwrap_or_default() } else { left };
                continue;
            }
            // Small slices (a head, then content) are gathered, since each record costs a header and a tag.
            let start = self.content_at();
            let mut len = 0;
            while len < CONTENT_BYTES_MAX && !front.is_empty() {
                let (content, left) = front.split_at(front.len().min(CONTENT_BYTES_MAX - len));
                out[start + len..][..content.len()].copy_from_slice(content);
                len += content.len();
                front = if left.is_empty() { rest.next().unwrap_or_default() } else { left };
            }
            filled += self.seal_placed(ContentType::ApplicationData, len, out)?;
            taken += len;
        }
        Ok((taken, filled))
    }

    /// Seals one record of `content` into `out`. Returns the record's length.
    pub(super) fn seal(&mut self, kind: ContentType, content: &[u8], out: &mut [u8]) -> Result<usize, Exhausted> {
        let (CipherInputs { nonce, aad, inner, bytes }, body, tag) = self.prepare(kind, content.len(), out)?;
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(aad), content, body, inner.as_ref(), tag)
            .map_err(|_| Exhausted)?;
        self.sequence += 1;
        Ok(bytes)
    }

    /// Returns the offset in a record at which [`seal_placed`](Self::seal_placed) expects its content.
    fn content_at(&self) -> usize {
        match self.layout {
            Layout::Tls13 | Layout::Tls12ChaCha => HEADER_BYTES,
            Layout::Tls12Gcm => HEADER_BYTES + 8,
        }
    }

    /// Seals one record whose `len` bytes of content are already in `out` at [`content_at`](Self::content_at).
    fn seal_placed(&mut self, kind: ContentType, len: usize, out: &mut [u8]) -> Result<usize, Exhausted> {
        let (CipherInputs { nonce, aad, inner, bytes }, body, tag) = self.prepare(kind, len, out)?;
        self.key.seal_in_place_scatter(nonce, Aad::from(aad), body, inner.as_ref(), tag).map_err(|_| Exhausted)?;
        self.sequence += 1;
        Ok(bytes)
    }

    /// Writes the header and explicit nonce of the next record. Returns the cipher's inputs, and the parts of `out` for
    /// the content and for the tag.
    fn prepare<'o>(
        &self,
        kind: ContentType,
        len: usize,
        out: &'o mut [u8],
    ) -> Result<(CipherInputs, &'o mut [u8], &'o mut [u8]), Exhausted> {
        if self.sequence >= self.sequence_max {
            return Err(Exhausted);
        }
        // RFC 8446 §5.3, RFC 7905 §2: the sequence number, left-padded to the nonce's length, xor the IV. For TLS 1.2
        // GCM rustls puts the start value of the explicit part in the last eight bytes of the IV, so this formula holds
        // there too.
        let sequence = self.sequence.to_be_bytes();
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[4..].iter_mut().zip(sequence) {
            *byte ^= sequence;
        }
        let (outer, before, inner) = match self.layout {
            Layout::Tls13 => (ContentType::ApplicationData, 0, 1),
            Layout::Tls12Gcm => (kind, 8, 0),
            Layout::Tls12ChaCha => (kind, 0, 0),
        };
        let payload = before + len + inner + TAG_BYTES;
        let [high, low] = u16::try_from(payload).map_err(|_| Exhausted)?.to_be_bytes();
        let header = [u8::from(outer), 3, 3, high, low];
        let mut aad = Short { bytes: [0; 13], len: HEADER_BYTES };
        if self.layout == Layout::Tls13 {
            // RFC 8446 §5.2: the additional data is the header itself.
            aad.bytes[..HEADER_BYTES].copy_from_slice(&header);
        } else {
            // RFC 5246 §6.2.3.3: the sequence number, then the header with the length of the plaintext.
            let [high, low] = u16::try_from(len).map_err(|_| Exhausted)?.to_be_bytes();
            aad.bytes[..8].copy_from_slice(&sequence);
            aad.bytes[8..].copy_from_slice(&[u8::from(kind), 3, 3, high, low]);
            aad.len = 13;
        }
        // Of the nonce only TLS 1.2 GCM's explicit part is sent; in the other layouts `before` is zero.
        out[..HEADER_BYTES].copy_from_slice(&header);
        out[HEADER_BYTES..][..before].copy_from_slice(&nonce[12 - before..]);
        let bytes = HEADER_BYTES + payload;
        let (body, tag) = out[HEADER_BYTES + before..bytes].split_at_mut(len);
        let inner = Short { bytes: [u8::from(kind)], len: inner };
        // The nonce is unique for this key: the sequence number only grows, and a new key gets a new `Sealer`.
        let nonce = Nonce::assume_unique_for_key(nonce);
        Ok((CipherInputs { nonce, aad, inner, bytes }, body, tag))
    }
}

/// The cipher's inputs for one record.
struct CipherInputs {
    nonce: Nonce,
    /// Additional authenticated data.
    aad: Short<13>,
    /// TLS 1.3's real content type, encrypted after the content; empty in TLS 1.2.
    inner: Short<1>,
    /// Length of the whole record.
    bytes: usize,
}

/// Up to `MAX` bytes on the stack.
struct Short<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> AsRef<[u8]> for Short<MAX> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests;
