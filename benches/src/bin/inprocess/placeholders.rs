//! Evaluates placeholders of a running request: to text, as for fields and matchers, and to a chunk that may outlive
//! the exchange, as for a body.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_h1::{Limits, parse_head};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Arrival, Build, Context, Endpoints, Generation, Registry, Scheme, Spare, Template, Worker};
use causeway_testkit::FakeWorker;
use serde_json::json;

use crate::TimedCase;

#[path = "../../placeholders.rs"]
#[allow(dead_code, reason = "the runner uses all of it, this program some")]
mod cases;

/// Returns a case for each placeholder, and for some a second one that renders to a chunk. Each has its own exchange.
pub fn all() -> Vec<TimedCase<'static>> {
    let chunks = [("path", "path, to a chunk"), ("four with text", "four with text, to a chunk")];
    let chunk =
        |case: &cases::PlaceholderCase| chunks.iter().find(|(name, _)| *name == case.name).map(|(_, chunk)| *chunk);
    let both = |case| {
        let (mut cx, template) = under_way(case);
        let text = TimedCase::new(case.name, move || {
            cx.with_rendered(black_box(&template), |_, text| {
                black_box(text);
            });
        });
        let chunk = chunk(case).map(|name| {
            let (mut cx, template) = under_way(case);
            TimedCase::new(name, move || {
                black_box(cx.render(black_box(&template)));
            })
        });
        [Some(text), chunk].into_iter().flatten()
    };
    cases::CASES.iter().flat_map(both).collect()
}

fn under_way(case: &cases::PlaceholderCase) -> (Context, Template) {
    let registry = Registry::default();
    let mut build = Build::new(&registry);
    let routes = json!([]);
    let server = build.server(&ServerSpec::new("bench", &routes)).expect("a good plan");
    let variables: Vec<_> = cases::variables().map(|(name, text)| (build.allocate_variable(&name), text)).collect();
    let template = build.template(case.source);
    let worker: Rc<dyn Worker> = FakeWorker::new();
    let generation = Generation::new(Arc::new(build.finish()), &worker, None);
    let mut spare = Spare::new(Rc::clone(&worker), Generation::vacant());
    parse_head(cases::request().as_bytes(), &Limits::default(), spare.head_mut()).expect("a good head");
    let arrival = Arrival {
        ends: Endpoints::Ip { peer: ([192, 0, 2, 1], 4711).into(), local: ([192, 0, 2, 80], 80).into() },
        scheme: Scheme::Http,
        tls: None,
        server,
        at: Instant::now(),
        upgrade: false,
    };
    let mut cx: Context = spare.prepare(arrival, &generation);
    for (variable, text) in &variables {
        cx.set_variable_text(*variable, text.as_bytes());
    }
    assert_eq!(cx.render(&template).as_slice(), case.text.as_bytes(), "{}", case.source);
    (cx, template)
}
