use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn registry(variables: &'static [(&'static str, &'static str)]) -> Registry {
    let mut registry = Registry::default();
    registry.set_environment(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    });
    crate::register(&mut registry);
    registry
}

fn show() -> Value {
    let body =
        "{http.request.header.traceparent} {http.request.header.tracestate} {http.vars.trace_id} {http.vars.span_id}";
    json!([{ "handle": [{ "handler": "tracing", "span": "x" }, { "handler": "static_response", "body": body }] }])
}

fn send(variables: &'static [(&'static str, &'static str)], request: &Request) -> Vec<String> {
    let answer = Kit::new(&registry(variables), &show()).send(request);
    answer.text().split(' ').map(str::to_owned).collect()
}

// Caddy, http.handlers.tracing: the request's fields name the new span, so that the next server continues the trace,
// and two variables have the ids. W3C Trace Context: an invalid parent begins a trace and its state is dropped.
#[test]
fn the_request_has_the_trace_context() {
    const OFF: &[(&str, &str)] = &[("OTEL_TRACES_EXPORTER", "none")];
    let got = send(OFF, &Request::get("/").field("Traceparent", PARENT).field("Tracestate", "a=b"));
    assert_eq!((&got[0][..36], &got[0][52..], &*got[1]), (&PARENT[..36], "-01", "a=b"));
    assert_eq!((&*got[2], &*got[3]), (&PARENT[3..35], &got[0][36..52]));
    assert_ne!(&got[0], PARENT);
    for request in [
        Request::get("/").field("Tracestate", "a=b"),
        Request::get("/").field("Traceparent", &PARENT[1..]).field("Tracestate", "a=b"),
        Request::get("/").field("Traceparent", PARENT).field("Traceparent", PARENT).field("Tracestate", "a=b"),
    ] {
        let got = send(OFF, &request);
        assert_ne!(&got[0][..36], &PARENT[..36]);
        assert_eq!((got[0].len(), &got[0][..3], &got[0][52..], &*got[1]), (55, "00-", "-01", ""));
    }
    let got = send(OFF, &Request::get("/").field("Traceparent", PARENT).field("Tracestate", "a=b,a=c"));
    assert_eq!((&got[0][..36], &*got[1]), (&PARENT[..36], ""));
    // The decision of the sender is passed on, and that of the sampler.
    let unsampled = PARENT.replace("-01", "-00");
    assert!(send(OFF, &Request::get("/").field("Traceparent", &unsampled))[0].ends_with("-00"));
    const NEVER: &[(&str, &str)] = &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_TRACES_SAMPLER", "always_off")];
    assert!(send(NEVER, &Request::get("/").field("Traceparent", PARENT))[0].ends_with("-00"));
    // Without the propagator, and with everything disabled, the fields stay as they are.
    const ALONE: &[(&str, &str)] = &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_PROPAGATORS", "baggage")];
    let got = send(ALONE, &Request::get("/").field("Traceparent", PARENT));
    assert!(got[0] == PARENT && got[2].len() == 32 && got[2] != PARENT[3..35]);
    const DISABLED: &[(&str, &str)] = &[("OTEL_SDK_DISABLED", "true")];
    assert_eq!(send(DISABLED, &Request::get("/").field("Traceparent", PARENT)), [PARENT, "", "", ""]);
}

// Nothing of a trace is left for the next request on the same storage.
#[test]
fn a_request_after_a_traced_one() {
    let mut routes = show();
    routes[0]["handle"] = json!([
        { "handler": "subroute", "routes": [{ "match": [{ "path": ["/traced"] }], "handle": [{ "handler": "tracing" }] }] },
        routes[0]["handle"][1],
    ]);
    let mut kit = Kit::new(&registry(&[("OTEL_TRACES_EXPORTER", "none")]), &routes);
    for _ in 0..2 {
        assert_eq!(kit.send(&Request::get("/traced").field("Traceparent", PARENT)).text()[..36], PARENT[..36]);
        assert_eq!(kit.send(&Request::get("/")).text(), "   ");
    }
}

#[test]
fn mistakes() {
    for (variables, handler, want) in [
        (
            &[("OTEL_TRACES_SAMPLER", "some")][..],
            json!({}),
            "environment variable OTEL_TRACES_SAMPLER: found 'some', expected 'always_on', 'always_off' or 'traceidratio', each also with 'parentbased_' before it",
        ),
        (&[], json!({ "span_attributes": { "a": 1 } }), "span_attributes.a: "),
        (&[], json!({ "name": "a" }), "unknown field `name`"),
    ] {
        let mut handler = handler;
        handler["handler"] = json!("tracing");
        let error = Kit::build(&registry(variables), &json!([{ "handle": [handler] }]), &json!([])).err();
        let error = error.expect("a mistake").to_string();
        assert!(error.contains(want), "{error}");
    }
}
