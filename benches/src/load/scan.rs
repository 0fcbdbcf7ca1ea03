//! Finds where a response ends. Knows heads with a Content-Length only: that is what every peer answers here, and
//! whatever else comes is a failed measurement, not a case to be kind to.

/// What stands at the front of the octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// A whole 200 response of so many octets.
    Whole(usize),
    /// The response is not whole yet.
    Partial,
    /// No 200 response, or one without a Content-Length.
    Wrong,
}

/// Scans responses of one connection; remembers their length, since a hello is as long each time.
#[derive(Default)]
pub struct Scanner {
    /// Octets of the whole response and of its head when last looked at closely; 0 at first.
    whole: usize,
    head: usize,
}

const STATUS: &[u8] = b"HTTP/1.1 200 ";

impl Scanner {
    /// Scans the response at the front of `octets`. O(1) while the responses stay as long as they were, else O(head).
    pub fn scan(&mut self, octets: &[u8]) -> Scan {
        if self.whole != 0
            && octets.len() >= self.whole
            && octets.starts_with(STATUS)
            && octets[..self.head].ends_with(b"\r\n\r\n")
        {
            return Scan::Whole(self.whole);
        }
        self.scan_closely(octets)
    }

    #[cold]
    fn scan_closely(&mut self, octets: &[u8]) -> Scan {
        let known = octets.len().min(STATUS.len());
        if octets[..known] != STATUS[..known] {
            return Scan::Wrong;
        }
        let Some(end) = memchr::memmem::find(octets, b"\r\n\r\n") else { return Scan::Partial };
        let head = end + 4;
        let Some(body) = content_length(&octets[..head]) else { return Scan::Wrong };
        if octets.len() < head + body {
            return Scan::Partial;
        }
        (self.whole, self.head) = (head + body, head);
        Scan::Whole(self.whole)
    }
}

/// The Content-Length in a head, if it is there once and a number.
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
            ("more behind", format!("{HELLO}HTTP"), Scan::Whole(HELLO.len())),
            ("short body", HELLO[..HELLO.len() - 1].to_owned(), Scan::Partial),
            ("short head", HELLO[..20].to_owned(), Scan::Partial),
            ("nothing", String::new(), Scan::Partial),
            ("another status", HELLO.replace("200 OK", "503 No"), Scan::Wrong),
            ("no length", HELLO.replace("Length", "Lines"), Scan::Wrong),
        ];
        for (why, octets, want) in cases {
            assert_eq!(Scanner::default().scan(octets.as_bytes()), want, "{why}");
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
