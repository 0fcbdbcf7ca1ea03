//! Random times from a seed.

/// A generator (SplitMix64): small, and every seed is a good one.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed; those of its streams are independent.
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

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How long something takes, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// Always so long.
    Fixed(u64),
    /// About so long: from half to three halves.
    About(u64),
    /// So long in the mean, and now and then much longer.
    Random(u64),
}

impl Time {
    /// One such time.
    pub fn draw(self, random: &mut Random) -> f64 {
        let unit = random.unit();
        match self {
            Self::Fixed(time) => time as f64,
            Self::About(mean) => mean as f64 * (0.5 + unit),
            Self::Random(mean) => -(mean as f64) * (1.0 - unit).ln(),
        }
    }
}
