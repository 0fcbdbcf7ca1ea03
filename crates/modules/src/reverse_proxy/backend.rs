//! The servers, and what a worker knows of each: connections, and requests under way.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_message::StatusCode;
use causeway_pipeline::{
    Build, BuildError, Context, Fault, Reason, StateId, Tally, Template, Transport, Upstream, Versions, Worker,
};
use serde::Deserialize;

use super::address::Address;
use super::carriage::Carriage;
use super::httpgrpc::dns::Named;
use super::transport;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenBackend {
    #[serde(default)]
    dial: String,
    #[serde(default)]
    max_requests: i64,
}

impl WrittenBackend {
    pub(super) fn to(dial: String) -> Self {
        Self { dial, ..Self::default() }
    }
}

/// One of the servers.
pub(super) struct Backend {
    /// As it is written; what it is chosen and remembered by.
    pub(super) dial: Box<str>,
    pub(super) requests_max: Option<u32>,
    load: StateId<Rc<Load>>,
    at: At,
}

enum At {
    Fixed(StateId<Rc<Place>>),
    /// An address with placeholders, which is known when a request is there.
    Live {
        dial: Template,
        places: StateId<RefCell<Places>>,
    },
}

/// Requests that are under way to a server.
#[derive(Default)]
pub(super) struct Load(Cell<u32>);

impl Tally for Load {
    fn begin(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn end(&self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl Backend {
    pub(super) fn build(
        written: &WrittenBackend,
        transport: &transport::Built,
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let dial = written.dial.as_str();
        let template = build.template(dial);
        let at = match template.literal() {
            None => {
                let places =
                    build.kept_state(format!("reverse_proxy places {}", transport.key), |_| RefCell::default());
                At::Live { dial: template, places }
            }
            Some(literal) => {
                let (literal, is_name) = transport.carriage.strip_scheme(literal);
                let address = match Address::parse(literal) {
                    Ok(address) => address,
                    Err(expected) => return build.at("dial", |build| Err(build.refuse(dial, expected))),
                };
                let key = format!("reverse_proxy place {} {is_name} {}", address.authority, transport.key);
                let transport = Arc::clone(&transport.transport);
                let make =
                    move |worker: &Rc<dyn Worker>| Rc::new(Place::new(address.clone(), is_name, worker, &transport));
                At::Fixed(build.kept_state(key, make))
            }
        };
        Ok(Self {
            load: build.kept_state(format!("reverse_proxy load {dial}"), |_| Rc::default()),
            dial: dial.into(),
            requests_max: u32::try_from(written.max_requests).ok().filter(|&max| max > 0),
            at,
        })
    }

    /// Requests under way on this worker.
    pub(super) fn requests(&self, cx: &Context) -> u32 {
        cx.generation().state(self.load).0.get()
    }

    pub(super) fn load(&self, cx: &Context) -> Rc<Load> {
        Rc::clone(cx.generation().state(self.load))
    }

    /// Whether it may get another request.
    pub(super) fn is_available(&self, cx: &Context) -> bool {
        self.requests_max.is_none_or(|max| self.requests(cx) < max)
    }

    pub(super) fn place(
        &self,
        cx: &mut Context,
        carriage: Carriage,
        transport: &Arc<Transport>,
    ) -> Result<Rc<Place>, Fault> {
        match &self.at {
            At::Fixed(place) => Ok(Rc::clone(cx.generation().state(*place))),
            At::Live { dial, places } => cx.rendered(dial, |cx, text| {
                let text = std::str::from_utf8(text).unwrap_or_default();
                let places = cx.generation().state(*places);
                if let Some(place) = places.borrow().known.get(text) {
                    return Ok(Rc::clone(place));
                }
                // Caddy: 500, as for whatever else is wrong before an upstream is asked.
                let (stripped, is_name) = carriage.strip_scheme(text);
                let address = Address::parse(stripped).map_err(|expected| not_dialled(&self.dial, text, &expected))?;
                let place = Rc::new(Place::new(address, is_name, cx.worker(), transport));
                places.borrow_mut().remember(text, &place);
                Ok(place)
            }),
        }
    }
}

#[cold]
fn not_dialled(dial: &str, text: &str, expected: &str) -> Fault {
    let words = format!("making dial info: upstream {dial}: found '{}', expected {expected}", text.escape_debug());
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(words.into()) }
}

/// An address on a worker.
pub(super) struct Place {
    pub(super) address: Address,
    pub(super) upstream: Rc<dyn Upstream>,
    /// Where HTTP/1.1 is spoken, for what asks to switch protocols: HTTP/2 knows no such thing.
    switching: OnceCell<Rc<dyn Upstream>>,
    unstreamed_until: Cell<Option<Instant>>,
}

impl Place {
    fn new(address: Address, is_name: bool, worker: &Rc<dyn Worker>, transport: &Arc<Transport>) -> Self {
        let upstream: Rc<dyn Upstream> = if is_name {
            Named::new(&address.to_dial(), worker, transport)
        } else {
            worker.upstream(&address.to_dial(), transport)
        };
        Self { address, upstream, switching: OnceCell::new(), unstreamed_until: Cell::default() }
    }

    /// Whether content may be sent in several messages there.
    pub(super) fn may_stream(&self, now: Instant) -> bool {
        self.unstreamed_until.get().is_none_or(|until| until <= now)
    }

    /// The server does not know the service that streams.
    pub(super) fn unstream(&self, until: Instant) {
        self.unstreamed_until.set(Some(until));
    }

    /// Where a call goes that asks to switch protocols.
    pub(super) fn switching(&self, worker: &Rc<dyn Worker>, transport: &Arc<Transport>) -> &Rc<dyn Upstream> {
        if transport.tls.is_none() || transport.versions != Versions::Negotiated {
            return &self.upstream;
        }
        self.switching.get_or_init(|| {
            let transport = Transport { versions: Versions::Http1, ..(**transport).clone() };
            worker.upstream(&self.address.to_dial(), &Arc::new(transport))
        })
    }
}

/// Addresses that requests made of placeholders.
#[derive(Default)]
pub(super) struct Places {
    known: HashMap<Box<str>, Rc<Place>>,
}

/// Addresses that a worker remembers; beyond, those that nobody waits for go.
const PLACES_MAX: usize = 1024;

impl Places {
    fn remember(&mut self, text: &str, place: &Rc<Place>) {
        if self.known.len() >= PLACES_MAX {
            self.known.retain(|_, place| Rc::strong_count(place) > 1);
        }
        if self.known.len() < PLACES_MAX {
            self.known.insert(text.into(), Rc::clone(place));
        }
    }
}
