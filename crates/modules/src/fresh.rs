//! What a worker remembers of the file system, and for how long it believes it.
//!
//! A value is believed for a second after the look at the file system that made it began. Who asks then is told that it is
//! stale, and looks again; until that look is over (or given up, when its peer went away) the others get what was there. So
//! nobody gets what is older than a second and one look.
//!
//! It lies in a state that outlives a reload ([`causeway_pipeline::Build::kept_state`]), under a key that names all that its
//! values depend on.
//!
//! Beyond a bound, values go by the clock algorithm: a hand goes round, who was used since it last came by stays. Values that
//! hold files open have a round of their own, so that neither kind is searched for the other.

use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// How long a value is taken for true.
const BELIEVED: Duration = Duration::from_secs(1);
/// What a value costs beside itself and its key, roughly.
const SLOT_OCTETS: usize = 256;

/// What a value takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    pub(crate) octets: usize,
    /// Open files.
    pub(crate) open: usize,
}

pub(crate) trait Costly {
    fn cost(&self) -> Cost;
}

/// What is known of a key.
pub(crate) enum Known<T> {
    Fresh(Rc<T>),
    /// To be looked at again by whoever is told so.
    Stale(Rc<T>, Looking),
    Nothing,
}

/// Held while one looks again; dropped without a result it lets the next one look.
pub(crate) struct Looking(#[expect(dead_code, reason = "only that it is held counts")] Rc<()>);

struct Slot<T> {
    key: Rc<[u8]>,
    value: Rc<T>,
    cost: Cost,
    looked: Instant,
    looking: Weak<()>,
    used: bool,
}

/// Slots with a hand that goes round them.
struct Round<T> {
    slots: Vec<Slot<T>>,
    hand: usize,
    cost: Cost,
}

impl<T> Round<T> {
    const fn new() -> Self {
        Self { slots: Vec::new(), hand: 0, cost: Cost { octets: 0, open: 0 } }
    }

    /// The first slot that was not used since the hand last came by. There is one.
    fn unused(&mut self) -> usize {
        loop {
            self.hand = if self.hand < self.slots.len() { self.hand } else { 0 };
            if !std::mem::take(&mut self.slots[self.hand].used) {
                // The last slot comes here, so the hand stays.
                return self.hand;
            }
            self.hand += 1;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    round: usize,
    at: usize,
}

/// Values of one kind on one worker.
pub(crate) struct Fresh<T> {
    most: Cost,
    places: HashMap<Rc<[u8]>, Place>,
    /// Values that hold nothing open, and those that do.
    rounds: [Round<T>; 2],
}

impl<T: Costly> Fresh<T> {
    /// Nothing yet; `most` is what all values may take up together, their keys included.
    pub(crate) fn new(most: Cost) -> Self {
        Self { most, places: HashMap::new(), rounds: [Round::new(), Round::new()] }
    }

    /// What is known of a key. O(1), allocates when it is stale only.
    pub(crate) fn find(&mut self, key: &[u8], now: Instant) -> Known<T> {
        let Some(&place) = self.places.get(key) else { return Known::Nothing };
        let slot = &mut self.rounds[place.round].slots[place.at];
        slot.used = true;
        let value = Rc::clone(&slot.value);
        if now.saturating_duration_since(slot.looked) < BELIEVED || slot.looking.strong_count() > 0 {
            return Known::Fresh(value);
        }
        let looking = Rc::new(());
        slot.looking = Rc::downgrade(&looking);
        Known::Stale(value, Looking(looking))
    }

    /// A look that began at `began` found the value as it was.
    pub(crate) fn touch(&mut self, key: &[u8], began: Instant) {
        if let Some(place) = self.places.get(key) {
            self.rounds[place.round].slots[place.at].looked = began;
        }
    }

    /// Remembers what a look found that began at `began`; what does not fit in beside it goes. A value that alone is more than
    /// the bound is not kept.
    pub(crate) fn put(&mut self, key: &[u8], value: Rc<T>, began: Instant) {
        self.remove(key);
        let mut cost = value.cost();
        cost.octets += SLOT_OCTETS + key.len();
        if cost.octets > self.most.octets || cost.open > self.most.open {
            return;
        }
        while self.rounds[1].cost.open + cost.open > self.most.open {
            self.evict(1);
        }
        while self.octets() + cost.octets > self.most.octets {
            self.evict(usize::from(self.rounds[1].cost.octets > self.rounds[0].cost.octets));
        }
        let key: Rc<[u8]> = key.into();
        let number = usize::from(cost.open > 0);
        let round = &mut self.rounds[number];
        round.cost.octets += cost.octets;
        round.cost.open += cost.open;
        self.places.insert(Rc::clone(&key), Place { round: number, at: round.slots.len() });
        // Not used yet: what is asked for once goes before what is asked for again.
        round.slots.push(Slot { key, value, cost, looked: began, looking: Weak::new(), used: false });
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if let Some(&place) = self.places.get(key) {
            self.take_out(place);
        }
    }

    fn octets(&self) -> usize {
        self.rounds.iter().map(|round| round.cost.octets).sum()
    }

    fn evict(&mut self, round: usize) {
        let at = self.rounds[round].unused();
        self.take_out(Place { round, at });
    }

    fn take_out(&mut self, place: Place) {
        let round = &mut self.rounds[place.round];
        let slot = round.slots.swap_remove(place.at);
        round.cost.octets -= slot.cost.octets;
        round.cost.open -= slot.cost.open;
        self.places.remove(&slot.key);
        if let Some(moved) = round.slots.get(place.at) {
            self.places.insert(Rc::clone(&moved.key), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(Cost);

    impl Costly for Thing {
        fn cost(&self) -> Cost {
            self.0
        }
    }

    fn thing(octets: usize, open: usize) -> Rc<Thing> {
        Rc::new(Thing(Cost { octets, open }))
    }

    fn fresh() -> Fresh<Thing> {
        Fresh::new(Cost { octets: 1 << 20, open: 16 })
    }

    fn is_there(fresh: &mut Fresh<Thing>, key: &str, now: Instant) -> bool {
        !matches!(fresh.find(key.as_bytes(), now), Known::Nothing)
    }

    #[track_caller]
    fn check(fresh: &Fresh<Thing>) {
        let (mut octets, mut open) = (0, 0);
        for slot in fresh.rounds.iter().flat_map(|round| &round.slots) {
            octets += slot.cost.octets;
            open += slot.cost.open;
        }
        assert_eq!((fresh.octets(), fresh.rounds[1].cost.open, fresh.rounds[0].cost.open), (octets, open, 0));
        assert!(octets <= fresh.most.octets && open <= fresh.most.open);
        assert_eq!(fresh.places.len(), fresh.rounds.iter().map(|round| round.slots.len()).sum::<usize>());
        for (key, place) in &fresh.places {
            assert_eq!(fresh.rounds[place.round].slots[place.at].key, *key);
        }
    }

    #[test]
    fn it_stays_within_its_bounds_and_keeps_what_is_used() {
        let (mut fresh, now) = (fresh(), Instant::now());
        fresh.put(b"/kept", thing(1000, 0), now);
        fresh.put(b"/kept-open", thing(10, 1), now);
        for round in 0..2000 {
            assert!(is_there(&mut fresh, "/kept", now) && is_there(&mut fresh, "/kept-open", now), "round {round}");
            fresh.put(format!("/{round}").as_bytes(), thing(4000 * (round % 3), round % 3), now);
            check(&fresh);
        }
        assert!(fresh.rounds[1].cost.open >= 15 && fresh.rounds[0].slots.len() > 50);
        for round in 0..2000 {
            fresh.remove(format!("/{round}").as_bytes());
        }
        check(&fresh);
        assert_eq!(fresh.places.len(), 2);
        // More than there is room for at all.
        fresh.put(b"/kept", thing(1 << 20, 0), now);
        fresh.put(b"/kept-open", thing(1, 17), now);
        assert_eq!((fresh.places.len(), fresh.octets()), (0, 0));
    }

    #[test]
    fn one_looks_again_while_others_get_what_was_there() {
        let (mut fresh, now) = (fresh(), Instant::now());
        fresh.put(b"/a", thing(1, 0), now);
        assert!(matches!(fresh.find(b"/a", now + Duration::from_millis(999)), Known::Fresh(_)));
        let later = now + BELIEVED;
        let Known::Stale(_, looking) = fresh.find(b"/a", later) else { panic!("its second is over") };
        assert!(matches!(fresh.find(b"/a", later + 5 * BELIEVED), Known::Fresh(_)));
        // The look was given up: the next one looks, at once.
        drop(looking);
        let Known::Stale(_, looking) = fresh.find(b"/a", later) else { panic!("nobody looked") };
        fresh.touch(b"/a", later);
        drop(looking);
        assert!(matches!(fresh.find(b"/a", later + Duration::from_millis(999)), Known::Fresh(_)));
        assert!(matches!(fresh.find(b"/a", later + BELIEVED), Known::Stale(..)));
        fresh.remove(b"/a");
        assert!(matches!(fresh.find(b"/a", later), Known::Nothing));
    }
}
