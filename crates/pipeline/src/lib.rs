//! What happens to a request between the protocol machine and its answer: the context it travels in, the handlers and
//! matchers it meets, and the plan that says in which order.
//!
//! In reading order:
//! - [`context`]: the one typed record of an exchange, and its life from [`Spare`] to [`Context`] and back
//! - [`handler`]: the traits [`Handler`] and [`Matcher`], and the [`Step`]s a handler may take
//! - [`route`]: the frozen [`Plan`] and the one interpreter that runs it
//! - [`wait`]: how a handler waits without holding the context
//! - [`async_handler()`]: handlers that are `async` functions
//! - [`body`]: frames, request and response bodies
//! - [`template`]: placeholder strings, compiled at load
//! - [`trust`]: which fields of a request are believed
//! - [`upstream`]: calls to other servers
//! - [`worker`]: what a handler may ask of the world
//! - [`outcome`]: how an exchange ended
//! - [`listen`]: what a configuration says of listeners
//! - [`punycode`]: hosts as requests and certificates spell them
//! - [`build`]: from `serde_json::Value` to a plan; where modules register

mod async_handler;
pub mod body;
pub mod build;
pub mod context;
pub mod handler;
pub mod listen;
pub mod outcome;
pub mod punycode;
pub mod route;
pub mod template;
pub mod trust;
pub mod upstream;
pub mod wait;
mod whole_body;
pub mod worker;

pub use async_handler::{Answer, Request, async_handler};
pub use body::{Body, BodyFault, BodyStream, FileSlice, Frame, IncomingBody, Part};
pub use build::{Build, BuildError, Registry};
pub use context::{AlternativeName, Arrival, Client, ClientCertificate, Context, Scheme, Spare, TlsFacts};
pub use handler::{Fault, Handler, Matched, Matcher, PathReach, Reach, Reason, Response, Step, Stop};
pub use listen::{
    ClientAuthentication, ClientAuthenticationMode, HeadLimits, Http2, ListenAddress, ListenerSpec, Protocols,
    Timeouts, TlsPolicy, TlsSpec, TlsVersion,
};
pub use outcome::{Ending, Outcome};
pub use route::{FamilyId, Generation, Plan, RoutesId, ServerId, StateId, Verdict};
pub use template::Template;
pub use trust::{Confusable, Trust};
pub use upstream::{
    Call, CallFault, Calls, Carried, Finish, Maker, Roots, Tally, TlsClient, Transport, Upstream, Versions,
};
pub use wait::Wait;
pub use worker::{Busy, Sleep, Worker};
