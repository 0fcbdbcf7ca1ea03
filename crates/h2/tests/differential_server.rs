//! Our server against the `h2` crate's client: random content, trailers, resets, windows and pieces.
#![allow(missing_docs, reason = "a test")]

mod wire;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_h2::{Event, Server, Settings};
use causeway_message::{
    BodyLength, Chunk, FieldMap, FieldValue, Framing, Head, NameRef, ResponseHead, StatusCode, StreamId, WriteList,
    names,
};
use http::HeaderMap;
use tokio::io::DuplexStream;
use wire::{Random, Wire, content};

/// An exchange in the server's view.
struct Exchange {
    received: Vec<u8>,
    complete: bool,
    answer: ResponseSpec,
    sent_head: bool,
    left: Option<Chunk>,
    unread: u32,
}

/// The response that the request's path describes: number, length, framing, trailers.
#[derive(Clone, Copy)]
struct ResponseSpec {
    number: usize,
    len: usize,
    streamed: bool,
    with_trailers: bool,
}

fn requested_response(head: &Head) -> ResponseSpec {
    let path = head.target().path().trim_start_matches('/').to_owned();
    let mut parts = path.split('/').map(|part| part.parse::<usize>().unwrap());
    let mut next = || parts.next().unwrap();
    ResponseSpec { number: next(), len: next(), streamed: next() == 1, with_trailers: next() == 1 }
}

async fn serve(io: DuplexStream, settings: Settings, mut random: Random) {
    let mut wire = Wire::new(io, random.clone());
    let mut server = Server::new(Rc::new(settings));
    let (mut head, mut out, mut input) = (Head::new(), WriteList::new(), Vec::new());
    let mut exchanges: HashMap<u32, Exchange> = HashMap::new();
    let start = Instant::now();
    let mut open = true;
    while open || !exchanges.is_empty() {
        loop {
            let handled = server.handle_bytes(start, &input, &mut head, &mut out);
            let idle = handled.consumed == 0 && handled.event.is_none();
            match handled.event {
                Some(Event::Head { stream, body, .. }) => {
                    let complete = body == BodyLength::None;
                    let answer = requested_response(&head);
                    let left = Some(Chunk::from(content(answer.number, answer.len)));
                    let exchange =
                        Exchange { received: Vec::new(), complete, answer, sent_head: false, left, unread: 0 };
                    assert!(exchanges.insert(stream.0, exchange).is_none());
                }
                Some(Event::Data { stream, range }) => {
                    let exchange = exchanges.get_mut(&stream.0).expect("an open exchange");
                    exchange.received.extend_from_slice(&input[range.clone()]);
                    exchange.unread += range.len() as u32;
                }
                Some(Event::Trailers { stream }) => {
                    assert_eq!(head.fields().get(NameRef::parse(b"x-sum").unwrap()), Some(&b"1"[..]));
                    exchanges.get_mut(&stream.0).expect("an open exchange").complete = true;
                }
                Some(Event::End { stream }) => {
                    exchanges.get_mut(&stream.0).expect("an open exchange").complete = true;
                }
                Some(Event::Reset { stream }) => assert!(exchanges.remove(&stream.0).is_some()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            input.drain(..handled.consumed);
            if idle {
                break;
            }
        }
        // Readers release bytes in random steps; streams send in the order of their rank.
        let mut order: Vec<u32> = exchanges.keys().copied().collect();
        order.sort_by_key(|id| server.rank(StreamId(*id)));
        for id in order {
            let exchange = exchanges.get_mut(&id).unwrap();
            if exchange.unread > 0 && !random.one_in(3) {
                let some = 1 + random.below(exchange.unread as usize) as u32;
                exchange.unread -= some;
                server.release(StreamId(id), some, &mut out);
            }
            if exchange.complete && progress(&mut server, StreamId(id), exchange, &mut random, &mut out) {
                exchanges.remove(&id);
            }
        }
        if !wire.write(&mut out).await {
            return;
        }
        let held = exchanges.values().any(|exchange| exchange.unread > 0);
        if open && !held {
            open = wire.read(&mut input).await;
        } else if !open {
            return;
        }
    }
}

/// Sends a part of a response; returns whether it is complete.
fn progress(
    server: &mut Server,
    id: StreamId,
    exchange: &mut Exchange,
    random: &mut Random,
    out: &mut WriteList,
) -> bool {
    let answer = exchange.answer;
    if !exchange.sent_head {
        exchange.sent_head = true;
        let mut head = ResponseHead::new(StatusCode::OK);
        let length = exchange.received.len().to_string();
        head.append(NameRef::parse(b"x-received").unwrap(), FieldValue::parse(length.as_bytes()).unwrap());
        head.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
        let framing = if answer.streamed { Framing::Stream } else { Framing::Sized(answer.len as u64) };
        if random.one_in(4) {
            server.send_interim(id, StatusCode::EARLY_HINTS, head.fields(), out);
        }
        server.send_head(id, &head, framing, b"Sun, 06 Nov 1994 08:49:37 GMT", out);
    }
    let left = exchange.left.as_mut().unwrap();
    while !left.is_empty() && server.writable(id) {
        let mut some = left.split_to((1 + random.size()).min(left.len()));
        server.send(id, &mut some, out);
        if !some.is_empty() {
            // The window is closed: put the rest back in front.
            *left = Chunk::from([some.as_slice(), left.as_slice()].concat());
            break;
        }
    }
    if !left.is_empty() {
        return false;
    }
    if answer.streamed && answer.with_trailers {
        let mut trailers = FieldMap::new();
        trailers.append(NameRef::parse(b"x-sum").unwrap(), FieldValue::from_static("2"));
        server.send_trailers(id, &trailers, out);
    }
    server.finish(id, out);
    true
}

async fn send_request(mut client: h2::client::SendRequest<Bytes>, number: usize, mut random: Random) {
    client = client.ready().await.expect("a ready connection");
    let (len, up) = (random.size(), if random.one_in(2) { random.size() } else { 0 });
    let (streamed, with_trailers) = (random.below(2), random.below(2));
    let request = http::Request::builder()
        .method(if up > 0 { "POST" } else { "GET" })
        .uri(format!("http://a.test/{number}/{len}/{streamed}/{with_trailers}"))
        .header("cookie", "a=b")
        .header("x-number", number.to_string())
        .header("accept", "text/html")
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request, up == 0).expect("a stream");
    let give_up = random.one_in(8);
    let mut sent = 0;
    while sent < up {
        if give_up && random.one_in(2) {
            return body.send_reset(h2::Reason::CANCEL);
        }
        let some = (1 + random.size()).min(up - sent);
        body.reserve_capacity(some);
        let Some(Ok(room)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else {
            panic!("exchange {number} is over");
        };
        let some = some.min(room);
        body.send_data(Bytes::from(content(number, sent + some)[sent..].to_vec()), false).unwrap();
        sent += some;
    }
    if up > 0 && random.one_in(2) {
        body.send_trailers(HeaderMap::from_iter([(
            http::HeaderName::from_static("x-sum"),
            http::HeaderValue::from_static("1"),
        )]))
        .unwrap();
    } else if up > 0 {
        body.send_data(Bytes::new(), true).unwrap();
    }
    let response = response.await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-received"], up.to_string());
    assert_eq!(response.headers()["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
    if streamed == 0 {
        assert_eq!(response.headers()["content-length"], len.to_string());
    }
    let mut answer = response.into_body();
    let mut received = Vec::new();
    while let Some(piece) = answer.data().await {
        let piece = piece.expect("content");
        received.extend_from_slice(&piece);
        answer.flow_control().release_capacity(piece.len()).unwrap();
        if give_up && random.one_in(2) {
            return;
        }
    }
    assert!(received == content(number, len), "content {number} of {len}");
    let trailers = answer.trailers().await.unwrap();
    assert_eq!(trailers.is_some(), streamed == 1 && with_trailers == 1);
}

#[test]
fn our_server_and_their_client() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for seed in 1..=8u64 {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let windows = [1, 100, 65_535, 1_000_000];
        let own = Settings {
            streams_max: [1, 5, 128][random.below(3)],
            stream_window: windows[1 + random.below(3)],
            connection_window: [65_535, 2_000_000][random.below(2)],
            header_table_bytes: [0, 100, 4096, 16_384][random.below(4)],
            encoder_table_bytes: [0, 100, 4096, 16_384][random.below(4)],
            ..Settings::default()
        };
        let streams_max = own.streams_max as usize;
        let local = tokio::task::LocalSet::new();
        let (theirs, ours) = tokio::io::duplex([100, 1000, 100_000][random.below(3)]);
        local.spawn_local(serve(ours, own, random.clone()));
        let run = local.run_until(async move {
            let (client, connection) = h2::client::Builder::new()
                .initial_window_size([100, 1000, 65_535, 1_000_000][random.below(4)])
                .initial_connection_window_size([65_535, 1_000_000][random.below(2)])
                .max_frame_size([16_384, 100_000][random.below(2)])
                .header_table_size([0, 50, 4096, 10_000][random.below(4)])
                .initial_max_send_streams(streams_max)
                .enable_push(false)
                .handshake::<_, Bytes>(theirs)
                .await
                .unwrap();
            tokio::task::spawn_local(async move { connection.await.expect("their connection ends well") });
            let exchanges: Vec<_> = (0..30)
                .map(|number| {
                    random.below(9);
                    tokio::task::spawn_local(send_request(client.clone(), number, random.clone()))
                })
                .collect();
            for exchange in exchanges {
                exchange.await.unwrap();
            }
        });
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), run).await.expect("no exchange hangs") });
    }
}
