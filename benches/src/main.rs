//! `./bench`: measures Causeway beside other servers and records the results.
//!
//! Reading order: [`peers`] lists the measured servers, [`workshop`] obtains them, [`server`] runs them, [`load`] sends
//! requests and [`sample`] reads their usage; [`side_by_side`], [`http2`], [`proxy`], [`sources`], [`inprocess`],
//! [`instructions`], [`hooks`], [`sites`], [`reload`], [`certificates`], [`abuse`], [`tower`], [`encode`], [`log`] and
//! [`causal`] are the benches; [`record`] writes the results.

mod abuse;
mod cache;
mod causal;
mod certificates;
mod configurations;
mod encode;
mod hooks;
mod http2;
mod inprocess;
mod instructions;
mod load;
mod log;
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
use crate::side_by_side::SlotSettings;
use crate::workshop::Workshop;

/// Benches of Causeway. Each writes its tables and charts to a new directory under benches/record/, and all
/// samples to benches/target/samples/.
#[derive(Parser)]
#[command(name = "./bench", max_term_width = 100, subcommand_required = false)]
struct Arguments {
    #[command(subcommand)]
    bench: Option<BenchCommand>,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Causeway beside nginx, h2o, Caddy, hyper, Go, Crystal and a server that does only the kernel's minimum (≤ 10
    /// min; --quick ≤ 2 min).
    #[command(after_help = peers::help())]
    Peers {
        /// Shorter slots and fewer rounds, for a first look; not comparable with records.
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
    /// The peers bench over HTTP/2, with and without TLS, under h2load, also with nghttpd and HAProxy (≈ 12 min;
    /// --quick ≈ 3 min).
    #[command(after_help = http2::servers::help())]
    Http2 {
        /// Shorter slots and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these servers, by name, comma-separated; the limit server always runs.
        #[arg(long, value_delimiter = ',', value_name = "SERVERS")]
        only: Vec<String>,
        /// Only these scenarios, by name or prefix: hello, page, tls, tls-page-64x32, idle, …
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        scenario: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// The cost of a proxied request, beside nginx, HAProxy, Caddy and a relay that does only the kernel's minimum (≈ 7
    /// min; --quick ≈ 2 min).
    #[command(after_help = proxy::help())]
    Proxy {
        /// Shorter slots and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these proxies, by name, comma-separated; the relay always runs.
        #[arg(long, value_delimiter = ',', value_name = "PROXIES")]
        only: Vec<String>,
        /// Only these scenarios, by name or prefix: h1, h1-minimal, h2, …
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        scenario: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// The benchmarks of projects that we studied, with their code beside ours (≈ 3 min; --quick < 1 min).
    Sources {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these: from-io, prepare-request, placeholders, hello, h2load, page, page-tls, httpgrpc-answers,
        /// httpgrpc-requests, httpgrpc-memory, httpgrpc-garbage, rack-response, puma.
        #[arg(long, value_delimiter = ',', value_name = "TABLES")]
        only: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// Pieces of the request path measured separately: time and allocations of each (< 1 min).
    Inprocess {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// Instructions per request, counted by callgrind; does not need a quiet machine (≈ 5 min; --quick ≈ 1 min).
    Instructions {
        /// One round of fewer requests.
        #[arg(long)]
        quick: bool,
        /// Only these scenarios, by name or prefix: h1-minimal, h1-browser, h2-x10, proxy.
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        only: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// The causal profiler's hooks, and locks, channels and threads with hooks: without a profile and during one (< 1
    /// min).
    Progress {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// 200 sites that match, rewrite and use placeholders, beside one `respond` (≈ 1 min; --quick 10 s).
    Sites {
        /// Shorter and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// Loading 10 000 sites, and a thousand reloads under load (≈ 5 min; --quick ≈ 1 min).
    Reload {
        /// Fewer rounds and reloads.
        #[arg(long)]
        quick: bool,
        /// Only these parts: load, reloads, streams.
        #[arg(long, value_delimiter = ',', value_name = "PARTS")]
        only: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// Starting with 10 000 certificates, and TLS handshakes, beside nginx and Caddy; 1000 renewals under load (≈ 10
    /// min; --quick ≈ 1 min).
    Certificates {
        /// Fewer and shorter rounds.
        #[arg(long)]
        quick: bool,
        /// Only these parts: start, handshakes, isolation, renewals.
        #[arg(long, value_delimiter = ',', value_name = "PARTS")]
        only: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// Response times of a regular client while hostile HTTP/2 clients attack (≈ 3 min; --quick ≈ 1 min).
    Abuse {
        /// Fewer and shorter rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// Compressed responses, beside nginx and Caddy; compressed in advance; the memory of each (≈ 5 min; --quick ≈ 2
    /// min).
    Encode {
        /// Shorter slots and fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Only these tables, by name or prefix: gzip, gzip-1k, gzip-10k, gzip-100k, br, zstd, precompress, memory.
        #[arg(long, value_delimiter = ',', value_name = "TABLES")]
        only: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// The cost of a response from the cache, beside a file of Causeway, and nginx's cache (≈ 2 min; --quick < 1 min).
    Cache {
        /// Shorter slots and fewer rounds.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// The cost of an access log and of metrics, beside nginx and Caddy (≈ 3 min; --quick < 1 min).
    Log {
        /// Shorter slots and fewer rounds.
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
    /// The causal profiler's predictions beside the measured effect of reducing a cost, and beside Coz (≈ 90 min;
    /// --quick ≈ 15 min).
    Causal {
        /// Shorter profiles, fewer stretches, one repetition; for a first look.
        #[arg(long)]
        quick: bool,
        /// Only these cases: 1, 1s, 2a, …; worthless (9), cost (10).
        #[arg(long, value_delimiter = ',', value_name = "CASES")]
        only: Vec<String>,
        /// Without Coz.
        #[arg(long)]
        no_coz: bool,
        /// Measure only the effects, without predictions, to see how stable the cases are.
        #[arg(long)]
        truth: bool,
        #[command(flatten)]
        keep: Keep,
    },
    /// Compare two records: lists changes beyond the noise.
    Compare {
        /// The earlier record: its directory under benches/record/, or its results.json.
        before: PathBuf,
        /// The later one.
        after: PathBuf,
    },
    /// The load generator: reads a plan as JSON from standard input, prints a report as JSON.
    #[command(hide = true)]
    Load,
    /// The generator of TLS handshakes: reads a plan as JSON from standard input, prints a report as JSON.
    #[command(hide = true)]
    Handshakes,
    /// Holds idle connections until standard input ends.
    #[command(hide = true)]
    Idle { address: SocketAddr, path: String, count: usize, version: load::idle::Version },
    /// Requests long texts in a coding and does not read them, until standard input ends.
    #[command(hide = true)]
    Streams { address: SocketAddr, coding: String, count: usize },
}

#[derive(clap::Args)]
struct Keep {
    /// Install missing packages through sudo (root installs them without this option).
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
        BenchCommand::Peers { quick, only, scenario, rounds, idle, keep } => {
            let defaults = if quick { SlotSettings::quick() } else { SlotSettings::whole() };
            let settings = SlotSettings {
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
        BenchCommand::Http2 { quick, only, scenario, keep } => {
            let settings = http2::Http2Settings { quick, only, scenarios: scenario, arguments: given() };
            let mut shop = Workshop::open(keep.install)?;
            let record = http2::run(&mut shop, &settings)?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Proxy { quick, only, scenario, keep } => {
            let settings = proxy::ProxySettings { quick, only, scenarios: scenario, arguments: given() };
            let mut shop = Workshop::open(keep.install)?;
            let record = proxy::run(&mut shop, &settings)?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Sources { quick, only, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = sources::run(&mut shop, quick, &only, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Inprocess { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = inprocess::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Instructions { quick, only, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = instructions::run(&mut shop, quick, &only, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Progress { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = hooks::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Sites { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = sites::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Reload { quick, only, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = reload::run(&mut shop, quick, &only, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Certificates { quick, only, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = certificates::run(&mut shop, quick, &only, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Abuse { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = abuse::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Encode { quick, only, keep } => {
            let settings = encode::EncodeSettings { quick, only, arguments: given() };
            let mut shop = Workshop::open(keep.install)?;
            let record = encode::run(&mut shop, &settings)?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Cache { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = cache::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Log { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = log::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Tower { quick, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let record = tower::run(&mut shop, quick, given())?;
            save(&shop, &record, keep.record)
        }
        BenchCommand::Causal { quick, only, no_coz, truth, keep } => {
            let mut shop = Workshop::open(keep.install)?;
            let parent = keep.record.unwrap_or_else(|| shop.bench.join("record"));
            let mut settings = causal::CausalSettings::of(quick, given());
            (settings.only, settings.coz, settings.predict) = (only, !no_coz, !truth);
            let directory = causal::run(&mut shop, &settings, &parent)?;
            println!("written to {}", directory.display());
            Ok(())
        }
        BenchCommand::Compare { before, after } => {
            let (before, after) = (Record::load(&before)?, Record::load(&after)?);
            print!("{}", record::compare::page(&before, &after));
            Ok(())
        }
        BenchCommand::Load => {
            let plan = serde_json::from_reader(std::io::stdin())?;
            serde_json::to_writer(std::io::stdout(), &load::run(&plan)?)?;
            Ok(())
        }
        BenchCommand::Handshakes => {
            let plan = serde_json::from_reader(std::io::stdin())?;
            serde_json::to_writer(std::io::stdout(), &certificates::client::run(&plan)?)?;
            Ok(())
        }
        BenchCommand::Idle { address, path, count, version } => load::idle::run(address, &path, count, version),
        BenchCommand::Streams { address, coding, count } => encode::streams::run(address, &coding, count),
    }
}

/// Returns the options that affect the results. The record's path is omitted, since the record must not contain paths.
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
    let directory = record.save(&parent, &shop.samples)?;
    for line in &record.skipped {
        println!("skipped: {line}");
    }
    println!("written to {}", directory.display());
    Ok(())
}
