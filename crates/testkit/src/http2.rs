//! An HTTP/2 client on a raw socket that sends any frames, valid or not.
//!
//! - [`Wire`]: one connection
//! - [`Visitor`]: a well-behaved client that measures its response times
//! - `attack`: known denial-of-service attacks on HTTP/2 servers

mod attack;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub use attack::{ATTACKS, Attack, AttackOutcome, AttackTarget};

/// The connection preface of a client (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 §6).
pub mod kind {
    #![expect(missing_docs, reason = "the standard's names")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    #![expect(missing_docs, reason = "the standard's names")]
    pub const NONE: u8 = 0;
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// The type; see [`kind`].
    pub kind: u8,
    /// The flags; see [`flag`].
    pub flags: u8,
    /// The stream identifier; 0 for the connection.
    pub stream: u32,
    /// The payload, padding included.
    pub payload: Vec<u8>,
}

/// One connection. [`put`](Self::put) buffers frames and [`flush`](Self::flush) sends them.
pub struct Wire {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Wire {
    /// Connects with prior knowledge and sends the preface and these settings. Reads and writes time out after 20 s.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut wire = Self { stream, out: PREFACE.to_vec(), input: Vec::new() };
        wire.set_timeout(Duration::from_secs(20))?;
        let settings: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        wire.put(kind::SETTINGS, flag::NONE, 0, &settings);
        wire.flush()?;
        Ok(wire)
    }

    /// Begins a connection as the server: reads the client's preface and sends empty settings. Reads and writes time
    /// out after 20 s.
    ///
    /// # Errors
    /// Those of the socket; also when the preface is another.
    pub fn accept(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut wire = Self { stream, out: Vec::new(), input: Vec::new() };
        wire.set_timeout(Duration::from_secs(20))?;
        while wire.input.len() < PREFACE.len() {
            if !wire.read()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if wire.input.drain(..PREFACE.len()).as_slice() != PREFACE {
            return Err(io::Error::other("not the preface of HTTP/2"));
        }
        wire.put(kind::SETTINGS, flag::NONE, 0, &[]);
        wire.flush()?;
        Ok(wire)
    }

    /// Sets the timeout of each read and write.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn set_timeout(&mut self, most: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(most))?;
        self.stream.set_write_timeout(Some(most))
    }

    /// Buffers a frame.
    pub fn put(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).expect("a payload of a test is small").to_be_bytes();
        self.out.extend_from_slice(&[len[1], len[2], len[3], kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    /// Buffers a GET request without a body.
    pub fn put_get(&mut self, stream: u32, path: &str) {
        let block = get(path);
        self.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block);
    }

    /// Sends the buffered frames.
    ///
    /// # Errors
    /// Those of the socket: the peer has closed the connection, or does not read.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Returns the next frame; `None` when the peer has closed the connection.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn receive(&mut self) -> io::Result<Option<ReceivedFrame>> {
        while self.input.len() < 9 {
            if !self.read()? {
                return Ok(None);
            }
        }
        let head: [u8; 9] = self.input[..9].try_into().expect("nine bytes");
        // The frame header (RFC 9113 §4.1): 24 bits of length, type, flags, and 31 bits of stream identifier.
        let end = 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        while self.input.len() < end {
            if !self.read()? {
                return Ok(None);
            }
        }
        let payload = self.input[9..end].to_vec();
        self.input.drain(..end);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Ok(Some(ReceivedFrame { kind: head[3], flags: head[4], stream, payload }))
    }

    /// Reads once into the buffer; returns false at the end of the stream.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 * 1024];
        let count = self.stream.read(&mut piece)?;
        self.input.extend_from_slice(&piece[..count]);
        Ok(count > 0)
    }

    /// Returns a second handle to the socket, for reading on another thread.
    fn twin(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, out: Vec::new(), input: Vec::new() })
    }
}

/// Returns the field block of a GET (RFC 7541), without additions to the dynamic table.
pub fn get(path: &str) -> Vec<u8> {
    // Static table entries (RFC 7541, appendix A): `:method: GET` and `:scheme: http`.
    let mut block = vec![0x82, 0x86];
    // The names `:path` and `:authority` are entries 4 and 1.
    field(&mut block, 4, path.as_bytes());
    field(&mut block, 1, b"localhost");
    block
}

/// Appends a literal field without indexing, whose name is an entry of the static table.
fn field(block: &mut Vec<u8>, name: u8, value: &[u8]) {
    block.push(name);
    text(block, value);
}

/// Appends a literal field without indexing, with a literal name.
pub fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    text(block, name);
    text(block, value);
}

/// Appends a literal field that is never indexed (RFC 7541 §6.2.3), with a literal name.
pub fn never_indexed(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0x10);
    text(block, name);
    text(block, value);
}

/// Appends a string literal without Huffman coding; the length is an integer with a 7-bit prefix (RFC 7541 §5.1).
fn text(block: &mut Vec<u8>, bytes: &[u8]) {
    let mut len = bytes.len();
    if len < 127 {
        block.push(len as u8);
    } else {
        block.push(127);
        len -= 127;
        while len >= 128 {
            block.push(len as u8 | 128);
            len >>= 7;
        }
        block.push(len as u8);
    }
    block.extend_from_slice(bytes);
}

/// A well-behaved client that sends one request at a time on one connection.
pub struct Visitor {
    wire: Wire,
    stream: u32,
}

impl Visitor {
    /// Connects.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        // SETTINGS_INITIAL_WINDOW_SIZE and the connection's window are so large that no response has to wait for them.
        let mut wire = Wire::connect(address, &[(4, u32::MAX / 2)])?;
        wire.put(kind::WINDOW_UPDATE, flag::NONE, 0, &(u32::MAX / 2 - 65_535).to_be_bytes());
        wire.flush()?;
        Ok(Self { wire, stream: 1 })
    }

    /// Requests a path and returns the time until the end of the response.
    ///
    /// # Errors
    /// Those of the socket; also when the response is incomplete or its status is not 200.
    pub fn ask(&mut self, path: &str) -> io::Result<Duration> {
        let begun = Instant::now();
        self.wire.put_get(self.stream, path);
        self.wire.flush()?;
        loop {
            let frame = self.wire.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            match frame.kind {
                kind::SETTINGS if frame.flags & flag::ACK == 0 => {
                    self.wire.put(kind::SETTINGS, flag::ACK, 0, &[]);
                    self.wire.flush()?;
                }
                kind::PING if frame.flags & flag::ACK == 0 => {
                    self.wire.put(kind::PING, flag::ACK, 0, &frame.payload);
                    self.wire.flush()?;
                }
                // 0x88 is `:status: 200` (RFC 7541, appendix A).
                kind::HEADERS if frame.stream == self.stream && frame.payload.first() != Some(&0x88) => {
                    return Err(io::Error::other(format!("not 200: {frame:?}")));
                }
                kind::GOAWAY | kind::RST_STREAM => return Err(io::Error::other(format!("{frame:?}"))),
                _ => {}
            }
            if frame.stream == self.stream
                && matches!(frame.kind, kind::HEADERS | kind::DATA)
                && frame.flags & flag::END_STREAM != 0
            {
                self.stream += 2;
                return Ok(begun.elapsed());
            }
        }
    }
}
