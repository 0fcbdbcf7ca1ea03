//! Opens the connections of an [`HttpClient`](super::HttpClient): to the server itself, to a Unix socket, or through a
//! proxy.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tower_service::Service;

use super::proxy::{NetworkProxy, ProxyChoice, ProxyEnvironment, ProxyKind};
use super::{HttpError, configured};

type BoxError = Box<dyn Error + Send + Sync>;
type Opened = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

/// Where connections go.
#[derive(Clone)]
pub(super) enum Connector {
    Direct(HttpConnector),
    Unix(Arc<Path>),
    /// Through the proxies of the environment, or directly.
    Environment(ProxyEnvironment, HttpConnector),
    // Boxed: few clients have a proxy, and each name on demand has a client.
    Tunnel(Box<Tunnel<HttpsConnector<HttpConnector>>>),
    Socks(Box<SocksV5<HttpConnector>>),
}

impl Connector {
    /// # Errors
    /// The system's roots, which verify a proxy's own certificate, cannot be used.
    pub(super) fn new(proxy: &ProxyChoice) -> Result<Self, HttpError> {
        match proxy {
            ProxyChoice::Direct => Ok(Self::Direct(tcp())),
            ProxyChoice::Environment(environment) => Ok(Self::Environment(environment.clone(), tcp())),
            ProxyChoice::Proxy(proxy) => Self::through(proxy),
        }
    }

    fn through(proxy: &NetworkProxy) -> Result<Self, HttpError> {
        let uri = proxy.uri().clone();
        Ok(match proxy.kind() {
            ProxyKind::Http | ProxyKind::Https => {
                let builder = HttpsConnectorBuilder::new().with_tls_config(configured(&[])?);
                let connector = builder.https_or_http().enable_http1();
                let tunnel = Tunnel::new(uri, connector.wrap_connector(tcp()));
                match proxy.basic_authorization().and_then(|value| HeaderValue::from_str(&value).ok()) {
                    Some(value) => Self::Tunnel(Box::new(tunnel.with_auth(value))),
                    None => Self::Tunnel(Box::new(tunnel)),
                }
            }
            ProxyKind::Socks5 => {
                let socks = SocksV5::new(uri, tcp());
                match proxy.credentials() {
                    Some((user, password)) => Self::Socks(Box::new(socks.with_auth(user.clone(), password.clone()))),
                    None => Self::Socks(Box::new(socks)),
                }
            }
        })
    }
}

/// A connector that leaves TLS to its caller.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Opened;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(inner) | Self::Environment(_, inner) => inner.poll_ready(cx).map_err(Into::into),
            Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tunnel(inner) => inner.poll_ready(cx).map_err(Into::into),
            Self::Socks(inner) => inner.poll_ready(cx).map_err(Into::into),
        }
    }

    fn call(&mut self, to: Uri) -> Opened {
        match self {
            Self::Direct(inner) => opened(inner.call(to)),
            Self::Unix(path) => {
                let path = Arc::clone(path);
                opened(async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(&path).await?)) })
            }
            Self::Environment(environment, inner) => match environment.proxy(&to).map(|proxy| Self::through(&proxy)) {
                None => opened(inner.call(to)),
                // A connector of its own for each connection; its inner one is always ready.
                Some(Ok(mut through)) => through.call(to),
                Some(Err(error)) => Box::pin(async move { Err(ProxyError(error.into()).into()) }),
            },
            Self::Tunnel(inner) => opened(through_proxy(inner.call(to))),
            Self::Socks(inner) => opened(through_proxy(inner.call(with_port(to)))),
        }
    }
}

/// A SOCKS request has a port, and URLs may leave it out.
fn with_port(to: Uri) -> Uri {
    if to.port().is_some() {
        return to;
    }
    let port = if to.scheme_str() == Some("http") { 80 } else { 443 };
    let mut parts = to.clone().into_parts();
    parts.authority = to.host().and_then(|host| format!("{host}:{port}").parse().ok());
    Uri::from_parts(parts).unwrap_or(to)
}

fn opened<T, E>(opening: impl Future<Output = Result<T, E>> + Send + 'static) -> Opened
where
    T: Duplex + 'static,
    E: Into<BoxError>,
{
    Box::pin(async move { opening.await.map(|stream| Stream(Box::new(stream))).map_err(Into::into) })
}

/// Names the proxy as the cause of an error: without that, a failure looks like one of the server.
async fn through_proxy<T, E: Into<BoxError>>(opening: impl Future<Output = Result<T, E>>) -> Result<T, ProxyError> {
    opening.await.map_err(|error| ProxyError(error.into()))
}

#[derive(Debug)]
struct ProxyError(BoxError);

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the network proxy: {}", self.0)
    }
}

impl Error for ProxyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

trait Duplex: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Duplex for T {}

/// An open connection of any kind.
pub(super) struct Stream(Box<dyn Duplex>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, into)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
