//! What every server without parsing answers, and how it counts requests: the common half of `limit` and `tokio_bare`.
//!
//! - [`router`]: what axum serves, on whichever server
//! - [`uploads`]: requests that have a body

pub mod router;
pub mod times;
pub mod uploads;

/// The body that every peer answers.
pub const BODY: &str = "Hello, World!";

/// One whole canned answer. The fields are those that the parsing peers send, so that the kernel carries as many octets.
pub const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: limit\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    Date: Sat, 21 Nov 2026 12:00:00 GMT\r\n\
    \r\n\
    Hello, World!";

/// Octets of the larger body that is asked for over HTTP/2: three frames of the size that a peer takes untold.
pub const PAGE_BYTES: usize = 48 << 10;

/// A page of that many octets, in lines, without anything that a configuration's language would read.
pub fn page() -> String {
    let line = "A page of plain text, as long as a front page is, so that a body does not fit one frame.\n";
    line.repeat(PAGE_BYTES / line.len() + 1)[..PAGE_BYTES].to_owned()
}

/// So many octets that are not all alike, as the client of httpgrpc makes them, which compares (peers/httpgrpc/serve.go).
#[must_use]
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What answers over HTTP/2 carry besides Server, Date, Content-Type and Content-Length: twelve fields in all. Those that a
/// server of files sends by itself stand last ([`FIELDS_OF_FILES`]).
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

/// How many of [`FIELDS`] a server of files does not send by itself: it has Accept-Ranges in the place of Vary.
pub const FIELDS_OF_FILES: usize = 5;

/// [`ANSWER`] with this body in the place of its own.
pub fn answer(body: &str) -> Vec<u8> {
    let head = std::str::from_utf8(&ANSWER[..ANSWER.len() - BODY.len()]).expect("the canned head is text");
    let length = format!("Content-Length: {}\r\n", body.len());
    let head = head.replace(&format!("Content-Length: {}\r\n", BODY.len()), &length);
    (head + body).into_bytes()
}

/// Most answers that go out in one write; more wait for the next.
pub const BATCH_MAX: usize = 64;

/// [`BATCH_MAX`] answers one behind the other, so that a pipelined batch is one slice.
pub fn batch() -> Vec<u8> {
    ANSWER.repeat(BATCH_MAX)
}

/// How much of a head's end (`\r\n\r\n`) the octets read so far end with: 0 to 3.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct HeadEnd(u8);

impl HeadEnd {
    /// Counts the heads that end within `octets`, carrying a terminator split over two reads. O(octets).
    pub fn count(&mut self, octets: &[u8]) -> usize {
        // The usual case: whole requests, nothing carried. One vectorised search finds each end.
        if self.0 == 0 && octets.ends_with(b"\r\n\r\n") {
            return memchr::memmem::find_iter(octets, b"\r\n\r\n").count();
        }
        let mut ends = 0;
        for &octet in octets {
            self.0 = match (self.0, octet) {
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
        for (octets, want) in requests {
            for split in 0..=octets.len() {
                let mut end = HeadEnd::default();
                let (before, behind) = octets.as_bytes().split_at(split);
                let got = end.count(before) + end.count(behind);
                assert_eq!(got, *want, "{octets:?} split at {split}");
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
        for (octets, body) in [(ANSWER.to_vec(), BODY.to_owned()), (answer(&page()), page())] {
            let mut fields = [httparse::EMPTY_HEADER; 8];
            let mut response = httparse::Response::new(&mut fields);
            let head = response.parse(&octets).unwrap().unwrap();
            assert_eq!(&octets[head..], body.as_bytes());
            let length = response.headers.iter().find(|field| field.name == "Content-Length").unwrap();
            assert_eq!(length.value, body.len().to_string().as_bytes());
        }
        assert_eq!(answer(BODY), ANSWER);
    }
}
