//! The wire form of requests and responses. Each form has two hooks: before the request is sent, and after the
//! response's head is received.

use std::rc::Rc;

use causeway_pipeline::{Body, Build, BuildError, Call, Context, Fault, Step};

use super::attempt::PendingCall;
use super::backend::AddressPool;
use super::fastcgi::FastCgi;
use super::httpgrpc::{self, HttpGrpcOptions};
use super::{Local, answer};

/// A wire form.
pub(super) enum WireForm {
    /// Plain HTTP.
    Http,
    /// HTTP in gRPC messages.
    HttpGrpc(HttpGrpcOptions),
    /// CGI's variables and content over FastCGI.
    FastCgi(Box<FastCgi>),
}

/// The names in `transport.protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    HttpGrpc,
    FastCgi,
}

impl Protocol {
    /// Parses a protocol name. The caller defaults to HTTP without a transport.
    pub(super) fn find(protocol: &str, build: &Build<'_>) -> Result<Self, BuildError> {
        match protocol {
            "http" => Ok(Self::Http),
            "httpgrpc" => Ok(Self::HttpGrpc),
            "fastcgi" => Ok(Self::FastCgi),
            _ => {
                let expected = "http, fastcgi or httpgrpc; other transports are not supported (docs/refused.md)";
                Err(build.refuse(protocol, expected))
            }
        }
    }
}

impl WireForm {
    /// Waits for the data that the wire form needs before an upstream is selected. `None` if there is nothing to wait
    /// for.
    pub(super) fn prepare(&self, cx: &mut Context, local: &Rc<Local>) -> Option<Step> {
        match self {
            Self::Http | Self::HttpGrpc(_) => None,
            Self::FastCgi(fastcgi) => fastcgi.prepare(cx, local),
        }
    }

    /// Returns whether the content to send is the request's own. In another form it contains the head of one attempt.
    pub(super) fn sends_own_content(&self) -> bool {
        !matches!(self, Self::HttpGrpc(_))
    }

    /// Returns whether each request has to have a host. For CGI it is that of the server to which the client directed
    /// the request, and never the application's own (RFC 3875 §4.1.14).
    pub(super) fn requires_host(&self) -> bool {
        !matches!(self, Self::FastCgi(_))
    }

    /// Returns whether the head of a request announces the length of the content that is sent. CGI has a variable for
    /// it, so that a request whose content another handler has taken is one without content (RFC 3875 §4.1.2).
    pub(super) fn sends_declared_length(&self) -> bool {
        !matches!(self, Self::FastCgi(_))
    }

    /// Converts a request to its wire form. The call contains the head, which this may change.
    ///
    /// # Errors
    /// The request cannot be sent in this form. `content` is unchanged then, if it is of a kind that the exchange
    /// passes.
    pub(super) fn wrap(
        &self,
        cx: &mut Context,
        call: &Call,
        content: &mut Body,
        pool: &AddressPool,
    ) -> Result<(), Fault> {
        match self {
            Self::Http => Ok(()),
            Self::HttpGrpc(options) => httpgrpc::ask::wrap(cx, call, content, pool, *options),
            Self::FastCgi(fastcgi) => fastcgi.wrap(cx, call, content),
        }
    }

    /// Converts the call's response, whose head has been received, to the client's response.
    pub(super) fn unwrap(&self, cx: &mut Context, call: Call, pending: PendingCall) -> Step {
        match self {
            Self::Http | Self::FastCgi(_) => answer::decide(cx, call, pending),
            Self::HttpGrpc(options) => httpgrpc::answer::unwrap(cx, call, pending, *options),
        }
    }

    /// Removes the scheme from an upstream's address. Also returns whether the address is a name that stands for all of
    /// its addresses.
    pub(super) fn strip_scheme<'d>(&self, dial: &'d str) -> (&'d str, bool) {
        match self {
            Self::Http | Self::FastCgi(_) => (dial, false),
            Self::HttpGrpc(_) => httpgrpc::strip_scheme(dial),
        }
    }
}
