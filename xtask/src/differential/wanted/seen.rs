//! A difference with its context, as the entries examine it.

use super::super::compare::{Difference, ResponseAspect};
use super::super::exchange::NormalizedResponse;
use super::super::request::Request;

/// A difference with its context.
#[derive(Clone, Copy)]
pub(crate) struct ObservedDifference<'a> {
    pub(crate) document: &'a str,
    pub(crate) difference: &'a Difference,
    /// Whether Caddy alone gave another response to this request after it loaded this Caddyfile again.
    pub(crate) is_unstable: bool,
    /// Whether the difference disappeared when the case was repeated.
    pub(crate) is_passing: bool,
    /// The request with Caddy's and Causeway's response; `None` when the Caddyfile itself differs.
    pub(crate) exchange: Option<(&'a Request, &'a NormalizedResponse, &'a NormalizedResponse)>,
}

impl ObservedDifference<'_> {
    pub(super) fn field(&self, name: &str) -> bool {
        matches!(&self.difference.part, ResponseAspect::Field(field) if field == name)
    }

    pub(super) fn forwarded(&self, name: &str) -> bool {
        matches!(&self.difference.part, ResponseAspect::Forwarded(line) if line == name)
    }

    pub(super) fn is(&self, caddy: &str, causeway: &str) -> bool {
        self.difference.caddy == caddy && self.difference.causeway == causeway
    }

    pub(super) fn both_have_it(&self) -> bool {
        !self.difference.caddy.is_empty() && !self.difference.causeway.is_empty()
    }

    pub(super) fn answers(
        &self,
        holds: impl FnOnce(&Request, &NormalizedResponse, &NormalizedResponse) -> bool,
    ) -> bool {
        self.exchange.is_some_and(|(request, caddy, causeway)| holds(request, caddy, causeway))
    }
}
