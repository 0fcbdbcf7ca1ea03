//! The typed record of one exchange.
//!
//! ```text
//!   Spare ──prepare──► Context ──recycle──► Spare        (a panic drops it instead)
//! ```
//! A [`Spare`] is storage only; a protocol machine fills its head. [`Spare::prepare`] is the only way to a
//! [`Context`], so a handler never sees a context whose facts are not set. [`Context::recycle`] clears everything and
//! keeps the storage. The dirty tests verify that an exchange on recycled storage equals one on fresh storage.
//!
//! - `request`: the request's head, path and client; `response`: the response's fields so far
//! - `body`: the request's body; `carried`: a request that is transported in the peer's request
//! - `fault`: the faults of the exchange; `transfer`: the time limits that handlers set
//! - `tls`: the result of a TLS handshake
//! - `variables`: texts that handlers pass to each other; `local`: values that a handler keeps for itself
//! - `waiting`: waits and the deadline

mod body;
mod carried;
mod fault;
mod local;
mod request;
mod response;
mod tls;
mod transfer;
mod variables;
mod waiting;

use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::Instant;

pub use causeway_message::Scheme;
use causeway_message::{Chunk, FieldMap, FieldValue, Head, names};

use crate::body::{Frame, Mailbox};
use crate::listen::Endpoints;
use crate::route::{Flow, Generation, ServerId};
use crate::template::Template;
use crate::worker::Worker;
use body::BodyState;
use carried::CarriedState;
pub use fault::Failure;
use fault::FaultState;
pub use local::LocalId;
use local::Locals;
use request::RequestState;
pub(crate) use request::{split_authority, uuid_text};
use response::ResponseState;
pub use tls::{AlternativeName, ClientCertificate, TlsFacts};
use transfer::TransferState;
use variables::Variables;
pub use variables::{ComputedId, ValueKind, VarId};
use waiting::WaitingState;

/// Bytes of storage that each buffer keeps for the next exchange; recycling frees the rest.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Scratch buffers for templates. Renders nest to this depth at most in the built-in modules.
const SCRATCHES: usize = 6;

/// The value of the `Server` field of every response.
const SERVER: FieldValue<'static> = FieldValue::from_static("Causeway");

/// How a request arrived: facts from the engine that the head does not contain.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The ends of the connection.
    pub ends: Endpoints,
    /// The scheme: whether the connection is protected by TLS.
    pub scheme: Scheme,
    /// The server of the plan that handles the request.
    pub server: ServerId,
    /// When the head was complete, by the worker's clock.
    pub at: Instant,
    /// Whether the request has an `Upgrade` that the server may grant (RFC 9110 §7.8).
    pub upgrade: bool,
    /// The result of the TLS handshake; `None` on a cleartext connection.
    pub tls: Option<Rc<TlsFacts>>,
}

/// The client that sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The peer's address, or the address that a trusted proxy reports in the configured fields. `None` is the peer of
    /// a Unix socket, for which no trusted field gives an address.
    pub ip: Option<IpAddr>,
    /// Whether the peer is a trusted proxy.
    pub proxied: bool,
}

impl Client {
    /// Returns the address range that a single client can control: for IPv6 its /64 network (RFC 4291 §2.5.4), else the
    /// address.
    pub fn network(&self) -> Option<IpAddr> {
        Some(match self.ip?.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            ip @ IpAddr::V4(_) => ip,
        })
    }
}

/// The id of a matcher that may wait, allotted at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatcherId(pub(crate) u32);

/// Everything that an exchange stores. Each group of fields resets itself, by a pattern without `..`: the compiler
/// refuses a new field that its group's `reset` does not mention.
struct Parts {
    worker: Rc<dyn Worker>,
    /// An empty generation. A spare refers to it, so that it does not keep an old plan alive.
    vacant: Rc<Generation>,
    /// Before `generation`, and so dropped before it: the measurement counts in cells that the generation's meter
    /// merges into others when it ends.
    flow: Flow,
    generation: Rc<Generation>,
    request: RequestState,
    body: BodyState,
    carried: CarriedState,
    response: ResponseState,
    fault: FaultState,
    variables: Variables,
    locals: Locals,
    scratches: Scratches,
    waiting: WaitingState,
    transfers: TransferState,
    is_unrecorded: bool,
}

impl Parts {
    /// Clears the exchange and keeps the storage.
    fn reset(&mut self) {
        let Self {
            worker: _,
            vacant,
            flow,
            generation,
            request,
            body,
            carried,
            response,
            fault,
            variables,
            locals,
            scratches,
            waiting,
            transfers,
            is_unrecorded,
        } = self;
        // First, because the pending future may own a body or a call of this exchange.
        waiting.reset();
        // Before the generation, as in a drop.
        flow.reset();
        generation.clone_from(vacant);
        request.reset();
        body.reset();
        carried.reset();
        response.reset();
        fault.reset();
        variables.reset();
        locals.reset();
        scratches.reset();
        transfers.reset();
        *is_unrecorded = false;
    }
}

/// Scratch buffers for templates; a render that happens inside another one takes the next buffer.
#[derive(Default)]
struct Scratches {
    buffers: [Vec<u8>; SCRATCHES],
    /// How many of `buffers` are in use.
    lent: usize,
}

impl Scratches {
    fn reset(&mut self) {
        // `with_scratch` has returned every buffer: a panic that skips the return drops the whole context.
        let Self { buffers, lent: _ } = self;
        buffers.iter_mut().for_each(clear_and_shrink);
    }
}

/// Storage for an exchange, between two exchanges.
pub struct Spare(Box<Parts>);

/// A running exchange: the request, the response's fields, and the handlers' variables.
pub struct Context(Box<Parts>);

impl Spare {
    /// Allocates storage for an exchange of this worker. `vacant` is the generation that it refers to while it is
    /// unused.
    pub fn new(worker: Rc<dyn Worker>, vacant: Rc<Generation>) -> Self {
        let request = RequestState::new(worker.now());
        Self(Box::new(Parts {
            worker,
            generation: Rc::clone(&vacant),
            vacant,
            request,
            body: BodyState::default(),
            carried: CarriedState::default(),
            response: ResponseState::new(),
            fault: FaultState::default(),
            variables: Variables::default(),
            locals: Locals::default(),
            scratches: Scratches::default(),
            waiting: WaitingState::default(),
            flow: Flow::default(),
            transfers: TransferState::default(),
            is_unrecorded: false,
        }))
    }

    /// Returns the head, for a protocol machine to fill.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.0.request.original
    }

    /// Starts an exchange with the head that was filled.
    pub fn prepare(mut self, arrival: Arrival, generation: &Rc<Generation>) -> Context {
        let parts = &mut *self.0;
        parts.generation.clone_from(generation);
        let plan = generation.plan();
        parts.flow.begin(plan, arrival.server);
        if let Some(server) = plan.server(arrival.server) {
            // Here, so that no handler or matcher ever sees a confusable name.
            server.confusable.drop_from(parts.request.original.fields_mut());
        }
        if arrival.upgrade {
            parts.request.convert_extended_connect(&*parts.worker);
        }
        parts.request.arrival = arrival;
        parts.response.head.fields_mut().append(names::SERVER, SERVER);
        parts.request.decode_path();
        Context(self.0)
    }
}

impl Context {
    // ---- texts ----

    /// Copies bytes to a chunk from the worker's pool; allocates on the heap if they exceed one block.
    pub fn chunk(&self, bytes: &[u8]) -> Chunk {
        chunk_of(&*self.0.worker, bytes)
    }

    /// Renders a template to a chunk. A literal is copied as well, so that workers share no reference count.
    pub fn render(&mut self, template: &Template) -> Chunk {
        self.with_rendered(template, |cx, text| cx.chunk(text))
    }

    /// Calls `look` with the rendered text. Copies nothing if the template is a literal.
    #[inline]
    pub fn with_rendered<T>(&mut self, template: &Template, look: impl FnOnce(&mut Self, &[u8]) -> T) -> T {
        if let Some(literal) = template.literal() {
            return look(self, literal.as_bytes());
        }
        self.with_scratch(|cx, scratch| {
            template.render(cx, scratch);
            look(cx, scratch)
        })
    }

    /// Lends an empty vector whose memory is reused by the next call.
    pub fn with_scratch<T>(&mut self, work: impl FnOnce(&mut Self, &mut Vec<u8>) -> T) -> T {
        let depth = self.0.scratches.lent;
        // Nesting beyond SCRATCHES costs an allocation. No built-in module nests so deep.
        // Taken out of the context, so that `work` can borrow the context too.
        let mut scratch = self.0.scratches.buffers.get_mut(depth).map(std::mem::take).unwrap_or_default();
        self.0.scratches.lent = depth + 1;
        let result = work(self, &mut scratch);
        scratch.clear();
        self.0.scratches.lent = depth;
        if let Some(place) = self.0.scratches.buffers.get_mut(depth) {
            *place = scratch;
        }
        result
    }

    // ---- variables that handlers pass to each other ----

    /// Returns a variable's text; `None` while it is unset.
    #[inline]
    pub fn variable(&self, id: VarId) -> Option<&[u8]> {
        self.0.variables.get(id)
    }

    /// Sets a variable to a computed text: each template that contains it calls `computed` again. Has no effect on a
    /// variable that is set or computed already.
    pub fn set_computed_variable(&mut self, id: VarId, computed: ComputedId) {
        self.0.variables.set_computed(id, computed);
    }

    /// Returns the type of a variable's value; [`ValueKind::Null`] while it is unset.
    pub fn variable_kind(&self, id: VarId) -> ValueKind {
        self.0.variables.kind(id).unwrap_or(ValueKind::Null)
    }

    /// Appends a variable's text, computing it if necessary, and returns its type; `None` if the variable is unknown.
    pub(crate) fn render_variable(&mut self, id: VarId, out: &mut Vec<u8>) -> Option<ValueKind> {
        let Some(computed) = self.0.variables.computed(id) else {
            out.extend_from_slice(self.variable(id)?);
            return self.0.variables.kind(id);
        };
        // The variable is unset while it is computed: a text that refers to itself is then unknown, and recursion
        // ends.
        self.unset_variable(id);
        let generation = Rc::clone(&self.0.generation);
        let known = generation.plan().compute(computed, self, out);
        self.set_computed_variable(id, computed);
        known
    }

    /// Sets a variable to the rendered template.
    pub fn set_variable(&mut self, id: VarId, template: &Template) {
        self.with_rendered(template, |cx, text| cx.set_variable_text(id, text));
    }

    /// Sets a variable to `text`.
    pub fn set_variable_text(&mut self, id: VarId, text: &[u8]) {
        self.set_variable_value(id, text, ValueKind::Text);
    }

    /// Sets a variable to a value of a type, given as text.
    pub fn set_variable_value(&mut self, id: VarId, text: &[u8], kind: ValueKind) {
        self.0.variables.set(id, text, kind);
    }

    /// Unsets a variable.
    pub fn unset_variable(&mut self, id: VarId) {
        self.0.variables.unset(id);
    }

    // ---- the record, the counts and the worker of the exchange ----

    /// Enables or disables the access record of this exchange, on a server that keeps access records.
    pub fn set_recorded(&mut self, recorded: bool) {
        self.0.is_unrecorded = !recorded;
    }

    /// Returns whether the exchange may have an access record ([`set_recorded`](Self::set_recorded)).
    pub fn is_recorded(&self) -> bool {
        !self.0.is_unrecorded
    }

    /// Returns whether the exchange has taken a route whose requests are counted.
    #[inline]
    pub fn is_measured(&self) -> bool {
        self.0.flow.measurement.is_on()
    }

    /// Returns whether the profiler counts this exchange's response as progress; see
    /// [`ServerSpec::is_progress`](crate::build::ServerSpec::is_progress).
    pub fn is_progress(&self) -> bool {
        self.0.generation.plan().is_progress(self.0.request.arrival.server)
    }

    /// Returns the worker that runs this exchange.
    pub fn worker(&self) -> &Rc<dyn Worker> {
        &self.0.worker
    }

    /// Returns the generation of this exchange: the configuration at its start, which applies until its end.
    pub fn generation(&self) -> &Rc<Generation> {
        &self.0.generation
    }

    // ---- for the engine ----

    /// Returns the mailbox that the engine puts the request body into.
    pub fn mailbox(&self) -> &Mailbox {
        &self.0.body.mailbox
    }

    /// Passes the trailer fields of the request to the body's reader, without the names that are dropped from the head
    /// too.
    pub fn receive_trailers(&self, mut fields: FieldMap) {
        let parts = &*self.0;
        if let Some(server) = parts.generation.plan().server(parts.request.arrival.server) {
            server.confusable.drop_from(&mut fields);
        }
        parts.body.mailbox.push(Frame::Trailers(Box::new(fields)));
    }

    /// Clears the exchange and keeps its storage. Call it when the response was sent, or the peer has disconnected.
    pub fn recycle(mut self) -> Spare {
        self.0.reset();
        Spare(self.0)
    }

    // ---- for the interpreter ----

    pub(crate) fn flow_mut(&mut self) -> &mut Flow {
        &mut self.0.flow
    }

    pub(crate) fn flow(&self) -> &Flow {
        &self.0.flow
    }
}

fn clear_and_shrink(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.shrink_to(KEPT_BYTES_MAX);
}

fn chunk_of(worker: &dyn Worker, bytes: &[u8]) -> Chunk {
    if bytes.is_empty() {
        return Chunk::from_static(b"");
    }
    let mut block = worker.take_block();
    // Chunks cannot span blocks.
    if bytes.len() > block.capacity() {
        return Chunk::from(bytes.to_vec());
    }
    block.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    block.freeze(0..bytes.len())
}
