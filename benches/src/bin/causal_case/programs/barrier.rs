//! Two threads meet at a barrier in each turn: one works; the second sleeps first and then works, and takes longer in
//! total. An ordinary profile shows mostly the first one's work, but only work after the sleep matters.

use std::time::Duration;

use super::super::kit::sync::{Arc, Barrier};
use super::super::kit::{self, thread};
use super::super::knob::{Cost, Random};
use super::super::planted::{early_side, late_side};

const SLEEP: Duration = Duration::from_millis(1);

pub(crate) fn start() {
    let (early, late) = (Cost::of("early_side", 900), Cost::of("late_side", 600));
    let meeting = Arc::new(Barrier::new(2));
    let other = Arc::clone(&meeting);
    thread::spawn(move || {
        let mut random = Random::new(1);
        loop {
            early_side(early.draw(&mut random));
            other.wait();
        }
    });
    thread::spawn(move || {
        let mut random = Random::new(2);
        loop {
            thread::sleep(SLEEP);
            late_side(late.draw(&mut random));
            meeting.wait();
            kit::done();
        }
    });
}
