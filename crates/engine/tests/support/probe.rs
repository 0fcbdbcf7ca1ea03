//! The channel between a test and its server's handlers. Handlers find it by a number in their JSON.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use causeway_pipeline::Outcome;
use futures_channel::oneshot;

use super::PATIENCE;

/// An event from a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// An exchange has ended: its target and its outcome.
    Ended(String, Outcome),
    /// The named handler was dropped before it had finished.
    Dropped(&'static str),
    /// A named event happened.
    Happened(&'static str),
}

#[derive(Default)]
struct ProbeState {
    seen: Vec<ProbeEvent>,
    held: Vec<oneshot::Sender<()>>,
    blocking_may_go: bool,
}

/// The state that a test shares with its server's handlers.
pub(crate) struct Probe {
    id: u64,
    state: Mutex<ProbeState>,
    changed: Condvar,
    ballasts: AtomicUsize,
}

static PROBES: Mutex<BTreeMap<u64, Arc<Probe>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Probe {
    pub(crate) fn new() -> Arc<Self> {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let probe =
            Arc::new(Self { id, state: Mutex::default(), changed: Condvar::new(), ballasts: AtomicUsize::new(0) });
        PROBES.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&probe));
        probe
    }

    pub(crate) fn find(id: u64) -> Arc<Self> {
        Arc::clone(&PROBES.lock().unwrap_or_else(PoisonError::into_inner)[&id])
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn change<T>(&self, work: impl FnOnce(&mut ProbeState) -> T) -> T {
        let result = work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }

    /// For handlers: reports an event.
    pub(crate) fn report(&self, seen: ProbeEvent) {
        self.change(|state| state.seen.push(seen));
    }

    /// For handlers: returns a channel that resolves when the test calls [`release`](Self::release).
    pub(crate) fn hold(&self) -> oneshot::Receiver<()> {
        let (go, wait) = oneshot::channel();
        self.change(|state| state.held.push(go));
        wait
    }

    /// For blocking jobs: waits until the test calls [`release_blocking`](Self::release_blocking).
    pub(crate) fn block(&self) {
        self.until(|state| state.blocking_may_go.then_some(()));
    }

    /// Waits until at least `count` handlers are held.
    #[track_caller]
    pub(crate) fn await_held(&self, count: usize) {
        self.until(|state| (state.held.len() >= count).then_some(()));
    }

    /// Releases every held handler.
    pub(crate) fn release(&self) {
        for go in self.change(|state| std::mem::take(&mut state.held)) {
            // Sending fails only when the handler was dropped.
            let _ = go.send(());
        }
    }

    /// Lets blocking jobs end, now and later.
    pub(crate) fn release_blocking(&self) {
        self.change(|state| state.blocking_may_go = true);
    }

    /// Waits until a handler has reported this event.
    #[track_caller]
    pub(crate) fn await_seen(&self, wanted: &ProbeEvent) {
        self.until(|state| state.seen.contains(wanted).then_some(()));
    }

    /// Waits for the end of the next exchange for this target, and takes its outcome.
    #[track_caller]
    pub(crate) fn outcome(&self, target: &str) -> Outcome {
        self.until(|state| {
            let is_it = |seen: &ProbeEvent| matches!(seen, ProbeEvent::Ended(of, _) if of == target);
            let at = state.seen.iter().position(is_it)?;
            match state.seen.remove(at) {
                ProbeEvent::Ended(_, outcome) => Some(outcome),
                _ => None,
            }
        })
    }

    /// Returns the number of live [`Ballast`]s.
    pub(crate) fn ballasts(&self) -> usize {
        self.ballasts.load(Ordering::SeqCst)
    }

    /// Returns the events reported so far.
    pub(crate) fn seen(&self) -> Vec<ProbeEvent> {
        self.change(|state| state.seen.clone())
    }

    #[track_caller]
    fn until<T>(&self, mut look: impl FnMut(&mut ProbeState) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "timed out; seen so far: {:?}", state.seen);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Reports its name when it is dropped before it was defused.
pub(crate) struct Guard {
    probe: Arc<Probe>,
    name: Option<&'static str>,
}

impl Guard {
    pub(crate) fn new(probe: &Arc<Probe>, name: &'static str) -> Self {
        Self { probe: Arc::clone(probe), name: Some(name) }
    }

    pub(crate) fn defuse(mut self) {
        self.name = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            self.probe.report(ProbeEvent::Dropped(name));
        }
    }
}

/// A worker's state of one megabyte.
pub(crate) struct Ballast {
    probe: Arc<Probe>,
    bytes: Vec<u8>,
}

impl Ballast {
    pub(crate) fn new(probe: &Arc<Probe>) -> Self {
        probe.ballasts.fetch_add(1, Ordering::SeqCst);
        Self { probe: Arc::clone(probe), bytes: vec![1; 1024 * 1024] }
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        assert!(self.bytes.iter().all(|byte| *byte == 1));
        self.probe.ballasts.fetch_sub(1, Ordering::SeqCst);
    }
}
