//! Whole requests to our engine in this process, over loopback, to measure their allocations. Client and worker share a
//! core and wake each other, so the time is mostly that of two context switches.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, ListenAddress, ListenerSpec, Registry};
use serde_json::json;

use crate::TimedCase;

/// Sends requests of these bytes on one keep-alive connection. The client does not allocate.
pub fn requests(bytes: &[u8]) -> TimedCase<'_> {
    let engine = start();
    let mut stream = TcpStream::connect(engine.addresses()[0]).expect("our own listener");
    stream.set_nodelay(true).expect("a socket option");
    let mut answer = [0; 1024];
    TimedCase::new("causeway, over loopback", move || {
        // The case owns the engine; dropping it ends the worker.
        let _serving = &engine;
        stream.write_all(bytes).expect("our own server reads");
        let mut read = 0;
        while !answer[..read].ends_with(answer::BODY.as_bytes()) {
            let more = stream.read(&mut answer[read..]).expect("our own server answers");
            assert!(more > 0 && answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "no answer");
            read += more;
        }
    })
}

fn start() -> Engine {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let mut build = Build::new(&registry);
    let routes = json!([{ "handle": [{ "handler": "static_response", "body": answer::BODY }] }]);
    let spec = ServerSpec::new("bench", &routes);
    let address = ListenAddress { host: Some([127, 0, 0, 1].into()), port: 0, zone: 0 };
    let listener = ListenerSpec::new(address, build.server(&spec).expect("a good plan"));
    let spec = EngineSpec {
        workers: 1,
        listeners: vec![listener],
        plan: Arc::new(build.finish()),
        blocking: BlockingSpec::default(),
        certificates: None,
    };
    Engine::start(spec).unwrap_or_else(|error| panic!("{error}"))
}
