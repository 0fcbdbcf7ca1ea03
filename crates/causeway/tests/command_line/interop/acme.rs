//! Certificates by ACME from Pebble, Let's Encrypt's test authority, with its DNS server pebble-challtestsrv, which
//! resolves every name to 127.0.0.1. Also skipped without curl.
//!
//! - `fleet`: three servers with one storage
//! - `load`: renewals while clients connect

mod fleet;
mod load;

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_ports;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::bind::Bind;
use super::peer::tool;
use crate::client::send;
use crate::http2::program;
use crate::ocsp::Responder;
use crate::process::{Directory, ServerProcess};

const TIMEOUT: Duration = Duration::from_secs(20);
const FIRST: &str = "first.example.test";
const SECOND: &str = "second.example.test";

/// The MAC key of Pebble's external account `kid-1`, as base64url.
const MAC_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// A closed port: no server listens on it during the tests.
const CLOSED: u16 = 1;

/// Pebble's settings that the tests vary.
struct Settings {
    /// The ports where it verifies HTTP-01 and TLS-ALPN-01; `None`: one that is closed.
    is_http_open: bool,
    is_tls_open: bool,
    /// Percentage of valid nonces that it rejects.
    bad_nonces: u8,
    external_accounts: bool,
    lifetime_s: u32,
    /// The port of the DNS server, if it is not pebble-challtestsrv.
    dns: Option<u16>,
    /// Whether it issues without verifying challenges.
    is_gullible: bool,
    /// Roots in addition to the first one, each with a chain for every certificate.
    alternate_roots: u8,
    /// The port of the OCSP responder that its certificates name.
    responder: Option<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            is_http_open: true,
            is_tls_open: true,
            bad_nonces: 0,
            external_accounts: false,
            lifetime_s: 90 * 24 * 60 * 60,
            dns: None,
            is_gullible: false,
            alternate_roots: 0,
            responder: None,
        }
    }
}

/// Pebble and its DNS server; killed when dropped.
struct Pebble {
    programs: [PathBuf; 2],
    children: Vec<Child>,
    dir: Directory,
    settings: Settings,
    /// The local authority of this directory issues the certificate of Pebble's HTTPS endpoint.
    root: PathBuf,
    directory: u16,
    management: u16,
    dns: [u16; 2],
    /// The ports of our server.
    http: u16,
    https: u16,
}

impl Pebble {
    /// `None` without its programs.
    fn start(settings: Settings) -> Option<Self> {
        let programs = [tool("pebble")?, tool("pebble-challtestsrv")?];
        if Command::new("curl").arg("--version").output().is_err() {
            eprintln!("skipped: there is no curl");
            return None;
        }
        let site =
            "{\n\tskip_install_trust\n\tauto_https disable_redirects\n}\nhttps://localhost:0 {\n\ttls internal\n}\n";
        let dir = Directory::with(&[("Caddyfile", site)]);
        drop(dir.start(&["run"]));
        Some(Self::start_in(dir, programs, settings))
    }

    /// Another Pebble, whose own HTTPS endpoint has a certificate with the same root.
    fn sibling(&self, settings: Settings) -> Self {
        let dir = Directory::new();
        let from = self.dir.path(".local");
        assert!(Command::new("cp").arg("-r").arg(from).arg(dir.path("")).status().unwrap().success());
        Self::start_in(dir, self.programs.clone(), settings)
    }

    fn start_in(dir: Directory, programs: [PathBuf; 2], settings: Settings) -> Self {
        let root = dir.path(".local/share/causeway/pki/authorities/local/root.crt");
        let [directory, management, dns, dns_management, http, https] = free_ports();
        let (dns, children) = ([dns, dns_management], Vec::new());
        let mut pebble = Self { programs, children, dir, settings, root, directory, management, dns, http, https };
        pebble.resume();
        pebble
    }

    /// Starts the processes, after [`stop`](Self::stop) on the same ports and without any accounts or orders.
    fn resume(&mut self) {
        let data = self.dir.path(".local/share/causeway");
        let own = |extension: &str| data.join(format!("certificates/local/localhost/localhost.{extension}"));
        let Settings { is_http_open, is_tls_open, bad_nonces, external_accounts, lifetime_s, dns, .. } = self.settings;
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.directory),
            "managementListenAddress": format!("127.0.0.1:{}", self.management),
            "certificate": own("crt"),
            "privateKey": own("key"),
            "httpPort": if is_http_open { self.http } else { CLOSED },
            "tlsPort": if is_tls_open { self.https } else { CLOSED },
            "ocspResponderURL": self.settings.responder.map_or(String::new(), |port| format!("http://127.0.0.1:{port}/")),
            "externalAccountBindingRequired": external_accounts,
            "externalAccountMACKeys": { "kid-1": MAC_KEY },
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "the only one", "validityPeriod": lifetime_s } },
        } });
        self.dir.write("pebble.json", config.to_string());
        let [pebble, dns_server] = &self.programs;
        let resolver = format!("127.0.0.1:{}", self.dns[0]);
        let mut command = Command::new(dns_server);
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
        command.args(["-doh", "", "-dnsserver", &resolver, "-management", &format!("127.0.0.1:{}", self.dns[1])]);
        self.children.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let mut command = Command::new(pebble);
        let resolver = dns.map_or(resolver, |port| format!("127.0.0.1:{port}"));
        command.arg("-config").arg(self.dir.path("pebble.json")).args(["-dnsserver", &resolver]);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        command.env("PEBBLE_WFE_NONCEREJECT", bad_nonces.to_string());
        command.env("PEBBLE_VA_ALWAYS_VALID", u8::from(self.settings.is_gullible).to_string());
        command.env("PEBBLE_ALTERNATE_ROOTS", self.settings.alternate_roots.to_string());
        let log = File::create(self.dir.path("pebble.log")).unwrap();
        self.children.push(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let begun = Instant::now();
        for port in [self.directory, self.management, self.dns[0]] {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
                assert!(begun.elapsed() < TIMEOUT, "Pebble does not listen on {port}: {}", self.log());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn stop(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        for child in &self.children {
            kill_process(Pid::from_child(child), signal).unwrap();
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path("pebble.log")).unwrap()
    }

    /// The number of orders since the start.
    fn orders(&self) -> usize {
        self.log().lines().filter(|line| line.contains("Added order ")).count()
    }

    /// The number of accounts since the start.
    fn accounts(&self) -> usize {
        self.log()
            .lines()
            .filter(|line| line.contains("There are now ") && line.ends_with(" accounts in memory"))
            .count()
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/dir", self.directory)
    }

    /// A Caddyfile for these sites, with storage in `data` of its directory.
    fn caddyfile(&self, dir: &Directory, [http, https]: [u16; 2], options: &str, sites: &str) -> String {
        format!(
            "{{\n\thttp_port {http}\n\thttps_port {https}\n\temail ops@example.org\n\tacme_ca {}\n\tacme_ca_root {}\n\
             \tstorage file_system {}\n\tskip_install_trust\n\t{options}\n}}\n{sites}\n",
            self.url(),
            self.root.display(),
            dir.path("data").display(),
        )
    }

    /// A directory with a Caddyfile for our server at the ports that Pebble verifies.
    fn dir(&self, options: &str, sites: &str) -> Directory {
        let dir = Directory::new();
        dir.write("Caddyfile", self.caddyfile(&dir, [self.http, self.https], options, sites));
        dir
    }

    /// Requests a site over TLS. Trusts only the root that Pebble made at its start.
    fn get(&self, name: &str, port: u16) -> Result<String, String> {
        self.get_by(0, name, port)
    }

    /// As [`get`](Self::get), and trusts only the root with this number.
    fn get_by(&self, root: u8, name: &str, port: u16) -> Result<String, String> {
        let roots = curl(&["-k", &format!("https://localhost:{}/roots/{root}", self.management)]).unwrap();
        self.dir.write("issuer.pem", roots);
        get(&self.dir.path("issuer.pem"), name, port)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
    }
}

fn curl(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("curl").args(["-sS", "-m", "10", "--noproxy", "*"]).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn get(root: &Path, name: &str, port: u16) -> Result<String, String> {
    let resolve = format!("*:{port}:127.0.0.1");
    curl(&["--cacert", &root.display().to_string(), "--resolve", &resolve, &format!("https://{name}:{port}/")])
}

fn site(name: &str) -> String {
    format!("{name} {{\n\trespond \"hello from {name}\"\n}}\n")
}

/// A site whose ACME issuer has these properties.
fn site_with(name: &str, properties: &str) -> String {
    format!(
        "{name} {{\n\ttls {{\n\t\tissuer acme {{\n\t\t\t{properties}\n\t\t}}\n\t}}\n\trespond \"hello from {name}\"\n}}\n"
    )
}

fn hello(name: &str) -> Result<String, String> {
    Ok(format!("hello from {name}"))
}

/// A site with a certificate of the local authority.
const INTERNAL: &str = "a.localhost {\n\ttls internal\n\trespond internal\n}\n";

#[track_caller]
fn check_internal(dir: &Directory, port: u16) {
    let root = dir.path("data/pki/authorities/local/root.crt");
    assert_eq!(get(&root, "a.localhost", port).as_deref(), Ok("internal"));
}

fn spawn(dir: &Directory) -> ServerProcess {
    ServerProcess::spawn(dir.command(&["run"]))
}

// RFC 8737: TLS-ALPN-01 needs only the HTTPS port. Pebble could not verify HTTP-01 here.
#[test]
fn tls_alpn_01() {
    let Some(pebble) = Pebble::start(Settings { is_http_open: false, ..Settings::default() }) else { return };
    let dir = pebble.dir("auto_https disable_redirects", &site_with(FIRST, "disable_http_challenge"));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate from {}", pebble.url()));
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    // CertMagic's storage layout, which Caddy shares.
    let authority = format!("localhost-{}-dir", pebble.directory);
    for file in [
        format!("certificates/{authority}/{FIRST}/{FIRST}.crt"),
        format!("certificates/{authority}/{FIRST}/{FIRST}.key"),
        format!("certificates/{authority}/{FIRST}/{FIRST}.json"),
        format!("acme/{authority}/users/ops@example.org/ops.json"),
        format!("acme/{authority}/users/ops@example.org/ops.key"),
    ] {
        assert!(dir.path("data").join(&file).is_file(), "{file}");
    }
}

// On-demand TLS: the first handshake waits for the order, the second one finds the certificate, and after a restart the
// server loads it from storage.
#[test]
fn on_demand() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let [endpoint] = free_ports();
    let options =
        format!("auto_https disable_redirects\n\ton_demand_tls {{\n\t\task http://localhost:{endpoint}/\n\t}}");
    let site = "https:// {\n\ttls {\n\t\ton_demand\n\t}\n\trespond \"hello from {host}\"\n}\n";
    let permission =
        format!("http://localhost:{endpoint} {{\n\t@ok query domain={FIRST}\n\trespond @ok 200\n\trespond 404\n}}\n");
    let dir = pebble.dir(&options, &format!("{site}{permission}"));
    let mut server = spawn(&dir);
    server.line_with("Causeway serves");
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    assert!(pebble.get(SECOND, pebble.https).is_err(), "the endpoint denies it");
    assert_eq!(pebble.orders(), 1);
    drop(server);
    let mut server = spawn(&dir);
    server.line_with("Causeway serves");
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    assert_eq!(pebble.orders(), 1);
}

// RFC 8738 §6: for an IP address the ClientHello of TLS-ALPN-01 carries the reverse DNS name.
#[test]
fn tls_alpn_01_for_an_address() {
    let Some(pebble) = Pebble::start(Settings { is_http_open: false, ..Settings::default() }) else { return };
    let dir = pebble.dir("auto_https disable_redirects", &site_with("127.0.0.1", "disable_http_challenge"));
    let mut server = spawn(&dir);
    server.line_with("127.0.0.1: obtained a certificate");
    assert_eq!(pebble.get("127.0.0.1", pebble.https), hello("127.0.0.1"));
}

// RFC 8555 §8.3: HTTP-01 needs only the HTTP port. All other requests there are redirected as without ACME, also those
// for tokens that are not ours (Caddy's documentation, "Automatic HTTPS": the HTTP port solves the challenge and
// redirects).
#[test]
fn http_01() {
    let Some(pebble) = Pebble::start(Settings { is_tls_open: false, ..Settings::default() }) else { return };
    let dir = pebble.dir("", &site_with(FIRST, "disable_tlsalpn_challenge"));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate from {}", pebble.url()));
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    for path in ["/a?b", "/.well-known/acme-challenge/unknown"] {
        let answer = send(pebble.http, &format!("GET {path}"), &[&format!("Host: {FIRST}")]);
        let location = format!("https://{FIRST}{path}");
        assert_eq!((answer.status, answer.field("location")), (308, Some(location)));
    }
}

// RFC 8555 §8.3: the challenge is answered before a site's own routes on the HTTP port, and only the challenge.
#[test]
fn http_01_with_a_site_on_the_http_port() {
    let Some(pebble) = Pebble::start(Settings { is_tls_open: false, ..Settings::default() }) else { return };
    let plain = format!("http://{FIRST} {{\n\trespond clear\n}}\n");
    let dir = pebble.dir("", &(site_with(FIRST, "disable_tlsalpn_challenge") + &plain));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    let answer = send(pebble.http, "GET /.well-known/acme-challenge/unknown", &[&format!("Host: {FIRST}")]);
    assert_eq!((answer.status, &*answer.body), (200, "clear"));
}

// Caddy tries the other challenge at once if an authority cannot verify the first one.
#[test]
fn the_other_challenge_after_a_failure() {
    let Some(pebble) = Pebble::start(Settings { is_tls_open: false, ..Settings::default() }) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    assert_eq!((pebble.orders(), pebble.get(FIRST, pebble.https)), (2, hello(FIRST)));
}

// RFC 8555 §8.2: without any open port the authority explains the failure, which the log shows.
#[test]
fn neither_challenge() {
    let closed = Settings { is_http_open: false, is_tls_open: false, ..Settings::default() };
    let Some(pebble) = Pebble::start(closed) else { return };
    let dir = pebble.dir("", &(site(FIRST) + INTERNAL));
    let mut server = spawn(&dir);
    let line = server.line_with(&format!("{FIRST}: cannot obtain a certificate: {}: ", pebble.url()));
    assert!(line.contains("the authority could not verify the name: tls-alpn-01: "), "{line}");
    assert!(line.contains("; http-01: ") && line.contains("; retrying in 1 min"), "{line}");
    check_internal(&dir, pebble.https);
}

// Caddy's documentation, "Automatic HTTPS: Storage": a certificate in storage is used again by the next start.
#[test]
fn a_restart_orders_no_certificate() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    drop(server);
    let server = dir.start(&["run"]);
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    drop(server);
    assert_eq!((pebble.orders(), pebble.accounts()), (1, 1));
}

// RFC 9773: an authority that suggests an earlier time gets an order before the certificate is due, which names the
// certificate that it replaces. The advice for the new certificate is in the future.
#[test]
fn renewal_information() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let dir = pebble.dir("auto_https disable_redirects", &site(FIRST));
    let obtained = format!("{FIRST}: obtained a certificate");
    let mut server = spawn(&dir);
    server.line_with(&obtained);
    drop(server);
    let file = format!("data/certificates/localhost-{}-dir/{FIRST}/{FIRST}.crt", pebble.directory);
    let before = std::fs::read_to_string(dir.path(&file)).unwrap();
    let leaf = before.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
    let window = json!({ "suggestedWindow": { "start": "2021-01-02T00:00:00Z", "end": "2021-01-03T00:00:00Z" } });
    let body = json!({ "Certificate": leaf, "ARIResponse": window.to_string() }).to_string();
    let url = format!("https://localhost:{}/set-renewal-info/", pebble.management);
    curl(&["-k", "-f", "--data-binary", &body, &url]).unwrap();
    let mut server = spawn(&dir);
    server.line_with(&obtained);
    assert_eq!((pebble.get(FIRST, pebble.https), pebble.orders()), (hello(FIRST), 2));
    let after = std::fs::read_to_string(dir.path(&file)).unwrap();
    assert!(after != before);
    assert!(pebble.log().contains("is a replacement of"), "the order does not name the certificate: {}", pebble.log());
    drop(server);
    let mut server = spawn(&dir);
    server.line_with("Causeway serves");
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    assert_eq!(pebble.orders(), 2);
}

// CertMagic's renewal window: a certificate is renewed when a third of its lifetime is left, and served without a
// reload.
#[test]
fn renewed_without_a_reload() {
    let Some(pebble) = Pebble::start(Settings { lifetime_s: 12, ..Settings::default() }) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut server = spawn(&dir);
    for orders in 1..=2 {
        server.line_with(&format!("{FIRST}: obtained a certificate"));
        assert_eq!((pebble.orders(), pebble.get(FIRST, pebble.https)), (orders, hello(FIRST)));
    }
    assert_eq!(pebble.accounts(), 1);
}

// As in CertMagic, a certificate that its responder reports as revoked is replaced at once, long before it expires.
#[test]
fn revoked() {
    let Some(openssl) = program("openssl") else { return };
    let [responder] = free_ports();
    let Some(pebble) = Pebble::start(Settings { responder: Some(responder), ..Settings::default() }) else { return };
    let dir = pebble.dir("ocsp_interval 1s", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    let serial = || {
        let path = dir.path(&format!("data/certificates/localhost-{}-dir/{FIRST}/{FIRST}.crt", pebble.directory));
        let output = Command::new(&openssl).args(["x509", "-noout", "-serial", "-in"]).arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().strip_prefix("serial=").unwrap().to_owned()
    };
    let first = serial();
    for (file, path) in [("ca.crt", "intermediates/0"), ("ca.key", "intermediate-keys/0")] {
        dir.write(file, curl(&["-k", &format!("https://localhost:{}/{path}", pebble.management)]).unwrap());
    }
    dir.write("index.txt", format!("R\t490101000000Z\t260101000000Z\t{first}\tunknown\t/CN={FIRST}\n"));
    let _responder = Responder::start(&openssl, &dir, responder, "ca");
    server.line_with("reports the certificate as revoked");
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    assert_ne!(serial(), first);
    assert_eq!((pebble.orders(), pebble.get(FIRST, pebble.https)), (2, hello(FIRST)));
}

// RFC 8555 §6.5: a client retries a request whose nonce the authority rejects.
#[test]
fn rejected_nonces() {
    let Some(pebble) = Pebble::start(Settings { bad_nonces: 50, ..Settings::default() }) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
}

// RFC 8555 §7.3.4: an authority may require an account that exists outside ACME.
#[test]
fn an_external_account() {
    let Some(pebble) = Pebble::start(Settings { external_accounts: true, ..Settings::default() }) else { return };
    let dir = pebble.dir(&format!("acme_eab {{\n\t\tkey_id kid-1\n\t\tmac_key {MAC_KEY}\n\t}}"), &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    drop(server);
    for (key, want) in
        [("AAAA", "urn:ietf:params:acme:error:"), ("not base64", "an external account key that is not base64url")]
    {
        let option = format!("acme_eab {{\n\t\tkey_id kid-1\n\t\tmac_key \"{key}\"\n\t}}");
        let dir = pebble.dir(&option, &(site(FIRST) + INTERNAL));
        let mut server = spawn(&dir);
        let line = server.line_with(&format!("{FIRST}: cannot obtain a certificate: {}: ", pebble.url()));
        assert!(line.contains(want), "{line}");
        check_internal(&dir, pebble.https);
    }
}

// Caddy's documentation, "Automatic HTTPS: Errors": the server starts without the authority, serves the certificates in
// storage, and retries.
#[test]
fn an_authority_that_is_down() {
    let Some(mut pebble) = Pebble::start(Settings::default()) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    drop(server);
    assert_eq!(pebble.orders(), 1);
    let roots = curl(&["-k", &format!("https://localhost:{}/roots/0", pebble.management)]).unwrap();
    pebble.dir.write("issuer.pem", roots);
    pebble.stop();
    let sites = site(FIRST) + &site(SECOND) + INTERNAL;
    dir.write("Caddyfile", pebble.caddyfile(&dir, [pebble.http, pebble.https], "", &sites));
    let mut server = spawn(&dir);
    let line = server.line_with(&format!("{SECOND}: cannot obtain a certificate: {}: ", pebble.url()));
    assert!(line.contains("Connection refused") && line.contains("; retrying in 1 min"), "{line}");
    let root = pebble.dir.path("issuer.pem");
    assert_eq!(get(&root, FIRST, pebble.https), hello(FIRST));
    // RFC 8446 §6.2: a handshake that fails ends with an alert.
    let refused = get(&root, SECOND, pebble.https).unwrap_err();
    assert!(refused.contains("alert"), "{refused}");
    check_internal(&dir, pebble.https);
}

// RFC 8555 §7.3: one account signs the orders of all names. Names that start together must not register one each.
#[test]
fn two_names_have_one_account() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let names = [FIRST, SECOND, "third.example.test", "fourth.example.test"];
    let dir = pebble.dir("", &names.map(site).concat());
    let mut server = spawn(&dir);
    for _ in names {
        server.line_with(": obtained a certificate from ");
    }
    assert_eq!((pebble.orders(), pebble.accounts()), (names.len(), 1), "{}", pebble.log());
    for name in names {
        assert_eq!(pebble.get(name, pebble.https), hello(name));
    }
}

// RFC 8555 §6.7, `accountDoesNotExist`: as in CertMagic, an account that the authority has lost is replaced.
#[test]
fn an_account_that_the_authority_lost() {
    let Some(mut pebble) = Pebble::start(Settings::default()) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    drop(server);
    // Pebble keeps its accounts in memory.
    pebble.stop();
    pebble.resume();
    dir.write("Caddyfile", pebble.caddyfile(&dir, [pebble.http, pebble.https], "", &site(SECOND)));
    let mut server = spawn(&dir);
    server.line_with(&format!("{SECOND}: obtained a certificate"));
    assert_eq!((pebble.accounts(), pebble.get(SECOND, pebble.https)), (1, hello(SECOND)));
}

// Caddy's `cert_lifetime`: the order has a date for the end (RFC 8555 §7.1.3).
#[test]
fn a_lifetime() {
    let Some(pebble) = Pebble::start(Settings { bad_nonces: 50, ..Settings::default() }) else { return };
    let dir = pebble.dir("cert_lifetime 6h", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    assert_eq!(pebble.get(FIRST, pebble.https), hello(FIRST));
    let chain = dir.path(&format!("data/certificates/localhost-{}-dir/{FIRST}/{FIRST}.crt", pebble.directory));
    let ends_within = |seconds: u32| {
        let seconds = seconds.to_string();
        let output =
            Command::new("openssl").args(["x509", "-noout", "-checkend", &seconds, "-in"]).arg(&chain).output();
        !output.unwrap().status.success()
    };
    assert!(!ends_within(6 * 3600 - 60) && ends_within(6 * 3600));
}

// Caddy's `preferred_chains` (RFC 8555 §7.4.2). Pebble's roots sign intermediates with one key, and their names differ.
#[test]
fn a_preferred_chain() {
    let Some(pebble) = Pebble::start(Settings { alternate_roots: 2, ..Settings::default() }) else { return };
    let root = curl(&["-k", &format!("https://localhost:{}/roots/2", pebble.management)]).unwrap();
    pebble.dir.write("root.pem", root);
    let path = pebble.dir.path("root.pem").display().to_string();
    let output =
        Command::new("openssl").args(["x509", "-noout", "-subject", "-nameopt", "multiline", "-in", &path]).output();
    let subject = String::from_utf8(output.unwrap().stdout).unwrap();
    let name =
        subject.lines().find_map(|line| line.split_once("commonName")?.1.split_once('=')).unwrap().1.trim().to_owned();
    for (properties, root) in [
        (format!("preferred_chains {{\n\t\t\t\troot_common_name \"missing\" \"{name}\"\n\t\t\t}}"), 2),
        ("preferred_chains {\n\t\t\t\tany_common_name missing\n\t\t\t}".to_owned(), 0),
    ] {
        let dir = pebble.dir("", &site_with(FIRST, &properties));
        let mut server = spawn(&dir);
        server.line_with(&format!("{FIRST}: obtained a certificate"));
        for number in 0..3 {
            assert_eq!(pebble.get_by(number, FIRST, pebble.https).is_ok(), number == root, "{properties}: {number}");
        }
    }
}

// Caddy's `test_dir`: after a failure, the test authority has to issue a certificate before the authority gets the next
// order.
#[test]
fn a_test_authority() {
    let settings = || Settings { is_gullible: true, ..Settings::default() };
    let Some(real) = Pebble::start(settings()) else { return };
    let good = real.sibling(settings());
    let bad = real.sibling(Settings { is_http_open: false, is_tls_open: false, ..Settings::default() });
    let dir = Directory::new();
    let storage: causeway_certs::SharedStorage =
        std::sync::Arc::new(causeway_certs::FileStorage::new(dir.path("data")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let obtain = |test: &Pebble, attempt: usize| {
        let issuer = causeway_acme::Issuer {
            directory: real.url(),
            test_directory: Some(test.url()),
            roots: vec![real.root.clone()],
            ..causeway_acme::Issuer::default()
        };
        let key = causeway_certs::KeyKind::P256;
        let wanted =
            causeway_acme::CertificateRequest { name: FIRST, key, attempt, must_staple: false, replaces: None };
        runtime.block_on(causeway_acme::obtain(&issuer, wanted, &storage)).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(obtain(&bad, 0), Ok(()));
    assert_eq!((real.orders(), bad.orders()), (1, 0));
    let error = obtain(&bad, 1).unwrap_err();
    assert!(error.starts_with(&format!("the test authority {} issued nothing: ", bad.url())), "{error}");
    assert_eq!((real.orders(), bad.orders()), (1, 2));
    assert_eq!(obtain(&good, 1), Ok(()));
    assert_eq!((real.orders(), good.orders()), (2, 1));
    assert!(!dir.path("data/certificates").exists(), "the caller stores the certificate");
}

// A server that is killed again and again, from its start until it serves: it registers one account, and then serves a
// certificate.
#[test]
fn a_server_that_is_killed() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let mut random = 0x5eed_u64;
    for _ in 0..15 {
        // xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let server = spawn(&dir);
        std::thread::sleep(Duration::from_millis(random % 700));
        // Killed by SIGKILL.
        drop(server);
    }
    let server = spawn(&dir);
    let begun = Instant::now();
    while pebble.get(FIRST, pebble.https) != hello(FIRST) {
        assert!(begun.elapsed() < 2 * TIMEOUT, "it does not serve {FIRST}: {}", pebble.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(server);
    assert_eq!(pebble.accounts(), 1, "{}", pebble.log());
}

// Caddy's documentation, "Automatic HTTPS: Storage": instances with one storage coordinate, so one of them orders the
// certificate.
#[test]
fn two_processes_order_one_certificate() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let dir = pebble.dir("", &site(FIRST));
    let ports: [u16; 2] = free_ports();
    dir.write("other/Caddyfile", pebble.caddyfile(&dir, ports, "", &site(FIRST)));
    // Pebble answers the first process only after the second one has started.
    pebble.signal(Signal::STOP);
    let mut first = spawn(&dir);
    first.line_with(&format!("{FIRST}: obtaining a certificate"));
    let second = dir.start(&["run", "--config", "other/Caddyfile"]);
    pebble.signal(Signal::CONT);
    first.line_with(&format!("{FIRST}: obtained a certificate"));
    let begun = Instant::now();
    while pebble.get(FIRST, ports[1]) != hello(FIRST) {
        assert!(begun.elapsed() < TIMEOUT, "the second process has no certificate");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((first, second));
    assert_eq!(pebble.orders(), 1);
}

// A storage that cannot be written: the log names the path, and the other sites are served.
#[test]
fn storage_that_cannot_be_written() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    // A file or a link in the place of a directory, because a read-only directory does not stop a test that runs as
    // root.
    let dir = pebble.dir("", &(site(FIRST) + INTERNAL));
    dir.write("data/acme", "in the way");
    let mut server = spawn(&dir);
    let line = server.line_with(&format!("{FIRST}: cannot obtain a certificate: "));
    assert!(line.contains(&dir.path("data/acme").display().to_string()), "{line}");
    check_internal(&dir, pebble.https);
    drop(server);
    assert_eq!(pebble.orders(), 0);

    // The certificate is ordered and then cannot be stored: it is served, and not ordered again.
    let dir = pebble.dir("", &(site(FIRST) + INTERNAL));
    std::fs::create_dir_all(dir.path("data/certificates")).unwrap();
    let certificates = dir.path(&format!("data/certificates/localhost-{}-dir", pebble.directory));
    std::os::unix::fs::symlink(dir.path("missing/missing"), &certificates).unwrap();
    let mut server = spawn(&dir);
    let line = server.line_with("the new certificate is served, but the next start orders another");
    assert!(line.contains(&certificates.display().to_string()), "{line}");
    assert_eq!((pebble.orders(), pebble.get(FIRST, pebble.https)), (1, hello(FIRST)));
    check_internal(&dir, pebble.https);
}

/// Pebble with BIND as its resolver. It can connect to no port of our server.
fn pebble_and_bind() -> Option<(Pebble, Bind)> {
    let bind = Bind::start("example.test")?;
    let closed = Settings { is_http_open: false, is_tls_open: false, dns: Some(bind.port), ..Settings::default() };
    Some((Pebble::start(closed)?, bind))
}

/// A site for a wildcard and its base with this DNS provider.
fn wildcard_site(provider: &str, bind: &Bind) -> String {
    let resolver = bind.port;
    format!(
        "*.example.test, example.test {{\n\ttls {{\n\t\tdns {provider}\n\t\tresolvers 127.0.0.1:{resolver}\n\t}}\n\
         \trespond \"hello from {{host}}\"\n}}\n"
    )
}

/// Both certificates arrive, names below the wildcard are served with it, and no TXT record is left.
#[track_caller]
fn check_wildcard(dir: &Directory, pebble: &Pebble, bind: &Bind) {
    let mut server = spawn(dir);
    for _ in 0..2 {
        server.line_with("example.test: obtained a certificate from ");
    }
    for name in ["a.example.test", "b.example.test", "example.test"] {
        assert_eq!(pebble.get(name, pebble.https), hello(name));
    }
    drop(server);
    assert_eq!((bind.changes("adding an RR"), bind.changes("deleting an RR")), (2, 2), "{}", bind.log());
    assert_eq!(pebble.orders(), 2);
}

// RFC 8555 §8.4, RFC 2136, RFC 8945: a wildcard and its base, whose records have one name, by signed updates of a real
// server.
#[test]
fn dns_01_by_updates() {
    let Some((pebble, bind)) = pebble_and_bind() else { return };
    let dir = pebble.dir("", &wildcard_site(&bind.provider(Bind::KEY), &bind));
    check_wildcard(&dir, &pebble, &bind);
    // BIND refuses an update with another key, and the log has the reason.
    let dir = pebble.dir("", &(wildcard_site(&bind.provider("AAAA"), &bind) + INTERNAL));
    let mut server = spawn(&dir);
    let line = server.line_with("example.test: cannot obtain a certificate: ");
    let want = "dns-01: the DNS provider rfc2136 added no TXT record _acme-challenge.example.test: the DNS server answered Not";
    assert!(line.contains(want), "{line}");
    check_internal(&dir, pebble.https);
}

// docs/https.md, "Programs": a program adds and removes the record. If it writes another text, the authority refuses,
// and the record is removed nevertheless.
#[test]
fn dns_01_by_a_program() {
    let closed = Settings { is_http_open: false, is_tls_open: false, ..Settings::default() };
    let Some(pebble) = Pebble::start(closed) else { return };
    let [dns, management] = pebble.dns;
    let dir = pebble.dir("", "");
    let log = dir.path("hook.log");
    let write_hook = |value: &str| {
        let body = |text: &str| format!("'{{\"host\":\"'$2'\"{text}}}'");
        let set = body(&format!(",\"value\":\"'{value}'\""));
        let curl = format!("curl -sSf --noproxy '*' http://127.0.0.1:{management}");
        let script = format!(
            "#!/bin/sh\necho \"$1 $2\" >> {}\ncase $1 in\npresent) {curl}/set-txt -d {set} ;;\ncleanup) {curl}/clear-txt -d {} ;;\nesac\n",
            log.display(),
            body("")
        );
        dir.write("hook", script);
        make_executable(&dir.path("hook"));
    };
    let site = |options: &str| {
        let program = dir.path("hook");
        let program = program.display();
        format!(
            "*.example.test {{\n\ttls {{\n\t\tdns exec {program}\n\t\tresolvers 127.0.0.1:{dns}\n\t\t{options}\n\t}}\n\
             \trespond \"hello from {{host}}\"\n}}\n"
        )
    };
    let ports = [pebble.http, pebble.https];
    write_hook("$3");
    dir.write("Caddyfile", pebble.caddyfile(&dir, ports, "", &site("")));
    let mut server = spawn(&dir);
    server.line_with("*.example.test: obtained a certificate from ");
    assert_eq!(pebble.get("a.example.test", pebble.https), hello("a.example.test"));
    drop(server);
    let calls = || std::fs::read_to_string(&log).unwrap();
    let both = "present _acme-challenge.example.test.\ncleanup _acme-challenge.example.test.\n";
    assert_eq!(calls(), both);

    // Without a look at the record only the authority notices that the text is wrong.
    write_hook("wrong");
    std::fs::remove_dir_all(dir.path("data")).unwrap();
    dir.write("Caddyfile", pebble.caddyfile(&dir, ports, "", &site("propagation_timeout -1")));
    let mut server = spawn(&dir);
    let line = server.line_with("*.example.test: cannot obtain a certificate: ");
    assert!(line.contains("the authority could not verify the name: dns-01: "), "{line}");
    assert_eq!(calls(), both.repeat(2));
    drop(server);

    // With one, the server itself does.
    dir.write("Caddyfile", pebble.caddyfile(&dir, ports, "", &site("propagation_timeout 100ms")));
    let mut server = spawn(&dir);
    let line = server.line_with("*.example.test: cannot obtain a certificate: ");
    assert!(
        line.contains("dns-01: _acme-challenge.example.test: the TXT record was not visible after 0.1 s"),
        "{line}"
    );
    assert_eq!((calls(), pebble.orders()), (both.repeat(3), 3));
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A real Caddy: `./test differential` builds it.
fn caddy() -> Option<PathBuf> {
    let built = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools");
    let path = std::env::var_os("INTEROP_TOOLS").map_or_else(built, PathBuf::from).join("caddy");
    if !path.is_file() {
        eprintln!("skipped: ./test differential builds caddy");
        return None;
    }
    Some(path)
}

/// Runs Caddy until it serves these names with Pebble's certificates. Killed when dropped.
struct Caddy(Child);

impl Caddy {
    fn start(program: &Path, dir: &Directory, pebble: &Pebble, names: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).current_dir(dir.path(""));
        command.env("HOME", dir.path("")).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        let log = File::create(dir.path("caddy.log")).unwrap();
        let caddy = Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let begun = Instant::now();
        for name in names {
            while pebble.get(name, pebble.https) != hello(name) {
                let log = || std::fs::read_to_string(dir.path("caddy.log")).unwrap();
                assert!(begun.elapsed() < 2 * TIMEOUT, "Caddy does not serve {name}: {}", log());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        caddy
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// CertMagic's storage layout: Causeway takes over a directory that Caddy wrote, the certificates and the account.
#[test]
fn a_dir_of_caddy() {
    let (Some(caddy), Some(pebble)) = (caddy(), Pebble::start(Settings::default())) else { return };
    let dir = pebble.dir("admin off", &site(FIRST));
    drop(Caddy::start(&caddy, &dir, &pebble, &[FIRST]));
    assert_eq!((pebble.orders(), pebble.accounts()), (1, 1));
    dir.write("Caddyfile", pebble.caddyfile(&dir, [pebble.http, pebble.https], "", &(site(FIRST) + &site(SECOND))));
    let mut server = spawn(&dir);
    server.line_with(&format!("{SECOND}: obtained a certificate"));
    for name in [FIRST, SECOND] {
        assert_eq!(pebble.get(name, pebble.https), hello(name));
    }
    // One order by Caddy and one for the new site, both of one account.
    assert_eq!((pebble.orders(), pebble.accounts()), (2, 1));
}

// The other way round: Caddy takes over a directory that Causeway wrote.
#[test]
fn a_dir_for_caddy() {
    let (Some(caddy), Some(pebble)) = (caddy(), Pebble::start(Settings::default())) else { return };
    let dir = pebble.dir("admin off", &site(FIRST));
    let mut server = spawn(&dir);
    server.line_with(&format!("{FIRST}: obtained a certificate"));
    drop(server);
    dir.write(
        "Caddyfile",
        pebble.caddyfile(&dir, [pebble.http, pebble.https], "admin off", &(site(FIRST) + &site(SECOND))),
    );
    let _caddy = Caddy::start(&caddy, &dir, &pebble, &[FIRST, SECOND]);
    assert_eq!((pebble.orders(), pebble.accounts()), (2, 1));
    let account = format!("data/acme/localhost-{}-dir/users/ops@example.org/ops.json", pebble.directory);
    let account: Value = serde_json::from_slice(&std::fs::read(dir.path(&account)).unwrap()).unwrap();
    assert_eq!(account["status"], "valid");
}
