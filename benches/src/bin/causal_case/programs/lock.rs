//! Two threads share a lock. A unit is one turn of either thread, with work inside and outside the lock.

use super::super::kit::sync::{Arc, Mutex};
use super::super::kit::{self, thread};
use super::super::knob::{Cost, Random};
use super::super::planted::{inside_lock, outside_lock};

pub(crate) fn start() {
    let (inside, outside) = (Cost::of("inside_lock", 300), Cost::of("outside_lock", 200));
    let shared = Arc::new(Mutex::new(0_u64));
    for seed in 1..=2 {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let mut random = Random::new(seed);
            loop {
                outside_lock(outside.draw(&mut random));
                {
                    let mut turns = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    inside_lock(inside.draw(&mut random));
                    *turns += 1;
                }
                kit::done();
            }
        });
    }
}
