//! Waits, and their cost.

use std::time::Duration;

use causeway_testkit::counting::allocations_during;
use causeway_testkit::{Kit, Request};
use serde_json::json;

use crate::probe::{registry, traced};

#[test]
fn a_wait_resumes_at_the_waiting_handler() {
    for (doors, body, want) in [
        (["sleep", "respond"], "x", "in a, in b, slept, out a"),
        (["sleep-next", "respond"], "x", "in a, in b, slept, in c, out b, out a"),
        (["sleep-next", "sleep"], "x", "in a, in b, slept, in c, slept, out b, out a"),
        (["block", "respond"], "x", "in a, in b, blocked 42, in c, out b, out a"),
    ] {
        let routes = json!([{ "handle": [
            { "handler": "probe", "mark": "a" },
            { "handler": "probe", "mark": "b", "enter": doors[0], "body": body },
            { "handler": "probe", "mark": "c", "enter": doors[1], "body": body },
        ] }]);
        let answer = Kit::new(&registry(), &routes).send(&Request::get("/"));
        assert_eq!((answer.status, answer.text(), &*traced(&answer)), (200, body, want), "{doors:?}");
    }
    let back = json!([{ "handle": [
        { "handler": "probe", "mark": "a" },
        { "handler": "probe", "mark": "b", "leave": "sleep", "body": "late" },
    ] }]);
    let answer = Kit::new(&registry(), &back).send(&Request::get("/"));
    assert_eq!((answer.text(), &*traced(&answer)), ("late", "in a, in b, out b, slept, out a"));
}

// `Step::Next`: on the response pass there is no next handler, so it is a handler's error, also in the result
// of a wait.
#[test]
fn a_wait_of_the_response_pass_enters_no_handler() {
    let probe = |mark: &str, action: &str, word: &str| json!({ "handler": "probe", "mark": mark, action: word });
    for (action, end, want) in [
        ("leave", "respond", "in a, in b, in c, out b, slept, failed a"),
        ("failed", "404", "in a, in b, in c, failed b, slept, failed a"),
    ] {
        let routes = json!([{ "handle": [
            { "handler": "probe", "mark": "a" },
            probe("b", action, "sleep-next"),
            probe("c", "enter", end),
            { "handler": "probe", "mark": "d" },
        ] }]);
        let answer = Kit::new(&registry(), &routes).send(&Request::get("/"));
        assert_eq!((answer.status, &*traced(&answer)), (500, want), "{action}");
    }
}

#[test]
fn a_wait_lasts_at_least_until_its_deadline() {
    let routes = json!([{ "handle": [{ "handler": "probe", "mark": "a", "enter": "sleep", "body": "x" }] }]);
    let mut kit = Kit::new(&registry(), &routes);
    let Err(pending) = kit.send_pending(&Request::get("/")) else { panic!("it sleeps") };
    let Err(pending) = pending.poll(&mut kit) else { panic!("it sleeps") };
    kit.worker().advance(Duration::from_millis(999));
    assert!(!pending.take_woken(&kit));
    let Err(pending) = pending.poll(&mut kit) else { panic!("it sleeps") };
    kit.worker().advance(Duration::from_millis(1));
    assert!(pending.take_woken(&kit));
    assert_eq!(pending.poll(&mut kit).ok().expect("awake").text(), "x");
    // A dropped wait removes its timer.
    let Err(pending) = kit.send_pending(&Request::get("/")) else { panic!("it sleeps") };
    let Err(pending) = pending.poll(&mut kit) else { panic!("it sleeps") };
    assert_eq!((kit.worker().sleepers(), pending.context().is_waiting()), (1, true));
    pending.cancel(&mut kit);
    assert_eq!(kit.worker().sleepers(), 0);
}

#[test]
fn a_full_pool_is_503() {
    let routes = json!([{ "handle": [{ "handler": "probe", "mark": "a", "enter": "block" }] }]);
    let mut kit = Kit::new(&registry(), &routes);
    kit.worker().queue_jobs(1);
    let Err(first) = kit.send_pending(&Request::get("/")) else { panic!("it waits") };
    assert_eq!(kit.send(&Request::get("/")).status, 503);
    assert_eq!(first.finish(&mut kit).status, 200);
}

#[test]
fn waits_allocate_nothing_in_steady_state() {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let routes = json!([{ "handle": [
        { "handler": "probe", "mark": "a", "set_field": ["A", "{http.request.uri}"], "set_target": "/b%20c?d" },
        { "handler": "probe", "mark": "b", "enter": "sleep-next", "set_variable": ["v", "{http.request.uri.path}"] },
        { "handler": "probe", "mark": "c", "enter": "sleep", "body": "{http.vars.v} {http.request.uuid}" },
    ] }]);
    let mut kit = Kit::new(&registry(), &routes);
    let request = Request::get("/a").field("X-Some", "field");
    // `run` does not call `Handler::end`, so the probes' own log is not counted.
    (0..3).for_each(|_| kit.run(&request));
    assert_eq!(allocations_during(|| (0..1000).for_each(|_| kit.run(&request))), 0);
}
