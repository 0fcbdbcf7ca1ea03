//! Steady-state requests over HTTP/2 allocate no memory.

mod support;

use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread, sites};
use causeway_testkit::http2::{Wire, flag, get, kind, literal};

use support::TestServer;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Concurrent streams.
const STREAMS: u32 = 10;

/// A connection, and the next stream's number.
struct StreamClient {
    wire: Wire,
    next: u32,
}

impl StreamClient {
    fn connect(server: &TestServer) -> Self {
        // SETTINGS_INITIAL_WINDOW_SIZE is large; `send_request` enlarges the connection's window as content arrives.
        let mut wire = Wire::connect(server.address(), &[(4, 1 << 20)]).unwrap();
        wire.put(kind::SETTINGS, flag::ACK, 0, &[]);
        Self { wire, next: 1 }
    }

    /// Requests each path on a stream of its own, every third with `content`, and reads all responses. Returns the
    /// number of content bytes received.
    fn send_request(&mut self, paths: &[String], content: &[u8]) -> usize {
        for (index, path) in paths.iter().enumerate() {
            let mut block = get(path);
            literal(&mut block, b"x-unobserved", b"1");
            if index % 3 == 2 {
                // `:method: POST` in place of GET (RFC 7541, appendix A).
                block[0] = 0x83;
                self.wire.put(kind::HEADERS, flag::END_HEADERS, self.next, &block);
                self.wire.put(kind::DATA, flag::END_STREAM, self.next, content);
            } else {
                self.wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, self.next, &block);
            }
            self.next += 2;
        }
        self.wire.flush().unwrap();
        let (mut ended, mut bytes) = (0, 0);
        while ended < paths.len() {
            let frame = self.wire.receive().unwrap().expect("the connection continues");
            match frame.kind {
                kind::HEADERS | kind::DATA => {
                    if frame.kind == kind::DATA && !frame.payload.is_empty() {
                        bytes += frame.payload.len();
                        let by = u32::try_from(frame.payload.len()).unwrap().to_be_bytes();
                        self.wire.put(kind::WINDOW_UPDATE, flag::NONE, 0, &by);
                        self.wire.flush().unwrap();
                    }
                    ended += usize::from(frame.flags & flag::END_STREAM != 0);
                }
                // A response without a body's reader may be complete before the request.
                kind::SETTINGS | kind::WINDOW_UPDATE | kind::RST_STREAM => {}
                _ => panic!("{frame:?}"),
            }
        }
        bytes
    }

    fn round(&mut self, rounds: usize) {
        for number in 0..rounds {
            // All rounds together exceed the connection's window; a chunk of the test's handler is at most a block.
            let len = number * 97 % 32_000;
            let first = format!("/chunk/{len:05}");
            let paths: Vec<String> =
                (0..STREAMS).map(|at| if at == 0 { &*first } else { "/fixed" }.to_owned()).collect();
            let content = support::bytes(number * 61 % 16_000);
            let want = len + (STREAMS as usize - 1) * "fixed".len();
            assert_eq!(self.send_request(&paths, &content), want);
        }
    }
}

#[test]
fn requests_by_http2() {
    exempt_this_thread();
    let server = TestServer::start(|_| {});
    let mut client = StreamClient::connect(&server);
    // Checks that the counter covers the worker: a streamed response boxes its stream.
    let seen = allocations_during(|| assert_eq!(client.send_request(&["/chunks/1".to_owned()], &[]), 1));
    assert!(seen > 0, "the allocator is not counting");
    // The pools' growth depends on timing, so steady state is reached when several rounds in a row allocate no memory.
    let counts: Vec<u64> = (0..30).map(|_| allocations_during(|| client.round(200))).collect();
    assert!(
        counts.windows(5).any(|five| five.iter().all(|count| *count == 0)),
        "{counts:?}; allocated by {:#?}",
        sites()
    );
}
