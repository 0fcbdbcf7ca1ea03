//! Random durations from a seed.

/// A SplitMix64 generator: 8 bytes of state, and every seed is valid.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator for one stream of a seed. Streams are independent.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        mixed.next();
        mixed
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
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
    pub fn draw(self, random: &mut SplitMix64) -> f64 {
        let unit = random.unit();
        match self {
            Self::Fixed(time) => time as f64,
            Self::About(mean) => mean as f64 * (0.5 + unit),
            Self::Random(mean) => -(mean as f64) * (1.0 - unit).ln(),
        }
    }
}
