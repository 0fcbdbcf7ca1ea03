//! The command line as its users meet it: the built binary, real files, real connections on loopback.
//!
//! - `process`: a folder, a process in it, what it prints and how it ends
//! - `client`: one request, one answer
//! - `run`, `quick`, `adapt`, `hash_password`: the commands
//! - `https`: certificates, and the way from the clear to TLS
//! - `signals`: how a server ends
//! - `api`: the admin API, call by call; `api_loads`: what a load does to a server that runs
//! - `causal`: the causal profiler, by the API and by its command
//! - `follow`: `--watch`, `--resume`, SIGUSR1
//! - `background`: `start`, `stop`, `reload`, and the small commands
//! - `mistakes`: what the operator is told
//! - `client_certificates`: what is known of who shows one
//! - `http2`: curl, nghttp, h2load and Go speak it
//! - `httpgrpc`: HTTP in gRPC, ours at both ends
//! - `interop`: gRPC and httpgrpc with Go at the other end
//! - `matchers`: each of them, in Caddyfiles
//! - `examples`: every Caddyfile under `examples/`
//! - `documents`: every Caddyfile and configuration in the documentation

mod adapt;
mod api;
mod api_loads;
mod background;
mod causal;
mod client;
mod client_certificates;
mod documents;
mod examples;
mod fmt;
mod follow;
mod hash_password;
mod http2;
mod httpgrpc;
mod https;
mod interop;
mod matchers;
mod mistakes;
mod process;
mod quick;
mod run;
mod signals;
