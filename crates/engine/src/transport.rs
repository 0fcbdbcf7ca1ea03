//! The seam between a connection and what carries its octets: plain TCP now, TLS and leaner reactors behind the same
//! four verbs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What carries a connection's octets.
pub(crate) trait Transport: Unpin {
    /// Reads into `octets`; 0 is the peer's end. A short read says that the kernel has no more for now, so the next call
    /// costs no system call before octets arrive.
    fn poll_read(&mut self, task: &mut Task<'_>, octets: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of `octets`.
    fn poll_write(&mut self, task: &mut Task<'_>, octets: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Ends our sending side: the peer reads the end after what was written.
    fn poll_shutdown(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>>;

    /// Makes the close that follows a reset, so that a peer cannot take a cut response for a whole one.
    fn reset_on_close(&self);
}

impl Transport for TcpStream {
    #[inline]
    fn poll_read(&mut self, task: &mut Task<'_>, octets: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(octets);
        match Pin::new(self).poll_read(task, &mut buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(buffer.filled().len())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    #[inline]
    fn poll_write(&mut self, task: &mut Task<'_>, octets: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match octets {
            [one] => Pin::new(self).poll_write(task, one),
            many => Pin::new(self).poll_write_vectored(task, many),
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
