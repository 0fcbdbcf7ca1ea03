//! The wire between a test and its server's handlers, found by a number in their JSON.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use causeway_pipeline::Outcome;
use futures_channel::oneshot;

use super::PATIENCE;

/// What a handler tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An exchange is over: its target, and how it ended.
    Ended(String, Outcome),
    /// Something named was dropped before it was through.
    Dropped(&'static str),
    /// Something named happened.
    Happened(&'static str),
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    held: Vec<oneshot::Sender<()>>,
    blocking_may_go: bool,
}

/// See the module.
pub(crate) struct Probe {
    id: u64,
    state: Mutex<State>,
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

    fn change<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let result = work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }

    /// For handlers: something happened.
    pub(crate) fn tell(&self, seen: Seen) {
        self.change(|state| state.seen.push(seen));
    }

    /// For handlers: waits until the test lets go.
    pub(crate) fn hold(&self) -> oneshot::Receiver<()> {
        let (go, wait) = oneshot::channel();
        self.change(|state| state.held.push(go));
        wait
    }

    /// For jobs that block: waits until the test lets go.
    pub(crate) fn block(&self) {
        self.until(|state| state.blocking_may_go.then_some(()));
    }

    /// Waits until so many handlers are held.
    #[track_caller]
    pub(crate) fn await_held(&self, count: usize) {
        self.until(|state| (state.held.len() >= count).then_some(()));
    }

    /// Lets every held handler go on.
    pub(crate) fn release(&self) {
        for go in self.change(|state| std::mem::take(&mut state.held)) {
            // A handler that was dropped meanwhile needs no leave.
            let _ = go.send(());
        }
    }

    /// Lets blocking jobs end, now and later.
    pub(crate) fn release_blocking(&self) {
        self.change(|state| state.blocking_may_go = true);
    }

    /// Waits until this was told.
    #[track_caller]
    pub(crate) fn await_seen(&self, wanted: &Seen) {
        self.until(|state| state.seen.contains(wanted).then_some(()));
    }

    /// Waits until the next exchange for this target is over, and takes its outcome.
    #[track_caller]
    pub(crate) fn outcome(&self, target: &str) -> Outcome {
        self.until(|state| {
            let is_it = |seen: &Seen| matches!(seen, Seen::Ended(of, _) if of == target);
            let at = state.seen.iter().position(is_it)?;
            match state.seen.remove(at) {
                Seen::Ended(_, outcome) => Some(outcome),
                _ => None,
            }
        })
    }

    /// [`Ballast`]s that are not dropped.
    pub(crate) fn ballasts(&self) -> usize {
        self.ballasts.load(Ordering::SeqCst)
    }

    /// What was told so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.change(|state| state.seen.clone())
    }

    #[track_caller]
    fn until<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain; seen so far: {:?}", state.seen);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Tells its name when it is dropped before it was defused.
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
            self.probe.tell(Seen::Dropped(name));
        }
    }
}

/// A megabyte of a worker's state.
pub(crate) struct Ballast {
    probe: Arc<Probe>,
    octets: Vec<u8>,
}

impl Ballast {
    pub(crate) fn new(probe: &Arc<Probe>) -> Self {
        probe.ballasts.fetch_add(1, Ordering::SeqCst);
        Self { probe: Arc::clone(probe), octets: vec![1; 1024 * 1024] }
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        assert!(self.octets.iter().all(|octet| *octet == 1));
        self.probe.ballasts.fetch_sub(1, Ordering::SeqCst);
    }
}
