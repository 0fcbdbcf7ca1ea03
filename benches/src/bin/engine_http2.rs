//! Causeway's engine embedded in a program, over HTTP/2 with or without TLS: twelve fields and a short text or a page.
//! It records request times: from the reading of the head, by the worker's clock, until the kernel has accepted the
//! last byte of the response. Usage: `engine_http2 PORT PORT_OF_TIMES [page] [CERTIFICATE KEY]`.

use std::sync::Arc;
use std::time::Instant;

use answer::times::Times;
use causeway_engine::certificate::{CertificateDer, CertifiedKey, PemObject, PrivateKeyDer, certified_key};
use causeway_engine::{BlockingSpec, Certificates, Engine, EngineSpec};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Build, Context, Handler, ListenAddress, ListenerSpec, Outcome, Registry, Step, TlsPolicy, TlsSpec,
};
use serde_json::{Map, Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut number = || arguments.next()?.parse::<u16>().ok();
    let (Some(port), Some(told)) = (number(), number()) else {
        panic!("usage: engine_http2 PORT PORT_OF_TIMES [page] [CERTIFICATE KEY]")
    };
    let body = arguments.next_if_eq("page").map_or(answer::BODY.to_owned(), |_| answer::page());
    let keys = arguments.next().zip(arguments.next()).map(|(certificate, key)| Keys::read(&certificate, &key));

    let times = Times::told_on(told).unwrap_or_else(|error| panic!("port {told}: {error}"));
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry.register_handler("timed", move |_, _| Ok(Box::new(Timed(times.clone()))));
    let mut build = Build::new(&registry);
    let fields = answer::FIELDS.map(|(name, value)| (name.to_owned(), json!([value])));
    let fields: Map<String, Value> = fields.into_iter().collect();
    let answer = json!({ "handler": "static_response", "headers": fields, "body": body });
    let routes = json!([{ "handle": [{ "handler": "timed" }, answer] }]);
    let server = build.server(&ServerSpec::new("bench", &routes)).unwrap_or_else(|error| panic!("{error}"));
    let mut listener = ListenerSpec::new(ListenAddress { host: Some([127, 0, 0, 1].into()), port, zone: 0 }, server);
    if keys.is_some() {
        listener.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
    }
    let engine = Engine::start(EngineSpec {
        workers: 1,
        listeners: vec![listener],
        plan: Arc::new(build.finish()),
        blocking: BlockingSpec::default(),
        certificates: keys.map(|keys| Arc::new(keys) as Arc<dyn Certificates>),
    });
    let _engine = engine.unwrap_or_else(|error| panic!("{error}"));
    // Serve until a signal ends the process.
    loop {
        std::thread::park();
    }
}

/// Records the time of each exchange at its end.
struct Timed(Times);

impl Handler for Timed {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }

    fn end(&self, cx: &Context, _: &Outcome) {
        self.0.add(Instant::now() - cx.arrival().at);
    }
}

/// One certificate for every server name.
#[derive(Debug)]
struct Keys(Arc<CertifiedKey>);

impl Keys {
    fn read(certificate: &str, key: &str) -> Self {
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain = chain.unwrap_or_else(|error| panic!("{certificate}: {error}"));
        let key = PrivateKeyDer::from_pem_file(key).unwrap_or_else(|error| panic!("{key}: {error}"));
        Self(Arc::new(certified_key(chain, key).unwrap_or_else(|error| panic!("{error}"))))
    }
}

impl Certificates for Keys {
    fn find(&self, _: Option<&str>, _: &[String], _: &dyn Fn(&CertifiedKey) -> bool) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
