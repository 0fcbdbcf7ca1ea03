//! The seam between a connection and what carries its octets: plain TCP, TLS (`tls`), and whatever leaner reactor may come
//! behind the same verbs.
//!
//! - `arrival`: when the kernel had what is read

mod arrival;

use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use progress::is_heard;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

/// What a read brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many octets; 0 is the peer's end.
    pub(crate) octets: usize,
    /// When the kernel had the last of them, nanoseconds since the Unix epoch; 0 when that is not known.
    pub(crate) at: u64,
}

impl From<usize> for Received {
    fn from(octets: usize) -> Self {
        Self { octets, at: 0 }
    }
}

/// What carries a connection's octets.
pub(crate) trait Transport: Unpin {
    /// Reads into `octets`. A short read says that the kernel has no more for now, so the next call
    /// costs no system call before octets arrive.
    fn poll_read(&mut self, task: &mut Task<'_>, octets: &mut [u8]) -> Poll<io::Result<Received>>;

    /// Has the kernel keep the time of what comes from now on, or not any more.
    fn keep_times(&self, on: bool);

    /// Writes some of `octets`: as many as it answers are with the kernel. The next call begins with those that are left, and
    /// may have more behind them: a transport may have taken them already, to be sent when there is room.
    fn poll_write(&mut self, task: &mut Task<'_>, octets: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Ends our sending side: the peer reads the end after what was written.
    fn poll_shutdown(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>>;

    /// Whether the peer's end, which a read told, came without the word that a transport of this kind ends with: somebody
    /// between may have cut what the peer still meant to say.
    fn is_cut(&self) -> bool {
        false
    }

    /// Makes the close that follows a reset, so that a peer cannot take a cut response for a whole one.
    fn reset_on_close(&self);
}

impl Transport for TcpStream {
    #[inline]
    fn poll_read(&mut self, task: &mut Task<'_>, octets: &mut [u8]) -> Poll<io::Result<Received>> {
        loop {
            ready!(self.poll_read_ready(task))?;
            // The C library's `recv` is a cancellation point, which costs a tenth of a request's user time: rustix makes the
            // call itself.
            let room = octets.len();
            let read = self.try_io(Interest::READABLE, || {
                if is_heard() {
                    return arrival::receive(self.as_fd(), octets);
                }
                Ok(Received::from(recv(&*self, &mut *octets, RecvFlags::empty())?.0))
            });
            match read {
                Ok(received) => {
                    if received.octets > 0 && received.octets < room {
                        // The kernel has no more: say so to the runtime, so that the next read waits without asking.
                        // Octets that come from now on are a new event.
                        let _ = self.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                    }
                    return Poll::Ready(Ok(received));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn keep_times(&self, on: bool) {
        arrival::keep(self.as_fd(), on);
    }

    #[inline]
    fn poll_write(&mut self, task: &mut Task<'_>, octets: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(task))?;
            let written = self.try_io(Interest::WRITABLE, || {
                Ok(match octets {
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

    fn poll_shutdown(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(task)
    }

    fn reset_on_close(&self) {
        // Best effort: without it the peer sees an early end instead of a reset.
        let _ = socket2::SockRef::from(self).set_linger(Some(std::time::Duration::ZERO));
    }
}
