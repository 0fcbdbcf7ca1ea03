//! The one typed record of an exchange.
//!
//! ```text
//!   Spare ──prepare──► Context ──recycle──► Spare        (a panic drops it instead)
//! ```
//! A [`Spare`] holds storage only; a protocol machine fills its head. [`Spare::prepare`] is the only way to a
//! [`Context`], so a handler never meets one whose facts were not set. [`Context::recycle`] empties everything and keeps
//! the storage: a dirty test proves that an exchange after any other equals one on fresh storage.
//!
//! - `body`: the request's body; `carried`: a request within the request
//! - `tls`: what a TLS handshake agreed on
//! - `variables`: what handlers leave for each other
//! - `waiting`: what an exchange waits for

mod body;
mod carried;
mod tls;
mod variables;
mod waiting;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use causeway_message::{Chunk, FieldMap, FieldValue, Head, ResponseHead, StatusCode, Version, names, path};

use crate::body::Mailbox;
use crate::handler::Fault;
use crate::route::{Carrier, Flow, Generation, ServerId};
use crate::template::Template;
use crate::upstream::{Call, Finish};
use crate::wait::Waits;
use crate::worker::{Sleep, Worker};
use body::Held;
pub use tls::{AlternativeName, ClientCertificate, TlsFacts};
use variables::Variables;
pub use variables::{ComputedId, VarId};

/// Storage that one exchange may grow and the next one keeps; what is above goes back to the allocator.
const KEPT_OCTETS_MAX: usize = 16 * 1024;

/// Where templates are rendered, one inside another's use at most so deep in what is built in.
const SCRATCHES: usize = 6;

/// What each answer says it comes from.
const SERVER: FieldValue<'static> = FieldValue::from_static("Causeway");

/// How a request reached us; facts that the engine knows and the head does not say.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The peer's address.
    pub peer: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// Whether the connection is protected.
    pub scheme: Scheme,
    /// Which server of the plan.
    pub server: ServerId,
    /// When the head was complete, by the worker's clock.
    pub at: Instant,
    /// Whether the peer asked to change the protocol, and may (RFC 9110 §7.8).
    pub upgrade: bool,
    /// What was agreed on the connection's protection; `None` in the clear.
    pub tls: Option<Rc<TlsFacts>>,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The peer's address, or what a trusted proxy says in the fields that the server was told of.
    pub ip: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub proxied: bool,
}

/// The URI scheme that a connection stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As in a URI.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// A matcher that may wait, by the number that it got at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatcherId(pub(crate) u32);

struct Parts {
    worker: Rc<dyn Worker>,
    /// The generation that a spare belongs to: an empty one, so that no old plan is held.
    vacant: Rc<Generation>,
    generation: Rc<Generation>,
    arrival: Arrival,
    /// As it arrived; nothing changes it.
    original: Head,
    /// The copy that handlers changed, when they did.
    edited: Head,
    is_edited: bool,
    /// The path of the current target, decoded, when that differs from the raw one.
    path: Vec<u8>,
    path_is_raw: bool,
    /// As [`Context::path_is_plain`] says, once that was asked.
    path_is_plain: Cell<Option<bool>>,
    response: ResponseHead,
    variables: Variables,
    /// Where templates are rendered; more than one where one is rendered while another is looked at.
    scratches: [Vec<u8>; SCRATCHES],
    /// How many of them are lent.
    lent: usize,
    client: Option<Client>,
    uuid: Option<u128>,
    fault: Option<Fault>,
    fault_id: Option<u64>,
    found: Vec<(MatcherId, bool)>,
    informs: Vec<(StatusCode, FieldMap)>,
    mailbox: Mailbox,
    body_taken: bool,
    /// A body that a handler put in the place of the peer's, or that was read for a placeholder.
    held_body: Option<Held>,
    body_text: Option<Chunk>,
    /// Method and target of the request that the peer's carried, and who took it out.
    carried: Head,
    carrier: Option<Carrier>,
    deadline: Option<(Instant, Sleep)>,
    /// An upstream's answer that routes decide about.
    held_answer: Option<(Call, Rc<dyn Finish>)>,
    flow: Flow,
    waits: Waits,
    unrecorded: bool,
}

/// Storage for an exchange that is not under way.
pub struct Spare(Box<Parts>);

/// An exchange under way: the request, the response's fields, and what handlers left for each other.
pub struct Context(Box<Parts>);

impl Spare {
    /// Fresh storage of this worker. `vacant` is what it refers to while it rests.
    pub fn new(worker: Rc<dyn Worker>, vacant: Rc<Generation>) -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let at = worker.now();
        Self(Box::new(Parts {
            worker,
            generation: Rc::clone(&vacant),
            vacant,
            arrival: Arrival {
                peer: nowhere,
                local: nowhere,
                scheme: Scheme::Http,
                server: ServerId::FIRST,
                at,
                upgrade: false,
                tls: None,
            },
            original: Head::new(),
            edited: Head::new(),
            is_edited: false,
            path: Vec::new(),
            path_is_raw: true,
            path_is_plain: Cell::default(),
            response: ResponseHead::new(StatusCode::OK),
            variables: Variables::default(),
            scratches: Default::default(),
            lent: 0,
            client: None,
            uuid: None,
            fault: None,
            fault_id: None,
            found: Vec::new(),
            informs: Vec::new(),
            mailbox: Mailbox::default(),
            body_taken: false,
            held_body: None,
            body_text: None,
            carried: Head::new(),
            carrier: None,
            deadline: None,
            held_answer: None,
            flow: Flow::default(),
            waits: Waits::default(),
            unrecorded: false,
        }))
    }

    /// The head for a protocol machine to fill.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.0.original
    }

    /// Makes the exchange of the head that was filled.
    pub fn prepare(mut self, arrival: Arrival, generation: &Rc<Generation>) -> Context {
        let parts = &mut *self.0;
        parts.generation.clone_from(generation);
        let plan = generation.plan();
        parts.flow.begin(plan, arrival.server);
        if let Some(server) = plan.server(arrival.server) {
            server.confusable.drop_from(parts.original.fields_mut());
        }
        parts.arrival = arrival;
        parts.response.fields_mut().append(names::SERVER, SERVER);
        let mut context = Context(self.0);
        context.decode_path();
        context
    }
}

impl Context {
    // ---- the request ----

    /// The request as handlers left it so far.
    #[inline]
    pub fn head(&self) -> &Head {
        if self.0.is_edited { &self.0.edited } else { &self.0.original }
    }

    /// The request as it arrived, whatever handlers did.
    pub fn original(&self) -> &Head {
        &self.0.original
    }

    /// The request, to change it; the first call copies it, [`original`](Self::original) stays. To change the target use
    /// [`set_target`](Self::set_target).
    pub fn head_mut(&mut self) -> &mut Head {
        let parts = &mut *self.0;
        if !parts.is_edited {
            parts.edited.copy_from(&parts.original);
            parts.is_edited = true;
        }
        &mut parts.edited
    }

    /// Rewrites the target.
    ///
    /// # Errors
    /// When it is no target; the request is then as before.
    pub fn set_target(&mut self, target: impl AsRef<[u8]>) -> Result<(), Fault> {
        self.head_mut().set_target(target).map_err(|_| Fault::status(StatusCode::BAD_REQUEST))?;
        self.decode_path();
        Ok(())
    }

    /// Gives the request its own method and target back; its fields stay as handlers left them, as before Caddy's error routes.
    pub(crate) fn restore_target(&mut self) {
        let parts = &mut *self.0;
        if parts.is_edited {
            let own = if parts.carrier.is_some() { &parts.carried } else { &parts.original };
            parts.edited.set_method(own.method());
            parts.edited.set_target(own.target().as_str()).expect("a target that was parsed once is one");
            self.decode_path();
        }
    }

    /// The target's path, percent-decoded once; any octets.
    #[inline]
    pub fn path(&self) -> &[u8] {
        if self.0.path_is_raw { self.head().path() } else { &self.0.path }
    }

    /// Whether the path is as most are: ASCII, without empty and dot segments. Looked at once.
    #[inline]
    pub fn path_is_plain(&self) -> bool {
        match self.0.path_is_plain.get() {
            Some(plain) => plain,
            None => {
                let plain = self.path().is_ascii() && path::is_clean(self.path());
                self.0.path_is_plain.set(Some(plain));
                plain
            }
        }
    }

    /// The host that the request is for, without port and brackets, as written; empty when it names none.
    pub fn host(&self) -> &str {
        self.head().authority().map_or("", |authority| split_authority(authority).0)
    }

    /// The port that the authority names.
    pub fn host_port(&self) -> Option<&str> {
        self.head().authority().and_then(|authority| split_authority(authority).1)
    }

    /// How the request reached us.
    pub fn arrival(&self) -> &Arrival {
        &self.0.arrival
    }

    /// The protocol version, for placeholders and records; no handler's decision may depend on it.
    pub fn version(&self) -> Version {
        self.0.original.version()
    }

    /// Who asks, behind the proxies that the server trusts.
    pub fn client(&mut self) -> Client {
        let parts = &mut *self.0;
        *parts.client.get_or_insert_with(|| {
            let peer = parts.arrival.peer.ip();
            match parts.generation.plan().trust(parts.arrival.server) {
                Some(trust) => trust.client(peer, parts.original.fields()),
                None => Client { ip: peer.to_canonical(), proxied: false },
            }
        })
    }

    /// A number of this request's own, drawn when first asked for.
    pub fn uuid(&mut self) -> u128 {
        let parts = &mut *self.0;
        *parts.uuid.get_or_insert_with(|| {
            let random = u128::from(parts.worker.random()) << 64 | u128::from(parts.worker.random());
            // Version 4, variant 10 (RFC 9562 §5.4).
            random & !(0xf000 << 64) & !(0xc << 60) | 0x4000 << 64 | 0x8 << 60
        })
    }

    // ---- the response so far ----

    /// The response's fields; they live from the start of the exchange.
    #[inline]
    pub fn response(&self) -> &ResponseHead {
        &self.0.response
    }

    /// The response's fields, to change them.
    #[inline]
    pub fn response_mut(&mut self) -> &mut ResponseHead {
        &mut self.0.response
    }

    /// Queues an interim response, 103 (Early Hints) for one (RFC 9110 §15.2). `status` is 1xx but neither 100, which the
    /// engine sends by itself, nor 101, which is [`crate::Response::switch`].
    pub fn inform(&mut self, status: StatusCode, fields: FieldMap) {
        assert!(status.is_informational() && !matches!(status.as_u16(), 100 | 101));
        // What carries an answer has no place for one before it.
        if self.0.carrier.is_some() {
            return;
        }
        self.0.informs.push((status, fields));
    }

    /// Keeps an upstream's answer for routes that are called with it; one that is kept already is given up.
    pub fn hold_answer(&mut self, call: Call, owner: Rc<dyn Finish>) {
        self.0.held_answer = Some((call, owner));
    }

    /// The answer that is kept.
    pub fn held_answer(&self) -> Option<&Call> {
        self.0.held_answer.as_ref().map(|(call, _)| call)
    }

    /// Takes the answer that is kept, with whoever knows how to pass it on.
    pub fn take_held_answer(&mut self) -> Option<(Call, Rc<dyn Finish>)> {
        self.0.held_answer.take()
    }

    /// Copies octets to a chunk of the worker's pool; more than a block holds goes to the heap.
    pub fn chunk(&self, octets: &[u8]) -> Chunk {
        chunk_of(&*self.0.worker, octets)
    }

    /// Renders a template to a chunk; a literal one that lives in the plan is copied too, so that workers share no count.
    pub fn render(&mut self, template: &Template) -> Chunk {
        self.rendered(template, |cx, text| cx.chunk(text))
    }

    /// Looks at what a template stands for; nothing is copied when it is a literal.
    #[inline]
    pub fn rendered<T>(&mut self, template: &Template, look: impl FnOnce(&mut Self, &[u8]) -> T) -> T {
        if let Some(literal) = template.literal() {
            return look(self, literal.as_bytes());
        }
        self.with_scratch(|cx, scratch| {
            template.render(cx, scratch);
            look(cx, scratch)
        })
    }

    /// Lends an empty vector that keeps its memory for the next use.
    pub fn with_scratch<T>(&mut self, work: impl FnOnce(&mut Self, &mut Vec<u8>) -> T) -> T {
        let depth = self.0.lent;
        // Deeper than any module goes, it costs an allocation.
        let mut scratch = self.0.scratches.get_mut(depth).map(std::mem::take).unwrap_or_default();
        self.0.lent = depth + 1;
        let result = work(self, &mut scratch);
        scratch.clear();
        self.0.lent = depth;
        if let Some(place) = self.0.scratches.get_mut(depth) {
            *place = scratch;
        }
        result
    }

    // ---- what handlers leave for each other ----

    /// A variable's text; `None` while unset.
    #[inline]
    pub fn variable(&self, id: VarId) -> Option<&[u8]> {
        self.0.variables.get(id)
    }

    /// Has a variable worked out whenever a template names it from here on, until it is set. One that has a text, or is
    /// worked out already, stays as it is.
    pub fn compute_variable(&mut self, id: VarId, computed: ComputedId) {
        self.0.variables.compute(id, computed);
    }

    /// Appends a variable's text, worked out where it has to be; false when it is not known.
    pub(crate) fn render_variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        let Some(computed) = self.0.variables.computed(id) else {
            return self.variable(id).map(|text| out.extend_from_slice(text)).is_some();
        };
        // While it is worked out it is unknown: one that names itself ends there.
        self.unset_variable(id);
        let generation = Rc::clone(&self.0.generation);
        let known = generation.plan().compute(computed, self, out);
        self.compute_variable(id, computed);
        known
    }

    /// Sets a variable to what the template renders to.
    pub fn set_variable(&mut self, id: VarId, template: &Template) {
        self.rendered(template, |cx, text| cx.set_variable_text(id, text));
    }

    /// Sets a variable.
    pub fn set_variable_text(&mut self, id: VarId, text: &[u8]) {
        self.0.variables.set(id, text);
    }

    /// Forgets a variable.
    pub fn unset_variable(&mut self, id: VarId) {
        self.0.variables.unset(id);
    }

    /// The fault that the error routes handle.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.as_ref()
    }

    /// Says which fault is being handled, for a handler that leads into error routes of its own; the interpreter does it
    /// for the server's.
    pub fn set_fault(&mut self, fault: Fault) {
        self.0.fault = Some(fault);
        self.0.fault_id = None;
    }

    /// A number of the present fault's own, drawn when first asked for; `None` without a fault.
    pub fn fault_id(&mut self) -> Option<u64> {
        let parts = &mut *self.0;
        parts.fault.as_ref()?;
        Some(*parts.fault_id.get_or_insert_with(|| parts.worker.random()))
    }

    /// Says whether the exchange leaves an access record where its server keeps them.
    pub fn set_recorded(&mut self, recorded: bool) {
        self.0.unrecorded = !recorded;
    }

    /// Whether the exchange leaves an access record: its server keeps them, and no handler said otherwise.
    pub fn is_recorded(&self) -> bool {
        !self.0.unrecorded && self.0.generation.plan().access_log(self.0.arrival.server)
    }

    /// Whether its answer is progress of the program's: something that it is there for.
    pub fn is_progress(&self) -> bool {
        self.0.generation.plan().is_progress(self.0.arrival.server)
    }

    /// The worker that this exchange runs on.
    pub fn worker(&self) -> &Rc<dyn Worker> {
        &self.0.worker
    }

    /// The generation that this exchange started under and ends under.
    pub fn generation(&self) -> &Rc<Generation> {
        &self.0.generation
    }

    // ---- for the engine ----

    /// Where the request body goes.
    pub fn mailbox(&self) -> &Mailbox {
        &self.0.mailbox
    }

    /// Interim responses that handlers queued since the last call, in order.
    pub fn take_informs(&mut self) -> impl Iterator<Item = (StatusCode, FieldMap)> {
        self.0.informs.drain(..)
    }

    /// Empties the exchange and keeps its storage. The response is on the wire, or nobody is left to read it.
    pub fn recycle(mut self) -> Spare {
        let parts = &mut *self.0;
        parts.waits.cancel();
        parts.generation.clone_from(&parts.vacant);
        parts.original.clear();
        parts.original.give_back(KEPT_OCTETS_MAX);
        if parts.is_edited {
            parts.edited.clear();
            parts.edited.give_back(KEPT_OCTETS_MAX);
            parts.is_edited = false;
        }
        parts.path_is_raw = true;
        keep(&mut parts.path);
        parts.arrival.tls = None;
        parts.response.clear();
        parts.response.give_back(KEPT_OCTETS_MAX);
        parts.variables.renew();
        parts.scratches.iter_mut().for_each(keep);
        parts.client = None;
        parts.uuid = None;
        parts.fault = None;
        parts.fault_id = None;
        parts.found.clear();
        parts.informs.clear();
        parts.mailbox.renew();
        parts.body_taken = false;
        parts.held_body = None;
        parts.body_text = None;
        parts.carried.clear();
        parts.carried.give_back(KEPT_OCTETS_MAX);
        parts.carrier = None;
        parts.deadline = None;
        parts.held_answer = None;
        parts.flow.clear();
        parts.unrecorded = false;
        Spare(self.0)
    }

    // ---- for the interpreter ----

    pub(crate) fn flow_mut(&mut self) -> &mut Flow {
        &mut self.0.flow
    }

    pub(crate) fn flow(&self) -> &Flow {
        &self.0.flow
    }

    #[inline]
    fn decode_path(&mut self) {
        let parts = &mut *self.0;
        let head = if parts.is_edited { &parts.edited } else { &parts.original };
        parts.path_is_plain.set(None);
        parts.path_is_raw = !head.path_is_escaped();
        if !parts.path_is_raw {
            parts.path.clear();
            // A path with a bad escape is no target, so a head has none.
            parts.path_is_raw = path::decode(head.target().path(), &mut parts.path).is_err();
        }
    }
}

fn keep(octets: &mut Vec<u8>) {
    octets.clear();
    octets.shrink_to(KEPT_OCTETS_MAX);
}

fn chunk_of(worker: &dyn Worker, octets: &[u8]) -> Chunk {
    if octets.is_empty() {
        return Chunk::from_static(b"");
    }
    let mut block = worker.take_block();
    if octets.len() > block.capacity() {
        return Chunk::from(octets.to_vec());
    }
    block.as_mut_slice()[..octets.len()].copy_from_slice(octets);
    block.freeze(0..octets.len())
}

/// Host and port of `host[:port]`; an IPv6 literal loses its brackets.
pub(crate) fn split_authority(authority: &str) -> (&str, Option<&str>) {
    // RFC 3986 §3.2: userinfo has no place in an http authority, the machine refuses it.
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').unwrap_or((rest, ""));
        return (host, tail.strip_prefix(':'));
    }
    match memchr::memchr(b':', authority.as_bytes()) {
        Some(at) => (&authority[..at], Some(&authority[at + 1..])),
        None => (authority, None),
    }
}
