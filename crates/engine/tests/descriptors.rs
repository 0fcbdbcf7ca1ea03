//! Accepting when the process is out of descriptors. In a process of its own, whose limit this test lowers.

mod support;

use std::fs::File;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use support::{PATIENCE, TestClient, TestServer};

/// Sends a message for each warning that the engine logs; the only one of this test is a pause of accepting.
struct Warnings(Sender<()>);

impl Subscriber for Warnings {
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
        // The test waits for the first one only.
        let _ = self.0.send(());
    }
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

#[test]
fn accepting_pauses_without_descriptors_and_resumes() {
    let (warn, warnings) = channel();
    tracing::subscriber::set_global_default(Warnings(warn)).unwrap();
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
    warnings.recv_timeout(PATIENCE).expect("a pause of accepting");
    assert_eq!(open.get("/fixed").text(), "fixed", "open connections are still served");
    let before = processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(300), "the acceptor does not rest: {used:?} of processor time in a second");
    drop(open_files);
    assert_eq!(waiting.answer().text(), "fixed", "accepting resumes");
}
