//! BIND, a real DNS server that accepts signed updates of one zone.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;

use crate::process::Directory;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A running `named`; killed when dropped.
pub(super) struct Bind {
    child: Child,
    directory: Directory,
    pub(super) port: u16,
}

impl Bind {
    /// The key `causeway` as base64.
    pub(super) const KEY: &str = "Y2F1c2V3YXkgdGVzdHMgYSBzaWduZWQgdXBkYXRlIQ==";

    /// Serves `zone`, whose names are all at 127.0.0.1. `None` without BIND, and prints that the test is skipped.
    pub(super) fn start(zone: &str) -> Option<Self> {
        let Some(named) = installed("named") else {
            eprintln!("skipped: there is no named (Debian: bind9)");
            return None;
        };
        let directory = Directory::new();
        let port = free_port();
        let at = directory.path("").display().to_string();
        let key = Self::KEY;
        directory.write(
            "named.conf",
            format!(
                "options {{ directory \"{at}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
                 pid-file none; session-keyfile \"{at}/session.key\"; recursion no; dnssec-validation no; }};\n\
                 controls {{}};\n\
                 key causeway {{ algorithm hmac-sha256; secret \"{key}\"; }};\n\
                 zone \"{zone}\" {{ type primary; file \"{at}/zone\"; allow-update {{ key causeway; }}; }};\n"
            ),
        );
        directory.write(
            "zone",
            "$TTL 60\n@ IN SOA ns root 1 60 60 600 60\n@ IN NS ns\n@ IN A 127.0.0.1\n* IN A 127.0.0.1\nns IN A 127.0.0.1\n",
        );
        let log = File::create(directory.path("log")).unwrap();
        let mut command = Command::new(named);
        command.args(["-g", "-c", &format!("{at}/named.conf")]);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let bind = Self { child, directory, port };
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() || !bind.log().contains("all zones loaded") {
            assert!(begun.elapsed() < TIMEOUT, "BIND does not listen on {port}: {}", bind.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(bind)
    }

    /// The provider's settings with this key.
    pub(super) fn provider(&self, key: &str) -> String {
        let port = self.port;
        format!(
            "rfc2136 {{\n\t\t\tkey_name causeway\n\t\t\tkey_alg hmac-sha256\n\t\t\tkey {key}\n\t\t\tserver 127.0.0.1:{port}\n\t\t}}"
        )
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path("log")).unwrap()
    }

    /// The number of changes of the zone whose line in the log contains `kind`.
    pub(super) fn changes(&self, kind: &str) -> usize {
        self.log().lines().filter(|line| line.contains("updating zone") && line.contains(kind)).count()
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program in the usual directories, also in those that are not in a user's PATH.
fn installed(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]
        .map(|directory| Path::new(directory).join(name))
        .into_iter()
        .find(|path| path.is_file())
}
