use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use causeway_testkit::ports::free_port;

use super::super::faults::{PUBLIC, issued, open};
use super::*;
use crate::Keeper;
use crate::tests::Directory;

/// A Redis server without persistence; killed when dropped.
struct RedisProcess {
    child: Child,
    directory: Directory,
    port: u16,
}

impl RedisProcess {
    /// `None` without the program, which CI must have.
    fn start(arguments: &[&str]) -> Option<Self> {
        let port = free_port();
        let directory = Directory::new();
        let child = spawn(&directory, port, arguments)?;
        let server = Self { child, directory, port };
        server.wait();
        Some(server)
    }

    fn wait(&self) {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn resume(&mut self) {
        self.child = spawn(&self.directory, self.port, &[]).unwrap();
        self.wait();
    }

    fn spec(&self) -> RedisSpec {
        RedisSpec::new("127.0.0.1", self.port)
    }

    fn storage(&self) -> RedisStorage {
        RedisStorage::new(&self.spec()).unwrap()
    }

    /// Sends a command by a connection of its own.
    fn run_command(&self, arguments: &[&str]) -> Value {
        let mut command = redis::cmd(arguments[0]);
        command.arg(&arguments[1..]);
        let mut connection =
            redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap().get_connection().unwrap();
        command.query(&mut connection).unwrap()
    }

    fn texts(&self, arguments: &[&str]) -> Vec<String> {
        redis::from_redis_value(self.run_command(arguments)).unwrap()
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Directory, port: u16, arguments: &[&str]) -> Option<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(directory.path("")).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "redis-server: {error}");
            eprintln!("skipped: redis-server: {error}");
            None
        }
    }
}

/// An address that leads to a server, as that of a failover does: new connections lead to the current one, older ones
/// stay. A piece of data takes `delay` in each direction.
struct Address {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Address {
    fn of(server: &RedisProcess, delay: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(server.port));
        let current = Arc::clone(&target);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, current.load(Ordering::Relaxed))).unwrap();
                for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    std::thread::spawn(move || {
                        let mut bytes = [0; 65536];
                        while let Ok(len @ 1..) = from.read(&mut bytes) {
                            std::thread::sleep(delay);
                            if to.write_all(&bytes[..len]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { port, target }
    }

    fn storage(&self) -> RedisStorage {
        RedisStorage::new(&RedisSpec::new("127.0.0.1", self.port)).unwrap()
    }
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

// certmagic's `Storage`: `Load`, `Store`, `List` with `recursive`, `Delete`. The index is the plugin's: a sorted set
// for each directory, with a slash after the names of directories, which disappears with its last name.
#[test]
fn values() {
    let Some(server) = RedisProcess::start(&[]) else { return };
    let storage = server.storage();
    assert_eq!(storage.load("a/b/c.crt").unwrap(), None);
    assert_eq!(storage.list("").unwrap(), [""; 0]);
    for key in ["a/b/c.crt", "a/b/c.key", "a/d/e.json", "f"] {
        storage.store(key, key.as_bytes(), Durability::Flushed).unwrap();
    }
    storage.store("a/b/c.crt", b"two", Durability::Unflushed).unwrap();
    assert_eq!(storage.load("a/b/c.crt").unwrap().as_deref(), Some(&b"two"[..]));
    let age = storage.modified("a/b/c.crt").unwrap().unwrap().elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_eq!(storage.modified("a/b/missing").unwrap(), None);
    drop(storage.lock("n").unwrap());
    assert_eq!(sorted(storage.list("").unwrap()), ["a/b/c.crt", "a/b/c.key", "a/d/e.json", "f"]);
    assert_eq!(sorted(storage.list("a/b").unwrap()), ["a/b/c.crt", "a/b/c.key"]);
    assert_eq!(storage.list("f").unwrap(), [""; 0], "a value has no keys below it");
    assert_eq!(sorted(server.texts(&["ZRANGE", "caddy", "0", "-1"])), ["a/", "f"]);
    assert_eq!(sorted(server.texts(&["ZRANGE", "caddy/a", "0", "-1"])), ["b/", "d/"]);
    storage.delete("a/d/e.json").unwrap();
    storage.delete("a/d/e.json").unwrap();
    assert_eq!(server.texts(&["ZRANGE", "caddy/a", "0", "-1"]), ["b/"]);
    for key in ["a/b/c.crt", "a/b/c.key", "f"] {
        storage.delete(key).unwrap();
    }
    let left = || server.texts(&["KEYS", "*"]);
    let begun = Instant::now();
    // The lock is released in the background.
    while !left().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", left());
    }
    assert_eq!(storage.location("a/b"), format!("redis://127.0.0.1:{}/0 key caddy/a/b", server.port));
}

// Records as the plugin writes them: by Go's `encoding/json`, with dates in any time zone, an empty value as null.
#[test]
fn records_of_the_plugin() {
    let plain = Codec::new(None, Compression::None).unwrap();
    for (why, record, want) in [
        (
            "as it is",
            r#"{"value":"aGVsbG8=","modified":"2026-01-15T01:02:03.456789012+01:00","size":5,"compression":0,"encryption":0}"#,
            &b"hello"[..],
        ),
        ("empty", r#"{"value":null,"modified":"2026-01-15T00:00:00Z","size":0,"compression":0,"encryption":0}"#, b""),
        // `compress/flate` and `compress/zlib` of 40 times "a".
        (
            "flate",
            r#"{"value":"SiQSAAIAAP//","modified":"2026-01-15T00:00:00Z","size":40,"compression":1,"encryption":0}"#,
            &[b'a'; 40],
        ),
        (
            "zlib",
            r#"{"value":"eJxKJBIAAgAA//826w8p","modified":"2026-01-15T00:00:00Z","size":40,"compression":2,"encryption":0}"#,
            &[b'a'; 40],
        ),
    ] {
        assert_eq!(plain.decode(record.as_bytes()).as_deref(), Ok(want), "{why}");
    }
    // Go's `cipher.AEAD` with a nonce of 12 bytes.
    let sealed = r#"{"value":"bm9uY2Utb2YtMTJi6Nx9P2i2bqWNan56ThSJEC/BHcZ+","modified":"2026-01-15T00:00:00Z","size":5,"compression":0,"encryption":1}"#;
    let secret = Codec::new(Some(b"0123456789abcdef0123456789abcdef"), Compression::None).unwrap();
    assert_eq!(secret.decode(sealed.as_bytes()).as_deref(), Ok(&b"hello"[..]));
    for (why, record, want) in [
        ("no JSON", "x", "expected value at line 1 column 1"),
        ("no date", "{}", "missing field `modified`"),
        ("no base64", r#"{"value":"?","modified":"","size":0}"#, "Invalid symbol 63, offset 0."),
        ("encrypted", r#"{"value":"","modified":"","size":0,"encryption":1}"#, "no encryption_key is set"),
        ("another compression", r#"{"value":"","modified":"","size":0,"compression":9}"#, "expected 0, 1 or 2"),
    ] {
        let error = plain.decode(record.as_bytes()).unwrap_err();
        assert!(error.contains(want), "{why}: {error}");
    }
}

/// The date of a record.
fn date_of(record: &str) -> SystemTime {
    let record: serde_json::Value = serde_json::from_str(record).unwrap();
    let modified = record["modified"].as_str().unwrap();
    time::OffsetDateTime::parse(modified, &time::format_description::well_known::Rfc3339).unwrap().into()
}

// The plugin compresses a value, if that makes it shorter, and encrypts the result by AES-256-GCM with the nonce in
// front.
#[test]
fn records_compressed_and_encrypted() {
    let long = [b'a'; 5000];
    for compression in [Compression::None, Compression::Flate, Compression::Zlib] {
        for key in [None, Some([7; 32])] {
            let codec = Codec::new(key.as_ref(), compression).unwrap();
            for value in [&long[..], b"short", b""] {
                let record = codec.encode(value, crate::tests::now()).unwrap();
                assert_eq!(codec.decode(record.as_bytes()).as_deref(), Ok(value), "{record}");
                assert_eq!(date_of(&record), crate::tests::now());
                assert_eq!(record.len() < 1000, value.len() < 1000 || compression != Compression::None);
                if key.is_some() {
                    let other = Codec::new(Some(&[8; 32]), compression).unwrap();
                    assert!(other.decode(record.as_bytes()).unwrap_err().contains("another encryption_key"));
                }
            }
        }
    }
    // A value that grows without end while it is decompressed.
    let bomb = Codec::new(None, Compression::Flate).unwrap().encode(&vec![0; 5 << 20], crate::tests::now()).unwrap();
    assert!(Codec::new(None, Compression::None).unwrap().decode(bomb.as_bytes()).unwrap_err().contains("larger than"));
}

// Caddy's documentation, "Automatic HTTPS: Storage": locks synchronise all instances. The key is that of the plugin.
#[test]
fn a_lock_has_one_holder() {
    let Some(server) = RedisProcess::start(&[]) else { return };
    let (first, second) = (server.storage(), server.storage());
    let held = first.lock("issue_cert_a.example").unwrap();
    assert_eq!(server.texts(&["KEYS", "*"]), ["caddy/locks/issue_cert_a.example"]);
    held.store("x", b"by the holder", Durability::Flushed).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _held = second.lock("issue_cert_a.example").unwrap();
            sender.send(()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(400)).is_err());
        drop(second.lock("another").unwrap());
        drop(held);
        receiver.recv().unwrap();
    });
}

// A lock that expired while its holder was suspended: its holder writes nothing any more, and does not release the lock
// of the next one.
#[test]
fn a_lost_lock_writes_nothing() {
    let Some(server) = RedisProcess::start(&[]) else { return };
    let storage = server.storage();
    let lost = storage.lock("n").unwrap();
    server.run_command(&["DEL", "caddy/locks/n"]);
    let next = server.storage().lock("n").unwrap();
    next.store("x", b"by the next", Durability::Flushed).unwrap();
    let error = lost.store("x", b"by the lost", Durability::Flushed).unwrap_err();
    let location = format!("redis://127.0.0.1:{}/0 key caddy/locks/n", server.port);
    assert!(matches!(&error, Error::LockLost(at) if *at == location), "{error}");
    drop(lost);
    // The first release in the queue is that of the lost lock.
    drop(storage.lock("m").unwrap());
    assert_eq!(storage.load("x").unwrap().as_deref(), Some(&b"by the next"[..]));
    next.store("x", b"again", Durability::Flushed).unwrap();
}

// A server that was suspended within its order has lost the name's lock, and the certificate of the next holder is in
// storage. Both serve that one. The certificate that the order replaces early, such as a revoked one, does not come
// back.
#[test]
fn a_certificate_without_its_lock() {
    let Some(server) = RedisProcess::start(&[]) else { return };
    let now = crate::tests::now();
    let [first, next] = [(); 2].map(|()| open(Arc::new(server.storage()), now).unwrap());
    let lock = || server.storage().lock(&format!("issue_cert_{PUBLIC}")).unwrap();
    let put = |keeper: &Keeper, lock: &Lock| {
        let (chain, key) = issued(now);
        let stored = keeper.install_public(PUBLIC, "ca", &chain, &key, lock);
        (stored, keeper.issued(PUBLIC).unwrap().certificate)
    };
    let (stored, old) = put(&first, &lock());
    stored.unwrap();
    let lost = lock();
    server.run_command(&["DEL", &format!("caddy/locks/issue_cert_{PUBLIC}")]);
    let (stored, own) = put(&first, &lost);
    assert!(matches!(stored, Err(Error::LockLost(_))));
    assert!(!first.reload_public_except(PUBLIC, Some(&*old), now).unwrap());
    assert!(Arc::ptr_eq(&first.issued(PUBLIC).unwrap().certificate, &own));
    let (stored, others) = put(&next, &lock());
    stored.unwrap();
    assert!(first.reload_public_except(PUBLIC, Some(&*old), now).unwrap());
    assert_eq!(first.issued(PUBLIC).unwrap().certificate.signed().cert, others.signed().cert);
}

const HOLDER_PORT: &str = "CERTS_HOLDER_PORT";

/// The process that is frozen in the next test: holds a lock, and writes when it reads a line. In an ordinary run it
/// does nothing.
#[test]
fn holder() {
    let Ok(port) = std::env::var(HOLDER_PORT) else { return };
    let storage = RedisStorage::new(&RedisSpec::new("127.0.0.1", port.parse().unwrap())).unwrap();
    let held = storage.lock("n").unwrap();
    held.store("x", b"by the holder", Durability::Flushed).unwrap();
    println!("held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match held.store("x", b"too late", Durability::Flushed) {
        Err(Error::LockLost(_)) => println!("lost"),
        stored => println!("{stored:?}"),
    }
}

// Of two processes, one is frozen with the lock for longer than the lock's expiry, as a suspended virtual machine is.
// When it continues, it cannot overwrite the value of the process that took the lock meanwhile.
#[test]
fn a_frozen_holder_writes_nothing() {
    let Some(server) = RedisProcess::start(&[]) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "storage::redis::tests::holder", "--nocapture", "--test-threads", "1"]);
    command.env(HOLDER_PORT, server.port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // After the name of the test.
    lines.find(|line| line.ends_with("held")).unwrap();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    server.run_command(&["PEXPIRE", "caddy/locks/n", "1"]);
    let storage = server.storage();
    let next = storage.lock("n").unwrap();
    next.store("x", b"by the next", Durability::Flushed).unwrap();
    signal("-CONT");
    writeln!(child.stdin.take().unwrap()).unwrap();
    let outcome = lines.find(|line| line == "lost" || line.contains("Ok") || line.contains("Err"));
    assert_eq!(outcome.as_deref(), Some("lost"));
    assert!(child.wait().unwrap().success());
    assert_eq!(storage.load("x").unwrap().as_deref(), Some(&b"by the next"[..]));
    next.store("x", b"again", Durability::Flushed).unwrap();
}

// A held lock is refreshed for longer than its expiry.
#[test]
fn a_held_lock_is_refreshed() {
    let Some(server) = RedisProcess::start(&[]) else { return };
    let storage = server.storage();
    let held = storage.lock("n").unwrap();
    server.run_command(&["PEXPIRE", "caddy/locks/n", "4000"]);
    let left = || redis::from_redis_value::<i64>(server.run_command(&["PTTL", "caddy/locks/n"])).unwrap();
    while left() < 5000 {
        assert!(left() > 0, "the lock expired");
        std::thread::sleep(Duration::from_millis(50));
    }
    held.store("x", b"", Durability::Flushed).unwrap();
}

// Many locks of a server that is far away: their refresh does not take longer than they live.
#[test]
fn all_locks_are_refreshed_at_once() {
    const LOCKS: usize = 32;
    let Some(server) = RedisProcess::start(&[]) else { return };
    let storage = Address::of(&server, Duration::from_millis(120)).storage();
    let lock = |number: usize| storage.lock(&number.to_string()).unwrap();
    let held: Vec<_> = std::thread::scope(|scope| {
        let locks: Vec<_> = (0..LOCKS).map(|number| scope.spawn(move || lock(number))).collect();
        locks.into_iter().map(|lock| lock.join().unwrap()).collect()
    });
    let key = |number: usize| format!("caddy/locks/{number}");
    for number in 0..LOCKS {
        server.run_command(&["PEXPIRE", &key(number), "6000"]);
    }
    let left = |number| redis::from_redis_value::<i64>(server.run_command(&["PTTL", &key(number)])).unwrap();
    while let Some(oldest) = (0..LOCKS).map(left).min().filter(|left| *left < 6000) {
        assert!(oldest > 0, "a lock expired");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(held);
}

// A restart of the server: idle connections are replaced. While it is away, calls fail at once.
#[test]
fn a_server_that_restarts() {
    let Some(mut server) = RedisProcess::start(&[]) else { return };
    let storage = server.storage();
    storage.store("x", b"one", Durability::Flushed).unwrap();
    server.kill();
    server.resume();
    assert_eq!(storage.load("x").unwrap(), None, "a new connection to a new server");
    server.kill();
    for _ in 0..10_000 {
        let error = storage.load("x").unwrap_err();
        assert!(matches!(&error, Error::Read(_, why) if why.kind() == std::io::ErrorKind::NotConnected), "{error}");
    }
    let error = storage.lock("n").unwrap_err().to_string();
    assert!(error.starts_with(&storage.location("locks/n")) && error.contains("Connection refused"), "{error}");
    server.resume();
    while storage.store("x", b"two", Durability::Flushed).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(storage.load("x").unwrap().as_deref(), Some(&b"two"[..]));
}

// A failover: the master becomes a replica, and the address leads to the new master. The former one still serves the
// connections that it has, and answers READONLY to writes, so that go-redis closes such connections. The lock's refresh
// meets that too. While the address leads to a replica, its values can be read.
#[test]
fn a_master_that_is_demoted() {
    let (Some(first), Some(second)) = (RedisProcess::start(&[]), RedisProcess::start(&[])) else { return };
    let address = Address::of(&first, Duration::ZERO);
    let storage = address.storage();
    storage.store("x", b"one", Durability::Flushed).unwrap();
    let held = storage.lock("n").unwrap();
    let token: String = redis::from_redis_value(first.run_command(&["GET", "caddy/locks/n"])).unwrap();
    first.run_command(&["REPLICAOF", "127.0.0.1", &second.port.to_string()]);
    for _ in 0..2 {
        let error = storage.store("x", b"two", Durability::Flushed).unwrap_err().to_string();
        assert!(error.contains("read only replica"), "{error}");
        assert!(storage.load("x").is_ok(), "a replica is reachable");
    }
    second.run_command(&["SET", "caddy/locks/n", &token, "PX", "4000"]);
    address.target.store(second.port, Ordering::Relaxed);
    let left = || redis::from_redis_value::<i64>(second.run_command(&["PTTL", "caddy/locks/n"])).unwrap();
    while left() < 5000 {
        assert!(left() > 0, "the lock expired");
        std::thread::sleep(Duration::from_millis(50));
    }
    held.store("x", b"three", Durability::Flushed).unwrap();
    assert_eq!(second.storage().load("x").unwrap().as_deref(), Some(&b"three"[..]));
}

// A server that accepts connections and never answers: one call waits for the timeout, the others fail at once.
#[test]
fn a_server_that_hangs() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let spec = RedisSpec { timeout: Some(Duration::from_millis(200)), ..RedisSpec::new("127.0.0.1", port) };
    let storage = RedisStorage::new(&spec).unwrap();
    for _ in 0..1000 {
        let error = storage.load("x").unwrap_err().to_string();
        assert!(error.ends_with("cannot be read: no response within 200 ms"), "{error}");
    }
    listener.set_nonblocking(true).unwrap();
    let attempts = std::iter::from_fn(|| listener.accept().ok()).count();
    assert!(attempts < 10, "{attempts} attempts");
}

// Redis refuses commands without the password, and the error names that.
#[test]
fn a_password() {
    let Some(server) = RedisProcess::start(&["--requirepass", "s3cret"]) else { return };
    let error = server.storage().load("x").unwrap_err().to_string();
    assert!(error.contains("NOAUTH") || error.contains("Authentication required"), "{error}");
    let with =
        |password: &str| RedisStorage::new(&RedisSpec { password: password.to_owned(), ..server.spec() }).unwrap();
    assert!(with("another").load("x").is_err());
    with("s3cret").store("x", b"", Durability::Flushed).unwrap();
    assert!(!format!("{:?} {:?}", with("s3cret"), server.spec()).contains("s3cret"));
}

// A server that stops answering while more calls than connections are in progress: those that wait for a connection
// fail too. A lost wakeup would leave them waiting.
#[test]
fn all_waiting_calls_fail_with_the_server() {
    const CALLS: usize = 64;
    // It accepts connections, by its queue, and answers nothing.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let spec = RedisSpec {
        timeout: Some(Duration::from_millis(200)),
        ..RedisSpec::new("127.0.0.1", listener.local_addr().unwrap().port())
    };
    let storage = RedisStorage::new(&spec).unwrap();
    let (ended, ends) = mpsc::channel();
    for _ in 0..CALLS {
        let (storage, ended) = (storage.clone(), ended.clone());
        std::thread::spawn(move || ended.send(storage.load("a").is_err()));
    }
    for call in 0..CALLS {
        // Only a defect needs the limit.
        let is_failed = ends.recv_timeout(Duration::from_secs(60));
        assert_eq!(is_failed, Ok(true), "after {call} calls");
    }
}
