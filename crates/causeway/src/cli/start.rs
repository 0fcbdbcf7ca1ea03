//! `start`: runs `run` in a background process, and waits until it serves or fails.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::{AlreadyReported, RunFlags, output};

/// Polling interval for the process and the listener.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Time limit for a connection to send the token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(2);
const TOKEN_BYTES: usize = 32;

#[derive(Args)]
pub(crate) struct Start {
    #[command(flatten)]
    run: RunFlags,
}

impl Start {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if self.run.config.config.as_deref().is_some_and(|config| config.as_os_str() == "-") {
            bail!("--config -: found standard input, expected a file: a server in the background has no input");
        }
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening for the server's start message")?;
        listener.set_nonblocking(true).context("listening for the server's start message")?;
        let address = listener.local_addr().context("listening for the server's start message")?;
        // Any process on this machine can connect. The token proves a connection is ours: it is passed through a pipe
        // that only the child process can read.
        let mut token = [0; TOKEN_BYTES];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut token));
        random.context("/dev/urandom")?;
        // Flags are passed on unchanged; `run` accepts the same set.
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .arg("run")
            .args(["--pingback", &address.to_string()])
            .args(std::env::args_os().skip(2))
            .stdin(Stdio::piped())
            // A process group of its own, so that Ctrl-C in this terminal does not reach the server.
            .process_group(0)
            .spawn()
            .context("starting the server's process")?;
        if let Some(mut stdin) = child.stdin.take() {
            // A write error means that the process has exited; it reports the reason itself.
            let _ = stdin.write_all(&token);
        }
        loop {
            match listener.accept() {
                Ok((stream, _)) if is_ours(&stream, &token) => break,
                // A connection of another process: ignore it.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(CHECK_INTERVAL),
                Err(error) => return Err(error).context("listening for the server's start message"),
            }
            if let Some(status) = child.try_wait().context("waiting for the server's process")? {
                // With status 1 the child has printed the reason on the shared standard error. Otherwise a signal ended
                // it, or another failure.
                return Err(if status.code() == Some(1) {
                    AlreadyReported.into()
                } else {
                    anyhow::anyhow!("the server's process ended before it served: {status}")
                });
            }
        }
        output::print(&format!(
            "Causeway runs in the background with process id {}; `causeway stop` ends it",
            child.id()
        ))
    }
}

/// Whether the connection sends exactly the token.
fn is_ours(stream: &TcpStream, token: &[u8]) -> bool {
    let mut said = Vec::new();
    let read = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(TOKEN_TIMEOUT)));
    let read = read.and_then(|()| stream.take(TOKEN_BYTES as u64 + 1).read_to_end(&mut said));
    read.is_ok() && said == token
}
