//! Protocol upgrades through hyper (RFC 9110 §7.8), as axum's WebSockets use them.

mod support;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::extract::ws::{Message as Sent, WebSocketUpgrade};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use support::{RequestKind, block_on, builder, client, start, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::{Error, Message};
use tower_edge::HeadLimits;

/// Sends a greeting, then echoes in capitals.
async fn capitals(mut request: Request) -> Response {
    let upgrade_field = request.headers().get(header::UPGRADE).cloned();
    if upgrade_field.is_none_or(|upgrade_field| upgrade_field != "capitals") {
        return (StatusCode::UPGRADE_REQUIRED, "capitals, please").into_response();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
        stream.write_all(b"hi").await.unwrap();
        let mut bytes = vec![0; 1000];
        loop {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(len) => stream.write_all(&bytes[..len].to_ascii_uppercase()).await.unwrap(),
            }
        }
    });
    let mut answer = Response::default();
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("capitals"));
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer
}

const ASK: &str = "GET /p HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: ";

#[test]
fn bytes_pass_in_both_directions_until_either_end() {
    let running = start(Router::new().route("/p", any(capitals)));
    let mut client = client(&running);
    // Bytes directly after the request belong to the new protocol.
    client.send(format!("{ASK}capitals\r\n\r\nfirst"));
    let head = client.answer_to(RequestKind::Tunnel);
    assert_eq!(
        (head.status, head.field("Upgrade"), head.field("Connection")),
        (101, Some("capitals"), Some("Upgrade"))
    );
    assert_eq!(client.exactly(7), b"hiFIRST");
    let mut writer = client.stream.try_clone().unwrap();
    let much = std::thread::spawn(move || writer.write_all(&[b'x'; 3 << 20]).unwrap());
    assert!(client.exactly(3 << 20).iter().all(|byte| *byte == b'X'));
    much.join().unwrap();
    client.end();
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    until("the connection is over", || running.engine().observer().total().connections == 0);
}

#[test]
fn a_refused_upgrade_gets_an_ordinary_response() {
    let running = start(Router::new().route("/p", any(capitals)).fallback(async || (StatusCode::NOT_FOUND, "nothing")));
    let mut client = client(&running);
    client.send(format!("{ASK}other\r\n\r\n"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (426, "capitals, please"));
    client.send("GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.answer().text(), "nothing", "the connection stays open");
    // A request with content is not sent to hyper: by RFC 9110 §7.8 a server may ignore Upgrade.
    client.send(format!("{ASK}capitals\r\nContent-Length: 2\r\n\r\nab").replacen("GET", "POST", 1));
    assert_eq!(client.answer().status, 500, "101 without a protocol is a fault");
    assert_eq!(client.get("/p").status, 426);
}

// A panic is a 500, and ends its connection.
#[test]
fn a_service_that_panics() {
    async fn panics(request: Request) -> Response {
        assert!(!request.headers().contains_key("x-panic"), "as a test wants it");
        "calm".into_response()
    }
    let running = start(Router::new().route("/p", any(panics)));
    let mut client = client(&running);
    client.send(format!("{ASK}capitals\r\nX-Panic: 1\r\n\r\n"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (500, true));
    client.closed();
    assert_eq!(running.engine().observer().total().panics, 1);
}

// As many fields as `head_limits` allows, beyond hyper's default.
#[test]
fn many_fields() {
    let limits = HeadLimits { fields_max: 300, ..HeadLimits::default() };
    let running = builder().head_limits(limits).start(Router::new().route("/p", any(capitals))).unwrap();
    let mut client = client(&running);
    let fields: String = (0..250).map(|number| format!("\r\nX-{number}: 1")).collect();
    client.send(format!("{ASK}capitals{fields}\r\n\r\n"));
    assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
}

#[test]
fn websockets() {
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    let chat = move |upgrade: WebSocketUpgrade| {
        let open = Arc::clone(&count);
        async move {
            upgrade.protocols(["chat"]).on_upgrade(async move |mut socket| {
                open.fetch_add(1, Ordering::Relaxed);
                while let Some(Ok(message)) = socket.recv().await {
                    if let Sent::Text(text) = message
                        && socket.send(Sent::Text(format!("{text}!").into())).await.is_err()
                    {
                        break;
                    }
                }
                open.fetch_sub(1, Ordering::Relaxed);
            })
        }
    };
    let running = start(Router::new().route("/chat", any(chat)));
    let url = format!("ws://{}", running.addresses()[0]);
    block_on(async {
        let request = tokio_tungstenite::tungstenite::ClientRequestBuilder::new(format!("{url}/chat").parse().unwrap());
        let (mut socket, answer) = tokio_tungstenite::connect_async(request.with_sub_protocol("chat")).await.unwrap();
        assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
        for _ in 0..100 {
            socket.send(Message::text("hey")).await.unwrap();
        }
        for _ in 0..100 {
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hey!"));
        }
        assert_eq!(open.load(Ordering::Relaxed), 1);
        socket.close(None).await.unwrap();
        assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
        match tokio_tungstenite::connect_async(format!("{url}/nowhere")).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status().as_u16(), 404),
            other => panic!("{other:?}"),
        }
        // A peer that vanishes ends the service's half too.
        let (socket, _) = tokio_tungstenite::connect_async(format!("{url}/chat")).await.unwrap();
        drop(socket);
    });
    until("both connections are over", || {
        open.load(Ordering::Relaxed) == 0 && running.engine().observer().total().connections == 0
    });
    assert_eq!(running.engine().observer().total().panics, 0);
}

/// Opens the WebSocket `/echo` over HTTP/2, and returns the streams in both directions. `ends`: the request ends its
/// stream.
async fn open_over_http2(address: SocketAddr, ends: bool) -> (h2::SendStream<Bytes>, h2::RecvStream) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    while !client.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let request = http::Request::builder().method("CONNECT").uri(format!("http://{address}/echo"));
    let request = request.header("sec-websocket-version", "13").extension(h2::ext::Protocol::from_static("websocket"));
    let (response, content) = client.send_request(request.body(()).unwrap(), ends).unwrap();
    let response = response.await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().get("sec-websocket-accept")), (200, None));
    (content, response.into_body())
}

/// Reads a stream to its end.
async fn rest(mut inbound: h2::RecvStream) -> Vec<u8> {
    let mut got = Vec::new();
    while let Some(data) = inbound.data().await {
        got.extend_from_slice(&data.unwrap());
    }
    got
}

// RFC 8441 §5: the service sees the extended CONNECT of an HTTP/2 client as an Upgrade, and END_STREAM as the end of
// TCP's stream.
#[test]
fn a_websocket_over_http2() {
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(async |mut socket| {
            while let Some(Ok(message)) = socket.recv().await {
                let _ = socket.send(message).await;
            }
        })
    };
    let running = start(Router::new().route("/echo", any(echo)));
    let address = running.addresses()[0];
    block_on(async {
        let (mut content, mut inbound) = open_over_http2(address, false).await;
        // RFC 6455 §5.2: a text of two bytes, masked by zeros.
        content.send_data([&b"\x81\x82\0\0\0\0"[..], b"hi"].concat().into(), false).unwrap();
        let mut got = Vec::new();
        while got.len() < 4 {
            got.extend_from_slice(&inbound.data().await.unwrap().unwrap());
        }
        assert_eq!(got, b"\x81\x02hi");
        content.send_data(Bytes::new(), true).unwrap();
        assert_eq!(rest(inbound).await, b"");
        // The request's head can end the direction, too.
        let (_content, inbound) = open_over_http2(address, true).await;
        assert_eq!(rest(inbound).await, b"");
    });
}
