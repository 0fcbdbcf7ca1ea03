//! One thread makes progress; another does equally much useless work.

use super::super::kit::{self, thread};
use super::super::knob::{Cost, Random};
use super::super::planted::{burner, purpose};

pub(crate) fn start() {
    let (wasted, useful) = (Cost::of("burner", 200), Cost::of("purpose", 200));
    thread::spawn(move || {
        let mut random = Random::new(1);
        loop {
            // At least some steps, so that the loop always does work.
            burner(wasted.draw(&mut random).max(1000));
        }
    });
    thread::spawn(move || {
        let mut random = Random::new(2);
        loop {
            purpose(useful.draw(&mut random));
            kit::done();
        }
    });
}
