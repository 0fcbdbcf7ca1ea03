//! Names that stand for all their addresses: each call goes to the next one. They are looked up again every half minute, and sooner when a
//! call could not be carried.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_pipeline::upstream::{Calls, Carried};
use causeway_pipeline::{CallFault, TlsClient, Transport, Upstream, Worker};

/// How long what was found is believed.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// Between two looks at least, whatever fails.
const PAUSE: Duration = Duration::from_secs(1);
/// Calls that wait for the first look at most.
const WAITING_MAX: usize = 1024;

/// A name, as a place that calls go to.
pub(in super::super) struct Named {
    name: Box<str>,
    transport: Arc<Transport>,
    worker: Rc<dyn Worker>,
    calls: Rc<Calls>,
    known: RefCell<Known>,
    this: Weak<Self>,
}

struct Known {
    places: Vec<(SocketAddr, Rc<dyn Upstream>)>,
    turn: usize,
    looked_at: Option<Instant>,
    is_looking: bool,
    /// A call could not be carried since the last look, or that found nothing.
    is_doubted: bool,
    fault: io::ErrorKind,
    waiting: VecDeque<Carried>,
}

impl Named {
    /// `name` is `host:port`.
    pub(in super::super) fn new(name: &str, worker: &Rc<dyn Worker>, transport: &Arc<Transport>) -> Rc<Self> {
        let transport = named_by(name, transport);
        // Nothing is connected there before a call is: it is asked for the worker's records only.
        let calls = Rc::clone(worker.upstream(name, &transport).calls());
        let known = Known {
            places: Vec::new(),
            turn: worker.random() as usize,
            looked_at: None,
            is_looking: false,
            is_doubted: false,
            fault: io::ErrorKind::NotFound,
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

    fn look_if_due(&self) {
        let now = self.worker.now();
        {
            let mut known = self.known.borrow_mut();
            let age = known.looked_at.map(|at| now.saturating_duration_since(at));
            let is_due = age.is_none_or(|age| age >= FRESH_FOR || known.is_doubted && age >= PAUSE);
            if known.is_looking || !is_due {
                return;
            }
            (known.is_looking, known.looked_at) = (true, Some(now));
        }
        let Ok(looking) = self.worker.resolve(&self.name) else {
            return self.found(Err(io::ErrorKind::WouldBlock));
        };
        let this = self.this.clone();
        self.worker.spawn(Box::pin(async move {
            let found = looking.await;
            let Some(this) = this.upgrade() else { return };
            this.found(match found {
                Some(Ok(addresses)) if addresses.is_empty() => Err(io::ErrorKind::NotFound),
                Some(Ok(addresses)) => Ok(addresses),
                Some(Err(error)) => Err(error.kind()),
                None => Err(io::ErrorKind::Other),
            });
        }));
    }

    fn found(&self, found: Result<Vec<SocketAddr>, io::ErrorKind>) {
        let mut known = self.known.borrow_mut();
        known.is_looking = false;
        known.is_doubted = found.is_err();
        let mut gone = Vec::new();
        match found {
            // What was known serves on.
            Err(fault) => known.fault = fault,
            Ok(mut addresses) => {
                addresses.sort_unstable();
                addresses.dedup();
                let place = |address: SocketAddr| {
                    let same = known.places.iter().find(|(other, _)| *other == address);
                    let upstream = match same {
                        Some((_, upstream)) => Rc::clone(upstream),
                        None => self.worker.upstream(&address.to_string(), &self.transport),
                    };
                    (address, upstream)
                };
                let places = addresses.into_iter().map(place).collect();
                gone = std::mem::replace(&mut known.places, places);
            }
        }
        let waiting = std::mem::take(&mut known.waiting);
        drop(known);
        drop(gone);
        for call in waiting {
            if !call.is_given_up() {
                self.pass(call);
            }
        }
    }

    /// The next address gets it.
    fn pass(&self, call: Carried) {
        let mut known = self.known.borrow_mut();
        if known.places.is_empty() {
            if known.is_looking && known.waiting.len() < WAITING_MAX {
                return known.waiting.push_back(call);
            }
            let fault = if known.is_looking { CallFault::Busy } else { CallFault::Resolve(known.fault) };
            drop(known);
            return call.fail(fault);
        }
        known.turn = known.turn.wrapping_add(1);
        let upstream = Rc::clone(&known.places[known.turn % known.places.len()].1);
        drop(known);
        upstream.carry(call);
    }
}

/// TLS is made for the name, not for the address that it has.
fn named_by(name: &str, transport: &Arc<Transport>) -> Arc<Transport> {
    match &transport.tls {
        Some(tls) if tls.server_name.is_none() => {
            let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
            // A literal's brackets belong to how it stands beside a port.
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let tls = TlsClient { server_name: Some(host.to_owned()), ..(**tls).clone() };
            Arc::new(Transport { tls: Some(Arc::new(tls)), ..(**transport).clone() })
        }
        _ => Arc::clone(transport),
    }
}

impl Upstream for Named {
    fn carry(&self, call: Carried) {
        self.look_if_due();
        self.pass(call);
    }

    fn calls(&self) -> &Rc<Calls> {
        &self.calls
    }

    fn heed(&self, fault: &CallFault) {
        if matches!(fault, CallFault::Connect(_) | CallFault::ConnectTimedOut | CallFault::Tls(_) | CallFault::Closed) {
            self.known.borrow_mut().is_doubted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3986 §3.2.2: the brackets are not a literal's own, and no certificate is for a name with them.
    #[test]
    fn certificates_have_to_be_for_the_name() {
        let given = TlsClient { server_name: Some("given.test".to_owned()), ..TlsClient::default() };
        for (name, tls, want) in [
            ("a.test:95", Some(TlsClient::default()), Some("a.test")),
            ("[::1]:95", Some(TlsClient::default()), Some("::1")),
            ("a.test:95", Some(given), Some("given.test")),
            ("a.test:95", None, None),
        ] {
            let transport = Arc::new(Transport { tls: tls.map(Arc::new), ..Transport::default() });
            let named = named_by(name, &transport);
            assert_eq!(named.tls.as_ref().and_then(|tls| tls.server_name.as_deref()), want, "{name}");
        }
    }
}
