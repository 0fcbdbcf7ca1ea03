//! Kernel timestamps of received bytes (SO_TIMESTAMPNS), for the profiler: the difference to the read is time that the
//! bytes waited for this process.
//!
//! rustix supports neither the option nor its control message.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::{Received, option};

/// The buffer for the kernel's one control message.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    time: libc::timespec,
}

// The message's content is at the offset that the C library's `CMSG_DATA` macro computes.
const _: () =
    assert!(offset_of!(Control, time) == size_of::<libc::cmsghdr>() && size_of::<libc::cmsghdr>().is_multiple_of(8));

/// Turns timestamps of received bytes on or off for a socket. Best effort: on failure the time is unknown.
#[cold]
pub(super) fn set_timestamps(socket: BorrowedFd<'_>, on: bool) {
    option::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, on.into());
}

/// Receives bytes together with the timestamp of the last one, if the kernel has taken it.
#[expect(unsafe_code, reason = "a control message that rustix does not read")]
pub(super) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Received> {
    // SAFETY: both are plain C structures, for which zeroes are a value.
    let (mut control, mut message): (Control, libc::msghdr) = unsafe { std::mem::zeroed() };
    let mut place = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    message.msg_iov = &raw mut place;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // A direct system call: the C library's function is a cancellation point, whose overhead exceeds the call's own.
    // SAFETY: the descriptor is open, and the message's pointers and lengths describe memory that outlives the call.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut message, 0) };
    let bytes = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // The buffer has room for exactly this message: the kernel either wrote it whole or left the zeroes.
    let is_told = (control.header.cmsg_level, control.header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
    let at = if is_told { nanoseconds(&control.time) } else { 0 };
    Ok(Received { bytes, at })
}

/// Converts a time since the Unix epoch to nanoseconds; a negative time becomes 0.
fn nanoseconds(time: &libc::timespec) -> u64 {
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000) + rest.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    fn now() -> u64 {
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn arrival_times_are_between_send_and_receive() {
        let (mut client, server) = pair();
        let mut room = [0; 64];
        set_timestamps(server.as_fd(), true);
        // The kernel turns timestamps on when the first socket of the system enables them, asynchronously.
        let mut tries = 0..1000;
        while tries.next().is_some() {
            client.write_all(b"and").unwrap();
            if receive(server.as_fd(), &mut room).unwrap().at > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for bytes in [&b"one"[..], b"another"] {
            let before = now();
            client.write_all(bytes).unwrap();
            let sent = now();
            std::thread::sleep(Duration::from_millis(20));
            let received = receive(server.as_fd(), &mut room).unwrap();
            assert_eq!(&room[..received.bytes], bytes);
            // Over loopback the bytes arrive by the time `write_all` returns, or shortly after.
            let late = now();
            assert!(before <= received.at && received.at < late, "{before} {} {late}", received.at);
            assert!(received.at < sent + 10_000_000, "the time of the kernel, not of the read");
        }
    }

    #[test]
    fn without_the_option_the_arrival_time_is_unknown() {
        let (mut client, server) = pair();
        let mut room = [0; 2];
        client.write_all(b"abcd").unwrap();
        assert_eq!(receive(server.as_fd(), &mut room).unwrap(), Received { bytes: 2, at: 0 });
        set_timestamps(server.as_fd(), true);
        assert_eq!(receive(server.as_fd(), &mut room).unwrap().bytes, 2);
        set_timestamps(server.as_fd(), false);
        client.write_all(b"ef").unwrap();
        assert_eq!(receive(server.as_fd(), &mut room).unwrap(), Received { bytes: 2, at: 0 });
        drop(client);
        assert_eq!(receive(server.as_fd(), &mut room).unwrap().bytes, 0, "the peer's end");
        server.set_nonblocking(true).unwrap();
        let (_other, server) = pair();
        server.set_nonblocking(true).unwrap();
        let error = receive(server.as_fd(), &mut room).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
