//! A case's program while it runs, with its load, and what is said to it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::cases::{Case, Client, Program, Quantity};
use super::load::{self, Load, Protocol};
use crate::sample::Usage;
use crate::server::{Cores, free_port};
use crate::workshop::Workshop;

/// How long a program may take until it is ready.
const START_MAX: Duration = Duration::from_secs(20);

/// A program under its load; both end when it is dropped.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Who asks, where the program is not its own load, and how long its upstream takes untouched.
    load: Option<(Load, Option<Duration>)>,
    knob_is_upstream: bool,
}

/// A stretch of time: units, and what each took.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Units of progress.
    pub units: u64,
    /// How long it was, ns.
    pub ns: f64,
    /// Mean time from a request to its answer, ns; NaN where nobody asks.
    pub latency_ns: f64,
    /// The part of the program's time on its cores for which it waited while others had them.
    pub disturbed: f64,
}

/// Where a stretch began.
pub struct Mark {
    units: u64,
    ns: f64,
    waited_ns: u64,
    usage: Usage,
}

#[derive(Deserialize)]
struct Count {
    units: u64,
    ns: u64,
}

impl Running {
    /// Starts the case's program with the knob at 0, and its load.
    pub fn start(shop: &Workshop, case: &Case, steps_per_ms: u64) -> Result<Self> {
        let (client, protocol, arguments): (Client, Protocol, Vec<&str>) = match case.program {
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
        running.load = Some((Load::start(address, protocol, client, upstream)?, client.upstream));
        Ok(running)
    }

    /// Starts our engine with these routes on core 0 without a load; its port.
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
        let (input, output) = (child.stdin.take(), child.stdout.take().context("an output was asked for")?);
        let knob_is_upstream = knob == "upstream";
        let mut running = Self { child, input, output: BufReader::new(output), load: None, knob_is_upstream };
        ensure!(running.line()? == "ready", "the program says something else first");
        Ok(running)
    }

    /// The process of the program.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Cuts so many percent of the target's cost from now on.
    pub fn turn(&mut self, percent: u32) -> Result<()> {
        if let (Some((load, Some(delay))), true) = (&self.load, self.knob_is_upstream) {
            load.set_delay(*delay * (100 - percent) / 100);
            return Ok(());
        }
        self.say(&format!("knob {percent}"))?;
        ensure!(self.line()? == "turned", "the knob did not turn");
        Ok(())
    }

    /// Who asks at a pace of his own does so from now on as the last time after the same number, which is not 0.
    pub fn repeat(&self, crowd: u64) {
        if let Some((load, _)) = &self.load {
            load.repeat(crowd);
        }
    }

    /// A stretch begins.
    pub fn mark(&mut self) -> Result<Mark> {
        // taskset becomes the program and keeps its number.
        let usage = Usage::read(&[self.child.id()])?;
        Ok(match &self.load {
            Some((load, _)) => {
                let seen = load.seen()?;
                Mark { units: seen.answers, ns: monotonic(), waited_ns: seen.waited_ns, usage }
            }
            None => {
                self.say("count")?;
                let line = self.line()?;
                let count: Count = serde_json::from_str(&line).with_context(|| format!("'{line}' is no count"))?;
                Mark { units: count.units, ns: count.ns as f64, waited_ns: 0, usage }
            }
        })
    }

    /// What a stretch from then to now came to.
    pub fn since(&mut self, from: &Mark) -> Result<Stretch> {
        let to = self.mark()?;
        let (units, used) = (to.units - from.units, to.usage.since(&from.usage));
        let (seconds, cpu_ms) = ((to.ns - from.ns) / 1e9, used.cpu_ns as f64 / 1e6);
        ensure!(units > 0, "nothing was done in {seconds:.2} s, for which the program had {cpu_ms:.0} ms of CPU time");
        let latency_ns =
            if self.load.is_some() { (to.waited_ns - from.waited_ns) as f64 / units as f64 } else { f64::NAN };
        let disturbed = used.delayed_ns as f64 / (used.delayed_ns + used.cpu_ns).max(1) as f64;
        Ok(Stretch { units, ns: to.ns - from.ns, latency_ns, disturbed })
    }

    /// Runs the profiler in the program; what it says.
    pub fn profile(&mut self, asked: &Value) -> Result<Value> {
        self.begin_profile(asked)?;
        self.end_profile()
    }

    /// Starts the profiler in the program.
    pub fn begin_profile(&mut self, asked: &Value) -> Result<()> {
        self.say(&format!("profile {asked}"))
    }

    /// What the profiler says at its end.
    pub fn end_profile(&mut self) -> Result<Value> {
        let line = self.line()?;
        if let Some((load, _)) = &self.load {
            load.seen().context("the load, while the profiler ran")?;
        }
        serde_json::from_str(&line).with_context(|| format!("'{line}' is no report"))
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
    /// Time per unit, or the mean latency, ns.
    pub fn of(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Throughput => self.ns / self.units as f64,
            Quantity::Latency => self.latency_ns,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The load first: it must not see its server go.
        self.load = None;
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Waits until somebody listens there.
pub fn wait_for(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + START_MAX;
    loop {
        match TcpStream::connect(address) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error).context("the server does not answer"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn monotonic() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// How many steps of a planted cost a millisecond takes here: measured once, for all cases.
pub fn calibrate(shop: &Workshop) -> Result<u64> {
    let mut command = Cores::One(0).command();
    let said = crate::machine::output(command.arg(shop.binaries.join("causal_case")).arg("calibrate"))?;
    said.parse().with_context(|| format!("'{said}' is no number of steps"))
}
