//! The servers of httpgrpc, and the client that calls them.

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
use crate::peers::{self, Launch, PeerScope, Recipe};
use crate::request;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::workshop::{self, Workshop};

pub(super) const DSKIT: &str = "dskit";
const POOLED: &str = "dskit, pooled";
const OURS: &str = "causeway";
pub(super) const EMBEDDED: &str = "causeway's engine";

/// The recipe of all these servers; the launch selects the program.
static RECIPE: Recipe = Recipe {
    name: "httpgrpc",
    about: "calls of httpgrpc",
    part: PeerScope::Whole,
    workers_max: 1,
    worker_threads: None,
    obtain: |_| anyhow::bail!("each server has its own program"),
    launch: |_, _, _| anyhow::bail!("each server has its own launch"),
};

/// A running server.
pub(super) struct HttpgrpcServer {
    pub row: &'static str,
    pub server: PeerServer,
    /// The address of its allocation counters, if it has them.
    told: Option<SocketAddr>,
}

/// A server's allocations since its start.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct AllocationTotals {
    pub bytes: u64,
    pub allocations: u64,
}

impl HttpgrpcServer {
    /// Returns the allocations since the start; `None` for a server without counters.
    pub(super) fn told(&self) -> Result<Option<AllocationTotals>> {
        self.told.map(|_| self.says("/memory")).transpose()
    }

    /// Requests JSON from the server's address for counters.
    pub(super) fn says<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let told = self.told.with_context(|| format!("{} has no counters", self.row))?;
        let answer = load::ask_once(told, &request::minimal(path))?;
        let answer = String::from_utf8_lossy(&answer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).with_context(|| format!("parsing the counters of {}: {answer:?}", self.row))
    }
}

/// The figures that dskit's client prints.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Times {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Bytes that the client itself allocated per call.
    pub bytes: f64,
}

/// dskit's client.
pub(super) struct Asker(PathBuf);

impl Asker {
    pub(super) fn of(program: PathBuf) -> Self {
        Self(program)
    }

    pub(super) fn ask(
        &self,
        server: &HttpgrpcServer,
        direction: Direction,
        bytes: usize,
        calls: usize,
        at_once: usize,
    ) -> Result<Times> {
        self.ask_port(server.server.address.port(), direction, bytes, calls, at_once)
            .with_context(|| format!("calls to {}", server.row))
    }

    fn ask_port(&self, port: u16, direction: Direction, bytes: usize, calls: usize, at_once: usize) -> Result<Times> {
        let mut command = Cores::One(1).command();
        command.arg(&self.0).args(["ask", &port.to_string(), direction.word()]);
        command.args([bytes, calls, at_once].map(|number| number.to_string()));
        let said = machine::output(&mut command)?;
        serde_json::from_str(&said).with_context(|| format!("the client printed {said:?}"))
    }
}

/// Returns the Go program that contains server and client.
pub(super) fn program(shop: &mut Workshop) -> Result<PathBuf> {
    let go = shop.packaged("go", "golang-go")?;
    let directory = shop.bench.join("peers/httpgrpc");
    let mut sources = Vec::new();
    for entry in fs::read_dir(&directory)? {
        sources.push(entry?.path());
    }
    let mut build = Command::new(&go);
    build.current_dir(&directory).args(["build", "-o"]).arg(shop.tools.join("httpgrpc")).arg(".");
    let program = shop.built("httpgrpc", &sources, &mut build)?;
    shop.versions.insert("go".to_owned(), workshop::version(&go, "version"));
    let text = fs::read_to_string(directory.join("go.mod"))?;
    for module in ["github.com/grafana/dskit", "google.golang.org/grpc"] {
        let version = text.lines().find_map(|line| line.trim().strip_prefix(module)?.split_whitespace().next());
        shop.versions.insert(module.to_owned(), version.unwrap_or("unknown").to_owned());
    }
    Ok(program)
}

/// Returns the client and the servers that started. Skips the others with a message. `None` without Go.
pub(super) fn start_all(shop: &mut Workshop) -> Result<Option<(Asker, Vec<HttpgrpcServer>)>> {
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

fn start(shop: &mut Workshop, asker: &Asker, row: &'static str) -> Result<HttpgrpcServer> {
    match row {
        DSKIT => dskit(shop, asker, row, &[]),
        POOLED => dskit(shop, asker, row, &["pooled"]),
        OURS => ours(shop, asker, row),
        _ => embedded(shop, asker, row),
    }
}

/// Starts dskit's server with these options.
pub(super) fn dskit(shop: &Workshop, asker: &Asker, row: &'static str, options: &[&str]) -> Result<HttpgrpcServer> {
    let (port, told) = (free_port()?, free_port()?);
    let mut command = vec![asker.0.clone().into(), "serve".into(), port.to_string().into(), told.to_string().into()];
    command.extend(options.iter().map(Into::into));
    let environment = vec![("GOMAXPROCS".to_owned(), "1".into())];
    let launch = Launch { command, environment, path: "/".to_owned(), ..Launch::default() };
    let server = begin(shop, asker, launch, port)?;
    Ok(HttpgrpcServer { row, server, told: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, told))) })
}

/// Starts Causeway with a Caddyfile: `file_server` for files, and a short response for requests with a body.
fn ours(shop: &mut Workshop, asker: &Asker, row: &'static str) -> Result<HttpgrpcServer> {
    let tool = peers::obtain(shop, peers::recipe("causeway")?)?;
    let directory = shop.scratch.join("httpgrpc");
    fs::create_dir_all(directory.join("bytes"))?;
    for (_, bytes) in SIZES {
        fs::write(directory.join("bytes").join(bytes.to_string()), answer::pattern(bytes))?;
    }
    let port = free_port()?;
    let site = format!(
        "httpgrpc {{\n\t\tmax_message_size 64MiB\n\t}}\n\trespond /taken taken\n\troot {directory:?}\n\tfile_server"
    );
    let text = format!("{{\n\tadmin off\n}}\n:{port} {{\n\t{site}\n}}\n");
    let mut launch = peers::configured(shop, &tool, "causeway", &format!("{port}.Caddyfile"), &text)?;
    peers::limit_workers(&mut launch, "causeway", 1);
    let server = begin(shop, asker, launch, port)?;
    Ok(HttpgrpcServer { row, server, told: None })
}

/// Starts our engine in a program that counts its allocations and, like Go's, writes bytes that were allocated once.
fn embedded(shop: &Workshop, asker: &Asker, row: &'static str) -> Result<HttpgrpcServer> {
    let program = peers::ours(shop, "engine_httpgrpc", "of this commit")?.program;
    let (port, told) = (free_port()?, free_port()?);
    let mut command = vec![program.into(), port.to_string().into(), told.to_string().into()];
    command.extend(SIZES.map(|(_, bytes)| bytes.to_string().into()));
    let server = begin(shop, asker, Launch { command, path: "/".to_owned(), ..Launch::default() }, port)?;
    Ok(HttpgrpcServer { row, server, told: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, told))) })
}

fn begin(shop: &Workshop, asker: &Asker, launch: Launch, port: u16) -> Result<PeerServer> {
    PeerServer::start_asked(shop, &RECIPE, launch, port, Cores::One(0), &|address, _| {
        asker.ask_port(address.port(), Direction::Answers, SIZES[0].1, 1, 1).map(|_| Answered::Right)
    })
}
