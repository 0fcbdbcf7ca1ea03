use base64::prelude::BASE64_STANDARD;
use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Map, json};

use super::hash::{Argon2idCost, argon2id_string, bcrypt};
use super::*;

/// Output of `caddy hash-password` for "hunter2": hashes made by other programs must be accepted too.
const CADDYS_BCRYPT: &str = "$2a$04$eacDgGyA5WnYuIRMt/.7FuPAyDKvLjzukLw0i1QXLV.WA/p54x0eG";
const CADDYS_ARGON2ID: &str =
    "$argon2id$v=19$m=64,t=2,p=3$pwwa0+SgjnmuifncZEHNWA$2NdM58hK8M7xHBoTm6MJec/ap5VbTD5MaSSBdqqPTj8";

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.set_environment(|name| (name == "HASH").then(|| bcrypt(b"env", 4).expect("a hash")));
    crate::register(&mut registry);
    registry
}

fn routes(basic: Value) -> Value {
    let handler = json!({ "handler": "authentication", "providers": { "http_basic": basic } });
    let respond = json!({ "handler": "static_response", "body": "hello {http.auth.user.id}" });
    json!([{ "handle": [handler, respond] }])
}

fn account(name: &str, password: &str) -> Value {
    json!({ "username": name, "password": bcrypt(password.as_bytes(), 4).expect("a hash") })
}

fn with(credentials: &str) -> Request {
    Request::get("/").field("Authorization", format!("Basic {}", BASE64_STANDARD.encode(credentials)))
}

#[track_caller]
fn check(kit: &mut Kit, request: &Request, want: Option<&str>) {
    let TestResponse { status, .. } = kit.send(request);
    let answer = kit.send(request);
    assert_eq!(status, answer.status, "the second answer");
    match want {
        Some(user) => assert_eq!((status, answer.text()), (200, &*format!("hello {user}"))),
        None => assert_eq!((status, answer.field("www-authenticate")), (401, Some("Basic realm=\"restricted\""))),
    }
}

// Caddy, http.authentication.providers.http_basic, and RFC 7617 §2: the name ends at the first colon.
#[test]
fn credentials() {
    let accounts = json!([
        account("alice", "hunter2"),
        account("bob", "a:b"),
        account("\u{fc}", ""),
        { "username": "caddy", "password": CADDYS_BCRYPT },
        { "username": "{env.NONE}env", "password": "{env.HASH}" },
        { "username": "twice", "password": BASE64_STANDARD.encode(CADDYS_BCRYPT) },
    ]);
    for cache in [false, true] {
        let mut basic = json!({ "accounts": accounts });
        if cache {
            basic["hash_cache"] = json!({});
        }
        let mut kit = Kit::new(&registry(), &routes(basic));
        for (credentials, want) in [
            ("alice:hunter2", Some("alice")),
            ("alice:hunter3", None),
            ("alice:", None),
            ("Alice:hunter2", None),
            ("mallory:hunter2", None),
            (":hunter2", None),
            ("bob:a:b", Some("bob")),
            ("bob:a", None),
            ("\u{fc}:", Some("\u{fc}")),
            ("caddy:hunter2", Some("caddy")),
            ("env:env", Some("env")),
            ("twice:hunter2", Some("twice")),
            ("alice", None),
        ] {
            check(&mut kit, &with(credentials), want);
        }
        check(&mut kit, &Request::get("/"), None);
        let raw = |value: &str| Request::get("/").field("Authorization", value);
        check(&mut kit, &raw("bASIC YWxpY2U6aHVudGVyMg=="), Some("alice"));
        for malformed in ["Basic", "Basic =", "Basic !", "Basic YWxpY2U6aHVudGVyMg", "Bearer YWxpY2U6aHVudGVyMg==", ""]
        {
            check(&mut kit, &raw(malformed), None);
        }
    }
}

#[test]
fn argon2id() {
    let cost = Argon2idCost { time: 1, memory: 64, lanes: 1, key_len: 32 };
    let own = argon2id_string(b"hunter2", cost).expect("a hash");
    assert!(own.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{own}");
    let accounts = json!([
        { "username": "own", "password": own }, { "username": "caddy", "password": CADDYS_ARGON2ID },
    ]);
    let basic = json!({ "hash": { "algorithm": "argon2id" }, "accounts": accounts, "realm": "r" });
    let mut kit = Kit::new(&registry(), &routes(basic));
    check(&mut kit, &with("own:hunter2"), Some("own"));
    check(&mut kit, &with("caddy:hunter2"), Some("caddy"));
    for credentials in ["own:hunter3", "caddy:hunter", "x:hunter2"] {
        let answer = kit.send(&with(credentials));
        assert_eq!((answer.status, answer.field("www-authenticate")), (401, Some("Basic realm=\"r\"")));
    }
}

// bcrypt uses 72 bytes: a longer password is cut when it is verified, as in Go, and rejected when it is hashed.
#[test]
fn long_passwords() {
    let long = "x".repeat(72);
    let accounts = json!([account("a", &long)]);
    let mut kit = Kit::new(&registry(), &routes(json!({ "accounts": accounts })));
    check(&mut kit, &with(&format!("a:{long}y")), Some("a"));
    check(&mut kit, &with(&format!("a:{}", &long[1..])), None);
    let error = bcrypt(&[b'x'; 73], 4).expect_err("it is too long").to_string();
    assert_eq!(error, "found a password of 73 bytes, bcrypt takes at most 72");
    assert!(bcrypt(b"x", 3).is_err() && bcrypt(b"x", 32).is_err());
}

// Caddy: without a provider or accounts a request is never authenticated; an unknown name is hashed as well.
#[test]
fn unauthenticated_requests() {
    for routes in [json!([{ "handle": [{ "handler": "authentication" }] }]), routes(json!({ "accounts": [] }))] {
        assert_eq!(Kit::new(&registry(), &routes).send(&with("a:b")).status, 401);
    }
    let mut kit = Kit::new(&registry(), &routes(json!({ "accounts": [account("alice", "x")] })));
    for (credentials, jobs) in [("alice:x", 1), ("alice:y", 2), ("mallory:x", 3), ("none", 3)] {
        kit.send(&with(credentials));
        assert_eq!(kit.worker().jobs_seen(), jobs, "{credentials}");
    }
}

#[test]
fn errors_are_handled_and_the_pool_is_bounded() {
    let errors = json!([{ "handle": [{ "handler": "static_response", "body": "{http.error.status_code} {http.error.message}" }] }]);
    for cache in [false, true] {
        let mut basic = json!({ "accounts": [account("alice", "x")] });
        if cache {
            basic["hash_cache"] = json!({});
        }
        let mut kit = Kit::with_errors(&registry(), &routes(basic), &errors);
        let answer = kit.send(&with("alice:y"));
        assert_eq!((answer.status, answer.text()), (401, "401 not authenticated"));
        assert!(answer.field("www-authenticate").is_some(), "it survives into the error routes");
        kit.worker().queue_jobs(0);
        let answer = kit.send(&with("alice:z"));
        assert_eq!((answer.status, answer.text()), (503, "503 the queue of blocking work is full"));
    }
}

// Caddy, `hash_cache`: a password is hashed once, also for concurrent requests.
#[test]
fn cache() {
    let basic = json!({ "accounts": [account("alice", "x"), account("bob", "x")], "hash_cache": {} });
    let mut kit = Kit::new(&registry(), &routes(basic.clone()));
    kit.worker().queue_jobs(10);
    let first = kit.send_pending(&with("alice:x")).expect_err("it waits");
    let second = kit.send_pending(&with("alice:x")).expect_err("it waits for the same");
    let other = kit.send_pending(&with("bob:x")).expect_err("it waits for another");
    assert_eq!(kit.worker().jobs_seen(), 2);
    // The first client disconnects; the other requests still get the result.
    first.cancel(&mut kit);
    assert_eq!((second.finish(&mut kit).status, other.finish(&mut kit).status), (200, 200));
    for _ in 0..3 {
        assert_eq!(kit.send(&with("alice:x")).status, 200);
    }
    assert_eq!(kit.worker().jobs_seen(), 2);
    for _ in 0..3 {
        assert_eq!(kit.send(&with("mallory:x")).status, 401);
        assert_eq!(kit.send(&with("alice:no")).status, 401);
    }
    // A refused password is hashed again for another unknown name, as for the name of an account: the times are equal.
    assert_eq!(kit.send(&with("trudy:x")).status, 401);
    kit.reload(&registry(), &routes(basic), &Value::Null);
    assert_eq!(kit.send(&with("alice:x")).status, 200);
    assert_eq!(
        kit.worker().jobs_seen(),
        5,
        "failures are cached too, separately for unknown names; a reload keeps the cache"
    );
    for number in 0..1500 {
        kit.send(&with(&format!("none:{number}")));
    }
    assert_eq!(kit.worker().jobs_seen(), 1505);
    assert_eq!(kit.send(&with("bob:x")).status, 200);
}

// A password whose requests are all cancelled is not hashed, with or without a cache; a later request hashes it.
#[test]
fn abandoned() {
    for cache in [false, true] {
        let mut basic = json!({ "accounts": [account("alice", "x")] });
        if cache {
            basic["hash_cache"] = json!({});
        }
        let mut kit = Kit::new(&registry(), &routes(basic));
        kit.worker().queue_jobs(10);
        let pending: Vec<_> = (0..2).map(|_| kit.send_pending(&with("alice:x")).expect_err("it waits")).collect();
        let queued = kit.worker().jobs_seen();
        pending.into_iter().for_each(|pending| pending.cancel(&mut kit));
        assert_eq!(kit.worker().drop_abandoned(), queued, "cache: {cache}");
        // Also before the cache's task has run again.
        let pending = kit.send_pending(&with("alice:x")).expect_err("it is hashed anew");
        assert_eq!(pending.finish(&mut kit).status, 200);
        assert_eq!(kit.worker().jobs_seen(), queued + 1);
        assert_eq!(kit.send(&with("alice:x")).status, 200);
    }
}

// Waiting jobs count against the account, whether it exists or not, and against the client: an IPv6 client is a whole
// /64.
#[test]
fn password_checks_count_for_account_and_client() {
    let mut kit = Kit::new(&registry(), &routes(json!({ "accounts": [account("alice", "x")] })));
    let mut work = |name: &str, peer: &str| {
        kit.send(&with(&format!("{name}:y")).peer(peer.parse().expect("an address")));
        *kit.worker().work_seen().last().expect("a job")
    };
    let first = work("alice", "192.0.2.1:1");
    assert_eq!((first.kind(), first.parties().count()), (WorkKind::Password, 2));
    assert_eq!(work("alice", "192.0.2.1:2"), first, "the port is not the client's");
    assert_eq!(work("alice", "[::ffff:192.0.2.1]:1"), first);
    for (name, peer, shared) in [
        ("alice", "192.0.2.2:1", 1),
        ("mallory", "192.0.2.1:1", 1),
        ("mallory", "192.0.2.2:1", 0),
        ("alice", "[2001:db8::1]:1", 1),
    ] {
        let other = work(name, peer);
        assert_eq!(
            first.parties().filter(|party| other.parties().any(|other| other == *party)).count(),
            shared,
            "{name} {peer}"
        );
    }
    assert_eq!(work("bob", "[2001:db8::1]:1"), work("bob", "[2001:db8::ffff:0:2]:9"));
    assert_ne!(work("bob", "[2001:db8::1]:1"), work("bob", "[2001:db8:0:1::1]:1"));
}

#[test]
fn refused() {
    let hash = || bcrypt(b"x", 4).expect("a hash");
    for (basic, want) in [
        (
            json!({ "accounts": [{ "username": "a" }] }),
            "accounts[0]: found 'no password', expected a username and a password",
        ),
        (json!({ "accounts": [{ "password": hash() }] }), "accounts[0]: found 'no username'"),
        (
            json!({ "accounts": [account("a", "x"), account("a", "y")] }),
            "accounts[1]: found 'a', expected a username that no account before it has",
        ),
        (
            json!({ "accounts": [{ "username": "a", "password": "secret" }] }),
            "accounts[0]: found 'a', expected a user with a bcrypt hash",
        ),
        (
            json!({ "accounts": [{ "username": "a", "password": CADDYS_ARGON2ID }] }),
            "accounts[0]: found 'a', expected a user with a bcrypt hash, as `causeway hash-password` prints it; a hash of argon2id needs \
             'basic_auth argon2id'",
        ),
        (json!({ "accounts": [{ "username": "a", "password": "$2a$04$x" }] }), "expected a user with a bcrypt hash"),
        (
            json!({ "hash": { "algorithm": "argon2id" }, "accounts": [{ "username": "a", "password": hash() }] }),
            "expected a user with an argon2id hash",
        ),
        (json!({ "hash": { "algorithm": "scrypt" } }), "hash.algorithm: found 'scrypt', expected bcrypt or argon2id"),
        (json!({ "realm": "a\nb" }), "realm: found 'a\\nb'"),
        (json!({ "user": [] }), "unknown field `user`"),
    ] {
        let error = Kit::build(&registry(), &routes(basic), &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
        assert!(!error.to_string().contains("secret"));
    }
    let other = Map::from_iter([("jwt".to_owned(), json!({}))]);
    let routes = json!([{ "handle": [{ "handler": "authentication", "providers": other }] }]);
    let error = Kit::build(&registry(), &routes, &Value::Null).err().expect("it is not supported");
    assert!(error.to_string().contains("providers: found 'jwt', expected http_basic"), "{error}");
}
