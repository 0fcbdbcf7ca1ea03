//! The record layer once the handshake is over: keys, sequence numbers, and records sealed and opened where they lie
//! (RFC 8446 §5, RFC 5246 §6.2, RFC 5288, RFC 7905).
//!
//! rustls makes the handshake and gives its keys away; this replaces its own record layer because that allocates for each
//! record, in both directions, and copies each once more than needed. Opening is rustls's own `MessageDecrypter`, which
//! works in place; sealing is done here, since rustls's `MessageEncrypter` answers with a fresh vector.
//! An answer of 200 octets is sealed in 116 ns, where rustls takes 153 to 173; docs/decisions/0005 has the other figures.

use std::io::IoSlice;
use std::ops::Range;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::cipher::{InboundOpaqueMessage, Iv, MessageDecrypter};
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite};

/// Octets of a record's header.
pub(super) const HEADER_OCTETS: usize = 5;
/// Content of one record at most.
pub(super) const CONTENT_OCTETS_MAX: usize = 16 * 1024;
/// Beyond its content, a record that comes has at most so many octets (RFC 5246 §6.2.3).
const EXPANSION_OCTETS_MAX: usize = 2048;
/// A whole record that comes, at most.
pub(super) const RECORD_OCTETS_MAX: usize = HEADER_OCTETS + CONTENT_OCTETS_MAX + EXPANSION_OCTETS_MAX;
const TAG_OCTETS: usize = 16;
/// What a record of ours has beyond its content at most: header, explicit nonce or content type, tag.
const SEALED_OVERHEAD: usize = HEADER_OCTETS + 8 + TAG_OCTETS;
/// Content that is sealed at once.
pub(super) const SEALED_CONTENT_MAX: usize = 4 * CONTENT_OCTETS_MAX;
/// Room for that, and for one small record of another kind before it.
pub(crate) const SEALED_OCTETS: usize = SEALED_CONTENT_MAX + 6 * SEALED_OVERHEAD + 64;

/// Alerts that the record layer itself sends (RFC 8446 §6).
pub(super) mod alert {
    pub(crate) const CLOSE_NOTIFY: u8 = 0;
    pub(crate) const UNEXPECTED_MESSAGE: u8 = 10;
    pub(crate) const BAD_RECORD_MAC: u8 = 20;
    pub(crate) const RECORD_OVERFLOW: u8 = 22;
    pub(crate) const DECODE_ERROR: u8 = 50;
    pub(crate) const INTERNAL_ERROR: u8 = 80;
    pub(crate) const USER_CANCELED: u8 = 90;
    pub(crate) const NO_RENEGOTIATION: u8 = 100;
}

/// The peer broke the protocol; the alert that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault(pub(super) u8);

/// The key may seal no more, or the cipher failed: nothing can be sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

/// Octets of the record that `octets` begin with, header included; `None` while the header or the rest is not there.
pub(super) fn whole(octets: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(header) = octets.first_chunk::<HEADER_OCTETS>() else { return Ok(None) };
    let len = HEADER_OCTETS + usize::from(u16::from_be_bytes([header[3], header[4]]));
    if header[1] != 3 {
        return Err(Fault(alert::DECODE_ERROR));
    }
    if len > RECORD_OCTETS_MAX {
        return Err(Fault(alert::RECORD_OVERFLOW));
    }
    Ok((octets.len() >= len).then_some(len))
}

/// Opens what the peer sealed.
pub(super) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    sequence: u64,
    version: ProtocolVersion,
}

impl Opener {
    /// `None` when the suite and the secrets are not of one kind, which rustls does not let happen.
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
                // AES-GCM's secret part of the nonce is the first four octets; the rest comes with each record.
                let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
                (suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed]), ProtocolVersion::TLSv1_2)
            }
        };
        Some(Self { decrypter, sequence, version })
    }

    /// Opens a whole record where it lies: its kind, and where in it the content is.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<(ContentType, Range<usize>), Fault> {
        let (header, payload) = record.split_at_mut(HEADER_OCTETS);
        let kind = ContentType::from(header[0]);
        if self.version == ProtocolVersion::TLSv1_3 && kind != ContentType::ApplicationData {
            return Err(Fault(alert::UNEXPECTED_MESSAGE));
        }
        let base = payload.as_ptr().addr();
        let sealed = InboundOpaqueMessage::new(kind, ProtocolVersion::TLSv1_2, payload);
        let opened = self.decrypter.decrypt(sealed, self.sequence).map_err(|error| {
            Fault(match error {
                Error::DecryptError => alert::BAD_RECORD_MAC,
                Error::PeerSentOversizedRecord => alert::RECORD_OVERFLOW,
                _ => alert::UNEXPECTED_MESSAGE,
            })
        })?;
        if opened.payload.len() > CONTENT_OCTETS_MAX {
            return Err(Fault(alert::RECORD_OVERFLOW));
        }
        self.sequence = self.sequence.checked_add(1).ok_or(Fault(alert::INTERNAL_ERROR))?;
        let start = if opened.payload.is_empty() { 0 } else { opened.payload.as_ptr().addr() - base };
        let start = HEADER_OCTETS + start;
        Ok((opened.typ, start..start + opened.payload.len()))
    }
}

/// How a record is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha,
}

/// Seals what goes to the peer.
pub(super) struct Sealer {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    /// Records that the key may seal (RFC 8446 §5.5).
    sequence_max: u64,
    layout: Layout,
}

impl Sealer {
    /// `None` when the suite and the secrets are not of one kind, which rustls does not let happen.
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
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?);
        // Never so far that a number comes again.
        let sequence_max = limit.min(u64::MAX - 1024);
        Some(Self { key, iv: iv.as_ref().try_into().ok()?, sequence, sequence_max, layout })
    }

    /// Whether the key should be replaced before more is sealed; enough is left for what is sealed at once.
    pub(super) fn is_worn(&self) -> bool {
        self.sequence.saturating_add(64) >= self.sequence_max
    }

    /// Seals from the front of `slices` as much as is sealed at once. Answers how many of their octets it took, and how many of
    /// `out` it filled. A record whose content lies in one slice is sealed out of it; only others are copied together first.
    pub(super) fn seal_slices(&mut self, slices: &[IoSlice<'_>], out: &mut [u8]) -> Result<(usize, usize), Exhausted> {
        let (mut taken, mut filled) = (0, 0);
        let mut rest = slices.iter().map(|slice| &**slice).filter(|slice| !slice.is_empty()).peekable();
        let mut front: &[u8] = rest.next().unwrap_or_default();
        while !front.is_empty() && taken < SEALED_CONTENT_MAX {
            let out = &mut out[filled..];
            if front.len() >= CONTENT_OCTETS_MAX || rest.peek().is_none() {
                let (content, left) = front.split_at(front.len().min(CONTENT_OCTETS_MAX));
                filled += self.seal(ContentType::ApplicationData, content, out)?;
                taken += content.len();
                front = if left.is_empty() { rest.next().unwrap_or_default() } else { left };
                continue;
            }
            let start = self.content_at();
            let mut len = 0;
            while len < CONTENT_OCTETS_MAX && !front.is_empty() {
                let (content, left) = front.split_at(front.len().min(CONTENT_OCTETS_MAX - len));
                out[start + len..][..content.len()].copy_from_slice(content);
                len += content.len();
                front = if left.is_empty() { rest.next().unwrap_or_default() } else { left };
            }
            filled += self.seal_placed(ContentType::ApplicationData, len, out)?;
            taken += len;
        }
        Ok((taken, filled))
    }

    /// Seals one record of `content` into `out`; how long it is.
    pub(super) fn seal(&mut self, kind: ContentType, content: &[u8], out: &mut [u8]) -> Result<usize, Exhausted> {
        let (Prepared { nonce, aad, inner, octets }, body, tag) = self.prepare(kind, content.len(), out)?;
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(aad), content, body, inner.as_ref(), tag)
            .map_err(|_| Exhausted)?;
        self.sequence += 1;
        Ok(octets)
    }

    /// Where in a record its content goes before [`seal_placed`](Self::seal_placed).
    fn content_at(&self) -> usize {
        match self.layout {
            Layout::Tls13 | Layout::Tls12ChaCha => HEADER_OCTETS,
            Layout::Tls12Gcm => HEADER_OCTETS + 8,
        }
    }

    /// Seals one record whose content lies in its place already.
    fn seal_placed(&mut self, kind: ContentType, len: usize, out: &mut [u8]) -> Result<usize, Exhausted> {
        let (Prepared { nonce, aad, inner, octets }, body, tag) = self.prepare(kind, len, out)?;
        self.key.seal_in_place_scatter(nonce, Aad::from(aad), body, inner.as_ref(), tag).map_err(|_| Exhausted)?;
        self.sequence += 1;
        Ok(octets)
    }

    /// Writes a record's header; what the cipher needs besides, and where content and tag go.
    fn prepare<'o>(
        &self,
        kind: ContentType,
        len: usize,
        out: &'o mut [u8],
    ) -> Result<(Prepared, &'o mut [u8], &'o mut [u8]), Exhausted> {
        if self.sequence >= self.sequence_max {
            return Err(Exhausted);
        }
        let sequence = self.sequence.to_be_bytes();
        let mut nonce = self.iv;
        for (octet, sequence) in nonce[4..].iter_mut().zip(sequence) {
            *octet ^= sequence;
        }
        let (outer, before, inner) = match self.layout {
            Layout::Tls13 => (ContentType::ApplicationData, 0, 1),
            Layout::Tls12Gcm => (kind, 8, 0),
            Layout::Tls12ChaCha => (kind, 0, 0),
        };
        let payload = before + len + inner + TAG_OCTETS;
        let [high, low] = u16::try_from(payload).map_err(|_| Exhausted)?.to_be_bytes();
        let header = [u8::from(outer), 3, 3, high, low];
        let mut aad = Short { octets: [0; 13], len: HEADER_OCTETS };
        if self.layout == Layout::Tls13 {
            // RFC 8446 §5.2: the header itself.
            aad.octets[..HEADER_OCTETS].copy_from_slice(&header);
        } else {
            // RFC 5246 §6.2.3.3: the sequence number, and the header as it would be in the clear.
            let [high, low] = u16::try_from(len).map_err(|_| Exhausted)?.to_be_bytes();
            aad.octets[..8].copy_from_slice(&sequence);
            aad.octets[8..].copy_from_slice(&[u8::from(kind), 3, 3, high, low]);
            aad.len = 13;
        }
        out[..HEADER_OCTETS].copy_from_slice(&header);
        out[HEADER_OCTETS..][..before].copy_from_slice(&nonce[12 - before..]);
        let octets = HEADER_OCTETS + payload;
        let (body, tag) = out[HEADER_OCTETS + before..octets].split_at_mut(len);
        let inner = Short { octets: [u8::from(kind)], len: inner };
        // The sequence number makes it unique: it only grows, and each key has its own.
        let nonce = Nonce::assume_unique_for_key(nonce);
        Ok((Prepared { nonce, aad, inner, octets }, body, tag))
    }
}

/// What the cipher needs for one record.
struct Prepared {
    nonce: Nonce,
    aad: Short<13>,
    /// TLS 1.3's real content type, behind the content.
    inner: Short<1>,
    /// Of the whole record.
    octets: usize,
}

struct Short<const MAX: usize> {
    octets: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> AsRef<[u8]> for Short<MAX> {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

#[cfg(test)]
mod tests;
