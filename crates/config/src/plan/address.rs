//! Caddy's network addresses: `[network/]host:port`, where the port may be a range, and `unix/path`.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use causeway_pipeline::{Build, BuildError, ListenAddress, ListeningSocket, UnixAddress};

const EXPECTED: &str = "[tcp/]host:port or [tcp/]host:first-last";

/// Parses the addresses of a `listen` list. Each element of the result is one written address with its port range
/// expanded; it is empty for a datagram socket (`fdgram/N`), which only HTTP/3 could use.
pub(super) fn parse_each(written: &[String], build: &mut Build<'_>) -> Result<Vec<Vec<ListeningSocket>>, BuildError> {
    let mut addresses = Vec::with_capacity(written.len());
    for (index, text) in written.iter().enumerate() {
        addresses.push(build.at(format!("[{index}]"), |build| read(text, build))?);
    }
    Ok(addresses)
}

/// Parses one address: of TCP, of a Unix socket, or the number of an inherited socket. Placeholders that are constant
/// while a configuration runs, such as `{env.NAME}`, are replaced first, as in Caddy.
pub(super) fn read(text: &str, build: &mut Build<'_>) -> Result<Vec<ListeningSocket>, BuildError> {
    if let Some(placeholder) = empty_placeholder(text, build) {
        // The word of a Caddyfile is without the port of its site.
        let written = match text.rsplit_once(':') {
            Some((host, port)) if port.starts_with(|first: char| first.is_ascii_digit()) => host,
            _ => text,
        };
        return Err(build.refuse(written, format!("an address: the evaluated placeholder {placeholder} is empty")));
    }
    let text = &build.expand_constants(text);
    let (network, number) = split_network(text);
    match &*network {
        "unix" => return Ok(vec![unix(number).map_err(|expected| build.refuse(&**text, expected))?.into()]),
        "unixgram" | "unixpacket" => {
            return Err(build.refuse(&**text, "unix/PATH: HTTP needs a Unix socket of streams"));
        }
        "fd" | "fdgram" => {}
        "" | "tcp" | "tcp4" | "tcp6" => {
            let addresses = ports(number, text, build)?;
            return Ok(addresses.into_iter().map(ListeningSocket::Bound).collect());
        }
        _ => return Err(build.refuse(&**text, "tcp, unix or fd: other networks are not supported (docs/refused.md)")),
    }
    let expected = "fd/N or fdgram/N, where N is the number of an inherited socket, such as fd/3";
    let descriptor: u16 = decimal(number).ok_or_else(|| build.refuse(&**text, expected))?;
    Ok(if network == "fd" { vec![ListeningSocket::Descriptor(descriptor.into())] } else { Vec::new() })
}

/// Splits an address into its network, in lower case and without blanks as in Caddy (`SplitNetworkAddress`), and the
/// rest. The network is empty if the address has none.
fn split_network(text: &str) -> (String, &str) {
    text.split_once('/').map_or((String::new(), text), |(network, rest)| (network.trim().to_lowercase(), rest))
}

/// Whether the address is that of an inherited datagram socket (`fdgram/N`).
pub(super) fn is_for_datagrams(text: &str) -> bool {
    split_network(text).0 == "fdgram"
}

/// Returns the first placeholder that is known at load and empty. It would silently change the address, or a site's
/// name: an empty host means all interfaces.
pub(super) fn empty_placeholder<'t>(text: &'t str, build: &mut Build<'_>) -> Option<&'t str> {
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let end = start + rest[start..].find('}')? + 1;
        if build.expand_constants(&rest[start..end]).is_empty() {
            return Some(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    None
}

/// Parses the part of a Unix socket's address after `unix/`: a path with or without `|` and octal permission bits.
///
/// # Errors
/// The expected text.
fn unix(text: &str) -> Result<UnixAddress, String> {
    let (path, mode) = match text.split_once('|') {
        None => (text, UnixAddress::MODE),
        Some((path, bits)) => {
            let mode = u32::from_str_radix(bits, 8).ok().filter(|mode| *mode <= 0o777 && !bits.starts_with('+'));
            let mode = mode.ok_or("octal permission bits after the |, such as 0660, at most 0777")?;
            // As in Caddy: without this bit not even the owner could connect.
            if mode & 0o200 == 0 {
                return Err(format!("permission bits that let the owner write, such as 0{:o}", mode | 0o200));
            }
            (path, mode)
        }
    };
    // In the abstract namespace the `@` stands for a NUL.
    if path.is_empty() || path == "@" || path.contains('\0') {
        return Err("unix/PATH, such as unix//run/site.sock, or unix/@NAME".to_owned());
    }
    if path.len() > UnixAddress::BYTES_MAX {
        return Err(format!("a path of at most {} bytes, which is the limit for Unix sockets", UnixAddress::BYTES_MAX));
    }
    Ok(UnixAddress { path: path.into(), mode })
}

/// Parses the part of a TCP address after its network, and expands its port range. `text` is the whole address, for
/// messages.
fn ports(rest: &str, text: &str, build: &Build<'_>) -> Result<Vec<ListenAddress>, BuildError> {
    let bad = || build.refuse(text, EXPECTED);
    let (host, ports) = rest.rsplit_once(':').ok_or_else(bad)?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = (decimal(first).ok_or_else(bad)?, decimal(last).ok_or_else(bad)?);
    if last < first {
        return Err(bad());
    }
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = match host {
        "" => ListenAddress { host: None, port: first, zone: 0 },
        _ => resolve(host).ok_or_else(|| unknown(host, build))?.into(),
    };
    Ok((first..=last).map(|port| ListenAddress { port, ..address }).collect())
}

/// Parses a number of decimal digits. As Go's `ParseUint`, and unlike `str::parse`, it permits no sign.
pub(super) fn decimal<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn unknown(host: &str, build: &Build<'_>) -> BuildError {
    build.refuse(host, "an IP address, or a name that resolves to one of this machine")
}

/// Parses an IP address or resolves a name, in which case it returns the first IPv4 address or else the first of any
/// kind, as Go does; without a port. An IPv6 address may have its zone, as in `fe80::1%eth0`. Blocks on name
/// resolution.
fn resolve(host: &str) -> Option<SocketAddr> {
    if let Ok(address) = host.parse() {
        return Some(SocketAddr::new(address, 0));
    }
    // RFC 6761 §6.3: the name is the loopback address, also on a machine without /etc/hosts, such as a bare container.
    if host.eq_ignore_ascii_case("localhost") {
        return Some((Ipv4Addr::LOCALHOST, 0).into());
    }
    let addresses: Vec<SocketAddr> = (host, 0).to_socket_addrs().ok()?.collect();
    addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied()
}
