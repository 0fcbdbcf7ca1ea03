//! Finds the end of a response with a Content-Length or with chunks; anything else is a failed measurement.

/// The state of the bytes' first response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// A complete 200 response of this size in bytes.
    Whole(usize),
    /// An incomplete response.
    Partial,
    /// Not a 200 response, or one without a length.
    Wrong,
}

/// Scans the responses of one connection. It remembers the last size, since most responses have equal sizes.
#[derive(Default)]
pub struct Scanner {
    /// Size of the last parsed response, and of its head; initially 0.
    whole: usize,
    head: usize,
}

const STATUS: &[u8] = b"HTTP/1.1 200 ";

impl Scanner {
    /// Scans the response at the start of `bytes`. O(1) while the size is unchanged, else O(head).
    pub fn scan(&mut self, bytes: &[u8]) -> Scan {
        if self.whole != 0
            && bytes.len() >= self.whole
            && bytes.starts_with(STATUS)
            && bytes[..self.head].ends_with(b"\r\n\r\n")
        {
            return Scan::Whole(self.whole);
        }
        self.scan_closely(bytes)
    }

    #[cold]
    fn scan_closely(&mut self, bytes: &[u8]) -> Scan {
        let known = bytes.len().min(STATUS.len());
        if bytes[..known] != STATUS[..known] {
            return Scan::Wrong;
        }
        let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Scan::Partial };
        let head = end + 4;
        let Some(body) = content_length(&bytes[..head]) else {
            // The sizes of the chunks may differ in the next response, so none is remembered.
            return if is_chunked(&bytes[..head]) { chunked(bytes, head) } else { Scan::Wrong };
        };
        if bytes.len() < head + body {
            return Scan::Partial;
        }
        (self.whole, self.head) = (head + body, head);
        Scan::Whole(self.whole)
    }
}

/// Returns whether a head announces chunks.
fn is_chunked(head: &[u8]) -> bool {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(head);
    parsed.is_ok()
        && response.headers.iter().any(|field| {
            field.name.eq_ignore_ascii_case("transfer-encoding") && field.value.eq_ignore_ascii_case(b"chunked")
        })
}

/// Finds the end of the chunks that begin at `at`; without trailers.
fn chunked(bytes: &[u8], mut at: usize) -> Scan {
    loop {
        match httparse::parse_chunk_size(&bytes[at..]) {
            Ok(httparse::Status::Complete((line, size))) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let Some(end) = at.checked_add(line + 2).and_then(|end| end.checked_add(size)) else {
                    return Scan::Wrong;
                };
                if bytes.len() < end {
                    return Scan::Partial;
                }
                if &bytes[end - 2..end] != b"\r\n" {
                    return Scan::Wrong;
                }
                at = end;
                if size == 0 {
                    return Scan::Whole(at);
                }
            }
            Ok(httparse::Status::Partial) => return Scan::Partial,
            Err(_) => return Scan::Wrong,
        }
    }
}

/// Returns the Content-Length of a head if it occurs once and is a number.
pub fn content_length(head: &[u8]) -> Option<usize> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    response.parse(head).ok()?;
    let mut lengths = response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = std::str::from_utf8(lengths.next()?.value).ok()?.parse().ok()?;
    if lengths.next().is_some() { None } else { Some(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn each_case_is_told_apart() {
        let cases = [
            ("whole", HELLO.to_owned(), Scan::Whole(HELLO.len())),
            ("more after it", format!("{HELLO}HTTP"), Scan::Whole(HELLO.len())),
            ("short body", HELLO[..HELLO.len() - 1].to_owned(), Scan::Partial),
            ("short head", HELLO[..20].to_owned(), Scan::Partial),
            ("nothing", String::new(), Scan::Partial),
            ("another status", HELLO.replace("200 OK", "503 No"), Scan::Wrong),
            ("no length", HELLO.replace("Length", "Lines"), Scan::Wrong),
        ];
        for (why, bytes, want) in cases {
            assert_eq!(Scanner::default().scan(bytes.as_bytes()), want, "{why}");
        }
    }

    // RFC 9112 §7.1: at each split point, the chunks are whole only with the last one.
    #[test]
    fn chunks_are_whole_with_the_last_one() {
        let whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0a\r\n0123456789\r\n0\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(Scanner::default().scan(&whole.as_bytes()[..end]), Scan::Partial, "{end}");
        }
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan(whole.as_bytes()), Scan::Whole(whole.len()));
        assert_eq!(scanner.scan(format!("{whole}HTTP").as_bytes()), Scan::Whole(whole.len()));
        for wrong in [whole.replace("hello\r", "hello_"), whole.replace("\r\n5\r", "\r\nx\r")] {
            assert_eq!(Scanner::default().scan(wrong.as_bytes()), Scan::Wrong, "{wrong:?}");
        }
    }

    #[test]
    fn a_changed_length_is_noticed() {
        let mut scanner = Scanner::default();
        let longer = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world";
        assert_eq!(scanner.scan(HELLO.as_bytes()), Scan::Whole(HELLO.len()));
        assert_eq!(scanner.scan(longer.as_bytes()), Scan::Whole(longer.len()));
        assert_eq!(scanner.scan(HELLO.as_bytes()), Scan::Whole(HELLO.len()));
    }
}
