//! The order in which clients use addresses (RFC 6724) and services (RFC 2782).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::resolver::Service;

/// Sorts addresses: those that this machine has a route to first (RFC 6724 §6, rule 1), then IPv6 before IPv4
/// (rule 6). Addresses that are equal in this keep their order.
pub(crate) fn sort_addresses(addresses: &mut [IpAddr]) {
    addresses.sort_by_cached_key(|ip| (!has_route(*ip), ip.is_ipv4()));
}

/// Whether the kernel finds a route. Nothing is sent.
fn has_route(ip: IpAddr) -> bool {
    let own: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Port 9 discards; UDP connects to it without a packet.
    UdpSocket::bind(SocketAddr::new(own, 0)).and_then(|socket| socket.connect(SocketAddr::new(ip, 9))).is_ok()
}

/// Sorts services by priority, and those of one priority at random: one of a larger weight is more likely to come
/// first (RFC 2782). `random` returns a number below its argument.
pub(crate) fn sort_services(services: &mut [Service], mut random: impl FnMut(u32) -> u32) {
    services.sort_by_key(|service| service.priority);
    for mut rest in services.chunk_by_mut(|one, other| one.priority == other.priority) {
        loop {
            // At most 65 535 records of a weight of at most 65 535 fit into a message.
            let sum: u32 = rest.iter().map(|service| u32::from(service.weight)).sum();
            // Services of weight 0 come last, in the order of the message.
            if sum == 0 {
                break;
            }
            let mut left = random(sum);
            let chosen = rest.iter().position(|service| {
                let is_here = left < u32::from(service.weight);
                left = left.saturating_sub(service.weight.into());
                is_here
            });
            rest[..=chosen.unwrap_or(0)].rotate_right(1);
            rest = &mut rest[1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(priority: u16, weight: u16) -> Service {
        Service { target: String::new(), port: 0, priority, weight }
    }

    // RFC 2782: the lowest priority first; within one, the chance to be first is the share of the weights.
    #[test]
    fn services() {
        let found = [(20, 0), (10, 0), (10, 1), (10, 3)].map(|(priority, weight)| service(priority, weight));
        let mut firsts = [0; 4];
        for number in 0..4 {
            let mut services = found.clone();
            let mut calls = 0;
            sort_services(&mut services, |below| {
                calls += 1;
                if calls == 1 { number % below } else { 0 }
            });
            let weights = services.clone().map(|service| service.weight);
            assert_eq!((services[3].priority, weights[2]), (20, 0), "{weights:?}");
            firsts[usize::from(weights[0])] += 1;
        }
        assert_eq!(firsts, [0, 1, 0, 3]);
        let mut weightless = [service(2, 0), service(1, 0), service(1, 0)];
        sort_services(&mut weightless, |_| unreachable!("there is nothing to choose by"));
        assert_eq!(weightless[2].priority, 2);
    }

    // RFC 6724 §6, rule 6: loopback addresses have a route where the family is present.
    #[test]
    fn addresses() {
        let mut addresses = ["127.0.0.2", "127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        sort_addresses(&mut addresses);
        let v4: Vec<_> = addresses.iter().filter(|ip| ip.is_ipv4()).map(ToString::to_string).collect();
        assert_eq!(v4, ["127.0.0.2", "127.0.0.1"]);
        assert_eq!(addresses[0].is_ipv6(), has_route("::1".parse().unwrap()));
    }
}
