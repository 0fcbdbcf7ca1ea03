//! Socket options that neither rustix nor socket2 has.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use libc::c_int;

/// Sets an option whose value is an integer. Best effort: some systems lack some options.
#[expect(unsafe_code, reason = "neither rustix nor socket2 has the option")]
pub(super) fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) {
    // SAFETY: the descriptor is open as long as it is borrowed, and the option's value is an int that outlives the call.
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
}
