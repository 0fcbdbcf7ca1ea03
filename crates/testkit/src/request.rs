//! A client's request.

use std::net::SocketAddr;
use std::rc::Rc;

use causeway_message::{Chunk, FieldMap, FieldValue, Head, NameRef, Version};
use causeway_pipeline::{BodyError, Endpoints, Frame, Scheme, TlsFacts};

/// A request: the bytes of an HTTP/1.1 head with ranges, so that filling a context's head needs a single copy, as in
/// the protocol machine. Also its body, peer and scheme.
#[derive(Clone)]
pub struct Request {
    bytes: Vec<u8>,
    line: usize,
    method: usize,
    target: std::ops::Range<usize>,
    version: Version,
    fields: Vec<Placed>,
    pub(crate) body: Vec<Piece>,
    pub(crate) ending: BodyEnding,
    pub(crate) ends: Endpoints,
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
    Failed(BodyError),
    Open,
}

/// A connection to 192.0.2.80:80.
fn ends(peer: SocketAddr) -> Endpoints {
    Endpoints::Ip { peer, local: ([192, 0, 2, 80], 80).into() }
}

impl Request {
    /// Creates a request with `Host: localhost`, from 192.0.2.1:4711, over HTTP/1.1 without TLS.
    pub fn new(method: &str, target: &str) -> Self {
        let bytes = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        let request = Self {
            line: bytes.len(),
            method: method.len(),
            target: method.len() + 1..method.len() + 1 + target.len(),
            bytes,
            version: Version::Http11,
            fields: Vec::new(),
            body: Vec::new(),
            ending: BodyEnding::Complete,
            ends: ends(SocketAddr::from(([192, 0, 2, 1], 4711))),
            scheme: Scheme::Http,
            upgrade: false,
            tls: None,
        };
        request.field("Host", "localhost")
    }

    /// Creates a GET request.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Adds a field; `Host` replaces the existing one.
    ///
    /// # Panics
    /// When the protocol machine would reject the name or value.
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

    /// Removes all fields with this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        let bytes = &self.bytes;
        self.fields.retain(|placed| !bytes[placed.name.clone()].eq_ignore_ascii_case(name.as_bytes()));
        self
    }

    fn push(mut self, name: &str, value: &[u8]) -> Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        // Positions are offsets into `bytes`, as in the protocol machine's index.
        let value_at = at + name.len() + 2;
        self.fields.push(Placed { name: at..at + name.len(), value: value_at..value_at + value.len() });
        self
    }

    /// Adds a frame of content.
    #[must_use]
    pub fn content(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body.push(Piece::Content(bytes.into()));
        self
    }

    /// Adds a frame of content that shares the test's chunk.
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

    /// Makes the body fail here with `fault`.
    #[must_use]
    pub fn body_fails(mut self, fault: BodyError) -> Self {
        self.ending = BodyEnding::Failed(fault);
        self
    }

    /// Leaves the body open: the test pushes more through the mailbox of [`crate::Pending::context`].
    #[must_use]
    pub fn body_open(mut self) -> Self {
        self.ending = BodyEnding::Open;
        self
    }

    /// Sets the peer's address.
    #[must_use]
    pub fn peer(mut self, peer: SocketAddr) -> Self {
        self.ends = ends(peer);
        self
    }

    /// Makes the request arrive over the Unix socket with this path.
    #[must_use]
    pub fn over_unix(mut self, path: &str) -> Self {
        self.ends = Endpoints::Unix(path.into());
        self
    }

    /// Sets the scheme to https, with default TLS facts.
    #[must_use]
    pub fn secure(self) -> Self {
        self.tls(TlsFacts::default())
    }

    /// Sets the scheme to https, with these TLS facts.
    #[must_use]
    pub fn tls(mut self, facts: TlsFacts) -> Self {
        self.scheme = Scheme::Https;
        self.tls = Some(Rc::new(facts));
        self
    }

    /// Sets the HTTP version.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Requests a switch to `protocol`, which the connection allows.
    #[must_use]
    pub fn upgrade(mut self, protocol: &str) -> Self {
        self.upgrade = true;
        // The HTTP/2 machine reports an extended CONNECT without it.
        let request = if self.is_connect() { self } else { self.field("Connection", "Upgrade") };
        request.field("Upgrade", protocol)
    }

    fn is_connect(&self) -> bool {
        &self.bytes[..self.method] == b"CONNECT"
    }

    pub(crate) fn is_head(&self) -> bool {
        &self.bytes[..self.method] == b"HEAD"
    }

    /// Fills a head as the HTTP/1 machine does: first the ranges, then one copy.
    ///
    /// # Panics
    /// When the target is invalid.
    pub fn fill(&self, head: &mut Head) {
        for placed in &self.fields {
            let (at, len) = (placed.value.start as u32, placed.value.len() as u32);
            match NameRef::parse(&self.bytes[placed.name.clone()]).expect("checked when it was added") {
                NameRef::Known(known) => head.fields_mut().index_known(known, at, len),
                NameRef::Other(name) => {
                    head.fields_mut().index_other(placed.name.start as u32, name.len() as u16, at, len);
                }
            }
        }
        let filled = head.fill(&self.bytes, self.line, 0..self.method, self.target.clone(), self.version);
        assert!(filled.is_ok(), "{:?} is no target", self.target());
    }

    /// Returns the target as sent.
    pub fn target(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.target.clone()]).expect("made from text")
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.body.iter().map(|piece| match piece {
            Piece::Content(bytes) => Frame::Chunk(Chunk::from(bytes.clone())),
            Piece::Chunk(chunk) => Frame::Chunk(chunk.clone()),
            Piece::Trailers(fields) => Frame::Trailers(fields.clone()),
        })
    }
}
