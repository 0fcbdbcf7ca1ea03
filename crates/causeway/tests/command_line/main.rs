//! Tests of the command line: the built binary, real files, real connections on loopback.
//!
//! - `process`: a temporary directory, and processes in it
//! - `client`: sends one request per connection
//! - `run`, `quick`, `reverse_proxy`, `adapt`, `hash_password`, `pages`: the commands
//! - `https`: certificates, and redirects to HTTPS; `certificate_sources`: sources outside the server
//! - `signals`: the end of a server
//! - `slow_clients`: minimum rates of transfers
//! - `service_manager`: inherited sockets, and messages to systemd
//! - `api`: the admin API, call by call; `api_loads`: loads on a running server
//! - `remote_admin`: configurations that a server pulls, its identity, and the remote admin API
//! - `causal`: the causal profiler, through the API and with its command
//! - `follow`: `--watch`, `--resume`, SIGUSR1
//! - `background`: `start`, `stop`, `reload`, and the small commands
//! - `mistakes`: error messages for operators
//! - `client_certificates`: the properties of a client's certificate
//! - `ocsp`: OCSP stapling with openssl's responder
//! - `http2`: curl, nghttp, h2load and Go as HTTP/2 clients; frames through the proxy
//! - `httpgrpc`: HTTP in gRPC between two Causeway servers
//! - `interop`: gRPC and httpgrpc with Go peers
//! - `logs`: access logs and compression
//! - `absent`: `null` in JSON
//! - `metrics`: the content of a scrape; `traces`: spans of requests
//! - `acme_server`: our own ACME authority; `trust` and `untrust`
//! - `storage`: export, import and clean-up of storage; `redis`: a Redis server for tests
//! - `rate_limits`: limits of several servers in Redis
//! - `matchers`: every matcher, in Caddyfiles
//! - `upgrade`: another process takes the place of a server
//! - `unix_listeners`: sites on Unix sockets
//! - `unix_sockets`: upstreams at Unix sockets; `upstreams`: upstreams that fail and return;
//!   `dynamic`: upstreams from DNS
//! - `trusted_proxies`: networks of trusted proxies that are fetched
//! - `proxy_protocol`: the PROXY protocol; `network_proxies`: upstreams through another proxy
//! - `examples`: every Caddyfile under `examples/`
//! - `patterns`: the sites of `docs/patterns.md`
//! - `documents`: every Caddyfile and configuration in the documentation

mod absent;
mod acme_server;
mod adapt;
mod api;
mod api_loads;
mod background;
mod cache;
mod causal;
mod certificate_sources;
mod client;
mod client_certificates;
mod documents;
mod dynamic;
mod examples;
mod fmt;
mod follow;
mod hash_password;
mod http2;
mod httpgrpc;
mod https;
mod interop;
mod logs;
mod matchers;
mod metrics;
mod mistakes;
mod network_proxies;
mod ocsp;
mod pages;
mod patterns;
mod process;
mod proxy_protocol;
mod quick;
mod rate_limits;
mod redis;
mod remote_admin;
mod reverse_proxy;
mod run;
mod service_manager;
mod signals;
mod slow_clients;
mod storage;
mod traces;
mod trusted_proxies;
mod unix_listeners;
mod unix_sockets;
mod upgrade;
mod upstreams;
mod web_sockets;
