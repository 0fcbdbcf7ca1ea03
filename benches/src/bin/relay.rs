//! The limit of proxies: one thread, epoll, and an upstream connection per client connection. The bytes of a read on
//! one side are written to the opposite side unexamined, so the cost is the kernel's minimum for any proxy: two hops.
//! Usage: `relay PORT UPSTREAM_PORT`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

/// Events per epoll call.
const EVENTS_MAX: usize = 256;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// The listener's token; tokens of sides are smaller.
const ACCEPT: u64 = u64::MAX;

/// One of the two connections of a pair.
struct Side {
    socket: OwnedFd,
    /// Bytes that the kernel has not accepted. Until they are written, the opposite side is not read. At most one
    /// read's bytes.
    due: Vec<u8>,
    /// The events that epoll currently reports.
    watched: EventFlags,
}

/// A client's connection and its upstream connection.
struct RelayPair([Side; 2]);

fn main() -> io::Result<()> {
    let mut ports = std::env::args().skip(1).map(|port| port.parse::<u16>());
    let (Some(Ok(port)), Some(Ok(upstream)), None) = (ports.next(), ports.next(), ports.next()) else {
        panic!("usage: relay PORT UPSTREAM_PORT")
    };
    run(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?, SocketAddr::from((Ipv4Addr::LOCALHOST, upstream)))
}

fn run(listener: TcpListener, upstream: SocketAddr) -> io::Result<()> {
    net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, epoll::EventData::new_u64(ACCEPT), EventFlags::IN)?;
    let mut pairs: Vec<Option<RelayPair>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let token = event.data.u64();
            if token == ACCEPT {
                while let Ok(client) = net::accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    let index = free.pop().unwrap_or_else(|| {
                        pairs.push(None);
                        pairs.len() - 1
                    });
                    match RelayPair::begin(&poll, client, upstream, index) {
                        Ok(pair) => pairs[index] = Some(pair),
                        // The client sees its connection closed.
                        Err(_) => free.push(index),
                    }
                }
                continue;
            }
            let (index, side) = ((token / 2) as usize, (token % 2) as usize);
            let Some(pair) = &mut pairs[index] else { continue };
            if pair.relay(side, event.flags, &mut bytes).and_then(|()| pair.watch(&poll, index)).is_err() {
                pairs[index] = None;
                free.push(index);
            }
        }
    }
}

impl RelayPair {
    fn begin(poll: &OwnedFd, client: OwnedFd, upstream: SocketAddr, index: usize) -> Result<Self, io::Error> {
        let upstream = TcpStream::connect(upstream)?;
        upstream.set_nonblocking(true)?;
        let sides = [client, upstream.into()].map(|socket| Side { socket, due: Vec::new(), watched: EventFlags::IN });
        for (number, side) in sides.iter().enumerate() {
            net::sockopt::set_tcp_nodelay(&side.socket, true)?;
            epoll::add(poll, &side.socket, token(index, number), EventFlags::IN)?;
        }
        Ok(Self(sides))
    }

    /// Reads once from a side and writes to the opposite one; returns an error when either has ended.
    fn relay(&mut self, side: usize, flags: EventFlags, bytes: &mut [u8]) -> Result<(), Errno> {
        if flags.contains(EventFlags::OUT) {
            // Earlier bytes first, to preserve their order.
            self.0[side].flush()?;
        }
        let other = 1 - side;
        if !self.0[other].due.is_empty() {
            // Not read while the opposite side is blocked; but report that its peer has gone away.
            return if flags.intersects(EventFlags::ERR | EventFlags::HUP) { Err(Errno::CONNRESET) } else { Ok(()) };
        }
        if !flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            return Ok(());
        }
        let read = match net::recv(&self.0[side].socket, &mut *bytes, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::PIPE),
            Ok((read, _)) => read,
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Try to send at once: usually the socket has room, and no event is needed.
        let sent = send(&self.0[other].socket, &bytes[..read])?;
        if sent < read {
            self.0[other].due.extend_from_slice(&bytes[sent..read]);
        }
        Ok(())
    }

    /// Updates the watched events if they have changed.
    fn watch(&mut self, poll: &OwnedFd, index: usize) -> Result<(), Errno> {
        for side in 0..2 {
            let mut wanted = EventFlags::empty();
            // Backpressure: a side is not read while the opposite side has unsent bytes.
            wanted.set(EventFlags::IN, self.0[1 - side].due.is_empty());
            wanted.set(EventFlags::OUT, !self.0[side].due.is_empty());
            let side_of = &mut self.0[side];
            if wanted != side_of.watched {
                epoll::modify(poll, &side_of.socket, token(index, side), wanted)?;
                side_of.watched = wanted;
            }
        }
        Ok(())
    }
}

impl Side {
    fn flush(&mut self) -> Result<(), Errno> {
        let sent = send(&self.socket, &self.due)?;
        self.due.drain(..sent);
        Ok(())
    }
}

/// Returns the number of bytes that the kernel accepted; 0 without room.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    match net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN) => Ok(0),
        other => other,
    }
}

fn token(index: usize, side: usize) -> epoll::EventData {
    epoll::EventData::new_u64((2 * index + side) as u64)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use super::*;

    /// Starts a relay in front of an upstream that echoes all bytes.
    fn relayed() -> TcpStream {
        let [upstream, relay] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [upstream_address, address] = [&upstream, &relay].map(|listener| listener.local_addr().unwrap());
        thread::spawn(move || run(relay, upstream_address));
        thread::spawn(move || {
            let (mut socket, _) = upstream.accept().unwrap();
            let mut bytes = Vec::new();
            // Reads all bytes before it sends the first: more than the sockets on the way can hold.
            (&mut socket).take(BYTES as u64).read_to_end(&mut bytes).unwrap();
            socket.write_all(&bytes).unwrap();
        });
        TcpStream::connect(address).unwrap()
    }

    const BYTES: usize = 32 << 20;

    #[test]
    fn bytes_come_through_in_order_when_either_side_is_slow() {
        let mut client = relayed();
        let sent: Vec<u8> = (0..BYTES).map(|place| (place * 7 / 3) as u8).collect();
        client.write_all(&sent).unwrap();
        // Not reading yet: the echo fills the sockets and waits in the relay.
        thread::sleep(std::time::Duration::from_millis(50));
        let mut got = Vec::new();
        // The upstream closes after its last byte.
        client.read_to_end(&mut got).unwrap();
        assert!(got == sent, "{} of {} bytes, or others", got.len(), sent.len());
    }
}
