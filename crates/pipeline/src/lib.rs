//! Request processing between the protocol machine and the response: the context of an exchange, the handlers and
//! matchers that work on it, and the plan that orders them.
//!
//! In reading order:
//! - [`context`]: the typed record of one exchange, and its life cycle from [`Spare`] to [`Context`] and back
//! - [`handler`]: the traits [`Handler`] and [`Matcher`], and the [`Step`]s that a handler returns
//! - [`route`]: the frozen [`Plan`] and the interpreter that runs it
//! - [`wait`]: how a handler waits for a future without borrowing the context
//! - [`async_handler()`]: handlers that are `async` functions
//! - [`body`]: frames, request and response bodies; `read_body`: reads a whole body within a bound
//! - [`template`]: placeholder strings, compiled at load
//! - [`trust`]: which request fields the server trusts
//! - [`upstream`]: calls to other servers
//! - [`worker`]: the services that a worker offers to handlers: clock, timers, blocking work, upstreams
//! - [`outcome`]: how an exchange ended; [`detached`]: exchanges without a client
//! - [`listen`]: the configuration of listeners
//! - [`metrics`]: counters of requests, and the formats of a scrape
//! - `log_limit`: a rate limit for log lines that requests cause
//! - [`punycode`]: host names outside of ASCII in the form that requests and certificates use
//! - [`build`]: compiles `serde_json::Value` to a plan; the registry of modules

mod async_handler;
pub mod body;
pub mod build;
pub mod context;
pub mod detached;
pub mod handler;
pub mod listen;
mod log_limit;
pub mod metrics;
pub mod outcome;
pub mod punycode;
mod read_body;
pub mod route;
pub mod template;
pub mod trust;
pub mod upstream;
pub mod wait;
pub mod worker;

pub use async_handler::{AsyncResponse, Request, async_handler};
pub use body::{
    Body, BodyEnder, BodyError, BodyPart, BodyReader, BodyStream, FileSlice, FileVersion, Frame, IncomingBody,
    OpenFile, Tunnel,
};
pub use build::{Build, BuildError, Environment, Registry};
pub use context::{AlternativeName, Arrival, Client, ClientCertificate, Context, Failure, Scheme, Spare, TlsFacts};
pub use handler::{Fault, FaultId, Handler, Matched, Matcher, PathReach, Reach, Reason, Response, Step, Stop};
pub use listen::{
    BoundAddress, ClientAuthentication, ClientAuthenticationMode, Endpoints, HeadLimits, Http2, ListenAddress,
    ListenerSpec, ListeningSocket, Protocols, ProxyPolicy, ProxyProtocol, ServerNameMatcher, TcpProbes, Timeouts,
    TlsMatchers, TlsPolicy, TlsSpec, TlsVersion, TransferLimit, UNIX_PEER, UnixAddress,
};
pub use log_limit::LogLimit;
pub use metrics::{Metrics, MetricsSpec};
pub use outcome::{Ending, Outcome};
pub use read_body::{BodyRead, ReadBody, ReadEnd};
pub use route::{FamilyId, Generation, Plan, RoutesId, ServerId, StateId, Verdict};
pub use template::Template;
pub use trust::{Confusable, FetchedRanges, Trust};
pub use upstream::{
    BodyTransform, Call, CallError, CallPool, EngineCall, FastCgi, HeldResponseHandler, NetworkProxy,
    NetworkProxyProtocol, ProxyHeader, ProxyProtocolVersion, Roots, RunningCallCounter, TlsClient, Upstream,
    UpstreamTransport, Versions,
};
pub use wait::{ReportedWait, Wait};
pub use worker::{Busy, ShutdownPhase, Sleep, Worker};
