//! The file of a stored response.
//!
//! ```text
//! "CWCACHE2" │ xxh64 of the rest │ head length │ head: status, times, key, fields, Vary │ content
//! ```
//! Numbers are little-endian. A file that is damaged, or of another version, is no response.

use std::hash::Hasher as _;
use std::io::Read;
use std::time::{Duration, Instant, SystemTime};

use causeway_message::{Chunk, FieldLine, FieldMap, FieldName, FieldValue, NameRef, StatusCode};

use super::directives::ResponseDirectives;
use super::stored::{Freshness, StoredFields, StoredResponse};
use super::vary::Vary;

const MAGIC: &[u8; 8] = b"CWCACHE2";
/// Bytes before the head: magic, checksum, length of the head.
const START: usize = 8 + 8 + 4;

/// Writes a response as the bytes of its file, except for its content.
pub(super) fn write(key: &[u8], stored: &StoredResponse, now: Instant, wall: SystemTime) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.resize(START, 0);
    out.extend_from_slice(&stored.status.as_u16().to_le_bytes());
    let Freshness { lifetime, is_implied, .. } = stored.freshness;
    number(&mut out, millis(wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()));
    number(&mut out, millis(stored.freshness.age(now)));
    number(&mut out, millis(lifetime));
    out.push(u8::from(is_implied));
    bytes(&mut out, key);
    for map in [&stored.fields.base, &stored.fields.whole] {
        number(&mut out, map.len() as u64);
        for line in map.lines() {
            bytes(&mut out, line.name.as_str().as_bytes());
            bytes(&mut out, line.value);
            out.push(u8::from(line.is_sensitive));
        }
    }
    let (names, values) = stored.vary.parts();
    number(&mut out, names.len() as u64);
    names.iter().for_each(|name| bytes(&mut out, name.as_str().as_bytes()));
    bytes(&mut out, values);
    let head = u32::try_from(out.len() - START).unwrap_or(u32::MAX);
    out[16..START].copy_from_slice(&head.to_le_bytes());
    let checksum = checksum(&out[16..], stored.body.as_slice());
    out[8..16].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// The head of a file: all but the content, which is the larger part, and not read for a response to another request.
pub(super) struct FileHead {
    pub(super) key: Vec<u8>,
    /// Without its content.
    pub(super) stored: StoredResponse,
    /// The bytes, for the checksum.
    bytes: Vec<u8>,
    body_len: usize,
}

impl FileHead {
    /// Returns the length of the content.
    pub(super) fn body_len(&self) -> usize {
        self.body_len
    }

    /// Returns the response with its content, which `file` gives next; `None` if a byte of the file is damaged.
    pub(super) fn read_body(self, mut file: impl Read) -> Option<StoredResponse> {
        let Self { mut stored, bytes, body_len, .. } = self;
        let mut body = vec![0; body_len];
        file.read_exact(&mut body).ok()?;
        if bytes[8..16] != checksum(&bytes[16..], &body).to_le_bytes() {
            return None;
        }
        stored.body = Chunk::from(body);
        Some(stored)
    }
}

/// Reads the head of a file of `len` bytes; `None` if it is of another version, or damaged so that it has no meaning.
/// Only [`FileHead::read_body`] verifies all bytes.
pub(super) fn read_head(mut file: impl Read, len: u64, now: Instant, wall: SystemTime) -> Option<FileHead> {
    let mut bytes = vec![0; START];
    file.read_exact(&mut bytes).ok()?;
    let head_len = u32::from_le_bytes(bytes[16..].try_into().ok()?);
    let body_len = len.checked_sub(START as u64 + u64::from(head_len))?;
    if bytes[..8] != *MAGIC {
        return None;
    }
    bytes.resize(START + head_len as usize, 0);
    file.read_exact(&mut bytes[START..]).ok()?;
    let mut parts = Parts(&bytes[START..]);
    let status = StatusCode::new(u16::from_le_bytes(parts.take(2)?.try_into().ok()?))?;
    let written = SystemTime::UNIX_EPOCH.checked_add(parts.millis()?)?;
    let age = parts.millis()?;
    let lifetime = parts.millis()?;
    let is_implied = parts.take(1)? != [0];
    let key = parts.bytes()?.to_vec();
    let base = parts.fields()?;
    let whole = parts.fields()?;
    let names = (0..parts.number()?).map(|_| parts.name()).collect::<Option<Vec<FieldName>>>()?;
    let vary = Vary::from_parts(names, parts.bytes()?);
    // The time since the file was written is a part of the age. A clock that was set back gives none.
    let initial_age = age.checked_add(wall.duration_since(written).unwrap_or_default())?;
    let freshness =
        Freshness { requested: now, received: now, initial_age, apparent_age: initial_age, lifetime, is_implied };
    let directives = ResponseDirectives::of(&whole);
    let stored = StoredResponse::new(status, StoredFields { base, whole }, vary, freshness, directives);
    Some(FileHead { key, stored, bytes, body_len: usize::try_from(body_len).ok()? })
}

fn checksum(head: &[u8], body: &[u8]) -> u64 {
    let mut hasher = twox_hash::XxHash64::with_seed(0);
    hasher.write(head);
    hasher.write(body);
    hasher.finish()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The rest of a head.
struct Parts<'f>(&'f [u8]);

impl<'f> Parts<'f> {
    fn take(&mut self, len: usize) -> Option<&'f [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn millis(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_millis)
    }

    fn bytes(&mut self) -> Option<&'f [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    fn name(&mut self) -> Option<FieldName> {
        FieldName::parse(std::str::from_utf8(self.bytes()?).ok()?)
    }

    fn fields(&mut self) -> Option<FieldMap> {
        let mut fields = FieldMap::new();
        for _ in 0..self.number()? {
            let name = NameRef::parse(self.bytes()?)?;
            let value = FieldValue::parse(self.bytes()?)?.as_bytes();
            let is_sensitive = self.take(1)? != [0];
            // A map's own bound.
            if fields.len() == usize::from(u16::MAX) {
                return None;
            }
            fields.push_line(FieldLine { name, value, is_sensitive });
        }
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use causeway_message::names;

    use super::*;

    fn example() -> (StoredResponse, Instant, SystemTime) {
        let (now, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000));
        let mut response = FieldMap::new();
        response.append(names::CACHE_CONTROL, FieldValue::from_static("max-age=60, must-revalidate"));
        response.append(names::VARY, FieldValue::from_static("Accept, X-A"));
        response.append(NameRef::Other("X-A"), FieldValue::from_static("1"));
        response.mark_last_sensitive();
        let mut request = FieldMap::new();
        request.append(NameRef::Other("X-A"), FieldValue::from_static("2"));
        let vary = Vary::of(&response, &request);
        let mut base = FieldMap::new();
        base.append(names::SERVER, FieldValue::from_static("Causeway"));
        let fields = StoredFields::of(base, &response, wall);
        let freshness = Freshness {
            requested: now,
            received: now,
            initial_age: Duration::from_secs(5),
            apparent_age: Duration::from_secs(5),
            lifetime: Duration::from_secs(60),
            is_implied: true,
        };
        let directives = ResponseDirectives::of(&response);
        let mut stored = StoredResponse::new(StatusCode::NOT_FOUND, fields, vary, freshness, directives);
        stored.body = Chunk::from(b"content".to_vec());
        (stored, now, wall)
    }

    /// Reads a whole file: its key, and the response.
    fn read(mut file: &[u8], now: Instant, wall: SystemTime) -> Option<(Vec<u8>, StoredResponse)> {
        let len = file.len() as u64;
        let head = read_head(&mut file, len, now, wall)?;
        let key = head.key.clone();
        Some((key, head.read_body(file)?))
    }

    fn file(stored: &StoredResponse, now: Instant, wall: SystemTime) -> Vec<u8> {
        [write(b"key", stored, now, wall), stored.body.as_slice().to_vec()].concat()
    }

    #[test]
    fn a_response_round_trips() {
        let (stored, now, wall) = example();
        let later = Duration::from_secs(10);
        let file = file(&stored, now + Duration::from_secs(1), wall);
        let (key, back) = read(&file, now, wall + later).expect("it is whole");
        assert_eq!(key, b"key");
        assert_eq!((back.status, back.body.as_slice()), (stored.status, &b"content"[..]));
        for (back, stored) in [(&back.fields.base, &stored.fields.base), (&back.fields.whole, &stored.fields.whole)] {
            assert_eq!(back.lines().collect::<Vec<_>>(), stored.lines().collect::<Vec<_>>());
        }
        // RFC 7541 §6.2.3: a field that must not be indexed remains so.
        assert_eq!(back.fields.whole.lines().filter(|line| line.is_sensitive).count(), 1);
        assert_eq!((back.directives, back.modified), (stored.directives, stored.modified));
        assert_eq!(back.vary.parts(), stored.vary.parts());
        assert_eq!(back.freshness.age(now), Duration::from_secs(16), "5 s before, 1 s in memory, 10 s on disk");
        assert_eq!((back.freshness.lifetime, back.freshness.is_implied), (Duration::from_secs(60), true));
        // A clock that was set back.
        let (_, back) = read(&file, now, wall - later).expect("it is whole");
        assert_eq!(back.freshness.age(now), Duration::from_secs(6));
    }

    // A file that was cut off, or in which any byte changed, is no response.
    #[test]
    fn damaged_files() {
        let (stored, now, wall) = example();
        let whole = file(&stored, now, wall);
        for len in 0..whole.len() {
            assert!(read(&whole[..len], now, wall).is_none(), "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged, now, wall).is_none(), "byte {at}");
        }
        assert!(read(&[whole, vec![0]].concat(), now, wall).is_none(), "one byte more");
    }

    // The magic is no part of the checksum, so a file of the version before is whole, but has another format.
    #[test]
    fn files_of_another_version() {
        let (stored, now, wall) = example();
        let mut other = file(&stored, now, wall);
        other[..8].copy_from_slice(b"CWCACHE1");
        assert!(read(&other, now, wall).is_none());
    }

    // With a checksum that is right, so that only the structure counts: no bytes make it panic.
    #[test]
    fn structures_that_are_wrong() {
        let (stored, now, wall) = example();
        let whole = file(&stored, now, wall);
        for at in 16..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let sum = checksum(&changed[16..], &[]);
                changed[8..16].copy_from_slice(&sum.to_le_bytes());
                let _ = read(&changed, now, wall);
            }
        }
    }
}
