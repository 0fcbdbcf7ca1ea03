//! A tonic gRPC service on Causeway's engine: `cargo run --example grpc_greeter -- 127.0.0.1:50051`, then, in this
//! directory, `grpcurl -plaintext -proto greeter.proto -d '{"name":"you"}' localhost:50051 greeter.Greeter/Hello`.

mod greeter;

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use greeter::{Greeter, GreeterServer, Greeting, Name};
use tonic::{Request, Response, Status, Streaming};

struct Polite;

impl Greeter for Polite {
    type Greetings = Pin<Box<dyn Stream<Item = Result<Greeting, Status>> + Send>>;

    async fn hello(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        greet(&request.into_inner()).map(Response::new)
    }

    async fn hello_to_all(&self, request: Request<Streaming<Name>>) -> Result<Response<Self::Greetings>, Status> {
        let greetings = request.into_inner().map(|name| greet(&name?));
        Ok(Response::new(Box::pin(greetings)))
    }
}

fn greet(Name { name }: &Name) -> Result<Greeting, Status> {
    if name.is_empty() {
        return Err(Status::invalid_argument("whom?"));
    }
    Ok(Greeting { text: format!("hello, {name}") })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tower_edge::ServeError> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let routes = tonic::service::Routes::new(GreeterServer::new(Polite)).prepare();
    tower_edge::Server::builder().listen(listen).serve(routes).await
}
