//! Pebble, Let's Encrypt's test authority, with its DNS server, which resolves every name to 127.0.0.1.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use crate::server::free_port;
use crate::workshop::Workshop;

/// Time limit of its start.
const START_MAX: Duration = Duration::from_secs(20);

/// The running authority; killed when dropped.
pub(super) struct Pebble {
    children: Vec<Child>,
    server: PathBuf,
    dir: PathBuf,
    /// The address of the DNS server.
    resolver: String,
    management: u16,
    /// The port of its directory, over HTTPS.
    port: u16,
    /// The PEM file that a client must trust for that.
    pub root: PathBuf,
}

impl Pebble {
    /// Starts it in this directory. It verifies TLS-ALPN-01 at this port.
    pub fn start(shop: &Workshop, dir: &Path, https: u16) -> Result<Self> {
        let (server, dns) = (built(shop, "pebble")?, built(shop, "pebble-challtestsrv")?);
        fs::create_dir_all(dir)?;
        let root = dir.join("pebble.pem");
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
        fs::write(&root, certificate.pem())?;
        fs::write(dir.join("pebble.key"), key.serialize_pem())?;
        let (port, management, resolver, dns_management) = (free_port()?, free_port()?, free_port()?, free_port()?);
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": root,
            "privateKey": dir.join("pebble.key"),
            // A closed port: HTTP-01 is not used.
            "httpPort": 1,
            "tlsPort": https,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "the only one", "validityPeriod": 90 * 24 * 60 * 60 } },
        } });
        fs::write(dir.join("pebble.json"), config.to_string())?;
        let address = format!("127.0.0.1:{resolver}");
        let (children, dir) = (Vec::new(), dir.to_owned());
        let mut pebble = Self { children, server, dir, resolver: address, management, port, root };
        let mut command = Command::new(dns);
        command.args([
            "-defaultIPv6",
            "",
            "-defaultIPv4",
            "127.0.0.1",
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
        ]);
        command.args(["-doh", "", "-dnsserver", &pebble.resolver]);
        command.args(["-management", &format!("127.0.0.1:{dns_management}")]);
        pebble.spawn(&mut command, "dns.log")?;
        wait_for(resolver)?;
        pebble.serve()?;
        Ok(pebble)
    }

    /// Ends the authority and starts it anew, without its accounts and orders.
    ///
    /// Pebble's handler of an order takes the order's read lock twice, and it waits forever if an issuance asks for the
    /// write lock between them. Hundreds of orders at once bring that about.
    pub fn restart(&mut self) -> Result<()> {
        if let Some(mut server) = self.children.pop() {
            let _ = server.kill();
            let _ = server.wait();
        }
        self.serve()
    }

    fn serve(&mut self) -> Result<()> {
        let mut command = Command::new(&self.server);
        command.arg("-config").arg(self.dir.join("pebble.json")).args(["-dnsserver", &self.resolver]);
        // Without its random pauses and its random refusal of nonces, which test a client and not a server.
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0").env("PEBBLE_AUTHZREUSE", "0");
        self.spawn(&mut command, "pebble.log")?;
        wait_for(self.port)?;
        wait_for(self.management)
    }

    /// The URL of the directory.
    pub fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// The authority's name in storage keys.
    pub fn storage_key(&self) -> String {
        format!("localhost-{}-dir", self.port)
    }

    fn spawn(&mut self, command: &mut Command, log: &str) -> Result<()> {
        let log = File::options().append(true).create(true).open(self.dir.join(log))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.children.push(command.spawn().context("starting Pebble")?);
        Ok(())
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(port: u16) -> Result<()> {
    let begun = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(begun.elapsed() < START_MAX, "Pebble does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Builds one of its programs, with the versions that the tests use.
fn built(shop: &Workshop, program: &str) -> Result<PathBuf> {
    let go = shop.packaged("go", "golang-go")?;
    let module = shop.root.join("tests/peers/pebble");
    let mut build = Command::new(go);
    build.current_dir(&module).args(["build", "-o"]).arg(shop.tools.join(program));
    build.arg(format!("github.com/letsencrypt/pebble/v2/cmd/{program}"));
    shop.built(program, &[module.join("go.mod")], &mut build)
}
