//! One request on one connection, and its answer.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, its chunks joined.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Field lines as they came.
    fields: Vec<String>,
    pub(crate) body: String,
}

impl Answer {
    /// A field's value; several are joined with `, `.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let lines = self.fields.iter().filter_map(|line| line.split_once(": "));
        let values: Vec<_> = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// `GET` of a path on this host.
#[track_caller]
pub(crate) fn get(port: u16, path: &str) -> Answer {
    send(port, &format!("GET {path}"), &["Host: localhost"])
}

/// Any request without a body: method and target, and its field lines.
#[track_caller]
pub(crate) fn send(port: u16, line: &str, fields: &[&str]) -> Answer {
    exchange(port, line, fields, "")
}

/// Any request with a body.
#[track_caller]
pub(crate) fn send_body(port: u16, line: &str, fields: &[&str], body: &str) -> Answer {
    let length = format!("Content-Length: {}", body.len());
    exchange(port, line, &[fields, &[&length]].concat(), body)
}

#[track_caller]
fn exchange(port: u16, line: &str, fields: &[&str], body: &str) -> Answer {
    let mut stream = connect(port);
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    stream.write_all(format!("{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    let mut octets = Vec::new();
    stream.read_to_end(&mut octets).unwrap();
    parse(&octets)
}

#[track_caller]
fn parse(octets: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(octets);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let mut lines = head.split("\r\n").map(str::to_owned);
    let status = lines.next().unwrap();
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{status:?}"));
    let mut answer = Answer { status, fields: lines.collect(), body: body.to_owned() };
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
