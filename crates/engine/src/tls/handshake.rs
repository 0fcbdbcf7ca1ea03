//! From a socket to a connection over TLS, or to a refusal: one task, which ends when the connection's own task begins.
//!
//! ```text
//!  ClientHello ──► policy ──► certificate ──► rustls's handshake ──► its keys ──► ServerConnection
//!       │             │            │                 │
//!       └─ plain HTTP └─ no match  └─ not found      └─ fault  ──► a response or an alert, then the close
//! ```
//! rustls's `Acceptor` parses the ClientHello first, since the configuration depends on it; then the rustls connection
//! reads these bytes again, from our own buffer. The listener's head timeout covers the whole handshake; it starts
//! again after a certificate was obtained from an authority, which may take [`OBTAIN_TIMEOUT`].
//!
//! A full TLS 1.3 handshake takes 180 µs of CPU time with an ECDSA P-256 certificate and 460 µs with RSA-2048,
//! including the accept and a first request; longer RSA keys take a multiple. With an RSA key, a thread of the
//! signature pool runs the step that signs. Other keys are used on the worker, although they exceed a handler's usual
//! time: the pool's threads run at a lower priority than busy workers, so offloaded handshakes would delay new
//! connections under load.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};
use std::time::{Duration, Instant};

use causeway_pipeline::worker::{Sleep, Work, WorkKind, offload};
use causeway_pipeline::{Endpoints, TlsFacts};
use progress::{Stamp, stage};
use rustls::server::{Accepted, Acceptor, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::{Error, HandshakeKind, PeerIncompatible, ServerConfig, SignatureAlgorithm};
use tokio::net::TcpStream;

use super::plan::{CHALLENGE_ALPN, ChallengeCertificate, TlsPlan, challenge_config};
use super::record::ALERT_BYTES;
use super::record_buffer::RecordBuffer;
use super::records::{Keys, Records};
use super::session::Session;
use super::write_secret::WriteSecret;
use super::{ObtainedCertificate, TlsStream, alert, client_hello, names, redirect};
use crate::clock;
use crate::drive::ProfilerState;
use crate::listener::Listener;
use crate::timers::TimerKey;
use crate::transport::{PRESENCE_INTERVAL, Presence, Transport};
use crate::worker::Core;

/// The response of Go's server to plain HTTP on a TLS port.
const PLAIN_HTTP: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The first bytes of plain HTTP requests, of a record header's length.
const PLAIN_STARTS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
/// Returns whether a client's first bytes are a request in plain HTTP.
fn is_plain_http(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|start| PLAIN_STARTS.contains(&start))
}

/// Maximum number of bytes that are read from a refused peer before the close.
const LINGER_BYTES_MAX: usize = 64 * 1024;
/// How long a handshake waits while its certificate is obtained
/// ([`Certificates::obtain`](super::Certificates::obtain)), instead of the listener's head timeout.
const OBTAIN_TIMEOUT: Duration = Duration::from_secs(60);

type ServerSession = Session<UnbufferedServerConnection>;

/// A connection after its handshake.
pub(crate) struct Secured {
    pub(crate) stream: TlsStream,
    pub(crate) facts: TlsFacts,
    pub(crate) profiler: ProfilerState,
}

/// Spawns the task of a handshake, whose connection has a profiler stamp. On success `start` takes the connection over.
/// Until then the handshake holds the connection's place in the worker's count.
pub(crate) fn spawn_handshake(
    core: &Rc<Core>,
    listener: &Rc<Listener>,
    plan: Arc<TlsPlan>,
    (tcp, stamp): (TcpStream, Stamp),
    endpoints: Endpoints,
    start: impl FnOnce(Secured) + 'static,
) {
    let timeouts = listener.plan().timeouts;
    let handshake = Handshake {
        core: Rc::clone(core),
        listener: Rc::clone(listener),
        plan,
        tcp: RefCell::new(Some(tcp)),
        endpoints,
        deadline: Cell::new(clock::now() + timeouts.head),
        timer: Cell::new(TimerKey::UNFILED),
        is_silent: Cell::new(true),
        has_polled_since_end: Cell::new(false),
        is_counted: Cell::new(true),
        stamp: Cell::new(stamp),
        is_timed: Cell::default(),
    };
    tokio::task::spawn_local(in_handshake_stage(async move {
        match handshake.run().await {
            Ok((session, name)) if handshake.is_served(&session) => handshake.hand_over(session, name, start),
            Ok((session, _)) => {
                handshake.deadline.set(clock::now() + timeouts.linger);
                handshake.close(session).await;
            }
            Err(Refusal::Close) => {}
            Err(Refusal::Send(bytes)) => {
                handshake.deadline.set(clock::now() + timeouts.linger);
                handshake.send_and_linger(&bytes).await;
            }
        }
    }));
}

/// Runs a handshake within the profiler's `HANDSHAKE` stage.
async fn in_handshake_stage(work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    poll_fn(|poll_cx| {
        let _span = stage::HANDSHAKE.enter();
        work.as_mut().poll(poll_cx)
    })
    .await;
}

/// The end of a failed handshake.
enum Refusal {
    /// Close without a message: the peer has closed or timed out, or the policy drops it.
    Close,
    /// Send these bytes, then close.
    Send(Vec<u8>),
}

impl Refusal {
    /// Refuses with an unprotected alert.
    fn alert(description: u8) -> Self {
        Self::Send(alert::in_the_clear(description).to_vec())
    }
}

/// The task's state, with interior mutability so that the handshake's futures can share it.
struct Handshake {
    core: Rc<Core>,
    listener: Rc<Listener>,
    plan: Arc<TlsPlan>,
    /// `Some` until [`hand_over`](Self::hand_over).
    tcp: RefCell<Option<TcpStream>>,
    endpoints: Endpoints,
    deadline: Cell<Instant>,
    timer: Cell<TimerKey>,
    /// The peer has not sent a byte yet.
    is_silent: Cell<bool>,
    /// The reactor has run once since the listener began to end.
    has_polled_since_end: Cell<bool>,
    /// Dropping this must decrement the worker's connection count.
    is_counted: Cell<bool>,
    stamp: Cell<Stamp>,
    /// The kernel timestamps received bytes, for the profiler.
    is_timed: Cell<bool>,
}

impl Handshake {
    /// Performs the handshake. Returns rustls's state after it, and the server name in lower case.
    async fn run(&self) -> Result<(ServerSession, Option<Box<str>>), Refusal> {
        let mut inbound = RecordBuffer::default();
        let accepted = self.client_hello(&mut inbound).await?;
        let hello = accepted.client_hello();
        let name = match hello.server_name() {
            Some(name) => Some(name.to_ascii_lowercase()),
            // As in Go, an address is a server name.
            None => client_hello::server_address(inbound.sealed()).map(|address| address.to_string()),
        };
        if name.as_ref().is_some_and(|name| name.ends_with('.')) {
            // RFC 6066 §3: a server name has no trailing dot. Certificate lookup would ignore the dot where policy
            // matching does not, so a client could bypass the policy that requires its certificate. Go refuses such
            // names too.
            tracing::debug!(peer = %self.endpoints, server_name = name.as_deref(), "refusing a server name with a trailing dot");
            return Err(Refusal::alert(alert::DECODE_ERROR));
        }
        let secret = Arc::new(WriteSecret::server());
        let challenge = match self.plan.challenge(&hello, name.as_deref()) {
            Some(ChallengeCertificate::Open(certificate)) => Some(certificate),
            Some(ChallengeCertificate::Sought(sought)) => self.await_certificate(&mut inbound, sought).await?,
            None => None,
        };
        if let Some(config) = challenge.and_then(|certificate| challenge_config(certificate, &secret)) {
            drop(accepted);
            return self.finish_handshake(config, inbound, secret, false).await.map(|session| (session, None));
        }
        let policy = self.plan.choose(name.as_deref(), &self.endpoints).ok_or_else(|| {
            tracing::debug!(peer = %self.endpoints, server_name = name.as_deref(), "no TLS policy matches the ClientHello");
            // Go's alert when it has no configuration for a client.
            Refusal::alert(alert::INTERNAL_ERROR)
        })?;
        if policy.drops() {
            return Err(Refusal::Close);
        }
        if policy.has_no_protocol(&hello) {
            tracing::debug!(peer = %self.endpoints, server_name = name.as_deref(), "the client offers no served ALPN protocol");
            return Err(Refusal::alert(alert::NO_APPLICATION_PROTOCOL));
        }
        let mut certificate = self.plan.certificate(policy, &hello, name.as_deref(), &self.endpoints);
        if certificate.is_none()
            && let Some(obtained) = self.plan.obtain(policy, &hello, name.as_deref(), &self.endpoints)
        {
            // An authority verifies the name meanwhile, with connections to this server.
            self.deadline.set(clock::now() + OBTAIN_TIMEOUT);
            certificate = self.await_certificate(&mut inbound, obtained).await?;
            self.deadline.set(clock::now() + self.listener.plan().timeouts.head);
        }
        let certificate =
            certificate.or_else(|| self.plan.fallback(policy, &hello, name.as_deref())).ok_or_else(|| {
                tracing::debug!(peer = %self.endpoints, server_name = name.as_deref(), "no certificate for the server name");
                Refusal::alert(alert::INTERNAL_ERROR)
            })?;
        // An RSA signature would delay the worker's other connections.
        let is_slow = certificate.key.algorithm() == SignatureAlgorithm::RSA;
        let config = policy.config(&hello, certificate, &secret);
        drop(accepted);
        let session = self.finish_handshake(config, inbound, secret, is_slow).await?;
        Ok((session, name.map(String::into_boxed_str)))
    }

    /// Waits for a certificate, without a block for the ClientHello. Refuses a client that is gone: the wait may take
    /// long, and reads nothing.
    async fn await_certificate(
        &self,
        inbound: &mut RecordBuffer,
        mut sought: ObtainedCertificate,
    ) -> Result<Option<Arc<CertifiedKey>>, Refusal> {
        let bytes = inbound.take_sealed();
        let worker = self.core.worker();
        let look_later = || Some(Sleep::until(Rc::clone(&worker), clock::now() + PRESENCE_INTERVAL));
        let mut look = look_later();
        let found = self.wait(|tcp, poll_cx| {
            while Sleep::is_over(&mut look, poll_cx) {
                // A client that has ended its side cannot finish the handshake.
                if !matches!(tcp.presence(), Presence::Open) {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                look = look_later();
            }
            sought.as_mut().poll(poll_cx).map(Ok)
        });
        let found = found.await?;
        inbound.keep_sealed(&bytes, &self.core.memory.blocks);
        Ok(found)
    }

    /// Performs the handshake after the ClientHello. `is_slow`: signatures run on a thread of the signature pool.
    async fn finish_handshake(
        &self,
        config: Arc<ServerConfig>,
        inbound: RecordBuffer,
        secret: Arc<WriteSecret>,
        mut is_slow: bool,
    ) -> Result<ServerSession, Refusal> {
        let tls = UnbufferedServerConnection::new(config).map_err(|_| Refusal::alert(alert::INTERNAL_ERROR))?;
        let mut session = Session::new(tls, inbound, secret);
        let mut flights = 0;
        loop {
            let result;
            if is_slow {
                (session, result) = self.advance_on_pool(session).await?;
            } else {
                result = session.advance();
            }
            if let Err(error) = result {
                tracing::debug!(peer = %self.endpoints, %error, "TLS handshake failed");
                return Err(Refusal::Send(session.out));
            }
            // Only our first flight needs a signature, so later steps stay on the worker. After a HelloRetryRequest,
            // which counts as a flight here, the signature is in the second.
            flights += u8::from(!session.out.is_empty() && flights < 2);
            let is_retried = session.tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
            is_slow &= flights < 1 + u8::from(is_retried);
            self.send(&session.out).await?;
            session.out.clear();
            if !session.tls.is_handshaking() {
                return Ok(session);
            }
            if session.inbound.is_full() {
                session.refuse(alert::INTERNAL_ERROR);
                return Err(Refusal::Send(session.out));
            }
            self.fill(&mut session.inbound).await?;
        }
    }

    /// Reads until the ClientHello is complete. Its bytes stay in `inbound` for the rustls connection.
    async fn client_hello(&self, inbound: &mut RecordBuffer) -> Result<Accepted, Refusal> {
        let mut acceptor = Acceptor::default();
        let mut fed = 0;
        loop {
            if inbound.is_full() {
                return Err(self.refuse_overlong(inbound.sealed()));
            }
            self.fill(inbound).await?;
            self.is_silent.set(false);
            let bytes = inbound.sealed();
            if is_plain_http(bytes) {
                match self.answer_plain_http(bytes) {
                    Some(refusal) => return Err(refusal),
                    // The rest of the head follows.
                    None => continue,
                }
            }
            // The acceptor has a buffer of its own, so it gets only the new bytes.
            let fresh = &bytes[fed..];
            fed = bytes.len();
            if let Some(accepted) = self.feed_acceptor(&mut acceptor, fresh, bytes)? {
                return Ok(accepted);
            }
        }
    }

    /// Refuses bytes that have filled the buffer without being a whole ClientHello.
    fn refuse_overlong(&self, bytes: &[u8]) -> Refusal {
        match (is_plain_http(bytes), self.listener.plan().redirect_bytes_max) {
            (true, Some(_)) => Refusal::Close,
            (true, None) => Refusal::Send(PLAIN_HTTP.to_vec()),
            (false, _) => Refusal::alert(alert::INTERNAL_ERROR),
        }
    }

    /// Returns the refusal of a client that speaks HTTP without TLS; `None` while the head of a request to redirect is
    /// incomplete.
    fn answer_plain_http(&self, bytes: &[u8]) -> Option<Refusal> {
        match self.listener.plan().redirect_bytes_max {
            Some(max) if redirect::is_cut(bytes, max) => None,
            // Caddy, http_redirect: a longer head than that gets no response.
            Some(max) if redirect::is_too_long(bytes, max) => Some(Refusal::Close),
            Some(max) => Some(Refusal::Send(redirect::answer(bytes, max).unwrap_or(PLAIN_HTTP.to_vec()))),
            None => Some(Refusal::Send(PLAIN_HTTP.to_vec())),
        }
    }

    /// Gives the acceptor the `fresh` ones of all `bytes` of the client. Returns `None` while the ClientHello is
    /// incomplete.
    fn feed_acceptor(
        &self,
        acceptor: &mut Acceptor,
        mut fresh: &[u8],
        bytes: &[u8],
    ) -> Result<Option<Accepted>, Refusal> {
        while !fresh.is_empty() {
            let read = acceptor.read_tls(&mut fresh);
            match acceptor.accept() {
                Ok(Some(accepted)) => return Ok(Some(accepted)),
                // The acceptor may take a part of the bytes at a time. Without progress the ClientHello is too long.
                Ok(None) if matches!(read, Ok(1..)) => {}
                Ok(None) => return Err(Refusal::alert(alert::DECODE_ERROR)),
                // rustls looks for the extension before the version. Clients without TLS 1.2 need not send it, and RFC
                // 5246 Appendix E.1 has an alert for them.
                Err((Error::PeerIncompatible(PeerIncompatible::SignatureAlgorithmsExtensionRequired), _))
                    if client_hello::is_before_tls12(bytes) =>
                {
                    tracing::debug!(peer = %self.endpoints, "the client offers no version from TLS 1.2 on");
                    return Err(Refusal::alert(alert::PROTOCOL_VERSION));
                }
                Err((error, mut answer)) => {
                    tracing::debug!(peer = %self.endpoints, %error, "invalid ClientHello");
                    let mut bytes = Vec::new();
                    // Writing to a vector cannot fail.
                    let _ = answer.write_all(&mut bytes);
                    if bytes.is_empty()
                        && let Some(description) = alert::description(&error)
                    {
                        bytes.extend(alert::in_the_clear(description));
                    }
                    return Err(Refusal::Send(bytes));
                }
            }
        }
        Ok(None)
    }

    /// Runs a step on a thread of the signature pool. Refuses the handshake when the pool's queue is full.
    async fn advance_on_pool(&self, session: ServerSession) -> Result<(ServerSession, Result<(), Error>), Refusal> {
        let mut session = session;
        let job = move || {
            let _span = stage::HANDSHAKE.enter();
            let result = session.advance();
            (session, result)
        };
        // Dropping `stepped`, at the deadline or when the task ends, abandons the job.
        let mut stepped = offload(&*self.core.worker(), Work::of(WorkKind::Signature), job)
            .map_err(|_| Refusal::alert(alert::INTERNAL_ERROR))?;
        self.wait(|_, poll_cx| {
            Pin::new(&mut stepped).poll(poll_cx).map(|stepped| stepped.ok_or(io::ErrorKind::Other.into()))
        })
        .await
    }

    /// Reads at least one byte into `inbound`. The peer's end is a refusal.
    async fn fill(&self, inbound: &mut RecordBuffer) -> Result<(), Refusal> {
        let read = self.wait(|tcp, poll_cx| {
            // The profiler may start or stop during a handshake, so the socket's option follows its state.
            let is_timed = progress::is_policy_called();
            if self.is_timed.replace(is_timed) != is_timed {
                tcp.set_timestamps(is_timed);
            }
            let read = inbound.poll_fill(tcp, &self.core.memory.blocks, poll_cx);
            if read.is_pending() {
                inbound.release_block();
            }
            read
        });
        let received = read.await?;
        if received.bytes == 0 {
            return Err(Refusal::Close);
        }
        self.stamped(|stamp| progress::arrived(stamp, received.at));
        Ok(())
    }

    /// Passes the stamp to a hook of the profiler and stores it back.
    fn stamped(&self, hook: impl FnOnce(&mut Stamp)) {
        let mut stamp = self.stamp.get();
        hook(&mut stamp);
        self.stamp.set(stamp);
    }

    async fn send(&self, mut bytes: &[u8]) -> Result<(), Refusal> {
        if !bytes.is_empty() {
            self.stamped(progress::before_write);
        }
        while !bytes.is_empty() {
            let sent = self.wait(|tcp, poll_cx| Transport::poll_write(tcp, poll_cx, &[IoSlice::new(bytes)])).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Sends the final bytes, then reads and discards input within the deadline and [`LINGER_BYTES_MAX`]. A close with
    /// unread input makes the kernel send a reset, which can destroy the final bytes before the peer reads them.
    async fn send_and_linger(&self, bytes: &[u8]) {
        let mut left = LINGER_BYTES_MAX;
        let told = async {
            self.send(bytes).await?;
            self.wait(Transport::poll_shutdown).await?;
            let mut room = self.core.memory.blocks.take();
            while left > 0 {
                let read = self.wait(|tcp, poll_cx| Transport::poll_read(tcp, poll_cx, room.as_mut_slice())).await?;
                left = if read.bytes == 0 { 0 } else { left.saturating_sub(read.bytes) };
            }
            Ok::<_, Refusal>(())
        };
        // Best effort: the connection closes in either case.
        let _ = told.await;
    }

    /// Waits for `poll`, a socket operation or an offloaded step, until the deadline. The wait also ends when the
    /// listener ends before the peer has sent a byte; while another process takes over, that is after the time for idle
    /// connections.
    async fn wait<T>(
        &self,
        mut poll: impl FnMut(&mut TcpStream, &mut PollContext<'_>) -> Poll<io::Result<T>>,
    ) -> Result<T, Refusal> {
        poll_fn(|poll_cx| {
            clock::polled();
            if self.timer.get() == TimerKey::UNFILED {
                self.timer.set(self.core.timers.add(poll_cx.waker().clone()));
            }
            let mut tcp = self.tcp.borrow_mut();
            if let Poll::Ready(result) = poll(tcp.as_mut().expect("`Some` until `hand_over`"), poll_cx) {
                return Poll::Ready(result.map_err(|_| Refusal::Close));
            }
            // A process that another one replaces has time for a ClientHello that is on its way.
            let idle_until = self.core.lifecycle.idle_until().filter(|until| clock::now() < *until);
            if self.listener.is_ending() && self.is_silent.get() && idle_until.is_none() {
                // Bytes may have arrived before the listener ended, and only another run of the reactor would show
                // them.
                if self.has_polled_since_end.replace(true) {
                    return Poll::Ready(Err(Refusal::Close));
                }
                let _ = pin!(tokio::task::yield_now()).poll(poll_cx);
            }
            if clock::now() >= self.deadline.get() {
                return Poll::Ready(Err(Refusal::Close));
            }
            let deadline = self.deadline.get();
            self.core.timers.set(self.timer.get(), idle_until.map_or(deadline, |until| until.min(deadline)));
            Poll::Pending
        })
        .await
    }

    /// Returns whether the listener serves the negotiated version of HTTP. Without ALPN that is HTTP/1, which a
    /// listener may exclude. After the handshake of a TLS-ALPN-01 challenge nothing is served.
    fn is_served(&self, session: &ServerSession) -> bool {
        let protocols = self.listener.plan().http.protocols;
        match session.tls.alpn_protocol() {
            Some(b"h2") => protocols.http2,
            Some(CHALLENGE_ALPN) => false,
            _ => protocols.http1,
        }
    }

    /// Ends a connection whose protocol is not served, as Go's server does: close_notify follows the finished
    /// handshake.
    async fn close(&self, session: ServerSession) {
        tracing::debug!(peer = %self.endpoints, "closing after the handshake: the negotiated protocol is not served");
        let Ok((secrets, keys)) = session.tls.dangerous_into_kernel_connection() else { return };
        let mut record = [0; ALERT_BYTES];
        if let Some(mut records) = Records::new(secrets, Keys::Server(keys))
            && let Ok(len) = records.seal_alert(alert::WARNING, alert::CLOSE_NOTIFY, &mut record)
        {
            self.send_and_linger(&record[..len]).await;
        }
    }

    /// Builds the transport and passes the connection to `start`, which starts its own task.
    fn hand_over(self, session: ServerSession, name: Option<Box<str>>, start: impl FnOnce(Secured)) {
        let Session { tls, inbound, .. } = session;
        // Go's server gets the whole chain too, and the remote admin API grants permissions by its authorities.
        let chain = tls.peer_certificates().unwrap_or_default();
        let facts = TlsFacts {
            version: names::version_name(tls.protocol_version()),
            cipher_suite: tls.negotiated_cipher_suite().map_or("", names::suite_name),
            protocol: tls.alpn_protocol().and_then(names::protocol).unwrap_or(""),
            server_name: name,
            resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
            client_certificate: chain.first().map(|leaf| leaf.as_ref().into()),
            client_intermediates: chain.iter().skip(1).map(|known| known.as_ref().into()).collect(),
        };
        let Ok((secrets, keys)) = tls.dangerous_into_kernel_connection() else {
            tracing::error!(peer = %self.endpoints, "rustls exported no keys after a TLS handshake");
            return;
        };
        let core = Rc::clone(&self.core);
        let Some(tcp) = self.tcp.take() else { return };
        match Records::new(secrets, Keys::Server(keys)) {
            Some(records) => {
                let stream = TlsStream::new(core, tcp, records, inbound);
                // From here on the connection's own task keeps the worker's count.
                self.is_counted.set(false);
                let profiler = ProfilerState { stamp: self.stamp.get(), is_timed: self.is_timed.get() };
                start(Secured { stream, facts, profiler });
            }
            None => tracing::error!(peer = %self.endpoints, "rustls exported keys of another suite"),
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if self.timer.get() != TimerKey::UNFILED {
            self.core.timers.remove(self.timer.get());
        }
        if self.is_counted.get() {
            self.core.lifecycle.connection_ended();
        }
    }
}
