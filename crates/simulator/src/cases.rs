//! The tested programs: small models of programs that a profiler is used on.

use crate::program::{Arrivals, ClientModel, Program, TaskStep};
use crate::random::Time;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A program and its expected kind of load.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in tables.
    pub name: &'static str,
    /// The program.
    pub program: Program,
    /// Whether its load is an open loop.
    pub is_open: bool,
}

fn work(kind: u32, time: Time, is_target: bool) -> TaskStep {
    TaskStep::Work { kind, time, is_target }
}

/// Kinds of work: a target with a span of its own; a kind that only sampling can split; the remaining work.
const TARGET: u32 = 1;
const SAMPLED: u32 = 2;
const OTHER: u32 = 3;
const BUSY: u32 = 4;

/// A request of 50 µs, 20 µs of which are the target, in a span of its own.
#[must_use]
pub fn request() -> Vec<TaskStep> {
    vec![
        TaskStep::Await,
        TaskStep::Begin,
        work(OTHER, Time::Random(15 * US), false),
        work(TARGET, Time::Random(20 * US), true),
        work(OTHER, Time::Random(15 * US), false),
        TaskStep::Write,
        TaskStep::End(0),
    ]
}

/// The request with a sampled target: it has no span, so only its mean part of the time is known.
fn sampled_request() -> Vec<TaskStep> {
    let mut steps = request();
    for step in &mut steps {
        if let TaskStep::Work { kind, .. } = step {
            *kind = SAMPLED;
        }
    }
    steps
}

/// Event loops with `clients` closed-loop clients each, which send the next request 150 µs after the response.
#[must_use]
pub fn loops(loops: usize, clients: usize, steps: &[TaskStep]) -> Program {
    let mut program = Program::default();
    for thread in 0..loops {
        for _ in 0..clients {
            program = program.task(thread, Some(ClientModel::Closed(Time::About(150 * US))), steps.to_vec());
        }
    }
    program
}

/// One event loop with closed-loop clients, which send the next request `way` nanoseconds after the response.
#[must_use]
pub fn far(clients: usize, way: u64) -> Program {
    one_loop(clients, ClientModel::Closed(Time::About(way)))
}

/// One event loop under an open loop of `clients` clients, at `rate` requests a second in all.
#[must_use]
pub fn open(clients: usize, rate: u64) -> Program {
    let distance = Time::Random(1_000 * MS * clients as u64 / rate);
    one_loop(clients, ClientModel::Open(distance))
}

fn one_loop(clients: usize, client: ClientModel) -> Program {
    (0..clients).fold(Program::default(), |program, _| program.task(0, Some(client), request()))
}

/// Threads that take a lock in a loop, for `inside` nanoseconds, with four times that outside. The target is half of
/// the time inside, or an eighth of the time outside.
#[must_use]
pub fn lock(threads: usize, inside: u64, is_target_inside: bool) -> Program {
    let half = Time::Random(inside / 2);
    let steps = vec![
        TaskStep::Begin,
        work(TARGET, half, !is_target_inside),
        work(OTHER, Time::Random(inside * 7 / 2), false),
        TaskStep::Lock(0),
        work(BUSY, half, is_target_inside),
        work(SAMPLED, half, false),
        TaskStep::Unlock(0),
        TaskStep::End(0),
    ];
    (0..threads).fold(Program::default(), |program, thread| program.task(thread, None, steps.clone()))
}

/// Two stages with a queue of 8 messages between them. The target is half of one stage's work.
#[must_use]
pub fn pipeline(first: u64, second: u64, is_target_first: bool) -> Program {
    let stage = |kind, time: u64, is_target| {
        [work(kind, Time::About(time / 2), is_target), work(OTHER, Time::About(time / 2), false)]
    };
    let mut one = vec![TaskStep::Begin];
    one.extend(stage(TARGET, first, is_target_first));
    one.push(TaskStep::Send(0));
    let mut two = vec![TaskStep::Receive(0)];
    two.extend(stage(BUSY, second, !is_target_first));
    two.push(TaskStep::End(0));
    Program { queues: vec![8], ..Program::default() }.task(0, None, one).task(1, None, two)
}

/// Three threads that meet at a barrier, one of which sleeps and then works (Coz issue 231): it always arrives last, so
/// no thread waits for the work of the two others.
#[must_use]
pub fn barrier(is_target_slow: bool) -> Program {
    let thread = |steps: Vec<TaskStep>| {
        let mut all = vec![TaskStep::Begin];
        all.extend(steps);
        all.extend([TaskStep::Barrier(0), TaskStep::End(0)]);
        all
    };
    Program { barriers: vec![3], ..Program::default() }
        .task(
            0,
            None,
            thread(vec![TaskStep::Sleep(Time::Fixed(800 * US)), work(TARGET, Time::About(400 * US), is_target_slow)]),
        )
        .task(1, None, thread(vec![work(BUSY, Time::About(600 * US), !is_target_slow)]))
        .task(2, None, thread(vec![work(OTHER, Time::About(300 * US), false)]))
}

/// An event loop whose requests call an upstream, which is the target.
#[must_use]
pub fn upstream(clients: usize) -> Program {
    let steps = vec![
        TaskStep::Await,
        TaskStep::Begin,
        work(OTHER, Time::Random(10 * US), false),
        TaskStep::Call { callee: 9, time: Time::Random(300 * US), is_target: true, connections: None },
        work(OTHER, Time::Random(10 * US), false),
        TaskStep::Write,
        TaskStep::End(0),
    ];
    loops(1, clients, &steps)
}

/// A loop that serves requests, and a busy thread whose work delays no request: the target.
#[must_use]
pub fn burner(clients: usize) -> Program {
    let steps: Vec<TaskStep> = request()
        .into_iter()
        .map(|step| match step {
            TaskStep::Work { time, .. } => work(OTHER, time, false),
            step => step,
        })
        .collect();
    loops(1, clients, &steps).task(
        1,
        None,
        vec![work(TARGET, Time::About(100 * US), true), work(BUSY, Time::About(US), false)],
    )
}

/// The article's case: each response has eight frames, each written by a writer that is started for it, one at a time
/// on a connection. The target is the writer's start-up. `round_trip` is the distance of the clients, nanoseconds.
#[must_use]
pub fn writers(round_trip: u64) -> Program {
    let mut program = Program { queues: Vec::new(), ..Program::default() };
    for connection in 0..4 {
        // Two queues of one message connect a connection's handler with its writer.
        let (ask, done) = (program.queues.len(), program.queues.len() + 1);
        program.queues.extend([1, 1]);
        let mut steps = vec![TaskStep::Await, TaskStep::Begin, work(OTHER, Time::Random(150 * US), false)];
        for _ in 0..8 {
            steps.extend([work(OTHER, Time::About(20 * US), false), TaskStep::Send(ask), TaskStep::Receive(done)]);
        }
        steps.extend([TaskStep::Write, TaskStep::End(0)]);
        let writer = vec![
            TaskStep::Receive(ask),
            work(TARGET, Time::About(60 * US), true),
            work(BUSY, Time::About(100 * US), false),
            TaskStep::Send(done),
        ];
        let client = ClientModel::Closed(Time::Fixed(round_trip + 10 * US));
        program = program.task(2 * connection, Some(client), steps).task(2 * connection + 1, None, writer);
    }
    program
}

/// An event loop whose handlers sleep for 2 ms in the middle of a request.
#[must_use]
pub fn sleepers(clients: usize) -> Program {
    let mut steps = request();
    // Between the target and the rest of the request.
    steps.insert(4, TaskStep::Sleep(Time::Fixed(2 * MS)));
    loops(1, clients, &steps)
}

/// An event loop that asks one upstream, and then another one over two connections at most. The target is one of them.
#[must_use]
pub fn limited(clients: usize, is_target_limited: bool) -> Program {
    let call =
        |callee, is_target, connections| TaskStep::Call { callee, time: Time::About(300 * US), is_target, connections };
    let steps = [
        TaskStep::Await,
        TaskStep::Begin,
        work(OTHER, Time::Random(5 * US), false),
        call(8, !is_target_limited, None),
        work(OTHER, Time::Random(5 * US), false),
        call(9, is_target_limited, Some(0)),
        work(OTHER, Time::Random(5 * US), false),
        TaskStep::Write,
        TaskStep::End(0),
    ];
    Program { connections: vec![2], ..loops(1, clients, &steps) }
}

/// An event loop whose handlers leave `time` nanoseconds of each request to a thread that reports nothing.
#[must_use]
pub fn elsewhere(clients: usize, time: u64) -> Program {
    let mut steps = request();
    steps.insert(4, TaskStep::Sleep(Time::Random(time)));
    loops(1, clients, &steps)
}

/// An event loop with a negligible target: 20 ns of 50 µs.
#[must_use]
pub fn worthless(clients: usize) -> Program {
    let mut steps = request();
    steps[3] = work(TARGET, Time::Fixed(20), true);
    loops(1, clients, &steps)
}

/// All cases, in the order of the table.
#[must_use]
pub fn all() -> Vec<Case> {
    let closed = |name, program| Case { name, program, is_open: false };
    let unknown = |program| Program { arrivals: Arrivals::Unknown, ..program };
    let cold = |program| Program { cold: Some(Time::About(15 * US)), ..program };
    vec![
        closed("one loop, 2 connections", loops(1, 2, &request())),
        closed("one loop, 4 connections", loops(1, 4, &request())),
        closed("one loop, 4, sampled", loops(1, 4, &sampled_request())),
        closed("one loop, 4, arrivals not known", unknown(loops(1, 4, &request()))),
        closed("one loop, 8 connections", loops(1, 8, &request())),
        closed("one loop, 8, arrivals not known", unknown(loops(1, 8, &request()))),
        closed("one loop, 32 connections (saturated)", loops(1, 32, &request())),
        closed("one loop, 4, cold after sleep", cold(loops(1, 4, &request()))),
        closed("four loops, 4 connections each", loops(4, 4, &request())),
        Case { name: "one loop, open, 10 k/s", program: open(16, 10_000), is_open: true },
        Case { name: "one loop, open, 16 k/s", program: open(16, 16_000), is_open: true },
        closed("lock, 4 threads, target inside", lock(4, 20 * US, true)),
        closed("lock, 8 threads, target inside", lock(8, 20 * US, true)),
        closed("lock, 4 threads, target outside", lock(4, 20 * US, false)),
        closed("lock, 8 threads, target outside", lock(8, 20 * US, false)),
        closed("lock of 1 ms, 4 threads, target inside", lock(4, MS, true)),
        closed("lock of 1 ms, 8 threads, target inside", lock(8, MS, true)),
        closed("lock of 1 ms, 4 threads, target outside", lock(4, MS, false)),
        closed("lock of 1 ms, 8 threads, target outside", lock(8, MS, false)),
        closed("pipeline, target in the fast stage", pipeline(20 * US, 50 * US, true)),
        closed("pipeline, target in the slow stage", pipeline(20 * US, 50 * US, false)),
        closed("pipeline, even stages", pipeline(50 * US, 50 * US, true)),
        closed("sleep and barrier, target last", barrier(true)),
        closed("sleep and barrier, target not last", barrier(false)),
        closed("an upstream, 4 connections", upstream(4)),
        closed("an upstream, 32 connections", upstream(32)),
        closed("an upstream of a loop that is cold after sleep", cold(upstream(4))),
        closed("an independent burner, 4 connections", burner(4)),
        closed("handlers that sleep, 32 connections", sleepers(32)),
        closed("handlers that sleep, 2 connections", sleepers(2)),
        closed("handlers that wait, busy loop", elsewhere(8, 60 * US)),
        closed("half of a request on an unreported thread", elsewhere(2, 50 * US)),
        closed("two upstreams, the target unlimited", limited(8, false)),
        closed("two upstreams, the target over 2 connections", limited(8, true)),
        closed("a writer per frame, no round trip", writers(0)),
        closed("a writer per frame, 1 ms", writers(MS)),
        closed("a writer per frame, 20 ms", writers(20 * MS)),
        closed("a target that does nothing", worthless(4)),
    ]
}
