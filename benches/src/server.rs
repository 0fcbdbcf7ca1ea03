//! A running peer: starts it on its cores, waits for its first response, ends it on drop.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::load;
use crate::peers::{Launch, Recipe, Tool, Want};
use crate::request;
use crate::sample;
use crate::workshop::Workshop;

/// Time limit for a server's first response.
const START_MAX: Duration = Duration::from_secs(30);
/// Time limit for a server's end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(5);

/// The cores of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    /// One core.
    One(usize),
    /// The first cores, by number.
    First(usize),
}

impl Cores {
    fn list(self) -> String {
        match self {
            Self::One(core) => core.to_string(),
            Self::First(count) => format!("0-{}", count.max(1) - 1),
        }
    }

    /// Pins this process to these cores, with all threads and processes that it starts from now on.
    pub fn pin_self(self) -> Result<()> {
        let done = Command::new("taskset").args(["-cp", &self.list(), &std::process::id().to_string()]).output()?;
        anyhow::ensure!(done.status.success(), "taskset: {}", String::from_utf8_lossy(&done.stderr).trim());
        Ok(())
    }

    /// Returns a command that runs on these cores.
    pub fn command(self) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.list()]);
        command
    }
}

/// Returns a free port.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The response of a server that was just started.
pub enum Answered {
    /// The expected response.
    Right,
    /// Another response.
    Otherwise(String),
}

/// A running peer.
pub struct PeerServer {
    /// The peer's recipe.
    pub recipe: &'static Recipe,
    /// The command and its paths.
    pub launch: Launch,
    /// Its address.
    pub address: SocketAddr,
    /// The process and its descendants.
    pub processes: Vec<u32>,
    /// Time from its start to its first correct response.
    pub start: Duration,
    child: Child,
}

impl PeerServer {
    /// Starts a peer and waits for its hello response.
    pub fn start(
        shop: &Workshop,
        recipe: &'static Recipe,
        tool: &Tool,
        workers: usize,
        cores: Cores,
        cold: Option<std::path::PathBuf>,
    ) -> Result<Self> {
        let port = free_port()?;
        let want = Want { port, workers, cold, ..Want::default() };
        let launch = (recipe.launch)(shop, tool, &want)?;
        Self::start_launch(shop, recipe, launch, port, cores)
    }

    /// Starts `launch`, which must listen on `port`.
    pub fn start_launch(
        shop: &Workshop,
        recipe: &'static Recipe,
        launch: Launch,
        port: u16,
        cores: Cores,
    ) -> Result<Self> {
        Self::start_asked(shop, recipe, launch, port, cores, &|address, launch| {
            let response = load::ask_once(address, &request::minimal(&launch.path))?;
            let right = response.ends_with(answer::BODY.as_bytes());
            let otherwise = || Answered::Otherwise(String::from_utf8_lossy(&response).into_owned());
            Ok(if right { Answered::Right } else { otherwise() })
        })
    }

    /// As [`PeerServer::start_launch`], but `ask` requests and checks the response. It is repeated after an error.
    pub fn start_asked(
        shop: &Workshop,
        recipe: &'static Recipe,
        launch: Launch,
        port: u16,
        cores: Cores,
        ask: &dyn Fn(SocketAddr, &Launch) -> Result<Answered>,
    ) -> Result<Self> {
        let log = shop.scratch.join(format!("{}-{port}.log", recipe.name));
        let output = File::create(&log)?;
        let started = Instant::now();
        let child = cores
            .command()
            .args(&launch.command)
            .envs(launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting taskset (package util-linux)")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { recipe, launch, address, processes: Vec::new(), start: Duration::ZERO, child };
        let until = started + START_MAX;
        loop {
            if let Some(status) = server.child.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!(
                    "{} exited during startup ({status}): {}",
                    recipe.name,
                    said.trim().lines().last().unwrap_or("no output")
                );
            }
            match ask(address, &server.launch) {
                Ok(Answered::Right) => break,
                Ok(Answered::Otherwise(otherwise)) => bail!("{} responded {otherwise:?}", recipe.name),
                Err(error) if Instant::now() > until => {
                    return Err(error).with_context(|| format!("{} does not respond", recipe.name));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        server.start = started.elapsed();
        // Other workers may still be starting after the first one responded.
        std::thread::sleep(Duration::from_millis(100));
        server.processes = sample::family(server.child.id());
        Ok(server)
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        let family = sample::family(self.child.id());
        let signal = |process: u32, signal| {
            // The process may already have ended.
            if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        };
        signal(self.child.id(), Signal::TERM);
        let until = Instant::now() + END_MAX;
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Children first: while their parent runs, their ids cannot be reused.
        for process in family.into_iter().rev() {
            signal(process, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
