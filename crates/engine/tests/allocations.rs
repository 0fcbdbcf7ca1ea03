//! A request allocates nothing once its worker has served its like: a thousand different ones over a real socket.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::client::Asked;
use support::server::Errors;
use support::{Client, Server};

/// The system's allocator; while switched on it counts what every thread asks for but those that are the test's own.
struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Where they came from: our own frames, innermost first, and how often.
static SITES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
/// Frames of a site that are kept.
const FRAMES_MAX: usize = 5;

thread_local! {
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that is ending has no cell any more, and serves nobody.
    if !ON.load(Ordering::Relaxed) || EXEMPT.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    EXEMPT.set(true);
    let trace = Backtrace::force_capture().to_string();
    let ours = trace.lines().filter(|line| line.contains("causeway_") || line.contains("support::handlers"));
    let site = ours.take(FRAMES_MAX).collect::<Vec<_>>().join("\n");
    *SITES.lock().unwrap().entry(site).or_insert(0) += 1;
    EXEMPT.set(false);
}

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise; it only counts and passes on")]
// SAFETY: each method passes its arguments to the system's allocator as they came; counting does not touch them, and what
// it allocates itself, once, is not counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, octets: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(octets, layout, len) }
    }

    unsafe fn dealloc(&self, octets: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(octets, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_during(work: impl FnOnce()) -> u64 {
    COUNT.store(0, Ordering::Relaxed);
    SITES.lock().unwrap().clear();
    ON.store(true, Ordering::Relaxed);
    work();
    ON.store(false, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

struct Request {
    octets: Vec<u8>,
    status: u16,
    asked: Asked,
}

/// One more request: another target, other fields (1 to 100), another body.
fn request(number: u64, random: &mut Random) -> Request {
    const KNOWN: [&str; 8] =
        ["Accept", "Accept-Encoding", "Cookie", "Referer", "User-Agent", "X-Forwarded-For", "Cache-Control", "Origin"];
    let status = [400, 403, 404, 418, 500, 502, 503][random.below(7) as usize];
    let (target, status) = match number % 8 {
        0 => ("fixed".to_owned(), 200),
        1 => (format!("chunk/{}", random.below(32 * 1024)), 200),
        2 => ("yield".to_owned(), 200),
        3 => (format!("sleep/{}", random.below(3)), 200),
        4 => (format!("chain/{}", random.below(2)), 200),
        5 => (format!("fail/{status}"), status),
        6 => (format!("nowhere/{}", random.below(1_000_000)), 404),
        _ => ("drop-body-later".to_owned(), 200),
    };
    let asked = if random.below(10) == 0 { Asked::HeadOnly } else { Asked::Content };
    // Handlers that yield keep what arrives in the mailbox meanwhile; the others leave it to the driver.
    let body = if asked == Asked::Content && random.below(3) == 0 { random.below(100_000) } else { 0 };
    let method = match (asked, body) {
        (Asked::HeadOnly, _) => "HEAD",
        (_, 0) => "GET",
        _ => "POST",
    };
    let mut head = format!("{method} /{target}?number={number} HTTP/1.1\r\nHost: h{}.test\r\n", random.below(1000));
    // Recording an end allocates in the test's own handler.
    head += "X-Unobserved: 1\r\n";
    for _ in 0..random.below(97) {
        let value = "v".repeat(random.below(100) as usize);
        let field = match random.below(2) {
            0 => write!(head, "{}: {value}\r\n", KNOWN[random.below(8) as usize]),
            _ => write!(head, "X-{}: {value}\r\n", random.below(1_000_000)),
        };
        field.unwrap();
    }
    if body > 0 {
        write!(head, "Content-Length: {body}\r\n").unwrap();
    }
    head += "\r\n";
    let mut octets = head.into_bytes();
    octets.extend(support::octets(body as usize));
    Request { octets, status, asked }
}

fn exchange(client: &mut Client, request: &Request) {
    client.send(&request.octets);
    assert_eq!(client.answer_to(request.asked).status, request.status);
}

#[test]
fn a_thousand_different_requests() {
    EXEMPT.set(true);
    let seed = 0x5eed;
    let mut random = Random(seed);
    let server = Server::start(|setup| setup.errors = Errors::Handled);
    let mut client = server.client();

    // The counter sees the worker: a streamed answer boxes its stream.
    let seen = allocations_during(|| drop(client.get("/chunks/1")));
    assert!(seen > 0, "the allocator is not counting");

    let mut requests: Vec<Request> = (0..1000).map(|number| request(number, &mut random)).collect();
    // A head that comes in two arms its deadline, here and not by chance later.
    client.send("GET /fixed HTTP/1.1\r\nHo");
    std::thread::sleep(std::time::Duration::from_millis(20));
    client.send("st: test\r\n\r\n");
    assert_eq!(client.answer().text(), "fixed");
    for _ in 0..2 {
        random.shuffle(&mut requests);
        requests.iter().for_each(|request| exchange(&mut client, request));
    }
    random.shuffle(&mut requests);
    let pools = server.pools();
    let count = allocations_during(|| requests.iter().for_each(|request| exchange(&mut client, request)));
    assert_eq!(count, 0, "seed {seed:#x}; they came from {:#?}", SITES.lock().unwrap());
    println!("high-water marks of the pools: {pools:?}");
    assert_eq!(server.pools(), pools, "in steady state the pools make nothing");
}
