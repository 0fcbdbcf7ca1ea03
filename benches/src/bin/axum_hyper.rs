//! The axum router on hyper and tokio's current-thread runtime, as axum serves it. Usage: `axum_hyper PORT`.

use std::net::Ipv4Addr;

use axum::serve::ListenerExt as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("usage: axum_hyper PORT");
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        // Ignore errors: with Nagle's algorithm a connection is slow, but correct.
        let listener = socket.listen(4096)?.tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, answer::router::router()).await
    })
}
