//! A discrete-event machine that runs a program: one processor per thread, and a clock that jumps from event to event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use causal::experiment::SeededRandom;
use progress::Stamp;

use crate::observer::{Observer, Visit};
use crate::program::{Arrivals, ClientModel, Program, TaskStep};
use crate::random::{Time, stream};

/// From the wakeup of a thread to its first instruction.
const WAKE: Time = Time::About(8_000);
/// The waker's own cost of a wakeup.
const WAKING: Time = Time::About(4_000);
/// The kind of work of that cost.
const WAKING_KIND: u32 = 31;
/// How long a thread spins on a lock before it sleeps, nanoseconds.
const SPIN: u64 = 4_000;
/// From the release of a lock until a spinning thread has it.
const HANDOVER: Time = Time::Fixed(100);
/// The clock at the program's start.
pub(crate) const START: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread continues: its computation, pause or sleep has ended.
    Continue(usize),
    /// A thread that waited for events is awake.
    Woken(usize),
    /// A request arrived for the task.
    Request(usize),
    /// The event for which the task waited has arrived: the task becomes ready.
    Ready(usize),
}

/// The stamp and the unit of progress that a message carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaskMessage {
    pub(crate) stamp: Stamp,
    pub(crate) visit: Visit,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<TaskMessage>,
    /// Free slots, each with the stamp of the receiver that freed it.
    permits: VecDeque<TaskMessage>,
    /// Threads that wait for a message, then those that wait for a free slot.
    receivers: VecDeque<usize>,
    senders: VecDeque<usize>,
}

/// A lock like the standard library's: a waiting thread spins for a while, then sleeps; a woken one may be overtaken.
#[derive(Default)]
struct Lock {
    is_held: bool,
    /// The waiting threads, and when each began to spin.
    waiters: VecDeque<(usize, u64)>,
    /// A woken thread that has not retried yet: until then no further one is woken.
    woken: Option<usize>,
}

#[derive(Default)]
struct Barrier {
    messages: Vec<Stamp>,
    waiters: Vec<usize>,
}

/// Connections to an upstream.
struct Connections {
    free: usize,
    /// The tasks that wait for one, with the stamps of their messages.
    waiting: VecDeque<(usize, Stamp)>,
}

/// The event for which a task is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Request,
    /// A free connection.
    Connection,
    Answer,
    Timer,
}

struct TaskState {
    /// Index of the current step.
    at: usize,
    random: SeededRandom,
    /// The client's own stream, so that its draws do not depend on the program's.
    client: SeededRandom,
    /// Arrival times of unread requests.
    inbox: VecDeque<u64>,
    wait: Wait,
    /// The ledger held its event; the event's arrival time is kept.
    held: bool,
    connection: Stamp,
    /// The stamp of its call or timer.
    pending_stamp: Stamp,
    /// When the awaited answer or timer arrived.
    arrived_at: u64,
    visit: Visit,
}

struct ThreadState {
    is_worker: bool,
    /// The task that runs.
    current: Option<usize>,
    ready: VecDeque<usize>,
    /// It waits for events.
    is_idle: bool,
    is_waking: bool,
    /// It has slept, and has not worked since: its caches are cold.
    is_cold: bool,
    /// When it blocked inside a step.
    blocked_since: u64,
    /// Another thread or a timer has ended that wait.
    is_wait_over: bool,
    /// Progress within a step of several parts.
    phase: u32,
    /// Its pause has ended, so the current step does not check for pending delay again.
    has_paid: bool,
    /// Arrival time of the event that the thread processes; 0 if it is a message or a timer of the program.
    cause: u64,
    /// The stamps of the threads that met it at a barrier.
    met: Vec<Stamp>,
    random: SeededRandom,
}

/// Whether a thread goes on after a step, or after a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepResult {
    /// With its next step, or with its next ready task.
    Continues,
    /// Until an event lets it continue.
    Stops,
}
use StepResult::{Continues, Stops};

/// The time of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindTime {
    pub(crate) all: f64,
    /// The target's part of it.
    pub(crate) of_target: f64,
}

/// A running program.
pub(crate) struct Machine<'a> {
    program: &'a Program,
    /// The true speed-up of the target.
    speedup: f64,
    pub(crate) now: u64,
    /// Orders events with equal times.
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    tasks: Vec<TaskState>,
    threads: Vec<ThreadState>,
    queues: Vec<Queue>,
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    connections: Vec<Connections>,
    /// By kind of work.
    pub(crate) kinds: Vec<KindTime>,
    pub(crate) observer: Observer,
}

impl<'a> Machine<'a> {
    /// The program at its start. Equal seeds give equal runs, apart from the effect of `speedup`.
    pub(crate) fn new(program: &'a Program, seed: u64, speedup: f64) -> Self {
        let tasks = program.tasks.iter().enumerate().map(|(number, _)| TaskState {
            at: 0,
            random: stream(seed, number as u64),
            client: stream(seed, 1000 + number as u64),
            inbox: VecDeque::new(),
            wait: Wait::Nothing,
            held: false,
            connection: Stamp::default(),
            pending_stamp: Stamp::default(),
            arrived_at: 0,
            visit: Visit::default(),
        });
        let threads = (0..program.threads()).map(|number| ThreadState {
            is_worker: program.is_worker(number),
            current: None,
            ready: VecDeque::new(),
            is_idle: false,
            is_waking: false,
            is_cold: false,
            blocked_since: 0,
            is_wait_over: false,
            phase: 0,
            has_paid: false,
            cause: 0,
            met: Vec::new(),
            random: stream(seed, 2000 + number as u64),
        });
        // All slots are free at the start, and carry no stamp.
        let queue = |&room: &usize| Queue { permits: vec![TaskMessage::default(); room].into(), ..Queue::default() };
        let mut machine = Self {
            program,
            speedup,
            now: START,
            serial: 0,
            events: BinaryHeap::new(),
            tasks: tasks.collect(),
            threads: threads.collect(),
            queues: program.queues.iter().map(queue).collect(),
            locks: (0..program.locks()).map(|_| Lock::default()).collect(),
            barriers: program.barriers.iter().map(|_| Barrier::default()).collect(),
            connections: program
                .connections
                .iter()
                .map(|&free| Connections { free, waiting: VecDeque::new() })
                .collect(),
            kinds: Vec::new(),
            observer: Observer::new(program, seed),
        };
        // Every task is ready at the start, and every client sends its first request.
        for task in 0..program.tasks.len() {
            machine.threads[program.tasks[task].thread].ready.push_back(task);
            if let Some(client) = program.tasks[task].client {
                let (ClientModel::Closed(time) | ClientModel::Open(time)) = client;
                machine.request_after(task, time);
            }
        }
        for thread in 0..machine.threads.len() {
            machine.after(0.0, Event::Continue(thread));
        }
        machine
    }

    /// Runs until `until` nanoseconds after the start.
    pub(crate) fn run_until(&mut self, until: u64) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > START + until {
                break;
            }
            self.events.pop();
            self.now = at;
            self.handle_event(event);
        }
        self.now = START + until;
    }

    fn after(&mut self, time: f64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((self.now + time.round() as u64, self.serial, event)));
    }

    fn request_after(&mut self, task: usize, time: Time) {
        let time = time.draw(&mut self.tasks[task].client);
        self.after(time, Event::Request(task));
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Continue(thread) => {
                if self.observer.pause_ended(thread, self.now) {
                    self.threads[thread].has_paid = true;
                }
                self.go_on(thread);
            }
            Event::Woken(thread) => {
                self.threads[thread].is_waking = false;
                self.threads[thread].is_idle = false;
                // The wait in the event loop ends here; its first work is slower.
                self.threads[thread].is_cold = true;
                self.observer.block_ended(thread, self.now);
                self.go_on(thread);
            }
            Event::Request(task) => {
                // An open loop schedules its next request at once; a closed loop does so at `TaskStep::Write`.
                if let Some(ClientModel::Open(time)) = self.program.tasks[task].client {
                    self.request_after(task, time);
                }
                self.tasks[task].inbox.push_back(self.now);
                if self.tasks[task].wait == Wait::Request && self.tasks[task].inbox.len() == 1 {
                    self.make_ready(task);
                }
            }
            Event::Ready(task) => {
                // A held event keeps its original arrival time.
                if !std::mem::replace(&mut self.tasks[task].held, false) {
                    self.tasks[task].arrived_at = self.now;
                }
                self.make_ready(task);
            }
        }
    }

    /// Queues the task on its thread, and wakes the thread if it is idle.
    fn make_ready(&mut self, task: usize) {
        let thread = self.program.tasks[task].thread;
        self.threads[thread].ready.push_back(task);
        // Further events during the wakeup need no wakeup of their own.
        if self.threads[thread].is_idle && !self.threads[thread].is_waking {
            self.threads[thread].is_waking = true;
            let wake = WAKE.draw(&mut self.threads[thread].random);
            self.after(wake, Event::Woken(thread));
        }
    }

    /// Runs the thread until a step takes time or the thread has no ready task.
    fn go_on(&mut self, thread: usize) {
        loop {
            let Some(task) = self.threads[thread].current else {
                let Some(task) = self.threads[thread].ready.pop_front() else {
                    self.threads[thread].is_idle = true;
                    self.observer.block_began(thread, self.now);
                    return;
                };
                if self.resume(thread, task) {
                    self.threads[thread].current = Some(task);
                }
                continue;
            };
            if self.step(thread, task) == Stops {
                return;
            }
        }
    }

    /// Continues the task with the event for which it waited. Returns false if the ledger holds that event for later.
    fn resume(&mut self, thread: usize, task: usize) -> bool {
        let state = &mut self.tasks[task];
        match std::mem::replace(&mut state.wait, Wait::Nothing) {
            Wait::Nothing | Wait::Connection => {}
            Wait::Request => {
                let arrived = *state.inbox.front().expect("a request that made it ready");
                // 0 makes the ledger estimate the arrival.
                let known = if self.program.arrivals == Arrivals::Known { arrived } else { 0 };
                if let Some(hold) = self.observer.hold(state.connection, known, self.now) {
                    // The request stays in the inbox until the hold has ended.
                    (state.held, state.wait) = (true, Wait::Request);
                    self.after(hold, Event::Ready(task));
                    return false;
                }
                state.inbox.pop_front();
                self.threads[thread].cause = arrived;
                self.observer.arrived(thread, task, &mut state.connection, known, self.now);
            }
            Wait::Answer => {
                if let Some(hold) = self.observer.hold(state.pending_stamp, state.arrived_at, self.now) {
                    (state.held, state.wait) = (true, Wait::Answer);
                    self.after(hold, Event::Ready(task));
                    return false;
                }
                self.threads[thread].cause = state.arrived_at;
                self.observer.answered(thread, state.pending_stamp, state.arrived_at, self.now);
                self.free_connection(thread, task);
            }
            Wait::Timer => {
                self.threads[thread].cause = state.arrived_at;
                self.observer.woke(thread, state.pending_stamp, 0, self.now);
            }
        }
        true
    }

    /// Moves the task to its next step.
    fn advance(&mut self, thread: usize, task: usize) -> StepResult {
        self.threads[thread].phase = 0;
        self.threads[thread].is_wait_over = false;
        self.tasks[task].at = (self.tasks[task].at + 1) % self.program.tasks[task].steps.len();
        Continues
    }

    /// Suspends the task; the thread continues with another one.
    fn suspend(&mut self, thread: usize, task: usize, wait: Wait) -> StepResult {
        self.tasks[task].wait = wait;
        self.threads[thread].current = None;
        Continues
    }

    /// Wakes sleeping threads. That takes time, so the waker continues by a later event.
    fn wake(&mut self, thread: usize, sleepers: &[usize]) -> StepResult {
        for &sleeper in sleepers {
            self.release(sleeper, WAKE);
        }
        let time = WAKING.draw(&mut self.threads[thread].random);
        self.observer.waking(thread, WAKING_KIND, self.now);
        self.count(WAKING_KIND, time, false);
        self.after(time, Event::Continue(thread));
        Stops
    }

    /// Blocks the thread inside its step.
    fn block(&mut self, thread: usize) -> StepResult {
        if !self.threads[thread].is_wait_over {
            self.threads[thread].blocked_since = self.now;
        }
        Stops
    }

    /// Lets a thread that blocked inside a step continue with it after `delay`.
    fn release(&mut self, thread: usize, delay: Time) {
        let delay = delay.draw(&mut self.threads[thread].random);
        self.threads[thread].is_wait_over = true;
        self.after(delay, Event::Continue(thread));
    }

    /// How long the thread was blocked in its current step; 0 if it was not.
    fn blocked_for(&self, thread: usize) -> u64 {
        let state = &self.threads[thread];
        if state.is_wait_over { self.now - state.blocked_since } else { 0 }
    }

    /// Whether the thread may continue at once. If it has pending delay, this schedules its pause.
    fn pay(&mut self, thread: usize, is_awaited: bool) -> bool {
        if std::mem::replace(&mut self.threads[thread].has_paid, false) {
            return true;
        }
        match self.observer.pay(thread, is_awaited, self.now) {
            None => true,
            Some(sleep) => {
                self.after(sleep, Event::Continue(thread));
                false
            }
        }
    }

    /// Performs one step, or a part of it.
    fn step(&mut self, thread: usize, task: usize) -> StepResult {
        match self.program.tasks[task].steps[self.tasks[task].at] {
            TaskStep::Work { kind, time, is_target } => self.work(thread, task, kind, time, is_target),
            TaskStep::Lock(lock) => self.lock(thread, task, lock),
            TaskStep::Unlock(lock) => self.unlock(thread, task, lock),
            TaskStep::Send(queue) => self.send(thread, task, queue),
            TaskStep::Receive(queue) => self.receive(thread, task, queue),
            TaskStep::Sleep(time) => self.sleep(thread, task, time),
            TaskStep::Barrier(barrier) => self.wait_at_barrier(thread, task, barrier),
            TaskStep::Await => self.await_request(thread, task),
            TaskStep::Write => self.write(thread, task),
            TaskStep::Call { connections, .. } => self.call(thread, task, connections),
            TaskStep::Begin => {
                // A unit's latency counts from the arrival of its request, or from here without one.
                let cause = if self.threads[thread].cause > 0 { self.threads[thread].cause } else { self.now };
                self.tasks[task].visit = self.observer.began(thread, cause, self.now);
                self.advance(thread, task)
            }
            TaskStep::End(point) => {
                self.observer.ended(thread, self.tasks[task].visit, point, self.now);
                self.advance(thread, task)
            }
        }
    }

    fn work(&mut self, thread: usize, task: usize, kind: u32, time: Time, is_target: bool) -> StepResult {
        self.observer.set_kind(thread, kind, self.now);
        // The draw does not depend on `speedup`, so both runs of a pair use equal random numbers.
        let mut time = time.draw(&mut self.tasks[task].random);
        self.count(kind, time, is_target);
        if is_target {
            time *= 1.0 - self.speedup;
        }
        // The first work after a sleep pays for cold caches; that part is never the target's.
        if std::mem::take(&mut self.threads[thread].is_cold)
            && let Some(cold) = self.program.cold
        {
            let extra = cold.draw(&mut self.threads[thread].random);
            self.count(kind, extra, false);
            time += extra;
        }
        self.advance(thread, task);
        self.after(time, Event::Continue(thread));
        Stops
    }

    fn lock(&mut self, thread: usize, task: usize, lock: usize) -> StepResult {
        // Pending delay is slept off once, before the first attempt to take the lock.
        if !self.threads[thread].is_wait_over && !self.pay(thread, true) {
            return Stops;
        }
        let state = &mut self.locks[lock];
        // The woken thread retries. One that spins may do so before it.
        if state.woken == Some(thread) {
            state.woken = None;
        }
        if state.is_held {
            state.waiters.push_back((thread, self.now));
            return self.block(thread);
        }
        state.is_held = true;
        self.observer.locked(thread, lock, self.blocked_for(thread), self.now);
        self.advance(thread, task)
    }

    fn unlock(&mut self, thread: usize, task: usize, lock: usize) -> StepResult {
        // Pending delay is slept off before the release only if another thread waits for the lock.
        let is_contended = !self.locks[lock].waiters.is_empty();
        if is_contended && !self.pay(thread, true) {
            return Stops;
        }
        self.observer.unlocked(thread, lock, self.now);
        let state = &mut self.locks[lock];
        state.is_held = false;
        // A spinning waiter takes the lock first, as with a futex; only without one is a sleeping waiter woken.
        let spinning = state.waiters.iter().position(|&(_, since)| since + SPIN >= self.now);
        if let Some(spinning) = spinning {
            let (waiter, _) = state.waiters.remove(spinning).expect("the one that spins");
            self.release(waiter, HANDOVER);
        } else if state.woken.is_none()
            && let Some((waiter, _)) = state.waiters.pop_front()
        {
            state.woken = Some(waiter);
            self.advance(thread, task);
            return self.wake(thread, &[waiter]);
        }
        self.advance(thread, task)
    }

    fn send(&mut self, thread: usize, task: usize, queue: usize) -> StepResult {
        if self.threads[thread].phase == 0 {
            // A permit is a free slot; it carries the stamp of the receiver that freed it.
            let Some(permit) = self.queues[queue].permits.pop_front() else {
                self.queues[queue].senders.push_back(thread);
                return self.block(thread);
            };
            // The slot's stamp is a message from the receiver: a full queue couples the sender to it.
            self.observer.took(thread, permit.stamp, self.blocked_for(thread), self.now);
            self.threads[thread].phase = 1;
        }
        if !self.pay(thread, true) {
            return Stops;
        }
        let message = TaskMessage { stamp: self.observer.sent(thread, self.now), visit: self.tasks[task].visit };
        self.queues[queue].messages.push_back(message);
        self.advance(thread, task);
        self.queues[queue].receivers.pop_front().map_or(Continues, |receiver| self.wake(thread, &[receiver]))
    }

    fn receive(&mut self, thread: usize, task: usize, queue: usize) -> StepResult {
        if self.threads[thread].phase == 0 {
            let Some(message) = self.queues[queue].messages.pop_front() else {
                self.queues[queue].receivers.push_back(thread);
                return self.block(thread);
            };
            self.observer.took(thread, message.stamp, self.blocked_for(thread), self.now);
            // The unit of progress moves on with the message.
            self.tasks[task].visit = message.visit;
            self.threads[thread].cause = 0;
            self.threads[thread].phase = 1;
        }
        if !self.pay(thread, true) {
            return Stops;
        }
        let stamp = self.observer.sent(thread, self.now);
        self.queues[queue].permits.push_back(TaskMessage { stamp, visit: Visit::default() });
        self.advance(thread, task);
        self.queues[queue].senders.pop_front().map_or(Continues, |sender| self.wake(thread, &[sender]))
    }

    fn sleep(&mut self, thread: usize, task: usize, time: Time) -> StepResult {
        if self.threads[thread].phase == 0 {
            if !self.pay(thread, false) {
                return Stops;
            }
            self.tasks[task].pending_stamp = self.observer.slept(thread, self.now);
            let time = time.draw(&mut self.tasks[task].random);
            // On an event loop a sleep suspends the task only, not the thread.
            if self.threads[thread].is_worker {
                self.after(time, Event::Ready(task));
                self.advance(thread, task);
                return self.suspend(thread, task, Wait::Timer);
            }
            self.threads[thread].phase = 1;
            self.block(thread);
            self.threads[thread].is_wait_over = true;
            self.after(time, Event::Continue(thread));
            return Stops;
        }
        let (timer, blocked) = (self.tasks[task].pending_stamp, self.blocked_for(thread));
        self.threads[thread].cause = 0;
        self.observer.woke(thread, timer, blocked, self.now);
        self.advance(thread, task)
    }

    fn wait_at_barrier(&mut self, thread: usize, task: usize, barrier: usize) -> StepResult {
        // First part: arrive. Second part, after the barrier has opened: receive the stamps of all threads.
        if self.threads[thread].phase == 0 {
            if !self.pay(thread, true) {
                return Stops;
            }
            let stamp = self.observer.sent(thread, self.now);
            self.barriers[barrier].messages.push(stamp);
            self.threads[thread].phase = 1;
            if self.barriers[barrier].messages.len() < self.program.barriers[barrier] {
                self.barriers[barrier].waiters.push(thread);
                return self.block(thread);
            }
            // The last thread at the barrier hands all stamps to each thread, and wakes the others.
            let met = std::mem::take(&mut self.barriers[barrier].messages);
            let waiters = std::mem::take(&mut self.barriers[barrier].waiters);
            for &waiter in &waiters {
                self.threads[waiter].met.clone_from(&met);
            }
            self.threads[thread].met = met;
            return self.wake(thread, &waiters);
        }
        let mut blocked = self.blocked_for(thread);
        for stamp in std::mem::take(&mut self.threads[thread].met) {
            self.observer.took(thread, stamp, blocked, self.now);
            blocked = 0;
        }
        self.advance(thread, task)
    }

    fn await_request(&mut self, thread: usize, task: usize) -> StepResult {
        self.advance(thread, task);
        self.suspend(thread, task, Wait::Request);
        // Requests that arrived while the task was busy: it is ready at once, after the other ready tasks.
        if !self.tasks[task].inbox.is_empty() {
            self.threads[thread].ready.push_back(task);
        }
        Continues
    }

    fn write(&mut self, thread: usize, task: usize) -> StepResult {
        if !self.pay(thread, false) {
            return Stops;
        }
        self.observer.written(thread, task, &mut self.tasks[task].connection, self.now);
        // A closed loop: the response causes the client's next request.
        if let Some(ClientModel::Closed(time)) = self.program.tasks[task].client {
            self.request_after(task, time);
        }
        self.advance(thread, task)
    }

    fn call(&mut self, thread: usize, task: usize, connections: Option<usize>) -> StepResult {
        if !self.pay(thread, false) {
            return Stops;
        }
        if let Some(number) = connections {
            let connections = &mut self.connections[number];
            if connections.free == 0 {
                let stamp = self.observer.sent(thread, self.now);
                connections.waiting.push_back((task, stamp));
                return self.suspend(thread, task, Wait::Connection);
            }
            connections.free -= 1;
        }
        self.send_call(thread, task);
        self.suspend(thread, task, Wait::Answer)
    }

    /// Sends the call of the task's present step, and moves the task to its next step.
    fn send_call(&mut self, thread: usize, task: usize) {
        let TaskStep::Call { callee, time, is_target, .. } = self.program.tasks[task].steps[self.tasks[task].at] else {
            unreachable!("the step is a call");
        };
        self.tasks[task].pending_stamp = self.observer.called(thread, callee, self.now);
        let time = time.draw(&mut self.tasks[task].random);
        // In the true run the upstream itself is faster.
        self.after(if is_target { time * (1.0 - self.speedup) } else { time }, Event::Ready(task));
        self.advance(thread, task);
    }

    /// After the task's call, which was its last step: its connection takes the call that has waited longest.
    fn free_connection(&mut self, thread: usize, task: usize) {
        let steps = &self.program.tasks[task].steps;
        let last = (self.tasks[task].at + steps.len() - 1) % steps.len();
        let TaskStep::Call { connections: Some(number), .. } = steps[last] else { return };
        let connections = &mut self.connections[number];
        let Some((next, stamp)) = connections.waiting.pop_front() else {
            connections.free += 1;
            return;
        };
        // The task's own work continues after that, as another task of the loop.
        let own = self.observer.sent(thread, self.now);
        self.observer.dequeued(thread, stamp, self.now);
        self.send_call(thread, next);
        self.tasks[next].wait = Wait::Answer;
        self.observer.took(thread, own, 0, self.now);
    }

    fn count(&mut self, kind: u32, time: f64, is_target: bool) {
        let kind = kind as usize;
        if self.kinds.len() <= kind {
            self.kinds.resize(kind + 1, KindTime::default());
        }
        self.kinds[kind].all += time;
        self.kinds[kind].of_target += if is_target { time } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rust's std: an unlock wakes no second thread before the woken one has retried, also if a spinning one takes the
    // lock.
    #[test]
    fn one_woken_thread_at_a_time() {
        let work = |time| TaskStep::Work { kind: 1, time: Time::Fixed(time), is_target: false };
        let task = |arrives: u64, holds: u64| {
            vec![work(arrives), TaskStep::Lock(0), work(holds), TaskStep::Unlock(0), work(1_000_000_000)]
        };
        // The first one wakes the second at 10 µs. Before that has retried, the fourth takes the lock, and hands it
        // over to the fifth, which spins.
        let program = [task(0, 10_000), task(1_000, 1), task(2_000, 1), task(10_100, 500), task(10_300, 500)];
        let program = program.into_iter().enumerate();
        let program = program.fold(Program::default(), |program, (thread, steps)| program.task(thread, None, steps));
        let mut machine = Machine::new(&program, 1, 0.0);
        machine.run_until(13_000);
        let lock = &machine.locks[0];
        assert_eq!((lock.is_held, lock.woken, lock.waiters.len()), (false, Some(1), 1));
    }
}
