//! Opens a connection to an upstream: address lookup, TCP or a Unix socket, TLS.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};
use std::time::Duration;

use causeway_pipeline::worker::{DnsRecord, Families, Question, Resolver, Work, WorkKind, offload};
use causeway_pipeline::{CallError, UpstreamTransport, Versions};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use super::single_flight::SingleFlight;
use super::{Link, TlsPeer, UpstreamPool, network_proxy};
use crate::drive::ClientConnection;
use crate::proxy_protocol;
use crate::tls::{Connected, Connector, TlsStream};
use crate::transport::{Transport, keepalive, round_trip};
use crate::worker::{Core, families_of};

/// The network of Unix sockets in an upstream's address.
pub(super) const UNIX: &str = "unix/";
/// The least time for one of a name's addresses, as long as that much is left for all of them.
const ADDRESS_TIME_MIN: Duration = Duration::from_secs(2);
/// The pause before the next attempt to connect to a Unix socket whose queue of connections is full.
const SOCKET_FULL_PAUSE: Duration = Duration::from_millis(10);

/// Lookups of `host:port` by the system's resolver, or by another one.
pub(crate) type Lookups = SingleFlight<(Box<str>, Option<Arc<Resolver>>), Result<Vec<SocketAddr>, CallError>>;

/// The task of a connection, from the first attempt to the close.
pub(super) async fn run(pool: Rc<UpstreamPool>, link: Rc<Link>) {
    let attempt = Attempt { pool, link, error: CallError::Closed, is_established: false };
    let Attempt { pool, link, .. } = &attempt;
    let limit = pool.transport.connect_timeout;
    // A limit that is too long for the clock is none.
    let deadline = Instant::now().checked_add(limit);
    let connected = match tokio::time::timeout(limit, establish(pool, deadline)).await {
        Ok(connected) => connected,
        Err(_) => Err(CallError::ConnectTimedOut),
    };
    match connected {
        Ok((Established::Cleartext(stream), peer)) => {
            let is_http2 = pool.transport.versions == Versions::Http2;
            serve(attempt, stream, peer, is_http2).await;
        }
        Ok((Established::Tls(Connected { stream, is_http2 }), peer)) => {
            pool.set_http2(link, is_http2);
            serve(attempt, stream, peer, is_http2).await;
        }
        Ok((Established::TlsInTls(Connected { stream, is_http2 }), peer)) => {
            pool.set_http2(link, is_http2);
            serve(attempt, stream, peer, is_http2).await;
        }
        Err(error) => attempt.fail(error),
    }
}

/// Carries calls over a connection that is open, until its close.
async fn serve<T: Transport>(mut attempt: Attempt, stream: T, peer: Peer, is_http2: bool) {
    let Attempt { pool, link, .. } = &attempt;
    let connection = ClientConnection::new(pool, Rc::clone(link), stream, peer, is_http2);
    pool.hand_first(link);
    let pool = Rc::clone(pool);
    attempt.is_established = true;
    // The link belongs to the open connection from now on.
    drop(attempt);
    OpenConnection::new(connection, pool).await;
}

/// A connection that is being opened. Dropping it on the way, even by a panic, fails a call.
struct Attempt {
    pool: Rc<UpstreamPool>,
    link: Rc<Link>,
    error: CallError,
    is_established: bool,
}

impl Attempt {
    fn fail(mut self, error: CallError) {
        tracing::debug!(address = %self.pool.address, fault = %error, "no connection to an upstream");
        self.error = error;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_established {
            self.pool.connect_failed(&self.link, &self.error);
        }
    }
}

/// An open connection. It keeps its pool while calls wait there, since the pool's owner may have dropped it when the
/// connection was being opened. From then on nothing but its owner keeps the pool.
struct OpenConnection<T: Transport> {
    /// Dropped before the pool, to which it returns the calls that it did not begin.
    connection: ClientConnection<T>,
    pool: Option<Rc<UpstreamPool>>,
}

impl<T: Transport> OpenConnection<T> {
    fn new(connection: ClientConnection<T>, pool: Rc<UpstreamPool>) -> Self {
        Self { connection, pool: Some(pool) }
    }
}

impl<T: Transport> Future for OpenConnection<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        let polled = Pin::new(&mut self.connection).poll(poll_cx);
        // The drop of the last reference wakes this task, so that an idle connection ends.
        drop(self.pool.take_if(|pool| pool.waiting.is_empty()));
        polled
    }
}

/// The transport of an open connection.
enum Established {
    Cleartext(TcpStream),
    /// TLS to the upstream, or to a network proxy for an upstream without TLS.
    Tls(Connected),
    /// TLS to the upstream in TLS to a network proxy.
    TlsInTls(Connected<TlsStream>),
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peer {
    /// `None` for a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    /// As the kernel has measured it when the connection was established; zero if it could not, and for a Unix socket.
    pub(crate) round_trip: Duration,
}

/// Opens a connection. `deadline` only divides the time between addresses; the caller ends the attempt.
async fn establish(pool: &Rc<UpstreamPool>, deadline: Option<Instant>) -> Result<(Established, Peer), CallError> {
    let core = &pool.core;
    let (mut stream, peer) = match pool.address.strip_prefix(UNIX) {
        Some(path) => (connect_socket(path).await?, Peer::default()),
        None => {
            let proxy = pool.transport.network_proxy.as_deref();
            let address = proxy.map_or(&*pool.address, |proxy| &proxy.address);
            let connected = connect(core, address, &pool.transport, deadline).await;
            connected.map_err(|error| match proxy {
                // The upstream itself may be in order.
                Some(proxy) if matches!(error, CallError::Connect(_) | CallError::Resolve(_)) => {
                    CallError::NetworkProxy(format!("{}: {error}", proxy.address))
                }
                _ => error,
            })?
        }
    };
    if let Some(header) = pool.transport.proxy_header {
        // Before TLS, which the header does not belong to.
        let sent = stream.write_all(&proxy_protocol::encode(header)).await;
        sent.map_err(|error| connect_error(&error))?;
    }
    // A Unix socket is always reached directly.
    let proxy = pool.transport.network_proxy.as_deref().filter(|_| peer.address.is_some());
    let is_tunnelled = proxy.is_some() && pool.transport.forward_proxy().is_none();
    match proxy {
        Some(proxy) if proxy.tls.is_some() => {
            // The reasons name the other end, which is the proxy here.
            let tls_error = |reason: String| {
                CallError::NetworkProxy(format!(
                    "{}: TLS: {}",
                    proxy.address,
                    reason.replace("the upstream", "the proxy")
                ))
            };
            let connector = connector(pool, TlsPeer::NetworkProxy).await.map_err(|error| match error {
                CallError::Tls(reason) => tls_error(reason),
                error => error,
            })?;
            let mut secured = connector.connect(core, stream).await.map_err(tls_error)?;
            if is_tunnelled {
                network_proxy::connect(&mut secured.stream, proxy, &pool.address).await?;
            }
            if pool.transport.tls.is_none() {
                // The version of HTTP to the upstream, not to the proxy.
                secured.is_http2 = pool.transport.versions == Versions::Http2;
                return Ok((Established::Tls(secured), peer));
            }
            Ok((Established::TlsInTls(secure(pool, secured.stream).await?), peer))
        }
        _ => {
            if let Some(proxy) = proxy.filter(|_| is_tunnelled) {
                stream = network_proxy::tunnel(stream, proxy, &pool.address).await?;
            }
            if pool.transport.tls.is_none() {
                return Ok((Established::Cleartext(stream), peer));
            }
            Ok((Established::Tls(secure(pool, stream).await?), peer))
        }
    }
}

/// Performs the TLS handshake with the upstream.
async fn secure<T: Transport>(pool: &Rc<UpstreamPool>, stream: T) -> Result<Connected<T>, CallError> {
    let connector = connector(pool, TlsPeer::Upstream).await?;
    let secured = connector.connect(&pool.core, stream).await.map_err(CallError::Tls)?;
    if pool.transport.versions == Versions::Http2 && !secured.is_http2 {
        return Err(CallError::Tls("the upstream did not select HTTP/2 (ALPN)".into()));
    }
    Ok(secured)
}

/// Returns the pool's TLS client for this peer. The first call creates it, for all attempts that wait for it.
async fn connector(pool: &Rc<UpstreamPool>, peer: TlsPeer) -> Result<Rc<Connector>, CallError> {
    if let Some(connector) = &*kept_connector(pool, peer).borrow() {
        return Ok(Rc::clone(connector));
    }
    let made = pool.connectors.join(peer, || make_connector(Rc::clone(pool), peer)).await;
    made.unwrap_or_else(|| Err(CallError::Tls("creating the TLS client panicked".into())))
}

fn kept_connector(pool: &UpstreamPool, peer: TlsPeer) -> &RefCell<Option<Rc<Connector>>> {
    match peer {
        TlsPeer::Upstream => &pool.connector,
        TlsPeer::NetworkProxy => &pool.proxy_connector,
    }
}

/// Creates the pool's TLS client for this peer. It reads certificate files, so that runs on the file pool.
async fn make_connector(pool: Rc<UpstreamPool>, peer: TlsPeer) -> Result<Rc<Connector>, CallError> {
    let (transport, address) = (Arc::clone(&pool.transport), Box::<str>::from(&*pool.address));
    let making = offload(&*pool.core.worker(), Work::of(WorkKind::File), move || {
        let (spec, address, versions) = match peer {
            TlsPeer::Upstream => (transport.tls.as_deref(), &*address, transport.versions),
            TlsPeer::NetworkProxy => {
                let proxy = transport.network_proxy.as_deref().ok_or("no network proxy")?;
                // CONNECT and the absolute form are those of HTTP/1.1.
                (proxy.tls.as_deref(), &*proxy.address, Versions::Http1)
            }
        };
        let host = if address.starts_with(UNIX) { None } else { Some(host_of(address)) };
        Connector::new(spec.ok_or("in the clear")?, versions, host)
    });
    let made = making.map_err(|_| CallError::Busy)?.await;
    let made = Rc::new(made.unwrap_or(Err("creating the TLS client panicked".into())).map_err(CallError::Tls)?);
    *kept_connector(&pool, peer).borrow_mut() = Some(Rc::clone(&made));
    Ok(made)
}

/// The host of `host:port`, without an IPv6 literal's brackets.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

async fn connect(
    core: &Rc<Core>,
    address: &str,
    transport: &UpstreamTransport,
    deadline: Option<Instant>,
) -> Result<(TcpStream, Peer), CallError> {
    let addresses = match address.parse() {
        Ok(literal) => vec![literal],
        Err(_) => look_up(core, address, transport.resolver.as_ref()).await?,
    };
    let (stream, address) = happy_eyeballs(addresses, transport, deadline).await?;
    // Requests are written whole, so Nagle's algorithm could only delay them.
    let _ = stream.set_nodelay(true);
    if let Some(pause) = transport.probe_interval {
        // Best effort: without it a tunnel to a vanished host only stays open longer.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive(pause));
    }
    let round_trip = round_trip(stream.as_fd());
    Ok((stream, Peer { address: Some(address), round_trip }))
}

/// Connects to one of a name's addresses. As in Go, the family of the first address has a head start, so that a network
/// without the other family costs no more than that (RFC 8305). The error is the first family's.
async fn happy_eyeballs(
    mut addresses: Vec<SocketAddr>,
    transport: &UpstreamTransport,
    deadline: Option<Instant>,
) -> Result<(TcpStream, SocketAddr), CallError> {
    if transport.network_proxy.is_none() {
        let families = families_of(transport.families);
        addresses.retain(|address| families.has(address.ip()));
    }
    let is_first = |address: &SocketAddr| addresses.first().is_some_and(|first| first.is_ipv4() == address.is_ipv4());
    let (first, other): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| is_first(address));
    let Some(delay) = transport.fallback_delay.filter(|_| !other.is_empty()) else {
        return connect_sequentially(&addresses, transport, deadline).await;
    };
    let mut preferred = pin!(connect_sequentially(&first, transport, deadline));
    match tokio::time::timeout(delay, &mut preferred).await {
        Ok(Ok(connected)) => return Ok(connected),
        Ok(Err(error)) => return connect_sequentially(&other, transport, deadline).await.map_err(|_| error),
        // Both families run from now on: the first connection wins.
        Err(_) => {}
    }
    let mut fallback = pin!(connect_sequentially(&other, transport, deadline));
    let (ended, is_preferred) = poll_fn(|poll_cx| match preferred.as_mut().poll(poll_cx) {
        Poll::Ready(ended) => Poll::Ready((ended, true)),
        Poll::Pending => fallback.as_mut().poll(poll_cx).map(|ended| (ended, false)),
    })
    .await;
    match (ended, is_preferred) {
        (Ok(connected), _) => Ok(connected),
        // One family has failed, so the other one decides.
        (Err(error), true) => fallback.await.map_err(|_| error),
        (Err(_), false) => preferred.await,
    }
}

/// Tries one address after the other, each for its share of the time until `deadline`. The error is the last one's.
async fn connect_sequentially(
    addresses: &[SocketAddr],
    transport: &UpstreamTransport,
    deadline: Option<Instant>,
) -> Result<(TcpStream, SocketAddr), CallError> {
    let mut error = None;
    let local = transport.local_address;
    let is_usable = |address: &&SocketAddr| local.is_none_or(|local| local.is_ipv4() == address.is_ipv4());
    let mut left = addresses.iter().filter(is_usable).count();
    for &address in addresses.iter().filter(is_usable) {
        let connecting = connect_from(local, address);
        // The last one has the rest of the time, which the caller limits.
        let connected = match deadline.filter(|_| left > 1) {
            Some(deadline) => {
                let time = time_for_one(deadline.saturating_duration_since(Instant::now()), left);
                // Another address follows, whose error replaces this one.
                let ended = tokio::time::timeout(time, connecting).await;
                ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            None => connecting.await,
        };
        match connected {
            Ok(stream) => return Ok((stream, address)),
            Err(failed) => error = Some(connect_error(&failed)),
        }
        left -= 1;
    }
    Err(error.unwrap_or_else(|| CallError::Resolve(CallError::NO_ADDRESS.into())))
}

/// Returns the time for the next of several addresses, so that one that does not answer leaves time for the others: an
/// equal share of `left`, but at least [`ADDRESS_TIME_MIN`], as in Go's dialer.
fn time_for_one(left: Duration, addresses: usize) -> Duration {
    let share = left / u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
    share.max(ADDRESS_TIME_MIN.min(left))
}

async fn connect_from(local: Option<SocketAddr>, address: SocketAddr) -> io::Result<TcpStream> {
    let Some(local) = local else { return TcpStream::connect(address).await };
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // With a fixed port, connections to different upstreams share it, also with one that is in TIME_WAIT.
    socket.set_reuseaddr(local.port() != 0)?;
    socket.bind(local)?;
    socket.connect(address).await
}

fn connect_error(error: &io::Error) -> CallError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => CallError::NoDescriptors,
        _ => CallError::Connect(error.kind()),
    }
}

/// Connects to a Unix socket. The result is a [`TcpStream`] because that type only needs a stream socket: with one
/// type, connections and TLS exist once for both networks. Options of TCP are never set on it.
async fn connect_socket(path: &str) -> Result<TcpStream, CallError> {
    // The abstract namespace: in the kernel's form the name begins with a zero byte.
    let address = match path.strip_prefix('@') {
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(path),
    };
    let address = address.map_err(|error| connect_error(&error))?;
    loop {
        let socket =
            Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).map_err(|error| connect_error(&error))?;
        match socket.connect(&address) {
            Ok(()) => {
                let stream = std::net::TcpStream::from(OwnedFd::from(socket));
                return TcpStream::from_std(stream).map_err(|error| connect_error(&error));
            }
            // unix(7): the socket's queue is full, and no event reports that it no longer is. Programs with few
            // processes, such as php-fpm, get bursts that are longer than their queue. The caller's timeout ends this.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(SOCKET_FULL_PAUSE).await,
            Err(error) => return Err(connect_error(&error)),
        }
    }
}

/// Looks the addresses of `host:port` up, once for all attempts of the worker that need them at the same time: a burst
/// of calls must not fill the queue of lookups.
async fn look_up(
    core: &Rc<Core>,
    address: &str,
    resolver: Option<&Arc<Resolver>>,
) -> Result<Vec<SocketAddr>, CallError> {
    let (address, resolver) = (Box::<str>::from(address), resolver.cloned());
    let begin = || {
        let (core, address, resolver) = (Rc::clone(core), address.clone(), resolver.clone());
        async move {
            match &resolver {
                Some(resolver) => resolve_by(&core, &address, resolver).await,
                None => resolve(&core, &address).await,
            }
        }
    };
    let found = core.lookups.join((address.clone(), resolver.clone()), begin).await;
    found.unwrap_or_else(|| Err(CallError::lookup_lost()))
}

async fn resolve(core: &Rc<Core>, address: &str) -> Result<Vec<SocketAddr>, CallError> {
    let looking = core.worker().resolve(address).map_err(|_| CallError::Busy)?;
    match looking.await {
        Some(Ok(addresses)) => Ok(addresses),
        Some(Err(error)) => Err(CallError::from_lookup(&error)),
        None => Err(CallError::lookup_lost()),
    }
}

/// Queries other DNS servers than the system's.
async fn resolve_by(core: &Rc<Core>, address: &str, resolver: &Arc<Resolver>) -> Result<Vec<SocketAddr>, CallError> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    let question = Question::Addresses { name: host_of(address).into(), families: Families::Both };
    let looking = core.worker().look_up(question, Some(Arc::clone(resolver))).map_err(|_| CallError::Busy)?;
    let records = match looking.await {
        Some(Ok(records)) => records,
        Some(Err(error)) => return Err(CallError::Resolve(error.to_string().into())),
        None => return Err(CallError::lookup_lost()),
    };
    let addresses = records.into_iter().filter_map(|record| match record {
        DnsRecord::Address(ip) => Some(SocketAddr::new(ip, port)),
        DnsRecord::Service { .. } => None,
    });
    Ok(addresses.collect())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn listener(host: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A listener whose queue of connections is full: the kernel drops further attempts, as a broken network does.
    async fn silent(host: &str) -> (Socket, Vec<TcpStream>, SocketAddr) {
        let address: SocketAddr = (host.parse::<std::net::IpAddr>().unwrap(), 0).into();
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(address)).await {
            queued.push(stream);
        }
        (socket, queued, address)
    }

    // RFC 8305 §5: an attempt to an address of the other family begins when the first family has not answered within
    // the delay.
    #[tokio::test]
    async fn the_other_family_after_a_delay() {
        let (_silent, _queued, dead) = silent("::1").await;
        let (_listener, open) = listener("127.0.0.1");
        let transport =
            UpstreamTransport { fallback_delay: Some(Duration::from_millis(1)), ..UpstreamTransport::default() };
        assert_eq!(happy_eyeballs(vec![dead, open], &transport, None).await.unwrap().1, open);
        // The first family may still win.
        let (_listener, first) = listener("::1");
        assert_eq!(happy_eyeballs(vec![first, open], &transport, None).await.unwrap().1, first);
        assert_eq!(happy_eyeballs(vec![dead, open, first], &transport, None).await.unwrap().1, open);
    }

    // Go's dialer: a family that fails needs no delay, and the error is the first family's.
    #[tokio::test]
    async fn a_family_that_fails() {
        let (_listener, open) = listener("127.0.0.1");
        let closed = ["::1", "127.0.0.1"].map(|host| listener(host).1);
        for delay in [None, Some(Duration::from_secs(3600))] {
            let transport = UpstreamTransport { fallback_delay: delay, ..UpstreamTransport::default() };
            assert_eq!(happy_eyeballs(vec![closed[0], open], &transport, None).await.unwrap().1, open);
            let error = happy_eyeballs(closed.to_vec(), &transport, None).await.unwrap_err();
            assert_eq!(error, CallError::Connect(io::ErrorKind::ConnectionRefused));
        }
        let nothing = happy_eyeballs(Vec::new(), &UpstreamTransport::default(), None).await.unwrap_err();
        assert_eq!(nothing, CallError::Resolve(CallError::NO_ADDRESS.into()));
    }

    // Go's dialer: an address that does not answer leaves time for the others.
    #[tokio::test]
    async fn an_address_that_does_not_answer() {
        let (_silent, _queued, dead) = silent("127.0.0.1").await;
        let (_listener, open) = listener("127.0.0.1");
        for delay in [None, Some(Duration::from_secs(3600))] {
            let transport = UpstreamTransport { fallback_delay: delay, ..UpstreamTransport::default() };
            // No time is left, so the share of the first one is over at once.
            let connected = happy_eyeballs(vec![dead, open], &transport, Some(Instant::now())).await;
            assert_eq!(connected.unwrap().1, open);
        }
    }

    // Go, net.partialDeadline: equal shares, but at least two seconds if so much is left.
    #[test]
    fn the_time_for_one_address() {
        for (left, addresses, want) in
            [(12, 1, 12), (12, 3, 4), (12, 12, 2), (3, 2, 2), (1, 2, 1), (1, 1, 1), (0, 3, 0)]
        {
            assert_eq!(time_for_one(Duration::from_secs(left), addresses).as_secs(), want, "{left} s for {addresses}");
        }
    }

    // Caddy, network addresses: `tcp4/` and `tcp6/` select the addresses of a name.
    #[tokio::test]
    async fn families() {
        let (_listener, open) = listener("127.0.0.1");
        let closed = listener("::1").1;
        let of = |families| UpstreamTransport { families, ..UpstreamTransport::default() };
        assert_eq!(happy_eyeballs(vec![closed, open], &of(Families::Ipv4), None).await.unwrap().1, open);
        let error = happy_eyeballs(vec![closed, open], &of(Families::Ipv6), None).await.unwrap_err();
        assert_eq!(error, CallError::Connect(io::ErrorKind::ConnectionRefused));
        let error = happy_eyeballs(vec![open], &of(Families::Ipv6), None).await.unwrap_err();
        assert_eq!(error, CallError::Resolve(CallError::NO_ADDRESS.into()));
    }

    // Caddy, `local_address`: connections come from it; an address of the other family is of no use.
    #[tokio::test]
    async fn a_local_address() {
        let (listener, open) = listener("127.0.0.1");
        let from =
            |local: &str| UpstreamTransport { local_address: local.parse().ok(), ..UpstreamTransport::default() };
        happy_eyeballs(vec![open], &from("127.0.0.9:0"), None).await.unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), std::net::IpAddr::from([127, 0, 0, 9]));
        assert!(happy_eyeballs(vec![open], &from("[::1]:0"), None).await.is_err());
        // No address of this machine.
        let error = happy_eyeballs(vec![open], &from("192.0.2.1:0"), None).await.unwrap_err();
        assert_eq!(error, CallError::Connect(io::ErrorKind::AddrNotAvailable));
    }
}
