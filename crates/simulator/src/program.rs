//! What a simulated program does.

use crate::random::Time;

/// One thing that a task does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// It computes, as work of that kind. What is the target's is cut in the true run.
    Work {
        /// The kind of work; a target has a part of each kind.
        kind: u32,
        /// How long it takes.
        time: Time,
        /// Whether it is the target.
        is_target: bool,
    },
    /// It takes a lock.
    Lock(usize),
    /// It gives the lock up.
    Unlock(usize),
    /// It puts a message into a queue, once there is room.
    Send(usize),
    /// It takes a message from a queue, once there is one.
    Receive(usize),
    /// It sleeps.
    Sleep(Time),
    /// It waits until all that take part in the barrier are there.
    Meet(usize),
    /// It waits for the next request on its connection.
    Await,
    /// It answers.
    Write,
    /// It asks an upstream.
    Call {
        /// The span of those calls.
        whom: u32,
        /// How long the upstream takes.
        time: Time,
        /// Whether the upstream is the target.
        is_target: bool,
    },
    /// A unit of progress begins, with what the task works on; messages carry it on.
    Begin,
    /// The unit is done: progress of a point.
    End(u32),
}

/// What asks for the program's service on a connection.
#[derive(Clone, Copy, Debug)]
pub enum Client {
    /// The next request comes so long after the answer.
    Closed(Time),
    /// Requests come at such distances, answered or not.
    Open(Time),
}

/// What does one step after the other, over and over.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its thread. More than one task of a thread makes it an event loop.
    pub thread: usize,
    /// Who asks it, if anybody does.
    pub client: Option<Client>,
    /// What it does.
    pub steps: Vec<Step>,
}

/// A program with the world around it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// How many messages each queue has room for.
    pub queues: Vec<usize>,
    /// How many tasks take part in each barrier.
    pub barriers: Vec<usize>,
    /// Whether it knows when requests reached the machine, or only when it looked.
    pub arrivals: Arrivals,
    /// What an event loop's first work takes more when it has slept, if anything.
    pub cold: Option<Time>,
}

/// What the program knows of when requests came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// The kernel's time.
    #[default]
    Known,
    /// Its own, when it got round to them.
    Unknown,
}

impl Program {
    /// Puts a task on a thread.
    #[must_use]
    pub fn task(mut self, thread: usize, client: Option<Client>, steps: Vec<Step>) -> Self {
        self.tasks.push(Task { thread, client, steps });
        self
    }

    pub(crate) fn threads(&self) -> usize {
        self.tasks.iter().map(|task| task.thread + 1).max().unwrap_or(0)
    }

    pub(crate) fn is_worker(&self, thread: usize) -> bool {
        self.tasks.iter().filter(|task| task.thread == thread).count() > 1
    }

    pub(crate) fn locks(&self) -> usize {
        let locks = self.tasks.iter().flat_map(|task| &task.steps).filter_map(|step| match step {
            Step::Lock(lock) => Some(lock + 1),
            _ => None,
        });
        locks.max().unwrap_or(0)
    }
}
