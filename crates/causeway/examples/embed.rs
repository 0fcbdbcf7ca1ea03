//! A program that embeds a server, with a custom handler and a directive for it:
//! `cargo run --example embed`, then `curl localhost:8080/`.

use causeway::Server;
use causeway::caddyfile::{Dispenser, Error, Order, Syntax};
use causeway::message::StatusCode;
use causeway::pipeline::{Build, BuildError, Context, Handler, Response, Step, Template};
use causeway::server::{RunningServer, ServerError};
use serde::Deserialize;
use serde_json::{Value, json};

/// Responds with a text in capitals, repeated `times` times.
struct Shout {
    text: Template,
    times: usize,
}

impl Handler for Shout {
    fn enter(&self, cx: &mut Context) -> Step {
        let shouted = cx.with_rendered(&self.text, |_, text| text.to_ascii_uppercase());
        let body = cx.chunk(&[shouted, b"\n".to_vec()].concat().repeat(self.times));
        Step::Respond(Response::chunk(StatusCode::OK, body))
    }
}

/// The handler's JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShoutConfig {
    text: String,
    times: usize,
}

/// Builds the handler from its JSON when a configuration is loaded.
fn make(json: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let ShoutConfig { text, times } = build.parse_module(json)?;
    if !(1..=9).contains(&times) {
        return build.at("times", |build| Err(build.refuse(times.to_string(), "a number from 1 to 9")));
    }
    Ok(Box::new(Shout { text: build.template(&text), times }))
}

/// Parses the directive into the handler's JSON: `shout [<matcher>] <text> { times <n> }`.
fn shout(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let text = d.sole_argument()?;
    let mut times = 1;
    for mut line in d.lines() {
        match &*line.name().text {
            "times" => {
                times = line.sole_argument()?.text.parse().map_err(|_| line.word("found '{}', expected a number"))?;
            }
            _ => return Err(line.unknown("unknown option '{}'", &["times"])),
        }
    }
    Ok(json!({ "handler": "shout", "text": &*text.text, "times": times }))
}

/// Serves a Caddyfile that may use `shout`.
pub(crate) async fn start(caddyfile: &str) -> Result<RunningServer, ServerError> {
    Server::builder()
        .handler("shout", make)
        .directive("shout", Order::Before("respond"), Syntax::Handler(shout))
        .caddyfile(caddyfile)
        .workers(1)
        .start()
        .await
}

pub(crate) const CADDYFILE: &str = "\
:8080 {
	shout /twice* \"{method} {path}\" {
		times 2
	}
	shout hello
}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = start(CADDYFILE).await?;
    println!("serving on {:?}; Ctrl-C ends it", server.addresses());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
