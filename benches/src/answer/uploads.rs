//! Counts requests with a body of known length when their last byte arrives.

/// Size limit of a head in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The parse state of a connection.
#[derive(Default, Debug)]
pub struct Uploads {
    /// A partial head.
    head: Vec<u8>,
    /// Bytes of the body yet to come.
    left: u64,
}

/// The bytes are not a request, or its body has no length given by Content-Length.
#[derive(Debug, PartialEq, Eq)]
pub struct NoUpload;

impl Uploads {
    /// Counts the requests that end within `bytes`. Bodies are skipped.
    pub fn count(&mut self, mut bytes: &[u8]) -> Result<usize, NoUpload> {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.left == 0 {
                let taken = bytes.len();
                self.head.extend_from_slice(bytes);
                let Some(end) = memchr::memmem::find(&self.head, b"\r\n\r\n") else {
                    return if self.head.len() > HEAD_BYTES_MAX { Err(NoUpload) } else { Ok(ended) };
                };
                let behind = self.head.len() - (end + 4);
                self.left = content_length(&self.head[..end + 4]).ok_or(NoUpload)?;
                self.head.clear();
                bytes = &bytes[taken - behind..];
            }
            let now = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            bytes = &bytes[now..];
            self.left -= now as u64;
            ended += usize::from(self.left == 0);
        }
        Ok(ended)
    }
}

/// Parses a head; `None` unless it has exactly one positive Content-Length.
fn content_length(head: &[u8]) -> Option<u64> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    request.parse(head).ok()?;
    let mut lengths = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = std::str::from_utf8(lengths.next()?.value).ok()?.parse().ok()?;
    if lengths.next().is_some() || length == 0 { None } else { Some(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 8\r\n\r\na\r\n\r\nbcdPUT /b HTTP/1.1\r\nContent-Length: 1\r\n\r\nz";

    #[test]
    fn uploads_are_counted_at_every_split() {
        for split in 0..=TWO.len() {
            let mut uploads = Uploads::default();
            let (before, behind) = TWO.as_bytes().split_at(split);
            let got = uploads.count(before).unwrap() + uploads.count(behind).unwrap();
            assert_eq!(got, 2, "split at {split}");
            assert_eq!((uploads.left, uploads.head.len()), (0, 0), "split at {split}");
        }
    }

    #[test]
    fn a_body_that_is_not_whole_is_no_request_yet() {
        let mut uploads = Uploads::default();
        assert_eq!(uploads.count(&TWO.as_bytes()[..TWO.len() - 1]), Ok(1));
        assert_eq!(uploads.count(b"z"), Ok(1));
    }

    #[test]
    fn without_one_length_nothing_is_counted() {
        for head in ["GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "\r\n\r\n"] {
            assert_eq!(Uploads::default().count(head.as_bytes()), Err(NoUpload), "{head:?}");
        }
        assert_eq!(Uploads::default().count(&[b'a'; HEAD_BYTES_MAX + 1]), Err(NoUpload));
    }
}
