//! What carries a connection's octets over TLS once the handshake is over.
//!
//! Writing: content is sealed straight from the write list's slices into a buffer of the worker's, and sent with one call. What
//! the kernel does not take stays in that buffer, which the connection then holds; the last octet of the content counts as
//! written only when the last sealed octet is with the kernel. So at most [`SEALED_OCTETS`](super::SEALED_OCTETS) wait here, and no exchange is over
//! before its answer is out.
//!
//! Reading: records are opened in the very block that the driver reads into, where it has room for a whole one; a record's
//! first part, whose rest is still to come, waits in a block of its own ([`Inbound`]).

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use progress::stage;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ContentType, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite};
use tokio::net::TcpStream;

use super::inbound::Inbound;
use super::record::{Exhausted, Fault, Opener, RECORD_OCTETS_MAX, Sealer, alert, whole};
use crate::transport::{Received, Transport};
use crate::worker::Core;

/// Records in a row that bring no content: more is a peer that only makes work.
const IDLE_RECORDS_MAX: u8 = 32;
/// Reads within one poll.
const READS_MAX: usize = 8;
/// Octets of the longest alert as a record.
const ALERT_OCTETS: usize = 64;
/// How long a close may wait for room in the kernel for its own last record.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// A TLS connection's transport.
pub(crate) struct TlsStream {
    /// There until the drop.
    tcp: Option<TcpStream>,
    session: Box<Session>,
}

struct Session {
    core: Rc<Core>,
    opener: Opener,
    sealer: Sealer,
    /// Makes the next keys (RFC 8446 §7.2).
    keys: Keys,
    inbound: Inbound,
    /// When the kernel had the last of what was read.
    arrived: u64,
    unsent: Option<Unsent>,
    idle_records: u8,
    /// Ours must follow the peer's (RFC 8446 §4.6.3).
    is_update_owed: bool,
    /// How reading ended, once it has.
    end: Option<Result<Closed, Fault>>,
    ending: Cell<Ending>,
}

/// Where the keys come from, in either role.
pub(super) enum Keys {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

/// Asks the same of either role.
macro_rules! either {
    ($keys:expr, $it:ident => $work:expr) => {
        match $keys {
            Keys::Server($it) => $work,
            Keys::Client($it) => $work,
        }
    };
}

impl Keys {
    fn suite(&self) -> SupportedCipherSuite {
        either!(self, keys => keys.negotiated_cipher_suite())
    }

    fn is_tls13(&self) -> bool {
        either!(self, keys => keys.protocol_version()) == ProtocolVersion::TLSv1_3
    }

    fn next_rx(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        either!(self, keys => keys.update_rx_secret()).ok()
    }

    fn next_tx(&mut self) -> Option<(u64, ConnectionTrafficSecrets)> {
        either!(self, keys => keys.update_tx_secret()).ok()
    }

    /// Keeps the tickets of a record that holds nothing else (RFC 8446 §4.6.1). Whether it is such a one.
    fn keep_tickets(&mut self, mut messages: &[u8]) -> bool {
        let Self::Client(keys) = self else { return false };
        while let [4, high, middle, low, rest @ ..] = messages {
            let octets = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            let Some((ticket, behind)) = rest.split_at_checked(octets) else { return false };
            if keys.handle_new_session_ticket(ticket).is_err() {
                return false;
            }
            if behind.is_empty() {
                return true;
            }
            messages = behind;
        }
        false
    }
}

/// How the peer's sending side ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// By close_notify.
    Said,
    /// By TCP's end alone, which anybody on the way could have made.
    Cut,
}

/// How far the end of our sending side has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It has not begun.
    Open,
    /// The close_notify is sealed and waits for room in the kernel.
    Waiting,
    /// It is sent; or the close is to be a reset, without one.
    Over,
}

/// Sealed octets that the kernel has not taken.
struct Unsent {
    octets: Vec<u8>,
    start: usize,
    end: usize,
    /// Octets of content in them that were not yet said to be written.
    content: usize,
}

impl From<Fault> for io::Error {
    fn from(_: Fault) -> Self {
        io::ErrorKind::InvalidData.into()
    }
}

impl From<Exhausted> for io::Error {
    fn from(_: Exhausted) -> Self {
        io::ErrorKind::WriteZero.into()
    }
}

impl TlsStream {
    /// Goes on where the handshake ended. `None` when its secrets do not fit its suite, which rustls does not let happen.
    pub(super) fn new(
        core: Rc<Core>,
        tcp: TcpStream,
        secrets: ExtractedSecrets,
        keys: Keys,
        inbound: Inbound,
        is_over: bool,
    ) -> Option<Self> {
        let suite = keys.suite();
        let sealer = Sealer::new(suite, secrets.tx.0, &secrets.tx.1)?;
        let opener = Opener::new(suite, secrets.rx.0, secrets.rx.1)?;
        let session = Box::new(Session {
            core,
            opener,
            sealer,
            keys,
            inbound,
            arrived: 0,
            unsent: None,
            idle_records: 0,
            is_update_owed: false,
            end: is_over.then_some(Ok(Closed::Said)),
            ending: Cell::new(Ending::Open),
        });
        Some(Self { tcp: Some(tcp), session })
    }

    fn parts(&mut self) -> (&mut TcpStream, &mut Session) {
        (self.tcp.as_mut().expect("there until the drop"), &mut self.session)
    }

    /// Sends the alert that ends the connection, if there is room for it.
    #[cold]
    fn refuse(&mut self, fault: Fault) -> io::Error {
        let (tcp, session) = self.parts();
        if session.ending.replace(Ending::Over) == Ending::Open && session.unsent.is_none() {
            let mut record = [0; ALERT_OCTETS];
            if let Ok(len) = session.sealer.seal(ContentType::Alert, &[2, fault.0], &mut record) {
                let _ = tcp.try_write(&record[..len]);
            }
        }
        fault.into()
    }
}

impl Session {
    /// Fills `room` with content that is here, opening records as far as they are whole.
    fn deliver(&mut self, room: &mut [u8]) -> usize {
        let mut filled = self.inbound.take_plain(room);
        if self.inbound.sealed().is_empty() {
            return filled;
        }
        let _span = stage::TLS.enter();
        while filled < room.len() && self.end.is_none() {
            let len = match whole(self.inbound.sealed()) {
                Ok(Some(len)) => len,
                Ok(None) => break,
                Err(fault) => {
                    self.end = Some(Err(fault));
                    break;
                }
            };
            match self.opener.open(&mut self.inbound.sealed_mut()[..len]) {
                Ok((ContentType::ApplicationData, content)) if !content.is_empty() => {
                    self.idle_records = 0;
                    self.inbound.opened(len, content);
                    filled += self.inbound.take_plain(&mut room[filled..]);
                }
                Ok((kind, content)) => {
                    let said = self.inbound.sealed()[content].to_vec();
                    self.inbound.consume(len);
                    self.hear(kind, &said);
                }
                Err(fault) => self.end = Some(Err(fault)),
            }
        }
        filled
    }

    /// Opens the records that `octets` begin with, in place: how much content lies at their start then. The first part of a record
    /// that is not whole moves away.
    fn open_in_place(&mut self, octets: &mut [u8]) -> usize {
        let _span = stage::TLS.enter();
        let (mut at, mut filled) = (0, 0);
        while self.end.is_none() {
            let len = match whole(&octets[at..]) {
                Ok(Some(len)) => len,
                Ok(None) => break,
                Err(fault) => {
                    self.end = Some(Err(fault));
                    break;
                }
            };
            match self.opener.open(&mut octets[at..at + len]) {
                Ok((ContentType::ApplicationData, content)) if !content.is_empty() => {
                    self.idle_records = 0;
                    octets.copy_within(at + content.start..at + content.end, filled);
                    filled += content.len();
                }
                Ok((kind, content)) => {
                    let said = octets[at + content.start..at + content.end].to_vec();
                    self.hear(kind, &said);
                }
                Err(fault) => self.end = Some(Err(fault)),
            }
            at += len;
        }
        if self.end.is_none() && at < octets.len() {
            self.inbound.keep_sealed(&octets[at..], &self.core.blocks);
        }
        filled
    }

    /// A record without content for the driver.
    fn hear(&mut self, kind: ContentType, message: &[u8]) {
        self.idle_records += 1;
        let is_tls13 = self.keys.is_tls13();
        let fault = match (kind, message) {
            _ if self.idle_records > IDLE_RECORDS_MAX => alert::UNEXPECTED_MESSAGE,
            (ContentType::ApplicationData, []) => return,
            (ContentType::Alert, [1 | 2, alert::CLOSE_NOTIFY]) => {
                self.end = Some(Ok(Closed::Said));
                return;
            }
            // RFC 8446 §6.1: it only says why the close follows.
            (ContentType::Alert, [_, alert::USER_CANCELED]) => return,
            // RFC 5246 §7.2: a warning is heard and passed over.
            (ContentType::Alert, [1, _]) if !is_tls13 => return,
            (ContentType::Alert, [_, _]) => {
                // The peer has given up: nobody is there to be told anything.
                self.ending.set(Ending::Over);
                alert::UNEXPECTED_MESSAGE
            }
            (ContentType::Alert, _) => alert::DECODE_ERROR,
            // RFC 8446 §4.6.3: a KeyUpdate, alone in its record; it may ask for ours.
            (ContentType::Handshake, &[24, 0, 0, 1, asked @ (0 | 1)]) if is_tls13 => {
                self.is_update_owed |= asked == 1;
                match self.next_opener() {
                    Some(opener) => {
                        self.opener = opener;
                        return;
                    }
                    None => alert::INTERNAL_ERROR,
                }
            }
            (ContentType::Handshake, tickets) if is_tls13 && self.keys.keep_tickets(tickets) => return,
            // TLS 1.2: the peer would begin another handshake, which nobody here does.
            (ContentType::Handshake, _) if !is_tls13 => alert::NO_RENEGOTIATION,
            _ => alert::UNEXPECTED_MESSAGE,
        };
        self.end = Some(Err(Fault(fault)));
    }

    fn next_opener(&mut self) -> Option<Opener> {
        let (sequence, secrets) = self.keys.next_rx()?;
        Opener::new(self.keys.suite(), sequence, secrets)
    }

    /// Says that our keys change, under the old ones, and changes them.
    #[cold]
    fn update_keys(&mut self, out: &mut [u8]) -> Result<usize, Exhausted> {
        let sealed = self.sealer.seal(ContentType::Handshake, &[24, 0, 0, 1, 0], out)?;
        // TLS 1.2 has no other keys to give.
        let (sequence, secrets) = self.keys.next_tx().ok_or(Exhausted)?;
        self.sealer = Sealer::new(self.keys.suite(), sequence, &secrets).ok_or(Exhausted)?;
        self.is_update_owed = false;
        Ok(sealed)
    }

    /// Seals from the front of `slices`.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> Result<Unsent, Exhausted> {
        let _span = stage::TLS.enter();
        let mut octets = self.core.take_sealed();
        let mut start = 0;
        let is_worn = self.sealer.is_worn() && self.keys.is_tls13();
        if self.is_update_owed || is_worn {
            start = self.update_keys(&mut octets)?;
        }
        let (content, sealed) = self.sealer.seal_slices(slices, &mut octets[start..])?;
        Ok(Unsent { octets, start: 0, end: start + sealed, content })
    }

    /// Sends what is sealed already. `Ready` with the octets of content that this settles.
    fn poll_send(&mut self, tcp: &mut TcpStream, task: &mut Task<'_>) -> Poll<io::Result<usize>> {
        while let Some(unsent) = &mut self.unsent {
            let slice = IoSlice::new(&unsent.octets[unsent.start..unsent.end]);
            let sent = ready!(Transport::poll_write(tcp, task, &[slice]))?;
            unsent.start += sent;
            if unsent.start == unsent.end {
                let content = unsent.content;
                if let Some(unsent) = self.unsent.take() {
                    self.core.put_sealed(unsent.octets);
                }
                return Poll::Ready(Ok(content));
            }
            // Progress, so that a slow peer is not taken for one that reads nothing; but never the last octet.
            let settled = sent.min(unsent.content.saturating_sub(1));
            if settled > 0 {
                unsent.content -= settled;
                return Poll::Ready(Ok(settled));
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Sends the close_notify, then ends our side of the socket.
    fn poll_close(&mut self, tcp: &mut TcpStream, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        if self.ending.get() == Ending::Open {
            if self.unsent.is_some() {
                // What was cut off is not to look whole.
                self.ending.set(Ending::Over);
                return Poll::Ready(Ok(()));
            }
            let mut octets = self.core.take_sealed();
            let end = self.sealer.seal(ContentType::Alert, &[1, alert::CLOSE_NOTIFY], &mut octets)?;
            self.unsent = Some(Unsent { octets, start: 0, end, content: 0 });
            self.ending.set(Ending::Waiting);
        }
        while self.ending.get() == Ending::Waiting {
            ready!(self.poll_send(tcp, task))?;
            if self.unsent.is_none() {
                self.ending.set(Ending::Over);
                ready!(Transport::poll_shutdown(tcp, task))?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Transport for TlsStream {
    fn poll_read(&mut self, task: &mut Task<'_>, room: &mut [u8]) -> Poll<io::Result<Received>> {
        for _ in 0..READS_MAX {
            let (tcp, session) = self.parts();
            if session.ending.get() == Ending::Waiting {
                // The close waits for room; the driver only reads by now.
                let _ = session.poll_close(tcp, task)?;
            }
            let filled = session.deliver(room);
            if filled > 0 {
                return Poll::Ready(Ok(Received { octets: filled, at: session.arrived }));
            }
            match session.end {
                // A peer that ends without close_notify is as gone as one that says it: what it asked for whole is answered.
                Some(Ok(_)) => return Poll::Ready(Ok(Received::default())),
                Some(Err(fault)) => return Poll::Ready(Err(self.refuse(fault))),
                None => {}
            }
            let filled = if session.inbound.is_empty() && room.len() >= RECORD_OCTETS_MAX {
                session.inbound.rest();
                let received = ready!(Transport::poll_read(tcp, task, room))?;
                session.arrived = received.at;
                if received.octets == 0 {
                    session.end = Some(Ok(Closed::Cut));
                }
                session.open_in_place(&mut room[..received.octets])
            } else {
                match session.inbound.poll_fill(tcp, &session.core.blocks, task)? {
                    Poll::Ready(Received { octets: 0, .. }) => session.end = Some(Ok(Closed::Cut)),
                    Poll::Ready(received) => session.arrived = received.at,
                    Poll::Pending => {
                        session.inbound.rest();
                        return Poll::Pending;
                    }
                }
                0
            };
            if filled > 0 {
                return Poll::Ready(Ok(Received { octets: filled, at: session.arrived }));
            }
        }
        // Records without content, or ever another part of one: others have their turn.
        task.waker().wake_by_ref();
        Poll::Pending
    }

    fn keep_times(&self, on: bool) {
        if let Some(tcp) = &self.tcp {
            tcp.keep_times(on);
        }
    }

    fn poll_write(&mut self, task: &mut Task<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let (tcp, session) = self.parts();
        if session.unsent.is_none() {
            // Nothing is sealed that would only have to wait.
            ready!(tcp.poll_write_ready(task))?;
            session.unsent = Some(session.seal(slices)?);
        }
        session.poll_send(tcp, task)
    }

    fn poll_shutdown(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        let (tcp, session) = self.parts();
        session.poll_close(tcp, task)
    }

    fn is_cut(&self) -> bool {
        self.session.end == Some(Ok(Closed::Cut))
    }

    fn reset_on_close(&self) {
        self.session.ending.set(Ending::Over);
        if let Some(tcp) = &self.tcp {
            tcp.reset_on_close();
        }
    }
}

impl Drop for TlsStream {
    /// A peer may take a close without close_notify for a cut, so it is said even where nobody waits for it.
    fn drop(&mut self) {
        let (Some(tcp), session) = (self.tcp.take(), &mut *self.session) else { return };
        let mut record = [0; ALERT_OCTETS];
        let left = match (session.ending.get(), &session.unsent) {
            (Ending::Open, None) => {
                let Ok(len) = session.sealer.seal(ContentType::Alert, &[1, alert::CLOSE_NOTIFY], &mut record) else {
                    return;
                };
                &record[..len]
            }
            (Ending::Waiting, Some(unsent)) => &unsent.octets[unsent.start..unsent.end],
            _ => return,
        };
        match tcp.try_write(left) {
            Ok(sent) if sent == left.len() => {}
            Ok(sent) => send_late(&session.core, tcp, left[sent..].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => send_late(&session.core, tcp, left.to_vec()),
            Err(_) => {}
        }
    }
}

/// The kernel is full of what came before: the last record waits for room, unless the worker ends.
#[cold]
fn send_late(core: &Core, tcp: TcpStream, record: Vec<u8>) {
    if core.is_closed() {
        return;
    }
    tokio::task::spawn_local(async move {
        let mut left = &record[..];
        let sent = async {
            while !left.is_empty() {
                tcp.writable().await?;
                match tcp.try_write(left) {
                    Ok(sent) => left = &left[sent..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        // Whoever does not read by then has lost it.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, sent).await;
    });
}
