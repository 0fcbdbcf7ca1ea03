//! gRPC and httpgrpc with programs in Go at the other end: grpc-go's interop programs, grpcurl, and the httpgrpc of grafana/dskit and of
//! weaveworks/common. `./test interop` builds them; where they are not there each test says so.
//!
//! - [`peer`]: a program in Go that serves, or that makes calls
//! - [`calls`]: calls of httpgrpc, and what has to come of each
//! - [`httpgrpc`]: our server asked by Go, and Go's servers behind our proxy
//! - [`grpc`]: gRPC through our proxy

mod calls;
mod grpc;
mod httpgrpc;
mod peer;
