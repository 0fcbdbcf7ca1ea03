//! The wire form of requests and responses. Each form has two hooks: before the request is sent, and after the
//! response's head is received.

use causeway_pipeline::{Body, Build, BuildError, Call, Context, Fault, Step};

use super::answer;
use super::backend::AddressPool;
use super::exchange::PendingCall;
use super::httpgrpc::{self, HttpGrpc};

/// A wire form.
#[derive(Clone, Copy)]
pub(super) enum Carriage {
    /// Plain HTTP.
    Http,
    /// HTTP in gRPC messages.
    HttpGrpc(HttpGrpc),
}

/// The names in `transport.protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    HttpGrpc,
}

impl Protocol {
    /// Parses a protocol name. The caller defaults to HTTP without a transport.
    pub(super) fn find(protocol: &str, build: &Build<'_>) -> Result<Self, BuildError> {
        match protocol {
            "http" => Ok(Self::Http),
            "httpgrpc" => Ok(Self::HttpGrpc),
            _ => Err(build.refuse(protocol, "http or httpgrpc; other transports are not built into this version")),
        }
    }
}

impl Carriage {
    pub(super) fn is_http(self) -> bool {
        matches!(self, Self::Http)
    }

    /// Converts a request to its wire form. The call contains the head, which this may change; returns the content to
    /// send.
    pub(super) fn wrap(self, cx: &mut Context, call: &Call, content: Body, place: &AddressPool) -> Result<Body, Fault> {
        match self {
            Self::Http => Ok(content),
            Self::HttpGrpc(options) => httpgrpc::ask::wrap(cx, call, content, place, options),
        }
    }

    /// Converts the call's response, whose head has been received, to the client's response.
    pub(super) fn unwrap(self, cx: &mut Context, call: Call, asked: PendingCall) -> Step {
        match self {
            Self::Http => answer::decide(cx, call, asked),
            Self::HttpGrpc(options) => httpgrpc::answer::unwrap(cx, call, asked, options),
        }
    }

    /// Removes the scheme from an upstream's address. Also returns whether the address is a name that stands for all of
    /// its addresses.
    pub(super) fn strip_scheme(self, dial: &str) -> (&str, bool) {
        match self {
            Self::Http => (dial, false),
            Self::HttpGrpc(_) => httpgrpc::strip_scheme(dial),
        }
    }
}
