//! A running proxy that was verified to respond correctly and to reuse its connections, and its slots.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::proxies::{Passing, Proxy, RELAY};
use super::way::{Front, ProxyPath};
use super::{Extent, check_reuse, upstream, way};
use crate::http2::cost;
use crate::http2::load::H2loadRun;
use crate::load::LoadPlan;
use crate::peers::Tool;
use crate::record::{Metric, Row};
use crate::sample::Usage;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::side_by_side::{generate, system_calls};
use crate::stats;
use crate::workshop::Workshop;

/// A proxy under load.
pub struct Contender {
    load: LoadTool,
    /// Number of connections that one short run made to the upstream; `None` for the relay, which makes one per client.
    pub made: Option<usize>,
}

enum LoadTool {
    /// Load from our own generator.
    Http1 { server: PeerServer, plan: LoadPlan },
    /// Load from h2load.
    Http2 { asked: cost::CalibratedServer, asking: H2loadRun, bytes: usize },
}

/// The measurements of one slot.
pub struct ProxySlot {
    /// CPU time per request in µs.
    pub cpu_us: f64,
    usage: Usage,
    answered: u64,
    seconds: f64,
    /// Latencies in µs, by the names of their columns.
    times_us: Vec<(&'static str, f64)>,
}

impl Contender {
    /// Starts a proxy on core 0, in front of the upstream at that port, and verifies it.
    pub fn start(
        shop: &mut Workshop,
        proxy: Proxy,
        tool: &Tool,
        way: ProxyPath,
        upstream_port: u16,
        h2load: &Path,
        extent: Extent,
    ) -> Result<Self> {
        let port = free_port()?;
        let launch = (proxy.launch)(shop, tool, &Passing { port, upstream_port, way })?;
        let bytes = way.body().len();
        let server =
            PeerServer::start_asked(shop, proxy.recipe()?, launch, port, Cores::One(0), &|address, launch| match way
                .front
            {
                Front::Http1 => way::answered(address, way),
                Front::Http2 => {
                    way::asking(way, h2load, 1, 1).said(address.port(), &launch.path, 1, bytes).map(|_| Answered::Right)
                }
            })?;
        let load = match way.front {
            Front::Http1 => {
                let plan = LoadPlan {
                    address: server.address,
                    request: way.request(),
                    hosts: Vec::new(),
                    connections: way.connections(),
                    depth: 1,
                    warm_ms: extent.warm_ms,
                    run_ms: extent.run_ms,
                    rate: None,
                    processes: server.processes.clone(),
                    disturb: None,
                };
                LoadTool::Http1 { server, plan }
            }
            Front::Http2 => {
                let asking = way::asking(way, h2load, way.connections(), way.streams());
                LoadTool::Http2 { asked: cost::begin(server, &asking, extent.run_ms, bytes)?, asking, bytes }
            }
        };
        let mut contender = Self { load, made: None };
        // The first run may make connections.
        contender.slot()?;
        if proxy.name != RELAY {
            let before = upstream::connections(upstream_port)?;
            let answered = contender.slot()?.answered;
            let made = upstream::connections(upstream_port)?.difference(&before).count();
            check_reuse(made, answered, way.open())?;
            contender.made = Some(made);
        }
        Ok(contender)
    }

    /// Runs one slot.
    pub fn slot(&self) -> Result<ProxySlot> {
        match &self.load {
            LoadTool::Http1 { plan, .. } => {
                let report = generate(Cores::One(1), plan, &[])?;
                ensure!(report.requests > 0, "no answer in a slot");
                Ok(ProxySlot {
                    cpu_us: report.usage.cpu_ns as f64 / 1e3 / report.requests as f64,
                    answered: report.requests,
                    seconds: report.seconds,
                    times_us: vec![("p50", report.p50_us), ("p99", report.p99_us)],
                    usage: report.usage,
                })
            }
            LoadTool::Http2 { asked, asking, bytes } => {
                let slot = asking.run(&asked.server, asked.requests, *bytes)?;
                Ok(ProxySlot {
                    cpu_us: asked.cost_us(&slot, asking.connections),
                    answered: slot.said.answered,
                    seconds: slot.said.answered as f64 / slot.said.rate,
                    times_us: vec![("mean", slot.said.mean_us)],
                    usage: slot.usage,
                })
            }
        }
    }

    /// Returns the system calls per request, from a separate short run.
    pub fn calls(&self, shop: &Workshop) -> Result<f64> {
        match &self.load {
            LoadTool::Http1 { server, plan } => {
                let short = LoadPlan { warm_ms: 60, run_ms: plan.run_ms.min(250), ..plan.clone() };
                system_calls(shop, server, &short)
            }
            LoadTool::Http2 { asked, asking, bytes } => cost::calls(shop, asked, asking, *bytes),
        }
        .context("counting")
    }
}

/// Returns the CPU time per request, also split into user and system, and rates and latencies.
pub fn metrics(slots: &[ProxySlot]) -> Vec<Metric> {
    let each = |figure: &dyn Fn(&ProxySlot) -> f64| slots.iter().map(figure).collect::<Vec<_>>();
    // The split into user and system time is sampled: it is pooled over all rounds, then applied to each round's exact
    // sum.
    let user: u64 = slots.iter().map(|slot| slot.usage.user_ms).sum();
    let system: u64 = slots.iter().map(|slot| slot.usage.system_ms).sum();
    let share = user as f64 / (user + system).max(1) as f64;
    let mut metrics = vec![
        Metric::time("CPU per request", "µs", each(&|slot| slot.cpu_us)),
        Metric::time("user", "µs", each(&|slot| slot.cpu_us * share)),
        Metric::time("system", "µs", each(&|slot| slot.cpu_us * (1.0 - share))),
        Metric::rate("requests", each(&|slot| slot.answered as f64 / slot.seconds)),
    ];
    for name in ["p50", "p99", "mean"] {
        let times = slots.iter().flat_map(|slot| &slot.times_us).filter(|(column, _)| *column == name);
        let times: Vec<_> = times.map(|(_, time)| *time).collect();
        if !times.is_empty() {
            metrics.push(Metric::time(name, "µs", times));
        }
    }
    metrics
}

/// Adds a note to the row when other processes had the proxy's core for more than 5 % of the time.
pub fn note_disturbance(row: &mut Row, slots: &[ProxySlot]) {
    let delays: Vec<_> = slots.iter().map(|slot| slot.usage.delayed_ns as f64 / 1e9 / slot.seconds).collect();
    let delay = stats::median(&delays);
    if delay > 0.05 {
        row.note_disturbed(100.0 * delay);
    }
}
