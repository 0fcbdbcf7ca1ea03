//! In which form a request travels to an upstream, and its answer back. Each form has its say at two places: when the request is
//! about to be sent, and when the answer's head is there.

use causeway_pipeline::{Body, Build, BuildError, Call, Context, Fault, Step};

use super::answer;
use super::exchange::Asked;

/// A form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carriage {
    /// As itself.
    Http,
}

impl Carriage {
    /// By `transport.protocol`.
    pub(super) fn find(protocol: &str, build: &Build<'_>) -> Result<Self, BuildError> {
        match protocol {
            "http" => Ok(Self::Http),
            _ => Err(build.refuse(protocol, "http; other transports are not built into this version")),
        }
    }

    /// Makes of a request, whose head the call has, what is sent: its content, and whatever it changes in the head.
    pub(super) fn wrap(self, _cx: &mut Context, _call: &Call, content: Body) -> Result<Body, Fault> {
        match self {
            Self::Http => Ok(content),
        }
    }

    /// Makes the exchange's answer of the call's, of which the head is there.
    pub(super) fn unwrap(self, cx: &mut Context, call: Call, asked: Asked) -> Step {
        match self {
            Self::Http => answer::decide(cx, call, asked),
        }
    }
}
