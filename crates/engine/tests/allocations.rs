//! Steady-state requests allocate no memory: a thousand different requests over a real socket.

mod support;

use std::fmt::Write as _;

use causeway_pipeline::MetricsSpec;
use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread, sites};
use causeway_testkit::random::Random;
use support::client::RequestKind;
use support::scribe::SCRIBE;
use support::server::Errors;
use support::{TestClient, TestServer};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

struct MeasuredRequest {
    bytes: Vec<u8>,
    status: u16,
    asked: RequestKind,
}

/// Makes a request with a random target, 1 to 100 fields and a random body.
fn request(number: u64, random: &mut Random) -> MeasuredRequest {
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
    let asked = if random.below(10) == 0 { RequestKind::HeadOnly } else { RequestKind::Content };
    // While a handler yields, the body's bytes arrive in the mailbox; for the remaining handlers the driver discards
    // them.
    let body = if asked == RequestKind::Content && random.below(3) == 0 { random.below(100_000) } else { 0 };
    let method = match (asked, body) {
        (RequestKind::HeadOnly, _) => "HEAD",
        (_, 0) => "GET",
        _ => "POST",
    };
    let mut head = format!("{method} /{target}?number={number} HTTP/1.1\r\nHost: h{}.test\r\n", random.below(1000));
    // Without this field the test's own handler records the end, which allocates.
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
    let mut bytes = head.into_bytes();
    bytes.extend(support::bytes(body as usize));
    MeasuredRequest { bytes, status, asked }
}

fn exchange(client: &mut TestClient, request: &MeasuredRequest) {
    client.send(&request.bytes);
    assert_eq!(client.answer_to(request.asked).status, request.status);
}

#[test]
fn a_thousand_different_requests() {
    exempt_this_thread();
    let seed = 0x5eed;
    let mut random = Random::new(seed);
    let server = TestServer::start(|setup| {
        setup.errors = Errors::Handled;
        // The requests name more hosts than the metrics give labels to.
        setup.metrics = Some(MetricsSpec { per_host: true, observe_catchall_hosts: true, uncounted: &[] });
    });
    let mut client = server.client();

    // Checks that the counter covers the worker: a streamed response boxes its stream.
    let seen = allocations_during(|| drop(client.get("/chunks/1")));
    assert!(seen > 0, "the allocator is not counting");

    let mut requests: Vec<MeasuredRequest> = (0..1000).map(|number| request(number, &mut random)).collect();
    // A head in two reads sets its deadline: here deterministically, and not by chance later.
    client.send("GET /fixed HTTP/1.1\r\nHo");
    std::thread::sleep(std::time::Duration::from_millis(20));
    client.send("st: test\r\n\r\n");
    assert_eq!(client.answer().text(), "fixed");
    // The pools' growth depends on timing, but after a few rounds they have grown enough.
    let mut rounds = Vec::new();
    for _ in 0..6 {
        random.shuffle(&mut requests);
        let pools = server.pools();
        let count = allocations_during(|| requests.iter().for_each(|request| exchange(&mut client, request)));
        rounds.push((count, server.pools() == pools));
    }
    let is_steady = rounds[2..].contains(&(0, true));
    assert!(
        is_steady,
        "allocations, and whether the pools made no object: {rounds:?}; seed {seed:#x}; allocated by {:#?}",
        sites()
    );
    println!("high-water marks of the pools: {:?}", server.pools());

    // No allocations while a profiler records, either.
    assert!(progress::install(&SCRIBE).is_ok());
    progress::set_attention(progress::Attention::Everything);
    let hook_calls_before = SCRIBE.hook_calls();
    let mut round = || allocations_during(|| requests.iter().for_each(|request| exchange(&mut client, request)));
    // The first round creates the logs, and the pools' growth depends on timing.
    let counts: Vec<u64> = (0..4).map(|_| round()).collect();
    assert!(counts[1..].contains(&0), "while a profile runs: {counts:?}; seed {seed:#x}; allocated by {:#?}", sites());
    let each = (SCRIBE.hook_calls() - hook_calls_before) / (counts.len() * requests.len()) as u64;
    assert!(each >= 10, "only {each} hooks per request");
    println!("hooks per request while a profile runs: {each}");
}
