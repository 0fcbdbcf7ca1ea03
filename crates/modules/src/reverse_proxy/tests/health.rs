use std::time::Duration;

use causeway_pipeline::CallError;
use causeway_testkit::{FakeCall, Kit, Request};
use serde_json::{Value, json};

use super::{exchange, kit, proxy, registry, start_call};

const SECOND: Duration = Duration::from_secs(1);

fn two(checks: Value) -> Value {
    json!({
        "upstreams": [{ "dial": "a:1" }, { "dial": "b:1" }],
        "load_balancing": { "selection_policy": { "policy": "first" } },
        "health_checks": checks,
    })
}

/// Sends a request, which the selected upstream answers, and returns that upstream's address.
#[track_caller]
fn selected_address(kit: &mut Kit) -> String {
    let (call, pending) = start_call(kit, &Request::get("/"));
    call.answer(200, &[], Some(0));
    call.end();
    let address = call.address.to_string();
    drop(call);
    assert_eq!(pending.finish(kit).status, 200);
    address
}

#[track_caller]
fn fail(kit: &mut Kit, error: CallError) {
    let (call, pending) = start_call(kit, &Request::get("/"));
    call.engine.fail(error);
    drop(call);
    pending.finish(kit);
}

// Caddy, `fail_duration` and `max_fails`: an upstream with as many failures within the time gets no requests.
#[test]
fn failures_within_a_time() {
    let mut kit = kit(two(json!({ "passive": { "fail_duration": "10s", "max_fails": 2 } })));
    fail(&mut kit, CallError::Closed);
    assert_eq!(selected_address(&mut kit), "a:1");
    kit.worker().advance(5 * SECOND);
    fail(&mut kit, CallError::HeadTimedOut);
    assert_eq!(selected_address(&mut kit), "b:1");
    kit.worker().advance(5 * SECOND);
    assert_eq!(selected_address(&mut kit), "a:1", "the first failure is forgotten");
    // Our own limit of connections is no failure of the upstream; nor is a mistake of the client.
    fail(&mut kit, CallError::Busy);
    fail(&mut kit, CallError::NoDescriptors);
    fail(&mut kit, CallError::RequestBody(causeway_pipeline::BodyError::PeerGone));
    // Nor is a request that cannot be sent, as with `header_up Host {query.x}` and a space in it, or one that a server
    // did not process because it ended its connection in good order.
    fail(&mut kit, CallError::Request);
    fail(&mut kit, CallError::Unprocessed);
    assert_eq!(selected_address(&mut kit), "a:1");
    fail(&mut kit, CallError::Malformed("a line end"));
    assert_eq!(selected_address(&mut kit), "b:1");
    fail(&mut kit, CallError::Malformed("a line end"));
    fail(&mut kit, CallError::Malformed("a line end"));
    assert_eq!(kit.send(&Request::get("/")).status, 503, "none is left");
}

// Without `fail_duration` nothing is counted.
#[test]
fn no_failures_are_counted_by_default() {
    for checks in [json!({}), json!({ "passive": {} }), json!({ "passive": { "max_fails": 1 } })] {
        let mut kit = kit(two(checks));
        fail(&mut kit, CallError::Closed);
        assert_eq!(selected_address(&mut kit), "a:1");
    }
}

// Caddy, `unhealthy_status` and `unhealthy_latency`: such a response is forwarded, and counts as a failure.
#[test]
fn responses_that_count_as_failures() {
    let passive =
        json!({ "passive": { "fail_duration": "10s", "unhealthy_status": [404, 5], "unhealthy_latency": "3s" } });
    for (status, late, want) in
        [(200, 0, "a:1"), (403, 0, "a:1"), (404, 0, "b:1"), (500, 0, "b:1"), (599, 0, "b:1"), (200, 3, "b:1")]
    {
        let mut kit = kit(two(passive.clone()));
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        kit.worker().advance(late * SECOND);
        call.answer(status, &[], Some(0));
        call.end();
        drop(call);
        assert_eq!(pending.finish(&mut kit).status, status);
        assert_eq!(selected_address(&mut kit), want, "{status} after {late} s");
    }
}

// Caddy, `unhealthy_request_count`: the limit for upstreams that have no `max_requests`.
#[test]
fn too_many_requests() {
    let mut options = two(json!({ "passive": { "unhealthy_request_count": 1 } }));
    options["upstreams"] = json!([{ "dial": "a:1" }, { "dial": "b:1", "max_requests": 2 }]);
    let mut kit = kit(options);
    let held: Vec<_> = (0..3).map(|_| start_call(&mut kit, &Request::get("/"))).collect();
    assert_eq!(held.iter().map(|(call, _)| &*call.address).collect::<Vec<_>>(), ["a:1", "b:1", "b:1"]);
    assert_eq!(kit.send(&Request::get("/")).status, 503);
    held.into_iter().for_each(|(_, pending)| pending.cancel(&mut kit));
}

// Failures are those of all workers, and a reload that keeps the upstream keeps them.
#[test]
fn failures_are_shared_and_kept() {
    let registry = registry();
    let checks = json!({ "passive": { "fail_duration": "10s" } });
    let routes = json!([{ "handle": [proxy(two(checks))] }]);
    let mut kits = [Kit::new(&registry, &routes), Kit::new(&registry, &routes)];
    fail(&mut kits[0], CallError::Closed);
    assert_eq!(selected_address(&mut kits[1]), "b:1");
    kits[1].reload(&registry, &routes, &Value::Null);
    assert_eq!(selected_address(&mut kits[1]), "b:1");
    let text = registry.metrics().scrape(causeway_pipeline::metrics::Format::Text);
    assert!(text.contains("caddy_reverse_proxy_upstreams_healthy{upstream=\"a:1\"} 0"), "{text}");
}

/// A proxy with active checks, and the calls of its first round, in the order of the upstreams.
fn checked(checks: Value) -> (Kit, Vec<FakeCall>) {
    let mut kit = kit(two(json!({ "active": checks })));
    let calls = round(&mut kit);
    (kit, calls)
}

/// Runs the checks until they wait, and returns their requests.
fn round(kit: &mut Kit) -> Vec<FakeCall> {
    kit.worker().drive_spawned();
    std::iter::from_fn(|| kit.worker().take_call()).collect()
}

fn pass(kit: &Kit, call: FakeCall, status: u16, content: &[u8]) {
    call.answer(status, &[], Some(content.len() as u64));
    call.send(content);
    call.end();
    drop(call);
    kit.worker().drive_spawned();
}

// Caddy: the checks begin at once, are requests of their own, and repeat at the interval, 30 s; the default expects
// 2xx.
#[test]
fn a_round_of_checks() {
    let (mut kit, mut calls) = checked(json!({
        "uri": "/health?deep", "method": "POST", "body": "ping",
        "headers": { "Host": ["checked.example"], "X-Target": ["{http.reverse_proxy.active.target_upstream}"] },
    }));
    let second = calls.pop().expect("two checks");
    let first = calls.pop().expect("two checks");
    assert_eq!((&*first.address, &*second.address), ("a:1", "b:1"));
    assert_eq!(first.request_text(), "POST /health?deep\nHost: checked.example\nUser-Agent: Causeway\nX-Target: a:1");
    assert!(first.take_body().is_some_and(|body| body.len() == Some(4)));
    assert_eq!(selected_address(&mut kit), "a:1", "until a check has failed, an upstream is healthy");
    pass(&kit, first, 301, b"");
    pass(&kit, second, 204, b"");
    assert_eq!(selected_address(&mut kit), "b:1");
    kit.worker().advance(29 * SECOND);
    assert!(round(&mut kit).is_empty());
    kit.worker().advance(SECOND);
    let again = round(&mut kit);
    assert_eq!(again.len(), 2);
    again.into_iter().for_each(|call| pass(&kit, call, 200, b""));
    assert_eq!(selected_address(&mut kit), "a:1");
}

// Caddy: `health_status`, `health_body`, `health_timeout`; a redirect counts as it is unless `health_follow_redirects`
// is set.
#[test]
fn expectations_of_a_check() {
    for (checks, status, content, is_up) in [
        (json!({ "expect_status": 302 }), 302, "", true),
        (json!({ "expect_status": 302 }), 200, "", false),
        (json!({ "expect_status": 4 }), 404, "", true),
        (json!({ "expect_body": "^ok" }), 200, "ok then", true),
        (json!({ "expect_body": "^ok" }), 200, "not ok", false),
        (json!({ "expect_body": "end", "max_size": 4 }), 200, "the end", false),
        (json!({}), 500, "", false),
    ] {
        let mut settings = checks.clone();
        settings["uri"] = json!("/");
        let (mut kit, mut calls) = checked(settings);
        pass(&kit, calls.remove(0), status, content.as_bytes());
        assert_eq!(selected_address(&mut kit) == "a:1", is_up, "{checks} {status} {content}");
        drop(calls);
    }
    // Too late: the head, and the content that is searched.
    for has_head in [false, true] {
        let (mut kit, calls) = checked(json!({ "uri": "/", "timeout": "2s", "expect_body": "ok" }));
        if has_head {
            calls[0].answer(200, &[], Some(9));
        }
        kit.worker().drive_spawned();
        kit.worker().advance(2 * SECOND);
        assert_eq!(selected_address(&mut kit), "a:1");
        kit.worker().drive_spawned();
        assert_eq!(kit.send(&Request::get("/")).status, 503);
        drop(calls);
    }
}

// Caddy: without `health_body` the status decides, also if the content never ends or breaks off. Its rest is read for
// some time, but no longer than until the next check.
#[test]
fn checks_of_the_status_alone() {
    let start = || {
        let (mut kit, calls) = checked(json!({ "uri": "/", "timeout": "2s", "interval": "3s" }));
        calls.into_iter().for_each(|call| pass(&kit, call, 500, b""));
        assert_eq!(kit.send(&Request::get("/")).status, 503);
        kit.worker().advance(3 * SECOND);
        let first = round(&mut kit).remove(0);
        first.answer(200, &[], Some(9));
        first.send(b"a part");
        kit.worker().drive_spawned();
        assert_eq!(selected_address(&mut kit), "a:1", "at once");
        (kit, first)
    };
    let (mut kit, endless) = start();
    kit.worker().advance(2 * SECOND);
    kit.worker().drive_spawned();
    assert!(endless.engine.is_given_up());
    assert_eq!(selected_address(&mut kit), "a:1");
    let (mut kit, cut) = start();
    cut.engine.mailbox().fail(causeway_pipeline::BodyError::PeerGone);
    kit.worker().drive_spawned();
    assert!(cut.engine.is_given_up());
    assert_eq!(selected_address(&mut kit), "a:1");
    kit.worker().advance(3 * SECOND);
    assert_eq!(round(&mut kit).len(), 2, "the next round");
}

// A URI in the query is a part of it; other bytes than those of a URI are escaped, as Go does.
#[test]
fn targets_of_checks() {
    for (uri, want) in [("/probe?target=http://db:80/ping", "/probe?target=http://db:80/ping"), ("/ü a", "/%C3%BC%20a")]
    {
        let (_, calls) = checked(json!({ "uri": uri }));
        assert_eq!(calls[0].request_text(), format!("GET {want}\nHost: a:1\nUser-Agent: Causeway"));
    }
    let options = two(json!({ "active": { "uri": "/100%" } }));
    let routes = json!([{ "handle": [proxy(options)] }]);
    let error = Kit::build(&registry(), &routes, &Value::Null).err().expect("Caddy refuses it too").to_string();
    assert!(error.contains("found '/100%'"), "{error}");
}

#[test]
fn redirects_of_a_check() {
    let (mut kit, mut calls) = checked(json!({ "uri": "/a", "follow_redirects": true, "method": "POST" }));
    drop(calls.pop());
    let mut call = calls.remove(0);
    for (status, location, want) in [
        (307, "/b", "POST /b\nHost: a:1\nUser-Agent: Causeway"),
        (302, "http://other.example/c?d", "GET /c?d\nHost: other.example\nUser-Agent: Causeway"),
        (
            308,
            "/e/f?from=http://third.example/",
            "GET /e/f?from=http://third.example/\nHost: other.example\nUser-Agent: Causeway",
        ),
        (303, "../g", "GET /g\nHost: other.example\nUser-Agent: Causeway"),
        (301, "//last.example", "GET /\nHost: last.example\nUser-Agent: Causeway"),
    ] {
        call.answer(status, &[("Location", location)], Some(0));
        call.end();
        drop(call);
        call = round(&mut kit).remove(0);
        assert_eq!((call.request_text().as_str(), &*call.address), (want, "a:1"));
    }
    for _ in 0..8 {
        call.answer(302, &[("Location", "/a")], Some(0));
        call.end();
        drop(call);
        let mut next = round(&mut kit);
        if next.is_empty() {
            break;
        }
        call = next.remove(0);
    }
    assert_eq!(kit.send(&Request::get("/")).status, 503, "an endless redirect is a failure");
}

// Caddy, `health_passes` and `health_fails`: so many results in a row change the state.
#[test]
fn results_in_a_row() {
    let (mut kit, mut calls) = checked(json!({ "uri": "/", "interval": "1s", "fails": 2, "passes": 3 }));
    for (status, want) in
        [(500, "a:1"), (200, "a:1"), (500, "a:1"), (500, "b:1"), (200, "b:1"), (200, "b:1"), (500, "b:1")]
            .into_iter()
            .chain([(200, "b:1"), (200, "b:1"), (200, "a:1")])
    {
        pass(&kit, calls.pop().unwrap(), 200, b"");
        pass(&kit, calls.pop().unwrap(), status, b"");
        assert_eq!(selected_address(&mut kit), want);
        kit.worker().advance(SECOND);
        calls = round(&mut kit);
    }
}

// Caddy: `health_port` replaces the port, `health_upstream` the whole address.
#[test]
fn checks_of_another_address() {
    for (checks, want) in [
        (json!({ "port": 81 }), ["a:81", "b:81"]),
        (json!({ "uri": "/", "upstream": "c:9", "port": 81 }), ["c:9", "c:9"]),
    ] {
        let (_, calls) = checked(checks);
        assert_eq!(calls.iter().map(|call| &*call.address).collect::<Vec<_>>(), want);
    }
    let mut options = two(json!({ "active": { "port": 81 } }));
    options["upstreams"] = json!([{ "dial": "[::1]:80" }]);
    let mut kit = kit(options);
    assert_eq!(&*round(&mut kit)[0].address, "[::1]:81");
}

// One worker checks; the checks of a plan end when a new plan checks the same, and the result stays.
#[test]
fn one_plan_checks() {
    let registry = registry();
    let routes = json!([{ "handle": [proxy(two(json!({ "active": { "uri": "/" } })))] }]);
    let mut kit = Kit::new(&registry, &routes);
    let calls = round(&mut kit);
    calls.into_iter().for_each(|call| pass(&kit, call, 500, b""));
    kit.reload(&registry, &routes, &Value::Null);
    assert_eq!(kit.send(&Request::get("/")).status, 503, "the state of the upstreams is kept");
    let calls = round(&mut kit);
    assert_eq!(calls.len(), 2, "the new plan checks at once");
    assert_eq!(kit.worker().drive_spawned(), 2, "the old plan's checks have ended, and closed their connections");
    calls.into_iter().for_each(|call| pass(&kit, call, 200, b""));
    kit.worker().advance(30 * SECOND);
    assert_eq!(round(&mut kit).len(), 2, "and only that plan");
    // An upstream that no plan has is not checked.
    kit.reload(&registry, &json!([]), &Value::Null);
    kit.forget_storage();
    // The checks in progress hold the plan; the last one's end wakes the others.
    kit.worker().drive_spawned();
    assert_eq!(kit.worker().drive_spawned(), 0);
}

// Without a URI and a port there are no active checks, as in Caddy.
#[test]
fn checks_that_are_not_enabled() {
    let (mut kit, calls) = checked(json!({ "interval": "1s" }));
    assert!(calls.is_empty());
    assert_eq!(exchange(&mut kit, &Request::get("/"), &[]).status, 200);
}
