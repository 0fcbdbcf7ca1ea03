//! An axum application on Causeway's engine: `cargo run --example axum_router -- 127.0.0.1:8080`, then
//! `curl localhost:8080/hello/you`, `curl -d text localhost:8080/length`, and a WebSocket on `/echo`.

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, Path};
use axum::response::Response;
use axum::routing::{get, post};
use std::net::SocketAddr;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tower_edge::ServeError> {
    let router = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}\n")))
        .route("/length", post(async |content: Bytes| format!("{}\n", content.len())))
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("{peer}\n")))
        .route("/echo", get(async |upgrade: WebSocketUpgrade| -> Response { upgrade.on_upgrade(echo) }));
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    tower_edge::Server::builder()
        .listen(listen)
        .with_connect_info()
        .serve(router)
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await
}

/// Echoes text and binary messages; axum handles the control messages.
async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}
