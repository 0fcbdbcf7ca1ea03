use std::collections::BTreeSet;

use causeway_testkit::{FakeCall, Kit, Pending, Request};
use serde_json::{Value, json};

use super::{exchange, kit, start_call};

const DIALS: [&str; 4] = ["a:1", "b:1", "c:1", "d:1"];

fn balanced(policy: Value) -> Kit {
    of(policy, &DIALS.map(|dial| json!({ "dial": dial })))
}

fn of(policy: Value, upstreams: &[Value]) -> Kit {
    kit(json!({ "upstreams": upstreams, "load_balancing": { "selection_policy": policy } }))
}

/// Returns the selected upstream, and cancels the request.
#[track_caller]
fn chosen(kit: &mut Kit, request: &Request) -> String {
    let (call, pending) = start_call(kit, request);
    pending.cancel(kit);
    call.address.to_string()
}

/// Sends requests that remain in progress.
#[track_caller]
fn hold(kit: &mut Kit, count: usize) -> Vec<(FakeCall, Pending)> {
    (0..count).map(|_| start_call(kit, &Request::get("/"))).collect()
}

// Caddy, selectionpolicies.go: each policy's own order.
#[test]
fn orders() {
    let get = Request::get("/");
    let turns = |policy: Value| -> Vec<String> {
        let mut kit = balanced(policy);
        (0..6).map(|_| chosen(&mut kit, &get)).collect()
    };
    assert_eq!(turns(json!({ "policy": "round_robin" })), ["b:1", "c:1", "d:1", "a:1", "b:1", "c:1"]);
    assert_eq!(turns(json!({ "policy": "first" })), ["a:1"; 6]);
    assert_eq!(
        turns(json!({ "policy": "weighted_round_robin", "weights": [2, 0, 1] })),
        ["a:1", "c:1", "a:1", "a:1", "c:1", "a:1"]
    );
    for policy in [
        json!({ "policy": "random" }),
        json!({ "policy": "random_choose", "choose": 3 }),
        json!({ "policy": "least_conn" }),
    ] {
        let mut kit = balanced(policy.clone());
        let chosen_upstreams: BTreeSet<_> = (0..100).map(|_| chosen(&mut kit, &get)).collect();
        assert_eq!(chosen_upstreams.len(), 4, "{policy}: all of them have a chance");
    }
}

// Caddy: at most `max_requests` requests for each upstream; 503 if all are at their limit.
#[test]
fn limits_of_requests() {
    let upstreams = [json!({ "dial": "a:1", "max_requests": 1 }), json!({ "dial": "b:1", "max_requests": 2 })];
    for policy in ["random", "round_robin", "first", "least_conn", "random_choose", "uri_hash"] {
        let mut kit = of(json!({ "policy": policy }), &upstreams);
        let held = hold(&mut kit, 3);
        let mut chosen_upstreams: Vec<_> = held.iter().map(|(call, _)| &*call.address).collect();
        chosen_upstreams.sort_unstable();
        assert_eq!(chosen_upstreams, ["a:1", "b:1", "b:1"], "{policy}");
        assert_eq!(kit.send(&Request::get("/")).status, 503, "{policy}");
        for (_, pending) in held {
            pending.cancel(&mut kit);
        }
        assert_eq!(exchange(&mut kit, &Request::get("/"), &[]).status, 200, "{policy}: there is room again");
    }
    // A request counts until its response is read, and a configuration that keeps the upstream keeps the count.
    let (registry, routes) =
        (super::registry(), json!([{ "handle": [super::proxy(json!({ "upstreams": upstreams[..1] }))] }]));
    let mut kit = Kit::new(&registry, &routes);
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(200, &[], Some(0));
    assert_eq!(kit.send(&Request::get("/")).status, 503);
    // The limit is for all workers together.
    assert_eq!(Kit::new(&registry, &routes).send(&Request::get("/")).status, 503);
    kit.reload(&registry, &routes, &Value::Null);
    assert_eq!(kit.send(&Request::get("/")).status, 503);
    call.end();
    assert_eq!(pending.finish(&mut kit).status, 200);
    assert_eq!(exchange(&mut kit, &Request::get("/"), &[]).status, 200);
}

// Caddy, least_conn: the upstream with the fewest requests in progress.
#[test]
fn the_fewest_requests() {
    let mut kit = balanced(json!({ "policy": "least_conn" }));
    let mut held = hold(&mut kit, 4);
    let chosen_upstreams: BTreeSet<_> = held.iter().map(|(call, _)| call.address.clone()).collect();
    assert_eq!(chosen_upstreams.len(), 4, "one each");
    for _ in 0..4 {
        let (call, pending) = held.remove(0);
        pending.cancel(&mut kit);
        let next = start_call(&mut kit, &Request::get("/"));
        assert_eq!(next.0.address, call.address, "the one with none");
        held.push(next);
    }
    // Those of other workers count too.
    let (registry, policy) = (super::registry(), json!({ "policy": "least_conn" }));
    let upstreams = [json!({ "dial": "a:1" }), json!({ "dial": "b:1" })];
    let proxy = super::proxy(json!({ "upstreams": upstreams, "load_balancing": { "selection_policy": policy } }));
    let routes = json!([{ "handle": [proxy] }]);
    let (mut one, mut other) = (Kit::new(&registry, &routes), Kit::new(&registry, &routes));
    let (busy, _held) = start_call(&mut one, &Request::get("/"));
    for _ in 0..10 {
        assert_ne!(chosen(&mut other, &Request::get("/")), &*busy.address);
    }
}

// Rendezvous hashing with xxHash of address and key, as in Caddy: every machine of a fleet selects the same upstream.
#[test]
fn hashes() {
    let peer = |last: u8| Request::get("/").peer(([192, 0, 2, last], 1).into());
    let choices = |policy: Value, requests: &[Request]| -> Vec<String> {
        let mut kit = balanced(policy);
        let first: Vec<_> = requests.iter().map(|request| chosen(&mut kit, request)).collect();
        let again: Vec<_> = requests.iter().map(|request| chosen(&mut kit, request)).collect();
        assert_eq!(first, again, "the same key, the same server");
        first
    };
    let targets: Vec<_> = (0..40).map(|number| Request::get(&format!("/{number}"))).collect();
    let of_uri = choices(json!({ "policy": "uri_hash" }), &targets);
    assert_eq!(of_uri.iter().collect::<BTreeSet<_>>().len(), 4);
    let peers: Vec<_> = (1..40).map(peer).collect();
    let of_peer = choices(json!({ "policy": "ip_hash" }), &peers);
    assert_eq!(
        of_peer,
        choices(json!({ "policy": "client_ip_hash" }), &peers),
        "without trusted proxies the client is the peer"
    );
    assert_eq!(of_peer.iter().collect::<BTreeSet<_>>().len(), 4);
    // A key with equal bytes selects the same upstream, wherever it is taken from.
    let keyed: Vec<_> =
        (0..40).map(|number| Request::get(&format!("/?k=/{number}")).field("K", format!("/{number}"))).collect();
    assert_eq!(choices(json!({ "policy": "header", "field": "k" }), &keyed), of_uri);
    assert_eq!(choices(json!({ "policy": "query", "key": "k" }), &keyed), of_uri);
    let without = choices(json!({ "policy": "header", "field": "K", "fallback": { "policy": "first" } }), &targets);
    assert!(without.iter().all(|address| address == "a:1"));
    // Removing an upstream moves only its own requests.
    let mut three =
        of(json!({ "policy": "uri_hash" }), &DIALS[..3].iter().map(|dial| json!({ "dial": dial })).collect::<Vec<_>>());
    for (request, before) in targets.iter().zip(&of_uri).filter(|(_, before)| *before != "d:1") {
        assert_eq!(chosen(&mut three, request), *before);
    }
}

// Caddy: a policy reads the request for the upstream: with the fields that the proxy sets, and after its `rewrite`.
#[test]
fn keys_of_the_upstreams_request() {
    let dials = DIALS.map(|dial| json!({ "dial": dial }));
    let of = |policy: Value, rewrite: Value| {
        kit(json!({ "upstreams": dials, "load_balancing": { "selection_policy": policy }, "rewrite": rewrite }))
    };
    let by_field = |field: &str| json!({ "policy": "header", "field": field });
    let by_query = json!({ "policy": "query", "key": "k" });
    let mut plain = of(by_field("K"), json!({}));
    for number in 0..40 {
        let want = |key: &str, plain: &mut Kit| chosen(plain, &Request::get("/").field("K", key));
        let address = format!("192.0.2.{number}");
        let client = Request::get(&format!("/{number}"))
            .peer((address.parse::<std::net::Ipv4Addr>().unwrap(), 1).into())
            .field("X-Forwarded-For", "10.9.9.9")
            .field("Connection", "X-Named")
            .field("X-Named", "x");
        let uri = || json!({ "uri": "/new{http.request.uri.path}?k={http.request.uri.path.0}" });
        for (policy, rewrite, key) in [
            (by_field("X-Forwarded-For"), json!({}), address.clone()),
            (by_field("Via"), json!({}), "1.1 Causeway".to_owned()),
            (json!({ "policy": "uri_hash" }), json!({}), format!("/{number}")),
            (json!({ "policy": "uri_hash" }), uri(), format!("/new/{number}?k={number}")),
            (by_query.clone(), uri(), number.to_string()),
        ] {
            let mut kit = of(policy.clone(), rewrite);
            assert_eq!(chosen(&mut kit, &client), want(&key, &mut plain), "{policy} {key}");
        }
        // A field that belongs to the client's connection is no key.
        let mut policy = by_field("X-Named");
        policy["fallback"] = json!({ "policy": "first" });
        assert_eq!(chosen(&mut of(policy, json!({})), &client), "a:1");
    }
}

// Caddy, CookieHashSelection: a new client gets a Set-Cookie; a client that returns the cookie keeps its upstream.
#[test]
fn cookies() {
    let policy = json!({ "policy": "cookie", "name": "stay", "secret": "s", "max_age": "1h", "fallback": { "policy": "round_robin" } });
    let mut kit = balanced(policy);
    let answer = exchange(&mut kit, &Request::get("/"), &[]);
    let set_cookie = answer.field("Set-Cookie").expect("a cookie").to_owned();
    let (pair, rest) = set_cookie.split_once("; ").expect("attributes");
    assert_eq!(rest, "Path=/; Max-Age=3600; HttpOnly; SameSite=Lax");
    // HMAC-SHA-256 of "b:1" with the key "s", by `openssl dgst -hmac`.
    assert_eq!(pair, "stay=4b61d63834972f0ccc7fd44b9119f2173a05636d939757d9ce7af7ac016447b3");
    for _ in 0..3 {
        let request = Request::get("/").field("Cookie", format!("x=1; {pair}"));
        let (call, pending) = start_call(&mut kit, &request);
        assert_eq!(&*call.address, "b:1");
        call.answer(200, &[], Some(0));
        call.end();
        assert_eq!(pending.finish(&mut kit).field("Set-Cookie"), None, "the client has the cookie");
    }
    let answer = exchange(&mut kit, &Request::get("/").secure().field("Cookie", "stay=else"), &[]);
    let set_cookie = answer.field("Set-Cookie").expect("another cookie");
    assert!(set_cookie.ends_with("; Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=None"), "{set_cookie}");
}

// RFC 6265 §5.2.2: `Max-Age=0` would delete the cookie. As in Caddy, less than a second sets none.
#[test]
fn a_cookie_of_less_than_a_second() {
    for (max_age, want) in [("500ms", None), ("1500ms", Some("1"))] {
        let mut kit = balanced(json!({ "policy": "cookie", "max_age": max_age }));
        let answer = exchange(&mut kit, &Request::get("/"), &[]);
        let mut attributes = answer.field("Set-Cookie").expect("a cookie").split("; ");
        assert_eq!(attributes.find_map(|attribute| attribute.strip_prefix("Max-Age=")), want, "{max_age}");
    }
}
