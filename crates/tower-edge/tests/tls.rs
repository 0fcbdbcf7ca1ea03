//! TLS: the version by ALPN, and the connection facts for the service.

mod support;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::{block_on, builder};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_edge::ConnectInfo;

async fn facts(request: Request) -> String {
    let info = request.extensions().get::<ConnectInfo>().cloned().unwrap();
    let tls = info.tls.unwrap();
    let name = tls.server_name.as_deref().unwrap_or("none");
    let certificate = tls.client_certificate.as_ref().map_or(0, |der| der.len());
    format!("{} {} {name} {certificate} {:?}", tls.version, tls.protocol, request.version())
}

#[test]
fn both_versions_by_alpn() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let router = Router::new().route("/", get(facts));
    let running = builder().tls(chain, key).with_connect_info().start(router).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    for (protocol, version) in [("h2", "HTTP/2.0"), ("http/1.1", "HTTP/1.1")] {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.into()];
        let text = block_on(async {
            let stream = tokio::net::TcpStream::connect(running.addresses()[0]).await.unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let stream = TokioIo::new(connector.connect("localhost".try_into().unwrap(), stream).await.unwrap());
            let request = http::Request::get("https://localhost/").header("host", "localhost");
            let request = request.body(Empty::<axum::body::Bytes>::new()).unwrap();
            let answer = if protocol == "h2" {
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            } else {
                let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                let mut request = request;
                *request.uri_mut() = http::Uri::from_static("/");
                sender.send_request(request).await.unwrap()
            };
            String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
        });
        assert_eq!(text, format!("tls1.3 {protocol} localhost 0 {version}"));
    }
}
