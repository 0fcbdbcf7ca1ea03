//! Hostile HTTP/2 clients against the built binary: how their connections end, how much memory the server uses, and
//! whether a regular client is still served.
//!
//! Nothing here judges time; `./bench abuse` measures how long regular clients wait.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_testkit::http2::{ATTACKS, Attack, AttackOutcome, AttackTarget, Visitor, Wire, flag, get, kind, literal};

/// Largest growth of the server's memory during an attack.
const GROWTH_BYTES_MAX: u64 = 32 << 20;
/// Duration of an attack, which reconnects when the server closes its connection.
const EFFORT: Duration = Duration::from_secs(1);
/// Number of attackers that run concurrently.
const ATTACKERS: usize = 4;

struct AttackedServer {
    child: Child,
    target: AttackTarget,
    directory: PathBuf,
}

impl AttackedServer {
    fn start(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abuse-{}-{name}", std::process::id()));
        std::fs::create_dir_all(directory.join("files")).unwrap();
        std::fs::write(directory.join("files/long"), vec![b'x'; 4 << 20]).unwrap();
        std::fs::write(directory.join("Caddyfile"), ":0\nrespond /short hello\nroot files\nfile_server\n").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(["run", "--workers", "2"]).current_dir(&directory).env("HOME", &directory);
        command.env("CADDY_ADMIN", "localhost:0").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("Causeway serves ")).expect("it serves");
        let port = line.split("localhost:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect(&line);
        // Keep draining the log, so that the pipe never fills.
        std::thread::spawn(move || lines.for_each(drop));
        let target = AttackTarget { address: ([127, 0, 0, 1], port).into(), short: "/short", long: "/long" };
        Self { child, target, directory }
    }

    /// Reads a field of /proc/PID/status, in bytes.
    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for AttackedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs one attack and returns how its first connections ended.
#[track_caller]
fn run_attack(attack: &Attack) -> Vec<AttackOutcome> {
    let server = AttackedServer::start(&attack.name.replace([' ', ':', ','], "-"));
    let target = server.target;
    // Warm up, so that one-time allocations are not counted as growth.
    let mut visitor = Visitor::connect(target.address).unwrap();
    (0..200).for_each(|_| assert!(visitor.ask(target.short).is_ok()));
    visitor.ask(target.long).unwrap();
    let before = server.memory("VmRSS");
    let over = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        let visits = scope.spawn(|| {
            let mut served = 0;
            while !over.load(Ordering::Relaxed) {
                visitor.ask(target.short).unwrap_or_else(|error| panic!("{}: the visitor: {error}", attack.name));
                served += 1;
            }
            served
        });
        let attackers: Vec<_> = (0..ATTACKERS).map(|_| scope.spawn(move || repeat_attack(attack, target))).collect();
        let outcomes: Vec<_> = attackers.into_iter().map(|attacker| attacker.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(visits.join().unwrap() > 0, "{}: the visitor was not served", attack.name);
        outcomes
    });
    let growth = server.memory("VmHWM").saturating_sub(before);
    eprintln!("{}: {:?}, {} KiB", attack.name, outcomes[0], growth / 1024);
    assert!(growth < GROWTH_BYTES_MAX, "{}: it grew by {growth} bytes", attack.name);
    // The server still works after the attack.
    Visitor::connect(target.address).unwrap().ask(target.long).unwrap();
    outcomes
}

fn repeat_attack(attack: &Attack, target: AttackTarget) -> AttackOutcome {
    let begun = std::time::Instant::now();
    let first = attack.run(target, EFFORT).unwrap();
    while begun.elapsed() < EFFORT {
        attack.run(target, EFFORT.saturating_sub(begun.elapsed())).unwrap();
    }
    first
}

#[test]
fn each_attack_is_ended_or_absorbed() {
    for attack in ATTACKS {
        for outcome in run_attack(attack) {
            let fine = match outcome {
                AttackOutcome::CALM | AttackOutcome::Absorbed | AttackOutcome::Stopped => true,
                AttackOutcome::Closed => !attack.reads,
                AttackOutcome::GoAway(_) => false,
            };
            assert!(fine, "{}: {outcome:?}", attack.name);
        }
    }
}

/// Sends one request. Returns the first byte of the response's field block, or the error code of a reset.
fn verdict(target: AttackTarget, block: &[u8]) -> Result<u8, u32> {
    let mut wire = Wire::connect(target.address, &[]).unwrap();
    wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, block);
    wire.flush().unwrap();
    loop {
        let frame = wire.receive().unwrap().expect("an answer");
        let code = |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
        match frame.kind {
            kind::HEADERS => return Ok(frame.payload[0]),
            kind::RST_STREAM => return Err(code(0)),
            kind::GOAWAY => return Err(code(4)),
            _ => {}
        }
    }
}

// RFC 9113 §8.2.1, §8.2.2, §8.3.1, §10.3: a field that an HTTP/1 backend would split, or parse differently, makes the
// request malformed.
#[test]
fn requests_that_enable_splitting_are_refused() {
    const OK: u8 = 0x88;
    const BAD_REQUEST: u8 = 0x8c;
    const PROTOCOL_ERROR: u32 = 1;
    let server = AttackedServer::start("split");
    let target = server.target;
    let with = |name: &[u8], value: &[u8]| {
        let mut block = get(target.short);
        literal(&mut block, name, value);
        block
    };
    let pseudo = |path: &[u8], authority: &[u8], scheme: &[u8]| {
        let mut block = vec![0x82];
        literal(&mut block, b":scheme", scheme);
        literal(&mut block, b":path", path);
        literal(&mut block, b":authority", authority);
        block
    };
    assert_eq!(verdict(target, &with(b"x-fine", b"a\tb c")), Ok(OK));
    assert_eq!(verdict(target, &pseudo(b"/short", b"localhost", b"http")), Ok(OK));
    assert_eq!(verdict(target, &with(b"te", b"trailers")), Ok(OK));
    // The byte is forwarded percent-encoded, so a backend parses it as this server does.
    assert_eq!(verdict(target, &pseudo(b"/short?\xff", b"localhost", b"http")), Ok(OK));
    let mut bad: Vec<Vec<u8>> = Vec::new();
    for value in [&b"a\r\nb: c"[..], b"a\rb", b"a\nb", b"a\0b", b" a", b"a ", b"\ta", b"a\t"] {
        bad.push(with(b"x-bad", value));
    }
    for name in [&b"Upper"[..], b"with space", b"with:colon", b"a\r\nb", b"a\0", b"", b":unknown", b":path", b"\xff"] {
        bad.push(with(name, b"x"));
    }
    for (name, value) in [
        (&b"connection"[..], &b"close"[..]),
        (b"keep-alive", b"1"),
        (b"proxy-connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"te", b"gzip"),
        (b"content-length", b"1"),
        (b"content-length", b"-1"),
        (b"content-length", b"0x0"),
        (b"host", b"other.test"),
    ] {
        bad.push(with(name, value));
    }
    for path in [
        &b""[..],
        b"short",
        b"/a b",
        b"/a\r\nX: y",
        b"/a\0",
        b"/a HTTP/1.1\r\nHost: x\r\n\r\nGET /",
        b"http://other.test/short",
        b"*",
    ] {
        bad.push(pseudo(path, b"localhost", b"http"));
    }
    for authority in [&b"local host"[..], b"localhost\r\nX: y", b"user@localhost", b"localhost/path", b"localhost\0"] {
        bad.push(pseudo(b"/short", authority, b"http"));
    }
    bad.push(pseudo(b"/short", b"localhost", b"ht tp"));
    for block in &bad {
        let outcome = verdict(target, block);
        let text = String::from_utf8_lossy(block).into_owned();
        assert!(matches!(outcome, Err(PROTOCOL_ERROR) | Ok(BAD_REQUEST)), "{text:?}: {outcome:?}");
    }
}
