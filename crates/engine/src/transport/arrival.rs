//! When the kernel had octets that are read (SO_TIMESTAMPNS), for the profiler: from then on they waited for us.
//!
//! rustix knows neither the option nor its control message.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::Received;

/// Where the kernel puts its one control message.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    time: libc::timespec,
}

// The message's content lies where the macros of the C library would look for it.
const _: () =
    assert!(offset_of!(Control, time) == size_of::<libc::cmsghdr>() && size_of::<libc::cmsghdr>().is_multiple_of(8));

/// Has the kernel keep the time of what comes on the socket, or not any more. Best effort: without it the time is not known.
#[cold]
#[expect(unsafe_code, reason = "neither rustix nor socket2 has the option")]
pub(super) fn keep(socket: BorrowedFd<'_>, on: bool) {
    let value = libc::c_int::from(on);
    // SAFETY: the descriptor is open as long as it is borrowed, and the option's value is an int that outlives the call.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Receives with the time of the last octet, where the kernel kept it.
#[expect(unsafe_code, reason = "a control message that rustix does not read")]
pub(super) fn receive(socket: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<Received> {
    // SAFETY: both are plain C structures, for which zeroes are a value.
    let (mut control, mut message): (Control, libc::msghdr) = unsafe { std::mem::zeroed() };
    let mut place = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    message.msg_iov = &raw mut place;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // Not the C library's function, which is a cancellation point: that costs more than the call's own way to the kernel.
    // SAFETY: the descriptor is open, and the message names memory of the lengths that it says, all of which outlives the call.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut message, 0) };
    let octets = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // There is room for this one message, so it is whole, or was not written and the place for it is still empty.
    let is_told = (control.header.cmsg_level, control.header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
    let at = if is_told { nanoseconds(&control.time) } else { 0 };
    Ok(Received { octets, at })
}

/// Since the Unix epoch.
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
    fn octets_came_after_they_were_sent_and_before_they_are_read() {
        let (mut client, server) = pair();
        let mut room = [0; 64];
        keep(server.as_fd(), true);
        // The first socket of a system that wants times sets the kernel about keeping them, which takes a moment.
        let mut tries = 0..1000;
        while tries.next().is_some() {
            client.write_all(b"and").unwrap();
            if receive(server.as_fd(), &mut room).unwrap().at > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for octets in [&b"one"[..], b"another"] {
            let before = now();
            client.write_all(octets).unwrap();
            let sent = now();
            std::thread::sleep(Duration::from_millis(20));
            let received = receive(server.as_fd(), &mut room).unwrap();
            assert_eq!(&room[..received.octets], octets);
            // Over loopback they are there when the call that sends them returns, or as good as.
            let late = now();
            assert!(before <= received.at && received.at < late, "{before} {} {late}", received.at);
            assert!(received.at < sent + 10_000_000, "the time of the kernel, not of the read");
        }
    }

    #[test]
    fn without_the_option_the_time_is_not_known() {
        let (mut client, server) = pair();
        let mut room = [0; 2];
        client.write_all(b"abcd").unwrap();
        assert_eq!(receive(server.as_fd(), &mut room).unwrap(), Received { octets: 2, at: 0 });
        keep(server.as_fd(), true);
        assert_eq!(receive(server.as_fd(), &mut room).unwrap().octets, 2);
        keep(server.as_fd(), false);
        client.write_all(b"ef").unwrap();
        assert_eq!(receive(server.as_fd(), &mut room).unwrap(), Received { octets: 2, at: 0 });
        drop(client);
        assert_eq!(receive(server.as_fd(), &mut room).unwrap().octets, 0, "the peer's end");
        server.set_nonblocking(true).unwrap();
        let (_other, server) = pair();
        server.set_nonblocking(true).unwrap();
        let error = receive(server.as_fd(), &mut room).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
