//! A handler that sends every request on to `127.0.0.1:PORT`, where the path begins with `/forward/PORT`, as HTTP/1.1, or with
//! `/forward2/PORT` as HTTP/2 by prior knowledge; a path behind that is the path there. What belongs to connections is the
//! engine's; it changes nothing else.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
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
        let made = || cx.worker().upstream(&format!("127.0.0.1:{port}"), &Arc::new(transport(versions, tls)));
        Rc::clone(places.entry((port, versions, tls)).or_insert_with(made))
    });
    let call = place.calls().take();
    call.request_mut().copy_from(cx.head());
    // What stands behind the port is the target there.
    if let Some((_, rest)) = cx.head().target().as_str()[1..].split_once(&format!("/{port}/")) {
        call.request_mut().set_target(format!("/{rest}")).expect("a part of a target");
    }
    let body = cx.take_body().expect("nobody else took it");
    if cx.arrival().upgrade {
        call.send(Body::Tunnel(Box::new(body)), &*place);
    } else {
        call.request_mut().fields_mut().remove(names::UPGRADE);
        call.send(Body::Incoming(body), &*place);
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
                CallFault::HeadTimedOut => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            };
            Step::Fail(Fault { status, reason: Reason::Text(fault.to_string().into()) })
        }
    })
}
