//! `./bench`: runs Causeway beside its peers and records what each costs.
//!
//! Reading order: [`peers`] says who is measured, [`workshop`] gets them, [`server`] runs them, [`load`] asks them and
//! [`sample`] sees what they use; [`side_by_side`], [`http2`], [`proxy`], [`sources`], [`inprocess`], [`hooks`], [`sites`],
//! [`reload`], [`abuse`], [`tower`] and [`causal`] are the benches; [`record`] keeps what came out.

mod abuse;
mod causal;
mod configurations;
mod hooks;
mod http2;
mod inprocess;
mod load;
mod machine;
mod peers;
mod placeholders;
mod progress;
mod proxy;
mod record;
mod reload;
mod request;
mod sample;
mod server;
mod side_by_side;
mod sites;
mod sources;
mod stats;
mod tools;
mod tower;
mod workshop;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::record::Record;
use crate::side_by_side::Settings;
use crate::workshop::Workshop;

/// Benches of Causeway. Each writes its tables, charts and raw figures to a new directory under benches/record/.
#[derive(Parser)]
#[command(name = "./bench", max_term_width = 100, subcommand_required = false)]
struct Arguments {
    #[command(subcommand)]
    bench: Option<Bench>,
}

#[derive(Subcommand)]
enum Bench {
    /// Causeway beside nginx, h2o, Caddy, hyper, Go, Crystal and a server that only does what the kernel asks
    /// (≤ 10 min; --quick ≤ 2 min).
    #[command(after_help = peers::help())]
    Peers {
        /// Shorter slots and fewer rounds: a look, not a record to compare with.
        #[arg(long)]
        quick: bool,
        /// Only these peers, by name, comma-separated; the limit server always runs.
        #[arg(long, value_delimiter = ',', value_name = "PEERS")]
        only: Vec<String>,
        /// Only these scenarios: minimal, browser, pipelined, workers, idle, isolation.
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        scenario: Vec<String>,
        /// Rounds of each throughput scenario (7; quick 3).
        #[arg(long)]
        rounds: Option<usize>,
        /// Connections held in the idle scenario (10 000; quick 2 000).
        #[arg(long)]
        idle: Option<usize>,
        #[command(flatten)]
        keep: Keep,
    },
    /// The same over HTTP/2, in the clear and over TLS, under h2load, with nghttpd and HAProxy beside (≈ 12 min; --quick ≈ 3 min).
    #[command(after_help = http2::servers::help())]
    Http2 {
        /// Shorter slots and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these servers, by name, comma-separated; the limit server always runs.
        #[arg(long, value_delimiter = ',', value_name = "SERVERS")]
        only: Vec<String>,
        /// Only these scenarios, or those whose names begin so: hello, page, tls, tls-page-64x32, idle, …
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        scenario: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// What a request costs that is passed on, beside nginx, HAProxy, Caddy and a relay that only does what the kernel asks
    /// (≈ 7 min; --quick ≈ 2 min).
    #[command(after_help = proxy::help())]
    Proxy {
        /// Shorter slots and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these proxies, by name, comma-separated; the relay always runs.
        #[arg(long, value_delimiter = ',', value_name = "PROXIES")]
        only: Vec<String>,
        /// Only these scenarios, or those whose names begin so: h1, h1-minimal, h2, …
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        scenario: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// The benchmarks that the projects we learnt from ran, their code beside ours (≈ 3 min; --quick < 1 min).
    Sources {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these: from-io, prepare-request, placeholders, hello, h2load, page, page-tls, httpgrpc-answers, httpgrpc-requests,
        /// httpgrpc-memory, httpgrpc-garbage, rack-response, puma.
        #[arg(long, value_delimiter = ',', value_name = "TABLES")]
        only: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// Pieces of the request path by themselves: time and allocations of each (< 1 min).
    Inprocess {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// The causal profiler's hooks, and locks, channels and threads that have them: without a profile and while one records
    /// (< 1 min).
    Progress {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// 200 sites that match, rewrite and fill placeholders in, beside one `respond` (≈ 1 min; --quick 10 s).
    Sites {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// 10 000 sites loaded, and a thousand reloads under load (≈ 5 min; --quick ≈ 1 min).
    Reload {
        /// Fewer rounds and reloads.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// What those who behave wait while hostile clients of HTTP/2 are at work beside them (≈ 3 min; --quick ≈ 1 min).
    Abuse {
        /// Fewer rounds, and shorter ones.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// One axum router on our engine and on hyper (≈ 1 min; --quick 15 s).
    Tower {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// The causal profiler's predictions against what really happens when a cost is cut, with Coz beside (≈ 90 min; --quick ≈ 15 min).
    Causal {
        /// Shorter profiles, fewer stretches, one repetition: a look, not a proof.
        #[arg(long)]
        quick: bool,
        /// Only these cases: 1, 1s, 2a, …; worthless (9), cost (10).
        #[arg(long, value_delimiter = ',', value_name = "CASES")]
        only: Vec<String>,
        /// Without Coz.
        #[arg(long)]
        no_coz: bool,
        /// Only what really happens, without predictions: how steady the cases are.
        #[arg(long)]
        truth: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// Two records side by side: what moved beyond the noise.
    Compare {
        /// The earlier record: its directory under benches/record/, or results.json.
        before: PathBuf,
        /// The later one.
        after: PathBuf,
    },
    /// The load generator: a plan as JSON on standard input, a report as JSON on standard output.
    #[command(hide = true)]
    Load,
    /// Holds idle connections until standard input ends.
    #[command(hide = true)]
    Idle { address: SocketAddr, path: String, count: usize, version: load::idle::Version },
}

#[derive(clap::Args)]
struct Keep {
    /// Install missing packages through sudo (root installs without being told).
    #[arg(long)]
    install: bool,
    /// Where to write the record instead of benches/record/.
    #[arg(long, value_name = "DIRECTORY")]
    record: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Some(bench) = Arguments::parse().bench else {
        Arguments::command().print_help()?;
        return Ok(());
    };
    match bench {
        Bench::Peers { quick, only, scenario, rounds, idle, keep } => {
            let defaults = if quick { Settings::quick() } else { Settings::whole() };
            let settings = Settings {
                rounds: rounds.unwrap_or(defaults.rounds).max(1),
                idle: idle.unwrap_or(defaults.idle).max(1),
                only,
                scenarios: scenario,
                arguments: given(),
                ..defaults
            };
            let mut shop = Workshop::open(keep.install)?;
            let record = side_by_side::run(&mut shop, &settings)?;
            save(&shop, &record, keep.record)
        }
        Bench::Http2 { quick, only, scenario, keep } => {
            let settings = http2::Settings { quick, only, scenarios: scenario, arguments: given() };
            let mut shop = Workshop::open(keep.install)?;
            let record = http2::run(&mut shop, &settings)?;
            save(&shop, &record, keep.record)
        }
        Bench::Proxy { quick, only, scenario, keep } => {
            let settings = proxy::Settings { quick, only, scenarios: scenario, arguments: given() };
            let mut shop = Workshop::open(keep.install)?;
            let record = proxy::run(&mut shop, &settings)?;
            save(&shop, &record, keep.record)
        }
        Bench::Sources { quick, only, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = sources::run(&mut shop, quick, &only, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Inprocess { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = inprocess::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Progress { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = hooks::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Sites { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = sites::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Reload { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = reload::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Abuse { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = abuse::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Tower { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = tower::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        Bench::Causal { quick, only, no_coz, truth, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let parent = keep.record.unwrap_or_else(|| shop.bench.join("record"));
            let mut settings = causal::Settings::of(quick, given());
            (settings.only, settings.coz, settings.predict) = (only, !no_coz, !truth);
            let directory = causal::run(&mut shop, &settings, &parent)?;
            println!("written to {}", directory.display());
            Ok(())
        }
        Bench::Compare { before, after } => {
            let (before, after) = (Record::load(&before)?, Record::load(&after)?);
            print!("{}", record::compare::page(&before, &after));
            Ok(())
        }
        Bench::Load => {
            let plan = serde_json::from_reader(std::io::stdin())?;
            serde_json::to_writer(std::io::stdout(), &load::run(&plan)?)?;
            Ok(())
        }
        Bench::Idle { address, path, count, version } => load::idle::run(address, &path, count, version),
    }
}

/// The options given that change what is measured; not where the record goes, which would put a path into it.
fn given() -> String {
    let mut given = Vec::new();
    let mut arguments = std::env::args().skip(2);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--record" => drop(arguments.next()),
            "--install" => {}
            other if other.starts_with("--record=") => {}
            _ => given.push(argument),
        }
    }
    given.join(" ")
}

fn save(shop: &Workshop, record: &Record, parent: Option<PathBuf>) -> Result<()> {
    let parent = parent.unwrap_or_else(|| shop.bench.join("record"));
    let directory = record.save(&parent)?;
    for line in &record.skipped {
        println!("left out: {line}");
    }
    println!("written to {}", directory.display());
    Ok(())
}
