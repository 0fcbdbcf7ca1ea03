//! A proxy that runs and was found to answer right and to use its connections again; and one slot of it.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::proxies::{Passing, Proxy, RELAY};
use super::way::{Front, Way};
use super::{Extent, check_reuse, upstream, way};
use crate::http2::cost;
use crate::http2::load::Asking;
use crate::load::Plan;
use crate::peers::Tool;
use crate::record::{Metric, Row};
use crate::sample::Usage;
use crate::server::{Answered, Cores, Server, free_port};
use crate::side_by_side::{generate, system_calls};
use crate::stats;
use crate::workshop::Workshop;

/// A proxy under its load.
pub struct Contender {
    load: Load,
    /// Connections to the upstream that one short run made; none of the relay, whose are the clients'.
    pub made: Option<usize>,
}

enum Load {
    /// By our own generator.
    Http1 { server: Server, plan: Plan },
    /// By h2load.
    Http2 { asked: cost::Asked, asking: Asking, bytes: usize },
}

/// What one slot came to.
pub struct Slot {
    /// CPU per request.
    pub cpu_us: f64,
    usage: Usage,
    answered: u64,
    seconds: f64,
    /// Latencies by the names of their columns.
    times_us: Vec<(&'static str, f64)>,
}

impl Contender {
    /// Starts a proxy on core 0, in front of the upstream at that port, and checks it.
    pub fn start(
        shop: &mut Workshop,
        proxy: Proxy,
        tool: &Tool,
        way: Way,
        upstream_port: u16,
        h2load: &Path,
        extent: Extent,
    ) -> Result<Self> {
        let port = free_port()?;
        let launch = (proxy.launch)(shop, tool, &Passing { port, upstream_port, way })?;
        let bytes = way.body().text().len();
        let server =
            Server::start_asked(
                shop,
                proxy.recipe()?,
                launch,
                port,
                Cores::One(0),
                &|address, launch| match way.front {
                    Front::Http1 => way::answered(address, way),
                    Front::Http2 => way::asking(way, h2load, 1, 1)
                        .said(address.port(), &launch.path, 1, bytes)
                        .map(|_| Answered::Right),
                },
            )?;
        let load = match way.front {
            Front::Http1 => {
                let plan = Plan {
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
                Load::Http1 { server, plan }
            }
            Front::Http2 => {
                let asking = way::asking(way, h2load, way.connections(), way.streams());
                Load::Http2 { asked: cost::begin(server, &asking, extent.run_ms, bytes)?, asking, bytes }
            }
        };
        let mut contender = Self { load, made: None };
        // The first run is the one that may make connections.
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

    /// One slot.
    pub fn slot(&self) -> Result<Slot> {
        match &self.load {
            Load::Http1 { plan, .. } => {
                let report = generate(Cores::One(1), plan, &[])?;
                ensure!(report.requests > 0, "no answer in a slot");
                Ok(Slot {
                    cpu_us: report.usage.cpu_ns as f64 / 1e3 / report.requests as f64,
                    answered: report.requests,
                    seconds: report.seconds,
                    times_us: vec![("p50", report.p50_us), ("p99", report.p99_us)],
                    usage: report.usage,
                })
            }
            Load::Http2 { asked, asking, bytes } => {
                let slot = asking.run(&asked.server, asked.requests, *bytes)?;
                Ok(Slot {
                    cpu_us: asked.cost_us(&slot, asking.connections),
                    answered: slot.said.answered,
                    seconds: slot.said.answered as f64 / slot.said.rate,
                    times_us: vec![("mean", slot.said.mean_us)],
                    usage: slot.usage,
                })
            }
        }
    }

    /// System calls per request, in a short run by itself.
    pub fn calls(&self, shop: &Workshop) -> Result<f64> {
        match &self.load {
            Load::Http1 { server, plan } => {
                let short = Plan { warm_ms: 60, run_ms: plan.run_ms.min(250), ..plan.clone() };
                system_calls(shop, server, &short)
            }
            Load::Http2 { asked, asking, bytes } => cost::calls(shop, asked, asking, *bytes),
        }
        .context("counting")
    }
}

/// CPU per request with user and system apart, rates and latencies.
pub fn metrics(slots: &[Slot]) -> Vec<Metric> {
    let each = |figure: &dyn Fn(&Slot) -> f64| slots.iter().map(figure).collect::<Vec<_>>();
    // The split is by tick samples: pooled over all rounds, then applied to each round's exact sum.
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

/// Says so in the row when another process had the proxy's core for more than a twentieth of the time.
pub fn note_disturbance(row: &mut Row, slots: &[Slot]) {
    let delays: Vec<_> = slots.iter().map(|slot| slot.usage.delayed_ns as f64 / 1e9 / slot.seconds).collect();
    let delay = stats::median(&delays);
    if delay > 0.05 {
        row.note_disturbed(100.0 * delay);
    }
}
