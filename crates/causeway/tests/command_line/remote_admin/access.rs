//! `admin.identity` and `admin.remote`: clients with certificates, their permissions, and loads through the remote
//! listener.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use crate::acme_server::{Authority, ROOT};
use crate::client::{get, send, send_body};
use crate::http2::program;
use crate::process::{Directory, ServerProcess};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The programs, and a directory with the clients' certificates.
struct Bench {
    directory: Directory,
    curl: PathBuf,
    openssl: PathBuf,
}

impl Bench {
    /// `None`: a program is missing.
    fn new() -> Option<Self> {
        let (curl, openssl) = (program("curl")?, program("openssl")?);
        Some(Self { directory: Directory::new(), curl, openssl })
    }

    #[track_caller]
    fn openssl(&self, arguments: &[&str]) {
        let made = Command::new(&self.openssl).args(arguments).current_dir(self.directory.path("")).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    /// Makes a self-signed certificate `NAME.pem` with the key `NAME.key`. By openssl's default it is marked as a CA.
    fn certify(&self, name: &str, more: &[&str]) {
        let (key, pem, subject) = (format!("{name}.key"), format!("{name}.pem"), format!("/CN={name}"));
        let kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        self.openssl(&[&kind[..], &["-keyout", &key, "-out", &pem, "-subj", &subject], more].concat());
    }

    /// Makes a certificate signed by `by`, with these extensions.
    fn certify_by(&self, name: &str, by: &str, extensions: &str) {
        self.directory.write("extensions", extensions);
        let of = |kind: &str| format!("{name}.{kind}");
        let kind = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let subject = format!("/CN={name}");
        self.openssl(&[&kind[..], &["-keyout", &of("key"), "-out", &of("csr"), "-subj", &subject]].concat());
        let (authority, key) = (format!("{by}.pem"), format!("{by}.key"));
        let sign = [
            "x509",
            "-req",
            "-days",
            "2",
            "-CAcreateserial",
            "-extfile",
            "extensions",
            "-CA",
            &authority,
            "-CAkey",
            &key,
        ];
        self.openssl(&[&sign[..], &["-in", &of("csr"), "-out", &of("pem")]].concat());
    }

    /// Returns a certificate as `public_keys` has it: its PEM block without the first and the last line.
    fn public_key(&self, name: &str) -> String {
        let pem = std::fs::read_to_string(self.directory.path(&format!("{name}.pem"))).unwrap();
        pem.lines().filter(|line| !line.starts_with("-----")).collect()
    }

    /// Appends a certificate to the chain of another one.
    fn append(&self, name: &str, issuer: &str) {
        let read = |name: &str| std::fs::read_to_string(self.directory.path(&format!("{name}.pem"))).unwrap();
        self.directory.write(&format!("{name}.pem"), read(name) + &read(issuer));
    }

    /// As [`send_request_to`](Self::send_request_to) for the host localhost.
    fn send_request(&self, port: u16, client: &str, path: &str, more: &[&str]) -> (u16, String) {
        self.send_request_to(&format!("localhost:{port}"), client, path, more)
    }

    /// Requests `path` as this client, and returns the status and the body; 0 if the handshake failed.
    fn send_request_to(&self, host: &str, client: &str, path: &str, more: &[&str]) -> (u16, String) {
        let mut command = Command::new(&self.curl);
        command.args(["-s", "--path-as-is", "--max-time", "20", "-w", "\n%{http_code}"]);
        command.args(["--cacert", ".local/share/causeway/pki/authorities/local/root.crt"]);
        if !client.is_empty() {
            command.args(["--cert", &format!("{client}.pem"), "--key", &format!("{client}.key")]);
        }
        command.args(more).arg(format!("https://{host}{path}"));
        let output = command.current_dir(self.directory.path("")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.trim_end().to_owned())
    }

    #[track_caller]
    fn start(&self, config: &Value) -> ServerProcess {
        self.directory.write("config.json", config.to_string());
        self.directory.start(&["run", "--config", "config.json", "--workers", "1"])
    }
}

/// A configuration with a site that responds with `body`, and a remote listener.
fn config(site: u16, body: &str, remote: u16, access: &Value) -> Value {
    json!({
        "admin": {
            "identity": { "identifiers": ["localhost", "127.0.0.1"], "issuers": [{ "module": "internal" }] },
            "remote": { "listen": format!("127.0.0.1:{remote}"), "access_control": access },
        },
        "apps": { "http": { "servers": { "s": {
            "listen": [format!("127.0.0.1:{site}")],
            "routes": [{ "@id": "route", "handle": [{ "handler": "static_response", "body": body }] }],
        } } } },
    })
}

#[track_caller]
fn refused(answer: (u16, String), status: u16, words: &str) {
    assert_eq!(answer, (status, json!({ "error": words }).to_string()));
}

// Caddy's documentation of `admin.remote.access_control`: a client may do what one of the entries with its public key
// allows. The handshake refuses clients without a certificate, and with one that leads to none of these.
#[test]
fn clients_and_their_permissions() {
    let Some(bench) = Bench::new() else { return };
    for name in ["owner", "reader", "stranger", "authority"] {
        bench.certify(name, &[]);
    }
    bench.certify("server", &["-addext", "extendedKeyUsage=serverAuth"]);
    bench.certify_by("member", "authority", "basicConstraints=CA:FALSE");
    bench.certify_by("middle", "authority", "basicConstraints=critical,CA:TRUE");
    bench.certify_by("distant", "middle", "extendedKeyUsage=clientAuth");
    bench.append("distant", "middle");
    bench.certify_by("impostor", "stranger", "");
    let access = json!([
        { "public_keys": [bench.public_key("owner")] },
        { "public_keys": [bench.public_key("reader")], "permissions": [
            { "paths": ["/config/apps", "/id/route"], "methods": ["GET"] },
            { "paths": ["/causeway/status"] },
        ] },
        { "public_keys": [bench.public_key("authority"), bench.public_key("server")], "permissions": [{ "methods": ["GET"] }] },
    ]);
    let (site, remote) = (free_port(), free_port());
    let mut server = bench.start(&config(site, "first", remote, &access));
    let line = server.line_with("The remote admin API is on ");
    assert!(line.ends_with(&format!("https://127.0.0.1:{remote}")), "{line}");
    let send_request = |client: &str, path: &str, more: &[&str]| bench.send_request(remote, client, path, more);

    let body = "/config/apps/http/servers/s/routes/0/handle/0/body";
    for client in ["", "stranger", "impostor", "server"] {
        assert_eq!(send_request(client, body, &[]).0, 0, "the handshake with {client:?}");
    }
    for client in ["owner", "reader", "authority", "member", "distant"] {
        for more in [&["--http2"][..], &["--http1.1", "--tls-max", "1.2"]] {
            assert_eq!(send_request(client, body, more), (200, "\"first\"".into()), "{client} {more:?}");
        }
    }
    // With any Host, because the certificate identifies the client.
    assert_eq!(send_request("owner", body, &["-H", "Host: any.example"]).0, 200);
    // By address, so without a server name. A name that the server does not have fails.
    let by = |host: &str| {
        let more = ["--resolve", &format!("other.example:{remote}:127.0.0.1")];
        bench.send_request_to(&format!("{host}:{remote}"), "owner", body, &more).0
    };
    assert_eq!((by("127.0.0.1"), by("other.example")), (200, 0));
    // A page in a browser that has such a certificate.
    assert_eq!(send_request("owner", body, &["-H", "Origin: https://evil.example"]).0, 403);
    assert_eq!(
        send_request("owner", "/causal", &["-H", "Sec-Fetch-Mode: navigate", "-H", "Sec-Fetch-Site: none"]).0,
        403
    );

    let path = "not authorized to access this path";
    let method = "not authorized to use this method";
    refused(send_request("reader", "/config/", &[]), 403, path);
    refused(send_request("reader", "/config/admin", &[]), 403, path);
    refused(send_request("reader", "/config/appstore", &[]), 403, path);
    refused(send_request("reader", "/stop", &["-X", "POST"]), 403, path);
    refused(send_request("reader", "/config/apps/../../stop", &["-X", "POST"]), 403, path);
    refused(send_request("reader", "/config/apps/%2e%2e/%2e%2e/stop", &["-X", "POST"]), 403, path);
    refused(send_request("reader", "/stop/%2e%2e/config/apps", &[]), 403, path);
    refused(send_request("reader", "/config/apps", &["-X", "DELETE"]), 403, method);
    refused(send_request("member", "/config/apps", &["-X", "DELETE"]), 403, method);
    refused(send_request("distant", "/config/apps", &["-X", "DELETE"]), 403, method);
    assert_eq!(send_request("reader", "/causeway/status", &[]).0, 200);
    // As in Caddy: a name of a configuration's object needs the permission for the object's path too.
    assert_eq!(send_request("reader", "/id/route/handle/0/body", &[]), (200, "\"first\"".into()));
    let change = ["-X", "POST", "-H", "Content-Type: application/json", "-d", "\"admin\""];
    let answer = send_request("owner", "/config/admin/identity/@id", &change);
    assert_eq!(answer.0, 200, "{}", answer.1);
    refused(send_request("reader", "/id/admin", &[]), 403, path);
    assert_eq!(send_request("owner", "/id/admin/identifiers/0", &[]), (200, "\"localhost\"".into()));
    assert_eq!(send_request("owner", "/id/absent", &[]).0, 404);
    assert_eq!(get(site, "/").body, "first");
}

// A client with a listed certificate that sends another client's as its intermediate gets no permission by it.
#[test]
fn a_borrowed_certificate() {
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    bench.certify("reader", &[]);
    let access = json!([
        { "public_keys": [bench.public_key("owner")] },
        { "public_keys": [bench.public_key("reader")], "permissions": [{ "paths": ["/metrics"] }] },
    ]);
    let chain = ["reader.pem", "owner.pem"].map(|name| std::fs::read_to_string(bench.directory.path(name)).unwrap());
    bench.directory.write("both.pem", chain.concat());
    std::fs::copy(bench.directory.path("reader.key"), bench.directory.path("both.key")).unwrap();
    let remote = free_port();
    let _server = bench.start(&config(free_port(), "first", remote, &access));
    assert_eq!(bench.send_request(remote, "both", "/metrics", &[]).0, 200);
    refused(bench.send_request(remote, "both", "/config/", &[]), 403, "not authorized to access this path");
}

/// Loads through the remote listener: those that keep, change, move and remove it. The old listener sends the response.
#[test]
fn loads_through_the_remote_listener() {
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    bench.certify("second", &[]);
    let access = |name: &str| json!([{ "public_keys": [bench.public_key(name)] }]);
    let (site, mut remote) = (free_port(), free_port());
    let mut server = bench.start(&config(site, "first", remote, &access("owner")));
    let admin = server.admin_port();
    let load = |port: u16, client: &str, config: &Value| {
        bench.directory.write("next.json", config.to_string());
        bench.send_request(
            port,
            client,
            "/load",
            &["-H", "Content-Type: application/json", "--data-binary", "@next.json"],
        )
    };
    let done = (200, String::new());
    assert_eq!(load(remote, "owner", &config(site, "kept", remote, &access("owner"))), done);
    assert_eq!(get(site, "/").body, "kept");
    // Another client takes over. The former one is refused from then on, also on a new connection.
    assert_eq!(load(remote, "owner", &config(site, "handed", remote, &access("second"))), done);
    assert_eq!(bench.send_request(remote, "owner", "/config/", &[]).0, 0);
    let former = remote;
    remote = free_port();
    assert_eq!(load(former, "second", &config(site, "moved", remote, &access("second"))), done);
    server.line_with(&format!("the remote admin API is on https://127.0.0.1:{remote} now"));
    assert_eq!(bench.send_request(former, "second", "/config/", &[]).0, 0);
    assert_eq!(get(site, "/").body, "moved");
    // Loads that fail leave it as it is: on a site's address, on the local listener's, and without an identity.
    let mut on_the_site = config(site, "no", site, &access("second"));
    let answer = load(remote, "second", &on_the_site);
    let words = format!("listening on 127.0.0.1:{site}: the admin API is on 127.0.0.1:{site}; move one of them first");
    refused(answer, 400, &format!("loading config: loading new config: {words}"));
    on_the_site["admin"]["remote"]["listen"] = json!("127.0.0.1:7");
    on_the_site["admin"]["listen"] = json!("localhost:7");
    let answer = load(remote, "second", &on_the_site);
    assert!(
        answer.0 == 400 && answer.1.contains("the admin API is on 127.0.0.1:7; move one of them first"),
        "{answer:?}"
    );
    let mut bad = config(site, "no", remote, &access("second"));
    bad["admin"]["identity"] = json!(null);
    let answer = load(remote, "second", &bad);
    assert!(answer.1.contains("admin.remote: found 'no identity', expected an `admin.identity`"), "{answer:?}");
    let mut bad = config(site, "no", remote, &json!([{ "public_keys": ["MAA="] }]));
    let answer = load(remote, "second", &bad);
    assert!(answer.1.contains("admin.remote.access_control[0].public_keys: found 'authority 0 is not"), "{answer:?}");
    bad = config(site, "no", remote, &access("second"));
    bad["apps"]["http"]["servers"]["s"]["listen"] = json!([format!("127.0.0.1:{remote}")]);
    assert_eq!(load(remote, "second", &bad).0, 400);
    assert_eq!(get(site, "/").body, "moved");
    assert_eq!(
        bench.send_request(remote, "second", "/config/admin/remote/listen", &[]),
        (200, format!("\"127.0.0.1:{remote}\""))
    );
    // The last load removes it, and the local listener brings it back.
    let removed = json!({ "apps": config(site, "removed", remote, &access("second"))["apps"] });
    assert_eq!(load(remote, "second", &removed), done);
    server.line_with("the remote admin API is off now");
    assert_eq!(bench.send_request(remote, "second", "/config/", &[]).0, 0);
    assert_eq!(get(site, "/").body, "removed");
    let fields = [&*format!("Host: localhost:{admin}"), "Content-Type: application/json"];
    let back = config(site, "back", remote, &access("owner"));
    assert_eq!(send_body(admin, "POST /load", &fields, &back.to_string()).status, 200);
    assert_eq!(bench.send_request(remote, "owner", "/config/admin/remote/listen", &[]).0, 200);
    let names = send(admin, "GET /causeway/certificates", &[&format!("Host: localhost:{admin}")]).body;
    assert!(names.contains("127.0.0.1") && names.contains("localhost"), "{names}");
}

/// `admin off` is about the local listener only, as in Caddy; and the stop command works remotely.
#[test]
fn without_the_local_listener() {
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    let remote = free_port();
    let mut config = config(free_port(), "x", remote, &json!([{ "public_keys": [bench.public_key("owner")] }]));
    config["admin"]["disabled"] = json!(true);
    let server = bench.start(&config);
    assert_eq!(bench.send_request(remote, "owner", "/stop", &["-X", "POST"]).0, 200);
    assert!(server.status().success());
}

/// Another process takes over the remote listener's socket too.
#[test]
fn an_upgrade() {
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    let remote = free_port();
    let access = json!([{ "public_keys": [bench.public_key("owner")] }]);
    let server = bench.start(&config(free_port(), "x", remote, &access));
    let (status, body) = bench.send_request(
        remote,
        "owner",
        "/causeway/upgrade",
        &["-X", "POST", "-H", "Content-Type: application/json"],
    );
    assert_eq!(status, 200, "{body}");
    assert!(server.status().success(), "the former process ends");
    assert_eq!(bench.send_request(remote, "owner", "/config/admin/remote/listen", &[]).0, 200);
    assert_eq!(bench.send_request(remote, "owner", "/stop", &["-X", "POST"]).0, 200);
}

// Caddy's documentation of the loader: `use_server_identity` presents the identity's certificate. Here one server pulls
// its configuration from the remote admin API of another one.
#[test]
fn a_pull_with_the_servers_identity() {
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    // The first server's authority signs the identities of both, because they share one directory.
    let (site, remote, own) = (free_port(), free_port(), free_port());
    let first = bench.start(&config(free_port(), "x", own, &json!([{ "public_keys": [bench.public_key("owner")] }])));
    drop(first);
    let root = bench.directory.path(".local/share/causeway/pki/authorities/local/root.crt");
    std::fs::copy(&root, bench.directory.path("root.pem")).unwrap();
    let mut theirs = config(free_port(), "theirs", remote, &json!([{ "public_keys": [bench.public_key("root")] }]));
    theirs["apps"]["http"]["servers"]["t"] = json!({
        "listen": [format!("127.0.0.1:{site}")],
        "routes": [{ "handle": [{ "handler": "static_response", "body": "pulled" }] }],
    });
    let _theirs = bench.start(&theirs);
    let ours = json!({ "admin": {
        "listen": "localhost:0",
        "identity": { "identifiers": ["127.0.0.1"], "issuers": [{ "module": "internal" }] },
        "config": { "load": {
            "module": "http",
            "url": format!("https://localhost:{remote}/config/apps/http/servers/t/routes/0/handle/0"),
            "tls": { "use_server_identity": true, "root_ca_pem_files": ["root.pem"] },
        } },
    } });
    // The value there is no configuration; that it is refused shows that it has arrived.
    bench.directory.write("ours.json", ours.to_string());
    let mut server = bench.directory.start(&["run", "--config", "ours.json", "--workers", "1"]);
    let line = server.line_with("keeping the configuration that pulled it");
    assert!(line.contains("unknown field `body`"), "{line}");
    // A client's certificate from files: without names, about which the certificate of a site would be warned.
    bench.certify("owner", &[]);
    let mut by_files = ours.clone();
    let mut access = theirs["admin"]["remote"]["access_control"].clone();
    access[0]["public_keys"] = json!([bench.public_key("owner")]);
    by_files["admin"]["config"]["load"]["url"] = json!(format!("https://localhost:{own}/config/"));
    by_files["admin"]["config"]["load"]["tls"] = json!({
        "client_certificate_file": "owner.pem", "client_certificate_key_file": "owner.key", "root_ca_pem_files": ["root.pem"],
    });
    let mut source = config(free_port(), "x", own, &access);
    source["admin"]["listen"] = json!("localhost:0");
    let _source = bench.start(&source);
    bench.directory.write("files.json", by_files.to_string());
    let mut server = bench.directory.start(&["run", "--config", "files.json", "--workers", "1"]);
    let line = server.line_with("keeping the configuration that pulled it");
    assert!(line.contains("is in use already"), "{line}");
    let mut none = ours;
    none["admin"]["config"]["load"]["tls"]["use_server_identity"] = json!(false);
    bench.directory.write("none.json", none.to_string());
    let output = bench.directory.output(&["run", "--config", "none.json"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("pulling a configuration from https://localhost") && !output.status.success(), "{text}");
}

// Caddy's documentation of `identity.issuers`: an ACME authority signs, whose challenge the sites' listener answers.
#[test]
fn an_identity_by_acme() {
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    let [http, https, remote] = [(); 3].map(|()| free_port());
    let authority = Authority::start(json!({ "challenges": ["http-01"] }), [http, https]);
    let mut config = config(http, "x", remote, &json!([{ "public_keys": [bench.public_key("owner")] }]));
    let root = authority.dir.path(ROOT);
    config["admin"]["identity"] = json!({
        "identifiers": ["localhost"],
        "issuers": [{ "module": "acme", "ca": authority.directory(), "trusted_roots_pem_files": [root.display().to_string()] }],
    });
    config["apps"]["http"]["http_port"] = http.into();
    let mut server = bench.start(&config);
    server.line_with("obtained a certificate from https://localhost");
    std::fs::create_dir_all(bench.directory.path(ROOT).parent().unwrap()).unwrap();
    std::fs::copy(root, bench.directory.path(ROOT)).unwrap();
    let identifiers = "/config/admin/identity/identifiers";
    assert_eq!(bench.send_request(remote, "owner", identifiers, &[]), (200, "[\"localhost\"]".into()));
}

/// Bytes that are no TLS, and connections that send nothing, disturb no other client.
#[test]
fn hostile_bytes() {
    use std::io::{Read as _, Write as _};
    let Some(bench) = Bench::new() else { return };
    bench.certify("owner", &[]);
    let remote = free_port();
    let _server =
        bench.start(&config(free_port(), "x", remote, &json!([{ "public_keys": [bench.public_key("owner")] }])));
    let silent: Vec<_> = (0..8).map(|_| crate::client::connect(remote)).collect();
    for bytes in [&b"GET /config/ HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0x16, 3, 1, 0xff, 0xff], &[0xff; 4096]] {
        let mut stream = crate::client::connect(remote);
        stream.write_all(bytes).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let begun = Instant::now();
        let mut answer = Vec::new();
        // An error is a reset, which is as good as an end.
        let _ = stream.read_to_end(&mut answer);
        assert!(begun.elapsed() < TIMEOUT && !answer.windows(4).any(|window| window == b"apps"));
    }
    assert_eq!(bench.send_request(remote, "owner", "/config/admin/remote/listen", &[]).0, 200);
    drop(silent);
}
