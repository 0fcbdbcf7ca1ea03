//! A tower service with automatic certificates, without a Caddyfile: `cargo run --example tower_service`, then `curl
//! --insecure https://localhost:8443/`. With a public name in place of `localhost`, and port 443, Let's Encrypt signs
//! the certificate.

use std::path::Path;

use axum::{Router, routing::get};
use causeway::server::{AutomaticCertificates, data_directory};
use serde_json::json;
use tower_edge::{Running, Server};

/// Serves `service` over TLS on `address`, with certificates for `names`.
pub(crate) async fn start(
    address: &str,
    names: &[&str],
    directory: &Path,
    service: Router,
) -> Result<Running, Box<dyn std::error::Error>> {
    let tls = json!({ "certificates": { "automate": names } });
    let certificates = AutomaticCertificates::start(tls, directory).await?;
    Ok(Server::builder().listen(address).certificates(certificates).start(service)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let router = Router::new().route("/", get(async || "hello\n"));
    let running = start("localhost:8443", &["localhost"], &data_directory(), router).await?;
    println!("serving on {:?}; Ctrl-C ends it", running.addresses());
    tokio::signal::ctrl_c().await?;
    running.shutdown().await;
    Ok(())
}
