//! A worker's upstreams, made from the answers of DNS.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_message::StatusCode;
use causeway_pipeline::worker::DnsRecord;
use causeway_pipeline::{Context, Fault, Reason};

use super::answers::{Answer, Answers, Freshness, Looking, Terms};
use super::source::Source;
use super::{DynamicUpstreams, ReverseProxyPlan, WaitedFor};
use crate::reverse_proxy::backend::FoundBackend;

/// Questions of one source that a worker keeps, if the source has placeholders; Caddy's number.
const QUESTIONS_MAX: usize = 100;

/// The upstreams of a handler's sources on one worker.
pub(super) struct Sets {
    answers: Arc<Answers>,
    sources: Box<[SourceSets]>,
    /// Storage for the lists of one request.
    pub(super) parts: Cell<Vec<Rc<[Rc<FoundBackend>]>>>,
    /// The last lists that were joined, and the list made from them.
    joined: RefCell<Joined>,
}

#[derive(Default)]
struct Joined {
    parts: Vec<Rc<[Rc<FoundBackend>]>>,
    whole: Rc<[Rc<FoundBackend>]>,
}

#[derive(Default)]
struct SourceSets {
    /// The set of a source without placeholders.
    fixed: RefCell<Option<Rc<Set>>>,
    by_key: RefCell<HashMap<Box<[u8]>, Rc<Set>>>,
}

/// The upstreams of one question.
struct Set {
    answer: Arc<Answer>,
    port: Box<str>,
    made: RefCell<Made>,
}

struct Made {
    fresh_until: Option<Instant>,
    /// The records that the upstreams were made from.
    records: Arc<[DnsRecord]>,
    upstreams: Rc<[Rc<FoundBackend>]>,
}

/// A source's upstreams for a request.
pub(super) enum Current {
    Known(Rc<[Rc<FoundBackend>]>),
    Wait(Looking),
    Failed,
}

impl Sets {
    pub(super) fn new(sources: usize, answers: Arc<Answers>) -> Self {
        Self {
            answers,
            sources: (0..sources).map(|_| SourceSets::default()).collect(),
            parts: Cell::default(),
            joined: RefCell::default(),
        }
    }

    /// Returns the upstreams of a source, which is given with its number.
    pub(super) fn of(
        &self,
        cx: &mut Context,
        (number, source): (usize, &Source),
        dynamic: &DynamicUpstreams,
        plan: &ReverseProxyPlan,
        waited: WaitedFor,
    ) -> Result<Current, Fault> {
        let set = self.find(cx, number, source);
        let now = cx.worker().now();
        if !waited.is_doubted {
            let made = set.made.borrow();
            if made.fresh_until.is_some_and(|until| now < until) {
                return Ok(Current::Known(Rc::clone(&made.upstreams)));
            }
        }
        let Source { refresh, grace, resolver, shown, .. } = source;
        let terms = Terms { refresh: *refresh, grace: *grace, resolver: resolver.as_ref(), shown };
        match set.answer.consult(terms, waited, cx.worker()) {
            Freshness::Wait(looking) => Ok(Current::Wait(looking)),
            Freshness::Failed => Ok(Current::Failed),
            Freshness::Fresh(records, until) => {
                let mut made = set.made.borrow_mut();
                if !Arc::ptr_eq(&made.records, &records) {
                    let answer = (&*set.port, &*records, &**shown);
                    let upstreams = self.make(cx, answer, &made.upstreams, dynamic, plan)?;
                    (made.records, made.upstreams) = (records, upstreams);
                }
                made.fresh_until = Some(until);
                Ok(Current::Known(Rc::clone(&made.upstreams)))
            }
        }
    }

    /// Finds the set of the request's question.
    fn find(&self, cx: &mut Context, number: usize, source: &Source) -> Rc<Set> {
        let sets = &self.sources[number];
        let is_fixed = source.is_fixed();
        if is_fixed && let Some(set) = &*sets.fixed.borrow() {
            return Rc::clone(set);
        }
        cx.with_scratch(|cx, key| {
            source.render_key(cx, key);
            if let Some(set) = sets.by_key.borrow().get(&**key) {
                return Rc::clone(set);
            }
            let asked = source.question(key);
            let set = Rc::new(Set {
                answer: self.answers.of(number, &asked.question),
                port: asked.port,
                made: RefCell::new(Made { fresh_until: None, records: Arc::default(), upstreams: Rc::default() }),
            });
            if is_fixed {
                *sets.fixed.borrow_mut() = Some(Rc::clone(&set));
                return set;
            }
            let mut by_key = sets.by_key.borrow_mut();
            if by_key.len() >= QUESTIONS_MAX {
                // Names that a client has made up must not displace the upstreams of others. Among equals any one, as
                // in Caddy, so that no name is displaced by each new one.
                let order = |set: &Set| (set.worth(), cx.worker().random());
                let least = by_key.iter().min_by_key(|(_, set)| order(set)).map(|(key, _)| key.clone());
                if let Some(set) = least.and_then(|least| by_key.remove(&least)) {
                    let now = cx.worker().now();
                    for gone in set.made.borrow().upstreams.iter() {
                        self.answers.keep_departed(Arc::clone(gone.common.status()), now);
                    }
                }
            }
            by_key.insert(key.as_slice().into(), Rc::clone(&set));
            set
        })
    }

    /// Makes the upstreams of an answer, which is given with the port and the name of its source. Those that were there
    /// before are kept, with their connections. A record that is no address is left out; it is an error if none is
    /// left.
    fn make(
        &self,
        cx: &Context,
        (port, records, shown): (&str, &[DnsRecord], &str),
        before: &[Rc<FoundBackend>],
        dynamic: &DynamicUpstreams,
        plan: &ReverseProxyPlan,
    ) -> Result<Rc<[Rc<FoundBackend>]>, Fault> {
        let mut upstreams: Vec<Rc<FoundBackend>> = Vec::with_capacity(records.len());
        let mut unusable = None;
        for record in records {
            let dial = match record {
                DnsRecord::Address(ip) if ip.is_ipv6() => format!("[{ip}]:{port}"),
                DnsRecord::Address(ip) => format!("{ip}:{port}"),
                DnsRecord::Service { target, port } => format!("{target}:{port}"),
            };
            let same = before.iter().chain(&upstreams).find(|upstream| *upstream.common.dial == *dial);
            match same {
                Some(same) => upstreams.push(Rc::clone(same)),
                None => match FoundBackend::new(&dial, plan, &dynamic.metrics, cx.worker()) {
                    Ok(new) => upstreams.push(Rc::new(new)),
                    Err(expected) => unusable = Some((dial, expected)),
                },
            }
        }
        if let Some((dial, expected)) = unusable {
            if upstreams.is_empty() {
                return Err(not_an_address(&dial, &expected));
            }
            let skipped = records.len() - upstreams.len();
            tracing::warn!(source = shown, dial, %expected, skipped, "skipping looked-up upstreams without an address");
        }
        let now = cx.worker().now();
        for gone in before.iter().filter(|old| !upstreams.iter().any(|new| Rc::ptr_eq(old, new))) {
            self.answers.keep_departed(Arc::clone(gone.common.status()), now);
        }
        Ok(upstreams.into())
    }

    /// Returns the upstreams of several sources as one list.
    pub(super) fn joined(&self, parts: &[Rc<[Rc<FoundBackend>]>]) -> Rc<[Rc<FoundBackend>]> {
        let mut joined = self.joined.borrow_mut();
        let is_same = joined.parts.len() == parts.len()
            && joined.parts.iter().zip(parts).all(|(known, part)| Rc::ptr_eq(known, part));
        if !is_same {
            joined.whole = parts.iter().flat_map(|part| part.iter().cloned()).collect();
            joined.parts = parts.to_vec();
        }
        Rc::clone(&joined.whole)
    }
}

/// The order in which sets are given up.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// The lookup has found nothing.
    Useless,
    /// The first lookup is under way.
    Unknown,
    HasUpstreams,
}

impl Set {
    fn worth(&self) -> Worth {
        if !self.made.borrow().upstreams.is_empty() {
            Worth::HasUpstreams
        } else if self.answer.is_useless() {
            Worth::Useless
        } else {
            Worth::Unknown
        }
    }
}

/// As Caddy, which parses the address only after it has selected the upstream: 500.
#[cold]
fn not_an_address(dial: &str, expected: &str) -> Fault {
    let message = format!("making dial info: upstream {}: expected {expected}", dial.escape_debug());
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(message.into()) }
}
