//! Random durations from a seed.

use causal::experiment::SeededRandom;

/// A generator for one stream of a seed. Streams are independent.
#[must_use]
pub(crate) fn stream(seed: u64, stream: u64) -> SeededRandom {
    let mut mixed = SeededRandom::new(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
    // Without this the streams would differ from those of recorded results.
    mixed.bits();
    mixed
}

/// A distribution of durations; the parameter is nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// Constant.
    Fixed(u64),
    /// Uniform from half to three halves of the mean.
    About(u64),
    /// Exponential with that mean.
    Random(u64),
}

impl Time {
    /// Draws one duration, nanoseconds.
    pub fn draw(self, random: &mut SeededRandom) -> f64 {
        let unit = random.fraction();
        match self {
            Self::Fixed(time) => time as f64,
            Self::About(mean) => mean as f64 * (0.5 + unit),
            Self::Random(mean) => -(mean as f64) * (1.0 - unit).ln(),
        }
    }
}
