//! A request allocates nothing once its worker has served its like: a thousand different ones over a real socket.

mod support;

use std::fmt::Write as _;

use causeway_testkit::counting::everywhere::{Counting, allocations_during, exempt_this_thread, sites};
use causeway_testkit::random::Random;
use support::client::Asked;
use support::scribe::SCRIBE;
use support::server::Errors;
use support::{Client, Server};

#[global_allocator]
static COUNTING: Counting = Counting;

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
    exempt_this_thread();
    let seed = 0x5eed;
    let mut random = Random::new(seed);
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
    // How far pools grow depends on what meets on the wire: in one of a few rounds nothing is left to grow.
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
        "allocations and whether pools made nothing: {rounds:?}; seed {seed:#x}; they came from {:#?}",
        sites()
    );
    println!("high-water marks of the pools: {:?}", server.pools());

    // The same while a profiler records.
    assert!(progress::install(&SCRIBE).is_ok());
    progress::attend(progress::Attention::Everything);
    let heard = SCRIBE.heard();
    let mut round = || allocations_during(|| requests.iter().for_each(|request| exchange(&mut client, request)));
    // The first one makes the logs, and how far pools grow depends on what meets on the wire.
    let counts: Vec<u64> = (0..4).map(|_| round()).collect();
    assert!(
        counts[1..].contains(&0),
        "while a profile runs: {counts:?}; seed {seed:#x}; they came from {:#?}",
        sites()
    );
    let each = (SCRIBE.heard() - heard) / (counts.len() * requests.len()) as u64;
    assert!(each >= 10, "a request is heard of by {each} hooks");
    println!("hooks per request while a profile runs: {each}");
}
