//! Reloads while streams are open: how many of them a reload cuts, how many requests beside them fail, and the memory.
//!
//! Each client sends a number in every tick and expects it back; for server-sent events the upstream alone sends. A
//! stream counts as cut when it ends or breaks before the bench ends it, and as stalled when its upstream's last
//! numbers did not arrive.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::reloads::{live_plans, metrics, under_load};
use super::{Extent, PEERS};
use crate::configurations::{self, Admin};
use crate::peers;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::server::{Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::workshop::Workshop;

/// The kinds of streams, and how many of each are open.
const KINDS: [(StreamKind, &str, usize); 3] = [
    (StreamKind::Socket, "WebSockets", 200),
    (StreamKind::Events, "event streams", 200),
    (StreamKind::Grpc, "gRPC streams", 50),
];
/// The pause between two messages of a stream.
const TICK: Duration = Duration::from_millis(500);
/// A stream without a message for this long is stalled.
const STALLED: Duration = Duration::from_secs(20);
/// The time in which all streams must be open.
const OPEN_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Socket,
    Events,
    Grpc,
}

/// The state of all streams of one kind.
#[derive(Default)]
struct Counts {
    open: AtomicU64,
    cut: AtomicU64,
    messages: AtomicU64,
}

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Table> {
    let mut rows = Vec::new();
    for name in PEERS {
        match measure(shop, name, extent, progress) {
            Ok(row) => rows.push(row),
            Err(error) => skip(shop, &format!("reloads of {name} with streams"), &error),
        }
    }
    Ok(Table {
        name: "streams".to_owned(),
        title: format!("{} reloads while streams are open", extent.streamed),
        how: format!(
            "Through `reverse_proxy`: {} WebSockets, {} streams of server-sent events, and {} gRPC streams over h2c, each with a message every \
             {} ms; POST /load and wrk as above. A stream is cut if it ends before the bench ends it.",
            KINDS[0].2,
            KINDS[1].2,
            KINDS[2].2,
            TICK.as_millis()
        ),
        chart: Some(Chart { bars: vec!["one reload".to_owned()], label: Some("streams cut".to_owned()) }),
        rows,
    })
}

fn measure(shop: &mut Workshop, name: &'static str, extent: &Extent, progress: &Progress) -> Result<Row> {
    let recipe = peers::recipe(name)?;
    let tool = peers::obtain(shop, recipe)?;
    let (port, admin) = (free_port()?, free_port()?);
    let upstream = Background::start("upstream", upstream)?;
    let (plain, h2c) = upstream.addresses;
    let texts = [1, 2].map(|edition| configurations::streams(port, Admin::Port(admin), plain, h2c, edition));
    let launch = peers::configured(shop, &tool, name, &format!("{port}-streams.Caddyfile"), &texts[0])?;
    let all = Cores::First(std::thread::available_parallelism()?.get());
    let server = PeerServer::start_launch(shop, recipe, launch, port, all)?;
    let counts: Arc<[Counts; KINDS.len()]> = Arc::default();
    let (address, own) = (server.address, Arc::clone(&counts));
    let clients = Background::start("clients", move |_, ends| clients(address, own, ends))?;
    let all_open = || {
        KINDS.iter().zip(&*counts).all(|((_, _, wanted), counts)| counts.open.load(Ordering::Relaxed) == *wanted as u64)
    };
    let began = Instant::now();
    while !all_open() {
        ensure!(began.elapsed() < OPEN_MAX, "not all streams could be opened");
        std::thread::sleep(TICK / 10);
    }
    let (reloads, load) = under_load(shop, &server, admin, &texts, name, extent.streamed, progress)?;
    // A message in each direction after the last reload.
    std::thread::sleep(2 * TICK);
    let cut = |index: usize| counts[index].cut.load(Ordering::Relaxed) as f64;
    let mut row = Row::new(name);
    row.metrics = vec![Metric::count("streams cut", "", vec![(0..KINDS.len()).map(cut).sum()])];
    row.metrics.extend(
        KINDS
            .iter()
            .enumerate()
            .map(|(index, (_, kind, count))| Metric::count(&format!("of {count} {kind}"), "", vec![cut(index)])),
    );
    let messages = counts.iter().map(|counts| counts.messages.load(Ordering::Relaxed)).sum::<u64>();
    row.metrics.push(Metric::count("messages", "", vec![messages as f64]));
    row.metrics.extend(metrics(reloads, load));
    row.metrics.extend(live_plans(admin)?.map(|plans| Metric::count("plans with open streams", "", vec![plans])));
    drop(clients);
    drop(upstream);
    // The plan of the streams is freed with them.
    std::thread::sleep(TICK);
    row.metrics.extend(live_plans(admin)?.map(|plans| Metric::count("plans after them", "", vec![plans])));
    Ok(row)
}

/// A thread with a runtime; dropping it ends its tasks.
struct Background {
    addresses: (SocketAddr, SocketAddr),
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    /// Runs `work` in a new thread. It gets two listeners at free ports, and a flag that is set when it is to end.
    fn start<F: Future<Output = ()>>(
        name: &str,
        work: impl FnOnce([TcpListener; 2], Arc<AtomicBool>) -> F + Send + 'static,
    ) -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let its_end = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            LocalSet::new().block_on(&runtime, async move {
                let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
                let listeners = [bind().await.expect("a free port"), bind().await.expect("a free port")];
                let address = |index: usize| listeners[index].local_addr().expect("a bound listener");
                let _ = send.send((address(0), address(1)));
                work(listeners, its_end).await;
            });
        })?;
        Ok(Self { addresses: receive.recv().context("the thread has ended")?, ends, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn ended(ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        sleep(TICK / 10).await;
    }
}

/// Serves WebSockets (every byte is sent back) and server-sent events at the first listener, and gRPC at the second.
async fn upstream([plain, h2c]: [TcpListener; 2], ends: Arc<AtomicBool>) {
    spawn_local(async move {
        while let Ok((stream, _)) = plain.accept().await {
            spawn_local(serve_plain(stream));
        }
    });
    spawn_local(async move {
        while let Ok((stream, _)) = h2c.accept().await {
            spawn_local(serve_grpc(stream));
        }
    });
    ended(&ends).await;
}

async fn serve_plain(mut stream: TcpStream) -> std::io::Result<()> {
    let head = head(&mut stream).await?;
    if head.starts_with(b"GET /socket ") {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        stream.write_all(switch.as_bytes()).await?;
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await?;
        return Ok(());
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    loop {
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").await?;
        sleep(TICK).await;
    }
}

async fn serve_grpc(stream: TcpStream) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        spawn_local(async move {
            let head = http_response();
            let mut to = respond.send_response(head, false)?;
            let mut from = request.into_body();
            while let Some(message) = from.data().await {
                let message = message?;
                from.flow_control().release_capacity(message.len())?;
                to.send_data(message, false)?;
            }
            anyhow::Ok(())
        });
    }
    Ok(())
}

fn http_response() -> hyper::Response<()> {
    let head = hyper::Response::builder().header("content-type", "application/grpc");
    head.body(()).expect("a valid head")
}

/// Reads a head; content must come later.
async fn head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

async fn clients(server: SocketAddr, counts: Arc<[Counts; KINDS.len()]>, ends: Arc<AtomicBool>) {
    for (index, (kind, _, count)) in KINDS.into_iter().enumerate() {
        for _ in 0..count {
            let counts = Arc::clone(&counts);
            spawn_local(async move {
                let counts = &counts[index];
                // It returns only when the stream has ended.
                let _ = match kind {
                    StreamKind::Socket => socket(server, counts).await,
                    StreamKind::Events => events(server, counts).await,
                    StreamKind::Grpc => grpc(server, counts).await,
                };
                counts.cut.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    ended(&ends).await;
}

async fn socket(server: SocketAddr, counts: &Counts) -> Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    let request = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    ensure!(head(&mut stream).await?.starts_with(b"HTTP/1.1 101 "), "no WebSocket");
    counts.open.fetch_add(1, Ordering::Relaxed);
    for number in 0_u64.. {
        stream.write_all(&number.to_be_bytes()).await?;
        ensure!(timeout(STALLED, stream.read_u64()).await?? == number, "another message");
        counts.messages.fetch_add(1, Ordering::Relaxed);
        sleep(TICK).await;
    }
    Ok(())
}

async fn events(server: SocketAddr, counts: &Counts) -> Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    ensure!(head(&mut stream).await?.starts_with(b"HTTP/1.1 200 "), "no events");
    counts.open.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 256];
    loop {
        let read = timeout(STALLED, stream.read(&mut bytes)).await??;
        ensure!(read > 0 && !bytes[..read].ends_with(b"0\r\n\r\n"), "the end");
        counts.messages.fetch_add(1, Ordering::Relaxed);
    }
}

async fn grpc(server: SocketAddr, counts: &Counts) -> Result<()> {
    let stream = TcpStream::connect(server).await?;
    let (client, connection) = h2::client::handshake(stream).await?;
    spawn_local(connection);
    let mut client = client.ready().await?;
    let request = hyper::Request::post(format!("http://{server}/grpc")).header("content-type", "application/grpc");
    let (response, mut to) = client.send_request(request.body(())?, false)?;
    let message = |number: u64| {
        let mut message = vec![0, 0, 0, 0, 8];
        message.extend_from_slice(&number.to_be_bytes());
        Bytes::from(message)
    };
    to.send_data(message(0), false)?;
    let response = timeout(STALLED, response).await??;
    ensure!(response.status() == 200, "no gRPC");
    counts.open.fetch_add(1, Ordering::Relaxed);
    let mut from = response.into_body();
    for number in 0_u64.. {
        let expected = message(number);
        let mut got = Vec::new();
        while got.len() < expected.len() {
            let part = timeout(STALLED, from.data()).await?.context("the end")??;
            from.flow_control().release_capacity(part.len())?;
            got.extend_from_slice(&part);
        }
        ensure!(got == expected, "another message");
        counts.messages.fetch_add(1, Ordering::Relaxed);
        sleep(TICK).await;
        to.send_data(message(number + 1), false)?;
    }
    Ok(())
}
