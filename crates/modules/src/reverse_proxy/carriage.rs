//! In which form a request travels to an upstream, and its answer back. Each form has its say at two places: when the request is
//! about to be sent, and when the answer's head is there.

use causeway_pipeline::{Body, Build, BuildError, Call, Context, Fault, Step};

use super::answer;
use super::backend::Place;
use super::exchange::Asked;
use super::httpgrpc::{self, HttpGrpc};

/// A form.
#[derive(Clone, Copy)]
pub(super) enum Carriage {
    /// As itself.
    Http,
    /// In a message of gRPC.
    HttpGrpc(HttpGrpc),
}

/// The forms, by `transport.protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    HttpGrpc,
}

impl Protocol {
    /// Without a transport it is HTTP.
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

    /// Makes of a request, whose head the call has, what is sent: its content, and whatever it changes in the head.
    pub(super) fn wrap(self, cx: &mut Context, call: &Call, content: Body, place: &Place) -> Result<Body, Fault> {
        match self {
            Self::Http => Ok(content),
            Self::HttpGrpc(options) => httpgrpc::ask::wrap(cx, call, content, place, options),
        }
    }

    /// Makes the exchange's answer of the call's, of which the head is there.
    pub(super) fn unwrap(self, cx: &mut Context, call: Call, asked: Asked) -> Step {
        match self {
            Self::Http => answer::decide(cx, call, asked),
            Self::HttpGrpc(options) => httpgrpc::answer::unwrap(cx, call, asked, options),
        }
    }

    /// An upstream's address without what only this form understands before it, and whether it is a name that stands for all its
    /// addresses.
    pub(super) fn strip_scheme(self, dial: &str) -> (&str, bool) {
        match self {
            Self::Http => (dial, false),
            Self::HttpGrpc(_) => httpgrpc::strip_scheme(dial),
        }
    }
}
