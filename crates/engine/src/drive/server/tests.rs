//! The driver over a machine of two streams and a wire in memory: the guarantees of the trait to protocols that carry
//! several exchanges at once. Nothing here runs a reactor; a turn is a call.

mod pair;
mod wire;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker, ready};
use std::time::Duration;

use causeway_message::{Chunk, StatusCode};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    BodyStream, Build, Context, Frame, Generation, Handler, IncomingBody, ListenAddress, ListenerSpec, Outcome, Plan,
    Registry, Response, ServerId, Step, Worker,
};
use futures_channel::oneshot;
use serde_json::json;

use super::*;
use crate::listener::ListenerPlan;
use crate::pools::{BlockingSpec, WorkPools};
use crate::worker::{Services, WorkerCounters};
use pair::Pair;
use wire::{Wire, WireEnd};

/// The sender that resumes a waiting handler, and the number of its polls.
type Held = (oneshot::Sender<()>, Rc<Cell<u32>>);

thread_local! {
    /// Handlers that wait, in the order in which they began.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    /// How exchanges ended: target and outcome.
    static ENDED: RefCell<Vec<(String, Outcome)>> = const { RefCell::new(Vec::new()) };
}

/// Its action is the path's first segment.
struct ByPath;

impl Handler for ByPath {
    fn enter(&self, cx: &mut Context) -> Step {
        let path = String::from_utf8(cx.path().to_vec()).unwrap();
        let mut segments = path.split('/').skip(1);
        match segments.next() {
            Some("fixed") => Step::Respond(Response::chunk(StatusCode::OK, cx.chunk(b"fixed"))),
            Some("whole") => {
                let bytes = vec![b'w'; segments.next().unwrap().parse().unwrap()];
                Step::Respond(Response::chunk(StatusCode::OK, bytes.into()))
            }
            Some("stream") => {
                let left = segments.next().unwrap().parse().unwrap();
                let stream = Blocks { worker: Rc::clone(cx.worker()), left };
                Step::Respond(Response::stream(StatusCode::OK, stream))
            }
            Some("collected") => {
                let bytes = vec![b'w'; segments.next().unwrap().parse().unwrap()];
                let mut body = cx.take_body().unwrap();
                let end = poll_fn(move |poll_cx| {
                    while ready!(body.poll_frame(poll_cx)).is_some() {}
                    Poll::Ready(())
                });
                cx.wait(end, |_, ()| Step::Respond(Response::chunk(StatusCode::OK, bytes.into())))
            }
            Some("later") => Step::Respond(Response::stream(StatusCode::OK, Later(Some(hold().0)))),
            Some("tunnel") => Step::Respond(Response::switch(Later(Some(hold().0)))),
            Some("hold") => {
                let (mut held, polls) = hold();
                let wait = poll_fn(move |poll_cx| {
                    polls.set(polls.get() + 1);
                    Pin::new(&mut held).poll(poll_cx)
                });
                cx.wait(wait, |cx, _| Step::Respond(Response::chunk(StatusCode::OK, cx.chunk(b"released"))))
            }
            Some("echo") => Step::Respond(Response::stream(StatusCode::OK, Echo(cx.take_body().unwrap()))),
            Some("abort") => Step::Abort,
            other => panic!("no such behaviour: {other:?}"),
        }
    }

    fn end(&self, cx: &Context, outcome: &Outcome) {
        ENDED.with_borrow_mut(|ended| ended.push((cx.original().target().as_str().to_owned(), *outcome)));
    }
}

/// Registers something that waits until the test releases it.
fn hold() -> (oneshot::Receiver<()>, Rc<Cell<u32>>) {
    let (go, held) = oneshot::channel();
    let polls = Rc::new(Cell::new(0));
    HELD.with_borrow_mut(|all| all.push((go, Rc::clone(&polls))));
    (held, polls)
}

/// Content that begins when the test releases it.
struct Later(Option<oneshot::Receiver<()>>);

impl BodyStream for Later {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let Some(held) = &mut self.0 else { return Poll::Ready(None) };
        let _ = ready!(Pin::new(held).poll(poll_cx));
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::Chunk(Chunk::from_static(b"later")))))
    }
}

struct Blocks {
    worker: Rc<dyn Worker>,
    left: usize,
}

impl BodyStream for Blocks {
    fn poll_frame(&mut self, _: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let block = self.worker.take_block();
        let len = self.left.min(block.capacity());
        self.left -= len;
        Poll::Ready(Some(Ok(Frame::Chunk(block.freeze(0..len)))))
    }
}

struct Echo(IncomingBody);

impl BodyStream for Echo {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.0.poll_frame(poll_cx)
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A plan of one server whose action is in the path.
fn plan() -> Plan {
    let mut registry = Registry::default();
    registry.register_handler("by_path", |_, _| Ok(Box::new(ByPath)));
    let mut build = Build::new(&registry);
    let routes = json!([{"handle": [{"handler": "by_path"}]}]);
    let spec = ServerSpec::new("test", &routes);
    assert_eq!(build.server(&spec), Ok(ServerId::FIRST));
    build.finish()
}

/// A connection that the test polls itself.
struct Bench {
    core: Rc<Core>,
    /// The core refers to them weakly.
    _services: Rc<Services>,
    listener: Rc<Listener>,
    spec: ListenerSpec,
    generation: Rc<Generation>,
    connection: ServerConnection<WireEnd, Pair>,
    wire: Rc<RefCell<Wire>>,
    wakes: Arc<Wakes>,
}

impl Bench {
    fn new() -> Self {
        let pools = WorkPools::new(BlockingSpec::default(), 1);
        let services = Services::for_this_thread(90, 32 * 1024, pools, Arc::new(WorkerCounters::default()));
        let core = Rc::clone(services.core());
        core.counters.connections.fetch_add(1, Ordering::Relaxed);
        let worker = core.worker();
        let generation = Generation::new(Arc::new(plan()), &worker, None);
        let spec = ListenerSpec::new(ListenAddress { host: None, port: 0, zone: 0 }, ServerId::FIRST);
        let listener = Listener::new(ListenerPlan::new(&spec, None, &generation), None);
        let wire = Rc::new(RefCell::new(Wire::default()));
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
        let end = WireEnd(Rc::clone(&wire));
        let connection = ServerConnection::new(
            Rc::clone(&core),
            Rc::clone(&listener),
            end,
            Pair::default(),
            Endpoints::Ip { peer: nowhere, local: nowhere },
            None,
            0,
        );
        HELD.with_borrow_mut(Vec::clear);
        ENDED.with_borrow_mut(Vec::clear);
        Self { core, _services: services, listener, spec, generation, connection, wire, wakes: Arc::default() }
    }

    /// The peer sends these frames.
    fn sends(&self, frames: &[Vec<u8>]) {
        self.wire.borrow_mut().inbound.extend(frames.concat());
    }

    /// Polls the connection once, and again while it wakes itself.
    fn turn(&mut self) -> Poll<()> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        for _ in 0..1000 {
            self.wakes.0.store(0, Ordering::Relaxed);
            let done = Pin::new(&mut self.connection).poll(&mut PollContext::from_waker(&waker));
            if done.is_ready() || self.wakes.0.load(Ordering::Relaxed) == 0 {
                return done;
            }
        }
        panic!("the connection wakes itself without end");
    }

    /// Takes the log of the machine's calls and events since the previous call.
    fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.connection.machine.log)
    }

    fn ended(&self) -> Vec<(String, Option<u16>, Ending)> {
        ENDED.with_borrow_mut(|ended| {
            ended.drain(..).map(|(target, o)| (target, o.status.map(StatusCode::as_u16), o.ending)).collect()
        })
    }

    /// Makes an exchange's last progress so old that each of its time limits has passed since.
    fn age(&mut self, at: usize) {
        self.connection.exchanges[at].last_progress -= Duration::from_secs(3600);
    }

    fn release_held(&self, at: usize) -> Rc<Cell<u32>> {
        let (go, polls) = HELD.with_borrow_mut(|held| held.remove(at));
        go.send(()).unwrap();
        polls
    }
}

fn complete(target: &str) -> (String, Option<u16>, Ending) {
    (target.to_owned(), Some(200), Ending::Complete)
}

// The pair ranks the stream with the smaller number first.
#[test]
fn a_long_chunk_is_sent_after_streams_of_higher_priority() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(2, "/whole/200000"), pair::end(2), pair::head(1, "/stream/5"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    let sent = ["2 data 65536", "2 data 65536", "2 data 65536", "2 data 3392", "2 finish"];
    assert_eq!(bench.log(), [&["2 head 200", "1 head 200", "1 data 5", "1 finish"][..], &sent].concat());
    assert_eq!(bench.ended(), [complete("/stream/5"), complete("/whole/200000")]);
}

#[test]
fn a_long_chunk_resumes_when_its_window_opens() {
    let mut bench = Bench::new();
    bench.connection.machine.windows[0] = 100;
    bench.sends(&[pair::head(1, "/whole/70000"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["1 head 200", "1 data 100"]);
    bench.sends(&[pair::window(1, 200), pair::window(1, 200)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["1 data 400"]);
    bench.connection.machine.windows[0] = 1 << 20;
    bench.sends(&[pair::window(1, 1)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["1 data 65536", "1 data 3964", "1 finish"]);
}

#[test]
fn two_exchanges_open_at_once() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::end(1), pair::head(2, "/fixed"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["2 head 200", "2 data 5", "2 finish"], "the second does not wait for the first");
    assert_eq!(bench.ended(), [complete("/fixed")]);
    bench.release_held(0);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["1 head 200", "1 data 8", "1 finish"]);
    assert_eq!(bench.ended(), [complete("/hold")]);
}

#[test]
fn handshake_timestamps_are_not_requested_forever() {
    for is_timed in [false, true] {
        let mut bench = Bench::new();
        bench.connection = bench.connection.with_profiler_state(ProfilerState { stamp: Stamp::default(), is_timed });
        assert!(bench.turn().is_pending());
        assert_eq!(bench.wire.borrow().timed, is_timed.then_some(false), "no profile runs");
    }
}

#[test]
fn a_stream_without_window_does_not_block_the_other() {
    let mut bench = Bench::new();
    bench.connection.machine.windows = [1000, 1_000_000];
    bench.sends(&[pair::head(1, "/stream/100000"), pair::end(1), pair::head(2, "/stream/300000"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    let log = bench.log();
    let sent = |log: &[String], stream: &str| -> usize {
        let data = format!("{stream} data ");
        log.iter().filter_map(|line| line.strip_prefix(&data)).map(|len| len.parse::<usize>().unwrap()).sum()
    };
    assert_eq!(sent(&log, "1"), 1000, "a part of one block, which used its window up");
    assert_eq!(sent(&log, "2"), 300_000);
    assert_eq!(bench.ended(), [complete("/stream/300000")]);
    let first = |stream: &str| log.iter().position(|line| line.starts_with(&format!("{stream} data"))).unwrap();
    let finish = log.iter().position(|line| line == "2 finish").unwrap();
    assert!(first("1") < finish && first("2") < finish, "both had their turn before either was through");

    bench.sends(&[pair::window(1, 250), pair::window(1, 250)]);
    assert!(bench.turn().is_pending());
    assert_eq!(sent(&bench.log(), "1"), 500, "the rest of the block comes as the window grows");
    (0..400).for_each(|_| bench.sends(&[pair::window(1, 250)]));
    assert!(bench.turn().is_pending());
    assert_eq!(sent(&bench.log(), "1"), 100_000 - 1500);
    assert_eq!(bench.ended(), [complete("/stream/100000")]);
}

#[test]
fn a_wake_marks_its_slot_only() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::end(1), pair::head(2, "/hold"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    let first = HELD.with_borrow(|held| Rc::clone(&held[0].1));
    assert_eq!(first.get(), 1);
    let second = bench.release_held(1);
    assert!(bench.wakes.0.load(Ordering::Relaxed) > 0, "the connection's task was woken");
    assert!(bench.turn().is_pending());
    assert_eq!((first.get(), second.get()), (1, 2), "only the exchange that was woken was polled");
    assert_eq!(bench.ended(), [complete("/hold")]);
}

/// Another thread marks a slot and then wakes the task. A poll between the two serves the mark; the second half must
/// not take with it what that poll registered for the next wake.
#[test]
fn a_late_task_wake_consumes_no_other_registration() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    bench.connection.exchanges[0].wake.wake_task();
    assert!(bench.wakes.0.load(Ordering::Relaxed) > 0, "the connection's task was woken");
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), []);
    bench.release_held(0);
    assert!(bench.wakes.0.load(Ordering::Relaxed) > 0, "it was woken for what really happened");
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [complete("/hold")]);
}

#[test]
fn the_reset_of_one_stream_leaves_the_other() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::end(1), pair::head(2, "/abort"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["2 reset"]);
    assert_eq!(bench.ended(), [("/abort".to_owned(), None, Ending::Aborted)]);
    bench.release_held(0);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [complete("/hold")]);
}

#[test]
fn a_peers_fault_on_one_stream_leaves_the_other() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/echo"), pair::data(1, 3), pair::head(2, "/hold"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["1 head 200", "1 data 3", "1 release 3"]);
    bench.sends(&[pair::fault(1)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [("/echo".to_owned(), Some(200), Ending::BodyFailed)]);
    bench.release_held(0);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [complete("/hold")]);
}

#[test]
fn read_and_discarded_bytes_return_to_the_window() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::data(1, 100), pair::head(2, "/fixed"), pair::data(2, 50)]);
    assert!(bench.turn().is_pending());
    let log = bench.log();
    assert!(log.contains(&"2 release 50".to_owned()), "nobody wants it: {log:?}");
    assert!(!log.iter().any(|line| line.starts_with("1 release")), "somebody may still want it: {log:?}");
    bench.sends(&[pair::end(2)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [complete("/fixed")]);
}

#[test]
fn an_exchange_ends_when_its_response_is_written() {
    let mut bench = Bench::new();
    bench.wire.borrow_mut().room = 0;
    bench.sends(&[pair::head(1, "/fixed"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.log(), ["1 head 200", "1 data 5", "1 finish"]);
    assert_eq!((bench.connection.exchanges.len(), bench.ended()), (1, vec![]), "queued, not written");
    assert!(bench.connection.line.has_output());
    bench.wire.borrow_mut().room = 3;
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [], "written in part");
    bench.wire.borrow_mut().room = usize::MAX;
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [complete("/fixed")]);
    let connection = &bench.connection;
    assert!(connection.exchanges.capacity() == 0 && !connection.line.has_output(), "an idle connection holds nothing");
}

// RFC 9112 §9.3.2: pipelined requests that arrived before the peer's end are served, however many wait for one write.
#[test]
fn the_end_is_read_after_the_requests_ahead_of_it() {
    let mut bench = Bench::new();
    let requests = pair::EXCHANGES_MAX + 4;
    bench.wire.borrow_mut().room = 0;
    (0..requests).for_each(|_| bench.sends(&[pair::head(1, "/fixed"), pair::end(1)]));
    bench.wire.borrow_mut().has_ended = true;
    assert!(bench.turn().is_pending());
    let handled = |log: &[String]| log.iter().filter(|line| *line == "1 finish").count();
    let log = bench.log();
    assert_eq!((handled(&log), log.contains(&"end".to_owned())), (pair::EXCHANGES_MAX, false), "{log:?}");
    bench.wire.borrow_mut().room = usize::MAX;
    let _ = bench.turn();
    let log = bench.log();
    assert_eq!((handled(&log), log.last().map(String::as_str)), (4, Some("end")), "{log:?}");
    assert_eq!(bench.ended(), vec![complete("/fixed"); requests]);
}

// As above, for a request whose predecessor fills the output at an end without bytes of its own.
#[test]
fn the_end_is_read_after_a_long_response_and_a_request() {
    let mut bench = Bench::new();
    bench.connection.machine.is_multiplexed = false;
    let response = OUTPUT_BYTES_MAX + 1;
    let target = format!("/collected/{response}");
    bench.sends(&[pair::head(1, &target), pair::last(1, 3), pair::head(2, "/fixed"), pair::end(2)]);
    // The rest of the output is less than the limit.
    bench.wire.borrow_mut().room = response / 2;
    bench.wire.borrow_mut().has_ended = true;
    assert!(bench.turn().is_pending());
    let sent = format!("1 data {response}");
    let want = ["1 release 3", "1 head 200", &sent, "1 finish", "2 head 200", "2 data 5", "2 finish", "end"];
    assert_eq!(bench.log(), want);
}

// docs/limits.md: the times to open a window, to send the rest of a body after the response, and to go on in a
// half-closed tunnel begin when the peer has to act, however long the server was at work before.
#[test]
fn the_peers_time_begins_when_it_has_to_act() {
    check_time("/hold", &[pair::end(1)], |bench| {
        bench.connection.machine.windows[0] = 0;
        bench.release_held(0);
    });
    check_time("/later", &[pair::end(1)], |bench| {
        bench.connection.machine.windows[0] = 0;
        bench.release_held(0);
    });
    check_time("/hold", &[], |bench| drop(bench.release_held(0)));
    check_time("/tunnel", &[], |bench| bench.sends(&[pair::end(1)]));
}

/// Begins an exchange with these frames after its head. Checks that `event` begins the peer's time.
#[track_caller]
fn check_time(target: &str, frames: &[Vec<u8>], event: fn(&mut Bench)) {
    let was_reset = |bench: &mut Bench| bench.log().contains(&"1 reset".to_owned());
    let mut bench = Bench::new();
    bench.sends(&[&[pair::head(1, target)], frames].concat());
    assert!(bench.turn().is_pending());
    bench.age(0);
    event(&mut bench);
    assert!(bench.turn().is_pending());
    assert!(!was_reset(&mut bench), "{target}: its time has just begun");
    bench.age(0);
    assert!(bench.turn().is_pending());
    assert!(was_reset(&mut bench), "{target}: its time has passed");
}

// docs/limits.md: "output that the peer does not read". Neither bytes nor further requests extend that time.
#[test]
fn requests_do_not_extend_the_time_for_output() {
    let mut bench = Bench::new();
    bench.wire.borrow_mut().room = 0;
    bench.sends(&[pair::head(1, "/fixed"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    bench.connection.line.last_progress -= Duration::from_secs(3600);
    bench.sends(&[pair::head(2, "/fixed"), pair::end(2)]);
    assert!(bench.turn().is_ready());
}

// RFC 9110 §10.1.1: a peer that waits for a 100 (Continue) response is not late with its content.
#[test]
fn a_peer_that_waits_for_continue_is_not_late() {
    for expects_continue in [true, false] {
        let mut bench = Bench::new();
        bench.connection.machine.expects_continue = expects_continue;
        bench.sends(&[pair::head(1, "/hold")]);
        assert!(bench.turn().is_pending());
        bench.age(0);
        assert!(bench.turn().is_pending());
        let want = if expects_continue { Inbound::Open } else { Inbound::Failed };
        assert_eq!(bench.connection.exchanges[0].inbound, want);
    }
}

// The ending of an exchange is the cause of its own end: a stream that was too slow has no effect on later endings.
#[test]
fn a_slow_stream_is_not_the_cause_of_the_connections_end() {
    let mut bench = Bench::new();
    bench.connection.machine.windows[0] = 0;
    bench.sends(&[pair::head(1, "/fixed"), pair::end(1), pair::head(2, "/hold"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    bench.age(0);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [("/fixed".to_owned(), Some(200), Ending::TimedOut)]);
    drop(bench.connection);
    let ended = ENDED.with_borrow_mut(|ended| ended.drain(..).map(|(_, outcome)| outcome.ending).collect::<Vec<_>>());
    assert_eq!(ended, [Ending::PeerGone]);
    bench.core.close();
}

#[test]
fn a_new_plan_applies_to_the_next_exchange_and_its_limits_later() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    let old = Rc::downgrade(&bench.generation);
    let worker = bench.core.worker();
    bench.generation = Generation::new(Arc::new(plan()), &worker, None);
    bench.listener.replace_plan(ListenerPlan::new(&bench.spec, None, &bench.generation));
    bench.sends(&[pair::head(2, "/hold"), pair::end(2)]);
    assert!(bench.turn().is_pending());
    assert!(bench.log().is_empty(), "an exchange is open");
    let under = |bench: &Bench| -> Vec<bool> {
        let exchanges = bench.connection.exchanges.iter();
        exchanges.map(|exchange| Rc::ptr_eq(exchange.cx.generation(), &bench.generation)).collect()
    };
    assert_eq!(under(&bench), [false, true], "the first goes on under its own");
    bench.release_held(0);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.ended(), [complete("/hold")]);
    assert!(old.upgrade().is_none(), "the old generation went with its last exchange");
    bench.release_held(0);
    assert!(bench.turn().is_pending());
    bench.log();
    for want in [&["renewed", "1 head 200", "1 data 5", "1 finish"][..], &["1 head 200", "1 data 5", "1 finish"]] {
        bench.sends(&[pair::head(1, "/fixed"), pair::end(1)]);
        assert!(bench.turn().is_pending());
        assert_eq!(bench.log(), want);
    }
}

#[test]
fn an_idle_connection_holds_no_generation() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/fixed"), pair::end(1)]);
    assert!(bench.turn().is_pending());
    let old = Rc::downgrade(&bench.generation);
    bench.generation = Generation::vacant();
    bench.listener.replace_plan(ListenerPlan::new(&bench.spec, None, &bench.generation));
    assert!(old.upgrade().is_none());
}

#[test]
fn a_slot_serves_one_exchange_after_another() {
    let mut bench = Bench::new();
    // The place of its waker identifies a slot.
    let mut first = bench.core.take_slot();
    let place = first.wake.waker().data();
    first.spare.head_mut().set_target("/left/over").unwrap();
    first.spare.head_mut().clear();
    bench.core.put_slot(first);
    for round in 0..50 {
        bench.sends(&[pair::head(1, "/fixed"), pair::end(1)]);
        assert!(bench.turn().is_pending());
        assert_eq!(bench.ended(), [complete("/fixed")], "round {round}");
    }
    let mut slots: Vec<_> = (0..3).map(|_| bench.core.take_slot()).collect();
    assert!(slots[..2].iter().any(|slot| slot.wake.waker().data() == place), "two slots served fifty exchanges");
    assert!(slots.iter_mut().all(|slot| slot.spare.head_mut().target().as_str() != "/fixed"), "what rests is empty");
}

#[test]
fn a_dropped_connection_ends_its_exchanges() {
    let mut bench = Bench::new();
    bench.sends(&[pair::head(1, "/hold"), pair::end(1), pair::head(2, "/echo"), pair::data(2, 3)]);
    assert!(bench.turn().is_pending());
    let Bench { core, connection, .. } = bench;
    drop(connection);
    assert!(HELD.with_borrow(|held| held[0].0.is_canceled()), "the wait was dropped");
    let gone = |target: &str, status| (target.to_owned(), status, Ending::PeerGone);
    let ended: Vec<_> = ENDED.with_borrow_mut(|ended| {
        ended.drain(..).map(|(target, o)| (target, o.status.map(StatusCode::as_u16), o.ending)).collect()
    });
    assert_eq!(ended, [gone("/hold", None), gone("/echo", Some(200))]);
    assert_eq!(core.counters.connections.load(Ordering::Relaxed), 0);
    core.close();
}
