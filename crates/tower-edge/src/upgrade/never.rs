//! Without the feature `upgrade`, an Upgrade is handled as an ordinary request.

use causeway_pipeline::{Context, StateId, Step};

use crate::edge::{ConnectionFacts, EdgeState, Servable};

/// Returns `None`, so that the request is handled as usual.
#[inline]
pub(crate) fn enter<S: Servable>(_: StateId<EdgeState<S>>, _: ConnectionFacts, _: &mut Context) -> Option<Step> {
    None
}
