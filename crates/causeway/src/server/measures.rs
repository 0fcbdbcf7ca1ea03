//! The numbers of the process and of the running server that a scrape of the metrics shows.

use std::fs;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use causeway_certs::Store;
use causeway_engine::{Observer, WorkerView};
use causeway_modules::cache::{self, Lookup};
use causeway_modules::metric_push::{PointCounts, point_counts};
use causeway_modules::rate_limit;
use causeway_modules::trace::span_counts;
use causeway_pipeline::Metrics;
use causeway_pipeline::metrics::{Exposition, Kind};

/// Names whose certificates a scrape shows. With more, it shows those that expire first.
const CERTIFICATES_MAX: usize = 1000;
/// Units of the kernel's times of a process per second: its USER_HZ, which is the same on all its 64-bit platforms.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds the numbers of the process and of the sites' engine to every scrape.
pub(super) fn install(metrics: &Metrics, engine: Observer) {
    metrics.add_collector("process", process);
    metrics.add_collector("build", build);
    metrics.add_collector("logs", logs);
    metrics.add_collector("engine", move |page| workers(page, &engine));
    metrics.add_collector("traces", spans);
    metrics.add_collector("metric_push", points);
    metrics.add_collector("cache", cached);
    metrics.add_collector("rate_limit", shared_limits);
}

/// Adds the expiry of the certificates in `store`, in place of an earlier store's.
pub(super) fn install_certificates(metrics: &Metrics, store: &Arc<Store>) {
    let store = Arc::clone(store);
    metrics.add_collector("certificates", move |page| certificates(page, &store));
}

fn build(page: &mut Exposition) {
    let help = "Version of the server; the value is 1.";
    let family = page.family("causeway_build_info", Kind::Gauge, help);
    family.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
}

fn logs(page: &mut Exposition) {
    let help = "Log lines that were lost, by the output and by whether its queue was full or writing failed.";
    let family = page.family("causeway_log_lines_lost_total", Kind::Counter, help);
    for lost in causeway_modules::logs::lost_lines() {
        family.sample(&[("output", &lost.output), ("reason", "queue_full")], lost.dropped);
        family.sample(&[("output", &lost.output), ("reason", "write_failed")], lost.failed);
    }
}

fn spans(page: &mut Exposition) {
    let help = "Spans of sampled requests, by what became of them.";
    let family = page.family("causeway_trace_spans_total", Kind::Counter, help);
    let counts = span_counts();
    for (result, count) in
        [("sent", counts.sent), ("dropped", counts.dropped), ("failed", counts.failed), ("rejected", counts.rejected)]
    {
        family.sample(&[("result", result)], count);
    }
}

fn points(page: &mut Exposition) {
    let counts = point_counts();
    // Only of servers that send metrics.
    if counts == PointCounts::default() {
        return;
    }
    let help = "Data points of metrics for a collector, by the result.";
    let family = page.family("causeway_metric_points_total", Kind::Counter, help);
    for (result, count) in [("sent", counts.sent), ("failed", counts.failed), ("rejected", counts.rejected)] {
        family.sample(&[("result", result)], count);
    }
}

fn cached(page: &mut Exposition) {
    let usage = cache::usage();
    let help = "Requests that the cache looked up, by the result.";
    let family = page.family("causeway_cache_lookups_total", Kind::Counter, help);
    for (lookup, count) in Lookup::ALL.into_iter().zip(usage.lookups) {
        family.sample(&[("result", lookup.as_str())], count);
    }
    let help = "Responses that the cache stores.";
    page.single("causeway_cache_responses", Kind::Gauge, help, usage.responses as u64);
    let help = "Memory of stored responses.";
    page.single("causeway_cache_bytes", Kind::Gauge, help, usage.bytes as u64);
    let help = "Bound on the memory of stored responses.";
    page.single("causeway_cache_max_bytes", Kind::Gauge, help, usage.bytes_max as u64);
    let help = "Files of stored responses.";
    page.single("causeway_cache_files", Kind::Gauge, help, usage.files as u64);
    let help = "Bytes of these files on the disk.";
    page.single("causeway_cache_file_bytes", Kind::Gauge, help, usage.file_bytes);
    let help = "Keys whose responses were removed because of the bound.";
    page.single("causeway_cache_evictions_total", Kind::Counter, help, usage.evicted);
}

fn shared_limits(page: &mut Exposition) {
    let help = "Whether the limits of several servers are shared through this Redis server.";
    let family = page.family("causeway_rate_limit_redis_up", Kind::Gauge, help);
    for status in rate_limit::statuses() {
        family.sample(&[("server", &status.server)], u64::from(status.is_up));
    }
}

/// The metrics of Prometheus's client libraries for a process, from `/proc`. A number that the kernel does not show is
/// left out.
fn process(page: &mut Exposition) {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    // The fields after the program's name, which is in parentheses and may hold any character.
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    // proc(5) numbers the fields from 1; the first of these is number 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let help = "Total user and system CPU time spent in seconds.";
        page.single("process_cpu_seconds_total", Kind::Counter, help, (user + system) / TICKS_PER_SECOND);
    }
    if let (Some(started), Some(booted)) = (field(22), number_after(&fs_text("/proc/stat"), "btime")) {
        let help = "Start time of the process since unix epoch in seconds.";
        page.single("process_start_time_seconds", Kind::Gauge, help, booted as f64 + started / TICKS_PER_SECOND);
    }
    let status = read("status");
    for (key, name, help) in [
        ("VmRSS:", "process_resident_memory_bytes", "Resident memory size in bytes."),
        ("VmSize:", "process_virtual_memory_bytes", "Virtual memory size in bytes."),
    ] {
        if let Some(kibibytes) = number_after(&status, key) {
            page.single(name, Kind::Gauge, help, kibibytes * 1024);
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        let help = "Number of open file descriptors.";
        // Without the descriptor of the directory itself.
        page.single("process_open_fds", Kind::Gauge, help, open.count().saturating_sub(1));
    }
    let limits = read("limits");
    for (key, name, help) in [
        ("Max open files", "process_max_fds", "Maximum number of open file descriptors."),
        (
            "Max address space",
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
        ),
    ] {
        let limit = limits.lines().find_map(|line| line.strip_prefix(key)?.split_ascii_whitespace().next());
        match limit.map(str::parse::<u64>) {
            Some(Ok(limit)) => page.single(name, Kind::Gauge, help, limit),
            // "unlimited"; Go's client shows the largest number.
            Some(Err(_)) => page.single(name, Kind::Gauge, help, u64::MAX),
            None => {}
        }
    }
    let network = read("net/netstat");
    for (column, name, help) in [
        (
            "InOctets",
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
        ),
        ("OutOctets", "process_network_transmit_bytes_total", "Number of bytes sent by the process over the network."),
    ] {
        if let Some(bytes) = table_number(&network, "IpExt:", column) {
            page.single(name, Kind::Counter, help, bytes);
        }
    }
}

fn fs_text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the first number of the line that starts with `key`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_ascii_whitespace().next()?.parse().ok())
}

/// Returns a number of one of the kernel's tables: a line of names, then a line of numbers, both starting with `key`.
fn table_number(text: &str, key: &str, column: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(key));
    let at = lines.next()?.split_ascii_whitespace().position(|name| name == column)?;
    lines.next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

fn workers(page: &mut Exposition, engine: &Observer) {
    let workers: Vec<WorkerView> = engine.workers().collect();
    let help = "Processor time of a worker's thread. Its rate is the worker's utilisation, from 0 to 1.";
    let family = page.family("causeway_worker_busy_seconds_total", Kind::Counter, help);
    for (number, worker) in workers.iter().enumerate() {
        if let Some(cpu_time) = worker.cpu_time {
            family.sample(&[("worker", &number.to_string())], cpu_time.as_secs_f64());
        }
    }
    let help = "Open client connections of a worker, including those in a TLS handshake.";
    let family = page.family("causeway_connections", Kind::Gauge, help);
    for (number, worker) in workers.iter().enumerate() {
        family.sample(&[("worker", &number.to_string())], worker.counts.connections);
    }
    let total = engine.total();
    let help = "Client connections that were closed, by their protocol.";
    let family = page.family("causeway_connections_closed_total", Kind::Counter, help);
    family.sample(&[("protocol", "h1")], total.closed_http1);
    family.sample(&[("protocol", "h2")], total.closed_http2);
    let help = "Panics in handlers.";
    page.single("causeway_handler_panics_total", Kind::Counter, help, total.panics);
    let help = "Blocks of memory in use by connections and handlers.";
    page.single("causeway_pool_blocks_in_use", Kind::Gauge, help, total.blocks_in_use);
    let help = "Objects that the workers' pools have allocated because no free one was left.";
    let family = page.family("causeway_pool_allocations_total", Kind::Counter, help);
    family.sample(&[("pool", "blocks")], total.blocks_allocated);
    family.sample(&[("pool", "exchange_slots")], total.slots_allocated);
    family.sample(&[("pool", "write_lists")], total.lists_allocated);
    let help = "Configurations in memory: the current one, and older ones that running requests still use.";
    page.single("causeway_live_plans", Kind::Gauge, help, engine.live_plans());
}

fn certificates(page: &mut Exposition, store: &Store) {
    let mut expiries = store.expiries();
    expiries.sort_unstable_by(|(name, at), (other, other_at)| (at, name).cmp(&(other_at, other)));
    expiries.truncate(CERTIFICATES_MAX);
    let help = "When the newest certificate for a name expires, in seconds since the Unix epoch.";
    let family = page.family("causeway_certificate_expiry_timestamp_seconds", Kind::Gauge, help);
    for (name, at) in &expiries {
        let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        family.sample(&[("name", name)], seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_pipeline::metrics::Format;

    // The names and types of Prometheus's client libraries; a running process has each of them.
    #[test]
    fn the_process() {
        let mut page = Exposition::default();
        process(&mut page);
        build(&mut page);
        let text = page.render(Format::Text);
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
        };
        let now = UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs_f64();
        for (name, least, most) in [
            ("process_cpu_seconds_total", 0.0, 1e6),
            ("process_start_time_seconds", now - 86_400.0, now + 2.0),
            ("process_resident_memory_bytes", 1e5, 1e12),
            ("process_virtual_memory_bytes", 1e5, 1e15),
            ("process_virtual_memory_max_bytes", 1e5, 2e19),
            ("process_open_fds", 3.0, 1e6),
            ("process_max_fds", 3.0, 2e19),
            ("process_network_receive_bytes_total", 0.0, 2e19),
            ("process_network_transmit_bytes_total", 0.0, 2e19),
        ] {
            assert!((least..=most).contains(&value(name)), "{name}: {}", value(name));
        }
        assert!(text.contains(&format!("causeway_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))));
    }

    #[test]
    fn a_table_of_the_kernel() {
        let table = "TcpExt: A B\nTcpExt: 1 2\nIpExt: In Out\nIpExt: 3 4\n";
        for (key, column, want) in
            [("IpExt:", "Out", Some(4)), ("TcpExt:", "A", Some(1)), ("IpExt:", "None", None), ("Udp:", "A", None)]
        {
            assert_eq!(table_number(table, key, column), want, "{key} {column}");
        }
        assert_eq!(table_number("IpExt: In\nIpExt: x\n", "IpExt:", "In"), None);
    }
}
