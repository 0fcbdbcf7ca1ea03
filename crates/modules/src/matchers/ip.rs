//! `remote_ip` and `client_ip`: the peer's or the client's address must be in one of the listed networks.

use std::net::{IpAddr, SocketAddr};

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IpRangesConfig {
    #[serde(default)]
    ranges: Vec<String>,
}

struct RemoteIp(Ranges);

struct ClientIp {
    ranges: Ranges,
    /// The variable by which a handler may override the client's address.
    told: VarId,
}

/// Compiles `remote_ip`, which matches the address of the connection's peer.
///
/// # Errors
/// If a range is not valid.
pub fn make_remote(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    Ok(Box::new(RemoteIp(Ranges::parse(value, build)?)))
}

/// Compiles `client_ip`, which matches the client's address as trusted proxies report it.
///
/// # Errors
/// If a range is not valid.
pub fn make_client(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    Ok(Box::new(ClientIp { ranges: Ranges::parse(value, build)?, told: build.allocate_variable("client_ip") }))
}

impl Matcher for RemoteIp {
    fn matches(&self, cx: &mut Context) -> Matched {
        // As in Caddy, no range contains the peer of a Unix socket.
        let peer = cx.arrival().ends.peer();
        Ok(peer.is_some_and(|peer| self.0.contain(peer.ip().to_canonical(), zone(peer))))
    }
}

impl Matcher for ClientIp {
    fn matches(&self, cx: &mut Context) -> Matched {
        if let Some(told) = cx.variable(self.told) {
            let told = std::str::from_utf8(told).unwrap_or_default();
            // The variable may include a port.
            let ip = told.parse::<IpAddr>().or_else(|_| told.parse::<SocketAddr>().map(|address| address.ip()));
            return Ok(ip.is_ok_and(|ip| self.ranges.contain(ip.to_canonical(), 0)));
        }
        let (client, peer) = (cx.client(), cx.arrival().ends.peer());
        let Some(ip) = client.ip else { return Ok(false) };
        // A zone belongs to this machine's interfaces, so only to the peer's own address.
        let zone = peer.filter(|peer| peer.ip() == ip).map_or(0, zone);
        Ok(self.ranges.contain(ip, zone))
    }
}

/// Returns the interface index of a link-local address; 0 for other addresses.
fn zone(peer: SocketAddr) -> u32 {
    match peer {
        SocketAddr::V6(peer) => peer.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Networks, sorted for a binary search among thousands.
struct Ranges {
    /// First and last address of each range, sorted and disjoint.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
    /// Networks that apply to one interface only.
    zoned: Box<[(IpNet, u32)]>,
}

impl Ranges {
    fn parse(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: IpRangesConfig = build.parse(value)?;
        let (mut v4, mut v6, mut zoned) = (Vec::new(), Vec::new(), Vec::new());
        for (index, range) in written.ranges.iter().enumerate() {
            let (network, zone) = build.at(format!("ranges[{index}]"), |build| parse(range, build))?;
            match (zone, network) {
                (Some(zone), network) => zoned.push((network, zone)),
                (None, IpNet::V4(network)) => v4.push((network.network().to_bits(), network.broadcast().to_bits())),
                (None, IpNet::V6(network)) => v6.push((network.network().to_bits(), network.broadcast().to_bits())),
            }
        }
        Ok(Self { v4: joined(v4), v6: joined(v6), zoned: zoned.into() })
    }

    fn contain(&self, ip: IpAddr, zone: u32) -> bool {
        let plain = match ip {
            IpAddr::V4(ip) => is_in(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => is_in(&self.v6, ip.to_bits()),
        };
        plain || self.zoned.iter().any(|(network, of)| *of == zone && network.contains(&ip))
    }
}

/// Parses `address[/bits][%zone]` after expanding placeholders that are known at load.
fn parse(range: &str, build: &mut Build<'_>) -> Result<(IpNet, Option<u32>), BuildError> {
    const EXPECTED: &str = "an IP address, or a network such as 192.168.0.0/16 or fd00::/8";
    let template = build.template(range);
    let Some(text) = template.literal() else {
        return Err(build.refuse(range, "a range without placeholders that depend on the request"));
    };
    let (network, zone) = match text.split_once('%') {
        Some((network, zone)) => (network, Some(zone)),
        None => (text, None),
    };
    let network = network.parse::<IpNet>().or_else(|_| network.parse::<IpAddr>().map(IpNet::from));
    let Ok(network) = network else { return Err(build.refuse(text, EXPECTED)) };
    let zone = match zone {
        None | Some("") => None,
        Some(zone) => match interface(zone) {
            Some(number) => Some(number),
            None => return Err(build.refuse(text, "a zone that names a network interface of this machine")),
        },
    };
    Ok((network, zone))
}

/// Returns the index of a network interface, given by its name or already as a number.
fn interface(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    // The name becomes part of a path below: it must not lead elsewhere.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?.trim().parse().ok()
}

/// Sorts the ranges and merges overlapping ones.
fn joined<A: Copy + Ord>(mut ranges: Vec<(A, A)>) -> Box<[(A, A)]> {
    ranges.sort_unstable();
    ranges.dedup_by(|later, kept| {
        let overlap = later.0 <= kept.1;
        if overlap {
            kept.1 = kept.1.max(later.1);
        }
        overlap
    });
    ranges.into()
}

fn is_in<A: Copy + Ord>(ranges: &[(A, A)], address: A) -> bool {
    let upper = ranges.partition_point(|(first, _)| *first <= address);
    upper.checked_sub(1).is_some_and(|at| address <= ranges[at].1)
}
