//! A collector of logs, over a socket. After the first connection, which reports a mistake to the load that opens it,
//! the thread of the output connects, so that no request waits for the collector.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::batch::{Batch, Progress};

/// Time limit for one write; a collector that reads nothing for longer is tried again.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// Time limit for a connection at the end of the process.
const LAST_DIAL_LIMIT: Duration = Duration::from_millis(500);
/// Waits between attempts to connect: the first, and the longest.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// A collector as a configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetSpec {
    /// How the collector is reached.
    pub network: Network,
    /// `host:port`, or the path of a socket.
    pub address: String,
    /// Time limit for a connection.
    pub dial_timeout: Duration,
    /// Whether the collector may be unreachable when the output is opened.
    pub soft_start: bool,
}

/// A kind of socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// A TCP connection.
    Tcp,
    /// A UDP datagram for each line.
    Udp,
    /// A stream to a socket of the file system.
    Unix,
    /// A datagram for each line, to a socket of the file system.
    UnixDatagram,
}

impl fmt::Display for NetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = match self.network {
            Network::Tcp => "tcp",
            Network::Udp => "udp",
            Network::Unix => "unix",
            Network::UnixDatagram => "unixgram",
        };
        write!(f, "{network}/{}", self.address)
    }
}

/// Returns whether a line is longer than a datagram can be, so that another attempt would fail too. Of an error of
/// [`send_datagram`].
pub(crate) fn is_line_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}

/// The connection to a collector, or the attempts to open it.
pub(crate) struct Collector {
    spec: NetSpec,
    socket: Option<Socket>,
    /// Bytes of the next line that this connection has taken.
    begun: usize,
    back_off: Duration,
    next_try: Instant,
    /// The time limit of the next attempt, if it is shorter than the configured one.
    dial_limit: Option<Duration>,
}

enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
    Unix(UnixStream),
    UnixDatagram(UnixDatagram),
}

impl Collector {
    pub(crate) fn open(spec: NetSpec) -> io::Result<Self> {
        let mut collector =
            Self { spec, socket: None, begun: 0, back_off: BACK_OFF_MIN, next_try: Instant::now(), dial_limit: None };
        match collector.connect() {
            Err(error) if !collector.spec.soft_start => Err(error),
            Err(error) => {
                tracing::warn!("log output {}: cannot connect: {error}; trying again", collector.spec);
                Ok(collector)
            }
            Ok(()) => Ok(collector),
        }
    }

    pub(crate) fn configure(&mut self, spec: NetSpec) {
        self.spec = spec;
    }

    /// Ends the wait for the next attempt.
    pub(crate) fn connect_now(&mut self) {
        self.next_try = Instant::now();
    }

    /// As [`connect_now`](Self::connect_now), for an attempt that has little time.
    pub(crate) fn connect_briefly(&mut self) {
        self.dial_limit = Some(LAST_DIAL_LIMIT);
        self.connect_now();
    }

    /// Returns how long to wait before the next write.
    pub(crate) fn retry_after(&self) -> Duration {
        // A connection that is full has already waited for its limit.
        if self.socket.is_some() { Duration::ZERO } else { self.next_try.saturating_duration_since(Instant::now()) }
    }

    fn connect(&mut self) -> io::Result<()> {
        let configured = self.spec.dial_timeout;
        let dial_timeout = self.dial_limit.take().map_or(configured, |limit| limit.min(configured));
        match Socket::connect(&self.spec, dial_timeout) {
            Ok(socket) => {
                (self.socket, self.begun, self.back_off) = (Some(socket), 0, BACK_OFF_MIN);
                Ok(())
            }
            Err(error) => {
                self.next_try = Instant::now() + self.back_off;
                self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
                Err(error)
            }
        }
    }

    /// Sends the lines from `first` on. A line that a lost connection took in part is sent again as a whole.
    pub(crate) fn write(&mut self, batch: &Batch, first: usize) -> Progress {
        if self.socket.as_ref().is_some_and(Socket::is_closed_by_peer) {
            self.socket = None;
        }
        if self.socket.is_none() {
            if Instant::now() < self.next_try {
                return Progress { lines: 0, fault: Some(io::ErrorKind::NotConnected.into()) };
            }
            if let Err(error) = self.connect() {
                return Progress { lines: 0, fault: Some(error) };
            }
        }
        let Some(socket) = &mut self.socket else { return Progress { lines: 0, fault: None } };
        if socket.is_datagram() {
            for line in first..batch.len() {
                if let Err(error) = send_datagram(|| socket.send(batch.lines(line, line + 1))) {
                    // Datagrams have no connection that could be lost, but the collector may have bound its socket
                    // again.
                    if !is_line_too_long(&error) {
                        self.lose();
                    }
                    return Progress { lines: line - first, fault: Some(error) };
                }
            }
            return Progress { lines: batch.len() - first, fault: None };
        }
        let bytes = batch.lines(first, batch.len());
        let mut done = self.begun;
        let mut fault = None;
        while done < bytes.len() {
            match socket.send(&bytes[done..]) {
                Ok(0) => fault = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => fault = Some(error),
            }
            if fault.is_some() {
                break;
            }
        }
        let lines = batch.fitting(first, done as u64);
        self.begun = done - batch.lines(first, first + lines).len();
        // A full connection continues in the middle of the line; a new one begins with a whole line.
        if fault.as_ref().is_some_and(|error: &io::Error| error.kind() != io::ErrorKind::WouldBlock) {
            self.lose();
        }
        Progress { lines, fault }
    }

    /// Forgets the line that the connection has taken in part: it was given up.
    pub(crate) fn give_up(&mut self) {
        // The collector has half of that line. Only another connection begins with a whole one.
        if self.begun > 0 {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.socket = None;
        self.begun = 0;
        self.next_try = Instant::now() + self.back_off;
    }
}

/// Sends a datagram by one or two calls of `send`.
fn send_datagram(mut send: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    match send() {
        // ip(7), IP_MTU_DISCOVER: when a router could not forward an earlier datagram, the next call of any length
        // reports it. The error is then taken from the socket.
        Err(error) if is_line_too_long(&error) => send(),
        sent => sent,
    }
}

impl Socket {
    fn connect(spec: &NetSpec, dial_timeout: Duration) -> io::Result<Self> {
        let limit = Some(WRITE_LIMIT);
        Ok(match spec.network {
            Network::Tcp => {
                let stream = each_address(spec, |address| TcpStream::connect_timeout(&address, dial_timeout))?;
                stream.set_write_timeout(limit)?;
                Self::Tcp(stream)
            }
            Network::Udp => {
                let socket = each_address(spec, |address| {
                    let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
                    let socket = UdpSocket::bind(any)?;
                    socket.connect(address)?;
                    Ok(socket)
                })?;
                socket.set_write_timeout(limit)?;
                Self::Udp(socket)
            }
            Network::Unix => {
                let stream = UnixStream::connect(&spec.address)?;
                stream.set_write_timeout(limit)?;
                Self::Unix(stream)
            }
            Network::UnixDatagram => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&spec.address)?;
                socket.set_write_timeout(limit)?;
                Self::UnixDatagram(socket)
            }
        })
    }

    fn is_datagram(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::UnixDatagram(_))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Udp(socket) => socket.send(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::UnixDatagram(socket) => socket.send(bytes),
        }
    }

    /// Returns whether the collector has closed the stream. Without this check the first write after the close would
    /// succeed, and its lines would be lost.
    fn is_closed_by_peer(&self) -> bool {
        let stream: BorrowedFd<'_> = match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Udp(_) | Self::UnixDatagram(_) => return false,
        };
        // A collector's answers have no meaning here; they are discarded.
        let mut answer = [0; 256];
        match rustix::net::recv(stream, &mut answer, rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, count)) => count == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }
}

/// Tries the addresses of the host until one works.
fn each_address<T>(spec: &NetSpec, mut connect: impl FnMut(std::net::SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in spec.address.to_socket_addrs()? {
        match connect(address) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The report of a router about an earlier datagram does not cost the next line.
    #[test]
    fn only_a_second_refusal_means_too_long() {
        let too_long = Some(Errno::MSGSIZE.raw_os_error());
        let refused = Some(Errno::CONNREFUSED.raw_os_error());
        for (results, want, calls) in [
            ([None, None], None, 1),
            ([too_long, None], None, 2),
            ([too_long, too_long], too_long, 2),
            ([too_long, refused], refused, 2),
            ([refused, None], refused, 1),
        ] {
            let mut called = 0;
            let sent = send_datagram(|| {
                called += 1;
                results[called - 1].map_or(Ok(1), |code| Err(io::Error::from_raw_os_error(code)))
            });
            assert_eq!((sent.err().and_then(|error| error.raw_os_error()), called), (want, calls), "{results:?}");
        }
    }
}
