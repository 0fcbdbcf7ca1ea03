//! Address conflicts between the sites and the admin API. They run on separate engines, so no address can serve both.
//! This check names the conflict; the system would report only that the port is in use.

use std::net::IpAddr;

use causeway_config::plan::AdminAddress;
use causeway_pipeline::{BoundAddress, ListenAddress, ListeningSocket, UnixAddress};

use super::error::LoadError;

/// Returns an error for the first site address that overlaps an admin API's address.
pub(super) fn refuse_conflicts<'a>(
    sites: impl Iterator<Item = ListeningSocket> + Clone,
    admins: impl Iterator<Item = &'a AdminAddress>,
) -> Result<(), LoadError> {
    for admin in admins {
        if let Some(site) = sites.clone().find(|site| overlap(site, &admin.listen)) {
            return Err(LoadError::AddressConflict(site, admin.clone()));
        }
    }
    Ok(())
}

/// Returns the configuration that denotes a bound socket.
pub(super) fn as_configured(bound: &BoundAddress) -> ListeningSocket {
    match bound {
        BoundAddress::Ip(bound) => ListenAddress::from(*bound).into(),
        BoundAddress::Unix(path) => UnixAddress { path: path.clone(), mode: UnixAddress::MODE }.into(),
    }
}

fn overlap(one: &ListeningSocket, other: &ListeningSocket) -> bool {
    match (one, other) {
        (ListeningSocket::Bound(one), ListeningSocket::Bound(other)) => overlap_of_ports(*one, *other),
        (ListeningSocket::Unix(one), ListeningSocket::Unix(other)) => one.path == other.path,
        _ => one == other,
    }
}

fn overlap_of_ports(one: ListenAddress, other: ListenAddress) -> bool {
    one.port == other.port && one.port != 0 && (covers(one, other) || covers(other, one))
}

/// Whether a listener on the host of `one` also receives connections to that of `other`. IPv6's wildcard receives IPv4
/// connections too.
fn covers(one: ListenAddress, other: ListenAddress) -> bool {
    match one.host {
        None => true,
        Some(IpAddr::V6(ip)) if ip.is_unspecified() => true,
        Some(IpAddr::V4(ip)) if ip.is_unspecified() => other.host.is_none_or(|other| other.is_ipv4()),
        Some(ip) => other.host == Some(ip) && other.zone == one.zone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicting_addresses() {
        let listen = |text: &str| AdminAddress::parse(text, "").unwrap().listen;
        for (one, other, want) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            (":1", "127.0.0.1:1", true),
            (":1", "[::1]:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            // Only a link-local address has a zone.
            ("[::1%1]:1", "[::1]:1", true),
            ("[fe80::1%1]:1", "[fe80::1%1]:1", true),
            ("[fe80::1%1]:1", "[fe80::1%2]:1", false),
            ("[fe80::1%1]:1", ":1", true),
            ("unix//a", "unix//a|0660", true),
            ("unix//a", "unix//b", false),
            ("fd/3", "fd/3", true),
            ("fd/3", ":3", false),
        ] {
            assert_eq!(overlap(&listen(one), &listen(other)), want, "{one} {other}");
            assert_eq!(overlap(&listen(other), &listen(one)), want, "{other} {one}");
        }
    }
}
