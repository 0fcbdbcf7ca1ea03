//! A handler that sends every request on to `127.0.0.1:PORT`, where the path begins with `/forward/PORT`, as HTTP/1.1, or with
//! `/forward2/PORT` as HTTP/2 by prior knowledge; a path behind that is the path there. What belongs to connections is the
//! engine's; it changes nothing else.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_message::{FieldValue, StatusCode, names};
use causeway_pipeline::upstream::Answer;
use causeway_pipeline::{
    Body, Call, CallFault, Context, Fault, Reason, Response, Step, TlsClient, Transport, Upstream, Versions,
};

type Places = HashMap<(u64, Versions, bool), Rc<dyn Upstream>>;

thread_local! {
    static PLACES: RefCell<Places> = RefCell::default();
}

/// What a test wants to be otherwise for a port: the address that is called in its place, and how.
static WISHES: Mutex<BTreeMap<u64, (String, Transport)>> = Mutex::new(BTreeMap::new());

/// Calls for `port` go to `address`, and are carried as `tweak` leaves it.
pub(crate) fn wish(port: u16, address: &str, tweak: impl FnOnce(&mut Transport)) {
    let mut wished = transport(Versions::Http1, false);
    tweak(&mut wished);
    WISHES.lock().unwrap().insert(u64::from(port), (address.to_owned(), wished));
}

/// The place for a port, made anew.
fn place(cx: &Context, port: u64, versions: Versions, tls: bool) -> Rc<dyn Upstream> {
    let wish = WISHES.lock().unwrap().get(&port).cloned();
    let (address, transport) = wish.unwrap_or_else(|| (format!("127.0.0.1:{port}"), transport(versions, tls)));
    cx.worker().upstream(&address, &Arc::new(transport))
}

/// What every call of these tests is carried by.
fn transport(versions: Versions, tls: bool) -> Transport {
    Transport {
        versions,
        tls: tls.then(|| Arc::new(TlsClient { insecure: true, ..TlsClient::default() })),
        connect_timeout: Duration::from_secs(2),
        head_timeout: Some(Duration::from_secs(1)),
        read_timeout: Some(Duration::from_secs(1)),
        idle_timeout: Duration::from_secs(5),
        ..Transport::default()
    }
}

pub(crate) fn forward(cx: &mut Context, port: u64, versions: Versions, tls: bool) -> Step {
    let place = PLACES.with_borrow_mut(|places| {
        Rc::clone(places.entry((port, versions, tls)).or_insert_with(|| place(cx, port, versions, tls)))
    });
    carry(cx, &place)
}

/// As [`forward`], to a place that nobody keeps.
pub(crate) fn forward_once(cx: &mut Context, port: u64) -> Step {
    let place = place(cx, port, Versions::Http1, false);
    carry(cx, &place)
}

/// Says how many records of calls are lent.
pub(crate) fn calls_lent(cx: &mut Context) -> Step {
    let place = cx.worker().upstream("127.0.0.1:1", &Arc::new(Transport::default()));
    let lent = place.calls().lent().to_string();
    let chunk = cx.chunk(lent.as_bytes());
    Step::Respond(Response::chunk(StatusCode::OK, chunk))
}

fn carry(cx: &mut Context, place: &Rc<dyn Upstream>) -> Step {
    let call = place.calls().take();
    call.request_mut().copy_from(cx.head());
    // What stands behind the port is the target there.
    let target = cx.head().target().as_str();
    if target.starts_with('/')
        && let Some((behind, _)) = target.match_indices('/').nth(2)
    {
        call.request_mut().set_target(&target[behind..]).expect("a part of a target");
    }
    let body = cx.take_body().expect("nobody else took it");
    if cx.arrival().upgrade {
        call.send(Body::Tunnel(Box::new(body)), &**place);
    } else {
        call.request_mut().fields_mut().remove(names::UPGRADE);
        call.send(Body::Incoming(body), &**place);
    }
    wait(cx, call)
}

fn wait(cx: &mut Context, call: Call) -> Step {
    let mut call = Some(call);
    let asked = poll_fn(move |task| {
        let waiting = call.as_mut().expect("polled until it is ready");
        waiting.poll_answer(task).map(|answer| (call.take().expect("it was there"), answer))
    });
    cx.wait(asked, |cx, (call, answer)| match answer {
        Ok(Answer::Interim(status, fields)) => {
            cx.inform(status, *fields);
            wait(cx, call)
        }
        Ok(Answer::Head { tunnel }) => {
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
                CallFault::RequestBody(fault) => return Step::Fail(Fault::body(*fault)),
                CallFault::HeadTimedOut | CallFault::ConnectTimedOut => StatusCode::GATEWAY_TIMEOUT,
                CallFault::Busy => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_GATEWAY,
            };
            Step::Fail(Fault { status, reason: Reason::Text(fault.to_string().into()) })
        }
    })
}
