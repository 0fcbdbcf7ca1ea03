//! Lists the connections to a port that exist, or existed in the last minute, from the kernel's table.

use std::collections::BTreeSet;

use anyhow::Result;

/// Returns the source ports of connections to `port` of this machine. Closed connections stay in the table for a
/// minute.
pub fn connections(port: u16) -> Result<BTreeSet<u16>> {
    Ok(read(&std::fs::read_to_string("/proc/net/tcp")?, port))
}

fn read(table: &str, port: u16) -> BTreeSet<u16> {
    let port_of = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let ends = table.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        Some((port_of(fields.next()?)?, port_of(fields.next()?)?))
    });
    // While both ends exist, each has a line of its own; a listener's line has no peer.
    let others = ends.filter_map(|(local, peer)| match (local == port, peer == port) {
        (true, false) => Some(peer),
        (false, true) => Some(local),
        _ => None,
    });
    others.filter(|other| *other != 0).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_seen_open_and_closed() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(connections(port).unwrap().is_empty(), "a listener is no connection");
        let mut made = BTreeSet::new();
        let mut open = Vec::new();
        for count in 1..=3 {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            made.insert(stream.local_addr().unwrap().port());
            open.push((stream, listener.accept().unwrap()));
            assert_eq!(connections(port).unwrap(), made, "{count}");
        }
        open.clear();
        assert_eq!(connections(port).unwrap(), made, "closed connections stay in TIME_WAIT for a minute");
    }

    #[test]
    fn a_line_that_is_none_is_passed_over() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A\n   1: 0100007F:C001 0100007F:1F90 01\n\n   2: x\n";
        assert_eq!(read(table, 8080), BTreeSet::from([0xC001]));
    }
}
