//! What a client sends.

use std::net::SocketAddr;
use std::rc::Rc;

use causeway_message::{Chunk, FieldMap, FieldValue, Head, NameRef, Version};
use causeway_pipeline::{BodyFault, Frame, Scheme, TlsFacts};

/// A request, as octets of an HTTP/1.1 head with ranges, so that filling a context's head from it is the same single
/// copy that the protocol machine makes. Also what surrounds it: body, peer, scheme.
#[derive(Clone)]
pub struct Request {
    octets: Vec<u8>,
    line: usize,
    method: usize,
    target: std::ops::Range<usize>,
    version: Version,
    fields: Vec<Placed>,
    pub(crate) body: Vec<Piece>,
    pub(crate) ending: BodyEnding,
    pub(crate) peer: SocketAddr,
    pub(crate) scheme: Scheme,
    pub(crate) upgrade: bool,
    pub(crate) tls: Option<Rc<TlsFacts>>,
}

#[derive(Clone)]
struct Placed {
    name: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

#[derive(Clone)]
pub(crate) enum Piece {
    Content(Vec<u8>),
    Chunk(Chunk),
    Trailers(Box<FieldMap>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnding {
    Complete,
    Failed(BodyFault),
    Open,
}

impl Request {
    /// A request of this method and target, with `Host: localhost`, from 192.0.2.1:4711, over HTTP/1.1 in the clear.
    pub fn new(method: &str, target: &str) -> Self {
        let octets = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        let request = Self {
            line: octets.len(),
            method: method.len(),
            target: method.len() + 1..method.len() + 1 + target.len(),
            octets,
            version: Version::Http11,
            fields: Vec::new(),
            body: Vec::new(),
            ending: BodyEnding::Complete,
            peer: SocketAddr::from(([192, 0, 2, 1], 4711)),
            scheme: Scheme::Http,
            upgrade: false,
            tls: None,
        };
        request.field("Host", "localhost")
    }

    /// GET of this target.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Adds a field; `Host` replaces the one that is there.
    ///
    /// # Panics
    /// When the machine would not have let it pass.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        assert!(NameRef::parse(name.as_bytes()).is_some(), "{name:?} is no field name");
        assert!(FieldValue::parse(value).is_some(), "{value:?} is no field value");
        if name.eq_ignore_ascii_case("host") {
            return self.without("host").push(name, value);
        }
        self = self.push(name, value);
        self
    }

    /// Takes the fields of a name out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        let octets = &self.octets;
        self.fields.retain(|placed| !octets[placed.name.clone()].eq_ignore_ascii_case(name.as_bytes()));
        self
    }

    fn push(mut self, name: &str, value: &[u8]) -> Self {
        let at = self.octets.len();
        self.octets.extend_from_slice(name.as_bytes());
        self.octets.extend_from_slice(b": ");
        self.octets.extend_from_slice(value);
        self.octets.extend_from_slice(b"\r\n");
        let value_at = at + name.len() + 2;
        self.fields.push(Placed { name: at..at + name.len(), value: value_at..value_at + value.len() });
        self
    }

    /// Adds a frame of content.
    #[must_use]
    pub fn content(mut self, octets: impl Into<Vec<u8>>) -> Self {
        self.body.push(Piece::Content(octets.into()));
        self
    }

    /// Adds a frame of content that lies where the test has it.
    #[must_use]
    pub fn chunk(mut self, chunk: Chunk) -> Self {
        self.body.push(Piece::Chunk(chunk));
        self
    }

    /// Adds a trailer section of one field.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        let mut fields = FieldMap::new();
        fields.append(
            NameRef::parse(name.as_bytes()).expect("a name"),
            FieldValue::parse(value.as_bytes()).expect("a value"),
        );
        self.body.push(Piece::Trailers(Box::new(fields)));
        self
    }

    /// The body ends here, before its end.
    #[must_use]
    pub fn body_fails(mut self, fault: BodyFault) -> Self {
        self.ending = BodyEnding::Failed(fault);
        self
    }

    /// More of the body will come; see [`crate::Pending::context`] and its mailbox.
    #[must_use]
    pub fn body_open(mut self) -> Self {
        self.ending = BodyEnding::Open;
        self
    }

    /// From another peer.
    #[must_use]
    pub fn peer(mut self, peer: SocketAddr) -> Self {
        self.peer = peer;
        self
    }

    /// Over TLS, of which nothing else is known.
    #[must_use]
    pub fn secure(self) -> Self {
        self.tls(TlsFacts::default())
    }

    /// Over TLS.
    #[must_use]
    pub fn tls(mut self, facts: TlsFacts) -> Self {
        self.scheme = Scheme::Https;
        self.tls = Some(Rc::new(facts));
        self
    }

    /// By another version.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The peer asks to change the protocol, and may.
    #[must_use]
    pub fn upgrade(mut self, protocol: &str) -> Self {
        self.upgrade = true;
        self.field("Upgrade", protocol)
    }

    pub(crate) fn is_head(&self) -> bool {
        &self.octets[..self.method] == b"HEAD"
    }

    /// Fills a head the way the HTTP/1 machine does: ranges first, then one copy.
    ///
    /// # Panics
    /// When the target is none.
    pub fn fill(&self, head: &mut Head) {
        for placed in &self.fields {
            let (at, len) = (placed.value.start as u32, placed.value.len() as u32);
            match NameRef::parse(&self.octets[placed.name.clone()]).expect("checked when it was added") {
                NameRef::Known(known) => head.fields_mut().index_known(known, at, len),
                NameRef::Other(name) => {
                    head.fields_mut().index_other(placed.name.start as u32, name.len() as u16, at, len);
                }
            }
        }
        let filled = head.fill(&self.octets, self.line, 0..self.method, self.target.clone(), self.version);
        assert!(filled.is_ok(), "{:?} is no target", self.target());
    }

    /// The target as it is sent.
    pub fn target(&self) -> &str {
        std::str::from_utf8(&self.octets[self.target.clone()]).expect("made from text")
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.body.iter().map(|piece| match piece {
            Piece::Content(octets) => Frame::Chunk(Chunk::from(octets.clone())),
            Piece::Chunk(chunk) => Frame::Chunk(chunk.clone()),
            Piece::Trailers(fields) => Frame::Trailers(fields.clone()),
        })
    }
}
