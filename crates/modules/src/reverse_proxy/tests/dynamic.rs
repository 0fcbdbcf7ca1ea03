//! Upstreams that are looked up in DNS.

use std::time::Duration;

use causeway_pipeline::worker::{DnsRecord, Families, LookupError, Question};
use causeway_testkit::{Kit, Pending, Request};
use serde_json::{Value, json};

use super::{kit, start_call};

fn address(last: u8) -> DnsRecord {
    DnsRecord::Address([10, 0, 0, last].into())
}

fn service(target: &str, port: u16) -> DnsRecord {
    DnsRecord::Service { target: target.into(), port }
}

fn of(source: Value) -> Kit {
    kit(json!({
        "upstreams": [],
        "dynamic_upstreams": source,
        "load_balancing": { "selection_policy": { "policy": "round_robin" } },
    }))
}

/// Sends a request, which may have to wait for a lookup; returns the upstream's address, or the status.
#[track_caller]
fn chosen(kit: &mut Kit, request: &Request) -> Result<String, u16> {
    let mut pending = match kit.send_pending(request) {
        Ok(answer) => return Err(answer.status),
        Err(pending) => pending,
    };
    for _ in 0..5 {
        kit.worker().drive_spawned();
        if let Some(call) = kit.worker().take_call() {
            pending.cancel(kit);
            return Ok(call.address.to_string());
        }
        pending = match pending.poll(kit) {
            Ok(answer) => return Err(answer.status),
            Err(pending) => pending,
        };
    }
    panic!("it still waits");
}

fn get(kit: &mut Kit) -> Result<String, u16> {
    chosen(kit, &Request::get("/"))
}

// Caddy, `dynamic a`: one upstream for each address; looked up again after `refresh`, 1m by default.
#[test]
fn addresses() {
    let mut kit = of(json!({ "source": "a", "name": "a.test", "port": "8080", "refresh": "10s" }));
    kit.worker().set_records("a.test", Ok(vec![address(1), DnsRecord::Address("::1".parse().unwrap())]));
    assert_eq!([get(&mut kit), get(&mut kit)], [Ok("[::1]:8080".to_owned()), Ok("10.0.0.1:8080".to_owned())]);
    let question = Question::Addresses { name: "a.test".into(), families: Families::Both };
    assert_eq!(kit.worker().take_questions(), [(question, None)]);
    kit.worker().set_records("a.test", Ok(vec![address(2)]));
    kit.worker().advance(Duration::from_millis(9999));
    assert_ne!(get(&mut kit), Ok("10.0.0.2:8080".to_owned()));
    kit.worker().advance(Duration::from_millis(1));
    assert_eq!(get(&mut kit), Ok("10.0.0.2:8080".to_owned()));
    assert_eq!(kit.worker().take_questions().len(), 1);
}

// Caddy: the port is 80 by default, and `versions` selects the records.
#[test]
fn defaults() {
    let mut kit = of(json!({ "source": "a", "name": "a.test", "versions": { "ipv6": true } }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    assert_eq!(get(&mut kit), Ok("10.0.0.1:80".to_owned()));
    let question = Question::Addresses { name: "a.test".into(), families: Families::Ipv6 };
    assert_eq!(kit.worker().take_questions()[0].0, question);
    kit.worker().advance(Duration::from_secs(59));
    get(&mut kit).unwrap();
    assert!(kit.worker().take_questions().is_empty());
}

// Caddy, `dynamic srv`: the name is `_service._proto.name`; the order is the resolver's.
#[test]
fn services() {
    let source = json!({ "source": "srv", "service": "http", "proto": "tcp", "name": "a.test" });
    let mut kit = kit(json!({
        "upstreams": [],
        "dynamic_upstreams": source,
        "load_balancing": { "selection_policy": { "policy": "first" } },
    }));
    kit.worker().set_records("_http._tcp.a.test", Ok(vec![service("b.test.", 81), service("a.test.", 82)]));
    assert_eq!(get(&mut kit), Ok("b.test.:81".to_owned()));
}

// A record that gives no address, here by a space, is left out; the request fails only if no other is there. Caddy
// fails the requests for which it selects such an upstream.
#[test]
fn records_that_are_no_addresses() {
    let mut kit = of(json!({ "source": "srv", "name": "a.test", "refresh": "10s" }));
    kit.worker().set_records("a.test", Ok(vec![service("b b.test.", 81), service("c.test.", 82), service("", 0)]));
    assert_eq!([get(&mut kit), get(&mut kit)], [(); 2].map(|()| Ok("c.test.:82".to_owned())));
    kit.worker().set_records("a.test", Ok(vec![service("b b.test.", 81)]));
    kit.worker().advance(Duration::from_secs(10));
    assert_eq!(get(&mut kit), Err(500));
}

// Caddy: a failed lookup is a failure of its requests; with `grace_period` the last answer is used for so long.
#[test]
fn failures_and_grace() {
    let failed = || Err(LookupError::new("no answer"));
    for grace in [None, Some("5s")] {
        let mut kit = of(json!({ "source": "srv", "name": "a.test", "refresh": "10s", "grace_period": grace }));
        let good = || Ok(vec![service("b.test.", 81)]);
        kit.worker().set_records("a.test", good());
        assert_eq!(get(&mut kit), Ok("b.test.:81".to_owned()));
        kit.worker().set_records("a.test", failed());
        kit.worker().advance(Duration::from_secs(10));
        let want = if grace.is_some() { Ok("b.test.:81".to_owned()) } else { Err(503) };
        assert_eq!([get(&mut kit), get(&mut kit)], [want.clone(), want]);
        let looked = kit.worker().take_questions().len();
        assert_eq!(looked, if grace.is_some() { 2 } else { 3 }, "the grace period saves lookups");
        kit.worker().set_records("a.test", good());
        kit.worker().advance(Duration::from_secs(5));
        assert_eq!(get(&mut kit), Ok("b.test.:81".to_owned()));
    }
}

// Caddy: if the lookup fails, the configured upstreams are used.
#[test]
fn configured_upstreams_are_the_fallback() {
    let source = json!({ "source": "a", "name": "a.test" });
    let mut kit = kit(json!({ "upstreams": [{ "dial": "b:1" }], "dynamic_upstreams": source }));
    assert_eq!(get(&mut kit), Ok("b:1".to_owned()));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    assert_eq!(get(&mut kit), Ok("10.0.0.1:80".to_owned()));
}

// Caddy, `dynamic multi`: the upstreams of all sources in their order; a source that fails is left out.
#[test]
fn several_sources() {
    let sources = ["a.test", "b.test", "c.test"].map(|name| json!({ "source": "a", "name": name }));
    let mut kit = kit(json!({
        "upstreams": [{ "dial": "d:1" }],
        "dynamic_upstreams": { "source": "multi", "sources": sources },
        "load_balancing": { "selection_policy": { "policy": "round_robin" } },
    }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    kit.worker().set_records("c.test", Ok(vec![address(3)]));
    let chosen_addresses = [get(&mut kit), get(&mut kit), get(&mut kit)].map(Result::unwrap);
    assert_eq!(chosen_addresses, ["10.0.0.3:80", "10.0.0.1:80", "10.0.0.3:80"]);
    kit.worker().set_records("a.test", Err(LookupError::new("gone")));
    kit.worker().set_records("c.test", Err(LookupError::new("gone")));
    kit.worker().advance(Duration::from_secs(60));
    kit.worker().take_questions();
    assert_eq!(get(&mut kit), Err(503), "no failure of the list: the configured upstreams are not used");
    assert_eq!(kit.worker().take_questions().len(), 3, "each source is asked once");
}

// Caddy: name and port may have placeholders of the request.
#[test]
fn placeholders() {
    let name = "{http.request.header.x-name}.test";
    let mut kit = of(json!({ "source": "a", "name": name, "port": "{http.request.header.x-port}" }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    kit.worker().set_records("b.test", Ok(vec![address(2)]));
    let to = |name: &str, port: &str| Request::get("/").field("x-name", name).field("x-port", port);
    for (name, port, want) in [
        ("a", "81", Ok("10.0.0.1:81")),
        ("a", "82", Ok("10.0.0.1:82")),
        ("b", "81", Ok("10.0.0.2:81")),
        ("c", "81", Err(503)),
        ("a", "x", Err(500)),
    ] {
        assert_eq!(chosen(&mut kit, &to(name, port)), want.map(str::to_owned), "{name}:{port}");
    }
    // Any number of names needs bounded memory.
    for number in 0..300 {
        assert_eq!(chosen(&mut kit, &to(&format!("n{number}"), "81")), Err(503));
    }
}

// Any number of made-up names displaces no set of upstreams, whose connections and failures would be gone. A set that
// has to go leaves its failures for the time when it comes back.
#[test]
fn names_without_upstreams_are_forgotten_first() {
    let mut kit = kit(json!({
        "upstreams": [],
        "dynamic_upstreams": { "source": "a", "name": "{http.request.header.x-name}.test" },
        "health_checks": { "passive": { "fail_duration": "50s" } },
    }));
    let to = |name: &str| Request::get("/").field("x-name", name);
    for number in 0..90 {
        kit.worker().set_records(&format!("good{number}.test"), Ok(vec![address(number)]));
        assert!(chosen(&mut kit, &to(&format!("good{number}"))).is_ok());
    }
    kit.worker().take_questions();
    for number in 0..300 {
        assert_eq!(chosen(&mut kit, &to(&format!("bad{number}"))), Err(503));
    }
    assert_eq!(kit.worker().take_questions().len(), 300);
    for number in 0..90 {
        assert!(chosen(&mut kit, &to(&format!("good{number}"))).is_ok());
    }
    assert_eq!(kit.worker().take_questions(), [], "they are still known");

    for number in 0..90 {
        let (call, pending) = start_call(&mut kit, &to(&format!("good{number}")));
        call.engine.fail(causeway_pipeline::CallError::Closed);
        assert_eq!(pending.finish(&mut kit).status, 502);
    }
    for number in 0..500 {
        kit.worker().set_records(&format!("more{number}.test"), Ok(vec![address(200)]));
        assert!(chosen(&mut kit, &to(&format!("more{number}"))).is_ok());
    }
    kit.worker().take_questions();
    for number in 0..90 {
        assert_eq!(chosen(&mut kit, &to(&format!("good{number}"))), Err(503), "its upstream has failed");
    }
    assert_ne!(kit.worker().take_questions(), [], "some had to go");
}

// A set may have to go during its first lookup, if each other one has upstreams. The requests that wait for it get its
// answer all the same, also those that wait for another source first.
#[test]
fn a_name_may_be_forgotten_during_its_lookup() {
    let name = "{http.request.header.x-name}.test";
    let one = json!({ "source": "a", "name": name });
    let two = json!({ "source": "multi", "sources": [{ "source": "srv", "name": "s.test" }, one] });
    for source in [one, two] {
        let mut kit = of(source.clone());
        let to = |name: &str| Request::get("/").field("x-name", name);
        for number in 0..100 {
            kit.worker().set_records(&format!("good{number}.test"), Ok(vec![address(1)]));
            assert!(chosen(&mut kit, &to(&format!("good{number}"))).is_ok());
        }
        let names = ["new1", "new2", "new3"];
        names.iter().for_each(|name| kit.worker().set_records(&format!("{name}.test"), Ok(vec![address(2)])));
        kit.worker().queue_jobs(10);
        let waiting = names.map(|name| kit.send_pending(&to(name)).expect_err("it waits"));
        kit.worker().run_jobs();
        kit.worker().drive_spawned();
        for pending in waiting {
            let pending = pending.poll(&mut kit).expect_err("the call is under way");
            assert_eq!(&*kit.worker().take_call().expect("a call").address, "10.0.0.2:80", "{source}");
            pending.cancel(&mut kit);
        }
    }
}

/// Fails a request's attempts until there is no other, and returns their upstreams. `records` are those of the service
/// from the first failure on.
#[track_caller]
fn attempts(kit: &mut Kit, records: &Result<Vec<DnsRecord>, LookupError>) -> Vec<String> {
    let mut pending = kit.send_pending(&Request::get("/")).expect_err("it waits");
    let mut seen = Vec::new();
    for _ in 0..20 {
        kit.worker().drive_spawned();
        if let Some(call) = kit.worker().take_call() {
            seen.push(call.address.to_string());
            kit.worker().set_records("s.test", records.clone());
            call.engine.fail(causeway_pipeline::CallError::Closed);
        }
        pending = match pending.poll(kit) {
            Ok(answer) => {
                assert_eq!(answer.status, 502);
                return seen;
            }
            Err(pending) => pending,
        };
    }
    panic!("it still waits");
}

// Caddy, CachingUpstreamSource.ResetCache: a retry looks a lone `srv` up again, since a service may have moved. Retries
// within a second share a lookup; if it fails, the last answer is used as long as it would have been.
#[test]
fn a_retry_looks_a_service_up_again() {
    let of = |source: Value| {
        kit(json!({
            "upstreams": [],
            "dynamic_upstreams": source,
            "load_balancing": { "retries": 1, "selection_policy": { "policy": "first" } },
        }))
    };
    let service_of = || json!({ "source": "srv", "name": "s.test" });
    let (old, new) = (|| Ok(vec![service("old.test", 1)]), || Ok(vec![service("new.test", 2)]));
    for (source, after, want, lookups) in [
        (service_of(), new(), ["old.test:1", "new.test:2"], 2),
        (service_of(), Err(LookupError::new("gone")), ["old.test:1", "old.test:1"], 2),
        (json!({ "source": "multi", "sources": [service_of()] }), new(), ["old.test:1", "old.test:1"], 1),
    ] {
        let mut kit = of(source.clone());
        kit.worker().set_records("s.test", old());
        get(&mut kit).unwrap();
        kit.worker().advance(Duration::from_secs(1));
        assert_eq!(attempts(&mut kit, &after), want, "{source}");
        assert_eq!(kit.worker().take_questions().len(), lookups, "{source}");
        // Within a second no further one.
        assert_eq!(attempts(&mut kit, &after), [want[1], want[1]], "{source}");
        assert_eq!(kit.worker().take_questions(), [], "{source}");
        kit.worker().advance(Duration::from_secs(1));
        attempts(&mut kit, &after);
        assert_eq!(kit.worker().take_questions().len(), lookups - 1, "{source}");
    }
}

/// Starts a request, whose first attempt fails.
#[track_caller]
fn failed_once(kit: &mut Kit) -> Pending {
    let (call, pending) = start_call(kit, &Request::get("/"));
    call.engine.fail(causeway_pipeline::CallError::Closed);
    pending.poll(kit).expect_err("there is another attempt")
}

// Only the retry waits for its lookup: the answer is good for other requests until `refresh` is over. If the lookup
// takes too long, or too many wait for it, the retry uses the answer too.
#[test]
fn a_lookup_for_a_retry_delays_no_other_request() {
    let mut kit = kit(json!({
        "upstreams": [],
        "dynamic_upstreams": { "source": "srv", "name": "s.test" },
        "load_balancing": { "retries": 1 },
    }));
    kit.worker().set_records("s.test", Ok(vec![service("old.test", 1)]));
    get(&mut kit).unwrap();
    kit.worker().advance(Duration::from_secs(1));
    kit.worker().queue_jobs(1);
    let waiting: Vec<_> = (0..1024).map(|_| failed_once(&mut kit)).collect();
    assert!(kit.worker().take_call().is_none(), "they wait for the lookup");
    // It does not wait, nor does the first attempt of any request.
    let pending = failed_once(&mut kit);
    assert_eq!(&*kit.worker().take_call().expect("a call").address, "old.test:1");
    pending.cancel(&mut kit);
    kit.worker().advance(Duration::from_secs(15));
    for pending in waiting {
        let pending = pending.poll(&mut kit).expect_err("the call is under way");
        assert_eq!(&*kit.worker().take_call().expect("a call").address, "old.test:1");
        pending.cancel(&mut kit);
    }
    // Once `refresh` is over, there is no answer.
    let pending = failed_once(&mut kit);
    kit.worker().advance(Duration::from_secs(60));
    assert_eq!(pending.finish(&mut kit).status, 502);
    let pending = kit.send_pending(&Request::get("/")).expect_err("any request waits");
    assert!(kit.worker().take_call().is_none());
    pending.cancel(&mut kit);
}

// Requests that arrive during a lookup wait for it; the lookup is one.
#[test]
fn requests_share_one_lookup() {
    let mut kit = of(json!({ "source": "a", "name": "a.test" }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    kit.worker().queue_jobs(1);
    let waiting: Vec<_> = (0..3).map(|_| kit.send_pending(&Request::get("/")).expect_err("it waits")).collect();
    let waiting: Vec<_> = waiting.into_iter().map(|it| it.poll(&mut kit).expect_err("it waits")).collect();
    assert_eq!(kit.worker().take_questions().len(), 1);
    kit.worker().run_jobs();
    kit.worker().drive_spawned();
    assert!(waiting[0].take_woken(&kit));
    for pending in waiting {
        let pending = pending.poll(&mut kit).expect_err("the call is under way");
        assert_eq!(&*kit.worker().take_call().expect("a call").address, "10.0.0.1:80");
        pending.cancel(&mut kit);
    }
}

// At most 1024 requests wait for one lookup. One that its client has cancelled leaves its place to another.
#[test]
fn cancelled_requests_do_not_wait() {
    let mut kit = of(json!({ "source": "a", "name": "a.test" }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    kit.worker().queue_jobs(1);
    let wait = |kit: &mut Kit| {
        let pending = kit.send_pending(&Request::get("/")).expect_err("it waits");
        pending.poll(kit).expect_err("it waits")
    };
    for _ in 0..1024 {
        wait(&mut kit).cancel(&mut kit);
    }
    let waiting: Vec<_> = (0..1024).map(|_| wait(&mut kit)).collect();
    assert_eq!(kit.send(&Request::get("/")).status, 503, "all places are taken");
    waiting.into_iter().for_each(|pending| pending.cancel(&mut kit));
    let waiting = wait(&mut kit);
    kit.worker().run_jobs();
    kit.worker().drive_spawned();
    let pending = waiting.poll(&mut kit).expect_err("the call is under way");
    assert_eq!(&*kit.worker().take_call().expect("a call").address, "10.0.0.1:80");
    pending.cancel(&mut kit);
}

// A resolver that hangs holds no request for longer than 15 s, and one that is overloaded none at all.
#[test]
fn lookups_that_time_out() {
    let mut kit = of(json!({ "source": "a", "name": "a.test" }));
    kit.worker().queue_jobs(1);
    let pending = kit.send_pending(&Request::get("/")).expect_err("it waits");
    kit.worker().advance(Duration::from_secs(15));
    assert_eq!(pending.finish(&mut kit).status, 503);
    let mut busy = of(json!({ "source": "a", "name": "a.test" }));
    busy.worker().queue_jobs(0);
    assert_eq!(get(&mut busy), Err(503));
}

// Caddy, passive health checks: an upstream keeps its failures from one answer to the next.
#[test]
fn health_outlives_a_lookup_result() {
    let mut kit = kit(json!({
        "upstreams": [],
        "dynamic_upstreams": { "source": "a", "name": "a.test", "refresh": "1s" },
        "health_checks": { "passive": { "fail_duration": "30s" } },
    }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    get(&mut kit).unwrap();
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.engine.fail(causeway_pipeline::CallError::Closed);
    assert_eq!(pending.finish(&mut kit).status, 502);
    for found in [vec![address(1)], vec![address(2)], vec![address(1)]] {
        let want = if found == [address(1)] { Err(503) } else { Ok("10.0.0.2:80".to_owned()) };
        kit.worker().set_records("a.test", Ok(found));
        kit.worker().advance(Duration::from_secs(1));
        assert_eq!(get(&mut kit), want);
    }
}

// A circuit breaker, too, stays with its upstream from one answer to the next, and while the upstream is in none.
#[test]
fn a_circuit_breaker_outlives_a_lookup_result() {
    let mut kit = kit(json!({
        "upstreams": [],
        "dynamic_upstreams": { "source": "a", "name": "a.test", "refresh": "1s" },
        "circuit_breaker": { "type": "internal", "error_ratio": 1, "min_requests": 1, "trip_duration": "30s" },
    }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    get(&mut kit).unwrap();
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.engine.fail(causeway_pipeline::CallError::Closed);
    assert_eq!(pending.finish(&mut kit).status, 502);
    for found in [vec![address(1)], vec![address(2)], vec![address(1)]] {
        let want = if found == [address(1)] { Err(503) } else { Ok("10.0.0.2:80".to_owned()) };
        kit.worker().set_records("a.test", Ok(found));
        kit.worker().advance(Duration::from_secs(1));
        assert_eq!(get(&mut kit), want);
    }
}

// Caddy, selection policies: the cookie names an upstream, from any source.
#[test]
fn cookies() {
    let mut kit = kit(json!({
        "upstreams": [],
        "dynamic_upstreams": { "source": "a", "name": "a.test" },
        "load_balancing": { "selection_policy": { "policy": "cookie", "secret": "s" } },
    }));
    kit.worker().set_records("a.test", Ok((1..5).map(address).collect()));
    get(&mut kit).unwrap();
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    let first = call.address.to_string();
    call.answer(200, &[], Some(0));
    call.end();
    drop(call);
    let answer = pending.finish(&mut kit);
    let cookie = answer.field("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
    let request = Request::get("/").field("cookie", &cookie);
    for _ in 0..8 {
        assert_eq!(chosen(&mut kit, &request), Ok(first.clone()));
    }
}

// Caddy, UpstreamResolver: other servers, for lookups and, in the transport, for the names of upstreams.
#[test]
fn resolvers() {
    let mut kit = of(json!({
        "source": "a", "name": "a.test", "dial_timeout": "2s", "dial_fallback_delay": "-1s",
        "resolver": { "addresses": ["192.0.2.1", "tcp/192.0.2.2:5353"] },
    }));
    kit.worker().set_records("a.test", Ok(vec![address(1)]));
    get(&mut kit).unwrap();
    let (_, resolver) = kit.worker().take_questions().remove(0);
    let resolver = resolver.expect("its own servers");
    assert_eq!((resolver.dial_timeout, resolver.fallback_delay), (Some(Duration::from_secs(2)), None));
    let servers: Vec<_> = resolver.servers.iter().map(|server| (&*server.address, server.is_tcp)).collect();
    assert_eq!(servers, [("192.0.2.1:53", false), ("192.0.2.2:5353", true)]);
}
