//! Access records: formatted on the worker into recycled buffers, written by one thread for the process.
//!
//! The channel is bounded. A record that finds it full is counted instead of waited for, and the writer says how many
//! were lost.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use causeway_pipeline::{Context, Outcome};

/// Records that wait for the writer at most.
const QUEUE_MAX: usize = 4096;
/// Octets of a record's host and target that are kept.
const TEXT_OCTETS_MAX: usize = 1024;

/// Where a worker's records go.
#[derive(Clone)]
pub(crate) struct AccessSink {
    queue: SyncSender<Vec<u8>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Buffers on their way back to the workers.
    buffers: Mutex<Vec<Vec<u8>>>,
    lost: AtomicU64,
}

/// The writing thread; it ends when the last sink is gone.
pub(crate) struct AccessWriter {
    thread: JoinHandle<()>,
}

impl AccessWriter {
    /// Starts the thread. Records go to `out`, one line each.
    pub(crate) fn start(out: impl Write + Send + 'static) -> std::io::Result<(AccessSink, Self)> {
        let (queue, records) = sync_channel(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        let sink = AccessSink { queue, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("access".into()).spawn(move || write(&records, &shared, out))?;
        Ok((sink, Self { thread }))
    }

    /// Waits until everything is written; all sinks must be gone.
    pub(crate) fn finish(self) {
        // The thread has nothing to panic on; if it did, its records are lost and that was reported.
        let _ = self.thread.join();
    }
}

fn write(records: &Receiver<Vec<u8>>, shared: &Shared, mut out: impl Write) {
    while let Ok(mut record) = records.recv() {
        // A log that can't be written must not stop the server.
        let _ = out.write_all(&record);
        record.clear();
        let mut buffers = shared.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < QUEUE_MAX {
            buffers.push(record);
        }
        drop(buffers);
        let lost = shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "{lost} access records were lost: the log could not be written fast enough");
        }
    }
}

impl AccessSink {
    /// Leaves a record in Caddy's console format.
    pub(crate) fn record(&self, cx: &Context, outcome: &Outcome) {
        let mut record = self.shared.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        // Writing to a vector does not fail.
        let _ = format(&mut record, cx, outcome);
        if self.queue.try_send(record).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn format(out: &mut Vec<u8>, cx: &Context, outcome: &Outcome) -> std::io::Result<()> {
    let arrival = cx.arrival();
    let head = cx.original();
    let server = cx.generation().plan().server_name(arrival.server);
    let wall = cx.worker().wall();
    timestamp(out, wall)?;
    write!(out, "\tINFO\thttp.log.access.{server}\thandled request\t{{\"request\": {{\"remote_ip\": \"{}\"", {
        arrival.peer.ip().to_canonical()
    })?;
    write!(out, ", \"remote_port\": \"{}\", \"proto\": \"{}\"", arrival.peer.port(), head.version().as_str())?;
    text(out, "method", head.method().as_str().as_bytes())?;
    text(out, "host", head.authority().unwrap_or_default().as_bytes())?;
    text(out, "uri", head.target().as_str().as_bytes())?;
    write!(out, "}}, \"bytes_read\": {}, \"duration\": {:.9}", outcome.received, outcome.took.as_secs_f64())?;
    writeln!(out, ", \"size\": {}, \"status\": {}}}", outcome.sent, outcome.status.map_or(0, |status| status.as_u16()))
}

/// `, "key": "value"` as JSON; what a peer wrote is escaped, so that it forges no line and no colour.
fn text(out: &mut Vec<u8>, key: &str, value: &[u8]) -> std::io::Result<()> {
    write!(out, ", \"{key}\": \"")?;
    for &octet in value.iter().take(TEXT_OCTETS_MAX) {
        match octet {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', octet]),
            0x20..0x7f => out.push(octet),
            _ => write!(out, "\\u{octet:04x}")?,
        }
    }
    out.push(b'"');
    Ok(())
}

/// `2026/11/21 20:54:25.123`, UTC.
fn timestamp(out: &mut Vec<u8>, wall: std::time::SystemTime) -> std::io::Result<()> {
    let since = wall.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(out, "{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}.{:03}", since.subsec_millis())
}

/// Year, month and day of a count of days since 1970, in the proleptic Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of its year; 719468 days lie before 1970 in era 0.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn timestamps() {
        for (seconds, want) in [
            (0, "1970/01/01 00:00:00.000"),
            (951_782_399, "2000/02/28 23:59:59.000"),
            (951_782_400, "2000/02/29 00:00:00.000"),
            (1_795_294_465, "2026/11/21 20:54:25.000"),
        ] {
            let mut out = Vec::new();
            timestamp(&mut out, UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn a_peers_octets_forge_no_line() {
        let mut out = Vec::new();
        text(&mut out, "uri", b"/a\"\\\x1b[31m\r\n\xff").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), ", \"uri\": \"/a\\\"\\\\\\u001b[31m\\u000d\\u000a\\u00ff\"");
    }
}
