use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;

use crate::*;

/// Timeout after which a test fails instead of hanging.
const TIMEOUT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A Redis server without persistence; killed when dropped.
struct RedisProcess {
    child: Child,
    port: u16,
}

impl RedisProcess {
    /// `None` without the program, which CI must have.
    fn start(arguments: &[&str]) -> Option<Self> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.args(arguments).current_dir(std::env::temp_dir()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => {
                wait_until("redis-server listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
                Some(Self { child, port })
            }
            Err(error) => {
                assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "redis-server: {error}");
                eprintln!("skipped: redis-server: {error}");
                None
            }
        }
    }

    fn server(&self) -> RedisServer {
        server(self.port)
    }

    /// Sends a command by a connection of its own.
    fn run_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut client.get_connection().unwrap()).unwrap()
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server(port: u16) -> RedisServer {
    RedisServer::parse_address(&format!("127.0.0.1:{port}")).unwrap()
}

#[track_caller]
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A counter of keys with numbers.
struct Counter {
    exchange: CountExchange,
    prefix: String,
    state: Mutex<CounterState>,
}

#[derive(Default)]
struct CounterState {
    new: BTreeMap<u64, u32>,
    known: BTreeMap<u64, WindowCounts>,
    largest_round: usize,
    restored: usize,
}

impl Counter {
    fn start(server: &RedisServer, prefix: &str) -> Arc<Self> {
        let exchange = CountExchange::start(server).unwrap();
        let counter = Arc::new(Self { exchange, prefix: prefix.to_owned(), state: Mutex::default() });
        let member: Weak<Self> = Arc::downgrade(&counter);
        counter.exchange.join(member);
        counter
    }

    fn state(&self) -> std::sync::MutexGuard<'_, CounterState> {
        self.state.lock().unwrap()
    }

    fn count(&self, key: u64, events: u32) {
        *self.state().new.entry(key).or_default() += events;
        self.exchange.mark_pending();
    }

    fn known(&self, key: u64) -> Option<(u32, u32)> {
        self.state().known.get(&key).map(|counts| (counts.current, counts.previous))
    }
}

impl CountedKeys for Counter {
    fn collect(&self, _now: Instant, max: usize, deltas: &mut Vec<KeyDelta>) -> bool {
        let mut state = self.state();
        let begin = deltas.len();
        while deltas.len() - begin < max
            && let Some((local, events)) = state.new.pop_first()
        {
            let mut id = [0xff; 16];
            id[..8].copy_from_slice(&local.to_be_bytes());
            deltas.push(KeyDelta { local, id, window: HOUR, events });
        }
        state.largest_round = state.largest_round.max(deltas.len());
        !state.new.is_empty()
    }

    fn update(&self, delta: &KeyDelta, all: WindowCounts) {
        self.state().known.insert(delta.local, all);
    }

    fn restore(&self, delta: &KeyDelta) {
        let mut state = self.state();
        *state.new.entry(delta.local).or_default() += delta.events;
        state.restored += 1;
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}

// Redis's documentation: INCRBY returns the sum of all clients; a key with an expiry is removed by itself.
#[test]
fn two_counters_share_their_counts() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let (one, two) = (Counter::start(&redis.server(), "p/z"), Counter::start(&redis.server(), "p/z"));
    one.count(7, 3);
    wait_until("the first counter has its count", || one.known(7).is_some_and(|(now, before)| now + before == 3));
    two.count(7, 2);
    wait_until("the second one has both", || two.known(7).is_some_and(|(now, before)| now + before == 5));
    // Without events it is only a question.
    one.count(7, 0);
    wait_until("the first one has both", || one.known(7).is_some_and(|(now, before)| now + before == 5));
    let keys: Vec<String> = redis.run_command(&["KEYS", "*"]);
    let period = one.state().known[&7].period;
    assert!(
        keys.iter().any(|key| *key == format!("p/z/3600000/0000000000000007{}/{period}", "ff".repeat(8))),
        "{keys:?}"
    );
    for key in keys {
        let left: i64 = redis.run_command(&["PTTL", &key]);
        assert!((0..=7_200_000).contains(&left), "{key}: {left}");
    }
    let elsewhere = Counter::start(&redis.server(), "p/y");
    elsewhere.count(7, 0);
    wait_until("another prefix has its own counts", || elsewhere.known(7) == Some((0, 0)));
}

// More keys than a round takes: all are sent, by several rounds.
#[test]
fn rounds_are_bounded() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let counter = Counter::start(&redis.server(), "p/z");
    let keys = 2 * KEYS_PER_ROUND as u64 + 1;
    counter.state().new = (0..keys).map(|key| (key, 1)).collect();
    counter.exchange.mark_pending();
    wait_until("all keys are known", || counter.state().known.len() as u64 == keys);
    assert_eq!(counter.state().largest_round, KEYS_PER_ROUND);
}

// docs/caddyfile.md: these commands suffice for the user of an access control list.
#[test]
fn permissions_of_a_user() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let commands = ["+set", "+incrby", "+get", "+time", "+select"];
    let user = ["ACL", "SETUSER", "limits", "on", ">s3cret", "~causeway/rate_limit/*"];
    let _: String = redis.run_command(&[&user[..], &commands].concat());
    let login = RedisServer { username: "limits".into(), password: "s3cret".into(), db: 1, ..redis.server() };
    let counter = Counter::start(&login, "causeway/rate_limit/z");
    counter.count(1, 4);
    wait_until("the events are counted", || counter.known(1).is_some_and(|(now, before)| now + before == 4));
    // An error in the place of one answer: the whole round is repeated until it succeeds.
    let other = Counter::start(&login, "another");
    other.count(1, 1);
    wait_until("the events are restored", || other.state().restored > 0);
    assert_eq!(other.known(1), None);
    let _: String = redis.run_command(&["ACL", "SETUSER", "limits", "~*"]);
    wait_until("the events are counted", || other.known(1).is_some_and(|(now, before)| now + before == 1));
}

// Redis closes an idle connection (`timeout`, CLIENT KILL): the next round opens another one, and nothing is counted
// twice.
#[test]
fn a_closed_connection() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let counter = Counter::start(&redis.server(), "p/z");
    for events in 1..=3 {
        counter.count(1, 1);
        wait_until("the event is counted", || counter.known(1).is_some_and(|(now, before)| now + before == events));
        let _: redis::Value = redis.run_command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    assert_eq!(counter.state().restored, 0);
}

// A Unix socket.
#[test]
fn a_unix_socket() {
    struct Socket(PathBuf);
    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    let socket = Socket(std::env::temp_dir().join(format!("shared-counts-{}.sock", std::process::id())));
    let path = socket.0.to_str().unwrap();
    let Some(_redis) = RedisProcess::start(&["--unixsocket", path]) else { return };
    wait_until("the socket exists", || Path::new(path).exists());
    let counter = Counter::start(&RedisServer::parse_address(&format!("unix/{path}")).unwrap(), "p/z");
    counter.count(1, 1);
    wait_until("the events are counted", || counter.known(1).is_some());
}

// A server that accepts connections and never answers, and one whose answers are no RESP: the events are kept.
#[test]
fn servers_that_are_no_redis() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let counter = Counter::start(&server(silent.local_addr().unwrap().port()), "p/z");
    counter.count(1, 1);
    let noisy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = Counter::start(&server(noisy.local_addr().unwrap().port()), "p/z");
    other.count(1, 1);
    std::thread::spawn(move || {
        for stream in noisy.incoming().map_while(Result::ok) {
            let _ = std::io::Write::write_all(&mut &stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for counter in [&counter, &other] {
        wait_until("the events are restored", || counter.state().restored > 0);
        assert_eq!(counter.known(1), None);
    }
}

// Users with the same server share a thread, which ends with the last of them.
#[test]
fn exchanges_are_shared() {
    let server = server(1);
    let one = CountExchange::open(&server).unwrap();
    assert!(Arc::ptr_eq(&one, &CountExchange::open(&server).unwrap()));
    assert!(!Arc::ptr_eq(&one, &CountExchange::open(&RedisServer { db: 1, ..server.clone() }).unwrap()));
    let first = Arc::downgrade(&one);
    drop(one);
    assert!(first.upgrade().is_none());
    CountExchange::open(&server).unwrap();
}
