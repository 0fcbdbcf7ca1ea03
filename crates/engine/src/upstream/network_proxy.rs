//! Tunnels to upstreams through a network proxy: by CONNECT (RFC 9110 §9.3.6) or SOCKS5 (RFC 1928).

use std::future::poll_fn;
use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_pipeline::{CallError, NetworkProxy, NetworkProxyProtocol};
use tokio::net::TcpStream;
use tokio_socks::tcp::Socks5Stream;

use crate::transport::{Transport, write_all};

/// Bound of the head of a response to CONNECT, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The part of a status line that the error shows, in bytes.
const STATUS_BYTES_MAX: usize = 100;

/// Returns the value of Proxy-Authorization (RFC 7617), if the proxy has credentials.
pub(crate) fn authorization(proxy: &NetworkProxy) -> Option<Box<str>> {
    let (user, password) = proxy.credentials.as_ref()?;
    Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))).into())
}

/// Opens a tunnel to `target` (`host:port`) over a connection to the proxy. The caller bounds its time.
///
/// # Errors
/// The proxy refuses, closes the connection, or breaks its protocol.
pub(super) async fn tunnel(mut stream: TcpStream, proxy: &NetworkProxy, target: &str) -> Result<TcpStream, CallError> {
    match proxy.protocol {
        NetworkProxyProtocol::Http => connect(&mut stream, proxy, target).await.map(|()| stream),
        // The target is sent as a name, which the proxy resolves: this server may have no DNS for it.
        NetworkProxyProtocol::Socks5 => {
            let opened = match &proxy.credentials {
                None => Socks5Stream::connect_with_socket(stream, target).await,
                Some((user, password)) => {
                    Socks5Stream::connect_with_password_and_socket(stream, target, user, password).await
                }
            };
            opened.map(Socks5Stream::into_inner).map_err(|error| proxy_error(&error.to_string()))
        }
    }
}

/// Opens a tunnel to `target` by CONNECT, over a connection to the proxy that may have TLS. The caller bounds its time.
///
/// # Errors
/// The proxy refuses, closes the connection, or breaks its protocol.
pub(super) async fn connect(stream: &mut impl Transport, proxy: &NetworkProxy, target: &str) -> Result<(), CallError> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = authorization(proxy) {
        request.push_str("Proxy-Authorization: ");
        request.push_str(&authorization);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    let broken = |error: io::Error| proxy_error(&error.kind().to_string());
    write_all(stream, request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return Err(proxy_error("the head of its response is too long"));
        }
        // One byte at a time: those after the head are the upstream's.
        let mut byte = [0];
        let received = poll_fn(|poll_cx| stream.poll_read(poll_cx, &mut byte)).await.map_err(broken)?;
        if received.bytes == 0 {
            return Err(proxy_error("it closed the connection"));
        }
        head.push(byte[0]);
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    // RFC 9112 §4: the version, then the status code. Any 2xx opens the tunnel.
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or_default();
    if status.first() == Some(&b'2') && status.iter().all(u8::is_ascii_digit) && status.len() == 3 {
        return Ok(());
    }
    // The content, if any, is not read: the connection closes here, so that nothing of it reaches the next call.
    let line = &line[..line.len().min(STATUS_BYTES_MAX)];
    Err(proxy_error(&format!("it answered CONNECT with '{}'", line.escape_ascii())))
}

fn proxy_error(reason: &str) -> CallError {
    CallError::NetworkProxy(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Opens a tunnel through a proxy that sends `response` after the end of the request's head. Returns the request
    /// and the bytes that follow the response's head.
    async fn through(proxy: &NetworkProxy, response: &'static [u8]) -> (String, Result<Vec<u8>, String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let peer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(response).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let opened = match tunnel(stream, proxy, "up.test:443").await {
            Ok(mut stream) => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                Ok(rest)
            }
            Err(error) => Err(error.to_string()),
        };
        (peer.await.unwrap(), opened)
    }

    // RFC 9110 §9.3.6: a 2xx opens the tunnel, whose bytes begin after the head; RFC 9110 §11.7.2: credentials.
    #[tokio::test]
    async fn tunnels_by_connect() {
        let mut proxy = NetworkProxy {
            protocol: NetworkProxyProtocol::Http,
            address: String::new(),
            credentials: Some(("user".to_owned(), "pass:word".to_owned())),
            tls: None,
        };
        let (request, rest) = through(&proxy, b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nfirst").await;
        let want = "CONNECT up.test:443 HTTP/1.1\r\nHost: up.test:443\r\n\
                    Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\r\n";
        assert_eq!((&*request, rest), (want, Ok(b"first".to_vec())));
        proxy.credentials = None;
        for (response, text) in [
            (
                &b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n"[..],
                "'HTTP/1.0 407 Proxy Authentication Required'",
            ),
            (b"HTTP/1.1 20\r\n\r\n", "'HTTP/1.1 20'"),
            (b"HTTP/1.1 2\xff0 OK\r\n\r\n", "'HTTP/1.1 2\\xff0 OK'"),
            (b"SSH-2.0-x\r\n\r\n", "'SSH-2.0-x'"),
            (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
            (b"", "closed the connection"),
            (&[b'x'; HEAD_BYTES_MAX + 1], "too long"),
        ] {
            let (request, opened) = through(&proxy, response).await;
            assert_eq!(request, "CONNECT up.test:443 HTTP/1.1\r\nHost: up.test:443\r\n\r\n");
            let error = opened.unwrap_err();
            assert!(error.starts_with("the network proxy: ") && error.contains(text), "{error}");
        }
    }
}
