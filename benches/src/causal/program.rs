//! A running program of a case with its load, and the commands to it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::cases::{CausalCase, ClientLoad, Program, Quantity};
use super::load::{self, Protocol, RunningLoad};
use crate::sample::Usage;
use crate::server::{Cores, free_port};
use crate::workshop::Workshop;

/// Time limit for a program to become ready.
const START_MAX: Duration = Duration::from_secs(20);

/// A program under load; dropping it ends both.
pub struct RunningProgram {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The load and its upstream's delay; `None` for programs that generate their own load.
    load: Option<(RunningLoad, Option<Duration>)>,
    knob_is_upstream: bool,
}

/// The measurements of a stretch of time.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Units of progress.
    pub units: u64,
    /// Duration in ns.
    pub ns: f64,
    /// Mean time from a request to its response in ns; NaN without a client.
    pub latency_ns: f64,
    /// The share of time that the program waited for its cores.
    pub disturbed: f64,
}

/// The counters at the start of a stretch.
pub struct Mark {
    units: u64,
    ns: f64,
    waited_ns: u64,
    usage: Usage,
}

#[derive(Deserialize)]
struct ProgressCount {
    units: u64,
    ns: u64,
}

impl RunningProgram {
    /// Starts the case's program with the knob at 0, and its load.
    pub fn start(shop: &Workshop, case: &CausalCase, steps_per_ms: u64) -> Result<Self> {
        let (client, protocol, arguments): (ClientLoad, Protocol, Vec<&str>) = match case.program {
            Program::Alone(name) => {
                return Self::spawn(shop, Cores::First(2), &[name.to_owned()], case.knob, steps_per_ms);
            }
            Program::Serve { routes, load } => (load, Protocol::One, vec!["serve", routes]),
            Program::Writers { load } => (load, Protocol::Two, vec!["writers"]),
        };
        let upstream = client.upstream.map(|_| load::upstream()).transpose()?;
        let port = free_port()?;
        let mut words = vec![arguments[0].to_owned(), port.to_string()];
        words.extend(arguments[1..].iter().map(|&word| word.to_owned()));
        if let Some(upstream) = &upstream {
            words.push(upstream.local_addr()?.port().to_string());
        }
        let mut running = Self::spawn(shop, Cores::One(0), &words, case.knob, steps_per_ms)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_for(address)?;
        running.load = Some((RunningLoad::start(address, protocol, client, upstream)?, client.upstream));
        Ok(running)
    }

    /// Starts our engine with these routes on core 0, without a load; returns its port too.
    pub fn start_server(shop: &Workshop, routes: &str, steps_per_ms: u64) -> Result<(Self, u16)> {
        let port = free_port()?;
        let words = ["serve".to_owned(), port.to_string(), routes.to_owned()];
        let running = Self::spawn(shop, Cores::One(0), &words, "", steps_per_ms)?;
        wait_for(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        Ok((running, port))
    }

    fn spawn(shop: &Workshop, cores: Cores, words: &[String], knob: &str, steps_per_ms: u64) -> Result<Self> {
        let mut child = cores
            .command()
            .arg(shop.binaries.join("causal_case"))
            .args(words)
            .env("STEPS_PER_MS", steps_per_ms.to_string())
            .env("KNOB_ON", knob)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting taskset (package util-linux)")?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("a piped output")?);
        let knob_is_upstream = knob == "upstream";
        let mut running = Self { child, input, output: BufReader::new(output), load: None, knob_is_upstream };
        ensure!(running.line()? == "ready", "the program's first line is not `ready`");
        Ok(running)
    }

    /// Returns the program's process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sets the reduction of the target's cost in percent.
    pub fn turn(&mut self, percent: u32) -> Result<()> {
        if let (Some((load, Some(delay))), true) = (&self.load, self.knob_is_upstream) {
            load.set_delay(*delay * (100 - percent) / 100);
            return Ok(());
        }
        self.say(&format!("knob {percent}"))?;
        ensure!(self.line()? == "turned", "the knob did not turn");
        Ok(())
    }

    /// Repeats the arrivals of an open loop: see [`RunningLoad::repeat`].
    pub fn repeat(&self, crowd: u64) {
        if let Some((load, _)) = &self.load {
            load.repeat(crowd);
        }
    }

    /// Starts a stretch.
    pub fn mark(&mut self) -> Result<Mark> {
        // taskset executes the program in its own process, so this id is the program's.
        let usage = Usage::read(&[self.child.id()])?;
        Ok(match &self.load {
            Some((load, _)) => {
                let seen = load.seen()?;
                Mark { units: seen.answers, ns: monotonic(), waited_ns: seen.waited_ns, usage }
            }
            None => {
                self.say("count")?;
                let line = self.line()?;
                let count: ProgressCount =
                    serde_json::from_str(&line).with_context(|| format!("'{line}' is not a count"))?;
                Mark { units: count.units, ns: count.ns as f64, waited_ns: 0, usage }
            }
        })
    }

    /// Returns the measurements from `from` to now.
    pub fn since(&mut self, from: &Mark) -> Result<Stretch> {
        let to = self.mark()?;
        let (units, used) = (to.units - from.units, to.usage.since(&from.usage));
        let (seconds, cpu_ms) = ((to.ns - from.ns) / 1e9, used.cpu_ns as f64 / 1e6);
        ensure!(units > 0, "no progress in {seconds:.2} s, in which the program used {cpu_ms:.0} ms of CPU time");
        let latency_ns =
            if self.load.is_some() { (to.waited_ns - from.waited_ns) as f64 / units as f64 } else { f64::NAN };
        let disturbed = used.delayed_ns as f64 / (used.delayed_ns + used.cpu_ns).max(1) as f64;
        Ok(Stretch { units, ns: to.ns - from.ns, latency_ns, disturbed })
    }

    /// Runs the profiler in the program and returns its reply.
    pub fn profile(&mut self, asked: &Value) -> Result<Value> {
        self.begin_profile(asked)?;
        self.end_profile()
    }

    /// Starts the profiler in the program.
    pub fn begin_profile(&mut self, asked: &Value) -> Result<()> {
        self.say(&format!("profile {asked}"))
    }

    /// Waits for the profiler's reply.
    pub fn end_profile(&mut self) -> Result<Value> {
        let line = self.line()?;
        if let Some((load, _)) = &self.load {
            load.seen().context("the load, while the profiler ran")?;
        }
        serde_json::from_str(&line).with_context(|| format!("'{line}' is not a report"))
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the program's input is open")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the program ended: {}", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Stretch {
    /// Returns the time per unit, or the mean latency, in ns.
    pub fn of(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Throughput => self.ns / self.units as f64,
            Quantity::Latency => self.latency_ns,
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Stop the load first: it must not see its server exit.
        self.load = None;
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Waits until the address accepts connections.
pub fn wait_for(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + START_MAX;
    loop {
        match TcpStream::connect(address) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error).context("the server does not respond"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn monotonic() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Returns the number of steps of a planted cost per millisecond, measured once for all cases.
pub fn calibrate(shop: &Workshop) -> Result<u64> {
    let mut command = Cores::One(0).command();
    let said = crate::machine::output(command.arg(shop.binaries.join("causal_case")).arg("calibrate"))?;
    said.parse().with_context(|| format!("'{said}' is not a number of steps"))
}
