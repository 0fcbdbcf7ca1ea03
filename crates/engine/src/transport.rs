//! The byte transport below a connection, implemented by plain TCP here and by TLS in `tls`.
//!
//! - `arrival`: kernel timestamps of received bytes
//! - `option`: socket options that the libraries lack

mod arrival;
mod option;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context as PollContext, Poll, Waker, ready};
use std::time::Duration;

use progress::is_policy_called;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::{Socket, TcpKeepalive};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

pub(crate) use option::round_trip;

/// The result of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The number of bytes read; 0 is the peer's end.
    pub(crate) bytes: usize,
    /// The time at which the kernel received the last of them, in nanoseconds since the Unix epoch; 0 when unknown.
    pub(crate) at: u64,
}

impl From<usize> for Received {
    fn from(bytes: usize) -> Self {
        Self { bytes, at: 0 }
    }
}

/// The time between two checks whether the peer of a connection that reads nothing is still there.
pub(crate) const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// The peer's state, as far as the kernel shows it before the received bytes are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The peer may send more bytes.
    Open,
    /// The peer has closed, or has ended its sending side.
    Ended,
    /// The connection has failed: a reset, or no response to the kernel's probes.
    Lost,
}

/// An ordered byte stream in both directions.
pub(crate) trait Transport: Unpin + 'static {
    /// Reads into `bytes`. A short read means that the kernel's buffer is empty; the next call then returns `Pending`
    /// without a system call until bytes arrive.
    fn poll_read(&mut self, poll_cx: &mut PollContext<'_>, bytes: &mut [u8]) -> Poll<io::Result<Received>>;

    /// Turns the kernel's timestamps of received bytes on or off.
    fn set_timestamps(&self, on: bool);

    /// Writes some of `bytes`. Returns how many of them the kernel has accepted.
    ///
    /// The next call must begin with the remaining bytes, and may append further ones: a transport may have buffered
    /// the remaining bytes already, to send them when the kernel has room.
    fn poll_write(&mut self, poll_cx: &mut PollContext<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Waits until a write is likely to succeed.
    fn poll_write_ready(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>>;

    /// As [`poll_write`](Self::poll_write), but fails with `WouldBlock` in place of a wait. For the last bytes of a
    /// connection that no task polls any more.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.poll_write(&mut PollContext::from_waker(Waker::noop()), &[IoSlice::new(bytes)]) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Shuts down our sending side: the peer reads the end after all written bytes.
    fn poll_shutdown(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>>;

    /// Returns whether the peer's end came without the transport's own end marker (TLS's close_notify), so that an
    /// attacker on the path may have truncated the peer's message. Always `false` for TCP, which has no such marker.
    fn is_cut(&self) -> bool {
        false
    }

    /// Returns the peer's state, for a connection that reads nothing at present. One system call.
    fn presence(&self) -> Presence;

    /// Makes the following close send a reset, so that a peer cannot mistake a truncated response for a complete one.
    fn reset_on_close(&self);

    /// Raises the kernel's limit of unsent bytes (`TCP_NOTSENT_LOWAT`) if the peer is near. Called once, after the
    /// kernel has sent some hundred kilobytes.
    fn raise_unsent_limit(&self) {}
}

/// Writes all of `bytes`.
pub(crate) async fn write_all(stream: &mut impl Transport, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|poll_cx| stream.poll_write(poll_cx, &[IoSlice::new(bytes)])).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Keepalive settings by which the kernel detects that the peer of a silent connection is gone: the first probe after
/// `pause`, and further ones at that interval. A tunnel has no further bound while both directions are open.
pub(crate) fn keepalive(pause: Duration) -> TcpKeepalive {
    TcpKeepalive::new().with_time(pause).with_interval(pause)
}

/// Idle time before the kernel probes a client, and the interval between probes; Caddy's.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
/// `TCP_NOTSENT_LOWAT`: bytes that the kernel holds for a connection besides those in flight. Priorities of streams
/// have no effect on bytes that it has accepted: with its default limit of megabytes a page would wait for a download
/// for a second on a link of 20 Mbit/s.
const UNSENT_BYTES_MAX: libc::c_int = 128 * 1024;

/// As [`UNSENT_BYTES_MAX`], for a near peer: there writes of that size cost a large download a tenth of its CPU time.
const UNSENT_BYTES_NEAR: libc::c_int = 1024 * 1024;
/// The round trip below which a peer is near, measured while it receives: a megabyte then reaches it within some
/// milliseconds.
const NEAR: Duration = Duration::from_millis(2);

/// Sets options of a listening TCP socket that its connections inherit, which saves system calls for each.
pub(crate) fn prepare_listener(socket: &Socket) -> io::Result<()> {
    // Some sandboxes do not have it, and work without.
    option::set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX);
    socket.set_tcp_keepalive(&keepalive(PROBE_INTERVAL))
}

impl Transport for TcpStream {
    #[inline]
    fn poll_read(&mut self, poll_cx: &mut PollContext<'_>, bytes: &mut [u8]) -> Poll<io::Result<Received>> {
        loop {
            ready!(self.poll_read_ready(poll_cx))?;
            // rustix makes the system call directly. The C library's `recv` is a cancellation point, which costs a
            // tenth of a request's user time.
            let room = bytes.len();
            let read = self.try_io(Interest::READABLE, || {
                if is_policy_called() {
                    return arrival::receive(self.as_fd(), bytes);
                }
                Ok(Received::from(recv(&*self, &mut *bytes, RecvFlags::empty())?.0))
            });
            match read {
                Ok(received) => {
                    if received.bytes > 0 && received.bytes < room {
                        // The kernel's buffer is empty. A made-up `WouldBlock` clears the runtime's readiness, so that
                        // the next read waits without a system call. Later bytes are a new event of the edge-triggered
                        // reactor.
                        let _ = self.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                    }
                    return Poll::Ready(Ok(received));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn set_timestamps(&self, on: bool) {
        arrival::set_timestamps(self.as_fd(), on);
    }

    #[inline]
    fn poll_write(&mut self, poll_cx: &mut PollContext<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(poll_cx))?;
            // One slice takes the cheaper call: `sendmsg` copies a header and an array from user space first.
            let written = self.try_io(Interest::WRITABLE, || {
                Ok(match bytes {
                    [one] => send(&*self, one, SendFlags::NOSIGNAL)?,
                    many => sendmsg(&*self, many, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?,
                })
            });
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_write_ready(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_write_ready(self, poll_cx)
    }

    // Without the wait's bookkeeping in the runtime.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TcpStream::try_write(self, bytes)
    }

    fn poll_shutdown(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(poll_cx)
    }

    fn presence(&self) -> Presence {
        let mut polled = [PollFd::new(self, PollFlags::RDHUP)];
        // A failed call shows nothing about the peer.
        let _ = retry_on_intr(|| poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })));
        match polled[0].revents() {
            state if state.contains(PollFlags::ERR) => Presence::Lost,
            state if state.intersects(PollFlags::RDHUP | PollFlags::HUP) => Presence::Ended,
            _ => Presence::Open,
        }
    }

    fn reset_on_close(&self) {
        // Best effort: without it the peer sees an early end instead of a reset.
        let _ = socket2::SockRef::from(self).set_linger(Some(Duration::ZERO));
    }

    fn raise_unsent_limit(&self) {
        // Zero: the kernel has no estimate.
        let time = round_trip(self.as_fd());
        if !time.is_zero() && time < NEAR {
            option::set(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_NEAR);
        }
    }
}
