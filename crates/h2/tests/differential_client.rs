//! Our client against the `h2` crate's server: random content, trailers, resets, windows and pieces.
#![allow(missing_docs, reason = "a test")]

mod wire;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_h2::{Client, ClientEvent, Settings};
use causeway_message::{
    BodyLength, Chunk, FieldMap, FieldValue, Framing, Head, Method, NameRef, OpenError, ResponseHead, Scheme,
    StatusCode, StreamId, WriteList, names,
};
use http::HeaderMap;
use tokio::io::DuplexStream;
use wire::{Random, Wire, content};

struct Exchange {
    number: usize,
    asked: usize,
    up: usize,
    left: Chunk,
    trailers: bool,
    sent: bool,
    received: Vec<u8>,
    status: Option<StatusCode>,
    complete: bool,
    unread: u32,
    gives_up: bool,
}

fn number(head: &ResponseHead, name: &str) -> usize {
    let value = head.fields().get(NameRef::parse(name.as_bytes()).unwrap()).expect(name);
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Runs `count` exchanges and returns the number that the server refused or reset.
async fn run(io: DuplexStream, settings: Settings, mut random: Random, count: usize) -> usize {
    let mut wire = Wire::new(io, random.clone());
    let mut client = Client::new(Rc::new(settings));
    let (mut head, mut out, mut input) = (ResponseHead::default(), WriteList::new(), Vec::new());
    let mut exchanges: HashMap<u32, Exchange> = HashMap::new();
    let (mut begun, mut refused) = (0, 0);
    let start = Instant::now();
    while begun < count || !exchanges.is_empty() {
        while begun < count {
            let (len, up) = (random.size(), random.size());
            let mut request = Head::new();
            request.set_method(if up > 0 { Method::Post } else { Method::Get });
            request.set_target(format!("/{begun}/{len}/{}", random.below(2))).unwrap();
            request.fields_mut().insert(names::HOST, FieldValue::from_static("a.test"));
            request.fields_mut().insert(names::ACCEPT, FieldValue::from_static("text/html"));
            let framing = match random.below(2) {
                _ if up == 0 => Framing::Empty,
                0 => Framing::Sized(up as u64),
                _ => Framing::Stream,
            };
            match client.open(&request, Scheme::Http, framing, &mut out) {
                Ok(id) => {
                    let exchange = Exchange {
                        number: begun,
                        asked: len,
                        up,
                        left: Chunk::from(content(begun, up)),
                        trailers: framing == Framing::Stream && random.one_in(2),
                        sent: up == 0,
                        received: Vec::new(),
                        status: None,
                        complete: false,
                        unread: 0,
                        gives_up: random.one_in(8),
                    };
                    exchanges.insert(id.0, exchange);
                    begun += 1;
                }
                Err(OpenError::Full) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        loop {
            let handled = client.handle_bytes(start, &input, &mut head, &mut out);
            let idle = handled.consumed == 0 && handled.event.is_none();
            if let Some(event) = handled.event {
                refused += note(event, &head, &input, &mut exchanges);
            }
            input.drain(..handled.consumed);
            if idle {
                break;
            }
        }
        let mut order: Vec<u32> = exchanges.keys().copied().collect();
        order.sort_by_key(|id| client.rank(StreamId(*id)));
        for id in order {
            if progress(&mut client, StreamId(id), exchanges.get_mut(&id).unwrap(), &mut random, &mut out) {
                exchanges.remove(&id);
            }
        }
        assert!(wire.write(&mut out).await);
        let held = exchanges.values().any(|exchange| exchange.unread > 0);
        // Without an open exchange the server has nothing to send.
        if !held && !exchanges.is_empty() && !wire.read(&mut input).await {
            panic!("the server is gone");
        }
    }
    assert_eq!(client.streams(), 0);
    refused
}

fn note(event: ClientEvent, head: &ResponseHead, input: &[u8], exchanges: &mut HashMap<u32, Exchange>) -> usize {
    match event {
        ClientEvent::Head { stream, body } => {
            let exchange = exchanges.get_mut(&stream.0).expect("an open exchange");
            assert_eq!(head.status(), StatusCode::OK);
            assert_eq!(number(head, "x-number"), exchange.number);
            exchange.status = Some(head.status());
            exchange.complete = body == BodyLength::None;
            if let BodyLength::Sized(bytes) = body {
                assert_eq!(bytes, exchange.asked as u64);
            }
        }
        ClientEvent::Data { stream, range } => {
            let exchange = exchanges.get_mut(&stream.0).expect("an open exchange");
            exchange.received.extend_from_slice(&input[range.clone()]);
            exchange.unread += range.len() as u32;
        }
        ClientEvent::Trailers { stream } => {
            let exchange = exchanges.get_mut(&stream.0).expect("an open exchange");
            assert_eq!(number(head, "x-received"), exchange.up);
            exchange.complete = true;
        }
        ClientEvent::End { stream } => exchanges.get_mut(&stream.0).expect("an open exchange").complete = true,
        ClientEvent::Interim { .. } => assert_eq!(head.status(), StatusCode::EARLY_HINTS),
        ClientEvent::Reset { stream, .. } | ClientEvent::Unprocessed { stream, .. } => {
            assert!(exchanges.remove(&stream.0).is_some());
            return 1;
        }
        other => panic!("{other:?}"),
    }
    0
}

/// Sends and reads some bytes; returns whether the exchange is over.
fn progress(
    client: &mut Client,
    id: StreamId,
    exchange: &mut Exchange,
    random: &mut Random,
    out: &mut WriteList,
) -> bool {
    while !exchange.sent && !exchange.left.is_empty() && client.writable(id) {
        let mut some = exchange.left.split_to((1 + random.size()).min(exchange.left.len()));
        client.send(id, &mut some, out);
        if !some.is_empty() {
            exchange.left = Chunk::from([some.as_slice(), exchange.left.as_slice()].concat());
            break;
        }
        if exchange.gives_up && random.one_in(4) {
            client.reset(id, out);
            return true;
        }
    }
    if !exchange.sent && exchange.left.is_empty() {
        if exchange.trailers {
            let mut trailers = FieldMap::new();
            trailers.append(NameRef::parse(b"x-sum").unwrap(), FieldValue::from_static("1"));
            client.send_trailers(id, &trailers, out);
        }
        client.finish(id, out);
        exchange.sent = true;
    }
    if exchange.unread > 0 && !random.one_in(3) {
        let some = 1 + random.below(exchange.unread as usize) as u32;
        exchange.unread -= some;
        client.release(id, some, out);
    }
    if exchange.complete && exchange.sent {
        assert!(exchange.received == content(exchange.number, exchange.asked));
        return true;
    }
    false
}

/// Responds as the path `/number/length/trailers` requests.
async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    mut random: Random,
) {
    let parts: Vec<usize> = request.uri().path()[1..].split('/').map(|part| part.parse().unwrap()).collect();
    let (number, len, with_trailers) = (parts[0], parts[1], parts[2] == 1);
    assert_eq!(request.uri().host(), Some("a.test"));
    assert_eq!(request.headers()["accept"], "text/html");
    let declared =
        request.headers().get("content-length").map(|value| value.to_str().unwrap().parse::<usize>().unwrap());
    let mut body = request.into_body();
    let mut received = Vec::new();
    let resets = random.one_in(10);
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else { return };
        received.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).unwrap();
        if resets && random.one_in(3) {
            return respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
    }
    let Ok(_) = body.trailers().await else { return };
    assert!(received == content(number, received.len()));
    assert!(declared.is_none_or(|declared| declared == received.len()));
    let mut response = http::Response::builder().header("x-number", number).header("server", "theirs");
    if random.one_in(2) && !with_trailers {
        response = response.header("content-length", len);
    }
    let Ok(mut send) = respond.send_response(response.body(()).unwrap(), len == 0 && !with_trailers) else { return };
    let mut sent = 0;
    while sent < len {
        let some = (1 + random.size()).min(len - sent);
        send.reserve_capacity(some);
        let Some(Ok(room)) = std::future::poll_fn(|cx| send.poll_capacity(cx)).await else { return };
        let some = some.min(room);
        let is_last = sent + some == len && !with_trailers;
        if send.send_data(Bytes::from(content(number, sent + some)[sent..].to_vec()), is_last).is_err() {
            return;
        }
        sent += some;
    }
    if with_trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-received", received.len().into());
        let _ = send.send_trailers(trailers);
    }
}

#[test]
fn our_client_and_their_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for seed in 1..=8u64 {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let own = Settings {
            stream_window: [100, 65_535, 1_000_000][random.below(3)],
            connection_window: [65_535, 2_000_000][random.below(2)],
            header_table_bytes: [0, 100, 4096, 16_384][random.below(4)],
            encoder_table_bytes: [0, 100, 4096, 16_384][random.below(4)],
            ..Settings::client()
        };
        let local = tokio::task::LocalSet::new();
        let (theirs, ours) = tokio::io::duplex([100, 1000, 100_000][random.below(3)]);
        let mut builder = h2::server::Builder::new();
        builder
            .initial_window_size([100, 1000, 65_535, 1_000_000][random.below(4)])
            .initial_connection_window_size([65_535, 1_000_000][random.below(2)])
            .max_frame_size([16_384, 100_000][random.below(2)])
            .max_concurrent_streams([3, 100][random.below(2)]);
        let mut theirs_random = random.clone();
        local.spawn_local(async move {
            let mut connection = builder.handshake::<_, Bytes>(theirs).await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                theirs_random.below(9);
                tokio::task::spawn_local(answer(request, respond, theirs_random.clone()));
            }
        });
        let run = local.run_until(run(ours, own, random, 30));
        let refused = runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), run).await.expect("no exchange hangs") });
        assert!(refused < 30, "{refused}");
    }
}
