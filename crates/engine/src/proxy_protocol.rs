//! The PROXY protocol (haproxy.org, proxy-protocol.txt), versions 1 and 2: the addresses that a proxy reports.
//!
//! - [`parse`], [`encode`]: headers, without I/O
//! - [`read`]: reads the header at the start of a connection

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use causeway_pipeline::{ProxyHeader, ProxyProtocolVersion};
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The longest header of version 1 (§2.1).
const TEXT_BYTES_MAX: usize = 107;
/// The longest header of version 2 that is read. The addresses take 52 bytes, the extensions (TLV) the rest.
const BINARY_BYTES_MAX: usize = 4096;
const TEXT_START: &[u8; 6] = b"PROXY ";
const BINARY_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The fixed part of version 2: signature, version and command, family, length.
const BINARY_FIXED: usize = 16;

/// The start of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// More bytes are needed to know.
    Incomplete,
    /// There is no header.
    Absent,
    /// A header of this length in bytes.
    Header {
        len: usize,
        /// Source and destination; `None` if the proxy connects on its own behalf or does not know them.
        ends: Option<(SocketAddr, SocketAddr)>,
    },
    /// A header that violates the protocol.
    Malformed,
}

/// Parses the start of a connection.
pub(crate) fn parse(bytes: &[u8]) -> Start {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
    if begins(BINARY_START) {
        return if bytes.len() < BINARY_FIXED { Start::Incomplete } else { parse_binary(bytes) };
    }
    if begins(TEXT_START) {
        return if bytes.len() < TEXT_START.len() { Start::Incomplete } else { parse_text(bytes) };
    }
    Start::Absent
}

/// Version 1, §2.1: `PROXY TCP4 SOURCE DESTINATION PORT PORT` CRLF.
fn parse_text(bytes: &[u8]) -> Start {
    let within = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < TEXT_BYTES_MAX { Start::Incomplete } else { Start::Malformed };
    };
    let Ok(line) = std::str::from_utf8(&bytes[TEXT_START.len()..end]) else { return Start::Malformed };
    let len = end + 2;
    let mut words = line.split(' ');
    let family = words.next().unwrap_or_default();
    // The text after UNKNOWN has no meaning.
    if family == "UNKNOWN" {
        return Start::Header { len, ends: None };
    }
    let ends = (|| {
        let mut ip = || words.next()?.parse::<IpAddr>().ok();
        let (source, destination) = (ip()?, ip()?);
        let mut port = || {
            let text = words.next()?;
            // A sign, or zeroes in front, are no decimal number of the protocol.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
            text.parse::<u16>().ok().filter(|_| is_plain)
        };
        let ends = (SocketAddr::new(source, port()?), SocketAddr::new(destination, port()?));
        let is_family = match family {
            "TCP4" => source.is_ipv4() && destination.is_ipv4(),
            "TCP6" => source.is_ipv6() && destination.is_ipv6(),
            _ => false,
        };
        (is_family && words.next().is_none()).then_some(ends)
    })();
    ends.map_or(Start::Malformed, |ends| Start::Header { len, ends: Some(ends) })
}

/// Version 2, §2.2; the fixed part is there.
fn parse_binary(bytes: &[u8]) -> Start {
    let (version, command, family) = (bytes[12] >> 4, bytes[12] & 15, bytes[13]);
    let len = BINARY_FIXED + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if version != 2 || command > 1 || len > BINARY_BYTES_MAX {
        return Start::Malformed;
    }
    let Some(content) = bytes.get(BINARY_FIXED..len) else { return Start::Incomplete };
    let port = |at: usize| u16::from_be_bytes([content[at], content[at + 1]]);
    // LOCAL: the proxy connects on its own behalf, and the addresses are to be ignored.
    let ends = match (command, family) {
        (0, _) => None,
        (_, 0x11) if content.len() >= 12 => {
            let ip = |at: usize| {
                let octets: [u8; 4] = content[at..at + 4].try_into().expect("4 bytes");
                IpAddr::from(octets)
            };
            Some((SocketAddr::new(ip(0), port(8)), SocketAddr::new(ip(4), port(10))))
        }
        (_, 0x21) if content.len() >= 36 => {
            let ip = |at: usize| {
                let octets: [u8; 16] = content[at..at + 16].try_into().expect("16 bytes");
                IpAddr::from(octets)
            };
            Some((SocketAddr::new(ip(0), port(32)), SocketAddr::new(ip(16), port(34))))
        }
        (_, 0x11 | 0x21) => return Start::Malformed,
        // §2.2: other families are accepted, and the connection's own addresses are used.
        _ => None,
    };
    Start::Header { len, ends }
}

/// Encodes the header for an upstream. As in Caddy, the destination is unknown, and the source has no port.
pub(crate) fn encode(header: ProxyHeader) -> Vec<u8> {
    let mut out = Vec::with_capacity(BINARY_FIXED + 36);
    let source = header.source.map(|ip| ip.to_canonical());
    match (header.version, source) {
        // Writing to a vector cannot fail.
        (ProxyProtocolVersion::One, None) => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        (ProxyProtocolVersion::One, Some(ip)) => {
            let (family, any) = if ip.is_ipv4() { ("TCP4", "0.0.0.0") } else { ("TCP6", "::") };
            let _ = write!(out, "PROXY {family} {ip} {any} 0 0\r\n");
        }
        (ProxyProtocolVersion::Two, source) => {
            out.extend_from_slice(BINARY_START);
            match source {
                None => out.extend_from_slice(&[0x20, 0, 0, 0]),
                Some(IpAddr::V4(ip)) => {
                    out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                    out.extend_from_slice(&ip.octets());
                    out.extend_from_slice(&Ipv4Addr::UNSPECIFIED.octets());
                    out.extend_from_slice(&[0; 4]);
                }
                Some(IpAddr::V6(ip)) => {
                    out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                    out.extend_from_slice(&ip.octets());
                    out.extend_from_slice(&Ipv6Addr::UNSPECIFIED.octets());
                    out.extend_from_slice(&[0; 4]);
                }
            }
        }
    }
    out
}

/// Waits for the header at the start of a connection and reads it; the bytes after it stay in the socket.
/// [`Start::Incomplete`] is an end within the header.
pub(crate) async fn read(stream: &TcpStream) -> io::Result<Start> {
    let mut bytes = vec![0; BINARY_BYTES_MAX];
    loop {
        let readiness = stream.ready(Interest::READABLE).await?;
        let peeked = stream.try_io(Interest::READABLE, || {
            let len = recv(stream, &mut *bytes, RecvFlags::PEEK)?.0;
            match parse(&bytes[..len]) {
                // Clears the readiness: further bytes are a new event of the edge-triggered reactor. After the peer's
                // end none follow.
                Start::Incomplete if len > 0 && !readiness.is_read_closed() => Err(io::ErrorKind::WouldBlock.into()),
                start => Ok(start),
            }
        });
        let start = match peeked {
            Ok(start) => start,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        if let Start::Header { len, .. } = start {
            // The bytes are in the socket, so one call takes them all.
            let taken =
                stream.try_io(Interest::READABLE, || Ok(recv(stream, &mut bytes[..len], RecvFlags::empty())?.0))?;
            if taken != len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        return Ok(start);
    }
}

#[cfg(test)]
mod tests;
