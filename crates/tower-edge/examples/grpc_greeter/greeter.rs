//! Written by hand in place of the output of `tonic-build` for `greeter.proto`, so that the example does not need
//! `protoc`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Name {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Greeting {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

pub(crate) trait Greeter: Send + Sync + 'static {
    type Greetings: Stream<Item = Result<Greeting, Status>> + Send + 'static;

    fn hello(&self, request: Request<Name>) -> impl Future<Output = Result<Response<Greeting>, Status>> + Send;

    fn hello_to_all(
        &self,
        request: Request<Streaming<Name>>,
    ) -> impl Future<Output = Result<Response<Self::Greetings>, Status>> + Send;
}

/// A tonic service for a [`Greeter`].
pub(crate) struct GreeterServer<T>(Arc<T>);

impl<T> GreeterServer<T> {
    pub(crate) fn new(greeter: T) -> Self {
        Self(Arc::new(greeter))
    }
}

impl<T> Clone for GreeterServer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> NamedService for GreeterServer<T> {
    const NAME: &'static str = "greeter.Greeter";
}

impl<T: Greeter> Service<http::Request<Body>> for GreeterServer<T> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let greeter = Arc::clone(&self.0);
        match request.uri().path() {
            "/greeter.Greeter/Hello" => {
                Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(Hello(greeter), request).await) })
            }
            "/greeter.Greeter/HelloToAll" => {
                Box::pin(
                    async move { Ok(Grpc::new(ProstCodec::default()).streaming(HelloToAll(greeter), request).await) },
                )
            }
            _ => Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) }),
        }
    }
}

struct Hello<T>(Arc<T>);

impl<T: Greeter> UnaryService<Name> for Hello<T> {
    type Response = Greeting;
    type Future = BoxFuture<Response<Greeting>, Status>;

    fn call(&mut self, request: Request<Name>) -> Self::Future {
        let greeter = Arc::clone(&self.0);
        Box::pin(async move { greeter.hello(request).await })
    }
}

struct HelloToAll<T>(Arc<T>);

impl<T: Greeter> StreamingService<Name> for HelloToAll<T> {
    type Response = Greeting;
    type ResponseStream = T::Greetings;
    type Future = BoxFuture<Response<T::Greetings>, Status>;

    fn call(&mut self, request: Request<Streaming<Name>>) -> Self::Future {
        let greeter = Arc::clone(&self.0);
        Box::pin(async move { greeter.hello_to_all(request).await })
    }
}
