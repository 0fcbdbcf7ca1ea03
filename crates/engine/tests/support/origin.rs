//! Scripted origins: byte by byte over HTTP/1, frame by frame over HTTP/2.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_testkit::http2::{ReceivedFrame, flag, kind, literal};

use super::PATIENCE;
use super::forward::begin_port;

/// An origin that accepts one connection after another and runs one script on each.
pub(crate) struct Origin {
    pub(crate) port: u16,
    thread: JoinHandle<()>,
    steps: Receiver<()>,
}

/// Accepts one connection after another on a Unix socket, and runs one script on each.
pub(crate) fn on_socket(listener: UnixListener, connections: Vec<Act>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for act in connections {
            let stream = listener.accept().unwrap().0;
            act(&mut OriginConnection::new(TcpStream::from(OwnedFd::from(stream))));
        }
    })
}

pub(crate) type Act = fn(&mut OriginConnection);
/// A script that owns state.
pub(crate) type Deed = Box<dyn FnOnce(&mut OriginConnection) + Send>;

impl Origin {
    pub(crate) fn new(connections: Vec<Act>) -> Self {
        Self::with(connections.into_iter().map(|act| Box::new(act) as Deed).collect())
    }

    pub(crate) fn with(connections: Vec<Deed>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        begin_port(port);
        let (step, steps) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            for act in connections {
                let connection = OriginConnection::new(listener.accept().unwrap().0);
                act(&mut OriginConnection(connection.0, Some(step.clone())));
            }
        });
        Self { port, thread, steps }
    }

    /// Waits until a script comes to its next [`OriginConnection::step`].
    #[track_caller]
    pub(crate) fn await_step(&self) {
        self.steps.recv_timeout(PATIENCE).expect("a script comes to its next step");
    }

    #[track_caller]
    pub(crate) fn end(self) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Whether all scripts have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns a target that the server forwards to this origin.
    pub(crate) fn target(&self) -> String {
        format!("/forward/{}", self.port)
    }
}

/// One connection of an origin.
pub(crate) struct OriginConnection(pub(crate) TcpStream, Option<Sender<()>>);

impl OriginConnection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // A Unix socket has no such option.
        let _ = stream.set_nodelay(true);
        Self(stream, None)
    }

    /// Lets the test, which calls [`Origin::await_step`], go on.
    #[track_caller]
    pub(crate) fn step(&self) {
        self.1.as_ref().expect("a connection of an Origin").send(()).expect("the test waits for its origin");
    }

    /// Reads up to the end of a head.
    #[track_caller]
    pub(crate) fn head(&mut self) -> String {
        self.try_head().expect("a head")
    }

    /// Reads up to the end of a head; `None` when the peer closes earlier.
    pub(crate) fn try_head(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(1) => bytes.push(byte[0]),
                _ => return None,
            }
        }
        Some(String::from_utf8(bytes).unwrap())
    }

    #[track_caller]
    pub(crate) fn exactly(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a complete response; the connection stays open.
    #[track_caller]
    pub(crate) fn answer(&mut self, text: &str) {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()));
    }

    /// Asserts that the peer closes without sending further bytes.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        let bytes = self.rest();
        assert_eq!(String::from_utf8_lossy(&bytes), "");
    }

    /// Reads all bytes up to the peer's end. A reset counts as an end; no end at all is a failure.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "it stays open: {error}");
        }
        bytes
    }

    /// Ends our sending side.
    pub(crate) fn half_close(&mut self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// Makes the close of the socket a reset.
    pub(crate) fn reset(&mut self) {
        socket2::SockRef::from(&self.0).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Reads a client's preface, and sends these settings.
    #[track_caller]
    pub(crate) fn preface(&mut self, settings: &[(u16, u32)]) {
        assert_eq!(self.exactly(24), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let settings: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        self.frame(kind::SETTINGS, flag::NONE, 0, &settings);
    }

    /// Sends a frame.
    #[track_caller]
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![len[1], len[2], len[3], kind, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.send(bytes);
    }

    /// Reads the next frame; `None` at the end.
    pub(crate) fn try_frame(&mut self) -> Option<ReceivedFrame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(ReceivedFrame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads up to the next frame of a type.
    #[track_caller]
    pub(crate) fn await_frame(&mut self, wanted: u8) -> ReceivedFrame {
        loop {
            let frame = self.try_frame().unwrap_or_else(|| panic!("an end before a frame of kind {wanted}"));
            if frame.kind == wanted {
                return frame;
            }
        }
    }

    /// Reads up to the next request and the acknowledgement of our settings, which may come first. Returns the
    /// request's stream.
    #[track_caller]
    pub(crate) fn request_and_settings_ack(&mut self) -> u32 {
        let (mut stream, mut is_acknowledged) = (None, false);
        loop {
            let frame = self.try_frame().expect("a request and an acknowledgement");
            match frame.kind {
                kind::HEADERS => stream = Some(frame.stream),
                kind::SETTINGS if frame.flags == flag::ACK => is_acknowledged = true,
                _ => {}
            }
            if let (Some(stream), true) = (stream, is_acknowledged) {
                return stream;
            }
        }
    }

    /// Reads up to the next request. Returns its stream.
    #[track_caller]
    pub(crate) fn request(&mut self) -> u32 {
        self.await_frame(kind::HEADERS).stream
    }

    /// Sends a complete response on a stream.
    #[track_caller]
    pub(crate) fn respond(&mut self, stream: u32, text: &str) {
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
        self.frame(kind::DATA, flag::END_STREAM, stream, text.as_bytes());
    }

    /// Reads up to the peer's end. Returns the types of all frames except SETTINGS, WINDOW_UPDATE and PING.
    #[track_caller]
    pub(crate) fn frames_to_the_end(&mut self) -> Vec<u8> {
        let mut kinds = Vec::new();
        while let Some(frame) = self.try_frame() {
            if !matches!(frame.kind, kind::SETTINGS | kind::WINDOW_UPDATE | kind::PING) {
                kinds.push(frame.kind);
            }
        }
        kinds
    }
}

/// Encodes a field block with status 200 and one field.
pub(crate) fn status_200() -> Vec<u8> {
    let mut block = vec![0x88];
    literal(&mut block, b"x-a", b"b");
    block
}
