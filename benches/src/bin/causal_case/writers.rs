//! The article's case: HTTP/2 with a fresh writer for each larger frame. A writer has a start-up cost (`start_up`)
//! before it writes, and a connection has one writer at a time. When that cost is reduced by 100 %, one permanent
//! writer is used, which is the article's remedy. A response costs `render` before its first frame. Argument: `PORT`.
//!
//! The event loop is not our engine but a small one over our protocol machine, so it calls the profiler's hooks itself.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use causeway_h2::{Event, Server, Settings};
use causeway_message::{Chunk, FieldValue, Framing, Head, ResponseHead, StatusCode, StreamId, WriteList, names};
use progress::{self as progress, Point, Stamp, Visit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::kit;
use super::knob::{self, Cost, Random};
use super::planted::{render, start_up};

const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";
const READ_BYTES: usize = 32 << 10;
const FRAME_HEAD_BYTES: usize = 9;
/// Frames up to this size are written together with the next frame, without a writer of their own.
const BUFFERED_BYTES_MAX: usize = 4 << 10;

/// Starts the server, which runs until the program ends. Returns false for wrong arguments.
pub(crate) fn start(arguments: &[String]) -> bool {
    let [port] = arguments else { return false };
    let Ok(port) = port.parse::<u16>() else { return false };
    let started = thread::Builder::new().name("worker".to_owned()).spawn(move || {
        progress::worker_began();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .on_thread_park(progress::before_block)
            .on_thread_unpark(progress::after_block)
            .build();
        let served: io::Result<()> = runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, serve(port)));
        panic!("port {port}: {served:?}");
    });
    started.is_ok()
}

async fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let page: &'static [u8] = answer::page().leak().as_bytes();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // An error of a connection ends only that connection.
        tokio::task::spawn_local(async move { WriterConnection::new(page).serve(stream).await.ok() });
    }
}

/// The state that a writer takes while it writes, and gives back.
struct WriteState {
    stream: TcpStream,
    /// The connection's stamp for the profiler.
    stamp: Stamp,
    /// Frames to write; those before `at` are written.
    bytes: Vec<u8>,
    at: usize,
}

struct WriterConnection {
    server: Server,
    head: Head,
    answer: ResponseHead,
    page: Chunk,
    out: WriteList,
    /// Bytes put into `out` since the start.
    queued: u64,
    /// Bytes of those that the kernel has accepted.
    written: u64,
    /// The end offsets of responses in `queued`, with their visits.
    ends: VecDeque<(u64, Visit)>,
    point: Point,
    random: Random,
    start_up: Cost,
    render: Cost,
}

impl WriterConnection {
    fn new(page: &'static [u8]) -> Self {
        let mut answer = ResponseHead::new(StatusCode::OK);
        answer.set(names::SERVER, FieldValue::from_static("writers"));
        answer.set(names::CONTENT_TYPE, FieldValue::from_static("text/html; charset=utf-8"));
        Self {
            server: Server::new(Rc::new(Settings::default())),
            head: Head::default(),
            answer,
            page: Chunk::from_static(page),
            out: WriteList::new(),
            queued: 0,
            written: 0,
            ends: VecDeque::new(),
            point: Point::intern("unit"),
            random: Random::new(4),
            start_up: Cost::of("start_up", 130),
            render: Cost::of("render", 900),
        }
    }

    async fn serve(mut self, stream: TcpStream) -> io::Result<()> {
        let mut wire = WriteState { stream, stamp: Stamp::default(), bytes: Vec::new(), at: 0 };
        let mut block = vec![0; READ_BYTES];
        let mut filled = 0;
        loop {
            let read = wire.stream.read(&mut block[filled..]).await?;
            if read == 0 {
                return Ok(());
            }
            progress::arrived(&mut wire.stamp, 0);
            filled += read;
            let used = self.take(&block[..filled]);
            block.copy_within(used..filled, 0);
            filled -= used;
            self.queue(&mut wire);
            while wire.at < wire.bytes.len() {
                let before = wire.at;
                wire = self.write(wire).await?;
                self.note_written((wire.at - before) as u64);
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
                Some(Event::Head { stream, .. }) => self.answer(stream),
                Some(_) => {}
                None if handled.consumed == 0 => return used,
                None => {}
            }
        }
    }

    fn answer(&mut self, stream: StreamId) {
        let visit = Visit::begin();
        render(self.render.draw(&mut self.random));
        let framing = Framing::Sized(self.page.len() as u64);
        self.server.send_head(stream, &self.answer, framing, DATE, &mut self.out);
        let mut page = self.page.clone();
        self.server.send(stream, &mut page, &mut self.out);
        assert!(page.is_empty(), "the client's windows are wide open");
        self.server.finish(stream, &mut self.out);
        self.ends.push_back((self.queued + self.out.len() as u64, visit));
    }

    /// Moves the machine's output to the wire as contiguous bytes, so that it is easy to split into frames.
    fn queue(&mut self, wire: &mut WriteState) {
        wire.bytes.clear();
        wire.at = 0;
        while !self.out.is_empty() {
            let mut slices = [io::IoSlice::new(&[]); 64];
            let used = self.out.slices(&mut slices);
            let taken: usize = slices[..used].iter().map(|slice| slice.len()).sum();
            slices[..used].iter().for_each(|slice| wire.bytes.extend_from_slice(slice));
            self.out.advance(taken);
        }
        self.queued += wire.bytes.len() as u64;
    }

    /// Writes up to the end of the next larger frame, with a fresh writer, and waits for it.
    async fn write(&mut self, mut wire: WriteState) -> io::Result<WriteState> {
        let end = wire.next();
        // Fully reduced: the connection itself is the permanent writer.
        if knob::percent() == 100 && self.start_up.whole() == 0 {
            wire.write(end).await?;
            return Ok(wire);
        }
        let steps = self.start_up.draw(&mut self.random);
        // The stamps report to the profiler that the task runs after this point, and that the rest runs after the task.
        let mut stamp = Stamp::default();
        progress::before_send(&mut stamp);
        let writing = tokio::task::spawn_local(async move {
            progress::after_receive(stamp, Duration::ZERO);
            start_up(steps);
            wire.write(end).await?;
            let mut back = Stamp::default();
            progress::before_send(&mut back);
            io::Result::Ok((wire, back))
        });
        let (wire, back) = writing.await.map_err(io::Error::other)??;
        progress::after_receive(back, Duration::ZERO);
        Ok(wire)
    }

    fn note_written(&mut self, bytes: u64) {
        self.written += bytes;
        while let Some((_, visit)) = self.ends.pop_front_if(|(end, _)| *end <= self.written) {
            visit.end(self.point);
            kit::count();
        }
    }
}

impl WriteState {
    /// Returns the end of the next write: after the next larger frame, or at the end of the bytes.
    fn next(&self) -> usize {
        let mut at = self.at;
        while let Some(&[a, b, c]) = self.bytes.get(at..at + 3) {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            at += FRAME_HEAD_BYTES + length;
            if length > BUFFERED_BYTES_MAX {
                break;
            }
        }
        at.min(self.bytes.len())
    }

    async fn write(&mut self, end: usize) -> io::Result<()> {
        while self.at < end {
            progress::before_write(&mut self.stamp);
            self.at += self.stream.write(&self.bytes[self.at..end]).await?;
        }
        Ok(())
    }
}
