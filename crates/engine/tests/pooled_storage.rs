//! Every exchange returns its blocks and its call to their pools exactly once, for every outcome: echoes through a
//! proxy under seeded faults of clients and origins, for every pair of HTTP versions.
//!
//! Debug builds fill a block with a poison byte when it is taken, so bytes that were never read into it would show up
//! in content.

mod support;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_pipeline::{TlsPolicy, TlsSpec};
use causeway_testkit::http2::{Wire, flag, get, kind};
use causeway_testkit::random::Random;
use support::forward::override_transport;
use support::http2::RequestBody;
use support::origin::OriginConnection;
use support::tls::{Authority, Store};
use support::{PATIENCE, TestServer};

const SEEDS: u64 = 400;

fn any_len(random: &mut Random) -> usize {
    let most = [100, 10_000, 100_000, 600_000][random.below(4) as usize];
    random.below(most) as usize
}

/// The proxy and its upstreams.
struct DisconnectFixture {
    proxy: TestServer,
    origin: TestServer,
    protected: TestServer,
    hostile: u16,
}

impl DisconnectFixture {
    fn new() -> Self {
        let store = Arc::new(Store::default());
        store.put("<none>", "", Authority::new().sign(&["127.0.0.1"]));
        let protected = TestServer::start(|setup| {
            setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
            setup.certificates = Some(store);
        });
        let hostile = hostile();
        override_transport(hostile, &format!("127.0.0.1:{hostile}"), |transport| {
            (transport.head_timeout, transport.read_timeout) =
                (Some(Duration::from_millis(200)), Some(Duration::from_millis(200)));
        });
        Self { proxy: TestServer::start(|_| {}), origin: TestServer::start(|_| {}), protected, hostile }
    }

    /// Returns a target that echoes the request's content, over a random protocol.
    fn echo(&self, random: &mut Random) -> String {
        let (origin, protected) = (self.origin.address().port(), self.protected.address().port());
        match random.below(4) {
            0 => format!("/forward/{origin}/echo"),
            1 => format!("/forward2/{origin}/echo"),
            2 => format!("/forwards/{protected}/echo"),
            _ => format!("/forwards2/{protected}/echo"),
        }
    }

    /// Returns a target that fails in a random way.
    fn failing(&self, random: &mut Random) -> String {
        const ORIGINS: [&str; 8] = [
            "panic-enter",
            "panic-stream",
            "fail-stream",
            "short-stream",
            "abort",
            "half",
            "drop-body",
            "bytes/300000",
        ];
        let name = ORIGINS[random.below(8) as usize];
        if random.below(2) == 0 {
            return format!("/forward/{}/{}/{}", self.hostile, random.below(CLIENT_ACTS), random.below(1000));
        }
        let echo = self.echo(random);
        format!("{}/{name}", echo.trim_end_matches("/echo"))
    }

    /// Waits until no server holds a call or a block.
    fn assert_all_returned(&self, seed: u64) {
        let end = Instant::now() + PATIENCE;
        for (name, server) in [("proxy", &self.proxy), ("origin", &self.origin), ("protected", &self.protected)] {
            loop {
                // Origins make no calls.
                let calls =
                    if name == "proxy" { server.client().get("/calls-lent").text().to_owned() } else { "0".into() };
                std::thread::sleep(Duration::from_millis(1));
                let blocks = server.counts().blocks_in_use;
                if calls == "0" && blocks == 0 {
                    break;
                }
                let open = server.counts().connections;
                assert!(
                    Instant::now() < end,
                    "up to seed {seed}, {name}: {calls} calls, {blocks} blocks, {open} connections"
                );
            }
        }
    }
}

/// The number of the hostile origin's behaviours.
const CLIENT_ACTS: u64 = 11;

/// Starts an origin whose behaviour is selected by the path's second segment.
fn hostile() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let peer = OriginConnection::new(stream.unwrap());
            std::thread::spawn(move || misbehave(peer));
        }
    });
    port
}

fn misbehave(mut peer: OriginConnection) {
    let Some(head) = peer.try_head() else { return };
    let mut segments = head.split(['/', ' ']).filter_map(|word| word.parse::<u64>().ok());
    let (act, size) = (segments.next().unwrap(), segments.next().unwrap() as usize * 97);
    let sized = |len: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
    let mut send = |bytes: &[u8]| peer.0.write_all(bytes).is_ok();
    match act {
        // Stalls before the response, or within it.
        0 => std::thread::sleep(Duration::from_millis(250)),
        1 => {
            send(sized(size + 1).as_bytes());
            send(&support::bytes(size));
            std::thread::sleep(Duration::from_millis(250));
        }
        // Closes or resets before the response, or within it.
        2 => {}
        3 => peer.reset(),
        4 => {
            send(sized(size + 1).as_bytes());
            send(&support::bytes(size));
            peer.reset();
        }
        // Content too short, too long, or with two framings.
        5 => {
            send(sized(size + 1000).as_bytes());
            send(&support::bytes(size));
        }
        6 => {
            send(sized(size).as_bytes());
            send(&support::bytes(size + 1000));
        }
        7 => {
            send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        }
        // Chunks, the last one malformed.
        8 => {
            let mut chunk =
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", size + 1).into_bytes();
            chunk.extend(support::bytes(size + 1));
            chunk.extend(b"\r\nzz\r\n");
            send(&chunk);
        }
        // A response before the request is read, and one delimited by the connection's end.
        9 => {
            send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch");
        }
        _ => {
            send(b"HTTP/1.1 200 OK\r\n\r\n");
            send(&support::bytes(size));
            let _ = peer.0.shutdown(Shutdown::Write);
            let _ = peer.0.read_to_end(&mut Vec::new());
        }
    }
}

/// Sends content over HTTP/1.1 or HTTP/2, and asserts that the response has equal content.
fn echo(bench: &DisconnectFixture, random: &mut Random, seed: u64) {
    let (target, bytes) = (bench.echo(random), support::bytes(any_len(random)));
    let answer = match random.below(3) {
        0 => {
            let mut client = bench.proxy.client();
            client.post(&target, &bytes);
            client.answer()
        }
        1 => {
            let mut client = bench.proxy.client();
            let mut request =
                format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
            for piece in bytes.chunks(random.below(30_000) as usize + 1000) {
                let mut size = String::new();
                write!(size, "{:x}\r\n", piece.len()).unwrap();
                request.extend([size.as_bytes(), piece, b"\r\n"].concat());
            }
            request.extend(b"0\r\n\r\n");
            client.send(request);
            client.answer()
        }
        _ => bench.proxy.http2().exchange("POST", &target, Some(&RequestBody::sized(bytes.clone()))),
    };
    assert_eq!((answer.status, answer.body.len()), (200, bytes.len()), "seed {seed}: {target}");
    let wrong = answer.body.iter().zip(&bytes).position(|(got, want)| got != want);
    assert_eq!(wrong, None, "seed {seed}: {target}: {:?}", wrong.map(|at| answer.body[at]));
}

/// An HTTP/1.1 client that disconnects within its request or within the response, by a close or a reset.
fn break_off(bench: &DisconnectFixture, random: &mut Random, target: &str) {
    let mut client = bench.proxy.client();
    let bytes = support::bytes(any_len(random));
    let sent = if random.below(2) == 0 { bytes.len() } else { random.below(bytes.len() as u64 + 1) as usize };
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", bytes.len());
    let stream: &mut TcpStream = &mut client.stream;
    // The client does not read the echo, so backpressure may block its writes.
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    if stream.write_all(head.as_bytes()).is_err() || stream.write_all(&bytes[..sent]).is_err() {
        return client.reset();
    }
    let mut some = vec![0; any_len(random)];
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let act = random.below(4);
    if act == 1 {
        // The server may have reset the connection already, which counts as one of the faults.
        let _ = stream.shutdown(Shutdown::Write);
    }
    if act > 1 {
        let _ = stream.read(&mut some);
    }
    match act {
        0 | 3 => client.reset(),
        _ => drop(client),
    }
}

/// An HTTP/2 client that resets some of its streams, and then closes without GOAWAY.
fn break_off_streams(bench: &DisconnectFixture, random: &mut Random) {
    let mut wire = Wire::connect(bench.proxy.address(), &[(4, 1 << 20)]).unwrap();
    wire.set_timeout(Duration::from_millis(20)).unwrap();
    let streams = 1 + random.below(8) as u32;
    for number in 0..streams {
        let target = if random.below(2) == 0 { bench.echo(random) } else { bench.failing(random) };
        let mut block = get(&target);
        // `:method: POST` in place of GET (RFC 7541, appendix A).
        block[0] = 0x83;
        let stream = 2 * number + 1;
        wire.put(kind::HEADERS, flag::END_HEADERS, stream, &block);
        let bytes = support::bytes(random.below(7000) as usize);
        let flags = if random.below(2) == 0 { flag::END_STREAM } else { flag::NONE };
        wire.put(kind::DATA, flags, stream, &bytes);
        if random.below(3) == 0 && wire.flush().is_ok() {
            std::thread::sleep(Duration::from_millis(random.below(3)));
            wire.put(kind::RST_STREAM, flag::NONE, stream, &8_u32.to_be_bytes());
        }
    }
    let _ = wire.flush();
    for _ in 0..random.below(20) {
        if !matches!(wire.receive(), Ok(Some(_))) {
            break;
        }
    }
}

#[test]
fn under_faults_of_either_side() {
    let bench = DisconnectFixture::new();
    for seed in 0..SEEDS {
        let random = &mut Random::new(seed);
        match random.below(4) {
            0 => echo(&bench, random, seed),
            1 => {
                let target = bench.echo(random);
                break_off(&bench, random, &target);
            }
            2 => {
                let target = bench.failing(random);
                break_off(&bench, random, &target);
            }
            _ => break_off_streams(&bench, random),
        }
        if seed % 10 == 9 {
            bench.assert_all_returned(seed);
        }
    }
    // After the faults, valid exchanges still succeed.
    (0..20).for_each(|seed| echo(&bench, &mut Random::new(SEEDS + seed), SEEDS + seed));
    bench.assert_all_returned(SEEDS);
}
