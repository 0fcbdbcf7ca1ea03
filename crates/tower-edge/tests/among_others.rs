//! A service as a handler of a plan: it sees the changes of earlier handlers, and its errors reach the error routes.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::routing::get;
use causeway_message::{FieldValue, Head, Method, NameRef, StatusCode};
use causeway_pipeline::{Context, Handler, Registry, Response, Step};
use causeway_testkit::{Kit, Request as Ask};
use serde_json::{Value, json};

/// Rewrites the request and sets fields of the response.
struct Before;

impl Handler for Before {
    fn enter(&self, cx: &mut Context) -> Step {
        let name = |name: &'static str| NameRef::parse(name.as_bytes()).unwrap();
        cx.head_mut().fields_mut().insert(name("x-user"), FieldValue::from_static("known"));
        cx.set_target("/app/rewritten?q").unwrap();
        for (field, value) in [("X-Kept", "before"), ("X-Replaced", "before"), ("Set-Cookie", "a=1")] {
            cx.response_mut().append(name(field), FieldValue::parse(value.as_bytes()).unwrap());
        }
        Step::Next
    }
}

/// Responds with the fault that it handles.
struct FaultHandler;

impl Handler for FaultHandler {
    fn enter(&self, cx: &mut Context) -> Step {
        let fault = cx.fault().map(|fault| format!("{} {}", fault.status.as_u16(), fault.reason)).unwrap_or_default();
        Step::Respond(Response::chunk(StatusCode::IM_A_TEAPOT, fault.into_bytes().into()))
    }
}

/// Unpacks a HEAD from the peer's POST, as HTTP over gRPC does.
struct Carrier;

impl Handler for Carrier {
    fn enter(&self, cx: &mut Context) -> Step {
        let mut head = Head::new();
        head.set_method(Method::Head);
        head.set_target("/length").unwrap();
        cx.carry(&mut head);
        Step::Next
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_handler("carrier", |_, _| Ok(Box::new(Carrier)));
    registry.register_handler("before", |_, _| Ok(Box::new(Before)));
    registry.register_handler("told", |_, _| Ok(Box::new(FaultHandler)));
    let seen = async |request: Request| {
        let fields = HeaderMap::from_iter([
            (http::HeaderName::from_static("x-replaced"), HeaderValue::from_static("after")),
            (http::header::SET_COOKIE, HeaderValue::from_static("b=2")),
        ]);
        (fields, format!("{} {}", request.uri(), request.headers()["x-user"].to_str().unwrap()))
    };
    tower_edge::register(&mut registry, "app", Router::new().route("/app/rewritten", get(seen)));
    tower_edge::register(&mut registry, "length", Router::new().route("/length", get("six by")));
    tower_edge::register(&mut registry, "broken", Broken);
    registry
}

#[derive(Clone)]
struct Broken;

impl tower_service::Service<http::Request<tower_edge::EdgeBody>> for Broken {
    type Response = http::Response<String>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<tower_edge::EdgeBody>) -> Self::Future {
        std::future::ready(Err(std::io::Error::other("out of order")))
    }
}

fn routes(handlers: Value) -> Value {
    json!([{ "handle": handlers }])
}

#[test]
fn a_service_sees_the_changes_of_earlier_handlers() {
    let mut kit = Kit::new(&registry(), &routes(json!([{ "handler": "before" }, { "handler": "app" }])));
    for _ in 0..3 {
        let answer = kit.send(&Ask::get("/original"));
        assert_eq!((answer.status, answer.text()), (200, "/app/rewritten?q known"));
        assert_eq!((answer.field("X-Kept"), answer.field("X-Replaced")), (Some("before"), Some("after")));
        assert_eq!(answer.values("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    }
}

// RFC 9110 §9.3.2: the response to HEAD has the length of that to GET, also if another message carries the HEAD.
#[test]
fn a_head_request_has_the_length_of_the_service() {
    let mut kit = Kit::new(&registry(), &routes(json!([{ "handler": "carrier" }, { "handler": "length" }])));
    let answer = kit.send(&Ask::new("POST", "/"));
    assert_eq!((answer.status, answer.field("Content-Length")), (200, Some("6")));
}

#[test]
fn error_routes_handle_errors_of_the_service() {
    let broken = routes(json!([{ "handler": "broken" }]));
    let mut kit = Kit::with_errors(&registry(), &broken, &routes(json!([{ "handler": "told" }])));
    let answer = kit.send(&Ask::get("/"));
    assert_eq!((answer.status, answer.text()), (418, "500 out of order"));
    let mut kit = Kit::new(&registry(), &broken);
    assert_eq!(kit.send(&Ask::get("/")).status, 500);
}

#[test]
fn the_configuration_is_checked() {
    let handler = |extra: Value| {
        let mut handler = json!({ "handler": "app" });
        handler.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        Kit::build(&registry(), &routes(json!([handler])), &Value::Null).err().map(|error| error.to_string())
    };
    assert_eq!(handler(json!({ "connect_info": true })), None);
    let error = handler(json!({ "conect_info": true })).unwrap();
    assert!(error.contains("handle[0].conect_info: unknown field `conect_info`"), "{error}");
    let error = handler(json!({ "connect_info": 1 })).unwrap();
    assert!(error.contains("connect_info: found the number 1, expected true or false"), "{error}");
}
