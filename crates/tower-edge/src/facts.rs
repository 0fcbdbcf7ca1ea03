//! What a service may ask about the connection that a request came on.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use causeway_pipeline::{Arrival, TlsFacts};
use http::Extensions;

/// How a request reached the server: in its extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectInfo {
    /// The client's address; that of the last proxy, where there is one.
    pub peer: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// What was agreed on the connection's protection; `None` in the clear.
    pub tls: Option<Arc<Tls>>,
}

/// The facts of a TLS connection; all its requests share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// `tls1.2` or `tls1.3`.
    pub version: &'static str,
    /// IANA's name of the cipher suite.
    pub cipher_suite: &'static str,
    /// What ALPN chose; empty without it.
    pub protocol: &'static str,
    /// The server name that the client sent (RFC 6066 §3).
    pub server_name: Option<Box<str>>,
    /// Whether an earlier session went on.
    pub resumed: bool,
    /// The client's certificate in DER, where it sent one. Whether it was verified is the listener's affair.
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

/// A worker's last TLS connection: its next request finds the facts copied already.
#[derive(Default)]
pub(crate) struct LastTls(RefCell<Option<(Rc<TlsFacts>, Arc<Tls>)>>);

impl LastTls {
    fn facts(&self, of: &Rc<TlsFacts>) -> Arc<Tls> {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some((known, facts)) if Rc::ptr_eq(known, of) => Arc::clone(facts),
            _ => {
                let facts = Arc::new(Tls::of(of));
                *last = Some((Rc::clone(of), Arc::clone(&facts)));
                facts
            }
        }
    }
}

/// Puts what is known of the connection into a request's extensions.
pub(crate) fn put(arrival: &Arrival, tls: &LastTls, extensions: &mut Extensions) {
    let tls = arrival.tls.as_ref().map(|facts| tls.facts(facts));
    extensions.insert(ConnectInfo { peer: arrival.peer, local: arrival.local, tls });
    #[cfg(feature = "axum")]
    extensions.insert(axum::extract::ConnectInfo(arrival.peer));
}
