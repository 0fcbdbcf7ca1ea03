//! Clients with a certificate: curl, with a certificate from openssl, without which the test is skipped with a message;
//! and the proxy.

use std::process::Command;

use serde_json::{Value, json};

use crate::client::{ReceivedResponse, get};
use crate::http2::program;
use crate::process::{Directory, ServerProcess};

const CADDYFILE: &str = "{
	skip_install_trust
	auto_https disable_redirects
}
https://localhost:0, https://other.localhost:0 {
	tls internal {
		client_auth {
			mode MODE
		}
	}
	@known expression `{tls_client_serial} == '77'`
	header @known Known yes
	respond \"{tls_version}|{http.request.tls.proto}|{http.request.tls.server_name}|{tls_client_subject}|{tls_client_issuer}|{tls_client_serial}|{http.request.tls.client.san.dns_names.0}|{http.request.tls.client.san.emails}\"
}
";

#[test]
fn placeholders_of_client_certificates() {
    let (Some(curl), Some(openssl)) = (program("curl"), program("openssl")) else { return };
    let directory = Directory::with(&[("Caddyfile", &CADDYFILE.replace("MODE", "request"))]);
    let mut make = Command::new(openssl);
    make.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "key",
        "-out",
    ]);
    make.args(["certificate", "-subj", "/O=Example/CN=alice", "-set_serial", "77", "-days", "2"]);
    make.args(["-addext", "subjectAltName=DNS:alice.example,email:alice@example"]);
    let made = make.current_dir(directory.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let send_request = |port: u16, more: &[&str]| {
        let mut command = Command::new(&curl);
        command.args(["-ski", "--max-time", "20"]).args(more).arg(format!("https://localhost:{port}/"));
        let output = command.current_dir(directory.path("")).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let identified = ["--cert", "certificate", "--key", "key"];

    let server = directory.start(&["run"]);
    let (_, text) = send_request(server.port(), &identified);
    let want = "tls1.3|h2|localhost|CN=alice,O=Example|CN=alice,O=Example|77|alice.example|[alice@example]";
    assert!(text.ends_with(want) && text.contains("\r\nknown: yes\r\n"), "{text}");
    let (_, text) = send_request(server.port(), &[&identified[..], &["--http1.1", "--tls-max", "1.2"]].concat());
    assert!(text.ends_with(&want.replace("tls1.3|h2", "tls1.2|http/1.1")), "{text}");
    let (_, text) = send_request(server.port(), &[]);
    assert!(text.ends_with("tls1.3|h2|localhost|||||") && !text.contains("known"), "{text}");
    // A server that requests certificates refuses a Host that differs from the connection's server name.
    for version in ["--http2", "--http1.1"] {
        let (_, text) = send_request(server.port(), &[version, "-H", "Host: other.localhost"]);
        assert!(text.starts_with("HTTP/2 421") || text.starts_with("HTTP/1.1 421"), "{text}");
    }
    drop(server);

    directory.write("Caddyfile", CADDYFILE.replace("MODE", "require"));
    let server = directory.start(&["run"]);
    assert!(send_request(server.port(), &identified).1.ends_with(want));
    let (is_answered, text) = send_request(server.port(), &[]);
    assert!(!is_answered && text.is_empty(), "{text}");
}

// Caddy's `tls_client_auth NAME`: the proxy presents the certificate that the server obtains for the name.
#[test]
fn the_proxy_presents_a_managed_certificate() {
    let root = ".local/share/causeway/pki/authorities/local/root.crt";
    let site = |client_auth: &str| {
        let about = "{tls_client_issuer}|{http.request.tls.client.san.dns_names.0}";
        format!(
            "{{\n\tauto_https disable_redirects\n}}\nlocalhost:0 {{\n\ttls internal {{\n{client_auth}}}\n\trespond \"{about}\"\n}}\n"
        )
    };
    let directory = Directory::with(&[("Caddyfile", &site(""))]);
    drop(directory.start(&["run"]));
    let client_auth = format!("client_auth {{\nmode require_and_verify\ntrust_pool file {root}\n}}\n");
    directory.write("Caddyfile", site(&client_auth));
    let upstream = directory.start(&["run"]);
    let proxy = |name: &str| {
        let options = "auto_https disable_redirects\n\tacme_ca https://127.0.0.1:1/directory";
        let own = if name.is_empty() { String::new() } else { format!("tls_client_auth {name}\n") };
        let transport = format!("transport http {{\ntls_trust_pool file {root}\n{own}}}\n");
        let upstream = format!("reverse_proxy https://localhost:{} {{\n{transport}}}\n", upstream.port());
        directory.write("Proxy", format!("{{\n\t{options}\n}}\nhttp://localhost:0 {{\n{upstream}}}\n"));
        directory.start(&["run", "--config", "Proxy", "--adapter", "caddyfile"])
    };
    let server = proxy("Proxy.internal");
    let response = get(server.port(), "/");
    assert_eq!(
        (response.status, &*response.body),
        (200, "CN=Causeway Local Authority - ECC Intermediate|proxy.internal")
    );
    drop(server);

    let mut server = proxy("proxy.example.com");
    assert_eq!(get(server.port(), "/").status, 502);
    server.line_with("TLS handshake: it requests a certificate, and there is none for 'proxy.example.com' yet");
    drop(server);

    // The upstream's reason, which it sends after the handshake (RFC 8446 §4.4.2.4).
    let mut server = proxy("");
    assert_eq!(get(server.port(), "/").status, 502);
    server.line_with("the connection closed before the response: received fatal alert: CertificateRequired");
}

/// The options of both servers.
const OPTIONS: &str = "auto_https disable_redirects";

/// Starts a site that requires a client certificate of an authority in `pool`, and a proxy that presents one of the
/// local authority and trusts `upstream_pool`. Returns the proxy's response.
fn through_both(directory: &Directory, options: &str, pool: &str, upstream_pool: &str) -> ReceivedResponse {
    let options = format!("{OPTIONS}\n{options}");
    directory.write("Caddyfile", site(&options, pool));
    let upstream = directory.start(&["run"]);
    through(directory, &options, &upstream, upstream_pool)
}

/// As [`through_both`], with a site that accepts only the client certificates of `verifier`.
fn through_json(directory: &Directory, verifier: &Value) -> ReceivedResponse {
    directory.write("Caddyfile", site(OPTIONS, "pki_root local"));
    let adapted = directory.output(&["adapt"]);
    let mut config: Value = serde_json::from_slice(&adapted.stdout).unwrap();
    let policy = &mut config["apps"]["http"]["servers"]["srv0"]["tls_connection_policies"][0];
    policy["client_authentication"]["verifiers"] = json!([verifier]);
    directory.write("site.json", config.to_string());
    let upstream = directory.start(&["run", "--config", "site.json"]);
    through(directory, OPTIONS, &upstream, "pki_root local")
}

fn site(options: &str, pool: &str) -> String {
    let client_auth = format!("client_auth {{\nmode require_and_verify\ntrust_pool {pool}\n}}\n");
    format!("{{\n{options}\n}}\nlocalhost:0 {{\ntls internal {{\n{client_auth}}}\nrespond {{tls_client_issuer}}\n}}\n")
}

fn through(directory: &Directory, options: &str, upstream: &ServerProcess, pool: &str) -> ReceivedResponse {
    let upstream_pool = format!("tls_trust_pool {pool}");
    let transport = format!("transport http {{\n{upstream_pool}\ntls_client_auth client.internal\n}}\n");
    let proxy = format!("reverse_proxy https://localhost:{} {{\n{transport}}}\n", upstream.port());
    directory.write("Proxy", format!("{{\n{options}\n}}\nhttp://localhost:0 {{\n{proxy}}}\n"));
    let server = directory.start(&["run", "--config", "Proxy", "--adapter", "caddyfile"]);
    get(server.port(), "/")
}

// Caddy's modules `tls.ca_pool.source.NAME`, for both sides of a connection between two servers that share a storage.
#[test]
fn pools_of_trusted_authorities() {
    let directory = Directory::with(&[(
        "Site",
        "http://localhost:0 {\nroot .local/share/causeway/pki/authorities/local\nfile_server\n}\n",
    )]);
    let site = directory.start(&["run", "--config", "Site", "--adapter", "caddyfile"]);
    let sent = format!("http {{\nendpoints http://localhost:{}/root.crt\n}}", site.port());
    let stored = "storage {\nkeys pki/authorities/local/root.crt\n}";
    let combined = format!("combined {{\nsource {stored}\nsource pki_intermediate local\n}}");
    for (pool, upstream_pool) in [
        ("pki_root local", "pki_root local"),
        ("pki_intermediate local", stored),
        (stored, &*combined),
        (&*combined, "pki_intermediate local"),
        (&*sent, &*sent),
    ] {
        let response = through_both(&directory, "", pool, upstream_pool);
        let want = (200, "CN=Causeway Local Authority - ECC Intermediate");
        assert_eq!((response.status, &*response.body), want, "{pool} {upstream_pool}");
    }
    // A pool without the peer's authority: the site refuses the proxy, and the proxy refuses the site.
    let other = "pki {\nca other {\nname Other\n}\n}";
    for (pool, upstream_pool) in [("pki_root other", "pki_root local"), ("pki_root local", "pki_root other")] {
        let response = through_both(&directory, other, pool, upstream_pool);
        assert_eq!(response.status, 502, "{pool} {upstream_pool}");
    }
    // Single certificates in the storage: the client's own, and another one.
    for (name, want) in [("client.internal", 200), ("localhost", 502)] {
        let key = format!("certificates/local/{name}/{name}.crt");
        // As in Caddy, only JSON has this loader.
        let loader = json!({ "loader": "storage", "certificates": [key] });
        let verifier = json!({ "verifier": "leaf", "leaf_certs_loaders": [loader] });
        let response = through_json(&directory, &verifier);
        assert_eq!(response.status, want, "{key} {}", response.body);
    }
}

// A pool's sources must be readable when the configuration is loaded: the message has the place and the reason.
#[test]
fn pools_that_cannot_be_read() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = Directory::with(&[(
        "Site",
        "http://localhost:0 {\nrespond /text text\nerror /missing 404\nredir /loop /loop\n}\n",
    )]);
    let site = directory.start(&["run", "--config", "Site", "--adapter", "caddyfile"]);
    let port = site.port();
    directory.write("Secure", format!("localhost:0 {{\ntls internal\nredir http://localhost:{port}/text\n}}\n"));
    let secure = directory.start(&["run", "--config", "Secure", "--adapter", "caddyfile"]);
    let downgraded =
        format!("http {{\nendpoints HTTPS://localhost:{}\ntls {{\ninsecure_skip_verify\n}}\n}}", secure.port());
    let slow =
        format!("http {{\nendpoints https://{}\ntls {{\nhandshake_timeout 50ms\n}}\n}}", silent.local_addr().unwrap());
    for (pool, want) in [
        (
            "pki_root other".to_owned(),
            "4:21: found 'other', expected 'local', or an authority that the option `pki` names",
        ),
        ("storage pki/x".to_owned(), "4:20: found 'pki/x', expected a source of certificates that can be read: "),
        (format!("http http://localhost:{port}/missing"), "/missing: found the status 404, expected 200"),
        (format!("http http://u:p@localhost:{port}/loop"), "/loop: found more than 10 redirects"),
        (format!("http http://localhost:{port}/text"), "/text: text that is not PEM', expected a certificate as PEM"),
        (
            "http nonsense".to_owned(),
            "4:17: found 'nonsense', expected a source of certificates that can be read: found the URL 'nonsense'",
        ),
        (downgraded, &*format!("found a redirect to http://localhost:{port}/text, expected HTTPS")),
        (slow, "no complete response after 0.05 s"),
    ] {
        let caddyfile = format!("localhost:0 {{\ntls internal {{\nclient_auth {{\ntrust_pool {pool}\n}}\n}}\n}}\n");
        directory.write("Caddyfile", caddyfile);
        let output = directory.output(&["validate"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let is_right = stderr.contains(want) && stderr.contains("Caddyfile:") && !stderr.contains("u:p");
        assert!(!output.status.success() && is_right, "{pool}: {stderr}");
    }
}
