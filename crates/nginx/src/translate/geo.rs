//! `geo`: a variable whose value depends on the client's network, as `vars` with matchers `remote_ip` or `client_ip`.
//!
//! The longest network that contains an address decides. The lines `vars` run from the shortest networks to the
//! longest, so that the last one that matches sets the value.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Translator;
use crate::parse::Directive;
use crate::variables::{escaped, variable};
use crate::write::quote_scalar;

/// A network: its first address, and the number of bits that its addresses have in common.
type Network = (IpAddr, u8);

/// A `geo` that has an equivalent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Geo<'a> {
    /// Without `$`.
    pub(super) variable: &'a str,
    default: &'a str,
    values: BTreeMap<Network, &'a str>,
}

impl<'a> Geo<'a> {
    /// Reads the block, or returns the directive and the reason why it has no equivalent as a whole.
    pub(super) fn of(geo: &'a Directive) -> Result<Self, (&'a Directive, String)> {
        let refused = |directive: &'a Directive, reason: &str| Err((directive, reason.to_owned()));
        let variable = match &*geo.arguments {
            [variable] => variable,
            [address, variable] if address == "$remote_addr" => variable,
            _ => return refused(geo, "only the client's own address is compared; write matchers `client_ip`"),
        };
        let mut read = Self { variable: variable.trim_start_matches('$'), default: "", values: BTreeMap::new() };
        let is_ranges = geo.block().iter().any(|d| d.name == "ranges");
        let mut ranges: BTreeMap<u32, (u32, &'a str)> = BTreeMap::new();
        for entry in geo.block() {
            let text = entry.argument(0);
            match &*entry.name {
                "#" | "ranges" | "volatile" => {}
                "default" => read.default = text,
                "proxy" | "proxy_recursive" => {
                    let reason = "X-Forwarded-For of these proxies decides; write the global option \
                                  `servers { trusted_proxies … }` and matchers `client_ip`";
                    return refused(entry, reason);
                }
                "delete" if is_ranges => return refused(entry, "only networks are removed, no ranges"),
                "delete" => match network(text) {
                    Some(network) => _ = read.values.remove(&network),
                    None => return refused(entry, "found no network"),
                },
                range if is_ranges => {
                    let Some((first, last)) = range_of(range) else {
                        return refused(entry, "found no range of IPv4 addresses");
                    };
                    let before = ranges.range(..=last).next_back();
                    if before.is_some_and(|(_, (end, _))| *end >= first) {
                        return refused(
                            entry,
                            "this range overlaps an earlier one; write ranges without common addresses",
                        );
                    }
                    ranges.insert(first, (last, text));
                }
                name => match network(name) {
                    Some(network) => _ = read.values.insert(network, text),
                    None => return refused(entry, "found no network"),
                },
            }
        }
        for (first, (last, text)) in ranges {
            read.values.extend(networks(first, last).into_iter().map(|network| (network, text)));
        }
        if let Some(all) = read.values.remove(&(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)) {
            if read.values.remove(&(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)).is_some_and(|other| other != all) {
                return refused(geo, "0.0.0.0/0 and ::/0 have different values");
            }
            read.default = all;
        }
        Ok(read)
    }
}

impl Translator<'_> {
    /// Sets a variable: its matchers go to `out`, its lines `vars` to `route`.
    pub(super) fn write_geo(&mut self, out: &mut Vec<String>, route: &mut Vec<String>, geo: &Geo<'_>) {
        let word = |text: &str| quote_scalar(&escaped(text));
        let variable = variable(geo.variable);
        route.push(format!("vars {variable} {}", word(geo.default)));
        let mut groups: BTreeMap<(u8, &str), Vec<String>> = BTreeMap::new();
        for ((address, bits), text) in &geo.values {
            groups.entry((*bits, text)).or_default().push(format!("{address}/{bits}"));
        }
        for ((_, text), networks) in groups {
            let name = self.fresh(geo.variable);
            out.push(format!("@{name} {} {}", self.address_matcher(), networks.join(" ")));
            route.push(format!("vars @{name} {variable} {}", word(text)));
        }
    }
}

/// Parses an address or a network; bits beyond its length do not count, as in nginx.
fn network(text: &str) -> Option<Network> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most)?;
    let first = match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(u32::from(most - bits)).unwrap_or(0)).into()),
        IpAddr::V6(v6) => {
            IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(u32::from(most - bits)).unwrap_or(0)).into())
        }
    };
    Some((first, bits))
}

fn range_of(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-')?;
    let [first, last] = [first, last].map(|address| address.trim().parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits));
    Some((first?, last?)).filter(|(first, last)| first <= last)
}

/// The networks that have exactly the addresses of a range, at most 62.
fn networks(first: u32, last: u32) -> Vec<Network> {
    let mut found = Vec::new();
    let (mut at, end) = (u64::from(first), u64::from(last) + 1);
    while at < end {
        // The largest network that begins here and does not reach beyond the end.
        let aligned = if at == 0 { 32 } else { at.trailing_zeros().min(32) };
        let fitting = (end - at).ilog2();
        let size = aligned.min(fitting);
        let (Ok(address), Ok(bits)) = (u32::try_from(at), u8::try_from(32 - size)) else { break };
        found.push((IpAddr::V4(address.into()), bits));
        at += 1 << size;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::NoFiles;
    use super::*;
    use crate::parse::parse;

    /// The networks and values of a block, with its default first; or the line and the reason of a refusal.
    fn read(text: &str) -> Result<String, String> {
        let parsed = parse(text, "n", &NoFiles).unwrap();
        let geo = Geo::of(&parsed[0]).map_err(|(at, reason)| format!("{}: {reason}", at.place.line))?;
        let values = geo.values.iter().map(|((address, bits), text)| format!("{address}/{bits}={text}"));
        Ok(std::iter::once(geo.default.to_owned()).chain(values).collect::<Vec<_>>().join(" "))
    }

    // nginx's documentation of ngx_http_geo_module.
    #[test]
    fn networks_and_their_values() {
        for (text, want) in [
            ("geo $g { default 0; 127.0.0.1 2; 10.1.2.3/8 1; ::1 3; }", "0 10.0.0.0/8=1 127.0.0.1/32=2 ::1/128=3"),
            ("geo $remote_addr $g { 10.0.0.0/8 1; 10.0.0.0/8 2; }", " 10.0.0.0/8=2"),
            ("geo $g { 10.0.0.0/8 1; 10.1.0.0/16 2; delete 10.1.0.0/16; }", " 10.0.0.0/8=1"),
            ("geo $g { 0.0.0.0/0 a; 10.0.0.0/8 b; }", "a 10.0.0.0/8=b"),
            (
                "geo $g { ranges; 10.0.0.1-10.0.0.4 a; 10.0.0.0-10.0.0.0 b; }",
                " 10.0.0.0/32=b 10.0.0.1/32=a 10.0.0.2/31=a 10.0.0.4/32=a",
            ),
            ("geo $g { ranges; 0.0.0.0-255.255.255.255 a; }", "a"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn blocks_without_an_equivalent() {
        for (text, want) in [
            ("geo $arg_x $g { default 0; }", "1: only the client's own address is compared"),
            ("geo $g {\nproxy 10.0.0.0/8;\n}", "2: X-Forwarded-For of these proxies decides"),
            ("geo $g {\n10.0.0.0/33 1;\n}", "2: found no network"),
            ("geo $g {\nexample 1;\n}", "2: found no network"),
            ("geo $g {\nranges;\n10.0.0.9-10.0.0.1 a;\n}", "3: found no range"),
            ("geo $g {\nranges;\n10.0.0.1-10.0.0.9 a;\n10.0.0.9-10.0.0.12 b;\n}", "4: this range overlaps"),
            ("geo $g {\nranges;\n10.0.0.5-10.0.0.9 a;\n10.0.0.1-10.0.0.12 b;\n}", "4: this range overlaps"),
            ("geo $g { 0.0.0.0/0 a; ::/0 b; }", "1: 0.0.0.0/0 and ::/0 have different values"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(want), "{text}: {error}");
        }
    }
}
