//! The documented behaviour of each directive: a Caddyfile, requests, and their responses. The examples follow Caddy's
//! documentation; unsupported parts of them are left out.

mod answers;
mod fields;
mod guards;
mod target;
mod variables;

use causeway_config::{caddyfile, plan};
use causeway_testkit::{Kit, Request, TestResponse};

/// Compiles a Caddyfile for requests.
#[track_caller]
fn serve(source: &str) -> Kit {
    let registry = causeway::registry();
    let adapted = caddyfile::adapt(source, "Caddyfile", &causeway::directives(&registry), &|_| None);
    let adapted = adapted.unwrap_or_else(|error| panic!("{source}\n{error}"));
    let loaded = plan::load(&adapted.json, &registry).unwrap_or_else(|error| panic!("{source}\n{error}"));
    Kit::of_plan(loaded.plan)
}

/// Compiles a site for every host, with these directives.
#[track_caller]
fn site(directives: &str) -> Kit {
    serve(&format!(":80 {{\n{directives}\n}}\n"))
}

/// Parses `METHOD target`, or a target alone for GET, followed by field lines.
fn request(text: &str) -> Request {
    let mut lines = text.lines();
    let line = lines.next().expect("a request line");
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    lines.fold(Request::new(method, target), |request, line| {
        let (name, value) = line.split_once(": ").expect("a field line");
        request.field(name, value)
    })
}

/// Compares the status and content of each response.
#[track_caller]
fn check(directives: &str, cases: &[(&str, u16, &str)]) {
    let mut kit = site(directives);
    for (text, status, body) in cases {
        let answer = kit.send(&request(text));
        assert_eq!((answer.status, answer.text()), (*status, *body), "{directives}\n{text}");
    }
}

/// Compares a field of each response; `None` when it must be absent.
#[track_caller]
fn check_field(directives: &str, field: &str, cases: &[(&str, Option<&str>)]) {
    let mut kit = site(directives);
    for (text, want) in cases {
        let answer = kit.send(&request(text));
        assert_eq!(joined(&answer, field).as_deref(), *want, "{directives}\n{text}");
    }
}

fn joined(answer: &TestResponse, field: &str) -> Option<String> {
    let values: Vec<_> = answer.values(field).collect();
    (!values.is_empty()).then(|| values.join(" | "))
}

/// Checks the message for a Caddyfile that is refused.
#[track_caller]
fn refused(directives: &str, want: &str) {
    let source = format!(":80 {{\n{directives}\n}}\n");
    let registry = causeway::registry();
    let adapted = caddyfile::adapt(&source, "Caddyfile", &causeway::directives(&registry), &|_| None);
    let outcome = match adapted {
        Err(error) => error.to_string(),
        Ok(adapted) => match plan::load(&adapted.json, &registry) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it is served: {directives}"),
        },
    };
    assert!(outcome.contains(want), "{directives}\n{outcome}");
}
