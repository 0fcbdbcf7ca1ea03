//! Ports for servers that a test starts later.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that Linux gives to outgoing connections (`ip_local_port_range`, 32768 and up): such a connection,
/// of any program, could otherwise take the port between this choice and the server's bind.
const RANGE: std::ops::Range<u32> = 10_000..32_000;

/// Returns a port that is free for TCP and UDP. No two calls of one process return the same one.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let len = RANGE.end - RANGE.start;
    // Processes that run at the same time begin far from each other.
    let first = process::id().wrapping_mul(997);
    for _ in 0..len {
        let offset = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % len;
        let port = (RANGE.start + offset) as u16;
        let is_free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
            && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
            // A machine may have no IPv6.
            && (TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err()
                || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok());
        if is_free {
            return port;
        }
    }
    panic!("no port from {} to {} is free", RANGE.start, RANGE.end);
}

/// Returns several ports, as [`free_port`] does.
pub fn free_ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| free_port())
}
