//! A test client that sends one request per connection.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A response, with a chunked body joined.
#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    /// Field lines as received.
    fields: Vec<String>,
    pub(crate) body: String,
}

impl ReceivedResponse {
    /// Returns a field's value; several values are joined with `, `.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let lines = self.fields.iter().filter_map(|line| line.split_once(": "));
        let values: Vec<_> = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends `GET` for a path, with the host localhost.
#[track_caller]
pub(crate) fn get(port: u16, path: &str) -> ReceivedResponse {
    send(port, &format!("GET {path}"), &["Host: localhost"])
}

/// Sends a request without a body, given its method and target, and its field lines.
#[track_caller]
pub(crate) fn send(port: u16, line: &str, fields: &[&str]) -> ReceivedResponse {
    exchange(port, line, fields, "")
}

/// Sends a request with a body.
#[track_caller]
pub(crate) fn send_body(port: u16, line: &str, fields: &[&str], body: &str) -> ReceivedResponse {
    let length = format!("Content-Length: {}", body.len());
    exchange(port, line, &[fields, &[&length]].concat(), body)
}

#[track_caller]
fn exchange(port: u16, line: &str, fields: &[&str], body: &str) -> ReceivedResponse {
    let mut stream = connect(port);
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    stream.write_all(format!("{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    parse(&bytes)
}

#[track_caller]
fn parse(bytes: &[u8]) -> ReceivedResponse {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let mut lines = head.split("\r\n").map(str::to_owned);
    let status = lines.next().unwrap();
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{status:?}"));
    let mut answer = ReceivedResponse { status, fields: lines.collect(), body: body.to_owned() };
    if answer.field("Transfer-Encoding").as_deref() == Some("chunked") {
        answer.body = joined(body);
    } else if let Some(length) = answer.field("Content-Length").filter(|_| !body.is_empty()) {
        assert_eq!(length, body.len().to_string(), "Content-Length");
    }
    answer
}

#[track_caller]
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n").unwrap_or_else(|| panic!("no chunk in {chunks:?}"));
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no chunk size: {size:?}"));
        if size == 0 {
            return body;
        }
        body.push_str(&rest[..size]);
        chunks = &rest[size + 2..];
    }
}
