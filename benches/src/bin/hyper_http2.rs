//! hyper 1.x over HTTP/2 without TLS, on tokio's current-thread runtime: twelve fields and a short text or a page.
//! Usage: `hyper_http2 PORT [page]`.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, SERVER};
use hyper::service::service_fn;
use hyper::{Response, server::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpSocket;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse::<u16>().ok());
    let body = Bytes::from(arguments.next().map_or(answer::BODY.to_owned(), |_| answer::page()));
    let Some(port) = port else { panic!("usage: hyper_http2 PORT [page]") };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let listener = socket.listen(4096)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let body = body.clone();
            tokio::spawn(async move {
                // An error of a connection ends only that connection.
                let answer = service_fn(move |_| {
                    let response = answer_with(body.clone());
                    async move { Ok::<_, Infallible>(response) }
                });
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await.ok()
            });
        }
    })
}

fn answer_with(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    fields.insert(SERVER, HeaderValue::from_static("hyper"));
    for (name, value) in answer::FIELDS {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
