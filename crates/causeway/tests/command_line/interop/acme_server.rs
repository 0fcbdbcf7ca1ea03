//! Caddy as the client of our handler `acme_server`. Also skipped without curl.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::peer::tool;
use causeway_testkit::ports::free_port;

use crate::acme_server::Authority;
use crate::process::Directory;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Caddy; killed when dropped.
struct Caddy(Child);

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// RFC 8555: Caddy obtains a certificate by each challenge, and serves it.
#[test]
fn caddy_obtains_a_certificate() {
    let Some(program) = tool("caddy") else { return };
    for challenge in ["http-01", "tls-alpn-01"] {
        let ports = [free_port(), free_port()];
        let mut authority = Authority::start(json!({ "challenges": [challenge] }), ports);
        let dir = Directory::with(&[("Caddyfile", &authority.client(ports, ""))]);
        let log = File::create(dir.path("caddy.log")).unwrap();
        let mut command = Command::new(&program);
        command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).current_dir(dir.path(""));
        command.env("HOME", dir.path("")).env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
        let _caddy = Caddy(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        authority.process.line_with("issued a certificate of the authority 'local' for localhost");
        let begun = Instant::now();
        loop {
            match authority.curl(ports[1]) {
                Ok(text) => break assert_eq!(text, "hi", "{challenge}"),
                Err(error) => {
                    let caddy_log = || std::fs::read_to_string(dir.path("caddy.log")).unwrap();
                    assert!(begun.elapsed() < TIMEOUT, "{challenge}: {error}: {}", caddy_log());
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}
