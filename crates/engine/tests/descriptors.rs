//! Accepting when the process is out of descriptors. In a process of its own, whose limit this test lowers.

mod support;

use std::fs::File;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use support::{PATIENCE, TestClient, TestServer};

/// The times at which the engine logged a pause of accepting.
static RESTS: Mutex<Vec<Instant>> = Mutex::new(Vec::new());
static RESTED: Condvar = Condvar::new();

struct Rests;

impl Subscriber for Rests {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("causeway_engine")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        RESTS.lock().unwrap().push(Instant::now());
        RESTED.notify_all();
    }
}

fn await_rests(count: usize) {
    let rests = RESTS.lock().unwrap();
    let (rests, _) = RESTED.wait_timeout_while(rests, PATIENCE, |rests| rests.len() < count).unwrap();
    assert!(rests.len() >= count, "only {} pauses of accepting", rests.len());
}

#[test]
fn accepting_pauses_without_descriptors_and_resumes() {
    tracing::subscriber::set_global_default(Rests).unwrap();
    let server = TestServer::start(|_| ());
    let mut open = server.client();
    assert_eq!(open.get("/fixed").text(), "fixed");
    // The client's end of the waiting connection gets the last descriptor, so the server's end finds none.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..limit }).unwrap();
    let mut open_files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        open_files.push(file);
    }
    open_files.pop();
    let mut waiting = TestClient::connect(server.address());
    waiting.send_request("/fixed");
    for count in 1..=4 {
        await_rests(count);
        assert_eq!(open.get("/fixed").text(), "fixed", "open connections are still served");
    }
    // A spinning acceptor would have logged thousands of pauses. A pause is never shorter than its timer.
    let rests = RESTS.lock().unwrap().clone();
    let shortest = rests.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(shortest >= Some(Duration::from_millis(200)), "{shortest:?}");
    drop(open_files);
    assert_eq!(waiting.answer().text(), "fixed", "accepting resumes");
}
