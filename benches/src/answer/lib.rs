//! The responses of servers that parse nothing, and their request counters: the common part of `limit` and
//! `tokio_bare`.
//!
//! - [`router`]: the axum router, for any server
//! - [`uploads`]: requests with a body

pub mod router;
pub mod times;
pub mod uploads;

/// The body that every peer sends.
pub const BODY: &str = "Hello, World!";

/// A complete canned response. Its fields are those of the peers that parse, so that the kernel carries equally many
/// bytes.
pub const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: limit\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    Date: Sat, 21 Nov 2026 12:00:00 GMT\r\n\
    \r\n\
    Hello, World!";

/// Size in bytes of the larger body for HTTP/2: three frames of the default maximum size.
pub const PAGE_BYTES: usize = 48 << 10;

/// Returns a page of [`PAGE_BYTES`] bytes in lines, free of characters with a meaning in configuration languages.
pub fn page() -> String {
    text(PAGE_BYTES)
}

/// Returns `bytes` bytes of lines as in [`page`].
pub fn text(bytes: usize) -> String {
    let line = "A page of plain text, as long as a front page is, so that a body does not fit one frame.\n";
    let mut text = line.repeat(bytes / line.len() + 1);
    text.truncate(bytes);
    text
}

/// Returns `count` varied bytes, equal to those that the httpgrpc client generates and compares
/// (peers/httpgrpc/serve.go).
#[must_use]
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Fields of responses over HTTP/2 in addition to Server, Date, Content-Type and Content-Length: twelve fields in all.
/// The fields that a file server adds by itself come last ([`FIELDS_OF_FILES`]).
pub const FIELDS: [(&str, &str); 8] = [
    ("cache-control", "public, max-age=3600"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("strict-transport-security", "max-age=31536000"),
    ("vary", "Accept-Encoding"),
    ("etag", "\"6740c2a0-c000\""),
    ("last-modified", "Sat, 21 Nov 2026 12:00:00 GMT"),
];

/// The number of leading [`FIELDS`] that a file server does not add by itself; it sends Accept-Ranges instead of Vary.
pub const FIELDS_OF_FILES: usize = 5;

/// Returns [`ANSWER`] with `body` in place of its own.
pub fn answer(body: &str) -> Vec<u8> {
    let head = std::str::from_utf8(&ANSWER[..ANSWER.len() - BODY.len()]).expect("the canned head is text");
    let length = format!("Content-Length: {}\r\n", body.len());
    let head = head.replace(&format!("Content-Length: {}\r\n", BODY.len()), &length);
    (head + body).into_bytes()
}

/// Largest number of responses in one write.
pub const BATCH_MAX: usize = 64;

/// Returns [`BATCH_MAX`] responses in sequence, so that a pipelined batch is one slice.
pub fn batch() -> Vec<u8> {
    ANSWER.repeat(BATCH_MAX)
}

/// The number of bytes of a head's terminator (`\r\n\r\n`) at the end of the bytes read so far: 0 to 3.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct HeadEnd(u8);

impl HeadEnd {
    /// Counts the heads that end within `bytes`, including a terminator that began in an earlier call. O(bytes).
    pub fn count(&mut self, bytes: &[u8]) -> usize {
        // The usual case: whole requests, and no partial terminator before. One vectorised search finds every end.
        if self.0 == 0 && bytes.ends_with(b"\r\n\r\n") {
            return memchr::memmem::find_iter(bytes, b"\r\n\r\n").count();
        }
        let mut ends = 0;
        for &byte in bytes {
            self.0 = match (self.0, byte) {
                (0 | 2, b'\r') => self.0 + 1,
                (1, b'\n') => 2,
                (3, b'\n') => {
                    ends += 1;
                    0
                }
                (_, b'\r') => 1,
                _ => 0,
            };
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_at_every_split() {
        let requests: &[(&str, usize)] = &[
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1),
            ("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nA: b\r\n\r\n", 2),
            ("a\r\r\n\r\n", 1),
            ("a\r\n\r\r\n\r\n", 1),
            ("a\r\nb\r\n", 0),
        ];
        for (bytes, want) in requests {
            for split in 0..=bytes.len() {
                let mut end = HeadEnd::default();
                let (before, behind) = bytes.as_bytes().split_at(split);
                let got = end.count(before) + end.count(behind);
                assert_eq!(got, *want, "{bytes:?} split at {split}");
            }
        }
    }

    #[test]
    fn a_page_has_its_length_and_no_placeholders() {
        assert_eq!(page().len(), PAGE_BYTES);
        assert!(!page().contains(['{', '}', '"', '`', '$', '\\']));
    }

    #[test]
    fn canned_answers_say_their_own_length() {
        for (bytes, body) in [(ANSWER.to_vec(), BODY.to_owned()), (answer(&page()), page())] {
            let mut fields = [httparse::EMPTY_HEADER; 8];
            let mut response = httparse::Response::new(&mut fields);
            let head = response.parse(&bytes).unwrap().unwrap();
            assert_eq!(&bytes[head..], body.as_bytes());
            let length = response.headers.iter().find(|field| field.name == "Content-Length").unwrap();
            assert_eq!(length.value, body.len().to_string().as_bytes());
        }
        assert_eq!(answer(BODY), ANSWER);
    }
}
