//! From an address to a connection that carries calls.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{CallFault, Versions, Worker as _};
use tokio::net::TcpStream;

use super::drive::Connection;
use super::{Link, Place};
use crate::tls::{Connected, Connector};
use crate::worker::Core;

/// A link's task, from its beginning to its end.
pub(super) async fn run(place: Rc<Place>, link: Rc<Link>) {
    let mut attempt = Attempt { place, link, fault: CallFault::Closed, has_failed: true };
    let Attempt { place, link, .. } = &attempt;
    let limit = place.transport.connect_timeout;
    let connected = match tokio::time::timeout(limit, reach(place)).await {
        Ok(connected) => connected,
        Err(_) => Err(CallFault::ConnectTimedOut),
    };
    match connected {
        Ok((Reached::Clear(stream), remote)) => {
            let is_http2 = place.transport.versions == Versions::Http2;
            let connection = Connection::new(place, Rc::clone(link), stream, remote, is_http2);
            attempt.has_failed = false;
            // From here on only calls hold the place.
            drop(attempt);
            connection.await;
        }
        Ok((Reached::Protected(Connected { stream, is_http2 }), remote)) => {
            place.speaks_http2.set(is_http2);
            let connection = Connection::new(place, Rc::clone(link), stream, remote, is_http2);
            attempt.has_failed = false;
            drop(attempt);
            connection.await;
        }
        Err(fault) => {
            tracing::debug!(address = %place.address, %fault, "no connection to an upstream");
            attempt.fault = fault;
        }
    }
}

/// A connection that is to come about. Whatever keeps it from that, a panic too, its calls are told.
struct Attempt {
    place: Rc<Place>,
    link: Rc<Link>,
    fault: CallFault,
    has_failed: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.has_failed {
            self.place.unreachable(&self.link, &self.fault);
        }
    }
}

/// What carries a connection's octets.
enum Reached {
    Clear(TcpStream),
    Protected(Connected),
}

async fn reach(place: &Rc<Place>) -> Result<(Reached, SocketAddr), CallFault> {
    let core = &place.core;
    let (stream, remote) = connect(core, &place.address).await?;
    if place.transport.tls.is_none() {
        return Ok((Reached::Clear(stream), remote));
    }
    let connector = connector(place).await?;
    let secured = connector.connect(core, stream).await.map_err(CallFault::Tls)?;
    if place.transport.versions == Versions::Http2 && !secured.is_http2 {
        return Err(CallFault::Tls("it does not speak HTTP/2".into()));
    }
    Ok((Reached::Protected(secured), remote))
}

/// How this place's handshakes are made. The first one reads files.
async fn connector(place: &Rc<Place>) -> Result<Rc<Connector>, CallFault> {
    if let Some(connector) = &*place.connector.borrow() {
        return Ok(Rc::clone(connector));
    }
    let (transport, address) = (Arc::clone(&place.transport), place.address.clone());
    let making = run_blocking(&*place.core, move || {
        let spec = transport.tls.as_deref().ok_or("in the clear")?;
        Connector::new(spec, transport.versions, host_of(&address))
    });
    let made = making.map_err(|_| CallFault::Busy)?.await;
    let made = Rc::new(made.unwrap_or(Err("its making panicked".into())).map_err(CallFault::Tls)?);
    *place.connector.borrow_mut() = Some(Rc::clone(&made));
    Ok(made)
}

/// The host of `host:port`, without an IPv6 literal's brackets.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

async fn connect(core: &Rc<Core>, address: &str) -> Result<(TcpStream, SocketAddr), CallFault> {
    let addresses = match address.parse() {
        Ok(literal) => vec![literal],
        Err(_) => resolve(core, address).await?,
    };
    let mut fault = CallFault::Resolve(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are written whole, so there is nothing that Nagle's algorithm could gather.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Err(error) => fault = CallFault::Connect(error.kind()),
        }
    }
    Err(fault)
}

async fn resolve(core: &Rc<Core>, address: &str) -> Result<Vec<SocketAddr>, CallFault> {
    let looking = core.resolve(address).map_err(|_| CallFault::Busy)?;
    match looking.await {
        Some(Ok(addresses)) => Ok(addresses),
        Some(Err(error)) => Err(CallFault::Resolve(error.kind())),
        None => Err(CallFault::Resolve(io::ErrorKind::Other)),
    }
}
