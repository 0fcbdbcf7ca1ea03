//! Samples a toy program for two seconds, and prints its targets.
//!
//! `cargo run --release -p causeway-causal --example sample [--wall] [part of a name …]`; `--folded` prints stacks
//! instead.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causal::policy::Recorder;
use causal::sample::{Rate, Sampler, cpu_time};
use causal::target::SampleProfile;

/// A third of the work, in a function of its own.
#[inline(never)]
fn mix(seed: u64, rounds: u64) -> u64 {
    (0..rounds).fold(seed, |sum, at| black_box(sum.rotate_left(7) ^ at))
}

/// Two thirds of the work, which the compiler may inline.
#[inline]
fn stir(seed: u64, rounds: u64) -> u64 {
    mix(seed, rounds) ^ mix(!seed, rounds)
}

/// Spends most of its time in the C library, which keeps no frame pointers.
#[inline(never)]
fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(black_box(from));
}

fn work(end: &AtomicBool) -> u64 {
    let (from, mut to, mut sum) = (vec![1; 1 << 16], vec![0; 1 << 16], 0);
    while !end.load(Ordering::Relaxed) {
        sum ^= mix(sum, 1000);
        sum ^= stir(sum, 1000);
        let _copying = progress::span!("copying");
        (0..4).for_each(|_| copy(&from, &mut to));
    }
    sum ^ u64::from(to[0])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let wanted: Vec<String> = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
    // Spans are tracked while a policy is active.
    static RECORDER: Recorder = Recorder::new();
    progress::install(&RECORDER).map_err(|_| "another policy is installed")?;
    progress::set_attention(progress::Attention::Everything);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("worker-1".into());
        worker.spawn_scoped(scope, || {
            progress::register_thread();
            black_box(work(&end));
        })?;
        let rate = if has("--wall") { Rate::Wall } else { Rate::Cpu };
        let (mut profile, began) = (SampleProfile::new(rate.period()), Instant::now());
        let sampler = Sampler::start(rate);
        let started = began.elapsed();
        let outcome = sampler.map(|mut sampler| {
            while began.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(50));
                sampler.refresh();
                sampler.drain(|sample| profile.add(sample));
            }
            let used: u64 = progress::accounts().into_iter().filter_map(cpu_time).sum();
            (sampler.lost(), used)
        });
        end.store(true, Ordering::Relaxed);
        let (lost, used) = outcome?;
        let (began, targets) = (Instant::now(), profile.targets(&wanted, 24));
        let named = began.elapsed();
        if has("--folded") {
            for stack in profile.stacks() {
                println!("{} {}", stack.frames.join(";"), stack.nanoseconds.div_ceil(1_000_000));
            }
            return Ok(());
        }
        println!(
            "started in {started:.1?}; {} samples of {} ms, {lost:?}; {:?}, named in {named:.1?}",
            profile.samples(),
            used / 1_000_000,
            profile.symbols()
        );
        for target in targets {
            println!(
                "{:6.2} %  {:6}  {:8}  {}",
                100.0 * target.share,
                target.samples,
                format!("{:?}", target.kind),
                target.name
            );
        }
        Ok(())
    })
}
