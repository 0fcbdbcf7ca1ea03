//! Two stages with a bounded channel between them; the second is half as fast as the first.

use super::super::kit::sync::mpsc;
use super::super::kit::{self, thread};
use super::super::knob::{Cost, Random};
use super::super::planted::{first_stage, second_stage};

/// Capacity of the channel in units.
const WAITING_MAX: usize = 16;

pub(crate) fn start() {
    let (fast, slow) = (Cost::of("first_stage", 150), Cost::of("second_stage", 300));
    let (sender, receiver) = mpsc::sync_channel(WAITING_MAX);
    thread::spawn(move || {
        let mut random = Random::new(1);
        loop {
            first_stage(fast.draw(&mut random));
            if sender.send(random.part()).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let mut random = Random::new(2);
        while let Ok(unit) = receiver.recv() {
            second_stage(slow.draw(&mut random));
            std::hint::black_box(unit);
            kit::done();
        }
    });
}
