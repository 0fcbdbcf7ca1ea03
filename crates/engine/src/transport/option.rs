//! Socket options that neither rustix nor socket2 has.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use libc::c_int;

/// Sets an option whose value is an integer. Best effort: some systems lack some options.
#[expect(unsafe_code, reason = "neither rustix nor socket2 has the option")]
pub(super) fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) {
    // SAFETY: the descriptor is open as long as it is borrowed, and the option's value is an int that outlives the
    // call.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
}

/// Returns the kernel's estimate of the time of a round trip to a TCP peer; zero if it has none.
#[expect(unsafe_code, reason = "neither rustix nor socket2 has the option")]
pub(crate) fn round_trip(socket: BorrowedFd<'_>) -> Duration {
    // SAFETY: a plain C structure, for which zeroes are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes at most `len` bytes.
    let _ = unsafe {
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut info).cast(), &raw mut len)
    };
    Duration::from_micros(info.tcpi_rtt.into())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[expect(unsafe_code, reason = "neither rustix nor socket2 has the option")]
    fn get(socket: BorrowedFd<'_>, level: c_int, option: c_int) -> c_int {
        let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: the descriptor is open, and both places outlive the call.
        let result =
            unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) };
        assert_eq!(result, 0);
        value
    }

    // tcp(7): accepted connections inherit the options of the listening socket.
    #[test]
    fn accepted_connections_inherit_options() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set(listener.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 12_345);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        assert_eq!(get(accepted.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), 12_345);
    }

    #[test]
    fn a_local_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let time = round_trip(client.as_fd());
        assert!(time > Duration::ZERO && time < Duration::from_secs(1), "{time:?}");
        assert_eq!(round_trip(std::io::stdin().as_fd()), Duration::ZERO);
    }
}
