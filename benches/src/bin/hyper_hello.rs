//! hyper 1.x on tokio's current-thread runtime. `/` sends a short text; `/burn` computes for 50 ms in the handler, to
//! show the effect on all other requests. Usage: `hyper_hello PORT`.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming, server::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("usage: hyper_hello PORT");
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let listener = socket.listen(4096)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                // An error of a connection ends only that connection.
                let connection = http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service_fn(async |request| hello(&request)));
                connection.await.ok()
            });
        }
    })
}

fn hello(request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/burn" {
        burn(Duration::from_millis(50));
    }
    let mut response = Response::new(Full::new(Bytes::from_static(answer::BODY.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response.headers_mut().insert(SERVER, HeaderValue::from_static("hyper"));
    Ok(response)
}

fn burn(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
