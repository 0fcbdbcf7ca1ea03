//! Sites over TLS, requested by curl. Skipped without curl.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use super::client::{ReceivedResponse, get, send, send_body};
use super::http2::program;
use super::process::{Directory, ServerProcess};

/// The root certificate of the local authority, in the directory of its server.
pub(super) const ROOT: &str = ".local/share/causeway/pki/authorities/local/root.crt";

pub(super) fn is_installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: there is no {program}");
    }
    there
}

/// Returns curl's output for a host on a local port, with the local authority's root as the only trusted one.
pub(super) fn curl(directory: &Directory, host: &str, port: u16, more: &[&str]) -> Result<String, String> {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "10", "--noproxy", "*", "--resolve", &format!("*:{port}:127.0.0.1"), "--cacert"]);
    command.arg(directory.path(ROOT)).args(more).arg(format!("https://{host}:{port}/a?b"));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Returns the leaf certificate that is served.
fn leaf(directory: &Directory, host: &str, port: u16) -> String {
    let certificates = curl(directory, host, port, &["-o", "/dev/null", "-w", "%{certs}"]).unwrap();
    certificates.split("-----END CERTIFICATE-----").next().unwrap().to_owned()
}

/// Sends a GET to the admin API.
fn send_request(admin: u16, path: &str) -> ReceivedResponse {
    send(admin, &format!("GET {path}"), &[&format!("Host: localhost:{admin}")])
}

pub(super) fn caddyfile(options: &str, sites: &str) -> Directory {
    Directory::with(&[("Caddyfile", &format!("{{\n\t{options}\n}}\n{sites}\n"))])
}

fn json_server(name: &str, tls: Value, automatic: Value) -> Directory {
    let config = json!({ "apps": {
        "http": { "servers": { "s": {
            "listen": [":0"], "automatic_https": automatic,
            "routes": [{ "match": [{ "host": [name] }], "handle": [{ "handler": "static_response", "body": "hi" }] }],
        } } },
        "tls": tls,
    } });
    Directory::with(&[("config.json", &config.to_string())])
}

fn start_json(directory: &Directory) -> ServerProcess {
    directory.start(&["run", "--config", "config.json"])
}

// Caddy's documentation, "Local HTTPS": a name of this machine gets a certificate of the local authority.
#[test]
fn a_local_name_and_an_address() {
    if !is_installed("curl") {
        return;
    }
    let directory = caddyfile("auto_https disable_redirects", "localhost:0, 127.0.0.1:0 {\n\trespond hi\n}");
    let first = {
        let mut server = directory.start(&["run"]);
        let port = server.port();
        assert!(server.first_line.contains("https://localhost:"), "{}", server.first_line);
        assert!(server.line_with("Clients must trust the authority 'local'").ends_with(ROOT));
        for host in ["localhost", "127.0.0.1"] {
            assert_eq!(curl(&directory, host, port, &[]).as_deref(), Ok("hi"));
            assert_eq!(curl(&directory, host, port, &["-o", "/dev/null", "-w", "%{http_version}"]).as_deref(), Ok("2"));
            let version = curl(&directory, host, port, &["--http1.1", "-o", "/dev/null", "-w", "%{http_version}"]);
            assert_eq!(version.as_deref(), Ok("1.1"));
        }
        let refused = curl(&directory, "other.localhost", port, &[]).unwrap_err();
        assert!(refused.contains("alert"), "{refused}");
        leaf(&directory, "localhost", port)
    };
    // The next process finds this certificate in the storage.
    let server = directory.start(&["run"]);
    assert_eq!(leaf(&directory, "localhost", server.port()), first);
}

// Caddy's documentation: requests without TLS are redirected to HTTPS, unless a site's own routes without TLS match
// first.
#[test]
fn redirects_to_tls() {
    let (http, https) = (free_port(), free_port());
    let ports = format!("http_port {http}\n\thttps_port {https}");
    let directory = caddyfile(&ports, "localhost {\n\trespond secure\n}\n\nlocalhost:0 {\n\trespond other\n}");
    let _server = directory.start(&["run"]);
    let answer = get(http, "/a?b");
    assert_eq!((answer.status, answer.field("location")), (308, Some("https://localhost/a?b".to_owned())));
    assert_eq!(answer.field("connection").as_deref(), Some("close"));

    let own = "http://localhost {\n\trespond clear\n}\n\na.localhost {\n\trespond secure\n}";
    let directory = caddyfile(&format!("http_port {}\n\thttps_port {}", free_port(), free_port()), own);
    let server = directory.start(&["run"]);
    let http = *server.ports.iter().find(|port| get(**port, "/").status == 200).expect("a site in the clear");
    assert_eq!(get(http, "/").body, "clear");
}

// certmagic's maintenance: a certificate is renewed in the background, and the new one is served without a reload.
#[test]
fn renewed_without_a_reload() {
    if !is_installed("curl") {
        return;
    }
    let issuer = json!({ "module": "internal", "lifetime": "6s" });
    let tls = json!({ "automation": { "policies": [{ "subjects": ["localhost"], "issuers": [issuer] }] } });
    let directory = json_server("localhost", tls, json!({ "disable_redirects": true }));
    let server = start_json(&directory);
    let first = leaf(&directory, "localhost", server.port());
    let begun = Instant::now();
    while leaf(&directory, "localhost", server.port()) == first {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is not renewed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

// Caddy's `load_files`: a loaded certificate is served, and no other is obtained for its names.
#[test]
fn a_certificate_in_storage_is_reused() {
    if !is_installed("curl") {
        return;
    }
    let issuer_site = caddyfile("auto_https disable_redirects", "a.localhost:0 {\n\trespond hi\n}");
    drop(issuer_site.start(&["run"]));
    let file = |extension: &str| {
        issuer_site.path(&format!(".local/share/causeway/certificates/local/a.localhost/a.localhost.{extension}"))
    };
    let pair = json!({ "certificate": file("crt"), "key": file("key"), "tags": ["mine"] });
    let directory = json_server(
        "a.localhost",
        json!({ "certificates": { "load_files": [pair] } }),
        json!({ "disable_redirects": true }),
    );
    let server = start_json(&directory);
    assert_eq!(curl(&issuer_site, "a.localhost", server.port(), &[]).as_deref(), Ok("hi"));
    assert!(!directory.path(".local/share/causeway").exists(), "a certificate was obtained");
    drop(server);

    // Caddy's `load_storage`: the same by storage keys. The authority's own name is no longer used.
    let stored = |extension: &str| format!("certificates/local/a.localhost/a.localhost.{extension}");
    let pair = json!({ "certificate": stored("crt"), "key": stored("key"), "tags": ["mine"] });
    let text = std::fs::read_to_string(directory.path("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["storage"] = json!({ "module": "file_system", "root": issuer_site.path(".local/share/causeway") });
    config["apps"]["tls"]["certificates"] = json!({ "load_storage": { "pairs": [pair] } });
    directory.write("config.json", config.to_string());
    let server = start_json(&directory);
    assert_eq!(curl(&issuer_site, "a.localhost", server.port(), &[]).as_deref(), Ok("hi"));
    drop(server);
    config["storage"]["root"] = "elsewhere".into();
    directory.write("config.json", config.to_string());
    let output = directory.output(&["validate", "--config", "config.json"]);
    let found = String::from_utf8_lossy(&output.stderr).into_owned();
    let want = "elsewhere/certificates/local/a.localhost/a.localhost.crt: cannot be read: there is no such value in the storage";
    assert!(!output.status.success() && found.contains(want), "{found}");

    let other = json!({ "certificate": file("crt"), "key": issuer_site.path(&ROOT.replace(".crt", ".key")) });
    let directory = json_server("a.localhost", json!({ "certificates": { "load_files": [other] } }), json!({}));
    for command in [&["run", "--config", "config.json"][..], &["validate", "--config", "config.json"]] {
        let output = directory.output(command);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && stderr.contains("found another key than that of the certificate in "),
            "{stderr}"
        );
    }
}

// Caddy's documentation of `certificate_selection`: of the certificates for a name, supplied or managed, the policy's
// one is served.
#[test]
fn a_policy_selects_a_certificate() {
    if !is_installed("curl") {
        return;
    }
    let issuer_site = caddyfile("auto_https disable_redirects\n\tkey_type rsa2048", "a.localhost:0 {\n\trespond hi\n}");
    drop(issuer_site.start(&["run"]));
    let file = |extension: &str| {
        issuer_site.path(&format!(".local/share/causeway/certificates/local/a.localhost/a.localhost.{extension}"))
    };
    let tls = json!({
        "certificates": { "load_files": [{ "certificate": file("crt"), "key": file("key") }], "automate": ["a.localhost"] },
    });
    let directory = json_server("a.localhost", tls, json!({ "disable_redirects": true }));
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.path("config.json")).unwrap()).unwrap();
    for (algorithm, want) in [("rsa", "rsaEncryption"), ("ecdsa", "id-ecPublicKey")] {
        let policies = json!([{ "certificate_selection": { "public_key_algorithm": algorithm } }]);
        config["apps"]["http"]["servers"]["s"]["tls_connection_policies"] = policies;
        directory.write("config.json", config.to_string());
        let server = start_json(&directory);
        // The second name is that of no certificate.
        for name in ["a.localhost", "b.localhost"] {
            let shown = curl(&directory, name, server.port(), &["-k", "-o", "/dev/null", "-w", "%{certs}"]).unwrap();
            let shown = shown.lines().find_map(|line| line.strip_prefix("Public Key Algorithm:")).unwrap().to_owned();
            assert_eq!(shown, want, "{name} {algorithm}");
        }
    }
}

// Caddy's documentation of `sni_regexp`: the policy applies to server names that the expression matches; groups fill no
// placeholders of requests.
#[test]
fn a_policy_for_server_names_by_regular_expression() {
    if !is_installed("curl") {
        return;
    }
    let mut config = json!({ "apps": {
        "http": { "servers": { "s": {
            "listen": [":0"], "automatic_https": { "disable_redirects": true },
            "tls_connection_policies": [{ "match": { "sni_regexp": { "name": "n", "pattern": r"^shop-([a-z]+)\.localhost$" } } }],
            "routes": [{ "handle": [{ "handler": "static_response", "body": "hi{tls.regexp.n.1}" }] }],
        } } },
        "tls": { "certificates": { "automate": ["shop-a.localhost", "shop-1.localhost"] } },
    } });
    let directory = Directory::with(&[("config.json", &config.to_string())]);
    let get = |name: &str, port| curl(&directory, name, port, &["-k"]);
    let server = start_json(&directory);
    assert_eq!(get("shop-a.localhost", server.port()).as_deref(), Ok("hi{tls.regexp.n.1}"));
    assert_eq!(get("SHOP-A.localhost", server.port()).as_deref(), Ok("hi{tls.regexp.n.1}"));
    assert!(get("shop-1.localhost", server.port()).is_err());
    drop(server);
    let policies = &mut config["apps"]["http"]["servers"]["s"]["tls_connection_policies"];
    policies[0]["match"]["sni_regexp"]["pattern"] = json!("^shop-[a-z0-9]{1}");
    directory.write("config.json", config.to_string());
    let output = directory.output(&["validate", "--config", "config.json"]);
    let text = String::from_utf8_lossy(&output.stderr);
    let want = r"tls_connection_policies[0].match.sni_regexp.pattern: found a placeholder without a value in '^shop-[a-z0-9]{1}'";
    assert!(output.status.success() && text.contains(want), "{text}");
}

// A load whose certificates cannot be obtained changes nothing; a successful one serves its certificates at once.
#[test]
fn certificates_and_loads() {
    if !is_installed("curl") {
        return;
    }
    let directory = caddyfile("auto_https disable_redirects", "a.localhost:0 {\n\trespond old\n}");
    let mut server = directory.start(&["run"]);
    let (port, admin) = (server.port(), server.admin_port());
    let before = leaf(&directory, "a.localhost", port);
    let load = |text: &str| {
        send_body(admin, "POST /load", &[&format!("Host: localhost:{admin}"), "Content-Type: text/caddyfile"], text)
    };
    let options = "{\n\tadmin localhost:0\n\tauto_https disable_redirects\n}\n";
    let refused = load(&format!("{options}*.example.com:{port} {{\n\trespond new\n}}\n"));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(curl(&directory, "a.localhost", port, &[]).as_deref(), Ok("old"));
    let loaded = load(&format!("{options}a.localhost:{port}, b.localhost:{port} {{\n\trespond new\n}}\n"));
    assert_eq!(loaded.status, 200, "{loaded:?}");
    for host in ["a.localhost", "b.localhost"] {
        assert_eq!(curl(&directory, host, port, &[]).as_deref(), Ok("new"));
    }
    assert_eq!(leaf(&directory, "a.localhost", port), before, "the reload replaced a valid certificate");
}

// Caddy's admin API: `/pki/ca/ID` and `/pki/ca/ID/certificates`.
#[test]
fn authorities_by_the_api() {
    let directory = caddyfile("auto_https disable_redirects", "localhost:0 {\n\trespond hi\n}");
    let mut server = directory.start(&["run"]);
    let admin = server.admin_port();
    let root = std::fs::read_to_string(directory.path(ROOT)).unwrap();
    let facts: Value = serde_json::from_str(&send_request(admin, "/pki/ca/local").body).unwrap();
    assert_eq!((&facts["id"], &facts["name"]), (&json!("local"), &json!("Causeway Local Authority")));
    assert_eq!(facts["root_certificate"], json!(root));
    let answer = send_request(admin, "/pki/ca/local/certificates");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/pem-certificate-chain"));
    assert_eq!(answer.body, format!("{}{root}", facts["intermediate_certificate"].as_str().unwrap()));
    for (path, status) in [("/pki/ca/other", 404), ("/pki/ca/", 404), ("/pki/x", 404), ("/pki/ca/local/x", 404)] {
        assert_eq!(send_request(admin, path).status, status, "{path}");
    }
}

// Caddy's documentation of on-demand TLS: a handshake for an unknown name queries the endpoint, and obtains a
// certificate only if the answer is a status of 2xx. Several handshakes for one name cause one query. A reload keeps
// the certificates.
#[test]
fn on_demand() {
    if !is_installed("curl") {
        return;
    }
    let endpoint = free_port();
    let options =
        format!("auto_https disable_redirects\n\ton_demand_tls {{\n\t\task http://localhost:{endpoint}/ask?a=b\n\t}}");
    let directory = caddyfile(
        &options,
        &format!(
            "https://:0 {{\n\ttls internal {{\n\t\ton_demand\n\t}}\n\trespond \"hello {{host}}\"\n}}\n\
             http://localhost:{endpoint} {{\n\t@ok {{\n\t\tquery domain=good.example domain=127.0.0.1\n\t\tquery a=b\n\t}}\n\trespond @ok 204\n\t\
             respond 403\n}}"
        ),
    );
    let mut server = directory.start(&["run"]);
    let admin = server.admin_port();
    let port = server.ports.iter().copied().find(|port| *port != endpoint).unwrap();
    std::thread::scope(|scope| {
        let handshakes = [(); 4].map(|()| scope.spawn(|| curl(&directory, "good.example", port, &[])));
        for handshake in handshakes {
            assert_eq!(handshake.join().unwrap().as_deref(), Ok("hello good.example"));
        }
    });
    let refused = curl(&directory, "bad.example", port, &[]).unwrap_err();
    assert!(refused.contains("alert internal error"), "{refused}");
    let names = |admin| serde_json::from_str::<Value>(&send_request(admin, "/causeway/certificates").body).unwrap();
    let known = names(admin);
    let expected = json!(["good.example", "valid", "local", true]);
    let keys = ["name", "state", "authority", "on_demand"];
    assert_eq!(json!(keys.map(|key| &known[0][key])), expected, "{known}");
    assert_eq!(known.as_array().unwrap().len(), 1, "{known}");
    let before = leaf(&directory, "good.example", port);
    let config = send_request(admin, "/config/").body;
    let host = format!("Host: localhost:{admin}");
    let load = ["Content-Type: application/json", "Cache-Control: must-revalidate", &host];
    let loaded = send_body(admin, "POST /load", &load, &config);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_eq!(leaf(&directory, "good.example", port), before);
    assert_eq!(names(admin), known);
    // As in CertMagic, a client that names no server gets a certificate of the address.
    assert_eq!(curl(&directory, "127.0.0.1", port, &[]).as_deref(), Ok("hello 127.0.0.1"));
    let all = names(admin);
    let all: Vec<_> = all.as_array().unwrap().iter().map(|name| &name["name"]).collect();
    assert_eq!(all, ["127.0.0.1", "good.example"]);
}

// CertMagic: of an RSA and an ECDSA certificate for a name, a client gets the one that it can verify; the newer one if
// it can verify both.
#[test]
fn certificates_of_two_kinds() {
    let Some(openssl) = program("openssl") else { return };
    let directory = caddyfile(
        "auto_https disable_redirects",
        "https://a.test:0 {\n\tbind 127.0.0.1\n\ttls rsa.crt rsa.key\n\ttls ecdsa.crt ecdsa.key\n\trespond a\n}",
    );
    let run = |arguments: &[&str]| {
        let output = Command::new(&openssl)
            .current_dir(directory.path(""))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for (name, key, days) in
        [("rsa", &["rsa:2048"][..], "9"), ("ecdsa", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "9")]
    {
        let (crt, file) = (format!("{name}.crt"), format!("{name}.key"));
        let request =
            ["req", "-x509", "-nodes", "-subj", "/CN=a.test", "-addext", "subjectAltName=DNS:a.test", "-days", days];
        let files = ["-keyout", &*file, "-out", &*crt, "-newkey"];
        assert!(run(&[&request[..], &files, key].concat()).0);
    }
    let server = directory.start(&["run"]);
    let at = format!("127.0.0.1:{}", server.port());
    let kind = |options: &[&str]| {
        let connect = ["s_client", "-connect", &*at, "-servername", "a.test"];
        let (_, text) = run(&[&connect[..], options].concat());
        let line =
            text.lines().find_map(|line| line.split_once("Server public key is ")).map(|(_, size)| size.to_owned());
        line.unwrap_or(text)
    };
    for (options, want) in [
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"][..], "2048 bit"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "256 bit"),
        (&["-tls1_3", "-sigalgs", "rsa_pss_rsae_sha256"], "2048 bit"),
        (&["-tls1_3", "-sigalgs", "ecdsa_secp256r1_sha256"], "256 bit"),
    ] {
        assert_eq!(kind(options), want, "{options:?}");
    }
}

/// Sends a request by `openssl s_client`, with a stored session if there is one, and stores the last session. Returns
/// whether the session was resumed.
fn resumes(openssl: &Path, directory: &Directory, port: u16, session: &str) -> bool {
    let file = directory.path(session);
    let (file, at) = (file.to_str().unwrap(), format!("127.0.0.1:{port}"));
    let mut command = Command::new(openssl);
    command.args(["s_client", "-connect", &at, "-servername", "a.localhost", "-ign_eof", "-sess_out", file]);
    if directory.path(session).exists() {
        command.args(["-sess_in", file]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\n\r\n";
    child.stdin.as_mut().unwrap().write_all(request).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("200 OK"), "{text}");
    text.contains("Reused, TLSv1.3")
}

// Caddy's documentation of `session_tickets`: with the key source `distributed` a session resumes at another server
// with the same storage, and across reloads; `disabled` makes every handshake a full one.
#[test]
fn session_tickets() {
    let Some(openssl) = program("openssl") else { return };
    let tls = |tickets: Value| json!({ "session_tickets": tickets });
    let automatic = || json!({ "disable_redirects": true });
    let directory =
        json_server("a.localhost", tls(json!({ "key_source": { "provider": "distributed" } })), automatic());
    let [one, mut other] = [(); 2].map(|()| start_json(&directory));
    assert!(directory.path(".local/share/causeway/stek/keys.json").exists());
    assert!(!resumes(&openssl, &directory, one.port(), "session"));
    assert!(resumes(&openssl, &directory, one.port(), "session"));
    assert!(resumes(&openssl, &directory, other.port(), "session"));
    let (port, admin) = (other.port(), other.admin_port());
    let host = format!("Host: localhost:{admin}");
    let load = ["Content-Type: application/json", "Cache-Control: must-revalidate", &host];
    assert_eq!(send_body(admin, "POST /load", &load, &send_request(admin, "/config/").body).status, 200);
    assert!(resumes(&openssl, &directory, port, "session"));

    let directory = json_server("a.localhost", tls(json!({ "disabled": true })), automatic());
    let server = start_json(&directory);
    assert!(!resumes(&openssl, &directory, server.port(), "session"));
    assert!(!resumes(&openssl, &directory, server.port(), "session"));

    // Each key opens tickets for two seconds, or longer on a busy machine.
    let directory = json_server("a.localhost", tls(json!({ "rotation_interval": "1s", "max_keys": 2 })), automatic());
    let server = start_json(&directory);
    assert!(!resumes(&openssl, &directory, server.port(), "session"));
    let kept = std::fs::read(directory.path("session")).unwrap();
    let begun = Instant::now();
    loop {
        directory.write("copy", &kept);
        if !resumes(&openssl, &directory, server.port(), "copy") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "its key has not left");
        std::thread::sleep(Duration::from_millis(100));
    }
}

// CertMagic's `HTTPValidationHandler`: the server that receives ZeroSSL's request answers it with a file that another
// server with the same storage has opened; other paths and hosts continue to the site.
#[test]
fn validation_files_of_zerossl() {
    let (http, https) = (free_port(), free_port());
    // The endpoint denies every name, so nothing is ordered.
    let options =
        format!("http_port {http}\n\thttps_port {https}\n\ton_demand_tls {{\n\t\task http://localhost:{http}/no\n\t}}");
    let sites = "https:// {\n\ttls {\n\t\ton_demand\n\t\tissuer zerossl key\n\t}\n}\nhttp:// {\n\trespond site 404\n}";
    let directory = caddyfile(&options, sites);
    let path = "/.well-known/pki-validation/0A1B.txt";
    let stored = json!({
        "url": format!("http://a.example{path}"), "token": "DIGEST\nsectigo", "identifier": { "value": "a.example" },
    });
    directory.write(".local/share/causeway/zerossl/challenge_tokens/a.example.json", stored.to_string());
    let _server = directory.start(&["run"]);
    for (host, path, status, body) in [
        ("a.example", path, 200, "DIGEST\nsectigo"),
        ("a.example", "/.well-known/pki-validation/other.txt", 404, "site"),
        ("b.example", path, 404, "site"),
    ] {
        let answer = send(http, &format!("GET {path}"), &[&format!("Host: {host}")]);
        assert_eq!((answer.status, &*answer.body), (status, body), "{host}{path}");
    }
}

// Caddy's documentation of `tls`: `internal` signs any name. `client_auth` requires a certificate of an authority; Host
// must then be the name that the connection was opened for.
#[test]
fn options_of_the_directive() {
    if !is_installed("curl") {
        return;
    }
    let directory = caddyfile("auto_https disable_redirects", "localhost:0 {\n\trespond hi\n}");
    drop(directory.start(&["run"]));
    let root = directory.path(ROOT);
    let pool = format!("trust_pool file {}", root.display());
    let sites = format!(
        "example.com:0 {{\n\ttls internal\n\trespond open\n}}\n\
         a.localhost:0 {{\n\ttls {{\n\t\tclient_auth {{\n\t\t\t{pool}\n\t\t}}\n\t}}\n\trespond closed\n}}"
    );
    directory.write("Caddyfile", format!("{{\n\tauto_https disable_redirects\n}}\n{sites}\n"));
    let server = directory.start(&["run"]);
    let port = server.port();
    assert_eq!(curl(&directory, "example.com", port, &[]).as_deref(), Ok("open"));
    assert!(curl(&directory, "a.localhost", port, &[]).is_err(), "it asks for a certificate");
    let file = |extension: &str| {
        directory.path(&format!(".local/share/causeway/certificates/local/localhost/localhost.{extension}"))
    };
    let (certificate, key) = (file("crt").display().to_string(), file("key").display().to_string());
    let shown = ["--cert", &certificate, "--key", &key];
    assert_eq!(curl(&directory, "a.localhost", port, &shown).as_deref(), Ok("closed"));
    let more = [&shown[..], &["-H", "Host: example.com", "-o", "/dev/null", "-w", "%{http_code}"]].concat();
    assert_eq!(curl(&directory, "a.localhost", port, &more).as_deref(), Ok("421"));
}
