//! A handler that forwards every request to `127.0.0.1:PORT`: over HTTP/1.1 when the path begins with `/forward/PORT`,
//! over HTTP/2 with prior knowledge when it begins with `/forward2/PORT`. The rest of the path is the forwarded path.
//! The engine handles the fields that belong to connections; the handler changes no further ones.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_fastcgi::put_parameter;
use causeway_message::syntax::write_number;
use causeway_message::{Chunk, FieldValue, Method, StatusCode, names};
use causeway_pipeline::upstream::CallEvent;
use causeway_pipeline::{
    Body, Call, CallError, Context, Fault, Reason, Response, Step, TlsClient, Upstream, UpstreamTransport, Versions,
};

/// By the port and the number of its use, the versions, and whether TLS is used.
type UpstreamMap = HashMap<(u64, u64, Versions, bool), Rc<dyn Upstream>>;

thread_local! {
    static PLACES: RefCell<UpstreamMap> = RefCell::default();
}

/// The use of a port by one test. The kernel gives a port that is free again to other tests of the process.
#[derive(Clone, Default)]
struct PortUse {
    number: u64,
    /// The address to call in place of the port, and the transport.
    overrides: Option<(String, UpstreamTransport)>,
}

static PORT_USES: Mutex<BTreeMap<u64, PortUse>> = Mutex::new(BTreeMap::new());

fn use_port(port: u16, overrides: Option<(String, UpstreamTransport)>) {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    PORT_USES.lock().unwrap().insert(u64::from(port), PortUse { number, overrides });
}

/// Redirects calls for `port` to `address`, over the transport that `tweak` adjusts.
pub(crate) fn override_transport(port: u16, address: &str, tweak: impl FnOnce(&mut UpstreamTransport)) {
    let mut overridden = transport(Versions::Http1, false);
    tweak(&mut overridden);
    use_port(port, Some((address.to_owned(), overridden)));
}

/// Begins a test's use of a port, without overrides.
pub(crate) fn begin_port(port: u16) {
    use_port(port, None);
}

fn port_use(port: u64) -> PortUse {
    PORT_USES.lock().unwrap().get(&port).cloned().unwrap_or_default()
}

/// Creates the upstream for a port.
fn place(cx: &Context, port: u64, port_use: PortUse, versions: Versions, tls: bool) -> Rc<dyn Upstream> {
    let (address, transport) =
        port_use.overrides.unwrap_or_else(|| (format!("127.0.0.1:{port}"), transport(versions, tls)));
    cx.worker().upstream(&address, &Arc::new(transport))
}

/// The timeouts of the default transport: longer than a slow machine delays an upstream of a test.
const UPSTREAM_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the default transport of these tests.
fn transport(versions: Versions, tls: bool) -> UpstreamTransport {
    UpstreamTransport {
        versions,
        tls: tls.then(|| Arc::new(TlsClient { insecure: true, ..TlsClient::default() })),
        connect_timeout: UPSTREAM_PATIENCE,
        head_timeout: Some(UPSTREAM_PATIENCE),
        read_timeout: Some(UPSTREAM_PATIENCE),
        idle_timeout: Duration::from_secs(5),
        ..UpstreamTransport::default()
    }
}

pub(crate) fn forward(cx: &mut Context, port: u64, versions: Versions, tls: bool) -> Step {
    let port_use = port_use(port);
    let place = PLACES.with_borrow_mut(|places| {
        let key = (port, port_use.number, versions, tls);
        Rc::clone(places.entry(key).or_insert_with(|| place(cx, port, port_use, versions, tls)))
    });
    carry(cx, &place)
}

/// Like [`forward`], to an upstream that is dropped after the call.
pub(crate) fn forward_once(cx: &mut Context, port: u64) -> Step {
    let place = place(cx, port, port_use(port), Versions::Http1, false);
    carry(cx, &place)
}

/// Drops the upstreams of a port, as the upstream of a name does with an address that the name does not have any more.
pub(crate) fn forget(cx: &mut Context, port: u64) -> Step {
    PLACES.with_borrow_mut(|places| places.retain(|(known, ..), _| *known != port));
    let chunk = cx.chunk(b"forgotten");
    Step::Respond(Response::chunk(StatusCode::OK, chunk))
}

/// Responds with the number of call records in use.
pub(crate) fn calls_lent(cx: &mut Context) -> Step {
    let place = cx.worker().upstream("127.0.0.1:1", &Arc::new(UpstreamTransport::default()));
    let lent = place.calls().lent().to_string();
    let chunk = cx.chunk(lent.as_bytes());
    Step::Respond(Response::chunk(StatusCode::OK, chunk))
}

fn carry(cx: &mut Context, place: &Rc<dyn Upstream>) -> Step {
    let call = place.calls().take();
    call.request_mut().copy_from(cx.head());
    // The path after the port is the forwarded target.
    let target = cx.head().target().as_str();
    if target.starts_with('/')
        && let Some((path_start, _)) = target.match_indices('/').nth(2)
    {
        call.request_mut().set_target(&target[path_start..]).expect("a part of a target");
    }
    // Only FastCGI uses them.
    let mut digits = [0; 20];
    let length = write_number(cx.body_len().unwrap_or_default(), &mut digits);
    put_parameter(b"CONTENT_LENGTH", length, &mut call.parameters_mut());
    let body = cx.take_body().expect("taken only here");
    if cx.arrival().upgrade {
        // An extended CONNECT (RFC 8441) is an Upgrade over HTTP/1.
        call.request_mut().set_method(Method::Get);
        call.send(Body::tunnel(Chunk::default(), body), &**place);
    } else {
        call.request_mut().fields_mut().remove(names::UPGRADE);
        call.send(Body::Incoming(body), &**place);
    }
    wait(cx, call)
}

fn wait(cx: &mut Context, call: Call) -> Step {
    let mut call = Some(call);
    let pending_call = poll_fn(move |poll_cx| {
        let waiting = call.as_mut().expect("polled until it is ready");
        waiting.poll_event(poll_cx).map(|answer| (call.take().expect("it was there"), answer))
    });
    cx.wait(pending_call, |cx, (call, answer)| match answer {
        Ok(CallEvent::Interim(status, fields)) => {
            cx.push_interim(status, *fields);
            wait(cx, call)
        }
        Ok(CallEvent::Head { tunnel }) => {
            let status = call.head().status();
            for (name, value) in call.head().fields().iter() {
                cx.response_mut().append(name, FieldValue::parse(value).expect("it was one"));
            }
            let body = call.into_body();
            if tunnel {
                return Step::Respond(Response::switch(body));
            }
            Step::Respond(Response { status, body: Body::Incoming(body) })
        }
        Err(fault) => {
            let status = match &fault {
                CallError::RequestBody(fault) => return Step::Fail(Fault::from_body_error(*fault)),
                CallError::HeadTimedOut | CallError::ConnectTimedOut => StatusCode::GATEWAY_TIMEOUT,
                CallError::Busy | CallError::QueueTimedOut | CallError::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_GATEWAY,
            };
            Step::Fail(Fault { status, reason: Reason::Text(fault.to_string().into()) })
        }
    })
}
