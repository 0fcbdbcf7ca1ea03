//! A bare tower service, without a framework, on Causeway's engine: `cargo run --example bare_service --
//! 127.0.0.1:8080`. It counts the requests of its worker without a lock, because each worker has a clone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower_edge::EdgeBody;
use tower_service::Service;

#[derive(Clone, Default)]
struct Counter {
    requests: u64,
}

impl Service<Request<EdgeBody>> for Counter {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<EdgeBody>) -> Self::Future {
        self.requests += 1;
        let text = format!("{} {}: request {} of this worker\n", request.method(), request.uri(), self.requests);
        ready(Ok(Response::new(Full::new(text.into()))))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tower_edge::ServeError> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    tower_edge::Server::builder().listen(listen).workers(1).serve(Counter::default()).await
}
