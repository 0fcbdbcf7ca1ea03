//! OCSP stapling with openssl's responder. openssl and curl are the clients; without them the tests are skipped with a
//! message.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use causeway_testkit::ports::free_ports;

use crate::http2::program;
use crate::process::{Directory, ServerProcess};

/// A directory with an authority, a leaf for `a.test` whose responder is at a port, and a site with it.
struct Site {
    openssl: PathBuf,
    directory: Directory,
    /// The port in the leaf.
    responder: u16,
}

impl Site {
    fn new() -> Option<Self> {
        let openssl = program("openssl")?;
        let [responder] = free_ports();
        let site = Self { openssl, directory: Directory::new(), responder };
        site.authority("ca");
        site.authority("other");
        site.directory.write(
            "leaf.cnf",
            format!("subjectAltName=DNS:a.test\nauthorityInfoAccess=OCSP;URI:http://127.0.0.1:{responder}/\n"),
        );
        site.directory.write("responder.cnf", "extendedKeyUsage=OCSPSigning\n");
        site.signed("leaf", "ca", "01");
        site.signed("responder", "ca", "02");
        let read = |name: &str| std::fs::read_to_string(site.directory.path(name)).unwrap();
        site.directory.write("chain.crt", read("leaf.crt") + &read("ca.crt"));
        site.write_status("V", "");
        site.write_caddyfile("");
        Some(site)
    }

    fn run(&self, arguments: &[&str]) {
        let output = Command::new(&self.openssl).args(arguments).current_dir(self.directory.path("")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn authority(&self, name: &str) {
        let (key, certificate, subject) = (format!("{name}.key"), format!("{name}.crt"), format!("/CN={name}"));
        self.run(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &certificate,
            "-subj",
            &subject,
            "-days",
            "60",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
        ]);
    }

    fn signed(&self, name: &str, authority: &str, serial: &str) {
        let [key, request, extensions, certificate] = ["key", "csr", "cnf", "crt"].map(|kind| format!("{name}.{kind}"));
        let [signer, signer_key] = ["crt", "key"].map(|kind| format!("{authority}.{kind}"));
        self.run(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            &format!("/CN={name}"),
        ]);
        self.run(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &signer,
            "-CAkey",
            &signer_key,
            "-set_serial",
            serial,
            "-days",
            "30",
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ]);
    }

    /// Writes openssl's database: the leaf's status, and the date of a revocation.
    fn write_status(&self, status: &str, revoked: &str) {
        self.directory.write("index.txt", format!("{status}\t490101000000Z\t{revoked}\t01\tunknown\t/CN=leaf\n"));
    }

    fn write_caddyfile(&self, option: &str) {
        let text = format!(
            "{{\n\tskip_install_trust\n\tauto_https disable_redirects\n\tstorage file_system data\n\t{option}\n}}\n\
             https://a.test:0 {{\n\ttls chain.crt leaf.key\n\trespond hello\n}}\n"
        );
        self.directory.write("Caddyfile", text);
    }

    fn responder(&self, signer: &str) -> Responder {
        Responder::start(&self.openssl, &self.directory, self.responder, signer)
    }

    /// The output of `openssl s_client -status` after a handshake.
    fn status(&self, server: &ServerProcess) -> String {
        let mut command = Command::new(&self.openssl);
        command.args([
            "s_client",
            "-connect",
            &format!("127.0.0.1:{}", server.port()),
            "-servername",
            "a.test",
            "-status",
        ]);
        command.args(["-CAfile", "ca.crt", "-verify_return_error"]).current_dir(self.directory.path(""));
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn check_none(&self, server: &ServerProcess) {
        let status = self.status(server);
        assert!(status.contains("OCSP response: no response sent"), "{status}");
    }

    #[track_caller]
    fn check_good(&self, server: &ServerProcess) {
        let status = self.status(server);
        assert!(
            status.contains("OCSP Response Status: successful") && status.contains("Cert Status: good"),
            "{status}"
        );
    }

    /// Requests the site with curl, which verifies the OCSP response.
    fn get_with_status(&self, server: &ServerProcess) -> Option<String> {
        let mut command = Command::new(program("curl")?);
        let (port, resolve) = (server.port(), format!("a.test:{}:127.0.0.1", server.port()));
        command.args(["-sS", "--noproxy", "*", "--cert-status", "--cacert", "ca.crt", "--resolve", &resolve]);
        let output =
            command.arg(format!("https://a.test:{port}/")).current_dir(self.directory.path("")).output().unwrap();
        Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

/// A responder; killed when dropped.
pub(crate) struct Responder(Child);

impl Responder {
    /// Starts a responder for the authority `ca.crt` of a directory, with the statuses of its `index.txt`. The key of
    /// `signer` signs the responses.
    pub(crate) fn start(openssl: &Path, directory: &Directory, port: u16, signer: &str) -> Self {
        let [certificate, key] = ["crt", "key"].map(|kind| format!("{signer}.{kind}"));
        let mut command = Command::new(openssl);
        command.args(["ocsp", "-port", &port.to_string(), "-index", "index.txt", "-CA", "ca.crt"]);
        command.args(["-rsigner", &certificate, "-rkey", &key, "-nmin", "60"]).current_dir(directory.path(""));
        // A connection to find out whether it listens would make it wait for a request on it.
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr_lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_ready = stderr_lines.any(|line| line.unwrap().contains("waiting for OCSP client connections"));
        assert!(is_ready, "openssl ocsp does not listen");
        // Reads the rest, so that a full pipe does not stop it.
        std::thread::spawn(move || stderr_lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// Caddy's documentation, "Automatic HTTPS: OCSP stapling": the response is fetched in the background, stapled, and kept
// in storage, so that the next start needs no responder. RFC 6960 §4.2.2.2: the issuer signs it, or a responder whose
// certificate the issuer has signed.
#[test]
fn a_response_is_stapled_and_stored() {
    let Some(site) = Site::new() else { return };
    for signer in ["ca", "responder"] {
        let _ = std::fs::remove_dir_all(site.directory.path("data"));
        let responder = site.responder(signer);
        let mut server = site.directory.start(&["run"]);
        server.line_with(&format!("stapled the OCSP response of http://127.0.0.1:{}/", site.responder));
        site.check_good(&server);
        assert!(site.get_with_status(&server).is_none_or(|text| text == "hello"));
        drop((server, responder));
        let server = site.directory.start(&["run"]);
        site.check_good(&server);
    }
}

// Caddy's option `ocsp_stapling off`.
#[test]
fn stapling_can_be_disabled() {
    let Some(site) = Site::new() else { return };
    let _responder = site.responder("ca");
    let mut server = site.directory.start(&["run"]);
    server.line_with("stapled the OCSP response");
    site.check_good(&server);
    drop(server);
    site.write_caddyfile("ocsp_stapling off");
    let server = site.directory.start(&["run"]);
    // It does not use the response in storage either.
    site.check_none(&server);
}

// Caddy's `ocsp_interval`: a responder that was down gets another request at the next check, and a running server
// staples the response.
#[test]
fn a_responder_that_restarts() {
    let Some(site) = Site::new() else { return };
    site.write_caddyfile("ocsp_interval 1s");
    let mut server = site.directory.start(&["run"]);
    server.line_with("no OCSP response of http://127.0.0.1:");
    site.check_none(&server);
    let _responder = site.responder("ca");
    server.line_with("stapled the OCSP response");
    site.check_good(&server);
}

// RFC 6960 §3.2: a response of another signer, or for a revoked certificate, is not stapled; and no handshake waits for
// a responder that does not answer.
#[test]
fn responders_with_wrong_or_no_responses() {
    let Some(site) = Site::new() else { return };
    let responder = site.responder("other");
    let mut server = site.directory.start(&["run"]);
    server.line_with("found a response with another signature than the issuer's or that of its responder");
    site.check_none(&server);
    drop((server, responder));

    site.write_status("R", "260101000000Z");
    let responder = site.responder("ca");
    let mut server = site.directory.start(&["run"]);
    server.line_with("reports the certificate as revoked");
    site.check_none(&server);
    drop((server, responder));

    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, site.responder)).unwrap();
    let server = site.directory.start(&["run"]);
    let (_held, _) = silent.accept().unwrap();
    site.check_none(&server);
    assert!(!site.directory.path("data/ocsp").exists());
}
