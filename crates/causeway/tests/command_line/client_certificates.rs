//! Clients with a certificate: curl, with a certificate from openssl, without which the test is skipped with a message; and the proxy.

use std::process::Command;

use crate::client::get;
use crate::http2::program;
use crate::process::Folder;

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
fn what_is_known_of_a_client() {
    let (Some(curl), Some(openssl)) = (program("curl"), program("openssl")) else { return };
    let folder = Folder::with(&[("Caddyfile", &CADDYFILE.replace("MODE", "request"))]);
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
    let made = make.current_dir(folder.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let ask = |port: u16, more: &[&str]| {
        let mut command = Command::new(&curl);
        command.args(["-ski", "--max-time", "20"]).args(more).arg(format!("https://localhost:{port}/"));
        let output = command.current_dir(folder.path("")).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let identified = ["--cert", "certificate", "--key", "key"];

    let server = folder.start(&["run"]);
    let (_, text) = ask(server.port(), &identified);
    let want = "tls1.3|h2|localhost|CN=alice,O=Example|CN=alice,O=Example|77|alice.example|[alice@example]";
    assert!(text.ends_with(want) && text.contains("\r\nknown: yes\r\n"), "{text}");
    let (_, text) = ask(server.port(), &[&identified[..], &["--http1.1", "--tls-max", "1.2"]].concat());
    assert!(text.ends_with(&want.replace("tls1.3|h2", "tls1.2|http/1.1")), "{text}");
    let (_, text) = ask(server.port(), &[]);
    assert!(text.ends_with("tls1.3|h2|localhost|||||") && !text.contains("known"), "{text}");
    // A server that requests certificates refuses a Host that differs from the connection's server name.
    for version in ["--http2", "--http1.1"] {
        let (_, text) = ask(server.port(), &[version, "-H", "Host: other.localhost"]);
        assert!(text.starts_with("HTTP/2 421") || text.starts_with("HTTP/1.1 421"), "{text}");
    }
    drop(server);

    folder.write("Caddyfile", CADDYFILE.replace("MODE", "require"));
    let server = folder.start(&["run"]);
    assert!(ask(server.port(), &identified).1.ends_with(want));
    let (is_answered, text) = ask(server.port(), &[]);
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
    let folder = Folder::with(&[("Caddyfile", &site(""))]);
    drop(folder.start(&["run"]));
    let client_auth = format!("client_auth {{\nmode require_and_verify\ntrust_pool file {root}\n}}\n");
    folder.write("Caddyfile", site(&client_auth));
    let upstream = folder.start(&["run"]);
    let proxy = |name: &str| {
        let options = "auto_https disable_redirects\n\tacme_ca https://127.0.0.1:1/directory";
        let transport = format!("transport http {{\ntls_trust_pool file {root}\ntls_client_auth {name}\n}}\n");
        let upstream = format!("reverse_proxy https://localhost:{} {{\n{transport}}}\n", upstream.port());
        folder.write("Proxy", format!("{{\n\t{options}\n}}\nhttp://localhost:0 {{\n{upstream}}}\n"));
        folder.start(&["run", "--config", "Proxy", "--adapter", "caddyfile"])
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
}
