//! The hot path does not allocate once its memory has grown.
#![allow(missing_docs, reason = "a test")]

use std::rc::Rc;

use causeway_h1::{Client, ClientEvent, Event, Limits, Server};
use causeway_message::{
    Chunk, FieldMap, FieldValue, Framing, Head, Method, NameRef, ResponseHead, StatusCode, WriteList, names,
};
use causeway_testkit::counting::{CountingAllocator, allocations_during};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const INPUT: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nUser-Agent: x\r\nX-Own: y\r\nCookie: a=b\r\n\r\n\
    POST http://b.test/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n\
    BREW /pot HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: foo, bar\r\n\r\nhello";

struct Conn {
    server: Server,
    head: Head,
    out: WriteList,
    response: ResponseHead,
}

impl Conn {
    fn serve(&mut self, mut input: &[u8]) {
        loop {
            let handled = self.server.handle_bytes(input, &mut self.head);
            input = &input[handled.consumed..];
            match handled.event {
                Some(Event::Head { stream, body, .. }) if !body.is_empty() => {
                    self.server.send_continue(stream, &mut self.out);
                }
                Some(Event::Head { stream, .. } | Event::Trailers { stream } | Event::End { stream }) => {
                    self.response.clear();
                    self.response.set_status(StatusCode::OK);
                    self.response.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
                    self.response.set(names::SERVER, FieldValue::from_static("Causeway"));
                    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
                    self.server.send_head(stream, &self.response, Framing::Stream, date, &mut self.out);
                    self.server.send(stream, Chunk::from_static(&[b'x'; 5000]), &mut self.out);
                    self.server.send_bytes(stream, b"hello", &mut self.out);
                    self.server.finish(stream, &mut self.out);
                    self.out.advance(self.out.len());
                }
                Some(Event::Fault { fault, .. }) => panic!("{fault:?}"),
                Some(_) => {}
                None if handled.consumed == 0 => return,
                None => {}
            }
        }
    }
}

#[test]
fn an_exchange_allocates_nothing_in_steady_state() {
    let mut conn = Conn {
        server: Server::new(Rc::new(Limits::default())),
        head: Head::new(),
        out: WriteList::new(),
        response: ResponseHead::new(StatusCode::OK),
    };
    assert!(allocations_during(|| conn.serve(INPUT)) > 0, "the counter counts");
    conn.serve(INPUT);
    assert_eq!(allocations_during(|| (0..1000).for_each(|_| conn.serve(INPUT))), 0);
    assert!(conn.server.is_idle());
}

/// A client, with a request for each framing and responses of each, including trailers and an interim response.
struct ClientExchange {
    client: Client,
    request: Head,
    trailers: FieldMap,
    head: ResponseHead,
    out: WriteList,
}

impl ClientExchange {
    fn start_request(&mut self) {
        for (framing, answer) in [
            (Framing::Empty, &b"HTTP/1.1 200 OK\r\nServer: x\r\nX-Own: y\r\nContent-Length: 5\r\n\r\nhello"[..]),
            (
                Framing::Sized(5000),
                b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200\r\nConnection: foo, bar\r\n\
                Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
            ),
            (Framing::Stream, b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n"),
        ] {
            let stream = self.client.open(&self.request, framing, &mut self.out).expect("room");
            self.client.send(stream, &mut Chunk::from_static(&[b'x'; 5000]), &mut self.out);
            self.client.send_trailers(stream, &self.trailers, &mut self.out);
            self.client.finish(stream, &mut self.out);
            self.out.advance(self.out.len());
            // In two pieces, so that a head is parsed again.
            let mut at = 0;
            for end in [15, answer.len()] {
                loop {
                    let handled = self.client.handle_bytes(&answer[at..end], &mut self.head);
                    at += handled.consumed;
                    match handled.event {
                        Some(ClientEvent::Broken { fault }) => panic!("{fault:?}"),
                        None if handled.consumed == 0 => break,
                        _ => {}
                    }
                }
            }
        }
    }
}

#[test]
fn a_request_allocates_nothing_in_steady_state() {
    let mut request = Head::new();
    request.set_method(Method::Other("BREW"));
    request.set_target("http://a.test/pot?x").expect("a target");
    let trailing = [(names::TE.into(), "trailers"), (NameRef::Other("X-Own"), "y"), (names::COOKIE.into(), "a=b")];
    for (name, value) in trailing {
        request.fields_mut().append(name, FieldValue::from_static(value));
    }
    let trailers = request.fields().clone();
    let (head, out) = (ResponseHead::default(), WriteList::new());
    let mut asking = ClientExchange { client: Client::new(Rc::new(Limits::default())), request, trailers, head, out };
    assert!(allocations_during(|| asking.start_request()) > 0, "the counter counts");
    asking.start_request();
    assert_eq!(allocations_during(|| (0..1000).for_each(|_| asking.start_request())), 0);
    assert_eq!(asking.client.room(), 1);
}

#[test]
fn new_connections_allocate_nothing() {
    let limits = Rc::new(Limits::default());
    let made = allocations_during(|| {
        let machines = (Server::new(Rc::clone(&limits)), Client::new(limits));
        std::hint::black_box((machines, Head::new(), WriteList::new(), ResponseHead::new(StatusCode::OK)));
    });
    assert_eq!(made, 0);
}
