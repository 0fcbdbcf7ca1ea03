//! Errors as clients see them: problem documents (RFC 7807) with ACME's types (RFC 8555 §6.7).

use serde_json::{Value, json};

/// An error for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The last part of the type `urn:ietf:params:acme:error:…`.
    pub(super) kind: &'static str,
    /// The status code of the response.
    pub(super) status: u16,
    /// An explanation for the client's operator.
    pub(super) detail: String,
}

impl Problem {
    pub(super) fn new(kind: &'static str, status: u16, detail: impl Into<String>) -> Self {
        Self { kind, status, detail: detail.into() }
    }

    /// A request that this server cannot read.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new("malformed", 400, detail)
    }

    /// A request for an object that does not exist, or that belongs to another account.
    pub(super) fn missing(what: &str) -> Self {
        Self::new("malformed", 404, format!("this server has no such {what}"))
    }

    /// A request that the account may not make.
    pub(super) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new("unauthorized", 403, detail)
    }

    /// A bound of this server is reached.
    pub(super) fn limited(detail: impl Into<String>) -> Self {
        Self::new("rateLimited", 429, detail)
    }

    /// A name that this server does not issue for.
    pub(super) fn rejected(detail: impl Into<String>) -> Self {
        Self::new("rejectedIdentifier", 400, detail)
    }

    /// A failure on this side. The cause is logged, not sent.
    pub(super) fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!("acme_server: {cause}");
        Self::new("serverInternal", 500, "the server failed; its log has the cause")
    }

    pub(super) fn to_json(&self) -> Value {
        let mut document = json!({ "type": format!("urn:ietf:params:acme:error:{}", self.kind), "detail": self.detail, "status": self.status });
        if self.kind == "badSignatureAlgorithm" {
            // RFC 8555 §6.2: the client can choose another one.
            document["algorithms"] = super::jws::ALGORITHMS.into();
        }
        document
    }
}

impl From<causeway_certs::Error> for Problem {
    fn from(error: causeway_certs::Error) -> Self {
        Self::internal(&error)
    }
}
