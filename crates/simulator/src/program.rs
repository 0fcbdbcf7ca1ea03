//! The description of a simulated program: tasks, their steps, and the clients that send requests.

use crate::random::Time;

/// One step of a task.
#[derive(Clone, Copy, Debug)]
pub enum TaskStep {
    /// Computes, as work of that kind. The true run shortens the target's steps.
    Work {
        /// The kind of work; a target has a part of each kind.
        kind: u32,
        /// The duration.
        time: Time,
        /// Whether the step belongs to the target.
        is_target: bool,
    },
    /// Takes a lock, and waits for it.
    Lock(usize),
    /// Releases a lock.
    Unlock(usize),
    /// Puts a message into a queue; waits while it is full.
    Send(usize),
    /// Takes a message from a queue; waits while it is empty.
    Receive(usize),
    /// Sleeps.
    Sleep(Time),
    /// Waits at a barrier until all its tasks have arrived.
    Barrier(usize),
    /// Waits for the next request on the task's connection.
    Await,
    /// Writes the response.
    Write,
    /// Calls an upstream, and waits for its answer.
    Call {
        /// The span of the call.
        callee: u32,
        /// How long the upstream takes.
        time: Time,
        /// Whether the upstream is the target.
        is_target: bool,
        /// The connections that it needs one of; `None` if there is no limit.
        connections: Option<usize>,
    },
    /// Begins a unit of progress, timed from the arrival of the message that the task processes. Messages carry it on.
    Begin,
    /// Ends the unit: one hit of that progress point.
    End(u32),
}

/// The client of a connection, which sends requests.
#[derive(Clone, Copy, Debug)]
pub enum ClientModel {
    /// Closed loop: sends the next request that long after the response.
    Closed(Time),
    /// Open loop: sends requests at such intervals, answered or not.
    Open(Time),
}

/// A sequence of steps that repeats forever.
#[derive(Clone, Debug)]
pub struct Task {
    /// The index of its thread. A thread with more than one task is an event loop.
    pub thread: usize,
    /// The client of its connection, if it has one.
    pub client: Option<ClientModel>,
    /// The steps, in order.
    pub steps: Vec<TaskStep>,
}

/// A program and its clients.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All tasks.
    pub tasks: Vec<Task>,
    /// The capacity of each queue, in messages.
    pub queues: Vec<usize>,
    /// The number of connections in each set; their tasks share one thread.
    pub connections: Vec<usize>,
    /// The number of tasks at each barrier.
    pub barriers: Vec<usize>,
    /// Whether the program learns when a request reached the machine.
    pub arrivals: Arrivals,
    /// Extra duration of an event loop's first work after it was asleep, from cold caches.
    pub cold: Option<Time>,
}

/// The arrival time of a request as the program sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// The kernel's timestamp.
    #[default]
    Known,
    /// None: the program sees only the time of its own read.
    Unknown,
}

impl Program {
    /// Adds a task on a thread.
    #[must_use]
    pub fn task(mut self, thread: usize, client: Option<ClientModel>, steps: Vec<TaskStep>) -> Self {
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
            TaskStep::Lock(lock) => Some(lock + 1),
            _ => None,
        });
        locks.max().unwrap_or(0)
    }
}
