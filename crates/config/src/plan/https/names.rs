//! Which names may have a certificate, and of whom: Caddy's rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Characters that no name in a certificate has.
const FOREIGN: &[char] = &[
    '(', ')', '[', ']', '{', '}', '<', '>', ' ', '\t', '\n', '"', '\\', '!', '@', '#', '$', '%', '^', '&', '|', ';',
    '\'', '+', '=',
];

/// Whether there can be a certificate for it at all.
pub(super) fn qualifies(name: &str) -> bool {
    let well_placed = !name.contains('*') || name.starts_with("*.") || name == "*";
    !name.trim().is_empty() && !name.starts_with('.') && !name.ends_with('.') && well_placed && !name.contains(FOREIGN)
}

/// Whether a public authority may sign it.
pub(super) fn qualifies_publicly(name: &str) -> bool {
    let stars = name.matches('*').count();
    let well_starred =
        stars == 0 || (stars == 1 && name.matches('.').count() > 1 && name.len() > 2 && name.starts_with("*."));
    qualifies(name) && !is_internal(name) && well_starred
}

/// Names and addresses of this machine and of private networks.
fn is_internal(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let endings = [".localhost", ".local", ".internal", ".home.arpa"];
    name == "localhost" || endings.iter().any(|ending| name.ends_with(ending)) || name.parse().is_ok_and(is_private)
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or_else(|| is_private_v6(ip), is_private_v4),
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    ip.is_loopback() || ip.is_private() || ip.is_link_local() || (first, second) == (0, 0)
}

/// Caddy's `::1/7`, `fe80::/10` and `fc00::/7`.
fn is_private_v6(ip: Ipv6Addr) -> bool {
    let first = ip.segments()[0];
    first & 0xfe00 == 0 || first & 0xffc0 == 0xfe80 || first & 0xfe00 == 0xfc00
}

/// Whether it is an address.
pub(super) fn is_ip(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy's documentation, "Hostname requirements" of automatic HTTPS, and certmagic's rules behind it.
    #[test]
    fn who_may_sign() {
        for (name, any, public) in [
            ("example.com", true, true),
            ("sub.example.com", true, true),
            ("*.example.com", true, true),
            ("*.com", true, false),
            ("*", true, false),
            ("*.*.example.com", true, false),
            ("a.*.example.com", false, false),
            ("localhost", true, false),
            ("LOCALHOST", true, false),
            ("a.localhost", true, false),
            ("printer.local", true, false),
            ("db.internal", true, false),
            ("nas.home.arpa", true, false),
            ("127.0.0.1", true, false),
            ("10.1.2.3", true, false),
            ("172.16.0.1", true, false),
            ("172.32.0.1", true, true),
            ("192.168.1.1", true, false),
            ("169.254.0.1", true, false),
            ("::1", true, false),
            ("fe80::1", true, false),
            ("fd00::1", true, false),
            ("8.8.8.8", true, true),
            ("2606:4700::1111", true, true),
            ("", false, false),
            (" ", false, false),
            (".example.com", false, false),
            ("example.com.", false, false),
            ("a b", false, false),
            ("{env.HOST}", false, false),
        ] {
            assert_eq!((qualifies(name), qualifies_publicly(name)), (any, public), "{name:?}");
        }
    }
}
