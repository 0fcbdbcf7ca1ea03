//! Connections handed over between workers of which only one has activated the next plan.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use causeway_message::StatusCode;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, Context, Handler, ListenAddress, Registry, Response, Step};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;

use super::*;
use crate::pools::{BlockingSpec, WorkPools};
use crate::worker::{Services, WorkerCounters};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Responds with the name of its server.
struct NameHandler;

impl Handler for NameHandler {
    fn enter(&self, cx: &mut Context) -> Step {
        let generation = Rc::clone(cx.generation());
        let name = cx.chunk(generation.plan().server_name(cx.arrival().server).as_bytes());
        Step::Respond(Response::chunk(StatusCode::OK, name))
    }
}

/// A single worker, driven by the test.
struct ListenerFixture {
    listeners: Listeners,
    /// The core refers to them weakly.
    _services: Rc<Services>,
    counters: Arc<WorkerCounters>,
    /// Stands for the socket of another worker, which hands over its connections.
    other: std::net::TcpListener,
}

impl ListenerFixture {
    fn new() -> Self {
        let counters = Arc::new(WorkerCounters::default());
        let services =
            Services::for_this_thread(92, 1024, WorkPools::new(BlockingSpec::default(), 1), Arc::clone(&counters));
        let workers = Workers { index: 0, counters: [Arc::clone(&counters)].into(), commands: Vec::new() };
        let other = std::net::TcpListener::bind(ANY).unwrap();
        let listeners = Listeners::new(Rc::clone(services.core()), workers);
        Self { listeners, _services: services, counters, other }
    }

    /// Prepares a plan with this name and these listeners; those in `new` get sockets. Returns the addresses of the
    /// sockets.
    fn prepare(&mut self, name: &str, keys: &[u64], new: &[u64]) -> Vec<SocketAddr> {
        let mut registry = Registry::default();
        registry.register_handler("name", |_, _| Ok(Box::new(NameHandler)));
        let mut build = Build::new(&registry);
        let routes = json!([{"handle": [{"handler": "name"}]}]);
        let server = build.server(&ServerSpec::new(name, &routes)).unwrap();
        let spec = ListenerSpec::new(ListenAddress { host: None, port: 0, zone: 0 }, server);
        let sockets: Vec<_> = new.iter().map(|_| std::net::TcpListener::bind(ANY).unwrap()).collect();
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let specs = keys.iter().map(|key| (ListenerKey(*key), spec.clone())).collect();
        let sockets = sockets.into_iter().map(|socket| AcceptingSocket { socket: socket.into(), path: None });
        let sockets = new.iter().map(|key| ListenerKey(*key)).zip(sockets).collect();
        let tls = keys.iter().map(|_| None).collect();
        self.listeners
            .prepare(Change { plan: Arc::new(build.finish()), specs, tls, certificates: None, sockets })
            .unwrap();
        addresses
    }

    /// Hands over a connection of this listener with a request on it. Returns the response's content.
    async fn hand_over(&mut self, key: u64) -> String {
        let mut client = std::net::TcpStream::connect(self.other.local_addr().unwrap()).unwrap();
        client.write_all(REQUEST).unwrap();
        let (stream, peer) = self.other.accept().unwrap();
        for end in [&client, &stream] {
            end.set_nonblocking(true).unwrap();
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        self.listeners.adopt(HandedConnection {
            stream,
            peer: Some(peer),
            listener: ListenerKey(key),
            stamp: progress::Stamp::default(),
        });
        last_line(TcpStream::from_std(client).unwrap()).await
    }
}

async fn send_request(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    last_line(client).await
}

async fn last_line(mut client: TcpStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer.rsplit('\n').next().unwrap().to_owned()
}

fn on_a_worker(test: impl AsyncFnOnce()) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test());
}

#[test]
fn a_connection_of_a_prepared_listener_commits_the_reload() {
    on_a_worker(async || {
        let mut bench = ListenerFixture::new();
        bench.prepare("old", &[0], &[0]);
        bench.listeners.commit();
        bench.prepare("new", &[0, 1], &[1]);
        assert_eq!(bench.hand_over(0).await, "old", "a listener of both plans does not activate the new one");
        assert_eq!(bench.hand_over(1).await, "new");
        assert_eq!(bench.hand_over(0).await, "new", "the whole plan is active");
        // The late `Commit` has no effect.
        bench.listeners.commit();
        assert_eq!(bench.hand_over(1).await, "new");
    });
}

#[test]
fn a_connection_of_a_closed_listener_is_served_by_its_plan() {
    on_a_worker(async || {
        let mut bench = ListenerFixture::new();
        let addresses = bench.prepare("old", &[0, 1], &[0, 1]);
        bench.listeners.commit();
        bench.prepare("new", &[0], &[]);
        bench.listeners.commit();
        let (done, mut closed) = mpsc::channel::<()>(1);
        bench.listeners.when_closed(done);
        assert!(closed.recv().await.is_none());
        assert!(TcpStream::connect(addresses[1]).await.is_err());
        assert_eq!(send_request(addresses[0]).await, "new");
        assert_eq!(bench.hand_over(1).await, "old");
        bench.listeners.forget(&[ListenerKey(1)]);
        assert!(bench.listeners.ended.is_empty());
    });
}

#[test]
fn abandoned_listeners_are_closed_and_freed() {
    on_a_worker(async || {
        let mut bench = ListenerFixture::new();
        let addresses = bench.prepare("given up", &[0], &[0]);
        let plan = bench.listeners.prepared.as_ref().map(|prepared| Rc::downgrade(&prepared.generation)).unwrap();
        bench.listeners.abandon();
        assert!(plan.upgrade().is_none());
        assert!(TcpStream::connect(addresses[0]).await.is_err());
        bench.listeners.commit();
        assert!(bench.listeners.open.is_empty());
    });
}
