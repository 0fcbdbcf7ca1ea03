//! Without the feature `upgrade` a service is not given what it could upgrade.

use causeway_pipeline::{Context, StateId, Step};

use crate::edge::{Desk, Servable, Told};

/// Nothing is done otherwise.
#[inline]
pub(crate) fn enter<S: Servable>(_: StateId<Desk<S>>, _: Told, _: &mut Context) -> Option<Step> {
    None
}
