//! Two ways to write HTTP/2 frames over one protocol machine and socket: `one` writer that writes all pending bytes
//! with one call, as our engine does, or a task for `each` larger frame, one after another, which starts like a fresh
//! goroutine. This reproduces the measurement of the article on Go's server without the rest of Go. Every request gets
//! a page; its time runs from the read of its head to the write of its last byte. Usage: `h2_writers one|each PORT
//! PORT_OF_TIMES [CERTIFICATE KEY]`.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io::{self, IoSlice};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use answer::times::Times;
use causeway_h2::{Event, Server, Settings};
use causeway_message::{
    Chunk, FieldName, FieldValue, Framing, Head, ResponseHead, StatusCode, StreamId, WriteList, names,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";
const READ_BYTES: usize = 32 << 10;
/// Slices per write call.
const SLICES_MAX: usize = 64;
const FRAME_HEAD_BYTES: usize = 9;
/// In Go, frames that fit this buffer are not written by a goroutine of their own.
const BUFFERED_BYTES_MAX: usize = 4 << 10;
/// Initial stack size of a goroutine, and its size after growing to write a frame.
const STACK_BYTES: [usize; 2] = [2 << 10, 8 << 10];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    One,
    Each,
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let writer = match arguments.next().as_deref() {
        Some("one") => Some(Writer::One),
        Some("each") => Some(Writer::Each),
        _ => None,
    };
    let mut number = || arguments.next()?.parse::<u16>().ok();
    let (Some(writer), Some(port), Some(told)) = (writer, number(), number()) else {
        panic!("usage: h2_writers one|each PORT PORT_OF_TIMES [CERTIFICATE KEY]")
    };
    let tls = arguments.next().zip(arguments.next()).map(|(certificate, key)| acceptor(&certificate, &key));
    let times = Times::told_on(told)?;
    let page: &'static [u8] = answer::page().leak().as_bytes();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection = WriterConnection::new(page, times.clone());
            let tls = tls.clone();
            // An error of a connection ends only that connection.
            tokio::task::spawn_local(async move {
                match tls {
                    Some(tls) => connection.serve(tls.accept(stream).await.ok()?, writer).await.ok(),
                    None => connection.serve(stream, writer).await.ok(),
                }
            });
        }
    })
}

/// A byte stream, with or without TLS.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<W: AsyncRead + AsyncWrite + Unpin + 'static> ByteStream for W {}

fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.unwrap_or_else(|error| panic!("{certificate}: {error}"));
    let key = PrivateKeyDer::from_pem_file(key).unwrap_or_else(|error| panic!("{key}: {error}"));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.unwrap_or_else(|error| panic!("{certificate}: {error}"));
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config).into()
}

struct WriterConnection {
    server: Server,
    head: Head,
    answer: ResponseHead,
    page: Chunk,
    out: WriteList,
    /// Bytes put into `out` since the start, and those of them that the kernel has accepted.
    queued: u64,
    written: u64,
    /// The end offset of each response, with the arrival time of its request.
    ends: VecDeque<(u64, Instant)>,
    times: Times,
}

impl WriterConnection {
    fn new(page: &'static [u8], times: Times) -> Self {
        let mut answer = ResponseHead::new(StatusCode::OK);
        answer.set(names::SERVER, FieldValue::from_static("writers"));
        answer.set(names::CONTENT_TYPE, FieldValue::from_static("text/html; charset=utf-8"));
        for (name, value) in answer::FIELDS {
            answer.set(&FieldName::parse(name).expect("a good name"), FieldValue::from_static(value));
        }
        Self {
            server: Server::new(Rc::new(Settings::default())),
            head: Head::default(),
            answer,
            page: Chunk::from_static(page),
            out: WriteList::new(),
            queued: 0,
            written: 0,
            ends: VecDeque::new(),
            times,
        }
    }

    async fn serve(mut self, mut stream: impl ByteStream, writer: Writer) -> io::Result<()> {
        let mut block = vec![0; READ_BYTES];
        let mut filled = 0;
        loop {
            let read = stream.read(&mut block[filled..]).await?;
            if read == 0 {
                return Ok(());
            }
            filled += read;
            let used = self.take(&block[..filled]);
            // An incomplete frame moves to the front of the buffer.
            block.copy_within(used..filled, 0);
            filled -= used;
            match writer {
                Writer::One => self.write_all(&mut stream).await?,
                Writer::Each => stream = self.write_each(stream).await?,
            }
            if self.server.should_close() {
                return Ok(());
            }
        }
    }

    /// Responds to the requests in `bytes`; returns the number of consumed bytes.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let now = Instant::now();
        let mut used = 0;
        loop {
            let handled = self.server.handle_bytes(now, &bytes[used..], &mut self.head, &mut self.out);
            used += handled.consumed;
            match handled.event {
                Some(Event::Head { stream, .. }) => self.answer(stream, now),
                Some(_) => {}
                None if handled.consumed == 0 => break,
                None => {}
            }
        }
        self.queued = self.written + self.out.len() as u64;
        used
    }

    fn answer(&mut self, stream: StreamId, came: Instant) {
        let framing = Framing::Sized(self.page.len() as u64);
        self.server.send_head(stream, &self.answer, framing, DATE, &mut self.out);
        let mut page = self.page.clone();
        self.server.send(stream, &mut page, &mut self.out);
        assert!(page.is_empty(), "the client's windows are wide open");
        self.server.finish(stream, &mut self.out);
        // This response ends at the current end of the list.
        self.ends.push_back((self.written + self.out.len() as u64, came));
    }

    /// Writes all pending bytes, with as few calls as the kernel allows.
    async fn write_all(&mut self, stream: &mut impl ByteStream) -> io::Result<()> {
        while !self.out.is_empty() {
            let written = write_some(stream, &self.out, usize::MAX).await?;
            self.out.advance(written);
            self.note_written(written);
        }
        Ok(())
    }

    /// Writes frame by frame. Each frame's task takes the stream and the list and returns them at its end, as Go's
    /// serving goroutine waits for the end of a frame before it starts the next.
    async fn write_each<W: ByteStream>(&mut self, mut stream: W) -> io::Result<W> {
        while !self.out.is_empty() {
            let bytes = next_write(&self.out);
            let mut out = std::mem::take(&mut self.out);
            let writing = tokio::task::spawn_local(async move {
                fresh_stack();
                let mut left = bytes;
                while left > 0 {
                    let written = write_some(&mut stream, &out, left).await?;
                    out.advance(written);
                    left -= written;
                }
                io::Result::Ok((stream, out))
            });
            (stream, self.out) = writing.await.map_err(io::Error::other)??;
            self.note_written(bytes);
        }
        Ok(stream)
    }

    fn note_written(&mut self, bytes: usize) {
        self.written += bytes as u64;
        assert!(self.written <= self.queued, "no more than was queued");
        if self.ends.front().is_some_and(|(end, _)| *end <= self.written) {
            let now = Instant::now();
            while let Some((_, came)) = self.ends.pop_front_if(|(end, _)| *end <= self.written) {
                self.times.add(now - came);
            }
        }
    }
}

/// Writes at most `bytes_max` bytes of the list with one call; returns the number of bytes written.
async fn write_some(stream: &mut impl ByteStream, out: &WriteList, bytes_max: usize) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut used = out.slices(&mut slices);
    let mut left = bytes_max;
    let mut cut: &[u8] = &[];
    for (place, slice) in slices[..used].iter().enumerate() {
        if slice.len() >= left {
            cut = &slice[..left];
            used = place;
            break;
        }
        left -= slice.len();
    }
    if !cut.is_empty() {
        // The slice that contains the bound is shortened, and the later ones are omitted.
        let mut shorter = [IoSlice::new(&[]); SLICES_MAX];
        shorter[..used].copy_from_slice(&slices[..used]);
        shorter[used] = IoSlice::new(cut);
        let written = stream.write_vectored(&shorter[..=used]).await?;
        stream.flush().await?;
        return Ok(written);
    }
    let written = stream.write_vectored(&slices[..used]).await?;
    // With TLS, the write may only have filled the TLS buffer.
    stream.flush().await?;
    Ok(written)
}

/// Returns the size of the frames up to and including the first large one. O(slices).
fn next_write(out: &WriteList) -> usize {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let used = out.slices(&mut slices);
    let (mut place, mut within, mut at) = (0, 0, 0);
    loop {
        // A frame's head is written in one piece, so it is within one slice.
        while place < used && within >= slices[place].len() {
            within -= slices[place].len();
            place += 1;
        }
        let Some(&[a, b, c]) = slices[..used].get(place).and_then(|slice| slice.get(within..within + 3)) else {
            return at.min(out.len());
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        at += FRAME_HEAD_BYTES + length;
        within += FRAME_HEAD_BYTES + length;
        if length > BUFFERED_BYTES_MAX {
            return at;
        }
    }
}

/// Imitates a goroutine's start: it gets a small stack that is copied to larger ones.
fn fresh_stack() {
    let mut stack = vec![1_u8; STACK_BYTES[0]];
    while stack.len() < STACK_BYTES[1] {
        let mut larger = vec![1_u8; 2 * stack.len()];
        larger[stack.len()..].copy_from_slice(&stack);
        stack = black_box(larger);
    }
    black_box(&stack);
}
