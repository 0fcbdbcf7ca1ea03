//! Bounds the concurrent orders at each authority, so that one that does not answer delays no name of another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::blocking::locked;

/// Orders at one authority. More would only wait for its rate limits.
const ORDERS_MAX: usize = 32;
/// Those of them in the background. The others are for handshakes, because an order takes minutes at an authority that
/// does not answer.
const BACKGROUND_ORDERS_MAX: usize = 24;

/// The slots by the authority that a name's orders try first.
#[derive(Default)]
pub(super) struct OrderSlots(Mutex<HashMap<String, AuthoritySlots>>);

#[derive(Clone)]
struct AuthoritySlots {
    all: Arc<Semaphore>,
    background: Arc<Semaphore>,
}

/// Whether a client waits for an order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderUrgency {
    Handshake,
    Background,
}

/// A slot. Dropping it lets another order begin.
pub(super) struct OrderSlot {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl OrderSlots {
    /// Waits for a slot at the authority with this storage name.
    pub(super) async fn acquire(&self, authority: &str, urgency: OrderUrgency) -> OrderSlot {
        let slots = locked(&self.0).entry(authority.to_owned()).or_insert_with(AuthoritySlots::new).clone();
        let background = match urgency {
            OrderUrgency::Handshake => None,
            // The semaphores are never closed.
            OrderUrgency::Background => slots.background.acquire_owned().await.ok(),
        };
        OrderSlot { _permits: [background, slots.all.acquire_owned().await.ok()] }
    }
}

impl AuthoritySlots {
    fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(ORDERS_MAX)), background: Arc::new(Semaphore::new(BACKGROUND_ORDERS_MAX)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // Caddy's on-demand TLS: a handshake waits for its order. Orders at an authority that does not answer delay neither
    // it nor other names.
    #[tokio::test]
    async fn an_authority_delays_no_other_one() {
        let slots = OrderSlots::default();
        let acquire = async |authority: &str, urgency| {
            tokio::time::timeout(Duration::ZERO, slots.acquire(authority, urgency)).await.ok()
        };
        let mut held = Vec::new();
        while let Some(slot) = acquire("dead", OrderUrgency::Background).await {
            held.push(slot);
        }
        assert_eq!(held.len(), BACKGROUND_ORDERS_MAX);
        assert!(acquire("other", OrderUrgency::Background).await.is_some());
        while let Some(slot) = acquire("dead", OrderUrgency::Handshake).await {
            held.push(slot);
        }
        assert_eq!(held.len(), ORDERS_MAX);
        held.clear();
        assert!(acquire("dead", OrderUrgency::Background).await.is_some());
    }
}
