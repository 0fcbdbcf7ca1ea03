//! `bench idle`: opens many connections, sends one request on each, and holds them until its standard input ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Socket, Type};

use super::frames;
use super::scan::{Scan, Scanner};
use crate::request;

/// Connections per source address, well below the number of ephemeral ports.
const PER_SOURCE_MAX: usize = 5_000;
/// Requests in flight.
const BATCH: usize = 100;

/// The protocol of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, with prior knowledge.
    Http2,
}

impl Version {
    /// Returns a browser-like request, the first of its connection.
    fn request(self, path: &str) -> Vec<u8> {
        match self {
            Self::Http1 => request::browser(path).into_bytes(),
            Self::Http2 => frames::first_request(path),
        }
    }

    fn answered(self, stream: &mut TcpStream) -> Result<()> {
        match self {
            Self::Http1 => answered(stream),
            Self::Http2 => {
                let content = frames::answered(stream)?;
                ensure!(
                    content == answer::BODY.as_bytes(),
                    "unexpected response: {:?}",
                    String::from_utf8_lossy(&content)
                );
                Ok(())
            }
        }
    }
}

/// Opens `count` connections to `address`, requests `path` on each, prints `ready`, and holds them.
pub fn run(address: SocketAddr, path: &str, count: usize, version: Version) -> Result<()> {
    let request = version.request(path);
    raise_descriptors(count as u64 + 256)?;
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let batch = held.len()..count.min(held.len() + BATCH);
        let first = held.len();
        for index in batch {
            let mut stream = connect(address, index).with_context(|| format!("connection {index}"))?;
            stream.write_all(&request)?;
            held.push(stream);
        }
        for (index, stream) in held.iter_mut().enumerate().skip(first) {
            version.answered(stream).with_context(|| format!("connection {index}"))?;
        }
    }
    println!("ready");
    std::io::stdout().flush()?;
    // Hold them until the runner closes our input.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn connect(address: SocketAddr, index: usize) -> Result<TcpStream> {
    let source = Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(index / PER_SOURCE_MAX)?);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect_timeout(&address.into(), Duration::from_secs(10))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

fn answered(stream: &mut TcpStream) -> Result<()> {
    let mut response = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes)? {
            0 => bail!("closed by the server"),
            read => response.extend_from_slice(&bytes[..read]),
        }
        match Scanner::default().scan(&response) {
            Scan::Whole(length) if length == response.len() => return Ok(()),
            Scan::Whole(_) => bail!("more than one answer"),
            Scan::Partial => {}
            Scan::Wrong => bail!("unexpected response: {:?}", String::from_utf8_lossy(&response)),
        }
    }
}

/// Raises this process's descriptor limit to at least `count`, above the hard limit if permitted.
pub fn raise_descriptors(count: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let maximum = now.maximum.map(|maximum| maximum.max(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })
        .with_context(|| format!("raising the descriptor limit to {count}: run `ulimit -n {count}` first"))
}
