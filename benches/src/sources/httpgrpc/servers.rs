//! The servers of httpgrpc, and the client that asks them all.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Direction, SIZES};
use crate::load;
use crate::machine;
use crate::peers::{self, Launch, Part, Recipe};
use crate::request;
use crate::server::{Answered, Cores, Server, free_port};
use crate::side_by_side::skip;
use crate::workshop::{self, Workshop};

pub(super) const DSKIT: &str = "dskit";
const POOLED: &str = "dskit, pooled";
const OURS: &str = "causeway";
pub(super) const EMBEDDED: &str = "causeway's engine";

/// For all of them: who runs is said by the launch.
static RECIPE: Recipe = Recipe {
    name: "httpgrpc",
    about: "calls of httpgrpc",
    part: Part::Whole,
    workers_max: 1,
    worker_threads: None,
    obtain: |_| anyhow::bail!("each has a program of its own"),
    launch: |_, _, _| anyhow::bail!("each has a launch of its own"),
};

/// A server that runs.
pub(super) struct Running {
    pub row: &'static str,
    pub server: Server,
    /// Where it tells what it allocated, if it does.
    told: Option<SocketAddr>,
}

/// What a server has allocated since it began.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Told {
    pub octets: u64,
    pub allocations: u64,
}

impl Running {
    /// What it has allocated; `None` from a server that does not say.
    pub(super) fn told(&self) -> Result<Option<Told>> {
        self.told.map(|_| self.says("/memory")).transpose()
    }

    /// What it says of itself at a path.
    pub(super) fn says<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let told = self.told.with_context(|| format!("{} tells nothing", self.row))?;
        let answer = load::ask_once(told, &request::minimal(path))?;
        let answer = String::from_utf8_lossy(&answer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).with_context(|| format!("{} says {answer:?}", self.row))
    }
}

/// What dskit's client says of its calls.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Times {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// What it allocated itself for a call.
    pub octets: f64,
}

/// dskit's client.
pub(super) struct Asker(PathBuf);

impl Asker {
    pub(super) fn of(program: PathBuf) -> Self {
        Self(program)
    }

    pub(super) fn ask(
        &self,
        server: &Running,
        direction: Direction,
        octets: usize,
        calls: usize,
        at_once: usize,
    ) -> Result<Times> {
        self.ask_port(server.server.address.port(), direction, octets, calls, at_once)
            .with_context(|| format!("calls to {}", server.row))
    }

    fn ask_port(&self, port: u16, direction: Direction, octets: usize, calls: usize, at_once: usize) -> Result<Times> {
        let mut command = Cores::One(1).command();
        command.arg(&self.0).args(["ask", &port.to_string(), direction.word()]);
        command.args([octets, calls, at_once].map(|number| number.to_string()));
        let said = machine::output(&mut command)?;
        serde_json::from_str(&said).with_context(|| format!("the client says {said:?}"))
    }
}

/// The program in Go that is server and client.
pub(super) fn program(shop: &mut Workshop) -> Result<PathBuf> {
    let go = shop.packaged("go", "golang-go")?;
    let folder = shop.bench.join("peers/httpgrpc");
    let mut sources = Vec::new();
    for entry in fs::read_dir(&folder)? {
        sources.push(entry?.path());
    }
    let mut build = Command::new(&go);
    build.current_dir(&folder).args(["build", "-o"]).arg(shop.tools.join("httpgrpc")).arg(".");
    let program = shop.built("httpgrpc", &sources, &mut build)?;
    shop.versions.insert("go".to_owned(), workshop::version(&go, "version"));
    let text = fs::read_to_string(folder.join("go.mod"))?;
    for module in ["github.com/grafana/dskit", "google.golang.org/grpc"] {
        let version = text.lines().find_map(|line| line.trim().strip_prefix(module)?.split_whitespace().next());
        shop.versions.insert(module.to_owned(), version.unwrap_or("unknown").to_owned());
    }
    Ok(program)
}

/// The client, and those servers that come up; the others are skipped with a line. `None` without Go.
pub(super) fn start_all(shop: &mut Workshop) -> Result<Option<(Asker, Vec<Running>)>> {
    let program = match program(shop) {
        Ok(program) => program,
        Err(error) => {
            skip(shop, "calls of httpgrpc", &error);
            return Ok(None);
        }
    };
    let asker = Asker::of(program);
    let mut running = Vec::new();
    for row in [DSKIT, POOLED, OURS, EMBEDDED] {
        match start(shop, &asker, row) {
            Ok(one) => running.push(one),
            Err(error) => skip(shop, &format!("{row} with httpgrpc"), &error),
        }
    }
    Ok(Some((asker, running)))
}

fn start(shop: &mut Workshop, asker: &Asker, row: &'static str) -> Result<Running> {
    match row {
        DSKIT => dskit(shop, asker, row, &[]),
        POOLED => dskit(shop, asker, row, &["pooled"]),
        OURS => ours(shop, asker, row),
        _ => embedded(shop, asker, row),
    }
}

/// dskit's server with some options.
pub(super) fn dskit(shop: &Workshop, asker: &Asker, row: &'static str, options: &[&str]) -> Result<Running> {
    let (port, told) = (free_port()?, free_port()?);
    let mut command = vec![asker.0.clone().into(), "serve".into(), port.to_string().into(), told.to_string().into()];
    command.extend(options.iter().map(Into::into));
    let environment = vec![("GOMAXPROCS".to_owned(), "1".into())];
    let launch = Launch { command, environment, path: "/".to_owned(), ..Launch::default() };
    let server = begin(shop, asker, launch, port)?;
    Ok(Running { row, server, told: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, told))) })
}

/// Ours on a Caddyfile: files by `file_server`, and a word for what comes with a body.
fn ours(shop: &mut Workshop, asker: &Asker, row: &'static str) -> Result<Running> {
    let tool = peers::obtain(shop, peers::recipe("causeway")?)?;
    let folder = shop.scratch.join("httpgrpc");
    fs::create_dir_all(folder.join("octets"))?;
    for (_, octets) in SIZES {
        fs::write(folder.join("octets").join(octets.to_string()), answer::pattern(octets))?;
    }
    let port = free_port()?;
    let site = format!(
        "httpgrpc {{\n\t\tmax_message_size 64MiB\n\t}}\n\trespond /taken taken\n\troot {folder:?}\n\tfile_server"
    );
    let text = format!("{{\n\tadmin off\n}}\n:{port} {{\n\t{site}\n}}\n");
    let mut launch = peers::configured(shop, &tool, "causeway", &format!("{port}.Caddyfile"), &text)?;
    peers::limit_workers(&mut launch, "causeway", 1);
    let server = begin(shop, asker, launch, port)?;
    Ok(Running { row, server, told: None })
}

/// Our engine in a program that answers octets which were made once, as Go's does, and counts what it allocates.
fn embedded(shop: &Workshop, asker: &Asker, row: &'static str) -> Result<Running> {
    let program = peers::ours(shop, "engine_httpgrpc", "of this commit")?.program;
    let (port, told) = (free_port()?, free_port()?);
    let mut command = vec![program.into(), port.to_string().into(), told.to_string().into()];
    command.extend(SIZES.map(|(_, octets)| octets.to_string().into()));
    let server = begin(shop, asker, Launch { command, path: "/".to_owned(), ..Launch::default() }, port)?;
    Ok(Running { row, server, told: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, told))) })
}

fn begin(shop: &Workshop, asker: &Asker, launch: Launch, port: u16) -> Result<Server> {
    Server::start_asked(shop, &RECIPE, launch, port, Cores::One(0), &|address, _| {
        asker.ask_port(address.port(), Direction::Answers, SIZES[0].1, 1, 1).map(|_| Answered::Right)
    })
}
