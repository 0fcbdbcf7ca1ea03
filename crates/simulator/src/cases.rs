//! The programs that are tested: small models of what a profiler meets.

use crate::program::{Arrivals, Client, Program, Step};
use crate::random::Time;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A program and what is known of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// As tables have it.
    pub name: &'static str,
    /// The program.
    pub program: Program,
    /// Whether its load sets the pace itself.
    pub is_open: bool,
}

fn work(kind: u32, time: Time, is_target: bool) -> Step {
    Step::Work { kind, time, is_target }
}

/// The kinds of work: what is the target's in a span of its own; what is sampled, a part of which is the target's; the rest.
const TARGET: u32 = 1;
const SAMPLED: u32 = 2;
const OTHER: u32 = 3;
const BUSY: u32 = 4;

/// A request of 50 µs, 20 of them the target's, in a span of its own.
#[must_use]
pub fn request() -> Vec<Step> {
    vec![
        Step::Await,
        Step::Begin,
        work(OTHER, Time::Random(15 * US), false),
        work(TARGET, Time::Random(20 * US), true),
        work(OTHER, Time::Random(15 * US), false),
        Step::Write,
        Step::End(0),
    ]
}

/// The same with a target that is sampled: it has no span, and its part of the time is known only in the mean.
fn sampled_request() -> Vec<Step> {
    let mut steps = request();
    for step in &mut steps {
        if let Step::Work { kind, .. } = step {
            *kind = SAMPLED;
        }
    }
    steps
}

/// Event loops with so many closed clients each, whose next request comes 150 µs after the answer.
#[must_use]
pub fn loops(loops: usize, clients: usize, steps: &[Step]) -> Program {
    let mut program = Program::default();
    for thread in 0..loops {
        for _ in 0..clients {
            program = program.task(thread, Some(Client::Closed(Time::About(150 * US))), steps.to_vec());
        }
    }
    program
}

/// One event loop with so many closed clients, whose way from an answer to the next request is so long.
#[must_use]
pub fn far(clients: usize, way: u64) -> Program {
    one_loop(clients, Client::Closed(Time::About(way)))
}

/// One event loop, asked by so many clients at so many requests a second in all, whatever it answers.
#[must_use]
pub fn open(clients: usize, rate: u64) -> Program {
    let distance = Time::Random(1_000 * MS * clients as u64 / rate);
    one_loop(clients, Client::Open(distance))
}

fn one_loop(clients: usize, client: Client) -> Program {
    (0..clients).fold(Program::default(), |program, _| program.task(0, Some(client), request()))
}

/// Threads that take a lock over and over, so long inside and four times that outside; half of the inside or an eighth of the outside
/// is the target.
#[must_use]
pub fn lock(threads: usize, inside: u64, is_target_inside: bool) -> Program {
    let half = Time::Random(inside / 2);
    let steps = vec![
        Step::Begin,
        work(TARGET, half, !is_target_inside),
        work(OTHER, Time::Random(inside * 7 / 2), false),
        Step::Lock(0),
        work(BUSY, half, is_target_inside),
        work(SAMPLED, half, false),
        Step::Unlock(0),
        Step::End(0),
    ];
    (0..threads).fold(Program::default(), |program, thread| program.task(thread, None, steps.clone()))
}

/// Two stages with a queue of 8 between them; half of either one's work can be the target.
#[must_use]
pub fn pipeline(first: u64, second: u64, is_target_first: bool) -> Program {
    let stage = |kind, time: u64, is_target| {
        [work(kind, Time::About(time / 2), is_target), work(OTHER, Time::About(time / 2), false)]
    };
    let mut one = vec![Step::Begin];
    one.extend(stage(TARGET, first, is_target_first));
    one.push(Step::Send(0));
    let mut two = vec![Step::Receive(0)];
    two.extend(stage(BUSY, second, !is_target_first));
    two.push(Step::End(0));
    Program { queues: vec![8], ..Program::default() }.task(0, None, one).task(1, None, two)
}

/// Three threads in step, one of which sleeps and then works (Coz issue 231): nobody waits for what the others do.
#[must_use]
pub fn barrier(is_target_slow: bool) -> Program {
    let thread = |steps: Vec<Step>| {
        let mut all = vec![Step::Begin];
        all.extend(steps);
        all.extend([Step::Meet(0), Step::End(0)]);
        all
    };
    Program { barriers: vec![3], ..Program::default() }
        .task(
            0,
            None,
            thread(vec![Step::Sleep(Time::Fixed(800 * US)), work(TARGET, Time::About(400 * US), is_target_slow)]),
        )
        .task(1, None, thread(vec![work(BUSY, Time::About(600 * US), !is_target_slow)]))
        .task(2, None, thread(vec![work(OTHER, Time::About(300 * US), false)]))
}

/// A loop whose requests ask an upstream, which is the target.
#[must_use]
pub fn upstream(clients: usize) -> Program {
    let steps = vec![
        Step::Await,
        Step::Begin,
        work(OTHER, Time::Random(10 * US), false),
        Step::Call { whom: 9, time: Time::Random(300 * US), is_target: true },
        work(OTHER, Time::Random(10 * US), false),
        Step::Write,
        Step::End(0),
    ];
    loops(1, clients, &steps)
}

/// A loop that is asked, and a thread beside it that is busy with what nobody waits for: the target.
#[must_use]
pub fn burner(clients: usize) -> Program {
    let steps: Vec<Step> = request()
        .into_iter()
        .map(|step| match step {
            Step::Work { time, .. } => work(OTHER, time, false),
            step => step,
        })
        .collect();
    loops(1, clients, &steps).task(
        1,
        None,
        vec![work(TARGET, Time::About(100 * US), true), work(BUSY, Time::About(US), false)],
    )
}

/// The article's case: each answer is eight frames, each written by a writer that is started for it, one at a time on a connection;
/// starting is the target. So far away are the clients.
#[must_use]
pub fn writers(round_trip: u64) -> Program {
    let mut program = Program { queues: Vec::new(), ..Program::default() };
    for connection in 0..4 {
        let (ask, done) = (program.queues.len(), program.queues.len() + 1);
        program.queues.extend([1, 1]);
        let mut steps = vec![Step::Await, Step::Begin, work(OTHER, Time::Random(150 * US), false)];
        for _ in 0..8 {
            steps.extend([work(OTHER, Time::About(20 * US), false), Step::Send(ask), Step::Receive(done)]);
        }
        steps.extend([Step::Write, Step::End(0)]);
        let writer = vec![
            Step::Receive(ask),
            work(TARGET, Time::About(60 * US), true),
            work(BUSY, Time::About(100 * US), false),
            Step::Send(done),
        ];
        let client = Client::Closed(Time::Fixed(round_trip + 10 * US));
        program = program.task(2 * connection, Some(client), steps).task(2 * connection + 1, None, writer);
    }
    program
}

/// A loop whose handlers sleep 2 ms in the middle of a request.
#[must_use]
pub fn sleepers(clients: usize) -> Program {
    let mut steps = request();
    steps.insert(4, Step::Sleep(Time::Fixed(2 * MS)));
    loops(1, clients, &steps)
}

/// A loop with a target that does nothing worth mentioning: 20 ns of 50 µs.
#[must_use]
pub fn worthless(clients: usize) -> Program {
    let mut steps = request();
    steps[3] = work(TARGET, Time::Fixed(20), true);
    loops(1, clients, &steps)
}

/// All of them, as the table has them.
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
        closed("one loop, 4, cold behind sleep", cold(loops(1, 4, &request()))),
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
        closed("an upstream of a loop that is cold behind sleep", cold(upstream(4))),
        closed("a burner beside, 4 connections", burner(4)),
        closed("handlers that sleep, 32 connections", sleepers(32)),
        closed("a writer per frame, no round trip", writers(0)),
        closed("a writer per frame, 1 ms", writers(MS)),
        closed("a writer per frame, 20 ms", writers(20 * MS)),
        closed("a target that does nothing", worthless(4)),
    ]
}
