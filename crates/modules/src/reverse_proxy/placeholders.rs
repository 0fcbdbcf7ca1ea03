//! `{http.reverse_proxy.…}`: placeholders about the upstream and its response. Only those that the configuration uses
//! are set.

use std::io::Write as _;
use std::time::Instant;

use causeway_message::FieldName;
use causeway_pipeline::build::go_duration;
use causeway_pipeline::context::{ValueKind, VarId};
use causeway_pipeline::{Call, Context};

use super::Local;
use super::backend::{AddressPool, BackendCommon};
use super::retry::Tries;
use super::wire_form::WireForm;
use crate::log_append::begin_span;

/// The common prefix.
pub(super) const PREFIX: &str = "http.reverse_proxy.";

/// The placeholders that the configuration uses.
pub(super) struct ProxyPlaceholders {
    of_request: Box<[(OfRequest, VarId)]>,
    of_upstream: Box<[(OfUpstream, VarId)]>,
    of_answer: Box<[(OfAnswer, VarId)]>,
    transport_error: Option<VarId>,
    is_fastcgi: bool,
}

/// Set before the first attempt, and before each further one.
#[derive(Clone, Copy)]
enum OfRequest {
    Retries,
    /// Not a placeholder of Caddy: the beginning of `{http.reverse_proxy.duration}` for `log_append`.
    Began,
}

/// Set when an upstream is selected.
#[derive(Clone, Copy)]
enum OfUpstream {
    Address,
    HostPort,
    Host,
    Port,
    Requests,
    MaxRequests,
    Fails,
}

/// Set when the response's head is received.
enum OfAnswer {
    StatusCode,
    StatusText,
    Latency,
    LatencyMs,
    Field(FieldName),
    /// Not a placeholder of Caddy: the beginning of `{http.reverse_proxy.upstream.duration}` for `log_append`.
    Began,
}

impl OfRequest {
    fn find(name: &str) -> Option<Self> {
        match name {
            "retries" => Some(Self::Retries),
            "began" => Some(Self::Began),
            _ => None,
        }
    }
}

impl OfUpstream {
    fn find(name: &str) -> Option<Self> {
        Some(match name.strip_prefix("upstream.")? {
            "address" => Self::Address,
            "hostport" => Self::HostPort,
            "host" => Self::Host,
            "port" => Self::Port,
            "requests" => Self::Requests,
            "max_requests" => Self::MaxRequests,
            "fails" => Self::Fails,
            _ => return None,
        })
    }

    fn kind(self) -> ValueKind {
        match self {
            Self::Address | Self::HostPort | Self::Host | Self::Port => ValueKind::Text,
            Self::Requests | Self::MaxRequests | Self::Fails => ValueKind::Scalar,
        }
    }
}

impl OfAnswer {
    fn find(name: &str) -> Option<Self> {
        Some(match name {
            "status_code" => Self::StatusCode,
            "status_text" => Self::StatusText,
            "upstream.latency" => Self::Latency,
            "upstream.latency_ms" => Self::LatencyMs,
            "upstream.began" => Self::Began,
            _ => Self::Field(FieldName::parse(name.strip_prefix("header.")?)?),
        })
    }

    fn kind(&self) -> ValueKind {
        match self {
            Self::StatusCode | Self::LatencyMs | Self::Began => ValueKind::Scalar,
            Self::Latency => ValueKind::Duration,
            Self::StatusText | Self::Field(_) => ValueKind::Text,
        }
    }
}

impl Local {
    /// Computed at the worker's first request, because the plan is complete only then.
    pub(super) fn placeholders(&self, cx: &Context) -> &ProxyPlaceholders {
        self.placeholders.get_or_init(|| {
            let family = cx.generation().plan().family(self.plan.placeholders);
            let of_request = family.iter().filter_map(|(name, id)| Some((OfRequest::find(name)?, *id)));
            let of_upstream = family.iter().filter_map(|(name, id)| Some((OfUpstream::find(name)?, *id)));
            let of_answer = family.iter().filter_map(|(name, id)| Some((OfAnswer::find(name)?, *id)));
            let transport_error = family.iter().find(|(name, _)| **name == *"is_transport_error").map(|(_, id)| *id);
            ProxyPlaceholders {
                of_request: of_request.collect(),
                of_upstream: of_upstream.collect(),
                of_answer: of_answer.collect(),
                transport_error,
                is_fastcgi: matches!(self.plan.wire_form, WireForm::FastCgi(_)),
            }
        })
    }
}

impl ProxyPlaceholders {
    /// Sets the placeholders about the request before an attempt.
    pub(super) fn set_before_attempt(&self, cx: &mut Context, tries: &Tries) {
        for (fact, id) in &self.of_request {
            match fact {
                OfRequest::Began => begin_span(cx, *id, tries.began),
                OfRequest::Retries => cx.with_scratch(|cx, text| {
                    // Writing to a vector cannot fail.
                    let _ = write!(text, "{}", tries.retries);
                    cx.set_variable_value(*id, text, ValueKind::Scalar);
                }),
            }
        }
    }

    /// Sets the placeholders about the selected upstream. Unsets those about a response, which an earlier proxy may
    /// have set.
    pub(super) fn set_upstream(&self, cx: &mut Context, backend: &BackendCommon, pool: &AddressPool) {
        for (_, id) in &self.of_answer {
            cx.unset_variable(*id);
        }
        for (fact, id) in &self.of_upstream {
            cx.with_scratch(|cx, text| {
                let address = &pool.address;
                // Writing to a vector cannot fail.
                let _ = match fact {
                    OfUpstream::Address => {
                        address.put_with_network(text);
                        Ok(())
                    }
                    OfUpstream::HostPort => text.write_all(address.authority.as_bytes()),
                    OfUpstream::Host => text.write_all(address.host.as_bytes()),
                    OfUpstream::Port => text.write_all(address.port.as_bytes()),
                    OfUpstream::Requests => write!(text, "{}", backend.status().requests()),
                    OfUpstream::MaxRequests => write!(text, "{}", backend.requests_max.unwrap_or(0)),
                    OfUpstream::Fails => write!(text, "{}", backend.status().failures(cx.worker().now())),
                };
                cx.set_variable_value(*id, text, fact.kind());
            });
        }
    }

    /// Sets `{http.reverse_proxy.is_transport_error}`, which is for the conditions of a retry alone.
    pub(super) fn set_transport_error(&self, cx: &mut Context) {
        if let Some(id) = self.transport_error {
            cx.set_variable_value(id, b"true", ValueKind::Scalar);
        }
    }

    pub(super) fn unset_transport_error(&self, cx: &mut Context) {
        if let Some(id) = self.transport_error {
            cx.unset_variable(id);
        }
    }

    /// Sets the placeholders about the response, whose head has been received.
    pub(super) fn set_response(&self, cx: &mut Context, call: &Call, began: Instant) {
        for (fact, id) in &self.of_answer {
            cx.with_scratch(|cx, text| {
                let head = call.head();
                let latency = || cx.worker().now().saturating_duration_since(began);
                let _ = match fact {
                    OfAnswer::StatusCode => write!(text, "{}", head.status().as_u16()),
                    // Caddy's client of FastCGI stores the phrase alone.
                    OfAnswer::StatusText if self.is_fastcgi => text.write_all(head.status().reason().as_bytes()),
                    // As in Go, with the number.
                    OfAnswer::StatusText => write!(text, "{} {}", head.status().as_u16(), head.status().reason()),
                    OfAnswer::Latency => {
                        go_duration(latency(), text);
                        Ok(())
                    }
                    OfAnswer::Began => return begin_span(cx, *id, began),
                    OfAnswer::LatencyMs => write!(text, "{}", latency().as_secs_f64() * 1e3),
                    OfAnswer::Field(name) => {
                        if !head.fields().write_joined(name.as_ref(), text) {
                            return;
                        }
                        Ok(())
                    }
                };
                cx.set_variable_value(*id, text, fact.kind());
            });
        }
    }
}
