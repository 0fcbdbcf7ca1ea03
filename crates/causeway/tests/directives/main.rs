//! What each directive is documented to do: a Caddyfile, requests to it, and their answers. The examples are those of Caddy's
//! documentation, in other words; what they need besides and is not built is left out.

mod answers;
mod fields;
mod guards;
mod target;
mod variables;

use causeway_config::{caddyfile, plan};
use causeway_testkit::{Answer, Kit, Request};

/// A Caddyfile, ready to be asked.
#[track_caller]
fn serve(source: &str) -> Kit {
    let registry = causeway::registry();
    let adapted = caddyfile::adapt(source, "Caddyfile", &causeway::directives(&registry), &|_| None);
    let adapted = adapted.unwrap_or_else(|error| panic!("{source}\n{error}"));
    let loaded = plan::load(&adapted.json, &registry).unwrap_or_else(|error| panic!("{source}\n{error}"));
    Kit::of_plan(loaded.plan)
}

/// A site for every host, with these directives.
#[track_caller]
fn site(directives: &str) -> Kit {
    serve(&format!(":80 {{\n{directives}\n}}\n"))
}

/// `METHOD target` or a target alone, which is asked for by GET; then field lines.
fn request(text: &str) -> Request {
    let mut lines = text.lines();
    let line = lines.next().expect("a request line");
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    lines.fold(Request::new(method, target), |request, line| {
        let (name, value) = line.split_once(": ").expect("a field line");
        request.field(name, value)
    })
}

/// Compares status and content.
#[track_caller]
fn check(directives: &str, cases: &[(&str, u16, &str)]) {
    let mut kit = site(directives);
    for (text, status, body) in cases {
        let answer = kit.send(&request(text));
        assert_eq!((answer.status, answer.text()), (*status, *body), "{directives}\n{text}");
    }
}

/// Compares a field of the answer; `None` when it has none.
#[track_caller]
fn check_field(directives: &str, field: &str, cases: &[(&str, Option<&str>)]) {
    let mut kit = site(directives);
    for (text, want) in cases {
        let answer = kit.send(&request(text));
        assert_eq!(joined(&answer, field).as_deref(), *want, "{directives}\n{text}");
    }
}

fn joined(answer: &Answer, field: &str) -> Option<String> {
    let values: Vec<_> = answer.values(field).collect();
    (!values.is_empty()).then(|| values.join(" | "))
}

/// What is said of a Caddyfile that is refused.
#[track_caller]
fn refused(directives: &str, want: &str) {
    let source = format!(":80 {{\n{directives}\n}}\n");
    let registry = causeway::registry();
    let adapted = caddyfile::adapt(&source, "Caddyfile", &causeway::directives(&registry), &|_| None);
    let said = match adapted {
        Err(error) => error.to_string(),
        Ok(adapted) => match plan::load(&adapted.json, &registry) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it is served: {directives}"),
        },
    };
    assert!(said.contains(want), "{directives}\n{said}");
}
