//! One thread does what the program is there for; another one burns as much, for nothing.

use super::super::kit::{self, thread};
use super::super::knob::{Cost, Random};
use super::super::planted::{burner, purpose};

pub(crate) fn start() {
    let (wasted, useful) = (Cost::of("burner", 200), Cost::of("purpose", 200));
    thread::spawn(move || {
        let mut random = Random::new(1);
        loop {
            // A step at least, so that it remains a loop that does something.
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
