//! `./bench log`: the cost that an access log, or metrics, add to a minimal request, for Causeway, nginx and Caddy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::load::{LoadPlan, Report};
use crate::peers::{self, Launch};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::request;
use crate::server::{Cores, PeerServer, free_port};
use crate::side_by_side::{cost_metrics, cpu_us, generate, note_disturbance, skip};
use crate::stats;
use crate::workshop::Workshop;

const CONNECTIONS: usize = 64;

/// The work of a server in addition to the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    None,
    /// A line of JSON for each request, in a file.
    Log,
    /// The same, in pieces of 64 KiB: an option of nginx.
    BufferedLog,
    /// Caddy's global option `metrics`.
    Metrics,
}

/// The measured pairs: a server, its name in the table, its addition, and the most that Causeway's may cost in µs.
const PAIRS: [(&str, &str, Extra, Option<f64>); 6] = [
    ("causeway", "causeway, log", Extra::Log, Some(0.35)),
    ("nginx", "nginx, log", Extra::Log, None),
    ("nginx", "nginx, log in 64 KiB", Extra::BufferedLog, None),
    ("caddy", "caddy, log", Extra::Log, None),
    ("causeway", "causeway, metrics", Extra::Metrics, Some(0.03)),
    ("caddy", "caddy, metrics", Extra::Metrics, None),
];

/// The name of the column with the difference.
const EXTRA: &str = "extra per request";

/// A running server, and the file that its log grows into.
struct Logging {
    server: PeerServer,
    file: PathBuf,
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("log", shop, arguments)?;
    let (rounds, warm_ms, run_ms) = if quick { (3, 60, 160) } else { (15, 150, 700) };
    let slot_ms = warm_ms + run_ms + 30;
    let progress = Progress::new(slot_ms * (2 * rounds as u64 + 1) * PAIRS.len() as u64);
    let mut rows = Vec::new();
    for (peer, name, extra, most) in PAIRS {
        progress.at(name);
        let started = start(shop, peer, Extra::None).and_then(|plain| Ok((plain, start(shop, peer, extra)?)));
        let measured = started.and_then(|(plain, with)| {
            measure(&plain, &with, rounds, &|server| LoadPlan {
                address: server.address,
                request: request::minimal("/"),
                hosts: Vec::new(),
                connections: CONNECTIONS,
                depth: 1,
                warm_ms,
                run_ms,
                rate: None,
                processes: server.processes.clone(),
                disturb: None,
            })
        });
        match measured {
            Ok((plains, withs)) => rows.push(row(name, most, &plains, &withs)),
            Err(error) => skip(shop, name, &error),
        }
        progress.done(slot_ms * (2 * rounds as u64 + 1));
    }
    ensure!(!rows.is_empty(), "no server was measured: {}", shop.skipped.join("; "));
    let table = Table {
        name: "log".to_owned(),
        title: "A minimal request with an access log, and with metrics".to_owned(),
        how: format!(
            "Each server runs twice on core 0 with one worker, load on core 1, {CONNECTIONS} connections; {rounds} slots of {run_ms} ms with the addition, \
             each between two without. The ratio is CPU per request over the mean of those two, the difference is `{EXTRA}`; both are medians ± \
             standard error. The log is JSON in a file, which is emptied after each slot."
        ),
        chart: Some(Chart { bars: vec![EXTRA.to_owned()], label: None }),
        rows,
    };
    progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
    progress.end();
    Ok(record.finish(shop, vec![table]))
}

/// Returns the slots without and with the addition: they alternate, and begin and end without it.
fn measure(
    plain: &Logging,
    with: &Logging,
    rounds: usize,
    plan: &dyn Fn(&PeerServer) -> LoadPlan,
) -> Result<(Vec<Report>, Vec<Report>)> {
    let (mut plains, mut withs) = (Vec::new(), Vec::new());
    for slot in 0..=2 * rounds {
        let (logging, reports) = if slot % 2 == 0 { (plain, &mut plains) } else { (with, &mut withs) };
        reports.push(generate(Cores::One(1), &plan(&logging.server), &[])?);
        // All of them append, so an emptied file goes on from its beginning.
        if let Ok(file) = fs::File::options().write(true).open(&logging.file) {
            file.set_len(0)?;
        }
    }
    Ok((plains, withs))
}

fn row(name: &str, most: Option<f64>, plains: &[Report], withs: &[Report]) -> Row {
    let costs = |reports: &[Report]| reports.iter().map(cpu_us).collect::<Vec<_>>();
    let (plain, with) = (costs(plains), costs(withs));
    let extra: Vec<f64> =
        with.iter().zip(plain.windows(2)).map(|(with, plain)| with - f64::midpoint(plain[0], plain[1])).collect();
    let mut row = Row::new(name);
    row.metrics.push(Metric::ratio("ratio to none", stats::paired(&with, &plain)));
    row.metrics.push(Metric::time(EXTRA, "µs", extra.clone()));
    row.metrics.extend(cost_metrics(withs));
    if let Some(most) = most {
        let extra = stats::median(&extra);
        let met = if extra <= most { "met" } else { "missed" };
        row.notes.push(format!("wanted at most {most} µs extra: {extra:.3}: {met}"));
    }
    note_disturbance(&mut row, withs);
    row
}

fn start(shop: &mut Workshop, name: &str, extra: Extra) -> Result<Logging> {
    let recipe = peers::recipe(name)?;
    let tool = peers::obtain(shop, recipe)?;
    let port = free_port()?;
    let file = shop.scratch.join(format!("access-{port}.log"));
    let launch = if name == "nginx" {
        let directory = shop.scratch.join(format!("nginx-{port}"));
        fs::create_dir_all(&directory)?;
        let is_root = rustix::process::geteuid().is_root();
        let configuration = directory.join("nginx.conf");
        fs::write(&configuration, nginx_conf(port, extra, &file, &directory, is_root))?;
        let command = vec![tool.program.into(), "-p".into(), directory.into(), "-c".into(), configuration.into()];
        Launch { command, path: "/".to_owned(), ..Launch::default() }
    } else {
        let text = caddyfile(port, extra, &file);
        let mut launch = peers::configured(shop, &tool, recipe.name, &format!("log-{port}.Caddyfile"), &text)?;
        peers::limit_workers(&mut launch, recipe.name, 1);
        launch
    };
    let server = PeerServer::start_launch(shop, recipe, launch, port, Cores::One(0))?;
    if matches!(extra, Extra::Log) {
        ensure!(fs::metadata(&file).is_ok_and(|file| file.len() > 0), "{name} wrote no log");
    }
    Ok(Logging { server, file })
}

impl Drop for Logging {
    fn drop(&mut self) {
        // The server may still write: it is its directory entry that goes.
        let _ = fs::remove_file(&self.file);
    }
}

/// Returns a Caddyfile for both Caddy and Causeway.
pub(crate) fn caddyfile(port: u16, extra: Extra, file: &Path) -> String {
    let global = if extra == Extra::Metrics { "\tmetrics\n" } else { "" };
    let log = match extra {
        Extra::Log => {
            format!(
                "\tlog {{\n\t\toutput file {} {{\n\t\t\troll_disabled\n\t\t}}\n\t\tformat json\n\t}}\n",
                file.display()
            )
        }
        _ => String::new(),
    };
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n{global}}}\nhttp://:{port} {{\n\tbind 127.0.0.1\n{log}\trespond \"{}\"\n}}\n",
        answer::BODY
    )
}

/// The members of nginx's records are those of Caddy's that nginx has.
fn nginx_conf(port: u16, extra: Extra, file: &Path, directory: &Path, is_root: bool) -> String {
    let shown = directory.display();
    // The scratch directory may be readable by us only.
    let user = if is_root { "user root;\n" } else { "" };
    let log = match extra {
        Extra::None | Extra::Metrics => "access_log off;\n".to_owned(),
        Extra::Log => format!("access_log {} record;\n", file.display()),
        Extra::BufferedLog => format!("access_log {} record buffer=64k flush=1s;\n", file.display()),
    };
    format!(
        "daemon off;\nworker_processes 1;\npid {shown}/pid;\nerror_log stderr error;\n{user}events {{ worker_connections 20000; }}\n\
         http {{\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\ndefault_type text/plain;\n\
         client_body_temp_path {shown}/body;\nproxy_temp_path {shown}/proxy;\nfastcgi_temp_path {shown}/fastcgi;\n\
         uwsgi_temp_path {shown}/uwsgi;\nscgi_temp_path {shown}/scgi;\n\
         log_format record escape=json '{{\"ts\":$msec,\"request\":{{\"remote_ip\":\"$remote_addr\",\"remote_port\":\"$remote_port\",\
         \"proto\":\"$server_protocol\",\"method\":\"$request_method\",\"host\":\"$http_host\",\"uri\":\"$request_uri\"}},\
         \"bytes_read\":\"$request_length\",\"duration\":$request_time,\"size\":$body_bytes_sent,\"status\":$status,\
         \"resp_headers\":{{\"Content-Type\":[\"$sent_http_content_type\"],\"Server\":[\"nginx\"]}}}}';\n{log}\
         server {{\nlisten 127.0.0.1:{port} backlog=4096;\nlocation / {{ return 200 \"{}\"; }}\n}}\n}}\n",
        answer::BODY
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_differ_in_the_addition_only() {
        let (file, directory) = (Path::new("/l/access"), Path::new("/t"));
        let plain = caddyfile(8081, Extra::None, file);
        assert_eq!(caddyfile(8081, Extra::Metrics, file).replace("\tmetrics\n", ""), plain);
        assert!(caddyfile(8081, Extra::Log, file).contains("output file /l/access {") && !plain.contains("log"));
        let conf = |extra| nginx_conf(8081, extra, file, directory, false);
        assert!(conf(Extra::Log).contains("access_log /l/access record;\n"));
        assert!(conf(Extra::BufferedLog).contains("access_log /l/access record buffer=64k"));
        assert!(conf(Extra::None).contains("access_log off;"));
    }
}
