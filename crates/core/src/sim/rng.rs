//! Numbers from a seed.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// A number in `range`, both ends included.
    pub fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.below((range.end() - range.start() + 1) as u64) as usize
    }

    /// A number above zero and at most one.
    pub fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number of a log-normal distribution. Source: Box and Muller 1958.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let (radius, turn) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
        median * (sigma * radius * turn.cos()).exp()
    }

    /// True once in `chances` times on average, and never for zero.
    pub fn one_in(&mut self, chances: u64) -> bool {
        chances > 0 && self.below(chances) == 0
    }
}

/// A number that looks unlike its neighbours'.
pub(super) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
