//! gRPC, httpgrpc and ACME with Go peers: grpc-go's interop programs, grpcurl, the httpgrpc of grafana/dskit and of
//! weaveworks/common, and the ACME authority Pebble. `./test interop` builds them. Without them each test is skipped
//! with a message.
//!
//! - [`peer`]: a Go program that serves or makes calls
//! - [`calls`]: calls of httpgrpc with their expected outcomes
//! - [`httpgrpc`]: our server with Go clients, and Go servers as upstreams of our proxy
//! - [`grpc`]: gRPC through our proxy
//! - [`acme`]: certificates from Pebble, Let's Encrypt's test authority
//! - [`acme_server`]: our authority with Caddy as its client
//! - [`bind`]: BIND, a DNS server, for DNS-01
//! - [`php`]: php-fpm as a FastCGI application

mod acme;
mod acme_server;
mod bind;
mod calls;
mod grpc;
mod httpgrpc;
mod peer;
mod php;
