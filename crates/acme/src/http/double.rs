//! A local HTTP server for tests: it records each request and answers with the next prepared response.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    /// Method and target, such as `GET /zones?name=example.com`.
    pub(crate) line: String,
    /// The header section in lower case, except for the values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// The running server. Dropping it stops it.
pub(crate) struct Double {
    /// The base URL, without a slash at the end.
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Double {
    /// Starts a server that answers with `responses` in order: the status line's rest with headers, such as `200 OK` or
    /// `429 Too Many Requests\r\nRetry-After: 7`, and the body. After the last one it closes connections.
    pub(crate) async fn new(responses: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let mut responses: VecDeque<_> =
            responses.iter().map(|(head, body)| (head.to_string(), body.to_string())).collect();
        let log = Arc::clone(&received);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                while let Some(request) = read(&mut stream).await {
                    log.lock().unwrap().push(request);
                    let Some((head, body)) = responses.pop_front() else { break };
                    let text = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(text.as_bytes()).await.unwrap();
                }
            }
        });
        Self { url, received, task }
    }

    /// The requests so far, in order.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The lines of the requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.received().into_iter().map(|request| request.line).collect()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one request with `Content-Length` or without a body. `None` at the connection's end.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let (line, fields) = head.split_once("\r\n").unwrap();
            let headers: Vec<_> = fields
                .lines()
                .map(|field| field.split_once(": ").unwrap())
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length = length.map_or(0, |(_, value)| value.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = String::from_utf8(bytes[end + 4..end + 4 + length].to_vec()).unwrap();
                let line = line.strip_suffix(" HTTP/1.1").unwrap().to_owned();
                return Some(Received { line, headers, body });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
