//! The machine that runs a program: one processor for each thread, and a clock that jumps from one event to the next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use progress::Stamp;

use crate::observer::{Observer, Visit};
use crate::program::{Arrivals, Client, Program, Step};
use crate::random::{Random, Time};

/// Between what wakes a thread and its first instruction.
const WAKE: Time = Time::About(8_000);
/// What it takes of the thread that wakes it.
const WAKING: Time = Time::About(4_000);
/// The kind of work that this is.
const WAKING_KIND: u32 = 31;
/// How long a thread spins in front of a lock before it sleeps.
const SPIN: u64 = 4_000;
/// Until a spinning thread sees that the lock is free.
const HANDOVER: Time = Time::Fixed(100);
/// The time of the program's first instruction.
pub(crate) const START: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A thread goes on: its computation, its pause or its sleep is over.
    GoOn(usize),
    /// A thread that waited for events has woken.
    Woken(usize),
    /// A request came for the task.
    Request(usize),
    /// What the task waited for came: its turn is next.
    Ready(usize),
}

/// What a message carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    pub(crate) stamp: Stamp,
    pub(crate) visit: Visit,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    permits: VecDeque<Message>,
    /// Threads that wait for a message, and for a place.
    receivers: VecDeque<usize>,
    senders: VecDeque<usize>,
}

/// A lock as the standard library's: who comes spins a while, then sleeps; who is woken may be overtaken.
#[derive(Default)]
struct Lock {
    is_held: bool,
    /// Who waits, and since when it spins.
    waiters: VecDeque<(usize, u64)>,
    /// One was woken and has not tried yet.
    is_woken: bool,
}

#[derive(Default)]
struct Barrier {
    messages: Vec<Stamp>,
    waiters: Vec<usize>,
}

/// What a task was suspended for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Request,
    Answer,
    Timer,
}

struct TaskState {
    at: usize,
    random: Random,
    client: Random,
    inbox: VecDeque<u64>,
    wait: Wait,
    held: bool,
    connection: Stamp,
    outside: Stamp,
    came: u64,
    visit: Visit,
}

struct ThreadState {
    is_worker: bool,
    current: Option<usize>,
    ready: VecDeque<usize>,
    /// It waits for events.
    is_idle: bool,
    is_waking: bool,
    /// It has slept, and done nothing since.
    is_cold: bool,
    /// Since when it stands still inside a step, and for whom it was let go.
    blocked_since: u64,
    blocked: u64,
    /// How far it is within a step.
    phase: u32,
    has_paid: bool,
    cause: u64,
    /// Who met it at a barrier.
    met: Vec<Stamp>,
    random: Random,
}

/// A program that runs.
pub(crate) struct Machine<'a> {
    program: &'a Program,
    /// By how much the target is really faster.
    cut: f64,
    pub(crate) now: u64,
    serial: u64,
    happenings: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    tasks: Vec<TaskState>,
    threads: Vec<ThreadState>,
    queues: Vec<Queue>,
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    /// Time that each kind of work took, and the target's of it.
    pub(crate) kinds: Vec<(f64, f64)>,
    pub(crate) observer: Observer,
}

impl<'a> Machine<'a> {
    /// The program at its begin. The same seed gives the same program, whatever is cut.
    pub(crate) fn new(program: &'a Program, seed: u64, cut: f64) -> Self {
        let tasks = program.tasks.iter().enumerate().map(|(number, _)| TaskState {
            at: 0,
            random: Random::new(seed, number as u64),
            client: Random::new(seed, 1000 + number as u64),
            inbox: VecDeque::new(),
            wait: Wait::Nothing,
            held: false,
            connection: Stamp::default(),
            outside: Stamp::default(),
            came: 0,
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
            blocked: 0,
            phase: 0,
            has_paid: false,
            cause: 0,
            met: Vec::new(),
            random: Random::new(seed, 2000 + number as u64),
        });
        let queue = |&room: &usize| Queue { permits: vec![Message::default(); room].into(), ..Queue::default() };
        let mut machine = Self {
            program,
            cut,
            now: START,
            serial: 0,
            happenings: BinaryHeap::new(),
            tasks: tasks.collect(),
            threads: threads.collect(),
            queues: program.queues.iter().map(queue).collect(),
            locks: (0..program.locks()).map(|_| Lock::default()).collect(),
            barriers: program.barriers.iter().map(|_| Barrier::default()).collect(),
            kinds: Vec::new(),
            observer: Observer::new(program, seed),
        };
        for task in 0..program.tasks.len() {
            machine.threads[program.tasks[task].thread].ready.push_back(task);
            if let Some(client) = program.tasks[task].client {
                let (Client::Closed(time) | Client::Open(time)) = client;
                machine.request_after(task, time);
            }
        }
        for thread in 0..machine.threads.len() {
            machine.after(0.0, Happening::GoOn(thread));
        }
        machine
    }

    /// Runs until that time after the start.
    pub(crate) fn run_until(&mut self, until: u64) {
        while let Some(&Reverse((at, _, happening))) = self.happenings.peek() {
            if at > START + until {
                break;
            }
            self.happenings.pop();
            self.now = at;
            self.happens(happening);
        }
        self.now = START + until;
    }

    fn after(&mut self, time: f64, happening: Happening) {
        self.serial += 1;
        self.happenings.push(Reverse((self.now + time.round() as u64, self.serial, happening)));
    }

    fn request_after(&mut self, task: usize, time: Time) {
        let time = time.draw(&mut self.tasks[task].client);
        self.after(time, Happening::Request(task));
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::GoOn(thread) => {
                if self.observer.pause_ended(thread, self.now) {
                    self.threads[thread].has_paid = true;
                }
                self.go_on(thread);
            }
            Happening::Woken(thread) => {
                self.threads[thread].is_waking = false;
                self.threads[thread].is_idle = false;
                self.threads[thread].is_cold = true;
                self.observer.block_ended(thread, self.now);
                self.go_on(thread);
            }
            Happening::Request(task) => {
                if let Some(Client::Open(time)) = self.program.tasks[task].client {
                    self.request_after(task, time);
                }
                self.tasks[task].inbox.push_back(self.now);
                if self.tasks[task].wait == Wait::Request && self.tasks[task].inbox.len() == 1 {
                    self.ready(task);
                }
            }
            Happening::Ready(task) => {
                // What was held came before.
                if !std::mem::replace(&mut self.tasks[task].held, false) {
                    self.tasks[task].came = self.now;
                }
                self.ready(task);
            }
        }
    }

    /// The task's turn on its thread comes.
    fn ready(&mut self, task: usize) {
        let thread = self.program.tasks[task].thread;
        self.threads[thread].ready.push_back(task);
        if self.threads[thread].is_idle && !self.threads[thread].is_waking {
            self.threads[thread].is_waking = true;
            let wake = WAKE.draw(&mut self.threads[thread].random);
            self.after(wake, Happening::Woken(thread));
        }
    }

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
            if !self.step(thread, task) {
                return;
            }
        }
    }

    /// The task goes on with what it waited for; not yet, if that has to wait.
    fn resume(&mut self, thread: usize, task: usize) -> bool {
        let state = &mut self.tasks[task];
        match std::mem::replace(&mut state.wait, Wait::Nothing) {
            Wait::Nothing => {}
            Wait::Request => {
                let came = *state.inbox.front().expect("a request that made it ready");
                let known = if self.program.arrivals == Arrivals::Known { came } else { 0 };
                if let Some(hold) = self.observer.hold(state.connection, known, self.now) {
                    (state.held, state.wait) = (true, Wait::Request);
                    self.after(hold, Happening::Ready(task));
                    return false;
                }
                state.inbox.pop_front();
                self.threads[thread].cause = came;
                self.observer.arrived(thread, task, &mut state.connection, known, self.now);
            }
            Wait::Answer => {
                if let Some(hold) = self.observer.hold(state.outside, state.came, self.now) {
                    (state.held, state.wait) = (true, Wait::Answer);
                    self.after(hold, Happening::Ready(task));
                    return false;
                }
                self.threads[thread].cause = state.came;
                self.observer.answered(thread, state.outside, state.came, self.now);
            }
            Wait::Timer => {
                self.threads[thread].cause = state.came;
                self.observer.woke(thread, state.outside, 0, self.now);
            }
        }
        true
    }

    fn next(&mut self, thread: usize, task: usize) -> bool {
        self.threads[thread].phase = 0;
        self.threads[thread].blocked = 0;
        self.tasks[task].at = (self.tasks[task].at + 1) % self.program.tasks[task].steps.len();
        true
    }

    fn suspend(&mut self, thread: usize, task: usize, wait: Wait) -> bool {
        self.tasks[task].wait = wait;
        self.threads[thread].current = None;
        true
    }

    /// Lets threads go on that sleep. That takes time, so the thread itself never goes on at once.
    fn wake(&mut self, thread: usize, sleepers: &[usize]) -> bool {
        for &sleeper in sleepers {
            self.release(sleeper, WAKE);
        }
        let time = WAKING.draw(&mut self.threads[thread].random);
        self.observer.waking(thread, WAKING_KIND, self.now);
        self.count(WAKING_KIND, time, false);
        self.after(time, Happening::GoOn(thread));
        false
    }

    fn block(&mut self, thread: usize) -> bool {
        if self.threads[thread].blocked == 0 {
            self.threads[thread].blocked_since = self.now;
        }
        false
    }

    /// A thread that stood still inside a step goes on with it.
    fn release(&mut self, thread: usize, delay: Time) {
        let delay = delay.draw(&mut self.threads[thread].random);
        self.threads[thread].blocked = 1;
        self.after(delay, Happening::GoOn(thread));
    }

    /// How long the thread stood still until now, if it did.
    fn blocked(&self, thread: usize) -> u64 {
        let state = &self.threads[thread];
        if state.blocked == 0 { 0 } else { self.now - state.blocked_since }
    }

    /// Whether the thread owes nothing before it goes on.
    fn pay(&mut self, thread: usize, is_awaited: bool) -> bool {
        if std::mem::replace(&mut self.threads[thread].has_paid, false) {
            return true;
        }
        match self.observer.pay(thread, is_awaited, self.now) {
            None => true,
            Some(sleep) => {
                self.after(sleep, Happening::GoOn(thread));
                false
            }
        }
    }

    /// One step, or a part of it; whether the thread goes on at once.
    fn step(&mut self, thread: usize, task: usize) -> bool {
        let phase = self.threads[thread].phase;
        match self.program.tasks[task].steps[self.tasks[task].at] {
            Step::Work { kind, time, is_target } => {
                self.observer.set_kind(thread, kind, self.now);
                let mut time = time.draw(&mut self.tasks[task].random);
                self.count(kind, time, is_target);
                if is_target {
                    time *= 1.0 - self.cut;
                }
                if std::mem::take(&mut self.threads[thread].is_cold)
                    && let Some(cold) = self.program.cold
                {
                    let extra = cold.draw(&mut self.threads[thread].random);
                    self.count(kind, extra, false);
                    time += extra;
                }
                self.next(thread, task);
                self.after(time, Happening::GoOn(thread));
                false
            }
            Step::Lock(lock) => {
                if self.threads[thread].blocked == 0 && !self.pay(thread, true) {
                    return false;
                }
                let state = &mut self.locks[lock];
                if self.threads[thread].blocked > 0 {
                    state.is_woken = false;
                }
                if state.is_held {
                    state.waiters.push_back((thread, self.now));
                    return self.block(thread);
                }
                state.is_held = true;
                self.observer.locked(thread, lock, self.blocked(thread), self.now);
                self.next(thread, task)
            }
            Step::Unlock(lock) => {
                let is_contended = !self.locks[lock].waiters.is_empty();
                if is_contended && !self.pay(thread, true) {
                    return false;
                }
                self.observer.unlocked(thread, lock, self.now);
                let state = &mut self.locks[lock];
                state.is_held = false;
                let spinning = state.waiters.iter().position(|&(_, since)| since + SPIN >= self.now);
                if let Some(spinning) = spinning {
                    let (waiter, _) = state.waiters.remove(spinning).expect("the one that spins");
                    self.release(waiter, HANDOVER);
                } else if !state.is_woken
                    && let Some((waiter, _)) = state.waiters.pop_front()
                {
                    state.is_woken = true;
                    self.next(thread, task);
                    return self.wake(thread, &[waiter]);
                }
                self.next(thread, task)
            }
            Step::Send(queue) => self.send(thread, task, queue),
            Step::Receive(queue) => self.receive(thread, task, queue),
            Step::Sleep(time) => self.sleep(thread, task, time),
            Step::Meet(barrier) => {
                if phase == 0 {
                    if !self.pay(thread, true) {
                        return false;
                    }
                    let stamp = self.observer.sent(thread, self.now);
                    self.barriers[barrier].messages.push(stamp);
                    self.threads[thread].phase = 1;
                    if self.barriers[barrier].messages.len() < self.program.barriers[barrier] {
                        self.barriers[barrier].waiters.push(thread);
                        return self.block(thread);
                    }
                    let met = std::mem::take(&mut self.barriers[barrier].messages);
                    let waiters = std::mem::take(&mut self.barriers[barrier].waiters);
                    for &waiter in &waiters {
                        self.threads[waiter].met.clone_from(&met);
                    }
                    self.threads[thread].met = met;
                    return self.wake(thread, &waiters);
                }
                let mut blocked = self.blocked(thread);
                for stamp in std::mem::take(&mut self.threads[thread].met) {
                    self.observer.took(thread, stamp, blocked, self.now);
                    blocked = 0;
                }
                self.next(thread, task)
            }
            Step::Await => {
                self.next(thread, task);
                self.suspend(thread, task, Wait::Request);
                if !self.tasks[task].inbox.is_empty() {
                    self.threads[thread].ready.push_back(task);
                }
                true
            }
            Step::Write => {
                if !self.pay(thread, false) {
                    return false;
                }
                self.observer.written(thread, task, &mut self.tasks[task].connection, self.now);
                if let Some(Client::Closed(time)) = self.program.tasks[task].client {
                    self.request_after(task, time);
                }
                self.next(thread, task)
            }
            Step::Call { whom, time, is_target } => {
                if !self.pay(thread, false) {
                    return false;
                }
                self.tasks[task].outside = self.observer.called(thread, whom, self.now);
                let time = time.draw(&mut self.tasks[task].random);
                self.after(if is_target { time * (1.0 - self.cut) } else { time }, Happening::Ready(task));
                self.next(thread, task);
                self.suspend(thread, task, Wait::Answer)
            }
            Step::Begin => {
                let cause = if self.threads[thread].cause > 0 { self.threads[thread].cause } else { self.now };
                self.tasks[task].visit = self.observer.began(thread, cause, self.now);
                self.next(thread, task)
            }
            Step::End(point) => {
                self.observer.ended(thread, self.tasks[task].visit, point, self.now);
                self.next(thread, task)
            }
        }
    }

    fn send(&mut self, thread: usize, task: usize, queue: usize) -> bool {
        if self.threads[thread].phase == 0 {
            let Some(permit) = self.queues[queue].permits.pop_front() else {
                self.queues[queue].senders.push_back(thread);
                return self.block(thread);
            };
            self.observer.took(thread, permit.stamp, self.blocked(thread), self.now);
            self.threads[thread].phase = 1;
        }
        if !self.pay(thread, true) {
            return false;
        }
        let message = Message { stamp: self.observer.sent(thread, self.now), visit: self.tasks[task].visit };
        self.queues[queue].messages.push_back(message);
        self.next(thread, task);
        self.queues[queue].receivers.pop_front().is_none_or(|receiver| self.wake(thread, &[receiver]))
    }

    fn receive(&mut self, thread: usize, task: usize, queue: usize) -> bool {
        if self.threads[thread].phase == 0 {
            let Some(message) = self.queues[queue].messages.pop_front() else {
                self.queues[queue].receivers.push_back(thread);
                return self.block(thread);
            };
            self.observer.took(thread, message.stamp, self.blocked(thread), self.now);
            self.tasks[task].visit = message.visit;
            self.threads[thread].cause = 0;
            self.threads[thread].phase = 1;
        }
        if !self.pay(thread, true) {
            return false;
        }
        let stamp = self.observer.sent(thread, self.now);
        self.queues[queue].permits.push_back(Message { stamp, visit: Visit::default() });
        self.next(thread, task);
        self.queues[queue].senders.pop_front().is_none_or(|sender| self.wake(thread, &[sender]))
    }

    fn sleep(&mut self, thread: usize, task: usize, time: Time) -> bool {
        if self.threads[thread].phase == 0 {
            if !self.pay(thread, false) {
                return false;
            }
            self.tasks[task].outside = self.observer.slept(thread, self.now);
            let time = time.draw(&mut self.tasks[task].random);
            if self.threads[thread].is_worker {
                self.after(time, Happening::Ready(task));
                self.next(thread, task);
                return self.suspend(thread, task, Wait::Timer);
            }
            self.threads[thread].phase = 1;
            self.block(thread);
            self.threads[thread].blocked = 1;
            self.after(time, Happening::GoOn(thread));
            return false;
        }
        let (timer, blocked) = (self.tasks[task].outside, self.blocked(thread));
        self.threads[thread].cause = 0;
        self.observer.woke(thread, timer, blocked, self.now);
        self.next(thread, task)
    }

    fn count(&mut self, kind: u32, time: f64, is_target: bool) {
        let kind = kind as usize;
        if self.kinds.len() <= kind {
            self.kinds.resize(kind + 1, (0.0, 0.0));
        }
        self.kinds[kind].0 += time;
        self.kinds[kind].1 += if is_target { time } else { 0.0 };
    }
}
