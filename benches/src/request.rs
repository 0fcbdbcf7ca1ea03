//! The request bytes.

/// The `Host` of all requests; no peer selects by it.
pub const HOST: &str = "bench.example";

/// Returns the smallest valid HTTP/1.1 request.
pub fn minimal(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
}

/// Returns a browser's request for a followed link, with twelve fields.
pub fn browser(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\n\
         Host: {HOST}\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
         Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\n\
         Accept-Encoding: gzip, deflate, br, zstd\r\n\
         Referer: https://{HOST}/articles/2026/11/a-page-with-links.html\r\n\
         Connection: keep-alive\r\n\
         Cookie: session=5f2c1d0e9b8a47769d3c; theme=dark; consent=1\r\n\
         Upgrade-Insecure-Requests: 1\r\n\
         Sec-Fetch-Dest: document\r\n\
         Sec-Fetch-Mode: navigate\r\n\
         Sec-Fetch-Site: same-origin\r\n\
         \r\n"
    )
}

/// Returns an upload of `bytes` bytes.
pub fn upload(path: &str, bytes: usize) -> String {
    let body = "An upload in lines of plain text, repeated to the given length.\n".repeat(bytes / 64 + 1);
    format!(
        "POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\n\r\n{}",
        &body[..bytes]
    )
}

/// Returns the same fields for HTTP/2, in which host and connection are not fields.
pub fn browser_fields() -> Vec<(String, String)> {
    let text = browser("/");
    let fields = text.lines().skip(1).filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    fields.filter(|(name, _)| name != "host" && name != "connection").collect()
}

/// The request of six lines from the parser benchmark in Crystal's pull request 8002.
pub const SIX_LINES: &str = "GET /hello.htm HTTP/1.1\r\n\
    User-Agent: Mozilla/4.0 (compatible; MSIE5.01; Windows NT)\r\n\
    Host: www.tutorialspoint.com\r\n\
    Accept-Language: en-us\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Connection: Keep-Alive\r\n\
    \r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_as_long_as_it_says() {
        for bytes in [1, 64, 1000, 1 << 20] {
            let upload = upload("/", bytes);
            let (head, body) = upload.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("\r\nContent-Length: {bytes}")) && body.len() == bytes, "{head}");
        }
    }

    #[test]
    fn requests_are_whole_and_have_the_fields_they_are_named_for() {
        assert_eq!(browser_fields().len(), 10);
        for (bytes, fields) in [(minimal("/"), 1), (browser("/"), 12), (SIX_LINES.to_owned(), 5)] {
            let mut space = [httparse::EMPTY_HEADER; 20];
            let mut request = httparse::Request::new(&mut space);
            assert_eq!(request.parse(bytes.as_bytes()).unwrap(), httparse::Status::Complete(bytes.len()));
            assert_eq!(request.headers.len(), fields, "{bytes}");
        }
    }
}
