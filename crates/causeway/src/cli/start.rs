//! `start`: `run` in a process of its own, until it serves or says why not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::{AlreadySaid, RunFlags, say};

/// How often the process and the listener are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a connection may take to say what only our process can know.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(2);
const TOKEN_OCTETS: usize = 32;

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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening for the server's word")?;
        listener.set_nonblocking(true).context("listening for the server's word")?;
        let address = listener.local_addr().context("listening for the server's word")?;
        // Anybody on this machine may connect; the token goes by way of a pipe that only our process has.
        let mut token = [0; TOKEN_OCTETS];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut token));
        random.context("/dev/urandom")?;
        // Its flags are those of `run`, whatever they are.
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .arg("run")
            .args(["--pingback", &address.to_string()])
            .args(std::env::args_os().skip(2))
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting the server's process")?;
        if let Some(mut stdin) = child.stdin.take() {
            // A process that has ended already says why by itself.
            let _ = stdin.write_all(&token);
        }
        loop {
            match listener.accept() {
                Ok((stream, _)) if is_ours(&stream, &token) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK_EVERY),
                Err(error) => return Err(error).context("listening for the server's word"),
            }
            if let Some(status) = child.try_wait().context("waiting for the server's process")? {
                // It has said why, on the same standard error; unless something ended it.
                return Err(if status.code() == Some(1) {
                    AlreadySaid.into()
                } else {
                    anyhow::anyhow!("the server's process ended before it served: {status}")
                });
            }
        }
        say::print(&format!("Causeway runs in the background with process id {}; `causeway stop` ends it", child.id()))
    }
}

fn is_ours(stream: &TcpStream, token: &[u8]) -> bool {
    let mut said = Vec::new();
    let read = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(TOKEN_TIMEOUT)));
    let read = read.and_then(|()| stream.take(TOKEN_OCTETS as u64 + 1).read_to_end(&mut said));
    read.is_ok() && said == token
}
