//! A blocking HTTP/1 client that exposes the framing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::PATIENCE;

/// A response with its framing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientResponse {
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Interim responses before it: statuses and fields.
    pub(crate) interims: Vec<(u16, Vec<(String, String)>)>,
}

impl ClientResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    /// Returns whether it announces the connection's end.
    pub(crate) fn closes(&self) -> bool {
        self.field("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// The way in which the server closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    End,
    Reset,
    /// TCP's end without close_notify, over TLS.
    Cut,
}

/// The aspect of a request that determines the response's framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Content,
    HeadOnly,
    Tunnel,
}

pub(crate) struct TestClient<S = TcpStream> {
    pub(crate) stream: S,
    buffer: Vec<u8>,
}

impl TestClient {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    #[track_caller]
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self::with(stream)
    }

    /// Ends our sending side.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("a socket");
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
    }
}

impl<S: Read + Write> TestClient<S> {
    /// Creates a client over any byte stream.
    pub(crate) fn with(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends a GET request without a body.
    #[track_caller]
    pub(crate) fn send_request(&mut self, target: &str) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> ClientResponse {
        self.send_request(target);
        self.answer()
    }

    /// Sends a POST request with a Content-Length.
    #[track_caller]
    pub(crate) fn post(&mut self, target: &str, body: &[u8]) {
        let len = body.len();
        self.send(format!("POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"));
        self.send(body);
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> ClientResponse {
        self.answer_to(RequestKind::Content)
    }

    /// Reads the next complete response.
    #[track_caller]
    pub(crate) fn answer_to(&mut self, asked: RequestKind) -> ClientResponse {
        let mut answer = self.head();
        while (100..200).contains(&answer.status) && answer.status != 101 {
            let interim = (answer.status, answer.fields);
            let interims = answer.interims;
            answer = self.head();
            answer.interims = interims;
            answer.interims.push(interim);
        }
        if asked != RequestKind::Content || matches!(answer.status, 101 | 204 | 304) {
            return answer;
        }
        if answer.field("Transfer-Encoding") == Some("chunked") {
            self.chunked(&mut answer);
        } else if let Some(len) = answer.field("Content-Length") {
            let len = len.parse().expect("a length");
            answer.body = self.exactly(len);
        } else {
            let (body, close) = self.rest();
            assert_eq!(close, Close::End, "the content that only the end delimits was cut");
            answer.body = body;
        }
        answer
    }

    /// Reads the next head, interim or final.
    #[track_caller]
    pub(crate) fn head(&mut self) -> ClientResponse {
        let line = self.line();
        let mut words = line.splitn(3, ' ');
        let version = words.next().unwrap_or_default().to_owned();
        let status = words.next().and_then(|status| status.parse().ok());
        let Some(status) = status else { panic!("no status line: {line:?}") };
        ClientResponse { version, status, fields: self.fields(), ..ClientResponse::default() }
    }

    #[track_caller]
    fn fields(&mut self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return fields;
            }
            let (name, value) = line.split_once(':').expect("a field line");
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    #[track_caller]
    pub(crate) fn chunked(&mut self, answer: &mut ClientResponse) {
        loop {
            let len = usize::from_str_radix(&self.line(), 16).expect("a chunk's size");
            if len == 0 {
                answer.trailers = self.fields();
                return;
            }
            answer.body.extend(self.exactly(len));
            assert_eq!(self.line(), "", "after a chunk");
        }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8(self.buffer[..end].to_vec()).expect("a text line");
                self.buffer.drain(..end + 2);
                return line;
            }
            self.fill();
        }
    }

    /// Reads exactly `len` bytes.
    #[track_caller]
    pub(crate) fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len {
            self.fill();
        }
        let rest = self.buffer.split_off(len);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads up to `len` bytes; fewer if the server closes earlier.
    pub(crate) fn upto(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len && self.try_fill() {}
        let rest = self.buffer.split_off(len.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads chunked content into `answer`. Returns whether it is complete.
    pub(crate) fn try_chunked(&mut self, answer: &mut ClientResponse) -> bool {
        loop {
            let Some(line) = self.try_line() else { return false };
            let Ok(len) = usize::from_str_radix(&line, 16) else { return false };
            if len == 0 {
                return self.try_line().is_some();
            }
            let bytes = self.upto(len);
            let whole = bytes.len() == len;
            answer.body.extend(bytes);
            if !whole || self.try_line().is_none() {
                return false;
            }
        }
    }

    fn try_line(&mut self) -> Option<String> {
        while !self.buffer.windows(2).any(|pair| pair == b"\r\n") {
            if !self.try_fill() {
                return None;
            }
        }
        Some(self.line())
    }

    /// Returns whether further bytes arrive before the end; no end at all is a failure.
    #[track_caller]
    fn try_fill(&mut self) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(len) => {
                self.buffer.extend_from_slice(&bytes[..len]);
                len > 0
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server neither sends nor closes: {error}")
            }
            Err(_) => false,
        }
    }

    #[track_caller]
    fn fill(&mut self) {
        let mut bytes = vec![0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => panic!("the server closed; unread: {:?}", String::from_utf8_lossy(&self.buffer)),
            Ok(len) => self.buffer.extend_from_slice(&bytes[..len]),
            Err(error) => panic!("{error}; unread: {:?}", String::from_utf8_lossy(&self.buffer)),
        }
    }

    /// Reads all bytes up to the server's close.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Close) {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return (std::mem::take(&mut self.buffer), Close::End),
                Ok(len) => self.buffer.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (std::mem::take(&mut self.buffer), Close::Reset);
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return (std::mem::take(&mut self.buffer), Close::Cut);
                }
                Err(error) => panic!("the server neither sends nor closes: {error}"),
            }
        }
    }

    /// Asserts that the server closes without sending further bytes.
    #[track_caller]
    pub(crate) fn closed(&mut self) {
        let (bytes, _) = self.rest();
        assert!(bytes.is_empty(), "{:?}", String::from_utf8_lossy(&bytes));
    }
}
