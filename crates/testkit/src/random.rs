//! Repeatable random numbers: SplitMix64 (Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014).

/// A random number generator with a seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 up to but not including `bound`, which must not be 0. The modulo bias is negligible for
    /// small bounds.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    /// Shuffles the items; every order is equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
