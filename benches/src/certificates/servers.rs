//! The servers under handshakes: one worker on core 0, HTTP/1.1 over TLS 1.3, a P-256 certificate, and a second port
//! without TLS.

use std::fs;

use anyhow::{Context, Result};

use super::client::{Client, Exchange};
use crate::http2::servers::keys;
use crate::peers::{self, Launch};
use crate::request::HOST;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::workshop::Workshop;

/// The measured servers. The first one is the reference of the others.
pub(super) const PEERS: [&str; 3] = ["causeway", "nginx", "caddy"];

/// A running server.
pub(super) struct TlsServer {
    pub server: PeerServer,
    /// The port without TLS.
    pub plain: u16,
}

/// Starts a server on core 0 and waits for its first handshake.
pub(super) fn start(shop: &mut Workshop, name: &'static str) -> Result<TlsServer> {
    let recipe = peers::recipe(name)?;
    let tool = peers::obtain(shop, recipe)?;
    let (port, plain) = (free_port()?, free_port()?);
    let keys = keys(shop)?;
    let (certificate, key) = (keys.certificate.display(), keys.key.display());
    let launch = if name == "nginx" {
        let dir = shop.scratch.join(format!("nginx-{port}"));
        fs::create_dir_all(&dir)?;
        let shown = dir.display();
        let text = format!(
            "daemon off;\nworker_processes 1;\npid {shown}/pid;\nerror_log stderr error;\n{user}\
             events {{ worker_connections 20000; }}\n\
             http {{\naccess_log off;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\ndefault_type text/plain;\n\
             client_body_temp_path {shown}/body;\nproxy_temp_path {shown}/proxy;\nfastcgi_temp_path {shown}/fastcgi;\n\
             uwsgi_temp_path {shown}/uwsgi;\nscgi_temp_path {shown}/scgi;\n\
             ssl_certificate {certificate};\nssl_certificate_key {key};\nssl_protocols TLSv1.2 TLSv1.3;\n\
             server {{\nlisten 127.0.0.1:{port} ssl backlog=4096;\nlisten 127.0.0.1:{plain} backlog=4096;\n\
             location / {{ return 200 \"{body}\"; }}\n}}\n}}\n",
            user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" },
            body = answer::BODY,
        );
        let file = dir.join("nginx.conf");
        fs::write(&file, text)?;
        let command = vec![tool.program.clone().into(), "-p".into(), dir.into(), "-c".into(), file.into()];
        Launch { command, path: "/".to_owned(), ..Launch::default() }
    } else {
        let site = format!("bind 127.0.0.1\n\trespond \"{}\"", answer::BODY);
        let text = format!(
            "{{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}}\n\
             https://{HOST}:{port} {{\n\ttls {certificate} {key}\n\t{site}\n}}\nhttp://:{plain} {{\n\t{site}\n}}\n"
        );
        let mut launch = peers::configured(shop, &tool, name, &format!("{port}.Caddyfile"), &text)?;
        peers::limit_workers(&mut launch, name, 1);
        launch
    };
    let server = PeerServer::start_asked(shop, recipe, launch, port, Cores::One(0), &|address, _| {
        Client::full(address, HOST, Exchange::X25519)?.request(None)?;
        Ok(Answered::Right)
    })
    .with_context(|| format!("starting {name}"))?;
    Ok(TlsServer { server, plain })
}
