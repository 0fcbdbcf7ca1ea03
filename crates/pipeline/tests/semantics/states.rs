//! Per-worker states: created once per plan, taken over if the next plan has a state of the same type and key.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};

use causeway_message::StatusCode;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Build, BuildError, Context, Generation, Handler, Plan, Registry, Response, StateId, Step, Worker,
};
use causeway_testkit::{FakeWorker, Kit, Request};
use serde_json::{Value, json};

type StateCount = Cell<u32>;

/// Counts its responses, and responds with the count. `key` selects a kept state; without it the state is the plan's
/// own.
struct Counter(StateId<StateCount>);

/// Has a state of another type under the same keys.
struct Words(StateId<RefCell<String>>);

fn count(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let make = |_: &Rc<dyn Worker>| StateCount::new(0);
    Ok(Box::new(Counter(match value["key"].as_str() {
        Some(key) => build.allocate_kept_state(key.to_owned(), make),
        None => build.allocate_state(make),
    })))
}

fn words(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let key = value["key"].as_str().unwrap_or_default().to_owned();
    Ok(Box::new(Words(build.allocate_kept_state(key, |_| RefCell::default()))))
}

impl Handler for Counter {
    fn enter(&self, cx: &mut Context) -> Step {
        let count = Rc::clone(cx.generation());
        let count = count.state(self.0);
        count.set(count.get() + 1);
        let body = cx.chunk(count.get().to_string().as_bytes());
        Step::Respond(Response::chunk(StatusCode::OK, body))
    }
}

impl Handler for Words {
    fn enter(&self, cx: &mut Context) -> Step {
        let generation = Rc::clone(cx.generation());
        generation.state(self.0).borrow_mut().push('w');
        let body = cx.chunk(generation.state(self.0).borrow().as_bytes());
        Step::Respond(Response::chunk(StatusCode::OK, body))
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_handler("count", count);
    registry.register_handler("words", words);
    registry.register_handler("only", |value, build| match value["path"].as_str() {
        Some(path) => Ok(Box::new(Only(path.to_owned(), build.routes(&json!([{ "handle": [value["do"]] }]))?))),
        None => Err(build.refuse(value.to_string(), "a path")),
    });
    registry
}

struct Only(String, causeway_pipeline::RoutesId);

impl Handler for Only {
    fn enter(&self, cx: &mut Context) -> Step {
        if cx.path() == self.0.as_bytes() { Step::Run(self.1) } else { Step::Next }
    }
}

/// Builds one route per path, which runs the given handler.
fn routes(paths: &[(&str, Value)]) -> Value {
    let route = |(path, what): &(&str, Value)| json!({ "handle": [{ "handler": "only", "path": path, "do": what }] });
    Value::Array(paths.iter().map(route).collect())
}

#[track_caller]
fn check(kit: &mut Kit, cases: &[(&str, &str)]) {
    for (path, want) in cases {
        assert_eq!(kit.send(&Request::get(path)).text(), *want, "{path}");
    }
}

#[test]
fn only_a_kept_state_outlives_its_plan() {
    let registry = registry();
    let kept = |key: &str| json!({ "handler": "count", "key": key });
    let own = json!({ "handler": "count" });
    let first = routes(&[("/a", kept("a")), ("/b", kept("b")), ("/also-a", kept("a")), ("/own", own.clone())]);
    let mut kit = Kit::new(&registry, &first);
    check(&mut kit, &[("/a", "1"), ("/also-a", "2"), ("/b", "1"), ("/own", "1"), ("/own", "2")]);

    // Other positions, another neighbour, and without the state for `b`.
    let second = routes(&[("/own", own), ("/words", json!({ "handler": "words", "key": "a" })), ("/a", kept("a"))]);
    kit.reload(&registry, &second, &Value::Null);
    check(&mut kit, &[("/a", "3"), ("/own", "1"), ("/words", "w"), ("/words", "ww")]);

    kit.reload(&registry, &first, &Value::Null);
    check(&mut kit, &[("/a", "4"), ("/own", "1"), ("/b", "1")]);
}

/// A plan, and the number of its references when its state was dropped.
#[derive(Default)]
struct Watched {
    plan: OnceLock<Weak<Plan>>,
    holders: OnceLock<usize>,
}

/// The state: records the number of references when it is dropped.
struct Witness(Arc<Watched>);

impl Drop for Witness {
    fn drop(&mut self) {
        let plan = self.0.plan.get().expect("set before a generation is made");
        self.0.holders.set(plan.strong_count()).expect("one state");
    }
}

struct Pass;

impl Handler for Pass {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }
}

#[test]
fn the_states_of_a_plan_are_dropped_before_it_counts_as_freed() {
    let watched = Arc::new(Watched::default());
    let mut registry = Registry::default();
    let shared = Arc::clone(&watched);
    registry.register_handler("witness", move |_, build| {
        let shared = Arc::clone(&shared);
        build.allocate_state(move |_| Witness(Arc::clone(&shared)));
        Ok(Box::new(Pass))
    });
    let mut build = Build::new(&registry);
    build.server(&ServerSpec::new("srv0", &json!([{ "handle": [{ "handler": "witness" }] }]))).unwrap();
    let plan = Arc::new(build.finish());
    watched.plan.set(Arc::downgrade(&plan)).unwrap();
    let worker: Rc<dyn Worker> = FakeWorker::new();
    drop(Generation::new(plan, &worker, None));
    assert_eq!(watched.holders.get(), Some(&1), "the generation still held the plan");
}
