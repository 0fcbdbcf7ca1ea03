//! The hot path does not allocate once its memory has grown.
#![allow(missing_docs, reason = "a test")]

mod peer;

use std::rc::Rc;
use std::time::Instant;

use causeway_h2::{Client, ClientEvent, Event, Server, Settings};
use causeway_message::{Chunk, FieldValue, Framing, Head, ResponseHead, Scheme, StatusCode, WriteList, names};
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use peer::{
    DATE, END_STREAM, GET_FIELDS, POST_FIELDS, PREFACE, data, headers, settings, settings_ack, window_update, with,
};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

struct Conn {
    server: Server,
    head: Head,
    out: WriteList,
    response: ResponseHead,
    now: Instant,
}

impl Conn {
    fn serve(&mut self, mut input: &[u8]) {
        loop {
            let handled = self.server.handle_bytes(self.now, input, &mut self.head, &mut self.out);
            input = &input[handled.consumed..];
            match handled.event {
                Some(Event::Head { stream, body, .. }) if !body.is_empty() => {
                    self.server.send_continue(stream, &mut self.out);
                }
                Some(Event::Data { stream, range }) => {
                    self.server.release(stream, range.len() as u32, &mut self.out);
                }
                Some(Event::Head { stream, .. } | Event::Trailers { stream } | Event::End { stream }) => {
                    self.response.clear();
                    self.response.set_status(StatusCode::OK);
                    self.response.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
                    self.response.set(names::SERVER, FieldValue::from_static("Causeway"));
                    self.server.send_head(stream, &self.response, Framing::Stream, DATE, &mut self.out);
                    self.server.send(stream, &mut Chunk::from_static(&[b'x'; 5000]), &mut self.out);
                    self.server.send(stream, &mut Chunk::from_static(b"hello"), &mut self.out);
                    self.server.send_trailers(stream, self.response.fields(), &mut self.out);
                    self.server.finish(stream, &mut self.out);
                }
                Some(other) => panic!("{other:?}"),
                None if handled.consumed == 0 => break,
                None => {}
            }
        }
        self.out.advance(self.out.len());
    }
}

/// Three requests on new streams: one plain, one with an unregistered field and cookies, one with content and
/// trailers.
fn requests(first: u32) -> Vec<u8> {
    let own = with(GET_FIELDS, &[("x-own", "y"), ("cookie", "a=b"), ("cookie", "c=d"), ("priority", "u=1, i")]);
    let expecting = with(POST_FIELDS, &[("expect", "100-continue"), ("content-length", "5")]);
    [
        headers(first, END_STREAM, GET_FIELDS),
        headers(first + 2, END_STREAM, &own),
        headers(first + 4, 0, &expecting),
        data(first + 4, 0, b"hello"),
        headers(first + 4, END_STREAM, &[("x-sum", "1")]),
        window_update(0, 15_015),
    ]
    .concat()
}

#[test]
fn an_exchange_allocates_nothing_in_steady_state() {
    let mut conn = Conn {
        server: Server::new(Rc::new(Settings::default())),
        head: Head::new(),
        out: WriteList::new(),
        response: ResponseHead::new(StatusCode::OK),
        now: Instant::now(),
    };
    conn.serve(&[PREFACE, &settings(&[]), &settings_ack()].concat());
    assert!(allocations_during(|| conn.serve(&requests(1))) > 0, "the counter counts");
    (1..20).for_each(|at| conn.serve(&requests(at * 6 + 1)));
    let inputs: Vec<Vec<u8>> = (20..1020).map(|at| requests(at * 6 + 1)).collect();
    assert_eq!(allocations_during(|| inputs.iter().for_each(|input| conn.serve(input))), 0);
    assert!(conn.server.is_idle());
}

#[test]
fn a_client_exchange_allocates_nothing_in_steady_state() {
    let mut client = Client::new(Rc::new(Settings::client()));
    let (mut head, mut out, now) = (ResponseHead::new(StatusCode::OK), WriteList::new(), Instant::now());
    let mut request = Head::new();
    request.set_target("/a?b").unwrap();
    request.fields_mut().insert(names::HOST, FieldValue::from_static("a.test"));
    request.fields_mut().insert(names::USER_AGENT, FieldValue::from_static("causeway"));
    let mut run = |response: &[u8]| {
        if !response.is_empty() {
            client.open(&request, Scheme::Https, Framing::Sized(5), &mut out).unwrap();
        }
        let mut input = response;
        loop {
            let handled = client.handle_bytes(now, input, &mut head, &mut out);
            input = &input[handled.consumed..];
            match handled.event {
                Some(ClientEvent::Head { stream, .. }) => {
                    client.send(stream, &mut Chunk::from_static(b"hello"), &mut out);
                    client.finish(stream, &mut out);
                }
                Some(ClientEvent::Data { stream, range }) => client.release(stream, range.len() as u32, &mut out),
                Some(ClientEvent::End { .. }) => {}
                Some(other) => panic!("{other:?}"),
                None if handled.consumed == 0 => break,
                None => {}
            }
        }
        out.advance(out.len());
    };
    let response = |stream: u32| {
        let fields = [(":status", "200"), ("server", "x"), ("x-own", "y"), ("content-length", "5")];
        [headers(stream, 0, &fields), data(stream, END_STREAM, b"hello"), window_update(0, 5)].concat()
    };
    let first = [settings(&[]), settings_ack(), response(1)].concat();
    assert!(allocations_during(|| run(&first)) > 0, "the counter counts");
    (1..50).for_each(|at| run(&response(at * 2 + 1)));
    let inputs: Vec<Vec<u8>> = (50..1050).map(|at| response(at * 2 + 1)).collect();
    assert_eq!(allocations_during(|| inputs.iter().for_each(|input| run(input))), 0);
    assert!(client.is_idle());
}

#[test]
fn new_connections_allocate_nothing() {
    let settings = Rc::new(Settings::default());
    let made = allocations_during(|| {
        std::hint::black_box((Server::new(Rc::clone(&settings)), Client::new(settings)));
    });
    assert_eq!(made, 0);
}
