//! `./bench cache`: the cost of a response from the cache, compared with that of a static file of Causeway, and with
//! nginx's cache.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::load::{self, LoadPlan, Report};
use crate::peers::{self, Launch};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::request;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::side_by_side::{cost_metrics, cpu_us, generate, note_disturbance, skip};
use crate::stats;
use crate::workshop::Workshop;

const CONNECTIONS: usize = 16;
/// The sizes of the content, with the tables' names.
const SIZES: [(usize, &str); 2] = [(1024, "1k"), (10 * 1024, "10k")];
/// The most that a response from the cache may cost of the same as a static file.
const RATIO_MAX: f64 = 1.05;

/// A server with a way to the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Causeway's `file_server`.
    File,
    /// Causeway's `cache` before `reverse_proxy`.
    Cache,
    /// nginx's files, with `open_file_cache`.
    NginxFile,
    /// nginx's `proxy_cache`, whose files are in memory.
    NginxCache,
}

impl Source {
    const ALL: [Self; 4] = [Self::File, Self::Cache, Self::NginxFile, Self::NginxCache];

    fn name(self) -> &'static str {
        match self {
            Self::File => "causeway, file",
            Self::Cache => "causeway, cache",
            Self::NginxFile => "nginx, file",
            Self::NginxCache => "nginx, cache",
        }
    }

    fn recipe(self) -> &'static str {
        match self {
            Self::File | Self::Cache => "causeway",
            Self::NginxFile | Self::NginxCache => "nginx",
        }
    }
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("cache", shop, arguments)?;
    let (rounds, warm_ms, run_ms) = if quick { (3, 60, 160) } else { (11, 150, 700) };
    let slot_ms = warm_ms + run_ms + 30;
    let progress = Progress::new(slot_ms * rounds as u64 * (Source::ALL.len() * SIZES.len()) as u64);
    let mut tables = Vec::new();
    for (bytes, size) in SIZES {
        let directory = shop.scratch.join(format!("cache-{size}"));
        fs::create_dir_all(&directory)?;
        fs::write(
            directory.join("page.txt"),
            "All human beings are born free and equal. ".repeat(bytes / 42 + 1).split_at(bytes).0,
        )?;
        let mut servers = Vec::new();
        for source in Source::ALL {
            match start(shop, source, &directory) {
                Ok(server) => servers.push((source, server)),
                Err(error) => skip(shop, source.name(), &error),
            }
        }
        let mut reports: Vec<Vec<Report>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for ((source, server), reports) in servers.iter().zip(&mut reports) {
                progress.at(source.name());
                let plan = LoadPlan {
                    address: server.address,
                    request: request::minimal("/page.txt"),
                    hosts: Vec::new(),
                    connections: CONNECTIONS,
                    depth: 1,
                    warm_ms,
                    run_ms,
                    rate: None,
                    processes: server.processes.clone(),
                    disturb: None,
                };
                reports.push(generate(Cores::One(1), &plan, &[])?);
                progress.done(slot_ms);
            }
        }
        let sources: Vec<_> = servers.iter().map(|(source, _)| *source).collect();
        tables.push(table(&sources, &reports, size, rounds, run_ms)?);
    }
    progress.end();
    for table in &tables {
        progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(table)));
    }
    Ok(record.finish(shop, tables))
}

fn table(sources: &[Source], reports: &[Vec<Report>], size: &str, rounds: usize, run_ms: u64) -> Result<Table> {
    let costs = |at: usize| reports[at].iter().map(cpu_us).collect::<Vec<_>>();
    ensure!(sources.first() == Some(&Source::File), "Causeway's file is the measure of all rows");
    let base = costs(0);
    let row = |at: usize| {
        let mut row = Row::new(sources[at].name());
        let ratios: Vec<f64> = costs(at).iter().zip(&base).map(|(cost, base)| cost / base).collect();
        if sources[at] == Source::Cache {
            let ratio = stats::median(&ratios);
            let met = if ratio <= RATIO_MAX { "met" } else { "missed" };
            row.notes.push(format!("wanted at most {RATIO_MAX} of the file's cost: {ratio:.3}: {met}"));
        }
        row.metrics.push(Metric::ratio("ratio to causeway's file", ratios));
        row.metrics.extend(cost_metrics(&reports[at]));
        note_disturbance(&mut row, &reports[at]);
        row
    };
    Ok(Table {
        name: format!("cache-{size}"),
        title: format!("A response of {size} from the cache, and from a file"),
        how: format!(
            "Each server runs on core 0 with one worker, load on core 1, {CONNECTIONS} connections; {rounds} rounds of one slot of {run_ms} ms for \
             each server. The ratio is CPU per request over that of Causeway's file in the same round; medians ± standard error."
        ),
        chart: Some(Chart { bars: vec!["ratio to causeway's file".to_owned()], label: None }),
        rows: (0..sources.len()).map(row).collect(),
    })
}

/// Starts a server with one worker on core 0, and fills its cache.
fn start(shop: &mut Workshop, source: Source, directory: &Path) -> Result<PeerServer> {
    let recipe = peers::recipe(source.recipe())?;
    let tool = peers::obtain(shop, recipe)?;
    let (port, origin) = (free_port()?, free_port()?);
    let mut launch = match source {
        Source::File | Source::Cache => {
            let text = caddyfile(port, origin, source, directory);
            let mut launch = peers::configured(shop, &tool, recipe.name, &format!("cache-{port}.Caddyfile"), &text)?;
            peers::limit_workers(&mut launch, recipe.name, 1);
            launch
        }
        Source::NginxFile | Source::NginxCache => {
            let scratch = shop.scratch.join(format!("nginx-{port}"));
            fs::create_dir_all(&scratch)?;
            let file = scratch.join("nginx.conf");
            let is_root = rustix::process::geteuid().is_root();
            fs::write(&file, nginx_conf(port, origin, source, directory, &scratch, is_root))?;
            let command = vec![tool.program.into(), "-p".into(), scratch.into(), "-c".into(), file.into()];
            Launch { command, path: "/".to_owned(), ..Launch::default() }
        }
    };
    launch.path = "/page.txt".to_owned();
    let text = fs::read(directory.join("page.txt"))?;
    PeerServer::start_asked(shop, recipe, launch, port, Cores::One(0), &|address, launch| {
        // The second request is answered from the cache.
        load::ask_once(address, &request::minimal(&launch.path))?;
        let response = load::ask_once(address, &request::minimal(&launch.path))?;
        let head = String::from_utf8_lossy(&response[..response.len().saturating_sub(text.len())]).into_owned();
        let is_hit = match source {
            Source::Cache => head.contains("; hit;"),
            Source::NginxCache => head.contains("X-Cache: HIT"),
            Source::File | Source::NginxFile => true,
        };
        Ok(if is_hit && response.ends_with(&text) { Answered::Right } else { Answered::Otherwise(head) })
    })
}

fn caddyfile(port: u16, origin: u16, source: Source, directory: &Path) -> String {
    let global = "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}\n";
    let site = |port: u16, lines: &str| format!("http://:{port} {{\n\tbind 127.0.0.1\n{lines}}}\n");
    let files = format!("\troot \"{}\"\n\theader Cache-Control max-age=3600\n\tfile_server\n", directory.display());
    match source {
        Source::Cache => {
            let cached = format!("\tcache\n\treverse_proxy 127.0.0.1:{origin}\n");
            format!("{global}{}{}", site(port, &cached), site(origin, &files))
        }
        _ => format!("{global}{}", site(port, &files)),
    }
}

fn nginx_conf(port: u16, origin: u16, source: Source, root: &Path, scratch: &Path, is_root: bool) -> String {
    let shown = scratch.display();
    // The scratch directory may be readable by us only.
    let user = if is_root { "user root;\n" } else { "" };
    let files = format!("root \"{}\";\nadd_header Cache-Control max-age=3600;\n", root.display());
    let servers = match source {
        Source::NginxCache => format!(
            "proxy_cache_path {shown}/cache keys_zone=all:10m;\n\
             server {{\nlisten 127.0.0.1:{port} backlog=4096;\nproxy_cache all;\nadd_header X-Cache $upstream_cache_status;\n\
             location / {{\nproxy_pass http://127.0.0.1:{origin};\n}}\n}}\nserver {{\nlisten 127.0.0.1:{origin};\n{files}}}\n"
        ),
        _ => format!("server {{\nlisten 127.0.0.1:{port} backlog=4096;\n{files}}}\n"),
    };
    format!(
        "daemon off;\nworker_processes 1;\npid {shown}/pid;\nerror_log stderr error;\n{user}events {{ worker_connections 20000; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\ntypes {{ text/plain txt; }}\n\
         client_body_temp_path {shown}/body;\nproxy_temp_path {shown}/proxy;\nfastcgi_temp_path {shown}/fastcgi;\n\
         uwsgi_temp_path {shown}/uwsgi;\nscgi_temp_path {shown}/scgi;\nopen_file_cache max=100;\n{servers}}}\n"
    )
}
