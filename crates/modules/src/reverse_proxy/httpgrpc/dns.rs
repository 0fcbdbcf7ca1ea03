//! Upstream names that stand for all of their addresses: calls are distributed round-robin. Names are resolved again
//! every 30 seconds, and earlier after a failed call. A call that reaches no server at its address goes to the next
//! one, and later calls leave that address out for a while, as with gRPC's policy `round_robin`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_pipeline::upstream::{CallPool, EngineCall};
use causeway_pipeline::{Call, CallError, TlsClient, Upstream, UpstreamTransport, Worker};

/// How long resolved addresses are used without a new lookup.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// Shortest time between two lookups, even after failures.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an address without a server is left out: at first, and at most. The time doubles with each failure that
/// follows soon.
const LEFT_OUT_MIN: Duration = Duration::from_secs(1);
const LEFT_OUT_MAX: Duration = Duration::from_secs(32);
/// Most calls that wait for the first lookup.
const WAITING_MAX: usize = 1024;

/// An upstream given by a name.
pub(in super::super) struct NamedUpstream {
    name: Box<str>,
    transport: Arc<UpstreamTransport>,
    worker: Rc<dyn Worker>,
    calls: Rc<CallPool>,
    known: RefCell<DnsState>,
    this: Weak<Self>,
}

struct DnsState {
    places: Vec<Place>,
    turn: usize,
    looked_at: Option<Instant>,
    is_looking: bool,
    /// A call has failed since the last lookup, or the lookup itself failed.
    is_doubted: bool,
    /// The error of calls while there is no address.
    error: CallError,
    waiting: VecDeque<EngineCall>,
}

/// One address of the name.
struct Place {
    address: SocketAddr,
    upstream: Rc<dyn Upstream>,
    /// The end of the time for which the address is left out, and its length.
    left_out: Option<(Instant, Duration)>,
}

impl Place {
    fn is_left_out(&self, now: Instant) -> bool {
        self.left_out.is_some_and(|(until, _)| now < until)
    }

    /// No server accepted a connection. Calls that fail together count once. A call that begins as soon as the address
    /// is no longer left out fails at the latest after `connect_timeout`.
    fn leave_out(&mut self, now: Instant, connect_timeout: Duration) {
        if self.is_left_out(now) {
            return;
        }
        let time = match self.left_out {
            Some((until, time)) if now < until + time + connect_timeout => (time * 2).min(LEFT_OUT_MAX),
            _ => LEFT_OUT_MIN,
        };
        self.left_out = Some((now + time, time));
    }
}

impl NamedUpstream {
    /// Creates the upstream of `name`, which is `host:port`.
    pub(in super::super) fn new(name: &str, worker: &Rc<dyn Worker>, transport: &Arc<UpstreamTransport>) -> Rc<Self> {
        let transport = named_by(name, transport);
        // This upstream never connects: only its call records are used.
        let calls = Rc::clone(worker.upstream(name, &transport).calls());
        let known = DnsState {
            places: Vec::new(),
            // Random, so that the workers do not all begin with the first address.
            turn: worker.random() as usize,
            looked_at: None,
            is_looking: false,
            is_doubted: false,
            error: CallError::Resolve(CallError::NO_ADDRESS.into()),
            waiting: VecDeque::new(),
        };
        Rc::new_cyclic(|this| Self {
            name: name.into(),
            transport,
            worker: Rc::clone(worker),
            calls,
            known: RefCell::new(known),
            this: this.clone(),
        })
    }

    fn resolve_if_due(&self) {
        let now = self.worker.now();
        {
            let mut known = self.known.borrow_mut();
            let age = known.looked_at.map(|at| now.saturating_duration_since(at));
            let is_due = age.is_none_or(|age| age >= FRESH_FOR || known.is_doubted && age >= PAUSE);
            if known.is_looking || !is_due {
                return;
            }
            // Set before the lookup, so that concurrent calls do not start another one.
            (known.is_looking, known.looked_at) = (true, Some(now));
        }
        let Ok(looking) = self.worker.resolve(&self.name) else {
            return self.found(Err(CallError::Busy));
        };
        let this = self.this.clone();
        self.worker.spawn(Box::pin(async move {
            let found = looking.await;
            // A reload may have dropped the upstream in the meantime.
            let Some(this) = this.upgrade() else { return };
            this.found(match found {
                Some(Ok(addresses)) if addresses.is_empty() => Err(CallError::Resolve(CallError::NO_ADDRESS.into())),
                Some(Ok(addresses)) => Ok(addresses),
                Some(Err(error)) => Err(CallError::from_lookup(&error)),
                None => Err(CallError::lookup_lost()),
            });
        }));
    }

    fn found(&self, found: Result<Vec<SocketAddr>, CallError>) {
        let mut known = self.known.borrow_mut();
        known.is_looking = false;
        known.is_doubted = found.is_err();
        let mut gone = Vec::new();
        match found {
            // The old addresses remain in use.
            Err(error) => known.error = error,
            Ok(mut addresses) => {
                addresses.sort_unstable();
                addresses.dedup();
                // Addresses that are still present keep their upstream, and so its open connections.
                let place = |address: SocketAddr| match known.places.iter().find(|place| place.address == address) {
                    Some(Place { upstream, left_out, .. }) => {
                        Place { address, upstream: Rc::clone(upstream), left_out: *left_out }
                    }
                    None => {
                        let upstream = self.worker.upstream(&address.to_string(), &self.transport);
                        Place { address, upstream, left_out: None }
                    }
                };
                let places = addresses.into_iter().map(place).collect();
                gone = std::mem::replace(&mut known.places, places);
            }
        }
        // Release the borrow before calls are carried, which borrows again.
        let waiting = std::mem::take(&mut known.waiting);
        drop(known);
        // Dropped after the borrow ends: the drop of an upstream may run other code.
        drop(gone);
        for call in waiting {
            if !call.is_given_up() {
                self.pass(call);
            }
        }
    }

    /// Sends the call to the next address that is not left out, or to the next one if all are. Without an address the
    /// call waits for the lookup, or fails.
    fn pass(&self, call: EngineCall) {
        let mut known = self.known.borrow_mut();
        if known.places.is_empty() {
            if known.is_looking && known.waiting.len() < WAITING_MAX {
                return known.waiting.push_back(call);
            }
            let error = if known.is_looking { CallError::Busy } else { known.error.clone() };
            drop(known);
            return call.fail(error);
        }
        let (now, count) = (self.worker.now(), known.places.len());
        let next = known.turn.wrapping_add(1);
        let mut turns = (0..count).map(|more| next.wrapping_add(more));
        let found = turns.find(|turn| !known.places[turn % count].is_left_out(now));
        known.turn = found.unwrap_or(next);
        let Place { address, upstream, .. } = &known.places[known.turn % count];
        // `report_failure` finds the address by it.
        call.set_remote(*address);
        let upstream = Rc::clone(upstream);
        drop(known);
        upstream.start(call);
    }
}

/// Returns the transport whose TLS verifies the name instead of the address.
fn named_by(name: &str, transport: &Arc<UpstreamTransport>) -> Arc<UpstreamTransport> {
    match &transport.tls {
        Some(tls) if tls.server_name.is_none() => {
            let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
            // The brackets of an IPv6 literal are part of the `host:port` notation, not of the address.
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let tls = TlsClient { server_name: Some(host.to_owned()), ..(**tls).clone() };
            Arc::new(UpstreamTransport { tls: Some(Arc::new(tls)), ..(**transport).clone() })
        }
        _ => Arc::clone(transport),
    }
}

impl Upstream for NamedUpstream {
    fn start(&self, call: EngineCall) {
        self.resolve_if_due();
        self.pass(call);
    }

    fn calls(&self) -> &Rc<CallPool> {
        &self.calls
    }

    fn report_failure(&self, call: &Call, error: &CallError, attempts: usize) -> bool {
        let mut known = self.known.borrow_mut();
        match error {
            CallError::Connect(_) | CallError::ConnectTimedOut | CallError::Tls(_) => {
                known.is_doubted = true;
                let now = self.worker.now();
                let failed = known.places.iter_mut().find(|place| Some(place.address) == call.remote());
                if let Some(place) = failed {
                    place.leave_out(now, self.transport.connect_timeout);
                }
                // A refused connection takes no time, so then an address that is left out is tried too.
                let is_refused = matches!(error, CallError::Connect(_));
                attempts < known.places.len()
                    && (is_refused || known.places.iter().any(|place| !place.is_left_out(now)))
            }
            CallError::Closed | CallError::Reset(_) | CallError::Aborted(_) => {
                known.is_doubted = true;
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3986 §3.2.2: the brackets are not part of the address, and no certificate contains them.
    #[test]
    fn certificates_have_to_be_for_the_name() {
        let given = TlsClient { server_name: Some("given.test".to_owned()), ..TlsClient::default() };
        for (name, tls, want) in [
            ("a.test:95", Some(TlsClient::default()), Some("a.test")),
            ("[::1]:95", Some(TlsClient::default()), Some("::1")),
            ("a.test:95", Some(given), Some("given.test")),
            ("a.test:95", None, None),
        ] {
            let transport = Arc::new(UpstreamTransport { tls: tls.map(Arc::new), ..UpstreamTransport::default() });
            let named = named_by(name, &transport);
            assert_eq!(named.tls.as_ref().and_then(|tls| tls.server_name.as_deref()), want, "{name}");
        }
    }
}
