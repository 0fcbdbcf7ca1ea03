//! Handlers that are `async` functions.

use std::time::Duration;

use causeway_message::{FieldValue, NameRef, StatusCode, names};
use causeway_pipeline::{AsyncResponse, Fault, Registry, Request, Sleep, async_handler};
use causeway_testkit::{Kit, Request as Sent};
use serde_json::json;

use crate::probe::registry;

fn with(name: &str, make: impl Fn(&mut Registry)) -> Kit {
    let mut registry = registry();
    make(&mut registry);
    // The handler sees earlier changes to the request, and the response keeps the fields set before.
    let routes = json!([{ "handle": [
        { "handler": "probe", "mark": "a", "set_target": "/other?x" },
        { "handler": name },
    ] }]);
    Kit::new(&registry, &routes)
}

async fn echo(mut request: Request) -> Result<AsyncResponse, Fault> {
    let bytes = request.bytes(8).await?;
    let line = format!("{} {}", request.method().as_str(), String::from_utf8_lossy(request.path()));
    let seen = FieldValue::parse(line.as_bytes()).expect("it came as text");
    Ok(AsyncResponse::new(StatusCode::ACCEPTED).field(NameRef::Other("Seen"), seen).content(bytes))
}

#[test]
fn a_request_and_a_response() {
    let mut kit = with("echo", |registry| registry.register_handler("echo", |_, _| Ok(Box::new(async_handler(echo)))));
    let answer = kit.send(&Sent::new("POST", "/x").content("hello"));
    assert_eq!((answer.status, answer.text()), (202, "hello"));
    assert_eq!(answer.values("Seen").collect::<Vec<_>>(), ["POST /other"]);
    let answer = kit.send(&Sent::new("POST", "/x").content("too long a text"));
    assert_eq!((answer.status, answer.text()), (413, ""));
}

#[test]
fn types_that_become_responses() {
    for (path, status, kind, text) in [
        ("/text", 200, Some("text/plain; charset=utf-8"), "some text"),
        ("/status", 204, None, ""),
        ("/bytes", 418, None, "some bytes"),
        ("/fault", 503, None, ""),
    ] {
        let mut registry = registry();
        registry.register_handler("text", |_, _| Ok(Box::new(async_handler(|_| async { Ok("some text") }))));
        registry
            .register_handler("status", |_, _| Ok(Box::new(async_handler(|_| async { Ok(StatusCode::NO_CONTENT) }))));
        let teapot = || StatusCode::new(418).expect("a status");
        registry.register_handler("bytes", move |_, _| {
            Ok(Box::new(async_handler(move |_| async move { Ok((teapot(), b"some bytes".to_vec())) })))
        });
        registry.register_handler("fault", |_, _| {
            Ok(Box::new(async_handler(|_| async { Err::<AsyncResponse, _>(Fault::busy()) })))
        });
        let routes = json!([{ "handle": [{ "handler": &path[1..] }] }]);
        let answer = Kit::new(&registry, &routes).send(&Sent::get(path));
        assert_eq!((answer.status, answer.text()), (status, text), "{path}");
        assert_eq!(answer.values(names::CONTENT_TYPE.as_str()).next(), kind, "{path}");
    }
}

// An async handler waits as any handler does, and is dropped with its exchange.
#[test]
fn a_handler_may_sleep() {
    let mut kit = with("sleepy", |registry| {
        registry.register_handler("sleepy", |_, _| {
            Ok(Box::new(async_handler(|request| async move {
                let worker = request.worker();
                Sleep::until(worker.clone(), worker.now() + Duration::from_secs(1)).await;
                Ok("awake")
            })))
        });
    });
    let Err(pending) = kit.send_pending(&Sent::get("/")) else { panic!("it sleeps") };
    let Err(pending) = pending.poll(&mut kit) else { panic!("it sleeps") };
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(pending.poll(&mut kit).ok().expect("awake").text(), "awake");
    let Err(pending) = kit.send_pending(&Sent::get("/")) else { panic!("it sleeps") };
    let Err(pending) = pending.poll(&mut kit) else { panic!("it sleeps") };
    assert_eq!(kit.worker().sleepers(), 1);
    pending.cancel(&mut kit);
    assert_eq!(kit.worker().sleepers(), 0);
}
