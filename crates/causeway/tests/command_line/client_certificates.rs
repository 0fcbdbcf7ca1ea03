//! Clients with a certificate: curl, with a certificate from openssl. Without these programs the test is skipped with a
//! message.

use std::process::Command;

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
