//! The handler `acme_server`: one server is the authority, another process orders a certificate from it. Also `trust`
//! and `untrust`.

use std::process::{Command, Stdio};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use super::client::send;
use super::process::{Directory, ServerProcess, wait_until};

pub(super) const ROOT: &str = ".local/share/causeway/pki/authorities/local/root.crt";

/// An authority at `https://localhost:PORT/acme/local/directory`, whose clients answer HTTP-01 and TLS-ALPN-01 on these
/// ports.
pub(super) struct Authority {
    pub(super) dir: Directory,
    pub(super) port: u16,
    pub(super) process: ServerProcess,
}

impl Authority {
    pub(super) fn start(mut handler: Value, [http, tls_alpn]: [u16; 2]) -> Self {
        let port = free_port();
        handler["handler"] = "acme_server".into();
        handler["validation_ports"] = json!({ "http": http, "tls_alpn": tls_alpn });
        let config = json!({ "apps": { "http": { "https_port": port, "servers": { "s": {
            "listen": [format!("127.0.0.1:{port}")],
            "automatic_https": { "disable_redirects": true },
            "routes": [{ "match": [{ "host": ["localhost"] }], "handle": [handler] }],
        } } } } });
        let dir = Directory::with(&[("config.json", &config.to_string())]);
        let process = dir.start(&["run", "--config", "config.json"]);
        Self { dir, port, process }
    }

    pub(super) fn directory(&self) -> String {
        format!("https://localhost:{}/acme/local/directory", self.port)
    }

    /// A Caddyfile of a client for the name localhost. Caddy reads it too.
    pub(super) fn client(&self, [http, https]: [u16; 2], options: &str) -> String {
        let root = self.dir.path(ROOT);
        format!(
            "{{\n\tadmin off\n\thttp_port {http}\n\thttps_port {https}\n\tskip_install_trust\n}}\nlocalhost {{\n\tbind 127.0.0.1\n\
             \ttls {{\n\t\tissuer acme {{\n\t\t\tdir {}\n\t\t\ttrusted_roots {}\n{options}\t\t}}\n\t}}\n\trespond hi\n}}\n",
            self.directory(),
            root.display(),
        )
    }

    /// Requests the client's site with the authority's root as the only trusted one.
    pub(super) fn curl(&self, port: u16) -> Result<String, String> {
        curl(&self.dir, "localhost", port)
    }
}

/// Requests the site of a name on this machine; the only trusted root is that of the authority in the directory.
fn curl(authority: &Directory, name: &str, port: u16) -> Result<String, String> {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "10", "--noproxy", "*", "--resolve", &format!("*:{port}:127.0.0.1"), "--cacert"]);
    let done = command.arg(authority.path(ROOT)).arg(format!("https://{name}:{port}/")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

fn has_curl() -> bool {
    let is_installed = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_installed {
        eprintln!("skipped: there is no curl");
    }
    is_installed
}

// RFC 8555 from the directory to the certificate, with either challenge. Skipped without curl.
#[test]
fn our_own_client() {
    if !has_curl() {
        return;
    }
    for challenge in ["http-01", "tls-alpn-01"] {
        let ports = [free_port(), free_port()];
        let policy = json!({ "allow": { "domains": ["localhost"] } });
        let mut authority = Authority::start(json!({ "challenges": [challenge], "policy": policy }), ports);
        let dir = Directory::with(&[("Caddyfile", &authority.client(ports, ""))]);
        let mut client = dir.start(&["run"]);
        client.line_with("obtained a certificate from https://localhost");
        authority.process.line_with("issued a certificate of the authority 'local' for localhost");
        assert_eq!(authority.curl(ports[1]).as_deref(), Ok("hi"), "{challenge}");
    }
}

// Caddy's documentation of `tls`: issuers are tried in their order. The local authority signs while no other one does,
// also for a wildcard, for which the first issuer here has no DNS provider.
#[test]
fn the_local_authority_after_an_issuer_that_fails() {
    let [http, https, closed] = [free_port(), free_port(), free_port()];
    let dir = Directory::with(&[(
        "Caddyfile",
        &format!(
            "{{\n\tadmin off\n\thttp_port {http}\n\thttps_port {https}\n\tskip_install_trust\n}}\nsite.example, *.site.example \
             {{\n\tbind 127.0.0.1\n\ttls {{\n\t\tissuer acme {{\n\t\t\tdir https://127.0.0.1:{closed}/directory\n\t\t}}\n\t\tissuer \
             internal\n\t}}\n\trespond {{host}}\n}}\n"
        ),
    )]);
    let mut server = dir.start(&["run"]);
    let line = server.line_with("signs");
    assert!(
        line.contains("site.example: https://127.0.0.1:") && line.contains("; the local authority 'local' signs"),
        "{line}"
    );
    server.line_with("site.example: obtained a certificate of the authority 'local'");
    // In storage, for the next start.
    let stored = dir.path(".local/share/causeway/certificates/local/site.example/site.example.json");
    wait_until("the certificate is stored", || stored.exists());
    if !has_curl() {
        return;
    }
    for name in ["site.example", "x.site.example"] {
        assert_eq!(curl(&dir, name, https).as_deref(), Ok(name));
    }
}

// certbot checks the link `up` of each response to a challenge (RFC 8555 §7.5.1), beside the link `index` of all
// responses (§7.1).
#[test]
fn certbot() {
    let ports = [free_port(), free_port()];
    let authority = Authority::start(json!({ "challenges": ["http-01"] }), ports);
    let dir = Directory::new();
    let mut command = Command::new("certbot");
    command.args(["certonly", "--standalone", "--non-interactive", "--agree-tos", "--register-unsafely-without-email"]);
    command.args(["--domain", "localhost", "--http-01-address", "127.0.0.1", "--http-01-port", &ports[0].to_string()]);
    command.args(["--server", &authority.directory()]).env("REQUESTS_CA_BUNDLE", authority.dir.path(ROOT));
    for name in ["config", "work", "logs"] {
        command.arg(format!("--{name}-dir")).arg(dir.path(name));
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "certbot: {error}");
            eprintln!("skipped: certbot: {error}");
            return;
        }
    };
    assert!(output.status.success(), "{output:?}");
    let chain = std::fs::read_to_string(dir.path("config/live/localhost/fullchain.pem")).unwrap();
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
}

// Caddy's `storage` of an automation policy: certificates and accounts of its names are there, and not in the
// configuration's storage.
#[test]
fn a_client_with_a_separate_storage() {
    let ports = [free_port(), free_port()];
    let mut authority = Authority::start(json!({ "policy": { "allow": { "domains": ["localhost"] } } }), ports);
    let dir = Directory::with(&[("Caddyfile", &authority.client(ports, ""))]);
    let mut config: Value = serde_json::from_slice(&dir.output(&["adapt"]).stdout).unwrap();
    let own = json!({ "module": "file_system", "root": dir.path("own") });
    config["apps"]["tls"]["automation"]["policies"][0]["storage"] = own;
    dir.write("config.json", config.to_string());
    let mut client = dir.start(&["run", "--config", "config.json"]);
    client.line_with("obtained a certificate from https://localhost");
    authority.process.line_with("issued a certificate of the authority 'local' for localhost");
    let names = |at: &str| {
        let entries = std::fs::read_dir(dir.path(at)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let name = format!("localhost-{}-acme-local-directory", authority.port);
    assert_eq!((names("own/certificates"), names("own/acme")), (vec![name.clone()], vec![name]));
    for usual in ["certificates", "acme"] {
        assert!(names(&format!(".local/share/causeway/{usual}")).is_empty(), "{usual}");
    }
}

// Caddy's integration test of the policy `deny`: the client learns that the name is rejected.
#[test]
fn a_name_that_the_policy_denies() {
    let ports = [free_port(), free_port()];
    let authority = Authority::start(json!({ "policy": { "deny": { "domains": ["localhost"] } } }), ports);
    let dir = Directory::with(&[("Caddyfile", &authority.client(ports, ""))]);
    let mut client = dir.start(&["run"]);
    let line = client.line_with("cannot obtain a certificate");
    assert!(line.contains("rejectedIdentifier"), "{line}");
}

// The Caddyfile of Caddy's integration test of the directory. Requests outside of the prefix continue.
#[test]
fn the_directive() {
    let port = free_port();
    let site = format!(
        "http://acme.localhost:{port} {{\n\tbind 127.0.0.1\n\troute {{\n\tacme_server {{\n\t\tallow {{\n\t\t\tdomains a.test\n\t\t}}\n\t}}\n\trespond other\n\t}}\n}}\n"
    );
    let dir = Directory::with(&[("Caddyfile", &format!("{{\n\tadmin off\n}}\n{site}"))]);
    let _server = dir.start(&["run"]);
    let get = |path: &str| send(port, &format!("GET {path}"), &[&format!("Host: acme.localhost:{port}")]);
    let base = format!("https://acme.localhost:{port}/acme/local");
    let answer = get("/acme/local/directory");
    let want = format!(
        "{{\"newNonce\":\"{base}/new-nonce\",\"newAccount\":\"{base}/new-account\",\"newOrder\":\"{base}/new-order\",\
         \"revokeCert\":\"{base}/revoke-cert\",\"keyChange\":\"{base}/key-change\"}}\n"
    );
    assert_eq!((answer.status, answer.body.clone()), (200, want));
    assert_eq!(answer.field("Content-Type").as_deref(), Some("application/json"));
    let answer = get("/acme/local/new-nonce");
    assert!(answer.status == 204 && answer.field("Replay-Nonce").is_some_and(|nonce| nonce.len() >= 22), "{answer:?}");
    assert_eq!(get("/acme/local/x").status, 405);
    assert_eq!(get("/acme/other/directory").body, "other");
}

#[test]
fn mistakes() {
    for (options, words) in [
        ("challenges dns-02", "found 'dns-02', expected http-01"),
        ("allow {\n\t\tip_ranges 10.0.0.0/33\n\t}", "10.0.0.0/33"),
        ("allow {\n\t\tdomains a.*.test\n\t}", "a.*.test"),
        ("lifetime 1m", "at least 5m"),
        ("lifetime 30d", "should be less than intermediate certificate lifetime"),
        ("resolvers tcp/192.0.2.1", "tcp/192.0.2.1"),
    ] {
        let text = format!("{{\n\tadmin off\n}}\nhttp://:0 {{\n\tacme_server {{\n\t{options}\n\t}}\n}}\n");
        let dir = Directory::with(&[("Caddyfile", &text)]);
        let output = dir.output(&["validate", "--config", "Caddyfile"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(words), "{options}: {stderr}");
    }
}

// Caddy's commands: the root comes from the admin API, or for `untrust` from a file. No case here reaches a trust store
// of this machine.
#[test]
fn trust_needs_a_server_and_a_known_authority() {
    let dir = Directory::new();
    let closed = free_port();
    let output = dir.output(&["trust", "--address", &format!("localhost:{closed}")]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains(&format!("localhost:{closed}")), "{stderr}");
    dir.write("root.crt", "not a certificate");
    for (arguments, words) in [
        (&["untrust", "--cert", "none.crt"][..], "none.crt"),
        (&["untrust", "--cert", "root.crt"], "expected a certificate as PEM"),
        (&["untrust", "--cert", "root.crt", "--ca", "local"], "cannot be used with"),
    ] {
        let output = dir.output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    dir.write("Caddyfile", format!("{{\n\thttp_port {}\n\thttps_port {}\n}}\nlocalhost\n", free_port(), free_port()));
    let mut server = dir.start(&["run"]);
    let admin = format!("localhost:{}", server.admin_port());
    let output = dir.output(&["untrust", "--ca", "other", "--address", &admin]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("no authority 'other'"), "{stderr}");
}
