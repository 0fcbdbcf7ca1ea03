//! The limit of proxies: one thread, epoll, and for each connection of a client one to the upstream. What one of the two
//! brings with a read goes to the other with a write, without a look, so what it costs is what the kernel asks of any proxy:
//! two hops. Usage: `relay PORT UPSTREAM_PORT`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Octets read at once.
const READ_BYTES: usize = 64 << 10;
/// The listener's token; a side's is below.
const ACCEPT: u64 = u64::MAX;

/// One of the two connections of a pair.
struct Side {
    socket: OwnedFd,
    /// What the kernel did not take; until it has, the other side is not read. At most one read's octets.
    due: Vec<u8>,
    /// What the kernel was last asked to tell.
    watched: EventFlags,
}

/// A client's connection and the one made for it.
struct Pair([Side; 2]);

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
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut octets = vec![0; READ_BYTES];
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
                    match Pair::begin(&poll, client, upstream, index) {
                        Ok(pair) => pairs[index] = Some(pair),
                        // The client sees its connection closed.
                        Err(_) => free.push(index),
                    }
                }
                continue;
            }
            let (index, side) = ((token / 2) as usize, (token % 2) as usize);
            let Some(pair) = &mut pairs[index] else { continue };
            if pair.relay(side, event.flags, &mut octets).and_then(|()| pair.watch(&poll, index)).is_err() {
                pairs[index] = None;
                free.push(index);
            }
        }
    }
}

impl Pair {
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

    /// One read of a side that has octets and one write to the other; an error when either is over.
    fn relay(&mut self, side: usize, flags: EventFlags, octets: &mut [u8]) -> Result<(), Errno> {
        if flags.contains(EventFlags::OUT) {
            self.0[side].flush()?;
        }
        let other = 1 - side;
        if !self.0[other].due.is_empty() {
            // It waits for the other; that its peer is gone is said even so.
            return if flags.intersects(EventFlags::ERR | EventFlags::HUP) { Err(Errno::CONNRESET) } else { Ok(()) };
        }
        if !flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            return Ok(());
        }
        let read = match net::recv(&self.0[side].socket, &mut *octets, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::PIPE),
            Ok((read, _)) => read,
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        };
        let sent = send(&self.0[other].socket, &octets[..read])?;
        if sent < read {
            self.0[other].due.extend_from_slice(&octets[sent..read]);
        }
        Ok(())
    }

    /// Tells the kernel what the two wait for now, where that changed.
    fn watch(&mut self, poll: &OwnedFd, index: usize) -> Result<(), Errno> {
        for side in 0..2 {
            let mut wanted = EventFlags::empty();
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

/// How many octets the kernel took: none when it has no room.
fn send(socket: &OwnedFd, octets: &[u8]) -> Result<usize, Errno> {
    match net::send(socket, octets, SendFlags::NOSIGNAL) {
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

    /// A relay before an upstream that gives back all it gets.
    fn relayed() -> TcpStream {
        let [upstream, relay] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [upstream_address, address] = [&upstream, &relay].map(|listener| listener.local_addr().unwrap());
        thread::spawn(move || run(relay, upstream_address));
        thread::spawn(move || {
            let (mut socket, _) = upstream.accept().unwrap();
            let mut octets = Vec::new();
            // All of it before the first octet goes back: more than the sockets on the way hold.
            (&mut socket).take(OCTETS as u64).read_to_end(&mut octets).unwrap();
            socket.write_all(&octets).unwrap();
        });
        TcpStream::connect(address).unwrap()
    }

    const OCTETS: usize = 32 << 20;

    #[test]
    fn octets_come_through_in_order_when_either_side_is_slow() {
        let mut client = relayed();
        let sent: Vec<u8> = (0..OCTETS).map(|place| (place * 7 / 3) as u8).collect();
        client.write_all(&sent).unwrap();
        // Not read yet: what comes back fills the sockets and waits in the relay.
        thread::sleep(std::time::Duration::from_millis(50));
        let mut got = Vec::new();
        // The upstream closes behind its last octet.
        client.read_to_end(&mut got).unwrap();
        assert!(got == sent, "{} of {} octets, or others", got.len(), sent.len());
    }
}
