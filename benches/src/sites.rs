//! `./bench sites`: the cost of a request with 200 sites that match paths, rewrite and expand placeholders, relative to
//! one `respond`, for Causeway and Caddy with the same Caddyfiles.

use anyhow::Result;

use crate::configurations::{self, Admin, PATH};
use crate::load::{LoadPlan, Report};
use crate::peers;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::request;
use crate::server::{Cores, PeerServer, free_port};
use crate::side_by_side::{cost_metrics, cpu_us, generate, note_disturbance, skip};
use crate::stats;
use crate::workshop::Workshop;

const SITES: usize = 200;
const CONNECTIONS: usize = 64;

/// A server with both configurations.
struct SitePair {
    name: &'static str,
    plain: PeerServer,
    many: PeerServer,
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("sites", shop, arguments)?;
    let (rounds, warm_ms, run_ms) = if quick { (3, 60, 160) } else { (9, 150, 700) };
    let mut pairs = Vec::new();
    for name in ["causeway", "caddy"] {
        match start(shop, name) {
            Ok(pair) => pairs.push(pair),
            Err(error) => skip(shop, name, &error),
        }
    }
    let slot_ms = warm_ms + run_ms + 30;
    let progress = Progress::new(slot_ms * (2 * rounds as u64 + 1) * pairs.len() as u64);
    let plan = |server: &PeerServer| LoadPlan {
        address: server.address,
        request: request::browser(&format!("{PATH}?page=2")),
        hosts: (0..SITES).map(|number| configurations::host(number, SITES)).collect(),
        connections: CONNECTIONS,
        depth: 1,
        warm_ms,
        run_ms,
        rate: None,
        processes: server.processes.clone(),
        disturb: None,
    };
    let mut rows = Vec::new();
    for SitePair { name, plain, many } in &pairs {
        let (mut plains, mut manys) = (Vec::<Report>::new(), Vec::<Report>::new());
        for slot in 0..=2 * rounds {
            // The slots alternate and begin and end with one `respond`, so each slot of 200 sites is between two.
            let (server, reports) = if slot % 2 == 0 { (plain, &mut plains) } else { (many, &mut manys) };
            progress.at(&format!("{name}, slot {} of {}", slot + 1, 2 * rounds + 1));
            reports.push(generate(Cores::One(1), &plan(server), &[])?);
            progress.done(slot_ms);
        }
        let costs = |reports: &[Report]| reports.iter().map(cpu_us).collect::<Vec<_>>();
        let ratios = stats::paired(&costs(&manys), &costs(&plains));
        let plain_costs = costs(&plains);
        let control =
            plain_costs.windows(3).map(|three| three[1] / f64::midpoint(three[0], three[2])).collect::<Vec<_>>();
        for (what, reports, ratio) in [("one respond", &plains, control), ("200 sites", &manys, ratios)] {
            let mut row = Row::new(&format!("{name}, {what}"));
            row.metrics.push(Metric::ratio("ratio to one respond", ratio));
            row.metrics.extend(cost_metrics(reports));
            note_disturbance(&mut row, reports);
            rows.push(row);
        }
    }
    let table = Table {
        name: "sites".to_owned(),
        title: "200 sites beside one respond".to_owned(),
        how: format!(
            "Each server runs twice on core 0 with one worker, load on core 1; {CONNECTIONS} connections request a page of {SITES} sites in turn, as a \
             browser does; both get the same requests. A site's routes match paths, rewrite, and expand placeholders in two fields and the body. \
             {rounds} slots of {run_ms} ms with 200 sites, each between two slots of one `respond`; the ratio is CPU per request over the mean of \
             those two; the rows of one `respond` have its ratio to itself."
        ),
        chart: Some(Chart {
            bars: vec!["user".to_owned(), "system".to_owned()],
            label: Some("ratio to one respond".to_owned()),
        }),
        rows,
    };
    progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
    progress.end();
    Ok(record.finish(shop, vec![table]))
}

fn start(shop: &mut Workshop, name: &'static str) -> Result<SitePair> {
    let recipe = peers::recipe(name)?;
    let tool = peers::obtain(shop, recipe)?;
    let start = |text: fn(u16) -> String| {
        let port = free_port()?;
        let mut launch = peers::configured(shop, &tool, name, &format!("{port}.Caddyfile"), &text(port))?;
        peers::limit_workers(&mut launch, name, 1);
        launch.path = PATH.to_owned();
        PeerServer::start_launch(shop, recipe, launch, port, Cores::One(0))
    };
    Ok(SitePair {
        name,
        plain: start(|port| configurations::one_respond(port, Admin::Off))?,
        many: start(|port| configurations::sites(SITES, port, Admin::Off, 1))?,
    })
}
