//! Every example, run as a user runs it, with independent clients: curl, h2load, tonic, tungstenite.

#[path = "../examples/grpc_greeter/greeter.rs"]
#[allow(dead_code, reason = "its server's half")]
mod greeter;
mod support;

use std::process::Command;

use futures_util::{SinkExt as _, StreamExt as _};
use greeter::{Greeting, Name};
use support::block_on;
use support::example::Example;
use tokio_tungstenite::tungstenite::Message;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

/// Returns curl's output.
#[track_caller]
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-sS", "-m", "20"]).args(arguments).output().expect("curl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a text")
}

#[test]
fn each_example_has_a_test() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut names: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["axum_router.rs", "bare_service.rs", "grpc_greeter"]);
}

#[test]
fn axum_router() {
    let example = Example::start("axum_router");
    let url = |path: &str| format!("http://{}{path}", example.address);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        assert_eq!(curl(&[version, &url("/")]), "hello\n");
        assert_eq!(curl(&[version, &url("/hello/you")]), "hello, you\n");
        assert_eq!(curl(&[version, "-d", &"x".repeat(100_000), &url("/length")]), "100000\n");
        assert!(curl(&[version, &url("/peer")]).starts_with("127.0.0.1:"));
        assert_eq!(curl(&[version, "-o", "/dev/null", "-w", "%{http_code}", &url("/nowhere")]), "404");
    }
    block_on(async {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/echo", example.address)).await.unwrap();
        for length in [0, 1, 125, 126, 70_000, 1 << 20] {
            let message = Message::binary(vec![7; length]);
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message, "{length}");
        }
        socket.close(None).await.unwrap();
        let end = socket.next().await;
        assert!(matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
    });
    assert!(example.interrupt().success(), "it exits with success");
}

#[test]
fn bare_service() {
    let example = Example::start("bare_service");
    let url = format!("http://{}/a?b", example.address);
    assert_eq!(curl(&[&url]), "GET /a?b: request 1 of this worker\n");
    assert_eq!(curl(&["--http2-prior-knowledge", "-X", "PUT", &url]), "PUT /a?b: request 2 of this worker\n");
    let output = Command::new("h2load").args(["-n", "1000", "-c", "4", "-m", "10", &url]).output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("1000 done, 1000 succeeded, 0 failed"), "{text}");
            assert_eq!(curl(&[&url]), "GET /a?b: request 1003 of this worker\n");
        }
        Err(error) => println!("without h2load: {error}"),
    }
}

#[test]
fn grpc_greeter() {
    let example = Example::start("grpc_greeter");
    block_on(async {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", example.address)).unwrap();
        let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
        let name = |name: &str| Name { name: name.to_owned() };
        let hello = http::uri::PathAndQuery::from_static("/greeter.Greeter/Hello");
        let codec = ProstCodec::<Name, Greeting>::default;
        for _ in 0..3 {
            grpc.ready().await.unwrap();
            let answer = grpc.unary(Request::new(name("you")), hello.clone(), codec()).await.unwrap();
            assert_eq!(answer.into_inner().text, "hello, you");
        }
        grpc.ready().await.unwrap();
        // The response has trailers only, which contain the status.
        let refused = grpc.unary(Request::new(name("")), hello, codec()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "whom?"));
        grpc.ready().await.unwrap();
        let nowhere = http::uri::PathAndQuery::from_static("/greeter.Greeter/Bye");
        let refused = grpc.unary(Request::new(name("you")), nowhere, codec()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
        // Each greeting arrives before the next name is sent.
        grpc.ready().await.unwrap();
        let (names, sent) = futures_channel::mpsc::unbounded();
        let all = http::uri::PathAndQuery::from_static("/greeter.Greeter/HelloToAll");
        let mut greetings = grpc.streaming(Request::new(sent), all, codec()).await.unwrap().into_inner();
        for at in 0..5 {
            names.unbounded_send(name(&at.to_string())).unwrap();
            assert_eq!(greetings.message().await.unwrap().unwrap().text, format!("hello, {at}"));
        }
        drop(names);
        assert_eq!(greetings.message().await.unwrap(), None);
    });
}
