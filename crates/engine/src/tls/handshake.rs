//! From a socket to a connection over TLS, or to a refusal: one task, which ends when the connection's own begins.
//!
//! ```text
//!  ClientHello ──► policy ──► certificate ──► rustls's handshake ──► its keys ──► Connection
//!       │             │            │                 │
//!       └─ plain HTTP └─ none      └─ none           └─ fault  ──► an answer or an alert, then the close
//! ```
//! rustls's `Acceptor` reads the ClientHello first, since the configuration depends on it; the same octets then go to the
//! connection, whose buffers are ours. The listener's limit for heads holds for the whole of it.
//!
//! A full TLS 1.3 handshake costs 180 µs of processor time with an ECDSA P-256 certificate and 460 µs with RSA-2048, accepting
//! and a first request included; longer RSA keys take a multiple. Where the key is RSA, the step that signs goes to the
//! computing pool. Others stay on the worker, although a handler might not take that long: the pool's threads give way to busy
//! workers, who would then take no new connections.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};

use causeway_pipeline::TlsFacts;
use causeway_pipeline::Worker as _;
use futures_channel::oneshot;
use progress::{Stamp, stage};
use rustls::server::{Accepted, Acceptor, UnbufferedServerConnection};
use rustls::{HandshakeKind, SignatureAlgorithm};
use tokio::net::TcpStream;

use super::inbound::Inbound;
use super::plan::TlsPlan;
use super::record::alert;
use super::session::Session;
use super::stream::Keys;
use super::{TlsStream, names};
use crate::clock;
use crate::drive::Known;
use crate::listener::Listener;
use crate::timers::TimerKey;
use crate::transport::Transport;
use crate::worker::Core;

/// What Go's server tells a client that does not speak TLS.
const PLAIN_HTTP: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// How requests in the clear begin, as far as a record's header is long.
const PLAIN_STARTS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
/// Octets that a refused peer may still send before it is closed in its face.
const LINGER_OCTETS_MAX: usize = 64 * 1024;

type ServerSession = Session<UnbufferedServerConnection>;

/// A connection whose handshake is over.
pub(crate) struct Secured {
    pub(crate) stream: TlsStream,
    pub(crate) facts: TlsFacts,
    pub(crate) known: Known,
}

/// Starts a handshake's task, on a connection that the profiler knows by a stamp. `carry` takes the connection over, which counts as the worker's until then.
pub(crate) fn begin(
    core: &Rc<Core>,
    listener: &Rc<Listener>,
    plan: Arc<TlsPlan>,
    (tcp, stamp): (TcpStream, Stamp),
    ends: (SocketAddr, SocketAddr),
    carry: impl FnOnce(Secured) + 'static,
) {
    let timeouts = listener.plan().timeouts;
    let handshake = Handshake {
        core: Rc::clone(core),
        listener: Rc::clone(listener),
        plan,
        tcp: RefCell::new(Some(tcp)),
        peer: ends.0,
        local: ends.1,
        deadline: Cell::new(clock::now() + timeouts.head),
        timer: Cell::new(TimerKey::UNFILED),
        is_silent: Cell::new(true),
        is_heard: Cell::new(false),
        is_counted: Cell::new(true),
        stamp: Cell::new(stamp),
        is_timed: Cell::default(),
    };
    tokio::task::spawn_local(measured(async move {
        match handshake.run().await {
            Ok((session, name)) => handshake.hand_over(session, name, carry),
            Err(Refusal::Silent) => {}
            Err(Refusal::Told(octets)) => {
                handshake.deadline.set(clock::now() + timeouts.linger);
                handshake.tell(&octets).await;
            }
        }
    }));
}

/// The same, as the profiler's stage.
async fn measured(work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    poll_fn(|task| {
        let _span = stage::HANDSHAKE.enter();
        work.as_mut().poll(task)
    })
    .await;
}

/// Why there is no connection.
enum Refusal {
    /// The peer is gone, late, or not to be answered.
    Silent,
    /// The peer is told this.
    Told(Vec<u8>),
}

impl Refusal {
    /// An alert before there are keys.
    fn alert(description: u8) -> Self {
        Self::Told(vec![21, 3, 3, 0, 2, 2, description])
    }
}

struct Handshake {
    core: Rc<Core>,
    listener: Rc<Listener>,
    plan: Arc<TlsPlan>,
    /// There until it is handed over.
    tcp: RefCell<Option<TcpStream>>,
    peer: SocketAddr,
    local: SocketAddr,
    deadline: Cell<Instant>,
    timer: Cell<TimerKey>,
    /// The peer has not sent an octet.
    is_silent: Cell<bool>,
    /// The listener ends, and the reactor was looked at since.
    is_heard: Cell<bool>,
    /// The connection is this task's to count off.
    is_counted: Cell<bool>,
    stamp: Cell<Stamp>,
    /// The kernel keeps the time of what comes.
    is_timed: Cell<bool>,
}

impl Handshake {
    async fn run(&self) -> Result<(ServerSession, Option<Box<str>>), Refusal> {
        let mut inbound = Inbound::default();
        let accepted = self.client_hello(&mut inbound).await?;
        let hello = accepted.client_hello();
        let name = hello.server_name().map(str::to_ascii_lowercase);
        if name.as_ref().is_some_and(|name| name.ends_with('.')) {
            // RFC 6066 §3: a name has no dot behind it. Policies would not know it, where certificates do: a client could
            // get round the policy that asks for its certificate. Go refuses it likewise.
            tracing::debug!(peer = %self.peer, server_name = ?name, "a server name with a dot behind it");
            return Err(Refusal::alert(alert::DECODE_ERROR));
        }
        let policy = self.plan.choose(name.as_deref(), self.peer, self.local).ok_or_else(|| {
            tracing::debug!(peer = %self.peer, server_name = ?name, "no TLS policy for a ClientHello");
            // What Go sends when it is given no configuration.
            Refusal::alert(alert::INTERNAL_ERROR)
        })?;
        if policy.drops() {
            return Err(Refusal::Silent);
        }
        let certificate = self.plan.certificate(policy, name.as_deref(), self.local).ok_or_else(|| {
            tracing::debug!(peer = %self.peer, server_name = ?name, "no certificate for a ClientHello");
            Refusal::alert(alert::INTERNAL_ERROR)
        })?;
        let mut is_slow = certificate.key.algorithm() == SignatureAlgorithm::RSA;
        let config = policy.config(&hello, certificate);
        drop(accepted);
        let tls = UnbufferedServerConnection::new(config).map_err(|_| Refusal::alert(alert::INTERNAL_ERROR))?;
        let mut session = Session::new(tls, inbound);
        let mut flights = 0;
        loop {
            let result;
            if is_slow {
                (session, result) = self.elsewhere(session).await?;
            } else {
                result = session.advance();
            }
            if let Err(error) = result {
                tracing::debug!(peer = %self.peer, %error, "a TLS handshake failed");
                return Err(Refusal::Told(session.out));
            }
            // Our first flight is what is signed; a HelloRetryRequest may come before it.
            flights += u8::from(!session.out.is_empty() && flights < 2);
            let is_retried = session.tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
            is_slow &= flights < 1 + u8::from(is_retried);
            self.send(&session.out).await?;
            session.out.clear();
            if !session.tls.is_handshaking() {
                return Ok((session, name.map(String::into_boxed_str)));
            }
            self.fill(&mut session.inbound).await?;
        }
    }

    /// Reads until the ClientHello is whole. Its octets stay.
    async fn client_hello(&self, inbound: &mut Inbound) -> Result<Accepted, Refusal> {
        let mut acceptor = Acceptor::default();
        let mut fed = 0;
        loop {
            self.fill(inbound).await?;
            self.is_silent.set(false);
            let octets = inbound.sealed();
            if octets.first_chunk().is_some_and(|start| PLAIN_STARTS.contains(&start)) {
                return Err(Refusal::Told(PLAIN_HTTP.to_vec()));
            }
            let mut fresh = &octets[fed..];
            fed = octets.len();
            while !fresh.is_empty() {
                let read = acceptor.read_tls(&mut fresh);
                match acceptor.accept() {
                    Ok(Some(accepted)) => return Ok(accepted),
                    Ok(None) if matches!(read, Ok(1..)) => {}
                    Ok(None) => return Err(Refusal::alert(alert::DECODE_ERROR)),
                    Err((error, mut alert)) => {
                        tracing::debug!(peer = %self.peer, %error, "not a ClientHello");
                        let mut octets = Vec::new();
                        // Into a vector it cannot fail.
                        let _ = alert.write_all(&mut octets);
                        return Err(Refusal::Told(octets));
                    }
                }
            }
        }
    }

    /// Takes a step on the computing pool. When that is full, the machine is busier than it can be: no more begins.
    async fn elsewhere(&self, session: ServerSession) -> Result<(ServerSession, Result<(), rustls::Error>), Refusal> {
        let (send, mut stepped) = oneshot::channel();
        let job = move || {
            // The task may have timed out meanwhile: its place in the queue was all that it cost.
            if send.is_canceled() {
                return;
            }
            let mut session = session;
            let result = {
                let _span = stage::HANDSHAKE.enter();
                session.advance()
            };
            let mut stamp = Stamp::default();
            progress::before_send(&mut stamp);
            let _ = send.send((session, result, stamp));
        };
        self.core.compute(Box::new(job)).map_err(|_| Refusal::alert(alert::INTERNAL_ERROR))?;
        let stepped = self.wait(|_, task| Pin::new(&mut stepped).poll(task).map_err(|_| io::ErrorKind::Other.into()));
        let (session, result, stamp) = stepped.await?;
        progress::after_receive(stamp, Duration::ZERO);
        Ok((session, result))
    }

    /// Reads more.
    async fn fill(&self, inbound: &mut Inbound) -> Result<(), Refusal> {
        let read = self.wait(|tcp, task| {
            let is_timed = progress::is_heard();
            if self.is_timed.replace(is_timed) != is_timed {
                tcp.keep_times(is_timed);
            }
            let read = inbound.poll_fill(tcp, &self.core.blocks, task);
            if read.is_pending() {
                inbound.rest();
            }
            read
        });
        let received = read.await?;
        // Nothing: the peer's end, or a handshake that is longer than any.
        if received.octets == 0 {
            return Err(Refusal::Silent);
        }
        self.stamped(|stamp| progress::arrived(stamp, received.at));
        Ok(())
    }

    fn stamped(&self, hook: impl FnOnce(&mut Stamp)) {
        let mut stamp = self.stamp.get();
        hook(&mut stamp);
        self.stamp.set(stamp);
    }

    async fn send(&self, mut octets: &[u8]) -> Result<(), Refusal> {
        if !octets.is_empty() {
            self.stamped(progress::written);
        }
        while !octets.is_empty() {
            let sent = self.wait(|tcp, task| Transport::poll_write(tcp, task, &[IoSlice::new(octets)])).await?;
            octets = &octets[sent..];
        }
        Ok(())
    }

    /// The last that the peer hears. Then its octets are read for a while: closing while some are unread would send a reset,
    /// which may overtake it.
    async fn tell(&self, octets: &[u8]) {
        let mut left = LINGER_OCTETS_MAX;
        let told = async {
            self.send(octets).await?;
            self.wait(Transport::poll_shutdown).await?;
            let mut room = self.core.blocks.take();
            while left > 0 {
                let read = self.wait(|tcp, task| Transport::poll_read(tcp, task, room.as_mut_slice())).await?;
                left = if read.octets == 0 { 0 } else { left.saturating_sub(read.octets) };
            }
            Ok::<_, Refusal>(())
        };
        // It heard it or not.
        let _ = told.await;
    }

    /// Waits for the socket, or another's work, within the deadline.
    async fn wait<T>(
        &self,
        mut poll: impl FnMut(&mut TcpStream, &mut Task<'_>) -> Poll<io::Result<T>>,
    ) -> Result<T, Refusal> {
        poll_fn(|task| {
            clock::polled();
            if self.timer.get() == TimerKey::UNFILED {
                self.timer.set(self.core.add_timer(task.waker().clone()));
            }
            let mut tcp = self.tcp.borrow_mut();
            if let Poll::Ready(result) = poll(tcp.as_mut().expect("there until it is handed over"), task) {
                return Poll::Ready(result.map_err(|_| Refusal::Silent));
            }
            if self.listener.is_ending() && self.is_silent.get() {
                // Whether octets arrived before is only known once the reactor was looked at again.
                if self.is_heard.replace(true) {
                    return Poll::Ready(Err(Refusal::Silent));
                }
                let _ = pin!(tokio::task::yield_now()).poll(task);
            }
            if clock::now() >= self.deadline.get() {
                return Poll::Ready(Err(Refusal::Silent));
            }
            self.core.wheel.borrow_mut().set(self.timer.get(), self.deadline.get());
            Poll::Pending
        })
        .await
    }

    /// The connection's own task begins.
    fn hand_over(self, session: ServerSession, name: Option<Box<str>>, carry: impl FnOnce(Secured)) {
        let Session { tls, inbound, is_over, .. } = session;
        let facts = TlsFacts {
            version: names::version_name(tls.protocol_version()),
            cipher_suite: tls.negotiated_cipher_suite().map_or("", names::suite_name),
            protocol: tls.alpn_protocol().and_then(names::protocol).unwrap_or(""),
            server_name: name,
            resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
            client_certificate: tls.peer_certificates().and_then(|chain| Some(chain.first()?.as_ref().into())),
        };
        let Ok((secrets, keys)) = tls.dangerous_into_kernel_connection() else {
            tracing::error!(peer = %self.peer, "a finished TLS handshake gave no keys");
            return;
        };
        let core = Rc::clone(&self.core);
        let Some(tcp) = self.tcp.take() else { return };
        match TlsStream::new(core, tcp, secrets, Keys::Server(keys), inbound, is_over) {
            Some(stream) => {
                self.is_counted.set(false);
                let known = Known { stamp: self.stamp.get(), is_timed: self.is_timed.get() };
                carry(Secured { stream, facts, known });
            }
            None => tracing::error!(peer = %self.peer, "a finished TLS handshake gave keys of another suite"),
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if self.timer.get() != TimerKey::UNFILED {
            self.core.wheel.borrow_mut().remove(self.timer.get());
        }
        if self.is_counted.get() {
            self.core.connection_ended();
        }
    }
}
