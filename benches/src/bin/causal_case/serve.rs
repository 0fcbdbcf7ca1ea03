//! Our engine with one worker and a handler with a cost: `hot_function`, which the knob may reduce, and
//! `cold_function`. Arguments: `PORT ROUTES [UPSTREAM_PORT]`, where ROUTES is `/path=HOT+COLD,…` in microseconds; the
//! suffix `:span` adds spans around the two. Requests for `/upstream` are then forwarded to the upstream.

use std::cell::RefCell;
use std::sync::Arc;

use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_message::StatusCode;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, Context, Handler, ListenAddress, ListenerSpec, Registry, Response, Step};
use progress::Span;
use serde_json::{Value, json};

use super::knob::{Cost, Random};
use super::planted::{cold_function, hot_function};

/// Starts the engine, which runs until the program ends. Returns false for wrong arguments.
pub(crate) fn start(arguments: &[String]) -> bool {
    let Some((port, routes, upstream)) = understood(arguments) else { return false };
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry.register_handler("work", |value, _| {
        let microseconds = |name: &str| value[name].as_u64().unwrap_or(0);
        // If this route is the knob's target, it has the knob's name to itself.
        let hot = value["knob"].as_str().unwrap_or("hot_function");
        Ok(Box::new(Work {
            hot: Cost::of(hot, microseconds("hot")),
            cold: Cost::of("cold_function", microseconds("cold")),
            spans: (value["span"] == true).then(|| (Span::intern("hot part"), Span::intern("cold part"))),
            passes: value["passes"] == true,
        }))
    });
    let mut build = Build::new(&registry);
    let routes = Value::Array(routes.iter().map(|route| route.plan(upstream)).collect());
    let server = build.server(&ServerSpec::new("bench", &routes)).unwrap_or_else(|error| panic!("{error}"));
    let engine = Engine::start(EngineSpec {
        workers: 1,
        listeners: vec![ListenerSpec::new(ListenAddress { host: Some([127, 0, 0, 1].into()), port, zone: 0 }, server)],
        plan: Arc::new(build.finish()),
        blocking: BlockingSpec::default(),
        certificates: None,
    });
    std::mem::forget(engine.unwrap_or_else(|error| panic!("{error}")));
    true
}

struct Route {
    path: String,
    hot: u64,
    cold: u64,
    span: bool,
}

impl Route {
    /// Parses `/path=HOT+COLD` or `/path=HOT+COLD:span`.
    fn parse(text: &str) -> Option<Self> {
        let (path, costs) = text.split_once('=')?;
        let (costs, span) = costs.strip_suffix(":span").map_or((costs, false), |costs| (costs, true));
        let (hot, cold) = costs.split_once('+')?;
        Some(Self { path: path.to_owned(), hot: hot.parse().ok()?, cold: cold.parse().ok()?, span })
    }

    fn plan(&self, upstream: Option<u16>) -> Value {
        let passes = upstream.filter(|_| self.path == "/upstream");
        // With several routes, the knob selects one by its path.
        let knob = if self.path == "/" { "hot_function" } else { &self.path };
        let work = json!({
            "handler": "work", "hot": self.hot, "cold": self.cold, "span": self.span, "knob": knob, "passes": passes.is_some(),
        });
        let mut handlers = vec![work];
        if let Some(port) = passes {
            handlers
                .push(json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": format!("127.0.0.1:{port}") }] }));
        }
        json!({ "match": [{ "path": [self.path] }], "handle": handlers, "terminal": true })
    }
}

fn understood(arguments: &[String]) -> Option<(u16, Vec<Route>, Option<u16>)> {
    let mut arguments = arguments.iter();
    let port = arguments.next()?.parse().ok()?;
    let routes = arguments.next()?.split(',').map(Route::parse).collect::<Option<_>>()?;
    let upstream = arguments.next().map(|port| port.parse()).transpose().ok()?;
    Some((port, routes, upstream))
}

struct Work {
    hot: Cost,
    cold: Cost,
    spans: Option<(Span, Span)>,
    passes: bool,
}

thread_local! {
    static RANDOM: RefCell<Random> = RefCell::new(Random::new(3));
}

impl Handler for Work {
    fn enter(&self, cx: &mut Context) -> Step {
        let (hot, cold) = RANDOM.with_borrow_mut(|random| (self.hot.draw(random), self.cold.draw(random)));
        {
            let _span = self.spans.map(|spans| spans.0.enter());
            hot_function(hot);
        }
        {
            let _span = self.spans.map(|spans| spans.1.enter());
            cold_function(cold);
        }
        if self.passes {
            return Step::Next;
        }
        let body = cx.chunk(answer::BODY.as_bytes());
        Step::Respond(Response::chunk(StatusCode::OK, body))
    }
}
