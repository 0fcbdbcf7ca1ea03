//! `./bench encode`: the cost and the size of compressed responses with Causeway, nginx and Caddy; of responses that
//! are compressed in advance; and the memory of responses that are being compressed.
//!
//! - [`servers`]: the servers and their configurations
//! - [`streams`]: responses that are being compressed

mod servers;
pub mod streams;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::load::{self, LoadPlan, Report};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::request;
use crate::server::{Cores, PeerServer};
use crate::side_by_side::{cost_metrics, cpu_us, generate, note_disturbance, skip};
use crate::stats;
use crate::workshop::Workshop;
use servers::{Coder, EncodedPeer};

/// The extent of the measurement.
pub struct EncodeSettings {
    /// Shorter and fewer rounds.
    pub quick: bool,
    /// Tables to measure, by name or prefix; empty for all.
    pub only: Vec<String>,
    /// The command's arguments, for the record.
    pub arguments: String,
}

/// Durations and repetitions.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    warm_ms: u64,
    run_ms: u64,
    streams: usize,
}

/// Bytes of the texts.
const SIZES: [(usize, &str); 3] = [(1024, "1k"), (10 * 1024, "10k"), (100 * 1024, "100k")];
/// The codings, in the order of the tables.
const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];
/// Connections of the load.
const CONNECTIONS: usize = 16;
/// The size of the text that is compressed in advance.
const ADVANCE: &str = "10k";
/// The name of the table of responses that are compressed in advance.
const PRECOMPRESS: &str = "precompress";
/// The name of the table of memory.
const MEMORY: &str = "memory";

/// The name of the ratio's column: Causeway's cost, so lower is better for it.
const RATIO: &str = "Causeway's cost over it";

/// Returns the names of the tables, in order.
pub fn names() -> Vec<String> {
    let coded = SIZES.iter().flat_map(|(_, size)| CODINGS.iter().map(move |coding| format!("{coding}-{size}")));
    coded.chain([PRECOMPRESS.to_owned(), MEMORY.to_owned()]).collect()
}

/// Runs the bench and returns its record.
pub fn run(shop: &mut Workshop, settings: &EncodeSettings) -> Result<Record> {
    let record = Record::begin("encode", shop, settings.arguments.clone())?;
    for wanted in &settings.only {
        let known = names().iter().any(|name| name.starts_with(wanted.as_str()));
        ensure!(known, "unknown table {wanted:?}; expected one of {}", names().join(", "));
    }
    let chosen = |name: &str| settings.only.is_empty() || settings.only.iter().any(|wanted| name.starts_with(wanted));
    let extent = if settings.quick {
        Extent { rounds: 3, warm_ms: 60, run_ms: 200, streams: 200 }
    } else {
        Extent { rounds: 7, warm_ms: 150, run_ms: 900, streams: 1000 }
    };
    let directory = texts(shop)?;
    let tables_planned = names().iter().filter(|name| chosen(name)).count() as u64;
    let progress = Progress::new(tables_planned * extent.rounds as u64 * 5 * (extent.warm_ms + extent.run_ms + 40));
    let mut tables = Vec::new();
    for (bytes, size) in SIZES {
        for coding in CODINGS {
            let name = format!("{coding}-{size}");
            if chosen(&name) {
                match coded(shop, &progress, extent, &directory, (bytes, size), coding) {
                    Ok(table) => tables.push(table),
                    Err(error) => skip(shop, &name, &error),
                }
            }
        }
    }
    if chosen(PRECOMPRESS) {
        match in_advance(shop, &progress, extent, &directory) {
            Ok(table) => tables.push(table),
            Err(error) => skip(shop, PRECOMPRESS, &error),
        }
    }
    if chosen(MEMORY) {
        match streams::table(shop, &progress, extent.streams, &directory) {
            Ok(table) => tables.push(table),
            Err(error) => skip(shop, MEMORY, &error),
        }
    }
    progress.end();
    ensure!(!tables.is_empty(), "no table was measured: {}", shop.skipped.join("; "));
    for table in &tables {
        progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(table)));
    }
    Ok(record.finish(shop, tables))
}

/// Writes the texts, which are the beginnings of this repository's guides: English prose with markup and examples.
fn texts(shop: &Workshop) -> Result<PathBuf> {
    let mut guides: Vec<_> = fs::read_dir(shop.root.join("docs"))?.collect::<std::io::Result<_>>()?;
    guides.sort_by_key(fs::DirEntry::file_name);
    let mut text = Vec::new();
    for guide in guides.iter().map(fs::DirEntry::path).filter(|path| path.extension().is_some_and(|end| end == "md")) {
        text.extend(fs::read(guide)?);
    }
    let directory = shop.scratch.join("texts");
    fs::create_dir_all(&directory)?;
    for (bytes, size) in SIZES {
        let part = text.get(..bytes).context("the guides are shorter than the longest text")?;
        fs::write(directory.join(format!("{size}.txt")), part)?;
    }
    // The connections of the table of memory never read all of it.
    fs::write(directory.join(streams::FILE), text.repeat(streams::FILE_BYTES / text.len() + 1))?;
    Ok(directory)
}

/// Returns the request for a text in a coding; without a coding, for the text itself.
fn requested(size: &str, coding: &str) -> String {
    let minimal = request::minimal(&format!("/{size}.txt"));
    match coding {
        "" => minimal,
        coding => minimal.replacen("\r\n\r\n", &format!("\r\nAccept-Encoding: {coding}\r\n\r\n"), 1),
    }
}

fn plan(server: &PeerServer, request: String, extent: Extent) -> LoadPlan {
    LoadPlan {
        address: server.address,
        request,
        hosts: Vec::new(),
        connections: CONNECTIONS,
        depth: 1,
        warm_ms: extent.warm_ms,
        run_ms: extent.run_ms,
        rate: None,
        processes: server.processes.clone(),
        disturb: None,
    }
}

/// Requests the text once, checks that the response has the coding, and returns its bytes of content.
fn content_bytes(server: &PeerServer, size: &str, coding: &str) -> Result<usize> {
    let response = load::ask_once(server.address, &requested(size, coding))?;
    let head = memchr::memmem::find(&response, b"\r\n\r\n").context("a head")? + 4;
    let fields = String::from_utf8_lossy(&response[..head]).to_ascii_lowercase();
    let is_coded = fields.contains(&format!("\r\ncontent-encoding: {coding}\r\n"));
    ensure!(is_coded || coding.is_empty(), "the response has no content coding {coding}: {fields:?}");
    if load::scan::content_length(&response[..head]).is_some() {
        return Ok(response.len() - head);
    }
    let (mut at, mut bytes) = (head, 0);
    while let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(&response[at..]) {
        bytes += size as usize;
        at += line + size as usize + 2;
        if size == 0 {
            break;
        }
    }
    Ok(bytes)
}

/// Measures one coding at one size: each peer's slot is between two of Causeway's.
fn coded(
    shop: &mut Workshop,
    progress: &Progress,
    extent: Extent,
    directory: &std::path::Path,
    (bytes, size): (usize, &str),
    coding: &str,
) -> Result<Table> {
    let ours = EncodedPeer::start(shop, Coder::Causeway, coding, directory)?;
    let mut peers = Vec::new();
    for coder in Coder::peers(coding) {
        match EncodedPeer::start(shop, coder, coding, directory) {
            Ok(peer) => peers.push(peer),
            Err(error) => skip(shop, &format!("{} in {coding}-{size}", coder.name()), &error),
        }
    }
    let request = requested(size, coding);
    let sizes = std::iter::once(&ours).chain(&peers).map(|peer| content_bytes(&peer.server, size, coding));
    let sizes: Vec<usize> = sizes.collect::<Result<_>>()?;
    let slot = |peer: &EncodedPeer| generate(Cores::One(1), &plan(&peer.server, request.clone(), extent), &[]);
    let mut reports: Vec<Vec<Report>> = peers.iter().map(|_| Vec::new()).collect();
    let mut ratios: Vec<Vec<f64>> = peers.iter().map(|_| Vec::new()).collect();
    let mut our_reports = Vec::new();
    for round in 0..extent.rounds {
        our_reports.push(slot(&ours)?);
        for index in 0..peers.len() {
            // Rotate the order, so that no peer always follows one neighbour.
            let index = (index + round) % peers.len();
            progress.at(&format!("{coding}-{size}, round {} of {}", round + 1, extent.rounds));
            let report = slot(&peers[index])?;
            let before = cpu_us(our_reports.last().context("a slot before")?);
            our_reports.push(slot(&ours)?);
            let after = cpu_us(our_reports.last().context("a slot after")?);
            ratios[index].push(f64::midpoint(before, after) / cpu_us(&report));
            reports[index].push(report);
            progress.done(2 * (extent.warm_ms + extent.run_ms + 40));
        }
    }
    let row = |peer: &EncodedPeer, reports: &[Report], ratio: Option<&Vec<f64>>, content: usize| {
        let mut row = Row::new(peer.coder.name());
        row.metrics.extend(ratio.map(|ratio| Metric::ratio(RATIO, ratio.clone())));
        row.metrics.push(Metric::count("content", "bytes", vec![content as f64]));
        row.metrics.extend(cost_metrics(reports));
        row.notes.push(format!("{content} bytes of content for {bytes}"));
        if let Some(ratio) = ratio {
            let ratio = stats::median(ratio);
            let met = if ratio <= 0.8 && sizes[0] <= content { "met" } else { "missed" };
            row.notes.push(format!(
                "wanted at most 0.8 of its CPU at the same or a smaller size: {ratio:.2} at {} bytes: {met}",
                sizes[0]
            ));
        }
        note_disturbance(&mut row, reports);
        row
    };
    let mut rows = vec![row(&ours, &our_reports, None, sizes[0])];
    for (index, peer) in peers.iter().enumerate() {
        rows.push(row(peer, &reports[index], Some(&ratios[index]), sizes[index + 1]));
    }
    Ok(Table {
        name: format!("{coding}-{size}"),
        title: format!("A text of {bytes} bytes, compressed with {coding}"),
        how: format!(
            "Static file on the server's disk, compressed for each request at the default level. Servers on core 0 with one worker, load on core 1, \
             {CONNECTIONS} connections; {} rounds of {} ms. The ratio is Causeway's CPU per request, the mean of its slots immediately before and \
             after, over the peer's; median ± standard error.",
            extent.rounds, extent.run_ms
        ),
        chart: Some(Chart { bars: vec!["user".to_owned(), "system".to_owned()], label: None }),
        rows,
    })
}

/// Measures a response that was compressed in advance beside the same file without a coding, from the same server.
fn in_advance(shop: &mut Workshop, progress: &Progress, extent: Extent, directory: &std::path::Path) -> Result<Table> {
    let ours = EncodedPeer::start(shop, Coder::Precompress, "br", directory)?;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // The first requests get the file itself, until its variants are made.
    for coding in CODINGS {
        while content_bytes(&ours.server, ADVANCE, coding).is_err() {
            ensure!(std::time::Instant::now() < until, "no variant with {coding} was made within 20 s");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let slot = |coding: &str| generate(Cores::One(1), &plan(&ours.server, requested(ADVANCE, coding), extent), &[]);
    let mut plains = vec![slot("")?];
    let mut reports: Vec<Vec<Report>> = CODINGS.iter().map(|_| Vec::new()).collect();
    let mut ratios: Vec<Vec<f64>> = CODINGS.iter().map(|_| Vec::new()).collect();
    for round in 0..extent.rounds {
        for (index, coding) in CODINGS.iter().enumerate() {
            progress.at(&format!("{PRECOMPRESS}, round {} of {}", round + 1, extent.rounds));
            let report = slot(coding)?;
            let before = cpu_us(plains.last().context("a slot before")?);
            plains.push(slot("")?);
            let after = cpu_us(plains.last().context("a slot after")?);
            ratios[index].push(cpu_us(&report) / f64::midpoint(before, after));
            reports[index].push(report);
            progress.done(2 * (extent.warm_ms + extent.run_ms + 40));
        }
    }
    let mut rows = Vec::new();
    let mut plain = Row::new("without a coding");
    plain.metrics.push(Metric::count("content", "bytes", vec![content_bytes(&ours.server, ADVANCE, "")? as f64]));
    plain.metrics.extend(cost_metrics(&plains));
    note_disturbance(&mut plain, &plains);
    rows.push(plain);
    for (index, coding) in CODINGS.iter().enumerate() {
        let mut row = Row::new(coding);
        row.metrics.push(Metric::ratio("ratio to none", ratios[index].clone()));
        row.metrics.push(Metric::count("content", "bytes", vec![content_bytes(&ours.server, ADVANCE, coding)? as f64]));
        row.metrics.extend(cost_metrics(&reports[index]));
        let ratio = stats::median(&ratios[index]);
        let met = if ratio <= 1.05 { "met" } else { "missed" };
        row.notes.push(format!("wanted at most 1.05 of the cost without a coding: {ratio:.2}: {met}"));
        note_disturbance(&mut row, &reports[index]);
        rows.push(row);
    }
    Ok(Table {
        name: PRECOMPRESS.to_owned(),
        title: "A text of 10 KiB that the server compressed in advance".to_owned(),
        how: format!(
            "One Causeway with `precompress` on core 0, load on core 1, {CONNECTIONS} connections; {} rounds of {} ms, each slot between two without \
             Accept-Encoding, from the same server; the ratio is CPU per request over the mean of those two.",
            extent.rounds, extent.run_ms
        ),
        chart: Some(Chart { bars: vec!["user".to_owned(), "system".to_owned()], label: None }),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_the_text_and_the_coding() {
        assert_eq!(requested("1k", ""), request::minimal("/1k.txt"));
        assert!(requested("1k", "br").ends_with("\r\nAccept-Encoding: br\r\n\r\n"));
    }

    #[test]
    fn every_table_has_a_name_of_its_own() {
        let names = names();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        assert_eq!(names.len(), SIZES.len() * CODINGS.len() + 2);
    }
}
