//! A peer that runs: started on its cores, waited for until it answers, ended when dropped.

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

/// How long a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a server may take to end when asked to.
const END_MAX: Duration = Duration::from_secs(5);

/// Which cores a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    /// One core.
    One(usize),
    /// The first so many.
    First(usize),
}

impl Cores {
    fn list(self) -> String {
        match self {
            Self::One(core) => core.to_string(),
            Self::First(count) => format!("0-{}", count.max(1) - 1),
        }
    }

    /// Puts this process there, with whatever threads and processes it starts from now on.
    pub fn pin_self(self) -> Result<()> {
        let done = Command::new("taskset").args(["-cp", &self.list(), &std::process::id().to_string()]).output()?;
        anyhow::ensure!(done.status.success(), "taskset: {}", String::from_utf8_lossy(&done.stderr).trim());
        Ok(())
    }

    /// A command that runs there.
    pub fn command(self) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.list()]);
        command
    }
}

/// A port that nobody has now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// What a server says that was just started.
pub enum Answered {
    /// What it shall.
    Right,
    /// Something else.
    Otherwise(String),
}

/// A running peer.
pub struct Server {
    /// Its recipe.
    pub recipe: &'static Recipe,
    /// How it was launched: its paths.
    pub launch: Launch,
    /// Where it listens.
    pub address: SocketAddr,
    /// It and its children.
    pub processes: Vec<u32>,
    /// From its start to its first right answer.
    pub start: Duration,
    child: Child,
}

impl Server {
    /// Starts a peer and waits until it answers hello.
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

    /// Starts what `launch` says, which listens on `port`.
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

    /// The same, and `ask` says what it answers; an error is asked again.
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
                bail!("{} ended at once ({status}): {}", recipe.name, said.trim().lines().last().unwrap_or("no word"));
            }
            match ask(address, &server.launch) {
                Ok(Answered::Right) => break,
                Ok(Answered::Otherwise(otherwise)) => bail!("{} answers {otherwise:?}", recipe.name),
                Err(error) if Instant::now() > until => {
                    return Err(error).with_context(|| format!("{} does not answer", recipe.name));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        server.start = started.elapsed();
        // A server's workers may still be starting when the first of them answers.
        std::thread::sleep(Duration::from_millis(100));
        server.processes = sample::family(server.child.id());
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let family = sample::family(self.child.id());
        let signal = |process: u32, signal| {
            // It may have ended by itself: that is what is wanted.
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
        // Children first: they are still its own then, so no id can have been given anew.
        for process in family.into_iter().rev() {
            signal(process, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
