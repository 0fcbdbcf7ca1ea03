//! Finds this program's clients on the same machine: the processes at the other ends of its TCP connections. Reports
//! whether one of them has no processor time left.
//!
//! A load generator with a thread that needs a processor all the time sends as fast as it can, however fast the answers
//! are. A server cannot tell this from a load at a fixed rate, but the kernel's accounting can. Processes on other
//! machines, of other users or in other containers are not visible; the report then names none.

use std::collections::{HashMap, HashSet};
use std::fs::{read_dir, read_link, read_to_string};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum lines read of the kernel's tables, links of open files, and peer processes. Reading as many takes some tens
/// of milliseconds.
const LINES_MAX: usize = 20_000;
const LINKS_MAX: usize = 50_000;
const PEERS_MAX: usize = 8;
/// Minimum time between two readings: the kernel counts in ticks.
const TIME_MIN: Duration = Duration::from_millis(500);

/// A process at the other end of connections, and the use of its busiest thread.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerProcess {
    /// Its command name.
    pub name: String,
    /// Its process id.
    pub process: u32,
    /// Fraction of the time, from 0 to 1, in which its busiest thread had a processor or was waiting for one.
    pub busy: f64,
}

/// The peers found, and the processor times of their threads at that time.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    found: Option<(Instant, Vec<Threads>)>,
}

#[derive(Debug)]
struct Threads {
    process: u32,
    /// By thread id: the time so far in which the thread had a processor or was waiting for one, nanoseconds.
    wanted: HashMap<u32, u64>,
}

impl Peers {
    /// Returns the busiest peer since the first call that found any. The first call searches for peers, and returns
    /// `None`.
    pub(crate) fn look(&mut self) -> Option<PeerProcess> {
        // Measure against the first look, so that a short burst counts for little.
        let Some((began, peers)) = &self.found else {
            let peers: Vec<Threads> = processes().into_iter().map(Threads::of).collect();
            if !peers.is_empty() {
                self.found = Some((Instant::now(), peers));
            }
            return None;
        };
        let passed = began.elapsed();
        if passed < TIME_MIN {
            return None;
        }
        let busiest = peers.iter().filter_map(|before| {
            let now = Threads::of(before.process);
            // Threads that started since then have no earlier value, and are skipped.
            let most =
                now.wanted.iter().filter_map(|(thread, now)| now.checked_sub(*before.wanted.get(thread)?)).max()?;
            Some((before.process, most))
        });
        let (process, most) = busiest.max_by_key(|&(_, most)| most)?;
        let name = read_to_string(format!("/proc/{process}/comm")).ok()?.trim_end().to_owned();
        Some(PeerProcess { name, process, busy: (most as f64 / passed.as_nanos() as f64).min(1.0) })
    }
}

impl Threads {
    fn of(process: u32) -> Self {
        let threads = numbers(&format!("/proc/{process}/task"));
        let wanted = threads.filter_map(|thread| {
            // proc(5), schedstat: time on a processor, time waiting for one, number of time slices.
            let text = read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
            let mut times = text.split_ascii_whitespace().map(str::parse::<u64>);
            Some((thread, times.next()?.ok()? + times.next()?.ok()?))
        });
        Self { process, wanted: wanted.collect() }
    }
}

/// Returns the entries of a directory whose names are numbers.
fn numbers(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the inode numbers of a process's open sockets; empty without permission. Reads at most `links` links, and
/// counts them down.
fn sockets(process: &str, links: &mut usize) -> HashSet<u64> {
    let mut found = HashSet::new();
    for entry in read_dir(Path::new("/proc").join(process).join("fd")).into_iter().flatten().flatten() {
        if *links == 0 {
            break;
        }
        *links -= 1;
        // Sockets are links of the form `socket:[inode]`.
        let link = read_link(entry.path()).unwrap_or_default();
        let number: Option<u64> =
            link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        found.extend(number);
    }
    found
}

/// Returns the ids of other processes that hold the other end of one of this process's connections.
fn processes() -> Vec<u32> {
    // One budget for all processes: a machine may have many with many open files.
    let mut links = LINKS_MAX;
    let own = sockets("self", &mut links);
    let mut ends: HashMap<(SocketAddr, SocketAddr), u64> = HashMap::new();
    // The tables of this network namespace, with the connections of all its processes.
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = read_to_string(table).unwrap_or_default();
        ends.extend(text.lines().skip(1).take(LINES_MAX).filter_map(connection));
    }
    // A local connection is in the table twice, once from each end. The peer's socket is the one with the ends swapped.
    let opposite = |(&(local, remote), number): (&(SocketAddr, SocketAddr), &u64)| {
        let other = own.contains(number).then(|| ends.get(&(remote, local))).flatten()?;
        (!own.contains(other)).then_some(*other)
    };
    let wanted: HashSet<u64> = ends.iter().filter_map(opposite).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let is_peer = |process: &u32| {
        *process != std::process::id() && !sockets(&process.to_string(), &mut links).is_disjoint(&wanted)
    };
    numbers("/proc").filter(is_peer).take(PEERS_MAX).collect()
}

/// Parses a line of `/proc/net/tcp` (proc(5)): the two ends of an established connection, and its socket's inode
/// number.
fn connection(line: &str) -> Option<((SocketAddr, SocketAddr), u64)> {
    /// TCP_ESTABLISHED, in hexadecimal.
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, state, .., number] = *fields.get(..10)? else { return None };
    let number: u64 = number.parse().ok().filter(|number| *number != 0)?;
    (state == ESTABLISHED).then_some(((address(local)?, address(remote)?), number))
}

/// Parses an address: `0100007F:1F90` is 127.0.0.1:8080, in words in native byte order. Maps an IPv4-mapped IPv6
/// address to IPv4.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Each group of eight digits is a native-endian word of the network-order address.
    let word = |at: usize| Some(u32::from_str_radix(host.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let host = match host.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines with the columns of proc(5), as written on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn connections_are_parsed_in_the_format_of_the_kernel() {
        let head = "0:";
        let tail = "00000000:00000000 00:00000000 00000000  1000        0";
        for (why, line, want) in [
            (
                "IPv4",
                format!("{head} 0100007F:1F90 0100007F:C350 01 {tail} 4711 1 0"),
                Some(("127.0.0.1:8080", "127.0.0.1:50000", 4711)),
            ),
            (
                "IPv4 on a socket of IPv6",
                format!(
                    "{head} 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C350 01 {tail} 7 1"
                ),
                Some(("127.0.0.1:8080", "127.0.0.1:50000", 7)),
            ),
            (
                "IPv6",
                format!(
                    "{head} 00000000000000000000000001000000:1F90 00000000000000000000000001000000:C350 01 {tail} 7 1"
                ),
                Some(("[::1]:8080", "[::1]:50000", 7)),
            ),
            ("it listens", format!("{head} 0100007F:1F90 00000000:0000 0A {tail} 4711 1 0"), None),
            ("no socket", format!("{head} 0100007F:1F90 0100007F:C350 01 {tail} 0 1 0"), None),
            ("cut off", format!("{head} 0100007F:1F90 0100007F:C350 01"), None),
            ("no number", format!("{head} 0100007F:XXXX 0100007F:C350 01 {tail} 4711 1 0"), None),
            ("a short address", format!("{head} 0100:1F90 0100007F:C350 01 {tail} 4711 1 0"), None),
            ("nothing", String::new(), None),
        ] {
            let got = connection(&line).map(|((a, b), number)| (a.to_string(), b.to_string(), number));
            assert_eq!(got, want.map(|(a, b, number)| (a.to_owned(), b.to_owned(), number)), "{why}");
        }
    }

    /// Finds a child process that connects to this one, and reads its threads' times.
    #[test]
    fn the_process_at_the_other_end_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; exec sleep 60");
        let Ok(mut child) = std::process::Command::new("bash").args(["-c", &script]).spawn() else {
            eprintln!("skipped: there is no bash here");
            return;
        };
        let (_connection, _) = listener.accept().unwrap();
        let found = processes();
        let threads = Threads::of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?} without {}", child.id());
        assert!(threads.wanted.contains_key(&child.id()), "{threads:?}");
    }
}
