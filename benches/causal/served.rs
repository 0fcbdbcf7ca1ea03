//! A server for Coz, for which ours is too large: one thread, an event loop over poll(2), one read and one write per
//! request, and the planted costs of cases 1 to 3.

use std::ffi::{c_int, c_ulong};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use crate::kit;
use crate::knob::{Cost, Random};
use crate::planted::{cold_function, hot_function};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: twin\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
const READABLE: i16 = 1;

/// As in poll.h.
#[repr(C)]
struct Polled {
    fd: c_int,
    events: i16,
    returned: i16,
}

unsafe extern "C" {
    fn poll(polled: *mut Polled, count: c_ulong, timeout_ms: c_int) -> c_int;
}

/// Serves on the port until the program ends.
pub(crate) fn start(port: u16, hot: u64, cold: u64) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
    std::thread::spawn(move || serve(&listener, Cost::of("hot_function", hot), Cost::of("cold_function", cold)));
}

fn serve(listener: &TcpListener, hot: Cost, cold: Cost) {
    let of = |fd| Polled { fd, events: READABLE, returned: 0 };
    let mut polled = vec![of(listener.as_raw_fd())];
    let mut clients: Vec<TcpStream> = Vec::new();
    let mut random = Random::new(3);
    let mut bytes = [0; 4096];
    loop {
        // SAFETY: the pointer and length are those of one vector, and poll only writes `returned`.
        unsafe { poll(polled.as_mut_ptr(), polled.len() as c_ulong, -1) };
        for place in 0..clients.len() {
            if polled[place + 1].returned == 0 {
                continue;
            }
            match clients[place].read(&mut bytes) {
                // poll ignores negative descriptors: a closed client is skipped from now on.
                Ok(0) => polled[place + 1].fd = -1,
                Ok(_) => {
                    hot_function(hot.draw(&mut random));
                    cold_function(cold.draw(&mut random));
                    if clients[place].write_all(ANSWER).is_err() {
                        polled[place + 1].fd = -1;
                    }
                    kit::done();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::Interrupted => {}
                Err(_) => polled[place + 1].fd = -1,
            }
        }
        if polled[0].returned != 0
            && let Ok((client, _)) = listener.accept()
        {
            // Responses are small and written at once: do not delay them.
            let _ = client.set_nodelay(true);
            polled.push(of(client.as_raw_fd()));
            clients.push(client);
        }
    }
}
