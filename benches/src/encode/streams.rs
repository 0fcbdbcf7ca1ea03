//! The memory of responses that are being compressed: clients that request a long text and then do not read it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Socket, Type};

use super::servers::{Coder, EncodedPeer};
use super::{CODINGS, MEMORY};
use crate::load::idle::raise_descriptors;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::request;
use crate::sample::resident;
use crate::server::{Cores, PeerServer};
use crate::side_by_side::skip;
use crate::workshop::Workshop;

/// The long text.
pub const FILE: &str = "long.txt";
/// Its length in bytes: more than the kernel's buffers hold when compressed.
pub const FILE_BYTES: usize = 32 << 20;
/// Streams that are begun and dropped before the first reading, so that lazily created structures exist.
const WARM: usize = 20;
/// The clients' receive buffer in bytes: the smallest that the kernel permits is about half of it.
const RECEIVE_BYTES: usize = 4096;
/// The segments of the connections, as in an Ethernet. With those of the loopback device, the kernel's send buffers
/// would hold megabytes for each connection, and all of that would be compressed first.
const SEGMENT_BYTES: u32 = 1400;

/// Measures each server with each coding that it has.
pub(super) fn table(shop: &mut Workshop, progress: &Progress, count: usize, directory: &Path) -> Result<Table> {
    raise_descriptors(count as u64 + 2000)?;
    let mut rows = Vec::new();
    for coding in CODINGS {
        for coder in [Coder::Causeway].into_iter().chain(Coder::peers(coding)) {
            if coder == Coder::NginxLevel5 {
                continue;
            }
            let name = format!("{} {coding}", coder.name());
            progress.at(&format!("{MEMORY}: {name}"));
            let measured =
                EncodedPeer::start(shop, coder, coding, directory).and_then(|peer| held(&peer.server, coding, count));
            match measured {
                Ok(held) => rows.push(row(&name, count, &held)),
                Err(error) => skip(shop, &format!("{name} in {MEMORY}"), &error),
            }
        }
    }
    ensure!(!rows.is_empty(), "no server was measured");
    Ok(Table {
        name: MEMORY.to_owned(),
        title: format!("Memory of {count} responses that are being compressed"),
        how: format!(
            "Growth of resident memory while {count} clients have requested a text of {} MiB and read only the head of the response. The kernel's socket \
             memory is not included. Causeway compresses only as many responses as its bound on the encoders' memory permits; the others are sent \
             without a coding. The figure is per compressed response.",
            FILE_BYTES >> 20
        ),
        chart: Some(Chart { bars: vec!["per compressed response".to_owned()], label: None }),
        rows,
    })
}

/// Resident bytes before and with the streams, and the number of compressed ones.
struct Held {
    before: u64,
    after: u64,
    coded: usize,
}

fn row(name: &str, count: usize, held: &Held) -> Row {
    let mut row = Row::new(name);
    let grown = held.after as f64 - held.before as f64;
    let mib = f64::from(1 << 20);
    row.metrics.push(Metric::count("per compressed response", "KiB", vec![grown / held.coded.max(1) as f64 / 1024.0]));
    row.metrics.push(Metric::count("compressed", "", vec![held.coded as f64]));
    row.metrics.push(Metric::count("before", "MiB", vec![held.before as f64 / mib]));
    row.metrics.push(Metric::count("with all", "MiB", vec![held.after as f64 / mib]));
    if held.coded < count {
        row.notes.push(format!("{} of {count} responses were sent without a coding", count - held.coded));
    }
    row
}

fn held(server: &PeerServer, coding: &str, count: usize) -> Result<Held> {
    hold(server, coding, WARM, |_| Ok(()))?;
    std::thread::sleep(Duration::from_millis(500));
    let before = resident(&server.processes)?;
    hold(server, coding, count, |coded| {
        std::thread::sleep(Duration::from_secs(1));
        Ok(Held { before, after: resident(&server.processes)?, coded })
    })
}

/// Runs `look` with the number of compressed responses while `count` streams are open.
fn hold<T>(server: &PeerServer, coding: &str, count: usize, look: impl FnOnce(usize) -> Result<T>) -> Result<T> {
    let mut command = Cores::One(1).command();
    command.arg(std::env::current_exe()?).arg("streams");
    command.args([server.address.to_string(), coding.to_owned(), count.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().context("a piped output")?).read_line(&mut said)?;
    let looked = match said.trim().parse() {
        Ok(coded) => look(coded),
        Err(_) => {
            let mut errors = String::new();
            if let Some(mut output) = child.stderr.take() {
                output.read_to_string(&mut errors)?;
            }
            Err(anyhow::anyhow!("beginning the streams: {}", errors.trim()))
        }
    };
    drop(child.stdin.take());
    child.wait()?;
    looked
}

/// `bench streams`: requests the long text on `count` connections, prints how many responses are compressed, and holds
/// the connections until its standard input ends.
pub fn run(address: SocketAddr, coding: &str, count: usize) -> Result<()> {
    raise_descriptors(count as u64 + 256)?;
    let minimal = request::minimal(&format!("/{FILE}"));
    let request = minimal.replacen("\r\n\r\n", &format!("\r\nAccept-Encoding: {coding}\r\n\r\n"), 1);
    let mut held = Vec::with_capacity(count);
    let mut coded = 0;
    for index in 0..count {
        let mut stream = connect(address).with_context(|| format!("connection {index}"))?;
        stream.write_all(request.as_bytes())?;
        let head = read_head(&mut stream).with_context(|| format!("connection {index}"))?;
        coded += usize::from(head.contains(&format!("\r\ncontent-encoding: {coding}\r\n")));
        held.push(stream);
    }
    println!("{coded}");
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Before the connection begins, so that the announced window is small from the start.
    socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    socket.set_tcp_mss(SEGMENT_BYTES)?;
    socket.connect_timeout(&address.into(), Duration::from_secs(10))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

/// Reads the head, in lower case, and as few bytes of the content as possible.
fn read_head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte)? {
            0 => bail!("closed by the server"),
            _ => head.push(byte[0]),
        }
        ensure!(head.len() < 8192, "a head of more than 8 KiB");
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200 "), "unexpected response: {head:?}");
    Ok(head)
}
