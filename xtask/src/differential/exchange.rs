//! A client's connection to one server: sends raw requests, parses the responses, and detects whether the connection
//! stays open.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::words::PORTS;

/// Timeout for a response, far longer than any response takes even on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The texts that replace the tokens for one server, such as its ports. Both servers' texts have equal lengths, so that
/// the lengths of responses are comparable.
#[derive(Clone, Debug)]
pub(crate) struct Texts(Vec<(String, String)>);

impl Texts {
    pub(crate) fn new(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(texts.into_iter().collect())
    }

    pub(crate) fn add(&mut self, token: &str, text: String) {
        self.0.push((token.to_owned(), text));
    }

    /// Replaces each token by this server's text.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.iter().fold(bytes.to_vec(), |bytes, (token, text)| replace(&bytes, token.as_bytes(), text.as_bytes()))
    }

    /// Replaces each text of this server by its token.
    pub(crate) fn neutral(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.iter().fold(bytes.to_vec(), |bytes, (token, text)| replace(&bytes, text.as_bytes(), token.as_bytes()))
    }
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // The standard library is compiled with optimizations even in a debug build, which matters for responses of 200 KB.
    if let (Ok(text), Ok(wanted)) = (std::str::from_utf8(bytes), std::str::from_utf8(wanted)) {
        return text.find(wanted);
    }
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseEnd {
    /// The response is as long as its framing declares.
    Complete,
    /// The server closed the connection early.
    Cut,
    /// No more bytes arrived within [`ANSWER_MAX`].
    Hang,
    /// The server closed the connection without a response.
    Silent,
    /// The bytes are not an HTTP/1 response.
    Malformed,
}

/// A response, with the server's own texts replaced by tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NormalizedResponse {
    pub(crate) end: ResponseEnd,
    /// Statuses of the preceding interim responses.
    pub(crate) interim: Vec<u16>,
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) reason: String,
    /// Names in lower case, sorted by name; values of one name in order of arrival.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the server answered the next request on the connection too.
    pub(crate) kept: bool,
}

impl NormalizedResponse {
    fn none(end: ResponseEnd) -> Self {
        let (version, reason) = (String::new(), String::new());
        Self { end, interim: vec![], version, status: 0, reason, fields: vec![], body: vec![], kept: false }
    }

    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// A client with up to one connection to each of a server's ports, reused while the server keeps it open.
pub(crate) struct DifferentialClient<'a> {
    texts: &'a Texts,
    ports: [u16; PORTS],
    connections: [Option<PortConnection>; PORTS],
}

impl<'a> DifferentialClient<'a> {
    pub(crate) fn new(texts: &'a Texts, ports: [u16; PORTS]) -> Self {
        Self { texts, ports, connections: [const { None }; PORTS] }
    }

    /// Sends `bytes`, in which all tokens are replaced. The second value is whether the connection had been kept
    /// after the previous response; `None` when there was no connection to reuse.
    pub(crate) fn ask(
        &mut self,
        port: usize,
        bytes: &[u8],
        method: &str,
    ) -> std::io::Result<(NormalizedResponse, Option<bool>)> {
        let mut reused = false;
        if let Some(connection) = &mut self.connections[port] {
            let answer = connection.ask(bytes, method);
            if answer.end != ResponseEnd::Silent {
                return Ok((self.settle(port, answer), Some(true)));
            }
            reused = true;
        }
        let connection = self.connections[port].insert(PortConnection::open(self.ports[port])?);
        let answer = connection.ask(bytes, method);
        // A request that gets no response on a new connection either proves nothing about the old one.
        let was_kept = (reused && answer.end != ResponseEnd::Silent).then_some(false);
        Ok((self.settle(port, answer), was_kept))
    }

    pub(crate) fn is_open(&self, port: usize) -> bool {
        self.connections[port].is_some()
    }

    /// Closes the connection if the response ends it, and replaces the server's texts by tokens.
    fn settle(&mut self, port: usize, mut answer: NormalizedResponse) -> NormalizedResponse {
        let client_port = self.connections[port].as_ref().map_or(0, |connection| connection.client_port);
        // RFC 9112 §9.3: HTTP/1.1 persists by default, HTTP/1.0 only with keep-alive.
        let closes = answer.values("connection").any(|value| value.eq_ignore_ascii_case("close"));
        let persists = answer.version == "HTTP/1.1"
            || answer.values("connection").any(|value| value.eq_ignore_ascii_case("keep-alive"));
        answer.kept = answer.end == ResponseEnd::Complete && persists && !closes;
        if !answer.kept {
            self.connections[port] = None;
        }
        let mut texts = self.texts.clone();
        texts.add("<client-port>", client_port.to_string());
        answer.body = texts.neutral(&answer.body);
        for (_, value) in &mut answer.fields {
            *value = String::from_utf8_lossy(&texts.neutral(value.as_bytes())).into_owned();
        }
        answer
    }
}

/// Sends one request without tokens on a connection of its own.
pub(crate) fn once(port: u16, bytes: &[u8]) -> std::io::Result<NormalizedResponse> {
    Ok(PortConnection::open(port)?.ask(bytes, "GET"))
}

struct PortConnection {
    stream: TcpStream,
    client_port: u16,
    /// Bytes received after the last response.
    ahead: Vec<u8>,
}

/// The reason why no more bytes arrived.
enum ReadStop {
    Closed,
    Hang,
}

impl PortConnection {
    fn open(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let client_port = stream.local_addr()?.port();
        Ok(Self { stream, client_port, ahead: Vec::new() })
    }

    /// Sends a request and reads its response, including interim responses.
    fn ask(&mut self, bytes: &[u8], method: &str) -> NormalizedResponse {
        // A server may respond and close before it has read everything: the response counts, not the broken pipe.
        let _ = self.stream.write_all(bytes);
        let mut interim = Vec::new();
        loop {
            let head = match self.head() {
                Ok(head) => head,
                Err(ReadStop::Hang) => {
                    return NormalizedResponse {
                        body: std::mem::take(&mut self.ahead),
                        interim,
                        ..NormalizedResponse::none(ResponseEnd::Hang)
                    };
                }
                Err(ReadStop::Closed) if self.ahead.is_empty() && interim.is_empty() => {
                    return NormalizedResponse::none(ResponseEnd::Silent);
                }
                Err(ReadStop::Closed) => {
                    return NormalizedResponse {
                        body: std::mem::take(&mut self.ahead),
                        interim,
                        ..NormalizedResponse::none(ResponseEnd::Cut)
                    };
                }
            };
            let Some(mut answer) = parse(&head) else {
                return NormalizedResponse { body: head, ..NormalizedResponse::none(ResponseEnd::Malformed) };
            };
            // RFC 9110 §15.2: interim responses precede the final one; 101 is final.
            if (100..200).contains(&answer.status) && answer.status != 101 {
                interim.push(answer.status);
                continue;
            }
            answer.interim = interim;
            self.body(&mut answer, method);
            return answer;
        }
    }

    /// Reads until the end of a head, and returns the head.
    fn head(&mut self) -> Result<Vec<u8>, ReadStop> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n") {
                let rest = self.ahead.split_off(at + 4);
                return Ok(std::mem::replace(&mut self.ahead, rest));
            }
            self.read()?;
        }
    }

    /// Reads once into `ahead`.
    fn read(&mut self) -> Result<(), ReadStop> {
        let mut block = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut block) {
                Ok(0) => return Err(ReadStop::Closed),
                Ok(count) => {
                    self.ahead.extend_from_slice(&block[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(ReadStop::Hang);
                }
                Err(_) => return Err(ReadStop::Closed),
            }
        }
    }

    /// Reads the content; its length is determined by RFC 9112 §6.3.
    fn body(&mut self, answer: &mut NormalizedResponse, method: &str) {
        let chunked = answer.values("transfer-encoding").any(|value| value.eq_ignore_ascii_case("chunked"));
        let length = answer.values("content-length").next().and_then(|value| value.parse::<usize>().ok());
        let stop = if method == "HEAD" || matches!(answer.status, 101 | 204 | 304) {
            None
        } else if chunked {
            self.chunks(&mut answer.body).err()
        } else if let Some(length) = length {
            self.exactly(length, &mut answer.body).err()
        } else {
            let stop = loop {
                if let Err(stop) = self.read() {
                    break stop;
                }
            };
            answer.body.append(&mut self.ahead);
            // Without a length, the content ends when the server closes; such a response is complete.
            answer.end = if let ReadStop::Hang = stop { ResponseEnd::Hang } else { ResponseEnd::Complete };
            answer.fields.push(("connection".to_owned(), "close".to_owned()));
            return;
        };
        match stop {
            None => {}
            Some(ReadStop::Closed) => answer.end = ResponseEnd::Cut,
            Some(ReadStop::Hang) => answer.end = ResponseEnd::Hang,
        }
    }

    fn exactly(&mut self, length: usize, body: &mut Vec<u8>) -> Result<(), ReadStop> {
        while self.ahead.len() < length {
            if let Err(stop) = self.read() {
                body.append(&mut self.ahead);
                return Err(stop);
            }
        }
        let rest = self.ahead.split_off(length);
        body.append(&mut self.ahead);
        self.ahead = rest;
        Ok(())
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Result<(), ReadStop> {
        loop {
            let line = self.line()?;
            let size = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| usize::from_str_radix(line.split(';').next()?.trim(), 16).ok());
            // Report an invalid size as a response that was cut.
            let size = size.ok_or(ReadStop::Closed)?;
            // The last chunk; trailers are discarded.
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(());
            }
            self.exactly(size, body)?;
            self.line()?;
        }
    }

    fn line(&mut self) -> Result<Vec<u8>, ReadStop> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n") {
                let rest = self.ahead.split_off(at + 2);
                let mut line = std::mem::replace(&mut self.ahead, rest);
                line.truncate(at);
                return Ok(line);
            }
            self.read()?;
        }
    }
}

/// Parses a head; `None` when it is malformed.
fn parse(head: &[u8]) -> Option<NormalizedResponse> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let (version, rest) = lines.next()?.split_once(' ')?;
    let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut fields = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    let none = NormalizedResponse::none(ResponseEnd::Complete);
    Some(NormalizedResponse {
        version: version.to_owned(),
        status: status.parse().ok()?,
        reason: reason.to_owned(),
        fields,
        ..none
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;
    use std::net::TcpListener;

    /// Starts a server that answers each connection's first line with `answer` and closes.
    fn peer(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                std::io::BufReader::new(&stream).read_line(&mut line).unwrap();
                (&stream).write_all(answer).unwrap();
            }
        });
        port
    }

    #[track_caller]
    fn check(answer: &'static [u8], method: &str, end: ResponseEnd, body: &[u8], kept: bool) {
        let texts = Texts::new([]);
        let port = peer(answer);
        let mut client = DifferentialClient::new(&texts, [port; PORTS]);
        let (got, _) = client.ask(0, b"GET / HTTP/1.1\r\n", method).unwrap();
        assert_eq!((got.end, &*got.body, got.kept), (end, body, kept), "{got:?}");
    }

    #[test]
    fn rfc9112_6_3_message_body_length() {
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "GET", ResponseEnd::Complete, b"abc", true);
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD", ResponseEnd::Complete, b"", true);
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "GET", ResponseEnd::Cut, b"abc", false);
        check(b"HTTP/1.1 204 No Content\r\n\r\n", "GET", ResponseEnd::Complete, b"", true);
        check(b"HTTP/1.1 200 OK\r\n\r\nabc", "GET", ResponseEnd::Complete, b"abc", false);
        check(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\nT: t\r\n\r\n",
            "GET",
            ResponseEnd::Complete,
            b"abc",
            true,
        );
        check(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nx",
            "GET",
            ResponseEnd::Cut,
            b"ab",
            false,
        );
        check(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "GET",
            ResponseEnd::Complete,
            b"",
            false,
        );
        check(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "GET", ResponseEnd::Complete, b"", false);
        check(b"garbage\r\n\r\n", "GET", ResponseEnd::Malformed, b"garbage\r\n\r\n", false);
        check(b"", "GET", ResponseEnd::Silent, b"", false);
    }

    #[test]
    fn texts_become_tokens_and_tokens_texts() {
        let texts = Texts::new([("<p0>".to_owned(), "25001".to_owned()), ("<root>".to_owned(), "/srv".to_owned())]);
        assert_eq!(texts.fill(b"a:<p0>/<root>/<p0"), b"a:25001//srv/<p0");
        assert_eq!(texts.neutral(b"25001 /srv/srv 2500"), b"<p0> <root><root> 2500");
    }
}
