//! A connection whose buffers have grown allocates nothing for a request and its response, if the head arrives in one
//! piece.
#![allow(missing_docs, reason = "a test")]

mod application;

use std::rc::Rc;

use application::{end, parameters, stderr, stdout};
use causeway_fastcgi::{FastCgiClient, FastCgiEvent, Limits};
use causeway_message::{Chunk, Framing, Method, ResponseHead, WriteList};
use causeway_testkit::counting::{CountingAllocator, allocations_during};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[test]
fn a_request_and_its_response() {
    let limits = Rc::new(Limits::default());
    let pairs = parameters(&[("SCRIPT_FILENAME", "/srv/www/index.php"), ("QUERY_STRING", "a=b")]);
    let content = "x".repeat(5000);
    let answer = [
        stderr("PHP Warning"),
        stdout(&format!("Content-type: text/html\r\nX-A: 1\r\n\r\n{content}")),
        stdout(&content),
        end(0, 0),
    ]
    .concat();
    let (mut head, mut out) = (ResponseHead::default(), WriteList::new());
    let mut serve = || {
        let mut client = FastCgiClient::new(Rc::clone(&limits));
        let stream = client.open(&pairs, Method::Post, Framing::Sized(3), &mut out).unwrap();
        client.send(stream, &mut Chunk::from_static(b"abc"), &mut out);
        client.finish(stream, &mut out);
        out.advance(out.len());
        let (mut at, mut bytes) = (0, 0);
        loop {
            let handled = client.handle_bytes(&answer[at..], &mut head, &mut out);
            at += handled.consumed;
            match handled.event {
                Some(FastCgiEvent::Data { range, .. }) => bytes += range.len(),
                Some(FastCgiEvent::End { .. }) => break,
                Some(FastCgiEvent::Head { .. } | FastCgiEvent::Diagnostics { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((bytes, at), (10_000, answer.len()));
    };
    serve();
    assert_eq!(allocations_during(|| (0..1000).for_each(|_| serve())), 0);
}
