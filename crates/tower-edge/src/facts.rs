//! Facts about a request's connection, for services.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use causeway_pipeline::{Arrival, Endpoints, TlsFacts};
use http::Extensions;

/// The connection of a request, in the request's extensions; not on a Unix socket, whose peers have no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectInfo {
    /// The client's address, or that of the last proxy.
    pub peer: SocketAddr,
    /// The local address.
    pub local: SocketAddr,
    /// The TLS parameters; `None` on a cleartext connection.
    pub tls: Option<Arc<Tls>>,
}

/// The TLS parameters of a connection, shared by all its requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// `tls1.2` or `tls1.3`.
    pub version: &'static str,
    /// IANA's name of the cipher suite.
    pub cipher_suite: &'static str,
    /// The protocol that ALPN selected; empty without ALPN.
    pub protocol: &'static str,
    /// The server name that the client sent (RFC 6066 §3).
    pub server_name: Option<Box<str>>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// The client's certificate in DER, if it sent one. The listener decides whether it is verified.
    pub client_certificate: Option<Box<[u8]>>,
}

impl Tls {
    fn of(facts: &TlsFacts) -> Self {
        Self {
            version: facts.version,
            cipher_suite: facts.cipher_suite,
            protocol: facts.protocol,
            server_name: facts.server_name.clone(),
            resumed: facts.resumed,
            client_certificate: facts.client_certificate.as_ref().map(|certificate| certificate.der().into()),
        }
    }
}

/// A cache of one entry: the converted facts of the worker's last TLS connection.
#[derive(Default)]
pub(crate) struct LastTls(RefCell<Option<(Rc<TlsFacts>, Arc<Tls>)>>);

impl LastTls {
    fn facts(&self, of: &Rc<TlsFacts>) -> Arc<Tls> {
        let mut last = self.0.borrow_mut();
        match &*last {
            // The cache holds its `Rc`, so an equal pointer is the same connection.
            Some((known, facts)) if Rc::ptr_eq(known, of) => Arc::clone(facts),
            _ => {
                let facts = Arc::new(Tls::of(of));
                *last = Some((Rc::clone(of), Arc::clone(&facts)));
                facts
            }
        }
    }
}

/// Adds the connection facts to a request's extensions.
pub(crate) fn put(arrival: &Arrival, tls: &LastTls, extensions: &mut Extensions) {
    let tls = arrival.tls.as_ref().map(|facts| tls.facts(facts));
    // The peers of a Unix socket have no address.
    let Endpoints::Ip { peer, local } = arrival.ends else { return };
    extensions.insert(ConnectInfo { peer, local, tls });
    #[cfg(feature = "axum")]
    extensions.insert(axum::extract::ConnectInfo(peer));
}
